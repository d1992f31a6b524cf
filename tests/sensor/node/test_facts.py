"""The spool: facts wait in it, bounded, for whoever comes to take them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relight.contracts import Cause, Role, Source, Symptom
from relight.diagnosis.findings import Finding
from sensor.node.facts import Fact, Spool
from sensor.node.repeats import MOST_KINDS, Repeats

NOW = datetime(2026, 12, 2, 10, 0, tzinfo=UTC)


def fact(signature: str = "kernel.xid-79", role: Role = Role.ROOT, **more: Any) -> Fact:
    finding = Finding(
        signature=signature,
        role=role,
        symptom=Symptom.CRASH,
        cause=Cause.GPU_FALLEN_OFF_BUS,
        file="/dev/kmsg",
        line=1,
        offset=1,
        text="text",
        node="node01",
        gpu="0000:3b:00",
        source=Source.KERNEL,
        hold_out=True,
        key="kernel.xid|79",
        says="The GPU no longer answers on PCIe.",
    )
    return Fact(**{"finding": finding, "at": NOW, "where": f"kmsg:{signature}", **more})


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool", most=5)
    spool.open()
    return spool


def signatures(spool: Spool) -> list[str]:
    return [fact.finding.signature for _, fact in spool.waiting()]


def test_facts_come_out_as_they_went_in_also_for_another_process(spool: Spool) -> None:
    facts = [fact(f"s{n}", count=n + 1, job_id="7") for n in range(3)]
    for one in facts:
        assert spool.put(one) == 0
    other = Spool(spool.directory)
    assert [f for _, f in other.waiting()] == facts
    other.remove(other.waiting()[0][0])
    assert signatures(spool) == ["s1", "s2"]
    again = Spool(spool.directory)
    again.open()
    again.put(fact("s3"))
    assert signatures(again) == ["s1", "s2", "s3"]
    assert len(again) == 3


def test_a_full_spool_gives_up_context_first_and_then_the_latest(spool: Spool) -> None:
    spool.put(fact("context", Role.CONTEXT))
    for n in range(4):
        spool.put(fact(f"s{n}"))
    assert spool.put(fact("s4")) == 1
    assert signatures(spool) == ["s0", "s1", "s2", "s3", "s4"]
    assert spool.put(fact("s5")) == 1
    assert signatures(spool) == ["s0", "s1", "s2", "s3", "s5"]


def test_what_cannot_be_read_is_thrown_away(spool: Spool) -> None:
    spool.put(fact("good"))
    (spool.directory / "000000000009-fault.json").write_text('{"finding": 1}')
    assert signatures(spool) == ["good"]
    assert len(spool) == 1


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(OSError):
        Spool(tmp_path / "spool").open()


def test_as_many_kinds_are_remembered_as_the_bound_says() -> None:
    repeats = Repeats()
    for n in range(MOST_KINDS + 1):
        assert repeats.let_through(fact(f"s{n}"), 0) is not None
    assert repeats.let_through(fact("s1"), 1) is None
    assert repeats.let_through(fact("s0"), 1) is not None  # forgotten, so it is news
