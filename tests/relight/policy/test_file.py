"""The policy file: what it may say, and that all that is wrong is told at once, with its place."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, CauseRule, Isolation, MayAct, Mode, Policy
from relight.policy.file import NEVER, PolicyFile, PolicyFileError, apply, parse, schema
from relight.policy.sense import may_ever_act

FULL = """
mode: act
act_in: [debug, 7]
allow: patient
observe: [79, no-progress, nccl.timeout, 63]
policies:
  default:
    hang_floor: 2m
  patient:
    hang_floor: 1h30m
    cool_down: 90
    isolation: exclude
    causes:
      nvlink: {act: approval, cool_down: 1d}
  plain:
overrides:
  - partition: debug
    user: [anna, ben]
    policy: patient
  - account: ml
    mode: observe
    set:
      retries_general: 1
      causes: {nvlink: {signs: 2}, storage: {act: never}}
"""


def problems(text: str, taken: tuple[str, ...] = ()) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyFileError) as raised:
        parse(text, taken=taken)
    return [(p.line, p.key, p.message) for p in raised.value.problems]


def test_a_full_file() -> None:
    file = parse(FULL)
    assert (file.mode, file.act_in) == (Mode.ACT, ("debug", "7"))
    assert file.observe == ("xid-79", "no-progress", "nccl.timeout", "xid-63")
    assert file.allowed == ("default", "never", "patient")
    assert file.names == ("default", "never", "patient", "plain")
    patient = file.policy("patient")
    assert patient.name == "patient"
    assert (patient.hang_floor, patient.cool_down) == (timedelta(minutes=90), timedelta(seconds=90))
    assert patient.isolation is Isolation.EXCLUDE
    assert patient.causes == {Cause.NVLINK: CauseRule(act=MayAct.APPROVAL, cool_down=timedelta(days=1))}
    assert patient.observe_only == file.observe
    assert file.policy("plain") == Policy(name="plain", observe_only=file.observe)
    assert file.policy("default").hang_floor == timedelta(minutes=2)
    first, second = file.overrides
    assert (first.user, first.policy, first.label()) == (
        ("anna", "ben"), "patient", "partition debug, user anna or ben",
    )  # fmt: skip
    assert (second.mode, second.set["retries_general"]) == (Mode.OBSERVE, 1)


def test_an_empty_file_changes_nothing() -> None:
    for text in ("", "{}", "# nothing yet\n"):
        assert parse(text) == PolicyFile()
    assert PolicyFile().policy("default") == Policy()
    assert not may_ever_act(PolicyFile().policy(NEVER))


def test_rules_for_causes_are_merged_cause_by_cause() -> None:
    file = parse(FULL)
    made = apply(file.policy("patient"), file.overrides[1].set)
    assert made.causes == {
        Cause.NVLINK: CauseRule(act=MayAct.APPROVAL, cool_down=timedelta(days=1), signs=2),
        Cause.STORAGE: CauseRule(act=MayAct.NEVER),
    }
    assert (made.retries_general, made.hang_floor) == (1, timedelta(minutes=90))


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("[]", 1, "", "a mapping of act_in, allow"),
        ("a: {", 1, "", "not YAML"),
        ("\n\ncolour: red", 3, "colour", "no such key; known: act_in, allow, mode"),
        ("mode: act\nmode: observe", 2, "mode", "twice; first in line 1"),
        ("mode: maybe", 1, "mode", "'observe' or 'act' (it is 'maybe')"),
        ("observe: &x [1]\nallow: *x", 2, "allow", "anchors and aliases"),
        ("mode: !!python/name:os.system x", 1, "mode", "cannot be read"),
        ("? [a]\n: 1", 1, "", "a key is a text"),
        ("policies: [a]", 1, "policies", "a mapping from names"),
        ("policies:\n  never: {}", 2, "policies.never", "built in"),
        ("policies:\n  p: 3", 2, "policies.p", "a mapping of act, approval_deadline"),
        ("policies:\n  p:\n    name: q", 3, "policies.p.name", "it is the key"),
        ("policies:\n  p:\n    observe_only: [a]", 3, "policies.p.observe_only", "at the top"),
        ("policies:\n  p:\n    signs: 1\n    hang_flor: 3s", 4, "policies.p.hang_flor", "no such key"),
        ("policies:\n  '': {}", 2, "policies.", "needs a name"),
        ("policies:\n  p: {hang_factor: .inf}", 2, "policies.p.hang_factor", "finite"),
        ("policies:\n  p: {hang_floor: 1:30}", 2, "policies.p.hang_floor", "not a duration"),
        ("policies:\n  p: {poll: soon}", 2, "policies.p.poll", "not a duration"),
        ("policies:\n  p: {signs: 6}", 2, "policies.p.signs", "less than or equal to 5 (it is 6)"),
        ("policies:\n  p:\n    causes:\n      rain: {act: never}", 4, "policies.p.causes.rain", "'nvlink'"),
        ("policies:\n  p: {causes: {nvlink: {act: x}}}", 2, "policies.p.causes.nvlink.act", "automatic"),
        ("policies:\n  p: {causes: {nvlink: {colour: x}}}", 2,
         "policies.p.causes.nvlink.colour", "no such key"),
        ("policies:\n  p: {checkpoint_layout: {}}", 2, "policies.p.checkpoint_layout.glob", "required"),
        ("policies:\n  p: {step_patterns: ['(x)']}", 2, "policies.p.step_patterns", "needs a group"),
        ("allow: [gone]", 1, "allow[1]", "no policy 'gone'; known: default, never"),
        ("mode: observe\nact_in: [gpu]", 2, "act_in", "nothing acts"),
        ("observe: [79]\npromote: [xid-79]", 2, "promote[1]", "either counts or acts"),
        ("overrides: {a: 1}", 1, "overrides", "a list"),
        ("overrides: [3]", 1, "overrides[1]", "a mapping of account"),
        ("overrides:\n  - mode: observe", 2, "overrides[1]", "it says for nobody"),
        ("overrides:\n  - user: a", 2, "overrides[1]", "it changes nothing"),
        ("overrides:\n  - user: a\n    policy: gone", 3, "overrides[1].policy", "no policy 'gone'"),
        ("overrides:\n  - user: a\n    mode: act", 3, "overrides[1].mode", "only lower"),
        ("overrides:\n  - user: a\n    set: {signs: x}", 3, "overrides[1].set.signs", "integer"),
        ("overrides:\n  - user: a\n    set: {name: x}", 3, "overrides[1].set.name", "not here"),
        # Each value is allowed by itself, and together they are not:
        ("policies:\n  p: {verify_window: 0}", 2, "policies.p.verify_window", "no attempt could prove"),
        ("policies:\n  p: {retries_confirmation: 4}", 2, "policies.p.retries_general", "less than"),
        ("policies:\n  p: {signs_to_drain: 5}", 2, "policies.p.signs_to_drain", "only 4 sources"),
        ("policies:\n  p: {act: never, steer: move_aside}", 2, "policies.p.steer", "nothing is changed"),
        ("policies:\n  p: {act: never, on_divergence: hold}", 2, "policies.p.on_divergence", "hold ends"),
        ("policies:\n  p: {restart_elsewhere: [93]}", 2, "policies.p.restart_elsewhere", "cannot be both"),
        ("policies:\n  p: {loss_jump: 0.5}", 2, "policies.p.loss_jump", "more than 1"),
        ("policies:\n  p: {causes: {preemption: {act: never}}}", 2,
         "policies.p.causes.preemption", "never recovers"),
        ("policies:\n  p: {causes: {nvlink: {act: never, signs: 2}}}", 2,
         "policies.p.causes.nvlink", "signs would not"),
        ("policies:\n  p: {causes: {nvlink: {signs_to_drain: 5}}}", 2,
         "policies.p.causes.nvlink.signs_to_drain", "only 4 sources"),
        ("policies:\n  p: {steer: pointer}\noverrides:\n  - user: a\n    set: {act: never}", 5,
         "overrides[1].set.steer", "with policy 'p'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, line: int, key: str, says: str) -> None:
    found = problems(text)
    assert [(at, where) for at, where, _ in found] == [(line, key)], found
    assert says in found[0][2]


def test_all_that_is_wrong_is_told_at_once_in_order() -> None:
    text = "mode: no\npolicies:\n  a: {colour: 1, signs: 9}\n  b: {poll: x}\noverrides:\n  - rain: 1\n"
    assert [(line, key) for line, key, _ in problems(text)] == [
        (1, "mode"), (3, "policies.a.colour"), (3, "policies.a.signs"), (4, "policies.b.poll"),
        (6, "overrides[1].rain"),
    ]  # fmt: skip


def test_a_mistake_does_not_hide_a_contradiction_nor_make_one_up() -> None:
    text = """\
mode: no
allow: [a, gone]
policies:
  a: {signs: 9, loss_jump: 0.5, retries_confirmation: 4, retries_general: ten}
  b: {act: never, steer: move_aside}
  c: {poll: x, verify_window: 0}
  d: []
overrides:
  - user: x
    set: {signs: z}
  - mode: observe
  - user: y
    policy: a
"""
    assert [(line, key) for line, key, _ in problems(text)] == [
        (1, "mode"), (2, "allow[2]"), (4, "policies.a.signs"), (4, "policies.a.retries_general"),
        (4, "policies.a.loss_jump"), (5, "policies.b.steer"), (6, "policies.c.poll"),
        (6, "policies.c.verify_window"), (7, "policies.d"), (10, "overrides[1].set.signs"),
        (11, "overrides[2]"),
    ]  # fmt: skip


def test_a_name_that_the_settings_have_too_is_refused() -> None:
    assert "settings file has a policy of this name" in problems("policies: {p: {}}", ("p",))[0][2]
    assert parse("allow: [p]", taken=("p",)).allow == ("p",)


def test_fewer_restarts_are_no_conflict_with_the_default() -> None:
    assert parse("policies: {p: {retries_general: 0}}").policy("p").retries_general == 0


@pytest.mark.parametrize(
    "text",
    [
        "policies: {p: {act: never, causes: {nvlink: {act: automatic}}, steer: pointer}}",
        "policies: {p: {isolation: exclude, signs_to_drain: 5}}",
        "policies: {p: {loss_jump: 0, settle: 0}}",
        "act_in: []",
    ],
)
def test_what_looks_odd_and_makes_sense(text: str) -> None:
    assert parse(text)


def _nested(depth: int) -> str:
    return "a: " + "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "text", [_nested(10_000), _nested(50), "a: " * 2000, "&a [*a]", "\0", "--- 1\n--- 2"]
)
def test_hostile_files_are_refused_in_no_time(text: str) -> None:
    assert problems(text)


@given(st.text(max_size=200))
def test_any_text_is_a_file_or_a_problem(text: str) -> None:
    try:
        told = parse(text).names
    except PolicyFileError as e:
        told = tuple(map(str, e.problems))
    assert told


def test_the_schema_knows_every_key_and_no_other() -> None:
    found = schema()
    assert set(found["properties"]) == set(PolicyFile.model_fields)
    assert found["additionalProperties"] is False
    policy = found["$defs"]["Policy"]
    assert set(policy["properties"]) == set(Policy.model_fields) - {"name", "observe_only"}
    assert policy["additionalProperties"] is False
    assert policy["properties"]["hang_floor"]["type"] == ["string", "number"]
    assert '"duration"' not in json.dumps(found)
