"""Joins as analysts write them: the rows of plain DuckDB, and no person owns more rows than the plan says.

Each relation is evaluated row by row in plain Python on random tables, with and without each person. Stability is the
claim that a person owns at most `relation.rows` rows and changes nobody else's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.relations.relation_nodes import JoinPrivate, Source
from deniable.queries.sql.sql_reader import parse
from deniable.tables.kinds import Domain
from deniable.tables.schema import Schema, Table, read_schema, write_schema
from deniable.units import Unit
from tests.queries.answers import answers
from tests.queries.engines.evaluate import Row, Stored, registered, rows_of
from tests.queries.sql.test_sql_reader import SECRET, data
from tests.wording import worded

duckdb = pytest.importorskip("duckdb")

Draw = Callable[[random.Random], dict[str, list[dict[str, Any]]]]
FORMS = [
    "SELECT COUNT(*) AS n FROM visits v, stays s WHERE v.patient_id = s.patient_id AND s.days > 1",
    "SELECT COUNT(*) AS n FROM stays s, wards w, visits v WHERE w.ward = v.ward AND v.patient_id = s.patient_id",
    "SELECT COUNT(*) AS n FROM visits v CROSS JOIN stays s WHERE s.patient_id = v.patient_id AND s.place = v.diagnosis",
    "SELECT COUNT(*) AS n FROM visits, wards WHERE (visits.ward = wards.ward AND beds > 5) OR (visits.ward = wards.ward AND age > 50)",
    "SELECT COUNT(*) AS n FROM stays s RIGHT JOIN visits v ON v.patient_id = s.patient_id",
    "SELECT COUNT(*) AS n FROM wards w RIGHT JOIN visits v ON v.ward = w.ward",
    "SELECT COUNT(*) AS n, COUNT(s.patient_id) AS m FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id AND s.days > 1",
    "SELECT COUNT(DISTINCT s.patient_id) AS n FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id AND s.place = 'flu'",
    "SELECT COUNT(DISTINCT CASE WHEN v.age > 30 THEN s.patient_id END) AS n FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id",
    "SELECT COUNT(*) AS n FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id WHERE s.patient_id IS NULL",
    "SELECT COUNT(*) AS n FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id WHERE s.patient_id IS NOT NULL",
    "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id AND s.days > 1)",
    "SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id)",
    "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT * FROM stays s WHERE s.patient_id = v.patient_id AND place = v.diagnosis)",
    "SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT * FROM stays s WHERE v.patient_id = s.patient_id AND s.place = v.diagnosis)",
    "SELECT COUNT(*) AS n FROM main.visits v WHERE EXISTS (SELECT 1 FROM visits w, stays s WHERE w.patient_id = s.patient_id AND v.patient_id = w.patient_id AND w.ward = v.ward)",
    "SELECT COUNT(*) AS n FROM visits v JOIN (SELECT patient_id, diagnosis AS d, COUNT(*) AS k FROM visits GROUP BY patient_id, diagnosis) t ON t.patient_id = v.patient_id AND t.d = v.diagnosis",
    "SELECT COUNT(*) AS n FROM visits v LEFT JOIN (SELECT patient_id, place, MAX(days) AS k FROM stays GROUP BY patient_id, place) t ON t.patient_id = v.patient_id AND t.place = v.diagnosis",
]  # fmt: skip
SHOP: Schema = {
    table.name: table
    for table in (
        Table("orders", (("order_id", Domain.integer(1, 9, nullable=False)), ("total", Domain.integer(0, 9))),
              Unit.person("patient_id", rows=4), unique=("order_id",)),
        Table.of("items", Unit.person("patient_id", rows=6), order_id=Domain.integer(1, 9), price=Domain.integer(0, 9)),
    )
}  # fmt: skip
UNIQUE = [
    "SELECT COUNT(*) AS n FROM orders o JOIN items i ON i.order_id = o.order_id",
    "SELECT COUNT(*) AS n FROM items i, orders o WHERE i.order_id = o.order_id AND total > 3",
    "SELECT COUNT(*) AS n FROM items i LEFT JOIN orders o ON o.order_id = i.order_id AND o.patient_id = i.patient_id",
    "SELECT COUNT(*) AS n FROM orders o LEFT JOIN items i ON o.order_id = i.order_id WHERE i.patient_id IS NULL",
    "SELECT COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.order_id AND price > 3)",
    "SELECT COUNT(*) AS n FROM (SELECT * FROM orders WHERE total > 2) o JOIN items i ON i.order_id = o.order_id AND i.patient_id = o.patient_id",
]  # fmt: skip
REFUSED = [
    "SELECT COUNT(*) FROM visits, stays",
    "SELECT COUNT(*) FROM visits v, stays s WHERE v.diagnosis = s.place",
    "SELECT COUNT(*) FROM visits, wards",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.place = v.diagnosis)",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id AND s.days > v.age AND s.days < v.cost)",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM wards w WHERE w.ward = v.ward)",
    "SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id GROUP BY s.place)",
    "SELECT COUNT(*) FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id AND v.age > 3",
    "SELECT COUNT(*) FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id WHERE s.patient_id > 'p3'",
    "SELECT s.patient_id, COUNT(*) FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id GROUP BY s.patient_id",
    "SELECT COUNT(*) FROM visits v FULL JOIN stays s ON s.patient_id = v.patient_id",
]  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> Any:
    stored = {name: registered(EXAMPLE[name], rows, SECRET) for name, rows in data().items()}
    with duckdb.connect() as plain:
        plain.execute(
            "CREATE TABLE visits (patient_id VARCHAR, age INT, ward VARCHAR, diagnosis VARCHAR, cost DOUBLE, visited DATE)"
        )
        plain.execute("CREATE TABLE stays (patient_id VARCHAR, days INT, place VARCHAR)")
        plain.execute("CREATE TABLE wards (ward VARCHAR, city VARCHAR, beds INT)")
        columns = {
            "visits": ("age", "ward", "diagnosis", "cost", "visited"),
            "stays": ("days", "place"),
            "wards": ("ward", "city", "beds"),
        }
        for name, kept in stored.items():
            rows = [[row.values[each] for each in columns[name]] for row in kept]
            if EXAMPLE[name].unit is not None:
                rows = [[row.person, *values] for row, values in zip(kept, rows, strict=True)]
            plain.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        yield stored, plain


EXISTS = [
    f"SELECT COUNT(*) AS n FROM visits v WHERE {no} (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id AND {met})"
    for no in ("EXISTS", "NOT EXISTS")
    for met in (
        "s.days > v.age",
        "v.age >= s.days",
        "s.days <> v.age",
        "s.days < v.age",
        "v.age < s.days AND s.days > 1",
    )
]


@pytest.mark.parametrize("text", [*FORMS, *EXISTS])
def test_a_join_has_the_rows_of_duckdb(text: str, tables: Any) -> None:
    stored, plain = tables
    assert answers(parse(text, EXAMPLE), stored) == plain.execute(text).fetchall()


@pytest.mark.parametrize("text", REFUSED)
def test_other_joins_are_refused(text: str) -> None:
    with pytest.raises(QuestionRefused):
        parse(text, EXAMPLE)


def world(chance: random.Random) -> dict[str, list[dict[str, Any]]]:
    people = [f"p{k}" for k in range(4)]
    visits = [
        {"patient_id": chance.choice(people), "age": chance.choice([None, 20, 60]), "ward": chance.choice(["A", "B"]),
         "cost": 1.0, "weight": None, "visited": None, "diagnosis": chance.choice(["flu", "cold", None])}
        for _ in range(chance.randrange(30))
    ]  # fmt: skip
    stays = [
        {
            "patient_id": chance.choice(people),
            "days": chance.choice([None, 0, 3]),
            "place": chance.choice(["flu", "cold"]),
        }
        for _ in range(chance.randrange(12))
    ]
    return {"visits": visits, "stays": stays, "wards": data()["wards"]}


def shop(chance: random.Random, *, honest: bool) -> dict[str, list[dict[str, Any]]]:
    """Orders and items; if not honest, with ids of orders that several rows and people share."""
    people = [f"p{k}" for k in range(4)]
    ids = chance.sample(range(1, 10), chance.randrange(10))
    owners = {each: chance.choice(people) for each in ids}
    orders = [{"patient_id": who, "order_id": each, "total": chance.randrange(9)} for each, who in owners.items()]
    items = [
        {"patient_id": owners[each], "order_id": each, "price": chance.randrange(9)}
        for each in (chance.choice(ids or [1]) for _ in range(chance.randrange(20)))
        if each in owners
    ]
    if not honest:
        orders += [{**chance.choice(orders), "patient_id": chance.choice(people)} for _ in range(8) if orders]
        orders += [{**each, "total": 9 - each["total"]} for each in orders]
        items += [{**each, "patient_id": chance.choice(people)} for each in items]
    return {"orders": orders, "items": items}


def kept(world: dict[str, list[dict[str, Any]]], without: str | None = None) -> Stored:
    return {
        name: registered(
            {**EXAMPLE, **SHOP}[name], [row for row in rows if row.get("patient_id", "") != without], SECRET
        )
        for name, rows in world.items()
    }


def listed(rows: list[Row]) -> Counter[str]:
    return Counter(repr((row.person, sorted(row.values.items()))) for row in rows)


def stable(
    worlds: int, seed: int, *, forms: Sequence[str] = FORMS, tables: Schema = EXAMPLE, draw: Draw = world
) -> int:
    """Checks every form on random worlds, without each person in turn; the number of pairs of neighbours."""
    chance, pairs = random.Random(seed), 0
    relations = [parse(text, tables).relation for text in forms]
    for _ in range(worlds):
        drawn = draw(chance)
        whole, others = kept(drawn), {person: kept(drawn, person) for person in ("p0", "p1", "p2", "p3")}
        for relation in relations:
            rows = rows_of(relation, whole)
            assert all(many <= relation.rows for many in Counter(row.person for row in rows).values())
            for person, without in others.items():
                pairs += 1
                assert listed(rows_of(relation, without)) == listed([row for row in rows if row.person != person])
    return pairs


def test_no_person_owns_more_rows_than_the_plan_says() -> None:
    assert stable(worlds=3, seed=21) == 3 * 4 * len(FORMS)


@pytest.mark.parametrize("honest", [True, False])
def test_a_unique_column_is_enforced_and_not_believed(honest: bool) -> None:
    pairs = stable(worlds=10, seed=5, forms=UNIQUE, tables=SHOP, draw=partial(shop, honest=honest))
    assert pairs == 10 * 4 * len(UNIQUE)


def test_a_declaration_that_was_believed_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = Source.rows_alike
    monkeypatch.setattr(
        Source, "rows_alike", lambda self, names: 1 if {*self.table.unique} & names else alike(self, names)
    )
    monkeypatch.setattr("deniable.queries.sql.joined_tables.enforced", lambda relation, table: relation)
    with pytest.raises(AssertionError):
        stable(worlds=50, seed=5, forms=UNIQUE, tables=SHOP, draw=partial(shop, honest=False))


@pytest.mark.parametrize("text", UNIQUE)
def test_a_join_on_a_unique_column_has_the_rows_of_duckdb(text: str) -> None:
    chance = random.Random(7)
    for _ in range(20):
        stored = kept(shop(chance, honest=True))
        with duckdb.connect() as plain:
            plain.execute("CREATE TABLE orders (patient_id VARCHAR, order_id INT, total INT)")
            plain.execute("CREATE TABLE items (patient_id VARCHAR, order_id INT, price INT)")
            for name, rows in stored.items():
                for row in rows:
                    plain.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", [row.person, *row.values.values()])
            assert answers(parse(text, SHOP), stored) == plain.execute(text).fetchall()


def test_an_order_joined_with_its_items_costs_the_items() -> None:
    assert [parse(text, SHOP).relation.rows for text in UNIQUE] == [6, 6, 6, 10, 4, 6]


def test_a_unique_column_is_written_and_read() -> None:
    assert read_schema(write_schema(SHOP, form="yaml"))["orders"].unique == ("order_id",)
    with worded(InvalidParameter):
        Table("orders", (("order_id", Domain.integer(1, 9)),), Unit.row(), unique=("order_id",))


@pytest.mark.slow
def test_many_thousand_pairs_of_neighbours_are_stable() -> None:
    found = stable(worlds=700, seed=2121)
    for honest in (True, False):
        found += stable(worlds=400, seed=2122, forms=UNIQUE, tables=SHOP, draw=partial(shop, honest=honest))
    assert found >= 69_000


def test_a_join_counted_by_one_side_alone_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinPrivate, "rows", property(lambda self: min(self.left.rows, self.right.rows)))
    with pytest.raises(AssertionError):
        stable(worlds=30, seed=21)


@pytest.mark.parametrize(
    ("text", "rows"),
    [(FORMS[0], 100), (FORMS[11], 20), (FORMS[13], 20), (FORMS[14], 20), (FORMS[16], 20), (FORMS[17], 20)],
)
def test_a_partner_that_is_unique_costs_no_rows(text: str, rows: int) -> None:
    assert parse(text, EXAMPLE).relation.rows == rows


def test_a_chain_of_joins_is_counted_in_time_that_grows_with_its_length() -> None:
    part = (
        "JOIN (SELECT patient_id, ward AS w{0}, COUNT(*) AS n{0} FROM visits GROUP BY patient_id, ward) t{0} "
        "ON t{0}.patient_id = v.patient_id AND t{0}.w{0} = v.ward"
    )
    text = "SELECT COUNT(*) FROM visits v " + " ".join(part.format(k) for k in range(25))
    assert parse(text, EXAMPLE).relation.rows == 20  # by calls within calls it took more than an hour
