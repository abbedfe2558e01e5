"""The functions of windows over noisy answers, each as one object.

A function knows its domain, the rows that it reads, its values, and how its value depends on the arguments, from which
`queries.answer.window_intervals` computes confidence intervals. To add one, write a subclass of `WindowFunction`, add
it to `WINDOW_FUNCTIONS`, and give it a name in SQL (`queries/sql/window_nodes.py`).
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from deniable.errors import QuestionRefused
from deniable.tables.kinds import NUMBERS, Domain, Kind

Frame = tuple[int, int]
"""The first row of a frame and the row after its last one, within a partition."""


@final
@dataclass(frozen=True, slots=True)
class LinearValue:
    """A value that is linear in the arguments at some rows: (constant + their sum) × factor."""

    rows: Sequence[int]
    constant: float = 0.0
    factor: float = 1.0


@final
@dataclass(frozen=True, slots=True)
class OrderedPart:
    """One partition in order: the arguments, the values by which its rows are ordered (equal ones tie), the frame of
    each row, and the offset of LAG and LEAD."""

    given: Sequence[Any]
    peers: Sequence[tuple[Any, ...]]
    frames: Sequence[Frame]
    offset: int


class WindowFunction(ABC):
    """A function of a window."""

    takes_argument: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    """Whether SQL has to state ORDER BY."""

    def __init__(self, name: str) -> None:
        self.name = name

    def domain(self, argument: Domain | None) -> Domain:
        """The domain of the values; `QuestionRefused` if the argument does not fit."""
        return Domain(self._checked(argument).kind, None, None, True)

    def _checked(self, argument: Domain | None, kinds: Iterable[Kind] = Kind) -> Domain:
        if argument is None or argument.kind not in kinds:
            raise QuestionRefused("kinds", f"{self.name} of a window takes a number", "write SUM(n) OVER (…)")
        return argument

    def read(self, k: int, frame: Frame, offset: int) -> slice:
        """The rows of the partition that the function reads at row k."""
        return slice(*frame)

    @abstractmethod
    def values(self, part: OrderedPart) -> list[Any]:
        """The values for one partition."""

    def copied(self, read: Sequence[int]) -> int | None:
        """The row whose argument is the value of the window, as with LAG and FIRST_VALUE; `read` are the rows that the
        window reads. None if the value is not copied from one row.
        """
        return None

    def linear(self, known: Sequence[int]) -> LinearValue | None:
        """How the value depends on the arguments at the rows that are read and not NULL. None if it is not linear, or
        has no value."""
        return None

    def extreme(self) -> Callable[[Iterable[float]], float] | None:
        """min or max, if the value is the least or the largest argument."""
        return None


@final
class RankFunction(WindowFunction):
    """ROW_NUMBER, RANK, DENSE_RANK, PERCENT_RANK and CUME_DIST: numbers from the order alone."""

    takes_argument = False

    def __init__(
        self, name: str, ranks: Callable[[Sequence[tuple[Any, ...]]], Sequence[float]], kind: Kind = Kind.INTEGER
    ) -> None:
        super().__init__(name)
        self._ranks, self._kind = ranks, kind

    def domain(self, argument: Domain | None) -> Domain:
        return Domain(self._kind, None, None, False)

    def values(self, part: OrderedPart) -> list[Any]:
        return [*self._ranks(part.peers)]


@final
class TileFunction(WindowFunction):
    """NTILE(n): the rows in n parts of nearly equal size, the larger ones first; n is the offset of the window."""

    takes_argument = False

    def domain(self, argument: Domain | None) -> Domain:
        return Domain(Kind.INTEGER, None, None, False)

    def values(self, part: OrderedPart) -> list[Any]:
        size, more = divmod(len(part.given), max(1, part.offset))
        in_larger = more * (size + 1)
        return [
            k // (size + 1) + 1 if k < in_larger else more + (k - in_larger) // size + 1 for k in range(len(part.given))
        ]


@final
class NeighbourFunction(WindowFunction):
    """LAG and LEAD: the argument some rows before or after."""

    def __init__(self, name: str, direction: int) -> None:
        super().__init__(name)
        self._direction = direction

    def read(self, k: int, frame: Frame, offset: int) -> slice:
        at = k + self._direction * offset
        return slice(at, at + 1) if at >= 0 else slice(0)

    def values(self, part: OrderedPart) -> list[Any]:
        size, step = len(part.given), self._direction * part.offset
        return [part.given[k + step] if 0 <= k + step < size else None for k in range(size)]

    def copied(self, read: Sequence[int]) -> int | None:
        return read[0] if read else None


@final
class EndFunction(WindowFunction):
    """FIRST_VALUE and LAST_VALUE: the argument at an end of the frame."""

    def __init__(self, name: str, at: int) -> None:
        super().__init__(name)
        self._at = at

    def values(self, part: OrderedPart) -> list[Any]:
        return [part.given[low:high][self._at] if part.given[low:high] else None for low, high in part.frames]

    def copied(self, read: Sequence[int]) -> int | None:
        return read[self._at] if read else None


class TotalFunction(WindowFunction):
    """A function of all known arguments in the frame; NULL without any."""

    needs_order = False

    def values(self, part: OrderedPart) -> list[Any]:
        frames = (part.given[low:high] for low, high in part.frames)
        return [self._total([each for each in frame if each is not None]) for frame in frames]

    def _total(self, known: list[Any]) -> Any:
        return self.of_some(known) if known else None

    @abstractmethod
    def of_some(self, known: list[Any]) -> Any:
        """The value of at least one argument."""


@final
class CountFunction(TotalFunction):
    """COUNT: 0 without any known argument."""

    def domain(self, argument: Domain | None) -> Domain:
        return Domain(Kind.INTEGER, None, None, False)

    def _total(self, known: list[Any]) -> Any:
        return self.of_some(known)

    def of_some(self, known: list[Any]) -> Any:
        return len(known)

    def linear(self, known: Sequence[int]) -> LinearValue | None:
        return LinearValue((), constant=float(len(known)))  # the number of values is taken as given


@final
class SumFunction(TotalFunction):
    """SUM of numbers."""

    def domain(self, argument: Domain | None) -> Domain:
        return Domain(self._checked(argument, NUMBERS).kind, None, None, True)

    def of_some(self, known: list[Any]) -> Any:
        return sum(known)

    def linear(self, known: Sequence[int]) -> LinearValue | None:
        return LinearValue(known) if known else None


class RealFunction(TotalFunction):
    """A function of numbers whose value is a float."""

    def domain(self, argument: Domain | None) -> Domain:
        self._checked(argument, NUMBERS)
        return Domain(Kind.REAL, None, None, True)


@final
class MeanFunction(RealFunction):
    """AVG."""

    def of_some(self, known: list[Any]) -> Any:
        return float(sum(known)) / len(known)

    def linear(self, known: Sequence[int]) -> LinearValue | None:
        return LinearValue(known, factor=1 / len(known)) if known else None


@final
class MedianFunction(RealFunction):
    """The median, for aggregates of noisy answers; SQL has no window of this name."""

    def of_some(self, known: list[Any]) -> Any:
        return float(statistics.median(known))


@final
class DeviationFunction(RealFunction):
    """The sample standard deviation of noisy answers; NULL for fewer than two values."""

    def of_some(self, known: list[Any]) -> Any:
        return statistics.stdev(map(float, known)) if len(known) > 1 else None


@final
class LeastFunction(TotalFunction):
    """MIN."""

    def of_some(self, known: list[Any]) -> Any:
        return min(known)

    def extreme(self) -> Callable[[Iterable[float]], float]:
        return min


@final
class LargestFunction(TotalFunction):
    """MAX."""

    def of_some(self, known: list[Any]) -> Any:
        return max(known)

    def extreme(self) -> Callable[[Iterable[float]], float]:
        return max


def _numbers(peers: Sequence[tuple[Any, ...]]) -> list[int]:
    return list(range(1, len(peers) + 1))


def _ranks(peers: Sequence[tuple[Any, ...]]) -> list[int]:
    return [1 + peers.index(each) for each in peers]


def _dense_ranks(peers: Sequence[tuple[Any, ...]]) -> list[int]:
    places = {each: k for k, each in enumerate(dict.fromkeys(peers), start=1)}
    return [places[each] for each in peers]


def _shares_before(peers: Sequence[tuple[Any, ...]]) -> list[float]:
    return [(rank - 1) / max(1, len(peers) - 1) for rank in _ranks(peers)]


def _shares_up_to(peers: Sequence[tuple[Any, ...]]) -> list[float]:
    last = {each: k for k, each in enumerate(peers, start=1)}
    return [last[each] / len(peers) for each in peers]


WINDOW_FUNCTIONS: Final[dict[str, WindowFunction]] = {
    function.name: function
    for function in (
        RankFunction("row_number", _numbers),
        RankFunction("rank", _ranks),
        RankFunction("dense_rank", _dense_ranks),
        RankFunction("percent_rank", _shares_before, Kind.REAL),
        RankFunction("cume_dist", _shares_up_to, Kind.REAL),
        TileFunction("ntile"),
        NeighbourFunction("lag", -1),
        NeighbourFunction("lead", 1),
        EndFunction("first_value", 0),
        EndFunction("last_value", -1),
        SumFunction("sum"),
        MeanFunction("avg"),
        LeastFunction("min"),
        LargestFunction("max"),
        CountFunction("count"),
        MedianFunction("median"),
        DeviationFunction("stddev"),
    )
}
