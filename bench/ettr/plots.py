"""The plots of `bench.ettr`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

LABELS = {
    "person": "10-minute watchdog and a person",
    "requeue": "Slurm's own requeue",
    "relight": "relight",
}
COLOURS = {"person": "#b2543a", "requeue": "#8a8d91", "relight": "#1f6f8b"}
"""Told apart in grey, too."""

# The same rows give the same bytes: no date, and ids that do not change.
plt.rcParams.update(
    {"svg.hashsalt": "relight", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
)


def draw(rows: Sequence[Mapping[str, Any]], directory: Path) -> list[Path]:
    """Draws ETTR over the number of GPUs, a panel a rate, and over the checkpoint interval."""
    directory.mkdir(parents=True, exist_ok=True)
    return [
        _by_size(rows, directory / "ettr-by-size.svg"),
        _by_interval(rows, directory / "ettr-by-checkpoint.svg"),
    ]


def _by_size(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    figure, axes = plt.subplots(1, len(rates), figsize=(3.2 * len(rates), 3), sharey=True, squeeze=False)
    for axis, rate in zip(axes[0], rates, strict=True):
        chosen = [row for row in rows if row["rate"] == rate and row["checkpoint_minutes"] == 30]
        _lines(axis, chosen, "gpus")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted({row["gpus"] for row in chosen}))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axis.set_title(f"failures as in {rate}")
        axis.set_xlabel("GPUs")
    axes[0][0].set_ylabel("ETTR, checkpoints every 30 min")
    axes[0][0].legend(frameon=False, loc="lower left")
    return _save(figure, path)


def _by_interval(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    chosen = [row for row in rows if row["rate"] == "RSC-1" and row["gpus"] == 4096]
    figure, axis = plt.subplots(figsize=(4.6, 3))
    _lines(axis, chosen, "checkpoint_minutes")
    axis.set_xticks(sorted({row["checkpoint_minutes"] for row in chosen}))
    axis.set_title("4,096 GPUs, failures as in RSC-1")
    axis.set_xlabel("minutes from one checkpoint to the next")
    axis.set_ylabel("ETTR")
    axis.legend(frameon=False, loc="lower left")
    return _save(figure, path)


def _lines(axis: Any, rows: Iterable[Mapping[str, Any]], x: str) -> None:
    """A line with its 5th to 95th percentile for each strategy."""
    by_strategy: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_strategy.setdefault(row["strategy"], []).append(row)
    for name, points in by_strategy.items():
        points.sort(key=lambda row: row[x])
        at = [row[x] for row in points]
        axis.plot(
            at, [row["mean"] for row in points], marker="o", ms=3, color=COLOURS[name], label=LABELS[name]
        )
        axis.fill_between(
            at,
            [row["low"] for row in points],
            [row["high"] for row in points],
            color=COLOURS[name],
            alpha=0.15,
            lw=0,
        )
    axis.set_ylim(0, 1.02)
    axis.grid(axis="y", alpha=0.3)


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
