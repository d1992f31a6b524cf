"""Made-up histories whose truth is known, and one that looks like a real month."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from relight.audit.record import RecoveryAudit
from relight.contracts import (
    Attempt,
    Cause,
    Diagnosis,
    Outcome,
    Progress,
    RecoveryOutcome,
    Symptom,
    Timeline,
    TrainingJob,
)
from relight.contracts.guard import NodeView, Strike
from relight.contracts.messages import EndReason
from relight.report.contents import Report
from relight.report.figures import figures
from relight.report.records import Watch, chains, loss_of

UNTIL = datetime(2026, 12, 1, tzinfo=UTC)
SINCE = UNTIL - timedelta(days=30)
GPUS_PER_NODE = 8
HOSTILE = """<script>alert(1)</script><img src=x onerror="alert(2)"> &amp; ' {{ 7*7 }}"""
"""What a job's name, its user's or its log could be."""


def job(number: int = 1, nodes: int = 4, *, run: str = "llm-7b", user: str = "anna") -> TrainingJob:
    attempt = Attempt(cluster="lab", job_id=str(number), submit_time=SINCE, restart_count=0)
    names = tuple(f"node{n:03}" for n in range(nodes))
    return TrainingJob(cluster="lab", run=run, attempt=attempt, user=user, nodes=names, partition="gpu")


def watch(of: TrainingJob, began: datetime = SINCE, ended: datetime | None = None, **fields: Any) -> Watch:
    return Watch(monitor_id=f"job:lab:{of.attempt.job_id}:1", job=of, began=began, ended=ended, **fields)


def recovery(
    of: TrainingJob,
    occurred: datetime,
    *,
    detect: float = 60,
    decide: float = 30,
    queue: float = 120,
    load: float = 300,
    replay: float = 600,
    outcome: Outcome = Outcome.RESUMED,
    cause: Cause = Cause.GPU_MEMORY_ECC,
    reason: str = "",
    **fields: Any,
) -> RecoveryAudit:
    """A recovery whose phases took so many seconds; only one that resumed has a time of being past the fault.

    A step takes 10 s, and GPU hours are counted as recoveries count them.
    """
    detected = occurred + timedelta(seconds=detect)
    acted = detected + timedelta(seconds=decide)
    running = acted + timedelta(seconds=queue)
    past = running + timedelta(seconds=load + replay)
    resumed = outcome is Outcome.RESUMED
    acts = outcome not in (Outcome.REFUTED, Outcome.REJECTED, Outcome.EXPIRED)
    gpus = GPUS_PER_NODE * len(of.nodes)
    recovery_id = f"recover:lab:{of.attempt.job_id}:0:{occurred:%d%H%M}"
    result = RecoveryOutcome(
        recovery_id=recovery_id,
        outcome=outcome,
        reason=reason,
        symptom=Symptom.CRASH,
        cause=cause,
        attempt=of.attempt,
        new_attempt=of.attempt.model_copy(update={"restart_count": 1}) if resumed else None,
        times=Timeline(
            occurred=occurred,
            detected=detected,
            acted=acted if acts else None,
            running=running if resumed else None,
            productive=past if resumed else None,
        ),
        gpu_hours_lost=gpus * ((past - occurred) / timedelta(hours=1)) if acts else None,
        steps_replayed=round(replay / 10),
    )
    defaults: dict[str, Any] = {
        "recovery_id": recovery_id,
        "monitor_id": f"job:lab:{of.attempt.job_id}:1",
        "job": of,
        "diagnosis": Diagnosis(
            symptom=Symptom.CRASH,
            cause=cause,
            retryable=True,
            occurred_at=occurred,
            detected_at=detected,
            progress=Progress(step=1000, at=occurred, interval=timedelta(seconds=10)),
        ),
        "started": detected,
        "ended": past,
        "gpus": gpus,
        "outcome": result,
    }
    return RecoveryAudit(**(defaults | fields))


def a_month(seed: int = 1) -> Report:
    """Twelve runs with a few dozen faults, some of which ended badly, and hostile names."""
    chance = random.Random(seed)
    causes = [Cause.GPU_MEMORY_ECC, Cause.NETWORK_FABRIC, Cause.USER_CODE, Cause.STORAGE, Cause.NODE_FAILURE]
    watches, audits = [], []
    for number in range(1, 13):
        run = HOSTILE if number == 1 else f"llm-{number}b"
        mine = job(number, chance.choice((2, 4, 16, 64)), run=run, user=HOSTILE if number == 2 else "anna")
        began = SINCE + timedelta(days=chance.uniform(-5, 15))
        ended = UNTIL - timedelta(days=chance.uniform(0, 10)) if number % 3 else None
        end = chance.choice([EndReason.COMPLETED, EndReason.COMPLETED, EndReason.STOPPED])
        watches.append(watch(mine, began, ended, end=end if ended else None))
        for _ in range(chance.randint(0, 6)):
            at = max(began, SINCE) + timedelta(days=chance.uniform(0.1, 10))
            outcome = chance.choice([Outcome.RESUMED] * 6 + [Outcome.REFUTED, Outcome.HELD])
            scale = chance.lognormvariate(0, 1)
            audits.append(
                recovery(
                    mine, at, detect=60 * scale, decide=chance.choice((5, 40, 4000)), queue=90 * scale,
                    load=200 * scale, replay=900 * chance.random(), outcome=outcome,
                    cause=chance.choice(causes), reason=HOSTILE if outcome is Outcome.HELD else "",
                )
            )  # fmt: skip
    found = chains(watches, [loss_of(audit, UNTIL) for audit in audits], UNTIL)
    strike = Strike(job="4711", cause=Cause.GPU_MEMORY_ECC, at=UNTIL, evidence=HOSTILE)
    lemon = NodeView(
        node="node007", score=2.6, jobs=3, lemon=True, why="3 jobs failed on it", strikes=(strike,)
    )
    return Report(
        cluster="lab",
        made=UNTIL,
        figures=figures(found, SINCE, UNTIL),
        chains=found,
        nodes=(lemon,),
        from_archive=2,
        remarks=(f"a remark with {HOSTILE}",),
    )


def a_try_out(recoveries: int = 1, decide: float = 2) -> Report:
    """Of somebody who has just tried relight: ten minutes, one job without GPUs, recoveries of seconds."""
    mine = job(1, 2, run="first")
    at = UNTIL - timedelta(minutes=5)
    audit = recovery(mine, at, detect=1.5, decide=decide, queue=2.5, load=3, replay=4)
    assert audit.outcome is not None
    counted = audit.outcome.model_copy(update={"gpu_hours_lost": None})
    audit = audit.model_copy(update={"gpus": None, "outcome": counted})
    watches = [watch(mine, UNTIL - timedelta(minutes=8))]
    found = chains(watches, [loss_of(audit, UNTIL)] * recoveries, UNTIL)
    return Report(
        made=UNTIL, figures=figures(found, UNTIL - timedelta(minutes=10), UNTIL), chains=found, nodes=()
    )
