"""Writes `docs/benchmarks.md` from the results in `bench/results/`: every run, with its machine and versions.

    python -m bench.page [--results DIR] [--docs FILE]

Nothing is measured here, and no result is left out: of several files of one benchmark all are shown, oldest
first.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import results
from bench.faults import sections
from bench.markdown import Rows, cell, table
from bench.results import BadResult

Result = Mapping[str, Any]
DOCS = results.ROOT / "docs" / "benchmarks.md"
IMAGES = "images"
"""Where `bench.ettr --plots` and `bench.faults.profile --plot` put their plots, beside the page."""
HEAD = """# Benchmarks

What relight does in numbers: each benchmark, what it measures, and every run as it was measured. Made by
`python -m bench.page` from the raw results in `bench/results/`; measured by `make bench` (an hour and more:
not timed yet) or `make bench-quick` (7 min 20 s on two cores). A benchmark of one's own:
`python -m bench.NAME --help`.

Times depend on the machine, which is told with each result, and so is its load when the benchmark began: with
a load above the number of cores, others used it at the same time, and times are upper limits. The shipped
settle window is 1.5 s; it was 3 s when the results of 2026-12-02 were measured.
"""


def page(found: Sequence[Result]) -> str:
    """The page of these results."""
    lines = [HEAD]
    known = [bench for bench in SECTIONS if any(one["bench"] == bench for one in found)]
    other = sorted({str(one["bench"]) for one in found} - set(SECTIONS))
    for bench in [*known, *other]:
        mine = sorted((one for one in found if one["bench"] == bench), key=lambda one: str(one["date"]))
        title, what, body = SECTIONS.get(bench, (bench, "", _any_runs))
        lines += [f"## {title}", ""]
        if what:
            lines += [what, ""]
        for one in mine:
            lines += [provenance(one), "", *body(one), ""]
        if bench == "faults":
            lines += _where_the_time_goes(mine)
    missing = [f"`bench.{bench}`" for bench in SECTIONS if bench not in known]
    if missing:
        lines += ["## Not measured here", "", f"There is no result of {', '.join(missing)}.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def provenance(one: Result) -> str:
    """Where a result is from."""
    machine = one["machine"]
    load = f", load {machine['load_1min']}" if "load_1min" in machine else ""
    versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items() if version)
    slurm = f", {one['slurm']}" if one.get("slurm") else ""
    memory = f", {machine['memory_gb']} GB" if "memory_gb" in machine else ""
    command = f" `{one['command']}`." if one.get("command") else ""
    return (
        f"*{str(one['date'])[:16].replace('T', ' ')} UTC, commit {one['commit'] or 'unknown'}, "
        f"{machine['cpu']}, "
        f"{machine['cores']} cores{memory}, {machine['system']}{load}; {versions}{slurm}.*{command}"
    )


def _numbered(runs: Rows) -> list[dict[str, Any]]:
    return [{"run": number, **run} for number, run in enumerate(runs, 1)]


# ---- what each benchmark shows ---------------------------------------------------------------------------


def _any_runs(one: Result) -> list[str]:
    """Of a benchmark that this page knows nothing of: all plain columns."""
    runs = list(one["runs"])
    names = dict.fromkeys(
        name for run in runs for name, value in run.items() if not isinstance(value, dict | list)
    )
    return table(runs, {name: name for name in names}) if names else ["No runs."]


def _columns(columns: Mapping[str, str]) -> Callable[[Result], list[str]]:
    return lambda one: table(_numbered(one["runs"]), columns)


def _with_limits(
    columns: Mapping[str, str], limits: Mapping[str, tuple[str, str]]
) -> Callable[[Result], list[str]]:
    """The runs, and below them the worst of them against each limit.

    Args:
        columns: as of `table`.
        limits: for the name of a limit (at most so much), the key of a run and what it is called.
    """

    def body(one: Result) -> list[str]:
        lines = table(_numbered(one["runs"]), columns)
        known = one.get("limits", {})
        told = [
            f"{title} {within(max(run[key] for run in one['runs']), known[name])}"
            for name, (key, title) in limits.items()
            if name in known and one["runs"]
        ]
        return [*lines, "", f"Limits, of the worst run: {'; '.join(told)}."] if told else lines

    return body


def within(value: float, limit: float) -> str:
    """How a value stands to the largest that it may be: `0.25 of 1 (met, 0.75 to spare)`."""
    off = abs(value - limit)
    words = (
        f"met, {cell(round(off, 3))} to spare" if value <= limit else f"**MISSED by {cell(round(off, 3))}**"
    )
    return f"{cell(round(value, 3))} of {cell(limit)} ({words})"


def _recovery(one: Result) -> list[str]:
    phases = ("detected", "acted", "running", "productive", "total")
    columns = {"run": "run", "scenario": "fault", "outcome": "outcome", **{p: f"{p}, s" for p in phases}}
    return table(_numbered(one["runs"]), columns)


def _reliability(one: Result) -> list[str]:
    good = sum(bool(run["ok"]) for run in one["runs"])
    return [f"{good} of {len(one['runs'])} cells hold: [what survives what](reliability.md)."]


def _faults(one: Result) -> list[str]:
    lines = []
    if differs := one.get("differs"):
        told = "; ".join(f"{name}: {value}" for name, value in differs.items())
        lines += [f"Not as shipped: {told}.", ""]
    summary = one.get("summary", {})
    if aims := summary.get("aims"):
        lines += [*sections.aims(aims), ""]
    rows = [{"name": name, **row} for name, row in summary.get("scenarios", {}).items()]
    return lines + table(
        rows,
        {
            "name": "fault",
            "n": "runs",
            "expected": "should end",
            "detected": "detected",
            "cause": "right cause",
            "node": "right node",
            "ended_well": "ended well",
            "wasted_attempts": "wasted attempts",
            "seconds.detected.P50": "detected, P50 s",
            "seconds.detected.max": "longest",
            "seconds.added.P50": "added by relight until it runs, P50 s",
            "seconds.added.max": "longest",
        },
    )


def _where_the_time_goes(found: Sequence[Result]) -> list[str]:
    """Sections of their own: of the newest result of the suite, and of the oldest beside the newest."""
    oldest, newest = found[0], found[-1]
    lines = ["## Where the time goes", "", provenance(newest), ""]
    lines += [*sections.where_the_time_goes(newest, f"{IMAGES}/{sections.PLOT}"), ""]
    if len(found) > 1:
        lines += ["## Before and after", "", f"Before: {provenance(oldest)}", ""]
        lines += [f"After: {provenance(newest)}", "", *sections.before_and_after(oldest, newest), ""]
    return lines


def _scale(one: Result) -> list[str]:
    sizes = [run for run in one["runs"] if run["kind"] == "size"]
    storms = [run for run in one["runs"] if run["kind"] == "storm"]
    lines: list[str] = []
    if sizes:
        lines += table(
            [run | {"lag": max(run["rest"]["log_lag_seconds"], default=None)} for run in sizes],
            {
                "jobs": "jobs",
                "rest.cpu_percent.sensor": "sensor, % of a core",
                "rest.cpu_percent.worker": "worker, %",
                "rest.cpu_percent.temporal": "Temporal, %",
                "rest.memory_mb.sensor": "sensor, MB",
                "rest.memory_mb.worker": "worker, MB",
                "rest.memory_mb.temporal": "Temporal, MB",
                "rest.sensor_calls_per_minute": "sensor's calls to Slurm a minute",
                "rest.worker_calls_per_minute": "worker's",
                "lag": "longest lag behind a log, s",
                "phases.signal_to_recovery.p50": "signal → recovery, P50 s",
                "phases.signal_to_recovery.p99": "P99 s",
                "phases.fault_to_recovery.p50": "fault → recovery, P50 s",
                "phases.fault_to_recovery.p99": "P99 s",
            },
        )
        lines += [""]
        known = (run for run in sizes if "temporal_per_job" in run)
        costs = [{"jobs": run["jobs"], **run["temporal_per_job"]} for run in known]
        if costs:
            lines += ["What one job that trains costs Temporal, extrapolated from measured events:", ""]
            lines += table(
                costs,
                {
                    "jobs": "measured with jobs",
                    "actions_per_day": "actions a day",
                    "events_per_day": "events a day",
                    "renewals_per_day": "continued as new, a day",
                    "history_bytes_per_month": "history written in 30 days, bytes",
                    "longest_history_bytes": "longest history, bytes",
                },
            )
            lines += [""]
    if growth := one.get("growth"):
        lines += ["How each cost grows (`cost ~ jobs ^ exponent`; `base + slope × jobs`):", ""]
        lines += table(
            [{"name": name, **fit} for name, fit in growth.items()],
            {"name": "cost", "exponent": "exponent", "base": "base", "slope": "slope", "r2": "r² of the line",
             "words": "so it"},
        )  # fmt: skip
        lines += [""]
    if storms:
        rows = []
        for run in storms:
            rows.append(run | {"how": ", ".join(f"{n} {name}" for name, n in run["outcomes"].items())})
        told = "A storm: so many jobs fail at the same moment; the guard lets 50 recoveries run at once."
        lines += [told, ""]
        lines += table(
            rows,
            {
                "faults": "faults",
                "seconds": "until all recoveries ended, s",
                "all_running_again_seconds": "all jobs run again, s",
                "how": "outcomes",
                "phases.detected.p99": "detected, P99 s",
                "phases.acted.p50": "acted, P50 s",
                "phases.acted.p99": "P99 s",
                "cpu_seconds.worker": "worker, CPU s",
                "cpu_seconds.temporal": "Temporal, CPU s",
            },
        )
    return lines


def _ettr(one: Result) -> list[str]:
    lines = [f"![ETTR by size]({IMAGES}/ettr-by-size.svg)", ""]
    lines += [f"![ETTR by checkpoint interval]({IMAGES}/ettr-by-checkpoint.svg)", ""]
    setting = one["setting"]
    lines += [
        f"Recovery times: `{one['recoveries']}`. {one['simulated_runs']} runs of {one['days']:g} days each; "
        f"{setting['startup'] / 60:g} minutes from a running job to its first step, whoever started it.",
        "",
    ]
    keys = ("rate", "gpus", "checkpoint_minutes")
    by_place: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in one["runs"]:
        place = by_place.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        place[row["strategy"]] = f"{row['mean']:.3f} ({row['low']:.3f}–{row['high']:.3f})"
    return lines + table(
        by_place.values(),
        {
            "rate": "failures as in",
            "gpus": "GPUs",
            "checkpoint_minutes": "checkpoint every, min",
            "person": "watchdog and a person",
            "requeue": "Slurm's requeue",
            "relight": "relight",
        },
    )


SECTIONS: dict[str, tuple[str, str, Callable[[Result], list[str]]]] = {
    "faults": (
        "The fault suite",
        "Real faults of a real PyTorch training on a real Slurm cluster, and what relight makes of them "
        "(`bench/faults`).",
        _faults,
    ),
    "recovery": (
        "From a fault to a productive job",
        "Seconds of each phase from the end of the one before, on a real Slurm cluster "
        "(`bench/recovery.py`). Settings are the shipped ones but for the hang floor (4 s instead of 60 s) "
        "and the settle window (1 s instead of 1.5 s).",
        _recovery,
    ),
    "reliability": (
        "What survives what",
        "One part is killed in each step of a recovery (`bench/reliability.py`).",
        _reliability,
    ),
    "ettr": (
        "What recovery times are worth: effective training time",
        "Simulated runs with published failure rates and mixes, and recovery times as measured: the time "
        "in which training made progress that lasted, as a share of all time (mean, and 5th to 95th "
        "percentile of the runs). Assumptions and sources are in `bench/ettr/published.py` and "
        "`bench/ettr/strategies.py`. relight is not given more than was measured: a lost node is noticed "
        "when Slurm has given it up (300 s), a hang after the shipped floor (60 s), and silent corruption "
        "takes a person whoever looks after the run.",
        _ettr,
    ),
    "scale": (
        "The control plane at scale",
        "A real Temporal dev server, a real worker and a real sensor, and a simulated Slurm whose commands "
        "are real processes (`bench/scale`). Each job prints a step every ten seconds; faults are jobs "
        "that fail. The settle window of the shipped policy is in the times. Temporal's cost of a day and "
        "a month is extrapolated from the events of measured histories. Against a Temporal cluster of one's "
        "own: `relight setup` an empty namespace, set `TEMPORAL_NAMESPACE`, and give `--address HOST:PORT`.",
        _scale,
    ),
    "scan": (
        "Reading logs",
        "One core reads a generated day's log of 2,000 ranks with all signatures; ripgrep and Python's "
        "`re` get the same patterns (`bench/scan.py`).",
        _columns({
            "run": "run", "megabytes": "MB", "relight_mb_s": "relight, MB/s", "ripgrep_mb_s": "ripgrep, MB/s",
            "re_mb_s": "re, MB/s", "relight_to_ripgrep": "relight / ripgrep", "relight_to_re": "relight / re",
            "signatures": "signatures", "peak_rss_mb": "memory, MB",
        }),
    ),
    "checkpoints": (
        "Checking checkpoints",
        "Directories of many shards; limits: 20,000 shards in 5 s and 150 MB (`bench/checkpoints.py`).",
        _with_limits({
            "run": "run", "shards": "shards", "seconds": "s", "megabytes": "MB", "good": "within the limits",
        }, {"megabytes": ("megabytes", "MB")}),
    ),
    "node_sensor": (
        "The node sensor",
        "At rest with eight GPUs (the tests' stub of NVIDIA's library), and 10,000 kernel lines at once; "
        "limits: 1 % of a core and 60 MB (`bench/node_sensor.py`).",
        _with_limits({
            "run": "run", "rest_cpu_percent": "at rest, % of a core", "rest_rss_mb": "MB",
            "storm_lines": "lines at once", "storm_seconds": "read in, s", "storm_cpu_seconds": "CPU, s",
            "storm_rss_mb": "MB", "storm_rare_told": "of 3 rare kinds told", "storm_facts": "facts told",
        }, {
            "cpu_percent": ("rest_cpu_percent", "at rest, % of a core"),
            "rss_mb": ("rest_rss_mb", "at rest, MB"),
        }),
    ),
    "prometheus": (
        "Asking Prometheus",
        "Queries as nodes and jobs grow, counted by Prometheus itself (`bench/prometheus.py`).",
        _columns({
            "nodes": "nodes", "jobs": "jobs", "gpus": "GPUs", "sensor_queries_per_minute": "queries a minute",
            "queries_per_reading": "a reading", "reading_seconds_median": "reading, median s",
            "reading_seconds_longest": "longest s", "confirmation_queries": "of a confirmation",
            "confirmation_seconds": "s",
        }),
    ),
    "scheduler": (
        "Asking Slurm",
        "One poll of all watched jobs on a real Slurm (`bench/scheduler.py`).",
        _columns({
            "adapter": "adapter", "jobs": "jobs", "rpcs": "requests", "processes": "processes", "ms": "ms",
            "not_measured": "not measured because",
        }),
    ),
}  # fmt: skip
"""Title, what it is, and how its runs are shown, in the order of the page."""


def main() -> int:
    """Writes the page; 1 where a file is no result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=results.DIRECTORY, metavar="DIR")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FILE")
    given = parser.parse_args()
    try:
        write(given.results, given.docs)
    except BadResult as error:
        print(f"bench.page: {error}", file=sys.stderr)
        return 1
    return 0


def write(directory: Path, docs: Path) -> None:
    """Makes the page of the results in a directory.

    Raises:
        BadResult: a file is no result.
    """
    found = [results.read(path) for path in sorted(directory.glob("*.json"))]
    docs.write_text(page(found))
    print(f"{docs}: {len(found)} results")


if __name__ == "__main__":
    sys.exit(main())
