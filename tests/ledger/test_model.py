"""Random histories against a model that fits on one screen, with the ledger closed and reopened at will."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from deniable.errors import BudgetExceeded, InvalidParameter
from deniable.ledger import Budget, Cost, Entry, Ledger, State
from deniable.units import Unit
from tests.postgres import Postgres

BUDGETS = [
    Budget.pure(epsilon=1, delta=1e-6),
    Budget(epsilon=1, delta=1e-6),
    Budget.gaussian(mu="1e-3"),
    Budget.zcdp(rho="1/3", delta="1e-29"),
]
questions = st.integers(0, 3).map(lambda number: f"{number:064x}")
shares = st.sampled_from([Fraction(n, 7) for n in range(10)])


class LedgerMachine(RuleBasedStateMachine):
    """The model: two numbers left, a list of (state, question, cost), the newest answer to each question."""

    open_entries = Bundle("open_entries")

    shared = False

    @initialize(budget=st.sampled_from(BUDGETS), filed=st.booleans())
    def start(self, budget: Budget, filed: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.place() if filed or self.shared else None
        self.budget = budget
        self.ledgers = [self.opened()]
        self.left = [budget.limit.units, budget.limit.delta_units]
        self.lines: list[tuple[str, str, Cost]] = []
        self.answers: dict[str, bytes] = {}
        self.keys: dict[str, tuple[str, Cost, int]] = {}

    def place(self) -> str | Path:
        return Path(self.folder.name) / "ledger"

    def opened(self) -> Ledger:
        return Ledger.open(self.path, budget=self.budget, unit=Unit.row(), dataset="d")

    @property
    def ledger(self) -> Ledger:
        self.ledgers.append(self.ledgers.pop(0))  # another handle each time
        return self.ledgers[0]

    def cost(self, share: Fraction, delta_share: Fraction) -> Cost:
        limit = self.budget.limit
        return Cost(int(limit.units * share), int(limit.delta_units * delta_share))

    def fits(self, *costs: Cost) -> bool:
        return (
            sum(cost.units for cost in costs) <= self.left[0]
            and sum(cost.delta_units for cost in costs) <= self.left[1]
        )

    def charge(self, question: str, cost: Cost) -> None:
        self.left = [self.left[0] - cost.units, self.left[1] - cost.delta_units]
        self.lines.append((State.RESERVED, question, cost))

    @rule(target=open_entries, question=questions, share=shares, delta_share=shares)
    def reserve(self, question: str, share: Fraction, delta_share: Fraction) -> Entry | None:
        cost = self.cost(share, delta_share)
        if not self.fits(cost):
            with pytest.raises(BudgetExceeded):
                self.ledger.reserve(cost, question=question, description="x")
            return None
        self.charge(question, cost)
        return self.ledger.reserve(cost, question=question, description="x")

    @rule(question=questions, share=shares, key=st.sampled_from("ab"))
    def reserve_by_key(self, question: str, share: Fraction, key: str) -> None:
        cost = self.cost(share / 10, Fraction(0))
        if key in self.keys:
            with pytest.raises(InvalidParameter):  # never sealed, so there is nothing to give
                self.ledger.reserve(cost, question=question, description="x", key=key)
        elif self.fits(cost):
            self.charge(question, cost)
            entry = self.ledger.reserve(cost, question=question, description="x", key=key)
            self.keys[key] = (question, cost, entry.number)

    @rule(asks=st.lists(st.tuples(questions, shares), max_size=4))
    def reserve_all(self, asks: list[tuple[str, Fraction]]) -> None:
        priced = [(self.cost(share / 3, Fraction(0)), question, "x") for question, share in asks]
        if self.fits(*(cost for cost, _, _ in priced)):
            for cost, question, _ in priced:
                self.charge(question, cost)
            assert len(self.ledger.reserve_all(priced)) == len(priced)
        else:
            with pytest.raises(BudgetExceeded):
                self.ledger.reserve_all(priced)

    @rule(entry=consumes(open_entries), answer=st.binary(max_size=9))
    def seal(self, entry: Entry | None, answer: bytes) -> None:
        if entry is not None:
            self.ledger.seal(entry, answer)
            self.lines.append((State.SEALED, entry.question, entry.cost))
            self.answers[entry.question] = answer
            with pytest.raises(InvalidParameter):
                self.ledger.seal(entry, answer)

    @rule(entry=consumes(open_entries))
    def fail(self, entry: Entry | None) -> None:
        if entry is not None:
            self.ledger.fail(entry, "failed")
            self.lines.append((State.FAILED, entry.question, entry.cost))

    @rule()
    def reopen(self) -> None:
        if self.path is not None:
            self.ledgers.pop().close()
            self.ledgers += [self.opened() for _ in range(2 - len(self.ledgers))]

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not hasattr(self, "ledgers"):
            return
        ledger = self.ledger
        assert ledger.remaining == Cost(*self.left)
        assert ledger.charged + ledger.remaining == self.budget.limit
        assert [(entry.state, entry.question, entry.cost) for entry in ledger.entries()] == self.lines
        for number in range(4):
            found = ledger.answer(f"{number:064x}")
            assert (found and found.answer) == self.answers.get(f"{number:064x}")

    def teardown(self) -> None:
        if hasattr(self, "ledgers"):
            newest = self.ledger.verify()
            assert (newest.number if newest else 0) == len(self.lines)
            for ledger in self.ledgers:
                ledger.close()
            self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestHistories = LedgerMachine.TestCase


@pytest.mark.slow
def test_many_histories() -> None:
    run_state_machine_as_test(LedgerMachine, settings=settings(max_examples=80, stateful_step_count=25, deadline=None))


class DatabaseMachine(LedgerMachine):
    """The same in a shared database."""

    shared = True

    def place(self) -> str | Path:
        return f"sqlite:///{self.folder.name}/ledgers.db"


DatabaseMachine.TestCase.settings = settings(max_examples=5, stateful_step_count=15, deadline=None)
TestHistoriesInADatabase = DatabaseMachine.TestCase


@pytest.mark.postgres
def test_histories_on_postgres(postgres: Postgres) -> None:
    class PostgresMachine(LedgerMachine):
        shared = True

        def place(self) -> str | Path:
            return postgres.database()

    run_state_machine_as_test(PostgresMachine, settings=settings(max_examples=5, stateful_step_count=15, deadline=None))
