"""Balances of accounts, as one transaction sees them: the limits in force, and what was spent of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deniable.ledger.budget import Cost
from deniable.ledger.entries import EVERYBODY, Entry, Heading, Terms
from deniable.ledger.spending_accounts import Account, Limits, in_force, largest, least_left, less, window_start
from deniable.ledger.stores.store import Transaction

__all__ = ["Replay", "left_of", "replay_of", "risk_of", "standing"]


class Replay(NamedTuple):
    """A stored answer, with everything that a receipt needs if the answer is returned again."""

    sealed: Entry
    charge: Entry
    """The RESERVED entry that paid for it."""
    left: Cost


def standing(transaction: Transaction, limits: Limits, *payers: str) -> list[Account]:
    """The accounts of the dataset and of these payers; without payers, all accounts of the ledger.

    The dataset's total limit comes first. `limits` are the limits with which the ledger was created.
    """
    wanted = (EVERYBODY, *payers) if payers else ()
    now_valid = in_force(limits, transaction.terms(*wanted))
    accounts = []
    lifetimes: dict[str, Cost] = {EVERYBODY: transaction.spent()}
    for (name, window), most in sorted(now_valid.items(), key=lambda item: item[0][0] != EVERYBODY):
        if name not in lifetimes:
            lifetimes[name] = transaction.paid(name)
        spent = lifetimes[name]
        if window is not None:
            start = window_start(transaction.now(), window)
            if name == EVERYBODY:
                older = transaction.newest_before(start)
                spent = less(spent, Cost(0, 0) if older is None else older.spent)
            else:
                spent = less(spent, transaction.paid_up_to(name, before=start))
        accounts.append(Account(name=name, window=window, limit=most, spent=spent, lifetime=lifetimes[name]))
    return accounts


def left_of(transaction: Transaction, limits: Limits, payer: str | None) -> Cost:
    """What this payer may still spend: in each column, the least that any account that must pay has left.

    Zero for a payer without an account. Without a payer: what the dataset has left, of its lifetime and of each window.
    """
    accounts = standing(transaction, limits, payer or EVERYBODY)
    if payer is not None and not any(each.name == payer for each in accounts):
        return Cost(0, 0)
    return least_left(accounts, Cost(0, 0))


def risk_of(heading: Heading, terms: Sequence[Terms]) -> str | None:
    """What a person risks in a period and over their life, by the largest limits; None if the budget is not renewed."""
    if heading.renewal is None:
        return None
    period, life = (largest(heading.limits, terms, window) for window in (heading.renewal.window, None))
    return heading.renewal.statement(period, life, heading.unit)


def replay_of(
    transaction: Transaction, limits: Limits, question: str, version: str | None, payer: str | None
) -> Replay | None:
    """The newest sealed answer to this question about this version, for `Ledger.replay`; None if it has no answer."""
    sealed = transaction.newest_sealed(question, version)
    if sealed is None or sealed.closes is None:
        return None
    charge = transaction.entry(sealed.closes)
    return None if charge is None else Replay(sealed, charge, left_of(transaction, limits, payer))
