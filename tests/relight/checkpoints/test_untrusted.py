"""A checkpoint is untrusted input: whatever a pickle in it says, nothing is run."""

import io
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.relight.checkpoints.builders import age
from tests.relight.checkpoints.test_damage import VARIANTS, look

PICKLED = {".pt", ".pth", ".ckpt", ".pkl", ".bin", ".distcp", ".metadata"}


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.trace),))


def evil_pickle(trace: Path, protocol: int = 2) -> bytes:
    """A pickle that leaves a trace; checked here to really do so."""
    data = pickle.dumps({"global_step": 5, "x": Evil(trace)}, protocol=protocol)
    pickle.loads(data)
    trace.rmdir()
    return data


def oldest_pickle(trace: Path) -> bytes:
    """Protocol 0: text, and no mark of a pickle at its start."""
    return evil_pickle(trace, 0)


def newest_pickle(trace: Path) -> bytes:
    """Protocol 5, with frames and `STACK_GLOBAL`."""
    return evil_pickle(trace, 5)


def inst_pickle(trace: Path) -> bytes:
    """The old opcode `INST`, which names and calls at once."""
    data = b"\x80\x02" + f"(V{trace}\nios\nmkdir\n.".encode()
    pickle.loads(data)
    trace.rmdir()
    return data


def evil_legacy(trace: Path) -> bytes:
    """As `torch.save` wrote before archives: the object behind a magic number, a protocol and a system."""
    before = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return (
        b"".join(pickle.dumps(value, protocol=2) for value in before)
        + evil_pickle(trace)
        + evil_pickle(trace)
    )


def evil_zip(trace: Path) -> bytes:
    """A `torch.save` archive around it; each of its members that could be unpickled is evil."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "byteorder", "data/0", "version"):
            archive.writestr(f"archive/{name}", evil_pickle(trace))
    return out.getvalue()


MAKERS = [evil_pickle, oldest_pickle, newest_pickle, inst_pickle, evil_legacy, evil_zip]


@pytest.mark.parametrize("everywhere", [False, True], ids=["where pickles belong", "in every file"])
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_malicious_pickle_in_every_file_does_nothing(
    variant: str, make: Callable[[Path], bytes], everywhere: bool, tmp_path: Path
) -> None:
    root, trace = tmp_path / "run", tmp_path / "was-here"
    VARIANTS[variant](root, 1100)
    evil = make(trace)
    for path in root.rglob("*"):
        pickled = path.suffix in PICKLED or path.name in PICKLED
        if path.is_file() and (pickled or everywhere):
            path.write_bytes(evil)
    age(root)
    for deep in (False, True):
        look(root, variant, deep=deep)
    assert not trace.exists()


def test_the_gate_uses_no_unpickler() -> None:
    source = Path(__file__).parents[3] / "relight" / "checkpoints"
    for path in source.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text.replace("import pickles", ""), path
        assert "torch.load" not in text, path
    assert "torch" not in sys.modules or os.environ.get("RELIGHT_REAL_LIBRARIES")
