"""deploy/compose as data, with values for its variables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
FILE = COMPOSE / "compose.yml"
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^{}]*))?\}")
"""What compose.yml uses of Compose's interpolation: `${NAME}`, `${NAME:-default}`, `${NAME:?why}`."""


def variables() -> dict[str, str | None]:
    """The variables, with their defaults; None: it has to be given."""
    found: dict[str, str | None] = {}
    for name, sign, text in VARIABLE.findall(FILE.read_text()):
        if sign:
            found[name] = text if sign == "-" else None
        else:
            found.setdefault(name, None)
    return found


def stack(**given: str) -> Any:
    """The file, read as Compose reads it.

    Args:
        given: values of variables; those that have to be given have one here already.
    """
    values = {name: default if default is not None else "1" for name, default in variables().items()}
    values |= {"SHARED": "/shared", **given}
    return _with_values(yaml.safe_load(FILE.read_text()), values)


def _with_values(node: Any, values: Mapping[str, str]) -> Any:
    """Compose puts values into the strings of the file that it has read: they are never read as YAML."""
    match node:
        case dict():
            return {key: _with_values(value, values) for key, value in node.items()}
        case list():
            return [_with_values(value, values) for value in node]
        case str():
            return VARIABLE.sub(lambda found: values[found[1]], node)
        case _:
            return node


def bind_mounts(service: Any) -> list[tuple[str, str]]:
    """Source and target of what is mounted from the host."""
    parts = [str(volume).split(":") for volume in service.get("volumes", ())]
    return [(source, target) for source, target, *_ in parts if source.startswith((".", "/"))]
