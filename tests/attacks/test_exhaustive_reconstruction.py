"""All subset sums, and the scoreboard: theorems, closed forms and caps."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from deniable import attacks
from deniable.attacks import BoundedNoise, ExhaustiveReconstruction, Scoreboard
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.local import RandomizedResponse
from deniable.mechanisms import Laplace


@pytest.mark.parametrize("people", [1, 4, 9, 12])
def test_answers_within_e_leave_at_most_4e_bits_wrong(people: int):
    """Noise of every shape within ±E, the worst-case one too: half of the people hidden by answers E off."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    attack = ExhaustiveReconstruction(people=people)
    for _ in range(12):
        bits = rng.integers(0, 2, size=people)
        truth = attack.asked @ bits
        error = float(rng.uniform(0, people / 3))
        shaped = rng.choice([-1.0, 1.0]) * error * np.sign(attack.asked @ rng.normal(size=people))
        for noise in (rng.uniform(-error, error, size=len(truth)), shaped):
            wrong = int(np.count_nonzero(attack.reconstruct(truth + noise) != bits))
            assert wrong <= attack.wrong_bits(error=error), f"seed {seed}"


def test_the_bound_is_met():
    """Two people (1, 0) against (0, 1), each answer the mean of both: E = 1/2 and all of 4E = 2 bits may be wrong."""
    attack = ExhaustiveReconstruction(people=2)
    middle = (attack.asked @ [1, 0] + attack.asked @ [0, 1]) / 2
    assert np.max(np.abs(middle - attack.asked @ [1, 0])) == 0.5
    assert attack.wrong_bits(error=0.5) == 2


@pytest.mark.parametrize("people", [6, 10])
def test_reconstruction_is_the_best_candidate_by_brute_force(people: int):
    """From nine people on, a few questions only bound the disagreement with a candidate."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    attack = ExhaustiveReconstruction(people=people)
    for _ in range(20):
        answers = rng.normal(people / 2, 2, size=2**people)
        worst = np.max(np.abs(attack.asked @ attack.asked.T - answers), axis=1)
        found = attack.reconstruct(answers).astype(int)
        assert np.max(np.abs(attack.asked @ found - answers)) == pytest.approx(worst.min()), f"seed {seed}"


@pytest.mark.slow
def test_sixteen_people_are_searched_too():
    attack = ExhaustiveReconstruction(people=16)
    rng = np.random.default_rng(16)
    bits = rng.integers(0, 2, size=16)
    answers = attack.asked @ bits + rng.integers(-1, 2, size=attack.questions)
    assert np.count_nonzero(attack.reconstruct(answers) != bits) <= 4


def test_small_bounded_noise_gives_everybody_away_and_dp_does_not():
    attack = ExhaustiveReconstruction(people=8)
    assert attack.run(trials=60).rate == 1.0
    assert attack.run(BoundedNoise(most=1), trials=200).rate > 0.9
    behind = attack.run(attack.defences(epsilon=1.0)["Laplace on each answer"], trials=300)
    assert not behind.beats_cap
    assert 0.5 < behind.cap < 0.731  # 256 small releases together tell less than one of their summed ε


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(InvalidParameter, match="2\\*\\*people"):
        ExhaustiveReconstruction(people=17)
    with pytest.raises(InvalidParameter, match="each subset"):
        ExhaustiveReconstruction(people=3).reconstruct([1, 2])


# -- sparse ratings --------------------------------------------------------------------------------------------------

BOARD = Scoreboard(people=300, items=400, known=8, wrong=2, seed=5)


def test_a_handful_of_rough_ratings_finds_a_record():
    assert BOARD.found(trials=300) > 0.85
    blind = Scoreboard(people=300, items=400, known=8, wrong=7, seed=5)
    assert blind.found(trials=300) < 0.5


def test_a_score_counts_rare_items_more():
    items = np.array([0, 399])
    weights = BOARD.weights()
    assert weights[399] > 2 * weights[0]
    rated = np.count_nonzero(BOARD.stars[:, 0])
    assert weights[0] == pytest.approx(1 / np.log(rated + 1))
    person = int(np.flatnonzero((BOARD.stars[:, 0] > 0) & (BOARD.stars[:, 399] == 0))[0])
    scores = BOARD.scores(items, BOARD.stars[person, items].clip(1))
    assert scores[person] == pytest.approx(weights[0])


def test_no_match_is_told_where_nobody_stands_out():
    assert BOARD.matched(np.ones(10)) is None
    assert BOARD.matched(np.array([0.0] * 9 + [1.0])) == 9


def test_linked_secrets_behind_randomized_response_meet_their_cap():
    assert BOARD.run(trials=400).rate > 0.9
    outcome = BOARD.run(RandomizedResponse(epsilon=1.0), trials=1500)
    assert not outcome.beats_cap
    assert outcome.rate > 0.6
    with pytest.raises(InvalidOperation, match="scoreboard"):
        BOARD.run(Laplace(sensitivity=1, epsilon=1.0), trials=1)


def test_both_attacks_are_at_the_door():
    assert {"ExhaustiveReconstruction", "Scoreboard"} <= set(attacks.__all__)
