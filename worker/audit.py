"""One log line and two metrics for each try of each step.

Temporal's history keeps only the last try of a retried activity; the log keeps all.
"""

import time
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from worker import metrics

log = structlog.get_logger("worker")


class Audit(Interceptor):
    """Wraps every activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Puts the audit around the activity."""
        return _AuditActivity(next)


class _AuditActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        began = time.monotonic()
        outcome, text = "done", ""
        try:
            return await super().execute_activity(input)
        except ApplicationError as error:
            waits = error.category is ApplicationErrorCategory.BENIGN
            outcome, text = ("waits" if waits else error.type or "failed"), error.message
            raise
        except BaseException as error:
            outcome, text = type(error).__name__, str(error)
            raise
        finally:
            seconds = time.monotonic() - began
            say = log.debug if outcome == "waits" else log.info if outcome == "done" else log.warning
            say(
                "step",
                step=info.activity_type,
                outcome=outcome,
                text=text,
                workflow=info.workflow_id,
                attempt=info.attempt,
                ms=round(seconds * 1000),
            )
            labels = {"step": info.activity_type, "outcome": outcome}
            metrics.count(activity.metric_meter(), metrics.STEP_TRIES, labels)
            metrics.time(activity.metric_meter(), metrics.STEP_SECONDS, seconds, labels)
