"""`deniable.connect`: the verbs and faces of a local session, over a real socket."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import deniable as dn
from deniable.client import RemoteAnswer, RemoteBounds, RemoteSession
from deniable.client.remote_plans import of_question
from deniable.errors import (
    BudgetExceeded,
    InvalidOperation,
    InvalidParameter,
    QuestionRefused,
    ServerRefused,
    UnreadableRecord,
)
from deniable.queries import plan_dashboard
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.batch_price import Quoted
from deniable.queries.answer.release import Released
from deniable.server.api_records import answer_record
from deniable.server.catalogue.catalogue import Person
from deniable.server.roles import Role
from tests.queries.hospital import PURE, opened
from tests.server.world import WARDS, World
from tests.wording import worded


@pytest.fixture(scope="module")
def session(served: tuple[World, str]) -> Iterator[RemoteSession]:
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        yield remote


def test_a_dashboard_is_planned_from_the_public_schema(session: RemoteSession) -> None:
    questions = [WARDS, "SELECT COUNT(DISTINCT patient_id) AS n FROM visits"]
    wanted: dict[str, Any] = {"within": 50, "refreshes": 30}
    before = str(session.remaining)
    with opened() as here:
        assert (
            plan_dashboard(session, questions, **wanted).to_dict()
            == plan_dashboard(here, questions, **wanted).to_dict()
        )
    assert str(session.remaining) == before


def test_an_answer_has_the_faces_of_a_local_one(session: RemoteSession) -> None:
    remote = session.sql(WARDS, epsilon=1.0)
    with opened() as here:
        local = here.sql(WARDS, mu=1)
    assert {name for name in dir(local) if not name.startswith("_")} <= set(dir(remote))
    assert remote.columns == local.columns
    assert remote["ward"] == local["ward"]
    assert list(remote.to_pandas(intervals=True).columns) == list(local.to_pandas(intervals=True).columns)
    assert remote.to_polars().shape == local.to_polars().shape == (3, 2)
    assert all(low <= n <= high for n, (low, high) in zip(remote["n"], remote.interval("n"), strict=True))
    assert remote._repr_html_().count("<tr>") == local._repr_html_().count("<tr>")
    assert "noise interval" in str(remote)
    assert remote.receipt.entry > 0
    assert remote.plot() is not None
    assert remote.curve.gdp() > 0
    assert min(remote.nonnegative()["n"]) >= 0
    assert "entry" in repr(remote)
    assert remote.guarantee.curve == remote.curve
    assert remote.guarantee.unit == session.guarantee.unit
    assert remote.guarantee.assumptions == local.guarantee.assumptions
    with worded(InvalidOperation):
        session.rehearse(WARDS, epsilon=1.0).guarantee  # noqa: B018  # it raises


def test_kinds_survive_the_wire(session: RemoteSession) -> None:
    answer = session.sql(
        "SELECT ward, sex, AVG(cost) AS cost, COUNT(*) AS n FROM visits GROUP BY ward, sex", epsilon=5.0
    )
    assert {type(cell) for cell in answer["n"]} == {int}
    assert {type(cell) for cell in answer["cost"]} == {float}
    assert {type(cell) for cell in answer["ward"]} == {str}


def test_price_replay_refine_and_batch(session: RemoteSession) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 51"
    price = session.price(sql, epsilon=0.5)
    assert price.fits
    assert price.times > 1
    assert "cost" in str(price)
    assert price.errors()["n"] > 0  # type: ignore[operator]
    first = session.sql(sql, epsilon=0.5)
    assert session.sql(sql, epsilon=0.4).rows == first.rows
    finer = session.refine(first, epsilon=0.5)
    assert finer.interval("n")[0][1] - finer.interval("n")[0][0] < first.interval("n")[0][1] - first.interval("n")[0][0]  # type: ignore[index]
    several = session.batch([f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}" for age in (52, 53)], epsilon=0.5)
    assert [type(each) for each in several] == [RemoteAnswer, RemoteAnswer]


def test_a_dialect_is_named_as_in_a_local_session(session: RemoteSession) -> None:
    text = "SELECT COUNTIF(age > 47) AS n FROM `visits`"
    answer = session.sql(text, epsilon=0.5, dialect="bigquery")
    assert session.ask(text, epsilon=0.4, dialect="bigquery").rows == answer.rows
    assert session.sql("SELECT COUNT_IF(age > 47) AS n FROM visits", epsilon=0.4).rows == answer.rows
    assert session.refine(answer, epsilon=0.5).receipt.entry != answer.receipt.entry  # asked again in its dialect
    price = session.price(text, epsilon=0.5, dialect="bigquery")
    assert session.explain(price) == session.explain(
        session.price("SELECT COUNT_IF(age > 47) AS n FROM visits", epsilon=0.5)
    )
    [one] = session.batch([text], epsilon=0.4, dialect="bigquery")
    assert one.columns == ("n",)
    assert session.price([text], epsilon=0.4, dialect="bigquery").to_dict() == (
        session.price_batch([text], epsilon=0.4, dialect="bigquery").to_dict()
    )
    wrong = "SELECT COUNT(*) AS n FROM `visits` WHERE EXTRACT(DAYOFWEEK FROM age) = 1"
    with pytest.raises(QuestionRefused) as refused:
        session.price(wrong, epsilon=0.5, dialect="bigquery")
    with opened() as here, pytest.raises(QuestionRefused) as local:
        here.price(wrong, mu=1, dialect="bigquery")
    assert (refused.value.place, refused.value.instead) == (local.value.place, local.value.instead)
    with worded(InvalidParameter, parameter="dialect"):
        session.sql(text, epsilon=0.5, dialect="oracle")
    with worded(InvalidParameter, parameter="dialect"):
        session.ask(session.table("visits").agg(n=dn.count()), epsilon=0.5, dialect="spark")


def test_several_sets_of_keys_and_shares_are_answered_as_locally(session: RemoteSession) -> None:
    cube = "SELECT ward, sex, COUNT(*) AS n FROM visits WHERE age > 55 GROUP BY ROLLUP(ward, sex)"
    priced = session.price(cube, epsilon=0.5)
    assert isinstance(priced, Quoted)
    assert priced.to_dict() == session.price_batch(cube, epsilon=0.5).to_dict()
    assert [each.cells for each in priced.tables] == [6, 3, 1]
    answer = session.sql(cube, epsilon=0.5)
    assert [len(answer), *map(len, answer.tables)] == [10, 6, 3, 1]
    assert answer["n"][-1] == pytest.approx(sum(answer.tables[0]["n"]))  # type: ignore[arg-type]
    assert len({each.release for each in answer.tables}) == 3
    assert session.rehearse(cube, epsilon=0.5).columns == answer.columns
    text = "SELECT ward, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS p FROM visits WHERE age > 55 GROUP BY ward"
    assert session.price(text, epsilon=0.1).errors() == {"p": None}
    shares = session.sql(text, epsilon=0.1)
    assert sum(shares["p"]) == pytest.approx(1)  # type: ignore[arg-type]
    assert shares.tables == ()


def test_the_price_of_a_list_and_weights_are_those_of_a_local_session(
    session: RemoteSession, served: tuple[World, str]
) -> None:
    texts = [
        f"SELECT {keys}, COUNT(*) AS n FROM visits WHERE age > 54 GROUP BY {keys}" for keys in ("ward, sex", "sex")
    ]
    before = served[0].ledger.charged
    price = session.price(texts, epsilon=0.5, weights=[1, 1000])
    even = session.price(texts, epsilon=0.5)
    assert price[1].deviations["n"] < even[1].deviations["n"]  # type: ignore[operator]
    assert price[0].deviations["n"] > even[0].deviations["n"]  # type: ignore[operator]
    assert [len(price), price[0].is_together, price.fits] == [2, True, True]
    assert sum(share for _, share in price.split) == pytest.approx(1)
    assert str(price).startswith("table")
    near = session.price(texts, within=[None, 30.0])
    assert near[1].errors["n"] <= 30  # type: ignore[operator]
    assert near.cost == session.price_batch(texts, within=[None, 30]).cost
    assert served[0].ledger.charged == before
    answers = session.batch(texts, epsilon=0.5, weights=[1, 1000])
    widths = [each.interval("n")[0][1] - each.interval("n")[0][0] for each in answers]  # type: ignore[index]
    assert widths == pytest.approx([2 * each.errors["n"] for each in price.tables], rel=0.05)
    paid = served[0].ledger.charged.units - before.units
    assert 0 <= served[0].ledger.budget.cost(epsilon=0.5).units - paid < 10  # each share is rounded down to whole units
    assert answers[0].rollup("sex")["n"] == pytest.approx(answers[1]["n"])  # they were measured together
    assert answers[0].adding_up_to(answers[1]).rollup  # what a fit needs came along
    fair = session.price_batch(texts, epsilon=0.5, weights="fair")
    assert fair.cost == price.cost
    assert fair.split != price.split
    for wrong in ({"weights": [1]}, {"weights": [1, -1]}, {"weights": "12"}):
        with pytest.raises(InvalidParameter):
            session.price(texts, epsilon=0.5, **wrong)  # type: ignore[arg-type]
    of_numpy = session.price(texts, epsilon=0.5, weights=np.array([1, 1000]))  # type: ignore[call-overload]
    assert of_numpy.tables == price.tables
    assert session.price_batch(texts, within=np.array([40.0, 30.0])).fits  # type: ignore[arg-type]


def test_what_json_cannot_write_is_named(session: RemoteSession) -> None:
    """It was called a cost, whatever it was."""
    with worded(InvalidParameter):
        session.price_synthesis(workload=np.array([["ward", "sex"]]), epsilon=0.1)  # type: ignore[arg-type]
    with worded(InvalidParameter):
        session.price(WARDS, epsilon=float("nan"))


def test_the_account_and_the_schema(session: RemoteSession, served: tuple[World, str]) -> None:
    there, _ = served
    assert session.spent.gdp() == there.ledger.spent.gdp()
    assert "counts at" in str(session.remaining)
    assert session.budget == there.ledger.budget
    assert dict(session.tables["visits"].columns)["age"].bounds == (0, 100)
    assert repr(session.tables).startswith("visits: protects ")
    assert repr(session.guarantee) == repr(there.ledger.guarantee)
    assert len(session.dummy_rows(rows=7)["visits"]) == 7
    charged = there.ledger.charged
    rehearsed = session.rehearse("SELECT ward, AVG(cost) AS c FROM visits GROUP BY ward", epsilon=1.0)
    assert rehearsed.release is None
    assert "free: computed from dummy rows, not from data" in str(rehearsed)
    assert "paid" not in str(rehearsed)
    assert (rehearsed.receipt.paid, rehearsed.receipt.left) == ("nothing", "as much as before")
    assert None not in rehearsed["c"]  # enough rows for an average
    assert there.ledger.charged == charged


def test_errors_are_those_of_a_local_session(session: RemoteSession) -> None:
    with pytest.raises(QuestionRefused) as refused:
        session.sql("SELECT * FROM visits", epsilon=1.0)
    with opened() as here, pytest.raises(QuestionRefused) as local:
        here.sql("SELECT * FROM visits", mu=1)
    assert (refused.value.code, str(refused.value)) == (local.value.code, str(local.value))
    with pytest.raises(BudgetExceeded):
        session.sql(WARDS, epsilon=5000.0)
    for wrong in (
        {},
        {"epsilon": -1},
        {"epsilon": float("nan")},
        {"epsilon": "one"},
        {"seed": 1},
        {"epsilon": object()},
    ):
        with pytest.raises(InvalidParameter):
            session.sql(WARDS, **wrong)
    with pytest.raises(InvalidParameter):
        session.sql(7, epsilon=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        session.batch(WARDS, epsilon=1.0)
    with pytest.raises(InvalidParameter):
        session.refine("not an answer", epsilon=1.0)  # type: ignore[arg-type]


def test_what_only_a_server_can_say(served: tuple[World, str]) -> None:
    there, url = served
    with worded(ServerRefused, code="unauthorized", status=401):
        dn.connect(url, token="dn_0123456789abcdef_" + "a" * 43)
    with pytest.raises(ServerRefused, match="forbidden"):
        dn.connect(url, token=there.tokens["adam"])
    with pytest.raises(InvalidParameter, match="visits"):
        dn.connect(url, token=there.tokens["ana"], dataset="others")
    with dn.connect(url, token=there.tokens["ada"]) as auditor, pytest.raises(ServerRefused, match="forbidden"):
        auditor.sql(WARDS, epsilon=1.0)


def test_a_closed_session_says_so(served: tuple[World, str]) -> None:
    there, url = served
    remote = dn.connect(url, token=there.tokens["ana"])
    remote.close()
    with pytest.raises(InvalidOperation):
        remote.sql(WARDS, epsilon=1.0)


def test_what_is_wrong_is_said_in_plain_words(session: RemoteSession) -> None:
    for cost, words in (
        ({"epsilon": "one"}, "epsilon='one': must be a finite number, or the text of a decimal number or a ratio"),
        ({"epsilon": -1}, "epsilon=-1: must be more than 0"),
        ({"epsilon": float("inf")}, "epsilon=inf: must be a finite number"),
        ({"epsilon": True}, "epsilon=True: must be a finite number"),
        (
            {"seed": 1, "epsilon": 1.0},
            "seed=1: is not an argument of sql(); the arguments are question, epsilon, mu, rho, share",
        ),
    ):
        with pytest.raises(InvalidParameter) as found:
            session.sql(WARDS, **cost)
        assert str(found.value).startswith(words)


def test_a_question_that_is_no_text_is_named_by_its_type(session: RemoteSession) -> None:
    """It said question='NoneType', as if that had been asked."""
    with worded(InvalidParameter, parameter="question"):
        session.sql(None, epsilon=1.0)  # type: ignore[arg-type]


def test_an_answer_that_this_client_does_not_know() -> None:
    with pytest.raises(UnreadableRecord):
        RemoteAnswer({"columns": []}, WARDS)


def test_an_answer_lost_on_the_way_is_asked_again_for_nothing(
    session: RemoteSession, served: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    there, _ = served
    charged, sent, request = there.ledger.charged, [], session._wire._web.request

    def lossy(*arguments: Any, **more: Any) -> Any:
        answer = request(*arguments, **more)
        sent.append(answer.content)
        if len(sent) == 1:
            raise httpx.ReadError("lost")
        return answer

    monkeypatch.setattr(session._wire._web, "request", lossy)
    session.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 55", epsilon=0.5)
    assert sent[0] == sent[1]
    assert there.ledger.charged == charged + there.ledger.budget.cost(epsilon=0.5)


def test_tables_are_asked_as_in_a_local_session(served: tuple[World, str], session: RemoteSession) -> None:
    question = session.table("visits").filter(dn.col("age") > 40).group_by("ward").agg(n=dn.count(), c=dn.mean("cost"))
    assert session.price(question, epsilon=0.25).fits
    answer = session.ask(question, epsilon=0.25)
    assert answer.columns == ("ward", "n", "c")
    sql = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c FROM visits WHERE age > 40 GROUP BY ward"
    assert session.sql(sql, epsilon=0.25).receipt.replayed
    assert session.refine(answer, epsilon=0.25).columns == answer.columns
    assert session.rehearse(question, epsilon=0.25).release is None
    assert len(session.batch([question, sql], epsilon=0.25)) == 2
    with pytest.raises(QuestionRefused, match="no column"):
        session.table("visits").filter(dn.col("aeg") > 40)
    with worded(InvalidParameter):
        session.ask(session.table("visits"), epsilon=0.25)  # type: ignore[arg-type]


def test_explain_says_what_a_session_there_says_and_reads_nothing(
    session: RemoteSession, served: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = served[0].curator.open(Person("olga", Role.OWNER), "visits").session
    before = list(served[0].ledger.entries())
    answer = session.sql(WARDS, epsilon=0.5)
    monkeypatch.setattr(type(there._engine), "collect", lambda *_: 1 / 0)
    entries = len(list(served[0].ledger.entries()))
    assert session.explain(WARDS) == there.explain(WARDS)
    assert session.explain(answer) == there.explain(WARDS)
    priced = session.explain(session.price(WARDS, epsilon=0.3))
    assert priced == there.explain(there.price(WARDS, epsilon=0.3))
    assert "noise:" in priced
    assert "the engine runs:" in priced
    frame = session.table("visits").filter(dn.col("age") > 3).agg(n=dn.count())
    assert session.explain(frame) == there.explain("SELECT COUNT(*) AS n FROM visits WHERE age > 3")
    assert len(list(served[0].ledger.entries())) == entries >= len(before)
    with pytest.raises(QuestionRefused):
        session.explain("SELECT age FROM visits")
    elsewhere = RemoteSession(session._wire, "others")
    with worded(InvalidParameter, parameter="price"):
        elsewhere.explain(session.price(WARDS, epsilon=0.3))


def test_an_amount_without_a_name_is_refused_before_it_is_sent(session: RemoteSession) -> None:
    answer = session.sql("SELECT COUNT(*) AS n FROM visits", epsilon=0.1)
    calls: tuple[tuple[Any, object], ...] = (
        *((each, "SELECT 1") for each in (session.sql, session.ask, session.price, session.rehearse)),
        (session.refine, answer),
        (session.batch, ["SELECT 1"]),
    )
    for call, about in calls:
        with worded(InvalidParameter, parameter="cost"):
            call(about, 0.1)
    for bought in (session.bounds, session.price_bounds):
        with worded(InvalidParameter):
            bought("age", "visits", 0.1)  # type: ignore[arg-type]


def test_what_needs_the_law_of_noise_is_done_by_the_client(session: RemoteSession) -> None:
    """`shares` was an AttributeError, and `publish` said "must be answers of a session" of answers of a session."""
    from deniable import queries

    answer = session.sql("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", epsilon=0.01)
    assert sum(answer.shares()["n"]) == pytest.approx(1)  # type: ignore[arg-type]
    assert answer.rollup()["n"][0] == sum(answer["n"])  # type: ignore[arg-type]
    assert queries.publish([answer]).tables[0]["n"] is not None


def test_every_question_of_a_batch_is_read_in_its_own_dialect(session: RemoteSession) -> None:
    """The first dialect was that of all texts: the second one compared the text 'ward' with 'A', for its whole cost."""
    quoted = "SELECT COUNT(*) AS n FROM visits WHERE \"ward\" = 'A'"
    first = session.sql("SELECT COUNT(*) AS n FROM visits WHERE `sex` = 'f'", dialect="bigquery", epsilon=5)
    spark = session.sql("SELECT COUNT(*) AS n FROM visits WHERE `sex` = 'm'", dialect="spark", epsilon=5)
    for texts in ([first.question, quoted], [quoted, first.question], [first.question, spark.question, quoted]):
        answers = session.batch(texts, epsilon=5)
        for text, answer in zip(texts, answers, strict=True):
            assert answer.receipt.question == session.sql(text, epsilon=0.01).receipt.question
            assert answer.plan.question.hash == answer.receipt.question
        assert [each.words for each in session.price(texts, epsilon=5).tables] == [
            " ".join(each.split()) for each in texts
        ]


def test_answers_of_two_servers_and_rehearsals_are_not_combined(session: RemoteSession, world: World) -> None:
    """Both datasets have one name and one budget, and their answers were fitted to each other."""
    cells = "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex"
    here = session.sql(cells, epsilon=0.5)
    hash = session.price(WARDS, epsilon=0.5).plan.question.hash
    there = RemoteAnswer(world.ask(WARDS, epsilon=0.5).json(), WARDS, session._late(of_question(WARDS), hash))
    tried = session.rehearse(WARDS, epsilon=0.5)
    for other in (there, tried):
        with worded(InvalidParameter, parameter="totals"):
            here.adding_up_to(other)  # type: ignore[arg-type]
    assert here.adding_up_to(session.sql(WARDS, epsilon=0.5)).rows  # type: ignore[arg-type]


def test_what_is_computed_from_an_answer_is_an_answer_of_the_server(session: RemoteSession) -> None:
    """Roll-ups and fits had no dataset or curve, and `refine` and `explain` refused them."""
    cells: Any = session.sql("SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex", epsilon=1)
    total: Any = session.sql(WARDS, epsilon=3)
    fitted = cells.adding_up_to(total)
    rolled = cells.rollup("ward")
    for made in (fitted, rolled, cells.rounded(base=5), cells.nonnegative(), cells.shares(), fitted.rounded(base=5)):
        assert type(made) is type(cells)
        assert (made.dataset, made.question, made.release) == (cells.dataset, cells.question, cells.release)
        assert made.curve == made.guarantee.curve
        assert made.to_dict()["rows"] == [list(row) for row in made.rows]
        assert made.notes
    assert fitted.curve != cells.curve, "it rests on both answers"
    assert session.refine(fitted, epsilon=1).released.precision.units > cells.released.precision.units
    assert session.explain(fitted) == session.explain(cells)
    assert "sex = " in session.explain(cells)
    assert "sex = " not in session.explain(rolled)
    with worded(InvalidParameter, parameter="answer"):
        session.refine(rolled, epsilon=1)


def test_a_rehearsed_answer_is_changed_like_a_paid_one(session: RemoteSession) -> None:
    tried: Any = session.rehearse("SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex", epsilon=1)
    total: Any = session.rehearse(WARDS, epsilon=1)
    for made in (tried.rounded(base=5), tried.rollup("ward"), tried.nonnegative(), tried.adding_up_to(total)):
        assert made.rows
        assert made.receipt.dummy
        assert made.to_dict()["dummy"] is True
        with worded(InvalidOperation):
            made.guarantee  # noqa: B018  # it raises
    with worded(InvalidParameter, parameter="answer"):
        session.refine(tried, epsilon=1)


def test_an_answer_of_a_server_is_copied(session: RemoteSession) -> None:
    answer: Any = session.sql(WARDS, epsilon=1)
    for made in (copy.copy(answer), copy.deepcopy(answer), copy.deepcopy([answer])[0], copy.deepcopy(answer.shares())):
        assert made.rollup().rows if made.adjustments == () else made.rows
        assert made.receipt == answer.receipt


def test_no_confidence_is_refused_and_columns_may_be_an_iterator(session: RemoteSession) -> None:
    """No confidence was 95 %, and an iterator was empty when the request was sent, after its price was asked."""
    with worded(InvalidParameter, parameter="confidence"), opened() as here:
        here.sql(WARDS, mu=1, confidence=None)  # type: ignore[arg-type]
    with worded(InvalidParameter, parameter="confidence"):
        session.sql(WARDS, epsilon=1, confidence=None)  # type: ignore[arg-type]
    columns: Any = iter(["ward", "sex"])
    made = session.synthesize("visits", columns=columns, epsilon=1, rows=3000)
    assert set(made.rows(5).to_pandas().columns) == {"ward", "sex"}


def test_a_share_that_only_a_batch_answers_is_refined(session: RemoteSession) -> None:
    text = "SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM visits GROUP BY ward HAVING COUNT(*) > 1"
    with pytest.raises(QuestionRefused):
        session.sql(text, epsilon=1)
    [first] = session.batch([text], epsilon=5)
    assert sum(session.refine(first, epsilon=1)["p"]) == pytest.approx(1)  # type: ignore[arg-type]


def test_a_refinement_keeps_the_confidence_and_needs_an_answer_of_this_dataset(session: RemoteSession) -> None:
    answer = session.ask(WARDS, epsilon=0.5, confidence=0.8)
    assert session.refine(answer, epsilon=0.5).confidence == 0.8
    assert session.refine(answer, epsilon=0.5, confidence=0.9).confidence == 0.9
    other = copy.copy(answer)
    other.dataset = "others"
    spent = session.remaining.cost
    with worded(InvalidParameter, parameter="answer"):
        session.refine(other, epsilon=0.5)
    assert session.remaining.cost == spent


def test_an_answer_that_the_server_changed_is_not_fitted_again(session: RemoteSession) -> None:
    shares = session.sql("SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM visits GROUP BY ward", epsilon=5)
    assert max(shares.rounded(base=1)["n"]) <= 1  # type: ignore[type-var]
    for call in (shares.rollup, shares.shares):  # type: ignore[union-attr]
        with worded(InvalidParameter, parameter="answer"):
            call()


def test_a_changed_answer_is_written_as_changed(session: RemoteSession) -> None:
    answer = session.ask("SELECT age, COUNT(*) AS n FROM visits GROUP BY age", epsilon=0.01)
    raised = answer.nonnegative()
    assert min(answer["n"]) < 0  # type: ignore[type-var]
    assert raised.to_dict()["rows"] == [list(row) for row in raised.rows]
    assert raised.to_dict()["adjusted"]
    assert answer.to_dict()["rows"] == [list(row) for row in answer.rows]


def test_weights_may_be_any_numbers(session: RemoteSession) -> None:
    sexes = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex"
    texts, weights = [WARDS, sexes], (Fraction(1, 2), Decimal("500"))
    price = session.price_batch(texts, epsilon=0.5, weights=weights)  # type: ignore[arg-type]
    assert price.tables == session.price_batch(texts, epsilon=0.5, weights=[0.5, 500]).tables


def test_cells_that_are_moments_and_bounds_that_are_never_null_are_read_as_such(session: RemoteSession) -> None:
    record: Any = dict(session.ask(WARDS, epsilon=0.5).to_dict())
    record["kinds"], record["rows"] = ["timestamp", "integer"], [["2026-01-02T03:04:05", 7]] * 3
    answer = RemoteAnswer(record, WARDS)
    assert answer["ward"][0] == dt.datetime(2026, 1, 2, 3, 4, 5)
    bought = {"table": "visits", "column": "age", "kind": "integer", "low": 0, "high": 9, "cover": 0.9, "line": "age"}
    for nullable in (True, False):
        bounds = RemoteBounds.read(bought | {"nullable": nullable}, answer)
        assert bounds.domain is not None
        assert bounds.domain.nullable is nullable
        assert hash(bounds) == hash(copy.copy(bounds))


def test_a_median_that_an_earlier_version_read_from_running_totals_has_their_plan() -> None:
    text = "SELECT MEDIAN(age) AS m FROM visits"
    with opened(budget=PURE) as here:
        drawn: Any = here.sql(text, epsilon=1)
        totals = drawn.plan.totals
        assert totals is not None
        zeros = np.zeros((1, totals.parts[0].statistic.width), dtype=np.int64)
        units = drawn.released.precision.units
        released = Released(((),), (zeros,), drawn.released.cost, drawn.released.precision, (units,))
        older = Answer(totals, released, drawn.budget, drawn.guarantee, drawn.receipt, drawn.confidence)
        read = RemoteAnswer(answer_record("visits", older), text, lambda: drawn.plan)
        assert read.plan is totals
        assert (read.rows, read.released.parts[0].tolist()) == (older.rows, zeros.tolist())
