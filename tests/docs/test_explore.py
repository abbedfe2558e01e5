"""The page with sliders, docs/explore.html: it is current, fetches nothing, and what it says is on the safe side."""

from __future__ import annotations

import importlib.util
import math
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_explore", DOCS / "draw_explore.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("draw_explore", module)
    spec.loader.exec_module(module)
    return module


MADE = _module()
SETTINGS = list(MADE.settings())
EACH = MADE.POINTS + len(MADE.EPSILONS)


def test_the_page_is_made_of_its_parts_and_small() -> None:
    text = MADE.PAGE.read_text("utf-8")
    assert MADE.page(MADE.held()) == text, "run: python docs/draw_explore.py"
    assert MADE.PAGE.stat().st_size < 1_000_000


def test_the_page_names_no_other_place() -> None:
    text = MADE.DATA.sub("", MADE.PAGE.read_text("utf-8"))
    assert set(re.findall(r"https?://[^\s\"')]+", text)) == {"http://www.w3.org/2000/svg"}, (
        "the name of SVG, which is not fetched"
    )
    assert not re.findall(r"(?:src|href|action)=\"(?!data:,)|@import|url\(|fetch\(|XMLHttpRequest|import\(", text)


def test_the_page_holds_a_row_for_every_setting() -> None:
    held = MADE.held()
    assert len(held["ends"]) == len(held["needed"]) == len(SETTINGS)
    assert len(_codes(held)) == len(SETTINGS) * EACH
    assert {tuple(v) for v in held["noise"].values()} == set(MADE.NOISE.values())
    for name in ("rates", "groups", "counts", "epsilons", "deltas"):
        assert tuple(held[name]) == getattr(MADE, name.upper())


def _codes(held: dict[str, Any]) -> np.ndarray:
    import base64

    return np.frombuffer(base64.b64decode(held["codes"]), dtype="<u2")


def test_a_delta_is_rounded_up_and_by_little() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    for _ in range(2000):
        delta = 10 ** random.Random(seed).uniform(-12, 0)
        read = 10.0 ** (-MADE._coded(delta) / MADE.STEPS)
        assert delta <= read <= 1.001 * delta
        seed += 1
    assert MADE._coded(0.0) == MADE.ZERO
    assert 10.0 ** (-MADE._coded(1e-30) / MADE.STEPS) >= 1e-12, "what is smaller is still not 0"


def test_a_group_that_randomises_at_home_sends_one_report_each() -> None:
    reports = MADE.curves.randomized_response(epsilon=1) ** 30
    assert MADE.curve("response", 1, 1.0, 3, 10) == reports
    index = SETTINGS.index(("response", 1, 1.0, 3, 10))
    held = MADE.held()["needed"][index][MADE.DELTAS.index(1e-7)]
    assert held == pytest.approx(reports.epsilon(delta=1e-7), rel=1e-5), "run: make pictures"


def test_where_a_sample_is_purely_private_the_page_says_delta_0() -> None:
    """Rounding off used to leave 10^-12 there, so that Laplace noise on a sample seemed to have no pure ε."""
    index = SETTINGS.index(("laplace", 3, 0.3, 1, 1))
    assert MADE.curve(*SETTINGS[index]).epsilon(delta=0.0) < 0.12
    at = MADE.POINTS + MADE.EPSILONS.index(0.2)
    assert MADE.row(SETTINGS[index])[1][at] == MADE.ZERO
    assert _codes(MADE.held()).reshape(-1, EACH)[index, at] == MADE.ZERO, "run: make pictures"


@pytest.mark.slow
def test_no_number_of_the_page_is_stale() -> None:
    """Some settings, computed again: the same, up to what another processor rounds differently."""
    held, seed = MADE.held(), random.randrange(2**32)
    print("seed", seed)
    codes = _codes(held).reshape(-1, EACH)
    for index in random.Random(seed).sample(range(len(SETTINGS)), 25):
        end, again, needed = MADE.row(SETTINGS[index])
        assert end == pytest.approx(held["ends"][index], rel=1e-5), "run: make pictures"
        if end == held["ends"][index]:
            assert np.max(np.abs(codes[index].astype(int) - again)) <= 1, "run: make pictures"
        np.testing.assert_allclose(held["needed"][index], needed, rtol=1e-4, err_msg="run: make pictures")


# -- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need chromium on the path; on Debian: apt install chromium"
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    opened.on(
        "request", lambda request: complaints.append(request.url) if not request.url.endswith("explore.html") else None
    )
    opened.goto(MADE.PAGE.as_uri())
    yield opened
    assert complaints == [], "the page fetches nothing and breaks nothing"


def _setting(index: int) -> tuple[Any, dict[str, Any]]:
    """A setting for the library and for the page."""
    family, level, rate, group, count = SETTINGS[index]
    places = {
        "family": family,
        "noise": MADE.NOISE[family].index(level),
        "rate": MADE.RATES.index(rate),
        "group": MADE.GROUPS.index(group),
        "count": MADE.COUNTS.index(count),
    }
    return MADE.curve(*SETTINGS[index]), places


READ = """([setting, at]) => { const v = polygon(promises(setting)); const r = readings(setting, at);
  return {...r, finite: Number.isFinite(r.epsilon), epsilon: Number.isFinite(r.epsilon) ? r.epsilon : 1e9,
    other: at.others.map((e) => delta(v, e)), betas: at.alphas.map((a) => misses(v, a))}; }"""


def _drawn(draw: random.Random) -> list[int]:
    """Settings in which everybody takes part, and a few samples: of those the library's tails take long."""
    whole = [i for i, setting in enumerate(SETTINGS) if setting[2] == 1]
    sampled = [i for i, (_, _, rate, _, count) in enumerate(SETTINGS) if 0.1 <= rate < 1 and count <= 10]
    return draw.sample(whole, 40) + draw.sample(sampled, 3)


@pytest.mark.browser
@pytest.mark.slow
def test_what_the_page_says_is_the_librarys_number_on_the_safe_side(page: Any) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    for index in _drawn(draw):
        curve, places = _setting(index)
        at = {
            "epsilon": draw.choice(MADE.EPSILONS),
            "delta": draw.choice(MADE.DELTAS[2:]),
            "alarms": draw.uniform(0.001, 0.5),
            "prior": draw.uniform(0.01, 0.99),
            "others": [draw.uniform(0, 5)],
            "alphas": [draw.uniform(0, 1) for _ in range(4)],
        }
        said, where = page.evaluate(READ, [places, at]), (seed, SETTINGS[index], at)
        near, nearer = (1.001, 1.002) if curve.is_symmetric else (1.03, 1.3)  # samples are read from their polygons
        low, truth = curve.epsilon_bounds(delta=at["delta"])
        assert said["epsilon"] >= low * (1 - 1e-12), where
        assert truth > MADE.MOST or said["epsilon"] <= near * truth + 1e-5, where
        low, truth = curve.delta_bounds(epsilon=at["epsilon"])
        assert low * (1 - 1e-12) <= said["delta"] <= nearer * truth + 2e-9, where
        low, _ = curve.delta_bounds(epsilon=at["others"][0])
        assert said["other"][0] >= low * (1 - 1e-12), where
        _, high = curve.beta_bounds(alpha=np.array([*at["alphas"], at["alarms"]]))
        betas = np.array([*said["betas"], said["misses"]])
        assert np.all(betas <= high + 1e-12), where
        # The page knows δ for both orders of the neighbours at once: its β is the hull of both.
        hull = curve if curve.is_symmetric else curve.symmetrized()
        assert np.all(betas >= hull.beta(alpha=np.array([*at["alphas"], at["alarms"]])) - 0.006), where
        assert said["equal"] <= curve.beta_bounds(alpha=said["equal"])[1] + 1e-12, where
        assert said["equal"] >= hull.equal_error_rate() - 0.006, where
        alpha, prior, beta = at["alarms"], at["prior"], float(high[-1])
        assert said["alarm"] >= prior * (1 - beta) / (prior * (1 - beta) + (1 - prior) * alpha) - 1e-12, where
        assert said["silence"] <= prior * beta / (prior * beta + (1 - prior) * (1 - alpha)) + 1e-12, where


@pytest.mark.browser
def test_a_corner_on_the_diagonal_costs_nothing(page: Any) -> None:
    """Three answers of ε = 2: vertices beyond the diagonal made δ(0.7) of .8817 into .8847."""
    curve, places = _setting(next(i for i, s in enumerate(SETTINGS) if s == ("response", 2, 1.0, 1, 3)))
    at = {"epsilon": 0.7, "delta": 0.01, "alarms": 0.459, "prior": 0.5, "others": [], "alphas": []}
    low, high = curve.delta_bounds(epsilon=0.7)
    assert low <= page.evaluate(READ, [places, at])["delta"] <= 1.001 * high


@pytest.mark.browser
def test_numbers_on_the_wrong_side_would_be_noticed(page: Any) -> None:
    """δ smaller by 2 % than the certified one is below the library's lower bound: the comparison above can fail."""
    curve, places = _setting(next(i for i, s in enumerate(SETTINGS) if s == ("gaussian", 2, 1.0, 1, 1)))
    at = {"epsilon": 1, "delta": 1e-6, "alarms": 0.05, "prior": 0.5, "others": [], "alphas": []}
    low, _ = curve.delta_bounds(epsilon=1.0)
    assert page.evaluate(READ, [places, at])["delta"] >= low
    page.evaluate(
        "() => { for (let i = 0; i < CODES.length; i++) CODES[i] += Math.round(-NUMBERS.steps * Math.log10(0.98)); }"
    )
    assert page.evaluate(READ, [places, at])["delta"] < low


@pytest.mark.browser
def test_the_laws_of_the_page_are_the_formulas(page: Any) -> None:
    from scipy import stats

    for family, law in (("gaussian", stats.norm), ("laplace", stats.laplace)):
        places = {"family": family, "noise": 4, "rate": 1, "group": 0, "count": 0}
        level = MADE.NOISE[family][4]
        x, p, q = np.array([list(v.values()) for v in page.evaluate("(s) => laws(s)", places)]).T
        np.testing.assert_allclose(p, law(0, level).pdf(x), rtol=1e-12)
        np.testing.assert_allclose(q, 0.7 * law(0, level).pdf(x) + 0.3 * law(1, level).pdf(x), rtol=1e-12)
    places = {"family": "response", "noise": 4, "rate": 0, "group": 2, "count": 0}
    x, p, q = np.array([list(v.values()) for v in page.evaluate("(s) => laws(s)", places)]).T
    np.testing.assert_allclose(q, stats.binom(3, 0.75).pmf(x), rtol=1e-12)  # ε = log 3: right with 3/4
    np.testing.assert_allclose(p, stats.binom(3, 0.25).pmf(x), rtol=1e-12)


@pytest.mark.browser
def test_the_log_ratio_is_that_of_the_law_without_the_person(page: Any) -> None:
    """log P/Q, as everywhere: it falls where answers grow with the person. The page drew log Q/P."""
    drawn = page.eval_on_selector("#laws path.line.third", "line => line.getAttribute('d')")
    heights = [float(point.split()[1]) for point in re.split("[ML]", drawn)[1:]]
    assert np.all(np.diff(heights) > 0), "heights on the screen grow downwards"


@pytest.mark.browser
def test_a_delta_below_what_the_page_knows_is_said_to_be_below_it(page: Any) -> None:
    """The page said δ = 1.01 · 10⁻⁹ for one of 10⁻²⁷, and drew its privacy curve along the floor of the picture."""
    assert page.locator("#say-delta").inner_text() == "0.00683"
    for _ in range(4):
        page.locator("#rate").press("ArrowRight")
    assert page.locator("#say-delta").inner_text() == "below 2 · 10⁻⁹"
    assert "δ below 2 · 10⁻⁹)" in page.locator("#note-tradeoff").inner_text()
    drawn = page.eval_on_selector("#profile path.line.first", "line => line.getAttribute('d')")
    heights = [float(point.split()[1]) for point in re.split("[ML]", drawn)[1:]]
    assert np.sum(np.array(heights) == max(heights)) <= 1, "where the curve leaves the picture, it ends"


@pytest.mark.browser
def test_keys_move_a_slider_and_with_it_pictures_and_words(page: Any) -> None:
    def seen() -> dict[str, str]:
        found: dict[str, str] = page.evaluate("""() => Object.fromEntries(
            ["laws", "tradeoff", "profile", "odds"].map((id) => [id, document.getElementById(id).innerHTML]).concat(
            [...document.querySelectorAll("dd")].map((e) => [e.id, e.textContent])))""")
        return found

    moves = {
        "noise": {"laws", "tradeoff", "profile", "odds", "say-epsilon", "say-delta", "say-misses", "say-alarm"},
        "count": {"tradeoff", "profile", "odds", "say-epsilon", "say-delta", "say-misses", "say-alarm"},
        "group": {"laws", "tradeoff", "profile", "odds", "say-epsilon", "say-delta", "say-misses", "say-alarm"},
        "epsilon": {"laws", "tradeoff", "profile", "say-delta"},
        "delta": {"profile", "say-epsilon"},
        "alarms": {"tradeoff", "odds", "say-misses", "say-alarm"},
        "prior": {"odds", "say-alarm"},
        "rate": {"laws", "tradeoff", "profile", "odds", "say-epsilon", "say-delta", "say-misses", "say-alarm"},
    }
    for name, expected in moves.items():
        if name == "rate":  # a group and a sample are not on the page together
            page.locator("#group").press("Home")
        before = seen()
        page.locator(f"#{name}").press("ArrowRight")
        after = seen()
        assert {key for key in after if after[key] != before[key]} == expected, name
    assert page.locator("#group").is_disabled()
    page.get_by_text("Randomized response", exact=True).click()
    assert page.locator("#rate").is_disabled()
    assert page.locator("#group").is_enabled()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_page_fits_every_screen_and_follows_its_colours(browser: Any, scheme: str, width: int) -> None:
    page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
    page.goto(MADE.PAGE.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(n) for n in re.findall(r"\d+", paper)[:3]) / 3
    assert (light > 200) == (scheme == "light")
    outside = page.evaluate(
        """() => [...document.querySelectorAll("svg")].flatMap((svg) => { const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")].filter((t) => { const r = t.getBoundingClientRect();
        return r.left < box.left - 1 || r.right > box.right + 1; }).map((t) => svg.id + ": " + t.textContent); })"""
    )
    assert outside == []
    assert math.isfinite(float(page.locator("#say-epsilon").inner_text()))
