"""Renewing budgets: both limits hold for every clock, and the risk of a life is that of all periods together."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mpmath
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, InvalidParameter, LedgerDamaged, LedgerMismatch, UnreadableRecord
from deniable.ledger import EVERYBODY, Budget, Cost, Ledger, Renewal, State, keys, verify_export
from deniable.ledger.entries import Heading, compact
from deniable.ledger.spending_accounts import checked_terms
from deniable.ledger.stores import store
from deniable.units import Unit
from tests.wording import worded

ROOT = Path(__file__).parents[2]
WEEK = 7 * 86_400
NOW = 1_800_000_000 // WEEK * WEEK
WEEKLY = Renewal(Budget.pure(epsilon=0.5), per="week", periods=4)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(NOW)
    monkeypatch.setattr(store, "clock", made)
    return made


def opened(place: Path | None = None) -> Ledger:
    return Ledger.open(place, budget=WEEKLY, unit=Unit.row(), dataset="visits")


def spend(ledger: Ledger, tenths: int) -> bool:
    try:
        ledger.reserve(Cost(tenths * 10**29), question="0" * 64, description="spent")
    except BudgetExceeded:
        return False
    return True


# -- what a life risks -----------------------------------------------------------------------------------------------


def test_the_risk_of_periods_in_closed_form() -> None:
    """Gaussian: k periods are √k·μ-GDP, and the best guess from even odds is right with Φ(√k·μ/2). Pure: e^kε/(1+e^kε)."""
    mpmath.mp.dps = 50
    weekly = Renewal(Budget.gaussian(mu=0.2), per="week", periods=260)
    for periods in (1, 4, 52, 260):
        exact = 100 * mpmath.ncdf(mpmath.sqrt(periods) * mpmath.mpf("0.1"))
        assert exact <= float(weekly.chance(periods)) <= exact + 0.11
        assert weekly.curve(periods).gdp() == pytest.approx(0.2 * math.sqrt(periods))
        odds = mpmath.exp(periods * mpmath.mpf("0.5"))
        if periods <= 4:
            assert 100 * odds / (1 + odds) <= float(WEEKLY.chance(periods)) <= 100 * odds / (1 + odds) + 0.11


@pytest.mark.parametrize(
    "budget",
    [
        Budget(epsilon=0.1, delta=1e-8),
        Budget.pure(epsilon=0.1, delta=1e-9),
        Budget.gaussian(mu=0.1),
        Budget.zcdp(rho=0.01),
    ],
    ids=str,
)
def test_a_life_pays_for_every_period_and_hardly_more(budget: Budget) -> None:
    for periods in (1, 52, 365):
        life = Renewal(budget, per="day", periods=periods).lifetime
        whole = Renewal(budget, per="day", periods=periods).cost(periods)
        assert whole <= life.limit
        assert life.limit.units <= 1.003 * whole.units
        assert life.limit.delta_units == whole.delta_units
        assert Budget.from_dict(life.to_dict()) == life


def test_words_and_arguments() -> None:
    told = str(Renewal(Budget(epsilon=1, delta=1e-6), per="year", periods=10))
    assert "at most 54.7 % of the time after one year, and at most 64.6 % after 10 years" in told
    assert "has the risk of several years, not of one" in told
    assert repr(WEEKLY) == "Renewal(Budget.pure(epsilon=0.5, delta=0), per='week', periods=4)"
    with worded(InvalidParameter, parameter="per"):
        Renewal(Budget.pure(epsilon=1), per="hour", periods=3)
    for wrong in (0, 1.5, 10**6):
        with worded(InvalidParameter, parameter="periods"):
            Renewal(Budget.pure(epsilon=1), per="day", periods=wrong)  # type: ignore[arg-type]
    with worded(InvalidParameter, parameter="budget"):
        Renewal(1.0, per="day", periods=3)  # type: ignore[arg-type]
    with worded(InvalidParameter, parameter="periods"):
        Renewal(Budget(epsilon=1, delta=1e-3), per="day", periods=1000).lifetime  # noqa: B018  # it raises


# -- red team: the clock, restarts and two processes -----------------------------------------------------------------


def test_each_week_has_its_limit_and_the_life_has_all_of_them(clock: Clock) -> None:
    with opened() as ledger:
        for week in range(6):
            clock.now = NOW + week * WEEK
            assert spend(ledger, 3) is (week < 4)
            assert spend(ledger, 3) is False  # more than the week's 0.5
            assert spend(ledger, 2) is (week < 4)
        assert ledger.charged == WEEKLY.lifetime.limit
        ledger.verify()


def test_no_game_with_the_clock_spends_more_than_the_life(clock: Clock, tmp_path: Path) -> None:
    """Set back and forth at random, with restarts and two handles on one file, as two processes would have.

    No window of ledger time has more than the limit of a week, and all of them have no more than the life's.
    """
    chance, place = random.Random(21), tmp_path / "ledger"
    first, second = opened(place), opened(place)
    for step in range(120):
        clock.now = NOW + chance.choice([-3, -1, 0, 0, 1, 2, 5]) * WEEK + chance.randrange(WEEK)
        spend(chance.choice([first, second]), chance.randrange(1, 6))
        if step % 40 == 39:
            first.close()
            first = opened(place)
    by_week: dict[str, int] = {}
    for entry in first.entries():
        if entry.state.name == "RESERVED":
            start = pd.Timestamp(entry.time).timestamp() // WEEK
            by_week[str(start)] = by_week.get(str(start), 0) + entry.cost.units
    assert max(by_week.values()) <= WEEKLY.budget.limit.units
    assert sum(by_week.values()) <= WEEKLY.lifetime.limit.units
    times = [entry.time for entry in first.entries()]
    assert times == sorted(times)
    first.verify()
    first.close()
    second.close()


def test_another_renewal_is_refused_and_the_window_stays_without_one(clock: Clock, tmp_path: Path) -> None:
    place = tmp_path / "ledger"
    opened(place).close()
    with Ledger.open(place) as ledger:  # opened without the renewal
        assert spend(ledger, 5)
        assert not spend(ledger, 1)
        assert len([each for each in ledger.accounts() if (each.name, each.window) == (EVERYBODY, WEEK)]) == 1
        other = Renewal(Budget.pure(epsilon=1), per="week", periods=2)
        assert other.lifetime == WEEKLY.lifetime
    with worded(LedgerMismatch, field="budget"):
        Ledger.open(place, budget=other)
    with worded(LedgerMismatch, field="budget"):
        dn.session({"t": pd.DataFrame({"x": [1]})}, unit=Unit.row(), budget=other, ledger=Ledger.open(place))
    Ledger.open(place, budget=WEEKLY).close()
    Ledger.open(place, budget=WEEKLY.lifetime).close()


# -- red team: interrupts and signatures -----------------------------------------------------------------------------

_KILLS = """
from pathlib import Path
from deniable.ledger import Budget, EVERYBODY, Ledger, Renewal
from tests.ledger import victims
weekly = Renewal(Budget.pure(epsilon=0.5), per="week", periods=4)
def opening(place):
    if {at_once}:
        return Ledger.open(str(place), **victims.ABOUT | {{"budget": weekly}})
    ledger = Ledger.open(str(place), **victims.ABOUT | {{"budget": weekly.lifetime}})
    ledger.grant(EVERYBODY, weekly.budget.limit, window=weekly.window, by="owner")
    return ledger
folder = Path({folder!r})
print(*victims.opening_kills(lambda number: {place}, opening, weekly.window))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("place", ["folder / str(number)", 'f"sqlite:///{folder}/{number}.db"'], ids=["file", "url"])
def test_an_opening_that_is_killed_anywhere_leaves_no_ledger_without_its_window(place: str, tmp_path: Path) -> None:
    """The window was granted in a second transaction: the same kills find ledgers in between (the power of the test)."""
    for at_once in (True, False) if "folder /" in place else (True,):
        code = _KILLS.format(at_once=at_once, folder=str(tmp_path / str(at_once)), place=place)
        (tmp_path / str(at_once)).mkdir()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        kills, unlimited = map(int, done.stdout.split())
        assert kills > 12
        assert (unlimited == 0) is at_once


def test_only_the_owner_signs_for_another_limit_of_a_period(clock: Clock, tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        with worded(InvalidParameter, parameter="account"):
            ledger.grant(EVERYBODY, Cost(10**30), window=WEEK, by="anna")
        ledger.grant(EVERYBODY, Cost(10**29), window=86_400, by="anna")  # another window narrows, and may be granted
        assert not spend(ledger, 2)
        ledger.grant(EVERYBODY, Cost(10**30), window=86_400, by="anna")
        terms = checked_terms(EVERYBODY, Cost(10**30), WEEK, "anna")
        with ledger._store.writing() as transaction:  # a forged grant, as somebody with write access could append it
            transaction.append(state=State.GRANTED, description="granted", spent=transaction.spent(), terms=terms)
        with worded(LedgerDamaged):
            ledger.verify()
    with opened(tmp_path / "second") as ledger:
        ledger.adjust(
            EVERYBODY, Cost(10**30), window=WEEK, by="owner", reason="a busy week", key=keys.SigningKey.generate()
        )
        assert spend(ledger, 9)
        ledger.verify()
        ledger.export(tmp_path / "export.jsonl")
    assert verify_export(tmp_path / "export.jsonl").heading.renewal == WEEKLY


def test_the_rest_is_that_of_the_period_or_of_the_life_whichever_is_less(clock: Clock) -> None:
    with opened() as ledger:
        for week, (asked, rest) in enumerate([(0, 5), (5, 0), (0, 5), (4, 1), (0, 5)]):
            clock.now = NOW + week * WEEK
            assert asked == 0 or spend(ledger, asked)
            assert ledger.remaining == Cost(rest * 10**29)
        for week in range(5, 8):
            clock.now = NOW + week * WEEK
            assert spend(ledger, 3)
        clock.now = NOW + 9 * WEEK
        assert ledger.remaining == Cost(2 * 10**29)  # of the life: 2.0 - 1.8, less than a week's 0.5


def test_a_heading_whose_life_is_not_that_of_its_periods_is_refused() -> None:
    heading = Heading(WEEKLY.lifetime, Unit.row(), "visits", "0" * 32, renewal=WEEKLY)
    assert Heading.read(heading.text()) == heading
    wrong = replace(heading, budget=Budget.pure(epsilon=3))
    with pytest.raises(UnreadableRecord):
        Heading.read(wrong.text())
    for broken in ("1", '{"budget":1}', '{"per":"week"}'):
        with pytest.raises(UnreadableRecord):
            Heading.read(heading.text().replace(compact(WEEKLY.to_dict()), broken))


def test_a_session_renews(clock: Clock, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3]})
    about = {
        "unit": Unit.row(),
        "budget": WEEKLY,
        "ledger": tmp_path / "ledger",
        "schema": {"x": dn.Domain.integer(0, 9)},
    }
    for week in range(2):
        clock.now = NOW + week * WEEK
        with dn.session({"t": frame}, **about) as s:
            s.sql(f"SELECT COUNT(*) AS n FROM t WHERE x > {week}", epsilon=0.5)
            with worded(BudgetExceeded):
                s.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.1)
            assert s.budget == WEEKLY.lifetime
    with pytest.raises(LedgerMismatch):
        dn.session({"t": frame}, **{**about, "budget": Renewal(Budget.pure(epsilon=1), per="week", periods=2)})
