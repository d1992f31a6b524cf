"""What one poll of watched jobs costs, by the adapter: requests to slurmctld, processes, milliseconds.

Needs a Slurm cluster (SLURM_CONF); submits one array of held jobs and cancels it again.

    python -m tests.slurm.cluster --nodes 4 -- python -m bench.scheduler [--polls 20] [--json [FILE]]

`slurm-pyslurm` is measured only where pyslurm works with that cluster; else its row says why not.
"""

import argparse
import asyncio
import statistics
import time

from bench import results
from relight.scheduler.port import Scheduler, SubmitRequest
from relight.scheduler.pyslurm_probe import probe
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_pyslurm import SlurmPyslurmScheduler
from relight.scheduler.slurm_run import SlurmCommands

SIZES = (1, 100, 1000)
RPCS_OF_SQUEUE = 1
"""Each squeue of the adapter sends one REQUEST_JOB_INFO, which a test of the adapter counts."""


async def poll_milliseconds(scheduler: Scheduler, ids: list[str], polls: int) -> float:
    """The median of so many polls, after one that does not count."""
    took = []
    for _ in range(polls + 1):
        start = time.perf_counter()
        found = await scheduler.jobs(ids)
        took.append((time.perf_counter() - start) * 1000)
        if len(found) != len(ids):
            raise SystemExit(f"{len(found)} of {len(ids)} jobs were found")
    return statistics.median(took[1:])


async def measure(polls: int) -> list[dict[str, object]]:
    """A row for each adapter and number of jobs."""
    commands = SlurmCommands()
    cli = SlurmCliScheduler(commands)
    array = await cli.submit(
        SubmitRequest(
            script="#!/bin/sh\n",
            work_dir="/tmp",
            hold=True,
            extra_args=(f"--array=0-{max(SIZES) - 1}",),
        )
    )
    rows: list[dict[str, object]] = []
    try:
        for size in SIZES:
            ids = [f"{array}_{index}" for index in range(size)]
            before = commands.runs
            took = await poll_milliseconds(cli, ids, polls)
            runs = (commands.runs - before) // (polls + 1)
            rows.append(
                {
                    "adapter": "slurm-cli",
                    "jobs": size,
                    "rpcs": runs * RPCS_OF_SQUEUE,
                    "processes": runs,
                    "ms": round(took, 1),
                }
            )
        found = await asyncio.to_thread(probe)
        if not found.usable:
            rows.append({"adapter": "slurm-pyslurm", "not_measured": found.why_not})
            return rows
        adapter = SlurmPyslurmScheduler(cli)
        for size in SIZES:
            ids = [f"{array}_{index}" for index in range(size)]
            before = adapter.calls
            took = await poll_milliseconds(adapter, ids, polls)
            calls = (adapter.calls - before) // (polls + 1)
            rows.append(
                {
                    "adapter": "slurm-pyslurm",
                    "jobs": size,
                    "rpcs": calls,
                    "processes": 0,
                    "ms": round(took, 1),
                }
            )
        adapter.close()
    finally:
        await cli.cancel(array)
    return rows


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--polls", type=int, default=20, help="polls of each kind (default 20)")
    results.add_json_option(parser)
    options = parser.parse_args()
    rows = asyncio.run(measure(options.polls))
    if options.json:
        results.write(options.json, results.envelope("scheduler", rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
