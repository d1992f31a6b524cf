"""The watch over one job: takes in what logs and the scheduler say, and decides what to tell its monitor.

No I/O and no clock in here: `advance` gets a reading, a view and the time, and returns messages. What it must
remember is in `Memory`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from relight.contracts import Anomaly, Attempt, JobInfo, JobState, TrainingJob
from relight.contracts.messages import AttemptEvent, AttemptReport
from relight.diagnosis.assemble import Silence
from relight.diagnosis.findings import StepLine
from relight.diagnosis.verdict import SILENCE_DETECTORS
from relight.policy.attempts import Relation, relation
from relight.prometheus.faults import Fault
from sensor.detect.job_end import as_ended, describe, job_end, when_ended
from sensor.detect.launch import launch_failure
from sensor.detect.log_faults import after_it_failed, candidates, has_root, quotes, while_it_runs
from sensor.detect.machines import machine_faults
from sensor.detect.no_first_step import no_first_step
from sensor.detect.no_progress import no_progress
from sensor.detect.node_loss import lost_nodes, node_loss
from sensor.detect.silence import patient
from sensor.memory import Memory, Requeue
from sensor.messages import Message, anomaly_message, attempt_message
from sensor.reading import Reading, Seen
from sensor.view import View

log = structlog.get_logger("sensor.watch")

COALESCE = timedelta(seconds=1)
"""How long a cascade over ranks is collected, while the attempt still runs."""
PROGRESS_EVERY = timedelta(seconds=30)
"""Between two progress reports of a young attempt."""
PROGRESS_AT_LEAST_EVERY = timedelta(minutes=5)
"""Between two progress reports of an attempt that has trained for long: each is an action in Temporal."""
PROGRESS_SHARE = 20
"""In between it is the attempt's age divided by this."""
NODES_AFTER_REQUEUE = timedelta(seconds=5)
"""How long after a requeue a lost node of the old allocation is taken as its reason."""
FRESH = timedelta(seconds=10)
"""An answer of the scheduler that is older says nothing about now."""
MAX_CRASHES = 20
"""Reports of rank crashes in one attempt; findings after them are dropped."""
READ_WITHIN = timedelta(seconds=5)
"""How long the report of an end waits for the rest of the logs, which may say why."""

OnError = Callable[[str, Exception], None]


class JobWatch:
    """One job. Not thread-safe.

    Args:
        monitor: the workflow id of the job's monitor.
        job: the job as it is watched.
        memory: what an earlier watch knew; None: the watch begins now.
        on_error: told of a part that failed, with its name; the other parts go on.
    """

    def __init__(self, monitor: str, job: TrainingJob, memory: Memory | None, on_error: OnError) -> None:
        self.monitor = monitor
        self.job = job
        self.memory = memory if memory is not None else Memory(attempt=job.attempt, nodes=job.nodes)
        self._on_error = on_error
        self._told_other = False
        self._machine_faults: tuple[Fault, ...] = ()
        """Of the newest reading, if it says something new."""
        self._machines_told: tuple[Attempt, set[tuple[str, str, str]]] | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that the watch is about now."""
        return self.memory.attempt or self.job.attempt

    @property
    def log_patterns(self) -> tuple[str, ...]:
        """The files to follow: the job's output files, and those named for it."""
        info = self.memory.info
        own = (info.std_out, info.std_err) if info is not None else ()
        return tuple(dict.fromkeys(p for p in (*own, *self.job.log_paths) if p.startswith("/")))

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes whose state matters now."""
        requeue = self.memory.requeue
        return (*self.memory.nodes, *(requeue.nodes if requeue is not None else ()))

    @property
    def is_running(self) -> bool:
        """The scheduler said last that the attempt runs."""
        return self.memory.running_since is not None

    @property
    def is_blind(self) -> bool:
        """The attempt runs, and no step line of it was ever seen: only a log that falls silent is noticed."""
        return self.is_running and self.memory.trail.last is None

    @property
    def tasks_per_node(self) -> int | None:
        """Ranks on each node, where the numbers say it."""
        info = self.memory.info
        if self.job.tasks_per_node or info is None:
            return self.job.tasks_per_node
        if info.tasks_per_node:
            return info.tasks_per_node
        nodes = info.num_nodes or len(info.nodes)
        return info.num_tasks // nodes if nodes and info.num_tasks and info.num_tasks % nodes == 0 else None

    def waits_for_word(self, view: View) -> bool:
        """A finding waits for a word of the scheduler on the attempt that is newer than it."""
        return any(s.at > view.asked_at for s in candidates(self.memory))

    def change_job(self, job: TrainingJob) -> None:
        """Takes over what the monitor says of the job now: another policy, other files, a resubmission."""
        how = relation(self.attempt, job.attempt)
        if how is Relation.NEWER or (how is Relation.OTHER and job.attempt != self.job.attempt):
            self.memory.begin_attempt(job.attempt)
            self._told_other = False
        self.job = job

    def hear_machines(self, faults: Sequence[Fault]) -> None:
        """What Prometheus says of the attempt's GPUs now; each fault is told once in an attempt."""
        known = (self.attempt, {(f.name, f.node, f.gpu) for f in faults})
        if known != self._machines_told:
            self._machine_faults = tuple(faults)
            self._machines_told = known

    def advance(self, reading: Reading, view: View, now: datetime) -> list[Message]:
        """Takes in one look at the logs and the scheduler's newest answer; returns what to tell."""
        messages: list[Message] = []
        for seen in reading.seen:
            self._guard("events", self._hear_event, seen)
        if reading.grew and self.memory.trail.last is None:
            self.memory.written_at = reading.began
        self._guard("attempt", self._hear_scheduler, view, now, messages)
        self._guard("launch", self._judge_launch, now, messages)
        self._guard("node-loss", self._judge_nodes, view, now, messages)
        if self._all_is_read(reading, now):
            self._guard("log-faults", self._judge_findings, view, now, messages)
            self._guard("job-end", self._judge_end, view, now, messages)
        self._guard("machines", self._tell_machines, now, messages)
        self._guard("course", self._judge_course, reading, view, now, messages)
        self._guard("no-progress", self._judge_silence, reading, view, now, messages)
        self._guard("progress", self._tell_progress, now, messages)
        return messages

    def _guard(self, part: str, run: Callable[..., None], *args: object) -> None:
        """A bug in one part must not blind the others."""
        try:
            run(*args)
        except Exception as e:
            self._on_error(part, e)

    # What was seen

    def _hear_event(self, seen: Seen) -> None:
        memory = self.memory
        before = memory.trail.last
        if memory.trail.add(seen.event, seen.at, timed=seen.timed, historic=seen.historic):
            began = memory.info.start_time if memory.info is not None else None
            # One log may have several attempts: this one cannot have stood still before it began.
            memory.step_written = max(seen.written, began or seen.written) if seen.written else None
            self._hear_progress_after_silence()
        if before is None and memory.trail.last is not None and seen.timed and not seen.historic:
            memory.first_step, memory.first_step_at = memory.trail.last.step, seen.at

    def _hear_progress_after_silence(self) -> None:
        self.memory.hang_told = 0
        if self.memory.silence_told:
            self.memory.silence_told = False
            self.memory.progress_told_at = None  # the monitor must hear at once that it was no hang

    def _hear_scheduler(self, view: View, now: datetime, messages: list[Message]) -> None:
        memory = self.memory
        info = view.jobs.get(self.attempt.job_id)
        if info is None or not view.reachable:
            return
        seen = info.attempt(self.job.cluster)
        match relation(self.attempt, seen):
            case Relation.NEWER if info.completing:
                # The restart count is the next attempt's already, the submit time is still the old one's.
                memory.running_since = None
                return
            case Relation.NEWER:
                self._change_attempt(info, seen, now, messages)
            case Relation.SAME if seen != self.attempt and not info.completing:
                # It was read while the attempt before it was completing: then it had that one's submit time.
                memory.attempt = seen
            case Relation.OLDER | Relation.OTHER:
                if not self._told_other:
                    log.warning(
                        "job id reused", monitor=self.monitor, known=self.attempt.label, seen=seen.label
                    )
                self._told_other = True
                return
        memory.info = info = as_ended(info)
        memory.ended_at = (memory.ended_at or now) if info.state.is_over else None
        if info.state is JobState.RUNNING and not info.completing:
            memory.nodes = info.nodes or memory.nodes
            memory.running_since = memory.running_since or now
            memory.began_at = memory.began_at or _began(info, now)
            if not memory.started_told:
                memory.started_told = True
                began = info.start_time or now
                report = self._report(AttemptEvent.STARTED, began, JobState.RUNNING, nodes=info.nodes)
                messages.append(attempt_message(report))
        elif info.state is not JobState.UNKNOWN:
            memory.running_since = None
            memory.nodes = memory.nodes or info.nodes

    def _change_attempt(self, info: JobInfo, seen: Attempt, now: datetime, messages: list[Message]) -> None:
        """The job was requeued. What was read after the new attempt began belongs to that one."""
        memory = self.memory
        ran = memory.info is not None and not memory.end_told and memory.started_told
        if ran:
            memory.requeue = Requeue(
                attempt=self.attempt, nodes=memory.nodes, progress=memory.progress, seen_at=now
            )
            reason = f"the job was requeued and is {info.state.value} as attempt {seen.label}"
            report = self._report(AttemptEvent.ENDED, now, JobState.PENDING, reason=reason)
            messages.append(attempt_message(report))
        # Slurm's times are whole seconds. If the end of the old attempt was not heard, its last words may yet
        # come: then only what is clearly later is the new attempt's.
        began, before = info.start_time, memory.trail
        if began is not None and not memory.end_told:
            began += timedelta(seconds=1)
        if began is not None and memory.first_step_at is not None and memory.first_step_at > began:
            memory.first_step_at = None  # the new attempt's: the old one never made one
        memory.begin_attempt(seen)
        if began is not None:
            memory.trail.take_over(before, began)

    # What to make of it

    def _judge_launch(self, now: datetime, messages: list[Message]) -> None:
        memory = self.memory
        if memory.info is None or memory.launch_told:
            return
        anomaly = launch_failure(memory.info, self.attempt, now)
        if anomaly is not None:
            memory.launch_told = True
            messages.append(anomaly_message(anomaly))

    def _judge_nodes(self, view: View, now: datetime, messages: list[Message]) -> None:
        memory = self.memory
        if view.nodes is None or not view.reachable:
            return
        if (requeue := memory.requeue) is not None:
            lost = lost_nodes(requeue.nodes, view.nodes)
            if lost:
                anomaly = node_loss(lost, view.nodes, requeue.attempt, requeue.progress, now)
                messages.append(anomaly_message(anomaly))
            # While the old attempt completes, Slurm may still wait for a node that does not answer.
            completes = memory.info is not None and memory.info.completing
            if lost or (not completes and requeue.is_old(view.asked_at, NODES_AFTER_REQUEUE)):
                memory.requeue = None
        info = memory.info
        if info is None or not memory.started_told or (memory.end_told and not info.state.is_failure):
            return
        lost = lost_nodes(memory.nodes, view.nodes)
        if info.state.is_failure and info.state is not JobState.NODE_FAIL and not info.completing:
            lost = ()  # it failed by itself; a node that breaks later has nothing to do with it
        if set(lost) - set(memory.nodes_lost_told):
            memory.nodes_lost_told = tuple(sorted({*lost, *memory.nodes_lost_told}))
            messages.append(anomaly_message(node_loss(lost, view.nodes, self.attempt, memory.progress, now)))

    def _all_is_read(self, reading: Reading, now: datetime) -> bool:
        """Once the attempt is over, its logs are read to their ends before anything is made of that."""
        ended = self.memory.ended_at
        return ended is None or now - ended > READ_WITHIN or (reading.began >= ended and not reading.behind)

    def _judge_findings(self, view: View, now: datetime, messages: list[Message]) -> None:
        """Reports what the logs say of crashes, once the scheduler's word on the attempt is newer than that.

        A user who cancels a job makes its ranks die with tracebacks too.
        """
        memory, info = self.memory, self.memory.info
        if info is None:
            return
        if info.state.is_over or info.state is JobState.PENDING:
            # What an ended or requeued attempt printed last explains a failure, and nothing else.
            if info.state is JobState.PENDING:  # it may have started since
                memory.trail.keep_only(lambda s: s.at > view.asked_at)
            elif not info.state.is_failure:
                memory.trail.keep_only(lambda s: False)
            elif any(not s.told for s in memory.trail.sightings):
                where = (memory.nodes, self.tasks_per_node)
                self._report_crash(after_it_failed(memory, self.attempt, *where, now), messages)
            return
        ending = candidates(memory)
        if not ending or not self.is_running:
            return
        known = self._knows_after(max(s.at for s in ending), view, now)
        if known and now - min(s.at for s in ending) >= COALESCE:
            where = (memory.nodes, self.tasks_per_node)
            self._report_crash(while_it_runs(memory, self.attempt, *where, now), messages)

    def _report_crash(self, anomalies: list[Anomaly], messages: list[Message]) -> None:
        memory = self.memory
        memory.trail.mark_told()
        if memory.crashes_told >= MAX_CRASHES or not anomalies:
            return
        memory.crashes_told += 1
        messages += [anomaly_message(a) for a in anomalies]
        # The silence that follows is explained, unless only consequences were seen.
        memory.silence_told = memory.silence_told or has_root(anomalies)

    def _tell_machines(self, now: datetime, messages: list[Message]) -> None:
        """Only while it runs: after the end others may use the nodes."""
        faults, self._machine_faults = self._machine_faults, ()
        if self.is_running and faults:
            found = machine_faults(faults, self.attempt, self.memory.progress, now)
            messages += [anomaly_message(a) for a in found]

    def _judge_course(self, reading: Reading, view: View, now: datetime, messages: list[Message]) -> None:
        """Training goes on, but its numbers are wrong or it has become slow: told once in an attempt."""
        memory = self.memory
        stepped = any(isinstance(s.event, StepLine) and not s.historic for s in reading.seen)
        if not stepped or memory.course_told or not self.is_running:
            return
        if not (memory.trail.numbers.divergence() or memory.trail.pace.slowdown()):
            return
        if not self._knows_after(now - FRESH, view, now):
            return
        where = (memory.nodes, self.tasks_per_node)
        anomalies = while_it_runs(memory, self.attempt, *where, now, slow=True)
        memory.course_told = bool(anomalies)
        messages += [anomaly_message(a) for a in anomalies]

    def _judge_end(self, view: View, now: datetime, messages: list[Message]) -> None:
        memory, info = self.memory, self.memory.info
        if info is None or not info.state.is_over or memory.end_told:
            return
        memory.end_told = True
        anomaly = job_end(info, self.attempt, memory.progress, lost_nodes(memory.nodes, view.nodes), now)
        if anomaly is not None:
            messages.append(anomaly_message(anomaly))
        ended = when_ended(info, memory.progress, now)
        report = self._report(
            AttemptEvent.ENDED, ended, info.state, reason=describe(info), exit_code=info.exit_code
        )
        messages.append(attempt_message(report))

    def _judge_silence(self, reading: Reading, view: View, now: datetime, messages: list[Message]) -> None:
        """A silence is one only if the scheduler has just said that the attempt runs, and all is read."""
        memory = self.memory
        explained = memory.silence_told and not memory.hang_told
        if explained or not self.is_running or not self._knows_after(now - FRESH, view, now):
            return
        if reading.behind or not reading.files or candidates(memory):
            return
        anomaly = self._silence(reading, view, now)
        if anomaly is not None:
            memory.silence_told = True
            memory.hang_told += 1
            messages.append(anomaly_message(self._with_context(anomaly)))
            silence = Silence(since=anomaly.occurred_at)
            where = (memory.nodes, self.tasks_per_node)
            said = while_it_runs(memory, self.attempt, *where, now, silence=silence)
            messages += [anomaly_message(a) for a in said if a.detector not in SILENCE_DETECTORS]

    def _silence(self, reading: Reading, view: View, now: datetime) -> Anomaly | None:
        """The silence before or after the first step; a log that cannot be read may have gone on."""
        memory, policy = self.memory, patient(self.job)
        if memory.trail.last is not None:
            if memory.trail.step_file in reading.troubles:
                return None
            return no_progress(memory, policy, self.attempt, view.nodes, now)
        if reading.troubles:
            return None
        where = next(iter(self.log_patterns), "")
        return no_first_step(memory, policy, self.attempt, view.nodes, where, now)

    def _with_context(self, anomaly: Anomaly) -> Anomaly:
        """Quotes what else the logs said since the last progress."""
        context = [s for s in self.memory.trail.sightings if s.outlived == 0]
        return anomaly.model_copy(update={"evidence": (*anomaly.evidence, *quotes(context))})

    def _knows_after(self, moment: datetime, view: View, now: datetime) -> bool:
        """The scheduler's answer about this attempt was asked for after that moment, and not long ago."""
        return (
            view.reachable
            and self.attempt.job_id in view.jobs
            and not self._told_other
            and view.asked_at >= moment
            and now - view.asked_at <= FRESH
        )

    def _tell_progress(self, now: datetime, messages: list[Message]) -> None:
        memory, progress = self.memory, self.memory.progress
        if progress is None or memory.end_told or not memory.started_told:
            return
        told = memory.progress_told_at
        began = memory.began_at or now
        if told is not None and (progress.at <= told or now - told < progress_interval(now - began)):
            return
        memory.progress_told_at = now
        report = self._report(AttemptEvent.PROGRESS, progress.at, None)
        messages.append(attempt_message(report.model_copy(update={"progress": progress})))

    def _report(
        self,
        event: AttemptEvent,
        at: datetime,
        state: JobState | None,
        *,
        reason: str = "",
        exit_code: int | None = None,
        nodes: tuple[str, ...] = (),
    ) -> AttemptReport:
        return AttemptReport(
            attempt=self.attempt,
            event=event,
            at=at,
            state=state,
            reason=reason,
            exit_code=exit_code,
            nodes=nodes,
        )


def _began(info: JobInfo, now: datetime) -> datetime:
    """When the attempt began to run, as the scheduler says; by its clock, so no later than it is seen to."""
    return min(now, info.start_time) if info.start_time is not None else now


def progress_interval(age: timedelta) -> timedelta:
    """How often the progress of an attempt is told, by how long it has trained.

    A monitor needs it to see that a run got further, and people to see that it trains. What hurries does not
    wait for it: a fault is told with its progress, and the first progress after a suspected hang is told at
    once.
    """
    return min(max(PROGRESS_EVERY, age / PROGRESS_SHARE), PROGRESS_AT_LEAST_EVERY)
