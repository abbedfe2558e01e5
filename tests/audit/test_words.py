"""What a finding says: its sentence, and its event in plain words."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import numpy as np
import pytest

from deniable import audit, curves
from deniable.audit import score_learning, scores, zoo
from deniable.audit.answer_columns import Answers
from deniable.audit.event_search import Event
from deniable.audit.scores import Combined


def test_the_sentence_leads_with_what_breaks() -> None:
    """Refuted at another point of the claim than at δ = 0, where it says no ε."""

    class Moved:
        def many(self, value: float, count: int) -> Any:
            return np.rint((2 * value + np.random.default_rng().normal(0, 1, count)) * 2**20) / 2**20

    found = audit.measure(
        Moved(), neighbours=(0.0, 1.0), claim=curves.gaussian(mu=1.0), trials=20_000, confidence=0.999
    )
    assert found.refuted
    assert found.sentence.startswith("Refuted with confidence 0.999: at ε = ")
    event, tally = found.proof
    assert found.broken is not None
    assert tally.right > math.exp(found.broken[0].epsilon) * tally.wrong
    assert event.words.startswith("guess ")


def test_events_speak_plainly() -> None:
    high, low = Combined.column(), Combined.column().negated()
    assert Event(high, 2.0, -math.inf).words == "guess the first neighbour where the answer is at least 2"
    assert Event(low, 2.0, -3.0).words == (
        "guess the first neighbour where the answer is at most -2, the second where the answer is at least 3"
    )

    def leaky(value: int) -> str:
        return "b" if value and random.random() < 0.2 else "a"

    found = audit.measure(leaky, neighbours=(0, 1), claim=curves.pure(epsilon=1.0), trials=3000, confidence=0.999)
    assert found.event.words == "guess the second neighbour where the answer is 'b'"


@pytest.mark.parametrize(("missing", "name"), [(None, "None"), (math.nan, "nan")], ids=["none", "nan"])
def test_missing_answers_are_called_by_their_name(missing: Any, name: str) -> None:
    """Not by the last binary digit that they have not: of that nothing is said where there is none."""
    first, second = ([missing] * gaps + [i / 7 for i in range(100 - gaps)] for gaps in (20, 70))
    found = score_learning.learn(Answers.of(first), Answers.of(second))
    digits = [score for score in found if isinstance(score, scores.Digits | scores.DigitsRatio)]
    assert len(digits) == 3
    for score in digits:
        assert score.passes(Answers.of([missing, 0.0, 0.5])).tolist() == [True, True, False]
    kinds = [score for score in found if isinstance(score, scores.Outcomes) and score.what == "kinds"]
    assert [Event(score, math.inf, -0.5).words for score in kinds] == [
        f"guess the second neighbour where the answer is {name}"
    ]


def test_dicts_are_spoken_of_by_key() -> None:
    def answers(value: int) -> Answers:
        return Answers.of([{"where": "here", "total": i % 7, "mean": value + i % 3} for i in range(60)])

    words = {score.words for score in score_learning.learn(answers(0), answers(1))}
    assert {
        "the number at 'mean'",
        "the number at 'total'",
        "the number at 'mean' minus the number at 'total'",
    } <= words
    assert not any("number 1" in said for said in words)
    nested = [Answers.of([{"both": [value, i % 3]} for i in range(60)]) for value in (0, 1)]
    words = {score.words for score in score_learning.learn(*nested)}
    assert {"the number at 'both'[0]", "the number at 'both'[1]"} <= words


def test_numbers_of_a_row_are_numbered_from_one() -> None:
    def row(value: int) -> list[float]:
        return [round(5 * value + random.gauss(0, 1), 2), round(random.gauss(0, 1), 2)]

    first, second = ([row(value) for _ in range(500)] for value in (0, 1))
    words = {score.words for score in score_learning.learn(Answers.of(first), Answers.of(second))}
    assert {"number 1", "number 2", "number 1 minus number 2", "the sum of the numbers"} <= words
    assert "the answer" not in words
    assert "the place of the last binary digit of the finest of its numbers" in words
    of_one = score_learning.learn(Answers.of([y[0] for y in first]), Answers.of([y[0] for y in second]))
    assert {"the answer", "the place of the last binary digit"} <= {score.words for score in of_one}


def test_borders_have_no_minus_zero() -> None:
    high, low = Combined.column(), Combined.column().negated()
    assert Event(low, -0.0, 0.0).words.count(" 0") == 2
    for event in (Event(high, -0.0, -0.0), Event(low, 0.0, 0.0), Event(low, -0.0, -0.0)):
        assert "-0" not in event.words
    assert "at least ∞" in Event(high, sys.float_info.max, -math.inf).words


def test_digits_are_told_upright_and_with_what_to_do() -> None:
    places = scores.Digits(-1.0)
    assert Event(places, 54.0, 3.0).words == (
        "guess the first neighbour where the place of the last binary digit is at most -54, the second where the place "
        "of the last binary digit is at least -3"
    )
    ratio = scores.DigitsRatio.learn(np.array([-54.0, -54.0, -53.0]), np.array([-52.0, -52.0, np.inf, np.inf]))
    assert ratio.where(least=0.1) == "the place of the last binary digit is -54"
    assert ratio.where(most=-0.1) == "the place of the last binary digit is -52"
    found = audit.measure(
        zoo.entries["naive float Laplace"].mechanism,
        neighbours=(0.0, 1.0),
        claim=curves.laplace(scale=1),
        trials=20_000,
        confidence=0.999,
    )
    assert found.refuted
    assert "audit rounded answers" in found.proof[0].hint
    assert Event(Combined.column(), 1.0, -math.inf).hint == ""


def test_bins_are_told_as_pieces() -> None:
    """The words hold where the score does, for every answer that was binned."""
    number = Combined.column()
    binned = scores.Binned(
        (number,), (np.array([scores.NO_NUMBER / 2, 1.0, 2.0, 3.0]),), (np.array([-2.0, 1, -2, 1, 1]),)
    )
    assert binned.where(least=1.0) == "the answer is below 1 or at least 2"
    assert binned.where(most=-2.0) == "the answer is no number or at least 1 and below 2"
    answers = Answers.of([None, 0.5, 1.0, 1.9, 2.0, 3.0, 9.0])
    assert Event(binned, 1.0, -2.0).guesses(answers).tolist() == [-1, 1, -1, -1, 1, 1, 1]
    every = scores.Binned((number,), (np.array([scores.NO_NUMBER / 2, 1.0]),), (np.array([-2.0, 1, 1]),))
    assert every.where(least=1.0) == "the answer is any number"
    mixed = scores.Binned((number,), (np.arange(9.0),), (np.tile([1.0, -1.0], 5),))
    assert mixed.where(least=1.0) == "the log-likelihood ratio of the bin of the answer is at least 1"
