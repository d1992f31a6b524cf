"""How a job is led to the checkpoint that can be used, and what people are told of it beforehand. Pure."""

from relight.contracts import PlanStep, TrainingJob
from relight.contracts.policy import Steer
from relight.contracts.steps import LocateResult

POINTER_FILES = {
    "megatron": "latest_checkpointed_iteration.txt",
    "deepspeed": "latest",
    "gpt-neox": "latest",
}
"""Layout to the file that names the checkpoint to load; its framework loads that one and no other."""
KEPT_BY_THE_JOB = {"dcp": "latest", "marker": "latest"}
"""The same for layouts of no one framework: a job's own script may keep such a file, or do without."""
STEP = "steer_checkpoint"


def pointer_file(layout: str, pointer: str | None) -> str:
    """The file that relight sets to lead a job; empty where there is none.

    Args:
        layout: of the run.
        pointer: what the run's pointer says now; None: it has none.
    """
    if pointer is None and layout in KEPT_BY_THE_JOB:
        return ""
    return POINTER_FILES.get(layout) or KEPT_BY_THE_JOB.get(layout, "")


def pointer_content(layout: str, name: str, step: int | None) -> str:
    """What the pointer file has to say for this checkpoint to be loaded.

    Raises:
        ValueError: this layout has no pointer file, or the checkpoint no step where the file needs one.
    """
    if layout not in POINTER_FILES | KEPT_BY_THE_JOB:
        raise ValueError(f"the layout {layout} has no pointer file")
    if layout != "megatron":
        return name.rpartition("/")[2]
    if step is None:
        raise ValueError(f"the step of {name} is not known")
    return str(step)


def steering_step(job: TrainingJob, checkpoint: LocateResult | None) -> PlanStep | None:
    """The step that leads the job to `checkpoint.name`; None when it needs none, or is left alone."""
    if checkpoint is None or checkpoint.name is None or checkpoint.own is None:
        return None
    if job.policy.steer in (Steer.LEAVE, Steer.ENVIRONMENT) or checkpoint.cannot_steer:
        return None
    instead = f"the newest usable checkpoint (now {checkpoint.name}), and not {checkpoint.own}"
    file = pointer_file(checkpoint.layout, checkpoint.pointer)
    if job.policy.steer is Steer.POINTER:
        does = f"let {file} name {instead}; its old content is kept beside it"
    else:
        also = f"; let {file} name it, its old content is kept" if file else ""
        does = f"move newer checkpoints that cannot be used aside, so that the job loads {instead}{also}"
        does += "; nothing is deleted"
    return PlanStep(name=STEP, does=does, mutates=True)


def cannot_pass(job: TrainingJob) -> str:
    """Why the job cannot be told its checkpoint by a variable; empty when it can."""
    if not job.policy.resume_variable:
        return "the job declared no variable for it (resume_variable)"
    if not job.attempt.job_id.isdecimal():
        return "a part of an array or heterogeneous job cannot be submitted anew, with another environment"
    directory = job.checkpoint_dir or ""
    if not directory.startswith("/") and "://" not in directory:
        return f"{directory or 'no directory'} is no absolute path"
    return ""


def environment(job: TrainingJob, checkpoint: LocateResult | None) -> dict[str, str]:
    """The variable that names the checkpoint to the next attempt; empty where the job is not led that way.

    It is passed in every restart, and not only when the job would choose wrongly: an attempt that was once
    submitted with the variable has it for good, and would load that old checkpoint after the next requeue.
    """
    if job.policy.steer is not Steer.ENVIRONMENT or cannot_pass(job):
        return {}
    if checkpoint is None or checkpoint.name is None:
        return {}
    return {job.policy.resume_variable: f"{(job.checkpoint_dir or '').rstrip('/')}/{checkpoint.name}"}


def resubmit_step(job: TrainingJob, checkpoint: LocateResult | None) -> PlanStep:
    """The step that lets the job start again, and with which variable."""
    job_id = job.attempt.job_id
    does = f"let job {job_id} start again at once"
    for name, path in environment(job, checkpoint).items():
        does = (
            f"submit job {job_id} anew with {name} naming the newest usable checkpoint (now {path}) and else "
            "only the environment of a login, for that of a queued job cannot be changed; cancel the held one"
        )
    return PlanStep(name="resubmit", does=does, mutates=True)


def why_to_ask(job: TrainingJob, checkpoint: LocateResult | None) -> str:
    """Why a person must agree to a restart that may load the wrong checkpoint; empty when none must."""
    if checkpoint is None or checkpoint.name is None or checkpoint.own is None:
        return ""
    if not checkpoint.own_problem or steering_step(job, checkpoint) or environment(job, checkpoint):
        return ""
    cannot = cannot_pass(job) if job.policy.steer is Steer.ENVIRONMENT else checkpoint.cannot_steer
    why = cannot or "the policy leaves the choice to it"
    own = f"{checkpoint.own}, which cannot be used ({checkpoint.own_problem})"
    return f"by itself the job would load {own}, and not {checkpoint.name}: {why}"
