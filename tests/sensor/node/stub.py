"""The stand-in for NVIDIA's library (`stub.c`): compiled here, and told by a file what to say."""

import shutil
import subprocess
from pathlib import Path

NAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("stub.c")


def compile_stub(directory: Path, *defines: str) -> Path:
    """Compiles the library into a directory and returns its path."""
    cc = shutil.which("cc")
    assert cc is not None, "these tests need a C compiler: apt-get install gcc libc6-dev"
    library = directory / NAME
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [cc, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden",
         f"-Wl,-soname,{NAME}", *(f"-D{d}" for d in defines), "-o", str(library), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return library


class Stub:
    """What the library says: lines of its file, by a key, so that a line can be changed or taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, str] = {}
        self._events = 0
        self._write()

    def gpus(self, count: int) -> None:
        self._say("gpus", f"gpus {count}")

    def set(self, what: str, gpu: int, value: int) -> None:
        self._say(f"set {what} {gpu}", f"set {what} {gpu} {value}")

    def link(self, gpu: int, number: int, up: bool) -> None:
        self._say(f"link {gpu} {number}", f"link {gpu} {number} {int(up)}")

    def error(self, function: str, code: int | None, gpu: int = -1) -> None:
        """The function fails with this code, for one GPU or (-1) for all; None: it works again."""
        which = "*" if gpu < 0 else str(gpu)
        self._say(f"error {function} {gpu}", f"error {function} {which} {code}" if code is not None else None)

    def hang(self, function: str, on: bool = True) -> None:
        """The function does not return, until told that it may."""
        self._say(f"hang {function}", f"hang {function}" if on else None)

    def xid(self, code: int, gpu: int) -> None:
        """An event comes, to each event set."""
        self._events += 1
        self._say(f"xid {self._events}", f"xid {self._events} {gpu} {code}")

    def _say(self, key: str, line: str | None) -> None:
        if line is None:
            self._lines.pop(key, None)
        else:
            self._lines[key] = line
        self._write()

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self._lines.values()))
        new.rename(self.path)
