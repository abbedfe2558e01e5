"""Surveys behind a shuffler: the same reports in another order, and a curve with its unit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable import Unit, curves, local
from deniable.curves.atoms.shuffled_reports import DISTANCE_ERROR, ShuffledAtom
from deniable.local.shuffled_surveys import shuffled_curve

TABLE = {"smokes": ["yes", "no", "no", "no"] * 100, "city": ["a", "b", "c", "d"] * 100}


def test_the_reports_are_the_same_in_another_order() -> None:
    done = local.survey(TABLE, question="city", epsilon=1.0, categories=["a", "b", "c", "d"])
    hidden = done.shuffled()
    assert len(hidden) == 400
    assert not np.array_equal(done.reports, hidden.reports)
    assert np.array_equal(np.sort(done.reports, axis=0), np.sort(hidden.reports, axis=0))
    assert repr(hidden.estimate()) == repr(done.estimate())


def test_the_guarantee_is_for_one_answer_replaced() -> None:
    hidden = local.survey(TABLE, question="smokes", epsilon=1.0).shuffled()
    assert hidden.guarantee.unit == Unit.replaced_row()
    assert hidden.curve == curves.randomized_response(epsilon=1.0).shuffled(people=400)
    assert "the shuffler does not tell the order of the reports" in hidden.guarantee.assumptions
    assert repr(hidden) == "ShuffledSurvey('smokes', RandomizedResponse(epsilon=1.0), people=400)"


@pytest.mark.parametrize(
    "protocol",
    [
        local.KaryRandomizedResponse(categories=5, epsilon=2.0),
        local.SymmetricUnary(categories=5, epsilon=2.0),
        local.OptimizedUnary(categories=5, epsilon=2.0),
        local.SubsetSelection(categories=5, epsilon=2.0),
        local.LocalHashing(categories=5, epsilon=2.0),
        local.DuchiMean(low=0, high=1, epsilon=2.0),
        local.PiecewiseMean(low=0, high=1, epsilon=2.0),
        local.HybridMean(low=0, high=1, epsilon=2.0),
    ],
    ids=lambda protocol: type(protocol).__name__,
)
def test_every_protocol_gains_and_none_beats_its_theorem(protocol: local.Protocol) -> None:
    curve = shuffled_curve(protocol, people=500)
    weakest = curves.pure(epsilon=2.0).shuffled(people=500).epsilon(delta=1e-6)
    assert curve.epsilon(delta=1e-6) <= weakest * (1 + 1e-6)
    assert curve.epsilon(delta=1e-6) < protocol.curve.epsilon(delta=1e-6) / 2


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.01, 0.5, 3.0])
def test_the_distance_of_reports_has_the_digits_that_the_theorem_asks_for(epsilon: float) -> None:
    """The theorem needs their total variation distance itself: no bound on it is enough."""
    distances = {
        local.SymmetricUnary(categories=5, epsilon=epsilon): math.tanh(epsilon / 4),
        local.OptimizedUnary(categories=5, epsilon=epsilon): math.tanh(epsilon / 2) / 2,
        # Sets of 2 of 4: the two answers are told apart by 4 of 6 sets, of weights e, e, 1, 1 out of 3 e + 3.
        local.SubsetSelection(categories=4, epsilon=epsilon, size=2): math.tanh(epsilon / 2) * 2 / 3,
    }
    for protocol, truth in distances.items():
        (atom, _), *_ = shuffled_curve(protocol, people=10).factors
        assert isinstance(atom, ShuffledAtom)
        assert abs(atom.distance / truth - 1) <= DISTANCE_ERROR / 2
