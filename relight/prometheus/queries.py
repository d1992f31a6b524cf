"""The queries: PromQL templates by name, for dcgm-exporter and node_exporter; a site can replace each.

`$window` is the time that is judged, up to now, and `$step` a twentieth of it. What is normal is told by the
time `$before`, which ended `$ago` ago: when the silence began. `$match` is a matcher of the nodes' label (or
nothing), `$labels` those that may name the node: every query is about all nodes at once. Names of metrics and
labels are those of dcgm-exporter 3 and 4 (`etc/default-counters.csv`) and node_exporter 1.5.
"""

from collections.abc import Mapping, Sequence
from string import Template

STEPS = 20
"""So many looks are made within a window where one has to be looked at step by step."""
_BUSY_DEVICES = 'device!~"lo|veth.*|docker.*|dm-.*|loop.*"'


def _held(metric: str) -> str:
    """Its series with a bit of 0x8, 0x40 or 0x80 (nvmlClocksEventReasons: by hardware)."""
    return f"({metric}$match and (floor({metric}$match / 8) % 2 > 0 or floor({metric}$match / 64) % 4 > 0))"


DEFAULTS: Mapping[str, str] = {
    # How busy GPUs were. One number a GPU.
    "age": "time() - timestamp(DCGM_FI_DEV_GPU_UTIL$match)",
    "seen_for": "time() - min_over_time(timestamp(DCGM_FI_DEV_GPU_UTIL$match)[$window:$step])",
    "utilisation_least": "min_over_time(DCGM_FI_DEV_GPU_UTIL$match[$window])",
    "utilisation_most": "max_over_time(DCGM_FI_DEV_GPU_UTIL$match[$window])",
    "power": "avg_over_time(DCGM_FI_DEV_POWER_USAGE$match[$window])",
    "power_before": "quantile_over_time(0.5, DCGM_FI_DEV_POWER_USAGE$match[$before] offset $ago)",
    # How much nodes wrote and sent, bytes a second. One number a node.
    "io": (
        "sum by (instance) (rate(node_disk_written_bytes_total[$window])) + "
        f"sum by (instance) (rate(node_network_transmit_bytes_total{{{_BUSY_DEVICES}}}[$window]))"
    ),
    "io_before": (
        "sum by (instance) (rate(node_disk_written_bytes_total[$before] offset $ago)) + sum by (instance) "
        f"(rate(node_network_transmit_bytes_total{{{_BUSY_DEVICES}}}[$before] offset $ago))"
    ),
    # What went wrong. Only series that did are answered, so the answer is short however many nodes there are.
    "ecc": (
        "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL$match[$window]) > 0 or "
        "increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS$match[$window]) > 0"
    ),
    "remap_failed": (
        "(DCGM_FI_DEV_ROW_REMAP_FAILURE$match > 0) and "
        "(DCGM_FI_DEV_ROW_REMAP_FAILURE$match offset $window == 0)"
    ),
    "nvlink": (
        "increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL$match[$window]) > 0 or "
        "increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL$match[$window]) > 0"
    ),
    # The gauge keeps the last Xid for ever, and a repeat leaves no trace: only a change says something.
    "xid": (
        "(DCGM_FI_DEV_XID_ERRORS$match > 0) and "
        "(DCGM_FI_DEV_XID_ERRORS$match != DCGM_FI_DEV_XID_ERRORS$match offset $window)"
    ),
    "gone": "(DCGM_FI_DEV_GPU_TEMP$match offset $window) unless on (UUID) DCGM_FI_DEV_GPU_TEMP$match",
    "present": "count by ($labels) (DCGM_FI_DEV_GPU_TEMP$match)",
    # Clocks held down by hardware, by the name that dcgm-exporter 3 or 4 has for it; and the clocks of all.
    "held": (f"{_held('DCGM_FI_DEV_CLOCK_THROTTLE_REASONS')} or {_held('DCGM_FI_DEV_CLOCKS_EVENT_REASONS')}"),
    "clock": "DCGM_FI_DEV_SM_CLOCK$match",
}


def fill(
    template: str,
    *,
    window: float,
    before: float,
    ago: float | None = None,
    match: str = "",
    labels: Sequence[str] = ("instance",),
) -> str:
    """The query. Times are seconds; `ago` is the window when it is not given.

    Raises:
        ValueError: the template names something that is not filled in here.
    """
    known = "$window, $step, $before, $ago, $match and $labels"
    try:
        return Template(template).substitute(
            window=_seconds(window),
            step=_seconds(window / STEPS),
            before=_seconds(before),
            ago=_seconds(window if ago is None else ago),
            match=match,
            labels=", ".join(labels),
        )
    except KeyError as error:
        raise ValueError(f"a query names ${error.args[0]}; it may name {known}") from error


def _seconds(duration: float) -> str:
    return f"{max(1, round(duration))}s"
