"""The stage about the sensor: it lives, and sees."""

import asyncio
import time
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from relight.addresses import listening
from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import ExitCode
from sensor.lock import held_by

STUCK_AFTER = 60.0
"""Seconds without a heartbeat."""
_ANSWER = 5.0
_WORDS = {
    "relight_sensor_scheduler_up": (
        "the sensor gets no answer of the scheduler",
        "see its log, and `scontrol ping`",
    ),
    "relight_sensor_temporal_up": (
        "the sensor does not reach Temporal",
        "see its log, and its TEMPORAL_ settings",
    ),
}


async def sensor(bench: Bench) -> Well:
    """By its metrics where it serves some, else by the lock in its state directory."""
    if bench.settings.sensor.metrics_address:
        return await asyncio.to_thread(_by_metrics, bench)
    if held_by(bench.settings.state_dir) is not None:
        return Well("one runs", "whether it sees can be told only with sensor.metrics_address")
    found = f"no sensor runs on this machine with state_dir {bench.settings.state_dir}"
    raise Broken(found, "start `relight sensor`, or run the doctor where it runs", ExitCode.NOT_READY)


def _by_metrics(bench: Bench) -> Well:
    host, port = listening(bench.settings.sensor.metrics_address)
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_ANSWER) as answer:
            text = answer.read().decode()
    except (OSError, ValueError, urllib.error.URLError) as error:
        found = f"no sensor serves metrics on {address} ({error})"
        raise Broken(
            found, "start `relight sensor`, or run the doctor where it runs", ExitCode.NOT_READY
        ) from error
    values = {
        (sample.name, sample.labels.get("job", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    silent = time.time() - values.get(("relight_sensor_heartbeat_timestamp_seconds", ""), 0.0)
    if silent > STUCK_AFTER:
        found = f"the sensor's last heartbeat was {silent:.0f} s ago"
        raise Broken(found, "restart it, and tell us what its log says", ExitCode.NOT_READY)
    for name, (found, mend) in _WORDS.items():
        if values.get((name, ""), 1.0) == 0.0:
            raise Broken(found, mend, ExitCode.NOT_READY)
    blind = sorted(job for (name, job), value in values.items() if name == "relight_sensor_blind" and value)
    return Well("one runs and sees", f"blind for {', '.join(blind)}" if blind else "")
