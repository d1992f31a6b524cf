"""What the control plane costs, and how that grows with the number of watched jobs.

    python -m bench.scale [--jobs 1,100,1000] [--seconds 60] [--storm 1000] [--json FILE]

A real Temporal dev server, a real worker and a real sensor, each a process; the Slurm cluster is simulated
(its commands are real processes that ask it), with one node and one log for each job, a step line every ten
seconds. For each number of jobs, in processes of its own: CPU and memory at rest, calls to the scheduler,
then `--faults` faults one after the other (the job fails, its recovery requeues it, and it trains on).
`--storm N` lets N jobs fail at once, with the guard's hourly limit at its highest.

Temporal's cost of a day and a month is extrapolated: events, bytes and actions of a signal and of a monitor's
own look are taken from measured histories, and multiplied by how often they come by the shipped settings.

Against another Temporal: `relight setup` its namespace, set TEMPORAL_* as for relight, and give `--address`;
what is in the namespace must be nobody else's. Memory and CPU of that server are then not among the results.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench import results
from bench.scale import measure
from bench.scale.fit import fit
from bench.scale.histories import DAY, Rates, forecast
from bench.scale.processes import STORM_LIMITS, Plant
from relight.contracts import Policy
from sensor.watch import PROGRESS_AT_LEAST_EVERY

RENEW_AFTER = 4096
"""Events after which Temporal suggests to continue as new (`limit.historyCount.suggestContinueAsNew`)."""
FAULT_EVERY = 1.0
"""Seconds between two faults of different jobs."""
FAST_POLL_JOBS = 100
"""Up to so many jobs, monitors look at the scheduler more often than shipped, so that looks are there to be
measured. More of them would measure a load that nobody has."""
GROWTH = {
    "sensor_memory_mb": ("rest", "memory_mb", "sensor"),
    "worker_memory_mb": ("rest", "memory_mb", "worker"),
    "temporal_memory_mb": ("rest", "memory_mb", "temporal"),
    "sensor_cpu_percent": ("rest", "cpu_percent", "sensor"),
    "worker_cpu_percent": ("rest", "cpu_percent", "worker"),
    "temporal_cpu_percent": ("rest", "cpu_percent", "temporal"),
    "sensor_calls_per_minute": ("rest", "sensor_calls_per_minute"),
    "signal_to_recovery_p50": ("phases", "signal_to_recovery", "p50"),
    "fault_to_recovery_p50": ("phases", "fault_to_recovery", "p50"),
}
"""Costs whose growth is told, and where a run has them."""


async def size(jobs: int, given: argparse.Namespace) -> dict[str, Any]:
    """One number of jobs."""
    fast = given.fast_poll and jobs <= FAST_POLL_JOBS
    poll = timedelta(seconds=max(20.0, given.seconds / 2)) if fast else Policy().poll
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as root,
        Plant(Path(root), jobs, step_seconds=given.step_seconds, address=given.address) as plant,
    ):
        await plant.start()
        run: dict[str, Any] = {"kind": "size", "jobs": jobs}
        run |= await measure.watch_all(plant, poll)
        run["rest"] = await measure.at_rest(plant, given.seconds)
        found = await measure.histories(plant)
        if found.looks.times and found.signals.times:
            rates = Rates(
                signals_per_day=DAY / max(PROGRESS_AT_LEAST_EVERY.total_seconds(), given.step_seconds),
                looks_per_day=DAY / Policy().poll.total_seconds(),
            )
            run["temporal_per_job"] = forecast(found, rates, renew_after=RENEW_AFTER)
        if given.faults:
            run["faults"] = await measure.faults(plant, given.faults, FAULT_EVERY)
            run["phases"] = measure.summary(run["faults"])
        return run


async def storm(jobs: int, given: argparse.Namespace) -> dict[str, Any]:
    """So many faults at once."""
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as root,
        Plant(
            Path(root), jobs, step_seconds=given.step_seconds, address=given.address, more=STORM_LIMITS
        ) as plant,
    ):
        await plant.start()
        await measure.watch_all(plant, Policy().poll)
        return {"kind": "storm", **await measure.storm(plant, given.storm_seconds)}


def growth(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fit of each cost that was measured at two sizes or more."""
    fits = {}
    for name, path in GROWTH.items():
        points = []
        for run in runs:
            value: Any = run if run["kind"] == "size" else None
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                points.append((run["jobs"], float(value)))
        if len({jobs for jobs, _ in points}) >= 2:
            fits[name] = fit(*zip(*points, strict=True)).as_dict()
    return fits


def main() -> None:
    """Measures each size and prints what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="1,100,1000", help="numbers of jobs, with commas (none: empty)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is measured at rest")
    parser.add_argument("--step-seconds", type=float, default=10.0, help="from one step of a job to its next")
    parser.add_argument("--faults", type=int, default=20, help="faults one after the other (0: none)")
    parser.add_argument("--storm", type=int, default=0, help="faults at once, in processes of their own")
    parser.add_argument("--storm-seconds", type=float, default=1800.0, help="the longest that one may take")
    parser.add_argument("--runs", type=int, default=1, help="how often everything is measured")
    parser.add_argument("--address", default="", help="a Temporal server of your own, host:port")
    parser.add_argument(
        "--fast-poll",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with few jobs, let monitors look at the scheduler often enough that their cost is seen",
    )
    results.add_json_option(parser)
    given = parser.parse_args()
    runs: list[dict[str, Any]] = []
    sizes = [int(text) for text in given.jobs.split(",") if text.strip()]
    for number in range(given.runs):
        for jobs in sizes:
            _keep(runs, asyncio.run(size(jobs, given)), number, given.json)
        if given.storm:
            _keep(runs, asyncio.run(storm(given.storm, given)), number, given.json)
    for name, found in growth(runs).items():
        exponent = "?" if found["exponent"] is None else f"{found['exponent']:.2f}"
        print(f"{name:26} ~ jobs^{exponent}: {found['words']}", file=sys.stderr)


def _keep(runs: list[dict[str, Any]], run: dict[str, Any], number: int, target: Path | None) -> None:
    """Keeps the run, and writes what there is so far: a later one may take too long, and be stopped."""
    runs.append(_told(run, number))
    if target:
        results.write(target, results.envelope("scale", runs, growth=growth(runs)))


def _told(run: dict[str, Any], number: int) -> dict[str, Any]:
    """The run, told on standard error as soon as it is there: some take minutes."""
    what = f"{run['jobs']} jobs" if run["kind"] == "size" else f"storm of {run['faults']}"
    print(f"{time.strftime('%H:%M:%S')} run {number + 1}, {what}: ", file=sys.stderr, end="")
    shown = run["rest"] | {"phases": run.get("phases")} if run["kind"] == "size" else run
    print({name: value for name, value in shown.items() if name != "course"}, file=sys.stderr, flush=True)
    return {"run": number + 1, **run}


if __name__ == "__main__":
    main()
