"""What a monitor knows of its job, and how every message changes it. Pure: no clock, no Temporal call.

The workflow around it only moves messages in and signals out: all of this can be tested without a server.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Diagnosis,
    JobInfo,
    JobState,
    Model,
    Outcome,
    Progress,
    RecoveryOutcome,
    Role,
    Source,
    Symptom,
    TrainingJob,
    clean_text,
)
from relight.contracts.messages import (
    LEASE,
    AttemptEvent,
    AttemptReport,
    EndReason,
    ModeChange,
    MonitorState,
    MonitorStatus,
    Note,
    RecoveryNews,
    RecoveryRecord,
)
from relight.contracts.steps import CheckpointLook, PollResult
from relight.diagnosis.verdict import diagnose
from relight.policy import exclusions
from relight.policy.attempts import Relation, relation, same_execution
from relight.policy.gates import count_rules, last_restart
from relight.policy.ledger import note_failure
from relight.policy.plan import nothing_to_recover
from relight.policy.saves import remember, trouble

MAX_SEEN = 1000
MAX_INBOX = 50
MAX_EVIDENCE = 6
"""Evidence kept of one anomaly: a full inbox stays far below the size that Temporal allows an input."""
MAX_SUSPECTS = 64
MAX_RECORDS = 20
MAX_NOTICED = 5
MAX_SIGNAL_NAME = 60
"""Characters of a signal's name that people are told."""
MORE_PATIENCE = 1.5
"""Factor on the silence that is allowed, after each suspected hang that was none."""
MOST_PATIENCE = 8.0
MAX_FORWARDED = 50
"""Late anomalies that one recovery is told of."""

PROMPT_SETTLE = timedelta(milliseconds=300)
"""Settle window once a trusted source has spoken and a cause is known."""
TERMINAL_SETTLE = timedelta(seconds=1)
"""Settle window once a trusted source has spoken: the log may still tell why."""
SOON = timedelta(seconds=3)
"""When to look at the scheduler after an end whose reason is not known yet."""
GONE_AFTER = 2
"""Looks that find no such job before the monitor believes it."""

_ENDS = {
    JobState.COMPLETED: EndReason.COMPLETED,
    JobState.CANCELLED: EndReason.CANCELLED,
    JobState.TIMEOUT: EndReason.TIME_LIMIT,
    JobState.DEADLINE: EndReason.TIME_LIMIT,
}


class Forward(Model):
    """A signal to send to an open recovery."""

    recovery_id: str
    signal: str
    message: Model


class Memory:
    """The job and the state of one monitor. Both travel through continue-as-new; nothing else may."""

    def __init__(self, job: TrainingJob, state: MonitorState) -> None:
        self.job = job
        self.state = state
        self._seen = set(state.seen)
        """The same as `state.seen`, for looking up: thousands of signals may come at once."""
        self.forwards: list[Forward] = []
        """To be sent before the monitor renews itself."""

    # What is known

    @property
    def open_recovery(self) -> RecoveryRecord | None:
        """The recovery that is under way. There is one at a time: newer attempts wait for its end."""
        return self.state.active[0] if self.state.active else None

    def due(self) -> datetime | None:
        """When something is to be done next, if no message comes before."""
        times = [record.lease for record in self.state.active]
        if self.state.next_poll is not None:
            times.append(self.state.next_poll)
        if self._may_start() and self.state.settle_until is not None:
            times.append(self.state.settle_until)
        return min(times, default=None)

    def settled(self, now: datetime) -> bool:
        """The anomalies in the inbox shall now become a diagnosis."""
        until = self.state.settle_until
        return self._may_start() and until is not None and until <= now

    def readmitted(self, now: datetime) -> tuple[str, ...]:
        """The nodes that the next attempt may use again: relight excluded them long enough ago."""
        return exclusions.expired(self.state.excluded, self.job.policy.exclude_for, now)

    def status(self) -> MonitorStatus:
        """The answer to the query `status`."""
        state = self.state
        return MonitorStatus(
            job=self.job,
            state=self._state_word(),
            progress=state.progress,
            open_recoveries=tuple(record.recovery_id for record in state.active),
            signals=state.signals,
            duplicates=state.duplicates,
            stale=state.stale,
            missed=state.missed,
            refuted=state.refuted,
            noticed=(*state.noticed, *([state.unknown_signal] if state.unknown_signal else [])),
            renewals=state.renewals,
            malformed=state.malformed,
            lost=state.lost,
            recoveries=state.recoveries,
            end=state.end,
            end_detail=state.end_detail,
            paused=state.paused,
            last_restart=last_restart(state.ledger),
            would_have=state.would_have,
        )

    def _state_word(self) -> str:
        record = self.open_recovery
        if record is not None and record.state == "awaiting-approval":
            return "awaiting-approval"
        if record is not None:
            return "recovering"
        if self.state.end is not None:
            return "ended"
        if self.state.paused:
            return "paused"
        return "settling" if self.state.settle_until is not None else "watching"

    def _may_start(self) -> bool:
        return not (self.state.paused or self.state.active or self.state.end)

    # Messages

    def count_signals(self, count: int) -> None:
        """So many signals came, whatever they say."""
        self._set(signals=self.state.signals + count)

    def hear_malformed(self) -> None:
        """A signal came whose payload says nothing that can be understood."""
        self._set(malformed=self.state.malformed + 1)

    def hear_unknown_signal(self, name: str, known: Sequence[str], now: datetime) -> None:
        """A signal came whose name means nothing: most likely a person misspelt it. Only the latest is kept.

        Args:
            name: as it was sent; of any length and content.
            known: the names that there are.
            now: when it came.
        """
        shown = clean_text(name, MAX_SIGNAL_NAME)
        meant = get_close_matches(shown.lower(), known, 1)
        hint = f"did you mean {meant[0]}?" if meant else f"known are {', '.join(known)}"
        count = self.state.unknown_signals + 1
        more = f" (the latest of {count} such)" if count > 1 else ""
        note = f'{now:%Y-%m-%d %H:%M} UTC: a signal "{shown}" came, which has no meaning{more}: {hint}'
        self._set(unknown_signals=count, unknown_signal=note)

    def hear_anomaly(self, anomaly: Anomaly, now: datetime) -> None:
        """Takes an anomaly in: once, if it is about an attempt that still matters."""
        if anomaly.anomaly_id in self._seen:
            self._set(duplicates=self.state.duplicates + 1)
            return
        if self.open_recovery is None and self._is_declined(anomaly):
            self._set(duplicates=self.state.duplicates + 1)
            return
        how = relation(self.job.attempt, anomaly.attempt)
        record = self.open_recovery
        stale = how is Relation.OLDER or (how is Relation.OTHER and record is None)
        self._set(seen=self._remember(anomaly.anomaly_id), stale=self.state.stale + stale)
        if stale:
            return
        anomaly = anomaly.model_copy(
            update={
                "evidence": anomaly.evidence[:MAX_EVIDENCE],
                "suspects": anomaly.suspects[:MAX_SUSPECTS],
            }
        )
        if how is Relation.SAME and record is not None:
            self._forward_evidence(record, anomaly)
            return
        if how is Relation.NEWER and record is None:
            self._adopt(anomaly.attempt, (), now)
        self._put(anomaly)
        if record is not None and anomaly.symptom is Symptom.HANG:
            # The recovery waits for steps that will not come: it must hear of it, too.
            self._forward(record, "report_anomaly", anomaly)
        self._settle(now)

    def _is_declined(self, anomaly: Anomaly) -> bool:
        """A hang that goes on is reported again; a person who said no to it is not asked again."""
        progress = anomaly.progress or self._progress_for(anomaly.occurred_at)
        step = progress.step if progress is not None else None
        return anomaly.symptom is Symptom.HANG and any(
            r.outcome is not None
            and r.outcome.outcome in {Outcome.REJECTED, Outcome.EXPIRED}
            and r.outcome.symptom is Symptom.HANG
            and same_execution(r.outcome.attempt, anomaly.attempt)
            and r.outcome.lost_from_step == step
            for r in self.state.ended_recoveries
        )

    def hear_attempt(self, report: AttemptReport, now: datetime) -> None:
        """Takes in how an attempt goes. A repeat changes nothing."""
        how = relation(self.job.attempt, report.attempt)
        record = self.open_recovery
        if how is Relation.OLDER or (how is Relation.OTHER and record is None):
            self._set(stale=self.state.stale + 1)
            return
        if report.event is AttemptEvent.PROGRESS:
            self._hear_progress(report, how, now)
            return
        known = {(known.attempt, known.event, known.state) for known in self.state.attempts}
        if (report.attempt, report.event, report.state) in known:
            self._set(duplicates=self.state.duplicates + 1)
            return
        self._set(attempts=(*self.state.attempts, report)[-MAX_RECORDS:])
        if record is not None:
            self._forward(record, "report_attempt", report)
            return
        if how is Relation.NEWER:
            self._adopt(report.attempt, report.nodes, now)
        elif report.event is AttemptEvent.STARTED:
            self._refresh(report)
        if report.event is AttemptEvent.ENDED:
            self._hear_end(report, now)

    def hear_recovery_ended(self, outcome: RecoveryOutcome, now: datetime) -> None:
        """Closes a recovery, takes over the attempt it made, and draws the conclusion from its outcome."""
        record = next((r for r in self.state.active if r.recovery_id == outcome.recovery_id), None)
        if record is None:
            self._set(duplicates=self.state.duplicates + 1)
            return
        self._close(record.model_copy(update={"outcome": outcome, "state": "ended"}))
        self._set(
            ledger=note_failure(self.state.ledger, outcome, self.job.nodes),
            excluded=exclusions.after(self.state.excluded, outcome, now),
        )
        if outcome.outcome is Outcome.REFUTED:
            self._hear_refuted(outcome, record)
        if outcome.diverged_from is not None or outcome.outcome is Outcome.RESUMED:
            self._set(diverged_from=outcome.diverged_from)
        if outcome.outcome in {Outcome.HELD, Outcome.STOPPED}:
            self._end(EndReason.STOPPED, outcome.reason)
            return
        if outcome.new_attempt is not None and not self._is_current(outcome.new_attempt):
            self._adopt(outcome.new_attempt, (), now)
        self._catch_up(now)
        if outcome.outcome is not Outcome.RESUMED:
            self._look_soon(now)

    def _hear_refuted(self, outcome: RecoveryOutcome, record: RecoveryRecord) -> None:
        """The fault was none. After a hang that was none, a longer silence is allowed."""
        self._set(refuted=self.state.refuted + 1)
        if outcome.symptom is not Symptom.HANG or self.job.patience >= MOST_PATIENCE:
            return
        patience = min(MOST_PATIENCE, self.job.patience * MORE_PATIENCE)
        self.job = self.job.model_copy(update={"patience": patience})
        self._notice(
            f"{record.started:%Y-%m-%d %H:%M} UTC: a suspected hang was none ({outcome.reason}); silence of "
            f"{patience:.2g} times the usual length is allowed now"
        )

    def hear_recovery_lost(self, recovery_id: str, now: datetime) -> None:
        """A recovery is gone and never reported: terminated, or silent beyond its lease."""
        record = next((r for r in self.state.active if r.recovery_id == recovery_id), None)
        if record is None:
            return
        self._close(record.model_copy(update={"state": "lost"}))
        self._set(lost=self.state.lost + 1)
        self._catch_up(now)
        self._look_soon(now)

    def hear_recovery_news(self, news: RecoveryNews) -> None:
        """A recovery began or ended waiting for a person."""
        self._set(
            active=tuple(
                r.model_copy(update={"state": news.state}) if r.recovery_id == news.recovery_id else r
                for r in self.state.active
            )
        )

    def hear_mode(self, change: ModeChange) -> None:
        """Changes what relight may do by itself, for open recoveries too."""
        self.job = self.job.model_copy(update={"mode": change.mode})
        self.forward_to_all("set_mode", change)

    def hear_pause(self, paused: bool, note: Note) -> None:
        """Starts no recovery while paused, and open ones wait before their next mutating step."""
        self._set(paused=paused)
        self.forward_to_all("pause" if paused else "unpause", note)

    def hear_unwatch(self, note: Note) -> None:
        """Ends the monitor; an open recovery steps back before its next mutating step."""
        who = note.by or "somebody"
        self._end(EndReason.UNWATCHED, f"{who}: {note.reason}" if note.reason else f"by {who}")
        self.forward_to_all("unwatch", note)

    def forward_to_all(self, signal: str, message: Model) -> None:
        """Passes a person's word on to the open recovery, if there is one."""
        for record in self.state.active:
            self._forward(record, signal, message)

    # The monitor's own look at the scheduler

    def hear_look(self, result: PollResult, now: datetime) -> None:
        """Takes in what the scheduler says itself. No answer (`known` is None) concludes nothing."""
        if result.known is None or self.state.end is not None:
            return
        info = result.info
        seen = info.attempt(self.job.cluster) if info is not None else None
        how = relation(self.job.attempt, seen) if seen is not None else None
        if result.known is False or how in {Relation.OLDER, Relation.OTHER}:
            self._hear_unknown_job(result.text)
            return
        self._set(unknown_polls=0)
        if info is None or seen is None:
            return
        if info.state.is_over and not info.state.is_failure:
            self.hear_attempt(_report(info, seen, AttemptEvent.ENDED, now), now)
        elif info.state is JobState.RUNNING and (how is Relation.NEWER or info.nodes != self.job.nodes):
            self.hear_attempt(_report(info, seen, AttemptEvent.STARTED, now), now)
        if result.anomaly is not None:
            self._hear_fault_found(result.anomaly, info, seen, now)
        if result.checkpoints is not None and self.state.end is None:
            self._hear_checkpoints(result.checkpoints, info, now)

    def _hear_checkpoints(self, look: CheckpointLook, info: JobInfo, now: datetime) -> None:
        """Training goes on, and its checkpoints are not what they should be: people should know in time."""
        self._set(saves=remember(self.state.saves, look))
        attempt = self.job.attempt
        anomaly = trouble(self.state.saves, look, info, attempt, self.state.progress, now)
        if anomaly is None or anomaly.anomaly_id in self._seen or self.open_recovery is not None:
            return
        self._notice(f"{now:%Y-%m-%d %H:%M} UTC: {anomaly.says}")
        self.hear_anomaly(anomaly, now)  # it may explain a later fault

    def _notice(self, note: str) -> None:
        self._set(noticed=(*self.state.noticed, note)[-MAX_NOTICED:])

    def _hear_unknown_job(self, text: str) -> None:
        self._set(unknown_polls=self.state.unknown_polls + 1)
        if self.state.unknown_polls >= GONE_AFTER and not self.state.active:
            self._end(EndReason.GONE, text or "the scheduler knows no such job")

    def _hear_fault_found(self, anomaly: Anomaly, info: JobInfo, seen: Attempt, now: datetime) -> None:
        outcomes = [r.outcome for r in self.state.ended_recoveries if r.outcome and _is_of(r, seen)]
        heard_before = anomaly.anomaly_id in self._seen
        if outcomes and info.state.is_failure and not self.state.active:
            last = outcomes[-1]
            if heard_before or last.outcome in {Outcome.REJECTED, Outcome.EXPIRED}:
                # A recovery has dealt with this very attempt and did not bring it back: asking again is idle.
                detail = f"{info.state.value}; recovery {last.outcome.value}: {last.reason}"
                self._end(EndReason.STOPPED, detail)
                return
        if heard_before:
            return
        handled = (
            any(outcome.outcome is not Outcome.REFUTED for outcome in outcomes)
            or any(_is_of(r, seen) for r in self.state.active)
            or any(same_execution(seen, a.attempt) and a.role is Role.ROOT for a in self.state.inbox)
        )
        if not handled:
            self._set(missed=self.state.missed + 1)
        self.hear_anomaly(anomaly, now)

    def poll_at(self, when: datetime) -> None:
        """Sets the time of the next look at the scheduler."""
        if self.state.end is None:
            self._set(next_poll=when)

    def hear_snapshot_saved(self) -> None:
        """What it takes to submit the job again has been saved."""
        self._set(snapshot_saved=True)

    # Recoveries

    def diagnose(self) -> tuple[Diagnosis, tuple[Anomaly, ...]]:
        """One diagnosis for what is in the inbox, and the anomalies it was made from."""
        anomalies = self._of_this_attempt()
        diagnosis = diagnose(anomalies, self.job)
        if diagnosis.progress is None:
            diagnosis = diagnosis.model_copy(update={"progress": self._progress_for(diagnosis.occurred_at)})
        return diagnosis, anomalies

    def _progress_for(self, occurred: datetime) -> Progress | None:
        """Where training stood: an attempt that printed no step failed to pass the furthest earlier one."""
        if self.state.progress is not None:
            return self.state.progress
        if self.state.furthest_step is None:
            return None
        return Progress(step=self.state.furthest_step, at=occurred)

    def set_aside(self, diagnosis: Diagnosis, now: datetime) -> None:
        """Empties the inbox of a diagnosis that needs no recovery; what people may want to know is kept."""
        if diagnosis.symptom in {Symptom.SLOW, Symptom.DEGRADED}:
            self._notice(f"{diagnosis.detected_at:%Y-%m-%d %H:%M} UTC: {diagnosis.explanation}")
        self._set(inbox=(), settle_until=None)
        self._look_soon(now)

    def open(self, recovery_id: str, diagnosis: Diagnosis, now: datetime) -> RecoveryRecord:
        """Registers a recovery, before it is started: its end may be heard before the start is."""
        record = RecoveryRecord(
            recovery_id=recovery_id,
            anomaly_ids=diagnosis.anomaly_ids[:MAX_RECORDS],
            started=now,
            lease=now + LEASE + self._longest_wait(),
            attempt=self.job.attempt,
            symptom=diagnosis.symptom,
        )
        self._set(
            active=(*self.state.active, record),
            inbox=(),
            settle_until=None,
            recoveries=self.state.recoveries + 1,
            would_have=count_rules(self.job.policy, diagnosis, self.state.would_have),
        )
        return record

    def forget(self, record: RecoveryRecord) -> None:
        """The recovery had been started before: it is not ours to wait for."""
        self._set(
            active=tuple(r for r in self.state.active if r.recovery_id != record.recovery_id),
            duplicates=self.state.duplicates + 1,
            recoveries=self.state.recoveries - 1,
        )

    def needs_recovery(self, diagnosis: Diagnosis) -> bool:
        """A person's no to the same root of the same attempt stands; and some ends are wanted."""
        if nothing_to_recover(diagnosis):
            return False
        return not any(
            r.outcome is not None
            and _is_of(r, self.job.attempt)
            and r.outcome.outcome is Outcome.REJECTED
            and r.outcome.root_key == diagnosis.root_key
            for r in self.state.ended_recoveries
        )

    def sweep(self, now: datetime) -> None:
        """Gives up recoveries beyond their lease."""
        for record in self.state.active:
            if record.lease <= now:
                self.hear_recovery_lost(record.recovery_id, now)

    def _longest_wait(self) -> timedelta:
        policy = self.job.policy
        return policy.approval_deadline + policy.queue_window + policy.verify_window + policy.drain_window

    # How the above is done

    def _hear_progress(self, report: AttemptReport, how: Relation, now: datetime) -> None:
        record = self.open_recovery
        progress = report.progress
        if progress is None:
            return
        if record is not None:
            # A hang that goes on was none: its recovery must hear of it.
            if how is Relation.SAME and record.symptom is Symptom.HANG:
                self._forward(record, "report_attempt", report)
            elif how is not Relation.SAME:
                self._keep_for_later(report)
            return
        if how is Relation.NEWER:
            self._adopt(report.attempt, (), now)
        self._note_progress(progress)

    def _keep_for_later(self, report: AttemptReport) -> None:
        """The attempt that a recovery has started trains already: what it told counts once it is adopted.

        The sensor tells of its first step at once, and of the next ones much later.
        """
        known = self.state.ahead
        if known is None or report.at >= known.at:
            self._set(ahead=report)

    def _take_up_progress(self) -> None:
        """Takes over what the current attempt told while a recovery was open."""
        ahead = self.state.ahead
        if ahead is not None and ahead.progress is not None and self._is_current(ahead.attempt):
            self._set(ahead=None)
            self._note_progress(ahead.progress)

    def _note_progress(self, progress: Progress) -> None:
        if self.state.progress is None or progress.at >= self.state.progress.at:
            self._set(progress=progress)
        self._set(furthest_step=max(progress.step, self.state.furthest_step or progress.step))

    def _hear_end(self, report: AttemptReport, now: datetime) -> None:
        reason = _ENDS.get(report.state) if report.state is not None else None
        if reason is not None:
            self._end(reason, report.reason)
        elif report.state is not JobState.PREEMPTED and self.state.settle_until is None:
            # It failed, and no anomaly says why yet: ask the scheduler, in case none comes.
            self._look_soon(now)

    def _remember(self, anomaly_id: str) -> tuple[str, ...]:
        """The ids that have been seen, with this one; beyond a bound the oldest is forgotten."""
        seen = self.state.seen
        if len(seen) >= MAX_SEEN:
            self._seen.discard(seen[0])
            seen = seen[1:]
        self._seen.add(anomaly_id)
        return (*seen, anomaly_id)

    def _put(self, anomaly: Anomaly) -> None:
        inbox = [*self.state.inbox, anomaly]
        if len(inbox) > MAX_INBOX:
            # The last of the least telling: early anomalies and trusted roots say most about the cause.
            worst = max(range(len(inbox)), key=lambda i: (_telling(inbox[i]), i))
            del inbox[worst]
            self._set(overflow=self.state.overflow + 1)
        self._set(inbox=tuple(inbox))
        if anomaly.progress is not None and self._is_current(anomaly.attempt):
            self._note_progress(anomaly.progress)

    def _settle(self, now: datetime) -> None:
        """Sets when the inbox becomes a diagnosis. A cascade waits for its root: it explains nothing."""
        mine = self._of_this_attempt()
        roots = [a for a in mine if a.role is Role.ROOT]
        if not roots or self.state.active:
            self._set(settle_until=None)
            return
        window = self.job.policy.settle
        if any(_is_trusted(a) for a in mine):
            known = any(a.cause is not Cause.UNKNOWN for a in roots)
            window = min(window, PROMPT_SETTLE if known else TERMINAL_SETTLE)
        elif all(a.symptom is Symptom.HANG for a in roots):
            window = min(window, TERMINAL_SETTLE)  # silent for long already: what explains it was told before
        until = now + window
        if self.state.settle_until is not None:
            until = min(until, self.state.settle_until)
        self._set(settle_until=until)

    def _adopt(self, attempt: Attempt, nodes: Iterable[str], now: datetime) -> None:
        """Makes this attempt the current one; what is in the inbox of another is stale."""
        nodes = tuple(nodes) or self.job.nodes
        if attempt.job_id != self.job.attempt.job_id:  # submitted anew: another job to the scheduler
            self._set(snapshot_saved=False)
        self.job = self.job.model_copy(update={"attempt": attempt, "nodes": nodes})
        kept = tuple(a for a in self.state.inbox if relation(attempt, a.attempt) in _STILL_MATTERS)
        self._set(
            inbox=kept,
            stale=self.state.stale + len(self.state.inbox) - len(kept),
            progress=None,
            settle_until=None,
            unknown_polls=0,
        )
        self._take_up_progress()
        self._settle(now)

    def _refresh(self, report: AttemptReport) -> None:
        """The current attempt has started: its nodes are known, and its submit time has settled."""
        nodes = report.nodes or self.job.nodes
        self.job = self.job.model_copy(update={"attempt": report.attempt, "nodes": nodes})

    def _is_current(self, attempt: Attempt) -> bool:
        return same_execution(self.job.attempt, attempt)

    def _of_this_attempt(self) -> tuple[Anomaly, ...]:
        return tuple(a for a in self.state.inbox if self._is_current(a.attempt))

    def _close(self, record: RecoveryRecord) -> None:
        self._set(
            active=tuple(r for r in self.state.active if r.recovery_id != record.recovery_id),
            ended_recoveries=(*self.state.ended_recoveries, record)[-MAX_RECORDS:],
        )
        self.forwards = [f for f in self.forwards if f.recovery_id != record.recovery_id]

    def _catch_up(self, now: datetime) -> None:
        """After a recovery: takes in what was told of attempts and waited for its end."""
        for report in self.state.attempts:
            if relation(self.job.attempt, report.attempt) is Relation.NEWER:
                self._adopt(report.attempt, report.nodes, now)
            elif self._is_current(report.attempt) and report.event is AttemptEvent.STARTED:
                self._refresh(report)
        for anomaly in self.state.inbox:
            if relation(self.job.attempt, anomaly.attempt) is Relation.NEWER:
                self._adopt(anomaly.attempt, (), now)
        current = self._of_this_attempt()
        self._set(inbox=current, stale=self.state.stale + len(self.state.inbox) - len(current))
        self._settle(now)
        for report in self.state.attempts:
            if self._is_current(report.attempt) and report.event is AttemptEvent.ENDED:
                self._hear_end(report, now)

    def _forward_evidence(self, record: RecoveryRecord, anomaly: Anomaly) -> None:
        if len(record.anomaly_ids) >= MAX_FORWARDED:
            self._set(overflow=self.state.overflow + 1)
            return
        told = record.model_copy(update={"anomaly_ids": (*record.anomaly_ids, anomaly.anomaly_id)})
        self._set(active=tuple(told if r.recovery_id == record.recovery_id else r for r in self.state.active))
        self._forward(record, "report_anomaly", anomaly)

    def _forward(self, record: RecoveryRecord, signal: str, message: Model) -> None:
        self.forwards.append(Forward(recovery_id=record.recovery_id, signal=signal, message=message))

    def _look_soon(self, now: datetime) -> None:
        soon = now + min(SOON, self.job.policy.poll)
        if self.state.next_poll is None or soon < self.state.next_poll:
            self.poll_at(soon)

    def _end(self, reason: EndReason, detail: str) -> None:
        if self.state.end is None:
            self._set(end=reason, end_detail=detail, inbox=(), settle_until=None, next_poll=None)

    def _set(self, **changes: object) -> None:
        self.state = self.state.model_copy(update=changes)


_STILL_MATTERS = {Relation.SAME, Relation.NEWER}


def _is_of(record: RecoveryRecord, attempt: Attempt) -> bool:
    return record.attempt is not None and same_execution(record.attempt, attempt)


def _is_trusted(anomaly: Anomaly) -> bool:
    return any(e.source in {Source.SCHEDULER, Source.KERNEL, Source.NVML} for e in anomaly.evidence)


def _telling(anomaly: Anomaly) -> int:
    """0 is the most telling."""
    if anomaly.role is Role.ROOT:
        return 0 if _is_trusted(anomaly) else 1
    return 2 if anomaly.role is Role.CASCADE else 3


def _report(info: JobInfo, attempt: Attempt, event: AttemptEvent, now: datetime) -> AttemptReport:
    at = info.end_time if event is AttemptEvent.ENDED else info.start_time
    return AttemptReport(
        attempt=attempt,
        event=event,
        at=at or now,
        state=info.state,
        reason=info.reason,
        exit_code=info.exit_code,
        nodes=info.nodes,
    )
