"""The difference of the averages of two groups, as in an A/B test, with an interval for noise and sampling together.

All other intervals of an answer are about noise alone: they contain the number that the table has. Here the table is
taken for a sample of people, and the interval contains the difference between the averages of the two populations.

With m_g the noisy average of a group, m_g - μ_g = (noise) + (sampling error). The four errors of two groups are
independent: each group has noise of its own, and each person has at most one row, so nobody is in both groups and the
rows of a group are independent. Sampling errors are nearly normal with variance s²/n. At a confidence of at least 95 %,
the half-widths of the noise intervals and of the normal sampling interval add up by their squares: exactly for normal
noise. For Laplace noise the result is a little wide (its tails are heavier, so its half-widths are larger in standard
deviations than those of a sum); the tests check this by characteristic functions. s² and n are noisy too: s² is
replaced by the upper end of its noise interval, n by the lower end.

An interval of an average ends at a public bound where the noise alone would reach further. The distance to such an end
is not a quantile: no error exceeds it. Such distances are added up, and only the others by their squares.

Sampling errors of rare outcomes are not nearly normal: for shares below about 3 % of 100 people the normal interval
alone covers 88 to 90 %, not 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.mechanisms import noise_quantiles
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import Column, Expression, same

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.answer_display import Interval
    from deniable.queries.plan.question import Measure

LEAST_CONFIDENCE: Final = 0.95
"""Below it, half-widths of Laplace noise do not add up by their squares."""
FEWEST: Final = 100
"""The fewest people of a group (by the lower end of their noisy count) whose average is taken for nearly normal."""
EXAMPLE: Final = "SELECT arm, COUNT(x) AS n, AVG(x) AS m, VAR_SAMP(x) AS v FROM t GROUP BY arm"


@final
@dataclass(frozen=True, slots=True)
class GroupDifference:
    """The average of one group minus the average of another. Computed from an answer, free of charge."""

    column: str
    groups: tuple[Any, Any]
    """(the group, the group that it is compared with)."""
    value: float
    noise_interval: Interval
    """Contains the difference of the averages in the table. It does not cover sampling error."""
    joint_interval: Interval
    """Contains the difference in the populations of which the people in the table are samples: noise and sampling.

    None if a group may have fewer than 100 people, or an average has no noise interval.
    """
    confidence: float

    def __str__(self) -> str:
        first, second = self.groups
        shares = f"at {100 * self.confidence:.6g} %"
        return (
            f"{self.column} of {first} minus {second}: {self.value:.6g}\n"
            f"noise and sampling error, {shares}: {_written(self.joint_interval)}\n"
            f"noise alone, {shares}: {_written(self.noise_interval)}"
        )


def _written(around: Interval) -> str:
    return "no interval" if around is None else f"{around[0]:.6g} to {around[1]:.6g}"


def difference(answer: Answer, column: str, groups: Sequence[Any]) -> GroupDifference:
    """See `Answer.difference`."""
    plan = answer.plan
    if answer.adjusted:
        raise InvalidOperation("this answer was changed after its release; compare groups of the answer itself")
    if answer.confidence < LEAST_CONFIDENCE:
        rule = f"must be at least {LEAST_CONFIDENCE} for a difference"
        raise InvalidParameter("confidence", answer.confidence, rule, "ask with confidence=0.95; a replay is free")
    if plan.question.relation.rows != 1:
        rule = "has several rows of one person, which are not independent samples"
        remedy = "average per person first: FROM (SELECT id, ANY_VALUE(arm) AS arm, AVG(x) AS x FROM t GROUP BY id)"
        raise InvalidParameter("answer", NOTHING, rule, remedy)
    spread, counted = _columns(answer, column)
    first, second = (_row(answer, group) for group in _two(groups))
    values = [answer[column][place] for place in (first, second)]
    if not all(isinstance(each, int | float) for each in values):
        raise InvalidOperation("one of the averages is missing, because its noisy count is 0")
    value = float(values[0]) - float(values[1])  # type: ignore[arg-type]  # checked above
    noise = _apart(answer, column, (first, second), ())
    found = [_sampling(answer, spread, counted, place) for place in (first, second)]
    sampled = [each for each in found if each is not None]
    both = _apart(answer, column, (first, second), sampled) if len(sampled) == len(found) else None
    return GroupDifference(column, (groups[0], groups[1]), value, noise, both, answer.confidence)


def _columns(answer: Answer, column: str) -> tuple[Measure, str]:
    """(the measure of the variances, the column of the counts) that belong to a column of averages."""
    question = answer.plan.question
    measures = {each.name: each for each in question.measures}
    shown = {
        name: measures[made.name]
        for name, made in question.post.columns
        if isinstance(made, Column) and made.name in measures
    }
    average = shown.get(column)
    if average is None or average.function != "avg" or average.expression is None:
        raise InvalidParameter("column", column, "must be the name of an AVG of the answer", f"ask {EXAMPLE}")
    of = average.expression
    spreads = [name for name, each in shown.items() if each.function in ("var", "stddev") and _is_of(each, of)]
    nullable = typed(of, question.relation.columns).domain.nullable
    counts = [name for name, each in shown.items() if each.function == "count" and _is_of(each, of)]
    if not nullable:
        counts += [name for name, each in shown.items() if each.function == "count" and each.expression is None]
    if not spreads or not counts:
        rule = "needs the variance and the number of the same values, because sampling error depends on them"
        raise InvalidParameter("column", column, rule, f"ask {EXAMPLE}")
    return shown[spreads[0]], counts[0]


def _is_of(measure: Measure, expression: Expression) -> bool:
    return measure.expression is not None and same(measure.expression, expression)


def _two(groups: Sequence[Any]) -> tuple[Any, Any]:
    if isinstance(groups, str) or not isinstance(groups, Sequence) or len(groups) != 2:
        raise InvalidParameter("groups", NOTHING, "must be two groups", 'write difference("m", ("B", "A"))')
    return groups[0], groups[1]


def _row(answer: Answer, group: Any) -> int:
    keys = [name for name in answer.columns if name not in answer.measured]
    wanted = tuple(group) if isinstance(group, tuple | list) else (group,)
    for place, row in enumerate(answer):
        if tuple(row[name] for name in keys) == wanted:
            return place
    rule = f"must name groups of the answer, by {', '.join(keys) or 'a key: it has none'}"
    raise InvalidParameter("groups", NOTHING, rule, "write a value for each key, as in the answer")


def _sampling(answer: Answer, spread: Measure, counted: str, place: int) -> float | None:
    """The half-width of the sampling error of an average; None if it is not known, or too few people are."""
    names = {made.name: name for name, made in answer.plan.question.post.columns if isinstance(made, Column)}
    around, people = answer.interval(names[spread.name])[place], answer.interval(counted)[place]
    if around is None or people is None or people[0] < FEWEST:
        return None
    variance = around[1] ** 2 if spread.function == "stddev" else around[1]
    n = people[0]
    sample = variance if spread.options.get("ddof", 1) else variance * n / (n - 1)
    return noise_quantiles.normal(noise_quantiles.miss(answer.confidence)) * math.sqrt(max(0.0, sample) / n)


def _apart(answer: Answer, column: str, places: tuple[int, int], sampled: Sequence[float]) -> Interval:
    """The interval of a difference, from the distances to the ends of both noise intervals and the sampling errors."""
    around, other = (answer.interval(column)[place] for place in places)
    values = [float(answer[column][place]) for place in places]  # type: ignore[arg-type]  # numbers: checked before
    if around is None or other is None:
        return None
    (low, high), (other_low, other_high) = around, other
    least, most = _bounds(answer, column)
    value = values[0] - values[1]
    down = [(values[0] - low, low <= least), (other_high - values[1], other_high >= most)]
    up = [(high - values[0], high >= most), (values[1] - other_low, other_low <= least)]
    return value - _together(down, sampled), value + _together(up, sampled)


def _bounds(answer: Answer, column: str) -> tuple[float, float]:
    """The public bounds of a column of averages."""
    question = answer.plan.question
    shown = {name: made.name for name, made in question.post.columns if isinstance(made, Column)}
    [average] = [each for each in question.measures if each.name == shown[column]]
    assert average.expression is not None
    bounds = typed(average.expression, question.relation.columns).domain.bounds
    return (-math.inf, math.inf) if bounds is None else (float(bounds[0]), float(bounds[1]))


def _together(noise: Sequence[tuple[float, bool]], sampled: Sequence[float]) -> float:
    """Half a width, from distances of which some are certain (they end at a public bound) and sampling errors."""
    certain = math.fsum(distance for distance, is_certain in noise if is_certain)
    return certain + math.hypot(*(distance for distance, is_certain in noise if not is_certain), *sampled)
