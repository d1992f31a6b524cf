"""Short ways to make what the tests need."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from relight.contracts import Anomaly, Attempt, Cause, Evidence, Role, Source, Suspect, Symptom, TrainingJob
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import Event, Finding
from relight.diagnosis.offline import LogInput, LogKind, Report, investigate
from relight.diagnosis.reader import LogReader

CATALOGUE = Catalogue.load()
CORPUS = Path(__file__).parents[2] / "data" / "corpus"
NOW = datetime(2026, 12, 2, 6, 0, tzinfo=UTC)
ATTEMPT = Attempt(cluster="c", job_id="1", submit_time=NOW, restart_count=0)


def job(*nodes: str, per_node: int | None = 8) -> TrainingJob:
    return TrainingJob(cluster="c", run="r", attempt=ATTEMPT, nodes=nodes, tasks_per_node=per_node)


def read(
    text: str | bytes, *, nodes: Sequence[str] = (), per_node: int | None = None, year: int | None = 2026
) -> list[Event]:
    data = text.encode() if isinstance(text, str) else text
    reader = LogReader(CATALOGUE, "a.log", nodes=nodes, tasks_per_node=per_node, year=year)
    return [*reader.feed(data), *reader.flush()]


def findings(text: str | bytes, *, nodes: Sequence[str] = (), per_node: int | None = None) -> list[Finding]:
    return [e for e in read(text, nodes=nodes, per_node=per_node) if isinstance(e, Finding)]


def look(
    job_log: str,
    *,
    kernel: dict[str, str] | None = None,
    slurm: str = "",
    metrics: str = "",
    nodes: Sequence[str] = (),
    per_node: int | None = None,
    **more: object,
) -> Report:
    """A whole investigation of texts."""
    inputs = [LogInput(LogKind.JOB_LOG, "job", [job_log.encode()])]
    inputs += [
        LogInput(LogKind.KERNEL_LOG, f"kernel-{n}", [t.encode()], n) for n, t in (kernel or {}).items()
    ]
    inputs += [LogInput(LogKind.SLURM_LOG, "slurm", [slurm.encode()])] if slurm else []
    inputs += [LogInput(LogKind.METRICS, "metrics", [metrics.encode()])] if metrics else []
    return investigate(inputs, CATALOGUE, now=NOW, nodes=nodes, tasks_per_node=per_node, **more)  # type: ignore[arg-type]


def anomaly(
    cause: Cause,
    role: Role = Role.ROOT,
    *,
    second: int = 0,
    node: str | None = None,
    source: Source = Source.JOB_LOG,
    symptom: Symptom = Symptom.CRASH,
    hold_out: bool = False,
    retryable: bool = True,
    weight: int = 0,
    key: str = "",
    detector: str = "log",
) -> Anomaly:
    at = NOW.replace(second=second)
    evidence = Evidence(source=source, observed_at=at, text=f"{cause} {second}", node=node)
    return Anomaly(
        anomaly_id=f"{cause}-{role}-{second}-{node}-{source}",
        attempt=ATTEMPT,
        symptom=symptom,
        cause=cause,
        role=role,
        suspects=(Suspect(node=node),) if node else (),
        evidence=(evidence,),
        occurred_at=at,
        detected_at=NOW.replace(minute=1),
        retryable=retryable,
        hold_out=hold_out,
        weight=weight,
        key=key,
        detector=detector,
    )
