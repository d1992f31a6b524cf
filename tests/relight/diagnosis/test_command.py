"""`relight diagnose`, `relight catalogue` and `relight progress`, as a person runs them."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from relight.cli.diagnose import parse_duration
from relight.cli.main import app
from tests.relight.diagnosis.making import CORPUS

LOG = (
    "SLURM_JOB_NODELIST=gpu[01-02] GPUS_PER_NODE=4\n"
    "step 5 loss 7.1\n"
    "[rank0]: ncclRemoteError: A call failed possibly due to a network error\n"
    "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
)
KERNEL = "[1.0] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=python, An uncorrectable double bit error\n"


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_text(LOG)
    return path


def test_a_verdict_for_a_person(log: Path) -> None:
    text = run("diagnose", log)
    assert "gpu memory ecc" in text
    assert "without gpu02" in text
    assert "uncorrectable ECC error" in text
    assert "network_fabric" in text.partition("dropped")[2]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_several_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(f"caf\xe9\n{LOG}".encode(encoding))
    assert "gpu memory ecc" in run("diagnose", path)


def test_a_verdict_for_a_program(log: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.log"
    kernel.write_text(KERNEL)
    data = json.loads(run("diagnose", "--json", "--kernel-log", f"gpu02={kernel}", log))
    assert {
        "symptom",
        "cause",
        "retryable",
        "blame_nodes",
        "action",
        "confidence",
        "first_error",
        "progress",
        "evidence",
        "explanation",
    } <= set(data)
    assert (data["cause"], data["blame_nodes"], data["action"]) == (
        "gpu_memory_ecc",
        ["gpu02"],
        "restart_exclude_node",
    )
    assert data["progress"]["last_step"] == 5
    assert {e["file"] for e in data["evidence"]} >= {str(kernel), str(log)}
    assert {"file", "line", "text", "signature", "role"} == set(data["evidence"][0])


def test_nodes_can_be_told(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    data = json.loads(run("diagnose", "--json", "--nodes", "n[1-4]", "--tasks-per-node", "2", log))
    assert data["blame_nodes"] == ["n4"]


def test_a_silent_job(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 5 loss 7.1\nstep 6 loss 7.0\n")
    data = json.loads(run("diagnose", "--json", "--silent-for", "30m", log))
    assert (data["symptom"], data["action"]) == ("hang", "restart")
    assert json.loads(run("diagnose", "--json", "--still-running", log))["symptom"] == "none"


def test_a_healthy_and_a_blind_job(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("hello\n")
    assert "Blind" in run("diagnose", log)


def test_cases_give_a_prediction_a_row() -> None:
    rows = [json.loads(line) for line in run("diagnose", "--case", CORPUS / "progress.jsonl").splitlines()]
    assert len(rows) == 16
    assert {"id", "step", "throughput"} == set(rows[0])
    cases = [json.loads(line) for line in run("diagnose", "--case", CORPUS / "cases.jsonl").splitlines()]
    assert {
        "id",
        "symptom",
        "cause",
        "blame_nodes",
        "action",
        "retryable",
        "first_error",
        "last_step",
    } == set(cases[0])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "at least one log"),
        (("/nowhere/a.log",), "no such file"),
        (("--nodes", "n[", "LOG"), "node list"),
        (("--step-pattern", "x", "LOG"), "group"),
        (("--silent-for", "soon", "LOG"), "duration"),
        (("--case", "/nowhere"), "cannot read"),
        (("--case", "LOG"), "not a file of cases"),
    ],
)
def test_what_is_wrong_is_told(log: Path, arguments: tuple[str, ...], says: str) -> None:
    text = run("diagnose", *(str(log) if a == "LOG" else a for a in arguments), code=2)
    assert says in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172800), ("0.5s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "m", "-5", "5 parsecs"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


def test_catalogue_list_and_test(log: Path) -> None:
    assert "gpu.ecc" in run("catalogue", "list", "--family", "gpu")
    assert len(json.loads(run("catalogue", "list", "--json"))) >= 120
    assert "gpu.ecc" in run("catalogue", "test", log)
    run("catalogue", "list", "--family", "nonsense", code=5)


def test_a_job_teaches_its_steps(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("tick 17 done\n")
    assert "no step line" in run("progress", "test", log, code=1)
    assert "step 17" in run("progress", "test", log, "--pattern", r"tick (?P<step>\d+)")
    assert (
        json.loads(run("diagnose", "--json", "--step-pattern", r"tick (?P<step>\d+)", log))["progress"][
            "last_step"
        ]
        == 17
    )
