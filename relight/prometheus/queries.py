"""The queries: PromQL templates by name, for dcgm-exporter and node_exporter; a site can replace each.

`$window` is the time that is judged, `$before` the time before it that tells what is normal, `$match` a
matcher of the nodes' label (or nothing): every query is about all nodes at once. Names of metrics and labels
are those of dcgm-exporter 3 and 4 (`etc/default-counters.csv`) and node_exporter 1.5.
"""

from collections.abc import Mapping
from string import Template

_BUSY_DEVICES = 'device!~"lo|veth.*|docker.*|dm-.*|loop.*"'

DEFAULTS: Mapping[str, str] = {
    # How busy GPUs were. One number a GPU.
    "age": "time() - timestamp(DCGM_FI_DEV_GPU_UTIL$match)",
    "utilisation_least": "min_over_time(DCGM_FI_DEV_GPU_UTIL$match[$window])",
    "utilisation_most": "max_over_time(DCGM_FI_DEV_GPU_UTIL$match[$window])",
    "power": "avg_over_time(DCGM_FI_DEV_POWER_USAGE$match[$window])",
    "power_before": "quantile_over_time(0.5, DCGM_FI_DEV_POWER_USAGE$match[$before] offset $window)",
    # How much nodes wrote and sent, bytes a second. One number a node.
    "io": (
        "sum by (instance) (rate(node_disk_written_bytes_total[$window])) + "
        f"sum by (instance) (rate(node_network_transmit_bytes_total{{{_BUSY_DEVICES}}}[$window]))"
    ),
    "io_before": (
        "sum by (instance) (rate(node_disk_written_bytes_total[$before] offset $window)) + sum by (instance) "
        f"(rate(node_network_transmit_bytes_total{{{_BUSY_DEVICES}}}[$before] offset $window))"
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
    "present": "DCGM_FI_DEV_GPU_TEMP$match",
    # Clocks held down by hardware (bits of nvmlClocksEventReasons), and the clocks of all.
    "held": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS$match or DCGM_FI_DEV_CLOCKS_EVENT_REASONS$match",
    "clock": "DCGM_FI_DEV_SM_CLOCK$match",
}


def fill(template: str, *, window: float, before: float, match: str = "") -> str:
    """The query. Times are seconds.

    Raises:
        ValueError: the template names something else than `$window`, `$before` and `$match`.
    """
    try:
        return Template(template).substitute(
            window=f"{max(1, round(window))}s", before=f"{max(1, round(before))}s", match=match
        )
    except KeyError as error:
        known = "$window, $before and $match"
        raise ValueError(f"a query names ${error.args[0]}; it may name {known}") from error
