"""What is drawn are the curve's own numbers."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from deniable import curves, local, mechanisms, plots
from deniable.curves import textbook
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.plots.figure_spec import Bars, Level, Line, Marker, Panel, ShadedBand, Stems
from tests.wording import worded

GAUSSIAN = curves.gaussian(sigma=2)
LAPLACE = curves.laplace(scale=1)


def only(panel: Panel, kind: type) -> list:
    return [mark for mark in panel.marks if isinstance(mark, kind)]


# -- trade-off -------------------------------------------------------------------------------------------------------


def test_the_tradeoff_line_is_beta_and_its_band_the_bounds() -> None:
    (panel,) = plots.tradeoff({"g": GAUSSIAN}).panels
    line, band = panel.lines["g"], only(panel, ShadedBand)[0]
    low, high = GAUSSIAN.beta_bounds(alpha=np.array(line.x))
    assert np.all(np.array(line.y) <= high)
    assert line.y == pytest.approx(low, abs=1e-4)
    assert band.high == pytest.approx(GAUSSIAN.beta_bounds(alpha=np.array(band.x))[1])
    assert band.low == pytest.approx(np.interp(band.x, line.x, line.y))
    assert line.x[0] == 0
    assert line.x[-1] == 1
    # independent: G_mu(α) = Φ(Φ⁻¹(1-α) - μ)
    from scipy.special import ndtr, ndtri

    assert line.y == pytest.approx(ndtr(ndtri(1 - np.array(line.x)) - 0.5), abs=1e-4)


@pytest.mark.parametrize(
    "curve",
    [GAUSSIAN, curves.pure(epsilon=2), curves.poisson(low=2, high=5), curves.from_pmf([0.6, 0.4, 0], [0.3, 0.1, 0.6])],
    ids=repr,
)
def test_no_stroke_of_the_tradeoff_lies_above_the_certified_bound(curve: curves.Curve) -> None:
    """Strokes between points of a convex curve lie above it; these do not, at fresh points between the vertices."""
    (panel,) = plots.tradeoff({"c": curve}).panels
    line = panel.lines["c"]
    at = np.random.default_rng(17).uniform(size=50)
    assert np.all(np.interp(at, line.x, line.y) <= np.array(curve.beta_bounds(alpha=at)[1]) + 1e-12)


def test_the_equal_error_point_is_marked_where_it_is() -> None:
    """Pure ε = 2: 1/(1 + e²) = .1192; 61 points joined by strokes had shown .1261."""
    (panel,) = plots.tradeoff({"c": curves.pure(epsilon=2)}).panels
    (dot,) = only(panel, Marker)
    assert (dot.x, dot.y) == (pytest.approx(0.11920292202), pytest.approx(0.11920292202))
    line = panel.lines["c"]
    assert np.interp(dot.x, line.x, line.y) == pytest.approx(dot.y, abs=1e-12)


def test_rates_can_be_drawn_as_roc_and_det() -> None:
    (roc,) = plots.tradeoff({"g": GAUSSIAN}, form="roc").panels
    (plain,) = plots.tradeoff({"g": GAUSSIAN}).panels
    assert roc.lines["g"].y == pytest.approx(1 - np.array(plain.lines["g"].y))
    (det,) = plots.tradeoff({"g": GAUSSIAN}, form="det").panels
    x, y = (np.array(v) for v in (det.lines["g"].x, det.lines["g"].y))
    inside = np.abs(y) < 3
    assert (x + y)[inside] == pytest.approx(-0.5, abs=2e-3)  # Gaussian curves are straight there: z(α) + z(β) = -μ
    with pytest.raises(InvalidParameter, match="form"):
        plots.tradeoff(GAUSSIAN, form="doc")


def test_directions_can_be_drawn_apart() -> None:
    pair = curves.poisson(low=2, high=5)
    (panel,) = plots.tradeoff({"p": pair}, direction="apart").panels
    assert [name for name in panel.lines if name != "learns nothing"] == ["p, T(P, Q)", "p, T(Q, P)"]
    for name, direction in (("p, T(P, Q)", pair.forward), ("p, T(Q, P)", pair.backward)):
        line = panel.lines[name]
        assert np.interp(0.05, line.x, line.y) == pytest.approx(direction.beta_bounds(alpha=0.05)[0], abs=1e-9)
    with pytest.raises(InvalidParameter, match="direction"):
        plots.tradeoff(pair, direction="sideways")


# -- laws of answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pair",
    [curves.from_pmf([0.6, 0.3, 0.1], [0.3, 0.3, 0.4]), curves.poisson(low=2, high=5)],
    ids=["pmf", "poisson"],
)
def test_each_direction_of_the_loss_has_its_own_mean(pair: curves.Curve) -> None:
    """One law was drawn, that of the symmetrized pair, with a mean that neither direction has."""
    figure = plots.loss(pair)
    means = [only(panel, Level)[0].at for panel in figure.panels]
    assert means == pytest.approx([pair.forward.kl(), pair.backward.kl()], rel=1e-3)
    assert max(means) == pytest.approx(pair.kl(), rel=1e-3)
    assert pair.loss.mean > 1.02 * pair.kl()
    assert [panel.title for panel in figure.panels] == ["log dP/dQ, on P", "log dQ/dP, on Q"]
    for direction, mean in zip(("forward", "backward"), means, strict=True):
        (panel,) = plots.loss(pair, direction=direction).panels
        assert only(panel, Level)[0].at == mean
    with pytest.raises(InvalidParameter, match="direction"):
        plots.loss(pair, direction="sideways")


def test_the_note_of_a_loss_is_about_the_neighbour_that_the_output_came_from() -> None:
    """It spoke of the odds that the person is in the data; P is the neighbour without them."""
    assert "odds of the neighbour that the output came from" in plots.loss(GAUSSIAN).note


def test_two_worlds_of_laplace_noise() -> None:
    figure = plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0)
    left, right = figure.panels
    one, two = left.lines["on 0.0"], left.lines["on 1.0"]
    assert np.interp(0.0, one.x, one.y) == pytest.approx(0.5, rel=1e-3)
    assert np.interp(0.0, two.x, two.y) == pytest.approx(0.5 / math.e, rel=1e-2)
    ratio = right.lines["log-ratio"]
    assert max(map(abs, ratio.y)) <= 1 + 1e-6
    (band,) = only(right, ShadedBand)
    assert (band.low[0], band.high[0]) == (pytest.approx(-1), pytest.approx(1))


def test_the_best_test_of_two_normals_is_told() -> None:
    """α = .05 between N(0, 1) and N(1, 1): the miss rate is Φ(Φ⁻¹(.95) - 1) = .7405."""
    figure = plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0, false_alarms=0.05)
    assert "not bounded" in figure.note
    misses = float(figure.note.split("misses ")[1].split(";")[0])
    assert misses == pytest.approx(0.7405, abs=0.01)
    (level,) = only(figure.panels[1], Level)
    assert level.at == pytest.approx(0.5 - 1.645, abs=0.05)
    assert level.text == "says 1.0 below"


def test_the_log_ratio_is_that_of_the_first_value_to_the_second() -> None:
    """It was log p(x2)/p(x), the opposite of L = log p(y | x)/p(y | x′), and the axis said only "log-ratio"."""
    panel = plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=2.0), 0.0, 1.0).panels[1]
    line = panel.lines["log-ratio"]
    assert np.asarray(line.y) == pytest.approx((0.5 - np.asarray(line.x)) / 4, abs=1e-6)
    assert panel.y.label == "log p(y | 0.0) / p(y | 1.0)"


@pytest.mark.parametrize(
    ("mechanism", "x", "y", "said"),
    [
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 5.0, "reaches ±5, outside the band ±1"),
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.1, 1.1, "stays within ±ε"),
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1e-3), 0.1, 0.35, "stays within ±ε"),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1.0), 3, 5, "reaches ±2, outside the band ±1"),
        (mechanisms.Exponential(sensitivity=1, epsilon=1.0), [0, 1, 3], [1, 0, 2], "stays within ±ε"),
        (mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 5.0, "No ε at δ = 0 is promised"),
    ],
)
def test_the_note_about_the_band_is_true_of_the_drawn_pair(
    mechanism: mechanisms.Mechanism, x: object, y: object, said: str
) -> None:
    """A ratio of 5 was drawn outside a band of 1 under "never leaves the band"."""
    assert said in plots.laws(mechanism, x, y).note


@pytest.mark.parametrize("rate", [math.nan, 2, -0.5, 0.0, 1.0, "0.05", True])
def test_a_rate_of_false_alarms_is_a_probability(rate: object) -> None:
    with pytest.raises(InvalidParameter, match="false_alarms"):
        plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0, false_alarms=rate)


@pytest.mark.parametrize(
    ("mechanism", "x", "y", "misses"),
    [
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0, 1 - 0.05 * math.e),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1.0), 0, 1, 1 - 0.05 * math.e),
        # Candidate 0 tells most: its share of 5 % false alarms is 0.05/p, and that of its hits q times as much.
        (mechanisms.Exponential(sensitivity=1, epsilon=1.0), [0, 1, 3], [1, 0, 2], 0.8904784),
    ],
    ids=["laplace", "whole", "candidates"],
)
def test_the_best_test_flips_a_coin_at_its_threshold(
    mechanism: mechanisms.Mechanism, x: object, y: object, misses: float
) -> None:
    """Without the coin the picture said that nobody does better than 0.868, or 1: too good to be true."""
    note = plots.laws(mechanism, x, y, false_alarms=0.05).note
    assert float(note.split("misses ")[1].split(";")[0]) == pytest.approx(misses, abs=6e-4)


@pytest.mark.parametrize(
    ("mechanism", "x", "y", "rule"),
    [
        # P(y > s) = exp(-s)/2 = 0.05
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0, "it says 1.0 above s = 2.303."),
        (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 1.0, 0.0, "it says 0.0 below s = -1.303."),
        # "yes" has probability 1/4 on False: a fifth of it are 5 %.
        (local.RandomizedResponse(p=0.75), False, True, "with probability 0.2 where the log-ratio is -1.099."),
        # Poisson(2) against Poisson(5): N > 5 has probability 0.016564, N = 5 0.036089.
        (
            mechanisms.PoissonMechanism.linear(low=2, high=5),
            0,
            1,
            "where the log-ratio is below -1.581, and with probability 0.926 where it is -1.581.",
        ),
        # Each answer is possible on one value only.
        (mechanisms.cautionary.NameAndShame(records=1), [1], [2], "it says [2] on every answer that [2] can give."),
    ],
    ids=["laplace", "laplace, other way", "bit", "counts", "no overlap"],
)
def test_the_rule_of_the_best_test_is_told(mechanism: Any, x: object, y: object, rule: str) -> None:
    """For noise with a constant log-ratio, and for randomized response, nothing said what the test does."""
    assert plots.laws(mechanism, x, y, false_alarms=0.05).note.endswith(rule)


@pytest.mark.parametrize(
    ("mechanism", "x", "y"),
    [
        (mechanisms.Laplace(sensitivity=1, epsilon=0.5), 10, 11),
        (mechanisms.Exponential(sensitivity=1, epsilon=1.0, candidates=3), [3, 2, 5], [3, 3, 4]),
        (mechanisms.PoissonMechanism.linear(low=2, high=5, sensitivity=1, top=1), 0, 1),
    ],
    ids=["counts", "candidates", "poisson"],
)
def test_discrete_answers_stand_beside_each_other(mechanism: mechanisms.Mechanism, x: object, y: object) -> None:
    left, _ = plots.laws(mechanism, x, y).panels
    one, two = only(left, Stems)
    assert sum(one.heights) == pytest.approx(1, abs=2e-3)
    assert sum(two.heights) == pytest.approx(1, abs=2e-3)


def test_laplace_densities_of_several_scales() -> None:
    figure = plots.density(*(mechanisms.Laplace(sensitivity=1.0, scale=b) for b in (0.5, 1.0, 2.0)))
    lines = figure.panels[0].lines
    assert list(lines) == ["Laplace, scale 0.5", "Laplace, scale 1", "Laplace, scale 2"]
    assert [max(line.y) for line in lines.values()] == pytest.approx([1.0, 0.5, 0.25], rel=1e-6)


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
    line, band = panel.lines["g"], only(panel, ShadedBand)[0]
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
    # 357.2983, 311.7676 and 258.30 for 500 releases of Laplace(1)
    assert bun.y[-1] == pytest.approx(357.298301314467, rel=1e-9)
    assert best.y[-1] == pytest.approx(311.767604639711, rel=1e-9)
    assert exact.y[-1] == pytest.approx(258.30, abs=0.02)
    assert exact.y[-1] == (LAPLACE**500).epsilon_bounds(delta=1e-5)[1]


def test_advanced_composition_ends_where_its_theorem_ends(growth: Panel) -> None:
    """kε² <= 8 log(1/δ) = 92.1; the often drawn continuation is false."""
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
    with worded(InvalidParameter, parameter="curves"):
        draw()  # type: ignore[operator]
    with worded(InvalidParameter, parameter="curves"):
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


def test_the_chances_of_a_median_are_drawn_at_every_number_of_ones() -> None:
    exponential, inverse = mechanisms.BinaryMedian(epsilon=0.5), mechanisms.BinaryInverseSensitivity.median(epsilon=0.5)
    panel = plots.chances(exponential, inverse, rows=11).panels[0]
    drawn = panel.lines[repr(exponential)]
    assert drawn.x == tuple(range(12))
    assert drawn.y[8] == pytest.approx(0.7772998612, abs=1e-10)
    assert panel.lines[repr(inverse)].y[8] == pytest.approx(0.817574, abs=1e-6)
    ceiling = panel.lines["at most, at ε = 0.5"]
    assert ceiling.x == (6, 7, 8, 9, 10, 11)
    for line in (drawn, panel.lines[repr(inverse)]):
        assert all(line.y[int(s)] <= top for s, top in zip(ceiling.x, ceiling.y, strict=True))
    for wrong in ((), (mechanisms.Laplace(sensitivity=1, epsilon=1),)):
        with pytest.raises(InvalidOperation):
            plots.chances(*wrong, rows=3)


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


# -- names and errors of laws ----------------------------------------------------------------------------------------


def test_the_border_and_the_two_errors_of_the_best_test_are_drawn() -> None:
    """N(0, 1) against N(1, 1) at 5 %: s = 1.645, and the areas are α and β."""
    left = plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0, false_alarms=0.05).panels[0]
    (border,) = only(left, Level)
    assert border.axis == "x"
    assert border.at == pytest.approx(1.6449, abs=0.0005)
    alarms, missed = only(left, ShadedBand)
    assert np.trapezoid(alarms.high, alarms.x) == pytest.approx(0.05, abs=0.003)
    assert np.trapezoid(missed.high, missed.x) == pytest.approx(0.7405, abs=0.01)


@pytest.mark.parametrize(("rate", "border"), [(0.05, math.log(10)), (0.5, 0.0), (0.7, math.log(0.6))])
def test_the_best_test_is_drawn_where_the_log_ratio_is_constant(rate: float, border: float) -> None:
    """Laplace noise: beyond the two values all answers tell the same, and any 5 % of them make a best test. It drew none."""
    left = plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0, false_alarms=rate).panels[0]
    (level,) = only(left, Level)
    assert level.at == pytest.approx(border, abs=0.001)
    alarms, missed = only(left, ShadedBand)
    assert np.trapezoid(alarms.high, alarms.x) == pytest.approx(rate, abs=0.02)
    beta = curves.laplace(scale=1).beta(alpha=rate)
    assert np.trapezoid(missed.high, missed.x) == pytest.approx(beta, abs=0.02)


def test_answers_of_one_value_alone_are_told() -> None:
    """The log-ratio is infinite there, and nothing of it could be drawn or read."""
    note = plots.laws(mechanisms.cautionary.NameAndShame(records=5), [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]).note
    assert "infinite with probability 0.2 on" in note


def test_laws_of_single_values_are_named() -> None:
    """Stems had no name in the legend: one could not see which world was which."""
    left = plots.laws(mechanisms.Laplace(sensitivity=1, epsilon=0.5), 12, 11).panels[0]
    assert left.names == ("on 12", "on 11")
    drawing = plots.render(plots.laws(mechanisms.Laplace(sensitivity=1, epsilon=0.5), 12, 11))
    assert [text.get_text() for text in drawing.axes[0].get_legend().get_texts()] == ["on 12", "on 11"]


@pytest.mark.parametrize(
    "figure",
    [
        plots.laws(mechanisms.BinaryMedian(epsilon=0.5), [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]),
        plots.laws(mechanisms.PoissonMechanism.linear(low=2, high=5), 0, 1),
        plots.density(mechanisms.PoissonMechanism.linear(low=2, high=5), value=0),
        plots.density(mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1.0)),
    ],
)
def test_all_stems_are_inside_the_axis_and_the_axis_is_no_longer_than_they_need(figure: plots.Figure) -> None:
    panel = figure.panels[0]
    stems = only(panel, Stems)
    ends = [x for each in stems for x in each.x]
    assert panel.x.low + 0.2 < min(ends)
    assert max(ends) < panel.x.high - 0.2
    assert panel.x.high - panel.x.low < 32
    assert panel.x.whole
    assert len(panel.names) == len(stems)


def test_a_mechanism_in_place_of_its_curve_is_refused_with_what_to_write() -> None:
    with worded(InvalidOperation):
        plots.tradeoff(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0))  # type: ignore[arg-type]
