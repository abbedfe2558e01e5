"""Randomized response of a whole table: exact means by enumeration, the price of a row, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable import local
from deniable.errors import InvalidParameter
from tests.wording import worded

WORDS = ["tea", "milk", "water"]
COLUMNS: dict[str, Any] = {
    "smokes": local.RandomizedResponse(p=Fraction(3, 4)),
    "drink": (local.KaryRandomizedResponse(categories=3, odds=3), WORDS),
    "likes": local.WarnerSurvey(p=Fraction(1, 4)),
}
TABLE = local.TableResponse(COLUMNS)
CHANCES: dict[str, Any] = {  # P(report | answer), written from the definitions
    "smokes": lambda y, x: Fraction(3, 4) if y == x else Fraction(1, 4),
    "drink": lambda y, x: Fraction(3, 5) if y == x else Fraction(1, 5),
    "likes": lambda y, x: Fraction(1, 4) if y == x else Fraction(3, 4),
}
ANSWERS: dict[str, list[Any]] = {"smokes": [True, False], "drink": WORDS, "likes": [True, False]}


def rows(names: Any) -> Any:
    return list(itertools.product(*(ANSWERS[name] for name in names)))


@pytest.mark.parametrize("where", [["smokes"], ["drink"], ["likes"], ["smokes", "drink"], list(COLUMNS)])
def test_the_estimate_of_every_conjunction_has_the_truth_as_its_mean(where: list[str]) -> None:
    """Over all reports of all rows: the estimator applied to the exact law of the kernel."""
    names = list(COLUMNS)
    for wanted in rows(where):
        asked = dict(zip(where, wanted, strict=True))
        for truth in rows(names):
            mean = 0.0
            for report in rows(names):
                chance = np.prod([float(CHANCES[n](y, x)) for n, y, x in zip(names, report, truth, strict=True)])
                found = TABLE.estimate({n: [y] for n, y in zip(names, report, strict=True)}, asked)
                mean += chance * found.value
            expected = float(all(truth[names.index(n)] == v for n, v in asked.items()))
            assert mean == pytest.approx(expected, abs=1e-12)


def test_the_price_of_a_row_is_the_product_of_its_columns() -> None:
    by_hand = COLUMNS["smokes"].curve * COLUMNS["drink"][0].curve * COLUMNS["likes"].curve
    assert TABLE.curve == by_hand
    worst = max(
        np.prod(
            [float(CHANCES[n](y, x) / CHANCES[n](y, z)) for n, y, x, z in zip(COLUMNS, report, one, two, strict=True)]
        )
        for report, one, two in itertools.product(rows(COLUMNS), repeat=3)
    )
    assert TABLE.curve.epsilon(delta=0) == pytest.approx(np.log(worst), rel=1e-12)
    assert worst == pytest.approx(27)


def test_a_released_table_has_the_law_of_its_kernel() -> None:
    """60,000 people; six cells of two columns, each within 6.2 deviations: a false alarm once in 10⁸."""
    people = 60_000
    released = TABLE.randomize(
        pd.DataFrame({"smokes": [True] * people, "drink": ["tea"] * people, "likes": [False] * people})
    )
    assert list(released) == list(COLUMNS)
    drinks = np.array(released["drink"])
    for smokes, drink in itertools.product([True, False], WORDS):
        share = np.mean((np.array(released["smokes"]) == smokes) & (drinks == drink))
        chance = float(CHANCES["smokes"](smokes, True) * CHANCES["drink"](drink, "tea"))
        assert abs(share - chance) < 6.2 * np.sqrt(chance * (1 - chance) / people)


def test_estimates_cover_what_is_true_of_a_table() -> None:
    rng = np.random.default_rng(8)
    people = 50_000
    smokes = rng.random(people) < 0.3
    drink = np.where(smokes, "tea", rng.choice(WORDS, people))
    data = {"smokes": smokes, "drink": drink, "likes": rng.random(people) < 0.5}
    found = TABLE.estimate(TABLE.randomize(data), {"smokes": True, "drink": "tea"})
    truth = np.mean(smokes & (drink == "tea"))
    low, high = found.interval(confidence=1 - 1e-9)
    assert low < truth < high
    assert 0 < found.standard_error < found.population_error < 0.05
    assert found.count == pytest.approx(found.value * people)


def test_a_column_without_a_protocol_is_refused_and_so_is_what_is_no_table() -> None:
    good = {"smokes": [True], "drink": ["tea"], "likes": [False]}
    with worded(InvalidParameter, parameter="table"):
        TABLE.randomize({**good, "name": ["Ann"]})
    for wrong in ({"smokes": [True]}, {**good, "drink": ["tea", "milk"]}, [1, 2], "answers.csv"):
        with pytest.raises(InvalidParameter):
            TABLE.randomize(wrong)
    with pytest.raises(InvalidParameter) as refused:
        TABLE.randomize({**good, "drink": ["absinthe"]})
    assert "absinthe" not in str(refused.value)
    for where in ({}, {"name": "Ann"}, "smokes"):
        with pytest.raises(InvalidParameter, match="where"):
            TABLE.estimate(good, where)  # type: ignore[arg-type]
    for columns in (
        {},
        {"age": local.DuchiMean(low=0, high=1, epsilon=1)},
        {"drink": COLUMNS["drink"][0]},
        {3: COLUMNS["smokes"]},
    ):
        with pytest.raises(InvalidParameter, match="columns"):
            local.TableResponse(columns)
