"""What a recovery is going to do: decided once, shown to people, approved by digest, then carried out."""

import hashlib
from enum import StrEnum

from relight.contracts.base import Model


class Action(StrEnum):
    """What to do about a diagnosis."""

    RESTART = "restart"
    RESTART_EXCLUDE_NODE = "restart_exclude_node"
    RESTART_PREVIOUS_CHECKPOINT = "restart_previous_checkpoint"
    STOP = "stop"
    NONE = "none"


class PlanStep(Model):
    """One step of the runbook and, in words, what it will do."""

    name: str
    does: str
    mutates: bool = False


class Plan(Model):
    """Ordered steps with their arguments. Only these steps run, and only this plan is approved."""

    action: Action
    steps: tuple[PlanStep, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    drained_nodes: tuple[str, ...] = ()
    checkpoint: str | None = None
    checkpoint_step: int | None = None
    needs_approval_because: tuple[str, ...] = ()
    """Empty: relight may act alone."""
    because: str = ""

    @property
    def digest(self) -> str:
        """Names exactly this plan, in eight characters; a decision is about a digest."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]
