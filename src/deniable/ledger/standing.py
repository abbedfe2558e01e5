"""How the accounts stand: every limit that is in force, and what was spent of it, as one transaction sees them."""

from __future__ import annotations

from deniable.ledger.accounts import Account, in_force, less, window_start
from deniable.ledger.budget import Cost
from deniable.ledger.entries import EVERYBODY
from deniable.ledger.stores import Transaction, paid_up_to, whole

__all__ = ["standing"]


def standing(transaction: Transaction, limit: Cost, *payers: str) -> list[Account]:
    """The limits of the dataset, and those of these payers or, if none is named, of all.

    The dataset's limit for good comes first; `limit` is what it was made with.
    """
    wanted = (EVERYBODY, *payers) if payers else ()
    limits = in_force(limit, transaction.terms(*wanted))
    accounts = []
    lifetimes: dict[str, Cost] = {EVERYBODY: transaction.spent()}
    for (name, window), most in sorted(limits.items(), key=lambda item: item[0][0] != EVERYBODY):
        if name not in lifetimes:
            lifetimes[name] = transaction.paid(name)
        spent = lifetimes[name]
        if window is not None:
            start = window_start(transaction.now(), window)
            if name == EVERYBODY:
                older = whole([each for each in [transaction.newest_before(start)] if each])
                spent = less(spent, older[0].spent if older else Cost(0, 0))
            else:
                spent = less(spent, paid_up_to(transaction.newest_paid(name, before=start)))
        accounts.append(Account(name=name, window=window, limit=most, spent=spent, lifetime=lifetimes[name]))
    return accounts
