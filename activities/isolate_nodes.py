"""Checks that a job can do without some nodes, and makes the exclusion list of its next attempt.

Reads only: Slurm takes an exclusion for a pending job only, so `resubmit` applies the list.
"""

from collections.abc import Collection, Mapping

from temporalio.exceptions import ApplicationError

from activities.common import Context, heartbeats, scheduler_errors
from activities.snapshot_job import how_to_submit
from relight.contracts import NodeInfo
from relight.contracts.steps import TOO_FEW_NODES, IsolateInput, IsolateResult
from relight.policy.exclusions import newly, next_list
from relight.scheduler.port import NoSuchJob


async def isolate_nodes(context: Context, given: IsolateInput) -> IsolateResult:
    """Merges the nodes with what the job's owner excluded, without names that the scheduler does not know.

    Raises:
        ApplicationError: `TooFewNodes` if fewer nodes would be left than the job needs.
    """
    async with heartbeats():
        with scheduler_errors():
            try:
                info = await context.scheduler.job(given.job.attempt.job_id)
                needed, listed = info.num_nodes, info.excluded_nodes
            except NoSuchJob:  # forgotten: it is submitted anew, from what was saved
                request = await how_to_submit(context, given.job.attempt)
                needed, listed = request.nodes, request.excluded_nodes
            nodes = await context.scheduler.nodes()
    excluded = next_list(listed, given.readmitted, (n for n in given.nodes if n in nodes))
    dropped = tuple(n for n in given.nodes if n not in nodes)
    check_enough(needed, nodes, excluded)

    parts = [f"the next attempt runs on none of: {', '.join(excluded) or 'no node is excluded'}"]
    if kept := [n for n in listed if n not in given.readmitted]:
        parts.append(f"on its list are already {', '.join(kept)}")
    if again := [n for n in given.readmitted if n in listed and n not in excluded]:
        parts.append(f"it may run again on {', '.join(again)}")
    if dropped:
        parts.append(f"unknown to the scheduler and left out: {', '.join(dropped)}")
    return IsolateResult(
        excluded_nodes=excluded,
        added=newly(excluded, listed),
        dropped=dropped,
        summary="; ".join(parts),
    )


def check_enough(num_nodes: int, nodes: Mapping[str, NodeInfo], excluded: Collection[str]) -> None:
    """Makes sure that enough nodes are left, busy ones included: they become free some day.

    Raises:
        ApplicationError: `TooFewNodes`, with the numbers.
    """
    needed = max(num_nodes, 1)
    up = [n for n in nodes.values() if not n.is_lost and not n.is_drained]
    left = [n for n in up if n.name not in excluded]
    if len(left) < needed:
        raise ApplicationError(
            f"the job needs {needed} nodes, and without {', '.join(sorted(excluded))} only {len(left)} of "
            f"{len(up)} usable nodes ({len(nodes)} in all) are left",
            type=TOO_FEW_NODES,
            non_retryable=True,
        )
