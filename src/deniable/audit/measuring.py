"""`measure`: what a mechanism really leaks, as far as its answers can prove it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit import game, sampling, scores
from deniable.audit.answers import Answers
from deniable.audit.finding import Finding
from deniable.audit.game import FOR_BAND, FOR_CLAIM, FOR_EPSILON, Chosen, Sample
from deniable.curves import Curve, check
from deniable.errors import NOTHING, InvalidParameter

LEAST: Final = 100
"""Fewest trials: less proves nothing."""
PILOT: Final = 0.25
"""The part of all trials that looks for the best pair of neighbours."""
SECONDS: Final = 600.0
"""Time a mechanism has for all its answers unless told otherwise."""
FIRST_ROUND: Final = 1000
"""Trials of the first round of `until_decided`; each further round has twice as many."""
NEARLY: Final = 0.98
"""`until_decided` stops when it has certified so much of the claim: more answers would not say more."""

Progress = sampling.Progress


@final
@dataclass(frozen=True, slots=True)
class Patterns:
    """Pairs of neighbours to search. Made by `patterns`, or from any pairs."""

    pairs: tuple[tuple[Any, Any], ...]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def patterns(*, size: int, low: float = 0, high: float = 1) -> Patterns:
    """Pairs of lists of `size` numbers that differ by high - low everywhere, or less: the shapes at which mechanisms
    for several queries of that sensitivity have been caught (Ding, Wang, Wang, Zhang & Kifer 2018).

    >>> [pair for pair in patterns(size=3)][0]
    ([0, 0, 0], [1, 0, 0])
    """
    n = check.integer("size", size, 1)
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
    """Certified lower bounds on what a mechanism leaks about two neighbours, and whether that refutes its claim.

    `mechanism` is a function of a value, or has `release(value)`; with `many(value, count)` it is quicker. Answers may
    be anything: numbers, arrays, tuples, strings, None; what it raises counts as an answer. `claim` is the curve to
    refute, the mechanism's own if it has one. `trials` are calls for each neighbour: every call is about the one that
    a fair coin says. With `likelihood_ratio`, log P(answer | first)/P(answer | second), events are sets where that is
    high or low; otherwise they are searched. `neighbours` are two values, or `patterns(...)` of which the worst is
    searched first.

    All statements of the finding together are wrong with probability at most 1 - confidence, at every number of
    trials: see `audit.binomial` for the proof. That nothing is refuted proves nothing.

    >>> from deniable import audit, mechanisms
    >>> noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
    >>> fair = audit.measure(noisy, neighbours=(0.0, 1.0), trials=20_000, confidence=0.999)
    >>> fair.refuted, 0.8 < fair.epsilon <= 1.0
    (False, True)
    >>> audit.measure(noisy, neighbours=(0.0, 2.0), trials=20_000, confidence=0.999).refuted
    True
    """
    count, miss = _asked(trials, confidence)
    level = check.probability("delta", delta)
    promise = _claim(mechanism, claim)
    own = scores.given(likelihood_ratio) if likelihood_ratio is not None else ()
    if isinstance(neighbours, Patterns):
        spent = max(LEAST, int(count * PILOT / len(neighbours)))
        pairs = [
            (_pilot(sampling.draw(mechanism, pair, 2 * spent, seconds=seconds), promise, level, miss, own, count), pair)
            for pair in neighbours
        ]
        neighbours, count = max(pairs, key=lambda scored: scored[0])[1], max(LEAST, int(count * (1 - PILOT)))
    pair = _pair(neighbours)
    sample = sampling.draw(mechanism, pair, 2 * count, seconds=seconds, progress=progress)
    return _judge(sample, promise, level, miss, own)


def compare(
    first: Any,
    second: Any,
    *,
    claim: Curve | None = None,
    confidence: float,
    delta: float = 0.0,
    likelihood_ratio: Callable[[Any], float] | None = None,
) -> Finding:
    """The same from answers that were collected elsewhere: independent ones about the first neighbour, and about the
    second. A few are left out, so that the number about each is what fair coins would have given.

    >>> import numpy as np
    >>> from deniable import audit, curves
    >>> rng = np.random.default_rng(1)
    >>> answers = rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000)
    >>> audit.compare(*answers, claim=curves.gaussian(mu=0.5), confidence=0.99).refuted
    True
    """
    sides = [side if isinstance(side, np.ndarray) else list(side) for side in (first, second)]
    available = min(len(side) for side in sides)
    _, miss = _asked(available, confidence, "answers")
    rng = np.random.default_rng()
    # The coins give more than there are of one side with probability below 1e-14: eight standard deviations.
    total = 2 * available - math.ceil(8 * math.sqrt(2 * available))
    is_first = rng.integers(0, 2, max(total, 1)).astype(np.bool_)
    heads = min(int(is_first.sum()), available)
    picked = [
        rng.permutation(len(side))[:count] for side, count in zip(sides, (heads, len(is_first) - heads), strict=True)
    ]
    answers = [
        [side[int(i)] for i in places] if isinstance(side, list) else side[places]
        for side, places in zip(sides, picked, strict=True)
    ]
    sample = Sample(Answers.of(sampling.merged(answers, is_first)), is_first)
    own = scores.given(likelihood_ratio) if likelihood_ratio is not None else ()
    return _judge(sample, _claim(None, claim), check.probability("delta", delta), miss, own)


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
    """Measure in rounds, each twice as large as the one before, and stop when the claim is refuted, when nearly all of
    it is certified, or after `most` trials for each neighbour. Looking after every round costs nothing: valid at any
    stopping time.

    Round k has the error rate (1 - confidence)/(k(k + 1)), and they add up to 1 - confidence. Its event is chosen from
    all earlier rounds, and judged by its own answers.
    """
    count, miss = _asked(most, confidence)
    level, promise, pair = check.probability("delta", delta), _claim(mechanism, claim), _pair(neighbours)
    own = scores.given(likelihood_ratio) if likelihood_ratio is not None else ()
    size, spent, rounds = min(FIRST_ROUND, count), 0, 0
    before: Sample | None = None
    while True:
        rounds += 1
        share = miss / (rounds * (rounds + 1))
        fresh = sampling.draw(mechanism, pair, 2 * size, seconds=seconds)
        spent += size
        if progress is not None:
            progress(spent, count)
        if before is None:
            found = _judge(fresh, promise, level, share, own)
        else:
            third = len(before) // 3
            chosen = _search(before[:third], before[third:], len(fresh), promise, level, share, own)
            found = _verdict(chosen, fresh, promise, level, share, spent)
        if found.refuted or found.ratio >= NEARLY or spent >= count:
            return _told(found, confidence, spent)
        before = fresh if before is None else _recent(before, fresh)
        size = min(2 * size, count - spent)


def _recent(before: Sample, fresh: Sample) -> Sample:
    """All answers so far, of which only so many are kept as a search can use."""
    joined = Sample(game.joined(before.answers, fresh.answers), np.concatenate([before.is_first, fresh.is_first]))
    return joined[-game.MOST_SEARCH :] if len(joined) > game.MOST_SEARCH else joined


def _told(found: Finding, confidence: float, trials: int) -> Finding:
    from dataclasses import replace

    return replace(found, confidence=confidence, trials=trials)


# -- steps -----------------------------------------------------------------------------------------------------------


def _judge(sample: Sample, claim: Curve | None, delta: float, miss: float, own: Sequence[Any]) -> Finding:
    taught, searched = game.parts(len(sample))
    judges = sample[searched:]
    chosen = _search(sample[:taught], sample[taught:searched], len(judges), claim, delta, miss, own)
    return _verdict(chosen, judges, claim, delta, miss, len(sample) // 2)


def _search(
    teach: Sample, choose: Sample, judges: int, claim: Curve | None, delta: float, miss: float, own: Sequence[Any]
) -> Chosen:
    return game.search(teach, choose, judges=judges, claim=claim, delta=delta, miss=miss, own=own)


def _pilot(sample: Sample, claim: Curve | None, delta: float, miss: float, own: Sequence[Any], trials: int) -> float:
    half = len(sample) // 2
    return _search(sample[:half], sample[half:], 2 * trials, claim, delta, miss, own).worth


def _verdict(chosen: Chosen, judges: Sample, claim: Curve | None, delta: float, miss: float, trials: int) -> Finding:
    tally = chosen.event.tally(judges)
    epsilon = tally.epsilon(delta=delta, miss=miss * FOR_EPSILON)
    shown = game.band(chosen.ruler, judges, miss * FOR_BAND)
    claimed = math.inf if claim is None else float(claim.epsilon(delta=delta))
    broken, refuted = None, None
    if claim is not None:
        if chosen.breaking is not None:
            event, level = chosen.breaking
            allowed = miss * FOR_CLAIM
            p = event.tally(judges).p_value(epsilon=level.epsilon, delta=level.delta, miss=allowed)
            broken = (level, p) if p <= allowed else None
        floor = np.asarray(claim.beta(alpha=np.array(shown.alpha)))
        refuted = bool(epsilon > claimed or broken is not None or np.any(np.array(shown.beta) < floor))
    return Finding(epsilon, delta, refuted, 1 - miss, chosen.event, tally, shown, claim, claimed, broken, trials)


# -- arguments -------------------------------------------------------------------------------------------------------


def _asked(trials: Any, confidence: Any, name: str = "trials") -> tuple[int, float]:
    count = check.integer(name, trials, LEAST)
    return count, 1 - check.inner_probability("confidence", confidence)


def _claim(mechanism: Any, claim: Any) -> Curve | None:
    if claim is None:
        try:
            claim = getattr(mechanism, "curve", None)
        except Exception:  # its own property may raise: then nothing is claimed
            return None
        return claim if isinstance(claim, Curve) else None
    if not isinstance(claim, Curve):
        raise InvalidParameter("claim", claim, "must be a curve", "deniable.curves makes them")
    return claim


def _pair(neighbours: Any) -> tuple[Any, Any]:
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        rule = "must be two values that the claim speaks about, or audit.patterns(...)"
        raise InvalidParameter("neighbours", NOTHING, rule)
    return neighbours[0], neighbours[1]
