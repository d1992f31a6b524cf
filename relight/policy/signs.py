"""How many independent sources say that a fault is real, and that a node is at fault. Pure.

One source can be wrong, and a job's own log is written by the job's user. What touches more than the job
itself needs several, and the log is never one of them.
"""

from relight.contracts import Diagnosis, Source
from relight.contracts.steps import ConfirmResult

CONFIRMS = "confirms"


def of_the_fault(diagnosis: Diagnosis, confirmation: ConfirmResult) -> tuple[str, ...]:
    """The sources that confirm the fault, each once: those asked again, and those that accuse a node."""
    asked = {
        e.source for seen in confirmation.observations if seen.verdict == CONFIRMS for e in seen.evidence
    }
    return _names(asked | {sign.source for sign in diagnosis.signs})


def against_node(node: str, diagnosis: Diagnosis, confirmation: ConfirmResult) -> tuple[str, ...]:
    """The sources other than the job's log that say that this node is at fault, each once."""
    asked = {
        e.source
        for seen in confirmation.observations
        if seen.verdict == CONFIRMS
        for e in seen.evidence
        if e.node == node and e.trust
    }
    lost = {Source.SCHEDULER} if node in confirmation.nodes_lost else set()
    return _names(asked | lost | {sign.source for sign in diagnosis.signs if sign.node == node})


def _names(sources: set[Source]) -> tuple[str, ...]:
    return tuple(sorted(source.value for source in sources))
