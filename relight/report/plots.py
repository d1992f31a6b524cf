"""The plots of the report, by matplotlib, as SVG text. Nothing that people or jobs wrote gets into them."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from relight.report.figures import CauseCost
from relight.report.forecast import Forecast
from relight.report.records import Phase
from relight.report.spread import Spread
from relight.report.timeline import Bucket

WIDTH = 4.6
"""Inches. Narrow: on a phone the page shrinks a plot, and its letters with it."""

COLOURS: dict[Phase, str] = {
    Phase.DETECT: "#0072b2",
    Phase.DECIDE: "#e69f00",
    Phase.QUEUE: "#56b4e9",
    Phase.LOAD: "#009e73",
    Phase.REPLAY: "#d55e00",
    Phase.REST: "#999999",
}
"""M. Okabe and K. Ito's palette, whose colours people of all kinds of colour vision can tell apart."""
HATCHES: dict[Phase, str] = {Phase.DECIDE: "//", Phase.LOAD: "..", Phase.REST: "xx"}
"""So that neighbours differ in black and white, too."""
BLUE, ORANGE = COLOURS[Phase.DETECT], COLOURS[Phase.REPLAY]
_STYLE = {
    "svg.fonttype": "path",  # letters look, and take room, as they do here
    "svg.hashsalt": "relight",  # the same numbers make the same bytes
    "font.size": 10,
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
}
_MARKS = [timedelta(seconds=s) for s in (0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400)]


def efficiency(buckets: Sequence[Bucket]) -> str:
    """ETTR over time: a step for each piece of the window, and gaps where nothing was watched.

    The axis begins a little below the worst of them: what is worth seeing is between 90 and 100 %.
    """
    with _figure(2.6) as (figure, axes):
        known = [bucket for bucket in buckets if bucket.ettr is not None]
        for bucket in known:
            axes.hlines(bucket.ettr, bucket.begin, bucket.end, color=BLUE, linewidth=2.5)
        axes.set_xlim(buckets[0].begin, buckets[-1].end)
        worst = min(bucket.ettr or 0.0 for bucket in known)
        margin = max((1 - worst) / 8, 0.001)
        axes.set_ylim(max(0.0, worst - margin), 1 + margin / 2)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        locator = AutoDateLocator(maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.set_ylabel("ETTR")
        return _svg(figure)


def costs(found: Sequence[CauseCost]) -> str:
    """GPU hours by cause, each bar made of its phases; the most expensive cause on top."""
    with _figure(1.4 + 0.32 * len(found)) as (figure, axes):
        names = [cost.cause.value for cost in found]
        left = [0.0] * len(found)
        for phase in Phase:
            hours = [cost.by_phase.get(phase, 0.0) for cost in found]
            if any(hours):
                axes.barh(
                    names, hours, left=left, color=COLOURS[phase], hatch=HATCHES.get(phase),
                    edgecolor="white", linewidth=0.5, label=phase.value,
                )  # fmt: skip
                left = [a + b for a, b in zip(left, hours, strict=True)]
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("GPU hours lost")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
        return _svg(figure)


def phases(found: Sequence[Spread]) -> str:
    """P50, P95 and the longest of each phase, on a logarithmic axis."""
    with _figure(1.2 + 0.36 * len(found)) as (figure, axes):
        for row, one in enumerate(found):
            low, high, most = (max(t.total_seconds(), 0.1) for t in (one.p50, one.p95, one.longest))
            axes.plot([low, most], [row, row], color="#777777", linewidth=1.5, zorder=1)
            for value, marker, colour, label in (
                (low, "o", BLUE, "P50"),
                (high, "D", ORANGE, "P95"),
                (most, "|", "#222222", "longest"),
            ):
                axes.scatter(value, row, marker=marker, s=50, color=colour, label="" if row else label)
        axes.set_yticks(range(len(found)), [one.name for one in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xscale("log")
        _time_axis(axes)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
        return _svg(figure)


def forecast(found: Forecast) -> str:
    """The expected ETTR over the time between checkpoints, and where this window stands."""
    with _figure(3.0) as (figure, axes):
        at = [point.interval.total_seconds() for point in found.curve]
        axes.plot(at, [point.ettr for point in found.curve], color=BLUE, label="as measured")
        axes.plot(
            at, [point.found_at_once for point in found.curve], color=ORANGE, linestyle="--",
            label="faults found at once",
        )  # fmt: skip
        if found.interval:
            now = found.scenarios[0]
            axes.plot(now.interval.total_seconds(), now.ettr, "o", color=BLUE, label="this window")
        axes.set_xscale("log")
        _time_axis(axes)
        axes.set_xlabel("time between checkpoints")
        axes.set_ylabel("expected ETTR")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
        return _svg(figure)


@contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Axes]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.subplots()


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _time_axis(axes: Axes) -> None:
    """Marks at times as people say them, those that the data reach: two at least, or nobody could read it."""
    low, high = axes.get_xlim()
    if sum(low <= mark.total_seconds() <= high for mark in _MARKS) < 2:
        low = max((m.total_seconds() for m in _MARKS if m.total_seconds() <= low), default=low)
        high = min((m.total_seconds() for m in _MARKS if m.total_seconds() >= high), default=high)
        axes.set_xlim(low, high)
    marks = [mark.total_seconds() for mark in _MARKS if low <= mark.total_seconds() <= high]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _said(seconds)))


def _said(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
