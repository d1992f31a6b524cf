"""Time and memory on many shards. `bench/checkpoints.py` measures up to 20,000; here a fifth of it, in CI."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.relight.checkpoints.builders import age, write_sparse_dcp

SHARDS = 4000


@pytest.mark.timeout(120)
def test_many_shards_take_seconds_and_little_memory(tmp_path: Path) -> None:
    """The limit for 20,000 shards is 5 s and 150 MB; noisy machines get twice the time."""
    write_sparse_dcp(tmp_path / "step-1000", SHARDS)
    age(tmp_path)
    command = [sys.executable, "-m", "bench.checkpoints", "--measure", str(tmp_path)]
    root = Path(__file__).parents[3]
    result = json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
    assert result["usable"] == "step-1000"
    assert f"headers and footers of {SHARDS}" in result["checked"]
    assert result["seconds"] < 2 * 5 * SHARDS / 20_000
    assert result["megabytes"] < 150
