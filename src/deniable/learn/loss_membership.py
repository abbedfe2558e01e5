"""A membership test of a trained model: how many members does an attacker find, at a given rate of false alarms?

The attacker sees the loss of each record. Without shadow models, a low loss speaks for a member. With the losses of
shadow models, some trained with a record and some without, the attacker compares two normal distributions for each
record (LiRA: Carlini et al. 2022). A curve bounds what any attacker reaches: at a rate α of false alarms, at most
1 - β(α) of the members are found. This module measures one attack, from data without noise, so the result is for the
owner only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.audit import binomial
from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidParameter

__all__ = ["MembershipRate", "MembershipTest", "membership_test"]

RATES: Final = (0.001, 0.01, 0.05, 0.1)
"""The rates of false alarms that are reported."""
FEWEST: Final = 2
"""The fewest shadow models trained with each record, and the fewest trained without it."""

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class MembershipRate:
    """The share of members that the test finds at one rate of false alarms."""

    false_alarms: float
    """The requested rate. The measured rate is at most this."""
    found: float
    low: float
    high: float
    """The ends of a Clopper-Pearson interval for `found`, with the threshold taken as given."""


@final
@dataclass(frozen=True, slots=True)
class MembershipTest:
    """The result of a membership test, at several rates of false alarms. Without noise, so for the owner only."""

    rates: tuple[MembershipRate, ...]
    members: int
    others: int
    shadows: int
    """The number of shadow models; 0 if losses alone were compared."""
    confidence: float

    def describe(self) -> str:
        """One sentence on what was measured."""
        how = f"the losses of {self.shadows} shadow models (LiRA)" if self.shadows else "the losses alone"
        return f"Measured on {self.members:,} members and {self.others:,} others, from {how}."

    def __str__(self) -> str:
        each = [f"{100 * one.false_alarms:g} % false alarms: {100 * one.found:.1f} % found" for one in self.rates]
        return "\n".join([self.describe(), *each])


def membership_test(
    losses: Any,
    included: Any,
    *,
    shadow_losses: Any = None,
    shadow_included: Any = None,
    false_alarms: Sequence[float] = RATES,
    confidence: float = 0.95,
) -> MembershipTest:
    """How well losses reveal which records were in the training. Raises InvalidParameter if shapes do not match.

    `losses` has the model's loss of each record, `included` whether it was in the training (as coins decided, so that
    members and others are alike). `shadow_losses` has a row of losses for each shadow model, and `shadow_included` who
    was in its training; each record needs at least two models with it and two without. Losses are negative
    log-likelihoods: the attack scores log(p/(1 - p)) with p = e^-loss, which is nearly normal.

    >>> import numpy as np
    >>> included = np.arange(1000) % 2 == 0
    >>> test = membership_test(np.where(included, 0.1, 0.2), included, false_alarms=[0.01])
    >>> test.rates[0].found
    1.0
    """
    own = _losses("losses", losses, 1)
    inside = _marks("included", included, own.shape)
    sure = curve_arguments.inner_probability("confidence", confidence)
    if (shadow_losses is None) != (shadow_included is None):
        rule = "must be given together with shadow_included"
        raise InvalidParameter("shadow_losses", NOTHING, rule)
    scores, shadows = -own, 0
    if shadow_losses is not None:
        others = _losses("shadow_losses", shadow_losses, 2)
        if others.shape[1] != len(own):
            rule = "must have a row for each shadow model, with a loss for each record"
            raise InvalidParameter("shadow_losses", NOTHING, rule)
        scores, shadows = _ratios(own, others, _marks("shadow_included", shadow_included, others.shape)), len(others)
    members, rest = scores[inside], np.sort(scores[~inside])[::-1]
    if not len(members) or not len(rest):
        raise InvalidParameter("included", NOTHING, "must mark at least one member and at least one other record")
    return MembershipTest(
        tuple(_rate(members, rest, curve_arguments.probability("false_alarms", each), sure) for each in false_alarms),
        len(members),
        len(rest),
        shadows,
        sure,
    )


def _rate(members: Floats, rest: Floats, alpha: float, sure: float) -> MembershipRate:
    """The share of members above the threshold that at most a share α of the other records exceeds. `rest` is sorted,
    largest first.
    """
    allowed = int(alpha * len(rest) * (1 + 1e-12))
    threshold = rest[allowed] if allowed < len(rest) else -np.inf
    hits = int(np.count_nonzero(members > threshold))
    low, high = binomial.clopper_pearson(hits, len(members), confidence=sure)
    return MembershipRate(alpha, hits / len(members), low, high)


def _ratios(own: Floats, others: Floats, inside: NDArray[np.bool_]) -> Floats:
    """The log-likelihood ratio of "in" against "out" for each record, by normal laws of the shadows' confidences."""
    counts = inside.sum(axis=0)
    if min(counts.min(), (len(others) - counts).min()) < FEWEST:
        rule = f"must have at least {FEWEST} shadow models with, and {FEWEST} without, each record"
        raise InvalidParameter("shadow_included", NOTHING, rule, "draw each record into each shadow model by a coin")
    mine, shadows = _confidence(own), _confidence(others)
    with_it = np.ma.masked_array(shadows, ~inside)
    without = np.ma.masked_array(shadows, inside)
    found = np.zeros(len(own))
    for sign, group in ((1, with_it), (-1, without)):
        centre, spread = np.asarray(group.mean(axis=0)), np.asarray(group.std(axis=0)) + 1e-6
        found += sign * (-np.log(spread) - ((mine - centre) / spread) ** 2 / 2)
    return found


def _confidence(losses: Floats) -> Floats:
    """log(p/(1 - p)) for p = e^-loss, finite for any loss."""
    within = np.clip(losses, 1e-12, 700.0)
    return np.asarray(-within - np.log(-np.expm1(-within)))


def _losses(name: str, given: Any, axes: int) -> Floats:
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != axes or not found.size or not np.all(np.isfinite(found)):
        shape = "a row of numbers" if axes == 1 else "a table of numbers"
        raise InvalidParameter(
            name, NOTHING, f"must be {shape} that are all finite", "compute it with reduction='none'"
        )
    return found


def _marks(name: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    found = np.asarray(given)
    if found.shape != shape or found.dtype != np.bool_:
        raise InvalidParameter(name, NOTHING, "must be True or False for each loss")
    return found
