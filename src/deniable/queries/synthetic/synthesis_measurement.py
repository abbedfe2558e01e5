"""The noisy counts of a synthetic table as one entry of the ledger.

They are priced from public facts, charged before any data is read, and sealed together; reading them again is free.

Columns with unlisted keys take two steps within the entry. First a noisy count with a threshold finds the keys that
enough people have, at a δ; then these keys, which are public now, are counted with the other columns. Both steps are
paid for in advance. The number of keys that are found does not change the cost. It changes the noise of a count only
with "mst", where tables with more cells get more of the cost.

Methods that choose tables by the data take one more step: after the counts by single columns, tables are chosen and
counted (`marginal_selection`), from an amount that was charged with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.curves.exact_amounts import exact_delta
from deniable.errors import NOTHING, BudgetExceeded, EngineFailed, InvalidParameter, UnreadableRecord, type_of
from deniable.ledger import Cost, State
from deniable.queries.answer import joint_entry
from deniable.queries.answer.joint_entry import MeasuredTogether
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.timed_runs import finished
from deniable.queries.plan.answer_notes import cost_in_words, rest_in_words, short, wrapped
from deniable.queries.plan.noise_families import family_of
from deniable.queries.plan.noise_planner import noise, noise_cost, plan_under
from deniable.queries.plan.pricing import chosen_cost
from deniable.queries.synthetic.marginal_selection import SelectionPlan, TableSelection, in_order
from deniable.queries.synthetic.synthesis_request import MOST_ROWS, Synthesis, row_count
from deniable.queries.synthetic.synthetic_table import MeasuredErrors, Synthetic, noisy_marginal
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.ledger import Budget, Entry
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.plan.pricing import AskedCost
    from deniable.queries.session import Session

_OF_USE: Final = 0.5
"""A synthetic table is considered useful if the measured counts by single columns have an average error below this, in
total variation. A fit is better than the counts, but cannot recover from half of all rows in a wrong cell."""


@final
@dataclass(frozen=True, slots=True)
class ChosenCounts:
    """The public facts about counts that the data choose, known before the choice."""

    most: int
    """The most tables that are chosen."""
    candidates: int
    """The number of tables to choose from."""
    deviation: float
    """About the standard deviation of the noise in a cell of one of them."""
    is_tree: bool

    def __str__(self) -> str:
        many, of = self.most, f"{self.candidates:,} table{'s' * (self.candidates != 1)}"
        what = f"{many:,} of {of}" if self.is_tree else f"one of {of}, up to {many:,} times"
        again = "" if self.is_tree else "; a table can be chosen again, which adds a second count"
        return (
            f"{what}, by the exponential mechanism, and counted with a standard deviation of about "
            f"{short(self.deviation)} rows in a cell{again}"
        )


@final
@dataclass(frozen=True, slots=True, repr=False)
class SynthesisPrice:
    """The cost of a synthetic table and the noise of each of its counts. Computed without reading data."""

    asked: Synthesis
    budget: Budget
    cost: Cost
    left: Cost
    """The rest of the budget at the time of the price."""
    deviations: tuple[float, ...]
    """The standard deviation of the noise in a cell, for each marginal."""
    thresholds: tuple[int, ...] = ()
    """For each column with unlisted keys, the noisy number of people that a key must reach."""
    chosen: ChosenCounts | None = None
    """The counts that the data choose; None if all counts are known beforehand."""

    @property
    def fits(self) -> bool:
        """Whether the rest of the budget covers the cost."""
        return self.cost <= self.left

    @property
    def least_rows(self) -> int:
        """The number of rows that the table needs to be useful. With fewer, noise alone puts half of the rows into a
        wrong cell of a count by one column.
        """
        off = [self._off(i) for i, places in enumerate(self.asked.measured) if len(places) == 1]
        return int(sum(off) / len(off) / _OF_USE) + 1

    def errors(self, *, rows: int) -> dict[str, float]:
        """The expected total variation error of each marginal from noise alone, in a table of `rows` rows.

        A fit removes most of it. Raises `InvalidParameter` unless `rows` is from 1 to 10⁹.
        """
        many = row_count("rows", rows)
        names = [self.asked.marginal_name(places) for places in self.asked.measured]
        return {name: min(1.0, self._off(i) / many) for i, name in enumerate(names)}

    def _off(self, index: int) -> float:
        """Half the sum of the expected absolute errors of all cells, in rows."""
        cells = np.prod([self.asked.sizes[place] for place in self.asked.measured[index]])
        return float(family_of(self.budget).mean_distance(self.deviations[index]) * cells / 2)

    def to_dict(self) -> dict[str, Any]:
        """The price as a JSON-ready dict."""
        names = [self.asked.marginal_name(places) for places in self.asked.measured]
        return {
            "cost": cost_in_words(self.cost, self.budget),
            "fits": self.fits,
            "least_rows": self.least_rows,
            "deviations": dict(zip(names, self.deviations, strict=True)),
            "thresholds": [
                [self.asked.columns[place].name, each]
                for place, each in zip(self.asked.unlisted, self.thresholds, strict=True)
            ],
            "question": self.asked.hash,
            **({} if self.chosen is None else {"chosen": asdict(self.chosen)}),
        }

    def __str__(self) -> str:
        counts, cells = len(self.deviations), self.asked.cells
        low, high = min(self.deviations), max(self.deviations)
        lines = [
            f"cost     {cost_in_words(self.cost, self.budget)}",
            f"counted  {counts:,} table{'s' * (counts != 1)} of {cells:,} cells together",
            f"noise    a standard deviation of {short(low)}{f' to {short(high)}' * (high > low)} rows in a cell",
            f"of use   from about {self.least_rows:,} rows on",
        ]
        if self.chosen is not None:
            lines.insert(3, f"chosen   {self.chosen}")
        for place, each in zip(self.asked.unlisted, self.thresholds, strict=True):
            lines.append(f"keys     of {self.asked.columns[place].name}: shown from about {each:,} people on")
        lines.append(f"left     {rest_in_words(self.left, self.budget)}{'' if self.fits else ': too little'}")
        return "\n".join(wrapped(lines, " " * 9))

    __repr__ = __str__


@final
@dataclass(frozen=True, slots=True)
class _Bill:
    """The request, and (plan, noise, cost) of each of its counts, before anything is charged."""

    asked: Synthesis
    finding: tuple[tuple[NoisePlan, Noise, Cost], ...]
    counting: tuple[tuple[NoisePlan, Noise, Cost], ...]
    shares_delta: bool
    selection: SelectionPlan | None = None

    @property
    def cost(self) -> Cost:
        costs = [cost for _, _, cost in (*self.finding, *self.counting)]
        choosing = 0 if self.selection is None else self.selection.units
        return Cost(sum(each.units for each in costs) + choosing, sum(each.delta_units for each in costs))

    def is_met_by(self, stored: Cost) -> bool:
        """Whether a table that was bought at this cost is at least as precise. A default δ is not compared."""
        return chosen_cost(self.cost, self.shares_delta) <= stored


def price(session: Session, asked: Synthesis, amounts: AskedCost, payer: str | None) -> SynthesisPrice:
    """The price of `measured`. Free: no data is read."""
    left = session._left(payer)
    return _price_of(_bill(session, asked, amounts, left), session.budget, left)


def measured(
    session: Session, asked: Synthesis, amounts: AskedCost, rows: int | None, key: str | None, payer: str | None
) -> tuple[Synthesis, MeasuredTogether]:
    """Charge, count and seal, or read what was bought before; (the request with found keys, the counts).

    Raises `BudgetExceeded`, `InvalidParameter` for arguments that do not fit, and `EngineFailed`.
    """
    left, version = session._left(payer), session._version(asked.questions[0])
    try:
        bill = _bill(session, asked, amounts, left)
    except BudgetExceeded:  # nothing is left of the budget, but a stored table can still be read
        known = session._ledger.replay(asked.hash, version=version, payer=payer)
        if known is None or known.sealed.answer is None or not _can_read(known.sealed.answer, asked, session):
            raise
        return papers(session, read(known.sealed.answer, asked, session), known.charge, known.left, replayed=True)
    refuse_useless(_price_of(bill, session.budget, left), rows)
    rest = [left]
    entry = session._ledger.reserve_or_replay(
        bill.cost, question=asked.hash, version=version, description=asked.words,
        enough=lambda sealed: bill.is_met_by(sealed.cost) and _can_read(sealed.answer, asked, session),
        key=key, payer=payer, left=rest.append,
    )  # fmt: skip
    if entry.state is State.SEALED:
        assert entry.answer is not None
        replay = session._replay(entry, payer)
        return papers(session, read(entry.answer, asked, session), replay.charge, replay.left, replayed=True)
    found = session._released(bill.finding, [entry])
    try:
        asked, counting, selection = _settled(bill, found, session.budget)
    except Exception:  # a bug; its message could contain keys, so it is not passed on
        session._ledger.fail(entry, "engine")
        raise EngineFailed("engine", "what was charged stays charged") from None
    counted = session._released(counting, [entry])
    plans, chosen = [plan for plan, _, _ in counting], []
    if selection is not None:
        settled = asked, plans, counted
        made = finished(session._ledger, [entry], lambda: _selected(session, settled, selection, entry))
        asked, chosen = asked.with_chosen(made.chosen), made.chosen
        plans, counted = [*plans, *made.counted_by], [*counted, *made.released]
    session._ledger.seal(entry, joint_entry.written([*found, *counted], chosen))
    return papers(session, (asked, plans, counted), entry, rest[-1], replayed=False)


def _selected(
    session: Session, settled: tuple[Synthesis, list[NoisePlan], list[Released]], selection: SelectionPlan, entry: Entry
) -> TableSelection:
    """Count all tables to choose from, exactly; then choose some and release their noisy counts.

    Exact counts do not leave this function. As in any other run, a failure is answered as if the table were empty.
    """
    asked, plans, counted = settled
    single = [
        noisy_marginal(asked, places, plan, released, session.budget)
        for places, plan, released in zip(asked.measured, plans, counted, strict=True)
    ]
    exact = [session._attempt([each.collect], partial(in_order, each.collect), entry) for each in selection.plans]
    made = TableSelection(selection, single, exact, session._mark(entry))
    made.run()
    return made


def _bill(session: Session, asked: Synthesis, amounts: AskedCost, left: Cost) -> _Bill:
    if amounts.delta is not None and not asked.finding:
        rule = "is only for unlisted keys, and no column has them"
        raise InvalidParameter("delta", amounts.delta, rule, 'name such columns: unlisted=["city"]')
    if amounts.within is not None:
        rule = "is for one question, and the counts of a synthetic table share a cost"
        raise InvalidParameter("within", amounts.within, rule, "look at price_synthesis(...) and give an epsilon")
    with session.limits():
        session._plans.check([*asked.finding, *asked.questions, *asked.offered])
        finding = [session._plans.plan(each, each) for each in asked.finding]
        counting = [session._plans.plan(each, each) for each in asked.questions]
        offered = tuple(session._plans.plan(each, each) for each in asked.offered)
    each_delta = amounts
    if amounts.delta is not None:
        exact = exact_delta(amounts.delta)
        each_delta = replace(amounts, delta=exact / len(finding))
    deltas, rest = [], left
    for made in finding:
        deltas.append(each_delta.cost(made, session.budget, rest).delta_units)
        if amounts.delta is None:
            rest = Cost(rest.units, rest.delta_units - deltas[-1])
    deltas += [0] * len(counting)
    whole = replace(amounts, delta=None).cost(counting[0], session.budget, left).units
    for_keys = [asked.for_keys] * len(finding)
    units = [math.floor(whole * share) for share in (*for_keys, *(each * (1 - sum(for_keys)) for each in asked.shares))]
    selection = SelectionPlan(asked, session.budget, offered, whole - sum(units)) if offered else None
    if not all(units) or not (selection is None or selection.is_affordable):
        raise InvalidParameter("columns", len(asked.columns), "are too many for this cost", "spend more")
    if selection is None:
        units[-1] += whole - sum(units)  # the remainder of rounding
    else:
        selection.check()
    costs = [Cost(*each) for each in zip(units, deltas, strict=True)]
    tasks = [
        (made, noise(made, session.budget, cost), cost) for made, cost in zip([*finding, *counting], costs, strict=True)
    ]
    for _, drawn, cost in tasks:
        if not noise_cost(drawn, session.budget).units <= cost.units:
            raise AssertionError("the noise costs more than was charged")
    return _Bill(
        asked, tuple(tasks[: len(finding)]), tuple(tasks[len(finding) :]), bool(finding) and each_delta.delta is None,
        selection,
    )  # fmt: skip


def _price_of(bill: _Bill, budget: Budget, left: Cost) -> SynthesisPrice:
    deviations = tuple(float(drawn.deviation(0)) for _, drawn, _ in bill.counting)
    thresholds = tuple(drawn.threshold or 0 for _, drawn, _ in bill.finding)
    by = bill.selection
    chosen = None if by is None else ChosenCounts(by.most, len(by.plans), by.deviation, by.is_tree)
    return SynthesisPrice(bill.asked, budget, bill.cost, left, deviations, thresholds, chosen)


def refuse_useless(price: SynthesisPrice, rows: int | None) -> None:
    """Raise `InvalidParameter` if the table would be useless, by public numbers alone: the noise and stated rows."""
    most = MOST_ROWS if rows is None else rows
    if price.least_rows > most:
        there = "a table of 10⁹ rows" if rows is None else f"{rows:,} row{'s' * (rows > 1)}"
        raise InvalidParameter(
            "cost", NOTHING, f"is too small for {there}: with this noise, {price.least_rows:,} rows would be needed",
            "spend more, take fewer columns or bins, or count single columns alone: method=\"independent\"",
        )  # fmt: skip


def stated(rows: Any) -> int | None:
    """The stated number of rows as a Python int, or None. Raises `InvalidParameter` unless it is from 1 to 10⁹."""
    return (
        None
        if rows is None
        else row_count("rows", rows, "must be a whole number, about how many rows the table has, from 1 to 10⁹")
    )


def _settled(
    bill: _Bill, found: Sequence[Released], budget: Budget
) -> tuple[Synthesis, list[tuple[NoisePlan, Noise, Cost]], SelectionPlan | None]:
    """The request with the keys that were found, (plan, noise, cost) of its counts, as they were paid for, and the plan
    of the choice of tables.
    """
    asked = _with_keys(bill.asked, found)
    if asked is bill.asked:
        return asked, list(bill.counting), bill.selection
    plans = [plan_under(each, budget) for each in asked.questions]
    tasks = [(made, noise(made, budget, cost), cost) for made, (_, _, cost) in zip(plans, bill.counting, strict=True)]
    for _, drawn, cost in tasks:
        if not noise_cost(drawn, budget).units <= cost.units:
            raise AssertionError("the noise costs more than was charged")
    selection = bill.selection
    if selection is not None:
        selection = replace(selection, asked=asked, plans=tuple(plan_under(each, budget) for each in asked.offered))
    return asked, tasks, selection


def _with_keys(asked: Synthesis, found: Sequence[Released]) -> Synthesis:
    if not found:
        return asked
    keys = [
        [(group[0], float(number)) for group, number in zip(each.groups, each.parts[0], strict=True)] for each in found
    ]
    return asked.with_keys([[(key, number) for key, number in each if key is not None] for each in keys])


def read(answer: bytes, asked: Synthesis, session: Session) -> tuple[Synthesis, list[NoisePlan], list[Released]]:
    """(request with found keys, plans, counts) of a sealed entry; `UnreadableRecord` if another version wrote it."""
    pieces = joint_entry.pieces(answer)
    first = [plan_under(each, session.budget) for each in asked.finding]
    chosen = joint_entry.chosen(answer)
    if (
        len(pieces) != len(asked.finding) + len(asked.questions) + len(chosen)
        or not set(chosen) <= set(asked.candidates)
        or bool(chosen) != bool(asked.candidates)
    ):
        raise UnreadableRecord("another version of deniable wrote this synthetic table; read it with that version")
    found = joint_entry.read_pieces(pieces[: len(first)], first)
    asked = _with_keys(asked, found).with_chosen(chosen)
    plans = [plan_under(each, session.budget) for each in asked.questions]
    return asked, plans, joint_entry.read_pieces(pieces[len(first) :], plans)


def _can_read(answer: bytes | None, asked: Synthesis, session: Session) -> bool:
    try:
        return answer is not None and bool(read(answer, asked, session))
    except UnreadableRecord:
        return False


def papers(
    session: Session,
    found: tuple[Synthesis, list[NoisePlan], list[Released]],
    entry: Entry,
    left: Cost,
    *,
    replayed: bool,
) -> tuple[Synthesis, MeasuredTogether]:
    """The counts of an entry with their guarantee and receipt."""
    from deniable.queries.session import ASSUMPTIONS

    asked, plans, released = found
    receipt = Receipt(
        entry.charge, entry.question, entry.cost, left, session.budget, replayed, entry.time, entry.version
    )
    assumptions = (*ASSUMPTIONS, *asked.assumptions)
    promise = Guarantee(session.budget.curve(entry.cost), session._ledger.unit, assumptions=assumptions)
    return asked, MeasuredTogether(tuple(plans), tuple(released), session.budget, promise, receipt)


def synthesized(
    session: Session, asked: Synthesis, amounts: AskedCost, rows: int | None, key: str | None, payer: str | None
) -> Synthetic:
    """The implementation of `Session.synthesize`."""
    many = stated(rows)
    settled, found = measured(session, asked, amounts, many, key, payer)
    return Synthetic(settled, found, many)


def measured_errors(session: Session, synthetic: Synthetic) -> MeasuredErrors:
    """The implementation of `Session.measured_errors`. NOT PRIVATE: it compares with exact counts."""
    if not isinstance(synthetic, Synthetic):
        raise InvalidParameter("synthetic", type_of(synthetic), "must be what synthesize(...) returned")
    asked = synthetic.asked
    if session._tables.get(asked.table) != asked.frame.tables.get(asked.table):
        raise InvalidParameter("synthetic", asked.table, "belongs to another table", "use the session that made it")
    exact: list[dict[Any, int]] = []
    for each in asked.questions:
        with session._engine.turn():
            counts: Any = session._engine.collect(plan_under(each, session.budget).collect)
        exact.append({group: int(numbers[0]) for group, numbers in counts.items()})
    return MeasuredErrors(asked.table, synthetic.variation(exact))
