"""Tells people of something, without waiting for it: a webhook that is slow or broken delays no recovery."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityHandle

with workflow.unsafe.imports_passed_through():
    from relight.contracts.notice import Notice
    from workflows.details import clip

NOTIFY = "notify"
"""The activity."""
GIVE_UP = timedelta(minutes=2)
"""Then a notice is late enough to be dropped: what it says can be seen in Temporal and by `relight show`."""
ONE_TRY = timedelta(seconds=60)


class Notices:
    """The notices of one workflow."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._open: set[ActivityHandle[str]] = set()

    @property
    def is_quiet(self) -> bool:
        """No notice is under way."""
        return not self._open

    def send(self, notice: Notice) -> None:
        """Starts to tell people, and returns at once."""
        if not self._wanted:
            return
        handle = workflow.start_activity(
            NOTIFY,
            notice,
            result_type=str,
            summary=clip(f"tell people: {notice.text}"),
            start_to_close_timeout=ONE_TRY,
            schedule_to_close_timeout=GIVE_UP,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=6),
            cancellation_type=ActivityCancellationType.ABANDON,
        )
        self._open.add(handle)
        handle.add_done_callback(self._ended)

    async def settle(self) -> None:
        """Before a workflow ends: Temporal drops the activities of one that has ended.

        Everything else is done by then, and nobody waits for this. A cancellation ends it early.
        """
        if self._open:
            try:
                await workflow.wait_condition(lambda: self.is_quiet)
            except asyncio.CancelledError:
                workflow.logger.warning("%d notices were given up: cancelled", len(self._open))

    def _ended(self, handle: "asyncio.Task[str]") -> None:
        self._open = {other for other in self._open if other is not handle}
        if not handle.cancelled() and (error := handle.exception()) is not None:
            workflow.logger.warning("people could not be told: %s", error.__cause__ or error)
