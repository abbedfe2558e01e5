"""What one `fit` may spend, where it comes from, and the only way to look at rows: sums of whole numbers with noise.

Every estimator of this room sees its rows through `Purse.sums` alone. A row is turned into a vector of whole numbers
that depends on that row, on public parameters and on answers already released; the vectors are added up exactly; and
the sum gets rounded Gaussian noise, drawn exactly. So the sensitivity is a whole number that can be checked, nothing
hangs on how a float was rounded, and k releases of μ₁, …, μ_k are one of √(μ₁² + … + μ_k²) (Dong, Roth & Su 2022,
corollary 3.3).
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
"""Widest noise, in steps: half of what is sure to fit."""
SAY: Final = "say epsilon= and delta=, or mu=, or session= with one of epsilon= and mu="
ROWS: Final = "the bounds, labels and other arguments were not made from the data"
DATASET: Final = "the rows that were given are rows of the ledger's dataset"
PEOPLE: Final = "nobody owns more of the rows than the unit says"


class PaidSums(ABC):
    """Noisy sums, paid for in advance for a fixed number of releases."""

    __slots__ = ()

    sigma: float
    """The standard deviation of the noise on each number."""

    @abstractmethod
    def release(self, totals: Ints) -> Ints:
        """These exact sums, with noise."""


class Purse(ABC):
    """Where an estimator gets its noise from. `sums` is the only thing it may do with what rows say."""

    __slots__ = ()

    @abstractmethod
    def sums(self, *, share: Fraction, square: int, size: int, times: int = 1) -> PaidSums:
        """Sums of vectors of `size` whole numbers whose squared length is at most `square` for every row, `times`
        releases for this share of μ².

        For all neighbours D, D′ that differ by one row the sums differ by that row's vector, so each release is μ-GDP
        with μ² = share × (all of μ²)/times.
        """

    @abstractmethod
    def level(self, *, share: Fraction) -> float:
        """The μ of a mechanism of another kind, for this share of μ²; rounded down. It is charged."""


@final
class NoisySums(PaidSums):
    """Rounded Gaussian noise, exactly; refuses to be used more often than it was paid for."""

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
    """A level μ, spent in shares of μ². What is asked beyond it is refused, in rational arithmetic."""

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
            raise AssertionError("more was asked than the purse holds")
        return part


# -- where it comes from ---------------------------------------------------------------------------------------------


@final
class LeftBehind:
    """Stands where an estimator's session was before it was pickled. What cannot be charged must not be spent, so a fit
    asks for the session again.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<left behind>"


@final
@dataclass(frozen=True, slots=True)
class FitAccount:
    """Who pays for a fit: nobody but the caller's word, or the ledger of a session."""

    mu: float
    """Between tables that differ by one unit."""
    unit: Unit
    ledger: Ledger | None = None
    cost: Cost | None = None

    @classmethod
    def of(cls, *, epsilon: Any, delta: Any, mu: Any, session: Any) -> FitAccount:
        """The account that these parameters of an estimator mean."""
        if session is not None:
            return cls._of_session(epsilon, delta, mu, session)
        if (epsilon is None) == (mu is None):
            raise InvalidParameter("epsilon", epsilon, "say what may be spent, once" if mu else "is missing", SAY)
        if mu is not None:
            if delta is not None:
                raise InvalidParameter("delta", delta, "goes with epsilon=", "mu= says everything")
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
            remedy = "set_params(session=...) gives it again; in cross-validation, n_jobs=1 or joblib's threads keep it"
            raise InvalidParameter("session", session, "does not travel with a pickled estimator", remedy)
        ledger: Ledger = getattr(session, "ledger", session)
        if not callable(getattr(ledger, "reserve", None)):
            raise InvalidParameter("session", type_of(session), "must be a session or a ledger")
        if delta is not None:
            raise InvalidParameter("delta", delta, "is the budget's to say", "leave it out beside session=")
        if (epsilon is None) == (mu is None):
            raise InvalidParameter("epsilon", epsilon, "say how much of the budget a fit may spend", SAY)
        budget = ledger.budget
        cost = budget.cost(epsilon=epsilon) if mu is None else budget.cost(mu=mu)
        return cls(budget.accounting.gaussian_mu(cost.units), ledger.unit, ledger, cost)

    @property
    def row_mu(self) -> float:
        """What is left for tables that differ by one row added or removed: a unit is k rows, and what is μ/k-GDP for
        one row is μ-GDP for k of them (Dong, Roth & Su 2022, theorem 2.14).
        """
        return float_root_down((Fraction(self.mu) / self.unit.row_changes) ** 2)

    @property
    def guarantee(self) -> Guarantee:
        """What holds for everything learnt."""
        assumptions: tuple[str, ...] = (ROWS,) if self.unit.column is None else (ROWS, PEOPLE)
        if self.ledger is not None:
            assumptions += (DATASET,)
        return Guarantee(curves.gaussian(mu=self.mu), self.unit, assumptions=assumptions)

    def pay(
        self, words: str, learn: Callable[[Purse], dict[str, Any]], *, rehearse: Callable[[Purse], object]
    ) -> dict[str, Any]:
        """What `learn` learns. With a ledger: reserved before it looks at a row, sealed before anyone sees it; what
        fails stays charged. `rehearse` looks at no row, and may fail for free.
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
    """What was learnt, as JSON can say it: arrays as lists, an estimator as what it learnt."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    learnt = {name: each for name, each in getattr(value, "__dict__", {}).items() if name.endswith("_")}
    return learnt or repr(value)
