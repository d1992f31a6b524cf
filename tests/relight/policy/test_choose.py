"""Which policy and mode a job gets, and why."""

import pytest

from relight.contracts import MayAct, Mode
from relight.policy.choose import JobFacts, NotAllowed, choose
from relight.policy.file import Override, PolicyFile, parse

FILE = parse("""
act_in: [debug, gpu]
allow: [patient]
policies:
  patient: {hang_floor: 10m}
  internal: {signs: 2}
overrides:
  - partition: debug
    policy: patient
    set: {retries_general: 1}
  - user: [anna, ben]
    set: {retries_general: 2}
  - account: paid
    mode: observe
  - account: frozen
    policy: never
""")


@pytest.mark.parametrize(
    ("facts", "asked", "policy", "retries", "mode", "gates"),
    [
        (JobFacts("gpu"), "", "default", 3, Mode.ACT, []),
        (JobFacts("debug"), "", "patient", 1, Mode.ACT, []),
        (JobFacts("debug"), "default", "default", 1, Mode.ACT, []),
        (JobFacts("debug", "anna"), "", "patient", 2, Mode.ACT, []),  # the later one wins
        (JobFacts("gpu", "ben"), "patient", "patient", 2, Mode.ACT, []),
        (JobFacts("debug", "carl"), "never", "never", 3, Mode.ACT, []),
        (JobFacts("gpu", account="frozen"), "patient", "never", 3, Mode.ACT, []),
        (JobFacts("gpu", account="paid"), "", "default", 3, Mode.OBSERVE, ["override"]),
        (JobFacts("cpu"), "", "default", 3, Mode.OBSERVE, ["partition"]),
        (JobFacts("cpu", account="paid"), "", "default", 3, Mode.OBSERVE, ["partition", "override"]),
        (JobFacts(), "", "default", 3, Mode.OBSERVE, ["partition"]),
    ],
)
def test_choosing(
    facts: JobFacts, asked: str, policy: str, retries: int, mode: Mode, gates: list[str]
) -> None:
    chosen = choose(FILE, facts, Mode.ACT, asked)
    assert (chosen.policy.name, chosen.policy.retries_general, chosen.mode) == (policy, retries, mode)
    assert [cap.gate for cap in chosen.caps] == gates
    assert chosen.reasons[0].startswith(f"policy {policy}: ")
    assert choose(FILE, facts, Mode.OBSERVE, asked).mode is Mode.OBSERVE


def test_never_stays_never_whatever_an_override_sets() -> None:
    file = parse("overrides: [{user: a, set: {act: automatic}}]")
    assert choose(file, JobFacts(user="a"), Mode.ACT, "never").policy.act is MayAct.NEVER


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("gone", "there is no policy 'gone'; known policies: default, never, patient"),
        ("internal", "may not choose policy 'internal'; they may choose: default, never, patient"),
    ],
)
def test_what_cannot_be_had(asked: str, says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        choose(FILE, JobFacts(), Mode.ACT, asked)


def test_the_ceiling_of_the_whole_file() -> None:
    chosen = choose(parse("mode: observe"), JobFacts("gpu"), Mode.ACT)
    assert (chosen.mode, [cap.gate for cap in chosen.caps]) == (Mode.OBSERVE, ["mode of the policy file"])
    assert "mode observe, not act: the policy file lets no job act" in chosen.reasons


def test_overrides_that_together_make_no_sense_never_act() -> None:
    """Each alone was checked when the file was read."""
    file = PolicyFile(
        overrides=(
            Override(user=("a",), set={"retries_confirmation": 3}),
            Override(partition=("gpu",), set={"retries_general": 1}),
        )
    )
    chosen = choose(file, JobFacts("gpu", "a"), Mode.ACT)
    assert (chosen.mode, [cap.gate for cap in chosen.caps]) == (Mode.OBSERVE, ["impossible policy"])
    assert choose(file, JobFacts("gpu", "b"), Mode.ACT).mode is Mode.ACT


def test_overrides_that_contradict_each_other_only_together_let_a_job_observe_and_say_so() -> None:
    file = parse("""
overrides:
  - user: anna
    set: {approvals: 2}
  - account: paid
    set: {on_expiry: proceed}
""")
    assert choose(file, JobFacts(user="anna"), Mode.ACT).policy.approvals == 2
    both = choose(file, JobFacts(user="anna", account="paid"), Mode.ACT)
    assert (both.mode, both.policy.approvals) == (Mode.OBSERVE, 1)
    assert both.caps[0].gate == "impossible policy"
    assert "contradict each other" in both.caps[0].why
