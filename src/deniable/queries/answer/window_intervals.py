"""Noise intervals of windows and of aggregates over noisy rows: running sums, moving averages, LAG, shares of a total.

A cell of such a column reads the noisy numbers of several groups. `Traces` follows the cell back to these numbers: it
writes each cell as a quotient of two linear combinations of noisy statistics, with exact coefficients. Statistics of
different groups have independent noise, so the noise of a linear combination has a known law (`noise_intervals`), and
Fieller's theorem gives the interval of a quotient (`ratio_intervals`). Two sums over the same rows share their noise,
which the coefficients account for.

- COUNT and SUM, with +, -, and products and quotients with constants: exact. Shares and ratios of these: Fieller.
- MIN and MAX over rows: the least (or largest) lower end and upper end of the intervals of all rows. Each interval has
  so high a confidence that all of them hold together.
- ROUND, FLOOR, CEIL: the ends of the interval inside, rounded.
- Conditions on noisy numbers (WHERE n > 100 before an aggregate) are taken as given: the interval is about the rows
  that met the condition.
- All others have no interval: averages and quantiles inside windows, products of noisy numbers, orders by noisy
  numbers, counts near their threshold, and answers that were measured jointly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

from deniable.queries.intervals.noise_intervals import Share, smooth_reach
from deniable.queries.intervals.ratio_intervals import Move, Quotient, interval, moved_reach
from deniable.queries.plan.estimators import Counted, Summed
from deniable.queries.plan.noisy_windows import NoisyWindow
from deniable.queries.plan.recipes import is_cut
from deniable.queries.relations import operator_meanings
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used

if TYPE_CHECKING:
    from deniable.queries.answer.answer_display import Interval
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.recipes import DrawnValue

Place = tuple[int, int]
"""A group and a part of its statistics: one noisy number."""


@final
@dataclass(frozen=True, slots=True)
class Linear:
    """A linear combination of noisy numbers: its value, and the coefficient (`slopes`) of each noisy number."""

    value: float
    slopes: Mapping[Place, float] = field(default_factory=dict)

    def plus(self, other: Linear, factor: float = 1.0) -> Linear:
        """This combination plus `factor` times the other."""
        found = defaultdict(float, self.slopes)
        for place, slope in other.slopes.items():
            found[place] += factor * slope
        return Linear(self.value + factor * other.value, dict(found))

    def times(self, factor: float) -> Linear:
        """This combination times a constant."""
        return Linear(self.value * factor, {place: slope * factor for place, slope in self.slopes.items()})


_ONE: Final = Linear(1.0)


@final
@dataclass(frozen=True, slots=True)
class TracedCell:
    """A quotient of two linear combinations. Its methods return None if the result is not such a quotient."""

    above: Linear
    below: Linear = _ONE

    def plus(self, other: TracedCell, factor: float = 1.0) -> TracedCell | None:
        """This cell plus `factor` times the other."""
        if self.below == other.below:
            return TracedCell(self.above.plus(other.above, factor), self.below)
        for one, two, of_one, of_two in ((self, other, 1.0, factor), (other, self, factor, 1.0)):
            if not one.below.slopes and not two.below.slopes:
                return TracedCell(
                    one.above.times(of_one / one.below.value).plus(two.above.times(of_two / two.below.value))
                )
            if not one.above.slopes and not one.below.slopes and one.below.value:
                whole = two.below.times(of_one * one.above.value / one.below.value)
                return TracedCell(whole.plus(two.above, of_two), two.below)
        return None

    def times(self, other: TracedCell) -> TracedCell | None:
        """The product, if one of the two cells is a constant."""
        for one, two in ((self, other), (other, self)):
            if not one.above.slopes and not one.below.slopes and one.below.value:
                return TracedCell(two.above.times(one.above.value / one.below.value), two.below)
        return None

    def over(self, other: TracedCell) -> TracedCell | None:
        """This cell divided by the other."""
        if self.below == other.below:
            return TracedCell(self.above, other.above)
        if not self.below.slopes and not other.below.slopes and self.below.value and other.below.value:
            return TracedCell(self.above.times(1 / self.below.value), other.above.times(1 / other.below.value))
        if not other.above.slopes and not other.below.slopes and other.above.value:
            return TracedCell(self.above.times(other.below.value / other.above.value), self.below)
        return None


_ROUNDED: Final[Mapping[str, Callable[[float], Any]]] = {
    "round": operator_meanings.rounded,
    "floor": operator_meanings.floor,
    "ceil": operator_meanings.ceil,
    "cast_integer": operator_meanings.to_integer,
    "cast_real": float,
}


@final
class Traces:
    """The traces of the cells of one answer: `rows` have keys, measures and windows; windows read the rows `kept`."""

    def __init__(
        self,
        plan: NoisePlan,
        rows: Sequence[Mapping[str, Any]],
        drawn: Sequence[Sequence[DrawnValue]],
        kept: Sequence[int],
        confidence: float,
    ) -> None:
        self._plan, self._rows, self._drawn, self._confidence = plan, rows, drawn, confidence
        self._domains = plan.question.domains
        self._recipes = {recipe.name: (recipe, uses) for recipe, uses in zip(plan.recipes, plan.uses, strict=True)}
        self._windows: dict[str, NoisyWindow] = {}
        self._reads: dict[str, dict[int, list[int]]] = {}
        self._noisy = set(self._recipes)
        for window in plan.question.post.windows:
            self._windows[window.name] = window
            self._reads[window.name] = window.reads(kept, rows, self._domains)
            self._noisy.add(window.name)
        self._found: dict[tuple[int, str], TracedCell | None] = {}

    def around(self, i: int, expression: Expression) -> Interval:
        """The noise interval of an expression in row `i`; None if its noise has no known law (see the module)."""
        value = typed(expression, self._domains).value(self._rows[i])
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        found = self._ends(i, expression, self._confidence)
        return None if found is None else (min(found[0], value), max(found[1], value))

    def _ends(self, i: int, expression: Expression, confidence: float) -> tuple[float, float] | None:
        trace = self._trace(i, expression)
        if trace is not None:
            return self._interval(trace, confidence)
        match expression:
            case Column(name=name) if name in self._windows:
                return self._extreme(i, self._windows[name], confidence)
            case Call(operator=operator, arguments=(inner,)) if operator in _ROUNDED:
                ends = self._ends(i, inner, confidence)
                return None if ends is None else tuple(_ROUNDED[operator](end) for end in ends)
            case Call(
                operator="multiply" | "divide" as operator, arguments=(inner, Literal(value=int() | float() as by))
            ):
                ends = self._ends(i, inner, confidence)
                if ends is None or not by:
                    return None
                low, high = sorted(end * by if operator == "multiply" else end / by for end in ends)
                return low, high
        return None

    def _interval(self, trace: TracedCell, confidence: float) -> tuple[float, float] | None:
        above, below = trace.above, trace.below
        alike: dict[tuple[Quotient, float, float], int] = defaultdict(int)
        shape = None
        for place in {**above.slopes, **below.slopes}:
            one = self._drawn[place[0]][place[1]]
            shape = one.shape
            step = Quotient(above.slopes.get(place, 0.0), below.slopes.get(place, 0.0))
            for share in one.shares or [Share.between(one.shape, length) for length in one.noises()]:
                alike[step, share.weight, share.width] += share.cells
        if shape is None:
            return None
        moves = [Move(step, Share(weight, width, cells)) for (step, weight, width), cells in alike.items()]
        far = smooth_reach if below.slopes else moved_reach
        return interval(Quotient(above.value, below.value), moves, shape, confidence, far)

    def _extreme(self, i: int, window: NoisyWindow, confidence: float) -> tuple[float, float] | None:
        """The interval of the least or largest number: if all intervals cover, the extremes of their ends cover too.
        None for other windows."""
        best = window.calculation.extreme()
        if best is None:
            return None
        assert window.argument is not None
        value = typed(window.argument, self._domains).value
        places = [j for j in self._reads[window.name].get(i, ()) if value(self._rows[j]) is not None]
        rest = 1 - (1 - confidence) / max(1, len(places))
        ends = [self._ends(j, window.argument, rest) for j in places]
        known = [each for each in ends if each is not None]
        if not known or len(known) < len(ends):
            return None
        return best(low for low, _ in known), best(high for _, high in known)

    # --- traces -------------------------------------------------------------------------------------------------------

    def _trace(self, i: int, expression: Expression) -> TracedCell | None:
        match expression:
            case Literal(value=bool() | None):
                return None
            case Literal(value=int() | float() as value):
                return TracedCell(Linear(float(value)))
            case Column(name=name):
                if (i, name) not in self._found:
                    self._found[i, name] = self._column(i, name)
                return self._found[i, name]
            case Call(operator="cast_real", arguments=(inner,)):
                return self._trace(i, inner)
            case Call(operator="case", arguments=arguments):
                chosen = next(
                    (then for when, then in zip(arguments[:-1:2], arguments[1::2], strict=False) if self._is(i, when)),
                    arguments[-1],
                )
                return self._trace(i, chosen)
            case Call(operator="coalesce" | "nullif" as operator, arguments=arguments):
                for inner in arguments if operator == "coalesce" else arguments[:1]:
                    if typed(inner, self._domains).value(self._rows[i]) is not None:
                        return self._trace(i, inner)
                return None
            case Call(operator="negate", arguments=(inner,)):
                one = self._trace(i, inner)
                return None if one is None else one.times(TracedCell(Linear(-1.0)))
            case Call(operator="add" | "subtract" | "multiply" | "divide" as operator, arguments=(a, b)):
                one, two = self._trace(i, a), self._trace(i, b)
                if one is None or two is None:
                    return None
                if operator == "multiply":
                    return one.times(two)
                return one.over(two) if operator == "divide" else one.plus(two, 1.0 if operator == "add" else -1.0)
        return None

    def _is(self, i: int, condition: Expression) -> bool:
        return typed(condition, self._domains).value(self._rows[i]) is True

    def _column(self, i: int, name: str) -> TracedCell | None:
        if name in self._recipes:
            return self._measured(i, name)
        if name in self._windows:
            return self._windowed(i, self._windows[name])
        value = self._rows[i].get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return TracedCell(Linear(float(value)))

    def _measured(self, i: int, name: str) -> TracedCell | None:
        """A count or a sum is linear in its statistics, so difference quotients are exact."""
        recipe, uses = self._recipes[name]
        numbers = [self._drawn[i][part] for part in uses]
        if not isinstance(recipe, Counted | Summed) or any(is_cut(one, self._confidence) for one in numbers):
            return None
        middle = recipe.middle(numbers, self._confidence)
        slopes: dict[Place, float] = {}
        for at, part in enumerate(uses):
            ends = []
            for sign in (-1, 1):
                moved = [replace(one, values=one.values + sign) if k == at else one for k, one in enumerate(numbers)]
                ends.append(recipe.middle(moved, self._confidence))
            if middle is None or ends[0] is None or ends[1] is None:
                return None
            slopes[i, part] = (float(ends[1]) - float(ends[0])) / 2
        return None if middle is None else TracedCell(Linear(float(middle), slopes))

    def _windowed(self, i: int, window: NoisyWindow) -> TracedCell | None:
        fixed = [*window.partition, *(part.expression for part in window.order)]
        if any(not self._noisy.isdisjoint(columns_used(each)) for each in fixed):
            return None
        if window.argument is None:
            return None
        read = self._reads[window.name].get(i, [])
        copied = window.calculation.copied(read)
        if copied is not None:
            return self._trace(copied, window.argument)
        value = typed(window.argument, self._domains).value
        found = window.calculation.linear([j for j in read if value(self._rows[j]) is not None])
        if found is None:
            return None
        total: TracedCell | None = TracedCell(Linear(found.constant))
        for j in found.rows:
            one = self._trace(j, window.argument)
            total = None if one is None or total is None else total.plus(one)
        return total if total is None or found.factor == 1 else total.times(TracedCell(Linear(found.factor)))
