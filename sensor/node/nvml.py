"""NVIDIA's management library, asked so that nothing it does can hurt: what it does not tell is unknown.

Any call may be missing from an old driver, fail, or never return. A call that does not return blocks only the
thread that made it; others see that in `Session.busy_since`.
"""

import ctypes
import time
from dataclasses import dataclass
from typing import Any

import pynvml

_GONE = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
"""What makes the whole session useless: the driver was unloaded or replaced."""
_NEVER = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
"""Asking again is idle."""


class NvmlUnavailable(Exception):
    """There is no NVML to ask, or not any more. The message says why."""


class SessionOver(NvmlUnavailable):
    """NVML must be initialised anew: the driver was unloaded or replaced, or no longer tells of events."""


class GpuLost(Exception):
    """The driver says that it has lost this GPU."""


class ResetRequired(Exception):
    """The driver says that this GPU must be reset before it can be used."""


@dataclass(frozen=True)
class Gpu:
    """One GPU of this session."""

    index: int
    handle: Any
    pci: str
    """As the kernel names it: `0000:3b:00`."""
    uuid: str


class Session:
    """One initialisation of NVML, for one thread."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self.count = 0
        """GPUs that the driver counts; more than `gpus` where some cannot be opened."""
        self.driver = ""
        self.busy_since: float | None = None
        """Since when a call is under way (`time.monotonic`); None: none is."""
        self._is_open = False
        self._unsupported: set[tuple[str, str, int]] = set()
        self._by_handle: dict[int, Gpu] = {}

    def open(self) -> None:
        """Initialises NVML and looks for GPUs.

        Raises:
            NvmlUnavailable: there is no driver, or it does not answer.
        """
        try:
            self._call("nvmlInit")
            self._is_open = True
            self.driver = _text(self.ask("nvmlSystemGetDriverVersion"))
            self.count = self._call("nvmlDeviceGetCount")
        except (pynvml.NVMLError, OSError) as e:
            raise NvmlUnavailable(str(e)) from e
        gpus = []
        for index in range(self.count):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
                pci = _pci(self._call("nvmlDeviceGetPciInfo", handle))
                gpus.append(Gpu(index, handle, pci, _text(self._call("nvmlDeviceGetUUID", handle))))
            except pynvml.NVMLError:
                continue  # a GPU that is lost already: it is missing from the count of those that work
        self.gpus = tuple(gpus)
        self._by_handle = {_address(gpu.handle): gpu for gpu in gpus}

    def close(self) -> None:
        """Ends the session; a library that is gone already needs no end."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._call("nvmlShutdown")
        except pynvml.NVMLError:
            return

    def ask(self, name: str, *args: Any, gpu: Gpu | None = None) -> Any:
        """What a function of pynvml says; None: it does not say.

        Args:
            name: the function.
            args: its arguments, without the GPU's handle.
            gpu: the GPU it is about.

        Raises:
            SessionOver: nothing can be asked any more.
            GpuLost, ResetRequired: the driver says so of this GPU.
        """
        key = (name, repr(args), gpu.index if gpu is not None else -1)
        if key in self._unsupported:
            return None
        try:
            return self._call(name, *((gpu.handle, *args) if gpu is not None else args))
        except pynvml.NVMLError as e:
            if e.value in _GONE:
                raise SessionOver(str(e)) from e
            if e.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise GpuLost from e
            if e.value == pynvml.NVML_ERROR_RESET_REQUIRED:
                raise ResetRequired from e
            if e.value in _NEVER:
                self._unsupported.add(key)
            return None

    def field(self, gpu: Gpu, number: int) -> int | None:
        """The value of a numbered field (`NVML_FI_...`); None: it does not say."""
        values = self.ask("nvmlDeviceGetFieldValues", [number], gpu=gpu)
        if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        v = values[0]
        if v.valueType == pynvml.NVML_VALUE_TYPE_DOUBLE:
            return int(v.value.dVal)
        if v.valueType in {pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, pynvml.NVML_VALUE_TYPE_SIGNED_INT}:
            return int(v.value.uiVal)
        return int(v.value.ullVal)

    def wait_for_event(self, events: Any, timeout: float) -> tuple[int, int, Gpu | None] | None:
        """The next event as (type, data, GPU); None: none came in time.

        Raises:
            SessionOver: events can no longer be waited for.
        """
        try:
            event = self._call("nvmlEventSetWait", events, int(timeout * 1000))
        except pynvml.NVMLError as e:
            if e.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            # The wait itself says "GPU lost" when the GPU that it waited on has gone.
            raise SessionOver(f"waiting for events: {e}") from e
        gpu = self._by_handle.get(_address(event.device)) if event.device else None
        return int(event.eventType), int(event.eventData), gpu

    def watch_events(self, kinds: int) -> Any:
        """An event set with these kinds of all GPUs that have them.

        Raises:
            NvmlUnavailable: no GPU tells of such events.
        """
        try:
            events = self._call("nvmlEventSetCreate")
        except pynvml.NVMLError as e:
            raise NvmlUnavailable(f"no events: {e}") from e
        registered = 0
        why = "there is no GPU"
        for gpu in self.gpus:
            try:
                self._call("nvmlDeviceRegisterEvents", gpu.handle, kinds, events)
                registered += 1
            except pynvml.NVMLError as e:
                why = str(e)
        if not registered:
            raise NvmlUnavailable(f"no events: {why}")
        return events

    def forget_events(self, events: Any) -> None:
        """Ends an event set."""
        try:
            self._call("nvmlEventSetFree", events)
        except pynvml.NVMLError:
            return  # it went with the session

    def _call(self, name: str, *args: Any) -> Any:
        function = getattr(pynvml, name, None)
        if function is None:  # an old pynvml
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self.busy_since = time.monotonic()
        try:
            return function(*args)
        finally:
            self.busy_since = None


def _pci(info: Any) -> str:
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
