"""How a curve looks in a notebook and in a terminal: right, escaped, quick, and never an exception."""

from __future__ import annotations

import html.parser
import math
import sys
import time
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deniable import curves
from deniable.curves import curve_display
from deniable.errors import MissingExtra

CURVES = {
    "gaussian": curves.gaussian(sigma=2),
    "mixed": curves.gaussian(sigma=50) ** 1000 * curves.laplace(scale=4),
    "sampled": curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000,
    "identity": curves.identity(),
    "pure": curves.pure(epsilon=1),
    "leaky": curves.approximate(epsilon=1, delta=1e-3),
    "gives all away": curves.approximate(epsilon=0, delta=1),
    "no gaussian": curves.discrete_gaussian(sigma=3),
    "strong": curves.pure(epsilon=800),
    "no noise to speak of": curves.gaussian(sigma=1e-3),
    "too large": curves.discrete_gaussian(sigma=1e12),
    "zcdp": curves.zcdp(rho=0.1),
    "many": curves.product(curves.gaussian(sigma=10 + i) for i in range(20)),
}


def drawn(curve: curves.Curve) -> str:
    console = Console(width=100, file=None, color_system=None)
    with console.capture() as captured:
        console.print(curve)
    return captured.get()


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_every_valid_curve_can_be_looked_at(curve: curves.Curve) -> None:
    start = time.process_time()
    text = drawn(curve)
    page = curve._repr_html_()
    for look in (text, page):
        for name in ("ε at δ = 1e-06", "μ", "equal error rate", "advantage", "δ(ε)"):
            assert name in look
        assert "nan" not in look.lower()
    assert time.process_time() - start < 6  # two looks, on a machine that may be busy


def test_the_look_says_what_the_curve_says() -> None:
    curve = CURVES["gaussian"]
    facts = {fact.name: fact for fact in curve_display.facts(curve)}
    low, high = curve.epsilon_bounds(delta=1e-6)
    assert float(facts["ε at δ = 1e-06"].value) == pytest.approx(high, rel=1e-4)
    assert float(facts["ε at δ = 1e-06"].value) >= high
    said_low, said_high = (float(part.strip(" ]")) for part in facts["ε at δ = 1e-06"].meaning.split("[")[1].split(","))
    assert said_low <= low <= high <= said_high
    assert float(facts["μ"].value) == 0.5
    assert float(facts["equal error rate"].value) <= curve.equal_error_rate()
    assert float(facts["advantage"].value) >= curve.advantage()


def test_infinity_is_shown_as_infinity() -> None:
    values = {fact.name: fact.value for fact in curve_display.facts(CURVES["leaky"])}
    assert values["ε at δ = 1e-06"] == "∞"
    assert values["μ"] == "∞"


def test_the_other_question_can_be_asked() -> None:
    first = curve_display.facts(CURVES["pure"], epsilon=0.5)[0]
    assert first.name == "δ at ε = 0.5"
    assert float(first.value) == pytest.approx(CURVES["pure"].delta(epsilon=0.5), rel=1e-4)


def test_what_cannot_be_certified_is_said_so() -> None:
    assert {fact.meaning for fact in curve_display.facts(CURVES["too large"])} == {
        "not certifiable in bounded memory and time"
    }
    assert "not certifiable" in curve_display.sparkline(CURVES["too large"])


class Balanced(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_the_html_is_well_formed(curve: curves.Curve) -> None:
    page = curve_display.html(curve)
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    if "<svg" in page:
        ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_nothing_in_the_html_is_markup_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_display, "title", lambda curve: "<script>alert('δ')</script>")
    assert "<script>" not in curve_display.html(CURVES["pure"])
    assert "[bold]" in drawn_title("[bold]")


def drawn_title(text: str) -> str:
    """A title that looks like rich markup is shown as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve_display, "title", lambda curve: text)
        return drawn(CURVES["pure"])


def test_a_sparkline_falls() -> None:
    blocks, _, ends = curve_display.sparkline(CURVES["gaussian"], 40).partition("  ")
    levels = [curve_display.BLOCKS.index(block) for block in blocks]
    assert len(levels) == 40
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == len(curve_display.BLOCKS) - 1
    assert levels[-1] == 0
    assert ends.startswith("ε 0 … ")


def test_the_profile_is_on_the_safe_side() -> None:
    epsilon, delta = curve_display.profile(CURVES["mixed"], 8)
    low, high = CURVES["mixed"].delta_bounds(epsilon=epsilon)
    assert np.all(delta >= low)
    assert delta == pytest.approx(high, rel=1e-3)


def test_a_long_title_is_cut() -> None:
    assert len(curve_display.title(CURVES["many"])) <= curve_display.LONGEST_TITLE + 5
    assert "different mechanisms" in curve_display.title(CURVES["many"])


def test_without_rich_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.panel", None)
    with pytest.raises(MissingExtra, match=r"deniable\[cli\]"):
        curve_display.rich_panel(CURVES["pure"])


# A shown number may differ from the value to the unsafe side by float noise only.
NOISE = Fraction(1, 10**12)


@given(st.floats(0, 1e300), st.integers(1, 12))
def test_numbers_are_rounded_to_their_safe_side(value: float, digits: int) -> None:
    exact = Fraction(value)
    up, down = Fraction(curve_display.rounded_up(value, digits)), Fraction(curve_display.rounded_down(value, digits))
    assert up >= exact * (1 - NOISE)
    assert down <= exact * (1 + NOISE)
    assert up - down <= 2 * max(exact, Fraction(5e-324)) * Fraction(10) ** (1 - digits)


@given(st.floats(0, 1))
def test_per_cents_are_rounded_up(value: float) -> None:
    shown = Fraction(curve_display.percent_up(value).removesuffix(" %"))
    exact = 100 * Fraction(value)
    assert exact * (1 - NOISE) <= shown <= min(100, exact + Fraction(1, 100))


def test_numbers_read_well() -> None:
    assert curve_display.rounded_up(0.0) == "0"
    assert curve_display.rounded_up(-math.inf) == "-∞"
    assert curve_display.rounded_up(1e-7) == "1e-7"
    assert curve_display.rounded_up(123456.7) == "123460"
    assert curve_display.rounded_down(1.23456789e-20, 3) == "1.23e-20"
    assert curve_display.rounded_up(2.0) == "2"


def test_a_loss_distribution_is_shown_in_one_line() -> None:
    assert repr(curves.gaussian(mu=1).loss).count("\n") == 0
    shown = repr(curves.randomized_response(p=0.75).loss)
    assert shown == "<LossDistribution on 2 losses from -1.099 to 1.099: mean 0.5493, deviation 0.9514>"
