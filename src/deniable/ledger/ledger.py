"""The ledger: charge first, answer later, never delete.

A ledger is an append-only chain of entries in a store. Every question passes through three steps:

1. `reserve`, one transaction. If the cost fits, the ledger charges it and writes a RESERVED entry. If it does not fit,
   the ledger raises BudgetExceeded and writes nothing.
2. The caller runs the question.
3. `seal`, a second transaction, stores the answer. The caller may show the answer only after `seal` has returned.
   If the run has no answer, `fail` writes that instead.

After a crash at any point the cost stays charged and the ledger can be used. Failed runs are not refunded, because a
run may have failed because of a value in the data. A filter of `curves.filters` decides whether a cost fits, in whole
numbers, while the transaction holds the lock on the head of the chain; if several accounts must pay, the same
transaction checks all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, require_path
from deniable.ledger.account_balances import Replay, left_of, replay_of, risk_of, standing
from deniable.ledger.budget import Budget, Cost
from deniable.ledger.charge_requests import REUSED, Ask, answered_before, ask_of, closed, keyed_of
from deniable.ledger.declared_versions import declared_in, recorded
from deniable.ledger.entries import (
    EVERYBODY,
    Checkpoint,
    DeclaredVersion,
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
from deniable.ledger.ledger_export import NotedHead, newest_note, write_export
from deniable.ledger.owner_signatures import adjusted, checkpointed, in_history, keys_of, rotated, signed_head, stated
from deniable.ledger.renewal import Renewal
from deniable.ledger.spending_accounts import Account, checked_payer, checked_terms, largest, least_left, refuse
from deniable.ledger.stores.home_and_secret import check_log, derived, secret_of, settle
from deniable.ledger.stores.store import ChainHead, Store, Transaction
from deniable.ledger.stores.store_opening import Place, mismatch, name_data, opened, store_at
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Ledger"]
_PAGE = 500
Noted = Checkpoint | NotedHead | Place
_OnCharged = Callable[[Cost], object] | None


@final
class Ledger:
    """An append-only record of what was spent on one dataset. Use `Ledger.open` to make one.

    Promise: for all neighbours by `unit`, all sealed answers together are as private as `guarantee` states, provided
    that every answer is sealed before it leaves and that its cost covers it. Threads and processes that open the same
    place share one budget. A ledger in a file or a database can be pickled; one in memory cannot.
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
        budget: Budget | Renewal | None = None,
        unit: Unit | None = None,
        dataset: str | None = None,
        family: str | None = None,
        owner: PublicKey | None = None,
        checkpoint: Noted | list[Noted] | None = None,
        moved: str | None = None,
        secret: bytes | None = None,
        version: str | None = None,
    ) -> Ledger:
        """Open the ledger at this place, or make one if the place is empty. Without a place: a new one in memory.

        A new ledger needs a budget or a `Renewal`, a unit and a dataset. If the ledger exists, what you give must equal
        its own budget, unit, dataset, family and owner (LedgerMismatch otherwise); it supplies what you leave out.

        - `place`: a path, or the URL of a database with many ledgers, among which `dataset` chooses.
        - `family`: the common name of datasets about the same people. They all spend from one ledger.
        - `owner`: the only key that may adjust limits and sign checkpoints, until `rotate` replaces it.
        - `checkpoint`: one or more that you kept, or files with them. A ledger that does not contain them is refused.
        - `moved`: why a file is not at its old path; written into the chain. Without a reason such a file is refused,
          because two copies could spend the same budget twice.
        - `secret`: 32 random bytes for a new ledger (see `secret_for`). By default the ledger draws its own.
        - `version`: which data a further name stands for. LedgerMismatch if the name already stands for other data.
        """
        for name, text in (("dataset", dataset), ("family", family), ("version", version)):
            if text is not None:
                checked_name(name, text)
        held = None if owner is None else checked_kind(PublicKey, "owner", owner).hex
        given = checkpoint if isinstance(checkpoint, list) else [checkpoint]
        notes = [newest_note(each) for each in given if each is not None]
        new = None
        # A checkpoint proves that a ledger existed; a new one in its place would forget what was spent.
        if not notes and budget is not None and unit is not None and dataset is not None:
            serial, renewal = secrets.token_hex(16), budget if isinstance(budget, Renewal) else None
            whole = checked_kind(Budget, "budget", budget) if renewal is None else renewal.lifetime
            new = Heading(whole, checked_kind(Unit, "unit", unit), dataset, serial, family, held, renewal)
        store = store_at(place)
        try:
            heading = opened(store, new, notes, dataset, family)
            ledger = cls(store, heading)
            for field, asked in (("budget", budget), ("unit", unit), ("family", family)):
                found = heading.renewal if isinstance(asked, Renewal) else getattr(heading, field)
                alike = isinstance(asked, Unit) and heading.unit.is_alike(asked)
                if asked is not None and asked != found and not alike:
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
        """Open a ledger for reading only. This also works for a copy, a renamed file and a read-only file."""
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
        """The budget that the ledger was made with. `limit` is what the owner has adjusted it to."""
        return self._heading.budget

    @property
    def renewal(self) -> Renewal | None:
        """The budget of each period, if the budget renews; then `budget` is the budget of all periods together."""
        return self._heading.renewal

    @property
    def risk(self) -> str | None:
        """What a person risks in a period and over their life, in words; None if the budget is not renewed."""
        with self._store.reading() as transaction:
            return risk_of(self._heading, transaction.terms(EVERYBODY))

    @property
    def unit(self) -> Unit:
        """The unit of privacy: a row, or a person."""
        return self._heading.unit

    @property
    def dataset(self) -> str:
        """The first name of the data."""
        return self._heading.dataset

    @property
    def names(self) -> list[str]:
        """All names of the data, oldest first."""
        return [self.dataset, *(each.name for each in self.links() if each.name is not None)]

    def links(self) -> list[Entry]:
        """The LINKED entries, which give the data further names, oldest first."""
        with self._store.reading() as transaction:
            return transaction.links()

    @property
    def family(self) -> str:
        """The common name of all datasets that spend from this ledger; the serial number if none was given."""
        return self._heading.family

    @property
    def serial(self) -> str:
        """A random number, in hexadecimal, that distinguishes this ledger from all others."""
        return self._heading.serial

    @property
    def owner(self) -> PublicKey | None:
        """The key that may sign adjustments and checkpoints now; None if any key may."""
        known = self.keys
        return known[-1] if known else None

    @property
    def keys(self) -> list[PublicKey]:
        """The owner's keys, oldest first; each signed for the next. An empty list if any key may sign."""
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
        """Charge a cost and return the RESERVED entry; BudgetExceeded, and nothing written, if it does not fit.

        `question` is the SHA-256 of the question's canonical form, in hexadecimal; `description` is public text. `key`
        is an idempotency key: the second time, with all else equal, nothing is charged and the SEALED entry of the
        first time is returned; InvalidParameter if that has no answer, or if anything differs. `payer` is an account
        that pays too, from what `grant` gave it. Questions about different versions of the data are different.
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
        left: _OnCharged = None,
        version: str | None = None,
    ) -> Entry:
        """Return the newest SEALED entry of this question and version if it is exact enough; otherwise `reserve`.

        A sealed entry is free. One transaction decides and charges. By default an entry is exact enough if it cost at
        least as much in both columns; `enough` replaces this rule. The caller decides whether the asker may see answers
        to other people's questions.

        If the cost is charged, `left` is called with what the payer may still spend afterwards (without a payer: what
        is left of the dataset's limit). It can be called more than once, if the store repeats the transaction; the last
        call is the valid one.
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
        """Charge several costs in one transaction: all of them, or none.

        Each of `asks` is (cost, question, description) or (cost, question, description, version). The `key`, if given,
        is stored with the first entry; a key that was used before raises InvalidParameter. `request` lists all
        questions of the request that the key identifies, including those that need no charge.
        """
        checked = [ask_of(*each[:3], key if place == 0 else None, *each[3:]) for place, each in enumerate(asks)]
        if not checked:
            return []

        def work(transaction: Transaction) -> list[Entry]:
            known = keyed_of(transaction, key)
            if known is not None:
                if known.question not in {*request, *(each.question for each in checked)}:
                    raise InvalidParameter("key", key, REUSED, "use a new key for each question")
                rule = f"was used for charge {known.charge}, and a question of that request has no answer"
                remedy = "that charge stays; wait for its answer, or ask again with a new key"
                raise InvalidParameter("key", key, rule, remedy)
            return self._append(transaction, checked, checked_payer(payer))

        return self._store.write(work)

    def _reserved(
        self, transaction: Transaction, ask: Ask, payer: str | None, known: Entry | None, left: _OnCharged = None
    ) -> Entry:
        if known is None:
            return self._append(transaction, [ask], payer, left)[0]
        return answered_before(transaction, ask, payer, known)

    def _append(
        self, transaction: Transaction, asks: Sequence[Ask], payer: str | None, left: _OnCharged = None
    ) -> list[Entry]:
        accounts = standing(transaction, self._heading.limits, payer or EVERYBODY)
        if payer is not None and not any(each.name == payer for each in accounts):
            raise InvalidParameter("payer", payer, "has no account in this ledger", "give it a limit with grant(...)")
        total = sum((ask.cost for ask in asks), start=Cost(0, 0))
        refuse(self.budget, total, accounts)
        if left is not None:
            left(least_left(accounts, total))
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
        """Store the answer of a RESERVED entry. The answer may leave only after this method has returned."""
        if not isinstance(answer, bytes):
            raise InvalidParameter("answer", NOTHING, "must be bytes")
        return self._close(entry, State.SEALED, answer=answer)

    def fail(self, entry: Entry, code: str) -> Entry:
        """Record that a RESERVED entry will have no answer, with a code such as "engine-failed". It stays charged."""
        return self._close(entry, State.FAILED, code=checked_code(code))

    def _close(self, entry: Entry, state: State, answer: bytes | None = None, code: str | None = None) -> Entry:
        if checked_kind(Entry, "entry", entry).state is not State.RESERVED:
            raise InvalidParameter("entry", entry.number, f"is {entry.state}", "only a RESERVED entry can be closed")
        return self._store.write(lambda transaction: closed(transaction, entry, state, answer, code))

    # -- versions of the data ------------------------------------------------------------------------------------------

    def declare(self, version: DeclaredVersion) -> None:
        """Record a version of a table: a public event, which costs nothing and gives no budget back.

        Nothing is written if it is known. LedgerMismatch if the table has a version of this name with other content.
        """
        checked_kind(DeclaredVersion, "version", version)
        self._store.write(lambda transaction: recorded(transaction, version))

    def versions(self, table: str | None = None) -> list[DeclaredVersion]:
        """The declared versions of this table, or of all tables, oldest first."""
        with self._store.reading() as transaction:
            return [each for each in declared_in(transaction) if table in {None, each.table}]

    # -- accounts ------------------------------------------------------------------------------------------------------

    def grant(self, account: str, limit: Cost, *, window: int | None = None, by: str, reason: str = "granted") -> Entry:
        """Set the limit of an account: in total or, with `window`, in each window of this many seconds.

        `account` is a payer, or `EVERYBODY` for windows of the whole dataset. Earlier spending counts: an account whose
        new limit is below it cannot spend any more. Only `adjust` changes the dataset's total limit.
        """
        terms = checked_terms(account, checked_kind(Cost, "limit", limit), window, by)
        if (account, window) in self._heading.limits:
            rule = "is the account of the whole dataset, whose limits only the owner's signature changes"
            raise InvalidParameter("account", account, rule, "use adjust(..., key=...), or give another window")
        checked_text("reason", reason)

        def work(transaction: Transaction) -> Entry:
            return transaction.append(state=State.GRANTED, description=reason, spent=transaction.spent(), terms=terms)

        return self._store.write(work)

    def adjust(
        self, account: str, limit: Cost, *, window: int | None = None, by: str, reason: str, key: SigningKey
    ) -> Entry:
        """Raise or lower any limit, including the dataset's own (`EVERYBODY`), with the owner's signature.

        Everybody can see the entry. Earlier spending counts. Raising the dataset's limit weakens the guarantee of all
        answers, also of those already given.
        """
        terms = checked_terms(account, checked_kind(Cost, "limit", limit), window, by)
        checked_kind(SigningKey, "key", key)
        checked_text("reason", reason)
        return self._store.write(lambda transaction: adjusted(self._heading, transaction, terms, reason, key))

    def state(self, words: str, *, by: str, key: SigningKey) -> Entry:
        """Record a public statement about the data, signed with the owner's key."""
        checked_kind(SigningKey, "key", key)
        checked_name("by", by)
        checked_text("words", words)
        return self._store.write(lambda transaction: stated(self._heading, transaction, words, by, key))

    def accounts(self) -> list[Account]:
        """Every limit in force, the dataset's first, with what was spent and what is left."""
        with self._store.reading() as transaction:
            return standing(transaction, self._heading.limits)

    def left(self, payer: str) -> Cost:
        """What this payer may still spend now: in each column the least that any account that must pay has left."""
        checked_name("payer", payer)
        with self._store.reading() as transaction:
            return left_of(transaction, self._heading.limits, payer)

    # -- evidence ------------------------------------------------------------------------------------------------------

    def checkpoint(self, key: SigningKey, *, after: Iterable[Noted] = ()) -> Checkpoint:
        """Sign the chain up to its newest entry, and append the signature as a CHECKPOINT entry.

        Keep the checkpoint somewhere else (`write_checkpoint`). With it, `Ledger.open(..., checkpoint=...)` and
        `deniable verify` detect a changed history and an older copy of the ledger. `after` lists earlier checkpoints;
        if the chain does not contain one of them, an error is raised and nothing is signed.
        """
        checked_kind(SigningKey, "key", key)
        notes = [newest_note(each) for each in after]
        return self._store.write(lambda transaction: checkpointed(self._heading, transaction, key, notes))

    def signed_head(self, key: SigningKey, *, after: Iterable[Noted] = ()) -> Checkpoint:
        """A checkpoint as by `checkpoint`, without an entry in the ledger: for checkpoints that are taken often."""
        notes = [newest_note(each) for each in after]
        with self._store.reading() as transaction:
            return signed_head(self._heading, transaction, checked_kind(SigningKey, "key", key), notes)

    def holds(self, note: NotedHead) -> bool:
        """Whether the chain contains the entry that this note names. Reads nothing if this handle wrote that entry."""
        return note.serial == self.serial and self._store.holds(ChainHead(note.number, note.hash))

    @property
    def head(self) -> NotedHead:
        """The number and hash of the newest entry, without a signature."""
        with self._store.reading() as transaction:
            return NotedHead(self.serial, *transaction.head, None)

    @property
    def reached(self) -> NotedHead | None:
        """The head of the chain after the last write of this process; None before its first. Reads nothing."""
        return None if self._store.reached is None else NotedHead(self.serial, *self._store.reached, None)

    def rotate(self, successor: PublicKey, *, by: str, reason: str, key: SigningKey) -> Entry:
        """Replace the owner's key: the old key signs for its successor, and is not valid for later entries.

        The first key is enough to verify the whole chain, because each key signs for the next. A ledger that was made
        without an owner has no key to replace.
        """
        new = checked_kind(PublicKey, "successor", successor).hex
        checked_kind(SigningKey, "key", key)
        checked_name("by", by)
        checked_text("reason", reason)
        return self._store.write(lambda transaction: rotated(self._heading, transaction, new, by, reason, key))

    def export(self, path: Place) -> int:
        """Write the history to a new JSONL file that `deniable verify` checks offline. Returns the number of entries.

        The file has the hashes of the answers, and not the answers. It gets its name only when it is complete.
        """
        with self._store.reading() as transaction:
            return write_export(Path(require_path("path", path, "ledger.jsonl")), self._heading, transaction)

    def verify(self, key: PublicKey | None = None) -> Entry | None:
        """Recompute every hash, sum, limit and signature. LedgerDamaged names the first entry that is wrong.

        `key` is the owner's first key; with it, only that key and its successors may have signed. Returns the newest
        entry, or None if the ledger is empty. Keep its number and hash, or a checkpoint, to detect later changes:
        somebody with write access to the file can replace the whole chain by a forged one that verifies.
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
        """The newest SEALED entry of this question and version; None if it has no answer yet. Free."""
        with self._store.reading() as transaction:
            return transaction.newest_sealed(checked_question(question), version)

    def replay(self, question: str, *, version: str | None = None, payer: str | None = None) -> Replay | None:
        """As `answer`, with the entry that paid for it and what the payer may still spend."""
        with self._store.reading() as transaction:
            return replay_of(transaction, self._heading.limits, checked_question(question), version, payer)

    def keyed(self, key: str) -> Entry | None:
        """The RESERVED entry with this idempotency key; None if no entry has it."""
        with self._store.reading() as transaction:
            return transaction.keyed(key)

    def entry(self, number: int) -> Entry | None:
        """The entry with this number in the chain; None if no entry has this number."""
        with self._store.reading() as transaction:
            return transaction.entry(checked_number(number))

    def charge(self, number: int) -> Entry | None:
        """The RESERVED entry with this number among the charges, as on receipts; see `Entry.charge`."""
        with self._store.reading() as transaction:
            return transaction.charge(checked_number(number))

    def closing(self, number: int) -> Entry | None:
        """The SEALED or FAILED entry that closes the RESERVED entry of this number; None if it is open."""
        with self._store.reading() as transaction:
            return transaction.closing(checked_number(number))

    def entries(self) -> Iterator[Entry]:
        """Every entry, oldest first, including entries that are written during the iteration."""
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
        """The exact sum of all costs charged so far."""
        with self._store.reading() as transaction:
            return transaction.spent()

    @property
    def limit(self) -> Cost:
        """The dataset's limit in force: the budget's, or the one that its owner set last."""
        with self._store.reading() as transaction:
            return standing(transaction, self._heading.limits, EVERYBODY)[0].limit

    @property
    def largest_limit(self) -> Cost:
        """The largest limit that was ever in force, column by column; `guarantee` is computed from it."""
        with self._store.reading() as transaction:
            return largest(self._heading.limits, transaction.terms(EVERYBODY), None)

    @property
    def remaining(self) -> Cost:
        """What the dataset has left, exactly: in each column the least of what its lifetime and its windows have left.

        `remaining // cost` is the number of such questions that still fit.
        """
        with self._store.reading() as transaction:
            return left_of(transaction, self._heading.limits, None)

    @property
    def spent(self) -> Curve:
        """The curve of what was charged so far, rounded up: a promise only if the costs were fixed in advance.

        Later costs may depend on earlier answers; `guarantee` holds in every case.
        """
        return self.budget.curve(self.charged)

    @property
    def guarantee(self) -> Guarantee:
        """The promise for all answers sealed here, past and future: the limit, at any stopping time.

        If the owner adjusted the limit, the largest one counts: lowering a limit takes nothing back.
        """
        assumptions: tuple[str, ...] = ("every answer is sealed in this ledger before it leaves",)
        most = self.largest_limit
        if most != self.budget.limit:
            assumptions += ("the owner did not raise the limit because of answers",)
        return Guarantee(self.budget.curve(most), self.unit, assumptions=assumptions)

    def secret_for(self, purpose: str) -> bytes:
        """32 secret bytes for this purpose, always the same ones. No entry, export or repr contains them."""
        with self._store.reading() as transaction:
            return derived(secret_of(transaction), purpose)

    # -- handles -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file or connection. A ledger in memory is lost."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        if self._store.place is None:
            raise InvalidOperation("a ledger in memory cannot be pickled for another process; open it with a file")
        return _reopened, (self._store.place, self.dataset, self.serial)

    def __repr__(self) -> str:
        return f"<Ledger {self._store.title} of {self.dataset!r}, {self.budget!r}, {self.unit!r}>"


def _reopened(place: str, dataset: str, serial: str) -> Ledger:
    return Ledger.open(place, dataset=dataset, checkpoint=NotedHead(serial, 0, "", None))  # forbids a new ledger
