"""Tables that the data choose: the law of a choice, its loss between neighbours, what it costs, and what is stored."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import ExitStack
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable import audit
from deniable.errors import BudgetExceeded, InvalidParameter, UnreadableRecord
from deniable.ledger import Cost, Ledger
from deniable.mechanisms import Exponential
from deniable.queries.plan.pricing import AskedCost
from deniable.queries.session import Session
from deniable.queries.synthetic import marginal_selection, synthesis_measurement, synthesis_request, synthetic_records
from deniable.queries.synthetic.marginal_selection import TableSelection, affordable_choice, in_order
from deniable.synth import Marginal, Mixture
from deniable.synth.mixture import MOST_WORK
from tests.queries.answer.test_batch_shares import FailsAt

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

METHODS = ["mst", "adaptive"]
BUDGETS = [dn.Budget.pure(epsilon=2), dn.Budget(epsilon=2, delta=1e-6), dn.Budget.zcdp(rho=0.2, delta=1e-6)]
NAMES = ["pure", "gaussian", "zcdp"]
BITS = {name: dn.Domain.boolean(nullable=False) for name in "abc"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits between rounds of a few steps: none of these tests is about how close they are."""
    monkeypatch.setattr(marginal_selection, "_FIT_WORK", MOST_WORK / 1000)


def people(count: int = 3000) -> Any:
    """b follows a, c follows b, and d nothing."""
    generator = np.random.default_rng(7)
    a = generator.integers(0, 2, count)
    b = np.where(generator.random(count) < 0.9, a, 1 - a)
    c = np.where(generator.random(count) < 0.9, b, 1 - b) + 2 * generator.integers(0, 2, count)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": generator.integers(0, 3, count)})


SCHEMA = {
    name: dn.Domain.integer(keys=range(size), nullable=False) for name, size in {"a": 2, "b": 2, "c": 4, "d": 3}.items()
}


def opened(table: Any = None, budget: Any = None, unit: Any = None, schema: Any = None) -> Any:
    return dn.session(
        {"people": people() if table is None else table},
        unit=unit or dn.Unit.row(),
        budget=budget or dn.Budget(epsilon=5, delta=1e-6),
        schema={"people": schema or SCHEMA},
    )


def selection(s: Any, method: str = "mst", **wanted: Any) -> Any:
    """The plan of a choice, with all that is left, before data is read."""
    asked = synthesis_request.asked("people", tables=s._tables, method=method, **wanted)
    return synthesis_measurement._bill(s, asked, AskedCost(share=1), s._left(None)).selection


def scores(s: Any, plan: Any, model: Mixture, single: list[Marginal], deviation: float) -> list[Fraction]:
    """The scores of all tables against a public fit."""
    exact = [in_order(each.collect, [s._engine.collect(each.collect)]) for each in plan.plans]
    return TableSelection(plan, single, exact, "")._scores(model, range(len(plan.plans)), deviation)


def even(sizes: Any) -> Mixture:
    return Mixture(np.ones(1), tuple(np.full((1, size), 1 / size) for size in sizes))


# -- what a choice costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
@pytest.mark.parametrize("part", [1, 10**3, 10**9])
def test_a_choice_costs_what_is_paid_for_it_and_hardly_less(budget: Any, part: int) -> None:
    units = budget.limit.units // part
    made = affordable_choice(budget, units, 3)
    assert 0.99 * units <= budget.price(made.curve).units <= units
    assert made.sensitivity == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_all_choices_and_counts_are_worth_at_most_the_charge(
    method: str, budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prices of everything drawn, added up; and of a tree the product of all curves, beside that of the receipt."""
    drawn: list[Any] = []
    kept, noised = Exponential.release, marginal_selection.release
    monkeypatch.setattr(
        Exponential, "release", lambda self, *given, **more: drawn.append(self) or kept(self, *given, **more)
    )

    def counted(plan: Any, made: Any, *given: Any) -> Any:
        drawn.append(made)
        return noised(plan, made, *given)

    monkeypatch.setattr(marginal_selection, "release", counted)
    with opened(budget=budget) as s:
        asked = synthesis_request.asked("people", ["a", "b", "d"], tables=s._tables, method=method)
        bill = synthesis_measurement._bill(s, asked, AskedCost(share=Fraction(1, 2)), s._left(None))
        made = s.synthesize(columns=["a", "b", "d"], method=method, share=Fraction(1, 2))
    choices = [each for each in drawn if isinstance(each, Exponential)]
    assert len(choices) == len(drawn) - len(choices) == len(made.marginals) - 3 >= 2
    found = [each.curve for each in drawn] + [noise.curve for _, noise, _ in bill.counting]
    assert 0.95 * made.receipt.cost.units < sum(budget.price(each).units for each in found) <= made.receipt.cost.units
    if method == "mst":
        whole, promised = reduce(mul, found), budget.curve(made.receipt.cost)
        for delta in (1e-9, 1e-6, 1e-3):
            assert whole.epsilon(delta=delta) <= promised.epsilon(delta=delta) * (1 + 1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pick", ["first", "last", "any"])
@pytest.mark.parametrize("still", [True, False])
def test_whatever_is_chosen_the_sum_stays_within_the_charge(
    method: str, pick: str, still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Choices and changes of the fit are forced, since the costs must add up for all of them."""
    generator, spent = np.random.default_rng(1), []
    places = {"first": lambda n: 0, "last": lambda n: n - 1, "any": lambda n: int(generator.integers(n))}
    monkeypatch.setattr(Exponential, "release", lambda self, given: places[pick](len(given)))
    monkeypatch.setattr(TableSelection, "_changed", lambda *_: 0.0 if still else 2.0)
    kept = TableSelection._spend
    monkeypatch.setattr(TableSelection, "_spend", lambda self, units: spent.append(units) or kept(self, units))
    with opened() as s:
        plan = selection(s, method)
        made = s.synthesize(method=method, share=1)
    assert 0.999999 * plan.units < sum(spent) <= plan.units
    assert plan.at_once <= len(made.marginals) - 4 <= plan.most
    if method == "mst":
        assert len(made.asked.measured) == 4 + 3
        tree = made.asked.measured[4:]
        assert len({place for each in tree for place in each}) == 4
        assert len(set(tree)) == 3
    else:
        assert (len(made.marginals) - 4 < plan.most) == still


# -- the law of a choice, and its loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "most"),
    [
        (dn.Unit.row(), 1),
        (dn.Unit.replaced_row(), 2),
        (dn.Unit.person("pid", rows=2), 2),
        (dn.Unit.replaced_person("pid", rows=2), 4),
    ],
    ids=["row", "replaced row", "person", "replaced person"],
)
def test_no_neighbours_of_a_tiny_table_move_a_choice_by_more_than_it_costs(unit: Any, most: int) -> None:
    """Brute force over every row that a person can have. The law of a choice is computed here in closed form from exact
    scores, e^(ε u / 2Δ) up to a factor, and the loss of every outcome between every two neighbours is within ε.
    """
    kinds = [*list(product([False, True], repeat=3))[::2], (True, True, True)]
    with_id = unit.column is not None
    rows = unit.rows if with_id else 1
    persons = [mine for many in range(1, rows + 1) for mine in product(kinds, repeat=many)][: 5 if rows == 1 else 14]
    is_replaced = most == 2 * rows
    schema = {**BITS, **({"pid": dn.Domain.integer(0, 9)} if with_id else {})}
    model = Mixture(np.array([0.3, 0.7]), tuple(np.array([[0.21, 0.79], [0.6, 0.4]]) for _ in "abc"))
    single = [Marginal((i,), np.array([1.3, 2.4]), 1.0) for i in range(3)]
    found = []
    for mine in ([] if is_replaced else [()]) + persons:
        table = pd.DataFrame(
            [(0, False, True, True), (1, True, True, False), *((2, *kind) for kind in mine)],
            columns=["pid", "a", "b", "c"],
        )
        with opened(table if with_id else table.drop(columns="pid"), dn.Budget.pure(epsilon=1), unit, schema) as s:
            plan = selection(s, columns=["a", "b", "c"])
            found.append(scores(s, plan, model, single, 3.0))
    assert plan.sensitivity == most
    choice = affordable_choice(plan.budget, plan.divided(plan.units // plan.most)[0], plan.sensitivity)
    laws = []
    for each in found:
        assert all(isinstance(score, Fraction) for score in each)
        weights = [math.exp(choice.epsilon * float(u - max(each)) / (2 * most)) for u in each]
        laws.append([weight / math.fsum(weights) for weight in weights])
        assert choice.probabilities(each) == pytest.approx(laws[-1], rel=1e-9)
    pairs = list(product(range(len(found)), repeat=2)) if is_replaced else [(0, i) for i in range(1, len(found))]
    moved = max(abs(u - v) for i, j in pairs for u, v in zip(found[i], found[j], strict=True))
    assert most / 2 <= moved <= most
    worst = max(abs(math.log(p / q)) for i, j in pairs for p, q in zip(laws[i], laws[j], strict=True))
    assert 0 < worst <= choice.epsilon


def test_choices_have_exactly_the_law_of_the_exponential_mechanism() -> None:
    """5,000 choices beside the closed form. A frequency is off by more than 6.7 standard deviations with probability
    2e-11, and there are three.
    """
    with opened(budget=dn.Budget.pure(epsilon=0.02)) as s:
        plan = selection(s, columns=["a", "b", "d"])
        single = [Marginal((i,), np.full(size, 3000 / size), 1.0) for i, size in enumerate(plan.asked.sizes)]
        found = scores(s, plan, even(plan.asked.sizes), single, 0.0)
        made = TableSelection(plan, single, [], "")
    units = plan.divided(plan.units // plan.most)[0]
    choice, runs = affordable_choice(plan.budget, units, 1), 5_000
    made._left = units * runs
    drawn = Counter(made._choose(found, range(3), units) for _ in range(runs))
    weights = [math.exp(choice.epsilon * float(u - max(found)) / 2) for u in found]
    for place, weight in enumerate(weights):
        p = weight / sum(weights)
        assert 0.01 < p < 0.99
        assert abs(drawn[place] - runs * p) < 6.7 * math.sqrt(runs * p * (1 - p))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_with_little_noise_the_tables_that_matter_are_chosen(method: str) -> None:
    with opened(budget=dn.Budget(epsilon=50, delta=1e-6)) as s:
        made = s.synthesize(method=method, share=1)
        assert {(0, 1), (1, 2)} <= set(made.asked.measured)
        rows = made.rows(3000).to_pandas()
        assert abs((rows.a == rows.b).mean() - (people().a == people().b).mean()) < 0.05
        assert made.quality["a", "b"] < 0.05
        assert "exponential mechanism" in " ".join(str(made.statement()).split())
        assert s.measured_errors(made).errors["a", "b"] < 0.05


@pytest.mark.parametrize("method", METHODS)
def test_weights_prefer_what_the_workload_needs(method: str) -> None:
    with opened() as s:
        if method == "mst":
            assert set(selection(s).asked.weights) == {Fraction(1)}
            return
        asked = selection(s, method, workload=[("a", "b", "c"), ("a", "d")]).asked
        told = dict(zip(asked.candidates, asked.weights, strict=True))
        # a × b shares two columns with the first table and one with the second; the table of three shares 3 + 1.
        assert told[0, 1] == Fraction(3, 4)
        assert told[1, 2] == Fraction(2, 4)
        assert told[0, 3] == Fraction(3, 4)
        assert told[0, 1, 2] == 1
        made = s.synthesize(method=method, workload=[("a", "b", "c")], share=1)
        assert set(made.asked.measured[4:]) <= {(0, 1), (0, 2), (1, 2), (0, 1, 2)}


# -- one entry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", BUDGETS, ids=NAMES)
def test_it_is_one_entry_charged_before_data_is_read_and_read_again(
    method: str, budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(budget=budget) as s:
        engine, seen = type(s._engine), []
        kept = engine.collect
        monkeypatch.setattr(engine, "collect", lambda *_: pytest.fail("data was read"))
        price = s.price_synthesis(method=method, share=1)
        assert price.to_dict()["chosen"]["candidates"] == 6
        monkeypatch.setattr(
            engine, "collect", lambda self, asked: seen.append(s.ledger.charged.units) or kept(self, asked)
        )
        made = s.synthesize(method=method, share=1)
        assert set(seen) == {price.cost.units} == {made.receipt.cost.units}
        assert len(seen) == 4 + 6
        again = s.synthesize(method=method, share=1)
        assert len(seen) == 10
        assert again.receipt.replayed
        assert again.asked.measured == made.asked.measured
        for one, other in zip(made.marginals, again.marginals, strict=True):
            assert one.columns == other.columns
            assert (one.counts == other.counts).all()
            assert one.variance == other.variance
        with pytest.raises(BudgetExceeded):
            s.synthesize(method="independent", share=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_record_keeps_what_was_chosen_and_a_forged_one_is_refused(method: str) -> None:
    said = {"table": "people", "columns": None, "target": None, "bins": None, "method": method}
    with opened() as s:
        made = s.synthesize(**said, epsilon=1)
        record = json.loads(json.dumps(synthetic_records.record_of(made, said, s._tables)))
        price = synthetic_records.price_record(s.price_synthesis(**said, epsilon=1))
        read = synthetic_records.read_price(json.loads(json.dumps(price)), said, s._tables)
        assert str(read) == str(s.price_synthesis(**said, epsilon=1))
    back = synthetic_records.read_record(record)
    assert back.asked.measured == made.asked.measured
    assert all((x.counts == y.counts).all() for x, y in zip(back.marginals, made.marginals, strict=True))
    record["rows"][-1][0] = ["a", "b", "c"]
    with pytest.raises(UnreadableRecord):
        synthetic_records.read_record(record)


@pytest.mark.parametrize("method", METHODS)
def test_keys_that_nobody_listed_are_found_before_tables_are_chosen(method: str) -> None:
    table = people().assign(d=lambda t: t.d.map({0: "x", 1: "y", 2: "z"}))
    with opened(table, schema={**SCHEMA, "d": dn.Domain.text()}) as s:
        made = s.synthesize(method=method, unlisted=["d"], epsilon=3)
        assert set(made.asked.columns[3].values) == {"x", "y", "z", None}
        again = s.synthesize(method=method, unlisted=["d"], epsilon=3)
        assert again.asked.measured == made.asked.measured


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "aim"}, "is not a known method"),
        ({"method": np.array(["mst", "pairs"])}, "is not a known method"),
        ({"method": "mst", "workload": [("a", "b")]}, 'workload and method="mst" each say'),
        ({"method": "mst", "target": "a"}, '^target: target and method="mst" each say.*"adaptive" takes'),
        ({"method": "adaptive", "workload": [("a", "b")], "target": "a"}, "workload and target each say"),
        ({"method": "adaptive", "workload": [("a", "nowhere")]}, "not one of the columns"),
        ({"method": "mst", "rows": 3}, "is too small for 3 rows"),
        ({"method": "adaptive", "epsilon": None, "share": 1e-20}, "is too small for"),
    ],
)
def test_bad_input_is_refused_and_nothing_charged(asked: dict[str, Any], said: str) -> None:
    with opened() as s:
        with pytest.raises(InvalidParameter, match=said):
            s.synthesize(**{"epsilon": 1, **asked})
        assert s.ledger.charged == Cost(0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("columns", [["a"], ["a", "d"]])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_few_columns_and_few_rows_are_answered(method: str, columns: list[str], count: int) -> None:
    with opened(people(50).head(count).astype("int64")) as s:
        made = s.synthesize(columns=columns, method=method, epsilon=0.5)
        assert made.count >= 1
        assert made.asked.measured[: len(columns)] == tuple((i,) for i in range(len(columns)))


@pytest.mark.parametrize("method", METHODS)
def test_a_failure_while_choosing_stays_charged_and_says_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableSelection, "_scores", lambda *_: [][1])
    with opened() as s:
        with pytest.raises(dn.errors.EngineFailed) as told:
            s.synthesize(method=method, share=1)
        assert told.value.__cause__ is None
        assert s.ledger.charged.units > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("last", [5, 10])
def test_a_count_to_choose_from_that_fails_is_answered_as_if_the_table_were_empty(method: str, last: int) -> None:
    """The first and the last of six such counts, which four counts by single columns precede."""
    engine = FailsAt(last, "time")
    with dn.session(
        {"people": people()}, unit=dn.Unit.row(), budget=BUDGETS[1], schema={"people": SCHEMA}, engine=engine
    ) as s:
        made = s.synthesize(method=method, share=1)
        assert len(made.marginals) >= 4 + 3
        assert [each.code for each in s.failures] == ["time"]
        assert s.synthesize(method=method, share=1).receipt.replayed


def test_methods_and_workloads_with_the_same_candidates_are_different_requests() -> None:
    """The same tables may be chosen from, but by another rule or with other weights."""
    with opened() as s:
        asked = [
            synthesis_request.asked("people", ["a", "b", "c"], tables=s._tables, **wanted)
            for wanted in (
                {"method": "mst"},
                {"method": "adaptive"},
                {"method": "adaptive", "workload": [("a", "b", "c")]},
                {"method": "adaptive", "workload": [("a", "b", "c"), ("a", "b")]},
            )
        ]
    assert asked[0].candidates == asked[1].candidates
    assert asked[2].candidates == asked[3].candidates
    assert len({each.hash for each in asked}) == 4


def test_fits_and_the_number_of_rounds_depend_on_released_counts_alone() -> None:
    """Without exact counts, everything but the scores works."""
    with opened() as s:
        plan = selection(s, "adaptive")
    single = [Marginal((i,), np.full(size, 3000 / size), 1.0) for i, size in enumerate(plan.asked.sizes)]
    made = TableSelection(plan, single, [], "")
    before, after = even(plan.asked.sizes), made._fitted()
    assert made._changed(before, before, [0, 1], 5.0) == 0.0
    assert made._changed(before, after, [0, 1], 5.0) >= 0.0
    with pytest.raises(IndexError):
        made._scores(before, [0], 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_audited_it_keeps_its_promise_and_a_choice_without_noise_is_caught(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row more or less decides which pair is farthest from an even fit, which is public. False alarm: 1e-9."""
    base = [(True, True, True)] * 100 + [(False, False, False)] * 100
    tables = [pd.DataFrame(rows, columns=list("abc")) for rows in (base, [*base, (True, False, True)])]
    budget, unit = dn.Budget.pure(epsilon=1), dn.Unit.row()
    monkeypatch.setattr(TableSelection, "_fitted", lambda self: even(self._plan.asked.sizes))
    noisy = TableSelection._choose

    def forgetful(self: Any, scores: Any, places: Any, units: int) -> Any:
        self._spend(units)
        return max(places, key=lambda place: scores[place])

    with ExitStack() as kept:
        sessions = [kept.enter_context(opened(table, budget, unit, BITS)) for table in tables]

        def told(which: int) -> Any:
            """With a ledger of its own each time, so that nothing is replayed."""
            first, ledger = sessions[which], Ledger.open(budget=budget, unit=unit, dataset="rows")
            made = Session(first._engine, first._tables, ledger).synthesize(method=method, share=1)
            chosen = [float(made.asked.candidates.index(each)) for each in made.asked.measured[3:]]
            return [*chosen[:2], *(float(each.counts.ravel()[0]) for each in made.marginals[:3])]

        claim = dn.curves.pure(epsilon=1)
        fair = audit.measure(told, neighbours=(0, 1), claim=claim, trials=200, confidence=1 - 1e-9)
        monkeypatch.setattr(TableSelection, "_choose", forgetful)
        caught = audit.measure(lambda i: told(i)[:2], neighbours=(0, 1), claim=claim, trials=100, confidence=1 - 1e-9)
        monkeypatch.setattr(TableSelection, "_choose", noisy)
    assert not fair.refuted
    assert caught.refuted
