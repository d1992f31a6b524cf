"""`docs/reference/policy-file.md`: from the JSON schema that `relight policy schema` prints."""

from collections.abc import Iterator
from typing import Any

from relight.contracts.policy import (
    CauseRule,
    CheckpointLayout,
    Isolation,
    MayAct,
    OnExpiry,
    Policy,
    Steer,
    Then,
)
from relight.docstrings import about, below
from relight.policy.file import Override, PolicyFile, schema
from scripts.reference.markdown import code, head, prose, table
from scripts.reference.settings import default_text

INTRO = """\
The file of the setting `policy_file`; how to write one: [how-to/policy.md](../how-to/policy.md). An editor
can be told these keys by `relight policy schema`. A policy of the settings file (`[policies.NAME]`) has the
same keys.
"""
_CHOICES = (MayAct, Isolation, Steer, Then, OnExpiry)


def page() -> str:
    """The text of the page."""
    whole = schema()
    parts = [head("The policy file", INTRO, "relight/policy/file.py and its JSON schema")]
    for title, model in (
        ("At the top", PolicyFile),
        ("Override", Override),
        ("Policy", Policy),
        ("CauseRule", CauseRule),
        ("CheckpointLayout", CheckpointLayout),
    ):
        part = whole if model is PolicyFile else whole["$defs"][model.__name__]
        parts += [f"## {title}\n", *([] if model is PolicyFile else [f"{prose(about(model))}\n"])]
        parts.append(_table(model, part))
    parts += ["## Values\n", "What the words mean that some keys take.\n"]
    for choice in _CHOICES:
        texts = below(choice)
        parts += [f"### {choice.__name__}\n", f"{prose(about(choice))}\n"]
        parts.append(table(("value", "meaning"), [(f"`{m.value}`", prose(texts[m.name])) for m in choice]))
    return "\n".join(parts)


def _table(model: Any, part: dict[str, Any]) -> str:
    texts = below(Policy) if model is CauseRule else below(model)
    rows = (
        (f"`{key}`", _type(value), code(default_text(model.model_fields[key])), prose(texts.get(key, "")))
        for key, value in part["properties"].items()
    )
    return table(("key", "value", "default", "meaning"), rows)


def _type(value: dict[str, Any]) -> str:
    """A part of the schema in words."""
    if "$ref" in value:
        return _named(value["$ref"].rpartition("/")[2])
    if "const" in value:
        return code(str(value["const"]))
    if "anyOf" in value:
        options = (option for option in value["anyOf"] if option.get("type") != "null")
        return " or ".join(dict.fromkeys(map(_type, options)))
    if str(value.get("description", "")).startswith("A duration"):
        return "duration"
    kind = value["type"]
    if isinstance(kind, list):
        return "name"
    if kind == "array":
        return f"list of {_type(value['items']) if value.get('items') else 'anything'}"
    if kind == "object":
        values = value.get("additionalProperties")
        keys = _type(value["propertyNames"]) if "propertyNames" in value else "name"
        return f"table from {keys} to {_type(values) if isinstance(values, dict) else 'anything'}"
    plain = {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}
    return plain[kind] + "".join(_bounds(value))


def _bounds(value: dict[str, Any]) -> Iterator[str]:
    for key, words in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to")):
        if key in value:
            yield f", {words} {value[key]:g}"


def _named(name: str) -> str:
    if name == "Cause":
        return "[cause](catalogue.md#causes)"
    if name == "Mode":
        return "`observe`, `act`"
    return f"[{name}](#{name.lower()})"
