"""The variance of surveys, and facts about coins seen in reports: what the estimators believe is what the coins do."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from deniable import local, noise

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

FALSE_ALARM = 1e-9
FAIR = local.TwoCoinSurvey(truth=Fraction(1, 2), yes=Fraction(1, 2))


def fits(hits: int, trials: int, p: float) -> bool:
    """Whether so many hits can come from this probability; false alarm 1e-9."""
    return min(binom.cdf(hits, trials, p), binom.sf(hits - 1, trials, p)) > FALSE_ALARM / 2


def test_erratum_the_price_of_two_coins_is_at_least_four_and_has_no_bound() -> None:
    """Var ratio 4q(1-q)/(θ(1-θ)), q = 1/4 + θ/2: 32/7 = 4.571428571429 at 0.3, 4 at 1/2, about 3/(4θ) near 0."""

    def ratio(share: Fraction) -> Fraction:
        return Fraction(FAIR.population_variance(share=share, people=1) / (share * (1 - share)))

    assert float(ratio(Fraction(3, 10))) == pytest.approx(4.571428571429, rel=1e-12)
    assert ratio(Fraction(1, 2)) == 4
    for share in (Fraction(1, 10), Fraction(3, 10), Fraction(9, 10)):
        q = Fraction(1, 4) + share / 2
        assert ratio(share) == 4 * q * (1 - q) / (share * (1 - share)) > 4
    assert ratio(Fraction(1, 10**6)) > 10**5
    assert float(ratio(Fraction(1, 10**6)) * Fraction(4, 3 * 10**6)) == pytest.approx(1, rel=1e-5)
    assert float(ratio(1 - Fraction(1, 10**6)) * Fraction(4, 3 * 10**6)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("protocol", "own"),
    [
        pytest.param(FAIR, 0.75, id="two coins"),
        pytest.param(local.WarnerSurvey(p=Fraction(3, 4)), 0.75, id="Warner"),
        pytest.param(local.NuRandomizedResponse(epsilon=1), (1 + math.tanh(0.5)) / 2, id="nu"),
        pytest.param(local.RandomizedResponse(epsilon=1), 0.731058578630005, id="RR"),
    ],
)
def test_facts_in_two_hundred_thousand_reports(protocol: local.SharesProtocol, own: float) -> None:
    """P(yes | yes) and P(yes | no), false alarm 1e-9; two percent off is rejected."""
    people = 200_000
    yes = protocol.randomize(np.ones(people, dtype=bool), entropy=noise.ReplayEntropy(12))
    no = protocol.randomize(np.zeros(people, dtype=bool), entropy=noise.ReplayEntropy(13))
    assert fits(int(np.sum(yes)), people, own)
    assert fits(int(np.sum(no)), people, 1 - own)
    assert not fits(int(np.sum(yes)), people, own * 0.98)


def test_facts_the_spread_of_estimates_is_the_variance_stated() -> None:
    """2000 surveys of 1000 people with θ = 0.3 drawn at random: variance 0.00096 within seven standard errors."""
    surveys, people = 2000, 1000
    answers = noise.bernoulli(p=Fraction(3, 10), size=surveys * people, entropy=noise.ReplayEntropy(14))
    for protocol in (FAIR, local.NuRandomizedResponse(nu=Fraction(1, 2)), local.RandomizedResponse(p=Fraction(3, 4))):
        reports = protocol.randomize(answers, entropy=noise.ReplayEntropy(15)).reshape(surveys, people)
        found = np.array([protocol.estimate(some).value for some in reports])
        assert protocol.population_variance(share=Fraction(3, 10), people=people) == Fraction(96, 100_000)
        assert abs(found.mean() - 0.3) < 7 * math.sqrt(0.00096 / surveys)
        assert abs(found.var() - 0.00096) < 7 * 0.00096 * math.sqrt(2 / surveys)
        assert abs(found.var() / 4 - 0.00096) > 7 * 0.00096 * math.sqrt(2 / surveys), "1/ν² in place of 1/ν is seen"
