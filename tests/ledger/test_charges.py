"""What receipts and histories tell of a run that is still going on, or ended late: nothing that its data decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deniable.errors import LedgerDamaged
from deniable.ledger import Budget, Entry, Ledger, State, keys, verify_export
from deniable.ledger.stores import store
from tests.ledger.test_ledger import UNIT, ask

OLDER = Path(__file__).with_name("before_charges.jsonl")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_700_000_000.0]
    monkeypatch.setattr(store, "clock", lambda: now[0])
    return now


def opened(place: str | Path | None) -> Ledger:
    return Ledger.open(place, budget=Budget.pure(epsilon=1, delta=1e-6), unit=UNIT, dataset="visits")


def test_the_number_of_a_charge_does_not_tell_whether_another_run_has_ended(place: str | Path | None) -> None:
    with opened(place) as ledger:
        first = ask(ledger, number=1)
        ledger.seal(first, b"1")
        after_it = ask(ledger, number=2)
        ledger.grant("ana", ledger.budget.cost(epsilon=0.5), by="owner")
        beside_it = ask(ledger, number=3)
        ledger.seal(beside_it, b"3")
        ledger.fail(after_it, "engine")
        last = ask(ledger, number=4)
        assert [each.charge for each in (first, after_it, beside_it, last)] == [1, 2, 3, 4]
        assert [ledger.charge(each) for each in (1, 2, 3, 4, 5)] == [first, after_it, beside_it, last, None]
        assert ledger.verify() is not None


@pytest.mark.parametrize("close", [lambda le, e: le.seal(e, b"1"), lambda le, e: le.fail(e, "engine")])
def test_the_time_at_which_a_run_ended_is_not_written(
    place: str | Path | None, clock: list[float], close: Callable[[Ledger, Entry], Entry]
) -> None:
    with opened(place) as ledger:
        asked = ask(ledger)
        clock[0] += 67
        assert close(ledger, asked).time == asked.time
        clock[0] += 1
        assert ask(ledger, number=2).time > asked.time
        clock[0] -= 3600  # a clock that is set back
        assert ledger.verify() is not None


def test_one_question_after_the_other_leaves_the_same_history_however_long_they_took(
    clock: list[float], tmp_path: Path
) -> None:
    """Compared without what is random: the serial number, and so the hashes."""

    def history(*took: float) -> list[tuple[object, ...]]:
        clock[0] = 1_700_000_000.0
        with opened(None) as ledger:
            for number, seconds in enumerate(took, 1):
                entry = ask(ledger, number=number)
                clock[0] += seconds
                ledger.seal(entry, b"0")
                clock[0] = 1_700_000_000.0 + 100 * number
            ledger.export(tmp_path / "export.jsonl")
            verify_export(tmp_path / "export.jsonl")
            return [(each.number, each.time, each.state, each.charge) for each in ledger.entries()]

    assert history(0.1, 0.2, 0.1) == history(0.1, 67.0, 0.1)


def test_a_history_from_before_charges_were_counted_still_holds() -> None:
    assert verify_export(OLDER).entries == 6


def test_a_ledger_from_before_charges_were_counted_goes_on_after_its_last_number(
    place: str | Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no number of a receipt that is out there means another charge from now on."""
    with opened(place) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(store, "charges_with", lambda newest, state: None)
            old = [ask(ledger, number=each) for each in (1, 2)]
            ledger.seal(old[0], b"1")
        assert [each.charge for each in old] == [1, 2]
        ledger.seal(old[1], b"2")
        new = [ask(ledger, number=each) for each in (3, 4)]
        assert [each.charge for each in new] == [4, 5], "after three entries"
        found = [ledger.charge(each) for each in range(1, 8)]
        assert found == [*old, None, *new, None, None]
        assert ledger.verify() is not None


@pytest.mark.parametrize("wrong", [None, 1, 3])
def test_a_wrong_count_of_charges_is_found(wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(None) as ledger:
        ask(ledger)
        monkeypatch.setattr(store, "charges_with", lambda newest, state: wrong)
        ask(ledger, number=2)
        with pytest.raises(LedgerDamaged) as damaged:
            ledger.verify()
        assert damaged.value.number == 2


def test_charges_are_found_in_a_long_ledger(place: str | Path | None) -> None:
    with opened(place) as ledger:
        key, entries = keys.SigningKey.generate(), []
        for number in range(1, 41):
            entries.append(ledger.reserve(ledger.budget.cost(epsilon=1e-3), question=f"{number:064x}", description="n"))
            if number % 3 == 0:
                ledger.seal(entries[number - 2], b"")
            if number % 7 == 0:
                ledger.checkpoint(key)
        assert [ledger.charge(each) for each in range(1, 41)] == entries
        assert {each.state for each in entries} == {State.RESERVED}
