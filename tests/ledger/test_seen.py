"""What one transaction has read may serve the next; what anybody else wrote in between must be seen all the same."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from deniable.errors import BudgetExceeded, LedgerDamaged, LedgerUnavailable
from deniable.ledger import Budget, Cost, Ledger
from deniable.ledger.entries import State, Terms
from deniable.ledger.stores import Transaction
from deniable.units import Unit

BUDGET = Budget.pure(epsilon=1)
TENTH = BUDGET.cost(epsilon=0.1)


def opened(path: Path) -> Ledger:
    return Ledger.open(path, budget=BUDGET, unit=Unit.person("id", rows=1), dataset="visits")


def spend(ledger: Ledger, number: int, payer: str | None = None, cost: Cost = TENTH) -> None:
    question = sha256(str(number).encode()).hexdigest()
    entry = ledger.reserve(cost, question=question, description="a question", payer=payer)
    ledger.seal(entry, b"1")


def test_two_handles_that_take_turns_count_what_the_other_spent(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as one, opened(tmp_path / "ledger") as other:
        one.grant("anna", BUDGET.limit, by="owner")
        for number in range(10):
            spend((one, other)[number % 2], number, "anna")
            assert one.left("anna") == other.left("anna") == Cost(TENTH.units * (9 - number), 0)
        for each in (one, other):
            with pytest.raises(BudgetExceeded):
                spend(each, 10)
            each.verify()


def test_a_limit_that_another_handle_lowers_holds_at_once(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as one, opened(tmp_path / "ledger") as other:
        one.grant("anna", BUDGET.limit, by="owner")
        spend(one, 1, "anna")
        other.grant("anna", Cost(0, 0), by="owner", reason="revoked")
        with pytest.raises(BudgetExceeded):
            spend(one, 2, "anna")
        assert one.left("anna") == Cost(0, 0)
        one.grant("anna", BUDGET.limit, by="owner")
        spend(one, 2, "anna")
        spend(other, 3, "anna")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET spent_units = '0' WHERE number = (SELECT max(number) FROM entries)",
        "UPDATE entries SET more = replace(more, '\"anna\"', '\"bob\"') WHERE account IS NOT NULL",
        "UPDATE entries SET previous = hash WHERE number = 1",
        "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
        "UPDATE head SET number = number - 1",
    ],
    ids=["newest", "terms", "first", "removed", "head"],
)
def test_what_is_changed_in_the_file_between_two_questions_is_found(tmp_path: Path, change: str) -> None:
    with opened(tmp_path / "ledger") as ledger:
        ledger.grant("anna", BUDGET.limit, by="owner")
        spend(ledger, 1, "anna")
        ledger.left("anna")
        shell = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
        for trigger in ("never_edit", "never_delete"):
            shell.execute(f"DROP TRIGGER {trigger}")
        shell.execute(change)
        shell.close()
        with pytest.raises(LedgerDamaged):
            spend(ledger, 2, "anna")
        with pytest.raises(LedgerDamaged):
            ledger.left("anna")


def test_what_is_left_is_told_by_the_transaction_that_charges(tmp_path: Path) -> None:
    question = sha256(b"1").hexdigest()
    with opened(tmp_path / "ledger") as ledger:
        ledger.grant("anna", BUDGET.cost(epsilon=0.5), by="owner")
        told: list[Cost] = []
        ask = {"question": question, "description": "a question", "left": told.append}
        entry = ledger.reserve_or_replay(TENTH, payer="anna", **ask)
        assert told == [ledger.left("anna")]
        ledger.seal(entry, b"1")
        ledger.reserve_or_replay(TENTH, payer="anna", **ask)  # replayed: nothing is charged, nothing is told
        assert len(told) == 1
        ledger.reserve_or_replay(TENTH, **{**ask, "question": sha256(b"2").hexdigest()})
        assert told[1:] == [ledger.remaining]


@pytest.mark.parametrize("place", ["file", "memory"])
def test_what_was_undone_after_it_was_written_is_not_remembered(tmp_path: Path, place: str) -> None:
    """A disk that is full when it is to be kept: nothing was spent, no limit was set, and the next question fits."""
    path = tmp_path / "ledger" if place == "file" else None
    with Ledger.open(path, budget=BUDGET, unit=Unit.person("id", rows=1), dataset="visits") as ledger:
        ledger.grant("anna", BUDGET.limit, by="owner")
        spend(ledger, 1, "anna")

        def undone(transaction: Transaction) -> None:
            newest = transaction.spent()
            paid = {"cost": TENTH, "spent": newest + TENTH, "payer": "anna", "payer_spent": newest + TENTH}
            transaction.append(state=State.RESERVED, question="0" * 64, description="never kept", **paid)
            terms = Terms(account="anna", limit=Cost(0, 0), window=None, by="owner")
            transaction.append(state=State.GRANTED, description="never kept", spent=newest + TENTH, terms=terms)
            raise LedgerUnavailable("the disk is full", "make room")

        with pytest.raises(LedgerUnavailable):
            ledger._store.write(undone)
        assert ledger.left("anna") == Cost(TENTH.units * 9, 0)
        for number in range(2, 11):
            spend(ledger, number, "anna")
        assert ledger.left("anna") == Cost(0, 0)
        with pytest.raises(BudgetExceeded):
            spend(ledger, 11, "anna")
        ledger.verify()
