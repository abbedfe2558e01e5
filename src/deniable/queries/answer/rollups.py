"""Roll-ups: an answer by finer keys also answers the question by coarser keys, for free.

A count by region, age and sex, added up over age and sex, is a count by region; the same holds for sums. This is
post-processing and costs nothing. The sum is complete if every row is in a cell, which the schema must guarantee
(public keys with all values listed).
The noise of a sum follows from the noise of its cells, so sums have intervals of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.errors import NOTHING, DeniableError, InvalidParameter, type_of
from deniable.ledger import Cost, State
from deniable.queries.answer.grouping_sets import sets_of
from deniable.queries.answer.joint_tables import additive, equal_units, key_forms
from deniable.queries.answer.release import Draw, Released, at_precision, precise
from deniable.queries.intervals.noise_intervals import Share
from deniable.queries.intervals.ratio_intervals import Move, Quotient, interval
from deniable.queries.plan.answer_size import groups
from deniable.queries.plan.canonical_form import Form, relation_form, statistic_form
from deniable.queries.plan.noise_planner import classes_of, plan_under
from deniable.queries.plan.question import BOUNDS, Post, asked
from deniable.tables.expressions import Column, columns_used

if TYPE_CHECKING:
    from deniable.ledger import Budget, Ledger
    from deniable.queries.answer.answer import Answer
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.pricing import Price
    from deniable.queries.session import Session
    from deniable.tables.expressions import Expression
    from deniable.tables.schema import Table

_MOST: Final = 200
"""The most finer questions that are remembered for the same rows and measures."""
_LOOKED: Final = 200
"""The most charges of an existing ledger whose texts are read."""
_LARGEST: Final = 100_000
"""The most groups of a question that is remembered from an existing ledger."""


def places_of(plan: NoisePlan, keep: Sequence[str]) -> list[int]:
    """The indices of the keys to keep, ascending. Names are those of the answer's columns or of the question's keys.

    Raises `InvalidParameter` for a name that is not a key, or is given twice.
    """
    keys = [key.name for key in plan.question.keys]
    shown = {name: each.name for name, each in plan.question.post.columns if isinstance(each, Column)}
    found = []
    for name in keep:
        if not isinstance(name, str):
            raise InvalidParameter("keys", type_of(name), "must be names of keys", 'write rollup("region", "sex")')
        key = shown.get(name, name)
        if key not in keys:
            names = [name for name, of in shown.items() if of in keys] or keys
            raise InvalidParameter("keys", name, "must be keys of this answer", f"choose from {', '.join(names)}")
        if keys.index(key) in found:
            raise InvalidParameter("keys", name, "must be given only once")
        found.append(keys.index(key))
    return sorted(found)


def coarser(plan: NoisePlan, keep: Sequence[int], budget: Budget) -> NoisePlan:
    """The plan of the question by some of its keys, with the columns that these keys and the measures suffice for.
    Columns with windows are left out, because a window reads the rows of this answer. `InvalidParameter` if no count
    or sum is left.
    """
    question = plan.question
    gone = {question.keys[i].name for i in range(len(question.keys)) if i not in keep}
    gone |= {window.name for window in question.post.windows}
    columns = tuple((name, each) for name, each in question.post.columns if gone.isdisjoint(columns_used(each)))
    measures = {each.name for each in question.measures}
    if not any(measures.intersection(columns_used(each)) for _, each in columns):
        rule = "has no count or sum in a column that needs only the keys to keep and no window"
        raise InvalidParameter("answer", NOTHING, rule, "select the count or sum itself")
    return _by(plan, keep, columns, budget)


def _by(plan: NoisePlan, keep: Sequence[int], columns: Sequence[tuple[str, Expression]], budget: Budget) -> NoisePlan:
    """The plan of the measures of a question by some of its keys, with these columns."""
    question = plan.question
    kept = [question.keys[i] for i in keep]
    options = {name: value for name, value in question.options.items() if name not in BOUNDS}
    return plan_under(asked(question.relation, kept, question.measures, Post(tuple(columns)), options), budget)


def check(plan: NoisePlan, *, moved: bool, asked: str) -> None:
    """Raise `InvalidParameter` if measures do not add up or numbers were changed; `asked` is the verb of the remedy."""
    _check_additive(plan)
    if moved:
        rule = "was fitted to other answers, raised, rounded, or turned into shares"
        raise InvalidParameter("answer", NOTHING, rule, f"{asked} the answer that the session returned")


def _check_additive(plan: NoisePlan) -> None:
    if not additive(plan):
        raise InvalidParameter(
            "answer", NOTHING, "must have only counts of rows and sums, by public keys that list every value",
            "ask the coarser question instead",
        )  # fmt: skip


def check_shares(plan: NoisePlan, names: Sequence[str]) -> None:
    """Raise `InvalidParameter` if columns cannot be shares of a total. This depends on the plan alone, so it is checked
    before anything is paid.
    """
    _check_additive(plan)
    columns, measures = dict(plan.question.post.columns), {each.name for each in plan.question.measures}
    if len(plan.parts) != 1 or not plan.question.keys:
        raise InvalidParameter(
            "answer", NOTHING, "must have exactly one count or sum, by keys", "ask for one at a time"
        )
    for each in map(columns.get, names):
        if not isinstance(each, Column) or each.name not in measures:
            rule = "has a column computed from a count or sum, and only counts and sums themselves have shares"
            raise InvalidParameter("answer", NOTHING, rule, "select the count or sum itself")


def rolled_up(
    fine: NoisePlan, coarse: NoisePlan, released: Released, keep: Sequence[int], budget: Budget
) -> Released | None:
    """The sums of an answer by some of its keys; None if the law of their noise is unknown."""
    sizes = [len(key.values or ()) for key in fine.question.keys]
    gone = tuple(i for i in range(len(sizes)) if i not in keep)
    cells = math.prod(sizes[i] for i in gone)
    parts = tuple(np.asarray(part).reshape(sizes).sum(axis=gone).reshape(-1) for part in released.parts)
    assert coarse.collect.known is not None
    groups = coarse.collect.known
    same = [a.moves for a in fine.parts] == [b.moves for b in coarse.parts] and fine.pairs == coarse.pairs
    same = same and classes_of(fine, budget) == classes_of(coarse, budget)
    draws: tuple[Draw, ...] = ()
    if same and len(set(released.units)) == 1 and (released.law is None or released.draws):
        draws = tuple(Draw(each.cost, each.cells * cells) for each in released.all_draws)
    if len(fine.parts) > 1:
        if not draws:
            return None
        units = at_precision(precise(released.precision.units, budget) / cells, budget)
        return replace(
            released, groups=groups, parts=parts, precision=Cost(units), units=(units,) * len(groups), draws=draws
        )
    # The law records which draws two sums of one answer have in common.
    law, columns = released.with_law(fine, budget)
    kept = tuple(columns[i] for i in keep)
    found = Released(
        groups, parts, released.cost, Cost(0), (), draws=draws, law=law.within(kept), columns=kept,
        measured=released.measured,
    )  # fmt: skip
    units = equal_units(budget, coarse.parts[0].moves, found.deviation(coarse, budget, 0))
    return replace(found, precision=Cost(units), units=(units,) * len(groups))


def parts_of_total(
    plan: NoisePlan, released: Released, budget: Budget, confidence: float
) -> list[tuple[float | None, tuple[float, float] | None]]:
    """(share, interval) of each count or sum in their total; the intervals allow for noise in both (Fieller)."""
    law, columns = released.with_law(plan, budget)
    moves = [Move(Quotient(cell, total), Share(1.0, width, cells)) for cell, total, width, cells in law.moves(columns)]
    values = np.asarray(released.parts[0], dtype=np.float64)
    whole, shape = float(values.sum()), budget.accounting.shape
    return [
        (value / whole if whole else None, interval(Quotient(value, whole), moves, shape, confidence))
        for value in values.tolist()
    ]


# -- answers from finer answers in the ledger --------------------------------------------------------------------------


@final
class Finer:
    """An index of answered questions that add up, by their rows and measures."""

    def __init__(self) -> None:
        self._known: dict[Form, dict[str, NoisePlan]] = {}
        self._has_looked = False

    def look(self, ledger: Ledger, tables: Mapping[str, Table]) -> None:
        """Index the newest questions of the ledger from their texts, once. Reads no data."""
        if not self._has_looked:
            self._has_looked = True
            for plan in _asked_before(ledger, tables):
                self.note(plan)

    def note(self, plan: NoisePlan) -> None:
        """Add an answered question to the index, if it adds up."""
        if not plan.question.keys or plan.people is not None or plan.collect.known is None:
            return
        kept = self._known.setdefault(_rows(plan), {})
        if len(kept) < _MOST and plan.question.hash not in kept and additive(plan):
            kept[plan.question.hash] = plan

    def of(self, plan: NoisePlan) -> list[tuple[NoisePlan, list[int]]]:
        """Indexed questions that are finer than this one, each with the indices of this one's keys; smallest first."""
        known: Mapping[str, NoisePlan] = self._known.get(_rows(plan), {})
        if not known or not additive(plan):
            return []
        few, found = key_forms(plan), []
        for each in known.values():
            many = key_forms(each)
            if set(few) < set(many) and each.question.hash != plan.question.hash:
                found.append((each, [many.index(form) for form in few]))
        return sorted(found, key=lambda one: len(one[0].collect.known or ()))


def _asked_before(ledger: Ledger, tables: Mapping[str, Table]) -> Iterator[NoisePlan]:
    """The plans of the newest questions of a ledger whose text reproduces the stored hash."""
    from deniable.queries.sql.sql_reader import parse

    last = 0
    while ledger.charge(last + 1) is not None:  # finds the number of charges by doubling
        step = 1
        while ledger.charge(last + 2 * step) is not None:
            step *= 2
        last += step
    for number in range(last, max(0, last - _LOOKED), -1):
        charge = ledger.charge(number)
        if charge is None or "GROUP BY" not in charge.description.upper():
            continue
        text = charge.description.removeprefix("refined: ")
        try:
            sets = sets_of(text, tables)
            questions = [parse(text, tables)] if sets is None else list(sets.questions)
            yield from (
                plan_under(each, ledger.budget)
                for each in questions
                if each.hash == charge.question and groups(each) <= _LARGEST
            )
        except DeniableError:  # a text about other tables, of an earlier version, or truncated
            continue


def _rows(plan: NoisePlan) -> Form:
    """A form that is equal for questions that measure the same of the same rows."""
    below, columns = relation_form(plan.question.relation)
    return (below, *(statistic_form(each, columns) for each in plan.statistics))


def in_order(rolled: Released, keep: Sequence[int], coarse: NoisePlan) -> Any:
    """For each group of `coarse`, the index of its group in `rolled`, whose keys are in ascending order."""
    order = sorted(keep)
    assert coarse.collect.known is not None
    at = {tuple(group): i for i, group in enumerate(rolled.groups)}
    places = [order.index(i) for i in keep]
    wanted = []
    for group in coarse.collect.known:
        by_place = dict(zip(places, group, strict=True))
        wanted.append(at[tuple(by_place[i] for i in range(len(order)))])
    return wanted


def read_off(
    fine: NoisePlan, coarse: NoisePlan, released: Released, keep: Sequence[int], budget: Budget
) -> Released | None:
    """The answer to a coarser question from a finer one; None if they do not match or the noise is unknown.

    `keep` has the indices of the coarse keys among the fine ones, in the order of the coarse question.
    """
    if released.moved or not additive(fine):
        return None
    # Only measures and keys are read: the columns, windows and order of the finer question do not matter.
    ordered = _by(fine, sorted(keep), [(each.name, Column(each.name)) for each in fine.question.measures], budget)
    rolled = rolled_up(fine, ordered, released, sorted(keep), budget)
    if rolled is None or [a.moves for a in ordered.parts] != [b.moves for b in coarse.parts]:
        return None
    places = in_order(rolled, keep, coarse)
    parts = tuple(np.asarray(part)[places] for part in rolled.parts)
    columns = rolled.columns
    if rolled.law is not None:
        columns = tuple(rolled.columns[sorted(keep).index(i)] for i in keep)
    assert coarse.collect.known is not None
    return replace(rolled, groups=coarse.collect.known, parts=parts, columns=columns)


def answered(
    session: Session,
    finer: Sequence[tuple[NoisePlan, list[int]]],
    made: NoisePlan,
    price: Price,
    words: str,
    key: str | None,
    payer: str | None,
) -> Answer | None:
    """Answer a question from a finer answer in the ledger; None if no stored answer is precise enough.

    The answer gets an entry of its own at no cost, so that it can be found again and refined.
    """
    summed = found_in(session, finer, made, price)
    if summed is None:
        return None
    version = session._version(made.question)
    entry = session.ledger.reserve(
        Cost(0), question=made.question.hash, description=words, key=key, payer=payer, version=version
    )
    if entry.state is State.SEALED:  # an earlier request with this idempotency key sealed it
        return session._replayed_answer(made, entry, price.confidence, payer)
    return session._sealed(made, summed, entry, price.confidence, session._left(payer))


def found_in(
    session: Session, finer: Sequence[tuple[NoisePlan, list[int]]], made: NoisePlan, price: Price
) -> Released | None:
    """The sums of a finer answer in the ledger, if they are as precise as `price` promises; otherwise None."""
    for fine, keep in finer:
        stored = session._stored(fine, None)
        summed = None if stored is None else read_off(fine, made, stored[0], keep, session.budget)
        if summed is not None and price.is_met_by(summed.precision):
            return summed
    return None
