"""The stage about Prometheus, where the site has one."""

from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import ExitCode
from relight.config import TOKEN_VARIABLE
from relight.prometheus.machines import Machines

_ASKED = "age"
"""The query that tells which GPUs are exported at all."""


async def prometheus(bench: Bench) -> Well:
    """It answers, and knows GPUs."""
    settings = bench.settings.prometheus
    machines = Machines.of(settings)
    if machines is None:
        return Well("none (setting prometheus.url)")
    reading = await machines.read([_ASKED], None, window=settings.fault_window)
    if reading.problem:
        mend = (
            f"check prometheus.url, prometheus.queries and {TOKEN_VARIABLE} (a witness of hangs is missing)"
        )
        raise Broken(f"{settings.url}: {reading.problem}", mend, ExitCode.FAILURE)
    nodes = {value.node for value in reading.answers.get(_ASKED, ())}
    if not nodes:
        note = "it names no GPU: is dcgm-exporter scraped, and is a label of prometheus.node_labels on it?"
        return Well(f"{settings.url} answers", note)
    return Well(f"{settings.url} knows the GPUs of {len(nodes)} nodes")
