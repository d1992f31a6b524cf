"""What a job would load by itself: its framework may choose another checkpoint than the usable one."""

from dataclasses import dataclass

from relight.checkpoints.gate import is_from
from relight.checkpoints.layouts import LAYOUTS
from relight.checkpoints.report import CheckpointState, Report, State
from relight.contracts.outcome import CheckpointRef
from relight.policy.steering import POINTER_FILES

SKIPS_UNFINISHED = frozenset({"marker", "torchtitan", "levanter", "orbax", "olmo"})
"""Layouts whose frameworks pass over a checkpoint that lacks the mark of a finished save."""
_KNOWN = frozenset(layout.name for layout in LAYOUTS)
NOTHING = "nothing"
"""The job would start from scratch."""


@dataclass(frozen=True)
class OwnChoice:
    """What the job would load, where that is not the checkpoint that it should load."""

    name: str
    problem: str
    """Why it cannot be used; empty when it can."""


def usable(report: Report, diverged_from: CheckpointRef | None = None) -> CheckpointState | None:
    """The newest checkpoint to resume from; an earlier one if training diverged from there."""
    return next(
        (c for c in report.checkpoints if c.state is State.USABLE and not is_from(c, diverged_from)), None
    )


def in_the_way(
    report: Report, best: CheckpointState, diverged_from: CheckpointRef | None = None
) -> list[CheckpointState]:
    """The checkpoints, newest first, that the job could take before `best` and must not."""
    at = report.checkpoints.index(best)
    newer = report.checkpoints[:at]
    # One whose step cannot be told stands behind, and may be the newest: such as a broken `last.ckpt`.
    unknown = [c for c in report.checkpoints[at + 1 :] if c.step is None and c.state is not State.USABLE]
    return [c for c in (*newer, *unknown) if not _is_skipped(report.layout, c)]


def own_choice(
    report: Report, best: CheckpointState, diverged_from: CheckpointRef | None = None
) -> OwnChoice | None:
    """What the job would load in place of `best`; None when that is `best`."""
    if report.pointer is not None:
        named = next((c for c in report.checkpoints if c.name == report.pointer), None)
        if named is None:
            return OwnChoice(report.pointer, "there is no such checkpoint")
        if named is best or (not problem(named, diverged_from) and named.step == best.step):
            return None
        return OwnChoice(named.name, problem(named, diverged_from))
    if file := POINTER_FILES.get(report.layout):
        return OwnChoice(NOTHING, f"there is no {file}, so the job would start from scratch")
    first = next(iter(in_the_way(report, best, diverged_from)), None)
    return OwnChoice(first.name, problem(first, diverged_from)) if first is not None else None


def problem(state: CheckpointState, diverged_from: CheckpointRef | None = None) -> str:
    """Why a checkpoint must not be used; empty when it can be."""
    if state.state is not State.USABLE:
        return f"{state.state.value.replace('_', ' ')}: {state.reason}"
    if diverged_from is not None and is_from(state, diverged_from):
        name = diverged_from.name or f"step {diverged_from.step}"
        return f"training diverged after it resumed from {name}"
    return ""


def _is_skipped(layout: str, state: CheckpointState) -> bool:
    described = layout not in _KNOWN  # its marker is in the policy because its job looks for it
    return state.unfinished and (described or layout in SKIPS_UNFINISHED)
