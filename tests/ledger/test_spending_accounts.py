"""Shares, windows and adjustments: every account that must pay is asked, in the same transaction, wherever it is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.errors import BudgetExceeded, InvalidParameter
from deniable.ledger import EVERYBODY, Budget, Cost, Entry, Ledger, State, keys
from deniable.ledger.stores import store
from deniable.units import Unit
from tests.table import every_row
from tests.wording import worded

PURE = Budget.pure(epsilon=1, delta=1e-6)
TENTH = PURE.cost(epsilon=0.1)
HOUR = 3600
NOON = 1_800_014_400.0  # 2027-01-15T12:00:00Z


def tenths(number: int) -> Cost:
    return Cost(TENTH.units * number)


def question(number: int) -> str:
    return f"{number:064x}"


class Clock:
    """A clock that says what it is told to."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(store, "clock", made)
    return made


@pytest.fixture
def ledger(place: str | Path | None) -> Iterator[Ledger]:
    with Ledger.open(place, budget=PURE, unit=Unit.row(), dataset="visits") as opened:
        yield opened


def ask(ledger: Ledger, payer: str | None, cost: Cost = TENTH, number: int = 1, key: str | None = None) -> Entry:
    return ledger.reserve(cost, question=question(number), description="how many", payer=payer, key=key)


def refused(ledger: Ledger, payer: str | None, cost: Cost = TENTH) -> BudgetExceeded:
    before = list(ledger.entries())
    with pytest.raises(BudgetExceeded) as found:
        ask(ledger, payer, cost)
    assert list(ledger.entries()) == before
    return found.value


# --- shares -----------------------------------------------------------------------------------------------------------


def test_a_share_is_paid_from_and_so_is_the_dataset(ledger: Ledger) -> None:
    granted = ledger.grant("anna", tenths(3), by="owner")
    assert (granted.state, granted.charged, granted.terms.account) == (State.GRANTED, Cost(0), "anna")
    for number in range(3):
        entry = ask(ledger, "anna", number=number)
        assert (entry.payer, entry.payer_spent) == ("anna", tenths(number + 1))
        sealed = ledger.seal(entry, b"1")
        assert (sealed.payer, sealed.payer_spent) == ("anna", None)
    ask(ledger, None)
    before = list(ledger.entries())
    with worded(BudgetExceeded, account="the share of 'anna'", left="epsilon 0, delta 0"):
        ask(ledger, "anna")
    assert list(ledger.entries()) == before
    assert [(each.name, each.spent, each.left, each.lifetime) for each in ledger.accounts()] == [
        (EVERYBODY, tenths(4), Cost(tenths(6).units, PURE.limit.delta_units), tenths(4)),
        ("anna", tenths(3), Cost(0), tenths(3)),
    ]
    assert ledger.left("anna") == Cost(0)
    ledger.verify()


def test_analysts_who_collude_get_no_more_than_the_dataset_has(ledger: Ledger) -> None:
    for name in "abcd":
        ledger.grant(name, tenths(10), by="owner")
    granted = [ask(ledger, "abcd"[number % 4]) for number in range(10)]
    assert len(granted) == 10
    for name in "abcd":
        assert refused(ledger, name).account == "the dataset"
        assert ledger.left(name) == Cost(0)
    assert ledger.charged == tenths(10)
    ledger.verify()


def test_a_payer_needs_an_account(ledger: Ledger) -> None:
    for payer in ("bob", EVERYBODY, "", 7):
        with worded(InvalidParameter, parameter="payer", asked=payer):
            ask(ledger, payer)
    assert ledger.left("bob") == Cost(0)
    assert list(ledger.entries()) == []


def test_all_or_nothing_of_a_share(ledger: Ledger) -> None:
    ledger.grant("anna", tenths(3), by="owner")
    asks = [(TENTH, question(number), "part") for number in range(2)]
    assert [entry.payer_spent for entry in ledger.reserve_all(asks, payer="anna")] == [tenths(1), tenths(2)]
    with pytest.raises(BudgetExceeded):
        ledger.reserve_all(asks, payer="anna")
    assert ledger.left("anna") == tenths(1)
    ledger.verify()


@pytest.mark.slow
def test_ten_thousand_tenths_of_a_share_are_a_thousand_exactly() -> None:
    budget = Budget.pure(epsilon=2000)
    with Ledger.open(budget=budget, unit=Unit.row(), dataset="d") as ledger:
        ledger.grant("anna", budget.cost(epsilon=1000), by="owner")
        for _ in range(10):
            ledger.reserve_all([(TENTH, question(1), "tenths")] * 1000, payer="anna")
        assert ledger.accounts()[1].left == Cost(0)
        refused(ledger, "anna", Cost(1))
        ask(ledger, None, Cost(1))


def test_a_limit_can_be_changed_and_what_was_spent_stays_spent(ledger: Ledger) -> None:
    ledger.grant("anna", tenths(5), by="owner")
    ask(ledger, "anna", tenths(4))
    ledger.grant("anna", tenths(2), by="owner", reason="left the project")
    assert ledger.accounts()[1].left == Cost(0)
    refused(ledger, "anna", Cost(1))
    ask(ledger, "anna", Cost(0))  # what reads nothing private may still be written down
    ledger.grant("anna", tenths(6), by="owner")
    assert ledger.left("anna") == tenths(2)
    assert ledger.charged == tenths(4)
    ledger.verify()


def test_a_key_belongs_to_its_payer(ledger: Ledger) -> None:
    for name in ("anna", "bob"):
        ledger.grant(name, tenths(3), by="owner")
    sealed = ledger.seal(ask(ledger, "anna", key="k"), b"1")
    assert ask(ledger, "anna", key="k") == sealed
    for other in ("bob", None):
        with pytest.raises(InvalidParameter, match="another question"):
            ask(ledger, other, key="k")


@every_row(
    (change,)
    for change in (
        {"account": ""},
        {"account": "x" * 501},
        {"limit": 0.5},
        {"limit": Cost(10**40)},
        {"limit": Cost(1, 10**30)},
        {"window": 0},
        {"window": 1.5},
        {"window": True},
        {"window": 10**10},
        {"by": ""},
        {"reason": ""},
    )
)
def test_terms_that_mean_nothing(ledger: Ledger, change: dict[str, object]) -> None:
    given = {"account": "anna", "limit": TENTH, "window": None, "by": "owner", "reason": "why"} | change
    for grant in (ledger.grant, lambda *args, **more: ledger.adjust(*args, **more, key=keys.SigningKey.generate())):
        with pytest.raises(InvalidParameter) as found:
            grant(given["account"], given["limit"], window=given["window"], by=given["by"], reason=given["reason"])
        assert found.value.parameter == next(iter(change))
    assert list(ledger.entries()) == []


# --- windows ----------------------------------------------------------------------------------------------------------


def test_a_window_refills_on_its_border_and_the_lifetime_does_not(ledger: Ledger, clock: Clock) -> None:
    ledger.grant("anna", tenths(5), by="owner")
    ledger.grant("anna", tenths(2), window=HOUR, by="owner")
    clock.now = NOON + 10
    ask(ledger, "anna", tenths(2))
    error = refused(ledger, "anna")
    assert error.account == "the share of 'anna' in this window of 3,600 s"
    clock.now = NOON + HOUR - 1
    refused(ledger, "anna")
    clock.now = NOON + HOUR  # the border belongs to the new window
    ask(ledger, "anna", tenths(2))
    clock.now = NOON + 2 * HOUR + 5
    assert [(each.window, each.spent, each.lifetime) for each in ledger.accounts()] == [
        (None, tenths(4), tenths(4)),
        (None, tenths(4), tenths(4)),
        (HOUR, Cost(0), tenths(4)),
    ]
    ask(ledger, "anna")
    assert refused(ledger, "anna").account == "the share of 'anna'"  # the window has some left, the share has not
    ledger.verify()


def test_a_clock_set_back_gives_nothing(ledger: Ledger, clock: Clock) -> None:
    ledger.grant("anna", tenths(10), by="owner")
    ledger.grant("anna", tenths(1), window=HOUR, by="owner")
    clock.now = NOON
    ask(ledger, "anna")
    for back in (1, HOUR, 24 * HOUR, NOON):
        clock.now = NOON - back
        refused(ledger, "anna")
    clock.now = NOON + HOUR
    entry = ask(ledger, "anna")
    clock.now = NOON  # and again: time stands still until the clock has caught up
    refused(ledger, "anna")
    assert ledger.fail(entry, "late").time == entry.time == "2027-01-15T13:00:00Z"
    ledger.verify()


def test_a_clock_set_forward_lends_from_later(ledger: Ledger, clock: Clock) -> None:
    """All in all no more than one limit for every window up to the latest time that was ever seen."""
    ledger.grant("anna", tenths(10), by="owner")
    ledger.grant("anna", tenths(1), window=HOUR, by="owner")
    granted = 0
    for hours in (0, 5, 1, 2, 3, 4, 5, 6):
        clock.now = NOON + hours * HOUR
        try:
            ask(ledger, "anna")
            granted += 1
        except BudgetExceeded:
            pass
    assert granted == 3  # at 0, at 5 and at 6; those from 1 to 4 are gone


def test_around_a_border_at_most_twice_the_limit(ledger: Ledger, clock: Clock) -> None:
    clock.now = NOON - 1
    ledger.grant("anna", tenths(10), by="owner")
    ledger.grant("anna", tenths(2), window=HOUR, by="owner")
    ask(ledger, "anna", tenths(2))
    clock.now = NOON
    ask(ledger, "anna", tenths(2))
    refused(ledger, "anna", Cost(1))


def test_a_window_of_the_dataset_binds_everybody(ledger: Ledger, clock: Clock) -> None:
    for name in ("anna", "bob"):
        ledger.grant(name, tenths(9), by="owner")
    ask(ledger, None, tenths(1))
    ledger.grant(EVERYBODY, tenths(3), window=24 * HOUR, by="owner")  # what was spent today counts
    ask(ledger, "anna")
    ask(ledger, "bob")
    for payer in ("anna", "bob", None):
        assert refused(ledger, payer).account == "the dataset in this window of 86,400 s"
    clock.now += 24 * HOUR
    ask(ledger, "bob", tenths(3))
    refused(ledger, None, Cost(1))
    assert ledger.charged == tenths(6)
    ledger.verify()


def test_the_first_second_of_a_window_of_the_dataset_belongs_to_it(ledger: Ledger, clock: Clock) -> None:
    ledger.grant(EVERYBODY, tenths(2), window=HOUR, by="owner")
    clock.now = NOON + HOUR
    ask(ledger, None)
    ask(ledger, None)
    refused(ledger, None, Cost(1))
    clock.now += 1
    refused(ledger, None, Cost(1))
    ledger.verify()


# --- adjustments ------------------------------------------------------------------------------------------------------


def test_only_a_signature_changes_the_limit_of_the_dataset(ledger: Ledger) -> None:
    owner = keys.SigningKey.generate()
    with pytest.raises(InvalidParameter, match="owner's signature"):
        ledger.grant(EVERYBODY, tenths(20), by="owner")
    ask(ledger, None, tenths(10))
    refused(ledger, None)
    entry = ledger.adjust(EVERYBODY, tenths(12), by="owner", reason="the board agreed", key=owner)
    assert (entry.state, entry.description, entry.terms.signer) == (
        State.ADJUSTED,
        "the board agreed",
        owner.public.hex,
    )
    assert (ledger.limit, ledger.remaining, ledger.charged) == (tenths(12), tenths(2), tenths(10))
    ask(ledger, None, tenths(2))
    assert refused(ledger, None).account == ""  # there is one account only
    ledger.verify(owner.public)


def test_the_guarantee_is_the_largest_limit_there_ever_was(ledger: Ledger) -> None:
    owner, first = keys.SigningKey.generate(), ledger.guarantee
    ask(ledger, None, tenths(3))
    ledger.adjust(EVERYBODY, tenths(1), by="owner", reason="enough", key=owner)
    assert ledger.remaining == Cost(0)
    assert ledger.charged == tenths(3)
    assert ledger.guarantee == first
    ledger.adjust(EVERYBODY, tenths(20), by="owner", reason="more", key=owner)
    assert ledger.guarantee.curve == PURE.curve(Cost(tenths(20).units, PURE.limit.delta_units))
    assert "the owner did not raise the limit because of answers" in ledger.guarantee.assumptions


def test_an_owner_is_the_only_one_who_signs(place: str | Path | None) -> None:
    owner, other = keys.SigningKey.generate(), keys.SigningKey.generate()
    with Ledger.open(place, budget=PURE, unit=Unit.row(), dataset="d", owner=owner.public) as ledger:
        assert ledger.owner == owner.public
        for sign in (
            lambda key: ledger.adjust("anna", TENTH, by="x", reason="y", key=key),
            lambda key: ledger.checkpoint(key),
        ):
            with worded(InvalidParameter, parameter="key") as found:
                sign(other)
            assert "PRIVATE" not in str(found.value)
            with worded(InvalidParameter, parameter="key"):
                sign(owner.public)
            sign(owner)
        ledger.verify()


# --- replay -----------------------------------------------------------------------------------------------------------


def test_a_question_that_was_answered_well_enough_is_answered_for_nothing(ledger: Ledger) -> None:
    ledger.grant("anna", tenths(2), by="owner")
    asked = {"question": question(1), "description": "how many"}
    first = ledger.reserve_or_replay(tenths(2), **asked)
    assert first.state is State.RESERVED
    assert ledger.reserve_or_replay(TENTH, **asked, payer="anna").state is State.RESERVED  # not sealed yet
    sealed = ledger.seal(first, b"41")
    for cost in (tenths(2), TENTH, Cost(0)):
        assert ledger.reserve_or_replay(cost, **asked, payer="anna") == sealed
    assert ledger.charged == tenths(3)
    assert ledger.reserve_or_replay(tenths(3), **asked).state is State.RESERVED
    assert ledger.reserve_or_replay(tenths(3), **asked, enough=lambda entry: entry.answer == b"41") == sealed
    assert ledger.reserve_or_replay(Cost(0), **asked, enough=lambda entry: False).state is State.RESERVED
    ledger.verify()


def test_a_key_comes_before_a_replay(ledger: Ledger) -> None:
    asked = {"question": question(1), "description": "how many"}
    first = ledger.seal(ledger.reserve_or_replay(TENTH, **asked, key="k"), b"1")
    second = ledger.seal(ledger.reserve(TENTH, **asked), b"2")
    assert ledger.reserve_or_replay(TENTH, **asked, key="k") == first
    assert ledger.reserve_or_replay(TENTH, **asked, key="another") == second
    assert ledger.charged == tenths(2)


def test_sixteen_who_ask_what_is_sealed_are_charged_nothing(ledger: Ledger) -> None:
    asked = {"question": question(1), "description": "how many"}
    sealed = ledger.seal(ledger.reserve(TENTH, **asked), b"1")
    got: list[Entry] = []
    threads = [threading.Thread(target=lambda: got.append(ledger.reserve_or_replay(TENTH, **asked))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [sealed] * 16
    assert ledger.charged == TENTH
