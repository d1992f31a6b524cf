"""Reading signals. Whatever a sender puts into one, reading it never raises: that would wedge the workflow.

Handlers therefore take anything: a missing payload, a second one, unknown or ill-typed fields.
"""

from typing import TypeVar

from temporalio import workflow

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
