"""The ledger: spend first, answer later, forget nothing.

1. `reserve`: one transaction. If the cost fits, it is charged and a RESERVED entry is written; otherwise nothing is.
2. The caller runs the question.
3. `seal`: a second transaction stores the answer. Only when it has returned may the answer leave. `fail` says that
   there is none.

A crash anywhere leaves the cost charged and the ledger usable. There is no refund: a run that failed may have failed
because of what is in the data. Whether a cost fits is for the filter of `curves.filters` to say, in whole numbers,
while the one head of the chain is held.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, final

from deniable.errors import NOTHING, BudgetExceeded, InvalidOperation, InvalidParameter, LedgerDamaged, LedgerMismatch
from deniable.ledger.budget import Budget, Cost
from deniable.ledger.entries import Entry, Heading, State, checked_code, checked_question, checked_text
from deniable.ledger.sqlite import SQLiteStore
from deniable.ledger.stores import RESTORE, Store, Transaction
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Ledger"]

_PAGE = 500

Kind = TypeVar("Kind")


@final
class Ledger:
    """An append-only account of what was spent on one dataset. Made by `Ledger.open`.

    Promise: for all neighbours by `unit`, everything sealed here is as private as `guarantee` says, provided that every
    answer is sealed before it leaves and that its cost covers it. Threads and processes that open the same file share
    one budget; a handle on a file may be pickled.
    """

    __slots__ = ("_heading", "_store")

    def __init__(self, store: Store, heading: Heading) -> None:
        self._store = store
        self._heading = heading

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        budget: Budget | None = None,
        unit: Unit | None = None,
        dataset: str | None = None,
    ) -> Ledger:
        """The ledger in this file, made if there is none; without a path, a new one in memory.

        A file must have been made for the same budget, unit and dataset; what is left out is read from it. A new ledger
        needs all three.
        """
        new = None
        if budget is not None and unit is not None and dataset is not None:
            protected = _a(Unit, "unit", unit)
            new = Heading(
                _a(Budget, "budget", budget), protected, checked_text("dataset", dataset), secrets.token_hex(16)
            )
        store = SQLiteStore(None if path is None else Path(path).absolute())
        try:
            heading = store.open(new)
            for field, asked in (("budget", budget), ("unit", unit), ("dataset", dataset)):
                found = getattr(heading, field)
                if asked is not None and asked != found:
                    remedy = "open it as what it is, or keep another ledger; a budget is fixed when its ledger is made"
                    raise LedgerMismatch(field, repr(asked), repr(found), remedy)
        except BaseException:
            store.close()
            raise
        return cls(store, heading)

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
        """The name of what is asked about."""
        return self._heading.dataset

    @property
    def path(self) -> Path | None:
        """The file, or None in memory."""
        return self._store.path

    # -- spending ------------------------------------------------------------------------------------------------------

    def reserve(self, cost: Cost, *, question: str, description: str, key: str | None = None) -> Entry:
        """Charge this cost and say what for; BudgetExceeded if it does not fit, and then nothing is written.

        `question` is the canonical hash of what is asked, `description` public words. With a `key` (say, a request's
        number) a retry is harmless: the same key for the same question and cost gives the SEALED entry of the first
        time, charged once. If the first time has no answer, or the key was for something else, it is refused.
        """
        ask = (_a(Cost, "cost", cost), checked_question(question), checked_text("description", description))
        if key is None:
            return self._reserve([ask])[0]
        checked_text("key", key)
        with self._store.writing() as transaction:
            known = transaction.keyed(key)
            if known is None:
                return self._append(transaction, [(*ask, key)])[0]
            if (known.cost, known.question, known.description) != ask:
                raise InvalidParameter("key", key, "was used for another question", "use a new key for each question")
            closing = transaction.closing(known.number)
            if closing is None or closing.state is not State.SEALED:
                rule = f"was used for entry {known.number}, which has no answer" + (" yet" if closing is None else "")
                raise InvalidParameter("key", key, rule, "it stays charged; wait for it, or ask anew with a new key")
            return closing

    def reserve_all(self, asks: Iterable[tuple[Cost, str, str]]) -> list[Entry]:
        """Charge several (cost, question, description) together: all of them, or none."""
        checked = [
            (_a(Cost, "cost", cost), checked_question(question), checked_text("description", description))
            for cost, question, description in asks
        ]
        return self._reserve(checked) if checked else []

    def _reserve(self, asks: Sequence[tuple[Cost, str, str]]) -> list[Entry]:
        with self._store.writing() as transaction:
            return self._append(transaction, [(*ask, None) for ask in asks])

    def _append(self, transaction: Transaction, asks: Sequence[tuple[Cost, str, str, str | None]]) -> list[Entry]:
        spent = transaction.spent()
        total = sum((cost for cost, *_ in asks), start=Cost(0, 0))
        after = spent + total
        try:
            self.budget.filter.charge_units(after.units, after.delta_units)
        except BudgetExceeded:
            left = _rest(self.budget.limit, spent)
            remedy = "nothing was spent; lower the cost, or ask something that was asked before"
            asked = total.describe(self.budget)
            raise BudgetExceeded(asked, left.describe_rest(self.budget), remedy) from None
        entries = []
        for cost, question, description, key in asks:
            spent = spent + cost
            entry = transaction.append(
                state=State.RESERVED, question=question, cost=cost, description=description, key=key, spent=spent
            )
            entries.append(entry)
        return entries

    def seal(self, entry: Entry, answer: bytes) -> Entry:
        """Store the answer of a RESERVED entry. When this has returned, and not before, the answer may leave."""
        if not isinstance(answer, bytes):
            raise InvalidParameter("answer", NOTHING, "must be bytes")
        return self._close(entry, State.SEALED, answer=answer)

    def fail(self, entry: Entry, code: str) -> Entry:
        """Say that a RESERVED entry will have no answer. It stays charged."""
        return self._close(entry, State.FAILED, code=checked_code(code))

    def _close(self, entry: Entry, state: State, answer: bytes | None = None, code: str | None = None) -> Entry:
        if _a(Entry, "entry", entry).state is not State.RESERVED:
            raise InvalidParameter("entry", entry.number, f"is {entry.state}", "only a RESERVED entry can be closed")
        with self._store.writing() as transaction:
            spent = transaction.spent()
            if transaction.entry(entry.number) != entry:
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
                closes=entry.number,
                answer=answer,
                code=code,
                spent=spent,
            )

    # -- reading -------------------------------------------------------------------------------------------------------

    def answer(self, question: str) -> Entry | None:
        """The newest SEALED entry of this question: giving it out again costs nothing."""
        with self._store.reading() as transaction:
            return transaction.newest_sealed(checked_question(question))

    def entry(self, number: int) -> Entry | None:
        """The entry of this number, if there is one."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**63:
            raise InvalidParameter("number", number, "must be a whole number, at least 1")
        with self._store.reading() as transaction:
            return transaction.entry(number)

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
    def remaining(self) -> Cost:
        """What is left, exactly; `remaining // cost` says how many such questions fit."""
        return _rest(self.budget.limit, self.charged)

    @property
    def spent(self) -> Curve:
        """Everything charged so far, as the curve it would promise had the costs been fixed in advance; rounded up.

        How much was spent depends on the answers; only the limit was fixed before them. What holds is `guarantee`.
        """
        return self.budget.curve(self.charged)

    @property
    def guarantee(self) -> Guarantee:
        """What holds for everything that was and will be sealed here: the limit, at any stopping time."""
        assumptions = ("every answer is sealed in this ledger before it leaves",)
        return Guarantee(self.budget.curve(self.budget.limit), self.unit, assumptions=assumptions)

    def verify(self) -> Entry | None:
        """Recompute every hash and every sum; LedgerDamaged names the first entry that is not what was written.

        Returns the newest entry. Whoever wrote down its number and hash can see later that nothing before it changed;
        without such a note, somebody who may write the file can also forge a whole new chain.
        """
        with self._store.reading() as transaction:
            head, link, spent = transaction.head, transaction.genesis, Cost(0, 0)
            waiting: dict[int, Entry] = {}
            newest: Entry | None = None
            number = 0
            while page := transaction.page(after=number, most=_PAGE):
                for newest in page:
                    number += 1
                    _check(newest, number, link, spent, waiting)
                    link, spent = newest.hash, newest.spent
                    if not spent <= self.budget.limit:
                        raise LedgerDamaged(number, "spends more than the budget", RESTORE)
            if number != head.number:
                missing = f"is missing; the ledger had {head.number} entries"
                first, fault = (number, missing) if number < head.number else (head.number, "was added behind the end")
                raise LedgerDamaged(first + 1, fault, RESTORE)
            if link != head.hash:
                raise LedgerDamaged(number, "is not what the head of the chain says", RESTORE)
            transaction.check_file()
            return newest

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
        if self.path is None:
            raise InvalidOperation("a ledger in memory cannot go to another process; give it a file")
        return _reopened, (str(self.path), self.budget, self.unit, self.dataset)

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else repr(str(self.path))
        return f"<Ledger {place} of {self.dataset!r}, {self.budget!r}, {self.unit!r}>"


def _check(entry: Entry, number: int, link: str, spent: Cost, waiting: dict[int, Entry]) -> None:
    """LedgerDamaged if this is not entry `number`, following `link`; `waiting` has the entries that are still open."""
    if entry.number != number:
        raise LedgerDamaged(number, "is missing", RESTORE)
    if entry.digest() != entry.hash:
        raise LedgerDamaged(number, "was changed", RESTORE)
    if entry.previous != link:
        # Entry 1 is whole, so what it hangs from is not.
        raise (
            LedgerDamaged(0, "was changed", RESTORE)
            if number == 1
            else LedgerDamaged(number, "does not follow the entry before it", RESTORE)
        )
    if entry.spent != spent + entry.charged:
        raise LedgerDamaged(number, "has a wrong sum", RESTORE)
    if entry.state is State.RESERVED:
        waiting[number] = entry
        return
    closed = waiting.pop(entry.closes or 0, None)
    if closed is None or (closed.question, closed.cost, closed.key) != (entry.question, entry.cost, entry.key):
        raise LedgerDamaged(number, "closes no open entry", RESTORE)


def _rest(limit: Cost, spent: Cost) -> Cost:
    return Cost(max(0, limit.units - spent.units), max(0, limit.delta_units - spent.delta_units))


def _a(kind: type[Kind], name: str, value: object) -> Kind:
    """The value, if it is of this kind."""
    if not isinstance(value, kind):
        shown = NOTHING if isinstance(value, bytes) else value
        raise InvalidParameter(name, shown, f"must be a {kind.__name__}")
    return value


def _reopened(path: str, budget: Budget, unit: Unit, dataset: str) -> Ledger:
    return Ledger.open(path, budget=budget, unit=unit, dataset=dataset)
