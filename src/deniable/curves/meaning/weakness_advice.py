"""Advice on parameters: sentences that warn if an ε or a δ protects little.

Three rules, which use no data. The number of people must be declared, not counted, because under add/remove the size of
a table is as private as its rows.

- ε above `MOST_EPSILON` = 10. For all neighbours an answer multiplies the odds of a guess by at most e^ε; at 10 that is
  22,026. Ponomareva et al. (2023), section 5.2, call ε <= 1 strong, ε <= 10 reasonable, and more "weak to no".
- The same for μ, ρ or noise, which have no ε: their ε at δ = `USUAL_DELTA` = 10⁻⁶ counts, so that the same protection
  gets the same verdict however it is written.
- δ not well below 1/n, that is, nδ above `MOST_SHOWN` = 1/10. A mechanism that publishes each of n people with
  probability δ is (0, δ)-DP and reveals nδ people on average. δ above `MOST_DELTA` = 1/1,000 is too large for any n.
"""

from __future__ import annotations

import math
import sys
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Final

from deniable.curves.decimal_arithmetic import whole
from deniable.errors import WeakPrivacyWarning

Given = float | Fraction | Decimal

MOST_EPSILON: Final = 10
MOST_DELTA: Final = Fraction(1, 1000)
MOST_SHOWN: Final = Fraction(1, 10)
USUAL_DELTA: Final = 1e-6
MOST_MU: Final = 1.848132205622454
"""The largest μ whose ε at `USUAL_DELTA` is at most `MOST_EPSILON`."""


def weaknesses(
    *,
    epsilon: Given | None = None,
    delta: Given | None = None,
    mu: Given | None = None,
    people: int | None = None,
) -> tuple[str, ...]:
    """The weaknesses of these parameters, one sentence each; empty if none was found.

    `people` is a public number of people, declared and not counted from the data.

    >>> weaknesses(epsilon=1, delta=1e-6, people=1000)
    ()
    >>> for sentence in weaknesses(epsilon=12, delta=0.01, people=1000):
    ...     print(sentence)
    epsilon 12 protects little: an answer may multiply the odds of a guess about a person by e^12 = 1.6e+05, so that \
    even odds become a guess that is wrong once in 1.6e+05; at most 10 is usual, at most 1 is strong
    delta 0.01 protects little: it is not well below 1/n = 0.001 for n = 1,000 people, and allows showing each of them \
    in full with probability 0.01, 10 of them on average; 1/n² = 1e-06 is usual
    >>> [sentence] = weaknesses(mu=2)
    >>> sentence.split(":")[0]
    'mu 2 protects little'
    """
    sentences = []
    if epsilon is not None and epsilon > MOST_EPSILON:
        sentences.append(_of_epsilon(float(epsilon)))
    if mu is not None and mu > MOST_MU:
        sentences.append(_of_mu(float(mu)))
    bar = MOST_DELTA if people is None else min(MOST_DELTA, MOST_SHOWN / whole("people", people))
    if delta is not None and _written(delta) > bar:
        sentences.append(_of_delta(float(delta), people))
    return tuple(sentences)


def warn_if_weak(
    *,
    epsilon: Given | None = None,
    delta: Given | None = None,
    mu: Given | None = None,
    people: int | None = None,
) -> None:
    """Issue `weaknesses` as a `WeakPrivacyWarning` at the line that chose the parameters.

    That line is the first caller outside the room that calls this. If it lies in another room of deniable, no warning
    is issued: a server that adds noise for a question has not chosen the parameters, and the rooms in which users
    choose them call this function themselves.
    """
    sentences = weaknesses(epsilon=epsilon, delta=delta, mu=mu, people=people)
    if not sentences:
        return
    frame, level = sys._getframe(1), 2
    own = (_room(frame.f_globals), "deniable.curves")
    while frame.f_back is not None and _room(frame.f_globals) in own:
        frame, level = frame.f_back, level + 1
    if not _room(frame.f_globals).startswith("deniable"):
        warnings.warn("; ".join(sentences), WeakPrivacyWarning, stacklevel=level)


def _room(scope: dict[str, object]) -> str:
    """The room of a module: deniable.mechanisms for deniable.mechanisms.additive_noise; "" for a module outside
    deniable.
    """
    parts = str(scope.get("__name__", "")).split(".")
    return ".".join(parts[:2]) if parts[0] == "deniable" else ""


def _written(delta: Given) -> Fraction:
    """The exact decimal number as written: 0.001 is a thousandth, although the float lies above it."""
    return Fraction(str(delta)) if isinstance(delta, float) else Fraction(delta)


def _of_epsilon(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "epsilon inf protects nobody: an answer may reveal everything about a person"
    # e^ε as a power of ten: it is larger than any float from ε = 710 on.
    exponent = epsilon / math.log(10)
    whole = math.floor(exponent)
    times = f"{math.floor(10 ** (exponent - whole) * 10) / 10:.1f}e+{whole:02d}"
    return (
        f"epsilon {epsilon:.4g} protects little: an answer may multiply the odds of a guess about a person by "
        f"e^{epsilon:.4g} = {times}, so that even odds become a guess that is wrong once in {times}; "
        f"at most {MOST_EPSILON} is usual, at most 1 is strong"
    )


def _of_mu(mu: float) -> str:
    right = math.floor(10_000 * (1 - 0.5 * math.erfc(mu / 2 / math.sqrt(2)))) / 100
    return (
        f"mu {mu:.4g} protects little: at delta {USUAL_DELTA:g} its epsilon is above {MOST_EPSILON}, and an attacker "
        f"with even odds guesses right {right:g} % of the time; mu at most 1 is usual"
    )


def _of_delta(delta: float, people: int | None) -> str:
    if (
        people is None or people * MOST_DELTA < MOST_SHOWN
    ):  # for so few people, the limit for any number of people is the lower one
        return (
            f"delta {delta:.4g} protects little: it allows showing each person in full with probability {delta:.4g}, "
            f"{1000 * delta:.4g} of 1,000 people on average; for n people take well below 1/n, 1/n² is usual"
        )
    return (
        f"delta {delta:.4g} protects little: it is not well below 1/n = {1 / people:.4g} for n = {people:,} people, "
        f"and allows showing each of them in full with probability {delta:.4g}, {people * delta:.4g} of them on "
        f"average; 1/n² = {1 / people**2:.4g} is usual"
    )
