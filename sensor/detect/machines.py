"""What Prometheus says of the GPUs of a running attempt, as anomalies. Pure."""

from collections.abc import Iterable
from datetime import datetime

from relight.contracts import Anomaly, Attempt, Evidence, Progress, Source, Suspect
from relight.prometheus.faults import Fault

DETECTOR = "machines"


def machine_faults(
    faults: Iterable[Fault], attempt: Attempt, progress: Progress | None, now: datetime
) -> list[Anomaly]:
    """One anomaly for each fault of each GPU: told once in an attempt, since its id stays the same."""
    return [
        Anomaly(
            anomaly_id=Anomaly.make_id(attempt, DETECTOR, fault.name, fault.node, fault.gpu),
            attempt=attempt,
            symptom=fault.symptom,
            cause=fault.cause,
            role=fault.role,
            suspects=(Suspect(node=fault.node, gpu=fault.gpu, because=fault.says),),
            evidence=(
                Evidence(
                    source=Source.PROMETHEUS,
                    observed_at=now,
                    text=fault.says,
                    node=fault.node,
                    gpu=fault.gpu or None,
                    where=fault.query,
                    signature=f"prometheus.{fault.name}",
                ),
            ),
            occurred_at=now,
            detected_at=now,
            progress=progress,
            detector=DETECTOR,
            hold_out=fault.hold_out,
            key=f"prometheus.{fault.name}",
            says=f"Prometheus: {fault.says}.",
        )
        for fault in faults
    ]
