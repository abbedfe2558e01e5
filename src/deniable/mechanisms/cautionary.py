"""Mechanisms that satisfy (ε, δ)-DP literally and that nobody should use: what δ means if it is not tiny.

Each of these publishes somebody's record unchanged, with a small probability. `curve` is exact, and the numbers look
harmless: (0, 1/n) for the second. They teach three lessons.

- δ is a probability of disaster, not an amount of blur. It must be far below 1/n (`NameAndShame`), say 1/n² or less.
- n × δ people are exposed on average (`Subsampling`): with δ = 1/n, one in every release.
- "ε-DP except with probability δ" permits publishing the whole table with probability δ (`Catastrophe`). Gaussian noise
  of the same (ε, δ) never does: its δ(ε) keeps falling as ε grows, while this one stays at δ.

Sources: Yu-Xiang Wang, Differential Privacy Basics (name and shame); Near & Abuah, Programming Differential Privacy,
2021 (catastrophe); Differential Privacy for Machine Learning, Master IASD, Université PSL, 2024 (subsampling).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves, noise
from deniable.arguments import PROBABILITY
from deniable.curves import Curve, curve_arguments
from deniable.errors import InvalidParameter
from deniable.mechanisms import input_values, rational_parameters
from deniable.mechanisms.distinguishing_parts import NOTHING_TOLD, AnswerPart, Losses, Told, all_losses
from deniable.mechanisms.laws import Masses, masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.selection import Number
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

__all__ = ["Catastrophe", "NameAndShame", "Subsampling"]

UNPUBLISHED: Final = "not published"


def _records(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | dict | set) or not hasattr(value, "__len__") or hasattr(type(value), "columns"):
        raise input_values.refused("must be a list of records", "of a table: its rows, as a list of tuples")
    return list(value)


def _share(name: str, value: Number) -> Fraction:
    share = rational_parameters.not_negative(name, value)
    PROBABILITY.check(name, value, share)
    return share


@final
@dataclass(frozen=True, slots=True)
class Catastrophe(Mechanism):
    """Publishes the data themselves with probability δ, and otherwise a private mechanism's answer about a statistic.

    For all neighbours D, D′: δ_c(t) = δ + (1 - δ) δ_m(t), where δ_m is the curve of `mechanism`, because an observer
    can see whether the data were published. So this is (ε, δ)-DP if the mechanism is ε-DP, and δ_c(t) never falls below
    δ, however large t is.

    >>> from deniable import mechanisms
    >>> mean = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1)
    >>> risky = mechanisms.cautionary.Catastrophe(mean, statistic=sum, delta=1e-5)
    >>> 0.99e-5 < risky.curve.delta(epsilon=50.0) < 1.01e-5
    True
    """

    mechanism: Mechanism
    statistic: Callable[[Any], Any]
    delta: Number

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise InvalidParameter("mechanism", self.mechanism, "must be a mechanism")
        if not callable(self.statistic):
            raise InvalidParameter("statistic", self.statistic, "must be a function of the data")
        _share("delta", self.delta)

    @property
    def curve(self) -> Curve:
        delta = _share("delta", self.delta)
        if delta == 0:
            return self.mechanism.curve
        # Slightly more than δ covers the rounding of the two weights: exposing more often never improves the curve.
        share = min(1.0, rational_parameters.up(delta * (1 + Fraction(1, 2**50))))
        return curves.mixture([share, 1 - share], [curves.approximate(epsilon=0, delta=1), self.mechanism.curve])

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """A noisy answer about `statistic(value)`, or, with probability δ, `value` as it is."""
        source = checked_entropy(entropy)
        if noise.bernoulli(p=_share("delta", self.delta), entropy=source):
            return value
        return self.mechanism.release(self.statistic(value), entropy=entropy)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The privacy losses of the answer about the statistic, and with probability δ an infinite loss."""
        share = float(_share("delta", self.delta))
        inside = all_losses(self.mechanism.told_apart(self.statistic(x), self.statistic(x2)))
        exposed = ([share, 0.0], [0.0, share]) if repr(x) != repr(x2) else ([share], [share])
        pairs = zip(exposed, (inside.one, inside.two), strict=True)
        one, two = (np.concatenate((a, (1 - share) * b)) for a, b in pairs)
        return [Losses.of(one, two)]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NameAndShame(Mechanism):
    """One record, picked at random from n, with its place: (i, x_i).

    For all neighbours D, D′ that differ by one record replaced: the answers differ only if that record is picked, so
    (0, 1/n)-DP, and one person is exposed every time. n is public.

    >>> from deniable import mechanisms
    >>> mechanisms.cautionary.NameAndShame(records=1000).curve.delta(epsilon=0.0)
    0.001
    """

    records: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", curve_arguments.integer("records", self.records, 1))

    @property
    def curve(self) -> Curve:
        return curves.approximate(epsilon=0, delta=rational_parameters.up(Fraction(1, self.records)))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[int, Any]:
        """The index and the record that were picked."""
        source = checked_entropy(entropy)
        records = self._declared(value)
        index = noise.uniform(below=self.records, entropy=source)
        return index, records[index]

    def _declared(self, value: Any) -> list[Any]:
        records = _records(value)
        if len(records) != self.records:
            raise input_values.refused(f"must be a list of {self.records} records, as declared")
        return records

    def law(self, value: Any) -> Masses:
        """Masses on indices with their records, as texts."""
        answers = [f"({i}, {record!r})" for i, record in enumerate(self._declared(value))]
        return masses(answers, [1 / self.records] * self.records)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """Indices with their records, as texts: records need not be comparable."""
        return [AnswerPart(self.law(x), self.law(x2))]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subsampling(Mechanism):
    """Every record is published with probability `rate`, independently of the others.

    For all neighbours D, D′ that differ by one record, replaced or added or removed: the answers differ only if that
    record is published, so (0, rate)-DP. (A sample of a fixed *size* is different: if a record is added, the rate of
    all others changes.)

    >>> from deniable import mechanisms
    >>> published = mechanisms.cautionary.Subsampling(rate=0.001)
    >>> published.curve.delta(epsilon=0.0)
    0.001
    >>> round(published.exposes_anybody(records=1000), 6)
    0.632305
    """

    rate: Number

    def __post_init__(self) -> None:
        _share("rate", self.rate)

    @property
    def curve(self) -> Curve:
        return curves.approximate(epsilon=0, delta=rational_parameters.up(_share("rate", self.rate)))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> list[Any]:
        """The records that are published, in their order."""
        source = checked_entropy(entropy)
        records = _records(value)
        chosen = noise.bernoulli(p=_share("rate", self.rate), size=len(records), entropy=source)
        return [record for record, is_out in zip(records, chosen.tolist(), strict=True) if is_out]

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """For each record that the two lists do not share at the same place, counted from the front or the back:
        whether it is published.
        """
        one, two = ([repr(record) for record in _records(each)] for each in (x, x2))
        while one and two and one[0] == two[0]:
            one, two = one[1:], two[1:]
        while one and two and one[-1] == two[-1]:
            one, two = one[:-1], two[:-1]
        rate, before = float(_share("rate", self.rate)), "which records are published, with their places"

        def law(record: str | None) -> Masses:
            missing = Masses((UNPUBLISHED,), np.ones(1))
            return missing if record is None else Masses((UNPUBLISHED, record), np.array([1 - rate, rate]))

        return [AnswerPart(law(a), law(b), before=before) for a, b in zip_longest(one, two)] or [NOTHING_TOLD]

    def exposed(self, *, records: int) -> float:
        """The mean number of published records out of n: n × rate."""
        return float(curve_arguments.integer("records", records, 0) * _share("rate", self.rate))

    def exposes_anybody(self, *, records: int) -> float:
        """The probability that at least one of n records is published: 1 - (1 - rate)^n."""
        rate = float(self.rate)
        count = curve_arguments.integer("records", records, 0)
        return -math.expm1(count * math.log1p(-rate)) if rate < 1 else float(count > 0)
