"""Above or below a threshold: many queries, of which only the few positive answers are paid for.

A run has one noisy threshold. Each query's noisy answer is compared with this threshold. An answer "below" costs
nothing more; after the last positive answer that was paid for, the run is over and refuses further queries. The next
query may depend on all answers so far.

    mechanism                  positives   noise on the threshold   noise on an answer      curve
    `AboveThreshold`           1           Laplace(2Δ/ε)            Laplace(4Δ/ε)           laplace(1/ε)
    `SparseVector`             c           Laplace(Δ/ε₁)            Laplace(2cΔ/ε₂)         laplace(1/(ε₁ + ε₂))
    `Monotone...`              1 or c      the same                 half of that            the same

The curve is that of Laplace noise with the same ε, because every part x of a move costs xε: `selection.path_curve`.
It also holds for questions that depend on earlier answers: each may get a value between those of two neighbours.

The answers are above / below only: a noisy value would cost more, and the classic mistakes (no fresh threshold noise on
a restart, noise that does not grow with c, continuing after the last positive, publishing values) each void the
guarantee (Lyu, Su & Li 2017). "Nothing was above" is an answer too.

Noise is exactly real-valued, drawn digit by digit until a comparison is decided (`exact_choice`), so integers, floats
and fractions are all compared exactly, and no answer ever equals the threshold.
"""

from __future__ import annotations

import math
import os
import threading
from abc import abstractmethod
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, final

import numpy as np

from deniable.curves import Curve, curve_arguments
from deniable.errors import BudgetExceeded, InvalidOperation
from deniable.mechanisms import input_values, laws, rational_parameters
from deniable.mechanisms.exact_choice import exceeds, laplace_noise
from deniable.mechanisms.laws import Masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.selection import SLACK, Number, path_curve
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

__all__ = ["AboveThreshold", "MonotoneAboveThreshold", "MonotoneSparseVector", "Run", "SparseVector"]

SHARE_STEPS: Final = 1024
"""ε is split between threshold and answers in this many parts: a rational approximation of the best split."""


@final
class Run:
    """One run of a threshold mechanism: ask until it is spent. Created by `mechanism.start()`, which is what costs.

    A run cannot be copied, pickled or used in a forked process: each copy would have the remaining positive answers,
    which were paid for once, and the same noisy threshold. All of these raise `InvalidOperation`. The mechanism itself
    can be copied and pickled, and starting it again costs its curve again. Threads may share a run.
    """

    __slots__ = ("_asked", "_entropy", "_left", "_lock", "_mechanism", "_process", "_threshold")

    def __init__(self, mechanism: _Threshold, entropy: Entropy | None) -> None:
        self._mechanism = mechanism
        self._entropy = entropy
        self._threshold = laplace_noise(mechanism.threshold, mechanism.threshold_scale, entropy)
        self._left = mechanism.positives
        self._asked = 0
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def positives_left(self) -> int:
        """How many more answers may be "above" before the run is over."""
        return self._left

    @property
    def asked(self) -> int:
        """The number of answered queries."""
        return self._asked

    @property
    def spent(self) -> bool:
        """Whether the run is over: it has answered as many values above the threshold as it may."""
        return self._left == 0

    def ask(self, value: Any) -> bool:
        """Whether the noisy value is above the noisy threshold. `value` is a number of the declared sensitivity.

        Raises BudgetExceeded if the run is over, or after as many queries as declared.
        """
        if os.getpid() != self._process:
            raise InvalidOperation("a run cannot continue in a forked process; start() another there, at its own cost")
        number = Fraction(input_values.real(value))
        with self._lock:
            if self._left == 0:
                raise BudgetExceeded(
                    "one more question", "no positive answer", "start() another run: it costs the curve once more"
                )
            if self._asked == self._mechanism.questions:
                left = f"none of {self._asked} that were declared"
                raise BudgetExceeded("one more question", left, "declare more: questions=")
            answer = laplace_noise(number, self._mechanism.answer_scale, self._entropy)
            is_above = exceeds(answer, self._threshold, self._entropy)
            self._left -= is_above
            self._asked += 1
        return is_above

    def __repr__(self) -> str:
        state = "spent" if self.spent else f"{self._left} of {self._mechanism.positives} positives left"
        return f"<Run of {self._mechanism!r}: {self._asked} answered, {state}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidOperation(
            "a run cannot be copied or pickled: each copy would have the remaining positive answers, paid for "
            "once; copy the mechanism and start() it, at its own cost"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Threshold(Mechanism):
    """Base of the threshold mechanisms."""

    threshold: Fraction
    sensitivity: Fraction
    level: Fraction
    """ε, exactly."""
    positives: int
    questions: int | None
    span: ClassVar[int] = 2
    """Between neighbours, the distance of an answer from the threshold changes by at most span × sensitivity."""

    def _fill(self, threshold: Any, sensitivity: Any, epsilon: Any, positives: int, questions: int | None) -> None:
        self._settle(
            threshold=rational_parameters.finite("threshold", threshold),
            sensitivity=rational_parameters.moved(sensitivity),
            level=rational_parameters.epsilon(epsilon),
            positives=curve_arguments.integer("positives", positives, 1),
            questions=None if questions is None else curve_arguments.integer("questions", questions, 1),
        )

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """The part of ε that is spent on the noise of the threshold."""

    @property
    def epsilon(self) -> float:
        """ε, rounded up."""
        return rational_parameters.up(self.level)

    @property
    def curve(self) -> Curve:
        return path_curve(self.level)

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the Laplace noise on the threshold: Δ/ε₁, exactly."""
        return self.sensitivity / (self.level * self.share)

    @property
    def answer_scale(self) -> Fraction:
        """The scale of the Laplace noise on each answer: 2cΔ/ε₂ (cΔ/ε₂ if monotone), exactly."""
        return self.span * self.positives * self.sensitivity / (self.level * (1 - self.share))

    def start(self, *, entropy: Entropy | None = None) -> Run:
        """A run, for queries that depend on the answers so far. Each run costs the curve once, whatever is asked."""
        return Run(self, checked_entropy(entropy))

    def found(self, asked: Iterable[Any], entropy: Entropy | None) -> list[int]:
        """The indices of the positive answers to a stream of values, which is read no further than needed."""
        if isinstance(asked, str | bytes | dict | set) or not isinstance(asked, Iterable):
            raise input_values.refused("must be a list or another stream of numbers, one for each question")
        if input_values.is_table(asked) or getattr(asked, "ndim", 1) == 0:
            raise input_values.refused("must be one column of numbers, one for each question", input_values.ONE_COLUMN)
        if self.questions is not None and isinstance(asked, Sized) and len(asked) > self.questions:
            raise input_values.refused(
                f"must have at most {self.questions} values, as declared", "declare more: questions="
            )
        run, above = Run(self, entropy), []
        for index, value in enumerate(asked):
            if run.ask(value):
                above.append(index)
            if run.spent:
                break
        return above

    def law(self, value: Any) -> Masses:
        """Masses on the answers of `release`, to about 1e-12. Raises InvalidOperation if there are too many answers.

        Given the noisy threshold T, queries are above or below independently. So the probability of each answer is the
        mean, over T, of a product, computed by Gauss-Legendre quadrature between the kinks.
        """
        asked = [float(Fraction(input_values.real(number))) for number in value]
        count = sum(math.comb(len(asked), above) for above in range(self.positives + 1))
        if not asked or count > laws.MOST_TOLD:
            raise InvalidOperation(
                f"{count:,} answers are too many to list; ask about fewer questions, or look at what an "
                "attacker can do with them: plots.tradeoff(mechanism.curve)"
            )
        middle, wide, narrow = float(self.threshold), float(self.threshold_scale), float(self.answer_scale)
        places, weights = _nodes([middle, *asked], middle, 40 * wide, 4 * min(wide, narrow))
        seen = weights * np.exp(-np.abs(places - middle) / wide) / (2 * wide)
        below = [_laplace_cdf((places - number) / narrow) for number in asked]
        found: dict[tuple[int, ...], float] = {}
        left: list[tuple[tuple[int, ...], Any]] = [((), seen)]
        for index, chance in enumerate(below):
            split = [(above, mass * chance) for above, mass in left]
            for above, mass in left:
                now = (*above, index)
                if len(now) == self.positives:
                    found[now] = float(np.sum(mass * (1 - chance)))
                else:
                    split.append((now, mass * (1 - chance)))
            left = split
        found |= {above: float(np.sum(mass)) for above, mass in left}
        return laws.masses(*self._as_released(dict(sorted(found.items()))))

    @abstractmethod
    def _as_released(self, found: dict[tuple[int, ...], float]) -> tuple[list[Any], list[float]]:
        """The answers in the form that `release` returns, with their probabilities."""

    def error(self, *, confidence: float) -> float:
        """A bound that holds for all declared `questions` at once with probability at least `confidence`: the value of
        an answer "above" is at least threshold - error, and the value of an answer "below" at most threshold + error.
        """
        if self.questions is None:
            raise InvalidOperation(f"the number of questions is not known; give {type(self).__name__}(..., questions=)")
        # An answer is wrong by more than a + b only if the threshold's noise is larger than a (probability e^(-a/s)) or
        # an answer's noise goes in the wrong direction by more than b (e^(-b/t)/2 each). The best split of `miss`
        # between the two is in proportion to s and t.
        miss = 1 - curve_arguments.inner_probability("confidence", confidence)
        s, t = float(self.threshold_scale), float(self.answer_scale)
        a = s * math.log((s + t) / (miss * s))
        b = t * max(0.0, math.log(self.questions * (s + t) / (2 * miss * t)))
        return (a + b) * SLACK

    def __repr__(self) -> str:
        several = f", positives={self.positives}" if isinstance(self, _Several) else ""
        asked = f", questions={self.questions}" if self.questions is not None else ""
        threshold, sensitivity, epsilon = (
            rational_parameters.short(v) for v in (self.threshold, self.sensitivity, self.level)
        )
        return (
            f"{type(self).__name__}(threshold={threshold!r}, sensitivity={sensitivity!r}, epsilon={epsilon!r}"
            f"{several}{asked})"
        )


def _nodes(kinks: list[float], middle: float, reach: float, step: float) -> tuple[Any, Any]:
    """Nodes and weights of a quadrature around `middle`, in pieces no longer than `step` that end at the kinks."""
    ends = sorted({middle - reach, middle + reach, *(kink for kink in kinks if abs(kink - middle) < reach)})
    inner = [np.linspace(a, b, math.ceil((b - a) / step) + 1)[:-1] for a, b in pairwise(ends)]
    cuts = np.concatenate([*inner, ends[-1:]])
    node, weight = np.polynomial.legendre.leggauss(24)
    half, centre = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    return (centre[:, None] + half[:, None] * node).ravel(), (half[:, None] * weight).ravel()


def _laplace_cdf(z: Any) -> Any:
    low = np.exp(-np.abs(z)) / 2
    return np.where(z < 0, low, 1 - low)


class _Once(_Threshold):
    __slots__ = ()

    def __init__(
        self, *, threshold: Number, sensitivity: Number, epsilon: Number, questions: int | None = None
    ) -> None:
        self._fill(threshold, sensitivity, epsilon, 1, questions)

    @property
    def share(self) -> Fraction:
        return Fraction(1, 2)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> int | None:
        """The index of the first value above the threshold; None if no value is above it.

        `value` is a list or stream of values, one for each query, and is read only up to the first value that is above.
        """
        above = self.found(value, checked_entropy(entropy))
        return above[0] if above else None

    def _as_released(self, found: dict[tuple[int, ...], float]) -> tuple[list[Any], list[float]]:
        nothing = found.pop(())
        return [*(above[0] for above in found), None], [*found.values(), nothing]


@final
class AboveThreshold(_Once):
    """The first of many queries whose answer is above a threshold (the sparse vector technique, once).

    For all neighbours D, D′, for any number of queries of sensitivity Δ, each chosen after the answers before it: with
    T = threshold + Laplace(2Δ/ε), query i is above if f_i + Laplace(4Δ/ε) > T; the first one above ends the run: ε-DP
    (Dwork & Roth 2014, Theorem 3.23). To continue after a positive answer, start() again: c runs cost curve ** c.

    >>> from deniable import mechanisms
    >>> alarm = mechanisms.AboveThreshold(threshold=100, sensitivity=1, epsilon=1, questions=1000)
    >>> alarm.release([3, 8, 250, 5])
    2
    >>> run = alarm.start()
    >>> run.ask(-100), run.ask(400), run.spent
    (False, True, True)
    >>> round(alarm.error(confidence=0.95), 1)
    46.7
    """

    __slots__ = ()


@final
class MonotoneAboveThreshold(_Once):
    """Above threshold for counts and other monotone questions: half the noise on each answer.

    For all neighbours D, D′ between which all questions' values move the same way, by at most Δ: with
    T = threshold + Laplace(2Δ/ε) and f_i + Laplace(2Δ/ε), ε-DP (Lyu, Su & Li 2017, section 4).

    >>> from deniable.mechanisms.threshold import MonotoneAboveThreshold
    >>> MonotoneAboveThreshold(threshold=100, sensitivity=1, epsilon=1).answer_scale
    Fraction(2, 1)
    """

    __slots__ = ()
    span = 1


class _Several(_Threshold):
    __slots__ = ()

    def __init__(
        self,
        *,
        threshold: Number,
        sensitivity: Number,
        epsilon: Number,
        positives: int,
        questions: int | None = None,
    ) -> None:
        self._fill(threshold, sensitivity, epsilon, positives, questions)

    @property
    def share(self) -> Fraction:
        # The variance of a comparison is least at ε₁ : ε₂ = 1 : (2c)^(2/3). Any split has the same guarantee.
        weight = round(SHARE_STEPS * (self.span * self.positives) ** (2 / 3))
        return Fraction(SHARE_STEPS, SHARE_STEPS + weight)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[int, ...]:
        """The indices of the values above the threshold, as many as were paid for. `value` is a list or stream of
        values, one for each query, and is read only up to the last of them.
        """
        return tuple(self.found(value, checked_entropy(entropy)))

    def _as_released(self, found: dict[tuple[int, ...], float]) -> tuple[list[Any], list[float]]:
        return list(found), list(found.values())


@final
class SparseVector(_Several):
    """Which of many queries are above a threshold, up to `positives` of them, with one noisy threshold for all.

    For all neighbours D, D′, for any number of queries of sensitivity Δ, each chosen after the answers before it: with
    T = threshold + Laplace(Δ/ε₁), query i is above if f_i + Laplace(2cΔ/ε₂) > T; the c-th one above ends the run: (ε₁ +
    ε₂)-DP (Lyu, Su & Li 2017, Algorithm 1). ε₁ : ε₂ is about 1 : (2c)^(2/3), the most accurate split. More accurate
    than c runs of `AboveThreshold` at ε/c each.

    >>> from deniable import mechanisms
    >>> several = mechanisms.SparseVector(threshold=1000, sensitivity=1, epsilon=1, positives=2)
    >>> several.release([3, 2500, 8, 1900, 5000])
    (1, 3)
    """

    __slots__ = ()


@final
class MonotoneSparseVector(_Several):
    """The sparse vector for counts and other monotone questions: half the noise on each answer.

    For all neighbours D, D′ between which all questions' values move the same way, by at most Δ: with
    T = threshold + Laplace(Δ/ε₁) and f_i + Laplace(cΔ/ε₂), (ε₁ + ε₂)-DP (Lyu, Su & Li 2017, section 4).

    >>> from deniable.mechanisms.threshold import MonotoneSparseVector
    >>> MonotoneSparseVector(threshold=1000, sensitivity=1, epsilon=1, positives=2).release([3, 2500, 8, 1900])
    (1, 3)
    """

    __slots__ = ()
    span = 1
