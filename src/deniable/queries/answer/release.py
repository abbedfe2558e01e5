"""The release: noise for the exact statistics of a question.

**Where exact numbers meet noise.** Under `queries` in three modules, and nowhere else: here, in `running_totals` (a day
of a standing question), and in `synthetic.marginal_selection` (which tables to count, by the exponential mechanism on
scores of exact counts). A test lists their functions, and fails if another one draws noise.

**In and out.** `release` takes a `NoisePlan`, its `Noise` (one mechanism for each part), the cost that pays for it, and
the exact integers of an engine by group. It returns a `Released`, which is public and has no exact integer.
`exact_numbers` is the exception: `running_totals` gets exact integers from it, whose days a standing question stores
encrypted. Everything after a release (intervals, roll-ups, fits, display) is post-processing and cannot weaken the
guarantee.

**What is drawn.** A plan has parts: a count, a sum on an integer grid, or running totals over the cells of a quantile.
Each part gets independent noise in each group, from its mechanism. Under a pure ε budget, a sum S and its count n may
form a pair, released as H·n + S and H·n - S, which one ε covers (`noise_planner.SumAndCount`). Under the same budget a
single quantile is one cell drawn by the exponential mechanism (`single_quantile`).

**Which groups.** If all keys are public, every group is released, also one without rows. Otherwise groups come from the
data: the noisy number of people of each group is compared with a threshold, and only groups that reach it are released.
The threshold is chosen so that the keys that only one person has appear with probability at most δ.

**Merging.** A second answer to the same question is not kept beside the first: `Released.merged` averages both by
inverse variance. With a Gaussian budget precision (1/variance) and μ² both add, so the result is as precise as one
answer at the sum of both costs. Under a pure budget precision grows with ε². `precise` converts cost units to precision
and `at_precision` converts back. `Draw` remembers each draw of noise in a merged number, because an interval needs the
law of the sum, not only its variance: noise on integers is not exactly normal, and several Laplace draws are not one.

**Joint tables.** `release_jointly` measures several tables of the same rows with shared noise (`joint_tables`). The
noise of such a table is not independent across cells; `law` (a `TableNoise`) describes it, `columns` names its axes.

**Vocabulary.** A *draw* is one event of adding noise, with its cost. A `Share` is the contribution of one draw to one
number: weight times noise of a given width. `units` are whole units of the budget's currency.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from deniable.errors import UnreadableRecord
from deniable.ledger import Cost
from deniable.mechanisms.prefix_sums import Differences
from deniable.noise.entropy import checked_entropy
from deniable.queries.answer.shared_measurements import Measurement, behind, from_list, to_list, total
from deniable.queries.intervals.draw_laws import fewest
from deniable.queries.intervals.noise_intervals import Share
from deniable.queries.intervals.threshold_intervals import ThresholdGate, ThresholdPassed
from deniable.queries.plan.noise_families import family_of
from deniable.queries.plan.noise_planner import noise, one_by_one, pairs, shares_rows, unthresholded
from deniable.queries.plan.recipes import DrawnValue
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
"""The record version of a table that was measured jointly: earlier versions would misread its noise."""
LARGEST: Final = 2**62
"""Exact numbers are clamped to ±LARGEST before noise is added."""
_MOST_IN_INT64: Final = 2**20
"""The largest multiple of counts that is computed in 64 bits; larger ones use Python integers."""
_PIECES: Final = 4
"""The most separate draws in the noise of an average or a ratio; further draws are combined into wider ones."""


@final
class Draw(NamedTuple):
    """One draw of noise: its cost, and the number of cells that were summed (at most) to obtain a number from it.

    `cells` exceeds 1 in a batch, where the cells of a finer answer are summed to improve a coarser one.
    """

    cost: Cost
    cells: int = 1


@final
class DrawnShares(NamedTuple):
    """The shares of the draws of noise in a fitted number: `shares`, and `otherwise` if the draws allow a second
    reading.

    If it is unknown which of the two is true, both are kept, and an interval must hold under each of them.
    """

    shares: tuple[Share, ...]
    otherwise: tuple[Share, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Released:
    """Noisy statistics by group with a description of their noise. All of it is public.

    Two answers to one question merge by inverse variance. Under a Gaussian budget the result is as precise as one
    answer at the sum of their costs, because precisions and μ² both add.
    """

    groups: tuple[Group, ...]
    parts: tuple[Any, ...]
    """For each part an array over groups, of numbers or of rows of running totals."""
    cost: Cost
    """The amount charged for it."""
    precision: Cost
    """The cost at which a single answer would have as little noise; more than `cost` if other answers improved it."""
    units: tuple[int, ...]
    """The units of `precision` for each group: a key that only one of several merged answers has is less precise."""
    threshold: int | None = None
    """The noisy number of people that a key had to reach; None if keys are public."""
    draws: tuple[Draw, ...] = ()
    """The draws that were merged into it; empty if there is only one. See `all_draws`."""
    moved: tuple[DrawnShares, ...] = ()
    """For each group, the shares of the draws in its number, if numbers were fitted to add up; otherwise empty."""
    paired: bool = False
    """Whether pairs of a sum and a count (`noise_planner.SumAndCount`) are stored as H·n + S and H·n - S."""
    shared: bool = False
    """Whether one share of its cost paid for several parts, because they are about different rows
    (`exclusive_statistics`). False for answers of earlier versions, which paid for each part and have more noise."""
    picked: bool = False
    """Whether its only part holds the index of a drawn cell (`single_quantile`). Two such answers do not merge."""
    law: TableNoise | None = None
    """The noise of its only part, if the table was measured jointly (`joint_tables`); otherwise None."""
    columns: tuple[int, ...] = ()
    """The columns of `law` that are the keys of this table, in order."""
    measured: tuple[Measurement, ...] = ()
    """The measurements it rests on, whose costs add up to `cost`; empty if unknown."""

    def shares_by_law(self) -> tuple[Share, ...]:
        """The shares of the draws in a cell of a jointly measured table."""
        assert self.law is not None
        return tuple(Share(*each) for each in self.law.shares(self.columns))

    @property
    def all_draws(self) -> tuple[Draw, ...]:
        """Every draw that it rests on; a single one of `cost` if nothing was merged."""
        return self.draws or (Draw(self.cost),)

    @property
    def marks(self) -> tuple[str, ...]:
        """The mark of each of `all_draws`, which identifies answers that share a draw; empty if unknown."""
        draws = self.all_draws
        alike = [(each.cost.units, 1) for each in self.measured] == [(each.cost.units, each.cells) for each in draws]
        known = alike and self.law is None
        return tuple(each.mark for each in self.measured) if known else ("",) * len(draws)

    def plan_of(self, plan: NoisePlan, budget: Budget) -> NoisePlan:
        """This plan with the noise that the parts have: earlier versions, and standing questions, do not share costs
        among statistics about different rows, and earlier versions released running totals for a quantile.
        """
        if plan.totals is not None and not self.picked:
            return plan.totals
        return one_by_one(plan) if not self.shared and shares_rows(plan, budget) else plan

    def has_noise_of(self, plan: NoisePlan, budget: Budget) -> bool:
        """Whether its parts have the noise that this plan gives them now; earlier versions gave some parts more."""
        return self.paired == bool(pairs(plan, budget)) and self.shared == shares_rows(plan, budget)

    def deviation(self, plan: NoisePlan, budget: Budget, part: int) -> float:
        """The standard deviation of a part's noise, for a key that every draw released; of running totals the largest.

        Draws are independent and weighted by nominal precisions p_i: √(Σ p_i² σ_i² m_i) / Σ p_i, where σ_i is the true
        standard deviation of draw i, and m_i the number of cells summed in it.
        """
        if self.law is not None:
            return math.hypot(*(each.deviation(budget.accounting.shape) for each in self.shares_by_law()))
        made = unthresholded(plan, budget, self.cost.units)
        whole, one = math.hypot(*_lengths(plan, budget, part, self.all_draws)), made.spread(part)
        return float(np.max(made.deviation(part))) / one * whole if one else 0.0  # at a very high cost the noise is 0

    def drawn(self, plan: NoisePlan, budget: Budget) -> list[list[DrawnValue]]:
        """For each group, the noisy value of each part with a description of its noise."""
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
        """The fields of `DrawnValue` that describe the noise of one part, for a key of this precision."""
        made = unthresholded(plan, budget, units)
        mechanism: Any = made.mechanisms[part]
        if plan.is_picked:
            return {"deviations": made.deviation(part), "shape": made.shape}
        blend = mechanism.differences if plan.parts[part].is_running else None
        chosen = self._chosen(plan, budget, units) if part == plan.people else None
        if not self.draws:
            fields = {"deviations": made.deviation(part), "shape": made.shape, "blend": blend, "chosen": chosen}
            return fields if blend is not None else fields | {"shares": self._shares(plan, budget, part, units)}
        factor, draws = self._mixed(plan, budget, part, units)
        tails = math.fsum(draw**4 for draw in draws)

        def blended(q: float) -> Differences:
            law = mechanism.differences(q)
            return Differences(law.deviations * factor, law.steps * factor, law.kurtosis * tails)

        fields = {"deviations": made.deviation(part) * factor, "shape": made.shape, "draws": draws}
        if blend is not None:
            return fields | {"blend": blended}
        return fields | {"shares": self._shares(plan, budget, part, units), "chosen": chosen}

    def _chosen(self, plan: NoisePlan, budget: Budget, units: int) -> ThresholdPassed | None:
        """The thresholds that a key of this precision passed; None if keys are public."""
        if self.threshold is None or plan.people is None:
            return None
        behind = self._behind(units, budget)
        if len(behind) < len(self.all_draws) > 2:
            # Another subset of the draws may have the same total precision: it is unknown which one this number has.
            behind = ()
        gates = []
        for each in behind:
            made = noise(plan, budget, each.cost) if self.draws else unthresholded(plan, budget, each.cost.units)
            threshold = made.threshold if self.draws else self.threshold
            assert threshold is not None
            mechanism: Any = made.mechanisms[plan.people]
            gates.append(ThresholdGate(made.shape, float(mechanism.width), threshold))
        return ThresholdPassed(tuple(gates), self._shares(plan, budget, plan.people, units) if gates else ())

    def _shares(self, plan: NoisePlan, budget: Budget, part: int, units: int) -> tuple[Share, ...]:
        """The share of each draw in a merged number of this precision; empty if that is not known."""
        return shares_of(plan, budget, part, self._behind(units, budget))

    def shares_at(self, plan: NoisePlan, budget: Budget, group: int) -> tuple[Share, ...]:
        """The share of each draw in the only part of one group; empty if that is not known."""
        if self.law is not None and not self.moved:
            return self.shares_by_law()
        return self._shares(plan, budget, 0, self.units[group])

    def _mixed(self, plan: NoisePlan, budget: Budget, part: int, units: int) -> tuple[float, tuple[float, ...]]:
        """(the width of the noise relative to one draw at this precision, the relative deviations of its draws).

        The ratio differs from 1 because noise on integers is not exactly scaled noise: its variance at a precision
        deviates from the continuous law. If it is not known which draws a number rests on, the worst case is taken:
        σ² <= max (p_i σ_i²) / p.
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
        if not whole or not own:  # at a very high cost the noise is 0
            return 0.0, (1.0,)
        return whole / own, tuple(length / whole for length in lengths)

    def _behind(self, units: int, budget: Budget) -> tuple[Draw, ...]:
        """The draws that a number of this precision rests on; empty if that is not known."""
        if self.moved:
            return ()
        if not self.draws and units == self.cost.units:  # nothing was merged
            return self.all_draws
        whole = sum(precise(each.cost.units, budget) / each.cells for each in self.all_draws)
        if abs(at_precision(Fraction(whole), budget) - units) <= len(self.all_draws):  # each merge rounded down
            return self.all_draws
        return next(((each,) for each in self.all_draws if each == Draw(Cost(units, each.cost.delta_units))), ())

    def resting_on(self, others: Iterable[Released]) -> Released:
        """The same numbers, at the cost of other answers too: those by which the question was chosen."""
        measured = behind((self, *others))
        return replace(self, cost=total(measured), draws=self.all_draws, measured=measured)

    def merged(self, other: Released, budget: Budget, plan: NoisePlan | None = None) -> Released:
        """Merge two answers to one question by inverse variance. A group that occurs in only one of the answers is
        copied from that answer.

        `plan` is needed if one of the answers was measured jointly. Answers with `picked` cells cannot be merged.
        """
        assert not self.picked  # a drawn cell has no variance
        assert not other.picked
        ours = dict(zip(self.groups, range(len(self.groups)), strict=True))
        others = dict(zip(other.groups, range(len(other.groups)), strict=True))
        groups = (*self.groups, *(group for group in other.groups if group not in ours))
        if set(ours) != set(others):  # keys come from the data: sort them as `release` does
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
            # Both have the same keys in the same order, but each law numbers its columns differently.
            its_law, others_columns = other.with_law(plan, budget)
            law = ours_law.mixed(shares[0], its_law.renamed(dict(zip(others_columns, columns, strict=True)), ours_law))
            return Released(
                groups, tuple(parts), cost, precision, tuple(units), law=law, columns=columns, measured=measured
            )
        draws = (*self.all_draws, *other.all_draws)
        return Released(
            groups, tuple(parts), cost, precision, tuple(units), least, draws, paired=self.paired, shared=self.shared,
            measured=measured,
        )  # fmt: skip

    def with_law(self, plan: NoisePlan, budget: Budget) -> tuple[TableNoise, tuple[int, ...]]:
        """(the noise of a single count or sum by public keys as a `TableNoise`, its columns for the keys)."""
        if self.law is not None:
            return self.law, self.columns
        sizes = [len(key.values or ()) for key in plan.question.keys]
        columns = tuple(range(len(sizes)))
        law = TableNoise(tuple(sizes), ())
        for share, mark in zip(shares_of(plan, budget, 0, self.all_draws), self.marks, strict=True):
            # A sum over finer cells is represented by one draw of the same variance.
            width = share.width * math.sqrt(share.cells)
            one = TableNoise.alone(sizes, columns, width, share.weight)
            law = TableNoise(law.sizes, (*law.sources, *(one.marked(mark) if mark else one).sources))
        return law, columns

    def to_bytes(self) -> bytes:
        """The record that the ledger stores: JSON, with numbers in base64."""
        record: dict[str, Any] = {
            "version": _VERSION if self.law is None else _WITH_LAW,
            "groups": [[_written(value) for value in group] for group in self.groups],
            "parts": [_packed(part) for part in self.parts],
            "cost": [str(self.cost.units), str(self.cost.delta_units)],
            "precision": [str(self.precision.units), str(self.precision.delta_units)],
            # Stored once if it is the same for all groups.
            "units": [str(each) for each in (set(self.units) if len(set(self.units)) == 1 else self.units)],
            "threshold": self.threshold,
        }
        if self.paired:
            record["paired"] = True
        if self.shared:
            record["shared"] = True
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
        """The inverse of `to_bytes`, for an answer to this plan or to its plan by running totals (`plan.totals`).

        Raises `UnreadableRecord` if the record has another version or does not fit the plan.
        """
        record = json.loads(answer)
        picked = bool(record.get("picked"))
        if not picked and plan.totals is not None:  # written before single quantiles were drawn
            plan = plan.totals
        version = _VERSION if "law" not in record else _WITH_LAW
        if record.get("version") != version or len(record["parts"]) != len(plan.parts) or plan.is_picked != picked:
            raise UnreadableRecord("another version of deniable wrote this answer; read it with that version")
        groups = tuple(tuple(_read(value) for value in group) for group in record["groups"])
        shapes = [(len(groups), part.statistic.width) if part.is_running else (len(groups),) for part in plan.parts]
        parts = tuple(_unpacked(packed, shape) for packed, shape in zip(record["parts"], shapes, strict=True))
        cost, precision = (Cost(*(int(amount) for amount in record[name])) for name in ("cost", "precision"))
        units = [int(each) for each in record["units"]]
        each = units if len(units) == len(groups) else units * len(groups)
        draws = tuple(Draw(Cost(int(u), int(d)), cells) for u, d, cells in record.get("draws", ()))
        paired, shared = bool(record.get("paired")), bool(record.get("shared"))
        found = cls(
            groups, parts, cost, precision, tuple(each), record.get("threshold"), draws, paired=paired, shared=shared,
            picked=picked, measured=from_list(record.get("measured", ())),
        )  # fmt: skip
        if "law" in record:
            found = replace(found, law=TableNoise.from_dict(record["law"]), columns=tuple(record["columns"]))
        return found


def shares_of(plan: NoisePlan, budget: Budget, part: int, draws: Sequence[Draw]) -> tuple[Share, ...]:
    """For a number that was merged from these draws of noise: the share of each draw in it."""
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
    """The standard deviations of these draws' shares in a merged part; a draw of many cells becomes several pieces."""
    weights = [precise(each.cost.units, budget) / each.cells for each in draws]
    found: list[float] = []
    for weight, each in zip(weights, draws, strict=True):
        spread = unthresholded(plan, budget, each.cost.units).spread(part)
        pieces = min(each.cells, _PIECES)
        found += [float(weight / sum(weights)) * spread * math.sqrt(each.cells / pieces)] * pieces
    return found


def _placed(values: Any, at: Mapping[Group, int], groups: tuple[Group, ...]) -> Any:
    """The rows of these groups; zeros for groups without a row."""
    padded = np.concatenate((values, np.zeros((1, *values.shape[1:]), values.dtype)))
    return padded[[at.get(group, len(values)) for group in groups]].astype(np.float64)


def _packed(part: Any) -> list[str]:
    """Numbers as little-endian bytes in base64; compact, because a quantile stores a thousand numbers per group."""
    kind = "<i8" if part.dtype.kind == "i" else "<f8"
    return [kind, base64.b64encode(part.astype(kind).tobytes()).decode("ascii")]


def _unpacked(packed: list[str], shape: tuple[int, ...]) -> Any:
    kind, text = packed
    values = np.frombuffer(base64.b64decode(text), dtype=kind)
    if kind not in {"<i8", "<f8"} or values.size != math.prod(shape):
        raise UnreadableRecord("another version of deniable wrote this answer; read it with that version")
    return values.astype(kind[1:]).reshape(shape)


def precise(units: int, budget: Budget) -> Fraction:
    """The precision that these units of a budget buy: 1/variance, up to a constant factor."""
    return family_of(budget).precision(units)


def at_precision(precision: Fraction, budget: Budget) -> int:
    """The units that buy this precision, rounded down; the inverse of `precise`."""
    return family_of(budget).units_at(precision)


def release(
    plan: NoisePlan, made: Noise, cost: Cost, counts: Mapping[Group, Any], entropy: Entropy | None = None
) -> Released:
    """Add noise to the exact statistics `counts` and return the public result.

    The groups are the public ones of the plan, or those whose noisy number of people reaches the threshold. `made` must
    be the noise of `plan` at `cost`, and the cost must have been charged before. A replayable `entropy` is for tests,
    and warns; by default noise is drawn from the operating system's generator.
    """
    source = checked_entropy(entropy)
    drawn: dict[int, Any] = {}
    if plan.collect.known is not None:
        groups = plan.collect.known
    else:
        assert plan.people is not None
        assert made.threshold is not None
        # Sorted by key: the order of rows would reveal which came first.
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
    return Released(
        groups, parts, cost, cost, units, made.threshold, paired=bool(made.seconds), shared=bool(made.beside),
        picked=plan.is_picked,
    )  # fmt: skip


def release_jointly(
    jointly: Jointly, made: Made, counted: Sequence[Mapping[Group, Any]], entropy: Entropy | None = None
) -> dict[Columns, Any]:
    """Add noise to exact tables and return noisy residuals, of which every table is a sum (`joint_tables.published`).

    Under a Gaussian budget noise is added to residuals, under a pure budget to tables, whose residuals are then
    computed. Either way noise is added to exact integers first; the conversion to floats is post-processing.
    """
    source, sizes = checked_entropy(entropy), jointly.sizes
    is_large = isinstance(jointly.plans[0].parts[0].statistic, ExactSum) or max(made.scales, default=1) > _MOST_IN_INT64
    tables: dict[Columns, Any] = {}
    for (columns, collect), counts in zip(jointly.collects(made), counted, strict=True):
        assert collect.known is not None
        exact = [_cut(int(counts[group][0])) for group in collect.known]
        array = np.array(exact, dtype=object if is_large else np.int64).reshape([sizes[i] for i in columns])
        ordered = tuple(sorted(columns))
        tables[ordered] = array.transpose([columns.index(i) for i in ordered])

    def by(columns: Columns) -> Any:
        """The exact table by some of the keys, summed from a finer one."""
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
            part = load * without_averages(summed(noisy, columns, residual))
            found[residual] = found[residual] + part if residual in found else part
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
        empty = rows if part.is_running else rows[:, 0]
        return drawing.release(rows, entropy=source) if len(groups) else empty
    exact = (_exact(plan, index, counts[group], paired=bool(made.seconds)) for group in groups)
    values = np.array([_cut(each) for each in exact], dtype=np.int64)
    return values + drawing.draw(values.shape, source) if len(groups) else values


def exact_numbers(
    plan: NoisePlan, budget: Budget, index: int, groups: Sequence[Group], counts: Mapping[Group, Any]
) -> list[int]:
    """The exact numbers of a part that is not ranked, one for each group. NOT PRIVATE: for `running_totals` alone,
    which keeps them encrypted and adds noise to sums of them.
    """
    paired = bool(pairs(plan, budget))
    return [_cut(_exact(plan, index, counts[group], paired=paired)) for group in groups]


def _exact(plan: NoisePlan, index: int, numbers: Sequence[Any], *, paired: bool) -> int:
    """The exact number to which a part's noise is added; H·n + S or H·n - S for a part of a pair."""
    for pair in plan.pairs if paired else ():
        if index in (pair.total, pair.count):
            sign = 1 if index == pair.total else -1
            return pair.half * int(numbers[pair.count]) + sign * int(numbers[pair.total])
    return int(numbers[index])


def _cut(value: int) -> int:
    """Clamp a number to ±LARGEST, which no real table reaches. An error would reveal something about the data;
    clamping never increases the distance between two numbers, so the sensitivity holds.
    """
    return max(-LARGEST, min(LARGEST, value))


def _order(group: Group) -> tuple[tuple[str, Any], ...]:
    return tuple((type(value).__name__, 0 if value is None else value) for value in group)


def _written(value: Any) -> Any:
    """A key as a JSON value; dates become {"date": ...} and {"timestamp": ...}."""
    if isinstance(value, dt.datetime):
        return {"timestamp": value.isoformat()}
    return {"date": value.isoformat()} if isinstance(value, dt.date) else value


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, text)] = value.items()
    return dt.datetime.fromisoformat(text) if kind == "timestamp" else dt.date.fromisoformat(text)
