"""What a workflow's page in the web UI shows now, with the time at which that last changed."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from relight.wording import moment


class CurrentDetails:
    """The page of the running workflow. The web UI shows it as it was when the reader opened it."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, page: str) -> None:
        """Shows a page, if it is another one than before.

        Args:
            page: Markdown that begins with a heading and an empty line.
        """
        if page == self._shown:
            return
        self._shown = page
        heading, _, rest = page.partition("\n\n")
        as_of = f"As of {moment(workflow.now())}; `R` on the keyboard reads what is newer."
        workflow.set_current_details(f"{heading}\n\n{as_of}\n\n{rest}")
