"""The cost of several answers together, without counting shared noise twice.

A measurement is one draw of noise, for one charge or for all charges of a joint group. Several answers can rest on the
same measurement: tables of a batch that were measured jointly, sums of a finer table, an answer and its refinement.
Each measurement counts once, however many answers rest on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from deniable.ledger import Cost

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.release import Released


@final
class Measurement(NamedTuple):
    """A measurement: its unique mark, and its cost.

    Answers of an earlier version have no mark (""), so it is unknown which other answers share their measurements.
    """

    mark: str
    cost: Cost


def mark_of(serial: str, charge: int) -> str:
    """The mark of the measurement for a charge of a ledger; for several charges, `charge` is the first of them."""
    return f"{serial}:{charge}"


def in_all(measured: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Each measurement once, at its highest cost: disjoint questions share a mark and cost what the highest costs."""
    found: dict[str, Measurement] = {}
    unknown = []
    for each in measured:
        if not each.mark:
            unknown.append(each)
            continue
        cost = found.get(each.mark, each).cost
        most = Cost(max(cost.units, each.cost.units), max(cost.delta_units, each.cost.delta_units))
        found[each.mark] = Measurement(each.mark, most)
    return (*found.values(), *unknown)


def behind(released: Iterable[Released]) -> tuple[Measurement, ...]:
    """The measurements behind some answers, each once."""
    return in_all(each for one in released for each in one.measured or (Measurement("", one.cost),))


def total(measured: Iterable[Measurement]) -> Cost:
    """The total cost of measurements, each counted once."""
    return sum((each.cost for each in in_all(measured)), start=Cost(0))


def total_cost(answers: Sequence[Answer]) -> Cost:
    """The total cost of several answers. A fitted answer rests on all answers that it was fitted to."""
    sources = {id(one): one for each in answers for one in (each._joint[0].answers if each._joint else (each,))}
    return total(behind(each.released for each in sources.values()))


def to_list(measured: Iterable[Measurement]) -> list[list[str]]:
    """The measurements as JSON-ready lists."""
    return [[each.mark, str(each.cost.units), str(each.cost.delta_units)] for each in measured]


def from_list(record: Iterable[Any]) -> tuple[Measurement, ...]:
    """The inverse of `to_list`."""
    return tuple(Measurement(str(mark), Cost(int(units), int(delta))) for mark, units, delta in record)
