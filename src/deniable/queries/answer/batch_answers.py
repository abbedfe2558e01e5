"""Batches: several questions that share a cost.

`planned` makes all decisions that need no data: how the cost is shared, which tables are measured together
(`joint_tables`), and which answers improve others (`batch_shares`). `price` reports the plan. `answered` charges for
all questions or none, and then reads the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, final

from deniable.curves.filters import exact_amount
from deniable.errors import NOTHING, BudgetExceeded, InvalidParameter, type_of
from deniable.ledger import Cost
from deniable.numbers import plain, plain_list
from deniable.queries.answer import batch_shares, joint_tables, rollups
from deniable.queries.answer.batch_price import Quote, Quoted
from deniable.queries.answer.joint_tables import Jointly, Made, SplitGoal
from deniable.queries.answer.release import release_jointly
from deniable.queries.answer.shared_measurements import Measurement
from deniable.queries.answer.timed_runs import finished
from deniable.queries.plan.noise_planner import grid_step
from deniable.queries.plan.pricing import AskedCost, Near, Price
from deniable.queries.relations.relation_nodes import tables_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.ledger import Entry
    from deniable.ledger.account_balances import Replay
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.batch_shares import Help
    from deniable.queries.answer.release import Released
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.plan.question import Question
    from deniable.queries.relations.exact_statistics import Collect
    from deniable.queries.session import Session

Weights = Sequence[float] | Literal["fair", "closest"] | None
"""The weight of a cell of each question. "fair": equal weights, but no table may be less precise than it would be
alone with an equal share of the cost. "closest": every table is as close as possible, by one factor for all, to the
better of an equal share and of the finest table alone."""
NAMED_WEIGHTS: Final = ("fair", "closest")
Within = Near | Sequence[Near]


@final
@dataclass(slots=True)
class TogetherMeasured:
    """Tables that are measured jointly, and their noise."""

    names: list[str]
    tables: Jointly
    made: Made
    old: dict[int, Released] = field(default_factory=dict)
    """Stored answers by index: only the others are measured, and all are fitted together."""

    @property
    def measured(self) -> Jointly:
        """The tables that have no stored answer and are measured now."""
        return self.tables.only([i for i in range(len(self.names)) if i not in self.old]) if self.old else self.tables


@final
@dataclass(slots=True)
class Planned:
    """A batch before anything is charged. Questions are identified by their hashes."""

    given: list[NoisePlan]
    """The plans in the order of the questions. Two may have the same hash, with other column names."""
    plans: dict[str, NoisePlan]
    words: dict[str, str]
    confidence: float
    left: Cost
    alone: dict[str, Price] = field(default_factory=dict)
    together: list[TogetherMeasured] = field(default_factory=list)
    helps: list[Help] = field(default_factory=list)

    @property
    def cost(self) -> Cost:
        """The cost of the whole batch."""
        return sum(self.charges().values(), start=Cost(0))

    def charges(self) -> dict[str, Cost]:
        """The charge for each question; tables that are measured jointly share their cost evenly."""
        names = list(self.alone)
        costs = [price.cost for price in self.alone.values()]
        found = dict(zip(names, batch_shares.charges([self.plans[name] for name in names], costs), strict=True))
        for group in self.together:
            whole, rest = divmod(group.made.cost.units, len(group.names))
            found |= {name: Cost(whole + (place < rest)) for place, name in enumerate(group.names)}
        return {name: found[name] for name in self.plans if name in found}


# -- planning ----------------------------------------------------------------------------------------------------------


def planned(
    session: Session,
    questions: str | Sequence[str | Question],
    asked: AskedCost,
    weights: Weights,
    within: Within,
    payer: str | None,
) -> Planned:
    """The plan of a batch. Charges nothing.

    Raises `BudgetExceeded` if a share of an empty rest is asked for, and `InvalidParameter` for weights or targets
    that do not fit the questions.
    """
    given, words = _read(session, questions)
    plans: dict[str, NoisePlan] = {}
    for made in given:
        plans.setdefault(made.question.hash, made)
    found = Planned(given, plans, words, asked.confidence, session._left(payer))
    names, values = list(plans), list(plans.values())
    each = _each(weights, given, names)
    disjoint = {i for group in batch_shares.parallel(values) if len(group) > 1 for i in group}
    groups = [
        kept
        for group in joint_tables.groups(values)
        if len(kept := tuple(i for i in group if i not in disjoint)) > 1
    ]  # fmt: skip
    measured = {i for group in groups for i in group}
    shares, found.helps = batch_shares.shares(values, each, measured)
    goal: SplitGoal = weights if isinstance(weights, str) else "sum"
    if goal != "sum":  # with other goals, no question gets a smaller share because it makes another question more exact
        shares, _ = batch_shares.shares(values, each, range(len(values)))
    if within is not None:
        if weights is not None:
            rule = "divide a given cost, but with within= the cost follows from the errors"
            raise InvalidParameter("weights", NOTHING, rule, "leave out weights, or give a cost instead of within")
        _within(session, found, asked, groups, _targets(within, given, names))
        return found
    rest = [i for i in range(len(names)) if i not in measured]
    found.alone = _prices(session, {names[i]: values[i] for i in rest}, asked, [shares[i] for i in rest], found.left)
    for group in groups:
        parts = [asked.part(shares[i]).cost(values[i], session.budget, found.left).units for i in group]
        tables = Jointly.of([values[i] for i in group], session._plans.room([each.question for each in values]))
        counted = [float(each[i]) for i in group]
        made_for = tables.made(session.budget, Cost(sum(parts)), counted, goal=goal)
        found.together.append(TogetherMeasured([names[i] for i in group], tables, made_for))
    return found


def _prices(
    session: Session, plans: Mapping[str, NoisePlan], asked: AskedCost, shares: Sequence[Fraction], left: Cost
) -> dict[str, Price]:
    """What each question of a batch costs. A question with the default δ takes it from what earlier questions left."""
    found, rest = {}, left
    for (name, made), share in zip(plans.items(), shares, strict=True):
        found[name] = session._price(made, asked.part(share), rest)
        if found[name].shares_delta:
            rest = Cost(rest.units, rest.delta_units - found[name].cost.delta_units)
    return found


def _read(session: Session, questions: str | Sequence[str | Question]) -> tuple[list[NoisePlan], dict[str, str]]:
    if isinstance(questions, str) or not isinstance(questions, Sequence) or not questions:
        raise InvalidParameter("questions", NOTHING, "must be a list of at least one question", 'write ["SELECT ..."]')
    with session.limits():
        built = [session._built(each) for each in questions]
        session._plans.check(built)
        given = [session._plans.plan(*each) for each in zip(questions, built, strict=True)]
    words: dict[str, str] = {}
    for question, made in zip(questions, given, strict=True):
        words.setdefault(made.question.hash, description_of(question, made))
    return given, words


def description_of(question: object, made: NoisePlan) -> str:
    """The description of a question in the ledger: the analyst's own text, or measures and tables. Both are public."""
    if isinstance(question, str):
        return " ".join(question.split())[:500]
    measures = ", ".join(f"{each.function}" for each in made.question.measures)
    return f"{measures} of {', '.join(table.name for table in made.question.relation.tables)}"


WEIGHTS_RULE: Final = 'must be positive numbers, one for each question, "fair" or "closest"'


def readable_weights(given: Any) -> Weights:
    """Weights as None, a known name, or a sequence whose entries are not checked. Otherwise InvalidParameter."""
    weights = plain_list(given)
    if weights is None or (isinstance(weights, str) and weights in NAMED_WEIGHTS):
        return weights  # type: ignore[return-value]  # one of the names of `Weights`
    if isinstance(weights, str):
        raise InvalidParameter("weights", weights, WEIGHTS_RULE, "leave them out to give every cell the same weight")
    if not isinstance(weights, Sequence):
        raise InvalidParameter("weights", type_of(weights), WEIGHTS_RULE, "write weights=[1, 1, 10]")
    return weights


def _each(weights: Weights, given: Sequence[NoisePlan], names: Sequence[str]) -> list[Fraction]:
    """The weight of each distinct question; the larger one if it is asked twice."""
    rule, weights = WEIGHTS_RULE, readable_weights(weights)
    if weights is None or isinstance(weights, str):
        return [Fraction(1)] * len(names)
    if len(weights) != len(given):
        raise InvalidParameter("weights", NOTHING, _counted(rule, weights, given))
    found = dict.fromkeys(names, Fraction(0))
    for made, weight in zip(given, weights, strict=True):
        number = exact_amount("weights", plain(weight), rule)
        if not Fraction(1, 10**9) <= number <= 10**9:
            raise InvalidParameter("weights", weight, "must lie between 1e-9 and 1e9")
        found[made.question.hash] = max(found[made.question.hash], number)
    return [found[name] for name in names]


def _counted(rule: str, numbers: Sequence[object], given: Sequence[NoisePlan]) -> str:
    return f"{rule}; there are {len(given)} questions and {len(numbers)} numbers"


def _targets(within: Within, given: Sequence[NoisePlan], names: Sequence[str]) -> list[Any]:
    """The target error of each distinct question; the smaller one if it is asked twice."""
    within = plain_list(within)
    if not isinstance(within, Sequence) or isinstance(within, str):
        return [within] * len(names)
    if len(within) != len(given):
        rule = "must be one number for all questions, or one for each (None: no target)"
        raise InvalidParameter("within", NOTHING, _counted(rule, within, given))
    found: dict[str, list[Any]] = {name: [] for name in names}
    for made, each in zip(given, within, strict=True):
        if each is not None:
            found[made.question.hash].append(plain(each))
    if any(len(each) > 1 and not all(isinstance(one, int | float) for one in each) for each in found.values()):
        rule = "must have numbers for a question that is asked twice"
        raise InvalidParameter("within", NOTHING, rule, "ask it once")
    return [min(found[name]) if found[name] else None for name in names]


def _within(
    session: Session,
    found: Planned,
    asked: AskedCost,
    groups: Sequence[tuple[int, ...]],
    targets: Sequence[Any],
) -> None:
    """Fill in the plan with the least cost at which every question meets its target error."""
    names, plans = list(found.plans), list(found.plans.values())
    session._plans.admit(len(plans) ** 2)  # the search for the least cost takes all tables, in rounds
    in_group = {i for group in groups for i in group}
    found.helps = []  # no question relies on the sums of another: each one meets its target error alone
    for i, target in enumerate(targets):
        if target is None and i not in in_group:
            rule = "must have a number for every question that is not measured together with others"
            raise InvalidParameter("within", NOTHING, rule, "give one, or ask that question separately")
        if target is not None:  # also for tables that are measured jointly, because it checks the target
            price = session._price(plans[i], replace(asked, within=target), found.left)
            if i not in in_group:
                found.alone[names[i]] = price
    for group in groups:
        wanted = [None if (t := targets[i]) is None else float(exact_amount("within", plain(t))) for i in group]
        if all(each is None for each in wanted):
            rule = "must have a number for at least one of the tables that are measured together"
            raise InvalidParameter("within", NOTHING, rule, "give one")
        tables = Jointly.of([plans[i] for i in group], session._plans.room([each.question for each in plans]))
        steps = [None if t is None else t / grid_step(plans[i]) for t, i in zip(wanted, group, strict=True)]
        made = tables.least(session.budget, steps, asked.confidence)
        found.together.append(TogetherMeasured([names[i] for i in group], tables, made))


def check_refinable(session: Session, answer: Answer) -> None:
    """Raise `InvalidParameter` if a second answer cannot be merged with this one."""
    made = answer.plan
    if answer.budget != session.budget or any(
        session._tables.get(name) != each for name, each in tables_read(made.question.relation).items()
    ):
        raise InvalidParameter(
            "answer", NOTHING, "belongs to other tables or another budget", "ask the question in this session"
        )
    if answer.receipt.version != session._version(made.question):
        rule = "is about another version of the data, and answers about two versions cannot be merged"
        raise InvalidParameter("answer", NOTHING, rule, "ask the question anew, about this version")
    if made.is_picked:
        rule = "is a value that the exponential mechanism drew, and two such values cannot be merged"
        remedy = "ask the question again with a larger epsilon"
        raise InvalidParameter("answer", NOTHING, rule, remedy)


# -- pricing -----------------------------------------------------------------------------------------------------------


def priced(
    session: Session,
    questions: str | Sequence[str | Question],
    asked: AskedCost,
    weights: Weights,
    within: Within,
    payer: str | None,
) -> Quoted:
    """See `Session.price_batch`."""
    return price(session, planned(session, questions, asked, weights, within, payer))


def price(session: Session, found: Planned) -> Quoted:
    """The price of a planned batch: the expected error of each question, and how the cost is split."""
    charges, quotes = found.charges(), {}
    for name, each in found.alone.items():
        quotes[name] = Quote.alone(each, found.words[name], charges[name])
    for group in found.together:
        for place, name in enumerate(group.names):
            quotes[name] = Quote.together(
                found.plans[name], group.tables.columns[place], group.made, found.words[name], charges[name],
                found.confidence,
            )  # fmt: skip
    split = [line for group in found.together for line in group.tables.split(group.made, session.budget)]
    tables = tuple(quotes[made.question.hash] for made in found.given)
    return Quoted(session.budget, found.cost, found.left, found.confidence, tables, tuple(split))


# -- asking ------------------------------------------------------------------------------------------------------------


def answered(
    session: Session,
    questions: Sequence[str | Question],
    asked: AskedCost,
    weights: Weights,
    within: Within,
    key: str | None,
    payer: str | None,
    text: str | None = None,
) -> list[Answer]:
    """The implementation of `Session.batch`. `text`, if all questions come from one, is their description."""
    try:
        found = planned(session, questions, asked, weights, within, payer)
        if text is not None:
            found.words = dict.fromkeys(found.words, " ".join(text.split())[:500])
    except BudgetExceeded:  # the rest is empty, but stored answers can still be read
        given, _ = _read(session, questions)
        stored = [session._stored(made, payer) for made in given]
        known_answers = [each for each in stored if each is not None]
        if len(known_answers) < len(stored):
            raise
        return [session._again(made, *each, asked.confidence) for made, each in zip(given, known_answers, strict=True)]
    known = _known(session, found, payer)
    summed = _summed(session, found)
    drawn = {name: session._noise(found.plans[name], each) for name, each in found.alone.items()}
    # Built before the charge, so that a table that cannot be counted is refused without cost.
    collects = [[each for _, each in group.measured.collects(group.made)] for group in found.together]
    charges = found.charges() | dict.fromkeys(summed, Cost(0))
    asks = [
        (charge, name, found.words[name], session._version(found.plans[name].question))
        for name, charge in charges.items()
    ]
    charged = session._ledger.reserve_all(asks, key=key, payer=payer, request=found.plans)
    entries = dict(zip(charges, charged, strict=True))
    rest = session._left(payer)
    released = {name: each[0] for name, each in known.items()} | summed
    released |= finished(
        session._ledger, list(entries.values()), lambda: _run(session, found, drawn, collects, entries)
    )
    names = list(found.plans)
    for help in found.helps:
        if names[help.coarse] in entries and names[help.coarse] not in summed:
            merged = batch_shares.helped(help, [released[name] for name in names], session.budget)
            released[names[help.coarse]] = merged
    for name, entry in entries.items():
        session._ledger.seal(entry, released[name].to_bytes())
    answers = []
    for made in found.given:
        name = made.question.hash
        answers.append(
            session._answer(made, released[name], entries[name], found.confidence, rest, replayed=False)
            if name in entries
            else session._again(made, known[name][0], known[name][1]._replace(left=rest), found.confidence)
        )
    return answers


def _run(
    session: Session,
    found: Planned,
    drawn: Mapping[str, Noise],
    collects: Sequence[Sequence[Collect]],
    entries: Mapping[str, Entry],
) -> dict[str, Released]:
    """Run the questions on the engine: one query for each question that is measured alone, and as few queries as
    possible for each group that is measured jointly.
    """
    released = {
        name: session._run(found.plans[name], drawn[name], price.cost, entries[name])
        for name, price in found.alone.items()
    }
    names = list(found.alone)
    for places in batch_shares.parallel([found.plans[name] for name in names]):
        if len(places) > 1:
            _mark_disjoint(released, [names[place] for place in places])
    for group, wanted in zip(found.together, collects, strict=True):
        tables, mark = group.measured, session._mark(entries[group.names[0]])

        def release(
            counts: list[Any], group: TogetherMeasured = group, tables: Jointly = tables, mark: str = mark
        ) -> list[Released]:
            found = release_jointly(tables, group.made, counts)
            return joint_tables.published(group.tables, group.made, found, group.old, session.budget, mark)

        tables_released = session._attempt(wanted, release, entries[group.names[0]])
        released |= dict(zip(group.names, tables_released, strict=True))
    return released


def _summed(session: Session, found: Planned) -> dict[str, Released]:
    """The questions that finer answers in the ledger answer at least as precisely; they leave the plan."""
    session._finer.look(session._ledger, session._tables)
    summed = {}
    for name, price in list(found.alone.items()):
        plan = found.plans[name]
        rolled_up = rollups.found_in(session, session._finer.of(plan), plan, price)
        if rolled_up is not None:
            summed[name] = rolled_up
            del found.alone[name]
    return summed


def _mark_disjoint(released: dict[str, Released], names: Sequence[str]) -> None:
    """Record that questions about disjoint rows cost together what the most expensive one costs, except for δ."""
    mark = f"{released[names[0]].measured[0].mark}+"
    for name in names:
        each = released[name]
        own = Measurement(each.measured[0].mark, Cost(0, each.cost.delta_units))
        released[name] = replace(each, measured=(Measurement(mark, Cost(each.cost.units)), own))


def _known(session: Session, found: Planned, payer: str | None) -> dict[str, tuple[Released, Replay]]:
    """The questions with a stored answer that is at least as precise; they leave the plan.

    If only some tables of a joint group have one, the others are measured as precisely as planned, at no extra cost,
    and all of them are then fitted to the stored and the new numbers.
    """
    known: dict[str, tuple[Released, Replay]] = {}
    for name, each in list(found.alone.items()):
        stored = session._known(found.plans[name], each, payer)
        if stored is not None:
            known[name] = stored
            del found.alone[name]
    for group in list(found.together):
        units = [group.tables.precision(group.made, i, session.budget) for i in range(len(group.names))]
        enough: dict[int, tuple[Released, Replay]] = {}
        for i, name in enumerate(group.names):
            stored = session._stored(found.plans[name], payer)
            if stored is not None and units[i] <= stored[0].precision.units:
                enough[i] = stored
        if len(enough) == len(group.names):
            known |= {group.names[i]: each for i, each in enough.items()}
            found.together.remove(group)
        elif enough:
            new = [i for i in range(len(group.names)) if i not in enough]
            group.old = {i: each[0] for i, each in enough.items()}
            group.made = group.measured.some(group.made, session.budget, [units[i] for i in new])
    return known
