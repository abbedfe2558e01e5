"""Count-mean sketches: shares of texts that nobody can list in advance, with a short report (Apple 2017).

Every person draws one of `hashes` public hash functions, which maps their text to one of `width` places.

=================  ===============================================================  ==========================
protocol           the report                                                       two texts are separated by
=================  ===============================================================  ==========================
CountMeanSketch    the place among `width` bits, each flipped at ε/2                two coins at ε/2
HadamardSketch     one entry of the place's Hadamard row, flipped at ε              one coin at ε, half the time
=================  ===============================================================  ==========================

A report supports a text by the bit at the text's place. Other texts collide there with probability 1/`width`, which the
estimator subtracts. (Apple's Differential Privacy Team, "Learning with privacy at scale", 2017, algorithms CMS and
HCMS.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments, curves, noise
from deniable.arguments import NumberRange
from deniable.curves import Curve
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import packed_bits, report_checks
from deniable.local.collector_estimates import Fitted
from deniable.local.exact_odds import Odds, Rational
from deniable.local.local_protocol import Parameter, Protocol, Telling, diluted, two_bits
from deniable.local.rappor import CohortReports, checked_rows
from deniable.local.report_checks import Floats, Ints, Packed
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

MOST_WIDTH: Final = 2**16
MOST_HASHES: Final = 2**16
MET: Final = "one place"


class _Sketch(Protocol):
    """Base of the two sketches."""

    __slots__ = ()
    width: int
    hashes: int
    odds: Odds

    def _fill(self, width: Any, hashes: Any, epsilon: Rational | None, odds: Rational | None) -> None:
        for name, value, least, most in (("width", width, 2, MOST_WIDTH), ("hashes", hashes, 1, MOST_HASHES)):
            within = NumberRange(f"must lie between {least} and {most:,}", least=least, most=most)
            object.__setattr__(self, name, arguments.whole(name, value, within))
        object.__setattr__(self, "odds", Odds.of(epsilon=epsilon, odds=odds))

    def place_of(self, answer: str, *, number: int) -> int:
        """The place of a text under one of the hash functions. Public: anybody can compute it."""
        if not isinstance(answer, str):
            raise InvalidParameter("answer", NOTHING, "must be a text")
        rule = f"must be below {self.hashes}, and not negative"
        arguments.whole("number", number, NumberRange(rule, least=0, below=self.hashes))
        # "surrogatepass" gives bytes for every text, even half of a surrogate pair: an encoding error would quote the
        # answer.
        written = answer.encode("utf-8", "surrogatepass")
        digest = blake2b(written, digest_size=16, key=b"sketch %d" % number).digest()
        return int.from_bytes(digest, "little") % self.width

    def _telling(self, x: Any, x2: Any, one: dict[Any, float], two: dict[Any, float], what: str) -> Telling:
        """The two report laws if the drawn hash function separates the texts, and MET if it does not."""
        places = ((self.place_of(x, number=j), self.place_of(x2, number=j)) for j in range(self.hashes))
        apart = sum(a != b for a, b in places) / self.hashes
        here, there = ({**{y: apart * p for y, p in law.items()}, MET: 1 - apart} for law in (one, two))
        return Telling(here, there, f"{what}, by a hash function that is public")

    def _places(self, answers: Any, entropy: Entropy | None) -> tuple[Ints, Ints]:
        """The hash function that each person draws, and the place of their text under it."""
        texts = report_checks.texts("answers", answers)
        drawn = np.asarray(noise.uniform(below=self.hashes, size=len(texts), entropy=entropy), dtype=np.int64)
        known: dict[tuple[str, int], int] = {}
        places = np.empty(len(texts), dtype=np.int64)
        for person, key in enumerate(zip(texts, drawn.tolist(), strict=True)):
            if key not in known:
                known[key] = self.place_of(key[0], number=key[1])
            places[person] = known[key]
        return drawn, places

    @abstractmethod
    def _checked(self, reports: Any) -> Any:
        """The reports. Those that `randomize` cannot return raise InvalidParameter."""

    @abstractmethod
    def _spoken(self, checked: Any, places: Ints) -> Floats:
        """For each report, an unbiased estimate of 1 if the person's text is at this place under their hash function,
        and of 0 otherwise.
        """

    @abstractmethod
    def _drawn(self, checked: Any) -> Ints:
        """The hash function of each report."""

    def estimate(self, reports: Any, *, candidates: Sequence[str] = ()) -> Fitted:
        """The share of people with each candidate text, unbiased over the choice of hash functions. The error covers
        noise, sampling, and collisions of texts. Raises InvalidParameter if there are no candidates or a candidate
        occurs twice.
        """
        asked = report_checks.texts("candidates", candidates)
        if not asked or len(set(asked)) != len(asked):
            raise InvalidParameter("candidates", NOTHING, "must be at least one text, and all different")
        checked = self._checked(reports)
        drawn = self._drawn(checked)
        shares, errors = np.empty(len(asked)), np.empty(len(asked))
        used, where = np.unique(drawn, return_inverse=True)
        for i, text in enumerate(asked):
            places = np.array([self.place_of(text, number=int(j)) for j in used], dtype=np.int64)[where]
            adds = (self.width * self._spoken(checked, places) - 1) / (self.width - 1)
            shares[i] = adds.mean()
            # Two texts collide under a random hash function with probability 1/width. Over all hash functions this adds
            # at most 1/(hashes (width - 1)) to the variance, whatever the shares of other texts are.
            spread = float(adds.var(ddof=1)) / len(adds) if len(adds) > 1 else float(adds.var())
            errors[i] = np.sqrt(spread + 1 / (self.hashes * (self.width - 1)))
        return Fitted(shares, errors, len(drawn))

    def parameters(self) -> dict[str, Parameter]:
        return {"width": self.width, "hashes": self.hashes, **self.odds.written()}


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class CountMeanSketch(_Sketch):
    """The person's place among `width` bits, every bit flipped with probability 1/(e^(ε/2) + 1).

    For all texts of one person at most two bits differ, each by randomized response at ε/2.

    >>> sketch = CountMeanSketch(width=256, hashes=64, epsilon=4.0)
    >>> reports = sketch.randomize(["pear", "plum", "pear", "fig"] * 50)
    >>> sketch.estimate(reports, candidates=["pear", "plum"]).people
    200
    """

    width: int
    hashes: int
    odds: Odds

    def __init__(
        self, *, width: int, hashes: int, epsilon: Rational | None = None, odds: Rational | None = None
    ) -> None:
        self._fill(width, hashes, epsilon, odds)
        self.odds.root()

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.odds.root().epsilon) ** 2

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> CohortReports:
        """One report each: a row of bits, and the number of the hash function."""
        source = checked_entropy(entropy)
        drawn, places = self._places([answers] if isinstance(answers, str) else answers, source)
        rows = self.odds.root().rare_bits((len(drawn), report_checks.width(self.width)), source)
        packed_bits.trim(rows, self.width)
        packed_bits.flip(rows, places)
        return CohortReports(rows, drawn)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By the two bits at the places of both texts."""
        other = 1 / (float(self.odds.root().number) + 1)
        laws = two_bits(1 - other, other), two_bits(other, 1 - other)
        return self._telling(x, x2, *laws, "the bits at the places of both texts")

    def _checked(self, reports: Any) -> tuple[Packed, Ints]:
        return checked_rows(reports, self.width, self.hashes)

    def _drawn(self, checked: tuple[Packed, Ints]) -> Ints:
        return checked[1]

    def _spoken(self, checked: tuple[Packed, Ints], places: Ints) -> Floats:
        bits = (checked[0][np.arange(len(places)), places // 8] >> (places % 8)) & 1
        root = self.odds.root()
        other = 1 / (float(root.number) + 1)
        return np.asarray((bits - other) / (1 - 2 * other))

    def encode(self, reports: Any) -> list[str]:
        rows, drawn = self._checked(reports)
        return [f"{number} {row.tobytes().hex()}" for number, row in zip(drawn.tolist(), rows, strict=True)]

    @property
    def form(self) -> str:
        return "a hash function's number and bits in hexadecimal each"

    def parsed(self, texts: list[str]) -> CohortReports:
        parts = [text.split(" ") for text in texts]
        drawn = np.array([int(number) for number, _ in parts], dtype=np.int64)
        return CohortReports(report_checks.hexadecimal([row for _, row in parts], self.width), drawn)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class HadamardSketch(_Sketch):
    """One bit: a random entry of the Hadamard row of the person's place, flipped with probability 1/(e^ε + 1).

    The rows of two places agree in half of their entries, and the entry number is public: half the time the report
    reveals nothing, otherwise as much as randomized response at ε. `width` is a power of two. A report is (hash
    function, entry, bit).

    >>> sketch = HadamardSketch(width=256, hashes=64, epsilon=2.0)
    >>> sketch.randomize("pear").shape
    (1, 3)
    """

    width: int
    hashes: int
    odds: Odds

    def __init__(
        self, *, width: int, hashes: int, epsilon: Rational | None = None, odds: Rational | None = None
    ) -> None:
        self._fill(width, hashes, epsilon, odds)
        if self.width & (self.width - 1):
            raise InvalidParameter("width", self.width, "must be a power of two")

    @property
    def curve(self) -> Curve:
        return diluted(curves.randomized_response(epsilon=self.odds.epsilon), 0.5)

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Ints:
        """One report each, a row of three numbers."""
        source = checked_entropy(entropy)
        drawn, places = self._places([answers] if isinstance(answers, str) else answers, source)
        entries = np.asarray(noise.uniform(below=self.width, size=len(drawn), entropy=source), dtype=np.int64)
        kept = self.odds.heads(len(drawn), source)
        return np.stack((drawn, entries, (hadamard(entries, places) == kept).astype(np.int64)), axis=1)

    def told_apart(self, x: Any, x2: Any) -> Telling:
        """By whose row the bit supports, if the rows of both places differ at the entry: half the time."""
        other = 1 / (float(self.odds.number) + 1)
        names = ("for the first", "for the second", "for both")
        one, two = (dict(zip(names, (p / 2, (1 - p) / 2, 0.5), strict=True)) for p in (1 - other, other))
        return self._telling(x, x2, one, two, "which text the bit speaks for")

    def _checked(self, reports: Any) -> Ints:
        rule = "must be rows of a hash function's number, an entry and a bit, as randomize returns them"
        rows = np.asarray(reports)
        if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind not in "iu":
            raise InvalidParameter("reports", NOTHING, rule)
        if len(rows) and (rows.min() < 0 or np.any(rows.max(axis=0) >= (self.hashes, self.width, 2))):
            raise InvalidParameter("reports", NOTHING, rule)
        report_checks.some(len(rows))
        return rows.astype(np.int64)

    def _drawn(self, checked: Ints) -> Ints:
        return np.asarray(checked[:, 0])

    def _spoken(self, checked: Ints, places: Ints) -> Floats:
        agree = np.where((checked[:, 2] == 1) == hadamard(checked[:, 1], places), 1.0, -1.0)
        grown = float(self.odds.number)
        return np.asarray(agree * (grown + 1) / (grown - 1))

    def encode(self, reports: Any) -> list[str]:
        return [" ".join(map(str, row)) for row in self._checked(reports).tolist()]

    @property
    def form(self) -> str:
        return "three whole numbers each"

    def parsed(self, texts: list[str]) -> Ints:
        return np.array([[int(part) for part in text.split(" ")] for text in texts], dtype=np.int64)


def hadamard(entries: Ints, places: Ints) -> np.typing.NDArray[np.bool_]:
    """Whether the entry of the Hadamard matrix is +1: the two numbers have an even number of ones in common."""
    common = (entries & places).astype(np.uint64)
    parity = np.zeros(len(common), dtype=np.uint64)
    while np.any(common):
        parity ^= common & np.uint64(1)
        common >>= np.uint64(1)
    return np.asarray(parity == 0)
