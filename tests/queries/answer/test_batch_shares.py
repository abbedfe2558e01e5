"""Batches: all or nothing, one cost shared, and answers that help each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, EngineFailed, InvalidParameter, QuestionRefused
from deniable.ledger.entries import State
from deniable.queries.answer import batch_shares
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.plan.disjointness import disjoint
from deniable.queries.plan.noise_planner import plan
from deniable.queries.relations.exact_statistics import Collect, Count
from deniable.queries.relations.relation_nodes import Bound, Exact, FilterRows, PerPerson, RelationNode, Source
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.synth import residual_noise
from deniable.tables.expressions import Column, Literal, call, col
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table
from deniable.units import Relation as Neighbours
from tests.queries.hospital import BUDGETS, opened, visits
from tests.queries.plans import Chooser, possible
from tests.queries.test_sensitivity import by_hand, distance

COARSE = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
FINE = "SELECT sex, ward, COUNT(*) AS n FROM visits GROUP BY sex, ward"
TOTAL = "SELECT COUNT(*) AS n FROM visits"


class FailsAt(DuckDBEngine):
    """Fails at the k-th question."""

    def __init__(self, last: int, code: str) -> None:
        super().__init__()
        self.left, self.code = last, code

    def collect(self, question: Collect) -> Any:
        self.left -= 1
        if self.left == 0:
            raise EngineFailed(self.code)
        return super().collect(question)


def test_a_batch_costs_what_was_said_and_answers_in_order() -> None:
    with opened() as s:
        answers = s.batch([TOTAL, COARSE, FINE, "SELECT AVG(age) AS a FROM visits"], mu=1)
        assert [answer.columns for answer in answers] == [("n",), ("ward", "n"), ("sex", "ward", "n"), ("a",)]
        cost = s.budget.cost(mu=1)
        assert cost.units - 4 <= s.ledger.charged.units <= cost.units


def test_a_batch_that_does_not_fit_is_not_begun() -> None:
    with opened(budget=dn.Budget.pure(epsilon=1)) as s:
        with pytest.raises(BudgetExceeded):
            s.batch([TOTAL, COARSE], epsilon=1.5)
        assert s.ledger.charged.units == 0
        assert list(s.ledger.entries()) == []


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_part_of_a_batch_that_fails_is_answered_as_if_nobody_were_there(last: int) -> None:
    with opened(engine=FailsAt(last, "time")) as s:
        answers = s.batch(
            ["SELECT COUNT(*) AS n FROM visits WHERE age > 10", "SELECT COUNT(stay) AS n FROM visits", TOTAL], mu=600
        )
        assert [answer.value > 1000 for answer in answers] == [at != last for at in (1, 2, 3)]
        states = [entry.state for entry in s.ledger.entries()]
        assert states == [State.RESERVED] * 3 + [State.SEALED] * 3
        assert [(each.entry, each.code) for each in s.failures] == [(last, "time")]


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_batch_whose_source_is_gone_gives_nothing_and_stays_charged(last: int) -> None:
    apart = ["SELECT COUNT(*) AS n FROM visits WHERE age > 10", "SELECT COUNT(stay) AS n FROM visits", TOTAL]
    with opened(engine=FailsAt(last, "source")) as s:
        with pytest.raises(EngineFailed):
            s.batch(apart if last > 1 else [TOTAL, COARSE, FINE], mu=1)
        states = [entry.state for entry in s.ledger.entries()]
        assert states == [State.RESERVED] * 3 + [State.FAILED] * 3
        assert s.ledger.charged.units > 0
        s.ledger.verify()


def test_a_question_is_asked_once_however_often_it_stands_there() -> None:
    with opened() as s:
        one, two = s.batch([COARSE, "SELECT COUNT(*) AS m, ward AS w FROM visits GROUP BY ward"], mu=1)
        assert one["n"] == two["m"]
        assert sum(entry.state is State.SEALED for entry in s.ledger.entries()) == 1
        spent = s.ledger.charged
        [again] = s.batch([COARSE], mu=0.5)
        assert again.receipt.replayed
        assert again.rows == one.rows
        assert s.ledger.charged == spent


@pytest.mark.slow
def test_a_batch_in_which_nothing_is_new_is_answered_for_nothing() -> None:
    with opened() as s:
        first = s.batch([TOTAL, COARSE], mu=1)
        charged = s.ledger.charged
        again = s.batch([COARSE, TOTAL], mu=1)
        assert [answer.rows for answer in again] == [first[1].rows, first[0].rows]
        assert s.ledger.charged == charged


def test_finer_counts_help_coarser_ones() -> None:
    """Errors of 120 batches: the coarse counts are nearer than their own share alone would make them, by the factor that
    their intervals claim, within 24 % (360 squares; 1/√720 = 3.7 % is one deviation). The fine ones pay for it a little,
    and together both are nearer than two questions asked apart.
    """
    table = visits()
    with opened(table, unit=dn.Unit.person("patient_id", rows=1000)) as s:
        truth = table.groupby("ward").size()
        coarse = []
        for age in range(120):
            where = f"FROM visits WHERE age > -{age + 1}"
            few, many = s.batch([COARSE.replace("FROM visits", where), FINE.replace("FROM visits", where)], mu=3)
            coarse += [value - truth[ward] for ward, value in zip(few["ward"], few["n"], strict=True)]
        half = few.interval("n")[0][1] - few["n"][0]  # type: ignore[index, operator]
        claimed = half / 1.959964
        alone = 1000 / 3 * np.sqrt(2)
        fine = (many.interval("n")[0][1] - many["n"][0]) / 1.959964  # type: ignore[index, operator]
        assert abs(np.sqrt(np.mean(np.square(coarse))) / claimed - 1) < 0.24
        assert claimed**2 + fine**2 < 0.92 * 2 * alone**2
        assert few.guarantee.curve.gdp() > s.budget.curve(few.receipt.cost).gdp(), "it rests on both answers"


def test_only_sums_that_miss_no_row_help() -> None:
    with opened() as s:

        def helps(*texts: str) -> int:
            return len(batch_shares.shares([plan(parse(text, s.tables)) for text in texts])[1])

        assert helps(COARSE, FINE) == 1
        assert helps(TOTAL, COARSE, FINE) == 2
        assert helps(COARSE, FINE.replace("FROM visits", "FROM visits WHERE age > 3")) == 0
        assert helps(COARSE, FINE.replace("COUNT(*)", "COUNT(cost)")) == 0
        assert helps(COARSE, "SELECT ward, town, COUNT(*) AS n FROM visits GROUP BY ward, town") == 0
        assert helps(COARSE, COARSE.replace("ward", "sex")) == 0
        part = s.table("visits").group_by("ward", "sex").with_keys(sex=["f"]).agg(n=dn.count())
        assert len(batch_shares.shares([plan(parse(COARSE, s.tables)), plan(part)])[1]) == 0


GATHERED = "(SELECT patient_id, ward, COUNT(*) AS many FROM visits GROUP BY patient_id, ward) AS u"
BY_MANY = f"SELECT ward, CASE WHEN many > 1 THEN 'yes' ELSE 'no' END AS more, COUNT(*) AS n FROM {GATHERED} GROUP BY ward, more"
BY_WARD = f"SELECT ward, COUNT(*) AS n FROM {GATHERED} GROUP BY ward"


def test_tables_of_gathered_rows_are_measured_apart_and_help_each_other() -> None:
    """A person has one row in each ward, so a table moves by √3 and not by 3: residuals would cost more. The finer one
    helps, and with fair weights nobody pays for that.
    """
    with opened(unit=dn.Unit.person("patient_id", rows=3)) as s:
        price, fair = s.price_batch([BY_MANY, BY_WARD], mu=1), s.price_batch([BY_MANY, BY_WARD], mu=1, weights="fair")
        assert [each.is_together for each in price.tables] == [False, False]
        assert price[0].cost.units > price[1].cost.units
        assert fair[0].cost.units == pytest.approx(fair[1].cost.units, abs=2)
        _, coarse = s.batch([BY_MANY, BY_WARD], mu=1)
        assert coarse.released.precision.units > price[1].cost.units, "merged with the sums of the finer one"
        assert len(coarse.released.measured) == 2
        s.ledger.verify()


@pytest.mark.parametrize(
    "texts", [[COARSE, FINE], [TOTAL, COARSE, FINE], [COARSE, FINE, "SELECT AVG(cost) FROM visits"]]
)
def test_shares_are_all_there_is(texts: list[str]) -> None:
    with opened() as s:
        shares, _ = batch_shares.shares([plan(parse(text, s.tables)) for text in texts])
        assert sum(shares) == 1
        assert all(share > 0 for share in shares)


YOUNG, OLD, NO_AGE = (
    f"SELECT COUNT(*) AS n, AVG(cost) AS c FROM visits WHERE {c}" for c in ("age < 30", "age >= 30", "age IS NULL")
)


def charged(s: Session, *texts: str, **cost: float) -> int:
    before = s.ledger.charged.units
    s.batch(texts, **cost)
    return s.ledger.charged.units - before


@pytest.mark.parametrize("kind", BUDGETS)
def test_disjoint_questions_cost_what_one_of_them_costs(kind: str) -> None:
    """And each is answered with the noise of the whole cost."""
    asked: dict[str, float] = {"epsilon": 1} if kind == "pure" else {"mu": 1} if kind == "gaussian" else {"rho": 1}
    with opened(budget=BUDGETS[kind]) as s:
        whole = s.budget.cost(**asked).units  # type: ignore[arg-type]
        answers = s.batch([YOUNG, OLD, NO_AGE], **asked)
        assert s.ledger.charged.units == whole
        alone = s.price(YOUNG, **asked)
        for answer in answers:
            assert answer.released.cost == alone.cost
            assert answer.guarantee.curve.epsilon(delta=1e-6) <= alone.curve.epsilon(delta=1e-6)
        assert [each.receipt.replayed for each in s.batch([YOUNG, OLD], **asked)] == [True, True]
        assert s.ledger.charged.units == whole
        s.ledger.verify()


def test_what_is_not_disjoint_is_paid_for_each() -> None:
    """Overlapping rows; people who may be in both parts; people who are replaced, and so move twice."""
    people = [f"SELECT COUNT(DISTINCT patient_id) AS n FROM visits WHERE age {c}" for c in ("< 30", ">= 30")]
    overlap = [YOUNG, "SELECT COUNT(*) AS n FROM visits WHERE age < 50"]
    with opened() as s:
        for texts in (people, overlap):
            answers = s.batch(texts, mu=1)
            assert sum(answer.released.cost.units for answer in answers) <= s.budget.cost(mu=1).units
        by_town = [text.replace("COUNT", "town, COUNT") + " GROUP BY town" for text in people]
        groups = batch_shares.parallel([plan(parse(text, s.tables)) for text in by_town])
        assert groups == [(0, 1)], "of keys without end, each row of a person may count in a group of its own"
    with opened(unit=dn.Unit.replaced_person("patient_id", rows=3)) as s:
        assert batch_shares.parallel([plan(parse(text, s.tables)) for text in (YOUNG, OLD)]) == [(0,), (1,)]


def test_disjoint_questions_that_were_asked_before_leave_the_rest_to_pay() -> None:
    with opened() as s:
        s.sql(YOUNG, mu=2)
        assert charged(s, YOUNG, OLD, mu=1) == s.budget.cost(mu=1).units


def test_disjoint_questions_pay_for_their_keys_each() -> None:
    """The δ of keys that are not public is a chance of failing, and two chances add up."""
    by_town = [text.replace("COUNT", "town, COUNT") + " GROUP BY town" for text in (YOUNG, OLD)]
    with opened() as s:
        alone = s.price(by_town[0], mu=1, delta=1e-5).cost
        s.batch(by_town, mu=1, delta=1e-5)
        assert alone.delta_units > 0
        assert s.ledger.charged.delta_units == 2 * alone.delta_units


@pytest.mark.slow
def test_all_parts_together_move_no_further_than_one_may() -> None:
    """The joint claim by search: Σ of what n_i rows move, over what each part's noise was made for, is at most 1. Without
    the rule about people and bounds it is found to be more.
    """
    assert most_moved(batch_shares.shares_out, 1000) == 1
    assert most_moved(lambda collect: True, 1000) > 1


def test_rows_that_count_for_more_than_their_share_are_paid_for_each() -> None:
    """Two cases that chance hardly meets; the second numbers are what the other part may move meanwhile."""
    table = Table.of("t", dn.Unit.person("who", rows=3), ward=dn.Domain.text("A", "B"), n=dn.Domain.integer(0, 9))
    gathered = PerPerson(Source(table), (("ward", col("ward")),), (("k", Exact("count", None)),))
    by_ward = Collect(gathered, (("ward", col("ward")),), (("A",),), (Count(),))
    assert by_ward.moves(Neighbours.ADD_REMOVE)[0].l1 == 1  # one row moves all of it, and two move 2/3 of COUNT(*)
    assert not batch_shares.shares_out(by_ward)
    bound = Collect(Bound(Source(table), (col("n"),), 2, 2), (("n", col("n")),), None, (Count(),))
    assert bound.moves(Neighbours.ADD_REMOVE)[0].l2_squared == 5  # two rows move 4/5, and one moves 1/3 of the people
    assert not batch_shares.shares_out(bound)
    assert batch_shares.shares_out(Collect(Source(table), (("n", col("n")),), None, (Count(),)))


def grouped(chooser: Chooser, chance: random.Random, part: RelationNode, base: RelationNode) -> Collect:
    """A statistic of a part, in groups of its own: often those by which its base bounds or gathers."""
    keys = tuple(chooser.key(base) for _ in range(chance.choice([0, 1])))
    if isinstance(base, Bound) and chance.random() < 0.5:
        keys = base.keys
    elif isinstance(base, PerPerson) and base.keys and chance.random() < 0.5:
        keys = tuple(Column(name) for name, _ in base.keys)
    known = None
    if keys and chance.random() < 0.5:
        known = tuple(product(*(possible(key, base) for key in keys)))[: chance.choice([1, 2, 100])]
    named = tuple((f"k{i}", key) for i, key in enumerate(keys))
    return Collect(part, named, known, (chooser.statistic(part),))


def most_moved(shares_out: Callable[[Collect], bool], tries: int) -> Fraction:
    chance, most = random.Random(3), Fraction(0)
    for _ in range(tries):
        chooser = Chooser(chance.choice, (0, 1))
        world = chooser.world()
        if world.neighbours is not Neighbours.ADD_REMOVE:
            continue
        try:
            base = chooser.relation(world, chance.choice([0, 1]))
        except QuestionRefused:  # such as the average of texts
            continue
        if chance.random() < 0.3:
            base = Bound(base, (chooser.key(base),), 2, chance.choice([1, 2]))
        value, edge = chooser.expression(Kind.INTEGER, base.columns, 0), Literal(chance.choice([0, 1]))
        value = call("coalesce", value) if isinstance(value, Literal) else value
        parts = [FilterRows(base, call("lt", value, edge)), FilterRows(base, call("ge", value, edge))]
        if not disjoint(parts):
            continue
        try:
            asked = [grouped(chooser, chance, part, base) for part in parts]
        except QuestionRefused:
            continue
        if not all(shares_out(each) for each in asked):
            continue
        here, there = (by_hand(world, changed, chance.shuffle) for changed in (world.here, world.there))
        for norm in ("l1", "l2_squared"):
            moved = Fraction(0)
            for each in asked:
                [claim], [true] = each.moves(world.neighbours), distance(each, here, there)
                moved += Fraction(getattr(true, norm), getattr(claim, norm))
            most = max(most, moved)
    return most


@pytest.mark.parametrize("measure", ["COUNT(*)", "SUM(age)"])
def test_parts_add_up_to_their_totals_if_asked_to(measure: str) -> None:
    coarse, fine = (text.replace("COUNT(*)", measure) for text in (COARSE, FINE))
    with opened() as s:
        rough = s.sql(TOTAL.replace("COUNT(*)", measure), mu=0.001)  # later it would be read off the finer answers
        few, many = s.batch([coarse, fine], mu=0.1)
        fitted = many.adding_up_to(few)
        for ward, total in zip(few["ward"], few["n"], strict=True):
            parts = [row["n"] for row in fitted if row["ward"] == ward]
            assert sum(parts) == pytest.approx(total)  # type: ignore[arg-type]
        assert "add up" in str(fitted)
        assert "add up" in fitted.to_dict()["adjusted"]
        assert many.adjusted == ""
        assert fitted.guarantee.curve.gdp() >= many.guarantee.curve.gdp(), "it rests on both answers"
        width, before = (each.interval("n")[0][1] - each.interval("n")[0][0] for each in (fitted, many))  # type: ignore[index]
        assert 0.7 * before < width < 1.01 * before, "each part knows a little more by the total"
        wide = many.adding_up_to(rough).interval("n")[0]
        assert wide[1] - wide[0] > 3 * before, "a rough total makes rough parts, and says so"  # type: ignore[index]
        for other in (many, s.sql("SELECT sex, COUNT(*) AS n FROM visits WHERE age > 3 GROUP BY sex", mu=1), None):
            with pytest.raises(InvalidParameter, match="total"):
                few.adding_up_to(other)  # type: ignore[arg-type]


@pytest.mark.slow
def test_least_squares_has_the_noise_it_claims() -> None:
    """Errors of 150 fits (900 cells of equal noise): their mean square over the claimed variance is below 1 + 8/√450, the
    claim is an upper bound; and above 0.4, for a claim that is of the right size (the fit keeps at least half).
    """
    table = visits()
    truth = table.groupby(["sex", "ward"]).size()
    with opened(table, unit=dn.Unit.person("patient_id", rows=1000)) as s:
        squares = []
        for age in range(150):
            where = f"FROM visits WHERE age > -{age + 1}"
            few, many = s.batch([COARSE.replace("FROM visits", where), FINE.replace("FROM visits", where)], mu=3)
            fitted = many.adding_up_to(few)
            squares += [(row["n"] - truth[row["sex"], row["ward"]]) ** 2 for row in fitted]  # type: ignore[operator, index]
        claimed = ((fitted.interval("n")[0][1] - fitted["n"][0]) / 1.959964) ** 2  # type: ignore[index, operator]
        assert 0.4 < np.mean(squares) / claimed < 1 + 8 / np.sqrt(450)


def test_what_is_no_batch() -> None:
    with opened() as s:
        for questions in ([], COARSE):
            with pytest.raises(InvalidParameter, match="list"):
                s.batch(questions, mu=1)
        with pytest.raises(InvalidParameter, match="exactly one"):
            s.batch([COARSE], within=12, mu=1)
        assert s.ledger.charged.units == 0


def test_numbers_that_were_moved_to_add_up_are_not_taken_for_single_draws() -> None:
    """Where nearly all noise is 0, a draw's own interval is a point; what was moved by others' noise needs more room."""
    with opened(budget=BUDGETS["pure"]) as s:
        total, parts = (s.sql(text, epsilon=12) for text in (
            "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
            "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex",
        ))  # fmt: skip
        assert len(set(parts.interval("n")[0])) == 1
        moved = parts.adding_up_to(total)
        [low, high] = moved.interval("n")[0]
        # Of two sexes and their total one is noise with a chance of 10 %, and that moves both by a half.
        assert high - low >= 1


def test_the_least_cost_of_many_tables_was_worked_out_from_the_start_in_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A price is free: 100 tables took ten seconds of everybody's time, and did not wait for their turn."""
    counted, told = Counter[str](), list[int]()

    def counting(name: str, work: Any) -> Any:
        def counts(*given: Any) -> Any:
            counted[name] += 1
            return work(*given)

        return counts

    data = pd.DataFrame({f"c{i}": [i % 2, 1, 0, 1] for i in range(5)})
    schema = {f"c{i}": dn.Domain.integer(0, 1, nullable=False) for i in range(5)}
    names = [each for many in (1, 2, 3) for each in combinations(schema, many)]
    asked = [f"SELECT {', '.join(each)}, COUNT(*) AS n FROM t GROUP BY {', '.join(each)}" for each in names]
    budget = dn.Budget(epsilon=10, delta=1e-6)
    with dn.session({"t": data}, unit=dn.Unit.row(), schema=schema, budget=budget) as opened:
        opened.limit_answers(cells=10**6, admits=told.append)
        monkeypatch.setattr(residual_noise, "moved_by_row", counting("moved", residual_noise.moved_by_row))
        opened.price_batch(asked, within=50.0)
    assert counted["moved"] < 60 * len(asked)
    assert max(told) >= len(asked) ** 2


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("within", [20_000, 1_000_000])
def test_a_table_without_a_target_costs_hardly_anything(kind: str, within: float) -> None:
    """Of sums of a real column, whose targets are counted in tiny steps. The table with a target, asked by itself, costs
    nearly as much as both.
    """
    tables = [f"SELECT {key}, SUM(cost) AS n FROM visits GROUP BY {key}" for key in ("sex", "ward")]
    with opened(budget=BUDGETS[kind]) as s:
        alone = s.price(tables[1], within=within).cost.units
        assert alone * 0.98 <= s.price_batch(tables, within=[None, within]).cost.units <= 1.05 * alone
