"""Every operator, on every engine, on the values where engines disagree: the same as the plain meaning, bit for bit."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from deniable.queries.relations.exact_statistics import Collect, Count, CountDistinct, ExactSum
from deniable.queries.relations.operator_meanings import A_DAY
from deniable.queries.relations.operator_table import OPERATORS
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import FilterRows, Source
from deniable.tables.expressions import Call, Expression, call, case, col, lit
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table
from deniable.units import Unit
from tests.queries.engines import evaluate
from tests.queries.engines.kitchen import SECRET, Kitchen, asked

pa = pytest.importorskip("pyarrow")

INTEGERS = [None, 0, 1, -1, 2, -2, 3, 7, -7, 10, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1]
SMALL = [None, 0, 1, -1, 2, -3, 7, -7, 100, -100, 5, 50, 99, -99, 12, 13, 14]
REALS = [
    None, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, -0.49999999999999994, 4503599627370495.5, 1e-320,
    9007199254740993.0, 9.223372036854775e18, 9.223372036854776e18, -9.223372036854776e18, 1.7976931348623157e308,
]  # fmt: skip
TEXTS = [
    None, "", " ", "a", "A", "Äé", "ﬁ İstanbul", "👩‍👧x", "a\nb", "a'b", "12", "+007", "-9223372036854775808", " 12 ", "1e3",
    "1.5", "2024-02-29",
]  # fmt: skip
MORE_TEXTS = [
    "9223372036854775808", "0x10", "1_000", "nan", "inf", "1e400", ".5", "5.", "1d", "١٢", "true", "FALSE", "yes", "t",
    "2023-02-29", "0000-01-01", "12\n",
]  # fmt: skip
MOMENT_TEXTS = [
    None, "2024-02-29 23:59:59", "2024-02-29T23:59:59", "2024-02-29 24:00:00", "2024-02-29 23:59:60", "epoch", "infinity",
    "2024-02-29 23:59:59.5", "2024-02-29", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2024-2-9 1:2:3", "", "now",
    "2024-03-10 02:30:00", "10000-01-01 00:00:00", "2024-02-29 23:59:59Z",
]  # fmt: skip
DATES = [
    None, *map(dt.date.fromisoformat, [
        "0001-01-01", "0999-12-31", "1582-10-10", "1900-02-28", "1969-12-31", "1970-01-01", "2000-02-29", "2024-02-29",
        "2024-12-30", "2024-12-31", "2025-01-01", "2026-11-15", "9999-12-31", "2023-04-01", "2021-01-03", "1700-06-30",
    ]),
]  # fmt: skip
MOMENTS = [
    None, *map(dt.datetime.fromisoformat, [
        "0001-01-01T00:00:00", "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2024-03-10T02:30:00.000001",
        "2024-11-03T01:30:00", "2024-02-29T23:59:59.999999", "9999-12-31T23:59:59.999999", "1883-11-18T12:03:58",
        "1500-01-01T13:00:00", "2000-01-01T00:00:00", "2000-12-31T12:34:56.789", "2021-01-03T06:00:00",
        "1900-02-28T05:00:00", "2024-07-01T00:00:00", "2024-12-30T00:59:59", "0999-12-31T18:00:00",
    ]),
]  # fmt: skip
BOOLEANS = [None, True, False] * 5 + [True, False]

SIZE = len(INTEGERS)
COLUMNS: dict[str, tuple[Any, Sequence[Any], Domain]] = {
    "id": (pa.int64(), range(SIZE), Domain.integer()),
    "n": (pa.int64(), INTEGERS, Domain.integer()),
    "m": (pa.int64(), INTEGERS[::-1], Domain.integer()),
    "s": (pa.int64(), SMALL, Domain.integer(-100, 100)),
    "r": (pa.int64(), SMALL[5:] + SMALL[:5], Domain.integer(-100, 100)),
    "x": (pa.float64(), REALS, Domain.real()),
    "y": (pa.float64(), REALS[7:] + REALS[:7], Domain.real()),
    "z": (pa.float64(), [None if x is None else max(-1e3, min(x, 1e3)) for x in REALS], Domain.real(-1e3, 1e3)),
    "t": (pa.string(), TEXTS, Domain.text()),
    "u": (pa.string(), MORE_TEXTS, Domain.text()),
    "w": (pa.string(), MOMENT_TEXTS, Domain.text()),
    "d": (pa.date32(), DATES, Domain.date()),
    "e": (pa.date32(), DATES[::-1], Domain.date()),
    "p": (pa.timestamp("us"), MOMENTS, Domain.timestamp()),
    "q": (pa.timestamp("us"), MOMENTS[::-1], Domain.timestamp()),
    "b": (pa.bool_(), BOOLEANS, Domain.boolean()),
    "c": (pa.bool_(), [None] * 5 + [True] * 6 + [False] * 6, Domain.boolean()),
}
TABLE = Table("corners", tuple((name, domain) for name, (_, _, domain) in COLUMNS.items()), Unit.row())

N, M, S, R, X, Y, Z = (col(name) for name in "nmsrxyz")
T, U, W, D, E, P, Q, B, C = (col(name) for name in "tuwdepqbc")
NUMBERS = [(N, M), (S, R), (X, Y), (Z, S), (N, X), (S, lit(0)), (lit(7), R), (X, lit(0.0)), (N, lit(-1)), (Z, Z)]
PAIRS = [(N, M), (S, X), (X, Y), (T, U), (D, E), (D, P), (P, Q), (B, C), (T, lit("a'b\\$é")), (N, lit(None))]

PATTERNS = (
    "a",
    "^a",
    "b$",
    "^.*$",
    "[^a]+",
    "^[0-9]{4}-",
    "x*",
    "(a|b)c?",
    "[ -~]b",
    "\\s",
    "^\\w+$",
    "[é👩]",
    "\\W",
    "2[0-9]*-",
    "(?:ab)+$",
)
CASES: dict[str, list[Expression]] = {
    **{name: [call(name, a, b) for a, b in NUMBERS] for name in ("add", "subtract", "multiply", "divide", "modulo", "power")},
    **{name: [call(name, a) for a in (N, S, X, Z)] for name in ("negate", "abs", "floor", "ceil", "round", "sqrt", "ln", "exp")},
    **{name: [call(name, a, b) for a, b in PAIRS[:7]] + [call(name, S, R, lit(3), X)] for name in ("least", "greatest")},
    **{name: [call(name, a, b) for a, b in PAIRS] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "in": [call("in", N, 1, 2**53, 0.5), call("in", X, 0.5, 1), call("in", T, "a", "", None), call("in", D, dt.date(1970, 1, 1)),
           call("in", B, True), call("in", T, "a\nb", "a'b", "👩‍👧x"), call("in", lit(None), 1)],
    "and": [B & C, B & lit(None), B & C & (S > 0)],
    "or": [B | C, B | lit(None), B | C | (S > 0)],
    "not": [~B, ~(B & C)],
    "is_null": [call("is_null", a) for a in (N, X, T, D, P, B, lit(None), N / M)],
    "case": [case((B, N), (C, X), otherwise=3), case((B, D), otherwise=P), case((S > 0, "+"), (S < 0, None), otherwise=T),
             case((lit(None), 1), otherwise=2)],
    "coalesce": [call("coalesce", N, X, 1), call("coalesce", lit(None), T), call("coalesce", D, P), call("coalesce", lit(None))],
    "nullif": [call("nullif", S, R), call("nullif", T, "a"), call("nullif", N, X), call("nullif", X, 0), call("nullif", N, 2.0**53), call("nullif", D, P)],
    "cast_boolean": [call("cast_boolean", a) for a in (B, N, X, T, U)],
    "cast_integer": [call("cast_integer", a) for a in (B, N, X, T, U, Z)],
    "cast_real": [call("cast_real", a) for a in (B, N, X, T, U)],
    "cast_text": [call("cast_text", a) for a in (B, N, T, D)],
    "cast_date": [call("cast_date", a) for a in (D, P, T, U, W)],
    "cast_timestamp": [call("cast_timestamp", a) for a in (D, P, T, U, W)],
    "lower": [call("lower", T), call("lower", U)],
    "upper": [call("upper", T), call("upper", lit(None))],
    "trim": [call("trim", T), call("trim", U)],
    "length": [call("length", T), call("length", W)],
    "prefix": [call("prefix", T, size) for size in (0, 1, 2, 1000)],
    "substring": [call("substring", T, start, size) for start, size in ((1, 1), (2, 1), (2, 1000), (3, 2), (1000, 1000))],
    "split_part": [call("split_part", a, mark, part) for a in (T, W) for mark in ("-", " ", "2", "'", "ﬁ", "👩", "::") for part in (1, 2, 3, 1000)],
    "replace": [call("replace", T, old, new) for old, new in (("a", ""), ("a", "xyz"), (" ", "_"), ("'", "''"), ("👩", "é"), ("12", "\\"))]
    + [call("replace", W, "2024", "$1"), call("replace", call("replace", T, "a", "b" * 600), "b", "ab")],
    "position": [call("position", a, part) for a in (T, W) for part in ("a", "b", " ", "2", "-0", "é", "x", "\n", "İ")],
    "concat": [call("concat", T, U), call("concat", T, "-", W)],
    "like": [call("like", T, pattern) for pattern in ("a%", "%b", "_", "__", "a_b", "%", "", "Ä_", "👩%x", "%é%", "a'b", "[a]%", "a%b%", "$%",
             "%_%", "_%_%", "%a%b%", "%a%_b%", "a%%b", "%.%b%", "%_.%_", "%(%)%", "%[a]%_%", "%^%$%", "%a_%b_%", "%👩_%x%", "%-%_%", "%é%_%", "%{2}%", "%|%_")],
    "regexp_like": [call("regexp_like", a, pattern) for a in (T, W) for pattern in PATTERNS],
    "regexp_extract": [call("regexp_extract", a, pattern, 0) for a in (T, W) for pattern in PATTERNS]
    + [call("regexp_extract", T, "(.)(b|x)?", group) for group in (1, 2)],
    "regexp_replace": [call("regexp_replace", a, pattern, new) for a in (T, W) for pattern in PATTERNS for new in ("", "$1\\\\'", "<\\0>")]
    + [call("regexp_replace", a, "([0-9]{2})-(é|[0-9])?", "\\2/\\1") for a in (T, W)],
    **{name: [call(name, D), call(name, P)] for name in ("year", "quarter", "month", "day", "weekday")},
    **{name: [call(name, P)] for name in ("hour", "minute", "second")},
    "date_trunc": [call("date_trunc", unit, a) for unit in ("year", "quarter", "month", "week", "day") for a in (D, P)]
    + [call("date_trunc", unit, P) for unit in ("hour", "minute", "second")],
    "days_between": [call("days_between", D, E), call("days_between", P, Q), call("days_between", D, P)],
    "microseconds": [call("microseconds", D), call("microseconds", P)],
    "add_months": [call("add_months", a, size) for a in (D, P) for size in (0, 1, -1, 11, 12, -14, 25, 120_000, -120_000)],
    "add_time": [call("add_time", a, size) for a in (D, P) for size in (0, 1, -1, A_DAY, -A_DAY, 36 * A_DAY // 24, 10**6 + 1, 3_652_059 * A_DAY, -3_652_059 * A_DAY)],
}  # fmt: skip

NESTED = [
    (1 / (1 / X)) + (N / M) * (X / Y),
    call("floor", Z / 7) % 3,
    call("least", call("greatest", N / 3, lit(-5)), call("greatest", X / 2, lit(5)), Z),
    call("cast_integer", call("prefix", T, 2)) + S,
    call("year", call("date_trunc", "week", call("cast_date", T))),
    case((call("length", call("concat", T, U)) > 4, call("lower", T)), otherwise=call("upper", U)),
    call("sqrt", call("sqrt", X * X) - 1) / call("ln", call("abs", X) + 2),
]


def test_every_operator_of_the_table_has_cases() -> None:
    assert set(CASES) == set(OPERATORS)


LOOSE = ("ln", "exp", "power")
"""The operators that may differ in the last bits."""

GROUPS: dict[str, list[Expression]] = {
    "arithmetic": [each for name in list(CASES)[:5] for each in CASES[name]],
    "whole": [each for name in ("negate", "abs", "floor", "ceil", "round", "sqrt") for each in CASES[name]],
    "loose": [each for name in LOOSE for each in CASES[name]] + NESTED,
    "compared": [
        each for name in ("least", "greatest", "eq", "ne", "lt", "le", "gt", "ge", "in") for each in CASES[name]
    ],
    "logic": [each for name in ("and", "or", "not", "is_null", "case", "coalesce", "nullif") for each in CASES[name]],
    "casts": [each for name in CASES if name.startswith("cast_") for each in CASES[name]],
    "text": [
        each
        for name in ("lower", "upper", "trim", "length", "prefix", "substring", "concat", "like")
        for each in CASES[name]
    ],
    "patterns": [each for name in CASES if name.startswith("regexp_") for each in CASES[name]],
    "parts of text": [each for name in ("split_part", "replace", "position") for each in CASES[name]],
    "dates": [each for name in list(CASES)[-13:-3] for each in CASES[name]],
    "time": [each for name in list(CASES)[-3:] for each in CASES[name]],
}


def test_every_case_is_in_a_group() -> None:
    assert sum(map(len, GROUPS.values())) == sum(map(len, CASES.values())) + len(NESTED)


@pytest.mark.parametrize("group", GROUPS)
def test_operators_mean_the_same_as_in_python(kitchen: Kitchen, group: str, corners: Any) -> None:
    engine, table = corners
    expressions = GROUPS[group]
    keys = (("id", col("id")), *((str(i), each) for i, each in enumerate(expressions)))
    found = engine.collect(asked(Source(table), keys, None, (Count(),)))
    assert all(numbers == (1,) for numbers in found.values())
    got = {group[0]: group[1:] for group in found}
    assert set(got) == set(range(SIZE))
    meanings = [typed(each, Source(table).columns).value for each in expressions]
    loose = group == "loose"
    for position in range(SIZE):
        row = {name: values[position] for name, (_, values, _) in COLUMNS.items()}
        for expression, meaning, value in zip(expressions, meanings, got[position], strict=True):
            expected = meaning(row)
            assert alike(value, expected, loose), (expression, row, value, expected)


@pytest.mark.parametrize("group", ["arithmetic", "whole", "casts"])
def test_sums_of_extreme_values_are_exact(kitchen: Kitchen, group: str, corners: Any) -> None:
    engine, table = corners
    columns = Source(table).columns
    numbers = [each for each in GROUPS[group] if typed(each, columns).domain.kind in {Kind.INTEGER, Kind.REAL}]
    rows = [{name: values[at] for name, (_, values, _) in COLUMNS.items()} for at in range(SIZE)]
    stored = {"corners": evaluate.registered(TABLE, rows, SECRET)}
    for first in range(0, len(numbers), 30):  # each distinct count is a good part of the work that one person may cause
        some = numbers[first : first + 30]
        sums = [ExactSum(each, Fraction(-1000), Fraction(1000), -4) for each in some]
        question = Collect(Source(table), (), None, (*sums, *(CountDistinct(each) for each in some)))
        assert engine.collect(question) == evaluate.collected(question, stored)


@pytest.mark.parametrize("group", GROUPS)
def test_an_empty_table_fails_no_more_than_a_full_one(kitchen: Kitchen, group: str, corners: Any) -> None:
    """Whether a question fails may not depend on who is in the table."""
    engine, table = corners
    keys = tuple((str(i), each) for i, each in enumerate(GROUPS[group]))
    for condition in (col("id") < 0, col("id").is_null()):
        assert engine.collect(asked(FilterRows(Source(table), condition), keys, None, (Count(),))) == {}


@pytest.fixture
def corners(kitchen: Kitchen, request: pytest.FixtureRequest) -> Any:
    # One table for all operators of an engine: it is only read.
    kept = request.session.__dict__.setdefault("_corners", {})
    if type(kitchen) not in kept:
        source = pa.table({name: pa.array(list(values), kind) for name, (kind, values, _) in COLUMNS.items()})
        engine = kitchen.make()
        request.config.add_cleanup(engine.close)
        kept[type(kitchen)] = engine, engine.register("corners", kitchen.source(source), TABLE, SECRET)
    return kept[type(kitchen)]


def alike(value: Any, expected: Any, loose: bool) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(value, float):
        near = loose and math.isclose(value, expected, rel_tol=1e-14)
        return near or struct.pack("d", value) == struct.pack("d", expected)
    return bool(value == expected)


def test_a_deep_expression_is_written_in_length_that_grows_with_its_depth(kitchen: Kitchen, corners: Any) -> None:
    engine, table = corners
    lengths = []
    for depth in (20, 40, 80):
        expression: Expression = X
        for _ in range(depth):
            expression = Call("divide", (lit(1), expression))
        question = asked(Source(table), (("id", col("id")), ("v", expression)), None, (Count(),))
        lengths.append(len(engine.sql(question)))
        if depth == 40:
            got = {group[0]: group[1] for group in engine.collect(question)}
            meaning = typed(expression, Source(table).columns).value
            assert all(alike(got[i], meaning({"x": REALS[i]}), False) for i in range(SIZE))
    assert lengths[2] < 2.5 * lengths[1] < 6 * lengths[0]
