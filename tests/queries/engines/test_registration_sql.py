"""What a source may hold, and what becomes of it: one written rule for each oddity, the same on every engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from deniable.errors import InvalidOperation, InvalidParameter
from deniable.queries.engines.engine import Engine
from deniable.queries.relations.exact_statistics import Collect, Count, CountPersons
from deniable.queries.relations.relation_nodes import How, JoinPrivate, Project, Source
from deniable.tables.expressions import col
from deniable.tables.kinds import LONGEST, Domain
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET, Kitchen, asked
from tests.wording import worded

pa = pytest.importorskip("pyarrow")

LARGEST = 2**63 - 1


def values(engine: Engine, table: Table, column: str) -> list[Any]:
    """What was kept of a column, sorted, NULL first."""
    found = engine.collect(asked(Source(table), (("v", col(column)),), None, (Count(),)))
    return [group[0] for group, (n,) in found.items() for _ in range(n)]


def read(kitchen: Kitchen, array: Any, domain: Domain, engine: Engine | None = None) -> list[Any]:
    """A column of a source, read as `domain`."""
    engine = engine or kitchen.engine()
    table = Table("t", (("v", domain),), Unit.row())
    return values(engine, engine.register("t", kitchen.source(pa.table({"v": array})), table, SECRET), "v")


D38 = pa.decimal128(38, 2)
CASES: dict[str, tuple[Any, Domain, Sequence[Any]]] = {
    "NaN and infinities are NULL": (
        pa.array([float("nan"), float("inf"), float("-inf"), 1.5, -0.0]), Domain.real(), [None, None, None, 0.0, 1.5]),
    "NaN and infinities are NULL, and not moved to the bounds": (
        pa.array([float("nan"), float("inf"), float("-inf"), 9.5]), Domain.real(0, 1), [None, None, None, 1.0]),
    "numbers are moved into the bounds": (pa.array([-5, 0, 7, None]), Domain.integer(0, 5), [None, 0, 0, 5]),
    "single precision is read exactly": (pa.array([0.1], pa.float32()), Domain.real(), [0.10000000149011612]),
    "reals are rounded to integers, halves away from 0": (
        pa.array([0.5, -0.5, 1.4, 1e19, float("nan")]), Domain.integer(), [None, None, -1, 1, 1]),
    "integers beyond 2^53 become the nearest real": (pa.array([2**53 + 1]), Domain.real(), [2.0**53]),
    "decimals are read as the nearest real": (
        pa.array([Decimal("0.10"), Decimal("12345678901234567890.12"), None], D38), Domain.real(), [None, 0.1, 12345678901234567890.12]),
    "decimals without places are integers": (
        pa.array([Decimal(2**63 - 1), Decimal(2**63), Decimal(-5)], pa.decimal128(38, 0)), Domain.integer(), [None, -5, LARGEST]),
    "text is read as a number if it is one, and nothing else": (
        pa.array(["12", " 12 ", "1e3", "0x10", "1_000", "9223372036854775808", "", "१२", "-0"]), Domain.integer(),
        [None, None, None, None, None, None, 0, 12, 12]),
    "text is read as a real if it is one": (
        pa.array(["1e3", "nan", "inf", "1e400", ".5", "1,5"]), Domain.real(), [None, None, None, None, 0.5, 1000.0]),
    "text is read as a boolean": (pa.array(["true", "FALSE", "yes", "1", ""]), Domain.boolean(), [None, None, None, False, True]),
    "integers are booleans": (pa.array([0, 1, -3, None]), Domain.boolean(), [None, False, True, True]),
    "booleans are integers": (pa.array([True, False, None]), Domain.integer(0, 1), [None, 0, 1]),
    "text is kept as it is": (
        pa.array(["", " ", "a", "A", "é", "e\u0301", "a\x00b", None]), Domain.text(), [None, "", " ", "A", "a", "a\x00b", "e\u0301", "é"]),
    "a value outside the keys is NULL, in any spelling": (
        pa.array(["n", "N", " n", "s", None]), Domain.text("n", "s"), [None, None, None, "n", "s"]),
    "a row with NULL in a column without NULL is left out": (
        pa.array(["n", "N", None, "s"]), Domain.text("n", "s", nullable=False), ["n", "s"]),
    "dates outside the calendar are NULL": (
        pa.array([-719163, 0, 2932896, 2932897, -719162, None], pa.int32()).cast(pa.date32()), Domain.date(),
        [None, None, None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "dates are their midnights": (pa.array([dt.date(2024, 2, 29)]), Domain.timestamp(), [dt.datetime(2024, 2, 29)]),
    "dates are moved into their bounds": (
        pa.array([dt.date(44, 1, 1), dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 2), dt.date(9999, 12, 31), None]),
        Domain.date(dt.date(2024, 2, 29), dt.date(2024, 3, 1)),
        [None, *[dt.date(2024, 2, 29)] * 3, *[dt.date(2024, 3, 1)] * 2],
    ),
    "moments are moved into their bounds": (
        pa.array([dt.datetime(44, 1, 1), dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 3, 1, 0, 0, 0, 2), None], pa.timestamp("us")),
        Domain.timestamp(dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1, 0, 0, 0, 1)),
        [None, dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 3, 1, 0, 0, 0, 1)],
    ),
    "text is a date within bounds": (
        pa.array(["2023-12-31", "2024-02-30", "2024-06-01"]), Domain.date(dt.date(2024, 1, 1), dt.date(2024, 12, 31)),
        [None, dt.date(2024, 1, 1), dt.date(2024, 6, 1)],
    ),
    "moments are their dates": (pa.array([dt.datetime(2024, 2, 29, 23, 59)]), Domain.date(), [dt.date(2024, 2, 29)]),
    "moments with a zone are read in UTC": (
        pa.array([dt.datetime(2024, 3, 10, 7, 30), dt.datetime(1883, 11, 18, 17, 3, 58, 1)], pa.timestamp("us", tz="America/New_York")),
        Domain.timestamp(), [dt.datetime(1883, 11, 18, 17, 3, 58, 1), dt.datetime(2024, 3, 10, 7, 30)]),
    "text is read as a moment in UTC": (
        pa.array(["2024-02-29", "2024-02-29T23:59", "2024-02-29 23:59:59.123456Z", "2024-02-30", "24:00", "2024-02-29T24:00:00",
                  "2024-02-29 23:59:59+02:00", "10000-01-01", ""]),
        Domain.timestamp(),
        [None] * 6 + [dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 23, 59), dt.datetime(2024, 2, 29, 23, 59, 59, 123456)]),
    "dictionaries are their values": (pa.array(["b", "a", None, "a"]).dictionary_encode(), Domain.text(), [None, "a", "a", "b"]),
    "no rows are no rows": (pa.array([], pa.int64()), Domain.integer(), []),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", CASES)
def test_a_value_is_read_by_its_rule(kitchen: Kitchen, rule: str) -> None:
    array, domain, expected = CASES[rule]
    assert read(kitchen, array, domain) == list(expected)


def test_unsigned_and_wide_integers_outside_64_bits_are_null(kitchen: Kitchen) -> None:
    if "spark" in type(kitchen).__name__.lower():
        pytest.skip("Spark has no unsigned integers")
    assert read(kitchen, pa.array([2**64 - 1, 7], pa.uint64()), Domain.integer()) == [None, 7]


MANY: dict[str, tuple[Any, Domain, Sequence[Any]]] = {
    "text": (
        pa.array(["k7", "K7", "k7 ", "", "it's", "a\x00b", "é", "e\u0301", "$x", None]),
        Domain.text(*(f"k{i}" for i in range(40)), "", "it's", "a\x00b", "é", "$x"),
        [None] * 4 + ["", "$x", "a\x00b", "it's", "k7", "é"],
    ),
    "integers": (pa.array([-3, 3, 40, 41, None, 0]), Domain.integer(keys=range(-3, 41)), [None, None, -3, 0, 3, 40]),
    "dates": (
        pa.array([dt.date(44, 1, 1), dt.date(44, 2, 1), dt.date(2024, 2, 29)]),
        Domain.date(keys=[dt.date(44, 1, 1), *(dt.date(2024, 2, day) for day in range(1, 30))]),
        [None, dt.date(44, 1, 1), dt.date(2024, 2, 29)],
    ),
}


@pytest.mark.parametrize("kind", MANY)
def test_many_keys_are_told_apart_as_few_are(kitchen: Kitchen, kind: str) -> None:
    array, domain, expected = MANY[kind]
    assert read(kitchen, array, domain) == list(expected)


UNREADABLE = {
    "a list": pa.array([[1], [2]]),
    "a struct": pa.array([{"a": 1}]),
    "a map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"x"]),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_column_of_no_kind_is_refused_by_its_type_alone(kitchen: Kitchen, what: str) -> None:
    for array in (UNREADABLE[what], UNREADABLE[what][:0]):
        with worded(InvalidParameter) as caught:
            read(kitchen, array, Domain.text())
        assert caught.value.asked == "v"


def test_a_column_of_no_kind_that_is_not_declared_is_not_read(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = pa.table({"v": pa.array([1, 2]), "l": pa.array([[1], [2]])})
    table = engine.register("t", kitchen.source(source), Table.of("t", Unit.row(), v=Domain.integer()), SECRET)
    assert values(engine, table, "v") == [1, 2]


def test_reals_and_moments_have_no_single_spelling_as_text(kitchen: Kitchen) -> None:
    for array in (pa.array([1.5]), pa.array([dt.datetime(2024, 2, 29)])):
        with worded(InvalidParameter):
            read(kitchen, array, Domain.text())


ODD_NAMES = [
    "two words",
    'a "quoted" one',
    "it's",
    "`ticks`",
    "SELECT",
    "person",
    "rank",
    "Größe",
    "日本",
    "a.b",
    "c0_x",
    "$x",
    "a;--",
    "\t",
]


def test_columns_may_have_any_name(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = pa.table({name: pa.array([at, at]) for at, name in enumerate(ODD_NAMES)})
    table = Table("a 'table'; \"x\"", tuple((name, Domain.integer()) for name in ODD_NAMES), Unit.row())
    table = engine.register(table.name, kitchen.source(source), table, SECRET)
    below = Project(Source(table), tuple((name + "!", col(name)) for name in ODD_NAMES))
    keys = tuple((name, col(name + "!")) for name in ODD_NAMES)
    assert engine.collect(Collect(below, keys, None, (Count(),))) == {tuple(range(len(ODD_NAMES))): (2,)}


def test_a_missing_column_is_named_and_nothing_else(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = kitchen.source(pa.table({"age": pa.array([1]), "secret name": pa.array([2])}))
    for wanted in ("Age", "height"):
        with worded(InvalidParameter) as caught:
            engine.register("t", source, Table.of("t", Unit.row(), **{wanted: Domain.integer()}), SECRET)
        assert caught.value.asked == wanted
        assert "secret name" not in str(caught.value)
    with worded(InvalidParameter):
        engine.register("t", source, Table.of("t", Unit.person("who", rows=1), age=Domain.integer()), SECRET)


def test_a_table_of_which_nothing_is_declared_still_has_rows(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    table = Table("t", (), Unit.row())
    table = engine.register("t", kitchen.source(pa.table({"x": pa.array([1, 2, 3])})), table, SECRET)
    assert engine.collect(Collect(Source(table), (), None, (Count(),))) == {(): (3,)}


def test_an_all_null_column_is_null_of_any_kind(kitchen: Kitchen) -> None:
    if "spark" in type(kitchen).__name__.lower():
        pytest.skip("Spark does not read such a column from a file")
    for domain in (Domain.integer(0, 1), Domain.text("a"), Domain.date(), Domain.real(), Domain.boolean()):
        assert read(kitchen, pa.nulls(2), domain) == [None, None]


# --- people ---------------------------------------------------------------------------------------------------------


def kept(engine: Engine, table: Table, column: str = "v") -> dict[Any, int]:
    found = engine.collect(Collect(Source(table), (("v", col(column)),), None, (Count(),)))
    return {group[0]: n for group, (n,) in found.items()}


PEOPLE = Table.of("t", Unit.person("who", rows=2), v=Domain.integer())


def test_ids_are_compared_exactly_and_null_is_nobody(kitchen: Kitchen) -> None:
    ids = ["a", "A", " a", "a ", "", None, None, "é", "e\u0301", "a"]
    source = pa.table({"who": pa.array(ids), "v": pa.array(range(len(ids)))})
    engine = kitchen.engine()
    table = engine.register("t", kitchen.source(source), PEOPLE, SECRET)
    found = engine.collect(Collect(Source(table), (), None, (Count(), CountPersons())))
    assert found == {(): (8, 7)}


def test_ids_that_are_integers_are_read_as_declared(kitchen: Kitchen) -> None:
    source = pa.table({"who": pa.array([1.0, 1.0, 2.0, float("nan")]), "v": pa.array([1, 2, 3, 4])})
    engine = kitchen.engine()
    with worded(InvalidParameter):
        engine.register("t", kitchen.source(source), PEOPLE, SECRET)
    table = Table.of("t", Unit.person("who", rows=2), who=Domain.integer(), v=Domain.integer())
    table = engine.register("t", kitchen.source(source), table, SECRET)
    with worded(InvalidParameter):
        engine.register("u", kitchen.source(source.slice(0, 0)), PEOPLE, SECRET)
    assert engine.collect(Collect(Source(table), (), None, (Count(), CountPersons()))) == {(): (3, 2)}


def test_reals_that_are_no_integers_name_nobody(kitchen: Kitchen) -> None:
    """They were rounded: 1.4 took the places of 1's rows, and all ids near 2^60 were one person."""
    table = Table.of("t", Unit.person("who", rows=2), who=Domain.integer(), v=Domain.integer())
    ids: list[tuple[Any, int, int]] = [
        (pa.array([1.0, 1.4, 0.6, 2.5, -3.0, -0.0, float("inf"), None]), 3, 3),
        (pa.array([2.0**53 - 1, 2.0**53, -(2.0**53), 2.0**60, 2.0**60]), 1, 1),
        (pa.array([Decimal("1152921504606846977.00"), Decimal("1152921504606846978.00"), Decimal("7.00")], D38), 1, 1),
        (pa.array([Decimal(2**60 + 1), Decimal(2**60 + 2)], pa.decimal128(38, 0)), 2, 2),  # read exactly
    ]
    for array, rows, people in ids:
        engine = kitchen.engine()
        source = pa.table({"who": array, "v": pa.array(range(len(array)))})
        made = engine.register("t", kitchen.source(source), table, SECRET)
        assert engine.collect(Collect(Source(made), (), None, (Count(), CountPersons()))) == {(): (rows, people)}


def test_bounds_move_no_person_into_another(kitchen: Kitchen) -> None:
    """101 is beyond the bounds; as 100 it would take the places of 100's rows."""
    source = pa.table({"who": pa.array([100, 100, 101, 101, -7]), "v": pa.array([0, 0, 1, 1, 1])})
    table = Table.of("t", Unit.person("who", rows=2), who=Domain.integer(0, 100), v=Domain.integer(0, 1))
    engine = kitchen.engine()
    table = engine.register("t", kitchen.source(source), table, SECRET)
    found = engine.collect(asked(Source(table), (("v", col("v")),), None, (Count(), CountPersons())))
    assert found == {(0,): (2, 1), (1,): (3, 2)}


def test_text_is_cut_and_names_of_people_are_not(kitchen: Kitchen) -> None:
    same = "x" * LONGEST
    source = pa.table({"who": pa.array([same + "a", same + "b"]), "v": pa.array([same + "é", same])})
    table = Table.of("t", Unit.person("who", rows=2), v=Domain.text())
    engine = kitchen.engine()
    table = engine.register("t", kitchen.source(source), table, SECRET)
    found = engine.collect(asked(Source(table), (("v", col("v")),), None, (Count(), CountPersons())))
    assert found == {(same,): (2, 2)}


def test_a_person_is_the_same_in_every_table(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    first = pa.table({"who": pa.array(["a", "b", "c"]), "v": pa.array([1, 2, 3])})
    second = pa.table({"who": pa.array(["c", "d", "a", "a"]), "w": pa.array([30, 40, 10, 11])})
    left = engine.register("t", kitchen.source(first), PEOPLE, SECRET)
    right = Table.of("u", Unit.person("who", rows=2), w=Domain.integer())
    right = engine.register("u", kitchen.source(second), right, SECRET)
    both = JoinPrivate(Source(left), Source(right), (), How.LEFT)
    found = engine.collect(Collect(both, (("v", col("v")), ("w", col("w"))), None, (CountPersons(),)))
    assert found == {(1, 10): (1,), (1, 11): (1,), (2, None): (1,), (3, 30): (1,)}


def test_the_order_of_rows_does_not_matter_and_the_secret_does(kitchen: Kitchen) -> None:
    rows = [("a", n) for n in range(40)] + [("b", n) for n in range(40, 80)]
    seen = set()
    for order, secret in ((rows, SECRET), (rows[::-1], SECRET), (rows, bytes(32))):
        engine = kitchen.engine()
        source = pa.table({"who": pa.array([who for who, _ in order]), "v": pa.array([v for _, v in order])})
        table = engine.register("t", kitchen.source(source), PEOPLE, secret)
        found = frozenset(kept(engine, table))
        assert len(found) == 4
        seen.add(found)
        plain = evaluate.registered(PEOPLE, [{"who": who, "v": v} for who, v in order], secret)
        assert found == {row.values["v"] for row in plain}
    assert len(seen) == 2


def test_taking_a_person_away_leaves_everyone_elses_rows(kitchen: Kitchen) -> None:
    """A sample that looked at where rows lie would keep others of b once a is gone."""
    rows = [("a" if n % 3 else "b", n) for n in range(60)]
    found = []
    for order in (rows, [row for row in rows if row[0] == "b"]):
        engine = kitchen.engine()
        source = pa.table({"who": pa.array([who for who, _ in order]), "v": pa.array([v for _, v in order])})
        found.append(set(kept(engine, engine.register("t", kitchen.source(source), PEOPLE, SECRET))))
    assert found[1] == {n for n in found[0] if n % 3 == 0}


def test_rows_that_appear_twice_are_two_rows(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = pa.table({"who": pa.array(["a"] * 5), "v": pa.array([7] * 5)})
    assert kept(engine, engine.register("t", kitchen.source(source), PEOPLE, SECRET)) == {7: 2}


@pytest.mark.parametrize("keys", [(), ("", ":", "0:", ";", "\n", "é", "'; --")], ids=["open", "listed"])
def test_null_and_texts_that_look_like_its_traces_are_told_apart(kitchen: Kitchen, keys: tuple[str, ...]) -> None:
    rows = [{"who": "a", "v": v, "w": w} for v in (None, "", ":", "0:", ";") for w in (None, "", ";", "a\x00b")]
    table = Table.of("t", Unit.person("who", rows=7), v=Domain.text(*keys), w=Domain.text("", ";", "'", "a\x00b"))
    for order in (rows, rows[::-1]):
        engine = kitchen.engine()
        source = pa.table({each: pa.array([row[each] for row in order], pa.string()) for each in ("who", "v", "w")})
        registered = engine.register("t", kitchen.source(source), table, SECRET)
        found = engine.collect(asked(Source(registered), (("v", col("v")), ("w", col("w"))), None, (Count(),)))
        plain = evaluate.registered(table, order, SECRET)
        assert set(found) == {(row.values["v"], row.values["w"]) for row in plain}
        assert len(found) == 7


def test_reals_that_the_hash_cannot_tell_apart_are_ordered(kitchen: Kitchen) -> None:
    numbers = [1e300, 2e300, 1e-300, 2e-300, 3e300]
    table = Table.of("t", Unit.person("who", rows=2), v=Domain.real())
    for order in (numbers, numbers[::-1]):
        engine = kitchen.engine()
        source = pa.table({"who": pa.array(["a"] * 5), "v": pa.array(order)})
        registered = engine.register("t", kitchen.source(source), table, SECRET)
        plain = evaluate.registered(table, [{"who": "a", "v": v} for v in order], SECRET)
        assert values(engine, registered, "v") == sorted(row.values["v"] for row in plain)


# --- public tables --------------------------------------------------------------------------------------------------


def test_a_public_table_comes_back_with_its_partners_counted(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = pa.table({"a": pa.array(["x", "x", "y", None, None, None]), "b": pa.array([1, 2, 2, 2, 2, 2])})
    table = Table.of("p", None, a=Domain.text(), b=Domain.integer())
    assert engine.register("p", kitchen.source(source), table, SECRET).most_partners == (
        (("a",), 2), (("b",), 5), (("a", "b"), 1),
    )  # fmt: skip
    empty = engine.register("q", kitchen.source(source.slice(0, 0)), table, SECRET)
    assert empty.most_partners == ((("a",), 0), (("b",), 0), (("a", "b"), 0))


# --- borders --------------------------------------------------------------------------------------------------------


def test_bad_registrations_are_refused(kitchen: Kitchen) -> None:
    engine = kitchen.engine()
    source = kitchen.source(pa.table({"who": pa.array(["a"]), "v": pa.array([1])}))
    with worded(InvalidParameter) as caught:
        engine.register("t", source, PEOPLE, b"short")
    assert "short" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="source"):
        engine.register("t", object(), PEOPLE, SECRET)
    real = Table.of("t", Unit.person("who", rows=1), who=Domain.real())
    with worded(InvalidParameter):
        engine.register("t", source, real, SECRET)
    engine.register("t", source, PEOPLE, SECRET)
    with pytest.raises(InvalidOperation, match="registered already"):
        engine.register("t", source, PEOPLE, SECRET)
    with pytest.raises(InvalidOperation, match="not registered"):
        engine.collect(Collect(Source(Table.of("other", Unit.row())), (), None, (Count(),)))
    engine.close()
    with pytest.raises(InvalidOperation, match="closed"):
        engine.register("u", source, PEOPLE, SECRET)
