"""Grid laws against the laws they stand for, at every kind of ε, with 50 digits and no tolerance.

`above` must dominate and `below` must be dominated: at grid points, between them, at the law's atoms, left of the grid
and right of it. The controls show that the comparison notices a grid law that is only nearly right. Masses are
differences of survival masses, so that they are known to one rounding; the ledger of a panel grants eight for each use.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from deniable import curves
from deniable.curves.atoms.divisible import MertonLaw
from deniable.curves.composition import compose, lattice, tilt_plan
from deniable.curves.composition.lattice import GridLaw
from deniable.curves.laws.closed_form import BoundedRangeLaw, GaussianLaw, LaplaceLaw
from deniable.curves.laws.derived_laws import (
    CentreAgainstShifted,
    FixedSizeLaw,
    MixedLaw,
    SampledAgainstWithout,
    ShiftedAgainstCentre,
    WithoutAgainstSampled,
    WorstLaw,
)
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.meaning.curve_readings import product_of
from tests.curves import exact


@pytest.fixture(autouse=True)
def _digits() -> object:
    # The public doors read quietly; these tests look behind them.
    with mp.workdps(40), np.errstate(all="ignore"):
        yield


LAWS: list[Law] = [
    *(GaussianLaw(mu) for mu in (1e-3, 0.1, 1.0, 5.0)),
    *(LaplaceLaw(t) for t in (1e-3, 1.0, 20.0)),
    *(BoundedRangeLaw(t) for t in (1e-3, 1.0, 20.0)),
    *(SampledAgainstWithout(GaussianLaw(1.0), q) for q in (1e-6, 0.01, 0.5, 0.999)),
    *(WithoutAgainstSampled(GaussianLaw(1.0), q) for q in (1e-6, 0.01, 0.5, 0.999)),
    SampledAgainstWithout(LaplaceLaw(8.0), 0.5),
    WithoutAgainstSampled(LaplaceLaw(8.0), 0.01),
    MixedLaw((GaussianLaw(1.0), LaplaceLaw(2.0)), (0.3, 0.7)),
    WorstLaw((GaussianLaw(1.0), LaplaceLaw(2.0), SampledAgainstWithout(GaussianLaw(3.0), 0.1))),
    FixedSizeLaw(SampledAgainstWithout(GaussianLaw(1.0), 0.2)),
]
SLOW_LAWS: list[Law] = [
    ShiftedAgainstCentre((0.5, 0.5), (0.0, 1.0)),
    CentreAgainstShifted(ShiftedAgainstCentre((0.5, 0.5), (0.0, 1.0))),
    MertonLaw(0.64, 1.5, 0.1, 0.6, 1),
]


ROUNDING = mpf(2) ** -52


def readings(grid: GridLaw, atoms: tuple[float, ...], count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = grid.losses
    inner = points[:: max(1, len(points) // count)]
    width = points[-1] - points[0]
    return np.concatenate(
        (
            inner,
            inner * (1 - 1e-15),
            rng.uniform(points[0] - 0.1 * width, points[-1] + 0.05 * width, size=count),
            np.array(atoms) * (1 - 1e-12),
            [points[0] - width, points[0] - 1e-9, points[-1] + 1e-9, 0.0],
        )
    )


def misses(law: Law, grid: GridLaw, side: str, at: np.ndarray) -> list[tuple[float, str]]:
    """The ε at which the grid law lies on the wrong side of the law, and by how much."""
    profile = exact.GridProfile(grid.losses, grid.masses, grid.infinity)
    found = []
    for e in at.tolist():
        truth, value = exact.delta(law, e), profile(e)
        gap = truth - value if side == "upper" else value - truth
        if gap > truth * ROUNDING + mpf("1e-300"):
            found.append((e, mpmath.nstr(gap / truth if truth else gap, 3)))
    return found


def step_of(law: Law, count: int) -> float:
    low, high = lattice.reach(law, 1e-30)
    return (high - low) / count


@pytest.mark.slow
@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_lattice_laws_are_on_their_side_at_every_epsilon(law: Law, side: str) -> None:
    for count in (7, 90):
        grid = compose.lattice_law(law, side, step_of(law, count), 1e-30)
        assert np.all(grid.masses >= 0)
        assert not misses(law, grid, side, readings(grid, law.atoms, 40))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("law", SLOW_LAWS, ids=repr)
def test_lattice_laws_of_mixtures_are_on_their_side(law: Law, side: str) -> None:
    grid = compose.lattice_law(law, side, step_of(law, 40), 1e-30)
    assert not misses(law, grid, side, readings(grid, (), 12))


@pytest.mark.parametrize("law", LAWS[::3], ids=repr)
def test_uneven_grids_are_on_their_side(law: Law) -> None:
    points = lattice.spread_points(law, 1e-30, 60)
    above, below = lattice.above(law, points), lattice.below(law, points)
    assert not misses(law, above, "upper", readings(above, law.atoms, 30))
    assert not misses(law, below, "lower", readings(below, law.atoms, 30))


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("kind", [SampledAgainstWithout, WithoutAgainstSampled])
def test_the_atom_at_the_largest_loss_is_not_moved_down(kind: type, rate: float) -> None:
    """Read one float below the largest loss, which is computed and so rounded."""
    law = kind(LaplaceLaw(1.0), rate)
    grid = compose.lattice_law(law, "upper", step_of(law, 20), 1e-30)
    near = np.array([law.highest, np.nextafter(law.highest, -1), law.highest * (1 - 1e-15)])
    profile = exact.GridProfile(grid.losses, grid.masses, grid.infinity)
    assert all(profile(float(e)) >= exact.delta(law, float(e)) for e in near)


# -- controls --------------------------------------------------------------------------------------------------------


def floor_law(law: Law, points: np.ndarray) -> GridLaw:
    """Masses moved down to the grid: not above."""
    first = law.tails(points).first
    masses = np.concatenate(([1 - first[0]], first[:-1] - first[1:]))
    return GridLaw(points, np.append(masses[1:], 0.0), float(first[-1]))


def chord_law(law: Law, points: np.ndarray) -> GridLaw:
    """Connect-the-dots, which is above, offered as below."""
    return lattice.above(law, points)


@pytest.mark.parametrize("law", LAWS[1:6], ids=repr)
def test_negative_control_rounding_down_is_not_above(law: Law) -> None:
    points = lattice.spread_points(law, 1e-30, 60)
    assert misses(law, floor_law(law, points), "upper", readings(GridLaw(points, points, 0.0), (), 30))


@pytest.mark.parametrize("law", LAWS[1:6], ids=repr)
def test_negative_control_chords_are_not_below(law: Law) -> None:
    points = lattice.spread_points(law, 1e-30, 60)
    grid = chord_law(law, points)
    assert misses(law, grid, "lower", readings(grid, (), 30))


def test_negative_control_without_its_slack_the_chord_law_falls_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors alone put some chord below the profile, if the law claims to be exact."""
    honest = GaussianLaw.tails

    def exact_claim(self: GaussianLaw, loss: np.ndarray) -> object:
        tails = honest(self, loss)
        return tails._replace(error=0.0)

    monkeypatch.setattr(GaussianLaw, "tails", exact_claim)
    missed = 0
    for mu in (0.5, 1.0, 2.0, 3.0):
        law = GaussianLaw(mu)
        grid = lattice.above(law, np.linspace(-4 * mu, 8 * mu, 400))
        missed += len(misses(law, grid, "upper", grid.losses[::5]))
    assert missed > 0


# -- finite laws on a lattice ----------------------------------------------------------------------------------------


def random_finite(rng: np.random.Generator, even: bool) -> FiniteLaw:
    size = int(rng.integers(2, 14))
    if even:
        gap = float(rng.uniform(0.01, 0.5))
        losses = gap * (np.arange(size) - int(rng.integers(0, size)))
    else:
        losses = np.sort(rng.normal(size=size)) * rng.choice([0.01, 1.0, 10.0])
    masses = rng.dirichlet(np.full(size, 0.7))
    infinity = float(rng.choice([0.0, 0.0, 1e-9, 0.1]))
    return FiniteLaw(losses, masses * (1 - infinity), infinity)


@pytest.mark.slow
@pytest.mark.parametrize("even", [True, False])
def test_finite_laws_above_below_and_floored(even: bool) -> None:
    """For ε >= lowest loss: a law whose Q-mass is not 1 has no profile that means anything further left."""
    rng = np.random.default_rng(21)
    for _ in range(60):
        law = random_finite(rng, even)
        truth = exact.GridProfile(law.losses, law.masses, law.infinity)
        step = float(rng.choice([0.003, 0.05, 1.0])) * max(abs(law.lowest), abs(law.highest), 1e-3)
        for side in ("upper", "lower"):
            grid = compose.lattice_law(law, side, step, 1e-30)
            value = exact.GridProfile(grid.losses, grid.masses, grid.infinity)
            points = np.concatenate((law.losses, grid.losses[:: max(1, len(grid.losses) // 30)], rng.normal(size=10)))
            for e in points[points >= law.lowest].tolist():
                if side == "upper":
                    assert value(e) >= truth(e) * (1 - mpf(2) ** -50)
                else:
                    assert value(e) <= truth(e) * (1 + mpf(2) ** -50)


def test_floored_atoms_only_move_down() -> None:
    rng = np.random.default_rng(23)
    for _ in range(100):
        law = random_finite(rng, bool(rng.random() < 0.5))
        grid = compose._floored(law, float(rng.choice([0.01, 0.3])) * max(law.scale, 1e-3))
        # Mass above any loss: never more than the law's own.
        for loss in np.concatenate((grid.losses, law.losses)).tolist():
            mine = math.fsum(grid.masses[grid.losses > loss])
            assert mine <= math.fsum(law.masses[law.losses > loss]) + 1e-18


@pytest.mark.slow
def test_a_light_atom_at_the_top_does_not_become_infinite_loss() -> None:
    """Evenly spaced losses whose largest is rare: the last lattice point must not fall short of it by a rounding."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        gap, n = rng.uniform(0.05, 0.7), int(rng.integers(5, 9))
        losses = gap * np.arange(-n, n + 1)
        masses = np.exp(-0.5 * np.arange(-n, n + 1) ** 2 / rng.uniform(0.5, 3) + 0.5 * losses)
        masses /= masses.sum()
        other = masses * np.exp(-losses)
        curve = curves.from_pmf(masses, other / other.sum(), tied=True)
        product = product_of(curve * curves.laplace(scale=1 / rng.uniform(0.3, 2)))[0]
        product.delta(np.array([0.5, 1.0]), "upper")
        assert max(panel.infinity for panel in product._panels) < 1e-9


# -- reach, sketches, cumulants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [*LAWS, *(SampledAgainstWithout(LaplaceLaw(4.0), q) for q in (0.01, 0.1))], ids=repr)
@pytest.mark.parametrize("tail", [1e-12, 1e-40, 1e-80])
def test_reach_leaves_no_more_than_the_tail(law: Law, tail: float) -> None:
    low, high = lattice.reach(law, tail)
    assert low <= 0 <= high
    assert float(law.tails(np.array([high])).first[0]) <= tail * 1.001
    p, _ = exact.tails(law, mpf(low) - mpf("1e-9"))
    assert p >= 1 - mpf("1.1e-14")


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [GaussianLaw(1.0), LaplaceLaw(1.0), SampledAgainstWithout(GaussianLaw(1.0), 0.01)], ids=repr
)
def test_cumulants_of_sketches_bound_the_truth(law: Law) -> None:
    """Moments of the dominating sketch are at least those of the law (integrated by parts at 40 digits)."""
    grid = tilt_plan.sketch(law)
    for theta in (0.1, 1.0, 5.0):
        value = tilt_plan.cumulant(grid, theta).value
        assert value >= float(log_moment(law, theta)) * (1 - 1e-12) - 1e-12


def log_moment(law: Law, theta: float) -> mpf:
    """log E e^(θL) = log(1 + θ ∫_0^∞ e^(θl) P(L > l) dl - θ ∫_-∞^0 e^(θl) P(L <= l) dl)."""
    t = mpf(theta)
    with mp.workdps(20):
        right = [0, 1, 2, 4, 8, 12, 18] if not math.isfinite(law.highest) else [0, law.highest]
        left = [-12, -6, -3, -1, 0] if not math.isfinite(law.lowest) else [law.lowest, 0]
        up = mpmath.quad(lambda x: mpmath.exp(t * x) * exact.tails(law, x)[0], right)
        down = mpmath.quad(lambda x: mpmath.exp(t * x) * (1 - exact.tails(law, x)[0]), left)
        return mpmath.log(1 + t * (up - down))


def underflowed() -> tuple[GridLaw, float, float]:
    """A thousand masses of 1e-324, which is 0 as a float; a tilt under which they matter; the true cumulant."""
    losses = np.concatenate(([0.0], 40 + 1e-6 * np.arange(1000)))
    theta = 18.5
    truth = mpmath.log(1 + mpf("1e-324") * mpmath.fsum(mpmath.exp(mpf(theta) * mpf(x)) for x in losses[1:].tolist()))
    return GridLaw(losses, np.concatenate(([1.0], np.zeros(1000))), 0.0), theta, float(truth)


def test_floor_keeps_underflowed_masses_from_shrinking_a_cumulant() -> None:
    grid, theta, truth = underflowed()
    assert tilt_plan.cumulant(grid, theta).value >= truth > 1


def test_negative_control_without_the_floor_the_cumulant_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, theta, truth = underflowed()
    monkeypatch.setattr(tilt_plan, "FLOOR", 0.0)
    with np.errstate(under="ignore"):
        assert tilt_plan.cumulant(grid, theta).value < truth - 1


def test_lower_lattice_laws_stay_sharp_for_very_revealing_mechanisms() -> None:
    """When nearly all losses are far above 0 the line 1 - x at the left end must not cap the whole law."""
    for mu in (5.0, 15.0, 30.0):
        law = GaussianLaw(mu)
        grid = compose.lattice_law(law, "lower", mu / 20, 1e-30)
        value = exact.GridProfile(grid.losses, grid.masses, grid.infinity)
        middle = mu * mu / 2
        assert value(middle) >= exact.delta(law, middle) * mpf("0.98")
