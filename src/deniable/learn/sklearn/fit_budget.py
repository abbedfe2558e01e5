"""The budget of one `fit`, who pays for it, and the only access to rows: noisy sums of integers.

Every estimator of this package uses rows only through a `Purse`, nearly always through `Purse.sums`. A row becomes a
vector of integers that depends on that row, on public parameters and on earlier releases. The vectors are summed
exactly, and the sum gets rounded Gaussian noise, sampled exactly. So the sensitivity is an integer that can be checked,
and no result depends on how floats are rounded. k releases with μ₁, …, μ_k are together √(μ₁² + … + μ_k²)-GDP (Dong,
Roth & Su 2022, corollary 3.3). Other mechanisms (bounds, noisy max) are paid with `Purse.level`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable import curves
from deniable.curves.meaning.weakness_advice import warn_if_weak
from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.mechanisms import Gaussian, rational_parameters
from deniable.mechanisms.additive_noise import gaussian_mu
from deniable.numbers import float_root_down, root_up
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.ledger import Cost, Entry, Ledger

Ints = NDArray[np.int64]

WIDEST: Final = 2**49
"""The largest noise scale, in steps: half of the scale up to which the noise certainly fits into 64 bits."""
SAY: Final = "give epsilon= and delta=, or mu=, or session= with one of epsilon= and mu="
ROWS: Final = "the bounds, labels and other arguments were not made from the data"
DATASET: Final = "the rows that were given are rows of the ledger's dataset"
PEOPLE: Final = "nobody owns more of the rows than the unit says"


class PaidSums(ABC):
    """Noisy sums, paid in advance for a fixed number of releases."""

    __slots__ = ()

    sigma: float
    """The standard deviation of the noise on each number."""

    @abstractmethod
    def release(self, totals: Ints) -> Ints:
        """The exact sums `totals` plus noise. Raises `AssertionError` after the last paid release."""


class Purse(ABC):
    """The budget of a fit. An estimator may use rows only in `sums`, or in a mechanism that it pays with `level`."""

    __slots__ = ()

    @abstractmethod
    def sums(self, *, share: Fraction, square: int, size: int, times: int = 1) -> PaidSums:
        """Pay `share` of μ² for `times` releases of sums of vectors. Each row's vector has `size` integers and a
        squared length of at most `square`.

        For all neighbours D, D′ that differ by one row, the sums differ by that row's vector, so each release is μ-GDP
        with μ² = share × (all of μ²)/times.
        """

    @abstractmethod
    def level(self, *, share: Fraction) -> float:
        """Pay `share` of μ² for another mechanism. Returns its μ, rounded down."""


@final
class NoisySums(PaidSums):
    """Sums with rounded Gaussian noise, sampled exactly."""

    __slots__ = ("_left", "_noise", "sigma")

    def __init__(self, noisy: Gaussian, times: int) -> None:
        self._noise, self._left, self.sigma = noisy, times, noisy.sigma

    def release(self, totals: Ints) -> Ints:
        if self._left == 0:
            raise AssertionError("more releases than were paid for")
        self._left -= 1
        shape = totals.shape
        return np.asarray(self._noise.release(totals.ravel())).reshape(shape)


@final
class GaussianPurse(Purse):
    """A total μ, spent in shares of μ². Accounting in rational arithmetic refuses overspending."""

    __slots__ = ("_left", "_mu")

    def __init__(self, mu: float) -> None:
        self._mu, self._left = Fraction(mu), Fraction(mu) ** 2

    def sums(self, *, share: Fraction, square: int, size: int, times: int = 1) -> PaidSums:
        moved, level = root_up(Fraction(square)), self._charged(share, times)
        if moved > level * WIDEST:
            remedy = "spend more, or use fewer features"
            raise InvalidParameter(
                "mu", float(self._mu), "is so small that the noise does not fit into 64 bits", remedy
            )
        return NoisySums(Gaussian.whole(sensitivity=moved, mu=level, dimension=size), times)

    def level(self, *, share: Fraction) -> float:
        return self._charged(share, 1)

    def _charged(self, share: Fraction, times: int) -> float:
        part = float_root_down(self._mu**2 * share / times)
        self._left -= Fraction(part) ** 2 * times
        if self._left < 0:
            raise AssertionError("the shares of a fit exceed its budget")
        return part


# -- who pays --------------------------------------------------------------------------------------------------------


@final
class LeftBehind:
    """Replaces the session in a pickled estimator. A fit then raises until a session is set again, because it could not
    be charged.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<left behind>"


@final
@dataclass(frozen=True, slots=True)
class FitAccount:
    """The price of a fit, and the ledger to charge. Without a ledger, the caller keeps account."""

    mu: float
    """The μ of the whole fit, between tables that differ by one unit."""
    unit: Unit
    ledger: Ledger | None = None
    cost: Cost | None = None

    @classmethod
    def of(cls, *, epsilon: Any, delta: Any, mu: Any, session: Any) -> FitAccount:
        """The account for these parameters of an estimator. Raises `InvalidParameter` unless they set one price."""
        if session is not None:
            return cls._of_session(epsilon, delta, mu, session)
        if (epsilon is None) == (mu is None):
            raise InvalidParameter("epsilon", epsilon, "and mu were both given" if mu else "is missing", SAY)
        if mu is not None:
            if delta is not None:
                raise InvalidParameter("delta", delta, "is given with epsilon= only", "leave it out beside mu=")
            return cls(rational_parameters.down(rational_parameters.positive("mu", mu)), Unit.row())
        if delta is None:
            raise InvalidParameter("delta", NOTHING, "is missing", "Gaussian noise has no pure ε; " + SAY)
        level = (
            rational_parameters.down(rational_parameters.positive("epsilon", epsilon)),
            rational_parameters.chance_at_most("delta", delta),
        )
        warn_if_weak(epsilon=level[0], delta=level[1])
        return cls(gaussian_mu(*level), Unit.row())

    @classmethod
    def _of_session(cls, epsilon: Any, delta: Any, mu: Any, session: Any) -> FitAccount:
        if isinstance(session, LeftBehind):
            remedy = "set it again with set_params(session=...); in cross-validation, use n_jobs=1 or joblib's threads"
            raise InvalidParameter("session", session, "was left out when the estimator was pickled", remedy)
        ledger: Ledger = getattr(session, "ledger", session)
        if not callable(getattr(ledger, "reserve", None)):
            raise InvalidParameter("session", type_of(session), "must be a session or a ledger")
        if delta is not None:
            raise InvalidParameter("delta", delta, "is set by the session's budget", "leave it out beside session=")
        if (epsilon is None) == (mu is None):
            raise InvalidParameter("epsilon", epsilon, "or mu must set how much of the budget a fit may spend", SAY)
        budget = ledger.budget
        cost = budget.cost(epsilon=epsilon) if mu is None else budget.cost(mu=mu)
        return cls(budget.accounting.gaussian_mu(cost.units), ledger.unit, ledger, cost)

    @property
    def row_mu(self) -> float:
        """The μ for tables that differ by one row added or removed. A unit has k rows, and a mechanism that is μ/k-GDP
        for one row is μ-GDP for k rows (Dong, Roth & Su 2022, theorem 2.14).
        """
        return float_root_down((Fraction(self.mu) / self.unit.row_changes) ** 2)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that the fit learns."""
        assumptions: tuple[str, ...] = (ROWS,) if self.unit.column is None else (ROWS, PEOPLE)
        if self.ledger is not None:
            assumptions += (DATASET,)
        return Guarantee(curves.gaussian(mu=self.mu), self.unit, assumptions=assumptions)

    def pay(
        self, words: str, learn: Callable[[Purse], dict[str, Any]], *, rehearse: Callable[[Purse], object]
    ) -> dict[str, Any]:
        """Run `learn` and return its result. With a ledger, the cost is reserved before `learn` uses a row, and the
        entry is sealed before the result is returned; a failure stays charged. `rehearse` runs first, without rows,
        and may fail free of charge.
        """
        if self.ledger is None or self.cost is None:
            return learn(GaussianPurse(self.row_mu))
        rehearse(GaussianPurse(self.row_mu))
        question = hashlib.sha256(words.encode()).hexdigest()
        entry: Entry = self.ledger.reserve(self.cost, question=question, description=words)
        try:
            learnt = learn(GaussianPurse(self.row_mu))
            answer = json.dumps(learnt, default=_plain)
        except BaseException:
            self.ledger.fail(entry, "fit")
            raise
        self.ledger.seal(entry, answer.encode())
        return learnt


def _plain(value: Any) -> Any:
    """A learned value for JSON: arrays as lists, an estimator as its learned attributes."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    learnt = {name: each for name, each in getattr(value, "__dict__", {}).items() if name.endswith("_")}
    return learnt or repr(value)
