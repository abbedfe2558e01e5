"""Continual counting: block structure by enumeration, sensitivities of the matrices, laws, coverage, refusal at the end."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable import curves, noise
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.mechanisms import FactorisedCounter, TreeCounter
from deniable.mechanisms.continual_counting import COEFFICIENT, coefficients
from tests.mechanisms import lattice_laws as laws
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


class Silent:
    """Noise that is not there, so that the exact structure shows."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []

    def draw(self, size: Any, entropy: Any) -> int:
        self.drawn.append(size)
        return 0

    def noisy(self, value: Fraction, entropy: Any) -> float:
        self.drawn.append(value)
        return float(value)


def tree_blocks(horizon: int) -> list[list[int]]:
    """Which steps are in each block that is made noisy: at step t, the last 2^i steps, 2^i the lowest digit of t."""
    return [list(range(t - (t & -t) + 1, t + 1)) for t in range(1, horizon + 1)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 8, 9, 100, 128])
def test_a_step_is_in_as_many_blocks_as_there_are_levels(horizon: int) -> None:
    blocks = tree_blocks(horizon)
    most = max(sum(step in block for block in blocks) for step in range(1, horizon + 1))
    counter = TreeCounter(horizon=horizon, sensitivity=1, epsilon=1.0)
    assert most == counter.levels == math.floor(math.log2(horizon)) + 1
    assert counter.noise.sensitivity == most
    gaussian = TreeCounter(horizon=horizon, sensitivity=3, mu=1.0)
    assert 9 * most <= gaussian.noise.sensitivity**2 <= 9 * most * (1 + Fraction(1, 10**15))


def test_totals_are_exact_without_noise() -> None:
    numbers = np.random.default_rng(0).integers(-3, 9, 200).tolist()
    stream = TreeCounter(horizon=200, sensitivity=1, epsilon=1.0).start()
    stream._noise = Silent()  # type: ignore[assignment]
    assert [stream.add(n) for n in numbers] == np.cumsum(numbers).tolist()
    root = FactorisedCounter(horizon=200, sensitivity=1, mu=1.0).start()
    root._noise = Silent()  # type: ignore[assignment]
    found = np.array([root.add(n) for n in numbers])
    assert np.abs(found - np.cumsum(numbers)).max() < 2**-31 * math.sqrt(200) * np.abs(numbers).sum()


def test_one_draw_of_noise_a_step() -> None:
    stream = TreeCounter(horizon=64, sensitivity=1, epsilon=1.0).start()
    silent = Silent()
    stream._noise = silent  # type: ignore[assignment]
    for _ in range(64):
        stream.add(1)
    assert len(silent.drawn) == 64


def test_every_block_of_the_tree_is_what_it_should_be() -> None:
    """Each unit step moves exactly the blocks that hold it, by one: the L1 distance of what noise is added to."""
    horizon = 13

    def blocks(numbers: list[int]) -> list[int]:
        seen: list[int] = []
        stream = TreeCounter(horizon=horizon, sensitivity=1, epsilon=1.0).start()

        class Watching(Silent):
            def draw(self, size: Any, entropy: Any) -> int:
                seen.append(stream._blocks[(stream.steps & -stream.steps).bit_length() - 1])
                return 0

        stream._noise = Watching()  # type: ignore[assignment]
        for n in numbers:
            stream.add(n)
        return seen

    base = blocks([0] * horizon)
    for step in range(horizon):
        moved = np.abs(np.array(blocks([int(t == step) for t in range(horizon)])) - base)
        assert moved.sum() <= 4
        assert moved.max() == 1


def test_the_coefficients_are_those_of_the_square_root() -> None:
    """(1-x)^(-1/2) squared is 1/(1-x): the convolution of the exact coefficients is 1, 1, 1, ..."""
    exact = [Fraction(math.comb(2 * k, k), 4**k) for k in range(300)]
    for k in (0, 1, 5, 50):
        assert sum(exact[i] * exact[k - i] for i in range(k + 1)) == 1
    assert coefficients(300).tolist() == [round(f * COEFFICIENT) for f in exact]
    with pytest.raises(ValueError, match="read-only"):
        coefficients(300)[0] = 5


@pytest.mark.parametrize("horizon", [1, 2, 10, 64])
def test_the_sensitivity_of_the_root_is_the_largest_column_norm(horizon: int) -> None:
    c = coefficients(horizon).tolist()
    columns = [[Fraction(c[t - s], COEFFICIENT) for t in range(s, horizon)] for s in range(horizon)]
    worst = max(sum(f * f for f in column) for column in columns)
    counter = FactorisedCounter(horizon=horizon, sensitivity=2, mu=1.0)
    assert 4 * worst <= counter.noise.sensitivity**2 <= 4 * worst * (1 + Fraction(1, 10**15))
    assert counter.curve == curves.gaussian(mu=1.0)
    assert counter.noise.dimension == horizon


def test_what_is_made_noisy_is_exact() -> None:
    """R·x in rational arithmetic, step by step: no float decides how far neighbours are apart."""
    horizon = 40
    numbers = np.random.default_rng(1).integers(0, 1000, horizon).tolist()
    stream = FactorisedCounter(horizon=horizon, sensitivity=1, mu=1.0).start()
    silent = Silent()
    stream._noise = silent  # type: ignore[assignment]
    for n in numbers:
        stream.add(n)
    c = coefficients(horizon).tolist()
    wanted = [sum(Fraction(c[t - s], COEFFICIENT) * numbers[s] for s in range(t + 1)) for t in range(horizon)]
    assert silent.drawn == wanted


def test_huge_steps_are_clamped_not_wrapped() -> None:
    stream = FactorisedCounter(horizon=3, sensitivity=1, mu=1.0).start()
    assert stream.add(10**30) == pytest.approx(2**61, rel=1e-6)
    assert stream.add(-(10**30)) == pytest.approx(0, abs=1000)
    assert TreeCounter(horizon=3, sensitivity=1, epsilon=1.0).start().add(10**30) == pytest.approx(1e30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "counter",
    [
        TreeCounter(horizon=32, sensitivity=1, epsilon=1.0),
        TreeCounter(horizon=32, sensitivity=1, mu=1.0),
        FactorisedCounter(horizon=32, sensitivity=1, mu=1.0),
    ],
)
def test_all_totals_are_covered_at_once(counter: Any) -> None:
    """400 streams of 32 steps at 80 %, false alarm 1e-9; a third of the error is missed far more often."""
    reach, entropy = counter.error(confidence=0.8), noise.ReplayEntropy(5)
    away = [np.abs(counter.release([1] * 32, entropy=entropy) - np.arange(1, 33)).max() for _ in range(400)]
    assert laws.covered(int((np.array(away) <= reach).sum()), 400, 0.8)
    assert not laws.covered(int((np.array(away) <= reach / 3).sum()), 400, 0.8)


@pytest.mark.slow
def test_the_last_total_has_the_variance_of_the_factorisation() -> None:
    """σ²(f₀² + … + f²_{T-1}) at the last step, over 2000 streams of 16 steps: within 20 % (six standard errors)."""
    counter = FactorisedCounter(horizon=16, sensitivity=1, sigma=4.0)
    entropy = noise.ReplayEntropy(6)
    last = [counter.release([0] * 16, entropy=entropy)[-1] for _ in range(2000)]
    f = coefficients(16) / COEFFICIENT
    assert np.var(last) == pytest.approx(16 * float(f @ f), rel=0.20)


def test_the_factorisation_has_a_third_of_the_error_of_the_tree() -> None:
    for horizon, ratio in [(100, 2.4), (1000, 2.9), (10_000, 3.3)]:
        tree = TreeCounter(horizon=horizon, sensitivity=1, mu=0.1).error(confidence=0.95)
        root = FactorisedCounter(horizon=horizon, sensitivity=1, mu=0.1).error(confidence=0.95)
        assert tree / root > ratio
    # ... and both are far below fresh noise on every total, which costs √T·μ for T of them.
    assert root < 0.2 * math.sqrt(10_000) / 0.1


def test_a_running_counter_does_not_go_on_in_a_forked_process() -> None:
    stream = TreeCounter(horizon=5, sensitivity=1, epsilon=1.0).start()
    stream._process += 1  # as the child of a fork would see it
    with pytest.raises(InvalidOperation, match="forked process"):
        stream.add(1)
    assert stream.steps == 0


def test_threads_share_the_steps_that_were_paid_for() -> None:
    stream = TreeCounter(horizon=200, sensitivity=1, epsilon=1.0).start()

    def ask(_: int) -> bool:
        try:
            stream.add(1)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(400))) == 200


def test_noise_levels_and_curves() -> None:
    tree = TreeCounter(horizon=1000, sensitivity=1, epsilon=1.0)
    assert tree.curve.epsilon(delta=0) == pytest.approx(1.0, rel=1e-12)
    assert tree.noise.width == 10
    assert TreeCounter(horizon=1000, sensitivity=1, scale=20).curve.epsilon(delta=0) == pytest.approx(0.5)
    assert TreeCounter(horizon=1000, sensitivity=1, mu=0.5).curve == curves.gaussian(mu=0.5)
    both = TreeCounter(horizon=1000, sensitivity=1, epsilon=1.0, delta=1e-6).curve
    assert both.delta(epsilon=1.0) <= 1e-6
    assert FactorisedCounter(horizon=8, sensitivity=1, epsilon=1.0, delta=1e-6).curve.delta(epsilon=1.0) <= 1e-6


@pytest.mark.parametrize("kind", [TreeCounter, FactorisedCounter])
def test_steps_that_were_not_paid_for_are_refused(kind: Any) -> None:
    counter = kind(horizon=2, sensitivity=1, mu=1.0)
    stream = counter.start()
    stream.add(1)
    stream.add(1)
    for _ in range(2):
        with worded(BudgetExceeded):
            stream.add(1)
    assert stream.steps == 2
    for bad in ([], [1, 2, 3], "ab", [1.5]):
        with pytest.raises(InvalidParameter):
            counter.release(bad)
    for bad in (1.5, "1", None, True, [1]):
        with pytest.raises(InvalidParameter):
            counter.start().add(bad)


@pytest.mark.parametrize(
    "arguments",
    [
        {"horizon": 0, "sensitivity": 1, "mu": 1},
        {"horizon": 2.5, "sensitivity": 1, "mu": 1},
        {"horizon": 10**9, "sensitivity": 1, "mu": 1},
        {"horizon": 5, "sensitivity": 0, "mu": 1},
        {"horizon": 5, "sensitivity": 1.0, "mu": 1},
        {"horizon": 5, "sensitivity": 1},
        {"horizon": 5, "sensitivity": 1, "mu": 1, "sigma": 1},
        {"horizon": 5, "sensitivity": 1, "mu": 1, "delta": 1e-6},
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any]) -> None:
    for kind in (TreeCounter, FactorisedCounter):
        with pytest.raises(InvalidParameter):
            kind(**arguments)


def test_a_running_counter_is_not_stored_and_does_not_show_its_totals() -> None:
    counter = TreeCounter(horizon=5, sensitivity=1, epsilon=1.0)
    stream = counter.start()
    stream.add(12345)
    assert repr(stream) == "<TreeStream after 1 of 5 steps>"
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with worded(InvalidOperation):
            store(stream)
    assert pickle.loads(pickle.dumps(counter)) == counter
    assert (counter**2).curve == counter.curve**2
    assert repr(counter).startswith("TreeCounter(horizon=5")
    assert repr(FactorisedCounter(horizon=5, sensitivity=1, mu=1.0)).startswith("FactorisedCounter(horizon=5")
    with worded(InvalidParameter):
        TreeCounter(horizon=5, sensitivity=1, scale=1.0, delta=1e-6)
