"""What was spent: budgets, and a ledger that cannot be overspent, forgets nothing and shows what was done to it.

Curves say what a release promises; this room says whether it may still happen. It knows curves and units, and no
mechanism, table or question: a question is a hash here, and an answer is bytes.

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
from deniable.ledger.entries import EVERYBODY, Checkpoint, Entry, State
from deniable.ledger.label_verification import CheckedLabel, verify_label
from deniable.ledger.ledger import Ledger
from deniable.ledger.ledger_export import Verified, verify_export, write_checkpoint
from deniable.ledger.spending_accounts import Account

__all__ = [
    "EVERYBODY",
    "Account",
    "Budget",
    "CheckedLabel",
    "Checkpoint",
    "Cost",
    "Entry",
    "Ledger",
    "State",
    "Verified",
    "keys",
    "verify_export",
    "verify_label",
    "write_checkpoint",
]
