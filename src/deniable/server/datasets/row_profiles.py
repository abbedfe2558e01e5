"""Whether two tables have the same rows, by the columns that they share: whatever else each of them has.

Marks of whole rows (`data_marks`) know a row by all of its cells. One more column, of whatever it may be, makes
others of them. So a table is also known by its profile: how often each value of a column, each pair of values of two
columns of few values, each row, and each row without its unique cells comes in it; of each the 64 that come first in
the order of a keyed hash. Columns of one value, names and orders play no part.

Let a value come a times in one table of n rows and b times in another of m. Where the rows of both are independent
draws of one distribution, whichever it is, b of s = a + b is binomial with r = m / (n + m); where they are the same
rows, b/m and a/n are nearer to each other than that. With P the binomial, Q ∝ P^(1/τ) has about τ times its variance,
and e = Π Q(b) / P(b) has the mean 1 under P (an e-value: Vovk & Wang 2021). All b add up to m, which makes the joint
law at most √(2π (n+m) r (1-r)) times the product, so that is divided by. A mean of e-values over all τ and all pairs
of columns is one again, however they depend on each other; by Markov's inequality unrelated tables reach 1/`CHANCE`
with a chance of `CHANCE` at most. Rows of one person that are alike make b vary more, and e smaller.

Of exact copies there is a hash of all rows, see `exact_copies`: it knows tables of few values, which have few cells
to count.

That is a chance under independent draws: two experiments of one design have some of their counts in common, and two
lists of everybody in a town the same values. So only by whole rows data is linked, and that at a chance of `SURELY`. Of
what is alike in part, the owner is asked. Where both tables have ids, these tell people apart, and the owner is asked
only where the ids may have been drawn anew: where rows come about once each, and half of them are common.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from itertools import combinations
from math import exp, fsum, inf, isinf, lgamma, log, pi
from typing import Final, final
from zlib import crc32

from deniable.server.datasets.exact_copies import Whole, Wholes

CHANCE: Final = 1e-6
"""That unrelated tables whose rows are independent draws of one distribution are taken for the same rows."""

SURELY: Final = 1e-9
"""The same by their whole rows alone."""

_KEPT: Final = 64
_ROOM: Final = 4096
"""Values of a column that are counted before those that come late in the order are dropped."""

_BATCH: Final = 20_000
"""Rows that are counted together; by the first of them it is seen which columns are constant, unique, of few values."""

_FEW: Final = 16
_FEW_COLUMNS: Final = 8
_COLUMNS: Final = 64
"""Of a wider table, the first in the order of the hashes of their values."""

_FEWEST: Final = 6
_UNIQUE: Final = 0.98
"""The share of different values from which a column tells every row apart."""

_ONCE: Final = 1 + 1 / 16
"""How often a row comes that tells people apart, on average."""

_NARROW: Final = (0.0, 0.1, 0.4)
"""τ: the same rows; with some of them missing; with many changed."""

_EXACT: Final = 64
"""Up to here a binomial is added up, from here on it is about normal."""


@final
@dataclass(frozen=True, slots=True)
class Group:
    """How often each value, pair or row comes, of those that come first in the order; all of them, if there is no
    `reach`. As many as are kept may be all that are left of more.
    """

    kind: str
    cells: dict[int, int]
    reach: float = inf

    @classmethod
    def of(cls, kind: str, counts: dict[int, int]) -> Group:
        """The first of these."""
        if len(counts) < _KEPT:
            return cls(kind, counts)
        first = nsmallest(_KEPT, counts)
        return cls(kind, {each: counts[each] for each in first}, first[-1])


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """What a table of so many rows is known by."""

    rows: int
    groups: tuple[Group, ...] = ()
    has_ids: bool = True
    """Whether a column, which is not in it, says whose each row is."""
    whole: Whole | None = None
    """All of its rows; None of no rows or columns, and of tables from before this was kept."""

    @property
    def tells(self) -> bool:
        """Whether another table may be known by it."""
        return bool(self.groups) or self.whole is not None

    @property
    def text(self) -> str:
        """To be kept."""
        groups = [[each.kind, None if isinf(each.reach) else each.reach, *each.cells.items()] for each in self.groups]
        wholes = [] if self.whole is None else [["all", self.whole.evidence, self.whole.digest]]
        return json.dumps([self.rows, self.has_ids, *groups, *wholes], separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Profile:
        """As it was written."""
        rows, has_ids, *groups = json.loads(text)
        found = tuple(
            Group(kind, dict(cells), inf if reach is None else reach) for kind, reach, *cells in groups if kind != "all"
        )
        wholes = [Whole(said[0], evidence) for kind, evidence, *said in groups if kind == "all"]
        return cls(rows, found, has_ids, wholes[0] if wholes else None)

    def is_alike(self, other: Profile) -> bool:
        """Whether both have so much in common that they are no independent draws."""
        if self.has_ids and other.has_ids:
            return self._shares_rows(other)
        return self._is_copy(other) or self._evidence(other, {"row", "one", "two"}) >= 1 / CHANCE

    def is_same(self, other: Profile) -> bool:
        """Whether these are the same rows, but for some, whatever their constant columns say."""
        sure = self.whole is not None and self.whole.evidence >= -log(SURELY)
        return (sure and self._is_copy(other)) or self._evidence(other, {"whole"}) >= 1 / SURELY

    def _is_copy(self, other: Profile) -> bool:
        """Whether all rows are the same, which two small tables may be by chance."""
        if self.whole is None or other.whole is None or (self.has_ids and other.has_ids):
            return False
        return self.whole.digest == other.whole.digest

    def _shares_rows(self, other: Profile) -> bool:
        """Whether rows come about once in each, and half of those of one are in the other. Rows that come often say
        nothing here: people of one study have the same weeks and few results, and so have those of the next one.
        """
        wholes = [group for each in (self, other) for group in each.groups if group.kind == "whole"]
        if len(wholes) < 2 or any(sum(each.cells.values()) > _ONCE * len(each.cells) for each in wholes):
            return False
        reach = min(each.reach for each in wholes)
        mine, theirs = ({rank for rank in each.cells if rank <= reach} for each in wholes)
        return len(mine & theirs) >= max(_FEWEST, min(len(mine), len(theirs)) / 2)

    def _evidence(self, other: Profile, kinds: Container[str]) -> float:
        if self.has_ids and other.has_ids:
            return 0.0
        found = [
            exp(min(600.0, _evidence(mine, theirs, self.rows, other.rows)))
            for mine in self.groups
            for theirs in other.groups
            if mine.kind == theirs.kind and mine.kind in kinds
        ]
        return fsum(found) / max(1, len(found))


def _evidence(one: Group, other: Group, n: int, m: int) -> float:
    """The logarithm of the e-value of two groups of cells."""
    if len(one.cells.keys() & other.cells.keys()) < _FEWEST:
        return -inf
    reach, share = min(one.reach, other.reach), m / (n + m)
    pairs = [
        (one.cells.get(each, 0), other.cells.get(each, 0))
        for each in one.cells.keys() | other.cells.keys()
        if each <= reach
    ]
    totals = [fsum(_ratio(a, b, share, narrow) for a, b in pairs) for narrow in _NARROW]
    largest = max(totals)
    if isinf(largest):
        return largest
    mean = largest + log(fsum(exp(each - largest) for each in totals) / len(totals))
    return mean - log(max(1.0, 2 * pi * (n + m) * share * (1 - share))) / 2


@lru_cache(maxsize=65_536)
def _ratio(a: int, b: int, share: float, narrow: float) -> float:
    """log Q(b) / P(b) for one value."""
    s = a + b
    if not narrow:  # as near as whole numbers are
        nearest = [
            each for each in {int(s * share), int(s * share) + 1} if 0 <= each <= s and abs(each - s * share) <= 0.5
        ]
        return -_binomial(b, s, share) - log(len(nearest)) if b in nearest else -inf
    if s > _EXACT:
        squared = (b - s * share) ** 2 / (s * share * (1 - share))
        return -log(narrow) / 2 - (1 / narrow - 1) * squared / 2
    logs = [_binomial(each, s, share) / narrow for each in range(s + 1)]
    most = max(logs)
    return logs[b] - most - log(fsum(exp(each - most) for each in logs)) - _binomial(b, s, share)


def _binomial(b: int, s: int, share: float) -> float:
    return lgamma(s + 1) - lgamma(b + 1) - lgamma(s - b + 1) + b * log(share) + (s - b) * log(1 - share)


# -- counting ----------------------------------------------------------------------------------------------------------


NOTHING: Final = Profile(0)


@final
@dataclass(slots=True)
class _Counts:
    """Counts of texts, of which those that come late are dropped when there are too many."""

    kept: dict[int, int] = field(default_factory=dict)
    limit: float = inf

    def add(self, found: Iterable[tuple[int, int]]) -> None:
        kept, limit = self.kept, self.limit
        for rank, count in found:
            if rank <= limit:
                kept[rank] = kept.get(rank, 0) + count
        if len(kept) > _ROOM:
            first = nsmallest(_KEPT, kept)
            self.kept, self.limit = {each: kept[each] for each in first}, first[-1]


@final
class Profiling:
    """Makes the profile of a table, whose rows come one by one: cells in their one form, without ids."""

    def __init__(self, key: bytes, *, has_ids: bool) -> None:
        self._has_ids = has_ids
        secret = blake2b(b"profiles of rows", key=key, digest_size=16).digest()
        self._start, self._factor = int.from_bytes(secret[:4]), int.from_bytes(secret[4:12]) | 1
        self._batch: list[Sequence[str]] = []
        self._marks: list[bytes] = []
        self._wholes = Wholes(key)
        self._rows = 0
        self._ones: dict[int, _Counts] = {}
        self._numbers: dict[int, tuple[int, int]] = {}
        """Columns that number the rows, for all we know: the least and the largest."""
        self._few: list[int] = []
        self._twos: dict[tuple[int, int], Counter[tuple[str, str]]] = {}
        self._told: list[int] = []
        self._core: list[int] = []
        self._whole, self._rest = _Counts(), _Counts()

    def add(self, cells: Sequence[str], mark: bytes) -> None:
        """One more row, with a keyed hash of its sorted cells."""
        self._batch.append(cells)
        self._marks.append(mark)
        if len(self._batch) >= _BATCH:
            self._count()

    def profile(self) -> Profile:
        """Of all rows."""
        self._count()
        numbering = {at for at, (low, high) in self._numbers.items() if high - low < 2 * self._rows}
        ones = [counts.kept for at, counts in self._ones.items() if at not in numbering]
        twos = [dict(self._ranked(counts)) for counts in self._twos.values()]
        groups = [
            Group.of("whole", self._whole.kept),
            Group.of("row", self._rest.kept if self._core != self._told else self._whole.kept),
            *(Group.of("one", each) for each in ones),
            *(Group.of("two", each) for each in twos),
        ]
        kept = tuple(each for each in groups if len(each.cells) >= _FEWEST)
        return Profile(self._rows, kept, self._has_ids, self._wholes.whole(self._whole.kept.values()))

    def _rank(self, text: str) -> int:
        return (crc32(text.encode("utf-8", "surrogatepass"), self._start) * self._factor >> 16) & 0xFFFFFFFF

    def _ranked(self, counts: Counter[str] | Counter[tuple[str, str]]) -> Iterator[tuple[int, int]]:
        for each, count in counts.items():
            yield self._rank(each if isinstance(each, str) else "\0".join(sorted(each))), count

    def _count(self) -> None:
        if not self._batch:
            return
        columns = list(zip(*self._batch, strict=True))
        self._wholes.add(self._batch, self._marks)
        if not self._rows:
            self._look(columns)
        self._rows += len(self._batch)
        self._batch, self._marks = [], []
        for at, counts in self._ones.items():
            found = Counter(columns[at])
            counts.add(self._ranked(found))
            if at in self._numbers:
                self._number(at, found)
        for at in [at for at in self._few if len(set(columns[at])) > 4 * _FEW]:
            self._few.remove(at)
        self._twos = {pair: counts for pair, counts in self._twos.items() if set(pair) <= set(self._few)}
        for (one, other), pairs in self._twos.items():
            pairs.update(zip(columns[one], columns[other], strict=True))
        for places, counts in ((self._told, self._whole), (self._core, self._rest)):
            if places and (places != self._told or counts is self._whole):
                cells = zip(*(columns[at] for at in places), strict=True)
                counts.add(self._ranked(Counter("\0".join(sorted(each)) for each in cells)))

    def _look(self, columns: Sequence[Sequence[str]]) -> None:
        """Which columns are counted, and how."""
        many = {at: Counter(cells) for at, cells in enumerate(columns)}
        told = [at for at, counts in many.items() if len(counts) > 1]
        if len(told) > _COLUMNS:
            told = nsmallest(_COLUMNS, told, key=lambda at: min(map(self._rank, many[at])))
        unique = {at for at in told if len(many[at]) >= _UNIQUE * len(columns[at])}
        self._told = told
        self._ones = {at: _Counts() for at in told}
        for at in unique:
            self._numbers[at] = (2**63, -(2**63))
        few = [at for at in told if len(many[at]) <= _FEW and at not in unique]
        self._few = nsmallest(_FEW_COLUMNS, few, key=lambda at: max(many[at].values()))  # those that say most
        self._twos = {pair: Counter() for pair in combinations(sorted(self._few), 2)}
        self._core = [at for at in told if at not in unique]

    def _number(self, at: int, found: Counter[str]) -> None:
        low, high = self._numbers[at]
        try:
            numbers = [int(each) for each in found]
        except ValueError:
            del self._numbers[at]
            return
        self._numbers[at] = (min(low, *numbers), max(high, *numbers))
