"""Runs the benchmarks one after the other, writes their results, and makes the page of them.

    python -m bench.everything [--quick] [--only NAME ...] [--label 1]

Each result goes to `bench/results/NAME-LABEL.json`; another label keeps the earlier results. A benchmark that
cannot run here (no Slurm, no C compiler, no Prometheus) is told and skipped, and the command fails in the
end. `--quick` measures less of each, in under ten minutes on two cores.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass

from bench import page, results

CLUSTER = ("-m", "tests.slurm.cluster", "--nodes", "4", "--", sys.executable)


@dataclass(frozen=True)
class Bench:
    """A benchmark and its arguments, of a full and of a quick run."""

    name: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ()
    """None: it is left out of a quick run."""
    before: tuple[str, ...] = ()
    """What starts it: a Slurm cluster, for those that do not start their own."""


BENCHES = (
    Bench("scan", ("--runs", "2"), ("--megabytes", "64", "--runs", "2")),
    Bench("checkpoints", ("--runs", "2"), ("--shards", "1000", "5000", "--runs", "2")),
    Bench("node_sensor", ("--runs", "2"), ("--minutes", "0.2", "--runs", "2")),
    Bench("scheduler", ("--polls", "20"), ("--polls", "5"), CLUSTER),
    Bench("prometheus", (), ("--nodes", "1", "100", "--seconds", "20")),
    Bench("recovery", ("--runs", "10"), ("--runs", "2")),
    Bench(
        "scale",
        ("--jobs", "1,100,1000", "--runs", "2", "--storm", "1000"),
        ("--jobs", "1,100", "--seconds", "30", "--faults", "5"),
    ),
    Bench("reliability", ("--docs", str(results.ROOT / "docs" / "reliability.md")), None),
    Bench("ettr", ("--plots", str(results.ROOT / "docs" / page.IMAGES)), ()),
)
"""In this order: the last one uses the recovery times that others have measured."""


def command(bench: Bench, label: str, *, quick: bool) -> list[str] | None:
    """The command line; None where it is left out."""
    args = bench.quick if quick else bench.full
    if args is None:
        return None
    target = results.DIRECTORY / f"{bench.name}-{label}.json"
    return [sys.executable, *bench.before, "-m", f"bench.{bench.name}", *args, "--json", str(target)]


def main() -> int:
    """Runs them; 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names)
    parser.add_argument("--label", default="1")
    given = parser.parse_args()
    failed = []
    for bench in BENCHES:
        argv = command(bench, given.label, quick=given.quick) if bench.name in given.only else None
        if argv is None:
            continue
        began = time.monotonic()
        print(f"bench.{bench.name} ...", flush=True)
        status = subprocess.run(argv, cwd=results.ROOT, check=False).returncode
        if status:
            failed.append(bench.name)
        print(f"bench.{bench.name}: exit {status} after {time.monotonic() - began:.0f} s", flush=True)
    try:
        page.write(results.DIRECTORY, page.DOCS)
    except results.BadResult as error:
        print(f"bench.page: {error}", file=sys.stderr)
        return 1
    if failed:
        print(f"these failed: {', '.join(failed)}; their own words are above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
