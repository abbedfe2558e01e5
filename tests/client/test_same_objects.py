"""Local and remote are the same objects: one script on a session here and on one of a server, attribute by attribute."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.client import RemoteSession
from deniable.client.remote_session import connect
from deniable.errors import (
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    MissingExtra,
    QuestionRefused,
    ServerRefused,
)
from deniable.queries import plan_dashboard
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.batch_price import Quoted
from deniable.queries.answer.grouping_sets import Grouped
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.remaining_budget import Remaining
from deniable.queries.plan.pricing import Price
from deniable.queries.session import Session
from deniable.queries.standing_questions import Standing
from deniable.server.catalogue.catalogue import Person
from deniable.server.roles import Role
from deniable.transport import Wire
from tests.queries.hospital import visits
from tests.server.world import BUDGET, SCHEMA, WARDS, World
from tests.wording import worded

COSTS = ("epsilon", "mu", "rho", "share", "within", "delta", "confidence")
PAYING = (
    "sql", "ask", "price", "price_batch", "batch", "refine", "bounds", "price_bounds", "synthesize", "price_synthesis",
)  # fmt: skip
ROLLUP = "SELECT ward, sex, COUNT(*) AS n FROM visits WHERE age > 30 GROUP BY ROLLUP(ward, sex)"
SHARES = "SELECT ward, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS p FROM visits WHERE age > 30 GROUP BY ward"
TOWNS = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"
MEANS = "SELECT sex, AVG(cost) AS c, COUNT(*) AS n FROM visits GROUP BY sex"
PRICE_APART = {
    "plan": "holds what it has worked out so far; the hash of its question is compared",
    "left": "what each account has",
    "times": "how often `left` pays for it",
}
PRICE_MORE = {"asked": "the request", "read": "reads a record", "record": "what the server sent"}
ANSWER_APART = {
    "plan": "as in a price",
    "receipt": "compared by itself",
    "released": "compared by itself",
    "rows": "noise",
    "value": "raises unless there is one cell",
}
ANSWER_MORE = {
    "curve": "as text",
    "dataset": "of the server",
    "question": "as it was sent",
    "release": "its name on the server",
    "tables": "one answer, or those of several sets of keys",
}
RECEIPT_APART = {
    "version": "here a keyed hash of the rows, which a server does not send: it sends the name of the dataset",
    "entry": "the number of the charge in each ledger",
    "ledger": "the serial number of each ledger",
    "rest": "what each account has",
    "time": "of the charge",
}
RELEASED_APART = {
    "parts": "noise",
    "marks": "which name the ledger",
    "measured": "which name the ledger",
    "law": "contains marks",
}
SEXES = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"
MEDIAN = "SELECT MEDIAN(age) AS m FROM visits"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The same table, schema and budget as the server of these tests has."""
    schema = tmp_path_factory.mktemp("local") / "visits.yaml"
    schema.write_text(SCHEMA, encoding="utf-8")
    with dn.session({"visits": visits()}, schema=str(schema), budget=dn.Budget(**BUDGET)) as s:
        yield s


@pytest.fixture(scope="module")
def remote(served: tuple[World, str]) -> Iterator[RemoteSession]:
    there, url = served
    with connect(url, token=there.tokens["ana"]) as s:
        yield s


def names(thing: object) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


def compare(
    here: object, there: object, *, apart: Mapping[str, str], more: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Every public attribute of the local object has the same type and value there, and every method the same arguments.

    `apart` names the attributes whose values differ, and says why; `more` those that only the remote object has.
    """
    assert set(apart) <= set(names(here)), "an exception that is not needed any more is taken off the list"
    assert set(names(there)) - set(names(here)) == set(more)
    for name in set(names(here)) - set(apart):
        mine, other = getattr(here, name), getattr(there, name)
        if inspect.ismethod(mine):
            assert arguments(other) == arguments(mine), name
        else:
            assert type(other) is type(mine), name
            assert other == mine, name


def arguments(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def test_every_cost_is_a_named_argument_with_a_type_here_and_there() -> None:
    """`**cost: Any` hid them from completion, help() and type checkers."""
    for name in (*PAYING, "rehearse"):
        sides = [
            inspect.signature(getattr(kind, name)).parameters
            for kind in (Session, RemoteSession)
            if hasattr(kind, name)
        ]
        for parameters in sides:
            for cost in COSTS:
                assert parameters[cost].kind is inspect.Parameter.KEYWORD_ONLY, (name, cost)
                assert parameters[cost].annotation not in ("", inspect.Parameter.empty), (name, cost)
            assert [each.annotation for each in parameters.values() if each.kind is each.VAR_KEYWORD] == ["Never"]
        if len(sides) == 2:
            here, there = sides
            assert set(here) - set(there) <= {"key", "payer", "text"}, (
                "the server knows who pays, and sends its own keys"
            )
            assert list(there) == [each for each in here if each in there], name
            assert [each.default for each in there.values()] == [here[each].default for each in there], name


def test_a_misspelt_argument_is_named_with_the_nearest_one(local: Session, remote: RemoteSession) -> None:
    sides: tuple[Any, ...] = (local, remote)
    for s in sides:
        for name in PAYING:
            call = getattr(s, name)
            with worded(InvalidParameter, parameter="eps", asked=0.1) as refused:
                call("age", eps=0.1)
            assert f" {name}();" in str(refused.value)
        for call in (s.synthesize, s.price_synthesis):
            with worded(InvalidParameter, parameter="colums"):
                call("visits", colums=["age"], epsilon=0.1)


def test_a_session_has_the_same_attributes(local: Session, remote: RemoteSession) -> None:
    assert set(names(local)) <= set(names(remote))
    assert type(remote.budget) is type(local.budget)
    assert remote.budget == local.budget
    assert remote.budget.epsilon == 100
    assert remote.tables == local.tables
    assert type(remote.remaining) is Remaining
    assert remote.remaining.unit == local.remaining.unit
    assert remote.remaining.budget == local.budget
    assert remote.remaining.counts(within=10) > 0
    assert remote.guarantee == local.guarantee
    assert type(remote.spent) is type(local.spent)
    refused: tuple[Callable[[], object], ...] = (
        lambda: remote.ledger,
        lambda: remote.registration,
        lambda: remote.failures,
        lambda: remote.measured_errors(None),  # type: ignore[arg-type]
        lambda: remote.recall(WARDS),
        lambda: remote.report_failures(print),  # type: ignore[arg-type]
        lambda: remote.limit_answers(cells=3),
        lambda: remote.limits(),
    )
    for each in refused:
        with pytest.raises(DeniableError) as said:
            each()
        assert isinstance(said.value, InvalidOperation | ServerRefused)


def test_what_only_an_owner_may_read_an_owner_reads(served: tuple[World, str], local: Session) -> None:
    there, url = served
    with connect(url, token=there.tokens["olga"]) as owner:
        found, here = owner.registration["visits"], local.registration["visits"]
        compare(here, found, apart={"version": "a keyed hash, with the secret of each ledger"})
        assert found.describe() == here.describe()
        assert owner.failures == ()


@pytest.mark.parametrize("text", [WARDS, TOWNS, MEANS, MEDIAN, SHARES])
def test_a_price_is_the_same_object(local: Session, remote: RemoteSession, text: str) -> None:
    """Nothing is drawn, so every value is the same; `left` is what each account has."""
    for cost in ({"epsilon": 0.25}, {"mu": 0.1, "confidence": 0.9}):
        here, there = local.price(text, **cost), remote.price(text, **cost)  # type: ignore[arg-type]
        assert isinstance(there, Price)
        assert dataclasses.replace(there, left=here.left).times == here.times
        compare(here, there, apart=PRICE_APART, more=PRICE_MORE)
        for call in ("errors", "rank_errors", "split"):
            assert getattr(there, call)() == getattr(here, call)(), call
        assert there.errors(rows=50) == here.errors(rows=50)
        assert there.plan.question.hash == here.plan.question.hash
        assert there.lines()[:-1] == here.lines()[:-1]
        assert there.is_met_by(here.cost)
        assert set(here.to_dict()) <= set(there.to_dict())


def test_the_price_of_a_batch_is_the_same_object(local: Session, remote: RemoteSession) -> None:
    texts = [WARDS, "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex", MEANS]
    for here, there in (
        (local.price(texts, epsilon=0.5), remote.price(texts, epsilon=0.5)),
        (local.price_batch(ROLLUP, epsilon=0.5), remote.price_batch(ROLLUP, epsilon=0.5)),
        (local.price(ROLLUP, epsilon=0.5), remote.price(ROLLUP, epsilon=0.5)),
    ):
        assert type(here) is type(there) is Quoted
        assert (there.budget, there.cost, there.confidence) == (here.budget, here.cost, here.confidence)
        assert there.tables == here.tables
        assert there.split == here.split


def same_answer(here: Answer, there: Answer) -> None:
    """Whatever no noise is in."""
    assert isinstance(there, Answer)
    compare(here, there, apart=ANSWER_APART, more=ANSWER_MORE)
    compare(here.receipt, there.receipt, apart=RECEIPT_APART)
    compare(here.released, there.released, apart=RELEASED_APART)
    assert [each.cost for each in there.released.measured] == [each.cost for each in here.released.measured]
    assert type(there.released.law) is type(here.released.law)
    assert [(each.dtype, each.shape) for each in there.released.parts] == [
        (each.dtype, each.shape) for each in here.released.parts
    ]
    assert (there.measured, there.counted) == (here.measured, here.counted)
    assert there.guarantee == here.guarantee
    assert there.budget == here.budget
    assert type(there.receipt) is Receipt
    assert (there.receipt.cost, there.receipt.question) == (here.receipt.cost, here.receipt.question)
    assert (there.receipt.paid, there.receipt.replayed) == (here.receipt.paid, here.receipt.replayed)
    assert there.plan.question.hash == here.plan.question.hash
    assert type(there.released) is type(here.released)
    assert (there.released.cost, there.released.precision) == (here.released.cost, here.released.precision)
    assert there.adjustments == here.adjustments
    assert set(here.to_dict()) <= set(there.to_dict())


@pytest.mark.parametrize("text", [WARDS, TOWNS, MEANS, MEDIAN, SHARES])
def test_an_answer_is_the_same_object(local: Session, remote: RemoteSession, text: str) -> None:
    here, there = (
        local.sql(text, epsilon=2.0, delta=1e-8 if text == TOWNS else None),
        remote.sql(text, epsilon=2.0, delta=1e-8 if text == TOWNS else None),
    )
    assert isinstance(here, Answer)
    assert isinstance(there, Answer)
    same_answer(here, there)
    again = Answer(there.plan, there.released, there.budget, there.guarantee, there.receipt, there.confidence)
    if text != SHARES:
        assert again.rows == there.rows, "the noisy statistics are those that the server worked its cells out from"
        assert again.interval(there.columns[-1]) == there.interval(there.columns[-1])
        assert again.notes == there.notes


def test_what_is_done_to_an_answer_is_the_same(local: Session, remote: RemoteSession) -> None:
    text = "SELECT ward, sex, COUNT(*) AS n FROM visits WHERE age > 20 GROUP BY ward, sex"
    sides: tuple[Any, ...] = (local, remote)
    found = []
    for s in sides:
        answer = s.sql(text, epsilon=1.0)
        finer = s.refine(answer, epsilon=1.0)
        assert finer.confidence == answer.confidence
        by_ward = answer.rollup("ward")
        assert by_ward["n"] == tuple(sum(answer["n"][i : i + 2]) for i in (0, 2, 4))
        shares = answer.shares()
        assert sum(shares["n"]) == pytest.approx(1)
        rounded = answer.nonnegative().rounded(base=5)
        assert {n % 5 for n in rounded["n"]} == {0}
        total = s.sql("SELECT ward, COUNT(*) AS n FROM visits WHERE age > 20 GROUP BY ward", epsilon=8.0)
        fitted = answer.adding_up_to(total)
        assert [sum(fitted["n"][i : i + 2]) for i in (0, 2, 4)] == pytest.approx(list(total["n"]))
        statement = str(answer.statement())
        found.append(
            {
                "refined": (finer.receipt.cost, finer.released.precision, finer.guarantee),
                "words": [each.adjusted.split("charge")[0] for each in (by_ward, shares, rounded, fitted)],
                "explained": s.explain(answer),
                "statement": statement[: statement.index("charge")],
                "curves": (answer.guarantee.curve, shares.guarantee.curve),
            }
        )
    assert found[0] == found[1]


def test_a_refined_share_is_a_share(local: Session, remote: RemoteSession) -> None:
    """Here it was the count under the name of the share; there the adjustment was missing, so that rounding read it."""
    sides: tuple[Any, ...] = (local, remote)
    for s in sides:
        first = s.sql(SHARES, epsilon=5)
        for finer in (s.refine(first, epsilon=5), s.refine(s.refine(first, epsilon=1), epsilon=1)):
            assert sum(finer["p"]) == pytest.approx(100)
            assert finer.adjusted == first.adjusted
            assert finer.to_dict()["kinds"] == ["text", "real"]
            assert max(finer.rounded(base=5)["p"]) <= 100
            assert sum(s.refine(finer, epsilon=1)["p"]) == pytest.approx(100)
        counted = s.sql(WARDS, epsilon=5)
        assert sum(s.refine(counted.shares(), epsilon=1)["n"]) == pytest.approx(1)
    same_answer(*(s.refine(s.sql(SHARES, epsilon=5), epsilon=5) for s in sides))
    same_answer(*(s.batch([SHARES], epsilon=5)[0] for s in sides))


def test_several_tables_are_the_same_object(local: Session, remote: RemoteSession) -> None:
    here, there = local.sql(ROLLUP, epsilon=1.0), remote.sql(ROLLUP, epsilon=1.0)
    assert isinstance(here, Grouped)
    assert isinstance(there, Grouped)
    assert set(names(here)) <= set(names(there))
    assert there.columns == here.columns
    assert there.guarantee == here.guarantee
    assert there.receipt.cost == here.receipt.cost
    assert len(there.tables) == len(here.tables) == 3
    for a, b in zip(here.tables, there.tables, strict=True):
        same_answer(a, b)
    several = local.batch([WARDS, MEANS], epsilon=3.0), remote.batch([WARDS, MEANS], epsilon=3.0)
    for a, b in zip(*several, strict=True):
        same_answer(a, b)


def test_several_tables_are_explained_here_and_there(local: Session, remote: RemoteSession) -> None:
    """A local session refused the answer to ROLLUP, and a server refused one of its tables as if it had no rule."""
    here, there = local.sql(ROLLUP, epsilon=1.0), remote.sql(ROLLUP, epsilon=1.0)
    assert isinstance(here, Grouped)
    assert local.explain(here) == remote.explain(there) == local.explain(ROLLUP)  # type: ignore[arg-type]
    for mine, other in zip(here.tables, there.tables, strict=True):
        assert local.explain(mine).startswith(remote.explain(other))  # type: ignore[arg-type]
        assert local.explain(mine).count("groups:") == 1
    with worded(InvalidParameter, parameter="answer"):
        remote.refine(there.tables[0], epsilon=1)  # type: ignore[arg-type]
    by_ward = "SELECT ward, COUNT(*) AS n FROM visits WHERE age > 30 GROUP BY ward"
    for s in (local, remote):
        alone: Any = s.sql(by_ward, epsilon=0.1)
        assert alone.receipt.paid.startswith("nothing"), "the tables have it"
        assert s.refine(alone, epsilon=1).rows


@pytest.mark.slow
def test_standing_questions_are_the_same_object(
    served: tuple[World, str], local: Session, remote: RemoteSession
) -> None:
    there, url = served
    with connect(url, token=there.tokens["olga"]) as owner:
        about: dict[str, Any] = {"by": "age", "epsilon": 2}
        here, made = (s.standing("daily", [WARDS, MEANS], **about) for s in (local, owner))
        totals = [s.standing("totals", [WARDS], totals=30, **about) for s in (local, owner)]
        assert isinstance(made, Standing)
        assert owner.standings() == remote.standings() == local.standings() == ["daily", "totals"]
        compare(here, made, apart={"session": "each its own"}, more={"read": "reads a record"})
        for mine, other in ((here, remote.standing("daily")), totals):
            for a, b in zip(mine.prices(), other.prices(), strict=True):
                compare(a, b, apart=PRICE_APART, more=PRICE_MORE)
        assert remote.standing("daily").recall(40) is None
        with worded(InvalidOperation):
            remote.standing("daily").reveal(40)
        for mine, other in ((here, made), totals):
            for day in (40, 41):
                for a, b in zip(mine.reveal(day), other.reveal(day), strict=True):
                    same_answer(a, b)
        assert here.days() == made.days() == remote.standing("daily").days() == [41, 40]
        mine, theirs = here.reveal(40), remote.standing("daily").reveal(40)
        for a, b in zip(mine, theirs, strict=True):
            same_answer(a, b)
        assert [each.rows for each in theirs] == [each.rows for each in made.reveal(40)]
        for s in (local, owner):
            with worded(InvalidParameter, parameter="day"):
                s.standing("daily").reveal("2026-01-01")
            with worded(InvalidParameter, parameter="name"):
                s.standing("daily", [WARDS], **about)
        with worded(ServerRefused, code="not_found", status=404):
            owner.standing("weekly")
        with worded(ServerRefused, code="forbidden", status=403):
            remote.standing("mine", [WARDS], **about)


@pytest.mark.slow
def test_a_standing_question_about_different_rows_states_the_noise_of_each(
    served: tuple[World, str], local: Session, remote: RemoteSession
) -> None:
    """Each part has a share of its own there; a server and its clients stated the noise of one share for both."""
    there, url = served
    halves = "SELECT COUNT_IF(ward = 'A') AS a, COUNT_IF(NOT ward = 'A') AS b FROM visits"
    with connect(url, token=there.tokens["olga"]) as owner:
        mine, made = (s.standing("halves", [halves], by="age", epsilon=2) for s in (local, owner))
        price = mine.prices()[0]
        stated = price.errors()["a"]
        assert stated > 1.4 * local.price(halves, epsilon=2).errors()["a"]  # type: ignore[operator]  # a count has an error
        assert made.prices()[0].errors(rows=77)["a"] == stated
        assert made.prices()[0].plan.parts[0].weight == price.plan.parts[0].weight
        for found in (mine.reveal(40), made.reveal(40), remote.standing("halves").reveal(40)):
            [(low, high)] = found[0].interval("a")
            assert (high - low) / 2 == pytest.approx(stated, abs=1)
        told = remote._wire.get("/v1/datasets/visits/standing/halves/days/40?confidence=0.95")
        (low, high), _ = told["answers"][0]["intervals"][0]
        assert (high - low) / 2 == pytest.approx(stated, abs=1)
        released = there.curator.released(Person("olga", Role.OWNER), told["answers"][0]["release"])
        (low, high), _ = released["intervals"][0]
        assert (high - low) / 2 == pytest.approx(stated, abs=1)


def test_a_cost_may_be_any_number_here_and_there(local: Session, remote: RemoteSession) -> None:
    """The types of the arguments said so, and a server refused all but floats."""
    quarters = (0.25, "0.25", "1/4", Fraction(1, 4), Decimal("0.25"), np.float32(0.25), np.longdouble("0.25"))
    exact: tuple[Any, ...] = quarters
    for cost in ("epsilon", "mu", "rho", "share"):
        for amount in exact:
            here, there = (s.price(WARDS, **{cost: amount}).cost for s in (local, remote))
            assert there == here or cost == "share"  # of what is left
        for amount in ("0.1", Fraction(1, 10), Decimal("0.1")):
            assert remote.price(WARDS, epsilon=amount).cost == local.price(WARDS, epsilon=0.1).cost
    longer: tuple[Any, ...] = (
        Fraction(1, 3),
        Fraction(2, 3),
        Decimal("0.1") + Decimal("1e-20"),
        Fraction(10**20 - 1, 10**20),
    )
    for fine in longer:
        here, there = (s.price(WARDS, epsilon=fine).cost.units for s in (local, remote))
        assert here * (1 - 1e-15) <= there <= here, "rounded down to a float"
    wrong: tuple[Any, ...] = ("much", Fraction(-1, 2), Decimal("nan"), "", "1e-400")
    for amount in wrong:
        for s in (local, remote):
            with worded(InvalidParameter, parameter="epsilon"):
                s.price(WARDS, epsilon=amount)
    assert local.price(TOWNS, epsilon=1, delta="1e-8").cost == remote.price(TOWNS, epsilon=1, delta="1e-8").cost


def test_an_error_in_a_group_of_rows_is_asked_for_here_and_there(local: Session, remote: RemoteSession) -> None:
    pairs: tuple[Any, ...] = ((2, 100), [2, 100], np.array([2, 100]), (Fraction(2), 100), {"m": (Fraction(2), 100)})
    average = "SELECT ward, AVG(age) AS m FROM visits GROUP BY ward"
    for within in pairs:
        assert remote.price(average, within=within).cost == local.price(average, within=within).cost
    each: tuple[Any, ...] = ([(2, 100), 30], [{"m": (2, 100)}, Fraction(30)], [{"m": [2, 100]}, {"n": 30}])
    for within in each:
        here, there = (s.price_batch([average, WARDS], within=within) for s in (local, remote))
        assert here.cost == there.cost
    for s in (local, remote):
        with worded(InvalidParameter, parameter="within"):
            s.price_batch([average, average], within=[(2, 100), {"m": (2, 100)}])


def test_several_questions_are_a_list_here_and_there(local: Session, remote: RemoteSession) -> None:
    """No list was a TypeError there, and a dict was sent."""
    nothing: tuple[Any, ...] = (None, 3, WARDS, [], {WARDS: 1}, {WARDS}, ROLLUP)
    for questions in nothing:
        for s in (local, remote):
            for call in (s.batch, s.price_batch) if questions != ROLLUP else (s.batch,):
                with worded(InvalidParameter, parameter="questions"):
                    call(questions, epsilon=1)


def test_several_tables_are_refused_where_one_is_asked_for(local: Session, remote: RemoteSession) -> None:
    """There `ask` was charged for all tables, and returned an answer without a plan."""
    sides: tuple[Any, ...] = (local, remote)
    calls: tuple[Callable[[Any], object], ...] = (
        lambda s: s.ask(ROLLUP, epsilon=0.125),
        lambda s: s.ask(ROLLUP, epsilon=0.125, dialect="postgres"),
        lambda s: s.batch([ROLLUP], epsilon=0.125),
        lambda s: s.price_batch([ROLLUP], epsilon=0.125),
        lambda s: s.price([ROLLUP], epsilon=0.125),
        lambda s: s.batch((ROLLUP, WARDS), epsilon=0.125),
    )
    for call in calls:
        found = []
        for s in sides:
            before = s.remaining.cost
            with pytest.raises(QuestionRefused) as refused:
                call(s)
            assert s.remaining.cost == before
            found.append((refused.value.code, str(refused.value), refused.value.instead))
        assert found[0] == found[1]
    named = "SELECT COUNT(*) AS rollup_n FROM visits WHERE town = 'rollup'"
    assert remote.ask(named, epsilon=0.125).columns == ("rollup_n",)
    assert remote.price_batch([named], epsilon=0.125).cost == local.price_batch([named], epsilon=0.125).cost


def test_an_error_names_the_same_argument(served: tuple[World, str], local: Session) -> None:
    """An entry of a list was named by its position, and a name that is no text was a TypeError of urllib."""
    there, url = served
    with connect(url, token=there.tokens["olga"]) as owner:
        wrong: tuple[tuple[str, Callable[[Any], object]], ...] = (
            ("weights", lambda s: s.batch([WARDS], epsilon=0.1, weights=[-1])),
            ("epsilon", lambda s: s.sql(WARDS, epsilon=-1)),
            ("delta", lambda s: s.price(TOWNS, epsilon=0.1, delta=0)),
            ("delta", lambda s: s.price(TOWNS, epsilon=0.1, delta=1)),
            ("within", lambda s: s.price(WARDS, within={"n": -1})),
            ("within", lambda s: s.price(WARDS, within={"n": True})),
            ("bins", lambda s: s.price_synthesis(columns=["age"], bins={"age": 1}, epsilon=1)),
            ("column", lambda s: s.price_bounds(5, epsilon=1)),
            ("columns", lambda s: s.price_synthesis(columns=[1], epsilon=1)),
            ("name", lambda s: s.standing(5)),
            ("name", lambda s: s.standing("")),
            ("questions", lambda s: s.standing("some", [5], by="age", epsilon=1)),
            ("questions", lambda s: s.standing("some", 5, by="age", epsilon=1)),
            ("questions", lambda s: s.standing("some", [], by="age", epsilon=1)),
            ("questions", lambda s: s.standing("some", WARDS, by="age", epsilon=1)),
            ("by", lambda s: s.standing("some", [WARDS], epsilon=1)),
        )
        for parameter, call in wrong:
            for s in (local, owner):
                with worded(InvalidParameter, parameter=parameter):
                    call(s)


@pytest.mark.parametrize("fresh", ["no", "", 0, 1, None])
def test_a_wish_to_ask_again_is_true_or_false(local: Session, remote: RemoteSession, fresh: Any) -> None:
    """The text "no" counted as True, and the question was charged a second time."""
    for s in (local, remote):
        s.sql(WARDS, epsilon=0.1)
        before = s.spent
        for ask in (s.sql, s.ask):
            with worded(InvalidParameter, parameter="fresh"):
                ask(WARDS, epsilon=0.1, fresh=fresh)
        assert s.spent == before


def test_an_empty_question_is_refused_alike(local: Session, remote: RemoteSession) -> None:
    """A server called it an empty `sql`, which is not an argument of the session."""
    for question in ("", "  "):
        for s in (local, remote):
            for ask in (s.sql, s.price):
                with pytest.raises(QuestionRefused, match="one SELECT"):
                    ask(question, epsilon=0.1)
            with pytest.raises(QuestionRefused, match="one SELECT"):
                s.batch([WARDS, question], epsilon=0.1)


def test_an_error_shows_the_number_that_was_asked(local: Session, remote: RemoteSession) -> None:
    """A server repeats no value of a request, so its errors did not say what had been asked."""
    for wrong in ({"epsilon": -1.5}, {"epsilon": 0.1, "confidence": 95}, {"share": 2}, {"epsilon": 10**7}):
        for s in (local, remote):
            with pytest.raises(InvalidParameter) as found:
                s.price(WARDS, **wrong)
            assert found.value.asked == wrong[found.value.parameter]


def test_a_dashboard_is_planned_by_the_description_of_the_tables(local: Session, remote: RemoteSession) -> None:
    here, there = (plan_dashboard(s, [WARDS, SEXES], within=[20, 90], refreshes=5, by="age") for s in (local, remote))
    assert here == there


def test_a_question_of_a_dataframe_and_a_rehearsal_are_the_same_object(local: Session, remote: RemoteSession) -> None:
    sides: tuple[Any, ...] = (local, remote)
    here, there = (
        s.ask(s.table("visits").filter(dn.col("age") > 10).group_by("sex").agg(n=dn.count()), epsilon=0.5)
        for s in sides
    )
    same_answer(here, there)
    tried = remote.rehearse(WARDS, epsilon=0.5)
    assert isinstance(tried, Answer)
    assert tried.released.groups == (("A",), ("B",), ("C",))
    assert tried.receipt.cost == dn.ledger.Cost(0)
    assert tried.receipt.rest == remote.remaining.cost
    with worded(InvalidOperation):
        tried.guarantee  # noqa: B018  # it raises


def test_without_the_extra_for_sql_an_answer_is_shown_and_its_plan_says_what_is_missing(
    remote: RemoteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT ward, COUNT(*) AS n FROM visits WHERE age > 60 GROUP BY ward"
    price, answer = remote.price(text, epsilon=0.5), remote.sql(text, epsilon=0.5)

    def missing(*_: object) -> None:
        raise MissingExtra("sqlglot", "sql")

    monkeypatch.setattr("deniable.client.remote_plans.Plans", missing)
    assert answer.receipt.cost == price.cost
    assert price.errors()["n"] is not None
    assert price.curve == answer.guarantee.curve
    assert min(answer.nonnegative()["n"]) >= 0  # type: ignore[type-var]
    assert "This table" in str(answer.statement())
    for needs in (lambda: answer.plan, lambda: answer.rollup(), lambda: price.plan):
        with pytest.raises(MissingExtra):
            needs()


def test_an_older_server_is_refused_before_anything_is_paid(
    served: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, url = served
    monkeypatch.setattr(Wire, "get", lambda self, path: {"datasets": [{"name": "visits"}]})
    with pytest.raises(InvalidOperation, match="runs an older version of deniable"):  # at a port of this run
        connect(url, token=there.tokens["ana"])
