"""Attacks that break naive noise, tried on ours: which answers can be reached, what they cost on the coarsest grids, and
whether there is any way to choose the noise. (The others are in `test_inversion_table`, `test_sampled_laws`, `test_float_grid`, `test_entropy`
and `test_cost`.)
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import deniable
from deniable import noise
from deniable.mechanisms import Gaussian, Laplace, Staircase, additive_noise, noise_steps
from deniable.noise import Grid, ReplayEntropy

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

POINTS = [0.0, -0.0, 0.1, 0.25, 1 / 3, 0.5, 0.625, math.nextafter(0.5, 1), math.nextafter(0.5, 0), 5e-324, 0.9]
MOVED = 0.9
"""How far apart the points are at most: no multiple of any grid."""


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of a few steps a scale, where every rounding shows: the same code, only FINENESS is 1 instead of 46."""
    monkeypatch.setattr(noise_steps, "FINENESS", 1)
    monkeypatch.setattr(additive_noise, "check_growth", lambda share, dimension: None)


def made(kind: type, level: float) -> Any:
    if kind is Laplace:
        return Laplace(sensitivity=MOVED, epsilon=level, dimension=1)
    return Gaussian(sensitivity=MOVED, mu=level, dimension=1)


# -- reachable sets --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
@pytest.mark.parametrize("level", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("far", [0.0, 3.0, 1e15, -(2.0**54), 1e200])
def test_neighbours_reach_the_same_answers(
    kind: type, level: float, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All noise from -40 to 40 steps, by all three ways in: what one value reaches, every neighbour reaches too, by
    noise that is a few steps more; also far out, where the sum is rounded to a float (Mironov 2012).
    """
    mechanism = made(kind, level)
    shift = math.ceil(MOVED / mechanism.spacing) + 1
    reached: dict[float, dict[int, float]] = {value: {} for value in POINTS}
    for z in range(-40, 41):
        monkeypatch.setattr(
            type(mechanism), "draw", lambda self, size, entropy, z=z: z if size is None else np.full(size, z)
        )
        for value, found in reached.items():
            found[z] = mechanism.release(far + value)
            assert mechanism.release(np.array([far + value])).tolist() == [found[z]]
            assert mechanism.noisy(Fraction(far + value), None) == found[z]
    for found in reached.values():
        # Where no float is rounded the answers are the whole grid, each once.
        if abs(far) < 10:
            assert len(set(found.values())) == 81
            assert all((Fraction(one) / mechanism.spacing).denominator == 1 for one in found.values())
    for one, other in itertools.permutations(reached, 2):
        inner = {answer for z, answer in reached[one].items() if abs(z) <= 40 - shift}
        assert inner <= set(reached[other].values())


def test_a_grid_and_whole_noise_reach_the_same_answers() -> None:
    """The grid of spacing 1/4 and noise of scale 2 steps: from any two values, all of the 21 nearest answers are seen in
    20,000 draws (each has a chance above 0.0015, so one is missed by either with probability below 1e-9).
    """
    grid = Grid(exponent=-2)
    nearest = {k / 4 for k in range(-10, 11)}
    for value in (0.1, -0.3, 1e-300, 0.124999, -0.0):
        drawn = grid.round(np.full(20_000, value)) + noise.discrete_laplace(
            scale=2, size=20_000, entropy=ReplayEntropy(1)
        )
        assert nearest <= set(grid.values(drawn).tolist())
        assert np.array_equal(grid.values(drawn) * 4, np.rint(grid.values(drawn) * 4))


def test_the_test_of_reachable_sets_can_fail() -> None:
    """Float noise on floats: hardly an answer from 0 can come from 0.1 too."""
    generator = np.random.default_rng(1)
    noisy = generator.laplace(0, 1, 1000)
    assert len(set((0.0 + noisy).tolist()) & set((0.1 + noisy).tolist())) < 10


# -- the loss, by enumeration ----------------------------------------------------------------------------------------


def masses(mechanism: Any, centre: int, reach: int) -> dict[int, mpf]:
    """The law of the answer in steps, at 50 digits, from the textbook."""
    width = mpf(Fraction(mechanism.width).numerator) / Fraction(mechanism.width).denominator
    if isinstance(mechanism, Laplace):
        r = mpmath.exp(-1 / width)
        return {z: (1 - r) / (1 + r) * r ** abs(z - centre) for z in range(-reach, reach + 1)}

    def above(z: mpf) -> mpf:
        return mpmath.erfc(z / width / mpmath.sqrt(2)) / 2

    half = mpf(1) / 2
    return {
        z: above(abs(z - centre) - half) - above(abs(z - centre) + half) if z != centre else 1 - 2 * above(half)
        for z in range(-reach, reach + 1)
    }


@pytest.mark.slow
@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
@pytest.mark.parametrize("level", [0.3, 1.0, 2.5])
def test_the_curve_is_never_below_the_loss_on_the_coarsest_grid(kind: type, level: float) -> None:
    """Every pair of values at most 1 apart, as they are rounded, and the profile of their exact laws: never above the
    curve; and without what rounding costs it would be.
    """
    mechanism = made(kind, level)
    step, moved = mechanism.spacing, Fraction(MOVED)
    starts = [step * Fraction(i, 64) for i in range(129)]
    apart = {round((x + moved * share) / step) - round(x / step) for x in starts for share in (0, Fraction(1, 2), 1)}
    worst = max(apart)
    assert worst > moved / step, "rounding moved two of them further apart than they were"
    reach = math.ceil((60 if kind is Laplace else 14) * mechanism.width) + worst
    for shift in (worst, 1):
        p, q = masses(mechanism, 0, reach), masses(mechanism, shift, reach)
        for epsilon in (0.0, 0.1, 0.5 * level, 0.9 * level, level, 2 * level):
            real = mpmath.fsum(max(mpf(0), p[z] - mpmath.exp(epsilon) * q[z]) for z in p)
            assert real <= mechanism.curve.delta(epsilon=epsilon) + mpf(10) ** -14
    if kind is Laplace:
        assert worst / Fraction(mechanism.width) <= level
        unpaid = worst * Fraction(level) * step / moved  # the loss if noise of Δ/ε had no step for the rounding
        assert unpaid > level


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_staircase_flips_its_coins_whatever_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt makes the same draws, whether the position is a high one or not, and how often it is tried again
    does not depend on what is kept: so neither does the time. (Correlation of time and size: 0.08 when only low
    positions flipped a coin, 0.005 since.)
    """
    calls: Counter[str] = Counter()

    def counted(name: str, call: Any) -> Any:
        def counting(**arguments: Any) -> Any:
            calls[name] += 1
            return call(**arguments)

        return counting

    for name in ("bernoulli", "uniform", "bernoulli_exp"):
        monkeypatch.setattr(noise, name, counted(name, getattr(noise, name)))
    stairs = Staircase(sensitivity=20, epsilon=1.0)
    for seed in range(300):
        stairs.release(0, entropy=ReplayEntropy(seed))
    assert calls["bernoulli"] == calls["uniform"] == calls["bernoulli_exp"] > 300


# -- no way to choose the noise --------------------------------------------------------------------------------------

CHOOSING = {"seed", "rng", "state", "random_state", "key", "generator", "random", "prng"}


def public(room: str) -> Iterator[tuple[str, Any]]:
    """Everything callable of a room that has a public name."""
    package = importlib.import_module(f"deniable.{room}")
    homes = [package] + [
        importlib.import_module(f"deniable.{room}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]
    for home in homes:
        for name, thing in vars(home).items():
            if (
                name.startswith("_")
                or not callable(thing)
                or not getattr(thing, "__module__", "").startswith("deniable")
            ):
                continue
            yield f"{home.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, call in inspect.getmembers(thing, callable):
                    if not method.startswith("_"):
                        yield f"{home.__name__}.{name}.{method}", call


@pytest.mark.parametrize("room", ["noise", "mechanisms", "local", "testing"])
def test_nothing_public_takes_a_seed_but_the_source_that_is_marked(room: str) -> None:
    looked = 0
    for name, thing in public(room):
        try:
            parameters = set(inspect.signature(thing).parameters)
        except (TypeError, ValueError):  # written in C
            continue
        looked += 1
        if thing is not ReplayEntropy:
            assert not parameters & CHOOSING, name
    assert looked > 20
    assert set(inspect.signature(ReplayEntropy).parameters) == {"seed"}


def test_noise_comes_from_one_place_and_no_setting_reaches_it() -> None:
    """No module of these rooms has a generator of its own or reads the environment; bytes come from the system once."""
    root = Path(deniable.__file__).parent
    system = []
    for path in sorted(
        itertools.chain(*(root.joinpath(room).rglob("*.py") for room in ("noise", "mechanisms", "local")))
    ):
        text = path.read_text(encoding="utf-8")
        code = re.sub(r'"""(?:.|\n)*?"""', "", text)
        assert not re.search(
            r"np\.random|numpy\.random|import random|from random|secrets\b|os\.environ|getenv", code
        ), path
        system += [path.name] * len(re.findall(r"os\.urandom", code))
        if path.name not in ("entropy.py", "__init__.py"):
            assert "ReplayEntropy" not in code, path
    assert system == ["entropy.py"]


def test_the_source_of_the_process_cannot_be_replaced_by_asking() -> None:
    assert noise.current() is noise.current()
    assert noise.current().is_private
    assert not any("seed" in name for name in dir(noise.current()))
    assert {name for name in noise.__all__ if "ntropy" in name} == {"Entropy", "ReplayEntropy"}
