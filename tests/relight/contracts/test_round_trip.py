"""Every contract survives JSON, in any values, and ignores what a newer version added."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.contracts import (
    Anomaly,
    Attempt,
    Diagnosis,
    Evidence,
    JobInfo,
    Model,
    NodeInfo,
    Plan,
    Policy,
    Progress,
    RecoveryOutcome,
    TrainingJob,
    guard,
    messages,
    steps,
)
from relight.contracts.policy import CheckpointLayout

UTC_TIMES = st.datetimes(timezones=st.just(UTC))


def _contracts() -> list[type[Model]]:
    found = {
        Anomaly, Attempt, Diagnosis, Evidence, JobInfo, NodeInfo, Plan, Policy, RecoveryOutcome, TrainingJob,
    }  # fmt: skip
    for module in (guard, messages, steps):
        found |= {
            x
            for x in vars(module).values()
            if isinstance(x, type) and issubclass(x, Model) and x is not Model
        }
    return sorted(found, key=lambda c: c.__name__)


@pytest.fixture(scope="module", autouse=True)
def _strategies() -> None:
    st.register_type_strategy(datetime, UTC_TIMES)
    st.register_type_strategy(str, st.text(max_size=40))
    st.register_type_strategy(float, st.floats(allow_nan=False))
    layouts = st.builds(CheckpointLayout, glob=st.just("ckpt-*"), step=st.just(r"ckpt-(\d+)"))
    st.register_type_strategy(CheckpointLayout, layouts)
    patterns = st.sampled_from([(), (r"step (?P<step>\d+)",)])
    # Hypothesis knows neither factories of defaults nor bounds of what may be None.
    sizes = st.sampled_from([None, 1, 1000])
    st.register_type_strategy(guard.GuardLimits, st.builds(guard.GuardLimits, cluster_nodes=sizes))
    names = st.text(min_size=1, max_size=40)
    nodes = st.lists(names, min_size=1, max_size=3)
    st.register_type_strategy(
        guard.NodeReport, st.builds(guard.NodeReport, nodes=nodes, partition_nodes=sizes)
    )
    counts = st.builds(guard.GuardCounts, granted=st.integers())
    states = st.builds(guard.GuardState, counts=counts)
    st.register_type_strategy(guard.GuardState, states)
    st.register_type_strategy(guard.GuardInput, st.builds(guard.GuardInput, state=states))
    st.register_type_strategy(guard.GuardStatus, st.builds(guard.GuardStatus, counts=counts))
    st.register_type_strategy(Policy, st.builds(Policy, step_patterns=patterns))


@pytest.mark.parametrize("contract", _contracts(), ids=lambda c: c.__name__)
def test_json_round_trip(contract: type[Model]) -> None:
    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.from_type(contract))
    def check(value: Model) -> None:
        text = value.model_dump_json()
        again = contract.model_validate_json(text)
        assert again == value
        newer = json.loads(text) | {"a_field_of_a_later_version": 1}
        assert contract.model_validate_json(json.dumps(newer)) == value

    check()


@pytest.mark.parametrize("contract", _contracts(), ids=lambda c: c.__name__)
def test_is_frozen_and_documented(contract: type[Model]) -> None:
    changed_in_place = {guard.GuardState, guard.GuardCounts}
    assert contract.model_config["frozen"] is (contract not in changed_in_place)
    assert contract.__doc__


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf"), 1.5])
def test_a_loss_that_is_no_number_travels(loss: float) -> None:
    progress = Progress(step=1, at=datetime(2026, 1, 1, tzinfo=UTC), loss=loss)
    encoded = pydantic_data_converter.payload_converter.to_payloads([progress])
    (again,) = pydantic_data_converter.payload_converter.from_payloads(encoded, [Progress])
    assert repr(again.loss) == repr(loss)
