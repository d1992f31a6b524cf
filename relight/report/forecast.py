"""What faster detection or more frequent checkpoints would gain: measured numbers in a published formula."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from relight.contracts import Model
from relight.report.model import daly, expected_ettr, lost_share, young
from relight.report.records import BEFORE_TRAINING, NOTHING, TIMED, Chain, Loss, Phase
from relight.report.timeline import DAY, HOUR, span_of

FEW = 10
"""With fewer faults a rate of faults says little."""
RARE = 0.3
"""Beyond this lost share the formula, which takes faults for rare, is far from what happens."""
INTERVALS = tuple(timedelta(minutes=m) for m in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480))
"""For the curve: times between checkpoints."""
WRITES = tuple(timedelta(seconds=s) for s in (5, 30, 120, 600))
"""How long training might stand still for a checkpoint, where nobody said."""


class Scenario(Model):
    """What the formula expects if something were different."""

    name: str
    restart: timedelta
    interval: timedelta
    ettr: float
    gained_gpu_hours: float | None = None
    """Against `as measured`, in the window; None: it is not known how many GPUs a node has."""


class Point(Model):
    """One point of the curve."""

    interval: timedelta
    ettr: float
    """With the measured time to start again."""
    found_at_once: float
    """The same if every fault were found at once."""


class Interval(Model):
    """What Young and Daly advise."""

    write: timedelta
    young: timedelta
    daly: timedelta


class Forecast(Model):
    """What faster detection, or more frequent checkpoints, would gain."""

    faults: int
    """That the rate is counted from."""
    node_days: float
    rate: float
    """Faults per node and day (r)."""
    per_day: float
    """Faults per day of a run (N r), as they are: each run and each fault weighs as much as it has nodes."""
    between_faults: timedelta
    """Of a run, in the mean."""
    resumed: int
    """Recoveries that the next two are means of, weighted by nodes."""
    restart: timedelta
    interval: timedelta
    """Twice the mean time of replay: a fault comes, in the mean, half way between two checkpoints."""
    write: timedelta
    write_told: bool
    """Somebody said how long writing takes; else it is taken as nothing."""
    lost_share: float
    scenarios: tuple[Scenario, ...]
    curve: tuple[Point, ...]
    intervals: tuple[Interval, ...]
    doubts: tuple[str, ...] = ()
    """Why not to rely on it."""


def forecast(
    chains: Sequence[Chain], since: datetime, until: datetime, write: timedelta | None
) -> Forecast | None:
    """What the formula expects with the numbers of this window, and with better ones.

    Args:
        chains: as for `relight.report.figures.figures`; those of unknown length are left out.
        since: begin of the window.
        until: its end.
        write: how long training stands still while a checkpoint is written; None: not known.

    Returns:
        None where there was no fault, or of none it is known how long each phase took.
    """
    known = [(chain, span) for chain in chains if (span := span_of(chain, since, until)) is not None]
    node_hours = sum(chain.nodes * ((end - begin) / HOUR) for chain, (begin, end) in known)
    faults = [(chain.nodes, loss) for chain, _ in known for loss in chain.losses if loss.fault]
    resumed = [(nodes, loss) for nodes, loss in faults if all(phase in loss.phases for phase in TIMED)]
    if not resumed or not node_hours:
        return None
    measured = _measured(sum(nodes for nodes, _ in faults) / (node_hours / 24), resumed, write or NOTHING)
    gpus = _gpus_per_node(loss for _, loss in faults)
    share = lost_share(measured.per_day, measured.restart, measured.interval)
    return Forecast(
        faults=len(faults),
        node_days=node_hours / 24,
        rate=len(faults) / (node_hours / 24),
        per_day=measured.per_day,
        between_faults=DAY / measured.per_day,
        resumed=len(resumed),
        restart=measured.restart,
        interval=measured.interval,
        write=measured.write,
        write_told=write is not None,
        lost_share=share,
        scenarios=tuple(_scenarios(measured, None if gpus is None else node_hours * gpus)),
        curve=tuple(_curve(measured)),
        intervals=tuple(
            Interval(
                write=one, young=young(one, DAY / measured.per_day), daly=daly(one, DAY / measured.per_day)
            )
            for one in ((write,) if write else WRITES)
        ),
        doubts=tuple(_doubts(len(faults), share, measured.interval)),
    )


@dataclass(frozen=True)
class _Measured:
    """What goes into the formula."""

    per_day: float
    """Faults of a run (N r)."""
    detect: timedelta
    decide: timedelta
    restart: timedelta
    """u; `detect` and `decide` are parts of it."""
    interval: timedelta
    write: timedelta

    def ettr(self, *, less: timedelta = NOTHING, interval: timedelta | None = None) -> float:
        """With so much less time to start again, and another time between checkpoints."""
        every = self.interval if interval is None else interval
        return expected_ettr(self.per_day, self.restart - less, every, self.write)


def _measured(per_day: float, resumed: Sequence[tuple[int, Loss]], write: timedelta) -> _Measured:
    total = sum(nodes for nodes, _ in resumed)
    means = {
        phase: sum((nodes * loss.phases[phase] for nodes, loss in resumed), NOTHING) / total
        for phase in TIMED
    }
    return _Measured(
        per_day=per_day,
        detect=means[Phase.DETECT],
        decide=means[Phase.DECIDE],
        restart=sum((means[phase] for phase in BEFORE_TRAINING), NOTHING),
        interval=2 * means[Phase.REPLAY],
        write=write,
    )


def _scenarios(measured: _Measured, gpu_hours: float | None) -> Iterator[Scenario]:
    """What could be different; `gpu_hours` were watched."""
    detect, decide = measured.detect, measured.decide
    now = measured.ettr()
    for name, less, share in (
        ("as measured", NOTHING, 1.0),
        ("every fault found at once", detect, 1.0),
        ("every decision made at once", decide, 1.0),
        ("checkpoints twice as often", NOTHING, 1 / 2),
        ("checkpoints four times as often", NOTHING, 1 / 4),
        ("found and decided at once, checkpoints twice as often", detect + decide, 1 / 2),
    ):
        interval = measured.interval * share
        expected = measured.ettr(less=less, interval=interval)
        yield Scenario(
            name=name,
            restart=measured.restart - less,
            interval=interval,
            ettr=expected,
            gained_gpu_hours=None if gpu_hours is None else (expected - now) * gpu_hours,
        )


def _curve(measured: _Measured) -> Iterator[Point]:
    for every in INTERVALS:
        yield Point(
            interval=every,
            ettr=measured.ettr(interval=every),
            found_at_once=measured.ettr(less=measured.detect, interval=every),
        )


def _doubts(faults: int, share: float, interval: timedelta) -> Iterator[str]:
    if faults < FEW:
        yield f"{faults} {'fault is' if faults == 1 else 'faults are'} too few for a rate to rely on"
    if share > RARE:
        yield (
            f"faults cost {share:.0%} of the time, and the formula takes them for rare: what it expects is "
            "too low"
        )
    if not interval:
        yield "no step had to be trained again, so it is not known how often checkpoints are saved"


def _gpus_per_node(faults: Iterable[Loss]) -> float | None:
    told = [(loss.gpus, loss.nodes) for loss in faults if loss.gpus and loss.nodes]
    nodes = sum(count for _, count in told)
    return sum(gpus for gpus, _ in told) / nodes if nodes else None
