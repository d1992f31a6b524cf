"""From findings to anomalies: the rules that need several lines."""
# ruff: noqa: E501

import random
from datetime import timedelta

import pytest

from relight.contracts import Anomaly, Cause, Progress, Role, Symptom
from relight.diagnosis import peers, watchdogs
from relight.diagnosis.assemble import Silence, assemble
from relight.diagnosis.findings import Sighting
from relight.diagnosis.names import Names, expand
from tests.relight.diagnosis.making import ATTEMPT, NOW, findings

NODES = ("n1", "n2", "n3")
ECC = "[rank{}]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
LOST = "[rank{}]: ncclRemoteError: A call failed possibly due to a network error\n"


def sightings(log: str, *, per_node: int = 2) -> list[Sighting]:
    return [
        Sighting(finding=f, at=NOW + timedelta(seconds=f.line))
        for f in findings(log, nodes=NODES, per_node=per_node)
    ]


def anomalies(log: str, **more: object) -> list[Anomaly]:
    settings = {
        "attempt": ATTEMPT,
        "now": NOW + timedelta(hours=1),
        "nodes": NODES,
        "tasks_per_node": 2,
        **more,
    }
    return assemble(sightings(log), **settings)  # type: ignore[arg-type]


def root(found: list[Anomaly]) -> Anomaly:
    (one,) = [a for a in found if a.role is Role.ROOT]
    return one


def test_a_cascade_is_one_anomaly_beside_its_root() -> None:
    found = anomalies("".join(LOST.format(r) for r in (0, 1, 2, 4, 5)) + ECC.format(3))
    assert [(a.role, a.cause, a.count) for a in sorted(found, key=lambda a: a.role, reverse=True)] == [
        (Role.ROOT, Cause.GPU_MEMORY_ECC, 1),
        (Role.CASCADE, Cause.NETWORK_FABRIC, 5),
    ]
    assert [s.node for s in root(found).suspects] == ["n2"]
    assert root(found).hold_out


def test_a_cascade_without_a_root_is_the_root() -> None:
    assert root(anomalies(LOST.format(0) + LOST.format(1))).cause is Cause.NETWORK_FABRIC


def test_any_order_gives_the_same_anomalies() -> None:
    seen = sightings("".join(LOST.format(r) for r in range(5)) + ECC.format(3) + ECC.format(2))
    first = assemble(seen, attempt=ATTEMPT, now=NOW + timedelta(hours=1), nodes=NODES)
    for _ in range(10):
        random.Random(2).shuffle(seen)
        assert assemble(seen, attempt=ATTEMPT, now=NOW + timedelta(hours=1), nodes=NODES) == first


def test_the_same_failure_has_the_same_id_later_and_with_more_lines() -> None:
    one = root(anomalies(ECC.format(3)))
    more = assemble(
        sightings(ECC.format(3) + LOST.format(0)), attempt=ATTEMPT, now=NOW + timedelta(hours=2), nodes=NODES
    )
    assert root(more).anomaly_id == one.anomaly_id
    other = ATTEMPT.model_copy(update={"restart_count": 1})
    assert root(anomalies(ECC.format(3), attempt=other)).anomaly_id != one.anomaly_id


def test_what_training_outlived_is_dropped() -> None:
    (seen,) = sightings("[rank3]: RuntimeError: boom\n")
    arguments = {"attempt": ATTEMPT, "now": NOW}
    assert len(assemble([seen], **arguments)) == 1  # type: ignore[arg-type]
    outlived = seen.model_copy(update={"outlived": 2})
    assert assemble([outlived], **arguments) == []  # type: ignore[arg-type]


def test_a_running_attempt_is_not_judged_by_lines_that_end_nothing() -> None:
    log = "n1:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got completion from peer 10.0.0.13<5> with error 12\n"
    assert anomalies(log, ended=False) == []
    assert len(anomalies(log, ended=True)) == 1
    assert len(anomalies(ECC.format(1), ended=False)) == 1


def test_a_silence_is_a_hang_and_evidence_says_why() -> None:
    silence = Silence(NOW, "The last step was 7.")
    alone = root(anomalies("", silence=silence))
    assert (alone.symptom, alone.cause, alone.occurred_at) == (Symptom.HANG, Cause.UNKNOWN, NOW)
    assert "step was 7" in alone.says
    both = anomalies(ECC.format(1), silence=silence, ended=False)
    assert {a.symptom for a in both} == {Symptom.HANG, Symptom.CRASH}


def test_progress_travels_with_the_anomaly() -> None:
    progress = Progress(step=7, at=NOW)
    assert root(anomalies(ECC.format(1), progress=progress)).progress == progress


COMPLETION = "{by}:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got completion from peer {peer}<5> with error 12\n"


def accuse(*pairs: str, before: str = "") -> peers.PeerVerdict:
    log = before + "".join(
        COMPLETION.format(by=by, peer=peer) for by, _, peer in (p.partition(">") for p in pairs)
    )
    return peers.judge(sightings(log))


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ((), peers.PeerVerdict()),
        (("n1>n2",), peers.PeerVerdict()),
        (("n1>n2", "n1>n2"), peers.PeerVerdict()),
        (("n1>n2", "n3>n2"), peers.PeerVerdict(suspect="n2")),
        (("n1>n2", "n2>n1"), peers.PeerVerdict(fabric=True)),
        (("n1>n2", "n3>n2", "n2>n1"), peers.PeerVerdict(fabric=True)),
        (("n1>n2", "n3>n2", "n1>n3", "n2>n3"), peers.PeerVerdict(fabric=True)),
        (("n2>n2", "n1>n2"), peers.PeerVerdict()),
    ],
)
def test_whom_network_errors_accuse(pairs: tuple[str, ...], verdict: peers.PeerVerdict) -> None:
    assert accuse(*pairs) == verdict


def test_a_node_whose_processes_had_failed_is_a_victim() -> None:
    assert accuse("n1>n2", "n3>n2", before="[rank2]: RuntimeError: boom\n").victim == "n2"
    assert accuse("n1>n2", "n3>n2", before="[rank0]: RuntimeError: boom\n").suspect == "n2"


def test_addresses_become_nodes() -> None:
    log = "n2:1:1 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.12<0>\n" + COMPLETION.format(
        by="n1", peer="10.0.0.12"
    )
    seen = sightings(log)
    names = Names(seen, NODES)
    assert names.node("10.0.0.12") == "n2"
    assert names.node("10.0.0.99") is None
    assert names.node("n2.example.org") == "n2"
    assert names.resolve(seen[1]).finding.peer == "n2"


@pytest.mark.parametrize(
    ("text", "nodes"), [("n1", ("n1",)), ("n[1-3]", ("n1", "n2", "n3")), ("n[", ("n[",))]
)
def test_node_lists(text: str, nodes: tuple[str, ...]) -> None:
    assert expand(text) == nodes


DOG = (
    "[rank{r}]:[E519 20:08:00.1 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={s}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds\n"
)


def dogs(*rows: tuple[int, int, str], finished: bool = False) -> watchdogs.WatchdogVerdict:
    found = findings("".join(DOG.format(r=r, s=s, op=op) for r, s, op in rows))
    return watchdogs.judge(found, nodes=NODES, tasks_per_node=2, finished=finished)


def test_all_in_the_same_collective_is_the_transport() -> None:
    verdict = dogs(*((r, 5, "ALLREDUCE") for r in range(6)))
    assert (verdict.cause, verdict.ranks, verdict.ago) == (Cause.NETWORK_FABRIC, (), timedelta(minutes=10))


def test_ranks_that_never_reported_are_looked_at() -> None:
    verdict = dogs(*((r, 5, "ALLREDUCE") for r in (0, 1, 2, 4, 5)))
    assert (verdict.cause, verdict.ranks, verdict.node) == (Cause.UNKNOWN, (3,), None)
    node = dogs(*((r, 5, "ALLREDUCE") for r in (0, 1, 4, 5)))
    assert node.node == "n2"


def test_a_lagging_rank_and_one_that_does_something_else() -> None:
    lag = dogs((0, 5, "ALLREDUCE"), (1, 4, "ALLREDUCE"), (2, 5, "ALLREDUCE"))
    assert (lag.cause, lag.ranks) == (Cause.UNKNOWN, (1,))
    other = dogs((0, 5, "ALLTOALL"), (1, 4, "ALLREDUCE"), (2, 5, "ALLTOALL"))
    assert (other.cause, other.ranks) == (Cause.USER_CODE, (1,))


def test_waiting_after_training_is_the_programs_own_doing() -> None:
    assert dogs((1, 5, "ALLREDUCE"), finished=True).cause is Cause.USER_CODE


def test_a_hang_that_a_watchdog_ended_began_one_timeout_earlier() -> None:
    found = root(anomalies(DOG.format(r=1, s=5, op="ALLREDUCE")))
    assert found.symptom is Symptom.HANG
    assert found.occurred_at == NOW - timedelta(minutes=10)
