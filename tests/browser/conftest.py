"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; nothing is downloaded.

All tests of this package share one event loop, and so one browser: `page` is a fresh, empty page for each.
"""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Route, ViewportSize, async_playwright

PATIENCE = 60.0
"""Seconds that a page may take to show what is waited for, on a busy machine."""
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
HERE = ("", "localhost", "127.0.0.1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIR", help="write docs/images anew, into this directory")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="package"), append=False)


def find_chromium() -> str:
    """The browser's program.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise FileNotFoundError("no chromium on PATH: as root, scripts/install-test-services installs it")
    return found


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # As root Chromium does not start with its sandbox; the pages are our own.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = await playwright.chromium.launch(executable_path=find_chromium(), args=options)
        yield chromium
        await chromium.close()


@pytest.fixture
def tolerated() -> tuple[re.Pattern[str], ...]:
    """Errors on a page's console that are not ours, as `URL: text`; a module overrides this to name some."""
    return ()


@pytest_asyncio.fixture(loop_scope="package")
async def page(browser: Browser, tolerated: tuple[re.Pattern[str], ...]) -> AsyncIterator[Page]:
    """An empty page that reaches nothing beyond this machine. The test fails on errors of its console."""
    context = await browser.new_context(
        viewport=VIEWPORT, locale="en-GB", timezone_id="UTC", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE * 1000)
    await context.route(lambda url: urlsplit(url).hostname not in HERE, _refuse)
    errors: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(f"{message.location['url']}: {message.text}")

    context.on("console", hear)
    context.on("weberror", lambda error: errors.append(f"{error.page and error.page.url}: {error.error}"))
    yield await context.new_page()
    await context.close()
    ours = [error for error in errors if not any(known.match(error) for known in tolerated)]
    assert not ours, "errors on the console:\n" + "\n".join(ours)


async def _refuse(route: Route) -> None:
    await route.abort()
