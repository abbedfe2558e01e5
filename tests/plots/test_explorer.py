"""The sliders of a notebook, moved without one: what they say is what the library says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deniable import curves, plots
from deniable.errors import InvalidParameter, MissingExtra
from deniable.plots.figure_spec import Level, Line, Marker, Stems
from tests.wording import worded


@pytest.fixture
def explorer() -> plots.Explorer:
    pytest.importorskip("ipywidgets")
    return plots.explore()


def moved(explorer: plots.Explorer, **values: Any) -> plots.Explorer:
    for name, value in values.items():
        explorer.sliders[name.replace("_", " ")].value = value
    return explorer


@pytest.mark.slow
def test_a_slider_moves_the_curve_the_pictures_and_the_words(explorer: plots.Explorer) -> None:
    assert explorer.curve == curves.gaussian(sigma=2)
    pictures, words = [bytes(p.value) for p in explorer._pictures], explorer.words
    moved(explorer, count=10, group=3)
    assert explorer.curve == curves.gaussian(sigma=2).group(size=3) ** 10
    assert all(bytes(now.value).startswith(b"<?xml") for now in explorer._pictures)
    assert [bytes(now.value) != before for now, before in zip(explorer._pictures, pictures, strict=True)] == [
        True,
        True,
        True,
    ]
    assert explorer._sentences.value == "<br>".join(explorer.words)
    assert explorer.words != words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "curve"),
    [
        ("Gaussian", curves.gaussian(sigma=2)),
        ("Laplace", curves.laplace(scale=2)),
        ("randomized response", curves.randomized_response(epsilon=2)),
    ],
)
def test_each_mechanism_has_its_curve_and_its_laws(
    explorer: plots.Explorer, mechanism: str, curve: curves.Curve
) -> None:
    moved(explorer, mechanism=mechanism)
    assert explorer.curve == curve
    left, right = explorer.figures[1].panels
    assert len(left.marks) == 2
    bounded = math.isfinite(curve.epsilon(delta=0))
    assert any(isinstance(mark, Level) for mark in right.marks) == bounded


@pytest.mark.slow
def test_the_words_are_the_curves_numbers_on_the_safe_side(explorer: plots.Explorer) -> None:
    """By closed forms: δ(1) of σ = 2 is .0068296; at 5 % false alarms Φ(1.6449 - 1/2) = .87382 are missed."""
    epsilon, delta, misses, sure = explorer.words
    assert epsilon == "ε = 2.255 at δ = 1e-06"
    assert delta == "δ = 0.00683 at ε = 1"
    assert misses == "misses at least 87.38 % at 5 % false alarms"
    hits = 1 - 0.87382  # (1 - β) / (1 - β + α) and β / (β + 1 - α)
    assert math.ceil(1e4 * hits / (hits + 0.05)) / 100 == 71.62
    assert math.floor(1e4 * 0.87382 / (0.87382 + 0.95)) / 100 == 47.91
    assert sure == "50 % sure before; after an alarm at most 71.62 %, after none at least 47.91 %"


@pytest.mark.slow
def test_a_sample_is_set_back_for_who_randomises_at_home(explorer: plots.Explorer) -> None:
    moved(explorer, rate=0.3)
    assert explorer.curve == curves.gaussian(sigma=2).sampled(rate=0.3)
    moved(explorer, mechanism="randomized response")
    assert explorer.sliders["rate"].disabled
    assert explorer.curve == curves.randomized_response(epsilon=2)


@pytest.mark.slow
def test_a_group_that_randomises_at_home_sends_one_report_each(explorer: plots.Explorer) -> None:
    """Not one report of k times the ε: the laws beside the curve are those of k reports, and both must agree."""
    moved(explorer, mechanism="randomized response", group=3, count=10)
    assert explorer.curve == curves.randomized_response(epsilon=2) ** 30


@pytest.mark.slow
def test_a_group_answers_together(explorer: plots.Explorer) -> None:
    """Three people, each right with probability p: k times yes has probability C(3, k) p^k (1 - p)^(3 - k)."""
    moved(explorer, mechanism="randomized response", group=3)
    _, yes = (mark for mark in explorer.figures[1].panels[0].marks if isinstance(mark, Stems))
    p = 1 / (1 + math.exp(-2))
    assert yes.heights == pytest.approx([math.comb(3, k) * p**k * (1 - p) ** (3 - k) for k in range(4)])


@pytest.mark.slow
def test_it_shows_itself_in_a_notebook(explorer: plots.Explorer) -> None:
    assert "application/vnd.jupyter.widget-view+json" in explorer._repr_mimebundle_()
    assert repr(explorer) == "<Explorer of gaussian(sigma=2)>"


def test_without_ipywidgets_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with worded(MissingExtra):
        plots.explore()


# -- odds ------------------------------------------------------------------------------------------------------------


def test_odds_are_bayes_rule_with_the_certified_misses() -> None:
    """Pure ε = 1 at α = .1: β = 1 - e·.1 = .72817; a prior of 1 % becomes .01·.27183 / (.01·.27183 + .99·.1)."""
    (panel,) = plots.odds({"pure": curves.pure(epsilon=1)}, false_alarms=0.1, prior=0.01).panels
    none, alarm = sorted(mark.y for mark in panel.marks if isinstance(mark, Marker))
    hits = 0.1 * math.e
    assert alarm == pytest.approx(0.01 * hits / (0.01 * hits + 0.99 * 0.1))
    assert none == pytest.approx(0.01 * (1 - hits) / (0.01 * (1 - hits) + 0.99 * 0.9))
    assert alarm / (1 - alarm) == pytest.approx(math.e * 0.01 / 0.99), "at small α pure DP multiplies odds by e^ε"
    line = panel.lines["pure"]
    assert np.all(np.diff(line.y) > 0)
    assert (line.y[0], line.y[-1]) == (0, 1)


def test_odds_of_a_test_that_never_misses_end_in_certainty() -> None:
    """At a prior of 1 silence never happens: 0/0 was drawn as a gap, with a warning of numpy."""
    figure = plots.odds(curves.approximate(epsilon=0, delta=1), false_alarms=0.05)
    ends = [mark.y[-1] for mark in figure.panels[0].marks if isinstance(mark, Line)]
    assert ends == [1, 1, 1]


def test_odds_refuse_rates_that_are_no_test() -> None:
    for rates in ({"false_alarms": 0.0}, {"false_alarms": 1.0}, {"false_alarms": 0.1, "prior": 1.0}):
        with pytest.raises(InvalidParameter):
            plots.odds(curves.pure(epsilon=1), **rates)
