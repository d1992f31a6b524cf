"""From a confirmed diagnosis to a plan: what to do, in which steps, and whether a person must agree."""

from datetime import datetime

from relight.contracts import (
    GPU_HARDWARE_CAUSES,
    Action,
    Cause,
    Diagnosis,
    Isolation,
    MayAct,
    Mode,
    Plan,
    PlanStep,
    Policy,
    Symptom,
    TrainingJob,
)
from relight.contracts.messages import PastFailure
from relight.contracts.outcome import CheckpointRef
from relight.contracts.policy import Then
from relight.contracts.steps import ConfirmResult, LocateResult
from relight.policy import signs
from relight.policy.decision import Decision, decide
from relight.policy.gates import approval_reasons
from relight.policy.steering import resubmit_step, steering_step, why_to_ask

NOTHING_TO_RECOVER = frozenset({Cause.HEALTHY, Cause.USER_CANCEL, Cause.TIME_LIMIT, Cause.PREEMPTION})
"""Somebody wanted the end, or the scheduler itself brings the job back."""

MAX_NAMED = 8


def nothing_to_recover(diagnosis: Diagnosis) -> bool:
    """There is no fault that a recovery could repair; training that goes on well enough is left alone."""
    match diagnosis.symptom:
        case Symptom.NONE:
            return True
        case Symptom.SLOW if diagnosis.cause is Cause.UNKNOWN and not diagnosis.nodes:
            return True
        case Symptom.DEGRADED if diagnosis.cause is not Cause.NUMERICAL and not diagnosis.nodes:
            return True
    return diagnosis.cause in NOTHING_TO_RECOVER


def nodes_to_exclude(
    job: TrainingJob, suspects: tuple[str, ...], confirmation: ConfirmResult
) -> tuple[str, ...]:
    """The nodes that the next attempt shall not run on: suspected ones, and lost ones.

    Suspicion that falls on more than half of several nodes names no culprit: it is the echo of one fault.
    """
    if len(suspects) > 1 and 2 * len(suspects) > len(job.nodes):
        suspects = ()
    return tuple(sorted({*suspects, *confirmation.nodes_lost}))


def explained_by_loss(diagnosis: Diagnosis, nodes_lost: tuple[str, ...]) -> Diagnosis:
    """The diagnosis, with the loss of nodes as its cause where no cause was known.

    The job's log tells of a crash before the scheduler has given the node up.
    """
    if diagnosis.cause is not Cause.UNKNOWN or not nodes_lost:
        return diagnosis
    told = f"{diagnosis.explanation} The scheduler has lost {names(nodes_lost)}.".strip()
    return diagnosis.model_copy(update={"cause": Cause.NODE_FAILURE, "explanation": told})


def nodes_to_drain(
    policy: Policy, diagnosis: Diagnosis, confirmation: ConfirmResult, excluded: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of the excluded nodes that nobody shall use: enough independent sources say that they are broken.

    A lost node is left to the scheduler, which gives it no job anyway.
    """
    if policy.isolation is not Isolation.DRAIN or diagnosis.cause not in GPU_HARDWARE_CAUSES:
        return ()
    return tuple(
        node
        for node in excluded
        if node not in confirmation.nodes_lost
        and len(signs.against_node(node, diagnosis, confirmation)) >= policy.signs_to_drain
    )


def make_plan(
    job: TrainingJob,
    diagnosis: Diagnosis,
    confirmation: ConfirmResult,
    ledger: tuple[PastFailure, ...],
    mode: Mode,
    checkpoint: LocateResult | None = None,
    *,
    cannot_exclude: str = "",
    diverged_from: CheckpointRef | None = None,
    readmitted: tuple[str, ...] = (),
    guarded: bool = False,
    now: datetime | None = None,
) -> Plan:
    """Decides what to do. Pure: the same arguments always give the same plan, and so the same digest.

    Args:
        job: the job, in the attempt that failed.
        diagnosis: what is wrong.
        confirmation: what independent sources said of it.
        ledger: earlier failures of the run that a restart followed.
        mode: what relight may do by itself now.
        checkpoint: where training would resume; None when that could not be found out.
        cannot_exclude: why the suspected nodes cannot be excluded, in words; empty when they can.
        diverged_from: training diverged after it resumed from this checkpoint.
        readmitted: nodes that were excluded so long ago that the job may run there again.
        guarded: there is a guard to ask; without one no node is drained for everyone.
        now: the time, for a cool-down; None: there is none.
    """
    job = job.model_copy(update={"policy": job.policy.for_cause(diagnosis.cause)})
    what = f"{diagnosis.symptom.value}, cause {diagnosis.cause.value}"
    if nothing_to_recover(diagnosis):
        return Plan(action=Action.NONE, because=f"{what}: nothing to recover")
    decision = decide(
        diagnosis, ledger, policy=job.policy, nodes=job.nodes, exit_code=_exit_code(confirmation)
    )
    if decision.action in {Action.NONE, Action.STOP}:
        return Plan(action=decision.action, because=f"{what}: {decision.because}")
    if job.policy.act is MayAct.NEVER:
        return Plan(action=Action.NONE, because=f"{what}: the policy says to do nothing about it")
    excluded = () if cannot_exclude else nodes_to_exclude(job, decision.nodes, confirmation)
    if job.policy.isolation is Isolation.NONE:
        excluded = ()
    drained = nodes_to_drain(job.policy, diagnosis, confirmation, excluded) if guarded else ()
    goes_on = diagnosis.symptom in {Symptom.SLOW, Symptom.DEGRADED} and not (
        diagnosis.cause is Cause.NUMERICAL and diverged_from is not None  # what it trains is worth nothing
    )

    approval: list[str] = []
    if mode is Mode.OBSERVE:
        approval.append("observe mode: relight changes nothing by itself")
    if job.policy.act is MayAct.APPROVAL:
        approval.append(f"the policy wants an approval for cause {diagnosis.cause.value}")
    if reason := _unsure(job.policy, diagnosis, confirmation):
        approval.append(reason)
    if now is not None:
        approval += approval_reasons(job, diagnosis, ledger, now)
    if goes_on:
        approval.append("training still goes on: a restart gives up running work")
    if goes_on and diagnosis.cause is Cause.NUMERICAL and diagnosis.symptom is Symptom.DEGRADED:
        approval.append("the newest checkpoints may hold the wrong numbers already")
    if cannot_exclude:
        approval.append(f"the suspected nodes cannot be excluded ({cannot_exclude})")
    if checkpoint is None:
        approval.append("the checkpoints could not be looked at")
    if reason := why_to_ask(job, checkpoint):
        approval.append(reason)

    if checkpoint is not None and checkpoint.name is None and not checkpoint.empty:
        return Plan(
            action=Action.STOP,
            steps=(_drain_step(job), _hold_step(job)),
            needs_approval_because=tuple(approval),
            because=f"{what}; no checkpoint can be used: {checkpoint.summary}",
        )
    return Plan(
        action=_action(decision, excluded, diverged_from),
        steps=_restart_steps(
            job,
            checkpoint,
            diagnosis,
            _isolation_steps(job.policy, diagnosis, confirmation, excluded, drained),
            tuple(node for node in readmitted if node not in excluded),
        ),
        excluded_nodes=excluded,
        drained_nodes=drained,
        checkpoint=checkpoint.name if checkpoint else None,
        checkpoint_step=checkpoint.step if checkpoint else None,
        needs_approval_because=tuple(approval),
        because=_because(what, diagnosis, decision),
    )


def _exit_code(confirmation: ConfirmResult) -> int | None:
    return confirmation.job_info.exit_code if confirmation.job_info is not None else None


def _action(decision: Decision, excluded: tuple[str, ...], diverged_from: CheckpointRef | None) -> Action:
    if excluded:
        return Action.RESTART_EXCLUDE_NODE
    if diverged_from is not None:
        return Action.RESTART_PREVIOUS_CHECKPOINT
    return Action.RESTART if decision.action is Action.RESTART_EXCLUDE_NODE else decision.action


def _because(what: str, diagnosis: Diagnosis, decision: Decision) -> str:
    """The diagnosis in words, and what earlier failures add to it."""
    told = f"{what}: {diagnosis.explanation}" if diagnosis.explanation else what
    if decision.action is Action.RESTART_EXCLUDE_NODE and decision.nodes != diagnosis.nodes:
        return f"{told} And {decision.because}." if diagnosis.explanation else f"{told}; {decision.because}"
    return told


def _unsure(policy: Policy, diagnosis: Diagnosis, confirmation: ConfirmResult) -> str:
    """Why the fault is not sure enough to act on it alone; empty when it is."""
    if policy.signs == 0:
        return ""
    if confirmation.verdict != "confirmed":
        return f"the fault is not confirmed by a second source ({confirmation.summary})"
    found = signs.of_the_fault(diagnosis, confirmation)
    if len(found) >= policy.signs or policy.signs == 1:
        return ""
    return f"{len(found)} of {policy.signs} independent sources confirm the fault ({', '.join(found)})"


def _isolation_steps(
    policy: Policy,
    diagnosis: Diagnosis,
    confirmation: ConfirmResult,
    excluded: tuple[str, ...],
    drained: tuple[str, ...],
) -> list[PlanStep]:
    """How nodes are kept away, and on whose word. `isolate_nodes` only checks: `resubmit` excludes them."""
    if not excluded:
        return []
    short = [
        f"{node} by {' and '.join(said) or 'the job log alone'}"
        for node in excluded
        if node not in (*drained, *confirmation.nodes_lost)
        and len(said := signs.against_node(node, diagnosis, confirmation)) < policy.signs_to_drain
    ]
    does = f"keep the job off {names(excluded)}"
    if short and policy.isolation is Isolation.DRAIN and diagnosis.cause in GPU_HARDWARE_CAUSES:
        does += (
            f" (not drained for everyone: that takes {policy.signs_to_drain} independent sources, and "
            f"accused is {'; '.join(short[:MAX_NAMED])})"
        )
    steps = [PlanStep(name="isolate_nodes", does=does)]
    for node in drained:
        accusers = " and ".join(signs.against_node(node, diagnosis, confirmation))
        does = f"drain {node} for everyone, on the word of {accusers}, if the guard allows it"
        steps.append(PlanStep(name="drain_node", does=does, mutates=True))
    return steps


def _restart_steps(
    job: TrainingJob,
    checkpoint: LocateResult | None,
    diagnosis: Diagnosis,
    isolation: list[PlanStep],
    readmitted: tuple[str, ...],
) -> tuple[PlanStep, ...]:
    """The runbook of a restart."""
    steps = [
        *isolation,
        _drain_step(job),
        PlanStep(name="wait_nodes_free", does="wait until no process of the old attempt is left"),
        PlanStep(name="locate_checkpoint", does=_resume_point(checkpoint, diagnosis)),
        *filter(None, [steering_step(job, checkpoint)]),
        _resubmit_step(job, checkpoint, readmitted),
        PlanStep(name="verify_running", does="wait until it runs, on allowed nodes"),
        PlanStep(name="verify_resume", does=_proof(diagnosis)),
    ]
    if ends := _ends_the_attempt(job.policy):
        does = f"end the new attempt and hold the job, if {' or '.join(ends)}"
        steps.append(PlanStep(name="stop_attempt", does=does, mutates=True))
    return tuple(steps)


def _resubmit_step(
    job: TrainingJob, checkpoint: LocateResult | None, readmitted: tuple[str, ...]
) -> PlanStep:
    step = resubmit_step(job, checkpoint)
    if not readmitted:
        return step
    does = f"{step.does}; it may run again on {names(readmitted)}, which relight excluded long ago"
    return step.model_copy(update={"does": does})


def _ends_the_attempt(policy: Policy) -> list[str]:
    """In which cases the new attempt is ended again, in words."""
    cases = {
        "it starts from scratch": policy.on_from_scratch,
        "it resumes from an older checkpoint": policy.on_older_checkpoint,
        "it diverges": policy.on_divergence,
        "it does not get past the step in time": policy.on_unproductive,
    }
    return [words for words, then in cases.items() if then is Then.HOLD]


def _drain_step(job: TrainingJob) -> PlanStep:
    on = f" on {names(job.nodes)}" if job.nodes else ""
    return PlanStep(
        name="drain_job",
        does=f"end attempt {job.attempt.label}{on}, hold the job in the queue",
        mutates=True,
    )


def _hold_step(job: TrainingJob) -> PlanStep:
    return PlanStep(
        name="hold_job",
        does=f"leave job {job.attempt.job_id} held until a person provides a checkpoint and releases it",
        mutates=True,
    )


def _resume_point(checkpoint: LocateResult | None, diagnosis: Diagnosis) -> str:
    if checkpoint is None:
        return "look for the newest usable checkpoint"
    if checkpoint.name is None:
        return f"resume without a known checkpoint: {checkpoint.summary or 'there is none'}"
    text = f"resume from {checkpoint.name}"
    if checkpoint.step is not None:
        text += f" (step {checkpoint.step}"
        if diagnosis.progress is not None:
            text += f"; {max(0, diagnosis.progress.step - checkpoint.step)} steps to train again"
        text += ")"
    if checkpoint.rejected:
        text += f"; {len(checkpoint.rejected)} newer or broken ones rejected"
    if checkpoint.own is not None:
        text += f"; by itself the job would load {checkpoint.own}"
    return text


def _proof(diagnosis: Diagnosis) -> str:
    if diagnosis.progress is None:
        return "wait until training prints a step"
    return f"wait until training passes step {diagnosis.progress.step}"


def names(nodes: tuple[str, ...]) -> str:
    """Node names for a sentence, bounded."""
    if len(nodes) <= MAX_NAMED:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:MAX_NAMED])} and {len(nodes) - MAX_NAMED} more"
