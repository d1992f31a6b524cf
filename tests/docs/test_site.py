"""The documentation can be built without a network, with no broken link, and its pages fetch nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import ROOT, pages

_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:)?//"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref=[\"']?(https?:)?//"
    r"|@import\b[^;]*//|url\([\"']?(https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    # Whoever asks the network gets no answer: there is no proxy at this port.
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(to)],
        cwd=ROOT, env={**os.environ, **offline, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return to


def test_every_page_is_there(site: Path) -> None:
    for page in pages():
        if page.is_relative_to(ROOT / "docs"):
            assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    for file in (*site.rglob("*.html"), *site.rglob("*.css")):
        assert not (found := _FETCHED.search(file.read_text(encoding="utf-8"))), f"{file}: {found}"


def test_what_the_check_looks_for() -> None:
    assert _FETCHED.search('<link rel="stylesheet" href="https://fonts.googleapis.com/css">')
    assert _FETCHED.search('<script src="//cdn.example/x.js">')
    assert not _FETCHED.search('<a href="https://temporal.io">')


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_from_outside_the_site(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / target).exists(), target


def test_pages_that_the_code_names() -> None:
    for folder in ("relight", "sensor", "workflows", "activities", "worker"):
        for file in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(encoding="utf-8")):
                assert (ROOT / page).exists(), f"{file}: {page}"
