"""A healthy day: warnings, retries, NCCL's chatter, pauses, saves and recompilations are no anomaly.

Scaled down for every run; `RELIGHT_HEALTHY_MEGABYTES=1000` reads the whole day.
"""

import os
from datetime import timedelta

import pytest

from bench import healthy
from relight.contracts import Cause
from relight.diagnosis.findings import Finding
from relight.diagnosis.offline import LogInput, LogKind, investigate
from relight.diagnosis.reader import LogReader
from relight.diagnosis.trail import Trail
from tests.relight.diagnosis.making import CATALOGUE, NOW, findings

MEGABYTES = int(os.environ.get("RELIGHT_HEALTHY_MEGABYTES", "15"))
SHARES = {"titan": 0.4, "megatron": 0.2, "maxtext": 0.2, "huggingface": 0.1, "lightning": 0.1}


@pytest.mark.timeout(120 + 2 * MEGABYTES)
@pytest.mark.parametrize("framework", sorted(healthy.FRAMEWORKS))
def test_a_healthy_log_has_no_anomaly(framework: str) -> None:
    size = int(MEGABYTES * 1_000_000 * SHARES[framework])
    report = investigate(
        [LogInput(LogKind.JOB_LOG, framework, healthy.log(framework, size))], CATALOGUE, now=NOW
    )
    assert report.cause is Cause.HEALTHY, (report.explanation, report.evidence)
    assert report.last_step is not None
    assert report.last_step > 2
    assert not report.blind


def test_the_shares_are_whole() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    assert set(SHARES) == set(healthy.FRAMEWORKS)


def test_a_fault_in_a_healthy_log_is_seen() -> None:
    """The log is read for faults at all: one line at its end is found."""
    pieces = [
        *healthy.log("megatron", 300_000),
        b"[rank7]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    ]
    report = investigate([LogInput(LogKind.JOB_LOG, "a", pieces)], CATALOGUE, now=NOW)
    assert report.cause is Cause.GPU_MEMORY_ECC


def test_noise_yields_no_finding_that_could_act() -> None:
    found = findings(b"".join(healthy.log("megatron", 500_000, noise=400)))
    assert {f.signature for f in found if isinstance(f, Finding) and f.role != "context"} == set()


@pytest.mark.timeout(120 + 2 * MEGABYTES)
@pytest.mark.parametrize("framework", sorted(healthy.FRAMEWORKS))
def test_at_no_moment_does_a_healthy_log_give_a_reason_to_speak(framework: str) -> None:
    """As a sensor reads it: what looks bad for a moment has to pass, too."""
    size = int(MEGABYTES * 1_000_000 * SHARES[framework] / 3)
    reader, trail, steps = LogReader(CATALOGUE, framework), Trail(live=True), 0
    at = NOW
    for piece in healthy.log(framework, size):
        for event in reader.feed(piece):
            at = getattr(event, "logged_at", None) or at + timedelta(milliseconds=10)
            if trail.add(event, at):
                steps += 1
                assert trail.numbers.divergence() is None, event
                assert trail.pace.slowdown() is None, event
        assert not [s for s in trail.sightings if s.finding.ends_rank and s.outlived < 2]
    assert steps > 2
