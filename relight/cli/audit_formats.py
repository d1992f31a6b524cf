"""The audit trail as a table, as CSV and as an HTML page. Log text in it is shown, never obeyed."""

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape as html_escape
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from relight.audit.record import AuditRecord, RecoveryAudit
from relight.cli.shapes import AuditView
from relight.contracts import Evidence, Source
from relight.wording import collapse, place

COLUMNS = ("at", "workflow", "event", "who", "name", "what", "step", "plan", "text", "evidence")
MAX_QUOTES = 8
"""Quotes of one record on a screen; the other formats have all."""
WHEN = "when (UTC)"

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 sans-serif; margin: 2em; color: #222 }} h2 {{ margin-top: 2em; font-size: 1.1em }}
table {{ border-collapse: collapse; width: 100% }} td, th {{ border-bottom: 1px solid #ddd;
padding: .3em .6em; text-align: left; vertical-align: top }}
.person {{ background: #eef6ff }} .command {{ background: #fff3e0 }}
code {{ white-space: pre-wrap; word-break: break-word }} .dim {{ color: #777 }}
</style></head><body><h1>{title}</h1>
{body}</body></html>
"""


def screen(view: AuditView) -> list[RenderableType]:
    """For a terminal."""
    parts: list[RenderableType] = []
    for monitor, records in _by_monitor(view):
        parts += [f"[bold]monitor[/] {escape(monitor)}", _table(records), ""]
    for audit in view.recoveries:
        source = ", from the archive" if audit.recovery_id in view.from_archive else ""
        parts += [f"[bold]recovery[/] {escape(audit.recovery_id)}{source}: {escape(_ending(audit))}"]
        parts += [_table(audit.records), *_context(view, audit), ""]
    if view.drains:
        parts += ["[bold]drained nodes[/]", _table(view.drains)]
    return parts


def as_csv(view: AuditView) -> str:
    """One line for each record, with a head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in _all(view):
        writer.writerow([_inert(cell) for cell in _cells(record)])
    return out.getvalue()


def as_html(view: AuditView) -> str:
    """A page of its own: no script, nothing fetched."""
    body = []
    for monitor, records in _by_monitor(view):
        body.append(f"<h2>monitor {html_escape(monitor)}</h2>{_html_table(records)}")
    for audit in view.recoveries:
        source = " (from the archive)" if audit.recovery_id in view.from_archive else ""
        head = html_escape(f"recovery {audit.recovery_id}{source}: {_ending(audit)}")
        context = "".join(f"<p>{html_escape(line)}</p>" for line in _context(view, audit))
        body.append(f"<h2>{head}</h2>{_html_table(audit.records)}{context}")
    if view.drains:
        body.append(f"<h2>drained nodes</h2>{_html_table(view.drains)}")
    return _PAGE.format(title=html_escape(f"Audit of {view.target}"), body="\n".join(body))


def _by_monitor(view: AuditView) -> list[tuple[str, list[AuditRecord]]]:
    """The records of each monitor that watched the job, oldest first."""
    return [(name, [*records]) for name, records in groupby(view.monitor, lambda one: one.workflow_id)]


def _ending(audit: RecoveryAudit) -> str:
    if audit.outcome is None:
        return "ended without a result" if audit.ended else "open"
    return f"{audit.outcome.outcome.value}, {audit.outcome.reason}"


def _context(view: AuditView, audit: RecoveryAudit) -> list[str]:
    """Where a reader finds the lines around those of the job's logs that were quoted."""
    quoted = any(one.source is Source.JOB_LOG for record in audit.records for one in record.evidence)
    if not quoted or audit.recovery_id in view.from_archive:
        return []
    # `relight logs JOB` is about the latest recovery of the latest watch.
    last = audit.recovery_id == view.recoveries[-1].recovery_id and audit.monitor_id == view.monitor_id
    latest = last and not view.target.startswith("recover:")
    target = audit.job.attempt.job_id if latest else f"'{audit.recovery_id}'"
    return [f"The lines around those quoted from logs: relight logs {target}"]


def _all(view: AuditView) -> Iterable[AuditRecord]:
    yield from view.monitor
    for audit in view.recoveries:
        yield from audit.records
    yield from view.drains


def _table(records: Sequence[AuditRecord]) -> Table:
    table = Table(WHEN.upper(), "EVENT", "WHO", "WHAT", "TEXT AND EVIDENCE", box=None, pad_edge=False)
    table.columns[-1].overflow = "fold"
    for record in records:
        who = f"{record.who.value} {escape(record.name)}".strip()
        what = f"{record.what} {record.step}".strip()
        lines = [escape(record.text)] if record.text else []
        quotes = _collapsed(record)
        lines += [f"[dim]  {escape(quote)}[/]" for quote in quotes[:MAX_QUOTES]]
        if len(quotes) > MAX_QUOTES:
            lines.append(f"[dim]  ... and {len(quotes) - MAX_QUOTES} more[/]")
        table.add_row(_when(record), str(record.event_id), who, what, "\n".join(lines))
    return table


def _when(record: AuditRecord) -> str:
    """In UTC, which the heading says."""
    return f"{record.at:%Y-%m-%d %H:%M:%S}"


def _quote(one: Evidence) -> str:
    """Its source, where to see it, what it says."""
    return f"{' '.join(filter(None, [one.source.value, one.node, place(one)]))}: {one.text}"


def _collapsed(record: AuditRecord) -> list[str]:
    """The evidence of a record for people: what says the same once."""
    return [
        _quote(each.first) + (f" ({each.more})" if each.more else "") for each in collapse(record.evidence)
    ]


def _cells(record: AuditRecord) -> list[str]:
    return [
        record.at.isoformat(),
        record.workflow_id,
        str(record.event_id),
        record.who.value,
        record.name,
        record.what,
        record.step,
        record.plan_digest,
        record.text,
        " | ".join(map(_quote, record.evidence)),
    ]


def _inert(cell: str) -> str:
    """Spreadsheets compute cells that begin so; log text must not be computed."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t")) else cell


def _html_table(records: Sequence[AuditRecord]) -> str:
    rows = ["<tr><th>" + WHEN + "</th><th>event</th><th>who</th><th>what</th><th>text and evidence</th></tr>"]
    for record in records:
        quotes = "".join(f"<br><code class=dim>{html_escape(quote)}</code>" for quote in _collapsed(record))
        css = {"person": " class=person"}.get(record.who.value, "")
        css = " class=command" if record.command is not None else css
        rows.append(
            f"<tr{css}><td>{_when(record)}</td><td>{record.event_id}</td>"
            f"<td>{html_escape(f'{record.who.value} {record.name}')}</td>"
            f"<td>{html_escape(f'{record.what} {record.step}')}</td>"
            f"<td>{html_escape(record.text)}{quotes}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"
