"""Several answers as one set of tables: what adds up, what is kept, what is told, and how often intervals hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import deniable as dn
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.queries.answer import batch_shares
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.answer_display import Shown
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import release
from deniable.queries.plan.noise_planner import NoisePlan, noise, plan
from deniable.queries.publication import consistent_fit
from deniable.queries.session import Session
from deniable.queries.sql.sql_reader import parse
from deniable.testing import statistics
from tests.queries.hospital import opened
from tests.wording import worded

A, B = ("x", "y", "z"), (1, 2, 3, 4)
COUNTS = {(a, b): (0, 0, 1, 2, 3, 5, 8, 13, 0, 1, 40, 6)[i] for i, (a, b) in enumerate(itertools.product(A, B))}
FRAME = pd.DataFrame([each for each, n in COUNTS.items() for _ in range(n)], columns=["a", "b"])
FRAME["v"] = np.linspace(0, 10, len(FRAME))
SCHEMA = {
    "a": dn.Domain.text(*A, nullable=False),
    "b": dn.Domain.integer(keys=B, nullable=False),
    "v": dn.Domain.real(0, 10, nullable=False),
}
TEXTS = {
    "fine": "SELECT a, b, COUNT(*) AS n FROM w GROUP BY a, b",
    "a": "SELECT a, COUNT(*) AS n FROM w GROUP BY a",
    "b": "SELECT b, COUNT(*) AS n FROM w GROUP BY b",
    "all": "SELECT COUNT(*) AS n FROM w",
}
BUDGETS = {"mu": dn.Budget.gaussian(mu=1000), "epsilon": dn.Budget.pure(epsilon=1000)}
TRUE_A = {a: sum(n for (x, _), n in COUNTS.items() if x == a) for a in A}


@pytest.fixture(scope="module", params=["mu", "epsilon"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    kind: str = request.param
    with dn.session({"w": FRAME}, unit=dn.Unit.row(), budget=BUDGETS[kind], schema=SCHEMA) as s:
        yield World(s, kind)


class World:
    """The tables of one session, answered as often as is wanted."""

    def __init__(self, s: Session, kind: str) -> None:
        self.s, self.kind = s, kind
        self.plans: dict[str, NoisePlan] = {name: plan(parse(text, s.tables)) for name, text in TEXTS.items()}
        self.counts: dict[str, Any] = {name: s._engine.collect(made.collect) for name, made in self.plans.items()}

    def answers(self, costs: dict[str, float], *, merged: bool = False) -> dict[str, Answer]:
        """Each table with noise of its own; with `merged`, as a batch has them: coarser ones helped by the finest."""
        released = {}
        for name, amount in costs.items():
            cost = self.s.budget.cost(**{self.kind: amount})
            released[name] = release(
                self.plans[name], noise(self.plans[name], self.s.budget, cost), cost, self.counts[name]
            )
        if merged:
            names = list(released)
            raw = [released[name] for name in names]
            for name in names[1:]:
                help = batch_shares._help([self.plans[each] for each in names], names.index(name), 0)
                assert help is not None
                released[name] = batch_shares.helped(help, raw, self.s.budget)
        return {
            name: Answer(
                self.plans[name],
                each,
                self.s.budget,
                self.s.guarantee,
                Receipt(i + 1, "", each.cost, each.cost, self.s.budget, False, ""),
                0.95,
            )
            for i, (name, each) in enumerate(released.items())
        }

    def truth(self, name: str) -> list[int]:
        known = self.plans[name].collect.known
        assert known is not None
        return [int(self.counts[name][group][0]) for group in known]


COSTS = {"fine": 0.4, "a": 0.3, "b": 0.5, "all": 0.2}


def sums(answer: Answer, by: str) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for row in answer:
        found[row[by]] = found.get(row[by], 0) + row["n"]  # type: ignore[operator]
    return found


def column(answer: Answer, by: str) -> dict[Any, Any]:
    return dict(zip(answer[by], answer["n"], strict=True))


# -- coverage ----------------------------------------------------------------------------------------------------------

TRIALS = 200
STEPS = ("fitted", "nonnegative", "rounded", "base 5", "law")


@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
def test_intervals_hold_after_every_adjustment(world: World, merged: bool) -> None:
    """One cell of each table in each trial, chosen at random, so that all trials are independent: 200 of each of 5 × 4
    kinds. Of intervals that hold 95 %, one of the 80 counts in all these tests is blamed less than once in 1e9; those
    that hold 80 % are seen.
    """
    rng = np.random.default_rng()
    hits = {(step, name): 0 for step in STEPS for name in COSTS}
    truth = {name: world.truth(name) for name in COSTS}
    by_law = {"a": TRUE_A}
    for _ in range(TRIALS):
        answers = world.answers(COSTS, merged=merged)
        fit = consistent_fit.joint(list(answers.values()))
        raised = fit.nonnegative()
        states = {
            "fitted": fit,
            "nonnegative": raised,
            "rounded": raised.rounded(1),
            "base 5": fit.rounded(5),
            "law": consistent_fit.joint(list(answers.values()), by_law).nonnegative().rounded(1),
        }
        for step, state in states.items():
            for name, answer in zip(COSTS, state.tables(), strict=True):
                at = int(rng.integers(len(answer)))
                low, high = answer.interval("n")[at]  # type: ignore[misc]
                assert low <= answer["n"][at] <= high  # type: ignore[operator]
                hits[step, name] += low - 1e-9 <= truth[name][at] <= high + 1e-9
    for where, number in hits.items():
        assert statistics.at_most(number, TRIALS, probability=0.95) > 1e-9 / 80, (where, number)
    assert statistics.at_most(round(0.8 * TRIALS), TRIALS, probability=0.95) < 1e-9 / 80


def test_a_fit_has_less_noise_than_any_table_alone(world: World) -> None:
    answers = world.answers(COSTS)
    tables = consistent_fit.joint(list(answers.values())).tables()
    for answer, table in zip(answers.values(), tables, strict=True):
        [(low, high), *_], [(below, above), *_] = answer.interval("n"), table.interval("n")  # type: ignore[misc]
        assert above - below < high - low


def test_a_batch_is_taken_apart_before_it_is_fitted(world: World) -> None:
    """The least-squares fit to what was drawn, whether or not a batch merged some of it before."""
    names = list(COSTS)
    apart = world.answers(COSTS)
    raw = [each.released for each in apart.values()]
    together = []
    for name, answer in apart.items():
        found = answer.released
        if name != "fine":
            help = batch_shares._help([world.plans[each] for each in names], names.index(name), 0)
            assert help is not None
            found = batch_shares.helped(help, raw, world.s.budget)
        together.append(Answer(answer.plan, found, answer.budget, answer.guarantee, answer.receipt, answer.confidence))
    one, two = consistent_fit.joint(list(apart.values())), consistent_fit.joint(together)
    for a, b in zip(one.numbers, two.numbers, strict=True):
        assert a == pytest.approx(b, abs=1e-6)
    for a, b in zip(one.tables(), two.tables(), strict=True):
        (low, high), (below, above) = a.interval("n")[0], b.interval("n")[0]  # type: ignore[misc]
        assert above - below >= high - low - 1e-6, "by another account of the draws it may be wider"


# -- what adds up ------------------------------------------------------------------------------------------------------


def test_chained_fits_undid_each_other(world: World) -> None:
    fine, a, b = (world.answers(COSTS)[name] for name in ("fine", "a", "b"))
    while sum(a["n"]) == sum(b["n"]):  # type: ignore[arg-type]  # by chance they agree, and are met as they are
        b = world.answers(COSTS)["b"]
    both = fine.adding_up_to(a).adding_up_to(b)
    at_once = fine.adding_up_to(a, b)
    assert both.rows == at_once.rows
    by_a, by_b = (consistent_fit.joint([fine, a, b]).tables()[i] for i in (1, 2))
    assert sums(both, "a") == pytest.approx(column(by_a, "a"))
    assert sums(both, "b") == pytest.approx(column(by_b, "b"))


def test_one_total_is_met_as_it_is_and_so_are_totals_that_agree(world: World) -> None:
    answers = world.answers(COSTS)
    fine, a, b = answers["fine"], answers["a"], answers["b"]
    assert sums(fine.adding_up_to(a), "a") == pytest.approx(column(a, "a"))
    kept = fine.adding_up_to(b)
    assert kept.adjusted == "moved to add up to the totals of charge 3"
    assert sums(kept, "b") == pytest.approx(column(b, "b"))


@pytest.mark.parametrize("base", [1, 5, 10])
def test_rounded_tables_add_up_and_are_whole(world: World, base: int) -> None:
    fit = consistent_fit.joint(list(world.answers(COSTS).values())).nonnegative()
    before = dict(zip(COSTS, fit.tables(), strict=True))
    tables = dict(zip(COSTS, fit.rounded(base).tables(), strict=True))
    assert sums(tables["fine"], "a") == column(tables["a"], "a")
    assert sums(tables["fine"], "b") == column(tables["b"], "b")
    assert sum(tables["a"]["n"]) == tables["all"].value  # type: ignore[arg-type]
    for name, table in tables.items():
        assert all(isinstance(n, int) and n % base == 0 and n >= 0 for n in table["n"])
        assert all(abs(n - m) < base for n, m in zip(table["n"], before[name]["n"], strict=True))  # type: ignore[operator]
        frame = table.to_pandas(intervals=True)
        assert [str(frame[each].dtype) for each in ("n", "n_low", "n_high")] == ["int64"] * 3


def test_a_fit_nowhere_below_0_keeps_the_totals_it_adds_up_to(world: World) -> None:
    for _ in range(50):
        answers = world.answers(COSTS)
        moved = answers["fine"].adding_up_to(answers["a"])
        if min(answers["a"]["n"]) >= 0 > min(moved["n"]):  # type: ignore[type-var]
            break
    raised = moved.nonnegative()
    assert min(raised["n"]) >= 0  # type: ignore[type-var]
    assert sums(raised, "a") == pytest.approx(column(answers["a"], "a"))
    assert len(raised.adjustments) == 2
    assert "below 0" in raised.adjusted
    assert "add up to the totals of charge 2" in str(raised)


def test_totals_below_0_are_refused_with_a_remedy(world: World) -> None:
    none = "SELECT a, COUNT(*) AS n FROM w WHERE v > 20 GROUP BY a"
    for _ in range(20):
        with dn.session({"w": FRAME}, unit=dn.Unit.row(), budget=world.s.budget, schema=SCHEMA) as s:
            total = s.sql(none, **{world.kind: 0.3})
            fine = s.sql(none.replace("a,", "a, b,", 1) + ", b", **{world.kind: 0.3})
        if min(total["n"]) < 0:  # type: ignore[type-var]
            break
    moved = fine.adding_up_to(total)
    with pytest.raises(InvalidParameter, match="negative number"):
        moved.nonnegative()
    whole = consistent_fit.joint([fine, total]).nonnegative().tables()
    assert min(whole[0]["n"]) >= 0  # type: ignore[type-var]
    assert sums(whole[0], "a") == pytest.approx(column(whole[1], "a"))


# -- what is public by law -----------------------------------------------------------------------------------------------


def test_declared_totals_are_exact_and_stand_among_the_assumptions(world: World) -> None:
    answers = world.answers(COSTS)
    law = {"a": TRUE_A, (): len(FRAME)}
    moved = answers["fine"].adding_up_to(answers["b"], invariants=law)
    assert sums(moved, "a") == pytest.approx(TRUE_A)
    assert any("the totals by a were public before" in each for each in moved.guarantee.assumptions)
    assert any("the total was public before" in each for each in moved.guarantee.assumptions)
    assert "declared totals" in moved.adjusted
    assert "than noise explains" not in moved.adjusted
    wide, narrow = answers["fine"].adding_up_to(answers["b"]).interval("n")[0], moved.interval("n")[0]
    assert narrow[1] - narrow[0] < wide[1] - wide[0]  # type: ignore[index]
    tables = consistent_fit.joint(list(answers.values()), law).nonnegative().rounded(1).tables()
    assert column(tables[1], "a") == TRUE_A
    assert tables[1].interval("n") == tuple((n, n) for n in TRUE_A.values())
    assert tables[3].value == len(FRAME)


def test_declared_totals_of_other_rows_are_noticed(world: World) -> None:
    far = {a: n + 1000 for a, n in TRUE_A.items()}
    moved = world.answers(COSTS)["fine"].adding_up_to(invariants={"a": far})
    assert "farther from the noisy ones than noise explains" in moved.adjusted


@pytest.mark.parametrize(
    ("law", "said"),
    [
        ({"a": {"x": 1, "y": 2}}, "every value"),
        ({"a": {"x": 1, "y": 2, "z": 3, "q": 4}}, "not a value of these keys"),
        ({"a": {"x": 1.5, "y": 2, "z": 3}}, "whole numbers"),
        ({"a": {"x": -1, "y": 2, "z": 3}}, "not negative"),
        ({"a": {"x": True, "y": 2, "z": 3}}, "finite"),
        ({"a": {"x": math.nan, "y": 2, "z": 3}}, "finite"),
        ({"a": {"x": np.bool_(True), "y": 2, "z": 3}}, "finite"),
        ({"a": {"x": "12", "y": 2, "z": 3}}, "finite"),
        ({"a": {"x": None, "y": 2, "z": 3}}, "finite"),
        ({"a": {"x": np.array([1, 2]), "y": 2, "z": 3}}, "finite"),
        ({"c": {"x": 1}}, "keys of the tables"),
        ({("a", "a"): {}}, "each once"),
        ({"a": 7}, "each value to its total"),
        ({7: {}}, "name"),
        ([("a", {})], "names of keys to totals"),
        ({"a": {"x": 1, "y": 1, "z": 1}, (): 4}, "contradict"),
    ],
)
def test_bad_declarations_are_refused(world: World, law: Any, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        world.answers({"fine": 0.5})["fine"].adding_up_to(invariants=law)


def test_totals_from_a_dataframe_were_no_finite_numbers(world: World) -> None:
    """`frame.a.value_counts().to_dict()` has numpy's whole numbers, as a column of official totals has."""
    fine = world.answers({"fine": 0.5})["fine"]
    for number in (np.int64, np.float32, Fraction, Decimal):
        law = {"a": {name: number(total) for name, total in TRUE_A.items()}}
        assert sums(fine.adding_up_to(invariants=law), "a") == pytest.approx(TRUE_A)


def test_bases_and_limits_from_numpy_were_refused(world: World) -> None:
    fine = world.answers({"fine": 0.5})["fine"]
    assert fine.rounded(base=np.int64(5)).rows == fine.rounded(base=5).rows
    assert fine.adding_up_to(invariants={"a": TRUE_A}).rounded(base=np.int32(1)).adjusted
    assert fine.suppressed(below=np.int64(6)).rows == fine.suppressed(below=6).rows
    wrong: Any
    for wrong in (10**10, np.bool_(True), np.float64(5.0), 0):
        with worded(InvalidParameter):
            fine.rounded(base=wrong)


# -- what is refused -----------------------------------------------------------------------------------------------------


def test_what_was_rounded_is_not_fitted_again(world: World) -> None:
    answers = world.answers(COSTS)
    fine, a = answers["fine"], answers["a"]
    for done in (fine.rounded(), fine.nonnegative(), fine.suppressed(below=5), fine.adding_up_to(a).rounded()):
        with pytest.raises((InvalidParameter, InvalidOperation), match=r"rounded|suppress"):
            done.adding_up_to(a)
    with pytest.raises(InvalidParameter, match="rounded"):
        fine.adding_up_to(a.rounded())
    with pytest.raises(InvalidParameter, match="invariants="):
        fine.adding_up_to(800)  # type: ignore[arg-type]  # a number on purpose: it is refused
    with worded(InvalidOperation):
        fine.suppressed(below=5).rounded()
    with worded(InvalidOperation):
        fine.adding_up_to(a).rounded().nonnegative()
    declared = fine.adding_up_to(invariants={"a": TRUE_A})
    with worded(InvalidParameter):
        declared.adding_up_to(a)


def test_an_answer_is_no_total_of_itself() -> None:
    with dn.session({"w": FRAME}, unit=dn.Unit.row(), budget=dn.Budget.gaussian(mu=1), schema=SCHEMA) as s:
        fine: Any = s.sql(TEXTS["fine"], mu=0.5)
        with pytest.raises(InvalidParameter, match="totals"):
            fine.adding_up_to(fine)


def test_totals_that_are_none_are_refused(world: World) -> None:
    answers = world.answers(COSTS)
    with worded(InvalidParameter):
        answers["fine"].adding_up_to()
    with pytest.raises(InvalidParameter, match="fewer keys"):
        answers["a"].adding_up_to(answers["fine"])
    with pytest.raises(InvalidParameter, match="fewer keys"):
        answers["a"].adding_up_to(answers["b"])
    with worded(InvalidParameter, parameter="totals"):
        answers["a"].adding_up_to([answers["b"]])  # type: ignore[arg-type]
    s, kind = world.s, world.kind
    fine = s.sql(TEXTS["fine"], **{kind: 1})
    other = s.sql("SELECT a, COUNT(*) AS n FROM w WHERE b > 1 GROUP BY a", **{kind: 1})
    several = s.sql("SELECT COUNT(*) AS n, SUM(v) AS v FROM w", **{kind: 1})
    for wrong in (other, several):
        with worded(InvalidParameter, parameter="totals"):
            fine.adding_up_to(wrong)
    with worded(InvalidParameter):
        fine.adding_up_to(answers["a"])
    for base in (0, -5, 1.5, True, "5"):
        with pytest.raises(InvalidParameter, match="whole number"):
            answers["fine"].rounded(base=base)  # type: ignore[arg-type]


# -- one answer ----------------------------------------------------------------------------------------------------------


def test_one_answer_is_rounded_with_all_its_margins(world: World) -> None:
    fine = world.answers(COSTS)["fine"]
    rounded = fine.rounded(base=5)
    for by in ("a", "b"):
        before = sums(fine, by)
        assert all(n % 5 == 0 and abs(n - before[key]) < 5 for key, n in sums(rounded, by).items())
    assert rounded.adjustments == ("rounded to multiples of 5 that add up; every margin is a rounded margin",)
    raised = fine.nonnegative().rounded(base=5)
    assert min(raised["n"]) >= 0  # type: ignore[type-var]
    assert [each.split()[0] for each in raised.adjustments] == ["counts", "rounded"]


def test_one_cell_and_an_empty_table(world: World) -> None:
    s, kind = world.s, world.kind
    one = s.sql("SELECT COUNT(*) AS n FROM w WHERE v < 5", **{kind: 1})
    assert one.rounded(base=10).value % 10 == 0  # type: ignore[operator]
    fine = s.sql("SELECT a, COUNT(*) AS n FROM w WHERE v < 5 GROUP BY a", **{kind: 1})
    assert sum(fine.adding_up_to(one)["n"]) == pytest.approx(one.value)  # type: ignore[arg-type]
    nothing = s.sql("SELECT a, COUNT(*) AS n FROM w WHERE v < 5 GROUP BY a LIMIT 0", **{kind: 1})
    assert nothing.rounded().rows == ()
    assert nothing.adding_up_to(one).nonnegative().rounded().suppressed(below=3).rows == ()
    top = s.sql("SELECT a, COUNT(*) AS n FROM w WHERE v < 5 GROUP BY a ORDER BY a DESC LIMIT 1", **{kind: 1})
    assert top.rounded()["n"] == fine.rounded()["n"][-1:], "rows that are not shown are rounded as well"


def test_keys_that_are_not_public_are_rounded_one_by_one() -> None:
    with opened() as s:
        towns = s.sql("SELECT town, COUNT(*) AS n FROM visits GROUP BY town", mu=2, delta=1e-6)
        assert all(n % 10 == 0 for n in towns.rounded(base=10)["n"])  # type: ignore[operator]
        assert towns.rounded(base=10).adjustments == ("each count was rounded to multiples of 10 by itself",)
        for (low, high), n in zip(towns.rounded(base=10).interval("n"), towns.rounded(base=10)["n"], strict=True):  # type: ignore[misc]
            assert low <= n <= high


def test_small_counts_are_not_shown_and_that_is_told(world: World) -> None:
    fine = world.answers(COSTS)["fine"].rounded()
    shown = fine.suppressed(below=8)
    for before, after, around in zip(fine["n"], shown["n"], shown.interval("n"), strict=True):
        assert after == (None if before < 8 else before)  # type: ignore[operator]
        assert (around is None) == (after is None)
    told = "counts below 8 are not shown (–), and intervals that reach below 8 begin at 0"
    assert shown.adjustments[-1] == told
    assert "means no value" not in str(shown)
    assert str(shown.to_pandas()["n"].dtype) == "Int64"
    for below in (0, -1, math.nan, True, "5"):
        with pytest.raises(InvalidParameter, match="above 0"):
            fine.suppressed(below=below)  # type: ignore[arg-type]


class Numbers(Shown):
    """Counts and their intervals, and nothing else."""

    def _papers(self) -> str:
        return ""

    def _entry(self) -> int:
        return 0

    @property
    def notes(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("shape", ["normal", "laplace"])
@pytest.mark.parametrize("width", [0.8, 3.0, 9.0])
def test_counts_that_noise_lifted_into_sight_had_intervals_without_them(shape: str, width: float) -> None:
    """By the law of the noise, and not by chance: given that a count is shown, its interval holds the truth at 95 %. As
    the intervals were before, they held as little as nothing of a count far below the number.
    """
    steps = np.arange(-400, 401)
    edges = (steps[:, None] + np.array([-0.5, 0.5])) / width
    law = np.diff(norm.cdf(edges), axis=1)[:, 0] if shape == "normal" else np.exp(-np.abs(steps) / width)
    law /= law.sum()
    half = next(h for h in range(400) if law[np.abs(steps) <= h].sum() >= 0.95)
    rows = range(-400, 451)
    as_is = Numbers(
        ("n",), [(x,) for x in rows], [((x - half, x + half),) for x in rows], 0.95,
        measured=frozenset({"n"}), counts=frozenset({"n"}),
    )  # fmt: skip
    told = dict(zip(rows, as_is.suppressed(below=10).interval("n"), strict=True))
    for truth in range(50):
        seen = [(told[truth + int(d)], p) for d, p in zip(steps, law, strict=True) if told[truth + int(d)] is not None]
        held = math.fsum(p for around, p in seen if around[0] <= truth <= around[1])  # type: ignore[index]
        assert held >= 0.95 * math.fsum(p for _, p in seen) * (1 - 1e-9), truth


def test_sums_are_fitted_and_rounded_as_counts_are(world: World) -> None:
    s, kind = world.s, world.kind
    fine, a = s.batch(
        ["SELECT a, b, SUM(v) AS n FROM w GROUP BY a, b", "SELECT a, SUM(v) AS n FROM w GROUP BY a"], **{kind: 2}
    )
    moved = fine.adding_up_to(a)
    assert sums(moved, "a") == pytest.approx(column(a, "a"))
    one, two = consistent_fit.joint([fine, a]).nonnegative().rounded(5).tables()
    assert sums(one, "a") == column(two, "a")
    assert all(isinstance(n, int) and n % 5 == 0 for n in one["n"])


def test_refining_a_fitted_answer_refines_what_was_released(world: World) -> None:
    """It merged the moved numbers with the new ones, and sealed them as the question's answer."""
    with dn.session({"w": FRAME}, unit=dn.Unit.row(), budget=world.s.budget, schema=SCHEMA) as s:
        total = s.sql(TEXTS["all"], **{world.kind: 0.05})
        fine = s.sql(TEXTS["a"], **{world.kind: 50})
        better = s.refine(fine.adding_up_to(total), **{world.kind: 50})
        assert list(better["n"]) == pytest.approx(list(TRUE_A.values()), abs=1)


def test_a_set_of_one_table_is_left_alone(world: World) -> None:
    fine = world.answers({"fine": 0.4})["fine"]
    [table] = consistent_fit.joint([fine]).tables()
    assert table.rows == fine.rows
    assert table.guarantee.curve == fine.budget.curve(fine.released.cost)
    assert not table.adjustments


def test_computed_columns_are_left_and_that_is_told(world: World) -> None:
    s, kind = world.s, world.kind
    both = s.sql("SELECT a, COUNT(*) AS n, COUNT(*) * 2 AS twice FROM w WHERE b < 4 GROUP BY a", **{kind: 1})
    rounded = both.rounded(base=5)
    assert rounded["twice"] == both["twice"]
    assert all(n % 5 == 0 for n in rounded["n"])  # type: ignore[operator]
    assert rounded.adjustments[-1] == "columns that are computed from these numbers were not changed"
    only = s.sql("SELECT a, COUNT(*) * 2 AS twice FROM w WHERE b < 4 GROUP BY a", **{kind: 1})
    with worded(InvalidOperation):
        only.rounded()


def test_large_tables_that_differ_by_noise_alone_do_not_agree() -> None:
    """Of a billion people, tables that differ by a few were taken to add up, and were left as they came."""
    from deniable.synth.least_squares_fit import Margin, agree

    fine = np.full((4, 5), 5e7)
    assert agree([Margin((0, 1), fine, 1.0), Margin((0,), fine.sum(axis=1), 1.0)])
    assert not agree([Margin((0, 1), fine, 1.0), Margin((0,), fine.sum(axis=1) + np.eye(4)[0], 1.0)])
