"""`exact`: the true curve of a mechanism on two neighbours, computed from its output distribution without sampling.

The distributions ("laws") here follow from the definitions of the mechanisms by enumeration and quadrature. They share
no code with the curves that the mechanisms promise. Independent parts of an answer (bins, bits, coordinates) are
factors whose curves multiply. Infinite supports are truncated: if the privacy loss is bounded, a tail becomes one
outcome with its true masses; if not (Gaussian, Poisson), a tail counts as fully distinguishing, which adds less than
10⁻¹⁵ to δ.

A pure ε may depend on the rarest outcome alone. So the masses of selections and thresholds are sums of positive
products, which have many correct digits at any size, and outcomes that are too rare for a float are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import singledispatch
from itertools import product
from typing import Any, Final

import numpy as np

from deniable import curves
from deniable.audit.answer_columns import Raised, read_whole
from deniable.audit.integer_noise_laws import (
    MOST_OUTCOMES,
    REACH,
    End,
    coordinate_factors,
    integers_of,
    key_factors,
    needs_integers,
    poisson_laws,
    shifted,
    staircase_noise,
    too_far_apart,
)
from deniable.audit.local_laws import Factors, Law, local_factors
from deniable.curves import Curve, Kernel
from deniable.errors import NOTHING, InvalidDistribution, InvalidOperation, InvalidParameter
from deniable.local import Protocol
from deniable.mechanisms import (
    AboveThreshold,
    BinaryInverseSensitivity,
    Composed,
    Histogram,
    InverseSensitivity,
    MonotoneAboveThreshold,
    MonotoneNoisyMax,
    MonotoneSparseVector,
    NoisyMax,
    OneShotTopK,
    Parallel,
    PoissonMechanism,
    SparseVector,
    Staircase,
    TopK,
    UnknownKeys,
    input_values,
)
from deniable.mechanisms.histogram import tally
from deniable.mechanisms.mechanism import Asked, Processed
from deniable.mechanisms.noise_steps import Additive
from deniable.mechanisms.selection import Selection, exact_scores

NODES: Final = 24
"""Nodes of Gauss-Legendre quadrature on each piece between two kinks, where integrands are products of exponentials."""
PIECES: Final = 4.0
"""The length of a piece, in scales of the noise."""
ASKED: Final = 64
"""Calls of a post-processing function that must agree, at least two per outcome. A coin agrees with probability 2⁻⁶⁴.
"""
RAREST: Final = 1e-280
"""Smaller masses lose digits: the smallest normal float is 2 × 10⁻³⁰⁸, and masses are products of several floats."""
FARTHEST: Final = 640.0
"""The largest distance between two values, in scales: beyond it some outcome is rarer than e^-640 = 10⁻²⁷⁸."""


def exact(mechanism: Any, *, neighbours: tuple[Any, Any] | None = None) -> Curve:
    """The true curve of a mechanism on a pair of neighbours, which the best event attains.

    The output distribution must be known. That is the case for selections, thresholds, integer noise, histograms,
    unknown keys, Poisson, staircase, inverse sensitivity, local protocols, products and parallel parts of these, a
    `Kernel` (over all its pairs), and objects with a method `law(value)` that returns a dict of probabilities by
    outcome. Others raise `InvalidOperation`.

    Selections and thresholds are refused on values so far apart that an outcome is rarer than 10⁻²⁸⁰. Post-processing
    of noisy numbers (`then`) is followed up to 40 scales of noise: outputs that only farther numbers have add less than
    10⁻¹⁵ to δ, but a pure ε that depends on them alone is missed. The function must not be random; it is refused if two
    calls differ.

    >>> from deniable import audit, mechanisms
    >>> picks = mechanisms.NoisyMax(sensitivity=1, epsilon=1)
    >>> round(audit.exact(picks, neighbours=([0, 1, 1], [1, 0, 0])).epsilon(delta=0), 4)
    0.7367
    """
    if isinstance(mechanism, Kernel):
        return mechanism.curve
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        raise InvalidParameter("neighbours", NOTHING, "must be a pair of values that the mechanism accepts")
    found = factors(mechanism, neighbours[0], neighbours[1])
    return curves.product(_curve(p, q) for p, q in found if p != q)


def _curve(p: Law, q: Law) -> Curve:
    outcomes = [*p, *(y for y in q if y not in p)]
    masses = [[max(0.0, float(law.get(y, 0.0))) for y in outcomes] for law in (p, q)]
    return curves.from_pmf(*masses, tied=True)


def factors(mechanism: Any, a: Any, b: Any) -> Factors:
    """The output distributions of the independent parts of an answer, for both neighbours."""
    law = own_law(mechanism)
    if callable(law):
        return [(_checked(law(a)), _checked(law(b)))]
    return _factors(mechanism, a, b)


@singledispatch
def _factors(mechanism: Any, a: Any, b: Any) -> Factors:
    """The distributions of the parts of an answer, by the type of the mechanism. Without a rule: of one part."""
    return [(_single(mechanism, a), _single(mechanism, b))]


@_factors.register
def _(mechanism: Protocol, a: Any, b: Any) -> Factors:
    return local_factors(mechanism, a, b)


@_factors.register
def _(mechanism: Composed, a: Any, b: Any) -> Factors:
    return [factor for part in mechanism.parts for factor in factors(part, a, b)]


@_factors.register
def _(mechanism: Parallel, a: Any, b: Any) -> Factors:
    listed = zip(mechanism.parts, a, b, strict=True)
    return [factor for part, x, y in listed for factor in factors(part, x, y)]


@_factors.register
def _(mechanism: Asked, a: Any, b: Any) -> Factors:
    return factors(mechanism.mechanism, mechanism.statistic(a), mechanism.statistic(b))


def own_law(mechanism: Any) -> Any:
    """The `law` of a user-defined mechanism; None for the library's own, whose distributions are derived here."""
    law = getattr(mechanism, "law", None)
    is_ours = str(getattr(law, "__module__", "")).startswith("deniable.mechanisms")
    return None if is_ours else law


@singledispatch
def _single(mechanism: Any, value: Any) -> Law:
    """The output distribution of an answer with a single part, by the type of the mechanism."""
    raise InvalidOperation(
        f"the output distribution of {type(mechanism).__name__} is not known; give it a method law(value), or use "
        "audit.measure"
    )


@_single.register
def _(mechanism: Selection, value: Any) -> Law:
    return _not_too_rare(dict(enumerate(_picks(mechanism, exact_scores(value, mechanism.candidates)))))


@_single.register
def _(mechanism: InverseSensitivity | BinaryInverseSensitivity, value: Any) -> Law:
    return _not_too_rare(dict(enumerate(mechanism.probabilities(value).tolist())))


@_single.register
def _(mechanism: TopK, value: Any) -> Law:
    scores = exact_scores(value, mechanism.selector.candidates)
    return _not_too_rare(dict(_peeled(mechanism.selector, scores, mechanism.count)))


@_single.register
def _(mechanism: OneShotTopK, value: Any) -> Law:
    scores = exact_scores(value, mechanism.selector.candidates)
    return _not_too_rare(_one_shot(mechanism.selector, scores, mechanism.count))


@_single.register
def _(mechanism: AboveThreshold | MonotoneAboveThreshold | SparseVector | MonotoneSparseVector, value: Any) -> Law:
    return _thresholds(mechanism, list(value))


def _not_too_rare(law: Law) -> Law:
    if min(law.values()) < RAREST:
        raise too_far_apart("some outcome is too rare for a float, and a pure ε may depend on it")
    return law


def _checked(law: Any) -> Law:
    if not isinstance(law, Mapping) or abs(math.fsum(float(p) for p in law.values()) - 1) > 1e-9:
        raise InvalidDistribution("law", NOTHING, "must be a dict of probabilities that add up to 1")
    return law


@_factors.register
def _(mechanism: Processed, a: Any, b: Any) -> Factors:
    """The distributions after post-processing, if every outcome can be converted to a release."""
    functions: list[Callable[[Any], Any]] = []
    inner: Any = mechanism
    while isinstance(inner, Processed | Asked):
        if isinstance(inner, Processed):
            functions.insert(0, inner.function)
        else:
            a, b = inner.statistic(a), inner.statistic(b)
        inner = inner.mechanism
    read = _release_of(inner)
    if read is None:
        raise InvalidOperation("post-processing may mix the parts of an answer with several parts; use audit.measure")

    def once(outcome: Any) -> Any:
        release = read(outcome)
        for function in functions:
            try:
                release = function(release)
            except Exception as error:  # an error is an output
                return Raised.by(error)
        return read_whole(release)

    (p, q) = factors(inner, a, b)[0]
    again = max(1, math.ceil(ASKED / (len(p) + len(q))))

    def image(outcome: Any) -> Any:
        found = once(outcome)
        if any(once(outcome) != found for _ in range(again)):
            raise InvalidOperation(
                "the post-processing function returns different results for the same answer: it is random or has "
                "state, so its output distribution is not known; use audit.measure"
            )
        return found

    return [(pushed(p, image), pushed(q, image))]


@singledispatch
def _release_of(mechanism: Any) -> Callable[[Any], Any] | None:
    """A function that converts an outcome of the single factor to a release, by the type of the mechanism; None if
    there are several factors. Without a rule, the outcome of a user's own law is the release.
    """
    return _itself if callable(own_law(mechanism)) else None


def _itself(outcome: Any) -> Any:
    return outcome


@_release_of.register
def _(mechanism: InverseSensitivity | BinaryInverseSensitivity) -> Callable[[Any], Any] | None:
    return lambda place: mechanism.answers[place]


@_release_of.register
def _(mechanism: AboveThreshold | MonotoneAboveThreshold) -> Callable[[Any], Any] | None:
    return lambda seen: seen.index(True) if True in seen else None


@_release_of.register
def _(mechanism: SparseVector | MonotoneSparseVector) -> Callable[[Any], Any] | None:
    return lambda seen: tuple(place for place, is_above in enumerate(seen) if is_above)


@_release_of.register
def _(mechanism: Additive) -> Callable[[Any], Any] | None:
    return _itself if mechanism.dimension is None or callable(own_law(mechanism)) else None


@_release_of.register
def _(mechanism: Selection | TopK | OneShotTopK | PoissonMechanism | Staircase) -> Callable[[Any], Any] | None:
    return _itself


def pushed(law: Law, function: Callable[[Any], Any]) -> Law:
    """The distribution of function(outcome)."""
    found: dict[Any, float] = {}
    whole = [y for y in law if not isinstance(y, End)]
    for outcome, mass in law.items():
        # A tail, with mass below 10⁻¹⁵, is mapped like its neighbouring outcome.
        beside = outcome
        if isinstance(outcome, End):
            beside = max(whole) if outcome.is_above else min(whole)
        image = function(beside)
        found[image] = found.get(image, 0.0) + mass
    return found


# -- whole numbers ---------------------------------------------------------------------------------------------------


@_factors.register
def _(mechanism: PoissonMechanism, a: Any, b: Any) -> Factors:
    low, high = (input_values.whole(value) for value in (a, b))
    return [poisson_laws(float(mechanism.rate(low)), float(mechanism.rate(high)))]


@_factors.register
def _(mechanism: Staircase, a: Any, b: Any) -> Factors:
    if mechanism.exponent is not None:
        raise needs_integers(mechanism)
    return [shifted(staircase_noise(mechanism), input_values.whole(a), input_values.whole(b))]


@_factors.register
def _(mechanism: Histogram, a: Any, b: Any) -> Factors:
    return coordinate_factors(mechanism.noise, mechanism.count(a).tolist(), mechanism.count(b).tolist())


@_factors.register
def _(mechanism: UnknownKeys, a: Any, b: Any) -> Factors:
    return key_factors(mechanism, tally(a), tally(b))


@_factors.register
def _(mechanism: Additive, a: Any, b: Any) -> Factors:
    if mechanism.exponent is not None:
        raise needs_integers(mechanism)
    return coordinate_factors(mechanism, *(integers_of(mechanism, value) for value in (a, b)))


# -- choices ---------------------------------------------------------------------------------------------------------


def _picks(selector: Selection, scores: list[Fraction]) -> list[float]:
    """The distribution of one pick. For noisy maxima it is integrated here."""
    if isinstance(selector, NoisyMax | MonotoneNoisyMax):
        return list(_one_shot(selector, scores, 1).values())
    return [float(mass) for mass in selector.probabilities(scores)]


def _peeled(selector: Selection, scores: list[Fraction], count: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Winners picked one after the other from the remaining candidates, with their probabilities."""
    places = list(range(len(scores)))

    def go(left: list[int], taken: tuple[int, ...], mass: float) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(taken) == count:
            yield taken, mass
            return
        law = _picks(selector, [scores[i] for i in left])
        for place, p in zip(left, law, strict=True):
            yield from go([i for i in left if i != place], (*taken, place), mass * p)

    if math.perm(len(places), count) > MOST_OUTCOMES:
        raise InvalidOperation(f"more than {MOST_OUTCOMES:,} outcomes are not enumerated; use audit.measure")
    yield from go(places, (), 1.0)


def _one_shot(selector: Selection, scores: list[Fraction], count: int) -> Law:
    """The distribution of the ordered winners: P(X₁ > X₂ > … > Xₖ > all others) for independent noisy scores, by k
    nested integrals: A₀ = 1, Aⱼ(x) = ∫ₓ^∞ fⱼ A_(j-1), and finally ∫ fₖ A_(k-1) Π F.
    """
    size = len(scores)
    if math.perm(size, count) > MOST_OUTCOMES:
        raise InvalidOperation(f"more than {MOST_OUTCOMES:,} outcomes are not enumerated; use audit.measure")
    if max(scores) - min(scores) > FARTHEST * selector.scale:
        raise too_far_apart("some outcome is too rare for a float, and a pure ε may depend on it")
    at = np.array([float((score - max(scores)) / selector.scale) for score in scores])
    two_sided = isinstance(selector, NoisyMax | MonotoneNoisyMax)
    # A rare outcome may be anywhere between the scores. Below the lowest, all densities decay, or are 0 if one-sided.
    low = at.min() - (REACH if two_sided else 0.0)
    cuts = np.unique([low, REACH, *at, *np.arange(low, REACH, 1.0)])
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(cuts)[:, None] / 2
    x = cuts[:-1, None] + half * (1 + nodes)
    away = x[None] - at[:, None, None]
    density = np.exp(-np.abs(away)) / 2 if two_sided else np.where(away > 0, np.exp(-np.maximum(away, 0)), 0.0)
    below = laplace_cdf(away, 1.0) if two_sided else np.where(away > 0, -np.expm1(-np.maximum(away, 0)), 0.0)
    rest = _from_node()

    def above(values: Any) -> Any:
        """∫ₓ^∞ at every node: over the rest of its piece, plus all later pieces."""
        pieces = (half * values) @ weights
        after = np.append(np.cumsum(pieces[::-1])[::-1][1:], 0.0)
        return half * (values @ rest.T) + after[:, None]

    found: dict[Any, float] = {}

    def go(taken: tuple[int, ...], so_far: Any) -> None:
        for i in range(size):
            if i in taken:
                continue
            winners, term = (*taken, i), density[i] * so_far
            if len(winners) < count:
                go(winners, above(term))
                continue
            for j in range(size):
                if j not in winners:
                    term = term * below[j]
            found[winners] = float(((half * term) @ weights).sum())

    go((), np.ones_like(x))
    return found


def _from_node() -> Any:
    """A matrix whose row i has the quadrature weights for the integral from node i to 1."""
    nodes, _ = np.polynomial.legendre.leggauss(NODES)
    legendre = np.polynomial.legendre
    integrals = [legendre.legint(row, lbnd=1) for row in np.eye(NODES)]
    by_degree = np.stack([-legendre.legval(nodes, row) for row in integrals], axis=1)
    return by_degree @ np.linalg.inv(legendre.legvander(nodes, NODES - 1))


def _thresholds(mechanism: Any, asked: list[Any]) -> Law:
    """The distribution of a sparse vector's answers: a product given the noisy threshold, averaged over its noise."""
    law = threshold_law(
        [float(Fraction(v) - mechanism.threshold) for v in asked],
        threshold_scale=float(mechanism.threshold_scale),
        answer_scale=float(mechanism.answer_scale),
        positives=mechanism.positives,
    )
    return _not_too_rare(law)


def threshold_law(asked: list[float], *, threshold_scale: float, answer_scale: float, positives: int | None) -> Law:
    """The distribution of a sparse vector's answers (above or not, one per question, up to the last allowed positive),
    with Laplace noise on the threshold 0 and on the answers. An answer scale of 0 means no noise.

    >>> law = threshold_law([0.0], threshold_scale=1.0, answer_scale=1.0, positives=1)
    >>> round(law[(True,)], 12), round(law[(False,)], 12)
    (0.5, 0.5)
    """
    if 2 ** len(asked) > MOST_OUTCOMES:
        raise InvalidOperation(f"more than {MOST_OUTCOMES:,} outcomes are not enumerated; use audit.measure")
    if asked and max(map(abs, asked)) > FARTHEST * max(threshold_scale, answer_scale):
        raise too_far_apart("some outcome is too rare for a float, and a pure ε may depend on it")
    nodes, weights = laplace_nodes(threshold_scale, asked, answer_scale)
    away = nodes[:, None] - np.array(asked)[None, :]
    # Each side by its own formula: 1 minus the other side would lose probabilities below 10⁻¹⁶.
    below, above = laplace_cdf(away, answer_scale), laplace_cdf(-away, answer_scale)
    found: dict[Any, float] = {}
    for answers in product((False, True), repeat=len(asked)):
        ends = [i for i in range(len(asked)) if sum(answers[: i + 1]) == positives]
        seen = answers[: ends[0] + 1] if ends else answers
        if seen not in found:
            terms = [(above if is_above else below)[:, i] for i, is_above in enumerate(seen)]
            found[seen] = float(weights @ np.prod(terms, axis=0)) if terms else 1.0
    return found


def laplace_nodes(scale: float, kinks: list[float], finest: float) -> tuple[Any, Any]:
    """Quadrature nodes and weights for means over Laplace noise of this scale, of functions that are smooth between
    kinks. They reach REACH scales beyond the outermost kinks, because a rare event may need noise beyond a kink.
    """
    inner = (*kinks, 0.0)
    ends = np.array([min(inner) - REACH * scale, max(inner) + REACH * scale])
    width = PIECES * min(scale, finest or scale)
    cuts = np.unique(np.concatenate([ends, inner, np.arange(ends[0], ends[1], width)]))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(cuts)[:, None] / 2
    x = (cuts[:-1, None] + half * (1 + nodes)).ravel()
    mass = (half * weights).ravel() * np.exp(-np.abs(x) / scale) / (2 * scale)
    return x, mass / mass.sum()


def laplace_cdf(x: Any, scale: float) -> Any:
    """P(noise <= x) for Laplace noise; for scale 0, whether x is at least 0."""
    if scale == 0:
        return (x >= 0).astype(float)
    tail = np.exp(-np.abs(x) / scale) / 2
    return np.where(x > 0, 1 - tail, tail)
