"""A membership test finds what its closed form says, and takes nothing else than losses and coins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from deniable import learn
from deniable.errors import InvalidParameter


def test_a_threshold_is_the_one_that_so_many_others_exceed():
    """Against every threshold, one by one."""
    rng = np.random.default_rng(0)
    included = rng.random(300) < 0.5
    losses = rng.exponential(1, 300) - 0.4 * included
    told = learn.membership_test(losses, included, false_alarms=[0.0, 0.03, 0.5, 1.0])
    for each in told.rates:
        possible = [
            np.mean(losses[included] < bar)
            for bar in [*losses, np.inf]
            if np.mean(losses[~included] < bar) <= each.false_alarms
        ]
        assert each.found == max(possible)
        assert each.low <= each.found <= each.high
    assert told.rates[-1].found == 1.0
    assert (told.members, told.others, told.shadows) == (included.sum(), (~included).sum(), 0)


def test_shadow_models_reach_what_two_known_normal_laws_allow():
    """Confidences are normal with another mean for each record, and shifted by d for members: with the means known, the
    best test finds Φ(Φ⁻¹(α) + d). Many shadow models reach nearly that; losses alone do not, as means differ more than
    d. Fixed random numbers; for fresh ones the tolerance is five standard deviations."""
    rng = np.random.default_rng(1)
    count, shadows, shift = 4000, 256, 1.5
    means = rng.normal(0, 4, count)
    included, inside = rng.random(count) < 0.5, rng.random((shadows, count)) < 0.5

    def losses(marks):
        confidence = means + shift * marks + rng.normal(0, 1, marks.shape)
        return np.log1p(np.exp(-confidence))  # -log p of log(p/(1-p))

    told = learn.membership_test(losses(included), included, shadow_losses=losses(inside), shadow_included=inside)
    alone = learn.membership_test(losses(included), included)
    for with_shadows, without in zip(told.rates[1:], alone.rates[1:], strict=True):
        best = norm.cdf(norm.ppf(with_shadows.false_alarms) + shift)
        assert abs(with_shadows.found - best) < 5 * 1.4 / np.sqrt(count / 2)
        assert without.found < best - 0.1
    assert "256 shadow models (LiRA)" in told.describe()
    assert "% found" in str(told)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([0.1, 0.2], [True, False], {"shadow_losses": [[0.1, 0.2]]}), "together"),
        (([0.1, np.nan], [True, False], {}), "finite"),
        (([0.1, 0.2], [1, 0], {}), "True or False"),
        (([0.1, 0.2], [True, True], {}), "at least one member and at least one other"),
        ((["a", "b"], [True, True], {}), "numbers"),
        (([0.1, 0.2], [True, False], {"shadow_losses": [[0.1]], "shadow_included": [[True]]}), "a row for each"),
        (
            ([0.1, 0.2], [True, False], {"shadow_losses": [[0.1, 0.2]] * 3, "shadow_included": [[True, False]] * 3}),
            "at least 2 shadow models",
        ),
    ],
)
def test_wrong_inputs_are_refused_without_a_value_of_the_data(given, words):
    losses, included, more = given
    with pytest.raises(InvalidParameter, match=words) as error:
        learn.membership_test(losses, included, **more)
    assert "0.1" not in str(error.value)
