"""`docs/reference/exit-codes.md`."""

from relight.cli.exit_codes import MEANINGS
from scripts.reference.markdown import head, table

INTRO = "What a script can tell from the exit status of `relight`.\n"


def page() -> str:
    """The text of the page."""
    rows = [(str(int(code)), f"`{code.name}`", words) for code, words in MEANINGS.items()]
    titles = ("code", "name", "meaning")
    return head("Exit codes", INTRO, "relight/cli/exit_codes.py") + "\n" + table(titles, rows)
