"""Several noisy counts that are stored as one entry of the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from deniable.errors import UnreadableRecord
from deniable.queries.answer.release import Released

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.units import Guarantee

_VERSION = 1


@final
@dataclass(frozen=True, slots=True)
class MeasuredTogether:
    """Counts that were measured for one entry, with budget, guarantee and receipt."""

    plans: tuple[NoisePlan, ...]
    released: tuple[Released, ...]
    budget: Budget
    guarantee: Guarantee
    receipt: Receipt


def written(released: Sequence[Released], chosen: Sequence[Sequence[int]] = ()) -> bytes:
    """The bytes of an entry: the records of all counts in order, and the columns of tables that were chosen."""
    record: dict[str, Any] = {"version": _VERSION, "together": [each.to_bytes().decode() for each in released]}
    if chosen:
        record["chosen"] = [list(each) for each in chosen]
    return json.dumps(record).encode()


def chosen(answer: bytes) -> list[tuple[int, ...]]:
    """The columns of the tables that were chosen for an entry, in order."""
    return [tuple(each) for each in json.loads(answer).get("chosen", ())]


def pieces(answer: bytes) -> list[bytes]:
    """The records of an entry; `UnreadableRecord` if another version wrote it."""
    record = json.loads(answer)
    if record.get("version") != _VERSION or not isinstance(record.get("together"), list):
        raise UnreadableRecord(
            "another version of deniable wrote these counts to the ledger; read them with that version"
        )
    return [each.encode() for each in record["together"]]


def read_pieces(written: Sequence[bytes], plans: Sequence[NoisePlan]) -> list[Released]:
    """The counts of these records, one for each plan; `UnreadableRecord` if they do not match."""
    if len(written) != len(plans):
        raise UnreadableRecord(
            "another version of deniable wrote these counts to the ledger; read them with that version"
        )
    return [Released.from_bytes(each, plan) for each, plan in zip(written, plans, strict=True)]


def read(answer: bytes, plans: Sequence[NoisePlan]) -> list[Released]:
    """The inverse of `written` for these plans; `UnreadableRecord` if they do not match."""
    return read_pieces(pieces(answer), plans)
