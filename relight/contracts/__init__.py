"""What travels between rooms: frozen pydantic models, ids and search attributes. No I/O, no clock.

Unknown fields are ignored and new fields have defaults, so that an old sensor and a new worker, or the
other way round, keep understanding each other.
"""

from relight.contracts.anomaly import (
    Anomaly,
    Diagnosis,
    Evidence,
    Progress,
    Role,
    Sign,
    Source,
    Suspect,
    Symptom,
)
from relight.contracts.base import CleanText, Model, UtcDatetime, clean_text
from relight.contracts.cause import GPU_HARDWARE_CAUSES, Cause
from relight.contracts.job import Attempt, JobInfo, JobState, Mode, NodeInfo, TrainingJob
from relight.contracts.outcome import Outcome, RecoveryOutcome, Timeline
from relight.contracts.plan import Action, Plan, PlanStep
from relight.contracts.policy import CauseRule, Isolation, MayAct, Policy

__all__ = [
    "GPU_HARDWARE_CAUSES",
    "Action",
    "Anomaly",
    "Attempt",
    "Cause",
    "CauseRule",
    "CleanText",
    "Diagnosis",
    "Evidence",
    "Isolation",
    "JobInfo",
    "JobState",
    "MayAct",
    "Mode",
    "Model",
    "NodeInfo",
    "Outcome",
    "Plan",
    "PlanStep",
    "Policy",
    "Progress",
    "RecoveryOutcome",
    "Role",
    "Sign",
    "Source",
    "Suspect",
    "Symptom",
    "Timeline",
    "TrainingJob",
    "UtcDatetime",
    "clean_text",
]
