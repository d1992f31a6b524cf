"""Relight's mark in a job's comment: which recovery acted on the job, and why it is held.

The comment belongs to the job's user: what is there stays there.
"""

import json
import re
from typing import Any

from relight.contracts import clean_text

MAX_COMMENT = 1024
"""Bytes of a comment that Slurm keeps; it refuses longer ones."""
_PLAIN = re.compile(r"\s*relight-(?:recovery|held)=(?:\"[^\"]*\"|\S*)")


def tagged(comment: str, recovery_id: str, held: str = "") -> str:
    """The comment with this mark in it, in place of an earlier one.

    A JSON comment stays JSON: the mark goes under its key `relight` if the user has one, else under keys of
    its own, since a key `relight` is how a user asks for relight. Any other text gets the mark appended. Of a
    comment that has no room for the mark, the end is cut off (it may be JSON no more).

    Args:
        comment: the job's comment now.
        recovery_id: the recovery that acts.
        held: why the job is held, for people; empty: it is not held, or not for long.
    """
    held = clean_text(held, 200)
    text = _tagged(comment, recovery_id, held)
    if len(text.encode()) > MAX_COMMENT:
        text = _tagged(comment, recovery_id, "")
    if len(text.encode()) > MAX_COMMENT:
        # The mark is how a later try knows its own doing: the end of a long comment gives way to it.
        room = MAX_COMMENT - len(_tagged("", recovery_id, "").encode()) - 1
        text = _tagged(_PLAIN.sub("", comment).encode()[:room].decode(errors="ignore"), recovery_id, "")
    return text


def _tagged(comment: str, recovery_id: str, held: str) -> str:
    content = _object(comment)
    if content is None:
        mark = f"relight-recovery={recovery_id}"
        if held:
            mark += ' relight-held="{}"'.format(held.replace('"', "'"))
        return f"{_PLAIN.sub('', comment)} {mark}".strip()
    inner = content.get("relight")
    if isinstance(inner, dict):
        content["relight"] = _with(inner, "recovery", "held", recovery_id, held)
    else:
        content = _with(content, "relight-recovery", "relight-held", recovery_id, held)
    return json.dumps(content, ensure_ascii=False)


def _with(content: dict[str, Any], key: str, held_key: str, recovery_id: str, held: str) -> dict[str, Any]:
    kept = {k: v for k, v in content.items() if k not in (key, held_key)}
    return kept | {key: recovery_id} | ({held_key: held} if held else {})


def _object(comment: str) -> dict[str, Any] | None:
    if not comment.lstrip().startswith("{"):
        return None
    try:
        content = json.loads(comment)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
