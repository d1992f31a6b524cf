"""The report as one HTML page: no script, nothing fetched. Text of jobs and people is shown, never obeyed."""

import base64
from collections.abc import Iterator
from datetime import timedelta

from jinja2 import Environment, PackageLoader, StrictUndefined

from relight.durations import format_duration
from relight.report import plots
from relight.report.contents import Report
from relight.report.forecast import Forecast
from relight.report.records import Chain, Loss, Phase
from relight.report.timeline import BY_THE_HOUR

MAX_CHAINS = 100
"""Rows of the table of runs."""
MAX_LOSSES = 20
"""Rows of the table of the most expensive recoveries."""
ENOUGH = 3
"""A plot of fewer hours, recoveries or points shows less than the table below it."""
_ROUND = (
    (timedelta(hours=1), timedelta(seconds=1)),
    (timedelta(days=2), timedelta(minutes=1)),
)
"""Below the first, times are rounded to the second."""


def render(report: Report) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("relight.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"said": said, "percent": percent, "number": number}
    figures = report.figures
    hit = [chain for chain in report.chains if any(loss.fault for loss in chain.losses)]
    return environment.get_template("report.html").render(
        report=report,
        figures=figures,
        phases=list(Phase),
        when="%Y-%m-%d %H:%M" if figures.until - figures.since <= BY_THE_HOUR else "%Y-%m-%d",
        plots=dict(_plots(report)),
        durations=[row for row in (*figures.phases, figures.waited, figures.whole) if row is not None],
        chains=hit[:MAX_CHAINS],
        more_chains=len(hit[MAX_CHAINS:]),
        losses=_dearest(report.chains),
        enough=ENOUGH,
    )


def said(time: timedelta | None) -> str:
    """A duration as precisely as one wants to know it; a dash for None."""
    if time is None:
        return "–"
    if time < timedelta(seconds=10):
        return f"{time.total_seconds():.1f}".removesuffix(".0") + "s"
    unit = next((unit for below, unit in _ROUND if time < below), timedelta(hours=1))
    return format_duration(round(time / unit) * unit)


def percent(share: float | None) -> str:
    """With one digit, or two where it is nearly all; a dash for None."""
    return "–" if share is None else f"{share * 100:.{2 if 0.99 < share < 1 else 1}f} %"


def number(value: float | None) -> str:
    """With the digits that matter; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _plots(report: Report) -> Iterator[tuple[str, str]]:
    """By name, as addresses that hold the picture itself. Those with too little in them are left out."""
    figures = report.figures
    if sum(bucket.ettr is not None for bucket in figures.buckets) >= ENOUGH:
        yield "efficiency", _picture(plots.efficiency(figures.buckets))
    if figures.gpu_hours:
        yield "costs", _picture(plots.costs([cost for cost in figures.costs if cost.gpu_hours]))
    if max((phase.count for phase in figures.phases), default=0) >= ENOUGH:
        yield "phases", _picture(plots.phases(figures.phases))
    if figures.forecast is not None and _says_something(figures.forecast):
        yield "forecast", _picture(plots.forecast(figures.forecast))


def _says_something(found: Forecast) -> bool:
    """The formula takes faults for rare: in a short window with a fault it may expect nothing at all."""
    return sum(point.found_at_once > 0 for point in found.curve) >= ENOUGH


def _picture(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _dearest(chains: tuple[Chain, ...]) -> list[Loss]:
    losses = [loss for chain in chains for loss in chain.losses if loss.gpu_hours]
    return sorted(losses, key=lambda loss: -(loss.gpu_hours or 0.0))[:MAX_LOSSES]
