"""What would wedge a workflow later is checked when the worker starts."""

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.contracts.ids import SEARCH_ATTRIBUTES
from relight.scheduler.port import Scheduler, SchedulerVersion
from relight.temporal import NotReady


async def check_search_attributes(client: Client) -> None:
    """Asks the namespace for relight's search attributes.

    A workflow that sets a missing one is not failed by Temporal: its task is retried for ever.

    Raises:
        NotReady: some are missing, or have another type.
    """
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED}:
            return  # some services do not let workers look; `relight setup` has the last word there
        raise NotReady(f"Temporal does not tell its search attributes: {error.message}") from error
    bad = [
        key.name
        for key in SEARCH_ATTRIBUTES
        if answer.custom_attributes.get(key.name) != int(key.indexed_value_type)
    ]
    if bad:
        raise NotReady(
            f"the namespace {client.namespace!r} lacks relight's search attributes {', '.join(bad)}: "
            "run `relight setup`"
        )


async def check_scheduler(scheduler: Scheduler) -> SchedulerVersion:
    """Asks the scheduler who it is.

    A scheduler that is away for a while is no reason to stay down (steps wait for it), but one that cannot be
    asked at all is.

    Raises:
        SchedulerError: it refuses, or is not installed.
    """
    return await scheduler.version()
