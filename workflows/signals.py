"""Signals between workflows: how one is read, and how one is sent.

Whatever a sender puts into a signal, reading it never raises: that would wedge the workflow. Handlers
therefore take anything: a missing payload, a second one, unknown or ill-typed fields.
"""

from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Model

M = TypeVar("M", bound=Model)


def read(model: type[M], payload: object) -> M | None:
    """The message in a signal's payload; None if it cannot be understood.

    No payload at all means the message with its defaults, where all its fields have one.
    """
    try:
        return model.model_validate({} if payload is None else payload)
    except Exception as error:  # also what a validator of a field may raise: an overflow, a recursion limit
        workflow.logger.warning(
            "a %s that cannot be read was dropped: %s", model.__name__, type(error).__name__
        )
        return None


async def tell(workflow_id: str, signal: str, message: Model) -> bool:
    """Signals another workflow. False: it has ended, or there is none."""
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, message)
    except ApplicationError as error:
        workflow.logger.warning("%s is gone, and was not told %s: %s", workflow_id, signal, error)
        return False
    return True
