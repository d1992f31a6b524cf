"""Posting a notice to a real HTTP server, and everything that can go wrong with it."""

import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from temporalio.exceptions import ApplicationError

from activities.common import Context
from activities.notify import REFUSED, body, notify
from relight.config import NotifySettings, Settings
from relight.contracts.notice import Event, Notice
from tests.activities.conftest import Runner
from tests.activities.webhook import PATH, Webhook, serving

NOTICE = Notice(
    event=Event.APPROVAL,
    cluster="lab",
    text="job 42.0 (llm <7b>) waits",
    workflow_id="recover:lab:42:0:a1",
    job="42.0",
    plan="1234abcd",
    command="relight approve 42 --plan 1234abcd",
)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with serving() as hook:
        yield hook


def told(run: Runner, url: str, **more: object) -> Runner:
    settings = NotifySettings.model_validate({"url": SecretStr(url), "timeout": "300ms", **more})
    run.context = Context(run.context.scheduler, Settings(notify=settings))
    return run


async def test_all_fields_are_posted(run: Runner, hook: Webhook) -> None:
    said = await told(run, hook.url, ui="https://ui.example.org/")(notify, NOTICE)
    assert said == "the webhook answered 200"
    ((path, posted),) = hook.got
    assert path == PATH
    assert posted == {
        "event": "approval",
        "cluster": "lab",
        "text": "job 42.0 (llm <7b>) waits",
        "workflow_id": "recover:lab:42:0:a1",
        "job": "42.0",
        "plan": "1234abcd",
        "command": "relight approve 42 --plan 1234abcd",
        "link": "https://ui.example.org/namespaces/default/workflows/recover%3Alab%3A42%3A0%3Aa1",
    }


def test_slack_gets_text_that_mentions_nobody() -> None:
    notice = NOTICE.model_copy(update={"text": "<!channel> & <https://evil.example|here>"})
    settings = NotifySettings(format="slack", ui="https://ui")
    posted = body(notice, settings, "default")
    assert list(posted) == ["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|here&gt;" in posted["text"]
    assert "<https://ui/namespaces/default/workflows/recover%3Alab%3A42%3A0%3Aa1|Temporal>" in posted["text"]
    assert "relight approve 42" in posted["text"]


@pytest.mark.parametrize(
    ("status", "final"), [(500, False), (503, False), (429, False), (400, True), (404, True), (410, True)]
)
async def test_an_error_is_tried_again_only_where_that_helps(
    run: Runner, hook: Webhook, status: int, final: bool
) -> None:
    hook.answers = [status]
    with pytest.raises(ApplicationError, match=f"answered {status}") as caught:
        await told(run, hook.url)(notify, NOTICE)
    assert caught.value.non_retryable is final
    assert caught.value.type == (REFUSED if final else None)
    _keeps_the_secret(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(run: Runner, hook: Webhook, status: int) -> None:
    with serving() as elsewhere:
        hook.answers, hook.location = [status], elsewhere.url
        with pytest.raises(ApplicationError, match="not followed") as caught:
            await told(run, hook.url)(notify, NOTICE)
        assert elsewhere.got == []
    assert caught.value.non_retryable
    _keeps_the_secret(caught.value)


async def test_a_slow_webhook_is_given_up(run: Runner, hook: Webhook) -> None:
    hook.seconds = 5
    with pytest.raises(ApplicationError, match=r"no answer within 0:00:00\.3") as caught:
        await told(run, hook.url)(notify, NOTICE)
    assert not caught.value.non_retryable
    _keeps_the_secret(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"http://127.0.0.1:1{PATH}", "cannot be reached: Connection refused"),
        (f"http://127.0.0.1:port{PATH}", "cannot be used"),
        (f"http://127.0.0.1:80/a b{PATH}", "cannot be used"),
        (f"http://no-such-host.invalid{PATH}", "cannot be reached"),
    ],
)
async def test_an_address_that_leads_nowhere(run: Runner, url: str, says: str) -> None:
    with pytest.raises(ApplicationError, match=says) as caught:
        await told(run, url)(notify, NOTICE)
    _keeps_the_secret(caught.value)


async def test_what_is_not_wanted_is_not_posted(run: Runner, hook: Webhook, tmp_path: Path) -> None:
    assert await told(run, hook.url, events=("ended",))(notify, NOTICE) == "approval is not told"
    assert await told(run, "")(notify, NOTICE) == "no webhook is set"
    assert hook.got == []
    assert await told(run, hook.url, events=("approval",), timeout=timedelta(seconds=1))(notify, NOTICE)


def _keeps_the_secret(error: BaseException) -> None:
    """Neither the error nor a cause that Temporal would store with it."""
    assert error.__cause__ is None
    assert "s3cr3t" not in "".join(traceback.format_exception_only(error))
