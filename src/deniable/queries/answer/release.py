"""The one place where exact numbers meet noise. What comes out may be seen; what goes in never leaves this module."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from deniable.errors import UnreadableRecord
from deniable.ledger import Cost
from deniable.mechanisms.mechanism import witnessed
from deniable.mechanisms.prefix_sums import Differences
from deniable.queries.answer.shared_measurements import Measurement, behind, from_list, to_list, total
from deniable.queries.intervals.noise_intervals import Share, fewest
from deniable.queries.intervals.threshold_intervals import ThresholdGate, ThresholdPassed
from deniable.queries.plan.estimators import DrawnValue
from deniable.queries.plan.noise_families import family_of
from deniable.queries.plan.noise_planner import noise, pairs, unthresholded
from deniable.queries.relations.exact_statistics import ExactSum
from deniable.synth import residual_noise
from deniable.synth.table_noise import Columns, TableNoise, summed, without_averages

if TYPE_CHECKING:
    from deniable.ledger import Budget
    from deniable.noise import Entropy
    from deniable.queries.answer.joint_tables import Jointly, Made
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.relations.exact_statistics import Group

_VERSION: Final = 1
_WITH_LAW: Final = 2
"""The version of an answer that was measured together with others: earlier versions would misread its noise."""
LARGEST: Final = 2**62
_LARGE: Final = 2**20
"""Multiples of counts that are worked out in 64 bits."""
_PIECES: Final = 4
"""Draws that are told apart in what an average or a ratio is made of: there may be one of these in each group."""


@final
class Draw(NamedTuple):
    """One time that noise was drawn: what was paid for it, and of how many cells at most it is the sum (in a batch, a
    finer answer is summed up to help a coarser one).
    """

    cost: Cost
    cells: int = 1


@final
class DrawnShares(NamedTuple):
    """What draws add to a number that was moved; by a second account, where it is not known which one is true."""

    shares: tuple[Share, ...]
    otherwise: tuple[Share, ...] = ()


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
    units: tuple[int, ...]
    """The same for each group: a key that only one of several answers showed carries that one's noise."""
    threshold: int | None = None
    """The noisy number of people from which on a key was shown; None where keys are public."""
    draws: tuple[Draw, ...] = ()
    """Each draw that was merged into it; see `all_draws`."""
    moved: tuple[DrawnShares, ...] = ()
    """For each group, if numbers were moved to add up: what the draws behind it add to a number."""
    paired: bool = False
    """Whether sums and counts that can be released together are (`planner.Pair`): their parts then hold H·n ± S."""
    picked: bool = False
    """Whether its one part holds the numbers of cells that were drawn (`picked.Picked`). Two of them do not merge."""
    law: TableNoise | None = None
    """Of a table that was measured together with others (`jointly`): the noise of its only part."""
    columns: tuple[int, ...] = ()
    """Then: what the law calls its keys."""
    measured: tuple[Measurement, ...] = ()
    """What was measured for it; their costs add up to `cost`. Empty: that is not known."""

    def shares_by_law(self) -> tuple[Share, ...]:
        """What the draws add to a cell, by its law."""
        assert self.law is not None
        return tuple(Share(*each) for each in self.law.shares(self.columns))

    @property
    def all_draws(self) -> tuple[Draw, ...]:
        """Every draw that it rests on: itself alone, if nothing was merged."""
        return self.draws or (Draw(self.cost),)

    @property
    def only_draw(self) -> str | None:
        """The mark of the draw of a table that was measured by itself, once; None where more is in it, or unknown."""
        alone = self.law is None and not self.draws and len(self.measured) == 1
        return self.measured[0].mark or None if alone else None

    def deviation(self, plan: NoisePlan, budget: Budget, part: int) -> float:
        """The standard deviation of a part's noise, for a key that every draw showed; of running totals the largest.

        Draws are independent and weighted by nominal precisions p_i: √(Σ p_i² σ_i² m_i) / Σ p_i, with the true σ_i of
        each draw's noise and m_i cells summed up in it.
        """
        if self.law is not None:
            return math.hypot(*(each.deviation(budget.accounting.shape) for each in self.shares_by_law()))
        made = unthresholded(plan, budget, self.cost.units)
        whole, one = math.hypot(*_lengths(plan, budget, part, self.all_draws)), made.spread(part)
        return (
            float(np.max(made.deviation(part))) / one * whole if one else 0.0
        )  # so much was paid that no noise is left

    def drawn(self, plan: NoisePlan, budget: Budget) -> list[list[DrawnValue]]:
        """For each group, each part's noisy value with its noise."""
        if self.law is not None and not self.moved:
            deviation, shares = self.deviation(plan, budget, 0), self.shares_by_law()
            return [
                [DrawnValue(each, deviation, budget.accounting.shape, shares=shares)] for each in self.parts[0].tolist()
            ]
        columns = []
        halves = {place: pair.half for pair in pairs(plan, budget) for place in (pair.total, pair.count)}
        for index, (part, values) in enumerate(zip(plan.parts, self.parts, strict=True)):
            spreads = {units: self._spread(plan, budget, index, units) for units in set(self.units)}
            found = values if part.is_running else values.tolist()
            half = halves.get(index, 0)
            columns.append(
                [DrawnValue(value, **spreads[units], half=half) for value, units in zip(found, self.units, strict=True)]
            )  # fmt: skip
        if self.moved:  # a single part
            [fitted] = columns
            columns = [[replace(one, **each._asdict()) for one, each in zip(fitted, self.moved, strict=True)]]
        return [list(group) for group in zip(*columns, strict=True)]

    def _spread(self, plan: NoisePlan, budget: Budget, part: int, units: int) -> dict[str, Any]:
        """What `DrawnValue` says about the noise of one part, for a key that is known at this precision."""
        made = unthresholded(plan, budget, units)
        mechanism: Any = made.mechanisms[part]
        if plan.is_picked:
            return {"deviations": made.deviation(part), "shape": made.shape}
        blend = mechanism.differences if plan.parts[part].is_running else None
        chosen = self._chosen(plan, budget, units) if part == plan.people else None
        if not self.draws:
            told = {"deviations": made.deviation(part), "shape": made.shape, "blend": blend, "chosen": chosen}
            return told if blend is not None else told | {"shares": self._shares(plan, budget, part, units)}
        factor, draws = self._mixed(plan, budget, part, units)
        tails = math.fsum(draw**4 for draw in draws)

        def blended(q: float) -> Differences:
            law = mechanism.differences(q)
            return Differences(law.deviations * factor, law.steps * factor, law.kurtosis * tails)

        told = {"deviations": made.deviation(part) * factor, "shape": made.shape, "draws": draws}
        if blend is not None:
            return told | {"blend": blended}
        return told | {"shares": self._shares(plan, budget, part, units), "chosen": chosen}

    def _chosen(self, plan: NoisePlan, budget: Budget, units: int) -> ThresholdPassed | None:
        """How the count of people decided that a key of this precision is shown; None where keys are public."""
        if self.threshold is None or plan.people is None:
            return None
        behind = self._behind(units, budget)
        if len(behind) < len(self.all_draws) > 2:
            behind = ()  # other draws of the same precision in all could be behind it
        gates = []
        for each in behind:
            made = noise(plan, budget, each.cost) if self.draws else unthresholded(plan, budget, each.cost.units)
            threshold = made.threshold if self.draws else self.threshold
            assert threshold is not None
            mechanism: Any = made.mechanisms[plan.people]
            gates.append(ThresholdGate(made.shape, float(mechanism.width), threshold))
        return ThresholdPassed(tuple(gates), self._shares(plan, budget, plan.people, units) if gates else ())

    def _shares(self, plan: NoisePlan, budget: Budget, part: int, units: int) -> tuple[Share, ...]:
        """What each draw adds to a merged number of this precision; nothing if that is not known."""
        return shares_of(plan, budget, part, self._behind(units, budget))

    def shares_at(self, plan: NoisePlan, budget: Budget, group: int) -> tuple[Share, ...]:
        """The same of the only part, in one group."""
        if self.law is not None and not self.moved:
            return self.shares_by_law()
        return self._shares(plan, budget, 0, self.units[group])

    def _mixed(self, plan: NoisePlan, budget: Budget, part: int, units: int) -> tuple[float, tuple[float, ...]]:
        """(how wide the noise is, relative to that of one draw at this precision; how it is made up of draws).

        One draw at the sum of precisions would not be as wide, where noise on whole numbers is narrower than the law
        between them. Where it is not known which draws a number rests on, none of them is wider for its precision than
        the widest: σ² <= max (p_i σ_i²) / p.
        """
        own = unthresholded(plan, budget, units).spread(part)
        behind = self._behind(units, budget)
        if not behind:
            square = max(
                float(precise(each.cost.units, budget) / precise(units, budget))
                * unthresholded(plan, budget, each.cost.units).spread(part) ** 2
                for each in self.all_draws
            )
            return math.sqrt(square) / own, (1.0,)
        lengths = fewest(_lengths(plan, budget, part, behind), _PIECES)
        whole = math.hypot(*lengths)
        if not whole or not own:  # so much was paid that no noise is left
            return 0.0, (1.0,)
        return whole / own, tuple(length / whole for length in lengths)

    def _behind(self, units: int, budget: Budget) -> tuple[Draw, ...]:
        """The draws that a number of this precision rests on; none if that is not known."""
        if self.moved:
            return ()
        if not self.draws and units == self.cost.units:  # nothing was merged
            return self.all_draws
        whole = sum(precise(each.cost.units, budget) / each.cells for each in self.all_draws)
        if abs(at_precision(Fraction(whole), budget) - units) <= len(self.all_draws):  # rounded down at each merging
            return self.all_draws
        return next(((each,) for each in self.all_draws if each == Draw(Cost(units, each.cost.delta_units))), ())

    def merged(self, other: Released, budget: Budget, plan: NoisePlan | None = None) -> Released:
        """Both answers in one, by inverse variance. A group that only one of them has is taken from that one."""
        assert not self.picked  # a cell that was drawn has no variance
        assert not other.picked
        ours = dict(zip(self.groups, range(len(self.groups)), strict=True))
        others = dict(zip(other.groups, range(len(other.groups)), strict=True))
        groups = (*self.groups, *(group for group in other.groups if group not in ours))
        if set(ours) != set(others):  # keys that are not public: in the order of one answer
            groups = tuple(sorted(groups, key=_order))
        shares, units = [], []
        for group in groups:
            mine = precise(self.units[ours[group]], budget) if group in ours else Fraction(0)
            its = precise(other.units[others[group]], budget) if group in others else Fraction(0)
            shares.append(float(mine / (mine + its)))
            units.append(at_precision(mine + its, budget))
        weights = np.asarray(shares)
        parts = []
        for first, second in zip(self.parts, other.parts, strict=True):
            weight = weights[:, None] if first.ndim == 2 else weights
            parts.append(weight * _placed(first, ours, groups) + (1 - weight) * _placed(second, others, groups))
        both = precise(self.precision.units, budget) + precise(other.precision.units, budget)
        delta = max(self.precision.delta_units, other.precision.delta_units)
        precision = Cost(at_precision(both, budget), delta)
        thresholds = [each for each in (self.threshold, other.threshold) if each is not None]
        measured, least = behind((self, other)), min(thresholds, default=None)
        cost = total(measured)
        if plan is not None and (self.law is not None or other.law is not None):
            ours_law, columns = self.with_law(plan, budget)
            # The keys of both are the same, in the same order, but each law has names of its own for them.
            its_law, others_columns = other.with_law(plan, budget)
            law = ours_law.mixed(shares[0], its_law.renamed(dict(zip(others_columns, columns, strict=True)), ours_law))
            return Released(
                groups, tuple(parts), cost, precision, tuple(units), law=law, columns=columns, measured=measured
            )
        draws = (*self.all_draws, *other.all_draws)
        return Released(
            groups, tuple(parts), cost, precision, tuple(units), least, draws, paired=self.paired, measured=measured
        )

    def with_law(self, plan: NoisePlan, budget: Budget) -> tuple[TableNoise, tuple[int, ...]]:
        """The noise of a single count or sum by public keys as a law, and what that calls the keys."""
        if self.law is not None:
            return self.law, self.columns
        sizes = [len(key.values or ()) for key in plan.question.keys]
        columns = tuple(range(len(sizes)))
        law = TableNoise(tuple(sizes), ())
        for share in shares_of(plan, budget, 0, self.all_draws):
            # Of sums of finer cells, a wider draw has as much noise.
            width = share.width * math.sqrt(share.cells)
            law = TableNoise(law.sizes, (*law.sources, *TableNoise.alone(sizes, columns, width, share.weight).sources))
        return (law if self.only_draw is None else law.marked(self.only_draw)), columns

    def to_bytes(self) -> bytes:
        """For the ledger."""
        record: dict[str, Any] = {
            "version": _VERSION if self.law is None else _WITH_LAW,
            "groups": [[_written(value) for value in group] for group in self.groups],
            "parts": [_packed(part) for part in self.parts],
            "cost": [str(self.cost.units), str(self.cost.delta_units)],
            "precision": [str(self.precision.units), str(self.precision.delta_units)],
            # Most often one number for all.
            "units": [str(each) for each in (set(self.units) if len(set(self.units)) == 1 else self.units)],
            "threshold": self.threshold,
        }
        if self.paired:
            record["paired"] = True
        if self.picked:
            record["picked"] = True
        if self.draws:
            record["draws"] = [[str(each.cost.units), str(each.cost.delta_units), each.cells] for each in self.draws]
        if self.measured:
            record["measured"] = to_list(self.measured)
        if self.law is not None:
            record |= {"law": self.law.to_dict(), "columns": list(self.columns)}
        return json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, answer: bytes, plan: NoisePlan) -> Released:
        """What `to_bytes` wrote for this plan, or for its running totals; UnreadableRecord if another version did."""
        record = json.loads(answer)
        picked = bool(record.get("picked"))
        if not picked and plan.totals is not None:  # of an earlier version
            plan = plan.totals
        version = _VERSION if "law" not in record else _WITH_LAW
        if record.get("version") != version or len(record["parts"]) != len(plan.parts) or plan.is_picked != picked:
            raise UnreadableRecord("this answer was written by another version of deniable")
        groups = tuple(tuple(_read(value) for value in group) for group in record["groups"])
        shapes = [(len(groups), part.statistic.width) if part.is_running else (len(groups),) for part in plan.parts]
        parts = tuple(_unpacked(packed, shape) for packed, shape in zip(record["parts"], shapes, strict=True))
        cost, precision = (Cost(*(int(amount) for amount in record[name])) for name in ("cost", "precision"))
        units = [int(each) for each in record["units"]]
        each = units if len(units) == len(groups) else units * len(groups)
        draws = tuple(Draw(Cost(int(u), int(d)), cells) for u, d, cells in record.get("draws", ()))
        paired = bool(record.get("paired"))
        found = cls(
            groups, parts, cost, precision, tuple(each), record.get("threshold"), draws, paired=paired, picked=picked,
            measured=from_list(record.get("measured", ())),
        )  # fmt: skip
        if "law" in record:
            found = replace(found, law=TableNoise.from_dict(record["law"]), columns=tuple(record["columns"]))
        return found


def shares_of(plan: NoisePlan, budget: Budget, part: int, draws: Sequence[Draw]) -> tuple[Share, ...]:
    """What each of these draws adds to a number that they were merged into."""
    if len(draws) == 1:
        [one] = draws
        alone: Any = unthresholded(plan, budget, one.cost.units).mechanisms[part]
        return (Share(1.0, float(alone.width), one.cells),)
    weights = [precise(each.cost.units, budget) / each.cells for each in draws]
    found = []
    for weight, each in zip(weights, draws, strict=True):
        mechanism: Any = unthresholded(plan, budget, each.cost.units).mechanisms[part]
        found.append(Share(float(weight / sum(weights)), float(mechanism.width), each.cells))
    return tuple(found)


def _lengths(plan: NoisePlan, budget: Budget, part: int, draws: Sequence[Draw]) -> list[float]:
    """The standard deviations of what these draws add to a part that they were merged into; of many cells in pieces."""
    weights = [precise(each.cost.units, budget) / each.cells for each in draws]
    found: list[float] = []
    for weight, each in zip(weights, draws, strict=True):
        spread = unthresholded(plan, budget, each.cost.units).spread(part)
        pieces = min(each.cells, _PIECES)
        found += [float(weight / sum(weights)) * spread * math.sqrt(each.cells / pieces)] * pieces
    return found


def _placed(values: Any, at: Mapping[Group, int], groups: tuple[Group, ...]) -> Any:
    """Rows for these groups, with zeros where there are none."""
    padded = np.concatenate((values, np.zeros((1, *values.shape[1:]), values.dtype)))
    return padded[[at.get(group, len(values)) for group in groups]].astype(np.float64)


def _packed(part: Any) -> list[str]:
    """Numbers as little-endian bytes in base64: a quantile keeps a thousand of them for each group."""
    kind = "<i8" if part.dtype.kind == "i" else "<f8"
    return [kind, base64.b64encode(part.astype(kind).tobytes()).decode("ascii")]


def _unpacked(packed: list[str], shape: tuple[int, ...]) -> Any:
    kind, text = packed
    values = np.frombuffer(base64.b64decode(text), dtype=kind)
    if kind not in {"<i8", "<f8"} or values.size != math.prod(shape):
        raise UnreadableRecord("this answer was written by another version of deniable")
    return values.astype(kind[1:]).reshape(shape)


def precise(units: int, budget: Budget) -> Fraction:
    """The precision (1/variance, up to a factor) that these units of a budget buy."""
    return family_of(budget).precision(units)


def at_precision(precision: Fraction, budget: Budget) -> int:
    """The units that buy this precision, rounded down."""
    return family_of(budget).units_at(precision)


def release(
    plan: NoisePlan, made: Noise, cost: Cost, counts: Mapping[Group, Any], entropy: Entropy | None = None
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
    units = (cost.units,) * len(groups)
    return Released(groups, parts, cost, cost, units, made.threshold, paired=bool(made.seconds), picked=plan.is_picked)


def release_jointly(
    jointly: Jointly, made: Made, counted: Sequence[Mapping[Group, Any]], entropy: Entropy | None = None
) -> dict[Columns, Any]:
    """Exact tables in, noisy residuals out: what every table is a sum of (`jointly.published`).

    Whole numbers beyond 64 bits would wrap around. Noise is added first, so that is post-processing too.
    """
    source, sizes = witnessed(entropy), jointly.sizes
    is_large = isinstance(jointly.plans[0].parts[0].statistic, ExactSum) or max(made.scales, default=1) > _LARGE
    tables: dict[Columns, Any] = {}
    for (columns, collect), counts in zip(jointly.collects(made), counted, strict=True):
        assert collect.known is not None
        exact = [_cut(int(counts[group][0])) for group in collect.known]
        array = np.array(exact, dtype=object if is_large else np.int64).reshape([sizes[i] for i in columns])
        ordered = tuple(sorted(columns))
        tables[ordered] = array.transpose([columns.index(i) for i in ordered])

    def by(columns: Columns) -> Any:
        """The exact table by some keys."""
        finer = next(each for each in tables if set(columns) <= set(each))
        return np.asarray(summed(tables[finer], finer, columns))

    found: dict[Columns, Any] = {}
    loads = {each.columns: each.loads for each in made.law.sources}
    for place, (columns, mechanism) in enumerate(made.mechanisms):
        drawing: Any = mechanism
        exact_ones = by(columns)
        if made.scales:
            exact_ones = np.asarray(residual_noise.whole(exact_ones) * (made.scales[place] // exact_ones.size))
        drawn = drawing.draw((exact_ones.size,), source).reshape(exact_ones.shape)
        noisy = np.asarray(exact_ones + drawn).astype(np.float64)
        for residual, load in loads[columns]:
            told = load * without_averages(summed(noisy, columns, residual))
            found[residual] = found[residual] + told if residual in found else told
    return found


def _noisy(
    plan: NoisePlan,
    made: Noise,
    index: int,
    groups: tuple[Group, ...],
    counts: Mapping[Group, Any],
    source: Entropy | None,
) -> Any:
    part, mechanism = plan.parts[index], made.mechanisms[index]
    drawing: Any = mechanism
    if part.is_ranked:
        rows = np.array([[_cut(one) for one in counts[group][index]] for group in groups], dtype=np.int64)
        rows = rows.reshape(len(groups), part.statistic.width)
        none = rows if part.is_running else rows[:, 0]
        return drawing.release(rows, entropy=source) if len(groups) else none
    exact = (_exact(plan, made, index, counts[group]) for group in groups)
    values = np.array([_cut(each) for each in exact], dtype=np.int64)
    return values + drawing.draw(values.shape, source) if len(groups) else values


def _exact(plan: NoisePlan, made: Noise, index: int, numbers: Sequence[Any]) -> int:
    """The number that a part's noise goes on: of a pair that is released together, H·n + S or H·n - S."""
    for pair in plan.pairs if made.seconds else ():
        if index in (pair.total, pair.count):
            sign = 1 if index == pair.total else -1
            return pair.half * int(numbers[pair.count]) + sign * int(numbers[pair.total])
    return int(numbers[index])


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
