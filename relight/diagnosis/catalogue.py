"""The catalogue of signatures: YAML families, checked, with every bad entry named by file and line.

A family file holds `family:` and a list of `signatures:`. Site families are read after the built-in ones
and override them by id. A bad entry is left out and reported; loading goes on without it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from yaml.constructor import SafeConstructor

from relight.contracts import Cause, Symptom
from relight.diagnosis.engine import why_not
from relight.diagnosis.xid import XidPolicy

SIGNATURES_DIR = Path(__file__).parent / "signatures"
MAX_PATTERN = 600


class Kind(StrEnum):
    """What a match means. `benign` lines look bad and are not: nothing lighter counts for such a line."""

    ROOT = "root"
    CASCADE = "cascade"
    CONTEXT = "context"
    BENIGN = "benign"


class Names(StrEnum):
    """Whom a network message accuses."""

    NOBODY = "nobody"
    """It is no network message, or tells nothing of an end."""
    NEAR = "near"
    """The host that printed it."""
    FAR = "far"
    """The host in the group `peer`."""


class Signature(BaseModel):
    """One kind of line.

    Named groups with a meaning: `rank`, `node`, `gpu`, `peer` (far end), `code` (Xid), `key` (what a replay
    would print again). The pattern must be understood by both Python's `re` and Hyperscan.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]{1,80}$")
    """`family.what`: of small letters, digits, `.`, `_` and `-`. One that exists already is replaced."""
    pattern: str = Field(min_length=3, max_length=MAX_PATTERN)
    """A regular expression that both Python's `re` and Hyperscan understand; found anywhere in a line."""
    role: Kind
    """What the line means for the others."""
    cause: Cause = Cause.UNKNOWN
    """What failed."""
    symptom: Symptom = Symptom.CRASH
    """How it fails."""
    retryable: bool = True
    """The same again can work. If not, nothing is restarted while this is the root."""
    hold_out: bool = False
    """If this is the root, its node should not be used again before somebody looked at it."""
    ends_rank: bool = False
    """The process that printed it has ended or is about to."""
    names: Names = Names.NOBODY
    """Whom a network message accuses."""
    weight: int = Field(default=0, ge=-50, le=50)
    """How much it explains. Of the signatures that match one line only the heaviest counts (of equal ones,
    one that is benign). Of the lines of one cause the heaviest gives the words. Where several causes compete,
    it is added to the rank of the cause. Lines that fit many faults have -10 and less, those that name the
    very part up to 40."""
    tag: str = ""
    """What rules across lines know it by, such as `peer` or `exit`; most have none, and need none."""
    table: str = Field(default="", pattern=r"^(xid|sxid|)$")
    """`xid` or `sxid`: the table of codes that tells cause and words by the group `code`."""
    says: str = Field(default="", max_length=300)
    """What it means, in a sentence for a person."""
    refs: tuple[str, ...] = ()
    """Where the message is documented, or who saw it: addresses, for whoever reads the file."""
    positive: tuple[str, ...] = ()
    """Lines that must match: two at least."""
    negative: tuple[str, ...] = ()
    """Lines that look alike and must not: one at least."""
    family: str = ""
    where: str = ""
    """`file:line` of its definition."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as e:
            raise ValueError(f"the pattern does not compile: {e}") from e
        return pattern


@dataclass(frozen=True)
class Problem:
    """Something wrong in a family file; the entry was left out."""

    file: Path
    line: int
    """1-based."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Signatures by id, in reading order, the Xid policy, and what was wrong with the files."""

    signatures: tuple[Signature, ...]
    xid: XidPolicy
    problems: tuple[Problem, ...] = ()
    _by_id: dict[str, Signature] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_id.update({s.id: s for s in self.signatures})

    def __iter__(self) -> Iterator[Signature]:
        return iter(self.signatures)

    def __len__(self) -> int:
        return len(self.signatures)

    def __getitem__(self, signature_id: str) -> Signature:
        return self._by_id[signature_id]

    def get(self, signature_id: str) -> Signature | None:
        """The signature of this id, if there is one."""
        return self._by_id.get(signature_id)

    @classmethod
    def load(cls, site_dirs: Sequence[Path] = ()) -> "Catalogue":
        """The built-in families, then those of each site directory (`*.yaml`; `xid.yaml` overrides codes).

        Never raises for a bad file or entry: see `problems`.
        """
        return _load(tuple(Path(d) for d in site_dirs))


@lru_cache(maxsize=8)
def _load(site_dirs: tuple[Path, ...]) -> Catalogue:
    signatures: dict[str, Signature] = {}
    problems: list[Problem] = []
    for directory in (SIGNATURES_DIR, *site_dirs):
        if not directory.is_dir():
            problems.append(Problem(directory, 1, "no such directory"))
            continue
        for path in sorted(directory.glob("*.yaml")):
            if path.name == XidPolicy.FILE_NAME:
                continue
            entries, wrong = read_family(path)
            problems.extend(wrong)
            if directory is not SIGNATURES_DIR:  # the built-in ones are all compiled by the tests
                entries, wrong = _usable(entries, path)
                problems.extend(wrong)
            signatures.update({s.id: s for s in entries})
    xid, wrong_xid = XidPolicy.load(site_dirs)
    problems.extend(Problem(path, line, message) for path, line, message in wrong_xid)
    return Catalogue(tuple(signatures.values()), xid, tuple(problems))


def _usable(entries: list[Signature], path: Path) -> tuple[list[Signature], list[Problem]]:
    """Leaves out what the matching engine cannot compile."""
    good, problems = [], []
    for s in entries:
        if reason := why_not(s.pattern):
            problems.append(Problem(path, int(s.where.rpartition(":")[2]), f"{s.id}: pattern: {reason}"))
        else:
            good.append(s)
    return good, problems


def read_family(path: Path) -> tuple[list[Signature], list[Problem]]:
    """The good signatures of one file, and what is wrong with the others."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError) as e:
        return [], [Problem(path, 1, f"cannot be read: {e}")]
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        return [], [Problem(path, mark.line + 1 if mark else 1, f"not YAML: {e}")]
    if not isinstance(root, yaml.MappingNode):
        return [], [Problem(path, 1, "a family needs `family:` and `signatures:`")]
    parts: dict[str, yaml.Node] = {k.value: v for k, v in root.value}
    family_node, list_node = parts.get("family"), parts.get("signatures")
    if not isinstance(family_node, yaml.ScalarNode) or not isinstance(list_node, yaml.SequenceNode):
        return [], [Problem(path, 1, "a family needs `family: NAME` and `signatures: [...]`")]
    signatures: dict[str, Signature] = {}
    problems: list[Problem] = []
    for node in list_node.value:
        line = node.start_mark.line + 1
        raw = _construct(node)
        if not isinstance(raw, dict):
            problems.append(Problem(path, line, "a signature is a mapping"))
            continue
        try:
            signature = Signature.model_validate(
                {**raw, "family": family_node.value, "where": f"{path.name}:{line}"}
            )
        except ValidationError as e:
            for error in e.errors(include_url=False):
                place = str(error["loc"][0]) if error["loc"] else ""
                named = f"{raw.get('id', 'a signature without id')}: {place}: {error['msg']}"
                problems.append(Problem(path, _line_of(node, place) or line, named))
            continue
        if signature.id in signatures:
            problems.append(Problem(path, line, f"{signature.id}: the id is used twice in this file"))
            continue
        signatures[signature.id] = signature
    return list(signatures.values()), problems


def _construct(node: yaml.Node) -> Any:
    """The plain value of a composed node."""
    return SafeConstructor().construct_document(node)


def _line_of(node: yaml.Node, key: str) -> int | None:
    if isinstance(node, yaml.MappingNode):
        for k, _ in node.value:
            if k.value == key:
                return int(k.start_mark.line) + 1
    return None
