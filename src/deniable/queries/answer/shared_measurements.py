"""What answers cost together. Noise is drawn for one charge, or for all charges of a batch: that is one measurement.

Several answers can rest on one measurement: the tables of a batch that were measured together, sums that were read off
a finer table, an answer and its refinement. Each measurement counts once, however many answers rest on it.
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
    """A measurement, by a mark that no other one has, and what it costs as far as an answer rests on it.

    An answer of an earlier version has no mark, so that nobody knows what else rests on its measurements.
    """

    mark: str
    cost: Cost


def mark_of(serial: str, charge: int) -> str:
    """The mark of what was measured for a charge of a ledger; of several charges, the first one is named."""
    return f"{serial}:{charge}"


def in_all(measured: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Each measurement once. Questions about disjoint rows have one mark, and cost together what the dearest costs."""
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
    """The measurements that some answers rest on, each once."""
    return in_all(each for one in released for each in one.measured or (Measurement("", one.cost),))


def total(measured: Iterable[Measurement]) -> Cost:
    """What measurements cost together."""
    return sum((each.cost for each in in_all(measured)), start=Cost(0))


def cost_of(answers: Sequence[Answer]) -> Cost:
    """What several answers cost together. One that was fitted rests on all that it was fitted to."""
    sources = {id(one): one for each in answers for one in (each._joint[0].answers if each._joint else (each,))}
    return total(behind(each.released for each in sources.values()))


def to_list(measured: Iterable[Measurement]) -> list[list[str]]:
    """As plain values."""
    return [[each.mark, str(each.cost.units), str(each.cost.delta_units)] for each in measured]


def from_list(record: Iterable[Any]) -> tuple[Measurement, ...]:
    """What `to_list` wrote."""
    return tuple(Measurement(str(mark), Cost(int(units), int(delta))) for mark, units, delta in record)
