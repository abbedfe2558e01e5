"""What all tests of attacks need: verdicts that are wrong once in a billion."""

from __future__ import annotations

from deniable.attacks import Outcome
from deniable.testing.statistics import FALSE_ALARM, at_least, at_most


def agrees(outcome: Outcome, truth: float) -> bool:
    """Whether the hits are plausible for this probability: a two-sided exact binomial test of level 1e-9."""
    tails = (
        at_most(outcome.hits, outcome.trials, probability=truth),
        at_least(outcome.hits, outcome.trials, probability=truth),
    )
    return min(tails) > FALSE_ALARM / 2


def above(outcome: Outcome, rate: float) -> bool:
    """Whether the hits prove a probability above this one, at level 1e-9."""
    return at_least(outcome.hits, outcome.trials, probability=rate) <= FALSE_ALARM
