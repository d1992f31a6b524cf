"""Whose drain it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, NodeInfo
from relight.contracts.node_drain import NodeHow
from relight.policy.node_drain import MAX_REASON, is_idle, reason_for, stands

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
