"""The page of `relight report`, in a real browser: on a screen, on a phone, on paper, and read aloud."""

from pathlib import Path

import pytest
from playwright.async_api import Page

from relight.report.contents import Report
from relight.report.figures import figures
from relight.report.page import render
from tests.browser.accessibility import assert_accessible
from tests.relight.report.making import HOSTILE, SINCE, UNTIL, a_month, a_try_out

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
A4_POINTS = (595, 842)


def empty() -> Report:
    return Report(made=UNTIL, figures=figures([], SINCE, UNTIL))


@pytest.fixture(params=[a_month, a_try_out, empty], ids=["a month", "a try-out", "empty"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The page as a file, as people open it."""
    out = tmp_path / "report.html"
    out.write_text(render(request.param()), encoding="utf-8")
    return out


async def show(page: Page, file: Path) -> None:
    await page.route("file://**", lambda route: route.continue_())  # the rest stays out of reach
    await page.goto(file.as_uri())


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
async def test_it_is_accessible_and_fits_the_screen(page: Page, file: Path, size: dict[str, int]) -> None:
    await page.set_viewport_size(size)  # type: ignore[arg-type]
    await show(page, file)
    await assert_accessible(page)
    wide = await page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size["width"], "it scrolls sideways"


async def test_pictures_are_drawn_and_hostile_text_is_text(page: Page, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text(render(a_month()), encoding="utf-8")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await show(page, out)
    widths = await page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
    assert len(widths) == 4
    assert all(width > 300 for width in widths)
    assert HOSTILE in await page.locator("main").inner_text()
    assert await page.locator("script, main img[src='x']").count() == 0
    assert not dialogs


async def test_a_keyboard_reaches_every_table_that_scrolls(page: Page, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text(render(a_month()), encoding="utf-8")
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await show(page, out)
    tables = await page.locator("table").count()
    reached = set()
    for _ in range(tables + 3):  # and the links
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert len(reached - {None}) == tables


async def test_it_prints(page: Page, file: Path) -> None:
    """On A4: nothing is wider than the paper, and nothing that scrolls on a screen is cut off."""
    await show(page, file)
    await page.emulate_media(media="print")
    await page.set_viewport_size({"width": round(180 / 25.4 * 96), "height": 1000})  # within the margins
    assert await page.evaluate(
        "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('.scroll')]"
        ".every(box => getComputedStyle(box).overflowX === 'visible' && box.scrollWidth <= box.clientWidth)"
    )
    await page.emulate_media()
    printed = await page.pdf(format="A4")
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") >= 1
