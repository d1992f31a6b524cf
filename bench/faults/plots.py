"""The plot of `bench.faults.profile`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import matplotlib

from bench.faults.waterfall import AFTER_RUNNING, ordered

matplotlib.use("svg")
import matplotlib.pyplot as plt

COLOURS = (
    ("#0072b2", ""), ("#56b4e9", ""), ("#d55e00", ""), ("#f0e442", ""), ("#009e73", ""), ("#cc79a7", ""),
    ("#e69f00", ""), ("#8da0b3", ""), ("#0072b2", "////"), ("#f0e442", "////"), ("#009e73", "////"),
    ("#cc79a7", "////"),
)  # fmt: skip
"""Okabe's and Ito's, which people tell apart however they see colours; then the same with hatches."""
OTHER = ("#d9d9d9", "")
SMALL, SMALL_IN_ALL = 0.02, 0.15
"""Pieces with less than the first share of all bars together, and less than the second of each, are drawn as
one."""
STYLE = {
    "svg.hashsalt": "relight",  # the same numbers give the same bytes: no date, and ids that do not change
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}


def digest(scenarios: Mapping[str, Mapping[str, float]]) -> str:
    """Names the numbers that a plot was made of; it is in the plot's description."""
    text = json.dumps({name: dict(pieces) for name, pieces in scenarios.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw(scenarios: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draws a stacked bar a scenario, from the fault until the job runs, the longest first.

    Args:
        scenarios: seconds of each piece, by scenario.
        path: the SVG file to write.
    """
    bars = {
        name: {piece: s for piece, s in pieces.items() if piece not in AFTER_RUNNING and s > 0}
        for name, pieces in scenarios.items()
    }
    bars = dict(sorted(bars.items(), key=lambda bar: (sum(bar[1].values()), bar[0])))
    shown = [
        name for name in ordered({n for pieces in bars.values() for n in pieces}) if _is_shown(name, bars)
    ]
    shown = shown[: len(COLOURS)]
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8, 1.4 + 0.23 * len(bars)))
        left = [0.0] * len(bars)
        for number, name in enumerate([*shown, ""]):
            colour, hatch = COLOURS[number] if name else OTHER
            wide = [
                pieces.get(name, 0.0) if name else sum(s for piece, s in pieces.items() if piece not in shown)
                for pieces in bars.values()
            ]
            axis.barh(
                list(bars), wide, left=left, height=0.72, color=colour, hatch=hatch, edgecolor="white",
                linewidth=0.5, label=name or "all other pieces",
            )  # fmt: skip
            left = [at + width for at, width in zip(left, wide, strict=True)]
        axis.set_xlabel("seconds from the fault until the job runs again: median of each piece")
        axis.set_ylim(-0.6, len(bars) - 0.4)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        axis.legend(frameon=False, loc="lower right")
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        made = {"Date": None, "Description": f"numbers {digest(scenarios)}"}
        figure.savefig(path, format="svg", metadata=made)
        plt.close(figure)


def _is_shown(name: str, bars: Mapping[str, Mapping[str, float]]) -> bool:
    """Large enough for a colour of its own."""
    wholes = {bar: sum(pieces.values()) for bar, pieces in bars.items()}
    total = sum(pieces.get(name, 0.0) for pieces in bars.values())
    if total >= SMALL * sum(wholes.values()):
        return True
    return any(pieces.get(name, 0.0) >= SMALL_IN_ALL * wholes[bar] > 0 for bar, pieces in bars.items())
