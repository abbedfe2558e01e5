"""Choosing one of a public list of candidates by scores that depend on the data.

::

    noise on each score    the same as       mechanism           curve              scale
    Gumbel                 e^(score/scale)   `Exponential`       exponential(ε)     2Δ/ε    Δ/ε for monotone scores
    exponential            a biased coin     `PermuteAndFlip`    laplace(1/ε)       2Δ/ε    Δ/ε
    Laplace                                  `NoisyMax`          laplace(1/ε)       2Δ/ε    Δ/ε

Scores have sensitivity Δ: between neighbours each score moves by at most Δ. They are *monotone* if between any two
neighbours all of them move in the same direction, as counts do when a row is added or removed, or when only one score
can change. Then half the noise is enough, and each mechanism has a `Monotone...` form; for other scores that form would
cost up to twice its ε. A row *replaced* moves one count down and another up.

Scores are taken as exact rational numbers, and the noise has exactly its real-valued law: noise is drawn digit by
digit, until the winner is certain. So there are no ties, and no float decides anything. The list of candidates, and
their number, must not depend on the data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from deniable import curves
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms import input_values, laws, rational_parameters
from deniable.mechanisms.exact_choice import Race, choose, exponential_race, highest, laplace_race
from deniable.mechanisms.laws import Masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

__all__ = [
    "Exponential",
    "MonotoneExponential",
    "MonotoneNoisyMax",
    "MonotonePermuteAndFlip",
    "NoisyMax",
    "OneShotTopK",
    "PermuteAndFlip",
    "Selection",
    "TopK",
]

Number = float | Fraction | Decimal
"""Types of a parameter: a rational number; a float is the number it stores. (The type checker counts an int as a
float.)
"""

SLACK: Final = 1 + 1e-12
"""Errors are computed in floating point and enlarged by this, far more than the rounding errors."""


def exact_scores(value: Any, candidates: int | None) -> list[Fraction]:
    """One score for each candidate, as rationals. They come from data, so errors do not contain them."""
    # A list is converted number by number: NumPy would round integers to floats as soon as one entry is a float.
    found = np.array(value, dtype=object) if isinstance(value, list | tuple) else input_values.array(value)
    if found.ndim != 1 or len(found) != (candidates or len(found)) or not len(found):
        wanted = f"{candidates} numbers" if candidates else "one number or more"
        raise input_values.refused(f"must be a list of {wanted}, a score for each candidate")
    listed = [v.item() if isinstance(v, np.generic) else v for v in found.tolist()]
    try:
        if any(isinstance(v, bool) or not isinstance(v, int | float | Fraction | Decimal) for v in listed):
            raise TypeError
        return [Fraction(v) for v in listed]
    except (TypeError, ValueError, OverflowError):
        raise input_values.refused("must be finite numbers only", "NaN and infinities have no sensitivity") from None


def path_curve(epsilon: Fraction) -> Curve:
    """The curve of a mechanism that is xε-DP for scores that make the part x of their move, for every x: that of
    Laplace noise with the same ε.

    Between neighbours let the scores move at constant speed, from time 0 to ε, and let p(x) be the probability of an
    event at time x. Then |p'| <= min(p, 1-p), and Laplace noise that moves by x has p' = -min(p, 1-p). So p(ε) is at
    least what the event of probability p(0) has under Laplace noise that moves by ε.
    """
    return curves.laplace(scale=1.0, sensitivity=rational_parameters.up(epsilon))


# -- selections ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Selection(Mechanism):
    """Picks the index of a candidate with a high score. `release(scores)` takes one score for each candidate.

    Give the noise level as `epsilon=` or as its `scale=`. `candidates=` is the number of candidates: `error` needs it,
    and `release` then requires that many scores.
    """

    sensitivity: Fraction
    scale: Fraction
    candidates: int | None
    span: ClassVar[int] = 2
    """Between neighbours, the difference of two scores changes by at most span × sensitivity."""

    def __init__(
        self,
        *,
        sensitivity: Number,
        epsilon: Number | None = None,
        scale: Number | None = None,
        candidates: int | None = None,
    ) -> None:
        delta = rational_parameters.moved(sensitivity)
        if curve_arguments.exactly_one(epsilon=epsilon, scale=scale) == "scale":
            width = rational_parameters.positive("scale", scale)
        else:
            width = self.span * delta / rational_parameters.epsilon(epsilon)
        rational_parameters.positive("epsilon", self.span * delta / width)
        if isinstance(candidates, Sized):
            rule, remedy = "must be the number of candidates, a whole number", "write candidates=len(names)"
            raise InvalidParameter("candidates", NOTHING, rule, remedy)
        count = None if candidates is None else curve_arguments.integer("candidates", candidates, 1)
        self._settle(sensitivity=delta, scale=width, candidates=count)

    def __repr__(self) -> str:
        count = f", candidates={self.candidates}" if self.candidates is not None else ""
        epsilon = _literal(self.span * self.sensitivity / self.scale)
        return f"{type(self).__name__}(sensitivity={_literal(self.sensitivity)}, epsilon={epsilon}{count})"

    @property
    def epsilon(self) -> float:
        """ε = span × sensitivity / scale, rounded up."""
        return rational_parameters.up(self.span * self.sensitivity / self.scale)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> int:
        """The index of the chosen candidate. `value` contains the scores."""
        source = checked_entropy(entropy)
        return self.pick(exact_scores(value, self.candidates), source)

    @abstractmethod
    def pick(self, scores: Sequence[Fraction], entropy: Entropy | None) -> int:
        """The chosen index, from checked scores."""

    @abstractmethod
    def probabilities(self, scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The law of `release` on these scores, for planning. It is not a release: never show it for private scores."""

    def law(self, value: Any) -> Masses:
        """Masses on the candidates 0, 1, 2, ... for these scores."""
        found = self.probabilities(value)
        return laws.masses(range(len(found)), found)

    @abstractmethod
    def overtakes(self, *, gap: float) -> float:
        """The probability that a candidate whose score is lower by `gap` beats another, if there are only these two."""

    def failure(self, gap: float, candidates: int) -> float:
        """An upper bound on the probability that the score of the choice is more than `gap` below the best; nearly
        attained.
        """
        return (candidates - 1) * self.overtakes(gap=gap)

    def error(self, *, confidence: float) -> float:
        """A bound on the distance of the chosen score from the best one, with probability at least `confidence`."""
        return self.gap(miss=1 - curve_arguments.inner_probability("confidence", confidence), candidates=_known(self))

    def gap(self, *, miss: float, candidates: int) -> float:
        """A bound on the distance of the chosen score from the best one, except with probability `miss`."""
        return smallest_gap(lambda gap: self.failure(gap, candidates), miss, rational_parameters.up(self.scale))

    def _in_scales(self, scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The distance of each score from the best one, in units of the scale."""
        read = exact_scores(scores, self.candidates)
        top = max(read)
        return np.array([float((top - score) / self.scale) for score in read])


def _literal(value: Fraction) -> str:
    """A rational number as a Python literal: an int or a float if that is exact, else a Fraction."""
    return repr(rational_parameters.short(value))


def _known(selection: Selection) -> int:
    if selection.candidates is None:
        raise InvalidOperation(
            f"the number of candidates is not known; give {type(selection).__name__}(..., candidates=)"
        )
    return selection.candidates


def smallest_gap(failure: Callable[[float], float], miss: float, scale: float) -> float:
    """The smallest gap whose failure probability, which decreases with the gap, is at most `miss`; rounded up."""
    if failure(0.0) <= miss:
        return 0.0
    low, high = 0.0, scale
    while failure(high) > miss:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if failure(middle) > miss else (low, middle)
    return high * SLACK


def exponential_gap(scale: float, worse: float, miss: float) -> float:
    """The exponential mechanism's exact worst case, rounded up: `worse` candidates (or an interval that many times as
    long) all lie this far below the best, and together have probability `miss`.
    """
    # worse e^(-gap/scale) / (1 + worse e^(-gap/scale)) = miss
    return max(0.0, scale * (math.log(worse) + math.log1p(-miss) - math.log(miss))) * SLACK if worse > 0 else 0.0


class _ExponentialSelection(Selection):
    __slots__ = ()

    @property
    def curve(self) -> Curve:
        return curves.exponential(epsilon=self.epsilon)

    def pick(self, scores: Sequence[Fraction], entropy: Entropy | None) -> int:
        return choose(scores, self.scale, entropy)

    def probabilities(self, scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        weights = np.exp(-self._in_scales(scores))
        return np.asarray(weights / weights.sum())

    def overtakes(self, *, gap: float) -> float:
        """The probability that the lower of two candidates wins: 1/(1 + e^(gap/scale))."""
        p = math.exp(-curve_arguments.not_negative("gap", gap) / float(self.scale))
        return p / (1 + p)

    def gap(self, *, miss: float, candidates: int) -> float:
        return exponential_gap(rational_parameters.up(self.scale), candidates - 1, miss)


@final
class Exponential(_ExponentialSelection):
    """The exponential mechanism: candidate i with probability exactly ∝ e^(ε u_i / 2Δ).

    For all neighbours D, D′ the log-likelihood ratio of an answer is (ε/2Δ)(u_i(D) - u_i(D′)) plus a constant, so over
    all answers it spans at most ε: the mechanism is ε-bounded range, which composes better than ε-DP (Dong, Durfee &
    Rogers 2020). The same law as the largest u_i plus Gumbel noise.

    P(score <= best - v) <= n e^(-vε/2Δ) for n candidates (McSherry & Talwar 2007); `error` is the exact worst case.

    >>> from deniable import mechanisms
    >>> choose = mechanisms.Exponential(sensitivity=1, epsilon=0.5, candidates=3)
    >>> choose.probabilities([0, 1, 3]).round(4)
    array([0.2272, 0.2918, 0.481 ])
    >>> choose.release([0, 1, 3]) in (0, 1, 2)
    True
    >>> round(choose.error(confidence=0.95), 3)
    14.55
    """

    __slots__ = ()


@final
class MonotoneExponential(_ExponentialSelection):
    """The exponential mechanism for monotone scores: candidate i with probability ∝ e^(ε u_i / Δ), exactly.

    For all neighbours D, D′ whose scores all move the same way, by at most Δ: the differences u_i(D) - u_i(D′) lie in
    [0, Δ] or all in [-Δ, 0], so the loss spans at most ε without the factor 1/2 (McSherry & Talwar 2007, Dong, Durfee &
    Rogers 2020). For other scores this costs up to 2ε.

    >>> from deniable.mechanisms.selection import MonotoneExponential
    >>> MonotoneExponential(sensitivity=1, epsilon=0.5).probabilities([0, 1, 3]).round(4)
    array([0.1402, 0.2312, 0.6285])
    """

    __slots__ = ()
    span = 1


class _NoisySelection(Selection):
    """The largest score plus noise."""

    __slots__ = ()

    @property
    def curve(self) -> Curve:
        return path_curve(self.span * self.sensitivity / self.scale)

    @abstractmethod
    def race(self, scores: Sequence[Fraction], winners: int, entropy: Entropy | None) -> Race:
        """Scores plus noise: all that may be among the `winners` largest."""

    def pick(self, scores: Sequence[Fraction], entropy: Entropy | None) -> int:
        return highest(self.race(scores, 1, entropy), entropy)


class _FlippingSelection(_NoisySelection):
    __slots__ = ()

    def race(self, scores: Sequence[Fraction], winners: int, entropy: Entropy | None) -> Race:
        # The same law as the coins (Ding et al. 2021), without a coin for each score: the number of coins until the
        # first heads could be measured by a clock.
        return exponential_race(scores, self.scale, winners, entropy)

    def probabilities(self, scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        # Give each candidate a uniform time: P(i) = p_i ∫₀¹ Π_{j≠i} (1 - p_j t) dt, because each other one comes later,
        # or came and was rejected. Gauss-Legendre integrates these polynomials exactly.
        p = np.exp(-self._in_scales(scores))
        nodes, weights = np.polynomial.legendre.leggauss(len(p) // 2 + 1)
        left = 1 - np.outer((nodes + 1) / 2, p)
        others = np.array([np.prod(np.delete(left, i, axis=1), axis=1) @ weights / 2 for i in range(len(p))])
        return np.asarray(p * others)

    def overtakes(self, *, gap: float) -> float:
        """The probability that the lower of two candidates wins: e^(-gap/scale)/2."""
        return math.exp(-curve_arguments.not_negative("gap", gap) / float(self.scale)) / 2

    def failure(self, gap: float, candidates: int) -> float:
        """1 - (1 - (1-p)^n)/(np) with p = e^(-gap/scale): one candidate is best and all others lie exactly `gap` below
        it.
        """
        p = math.exp(-gap / float(self.scale))
        if candidates * p < 1e-6:  # (n-1)p/2 is always an upper bound, and here the exact form would cancel
            return (candidates - 1) * p / 2
        return max(0.0, 1 + math.expm1(candidates * math.log1p(-p)) / (candidates * p)) if p < 1 else 1 - 1 / candidates


@final
class PermuteAndFlip(_FlippingSelection):
    """Permute and flip: in random order, the first candidate whose coin of e^(-ε(best - u_i)/2Δ) shows heads, exactly.

    For all neighbours D, D′: ε-DP (McKenna & Sheldon 2020), but NOT ε-bounded range. Its curve is that of Laplace noise
    with the same ε (`path_curve`), exactly: the difference of two exponential variables is Laplace noise. Never worse
    than the exponential mechanism at equal ε, and up to twice as accurate; if many selections are composed and δ > 0,
    the exponential mechanism has the better curve. The same law as the largest u_i plus exponential noise (Ding et al.
    2021).

    >>> from deniable import mechanisms
    >>> mechanisms.PermuteAndFlip(sensitivity=1, epsilon=0.5).probabilities([0, 1, 3]).round(4)
    array([0.1884, 0.2555, 0.5561])
    """

    __slots__ = ()


@final
class MonotonePermuteAndFlip(_FlippingSelection):
    """Permute and flip for monotone scores: coins of e^(-ε(best - u_i)/Δ).

    For all neighbours D, D′ whose scores all move the same way, by at most Δ: ε-DP (McKenna & Sheldon 2020), with the
    curve of Laplace noise. For other scores this costs up to 2ε.

    >>> from deniable.mechanisms.selection import MonotonePermuteAndFlip
    >>> MonotonePermuteAndFlip(sensitivity=1, epsilon=0.5).probabilities([0, 1, 3]).round(4)
    array([0.0979, 0.1703, 0.7319])
    """

    __slots__ = ()
    span = 1


class _LaplaceSelection(_NoisySelection):
    __slots__ = ()

    def race(self, scores: Sequence[Fraction], winners: int, entropy: Entropy | None) -> Race:
        return laplace_race(scores, self.scale, winners, entropy)

    def probabilities(self, scores: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        # P(i) = ∫ f(x - u_i) Π_{j≠i} F(x - u_j) dx, by Gauss-Legendre between the kinks. Values more than 60 scales
        # away from the best score add less than 1e-25.
        below = -self._in_scales(scores)
        edges = np.unique(np.concatenate((np.linspace(-60, 60, 121), below[below > -60])))
        nodes, weights = np.polynomial.legendre.leggauss(16)
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half * (1 + nodes)).ravel()
        distance = x[:, None] - below[None, :]
        tail = np.exp(-np.abs(distance)) / 2
        log_cdf = np.log(np.where(distance > 0, 1 - tail, tail))
        win = np.exp(log_cdf.sum(axis=1)[:, None] - log_cdf) * tail
        return np.asarray((half * weights).ravel() @ win)

    def overtakes(self, *, gap: float) -> float:
        """The probability that the lower of two candidates wins: (1 + gap/(2 scale)) e^(-gap/scale)/2."""
        d = curve_arguments.not_negative("gap", gap) / float(self.scale)
        return (1 + d / 2) * math.exp(-d) / 2


@final
class NoisyMax(_LaplaceSelection):
    """Report noisy max: the index of the largest u_i + Laplace(2Δ/ε), for any scores of sensitivity Δ, exactly.

    For all neighbours D, D′: ε-DP. Fix the noise of all others; candidate i wins if its own noise passes a threshold
    that moves by at most 2Δ between D and D′, and a Laplace tail shifted by 2Δ shrinks by at most e^ε (Dwork & Roth
    2014, section 3.3, with the factor 2 that general scores need). Its curve is at most that of Laplace noise with the
    same ε (`path_curve`). Publish only the index: the winning noisy score costs as much again.

    >>> from deniable import mechanisms
    >>> mechanisms.NoisyMax(sensitivity=1, scale=1).curve.epsilon(delta=0)
    2.0
    >>> mechanisms.MonotoneNoisyMax(sensitivity=1, scale=1).curve.epsilon(delta=0)
    1.0
    """

    __slots__ = ()


@final
class MonotoneNoisyMax(_LaplaceSelection):
    """Report noisy max for counts and other monotone scores: the index of the largest u_i + Laplace(Δ/ε), exactly.

    For all neighbours D, D′ whose scores all move the same way, by at most Δ: ε-DP, because then the threshold moves by
    at most Δ (Dwork & Roth 2014, Claim 3.9). Also if only one score can change. For other scores this costs up to 2ε:
    if scores 8 apart become 6 apart, the probability of the second changes by a factor 5.91 > e at ε = 1.

    >>> from deniable import mechanisms
    >>> mechanisms.MonotoneNoisyMax(sensitivity=1, epsilon=1).overtakes(gap=1)
    0.27590958087858...
    """

    __slots__ = ()
    span = 1


# -- several winners -------------------------------------------------------------------------------------------------


def _room(selector: Selection, count: int) -> int:
    """The number of winners, checked against the number of candidates."""
    wanted = curve_arguments.integer("count", count, 1)
    if selector.candidates is not None and wanted > selector.candidates:
        raise InvalidParameter("count", wanted, f"there are only {selector.candidates} candidates")
    return wanted


def _few(scores: Sequence[Fraction], count: int) -> None:
    if (orders := math.perm(len(scores), count)) > laws.MOST_TOLD:
        raise InvalidOperation(
            f"{orders:,} orders are too many to list; give fewer candidates, or look at what an "
            "attacker can do with them: plots.tradeoff(mechanism.curve)"
        )


def _enough(scores: Sequence[Fraction], count: int) -> None:
    if len(scores) < count:
        raise input_values.refused(f"must have at least {count} scores, one for each candidate")


@final
@dataclass(frozen=True, slots=True)
class TopK(Mechanism):
    """The indices of `count` candidates with high scores, best first, by peeling: pick one, remove it, pick again.

    For all neighbours D, D′: selector.curve ** count, because each pick is made by the selector from candidates that
    the earlier picks determine. With the exponential mechanism this has exactly the law of adding Gumbel noise to each
    score once and reporting the `count` largest (Durfee & Rogers 2019), and its curve is the best for δ > 0.

    >>> from deniable import mechanisms
    >>> top = mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=0.1), count=3)
    >>> round(top.curve.epsilon(delta=0), 9)
    0.3
    >>> len(set(top.release([5, 2, 8, 9, 1])))
    3
    """

    selector: Selection
    _: KW_ONLY
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.selector, Selection):
            raise InvalidParameter("selector", self.selector, "must be a selection mechanism, such as Exponential(...)")
        object.__setattr__(self, "count", _room(self.selector, self.count))

    @property
    def curve(self) -> Curve:
        return self.selector.curve**self.count

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[int, ...]:
        """The indices, in the order in which they were picked."""
        source = checked_entropy(entropy)
        left = dict(enumerate(exact_scores(value, self.selector.candidates)))
        _enough(list(left.values()), self.count)
        winners = []
        for _ in range(self.count):
            indices = list(left)
            winners.append(indices[self.selector.pick(list(left.values()), source)])
            del left[winners[-1]]
        return tuple(winners)

    def law(self, value: Any) -> Masses:
        """Masses on the orders of the winners. Raises InvalidOperation if there are too many."""
        scores = exact_scores(value, self.selector.candidates)
        _enough(scores, self.count)
        _few(scores, self.count)
        # The selector's number of candidates is about all scores, not about the remaining ones.
        picking = type(self.selector)(sensitivity=self.selector.sensitivity, scale=self.selector.scale)
        found: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(self.count):
            further: dict[tuple[int, ...], float] = {}
            for winners, mass in found.items():
                left = [i for i in range(len(scores)) if i not in winners]
                picks = picking.probabilities([scores[i] for i in left])
                further |= {(*winners, i): mass * float(p) for i, p in zip(left, picks, strict=True)}
            found = further
        return laws.masses(list(found), list(found.values()))

    def error(self, *, confidence: float) -> float:
        """A bound on the distance of the j-th winner's score from the j-th best, for every j at once, with probability
        at least `confidence`.
        """
        # The best remaining score before pick j is at least the j-th best of all. Union bound over the picks.
        miss = (1 - curve_arguments.inner_probability("confidence", confidence)) / self.count
        return self.selector.gap(miss=miss, candidates=_known(self.selector))


@final
@dataclass(frozen=True, slots=True)
class OneShotTopK(Mechanism):
    """The indices of the `count` largest noisy scores, best first: the selector's noise is added once.

    For all neighbours D, D′: (count × ε)-DP, where ε is the selector's. Let δ_i in [-Δ, Δ] be the move of score i (in
    [0, Δ] or [-Δ, 0] if monotone) and δ the largest of them. Add δ - δ_i, which lies in [0, 2Δ] (or [0, Δ]), to the
    noise of each winner: on D′ all winners' noisy scores are those on D plus δ, and no other rises by more, so the same
    candidates win in the same order; and the density of each winner's noise has changed by at most e^ε. This holds for
    Laplace and for exponential noise, and for any part of a move, so the curve is that of Laplace noise (`path_curve`).
    It needs one pass of noise instead of `count`; but it composes worse than peeling.

    >>> from deniable.mechanisms.selection import MonotonePermuteAndFlip, OneShotTopK
    >>> top = OneShotTopK(MonotonePermuteAndFlip(sensitivity=1, epsilon=0.1), count=3)
    >>> round(top.curve.epsilon(delta=0), 9)
    0.3
    """

    selector: _NoisySelection
    _: KW_ONLY
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.selector, _NoisySelection):
            remedy = "for Exponential, TopK has the law of one-shot Gumbel noise already"
            raise InvalidParameter("selector", self.selector, "must be PermuteAndFlip(...), NoisyMax(...)", remedy)
        object.__setattr__(self, "count", _room(self.selector, self.count))

    @property
    def curve(self) -> Curve:
        selector = self.selector
        return path_curve(self.count * selector.span * selector.sensitivity / selector.scale)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[int, ...]:
        """The indices of the `count` chosen candidates, largest noisy score first."""
        source = checked_entropy(entropy)
        scores = exact_scores(value, self.selector.candidates)
        _enough(scores, self.count)
        race = self.selector.race(scores, self.count, source)
        winners = []
        for _ in range(self.count):
            winners.append(highest(race, source))
            del race[winners[-1]]
        return tuple(winners)

    def law(self, value: Any) -> Masses:
        """Masses on the orders of the winners, to about 1e-12. Raises InvalidOperation if there are too many."""
        scores = exact_scores(value, self.selector.candidates)
        _enough(scores, self.count)
        _few(scores, self.count)
        scaled = np.array([float((score - max(scores)) / self.selector.scale) for score in scores])
        two_sided = isinstance(self.selector, _LaplaceSelection)
        found = laws.orders(scaled, self.count, two_sided=two_sided)
        return laws.masses(list(found), list(found.values()))

    def error(self, *, confidence: float) -> float:
        """A bound on the distance of the j-th winner's score from the j-th best, for every j at once, with probability
        at least `confidence`.
        """
        # If the j-th winner misses, then one of the j truly best did not win before, and was overtaken by it.
        pairs = self.count * (_known(self.selector) - 1)
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        return smallest_gap(
            lambda gap: pairs * self.selector.overtakes(gap=gap), miss, rational_parameters.up(self.selector.scale)
        )
