"""What is drawn are the curve's own numbers."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from deniable import curves, plots
from deniable.curves import textbook
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.plots.spec import Band, Bars, Level, Line, Marker, Panel, Stems

GAUSSIAN = curves.gaussian(sigma=2)
LAPLACE = curves.laplace(scale=1)


def only(panel: Panel, kind: type) -> list:
    return [mark for mark in panel.marks if isinstance(mark, kind)]


# -- trade-off -------------------------------------------------------------------------------------------------------


def test_the_tradeoff_line_is_beta_and_its_band_the_bounds() -> None:
    (panel,) = plots.tradeoff({"g": GAUSSIAN}).panels
    line, band = panel.lines["g"], only(panel, Band)[0]
    low, high = GAUSSIAN.beta_bounds(alpha=np.array(line.x))
    assert line.y == tuple(low)
    assert (band.low, band.high) == (tuple(low), tuple(high))
    assert line.x[0] == 0
    assert line.x[-1] == 1
    # independent: G_mu(α) = Φ(Φ⁻¹(1-α) - μ)
    from scipy.special import ndtr, ndtri

    assert line.y == pytest.approx(ndtr(ndtri(1 - np.array(line.x)) - 0.5), abs=1e-6)


def test_the_diagonal_is_there_for_comparison() -> None:
    (panel,) = plots.tradeoff(GAUSSIAN).panels
    assert panel.lines["learns nothing"].y == (1.0, 0.0)
    assert (panel.x.low, panel.x.high, panel.y.low, panel.y.high) == (0, 1, 0, 1)


def test_curves_without_names_are_named_by_their_expressions() -> None:
    (panel,) = plots.tradeoff(GAUSSIAN, {"mine": LAPLACE}).panels
    assert list(panel.lines) == ["learns nothing", "gaussian(sigma=2)", "mine"]
    assert [line.colour for line in panel.lines.values()] == [-1, 0, 1]


def test_a_long_name_is_cut() -> None:
    long = curves.product(curves.gaussian(sigma=2 + i) for i in range(9))
    names = list(plots.profile(long).panels[0].lines)
    assert len(names[0]) <= 44
    assert "…" in names[0]


# -- profile ---------------------------------------------------------------------------------------------------------


def test_the_profile_is_delta_of_epsilon() -> None:
    (panel,) = plots.profile({"g": GAUSSIAN}).panels
    line, band = panel.lines["g"], only(panel, Band)[0]
    assert line.y == tuple(GAUSSIAN.delta(epsilon=np.array(line.x)))
    assert all(low <= high for low, high in zip(band.low, band.high, strict=True))
    assert panel.y.scale == "log"
    assert all(y > 0 for y in (*line.y, *band.low, *band.high)), "a log axis cannot show 0"
    assert line.y[-1] <= panel.y.low * 1.1, "the line reaches the end of the axis"


def test_a_level_marks_epsilon_on_every_curve() -> None:
    (panel,) = plots.profile({"g": GAUSSIAN, "l": LAPLACE}, delta=1e-6).panels
    assert [level.at for level in only(panel, Level)] == [1e-6]
    assert [marker.x for marker in only(panel, Marker)] == [GAUSSIAN.epsilon(delta=1e-6), LAPLACE.epsilon(delta=1e-6)]
    assert list(panel.lines) == ["g: ε = 2.255", "l: ε = 1"], "said on the safe side, so rounded up"


@pytest.mark.parametrize(
    "curve",
    [
        curves.identity(),
        curves.pure(epsilon=1),
        curves.approximate(epsilon=1, delta=1e-3),
        curves.approximate(epsilon=0, delta=1),
        curves.randomized_response(p=0.75) ** 3,
        curves.gaussian(sigma=0.05),
    ],
    ids=repr,
)
def test_extreme_curves_have_a_picture(curve: curves.Curve) -> None:
    figure = plots.compare(curve, delta=1e-6)
    for panel in figure.panels:
        assert panel.x.low < panel.x.high
        for line in only(panel, Line):
            assert len(line.x) == len(line.y)
            assert np.all(np.isfinite(line.x))
            assert np.all(np.isfinite(line.y))
    plots.loss(curve, delta=1e-6)


# -- compare ---------------------------------------------------------------------------------------------------------


def test_compare_puts_both_faces_side_by_side_under_one_legend() -> None:
    figure = plots.compare({"g": GAUSSIAN, "l": LAPLACE}, delta=1e-6)
    left, right = figure.panels
    assert list(left.lines) == ["learns nothing", "g: ε = 2.255", "l: ε = 1"]
    assert right.labels == "none"
    assert {name: left.lines[name].colour for name in right.lines} == {n: r.colour for n, r in right.lines.items()}


# -- loss ------------------------------------------------------------------------------------------------------------


def test_few_losses_are_stems_with_their_probabilities() -> None:
    (panel,) = plots.loss(curves.randomized_response(p=0.75)).panels
    (stems,) = only(panel, Stems)
    assert stems.x == pytest.approx([-math.log(3), math.log(3)])
    assert stems.heights == pytest.approx([0.25, 0.75])


def test_many_losses_are_bars_that_add_up() -> None:
    (panel,) = plots.loss(GAUSSIAN).panels
    (bars,) = only(panel, Bars)
    assert sum(bars.heights) == pytest.approx(1, abs=1e-3)
    assert len(bars.edges) == len(bars.heights) + 1
    middle = np.array(bars.edges[:-1]) + np.diff(bars.edges) / 2
    assert float(np.dot(middle, bars.heights)) == pytest.approx(0.125, abs=0.01), "the mean loss is μ²/2"
    assert [level.text for level in only(panel, Level)] == ["mean 0.125"]


def test_the_loss_picture_marks_epsilon() -> None:
    (panel,) = plots.loss(GAUSSIAN, delta=1e-6).panels
    assert only(panel, Level)[1].at == GAUSSIAN.epsilon(delta=1e-6)
    assert panel.x.high > only(panel, Level)[1].at


def test_an_infinite_loss_is_mentioned_only_where_it_is_real() -> None:
    assert "0.1 the loss is infinite" in plots.loss(curves.approximate(epsilon=1, delta=0.1)).note
    assert "infinite" not in plots.loss(GAUSSIAN).note


# -- growth ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def growth() -> Panel:
    return plots.growth(LAPLACE, delta=1e-5, most=500, name="exact").panels[0]


def test_growth_shows_the_formulas(growth: Panel) -> None:
    basic, bun = growth.lines["basic, k ε"], growth.lines["advanced, proved for all k"]
    best, exact = growth.lines["best for any 1-DP"], growth.lines["exact"]
    assert basic.y == pytest.approx(basic.x)
    assert bun.y[-1] == textbook.advanced_composition(epsilon=LAPLACE.epsilon(delta=0), count=500, delta=1e-5)
    # FACTS B40: 357.2983, 311.7676 and 258.30 for 500 releases of Laplace(1)
    assert bun.y[-1] == pytest.approx(357.298301314467, rel=1e-9)
    assert best.y[-1] == pytest.approx(311.767604639711, rel=1e-9)
    assert exact.y[-1] == pytest.approx(258.30, abs=0.02)
    assert exact.y[-1] == (LAPLACE**500).epsilon_bounds(delta=1e-5)[1]


def test_advanced_composition_ends_where_its_theorem_ends(growth: Panel) -> None:
    """FACTS B40: kε² <= 8 log(1/δ) = 92.1; the often drawn continuation is false."""
    printed = growth.lines["2ε√(2k log 1/δ)"]
    assert printed.x[-1] == 92
    assert only(growth, Marker)[0].x == 92
    assert "k = 92" in only(growth, Marker)[0].text


def test_lines_of_guarantees_keep_their_order(growth: Panel) -> None:
    exact, best = growth.lines["exact"], growth.lines["best for any 1-DP"]
    for k, ours, any_mechanism in zip(exact.x, exact.y, best.y, strict=True):
        assert ours <= any_mechanism * (1 + 1e-3) <= k * (1 + 2e-3)


def test_the_note_tells_how_wrong_the_continuation_would_be() -> None:
    note = plots.growth(LAPLACE, delta=1e-5, most=500).note
    assert "214.6" in note
    assert "258.3" in note


def test_where_the_theorem_holds_everywhere_nothing_is_cut() -> None:
    (panel,) = plots.growth(curves.pure(epsilon=0.1), delta=1e-5, most=100).panels
    assert panel.lines["2ε√(2k log 1/δ)"].x[-1] == 100
    assert not only(panel, Marker)


# -- what cannot be drawn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [plots.tradeoff, plots.profile, plots.compare])
def test_only_curves_are_drawn(draw: object) -> None:
    with pytest.raises(InvalidOperation, match="only curves"):
        draw(3)  # type: ignore[operator]
    with pytest.raises(InvalidParameter, match="between 1 and 7"):
        draw()  # type: ignore[operator]
    with pytest.raises(InvalidParameter, match="between 1 and 7"):
        draw({str(i): curves.pure(epsilon=i) for i in range(1, 9)})  # type: ignore[operator]


@pytest.mark.parametrize("delta", [-1, 2, math.nan, True, "x"])
def test_a_level_is_a_probability(delta: object) -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        plots.profile(GAUSSIAN, delta=delta)  # type: ignore[arg-type]


def test_growth_needs_a_pure_curve_a_delta_and_a_count() -> None:
    with pytest.raises(InvalidParameter, match="pure DP"):
        plots.growth(GAUSSIAN, delta=1e-5, most=10)
    with pytest.raises(InvalidParameter, match="delta"):
        plots.growth(LAPLACE, delta=0, most=10)
    with pytest.raises(InvalidParameter, match="most"):
        plots.growth(LAPLACE, delta=1e-5, most=1)
    with pytest.raises(InvalidOperation):
        plots.growth(3, delta=1e-5, most=10)  # type: ignore[arg-type]
    with pytest.raises(InvalidOperation):
        plots.loss("gaussian")  # type: ignore[arg-type]


# -- spec ------------------------------------------------------------------------------------------------------------


def test_a_spec_is_plain_frozen_data() -> None:
    figure = plots.profile(GAUSSIAN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        figure.title = "other"  # type: ignore[misc]
    assert not hasattr(figure, "__dict__")
    assert plots.profile(GAUSSIAN) == figure
    assert hash(figure) == hash(plots.profile(GAUSSIAN))


def test_making_a_spec_loads_no_matplotlib() -> None:
    code = (
        "import sys; from deniable import curves, plots; plots.profile(curves.pure(epsilon=1), delta=1e-6); "
        "assert not any(name.startswith('matplotlib') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
