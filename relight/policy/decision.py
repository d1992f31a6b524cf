"""From a diagnosis and what was tried before to an action. Pure, table-tested.

The same failure with no step gained is tried once more when it names something that a replay meets again (a
code line, a data position, a checkpoint), and three times otherwise. Progress resets the count. Preemption,
maintenance and lost nodes are nobody's failure and are not counted. Slowness alone isolates no node.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relight.contracts import Action, Cause, Diagnosis, Policy, Symptom
from relight.contracts.messages import PastFailure
from relight.policy.ledger import unfold

REPLAY_STABLE = frozenset(
    {Cause.USER_CODE, Cause.NUMERICAL, Cause.CHECKPOINT_CORRUPT, Cause.DATA_LOADER, Cause.GPU_OOM}
)
"""Causes whose root key names what a replay meets again: the same code line, the same data, the same file."""
FREE = frozenset({Cause.PREEMPTION, Cause.NODE_FAILURE, Cause.TIME_LIMIT})
"""Causes that burn no budget: not the job's doing, and restarting helps."""
NODE_MAY_BE_BAD = frozenset(
    {
        Cause.UNKNOWN,
        Cause.GPU_HARDWARE,
        Cause.GPU_MEMORY_ECC,
        Cause.GPU_FALLEN_OFF_BUS,
        Cause.NVLINK,
        Cause.NETWORK_FABRIC,
        Cause.SOFTWARE_ENV,
        Cause.NODE_FAILURE,
    }
)
"""Causes for which the same node in two attempts is the node's fault."""


@dataclass(frozen=True)
class Decision:
    """What to do, and why."""

    action: Action
    nodes: tuple[str, ...] = ()
    """To be excluded from the next attempt."""
    because: str = ""


def decide(
    diagnosis: Diagnosis,
    ledger: Sequence[PastFailure] = (),
    *,
    policy: Policy,
    nodes: Sequence[str] = (),
    exit_code: int | None = None,
) -> Decision:
    """Decides.

    Args:
        diagnosis: of the attempt that failed last.
        ledger: earlier failures of the run that a restart followed, oldest first.
        policy: how many tries there are, and which exit codes ask for something.
        nodes: the allocation of the last attempt.
        exit_code: of the job, where known.
    """
    if diagnosis.cause is Cause.HEALTHY or diagnosis.symptom is Symptom.NONE:
        return Decision(Action.NONE, because="nothing is wrong")
    if exit_code is not None and exit_code in policy.do_not_requeue:
        return Decision(Action.STOP, because=f"the program ended with {exit_code}: do not start it again")
    if not diagnosis.retryable:
        return Decision(Action.STOP, because="a restart would fail in the same way")
    if reason := used_up(diagnosis, ledger, policy, nodes):
        return Decision(Action.STOP, because=f"retry budget used up: {reason}")
    if diagnosis.nodes:
        return Decision(Action.RESTART_EXCLUDE_NODE, diagnosis.nodes, "the node is suspected")
    if (node := _same_node(diagnosis, ledger, nodes)) is not None:
        return Decision(Action.RESTART_EXCLUDE_NODE, (node,), f"attempts keep failing on {node}")
    where = diagnosis.where
    if exit_code is not None and exit_code in policy.restart_elsewhere and where and set(where) < set(nodes):
        return Decision(Action.RESTART_EXCLUDE_NODE, where, f"the program ended with {exit_code}: elsewhere")
    if diagnosis.cause in {Cause.CHECKPOINT_CORRUPT, Cause.NUMERICAL}:
        return Decision(Action.RESTART_PREVIOUS_CHECKPOINT, because="the newest state cannot be used")
    if diagnosis.symptom is Symptom.SLOW and diagnosis.cause is Cause.UNKNOWN:
        return Decision(Action.NONE, because="slow, but going on; no cause that a restart would cure")
    return Decision(Action.RESTART, because="a restart may cure it")


def used_up(
    diagnosis: Diagnosis, ledger: Sequence[PastFailure], policy: Policy, nodes: Sequence[str] = ()
) -> str:
    """Why the retry budget for this diagnosis is used up; empty while a restart may still be tried.

    A replay-stable root has `retries_confirmation` tries under its own key; every cause has `retries_general`
    tries in all, under whatever key, so that a key that changes each time ends too.
    """
    if diagnosis.cause in FREE:
        return ""
    step = diagnosis.progress.step if diagnosis.progress else None
    at = "before its first step" if step is None else f"at step {step}"
    tried = _fruitless([p for p in ledger if p.cause is diagnosis.cause], step)
    same = [p for p in tried if p.root_key == diagnosis.root_key]
    stable = diagnosis.root_key and diagnosis.cause in REPLAY_STABLE
    if stable and len(same) >= policy.retries_confirmation:
        return (
            f"the same failure ({diagnosis.root_key}) came back {at} after {_times(len(same))}, "
            "no step gained"
        )
    if len(tried) >= policy.retries_general:
        return f"{diagnosis.cause.value} came back {at} after {_times(len(tried))}, no step gained"
    elsewhere = [p for p in same if p.allocation and nodes and not unfold(p.allocation) & set(nodes)]
    if diagnosis.root_key and elsewhere and len(same) >= 2:
        return "the same failure on entirely different nodes, no step gained: it is not a node"
    return ""


def _fruitless(past: Sequence[PastFailure], step: int | None) -> list[PastFailure]:
    """The failures since training last got further than ever before; `step` is where it stands now."""
    furthest = max((p.step for p in past if p.step is not None), default=None)
    if step is not None and (furthest is None or step > furthest):
        return []
    first = next((n for n, p in enumerate(past) if p.step == furthest), 0)
    return list(past[first:])


def _same_node(diagnosis: Diagnosis, ledger: Sequence[PastFailure], nodes: Sequence[str]) -> str | None:
    """The one node on which this attempt and all earlier ones that may be a node's fault went wrong."""
    if diagnosis.cause not in NODE_MAY_BE_BAD or len(nodes) < 2:
        return None
    common = set(diagnosis.where)
    past = [p for p in ledger if p.where and p.cause in NODE_MAY_BE_BAD]
    for p in past:
        common &= set(p.where)
    return common.pop() if past and len(common) == 1 else None


def _times(n: int) -> str:
    return "1 restart" if n == 1 else f"{n} restarts"
