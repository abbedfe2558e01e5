"""MIN and MAX of dates and timestamps, computed on their days or microseconds and converted back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, final

from deniable.queries.intervals.noise_intervals import NoisyEstimate
from deniable.queries.plan.ranked_estimators import Ranked, edges_between
from deniable.queries.plan.recipes import DrawnValue, Recipe
from deniable.queries.relations.exact_statistics import Cells, Statistic
from deniable.queries.relations.operators import typed
from deniable.tables.expressions import call, lit
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from deniable.queries.plan.question import Measure
    from deniable.queries.relations.relation_nodes import RelationNode

_FIRST: Final = dt.date(1970, 1, 1)
_MOMENT: Final = dt.datetime(1970, 1, 1)


@final
@dataclass(frozen=True, slots=True)
class Dated(Recipe):
    """MIN or MAX of dates or timestamps. It has no noise interval, because the ends of intervals are numbers."""

    name: str
    inner: Ranked
    kind: Kind

    def statistics(self) -> tuple[Statistic, ...]:
        return self.inner.statistics()

    def _estimate(self, drawn: Sequence[DrawnValue], confidence: float) -> NoisyEstimate:
        found = self.inner.estimate(drawn, confidence).value
        if found is None:
            return NoisyEstimate(None)
        if self.kind is Kind.DATE:
            return NoisyEstimate(_FIRST + dt.timedelta(days=round(found)))
        return NoisyEstimate(_MOMENT + dt.timedelta(microseconds=round(found)))


def dated(measure: Measure, relation: RelationNode) -> Dated | None:
    """The recipe of MIN or MAX of dates; None for other measures. `question.check_measure` must have accepted it."""
    if measure.function not in {"min", "max"} or measure.expression is None:
        return None
    kind = typed(measure.expression, relation.columns).domain.kind
    if kind not in {Kind.DATE, Kind.TIMESTAMP}:
        return None
    counted = call("microseconds", measure.expression)
    if kind is Kind.DATE:
        counted = call("days_between", lit(_FIRST), measure.expression)
    bounds = typed(counted, relation.columns).domain.bounds
    assert bounds is not None  # `check_measure` refuses others
    edges, whole = edges_between(*bounds, True)
    q = Fraction(0 if measure.function == "min" else 1)
    return Dated(measure.name, Ranked(measure.name, Cells(counted, edges), q, whole, True, bounds[1]), kind)
