"""`docs/reference/exit-codes.md`."""

from relight.cli.exit_codes import ExitCode
from scripts.reference.docstrings import below
from scripts.reference.markdown import head, prose, table

INTRO = "What a script can tell from the exit status of `relight`.\n"


def page() -> str:
    """The text of the page."""
    texts = below(ExitCode)
    rows = [(str(int(code)), f"`{code.name}`", prose(texts[code.name])) for code in ExitCode]
    titles = ("code", "name", "meaning")
    return head("Exit codes", INTRO, "relight/cli/exit_codes.py") + "\n" + table(titles, rows)
