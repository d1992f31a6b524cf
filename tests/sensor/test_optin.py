"""What a job's comment may ask for."""

import json
from typing import Any

import pytest

from relight.config import Settings
from relight.contracts import Mode, Policy
from relight.policies import merged
from relight.policy.file import PolicyFile, parse
from sensor.optin import BadRequest, opted_in
from tests.sensor.making import info


def ask(comment: object, mode: Mode = Mode.OBSERVE, policies: PolicyFile | None = None) -> Any:
    text = comment if isinstance(comment, str) else json.dumps(comment)
    settings = Settings(mode=mode, policies={"careful": Policy(retries_general=1)})
    job = info(comment=text, name="gpt", user="anna", work_dir="/home/anna", partition="gpu", account="ml")
    return opted_in(job, "lab", settings, merged(settings, policies or PolicyFile()))


@pytest.mark.parametrize(
    "comment",
    [
        "", "relight please", "{", "[]", "1", '{"other": {}}', '{"relight": true}', '{"relight": null}',
        {"relight": {"recovery": "recover:lab:42:0:a"}}, {"relight": {"policy": "careful", "recovery": "r"}},
        '{"relight": {}', "{" * 5000, '{"a":' * 100_000, '{"APS": []}',
    ],
)  # fmt: skip
def test_no_request(comment: object) -> None:
    assert ask(comment) is None


def test_a_job_declares_the_variable_that_names_its_checkpoint() -> None:
    policy = ask({"relight": {"resume_variable": "RESUME_FROM"}}).policy
    assert (policy.resume_variable, policy.steer) == ("RESUME_FROM", Policy().steer)  # how is for the policy


def test_all_that_can_be_asked_for() -> None:
    job = ask({"relight": {"policy": "careful", "checkpoints": "ckpt", "logs": "/l/*.log", "run": "r"}})
    assert (job.policy.name, job.policy.retries_general) == ("careful", 1)
    assert (job.checkpoint_dir, job.run, job.user) == ("/home/anna/ckpt", "r", "anna")
    assert job.log_paths == ("/logs/train.log", "/l/*.log")
    assert job.opted_in


@pytest.mark.parametrize(
    ("allowed", "asked", "mode"),
    [
        (Mode.OBSERVE, {}, Mode.OBSERVE),
        (Mode.OBSERVE, {"mode": "act"}, Mode.OBSERVE),
        (Mode.ACT, {}, Mode.ACT),
        (Mode.ACT, {"mode": "act"}, Mode.ACT),
        (Mode.ACT, {"mode": "observe"}, Mode.OBSERVE),
    ],
)
def test_a_comment_lowers_the_mode_and_never_raises_it(
    allowed: Mode, asked: dict[str, str], mode: Mode
) -> None:
    assert ask({"relight": asked}, allowed).mode is mode


@pytest.mark.parametrize(("times", "retries"), [(0, 0), (1, 1), (100, 3), (None, 3)])
def test_the_older_form(times: int | None, retries: int) -> None:
    asked = {"auto_resume_mode": "requeue"} | ({} if times is None else {"max_requeue_times": times})
    job = ask({"APS": asked})
    assert job.policy.retries_general == retries
    assert job.run == "gpt"


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ({"relight": {"policy": "none"}}, "none"),
        ({"relight": {"policy": 3}}, "policy"),
        ({"relight": {"mode": "destroy"}}, "destroy"),
        ({"relight": {"resume_variable": "LD_PRELOAD"}}, "'resume_variable': LD_PRELOAD already decides"),
        ({"relight": {"resume_variable": "a b"}}, "'resume_variable': 'a b' is no name"),
        ({"relight": {"resume_variable": 3}}, "'resume_variable' is not a text"),
        ({"relight": {"logs": [1]}}, "logs"),
        ({"relight": {"logs": ["x"] * 1000}}, "logs"),
        ({"relight": {"checkpoints": ["/a"]}}, "checkpoints"),
        ({"relight": {"run": "\ud800"}}, "run"),
        ({"relight": {"checkpoints": "a\0b"}}, "checkpoints"),
        ({"relight": {"logs": "a\0b"}}, "logs"),
        ({"relight": {"logs": ["/fine", "\udfff"]}}, "logs"),
        ({"APS": {"auto_resume_mode": "singleton_dependency"}}, "singleton_dependency"),
        ({"APS": {"auto_resume_mode": "requeue", "max_requeue_times": "many"}}, "many"),
        ({"APS": {"auto_resume_mode": "requeue", "max_requeue_times": -1}}, "-1"),
        ({"APS": {}}, "requeue"),
    ],
)
def test_what_cannot_be_done_is_said(comment: object, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        ask(comment)


FILE = parse(
    """
mode: act
act_in: [gpu]
allow: [careful]
policies:
  patient: {hang_floor: 10m}
overrides:
  - account: ml
    set: {retries_general: 2}
  - user: anna
    policy: patient
""",
    taken=("careful",),
)


@pytest.mark.parametrize(
    ("asked", "policy", "retries"),
    [
        ({"relight": {}}, "patient", 2),
        ({"relight": {"policy": "careful"}}, "careful", 2),
        ({"relight": {"policy": "never"}}, "never", 3),
        ({"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}, "patient", 1),
    ],
)
def test_the_policy_file_decides_what_a_job_gets(asked: object, policy: str, retries: int) -> None:
    job = ask(asked, Mode.ACT, FILE)
    assert (job.policy.name, job.policy.retries_general, job.mode) == (policy, retries, Mode.ACT)
    assert job.account == "ml"


def test_a_job_cannot_choose_what_is_not_allowed_or_act_where_others_observe() -> None:
    with pytest.raises(BadRequest, match="may not choose policy 'patient'; they may choose: careful"):
        ask({"relight": {"policy": "patient"}}, Mode.ACT, FILE)
    elsewhere = FILE.model_copy(update={"act_in": ("debug",)})
    assert ask({"relight": {"mode": "act"}}, Mode.ACT, elsewhere).mode is Mode.OBSERVE
