"""The steps of a recovery, one function each: what it is told, how long it may take, what its failure means.

The steps that only look raise `Ended` themselves. Those that change something leave retries to the caller,
who has to pass the gate before each try.
"""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Attempt, Diagnosis, Outcome, TrainingJob
    from relight.contracts.outcome import CheckpointRef
    from relight.contracts.steps import (
        ATTEMPT_CHANGED,
        NO_CHECKPOINT,
        RESUME_FAILED,
        ConfirmInput,
        ConfirmResult,
        DrainInput,
        DrainResult,
        HoldInput,
        HoldResult,
        IsolateInput,
        IsolateResult,
        LocateInput,
        LocateResult,
        NodesFreeInput,
        PollInput,
        PollResult,
        ResubmitInput,
        ResubmitResult,
        RunningResult,
        SteerInput,
        SteerResult,
        VerifyInput,
        VerifyResult,
    )
    from relight.policy.holds import REQUEUED_HELD
    from relight.policy.plan import names
    from workflows.details import clip
    from workflows.ending import Ended, because_of
    from workflows.signals import read
    from workflows.steps import StepFailed, attempt, poll

LOOK_WINDOW = timedelta(minutes=5)
"""How long a step that only looks things up may take."""
ONE_INSPECTION = timedelta(minutes=2)
"""How long it may take to read through a checkpoint directory once."""


async def confirm_fault(job: TrainingJob, diagnosis: Diagnosis) -> ConfirmResult:
    """Asks independent sources; what they cannot say in time is inconclusive.

    Raises:
        Ended: the fault is refuted, or the job is in another attempt already.
    """
    try:
        result = await poll(
            "confirm_fault",
            ConfirmInput(job=job, diagnosis=diagnosis),
            ConfirmResult,
            within=job.policy.confirm_window,
            summary=f"Ask independent sources about the {diagnosis.symptom.value}",
        )
    except StepFailed as failed:
        if failed.kind == ATTEMPT_CHANGED:
            raise because_of(failed, Outcome.ABANDONED, failed.text) from failed
        return ConfirmResult(verdict="inconclusive", summary=failed.text)
    if result.verdict == "refuted":
        raise Ended(Outcome.REFUTED, result.summary)
    return result


async def locate_checkpoint(
    job: TrainingJob, summary: str, diverged_from: CheckpointRef | None = None
) -> LocateResult:
    """Finds where training would resume; before `diverged_from`, if training went wrong from there.

    Raises:
        StepFailed: that could not be found out.
    """
    try:
        return await poll(
            "locate_checkpoint",
            LocateInput(job=job, diverged_from=diverged_from),
            LocateResult,
            within=LOOK_WINDOW,
            one_look=ONE_INSPECTION,
            summary=summary,
        )
    except StepFailed as failed:
        if failed.kind != NO_CHECKPOINT:
            raise
        return LocateResult(name=None, summary=failed.text)


async def isolate_nodes(
    job: TrainingJob, nodes: tuple[str, ...], readmitted: tuple[str, ...], recovery_id: str
) -> IsolateResult:
    """Checks that the job can do without these nodes, and joins them with those that its owner excluded.

    Raises:
        Ended: the job is in another attempt already.
        StepFailed: they cannot be excluded.
    """
    try:
        return await poll(
            "isolate_nodes",
            IsolateInput(
                job=job, attempt=job.attempt, nodes=nodes, readmitted=readmitted, recovery_id=recovery_id
            ),
            IsolateResult,
            within=LOOK_WINDOW,
            summary=f"Check that the job can do without {names(nodes)}",
        )
    except StepFailed as failed:
        if failed.kind == ATTEMPT_CHANGED:
            raise because_of(failed, Outcome.ABANDONED, failed.text) from failed
        raise


async def shows_again(job: TrainingJob, held: Attempt) -> bool:
    """The scheduler shows the job as it was before: in the attempt that failed, or held by our requeue."""
    try:
        look = await poll(
            "look_at_job",
            PollInput(job=job),
            PollResult,
            within=LOOK_WINDOW,
            summary=f"See whether the scheduler still knows what it did with job {job.attempt.job_id}",
        )
    except StepFailed:
        return False
    info = look.info
    if info is None:
        return False
    waits = info.held and info.reason == REQUEUED_HELD and info.restart_count == held.restart_count
    return waits or info.attempt(job.cluster) == job.attempt


async def drain_job(message: DrainInput) -> DrainResult:
    """Takes the failed attempt off its nodes: one try.

    Raises:
        StepFailed: it failed.
    """
    return await attempt(
        "drain_job",
        message,
        DrainResult,
        summary=f"Take attempt {message.attempt.label} off its nodes and hold the job in the queue",
    )


async def wait_nodes_free(job: TrainingJob, held: Attempt, lost: tuple[str, ...]) -> str:
    """Waits until no process of the failed attempt is left.

    Raises:
        Ended: the nodes stay busy, or somebody else moved the job.
    """
    nodes = tuple(node for node in job.nodes if node not in lost)  # a dead node reports nothing
    try:
        return await poll(
            "wait_nodes_free",
            NodesFreeInput(job=job, attempt=held, nodes=nodes),
            str,
            within=job.policy.drain_window,
            summary="Wait until no process of the old attempt is left",
        )
    except StepFailed as failed:
        reason = f"the nodes did not become free: {failed.text}"
        raise because_of(failed, Outcome.HELD, reason) from failed


async def steer_checkpoint(message: SteerInput) -> SteerResult:
    """Leads the job to the checkpoint that it should load: one try.

    Raises:
        StepFailed: it failed.
    """
    name = message.checkpoint.name
    return await attempt("steer_checkpoint", message, SteerResult, summary=f"Lead the job to {name}")


async def resubmit(message: ResubmitInput) -> ResubmitResult:
    """Lets the job start again, without the excluded nodes: one try.

    Raises:
        StepFailed: it failed.
    """
    without = f" without {names(message.excluded_nodes)}" if message.excluded_nodes else ""
    return await attempt("resubmit", message, ResubmitResult, summary=f"Let the job start again{without}")


async def verify_running(message: VerifyInput) -> RunningResult:
    """Waits until the new attempt runs, on allowed nodes.

    Raises:
        Ended: it did not, or somebody else moved the job.
    """
    try:
        return await poll(
            "verify_running",
            message,
            RunningResult,
            within=message.job.policy.queue_window,
            summary=f"Wait until attempt {message.attempt.label} runs",
        )
    except StepFailed as failed:
        reason = f"it did not start to run: {failed.text}" if failed.deadline else failed.text
        raise because_of(failed, Outcome.FAILED_AGAIN, reason) from failed


async def verify_resume(message: VerifyInput) -> VerifyResult:
    """Waits for the verdict: training passed the step it failed at, or something is wrong with it.

    Raises:
        Ended: nobody could look, or somebody else moved the job.
    """
    step = message.failed_at
    try:
        return await poll(
            "verify_resume",
            message,
            VerifyResult,
            within=message.job.policy.verify_window,
            summary="Wait until training prints a step"
            if step is None
            else f"Wait until training passes step {step}",
        )
    except StepFailed as failed:
        told = read(VerifyResult, failed.details[0]) if failed.details else None
        if failed.kind == RESUME_FAILED:
            return told or VerifyResult(verdict="ended", summary=failed.text)
        if failed.deadline:
            late = told or VerifyResult(verdict="too_slow")
            text = f"training did not pass the step in time: {failed.text}"
            return late.model_copy(update={"summary": text})
        raise because_of(failed, Outcome.FAILED_AGAIN, failed.text) from failed


async def hold_job(message: HoldInput) -> str:
    """Leaves the job held: one try.

    Raises:
        StepFailed: it failed.
    """
    held = await attempt(
        "hold_job", message, HoldResult, summary=clip(f"Leave the job held: {message.reason}")
    )
    return held.summary
