"""`RecoveryWorkflow`: the runbook of one recovery, from a suspected fault to training that goes on."""

import asyncio
from datetime import datetime, timedelta
from itertools import count

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from relight.contracts import (
        Action,
        Anomaly,
        Attempt,
        Cause,
        Diagnosis,
        Model,
        Outcome,
        Plan,
        RecoveryOutcome,
        Symptom,
        clean_text,
    )
    from relight.contracts.ids import RECOVERY_WORKFLOW
    from relight.contracts.messages import (
        AttemptEvent,
        AttemptReport,
        Decision,
        DecisionResult,
        ModeChange,
        Note,
        RecoveryEnded,
        RecoveryInput,
        RecoveryNews,
        RecoveryStatus,
    )
    from relight.contracts.outcome import Timeline
    from relight.contracts.steps import (
        ATTEMPT_CHANGED,
        NO_CHECKPOINT,
        RESUME_FAILED,
        UNREACHABLE,
        ConfirmInput,
        ConfirmResult,
        DrainInput,
        DrainResult,
        HoldInput,
        IsolateInput,
        IsolateResult,
        LocateInput,
        LocateResult,
        NodesFreeInput,
        ResubmitInput,
        ResubmitResult,
        RunningResult,
        VerifyInput,
        VerifyResult,
    )
    from relight.diagnosis.verdict import diagnose
    from relight.policy.attempts import step_back
    from relight.policy.plan import make_plan, names
    from workflows import steps
    from workflows.attributes import job_pairs, show
    from workflows.details import clip, recovery_details
    from workflows.signals import read

LOOK_WINDOW = timedelta(minutes=5)
"""How long a step that only looks things up may take."""
MAX_LOG = 100
MAX_ANOMALIES = 50
MAX_TRIES = 10
"""Tries of a mutating step after errors of unknown kind; an unreachable scheduler has `steps.PATIENCE`."""


class _Ended(Exception):
    """The runbook ends here."""

    def __init__(self, outcome: Outcome, reason: str, *, hands_off: bool = False) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.hands_off = hands_off
        """Somebody else moved the job: it must not even be held."""


@workflow.defn(name=RECOVERY_WORKFLOW)
class RecoveryWorkflow:
    """Confirms one fault, plans, asks a person where needed, restarts the job, proves that it trains on.

    Nothing is changed before `_gate` lets it pass: not while paused, not without the approval that the plan
    needs, not once somebody else moved the job. A job that was taken off its nodes is never left half way:
    training has resumed in the end, or the job is held for a reason that a person can read.
    """

    @workflow.init
    def __init__(self, start: RecoveryInput) -> None:
        self._start = start
        self._job = start.job
        self._failed = start.job.attempt
        self._diagnosis = start.diagnosis
        self._anomalies = list(start.anomalies)
        self._paused = start.paused
        self._state = "confirming"
        self._told_waiting = False
        self._log: list[str] = []
        self._reports: list[AttemptReport] = []
        self._unwatched: Note | None = None
        # What the steps found
        self._confirmation: ConfirmResult | None = None
        self._checkpoint: LocateResult | None = None
        self._cannot_exclude = ""
        self._isolated: tuple[str, ...] = ()
        """The nodes of the plan that `isolate_nodes` agreed to."""
        self._excluded: tuple[str, ...] = ()
        """The whole exclusion list of the next attempt."""
        self._drained: DrainResult | None = None
        self._resubmitted: ResubmitResult | None = None
        self._running: RunningResult | None = None
        self._verified: VerifyResult | None = None
        # The plan and people's word on it
        self._plan: Plan | None = None
        self._deadline: datetime | None = None
        self._decision: Decision | None = None
        self._approved_digest = ""
        self._approved_by = ""
        self._times = Timeline(occurred=self._diagnosis.occurred_at, detected=self._diagnosis.detected_at)
        self._outcome: RecoveryOutcome | None = None

    # Messages

    @workflow.update(description="Approve or reject the plan that is shown, named by its digest")
    def decide(self, decision: Decision) -> DecisionResult:
        """Takes a person's decision."""
        return self._consider(decision)

    @decide.validator
    def _may_decide(self, decision: Decision) -> None:
        if not decision.plan_digest:
            raise ApplicationError("a decision needs the digest of the plan it is about")
        if not decision.by:
            raise ApplicationError("a decision needs a name in `by`")
        if refusal := self._refusal(decision):
            raise ApplicationError(refusal)

    @workflow.signal(description="Approve the plan that is shown (Decision: by, reason, plan_digest)")
    def approve(self, payload: object = None, *_: object) -> None:
        """Records a decision; without a digest it is about the plan that is shown."""
        self._hear_decision(payload, approved=True)

    @workflow.signal(description="Reject the plan that is shown (Decision: by, reason, plan_digest)")
    def reject(self, payload: object = None, *_: object) -> None:
        """Records a decision; without a digest it is about the plan that is shown."""
        self._hear_decision(payload, approved=False)

    @workflow.signal(description="Change what relight may do by itself (ModeChange)")
    def set_mode(self, payload: object = None, *_: object) -> None:
        """Records the mode."""
        change = read(ModeChange, payload)
        if change is not None and change.mode is not self._job.mode:
            self._job = self._job.model_copy(update={"mode": change.mode})
            self._note(f"mode set to {change.mode.value} by {change.by or 'somebody'}")
            self._replan()

    @workflow.signal(description="Wait before the next change (Note)")
    def pause(self, payload: object = None, *_: object) -> None:
        """Records the pause."""
        self._paused = True
        self._note(f"paused by {_who(payload)}")

    @workflow.signal(description="Go on after a pause (Note)")
    def unpause(self, payload: object = None, *_: object) -> None:
        """Records the end of the pause."""
        self._paused = False
        self._note(f"unpaused by {_who(payload)}")

    @workflow.signal(description="Step back before the next change (Note)")
    def unwatch(self, payload: object = None, *_: object) -> None:
        """Records that the job is not to be watched any more."""
        self._unwatched = read(Note, payload) or Note()

    @workflow.signal(description="How an attempt of the job goes (AttemptReport)")
    def report_attempt(self, payload: object = None, *_: object) -> None:
        """Records a report."""
        report = read(AttemptReport, payload)
        if report is not None and report not in self._reports:
            self._reports = [*self._reports, report][-MAX_ANOMALIES:]

    @workflow.signal(description="Late evidence for the fault that this recovery is about (Anomaly)")
    def report_anomaly(self, payload: object = None, *_: object) -> None:
        """Weighs late evidence, as long as nothing was changed."""
        anomaly = read(Anomaly, payload)
        if anomaly is None or any(a.anomaly_id == anomaly.anomaly_id for a in self._anomalies):
            return
        self._anomalies = [*self._anomalies, anomaly][-MAX_ANOMALIES:]
        self._note(f"late evidence: {anomaly.symptom.value}, {anomaly.cause.value}")
        if self._drained is None and self._start.anomalies:
            self._diagnose_again()

    @workflow.query(description="Where the runbook stands, the plan and its digest")
    def status(self) -> RecoveryStatus:
        """How the recovery stands."""
        return RecoveryStatus(
            recovery_id=workflow.info().workflow_id,
            state=self._state,
            diagnosis=self._diagnosis,
            plan=self._plan,
            plan_digest=self._plan.digest if self._plan else "",
            approval_deadline=self._deadline,
            paused=self._paused,
            mode=self._job.mode,
            outcome=self._outcome,
            log=tuple(self._log),
            approved_by=self._approved_by,
        )

    # The runbook

    @workflow.run
    async def run(self, start: RecoveryInput) -> RecoveryOutcome:
        """Carries the runbook out.

        Args:
            start: the job, the diagnosis, and who waits for the outcome.
        """
        try:
            await self._runbook()
            ended = _Ended(Outcome.RESUMED, self._verified.summary if self._verified else "")
        except _Ended as reached:
            ended = reached
        except asyncio.CancelledError:
            ended = _Ended(Outcome.ABANDONED, "the recovery was cancelled in Temporal")
        if self._is_half_way() and not ended.hands_off:
            ended = await self._hold(ended)
        self._deadline = None
        self._outcome = self._make_outcome(ended)
        self._note(f"{ended.outcome.value}: {ended.reason}")
        self._enter("ended")
        await self._tell("recovery_ended", RecoveryEnded(outcome=self._outcome))
        return self._outcome

    def _is_half_way(self) -> bool:
        """The job was taken off its nodes, and did not start again."""
        return self._drained is not None and self._drained.how != "running" and self._resubmitted is None

    async def _runbook(self) -> None:
        """Only the steps of the plan run, in its order."""
        await self._confirm()
        self._checkpoint = await self._locate("See where training would resume")
        self._enter("planning")
        self._replan()
        drained = await self._drain()
        if drained.how != "running":
            if self._current_plan().action is Action.STOP:
                raise _Ended(Outcome.HELD, self._current_plan().because)
            await self._wait_nodes_free(drained)
            await self._locate_again()
            await self._resubmit(drained)
        await self._verify_running(drained)
        await self._verify_resume()

    async def _confirm(self) -> None:
        try:
            self._confirmation = await steps.poll(
                "confirm_fault",
                ConfirmInput(job=self._job, diagnosis=self._diagnosis),
                ConfirmResult,
                within=self._job.policy.confirm_window,
                summary=f"Ask independent sources about the {self._diagnosis.symptom.value}",
            )
        except steps.StepFailed as failed:
            if failed.kind == ATTEMPT_CHANGED:
                raise _Ended(Outcome.ABANDONED, failed.text, hands_off=True) from failed
            self._confirmation = ConfirmResult(verdict="inconclusive", summary=failed.text)
        self._note(f"confirm_fault: {self._confirmation.verdict}, {self._confirmation.summary}")
        if self._confirmation.verdict == "refuted":
            raise _Ended(Outcome.REFUTED, self._confirmation.summary)
        if self._confirmation.verdict == "confirmed":
            self._mark(confirmed=workflow.now())

    async def _locate(self, summary: str) -> LocateResult | None:
        """Where training would resume; None when that cannot be found out."""
        try:
            found = await steps.poll(
                "locate_checkpoint",
                LocateInput(job=self._job),
                LocateResult,
                within=LOOK_WINDOW,
                summary=summary,
            )
        except steps.StepFailed as failed:
            self._note(f"locate_checkpoint failed: {failed.text}")
            if failed.kind == NO_CHECKPOINT:
                return LocateResult(name=None, summary=failed.text)
            return None
        self._note(f"locate_checkpoint: {found.summary or found.name or 'none'}")
        return found

    async def _prepare(self, *, untouched: bool) -> Plan:
        """Passes the gate and checks the exclusion, until both hold for one and the same plan."""
        while True:
            plan = await self._gate(untouched=untouched)
            if plan.action is Action.NONE:
                raise _Ended(Outcome.REFUTED, plan.because)
            if plan.action is Action.STOP and not plan.steps:
                raise _Ended(Outcome.STOPPED, plan.because)
            if plan.excluded_nodes == self._isolated:
                return plan
            await self._isolate(plan)

    async def _isolate(self, plan: Plan) -> None:
        self._enter("isolating")
        message = IsolateInput(
            job=self._job, attempt=self._failed, nodes=plan.excluded_nodes, recovery_id=self._id
        )
        try:
            isolated = await steps.poll(
                "isolate_nodes",
                message,
                IsolateResult,
                within=LOOK_WINDOW,
                summary=f"Check that the job can do without {names(plan.excluded_nodes)}",
            )
        except steps.StepFailed as failed:
            if failed.kind == ATTEMPT_CHANGED:
                raise _Ended(Outcome.ABANDONED, failed.text, hands_off=True) from failed
            # Nothing has been changed yet, so a person can decide whether to restart there all the same.
            self._note(f"isolate_nodes: {failed.text}")
            self._cannot_exclude = failed.text or "isolate_nodes failed"
            self._isolated = self._excluded = ()
            self._replan()
            return
        self._note(f"isolate_nodes: {isolated.summary or names(isolated.excluded_nodes)}")
        self._isolated, self._excluded = plan.excluded_nodes, isolated.excluded_nodes

    async def _drain(self) -> DrainResult:
        began = workflow.now()
        for tries in count():
            # After a failed try the job may be as we left it: what sensors tell of it can be our own doing.
            plan = await self._prepare(untouched=tries == 0)
            self._enter("draining")
            message = DrainInput(
                job=self._job,
                attempt=self._failed,
                recovery_id=self._id,
                reason=clip(f"relight: {plan.because}"),
                tries=tries,
                adopt=self._adopts(),
            )
            try:
                drained = await steps.attempt(
                    "drain_job",
                    message,
                    DrainResult,
                    summary=f"Take attempt {self._failed.label} off its nodes and hold the job in the queue",
                )
            except steps.StepFailed as failed:
                await self._after_failure(failed, tries + 1, began)
                continue
            self._drained = drained
            self._note(f"drain_job: {drained.summary or drained.how}")
            if drained.how != "running":
                self._mark(acted=drained.accepted_at or workflow.now())
            return drained
        raise AssertionError("count() does not end")

    async def _wait_nodes_free(self, drained: DrainResult) -> None:
        lost = self._confirmation.nodes_lost if self._confirmation else ()
        nodes = tuple(node for node in self._job.nodes if node not in lost)  # a dead node reports nothing
        try:
            said = await steps.poll(
                "wait_nodes_free",
                NodesFreeInput(job=self._job, attempt=drained.attempt, nodes=nodes),
                str,
                within=self._job.policy.drain_window,
                summary="Wait until no process of the old attempt is left",
            )
        except steps.StepFailed as failed:
            raise self._gave_up(failed, f"the nodes did not become free: {failed.text}") from failed
        self._note(f"wait_nodes_free: {said}")

    async def _locate_again(self) -> None:
        """Training may have saved once more, or broken off while saving, since the plan was made."""
        self._enter("locating")
        planned = self._checkpoint
        found = await self._locate("Find the newest checkpoint that can be used")
        if found is None and planned is None:
            return  # nobody could look, and the plan said so
        if found is None:
            raise _Ended(Outcome.HELD, "the checkpoints could not be looked at any more")
        if found.name is None and not found.empty:
            raise _Ended(Outcome.HELD, f"no checkpoint can be used: {found.summary}")
        self._checkpoint = found
        if planned is not None and _resume_step(found) < _resume_step(planned):
            self._note("the planned checkpoint can no longer be used")
            self._replan()

    async def _resubmit(self, drained: DrainResult) -> None:
        began = workflow.now()
        for tries in count():
            await self._gate(untouched=tries == 0)
            self._enter("resubmitting")
            message = ResubmitInput(
                job=self._job,
                attempt=drained.attempt,
                failed_attempt=self._failed,
                how=drained.how,
                excluded_nodes=self._excluded,
                recovery_id=self._id,
                tries=tries,
            )
            without = f" without {names(self._excluded)}" if self._excluded else ""
            try:
                self._resubmitted = await steps.attempt(
                    "resubmit", message, ResubmitResult, summary=f"Let the job start again{without}"
                )
            except steps.StepFailed as failed:
                await self._after_failure(failed, tries + 1, began)
                continue
            self._note(f"resubmit: {self._resubmitted.summary or self._resubmitted.attempt.label}")
            return

    async def _verify_running(self, drained: DrainResult) -> None:
        self._enter("verifying")
        attempt = self._resubmitted.attempt if self._resubmitted else drained.attempt
        try:
            self._running = await steps.poll(
                "verify_running",
                self._verify_input(attempt),
                RunningResult,
                within=self._job.policy.queue_window,
                summary=f"Wait until attempt {attempt.label} runs",
            )
        except steps.StepFailed as failed:
            raise _not_resumed(failed, "it did not start to run") from failed
        self._mark(running=self._running.started_at)
        self._note(f"verify_running: {self._running.summary or names(self._running.nodes)}")

    async def _verify_resume(self) -> None:
        running = self._running
        if running is None:
            raise AssertionError("verify_running comes first")
        step = self._failed_at()
        try:
            self._verified = await steps.poll(
                "verify_resume",
                self._verify_input(running.attempt),
                VerifyResult,
                within=self._job.policy.verify_window,
                summary="Wait until training prints a step"
                if step is None
                else f"Wait until training passes step {step}",
            )
        except steps.StepFailed as failed:
            if failed.kind == RESUME_FAILED and failed.details:
                self._verified = read(VerifyResult, failed.details[0])
            raise _not_resumed(failed, "training did not pass the step in time") from failed
        self._note(f"verify_resume: {self._verified.verdict}, {self._verified.summary}")
        if self._verified.verdict != "resumed":
            raise _Ended(Outcome.FAILED_AGAIN, f"{self._verified.verdict}: {self._verified.summary}")
        self._mark(productive=self._verified.at or workflow.now())

    def _verify_input(self, attempt: Attempt) -> VerifyInput:
        # Taken over while it ran already, a job may have resumed from anywhere.
        chosen = self._checkpoint if self._resubmitted else None
        return VerifyInput(
            job=self._job,
            attempt=attempt,
            excluded_nodes=self._excluded if self._resubmitted else (),
            log_marks=self._resubmitted.log_marks if self._resubmitted else (),
            failed_at=self._failed_at(),
            resumable_from=chosen.step if chosen else None,
        )

    async def _hold(self, ended: _Ended) -> _Ended:
        """Leaves the job held, so that it does not start by itself in a state that nobody looked at."""
        attempt = self._drained.attempt if self._drained else self._failed
        reason = (
            f"{ended.outcome.value}: {ended.reason}" if ended.outcome is not Outcome.HELD else ended.reason
        )
        message = HoldInput(job=self._job, attempt=attempt, recovery_id=self._id, reason=clip(reason))
        began = workflow.now()
        for tries in count(1):
            try:
                said = await steps.attempt("hold_job", message, str, summary=f"Leave the job held: {reason}")
            except steps.StepFailed as failed:
                if failed.kind == ATTEMPT_CHANGED:
                    return _Ended(Outcome.ABANDONED, failed.text)
                if not self._may_try_again(failed, tries, began):
                    return _Ended(Outcome.HELD, f"{reason}; hold_job failed too: {failed.text}")
                await workflow.sleep(steps.pause_after(tries), summary=clip(f"hold_job: {failed.text}"))
            else:
                self._note(f"hold_job: {said}")
                break
        return _Ended(Outcome.HELD, reason)

    # Before every change

    async def _gate(self, *, untouched: bool) -> Plan:
        """Lets the next change pass: not while paused, not unapproved, not on a job that others moved.

        Args:
            untouched: nothing that sensors tell of the job can be the doing of the step that is to come.

        Returns:
            The plan that may be carried out now.
        """
        while True:
            if reason := self._reason_to_end(untouched=untouched):
                raise reason
            plan = self._current_plan()
            if self._paused:
                await workflow.wait_condition(
                    lambda: not self._paused or self._reason_to_end(untouched=untouched) is not None
                )
            elif plan.needs_approval_because and plan.digest != self._approved_digest:
                await self._ask(plan, untouched=untouched)
            else:
                await self._tell_state()
                return plan

    async def _ask(self, plan: Plan, *, untouched: bool) -> None:
        """Waits for a person's decision on this plan."""
        patience = self._job.policy.approval_deadline
        self._decision = None
        self._deadline = workflow.now() + patience
        self._enter("awaiting-approval")
        await self._tell_state()
        try:
            await workflow.wait_condition(
                lambda: (
                    self._decision is not None
                    or self._current_plan().digest != plan.digest
                    or self._reason_to_end(untouched=untouched) is not None
                ),
                timeout=max(self._deadline - workflow.now(), timedelta(0)),
                timeout_summary=clip(f"deadline for approving plan {plan.digest}"),
            )
        except TimeoutError:
            raise _Ended(Outcome.EXPIRED, f"nobody decided on plan {plan.digest} within {patience}") from None
        if reason := self._reason_to_end(untouched=untouched):
            raise reason
        self._deadline = None
        self._enter("planning")
        decision = self._decision
        if decision is None:
            return
        who = decision.by or "somebody"
        if not decision.approved:
            raise _Ended(Outcome.REJECTED, f"{who}: {decision.reason}" if decision.reason else f"by {who}")
        self._approved_digest, self._approved_by = decision.plan_digest, who
        self._mark(approved=workflow.now())

    def _reason_to_end(self, *, untouched: bool) -> "_Ended | None":
        """Why the recovery must leave the job alone; None when it may go on."""
        if self._unwatched is not None:
            return _Ended(Outcome.ABANDONED, f"unwatched by {self._unwatched.by or 'somebody'}")
        if not untouched or (self._drained is not None and self._drained.how == "resubmit"):
            return None
        expected = self._drained.attempt if self._drained else self._failed
        # While a person is asked, a job that the scheduler itself started again needs no restart any more.
        adopt = self._adopts() and self._deadline is None
        for report in self._reports:
            if why := step_back(report, expected, adopt=adopt):
                return _Ended(Outcome.ABANDONED, why, hands_off=True)
            if self._drained is None and self._went_on(report):
                return _Ended(Outcome.REFUTED, "training went on by itself")
        return None

    def _went_on(self, report: AttemptReport) -> bool:
        """A hang that makes progress is none."""
        before = self._diagnosis.progress
        return (
            self._diagnosis.symptom is Symptom.HANG
            and report.event is AttemptEvent.PROGRESS
            and report.attempt == self._failed
            and report.progress is not None
            and before is not None
            and report.progress.step > before.step
        )

    def _adopts(self) -> bool:
        """The scheduler may have put the job back into the queue by itself, as it does when a node dies."""
        lost = self._confirmation is not None and bool(self._confirmation.nodes_lost)
        return lost or self._diagnosis.cause is Cause.NODE_FAILURE

    # After a failed try

    async def _after_failure(self, failed: steps.StepFailed, tries: int, began: datetime) -> None:
        """Waits before the next try of a mutating step, or ends the runbook."""
        self._note(f"{failed.step}, try {tries}: {failed.text}")
        if not self._may_try_again(failed, tries, began):
            raise self._gave_up(failed, f"{failed.step} failed: {failed.text}") from failed
        await workflow.sleep(
            steps.pause_after(tries), summary=clip(f"{failed.step}, try {tries}: {failed.text}")
        )

    def _may_try_again(self, failed: steps.StepFailed, tries: int, began: datetime) -> bool:
        if failed.kind == UNREACHABLE:
            return workflow.now() - began < steps.PATIENCE
        return failed.may_pass and tries < MAX_TRIES

    def _gave_up(self, failed: steps.StepFailed, reason: str) -> "_Ended":
        if failed.kind == ATTEMPT_CHANGED:
            return _Ended(Outcome.ABANDONED, failed.text, hands_off=True)
        return _Ended(Outcome.HELD if self._drained else Outcome.STOPPED, reason)

    # The plan, and people's word on it

    def _replan(self) -> None:
        if self._confirmation is None or self._outcome is not None:
            return
        self._plan = make_plan(
            self._job,
            self._diagnosis,
            self._confirmation,
            self._start.ledgers,
            self._job.mode,
            self._checkpoint,
            cannot_exclude=self._cannot_exclude,
        )
        self._show()

    def _current_plan(self) -> Plan:
        if self._plan is None:
            raise AssertionError("planning comes first")
        return self._plan

    def _diagnose_again(self) -> None:
        """A plan changes only with what matters: people should not approve a moving target."""
        again = diagnose(self._anomalies, self._start.job)
        again = again.model_copy(update={"progress": again.progress or self._diagnosis.progress})
        changed = _essence(again) != _essence(self._diagnosis)
        explained = again if changed else self._diagnosis.model_copy(update={"evidence": again.evidence})
        self._diagnosis = explained
        if changed:
            self._note(f"the diagnosis is now {again.symptom.value}, {again.cause.value}")
            self._replan()

    def _refusal(self, decision: Decision) -> str:
        """Why this decision cannot be taken; empty when it can."""
        if self._outcome is not None:
            return f"the recovery has ended: {self._outcome.outcome.value}"
        if self._plan is None or self._deadline is None:
            return "no plan is waiting for a decision"
        if decision.plan_digest and decision.plan_digest != self._plan.digest:
            return f"the decision is about plan {decision.plan_digest}, but plan {self._plan.digest} is shown"
        if self._decision is not None:
            word = "approved" if self._decision.approved else "rejected"
            return f"plan {self._plan.digest} has been {word} by {self._decision.by or 'somebody'} already"
        return ""

    def _consider(self, decision: Decision) -> DecisionResult:
        word = "approved" if decision.approved else "rejected"
        who = decision.by or "somebody"
        refusal = self._refusal(decision)
        if refusal or self._plan is None:
            self._note(f"refused: {word} by {who}: {refusal}")
            return DecisionResult(accepted=False, message=refusal, recovery_id=self._id)
        digest = self._plan.digest
        self._decision = decision.model_copy(update={"plan_digest": digest})
        because = f": {decision.reason}" if decision.reason else ""
        self._note(f"plan {digest} {word} by {who}{because}")
        return DecisionResult(accepted=True, message=f"plan {digest} {word}", recovery_id=self._id)

    def _hear_decision(self, payload: object, *, approved: bool) -> None:
        decision = read(Decision, payload)
        if decision is None:
            self._note(f"refused: {'an approval' if approved else 'a rejection'} that cannot be read")
        else:
            self._consider(decision.model_copy(update={"approved": approved}))

    # What others see

    @property
    def _id(self) -> str:
        return workflow.info().workflow_id

    def _failed_at(self) -> int | None:
        return self._diagnosis.progress.step if self._diagnosis.progress else None

    def _mark(self, **times: datetime) -> None:
        self._times = self._times.model_copy(update=times)

    def _note(self, line: str) -> None:
        self._log = [*self._log, clean_text(line)][-MAX_LOG:]
        self._show()

    def _enter(self, state: str) -> None:
        self._state = state
        show(job_pairs(self._job, state, self._diagnosis.cause))
        self._show()

    def _show(self) -> None:
        ended = self._outcome
        workflow.set_current_details(
            recovery_details(
                workflow_id=self._id,
                job_id=self._job.attempt.job_id,
                state=self._state,
                mode=self._job.mode,
                paused=self._paused,
                diagnosis=self._diagnosis,
                confirmation=self._confirmation,
                plan=self._plan,
                deadline=self._deadline,
                log=self._log,
                ending=f"{ended.outcome.value}, {ended.reason}" if ended else "",
            )
        )

    async def _tell_state(self) -> None:
        """Tells the monitor when waiting for a person begins, and when it ends."""
        waiting = self._deadline is not None
        if waiting is not self._told_waiting:
            self._told_waiting = waiting
            await self._tell("recovery_news", RecoveryNews(recovery_id=self._id, state=self._state))

    async def _tell(self, signal: str, message: Model) -> None:
        monitor = workflow.get_external_workflow_handle(self._start.monitor_id)
        try:
            await monitor.signal(signal, message)
        except ApplicationError as error:
            workflow.logger.warning("monitor %s is gone: %s", self._start.monitor_id, error)

    def _make_outcome(self, ended: _Ended) -> RecoveryOutcome:
        new = (self._running or self._resubmitted or self._drained) if self._drained else None
        return RecoveryOutcome(
            recovery_id=self._id,
            outcome=ended.outcome,
            reason=ended.reason,
            symptom=self._diagnosis.symptom,
            cause=self._diagnosis.cause,
            action=self._plan.action if self._plan else Action.NONE,
            attempt=self._failed,
            new_attempt=new.attempt if new is not None and new.attempt != self._failed else None,
            excluded_nodes=self._isolated,
            times=self._times,
            lost_from_step=self._failed_at(),
            resumed_at_step=self._verified.first_step if self._verified else None,
            approved_by=self._approved_by,
            root_key=self._diagnosis.root_key,
        )


def _not_resumed(failed: steps.StepFailed, late: str) -> _Ended:
    if failed.kind == ATTEMPT_CHANGED:
        return _Ended(Outcome.ABANDONED, failed.text, hands_off=True)
    return _Ended(Outcome.FAILED_AGAIN, f"{late}: {failed.text}" if failed.deadline else failed.text)


def _resume_step(found: LocateResult) -> int:
    """For comparing: no checkpoint is worse than any."""
    if found.name is None:
        return -1
    return found.step if found.step is not None else 0


def _essence(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What of a diagnosis a plan depends on."""
    return (
        diagnosis.symptom,
        diagnosis.cause,
        diagnosis.retryable,
        diagnosis.nodes,
        diagnosis.root_key,
        diagnosis.progress.step if diagnosis.progress else None,
    )


def _who(payload: object) -> str:
    note = read(Note, payload)
    return (note.by if note else "") or "somebody"
