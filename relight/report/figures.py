"""The numbers of the report, from chains and their losses. Pure, and exact."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import Field

from relight.contracts import Cause, Model, Outcome, UtcDatetime
from relight.quality.figures import Rate, rate
from relight.report.forecast import Forecast, forecast
from relight.report.records import TIMED, Chain, ChainEnd, CostUnknown, Loss, Phase, times_of
from relight.report.spread import Spread, spread
from relight.report.timeline import Bucket, buckets_of, kept, span_of


class CauseCost(Model):
    """What one cause cost."""

    cause: Cause
    recoveries: int
    gpu_hours: float
    by_phase: dict[Phase, float]


class ChainFigures(Model):
    """How chains ended."""

    total: int
    with_faults: int
    """Those that had a fault; all that follows is about them."""
    ends: dict[ChainEnd, int] = Field(default={})
    ended_well: Rate
    """Of those that completed or were stopped."""
    attempts: int = 0


class Figures(Model):
    """All numbers of the report."""

    since: UtcDatetime
    until: UtcDatetime
    buckets: tuple[Bucket, ...] = ()
    watched: float = 0.0
    """Node hours of watched runs."""
    lost: float = 0.0
    ettr: float | None = None
    """None: no watched run is known."""
    left_out: int = 0
    """Chains that the ETTR leaves out, since it is not known how long they were watched."""
    recoveries: int = 0
    faults: int = 0
    open: int = 0
    outcomes: dict[Outcome, int] = Field(default={})
    gpu_hours: float = 0.0
    gpu_hours_by_phase: dict[Phase, float] = Field(default={})
    costs: tuple[CauseCost, ...] = ()
    """The most expensive cause first."""
    cost_unknown: int = 0
    """Faults of which it is not known what they cost."""
    cost_unknown_because: dict[CostUnknown, int] = Field(default={})
    """The same, by why; the most frequent reason first."""
    phases: tuple[Spread, ...] = ()
    """In order of time; phases that are known of no recovery are left out."""
    waited: Spread | None = None
    """For a person's decision, where one had to be asked."""
    whole: Spread | None = None
    """From the fault until training was past it, of recoveries that resumed."""
    chains: ChainFigures
    forecast: Forecast | None = None
    """None: there was no fault, or nothing of what it takes is known."""


def figures(
    chains: Sequence[Chain], since: datetime, until: datetime, write: timedelta | None = None
) -> Figures:
    """All numbers.

    Args:
        chains: those that were watched, or had a recovery, in the window.
        since: begin of the window; recoveries that began before do not count.
        until: its end.
        write: how long training stands still while a checkpoint is written; None: not known.
    """
    losses = [loss for chain in chains for loss in chain.losses]
    faults = [loss for loss in losses if loss.fault]
    buckets = buckets_of(chains, since, until)
    watched, lost = sum(b.watched for b in buckets), sum(b.lost for b in buckets)
    costs = _costs(faults)
    whole = [loss.until - loss.occurred for loss in faults if loss.outcome is Outcome.RESUMED]
    return Figures(
        since=since,
        until=until,
        buckets=tuple(buckets),
        watched=watched,
        lost=lost,
        ettr=kept(watched, lost),
        left_out=sum(span_of(chain, since, until) is None for chain in chains),
        recoveries=len(losses),
        faults=len(faults),
        open=sum(loss.open for loss in losses),
        outcomes=dict(Counter(loss.outcome for loss in losses if loss.outcome is not None)),
        gpu_hours=sum(cost.gpu_hours for cost in costs),
        gpu_hours_by_phase=_sums(cost.by_phase for cost in costs),
        costs=tuple(costs),
        cost_unknown=sum(loss.gpu_hours is None for loss in faults),
        cost_unknown_because=dict(
            Counter(loss.cost_unknown for loss in faults if loss.cost_unknown is not None).most_common()
        ),
        phases=tuple(
            found for phase in TIMED if (found := spread(phase.value, times_of(faults, phase))) is not None
        ),
        waited=spread("waiting for a person", [f.waited for f in faults if f.waited is not None]),
        whole=spread("in all", whole),
        chains=_chain_figures(chains),
        forecast=forecast(chains, since, until, write),
    )


def _costs(faults: Sequence[Loss]) -> list[CauseCost]:
    of: dict[Cause, list[Loss]] = {}
    for loss in faults:
        of.setdefault(loss.cause, []).append(loss)
    found = [
        CauseCost(
            cause=cause,
            recoveries=len(mine),
            gpu_hours=sum(loss.gpu_hours or 0.0 for loss in mine),
            by_phase=_sums(loss.gpu_hours_by_phase for loss in mine),
        )
        for cause, mine in of.items()
    ]
    return sorted(found, key=lambda cost: (-cost.gpu_hours, -cost.recoveries, cost.cause))


def _sums(parts: Iterable[Mapping[Phase, float]]) -> dict[Phase, float]:
    total = dict.fromkeys(Phase, 0.0)
    for part in parts:
        for phase, hours in part.items():
            total[phase] += hours
    return total


def _chain_figures(chains: Sequence[Chain]) -> ChainFigures:
    hit = [chain for chain in chains if any(loss.fault for loss in chain.losses)]
    ends = Counter(chain.end for chain in hit)
    well = ends[ChainEnd.WELL]
    return ChainFigures(
        total=len(chains),
        with_faults=len(hit),
        ends=dict(ends),
        ended_well=rate(well, well + ends[ChainEnd.BADLY]),
        attempts=sum(chain.attempts for chain in hit),
    )
