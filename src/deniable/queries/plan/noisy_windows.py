"""Windows over noisy answers: ranks, neighbours in an order, running sums and moving averages of groups.

A window reads the groups of an answer after noise was added to them, so it is post-processing: it costs nothing and
cannot leak, whatever it computes. A window over the rows of a table would read across people; no record here
describes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from deniable.queries.plan.window_functions import WINDOW_FUNCTIONS, Frame, OrderedPart, WindowFunction
from deniable.queries.relations.operator_table import Value
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Expression
from deniable.tables.kinds import Domain

NoisyRow = Mapping[str, Value]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One part of ORDER BY."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


def in_order(
    places: Sequence[int], order: Sequence[Order], rows: Sequence[NoisyRow], domains: Mapping[str, Domain]
) -> list[int]:
    """The places of rows, sorted. NULLs come last, unless they are wanted first; equal rows keep their order."""
    kept = list(places)
    for part in reversed(order):  # sorting is stable, so the least significant part is sorted first
        value = typed(part.expression, domains).value
        found = {i: value(rows[i]) for i in kept}
        known = [i for i in kept if found[i] is not None]
        null = [i for i in kept if found[i] is None]
        known.sort(key=found.__getitem__, reverse=part.descending)  # type: ignore[arg-type]  # values of one kind
        kept = null + known if part.nulls_first else known + null
    return kept


@final
@dataclass(frozen=True, slots=True, eq=False)
class NoisyWindow:
    """One window function: `function` OVER (PARTITION BY … ORDER BY … frame), a column called `name`.

    `function` is a name of `WINDOW_FUNCTIONS`. `offset` is the offset of LAG and LEAD. `frame` has the first and the
    last row relative to the current one, None for an open end. Without a frame the window reads the whole partition, or
    with ORDER BY all rows up to and including the peers of the current row (rows that tie with it).
    """

    name: str
    function: str
    argument: Expression | None
    partition: tuple[Expression, ...]
    order: tuple[Order, ...]
    offset: int = 1
    frame: tuple[int | None, int | None] | None = None

    @property
    def calculation(self) -> WindowFunction:
        """What the function does."""
        return WINDOW_FUNCTIONS[self.function]

    def domain(self, domains: Mapping[str, Domain]) -> Domain:
        """The domain of its values; `QuestionRefused` if the argument does not fit."""
        for each in (*self.partition, *(part.expression for part in self.order)):
            typed(each, domains)
        found = None if self.argument is None else typed(self.argument, domains).domain
        return self.calculation.domain(found)

    def mapped(self, change: Callable[[Expression], Expression]) -> NoisyWindow:
        """The window with `change` applied to each of its expressions."""
        return replace(
            self,
            argument=None if self.argument is None else change(self.argument),
            partition=tuple(change(each) for each in self.partition),
            order=tuple(replace(part, expression=change(part.expression)) for part in self.order),
        )

    def values(self, places: Sequence[int], rows: Sequence[NoisyRow], domains: Mapping[str, Domain]) -> dict[int, Any]:
        """The value of the window at each of these rows."""
        argument = None if self.argument is None else typed(self.argument, domains).value
        found: dict[int, Any] = {}
        for ordered, peers in self._partitions(places, rows, domains):
            given = [1 if argument is None else argument(rows[i]) for i in ordered]
            found |= dict(zip(ordered, self._over(given, peers), strict=True))
        return found

    def _partitions(
        self, places: Sequence[int], rows: Sequence[NoisyRow], domains: Mapping[str, Domain]
    ) -> Iterator[tuple[list[int], list[tuple[Value, ...]]]]:
        """For each partition the places of its rows in order, and the values by which they are ordered."""
        keys = [typed(each, domains).value for each in self.partition]
        by = [typed(part.expression, domains).value for part in self.order]
        partitions: dict[tuple[Value, ...], list[int]] = {}
        for i in places:
            partitions.setdefault(tuple(key(rows[i]) for key in keys), []).append(i)
        for mine in partitions.values():
            ordered = in_order(mine, self.order, rows, domains)
            yield ordered, [tuple(value(rows[i]) for value in by) for i in ordered]

    def reads(
        self, places: Sequence[int], rows: Sequence[NoisyRow], domains: Mapping[str, Domain]
    ) -> dict[int, list[int]]:
        """The places that the window reads at each row, in order."""
        found: dict[int, list[int]] = {}
        for ordered, peers in self._partitions(places, rows, domains):
            for k, i in enumerate(ordered):
                found[i] = ordered[self.calculation.read(k, self._frame(k, peers), self.offset)]
        return found

    def _over(self, given: list[Any], peers: list[tuple[Value, ...]]) -> list[Any]:
        """The values for one partition in order. `given` has the arguments; rows with equal `peers` tie."""
        frames = [self._frame(k, peers) for k in range(len(given))]
        return self.calculation.values(OrderedPart(given, peers, frames, self.offset))

    def _frame(self, k: int, peers: list[tuple[Value, ...]]) -> Frame:
        if self.frame is not None:
            first, last = self.frame
            return (0 if first is None else max(0, k + first)), (len(peers) if last is None else max(0, k + last + 1))
        return 0, len(peers) - peers[::-1].index(peers[k]) if self.order else len(peers)
