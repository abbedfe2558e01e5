"""Plans of private training: clipping, sampling, noise and number of steps. This module does not need torch.

A plan combines everything that a guarantee depends on, so that the parts cannot be mismatched later; `Trainer` only
carries it out. Its `curve` bounds the privacy loss of the whole run, even if an attacker sees every step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self, final

import numpy as np

from deniable.curves import curve_arguments
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.weakness_advice import warn_if_weak, weaknesses
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.learn.adaptive_clipping import AdaptiveNorm
from deniable.learn.batch_rules import BATCH_RULES, BatchRule, visits
from deniable.learn.buffered_noise import Buffers
from deniable.learn.epoch_batches import Places, StepDraws
from deniable.learn.layer_clipping import PerLayer
from deniable.numbers import up
from deniable.units import Guarantee, Relation, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.ledger import Budget, Cost
    from deniable.noise import Entropy

__all__ = ["DPSGD", "Automatic", "Clipping", "Flat", "Plan"]

MOST_STEPS = 10**9


@final
@dataclass(frozen=True, slots=True)
class Flat:
    """Flat clipping: a gradient longer than `norm` is scaled down to `norm`, others stay unchanged (Abadi et al. 2016).

    The clipped gradient of each example is min(1, norm/‖g‖)·g, so its norm is at most `norm`.
    """

    norm: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", curve_arguments.positive("clip", self.norm))

    def describe(self) -> str:
        """The rule in words, for `explain`."""
        return f"gradients longer than {self.norm:g} are scaled down to it"


@final
@dataclass(frozen=True, slots=True)
class Automatic:
    """Automatic clipping: every gradient becomes norm·g/(‖g‖ + stability), whose norm is below `norm`.

    `norm` and the learning rate then act as one parameter, so only one needs tuning (Bu, Wang, Zha & Karypis 2023,
    AUTO-S).
    """

    norm: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", curve_arguments.positive("clip", self.norm))
        object.__setattr__(self, "stability", curve_arguments.positive("stability", self.stability))

    def describe(self) -> str:
        """The rule in words, for `explain`."""
        return f"every gradient is scaled to a norm below {self.norm:g}"


Clipping = Flat | Automatic | AdaptiveNorm | PerLayer


class PricedPlan(ABC):
    """What every plan has: a curve, a calibration, a guarantee and a price. `noise` is None before calibration."""

    __slots__ = ()

    noise: float | None
    records: int | None
    unit: Unit

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """The curve of the whole run, between datasets with and without one record, or one person if `unit` is a
        person.
        """

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of the curve, in words."""

    @property
    def is_gaussian(self) -> bool:
        """Whether the curve is the curve of Gaussian noise, so that its μ does not depend on a δ."""
        return False

    def calibrated(self) -> float:
        """The noise multiplier. Raises `InvalidParameter` before calibration."""
        if self.noise is None:
            raise InvalidParameter("noise", None, "is not chosen yet", "write plan.calibrate(epsilon=, delta=)")
        return self.noise

    def calibrate(self, *, epsilon: float, delta: float) -> Self:
        """The same plan with the least noise for which the whole run is (ε, δ)-DP, by the certified curve.

        Warns if ε or δ protects little; for that, `records`, if given, counts as the number of people.
        """
        from deniable.curves import calibrate

        warn_if_weak(epsilon=epsilon, delta=delta, people=self.records)
        least = calibrate(lambda noise: self._with(noise).curve, epsilon=epsilon, delta=delta)
        return self._with(least)

    @abstractmethod
    def _with(self, noise: float) -> Self: ...

    def guarantee(self, *more: str) -> Guarantee:
        """The guarantee for one unit: the curve, with the plan's assumptions and `more`."""
        return Guarantee(self.curve, self.unit, assumptions=(*self.assumptions, *more))

    def price(self, budget: Budget, *, unit: Unit, delta: float | None) -> Cost:
        """The cost of the whole run for a ledger with this budget and unit.

        A run of Gaussian noise without sampling costs its μ². A sampled run is not μ-GDP for any useful μ, but it is
        μ-GDP up to a δ. If δ(ε) <= δ_μ(ε) + κ(1 - δ_μ(0)) for all ε, it is a mixture: μ-GDP with probability 1 - κ,
        arbitrary with probability κ. It then costs μ² and κ. (Proof: since δ_μ(ε) <= δ_μ(0) for ε >= 0, δ(ε) is at
        most (1 - κ)δ_μ(ε) + κ, the profile of that mixture. The reflection δ(-ε) = 1 - e^-ε + e^-ε δ(ε) reduces
        negative ε to positive ε of the other direction.) κ is `delta`, the part of the budget's δ that the run may
        spend. Raises `InvalidParameter` if `delta` is needed and missing, or too small.
        """
        return price_of(self.guarantee(), budget, unit=unit, delta=delta, is_gaussian=self.is_gaussian)


class Plan(PricedPlan):
    """A private training run before it starts, with its guarantee. Immutable; `noise` is None before calibration."""

    __slots__ = ()

    clip: Clipping
    steps: int

    @abstractmethod
    def so_far(self, steps: int) -> Curve:
        """The curve of the first `steps` steps. Valid only if that number was fixed before the run."""

    @abstractmethod
    def explain(self, *, delta: float = 1e-5) -> str:
        """The plan and its guarantee in words, with ε at `delta`."""

    # -- who takes part ------------------------------------------------------------------------------------------------

    @abstractmethod
    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """Which of these records (numbers from 0) take part in step `step`, counted from 0."""

    def draws(self) -> StepDraws:
        """The object that draws the batches of one run: the plan itself, unless a batch depends on those before it."""
        return self

    @abstractmethod
    def expected_batch(self, records: int) -> float:
        """The average number of records in a step, from public numbers: what sums of gradients are divided by.

        `records` is the length of the dataset; a plan that states its own number uses that one.
        """

    @abstractmethod
    def check_records(self, count: int) -> None:
        """Raises InvalidParameter if the plan was made for another number of records than `count`."""

    @property
    def coefficients(self) -> tuple[Fraction, ...] | None:
        """How noise is correlated over the steps: the first column of C in C⁻¹Z. None for independent noise, and if
        there are `buffers`."""
        return None

    buffers: Buffers | None = None
    """How noise is correlated over all steps, if by buffers (`buffered_noise`)."""

    @property
    def training_assumptions(self) -> tuple[str, ...]:
        """What a run rests on besides the curve, in words."""
        return ()

    @property
    @abstractmethod
    def cheaper_by(self) -> str:
        """How to plan a cheaper run besides more noise, for an error: "or fewer steps"."""

    def in_full(self) -> str:
        """The plan as text, to the last digit: hashes are computed from it."""
        return repr(self)

    # -- noise and price -----------------------------------------------------------------------------------------------

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity, over the whole run, of the values that get noise, in units of the clipping norm."""
        return 1.0

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise in each coordinate of a sum of clipped gradients: noise × clip, rounded
        up.
        """
        return up(Fraction(self.calibrated()) * Fraction(self.clip.norm))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DPSGD(Plan):
    """Gradient descent on Poisson samples: each record takes part in each step with probability `rate`, independently;
    the sum of the clipped gradients gets noise N(0, (noise·clip)²) in every coordinate.

    Promise: for all D, D′ that differ by one record added or removed, an attacker who sees every step cannot
    distinguish the runs better than the curve gaussian(sigma=noise).sampled(rate=rate) ** steps allows (Abadi et al.
    2016; sampling by Zhu, Dong & Wang 2022, Theorem 11; adaptive composition). Give `rate` or `batch_size` (which needs
    the public number of `records`), and `steps` or `epochs`.

    >>> from deniable import learn
    >>> plan = learn.DPSGD(clip=1.0, batch_size=8192, records=60_000, steps=293).calibrate(epsilon=3, delta=1e-5)
    >>> plan
    DPSGD(clip=1.0, rate=0.136533, steps=293, noise=3.39938)
    >>> print(plan.explain())
    Each of 293 steps takes each record with probability 0.13653, independently: 8192 of 60000 on average.
    gradients longer than 1 are scaled down to it; their sum gets Gaussian noise of standard deviation 3.3994.
    Between data that differ by one record, an attacker who sees every step reaches at most ε = 3 at δ = 1e-05.
    With Rényi accounting, the same run would report ε = 3.2..., with Abadi's moments accountant ε = 3.7...

    The draws and the curve both use exactly the binary fraction that the float `rate` stores.

    `truncate_at` bounds the number of records in a step: if more are drawn, `truncate_at` of them are kept at random.
    This needs a public upper bound on the number of `records`, and its price is in the curve: see `truncated_batches`.

    `unit=Unit.person(column, rows=)` protects people instead of rows: each person is drawn with probability `rate`, the
    mean of the gradients of at most `rows` of their rows is clipped once, and `records` counts people.

    >>> learn.DPSGD(clip=1.0, batch_size=256, records=60_000, truncate_at=320, steps=1000, noise=1.0)
    DPSGD(clip=1.0, rate=0.00426667, steps=1000, truncate_at=320, noise=1)

    `batches` is "sampled" (independent coins), "allocated" (in each epoch, each record draws one batch of its own) or
    "shuffled" (in each epoch, all records are shuffled and cut into equal batches): see `epoch_batches`.

    >>> learn.DPSGD(clip=1.0, batch_size=600, records=60_000, epochs=2, batches="allocated", noise=1.0)
    DPSGD(clip=1.0, rate=0.01, steps=200, batches='allocated', noise=1)
    """

    clip: Clipping
    rate: float
    steps: int
    noise: float | None
    records: int | None
    truncate_at: int | None
    unit: Unit
    batches: str

    def __init__(
        self,
        *,
        clip: float | Clipping,
        rate: float | None = None,
        batch_size: int | None = None,
        records: int | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        noise: float | None = None,
        truncate_at: int | None = None,
        unit: Unit | None = None,
        batches: str = "sampled",
    ) -> None:
        known = None if records is None else curve_arguments.integer("records", records, 1)
        share = _rate(rate, batch_size, known)
        rule = BATCH_RULES.get(batches) if isinstance(batches, str) else None
        if rule is None:
            raise InvalidParameter("batches", batches, "must be " + " or ".join(map(repr, BATCH_RULES)))
        rule.check_truncation(truncate_at)
        in_epoch = rule.batches_in_epoch(share)
        share = share if in_epoch is None else 1 / in_epoch
        fill = object.__setattr__
        fill(self, "batches", batches)
        fill(self, "clip", clipping(clip))
        fill(self, "rate", share)
        fill(self, "steps", _steps(steps, epochs, share))
        fill(self, "noise", None if noise is None else curve_arguments.positive("noise", noise))
        fill(self, "records", known)
        fill(self, "truncate_at", _most(truncate_at, known))
        fill(self, "unit", protected(unit))

    def calibrate(self, *, epsilon: float, delta: float) -> Self:
        """See `Plan.calibrate`. Raises if δ is at least the probability 1 - (1 - rate)^steps that a record is drawn at
        all: then even publishing the drawn records would be (ε, δ)-DP."""
        allowed = curve_arguments.probability("delta", delta)
        drawn = -math.expm1(self._rule.log_chance_to_stay_out(self))
        if 0 < drawn <= allowed < 1:
            rule = f"is at least {drawn:.3g}, the probability that a record is drawn in {self.steps} steps"
            remedy = "publishing the drawn records without noise would satisfy this delta; give a smaller one"
            raise InvalidParameter("delta", delta, rule, remedy)
        return Plan.calibrate(self, epsilon=epsilon, delta=delta)

    def _with(self, noise: float) -> Self:
        return type(self)(
            clip=self.clip,
            rate=self.rate,
            records=self.records,
            steps=self.steps,
            noise=noise,
            truncate_at=self.truncate_at,
            unit=self.unit,
            batches=self.batches,
        )

    @property
    def _rule(self) -> BatchRule:
        return BATCH_RULES[self.batches]

    @property
    def batches_in_epoch(self) -> int:
        """The number of batches of an epoch, 1/rate, if batches are allocated or shuffled."""
        return round(1 / self.rate)

    def draws(self) -> StepDraws:
        return self._rule.draws(self)

    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """Each record is drawn by its own exact coin of probability `rate`, fresh in each step. If more than
        `truncate_at` are drawn, a uniform subset of that size is kept; each of several processes truncates its own
        part, which is rarer.
        """
        from deniable import noise

        if self._rule.draws(self) is not self:
            raise InvalidOperation("batches of an epoch depend on each other; draw them with plan.draws().drawn(...)")
        taken = records[noise.bernoulli(p=self.rate, size=(len(records),), entropy=entropy)]
        if self.truncate_at is None or len(taken) <= self.truncate_at:
            return taken
        return taken[np.sort(noise.permutation(len(taken), entropy=entropy)[: self.truncate_at])]

    def check_records(self, count: int) -> None:
        """Accepts any number, because each record has its own coin; with `truncate_at`, at most `records`."""
        if self.truncate_at is not None and self.records is not None and count > self.records:
            rule = f"has {count} records, but the price of truncation is computed for at most {self.records}"
            raise InvalidParameter("dataset", NOTHING, rule, "give the plan a larger records=")

    def expected_batch(self, records: int) -> float:
        return self.rate * (records if self.records is None else self.records)

    @property
    def training_assumptions(self) -> tuple[str, ...]:
        many = noun(self.unit, 2)
        known = (f"the number of {many} is public: one is removed by blanking it, and added in place of a blank",)
        return known if self.records is None or self._rule.needs_public_number else ()

    @property
    def cheaper_by(self) -> str:
        return "fewer steps or a smaller rate"

    def in_full(self) -> str:
        """The repr rounds the rate, and leaves out the number of records, on which the price of truncation depends."""
        bound = "" if self.truncate_at is None else f", at most {self.records} records"
        return f"{self!r}, rate {self.rate!r}{bound}"

    @property
    def curve(self) -> Curve:
        return self.so_far(self.steps)

    def so_far(self, steps: int) -> Curve:
        alone = self.calibrated()
        sigma = self.clip.together(alone) if isinstance(self.clip, AdaptiveNorm) else alone
        return self._rule.curve(self, sigma, steps)

    @property
    def is_gaussian(self) -> bool:
        return self._rule.is_gaussian(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self._rule.assumptions(self, noun(self.unit), noun(self.unit, 2))

    def compare(self, *, delta: float) -> dict[str, float]:
        """ε of the whole run at `delta`, by the certified curve and by two older methods, each rounded up.

        "Rényi" adds Rényi divergences of integer orders and converts the best one (Mironov, Talwar & Zhang 2019;
        Canonne, Kamath & Steinke 2020). "moments accountant" is Abadi et al. (2016): λ = 1, ..., 32 and
        ε = (A(λ) + log 1/δ)/λ. For allocated and shuffled batches: "sampled" is ε with independent coins of the same
        rate, and "at least" a lower bound on the true ε of shuffled batches.
        """
        return self._rule.compare(self, curve_arguments.inner_probability("delta", delta))

    def explain(self, *, delta: float = 1e-5) -> str:
        """The plan and its guarantee in words, with ε at `delta`."""
        who = self._rule.who(self, noun(self.unit), noun(self.unit, 2))
        most = "" if self.truncate_at is None else f"; of more than {self.truncate_at}, so many are kept at random"
        lines = [f"Each of {self.steps} steps takes {who}{most}."]
        if self.noise is None:
            lines.append(f"{self.clip.describe()}; the noise is not chosen yet: plan.calibrate(epsilon=, delta=).")
            return "\n".join(lines)
        spread = rounded_up(self.sigma)
        lines.append(f"{self.clip.describe()}; their sum gets Gaussian noise of standard deviation {spread}.")
        compared = self.compare(delta=delta)
        lines.append(
            f"Between data that differ by one {noun(self.unit)}, an attacker who sees every step reaches at most "
            f"ε = {rounded_up(compared['certified'])} at δ = {delta:g}."
        )
        lines += self._rule.comparison(compared)
        lines += weaknesses(epsilon=compared["certified"], delta=delta, people=self.records)
        return "\n".join(lines)

    def __repr__(self) -> str:
        clip = f"{self.clip.norm!r}" if isinstance(self.clip, Flat) else repr(self.clip)
        noise = "" if self.noise is None else f", noise={self.noise:.6g}"
        most = "" if self.truncate_at is None else f", truncate_at={self.truncate_at}"
        most += self._rule.shown()
        unit = "" if self.unit.column is None else f", unit={self.unit!r}"
        return f"DPSGD(clip={clip}, rate={self.rate:.6g}, steps={self.steps}{most}{unit}{noise})"


def clipping(value: float | Clipping) -> Clipping:
    """A clipping rule; a number means flat clipping with that norm."""
    return value if isinstance(value, Flat | Automatic | AdaptiveNorm | PerLayer) else Flat(value)


def check_declared_records(records: int, count: int, unit: Unit) -> None:
    """Raises InvalidParameter if a dataset has another number of records than the plan declares."""
    if records != count:
        rule = f"has {count} {noun(unit, 2)}, but the plan is for {records}"
        raise InvalidParameter("dataset", NOTHING, rule, "make the plan for this dataset")


def noun(unit: Unit, count: int = 1) -> str:
    """The noun for what a plan draws: "record" or "person", in the plural unless `count` is 1."""
    one, many = ("record", "records") if unit.column is None else ("person", "people")
    return one if count == 1 else many


def protected(unit: Unit | None) -> Unit:
    """The unit of a plan: `unit`, or by default a row. Raises unless neighbours differ by one added or removed."""
    if unit is None:
        return Unit.row()
    if not isinstance(unit, Unit) or unit.relation is not Relation.ADD_REMOVE:
        rule = "must be Unit.row() or Unit.person(column, rows=): a plan's neighbours differ by one added or removed"
        raise InvalidParameter("unit", unit, rule)
    if unit.period is not None:
        # Gradients are clipped for each person, so one day can move the clipped gradient of a person by 2 clips.
        raise InvalidParameter("unit", unit, "must be a row or a whole person in training, not a period of a person")
    return unit


def unit_changes(planned: Unit, asked: Unit) -> int:
    """How many units of a plan are added or removed between neighbours that differ in one unit `asked`.

    A plan for rows: as many as the unit has rows. A plan for people, asked about people: one, or two if one is
    replaced. Asked about a row, or a person's day: that person is removed and returns with other rows; a replaced row
    may have two owners.

    >>> unit_changes(Unit.row(), Unit.person("id", rows=3))
    3
    >>> unit_changes(Unit.person("id", rows=9), Unit.person("id", rows=3))
    1
    """
    if planned.column is None:
        return asked.row_changes
    if asked.column is None:
        return 2 * asked.row_changes
    if asked.column != planned.column:
        rule = f"protects people by {planned.column!r}, but the ledger protects people by {asked.column!r}"
        raise InvalidParameter("plan", NOTHING, rule, "make the plan with the unit of the ledger")
    return 1 if asked.relation is Relation.ADD_REMOVE and asked.period is None else 2


def price_of(
    promised: Guarantee, budget: Budget, *, unit: Unit, delta: float | None, is_gaussian: bool = False
) -> Cost:
    """The cost of a run with this guarantee for a ledger with this budget and unit: see `PricedPlan.price`."""
    changes = unit_changes(promised.unit, unit)
    curve = promised.curve if changes == 1 else promised.curve.group(size=changes)
    if not budget.accounting.charges_sampling_with_delta or (is_gaussian and changes == 1):
        return budget.price(curve)
    if delta is None:
        remedy = "give delta=, the part of the budget's delta that the run may spend"
        raise InvalidParameter("delta", None, "is needed to charge sampled training to a ledger", remedy)
    from deniable import curves

    allowed = curve_arguments.inner_probability("delta", delta)
    share = allowed
    for _ in range(20):
        mu = curve.gdp(delta=share)
        if not math.isfinite(mu):
            break
        advantage = curves.gaussian(mu=mu).advantage()
        if share <= allowed * (1 - advantage) * (1 - 1e-12):
            return budget.cost(mu=Fraction(mu), delta=Fraction(allowed))
        share = allowed * (1 - advantage) * (1 - 1e-6)
    raise InvalidParameter("delta", delta, "is too small to price this run", "raise it, or add noise")


def _rate(rate: float | None, batch_size: int | None, records: int | None) -> float:
    if curve_arguments.exactly_one(rate=rate, batch_size=batch_size) == "rate":
        share = curve_arguments.probability("rate", rate)
        if share == 0:
            raise InvalidParameter("rate", rate, "must be above 0, so that records take part")
        return share
    size = curve_arguments.integer("batch_size", batch_size, 1)
    if records is None:
        remedy = "give records=, if that number may be public, or rate= instead"
        raise InvalidParameter("batch_size", size, "needs the public number of records", remedy)
    if size > records:
        raise InvalidParameter("batch_size", size, f"must be at most the {records} records")
    return float(Fraction(size, records))


def _most(truncate_at: int | None, records: int | None) -> int | None:
    if truncate_at is None:
        return None
    most = curve_arguments.integer("truncate_at", truncate_at, 1)
    if records is None:
        rule = "needs records=, a public upper bound on the number of records"
        raise InvalidParameter("truncate_at", most, rule, "a larger bound means that batches are truncated more often")
    return most


def _steps(steps: int | None, epochs: float | None, rate: float) -> int:
    if curve_arguments.exactly_one(steps=steps, epochs=epochs) == "steps":
        found = curve_arguments.integer("steps", steps, 1)
    else:
        found = visits(curve_arguments.positive("epochs", epochs), rate)
    if found > MOST_STEPS:
        raise InvalidParameter("steps", found, f"must be at most {MOST_STEPS:,}")
    return found
