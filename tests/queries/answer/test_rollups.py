"""Roll-ups: sums of noisy cells are free, and their intervals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import deniable as dn
from deniable.errors import InvalidParameter, QuestionRefused
from tests.queries.answer.test_batch_shares import COARSE, FINE, TOTAL
from tests.queries.answer.test_joint_tables import COSTS, TABLES, summed
from tests.queries.hospital import BUDGETS, opened, visits
from tests.wording import worded

MORE = {name: {unit: amount * 50 for unit, amount in cost.items()} for name, cost in COSTS.items()}


@pytest.mark.parametrize("kind", BUDGETS)
def test_an_answer_is_rolled_up_for_nothing(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        fine = s.sql(FINE, **COSTS[kind])
        charged = s.ledger.charged
        for keys in (("ward",), ("sex",), ("ward", "sex"), ()):
            rolled = fine.rollup(*keys)
            of = summed(fine, tuple(key for key in ("sex", "ward") if key in keys))
            for row in rolled:
                assert row["n"] == of[tuple(row[key] for key in ("sex", "ward") if key in keys)]
            assert rolled.guarantee == fine.guarantee
        assert "sums" in fine.rollup("ward").adjusted
        twice = fine.rollup("ward").rollup()
        assert twice.rows == fine.rollup().rows
        assert twice.interval("n") == fine.rollup().interval("n")
        assert s.ledger.charged == charged


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_roll_up_of_a_batch_is_its_coarser_table(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        fine, coarse, _, total = s.batch(TABLES, **COSTS[kind])
        rolled = fine.rollup("ward")
        assert rolled["ward"] == coarse["ward"]
        assert rolled["n"] == pytest.approx(coarse["n"])
        by_hand = summed(fine, ("ward",))
        assert [by_hand[ward,] for ward in rolled["ward"]] == pytest.approx(list(coarse["n"]))
        one = np.array(rolled.interval("n"))
        assert one == pytest.approx(np.array(coarse.interval("n")))
        # The coarse table was measured too: its cells are closer than a sum of as many cells of independent noise.
        halves = [(high - low) / 2 for low, high in fine.interval("n")]
        assert (one[:, 1] - one[:, 0]).max() / 2 < np.sqrt(2) * max(halves)
        assert rolled.guarantee == coarse.guarantee
        assert np.array(coarse.rollup().interval("n")) == pytest.approx(np.array(total.interval("n")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", BUDGETS)
def test_intervals_of_sums_hold(kind: str) -> None:
    """300 answers: one sum of each misses no more often than a fair interval of 95 % would, but for 3e-10; and the mean
    half-width is not more than 1.3 times 1.96 of the root mean square error.
    """
    truth = visits().groupby("ward").size()
    with opened(budget=BUDGETS[kind], unit=dn.Unit.person("patient_id", rows=1000)) as s:
        missed, squares, halves = 0, [], []
        for run in range(300):
            answer = s.sql(FINE.replace("FROM visits", f"FROM visits WHERE age > -{run + 1}"), **MORE[kind])
            rolled = answer.rollup("ward")
            [low, high] = rolled.interval("n")[0]  # type: ignore[misc]
            missed += not low <= truth["A"] <= high
            squares.append((rolled["n"][0] - truth["A"]) ** 2)  # type: ignore[operator]
            halves.append((high - low) / 2)
        assert missed <= binom.isf(3e-10, 300, 0.05)
        assert np.mean(halves) < 1.3 * 1.96 * np.sqrt(np.mean(squares))


def test_averages_and_several_measures_roll_up() -> None:
    text = "SELECT sex, ward, AVG(cost) AS c, COUNT(*) AS n, SUM(age) AS a FROM visits GROUP BY sex, ward"
    for kind in ("gaussian", "pure"):
        with opened(budget=BUDGETS[kind]) as s:
            fine = s.sql(text, **{name: amount * 1000 for name, amount in COSTS[kind].items()})
            rolled = fine.rollup("ward")
            kept = visits().groupby("patient_id").head(3)
            assert rolled["n"] == pytest.approx(list(summed(fine, ("ward",)).values()), abs=1.01)
            low, high = rolled.interval("c")[0]  # type: ignore[misc]
            assert 200 < low < rolled["c"][0] < high < 400  # type: ignore[operator]
            assert len(kept) > 0


def test_a_coarser_question_is_read_off_a_finer_answer() -> None:
    with opened() as s:
        fine = s.sql(FINE, mu=2)
        charged = s.ledger.charged
        coarse = s.sql(COARSE, mu=1)  # two cells each: half of μ² = 4 is 2
        assert s.ledger.charged == charged
        assert coarse["n"] == tuple(summed(fine, ("ward",)).values())
        assert coarse.guarantee.curve.gdp() == fine.guarantee.curve.gdp(), "it rests on the finer answer"
        assert s.sql(COARSE, mu=1).receipt.replayed
        again = s.sql("SELECT ward AS w, sex AS s, COUNT(*) AS k FROM visits GROUP BY w, s", mu=2)
        rows = {(row["s"], row["w"]): row["k"] for row in again}
        assert rows == {(row["sex"], row["ward"]): row["n"] for row in fine} or s.ledger.charged != charged
        s.ledger.verify()


def test_a_coarser_question_that_asks_for_more_is_paid_for() -> None:
    with opened() as s:
        s.sql(FINE, mu=2)
        charged = s.ledger.charged.units
        s.sql(COARSE, mu=1.5)
        assert s.ledger.charged.units > charged
        before = s.ledger.charged.units
        for other in (
            COARSE.replace("FROM visits", "FROM visits WHERE age > 3"),
            COARSE.replace("COUNT(*)", "COUNT(cost)"),
            COARSE.replace("COUNT(*)", "COUNT(DISTINCT patient_id)"),
            "SELECT age, COUNT(*) AS n FROM visits GROUP BY age",
        ):
            s.sql(other, mu=0.1)
            assert s.ledger.charged.units > before
            before = s.ledger.charged.units


@pytest.mark.parametrize("kind", BUDGETS)
def test_an_answer_that_was_read_off_can_be_refined_and_recalled(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        s.sql(FINE, **MORE[kind])
        coarse = s.sql(COARSE, **COSTS[kind])
        more = s.refine(coarse, **MORE[kind])
        assert more.released.deviation(more.plan, s.budget, 0) < coarse.released.deviation(coarse.plan, s.budget, 0)
        assert s.recall(COARSE).rows == more.rows  # type: ignore[union-attr]


def test_finer_answers_of_an_older_session_are_found_in_the_ledger(tmp_path: Any) -> None:
    path = tmp_path / "ledger.db"
    with opened(ledger=path) as s:
        for run in range(5):
            s.sql(f"SELECT COUNT(*) AS n FROM visits WHERE age > {run}", mu=0.1)
        s.sql("SELECT sex, ward, COUNT(*) AS n FROM visits WHERE age > 3 GROUP BY CUBE(sex, ward)", mu=1)
        fine = s.sql(FINE, mu=2)
        spent = s.ledger.charged
    with opened(ledger=path) as s:
        coarse = s.sql(COARSE, mu=1)
        assert coarse["n"] == tuple(summed(fine, ("ward",)).values())
        assert s.ledger.charged == spent
    with opened(visits(rows=2000), ledger=path) as s:  # other data
        s.sql(TOTAL, mu=0.5)
        assert s.ledger.charged.units > spent.units


def test_bounds_on_groups_keep_the_noise_of_the_finer_answer() -> None:
    """One row of a person is kept: the finer table moves by 1, and the coarser one by its own bound. The interval is that
    of the noise that was drawn.
    """
    text = FINE.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=1)")
    with opened() as s:
        fine = s.sql(text, mu=0.5)
        rolled = fine.rollup("ward")
        one = fine.released.deviation(fine.plan, s.budget, 0)
        assert rolled.released.deviation(rolled.plan, s.budget, 0) == pytest.approx(one * np.sqrt(2), rel=0.01)


def test_the_order_of_keys_does_not_matter() -> None:
    table = pd.DataFrame({"a": [0, 1, 2, 0], "b": ["x", "y", "x", "x"], "c": [True, False, True, True]})
    schema: Any = {
        "a": dn.Domain.integer(0, 2, nullable=False),
        "b": dn.Domain.text("x", "y", nullable=False),
        "c": dn.Domain.boolean(nullable=False),
    }
    with dn.session({"t": table}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=10_000), schema=schema) as s:
        s.sql("SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY a, b, c", epsilon=1000)
        spent = s.ledger.charged
        answer = s.sql("SELECT c, a, COUNT(*) AS n FROM t GROUP BY c, a", epsilon=10)
        assert {(row["c"], row["a"]): row["n"] for row in answer} == {
            (False, 0): 0, (False, 1): 1, (False, 2): 0, (True, 0): 2, (True, 1): 0, (True, 2): 1,
        }  # fmt: skip
        assert s.ledger.charged == spent


def test_what_cannot_be_rolled_up_is_refused() -> None:
    with opened() as s:
        fine = s.sql(FINE, mu=1)
        for keys in (("age",), ("ward", "ward"), ("n",)):
            with pytest.raises(InvalidParameter, match="keys"):
                fine.rollup(*keys)
        with worded(InvalidParameter):
            fine.rollup(["ward"])  # type: ignore[arg-type]
        for text in (
            "SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward",
            "SELECT town, COUNT(*) AS n FROM visits GROUP BY town",
            "SELECT ward, MEDIAN(age) AS n FROM visits GROUP BY ward",
        ):
            with worded(InvalidParameter):
                s.sql(text, mu=1).rollup()
        fitted = fine.adding_up_to(s.sql(TOTAL, mu=1))
        with worded(InvalidParameter, parameter="answer"):
            fitted.rollup("ward")
        with worded(InvalidParameter, parameter="answer"):
            fitted.shares()


@pytest.mark.parametrize("kind", BUDGETS)
def test_shares_of_a_total_add_up_to_one(kind: str) -> None:
    with opened(budget=BUDGETS[kind]) as s:
        for answer in (s.sql(f"{COARSE} ORDER BY n", **MORE[kind]), s.batch([FINE, COARSE], **COSTS[kind])[1]):
            shares = answer.shares()
            whole = sum(answer["n"])  # type: ignore[arg-type]
            assert shares["ward"] == answer["ward"]
            assert shares["n"] == pytest.approx([n / whole for n in answer["n"]])  # type: ignore[operator]
            assert sum(shares["n"]) == pytest.approx(1)  # type: ignore[arg-type]
            for share, (low, high) in zip(shares["n"], shares.interval("n"), strict=True):  # type: ignore[misc]
                assert low < share < high
            assert "shares" in shares.adjusted
            assert shares.guarantee == answer.guarantee
        first = s.sql(f"{COARSE} LIMIT 1", **MORE[kind])
        assert first.shares()["n"][0] < 0.9  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_intervals_of_shares_hold(kind: str) -> None:
    """200 answers asked alone and 200 in a batch: misses are no more than fair ones of 5 %, but for 2e-10; and the mean
    half-width is at most 1.3 times 1.96 of the root mean square error.
    """
    truth = visits().groupby("ward").size()
    exact = truth["A"] / truth.sum()
    with opened(budget=BUDGETS[kind], unit=dn.Unit.person("patient_id", rows=1000)) as s:
        for batched in (False, True):
            missed, squares, halves = 0, [], []
            for run in range(200):
                where = f"FROM visits WHERE age > -{run + 1 + 1000 * batched}"
                texts = [text.replace("FROM visits", where) for text in (COARSE, FINE)]
                cost = {name: amount * 40 for name, amount in COSTS[kind].items()}
                answer = s.batch(texts, **cost)[0] if batched else s.sql(texts[0], **cost)
                shares = answer.shares()
                around = shares.interval("n")[0]
                if around is None:  # it may be divided by 0
                    continue
                missed += not around[0] <= exact <= around[1]
                squares.append((shares["n"][0] - exact) ** 2)  # type: ignore[operator]
                halves.append((around[1] - around[0]) / 2)
            assert len(squares) > 150
            assert missed <= binom.isf(2e-10, 200, 0.05)
            assert np.median(halves) < 1.3 * 1.96 * np.sqrt(np.mean(squares))


def test_what_has_no_shares_is_refused() -> None:
    with opened() as s:
        for text in (
            TOTAL,
            "SELECT ward, COUNT(*) AS n, SUM(age) AS a FROM visits GROUP BY ward",
            "SELECT ward, COUNT(*) * 2 AS n FROM visits GROUP BY ward",
            "SELECT ward, AVG(age) AS n FROM visits GROUP BY ward",
            "SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward",
        ):
            with pytest.raises(InvalidParameter):
                s.sql(text, mu=1).shares()


@pytest.mark.parametrize(
    ("share", "whole"),
    [
        ("COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ()", 1),
        ("100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()", 100),
        ("COUNT(*) / SUM(COUNT(*)) OVER ( )", 1),
        ("CAST(COUNT(*) AS DOUBLE) / (SUM(COUNT(*)) OVER ())", 1),
        ("SUM(age) / SUM(SUM(age)) OVER ()", 1),
    ],
)
def test_shares_in_sql(share: str, whole: float) -> None:
    with opened() as s:
        answer = s.sql(f"SELECT ward, {share} AS share FROM visits GROUP BY ward ORDER BY share DESC", mu=5)
        assert answer.columns == ("ward", "share")
        assert sum(answer["share"]) == pytest.approx(whole)  # type: ignore[arg-type]
        assert answer["ward"][0] == "A"
        assert list(answer["share"]) == sorted(answer["share"], reverse=True)  # type: ignore[type-var]
        assert all(around is not None for around in answer.interval("share"))
        assert answer.to_dict()["kinds"] == ["text", "real"]
        charged = s.ledger.charged
        again = s.sql(f"SELECT ward, {share} AS part FROM visits GROUP BY ward", mu=5)
        assert sorted(again["part"]) == sorted(answer["share"])  # type: ignore[type-var]
        assert s.ledger.charged == charged


def test_counts_and_shares_stand_side_by_side() -> None:
    with opened() as s:
        answer = s.sql(
            "SELECT ward, COUNT(*) AS n, COUNT(*) * 100 / SUM(COUNT(*)) OVER () AS p FROM visits GROUP BY ward", mu=5
        )
        whole = sum(answer["n"])  # type: ignore[arg-type]
        assert answer["p"] == pytest.approx([100 * n / whole for n in answer["n"]])  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits GROUP BY ward HAVING n > 0.1",
        "SELECT age / SUM(age) OVER () AS n FROM visits",
        "SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits GROUP BY CUBE(ward)",
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP(ward) QUALIFY RANK() OVER (ORDER BY n) = 1",
    ],
)
def test_other_windows_are_refused_and_nothing_is_charged(text: str) -> None:
    with opened() as s:
        with pytest.raises(QuestionRefused):
            s.sql(text, mu=1)
        assert list(s.ledger.entries()) == []


@pytest.mark.parametrize("factor", ["1e400", "123456789012345678901234567890e300"])
def test_a_factor_that_no_float_can_hold_is_refused_before_it_is_paid_for(factor: str) -> None:
    """1e400 was charged, and its infinite cells could not be written."""
    with opened() as s:
        text = f"SELECT ward, {factor} * COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM visits GROUP BY ward"
        for call in (s.sql, s.price):
            with worded(QuestionRefused, code="constant"):
                call(text, mu=1)
        assert s.ledger.charged.units == 0


def test_a_share_that_no_float_can_hold_is_missing() -> None:
    """As 1e308 * COUNT(*) is; an infinite cell cannot be written. The counts are noise around 0, so that two of them
    have different signs, and a share is above 1.06, in 6 of 10 answers: fails by chance once in 1e11 (0.4^28).
    """
    with opened(visits(rows=1)) as s:
        cells: list[Any] = []
        for run in range(28):
            answer = s.sql(COARSE.replace("visits", f"visits WHERE age > {run}"), mu=0.001).with_shares({"n": 1.7e308})
            assert "Infinity" not in answer.to_json()
            cells += answer["n"]
        assert None in cells


def test_a_share_that_cannot_be_told_is_refused_before_it_is_paid_for() -> None:
    with opened() as s:
        for text in (
            "SELECT town, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits GROUP BY town",
            "SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS n, AVG(age) AS a FROM visits GROUP BY ward",
            "SELECT COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits",
        ):
            with pytest.raises(InvalidParameter):
                s.sql(text, mu=1)
        assert list(s.ledger.entries()) == []


def test_the_price_of_a_share_is_that_of_its_count() -> None:
    """`sql` answered it, and `price` refused it."""
    text = "SELECT ward, COUNT(*) AS n, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS p FROM visits GROUP BY ward"
    with opened() as s:
        price = s.price(text, mu=1)
        assert price.errors()["p"] is None
        assert (
            price.errors()["n"] == s.price("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", mu=1).errors()["n"]
        )
        assert "p: computed from noisy numbers" in " ".join(str(price).split())
        assert s.ledger.charged.units == 0
        s.sql(text, mu=1)
        assert s.ledger.charged == price.cost
        with pytest.raises(InvalidParameter):
            s.price("SELECT COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits", mu=1)


def test_a_single_question_of_a_batch_is_read_off_a_finer_answer() -> None:
    """`sql` read it off, and `batch` paid for it again."""
    fine = "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex"
    coarse = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    other = "SELECT AVG(age) AS a FROM visits"
    with opened() as s:
        first = s.sql(fine, mu=5)
        before = s.ledger.charged
        by_ward, average = s.batch([coarse, other], mu=1)
        assert by_ward.receipt.paid == "nothing (added up from a finer answer)"
        assert by_ward["n"] == pytest.approx(first.rollup("ward")["n"])  # type: ignore[union-attr]
        assert s.ledger.charged == before + average.receipt.cost
        charged = s.ledger.charged
        assert [each.rows for each in s.batch([coarse, other], mu=1)] == [by_ward.rows, average.rows]
        [sexes] = s.batch(["SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"], mu=1, key="k")
        assert sexes.receipt.paid.startswith("nothing")
        assert s.ledger.charged == charged


CELLS = "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex"
WINDOWED = {
    "a rank": "SELECT ward, sex, RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits GROUP BY ward, sex",
    "the row before": "SELECT ward, sex, LAG(COUNT(*)) OVER (ORDER BY ward, sex) AS r FROM visits GROUP BY ward, sex",
    "a total by ward": ("SELECT ward, sex, SUM(COUNT(*)) OVER (PARTITION BY ward) AS r FROM visits GROUP BY ward, sex"),
    "the largest count": (
        "SELECT MAX(n) AS r FROM (SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex) AS x"
    ),
    "a key in a column": "SELECT COUNT(*) * LENGTH(sex) AS x FROM visits GROUP BY ward, sex",
    "few of the groups": CELLS + " HAVING COUNT(*) > 400 ORDER BY n LIMIT 1",
}


@pytest.mark.parametrize("text", WINDOWED.values(), ids=WINDOWED)
def test_the_columns_of_a_finer_question_do_not_matter_for_coarser_ones(text: str, tmp_path: Any) -> None:
    """Every coarser question was refused from then on, to all analysts and in later sessions on the ledger."""
    path = tmp_path / "ledger.db"
    with opened(ledger=path) as s:
        s.sql(text, mu=3)
        spent = s.ledger.charged
        coarse = s.sql(COARSE, mu=1)
        assert s.ledger.charged == spent, "measures and keys are those of the finer answer"
        fine = s.sql(CELLS, mu=3)
        assert coarse["n"] == tuple(summed(fine, ("ward",)).values())
    with opened(ledger=path) as s:
        by_sex = s.sql("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", mu=1)
        assert by_sex["n"] == tuple(summed(fine, ("sex",)).values())
        assert s.ledger.charged == spent


def test_a_roll_up_leaves_out_columns_with_windows() -> None:
    with opened() as s:
        ranked = s.sql(
            "SELECT ward, sex, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits GROUP BY ward, sex",
            mu=3,
        )
        rolled = ranked.rollup("ward")
        assert rolled.columns == ("ward", "n")
        assert rolled["n"] == s.sql(CELLS, mu=3).rollup("ward")["n"]
        for text in (WINDOWED["a rank"], WINDOWED["the largest count"], WINDOWED["a key in a column"]):
            with worded(InvalidParameter, parameter="answer"):
                s.sql(text, mu=3).rollup()
