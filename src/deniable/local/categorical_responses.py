"""One of many categories: k-ary randomized response, unary encodings, optimized local hashing, subset selection.

Let E = e^ε, and let there be d categories. Take any two answers. With some probability t a report is a randomized
response at ε between them; otherwise its law is the same for both. The report itself shows which case occurred, so the
curve is exact. For two or more reports it is smaller than the curve that holds for every ε-private mechanism.

=========================  =======================  ==========================  =======================
protocol                   own answer supported     other answer supported      t
=========================  =======================  ==========================  =======================
KaryRandomizedResponse     E / (E + d - 1)          1 / (E + d - 1)             (E + 1) / (E + d - 1)
SymmetricUnary, s = √E     s / (s + 1)              1 / (s + 1)                 (E + 1) / (s + 1)²
OptimizedUnary             1/2                      1 / (E + 1)                 1/2
LocalHashing, g buckets    E / (E + g - 1)          1/g, but for rounding       (1-1/g)(E+1) / (E+g-1)
SubsetSelection, w of d    wE / (wE + d - w)        see the class               see the class
=========================  =======================  ==========================  =======================

The variance of an estimated share is [q(1-q) + f(p-q)(1-p-q)] / (n (p-q)²) for all of them (Wang et al. 2017). All take
`categories` (2 to 2^24) and either `epsilon` or `odds` = e^ε; answers are numbers 0 .. categories - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments, curves, noise
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import packed_bits, report_checks
from deniable.local.collector_estimates import Support
from deniable.local.exact_odds import ROUNDING, Number, Odds, Rational
from deniable.local.local_protocol import (
    MOST_BITS,
    BitsProtocol,
    Parameter,
    SharesProtocol,
    Telling,
    category_count,
    diluted,
    too_many,
)
from deniable.local.report_checks import Ints, Packed
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy


MOST_TOLD: Final = 1000
"""The largest number of categories for which `probabilities` lists every report."""

PEOPLE_AT_A_TIME: Final = 2**15
"""People processed at a time: their data fit into a processor's cache."""


def _prepare(protocol: object, categories: Any, epsilon: Rational | None, odds: Rational | None) -> None:
    object.__setattr__(protocol, "categories", category_count(categories))
    object.__setattr__(protocol, "odds", Odds.of(epsilon=epsilon, odds=odds))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class KaryRandomizedResponse(SharesProtocol):
    """The truth with probability E/(E + d - 1), otherwise one of the other categories at random.

    For all answers of one person, reports differ in likelihood by at most E = e^ε. A report is a category (an array of
    reports has the smallest integer type that fits). Best for few categories: below 3E + 2 of them it beats the unary
    encodings.

    >>> from fractions import Fraction
    >>> KaryRandomizedResponse(categories=4, odds=3).variance(share=0, people=1)
    Fraction(5, 4)
    """

    categories: int
    odds: Odds

    def __init__(self, *, categories: int, epsilon: Rational | None = None, odds: Rational | None = None) -> None:
        _prepare(self, categories, epsilon, odds)

    @property
    def support(self) -> Support:
        total = self.odds.number + self.categories - 1
        return Support(1 / total, self.odds.excess / total)

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.odds.epsilon, categories=self.categories)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        listed, alone = report_checks.categories("answers", answers, self.categories)
        reports = randomized_answers(listed, self.categories, self.odds, checked_entropy(entropy))
        return int(reports[0]) if alone else reports

    def probabilities(self, answer: Any) -> dict[Any, float]:
        own_category = report_checks.category("answer", answer, self.categories)
        if self.categories > MOST_TOLD:
            raise too_many(self)
        own, other = float(self.support.own), float(self.support.other)
        return {category: own if category == own_category else other for category in range(self.categories)}

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By category if there are few, else by which of the two is reported."""
        if self.categories <= MOST_TOLD:
            return SharesProtocol.told_apart(self, x, x2)
        a, b = (report_checks.category("answer", answer, self.categories) for answer in (x, x2))
        own, other = float(self.support.own), float(self.support.other)
        if a == b:
            return Telling({a: own, OTHER: 1 - own}, {a: own, OTHER: 1 - own}, REPORTED)
        rest = (self.categories - 2) * other
        return Telling({a: own, b: other, OTHER: rest}, {a: other, b: own, OTHER: rest}, REPORTED)

    def count(self, reports: Any) -> tuple[Ints, int]:
        listed = report_checks.reported("reports", reports, self.categories)
        counts, step = np.zeros(self.categories, dtype=np.int64), max(PEOPLE_AT_A_TIME, self.categories)
        for start in range(0, len(listed), step):
            counts += np.bincount(listed[start : start + step].astype(np.intp), minlength=self.categories)
        return counts, len(listed)

    def encode(self, reports: Any) -> list[str]:
        return report_checks.written(reports, self.categories)

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.odds.written()}


def randomized_answers(answers: Ints, categories: int, odds: Odds, entropy: Entropy | None) -> Any:
    """Reports of k-ary randomized response: the own answer has weight odds, each other category has weight 1."""
    kind = smallest_for(2 * categories)
    reports = odds.away(categories, len(answers), entropy).astype(kind, copy=False)
    for start in range(0, len(answers), PEOPLE_AT_A_TIME):
        part = reports[start : start + PEOPLE_AT_A_TIME]
        part += answers[start : start + PEOPLE_AT_A_TIME].astype(kind)
        # Modulo the number of categories: subtracting it from a smaller unsigned number wraps around to a huge one, and
        # the minimum keeps the number itself.
        np.minimum(part, part - kind(categories), out=part)
    return reports


def smallest_for(count: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type for numbers below `count`."""
    return np.uint8 if count <= 2**8 else np.uint16 if count <= 2**16 else np.uint32


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class SymmetricUnary(BitsProtocol):
    """One bit per category, set for the person's own; every bit is flipped with probability 1/(e^(ε/2) + 1).

    For all answers of one person two bits differ, each a randomized response at ε/2; the curve is their product. This
    is basic one-time RAPPOR. (Flipping each bit at ε itself would cost 2ε.) Rational `odds` must be a square.

    >>> round(SymmetricUnary(categories=100, epsilon=1.0).variance(share=0.0, people=1), 3)
    3.918
    """

    categories: int
    odds: Odds

    def __init__(self, *, categories: int, epsilon: Rational | None = None, odds: Rational | None = None) -> None:
        _prepare(self, categories, epsilon, odds)
        self.odds.root()

    @property
    def support(self) -> Support:
        root = self.odds.root()
        return Support(1 / (root.number + 1), root.excess / (root.number + 1))

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.odds.root().epsilon) ** 2

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Packed:
        listed, alone = report_checks.categories("answers", answers, self.categories)
        rows = bit_rows(listed, self.categories, self.odds.root(), checked_entropy(entropy))
        packed_bits.flip(rows, listed)
        return rows[0] if alone else rows

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.odds.written()}


def bit_rows(answers: Ints, categories: int, odds: Odds, entropy: Entropy | None) -> Packed:
    """One row of bits per person, each bit 1 with probability 1/(1 + odds)."""
    rows = odds.rare_bits((len(answers), report_checks.width(categories)), entropy)
    packed_bits.trim(rows, categories)
    return rows


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class OptimizedUnary(BitsProtocol):
    """One bit per category: the person's own is a fair coin, every other is set with probability 1/(E + 1).

    For all answers of one person two bits differ. With probability 1/2 the two bits of a report agree and reveal
    nothing about which answer it was; otherwise they are randomized response at ε (Wang, Blocki, Li & Jha 2017).

    >>> OptimizedUnary(categories=100, odds=3).variance(share=0, people=1)
    Fraction(3, 1)
    """

    categories: int
    odds: Odds

    def __init__(self, *, categories: int, epsilon: Rational | None = None, odds: Rational | None = None) -> None:
        _prepare(self, categories, epsilon, odds)

    @property
    def support(self) -> Support:
        return Support(1 / (self.odds.number + 1), self.odds.excess / (2 * (self.odds.number + 1)))

    @property
    def curve(self) -> Curve:
        return diluted(curves.randomized_response(epsilon=self.odds.epsilon), 0.5)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Packed:
        listed, alone = report_checks.categories("answers", answers, self.categories)
        source = checked_entropy(entropy)
        rows = bit_rows(listed, self.categories, self.odds, source)
        packed_bits.put(rows, listed, noise.bernoulli(p=Fraction(1, 2), size=len(listed), entropy=source))
        return rows[0] if alone else rows

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.odds.written()}


PRIME: Final = 2**31 - 1
"""Hashes are lines v → av + b modulo this prime: for two different categories the pair of values is exactly uniform."""


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class LocalHashing(SharesProtocol):
    """Each person draws a hash of the categories into g buckets and reports it with their own bucket, randomized.

    For all answers of one person and every hash, buckets differ in likelihood by at most E = e^ε, and not at all if the
    two answers share a bucket. The hash is drawn independently of the answer, and is public. The best g is round(E) + 1
    or next to it (Wang, Blocki, Li & Jha 2017, "OLH"); it is the default of `buckets`. A report is three integers,
    however many categories there are; estimating takes people × categories steps.

    The hash is exact: a and b are uniform modulo the prime 2³¹ - 1 and the buckets are its g nearly equal parts. So two
    categories collide with one known probability, which the estimator uses in place of 1/g.

    >>> round(LocalHashing(categories=100, epsilon=1.0).variance(share=0.0, people=1), 3)
    3.692
    """

    categories: int
    odds: Odds
    buckets: int

    def __init__(
        self,
        *,
        categories: int,
        epsilon: Rational | None = None,
        odds: Rational | None = None,
        buckets: int | None = None,
    ) -> None:
        _prepare(self, categories, epsilon, odds)
        if buckets is not None:
            chosen = arguments.whole("buckets", buckets)
        else:
            near = min(math.floor(self.odds.number) + 1, MOST_BUCKETS - 1)
            chosen = min((near, near + 1), key=lambda g: _hashed(self.odds, g).variance(0, 1))
        if not 2 <= chosen <= MOST_BUCKETS:
            raise InvalidParameter("buckets", buckets, f"must be at least 2 and at most {MOST_BUCKETS:,}")
        object.__setattr__(self, "buckets", chosen)

    @property
    def support(self) -> Support:
        return _hashed(self.odds, self.buckets)

    @property
    def curve(self) -> Curve:
        apart = float(1 - _meeting(self.buckets)) * (1 + ROUNDING)
        return diluted(curves.randomized_response(epsilon=self.odds.epsilon, categories=self.buckets), apart)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        listed, alone = report_checks.categories("answers", answers, self.categories)
        source = checked_entropy(entropy)
        line = noise.uniform(below=PRIME, size=(2, len(listed)), entropy=source)
        bucket = (line[0] * listed + line[1]) % PRIME * self.buckets // PRIME
        bucket_report = randomized_answers(bucket, self.buckets, self.odds, source)
        reports = np.stack((line[0], line[1], bucket_report), axis=1).astype(np.uint32)
        return reports[0] if alone else reports

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By whether the public hash puts both answers into one bucket, and otherwise by whose bucket is reported."""
        a, b = (report_checks.category("answer", answer, self.categories) for answer in (x, x2))
        what = "whose bucket is reported, by a hash that is public and drawn anew for each person"
        if a == b:
            return Telling({MET: 1.0}, {MET: 1.0}, what)
        lie, apart = 1 / (float(self.odds.number) + self.buckets - 1), float(1 - _meeting(self.buckets))
        own, other, rest = (apart * lie * n for n in (float(self.odds.number), 1.0, self.buckets - 2.0))
        names = (f"that of {a}", f"that of {b}", OTHER, MET)
        one, two = (dict(zip(names, (*pair, rest, 1 - apart), strict=True)) for pair in ((own, other), (other, own)))
        return Telling(one, two, what)

    def count(self, reports: Any) -> tuple[Ints, int]:
        rows = self._rows(reports)
        counts = np.zeros(self.categories, dtype=np.int64)
        prime = np.uint32(PRIME)
        first = np.array([-(-bucket * PRIME // self.buckets) for bucket in range(self.buckets + 1)], dtype=np.uint32)
        for start in range(0, len(rows), PEOPLE_AT_A_TIME):
            slope, value, bucket = np.ascontiguousarray(rows[start : start + PEOPLE_AT_A_TIME].T)
            begin, length = first[bucket], np.diff(first)[bucket]
            for category in range(self.categories):
                # Count people for whom value = (slope × category + intercept) mod prime lies in the reported bucket.
                # Unsigned numbers wrap around, so one comparison checks both ends.
                counts[category] += np.count_nonzero(value - begin < length)
                value = value + slope
                value = np.minimum(value, value - prime)
        return counts, len(rows)

    def encode(self, reports: Any) -> list[str]:
        return [f"{a} {b} {bucket}" for a, b, bucket in self._rows(reports).tolist()]

    @property
    def form(self) -> str:
        return "three whole numbers each"

    def parsed(self, texts: list[str]) -> Any:
        rows = [[int(part) for part in text.split(" ")] for text in texts]
        # Reshaped to the number of texts: one text with six numbers must not count as two people.
        return self._rows(np.array(rows, dtype=np.int64).reshape(len(rows), 3))

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.odds.written(), "buckets": self.buckets}

    def _rows(self, reports: Any) -> np.typing.NDArray[np.uint32]:
        rule = f"must be rows of two numbers below {PRIME} and a bucket below {self.buckets}, as randomize returns them"
        given = report_checks.array("reports", reports, rule)
        if given.ndim == 1:
            given = (
                given.reshape(-1, 3) if given.size == 3 else given if given.size else np.zeros((0, 3), dtype=np.uint32)
            )
        if given.ndim != 2 or given.shape[1] != 3 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidParameter("reports", NOTHING, rule)
        if np.any(given < 0) or np.any(given >= np.array([PRIME, PRIME, self.buckets])):
            raise InvalidParameter("reports", NOTHING, rule)
        return given.astype(np.uint32)


MOST_BUCKETS: Final = 2**16
OTHER: Final = "another"
MET: Final = "one for both"
REPORTED: Final = "which category is reported"


def _meeting(buckets: int) -> Fraction:
    """The probability that two categories share a bucket. Buckets have PRIME // g values, and some have one more."""
    size, larger = divmod(PRIME, buckets)
    return Fraction((buckets - larger) * size**2 + larger * (size + 1) ** 2, PRIME**2)


def _hashed(odds: Odds, buckets: int) -> Support:
    lie: Number = 1 / (odds.number + buckets - 1)
    meet: Number = _meeting(buckets) if odds.log == 0 else float(_meeting(buckets))
    return Support(lie * (1 + meet * odds.excess), lie * odds.excess * (1 - meet))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class SubsetSelection(BitsProtocol):
    """A report is a set of w of the d categories: a set with the person's own has weight E, every other has weight 1.

    For all answers x, x′ of one person only the sets with exactly one of x, x′ distinguish them, by a factor E = e^ε:
    with probability t = (E+1) w(d-w) / ((d-1)(wE+d-w)) the report is randomized response at ε, otherwise it reveals
    nothing. The own category is in the set with probability p = wE/(wE+d-w), any other with q = p - gap, gap =
    w(d-w)(E-1) / ((d-1)(wE+d-w)). The best w, the default of `size`, is next to d/(E+1); no protocol with a better
    constant is known (Ye & Barg 2018). For w = 1 it is k-ary randomized response.

    >>> round(SubsetSelection(categories=100, epsilon=1.0).variance(share=0.0, people=1), 3)
    3.59
    """

    categories: int
    odds: Odds
    size: int

    def __init__(
        self,
        *,
        categories: int,
        epsilon: Rational | None = None,
        odds: Rational | None = None,
        size: int | None = None,
    ) -> None:
        _prepare(self, categories, epsilon, odds)
        if size is not None:
            chosen = arguments.whole("size", size)
        else:
            near = max(1, math.floor(self.categories / (self.odds.number + 1)))
            sizes = {near, min(near + 1, self.categories - 1)}
            chosen = min(sizes, key=lambda w: _subsets(self.odds, self.categories, w).variance(0, 1))
        if not 1 <= chosen < self.categories:
            raise InvalidParameter("size", size, "must be at least 1 and below the number of categories")
        object.__setattr__(self, "size", chosen)

    @property
    def support(self) -> Support:
        return _subsets(self.odds, self.categories, self.size)

    @property
    def curve(self) -> Curve:
        w, d, odds = self.size, self.categories, float(self.odds.number)
        apart = (odds + 1) * w * (d - w) / ((d - 1) * (w * odds + d - w)) * (1 + 2 * ROUNDING)
        return diluted(curves.randomized_response(epsilon=self.odds.epsilon), apart)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Packed:
        listed, alone = report_checks.categories("answers", answers, self.categories)
        source = checked_entropy(entropy)
        within = self.odds.heads(len(listed), source, yes=self.size, no=self.categories - self.size)
        rows = np.empty((len(listed), report_checks.width(self.categories)), dtype=np.uint8)
        for piece in packed_bits.pieces(len(listed), rows.shape[1], FILLED_AT_A_TIME):
            rows[piece] = _sets(listed[piece], within[piece], self.categories, self.size, source)
        return rows[0] if alone else rows

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By set if there are few, else by which of the two answers are in it."""
        a, b = (report_checks.category("answer", answer, self.categories) for answer in (x, x2))
        if self.categories <= MOST_BITS:
            return SharesProtocol.told_apart(self, x, x2)
        own = float(self.support.own)
        if a == b:
            return Telling({"1": own, "0": 1 - own}, {"1": own, "0": 1 - own}, f"whether {a} is in the set")
        d, w = self.categories, self.size
        both, only = own * (w - 1) / (d - 1), own * (d - w) / (d - 1)
        wrong, none = (1 - own) * w / (d - 1), (1 - own) * (d - 1 - w) / (d - 1)
        one = {"00": none, "01": wrong, "10": only, "11": both}
        two = {"00": none, "01": only, "10": wrong, "11": both}
        return Telling(one, two, f"whether {a} and {b} are in the set")

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """Keys are sets as texts of bits: sets with the person's own category have weight E."""
        own, odds = self.listed_category(answer), float(self.odds.number)
        weights = {
            "".join("01"[i in chosen] for i in range(self.categories)): odds if own in chosen else 1.0
            for chosen in combinations(range(self.categories), self.size)
        }
        total = math.fsum(weights.values())
        return {bits: weight / total for bits, weight in weights.items()}

    def rows(self, reports: Any) -> Packed:
        """Reports as packed rows. A report is a set of `size` categories: rows with more or fewer bits raise
        InvalidParameter.
        """
        found = BitsProtocol.rows(self, reports)
        if np.any(packed_bits.ones(found) != self.size):
            rule = f"must be rows of {self.categories} bits, {self.size} of them set, as randomize returns them"
            raise InvalidParameter("reports", NOTHING, rule)
        return found

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.odds.written(), "size": self.size}


def _subsets(odds: Odds, d: int, w: int) -> Support:
    total: Number = w * odds.number + d - w
    other = (w * odds.number * (w - 1) + (d - w) * w) / ((d - 1) * total)
    return Support(other, w * (d - w) * odds.excess / ((d - 1) * total))


FILLED_AT_A_TIME: Final = 8 * packed_bits.BYTES_AT_A_TIME
"""`_fill` takes a few dozen rounds for each piece, so pieces are larger here."""


def _sets(
    own: Ints, within: np.typing.NDArray[np.bool_], categories: int, size: int, entropy: Entropy | None
) -> Packed:
    """For each person a random set of `size` categories that contains their own, or does not, by `within`."""
    if 2 * size > categories:  # draw whichever is smaller, the set or its complement
        rows = ~_sets(own, ~within, categories, categories - size, entropy)
        packed_bits.trim(rows, categories)
        return rows
    # Start with independent bits, each 1 with so small a probability that most rows have too few, by about a standard
    # deviation. Rows with too many are drawn again. Given their number, the ones are a uniform set, and stay so when
    # random other categories are added. The own bit is 1 meanwhile, so that it is not added.
    often = Fraction(4 * size - 3 * math.isqrt(size), 4 * categories)
    rough = Odds((1 - often) / often, Fraction(0))
    rows, missing = _begun(own, size - within, categories, rough, entropy)
    while (again := np.flatnonzero(missing < 0)).size:
        rows[again], missing[again] = _begun(own[again], size - within[again], categories, rough, entropy)
    _fill(rows, missing, categories, entropy)
    packed_bits.put(rows, own, within)
    return rows


def _begun(own: Ints, wanted: Ints, categories: int, rough: Odds, entropy: Entropy | None) -> tuple[Packed, Ints]:
    """Rows of independent bits, except the own bit, which is 1; and how many other bits each row lacks."""
    rows = bit_rows(own, categories, rough, entropy)
    packed_bits.put(rows, own, np.ones(len(own), dtype=np.bool_))
    return rows, wanted + 1 - packed_bits.ones(rows)


def _fill(rows: Packed, missing: Ints, categories: int, entropy: Entropy | None) -> None:
    """Add random categories to the rows, in place, until none is missing."""
    flat = rows.reshape(-1)
    starts = np.flatnonzero(missing) * rows.shape[1]
    missing = missing[missing != 0]
    while starts.size:
        byte, mask = packed_bits.place(noise.uniform(below=categories, size=starts.size, entropy=entropy))
        byte += starts
        before = flat[byte]
        mask |= before
        flat[byte] = mask
        missing -= mask != before
        still = np.flatnonzero(missing)
        starts, missing = starts[still], missing[still]


def recommended(*, categories: int, epsilon: Rational) -> KaryRandomizedResponse | SubsetSelection | LocalHashing:
    """The protocol with the smallest variance: k-ary randomized response or subset selection; local hashing if a report
    of one bit per category would be too long (above 8,192 categories).

    >>> recommended(categories=4, epsilon=2.0)
    KaryRandomizedResponse(categories=4, epsilon=2.0)
    """
    if category_count(categories) > LONGEST_ROW:
        return LocalHashing(categories=categories, epsilon=epsilon)
    subsets = SubsetSelection(categories=categories, epsilon=epsilon)
    return KaryRandomizedResponse(categories=categories, epsilon=epsilon) if subsets.size == 1 else subsets


LONGEST_ROW: Final = 2**13
