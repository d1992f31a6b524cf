"""The current details of the drain of a node, in Markdown: how it stands, and what a person can do now."""

from relight.contracts.node_drain import DrainEnd, NodeDrainInput, NodeDrainStatus
from relight.wording import moment
from workflows.details import Block, code, fence, link, page, quoted_evidence, said

_AFTERWARDS = {
    DrainEnd.RELEASED: "Nothing is left to do: the node takes jobs again.",
    DrainEnd.TAKEN_BACK: "Nothing is left to do for relight: somebody else decides about the node now.",
    DrainEnd.NOT_DRAINED: "relight changed nothing: the node was down or drained already, or is not known.",
    DrainEnd.REFUSED: "relight changed nothing. **If the node is faulty, drain it by hand.**",
    DrainEnd.EXPIRED: "relight changed nothing: the fault is too old by now. **Look at the node.**",
    DrainEnd.WITHDRAWN: "A person said no, or ended the workflow: the node is left as it is.",
    DrainEnd.FAILED: "**The scheduler did not do it: look at the node.**",
}


def drain_details(start: NodeDrainInput, status: NodeDrainStatus, namespace: str) -> str:
    """The page of a drain.

    Args:
        start: why the node is drained, and on whose plan.
        status: how the drain stands.
        namespace: Temporal's, for the link to the recovery.
    """
    blocks: list[Block] = [
        [f"# Node {code(start.node)}: {status.end.value if status.end else status.state}"],
        [
            f"Cause **{start.cause.value}**, seen in attempt {code(start.job)}: {said(start.because)}",
            f"Planned by {link(start.recovery_id, namespace)}.",
        ],
        _what_to_do(start, status),
        ["## Evidence", *quoted_evidence(start.evidence)] if start.evidence else [],
    ]
    return page(blocks, status.log)


def _what_to_do(start: NodeDrainInput, status: NodeDrainStatus) -> Block:
    if status.end is not None:
        return [_AFTERWARDS[status.end]]
    release = fence(f"relight nodes release {start.node} --reason WHY")
    if status.drained_at is not None:
        return [f"Drained since {moment(status.drained_at)}. When it is mended, give it back:", release]
    waits = f"It waits for a permit: {said(f'{status.gate}, {status.reason}')}. " if status.reason else ""
    return [f"{waits}It is not drained yet. To keep it:", release]
