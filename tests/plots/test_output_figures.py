"""The laws of answers and of reports in pictures, against formulas by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable import local, mechanisms, plots, units
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.plots.figure_spec import Stems
from tests.plots.test_curve_figures import only
from tests.wording import worded

ROW, REPLACED = units.Unit.row(), units.Unit.replaced_row()


@pytest.mark.parametrize(
    ("protocol", "x", "y", "chances"),
    [
        (local.RandomizedResponse(p=0.75), True, False, [0.25, 0.75]),
        (local.RandomizedResponse(epsilon=40), 1, 0, [math.exp(-40) / (1 + math.exp(-40)), 1 / (1 + math.exp(-40))]),
        (local.NuRandomizedResponse(nu=0.5), True, False, [0.25, 0.75]),
        (local.TwoCoinSurvey(truth=0.5, yes=0.25), True, False, [0.375, 0.625]),
        (local.WarnerSurvey(p=0.25), True, False, [0.75, 0.25]),
        (local.KaryRandomizedResponse(categories=4, odds=3), 0, 2, [0.5, 1 / 6, 1 / 6, 1 / 6]),
    ],
)
def test_the_laws_of_local_protocols_are_drawn(
    protocol: local.Protocol, x: object, y: object, chances: list[float]
) -> None:
    """They were refused without a remedy. The log-ratio of the pair reaches the ε of the exact curve."""
    figure = plots.laws(protocol, x, y)
    one, two = only(figure.panels[0], Stems)
    assert one.heights == pytest.approx(chances, rel=1e-9)
    assert figure.panels[0].x.low < min(one.x) < max(two.x) < figure.panels[0].x.high
    (ratio,) = only(figure.panels[1], Stems)
    assert max(map(abs, ratio.heights)) == pytest.approx(protocol.curve.epsilon(delta=0), rel=1e-9)
    assert "stays within ±ε" in figure.note
    (alone,) = only(plots.density(protocol, value=x).panels[0], Stems)
    assert alone.heights == one.heights


@pytest.mark.parametrize(
    ("mechanism", "x", "y", "centres"),
    [
        (mechanisms.Sum(low=0, high=20, unit=ROW, epsilon=0.5), [3, 1, 250], [3, 1], (24, 4)),
        (mechanisms.Sum(low=0.0, high=2.5, unit=ROW, epsilon=0.5), [1.25, 9.0], [1.25], (3.75, 1.25)),
        (mechanisms.Mean(low=0, high=10, unit=REPLACED, rows=4, epsilon=1), [1, 2, 3, 4], [1, 2, 3, 40], (2.5, 4.0)),
        (mechanisms.Histogram(categories=["a"], unit=ROW, epsilon=1.0), list("aab"), list("ab"), (2, 1)),
        (mechanisms.Laplace(sensitivity=1, epsilon=1).on(len), "abc", "ab", (3, 2)),
    ],
    ids=["sum", "fractions", "mean", "histogram", "asked"],
)
def test_the_laws_of_statistics_are_drawn(
    mechanism: mechanisms.Mechanism, x: object, y: object, centres: tuple[float, float]
) -> None:
    assert (mechanism.law(x).mean, mechanism.law(y).mean) == centres
    figure = plots.laws(mechanism, x, y)
    assert "stays within ±ε" in figure.note
    noisy = mechanism.error(confidence=0.95)
    inside = mechanism.law(x).cdf(centres[0] + noisy) - mechanism.law(x).cdf(centres[0] - noisy)
    assert 0.95 - 1e-6 <= inside < 0.99


def test_the_density_of_the_piecewise_exponential_mechanism() -> None:
    """∝ e^(ε u/2Δ) on [0, 2), [2, 5), [5, 10): by hand."""
    mechanism = mechanisms.PiecewiseExponential(bounds=(0, 10), sensitivity=1, epsilon=1.0)
    law = mechanism.law(([0, 2, 5, 10], [-1, 0, -3]))
    weights = [2 * math.exp(-0.5), 3.0, 5 * math.exp(-1.5)]
    assert law.pdf([1.0, 2.0, 4.9, 9.0, 10.0, -1.0]) == pytest.approx(
        [weights[0] / 2 / sum(weights), *[1 / sum(weights)] * 2, weights[2] / 5 / sum(weights), 0, 0]
    )
    assert law.cdf(5.0) == pytest.approx((weights[0] + weights[1]) / sum(weights))
    assert law.mean == pytest.approx((weights[0] * 1 + weights[1] * 3.5 + weights[2] * 7.5) / sum(weights))
    points = np.linspace(0, 10, 10**6, endpoint=False) + 5e-6
    assert law.variance == pytest.approx(float(np.mean((points - law.mean) ** 2 * law.pdf(points))) * 10, rel=1e-5)
    figure = plots.laws(mechanism, ([0, 2, 5, 10], [-1, 0, -3]), ([0, 2, 5, 10], [0, -1, -3]))
    assert "stays within ±ε" in figure.note
    assert max(figure.panels[0].lines[next(iter(figure.panels[0].lines))].y) == pytest.approx(1 / sum(weights))
    coarse = mechanisms.PiecewiseExponential(bounds=(0, 10), sensitivity=1, epsilon=1.0, spacing=4)
    rough = coarse.law(([0, 2, 5, 10], [-1, 0, -3]))
    assert rough.pdf([0, 4, 8]) == pytest.approx(
        np.array([weights[0] + 2, 1 + 3 * math.exp(-1.5), 2 * math.exp(-1.5)]) / sum(weights)
    )


def test_the_masses_of_a_median_on_its_grid() -> None:
    median = mechanisms.Median(bounds=(0, 4), spacing=1, epsilon=1, unit=REPLACED)
    ranks = [1.5, 0.5, 0, 0.5, 1.5]  # of the rows 1, 2, 3: how far each point is from the middle
    weights = np.exp(-np.array(ranks) / 2)
    assert median.law([1, 2, 3]).masses == pytest.approx(weights / weights.sum())
    assert "stays within ±ε" in plots.laws(median, [1, 2, 3], [1, 2, 0]).note


def test_text_is_no_answer_of_a_law() -> None:
    law = mechanisms.Laplace(sensitivity=1.0, scale=2.0).law(0)
    for read in (law.cdf, law.pdf, mechanisms.PoissonMechanism.linear(low=2, high=5, sensitivity=1, top=1).law(0).pdf):
        with pytest.raises(InvalidParameter, match="answer"):
            read("1")


def test_a_local_protocol_is_no_median() -> None:
    with worded(InvalidOperation):
        plots.chances(local.RandomizedResponse(p=0.75), rows=3)


@pytest.mark.parametrize(
    ("protocol", "x", "y"),
    [
        (local.DuchiMean(low=0, high=10, epsilon=1.0), 0.0, 10.0),
        (local.SymmetricUnary(categories=3, epsilon=1.0), 0, 2),
        (local.OptimizedUnary(categories=4, epsilon=1.0), 0, 1),
        (local.Rappor(categories=3, f=0.5, p=0.5, q=0.75), 0, 1),
        (local.SubsetSelection(categories=5, epsilon=1.0, size=2), 1, 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_protocols_with_few_reports_are_drawn(protocol: local.Protocol, x: object, y: object) -> None:
    """They were said to have too many reports: two, in the case of DuchiMean. The audit's laws are its own."""
    from deniable import audit, curves

    one, two = only(plots.laws(protocol, x, y).panels[0], Stems)
    assert sum(one.heights) == pytest.approx(1)
    true, found = audit.exact(protocol, neighbours=(x, y)), curves.from_pmf(one.heights, two.heights)
    for epsilon in (0.0, 0.3):
        assert found.delta(epsilon=epsilon) == pytest.approx(true.delta(epsilon=epsilon), rel=1e-7, abs=1e-12)


def test_a_memoised_bit_and_a_piecewise_report_are_drawn() -> None:
    memoised = local.MemoisedMean(low=0, high=1, epsilon=1.0, points=4, flip=0.25)
    kept = math.e / (1 + math.e)
    assert memoised.probabilities(1.0)[1] == pytest.approx(0.75 * kept + 0.25 * (1 - kept))
    assert memoised.probabilities(0.5) == pytest.approx({0: 0.5, 1: 0.5})
    piecewise = local.PiecewiseMean(low=0, high=1, epsilon=1.0)
    for answer in (0.0, 0.3, 1.0):
        edges, masses = piecewise.pieces(answer)
        assert masses.sum() == pytest.approx(1)
        assert masses @ (edges[1:] + edges[:-1]) / 2 == pytest.approx(answer, abs=1e-3)
    (ratio,) = plots.laws(piecewise, 0.0, 1.0).panels[1].lines.values()
    assert max(map(abs, ratio.y)) == pytest.approx(1, abs=1e-3)


def test_of_several_numbers_the_one_is_drawn_that_differs() -> None:
    """A histogram of two bins had no picture, though one person moves one of them."""
    counts = mechanisms.Histogram(categories=["a", "b"], unit=ROW, epsilon=1.0)
    figure = plots.laws(counts, ["a"], ["a", "b"])
    assert "Drawn: the count of b; all else has the same law" in figure.note
    vector = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0, dimension=3)
    assert "Drawn: number 2" in plots.laws(vector, [0.0, 0.0, 5.0], [0.0, 1.0, 5.0]).note
    assert "each privacy loss" in plots.laws(vector, [0.0, 0.0, 5.0], [0.5, 0.5, 5.0]).note
    with worded(InvalidParameter, parameter="x"):
        plots.laws(vector, [0.0, 0.0], [0.5, 0.5])


def test_an_answer_that_one_world_has_alone_keeps_its_place_in_both() -> None:
    """Answers that are no numbers stand at 0, 1, 2: with another one in front, bars of two answers were compared."""
    alarm = mechanisms.AboveThreshold(threshold=2, sensitivity=1, epsilon=1)
    figure = plots.laws(alarm, [1, 2], [1, 2, 3])
    assert figure.panels[0].x.names == ("0", "1", "none", "2")
    one, two = only(figure.panels[0], Stems)
    assert one.heights[3] == 0 < two.heights[3]


def test_mechanisms_can_be_named_as_curves_can() -> None:
    """A student read "BinaryInverseSensitivity(<2 answers>, epsilon=0.5)" in a legend."""
    medians = {"a": mechanisms.BinaryMedian(epsilon=0.5), "b": mechanisms.BinaryInverseSensitivity.median(epsilon=0.5)}
    assert list(plots.chances(medians, rows=3).panels[0].lines) == ["a", "b", "at most, at ε = 0.5"]
    noisy = plots.density({"little": mechanisms.Laplace(sensitivity=1.0, scale=1.0)}, value=0.0)
    assert list(noisy.panels[0].lines) == ["little"]


def test_densities_of_several_scales_all_reach_the_ends_of_the_axis() -> None:
    """The narrow ones ended in the middle of the picture, above 0."""
    scales = (1.0, 4.0)
    (panel,) = plots.density(*(mechanisms.Laplace(sensitivity=1.0, scale=b) for b in scales)).panels
    for scale, line in zip(scales, panel.lines.values(), strict=True):
        assert (line.x[0], line.x[-1]) == (panel.x.low, panel.x.high)
        assert line.y == pytest.approx(np.exp(-np.abs(line.x) / scale) / (2 * scale), rel=1e-9)
