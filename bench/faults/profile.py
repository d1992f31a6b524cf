"""Where the time goes from a fault until the job runs and is productive, of a result of the fault suite.

    python -m bench.faults.profile [RESULT.json] [--plot docs/images/waterfall.svg] [--json]

A row a piece, the largest first: its total, its share of all the time, its share of the time until the job
runs; P50, P95 and the longest of the runs that have it. The plot has a bar for each fault, of the median of
each piece. Without RESULT.json: the newest result of the suite in `bench/results/`. Nothing is run.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import results
from bench.faults.sections import cut, runs_of
from bench.faults.waterfall import Waterfall, by_scenario, profile


def newest(directory: Path = results.DIRECTORY) -> Path:
    """The newest result of the suite in a directory, by its own date.

    Raises:
        BadResult: there is none, or a file is no result.
    """
    found = sorted(directory.glob("faults*.json"))
    if not found:
        raise results.BadResult(f"no faults*.json in {directory}: `make bench-faults` makes one")
    return max(found, key=lambda path: str(results.read(path)["date"]))


def text(falls: Sequence[Waterfall], rows: Sequence[Mapping[str, Any]]) -> str:
    """The table for a terminal."""
    lines = [
        f"{len(falls)} runs in which the job ran again",
        f"{'piece':26} {'whose':9} {'total s':>9} {'share':>7} {'to run':>7} {'P50 s':>8} {'P95 s':>8} "
        f"{'longest':>8} {'runs':>5}",
    ]
    for row in rows:
        to_run = "" if row["share_to_running"] is None else f"{row['share_to_running']:.1%}"
        lines.append(
            f"{row['piece']:26} {row['whose']:9} {row['seconds']:9.1f} {row['share']:7.1%} {to_run:>7} "
            f"{row['p50']:8.2f} {row['p95']:8.2f} {row['max']:8.2f} {row['runs']:5}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table, and draws the plot; 1 where the result cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults.profile", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("result", type=Path, nargs="?", metavar="RESULT.json")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the bars (SVG); needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print rows and medians as JSON, not the table")
    given = parser.parse_args(arguments)
    try:
        source = given.result or newest()
        result = results.read(source)
        if result["bench"] != "faults":
            raise results.BadResult(f"{source} is a result of bench.{result['bench']}, not of bench.faults")
        falls = [fall for _, fall in cut(runs_of(result))]
        if not falls:
            raise results.BadResult(f"{source}: in none of its runs did the job run again")
    except results.BadResult as error:
        print(f"bench.faults.profile: {error}", file=sys.stderr)
        return 1
    rows, scenarios = profile(falls), by_scenario(falls)
    if given.json:
        print(json.dumps({"result": source.name, "pieces": rows, "scenarios": scenarios}, indent=1))
    else:
        print(text(falls, rows))
    if given.plot:
        from bench.faults.plots import draw  # matplotlib is slow to import, and not needed otherwise

        draw(scenarios, given.plot)
        print(given.plot, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
