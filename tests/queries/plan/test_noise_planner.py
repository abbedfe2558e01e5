"""From questions to noise: what is paid for, that spellings do not matter, and that nothing costs more than it may."""

from __future__ import annotations

from fractions import Fraction

import pytest

from deniable import Budget
from deniable.errors import InvalidParameter, QuestionRefused
from deniable.ledger import Cost
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Table
from deniable.units import Relation, Unit
from tests.queries.hospital import BUDGETS, SCHEMA, UNIT
from tests.wording import worded

TABLES = {"visits": Table("visits", tuple(SCHEMA.items()), UNIT)}
EVERYTHING = (
    "SELECT ward, COUNT(*), COUNT(stay), COUNT(DISTINCT patient_id), COUNT(DISTINCT town), SUM(cost), AVG(cost), VAR_POP(stay), "
    "STDDEV(age), MEDIAN(age), QUANTILE(cost, 0.9), MIN(age), MAX(cost) FROM visits GROUP BY ward"
)


def planned(text: str, unit: Unit = UNIT) -> NoisePlan:
    return plan(parse(text, {"visits": Table("visits", tuple(SCHEMA.items()), unit)}))


@pytest.mark.parametrize("currency", BUDGETS)
@pytest.mark.parametrize(
    "text", [EVERYTHING, "SELECT COUNT(*) FROM visits", "SELECT town, AVG(cost) FROM visits GROUP BY town"]
)
@pytest.mark.parametrize("units", [10**24, 10**27 + 7, 10**30, 3 * 10**31 + 1])
def test_noise_is_never_dearer_than_what_is_charged(currency: str, text: str, units: int) -> None:
    budget = BUDGETS[currency]
    cost = Cost(units, 10**22)
    made = noise(planned(text), budget, cost)
    price = budget.price(made.curve)
    assert price.units <= cost.units
    assert price.units >= cost.units * (1 - 1e-9), "and nothing that matters is wasted"


def test_an_average_is_a_sum_and_a_count_and_shares_them() -> None:
    assert len(planned("SELECT AVG(age) FROM visits").parts) == 2
    assert len(planned("SELECT AVG(age), COUNT(*), STDDEV(age), SUM(age) FROM visits").parts) == 4
    # Where values may be missing, the rows that have one are another count.
    assert len(planned("SELECT AVG(cost), COUNT(*) FROM visits").parts) == 3
    assert len(planned("SELECT MEDIAN(age), MIN(age), MAX(age), QUANTILE(age, 0.9) FROM visits").parts) == 1
    assert sum((part.weight for part in planned(EVERYTHING).parts), Fraction(0)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT AVG(age + stay), VAR_POP(age + stay) FROM visits",
            "SELECT AVG(age + stay), VAR_POP(stay + age) FROM visits",
        ),
        ("SELECT COUNT(*) AS n, AVG(age) AS a FROM visits", "SELECT AVG(v.age) AS b, COUNT(*) AS m FROM visits AS v"),
        ("SELECT SUM(x) FROM (SELECT age AS x FROM visits)", "SELECT SUM(age) FROM visits"),
    ],
)
def test_questions_of_one_hash_have_the_same_parts_in_the_same_order(one: str, other: str) -> None:
    first, second = planned(one), planned(other)
    assert first.question.hash == second.question.hash
    assert [type(part.statistic) for part in first.parts] == [type(part.statistic) for part in second.parts]
    assert [part.moves for part in first.parts] == [part.moves for part in second.parts]
    assert first.uses == second.uses


def test_sensitivities_by_hand() -> None:
    """Three rows of a person, in any wards: by hand from the contract of statistics."""
    by_ward = planned("SELECT ward, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY ward")
    moves = {type(part.statistic).__name__: part.moves for part in by_ward.parts}
    assert (moves["Count"].l1, moves["Count"].l2_squared) == (3, 9)
    steps = 100 // 2**0
    assert (moves["ExactSum"].l1, moves["ExactSum"].l2_squared) == (3 * steps, 9 * steps**2)
    people = planned("SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward").parts[0].moves
    assert (people.l1, people.l2_squared) == (3, 3)
    replaced = Unit(Relation.REPLACE, rows=3, column="patient_id")
    swapped = planned("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", replaced).parts[0].moves
    assert (swapped.l1, swapped.l2_squared) == (6, 18)


def test_keys_that_are_not_public_need_a_delta() -> None:
    made = planned("SELECT town, COUNT(*) FROM visits GROUP BY town")
    with worded(QuestionRefused, code="key"):
        noise(made, Budget.pure(epsilon=1), Cost(10**29))
    assert noise(made, Budget.pure(epsilon=1, delta=1e-6), Cost(10**29, 10**22)).threshold is not None


def test_too_many_noisy_numbers_are_refused_before_anything_runs() -> None:
    with pytest.raises(QuestionRefused, match="noisy numbers"):
        planned("SELECT age, stay, ward, sex, MEDIAN(cost) FROM visits GROUP BY age, stay, ward, sex")


def test_a_cost_that_buys_only_noise_is_refused_in_public_words() -> None:
    with pytest.raises(InvalidParameter, match="pure noise") as refused:
        noise(planned("SELECT SUM(cost) FROM visits"), Budget.pure(epsilon=1), Cost(1))
    assert refused.value.parameter == "cost"
