"""How DPSGD chooses the records of a step: the values of its argument `batches`, each as one object.

A rule answers all questions that depend on the choice: who is drawn, the curve, the assumptions, and the words of
`explain`. To add a rule, write a subclass of `BatchRule` and add it to `BATCH_RULES`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, final

from deniable.curves.curve_display import rounded_up
from deniable.errors import InvalidParameter
from deniable.learn.epoch_batches import (
    EpochDraws,
    Places,
    StepDraws,
    allocated_numbers,
    epochs_begun,
    least_epsilon,
    shuffled_numbers,
)
from deniable.learn.truncated_batches import truncated_step

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.learn.plans import DPSGD
    from deniable.noise import Entropy

ORDERS: Final = range(2, 65)
"""Orders of Rényi divergence that `compare` tries."""


class BatchRule(ABC):
    """One way to choose the records of a step."""

    name: ClassVar[str]
    """The value of `batches` that chooses it."""
    needs_public_number: ClassVar[bool] = False
    """Whether the number of records has to be public, also if the plan states it."""

    @abstractmethod
    def batches_in_epoch(self, rate: float) -> int | None:
        """The number of batches that visit every record once, from the rate asked for; None if batches do not."""

    def check_truncation(self, truncate_at: int | None) -> None:
        """Raises InvalidParameter if batches of this rule cannot be truncated."""
        if truncate_at is not None:
            rule = f"applies to sampled batches only, and these are {self.name}"
            raise InvalidParameter("truncate_at", truncate_at, rule, "leave it out")

    def log_chance_to_stay_out(self, plan: DPSGD) -> float:
        """The logarithm of the probability that a record takes part in no step: -∞, as every epoch has each record."""
        return -math.inf

    @abstractmethod
    def draws(self, plan: DPSGD) -> StepDraws:
        """Draws the batches of one run."""

    @abstractmethod
    def curve(self, plan: DPSGD, sigma: float, steps: int) -> Curve:
        """The curve of the first `steps` steps at noise multiplier `sigma`."""

    @abstractmethod
    def is_gaussian(self, plan: DPSGD) -> bool:
        """Whether that curve is the curve of Gaussian noise."""

    @abstractmethod
    def assumptions(self, plan: DPSGD, one: str, many: str) -> tuple[str, ...]:
        """Sentences that state what the curve assumes. `one` and `many` are the singular and the plural of what is
        drawn, such as "record" and "records".
        """

    @abstractmethod
    def who(self, plan: DPSGD, one: str, many: str) -> str:
        """Who takes part in a step, in words."""

    @abstractmethod
    def compare(self, plan: DPSGD, delta: float) -> dict[str, float]:
        """ε at δ by the certified curve and by what it is compared with: see `DPSGD.compare`."""

    @abstractmethod
    def comparison(self, compared: dict[str, float]) -> list[str]:
        """What `compare` found besides the certified ε, in sentences."""

    def shown(self) -> str:
        """The argument `batches` in the repr of a plan."""
        return f", batches={self.name!r}"


@final
class SampledBatches(BatchRule):
    """Each record takes part in each step by an independent coin."""

    name = "sampled"

    def batches_in_epoch(self, rate: float) -> int | None:
        return None

    def check_truncation(self, truncate_at: int | None) -> None:
        """All sampled batches can be truncated."""

    def log_chance_to_stay_out(self, plan: DPSGD) -> float:
        return plan.steps * math.log1p(-plan.rate) if plan.rate < 1 else -math.inf

    def draws(self, plan: DPSGD) -> StepDraws:
        return plan

    def curve(self, plan: DPSGD, sigma: float, steps: int) -> Curve:
        from deniable import curves

        if plan.truncate_at is None or plan.records is None:
            return curves.gaussian(sigma=sigma).sampled(rate=plan.rate) ** steps
        once = truncated_step(sigma=sigma, rate=plan.rate, records=plan.records, truncate_at=plan.truncate_at)
        return once**steps

    def is_gaussian(self, plan: DPSGD) -> bool:
        return plan.rate == 1 and plan.truncate_at is None

    def assumptions(self, plan: DPSGD, one: str, many: str) -> tuple[str, ...]:
        drawn = (f"every {one} is drawn independently in each step, and the drawn {many} stay secret",)
        known = (f"neighbouring datasets have at most {plan.records} {many}",)
        return (*(drawn if plan.rate < 1 else ()), *(known if plan.truncate_at is not None else ()))

    def who(self, plan: DPSGD, one: str, many: str) -> str:
        if plan.rate == 1:
            return f"all {many}"
        average = "" if plan.records is None else f": {plan.rate * plan.records:.6g} of {plan.records} on average"
        return f"each {one} with probability {plan.rate:.5g}, independently{average}"

    def compare(self, plan: DPSGD, delta: float) -> dict[str, float]:
        from deniable.curves import textbook

        curve = plan.curve
        divergences = {order: curve.renyi_function(float(order)) for order in ORDERS}
        renyi = min(textbook.renyi_to_epsilon(order=a, renyi=d, delta=delta) for a, d in divergences.items())
        moments = min(
            textbook.renyi_to_epsilon_mironov(order=a, renyi=d, delta=delta) for a, d in divergences.items() if a <= 33
        )
        return {"certified": curve.epsilon(delta=delta), "Rényi": renyi, "moments accountant": moments}

    def comparison(self, compared: dict[str, float]) -> list[str]:
        renyi, moments = rounded_up(compared["Rényi"]), rounded_up(compared["moments accountant"])
        return [
            f"With Rényi accounting, the same run would report ε = {renyi}, "
            f"with Abadi's moments accountant ε = {moments}."
        ]

    def shown(self) -> str:
        return ""


class EpochRule(BatchRule):
    """Every record takes part once in each epoch."""

    def batches_in_epoch(self, rate: float) -> int | None:
        return visits(1.0, rate)

    def draws(self, plan: DPSGD) -> StepDraws:
        return EpochDraws(self.numbers, plan.batches_in_epoch)

    @abstractmethod
    def numbers(self, records: int, batches: int, entropy: Entropy | None) -> Places:
        """The number of the batch of each record in a new epoch."""

    def compare(self, plan: DPSGD, delta: float) -> dict[str, float]:
        from deniable import curves

        coins = curves.gaussian(sigma=plan.calibrated()).sampled(rate=plan.rate) ** plan.steps
        return {"certified": plan.curve.epsilon(delta=delta), "sampled": coins.epsilon(delta=delta)}

    def comparison(self, compared: dict[str, float]) -> list[str]:
        return [f"Independent coins of the same rate would reach ε = {rounded_up(compared['sampled'])}."]


@final
class AllocatedBatches(EpochRule):
    """In each epoch, each record draws its batch independently."""

    name = "allocated"

    def numbers(self, records: int, batches: int, entropy: Entropy | None) -> Places:
        return allocated_numbers(records, batches, entropy)

    def curve(self, plan: DPSGD, sigma: float, steps: int) -> Curve:
        from deniable import curves

        count = plan.batches_in_epoch
        return curves.gaussian(sigma=sigma).allocated(steps=count) ** epochs_begun(steps, count)

    def is_gaussian(self, plan: DPSGD) -> bool:
        return plan.rate == 1

    def assumptions(self, plan: DPSGD, one: str, many: str) -> tuple[str, ...]:
        secret = f"every {one} draws its batch independently in each epoch, and the batches' members stay secret"
        return (secret, "checkpoints made during the run are kept secret")

    def who(self, plan: DPSGD, one: str, many: str) -> str:
        count = plan.batches_in_epoch
        return f"the {many} that drew it: in each epoch of {count} steps, each {one} draws one, uniformly"


@final
class ShuffledBatches(EpochRule):
    """In each epoch, all records are shuffled and cut into equal batches."""

    name = "shuffled"
    needs_public_number = True

    def numbers(self, records: int, batches: int, entropy: Entropy | None) -> Places:
        return shuffled_numbers(records, batches, entropy)

    def curve(self, plan: DPSGD, sigma: float, steps: int) -> Curve:
        from deniable import curves

        return curves.gaussian(sigma=sigma) ** epochs_begun(steps, plan.batches_in_epoch)

    def is_gaussian(self, plan: DPSGD) -> bool:
        return True

    def assumptions(self, plan: DPSGD, one: str, many: str) -> tuple[str, ...]:
        return ()

    def who(self, plan: DPSGD, one: str, many: str) -> str:
        return f"the next of {plan.batches_in_epoch} equal parts of the {many}, shuffled anew for each epoch"

    def compare(self, plan: DPSGD, delta: float) -> dict[str, float]:
        least = least_epsilon(plan.calibrated(), plan.batches_in_epoch, plan.steps, delta)
        return {**EpochRule.compare(self, plan, delta), "at least": least}

    def comparison(self, compared: dict[str, float]) -> list[str]:
        least = math.floor(compared["at least"] * 1000) / 1000
        proved = f"No gain by shuffling is proved; the true ε is at least {least:g}."
        return [*EpochRule.comparison(self, compared), proved]


BATCH_RULES: Final[dict[str, BatchRule]] = {
    rule.name: rule for rule in (SampledBatches(), AllocatedBatches(), ShuffledBatches())
}
"""The rules by their names, the default first."""


def visits(epochs: float, rate: float) -> int:
    """The number of steps of `epochs` epochs. A rate such as 1/6 is stored slightly too small; that must not add a
    step.
    """
    return max(1, math.ceil(epochs / rate * (1 - 1e-12)))
