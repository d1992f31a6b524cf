"""How many queries relight asks of Prometheus, and how long they take, as nodes and jobs grow.

    python -m bench.prometheus [--nodes 1 100 1000] [--seconds 60] [--json [FILE]]

A real Prometheus scrapes the tests' exporters, eight GPUs a node, every fifteen seconds. The cluster sensor's
own loop asks about the running jobs as often as it is configured to; then the question of a confirmation is
asked about all nodes once. Queries are counted by Prometheus itself (`prometheus_http_requests_total`). The
exporters and Prometheus share the machine with what is measured, so the times are upper limits.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import results
from relight.config import PrometheusSettings
from relight.prometheus import hang
from relight.prometheus.faults import QUERIES
from relight.prometheus.machines import Machines
from sensor.machines_watch import MachinesWatch
from tests.prometheus.exporter import Exporters
from tests.prometheus.server import Prometheus

SCRAPE = "15s"
START_TIMEOUT = 180.0
"""Seconds until all targets were scraped once."""


async def measure(nodes: int, jobs: int, seconds: float, root: Path) -> dict[str, Any]:
    """One size of a cluster: `jobs` that share the nodes evenly."""
    names = [f"node{n:04d}" for n in range(nodes)]
    allocations = [tuple(names[job::jobs]) for job in range(jobs)]
    with (
        Exporters(names) as exporters,
        Prometheus(root, exporters, interval=SCRAPE, timeout=START_TIMEOUT) as prometheus,
    ):
        settings = PrometheusSettings(url=prometheus.url)
        watch = MachinesWatch(settings)
        every = settings.poll.total_seconds()
        before, began, readings = prometheus.queries(), time.monotonic(), []
        incomplete = 0
        while (passed := time.monotonic() - began) < seconds:
            await watch.poll(names, datetime.now(UTC))
            found = [watch.of(allocation, None, datetime.now(UTC)) for allocation in allocations]
            if any(found):
                raise RuntimeError(f"all GPUs are healthy, and told was: {found}")
            incomplete += bool(watch.problem)
            readings.append(time.monotonic() - began - passed)
            await asyncio.sleep(max(0.0, every - readings[-1]))
        minutes = (time.monotonic() - began) / 60
        by_sensor = prometheus.queries() - before

        before, asked = prometheus.queries(), time.monotonic()
        silence = timedelta(minutes=1)
        reading = await Machines(settings).read(hang.QUERIES, names, window=silence, ago=silence)
        took = time.monotonic() - asked
        sign = hang.judge(reading, names, silence, settings)
        if reading.problem or sign.verdict == "confirms":
            raise RuntimeError(f"all GPUs compute, and told was: {reading.problem or sign}")
        return {
            "nodes": nodes,
            "jobs": jobs,
            "gpus": len(reading.of("age", names)),
            "sensor_queries": by_sensor,
            "sensor_queries_per_minute": round(by_sensor / minutes, 1),
            "queries_per_reading": round(by_sensor / len(readings), 1),
            "readings_incomplete": incomplete,
            "reading_seconds_median": round(statistics.median(readings), 3),
            "reading_seconds_longest": round(max(readings), 3),
            "confirmation_queries": prometheus.queries() - before,
            "confirmation_seconds": round(took, 3),
        }


def main() -> int:
    """Measures each size; 1 when the queries grow with it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 100, 1000], help="sizes of the cluster")
    parser.add_argument("--jobs-of", type=int, default=10, help="nodes of one job (default: 10)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each size is measured")
    results.add_json_option(parser)
    arguments = parser.parse_args()
    rows = []
    for nodes in arguments.nodes:
        with tempfile.TemporaryDirectory() as directory:
            jobs = max(1, nodes // arguments.jobs_of)
            rows.append(asyncio.run(measure(nodes, jobs, arguments.seconds, Path(directory))))
    constant = all(
        row["queries_per_reading"] <= len(QUERIES) and row["confirmation_queries"] <= len(hang.QUERIES)
        for row in rows
    )
    if arguments.json:
        results.write(arguments.json, results.envelope("prometheus", rows, constant=constant))
        return 0 if constant else 1
    print(f"{'':28}" + "".join(f"{row['nodes']:>10}" for row in rows))
    for name in rows[0]:
        print(f"{name:28}" + "".join(f"{row[name]:>10}" for row in rows))
    print("queries do not grow with nodes or jobs" if constant else "queries GROW with nodes or jobs")
    return 0 if constant else 1


if __name__ == "__main__":
    sys.exit(main())
