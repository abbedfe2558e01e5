"""Readings at the ends of floating point: tiny and huge δ, ε and counts. A number on the safe side, or an error of ours."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest

from deniable import curves
from deniable.curves import Curve
from deniable.curves.curve import MOST_USES
from deniable.errors import DeniableError

DELTAS = (0.0, 5e-324, 1e-300, 1e-200, 1e-100, 1 - 1e-16, 1.0)
ENDS = (-math.inf, -1e300, -800.0, 0.0, 1e-300, 800.0, 1e300, math.inf)

CURVES: dict[str, Curve] = {
    "gaussian": curves.gaussian(sigma=1),
    "gaussian, tiny": curves.gaussian(mu=1e-150),
    "gaussian, huge": curves.gaussian(mu=1e150),
    "gaussian, often": curves.gaussian(sigma=1) ** MOST_USES,
    "laplace, often": curves.laplace(scale=1) ** MOST_USES,
    "laplace, small, often": curves.laplace(scale=1e8) ** MOST_USES,
    "sampled": curves.gaussian(sigma=1).sampled(rate=0.01),
    "sampled, many": curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000,
    "sampled, often": curves.gaussian(sigma=1).sampled(rate=0.01) ** MOST_USES,
    "rare, often": curves.gaussian(sigma=1).sampled(rate=1e-9) ** MOST_USES,
    "discrete": curves.discrete_gaussian(sigma=3) ** 100,
    "approximate, often": curves.approximate(epsilon=1, delta=1e-6) ** MOST_USES,
    "zcdp, often": curves.zcdp(rho=0.1) ** MOST_USES,
    "fixed size, often": curves.gaussian(sigma=1).sampled_without_replacement(size=3, population=100) ** MOST_USES,
    "group": curves.gaussian(sigma=1).sampled(rate=0.01).group(size=5),
}

DEAR = {"sampled, many"}
"""Read through panels: a second each, so only what went wrong is read."""


def readings(curve: Curve) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    for d in DELTAS:
        found[f"epsilon at {d}"] = lambda d=d: curve.epsilon_bounds(delta=d)
    for p in (0.0, 5e-324, 0.5, 1.0):
        found[f"beta at {p}"] = lambda p=p: curve.beta_bounds(alpha=p)
        found[f"tpr at {p}"] = lambda p=p: curve.tpr(fpr=p)
        found[f"guess at {p}"] = lambda p=p: curve.guess(prior=p)
        for d in (0.0, 1e-300, 1e-6, 1.0):
            found[f"posterior at {p}, {d}"] = lambda p=p, d=d: curve.posterior(prior=p, delta=d)
    for e in ENDS:
        found[f"delta at {e}"] = lambda e=e: curve.delta_bounds(epsilon=e)
    for order in (1.0, 1 + 1e-12, 1e9, math.inf):
        found[f"renyi at {order}"] = lambda order=order: curve.renyi(order=order)
    for d in (0.0, 1e-300, 1.0):
        found[f"gdp at {d}"] = lambda d=d: curve.gdp(delta=d)
    return found | {
        "zcdp": curve.zcdp,
        "equal error rate": curve.equal_error_rate,
        "advantage": curve.advantage,
        "kl": curve.kl,
        "kappa2": curve.kappa2,
        "kappa3": curve.kappa3,
        "loss": lambda: curve.loss.mean,
        "clt": lambda: curve.clt().mu,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVES)
def test_the_ends_of_floating_point_give_numbers_or_our_errors(name: str) -> None:
    """Readings below δ = 1e-100 and of huge counts raised ValueError and OverflowError, or were not numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for what, read in readings(CURVES[name]).items():
            if name in DEAR and not what.startswith(("epsilon", "delta", "posterior at 0.5", "zcdp")):
                continue
            try:
                value = np.array(read(), dtype=float)
            except DeniableError:
                continue
            assert not np.any(np.isnan(value)), what
            if value.ndim == 1:
                assert value[0] <= value[1], what


@pytest.mark.parametrize("delta", [1e-100, 1e-200, 1e-300, 5e-324])
def test_a_gaussian_has_a_finite_epsilon_at_every_delta(delta: float) -> None:
    """δ = 1e-300 gave ∞, because a slack of 1e-300 covers underflow. Moments do not underflow."""
    with mp.workdps(50):

        def exact(epsilon: float) -> mp.mpf:
            e = mp.mpf(epsilon)
            return mp.ncdf(mp.mpf(1) / 2 - e) - mp.exp(e) * mp.ncdf(-mp.mpf(1) / 2 - e)

        low, high = curves.gaussian(sigma=1).epsilon_bounds(delta=delta)
        assert exact(high) <= mp.mpf(delta)
        assert exact(high * 0.97) > mp.mpf(delta)
        assert exact(low) >= mp.mpf(delta)


def test_a_long_training_has_a_finite_epsilon_at_a_tiny_delta() -> None:
    curve = curves.gaussian(sigma=1).sampled(rate=0.01) ** 1000
    found = [curve.epsilon(delta=d) for d in (1e-100, 1e-200, 1e-300)]
    assert math.isfinite(found[-1])
    assert found == sorted(found)
    # Never more than a training in which everyone always takes part.
    assert found[-1] <= (curves.gaussian(sigma=1) ** 1000).epsilon(delta=1e-300)


def test_who_believes_nothing_learns_nothing_from_a_loss_without_bound() -> None:
    """0 / (0 + e^-ε) was 0/0 where e^-ε is no number."""
    loud = curves.laplace(scale=1e-4)
    assert loud.posterior(prior=0.0, delta=0.0) == 0.0
    assert loud.posterior(prior=1e-300, delta=0.0) == 1.0
    assert list(loud.posterior(prior=[0.0, 0.5, 1.0])) == [0.0, 1.0, 1.0]


def test_a_lower_panel_that_overflows_says_nothing() -> None:
    """Infinity was read as the bound 1, on both sides."""
    from deniable.curves.composition.delta_panel import DeltaPanel

    for side, trivial in (("upper", 1.0), ("lower", 0.0)):
        panel = DeltaPanel(
            side=side,  # type: ignore[arg-type]
            theta=1.0,
            centre=0.0,
            origin=0.0,
            start=-1.0,
            step=0.5,
            stride=0.5,
            spread=1.0,
            length=4,
            log_scale=800.0,
            heads=np.array([4.0, 3.0, 2.0, 1.0, 0.0]),
            seconds=np.zeros(5),
            noise=0.0,
            alias=0.0,
            left_out=0.0,
            right_out=0.0,
            relative=0.0,
            infinity=0.0,
        )
        with np.errstate(all="ignore"):
            assert panel.delta(np.array([-0.25]))[0] == trivial


@pytest.mark.parametrize("count", [1, 1000])
def test_nothing_has_to_be_promised_up_to_delta_one(count):
    for curve in (
        curves.laplace(scale=1),
        curves.discrete_gaussian(sigma=1),
        curves.poisson(low=2, high=5),
        curves.gaussian(sigma=1),
    ):
        assert (curve**count).epsilon_bounds(delta=1.0) == (0.0, 0.0)


def _rarely_drawn(sigma: float, rate: float, delta: mp.mpf) -> mp.mpf:
    """ε(δ) of a discrete Gaussian of one rare sample, by the sum over all outcomes that matter, in 60 digits."""
    with mp.workdps(60):
        masses = [mp.exp(-(mp.mpf(y) ** 2) / (2 * mp.mpf(sigma) ** 2)) for y in range(-400, 402)]
        total = mp.fsum(masses)
        pairs = [(mp.mpf(0) if i == 0 else masses[i - 1] / total, masses[i] / total) for i in range(len(masses))]

        def above(epsilon: mp.mpf) -> mp.mpf:
            return mp.fsum(max((1 - rate) * q + rate * p - mp.exp(epsilon) * q, mp.mpf(0)) for p, q in pairs)

        low, high = mp.mpf(0), mp.mpf(100)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if above(middle) > delta else (low, middle)
        return high


@pytest.mark.parametrize("delta", [1e-95, 1.13e-199, 1e-300])
def test_a_sampled_discrete_gaussian_has_a_finite_epsilon_below_the_cut_of_its_tails(delta: float) -> None:
    one = curves.discrete_gaussian(sigma=2.582).sampled(rate=9.88e-5)
    exact = float(_rarely_drawn(2.582, 9.88e-5, mp.mpf(delta)))
    found = one.epsilon(delta=delta)
    # Moments alone are not sharp here, but a person who rarely takes part is safer than one who always does.
    assert exact <= found < curves.discrete_gaussian(sigma=2.582).epsilon(delta=delta) / 2


@pytest.mark.slow
def test_many_uses_cost_little_more_than_one_below_the_cut() -> None:
    one = curves.discrete_gaussian(sigma=2.582).sampled(rate=9.88e-5)
    found = one.epsilon(delta=1.13e-199)
    assert found * (1 - 1e-9) <= (one**907).epsilon(delta=1.13e-199) <= 1.1 * found


# Rates of a tenth: rarer samples take the same way below the cut, on lattices that are ten times as long.
MADE_FROM_CUT_LAWS: dict[str, Curve] = {
    "sampled, rounded": curves.rounded_gaussian(sigma=1).sampled(rate=0.1) ** 3,
    "sampled, poisson": curves.poisson(low=20, high=21, tied=True).sampled(rate=0.1),
    "sampled, bins": curves.quantized(curves.gaussian(sigma=1), width=2).sampled(rate=0.1) ** 3,
    "sampled, bins of the loss": curves.quantized(curves.discrete_gaussian(sigma=3), edges=[-0.5, 0.0, 0.5]).sampled(
        rate=1e-3
    ),
    "sampled, product": (curves.gaussian(sigma=1) * curves.laplace(scale=1)).sampled(rate=0.1),
    "sampled twice": curves.discrete_gaussian(sigma=1).sampled(rate=0.3).sampled(rate=0.3),
    "fixed size": curves.discrete_gaussian(sigma=3).sampled_without_replacement(size=3, population=3000) ** 20,
    "mixture": curves.mixture([0.5, 0.5], [curves.discrete_gaussian(sigma=3), curves.gaussian(sigma=3)]) ** 3,
    "group": curves.poisson(low=20, high=21, tied=True).group(size=2) ** 3,
    "shuffled": curves.pure(epsilon=1).shuffled(people=1000) ** 2,
    "reversed": curves.discrete_gaussian(sigma=1).sampled(rate=0.1).reversed() ** 3,
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "sampled, product" else name for name in MADE_FROM_CUT_LAWS],
)
def test_what_is_made_from_cut_laws_inherits_a_finite_epsilon_of_its_parts(name: str) -> None:
    low, high = MADE_FROM_CUT_LAWS[name].epsilon_bounds(delta=1e-199)
    assert low <= high < 150
    # The far tail is one large loss of one use: at least what a larger δ says.
    assert high >= MADE_FROM_CUT_LAWS[name].epsilon_bounds(delta=1e-20)[0]


def test_a_lower_bound_counts_no_loss_as_infinite_that_a_cut_made() -> None:
    binned = curves.quantized(curves.discrete_gaussian(sigma=3), edges=[-0.5, 0.0, 0.5])
    assert binned.epsilon_bounds(delta=1e-199)[0] < 20
    assert binned.delta_bounds(epsilon=700.0)[0] == 0


@pytest.mark.slow
def test_a_rare_sample_needs_no_window_of_a_million_deviations() -> None:
    # The window was bounded by exponents that the rare large loss makes explode: it was so wide that the step had to
    # grow five hundredfold, one doubling and one lattice law of millions of points after the other.
    curve = curves.discrete_gaussian(sigma=2.582).sampled(rate=9.88e-5) ** 907
    low, high = curve.epsilon_bounds(delta=1e-6)
    assert low <= high <= 0.0035
    assert high - low <= 0.02 * high
