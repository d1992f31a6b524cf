"""What a cluster's guard knows, and how every message changes it. Pure: no clock, no Temporal call.

The workflow around it only moves messages in and decisions out: all of this can be tested without a server.
Permits are given first come first served. A request that a limit of its own user or partition keeps waiting
does not keep the others waiting.
"""

from collections import Counter, deque
from datetime import datetime, timedelta
from itertools import islice

from relight.contracts.guard import (
    Breaker,
    BreakerReset,
    BreakerState,
    BreakerView,
    Budget,
    DrainGrant,
    FaultReport,
    GuardLimits,
    GuardState,
    GuardStatus,
    NodeReport,
    NodeView,
    Permit,
    PermitDecision,
    PermitKind,
    PermitRelease,
    PermitRequest,
    Waiting,
)
from relight.contracts.job import Mode
from relight.contracts.messages import ModeChange, Note
from relight.contracts.notice import Notice
from relight.policy import breaker as breakers
from relight.policy import incident as incidents
from relight.policy import node_ledger
from relight.policy.notices import breaker_tripped, incident_began

MAX_QUEUE = 1000
MAX_ENDED = 500
MAX_PERMITS = 1000
MAX_PARTITIONS = breakers.MAX_PARTITIONS
MAX_SHOWN = 50
"""Requests of the queue that the status names."""
MAX_LEASE = timedelta(days=14)
HOUR = timedelta(hours=1)

PAUSED = "cluster paused"
OBSERVES = "cluster mode"
AT_ONCE = "recoveries at once"
PER_HOUR = "recoveries per hour"
PER_USER = "recoveries per user"
DRAINS = "drains per hour"
SHARE = "share of the partition"
BREAKER = "circuit breaker"
INCIDENT = "incident"
STALE = "stale evidence"
ENDED = "permit given back"
QUEUE = "guard's queue"


def key_of(kind: PermitKind, holder: str) -> str:
    """Names a permit or a request in the guard's state."""
    return f"{kind.value}:{holder}"


class Guard:
    """The limits and the state of one cluster's guard. Both travel through continue-as-new."""

    def __init__(self, cluster: str, limits: GuardLimits, state: GuardState) -> None:
        self.cluster = cluster
        self.limits = limits
        self.state = state
        self.outbox: deque[PermitDecision] = deque()
        """To be sent to their holders, in order. A renewal would lose it: it must be empty by then."""
        self.news: deque[Notice] = deque()
        """What people are to be told; a renewal would lose it too."""
        self._unanswered: dict[str, None] = {}
        """Requests that the next `tick` grants, or tells what they wait for."""
        self._suspected: dict[str, None] = {}
        """Breakers that the next `tick` looks at: new faults were reported."""

    # Messages. They only record: `tick` is to follow once all that came together have been heard.

    def request(self, request: PermitRequest, now: datetime) -> None:
        """Takes a request in."""
        key = key_of(request.kind, request.holder)
        state = self.state
        held = state.permits.get(key)
        if held is not None:
            state.permits[key] = held.model_copy(update={"until": now + self._lease(request)})
            self._tell_granted(state.permits[key])
            return
        if key in state.ended:
            self._refuse(request, ENDED, "this permit has been given back: it is not given again")
            return
        waiting = state.queue.get(key)
        if waiting is None and len(state.queue) >= MAX_QUEUE:
            self._say(request, QUEUE, f"{MAX_QUEUE} requests wait already: ask again later", waits=True)
            return
        since = waiting.since if waiting is not None else now
        state.queue[key] = Waiting(request=request, since=since)  # keeps its place, where it had one
        self._unanswered[key] = None

    def release(self, release: PermitRelease, now: datetime) -> None:
        """A holder gives its permit back, or does not want one any more."""
        key = key_of(release.kind, release.holder)
        self._end(key, now)
        self.state.ended.pop(key, None)
        self.state.ended[key] = now
        while len(self.state.ended) > MAX_ENDED:
            del self.state.ended[next(iter(self.state.ended))]

    def forget(self, holder: str, now: datetime) -> None:
        """A holder is gone without a word: what it held or wanted is free again."""
        for kind in PermitKind:
            if self._end(key_of(kind, holder), now):
                self.state.counts.expired += 1

    def report(self, report: NodeReport, now: datetime) -> None:
        """Nodes are implicated in a fault: a strike for each; if they are many, `tick` trips the breaker."""
        state = self.state
        state.counts.reports += 1
        name = report.partition
        known = name in state.partitions or len(state.partitions) < MAX_PARTITIONS
        if name and report.partition_nodes is not None and known:
            state.partitions[name] = report.partition_nodes
        node_ledger.note_strikes(self.limits, state, report, now)
        if not report.faulty:
            return
        if breakers.is_stale(state, name, report.at):
            state.counts.stale += 1
        self._suspected |= dict.fromkeys(breakers.note_faults(self.limits, state, report, now))

    def report_fault(self, report: FaultReport, now: datetime) -> None:
        """A job failed by something that other jobs may share; if they are many, `tick` sees an incident."""
        incidents.note(self.limits, self.state, report, now)

    def pause(self, note: Note, now: datetime) -> None:
        """Nothing is granted any more, and every holder is told to change nothing more."""
        state = self.state
        state.paused, state.paused_at = True, state.paused_at or now
        state.paused_by, state.paused_reason = note.by, note.reason
        for permit in state.permits.values():
            self._tell_granted(permit)

    def unpause(self) -> None:
        """Ends the pause. Holders that were told of it go on."""
        state = self.state
        state.paused, state.paused_at = False, None
        state.paused_by = state.paused_reason = ""
        for permit in state.permits.values():
            self._tell_granted(permit)

    def set_mode(self, change: ModeChange, now: datetime) -> None:
        """Lets the whole cluster observe, or lets each job do again what its own mode allows."""
        state, observes = self.state, change.mode is Mode.OBSERVE
        state.observes = observes
        state.observes_at = (state.observes_at or now) if observes else None
        state.observes_by = change.by if observes else ""
        state.observes_reason = change.reason if observes else ""
        for permit in state.permits.values():
            self._tell_granted(permit)

    def reset(self, reset: BreakerReset, now: datetime) -> None:
        """A person closes breakers, and ends incidents. What was seen before does not act any more."""
        if not reset.partition:
            incidents.settle(self.state, now)
        breakers.reset(self.state, reset.partition, reset.by or "somebody", now)

    def clear_node(self, node: str) -> None:
        """A person has mended a node."""
        node_ledger.clear(self.state, node)

    def configure(self, limits: GuardLimits) -> None:
        """New limits; permits that are held stay."""
        self.limits = limits

    # Time

    def tick(self, now: datetime) -> None:
        """Lets time pass: leases end, breakers change, budgets become free, and requests are granted."""
        state = self.state
        for key in [key for key, permit in state.permits.items() if permit.until <= now]:
            self._end(key, now)
            state.counts.expired += 1
        state.recoveries = [at for at in state.recoveries if at > now - HOUR]
        state.drains = [grant for grant in state.drains if grant.at > now - HOUR]
        breakers.tick(self.limits, state, now)
        for scope in self._suspected:
            if breakers.trip(self.limits, state, scope, now):
                self.news.append(breaker_tripped(self.cluster, scope, state.breakers[scope].reason))
        self._suspected.clear()
        for incident in incidents.tick(self.limits, state, now):
            self.news.append(incident_began(self.cluster, incident))
        self._hold_back_drains()
        node_ledger.forget_old(self.limits, state, now)
        self._grant(now)
        for key in self._unanswered:
            if (still := state.queue.get(key)) is not None:
                self._say(still.request, still.gate, still.reason, waits=True)
        self._unanswered.clear()

    def due(self) -> datetime | None:
        """When time alone changes something next."""
        state = self.state
        times = [permit.until for permit in state.permits.values()]
        times += [
            when
            for breaker in state.breakers.values()
            if (when := breakers.next_change(self.limits, breaker)) is not None
        ]
        times += [incidents.next_change(self.limits, incident) for incident in state.incidents.values()]
        gates = {waiting.gate for waiting in state.queue.values()}
        if PER_HOUR in gates and state.recoveries:
            times.append(state.recoveries[0] + HOUR)
        if DRAINS in gates and state.drains:
            times.append(state.drains[0].at + HOUR)
        return min(times, default=None)

    # What others see

    def status(self, now: datetime) -> GuardStatus:
        """The answer to the query `status`."""
        state, limits = self.state, self.limits
        kinds = Counter(permit.request.kind for permit in state.permits.values())
        drained = sum(grant.nodes for grant in state.drains if grant.at > now - HOUR)
        granted = sum(at > now - HOUR for at in state.recoveries)
        known = dict.fromkeys([breakers.CLUSTER, *state.breakers, *state.partitions])
        return GuardStatus(
            cluster=self.cluster,
            paused=state.paused,
            paused_at=state.paused_at,
            paused_by=state.paused_by,
            paused_reason=state.paused_reason,
            observes=state.observes,
            observes_at=state.observes_at,
            observes_by=state.observes_by,
            observes_reason=state.observes_reason,
            permits=tuple(state.permits.values()),
            waiting=tuple(islice(state.queue.values(), MAX_SHOWN)),
            queued=len(state.queue),
            budgets=(
                Budget(name=AT_ONCE, used=kinds[PermitKind.RECOVERY], limit=limits.recoveries_at_once),
                Budget(name=PER_HOUR, used=granted, limit=limits.recoveries_per_hour),
                Budget(name=DRAINS, used=drained, limit=limits.drains_per_hour, unit="nodes"),
            ),
            breakers=tuple(self._breaker_view(scope, now) for scope in known),
            incidents=tuple(state.incidents.values()),
            lemons=tuple(view.node for view in self.lemons(now))[:MAX_SHOWN],
            limits=limits,
            counts=state.counts.model_copy(),
        )

    def nodes(self, now: datetime) -> tuple[NodeView, ...]:
        """The ledger, the worst node first."""
        return node_ledger.ranked(self.limits, self.state, now)

    def lemons(self, now: datetime) -> tuple[NodeView, ...]:
        """The nodes that failed too many different jobs, the worst first."""
        return node_ledger.lemons(self.limits, self.state, now)

    def _breaker_view(self, scope: str, now: datetime) -> BreakerView:
        return BreakerView(
            partition=scope,
            breaker=self.state.breakers.get(scope, Breaker()),
            nodes=len(breakers.faulty(self.limits, self.state, scope, now)),
            threshold=breakers.threshold(self.limits, self.state, scope),
        )

    # Granting

    def _grant(self, now: datetime) -> None:
        """Goes through the queue in order.

        A gate that is closed for one request is closed for those behind it that need the same; a user's or a
        partition's own limit holds back only its own.
        """
        state = self.state
        users = Counter(
            permit.request.user
            for permit in state.permits.values()
            if permit.request.kind is PermitKind.RECOVERY
        )
        stopped: dict[tuple[PermitKind, str], tuple[str, str]] = {}
        for key, waiting in list(state.queue.items()):
            request = waiting.request
            if self._refused(key, request):
                continue
            narrow = request.user if request.kind is PermitKind.RECOVERY else request.partition
            closed = stopped.get((request.kind, "")) or stopped.get((request.kind, narrow or "-"))
            if closed is None:
                closed = self._closed_gate(request, users)
                if closed is not None and closed[0] != INCIDENT:  # another cause need not wait
                    own = closed[0] in {PER_USER, SHARE, BREAKER}
                    stopped[request.kind, (narrow or "-") if own else ""] = closed
            if closed is not None:
                if (waiting.gate, waiting.reason) != closed:
                    state.queue[key] = waiting.model_copy(update={"gate": closed[0], "reason": closed[1]})
                continue
            del state.queue[key]
            self._give(key, request, now)
            users[request.user] += request.kind is PermitKind.RECOVERY

    def _give(self, key: str, request: PermitRequest, now: datetime) -> None:
        state = self.state
        permit = Permit(request=request, granted_at=now, until=now + self._lease(request))
        state.permits[key] = permit
        state.counts.granted += 1
        if request.kind is PermitKind.RECOVERY:
            state.recoveries.append(now)
        else:
            state.drains.append(DrainGrant(at=now, nodes=len(set(request.nodes))))
            breakers.begin_probe(state, request.partition, key)
        self._tell_granted(permit)

    def _refused(self, key: str, request: PermitRequest) -> bool:
        """Takes a request that waiting cannot help out of the queue, and refuses it for good."""
        why = self._refusal(request)
        if why is None:
            return False
        del self.state.queue[key]
        self.state.counts.stale += why[0] == STALE
        self._refuse(request, *why)
        return True

    def _refusal(self, request: PermitRequest) -> tuple[str, str] | None:
        """The gate that is closed for good, and why. Only for drains: a recovery does not harm other jobs."""
        if request.kind is PermitKind.RECOVERY:
            return None
        wanted, most = len(set(request.nodes)), self.limits.drains_per_hour
        if self._is_stale(request):
            return STALE, "the fault was seen before a person reset the breaker"
        if why := incidents.reason(self.state):
            return INCIDENT, f"{why}; no node is drained; `relight guard reset` ends it"
        if (opened := self._open_breaker(request)) is not None:
            return (
                BREAKER,
                f"it is open ({opened.reason}): no node is drained; `relight guard reset` closes it",
            )
        if not wanted:
            return DRAINS, "the request names no node"
        if wanted > most:
            return DRAINS, f"{wanted} nodes are more than the {most} that may be drained in an hour"
        if wanted > (share := self._share(request.partition)):
            return SHARE, f"{wanted} nodes are more than the {share} of it that may be drained at one time"
        return None

    def _hold_back_drains(self) -> None:
        """Tells the holders of drains when a breaker trips or an incident begins, and when they may go on.

        A node may be about to be drained under a permit from just before the trip.
        """
        for key, permit in self.state.permits.items():
            if permit.request.kind is not PermitKind.DRAIN:
                continue
            held_back = bool(self.state.incidents) or any(
                (breaker := self.state.breakers.get(scope)) is not None
                and breaker.state is not BreakerState.CLOSED
                and breaker.probe != key
                for scope in breakers.scopes(self.state, permit.request.partition)
            )
            if held_back is not permit.held_back:
                self.state.permits[key] = permit.model_copy(update={"held_back": held_back})
                self._tell_granted(self.state.permits[key])

    def _closed_gate(self, request: PermitRequest, users: Counter[str]) -> tuple[str, str] | None:
        """The first gate that keeps this request waiting, and why; None: none does."""
        if self.state.paused:
            who = self.state.paused_by or "somebody"
            return PAUSED, f"paused by {who}{f': {r}' if (r := self.state.paused_reason) else ''}"
        if request.kind is PermitKind.DRAIN:
            return self._closed_for_drain(request)
        if why := incidents.reason(self.state, request.cause):
            return INCIDENT, f"{why}; it is waited until that is over (`relight guard reset` ends it)"
        limits, held = self.limits, users.total()
        if held >= limits.recoveries_at_once:
            return AT_ONCE, f"{held} recoveries are under way, and no more than that may be at once"
        if len(self.state.recoveries) >= limits.recoveries_per_hour:
            return PER_HOUR, f"{len(self.state.recoveries)} recoveries began within the last hour"
        if request.user and users[request.user] >= limits.recoveries_per_user:
            return PER_USER, f"{users[request.user]} recoveries of user {request.user} are under way"
        return None

    def _closed_for_drain(self, request: PermitRequest) -> tuple[str, str] | None:
        state, wanted = self.state, set(request.nodes)
        if state.observes:
            return OBSERVES, f"the cluster observes, as {state.observes_by or 'somebody'} wants it"
        for scope in breakers.scopes(state, request.partition):
            breaker = state.breakers.get(scope)
            if breaker is not None and breaker.state is BreakerState.HALF_OPEN:
                if breaker.probe or breaker.probe_ended is not None:
                    return BREAKER, "it is half open, and one drain tries already"
                if len(wanted) > 1:
                    return BREAKER, "it is half open: only one node may be drained"
        used, most = sum(grant.nodes for grant in state.drains), self.limits.drains_per_hour
        if used + len(wanted) > most:
            return DRAINS, f"{used} of {most} nodes were drained within the last hour"
        held = {
            node
            for permit in state.permits.values()
            if permit.request.kind is PermitKind.DRAIN and permit.request.partition == request.partition
            for node in permit.request.nodes
        }
        share = self._share(request.partition)
        if len(held | wanted) > share:
            return SHARE, f"{len(held)} nodes of it are drained, and {share} may be at one time"
        return None

    def _share(self, partition: str) -> int:
        """So many nodes of this partition may be drained at one time."""
        size = breakers.size_of(self.limits, self.state, partition)
        return max(1, int(self.limits.drain_share * size)) if size else 1

    def _open_breaker(self, request: PermitRequest) -> Breaker | None:
        for scope in breakers.scopes(self.state, request.partition):
            breaker = self.state.breakers.get(scope)
            if breaker is not None and breaker.state is BreakerState.OPEN:
                return breaker
        return None

    def _is_stale(self, request: PermitRequest) -> bool:
        return (
            request.kind is PermitKind.DRAIN
            and request.evidence_at is not None
            and breakers.is_stale(self.state, request.partition, request.evidence_at)
        )

    # Endings and answers

    def _end(self, key: str, now: datetime) -> bool:
        """Takes a permit or a request away; False: there was none."""
        breakers.end_probe(self.state, key, now)
        held = self.state.permits.pop(key, None) is not None
        return self.state.queue.pop(key, None) is not None or held

    def _refuse(self, request: PermitRequest, gate: str, reason: str) -> None:
        self.state.counts.refused += 1
        self._say(request, gate, reason, waits=False)

    def _say(self, request: PermitRequest, gate: str, reason: str, *, waits: bool) -> None:
        decision = PermitDecision(
            holder=request.holder,
            kind=request.kind,
            waits=waits,
            paused=self.state.paused,
            observe=self.state.observes,
            gate=gate,
            reason=reason,
        )
        self.outbox.append(decision)

    def _tell_granted(self, permit: Permit) -> None:
        state = self.state
        gate = why = ""
        if state.paused:
            who = state.paused_by or "somebody"
            gate, why = PAUSED, f"{who}: {state.paused_reason}" if state.paused_reason else who
        elif permit.held_back:
            gate = INCIDENT if state.incidents else BREAKER
            why = incidents.reason(state) or "many nodes have faults"
        elif state.observes and permit.request.kind is PermitKind.DRAIN:
            gate, why = OBSERVES, f"the cluster observes, as {state.observes_by or 'somebody'} wants it"
        decision = PermitDecision(
            holder=permit.request.holder,
            kind=permit.request.kind,
            granted=True,
            paused=bool(gate),
            observe=state.observes,
            gate=gate,
            reason=why,
            lease_until=permit.until,
        )
        self.outbox.append(decision)

    def _lease(self, request: PermitRequest) -> timedelta:
        wanted = request.lease if request.lease is not None else self.limits.lease
        return min(max(wanted, timedelta(seconds=1)), MAX_LEASE)
