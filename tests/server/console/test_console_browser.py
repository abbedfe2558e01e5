"""The console in a real browser: owner, analyst and auditor, from the sign-in to the answer, with script and without.

Chromium is Debian's. Whatever the browser complains about on the way, a policy that was broken or a script that failed,
fails the test.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from deniable.server.catalogue.catalogue import Person
from deniable.server.operations import server_processes
from deniable.server.roles import Role
from tests.server.world import World, made

pytestmark = pytest.mark.browser
PATIENCE = 20_000
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
HOSTILE = "<img src=x onerror=document.title='broken'>"


@dataclass
class Place:
    """A server that listens, and a browser."""

    world: World
    url: str
    browser: Any

    def page(self, who: str, **options: Any) -> Any:
        """A page of somebody who signed in; what the browser complains about is kept in `page.complaints`."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if _is_complaint(said) else None)
        page.on("request", lambda asked: None if asked.url.startswith(self.url) else page.complaints.append(asked.url))
        page.goto(self.url)
        page.get_by_label("Token").fill(self.world.tokens[who])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()
        return page


def _is_complaint(said: Any) -> bool:
    # A refusal is an answer with a status of its own, which chromium notes down as well.
    return said.type in {"error", "warning"} and "Failed to load resource" not in said.text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("browser")
    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need chromium on the path; on Debian: apt install chromium"
    (folder / "survey.csv").write_text(
        "\n".join(["who,colour,height", *(f's{i},"{HOSTILE if i % 3 else "blue"}",{150 + i % 40}' for i in range(400))])
    )
    world = made(folder, grid=0.01, port=0)
    world.newcomer("nina", Role.ANALYST)
    listening = server_processes.listening(world.curator.settings)
    server = uvicorn.Server(uvicorn.Config(world.client.app, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield Place(world, server_processes.address(listening), browser)
        browser.close()
    server.should_exit = True
    thread.join(60)


def test_an_analyst_prices_asks_asks_again_refines_and_copies(place: Place) -> None:
    page = place.page("ana")
    page.get_by_role("link", name="visits").click()
    page.get_by_label("Your question, in SQL").fill(WARDS)
    page.get_by_label("Amount").fill("0.5")
    price = page.locator("#price")
    price.get_by_text("ε 0.5", exact=True).wait_for()  # while typing, without a click
    assert "more questions like this" in price.inner_text()
    before = place.world.ledger.charged

    page.get_by_role("button", name="Try on dummy rows").click()
    page.get_by_text("free: made-up rows").wait_for()
    assert place.world.ledger.charged == before

    page.get_by_label("Your question, in SQL").press("Control+Enter")
    page.get_by_text("paid ε 0.5").wait_for()
    answer = page.locator("#result table").inner_text()
    assert re.search(r"A\s+[\d,]+ ± \d+", answer)
    assert page.locator("#result svg.bar").count() == 3
    assert page.evaluate("document.activeElement.id") == "result"
    paid = place.world.ledger.charged

    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("0 spent: asked before, the same answer").wait_for()
    assert page.locator("#result table").inner_text() == answer
    assert place.world.ledger.charged == paid

    page.get_by_text("Copy as Python or curl").click()
    assert "dn.connect(" in page.locator("#as-python").inner_text()
    assert "curl " in page.locator("#as-curl").inner_text()
    page.get_by_role("button", name="Copy curl").click()
    page.get_by_role("button", name=re.compile("Copied|Selected")).wait_for()

    page.get_by_role("button", name="Refine").click()
    page.get_by_text("Refined answer").wait_for()
    assert place.world.ledger.charged != paid

    page.get_by_label("Your question, in SQL").fill("SELECT age FROM visits")
    price.get_by_text("The rule:").wait_for()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#result").get_by_text("Instead:").wait_for()
    assert page.get_by_text("Instead:").count() == 1, "what is wrong is said once"
    page.get_by_role("link", name="Releases").click()
    page.get_by_role("link", name=re.compile(r"visits:\d+")).first.click()
    page.get_by_role("heading", name="Privacy label").wait_for()
    assert page.complaints == []


def test_an_owner_adds_a_file_by_its_odds_and_invites(place: Place) -> None:
    page = place.page("olga")
    page.get_by_role("link", name="Add a dataset").click()
    page.get_by_role("link", name="survey.csv").click()
    page.get_by_label("A person is one").select_option("who")
    page.get_by_label("Kind of height").select_option("integer")
    page.get_by_label("Lowest height").fill("100")
    page.get_by_label("Highest height").fill("220")
    assert page.get_by_label("Keys of colour").input_value() == ""
    page.get_by_label("Keys of colour").fill(f"{HOSTILE}, blue")
    page.get_by_label("δ").select_option("pure")
    page.get_by_text("at most 73.2 %").wait_for()
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    page.get_by_text("at most 77.8 %").wait_for()
    assert page.locator("#epsilon").inner_text() == "1.25"
    assert "counts" in page.locator("#odds").inner_text()
    page.get_by_role("button", name="Add the dataset").click()
    page.get_by_text("The dataset was added.").wait_for()
    page.get_by_label("Analyst").select_option("nina")
    page.get_by_label("Share, as ε").fill("0.5")
    page.get_by_role("button", name="Invite", exact=True).click()
    assert not page.get_by_role("button", name="Revoke nina", exact=True).is_visible()
    page.get_by_label("Revoke nina …").click()  # it asks first
    page.get_by_role("button", name="Revoke nina", exact=True).wait_for()
    assert page.complaints == []

    page = place.page("nina")
    page.get_by_role("link", name="survey").click()
    page.get_by_label("Your question, in SQL").fill("SELECT colour, COUNT(*) AS n FROM survey GROUP BY colour")
    page.get_by_label("Amount").fill("0.4")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("paid ε 0.4").wait_for()
    assert HOSTILE in page.locator("#result table").inner_text()
    assert page.locator("#result img").count() == 0
    assert "broken" not in page.title()
    page.get_by_label("Amount").fill("0.45")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Not enough budget is left").wait_for()
    assert page.complaints == []


def test_an_owner_buys_private_bounds_and_sees_the_price_before(place: Place) -> None:
    (place.world.folder / "heights.csv").write_text(
        "\n".join(["who,height,born", *(f"h{i},{150 + i % 40},{1980 + i % 4}-01-01" for i in range(500))])
    )
    page = place.page("olga")
    page.get_by_role("link", name="Add a dataset").click()
    page.get_by_role("link", name="heights.csv").click()
    page.get_by_label("A person is one").select_option("who")
    assert page.get_by_label("Buy bounds of height").is_disabled(), "a text has no bounds"
    page.get_by_label("Kind of height").select_option("integer")
    page.get_by_label("Kind of born").select_option("date")
    assert "No bounds are bought" in page.locator("#bounds").inner_text()
    page.get_by_label("Buy bounds of height").check()
    assert page.get_by_label("Lowest height").is_disabled()
    page.get_by_label("ε for the bounds of each").fill("0.9")
    page.locator("#bounds").get_by_text("of the budget buys bounds of height").wait_for()
    page.locator("#bounds").get_by_text("ε 0.9 at δ").wait_for()
    page.get_by_role("button", name="Add the dataset").click()
    page.get_by_text("The dataset was added.").wait_for()
    # σ is about 4, so that the one bin with 500 rows stands out by 100 σ.
    bought = page.get_by_text(re.compile(r"heights\.height .* to .*, bought"))
    bought.wait_for()
    page.get_by_label("Column").select_option(label="heights.born")
    page.get_by_label("ε to spend").fill("0.2")
    page.locator("#bounds-price").get_by_text("ε 0.2", exact=True).wait_for()
    page.get_by_role("button", name="Buy bounds").click()
    page.get_by_text("heights.born").last.wait_for()
    page.get_by_text(re.compile(r"heights\.born (\d{4}-01-01 to \d{4}-12-31, bought|has none)")).wait_for()
    assert page.complaints == []


def test_an_auditor_sees_the_chain_the_curve_and_labels_and_asks_nothing(place: Place) -> None:
    sql, cost = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", {"epsilon": 0.2, "confidence": 0.95}
    place.world.curator.ask(Person("ana", Role.ANALYST), "visits", sql, cost)
    page = place.page("ada")
    page.get_by_role("link", name="visits").click()
    page.get_by_text("The chain holds.").wait_for()
    assert page.get_by_role("img", name="What an attacker can do").is_visible()
    assert page.get_by_role("link", name="Ask", exact=True).count() == 0
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the ledger").click()
    assert b'"RESERVED"' in Path(download.value.path()).read_bytes()
    page.get_by_role("link", name="label").first.click()
    page.get_by_role("heading", name="Privacy label").wait_for()
    for form in ("HTML", "SVG"):
        page.get_by_role("link", name=form).click()
        page.get_by_text("Privacy label of").first.wait_for()
        page.go_back()
    page.goto(f"{place.url}/console/data/visits")
    page.get_by_text("This role may not do that").wait_for()
    assert page.complaints == []


def test_it_works_without_script(place: Place) -> None:
    page = place.page("ana", java_script_enabled=False)
    page.get_by_role("link", name="visits").click()
    page.get_by_label("Your question, in SQL").fill("SELECT COUNT(*) AS n FROM visits")
    assert not page.get_by_text("Ctrl + Enter asks it.").is_visible()
    tops = [page.get_by_role("button", name=name, exact=True).bounding_box()["y"] for name in ("Price", "Ask")]
    assert tops[0] == tops[1], "all buttons in one line"
    page.get_by_role("button", name="Price").click()
    page.get_by_text("more questions like this").wait_for()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Receipt").wait_for()


@pytest.mark.parametrize("who", ["olga", "ana", "ada"])
def test_a_phone_scrolls_down_and_never_sideways(place: Place, who: str) -> None:
    page = place.page(who, viewport={"width": 360, "height": 740}, color_scheme="dark")
    paths = {
        "olga": ("", "add", "add?file=visits.csv", "data/visits/share", "data/visits/ledger"),
        "ana": ("", "data/visits", "data/visits/releases"),
        "ada": ("", "data/visits/ledger"),
    }
    for path in paths[who]:
        page.goto(f"{place.url}/console/{path}")
        wide = "[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > 360).map(e => e.outerHTML)"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, (path, page.evaluate(wide)[-3:])
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')]"
            ".filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)"
        )
        assert unnamed == [], "everything that can be used has a name"
        cut = page.evaluate(
            "[...document.querySelectorAll('.tabs a, .label a.button, .entries td, .meter')]"
            ".filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML)"
        )
        assert cut == [], path
    assert page.complaints == []


def test_meters_are_wide_enough_to_be_read_and_nothing_touches(place: Place) -> None:
    sql, cost = "SELECT COUNT(*) AS n FROM visits WHERE age < 50", {"epsilon": 0.2, "confidence": 0.95}
    release = place.world.curator.ask(Person("ana", Role.ANALYST), "visits", sql, cost)["release"]
    for width in (390, 1280):
        page = place.page("olga", viewport={"width": width, "height": 800})
        gap = (
            "document.querySelector('.cards').getBoundingClientRect().top"
            " - document.querySelector('a.button.primary').getBoundingClientRect().bottom"
        )
        assert page.evaluate(gap) >= 8
        page.goto(f"{place.url}/console/data/visits/ledger")
        rows = {each.bounding_box()["y"] for each in page.locator(".tabs a").all()}
        assert len(rows) <= (2 if width == 390 else 1)  # on a phone they wrap, so that none is cut off
        for meter in page.locator(".accounts .meter").all():
            assert meter.bounding_box()["width"] >= 120
        page.goto(f"{place.url}/console/labels/{release}")
        tops = [page.get_by_role("link", name=name).bounding_box()["y"] for name in ("JSON", "HTML", "SVG")]
        assert len(set(tops)) == 1
        page.goto(f"{place.url}/console/labels/{release}?form=svg")
        outside = "[...document.querySelectorAll('text')].filter(e => e.getBBox().x + e.getBBox().width > 712).length"
        assert page.evaluate(outside) == 0
        people = place.page("adam", viewport={"width": width, "height": 800})
        boxes = sorted(each.bounding_box()["y"] for each in people.locator(".person button").all())
        heights = {each.bounding_box()["height"] for each in people.locator(".person button").all()}
        assert all(low - high >= max(heights) + 4 for high, low in pairwise(boxes) if low > high)


def test_every_control_can_be_reached_by_the_keyboard(place: Place) -> None:
    page = place.page("ana")
    page.goto(f"{place.url}/console/data/visits")
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("(e => e.name || e.textContent.trim())(document.activeElement)"))
    assert {"Skip to the content", "sql", "way", "amount", "Try on dummy rows", "Ask", "Sign out"} <= seen
