"""Whose drain it is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, NodeInfo
from relight.contracts.node_drain import NodeHow, NodeLook
from relight.policy.node_drain import MAX_REASON, is_idle, reason_for, stands, was_forgotten

RECOVERY = "recover:lab:42:0:abcdef"
OURS = reason_for(Cause.NVLINK, RECOVERY, "link 3 is down")


def node(state: str = "IDLE", *flags: str, reason: str = "", user: str = "") -> NodeInfo:
    return NodeInfo(name="n1", state=state, flags=flags, reason=reason, reason_user=user)


@pytest.mark.parametrize(
    ("info", "how"),
    [
        (None, NodeHow.UNKNOWN),
        (node(), NodeHow.FREE),
        (node("ALLOCATED"), NodeHow.FREE),
        (node("MIXED", "COMPLETING"), NodeHow.FREE),
        (node("DOWN"), NodeHow.LOST),
        (node("DOWN", "NOT_RESPONDING", reason="Not responding"), NodeHow.LOST),
        (node("IDLE", "DRAIN", reason=OURS), NodeHow.OURS),
        (node("ALLOCATED", "DRAIN", reason=OURS), NodeHow.OURS),
        (node("DOWN", "DRAIN", reason=OURS), NodeHow.OURS),
        (node("IDLE", "DRAIN", reason=OURS.replace("42", "43")), NodeHow.ANOTHER),
        (node("IDLE", "DRAIN", reason="relight: nvlink"), NodeHow.ANOTHER),
        (node("IDLE", "DRAIN", reason="bad fan", user="ada"), NodeHow.OTHERS),
        (node("IDLE", "DRAIN", reason=""), NodeHow.OTHERS),
        (node("IDLE", "DRAIN", reason=f"see relight: [{RECOVERY}]"), NodeHow.OTHERS),
        (node("IDLE", "DRAIN", reason="Kill task failed"), NodeHow.KILL_FAILED),
    ],
)
def test_how_a_node_stands(info: NodeInfo | None, how: NodeHow) -> None:
    assert stands(info, RECOVERY) is how


@given(
    st.text(max_size=2000), st.sampled_from([RECOVERY, f"recover:{'c' * 64}:123456789_1000:12:{'a' * 16}"])
)
def test_any_text_in_the_reason_leaves_it_ours_bounded_and_on_one_line(text: str, recovery: str) -> None:
    reason = reason_for(Cause.GPU_FALLEN_OFF_BUS, recovery, text)
    assert len(reason) <= MAX_REASON
    assert "\n" not in reason
    assert stands(node("IDLE", "DRAIN", reason=reason), recovery) is NodeHow.OURS


@pytest.mark.parametrize(
    ("info", "idle"),
    [
        (node("IDLE", "DRAIN"), True),
        (node("DOWN", "DRAIN"), True),
        (node("ALLOCATED", "DRAIN"), False),
        (node("MIXED", "DRAIN"), False),
        (node("IDLE", "DRAIN", "COMPLETING"), False),
    ],
)
def test_draining_is_not_drained(info: NodeInfo, idle: bool) -> None:
    assert is_idle(info) is idle


DRAINED_AT = datetime(2026, 12, 2, 5, 0, 0, 500_000, UTC)


@pytest.mark.parametrize(
    ("how", "since", "seen", "forgotten"),
    [
        (NodeHow.FREE, 3, None, True),
        (NodeHow.FREE, 3600, None, True),  # it was away for an hour
        (NodeHow.FREE, 3, 1, True),  # seen, but not yet saved
        (NodeHow.FREE, 3600, 15, False),  # it was saved: somebody gave the node back
        (NodeHow.FREE, -0.5, None, True),  # whole seconds
        (NodeHow.FREE, -60, None, False),  # it was not started again
        (NodeHow.FREE, None, None, False),  # not known
        (NodeHow.OURS, 3, None, False),
        (NodeHow.OTHERS, 3, None, False),
        (NodeHow.LOST, 3, None, False),
    ],
)
def test_a_drain_that_the_scheduler_forgot(
    how: NodeHow, since: float | None, seen: float | None, forgotten: bool
) -> None:
    def at(seconds: float | None) -> datetime | None:
        return None if seconds is None else DRAINED_AT + timedelta(seconds=seconds)

    assert was_forgotten(NodeLook(how=how, scheduler_since=at(since)), DRAINED_AT, at(seen)) is forgotten
