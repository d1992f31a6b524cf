"""The audit trail as people read it."""

import csv
import io
import re
from typing import Any

from rich.console import Console

from relight.audit.record import AuditRecord, Who
from relight.cli.audit_formats import as_csv, as_html, screen
from relight.cli.shapes import AuditView
from relight.contracts import Evidence, Source
from tests.relight.audit.making import T0, an_audit

RANKS = tuple(
    Evidence(
        source=Source.JOB_LOG, observed_at=T0, text=f"[rank{n}]: RuntimeError: boom", rank=n,
        where=f"/logs/a.log:{n * 100}", line=n + 1, signature="python.exception",
    )
    for n in range(8)
)  # fmt: skip
KERNEL = Evidence(source=Source.KERNEL, observed_at=T0, text="NVRM: Xid 79", node="n1", where="kmsg:3f2a:77")


def view(*evidence: Evidence, **fields: Any) -> AuditView:
    record = AuditRecord(
        at=T0, who=Who.RELIGHT, what="diagnosed", text="crash", evidence=evidence,
        workflow_id="recover:lab:1:0:a", event_id=1,
    )  # fmt: skip
    return AuditView(**{"target": "1", "recoveries": (an_audit(records=(record,)),), **fields})


def shown(what: AuditView) -> str:
    console = Console(width=240, highlight=False)
    with console.capture() as capture:
        for part in screen(what):
            console.print(part)
    return capture.get()


def test_the_zone_is_said_once() -> None:
    text = shown(view(*RANKS))
    assert re.search(r"^WHEN \(UTC\) ", text, re.MULTILINE)
    assert re.search(r"^2026-12-02 03:00:00 +1 ", text, re.MULTILINE)
    assert "<th>when (UTC)</th>" in as_html(view(*RANKS))


def test_places_are_lines_and_alike_lines_stand_once() -> None:
    told = "job_log /logs/a.log:1: [rank0]: RuntimeError: boom (and 7 alike on ranks 1-7)"
    kernel = "kernel n1 kernel message 77 of 2026-12-02 03:00:00 UTC, read from /dev/kmsg: NVRM: Xid 79"
    for text in (shown(view(*RANKS, KERNEL)), as_html(view(*RANKS, KERNEL))):
        assert told in text
        assert kernel in text
        assert "rank3" not in text
    [row] = csv.DictReader(io.StringIO(as_csv(view(*RANKS))))
    assert row["evidence"].count("boom") == 8


def test_it_says_where_the_lines_around_quotes_are() -> None:
    assert "relight logs 1\n" in shown(view(*RANKS))
    assert "relight logs 'recover:lab:1:0:a'" in shown(view(*RANKS, target="recover:lab:1:0:a"))
    assert "relight logs 1</p>" in as_html(view(*RANKS))
    assert "relight logs" not in shown(view(KERNEL)), "nothing was quoted from a log"
    assert "relight logs" not in shown(view(*RANKS, from_archive=("recover:lab:1:0:a",))), "it asks Temporal"
