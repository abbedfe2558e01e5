"""The documentation as a reader has it who opens a page from a file: blocks to copy, search, and nothing fetched."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COURSES = ("psl", "ucsb", "notes", "f-dp", "programming")

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COPY_ALL = """() => {
    const taken = [];
    document.addEventListener("copy", (event) => taken.push(event.target.value), true);
    for (const button of document.querySelectorAll(".highlight [data-clipboard-target]")) button.click();
    return [taken, document.querySelectorAll(".highlight pre").length];
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need chromium on the path; on Debian: apt install chromium"
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("course", COURSES)
def test_what_the_button_copies_is_python(site: Path, browser: Any, course: str) -> None:
    page = browser.new_page()
    page.goto((site / "course" / f"{course}.html").as_uri())
    page.wait_for_selector("[data-clipboard-target]", state="attached")
    copied, blocks = page.evaluate(COPY_ALL)
    page.close()
    assert len(copied) == blocks > 20
    for text in copied:
        assert ast.parse(text).body, text


@pytest.mark.parametrize("width", [1280, 400])
def test_search_answers_in_a_page_opened_from_a_file(site: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "course" / "psl.html").as_uri())
    if width < 1000:  # the box is behind a sign
        page.click("header [for=__search]")
    page.fill("[data-md-component=search-query]", "Hoeffding")
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert "Hoeffding" in page.inner_text(".md-search-result__list")
    page.close()
    assert asked
    assert all(url.startswith(("file:", "blob:")) for url in asked)


BROKEN = r"""() => {
    const broken = [];
    for (const code of document.querySelectorAll("td code")) {
        const parts = [...code.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
        for (const part of parts) {
            const range = document.createRange();
            range.selectNodeContents(part);
            if (/^[\w.]+$/.test(part.data) && range.getClientRects().length > 1) broken.push(code.textContent);
        }
    }
    return [broken, document.querySelectorAll("td code").length];
}"""


@pytest.mark.parametrize("page_name", ["course/table", "reference"])
def test_names_in_tables_break_only_where_their_words_end(site: Path, browser: Any, page_name: str) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto((site / f"{page_name}.html").as_uri())
    broken, names = page.evaluate(BROKEN)
    page.close()
    assert names > 100
    assert not broken
