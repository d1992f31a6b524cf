"""YAML that people write, with the line of every key, read strictly. Pure.

Only plain data: no tags, no anchors (a few lines of them can grow without bound), no key twice. What YAML 1.1
would take for something that nobody means (`1:30` as 90, `010` as 8) stays text.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_DEPTH = 20
_SURPRISING = re.compile(r"[-+]?(?:0[0-9_]+|[0-9_]+(?::[0-9_.]+)+)")

Path = tuple[str | int, ...]
"""Where something is in the file: keys, and indices of lists."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file that people write."""

    file: str
    line: int
    """1-based."""
    key: str
    """Dotted, as in `policies.patient.hang_floor`; empty: the file as a whole."""
    message: str

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}: "
        return f"{at}{self.key}: {self.message}" if self.key else f"{at}{self.message}"


@dataclass
class Written:
    """The plain data of a file, and where each part of it stands."""

    file: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of a part, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: Path, message: str) -> None:
        """Notes that something is wrong there, unless something is known to be: one cause, one message."""
        if path and any(known.key == dotted(path) for known in self.problems):
            return
        self.problems.append(Problem(self.file, self.line(path), dotted(path), message))


def dotted(path: Path) -> str:
    """A place as people write it: `overrides[2].set.signs`, lists counted from 1."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_yaml(text: str, file: str) -> Written:
    """Reads a file. What cannot be read is in `problems`, and left out of `data`."""
    written = Written(file)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        what = getattr(e, "problem", None) or str(e)
        written.problems.append(Problem(file, mark.line + 1 if mark else 1, "", f"not YAML: {what}"))
        return written
    if root is not None:
        written.data = _plain(root, (), written, set())
    return written


def _plain(node: yaml.Node, path: Path, written: Written, seen: set[int]) -> Any:
    written.lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in seen or len(path) > MAX_DEPTH:
        written.problem(path, "anchors and aliases (& and *) are not allowed: write it out")
        return None
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, written, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, at), written, seen) for at, item in enumerate(node.value)]
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if plain and _SURPRISING.fullmatch(node.value):
        return str(node.value)
    try:
        return SafeConstructor().construct_object(node)
    except (ConstructorError, ValueError) as e:
        written.problem(path, f"cannot be read: {getattr(e, 'problem', None) or e}")
        return None


def _mapping(node: yaml.MappingNode, path: Path, written: Written, seen: set[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            written.problems.append(Problem(written.file, line, dotted(path), "a key is a text"))
            continue
        key = str(key_node.value)
        if key in found:
            message = f"it stands here twice; first in line {written.line((*path, key))}"
            written.problems.append(Problem(written.file, line, dotted((*path, key)), message))
            continue
        written.lines[*path, key] = line
        found[key] = _plain(value_node, (*path, key), written, seen)
    return found
