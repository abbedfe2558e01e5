"""Audits of training from one run: many canaries, each included by a fair coin, and a score for each.

The trainer throws m fair coins, includes the canaries whose coins show heads, trains once, and assigns every canary a
score (high if it was probably included). The functions here turn scores and coins into certified numbers; they do not
depend on the kind of training.

    one_run       (ε, δ)-DP: Steinke, Nasr & Jagielski 2023, Theorem 5.2
    one_run_fdp   a whole trade-off curve: Mahloujifar, Melis & Chaudhuri 2024

Canaries of one run may depend on each other; neither theorem needs independence.

**Pitfalls.** (1) The first bound has an additive term of up to 2mδ: with more than 1/δ canaries it proves almost
nothing for any attack. Use m ≪ 1/δ, or the second bound. (2) Guesses are ranked by score. Their number must be fixed
beforehand, or covered by a union bound, as here. (3) Coins must be fair and thrown for this run; canaries must not be
chosen after training. (4) One run proves less than many: a thousand canaries, all guessed right, certify ε = 5.4.
(5) If all curves of a family are refuted up to a parameter, this says nothing about the ε of a training whose curve is
not in the family: randomized response with ε = 1 refutes Gaussian curves whose ε at δ = 10⁻⁵ is well above 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable import curves
from deniable.audit import binomial
from deniable.audit.claim import Promise, some_delta, widest
from deniable.curves import Curve, curve_arguments
from deniable.curves.curve_display import rounded_down
from deniable.errors import NOTHING, InvalidParameter

LARGEST: Final = 60.0
"""The largest ε or family parameter of the search."""
STEPS: Final = 24
"""The number of bisections of the search."""
NEGLIGIBLE: Final = 1e-12
"""The smallest δ at which a curve is evaluated."""
SHARES: Final = (1 / 64, 1 / 16, 1 / 4, 1.0)
"""The default shares of canaries to guess: a few sure guesses, or many unsure ones."""


@final
@dataclass(frozen=True, slots=True)
class OneRun:
    """The certified result of one run of training."""

    epsilon: float
    """A certified lower bound for any training: at `delta`, it is not (ε, δ)-DP for any smaller ε."""
    delta: float
    confidence: float
    canaries: int
    guesses: int
    """The number of guesses of the rule that proves it."""
    right: int
    parameter: float | None = None
    """All curves of the family with smaller parameters are refuted. None without a family."""
    implied: float | None = None
    """The ε at `delta` of the family's curve with that parameter. Valid only if the training's curve is in the family.
    """
    family: str = ""
    """"Gaussian" for that family, else empty."""

    @property
    def seen(self) -> bool:
        """Whether the guesses prove any leak."""
        return self.epsilon > 0 or (self.parameter or 0.0) > 0

    @property
    def sentence(self) -> str:
        """The result in words."""
        share = f"{self.right:,} of {self.guesses:,} guesses about {self.canaries:,} canaries were right"
        sure = f"with confidence {float(self.confidence)!r}"
        found = f"{share}: {sure}, ε is at least {rounded_down(self.epsilon, 4)} at δ = {self.delta:.3g}"
        if not self.seen:
            sentence = f"W{sure[1:]}, the guesses prove no leak at δ = {self.delta:.3g}"
            return f"{share}: nothing seen. {sentence}, which does not show that nothing leaks."
        if self.parameter is None or self.implied is None or not self.parameter > 0:
            return f"{found}."
        supposed, name = ("Gaussian", "μ") if self.family else ("of the family asked about", "its parameter")
        least, epsilon = rounded_down(self.parameter, 4), rounded_down(self.implied, 4)
        return f"{found}; if the training is {supposed}, {name} is at least {least}, and ε at least {epsilon}."

    def __str__(self) -> str:
        return self.sentence


def one_run(
    scores: Any, included: Any, *, delta: float, confidence: float, guesses: int | Sequence[int] | None = None
) -> OneRun:
    """A certified ε from the scores of canaries; a high score means that a canary was probably included.

    For any (ε, δ)-DP training, at least v of r guesses about m canaries are right with probability at most
    f(v) + 2mδ max_i (f(v - i) - f(v))/i, where f is the upper tail of Binomial(r, e^ε/(1 + e^ε)) (Steinke, Nasr &
    Jagielski 2023). Half of the guesses, for the highest scores, are "in"; the other half, for the lowest, are "out".
    `guesses` is r, or several values that share the error rate. `included` has the coins.

    >>> import numpy as np
    >>> from deniable import audit
    >>> rng = np.random.default_rng(3)
    >>> included = rng.random(1000) < 0.5
    >>> found = audit.one_run(included + rng.normal(0, 0.5, 1000), included, delta=1e-6, confidence=0.95)
    >>> 1.5 < found.epsilon < 4.4 / 0.5
    True
    """
    marks, coins = _canaries(scores, included)
    level, miss = some_delta(delta), 1 - curve_arguments.inner_probability("confidence", confidence)
    tried = _counts(guesses, len(marks))
    best = OneRun(0.0, level, 1 - miss, len(marks), 0, 0)
    for count in tried:
        right = _right(marks, coins, count)
        epsilon = _refuted(level, len(marks), count, right, miss / len(tried))
        if epsilon > best.epsilon or not best.guesses:
            best = OneRun(epsilon, level, 1 - miss, len(marks), count, right)
    return best


def run_p_value(epsilon: float, delta: float, canaries: int, guesses: int, right: int) -> float:
    """A p-value: an upper bound on the probability that `right` or more guesses are right under (ε, δ)-DP training."""
    from scipy.special import betainc

    chance = 1 / (1 + math.exp(-epsilon))
    tail = binomial.at_least(right, guesses, probability=chance)
    if delta == 0 or right == 0:
        return tail
    fewer = np.arange(right - 1, -1, -1, dtype=float)  # v - 1, v - 2, ..., 0
    tails = np.where(fewer > 0, betainc(np.maximum(fewer, 1), guesses - np.maximum(fewer, 1) + 1, chance), 1.0)
    slope = float(np.max((tails - tail) / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * max(slope, 0.0))


def one_run_fdp(
    scores: Any,
    included: Any,
    *,
    delta: float,
    confidence: float,
    family: Callable[[float], Curve] | None = None,
    guesses: int | Sequence[int] | None = None,
) -> OneRun:
    """`one_run` against whole curves: a certified ε, and the largest parameter of a family up to which all curves are
    refuted. The default family is Gaussian DP with parameter μ. A larger parameter must mean more leakage.

    Let p_i be the probability of i right guesses among r, about m canaries, and let the training be f-DP. Let
    R_i = Σ_{j>=i} j p_j/m and H_i = Σ_{j>=i} (r - j) p_j/m. Flipping a canary's coin makes a right guess wrong and
    leaves all others unchanged, so R_{i+1} <= 1 - f(H_i), averaged over the canaries since 1 - f is concave. Starting
    from P(v or more right) = τ, these inequalities give a lower bound on R_0 + H_0. If it exceeds r/m, no f-DP training
    has such a τ, and v right guesses refute f at level τ (Mahloujifar, Melis & Chaudhuri 2024).

    `epsilon` is certified for every training: all smaller (ε, δ)-DP curves are refuted in this way, or as in `one_run`.
    `parameter` and `implied` hold for a training whose curve is in the family.
    """
    marks, coins = _canaries(scores, included)
    level, miss = some_delta(delta), 1 - curve_arguments.inner_probability("confidence", confidence)
    curve_of = family if family is not None else (lambda mu: curves.gaussian(mu=mu))
    tried = _counts(guesses, len(marks))
    # Each of the three statements is wrong only if the number of right guesses exceeds its own limit. So together they
    # are wrong only if it exceeds the lowest limit: no union bound is needed.
    found = []
    for count in tried:
        right = _right(marks, coins, count)

        def leaks_more(e: float, count: int = count, right: int = right) -> bool:
            each = miss / len(tried)
            if run_p_value(e, level, len(marks), count, right) <= each:
                return True
            return run_refutes(curves.approximate(epsilon=e, delta=level), len(marks), count, right, each)

        def refuted(parameter: float, count: int = count, right: int = right) -> bool:
            return run_refutes(curve_of(parameter), len(marks), count, right, miss / len(tried))

        found.append((_largest(leaks_more), count, right, _largest(refuted)))
    epsilon, count, right, _ = max(found, key=lambda one: (one[0], one[3]))
    parameter = max(one[3] for one in found)
    implied = float(curve_of(parameter).epsilon_bounds(delta=level)[0]) if parameter > 0 else 0.0
    name = "Gaussian" if family is None else ""
    return OneRun(epsilon, level, 1 - miss, len(marks), count, right, parameter, implied, name)


def run_refutes(claim: Curve, canaries: int, guesses: int, right: int, miss: float) -> bool:
    """Whether `right` right guesses refute the claimed curve at the error rate `miss`."""
    if right == 0 or right * 2 <= guesses:
        return False
    promise = Promise.of(claim, most=widest(claim, delta=NEGLIGIBLE, limit=LARGEST))
    r, h = miss * right / canaries, miss * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        # A true-positive rate of r needs a false-alarm rate of at least f(1 - r), since f is symmetric.
        needed = max(h, float(promise.beta(1 - r)))
        r, h = r + i / (guesses - i) * (needed - h), needed
        if r + h > guesses / canaries * (1 + 1e-9):
            return True
    return False


def _refuted(delta: float, canaries: int, count: int, right: int, miss: float) -> float:
    """The largest ε that `right` right guesses refute."""
    return _largest(lambda epsilon: run_p_value(epsilon, delta, canaries, count, right) <= miss)


def _largest(is_refuted: Callable[[float], bool]) -> float:
    """The largest refuted parameter, rounded down. If a parameter is refuted, all smaller ones are refuted too."""
    if not is_refuted(1e-3):
        return 0.0
    low, high = 1e-3, LARGEST
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def _right(marks: NDArray[np.float64], coins: NDArray[np.bool_], count: int) -> int:
    """The number of right guesses: "in" for the highest scores, "out" for the lowest. Ties are broken by position,
    which is random."""
    order = np.argsort(marks, kind="stable")
    low, high = order[: count // 2], order[len(order) - (count - count // 2) :]
    return int((~coins[low]).sum() + coins[high].sum())


def _canaries(scores: Any, included: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores and coins in random order: ties are broken by position, and the given order may follow the coins."""
    marks, coins = np.asarray(scores, dtype=float), np.asarray(included)
    if marks.ndim != 1 or marks.shape != coins.shape or len(marks) < 10 or coins.dtype.kind not in "bi":
        rule = "must be one number for each of at least 10 canaries, and `included` one coin for each"
        raise InvalidParameter("scores", NOTHING, rule)
    if not np.isfinite(marks).all() or not np.isin(coins, (0, 1)).all():
        raise InvalidParameter("scores", NOTHING, "must be finite, and `included` must be True or False")
    order = np.random.default_rng().permutation(len(marks))
    return marks[order], coins.astype(np.bool_)[order]


def _counts(guesses: Any, canaries: int) -> list[int]:
    if guesses is None:
        return sorted({max(2, int(share * canaries)) for share in SHARES})
    listed = [guesses] if isinstance(guesses, int | np.integer) else list(guesses)
    found = [curve_arguments.integer("guesses", count, 1) for count in listed]
    if not found or max(found) > canaries:
        raise InvalidParameter("guesses", guesses, f"must be at least 1 and at most the {canaries} canaries")
    return sorted(set(found))
