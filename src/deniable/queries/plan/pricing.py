"""Prices: the cost of a question and the expected error of its answer, before it is paid for and without reading data.

`AskedCost` is the amount a caller writes (epsilon=, mu=, rho=, share=, within=); `AskedCost.cost` turns it into units
of the budget; `Price` describes what these units buy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from deniable.arguments import INNER_PROBABILITY
from deniable.curves.filters import Amount, exact_amount
from deniable.errors import NOTHING, BudgetExceeded, InvalidParameter
from deniable.ledger import Budget, Cost
from deniable.ledger.spending_accounts import SPENT
from deniable.mechanisms import noise_quantiles
from deniable.numbers import percent, plain, plain_list
from deniable.queries.intervals.noise_intervals import Share
from deniable.queries.plan.answer_notes import (
    budget_notes,
    cost_in_words,
    empty_note,
    group_rows_note,
    rest_in_words,
    short_error,
    wrapped,
)
from deniable.queries.plan.answer_size import cells
from deniable.queries.plan.noise_families import family_of
from deniable.queries.plan.noise_planner import NoisePlan, PlannedPart, classes_of, noise, pairs, shares
from deniable.queries.plan.ranked_estimators import Ranked, rank_error
from deniable.queries.plan.recipes import DrawnValue, Recipe
from deniable.queries.plan.single_quantile import Picked
from deniable.queries.plan.stated_ratios import ratio_errors, ratios
from deniable.queries.relations.exact_statistics import Cells, Count, CountDistinct, CountPersons, ExactSum, Statistic
from deniable.tables.expressions import Call, Column, Expression, Literal, columns_used

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.plan.currency_advice import OtherCurrency
    from deniable.queries.plan.noise_planner import Noise
    from deniable.units import Unit

Fitted = TypeVar("Fitted")

SHARE_FOR_KEYS: Final = 100
"""The default δ of a question whose keys are not public. With R_0 the budget's δ for keys and R_k the rest after k
questions, the next one takes δ_k = R_k²/(100·R_0), so R_k <= R_0/(1 + k/100). The rest is never used up. After k
questions δ is about (1 + k/100)² times smaller than at first, so thresholds grow with the logarithm of k."""

_SIGNS: Final[Mapping[str, str]] = {"add": " + ", "subtract": " - ", "multiply": " * ", "divide": " / "}

TYPICAL_ROWS: Final = 1000
"""The group size for which errors that depend on it are stated."""


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a question, the errors to expect, and how often it could be asked. Computed without reading data."""

    plan: NoisePlan
    budget: Budget
    cost: Cost
    left: Cost
    """The rest of the budget at the time of the price."""
    confidence: float
    shares_delta: bool = False
    """Whether its δ is the default part of the rest (`SHARE_FOR_KEYS`), which shrinks from question to question."""
    quotients: frozenset[str] = frozenset()
    """Columns that are displayed as shares of a total."""

    @property
    def curve(self) -> Curve:
        """An upper bound on the privacy curve of the answer, with the δ of a threshold."""
        return self.budget.curve(self.cost)

    @property
    def threshold(self) -> int | None:
        """The noisy number of people that a key must reach to be published; None if keys are public."""
        return noise(self.plan, self.budget, self.cost).threshold

    @property
    def fits(self) -> bool:
        """Whether the rest of the budget covers the cost."""
        return self.cost <= self.left

    @property
    def times(self) -> int:
        """How many questions of this price the rest of the budget covers."""
        return self.left // chosen_cost(self.cost, self.shares_delta)

    def is_met_by(self, stored: Cost) -> bool:
        """Whether an answer that was stored at this cost is at least as precise. A default δ is not compared."""
        return chosen_cost(self.cost, self.shares_delta) <= stored

    def errors(self, *, rows: int = TYPICAL_ROWS) -> dict[str, float | None]:
        """The expected half-width of the noise interval of each noisy column, in a group of this many rows.

        A ratio of a count or sum to a count of rows has its largest error, where that count is `rows`. None: it depends
        on the distribution of the data (quantiles, extremes; see `rank_errors`), or on the noisy numbers from which the
        column is computed (correlations).
        """
        found = errors(self.plan, self.budget, self.cost, self.confidence, rows)
        made = noise(self.plan, self.budget, self.cost)
        of_ratios = ratio_errors(self.plan, made, self.confidence, rows)
        return {name: of_ratios.get(name) if of is None else found[of] for name, of in self._measured().items()}

    def _measured(self) -> dict[str, str | None]:
        return {name: None if name in self.quotients else of for name, of in measured_columns(self.plan).items()}

    def other_currency(self) -> OtherCurrency | None:
        """What a budget of the same ε in the other currency would give for questions of this price; None if unknown."""
        from deniable.queries.plan.currency_advice import other_currency

        return other_currency(self)

    def rank_errors(self) -> dict[str, float]:
        """For each quantile, how many rows its rank may be off at `confidence`, whatever the distribution of the data.

        For running totals this is the error of a noisy rank, and the answer's rank is off by about as much. For a
        single quantile under a pure budget it is an upper bound on the error of the answer's rank.
        """
        return rank_errors(self.plan, self.budget, self.cost, self.confidence)

    def split(self) -> tuple[tuple[str, Fraction], ...]:
        """The statistics that are paid for (AVG needs SUM and COUNT), each with its share of the cost. Statistics about
        different rows have one share together.
        """
        plan, paid = self.plan, shares(self.plan, self.budget)
        named = [(describe(part), share) for part, share in zip(plan.parts, paid, strict=True)]
        if plan.people is not None:
            name, share = named[plan.people]
            named[plan.people] = (f"{name}, which decides which keys are shown", share)
        for pair in pairs(plan, self.budget):
            together = f"{named[pair.total][0]} with {named[pair.count][0]}"
            named[pair.total] = (together, named[pair.total][1])
        beside = [[named[item[0]] for item in each] for each in classes_of(plan, self.budget)]
        return tuple((_beside([name for name, _ in each]), each[0][1]) for each in beside)

    def to_dict(self) -> dict[str, Any]:
        """The price as a JSON-ready dict."""
        return {
            "cost": cost_in_words(self.cost, self.budget),
            "fits": self.fits,
            "times": self.times,
            "confidence": self.confidence,
            "errors": self.errors(),
            "errors_at_rows": TYPICAL_ROWS,
            "rank_errors": self.rank_errors(),
            "threshold": self.threshold,
            "split": [[name, str(share)] for name, share in self.split()],
            "note": empty_note(self.plan),
            "cells": cells(self.plan.question),
            "question": self.plan.question.hash,
        }

    def lines(self) -> list[str]:
        """The price as lines of text that fit a terminal."""
        named, measured = {recipe.name: recipe for recipe in self.plan.recipes}, self._measured()
        lines = [f"cost     {cost_in_words(self.cost, self.budget)}"]
        ranks = self.rank_errors()
        for name, error in self.errors().items():
            of = measured[name]
            if of is None and error is not None:
                size = f"in a group of {TYPICAL_ROWS:,} rows, at {percent(self.confidence)} %"
                lines.append(f"error    {name}: at most ± {short_error(error)} {size}")
            elif of is None:
                lines.append(f"error    {name}: computed from noisy numbers; its interval comes with the answer")
            elif of in ranks:
                off = f"its rank is within ± {short_error(ranks[of])} rows, at {percent(self.confidence)} %"
                lines.append(f"error    {name}: {off}; the error of the value depends on the data")
            else:
                assert error is not None
                per = f" in a group of {TYPICAL_ROWS:,} rows" if named[of].depends_on_rows else ""
                lines.append(f"error    {name}: ± {short_error(error)}{per}, at {percent(self.confidence)} %")
        if self.threshold is not None:
            lines.append(
                f"keys     shown from about {self.threshold:,} people; near that, their intervals reach down to 1"
            )
        if len(self.plan.parts) > 1:
            lines.append("paid for " + "; ".join(f"{name} ({share})" for name, share in self.split()))
        other = self.other_currency()
        advice = () if other is None or not other.is_better else (str(other),)
        notes = (empty_note(self.plan), *budget_notes(self.budget), group_rows_note(self.plan, self.budget))
        notes += advice
        lines += [f"note     {note}" for note in notes if note]
        left = rest_in_words(self.left, self.budget)
        lines.append(
            f"left     {left}: about {self.times:,} such question{'s' * (self.times != 1)}"
            if self.fits
            else f"left     {left}: too little"
        )
        return wrapped(lines, " " * 9)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def _beside(names: Sequence[str]) -> str:
    """The statistics of one class."""
    return f"{' and '.join(names)}, of different rows" if len(names) > 1 else names[0]


def measured_columns(plan: NoisePlan) -> dict[str, str | None]:
    """The noisy columns of the answer, each with the name of its measure; None if it is computed from measures."""
    known = {*(recipe.name for recipe in plan.recipes), *(window.name for window in plan.question.post.windows)}
    asked = plan.question.post.columns
    noisy = [(name, each) for name, each in asked if known.intersection(columns_used(each))]
    measures = {recipe.name for recipe in plan.recipes}
    return {name: each.name if isinstance(each, Column) and each.name in measures else None for name, each in noisy}


def errors(plan: NoisePlan, budget: Budget, cost: Cost, confidence: float, rows: int) -> dict[str, float | None]:
    """The expected half-width of the noise interval of each measure; see `Price.errors`."""
    made = noise(plan, budget, cost)
    halves = {place: pair.half for pair in pairs(plan, budget) for place in (pair.total, pair.count)}
    found: dict[str, float | None] = {}
    for recipe, uses in zip(plan.recipes, plan.uses, strict=True):
        if any(plan.parts[i].is_ranked for i in uses):
            found[recipe.name] = None
        else:
            found[recipe.name] = recipe.error([_drawn(made, i, halves.get(i, 0)) for i in uses], confidence, rows)
    return found


def _drawn(made: Noise, part: int, half: int) -> DrawnValue:
    """A value of 0 with the noise of a part, for computing errors."""
    mechanism: Any = made.mechanisms[part]
    return DrawnValue(0, made.deviation(part), made.shape, shares=(Share(1.0, float(mechanism.width)),), half=half)


def rank_errors(plan: NoisePlan, budget: Budget, cost: Cost, confidence: float) -> dict[str, float]:
    """The rank error of each quantile, in rows; see `Price.rank_errors`."""
    made, found = noise(plan, budget, cost), {}
    for recipe, uses in zip(plan.recipes, plan.uses, strict=True):
        mechanism: Any = made.mechanisms[uses[0]]
        if isinstance(recipe, Ranked):
            found[recipe.name] = rank_error(mechanism.differences(float(recipe.q)), made.shape, confidence)
        elif isinstance(recipe, Picked):
            found[recipe.name] = mechanism.error(confidence=confidence)
    return found


def rank_note(plan: NoisePlan, budget: Budget, cost: Cost, confidence: float) -> str:
    """A note with the rank error of a quantile that is drawn as one value and has no interval; "" for other plans."""
    if not plan.is_picked:
        return ""
    [(name, off)] = rank_errors(plan, budget, cost, confidence).items()
    [recipe] = plan.recipes
    assert isinstance(recipe, Picked)
    edges = recipe.cells.edges
    step = "" if recipe.whole else f", in steps of {float(edges[1] - edges[0]):.3g}"
    return (
        f"{name} is one value, drawn by the exponential mechanism{step}: its rank is within ± {short_error(off)} rows "
        f"with {percent(confidence)} %, and it has no interval, because the error of the value depends on the data"
    )


def released_as(plan: NoisePlan, budget: Budget) -> list[tuple[str, float | None]]:
    """For each part, (the quantity that gets noise in words, the grid step of a sum or None).

    Signed labels contain these words, so expressions stay in canonical form: the label of an answer does not change.
    """
    quantities = [(describe(part, repr), _step(part.statistic)) for part in plan.parts]
    for pair in pairs(plan, budget):
        (total, step), (count, _) = quantities[pair.total], quantities[pair.count]
        half = pair.half * (step or 1.0)
        quantities[pair.total] = (f"{half:.6g} times the {count}, plus the {total}", step)
        quantities[pair.count] = (f"{half:.6g} times the {count}, minus the {total}", step)
    return quantities


def _step(statistic: Statistic) -> float | None:
    return 2.0**statistic.exponent if isinstance(statistic, ExactSum) else None


def as_people_write(expression: Expression) -> str:
    """An expression for people: `cost - 1000`, where the canonical form has `subtract(cost, 1000.0)`. Display only."""
    if isinstance(expression, Literal) and isinstance(expression.value, float):
        return f"{expression.value:.15g}"
    if not isinstance(expression, Call):
        return repr(expression)
    shown = [as_people_write(each) for each in expression.arguments]
    if (sign := _SIGNS.get(expression.operator)) is None:
        return f"{expression.operator}({', '.join(shown)})"
    parts = zip(expression.arguments, shown, strict=True)
    return sign.join(f"({text})" if isinstance(of, Call) and of.operator in _SIGNS else text for of, text in parts)


def describe(part: PlannedPart, written: Callable[[Expression], str] = as_people_write) -> str:
    """A statistic in words, with its expression as `written` writes it."""
    match statistic := part.statistic:
        case Count(expression=None):
            return "number of rows"
        case Count(expression=Expression() as expression):
            return f"number of rows with {written(expression)}"
        case CountPersons():
            return "number of people"
        case CountDistinct(expression=expression):
            return f"number of different {written(expression)}"
        case ExactSum(expression=expression):
            return f"sum of {written(expression)}"
        case Cells(expression=expression) if part.q is not None:
            return f"cell of a quantile, of {statistic.width} cells of {written(expression)}"
        case Cells(expression=expression):
            return f"running totals over {statistic.width} cells of {written(expression)}"
    raise AssertionError(type(statistic))


def chosen_cost(cost: Cost, shares_delta: bool) -> Cost:
    """The part of a cost that a caller chose, by which costs are compared: without a default δ, which shrinks."""
    return Cost(cost.units) if shares_delta else cost


# -- the cost that a caller asks for ---------------------------------------------------------------------------------

_ASKED: Final = ("epsilon", "mu", "rho", "share", "within", "delta", "confidence")
"""The fields of `AskedCost`."""

Near = float | tuple[float, float] | Mapping[str, float | tuple[float, float]] | None
"""The target half-width of the noise interval: for all columns, or by column. (2, 500) is ± 2 in a group of 500 rows,
for averages and deviations. For a quantile it is the error of its rank, in rows."""

_PLAIN: Final = frozenset({float, int, str, type(None)})
"""Types that need no conversion (from numpy and others)."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCost:
    """The cost as a caller gives it: exactly one of the first five fields."""

    epsilon: Amount | None = None
    mu: Amount | None = None
    rho: Amount | None = None
    share: Amount | None = None
    """A share of the rest of the budget, from above 0 to 1, in the quantity that the budget adds up: μ² under a
    Gaussian budget, otherwise ε or ρ. A tenth of μ² corresponds to about a third of ε.
    """
    within: Near = None
    """The half-width of the noise interval at `confidence`, for all measures or by name, at the least cost."""
    delta: Amount | None = None
    """The δ for keys that are not public."""
    confidence: float = 0.95
    """From 0.5 to below 1."""

    def __post_init__(self) -> None:
        for name in _ASKED:
            value = getattr(self, name)
            if type(value) not in _PLAIN:
                object.__setattr__(self, name, plain(value))

    def cost(self, plan: NoisePlan, budget: Budget, left: Cost) -> Cost:
        """The cost in units of the budget, from public facts alone. `left` is the rest of the budget.

        Raises `InvalidParameter` unless exactly one amount is given and it is in range, and `BudgetExceeded` if a share
        of an empty rest is asked for.
        """
        options = plan.question.options
        epsilon = self.epsilon
        given = [name for name in ("epsilon", "mu", "rho", "share", "within") if getattr(self, name) is not None]
        if not given and "epsilon" in options:
            epsilon, given = options["epsilon"], ["epsilon"]
        if len(given) != 1:
            names, rule = " and ".join(given) or "cost", "were given together" if given else "was not given"
            raise InvalidParameter(names, NOTHING, rule, "give exactly one of epsilon=, mu=, rho=, share=, within=")
        if not isinstance(self.confidence, float) or not 0.5 <= self.confidence < 1:
            raise InvalidParameter("confidence", self.confidence, "must be a probability from 0.5 to below 1")
        delta = self._delta(plan, budget, left)
        if given == ["share"]:
            return _shared(self.share, left, delta)
        if given == ["within"]:
            assert self.within is not None
            return _within(plan, budget, self.within, self.confidence, delta)
        units = budget.cost(epsilon=epsilon, mu=self.mu, rho=self.rho).units
        return Cost(units, delta)

    def part(self, share: Fraction) -> PartOf:
        """A share of this cost, for one of several questions that are asked together."""
        return PartOf(self, share)

    def shares_delta(self, plan: NoisePlan) -> bool:
        """Whether δ is the default part of the rest: keys are not public, and no δ is given."""
        return plan.people is not None and self.delta is None and plan.question.options.get("delta") is None

    def _delta(self, plan: NoisePlan, budget: Budget, left: Cost) -> int:
        asked = self.delta if self.delta is not None else plan.question.options.get("delta")
        if plan.people is None:
            if self.delta is not None:
                raise InvalidParameter("delta", self.delta, "is only for keys that are not public", "leave it out")
            return 0
        if asked is not None:
            if exact_amount("delta", asked) not in INNER_PROBABILITY:
                raise InvalidParameter("delta", asked, INNER_PROBABILITY.rule)
            return budget.cost(**{_own(budget): 1}, delta=asked).delta_units
        whole, rest = budget.limit.delta_units, left.delta_units
        if whole and not rest:
            raise BudgetExceeded(
                "a share of the remaining delta for unlisted keys", "no delta",
                "declare the keys or name them with IN, or ask something that was asked before",
            )  # fmt: skip
        return max(1, rest * min(rest, whole) // (SHARE_FOR_KEYS * whole)) if whole else 0


@final
@dataclass(frozen=True, slots=True)
class PartOf:
    """A share of a cost that several questions have in common."""

    whole: AskedCost
    share: Fraction

    @property
    def confidence(self) -> float:
        """The confidence of the whole cost."""
        return self.whole.confidence

    def shares_delta(self, plan: NoisePlan) -> bool:
        """See `AskedCost.shares_delta`."""
        return self.whole.shares_delta(plan)

    def cost(self, plan: NoisePlan, budget: Budget, left: Cost) -> Cost:
        """This share of the whole cost in units of the budget; δ is not divided, each question has its own."""
        if self.whole.within is not None:
            raise InvalidParameter("within", self.whole.within, "is for one question, and a batch shares a cost")
        whole = self.whole.cost(plan, budget, left)
        units = math.floor(whole.units * self.share)
        if units == 0:
            raise InvalidParameter("questions", NOTHING, "are too many for this cost", "spend more, or ask fewer")
        return Cost(units, whole.delta_units)


def _own(budget: Budget) -> str:
    return budget.accounting.parameter


def _shared(share: Amount | None, left: Cost, delta: int) -> Cost:
    rule = "must be above 0 and at most 1"
    part = exact_amount("share", share, rule)  # type: ignore[arg-type]  # None is refused there
    if not 0 < part <= 1:
        raise InvalidParameter("share", share, rule)
    units = math.floor(left.units * part)
    if units == 0 and left.units > 0:
        raise InvalidParameter("share", share, "is too small: its part of what is left rounds to zero", "give more")
    if units == 0:
        raise BudgetExceeded("a share of what is left", "nothing", SPENT)
    return Cost(units, delta)


def _within(
    plan: NoisePlan,
    budget: Budget,
    within: float | tuple[float, float] | Mapping[str, float | tuple[float, float]],
    confidence: float,
    delta: int,
) -> Cost:
    """The smallest cost (to 1e-6) at which each measure's error is at most its target, by bisection."""
    named: dict[str, Recipe | None] = {recipe.name: recipe for recipe in plan.recipes}
    given = within if isinstance(within, Mapping) else dict.fromkeys(named, within)
    named = {**dict.fromkeys(ratios(plan)), **named}
    if not given:
        raise InvalidParameter("within", NOTHING, "must name at least one measure", f"choose from {', '.join(named)}")
    for name in given:
        if name not in named:
            raise InvalidParameter("within", name, f"must name a measure: {', '.join(named)}")
    targets = [_target(name, named[name], target) for name, target in given.items()]
    sizes = {rows for _, _, rows in targets}

    def fitting(units: int) -> Cost | None:
        cost = Cost(units, delta)
        ranks = rank_errors(plan, budget, cost, confidence)
        made = noise(plan, budget, cost)
        found = {
            rows: {
                **{
                    name: math.inf if each is None else each
                    for name, each in ratio_errors(plan, made, confidence, rows).items()
                },
                **errors(plan, budget, cost, confidence, rows),
                **ranks,
            }
            for rows in sizes
        }
        return cost if all((found[rows][name] or 0.0) <= near for name, near, rows in targets) else None

    return least_fitting(fitting, within)


def least_fitting(fitting: Callable[[int], Fitted | None], within: object) -> Fitted:
    """What `fitting` returns for the least number of units (to 1e-6) for which that is not None, by bisection.

    `fitting` may raise InvalidParameter for a cost that is too small for any noise. Raises InvalidParameter about
    `within` if no number of units is large enough.
    """

    def tried(units: int) -> Fitted | None:
        try:
            return fitting(units)
        except InvalidParameter:
            return None

    low, high = 1, 10**9
    while (found := tried(high)) is None:
        low, high = high, high * 1024
        if high > 10**36:
            raise InvalidParameter("within", within, "is smaller than the error at any cost", "give a larger number")
    while high - low > max(1, low // 10**6):
        middle = math.isqrt(low * high) if high > 4 * low else (low + high) // 2
        nearer = tried(middle)
        if nearer is None:
            low = middle
        else:
            high, found = middle, nearer
    return found


def _target(name: str, recipe: Recipe | None, given: object) -> tuple[str, float, int]:
    """(a measure or a ratio, the target of its error, the number of rows in a group for which the error is stated)."""
    pair = plain_list(given)
    ranked = isinstance(recipe, Ranked | Picked)
    averaged = recipe is None or (recipe.depends_on_rows and recipe.has_error)
    if recipe is not None and recipe.depends_on_rows and not ranked and not averaged:
        rule, remedy = "has an error that depends on the data", "give an epsilon instead, and look at the price"
        raise InvalidParameter("within", name, rule, remedy)
    if not isinstance(pair, list | tuple):
        if averaged:
            rule = "has an error that depends on the number of rows in a group"
            remedy = f'name that number: within={{"{name}": (2, 500)}} is ± 2 in a group of 500 rows'
            raise InvalidParameter("within", name, rule, remedy)
        return name, _near(given), TYPICAL_ROWS
    if not averaged:
        rule = "has an error that does not depend on the rows in a group"
        if ranked:
            rule = "has an error of its rank, in rows, that does not depend on the rows in a group"
        raise InvalidParameter("within", name, rule, "give one number")
    if len(pair) != 2:
        raise InvalidParameter("within", name, "must be a number, or a number and the rows of a group")
    rows = _near(pair[1])
    if rows != math.floor(rows) or rows > _MOST_ROWS:
        raise InvalidParameter("within", name, f"needs a whole number of rows, up to {_MOST_ROWS:,}")
    return name, _near(pair[0]), int(rows)


_MOST_ROWS: Final = 10**15
"""The most rows of a group for which an error may be asked."""


def _near(within: object) -> float:
    """The target of `within` as a float, from a number or a number as text."""
    rule = "must be a positive number below 1e300"
    try:
        exact = exact_amount("within", plain(within), rule)
    except InvalidParameter:
        exact = Fraction(0)
    near = float(exact)
    if near == 0:  # also for a number that is too small for a float
        raise InvalidParameter("within", within, rule)
    return near


def count_cost(budget: Budget, unit: Unit, within: float, confidence: float) -> Cost:
    """The cost of one count of rows with a noise interval of ±`within` at this confidence, for the unit's rows.

    The noise is an integer, so the target is k = ⌊within⌋. Discrete Laplace noise exceeds k with probability
    2r^(k+1)/(1 + r), r = e^(-ε/rows); rounded Gaussian noise does if normal noise of σ = rows/μ exceeds k + 1/2.
    """
    near, missed = math.floor(_near(within)), noise_quantiles.miss(confidence)
    return family_of(budget).count_cost(budget, unit.rows, near, missed)
