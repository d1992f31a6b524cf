"""`RecoveryWorkflow`: the runbook of one recovery, from a suspected fault to training that goes on."""

import asyncio
from datetime import datetime
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
        Mode,
        Model,
        Outcome,
        Plan,
        RecoveryOutcome,
        Source,
        Symptom,
        clean_text,
    )
    from relight.contracts.guard import PermitDecision
    from relight.contracts.ids import RECOVERY_WORKFLOW, search_attributes
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
    from relight.contracts.node_drain import DrainNews
    from relight.contracts.outcome import CheckpointRef, Timeline
    from relight.contracts.policy import OnExpiry, Then
    from relight.contracts.steps import (
        ATTEMPT_CHANGED,
        ConfirmResult,
        DrainInput,
        DrainResult,
        HoldInput,
        LocateResult,
        ResubmitInput,
        ResubmitResult,
        RunningResult,
        SteerInput,
        VerifyInput,
        VerifyResult,
    )
    from relight.diagnosis.verdict import diagnose, hangs_at_its_start
    from relight.policy.attempts import Relation, relation, same_execution, step_back
    from relight.policy.gates import cool_down_until
    from relight.policy.notices import plan_waits, recovery_ended
    from relight.policy.plan import explained_by_loss, make_plan, names, nodes_to_exclude
    from relight.policy.resume_proof import then
    from relight.policy.steering import STEP, environment
    from workflows import aftermath, runbook
    from workflows.approval import Approval
    from workflows.archiving import archive
    from workflows.attributes import show
    from workflows.current_details import CurrentDetails
    from workflows.details import clip, recovery_details
    from workflows.draining import start_drain
    from workflows.ending import Ended, because_of
    from workflows.incidents import report_fault
    from workflows.notices import Notices
    from workflows.permit import GuardPermit, for_recovery
    from workflows.signals import read, tell
    from workflows.steps import StepFailed, may_try_again, pause_after

MAX_LOG = 100
MAX_FORGOTTEN = 3
"""So often a scheduler may forget what it accepted, in one recovery."""
MAX_ANOMALIES = 50
_TELLS_THE_END = frozenset({Source.JOB_LOG, Source.SCHEDULER})
"""Sources in which a drain shows like a fault: `STEP CANCELLED` in the log, a state in Slurm."""


@workflow.defn(name=RECOVERY_WORKFLOW)
class RecoveryWorkflow:
    """Confirms one fault, plans, asks a person where needed, restarts the job, proves that it trains on.

    Nothing is changed before `_gate` lets it pass: not while paused, not without the approval that the plan
    needs, not once somebody else moved the job. A job that was taken off its nodes is never left half way:
    training has resumed in the end, or the job is held for a reason that a person can read.
    """

    @workflow.init
    def __init__(self, start: RecoveryInput) -> None:
        self._details = CurrentDetails()
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
        self._approval = Approval(start.job.policy)
        self._permit = GuardPermit(start.guard_id)
        self._notices = Notices(start.notify)
        # What the steps found
        self._confirmation: ConfirmResult | None = None
        self._planned: LocateResult | None = None
        """The checkpoint that the plan names."""
        self._checkpoint: LocateResult | None = None
        """The checkpoint that training should resume from: the planned one, or a newer one."""
        self._cannot_exclude = ""
        self._isolated: tuple[str, ...] = ()
        """The nodes of the plan that `isolate_nodes` agreed to."""
        self._excluded: tuple[str, ...] = ()
        """The whole exclusion list of the next attempt."""
        self._added: tuple[str, ...] = ()
        """Those of it that this recovery adds."""
        self._asked_to_drain: tuple[str, ...] = ()
        """The nodes of the plan whose drains were started."""
        self._nodes_drained: tuple[str, ...] = ()
        """Those of them that are drained."""
        self._touched = False
        """`drain_job` was tried: how the attempt ends may be this recovery's own doing from now on."""
        self._lost_since: tuple[str, ...] = ()
        """Nodes that the scheduler gave up after that, where nothing else had explained the fault."""
        self._drained: DrainResult | None = None
        self._resubmitted: ResubmitResult | None = None
        self._running: RunningResult | None = None
        self._verified: VerifyResult | None = None
        self._diverged_from: CheckpointRef | None = None
        """Training diverged in this recovery's own attempt, after it resumed from here."""
        self._forgotten = 0
        """So often the scheduler has forgotten what it accepted."""
        self._hang_after: Anomaly | None = None
        """A later attempt has fallen silent."""
        self._stopped_again = False
        """The new attempt was ended, since it did not resume as it should."""
        self._times = Timeline(occurred=self._diagnosis.occurred_at, detected=self._diagnosis.detected_at)
        self._outcome: RecoveryOutcome | None = None

    # Messages

    @workflow.update(description="Approve or reject the plan that is shown, named by its digest")
    def decide(self, decision: Decision) -> DecisionResult:
        """Takes a person's decision."""
        return self._take(decision)

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

    @workflow.signal(description="Change what relight may do by itself (ModeChange: mode, by, reason)")
    def set_mode(self, payload: object = None, *_: object) -> None:
        """Records the mode."""
        change = read(ModeChange, payload)
        if change is not None and change.mode is not self._job.mode:
            self._job = self._job.model_copy(update={"mode": change.mode})
            self._note(f"mode set to {change.mode.value} by {change.by or 'somebody'}")

    @workflow.signal(description="Wait before the next change (Note: by, reason)")
    def pause(self, payload: object = None, *_: object) -> None:
        """Records the pause."""
        self._paused = True
        self._note(f"paused by {_who(payload)}")

    @workflow.signal(description="Go on after a pause (Note: by, reason)")
    def unpause(self, payload: object = None, *_: object) -> None:
        """Records the end of the pause."""
        self._paused = False
        self._note(f"unpaused by {_who(payload)}")

    @workflow.signal(
        description="internal, sent by the guard: its answer, or a pause of the cluster (PermitDecision)"
    )
    def permit_decided(self, payload: object = None, *_: object) -> None:
        """Records what the guard decided."""
        decision = read(PermitDecision, payload)
        if decision is not None and (line := self._permit.hear(decision)):
            self._note(line)

    @workflow.signal(description="internal, sent by a drain: how it goes (DrainNews)")
    def drain_news(self, payload: object = None, *_: object) -> None:
        """Records what came of a drain."""
        news = read(DrainNews, payload)
        if news is not None:
            self._note(f"drain_node: {news.text}")
            if news.drained and news.node not in self._nodes_drained:
                self._nodes_drained = (*self._nodes_drained, news.node)

    @workflow.signal(description="internal, sent by the monitor: step back before the next change (Note)")
    def unwatch(self, payload: object = None, *_: object) -> None:
        """Records that the job is not to be watched any more."""
        self._unwatched = read(Note, payload) or Note()

    @workflow.signal(description="internal, sent by the monitor: how an attempt goes (AttemptReport)")
    def report_attempt(self, payload: object = None, *_: object) -> None:
        """Records a report."""
        report = read(AttemptReport, payload)
        if report is not None and report not in self._reports:
            self._reports = [*self._reports, report][-MAX_ANOMALIES:]

    @workflow.signal(description="internal, sent by the monitor: late evidence for this fault (Anomaly)")
    def report_anomaly(self, payload: object = None, *_: object) -> None:
        """Records late evidence, and what it says of the fault as long as nothing was changed."""
        anomaly = read(Anomaly, payload)
        if anomaly is None or any(a.anomaly_id == anomaly.anomaly_id for a in self._anomalies):
            return
        if relation(self._failed, anomaly.attempt) in (Relation.NEWER, Relation.OTHER):
            self._hang_after = anomaly
            return
        if self._touched and all(e.source in _TELLS_THE_END for e in anomaly.evidence):
            self._hear_while_drained(anomaly)
            return
        self._anomalies = [*self._anomalies, anomaly][-MAX_ANOMALIES:]
        self._note(f"late evidence: {anomaly.symptom.value}, {anomaly.cause.value}")
        if self._drained is None and self._start.anomalies:
            self._diagnose_again()

    def _hear_while_drained(self, anomaly: Anomaly) -> None:
        """Changes nothing in the plan; only a node that is lost now explains what nothing explained before.

        Slurm gives a node up when it has not answered for `SlurmdTimeout`: the other ranks fail much sooner.
        """
        if anomaly.cause is Cause.NODE_FAILURE and self._diagnosis.cause is Cause.UNKNOWN:
            self._lost_since = tuple(s.node for s in anomaly.suspects if s.node)
            self._note(f"that is why: {anomaly.evidence[0].text if anomaly.evidence else anomaly.says}")
            return
        self._note(f"not counted, the job is drained: {anomaly.symptom.value}, {anomaly.cause.value}")

    @workflow.query(description="Where the runbook stands, the plan and its digest")
    def status(self) -> RecoveryStatus:
        """How the recovery stands."""
        plan = self._plan()
        return RecoveryStatus(
            recovery_id=workflow.info().workflow_id,
            state=self._state,
            diagnosis=self._diagnosis,
            plan=plan,
            plan_digest=plan.digest if plan else "",
            approval_deadline=self._approval.deadline,
            paused=self._paused,
            mode=self._job.mode,
            outcome=self._outcome,
            log=tuple(self._log),
            approved_by=self._approval.approved_by,
            approvals=self._approval.approvals,
            approvals_needed=self._approval.needed,
            last_decision=self._approval.last_decision,
            **self._permit.status(),
        )

    # The runbook

    @workflow.run
    async def run(self, start: RecoveryInput) -> RecoveryOutcome:
        """Carries the runbook out.

        Args:
            start: the job, the diagnosis, and who waits for the outcome.
        """
        try:
            verified = await self._follow_runbook()
            ended = Ended(Outcome.RESUMED, verified.summary)
        except Ended as reached:
            ended = reached
        except asyncio.CancelledError:
            ended = await self._left_safe(Ended(Outcome.ABANDONED, "the recovery was cancelled in Temporal"))
        self._approval.close()
        self._outcome = self._make_outcome(ended)
        self._note(f"{ended.outcome.value}: {ended.reason}")
        self._enter("ended")
        await self._permit.give_back()
        await self._tell("recovery_ended", RecoveryEnded(outcome=self._outcome))
        self._notices.send(
            recovery_ended(workflow.info().workflow_id, self._job, self._diagnosis, self._outcome)
        )
        await self._notices.settle()
        if start.archive:
            await archive(self._outcome)
        return self._outcome

    async def _follow_runbook(self) -> VerifyResult:
        """The steps in their order; a plan that needs fewer of them ends earlier, by `Ended`."""
        await self._confirm()
        self._checkpoint = self._planned = await self._locate("See where training would resume")
        self._enter("planning")
        while True:
            try:
                return await self._restart()
            except Ended as reached:
                ended = await self._left_safe(reached)
                if not await self._was_forgotten(ended):
                    raise ended from reached
            self._drained = self._resubmitted = self._running = None

    async def _was_forgotten(self, ended: Ended) -> bool:
        """The scheduler crashed before it had saved what it accepted, and shows the failed attempt again.

        Slurm saves its state some seconds after it changed. Nobody else moved the job then.
        """
        drained = self._drained
        if drained is None or drained.how in {"running", "resubmit"} or self._stopped_again:
            return False
        if not ended.hands_off or self._forgotten >= MAX_FORGOTTEN:
            return False
        if not await runbook.shows_again(self._start.job, drained.attempt):
            return False
        self._forgotten += 1
        self._note(f"the scheduler has forgotten what it accepted ({ended.reason}): again from the start")
        return True

    async def _restart(self) -> VerifyResult:
        """From the first change to training that goes on."""
        drained = await self._drain()
        if drained.how != "running":
            plan = self._present_plan()
            if plan.action is Action.STOP:
                raise Ended(Outcome.HELD, plan.because)
            await self._wait_nodes_free(drained)
            await self._locate_again()
            await self._steer(drained)
            await self._resubmit(drained)
        running = await self._verify_running(drained)
        return await self._verify_resume(running)

    async def _confirm(self) -> None:
        confirmation = await runbook.confirm_fault(self._job, self._diagnosis)
        self._confirmation = confirmation
        self._note(f"confirm_fault: {confirmation.verdict}, {confirmation.summary}")
        if confirmation.verdict == "confirmed":
            self._mark(confirmed=workflow.now())
        self._diagnosis = explained_by_loss(self._diagnosis, confirmation.nodes_lost)
        suspected = nodes_to_exclude(self._job, self._diagnosis.nodes, confirmation)
        await self._permit.report(self._job, self._diagnosis, suspected, confirmation)
        await report_fault(self._start.guard_id, self._job, self._diagnosis, confirmation.verdict)

    async def _locate(self, summary: str) -> LocateResult | None:
        """Where training would resume; None when that cannot be found out."""
        try:
            found = await runbook.locate_checkpoint(self._job, summary, self._start.diverged_from)
        except StepFailed as failed:
            self._note(f"locate_checkpoint failed: {failed.text}")
            return None
        self._note(f"locate_checkpoint: {found.summary or found.name or 'none'}")
        return found

    async def _prepare(self, *, untouched: bool) -> Plan:
        """Passes the gate and checks the exclusion, until both hold for one and the same plan."""
        while True:
            plan = await self._gate(untouched=untouched)
            if plan.action is Action.NONE:
                raise Ended(Outcome.REFUTED, plan.because)
            if plan.action is Action.STOP and not plan.steps:
                raise Ended(Outcome.STOPPED, plan.because)
            if plan.excluded_nodes == self._isolated:
                return plan
            await self._isolate(plan)

    async def _isolate(self, plan: Plan) -> None:
        self._enter("isolating")
        try:
            isolated = await runbook.isolate_nodes(
                self._start.job, plan.excluded_nodes, self._start.readmitted, workflow.info().workflow_id
            )
        except StepFailed as failed:
            # Nothing has been changed yet, so a person can decide whether to restart there all the same.
            self._note(f"isolate_nodes: {failed.text}")
            self._cannot_exclude = failed.text or "isolate_nodes failed"
            self._isolated = self._excluded = self._added = ()
            return
        self._note(f"isolate_nodes: {isolated.summary or names(isolated.excluded_nodes)}")
        self._isolated, self._excluded = plan.excluded_nodes, isolated.excluded_nodes
        self._added = isolated.added

    async def _drain(self) -> DrainResult:
        began = workflow.now()
        for tries in count():
            # After a failed try the job may be as we left it: what sensors tell of it can be our own doing.
            plan = await self._prepare(untouched=tries == 0 and not self._forgotten)
            await self._drain_nodes(plan)
            self._enter("draining")
            message = DrainInput(
                job=self._job,
                attempt=self._failed,
                recovery_id=workflow.info().workflow_id,
                reason=clip(f"relight: {plan.because}"),
                tries=tries,
                adopt=self._adopts(),
            )
            self._touched = True
            try:
                drained = await runbook.drain_job(message)
            except StepFailed as failed:
                await self._after_failure(failed, tries + 1, began, Outcome.STOPPED)
                continue
            self._drained = drained
            self._note(f"drain_job: {drained.summary or drained.how}")
            if drained.how != "running":
                self._mark(acted=drained.accepted_at or workflow.now())
            return drained
        raise AssertionError("count() does not end")

    async def _drain_nodes(self, plan: Plan) -> None:
        """Starts the drains of the plan. Each asks the guard itself, and the job does not wait for them."""
        for node in plan.drained_nodes:
            if node not in self._asked_to_drain:
                self._asked_to_drain = (*self._asked_to_drain, node)
                self._note(await start_drain(node, self._job, self._diagnosis, self._start.guard_id))

    async def _wait_nodes_free(self, drained: DrainResult) -> None:
        lost = self._confirmation.nodes_lost if self._confirmation else ()
        said = await runbook.wait_nodes_free(self._job, drained.attempt, lost)
        self._note(f"wait_nodes_free: {said}")

    async def _locate_again(self) -> None:
        """Training may have saved once more, or broken off while saving, since the plan was made."""
        self._enter("locating")
        found = await self._locate("Find the newest checkpoint that can be used")
        if found is None and self._planned is None:
            return  # nobody could look, and the plan said so
        if found is None:
            raise Ended(Outcome.HELD, "the checkpoints could not be looked at any more")
        if found.name is None and not found.empty:
            raise Ended(Outcome.HELD, f"no checkpoint can be used: {found.summary}")
        self._checkpoint = found
        worse = self._planned is None or _resume_step(found) < _resume_step(self._planned)
        if worse or _another_way(found, self._planned):
            self._planned = found  # that is another plan, which a person may have to see first

    async def _steer(self, drained: DrainResult) -> None:
        """Leads the job to the checkpoint, if the plan says so."""
        began = workflow.now()
        for tries in count():
            found = self._checkpoint
            if found is None or found.name is None or not _steers(self._present_plan()):
                return
            if not _steers(await self._gate(untouched=tries == 0)):
                return
            self._enter("steering")
            message = SteerInput(
                job=self._job,
                attempt=drained.attempt,
                recovery_id=workflow.info().workflow_id,
                checkpoint=CheckpointRef(name=found.name, step=found.step),
                diverged_from=self._start.diverged_from,
                tries=tries,
            )
            try:
                steered = await runbook.steer_checkpoint(message)
            except StepFailed as failed:
                await self._after_failure(failed, tries + 1, began, Outcome.HELD)
                continue
            self._note(f"steer_checkpoint: {steered.summary}")
            return

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
                readmitted=self._start.readmitted,
                environment=environment(self._job, self._checkpoint),
                recovery_id=workflow.info().workflow_id,
                tries=tries,
            )
            try:
                self._resubmitted = await runbook.resubmit(message)
            except StepFailed as failed:
                await self._after_failure(failed, tries + 1, began, Outcome.HELD)
                continue
            if message.environment:  # the held attempt was cancelled for it, and its end means nothing
                self._drained = drained.model_copy(update={"how": "resubmit"})
            self._note(f"resubmit: {self._resubmitted.summary or self._resubmitted.attempt.label}")
            return

    async def _verify_running(self, drained: DrainResult) -> RunningResult:
        self._enter("verifying")
        attempt = self._resubmitted.attempt if self._resubmitted else drained.attempt
        running = await runbook.verify_running(self._verify_input(attempt))
        self._running = running
        self._mark(running=running.started_at)
        self._note(f"verify_running: {running.summary or names(running.nodes)}")
        return running

    async def _verify_resume(self, running: RunningResult) -> VerifyResult:
        verified = await self._unless_it_hangs(running.attempt, self._verify_input(running.attempt))
        self._verified = verified
        self._note(f"verify_resume: {verified.verdict}, {verified.summary}")
        if verified.verdict != "resumed":
            await self._did_not_resume(running, verified)
        failed_at = self._failed_at()
        if failed_at is None or (verified.passed_step or 0) > failed_at or verified.verdict == "resumed":
            self._mark(productive=verified.at or workflow.now())
        return verified

    async def _unless_it_hangs(self, attempt: Attempt, message: VerifyInput) -> VerifyResult:
        """The verdict of `verify_resume`.

        Raises:
            Ended: a sensor says that the new attempt hangs; the next recovery finds out whether it does.
        """
        step = asyncio.create_task(runbook.verify_resume(message))

        def hang() -> Anomaly | None:
            told = self._hang_after
            return told if told is not None and same_execution(attempt, told.attempt) else None

        try:
            await workflow.wait_condition(lambda: step.done() or hang() is not None)
            if not step.done() and (told := hang()) is not None:
                said = told.evidence[0].text if told.evidence else told.says
                raise Ended(Outcome.FAILED_AGAIN, clip(f"the new attempt hangs, too: {said}"))
            return await step
        finally:
            step.cancel()  # of one that is done this does nothing

    async def _did_not_resume(self, running: RunningResult, verified: VerifyResult) -> None:
        """Does what policy says of this verdict; returns if it is accepted."""
        reason = f"{verified.verdict}: {verified.summary}"
        if verified.verdict == "diverged":
            self._diverged_from = aftermath.loaded(verified, self._checkpoint)
        match then(verified.verdict, self._job.policy):
            case Then.ACCEPT:
                self._diverged_from = None
            case Then.HOLD:
                await self._stop_attempt(running, reason)
            case Then.REPORT:
                if self._diverged_from is not None:
                    at = verified.at or workflow.now()
                    anomaly = aftermath.divergence(
                        running.attempt, verified, self._diverged_from, self._failed_at(), at
                    )
                    await self._tell("report_anomaly", anomaly)
                raise Ended(Outcome.FAILED_AGAIN, reason)

    async def _stop_attempt(self, running: RunningResult, reason: str) -> None:
        """Ends the new attempt and leaves the job held, for a person."""
        began = workflow.now()
        for tries in count():
            await self._gate(untouched=tries == 0)
            self._enter("draining")
            message = DrainInput(
                job=self._job,
                attempt=running.attempt,
                recovery_id=workflow.info().workflow_id,
                reason=clip(f"relight: {reason}"),
                tries=tries,
            )
            try:
                drained = await runbook.drain_job(message)
            except StepFailed as failed:
                await self._after_failure(failed, tries + 1, began, Outcome.FAILED_AGAIN)
                continue
            self._drained, self._stopped_again = drained, True
            self._note(f"drain_job: {drained.summary or drained.how}")
            if drained.how == "resubmit":
                reason += "; it cannot be requeued, so it was cancelled: submit it anew"
            raise Ended(Outcome.HELD, reason)

    def _verify_input(self, attempt: Attempt) -> VerifyInput:
        sent = self._resubmitted
        # Taken over while it ran already, a job may have resumed from anywhere, on any node.
        checkpoint = self._checkpoint if sent else None
        return VerifyInput(
            job=self._job,
            attempt=attempt,
            excluded_nodes=self._excluded if sent else (),
            log_marks=sent.log_marks if sent else (),
            failed_at=self._failed_at(),
            resumable_from=checkpoint.step if checkpoint else None,
            checkpoint=checkpoint.name if checkpoint else None,
            failed_loss=self._diagnosis.progress.loss if self._diagnosis.progress else None,
        )

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
            plan = self._present_plan()
            if self._paused:
                await workflow.wait_condition(
                    lambda: not self._paused or self._reason_to_end(untouched=untouched) is not None
                )
            elif plan.needs_approval_because and not self._approval.covers(plan):
                await self._ask(plan, untouched=untouched)
            elif plan.steps and not self._permit.is_clear:
                await self._tell_waiting()
                await self._await_permit(plan, untouched=untouched)
            else:
                await self._tell_waiting()
                return plan

    async def _await_permit(self, plan: Plan, *, untouched: bool) -> None:
        """Asks the cluster's guard, and waits until something changes or it is to be asked again.

        The first permit is asked for before anything was changed, so that its refusal ends nothing half way.
        """
        permit, known = self._permit, self._permit.version
        if line := await permit.ask(for_recovery(self._job, self._diagnosis)):
            self._note(line)
        if permit.waits:
            self._enter("awaiting-permit")
        try:
            await workflow.wait_condition(
                lambda: (
                    permit.version != known
                    or self._present_plan() != plan
                    or self._paused
                    or self._reason_to_end(untouched=untouched) is not None
                ),
                timeout=permit.ask_again,
                timeout_summary=clip(f"ask {permit.guard_id} for a permit again"),
            )
        except TimeoutError:
            if permit.is_overdue(self._job.policy.approval_deadline):
                raise Ended(Outcome.EXPIRED, f"no permit in time: {permit.reason}") from None
        if permit.refused:
            raise Ended(Outcome.STOPPED, f"the guard refuses a permit: {permit.reason}")
        if permit.is_clear and self._state == "awaiting-permit":
            self._enter("planning")

    async def _ask(self, plan: Plan, *, untouched: bool) -> None:
        """Waits for a person's decision on this plan, until it is another plan."""
        patience = self._job.policy.approval_deadline
        cool = cool_down_until(self._job, self._diagnosis, self._start.ledger)
        cools = cool is not None and workflow.now() < cool < workflow.now() + patience
        self._approval.ask(plan, workflow.now() + patience)
        self._enter("awaiting-approval")
        self._notices.send(
            plan_waits(
                workflow.info().workflow_id, self._job, self._diagnosis, plan, self._approval.needed, patience
            )
        )
        await self._tell_waiting()
        try:
            await workflow.wait_condition(
                lambda: (
                    self._approval.decision is not None
                    or self._present_plan() != plan
                    or self._reason_to_end(untouched=untouched) is not None
                ),
                timeout=cool - workflow.now() if cool is not None and cools else patience,
                timeout_summary=clip(
                    f"{'cool-down' if cools else 'deadline for approving'} plan {plan.digest}"
                ),
            )
        except TimeoutError:
            if cools:
                return  # without the cool-down it may be a plan that nobody needs to approve
            if not self._silence_is_consent():
                raise Ended(
                    Outcome.EXPIRED, f"nobody decided on plan {plan.digest} within {patience}"
                ) from None
            self._approval.consent(f"nobody within {patience}: the policy goes on then")
        if reason := self._reason_to_end(untouched=untouched):
            raise reason
        decision = self._approval.close()
        self._enter("planning")
        if decision is not None and decision.approved:
            self._mark(approved=workflow.now())
        elif decision is not None:
            who = decision.by or "somebody"
            raise Ended(Outcome.REJECTED, f"{who}: {decision.reason}" if decision.reason else f"by {who}")

    def _reason_to_end(self, *, untouched: bool) -> Ended | None:
        """Why the recovery must leave the job alone; None when it may go on."""
        if self._unwatched is not None:
            return Ended(Outcome.ABANDONED, f"unwatched by {self._unwatched.by or 'somebody'}")
        if not untouched or (self._drained is not None and self._drained.how == "resubmit"):
            return None
        expected = self._drained.attempt if self._drained else self._failed
        # While a person is asked, a job that the scheduler itself started again needs no restart any more.
        adopt = self._drained is None and self._adopts() and not self._approval.is_asked
        for report in self._reports:
            if why := step_back(report, expected, adopt=adopt):
                return Ended(Outcome.ABANDONED, why, hands_off=True)
            if self._drained is None and self._went_on(report):
                return Ended(Outcome.REFUTED, "training went on by itself")
        return None

    def _went_on(self, report: AttemptReport) -> bool:
        """A hang that makes progress is none: a further step, or any step of one that had made none yet."""
        before = self._diagnosis.progress
        return (
            self._diagnosis.symptom is Symptom.HANG
            and report.event is AttemptEvent.PROGRESS
            and same_execution(self._failed, report.attempt)
            and report.progress is not None
            and (
                hangs_at_its_start(self._diagnosis)
                or (before is not None and report.progress.step > before.step)
            )
        )

    def _adopts(self) -> bool:
        """The scheduler may have put the job back into the queue by itself, as it does when a node dies."""
        lost = self._confirmation is not None and bool(self._confirmation.nodes_lost)
        return lost or self._diagnosis.cause is Cause.NODE_FAILURE

    # When something fails

    async def _after_failure(self, failed: StepFailed, tries: int, began: datetime, outcome: Outcome) -> None:
        """Waits before the next try of a mutating step, or ends the runbook with this outcome."""
        self._note(f"{failed.step}, try {tries}: {failed.text}")
        if not may_try_again(failed, tries, began):
            raise because_of(failed, outcome, f"{failed.step} failed: {failed.text}") from failed
        await workflow.sleep(pause_after(tries), summary=clip(f"{failed.step}, try {tries}: {failed.text}"))

    def _is_half_way(self) -> bool:
        """The job was taken off its nodes, and did not start again, or was taken off again."""
        off = self._drained is not None and self._drained.how != "running"
        return off and (self._resubmitted is None or self._stopped_again)

    async def _left_safe(self, ended: Ended) -> Ended:
        """The end, once a job that is half way is held."""
        return await self._hold(ended) if self._is_half_way() and not ended.hands_off else ended

    async def _hold(self, ended: Ended) -> Ended:
        """Leaves the job held, so that it does not start by itself in a state that nobody looked at."""
        held = ended.outcome is Outcome.HELD
        reason = ended.reason if held else f"{ended.outcome.value}: {ended.reason}"
        message = HoldInput(
            job=self._job,
            attempt=self._drained.attempt if self._drained else self._failed,
            recovery_id=workflow.info().workflow_id,
            reason=clip(reason),
        )
        began = workflow.now()
        for tries in count(1):
            try:
                said = await runbook.hold_job(message)
            except StepFailed as failed:
                self._note(f"hold_job, try {tries}: {failed.text}")
                if failed.kind == ATTEMPT_CHANGED:
                    return Ended(Outcome.ABANDONED, failed.text, hands_off=True)
                if not may_try_again(failed, tries, began):
                    return Ended(Outcome.HELD, f"{reason}; hold_job failed too: {failed.text}")
                await workflow.sleep(pause_after(tries), summary=clip(f"hold_job: {failed.text}"))
            else:
                self._note(f"hold_job: {said}")
                break
        return Ended(Outcome.HELD, reason)

    # The plan, and people's word on it

    def _plan(self) -> Plan | None:
        """What is planned, by what is known now; None before the fault was confirmed and after the end."""
        if self._confirmation is None or self._state == "confirming":
            return None
        return make_plan(
            self._job,
            self._diagnosis,
            self._confirmation,
            self._start.ledger,
            self._mode,
            self._planned,
            cannot_exclude=self._cannot_exclude,
            diverged_from=self._start.diverged_from,
            readmitted=self._start.readmitted,
            guarded=bool(self._start.guard_id),
            now=workflow.now(),
        )

    @property
    def _mode(self) -> Mode:
        """The job's mode, unless the whole cluster observes."""
        return Mode.OBSERVE if self._permit.observes else self._job.mode

    def _present_plan(self) -> Plan:
        plan = self._plan()
        if plan is None:
            raise AssertionError("confirm_fault comes before the plan")
        return plan

    def _diagnose_again(self) -> None:
        """A plan changes only with what matters: people should not approve a moving target."""
        again = diagnose(self._anomalies, self._start.job)
        again = again.model_copy(update={"progress": again.progress or self._diagnosis.progress})
        lost = self._confirmation.nodes_lost if self._confirmation else ()
        again = explained_by_loss(again, lost)
        if _essence(again) == _essence(self._diagnosis):
            self._diagnosis = self._diagnosis.model_copy(update={"evidence": again.evidence})
            return
        self._diagnosis = again
        self._note(f"the diagnosis is now {again.symptom.value}, {again.cause.value}")

    def _refusal(self, decision: Decision) -> str:
        """Why this decision cannot be taken; empty when it can."""
        if self._outcome is not None:
            return f"the recovery has ended: {self._outcome.outcome.value}"
        plan = self._plan()
        if self._approval.plan is not None and plan is not None and self._approval.plan != plan:
            return f"the plan has just changed, to {plan.digest}"
        return self._approval.refusal(decision)

    def _take(self, decision: Decision) -> DecisionResult:
        word = "approved" if decision.approved else "rejected"
        who = decision.by or "somebody"
        refusal = self._refusal(decision) or self._approval.take(decision, workflow.now())
        if refusal:
            self._note(f"refused: {word} by {who}: {refusal}")
            return DecisionResult(accepted=False, message=refusal, recovery_id=workflow.info().workflow_id)
        message = f"plan {self._present_plan().digest} {word}{self._approval.still_wanted()}"
        self._note(f"{message} by {who}: {decision.reason}" if decision.reason else f"{message} by {who}")
        return DecisionResult(accepted=True, message=message, recovery_id=workflow.info().workflow_id)

    def _silence_is_consent(self) -> bool:
        """In observe mode it never is: nothing is changed there without a person."""
        return self._mode is Mode.ACT and self._job.policy.on_expiry is OnExpiry.PROCEED

    def _hear_decision(self, payload: object, *, approved: bool) -> None:
        decision = read(Decision, payload)
        if decision is None:
            self._note(f"refused: {'an approval' if approved else 'a rejection'} that cannot be read")
        else:
            self._take(decision.model_copy(update={"approved": approved}))

    # What others see

    def _resumed_at(self) -> int | None:
        """The step that the new attempt went on from: its checkpoint's, or else the first one it printed."""
        first = self._verified.first_step if self._verified else None
        loaded = self._checkpoint.step if self._checkpoint and self._resubmitted else None
        return loaded if first is not None and loaded is not None and loaded <= first else first

    def _failed_at(self) -> int | None:
        return self._diagnosis.progress.step if self._diagnosis.progress else None

    def _mark(self, **times: datetime) -> None:
        self._times = self._times.model_copy(update=times)

    def _note(self, line: str) -> None:
        self._log = [*self._log, clean_text(line)][-MAX_LOG:]
        self._show()

    def _enter(self, state: str) -> None:
        self._state = state
        shown = state if self._outcome is None else self._outcome.outcome.value
        show(search_attributes(self._job, shown, self._diagnosis.cause))
        self._show()

    def _show(self) -> None:
        ended = self._outcome
        self._details.show(
            recovery_details(
                workflow_id=workflow.info().workflow_id,
                job_id=self._job.attempt.job_id,
                state=self._permit.headline() if self._state == "awaiting-permit" else self._state,
                mode=self._job.mode,
                paused=self._paused or self._permit.paused,
                diagnosis=self._diagnosis,
                confirmation=self._confirmation,
                plan=self._plan(),
                deadline=self._approval.deadline,
                log=self._log,
                ending=f"{ended.outcome.value}, {ended.reason}" if ended else "",
                policy=self._job.policy,
                approvals=self._approval.approvals,
                outcome=ended.outcome if ended else None,
            )
        )

    async def _tell_waiting(self) -> None:
        """Tells the monitor when waiting for a person begins, and when it ends."""
        if self._approval.is_asked is not self._told_waiting:
            self._told_waiting = self._approval.is_asked
            news = RecoveryNews(recovery_id=workflow.info().workflow_id, state=self._state)
            await self._tell("recovery_news", news)

    async def _tell(self, signal: str, message: Model) -> None:
        await tell(self._start.monitor_id, signal, message)

    def _make_outcome(self, ended: Ended) -> RecoveryOutcome:
        plan = self._plan()
        sent = self._resubmitted
        latest = self._running or sent or self._drained
        new = latest.attempt if latest is not None and latest.attempt != self._failed else None
        return RecoveryOutcome(
            recovery_id=workflow.info().workflow_id,
            outcome=ended.outcome,
            reason=ended.reason,
            symptom=self._diagnosis.symptom,
            cause=Cause.NODE_FAILURE if self._lost_since else self._diagnosis.cause,
            action=plan.action if plan else Action.NONE,
            attempt=self._failed,
            new_attempt=new,
            excluded_nodes=self._isolated,
            newly_excluded=tuple(dict.fromkeys((*self._added, *sent.added))) if sent else (),
            readmitted_nodes=self._start.readmitted if sent else (),
            drained_nodes=self._nodes_drained,
            times=self._times,
            lost_from_step=self._failed_at(),
            resumed_at_step=self._resumed_at(),
            approved_by=self._approval.approved_by,
            root_key=self._diagnosis.root_key,
            steps_replayed=aftermath.steps_replayed(self._failed_at(), self._resumed_at()),
            gpu_hours_lost=None
            if self._drained is None  # nothing was done, and the fault may still go on
            else aftermath.gpu_hours_lost(
                self._diagnosis, self._confirmation, self._times, self._trained_to(), workflow.now()
            ),
            verdict=self._verified.verdict if self._verified else "",
            diverged_from=self._diverged_from,
            where=self._lost_since or self._diagnosis.where,
        )

    def _trained_to(self) -> int | None:
        """How far the new attempt came; before it ran, where it will resume."""
        seen = (self._verified.passed_step if self._verified else None) or self._resumed_at()
        return seen if seen is not None or self._checkpoint is None else self._checkpoint.step


def _resume_step(found: LocateResult) -> int:
    """For comparing: no checkpoint is worse than any."""
    if found.name is None:
        return -1
    return found.step if found.step is not None else 0


def _steers(plan: Plan) -> bool:
    return any(step.name == STEP for step in plan.steps)


def _another_way(found: LocateResult, planned: LocateResult | None) -> bool:
    """The job would now go to a wrong checkpoint that the plan does not speak of."""
    if planned is None or found.own is None:
        return False
    return (found.own, found.cannot_steer) != (planned.own, planned.cannot_steer)


def _essence(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What of a diagnosis a plan depends on."""
    return (
        diagnosis.symptom,
        diagnosis.cause,
        diagnosis.retryable,
        diagnosis.nodes,
        diagnosis.where,
        diagnosis.root_key,
        diagnosis.signs,
        diagnosis.progress.step if diagnosis.progress else None,
    )


def _who(payload: object) -> str:
    note = read(Note, payload)
    return (note.by if note else "") or "somebody"
