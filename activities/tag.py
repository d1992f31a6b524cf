"""Relight's mark in a job's comment: which recovery acted on the job, and why it is held.

The comment belongs to the job's user: what is there stays there.
"""

import json
import re
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from relight.contracts import clean_text
from relight.policy.holds import Tag

MAX_COMMENT = 1024
"""Bytes of a comment that Slurm keeps; it refuses longer ones."""
_PLAIN = re.compile(r"\s*relight-(?:recovery|held-until|held-for|held)=(?:\"[^\"]*\"|\S*)")
_FIELD = re.compile(r"(?:^|\s)relight-(recovery|held-until|held-for|held)=(?:\"([^\"]*)\"|(\S*))")
_KEYS = ("recovery", "held", "held_until", "held_for")
"""Under the key `relight`; elsewhere `relight-recovery` and so on, with a dash."""
_PERSON = "person"


def tagged(
    comment: str, recovery_id: str, held: str = "", until: datetime | None = None, *, person: bool = False
) -> str:
    """The comment with this mark in it, in place of an earlier one.

    A JSON comment stays JSON: the mark goes under its key `relight` if the user has one, else under keys of
    its own, since a key `relight` is how a user asks for relight. Any other text gets the mark appended. Of a
    comment that has no room for the mark, the end is cut off (it may be JSON no more).

    Args:
        comment: the job's comment now.
        recovery_id: the recovery that acts.
        held: why the job is held, for people; empty: it is not held, or not for long.
        until: when relight will have ended the hold; not written without `held`.
        person: relight will not end it by itself.
    """
    fields = {"recovery": recovery_id, "held": clean_text(held, 200)}
    if held and until is not None:
        fields["held_until"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    if held and person:
        fields["held_for"] = _PERSON
    text = _tagged(comment, fields)
    if len(text.encode()) > MAX_COMMENT:  # a deadline is shorter than a reason, and programs read it
        text = _tagged(comment, fields | {"held": ""})
    if len(text.encode()) > MAX_COMMENT:
        text = _tagged(comment, {"recovery": recovery_id})
    if len(text.encode()) > MAX_COMMENT:
        # The mark is how a later try knows its own doing: the end of a long comment gives way to it.
        bare = _tagged("", {"recovery": recovery_id})
        room = MAX_COMMENT - len(bare.encode()) - 1
        text = f"{_PLAIN.sub('', comment).encode()[:room].decode(errors='ignore')} {bare}"
    return text


def read_tag(comment: str) -> Tag | None:
    """Relight's mark in a comment; None where there is none, or one that cannot be read."""
    content = _object(comment)
    if content is None:
        found = {m[1].replace("-", "_"): m[2] or m[3] or "" for m in _FIELD.finditer(comment)}
    else:
        inner = content.get("relight")
        names = (
            {key: key for key in _KEYS} if isinstance(inner, dict) else {key: _dashed(key) for key in _KEYS}
        )
        source = inner if isinstance(inner, dict) else content
        found = {key: source[name] for key, name in names.items() if name in source}
    try:
        return Tag(
            recovery_id=found["recovery"],
            held=found.get("held", ""),
            until=found.get("held_until"),
            person=found.get("held_for") == _PERSON,
        )
    except (KeyError, ValidationError):
        return None


def _tagged(comment: str, fields: dict[str, str]) -> str:
    content = _object(comment)
    if content is None:
        marks = [_plain(key, value) for key, value in fields.items() if value]
        return f"{_PLAIN.sub('', comment)} {' '.join(marks)}".strip()
    inner = content.get("relight")
    if isinstance(inner, dict):
        content["relight"] = _with(inner, {key: key for key in _KEYS}, fields)
    else:
        content = _with(content, {key: _dashed(key) for key in _KEYS}, fields)
    return json.dumps(content, ensure_ascii=False)


def _dashed(key: str) -> str:
    return f"relight-{key.replace('_', '-')}"


def _plain(key: str, value: str) -> str:
    quoted = '"{}"'.format(value.replace('"', "'")) if key == "held" else value
    return f"{_dashed(key)}={quoted}"


def _with(content: dict[str, Any], names: dict[str, str], fields: dict[str, str]) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key not in names.values()}
    return kept | {names[key]: value for key, value in fields.items() if value}


def _object(comment: str) -> dict[str, Any] | None:
    if not comment.lstrip().startswith("{"):
        return None
    try:
        content = json.loads(comment)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
