"""From a diagnosis and what was tried before to an action. Pure, table-tested.

The same failure with no step gained is tried once more when it names something that a replay meets again (a
code line, a data position, a checkpoint), and three times otherwise. Progress resets the count. Preemption,
maintenance and lost nodes are nobody's failure and are not counted. Slowness alone isolates no node.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relight.contracts import Action, Cause, Diagnosis, Symptom

REPLAY_STABLE = frozenset(
    {Cause.USER_CODE, Cause.NUMERICAL, Cause.CHECKPOINT_CORRUPT, Cause.DATA_LOADER, Cause.GPU_OOM}
)
"""Causes whose root key names what a replay meets again."""
FREE = frozenset({Cause.PREEMPTION, Cause.NODE_FAILURE, Cause.TIME_LIMIT})
"""Causes that burn no budget."""
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
CONFIRMATIONS = 1
CEILING = 3
DO_NOT_REQUEUE = frozenset({93})
RESTART_ELSEWHERE = frozenset({16})


@dataclass(frozen=True)
class Past:
    """An earlier attempt of the run that failed."""

    root_key: str
    cause: Cause
    step: int | None = None
    """The furthest step it reached."""
    nodes: tuple[str, ...] = ()
    """Its allocation."""
    where: tuple[str, ...] = ()
    """The nodes on which it went wrong."""


@dataclass(frozen=True)
class Decision:
    """What to do, and why."""

    action: Action
    nodes: tuple[str, ...] = ()
    """To be excluded from the next attempt."""
    because: str = ""


def decide(
    diagnosis: Diagnosis,
    history: Sequence[Past] = (),
    *,
    nodes: Sequence[str] = (),
    where: Sequence[str] = (),
    exit_code: int | None = None,
    do_not_requeue: frozenset[int] = DO_NOT_REQUEUE,
    restart_elsewhere: frozenset[int] = RESTART_ELSEWHERE,
) -> Decision:
    """Decides.

    Args:
        diagnosis: of the attempt that failed last.
        history: earlier failed attempts of the run, oldest first.
        nodes: the allocation of the last attempt.
        where: the nodes on which the last attempt went wrong.
        exit_code: of the job, where known.
        do_not_requeue: exit codes by which a program asks not to be started again.
        restart_elsewhere: exit codes by which a program asks for other nodes.
    """
    if diagnosis.cause is Cause.HEALTHY or diagnosis.symptom is Symptom.NONE:
        return Decision(Action.NONE, because="nothing is wrong")
    if exit_code is not None and exit_code in do_not_requeue:
        return Decision(Action.STOP, because=f"the program ended with {exit_code}: do not start it again")
    if not diagnosis.retryable:
        return Decision(Action.STOP, because="a restart would fail in the same way")
    step = diagnosis.progress.step if diagnosis.progress else None
    again = [p for p in history if p.root_key == diagnosis.root_key and p.cause is diagnosis.cause]
    fruitless = _fruitless(again, step)
    counted = diagnosis.cause not in FREE and diagnosis.root_key
    if counted and (reason := _used_up(diagnosis, fruitless, nodes)):
        return Decision(Action.STOP, because=reason)
    if diagnosis.nodes:
        return Decision(Action.RESTART_EXCLUDE_NODE, diagnosis.nodes, "the node is suspected")
    if (node := _same_node(diagnosis, history, where, nodes)) is not None:
        return Decision(Action.RESTART_EXCLUDE_NODE, (node,), f"attempts keep failing on {node}")
    if exit_code is not None and exit_code in restart_elsewhere and where and set(where) < set(nodes):
        return Decision(
            Action.RESTART_EXCLUDE_NODE, tuple(where), f"the program ended with {exit_code}: elsewhere"
        )
    if diagnosis.cause in {Cause.CHECKPOINT_CORRUPT, Cause.NUMERICAL}:
        return Decision(Action.RESTART_PREVIOUS_CHECKPOINT, because="the newest state cannot be used")
    if diagnosis.symptom is Symptom.SLOW and diagnosis.cause is Cause.UNKNOWN:
        return Decision(Action.NONE, because="slow, but going on; no cause that a restart would cure")
    return Decision(Action.RESTART, because="a restart may cure it")


def _fruitless(again: Sequence[Past], step: int | None) -> list[Past]:
    """The same failures since training last gained a step."""
    if step is None:
        return list(again)
    return [p for p in again if p.step is None or p.step >= step]


def _used_up(diagnosis: Diagnosis, fruitless: Sequence[Past], nodes: Sequence[str]) -> str:
    if not fruitless:
        return ""
    if diagnosis.cause in REPLAY_STABLE and len(fruitless) >= CONFIRMATIONS:
        return "the same failure again, with no step gained"
    if len(fruitless) >= CEILING:
        return f"failed {len(fruitless) + 1} times in the same way, with no step gained"
    elsewhere = [p for p in fruitless if p.nodes and nodes and not set(p.nodes) & set(nodes)]
    if elsewhere and len(fruitless) >= 2:
        return "the same failure on entirely different nodes: it is not a node"
    return ""


def _same_node(
    diagnosis: Diagnosis, history: Sequence[Past], where: Sequence[str], nodes: Sequence[str]
) -> str | None:
    if diagnosis.cause not in NODE_MAY_BE_BAD or len(nodes) < 2 or not where:
        return None
    common = set(where)
    past = [p for p in history if p.where and p.cause in NODE_MAY_BE_BAD]
    for p in past:
        common &= set(p.where)
    return common.pop() if past and len(common) == 1 else None
