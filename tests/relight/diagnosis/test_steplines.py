"""How frameworks print steps: the recorded formats, others like them, and lines that are none."""
# ruff: noqa: E501

import json
import math

import pytest

from relight.diagnosis import steplines
from relight.diagnosis.cases import predict, read_rows
from relight.diagnosis.findings import StepLine
from tests.relight.diagnosis.making import CATALOGUE, CORPUS, read

ROWS = list(read_rows((CORPUS / "progress.jsonl").read_text().splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['id']}-{r['framework']}")
def test_recorded_formats(row: dict[str, object]) -> None:
    found = predict(row, CATALOGUE)
    assert found["step"] in [row["expect_step"], *row.get("accept_steps", [])]  # type: ignore[misc]
    assert found["throughput"] == pytest.approx(row["expect_throughput"])


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        ("step 5 loss 7.1", 5, 7.1),
        ("step: 12 | loss: 2.5 | lr: 1e-4", 12, 2.5),
        ("Step 120/5000, loss=3.25, 1.2 s/it", 120, 3.25),
        ("[2026-01-01 00:00:01] step 7 loss 2.0", 7, 2.0),
        ("iter 1631: loss 4.0863, time 561.94ms", 1631, 4.0863),
        ("iter 811 loss 2.2", 811, 2.2),
        ("epoch: 1, step 15733, loss 1.211", 15733, 1.211),
        ("step 2100 | loss 2.81", 2100, 2.81),
        ("  5%|▍         | 2465/50000 [2:51:14<50:45:10,  3.84s/it, loss=0.5]", 2465, 0.5),
        ("Epoch 0: 100%|██████████| 1201/1201 [2:10:01<00:00,  6.49s/it, loss=0.11]", 1201, 0.11),
        ("I0905 17:19:31.102211 train.py:585] step 65069 loss=2.114 tokens_per_second=4183201", 65069, 2.114),
        (
            "06/01 12:00:00 - mmengine - INFO - Epoch(train)  [2][ 50/100]  lr: 1e-3  time: 0.41  data_time: 0.01  loss: 0.9",
            150,
            0.9,
        ),
        (
            "[2026-01-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=30, skipped=0, lr=[1e-5], mom=[(0.9, 0.95)]",
            30,
            None,
        ),
        (
            "Training epoch 0, iteration 5/100 | lr: 1e-4 | global_batch_size: 8 | global_step: 5 | reduced_train_loss: 10.3 | train_step_timing in s: 1.2",
            5,
            10.3,
        ),
        (
            "iteration      120/ 100000 | elapsed time per iteration (ms): 101.2 | lm loss: 1.23E+00 |",
            120,
            1.23,
        ),
        ("{'loss': 2.1, 'global_step/max_steps': '200/619'}", 200, 2.1),
    ],
)
def test_other_formats(line: str, step: int, loss: float | None) -> None:
    found = steplines.parse(line)
    assert found is not None
    assert found.step == step
    assert found.loss == (pytest.approx(loss) if loss is not None else None)
    assert [e.step for e in read(line + "\n") if isinstance(e, StepLine)] == [step]


@pytest.mark.parametrize(
    "line",
    [
        "step one of the installation",
        "Downloading: 45%",
        "loading 12/34 shards",
        "validation step 5: val loss 2.0",
        "iteration limit reached",
        "see step 3 of the manual",
        "wandb: Run data is saved locally in wandb/run-20260101_000000",
    ],
)
def test_lines_that_are_no_steps(line: str) -> None:
    assert [e for e in read(line + "\n") if isinstance(e, StepLine)] == []


def test_a_loss_that_is_not_a_number_is_told() -> None:
    nan = steplines.parse("step 5 loss nan")
    assert nan is not None
    assert nan.loss is not None
    assert math.isnan(nan.loss)
    assert nan.no_loss
    gone = steplines.parse(
        "iteration 5/ 10 | elapsed time per iteration (ms): 9.0 | loss scale: 1.0 | grad norm: nan |"
    )
    assert gone is not None
    assert gone.no_loss
    assert gone.grad_norm is not None
    assert math.isnan(gone.grad_norm)


def test_a_record_of_many_lines_is_one_step_with_all_it_says() -> None:
    log = "steps: 100 loss: 2.40 iter time (s): 4.100 samples/sec: 31.220\ntime (ms) | forward: 410.1 | batch_input: 5611.00 | backward: 1210.4\n"
    steps = [e for e in read(log) if isinstance(e, StepLine)]
    assert [(s.step, s.data_seconds) for s in steps] == [(100, None), (100, pytest.approx(5.611))]


def test_a_job_can_teach_its_own_format() -> None:
    form = steplines.custom(r"tick (?P<step>[\d,]+) of (?P<total>\d+), goodness (?P<loss>[\d.]+)")
    found = steplines.parse("tick 1,200 of 5000, goodness 0.5", (form,))
    assert found is not None
    assert (found.step, found.total, found.loss) == (1200, 5000, 0.5)


@pytest.mark.parametrize(
    ("pattern", "message"), [("step", "group"), ("(", "compile"), (r"(?P<step>\d+)(?=x)", "engine")]
)
def test_a_pattern_that_cannot_work_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        steplines.custom(pattern)


def test_numbers_too_long_to_be_steps_are_none() -> None:
    assert steplines.parse(f"step {'9' * 40} loss 1.0") is None


def test_rows_are_as_they_were_recorded() -> None:
    assert len(ROWS) == 16
    assert json.dumps(ROWS)
