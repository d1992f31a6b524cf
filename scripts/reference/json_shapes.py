"""`docs/reference/json.md`: what `--json` prints, from the models of `relight/cli/shapes.py`."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel

from relight.cli.schema import PRINTED
from relight.docstrings import about, below
from scripts.reference.markdown import head, prose, table
from scripts.reference.types import models_in, words

INTRO = """\
Fields are only ever added. Times are ISO 8601 in UTC (`2026-12-01T03:12:44Z`), and so are durations
(`PT1M30S`); a number that is none is the text `NaN`. A command that prints a list prints one element for each
line of its table. `null` and empty stand for "there is none" or "not known", as the field says.
"""


def page() -> str:
    """The text of the page."""
    roots = list(dict.fromkeys(model for kind in PRINTED.values() for model in models_in(kind)))
    others = sorted(_reached(roots) - set(roots), key=lambda model: (model.__name__, model.__module__))
    titles = _titles((*roots, *others))

    def link(model: type[BaseModel]) -> str:
        return f"[{titles[model]}](#{re.sub(r'[^a-z0-9]+', '-', titles[model].lower()).strip('-')})"

    rows = ((f"`relight {command} --json`", words(kind, link)) for command, kind in PRINTED.items())
    parts = [
        head("JSON", INTRO, "relight/cli/shapes.py and relight/contracts/"),
        "## What commands print\n",
        table(("command", "prints"), rows),
        "## Shapes\n",
    ]
    for model in (*roots, *others):
        parts += [f"### {titles[model]}\n"]
        if text := about(model):
            parts += [f"{prose(text)}\n"]
        parts.append(table(("field", "value", "meaning"), _fields(model, link)))
    return "\n".join(parts)


def _titles(models: Sequence[type[BaseModel]]) -> dict[type[BaseModel], str]:
    """Their names; of two with the same name, with the part of relight that they are from."""
    names = Counter(model.__name__ for model in models)
    return {
        model: f"{model.__name__} ({model.__module__.split('.')[1]})"
        if names[model.__name__] > 1
        else model.__name__
        for model in models
    }


def _reached(models: list[type[BaseModel]]) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    todo = list(models)
    while todo:
        model = todo.pop()
        if model not in found:
            found.add(model)
            todo += [m for field in model.model_fields.values() for m in models_in(field.annotation)]
    return found


def _fields(model: type[BaseModel], link: Callable[[type[BaseModel]], str]) -> Iterator[tuple[str, str, str]]:
    texts = below(model)
    for name, field in model.model_fields.items():
        yield f"`{name}`", words(field.annotation, link), prose(texts.get(name, ""), none="`null`")
