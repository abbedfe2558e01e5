"""Private tuning: run a training with candidates drawn at random, a secret random number of times, and keep the best.

Looking at several runs and publishing the best one reveals more than one run does: which run won depends on the data.
With a random number of repeats the price is bounded, and nearly independent of how many there are (Liu & Talwar 2019;
Papernot & Steinke 2022). The theorems and proofs are in `deniable.curves.atoms.repeated_selection` and
`poisson_selection`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.ledger import Ledger
    from deniable.noise import Entropy

__all__ = ["PoissonRepeats", "Repeats", "Tuned", "tune"]

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")

SECRET = "how often the training was repeated, how long that took, and all results but the best stay secret"
SCORED = "scores are computed from the results, and from public data, alone"


@final
@dataclass(frozen=True, slots=True)
class Repeats:
    """The law of the number of repeats, K >= 1: truncated negative binomial with `shape` in (-1, 1] and `gamma`.

    `geometric` costs about three times the ε of one run, `logarithmic` twice; the smaller the shape, the cheaper, and
    the more often K is 1.

    >>> Repeats.geometric(mean=10)
    Repeats(shape=1.0, gamma=0.1)
    >>> round(Repeats.logarithmic(mean=10).gamma, 3)
    0.027
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        shape = curve_arguments.finite("shape", self.shape)
        if not -1 < shape <= 1:
            raise InvalidParameter("shape", shape, "must be above -1 and at most 1", "1 is the geometric law")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", curve_arguments.inner_probability("gamma", self.gamma))

    @classmethod
    def geometric(cls, *, mean: float) -> Repeats:
        """P(K = k) = γ(1 - γ)^(k - 1), with mean 1/γ > 1."""
        return cls(1.0, 1 / _above_one(mean))

    @classmethod
    def logarithmic(cls, *, mean: float) -> Repeats:
        """P(K = k) ∝ (1 - γ)^k/k, with this mean > 1."""
        wanted = _above_one(mean)
        low, high = 1e-290, 1.0
        for _ in range(2000):
            middle = math.sqrt(low * high)
            if not low < middle < high:
                break
            low, high = (middle, high) if cls(0.0, middle).mean > wanted else (low, middle)
        return cls(0.0, low)

    @property
    def mean(self) -> float:
        """The average number of repeats."""
        from deniable.curves.atoms.repeated_selection import mean_repeats

        return mean_repeats(shape=self.shape, gamma=self.gamma)

    def curve(self, one_run: Curve) -> Curve:
        """The curve of the best of the repeats, from the curve of one run."""
        from deniable import curves

        return curves.best_of_repeats(one_run, shape=self.shape, gamma=self.gamma)

    def drawn(self, *, entropy: Entropy | None = None) -> int:
        """One number of repeats, with exactly this law.

        A geometric K is kept with probability Π_{0 < l < K} (l + η)/(l + 1), and else drawn again.
        """
        from deniable import noise

        stop, shape = Fraction(self.gamma), Fraction(self.shape)
        while True:
            count, is_kept = 1, True
            while not noise.bernoulli(p=stop, entropy=entropy):
                if is_kept and shape < 1:
                    is_kept = noise.bernoulli(p=(count + shape) / (count + 1), entropy=entropy)
                count += 1
            if is_kept:
                return count


@final
@dataclass(frozen=True, slots=True)
class PoissonRepeats:
    """A Poisson number of repeats with this mean. With probability e^-mean nothing runs.

    The number stays closer to its mean than with `Repeats`, but the cost is higher and grows with the mean.

    >>> PoissonRepeats(mean=5)
    PoissonRepeats(mean=5.0)
    """

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", curve_arguments.positive("mean", self.mean))

    def curve(self, one_run: Curve) -> Curve:
        """The curve of the best of the repeats, from the curve of one run."""
        from deniable import curves

        return curves.best_of_poisson_repeats(one_run, mean=self.mean)

    def drawn(self, *, entropy: Entropy | None = None) -> int:
        """One number of repeats, with exactly this law."""
        from deniable import noise

        return noise.poisson(rate=self.mean, entropy=entropy)


@final
@dataclass(frozen=True, slots=True)
class Tuned(Generic[Candidate, Result]):
    """The best of the repeated runs. Only this may be released; the other results are discarded.

    Candidate and result are None if nothing ran, which only `PoissonRepeats` allows.
    """

    candidate: Candidate | None
    result: Result | None
    score: float
    guarantee: Guarantee
    """The guarantee of candidate, result and score together."""


def tune(
    candidates: Sequence[Candidate],
    *,
    run: Callable[[Candidate], Result],
    score: Callable[[Result], float],
    repeats: Repeats | PoissonRepeats,
    guarantee: Guarantee,
    ledger: Ledger | None = None,
    delta: float | None = None,
    entropy: Entropy | None = None,
) -> Tuned[Candidate, Result]:
    """Draw a number of repeats; each time draw one of the candidates and run it; keep the result with the best score.

    `run(candidate)` trains with fresh randomness and returns the result: a trainer, an estimator, anything. `guarantee`
    holds for one run, whichever the candidate. If results have a guarantee of their own (`guarantee` or `guarantee_`),
    it must have the same unit and a curve that this one covers. `score(result)` is a number, the higher the better; it
    may use public data, and the result, which may contain a noisy score if its noise is part of the guarantee. A score
    that is NaN counts as the lowest.

    `ledger` is charged for the whole search before the first run, and `delta` is the part of its δ to spend; so a run
    must not charge it again. A search that fails stays charged.

    Promise: for all neighbouring datasets, the returned value can be distinguished at most as well as `repeats.curve`
    of one run's curve allows. (Drawing a candidate first is a mixture over public draws, which the same curve covers.)

    >>> import deniable as dn
    >>> from deniable import learn
    >>> counts = dn.Laplace(sensitivity=1, epsilon=0.5)
    >>> one = Guarantee(counts.curve, dn.Unit.row())
    >>> found = learn.tune(
    ...     [10, 20],
    ...     run=lambda bound: (bound, counts.release(12)),
    ...     score=lambda result: -abs(result[1] - result[0]),
    ...     repeats=learn.Repeats.geometric(mean=5),
    ...     guarantee=one,
    ... )
    >>> found.guarantee.curve.epsilon(delta=0) <= 1.5
    True
    """
    from deniable import noise

    if not isinstance(candidates, Sequence) or not len(candidates):
        raise InvalidParameter("candidates", type_of(candidates), "must be a sequence with at least one candidate")
    if not isinstance(guarantee, Guarantee):
        rule = "must be the Guarantee of one run"
        raise InvalidParameter("guarantee", type_of(guarantee), rule, "for instance plan.guarantee()")
    if not isinstance(repeats, Repeats | PoissonRepeats):
        rule = "must be Repeats or PoissonRepeats"
        raise InvalidParameter("repeats", type_of(repeats), rule, "for instance Repeats.geometric(mean=10)")
    if ledger is not None:
        return _paid(ledger, delta, candidates, run, score, repeats, guarantee, entropy)
    words = dict.fromkeys((*guarantee.assumptions, SECRET, SCORED))
    best: tuple[float, Candidate, Result] | None = None
    for _ in range(repeats.drawn(entropy=entropy)):
        candidate = candidates[noise.uniform(below=len(candidates), entropy=entropy)]
        result = run(candidate)
        own = _own_guarantee(result)
        if own is not None:
            _check_covered(own, guarantee)
            words |= dict.fromkeys(own.assumptions)
        found = float(score(result))
        value = -math.inf if math.isnan(found) else found
        if best is None or value > best[0]:
            best = value, candidate, result
    whole = Guarantee(repeats.curve(guarantee.curve), guarantee.unit, assumptions=tuple(words))
    return Tuned(None, None, -math.inf, whole) if best is None else Tuned(best[1], best[2], best[0], whole)


def _paid(
    ledger: Ledger,
    delta: float | None,
    candidates: Sequence[Candidate],
    run: Callable[[Candidate], Result],
    score: Callable[[Result], float],
    repeats: Repeats | PoissonRepeats,
    guarantee: Guarantee,
    entropy: Entropy | None,
) -> Tuned[Candidate, Result]:
    """`tune`, charged to a ledger before the first run and sealed after the last."""
    from deniable.learn.plans import price_of

    whole = Guarantee(repeats.curve(guarantee.curve), guarantee.unit)
    cost = price_of(whole, ledger.budget, unit=ledger.unit, delta=delta)
    words = f"tuning: the best of {repeats!r} runs of {guarantee.curve.expression()}"[:1000]
    entry = ledger.reserve(cost, question=hashlib.sha256(words.encode()).hexdigest(), description=words)
    try:
        found = tune(candidates, run=run, score=score, repeats=repeats, guarantee=guarantee, entropy=entropy)
    except BaseException:
        ledger.fail(entry, "tuning")
        raise
    ledger.seal(entry, b"")
    return found


def _above_one(mean: float) -> float:
    value = curve_arguments.finite("mean", mean)
    if value <= 1:
        raise InvalidParameter("mean", value, "must be above 1: one run needs no tuning")
    return value


def _own_guarantee(result: Any) -> Guarantee | None:
    own = getattr(result, "guarantee", getattr(result, "guarantee_", None))
    return own if isinstance(own, Guarantee) else None


def _check_covered(own: Guarantee, claimed: Guarantee) -> None:
    if own.unit != claimed.unit:
        rule = f"is for {claimed.unit!r}, but the result of a run is for {own.unit!r}"
        raise InvalidParameter("guarantee", NOTHING, rule, "give the guarantee of one run")
    if own.curve != claimed.curve and not own.curve <= claimed.curve:
        rule = "the result of a run has a weaker guarantee than the one that was given for every run"
        raise InvalidOperation(f"{rule}; give tune(guarantee=) one that covers every candidate")
