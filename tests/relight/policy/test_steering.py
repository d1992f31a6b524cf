"""How a job is told its checkpoint by an environment variable."""

from typing import Any

import pytest
from pydantic import ValidationError

from relight.contracts import Mode, Policy
from relight.contracts.policy import Steer
from relight.contracts.steps import LocateResult
from relight.policy.steering import cannot_pass, environment, steering_step, why_to_ask
from tests.workflows.samples import job

FOUND = LocateResult(name="step-100", step=100, layout="torchtitan", own="step-110", own_problem="cut off")
NONE = LocateResult(name=None, empty=True)


def declared(steer: Steer = Steer.ENVIRONMENT, variable: str = "RESUME_FROM", **fields: Any) -> Any:
    made = job(Mode.ACT, Policy(steer=steer, resume_variable=variable))
    return made.model_copy(update={"checkpoint_dir": "/ckpt/", **fields})


def part_of_an_array() -> Any:
    made = declared()
    return made.model_copy(update={"attempt": made.attempt.model_copy(update={"job_id": "42_7"})})


@pytest.mark.parametrize(
    ("made", "checkpoint", "passed"),
    [
        (declared(), FOUND, {"RESUME_FROM": "/ckpt/step-100"}),
        (declared(), FOUND.model_copy(update={"own": None}), {"RESUME_FROM": "/ckpt/step-100"}),
        (declared(checkpoint_dir="s3://b/run"), FOUND, {"RESUME_FROM": "s3://b/run/step-100"}),
        (declared(), NONE, {}),
        (declared(), None, {}),
        (declared(Steer.LEAVE), FOUND, {}),
        (declared(Steer.POINTER), FOUND, {}),
        (declared(Steer.MOVE_ASIDE), FOUND, {}),
        (declared(variable=""), FOUND, {}),
        (declared(checkpoint_dir=None), FOUND, {}),
        (declared(checkpoint_dir="ckpt"), FOUND, {}),
        (part_of_an_array(), FOUND, {}),
    ],
)
def test_what_is_passed(made: Any, checkpoint: LocateResult | None, passed: dict[str, str]) -> None:
    assert environment(made, checkpoint) == passed
    if made.policy.steer is Steer.ENVIRONMENT:
        assert steering_step(made, checkpoint) is None
        assert bool(why_to_ask(made, checkpoint)) is bool(checkpoint and checkpoint.own and not passed)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (declared(), ""),
        (declared(variable=""), "declared no variable"),
        (declared(checkpoint_dir=None), "no directory is no absolute path"),
        (part_of_an_array(), "part of an array"),
    ],
)
def test_why_it_cannot_be_passed(made: Any, says: str) -> None:
    assert says in cannot_pass(made)
    assert bool(says) is bool(cannot_pass(made))


@pytest.mark.parametrize("name", ["RESUME_FROM", "resume_from", "CKPT", "_x1", "A" * 64])
def test_names_that_a_job_may_declare(name: str) -> None:
    assert Policy(resume_variable=name).resume_variable == name


@pytest.mark.parametrize(
    "name",
    ["a b", "A=B", "1A", "A" * 65, "A\n", "\u00c4", "$(x)", "PATH", "path", "LD_PRELOAD", "ld_library_path",
     "BASH_ENV", "BASH_FUNC_x", "PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB", "SLURM_JOB_ID", "SBATCH_ACCOUNT",
     "SRUN_X", "PMIX_RANK", "HOME", "IFS", "ENV"],
)  # fmt: skip
def test_names_that_it_may_not(name: str) -> None:
    with pytest.raises(ValidationError, match=r"no name of|already decides"):
        Policy(resume_variable=name)
