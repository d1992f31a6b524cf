"""The generated pages of docs/reference/ are what the code gives, and they leave nothing out."""

from functools import cache

import pytest

from relight.config import Settings
from scripts.reference import DIRECTORY, PAGES
from scripts.reference.commands import leaves
from scripts.reference.markdown import cell, code, prose
from scripts.reference.settings import default_text


@cache
def made(name: str) -> str:
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_what_is_committed_is_what_the_code_gives(name: str) -> None:
    committed = (DIRECTORY / name).read_text(encoding="utf-8")
    assert committed == made(name), "run `make reference`, and commit what it writes"


def test_every_command_and_option_is_in_the_page() -> None:
    page = made("cli.md")
    for name, command in leaves():
        section = page.split(f"# `{name}`\n", 1)[1].split("\n#", 1)[0]
        for option in (opt for param in command.params for opt in param.opts if opt.startswith("--")):
            if option not in {"--install-completion", "--show-completion", "--help"}:
                assert option in section, f"{name} {option}"


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_is_in_the_page(field: str) -> None:
    page = made("settings.md")
    assert f"| `{field}` |" in page or f"## `[{field}]`" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain", "`plain`"),
        ("has `ticks` in it", "``has `ticks` in it``"),
        ("`begins", "`` `begins ``"),
    ],
)
def test_code(text: str, shown: str) -> None:
    assert code(text) == shown


def test_prose_is_no_markup() -> None:
    assert prose("`a<b>` and <b> *x*") == "`a<b>` and \\<b> \\*x\\*"
    assert prose("None: nobody", none="`null`") == "`null`: nobody"
    assert cell("a | b\n  c") == "a \\| b c"


def test_defaults_as_one_would_write_them() -> None:
    fields = Settings.model_fields
    assert default_text(fields["mode"]) == "observe"
    assert default_text(fields["guard"]) == "true"
    assert default_text(fields["cluster"]) == ""
    assert default_text(fields["sensor"].annotation.model_fields["log_poll"]) == "250ms"  # type: ignore[union-attr]
