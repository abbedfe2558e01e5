"""The one place where exact numbers meet noise. What comes out may be seen; what goes in never leaves this module."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.errors import UnreadableRecord
from deniable.ledger import Cost
from deniable.mechanisms.base import witnessed
from deniable.queries.planner import noise
from deniable.queries.recipes import Drawn

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.noise import Entropy
    from deniable.queries.planner import Noise, Plan
    from deniable.tables.statistics import Group

_VERSION: Final = 1
LARGEST: Final = 2**62


@final
@dataclass(frozen=True, slots=True)
class Released:
    """Noisy statistics by group, and the cost whose noise they carry. All of it is public.

    Two answers to one question merge without loss: by inverse variance, into what one answer at the sum of their costs
    would have been (under a Gaussian budget exactly, because precisions and μ² both add).
    """

    groups: tuple[Group, ...]
    parts: tuple[Any, ...]
    """For each part, an array over groups: of numbers, or of rows of running totals."""
    cost: Cost
    """What was charged for it."""
    precision: Cost
    """The cost at which one answer would carry as little noise: more than `cost` where other answers helped."""

    def drawn(self, plan: Plan, budget: Budget) -> list[list[Drawn]]:
        """For each group, each part's noisy value with its noise."""
        made = noise(plan, budget, self.precision)
        columns = []
        for index, (part, values) in enumerate(zip(plan.parts, self.parts, strict=True)):
            deviation = made.deviation(index)
            if part.is_running:
                mechanism: Any = made.mechanisms[index]
                blend = partial(_blend, mechanism)
                columns.append([Drawn(row, deviation, made.shape, blend) for row in values])
            else:
                columns.append([Drawn(value, deviation, made.shape) for value in values.tolist()])
        return [list(group) for group in zip(*columns, strict=True)] if columns else [[] for _ in self.groups]

    def merged(self, other: Released, budget: Budget) -> Released:
        """Both answers in one, by inverse variance. A group that only one of them has is taken from that one."""
        mine, its = (precise(each.precision.units, budget) for each in (self, other))
        share = float(mine / (mine + its))
        groups = (*self.groups, *(group for group in other.groups if group not in set(self.groups)))
        at = [{group: i for i, group in enumerate(each.groups)} for each in (self, other)]
        parts = []
        for first, second in zip(self.parts, other.parts, strict=True):
            rows = []
            for group in groups:
                found = [
                    values[place[group]] for values, place in zip((first, second), at, strict=True) if group in place
                ]
                rows.append(found[0] if len(found) == 1 else share * found[0] + (1 - share) * found[1])
            parts.append(np.asarray(rows))
        units = at_precision(mine + its, budget)
        precision = Cost(units, max(self.precision.delta_units, other.precision.delta_units))
        return Released(groups, tuple(parts), self.cost + other.cost, precision)

    def to_bytes(self) -> bytes:
        """For the ledger."""
        record = {
            "version": _VERSION,
            "groups": [[_written(value) for value in group] for group in self.groups],
            "parts": [part.tolist() for part in self.parts],
            "cost": [str(self.cost.units), str(self.cost.delta_units)],
            "precision": [str(self.precision.units), str(self.precision.delta_units)],
        }
        return json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, answer: bytes, plan: Plan) -> Released:
        """What `to_bytes` wrote for this plan."""
        record = json.loads(answer)
        if record.get("version") != _VERSION:
            raise UnreadableRecord("this answer was written by another version; update deniable")
        groups = tuple(tuple(_read(value) for value in group) for group in record["groups"])
        parts = []
        for part, values in zip(plan.parts, record["parts"], strict=True):
            made = np.asarray(values)
            parts.append(made.reshape(len(groups), part.statistic.width) if part.is_running else made.reshape(-1))
        costs = (Cost(*(int(amount) for amount in record[name])) for name in ("cost", "precision"))
        return cls(groups, tuple(parts), *costs)


def precise(units: int, budget: Budget) -> Fraction:
    """The precision (1/variance, but for a factor) that these units buy: μ² is one, of ε the square is."""
    return Fraction(units) ** (2 if budget.currency == "epsilon" else 1)


def at_precision(precision: Fraction, budget: Budget) -> int:
    """The units that buy this precision, rounded down."""
    whole = math.floor(precision)
    return math.isqrt(whole) if budget.currency == "epsilon" else whole


def _blend(mechanism: Any, q: float) -> Any:
    """The standard deviation of total_t - q·total_last, for each t."""
    return mechanism.deviations_from_share(q)


def release(
    plan: Plan, made: Noise, cost: Cost, counts: Mapping[Group, Any], entropy: Entropy | None = None
) -> Released:
    """Exact statistics in, noisy ones out. Which groups are shown is decided by public keys, or by noise alone."""
    source = witnessed(entropy)
    drawn: dict[int, Any] = {}
    if plan.collect.known is not None:
        groups = plan.collect.known
    else:
        assert plan.people is not None
        assert made.threshold is not None
        # In an order that the keys alone decide: that of rows would tell who came first.
        groups = tuple(sorted(counts, key=_order))
        people = _noisy(plan, made, plan.people, groups, counts, source)
        shown = np.flatnonzero(people >= made.threshold)
        groups = tuple(groups[i] for i in shown)
        drawn[plan.people] = people[shown]
    parts = tuple(
        drawn[index] if index in drawn else _noisy(plan, made, index, groups, counts, source)
        for index in range(len(plan.parts))
    )
    return Released(groups, parts, cost, cost)


def _noisy(
    plan: Plan, made: Noise, index: int, groups: tuple[Group, ...], counts: Mapping[Group, Any], source: Entropy | None
) -> Any:
    part, mechanism = plan.parts[index], made.mechanisms[index]
    drawing: Any = mechanism
    if part.is_running:
        rows = np.array([[_cut(one) for one in counts[group][index]] for group in groups], dtype=np.int64)
        rows = rows.reshape(len(groups), part.statistic.width)
        return drawing.release(rows, entropy=source) if len(groups) else rows
    values = np.array([_cut(counts[group][index]) for group in groups], dtype=np.int64)
    return values + drawing.draw(values.shape, source) if len(groups) else values


def _cut(value: int) -> int:
    """Numbers that no table could reach are cut, not refused: an error would say something. Cutting moves nothing
    farther apart.
    """
    return max(-LARGEST, min(LARGEST, value))


def _order(group: Group) -> tuple[tuple[str, Any], ...]:
    return tuple((type(value).__name__, 0 if value is None else value) for value in group)


def _written(value: Any) -> Any:
    """A key as JSON has it; dates as {"date": ...} and {"timestamp": ...}."""
    if isinstance(value, dt.datetime):
        return {"timestamp": value.isoformat()}
    return {"date": value.isoformat()} if isinstance(value, dt.date) else value


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, text)] = value.items()
    return dt.datetime.fromisoformat(text) if kind == "timestamp" else dt.date.fromisoformat(text)
