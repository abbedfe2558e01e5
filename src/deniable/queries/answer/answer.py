"""Answers: a small table of noisy numbers with noise intervals, a guarantee and a receipt.

`Answer` is what a session returns. Its methods (roll-ups, shares, fits, rounding) are post-processing and free. The
second half of the module computes cells and their intervals from a `Released`.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.queries.answer.answer_display import Cell, Interval, Shown, interval_of_changed, portable
from deniable.queries.answer.window_intervals import Traces
from deniable.queries.intervals.noise_intervals import NoisyEstimate, Share, smooth_reach
from deniable.queries.intervals.ratio_intervals import (
    Move,
    Quotient,
    bend,
    curved,
    interval,
    is_linear,
    is_smooth,
    moved_reach,
    quotient,
)
from deniable.queries.plan.answer_notes import (
    empty_note,
    left_out_notes,
    rows_note,
    threshold_note,
)
from deniable.queries.plan.estimators import Counted
from deniable.queries.plan.pricing import rank_note
from deniable.queries.plan.recipes import is_cut, possible
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Call, Column, Expression, columns_used, same
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.queries.answer.group_differences import GroupDifference
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.recipes import DrawnValue
    from deniable.queries.publication.consistent_fit import Invariants, Joint
    from deniable.tables.kinds import Domain


class Answer(Shown):
    """The noisy answer to a question, with its plan, guarantee and receipt."""

    __slots__ = ("_budget", "_joint", "_places", "_plan", "_promise", "_released", "_shared", "guarantee", "receipt")

    def __init__(
        self, plan: NoisePlan, released: Released, budget: Budget, guarantee: Guarantee, receipt: Receipt,
        confidence: float, *, moved: Released | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._released, self._budget = plan, released, budget
        self.guarantee, self.receipt = guarantee, receipt
        self._promise = guarantee
        """The same; a rehearsal on a server's dummy rows has no `guarantee`, but a promise of the same form."""
        self._shared: Mapping[str, float] = {}
        """The columns that are shares of the total, each with its factor."""
        self._joint: tuple[Joint, int] | None = None
        """(the set of tables that it was fitted with, its index there), if it was fitted."""
        cells, intervals, self._places = _shown(plan, moved or released, budget, confidence)
        frame = plan.kept("frame", lambda: _Frame.of(plan))
        super().__init__(
            plan.question.names, cells, intervals, confidence, measured=frame.measured, counts=frame.counts
        )

    def _like(self, made: Answer) -> Answer:
        """An answer that was computed from this one, as an object of this class."""
        return made

    def _papers(self) -> str:
        return str(self.receipt)

    def _entry(self) -> int:
        return self.receipt.entry

    @property
    def budget(self) -> Budget:
        """The budget that paid for the answer."""
        return self._budget

    @property
    def plan(self) -> NoisePlan:
        """The plan of the question: its statistics, their shares of the cost, and the estimators."""
        return self._plan

    @property
    def has_shares(self) -> bool:
        """Whether some columns are shares of the total."""
        return bool(self._shared)

    @property
    def released(self) -> Released:
        """The noisy statistics as they were released, before any fit."""
        return self._released

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one sentence each: from the question, the schema, the cost, the noisy numbers."""
        plan = self._plan
        said = [
            self._bare_note(),
            self._missing_note(),
            empty_note(plan),
            threshold_note(plan, self._released.threshold),
            rank_note(plan, self._budget, self._released.cost, self.confidence),
            *plan.kept("rows read", lambda: [rows_note(plan), *left_out_notes(plan)]),
        ]
        return tuple(each for each in said if each)

    def _bare_note(self) -> str:
        """A note on numbers without an interval, so that nobody takes them for exact."""
        if self._plan.is_picked:
            return ""  # `rank_note` covers it
        bare = [
            name
            for name, noisy in zip(self._names, self._noisy, strict=True)
            if noisy
            and any(
                around is None and isinstance(cell, int | float) and not isinstance(cell, bool)
                for cell, around in zip(self[name], self.interval(name), strict=True)
            )
        ]
        if not bare:
            return ""
        return (
            f"{', '.join(bare)}: a number without ± has no noise interval and may be far off; most often its "
            "denominator may be 0"
        )

    def _missing_note(self) -> str:
        """A note on noisy columns with missing numbers, which are an effect of noise and not an error.

        Suppressed counts are not mentioned here, because the adjustments mention them.
        """
        columns = zip(self._names, self._noisy, strict=True)
        hidden = self._counts if self._suppressed else frozenset()
        missing = [
            name for name, noisy in columns if noisy and name not in hidden and any(cell is None for cell in self[name])
        ]
        if not missing:
            return ""
        return (
            f"{', '.join(missing)}: a missing number cannot be computed from the noisy numbers; "
            "most often its denominator, a count or a standard deviation, came out as 0"
        )

    def adding_up_to(self, *totals: Answer, invariants: Invariants | None = None) -> Answer:
        """A copy whose counts or sums are fitted, by least squares, to add up to coarser answers. Free.

        Each of `totals` has the same measure of the same rows by fewer of the keys. If they agree with each other they
        stay as they are; otherwise they are fitted as well (`queries.publish` returns them). `invariants` are totals
        that are public by law and taken as exact: `{"ward": {"A": 500, "B": 300}}`. The copy mentions the adjustment
        wherever it is displayed. Raises `InvalidParameter` if the answers do not belong together.
        """
        from deniable.queries.publication import consistent_fit

        self._not_suppressed()
        if not totals and not invariants:
            raise InvalidParameter(
                "totals", NOTHING, "must be at least one answer", "give a coarser answer, or invariants="
            )
        return consistent_fit.added_up(self, totals, invariants).table(0)

    def nonnegative(self) -> Answer:
        """A copy without counts below 0. Free; the copy mentions it wherever it is displayed.

        An answer that was fitted to totals is fitted again by least squares and still adds up to them. In any other
        answer each count below 0 is raised to 0: single counts come closer to the truth, but sums of many of them
        become too large.
        """
        from deniable.queries.publication import consistent_fit

        self._not_suppressed()
        if self._joint is not None:
            return self._joint[0].nonnegative().table(self._joint[1])
        made = super().nonnegative()
        if consistent_fit.adds_up(self._plan) and not self._touched:
            made._joint = consistent_fit.raised(self, made.adjustments[-1:]), 0
        return made

    def rounded(self, *, base: int = 1) -> Answer:
        """A copy rounded to multiples of `base`, together with all its margins (controlled rounding). Free.

        Every number becomes one of the two nearest multiples, and rounded cells still add up to rounded margins. If
        keys are not public, or the answer has several measures, each count is rounded by itself.
        """
        from deniable.queries.publication import consistent_fit

        self._not_suppressed()
        if self._joint is not None:
            return self._joint[0].rounded(base).table(self._joint[1])
        if self._touched or not consistent_fit.adds_up(self._plan):
            return super().rounded(base=base)
        return consistent_fit.alone(self).rounded(base).table(0)

    def _not_suppressed(self) -> None:
        if self._suppressed:
            raise InvalidOperation(
                "some counts of this answer are suppressed, so it cannot be changed any more; suppress them last"
            )

    def _replaced(self, numbers: Sequence[float | int], *, least: float, whole: bool) -> Answer:
        """A copy with new numbers by group in the columns that display the measure itself.

        Intervals are extended to contain the new numbers. True numbers are at least `least`, and integers if `whole`:
        intervals are cut to that.
        """
        measures = {each.name for each in self._plan.question.measures}
        plain = [isinstance(made, Column) and made.name in measures for _, made in self._plan.question.post.columns]
        if not any(plain):
            rule = "the answer displays only numbers computed from a count or sum, not the count or sum itself"
            raise InvalidOperation(f"{rule}; select the count or sum too")
        cells, intervals = [], []
        for place, row, around in zip(self._places, self._cells, self._intervals, strict=True):
            number = numbers[place]
            cells.append(tuple(number if one else cell for cell, one in zip(row, plain, strict=True)))
            intervals.append(
                tuple(
                    interval_of_changed(each, number, least=least, whole=whole) if one and each is not None else each
                    for each, one in zip(around, plain, strict=True)
                )
            )
        other = copy.copy(self)
        other._cells, other._intervals = tuple(cells), tuple(intervals)
        if plain != list(self._noisy):
            other.adjustments = (*self.adjustments, "columns that are computed from these numbers were not changed")
        return other

    @property
    def _was_moved(self) -> bool:
        """Whether the answer displays other numbers than were released."""
        return self._touched or (self._joint is not None and not (self._joint[0].kept and not self._joint[0].done))

    def rollup(self, *keys: str) -> Answer:
        """The counts or sums of this answer by some of its keys, summed over the others; without keys, the total. Free.

        Every number is a sum of noisy numbers of this answer and has an interval of its own: a sum of many cells has
        the noise of all of them. Raises `InvalidParameter` unless the answer has only counts and sums by public keys.
        """
        from deniable.queries.answer import rollups

        rollups.check(self._plan, moved=self._was_moved, asked="add up")
        keep = rollups.places_of(self._plan, keys)
        plan = rollups.coarser(self._plan, keep, self._budget)
        summed = rollups.rolled_up(self._plan, plan, self._released, keep, self._budget)
        if summed is None:
            rule = "has several measures, and its bound on the groups of a person holds for its own keys only"
            raise InvalidParameter("answer", NOTHING, rule, "ask for one measure at a time, or the coarser question")
        receipt = replace(self.receipt, question=plan.question.hash)
        other = Answer(plan, summed, self._budget, self._promise, receipt, self.confidence)
        other.adjustments = (*self.adjustments, f"sums of the numbers of charge {self.receipt.entry}")
        return self._like(other)

    def shares(self) -> Answer:
        """A copy with each count or sum divided by the noisy total of all groups, with intervals. Free.

        The copy mentions it wherever it is displayed. A share of a total that may be 0 has no interval.
        """
        if len(self._measured) != 1:
            raise InvalidParameter("answer", NOTHING, "must have exactly one count or sum", "ask for one at a time")
        return self.with_shares(dict.fromkeys(self._measured, 1.0))

    def with_shares(self, factors: Mapping[str, float]) -> Self:
        """A copy with some columns as shares of the total, each times its factor (100 for per cent). Free."""
        from deniable.queries.answer import rollups

        rollups.check(self._plan, moved=self._was_moved, asked="take shares of")
        rollups.check_shares(self._plan, list(factors))
        found = rollups.parts_of_total(self._plan, self._released, self._budget, self.confidence)
        order = _order(self._plan, self._released, self._budget, self.confidence)
        by = [factors.get(name) for name in self._names]
        other = copy.copy(self)
        other._cells = tuple(
            tuple(cell if f is None else _times(found[i][0], f) for cell, f in zip(row, by, strict=True))
            for i, row in zip(order, self._cells, strict=True)
        )
        other._intervals = tuple(
            tuple(around if f is None else _ends(found[i][1], f) for around, f in zip(row, by, strict=True))
            for i, row in zip(order, self._intervals, strict=True)
        )
        other._counts, other._shared = self._counts.difference(factors), dict(factors)
        other._touched = True  # shares are not counts or sums, so fits do not accept them
        other.adjustments = (*self.adjustments, f"shares of the total of all groups: {', '.join(factors)}")
        return other

    def difference(self, column: str, groups: Sequence[Any]) -> GroupDifference:
        """The average of a group minus the average of another, `difference("m", ("B", "A"))`, as in an A/B test. Free.

        `column` is an AVG(x); the answer must also have COUNT(x) and VAR_SAMP(x) (or another deviation), and at most
        one row of each person. The result has a noise interval, and a joint interval for noise and sampling error.
        """
        from deniable.queries.answer import group_differences

        return group_differences.difference(self, column, groups)

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph for a paper or a regulator. ε is stated at `delta`, by default the budget's δ."""
        from deniable.queries.answer import privacy_statement

        return privacy_statement.of_answers([self], self.adjustments, delta)

    def to_dict(self) -> dict[str, Any]:
        """The answer as a JSON-ready dict: the table, the intervals, the notes, and their provenance."""
        plan = self._plan
        return {
            "columns": list(self._names),
            "rows": [[portable(cell) for cell in row] for row in self._cells],
            "intervals": [[None if each is None else list(each) for each in row] for row in self._intervals],
            "confidence": self.confidence,
            "kinds": [
                "real" if name in self._shared else kind
                for name, kind in plan.kept("frame", lambda: _Frame.of(plan)).kinds
            ],
            "measured": sorted(self._measured),
            "counts": sorted(self._counts),
            "adjusted": self.adjusted,
            "notes": list(self.notes),
            "provenance": {
                "question": plan.question.hash,
                "tables": [table.name for table in plan.question.relation.tables],
                "unit": self._promise.unit.describe(),
                "guarantee": self._promise.curve.to_dict(),
                "entry": self.receipt.entry,
                "paid": self.receipt.paid,
                "left": self.receipt.left,
                "replayed": self.receipt.replayed,
                "time": self.receipt.time,
                **({"version": self.receipt.version} if self.receipt.declared else {}),
            },
        }

    def to_json(self) -> str:
        """`to_dict` as indented JSON text. It contains only released numbers and public facts."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)


def _times(share: float | None, factor: float) -> float | None:
    return None if share is None or not math.isfinite(share * factor) else share * factor


def _ends(around: tuple[float, float] | None, factor: float) -> Interval:
    if around is None:
        return None
    low, high = sorted((around[0] * factor, around[1] * factor))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


# -- from noisy statistics to cells ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Frame:
    """The properties that all answers to questions of one shape share: noisy columns, counts, kinds."""

    measured: frozenset[str]
    counts: frozenset[str]
    kinds: list[tuple[str, str]]

    @classmethod
    def of(cls, plan: NoisePlan) -> _Frame:
        counted = {recipe.name for recipe in plan.recipes if isinstance(recipe, Counted)}
        measures = {each.name for each in plan.question.measures}
        measures |= {each.name for each in plan.question.post.windows}
        columns, domains = plan.question.post.columns, plan.question.domains
        return cls(
            measured=frozenset(name for name, made in columns if measures & set(columns_used(made))),
            counts=frozenset(name for name, made in columns if isinstance(made, Column) and made.name in counted),
            kinds=[(name, typed(made, domains).domain.kind.value) for name, made in columns],
        )


def _shown(
    plan: NoisePlan, released: Released, budget: Budget, confidence: float
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[tuple[Interval, ...], ...], tuple[int, ...]]:
    """(rows of cells, their intervals, the index of the group of each row)."""
    question = plan.question
    drawn = released.drawn(plan, budget)
    estimates: list[dict[str, NoisyEstimate]] = []
    rows: list[dict[str, Cell]] = []
    for group, numbers in zip(released.groups, drawn, strict=True):
        found = _estimates(plan, numbers, confidence)
        estimates.append(found)
        keys = {key.name: value for key, value in zip(question.keys, group, strict=True)}
        rows.append(keys | {name: each.value for name, each in found.items()})
    domains = question.domains
    chosen = question.post.select(rows, domains)
    cells = tuple(values for _, values in chosen)
    readers = plan.kept(
        ("intervals", confidence),
        lambda: [_Interval(plan, expression, domains, confidence) for _, expression in question.post.columns],
    )
    windows = {window.name for window in question.post.windows}
    read = [not windows.isdisjoint(columns_used(each)) for _, each in question.post.columns]
    traces = None
    if any(read) and released.law is None and not released.moved:
        kept = question.post.passing(rows, domains)
        traces = Traces(plan, question.post.opened(kept, rows, domains), drawn, kept, confidence)

    def around(i: int, column: int) -> Interval:
        if traces is not None and read[column]:
            return traces.around(i, question.post.columns[column][1])
        return readers[column].around(rows[i], estimates[i], drawn[i])

    intervals = tuple(tuple(around(i, column) for column in range(len(readers))) for i, _ in chosen)
    return cells, intervals, tuple(i for i, _ in chosen)


def _order(plan: NoisePlan, released: Released, budget: Budget, confidence: float) -> list[int]:
    """The index of the group of each row of an answer."""
    rows: list[dict[str, Cell]] = []
    for group, numbers in zip(released.groups, released.drawn(plan, budget), strict=True):
        keys = {key.name: value for key, value in zip(plan.question.keys, group, strict=True)}
        rows.append(keys | {name: each.value for name, each in _estimates(plan, numbers, confidence).items()})
    return [i for i, _ in plan.question.post.select(rows, plan.question.domains)]


def _estimates(plan: NoisePlan, drawn: Sequence[DrawnValue], confidence: float) -> dict[str, NoisyEstimate]:
    return {
        recipe.name: recipe.estimate([drawn[i] for i in uses], confidence)
        for recipe, uses in zip(plan.recipes, plan.uses, strict=True)
    }


_MOST_MEASURES: Final = 8
"""The most measures in an expression with a quantile for which an interval is computed: all corners are tried."""


@final
class _Interval:
    """Computes the noise interval of one column of the result, for each row."""

    __slots__ = (
        "_confidence",
        "_expression",
        "_far",
        "_is_smooth",
        "_made",
        "_parts",
        "_plan",
        "_quotient",
        "_root",
        "_used",
        "_value",
    )

    def __init__(
        self, plan: NoisePlan, expression: Expression, domains: Mapping[str, Domain], confidence: float
    ) -> None:
        self._plan, self._expression, self._confidence = plan, expression, confidence
        names = {recipe.name: (recipe, uses) for recipe, uses in zip(plan.recipes, plan.uses, strict=True)}
        self._used = [name for name in dict.fromkeys(columns_used(expression)) if name in names]
        if not {window.name for window in plan.question.post.windows}.isdisjoint(columns_used(expression)):
            self._used = []  # a window depends on the noise of other groups; see `window_intervals`
        self._made = [(name, *names[name]) for name in self._used]
        self._parts = sorted({part for _, _, uses in self._made for part in uses})
        self._value = typed(expression, domains).value
        self._quotient = quotient(expression, domains)
        # The exact law of integer noise takes some milliseconds; for a linear expression it is the same in all rows.
        self._far = moved_reach if is_linear(expression) else smooth_reach
        self._is_smooth = is_smooth(expression)
        root = _squared(expression)
        self._root = None if root is None else _Interval(plan, root, domains, confidence)

    def around(
        self, row: Mapping[str, Any], estimates: Mapping[str, NoisyEstimate], drawn: Sequence[DrawnValue]
    ) -> Interval:
        if not self._used:
            return None
        if isinstance(self._expression, Column):
            one = estimates[self._expression.name]
            return None if one.low is None or one.high is None else (one.low, one.high)
        middle = self._value(row)
        if isinstance(middle, bool) or not isinstance(middle, int | float):
            return None
        if self._root is not None:
            ends = self._root.around(row, estimates, drawn)
            return None if ends is None else _square(*ends)
        if any(self._plan.parts[part].is_ranked for part in self._parts):
            return self._by_measures(row, drawn, float(middle))
        return self._by_parts(row, drawn, float(middle))

    def _by_parts(self, row: Mapping[str, Any], drawn: Sequence[DrawnValue], middle: float) -> Interval:
        """From the derivatives of the result by each noisy statistic.

        If one of them is a count near its threshold, the union of intervals over the values that it may have.
        """
        cut = next((part for part in self._parts if is_cut(drawn[part], self._confidence)), None)
        if cut is None:
            around = self._moved(row, drawn, self._parts, self._confidence)
            # A rounded count may lie beyond the ends.
            return None if around is None else (min(around[0], middle), max(around[1], middle))
        others = [part for part in self._parts if part != cut]
        counts, rest = possible(drawn[cut], self._confidence)
        ends = [middle]
        for count in counts:
            numbers = [*drawn]
            numbers[cut] = count
            around = self._moved(row, numbers, others, rest)
            if around is None:
                return None
            ends += around
        return min(ends), max(ends)

    def _at(self, row: Mapping[str, Any], drawn: Sequence[DrawnValue]) -> Quotient | None:
        """The result for these noisy statistics, as a quotient; None if it is not a number."""
        values = {name: recipe.middle([drawn[i] for i in uses], self._confidence) for name, recipe, uses in self._made}
        return self._quotient({**row, **values})

    def _moved(
        self, row: Mapping[str, Any], drawn: Sequence[DrawnValue], parts: Sequence[int], confidence: float
    ) -> Interval:
        """The interval from the noise of these statistics. Measures that share a statistic share its noise."""
        middle = self._at(row, drawn)
        if middle is None:
            return None
        # Integer steps, for which the difference quotient of a linear expression is exact.
        steps = {part: max(1, round(drawn[part].deviations)) for part in parts}
        moves: list[Move] = []
        ends: dict[int, Quotient] = {}
        bends: list[Quotient] = []
        for part, step in steps.items():
            one = drawn[part]
            low, high = (self._at(row, _shifted(drawn, {part: sign * step})) for sign in (-1, 1))
            if low is None or high is None:
                return None
            move = Quotient((high.above - low.above) / (2 * step), (high.below - low.below) / (2 * step))
            shares = one.shares or [Share.between(one.shape, length) for length in one.noises()]
            moves += [Move(move, share) for share in shares]
            if self._is_smooth:
                continue
            bends.append(bend(low, middle, high, middle, math.sqrt(0.5)))  # a squared noise deviates by √2·σ²
            for other, end in ends.items():
                corner = self._at(row, _shifted(drawn, {part: step, other: steps[other]}))
                if corner is None:
                    return None
                bends.append(bend(middle, high, corner, end, 1.0))
            ends[part] = high
        shape = drawn[self._parts[0]].shape
        return interval(middle, [*moves, *curved(middle, moves, bends, shape)], shape, confidence, self._far)

    def _by_measures(self, row: Mapping[str, Any], drawn: Sequence[DrawnValue], middle: float) -> Interval:
        """For an expression with a quantile: the range of results over all corners of the measures' intervals.

        No assumption is made on how the measures depend on each other: quantiles of one column share their noise. Each
        interval may miss with its part of the total probability of missing, so all of them hold at the confidence.
        """
        rest = 1 - (1 - self._confidence) / len(self._made)
        found = [(name, recipe.estimate([drawn[i] for i in uses], rest)) for name, recipe, uses in self._made]
        if any(one.low is None or one.high is None for _, one in found):
            return None
        names, ends = [name for name, _ in found], [(one.low, one.high) for _, one in found]
        if len(ends) > _MOST_MEASURES:
            return None
        corners = [self._quotient({**row, **dict(zip(names, each, strict=True))}) for each in itertools.product(*ends)]
        quotients = [each for each in corners if each is not None]
        if len(quotients) < len(corners) or not (
            all(each.below > 0 for each in quotients) or all(each.below < 0 for each in quotients)
        ):
            return None  # the denominator may be 0
        results = [middle, *(each.above / each.below for each in quotients)]
        return min(results), max(results)


def _shifted(drawn: Sequence[DrawnValue], steps: Mapping[int, int]) -> list[DrawnValue]:
    """The noisy statistics with some values changed by a step."""
    return [replace(one, values=one.values + steps[i]) if i in steps else one for i, one in enumerate(drawn)]


def _squared(expression: Expression) -> Expression | None:
    """The expression x, if `expression` is x * x; else None."""
    if isinstance(expression, Call) and expression.operator == "multiply":
        a, b = expression.arguments
        return a if same(a, b) else None
    return None


def _square(low: float, high: float) -> tuple[float, float]:
    """The range of squares of the numbers between two ends. (First-order intervals fail where a square is 0.)"""
    ends = low * low, high * high
    return 0.0 if low <= 0 <= high else min(ends), max(ends)
