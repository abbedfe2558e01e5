"""A session: tables, a budget and a ledger. Questions go in, noisy answers come out, and nothing is spent twice."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

from deniable.errors import NOTHING, EngineFailed, InvalidOperation, InvalidParameter
from deniable.ledger import Budget, Cost, Entry, Ledger
from deniable.queries import batch
from deniable.queries.answers import Answer, Receipt
from deniable.queries.planner import Plan, noise, plan
from deniable.queries.pricing import Asked, PartOf, Price
from deniable.queries.question import Question
from deniable.queries.release import Released, release
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.engines.base import Engine
    from deniable.queries.frame import Frame
    from deniable.tables.schema import Table

ASSUMPTIONS = ("the declared schema was not made from the data",)


@final
class Session:
    """Questions about tables, under a budget that cannot be overspent. Made by `deniable.session`.

    Promise: for all neighbours by the session's unit, everything answered is as private as the ledger's guarantee says,
    at any time, however questions and costs were chosen. Threads may share a session.
    """

    __slots__ = ("_closed", "_engine", "_ledger", "_lock", "_plans", "_tables")

    def __init__(self, engine: Engine, tables: Mapping[str, Table], ledger: Ledger) -> None:
        self._engine, self._tables, self._ledger = engine, dict(tables), ledger
        self._plans: dict[str, Plan] = {}
        self._lock, self._closed = threading.Lock(), False

    # -- asking --------------------------------------------------------------------------------------------------------

    def sql(self, question: str, **cost: Any) -> Answer:
        """Answer a question in SQL. Say what to spend by one of `epsilon=`, `mu=`, `rho=`, `share=` (of what is left)
        or `within=` (how near, at `confidence=`); `delta=` is for keys that are not public.

        The cost is charged before any data is read, and stays charged if the run fails. A question that was answered
        before, at this cost or a higher one, is answered again from the ledger, for nothing.
        """
        return self.ask(question, **cost)

    def ask(self, question: str | Question | Frame, **cost: Any) -> Answer:
        """Answer a question, in SQL or built from `table(...)`."""
        made = self._planned(question)
        asked = Asked(**cost)
        price = self._price(made, asked)
        old = self._replayed(made, price)
        if old is not None:
            return old
        entry = self._ledger.reserve(price.cost, question=made.question.hash, description=_words(question, made))
        return self._sealed(made, self._release(made, price, entry), entry, price.confidence)

    def price(self, question: str | Question | Frame, **cost: Any) -> Price:
        """What `sql` would charge, and how exact it would be. Free: no data is read."""
        return self._price(self._planned(question), Asked(**cost))

    def refine(self, answer: Answer, **cost: Any) -> Answer:
        """Spend more on a question that was answered: a second answer is merged with the first by inverse variance.

        Under a Gaussian budget nothing is lost: the result is as exact as if all had been spent at once.
        """
        if not isinstance(answer, Answer):
            raise InvalidParameter("answer", type(answer).__name__, "must be an Answer of this session")
        self._open()
        made, asked = answer.plan, Asked(**cost)
        price = self._price(made, asked)
        words = f"refined: {_words(made.question, made)}"
        entry = self._ledger.reserve(price.cost, question=made.question.hash, description=words)
        merged = answer.released.merged(self._release(made, price, entry), self.budget)
        return self._sealed(made, merged, entry, price.confidence)

    def batch(self, questions: Sequence[str | Question | Frame], **cost: Any) -> list[Answer]:
        """Several questions at once, for one cost that they share: all are paid for, or none.

        Counts of the same rows by coarser and by finer keys help each other: the finer ones are summed up and merged
        with the coarser ones by inverse variance.
        """
        if isinstance(questions, str) or not questions:
            raise InvalidParameter("questions", NOTHING, "must be a list of at least one question")
        plans, asked = [self._planned(each) for each in questions], Asked(**cost)
        shares, helps = batch.shares(plans)
        prices = [self._price(made, asked.part(share)) for made, share in zip(plans, shares, strict=True)]
        asks = [
            (price.cost, made.question.hash, _words(each, made))
            for each, made, price in zip(questions, plans, prices, strict=True)
        ]
        entries = self._ledger.reserve_all(asks)
        released = [self._release(*each) for each in zip(plans, prices, entries, strict=True)]
        for help in helps:
            released[help.coarse] = batch.helped(help, plans, released, self.budget)
        return [
            self._sealed(made, each, entry, asked.confidence)
            for made, each, entry in zip(plans, released, entries, strict=True)
        ]

    def table(self, name: str) -> Frame:
        """A table, for questions in Python: `s.table("visits").filter(...).group_by(...).agg(...)`."""
        from deniable.queries.frame import Frame

        if name not in self._tables:
            raise InvalidParameter("name", name, f"must be one of {', '.join(sorted(self._tables))}")
        return Frame.of(self._tables[name], self._tables)

    def explain(self, question: str | Question | Frame) -> str:
        """The plan of a question: each step with its stability, each statistic with its sensitivity, and the SQL that
        the engine runs. Free: no data is read.
        """
        from deniable.queries.explain import explained

        made = self._planned(question)
        return explained(made, self._engine.sql(made.collect))

    # -- the account ---------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> dict[str, Table]:
        """The schemas, by name. All of it is public."""
        return dict(self._tables)

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

    def close(self) -> None:
        """Forget the tables. The ledger's file, if any, stays."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._engine.close()
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

    def _planned(self, question: str | Question | Frame) -> Plan:
        self._open()
        if isinstance(question, str):
            known = self._plans.get(question)
            if known is None:
                from deniable.queries.sql import parse

                known = plan(parse(question, self._tables))
                if len(self._plans) >= 1000:
                    self._plans.clear()
                self._plans[question] = known
            return known
        if isinstance(question, Question):
            return plan(question)
        from deniable.queries.frame import Frame

        if isinstance(question, Frame):
            return plan(question.question())
        raise InvalidParameter("question", type(question).__name__, "must be SQL, or built from table(...)")

    def _price(self, made: Plan, asked: Asked | PartOf) -> Price:
        left = self._ledger.remaining
        return Price(made, self.budget, asked.cost(made, self.budget, left), left, asked.confidence)

    def _replayed(self, made: Plan, price: Price) -> Answer | None:
        entry = self._ledger.answer(made.question.hash)
        if entry is None or entry.answer is None:
            return None
        known = Released.from_bytes(entry.answer, made)
        if not price.cost <= known.precision:
            return None
        return self._answer(made, known, entry, price.confidence, replayed=True)

    def _release(self, made: Plan, price: Price, entry: Entry) -> Released:
        drawn = noise(made, self.budget, price.cost)
        if not self.budget.price(drawn.curve).units <= price.cost.units:
            raise AssertionError("noise that costs more than was charged")
        try:
            return release(made, drawn, price.cost, self._engine.collect(made.collect))
        except EngineFailed as failed:
            self._ledger.fail(entry, failed.code)
            raise

    def _sealed(self, made: Plan, released: Released, entry: Entry, confidence: float) -> Answer:
        sealed = self._ledger.seal(entry, released.to_bytes())
        return self._answer(made, released, sealed, confidence, replayed=False)

    def _answer(self, made: Plan, released: Released, entry: Entry, confidence: float, *, replayed: bool) -> Answer:
        receipt = Receipt(
            entry.number,
            made.question.hash,
            entry.cost,
            entry.cost.describe(self.budget),
            self._ledger.remaining.describe_rest(self.budget),
            replayed,
        )
        promise = Guarantee(self.budget.curve(released.cost), self._ledger.unit, assumptions=ASSUMPTIONS)
        return Answer(made, released, self.budget, promise, receipt, confidence)


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

    def __str__(self) -> str:
        left = self.cost.describe_rest(self.budget)
        rough = 20 * self.unit.rows
        return f"{left}: about {self.counts(within=rough):,} counts at ± {rough}"

    __repr__ = __str__


def _words(question: object, made: Plan) -> str:
    """What the ledger says was asked: the analyst's own text, or the tables and measures. Both are public."""
    if isinstance(question, str):
        return " ".join(question.split())[:500]
    measures = ", ".join(f"{each.function}" for each in made.question.measures)
    return f"{measures} of {', '.join(table.name for table in made.question.relation.tables)}"
