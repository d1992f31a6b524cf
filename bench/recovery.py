"""How long from a fault to a productive job, on a real local Slurm cluster and a real Temporal server.

    python -m bench.recovery [--runs 10] [--json [FILE]]

For a rank crash, a hang and a node loss, each `--runs` times: fault → detected → acted (requeue accepted by
Slurm) → running → productive, as P50 / P95 / max in seconds, with the raw runs. Settings are the shipped
defaults, save the hang floor (4 s instead of 60 s) and the settle window (1 s instead of 1.5 s) of the policy
that the tests use.
"""

import argparse
import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench import results
from bench.scale.fit import quantile
from relight.contracts import Outcome
from tests.integration.lab import Lab
from tests.slurm.cluster import SlurmCluster

PHASES = ("detected", "acted", "running", "productive")


async def one(lab: Lab, scenario: str) -> dict[str, float | str]:
    """One fault and its recovery: seconds of each phase."""
    training = lab.train(mode="act", wait_step=60)
    lost = ""
    try:
        if scenario == "node-loss":
            lost = lab.slurm.nodes_of(training.job_id)[-1]
            at = datetime.now(UTC)
            lab.slurm.kill_node(lost)
        else:
            at = training.fault({"crash": "exception", "hang": "hang"}[scenario])
        outcome = await lab.outcome(training, 180)
        result: dict[str, float | str] = {"outcome": str(outcome.outcome), "cause": str(outcome.cause)}
        if outcome.outcome is Outcome.RESUMED:
            before = at
            for phase in PHASES:
                now = getattr(outcome.times, phase)
                result[phase] = (now - before).total_seconds()
                before = now
            result["total"] = (before - at).total_seconds()
        return result
    finally:
        lab.slurm.run("scancel", training.job_id)
        if lost:
            lab.slurm.restore_node(lost)
        await asyncio.sleep(2)


async def main() -> None:
    """Runs all scenarios and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--scenario", choices=["crash", "hang", "node-loss"], action="append")
    results.add_json_option(parser)
    options = parser.parse_args()
    raw: dict[str, list[dict[str, float | str]]] = {}
    with (
        SlurmCluster(nodes=4, slurmd_timeout=3, message_timeout=2) as slurm,
        tempfile.TemporaryDirectory() as scratch,
        Lab(Path(scratch), slurm) as lab,
    ):
        version = slurm.run("scontrol", "--version").strip()
        for scenario in options.scenario or ["crash", "hang", "node-loss"]:
            raw[scenario] = []
            for i in range(options.runs):
                raw[scenario].append(await one(lab, scenario))
                print(scenario, i + 1, raw[scenario][-1], flush=True)
    if options.json:
        flat = [{"scenario": scenario, **run} for scenario, runs in raw.items() for run in runs]
        results.write(options.json, results.envelope("recovery", flat, slurm=version))
    print(f"\n{'scenario':10} {'phase':12} {'n':>3} {'P50':>7} {'P95':>7} {'max':>7}  (seconds)")
    for scenario, runs in raw.items():
        good = [r for r in runs if r["outcome"] == "resumed"]
        for phase in (*PHASES, "total"):
            values = [float(r[phase]) for r in good]
            if values:
                p50, p95 = quantile(values, 0.5), quantile(values, 0.95)
                print(f"{scenario:10} {phase:12} {len(values):3} {p50:7.2f} {p95:7.2f} {max(values):7.2f}")
        print(f"{scenario:10} resumed {len(good)} of {len(runs)}")


if __name__ == "__main__":
    asyncio.run(main())
