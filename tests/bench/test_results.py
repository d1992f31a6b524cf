"""The envelope of results, and the page that is made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import markdown, page, results

RESULT: dict[str, Any] = {
    "bench": "scan",
    "date": "2026-03-01T10:00:00+00:00",
    "commit": "abc",
    "machine": {"cpu": "A", "cores": 2, "memory_gb": 4.0, "system": "Linux", "load_1min": 0.5},
    "versions": {"python": "3.11.7", "relight": "0.1.0"},
    "runs": [{"megabytes": 256.0, "relight_mb_s": 500.25}, {"megabytes": 256.0, "relight_mb_s": 2.0}],
}


def test_a_result_says_what_was_measured_and_where(tmp_path: Path) -> None:
    path = tmp_path / "new" / "scan-1.json"
    results.write(path, results.envelope("scan", [{"a": 1}, {"a": 2}], limits={"a": 3}))
    found = results.read(path)
    assert found["runs"] == [{"a": 1}, {"a": 2}]
    assert (found["bench"], found["limits"], found["schema"]) == ("scan", {"a": 3}, results.SCHEMA)
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["cpu"]
    assert found["versions"]["python"].startswith("3.")


def test_a_result_goes_to_standard_output_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    results.write(Path("-"), RESULT)
    assert json.loads(capsys.readouterr().out) == RESULT


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "scan.json"), ("[]", "a list"), ("{}", "lacks date, machine, versions, runs")],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "scan.json"
    path.write_text(text)
    with pytest.raises(results.BadResult, match=problem):
        results.read(path)


def test_a_result_without_a_name_is_known_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "faults-2.json"
    path.write_text(json.dumps({k: v for k, v in RESULT.items() if k not in {"bench", "commit"}}))
    assert (results.read(path)["bench"], results.read(path)["commit"]) == ("faults", "0.1.0")


def test_the_processor_is_read_from_its_description() -> None:
    assert results.cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n") == "Some CPU @ 2 GHz"
    assert results.cpu_model("processor\t: 0\n") == ""


def test_every_run_is_on_the_page_with_its_provenance() -> None:
    text = page.page([RESULT])
    assert "| 1 | 256 | 500.25 |" in text
    assert "| 2 | 256 | 2 |" in text
    assert "2026-03-01 10:00 UTC, commit abc, A, 2 cores, 4.0 GB, Linux, load 0.5; python 3.11.7" in text
    assert "There is no result of" in text
    assert "`bench.scale`" in text.partition("There is no result of")[2]


def test_results_of_one_benchmark_are_in_the_order_of_their_dates() -> None:
    later = RESULT | {"date": "2026-03-02T10:00:00+00:00", "commit": "later"}
    text = page.page([later, RESULT])
    assert text.index("commit abc") < text.index("commit later")


def test_a_benchmark_that_the_page_does_not_know_is_shown_all_the_same() -> None:
    text = page.page([RESULT | {"bench": "new", "runs": [{"a": 1, "deep": {"b": 2}}]}])
    assert "## new" in text
    assert "| a |\n| --- |\n| 1 |" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (True, "yes"), (False, "**no**"), (0.0, "0"), (0.00123, "0.0012"), (1.5, "1.5"),
        (12345.6, "12,346"), (12345, "12,345"), ("a|b\nc", "a\\|b c"),
    ],
)  # fmt: skip
def test_cells(value: object, shown: str) -> None:
    assert markdown.cell(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.25, "0.25 of 1 (met, 0.75 to spare)"), (1.5, "1.5 of 1 (**MISSED by 0.5**)")],
)
def test_a_limit_says_by_how_much(value: float, shown: str) -> None:
    run = {"rest_cpu_percent": 0.1, "rest_rss_mb": 40.0}
    result = RESULT | {"bench": "node_sensor", "limits": {"cpu_percent": 1.0, "rss_mb": 60.0}}
    text = page.page([result | {"runs": [run, run | {"rest_cpu_percent": value}]}])
    assert f"Limits, of the worst run: at rest, % of a core {shown}; at rest, MB 40 of 60 (" in text


def test_the_page_in_the_repository_is_made_of_the_results_in_it() -> None:
    found = [results.read(path) for path in sorted(results.DIRECTORY.glob("*.json"))]
    assert page.DOCS.read_text() == page.page(found), "run `python -m bench.page`"
