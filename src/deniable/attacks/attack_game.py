"""The game that every attack plays, and its outcome.

In one round, a fair coin decides a person's secret, the curator publishes a release through the defence, and the
attacker guesses the secret. Rounds are independent, so the number of right guesses is binomial, and its Clopper–Pearson
interval is exact for any number of rounds. The coin matters: an inference from facts about people in general (smokers
die earlier) is not a leak, and no mechanism prevents it. A coin can be learned from the release only.

The release has a curve with respect to that person. With even odds, no attacker is right more often than
curve.guess(prior=1/2) = (1 + δ(0))/2, whatever they compute and whatever they know about all other people.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import Curve, curve_arguments
from deniable.curves.curve_display import percent_up
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.local import Protocol
from deniable.mechanisms import Adaptive, Composed, Laplace, Mechanism
from deniable.mechanisms.mechanism import Asked, Processed
from deniable.mechanisms.noise_steps import Additive, noisy_floats
from deniable.numbers import percent
from deniable.testing.statistics import FALSE_ALARM, clopper_pearson, lower_bound

if TYPE_CHECKING:
    from deniable.plots.figure_spec import Figure

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Progress = Callable[[int], None]
"""Called with the number of rounds played since the previous call."""

BLIND: Final = 0.5
"""The probability that a blind guess of a fair coin is right."""

AT_ONCE: Final = 2**19
"""The most numbers in memory at a time."""


@final
@dataclass(frozen=True, slots=True)
class BoundedNoise:
    """Uniform integers from -most … most, added to an answer: a common idea that gives no privacy.

    An answer with bounded error excludes some datasets with certainty, so the only valid curve is "everything is
    revealed" (Dinur & Nissim 2003).
    """

    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", curve_arguments.integer("most", self.most, 0))


Defence = Mechanism | Protocol | BoundedNoise | None
"""None means that exact values are published."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attack: the measured rate of right guesses, with its cap.

    >>> from deniable import curves
    >>> outcome = Outcome("differencing", "Laplace", hits=620, trials=1000, curve=curves.laplace(scale=1))
    >>> outcome.rate, [round(end, 3) for end in outcome.interval]
    (0.62, [0.589, 0.65])
    >>> print(outcome)
    differencing against Laplace: right 62.0 % of the time (95 % sure: 58.9 to 65.1 %). Blind guesses are right
    50 % of the time, and behind this curve nobody is right more often than 69.68 %.
    """

    attack: str
    defence: str
    hits: int
    trials: int
    curve: Curve | None
    """The curve of the release with respect to the person; None without privacy."""
    confidence: float = field(default=0.95, kw_only=True)
    expected: float | None = field(default=None, kw_only=True)
    """The probability of a right guess in closed form, if it is known."""

    @property
    def rate(self) -> float:
        """The share of right guesses."""
        return self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """The Clopper–Pearson confidence interval of the probability of a right guess, valid at any sample size."""
        return clopper_pearson(self.hits, self.trials, confidence=self.confidence)

    @property
    def baseline(self) -> float:
        """The probability that a blind guess is right: 1/2."""
        return BLIND

    @property
    def cap(self) -> float:
        """The probability that the best possible attacker is right, rounded up; 1 without privacy."""
        return 1.0 if self.curve is None else self.curve.guess(prior=BLIND)

    @property
    def beats_cap(self) -> bool:
        """Whether the rounds prove that the attack exceeds the cap, so that the mechanism breaks its guarantee.

        A false alarm has probability at most 10⁻⁹, for any confidence of the interval: an attack may be as good as its
        cap, and a 95 % interval would give false alarms often.
        """
        return bool(lower_bound(self.hits, self.trials, miss=FALSE_ALARM) > self.cap)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        low, high = self.interval
        sure = f"{percent(self.confidence)} % sure: {_down(low)} to {_up(high)} %"
        sentence = f"{self.attack} against {self.defence}: right {100 * self.rate:.1f} % of the time ({sure}). "
        if self.curve is None:
            return sentence + f"Blind guesses are right {100 * BLIND:.0f} % of the time; nothing limits the attacker."
        return sentence + (
            f"Blind guesses are right {100 * BLIND:.0f} % of the time, and behind this curve nobody is right more "
            f"often than {percent_up(self.cap)}."
        )

    @property
    def figure(self) -> Figure:
        """A figure of the measured rate, the blind guess and the cap at every prior."""
        from deniable.attacks import attack_figures

        return attack_figures.one(self)

    def __str__(self) -> str:
        return self.sentence


def _down(share: float) -> str:
    return f"{math.floor(1000 * share) / 10:.1f}"


def _up(share: float) -> str:
    return f"{math.ceil(1000 * share) / 10:.1f}"


class Attack(ABC):
    """One attack on one dataset. `run(defence)` plays the game; without a defence, all answers are exact.

    A subclass is final and implements `_play`, `seen` and `defences`, and `expected` if a closed form is known.
    """

    __slots__ = ()

    NAME: ClassVar[str]
    ROUNDS: ClassVar[int] = 10_000
    """The default number of rounds of a run."""

    def run(
        self,
        defence: Defence = None,
        *,
        trials: int | None = None,
        confidence: float = 0.95,
        progress: Progress | None = None,
    ) -> Outcome:
        """Play `trials` rounds (default `ROUNDS`) and count the right guesses.

        `confidence` is the coverage of the confidence interval of the outcome. Raises `InvalidOperation` or
        `InvalidParameter` for a defence that does not fit this attack.
        """
        rounds = curve_arguments.integer("trials", self.ROUNDS if trials is None else trials, 1)
        sure = curve_arguments.inner_probability("confidence", confidence)
        curve = self.promised(defence)
        chance = np.random.default_rng()  # for secrets, other people and ties; the defence draws its own noise
        play = self._player(defence, chance)
        hits, left = 0, rounds
        while left:
            size = min(left, self._at_once())
            hits += play(size)
            left -= size
            if progress is not None:
                progress(size)
        return Outcome(self.NAME, named(defence), hits, rounds, curve, confidence=sure, expected=self.expected(defence))

    def promised(self, defence: Defence) -> Curve | None:
        """The curve of the whole release with respect to the person's secret; None without privacy."""
        if defence is not None and not isinstance(defence, Mechanism | Protocol | BoundedNoise):
            raise InvalidParameter(
                "defence",
                type_of(defence),
                "must be a mechanism, a protocol of the local model, or None for no privacy",
                "make one with deniable.mechanisms or deniable.local",
            )
        return None if defence is None or isinstance(defence, BoundedNoise) else self.seen(defence)

    def _player(self, defence: Defence, chance: np.random.Generator) -> Callable[[int], int]:
        """A function that plays rounds. An attacker may prepare here, once, so that rounds stay independent."""
        return lambda rounds: self._play(defence, rounds, chance)

    def _at_once(self) -> int:
        return AT_ONCE // 8

    def _refuse(self, defence: object, allowed: str) -> InvalidOperation:
        return InvalidOperation(f"{self.NAME} can be run against {allowed}, not against {type(defence).__name__}")

    @abstractmethod
    def seen(self, defence: Mechanism | Protocol) -> Curve:
        """The curve of everything the attacker sees that depends on the person's secret. Raises if the defence does not
        fit."""

    @abstractmethod
    def defences(self, *, epsilon: float, delta: float | None = None) -> dict[str, Defence]:
        """Name -> a defence that keeps the whole release at this ε. With `delta`, also Gaussian noise at (ε, δ)."""

    def expected(self, defence: Defence) -> float | None:
        """The probability of a right guess in closed form; None if it is not known."""
        return None

    @abstractmethod
    def _play(self, defence: Defence, rounds: int, chance: np.random.Generator) -> int:
        """Play independent rounds. Returns the number of right guesses."""


def named(defence: Defence) -> str:
    """The name of a defence in outcomes."""
    return "no privacy" if defence is None else repr(defence)


# -- what attacks share ----------------------------------------------------------------------------------------------


def moves_by_one(defence: Mechanism, attack: str) -> Mechanism:
    """The mechanism, if its sensitivity is at least 1. Otherwise raise: its curve would not hold, because a person
    changes an answer of the attack by 1.

    Post-processing (`then`) and composition (`*`) are unwrapped down to the noise. A statistic before the noise (`on`)
    is refused, because its sensitivity is not known here. Every other mechanism, including user-defined ones, must have
    an attribute `sensitivity`.
    """
    if isinstance(defence, Processed):
        moves_by_one(defence.mechanism, attack)
    elif isinstance(defence, Composed):
        for part, _ in defence.runs:
            moves_by_one(part, attack)
    elif isinstance(defence, Adaptive):
        raise InvalidOperation(
            f"{attack} needs the sensitivity of the mechanism, which is unknown if a mechanism is chosen adaptively; "
            "give a fixed mechanism"
        )
    elif isinstance(defence, Asked):
        raise InvalidOperation(
            f"{attack} needs to know how far a person moves the statistic; give the mechanism itself, without on()"
        )
    else:
        sensitivity = getattr(defence, "sensitivity", None)
        if not isinstance(sensitivity, int | float | Fraction):
            raise InvalidOperation(
                f"{attack} needs to know how far a person moves an answer of {type(defence).__name__}; give a "
                "mechanism with an attribute sensitivity"
            )
        if not sensitivity >= 1:
            raise InvalidParameter(
                "sensitivity", float(sensitivity), f"must be at least 1: a person moves an answer of {attack} by 1"
            )
        if isinstance(defence, Additive) and defence.dimension not in (None, 1):
            raise InvalidParameter(
                "dimension", defence.dimension, "must be left out: each answer is released separately"
            )
    return defence


def noisy(defence: Defence, answers: Ints, chance: np.random.Generator) -> Floats:
    """Each number released separately through the defence."""
    if defence is None:
        return answers.astype(np.float64)
    if isinstance(defence, BoundedNoise):
        return (answers + chance.integers(-defence.most, defence.most, endpoint=True, size=answers.shape)).astype(float)
    if not isinstance(defence, Mechanism):
        raise InvalidOperation(f"{type(defence).__name__} does not release numbers")
    if isinstance(defence, Additive):
        # Many releases of one number each, with independent noise drawn in one call; `release` takes one at a time.
        drawn = np.asarray(defence.draw(answers.shape, None))
        if defence.exponent is None:
            return np.asarray(answers + drawn, dtype=np.float64)
        return noisy_floats(answers.astype(np.float64), drawn, defence.exponent)
    listed = [defence.release(int(answer)) for answer in answers.ravel()]
    try:
        return np.array([float(one) for one in listed]).reshape(answers.shape)
    except (TypeError, ValueError):
        raise InvalidParameter("defence", NOTHING, "must release a number for a whole number") from None


def coins(rounds: int, chance: np.random.Generator) -> Bits:
    """Random secrets, one for each round."""
    return chance.integers(0, 2, size=rounds).astype(np.bool_)


def right(secrets: Bits, evidence: Floats, chance: np.random.Generator) -> int:
    """How many secrets the sign of the evidence guesses right. Evidence of 0 means a blind guess."""
    guesses = np.where(evidence == 0, chance.integers(0, 2, size=len(evidence)) == 1, evidence > 0)
    return int(np.count_nonzero(guesses == secrets))


def share_of(epsilon: float, parts: int) -> Laplace:
    """Laplace noise for one of `parts` answers that share ε."""
    return Laplace(sensitivity=1.0, epsilon=curve_arguments.positive("epsilon", epsilon) / parts)


def gaussian_share(epsilon: float, delta: float, parts: int) -> Mechanism:
    """Gaussian noise for one of `parts` answers that share (ε, δ): μ = √parts/σ, exactly."""
    from deniable.mechanisms import Gaussian
    from deniable.mechanisms.additive_noise import gaussian_mu

    mu = gaussian_mu(
        curve_arguments.not_negative("epsilon", epsilon), curve_arguments.inner_probability("delta", delta)
    )
    return Gaussian(sensitivity=1.0, sigma=math.sqrt(parts) / mu)


def laplace_sum_tail(count: int, x: float) -> float:
    """P(S > x) for the sum S of `count` Laplace variables of scale 1, x >= 0.

    S = G - G′ with gamma variables of shape k. Expanding P(G > x + g) = e^-(x+g) Σ_(j<k) (x+g)^j/j! and integrating
    over g gives Σ_(l<k) Poisson(l; x) P(NB(k, 1/2) <= k-1-l), where the last factor is the incomplete beta function
    I_½(k, k-l). For k = 2 the result is (1 + x/2) e^-x / 2.

    >>> round(2 * laplace_sum_tail(2, 0.5), 12) == round((1 + 0.25) * math.exp(-0.5), 12)
    True
    """
    from scipy.special import betainc, gammaln, xlogy

    k = np.arange(count)
    return float(np.sum(np.exp(xlogy(k, x) - x - gammaln(k + 1)) * betainc(count, count - k, 0.5)))


def normal_cdf(x: Any) -> Any:
    """Φ(x), of a number or an array."""
    from scipy.special import ndtr

    return ndtr(x)


# -- several outcomes ------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Theory:
    """The cap, and the closed form if there is one, as functions of the number of a sweep."""

    x: tuple[float, ...]
    cap: tuple[float, ...]
    expected: tuple[float, ...] | None


@final
@dataclass(frozen=True, slots=True)
class Sweep:
    """Outcomes as a function of one number (ε, the number of answers, ...), for several defences by name."""

    attack: str
    label: str
    """The name of the number."""
    series: Mapping[str, Mapping[float, Outcome]]
    work_out: Callable[[], Mapping[str, Theory]] = field(repr=False, compare=False)
    """Computes the theory on demand: it may cost more than the rounds, and only figures need it."""
    bare: Outcome | None = None
    """The outcome without privacy."""

    @property
    def theory(self) -> Mapping[str, Theory]:
        """Caps and closed forms by the name of the defence."""
        return self.work_out()

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes with a defence."""
        return tuple(outcome for one in self.series.values() for outcome in one.values())

    @property
    def figure(self) -> Figure:
        """A figure of measured rates with confidence intervals, closed forms and caps."""
        from deniable.attacks import attack_figures

        return attack_figures.several(self)


def sweep(
    attack: Attack,
    *,
    epsilon: Any,
    delta: float | None = None,
    trials: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Sweep:
    """Run an attack without privacy, and against its usual defences at each of these ε.

    `epsilon` is a number or a list of different numbers; with `delta`, Gaussian noise is among the defences. `trials`
    and `confidence` apply to each run.
    """
    if not isinstance(attack, Attack):
        raise InvalidParameter("attack", attack, "must be an attack", "such as attacks.Differencing(people=1000)")
    levels = sorted(_levels(epsilon))
    series: dict[str, dict[float, Outcome]] = {}
    bare = attack.run(trials=trials, confidence=confidence, progress=progress)
    for level in levels:
        for name, defence in attack.defences(epsilon=level, delta=delta).items():
            outcome = attack.run(defence, trials=trials, confidence=confidence, progress=progress)
            series.setdefault(name, {})[level] = outcome

    @cache
    def theory() -> dict[str, Theory]:
        low = _beyond(attack, levels[0], levels[0] / 1.5, delta)
        high = _beyond(attack, levels[-1], levels[-1] * 1.5, delta)
        between = np.geomspace(low, high, POINTS).tolist()
        grid = [attack.defences(epsilon=level, delta=delta) for level in between]
        return {name: theory_of(attack, between, [made[name] for made in grid]) for name in series}

    return Sweep(attack.NAME, "ε", series, theory, bare)


POINTS: Final = 41
"""Number of points at which a sweep's caps and closed forms are computed."""


def _beyond(attack: Attack, level: float, wished: float, delta: float | None) -> float:
    """The end of the lines in a figure: `wished`, slightly beyond the last ε, if there are defences for it."""
    try:
        attack.defences(epsilon=wished, delta=delta)
    except InvalidParameter:
        return level
    return wished


def theory_of(attack: Attack, places: Sequence[float], defences: Sequence[Defence]) -> Theory:
    """Caps and closed forms of one attack against each of these defences."""
    curves = [attack.promised(defence) for defence in defences]
    known = [attack.expected(defence) for defence in defences]
    return Theory(
        tuple(places),
        tuple(1.0 if curve is None else curve.guess(prior=BLIND) for curve in curves),
        None if None in known else tuple(one for one in known if one is not None),
    )


def _levels(epsilon: Any) -> list[float]:
    listed = list(epsilon) if isinstance(epsilon, Iterable) and not isinstance(epsilon, str | bytes) else [epsilon]
    if not listed:
        raise InvalidParameter("epsilon", listed, "must not be empty", "give at least one number")
    levels = [curve_arguments.positive("epsilon", level) for level in listed]
    if len(set(levels)) != len(levels):
        raise InvalidParameter("epsilon", epsilon, "must not contain the same ε twice")
    return levels


def rounds_of(attack: Attack, *, epsilon: Any, delta: float | None = None, trials: int | None = None) -> int:
    """The total number of rounds that `sweep` will play, for a progress bar."""
    runs = 1 + sum(len(attack.defences(epsilon=level, delta=delta)) for level in _levels(epsilon))
    return runs * (attack.ROUNDS if trials is None else trials)
