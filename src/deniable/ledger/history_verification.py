"""Recompute a history from its beginning: every hash, sum, limit and signature.

**The problem.** A ledger is a list of entries in a file or a database, and its operator can edit both. An auditor wants
to know whether the entries are the ones that the ledger wrote, and whether every charge was within its limits. The
auditor trusts this code, the heading (budget, unit, dataset) and, if there is one, the owner's public key.

**The idea.** Much of an entry follows from the entries before it: its number, the hash of the previous entry, its own
hash, the sum of all charges so far, the count of charges, and the sum of its payer. `Recount` takes the entries oldest
first, from a store or from an exported file, keeps its own totals, and compares. A changed entry has a wrong hash. To
hide the change, somebody must recompute all hashes after it; then the chain has another end, which differs from any
hash or checkpoint that was kept elsewhere, and the owner's signatures over later entries no longer hold.

**What is checked**, for each entry in this order; LedgerDamaged names the first entry that fails:

1. The chain: it has the next number and its own hash, and contains the hash of the entry before it. The first entry
   contains the hash of the heading.
2. The sums: its sum is the sum before it plus its own charge. From the first limit on, times never decrease.
3. A charge (RESERVED) is added to the dataset's account and to the payer's account, which must have been granted a
   limit. It must fit under every limit that was in force at its time: in total, and in each window of time. SEALED and
   FAILED entries must close one open charge of the same question, version of the data, cost, key and payer.
4. Limits (GRANTED, ADJUSTED) take effect from here on. The limits of the heading (of the dataset in total, and of a
   period if its budget renews) change only by an adjustment that the owner signed. Checkpoints and statements must be
   signed with the owner's newest key; a new key must be signed with the old one.

At the end, `end` compares the newest entry with the head of the chain that the store reports.

**What cannot be detected here.** A person who can write to the store can replace all unsigned entries by another
consistent history, or cut off the newest ones. Only a number and hash, or a checkpoint, that is kept elsewhere reveals
this. Answers are not recomputed: the chain contains their hashes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, final

from deniable.errors import LedgerDamaged
from deniable.ledger.account_balances import risk_of
from deniable.ledger.budget import Cost
from deniable.ledger.entries import EVERYBODY, Checkpoint, Entry, Heading, State, Terms
from deniable.ledger.keys import PublicKey, is_signed
from deniable.ledger.owner_signatures import rotation_fault
from deniable.ledger.spending_accounts import Account, Limits, in_force, window_start
from deniable.ledger.stores.entry_rows import RESTORE
from deniable.ledger.stores.store import charges_with

__all__ = ["Recount"]

_OF_A_CHARGE = State.RESERVED, State.SEALED, State.FAILED


@final
@dataclass(slots=True)
class _Paid:
    """Running sums of what one account was charged, by time."""

    times: list[str] = field(default_factory=list)
    sums: list[Cost] = field(default_factory=list)

    @property
    def total(self) -> Cost:
        return self.sums[-1] if self.sums else Cost(0, 0)

    def add(self, time: str, cost: Cost) -> None:
        if self.times and self.times[-1] >= time:  # one sum for each second; a clock that ran back counts as stopped
            self.sums[-1] = self.sums[-1] + cost
        else:
            self.times.append(time)
            self.sums.append(self.total + cost)

    def since(self, start: str) -> Cost:
        before = bisect_left(self.times, start)
        old = self.sums[before - 1] if before else Cost(0, 0)
        return Cost(self.total.units - old.units, self.total.delta_units - old.delta_units)


@final
class Recount:
    """The recomputed state of a history, up to the entry that was added last."""

    def __init__(self, heading: Heading, genesis: str, key: PublicKey | None = None, *, remedy: str = RESTORE) -> None:
        self.heading = heading
        self.number = 0
        self.link = genesis
        self.time = ""
        self.newest: Entry | None = None
        self.names = [heading.dataset]
        self.checkpoints: list[Checkpoint] = []
        self.adjustments = 0
        self.signers: set[str] = set()
        self.keys = [each for each in [heading.owner if key is None else key.hex] if each is not None]
        """The owner's keys, oldest first: the first was given, and each signed for the next. The last one may sign."""
        self._versions: set[tuple[str, str]] = set()
        self._remedy = remedy
        self._waiting: dict[int, Entry] = {}
        self._terms: list[Terms] = []
        self._limits: Limits = in_force(heading.limits, ())
        self._paid: defaultdict[str, _Paid] = defaultdict(_Paid)

    @property
    def spent(self) -> Cost:
        """The recomputed sum of all charges."""
        return self._paid[EVERYBODY].total

    @property
    def open(self) -> int:
        """The number of RESERVED entries that no entry closes."""
        return len(self._waiting)

    @property
    def risk(self) -> str | None:
        """What a person risks in a period and over their life; None if the budget is not renewed."""
        return risk_of(self.heading, self._terms)

    def accounts(self) -> list[Account]:
        """Every limit and what was spent of it, as of the newest entry."""
        return [self._account(name, window, limit) for (name, window), limit in self._limits.items()]

    def add(self, entry: Entry) -> None:
        """Check the next entry and count it. Raises LedgerDamaged if it is not what the ledger wrote."""
        self._check_link(entry)
        self._check_sums(entry)
        if entry.state in _OF_A_CHARGE:
            self._take_charge(entry)
        else:
            self._take_note(entry)
        self.number, self.link, self.time, self.newest = entry.number, entry.hash, entry.time, entry

    def end(self, number: int, link: str) -> Entry | None:
        """Check that the history ends at this number and hash. Returns the newest entry; None if it has no entries."""
        if self.number < number:
            raise self._bad(self.number + 1, f"is missing; the ledger had {number} entries")
        if self.number > number:
            raise self._bad(number + 1, "was added after the end of the chain")
        if self.link != link:
            raise self._bad(number, "is not the one that the head of the chain names")
        return self.newest

    # -- what holds for every entry ------------------------------------------------------------------------------------

    def _check_link(self, entry: Entry) -> None:
        """Check that it has the next number, the right hash, and the hash of the entry before it."""
        number = self.number + 1
        if entry.number != number:
            raise self._bad(number, "is missing")
        if entry.digest() != entry.hash:
            raise self._bad(number, "was changed")
        if entry.previous != self.link:
            if number == 1:  # entry 1 itself is unchanged, so the heading that it names was changed
                raise self._bad(0, "was changed")
            raise self._bad(number, "does not contain the hash of the entry before it")

    def _check_sums(self, entry: Entry) -> None:
        """Check that its sum, its count of charges and its time continue from the entry before it."""
        if entry.spent != self.spent + entry.charged:
            raise self._bad(entry.number, "has a wrong sum")
        counted = self.newest is not None and self.newest.charges is not None
        if (counted or entry.charges is not None) and entry.charges != charges_with(self.newest, entry.state):
            raise self._bad(entry.number, "has a wrong count of charges")
        if (self._terms or self.heading.renewal is not None) and entry.time < self.time:
            raise self._bad(entry.number, "is older than the entry before it")

    # -- one kind of entry each ----------------------------------------------------------------------------------------

    def _take_note(self, entry: Entry) -> None:
        """Check an entry that is not part of a charge, by its state or by the optional field that it has."""
        if entry.cost != Cost(0, 0) or entry.closes is not None or entry.payer is not None:
            raise self._bad(entry.number, "has a cost, a payer or a charge to close, which only charges have")
        if entry.state is State.STATED or entry.statement is not None:
            self._take_statement(entry)
        elif entry.state is State.ROTATED or entry.rotation is not None:
            self._take_rotation(entry)
        elif entry.state is State.DECLARED or entry.declared is not None:
            self._take_version(entry)
        elif entry.state is State.LINKED:
            self._take_name(entry)
        elif entry.state is State.CHECKPOINT:
            self._take_checkpoint(entry)
        elif entry.state is State.MOVED:
            if entry.terms is not None or entry.name is not None or entry.checkpoint is not None:
                raise self._bad(entry.number, "records a new place, and has fields of other entries")
        else:
            self._take_terms(entry)

    def _take_name(self, entry: Entry) -> None:
        if entry.name is None or entry.name in self.names:
            raise self._bad(entry.number, "does not give the data a new name")
        self.names.append(entry.name)

    def _take_version(self, entry: Entry) -> None:
        declared = entry.declared
        if declared is None or entry.state is not State.DECLARED or entry.terms or entry.name or entry.checkpoint:
            raise self._bad(entry.number, "is not a valid declaration of a version")
        if (declared.table, declared.version) in self._versions:
            raise self._bad(entry.number, "declares a version that was declared before")
        self._versions.add((declared.table, declared.version))

    def _take_charge(self, entry: Entry) -> None:
        """RESERVED charges its cost, within every limit; SEALED and FAILED close a RESERVED entry that is open."""
        number, payer = entry.number, entry.payer
        if entry.rotation is not None:
            raise self._bad(number, "belongs to a charge, and has a new key")
        if entry.statement is not None or entry.declared is not None:
            raise self._bad(number, "belongs to a charge, and has a statement or a version")
        if entry.state is not State.RESERVED:
            closed = self._waiting.pop(entry.closes or 0, None)
            same = closed is not None and (closed.question, closed.version, closed.cost, closed.key, closed.payer)
            asked = entry.question, entry.version, entry.cost, entry.key, payer
            if same != asked or entry.payer_spent is not None:
                raise self._bad(number, "does not close an open charge of the same question, cost, key and payer")
            return
        for account in {EVERYBODY} if payer is None else {EVERYBODY, payer}:
            self._paid[account].add(entry.time, entry.cost)
        if entry.payer_spent != (None if payer is None else self._paid[payer].total):
            raise self._bad(number, "has a wrong sum for its payer")
        mine = [key for key in self._limits if key[0] == payer]
        if payer is not None and not mine:
            raise self._bad(number, "is paid by an account that was never given a limit")
        for name, window in [key for key in self._limits if key[0] == EVERYBODY] + mine:
            limited = self._account(name, window, self._limits[name, window], entry.time)
            if entry.cost != Cost(0, 0) and not self.heading.budget.fits(limited.spent, limited.limit):
                whose = "the budget" if (name, window) == (EVERYBODY, None) else f"the limit of {limited.title}"
                raise self._bad(number, f"spends more than {whose}")
        self._waiting[number] = entry

    def _take_terms(self, entry: Entry) -> None:
        terms = entry.terms
        if terms is None:
            raise self._bad(entry.number, "has no limit to set")
        if entry.state is State.ADJUSTED:
            message = terms.message(
                serial=self.heading.serial, number=entry.number, previous=entry.previous, reason=entry.description
            )
            self._check_signature(entry, terms.signer, message, terms.signature)
            self.adjustments += 1
        elif terms.signature is not None or (terms.account, terms.window) in self.heading.limits:
            raise self._bad(entry.number, "changes a limit that only a signed adjustment may change")
        self._terms.append(terms)
        self._limits[terms.account, terms.window] = terms.limit

    def _take_checkpoint(self, entry: Entry) -> None:
        noted = entry.checkpoint
        if noted is None or (noted.serial, noted.number, noted.hash, noted.spent) != (
            self.heading.serial,
            self.number,
            self.link,
            self.spent,
        ):
            raise self._bad(entry.number, "is a checkpoint of another entry, sum or ledger")
        self._check_signature(entry, noted.signer, noted.message(), noted.signature)
        self.checkpoints.append(noted)

    def _take_rotation(self, entry: Entry) -> None:
        known = self.keys if self.heading.owner is not None else []
        if (fault := rotation_fault(self.heading, entry, known)) is not None:
            raise self._bad(entry.number, fault)
        assert entry.rotation is not None
        self.signers.add(entry.rotation.signer)
        self.keys.append(entry.rotation.successor)

    def _take_statement(self, entry: Entry) -> None:
        statement = entry.statement
        if (
            statement is None
            or entry.state is not State.STATED
            or entry.terms
            or entry.name
            or entry.checkpoint
            or entry.rotation
        ):
            raise self._bad(entry.number, "is not a valid statement")
        where: dict[str, Any] = {"serial": self.heading.serial, "number": entry.number, "previous": entry.previous}
        self._check_signature(
            entry, statement.signer, statement.message(**where, words=entry.description), statement.signature
        )

    def _check_signature(self, entry: Entry, signer: str | None, message: bytes, signature: str | None) -> None:
        wanted = self.keys[-1] if self.keys else None
        if not is_signed(signer, message, signature):
            raise self._bad(entry.number, "has an invalid signature")
        if wanted is not None and signer != wanted:
            replaced = signer in self.keys
            raise self._bad(entry.number, f"is signed with {'a key that was replaced' if replaced else 'another key'}")
        self.signers.add(signer or "")

    def _bad(self, number: int, fault: str) -> LedgerDamaged:
        return LedgerDamaged(number, fault, self._remedy)

    def _account(self, name: str, window: int | None, limit: Cost, now: str | None = None) -> Account:
        paid = self._paid[name]
        spent = paid.total if window is None else paid.since(window_start(now or self.time, window))
        return Account(name=name, window=window, limit=limit, spent=spent, lifetime=paid.total)
