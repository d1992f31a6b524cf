"""How fast one core reads a training log with all signatures, beside ripgrep and Python's `re`.

The others get the same patterns.

    python -m bench.scan [--megabytes 256] [--runs 1] [--json [FILE]]

Prints megabytes (10^6 bytes) a second of each, in one run, over the same file. relight does more than the
others: it yields findings, steps and phases, not only a count of lines.
"""

import argparse
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import healthy, results
from relight.diagnosis import phases, steplines
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.reader import LogReader

MEGABYTE = 1_000_000
PIECE = 1 << 20
RE_SHARE = 16
"""Python's `re` is so slow that it reads only one part in this many, and is measured on that."""


def write_log(path: Path, size: int) -> None:
    """A day's log of 2,000 ranks: half of it the steps of all ranks, the rest other lines and formats."""
    shares = {"titan": 0.5, "megatron": 0.2, "maxtext": 0.1, "huggingface": 0.1, "lightning": 0.1}
    with path.open("wb") as f:
        for framework, share in shares.items():
            for piece in healthy.log(framework, int(size * share), noise=400):
                f.write(piece)


def patterns() -> list[str]:
    """What relight's scan looks for."""
    found = [s.pattern for s in Catalogue.load()]
    found += [t for f in steplines.FORMATS for t in f.triggers] + list(phases.TRIGGERS)
    return [re.sub(r"\(\?P<\w+>", "(?:", p) for p in found]


def time_relight(path: Path) -> tuple[float, int]:
    """Seconds and events."""
    reader = LogReader(Catalogue.load(), str(path))
    reader.feed(b"warm up\n")
    start, events = time.perf_counter(), 0
    with path.open("rb") as f:
        while piece := f.read(PIECE):
            events += len(reader.feed(piece))
    events += len(reader.flush())
    return time.perf_counter() - start, events


def time_ripgrep(path: Path, expressions: list[str]) -> float | None:
    """Seconds, or None where ripgrep is not installed."""
    if shutil.which("rg") is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".patterns") as f:
        f.write("\n".join(expressions) + "\n")
        f.flush()
        start = time.perf_counter()
        done = subprocess.run(
            ["rg", "-c", "-a", "-j1", "--no-config", "-f", f.name, str(path)],
            capture_output=True,
            check=False,
        )
        seconds = time.perf_counter() - start
    if done.returncode > 1:
        raise RuntimeError(f"ripgrep failed: {done.stderr.decode()}")
    return seconds


def time_re(path: Path, expressions: list[str], size: int) -> float:
    """Seconds for a whole file, measured on a part of it."""
    pattern = re.compile("|".join(f"(?:{_no_flags(p)})" for p in expressions).encode())
    part = size // RE_SHARE
    with path.open("rb") as f:
        f.seek(size // 3)
        lines = f.read(part).splitlines()
    start = time.perf_counter()
    for line in lines:
        pattern.search(line)
    return (time.perf_counter() - start) * RE_SHARE


def _no_flags(pattern: str) -> str:
    return re.sub(r"^\(\?i\)", "", pattern)


def compare(megabytes: int) -> dict[str, Any]:
    """One run: megabytes a second of each, over the same file."""
    expressions = patterns()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "train.log"
        write_log(path, megabytes * MEGABYTE)
        size = path.stat().st_size
        seconds, events = time_relight(path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        ripgrep = time_ripgrep(path, expressions)
        slow = time_re(path, expressions, size)
    speed = size / MEGABYTE
    return {
        "relight_mb_s": round(speed / seconds, 1),
        "ripgrep_mb_s": round(speed / ripgrep, 1) if ripgrep is not None else None,
        "re_mb_s": round(speed / slow, 2),
        "signatures": len(Catalogue.load()),
        "peak_rss_mb": round(peak, 1),
        "events": events,
        "megabytes": round(speed, 1),
        "relight_to_ripgrep": round(ripgrep / seconds, 2) if ripgrep is not None else None,
        "relight_to_re": round(slow / seconds, 1),
    }


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=1)
    results.add_json_option(parser)
    arguments = parser.parse_args()
    runs = [compare(arguments.megabytes) for _ in range(arguments.runs)]
    if arguments.json:
        results.write(arguments.json, results.envelope("scan", runs))
        return
    for run in runs:
        for name, value in run.items():
            print(f"{name:18} {value}")


if __name__ == "__main__":
    main()
