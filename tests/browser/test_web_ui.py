"""Temporal's web UI as relight's runbook, in a real browser: what an on-call engineer sees and does there."""

import json
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio
from playwright.async_api import FrameLocator, Locator, Page, expect

from relight.cli.demo_stage import Stage
from relight.cli.watched import recovery_outcome
from relight.contracts import Outcome
from tests.browser.accessibility import assert_accessible, violations
from tests.browser.conftest import VIEWPORT
from tests.browser.incident import Incident, incident, relight_runs

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "web-ui.md"
BROKEN_BY_TEMPORAL = frozenset(
    rule
    for item in re.findall(
        r"^- (`.*?): ", GUIDE.read_text().partition("## Accessibility")[2], flags=re.MULTILINE
    )
    for rule in re.findall("`(.+?)`", item)
)
"""Rules of axe-core that Temporal's own pages break, as the guide lists them."""
QUERIES = re.findall(r"^\| [^|]+ \| `([^`]+=[^`]+)` \|", GUIDE.read_text(), flags=re.MULTILINE)

pytestmark = pytest.mark.timeout(400)
expect.set_options(timeout=60_000)


@pytest.fixture
def tolerated() -> tuple[re.Pattern[str], ...]:
    """Temporal's UI looks for news of Temporal, and tests reach nothing beyond this machine."""
    return (re.compile(r"https://newsfeed\.temporal\.io/feed_en\.json\?.*: .*net::ERR_FAILED"),)


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def stage() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="relight-") as directory:
        async with relight_runs(Path(directory)) as stage:
            yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def waiting(stage: Stage) -> AsyncIterator[Incident]:
    """Nobody decides on it."""
    async with incident(stage, "run7") as one:
        yield one


class Shots:
    """Pictures for the documentation, where `--screenshots DIR` asks for them."""

    MAX_BYTES = 200_000

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    async def take(
        self, page: Page, name: str, part: Locator | None = None, *, width: int = 1280, height: int = 1500
    ) -> None:
        """A picture of what is in view, or of a part.

        Args:
            page: the page.
            name: of the picture.
            part: of the page, in view or not.
            width: of the window, in pixels.
            height: of the picture of a part, at most.
        """
        if self._directory is None:
            return
        picture = self._directory / f"{name}.png"
        clip = None
        if part is not None:
            await page.set_viewport_size({"width": width, "height": 2500})  # a frame out of view is not drawn
            await page.evaluate("window.scrollTo(0, 0)")
            clip = await part.bounding_box()
            assert clip is not None
            clip["height"] = min(clip["height"], height)
        await page.screenshot(path=picture, animations="disabled", clip=clip)
        await page.set_viewport_size(VIEWPORT)
        assert picture.stat().st_size < self.MAX_BYTES, f"{picture} is too large for the repository"


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Shots:
    directory = request.config.getoption("--screenshots", default=None)
    return Shots(Path(directory) if directory else None)


async def test_the_list_shows_what_waits_for_a_person(page: Page, waiting: Incident, shots: Shots) -> None:
    await page.goto(_list(waiting, 'RelightState = "awaiting-approval"'))
    await expect(page.get_by_role("link", name=waiting.recovery_id)).to_be_visible()
    await expect(page.get_by_role("link", name=waiting.monitor_id)).to_be_visible()
    await expect(page.get_by_role("link", name="guard:demo")).to_have_count(0)
    await assert_accessible(page, known=BROKEN_BY_TEMPORAL)
    await shots.take(page, "list")


async def test_the_queries_of_the_guide_work(waiting: Incident) -> None:
    """The list is asked for by each of them; those about the incident find it."""
    found = {}
    for query in QUERIES:
        counted = await waiting.stage.client.count_workflows(query.replace("JOB", waiting.job_id))
        found[query] = counted.count
    assert len(found) >= 10
    assert found['RelightJobId = "JOB"'] == 2
    assert found['WorkflowType = "RecoveryWorkflow" AND RelightState = "awaiting-approval"'] >= 1
    unsolved = (
        'WorkflowType = "RecoveryWorkflow" AND ExecutionStatus = "Completed" AND RelightState != "resumed"'
    )
    assert found[unsolved] == 0
    assert found['WorkflowType = "ClusterGuard" AND RelightState != "closed"'] == 0


async def test_the_monitors_page_leads_to_the_recovery(page: Page, waiting: Incident, shots: Shots) -> None:
    await page.goto(_page(waiting, waiting.monitor_id))
    details = await _current_details(page)
    await expect(details).to_contain_text(f"Job {waiting.job_id} (relight-demo): awaiting-approval")
    await expect(details).to_contain_text(f"relight approve {waiting.job_id} --reason WHY")
    await _assert_readable(page)
    await shots.take(page, "monitor", page.locator("#user-metadata-current-details"))
    await page.goto(await details.get_by_role("link", name=waiting.recovery_id).evaluate("link => link.href"))
    await expect(page.get_by_role("heading", name=waiting.recovery_id)).to_be_visible()


async def test_the_recoverys_page_tells_what_happened_and_what_to_do(
    page: Page, waiting: Incident, shots: Shots
) -> None:
    await page.goto(_page(waiting, waiting.recovery_id))
    details = await _current_details(page)
    for text in (
        f"Job {waiting.job_id}: awaiting-approval",
        "Waiting for a person, until ",
        f"relight approve {waiting.job_id} --plan {waiting.digest} --reason WHY",
        "ValueError: shape mismatch",
        "drain_job (changes something): ",
        "observe mode: relight changes nothing by itself",
        "May decide: anybody",
    ):
        await expect(details).to_contain_text(text)
    await _assert_readable(page)
    await assert_accessible(page, known=BROKEN_BY_TEMPORAL)
    await shots.take(page, "recovery", page.locator("#user-metadata-current-details"))


async def test_the_guards_page_tells_what_it_allows(page: Page, waiting: Incident) -> None:
    await page.goto(_page(waiting, "guard:demo"))
    details = await _current_details(page)
    await expect(details).to_contain_text("Cluster demo: all breakers closed")
    await expect(details).to_contain_text("relight pause --cluster --reason WHY")
    await _assert_readable(page)


async def test_a_plan_is_approved_from_the_page_and_training_resumes(
    page: Page, stage: Stage, shots: Shots
) -> None:
    async with incident(stage, "run8") as crashed:
        await page.goto(_page(crashed, crashed.recovery_id))
        details = await _current_details(page)
        block = details.locator("pre", has_text="plan_digest")
        decision = json.loads(await block.inner_text()) | {
            "by": "anna",
            "reason": "a bad sample, seen before",
        }

        await page.get_by_role("button", name="More Actions").click()
        await page.get_by_role("menuitem", name="Send a Signal").click()
        dialog = page.get_by_role("dialog", name="Send a Signal")
        await dialog.get_by_test_id("signal-select-button").click()
        await dialog.get_by_role("option", name=re.compile("^approve ")).click()
        data = dialog.get_by_role("textbox").last
        await data.fill(json.dumps(decision))
        await data.blur()  # the editor breaks the lines anew, and Submit moves: a click just then is lost
        await expect(data.locator(".cm-line")).to_have_count(len(decision) + 2)
        await assert_accessible(page, "dialog", known=BROKEN_BY_TEMPORAL)
        await shots.take(page, "signal", dialog)
        await dialog.get_by_role("button", name="Submit").click()

        await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("status")).to_have_text("Completed", ignore_case=True, timeout=120_000)
        outcome = await recovery_outcome(stage.client, crashed.recovery_id)
        assert outcome is not None
        assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "anna")

        await page.get_by_role("tab", name="Event History").click()
        await page.get_by_text("Compact", exact=True).click()
        history = page.get_by_role("table")
        for step in (
            "Ask independent sources about the crash",
            f"deadline for approving plan {crashed.digest}",
            "Take attempt",
            "Wait until no process",
            "Let the job start again",
            "Wait until training passes step",
        ):
            await expect(history).to_contain_text(step)
        await assert_accessible(page, "table", known=BROKEN_BY_TEMPORAL)
        await shots.take(page, "history", history, width=1680, height=420)
        await page.reload()
        details = await _current_details(page)
        await expect(details).to_contain_text(f"Job {crashed.job_id}: resumed, ")
        await expect(details).to_contain_text("Nothing is left to do")
        resumed = f'RelightJobId = "{crashed.job_id}" AND RelightState = "resumed"'
        assert (await stage.client.count_workflows(resumed)).count == 1
        await expect(details).to_contain_text("approved by anna: a bad sample, seen before")


def _list(seen: Incident, query: str) -> str:
    return f"{seen.stage.server.ui}/namespaces/default/workflows?{urlencode({'query': query})}"


def _page(seen: Incident, workflow_id: str) -> str:
    return f"{seen.stage.server.ui}/namespaces/default/workflows/{quote(workflow_id, safe='')}"


async def _current_details(page: Page) -> Locator:
    """What relight wrote on the page of a workflow."""
    await page.get_by_role("tab", name="User Metadata").click()
    details: FrameLocator = page.frame_locator("#user-metadata-current-details")
    main = details.locator("main")
    await expect(main).not_to_be_empty()
    return main


async def _assert_readable(page: Page) -> None:
    """All that relight wrote is accessible and fits into its pane; the frames break only what is known.

    The frames allow no script, and axe-core is one: it reads a copy of each.
    """
    copy = await page.context.new_page()
    for frame in await page.locator("iframe").all():
        shown = frame.content_frame
        await expect(shown.locator("main")).not_to_be_empty()
        await copy.set_content(await shown.locator("html").evaluate("html => html.outerHTML"))
        assert await violations(copy, "main") == {}
        await assert_accessible(copy, known=BROKEN_BY_TEMPORAL)
    await copy.close()
    current = page.frame_locator("#user-metadata-current-details").locator("html")
    assert await current.evaluate("html => html.scrollWidth <= html.clientWidth"), "a line is cut"
