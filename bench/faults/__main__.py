"""The fault suite, from a shell.

    python -m bench.faults [--runs N] [--first N] [--only a,b] [--lanes N] [--for 8m] [--resume] [--log FILE]
                           [--json OUT]

A real Slurm cluster of eight nodes, a real Temporal server, relight's worker and sensor as processes of
their own, and a real PyTorch training (torchrun, gloo, DDP, DCP). Each run is one job: it trains for a while,
a fault happens, and what relight does is noted and judged by the table in `scenarios.py`. Needs root, Slurm
(`make slurm-packages`) and PyTorch (`make bench-faults` installs it). Each run is appended to the log as soon
as it is over: a suite that was cut off goes on with --resume.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import results
from bench.faults.plan import due
from bench.faults.record import Run, read_runs
from bench.faults.report import judged, page, summarize
from bench.faults.runner import run_all
from bench.faults.scenarios import BY_NAME, SCENARIOS
from bench.faults.stage import DIFFERS, NODES, open_stage
from relight.durations import parse_duration


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--runs", type=int, default=20, help="of each scenario (default 20)")
    parser.add_argument(
        "--first", type=int, default=0, metavar="N",
        help="number of the first run (default 0): two suites with logs of their own share the work",
    )  # fmt: skip
    parser.add_argument("--only", default="", metavar="A,B", help="these scenarios alone")
    parser.add_argument(
        "--lanes", type=int, default=2, help="jobs at once, where faults are a job's own (default 2)"
    )
    parser.add_argument(
        "--for", dest="budget", type=parse_duration, metavar="TIME", help="begin no run after so long"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the log")
    parser.add_argument(
        "--log", type=Path, default=Path("faults.jsonl"), help="raw runs (default faults.jsonl)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="write runs, verdicts and numbers to this file"
    )
    parser.add_argument("--report", action="store_true", help="run nothing; report what the log has")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter that has PyTorch (default: this one)"
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work in this directory, and keep it")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    options = parser.parse_args(arguments)
    options.names = options.only.split(",") if options.only else [s.name for s in SCENARIOS]
    if unknown := set(options.names) - set(BY_NAME):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are: {', '.join(BY_NAME)}")
    if options.log.exists() and not (options.resume or options.report):
        parser.error(f"{options.log} is there already: --resume goes on with it, --log names another file")
    return options


@contextlib.contextmanager
def scratch_directory(kept: Path | None) -> Iterator[Path]:
    """A directory of this run's own below the one that is kept, or a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
            yield Path(temporary)
        return
    scratch = kept.absolute() / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    scratch.mkdir(parents=True)
    yield scratch


async def run(options: argparse.Namespace) -> None:
    """Runs what is due."""

    def keep(done: Run) -> None:
        with options.log.open("a") as log:
            log.write(done.model_dump_json() + "\n")
        told = judged(done)
        verdict = done.problem or ("right" if told["verdict"]["right"] else f"WRONG {told['verdict']}")
        print(f"{datetime.now(UTC):%H:%M:%S} {done.scenario} {done.number}: {verdict}", flush=True)

    numbers = range(options.first, options.first + options.runs)
    left = due(options.names, numbers, options.seed, read_runs(options.log))
    deadline = time.monotonic() + options.budget.total_seconds() if options.budget else float("inf")
    with scratch_directory(options.scratch) as scratch, open_stage(scratch, options.python) as stage:
        await run_all(stage, left, options.lanes, keep, deadline)


def versions(python: str) -> dict[str, str]:
    """Of what took part."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"

    def says(*argv: str) -> str:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
        )
        return done.stdout.strip()

    return {
        **results.versions(),
        "torch": says(python, "-c", "import torch; print(torch.__version__)"),
        "slurm": says("slurmctld", "-V"),
    }


def main() -> int:
    """Runs the suite, and prints and writes its report."""
    options = read_options()
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:22} {scenario.ending.value:10} {scenario.does}")
        return 0
    if not options.report:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended in order
        asyncio.run(run(options))
    runs = read_runs(options.log)
    summary = summarize(runs)
    print(page(summary))
    print("\nNot as shipped, or not as usual: " + "; ".join(f"{k} {v}" for k, v in DIFFERS.items()))
    if options.json:
        result = results.envelope(
            "faults", [judged(r) for r in runs], versions=versions(options.python), slurm_nodes=NODES,
            differs=DIFFERS, summary=summary,
        )  # fmt: skip
        results.write(options.json, result)
    return 0 if all(aim["met"] is not False for aim in summary["aims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
