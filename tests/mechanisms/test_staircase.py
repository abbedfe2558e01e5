"""The staircase: its law by enumeration, its curve over all shifts, its error, and that nothing is better."""

from __future__ import annotations

import math
import pickle
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.optimize import linprog

from deniable import curves, noise
from deniable.errors import InvalidParameter
from deniable.mechanisms import Laplace, Staircase, staircase
from tests.mechanisms import lattice_laws as laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def law(step: int, high: int, epsilon: float, reach: int) -> laws.Law:
    weights = {}
    for z in range(-reach, reach + 1):
        full, rest = divmod(abs(z), step)
        weights[z] = mpmath.exp(-mpf(epsilon) * (full + (1 if rest >= high else 0)))
    b = mpmath.exp(-mpf(epsilon))
    total = 2 * (high + (step - high) * b) / (1 - b) - 1
    return {z: w / total for z, w in weights.items()}


STAIRS = [
    (3, 1.0, None),
    *(pytest.param(*s, marks=pytest.mark.slow) for s in [(1, 0.7, None), (4, 2.5, 0.25), (7, 0.4, 0.6)]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "epsilon", "high"), STAIRS)
def test_whole_answers_have_the_exact_law(step: int, epsilon: float, high: float | None) -> None:
    """Chi-square, 20,000 draws, false alarm 1e-9; an ε wrong by 10 % is rejected by the same test."""
    stairs = Staircase(sensitivity=step, epsilon=epsilon, high=high)
    entropy = noise.ReplayEntropy(8)
    sample = [stairs.release(5, entropy=entropy) - 5 for _ in range(20_000)]
    assert laws.chi_square(sample, law(step, stairs.high, epsilon, 40 * step)) > laws.FALSE_ALARM
    assert laws.chi_square(sample, law(step, stairs.high, 0.9 * epsilon, 40 * step)) < laws.FALSE_ALARM


@pytest.mark.parametrize(("step", "epsilon", "high"), [(1, 0.7, 1), (3, 1.0, 1), (3, 1.0, 2), (4, 2.5, 1), (5, 3.0, 4)])
def test_the_curve_is_the_worst_over_all_shifts(step: int, epsilon: float, high: int) -> None:
    stairs = Staircase(sensitivity=step, epsilon=epsilon, high=high / step - 1e-9 * (high == step))
    assert stairs.high == high
    base = law(step, high, epsilon, 60 * step)
    for at in (0.0, 0.3 * epsilon, 0.9 * epsilon):
        truth = max(float(laws.delta(base, laws.shifted(base, s), at)) for s in range(1, step + 1))
        assert truth * (1 - 1e-9) <= stairs.curve.delta(epsilon=at) <= truth * (1 + 1e-6) + 1e-12
    assert stairs.curve.epsilon(delta=0) == pytest.approx(epsilon, rel=1e-12)


def test_real_answers_lie_on_a_grid_and_the_step_has_grown() -> None:
    stairs = Staircase(sensitivity=0.3, epsilon=1.0)
    assert stairs.exponent is not None
    spacing = mpf(2) ** stairs.exponent
    assert stairs.step * spacing > mpf(0.3)
    assert (stairs.step - 2) * spacing <= mpf(0.3)
    answer = stairs.release(0.1)
    assert isinstance(answer, float)
    assert (answer / float(spacing)).is_integer()
    assert stairs.curve == curves.pure(epsilon=1.0)
    assert stairs.release(10**400) == np.finfo(np.float64).max


def test_fact_the_staircase_tends_to_laplace_noise_for_small_epsilon() -> None:
    for epsilon, near in [(0.01, 1e-5), (1.0, 0.03), (8.0, 0.7)]:
        ratio = Staircase(sensitivity=1.0, epsilon=epsilon).rms() / (math.sqrt(2) / epsilon)
        assert 1 - near < ratio < 1


@pytest.mark.parametrize(("step", "epsilon"), [(1, 1.0), (2, 0.8), (3, 1.5), (4, 3.0)])
def test_no_noise_on_whole_numbers_has_a_smaller_mean_square(step: int, epsilon: float) -> None:
    """Against a linear program over all symmetric laws on -60..60 that fall by at most e^-ε within `step`."""
    reach = 60
    cost = np.arange(reach + 1.0) ** 2 * 2
    total = np.array([1.0] + [2.0] * reach)
    rows = []
    for i in range(reach + 1):
        for s in range(1, step + 1):
            for j in (i + s, abs(i - s)):
                if j <= reach and j != i:
                    row = np.zeros(reach + 1)
                    row[i], row[j] = 1.0, -math.exp(epsilon)
                    rows.append(row)
    # Beyond the end the law goes on as slowly as it may: masses there cannot help, they only cost.
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=total[None, :], b_eq=[1.0])
    ours = Staircase(sensitivity=step, epsilon=epsilon)
    assert found.fun == pytest.approx(ours.rms() ** 2, rel=1e-4)  # the solver allows violations of 1e-7
    assert ours.efficiency() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("confidence", [0.05, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("step", "epsilon"), [(1, 0.5), (3, 1.0), (5, 4.0)])
def test_the_error_is_the_exact_quantile(confidence: float, step: int, epsilon: float) -> None:
    stairs = Staircase(sensitivity=step, epsilon=epsilon)
    masses = law(step, stairs.high, epsilon, 100 * step)
    reach = int(stairs.error(confidence=confidence))
    assert mpmath.fsum(p for z, p in masses.items() if abs(z) > reach) <= 1 - mpf(confidence) + mpf(10) ** -30
    if reach:
        assert mpmath.fsum(p for z, p in masses.items() if abs(z) > reach - 1) > 1 - mpf(confidence)


def test_real_errors_cover_at_the_stated_rate() -> None:
    """4000 draws at 80 %; false alarm 1e-9 on both sides."""
    stairs = Staircase(sensitivity=1.0, epsilon=3.0)
    reach, entropy = stairs.error(confidence=0.8), noise.ReplayEntropy(3)
    hits = sum(abs(stairs.release(0.0, entropy=entropy)) <= reach for _ in range(4000))
    assert laws.covered(hits, 4000, 0.8)
    assert laws.covered(4000 - hits, 4000, 0.2)


def test_efficiency_compares_with_the_best_stair() -> None:
    assert Staircase(sensitivity=1.0, epsilon=5.0).efficiency() == pytest.approx(1.0, abs=1e-6)
    worse = Staircase(sensitivity=1.0, epsilon=5.0, high=0.9)
    assert worse.efficiency() < 0.8
    assert staircase.least_rms(1, 5.0, whole=True) <= Laplace(sensitivity=1, epsilon=5.0).error(confidence=0.999)


@pytest.mark.parametrize(
    "arguments",
    [
        {"sensitivity": 0, "epsilon": 1},
        {"sensitivity": 1, "epsilon": 0},
        {"sensitivity": 1, "epsilon": 1000},
        {"sensitivity": 1, "epsilon": math.nan},
        {"sensitivity": 1, "epsilon": 1, "high": 0},
        {"sensitivity": 1, "epsilon": 1, "high": 1.5},
        {"sensitivity": "1", "epsilon": 1},
        {"sensitivity": 1e119, "epsilon": 1, "high": None, "x": 1},
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises((InvalidParameter, TypeError)):
        Staircase(**arguments)


def test_one_number_at_a_time() -> None:
    stairs = Staircase(sensitivity=2, epsilon=1.0)
    for value in ([1, 2], 1.5, "1", None, True):
        with pytest.raises(InvalidParameter):
            stairs.release(value)
    assert pickle.loads(pickle.dumps(stairs)) == stairs
    assert repr(stairs) == "Staircase(sensitivity=2, epsilon=1.0, high=0.5)"
