"""RAPPOR: answers that are collected repeatedly, with memoised noise.

A person's bits are randomized once and for all (the permanent response, which the person keeps secret), and every
report adds fresh noise to them (the instantaneous response). However many reports a person sends, they cannot reveal
more than the permanent response: `longitudinal`. Without memoization every report would be a new release, and T reports
would cost T times as much. (Erlingsson, Pihur & Korolova 2014.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments, curves, noise
from deniable.arguments import INNER_PROBABILITY, PROBABILITY, NumberRange
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import packed_bits, report_checks
from deniable.local.collector_estimates import Fitted, Support
from deniable.local.exact_odds import Odds, Rational, exact
from deniable.local.local_protocol import BitsProtocol, Parameter, Protocol, Telling, category_count
from deniable.local.report_checks import Ints, Packed
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_REPORTS: Final = 2000
"""Most reports whose exact curve is computed; beyond, `longitudinal` bounds any number of them."""

_REPORTS: Final = NumberRange(
    f"must be at least 1 and at most {MOST_REPORTS}",
    least=1,
    most=MOST_REPORTS,
    remedy="longitudinal bounds any number of them",
)

LIGHT: Final = Fraction(1, 10**200)
"""Outcomes of smaller probability are merged into the two extreme losses, which is the safe side, before they become
floats.
"""


@final
@dataclass(frozen=True, slots=True)
class Coins:
    """The three probabilities: a permanent bit is random with probability f (and then wrong half the time); a report
    shows a set bit with probability q and an unset one with probability p < q.
    """

    f: Fraction
    p: Fraction
    q: Fraction

    @classmethod
    def of(cls, f: Rational, p: Rational, q: Rational) -> Coins:
        """The three probabilities, checked: 0 < f < 1 and 0 <= p < q <= 1."""
        coins = cls(
            arguments.rational("f", f, PROBABILITY, INNER_PROBABILITY),
            arguments.rational("p", p, PROBABILITY),
            arguments.rational("q", q, PROBABILITY),
        )
        if not coins.p < coins.q:
            raise InvalidParameter("p", p, f"must be below q = {float(coins.q):g}")
        coins.wrong.within("f", f)
        return coins

    @property
    def wrong(self) -> Odds:
        """The odds that a permanent bit is right: (1 - f/2) : f/2."""
        return Odds((2 - self.f) / self.f, Fraction(0))

    @property
    def support(self) -> Support:
        """A reported bit is set with probability q* = f(p+q)/2 + (1-f)q if it is the person's own, else with p*."""
        return Support(self.f * (self.p + self.q) / 2 + (1 - self.f) * self.p, (1 - self.f) * (self.q - self.p))

    def permanent(self, rows: Packed, width: int, entropy: Entropy | None) -> None:
        """Flip every bit with probability f/2, in place."""
        for piece in packed_bits.pieces(len(rows), rows.shape[1]):
            rows[piece] ^= _bits_at(self.f / 2, rows[piece].shape, entropy)
        packed_bits.trim(rows, width)

    def instantaneous(self, memory: Packed, width: int, entropy: Entropy | None) -> Packed:
        """Show set bits with probability q, unset ones with probability p."""
        reports = np.empty_like(memory)
        for piece in packed_bits.pieces(len(memory), memory.shape[1]):
            kept = memory[piece]
            shown, made_up = (_bits_at(chance, kept.shape, entropy) for chance in (self.q, self.p))
            reports[piece] = (kept & shown) | (~kept & made_up)
        packed_bits.trim(reports, width)
        return reports

    def curve(self, *, reports: int, hashes: int) -> Curve:
        """The curve of this many reports: the counts of how often each of 2 × hashes bits was set, half of them in each
        direction.
        """
        times = arguments.whole("reports", reports, _REPORTS)
        one, other = _bit_laws(self, times)
        return (curves.from_pmf(one, other, tied=True) * curves.from_pmf(other, one, tied=True)) ** hashes

    def longitudinal(self, *, hashes: int) -> Curve:
        """The curve of any number of reports: the permanent bits themselves."""
        return curves.randomized_response(epsilon=self.wrong.epsilon) ** (2 * hashes)

    def written(self) -> dict[str, Parameter]:
        """The keyword arguments that construct these coins again."""
        return {"f": exact(self.f), "p": exact(self.p), "q": exact(self.q)}


def _bits_at(chance: Fraction, shape: tuple[int, ...], entropy: Entropy | None) -> Packed:
    """Bytes in which each bit is 1 with this probability."""
    if 0 < chance < 1:
        return Odds((1 - chance) / chance, Fraction(0)).rare_bits(shape, entropy)
    return np.full(shape, 255 if chance == 1 else 0, dtype=np.uint8)


@lru_cache(maxsize=64)
def _bit_laws(coins: Coins, times: int) -> tuple[list[float], list[float]]:
    """The law of how often a bit is set in this many reports: if it is the person's own, and if it is not.

    Computed in integers over one denominator; only the last division is rounded.
    """
    right, wrong = 2 * coins.f.denominator - coins.f.numerator, coins.f.numerator
    whole = math.lcm(coins.p.denominator, coins.q.denominator)
    unit = 2 * coins.f.denominator * whole**times
    often, rarely = (_binomial(times, int(chance * whole), whole) for chance in (coins.q, coins.p))
    one = [right * a + wrong * b for a, b in zip(often, rarely, strict=True)]
    other = [wrong * a + right * b for a, b in zip(often, rarely, strict=True)]
    shown = [(a / unit, b / unit) for a, b in zip(one, other, strict=True)]
    light = [i for i, masses in enumerate(shown) if min(masses) < LIGHT]
    kept = [masses for masses in shown if min(masses) >= LIGHT]
    if light:
        # Every loss lies between the extremes ±log(right/wrong). Splitting mass between them, so that both laws keep
        # their masses, can only make the laws easier to distinguish (connect the dots).
        ratio = Fraction(right, wrong)
        total, rest = (Fraction(sum(masses[i] for i in light), unit) for masses in (one, other))
        high = max((total * ratio - rest) * ratio / (ratio**2 - 1), LIGHT)
        low = max((rest * ratio - total) / (ratio**2 - 1), LIGHT)
        kept += [(float(high), float(high / ratio)), (float(low), float(low * ratio))]
    return [a for a, _ in kept], [b for _, b in kept]


def _binomial(n: int, top: int, bottom: int) -> list[int]:
    """Binomial masses for the probability top/bottom, in units of bottom^-n."""
    yes, no = [1], [1]
    for _ in range(n):
        yes.append(yes[-1] * top)
        no.append(no[-1] * (bottom - top))
    return [math.comb(n, k) * yes[k] * no[n - k] for k in range(n + 1)]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Memory:
    """The permanent responses of people. Secret: each row belongs to its person and must never be collected."""

    rows: Packed
    cohorts: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Memory(people={len(self)})"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Rappor(BitsProtocol):
    """Basic RAPPOR: one bit per category, a memoised permanent response, and a report from it each time.

    For all answers of one person two bits differ. `curve` is one report, `after(reports=)` several reports from one
    memory, `longitudinal` any number of them: randomized response with 1 - f/2, twice, so ε = 2 ln((1 - f/2)/(f/2)).

    >>> protocol = Rappor(categories=10, f=0.5, p=0.5, q=0.75)
    >>> memory = protocol.memorize([3, 1, 4, 1, 5])  # once, and each person keeps their own
    >>> monday, tuesday = protocol.report(memory), protocol.report(memory)
    >>> round(protocol.curve.epsilon(delta=0), 3), round(protocol.longitudinal.epsilon(delta=0), 3)
    (0.537, 2.197)
    """

    categories: int
    coins: Coins

    def __init__(self, *, categories: int, f: Rational, p: Rational, q: Rational) -> None:
        object.__setattr__(self, "categories", category_count(categories))
        object.__setattr__(self, "coins", Coins.of(f, p, q))

    @property
    def support(self) -> Support:
        return self.coins.support

    @property
    def curve(self) -> Curve:
        return self.after(reports=1)

    def after(self, *, reports: int) -> Curve:
        """The exact curve of this many reports (1 to 2,000) from one memory."""
        return self.coins.curve(reports=reports, hashes=1)

    @property
    def longitudinal(self) -> Curve:
        """An upper bound for any number of reports from one memory."""
        return self.coins.longitudinal(hashes=1)

    def memorize(self, answers: Any, *, entropy: Entropy | None = None) -> Memory:
        """The permanent response of each person, drawn once for each answer and kept."""
        return self._memory(answers, checked_entropy(entropy))

    def report(self, memory: Memory, *, entropy: Entropy | None = None) -> Packed:
        """One report of each person, from their memory."""
        _remembered(memory, report_checks.width(self.categories))
        return self.coins.instantaneous(memory.rows, self.categories, checked_entropy(entropy))

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Packed:
        """One report each from a memory that is discarded: for people who are asked once."""
        source = checked_entropy(entropy)
        reports = self.coins.instantaneous(self._memory(answers, source).rows, self.categories, source)
        return reports[0] if np.ndim(answers) == 0 else reports

    def parameters(self) -> dict[str, Parameter]:
        return {"categories": self.categories, **self.coins.written()}

    def _memory(self, answers: Any, entropy: Entropy | None) -> Memory:
        listed, _ = report_checks.categories("answers", answers, self.categories)
        rows = np.zeros((len(listed), report_checks.width(self.categories)), dtype=np.uint8)
        packed_bits.flip(rows, listed)
        self.coins.permanent(rows, self.categories, entropy)
        return Memory(rows, np.zeros(len(listed), dtype=np.int64))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CohortReports:
    """Reports of a Bloom filter, each with the public number of the cohort whose hash functions it uses."""

    rows: Packed
    cohorts: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"CohortReports(people={len(self)})"


MOST_BITS: Final = 4096
MOST_COHORTS: Final = 4096
MOST_HASHES: Final = 32


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class BloomRappor(Protocol):
    """RAPPOR for texts that nobody can list in advance: each text sets `hashes` of `bits` bits, chosen by the hash
    functions of the person's cohort.

    For all answers of one person at most 2 × hashes bits differ, so ε = 2 h ln((1 - f/2)/(f/2)) for any number of
    reports, and `after(reports=)` for that many; exact for two answers whose bits are all different. The collector
    estimates the shares of candidates by least squares over all cohorts, unbiased if everybody's answer is a candidate.
    Other answers set bits at random, which a constant term absorbs.

    >>> protocol = BloomRappor(bits=32, hashes=2, cohorts=8, f=0.25, p=0.25, q=0.75)
    >>> reports = protocol.randomize(["pear", "plum", "pear", "fig"] * 50)
    >>> protocol.estimate(reports, candidates=["pear", "plum", "fig"]).people
    200
    """

    bits: int
    hashes: int
    cohorts: int
    coins: Coins

    def __init__(self, *, bits: int, hashes: int, cohorts: int, f: Rational, p: Rational, q: Rational) -> None:
        for name, value, least, most in (
            ("bits", bits, 2, MOST_BITS),
            ("hashes", hashes, 1, MOST_HASHES),
            ("cohorts", cohorts, 1, MOST_COHORTS),
        ):
            within = NumberRange(f"must lie between {least} and {most}", least=least, most=most)
            object.__setattr__(self, name, arguments.whole(name, value, within))
        object.__setattr__(self, "coins", Coins.of(f, p, q))

    @property
    def curve(self) -> Curve:
        return self.after(reports=1)

    def after(self, *, reports: int) -> Curve:
        """The curve of this many reports (1 to 2,000) from one memory."""
        return self.coins.curve(reports=reports, hashes=self.hashes)

    @property
    def longitudinal(self) -> Curve:
        """An upper bound for any number of reports from one memory."""
        return self.coins.longitudinal(hashes=self.hashes)

    def memorize(self, answers: Any, *, entropy: Entropy | None = None) -> Memory:
        """The cohort and the permanent response of each person, drawn once for each answer and kept."""
        return self._memory(answers, checked_entropy(entropy))

    def report(self, memory: Memory, *, entropy: Entropy | None = None) -> CohortReports:
        """One report of each person, from their memory."""
        _remembered(memory, report_checks.width(self.bits))
        rows = self.coins.instantaneous(memory.rows, self.bits, checked_entropy(entropy))
        return CohortReports(rows, memory.cohorts)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> CohortReports:
        """One report each from a memory that is discarded: for people who are asked once."""
        source = checked_entropy(entropy)
        memory = self._memory([answers] if isinstance(answers, str) else answers, source)
        return CohortReports(self.coins.instantaneous(memory.rows, self.bits, source), memory.cohorts)

    def filter_of(self, answer: str, *, cohort: int) -> Ints:
        """The bits that an answer sets in a cohort. Public: anybody can compute it."""
        if not isinstance(answer, str):
            raise InvalidParameter("answer", NOTHING, "must be a text")
        rule = f"must be below {self.cohorts}, and not negative"
        arguments.whole("cohort", cohort, NumberRange(rule, least=0, below=self.cohorts))
        # "surrogatepass" gives bytes for every text, even half of a surrogate pair: an encoding error would quote the
        # answer.
        written, found = answer.encode("utf-8", "surrogatepass"), set()
        for number in range(self.hashes):
            digest = blake2b(written, digest_size=16, key=b"%d %d" % (cohort, number)).digest()
            found.add(int.from_bytes(digest, "little") % self.bits)
        return np.array(sorted(found), dtype=np.int64)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By the number of bits that only one of the two texts sets in the person's cohort, and how many of these bits
        are 1 in the report; the rest of the report has the same law for both.
        """
        apart: Counter[tuple[int, int]] = Counter()
        for cohort in range(self.cohorts):
            first, second = (set(self.filter_of(text, cohort=cohort).tolist()) for text in (x, x2))
            apart[len(first - second), len(second - first)] += 1
        own, other = float(self.coins.support.own), float(self.coins.support.other)
        laws: tuple[dict[Any, float], dict[Any, float]] = {}, {}
        for law, (mine, theirs) in zip(laws, ((own, other), (other, own)), strict=True):
            for (left, right), cohorts in apart.items():
                for i, j in product(range(left + 1), range(right + 1)):
                    chance = _binomial_mass(i, left, mine) * _binomial_mass(j, right, theirs)
                    law[f"{i}/{left} and {j}/{right}"] = cohorts / self.cohorts * chance
        return Telling(*laws, "how many bits are 1 of those that one text sets alone, in the public cohort")

    def estimate(self, reports: Any, *, candidates: Sequence[str] = ()) -> Fitted:
        """The share of people with each candidate answer. Raises InvalidParameter if there are no candidates, if a
        candidate occurs twice, or if the bits cannot separate them.
        """
        asked = report_checks.texts("candidates", candidates)
        if not asked or len(set(asked)) != len(asked):
            raise InvalidParameter("candidates", NOTHING, "must be at least one text, and all different")
        rows, cohorts = self._checked(reports)
        own, gap = self.coins.support, float(self.coins.support.gap)
        size = np.bincount(cohorts, minlength=self.cohorts)
        present = np.flatnonzero(size)
        # One row for each bit of each non-empty cohort, weighted by its size; the last column is constant.
        design = np.zeros((len(present), self.bits, len(asked) + 1))
        design[:, :, -1] = 1.0
        for i, cohort in enumerate(present):
            for j, text in enumerate(asked):
                design[i, self.filter_of(text, cohort=int(cohort)), j] = 1.0
        normal = np.einsum("ibj,ibk,i->jk", design, design, size[present].astype(np.float64))
        if np.linalg.matrix_rank(normal) <= len(asked):
            rule = "cannot be distinguished by these bits and cohorts"
            raise InvalidParameter("candidates", NOTHING, rule, "take more bits or cohorts, or fewer candidates")
        solved = np.linalg.solve(normal, design.reshape(-1, len(asked) + 1).T)[:-1]
        weights = solved.reshape(len(asked), len(present), self.bits)
        shares, variance = np.zeros(len(asked)), np.zeros(len(asked))
        for i, cohort in enumerate(present):
            # Each person's contribution to the estimate; its spread within the cohort gives the variance of the sum.
            member = np.unpackbits(rows[cohorts == cohort], axis=1, count=self.bits, bitorder="little")
            adds = (member - float(own.other)) / gap @ weights[:, i, :].T
            shares += adds.sum(axis=0)
            variance += len(member) * adds.var(axis=0, ddof=1 if len(member) > 1 else 0)
        return Fitted(shares, np.sqrt(variance), len(rows))

    def encode(self, reports: Any) -> list[str]:
        rows, cohorts = self._checked(reports)
        return [f"{cohort} {row.tobytes().hex()}" for cohort, row in zip(cohorts.tolist(), rows, strict=True)]

    @property
    def form(self) -> str:
        return "a cohort and its bits in hexadecimal each"

    def parsed(self, texts: list[str]) -> CohortReports:
        parts = [text.split(" ") for text in texts]
        cohorts = np.array([int(cohort) for cohort, _ in parts], dtype=np.int64)
        return CohortReports(report_checks.hexadecimal([row for _, row in parts], self.bits), cohorts)

    def parameters(self) -> dict[str, Parameter]:
        return {"bits": self.bits, "hashes": self.hashes, "cohorts": self.cohorts, **self.coins.written()}

    def _memory(self, answers: Any, entropy: Entropy | None) -> Memory:
        texts = report_checks.texts("answers", answers)
        cohorts = noise.uniform(below=self.cohorts, size=len(texts), entropy=entropy)
        rows = np.zeros((len(texts), report_checks.width(self.bits)), dtype=np.uint8)
        known: dict[tuple[str, int], Packed] = {}
        for person, key in enumerate(zip(texts, cohorts.tolist(), strict=True)):
            if key not in known:
                row = np.zeros(self.bits, dtype=np.bool_)
                row[self.filter_of(key[0], cohort=key[1])] = True
                known[key] = np.packbits(row, bitorder="little")
            rows[person] = known[key]
        self.coins.permanent(rows, self.bits, entropy)
        return Memory(rows, cohorts)

    def _checked(self, reports: Any) -> tuple[Packed, Ints]:
        return checked_rows(reports, self.bits, self.cohorts)


def _binomial_mass(k: int, n: int, chance: float) -> float:
    return math.comb(n, k) * chance**k * (1 - chance) ** (n - k)


def checked_rows(reports: Any, width: int, cohorts: int) -> tuple[Packed, Ints]:
    """Rows of `width` bits, and for each the public number of its cohort or hash function."""
    if not isinstance(reports, CohortReports):
        raise InvalidParameter("reports", NOTHING, "must be CohortReports, as randomize and report return them")
    rows = report_checks.packed("reports", reports.rows, width)
    rule = f"must name a cohort below {cohorts} for each row of bits"
    numbers, _ = report_checks.whole("reports", reports.cohorts, cohorts, rule)
    if len(numbers) != len(rows):
        raise InvalidParameter("reports", NOTHING, rule)
    report_checks.some(len(rows))
    return rows, numbers


def _remembered(memory: Any, width: int) -> None:
    if not isinstance(memory, Memory) or memory.rows.shape[1] != width:
        raise InvalidParameter("memory", NOTHING, "must be what memorize of this protocol returned")
