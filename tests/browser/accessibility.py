"""Whether people who cannot see a page well can use it: axe-core's rules."""

from collections.abc import Collection
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Frame, Page

AXE = Axe()


async def violations(page: Page | Frame, within: str | None = None) -> dict[str, list[str]]:
    """What axe-core objects to, rule by rule, with the HTML of each element.

    Args:
        page: the page, or one frame.
        within: a CSS selector; None: all of it.
    """
    found: Any = (await AXE.run(page, context=within)).response
    return {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in found["violations"]}


async def assert_accessible(
    page: Page | Frame, within: str | None = None, *, known: Collection[str] = ()
) -> None:
    """Fails where axe-core objects to something.

    Args:
        page: the page, or one frame.
        within: a CSS selector; None: all of it.
        known: ids of rules that are broken by others, and named in the documentation.
    """
    found = await violations(page, within)
    news = {rule: nodes for rule, nodes in found.items() if rule not in known}
    assert not news, "\n".join(f"{rule}: {nodes}" for rule, nodes in news.items())
