"""How evidence is put for people."""

from datetime import UTC, datetime

import pytest

from relight.contracts import Cause, Evidence, Source
from relight.wording import cause_of, collapse, place

AT = datetime(2026, 12, 3, 5, 10, 11, tzinfo=UTC)


def said(
    text: str = "boom",
    source: Source = Source.JOB_LOG,
    where: str = "",
    line: int | None = None,
    rank: int | None = None,
    node: str | None = None,
    signature: str = "python.exception",
) -> Evidence:
    return Evidence(
        source=source, observed_at=AT, text=text, where=where, line=line, rank=rank, node=node,
        signature=signature,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (said(where="/logs/a.log:48213", line=17), "/logs/a.log:17"),
        (said(where="/logs/a.log:48213"), "/logs/a.log, byte 48213"),
        (said(where="/logs/a:1.log:48213", line=17), "/logs/a:1.log:17"),
        (said(source=Source.KERNEL, where="/var/log/kern.log:64768:42:9000", line=3), "/var/log/kern.log:3"),
        (said(source=Source.KERNEL, where="/var/log/kern.log:64768:42:9000"), "/var/log/kern.log, byte 9000"),
        (said(source=Source.KERNEL, where="dmesg.txt:9000", line=3), "dmesg.txt:3"),
        (
            said(source=Source.KERNEL, where="kmsg:3f2a1b0c:1234"),
            "kernel message 1234 of 2026-12-03 05:10:11 UTC, read from /dev/kmsg",
        ),
        (
            said(source=Source.NVML, where="nvml:xid-79:2026-12-03T05:10:11+00:00"),
            "NVML, at 2026-12-03 05:10:11 UTC",
        ),
        (said(source=Source.SCHEDULER, where="node state"), "node state"),
        (said(source=Source.PROMETHEUS, where="sum(rate(x[5m])):1"), "sum(rate(x[5m])):1"),
        (said(source=Source.JOB_LOG, where="/checkpoints"), "/checkpoints"),
        (said(where=""), ""),
    ],
)
def test_a_place_is_a_file_and_a_line_where_there_is_one(evidence: Evidence, words: str) -> None:
    assert place(evidence) == words


def test_how_sure_relight_is_of_an_unknown_cause_is_not_said() -> None:
    assert cause_of(Cause.UNKNOWN, 0.3) == "cause unknown"
    assert cause_of(Cause.STORAGE, 0.7) == "cause storage (70% sure)"


def test_ranks_that_print_the_same_error_are_read_once() -> None:
    ranks = [
        said(f"[rank{n}]: RuntimeError: boom at 0x7f{n:04x} after {n}.25 s (pid {4000 + n})", rank=n)
        for n in range(8)
    ]
    other = said("OSError: no space left on device", rank=3)
    first, second = collapse([*ranks[:4], other, *ranks[4:]])
    assert (first.first, first.others, first.more) == (
        ranks[0], tuple(ranks[1:]), "and 7 alike on ranks 1-7",
    )  # fmt: skip
    assert (second.first, second.more) == (other, "")


def test_nodes_that_say_the_same_are_read_once() -> None:
    nodes = [
        said(f"node n{n} does not answer", Source.SCHEDULER, "node state", node=f"n{n}", signature="")
        for n in range(1, 5)
    ]
    (only,) = collapse(nodes)
    assert only.more == "and 3 alike on n[2-4]"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (said("Xid (PCI:0000:3b:00): 79, GPU fell off"), said("Xid (PCI:0000:3b:00): 48, GPU fell off")),
        (said("exit code 1", rank=1), said("exit code 137", rank=2)),
        (said("x", signature="a"), said("x", signature="b")),
        (said("x"), said("x", Source.KERNEL)),
        (said("x on node n1", node="n1"), said("x on node n10", node="n1")),
    ],
)
def test_what_says_something_else_is_kept_apart(a: Evidence, b: Evidence) -> None:
    assert len(collapse([a, b])) == 2
