"""The page says what is known, also nothing, and shows hostile text without obeying it."""

import base64
import re
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from relight.contracts import Outcome
from relight.report.contents import Report
from relight.report.figures import figures
from relight.report.page import number, percent, render, said
from relight.report.records import chains, loss_of
from tests.relight.report.making import HOSTILE, SINCE, UNTIL, a_month, a_try_out, job, recovery, watch

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Takes the page apart, and notes what does not belong."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, *names: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag in names]


def report(*args: object, **fields: object) -> Report:
    watches, audits = args or ([], [])
    found = chains(watches, [loss_of(audit, UNTIL) for audit in audits], UNTIL)  # type: ignore[union-attr,arg-type]
    return Report(made=UNTIL, figures=figures(found, SINCE, UNTIL), chains=found, nodes=(), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def month() -> Reader:
    return Reader(render(a_month()))


def test_nothing_is_fetched_and_nothing_runs(month: Reader) -> None:
    names = {tag for tag, _ in month.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    [policy] = [m["content"] for m in month.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert all((img["src"] or "").startswith("data:image/svg+xml;base64,") for img in month.all("img"))
    assert all((a["href"] or "").startswith("https://arxiv.org/") for a in month.all("a"))


def test_hostile_names_users_reasons_and_evidence_are_shown_not_obeyed(month: Reader) -> None:
    attributes = [name for _, attrs in month.tags for name in attrs]
    assert not [name for name in attributes if name.startswith("on")]
    assert month.text.count(HOSTILE) >= 5, "run, user, reason, evidence of a node, remark: as they are"
    assert "49" not in month.text.split("a remark with")[1][:90], "nothing in them is a template"


def test_every_picture_says_what_it_shows_and_has_its_numbers_in_a_table(month: Reader) -> None:
    pictures = month.all("img")
    assert len(pictures) == 4
    for picture in pictures:
        assert "The table below has the numbers" in (picture["alt"] or "")
    assert len(month.all("caption")) == len(month.all("table")) >= 8
    scopes = {attrs.get("scope") for attrs in month.all("th")}
    assert scopes == {"col", "row"}


def test_pictures_are_drawings_without_scripts(month: Reader) -> None:
    for picture in month.all("img"):
        svg = base64.b64decode((picture["src"] or "").partition("base64,")[2]).decode()
        names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
        assert "path" in names
        assert not names & {"script", "foreignObject", "image"}
        assert "alert" not in svg


def test_headings_go_down_by_one(month: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in month.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_the_same_history_makes_the_same_page() -> None:
    assert render(a_month()) == render(a_month())


def test_an_empty_history_says_how_to_get_one() -> None:
    found = Reader(render(report()))
    assert "Nothing to report yet" in found.text
    assert "relight watch JOB" in found.text
    assert "archive.url" in found.text
    assert not found.all("img", "table")


def test_nodes_are_listed_also_where_no_job_was_watched() -> None:
    given = report().model_copy(update={"nodes": a_month().nodes})
    found = Reader(render(given))
    assert "Nothing to report yet" in found.text
    assert "node007" in found.text
    assert HOSTILE in found.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(
            report([watch(job())], []), ["100.0 %", "No fault in this time", "Not to be told"],
            id="no fault",
        ),
        pytest.param(
            report([], [recovery(job(), UNTIL, outcome=Outcome.HELD)]),
            [
                "of no run it is known how long it was watched", "Temporal has forgotten their monitors",
                "Of 1 chain 1 had",
            ],
            id="only the archive",
        ),
        pytest.param(
            report([watch(job())], [recovery(job(), SINCE)]),
            ["Read with care: 1 fault is too few", "6.5 and 2.34", "arXiv:2410.21680"], id="one fault",
        ),
        pytest.param(
            report([watch(job())], [recovery(job(), SINCE, outcome=Outcome.EXPIRED)]),
            [
                "by 1 fault: relight did nothing about it",
                "What 1 of 1 fault cost is not known, and counts as nothing here: relight did",
                "No plot: of no fault it is known that it cost GPU hours.",
                "no recovery has resumed", "expired",
            ],
            id="a cost that is not known",
        ),
        pytest.param(
            report(
                [watch(job())],
                [recovery(job(), SINCE), *[recovery(job(), SINCE, outcome=Outcome.EXPIRED)] * 2],
            ),
            ["by 3 faults; of 2 not known: relight did nothing about it (2)"], id="some costs are not known",
        ),
        pytest.param(
            a_try_out(),
            [
                "by 1 fault: the scheduler tells of no GPUs of the job",
                "No plot: fewer than 3 hours, days or weeks of this time were watched.",
                "No plot: fewer than 3 recoveries tell how long they took.",
            ],
            id="a try-out",
        ),
        pytest.param(
            a_try_out(6, decide=100),
            ["No plot: so many faults in so short a time are beyond the formula"], id="faults all the time",
        ),
        pytest.param(
            report([watch(job())], []).model_copy(update={"nodes": None}),
            ["ledger could not be asked"], id="no guard",
        ),
        pytest.param(
            report([watch(job())], [recovery(job(), UNTIL, outcome=Outcome.REFUTED)]),
            ["0 of 0", "faults; 1 suspected, and none", "refuted"], id="a false alarm",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said(given: Report, words: list[str]) -> None:
    text = " ".join(Reader(render(given)).text.split())
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0s"),
        (0.04, "0s"),
        (2.34, "2.3s"),
        (12.34, "12s"),
        (299.6, "5m"),
        (8000, "2h13m"),
        (400_000, "4d15h"),
    ],
)
def test_durations_are_said_as_people_want_to_know_them(seconds: float | None, text: str) -> None:
    assert said(None if seconds is None else timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("share", "text"), [(None, "–"), (0, "0.0 %"), (0.5, "50.0 %"), (0.9981, "99.81 %"), (1, "100.0 %")]
)
def test_shares(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (0.0123, "0.012"), (0.0942, "0.094"), (3.14159, "3.1"), (12_345.6, "12,346")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text
