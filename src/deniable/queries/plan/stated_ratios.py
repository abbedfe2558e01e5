"""The error of a ratio, such as SUM(x) / COUNT(*), in a group of a stated size: before it is asked, and without data.

The error of a ratio depends on its own value t and on its denominator: N - t·D has the noise of N and t times that of D
(`ratio_intervals`). Stated is the error where the denominator counts as many rows as are asked for, and where each of
them has the largest value that the bounds allow, so that |t| is as large as it can be. It is an upper bound for all
smaller |t| in groups of that size. A ratio whose denominator is a sum has no such bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deniable.queries.intervals.noise_intervals import Share
from deniable.queries.intervals.ratio_intervals import Move, Quotient, interval, is_linear, quotient
from deniable.queries.plan.estimators import Counted, Summed
from deniable.queries.relations.exact_statistics import Count
from deniable.tables.expressions import Call, Expression, columns_used

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.plan.recipes import Recipe

Used = tuple["Counted | Summed", int]
"""A measure, and the index of its only part."""


def ratios(plan: NoisePlan) -> dict[str, tuple[Used, Used]]:
    """(numerator, denominator) of each column that is a count or sum, times a constant, over a count of rows."""
    named = {recipe.name: (recipe, uses) for recipe, uses in zip(plan.recipes, plan.uses, strict=True)}
    paired = {place for pair in plan.pairs for place in (pair.total, pair.count)}
    found = {}
    for name, made in plan.question.post.columns:
        ends = [_measure(each, named, paired) for each in _sides(_plain(made))]
        if not ends:
            continue
        if ends[0] is not None and ends[1] is not None and _counts_rows(ends[1][0]) and ends[0][1] != ends[1][1]:
            found[name] = (ends[0], ends[1])
    return found


def ratio_errors(plan: NoisePlan, made: Noise, confidence: float, rows: int) -> dict[str, float | None]:
    """The half-width of the interval of each ratio at its largest value, if its denominator is `rows`; None if the
    noise of the denominator is so large that there may be no interval.
    """
    columns = dict(plan.question.post.columns)
    found: dict[str, float | None] = {}
    for name, ends in ratios(plan).items():
        value = quotient(_plain(columns[name]), plan.question.domains)
        row = {one.name: rows * _largest(one) for one, _ in ends}
        middle = value(row)
        moves = []
        for one, part in ends:
            moved = value({**row, one.name: row[one.name] + _step(one)})
            if middle is None or moved is None:
                break
            mechanism: Any = made.mechanisms[part]
            step = Quotient(moved.above - middle.above, moved.below - middle.below)
            moves.append(Move(step, Share(1.0, float(mechanism.width))))
        if middle is None or len(moves) < len(ends):
            continue
        around = interval(middle, moves, made.shape, confidence)
        found[name] = None if around is None else max(abs(end - middle.above / middle.below) for end in around)
    return found


def _plain(expression: Expression) -> Expression:
    """An expression without CAST to a real and NULLIF(…, 0), which change no quotient that is a number."""
    if not isinstance(expression, Call):
        return expression
    if expression.operator in {"cast_real", "nullif"}:
        return _plain(expression.arguments[0])
    return replace(expression, arguments=tuple(map(_plain, expression.arguments)))


def _sides(expression: Expression) -> tuple[Expression, ...]:
    """The numerator and the denominator of a quotient, or of a constant times a quotient; () for others."""
    if not isinstance(expression, Call) or expression.operator not in {"multiply", "divide"}:
        return ()
    a, b = expression.arguments
    if not any(columns_used(b)):
        return _sides(a)
    if expression.operator == "multiply":
        return () if any(columns_used(a)) else _sides(b)
    return (a, b) if is_linear(a) and is_linear(b) else ()


def _measure(
    expression: Expression, named: Mapping[str, tuple[Recipe, tuple[int, ...]]], paired: set[int]
) -> Used | None:
    """The only measure of an expression: a count or a sum with noise of its own."""
    used = [*dict.fromkeys(columns_used(expression))]
    if len(used) != 1 or used[0] not in named:
        return None
    recipe, uses = named[used[0]]
    if not isinstance(recipe, Counted | Summed) or len(uses) != 1 or uses[0] in paired:
        return None
    return recipe, uses[0]


def _counts_rows(recipe: Counted | Summed) -> bool:
    return isinstance(recipe, Counted) and isinstance(recipe.statistic, Count)


def _largest(recipe: Counted | Summed) -> float:
    """The most that one row adds."""
    return 1.0 if isinstance(recipe, Counted) else float(max(abs(recipe.statistic.low), abs(recipe.statistic.high)))


def _step(recipe: Counted | Summed) -> float:
    return 1.0 if isinstance(recipe, Counted) else 2.0**recipe.statistic.exponent
