"""The ledger: spend first, answer later, forget nothing.

1. `reserve`: one transaction. If the cost fits, it is charged and a RESERVED entry is written; otherwise nothing is.
2. The caller runs the question.
3. `seal`: a second transaction stores the answer. Only when it has returned may the answer leave. `fail` says that
   there is none.

A crash anywhere leaves the cost charged and the ledger usable. There is no refund: a run that failed may have failed
because of what is in the data. Whether a cost fits is for the filter of `curves.filters` to say, in whole numbers,
while the one head of the chain is held; where several accounts must pay, all of them are asked in that transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, require_path
from deniable.ledger.account_balances import Replay, left_of, replay_of, standing
from deniable.ledger.budget import Budget, Cost
from deniable.ledger.charge_requests import REUSED, Ask, ask_of, keyed_of
from deniable.ledger.entries import (
    EVERYBODY,
    Checkpoint,
    Entry,
    Heading,
    State,
    checked_code,
    checked_kind,
    checked_name,
    checked_number,
    checked_question,
    checked_text,
)
from deniable.ledger.history_verification import Recount
from deniable.ledger.keys import PublicKey, SigningKey
from deniable.ledger.ledger_export import Note, newest_note, write_export
from deniable.ledger.owner_signatures import adjusted, checkpointed, in_history, keys_of, rotated, signed_head, stated
from deniable.ledger.spending_accounts import Account, checked_payer, checked_terms, least_left, refuse
from deniable.ledger.stores.home_and_secret import check_log, derived, secret_of, settle
from deniable.ledger.stores.store import ChainHead, Store, Transaction
from deniable.ledger.stores.store_opening import Place, mismatch, name_data, opened, store_at
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Ledger"]

_PAGE = 500

Noted = Checkpoint | Note | Place
_Told = Callable[[Cost], object] | None


@final
class Ledger:
    """An append-only account of what was spent on one dataset. Made by `Ledger.open`.

    Promise: for all neighbours by `unit`, everything sealed here is as private as `guarantee` says, provided that every
    answer is sealed before it leaves and that its cost covers it. Threads and processes that open the same place share
    one budget; a handle on a file or a database may be pickled.
    """

    __slots__ = ("_heading", "_store")

    def __init__(self, store: Store, heading: Heading) -> None:
        self._store = store
        self._heading = heading

    @classmethod
    def open(
        cls,
        place: Place | None = None,
        *,
        budget: Budget | None = None,
        unit: Unit | None = None,
        dataset: str | None = None,
        family: str | None = None,
        owner: PublicKey | None = None,
        checkpoint: Noted | list[Noted] | None = None,
        moved: str | None = None,
        secret: bytes | None = None,
        version: str | None = None,
    ) -> Ledger:
        """The ledger in this file or database, made if there is none; without a place, a new one in memory.

        A ledger must have been made for the same budget, unit, dataset and owner; what is left out is read from it. A
        new one needs the first three. A database, "postgresql://..." or "sqlite:///...", holds many ledgers, and
        `dataset` says which.

        `family` names what data belongs together whatever it is called: a new dataset of a family that has a ledger
        goes on spending from that ledger. With an `owner`, that key alone may adjust limits and sign checkpoints, until
        it is replaced (`rotate`).
        `checkpoint`, one that was kept or a file that has one, refuses a ledger that is older or tells another history;
        several are all compared.
        A file that is not where it is at home is refused, because two copies would spend one budget twice; `moved`
        says why this one alone is used from now on, and is written into the chain. `secret`, 32 random bytes, is for a
        new ledger whose table was read already, see `secret_for`; else one is drawn. `version` tells which data a
        further name of the family is for, and is written down with it: LedgerMismatch if the name is other data's.
        """
        for name, text in (("dataset", dataset), ("family", family), ("version", version)):
            if text is not None:
                checked_name(name, text)
        held = None if owner is None else checked_kind(PublicKey, "owner", owner).hex
        given = checkpoint if isinstance(checkpoint, list) else [checkpoint]
        notes = [newest_note(each) for each in given if each is not None]
        new = None
        # Where a checkpoint is known there was a ledger; a new one in its place would forget what was spent.
        if not notes and budget is not None and unit is not None and dataset is not None:
            serial = secrets.token_hex(16)
            new = Heading(
                checked_kind(Budget, "budget", budget), checked_kind(Unit, "unit", unit), dataset, serial, family, held
            )
        store = store_at(place)
        try:
            heading = opened(store, new, notes, dataset, family)
            ledger = cls(store, heading)
            for field, asked in (("budget", budget), ("unit", unit), ("family", family)):
                found = getattr(heading, field)
                if asked is not None and asked != found:
                    raise mismatch(field, asked, found)
            if owner is not None and owner != ledger.owner:
                raise mismatch("owner", held, None if ledger.owner is None else ledger.owner.hex)
            with store.reading() as transaction:
                for note in notes:
                    in_history(heading, transaction, note)
            settle(store, None if moved is None else checked_text("moved", moved), secret)
            if dataset is not None:
                name_data(store, heading, dataset, family, version)
        except BaseException:
            store.close()
            raise
        return ledger

    @classmethod
    def inspect(cls, place: Place, *, dataset: str | None = None, checkpoint: list[Noted] | None = None) -> Ledger:
        """The ledger in this place to look at, also a copy, one that was renamed or is read-only: it spends nothing."""
        notes = [newest_note(each) for each in checkpoint or []]
        store = store_at(place, to_read=True)
        try:
            ledger = cls(store, store.open(None, dataset=dataset, family=None))
            check_log(store)
            if dataset is not None and dataset not in ledger.names:
                raise mismatch("dataset", dataset, ledger.dataset)
            with store.reading() as transaction:
                for note in notes:
                    in_history(ledger._heading, transaction, note)
            return ledger
        except BaseException:
            store.close()
            raise

    # -- what it is about ----------------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The budget, as it was fixed when the ledger was made."""
        return self._heading.budget

    @property
    def unit(self) -> Unit:
        """Whom the budget protects."""
        return self._heading.unit

    @property
    def dataset(self) -> str:
        """The name of what is asked about: the first one."""
        return self._heading.dataset

    @property
    def names(self) -> list[str]:
        """All names of the data, oldest first."""
        return [self.dataset, *(each.name for each in self.links() if each.name is not None)]

    def links(self) -> list[Entry]:
        """The entries that gave the data further names, oldest first; `version` tells which data, if that was said."""
        with self._store.reading() as transaction:
            return transaction.links()

    @property
    def family(self) -> str:
        """What all data that spends from this ledger has in common; the serial number, if nothing was named."""
        return self._heading.family

    @property
    def serial(self) -> str:
        """The random number that makes this ledger's chain its own."""
        return self._heading.serial

    @property
    def owner(self) -> PublicKey | None:
        """The key that signs adjustments and checkpoints now; None if any key may."""
        known = self.keys
        return known[-1] if known else None

    @property
    def keys(self) -> list[PublicKey]:
        """The owner's keys, oldest first; each vouched for the next. None if any key may sign."""
        if self._heading.owner is None:
            return []
        with self._store.reading() as transaction:
            return [PublicKey(each) for each in keys_of(self._heading, transaction)]

    @property
    def path(self) -> Path | None:
        """The file, or None in memory and in a database."""
        return self._store.path

    # -- spending ------------------------------------------------------------------------------------------------------

    def reserve(
        self, cost: Cost, *, question: str, description: str, key: str | None = None, payer: str | None = None,
        version: str | None = None,
    ) -> Entry:  # fmt: skip
        """Charge this cost and say what for; BudgetExceeded if it does not fit, and then nothing is written.

        `question` is the canonical hash of what is asked, `description` public words. With a `key` (say, a request's
        number) a retry is harmless: the same key for the same question and cost gives the SEALED entry of the first
        time, charged once. If the first time has no answer, or the key was for something else, it is refused. With a
        `payer`, an account of that name pays as well, out of what it was granted. `version` names the version of the
        data: the same question about another one is another question.
        """
        ask = ask_of(cost, question, description, key, version)
        return self._store.write(lambda each: self._reserved(each, ask, checked_payer(payer), keyed_of(each, key)))

    def reserve_or_replay(
        self,
        cost: Cost,
        *,
        question: str,
        description: str,
        enough: Callable[[Entry], bool] | None = None,
        key: str | None = None,
        payer: str | None = None,
        left: _Told = None,
        version: str | None = None,
    ) -> Entry:
        """The newest SEALED entry of this question about this version, for nothing, if it is exact enough; otherwise as
        `reserve`.

        Both are decided in one transaction. An entry is exact enough if it cost as much or more in both columns, or as
        `enough` says. Whether the asker may see what others asked is the caller's to decide. Where something is
        charged, `left` is told what the payer may spend after it (without a payer: what is left of the dataset's
        limit); it may be told again where a store had to begin anew, and what it heard last holds.
        """
        ask = ask_of(cost, question, description, key, version)
        judge = enough or (lambda sealed: ask.cost <= sealed.cost)

        def work(transaction: Transaction) -> Entry:
            before = keyed_of(transaction, key)
            known = None if before is not None else transaction.newest_sealed(question, version)
            if known is not None and judge(known):
                return known
            return self._reserved(transaction, ask, checked_payer(payer), before, left)

        return self._store.write(work)

    def reserve_all(
        self, asks: Iterable[tuple[Cost, str, str] | tuple[Cost, str, str, str | None]], *, key: str | None = None,
        payer: str | None = None, request: Collection[str] = (),
    ) -> list[Entry]:  # fmt: skip
        """Charge several (cost, question, description), or with a version as well, together: all of them, or none.

        The first carries the `key`, if there is one; a key that is known is refused. `request` are the questions that
        the key stands for, also those that need no charge any more.
        """
        checked = [ask_of(*each[:3], key if place == 0 else None, *each[3:]) for place, each in enumerate(asks)]
        if not checked:
            return []

        def work(transaction: Transaction) -> list[Entry]:
            known = keyed_of(transaction, key)
            if known is not None:
                if known.question not in {*request, *(each.question for each in checked)}:
                    raise InvalidParameter("key", key, REUSED, "use a new key for each question")
                rule = f"was used for charge {known.charge}, and not all that was charged with it has an answer"
                raise InvalidParameter("key", key, rule, "it stays charged; wait for it, or ask anew with a new key")
            return self._append(transaction, checked, checked_payer(payer))

        return self._store.write(work)

    def _reserved(
        self, transaction: Transaction, ask: Ask, payer: str | None, known: Entry | None, left: _Told = None
    ) -> Entry:
        if known is None:
            return self._append(transaction, [ask], payer, left)[0]
        if (known.cost, known.question, known.description, known.key, known.version, known.payer) != (*ask, payer):
            raise InvalidParameter("key", ask.key, REUSED, "use a new key for each question")
        closing = transaction.closing(known.number)
        if closing is None or closing.state is not State.SEALED:
            rule = f"was used for charge {known.charge}, which has no answer" + (" yet" if closing is None else "")
            raise InvalidParameter("key", ask.key, rule, "it stays charged; wait for it, or ask anew with a new key")
        return closing

    def _append(
        self, transaction: Transaction, asks: Sequence[Ask], payer: str | None, left: _Told = None
    ) -> list[Entry]:
        accounts = standing(transaction, self.budget.limit, payer or EVERYBODY)
        if payer is not None and not any(each.name == payer for each in accounts):
            raise InvalidParameter("payer", payer, "has no account in this ledger", "grant(...) it one first")
        total = sum((ask.cost for ask in asks), start=Cost(0, 0))
        refuse(self.budget, total, accounts)
        if left is not None:
            left(least_left(accounts[:1] if payer is None else accounts, total))
        spent = transaction.spent()
        mine = next((each.lifetime for each in accounts if each.name == payer), None)
        fields = []
        for ask in asks:
            spent, mine = spent + ask.cost, None if mine is None else mine + ask.cost
            fields.append(
                {"state": State.RESERVED, **ask._asdict(), "spent": spent, "payer": payer, "payer_spent": mine}
            )
        return transaction.append_all(fields)

    def seal(self, entry: Entry, answer: bytes) -> Entry:
        """Store the answer of a RESERVED entry. When this has returned, and not before, the answer may leave."""
        if not isinstance(answer, bytes):
            raise InvalidParameter("answer", NOTHING, "must be bytes")
        return self._close(entry, State.SEALED, answer=answer)

    def fail(self, entry: Entry, code: str) -> Entry:
        """Say that a RESERVED entry will have no answer. It stays charged."""
        return self._close(entry, State.FAILED, code=checked_code(code))

    def _close(self, entry: Entry, state: State, answer: bytes | None = None, code: str | None = None) -> Entry:
        if checked_kind(Entry, "entry", entry).state is not State.RESERVED:
            raise InvalidParameter("entry", entry.number, f"is {entry.state}", "only a RESERVED entry can be closed")

        def work(transaction: Transaction) -> Entry:
            newest = transaction.newest()
            found = newest if newest is not None and newest.number == entry.number else transaction.entry(entry.number)
            if found is not entry and found != entry:
                raise InvalidParameter("entry", entry.number, "is no entry of this ledger")
            closed = transaction.closing(entry.number)
            if closed is not None:
                rule = f"was {closed.state} by entry {closed.number}"
                raise InvalidParameter("entry", entry.number, rule, "an entry is closed once; ask anew")
            return transaction.append(
                state=state,
                question=entry.question,
                cost=entry.cost,
                description=entry.description,
                key=entry.key,
                payer=entry.payer,
                version=entry.version,
                closes=entry.number,
                answer=answer,
                code=code,
                spent=transaction.spent(),
            )

        return self._store.write(work)

    # -- accounts ------------------------------------------------------------------------------------------------------

    def grant(self, account: str, limit: Cost, *, window: int | None = None, by: str, reason: str = "granted") -> Entry:
        """Give an account a limit, or another one: for good, or in each window of so many seconds.

        `account` is a payer, or `EVERYBODY` for windows of the dataset as a whole. What was spent stays spent: a limit
        below that closes the account. The dataset's limit for good is changed by `adjust` alone.
        """
        terms = checked_terms(account, checked_kind(Cost, "limit", limit), window, by)
        if (account, window) == (EVERYBODY, None):
            rule = "is the limit of the whole dataset, which its owner must sign for"
            raise InvalidParameter("account", account, rule, "use adjust(..., key=...), or give a window")
        checked_text("reason", reason)

        def work(transaction: Transaction) -> Entry:
            return transaction.append(state=State.GRANTED, description=reason, spent=transaction.spent(), terms=terms)

        return self._store.write(work)

    def adjust(
        self, account: str, limit: Cost, *, window: int | None = None, by: str, reason: str, key: SigningKey
    ) -> Entry:
        """Change any limit, also the dataset's own (`EVERYBODY`), up or down, with the owner's signature.

        The entry is there for everybody to see, and what was spent stays spent. A raised limit weakens the guarantee
        for all that was ever answered.
        """
        terms = checked_terms(account, checked_kind(Cost, "limit", limit), window, by)
        checked_kind(SigningKey, "key", key)
        checked_text("reason", reason)
        return self._store.write(lambda transaction: adjusted(self._heading, transaction, terms, reason, key))

    def state(self, words: str, *, by: str, key: SigningKey) -> Entry:
        """Write down what somebody says about the data, with the owner's signature, for everybody to see."""
        checked_kind(SigningKey, "key", key)
        checked_name("by", by)
        checked_text("words", words)
        return self._store.write(lambda transaction: stated(self._heading, transaction, words, by, key))

    def accounts(self) -> list[Account]:
        """Every limit, the dataset's first, with what was spent of it, is left, and was ever spent by that account."""
        with self._store.reading() as transaction:
            return standing(transaction, self.budget.limit)

    def left(self, payer: str) -> Cost:
        """What this payer may still spend now: the least, in each column, of all accounts that must pay."""
        checked_name("payer", payer)
        with self._store.reading() as transaction:
            return left_of(transaction, self.budget.limit, payer)

    # -- evidence ------------------------------------------------------------------------------------------------------

    def checkpoint(self, key: SigningKey, *, after: Iterable[Noted] = ()) -> Checkpoint:
        """Sign everything up to the newest entry, and write that down as an entry of its own.

        Keep the checkpoint elsewhere (`write_checkpoint`): with it, `Ledger.open(..., checkpoint=...)` and `deniable
        verify` see later whether the history was changed, or an older copy was put in its place. Nothing is signed
        unless the history has all that was noted before, if that is given: `after`.
        """
        checked_kind(SigningKey, "key", key)
        notes = [newest_note(each) for each in after]
        return self._store.write(lambda transaction: checkpointed(self._heading, transaction, key, notes))

    def signed_head(self, key: SigningKey, *, after: Iterable[Noted] = ()) -> Checkpoint:
        """The same, and nothing is written here: for notes that are taken often."""
        notes = [newest_note(each) for each in after]
        with self._store.reading() as transaction:
            return signed_head(self._heading, transaction, checked_kind(SigningKey, "key", key), notes)

    def holds(self, note: Note) -> bool:
        """Whether the history has come past this note; nothing is read where this handle wrote what it says."""
        return note.serial == self.serial and self._store.holds(ChainHead(note.number, note.hash))

    @property
    def head(self) -> Note:
        """Where the chain ends now, unsigned: the number and hash of the newest entry."""
        with self._store.reading() as transaction:
            return Note(self.serial, *transaction.head, None)

    @property
    def reached(self) -> Note | None:
        """Where it ended when this process last wrote to it, or what it had then; None before. Nothing is read."""
        return None if self._store.reached is None else Note(self.serial, *self._store.reached, None)

    def rotate(self, successor: PublicKey, *, by: str, reason: str, key: SigningKey) -> Entry:
        """Replace the owner's key: the old one signs for the new one, and signs nothing from there on.

        Whoever knows the first key can still check everything, because each vouches for the next. A ledger that was
        made without an owner has no key to replace.
        """
        new = checked_kind(PublicKey, "successor", successor).hex
        checked_kind(SigningKey, "key", key)
        checked_name("by", by)
        checked_text("reason", reason)
        return self._store.write(lambda transaction: rotated(self._heading, transaction, new, by, reason, key))

    def export(self, path: Place) -> int:
        """Write the whole history to a new JSONL file that `deniable verify` checks offline; how many entries.

        Answers are left out, and their hashes stay. Written beside its place and moved there when it is whole.
        """
        with self._store.reading() as transaction:
            return write_export(Path(require_path("path", path, "ledger.jsonl")), self._heading, transaction)

    def verify(self, key: PublicKey | None = None) -> Entry | None:
        """Recompute every hash, sum, limit and signature; LedgerDamaged names the first entry that is not as written.

        With a `key`, the owner's first, that key alone may have signed, and those it vouched for. Returns the newest
        entry. Whoever wrote down its number and hash, or has a checkpoint, can see later that nothing before it
        changed; without such a note, somebody who may write the file can also forge a whole new chain.
        """
        with self._store.reading() as transaction:
            head, recount = transaction.head, Recount(self._heading, transaction.genesis, key)
            for entry in transaction.history(after=recount.number):
                recount.add(entry)
            newest = recount.end(head.number, head.hash)
            transaction.check_file()
            return newest

    # -- reading -------------------------------------------------------------------------------------------------------

    def answer(self, question: str, *, version: str | None = None) -> Entry | None:
        """The newest SEALED entry of this question about this version: giving it out again costs nothing."""
        with self._store.reading() as transaction:
            return transaction.newest_sealed(checked_question(question), version)

    def replay(self, question: str, *, version: str | None = None, payer: str | None = None) -> Replay | None:
        """The same with the entry that paid for it and what the payer may still spend: all that is told again."""
        with self._store.reading() as transaction:
            return replay_of(transaction, self.budget.limit, checked_question(question), version, payer)

    def keyed(self, key: str) -> Entry | None:
        """The entry that was charged under this key, if one was."""
        with self._store.reading() as transaction:
            return transaction.keyed(key)

    def entry(self, number: int) -> Entry | None:
        """The entry of this number, if there is one."""
        with self._store.reading() as transaction:
            return transaction.entry(checked_number(number))

    def charge(self, number: int) -> Entry | None:
        """The RESERVED entry that receipts call by this number; see `Entry.charge`."""
        with self._store.reading() as transaction:
            return transaction.charge(checked_number(number))

    def closing(self, number: int) -> Entry | None:
        """The entry that sealed or failed the RESERVED entry of this number, if there is one."""
        with self._store.reading() as transaction:
            return transaction.closing(checked_number(number))

    def entries(self) -> Iterator[Entry]:
        """Every entry, oldest first. Others may write meanwhile; what they add is included."""
        after = 0
        while True:
            with self._store.reading() as transaction:
                page = transaction.page(after=after, most=_PAGE)
            if not page:
                return
            yield from page
            after = page[-1].number

    @property
    def charged(self) -> Cost:
        """Everything charged so far, exactly."""
        with self._store.reading() as transaction:
            return transaction.spent()

    @property
    def limit(self) -> Cost:
        """What may be spent all in all: the budget's limit, or what its owner adjusted it to."""
        with self._store.reading() as transaction:
            return standing(transaction, self.budget.limit, EVERYBODY)[0].limit

    @property
    def largest_limit(self) -> Cost:
        """The most, in each column, that may or might ever have been spent: a limit that was lowered came too late."""
        with self._store.reading() as transaction:
            terms = transaction.terms(EVERYBODY)
        limits = [self.budget.limit, *(each.limit for each in terms if each.window is None)]
        return Cost(max(each.units for each in limits), max(each.delta_units for each in limits))

    @property
    def remaining(self) -> Cost:
        """What is left of the dataset's limit, exactly; `remaining // cost` says how many such questions fit."""
        with self._store.reading() as transaction:
            return left_of(transaction, self.budget.limit, None)

    @property
    def spent(self) -> Curve:
        """Everything charged so far, as the curve it would promise had the costs been fixed in advance; rounded up.

        How much was spent depends on the answers; only the limit was fixed before them. What holds is `guarantee`.
        """
        return self.budget.curve(self.charged)

    @property
    def guarantee(self) -> Guarantee:
        """What holds for everything that was and will be sealed here: the limit, at any stopping time.

        After adjustments, the largest limit that ever was: a lower one came too late to be a promise.
        """
        assumptions: tuple[str, ...] = ("every answer is sealed in this ledger before it leaves",)
        most = self.largest_limit
        if most != self.budget.limit:
            assumptions += ("the owner did not raise the limit because of answers",)
        return Guarantee(self.budget.curve(most), self.unit, assumptions=assumptions)

    def secret_for(self, purpose: str) -> bytes:
        """32 secret bytes for this purpose, the same ones whenever this ledger is opened.

        For the owner's machine: in no entry, no export and no repr.
        """
        with self._store.reading() as transaction:
            return derived(secret_of(transaction), purpose)

    # -- handles -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the file. What was written stays; a ledger in memory is gone."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        if self._store.place is None:
            raise InvalidOperation("a ledger in memory cannot go to another process; give it a file")
        return _reopened, (self._store.place, self.dataset, self.serial)

    def __repr__(self) -> str:
        return f"<Ledger {self._store.title} of {self.dataset!r}, {self.budget!r}, {self.unit!r}>"


def _reopened(place: str, dataset: str, serial: str) -> Ledger:
    return Ledger.open(place, dataset=dataset, checkpoint=Note(serial, 0, "", None))  # this one, and never a new one
