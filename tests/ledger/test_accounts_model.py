"""Random histories of payers, windows, limits and a wandering clock, against a model that only keeps a list."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deniable.errors import BudgetExceeded, InvalidParameter
from deniable.ledger import EVERYBODY, Budget, Cost, Ledger, keys, verify_export
from deniable.ledger.stores import store
from deniable.units import Unit

BUDGET = Budget.gaussian(mu=1, delta="1e-9")
OWNER = keys.SigningKey.generate()
PAYERS = ("anna", "bob")
WINDOWS = (None, 7, 60)
NOON = 1_800_014_400

shares = st.sampled_from([Fraction(n, 9) for n in range(8)])
payers = st.sampled_from([*PAYERS, None])
accounts = st.sampled_from([*PAYERS, EVERYBODY])


def part(share: Fraction) -> Cost:
    return Cost(int(BUDGET.limit.units * share), int(BUDGET.limit.delta_units * share))


class AccountsMachine(RuleBasedStateMachine):
    """The model: a list of (second, payer, cost), limits by account and window, and the latest second there was."""

    @initialize(filed=st.booleans())
    def start(self, filed: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.latest = NOON, 0  # nothing is written yet
        self.patch = mock.patch.object(store, "clock", side_effect=lambda: float(self.clock))
        self.patch.start()
        place = Path(self.folder.name) / "ledger" if filed else None
        self.ledger = Ledger.open(place, budget=BUDGET, unit=Unit.row(), dataset="d")
        self.paid: list[tuple[int, str | None, Cost]] = []
        self.limits: dict[tuple[str, int | None], Cost] = {(EVERYBODY, None): BUDGET.limit}

    def now(self) -> int:
        return max(self.clock, self.latest)

    def wrote(self) -> None:
        self.latest = self.now()

    def spent(self, account: str, window: int | None) -> Cost:
        start = 0 if window is None else self.now() // window * window
        mine = [cost for second, payer, cost in self.paid if second >= start and account in (EVERYBODY, payer)]
        return sum(mine, start=Cost(0))

    def fits(self, payer: str | None, cost: Cost) -> bool:
        return cost == Cost(0) or all(
            self.spent(account, window) + cost <= limit
            for (account, window), limit in self.limits.items()
            if account in (EVERYBODY, payer)
        )

    @rule(seconds=st.sampled_from([0, 1, 3, 6, 7, 53, 60, -1, -8, -100, 3600]))
    def turn_clock(self, seconds: int) -> None:
        self.clock += seconds

    @rule(account=accounts, window=st.sampled_from(WINDOWS), share=shares, signed=st.booleans())
    def limit(self, account: str, window: int | None, share: Fraction, signed: bool) -> None:
        if signed:
            self.ledger.adjust(account, part(share), window=window, by="owner", reason="r", key=OWNER)
        elif (account, window) == (EVERYBODY, None):
            with pytest.raises(InvalidParameter):
                self.ledger.grant(account, part(share), window=window, by="owner")
            return
        else:
            self.ledger.grant(account, part(share), window=window, by="owner")
        self.wrote()
        self.limits[account, window] = part(share)

    @rule(payer=payers, share=shares, times=st.integers(1, 3))
    def spend(self, payer: str | None, share: Fraction, times: int) -> None:
        cost = part(share / 3)
        asks = [(cost, "0" * 64, "x")] * times
        if payer is not None and not any(account == payer for account, _ in self.limits):
            with pytest.raises(InvalidParameter, match="has no account"):
                self.ledger.reserve_all(asks, payer=payer)
        elif self.fits(payer, Cost(cost.units * times, cost.delta_units * times)):
            self.ledger.reserve_all(asks, payer=payer)
            self.wrote()
            self.paid += [(self.latest, payer, cost)] * times
        else:
            with pytest.raises(BudgetExceeded):
                self.ledger.reserve_all(asks, payer=payer)

    @rule()
    def note(self) -> None:
        before = [entry.number for entry in self.ledger.entries()]
        if self.ledger.checkpoint(OWNER).number == len(before):
            self.wrote()

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        found = {(each.name, each.window): each for each in self.ledger.accounts()}
        assert found.keys() == self.limits.keys()
        for (name, window), each in found.items():
            assert each.limit == self.limits[name, window]
            assert each.spent == self.spent(name, window)
            assert each.lifetime == self.spent(name, None)
        assert self.ledger.charged == self.spent(EVERYBODY, None)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.verify(OWNER.public)
            path = Path(self.folder.name) / "out.jsonl"
            self.ledger.export(path)
            found = verify_export(path, key=OWNER.public)
            assert found.spent == self.ledger.charged
            self.clock = 0  # as of the newest entry
            assert {(each.name, each.window): each.spent for each in found.accounts} == {
                key: self.spent(*key) for key in self.limits
            }
            self.ledger.close()
            self.patch.stop()
            self.folder.cleanup()


AccountsMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAccounts = AccountsMachine.TestCase
