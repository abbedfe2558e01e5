"""Standing questions: paid once, answered for each day, and no person has more rows over all days than their bound."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.ledger import Cost, Ledger, State
from deniable.queries import standing_records
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.standing_days import PEOPLE, Days
from deniable.queries.standing_records import begun
from deniable.tables.schema import Table
from tests.wording import worded

ROWS = 3
UNIT = dn.Unit.person("patient_id", rows=ROWS)
BUDGET = dn.Budget.pure(epsilon=10)
SCHEMA = {
    "day": dn.Domain.integer(0, 400),
    "x": dn.Domain.integer(0, 10),
    "ward": dn.Domain.text("A", "B"),
}
COUNT = "SELECT COUNT(*) AS n FROM visits"
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
MEAN = "SELECT AVG(x) AS mean FROM visits WHERE x > 2"


def opened(source: Any, ledger: Any = None, **more: Any) -> dn.queries.Session:
    about = {"unit": UNIT, "budget": BUDGET, "schema": SCHEMA, "ledger": ledger} | more
    return dn.session({"visits": source}, **about)


def table(seed: int, people: int = 15, rows: int = 120, days: int = 6) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "patient_id": chance.integers(0, people, rows),
            "day": chance.integers(0, days, rows),
            "x": chance.integers(0, 11, rows),
            "ward": np.array(["A", "B"])[chance.integers(0, 2, rows)],
        }
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, pd.DataFrame]]:
    """(day, its rows) of each run: what the engine counts before noise."""
    found: list[tuple[int, pd.DataFrame]] = []
    honest = DuckDBEngine.day

    def watched(self: DuckDBEngine, source: Any, schema: Any, secret: bytes, day: Any, limits: Any) -> Any:
        rows = honest(self, source, schema, secret, day, limits)
        found.append((day[1], rows.to_pandas()))
        return rows

    monkeypatch.setattr(DuckDBEngine, "day", watched)
    return found


# -- the bound over all days ---------------------------------------------------------------------------------------


def test_the_first_rows_of_each_person_count_and_no_more(read: list[tuple[int, pd.DataFrame]]) -> None:
    """By brute force over a table: a person's days are filled in order until their rows are used up."""
    frame = table(1)
    with opened(frame) as session:
        standing = session.standing("daily", [COUNT], by="day", epsilon=1)
        for day in range(6):
            standing.reveal(day)
    used: Counter[int] = Counter()
    for day, rows in read:
        there = Counter(frame[frame["day"] == day]["patient_id"])
        expected = {who: min(n, ROWS - used[who]) for who, n in there.items() if used[who] < ROWS}
        assert Counter(rows["patient_id"].astype(int)) == expected
        assert set(rows["day"]) <= {day}
        used.update(expected)
    assert max(used.values()) == ROWS


def test_no_version_gives_rows_back(tmp_path: Path, read: list[tuple[int, pd.DataFrame]]) -> None:
    """Red team: the rows of answered days are erased, moved, written twice or renumbered in every new version."""
    chance = np.random.default_rng(5)
    frame = table(2)
    for day in range(6):
        with opened(frame, tmp_path / "ledger", version=f"v{day}") as session:
            standing = session.standing("daily", [COUNT, WARDS], by="day", epsilon=1)
            standing.reveal(day)
            assert session.ledger.charged == session.budget.cost(epsilon=1)
        past = frame["day"] <= day
        frame = frame.copy()
        frame.loc[past & (chance.random(len(frame)) < 0.5), "day"] = min(day + 1, 5)  # moved to a later day
        frame = pd.concat(
            [frame[~((frame["day"] <= day) & (chance.random(len(frame)) < 0.3))], frame[frame["day"] > day]]
        )
    total = Counter(who for _, rows in read for who in rows["patient_id"].astype(int))
    assert len(read) == 6
    assert max(total.values()) <= ROWS
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.verify()


@pytest.mark.slow
def test_one_person_changes_nothing_for_others(read: list[tuple[int, pd.DataFrame]]) -> None:
    """Neighbours by brute force: without one person, the rows of all others are the same on every day."""
    frame = table(3, people=6, rows=60, days=4)

    def kept(source: pd.DataFrame) -> list[set[tuple[Any, ...]]]:
        read.clear()
        ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits", secret=b"k" * 32)
        with opened(source, ledger) as session:
            standing = session.standing("daily", [COUNT], by="day", epsilon=1)
            for day in range(4):
                standing.reveal(day)
        return [set(Counter(rows.astype(str).itertuples(index=False, name=None)).items()) for _, rows in read]

    whole = kept(frame)
    for person in range(6):
        without = kept(frame[frame["patient_id"] != person])
        for day in range(4):
            assert {each for each in whole[day] if each[0][0] != str(person)} == without[day]


def test_used_rows_are_stored_encrypted_and_under_pseudonyms(tmp_path: Path) -> None:
    frame = pd.DataFrame({"patient_id": ["ann-secret-id"] * 5, "day": 0, "x": 1, "ward": "A"})
    with opened(frame, tmp_path / "ledger") as session:
        session.standing("daily", [COUNT], by="day", epsilon=1).reveal(0)
        session.ledger.export(tmp_path / "export.jsonl")
        answers = [each.answer or b"" for each in session.ledger.entries()]
    assert not any(b"ann" in each for each in answers)
    assert "ann" not in (tmp_path / "export.jsonl").read_text()
    assert b"ann-secret-id" not in (tmp_path / "ledger").read_bytes()


@pytest.mark.parametrize("kind", [dn.Domain.integer(), dn.Domain.date(dt.date(2000, 1, 1), dt.date(2027, 1, 1))])
def test_ids_of_another_kind_are_other_pseudonyms_and_refused(tmp_path: Path, kind: dn.Domain) -> None:
    """The id "01" read as an integer is "1", which would have all its rows again."""
    frame = table(4).assign(patient_id="01")
    with opened(frame, tmp_path / "ledger") as session:
        session.standing("daily", [COUNT], by="day", epsilon=1).reveal(0)
    with opened(frame, tmp_path / "ledger", schema={**SCHEMA, "patient_id": kind}) as session:
        with worded(InvalidOperation):
            session.standing("daily")
        with pytest.raises(InvalidParameter):
            session.standing("daily", [COUNT], by="day", epsilon=1)


def test_a_declaration_without_the_kind_of_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(table(4)) as session:
        session.standing("daily", [COUNT], by="day", epsilon=1)
        known = standing_records.declaration(session.ledger, "daily")
        assert known is not None
        del known["unit"]["kind"]
        monkeypatch.setattr(standing_records, "declaration", lambda *_: known)
        with worded(InvalidOperation):
            session.standing("daily")


@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("first", ["integer", "date"])
def test_days_of_another_kind_are_refused_and_named(
    first: str, is_declared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`days()` and running totals raised a bare ValueError. The second case is a declaration without the kind of days."""
    kinds = {"integer": SCHEMA["day"], "date": dn.Domain.date(dt.date(2026, 1, 1), dt.date(2027, 1, 1))}
    [other] = {*kinds} - {first}
    frames = {"integer": table(4), "date": table(4).assign(day=dt.date(2026, 1, 1))}
    with opened(frames[first], tmp_path / "ledger", schema={**SCHEMA, "day": kinds[first]}) as session:
        session.standing("daily", [COUNT], by="day", epsilon=1).reveal(0 if first == "integer" else "2026-01-01")
    if not is_declared:
        honest = standing_records.declaration
        known = lambda *given: {  # noqa: E731
            name: each for name, each in honest(*given).items() if name != "by_kind"
        }
        monkeypatch.setattr(standing_records, "declaration", known)
    with opened(frames[other], tmp_path / "ledger", schema={**SCHEMA, "day": kinds[other]}) as session:
        if is_declared:
            with worded(InvalidOperation) as refused:
                session.standing("daily")
            assert re.findall("|".join(kinds), str(refused.value)) == [first, other]
        else:
            with pytest.raises(InvalidOperation, match="another kind"):
                session.standing("daily").days()


# -- paying and reading ----------------------------------------------------------------------------------------------


def test_paid_once_and_read_again_after_a_restart(tmp_path: Path) -> None:
    where, frame = tmp_path / "ledger", table(4)
    with opened(frame, where) as session:
        standing = session.standing("daily", [COUNT, MEAN], by="day", epsilon=2)
        first = standing.reveal(0)
        assert [each.receipt.cost for each in first] == [Cost(0), Cost(0)]
        assert first[0].receipt.paid == "nothing (all days were paid for when it was declared)"
        assert first[0].guarantee.curve.epsilon(delta=0) == pytest.approx(1)
        assert "an id names the same person in all versions of the table" in first[0].guarantee.assumptions
    with opened(frame.iloc[1:], where) as session:
        standing = session.standing("daily")
        assert standing.questions == (COUNT, MEAN)
        assert [each.rows for each in standing.reveal(0)] == [each.rows for each in first]
        again = session.standing("daily", [COUNT, MEAN], by="day", epsilon=2)  # the same declaration is free
        again.reveal(1)
        assert again.days() == [1, 0]
        assert session.ledger.charged == BUDGET.cost(epsilon=2)
        assert not session.sql(COUNT, epsilon=1).receipt.replayed  # a day is not the table
        with worded(InvalidParameter, parameter="answer"):
            session.refine(first[0], epsilon=1)
        with worded(InvalidParameter, parameter="name"):
            session.standing("daily", [COUNT], by="day", epsilon=2)
        with worded(InvalidParameter, parameter="name"):
            session.standing("weekly")
        with pytest.raises(BudgetExceeded):
            session.standing("more", [COUNT], by="day", epsilon=9)
        session.ledger.verify()
    other = opened(frame, where, unit=dn.Unit.person("patient_id", rows=9))
    with other as session, pytest.raises(InvalidOperation, match="rows=3"):
        session.standing("daily")  # otherwise old noise would stand for more rows


def test_a_day_that_was_broken_off_is_finished_and_answered_once(tmp_path: Path) -> None:
    with opened(table(4), tmp_path / "ledger") as session:
        ledger = session.ledger
        standing = session.standing("daily", [COUNT], by="day", epsilon=1)
        stuck = [
            begun(ledger, "standing daily rows used after 0", "1" * 64, "rows used", None),
            begun(ledger, standing._key(0, 0), "2" * 64, "a day", "standing daily 0"),
        ]
        answers = standing.reveal(0)
        for entry in stuck:  # whoever began it can no longer publish a second answer
            with pytest.raises(InvalidParameter):
                ledger.seal(entry, b"another answer")
        assert standing.reveal(0)[0].rows == answers[0].rows
        sealed = [
            each for each in ledger.entries() if each.state is State.SEALED and each.version == "standing daily 0"
        ]
        assert len(sealed) == 1
        ledger.verify()


def test_two_processes_cannot_both_use_the_rows_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one claims rows of day 0, another claims rows of day 1 from the same remainder."""
    frame = pd.DataFrame({"patient_id": [1] * 6, "day": [0] * 3 + [1] * 3, "x": 1, "ward": "A"})
    ledger = Ledger.open(budget=BUDGET, unit=UNIT, dataset="visits")
    honest, claims = DuckDBEngine.claim, []
    with opened(frame, ledger) as session, opened(frame, ledger) as other:
        mine = session.standing("daily", [COUNT], by="day", epsilon=1)
        theirs = other.standing("daily")

        def racing(self: DuckDBEngine, source: Any, schema: Any, secret: bytes, day: Any, used: Any) -> Any:
            found = honest(self, source, schema, secret, day, used)
            claims.append((day[1], int(found["rows"].sum())))
            if len(claims) == 1:
                theirs.reveal(1)
            return found

        monkeypatch.setattr(DuckDBEngine, "claim", racing)
        with pytest.raises(InvalidParameter):
            mine.reveal(0)  # its entry was closed by the other one, and nothing about day 0 left
        assert mine.days() == [1]
        mine.reveal(0)
    assert claims == [(0, 3), (1, 3), (0, 0)]


# -- noise -------------------------------------------------------------------------------------------------------------


def test_thirty_daily_tiles_at_epsilon_3_have_a_deviation_below_90() -> None:
    """Asked day by day they have 1,622: √365 times as much. Independent answer: σ = rows·√tiles/μ with the budget's μ."""
    budget, unit = dn.Budget(epsilon=3, delta=1e-6), dn.Unit.person("patient_id", rows=10)
    tiles = [
        f"SELECT COUNT(*) AS n FROM visits WHERE x >= {low} AND day < {400 - more}"
        for low in range(10)
        for more in range(3)
    ]
    with opened(table(4), None, budget=budget, unit=unit) as session:
        standing = session.standing("daily", tiles, by="day", share=1)
        made = [session._planned(each) for each in tiles]
        answers = standing.reveal(0)
        deviations = [each.released.deviation(plan, budget, 0) for each, plan in zip(answers, made, strict=True)]
        mu = session.budget.curve(Cost(30 * standing.cost.units)).gdp()
    assert len(tiles) == 30
    assert deviations == pytest.approx([10 * math.sqrt(30) / mu] * 30, rel=1e-3)
    assert max(deviations) < 90
    assert 1500 < max(deviations) * math.sqrt(365) < 1700


def test_the_noise_of_a_day_is_what_was_planned() -> None:
    """3,000 empty groups: the variance of Laplace noise on integers in closed form.

    The estimate has a relative standard deviation of √(5/3000) = 0.041 (kurtosis 6), so 0.3 is beyond 7 of them (false
    alarm below 1e-9 by the normal tail), and a scale wrong by 30 % is found.
    """
    frame = pd.DataFrame({"patient_id": [1], "day": [0], "x": [1], "ward": ["A"]})
    schema = {**SCHEMA, "key": dn.Domain.integer(keys=range(3000), nullable=False)}
    with opened(frame.assign(key=0), None, schema=schema) as session:
        text = "SELECT key, COUNT(*) AS n FROM visits GROUP BY key"
        standing = session.standing("daily", [text], by="day", epsilon=1)
        [answer] = standing.reveal(1)  # a day without rows
    tail = math.exp(-1 / ROWS)
    assert np.var(answer["n"]) == pytest.approx(2 * tail / (1 - tail) ** 2, rel=0.3)


# -- what cannot stand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "SELECT COUNT(DISTINCT patient_id) AS n FROM visits",
        "SELECT COUNT(DISTINCT x) AS n FROM visits",
        "SELECT MEDIAN(x) AS m FROM visits",
        "SELECT MAX(x) AS m FROM visits",
        "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.patient_id = b.patient_id",
        "SELECT COUNT(*) AS n FROM (SELECT patient_id, SUM(x) AS s FROM visits GROUP BY patient_id) WHERE s > 3",
        "SELECT town, COUNT(*) AS n FROM visits GROUP BY town",
    ],
)
def test_only_sums_over_rows_by_public_keys_can_stand(question: str) -> None:
    """COUNT(DISTINCT person) has sensitivity 1 for one row and for all: on as many days as rows it would be too exact."""
    schema = {**SCHEMA, "town": dn.Domain.text()}
    budget = dn.Budget(epsilon=1, delta=1e-6)
    with opened(table(1).assign(town="Ghent"), None, schema=schema, budget=budget) as session:
        with worded(QuestionRefused):
            session.standing("daily", [question], by="day", epsilon=0.5)
        assert session.ledger.charged.units == 0


@pytest.mark.parametrize(
    "unit", [dn.Unit.row(), dn.Unit.replaced_person("patient_id", rows=3), dn.Unit.replaced_row()], ids=str
)
def test_only_people_who_are_added_or_removed(unit: dn.Unit) -> None:
    """Replaced: all rows on day 0 instead of day 1 move two parts, and so √2 times as much as one."""
    with opened(table(1), None, unit=unit) as session, worded(InvalidParameter, parameter="table"):
        session.standing("daily", [COUNT], by="day", epsilon=1)


def test_arguments() -> None:
    with opened(table(1)) as session:
        for wrong, parameter in (("ward", "by"), ("patient_id", "by"), ("nothing", "by")):
            with worded(InvalidParameter, parameter=parameter):
                session.standing("daily", [COUNT], by=wrong, epsilon=1)
        dated = f"{COUNT} WHERE CURRENT_DATE > DATE '2026-01-01'"
        for questions in ([], COUNT, [COUNT, COUNT], [1], [dated]):
            with worded(InvalidParameter, parameter="questions"):
                session.standing("daily", questions, by="day", epsilon=1)  # type: ignore[arg-type]
        clocks = ("CURRENT_DATE", "today/**/()", '"today"()', "CURDATE()")  # the last in Spark's dialect
        for clock, line in zip(clocks, ("", "", "", "-- dialect: spark\n"), strict=True):
            with worded(InvalidParameter, parameter="questions"):
                session.standing("daily", [f"{line}{COUNT} WHERE {clock} > DATE '2026-01-01'"], by="day", epsilon=1)
        with worded(InvalidParameter, parameter="name"):
            session.standing("a b", [COUNT], by="day", epsilon=1)
        standing = session.standing("daily", [COUNT], by="day", epsilon=1)
        assert repr(standing) == "<Standing 'daily': 1 question about 'visits' by 'day'>"
        assert standing.prices()[0].cost == standing.cost
        for day in ("2026-01-01", 1.5, True, dt.date(2026, 1, 1), 2**63):
            with worded(InvalidParameter, parameter="day"):
                standing.reveal(day)  # type: ignore[arg-type]


def test_a_pseudonym_depends_on_the_secret_of_the_ledger() -> None:
    """Unkeyed hashes of ids could be reversed by hashing all ids."""
    schema = Table("visits", tuple(SCHEMA.items()), UNIT)
    with DuckDBEngine(threads=1) as engine:
        nobody = np.empty(0, dtype=PEOPLE)
        one, other, again = (
            {bytes(each) for each in engine.claim(table(1), schema, secret, Days("day", 1), nobody)["who"]}
            for secret in (b"1" * 32, b"2" * 32, b"1" * 32)
        )
    assert len(one) == len(other) > 5
    assert one == again
    assert one.isdisjoint(other)


def test_another_column_of_ids_is_refused(tmp_path: Path) -> None:
    """Under ids of another column everybody would have all rows again."""
    frame = table(1)
    frame["visit"] = range(len(frame))
    with opened(frame, tmp_path / "ledger") as session:
        session.standing("daily", [COUNT], by="day", epsilon=1)
    other = dn.Unit.person("visit", rows=ROWS)
    with opened(frame, tmp_path / "ledger", unit=other) as session, worded(InvalidOperation):
        session.standing("daily")


def test_a_day_is_read_with_the_schema_of_its_answer(tmp_path: Path) -> None:
    with opened(table(1), tmp_path / "ledger") as session:
        session.standing("daily", ["SELECT SUM(x) AS s FROM visits"], by="day", epsilon=1).reveal(0)
    with opened(table(1), tmp_path / "ledger", schema={**SCHEMA, "x": dn.Domain.integer(0, 20)}) as session:
        standing = session.standing("daily")
        for read in (standing.recall, standing.reveal):
            with worded(InvalidOperation):
                read(0)
        assert standing.recall(1) is None


def test_a_stream_has_no_days() -> None:
    """It is empty after registration: every day was answered, for good, as if it had no rows."""
    pa = pytest.importorskip("pyarrow")
    with opened(pa.Table.from_pandas(table(1)).to_reader()) as session:
        standing = session.standing("daily", [COUNT], by="day", epsilon=1)
        with worded(InvalidParameter, parameter="table"):
            standing.reveal(0)
        assert standing.days() == []


def test_a_renewing_budget_has_no_standing_questions() -> None:
    """A set that is paid in week 1 reveals days in week 2, whose own budget may be spent too: a person whose rows are
    all in week 2 risked up to two budgets, and the ledger stated the risk of one."""
    weekly = dn.ledger.Renewal(dn.Budget.pure(epsilon=1), per="week", periods=52)
    with opened(table(1), budget=weekly) as session:
        with worded(InvalidOperation):
            session.standing("daily", [COUNT], by="day", epsilon=0.5)
        assert session.ledger.charged.units == 0
        assert session.standings() == []


def test_days_are_dates_too(tmp_path: Path) -> None:
    frame = table(1)
    frame["day"] = [dt.date(2026, 1, 1) + dt.timedelta(int(each)) for each in frame["day"]]
    schema = {**SCHEMA, "day": dn.Domain.date(dt.date(2026, 1, 1), dt.date(2026, 12, 31))}
    path = tmp_path / "visits.parquet"
    frame.to_parquet(path)
    with opened(path, None, schema=schema, budget=dn.Budget.pure(epsilon=2000)) as session:
        standing = session.standing("daily", [COUNT], by="day", epsilon=1000)
        [answer] = standing.reveal("2026-01-01")
        there = Counter(frame[frame["day"] == dt.date(2026, 1, 1)]["patient_id"])
        assert answer["n"][0] == sum(min(each, ROWS) for each in there.values())
        assert standing.days() == [dt.date(2026, 1, 1)]
        with worded(InvalidParameter, parameter="day"):
            standing.reveal("yesterday")
