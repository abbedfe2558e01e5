"""Surveys whose reports are shuffled before the collector sees them: the same estimates, and far more privacy.

The shuffler must be trusted to keep the order secret. It sees only reports, each of which is private by itself. The
curve holds for datasets that differ in one person's answer, if everybody else follows the protocol
(`curves.atoms.shuffled_reports` has the theorem).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from deniable import curves, noise
from deniable.local import binary_responses, categorical_responses, numeric_means
from deniable.local.local_protocol import Protocol
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.local.collector_estimates import Estimate
    from deniable.local.surveys import Design, Survey
    from deniable.noise import Entropy

RESPONSES = (
    binary_responses.RandomizedResponse,
    categorical_responses.KaryRandomizedResponse,
    numeric_means.DuchiMean,
)
"""Protocols that are randomized response. DuchiMean first rounds the answer at random to one of the two bounds. So the
report of an answer between the bounds is a mixture of their reports, and reveals no more (joint convexity)."""


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShuffledSurvey:
    """A survey whose reports are in a random order. A collector behind a shuffler sees nothing else."""

    survey: Survey

    @property
    def design(self) -> Design:
        """The public part of the survey."""
        return self.survey.design

    @property
    def reports(self) -> object:
        """Everybody's reports, in a random order."""
        return self.survey.reports

    def __len__(self) -> int:
        return len(self.survey)

    def __repr__(self) -> str:
        return f"ShuffledSurvey({self.design.question!r}, {self.design.protocol!r}, people={len(self)})"

    @property
    def curve(self) -> Curve:
        """The curve of all shuffled reports together, between datasets that differ in one person's answer."""
        return shuffled_curve(self.design.protocol, people=len(self))

    @property
    def guarantee(self) -> Guarantee:
        """The curve with its unit and its assumptions."""
        return Guarantee(
            self.curve,
            Unit.replaced_row(),
            assumptions=(
                "the shuffler does not tell the order of the reports",
                "everybody follows the protocol",
                "who takes part is public",
            ),
        )

    def estimate(self) -> Estimate:
        """The estimate from all reports: their order does not matter."""
        return self.survey.estimate()


def shuffled_curve(protocol: Protocol, *, people: int) -> Curve:
    """The curve of the shuffled reports of this many people, by the tightest theorem that applies to the protocol."""
    one = protocol.curve
    if isinstance(protocol, RESPONSES):
        return one.shuffled(people=people)
    if (distance := _distance(protocol)) is not None:
        return one.shuffled(people=people, distance=distance)
    return curves.pure(epsilon=one.epsilon(delta=0.0)).shuffled(people=people)


def _distance(protocol: Protocol) -> float | None:
    """The total variation distance of the reports of two answers, if it is the same for all pairs of answers.

    The advantage of the curve is this number, but it is rounded up and has fewer digits near ε = 0.
    """
    match protocol:
        case categorical_responses.SymmetricUnary(odds=odds):
            return float(odds.root().excess / (odds.root().number + 1))
        case categorical_responses.OptimizedUnary(odds=odds):
            return float(odds.excess / (odds.number + 1)) / 2
        case categorical_responses.SubsetSelection(odds=odds, size=w, categories=d):
            return float(odds.excess / (w * odds.number + d - w)) * w * (d - w) / (d - 1)
    return None


def shuffled_reports(done: Survey, entropy: Entropy | None) -> ShuffledSurvey:
    """The survey with its reports in a uniformly random order, from exact random bits."""
    order = noise.permutation(len(done), entropy=entropy)
    return ShuffledSurvey(type(done)(done.design, done.reports[order]))
