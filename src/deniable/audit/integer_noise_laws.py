"""The laws of integer noise around two values: additive noise, staircases, Poisson, and keys behind a threshold.

They are enumerated from the definitions, for `exact_curve`. An infinite support is cut, and each tail becomes one
outcome (`End`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.local_laws import Factors, Law
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms import DiscreteGaussian, Gaussian, Staircase, UnknownKeys, input_values
from deniable.mechanisms.histogram import Tally
from deniable.mechanisms.noise_steps import Additive

REACH: Final = 40.0
"""Scales of the noise beyond which there is less mass than 10⁻¹⁷."""
SIGMAS: Final = 19.0
"""The same for Gaussian noise: less than 10⁻⁷⁹. At twice the distance, masses are still normal floats."""
MOST_OUTCOMES: Final = 10**6


def too_far_apart(why: str) -> InvalidOperation:
    """The error for values that are too far apart, for this reason."""
    return InvalidOperation(f"the values are too far apart: {why}; take nearer values, or use audit.measure")


@final
@dataclass(frozen=True, slots=True)
class End:
    """The outcome of a tail; with `of`, of the tail of one neighbour only."""

    is_above: bool
    of: str = ""


def integers_of(noisy: Additive, value: Any) -> list[int]:
    """The integers of a value that `release` would accept."""
    if noisy.dimension in (None, 1) and not input_values.is_array(value):
        return [input_values.whole(value)]
    listed: list[int] = input_values.wholes(value).ravel().tolist() if input_values.is_array(value) else []
    if noisy.dimension is None or len(listed) != noisy.dimension:
        raise InvalidParameter(
            "neighbours", NOTHING, f"must hold {noisy.dimension or 'one'} whole numbers, as declared"
        )
    return listed


def coordinate_factors(noisy: Additive, a: list[int], b: list[int]) -> Factors:
    """The laws of each coordinate in which two values differ, under integer noise."""
    law = _noise(noisy)
    return [shifted(law, x, y, unbounded=_is_gaussian(noisy)) for x, y in zip(a, b, strict=True) if x != y]


def needs_integers(mechanism: Any) -> InvalidOperation:
    """The error for noise on real numbers."""
    name = type(mechanism).__name__
    return InvalidOperation(
        f"{name} for real numbers has about 2**50 outcomes; use audit.measure, or make the mechanism for integers"
    )


def _is_gaussian(noisy: Any) -> bool:
    return isinstance(noisy, Gaussian | DiscreteGaussian)


def _noise(noisy: Additive) -> dict[int, float]:
    """The distribution of integer noise, up to three times the relevant distance, so that it covers the tails around
    two values that are up to that distance apart.
    """
    if noisy.exponent is not None:
        raise needs_integers(noisy)
    from scipy.special import ndtr

    width = float(noisy.width)
    core = math.ceil(width * (SIGMAS if _is_gaussian(noisy) else REACH) + 1)
    if 2 * core > MOST_OUTCOMES:
        raise InvalidOperation(f"noise with more than {MOST_OUTCOMES:,} outcomes is not enumerated; use audit.measure")
    reach = 3 * core
    z = np.arange(-reach, reach + 1)
    if isinstance(noisy, Gaussian):
        high = -np.abs(z) + 0.5
        masses = ndtr(high / width) - ndtr((high - 1) / width)
    elif isinstance(noisy, DiscreteGaussian):
        weights = np.exp(-(z**2) / (2 * width**2))
        masses = weights / math.fsum(weights)
    else:
        r = math.exp(-1 / width)
        masses = (1 - r) / (1 + r) * np.exp(-np.abs(z) / width)
    return dict(zip(z.tolist(), masses.tolist(), strict=True))


def staircase_noise(mechanism: Staircase) -> dict[int, float]:
    """The distribution of staircase noise: its density falls by e^(-ε) after `high` of every `step` numbers."""
    reach = 3 * mechanism.step * math.ceil(REACH / mechanism.epsilon + 1)
    full, rest = np.divmod(np.abs(np.arange(-reach, reach + 1)), mechanism.step)
    weights = np.exp(-mechanism.epsilon * (full + (rest >= mechanism.high)))
    masses = weights / math.fsum(weights)
    return dict(zip(range(-reach, reach + 1), masses.tolist(), strict=True))


def shifted(law: dict[int, float], a: int, b: int, *, unbounded: bool = False) -> tuple[Law, Law]:
    """The distributions of noise around two integers: the middle third outcome by outcome, the rest as tails."""
    core = max(law) // 3
    if abs(a - b) > core:
        raise too_far_apart("their outcomes are too many to enumerate")
    first, last = min(a, b) - core, max(a, b) + core
    here, there = (_window(law, at, first, last, side if unbounded else "") for at, side in ((a, "a"), (b, "b")))
    return here, there


def _window(law: dict[int, float], at: int, first: int, last: int, side: str) -> Law:
    found: dict[Any, float] = {y: law[y - at] for y in range(first, last + 1)}
    found[End(False, side)] = math.fsum(p for z, p in law.items() if z + at < first)
    found[End(True, side)] = math.fsum(p for z, p in law.items() if z + at > last)
    return found


def poisson_laws(low: float, high: float) -> tuple[Law, Law]:
    """The laws of two Poisson variables with these rates."""
    from scipy.special import gammainc, gammaincc, gammaln

    most = max(low, high)
    n = np.arange(math.ceil(most + 40 * math.sqrt(most) + 60))
    first = max(0, math.floor(min(low, high) - 40 * math.sqrt(most)))
    laws: list[Law] = []
    for rate in (low, high):
        masses = np.exp(n * math.log(rate) - rate - gammaln(n + 1))
        law: dict[Any, float] = dict(zip(n[first:].tolist(), masses[first:].tolist(), strict=True))
        law[End(True, str(rate))] = float(gammainc(len(n), rate))
        law[End(False, str(rate))] = float(gammaincc(first, rate)) if first else 0.0
        laws.append(law)
    return laws[0], laws[1]


HIDDEN: Final = "hidden"


def key_factors(mechanism: UnknownKeys, a: Tally, b: Tally) -> Factors:
    """Each key separately: hidden, or shown with a noisy count of at least the threshold."""
    noisy, is_gaussian = _noise(mechanism.noise), _is_gaussian(mechanism.noise)
    found: Factors = []
    for key in {**a, **b}:
        x, y = (side[key][1] if key in side else 0 for side in (a, b))
        if x != y:
            p, q = shifted(noisy, x, y, unbounded=is_gaussian)
            found.append((_shown(p, x, mechanism.threshold), _shown(q, y, mechanism.threshold)))
    return found


def _shown(law: Law, count: int, threshold: int) -> Law:
    if count <= 0:
        return {HIDDEN: 1.0}
    hidden = math.fsum(p for y, p in law.items() if not _is_above(y, threshold))
    return {HIDDEN: hidden, **{y: p for y, p in law.items() if _is_above(y, threshold)}}


def _is_above(outcome: Any, threshold: int) -> bool:
    return bool(outcome.is_above if isinstance(outcome, End) else outcome >= threshold)
