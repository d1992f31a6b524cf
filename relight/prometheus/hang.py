"""Whether the GPUs of a silent job say that it hangs. Pure.

A collective that waits for ever keeps a GPU at full utilisation while it draws little power; a process that
waits elsewhere leaves it idle. Neither is seen in a job that computes. One that saves a checkpoint waits like
one that hangs, and writes. All is judged against this job's own normal, over time and not over samples.
(Full utilisation with low power as the mark of a stuck NCCL collective: nebius/soperator#796.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from relight.config import PrometheusSettings
from relight.prometheus.reading import Reading

QUERIES = (
    "age",
    "seen_for",
    "utilisation_least",
    "utilisation_most",
    "power",
    "power_before",
    "io",
    "io_before",
)

PINNED = 95.0
"""Per cent of utilisation that a GPU does not leave while a kernel waits on it."""
IDLE = 5.0
LOW = 0.8
"""Share of its own usual power below which a pinned GPU waits and does not compute. A threshold of ours."""
MOST = 0.9
"""Share of the GPUs that must agree before it is a sign."""
SEEN = 0.8
"""Share of `long_enough` that a GPU's samples must span: samples come every so often, and not at its ends."""
COMPUTES = 0.5
"""Share of the GPUs that compute, from which on it is no hang."""


@dataclass(frozen=True)
class Sign:
    """The answer of one source."""

    verdict: str
    """`confirms`, `refutes`, `unknown` or `not available`."""
    text: str
    query: str = ""


def judge(reading: Reading, nodes: Sequence[str], silence: timedelta, settings: PrometheusSettings) -> Sign:
    """What the GPUs say of the silence.

    Args:
        reading: the answers to `QUERIES`, over the time of the silence.
        nodes: of the job.
        silence: how long no step came.
        settings: what is long enough, stale, busy.
    """
    if reading.problem:
        return Sign("not available", f"Prometheus does not tell: {reading.problem}")
    if silence < settings.long_enough:
        return Sign("unknown", f"{_s(silence)} of silence are too short to judge GPUs by")
    stale = settings.stale_after.total_seconds()
    fresh = {gpu for gpu, age in reading.of("age", nodes).items() if age <= stale}
    with_gpus = {node for node, _ in fresh}
    if not fresh or len(with_gpus) < MOST * len(set(nodes)):
        return Sign("unknown", f"fresh samples of the GPUs of {len(with_gpus)} of {len(set(nodes))} nodes")
    seen_for, enough = reading.of("seen_for", nodes), settings.long_enough.total_seconds()
    seen = sorted(seen_for.get(gpu, 0.0) for gpu in fresh)
    if seen[len(seen) // 2] < SEEN * enough:
        text = f"the samples of its GPUs span {seen[len(seen) // 2]:.0f} s, and {enough:.0f} s are needed"
        return Sign("unknown", text, reading.texts.get("seen_for", ""))

    if busy := _writes(reading, nodes, settings):
        return Sign("refutes", busy, reading.texts.get("io", ""))
    least, most = reading.of("utilisation_least", nodes), reading.of("utilisation_most", nodes)
    power, before = reading.of("power", nodes), reading.of("power_before", nodes)
    idle = {g for g in fresh if g in most and most[g] <= IDLE}
    ratios = {g: power[g] / before[g] for g in fresh if g in power and before.get(g, 0) > 0}
    waits = {g for g in fresh - idle if g in least and least[g] >= PINNED and ratios.get(g, 1) < LOW}
    computes = {g for g in fresh - idle - waits if g in most and ratios.get(g, 0) >= LOW}
    query = reading.texts.get("power", "")
    if len(idle | waits) >= MOST * len(fresh):
        return Sign("confirms", _stuck(idle, waits, ratios, silence), query)
    if len(computes) >= COMPUTES * len(fresh):
        share = sorted(ratios[g] for g in computes)[len(computes) // 2]
        text = f"{len(computes)} of {len(fresh)} GPUs draw {share:.0%} of their usual power: they compute"
        return Sign("refutes", text, query)
    text = f"of {len(fresh)} GPUs {len(waits)} wait, {len(idle)} are idle and {len(computes)} compute"
    return Sign("unknown", text, query)


def _stuck(
    idle: set[tuple[str, str]],
    waits: set[tuple[str, str]],
    ratios: dict[tuple[str, str], float],
    silence: timedelta,
) -> str:
    parts = []
    if waits:
        share = sorted(ratios[g] for g in waits)[len(waits) // 2]
        parts.append(f"{len(waits)} GPUs are at full utilisation with {share:.0%} of their usual power")
    if idle:
        parts.append(f"{len(idle)} GPUs are idle")
    return f"for {_s(silence)}, {' and '.join(parts)}"


def _writes(reading: Reading, nodes: Sequence[str], settings: PrometheusSettings) -> str:
    """Which node writes or sends far more than it usually does; empty when none does."""
    now, before = reading.of("io", nodes), reading.of("io_before", nodes)
    for (node, _), rate in sorted(now.items(), key=lambda item: -item[1]):
        usual = before.get((node, ""), 0.0)
        if rate >= settings.io_busy and rate >= 3 * usual:
            return (
                f"{node} writes {rate / 1e6:.0f} MB/s (usually {usual / 1e6:.0f}): it may save a checkpoint"
            )
    return ""


def _s(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"
