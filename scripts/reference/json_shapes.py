"""`docs/reference/json.md`: what `--json` prints, from the models of `relight/cli/shapes.py`."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import BaseModel

from relight.checkpoints.report import Report
from relight.cli import shapes
from relight.contracts.guard import GuardStatus, NodeView
from relight.contracts.messages import DecisionResult
from relight.contracts.node_drain import NodeDrainStatus
from relight.diagnosis.catalogue import Signature
from scripts.reference.docstrings import about, below
from scripts.reference.markdown import code, head, prose, table
from scripts.reference.types import models_in, words

INTRO = """\
Fields are only ever added. Times are ISO 8601 in UTC (`2026-12-01T03:12:44Z`), and so are durations
(`PT1M30S`); a number that is none is the text `NaN`. A command that prints a list prints one element for each
line of its table. `null` and empty stand for "there is none" or "not known", as the field says.
"""


OTHERS: Mapping[str, tuple[type[BaseModel], bool]] = {
    "relight approve": (DecisionResult, False),
    "relight reject": (DecisionResult, False),
    "relight guard": (GuardStatus, False),
    "relight nodes": (NodeView, True),
    "relight nodes drains": (NodeDrainStatus, True),
    "relight checkpoints": (Report, False),
    "relight catalogue list": (Signature, True),
}
"""Commands that print a model of another module, and whether it is a list of them."""

DIAGNOSE: Mapping[str, str] = {
    "symptom": "What a person would see, as in the catalogue.",
    "cause": "Why, as in the catalogue.",
    "retryable": "Trying again may help.",
    "blame_nodes": "Nodes under suspicion.",
    "action": "What relight would do: `restart`, `restart_exclude_node`, "
    "`restart_previous_checkpoint`, `stop`, `none`.",
    "confidence": "From 0 to 1.",
    "first_error": "`file` and `line` (from 0) of the line that explains the others; `null`: none does.",
    "progress": "`last_step` and `throughput`; `null`: no step line was recognised.",
    "evidence": "The lines that say so.",
    "explanation": "What happened, in a sentence.",
    "because": "Why this action.",
    "dropped": "Causes that were considered and dropped, in words.",
    "blind": "No step line was recognised.",
    "attempts": "How many attempts the logs show.",
}
"""The keys of `relight.cli.diagnose.as_data`."""


def page() -> str:
    """The text of the page."""
    told = printed()
    roots = list(dict.fromkeys(model for model, _ in told.values()))
    others = sorted(_reached(roots) - set(roots), key=lambda model: (model.__name__, model.__module__))
    titles = _titles((*roots, *others))

    def link(model: type[BaseModel]) -> str:
        return f"[{titles[model]}](#{re.sub(r'[^a-z0-9]+', '-', titles[model].lower()).strip('-')})"

    parts = [head("JSON", INTRO, "relight/cli/shapes.py and relight/contracts/"), "## What commands print\n"]
    rows = [(f"`{command} --json`", _printed(*shape, link)) for command, shape in told.items()]
    rows.append(("`relight diagnose --json`", "[Diagnosis of a dead run](#diagnosis-of-a-dead-run)"))
    parts += [table(("command", "prints"), rows), "## Shapes\n"]
    for model in (*roots, *others):
        parts += [f"### {titles[model]}\n"]
        if text := about(model):
            parts += [f"{prose(text)}\n"]
        parts.append(table(("field", "value", "meaning"), _fields(model, link)))
    fields = [(code(key), prose(text)) for key, text in DIAGNOSE.items()]
    parts += ["### Diagnosis of a dead run\n", table(("field", "meaning"), fields)]
    return "\n".join(parts)


def printed() -> dict[str, tuple[type[BaseModel], bool]]:
    """What each command prints with `--json`: the model, and whether it is a list of them."""
    found = {}
    for model in vars(shapes).values():
        if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == shapes.__name__:
            text = about(model)
            if match := re.match(r"(One element of )?`(relight [a-z -]+?)[A-Z| ]* --json`", text):
                found[match[2].strip()] = (model, match[1] is not None)
    return found | dict(OTHERS)


def _titles(models: Sequence[type[BaseModel]]) -> dict[type[BaseModel], str]:
    """Their names; of two with the same name, with the part of relight that they are from."""
    names = Counter(model.__name__ for model in models)
    return {
        model: f"{model.__name__} ({model.__module__.split('.')[1]})"
        if names[model.__name__] > 1
        else model.__name__
        for model in models
    }


def _printed(model: type[BaseModel], several: bool, link: Callable[[type[BaseModel]], str]) -> str:
    return f"list of {link(model)}" if several else link(model)


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
