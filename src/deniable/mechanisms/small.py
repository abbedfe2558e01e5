"""Small finite domains, by brute force: all datasets, all neighbours, the sensitivity, the distance to an answer.

For teaching, and to test claims about larger domains. A dataset is a multiset of records from a public domain, written
as a sorted tuple: the order of rows does not matter, and (0, 1) and (1, 0) are one dataset. Statistics are evaluated on
all orders of the rows; one that depends on the order raises InvalidParameter, because its value is not a function of
the dataset. Everything here enumerates: use domains of a handful of values and datasets of a handful of rows.

>>> from deniable.mechanisms import small
>>> from deniable.units import Unit
>>> found = small.sensitivity(sum, domain=[0, 1, 3], rows=3, unit=Unit.replaced_row())
>>> found.l1, found.pair
(3.0, ((0, 0, 0), (0, 0, 3)))
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, Final, final

from deniable import numbers
from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms.mechanism import check_unit
from deniable.units import Relation, Sensitivity, Unit

__all__ = ["Found", "datasets", "distance", "distance_to", "neighbours", "sensitivity"]

MOST_DATASETS: Final = 200_000
MOST_ORDERS: Final = 10**6
"""Most orders of rows on which one statistic is evaluated."""

Dataset = tuple[Any, ...]


def datasets(domain: Iterable[Hashable], *, rows: int) -> list[Dataset]:
    """All datasets of this many rows, as sorted tuples (by the order of the domain)."""
    values, count = _domain(domain), curve_arguments.integer("rows", rows, 0)
    if math.comb(len(values) + count - 1, count) > MOST_DATASETS:
        raise InvalidParameter("rows", count, f"gives more than {MOST_DATASETS:,} datasets")
    return list(combinations_with_replacement(values, count))


def neighbours(data: Sequence[Hashable], *, domain: Iterable[Hashable], unit: Unit) -> Iterator[Dataset]:
    """All neighbours of a dataset: one row added or removed, or one replaced."""
    check_unit(unit)
    values = _domain(domain)
    place = {value: i for i, value in enumerate(values)}
    own = _sorted(data, place)
    if unit.column is not None:
        raise InvalidOperation("people with several rows are not enumerated; use Unit.row() or Unit.replaced_row()")
    shorter = sorted({own[:i] + own[i + 1 :] for i in range(len(own))}, key=lambda d: [place[v] for v in d])
    if unit.relation is Relation.ADD_REMOVE:
        yield from shorter
        yield from (_sorted((*own, value), place) for value in values)
        return
    changed = {_sorted((*rest, value), place) for rest in shorter for value in values} - {own}
    yield from sorted(changed, key=lambda d: [place[v] for v in d])


def distance(x: Sequence[Hashable], y: Sequence[Hashable], *, unit: Unit) -> int:
    """The number of units between two datasets: the fewest steps from neighbour to neighbour.

    Rows added or removed: ‖x − y‖₁ of the two histograms. Rows replaced: half of it, and only between datasets with the
    same number of rows. The order of rows does not matter: this is the Hamming distance in the best order of the rows.

    >>> from deniable.units import Unit
    >>> distance("aab", "abc", unit=Unit.row()), distance("aab", "abc", unit=Unit.replaced_row())
    (2, 1)
    """
    check_unit(unit)
    if unit.column is not None:
        raise InvalidOperation("people with several rows are not counted; use Unit.row() or Unit.replaced_row()")
    one, two = Counter(x), Counter(y)
    between = sum(((one - two) + (two - one)).values())
    if unit.relation is Relation.ADD_REMOVE:
        return between
    if len(x) != len(y):
        raise InvalidParameter("y", "...", "must have as many rows as x: replacing keeps their number")
    return between // 2


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The largest move of a statistic between neighbours in each norm, rounded up, and a pair of neighbours that
    attains it in L1.
    """

    l1: float
    l2: float
    linf: float
    pair: tuple[Dataset, Dataset]

    @property
    def sensitivity(self) -> Sensitivity:
        """The three norms as a `Sensitivity`, which mechanisms take as their argument."""
        return Sensitivity(l1=self.l1, l2=self.l2, linf=self.linf)


def sensitivity(
    statistic: Callable[[Dataset], Any], *, domain: Iterable[Hashable], rows: int, unit: Unit, fewest: int | None = None
) -> Found:
    """The sensitivity of a statistic over all datasets of at most `rows` rows (from `fewest` on; replaced: exactly
    `rows`), with a pair of neighbours that attains it.

    Valid for these datasets only: a larger one may move further. Raises InvalidParameter if the statistic depends on
    the order of the rows.
    """
    check_unit(unit)
    values, value_of = _domain(domain), _Statistic(statistic, _numbers)
    replaced = unit.relation is Relation.REPLACE
    low = rows if replaced else curve_arguments.integer("fewest", 0 if fewest is None else fewest, 0)
    sizes = range(curve_arguments.integer("rows", rows, 1) if replaced else low, rows + (1 if replaced else 0))
    best: Found | None = None
    for size in sizes:
        for data in datasets(values, rows=size):
            here = value_of(data)
            for other in neighbours(data, domain=values, unit=unit):
                if len(other) < low:
                    continue
                there = value_of(other)
                if len(here) != len(there):
                    raise InvalidParameter("statistic", NOTHING, "must return equally many numbers for every dataset")
                gaps = [abs(a - b) for a, b in zip(here, there, strict=True)]
                square = sum((g * g for g in gaps), Fraction(0))
                l1, linf = numbers.up(sum(gaps, Fraction(0))), numbers.up(max(gaps, default=Fraction(0)))
                l2 = numbers.up(numbers.root_up(square))
                if best is None:
                    best = Found(l1, l2, linf, (data, other))
                else:
                    pair = (data, other) if l1 > best.l1 else best.pair
                    best = Found(max(l1, best.l1), max(l2, best.l2), max(linf, best.linf), pair)
    if best is None:
        raise InvalidParameter("domain", values, "must contain at least two values for neighbours to exist")
    return best


def distance_to(
    statistic: Callable[[Dataset], Any],
    data: Sequence[Hashable],
    answer: Any,
    *,
    domain: Iterable[Hashable],
    unit: Unit,
) -> float:
    """D_f(x, y): how many units must change until the statistic equals the answer; inf if no data of this domain have
    it.

    Breadth-first search over neighbours: of the same size or, for rows added or removed, from no row (if the statistic
    has a value there) to twice as many rows. If none of these has the answer, a larger dataset may: raises
    InvalidParameter. So does a statistic that depends on the order of the rows.
    """
    check_unit(unit)
    values, value_of = _domain(domain), _Statistic(statistic, lambda value: value)
    start = _sorted(data, {value: i for i, value in enumerate(values)})
    most = 2 * max(len(start), 1)
    seen, ahead = {start}, deque([(start, 0)])
    while ahead:
        at, steps = ahead.popleft()
        if (at or value_of.has_value_of_nothing) and value_of(at) == answer:
            return float(steps)
        for other in neighbours(at, domain=values, unit=unit):
            if other not in seen and len(other) <= most:
                if len(seen) >= MOST_DATASETS:
                    raise InvalidParameter("domain", len(values), f"more than {MOST_DATASETS:,} datasets were visited")
                seen.add(other)
                ahead.append((other, steps + 1))
    if unit.relation is Relation.ADD_REMOVE:
        rule = f"is not the value of any dataset of at most {most} rows; a larger dataset may have it"
        raise InvalidParameter("answer", NOTHING, rule, "start from more rows, or ask about replaced rows")
    return math.inf


def _domain(domain: Iterable[Hashable]) -> list[Hashable]:
    values = list(dict.fromkeys(domain))
    if not values:
        raise InvalidParameter("domain", domain, "must contain at least one value")
    return values


def _sorted(data: Iterable[Hashable], place: dict[Hashable, int]) -> Dataset:
    listed = list(data)
    if any(value not in place for value in listed):
        raise InvalidParameter("data", "...", "must contain values of the domain only")
    return tuple(sorted(listed, key=lambda value: place[value]))


@final
class _Statistic:
    """A statistic of multisets, evaluated once for each, on every order of its rows."""

    __slots__ = ("_found", "_read", "_statistic", "_tried")

    def __init__(self, statistic: Callable[[Dataset], Any], read: Callable[[Any], Any]) -> None:
        if not callable(statistic):
            raise InvalidParameter("statistic", statistic, "must be a function of a dataset")
        self._statistic, self._read, self._tried = statistic, read, 0
        self._found: dict[Dataset, Any] = {}

    def __call__(self, data: Dataset) -> Any:
        if data not in self._found:
            self._tried += math.factorial(len(data)) // math.prod(map(math.factorial, Counter(data).values()))
            if self._tried > MOST_ORDERS:
                rule = f"the statistic would be tried on more than {MOST_ORDERS:,} orders of rows"
                raise InvalidParameter("rows", NOTHING, rule, "take fewer rows or a smaller domain")
            self._found[data] = self._same_in_all_orders(data)
        return self._found[data]

    @property
    def has_value_of_nothing(self) -> bool:
        """Whether it has a value on the empty dataset."""
        try:
            self(())
        except InvalidParameter:
            return False
        return True

    def _same_in_all_orders(self, data: Dataset) -> Any:
        first, *others = (self._value(order) for order in _orders(data))
        if not all(_agree(first, other) for other in others):
            rule = "depends on the order of the rows, and a dataset has no order here"
            raise InvalidParameter(
                "statistic", NOTHING, rule, "sort the rows inside the statistic, or derive its sensitivity by hand"
            )
        return first

    def _value(self, rows: Dataset) -> Any:
        try:
            found = self._statistic(rows)
        except (ArithmeticError, LookupError, ValueError):
            if rows:
                raise
            rule = "must have a value on the empty dataset"
            raise InvalidParameter("statistic", NOTHING, rule, "start with one row: fewest=1") from None
        return self._read(found)


def _orders(data: Dataset) -> Iterator[Dataset]:
    """All different orders of these rows, the given one first."""
    if not data:
        yield ()
    for value in dict.fromkeys(data):
        at = data.index(value)
        yield from ((value, *rest) for rest in _orders(data[:at] + data[at + 1 :]))


def _agree(one: Any, two: Any) -> bool:
    """Whether two values are equal, up to the rounding of floating-point sums in another order."""
    try:
        a, b = _numbers(one), _numbers(two)
    except InvalidParameter:
        return bool(one == two)
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9) for x, y in zip(a, b, strict=True))


def _numbers(value: Any) -> list[Fraction]:
    """The exact numbers: a float could not represent the difference of neighbouring large integers."""
    listed = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if any(isinstance(v, str | bytes) for v in listed):
        listed = [None]
    try:
        return [numbers.rational(v) for v in listed]
    except (TypeError, ValueError, OverflowError):
        rule = "must give a finite number, or several, for every dataset"
        raise InvalidParameter("statistic", NOTHING, rule) from None
