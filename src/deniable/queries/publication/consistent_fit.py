"""Consistent tables: several answers fitted to each other, made non-negative, and rounded, with valid intervals.

A least-squares fit is linear in the noisy numbers, so the law of a fitted number's noise is known
(`synth.least_squares_fit`). Raising to 0 and rounding are not linear, but keep the intervals of the linear fit valid:
a true number that is at least 0 is in an interval if and only if it is in the part of the interval from 0 on, and a
true integer if and only if it is between the first and the last integer in it. So intervals may be cut in this way.
Then each is extended to contain the displayed number, which never reduces its coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.numbers import plain
from deniable.queries.answer.answer_display import ROUNDING_BASE
from deniable.queries.answer.release import at_precision, precise
from deniable.queries.answer.shared_measurements import behind, total
from deniable.queries.intervals.noise_intervals import merged_reach
from deniable.queries.plan.canonical_form import expression_form, relation_form, statistic_form
from deniable.queries.plan.estimators import Counted
from deniable.queries.plan.named_keys import public_values
from deniable.queries.plan.noise_planner import grid_step, unthresholded
from deniable.queries.publication.fitted_noise import MeasuredTable, law_of, measured_of
from deniable.queries.relations.exact_statistics import Count, ExactSum
from deniable.synth import controlled_rounding, least_squares_fit
from deniable.synth.least_squares_fit import Axes, Floats, Margin
from deniable.synth.table_noise import summed
from deniable.units import Guarantee, enumeration

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.canonical_form import Form
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.tables.kinds import Scalar

Invariants = Mapping[Any, Any]
"""Exact totals by a key's name or a tuple of names: `{"ward": {"A": 500, "B": 300}}`; `()` is the grand total."""

_SURE: Final = 1e-9
_RARE: Final = 1e-9
"""The probability that a correct declared total causes a warning, because of noise alone."""
_MOST_KEYS: Final = 10
_ROUNDED, _RAISED = "rounded", "raised"


def adds_up(plan: NoisePlan) -> bool:
    """Whether an answer can be fitted to others: one count or sum, by public keys with all values listed."""
    return (
        len(plan.parts) == 1
        and isinstance(plan.parts[0].statistic, Count | ExactSum)
        and plan.people is None
        and plan.collect.known is not None
        and all(
            key.values is not None and public_values(key.expression, plan.question.relation) == key.values
            for key in plan.question.keys
        )
    )


@final
@dataclass(frozen=True, slots=True)
class TablesBySide:
    """Several tables over a common list of keys (axes)."""

    names: tuple[tuple[str, ...], ...]
    """The names of each key in the tables."""
    values: tuple[tuple[Scalar | None, ...], ...]
    """The values of each key."""
    axes: tuple[Axes, ...]
    """The axes of each table, ascending."""
    order: tuple[tuple[int, ...], ...]
    """The axes of each table in the order of its question."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each key."""
        return tuple(len(each) for each in self.values)

    def read(self, table: int, numbers: Any) -> Floats:
        """The numbers of a table by group, as an array with ascending axes."""
        order = self.order[table]
        shaped = np.asarray(numbers, dtype=np.float64).reshape([self.sizes[axis] for axis in order])
        return np.transpose(shaped, np.argsort(order)) if order else shaped

    def written(self, table: int, counts: Any) -> Any:
        """The inverse of `read`: an array with ascending axes as numbers by group."""
        order = self.order[table]
        places = [sorted(order).index(axis) for axis in order]
        return np.transpose(counts, places).ravel() if order else np.asarray(counts).ravel()


_SAME: Final = "must ask for the same count or sum of the same rows, by public keys, all values of each"
_SUCH_AS: Final = "SELECT ward, COUNT(*) … GROUP BY ward is a total of … GROUP BY ward, sex"


def _beside(answers: Sequence[Answer], parameter: str) -> TablesBySide:
    """The answers over a common list of keys; `InvalidParameter` if they do not measure the same of the same rows."""
    first = answers[0]
    keys: dict[Form, tuple[set[str], tuple[Scalar | None, ...]]] = {}
    order = []
    asked = None
    for answer in answers:
        plan = answer.plan
        if answer.budget != first.budget:
            raise InvalidParameter(parameter, NOTHING, "must be answers under the same budget")
        if answer.receipt.version != first.receipt.version:
            raise InvalidParameter(
                parameter,
                NOTHING,
                "must be about one version of the data",
                "ask all questions about the same version",
            )
        if answer.receipt.ledger != first.receipt.ledger:
            raise InvalidParameter(parameter, NOTHING, "must be answers from one ledger", "ask all questions there")
        if not adds_up(plan):
            raise InvalidParameter(parameter, NOTHING, _SAME, _SUCH_AS)
        form, columns = relation_form(plan.question.relation)
        same = (form, statistic_form(plan.parts[0].statistic, columns))
        asked = same if asked is None else asked
        forms = [expression_form(key.expression, columns) for key in plan.question.keys]
        if same != asked or len(set(forms)) < len(forms):
            raise InvalidParameter(parameter, NOTHING, _SAME, _SUCH_AS)
        for key, each in zip(plan.question.keys, forms, strict=True):
            assert key.values is not None
            known = keys.setdefault(each, (set(), key.values))
            known[0].add(key.name)
            if known[1] != key.values:
                raise InvalidParameter(parameter, NOTHING, _SAME, _SUCH_AS)
        order.append(forms)
    if len(keys) > _MOST_KEYS:
        raise InvalidParameter(
            parameter, len(keys), f"must have at most {_MOST_KEYS} keys together", "give fewer tables"
        )
    places = {form: i for i, form in enumerate(keys)}
    orders = tuple(tuple(places[form] for form in forms) for forms in order)
    return TablesBySide(
        tuple(tuple(sorted(names)) for names, _ in keys.values()),
        tuple(values for _, values in keys.values()),
        tuple(tuple(sorted(each)) for each in orders),
        orders,
    )


# -- the set ---------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Joint:
    """Answers that were fitted to each other, with all adjustments so far."""

    answers: tuple[Answer, ...]
    """The original answers."""
    side: TablesBySide
    exact: tuple[Margin, ...]
    """The declared exact totals."""
    assumptions: tuple[str, ...]
    """The assumptions that declared totals add to the guarantee."""
    fitted: least_squares_fit.TableFit
    measured: tuple[MeasuredTable, ...]
    numbers: tuple[Floats, ...]
    """The current numbers of each answer, with ascending axes, in grid steps of the statistic."""
    words: tuple[str, ...]
    """Descriptions of the adjustments."""
    done: tuple[str, ...] = ()
    """The adjustments after the fit: "raised", "rounded"."""
    totals: tuple[int, ...] = ()
    """The indices of tables to which the first one was fitted, and which keep their numbers."""
    kept: bool = False
    """True if no table was changed by a fit, so that each table keeps its own noise."""

    def tables(self) -> tuple[Answer, ...]:
        """The answers with their fitted numbers."""
        return tuple(self.table(i) for i in range(len(self.answers)))

    def table(self, i: int) -> Answer:
        """One of the answers with its fitted numbers, its guarantee and its adjustments."""
        from deniable.queries.answer.answer import Answer

        answer = self.answers[i]
        moved = answer.released if self.kept else self._moved(i)
        promise = Guarantee(
            answer.budget.curve(moved.cost),
            answer._promise.unit,
            assumptions=(*answer._promise.assumptions, *self.assumptions),
        )
        made = Answer(
            answer.plan, answer.released, answer.budget, promise, answer.receipt, answer.confidence, moved=moved
        )
        made._joint, made.adjustments = (self, i), (*answer.adjustments, *self.words)
        return answer._like(_put(made, self, i) if self.done else made)

    def _moved(self, i: int) -> Released:
        """The linear fit of one table, with the shares of all draws in each of its numbers."""
        answer, axes = self.answers[i], self.side.axes[i]
        released = answer.released
        law, shape = law_of(self.fitted, axes, self.measured), answer.budget.accounting.shape
        measured = behind(each.released for each in self.answers)
        wide = max(math.hypot(*(each.deviation(shape) for each in one)) for one in law if one)
        own = unthresholded(answer.plan, answer.budget, released.precision.units).spread(0)
        ratio = Fraction((own / wide) ** 2) if wide > 0 and own > 0 else Fraction(1)
        units = max(1, at_precision(precise(released.precision.units, answer.budget) * ratio, answer.budget))
        return replace(
            released,
            parts=(self.side.written(i, self.fitted.table(axes)),),
            cost=total(measured),  # the fit rests on all answers
            measured=measured,
            draws=tuple(draw for each in self.answers for draw in each.released.all_draws),
            units=(units,) * len(released.groups),
            moved=(law,) * len(released.groups),
        )

    # -- adjustments ---------------------------------------------------------------------------------------------------

    def nonnegative(self) -> Joint:
        """The closest tables without negative numbers, by least squares, that add up and keep all exact totals.

        Raises `InvalidOperation` after rounding or raising, or if the sums may be negative, and `InvalidParameter` if a
        fixed total is negative.
        """
        if self.done:
            raise InvalidOperation("the numbers were rounded or raised to 0 already; call nonnegative() first")
        statistic = self.answers[0].plan.parts[0].statistic
        if isinstance(statistic, ExactSum) and statistic.low < 0:
            rule = "the summed column may have negative values, by its bounds, so its sums may be negative"
            raise InvalidOperation(rule)
        sizes, step = self.side.sizes, grid_step(self.answers[0].plan)
        words = "moved by least squares such that no number is below 0, and sums are kept"
        whole = tuple(range(len(sizes)))
        finest = [each for axes, each in zip(self.side.axes, self.numbers, strict=True) if axes == whole]
        if finest and float(finest[0].min(initial=0.0)) >= 0:  # the fit has no negative number already
            return replace(self, words=(*self.words, words), done=(*self.done, _RAISED))
        if self.totals:
            fixed = [Margin(self.side.axes[i], self.numbers[i], 0.0) for i in self.totals]
            free = [Margin(self.side.axes[0], self.numbers[0], 1.0)]
            low = min(float(each.counts.min(initial=0.0)) for each in fixed)
            if low * step < -_SURE:
                rule = "has a negative number, to which numbers of at least 0 cannot add up"
                remedy = "publish([...]).nonnegative() moves the totals as well"
                raise InvalidParameter("totals", NOTHING, rule, remedy)
            fixed = [replace(each, counts=np.maximum(each.counts, 0.0)) for each in fixed]
            joint = least_squares_fit.nonnegative(sizes, [*fixed, *free, *self.exact])
        else:
            joint = least_squares_fit.nonnegative(sizes, [*(each.margin for each in self.measured), *self.exact])
        numbers = tuple(summed(joint, whole, axes) for axes in self.side.axes)
        return replace(self, numbers=numbers, words=(*self.words, words), done=(*self.done, _RAISED))

    def rounded(self, base: int) -> Joint:
        """Multiples of `base` (1 to 10^9) that add up, by controlled rounding."""
        base = arguments.python_int("base", plain(base), ROUNDING_BASE)
        step = grid_step(self.answers[0].plan)
        given: dict[Axes, Floats] = {}
        for axes, counts in zip(self.side.axes, self.numbers, strict=True):
            given.setdefault(axes, counts * step)
        for margin in self.exact:
            given.setdefault(margin.axes, margin.counts * step)
        if any(float(np.abs(each).max(initial=0.0)) >= 2**52 for each in given.values()):
            raise InvalidOperation("numbers of 2⁵² and more cannot be rounded to add up")
        found = controlled_rounding.controlled(list(given.items()), base=base)
        done = dict(zip(given, found.tables, strict=True))
        numbers = tuple(done[axes] / step for axes in self.side.axes)
        to = "whole numbers" if base == 1 else f"multiples of {base}"
        words = f"rounded to {to} that add up; {found.control.value}"
        return replace(self, numbers=numbers, words=(*self.words, words), done=(*self.done, _ROUNDED))


def _put(made: Answer, joint: Joint, i: int) -> Answer:
    """The answer with the current numbers in the columns that display the count or sum itself."""
    step, whole = grid_step(made.plan), isinstance(made.plan.recipes[0], Counted)
    numbers = joint.side.written(i, joint.numbers[i]) * step
    least = 0.0 if _RAISED in joint.done else -math.inf
    shown: list[Any] = np.rint(numbers).astype(np.int64).tolist() if _ROUNDED in joint.done else numbers.tolist()
    return made._replaced(shown, least=least, whole=whole and _ROUNDED in joint.done)


def joint(answers: Sequence[Answer], invariants: Invariants | None = None) -> Joint:
    """The least-squares fit of all answers to each other and to declared exact totals."""
    found, side, exact, assumptions = _prepared(answers, invariants, "tables")
    measured = measured_of(side, found, apart=True)
    margins = [each.margin for each in measured]
    fitted = least_squares_fit.fit(side.sizes, [*margins, *exact])
    if len(found) == 1 and not exact:
        return alone(found[0])
    if not exact and all(each.released.law is not None for each in found) and least_squares_fit.agree(margins):
        kept = tuple(each.counts for each in margins)  # tables that were measured jointly add up already
        return Joint(found, side, (), (), fitted, tuple(measured), kept, (), kept=True)
    numbers = tuple(fitted.table(axes) for axes in side.axes)
    words = (*_fit_descriptions(found, assumptions), *_far(side, measured, exact, found[0]))
    return Joint(found, side, exact, assumptions, fitted, tuple(measured), numbers, words)


def _far(side: TablesBySide, measured: Sequence[MeasuredTable], exact: Sequence[Margin], answer: Answer) -> list[str]:
    """Warnings about declared totals that differ from the noisy ones by more than noise explains."""
    found = []
    shape = answer.budget.accounting.shape
    unconstrained = least_squares_fit.fit(side.sizes, [each.margin for each in measured])
    for each in exact:
        if each.axes in unconstrained.parts:
            law = law_of(unconstrained, each.axes, measured)
            reaches = [merged_reach(shape, one, 1 - _RARE / max(1, each.counts.size)) for one in law if one]
            if float(np.abs(unconstrained.table(each.axes) - each.counts).max(initial=0.0)) > max(reaches):
                names = enumeration([side.names[axis][0] for axis in each.axes] or ["all rows"])
                words = f"the declared totals by {names} are farther from the noisy ones than noise explains"
                found.append(f"{words}: check that they count the same rows, of the same day")
    return found


def added_up(answer: Answer, totals: Sequence[Answer], invariants: Invariants | None = None) -> Joint:
    """The first table fitted to add up to the others, which keep their numbers if they agree with each other."""
    found, side, exact, _ = _prepared([answer, *totals], invariants, "totals")
    itself = len(found) == 1 and bool(totals)
    if itself or any(not set(axes) < set(side.axes[0]) for axes in side.axes[1:]):
        raise InvalidParameter("totals", NOTHING, f"{_SAME}, and by fewer keys", _SUCH_AS)
    measured = measured_of(side, found, apart=False)
    margins = [each.margin for each in measured]
    again = any(each._joint is not None for each in totals)
    if (
        exact
        or again
        or not least_squares_fit.agree(margins[1:])
        or all(each.released.law is not None for each in found)
    ):
        together = joint(found, invariants)
        if not (together.kept and totals):
            return together
        return replace(
            together, words=(f"measured together with the totals of {_charges(totals)}, to which they add up",)
        )
    deciding = tuple(range(1, len(found)))
    fitted = least_squares_fit.fit(side.sizes, margins, deciding=deciding)
    numbers = tuple(fitted.table(axes) for axes in side.axes)
    words = (f"moved to add up to the totals of {_charges(found[1:])}",)
    return Joint(found, side, (), (), fitted, tuple(measured), numbers, words, totals=deciding)


def alone(answer: Answer) -> Joint:
    """A single answer as a `Joint`, with its own numbers."""
    side = _beside([answer], "answer")
    measured = measured_of(side, [answer], apart=False)
    fitted = least_squares_fit.fit(side.sizes, [each.margin for each in measured])
    return Joint((answer,), side, (), (), fitted, tuple(measured), (measured[0].margin.counts,), (), kept=True)


def raised(answer: Answer, words: tuple[str, ...]) -> Joint:
    """A single answer with negative numbers raised to 0, which for one table is the least-squares solution."""
    found = alone(answer)
    return replace(found, numbers=(np.maximum(found.numbers[0], 0.0),), words=words, done=(_RAISED,))


def _prepared(
    answers: Sequence[Answer], invariants: Invariants | None, parameter: str
) -> tuple[tuple[Answer, ...], TablesBySide, tuple[Margin, ...], tuple[str, ...]]:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.answer_display import Shown

    found: list[Answer] = []
    for each in answers:
        if not isinstance(each, Answer):
            remedy = (
                "give the tables of this answer one by one: answer.tables"
                if isinstance(each, Shown)
                else "give public totals by invariants="
            )
            raise InvalidParameter(parameter, type_of(each), "must be answers of a session", remedy)
        joint = each._joint
        if each._touched or (joint is not None and joint[0].done):
            rule = "was rounded, raised to 0 or suppressed already, so it cannot be fitted"
            raise InvalidParameter(parameter, NOTHING, rule, "fit first, then round the result")
        if joint is not None and joint[0].exact:
            rule = "was fitted to declared totals already"
            raise InvalidParameter(parameter, NOTHING, rule, "declare the totals in one fit of all tables")
        # A fit of a fitted answer starts again from the original answers.
        sources = [each] if joint is None else [joint[0].answers[joint[1]], *joint[0].answers]
        found += [one for i, one in enumerate(sources) if all(one is not other for other in [*found, *sources[:i]])]
    side = _beside(found, parameter)
    exact, assumptions = _declared(invariants, side, found)
    return tuple(found), side, exact, assumptions


def _declared(
    invariants: Invariants | None, side: TablesBySide, answers: Sequence[Answer]
) -> tuple[tuple[Margin, ...], tuple[str, ...]]:
    """(the declared exact totals, the assumptions they add); `InvalidParameter` unless every value has a total."""
    if not invariants:
        return (), ()
    such_as = 'write invariants={"ward": {"A": 500, "B": 300}}'
    if not isinstance(invariants, Mapping):
        raise InvalidParameter("invariants", type_of(invariants), "must map names of keys to totals", such_as)
    step, counted = grid_step(answers[0].plan), isinstance(answers[0].plan.recipes[0], Counted)
    found, assumptions = [], []
    for by, totals in invariants.items():
        if not isinstance(by, str | tuple):
            raise InvalidParameter("invariants", by, "must be given by a key's name, or a tuple of names", such_as)
        names = (by,) if isinstance(by, str) else by
        axes = []
        for name in names:
            axis = next((i for i, known in enumerate(side.names) if name in known), None)
            if axis is None or axis in axes:
                known = ", ".join(sorted({each for names in side.names for each in names})) or "none"
                raise InvalidParameter("invariants", name, f"must name keys of the tables, each once: {known}")
            axes.append(axis)
        if not names:
            totals = totals if isinstance(totals, Mapping) else {(): totals}
        if not isinstance(totals, Mapping):
            raise InvalidParameter("invariants", names, "must map each value to its total", such_as)
        read = {(key if isinstance(key, tuple) else (key,)): total for key, total in totals.items()}
        counts = np.zeros([side.sizes[axis] for axis in axes])
        for place in np.ndindex(*counts.shape):
            cell = tuple(side.values[axis][i] for axis, i in zip(axes, place, strict=True))
            if cell not in read:
                words = ", ".join(map(str, names)) or "all"
                raise InvalidParameter("invariants", words, f"must give a total for every value; {cell!r} has none")
            total = plain(read.pop(cell))
            if isinstance(total, bool) or not isinstance(total, Real | Decimal) or not math.isfinite(total):
                raise InvalidParameter("invariants", total, "must be finite numbers", such_as)
            number = float(total)
            if counted and (not number.is_integer() or number < 0):
                raise InvalidParameter(
                    "invariants", total, "must be whole numbers that are not negative: these are counts"
                )
            counts[place] = number / step
        if read:
            raise InvalidParameter("invariants", next(iter(read)), "is not a value of these keys", such_as)
        order = np.argsort(axes)
        found.append(Margin(tuple(sorted(axes)), np.transpose(counts, order) if axes else counts, 0.0))
        totals_were = f"the totals by {enumeration(list(names))} were" if names else "the total was"
        assumptions.append(
            f"{totals_were} public before, and what {'they tell' if names else 'it tells'} is not protected"
        )
    return tuple(found), tuple(assumptions)


def _fit_descriptions(answers: Sequence[Answer], assumptions: Sequence[str]) -> tuple[str, ...]:
    charges = enumeration([str(each.receipt.entry) for each in answers])
    words = []
    if len(answers) > 1:
        words.append(f"fitted to each other by least squares, such that they add up (charges {charges})")
    words += [f"moved to declared totals; {each}" for each in assumptions]
    return tuple(words)


def _charges(answers: Sequence[Answer]) -> str:
    return f"charge{'s' * (len(answers) > 1)} {enumeration([str(each.receipt.entry) for each in answers])}"
