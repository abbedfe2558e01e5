"""Linkage of sparse ratings against a scoreboard written from the paper, and rates by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable import attacks
from deniable.local import RandomizedResponse
from deniable.testing.statistics import lower_bound

MISS = 1e-9


def published(stars: list[list[int]], **changed: float) -> attacks.Scoreboard:
    """The attack on a table of our own."""
    attack = attacks.Scoreboard(people=len(stars), items=len(stars[0]), **changed)  # type: ignore[arg-type]
    object.__setattr__(attack, "stars", np.array(stars))
    return attack


def scoreboard(stars: list[list[int]], known: dict[int, int]) -> list[float]:
    """Narayanan & Shmatikov (2008), section 5: Σ wt(i) e^(-|ρ - ρ'|/ρ₀), ρ₀ = 1.5; log of one more than the raters."""
    scores = []
    for record in stars:
        score = 0.0
        for item, rating in known.items():
            raters = sum(1 for other in stars if other[item])
            if record[item]:
                score += math.exp(-abs(record[item] - rating) / 1.5) / math.log(max(raters, 2) + 1)
        scores.append(score)
    return scores


TABLE = [[5, 0, 3, 0], [5, 1, 0, 0], [4, 0, 0, 2], [0, 0, 0, 5], [5, 0, 3, 0]]


@pytest.mark.parametrize("known", [{0: 5, 2: 3}, {0: 4, 3: 1}, {1: 2}, {3: 5, 2: 1, 0: 1}])
def test_scores_are_those_of_the_paper(known: dict[int, int]) -> None:
    attack = published(TABLE, known=2, wrong=0)
    items, stars = (np.array(list(part)) for part in (known.keys(), known.values()))
    assert attack.scores(items, stars).tolist() == pytest.approx(scoreboard(TABLE, known), rel=1e-12)


def test_a_record_matches_if_it_stands_out_and_twins_never_do() -> None:
    attack = published(TABLE, known=2, wrong=0, margin=1.5)
    scores = np.array(scoreboard(TABLE, {0: 5, 2: 3}))  # records 0 and 4 are the same
    assert attack.matched(scores) is None
    clear = np.array(scoreboard(TABLE, {1: 1, 0: 5}))
    assert clear[1] - np.sort(clear)[-2] >= 1.5 * clear.std()
    assert attack.matched(clear) == 1
    assert attack.matched(np.zeros(5)) is None


def test_the_rate_is_that_of_the_people_who_stand_out() -> None:
    """Everything is known exactly, so that nothing is left to chance: a person is found or not. Who is found tells
    the secret, or what randomized response leaves of it; the others are a coin.
    """
    attack = published(TABLE, known=4, wrong=0, off=0, margin=1.0)
    found = []
    for person, record in enumerate(TABLE):
        scores = np.array(scoreboard(TABLE, {i: r for i, r in enumerate(record) if r}))
        first, second = np.sort(scores)[::-1][:2]
        found.append(first - second >= scores.std() and int(scores.argmax()) == person)
    share = sum(found) / len(found)
    assert 0 < share < 1
    trials = 1000
    reach = math.sqrt(math.log(2 / MISS) / (2 * trials))  # Hoeffding
    assert attack.run(trials=trials).rate == pytest.approx(share + (1 - share) / 2, abs=reach)
    kept = math.exp(1.0) / (1 + math.exp(1.0))
    outcome = attack.run(RandomizedResponse(epsilon=1.0), trials=trials)
    assert outcome.rate == pytest.approx(share * kept + (1 - share) / 2, abs=reach)
    assert lower_bound(round(outcome.rate * trials), trials, miss=MISS) <= kept
