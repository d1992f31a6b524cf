"""A checkpoint is untrusted input: whatever a pickle in it says, nothing is run."""

import io
import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from relight.checkpoints import inspect
from tests.relight.checkpoints.builders import WRITERS, age, write_run

PICKLED = {".pt", ".pth", ".ckpt", ".pkl", ".bin", ".distcp", ".metadata"}


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.trace),))


def evil_pickle(trace: Path) -> bytes:
    """A pickle that leaves a trace; checked here to really do so."""
    data = pickle.dumps({"global_step": 5, "x": Evil(trace)}, protocol=2)
    pickle.loads(data)
    trace.rmdir()
    return data


def evil_zip(trace: Path) -> bytes:
    """A `torch.save` archive around it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", evil_pickle(trace))
    return out.getvalue()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("make", [evil_pickle, evil_zip])
@pytest.mark.parametrize("variant", WRITERS)
def test_a_malicious_pickle_in_every_file_does_nothing(
    variant: str, make: Any, deep: bool, tmp_path: Path
) -> None:
    root, trace = tmp_path / "run", tmp_path / "was-here"
    write_run(root, variant)
    evil = make(trace)
    for path in root.rglob("*"):
        if path.is_file() and (path.suffix in PICKLED or path.name in PICKLED):
            path.write_bytes(evil)
    age(root)
    inspect(root, deep=deep)
    assert not trace.exists()


def test_the_gate_uses_no_unpickler() -> None:
    source = Path(__file__).parents[3] / "relight" / "checkpoints"
    for path in source.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text.replace("import pickles", ""), path
        assert "torch.load" not in text, path
    assert "torch" not in sys.modules or os.environ.get("RELIGHT_REAL_LIBRARIES")
