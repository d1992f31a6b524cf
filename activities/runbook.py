"""All steps as Temporal activities, under the names by which workflows call them."""

from collections.abc import Callable
from typing import Any

from temporalio import activity

from activities.archive_recovery import archive_recovery
from activities.check_node import check_node
from activities.common import Context
from activities.confirm_fault import confirm_fault
from activities.drain_job import drain_job
from activities.drain_node import drain_node, look_at_node, release_node
from activities.hold_job import hold_job
from activities.isolate_nodes import isolate_nodes
from activities.locate_checkpoint import locate_checkpoint
from activities.look_at_job import look_at_job
from activities.notify import notify
from activities.recording import recorded
from activities.resubmit import resubmit
from activities.snapshot_job import snapshot_job
from activities.steer_checkpoint import steer_checkpoint
from activities.verify_resume import verify_resume
from activities.verify_running import verify_running
from activities.wait_nodes_free import wait_nodes_free
from relight.contracts.node_drain import NodeCheck, NodeLook, NodeStep
from relight.contracts.notice import Notice
from relight.contracts.steps import (
    ArchiveInput,
    ConfirmInput,
    ConfirmResult,
    DrainInput,
    DrainResult,
    HoldInput,
    HoldResult,
    IsolateInput,
    IsolateResult,
    LocateInput,
    LocateResult,
    NodesFreeInput,
    PollInput,
    PollResult,
    ResubmitInput,
    ResubmitResult,
    RunningResult,
    SteerInput,
    SteerResult,
    VerifyInput,
    VerifyResult,
)


class Runbook:
    """The steps, bound to one scheduler and one configuration."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @activity.defn
    async def confirm_fault(self, given: ConfirmInput) -> ConfirmResult:
        """Is the fault real?"""
        return await confirm_fault(self._context, given)

    @activity.defn
    async def isolate_nodes(self, given: IsolateInput) -> IsolateResult:
        """Can the job do without these nodes?"""
        return await isolate_nodes(self._context, given)

    @activity.defn
    async def drain_job(self, given: DrainInput) -> DrainResult:
        """Takes the old attempt off its nodes."""
        result, commands = await recorded(self._context, lambda context: drain_job(context, given))
        return result.model_copy(update={"commands": commands})

    @activity.defn
    async def wait_nodes_free(self, given: NodesFreeInput) -> str:
        """Waits until nothing of it is left there."""
        return await wait_nodes_free(self._context, given)

    @activity.defn
    async def locate_checkpoint(self, given: LocateInput) -> LocateResult:
        """Where can training resume?"""
        return await locate_checkpoint(self._context, given)

    @activity.defn
    async def steer_checkpoint(self, given: SteerInput) -> SteerResult:
        """Leads the job there."""
        return await steer_checkpoint(self._context, given)

    @activity.defn
    async def resubmit(self, given: ResubmitInput) -> ResubmitResult:
        """Lets the job start again."""
        result, commands = await recorded(self._context, lambda context: resubmit(context, given))
        return result.model_copy(update={"commands": commands})

    @activity.defn
    async def verify_running(self, given: VerifyInput) -> RunningResult:
        """Waits until it runs."""
        return await verify_running(self._context, given)

    @activity.defn
    async def verify_resume(self, given: VerifyInput) -> VerifyResult:
        """Waits until it trains past the step it failed at."""
        return await verify_resume(self._context, given)

    @activity.defn
    async def hold_job(self, given: HoldInput) -> HoldResult:
        """Leaves the job held."""
        summary, commands = await recorded(self._context, lambda context: hold_job(context, given))
        return HoldResult(summary=summary, commands=commands)

    @activity.defn
    async def look_at_job(self, given: PollInput) -> PollResult:
        """What does the scheduler say of the job?"""
        return await look_at_job(self._context, given)

    @activity.defn
    async def snapshot_job(self, given: PollInput) -> str:
        """Saves what it takes to submit the job again."""
        return await snapshot_job(self._context, given)

    @activity.defn
    async def drain_node(self, given: NodeStep) -> NodeLook:
        """Takes a node away from everyone."""
        look, commands = await recorded(self._context, lambda context: drain_node(context, given))
        return look.model_copy(update={"commands": commands})

    @activity.defn
    async def look_at_node(self, given: NodeStep) -> NodeLook:
        """How does a node stand now?"""
        return await look_at_node(self._context, given)

    @activity.defn
    async def check_node(self, given: NodeStep) -> NodeCheck:
        """Is the node well again? Runs the site's own commands."""
        return await check_node(self._context, given)

    @activity.defn
    async def release_node(self, given: NodeStep) -> NodeLook:
        """Gives a node back."""
        look, commands = await recorded(self._context, lambda context: release_node(context, given))
        return look.model_copy(update={"commands": commands})

    @activity.defn
    async def archive_recovery(self, given: ArchiveInput) -> str:
        """Keeps the record of an ended recovery."""
        return await archive_recovery(self._context, given)

    @activity.defn
    async def notify(self, given: Notice) -> str:
        """Tells people."""
        return await notify(self._context, given)

    def all(self) -> list[Callable[..., Any]]:
        """The steps, for a worker."""
        return [
            self.confirm_fault,
            self.isolate_nodes,
            self.drain_job,
            self.wait_nodes_free,
            self.locate_checkpoint,
            self.steer_checkpoint,
            self.resubmit,
            self.verify_running,
            self.verify_resume,
            self.hold_job,
            self.look_at_job,
            self.snapshot_job,
            self.notify,
            self.drain_node,
            self.look_at_node,
            self.check_node,
            self.release_node,
            self.archive_recovery,
        ]
