"""Shows how the cluster's guard stands, and which recoveries are open, as metrics.

The guard is a workflow: it does no I/O. So a worker asks it, as `relight guard` does, and shows the answer.
Each of several workers shows the same: take `max by (...)` of it, not the sum.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import MetricMeter, QueryRejectCondition
from temporalio.service import RPCError

from relight.config import Settings
from relight.contracts.guard import BreakerState, GuardStatus, PermitKind
from relight.contracts.ids import CLUSTER, RECOVERY_WORKFLOW, STATE, guard_id
from relight.scheduler.port import Scheduler, SchedulerError
from worker import metrics
from worker.background import beside
from worker.metrics import Metric

log = structlog.get_logger("worker.guard")

ASK_EVERY = 15.0
"""Seconds: as often as Prometheus usually scrapes."""
TRY_AGAIN = 3.0
RPC_TIMEOUT = timedelta(seconds=10)


@asynccontextmanager
async def showing(
    client: Client, scheduler: Scheduler, settings: Settings, meter: MetricMeter | None
) -> AsyncIterator[None]:
    """Inside the block the metrics are kept up to date.

    Args:
        client: asks Temporal.
        scheduler: knows the cluster's name, where the settings do not say it.
        settings: say whether there is a guard.
        meter: the runtime's, whose page Prometheus scrapes; None: nobody does.
    """
    if meter is None:
        yield
        return
    async with beside(
        _show(client, scheduler, settings, meter), "the metrics of the guard are not kept up to date any more"
    ):
        yield


async def _show(client: Client, scheduler: Scheduler, settings: Settings, meter: MetricMeter) -> None:
    cluster = settings.cluster
    while not cluster:
        try:
            cluster = (await scheduler.version()).cluster
        except SchedulerError:  # the worker itself has said so
            await asyncio.sleep(ASK_EVERY)
    gauges = GuardMetrics(client, meter, cluster, has_guard=settings.guard)
    while True:
        answered = await gauges.look()
        await asyncio.sleep(ASK_EVERY if answered else TRY_AGAIN)


class GuardMetrics:
    """The gauges of one cluster.

    Args:
        client: asks Temporal.
        meter: the runtime's, whose page Prometheus scrapes.
        cluster: whose guard.
        has_guard: the settings want one.
    """

    def __init__(self, client: Client, meter: MetricMeter, cluster: str, *, has_guard: bool = True) -> None:
        self._client = client
        self._meter = meter
        self._cluster = cluster
        self._has_guard = has_guard
        self._states: set[str] = set()
        self._answered = False  # before the first answer there is nothing that could be old

    async def look(self) -> bool:
        """Asks once. Silence of Temporal or of the guard is shown, and never raised.

        Returns:
            Whether all answered.
        """
        try:
            await self._show_recoveries()
            if self._has_guard:
                self._show_guard(await self._ask())
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            if self._has_guard:
                self._show(metrics.GUARD_UP, 0)
            if self._answered:
                log.warning("the metrics of the guard and of open recoveries are old", error=str(error))
            self._answered = False
        else:
            self._answered = True
        return self._answered

    async def _ask(self) -> GuardStatus:
        status: GuardStatus = await self._client.get_workflow_handle(guard_id(self._cluster)).query(
            "status",
            result_type=GuardStatus,
            # One that was terminated would go on telling its last state.
            reject_condition=QueryRejectCondition.NOT_OPEN,
            rpc_timeout=RPC_TIMEOUT,
        )
        return status

    def _show_guard(self, status: GuardStatus) -> None:
        self._show(metrics.GUARD_UP, 1)
        self._show(metrics.PAUSED, status.paused)
        self._show(metrics.OBSERVES, status.observes)
        held = Counter(permit.request.kind for permit in status.permits)
        for kind in PermitKind:
            self._show(metrics.PERMITS, held[kind], kind=kind.value)
        self._show(metrics.WAITING, status.queued)
        counts = status.counts
        for decision in ("granted", "refused", "expired"):
            self._show(metrics.DECIDED, getattr(counts, decision), decision=decision)
        for budget in status.budgets:
            self._show(metrics.BUDGET_USED, budget.used, budget=budget.name)
            self._show(metrics.BUDGET_LIMIT, budget.limit, budget=budget.name)
        for view in status.breakers:
            for state in BreakerState:
                is_in = view.breaker.state is state
                self._show(metrics.BREAKER, is_in, partition=view.partition, state=state.value)
            self._show(metrics.BREAKER_NODES, view.nodes, partition=view.partition)
            self._show(metrics.BREAKER_TRIPS_AT, view.threshold, partition=view.partition)
        self._show(metrics.INCIDENTS, len(status.incidents))
        self._show(metrics.LEMONS, len(status.lemons))

    async def _show_recoveries(self) -> None:
        query = (
            f"WorkflowType='{RECOVERY_WORKFLOW}' AND ExecutionStatus='Running' "
            f"AND {CLUSTER.name}='{self._cluster}'"
        )
        found: Counter[str] = Counter()
        async for execution in self._client.list_workflows(query, rpc_timeout=RPC_TIMEOUT):
            found[execution.typed_search_attributes.get(STATE) or "unknown"] += 1
        self._states |= set(found)  # a gauge cannot be taken away again: it falls to 0
        for state in self._states:
            self._show(metrics.OPEN_RECOVERIES, found[state], state=state)

    def _show(self, metric: Metric, value: int, **labels: str) -> None:
        metrics.show(self._meter, metric, int(value), cluster=self._cluster, **labels)
