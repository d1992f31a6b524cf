"""The stub of NVIDIA's library, loaded into this process: pynvml finds it by its name."""

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relight.diagnosis.catalogue import Catalogue
from sensor.node.kernel import kernel_catalogue
from tests.sensor.node.stub import Stub, compile_stub


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(stub_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """The library says what the test tells it to; eight healthy GPUs until then."""
    ctypes.CDLL(str(stub_library), mode=ctypes.RTLD_GLOBAL)  # the name that pynvml asks for is loaded now
    script = tmp_path / "nvml.script"
    says = Stub(script)
    monkeypatch.setenv("NVML_STUB", str(script))
    yield says
    says.path.write_text("")  # nothing hangs any more


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return kernel_catalogue(Catalogue.load())


def wait_until(what: str, holds: Callable[[], object], seconds: float = 20) -> None:
    """Waits, in this thread."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
