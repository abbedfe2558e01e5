"""Recognises tables that share rows, although one of them has further columns, or lacks some.

Marks of whole rows (`data_marks`) identify a row by all of its cells, so one further column changes all of them. A
profile counts smaller pieces instead: how often each value of a column occurs, each pair of values of two columns with
few values, each row, and each row without its unique cells. Of each kind, the 64 with the smallest keyed hashes are
kept. Names and orders of columns do not matter, and columns with a single value are left out.

*The test.* Let a value occur a times in one table of n rows, and b times in another of m rows. If the rows of both are
independent draws from one distribution, whichever it is, then b, given s = a + b, is binomial with r = m / (n + m). If
they are the same rows, b/m and a/n are closer to each other than this law predicts. With P the binomial law, Q ∝
P^(1/τ) with τ < 1 has about τ times the variance of P, and e = Π Q(b) / P(b) over all values has mean 1 under P: it is
an e-value (Vovk & Wang 2021). The product treats the b as independent, but they add up to m; that makes the joint law
at most √(2π (n+m) r (1-r)) times the product, so e is divided by this factor. A mean of e-values, over all τ and all
pairs of columns, is an e-value again, however they depend on each other. By Markov's inequality, e exceeds 1/`CHANCE`
for unrelated tables with probability at most `CHANCE`. If one person has several equal rows, b varies more, and e
becomes smaller: the test remains valid.

Exact copies have a test of their own (`exact_copies`), which also recognises tables with few values, where there is
little to count.

*What follows.* The test assumes independent draws. Two experiments of one design share some counts, and two lists of
everybody in a town share their values, without sharing rows. So only whole rows link data, at the stricter level
`SURELY`; otherwise the owner is asked. If both tables have ids, the ids identify people, and the owner is asked only
if the ids may have been drawn anew: if rows occur about once each, and half of them are common.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from itertools import combinations
from math import exp, fsum, inf, isinf, lgamma, log, pi
from typing import Any, Final, final
from zlib import crc32

from deniable.server.datasets.exact_copies import Whole, Wholes

CHANCE: Final = 1e-6
"""The largest probability that two tables of independent draws from one distribution are taken for the same rows."""

SURELY: Final = 1e-9
"""The same for whole rows."""

_KEPT: Final = 64
_ROOM: Final = 4096
"""The most values of a column in memory; beyond that, those with large hashes are dropped."""

_BATCH: Final = 20_000
"""Rows in a batch. The first batch decides which columns are constant, unique, or of few values."""

_FEW: Final = 16
_FEW_COLUMNS: Final = 8
_COLUMNS: Final = 64
"""The most columns that are counted. Of a wider table, those whose values have the smallest hashes."""

_FEWEST: Final = 6
_UNIQUE: Final = 0.98
"""The share of distinct values from which a column counts as unique."""

_ONCE: Final = 1 + 1 / 16
"""The largest mean count of rows that identify people."""

_NEAR: Final = 7 / 8
"""The least share of common rows of two versions of which one profile is kept."""

_NARROW: Final = (0.0, 0.1, 0.4)
"""The values of τ: for the same rows; for rows with some missing; for rows with many changed."""

_EXACT: Final = 64
"""Up to this s, the binomial law is summed exactly; above, a normal approximation is used."""


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Counts of values, pairs or rows by keyed hash: those with hashes up to `reach`; all if that is infinite."""

    kind: str
    cells: dict[int, int]
    reach: float = inf

    @classmethod
    def of(cls, kind: str, counts: dict[int, int]) -> Group:
        """The `_KEPT` counts with the smallest hashes. With `_KEPT` or more counts, others may have been dropped."""
        if len(counts) < _KEPT:
            return cls(kind, counts)
        first = nsmallest(_KEPT, counts)
        return cls(kind, {each: counts[each] for each in first}, first[-1])

    @property
    def is_of_single_rows(self) -> bool:
        """Whether each cell occurs about once."""
        return sum(self.cells.values()) <= _ONCE * len(self.cells)


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a table with `rows` rows."""

    rows: int
    groups: tuple[Group, ...] = ()
    has_ids: bool = True
    """Whether the table has a column of ids, which is not part of the profile."""
    whole: Whole | None = None
    """The hash of all rows; None without rows or columns, and in records of an old version."""

    @property
    def tells(self) -> bool:
        """Whether the profile contains groups of values, or whole rows, that can be compared with another profile."""
        return bool(self.groups) or self.whole is not None

    @property
    def text(self) -> str:
        """The profile as JSON."""
        return json.dumps(self.record, separators=(",", ":"))

    @property
    def record(self) -> list[Any]:
        """The profile as plain values, which `of_record` reads."""
        groups = [[each.kind, None if isinf(each.reach) else each.reach, *each.cells.items()] for each in self.groups]
        wholes = [] if self.whole is None else [["all", self.whole.evidence, self.whole.digest]]
        return [self.rows, self.has_ids, *groups, *wholes]

    @classmethod
    def read(cls, text: str) -> Profile:
        """The profile from its JSON."""
        return cls.of_record(json.loads(text))

    @classmethod
    def of_record(cls, record: Sequence[Any]) -> Profile:
        """The profile that has this `record`."""
        rows, has_ids, *groups = record
        found = tuple(
            Group(kind, dict(cells), inf if reach is None else reach) for kind, reach, *cells in groups if kind != "all"
        )
        wholes = [Whole(rest[0], evidence) for kind, evidence, *rest in groups if kind == "all"]
        return cls(rows, found, has_ids, wholes[0] if wholes else None)

    def is_near(self, other: Profile) -> bool:
        """Whether nearly the same rows make up both tables: a copy of one is recognised by the other.

        Only where rows occur about once each: otherwise unrelated tables have the same rows in other numbers.
        """
        wholes = [group for each in (self, other) for group in each.groups if group.kind == "whole"]
        if len(wholes) < 2 or self.has_ids != other.has_ids or not all(each.is_of_single_rows for each in wholes):
            return False
        reach = min(each.reach for each in wholes)
        mine, theirs = ({rank for rank in each.cells if rank <= reach} for each in wholes)
        least, most = sorted((self.rows, other.rows))
        return len(mine & theirs) >= _NEAR * max(len(mine), len(theirs)) and least >= _NEAR * most

    def is_alike(self, other: Profile) -> bool:
        """Whether both have so much in common that the owner must be asked: level `CHANCE`."""
        if self.has_ids and other.has_ids:
            return self._shares_rows(other)
        return self._is_copy(other) or self._evidence(other, {"row", "one", "two"}) >= 1 / CHANCE

    def is_same(self, other: Profile) -> bool:
        """Whether these are mostly the same rows, up to constant columns, so that data is linked: level `SURELY`."""
        sure = self.whole is not None and self.whole.evidence >= -log(SURELY)
        return (sure and self._is_copy(other)) or self._evidence(other, {"whole"}) >= 1 / SURELY

    def _is_copy(self, other: Profile) -> bool:
        """Whether all rows are equal. Two small tables may be equal by chance: see `Whole.evidence`."""
        if self.whole is None or other.whole is None or (self.has_ids and other.has_ids):
            return False
        return self.whole.digest == other.whole.digest

    def _shares_rows(self, other: Profile) -> bool:
        """Whether rows occur about once each in both tables, and half of the rows of one are in the other.

        Rows that occur repeatedly prove nothing: people of two studies may have the same weeks and few results.
        """
        wholes = [group for each in (self, other) for group in each.groups if group.kind == "whole"]
        if len(wholes) < 2 or not all(each.is_of_single_rows for each in wholes):
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
    """log Q(b) / P(b) for one value; `narrow` is τ, and 0 puts all of Q on the nearest whole numbers."""
    s = a + b
    if not narrow:
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


@final
@dataclass(frozen=True, slots=True)
class ProfileHistory:
    """The profiles of all versions of a table, newest first: people of an earlier version have spent from its budget.

    Each version has its own profile, or has nearly the same rows as a version that has one, and keeps its `whole` only.
    So a table that grows by a few rows every night has few profiles.
    """

    profiles: tuple[Profile, ...] = ()

    @property
    def text(self) -> str:
        """The profiles as JSON."""
        return json.dumps([each.record for each in self.profiles], separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> ProfileHistory:
        """The profiles from their JSON, or from that of a single profile; none for an empty text."""
        found = json.loads(text or "[]")
        several = found if not found or isinstance(found[0], list) else [found]
        return cls(tuple(map(Profile.of_record, several)))

    def with_newer(self, new: Profile) -> ProfileHistory:
        """The profiles of one more version."""
        if not new.tells or new in self.profiles:
            return self
        if not self.profiles:
            return ProfileHistory((new,))
        newest, *before = self.profiles
        kept = next((each for each in before if each.groups), None)
        if kept is not None and newest.is_near(kept):
            newest = replace(newest, groups=())
        return ProfileHistory((new, *(each for each in (newest, *before) if each.tells)))


# -- counting ----------------------------------------------------------------------------------------------------------


NOTHING: Final = Profile(0)


@final
@dataclass(slots=True)
class _Counts:
    """Counts by keyed hash; if there are too many, those with large hashes are dropped."""

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
    """Computes the profile of a table from its rows, one by one: cells in canonical form, without ids."""

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
        """Columns that may be row numbers: their smallest and largest value."""
        self._few: list[int] = []
        self._twos: dict[tuple[int, int], Counter[tuple[str, str]]] = {}
        self._varying: list[int] = []
        self._core: list[int] = []
        self._whole, self._rest = _Counts(), _Counts()

    def add(self, cells: Sequence[str], mark: bytes) -> None:
        """Add a row, with a keyed hash of its sorted cells."""
        self._batch.append(cells)
        self._marks.append(mark)
        if len(self._batch) >= _BATCH:
            self._count()

    def profile(self) -> Profile:
        """The profile of all rows. Columns that number the rows are left out."""
        self._count()
        numbering = {at for at, (low, high) in self._numbers.items() if high - low < 2 * self._rows}
        ones = [counts.kept for at, counts in self._ones.items() if at not in numbering]
        twos = [dict(self._ranked(counts)) for counts in self._twos.values()]
        groups = [
            Group.of("whole", self._whole.kept),
            Group.of("row", self._rest.kept if self._core != self._varying else self._whole.kept),
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
        for places, counts in ((self._varying, self._whole), (self._core, self._rest)):
            if places and (places != self._varying or counts is self._whole):
                cells = zip(*(columns[at] for at in places), strict=True)
                counts.add(self._ranked(Counter("\0".join(sorted(each)) for each in cells)))

    def _look(self, columns: Sequence[Sequence[str]]) -> None:
        """Decide, by the first batch, which columns are counted, and how."""
        many = {at: Counter(cells) for at, cells in enumerate(columns)}
        varying = [at for at, counts in many.items() if len(counts) > 1]
        if len(varying) > _COLUMNS:
            varying = nsmallest(_COLUMNS, varying, key=lambda at: min(map(self._rank, many[at])))
        unique = {at for at in varying if len(many[at]) >= _UNIQUE * len(columns[at])}
        self._varying = varying
        self._ones = {at: _Counts() for at in varying}
        for at in unique:
            self._numbers[at] = (2**63, -(2**63))
        few = [at for at in varying if len(many[at]) <= _FEW and at not in unique]
        self._few = nsmallest(
            _FEW_COLUMNS, few, key=lambda at: max(many[at].values())
        )  # those with the most information
        self._twos = {pair: Counter() for pair in combinations(sorted(self._few), 2)}
        self._core = [at for at in varying if at not in unique]

    def _number(self, at: int, found: Counter[str]) -> None:
        low, high = self._numbers[at]
        try:
            numbers = [int(each) for each in found]
        except ValueError:
            del self._numbers[at]
            return
        self._numbers[at] = (min(low, *numbers), max(high, *numbers))
