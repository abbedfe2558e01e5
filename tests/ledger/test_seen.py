"""What one transaction has read may serve the next; what anybody else wrote in between must be seen all the same."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from deniable.errors import BudgetExceeded, LedgerDamaged, LedgerUnavailable
from deniable.ledger import Budget, Cost, Ledger
from deniable.ledger.entries import State, Terms
from deniable.ledger.stores import entry_rows, store
from deniable.ledger.stores.store import Transaction
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


def test_rows_that_were_read_before_are_not_remembered_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_rows, "_MOST_KNOWN", 10)
    monkeypatch.setattr(store, "_MOST_PLACED", 10)
    entry_rows._READ.clear()
    with opened(tmp_path / "ledger") as one, opened(tmp_path / "ledger") as other:
        for number in range(30):
            entry = (one, other)[number % 2].reserve(Cost(1), question="0" * 64, description=str(number))
            (other, one)[number % 2].seal(entry, b"1" * (5000 if number % 3 else 10))
            assert len(entry_rows._READ) <= 10
            assert max(len(each._store._placed) for each in (one, other)) <= 10
        assert not any(len(each.answer or b"") > 4096 for _, each in entry_rows._READ.values())
        assert one.verify() == other.verify()


def test_an_entry_that_is_changed_and_put_back_is_as_whole_as_it_was(tmp_path: Path) -> None:
    """It is known by all of its row: what was found whole before says nothing of a row that differs in one sign."""
    with opened(tmp_path / "ledger") as ledger:
        ledger.grant("anna", BUDGET.limit, by="owner")
        spend(ledger, 1, "anna")
        shell = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
        shell.execute("DROP TRIGGER never_edit")
        for column, value in (("time", "2020-01-01T00:00:00Z"), ("description", "another"), ("units", "1")):
            [before] = shell.execute(f"SELECT {column} FROM entries WHERE number = 1").fetchone()
            shell.execute(f"UPDATE entries SET {column} = ? WHERE number = 1", (value,))
            for _ in range(2):
                with pytest.raises(LedgerDamaged, match="entry 1"):
                    ledger.left("anna")
            shell.execute(f"UPDATE entries SET {column} = ? WHERE number = 1", (before,))
            ledger.left("anna")
        shell.close()


def test_a_replay_is_told_by_one_look(tmp_path: Path) -> None:
    """The answer, who paid for it, and what is left: as three looks tell them."""
    with opened(tmp_path / "ledger") as ledger:
        ledger.grant("anna", BUDGET.cost(epsilon=0.5), by="owner")
        for number in (1, 2, 1):
            spend(ledger, number, "anna")
        for number in (1, 2):
            asked = sha256(str(number).encode()).hexdigest()
            for payer in ("anna", None, "bob"):
                found = ledger.replay(asked, payer=payer)
                assert found is not None
                assert found.sealed == ledger.answer(asked)
                assert found.sealed.closes is not None
                assert found.charge == ledger.entry(found.sealed.closes)
                assert found.left == (ledger.remaining if payer is None else ledger.left(payer))
        assert ledger.replay(asked, version="another") is ledger.replay("0" * 64) is None


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
