"""The exact law of what `randomize` returns, by running it on every outcome of every coin.

`law(run)` replaces the samplers by ones that take each branch in turn and keep its probability: a Fraction where weights
are rational, otherwise 50 digits of mpmath. What comes out is the law of the code itself, not of a formula about it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
from mpmath.ctx_mp import MPContext

from deniable.local import (
    binary_responses,
    categorical_responses,
    count_mean_sketch,
    exact_odds,
    memoised_means,
    numeric_means,
    rappor,
)

mp = MPContext()
mp.dps = 50
"""A context of its own: the precision of other tests is theirs."""

Probability = Any


def exponential(value: Fraction) -> Probability:
    """e^value: 1 as the Fraction it is, everything else at 50 digits."""
    return Fraction(1) if value == 0 else mp.exp(mp.mpf(value.numerator) / value.denominator)


def product(a: Probability, b: Probability) -> Probability:
    """Of Fractions a Fraction, otherwise at 50 digits."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return digits(a) * digits(b)


def digits(value: Probability) -> Any:
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mp.mpf(value)


def total(values: list[Probability]) -> Probability:
    return sum(values) if all(isinstance(v, Fraction) for v in values) else mp.fsum(digits(v) for v in values)


class EveryOutcome:
    """Stands in for `deniable.noise`: follows a given path of choices, and takes the first option after its end."""

    def __init__(self, path: list[int], bits: int) -> None:
        self.path, self.bits = path, bits
        self.taken: list[tuple[int, int]] = []
        self.probability: Probability = Fraction(1)

    def draw(self, weights: list[Probability]) -> int:
        kept = [i for i, weight in enumerate(weights) if weight > 0]
        place = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append((place, len(kept)))
        whole, chosen = total(weights), weights[kept[place]]
        exact = isinstance(whole, Fraction)
        self.probability = product(self.probability, chosen / whole if exact else digits(chosen) / digits(whole))
        return kept[place]

    def _shaped(self, weights: list[Probability], size: Any, dtype: Any = np.int64) -> Any:
        count = int(np.prod(size))
        return np.array([self.draw(weights) for _ in range(count)], dtype=dtype).reshape(size)

    def uniform(self, *, below: int, size: Any, entropy: Any) -> Any:
        return self._shaped([Fraction(1)] * below, size)

    def bernoulli(self, *, p: Any, size: Any, entropy: Any) -> Any:
        return self._shaped([1 - Fraction(p), Fraction(p)], size, np.bool_)

    def bernoulli_exp(self, *, x: Any, size: Any, entropy: Any) -> Any:
        yes = exponential(-Fraction(x))
        return self._shaped([1 - yes, yes], size, np.bool_)

    # What `Odds` throws: by the weights that its wheels are made from.

    def heads(self, which: exact_odds.Odds, size: int, entropy: Any, *, yes: int = 1, no: int = 1) -> Any:
        return self._shaped(exactly(exact_odds.coin_weights(which, yes, no)), size, np.bool_)

    def rare_bits(self, which: exact_odds.Odds, shape: tuple[int, ...], entropy: Any) -> Any:
        assert shape[1] == 1
        every = exactly(exact_odds.byte_weights(which))
        # Only the first `bits` of the eight are ever used: bytes that agree in those count as one.
        alike = [total(every[low :: 2**self.bits]) for low in range(2**self.bits)]
        return self._shaped(alike, shape, np.uint8)

    def away(self, which: exact_odds.Odds, categories: int, size: int, entropy: Any) -> Any:
        return self._shaped(exactly(exact_odds.distance_weights(which, categories)), size, np.uint8)


def exactly(weights: exact_odds.Weights) -> list[Probability]:
    """Weights as Fractions, or to 50 digits."""
    return [product(factor, exponential(exponent)) for factor, exponent in weights]


def _thrown(self: exact_odds.Odds, throw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return throw(self, *args, **kwargs)


def law(run: Callable[[], Hashable], monkeypatch: pytest.MonkeyPatch, *, bits: int = 8) -> dict[Hashable, Probability]:
    """The probability of everything that `run` may return."""
    found: dict[Hashable, list[Probability]] = {}
    path: list[int] | None = []
    while path is not None:
        every = EveryOutcome(path, bits)
        for module in (
            binary_responses,
            categorical_responses,
            memoised_means,
            numeric_means,
            rappor,
            count_mean_sketch,
        ):
            monkeypatch.setattr(module, "noise", every)
        for method in ("heads", "rare_bits", "away"):
            monkeypatch.setattr(exact_odds.Odds, method, partialmethod(_thrown, getattr(every, method)))
        found.setdefault(run(), []).append(every.probability)
        # The next path: the last choice that has another option.
        taken = every.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        path = [place for place, _ in taken[:-1]] + [taken[-1][0] + 1] if taken else None
    monkeypatch.undo()
    return {outcome: total(masses) for outcome, masses in found.items()}


def hockey_stick(p: dict[Hashable, Probability], q: dict[Hashable, Probability], epsilon: float) -> Any:
    """δ(ε) of a pair of laws, from the definition."""
    factor = mp.exp(mp.mpf(epsilon))
    outcomes = set(p) | set(q)
    return mp.fsum(
        max(digits(p.get(y, Fraction(0))) - factor * digits(q.get(y, Fraction(0))), mp.mpf(0)) for y in outcomes
    )


def largest_loss(p: dict[Hashable, Probability], q: dict[Hashable, Probability]) -> Any:
    """Pure ε of a pair of laws."""
    return max(mp.log(digits(p[y]) / digits(q[y])) for y in p)
