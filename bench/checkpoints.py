"""How long the checkpoint gate takes on a directory of many shards, and how much memory.

    python -m bench.checkpoints [--shards 1000 5000 20000] [--runs 1] [--json [FILE]]

Limits: 20,000 shards in 5 s on two cores, in a process that never takes 150 MB of memory (Python and relight
included), and time linear in the number of shards. Each size has a process of its own; shards are sparse.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench import results
from relight.checkpoints import inspect
from tests.relight.checkpoints.builders import age, write_sparse_dcp

SECONDS, MEGABYTES = 5.0, 150.0


def measure(root: Path) -> dict[str, object]:
    """Inspects a directory: seconds, megabytes of the whole process, and what was said."""
    start = time.perf_counter()
    report = inspect(root, budget=timedelta(minutes=2))
    seconds = time.perf_counter() - start
    # Not ru_maxrss: that is inherited from the process which started this one.
    status = Path("/proc/self/status").read_text()
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return {
        "seconds": seconds,
        "megabytes": memory,
        "usable": report.newest_usable,
        "checked": report.checkpoints[0].checked,
    }


def main() -> None:
    """Prints one line for each size; exits with 1 if a limit is passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--runs", type=int, default=1)
    results.add_json_option(parser)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    runs = [one(shards) for _ in range(options.runs) for shards in options.shards]
    if options.json:
        limits = {"seconds": SECONDS, "megabytes": MEGABYTES}
        results.write(options.json, results.envelope("checkpoints", runs, limits=limits))
    else:
        for run in runs:
            tell(run)
    sys.exit(not all(run["good"] for run in runs))


def one(shards: int) -> dict[str, Any]:
    """Measures a directory of so many shards, in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_sparse_dcp(root / "step-1000", shards)
        age(root)
        command = [sys.executable, "-m", "bench.checkpoints", "--measure", str(root)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    good = result["usable"] == "step-1000" and result["seconds"] < SECONDS * max(shards, 20000) / 20000
    return {"shards": shards, **result, "good": good and result["megabytes"] < MEGABYTES}


def tell(run: dict[str, Any]) -> None:
    """Prints a run beside the limits."""
    time_share, memory_share = run["seconds"] / SECONDS, run["megabytes"] / MEGABYTES
    print(
        f"{run['shards']:>6} shards: {run['seconds']:.2f} s ({time_share:.0%} of {SECONDS:g} s), "
        f"{1e6 * run['seconds'] / run['shards']:.0f} us/shard, "
        f"{run['megabytes']:.0f} MB ({memory_share:.0%} of {MEGABYTES:g} MB) "
        f"{'ok' if run['good'] else 'TOO MUCH'}"
    )
    print(f"       {run['checked']}")


if __name__ == "__main__":
    main()
