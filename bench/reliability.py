"""Every step of the runbook against every disaster, on a real Slurm cluster and a real Temporal server.

    python -m bench.reliability [--runs 1] [--steps drain_job,...] [--kills before,...]
                                [--json FILE] [--docs FILE] [--from FILE ...]

Each cell is one recovery in which one part is killed, once, in one step (`bench/killing_worker.py`). It holds
if the recovery ends as it must, slurmctld was asked exactly once to requeue the job and at most once to drain
the node, and the job and the node are in the right state at the end. `--docs` writes `docs/reliability.md`;
with `--from` it is written from the results of earlier runs, and nothing is run.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import results
from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    Outcome,
    RecoveryOutcome,
    Source,
    Suspect,
    Symptom,
)
from tests.integration.lab import Lab, Process, Training
from tests.integration.test_checkpoints import MEGATRON, checkpoints, cut
from tests.slurm.cluster import ClusterError, SlurmCluster

MUTATING = ("drain_node", "drain_job", "steer_checkpoint", "resubmit", "hold_job", "release_node")
STEPS = (
    "confirm_fault", "locate_checkpoint", "isolate_nodes", "drain_node", "look_at_node", "check_node",
    "drain_job", "wait_nodes_free", "steer_checkpoint", "resubmit", "verify_running", "verify_resume",
    "hold_job", "release_node",
)  # fmt: skip
KILLS = {
    "before": "worker killed before the step",
    "after": "worker killed after it, before anybody was told",
    "lost": "command acted, its answer was lost",
    "temporal": "Temporal killed",
    "slurmctld": "slurmctld killed",
}
ASKS_NOTHING = {"check_node", "locate_checkpoint"}
"""Steps without a command to Slurm: no answer can be lost."""
LIMITS = """
[guard_limits]
drains_per_hour = 500
breaker_nodes = 400
drain_share = 1.0
"""


class Cell:
    """One recovery with one disaster."""

    def __init__(self, lab: Lab, step: str, how: str, number: int) -> None:
        self.lab, self.step, self.how = lab, step, how
        self.dir = lab.root / f"kill-{step}-{how}-{number}"
        self.dir.mkdir()
        self.facts: dict[str, Any] = {}

    @property
    def fired(self) -> bool:
        """The disaster has come."""
        return (self.dir / "fired").exists()

    async def run(self) -> dict[str, Any]:
        """The result of the cell: `ok`, and the facts it was judged by."""
        began = time.monotonic()
        lab = self.lab
        lab.worker.kill()
        argv = [sys.executable, "-m", "bench.killing_worker"]
        mutates = "yes" if self.step in MUTATING and self.step != "steer_checkpoint" else "no"
        env = {
            **lab.env, "KILL_STEP": self.step, "KILL_HOW": self.how, "KILL_DIR": str(self.dir),
            "KILL_MUTATES": mutates,
        }  # fmt: skip
        lab.worker = Process(argv, env, lab.root / "worker.log").start()
        supervisor = asyncio.create_task(self._supervise())
        training = None
        try:
            training = await asyncio.to_thread(self._train)
            ok = await self._recover(training)
        except (AssertionError, TimeoutError) as e:
            ok, self.facts["problem"] = False, f"{type(e).__name__}: {e}"[:500]
        finally:
            supervisor.cancel()
            await self._tidy(training)
        self.facts["fired"] = self.fired
        return {
            "step": self.step,
            "kill": self.how,
            "ok": ok and self.fired,
            "seconds": round(time.monotonic() - began, 1),
            **self.facts,
        }

    def _train(self) -> Training:
        training = self.lab.train(MEGATRON, policy="pointer", mode="act", wait_step=31, step_time=0.2)
        cut(checkpoints(training)[-1])
        if self.step == "hold_job":
            for checkpoint in checkpoints(training):
                cut(checkpoint)
        return training

    async def _recover(self, training: Training) -> bool:
        slurm = self.lab.slurm
        before = requests(slurm)
        node = slurm.nodes_of(training.job_id)[-1]
        handle = await self.lab.monitor(training)
        attempt = (await self.lab.status(training)).job.attempt
        for source in (Source.KERNEL, Source.NVML):
            await handle.signal("report_anomaly", broken(attempt, node, source))
        training.fault("exception")
        outcome = await self.lab.outcome(training, 180)
        asked = {name: count - before[name] for name, count in requests(slurm).items()}
        self.facts |= {
            "outcome": outcome.outcome.value,
            "requeues": asked["requeue"],
            "drains": asked["node"],
        }
        if outcome.outcome is not Outcome.RESUMED:
            self.facts["reason"] = outcome.reason
        if self.step == "hold_job":
            job = training.info()
            self.facts["state"] = f"{job['JobState']} {job['Priority']}"
            held = outcome.outcome is Outcome.HELD and job["Priority"] == "0"
            return held and self._requeued_once(asked)
        return self._resumed(training, outcome, node, asked) and await self._given_back(node, before["node"])

    def _resumed(
        self, training: Training, outcome: RecoveryOutcome, node: str, asked: dict[str, int]
    ) -> bool:
        runs_on = self.lab.slurm.nodes_of(training.job_id)
        self.facts["state"] = f"{training.info()['JobState']} on {','.join(runs_on)}"
        return (
            outcome.outcome is Outcome.RESUMED
            and self._requeued_once(asked)
            and training.restarts() == 1
            and node not in runs_on
            and training.last_step() > (outcome.lost_from_step or 0)
        )

    def _requeued_once(self, asked: dict[str, int]) -> bool:
        """By one request, and one more if slurmctld was killed: it may have forgotten the first."""
        return asked["requeue"] == 1 or (self.how == "slurmctld" and asked["requeue"] == 2)

    async def _given_back(self, node: str, before: int) -> bool:
        """The node is drained by one request, and given back by one more."""
        slurm = self.lab.slurm
        await self.lab.until_async("it is drained", lambda: "DRAIN" in show(slurm, node), 60)
        if self.step in {"look_at_node", "check_node"}:
            await self.lab.until_async("the disaster has come", lambda: self.fired, 60)
        self.facts["drains"] = requests(slurm)["node"] - before
        done = await asyncio.to_thread(self._release, node)
        self.facts |= {"released": done, "node_requests": requests(slurm)["node"] - before}
        # A slurmctld that was killed may have forgotten the drain: then it is told again.
        again = 1 if self.how == "slurmctld" and self.facts["drains"] == 2 else 0
        asked = (self.facts["drains"] - again, self.facts["node_requests"] - again)
        return asked == (1, 2) and "DRAIN" not in show(slurm, node)

    def _release(self, node: str) -> bool:
        """As a person would, who tries again when no worker answers."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            done = self.lab.cli("nodes", "release", node, "--by", "bench", check=False)
            if done.returncode == 0 or "is not drained" in done.stderr:
                return True
            time.sleep(1)
        self.facts["release"] = done.stderr[-300:]
        return False

    async def _supervise(self) -> None:
        """Starts again what was killed, as systemd would; kills what the step waits for."""
        lab = self.lab
        while True:
            await asyncio.sleep(0.1)
            if not lab.worker.alive:
                await asyncio.sleep(1)
                lab.worker.start()
            if self.how in {"temporal", "slurmctld"} and self.fired and not (self.dir / "killed").exists():
                if self.how == "temporal":
                    lab.server.kill()
                    (self.dir / "killed").touch()
                    await asyncio.sleep(1)
                    await asyncio.to_thread(lab.server.restart)
                else:
                    lab.slurm.kill_ctld()
                    (self.dir / "killed").touch()
                    await asyncio.sleep(2)
                    await asyncio.to_thread(lab.slurm.start_ctld)

    async def _tidy(self, training: Training | None) -> None:
        lab = self.lab
        lab.slurm.run("scancel", "--user", "root", check=False)
        try:
            await self._give_nodes_back()
        except ClusterError:  # a drain that was forgotten was given again meanwhile
            await self._give_nodes_back()
        if training is not None:
            self.facts["job"] = training.job_id

    async def _give_nodes_back(self) -> None:
        slurm = self.lab.slurm
        for node in slurm.nodes:
            if "DRAIN" in show(slurm, node):
                await asyncio.to_thread(self._release, node)
            if "DRAIN" in show(slurm, node):
                # slurmctld itself drains a node ("Duplicate jobid") where a job runs that it has forgotten.
                self.facts["drained_by_slurm"] = node
                slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        await asyncio.to_thread(slurm.wait_idle)


def broken(attempt: Attempt, node: str, source: Source) -> Anomaly:
    """What a node sensor tells of a GPU that is gone."""
    now = datetime.now(UTC)
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, "reliability", source.value),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=Cause.GPU_FALLEN_OFF_BUS,
        suspects=(Suspect(node=node, because="its GPU is gone"),),
        evidence=(Evidence(source=source, observed_at=now, text="its GPU is gone", node=node),),
        occurred_at=now,
        detected_at=now,
        hold_out=True,
        detector=source.value,
        key="gone",
    )


def requests(slurm: SlurmCluster) -> dict[str, int]:
    """Requests that slurmctld has received so far."""
    seen = slurm.mutations()
    return {
        "requeue": sum("REQUEST_JOB_REQUEUE" in line for line in seen),
        "node": sum("REQUEST_UPDATE_NODE" in line for line in seen),
    }


def show(slurm: SlurmCluster, node: str) -> str:
    """The line with the node's state."""
    lines = slurm.run("scontrol", "show", "node", node).splitlines()
    return next(line for line in lines if "State=" in line)


def page(result: dict[str, Any]) -> str:
    """`docs/reliability.md`."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in result["runs"]:
        cells.setdefault((run["step"], run["kill"]), []).append(run)
    lines = [
        "# What survives what",
        "",
        "Each cell: recoveries on a real Slurm cluster in which one part was killed, once, in that step, and",
        "how many were as they must be: ended as they should, exactly one requeue, at most one drain of the",
        "node, job and node in the right state at the end. A slurmctld that was killed may have forgotten",
        "what it accepted last: then one request more is right. `–`: the step gives Slurm no command.",
        "",
        f"Made by `python -m bench.reliability --docs docs/reliability.md` on {result['date'][:10]}, "
        f"{result['slurm']}, {result['machine']['cpu']}, Python {result['versions']['python']}.",
        "",
        "| step | " + " | ".join(KILLS.values()) + " |",
        "| --- |" + " --- |" * len(KILLS),
    ]
    for step in STEPS:
        row = [f"`{step}`"]
        for kill in KILLS:
            runs = cells.get((step, kill), [])
            good = sum(run["ok"] for run in runs)
            mark = "✓" if runs and good == len(runs) else "✗"
            row.append("–" if not runs else f"{mark} {good}/{len(runs)}")
        lines.append("| " + " | ".join(row) + " |")
    bad = [run for run in result["runs"] if not run["ok"]]
    if bad:
        lines += ["", "What went wrong:", ""]
        lines += [f"- `{run['step']}`, {KILLS[run['kill']]}: {_wrong(run)}" for run in bad]
    lines += [
        "",
        "slurmctld writes its state up to five seconds after it has changed. Killed (SIGKILL) before",
        "that, it forgets a requeue, a release or a drain that it had accepted. relight sees that, and",
        "gives it again: for a job that shows the failed attempt again, and for a node that is free again",
        "after slurmctld was started anew within seconds of the drain. A *release* of a node that is",
        "forgotten leaves a drain that `relight nodes drains` lists as nobody's. And where slurmctld has",
        "forgotten that the new attempt began, its nodes refuse to start it again (`Duplicate jobid`):",
        "Slurm drains one of them and holds the job, the recovery ends as `failed_again`, and the next",
        "one starts the job.",
        "",
        "Slurm away for longer: `RELIGHT_TEST_AWAY=600 pytest tests/integration/test_killed.py",
        "tests/integration/test_lying_slurm.py -k 'away_at_rest or success'` keeps slurmctld away for ten",
        "minutes, and lets Slurm's commands fail for ten minutes while they say that all went well. In",
        "that time no request reaches slurmctld that changes anything, and the fault is recovered from",
        "afterwards.",
    ]
    return "\n".join(lines) + "\n"


def _wrong(run: dict[str, Any]) -> str:
    if run.get("problem"):
        return str(run["problem"])
    reason = f" ({run['reason']})" if run.get("reason") else ""
    return f"{run.get('outcome', 'no outcome')}{reason}; job {run.get('state', '?')}"


async def main() -> int:
    """Runs the matrix."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--steps", default=",".join(STEPS))
    options.add_argument("--kills", default=",".join(KILLS))
    options.add_argument("--json", type=Path)
    options.add_argument("--docs", type=Path)
    options.add_argument("--from", type=Path, nargs="+", dest="earlier")
    given = options.parse_args()
    if given.earlier:
        parts = [results.read(path) for path in given.earlier]
        merged = parts[0] | {"runs": [run for part in parts for run in part["runs"]]}
        given.docs.write_text(page(merged))
        return 0
    runs = []
    with tempfile.TemporaryDirectory() as root, SlurmCluster() as slurm:
        version = slurm.run("scontrol", "--version").strip()
        with Lab(Path(root), slurm, name="reliability", more=LIMITS) as lab:
            for number in range(given.runs):
                for step in given.steps.split(","):
                    for how in given.kills.split(","):
                        if how == "lost" and step in ASKS_NOTHING:
                            continue
                        result = await Cell(lab, step, how, number).run()
                        runs.append(result)
                        print(json.dumps(result), flush=True)
    result = results.envelope("reliability", runs, slurm=version)
    if given.json:
        results.write(given.json, result)
    if given.docs:
        given.docs.write_text(page(result))
    good = sum(run["ok"] for run in runs)
    print(f"{good} of {len(runs)} cells hold")
    return 0 if good == len(runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
