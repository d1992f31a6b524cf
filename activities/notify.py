"""`notify`: posts one notice to the webhook of the settings. The workflow does not wait for it.

The address is a secret and stays in the worker: no error quotes it, and a redirect is not followed, since the
text would then go where nobody meant it to.
"""

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.common import Context
from relight.config import NotifySettings
from relight.contracts.notice import Notice

REFUSED = "NoticeRefused"
"""Error type: asking again does not help."""
MAY_PASS = {408, 425, 429}
"""Answers of the 4xx kind that ask for another try."""


async def notify(context: Context, notice: Notice) -> str:
    """Posts the notice, where the settings want it told.

    Returns:
        What was done, for the history.

    Raises:
        ApplicationError: `NoticeRefused` for good, or another error that may pass.
    """
    settings = context.settings.notify
    if not settings.url.get_secret_value():
        return "no webhook is set"
    if notice.event not in settings.events:
        return f"{notice.event.value} is not told"
    content = body(notice, settings, activity.info().workflow_namespace or "default")
    status = await asyncio.to_thread(_post, settings, content)
    return f"the webhook answered {status}"


def body(notice: Notice, settings: NotifySettings, namespace: str) -> dict[str, Any]:
    """What is posted: `{"text": ...}` for Slack, or all fields that are not empty."""
    link = ""
    if settings.ui and notice.workflow_id:
        place = f"namespaces/{quote(namespace, safe='')}/workflows/{quote(notice.workflow_id, safe='')}"
        link = f"{settings.ui.rstrip('/')}/{place}"
    if settings.format == "json":
        fields = notice.model_dump(mode="json") | {"link": link}
        return {name: value for name, value in fields.items() if value}
    lines = [f"*relight* {_slack(notice.cluster)}: {_slack(notice.text)}"]
    lines += [f"`{_slack(notice.command).replace('`', '')}`"] if notice.command else []
    lines += [f"<{link}|Temporal>"] if link else []
    return {"text": "\n".join(lines)}


def _slack(text: str) -> str:
    """Text that cannot mention anybody or hide a link.

    Source: https://docs.slack.dev/messaging/formatting-message-text: &, < and > are Slack's only control
    characters.
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuses: the answer then counts as an error."""


def _post(settings: NotifySettings, content: dict[str, Any]) -> int:
    """Posts, and returns the status. Causes are left out of errors: they may quote the address."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        request = urllib.request.Request(
            settings.url.get_secret_value(),
            json.dumps(content).encode(),
            {"Content-Type": "application/json", "User-Agent": "relight"},
        )
        with opener.open(request, timeout=settings.timeout.total_seconds()) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        final = error.code < 500 and error.code not in MAY_PASS
        text = "it redirects, and that is not followed" if 300 <= error.code < 400 else "see its own log"
        raise ApplicationError(
            f"the webhook answered {error.code}: {text}", type=REFUSED if final else None, non_retryable=final
        ) from None
    except TimeoutError:
        raise ApplicationError(f"the webhook gave no answer within {settings.timeout}") from None
    except urllib.error.URLError as error:
        reason = error.reason.strerror if isinstance(error.reason, OSError) else type(error.reason).__name__
        raise ApplicationError(f"the webhook cannot be reached: {reason}") from None
    except (ValueError, http.client.HTTPException) as error:
        raise ApplicationError(
            f"the webhook's address or answer cannot be used ({type(error).__name__}): check notify.url",
            type=REFUSED,
            non_retryable=True,
        ) from None
    except OSError as error:
        raise ApplicationError(f"the webhook broke off: {error.strerror or type(error).__name__}") from None
