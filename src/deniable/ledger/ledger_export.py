"""A ledger as a JSONL file that anybody can verify, without the ledger and without the answers.

The first line is the heading, exactly as the first link of the chain hashes it. Then comes one line for every entry,
oldest first, with the SHA-256 of its answer instead of the answer. The last line is the number and hash of the newest
entry, so that a file that was cut off is detected.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, final

from deniable.errors import (
    DeniableError,
    InvalidParameter,
    LedgerDamaged,
    LedgerUnavailable,
    UnreadableRecord,
    require_path,
)
from deniable.ledger.budget import Cost
from deniable.ledger.entries import Checkpoint, Entry, Heading, State, amounts, compact, read_cost, read_optional_fields
from deniable.ledger.history_verification import Recount
from deniable.ledger.keys import PublicKey, is_signed
from deniable.ledger.spending_accounts import Account
from deniable.ledger.stores.store import Transaction

__all__ = ["NotedHead", "Verified", "newest_note", "verify_export", "write_checkpoint", "write_export"]

_PAGE = 500
_ASK = "ask whoever made the file for another copy, and the owner for a checkpoint"


@final
class NotedHead(NamedTuple):
    """The number and hash of an entry, as noted outside of the ledger. An empty serial or hash is not compared."""

    serial: str
    number: int
    hash: str
    signer: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying an exported history. Every number was recomputed from its entries."""

    heading: Heading
    names: tuple[str, ...]
    entries: int
    hash: str
    spent: Cost
    limit: Cost
    accounts: tuple[Account, ...]
    open: int
    """The number of charges that were neither sealed nor failed at the time of the export."""

    adjustments: int
    checkpoints: tuple[Checkpoint, ...]
    signers: tuple[str, ...]
    """The keys that signed entries. Compare them with a key that you trust: anybody can make a key and sign."""

    keys: tuple[str, ...] = ()
    """The owner's keys, oldest first; each signed for the next."""

    risk: str | None = None
    """What a person risks in a period and over their life; None if the budget is not renewed."""

    @property
    def unsigned(self) -> int:
        """The number of newest entries that no checkpoint covers: anybody with write access could have written them."""
        return self.entries - (self.checkpoints[-1].number + 1 if self.checkpoints else 0)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_export(path: Path, heading: Heading, transaction: Transaction) -> int:
    """Write the entries of this transaction to a file. Returns the number of entries."""

    def lines() -> Iterator[str]:
        yield heading.text()
        after = 0
        while page := transaction.page(after=after, most=_PAGE):
            yield from (compact(_record(entry)) for entry in page)
            after = page[-1].number
        head = transaction.head
        yield compact({"end": {"number": head.number, "hash": head.hash}})

    return _write(path, lines()) - 2


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint as one line of JSON. If that fails, an older file of this name stays as it was."""
    _write(Path(require_path("path", path, "checkpoint.json")), iter([compact(checkpoint.record())]))


def _write(path: Path, lines: Iterator[str]) -> int:
    """Write lines to a temporary file, flush it to the disk, and rename it to `path`. Returns the number of lines."""
    half = path.with_name(
        f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    )  # a name of its own for each thread
    count = 0
    try:
        with half.open("w", encoding="ascii", newline="\n") as file:
            for line in lines:
                file.write(line + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except BaseException as error:
        with suppress(OSError):
            half.unlink()
        if isinstance(error, OSError):  # this file cannot be written; errors of the ledger are DeniableErrors already
            raise _not_written(path, error) from None
        raise
    return count


def _not_written(path: Path, error: OSError) -> DeniableError:
    why = os.strerror(error.errno or 0)
    if not path.parent.is_dir():
        return InvalidParameter("path", str(path), "is in a folder that does not exist", "make the folder first")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return LedgerUnavailable(
            f"the file {str(path)!r} could not be written ({why})", "make room, and write it again"
        )
    return InvalidParameter(
        "path", str(path), f"cannot be written ({why})", "name a file in a folder that you may write to"
    )


def _record(entry: Entry) -> dict[str, object]:
    record = {
        "number": entry.number,
        "time": entry.time,
        "state": entry.state.value,
        "question": entry.question,
        "description": entry.description,
        "key": entry.key,
        "cost": amounts(entry.cost),
        "spent": amounts(entry.spent),
        "closes": entry.closes,
        "answer_sha256": entry.answer_digest(),
        "code": entry.code,
        "more": entry.more(),
        "previous": entry.previous,
        "hash": entry.hash,
    }
    return {name: value for name, value in record.items() if value is not None}


# --- reading ----------------------------------------------------------------------------------------------------------


def newest_note(given: Checkpoint | NotedHead | str | os.PathLike[str]) -> NotedHead:
    """The note in a checkpoint, in a file with a checkpoint, or at the end of an exported history.

    UnreadableRecord if the signature of a checkpoint is invalid.
    """
    if isinstance(given, NotedHead):
        return given
    if not isinstance(given, Checkpoint):
        path = Path(require_path("checkpoint", given, "checkpoint.json"))
        try:
            start = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            rule = "cannot be read, so it is unknown whether this is the newest copy of the ledger"
            raise InvalidParameter("checkpoint", str(path), rule) from None
        if not start:
            raise UnreadableRecord(f"{str(path)!r} is empty, so it is not a checkpoint; restore the newest one")
        if "\n" in start:
            found = verify_export(path)
            return NotedHead(found.heading.serial, found.entries, found.hash, None)
        given = Checkpoint.read(_json(start))
    if not is_signed(given.signer, given.message(), given.signature):
        raise UnreadableRecord("the signature of this checkpoint is invalid: it was changed")
    return NotedHead(given.serial, given.number, given.hash, given.signer)


def verify_export(
    path: str | os.PathLike[str],
    *,
    key: PublicKey | None = None,
    against: str | os.PathLike[str] | None = None,
) -> Verified:
    """Verify an exported history from its first line to its last; LedgerDamaged names the first wrong entry.

    `key` is the owner's first key; with it, only that key and its successors may have signed, each until it was
    replaced. `against` is a file with a checkpoint or an earlier export, which the history must contain: this detects a
    history that was shortened or rewritten, which the file alone cannot show.
    """
    note = None if against is None else newest_note(against)
    older = _links(Path(against)) if against is not None else {}
    with Path(require_path("path", path, "ledger.jsonl")).open(
        encoding="ascii", errors="surrogateescape", newline="\n"
    ) as file:
        first = file.readline().rstrip("\n")
        heading = Heading.read(first)
        genesis = sha256(first.encode("ascii", "surrogateescape")).hexdigest()
        if note is not None and note.serial != heading.serial:
            raise LedgerDamaged(0, "belongs to another ledger than the file to compare with", _ASK)
        recount, end = Recount(heading, genesis, key, remedy=_ASK), None
        for line in file:
            if end is not None:
                raise LedgerDamaged(recount.number + 1, "was added after the end of the chain", _ASK)
            record = _line(line, recount.number + 1)
            if record.keys() == {"end"}:
                end = record["end"]
                continue
            entry = _entry(record, recount.number + 1)
            if older.get(entry.number, entry.hash) != entry.hash:
                raise LedgerDamaged(
                    entry.number, "differs from the file to compare with: one of them has another history", _ASK
                )
            recount.add(entry)
    if not isinstance(end, dict) or type(end.get("number")) is not int or not isinstance(end.get("hash"), str):
        raise LedgerDamaged(recount.number + 1, "is missing: the file was cut off", _ASK)
    recount.end(end["number"], end["hash"])
    if note is not None and note.number > recount.number:
        raise LedgerDamaged(recount.number + 1, f"is missing; the ledger had {note.number} entries", _ASK)
    return _verified(recount)


def _verified(recount: Recount) -> Verified:
    accounts = tuple(recount.accounts())
    return Verified(
        heading=recount.heading,
        names=tuple(recount.names),
        entries=recount.number,
        hash=recount.link,
        spent=recount.spent,
        limit=accounts[0].limit,
        accounts=accounts,
        open=recount.open,
        adjustments=recount.adjustments,
        checkpoints=tuple(recount.checkpoints),
        signers=tuple(sorted(recount.signers)),
        keys=tuple(recount.keys),
        risk=recount.risk,
    )


def _links(path: Path) -> dict[int, str]:
    """The hashes in a checkpoint or an earlier export, by number."""
    found: dict[int, str] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        record = _json(line)
        if isinstance(record, dict) and type(record.get("number")) is int and isinstance(record.get("hash"), str):
            found[record["number"]] = record["hash"]
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        raise UnreadableRecord("this is not JSON, so it is neither a checkpoint nor a ledger") from None


def _line(line: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise LedgerDamaged(number, "cannot be read", _ASK)
    return record


def _entry(record: dict[str, Any], number: int) -> Entry:
    try:
        texts = {name: record[name] for name in ("time", "question", "description", "previous", "hash")}
        optional = {name: record.get(name) for name in ("key", "code")} | {"answer_hash": record.get("answer_sha256")}
        if not all(
            isinstance(each, str) for each in (*texts.values(), *(e for e in optional.values() if e is not None))
        ):
            raise TypeError
        if type(record["number"]) is not int or type(record.get("closes")) not in (int, type(None)):
            raise TypeError
        fields: dict[str, Any] = texts | optional | read_optional_fields(record.get("more"))
        found = Entry(
            number=record["number"],
            state=State(record["state"]),
            cost=read_cost(record["cost"]),
            spent=read_cost(record["spent"]),
            closes=record.get("closes"),
            **fields,
        )
        if _record(found) != record:
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise LedgerDamaged(number, "cannot be read", _ASK) from None
    return found
