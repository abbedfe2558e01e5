"""Joint tables: counts or sums of the same rows by different public keys, measured with shared noise.

Coarser tables are sums of finer ones, so measuring each by itself would waste budget. Under a Gaussian budget noise is
added to residuals (`synth.residual_noise`), of which every table is a sum; under a pure budget some of the tables are
measured and the others computed (`synth.pure_splits`). This module recognises such tables in a batch (`groups`),
chooses the noise for a cost (`Jointly.made`) or for target errors (`Jointly.least`), checks its price in exact
arithmetic, and turns noisy residuals into answers (`published`). `release.release_jointly` draws the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from deniable.curves.filters import UNIT
from deniable.errors import NOTHING, InvalidParameter, QuestionRefused
from deniable.ledger import Cost
from deniable.ledger.currency import Shape
from deniable.mechanisms import DiscreteLaplace, Gaussian, Mechanism
from deniable.numbers import root_up, up
from deniable.queries.answer.release import Released
from deniable.queries.answer.shared_measurements import Measurement, behind, in_all, total
from deniable.queries.intervals.noise_intervals import Share, merged_reach
from deniable.queries.plan.canonical_form import Form, expression_form, relation_form, statistic_form
from deniable.queries.plan.named_keys import public_values
from deniable.queries.plan.noise_families import MARGIN, family_of
from deniable.queries.plan.pricing import least_fitting
from deniable.queries.relations.exact_statistics import Collect, Count, ExactSum, Moves
from deniable.synth import pure_splits, residual_noise
from deniable.synth.residual_noise import Exchange, Workload
from deniable.synth.table_noise import Columns, MeasuredSource, TableNoise, rebuilt, size_of, summed, without_averages
from deniable.units import Relation as Neighbours
from deniable.units import Sensitivity

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.expressions import Expression
    from deniable.tables.kinds import Scalar

MOST_TOGETHER: Final = 2**16
"""The most cells of a helper table: no question asks for it, but under a pure budget measuring it improves others."""

SplitGoal = Literal["sum", "fair", "closest"]
"""What the split of a cost minimises, and under which constraint: see `Jointly.made`."""

_WIDE: Final = 2**10
"""Steps per standard deviation of a residual's noise; rounding to such steps has no visible effect."""
_FINEST: Final = 2**20
"""The largest factor by which steps are made finer."""


def additive(plan: NoisePlan) -> bool:
    """Whether all measures of a question add up over groups, and public keys put every row into a group."""
    return plan.kept("additive", lambda: _additive(plan))


def _additive(plan: NoisePlan) -> bool:
    return (
        plan.people is None
        and not plan.is_picked
        and plan.collect.known is not None
        and all(isinstance(each, Count | ExactSum) for each in plan.statistics)
        and is_whole(plan)
    )


def is_whole(plan: NoisePlan) -> bool:
    """Whether every row is in a group: all possible values of each key are listed."""
    for key in plan.question.keys:
        if not key.values or public_values(key.expression, plan.question.relation) != key.values:
            return False
    return True


def key_forms(plan: NoisePlan) -> list[Form]:
    """The canonical forms of a question's keys."""
    _, columns = relation_form(plan.question.relation)
    return [expression_form(key.expression, columns) for key in plan.question.keys]


def _family(plan: NoisePlan) -> Form | None:
    """A form that is equal for two questions if they can be measured jointly; None if this question cannot be measured
    jointly with any other.

    All of a person's rows must be allowed in one cell, so that one bound holds for all tables. If a bound on groups
    gives finer tables a smaller sensitivity, each table is measured by itself.
    """
    reach, forms = plan.collect.reach, key_forms(plan)
    if len(plan.parts) != 1 or not additive(plan) or reach.in_one_group != reach.rows or len(set(forms)) < len(forms):
        return None
    below, columns = relation_form(plan.question.relation)
    return (below, statistic_form(plan.parts[0].statistic, columns))


def groups(plans: Sequence[NoisePlan]) -> list[tuple[int, ...]]:
    """The indices of questions that are measured jointly, in groups of at least two."""
    found: dict[Form, list[int]] = {}
    for place, plan in enumerate(plans):
        family = _family(plan)
        if family is not None:
            found.setdefault(family, []).append(place)
    return [tuple(places) for places in found.values() if len(places) > 1]


@final
@dataclass(frozen=True, slots=True)
class Made:
    """The noise of joint tables at one cost."""

    mechanisms: tuple[tuple[Columns, Mechanism], ...]
    """The measured residuals (Gaussian budget) or tables (pure budget), each with its mechanism."""
    law: TableNoise
    shape: Shape
    cost: Cost
    scales: tuple[int, ...] = ()
    """For each residual, the integer that it is multiplied by before noise is added."""

    @property
    def measures_tables(self) -> bool:
        """Whether tables are measured, not residuals."""
        return self.shape is Shape.LAPLACE

    def shares(self, columns: Sequence[int]) -> tuple[Share, ...]:
        """The shares of the draws in a cell of a table."""
        return tuple(Share(*each) for each in self.law.shares(columns))

    def deviation(self, columns: Sequence[int]) -> float:
        """The standard deviation of the noise in a cell of a table."""
        return math.hypot(*(each.deviation(self.shape) for each in self.shares(columns)))

    def error(self, columns: Sequence[int], confidence: float) -> float:
        """The half-width of the noise interval of a cell of a table."""
        return merged_reach(self.shape, self.shares(columns), confidence)


Wanted = Sequence[float]
Shares = dict[Columns, float]


@final
@dataclass(frozen=True, eq=False)
class Jointly:
    """Questions that are measured jointly, over a common list of keys."""

    plans: tuple[NoisePlan, ...]
    sizes: tuple[int, ...]
    """The number of values of each key, over all questions."""
    columns: tuple[tuple[int, ...], ...]
    """For each question, the indices of its keys, in its own order."""
    keys: tuple[tuple[str, Expression, tuple[Scalar | None, ...]], ...]
    """(name, expression, public values) of each key."""
    forms: tuple[Form, ...]
    rows: tuple[NoisePlan, ...]
    """All questions, also those with a stored answer, which `only` drops from the questions to measure. A helper table
    may be counted from the rows of any of them: some may have its keys under other names, and cannot count it.
    """
    room: int = MOST_TOGETHER
    """The most cells of a helper table."""

    @classmethod
    def of(cls, plans: Sequence[NoisePlan], room: int | None = None) -> Jointly:
        """The questions of one of the `groups`. A helper table has at most `room` cells."""
        places: dict[Form, int] = {}
        keys: list[tuple[str, Expression, tuple[Scalar | None, ...]]] = []
        columns = []
        for plan in plans:
            for form, key in zip(key_forms(plan), plan.question.keys, strict=True):
                assert key.values is not None
                if form not in places:
                    places[form] = len(places)
                    keys.append((key.name, key.expression, key.values))
            columns.append(tuple(places[form] for form in key_forms(plan)))
        sizes = tuple(len(values) for _, _, values in keys)
        most = MOST_TOGETHER if room is None else min(room, MOST_TOGETHER)
        return cls(tuple(plans), sizes, tuple(columns), tuple(keys), tuple(places), tuple(plans), most)

    @cached_property
    def tables(self) -> tuple[Columns, ...]:
        """The indices of the keys of each question, ascending."""
        return tuple(tuple(sorted(each)) for each in self.columns)

    def only(self, places: Sequence[int]) -> Jointly:
        """The record with only some of the questions to measure."""
        plans, columns = tuple(self.plans[i] for i in places), tuple(self.columns[i] for i in places)
        return replace(self, plans=plans, columns=columns)

    # -- sensitivity ---------------------------------------------------------------------------------------------------

    @cached_property
    def most(self) -> int:
        """K: the largest absolute contribution of one person's rows to a total."""
        plan = self.plans[0]
        statistic = plan.parts[0].statistic
        largest = max(1, *(abs(end) for end in statistic.grid)) if isinstance(statistic, ExactSum) else 1
        return largest * plan.collect.reach.rows

    @cached_property
    def exchange(self) -> Exchange:
        """The neighbouring relation, and for replacements whether contributions have both signs."""
        plan = self.plans[0]
        unit, statistic = plan.question.relation.tables[0].unit, plan.parts[0].statistic
        assert unit is not None
        if unit.relation is Neighbours.ADD_REMOVE:
            return Exchange.ADDED
        signed = isinstance(statistic, ExactSum) and statistic.grid[0] < 0 < statistic.grid[1]
        return Exchange.REPLACED_SIGNED if signed else Exchange.REPLACED

    def _l1(self, table: Columns) -> int:
        """The L1 sensitivity of a table."""
        if table in self.tables:
            return self.plans[self.tables.index(table)].parts[0].moves.l1
        return self.most if self.exchange is Exchange.ADDED else 2 * self.most

    # -- noise ---------------------------------------------------------------------------------------------------------

    def made(self, budget: Budget, cost: Cost, weights: Wanted, *, goal: SplitGoal = "sum") -> Made:
        """The noise for a cost that minimises the weighted sum of variances over all cells; `weights` are per table.

        "fair": under the constraint that no table is less precise than alone with an equal share of the cost.
        "closest": minimises the largest ratio of a table's variance to its variance under the better one of two simple
        splits; the simple splits are equal shares, and the finest table alone.
        """
        workload = Workload(self.sizes, self.tables, tuple(weights))
        return _ROUTES[budget.accounting.shape].made(self, workload, budget, cost, goal)

    @cached_property
    def _most_l1(self) -> int:
        return max(self._l1(table) for table in self.tables)

    @cached_property
    def _reach(self) -> dict[Columns, float]:
        """The L1 sensitivity of each table, divided by the largest of them; that of a total may be smaller."""
        return {table: self._l1(table) / self._most_l1 for table in (*self.tables, *self._helpers)}

    def least(self, budget: Budget, targets: Sequence[float | None], confidence: float) -> Made:
        """The noise of the least cost (to 1e-6) at which each table meets its target half-width (None: no target).

        Raises `InvalidParameter` if no cost is large enough.
        """
        wanted = _ROUTES[budget.accounting.shape].proportioned(self, budget, targets)

        def fitting(units: int) -> Made | None:
            tried = wanted(Cost(units))
            near = all(
                target is None or tried.error(columns, confidence) <= target
                for columns, target in zip(self.columns, targets, strict=True)
            )
            return tried if near else None

        return least_fitting(fitting, NOTHING)

    def _residual(self, shape: dict[Columns, float], budget: Budget, cost: Cost) -> Made:
        """Gaussian noise on residuals with precisions in these proportions, for the whole cost."""
        square = budget.accounting.mu2_units(cost.units) * UNIT
        mu = math.sqrt(square) * float(MARGIN) ** 2
        moved = residual_noise.moves(self.sizes, tuple(shape), self.exchange)
        mechanisms, sources, scales = [], [], []
        for residual, precision in shape.items():
            cells = size_of(self.sizes, residual)
            width = self.most * cells / (mu * math.sqrt(precision))
            scale = cells * _finer(width)
            by = max(each[residual] for each in moved) * (self.most * scale) ** 2
            reach = Sensitivity(l2=up(root_up(Fraction(by))))
            mechanism = _drawing(Gaussian.whole, reach, sigma=width * (scale // cells))
            mechanisms.append((residual, mechanism))
            sources.append(MeasuredSource(residual, float(mechanism.width), ((residual, 1 / scale),)))
            scales.append(scale)
        law = TableNoise(self.sizes, tuple(sources))
        made = Made(tuple(mechanisms), law, Shape.NORMAL, cost, tuple(scales))
        if residual_noise.cost(moved, self._precisions(made)) > square:
            raise AssertionError("the noise costs more than was charged")
        return made

    def _precisions(self, made: Made) -> dict[Columns, Fraction]:
        """K²/σ_A² of each residual, as exact fractions."""
        found = {}
        for (residual, mechanism), scale in zip(made.mechanisms, made.scales, strict=True):
            drawing: Any = mechanism
            found[residual] = Fraction(self.most * scale) ** 2 / Fraction(drawing.width) ** 2
        return found

    def some(self, made: Made, budget: Budget, units: Sequence[int]) -> Made:
        """Noise for these questions alone. They get the precision that `made` gives them; `units` are these precisions.

        Residuals that none of these questions needs are dropped and not paid for. Under a pure budget, each table is
        measured by itself if that is cheaper than the whole measurement.
        """
        workload = Workload(self.sizes, self.tables, (1.0,) * len(self.tables))
        if made.measures_tables:
            cost = Cost(sum(units))
            if cost.units >= made.cost.units:
                return made
            shares: Shares = {}
            for table, each in zip(self.tables, units, strict=True):
                shares[table] = max(shares.get(table, 0.0), each / cost.units)
            return self._split(shares, workload, budget.level_down(cost) * MARGIN, budget, cost)
        kept = [i for i, (residual, _) in enumerate(made.mechanisms) if residual in workload.residuals]
        fewer = replace(
            made,
            mechanisms=tuple(made.mechanisms[i] for i in kept),
            law=TableNoise(self.sizes, tuple(made.law.sources[i] for i in kept)),
            scales=tuple(made.scales[i] for i in kept),
        )
        moved = residual_noise.moves(self.sizes, workload.residuals, self.exchange)
        exact = residual_noise.cost(moved, self._precisions(fewer))
        smallest = math.ceil(budget.accounting.units_of_mu2(exact))
        return replace(fewer, cost=Cost(min(smallest, made.cost.units)))

    def _split(self, shares: Shares, workload: Workload, level: Fraction, budget: Budget, cost: Cost) -> Made:
        """Laplace noise on tables with these shares of a cost."""
        whole = sum(Fraction(f) for f in shares.values())
        mechanisms, measured = [], {}
        for table, share in shares.items():
            mechanism = _drawing(DiscreteLaplace, self._l1(table), epsilon=level * Fraction(share) / max(whole, 1))
            mechanisms.append((table, mechanism))
            width = float(mechanism.width)
            measured[table] = (width, Share(1.0, width).deviation(Shape.LAPLACE) ** 2)
        if sum(budget.price(each.curve).units for _, each in mechanisms) > cost.units:
            raise AssertionError("the noise costs more than was charged")
        return Made(tuple(mechanisms), pure_splits.law(workload, measured), Shape.LAPLACE, cost)

    @cached_property
    def _helpers(self) -> tuple[Columns, ...]:
        """Helper tables under a pure budget: the finest table, if no question asks for it and it is small enough."""
        finest = pure_splits.finest(self.tables)
        small = size_of(self.sizes, finest) <= self.room
        return (finest,) if small and finest not in self.tables and self._collect(finest) is not None else ()

    # -- queries to the engine -----------------------------------------------------------------------------------------

    def collects(self, made: Made) -> list[tuple[tuple[int, ...], Collect]]:
        """The tables that the engine counts, each as (its keys in the order of its axes, its query).

        Tables that are sums of others are left out.
        """
        needed = [each for each, _ in made.mechanisms] if made.measures_tables else []
        wanted = dict.fromkeys((*self.tables, *needed))
        found = []
        for table in wanted:
            if any(set(table) < set(other) for other in wanted):
                continue
            if table in self.tables:
                place = self.tables.index(table)
                found.append((self.columns[place], self.plans[place].collect))
            else:
                collect = self._collect(table)
                assert collect is not None
                found.append((table, collect))
        return found

    def _collect(self, table: Columns) -> Collect | None:
        """The query of a helper table; None if no question's rows have all of its keys, or if it is too much work."""
        named = tuple((f"k{i}", self.keys[i][1]) for i in table)
        for plan in sorted(self.rows, key=lambda each: -len(each.question.keys)):
            if self._has_keys(plan, table):
                known = tuple(product(*(self.keys[i][2] for i in table)))
                with suppress(QuestionRefused):
                    return Collect(plan.question.relation, named, known, plan.collect.statistics)
        return None

    def _has_keys(self, plan: NoisePlan, table: Columns) -> bool:
        """Whether a question's rows have these keys, with the expressions that are used here."""
        relation = plan.question.relation
        _, columns = relation_form(relation)
        try:
            return all(
                expression_form(expression, columns) == form and public_values(expression, relation) == values
                for form, (_, expression, values) in ((self.forms[i], self.keys[i]) for i in table)
            )
        except (KeyError, InvalidParameter):
            return False

    def split(self, made: Made, budget: Budget) -> list[tuple[str, float]]:
        """(description, share of the cost) of each measured residual or table."""
        named = [" × ".join(self.keys[i][0] for i in columns) or "total" for columns, _ in made.mechanisms]
        if made.measures_tables:
            costs = [float(budget.price(mechanism.curve).units) for _, mechanism in made.mechanisms]
            named = [f"table {name}" for name in named]
        else:
            exact = self._precisions(made)
            costs = [float(residual_noise.moved_by_row(self.sizes, a) * exact[a]) for a, _ in made.mechanisms]
            named = [name if not a else f"residual {name}" for name, (a, _) in zip(named, made.mechanisms, strict=True)]
        return [(name, cost / math.fsum(costs)) for name, cost in zip(named, costs, strict=True)]

    # -- precision -----------------------------------------------------------------------------------------------------

    def precision(self, made: Made, place: int, budget: Budget) -> int:
        """The units at which a question asked alone would be answered as precisely, rounded down."""
        units = equal_units(budget, self.plans[place].parts[0].moves, made.deviation(self.columns[place]))
        return min(made.cost.units, units)


def published(
    tables: Jointly, made: Made, found: Mapping[Columns, Any], old: Mapping[int, Released], budget: Budget, mark: str
) -> list[Released]:
    """Consistent answers to all questions from noisy residuals: coarser tables are sums of finer ones.

    `old` has stored answers to some of the questions, by index. Each residual of an old answer is merged with the new
    one by inverse variance, so every question is answered at least as precisely as before. If several old answers
    contain a residual, the most precise one is used, because they may rest on the same draws.
    """
    shape = made.shape

    def variance(width: float) -> float:
        return Share(1.0, width).deviation(shape) ** 2

    law, values = made.law.marked(mark), dict(found)
    if old:
        before: list[tuple[TableNoise, Any]] = []
        for place, each in old.items():
            before.append(_older_answer(tables, place, each, budget, before[-1][0].sizes if before else tables.sizes))
        shared: dict[Columns, float] = {}
        taken: list[tuple[TableNoise, dict[Columns, float]]] = [(each, {}) for each, _ in before]
        for residual in Workload(tables.sizes, tables.tables, (1.0,) * len(tables.tables)).residuals:
            now = law.spread(residual, variance)
            spreads = [each.spread(residual, variance) for each, _ in before]
            best = min(range(len(spreads)), key=spreads.__getitem__)
            then = spreads[best]
            share = (
                1.0 if math.isinf(then) else 0.0 if math.isinf(now) else (then / (now + then) if now + then else 0.5)
            )
            shared[residual] = share
            if share < 1:
                taken[best][1][residual] = 1 - share
                own = before[best][1]
                kept = without_averages(np.asarray(summed(own, tables.tables[list(old)[best]], residual)))
                values[residual] = (share * values[residual] if share else 0.0) + (1 - share) * kept
        law = TableNoise.together([law.weighed(shared), *(each.weighed(weights) for each, weights in taken)])
    measured = in_all((Measurement(mark, made.cost), *behind(old.values())))
    cost = total(measured)
    answers = []
    for place, (plan, columns) in enumerate(zip(tables.plans, tables.columns, strict=True)):
        ordered = tuple(sorted(columns))
        table = rebuilt(tables.sizes, ordered, values).transpose([ordered.index(i) for i in columns]).ravel()
        own_law = law.within(columns)
        assert plan.collect.known is not None
        one = Released(plan.collect.known, (table,), cost, Cost(0), (), law=own_law, columns=columns, measured=measured)
        units = min(cost.units, equal_units(budget, plan.parts[0].moves, one.deviation(plan, budget, 0)))
        if place in old:
            units = max(units, old[place].precision.units)
        answers.append(replace(one, precision=Cost(units), units=(units,) * len(table)))
    return answers


def _older_answer(
    tables: Jointly, place: int, released: Released, budget: Budget, sizes: tuple[int, ...]
) -> tuple[TableNoise, Any]:
    """(the noise of an older answer in the columns of these tables, its numbers as an array with an axis per key)."""
    columns = tables.columns[place]
    law, names = released.with_law(tables.plans[place], budget)
    nothing = TableNoise(sizes, ())  # reserves column numbers that other tables use
    ordered = tuple(sorted(columns))
    array = np.asarray(released.parts[0], dtype=np.float64).reshape([tables.sizes[i] for i in columns])
    return law.renamed(dict(zip(names, columns, strict=True)), nothing), array.transpose(
        [columns.index(i) for i in ordered]
    )


def equal_units(budget: Budget, moves: Moves, deviation: float) -> int:
    """The units at which a count or sum of this sensitivity has noise of this standard deviation, rounded down."""
    return family_of(budget).equal_units(budget.accounting, moves, max(deviation**2, 1e-300))


# -- which noise is best: one route for each family --------------------------------------------------------------------


class _NoiseRoute(ABC):
    """How tables are measured together with one family of noise."""

    __slots__ = ()

    @abstractmethod
    def made(self, jointly: Jointly, workload: Workload, budget: Budget, cost: Cost, goal: SplitGoal) -> Made:
        """See `Jointly.made`."""

    @abstractmethod
    def proportioned(self, jointly: Jointly, budget: Budget, targets: Sequence[float | None]) -> Callable[[Cost], Made]:
        """A function from a cost to the noise whose errors have the best proportions for these targets.

        Targets are half-widths. They are taken as multiples of standard deviations, which is nearly true; the search
        for the cost corrects the difference.
        """


@final
class _GaussianRoute(_NoiseRoute):
    """Gaussian noise on the residuals of the tables."""

    __slots__ = ()

    def made(self, jointly: Jointly, workload: Workload, budget: Budget, cost: Cost, goal: SplitGoal) -> Made:
        if goal == "sum":
            return jointly._residual(residual_noise.best(workload, jointly.exchange), budget, cost)
        moved = [plan.parts[0].moves.l2_squared / jointly.most**2 for plan in jointly.plans]
        limits = [len(jointly.plans) * each for each in moved]
        choose = residual_noise.fair if goal == "fair" else residual_noise.closest
        return jointly._residual(choose(workload, limits, jointly.exchange), budget, cost)

    def proportioned(self, jointly: Jointly, budget: Budget, targets: Sequence[float | None]) -> Callable[[Cost], Made]:
        variances = [None if each is None else each**2 for each in targets]
        _, shape = residual_noise.least(jointly.sizes, jointly.tables, variances, jointly.exchange)
        moved = residual_noise.moves(jointly.sizes, tuple(shape), jointly.exchange)
        scale = float(residual_noise.cost(moved, shape))
        shape = {residual: each / scale for residual, each in shape.items()}
        return lambda cost: jointly._residual(shape, budget, cost)


@final
class _LaplaceRoute(_NoiseRoute):
    """Laplace noise on the tables themselves, and also on the finest table if this lowers the variances."""

    __slots__ = ()

    def made(self, jointly: Jointly, workload: Workload, budget: Budget, cost: Cost, goal: SplitGoal) -> Made:
        level = budget.level_down(cost) * MARGIN
        variance = _variance(float(level) / jointly._most_l1)
        if goal == "closest":
            finest = pure_splits.finest(jointly.tables)
            known = finest in (*jointly.tables, *jointly._helpers)  # otherwise it has too many cells to be measured
            simple = pure_splits.simple(workload, known, variance, jointly._reach)
            shares = pure_splits.closest(workload, simple, jointly._helpers, variance, jointly._reach)
        else:
            choose = pure_splits.fair if goal == "fair" else pure_splits.best
            shares = choose(workload, jointly._helpers, variance, jointly._reach)
        return jointly._split(shares, workload, level, budget, cost)

    def proportioned(self, jointly: Jointly, budget: Budget, targets: Sequence[float | None]) -> Callable[[Cost], Made]:
        variances = [None if each is None else each**2 for each in targets]
        workload = Workload(jointly.sizes, jointly.tables, (1.0,) * len(jointly.tables))
        shares = pure_splits.closest(workload, variances, jointly._helpers, reach=jointly._reach)
        return lambda cost: jointly._split(shares, workload, budget.level_down(cost) * MARGIN, budget, cost)


_ROUTES: Final[Mapping[Shape, _NoiseRoute]] = {Shape.NORMAL: _GaussianRoute(), Shape.LAPLACE: _LaplaceRoute()}


def _variance(loss: float) -> pure_splits.Variance:
    """A function from a share of ε = `loss` to the variance of discrete Laplace noise (for sensitivity 1)."""

    def at(share: float) -> float:
        if loss * share > 700:
            return 0.0
        return 1 / (math.cosh(loss * share) - 1) if loss * share > 1e-6 else 2 / (loss * share) ** 2

    return at


def _finer(width: float) -> int:
    """The power of two by which steps must be refined so that noise of this width spans `_WIDE` of them."""
    return min(_FINEST, 1 << max(0, math.ceil(math.log2(_WIDE / width))))


def _drawing(kind: Any, sensitivity: Any, **level: Any) -> Any:
    try:
        return kind(sensitivity=sensitivity, **level)
    except InvalidParameter:  # wider than 2^50 steps: known from the cost and the sensitivity alone
        raise InvalidParameter(
            "cost", NOTHING, "is so small that the result would be pure noise", "spend more, or ask fewer tables"
        ) from None
