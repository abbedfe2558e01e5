"""The algebra of curves, for every atom: powers, products, identity, order, derived curves, scalars and arrays."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy import special

from deniable import curves
from deniable.curves import Curve
from deniable.errors import DeniableError, InvalidOperation

GAUSS = curves.gaussian(sigma=1.5)
LAPLACE = curves.laplace(scale=1.25)
COINS = curves.from_pmf([0.6, 0.3, 0.1], [0.3, 0.3, 0.4])


def normal_cdf(shift: float):
    return lambda y: special.ndtr(np.asarray(y) - shift)


def normal_density(shift: float):
    return lambda y: np.exp(-0.5 * (y - shift) ** 2) / math.sqrt(2 * math.pi)


ATOMS: dict[str, Curve] = {
    "gaussian": GAUSS,
    "laplace": LAPLACE,
    "discrete_laplace": curves.discrete_laplace(scale=1.5, sensitivity=2),
    "discrete_gaussian": curves.discrete_gaussian(sigma=1.5),
    "rounded_gaussian": curves.rounded_gaussian(sigma=1.5),
    "skellam": curves.skellam(variance=2.5),
    "randomized_response": curves.randomized_response(epsilon=0.8, categories=4),
    "approximate": curves.approximate(epsilon=0.7, delta=0.01),
    "exponential": curves.exponential(epsilon=1.2),
    "poisson": curves.poisson(low=2, high=3),
    "poisson tied": curves.poisson(low=2, high=3, tied=True),
    "zcdp": curves.zcdp(rho=0.2),
    "renyi": curves.renyi(order=3, epsilon=0.3),
    "sampled": GAUSS.sampled(rate=0.3),
    "sampled laplace": LAPLACE.sampled(rate=0.3),
    "sampled_without_replacement": LAPLACE.sampled_without_replacement(size=2, population=10),
    "group": COINS.group(size=2),
    "worst_of": curves.worst_of(GAUSS, curves.pure(epsilon=0.5)),
    "best_of_poisson_repeats": curves.best_of_poisson_repeats(LAPLACE, mean=2),
    "best_of_repeats": curves.best_of_repeats(LAPLACE, shape=1.0, gamma=0.25),
    "mixture": curves.mixture([0.25, 0.75], [GAUSS, LAPLACE]),
    "hidden_shifts": curves.hidden_mixture([0.5, 0.3, 0.2], [curves.identity(), GAUSS, GAUSS**2]),
    "symmetrized": COINS.symmetrized(),
    "reversed": curves.from_pmf([0.6, 0.3, 0.1], [0.3, 0.3, 0.4], tied=True).reversed(),
    "quantized_gaussian": curves.quantized(GAUSS, width=0.75),
    "quantized_loss": curves.quantized(LAPLACE, edges=[-0.5, 0.0, 0.5]),
    "merton": curves.merton(variance=0.3, rate=0.5, mean=0.1, spread=0.3),
    "normal_inverse_gaussian": curves.normal_inverse_gaussian(alpha=3, beta=-0.5, size=0.5),
    "from_kernel": curves.from_kernel([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]], neighbours=[(0, 1), (1, 2)]),
    "from_pmf": COINS,
    "from_pmf infinite": curves.from_pmf([0.6, 0.4, 0.0], [0.5, 0.4, 0.1]),
    "from_cells": curves.from_density(normal_density(0.7), normal_density(0.0), support=(-math.inf, math.inf)),
    "from_cells by cdf": curves.from_cdf(normal_cdf(0.7), normal_cdf(0.0), points=np.linspace(-9, 10, 2001).tolist()),
    "tradeoff": curves.tradeoff(lambda a: (1 - a) ** 2),
    "allocated": GAUSS.allocated(steps=4),
    "shuffled": curves.pure(epsilon=1.0).shuffled(people=50),
    "binomial": curves.binomial(coins=40),
    "generalized_gaussian": curves.generalized_gaussian(scale=2, power=1.5),
    "sampled_replaced": GAUSS.sampled(rate=0.3, replaced=curves.gaussian(sigma=0.75)),
}
EPSILON = np.array([-1.7, -0.6, 0.0, 0.4, 1.1, 2.3])


SLOW = "normal_inverse_gaussian"
"""Seconds for a reading; merton takes the same way through Fourier's formula."""


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow) if name == SLOW else name for name in ATOMS],
    ids=[name.replace(" ", "-") for name in ATOMS],
)
def atom(request: pytest.FixtureRequest) -> Curve:
    return ATOMS[request.param]


def test_every_atom_class_is_here() -> None:
    from deniable.curves.curve_records import atom_classes

    used = {a.name for curve in ATOMS.values() for a, _ in curve.factors}
    assert used == set(atom_classes())


# -- powers and products ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_power_is_a_product(atom: Curve, count: int) -> None:
    product = curves.identity()
    for _ in range(count):
        product = product * atom
    assert product == atom**count
    assert hash(product) == hash(atom**count)
    assert curves.product([atom] * count) == product
    assert product.to_dict() == (atom**count).to_dict()


def convolved(high: np.ndarray, step: float, start: float, count: int, epsilons: tuple[float, ...]) -> list[float]:
    """δ of a law run `count` times, by plain convolution of the masses that join its profile by straight lines (no FFT)."""
    growth = math.expm1(step)
    survival = np.append(high[:-1] + (high[:-1] - high[1:]) / growth, high[-1])
    survival = np.clip(np.maximum.accumulate(survival[::-1])[::-1], 0.0, 1.0)
    masses = np.concatenate(([1 - survival[0]], survival[:-1] - survival[1:]))
    infinity = 1 - (1 - survival[-1]) ** count
    total = masses
    for _ in range(count - 1):
        total = np.convolve(total, masses)
    losses = count * start + step * np.arange(len(total))
    shares = (np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0) for epsilon in epsilons)
    return [float(np.sum(total * share) + infinity) for share in shares]


def single_use_profile(curve: Curve, way: str, points: np.ndarray) -> np.ndarray:
    """What one use contributes to a product: its direction if it is tied, the worse direction otherwise."""
    ((one, _),) = curve.factors
    if one.tied:
        return getattr(curve, way).delta_bounds(epsilon=points)[1]
    return curve.delta(epsilon=points)


DOUBT = {"allocated": 3e-7, "shuffled": 3e-10, "binomial": 1e-10}
"""At least twice the relative error of the masses of these laws (1.4e-7, 1e-10, 4e-11), which all laws made of them bear."""

RENYI_ONLY = {"best_of_poisson_repeats", "best_of_repeats", "zcdp", "renyi"}
"""Promises that no pair of distributions attains: their two bounds do not meet."""


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_powers_agree_with_plain_convolution(atom: Curve, way: str, count: int) -> None:
    """Independent answer: connect the dots of the single profile and convolve directly."""
    ((one, _),) = atom.factors
    if one.name in RENYI_ONLY and (way, count) != ("forward", 2):
        pytest.skip("both directions are alike, and one count is enough for a promise that is never attained")
    step, reach = (0.02, 6.0) if one.name in RENYI_ONLY else (0.004, 10.0)
    points = step * np.arange(-round(reach / step), round(reach / step) + 1)
    high = single_use_profile(atom, way, points)
    epsilons = (-0.8, 0.3, 1.5)
    for epsilon, upper in zip(epsilons, convolved(high, step, -reach, count, epsilons), strict=True):
        got_low, got_high = getattr(atom**count, way).delta_bounds(epsilon=epsilon)
        assert got_low <= got_high
        assert got_low <= upper * (1 + 1e-9) + 1e-10  # the lower bound does not exceed a dominating law
        if one.name not in RENYI_ONLY:  # their products add Rényi divergences, which is sharper
            assert got_high <= upper * (1 + 1e-3) + 1e-8
            assert got_high >= upper * (1 - 3e-3) - 1e-8


def test_convolution_check_can_fail() -> None:
    """Negative control: 2 % less noise in the product is outside the tolerance of the check above."""
    step = 0.004
    points = step * np.arange(-2500, 2501)
    [upper] = convolved(LAPLACE.delta(epsilon=points), step, -10.0, 3, (1.5,))
    assert (curves.laplace(scale=1.25 * 0.98) ** 3).delta(epsilon=1.5) > upper * (1 + 1e-3) + 1e-8
    assert (curves.laplace(scale=1.25 * 1.02) ** 3).delta(epsilon=1.5) < upper * (1 - 3e-3) - 1e-8


@pytest.mark.slow
def test_the_order_of_factors_does_not_matter(atom: Curve) -> None:
    other = curves.pure(epsilon=0.3)
    assert atom * other == other * atom
    assert hash(atom * other) == hash(other * atom)
    assert (atom * other) * atom == atom * (other * atom)
    first, second = (atom * other).delta_bounds(epsilon=0.5), (other * atom).delta_bounds(epsilon=0.5)
    assert first == second


def test_identity_is_neutral(atom: Curve) -> None:
    neutral = curves.identity()
    assert atom * neutral == atom
    assert neutral * atom == atom
    assert atom**0 == neutral
    assert neutral**5 == neutral


def test_the_identity_promises_everything() -> None:
    neutral = curves.identity()
    assert neutral.epsilon(delta=0.0) == 0.0
    assert neutral.advantage() == 0.0
    assert neutral.gdp() == 0.0
    assert neutral.renyi(order=5.0) == 0.0
    assert neutral.delta(epsilon=-1.0) == pytest.approx(-math.expm1(-1.0), rel=1e-14)
    assert neutral.beta(alpha=0.2) == pytest.approx(0.8, rel=1e-12)


@pytest.mark.slow
def test_running_twice_is_never_better(atom: Curve) -> None:
    assert np.all((atom**2).delta_bounds(epsilon=EPSILON)[1] >= atom.delta_bounds(epsilon=EPSILON)[0] - 1e-15)
    assert (atom**2).dominates(atom)


@pytest.mark.parametrize(
    "other", [curves.laplace(scale=1), curves.exponential(epsilon=1), curves.pure(epsilon=1)], ids=str
)
def test_exactly_the_delta_that_was_lost_may_be_asked_for(other: Curve) -> None:
    """(1, 1e-5)-DP beside ε = 1: basic composition says (2, 1e-5), so no bound may be larger."""
    assert curves.approximate(epsilon=1, delta=1e-5).epsilon(delta=1e-5) <= 1 + 1e-9
    assert (curves.approximate(epsilon=1, delta=1e-5) * other).epsilon(delta=1e-5) <= 2 + 1e-9


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("count", [2, 3])
def test_small_powers_are_narrow_up_to_their_largest_loss(count: int, delta: float) -> None:
    """P(all losses are 1) = 2^-k, so δ(k - g) >= 2^-k (1 - e^-g): ε(δ) is within 2^k δ of k."""
    low, high = (curves.laplace(scale=1) ** count).epsilon_bounds(delta=delta)
    exact_at_least = count + math.log1p(-(2**count) * delta)
    assert exact_at_least * (1 - 1e-4) <= low <= high <= count * (1 + 1e-12)
    assert high >= exact_at_least * (1 - 1e-12)


def test_then_is_the_identity_on_curves(atom: Curve) -> None:
    assert atom.then() is atom
    assert atom.then(round, lambda answer: answer + 1) is atom


# -- equality, hashing, immutability ---------------------------------------------------------------------------------


def test_curves_are_immutable(atom: Curve) -> None:
    for name in ("_counts", "_hash", "anything"):
        with pytest.raises(AttributeError):
            setattr(atom, name, 1)
    inner = atom.factors[0][0]
    field = next(iter(inner.__slots__ or ("name",)))
    with pytest.raises((AttributeError, TypeError)):
        setattr(inner, field, 1)


def test_equality_and_hash(atom: Curve) -> None:
    twin = Curve.from_dict(copy.deepcopy(atom.to_dict()))
    assert twin == atom
    assert hash(twin) == hash(atom)
    assert {atom: "found"}[twin] == "found"
    assert atom != atom**2
    assert atom != "a curve"
    assert (atom == 3) is False


def test_the_dict_of_factors_cannot_be_reached_through(atom: Curve) -> None:
    before = atom**1
    _ = (*atom.factors, "x")
    assert atom == before


# -- more noise is never worse ---------------------------------------------------------------------------------------

# Not the discrete Gaussian: its losses move with sigma, and δ(2.5) is 0.0029 for sigma = 1 but 0.0032 for sigma = 1.1.
NOISIER = {
    "gaussian": (curves.gaussian(sigma=1.0), curves.gaussian(sigma=1.01)),
    "laplace": (curves.laplace(scale=1.0), curves.laplace(scale=1.01)),
    "discrete_laplace": (curves.discrete_laplace(scale=1.0), curves.discrete_laplace(scale=1.01)),
    "randomized_response": (curves.randomized_response(p=0.76), curves.randomized_response(p=0.75)),
    "categories": (curves.randomized_response(epsilon=1), curves.randomized_response(epsilon=1, categories=5)),
    "pure": (curves.pure(epsilon=1.01), curves.pure(epsilon=1)),
    "approximate": (curves.approximate(epsilon=1, delta=2e-5), curves.approximate(epsilon=1, delta=1e-5)),
    "exponential": (curves.exponential(epsilon=1.01), curves.exponential(epsilon=1)),
    "exponential is better than pure": (curves.pure(epsilon=1), curves.exponential(epsilon=1)),
    "laplace is better than pure": (curves.pure(epsilon=1), curves.laplace(scale=1)),
    "poisson": (curves.poisson(low=2, high=5), curves.poisson(low=2, high=4.9)),
    "sampled": (GAUSS.sampled(rate=0.31), GAUSS.sampled(rate=0.3)),
    "hidden index": (
        curves.mixture([0.5, 0.5], [GAUSS, GAUSS**2]),
        curves.hidden_mixture([0.5, 0.5], [GAUSS, GAUSS**2]),
    ),
    "rounded": (GAUSS, curves.rounded_gaussian(sigma=1.5)),
    "quantized": (GAUSS, curves.quantized(GAUSS, width=0.5)),
    "merton": (
        curves.merton(variance=0.5, rate=1, mean=0.1, spread=0.5),
        curves.merton(variance=0.5, rate=0.9, mean=0.1, spread=0.5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOISIER)
def test_more_noise_is_never_worse(name: str) -> None:
    less, more = NOISIER[name]
    grid = np.linspace(-3, 3, 61)
    assert np.all(more.delta_bounds(epsilon=grid)[0] <= less.delta_bounds(epsilon=grid)[1] + 1e-15)
    assert more.advantage() <= less.advantage() * (1 + 1e-9)
    assert more <= less
    assert less >= more
    assert not less <= more


# -- derived curves --------------------------------------------------------------------------------------------------


def test_sampling_at_the_ends(atom: Curve) -> None:
    assert atom.sampled(rate=1) == atom
    assert atom.sampled(rate=0) == curves.identity()


@pytest.mark.slow
def test_sampling_is_never_worse(atom: Curve) -> None:
    sampled = atom.sampled(rate=0.4)
    assert np.all(sampled.delta_bounds(epsilon=EPSILON)[0] <= atom.delta_bounds(epsilon=EPSILON)[1] + 1e-12)
    assert np.all(sampled.delta(epsilon=EPSILON) <= atom.delta(epsilon=EPSILON) + 1e-9)
    if atom.factors[0][0].name not in RENYI_ONLY | {"shuffled"}:  # no pair attains the promise: no certified order
        assert sampled <= atom.symmetrized()


def test_a_group_of_one_is_itself(atom: Curve) -> None:
    assert atom.group(size=1) == atom
    assert (atom**3).group(size=1) == atom**3


@pytest.mark.slow
def test_groups_are_worse(atom: Curve) -> None:
    pair = atom.group(size=2)
    assert np.all(pair.delta_bounds(epsilon=EPSILON)[1] >= atom.delta_bounds(epsilon=EPSILON)[0] - 1e-12)


def test_groups_in_closed_form() -> None:
    assert curves.gaussian(mu=0.5).group(size=2) == curves.gaussian(mu=1.0)
    assert curves.laplace(scale=2).group(size=4) == curves.laplace(scale=0.5)
    assert curves.discrete_gaussian(sigma=2).group(size=3) == curves.discrete_gaussian(sigma=2, sensitivity=3)
    assert curves.zcdp(rho=0.1).group(size=2).zcdp() == pytest.approx(0.4, rel=1e-14)


def test_symmetrized_is_idempotent(atom: Curve) -> None:
    once = atom.symmetrized()
    assert once.symmetrized() == once
    forward, backward = once.forward.delta_bounds(epsilon=EPSILON), once.backward.delta_bounds(epsilon=EPSILON)
    assert np.array_equal(forward, backward)
    low, high = once.delta_bounds(epsilon=EPSILON)
    base_low, base_high = atom.delta_bounds(epsilon=EPSILON)
    assert np.all(low <= base_high + 1e-12)
    assert np.all(high >= base_low - 1e-12)
    assert np.all(high <= base_high * (1 + 1e-6) + 1e-12)


def test_reversing_twice_changes_nothing(atom: Curve) -> None:
    back = atom.reversed().reversed()
    for way in ("forward", "backward"):
        low, high = getattr(back, way).delta_bounds(epsilon=EPSILON)
        base_low, base_high = getattr(atom, way).delta_bounds(epsilon=EPSILON)
        assert np.all(low <= base_high)
        assert np.all(base_low <= high)


def test_reversing_swaps_the_directions(atom: Curve) -> None:
    turned = atom.reversed()
    assert np.allclose(
        turned.forward.delta_bounds(epsilon=EPSILON), atom.backward.delta_bounds(epsilon=EPSILON), atol=1e-12
    )


def test_directions_are_reflections_of_each_other(atom: Curve) -> None:
    """E_x(P||Q) = 1 - x + x E_{1/x}(Q||P)."""
    low, high = atom.forward.delta_bounds(epsilon=EPSILON)
    back_low, back_high = atom.backward.delta_bounds(epsilon=-EPSILON)
    assert np.all(low <= -np.expm1(EPSILON) + np.exp(EPSILON) * back_high + 1e-12)
    assert np.all(high >= -np.expm1(EPSILON) + np.exp(EPSILON) * back_low - 1e-12)


def test_worst_of_is_the_largest_profile(atom: Curve) -> None:
    other = curves.pure(epsilon=0.45)
    both = curves.worst_of(atom, other)
    low, high = both.delta_bounds(epsilon=EPSILON)
    parts = [c.delta_bounds(epsilon=EPSILON) for c in (atom, other)]
    assert np.all(low <= np.maximum(parts[0][1], parts[1][1]) + 1e-12)
    assert np.all(high >= np.maximum(parts[0][0], parts[1][0]) - 1e-12)
    if atom.factors[0][0].name not in RENYI_ONLY:
        doubt = DOUBT.get(atom.factors[0][0].name, 0.0)
        assert np.all(high <= np.maximum(parts[0][1], parts[1][1]) * (1 + 1e-9) + 1e-12 + doubt)
    assert curves.worst_of(atom, atom) == atom
    assert curves.worst_of(atom) == atom


def test_a_mixture_is_the_weighted_mean_of_profiles(atom: Curve) -> None:
    other = curves.pure(epsilon=0.45)
    mixed = curves.mixture([0.3, 0.7], [atom, other])
    for way in ("forward", "backward"):
        low, high = getattr(mixed, way).delta_bounds(epsilon=EPSILON)
        a, b = (getattr(c, way).delta_bounds(epsilon=EPSILON) for c in (atom, other))
        assert np.all(low <= 0.3 * a[1] + 0.7 * b[1] + 1e-12)
        assert np.all(high >= 0.3 * a[0] + 0.7 * b[0] - 1e-12)
        if atom.factors[0][0].name not in RENYI_ONLY:
            doubt = DOUBT.get(atom.factors[0][0].name, 0.0)
            assert np.all(high <= (0.3 * a[1] + 0.7 * b[1]) * (1 + 1e-9) + 1e-12 + doubt)


def test_mixtures_forget_weights_of_zero() -> None:
    assert curves.mixture([1.0, 0.0], [GAUSS, LAPLACE]).delta(epsilon=0.5) == pytest.approx(
        GAUSS.delta(epsilon=0.5), rel=1e-12
    )


NO_EXACT_LOSS = {
    "zcdp",
    "renyi",
    "best_of_poisson_repeats",
    "best_of_repeats",
    "from_cells",
    "tradeoff",
    "worst_of",
    "from_kernel",
    "group",
    "symmetrized",
    "shuffled",
    "allocated",
    "sampled_replaced",
}


def test_quantized_is_never_worse(atom: Curve) -> None:
    for edges in ([0.1], [-1.0, 0.2, 0.9], [2.0], [-4.0, 3.0]):
        try:
            seen = curves.quantized(atom, edges=edges)
        except InvalidOperation:
            assert atom.factors[0][0].name in NO_EXACT_LOSS
            continue
        assert np.all(seen.delta_bounds(epsilon=EPSILON)[0] <= atom.delta_bounds(epsilon=EPSILON)[1] + 1e-12)
        if atom.factors[0][0].name not in RENYI_ONLY:
            assert np.all(seen.delta(epsilon=EPSILON) <= atom.delta(epsilon=EPSILON) * (1 + 1e-6) + 1e-6)


# -- order -----------------------------------------------------------------------------------------------------------


def test_every_curve_is_comparable_with_itself_and_the_identity(atom: Curve) -> None:
    assert atom <= atom
    assert atom >= atom
    assert curves.identity() <= atom
    assert not atom <= curves.identity()


ORDER = [
    ("gaussians add", curves.gaussian(mu=0.1) ** 3, curves.gaussian(mu=math.sqrt(0.03)), True, True),
    ("pure above laplace", curves.laplace(scale=2), curves.pure(epsilon=0.5), True, False),
    ("laplace is not gaussian", curves.laplace(scale=1), curves.gaussian(mu=1), False, False),
    ("tails of a gaussian", curves.gaussian(mu=0.5), curves.pure(epsilon=1), False, False),
    ("response is pure", curves.randomized_response(epsilon=1), curves.pure(epsilon=1), True, True),
    ("discrete laplace of sensitivity one", curves.discrete_laplace(scale=2), curves.pure(epsilon=0.5), True, True),
    ("kernel and pmf", curves.from_kernel([[0.75, 0.25], [0.25, 0.75]]), curves.pure(epsilon=math.log(3)), True, True),
    ("symmetrized", COINS, COINS.symmetrized(), True, True),
    ("poisson symmetrized", curves.poisson(low=2, high=5), curves.poisson(low=2, high=5).symmetrized(), True, True),
    ("gdp of pure", curves.pure(epsilon=1), curves.gaussian(mu=1.2320353854), True, False),
    ("just too small a mu", curves.pure(epsilon=1), curves.gaussian(mu=1.22), False, False),
    ("sampled", GAUSS.sampled(rate=0.5), GAUSS, True, False),
    ("quantized", curves.quantized(curves.gaussian(mu=2), width=1), curves.gaussian(mu=2), True, False),
    ("rounded", curves.rounded_gaussian(sigma=1), curves.gaussian(sigma=1), True, False),
    ("a delta more", curves.pure(epsilon=1), curves.approximate(epsilon=1, delta=1e-3), True, False),
    ("products", LAPLACE, LAPLACE * GAUSS, True, False),
]


@pytest.mark.parametrize(("name", "small", "big", "below", "above"), ORDER, ids=[case[0] for case in ORDER])
def test_blackwell_order(name: str, small: Curve, big: Curve, below: bool, above: bool) -> None:
    assert (small <= big) is below
    assert (big >= small) is below
    assert big.dominates(small) is below
    assert (big <= small) is above


def test_domination_needs_a_curve() -> None:
    with pytest.raises(InvalidOperation):
        GAUSS.dominates(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _ = GAUSS <= 3


# -- scalars and arrays ----------------------------------------------------------------------------------------------

VIEWS = {"delta": "epsilon", "epsilon": "delta", "beta": "alpha", "tpr": "fpr", "renyi": "order"}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_scalar_in_float_out_array_in_array_out(atom: Curve, view: str) -> None:
    if view in ("beta", "tpr") and atom.factors[0][0].name in RENYI_ONLY:
        pytest.skip("seconds for one reading; test_bounds_come_in_pairs reads one")
    argument, read = VIEWS[view], getattr(atom, view)
    first, value = (2.5, 2.0) if view == "renyi" else (0.4, 0.25)
    alone = read(**{argument: np.float64(value)})
    assert type(alone) is float
    array = np.array([[first], [value]])
    found = read(**{argument: array})
    assert isinstance(found, np.ndarray)
    assert found.shape == (2, 1)
    assert found.dtype == np.float64
    assert found[1, 0] == pytest.approx(alone, rel=2e-3, abs=1e-9)
    assert array.tolist() == [[first], [value]]  # the argument is left alone


@pytest.mark.parametrize("view", VIEWS)
def test_python_numbers_and_lists_are_read(view: str) -> None:
    for value in (1, np.int64(1), np.float32(1.0), 1.0):
        assert type(getattr(GAUSS, view)(**{VIEWS[view]: value})) is float
    for values in ([1, 1.0], (1, 1), np.ones(2, dtype=np.int32), np.ones(2, dtype=np.float32)):
        found = getattr(GAUSS, view)(**{VIEWS[view]: values})
        assert isinstance(found, np.ndarray)
        assert found.shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["delta_bounds", "epsilon_bounds", "beta_bounds"])
def test_bounds_come_in_pairs(atom: Curve, view: str) -> None:
    argument = VIEWS[view.removesuffix("_bounds")]
    low, high = getattr(atom, view)(**{argument: 0.25})
    assert type(low) is float
    assert type(high) is float
    assert low <= high
    if atom.factors[0][0].name in RENYI_ONLY and view == "beta_bounds":
        return
    lows, highs = getattr(atom, view)(**{argument: np.array([[0.1], [0.9]])})
    assert lows.shape == highs.shape == (2, 1)
    assert np.all(lows <= highs)
    if view != "epsilon_bounds":
        low, high = getattr(atom.forward, view)(**{argument: 0.25})
        assert type(low) is float
        assert type(high) is float
        assert low <= high
        lows, highs = getattr(atom.backward, view)(**{argument: np.array([[0.1]])})
        assert lows.shape == highs.shape == (1, 1)


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_array_gives_an_empty_array(view: str) -> None:
    for curve in (GAUSS, LAPLACE**3, COINS):
        assert getattr(curve, view)(**{VIEWS[view]: np.array([])}).shape == (0,)


# -- looks and loss --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_curve_can_be_looked_at(atom: Curve) -> None:
    assert repr(atom).startswith("<Curve ")
    assert "\n" not in repr(atom)
    assert "<" in atom._repr_html_()
    loss = atom.loss
    assert np.all(loss.masses >= 0)
    assert np.sum(loss.masses) + loss.infinity <= 1 + 1e-9
    for value in (atom.kl(), atom.kappa2(), atom.kappa3(), atom.gdp(), atom.zcdp(), atom.equal_error_rate()):
        assert not math.isnan(value)


def test_expressions_can_be_read_back(atom: Curve) -> None:
    text = atom.expression()
    if "<" in text:
        with pytest.raises(DeniableError):
            curves.parse(text)
        return
    again = curves.parse(text)
    assert again.delta(epsilon=0.5) == pytest.approx(atom.delta(epsilon=0.5), rel=1e-5)
