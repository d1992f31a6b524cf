"""What recovery times are worth: effective training time (ETTR) of a simulated run, by who looks after it.

    python -m bench.ettr [--recoveries FILE] [--json FILE] [--plots DIR]

Failure rates and mixes are published ones (`bench/ettr/published.py`), relight's recovery times are drawn
from measured recoveries: `--recoveries` names a result of `bench.faults` or `bench.recovery`; by default the
newest one in `bench/results/`. Compared are a ten-minute watchdog with a person, Slurm's own requeue, and
relight, for 256 to 16,384 GPUs. The simulation is checked against the published closed formula where that
holds (`tests/bench/test_ettr.py`).
"""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench import results
from bench.ettr import published
from bench.ettr.measured import Recovery, Unusable, recoveries
from bench.ettr.model import closed_formula, simulate
from bench.ettr.strategies import Setting, Strategy, person, relight, requeue

GPUS = (256, 1024, 4096, 16384)
CHECKPOINT_MINUTES = (10.0, 30.0, 60.0)


def strategies(setting: Setting, measured: tuple[Recovery, ...]) -> dict[str, Strategy]:
    """Who may look after a run."""
    return {
        "person": person(setting),
        "requeue": requeue(setting),
        "relight": relight(setting, measured),
    }


def table(measured: tuple[Recovery, ...], *, days: float, runs: int, seed: int) -> list[dict[str, Any]]:
    """A row for each rate, size, checkpoint interval and strategy."""
    rows = []
    for source, rate in published.RATES.items():
        for gpus in GPUS:
            failures = gpus / published.GPUS_PER_NODE * rate / 1000 / published.DAY
            for minutes in CHECKPOINT_MINUTES:
                setting = replace(Setting(), checkpoint_every=minutes * published.MINUTE)
                for name, strategy in strategies(setting, measured).items():
                    found = simulate(
                        failures, strategy, setting, length=days * published.DAY, runs=runs, seed=seed
                    )
                    formula = closed_formula(failures, found.mean_down, setting.checkpoint_every)
                    rows.append(
                        {
                            "rate": source,
                            "gpus": gpus,
                            "checkpoint_minutes": minutes,
                            "strategy": name,
                            **{key: round(value, 5) for key, value in asdict(found).items()},
                            "formula": round(formula, 5),
                        }
                    )
    return rows


def newest() -> Path:
    """The newest result in `bench/results/` that tells how long recoveries take, `faults` before `recovery`.

    Raises:
        Unusable: there is none.
    """
    for bench in ("faults", "recovery"):
        if found := sorted(results.DIRECTORY.glob(f"{bench}*.json"), key=lambda path: path.stat().st_mtime):
            return found[-1]
    raise Unusable(
        f"no result in {results.DIRECTORY}: run `python -m bench.recovery --json FILE` first, or name one"
    )


def main() -> int:
    """Simulates, prints, and plots."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recoveries", type=Path, help="a result with measured recoveries")
    parser.add_argument("--days", type=float, default=30.0, help="length of a simulated run")
    parser.add_argument("--runs", type=int, default=200, help="simulated runs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plots", type=Path, help="directory for the plots (SVG); needs matplotlib")
    results.add_json_option(parser)
    given = parser.parse_args()
    try:
        source = given.recoveries or newest()
        measured = recoveries(results.read(source))
    except (Unusable, results.BadResult) as error:
        print(f"bench.ettr: {error}", file=sys.stderr)
        return 2
    rows = table(measured, days=given.days, runs=given.runs, seed=given.seed)
    if given.plots:
        from bench.ettr.plots import draw  # matplotlib is slow to import, and not needed otherwise

        for path in draw(rows, given.plots):
            print(path, file=sys.stderr)
    if given.json:
        more = {"recoveries": source.name, "setting": asdict(Setting()), "days": given.days}
        results.write(
            given.json, results.envelope("ettr", rows, simulated_runs=given.runs, seed=given.seed, **more)
        )
        return 0
    print("rate       GPUs checkpoint  strategy   ETTR         5-95 %  formula")
    for row in rows:
        print(
            f"{row['rate']:8} {row['gpus']:6} {row['checkpoint_minutes']:6.0f} min  {row['strategy']:8} "
            f"{row['mean']:6.3f}  {row['low']:.3f}-{row['high']:.3f}  {row['formula']:7.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
