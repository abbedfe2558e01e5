"""Yes or no: Warner's survey in both forms, ν-randomized response, and RR(p).

::

    TwoCoinSurvey(truth=, yes=)      first coin: answer truthfully; otherwise a second coin answers (PSL 2024)
    WarnerSurvey(p=)                 asked the statement with probability p, its opposite otherwise (Warner 1965)
    NuRandomizedResponse(nu=)        two coins, the second one fair                                 (PSL 2024)
    RandomizedResponse(p=)           keep the answer with probability p, otherwise flip it          (Wang)

These are four parametrisations of one idea: people whose answer is yes report yes with one probability, the others with
a lower one. `estimate` returns the share of yes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from deniable import arguments, curves, noise
from deniable.arguments import INNER_PROBABILITY
from deniable.curves import Curve
from deniable.curves.curve_arguments import exactly_one
from deniable.errors import NOTHING, InvalidParameter
from deniable.local import report_checks
from deniable.local.collector_estimates import Support
from deniable.local.exact_odds import Number, Odds, Rational, exact
from deniable.local.local_protocol import Parameter, SharesProtocol
from deniable.local.report_checks import Ints
from deniable.noise.entropy import checked_entropy

if TYPE_CHECKING:
    from deniable.noise import Entropy

Answers = NDArray[np.bool_]


class BinaryProtocol(SharesProtocol):
    """A protocol for one yes-or-no question. A report is True (yes) or False (no)."""

    __slots__ = ()

    @abstractmethod
    def respond(self, answers: Answers, entropy: Entropy | None) -> Answers:
        """One report for each answer."""

    def randomize(self, answers: Any, *, entropy: Entropy | None = None) -> Any:
        listed, alone = report_checks.yes_or_no("answers", answers)
        reports = self.respond(listed, checked_entropy(entropy))
        return bool(reports[0]) if alone else reports

    def probabilities(self, answer: Any) -> dict[Any, float]:
        """P(no) and P(yes) for a person with this answer.

        >>> RandomizedResponse(p=0.75).probabilities(True)
        {False: 0.25, True: 0.75}
        """
        listed, alone = report_checks.yes_or_no("answer", answer)
        if not alone:
            raise InvalidParameter("answer", NOTHING, "must be one answer")
        no, yes = self._of_each(bool(listed[0]))
        return {False: float(no), True: float(yes)}

    def _of_each(self, answer: bool) -> tuple[Number, Number]:
        """P(no) and P(yes)."""
        yes = self.support.own if answer else self.support.other
        return 1 - yes, yes

    def encode(self, reports: Any) -> list[str]:
        return report_checks.written(reports, 2)

    def count(self, reports: Any) -> tuple[Ints, int]:
        listed, _ = report_checks.yes_or_no("reports", reports)
        return np.asarray(np.count_nonzero(listed), dtype=np.int64), len(listed)


class FlippedAnswer(BinaryProtocol):
    """The answer, or its opposite: kept with probability odds/(odds + 1)."""

    __slots__ = ()
    odds: Odds

    @property
    def support(self) -> Support:
        return Support(1 / (self.odds.number + 1), self.odds.excess / (self.odds.number + 1))

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self.odds.epsilon)

    def _of_each(self, answer: bool) -> tuple[Number, Number]:
        # 1 - own would lose the digits of a small probability.
        return (self.support.other, self.support.own) if answer else (self.support.own, self.support.other)

    def respond(self, answers: Answers, entropy: Entropy | None) -> Answers:
        return np.asarray(answers == self.odds.heads(len(answers), entropy))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class TwoCoinSurvey(BinaryProtocol):
    """With probability `truth` the person answers truthfully; otherwise a second coin says yes with probability `yes`.

    Both lie strictly between 0 and 1. For all answers x, x′ of one person: P(yes | x) = (1 - truth) yes + truth x, so
    the report's likelihood ratio is at most the larger of (yes + truth(1 - yes)) / (yes(1 - truth)) and its mirror
    image in 1 - yes. With two fair coins P(yes | x) = 1/4 + x/2 and ε = ln 3 (Warner 1965, as presented in the slides
    of PSL 2024). The share of yes is (reports/n - (1 - truth) yes) / truth; with fair coins 2 reports/n - 1/2.

    >>> from fractions import Fraction
    >>> survey = TwoCoinSurvey(truth=Fraction(1, 2), yes=Fraction(1, 2))
    >>> round(survey.curve.epsilon(delta=0), 6)
    1.098612
    >>> survey.estimate([True] * 4 + [False] * 6).value
    0.3
    """

    truth: Fraction
    yes: Fraction

    def __init__(self, *, truth: Rational, yes: Rational) -> None:
        object.__setattr__(self, "truth", arguments.rational("truth", truth, INNER_PROBABILITY))
        object.__setattr__(self, "yes", arguments.rational("yes", yes, INNER_PROBABILITY))
        own, other = self._chances()
        Odds(max(own / other, (1 - other) / (1 - own)), Fraction(0)).chosen("truth", truth)

    @property
    def support(self) -> Support:
        return Support((1 - self.truth) * self.yes, self.truth)

    @property
    def curve(self) -> Curve:
        own, other = self._chances()
        if self.yes == Fraction(1, 2):
            return curves.randomized_response(epsilon=Odds(own / other, Fraction(0)).epsilon)
        return curves.from_pmf([float(own), float(1 - own)], [float(other), float(1 - other)])

    def respond(self, answers: Answers, entropy: Entropy | None) -> Answers:
        honest = noise.bernoulli(p=self.truth, size=len(answers), entropy=entropy)
        second = noise.bernoulli(p=self.yes, size=len(answers), entropy=entropy)
        return np.where(honest, answers, second)

    def parameters(self) -> dict[str, Parameter]:
        return {"truth": exact(self.truth), "yes": exact(self.yes)}

    def _chances(self) -> tuple[Fraction, Fraction]:
        """The probabilities of a reported yes: if the answer is yes, and if it is no."""
        other = (1 - self.truth) * self.yes
        return other + self.truth, other


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class WarnerSurvey(BinaryProtocol):
    """A spinner shows the statement with probability `p` and its opposite otherwise; the person says whether the
    statement shown is true of them. Nobody else sees the spinner.

    For all answers x, x′ of one person the report's likelihood ratio is at most max(p, 1-p) / min(p, 1-p): ε =
    |log(p/(1-p))|. The share of people with the property is (p - 1)/(2p - 1) + yes/((2p - 1) n), with variance π(1-π)/n
    + p(1-p)/(n (2p-1)²) over a population (Warner 1965, equations 2 and 4). p may lie below 1/2.

    >>> from fractions import Fraction
    >>> WarnerSurvey(p=Fraction(3, 4)).population_variance(share=Fraction(3, 10), people=1000)
    Fraction(3, 3125)
    """

    p: Fraction

    def __init__(self, *, p: Rational) -> None:
        object.__setattr__(self, "p", arguments.rational("p", p, INNER_PROBABILITY))
        self._odds().chosen("p", p)

    @property
    def support(self) -> Support:
        return Support(1 - max(self.p, 1 - self.p), abs(2 * self.p - 1))

    @property
    def curve(self) -> Curve:
        return curves.randomized_response(epsilon=self._odds().epsilon)

    def respond(self, answers: Answers, entropy: Entropy | None) -> Answers:
        statement = noise.bernoulli(p=self.p, size=len(answers), entropy=entropy)
        return np.asarray(answers == statement)

    def count(self, reports: Any) -> tuple[Ints, int]:
        listed, _ = report_checks.yes_or_no("reports", reports)
        # If the opposite is shown more often, a no supports the property.
        return np.asarray(np.count_nonzero(listed == (2 * self.p > 1)), dtype=np.int64), len(listed)

    def _of_each(self, answer: bool) -> tuple[Number, Number]:
        return (1 - self.p, self.p) if answer else (self.p, 1 - self.p)

    def parameters(self) -> dict[str, Parameter]:
        return {"p": exact(self.p)}

    def _odds(self) -> Odds:
        return Odds(max(self.p, 1 - self.p) / min(self.p, 1 - self.p), Fraction(0))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class NuRandomizedResponse(FlippedAnswer):
    """The truth with probability ν, otherwise a fair coin: P(yes | x) = (1 - ν)/2 + νx.

    For all answers x, x′ of one person: ε = log((1 + ν)/(1 - ν)), so ν = tanh(ε/2). Give ν in (0, 1) or ε. The share of
    yes is yes/(n ν) - (1 - ν)/(2ν), with risk q(1-q)/(n ν²), q = (1-ν)/2 + νθ, over a population and (1 - ν²)/(4 n ν²)
    for the people who answered. (PSL 2024; its slide prints the estimator with 1/(n ν²), which is biased: at ν = 1/2, θ
    = 0.3 its mean is 1.1.)

    >>> NuRandomizedResponse(nu=0.5).estimate([True] * 4 + [False] * 6).value
    0.3
    """

    odds: Odds

    def __init__(self, *, nu: Rational | None = None, epsilon: Rational | None = None) -> None:
        if exactly_one(nu=nu, epsilon=epsilon) == "epsilon":
            odds = Odds.of(epsilon=epsilon)
        else:
            # The report is the truth with probability ν + (1 - ν)/2 = (1 + ν)/2, and otherwise its opposite.
            share = arguments.rational("nu", nu, INNER_PROBABILITY)
            odds = Odds((1 + share) / (1 - share), Fraction(0)).chosen("nu", nu)
        object.__setattr__(self, "odds", odds)

    @property
    def nu(self) -> Fraction | float:
        """The probability of a truthful answer: (odds - 1)/(odds + 1)."""
        return self.support.gap

    def parameters(self) -> dict[str, Parameter]:
        if self.odds.log:
            return {"epsilon": exact(self.odds.log)}
        return {"nu": exact((self.odds.ratio - 1) / (self.odds.ratio + 1))}


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class RandomizedResponse(FlippedAnswer):
    """RR(p): keep the answer with probability p > 1/2, otherwise flip it.

    For all answers x, x′ of one person: ε = log(p/(1-p)), so p = e^ε/(1 + e^ε). Give p or ε. No ε-private channel with
    two answers is better (Kairouz, Oh & Viswanath 2016). Each person's 1/2 + (y - 1/2)/(2p - 1) is unbiased, with
    variance p(1-p)/(2p-1)² = e^ε/(e^ε-1)² whatever the truth.

    >>> RandomizedResponse(epsilon=1.0).variance(share=0.5, people=1)
    0.92067359420779...
    """

    odds: Odds

    def __init__(self, *, p: Rational | None = None, epsilon: Rational | None = None) -> None:
        if exactly_one(p=p, epsilon=epsilon) == "epsilon":
            odds = Odds.of(epsilon=epsilon)
        else:
            keep = arguments.rational("p", p, INNER_PROBABILITY)
            odds = Odds(keep / (1 - keep), Fraction(0)).chosen("p", p)
        object.__setattr__(self, "odds", odds)

    @property
    def p(self) -> Fraction | float:
        """The probability that an answer is kept: odds/(odds + 1)."""
        return self.support.own

    def parameters(self) -> dict[str, Parameter]:
        if self.odds.log:
            return {"epsilon": exact(self.odds.log)}
        return {"p": exact(self.odds.ratio / (self.odds.ratio + 1))}
