"""The pages of `docs/reference/` that are made from the code. `make reference` writes them.

A test compares what is committed with what the code gives, so they cannot become untrue unnoticed. Nothing in
them may depend on the machine, its settings or the versions of libraries.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import catalogue, commands, exit_codes, json_shapes, policy_file, search_attributes
from scripts.reference import settings as all_settings

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands.page,
    "settings.md": all_settings.page,
    "policy-file.md": policy_file.page,
    "catalogue.md": catalogue.page,
    "search-attributes.md": search_attributes.page,
    "exit-codes.md": exit_codes.page,
    "json.md": json_shapes.page,
}
"""File name in `DIRECTORY`, and what gives its text."""
