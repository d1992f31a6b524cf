"""From a fact about a node to the anomalies of the jobs on it, and to the cluster's ledger of nodes. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from relight.contracts import Anomaly, Attempt, Evidence, JobInfo, Role, Suspect, TrainingJob
from relight.contracts.guard import NodeReport
from relight.policy.attempts import Relation, relation
from sensor.node.facts import Fact

BEFORE_START = timedelta(seconds=2)
"""The scheduler counts whole seconds, and its clock is another one."""
MOST_JOBS = 4
"""Jobs for each of which a faulty node gets a strike."""
AFTER_END = timedelta(seconds=60)
"""A fact that comes so long after the end of an attempt may still explain it."""


def concerned(
    fact: Fact, jobs: Iterable[JobInfo], watched: Mapping[str, TrainingJob], cluster: str
) -> dict[str, Attempt]:
    """The monitors to tell of a fact, with the attempt that it is about.

    Args:
        fact: what was seen.
        jobs: what the scheduler lists for this node.
        watched: the watched jobs among them, by their monitors.
        cluster: the cluster's name.
    """
    attempts = {}
    on_node = {info.job_id: info for info in jobs if _ran(info, fact.at)}
    for monitor, job in watched.items():
        info = on_node.get(job.attempt.job_id)
        if info is None or fact.job_id not in {None, info.job_id}:
            continue
        attempt = _attempt(info, job, cluster)
        if attempt is not None:
            attempts[monitor] = attempt
    return attempts


def anomaly(fact: Fact, attempt: Attempt, now: datetime) -> Anomaly:
    """The fact as an anomaly of this attempt; the same fact always gives the same id."""
    f = fact.finding
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, f.source.value, fact.id),
        attempt=attempt,
        symptom=f.symptom,
        cause=f.cause,
        role=f.role,
        suspects=(Suspect(node=f.node, gpu=f.gpu, because=f.says or f.text),),
        evidence=(
            Evidence(
                source=f.source,
                observed_at=fact.at,
                text=f.text,
                node=f.node,
                gpu=f.gpu,
                where=fact.where,
                line=fact.line,
                signature=f.signature,
            ),
        ),
        occurred_at=min(fact.at, now),
        detected_at=now,
        count=fact.count,
        retryable=f.retryable,
        detector=f.source.value,
        hold_out=f.hold_out,
        key=f.key,
        weight=f.weight,
        says=f.says,
    )


def node_reports(fact: Fact, jobs: Iterable[JobInfo]) -> list[NodeReport]:
    """What the cluster's guard is told of the node: for each job that was hit, or once where none was.

    Only faults of the node itself, and what it needs: not what a job's own mistake brings about.
    """
    f = fact.finding
    faulty = f.role is Role.ROOT and f.hold_out
    if f.node is None or not (faulty or f.needs):
        return []
    hit: list[JobInfo | None] = [
        info for info in jobs if _ran(info, fact.at) and fact.job_id in {None, info.job_id}
    ]
    return [
        NodeReport(
            nodes=(f.node,),
            cause=f.cause,
            at=fact.at,
            partition=info.partition if info is not None else "",
            job=info.job_id if info is not None else "",
            evidence=f.text,
            needs=f.needs,
            faulty=faulty,
        )
        for info in hit[:MOST_JOBS] or [None]
    ]


def _ran(info: JobInfo, at: datetime) -> bool:
    """The attempt that the scheduler tells of ran at that time, or had ended just before."""
    if info.start_time is None or at < info.start_time - BEFORE_START:
        return False
    return not info.state.is_over or info.end_time is None or at <= info.end_time + AFTER_END


def _attempt(info: JobInfo, job: TrainingJob, cluster: str) -> Attempt | None:
    """Which attempt that is; None: another job under a reused id."""
    seen = info.attempt(cluster)
    match relation(job.attempt, seen):
        case Relation.SAME:
            return seen
        case Relation.NEWER:
            # While a requeued job is completing, the scheduler counts it as the next attempt already.
            return job.attempt if info.completing else seen
        case _:
            return None
