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
STEP = "steer_checkpoint"


def pointer_content(layout: str, name: str, step: int | None) -> str:
    """What the pointer file has to say for this checkpoint to be loaded.

    Raises:
        ValueError: this layout has no pointer file, or the checkpoint no step where the file needs one.
    """
    if layout not in POINTER_FILES:
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
    if job.policy.steer is Steer.LEAVE or checkpoint.cannot_steer:
        return None
    instead = f"the newest usable checkpoint (now {checkpoint.name}), and not {checkpoint.own}"
    file = POINTER_FILES.get(checkpoint.layout, "")
    if job.policy.steer is Steer.POINTER:
        does = f"let {file} name {instead}; its old content is kept beside it"
    else:
        also = f"; let {file} name it, its old content is kept" if file else ""
        does = f"move newer checkpoints that cannot be used aside, so that the job loads {instead}{also}"
        does += "; nothing is deleted"
    return PlanStep(name=STEP, does=does, mutates=True)


def why_to_ask(job: TrainingJob, checkpoint: LocateResult | None) -> str:
    """Why a person must agree to a restart that may load the wrong checkpoint; empty when none must."""
    if checkpoint is None or checkpoint.name is None or checkpoint.own is None:
        return ""
    if not checkpoint.own_problem or steering_step(job, checkpoint) is not None:
        return ""
    why = checkpoint.cannot_steer or "the policy leaves the choice to it"
    own = f"{checkpoint.own}, which cannot be used ({checkpoint.own_problem})"
    return f"by itself the job would load {own}, and not {checkpoint.name}: {why}"
