"""Stub activities under the real names: a cluster whose every answer a test can script.

This is the boundary of the tests here: the real activities have their own tests, against real schedulers.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from relight.contracts import Attempt
from relight.contracts.node_drain import NodeCheck, NodeHow, NodeLook, NodeStep
from relight.contracts.notice import Notice
from relight.contracts.steps import (
    NOT_YET,
    ArchiveInput,
    ConfirmInput,
    ConfirmResult,
    DrainInput,
    DrainResult,
    HoldInput,
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
from tests.workflows import samples

MUTATING = ("drain_job", "steer_checkpoint", "resubmit", "hold_job")


def error(kind: str, text: str = "", *, final: bool = True) -> ApplicationError:
    """An error as the real activities raise it."""
    return ApplicationError(text or kind, type=kind, non_retryable=final)


def not_yet(text: str = "not yet") -> ApplicationError:
    return ApplicationError(text, type=NOT_YET, category=ApplicationErrorCategory.BENIGN)


class World:
    """What happened, and what the next calls shall answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._script: dict[str, list[Any]] = {}
        self.look = PollResult(known=True, info=samples.info())

    def will(self, step: str, *answers: Any) -> None:
        """The next calls of a step give these answers: results, errors to raise, or functions of the input.

        The last one stays.
        """
        self._script[step] = list(answers)

    def called(self, *names: str) -> list[str]:
        """The steps called so far, in order; some names only, or all of the runbook."""
        wanted = names or _RUNBOOK
        return [name for name, _ in self.calls if name in wanted]

    def inputs(self, step: str) -> list[Any]:
        return [given for name, given in self.calls if name == step]

    @property
    def mutations(self) -> list[str]:
        return self.called(*MUTATING)

    async def answer(self, step: str, given: Any, default: Callable[[], Any]) -> Any:
        self.calls.append((step, given))
        script = self._script.get(step)
        if not script:
            return default()
        answer = script[0] if len(script) == 1 else script.pop(0)
        if callable(answer):
            answer = answer(given)
            if hasattr(answer, "__await__"):
                answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


_RUNBOOK = (
    "confirm_fault", "isolate_nodes", "drain_job", "wait_nodes_free", "locate_checkpoint",
    "steer_checkpoint", "resubmit", "verify_running", "verify_resume", "hold_job",
)  # fmt: skip

OURS = NodeLook(how=NodeHow.OURS, idle=True, summary="it is drained by relight", at=samples.T0)
CHECKPOINT = LocateResult(name="iter_0000100", step=100, layout="marker", summary="iter_0000100 is complete")


def next_attempt(old: Attempt) -> Attempt:
    return samples.attempt(old.restart_count + 1)


def activities(world: World) -> list[Callable[..., Any]]:
    """All activities, answering for a crash that a restart repairs unless the world says otherwise."""

    @activity.defn
    async def confirm_fault(given: ConfirmInput) -> ConfirmResult:
        result = ConfirmResult(verdict="confirmed", summary="the scheduler says FAILED")
        return await world.answer("confirm_fault", given, lambda: result)

    @activity.defn
    async def isolate_nodes(given: IsolateInput) -> IsolateResult:
        return await world.answer("isolate_nodes", given, lambda: IsolateResult(excluded_nodes=given.nodes))

    @activity.defn
    async def drain_job(given: DrainInput) -> DrainResult:
        result = DrainResult(
            how="requeue-held",
            accepted_at=samples.T0 + timedelta(minutes=6),
            attempt=next_attempt(given.attempt),
        )
        return await world.answer("drain_job", given, lambda: result)

    @activity.defn
    async def wait_nodes_free(given: NodesFreeInput) -> str:
        return await world.answer("wait_nodes_free", given, lambda: "no process is left")

    @activity.defn
    async def locate_checkpoint(given: LocateInput) -> LocateResult:
        return await world.answer("locate_checkpoint", given, lambda: CHECKPOINT)

    @activity.defn
    async def steer_checkpoint(given: SteerInput) -> SteerResult:
        result = SteerResult(changed=("latest: 120 -> 100",), summary="latest now says 100")
        return await world.answer("steer_checkpoint", given, lambda: result)

    @activity.defn
    async def resubmit(given: ResubmitInput) -> ResubmitResult:
        return await world.answer("resubmit", given, lambda: ResubmitResult(attempt=given.attempt))

    @activity.defn
    async def verify_running(given: VerifyInput) -> RunningResult:
        result = RunningResult(
            attempt=given.attempt, nodes=samples.NODES, started_at=samples.T0 + timedelta(minutes=7)
        )
        return await world.answer("verify_running", given, lambda: result)

    @activity.defn
    async def verify_resume(given: VerifyInput) -> VerifyResult:
        step = (given.failed_at or 0) + 1
        result = VerifyResult(
            verdict="resumed", first_step=101, passed_step=step, at=samples.T0 + timedelta(minutes=8),
            summary=f"step {step}",
        )  # fmt: skip
        return await world.answer("verify_resume", given, lambda: result)

    @activity.defn
    async def hold_job(given: HoldInput) -> str:
        return await world.answer("hold_job", given, lambda: "held")

    @activity.defn
    async def archive_recovery(given: ArchiveInput) -> str:
        return await world.answer("archive_recovery", given, lambda: "archived")

    @activity.defn
    async def look_at_job(given: PollInput) -> PollResult:
        return await world.answer("look_at_job", given, lambda: world.look)

    @activity.defn
    async def snapshot_job(given: PollInput) -> str:
        return await world.answer("snapshot_job", given, lambda: "saved")

    @activity.defn
    async def notify(given: Notice) -> str:
        return await world.answer("notify", given, lambda: "told")

    @activity.defn
    async def drain_node(given: NodeStep) -> NodeLook:
        return await world.answer("drain_node", given, lambda: OURS)

    @activity.defn
    async def look_at_node(given: NodeStep) -> NodeLook:
        return await world.answer("look_at_node", given, lambda: OURS)

    @activity.defn
    async def check_node(given: NodeStep) -> NodeCheck:
        return await world.answer("check_node", given, lambda: NodeCheck(summary="no check is configured"))

    @activity.defn
    async def release_node(given: NodeStep) -> NodeLook:
        free = NodeLook(how=NodeHow.FREE, idle=True, summary="it is not drained")
        return await world.answer("release_node", given, lambda: free)

    return [
        drain_node, look_at_node, check_node, release_node,
        confirm_fault, isolate_nodes, drain_job, wait_nodes_free, locate_checkpoint, steer_checkpoint,
        resubmit, verify_running, verify_resume, hold_job, look_at_job, snapshot_job,
        notify,
        archive_recovery,
    ]  # fmt: skip
