"""What changed for the worse between two looks at a GPU. Pure: no NVML, no clock.

Only changes count: how a GPU was when the sensor started is history. A value that is unknown on either side
says nothing, and a counter that went down was reset.
"""

from collections.abc import Iterator

from relight.contracts import Cause, Role, Source, Symptom
from relight.diagnosis.findings import Finding
from sensor.node.gpu_reading import GpuReading

HELD_LOOKS = 3
"""Looks in a row with the clocks held down before it is told: a moment of it is normal."""
_NEEDS = {1: "a reset", 2: "a reboot of the node", 4: "to be drained and reset", 6: "a reset of its bus",
          7: "a reboot of the node"}  # fmt: skip
_RESETS, _REBOOTS = {1, 4, 6}, {2, 7}
_MAY_WAIT = {3: "no new peer-to-peer work", 5: "its NVLink domain to be recovered"}
_HELD = {
    0x08: "slowed down by the hardware",
    0x20: "too hot (software)",
    0x40: "too hot",
    0x80: "power brake",
}


class GpuJudge:
    """Remembers how each GPU was."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._before: dict[str, GpuReading] = {}
        self._held: dict[str, int] = {}

    def judge(self, now: GpuReading) -> list[Finding]:
        """What is worse than at the last look; nothing at the first one."""
        before = self._before.get(now.pci)
        self._before[now.pci] = now
        held = self._held.get(now.pci, 0) + 1 if now.clocks_held else 0
        self._held[now.pci] = held
        if before is None:
            return []
        found = list(self._changes(before, now))
        if held == HELD_LOOKS:
            why = ", ".join(text for bit, text in _HELD.items() if (now.clocks_held or 0) & bit)
            found.append(
                self._finding(
                    now, "clocks-held", Cause.GPU_HARDWARE, f"clocks held down: {why}", symptom=Symptom.SLOW
                )
            )
        return found

    def missing(self, present: set[str], count: int, expected: int) -> list[Finding]:
        """GPUs that were there in an earlier session and are gone, or fewer than this node should have.

        That some were missing from the start is history: it explains, and starts nothing.
        """
        gone = sorted(set(self._before) - present)
        for pci in gone:
            del self._before[pci]
            self._held.pop(pci, None)
        text = f"the driver shows {count} GPUs of {expected}"
        return [
            self._finding(
                GpuReading(pci),
                "gpu-missing",
                Cause.GPU_FALLEN_OFF_BUS,
                text,
                holds_out=bool(pci),
                weight=3,
            )
            for pci in gone or [""]
        ]

    def _changes(self, old: GpuReading, now: GpuReading) -> Iterator[Finding]:
        if now.lost and not old.lost:
            says = "the driver has lost the GPU"
            yield self._finding(now, "gpu-lost", Cause.GPU_FALLEN_OFF_BUS, says, holds_out=True, weight=5)
        if now.reset_required and not old.reset_required:
            says = "the driver refuses the GPU until it is reset"
            yield self._finding(
                now, "reset-required", Cause.GPU_HARDWARE, says, holds_out=True, needs="reset"
            )
        if more := _rise(old.ecc_uncorrected, now.ecc_uncorrected):
            says = (
                f"{more} more uncorrected memory errors ({now.ecc_uncorrected} since the driver was loaded)"
            )
            yield self._finding(now, "ecc-uncorrected", Cause.GPU_MEMORY_ECC, says, holds_out=True)
        if now.remap_failed and old.remap_failed is False:
            says = "broken memory could not be mapped out"
            yield self._finding(now, "remap-failed", Cause.GPU_MEMORY_ECC, says, holds_out=True, weight=6)
        if (now.remap_pending and old.remap_pending is False) or (
            now.retired_pending and old.retired_pending is False
        ):
            says = "broken memory will be mapped out at the next reset"
            yield self._finding(now, "remap-pending", Cause.GPU_MEMORY_ECC, says, needs="reset")
        down = [
            n for n, (was, up) in enumerate(zip(old.links, now.links, strict=False)) if was and up is False
        ]
        if down:
            says = f"NVLink {', '.join(map(str, down))} went down"
            yield self._finding(now, "nvlink-down", Cause.NVLINK, says, holds_out=True)
        if more := _rise(old.link_recoveries, now.link_recoveries):
            says = f"NVLink recovered from errors {more} times"
            yield self._finding(now, "nvlink-recovery", Cause.NVLINK, says, symptom=Symptom.SLOW)
        if _narrow(now) and not _narrow(old) and old.pcie_width is not None:
            says = f"PCIe runs on {now.pcie_width} of {now.pcie_width_most} lanes"
            yield self._finding(now, "pcie-width", Cause.GPU_HARDWARE, says, symptom=Symptom.SLOW)
        if (
            now.recovery_action is not None
            and old.recovery_action is not None
            and now.recovery_action != old.recovery_action
        ):
            yield from self._recovery(now, now.recovery_action)

    def _recovery(self, now: GpuReading, action: int) -> Iterator[Finding]:
        if (what := _NEEDS.get(action)) is not None:
            says = f"the driver says that the GPU needs {what}"
            needs = "reset" if action in _RESETS else "reboot" if action in _REBOOTS else ""
            yield self._finding(
                now, f"needs-{action}", Cause.GPU_HARDWARE, says, holds_out=True, weight=-2, needs=needs
            )
        elif action:
            says = f"the driver says that the GPU needs {_MAY_WAIT.get(action, f'action {action}')}"
            yield self._finding(now, f"needs-{action}", Cause.GPU_HARDWARE, says)

    def _finding(
        self,
        gpu: GpuReading,
        signature: str,
        cause: Cause,
        says: str,
        *,
        holds_out: bool = False,
        symptom: Symptom = Symptom.CRASH,
        weight: int = 0,
        needs: str = "",
    ) -> Finding:
        """Faults that hold the node out are roots; all else explains, and starts nothing by itself."""
        name = f"GPU {gpu.index} ({gpu.pci}, {gpu.uuid})" if gpu.index >= 0 else f"GPU {gpu.pci}".strip()
        return Finding(
            signature=f"nvml.{signature}",
            role=Role.ROOT if holds_out else Role.CONTEXT,
            symptom=symptom,
            cause=cause,
            file="nvml",
            line=0,
            offset=0,
            text=f"{name}: {says}",
            node=self._node,
            gpu=gpu.pci or None,
            key=f"nvml.{signature}",
            source=Source.NVML,
            hold_out=holds_out,
            weight=weight,
            needs=needs,
            says=f"NVML: {says}.",
        )


def _rise(old: int | None, now: int | None) -> int:
    return max(0, now - old) if old is not None and now is not None else 0


def _narrow(r: GpuReading) -> bool:
    return r.pcie_width is not None and r.pcie_width_most is not None and r.pcie_width < r.pcie_width_most
