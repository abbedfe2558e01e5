"""What was spent: budgets, and an append-only ledger that cannot be overspent and reveals tampering.

    budget, currency              how much may be spent, counted in μ², ε or ρ
    renewal                       a limit for each week or year, and its cost over a lifetime
    epsilon_mu_conversion         converts between ε and μ² at a fixed δ, exactly
    ledger, charge_requests       reserve a cost, run the question, seal the answer
    entries, owner_signatures     the hash chain, and what the owner's key signs
    spending_accounts, account_balances      limits of the dataset and of payers, in total and per window of time
    declared_versions             versions of the data, which share one budget
    keys                          the owner's Ed25519 keys, in files
    stores                        files, memory and databases; migrations: the tables in shared databases
    history_verification, incremental_verification     recompute a history, whole or only its new entries
    ledger_export, label_verification                  files that anybody can verify without the ledger

Curves state what a release promises; this package decides whether it may still happen. It imports curves and units, and
no mechanism, table or question: here a question is a hash, and an answer is bytes.

>>> from deniable.ledger import Budget, Ledger
>>> from deniable.units import Unit
>>> budget = Budget.pure(epsilon=1)
>>> with Ledger.open(budget=budget, unit=Unit.row(), dataset="visits") as ledger:
...     entry = ledger.reserve(budget.cost(epsilon=0.25), question="0" * 64, description="how many visits")
...     sealed = ledger.seal(entry, b"41")  # only now may the answer leave
...     ledger.remaining.describe_rest(budget)
'epsilon 0.75, delta 0'
"""

from deniable.ledger import keys
from deniable.ledger.budget import Budget, Cost
from deniable.ledger.entries import EVERYBODY, Checkpoint, DeclaredVersion, Entry, State
from deniable.ledger.label_verification import CheckedLabel, verify_label
from deniable.ledger.ledger import Ledger
from deniable.ledger.ledger_export import Verified, verify_export, write_checkpoint
from deniable.ledger.renewal import Renewal
from deniable.ledger.spending_accounts import Account

__all__ = [
    "EVERYBODY",
    "Account",
    "Budget",
    "CheckedLabel",
    "Checkpoint",
    "Cost",
    "DeclaredVersion",
    "Entry",
    "Ledger",
    "Renewal",
    "State",
    "Verified",
    "keys",
    "verify_export",
    "verify_label",
    "write_checkpoint",
]
