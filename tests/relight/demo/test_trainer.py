"""The demo's training job: real processes, real sockets, real checkpoints."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from relight.demo import trainer

SIZE = 4


@dataclass
class Ended:
    """How an attempt ended: return codes by rank, and the output of all."""

    codes: list[int]
    text: str

    @property
    def steps(self) -> list[int]:
        return [int(n) for n in re.findall(r"\] iteration +(\d+)/", self.text)]

    @property
    def losses(self) -> list[float]:
        return [float(n) for n in re.findall(r"lm loss: (\S+)", self.text)]


class Attempt:
    """All ranks of one attempt."""

    def __init__(self, directory: Path, options: str, restart: int = 0, size: int = SIZE) -> None:
        self.log = directory.parent / f"attempt{restart}.log"
        out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.ranks = [
            subprocess.Popen(
                [sys.executable, trainer.__file__, "--dir", str(directory), *options.split()],
                env={
                    **os.environ,
                    "SLURM_PROCID": str(rank),
                    "SLURM_NTASKS": str(size),
                    "SLURM_JOB_ID": "7",
                    "SLURMD_NODENAME": f"node{rank:02d}",
                    "SLURM_RESTART_COUNT": str(restart) if restart else "",
                },
                stdout=out,
                stderr=out,
            )
            for rank in range(size)
        ]
        os.close(out)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def reaches(self, step: int) -> None:
        """Waits until the step is printed."""
        end = time.monotonic() + 30
        while f"iteration {step:8d}/" not in self.text:
            assert time.monotonic() < end, self.text
            time.sleep(0.02)

    def end(self) -> Ended:
        codes = [rank.wait(30) for rank in self.ranks]
        return Ended(codes, self.text)

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def run(directory: Path, options: str, restart: int = 0, size: int = SIZE) -> Ended:
    return Attempt(directory, options, restart, size).end()


@pytest.mark.parametrize(
    ("layout", "checkpoint"), [("marker", "step_00000020"), ("megatron", "iter_0000020")]
)
def test_a_failed_attempt_takes_all_ranks_down_and_the_next_continues(
    tmp_path: Path, layout: str, checkpoint: str
) -> None:
    directory = tmp_path / "run"
    options = f"--steps 40 --step-time 0.01 --save-every 10 --layout {layout} --fault exception@25:2"
    failed = run(directory, options)
    assert all(failed.codes)
    assert failed.steps == list(range(1, 25))
    assert "[rank2]: ValueError: shape mismatch" in failed.text
    for rank in (0, 1, 3):
        assert re.search(rf"^\[rank{rank}\]: (ConnectionResetError|BrokenPipeError)", failed.text, re.M)
    resumed = run(directory, options, restart=1)
    assert resumed.codes == [0] * SIZE
    assert f"loaded checkpoint {directory}/checkpoints/{checkpoint} at step 20" in resumed.text
    assert resumed.steps == list(range(21, 41))
    assert "training finished at step 40" in resumed.text
    # the same data, the same weights: a repeated step has the very loss it had before
    assert resumed.losses[:4] == failed.losses[20:]
    assert resumed.losses[-1] < failed.losses[0] / 10


def test_it_starts_from_scratch_and_keeps_five_checkpoints(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "--steps 33 --step-time 0 --save-every 4", size=2)
    assert done.codes == [0, 0]
    assert "no checkpoint found, starting from step 0" in done.text
    checkpoints = tmp_path / "run" / "checkpoints"
    names = sorted(p.name for p in checkpoints.iterdir())
    assert names == [f"step_{n:08d}" for n in (20, 24, 28, 32, 33)]
    assert all((checkpoints / name / "COMPLETE").exists() for name in names)


def test_an_incomplete_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run(directory, "--steps 20 --step-time 0 --save-every 10", size=1)
    (directory / "checkpoints" / "step_00000020" / "COMPLETE").unlink()
    again = run(directory, "--steps 20 --step-time 0 --save-every 10", restart=1, size=1)
    assert "at step 10" in again.text
    assert again.steps[0] == 11


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("cuda", 1, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("oom", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("disk-full", 1, "OSError: [Errno 28] No space left on device"),
        ("exit:7", 7, ""),
        ("sigkill", -signal.SIGKILL, ""),
        ("segfault", -signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
    ],
)
def test_faults_end_the_rank_as_the_real_ones_do(tmp_path: Path, fault: str, code: int, says: str) -> None:
    failed = run(tmp_path / "run", f"--steps 10 --step-time 0 --fault {fault}@3:1", size=2)
    assert failed.codes[1] == code
    assert failed.codes[0] == 1
    assert failed.steps == [1, 2]
    assert says in failed.text


def test_nan_stays_until_the_restart(tmp_path: Path) -> None:
    options = "--steps 20 --step-time 0 --save-every 5 --fault nan@12:1"
    bad = run(tmp_path / "run", options, size=2)
    assert [loss != loss for loss in bad.losses] == [False] * 11 + [True] * 9
    assert "skipping the checkpoint at step 15" in bad.text
    good = run(tmp_path / "run", options, restart=1, size=2)
    assert good.steps == list(range(11, 21))
    assert all(loss == loss for loss in good.losses)


def test_a_fault_fires_as_often_as_told(tmp_path: Path) -> None:
    options = "--steps 10 --step-time 0 --save-every 4 --fault exit:3@6x2"
    ends = [run(tmp_path / "run", options, restart=n, size=2) for n in range(3)]
    assert [e.codes[1] for e in ends] == [3, 3, 0]
    assert [e.steps[-1] for e in ends] == [5, 5, 10]


def test_checkpoints_are_ignored_once(tmp_path: Path) -> None:
    options = "--steps 10 --step-time 0 --save-every 4 --fault exit:3@6 --fault ignore-checkpoints@1"
    ends = [run(tmp_path / "run", options, restart=n, size=1) for n in range(2)]
    assert [e.steps[0] for e in ends] == [1, 1]
    assert "WARNING: checkpoints are ignored" in ends[1].text


def test_a_hang_ordered_while_it_runs_and_a_quick_end(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    attempt = Attempt(directory, "--step-time 0.02", size=3)
    try:
        attempt.reaches(5)
        scratch = directory / "order"
        scratch.write_text(json.dumps({"kind": "hang", "step": 1, "rank": 1}))
        scratch.rename(directory / "fault.json")
        end, before = time.monotonic() + 30, ""
        while attempt.text != before:  # silent for 0.5 s: that is 25 steps
            assert time.monotonic() < end
            before = attempt.text
            time.sleep(0.5)
        assert [rank.poll() for rank in attempt.ranks] == [None] * 3
        for rank in attempt.ranks:
            rank.terminate()
        began = time.monotonic()
        assert all(attempt.end().codes)
        assert time.monotonic() - began < 5
    finally:
        attempt.kill()


def test_a_pause_ends(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "--steps 6 --step-time 0 --fault pause:0.6@4:0", size=2)
    assert done.codes == [0, 0]
    times = [float(t) for t in re.findall(r"iteration \(ms\): (\S+)", done.text)]
    assert times[3] >= 600
    assert sorted(times)[-2] < 600


def test_a_stale_address_does_not_mislead(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    stale = directory / "rendezvous" / "7.0.json"
    stale.parent.mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    stale.write_text(json.dumps({"host": "localhost", "port": 1, "boot_id": boot, "token": "00" * 16}))
    assert run(directory, "--steps 3 --step-time 0", size=3).codes == [0, 0, 0]


@pytest.mark.parametrize(
    "text", ["exception", "exception@", "meteor@3", "pause@3", "exit:x@3", "@3", "nan@-1"]
)
def test_a_malformed_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        trainer.parse_fault(text)
