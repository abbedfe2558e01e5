"""Properties of random products: bounds in order, refinement stays inside, repetition is multiplication."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves.composition import law_product
from deniable.curves.composition.contour_panel import ContourPanel
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.meaning.curve_readings import product_of
from deniable.errors import NotCertifiable


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> object:
    # The public doors read quietly; these tests look behind them.
    with np.errstate(all="ignore"):
        yield


def patient(examples: int) -> settings:
    """Every example is a composition or two: few of them, the same ones every time."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )


def masses(draw: st.DrawFn, size: int) -> list[float]:
    weights = [draw(st.integers(1, 50)) for _ in range(size)]
    return [w / sum(weights) for w in weights]


@st.composite
def atoms(draw: st.DrawFn) -> curves.Curve:
    kind = draw(st.integers(0, 7))
    size = draw(st.sampled_from([0.05, 0.3, 1.0, 2.5]))
    if kind == 0:
        return curves.gaussian(mu=size)
    if kind == 1:
        return curves.laplace(scale=1 / size)
    if kind == 2:
        return curves.randomized_response(epsilon=size, categories=draw(st.integers(2, 4)))
    if kind == 3:
        return curves.gaussian(mu=size).sampled(rate=draw(st.sampled_from([0.001, 0.1, 0.6])))
    if kind == 4:
        return curves.laplace(scale=1 / size).sampled(rate=draw(st.sampled_from([0.01, 0.3])))
    if kind == 5:
        outcomes = draw(st.integers(2, 4))
        return curves.from_pmf(masses(draw, outcomes), masses(draw, outcomes), tied=draw(st.booleans()))
    if kind == 6:
        return curves.poisson(low=3 / size, high=3 / size + 1, tied=draw(st.booleans()))
    return curves.exponential(epsilon=size)


@st.composite
def products(draw: st.DrawFn) -> curves.Curve:
    result = curves.identity()
    for _ in range(draw(st.integers(1, 2))):
        result = result * draw(atoms()) ** draw(st.sampled_from([1, 2, 7, 30]))
    return result


EPSILON = np.array([-1.0, 0.0, 0.5, 2.0])


@patient(8)
@given(products())
def test_bounds_are_in_order_and_fall(curve: curves.Curve) -> None:
    low, high = curve.delta_bounds(epsilon=EPSILON)
    assert np.all((low >= 0) & (low <= high) & (high <= 1))
    assert np.all(low[1:] <= high[:-1])
    for direction, other in ((curve.forward, curve.backward), (curve.backward, curve.forward)):
        a, b = direction.delta_bounds(epsilon=EPSILON)
        # E_x(P‖Q) = 1 - x + x E_1/x(Q‖P).
        c, d = other.delta_bounds(epsilon=-EPSILON)
        x = np.exp(EPSILON)
        assert np.all(a <= 1 - x + x * d + 1e-9 * (1 + x))
        assert np.all(b >= 1 - x + x * c - 1e-9 * (1 + x))


@patient(8)
@given(products(), st.sampled_from([1e-2, 1e-6, 1e-12]))
def test_raw_bounds_do_not_cross(curve: curves.Curve, delta: float) -> None:
    """Before they are made to agree for display, the lower bound of ε stays below the upper, in each direction."""
    for product in product_of(curve):
        low, high = product._epsilon_bracket(delta) if product.needs_panels else product.epsilon_bounds(delta)
        assert low <= high
        positive = EPSILON[EPSILON >= 0]
        below, above = product._by_panels(positive, 0.0) if product.needs_panels else (0.0, 1.0)
        assert np.all(below <= above)
        assert np.all(product.delta(positive, "lower") <= product.delta(positive, "upper"))


@pytest.mark.slow
@patient(6)
@given(products(), st.sampled_from([1e-2, 1e-6, 1e-15]))
def test_refinement_stays_inside_the_old_bracket(curve: curves.Curve, delta: float) -> None:
    """A smaller WIDTH gives another bracket of the same truth: the two overlap, and the new one is not wider."""
    old = curve.epsilon_bounds(delta=delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(law_product, "WIDTH", law_product.WIDTH / 10)
        forward, backward = product_of(curve)
        fresh = [law_product.Product(p.upper, p.lower, p.renyi) for p in (forward, backward)]
        brackets = [p.epsilon_bounds(delta) for p in fresh]
    new = max(b[0] for b in brackets), max(b[1] for b in brackets)
    assert new[0] <= old[1]
    assert old[0] <= new[1]
    if math.isfinite(old[1]):
        assert new[1] <= old[1] * (1 + 1e-4) + 1e-5


@patient(8)
@given(atoms(), st.integers(2, 5), st.sampled_from([0.0, 0.5, 2.0]))
def test_powers_are_repeated_products(atom: curves.Curve, uses: int, epsilon: float) -> None:
    """m ** k is m * m * ..., as an object and, with one use more or less, as a guarantee."""
    repeated = curves.identity()
    for _ in range(uses):
        repeated = repeated * atom
    assert repeated == atom**uses
    low, high = (atom**uses).delta_bounds(epsilon=epsilon)
    fewer = (atom ** (uses - 1)).delta_bounds(epsilon=epsilon)
    assert fewer[0] <= high
    assert low <= 1


@pytest.mark.slow  # test_algebra runs every atom twice
@patient(6)
@given(products(), atoms())
def test_more_mechanisms_never_leak_less(curve: curves.Curve, atom: curves.Curve) -> None:
    more = (curve * atom).delta_bounds(epsilon=EPSILON)[1]
    assert np.all(more >= curve.delta_bounds(epsilon=EPSILON)[0] * (1 - 1e-12))


@patient(6)
@given(atoms(), st.sampled_from([0.01, 0.3]))
def test_sampling_never_leaks_more(curve: curves.Curve, rate: float) -> None:
    thinned = curve.sampled(rate=rate).delta_bounds(epsilon=EPSILON)[0]
    assert np.all(thinned <= curve.delta_bounds(epsilon=EPSILON)[1] * (1 + 1e-12))


def test_negative_control_a_bound_that_is_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With upper panels made a tenth smaller, lower bounds cross upper bounds, and nothing is certified."""
    honest = DeltaPanel.delta

    def shrunk(self: DeltaPanel, epsilon: np.ndarray) -> np.ndarray:
        value = honest(self, epsilon)
        return value * 0.9 if self.side == "upper" else value

    exact = ContourPanel.bounds
    monkeypatch.setattr(DeltaPanel, "delta", shrunk)
    monkeypatch.setattr(ContourPanel, "bounds", lambda self, at: (exact(self, at)[0], exact(self, at)[1] * 0.9))
    factors = product_of(curves.gaussian(mu=0.3) ** 7 * curves.laplace(scale=3) ** 11)[0]
    product = law_product.Product(factors.upper, factors.lower)
    epsilon = np.array([0.2, 1.0, 3.0])
    for side in ("lower", "upper"):
        with pytest.raises(NotCertifiable, match="contradict"):
            product.delta(epsilon, side)
    with pytest.raises(NotCertifiable, match="contradict"):
        product.epsilon_bounds(1e-6)
    curve = curves.gaussian(mu=0.3) ** 7 * curves.laplace(scale=3) ** 11
    assert not curves.gaussian(mu=0.1) <= curve
    for read in (
        lambda: curve.epsilon(delta=1e-6),
        lambda: curve.delta(epsilon=1.0),
        lambda: curve.beta(alpha=0.1),
        lambda: curve.equal_error_rate(),
        lambda: curve.gdp(delta=1e-6),
        lambda: curve.forward.delta_bounds(epsilon=1.0),
        lambda: curve.posterior(prior=0.5, delta=1e-6),
        lambda: curve.symmetrized().sampled(rate=0.5).delta(epsilon=0.5),
    ):
        with pytest.raises(NotCertifiable, match="contradict"):
            read()
