"""`measure`: a certified lower bound on the privacy loss of a mechanism from its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.audit import binomial, event_search, foreign_frames, mechanism_runs, scores
from deniable.audit.answer_columns import Answers, SeenAnswers, plain
from deniable.audit.claim import Promise, some_delta
from deniable.audit.event_search import FOR_BAND, FOR_CLAIM, FOR_EPSILON, ChosenEvents, Sample
from deniable.audit.finding import Finding
from deniable.audit.scores import Score
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter

LEAST: Final = 100
"""The smallest number of trials."""
MOST: Final = 10**9
"""The largest number of trials: more answers would not fit into memory."""
PILOT: Final = 0.25
"""The share of trials for choosing the best pair of neighbours."""
SECONDS: Final = 600.0
"""The default time limit for all calls of the mechanism."""
FIRST_ROUND: Final = 1000
"""Trials of the first round of `until_decided`; each further round has twice as many."""
LEVELS: Final = 24
"""The number of ε at which the claim is evaluated."""
SPARE: Final = 0.01
"""The share of the error rate of `compare` for the case that one side has too few answers for its coins (`_coins`)."""
NEARLY: Final = 0.98
"""`until_decided` stops when it has certified this share of the claimed ε."""

Progress = mechanism_runs.Progress


@final
@dataclass(frozen=True, slots=True)
class Patterns:
    """Pairs of neighbours to search, from `patterns` or from any pairs."""

    pairs: tuple[tuple[Any, Any], ...]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def patterns(*, size: int, low: float = 0, high: float = 1) -> Patterns:
    """Pairs of lists of `size` numbers whose entries differ by at most high - low: patterns that have exposed faulty
    mechanisms for several queries of that sensitivity (Ding, Wang, Wang, Zhang & Kifer 2018).

    >>> [pair for pair in patterns(size=3)][0]
    ([0, 0, 0], [1, 0, 0])
    """
    n = curve_arguments.integer("size", size, 1)
    half, rest = n // 2, n - n // 2
    shapes = {
        "one up": ([low] * n, [high] + [low] * (n - 1)),
        "one down": ([high] * n, [low] + [high] * (n - 1)),
        "all up": ([low] * n, [high] * n),
        "one up, the rest down": ([low] + [high] * (n - 1), [high] + [low] * (n - 1)),
        "half up, half down": ([low] * half + [high] * rest, [high] * half + [low] * rest),
        "all up but the last": ([low] * n, [high] * (n - 1) + [low]),
        "half up": ([low] * n, [high] * half + [low] * rest),
        "last up, the rest down": ([high] * (n - 1) + [low], [low] * (n - 1) + [high]),
    }
    kept: dict[str, tuple[Any, Any]] = {}
    for one, other in shapes.values():
        if one != other:
            kept.setdefault(repr((one, other)), (one, other))
    return Patterns(tuple(kept.values()))


def measure(
    mechanism: Any,
    *,
    neighbours: tuple[Any, Any] | Patterns,
    claim: Curve | None = None,
    trials: int,
    confidence: float,
    delta: float = 0.0,
    likelihood_ratio: Callable[[Any], float] | None = None,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> Finding:
    """Certified lower bounds on the privacy loss between two neighbours, and whether they refute a claim.

    `mechanism` is a function of a value, or has `release(value)`; `many(value, count)`, if it exists, is faster.
    Answers may be of any type: numbers, arrays, tuples, strings, None; an exception counts as an answer. `claim` is the
    curve to refute, by default the mechanism's own. `trials` is the average number of calls for each neighbour; a fair
    coin chooses the neighbour of each call. `likelihood_ratio(answer)` is log P(answer | first)/P(answer | second), if
    it is known; otherwise good events are searched. `neighbours` are two values, or `patterns(...)`, whose worst pair
    is searched first. `seconds` limits the time of all calls.

    All statements of the finding together are wrong with probability at most 1 - confidence, for any number of trials:
    see `audit.binomial` for the proof. A finding that refutes nothing does not prove the claim.

    >>> from deniable import audit, mechanisms
    >>> noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
    >>> fair = audit.measure(noisy, neighbours=(0.0, 1.0), trials=50_000, confidence=1 - 1e-9)
    >>> fair.refuted, 0.8 < fair.epsilon <= 1.0
    (False, True)
    >>> audit.measure(noisy, neighbours=(0.0, 2.0), trials=20_000, confidence=0.999).refuted
    True
    """
    count, seconds = _count(trials), curve_arguments.positive("seconds", seconds)
    asked = _Question.of(_claim(mechanism, claim), delta, confidence, likelihood_ratio, count)
    if isinstance(neighbours, Patterns):
        spent = max(LEAST, int(count * PILOT / len(neighbours)))
        count = max(LEAST, int(count * (1 - PILOT)))
        worth = {
            i: asked.pilot(mechanism_runs.draw(mechanism, pair, 2 * spent, seconds=seconds), 2 * count)
            for i, pair in enumerate(neighbours)
        }
        neighbours = neighbours.pairs[max(worth, key=lambda i: worth[i])]
    pair = _pair(neighbours)
    sample = mechanism_runs.draw(mechanism, pair, 2 * count, seconds=seconds, progress=progress)
    return asked.judge(sample)


def compare(
    first: Any,
    second: Any,
    *,
    claim: Curve | None = None,
    confidence: float,
    delta: float = 0.0,
    likelihood_ratio: Callable[[Any], float] | None = None,
) -> Finding:
    """`measure` for answers that were collected elsewhere: independent answers for the first and for the second
    neighbour. A few answers are left out, so that the two counts have the distribution of fair coins.

    >>> import numpy as np
    >>> from deniable import audit, curves
    >>> rng = np.random.default_rng(1)
    >>> answers = rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000)
    >>> audit.compare(*answers, claim=curves.gaussian(mu=0.5), confidence=0.99).refuted
    True
    """
    sides = [_listed(name, side) for name, side in (("first", first), ("second", second))]
    available = min(len(side) for side in sides)
    whole = _Question.of(_claim(None, claim), delta, confidence, likelihood_ratio, _count(available, "answers"))
    asked = replace(whole, miss=whole.miss * (1 - SPARE))
    is_first = _coins(available, whole.miss * SPARE)
    rng, counts = np.random.default_rng(), (int(is_first.sum()), int((~is_first).sum()))
    answers = [_drawn(side, rng.permutation(len(side))[:count]) for side, count in zip(sides, counts, strict=True)]
    sample = Sample(Answers.of(mechanism_runs.merged(answers, is_first)), is_first)
    return replace(asked.judge(sample), confidence=confidence)


def _listed(name: str, side: Any) -> Any:
    side = foreign_frames.rows(side)
    is_one = side.ndim == 0 if isinstance(side, np.ndarray) else isinstance(side, str | bytes | Mapping)
    if is_one or not isinstance(side, Iterable):
        raise InvalidParameter(name, NOTHING, "must be a list or array of answers")
    return side if isinstance(side, np.ndarray) else list(side)


def _coins(available: int, miss: float) -> NDArray[np.bool_]:
    """Fair coins that choose the side of each answer, as many as there are answers for. With probability at most `miss`
    the first throw asks one side for more answers than there are; then all coins are thrown again.
    """
    low, high = available, 2 * available
    while high - low > 1:
        middle = (low + high) // 2
        is_safe = 2 * binomial.at_least(available + 1, middle, probability=0.5) <= miss
        low, high = (middle, high) if is_safe else (low, middle)
    rng = np.random.default_rng()
    while True:
        coins = rng.integers(0, 2, low).astype(np.bool_)
        if max(int(coins.sum()), low - int(coins.sum())) <= available:
            return coins


def _drawn(side: Any, places: Any) -> Any:
    return side[places] if isinstance(side, np.ndarray) else [side[int(i)] for i in places]


def until_decided(
    mechanism: Any,
    *,
    neighbours: tuple[Any, Any],
    claim: Curve | None = None,
    most: int,
    confidence: float,
    delta: float = 0.0,
    likelihood_ratio: Callable[[Any], float] | None = None,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> Finding:
    """Measure in rounds of doubling size. Stop when the claim is refuted, when nearly all of it is certified, or after
    `most` trials for each neighbour. The confidence is valid at any stopping time.

    Round k has the error rate (1 - confidence)/(k(k + 1)); these add up to 1 - confidence. Its event is chosen from
    earlier rounds and judged by its own answers. All rounds hold together, so the best one is returned.
    """
    count, pair, seconds = _count(most), _pair(neighbours), curve_arguments.positive("seconds", seconds)
    whole = _Question.of(_claim(mechanism, claim), delta, confidence, likelihood_ratio, count)
    size, spent, rounds = _round(FIRST_ROUND, count), 0, 0
    before: Sample | None = None
    best: Finding | None = None
    read: SeenAnswers | None = None
    while True:
        rounds += 1
        asked = replace(whole, miss=whole.miss / (rounds * (rounds + 1)))
        fresh = mechanism_runs.draw(mechanism, pair, 2 * size, seconds=seconds)
        spent += size
        if progress is not None:
            progress(spent, count)
        if before is None:
            found = asked.judge(fresh)
        else:
            third = len(before) // 3
            chosen = asked.search(before[:third], before[third:], len(fresh))
            found = asked.verdict(chosen, fresh, spent)
        read = fresh.answers.seen if read is None else read.joined(fresh.answers.seen)
        if best is None or found.refuted or (found.epsilon, found.seen) > (best.epsilon, best.seen):
            best = found
        if found.refuted or found.ratio >= NEARLY or spent >= count:
            return replace(best, confidence=confidence, trials=spent, read=read)
        before = fresh if before is None else _recent(before, fresh)
        size = _round(2 * size, count - spent)


def _round(size: int, left: int) -> int:
    """The trials of a round: all remaining ones, if the rest would be too small for a doubled round."""
    return size if left >= 3 * size else left


def _recent(before: Sample, fresh: Sample) -> Sample:
    """All answers so far, limited to the newest that a search can use."""
    joined = Sample(before.answers.joined(fresh.answers), np.concatenate([before.is_first, fresh.is_first]))
    return joined[-event_search.MOST_SEARCH :] if len(joined) > event_search.MOST_SEARCH else joined


# -- steps -----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Question:
    """The parameters of an audit, after validation."""

    claim: Curve | None
    promise: Promise | None
    delta: float
    miss: float
    own: Sequence[Score]

    @classmethod
    def of(
        cls, claim: Curve | None, delta: float, confidence: float, ratio: Callable[[Any], float] | None, trials: int
    ) -> _Question:
        level, miss = some_delta(delta), 1 - curve_arguments.inner_probability("confidence", confidence)
        if ratio is not None and not callable(ratio):
            raise InvalidParameter("likelihood_ratio", ratio, "must be a function of an answer")
        # No answers can certify an ε beyond log(2 trials).
        most = math.log(2 * trials)
        promise = None if claim is None else Promise.of(claim, most=most, read=LEVELS)
        return cls(claim, promise, level, miss, scores.given(ratio) if ratio is not None else ())

    def judge(self, sample: Sample) -> Finding:
        """Search for events with a part of the answers, and judge them with the rest."""
        taught, searched = event_search.parts(len(sample))
        judges = sample[searched:]
        chosen = self.search(sample[:taught], sample[taught:searched], len(judges))
        return replace(self.verdict(chosen, judges, len(sample) // 2), read=sample.answers.seen)

    def search(self, teach: Sample, choose: Sample, judges: int) -> ChosenEvents:
        return event_search.search(
            teach, choose, judges=judges, claim=self.promise, delta=self.delta, miss=self.miss, own=self.own
        )

    def pilot(self, sample: Sample, judges: int) -> float:
        """The expected result for a pair of neighbours, to compare pairs."""
        half = len(sample) // 2
        return self.search(sample[:half], sample[half:], judges).worth

    def verdict(self, chosen: ChosenEvents, judges: Sample, trials: int) -> Finding:
        tally = chosen.event.tally(judges)
        epsilon = tally.epsilon(delta=self.delta, miss=self.miss * FOR_EPSILON)
        shown = event_search.band(chosen.rulers, judges, self.miss * FOR_BAND)
        claimed, broken, breaking, refuted = math.inf, None, None, None
        if self.claim is not None and self.promise is not None:
            claimed = float(self.claim.epsilon(delta=self.delta))
            if chosen.breaking is not None:
                event, level = chosen.breaking
                allowed, counted = self.miss * FOR_CLAIM, event.tally(judges)
                p = counted.p_value(epsilon=level.epsilon, delta=level.delta, miss=allowed)
                broken, breaking = ((level, p), (event, counted)) if p <= allowed else (None, None)
            below = np.array(shown.beta) < self.promise.beta(shown.alpha)
            refuted = bool(epsilon > claimed or broken is not None or np.any(below))
        confidence = 1 - self.miss
        return Finding(
            epsilon,
            self.delta,
            refuted,
            confidence,
            chosen.event,
            tally,
            shown,
            self.claim,
            claimed,
            broken,
            breaking,
            trials,
            judges.answers.seen,
            self._reach(len(judges), claimed),
        )

    def _reach(self, judges: int, claimed: float) -> float:
        """The ε that guesses on all judging answers would certify, if they were right as often as the claim allows."""
        wrong = 0 if math.isinf(claimed) else math.ceil(judges / (1 + math.exp(min(claimed, 700.0))))
        miss = self.miss * FOR_EPSILON
        return binomial.guessing_epsilon(judges - wrong, wrong, judges, miss=miss, delta=self.delta)


# -- arguments -------------------------------------------------------------------------------------------------------


def _count(trials: Any, name: str = "trials") -> int:
    count = curve_arguments.integer(name, trials, LEAST)
    if count > MOST:
        raise InvalidParameter(name, count, f"must be at most {MOST:,}, because all answers are kept in memory")
    return count


def _claim(mechanism: Any, claim: Any) -> Curve | None:
    if claim is None:
        try:
            claim = getattr(mechanism, "curve", None)
        except Exception:  # a user's property may raise any error; then no claim is known
            return None
        return claim if isinstance(claim, Curve) else None
    if not isinstance(claim, Curve):
        raise InvalidParameter("claim", claim, "must be a curve", "make one with deniable.curves")
    return claim


def _pair(neighbours: Any) -> tuple[Any, Any]:
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        rule = "must be two values that the claim covers, or audit.patterns(...)"
        raise InvalidParameter("neighbours", NOTHING, rule)
    if _are_the_same(neighbours[0], neighbours[1]):
        rule = "must be two different values: equal values cannot be distinguished"
        raise InvalidParameter("neighbours", NOTHING, rule)
    return neighbours[0], neighbours[1]


def _are_the_same(one: Any, other: Any) -> bool:
    """Whether two values are certainly equal. For unknown types only identity counts."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        is_alike = one.dtype == other.dtype and one.shape == other.shape and not one.dtype.hasobject
        return is_alike and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_the_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_the_same(one[key], other[key]) for key in one)
    return isinstance(one, bool | int | float | str | bytes) and plain(one) == plain(other)
