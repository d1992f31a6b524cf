"""What the client makes of answers that a Prometheus does not give: none, slow ones, other JSON."""

import time
from datetime import timedelta
from typing import Any

import pytest

from relight.config import TOKEN_VARIABLE, PrometheusSettings
from relight.prometheus.machines import MAX_MATCH, Machines
from relight.prometheus.reading import Reading
from tests.prometheus.answering import Handler, serving

WINDOW = timedelta(seconds=60)
EMPTY = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'


async def ask(url: str, names: tuple[str, ...] = ("age", "power"), **more: Any) -> Reading:
    settings = PrometheusSettings(url=url, **{"timeout": "1s", **more})
    return await Machines(settings).read(names, ["node01"], window=WINDOW)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b'{"data": null}', b'{"data": {"result": {}}}', b"\xff\xfe"],
)
async def test_other_answers_are_a_problem_and_no_error(body: bytes) -> None:
    with serving(lambda handler: handler.say(body)) as (url, _):
        reading = await ask(url)
    assert reading.answers == {}
    assert reading.problem.startswith("age: ")


async def test_a_query_that_is_refused_leaves_the_others() -> None:
    def answer(handler: Handler) -> None:
        refused = "bad_metric" in handler.path
        handler.say(b'{"status": "error"}' if refused else EMPTY, 400 if refused else 200)

    with serving(answer) as (url, _):
        reading = await ask(url, queries={"age": "bad_metric"})
    assert list(reading.answers) == ["power"]
    assert "400" in reading.problem


async def test_a_query_that_cannot_be_filled_leaves_the_others() -> None:
    with serving(lambda handler: handler.say(EMPTY)) as (url, _):
        # The settings refuse it, so that it is put in behind their back.
        settings = PrometheusSettings(url=url).model_copy(update={"queries": {"age": "up{$nodes}"}})
        reading = await Machines(settings).read(("age", "power"), ["node01"], window=WINDOW)
    assert list(reading.answers) == ["power"]
    assert "a query names $nodes" in reading.problem


async def test_an_answer_that_drips_ends_the_reading() -> None:
    """The client's own timeout is about each read, and never comes."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        try:
            for _ in range(8):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.5)
        except OSError:
            pass  # the client has gone

    with serving(answer) as (url, asked):
        began = time.monotonic()
        reading = await ask(url)
        assert time.monotonic() - began < 3.5
    assert reading.problem == "age: TimeoutError"
    assert len(asked) == 1


async def test_the_token_is_sent_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "sesame")
    with serving(lambda handler: handler.say(b"denied", 401)) as (url, asked):
        reading = await ask(url)
    assert {token for _, token in asked} == {"Bearer sesame"}
    assert "401" in reading.problem
    assert "sesame" not in repr(reading)


@pytest.mark.parametrize(("nodes", "matched"), [(4, True), (MAX_MATCH // 10, True), (MAX_MATCH, False)])
async def test_one_request_whatever_the_number_of_nodes(nodes: int, matched: bool) -> None:
    names = [f"node{n:05d}" for n in range(nodes)]
    with serving(lambda handler: handler.say(EMPTY)) as (url, asked):
        settings = PrometheusSettings(url=url, match_label="Hostname")
        reading = await Machines(settings).read(["ecc", "held"], names, window=WINDOW)
    assert reading.problem == ""
    assert len(asked) == 2
    assert [("node00001" in path) for path, _ in asked] == [matched] * 2
    assert max(len(path) for path, _ in asked) < 8000, "proxies refuse it"
