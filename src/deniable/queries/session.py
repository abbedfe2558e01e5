"""A session: tables, a budget and a ledger. Questions go in, noisy answers come out, and nothing is spent twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, final

from deniable.errors import (
    NOTHING,
    BudgetExceeded,
    EngineFailed,
    InvalidOperation,
    InvalidParameter,
    UnreadableRecord,
)
from deniable.ledger import Budget, Cost, Entry, Ledger, State
from deniable.queries import batch
from deniable.queries.answers import Answer, Receipt
from deniable.queries.notes import listed, rest_said
from deniable.queries.planner import Plan, noise, noise_cost, pairs
from deniable.queries.pricing import Asked, PartOf, Price
from deniable.queries.question import Question
from deniable.queries.release import Released, release
from deniable.queries.sizes import Plans, cells, check_cells
from deniable.tables.plan import tables_read
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.bounds import Bounds
    from deniable.queries.engines.base import Engine
    from deniable.queries.engines.report import Registration
    from deniable.queries.frame import Frame
    from deniable.queries.planner import Noise
    from deniable.tables.schema import Table

_SEVERAL: Final = 10
_WIDTHS: Final = tuple(a * 10**n for n in range(1, 7) for a in (1, 2, 5))
"""Round distances at which counts are told off."""

_REFINED: Final = "refined: "
"""What the ledger's words for a second answer begin with."""

ASSUMPTIONS = ("the declared schema was not made from the data, but for bounds that this ledger paid for",)


@final
class Session:
    """Questions about tables, under a budget that cannot be overspent. Made by `deniable.session`.

    Promise: for all neighbours by the session's unit, everything answered is as private as the ledger's guarantee says,
    at any time, however questions and costs were chosen. Threads may share a session.
    """

    __slots__ = (
        "_closed",
        "_engine",
        "_failures",
        "_keeps",
        "_ledger",
        "_lock",
        "_most_cells",
        "_noted",
        "_plans",
        "_registration",
        "_tables",
    )

    def __init__(self, engine: Engine, tables: Mapping[str, Table], ledger: Ledger, *, keeps: bool = False) -> None:
        self._engine, self._tables, self._ledger, self._keeps = engine, dict(tables), ledger, keeps
        self._failures: list[Failure] = []
        self._noted: Callable[[Failure], None] = self._failures.append
        self._plans = Plans(self._tables, ledger.budget)
        self._most_cells: int | None = None
        reports = {name: engine.registered(name) for name in self._tables}
        self._registration = {name: each for name, each in reports.items() if each is not None}
        self._lock, self._closed = threading.Lock(), False

    # -- asking --------------------------------------------------------------------------------------------------------

    def sql(self, question: str, *amounts: Never, **cost: Any) -> Answer:
        """Answer a question in SQL. Say what to spend by one of `epsilon=`, `mu=`, `rho=`, `share=` (of what is left,
        in what the budget adds up: μ², or ε or ρ) or `within=` (how near, at `confidence=`); `delta=` is for keys that
        are not public (else they take a hundredth of what is left for them, and less once much of it is spent).

        The cost is charged before any data is read, and stays charged if the run fails. A question that was answered
        before, at this cost or a higher one, is answered again from the ledger, for nothing.
        """
        return self.ask(question, *amounts, **cost)

    def ask(
        self, question: str | Question, *amounts: Never, key: str | None = None, payer: str | None = None, **cost: Any
    ) -> Answer:
        """Answer a question, in SQL or built from `table(...)`.

        With a `key`, a retry is charged once. With a `payer`, that account of the ledger pays as well.
        """
        made, asked = self._planned(question), Asked.of(amounts, cost)
        # What is left is read from the ledger only where the cost depends on it; whether it fits is decided later.
        depends = asked.share is not None or asked.shares_delta(made)
        left = self._left(payer) if depends else self.budget.limit
        try:
            price = self._price(made, asked, left)
        except BudgetExceeded:  # a share of nothing: any answer that is there is worth more
            stored = self._stored(made)
            if stored is None:
                raise
            return self._again(made, *stored, asked.confidence, payer)
        known = self._known(made, price)
        if known is not None:
            return self._again(made, *known, price.confidence, payer)
        check_cells([made.question], self._most_cells)
        drawn = self._noise(made, price)
        words, rest = _words(question, made), [left]
        entry = self._ledger.reserve_or_replay(
            price.cost,
            question=made.question.hash,
            version=self._version(made.question),
            description=words,
            enough=lambda sealed: self._is_enough(made, sealed, price),
            key=key,
            payer=payer,
            left=rest.append,
        )
        if entry.state is State.SEALED:  # by somebody else meanwhile, or by the first request with this key
            return self._told(made, entry, price.confidence, payer)
        [released] = self._released([(made, drawn, price.cost)], [entry])
        return self._sealed(made, released, entry, price.confidence, rest[-1])

    def recall(
        self, question: str | Question, *, entry: Entry | None = None, confidence: float = 0.95
    ) -> Answer | None:
        """The newest answer that the ledger has of a question, or that of one entry, for nothing; None if none is."""
        made = self._plans.plan(question, self._built(question))
        entry = (
            self._ledger.answer(made.question.hash, version=self._version(made.question)) if entry is None else entry
        )
        if entry is None or entry.question != made.question.hash:
            return None
        read = self._read(made, entry)
        return None if read is None else self._again(made, read, entry, confidence, None)

    def price(self, question: str | Question, *amounts: Never, payer: str | None = None, **cost: Any) -> Price:
        """What `sql` would charge, and how exact it would be. Free: no data is read."""
        return self._price(self._planned(question), Asked.of(amounts, cost), self._left(payer))

    def refine(
        self, answer: Answer, *amounts: Never, text: str | None = None, key: str | None = None,
        payer: str | None = None, **cost: Any,
    ) -> Answer:  # fmt: skip
        """Spend more on a question that was answered: a second answer is merged with the first by inverse variance.

        Under a Gaussian budget nothing is lost: the result is as exact as if all had been spent at once. If the ledger
        has a more exact answer to this question by now, that one is refined, so that no purchase is lost either.
        `text` is what the ledger says was asked; without it, what it said when the answer was bought.
        """
        if not isinstance(answer, Answer):
            raise InvalidParameter("answer", type(answer).__name__, "must be an Answer of this session")
        self._open()
        made = answer.plan
        check_cells([made.question], self._most_cells)
        if answer.budget != self.budget or any(
            self._tables.get(name) != each for name, each in tables_read(made.question.relation).items()
        ):
            raise InvalidParameter("answer", NOTHING, "is about other tables or another budget", "ask it here first")
        if answer.receipt.version != self._version(made.question):
            rule = "is about another version of the data, and the mean of two tables is neither"
            raise InvalidParameter("answer", NOTHING, rule, "ask the question anew: it is a new one now")
        if made.is_picked:
            rule = "is one value that was drawn, and two of them cannot be merged"
            remedy = "ask the question at a larger epsilon: that draws a nearer value"
            raise InvalidParameter("answer", NOTHING, rule, remedy)
        price = self._price(made, Asked.of(amounts, cost), self._left(payer))
        drawn = self._noise(made, price)
        stored, base = self._stored(made), answer.released
        if stored is not None and stored[0].precision.units > base.precision.units:
            base = stored[0]
        bought = self._ledger.charge(answer.receipt.entry) if text is None else None
        said = text if bought is None or bought.question != made.question.hash else bought.description
        words = f"{_REFINED}{_words(said or made.question, made).removeprefix(_REFINED)}"
        hash = made.question.hash
        version = self._version(made.question)
        entry = self._ledger.reserve(
            price.cost, question=hash, description=words, key=key, payer=payer, version=version
        )
        if entry.state is State.SEALED:  # by the first request with this key
            return self._told(made, entry, price.confidence, payer)
        rest = self._left(payer)
        [released] = self._released([(made, drawn, price.cost)], [entry])
        return self._sealed(made, base.merged(released, self.budget), entry, price.confidence, rest)

    def batch(
        self, questions: Sequence[str | Question], *amounts: Never, key: str | None = None,
        payer: str | None = None, **cost: Any,
    ) -> list[Answer]:  # fmt: skip
        """Several questions at once, for one cost that they share: all are paid for, or none.

        Counts and sums of the same rows by coarser and by finer keys help each other: the finer ones are summed up and
        merged with the coarser ones by inverse variance. Questions about rows that are provably disjoint (`WHERE age <
        30`, `WHERE age >= 30`) cost together what one of them costs. A question that stands there twice is asked once;
        one that was answered before, at its share or more, costs nothing. With a `key`, a retry is charged once.
        """
        if isinstance(questions, str) or not questions:
            raise InvalidParameter("questions", NOTHING, "must be a list of at least one question")
        built = [self._built(each) for each in questions]
        check_cells(built, self._most_cells)
        given = [self._plans.plan(*each) for each in zip(questions, built, strict=True)]
        asked, words = Asked.of(amounts, cost), {}
        plans: dict[str, Plan] = {}
        for each, made in zip(questions, given, strict=True):
            if plans.setdefault(made.question.hash, made) is made:
                words[made.question.hash] = _words(each, made)
        shares, helps = batch.shares(list(plans.values()))
        left = self._left(payer)
        try:
            prices = self._prices(plans, asked, shares, left)
        except BudgetExceeded:  # as in `ask`: what was asked before can still be read
            stored = [self._stored(made) for made in given]
            if None in stored:
                raise
            return [
                self._again(made, *each, asked.confidence, payer)
                for made, each in zip(given, stored, strict=True)
                if each is not None
            ]
        known = {name: self._known(made, prices[name]) for name, made in plans.items()}
        new = [name for name, each in known.items() if each is None]
        tasks = [(plans[name], self._noise(plans[name], prices[name]), prices[name].cost) for name in new]
        charges = batch.charges([plans[name] for name in new], [prices[name].cost for name in new])
        entries = self._ledger.reserve_all(
            [
                (charge, name, words[name], self._version(plans[name].question))
                for charge, name in zip(charges, new, strict=True)
            ],
            key=key,
            payer=payer,
        )
        rest = self._left(payer)
        released = {name: each[0] for name, each in known.items() if each is not None}
        released |= dict(zip(new, self._released(tasks, entries), strict=True))
        names = list(plans)
        for help in helps:
            if names[help.coarse] in new:
                merged = batch.helped(help, [released[name] for name in names], self.budget)
                released[names[help.coarse]] = merged
        paid = dict(zip(new, entries, strict=True))
        for name, entry in paid.items():
            self._ledger.seal(entry, released[name].to_bytes())
        answers = []
        for made in given:  # one question may stand there twice, under other names of its columns
            name = made.question.hash
            old = known[name]
            answers.append(
                self._answer(made, released[name], paid[name], asked.confidence, rest, replayed=False)
                if old is None
                else self._again(made, *old, asked.confidence, payer)
            )
        return answers

    def bounds(
        self, column: str, table: str | None = None, *amounts: Never, cover: float = 0.99, key: str | None = None,
        payer: str | None = None, **cost: Any,
    ) -> Bounds:  # fmt: skip
        """Buy bounds for a number, a date or a timestamp that has none, such that about `cover` of the rows are within.

        One question is asked, a noisy count by public bins, and paid for as by `sql`; the bounds are read off it.
        """
        from deniable.queries import bounds

        share = bounds.checked_cover(cover)
        name, question = bounds.question(column, table, self._tables)
        return bounds.read(name, column, self.ask(question, *amounts, key=key, payer=payer, **cost), share)

    def price_bounds(
        self, column: str, table: str | None = None, *amounts: Never, payer: str | None = None, **cost: Any
    ) -> Price:
        """What `bounds` would charge. Free: no data is read."""
        from deniable.queries import bounds

        return self.price(bounds.question(column, table, self._tables)[1], *amounts, payer=payer, **cost)

    def table(self, name: str) -> Frame:
        """A table, for questions in Python: `s.table("visits").filter(...).group_by(...).agg(...)`."""
        from deniable.queries.frame import Frame

        return Frame.of(name, self._tables)

    def explain(self, question: str | Question | Price | Answer) -> str:
        """The plan of a question: each step with its stability, each statistic with its sensitivity, and the SQL that
        the engine runs; of a price also the noise, of an answer that of its question. Free: no data is read.
        """
        from deniable.queries.explain import explained

        self._open()
        if isinstance(question, Price):
            made, drawn = question.plan, noise(question.plan, question.budget, question.cost)
            return explained(made, drawn, self._engine.sql(made.collect))
        made = question.plan if isinstance(question, Answer) else self._planned(question)
        return explained(made, None, self._engine.sql(made.collect))

    # -- the account ---------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """The schemas, by name; print it to see the columns. All of it is public."""
        return Tables(self._tables)

    @property
    def registration(self) -> Mapping[str, Registration]:
        """What became of the rows of each table, exactly. NOT PRIVATE: for the owner alone, see `Registration`."""
        from deniable.queries.engines.report import Registrations

        return Registrations(self._registration)

    @property
    def budget(self) -> Budget:
        """The budget, fixed when the ledger was made."""
        return self._ledger.budget

    @property
    def ledger(self) -> Ledger:
        """Every entry, one after the other."""
        return self._ledger

    @property
    def spent(self) -> Curve:
        """What was promised so far, as a curve."""
        return self._ledger.spent

    @property
    def remaining(self) -> Remaining:
        """What is left, in the budget's currency and in questions."""
        return Remaining(self.budget, self._ledger.remaining, self._ledger.unit)

    @property
    def guarantee(self) -> Guarantee:
        """What holds about everything that is ever answered under this budget."""
        return self._ledger.guarantee

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The runs that could not be finished and were answered as if the tables were empty. For the owner alone: that
        one of them failed can depend on a single person. So show neither them nor the session to an analyst.
        """
        return tuple(self._failures)

    def report_failures(self, to: Callable[[Failure], None]) -> None:
        """From now on tell them to this function, instead of keeping them here."""
        self._noted = to

    def limit_answers(self, *, cells: int) -> None:
        """From now on refuse answers of more cells (groups times columns). Larger ones that are there can be read."""
        self._most_cells = cells

    def close(self) -> None:
        """Forget the tables. The ledger's file, if any, stays; a `Ledger` that was given stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._engine.close()
                if not self._keeps:
                    self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Session on {', '.join(sorted(self._tables))}; left {self._ledger.remaining.describe_rest(self.budget)}>"
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._closed:
            raise InvalidOperation("this session is closed; open another, on the same ledger if it has a file")

    def _built(self, question: str | Question) -> Question:
        self._open()
        return self._plans.question(question)

    def _planned(self, question: str | Question) -> Plan:
        """The plan of a question whose answer is not too large, or that was answered when it was not."""
        built = self._built(question)
        large = self._most_cells is not None and cells(built) > self._most_cells
        if large and self._ledger.answer(built.hash, version=self._version(built)) is None:
            check_cells([built], self._most_cells)
        return self._plans.plan(question, built)

    def _version(self, question: Question) -> str | None:
        """Which version of the data a question is about: of all tables that it reads. None if an engine has none."""
        reports = [self._registration.get(name) for name in tables_read(question.relation)]
        versions = sorted({(each.table, each.version) for each in reports if each is not None})
        if any(each is None for each in reports):
            return None
        return versions[0][1] if len(versions) == 1 else sha256(repr(versions).encode()).hexdigest()[:32]

    def _left(self, payer: str | None) -> Cost:
        return self._ledger.remaining if payer is None else self._ledger.left(payer)

    def _price(self, made: Plan, asked: Asked | PartOf, left: Cost) -> Price:
        cost = asked.cost(made, self.budget, left)
        return Price(made, self.budget, cost, left, asked.confidence, asked.shares_delta(made))

    def _prices(
        self, plans: Mapping[str, Plan], asked: Asked, shares: Sequence[Fraction], left: Cost
    ) -> dict[str, Price]:
        """What each question of a batch costs. Those that share δ share what the ones before them leave."""
        found, rest = {}, left
        for (name, made), share in zip(plans.items(), shares, strict=True):
            found[name] = self._price(made, asked.part(share), rest)
            if found[name].shares_delta:
                rest = Cost(rest.units, rest.delta_units - found[name].cost.delta_units)
        return found

    def _stored(self, made: Plan) -> tuple[Released, Entry] | None:
        """What the ledger has of this question."""
        entry = self._ledger.answer(made.question.hash, version=self._version(made.question))
        read = None if entry is None else self._read(made, entry)
        return None if entry is None or read is None else (read, entry)

    def _known(self, made: Plan, price: Price) -> tuple[Released, Entry] | None:
        """The same, if it is as exact as what is asked."""
        stored = self._stored(made)
        return stored if stored is not None and price.is_met_by(stored[0].precision) else None

    def _read(self, made: Plan, entry: Entry) -> Released | None:
        """What a sealed entry holds."""
        if entry.answer is None:
            return None
        try:
            read = Released.from_bytes(entry.answer, made)
        except UnreadableRecord:  # by an older version: it must be asked anew
            return None
        return read if read.paired == bool(pairs(made, self.budget)) else None

    def _is_enough(self, made: Plan, entry: Entry, price: Price) -> bool:
        read = self._read(made, entry)
        return read is not None and price.is_met_by(read.precision)

    def _noise(self, made: Plan, price: Price) -> Noise:
        """The noise of a price, made before anything is charged: whatever is wrong with it, is wrong in public."""
        drawn = noise(made, self.budget, price.cost)
        if not noise_cost(drawn, self.budget).units <= price.cost.units:
            raise AssertionError("noise that costs more than was charged")
        return drawn

    def _released(self, tasks: Sequence[tuple[Plan, Noise, Cost]], entries: Sequence[Entry]) -> list[Released]:
        """Everything that was paid for, or nothing: a failure closes all entries, and they stay charged."""
        try:
            return [self._run(*task, entry) for task, entry in zip(tasks, entries, strict=True)]
        except EngineFailed as failed:
            code = failed.code
        except Exception:  # a bug: what it says may hold data, so nobody is told
            code = "engine"
        for entry in entries:
            self._ledger.fail(entry, code)
        raise EngineFailed(code, "what was charged stays charged")

    def _run(self, made: Plan, drawn: Noise, cost: Cost, entry: Entry) -> Released:
        """One question. A run that cannot be finished is answered as if the tables were empty, after a fixed time.

        That a run failed, and when, can depend on one person, so it must not be seen: default values and fixed times as
        in Haeberlen, Pierce & Narayan (USENIX Security 2011). What the empty tables cannot answer either fails whoever
        is there, and may be told; so may a source that is gone.
        """
        with self._engine.turn():  # the fixed time begins with the run, however long it waited for its turn
            began = monotonic()
            try:
                return release(made, drawn, cost, self._engine.collect(made.collect))
            except EngineFailed as failed:
                code = failed.code
            except InvalidOperation:  # the session was closed meanwhile
                raise
            except Exception:  # a bug, which a person's data may have brought out
                code = "engine"
            if code == "source":
                raise EngineFailed(code)
            released = release(made, drawn, cost, self._engine.nothing(made.collect))
        patience = self._engine.patience
        if patience is not None:
            sleep(max(0.0, began + patience - monotonic()))
        self._noted(Failure(entry.charge, code))
        return released

    def _told(self, made: Plan, sealed: Entry, confidence: float, payer: str | None) -> Answer:
        """What a sealed entry says, again."""
        assert sealed.answer is not None
        return self._again(made, Released.from_bytes(sealed.answer, made), sealed, confidence, payer)

    def _again(self, made: Plan, released: Released, sealed: Entry, confidence: float, payer: str | None) -> Answer:
        assert sealed.closes is not None
        entry = self._ledger.entry(sealed.closes)
        assert entry is not None
        return self._answer(made, released, entry, confidence, self._left(payer), replayed=True)

    def _sealed(self, made: Plan, released: Released, entry: Entry, confidence: float, rest: Cost) -> Answer:
        self._ledger.seal(entry, released.to_bytes())
        return self._answer(made, released, entry, confidence, rest, replayed=False)

    def _answer(
        self, made: Plan, released: Released, entry: Entry, confidence: float, rest: Cost, *, replayed: bool
    ) -> Answer:
        if made.totals is not None and not released.picked:  # by an earlier version, from running totals
            made = made.totals
        # All of the receipt is from before any data was read: when and after whom a run ended depends on the data.
        receipt = Receipt(
            entry.charge, made.question.hash, entry.cost, rest, self.budget, replayed, entry.time, entry.version
        )
        promise = Guarantee(self.budget.curve(released.cost), self._ledger.unit, assumptions=ASSUMPTIONS)
        return Answer(made, released, self.budget, promise, receipt, confidence)


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A run that could not be finished, for the owner: the charge, as receipts number it, and one of the closed
    codes.
    """

    entry: int
    code: str


@final
class Tables(dict[str, "Table"]):
    """Schemas by name, printed as a list of columns with what is public about each."""

    def __repr__(self) -> str:
        lines: list[str] = []
        for name, table in self.items():
            whose = "public" if table.unit is None else f"protects {table.unit.describe()}"
            lines += [f"{name}: {whose}", *listed(dict(table.columns))]
        return "\n".join(lines)

    __str__ = __repr__


@final
@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a budget."""

    budget: Budget
    cost: Cost
    unit: Unit

    def counts(self, *, within: float, confidence: float = 0.95) -> int:
        """How many more counts of rows could be asked, each this near to the truth."""
        from deniable.queries.pricing import count_cost

        return self.cost // count_cost(self.budget, self.unit, within, confidence)

    def yardstick(self) -> tuple[int, int]:
        """(how near, how many): counts at the nearest round distance, from ±10 on, of which ten or more can be asked.

        The one measure of "about so many more" everywhere. If there is hardly anything left, the widest that is told.
        """
        for within in _WIDTHS:
            if (found := self.counts(within=within)) >= _SEVERAL:
                return within, found
        return _WIDTHS[-1], self.counts(within=_WIDTHS[-1])

    def said(self) -> str:
        """The same in words: "about 12 more counts at ±50"."""
        within, counts = self.yardstick()
        return f"about {counts:,} more count{'' if counts == 1 else 's'} at ±{within:,}" if counts else "no more counts"

    def __str__(self) -> str:
        return f"{rest_said(self.cost, self.budget)}: {self.said()}"

    __repr__ = __str__


def _words(question: object, made: Plan) -> str:
    """What the ledger says was asked: the analyst's own text, or the tables and measures. Both are public."""
    if isinstance(question, str):
        return " ".join(question.split())[:500]
    measures = ", ".join(f"{each.function}" for each in made.question.measures)
    return f"{measures} of {', '.join(table.name for table in made.question.relation.tables)}"
