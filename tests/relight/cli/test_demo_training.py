"""The demo's proof: read from the training's own log."""

import pytest

from relight.cli.demo_training import AttemptSteps, Proof, Training, prove, read_attempts

FRESH = b"no checkpoint found, starting from step 0\n"
RESUMED = b"loaded checkpoint /d/checkpoints/step_00000020 at step 20\n"


def steps(first: int, last: int) -> bytes:
    return b"".join(
        b"[2026-12-02 05:00:00] iteration %8d/ 100000 | elapsed time per iteration (ms): 100.0 |\n" % step
        for step in range(first, last + 1)
    )


@pytest.mark.parametrize(
    ("log", "proof"),
    [
        (b"", None),
        (FRESH + steps(1, 35), None),
        (FRESH + steps(1, 35) + RESUMED, None),
        (FRESH + steps(1, 35) + RESUMED + steps(21, 35), None),
        (FRESH + steps(1, 35) + RESUMED + steps(21, 36), Proof(35, 20, 36)),
        (FRESH + steps(1, 35) + FRESH + steps(1, 36), Proof(35, 0, 36)),
        (FRESH + RESUMED + steps(21, 22), Proof(0, 20, 22)),
        # Three attempts: the furthest step counts, not the first attempt's.
        (FRESH + steps(1, 35) + RESUMED + steps(21, 40) + RESUMED + steps(21, 38), None),
        (FRESH + steps(1, 35) + RESUMED + steps(21, 40) + RESUMED + steps(21, 41), Proof(40, 20, 41)),
        # Words in a traceback are no start of an attempt.
        (FRESH + steps(1, 35) + b"ValueError: loaded checkpoint x at step 99\n" + steps(36, 37), None),
    ],
)
def test_proof(log: bytes, proof: Proof | None) -> None:
    assert prove(log) == proof


def test_attempts() -> None:
    log = FRESH + steps(1, 3) + b"\xff\x00 junk\n" + RESUMED
    assert read_attempts(log) == [AttemptSteps(0, 3), AttemptSteps(20, None)]


@pytest.mark.parametrize(("scheduler", "starts"), [("local", "exec "), ("slurm-cli", "srun ")])
def test_the_script_suits_the_scheduler(tmp_path: object, scheduler: str, starts: str) -> None:
    from pathlib import Path

    script = Training(Path("/a dir")).request(scheduler).script.splitlines()
    assert script[1].startswith(starts)
    assert "'/a dir'" in script[1], "quoted for the shell"
