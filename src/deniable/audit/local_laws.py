"""Output distributions of local protocols: a person's report, given their answer. From the definitions, as in
`exact_curve`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np

from deniable.errors import InvalidOperation
from deniable.local import (
    BloomRappor,
    CountMeanSketch,
    DuchiMean,
    HadamardSketch,
    HybridMean,
    KaryRandomizedResponse,
    LocalHashing,
    OptimizedUnary,
    PiecewiseMean,
    Protocol,
    Rappor,
    SubsetSelection,
    SymmetricUnary,
    TwoCoinSurvey,
    WarnerSurvey,
)
from deniable.local.binary_responses import FlippedAnswer
from deniable.local.categorical_responses import PRIME
from deniable.local.numeric_means import on_grid

Law = Mapping[Any, float]
Factors = list[tuple[Law, Law]]


Rule = Callable[[Any, Any, Any], Factors]
"""The factors of a protocol of some type, for two answers."""


@singledispatch
def local_factors(protocol: Protocol, a: Any, b: Any) -> Factors:
    """The distributions of the independent parts of a report, for two answers. Each type of protocol has a rule."""
    if a == b:
        return []
    raise InvalidOperation(f"the output distribution of {type(protocol).__name__} is not known; use audit.measure")


def _for_different_answers(*protocols: type[Protocol]) -> Callable[[Rule], Rule]:
    """Register a rule for two answers that differ. The reports of equal answers have no part that differs."""

    def registered(rule: Rule) -> Rule:
        for each in protocols:
            local_factors.register(each, lambda protocol, a, b: [] if a == b else rule(protocol, a, b))
        return rule

    return registered


@local_factors.register
def _(protocol: WarnerSurvey, a: Any, b: Any) -> Factors:
    return [_coin(*(protocol.p if value else 1 - protocol.p for value in (a, b)))]


@local_factors.register(FlippedAnswer)
@local_factors.register(TwoCoinSurvey)
def _(protocol: FlippedAnswer | TwoCoinSurvey, a: Any, b: Any) -> Factors:
    own, other = protocol.support.own, protocol.support.other
    return [_coin(*(own if value else other for value in (a, b)))]


@local_factors.register(DuchiMean)
@local_factors.register(PiecewiseMean)
@local_factors.register(HybridMean)
def _(protocol: DuchiMean | PiecewiseMean | HybridMean, a: Any, b: Any) -> Factors:
    return [_means(protocol, *on_grid(np.array([a, b], float), protocol.low, protocol.high, protocol.steps))]


@_for_different_answers(KaryRandomizedResponse)
def _(protocol: KaryRandomizedResponse, a: Any, b: Any) -> Factors:
    return [_kary(protocol.odds.number, protocol.categories)]


@_for_different_answers(SymmetricUnary, OptimizedUnary, Rappor)
def _(protocol: SymmetricUnary | OptimizedUnary | Rappor, a: Any, b: Any) -> Factors:
    own, other = protocol.support.own, protocol.support.other
    return [_coin(own, other), _coin(other, own)]


@_for_different_answers(BloomRappor)
def _(protocol: BloomRappor, a: Any, b: Any) -> Factors:
    return [_filters(protocol, a, b)]


@_for_different_answers(CountMeanSketch, HadamardSketch)
def _(protocol: CountMeanSketch | HadamardSketch, a: Any, b: Any) -> Factors:
    return [_sketches(protocol, a, b)]


@_for_different_answers(SubsetSelection)
def _(protocol: SubsetSelection, a: Any, b: Any) -> Factors:
    return [_subsets(float(protocol.odds.number), protocol.categories, protocol.size)]


@_for_different_answers(LocalHashing)
def _(protocol: LocalHashing, a: Any, b: Any) -> Factors:
    return [_hashes(float(protocol.odds.number), protocol.buckets)]


def _coin(p: Any, q: Any) -> tuple[Law, Law]:
    return {True: float(p), False: float(1 - p)}, {True: float(q), False: float(1 - q)}


# -- numbers ---------------------------------------------------------------------------------------------------------


def _means(protocol: DuchiMean | PiecewiseMean | HybridMean, a: int, b: int) -> tuple[Law, Law]:
    """From the positions of both answers on the protocol's grid."""
    if isinstance(protocol, DuchiMean):
        return _bit(protocol.odds.number, a / protocol.steps, b / protocol.steps)
    if isinstance(protocol, PiecewiseMean):
        return _cells(protocol, int(a), int(b))
    # Duchi's bit with probability e^(-ε/2), else a cell; a report shows which of the two. Always the bit if cells only
    # add variance.
    public: dict[str, Any] = {"low": protocol.low, "high": protocol.high, "epsilon": protocol.odds.log}
    bits = _bit(protocol.odds.number, a / protocol.steps, b / protocol.steps)
    if PiecewiseMean(**public).spread.level >= DuchiMean(**public).spread.level:
        return bits
    often, cells = math.exp(-float(protocol.odds.log) / 2), _cells(PiecewiseMean(**public), int(a), int(b))
    laws = [
        {**{y: often * p for y, p in bit.items()}, **{y: (1 - often) * p for y, p in cell.items()}}
        for bit, cell in zip(bits, cells, strict=True)
    ]
    return laws[0], laws[1]


def _bit(odds: Any, a: float, b: float) -> tuple[Law, Law]:
    """The bit is 1 with probability x on the grid, and kept with probability E/(E + 1)."""
    kept = float(odds / (odds + 1))
    return _coin(*(kept * x + (1 - kept) * (1 - x) for x in (float(a), float(b))))


def _cells(protocol: PiecewiseMean, a: int, b: int) -> tuple[Law, Law]:
    """Cells grouped by the windows that contain them; cells of one group are equally likely."""
    n, s = protocol.outcomes, float(protocol.odds.root().number)
    window = n - protocol.steps
    both = max(0, window - abs(a - b))
    sizes = {"a": window - both, "b": window - both, "both": both, "none": n - 2 * window + both}
    near, far = s / (s + 1) / window, 1 / (s + 1) / (n - window)
    inside = ({"a", "both"}, {"b", "both"})
    laws = [{y: size * (near if y in mine else far) for y, size in sizes.items()} for mine in inside]
    return laws[0], laws[1]


# -- categories ------------------------------------------------------------------------------------------------------


def _kary(odds: Any, categories: int) -> tuple[Law, Law]:
    lie = float(1 / (odds + categories - 1))
    truth, rest = float(odds) * lie, (categories - 2) * lie
    return {"a": truth, "b": lie, "other": rest}, {"a": lie, "b": truth, "other": rest}


def _subsets(odds: float, d: int, w: int) -> tuple[Law, Law]:
    """Sets grouped by which of the two answers they contain; sets of one group are equally likely."""
    total = math.comb(d - 1, w - 1) * odds + math.comb(d - 1, w)
    both = math.comb(d - 2, w - 2) * odds / total if w >= 2 else 0.0
    own, other = math.comb(d - 2, w - 1) * odds / total, math.comb(d - 2, w - 1) / total
    none = math.comb(d - 2, w) / total
    return {"a": own, "b": other, "both": both, "none": none}, {"a": other, "b": own, "both": both, "none": none}


def _hashes(odds: float, buckets: int) -> tuple[Law, Law]:
    """Reports grouped by whether the hash separates the answers, and by the reported bucket."""
    sizes = [PRIME // buckets + (i < PRIME % buckets) for i in range(buckets)]
    meet = sum(size * size for size in sizes) / PRIME**2
    p, q = _kary(odds, buckets)
    here, there = ({"met": meet, **{y: (1 - meet) * mass for y, mass in law.items()}} for law in (p, q))
    return here, there


def _filters(protocol: BloomRappor, a: str, b: str) -> tuple[Law, Law]:
    """A report is a uniform cohort and bits. In a cohort only the bits matter that exactly one of the answers sets; the
    outcome is the number of ones among them, for each answer.
    """
    apart: Counter[tuple[int, int]] = Counter()
    for cohort in range(protocol.cohorts):
        first, second = (set(protocol.filter_of(text, cohort=cohort).tolist()) for text in (a, b))
        apart[len(first - second), len(second - first)] += 1
    own, other = (float(p) for p in (protocol.coins.support.own, protocol.coins.support.other))
    laws: list[Law] = []
    for mine, theirs in ((own, other), (other, own)):
        law: dict[Any, float] = {}
        for (left, right), cohorts in apart.items():
            for i in range(left + 1):
                for j in range(right + 1):
                    share = _binomial(i, left, mine) * _binomial(j, right, theirs)
                    law[left, right, i, j] = cohorts / protocol.cohorts * share
        laws.append(law)
    return laws[0], laws[1]


def _sketches(protocol: CountMeanSketch | HadamardSketch, a: str, b: str) -> tuple[Law, Law]:
    """A report reveals nothing if its hash function maps both texts to the same place. Otherwise two bits matter, or
    every second entry of a Hadamard row.
    """
    places = ((protocol.place_of(a, number=j), protocol.place_of(b, number=j)) for j in range(protocol.hashes))
    apart = sum(one != two for one, two in places) / protocol.hashes
    if isinstance(protocol, HadamardSketch):
        kept, differ = 1 - 1 / (1 + float(protocol.odds.number)), apart / 2
        here, there = ({None: 1 - differ, True: differ * p, False: differ * (1 - p)} for p in (kept, 1 - kept))
        return here, there
    kept = 1 - 1 / (1 + float(protocol.odds.root().number))
    laws: list[Law] = []
    for mine, theirs in ((kept, 1 - kept), (1 - kept, kept)):
        law: dict[Any, float] = {None: 1 - apart}
        for i in (0, 1):
            for j in (0, 1):
                law[i, j] = apart * (mine if i else 1 - mine) * (theirs if j else 1 - theirs)
        laws.append(law)
    return laws[0], laws[1]


def _binomial(k: int, n: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)
