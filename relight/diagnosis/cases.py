"""Labelled cases: rows of logs in, one prediction a row out, in the format of the corpus."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.offline import LogInput, LogKind, Report, investigate

NOW = datetime(2026, 12, 31, tzinfo=UTC)
"""The time that rows are judged at: rows say no more than how long the job was silent."""


def read_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of a JSON-lines file.

    Raises:
        ValueError: a line is no row; the message names it.
    """
    for n, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            raise ValueError(f"line {n} is not JSON: {e}") from e
        if not isinstance(row, dict) or "id" not in row:
            raise ValueError(f"line {n} is no row: a row is an object with an `id`")
        yield row


def inputs_of(row: dict[str, Any]) -> list[LogInput]:
    """The files of a row. Their names are their numbers."""
    parts = row.get("inputs") or [{"kind": "job_log", "node": None, "lines": row.get("lines", [])}]
    return [
        LogInput(LogKind(p["kind"]), str(n), [("\n".join(p["lines"]) + "\n").encode()], p.get("node"))
        for n, p in enumerate(parts)
    ]


def judge(row: dict[str, Any], catalogue: Catalogue) -> Report:
    """The report on a row."""
    silent = row.get("silent_for_s")
    return investigate(
        inputs_of(row),
        catalogue,
        now=NOW,
        still_running=silent is not None,
        silent_for=timedelta(seconds=silent) if silent is not None else None,
    )


def predict(row: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """The prediction on a row: a case, or a progress row (which has `lines` only)."""
    report = judge(row, catalogue)
    if "inputs" not in row:
        return {"id": row["id"], "step": report.last_step, "throughput": report.throughput}
    first = report.first_error
    return {
        "id": row["id"],
        "symptom": report.symptom.value,
        "cause": report.cause.value,
        "blame_nodes": list(report.blame_nodes),
        "action": report.action.value,
        "retryable": report.retryable,
        "first_error": [int(first.file), first.line] if first is not None else None,
        "last_step": report.last_step,
    }
