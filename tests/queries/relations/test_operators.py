"""The table of operators: what is said to be public about a result holds for every value it takes."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from fractions import Fraction
from typing import Any

import pytest

from deniable.errors import QuestionRefused
from deniable.queries.relations import operator_meanings
from deniable.queries.relations.constant_kinds import fitted
from deniable.queries.relations.operator_meanings import A_DAY
from deniable.queries.relations.operator_table import OPERATORS
from deniable.queries.relations.operators import Columns, domain, evaluate, typed
from deniable.tables.expressions import Call, Column, Expression, Literal, call, case, coalesce, col, same
from deniable.tables.kinds import LARGEST, SMALLEST, Domain, Kind, kind_of
from tests.queries.plans import Chooser

COLUMNS = {
    "small": Domain.integer(-3, 5),
    "large": Domain.integer(SMALLEST, LARGEST),
    "free": Domain.integer(),
    "real": Domain.real(-1.5, 2),
    "wild": Domain.real(),
    "tiny": Domain.real(0.1, 0.3, nullable=False),
    "word": Domain.text("x", "Y ", "12", "2024-02-29"),
    "text": Domain.text(),
    "flag": Domain.boolean(),
    "day": Domain.date(),
    "winter": Domain.date(dt.date(2023, 11, 30), dt.date(2024, 3, 1)),
    "ever": Domain.date(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "feast": Domain.date(keys=[dt.date(2024, 12, 25), dt.date(2022, 12, 26)]),
    "moment": Domain.timestamp(),
    "shift": Domain.timestamp(dt.datetime(2024, 2, 28, 22, 30), dt.datetime(2024, 3, 1, 6, 0, 0, 1)),
}
CELLS: dict[str, list[Any]] = {
    "small": [None, -3, -1, 0, 1, 5],
    "large": [None, SMALLEST, SMALLEST + 1, -1, 0, 2**53 + 1, LARGEST],
    "free": [None, SMALLEST, -7, 0, 3, LARGEST],
    "real": [None, -1.5, -0.5, 0.0, 0.49999999999999994, 1.5, 2.0],
    "wild": [None, -1.7976931348623157e308, -1e19, -2.5, 0.0, 5e-324, 1e19, 1.7976931348623157e308],
    "tiny": [0.1, 0.2, 0.3],
    "word": [None, "x", "Y ", "12", "2024-02-29"],
    "text": [None, "", " a", "-9223372036854775808", "9223372036854775808", "1e400", "1.5", "tRuE", "2024-02-30", "ß", "2024-01-01 10:20:30"],
    "flag": [None, False, True],
    "day": [None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "winter": [None, dt.date(2023, 11, 30), dt.date(2023, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
    "ever": [None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "feast": [None, dt.date(2024, 12, 25), dt.date(2022, 12, 26)],
    "moment": [None, dt.datetime(1, 1, 1), dt.datetime(2024, 12, 31, 23, 59, 59, 999999)],
    "shift": [None, dt.datetime(2024, 2, 28, 22, 30), dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1, 6, 0, 0, 1)],
}  # fmt: skip


class Anything(Chooser):
    """Calls of every operator, with arguments that mostly fit."""

    def leaf(self, kind: Kind | None) -> Expression:
        name = self.pick([name for name, domain in COLUMNS.items() if kind in {None, domain.kind}])
        return Column(name) if self.pick([True, True, False]) else Literal(self.pick(CELLS[name]))

    def argument(self, kind: Kind, depth: int) -> Expression:
        for _ in range(4 if depth else 0):
            found = self.applied(self.pick(list(OPERATORS)), depth - 1)
            try:
                if typed(found, COLUMNS).domain.kind is kind:
                    return found
            except QuestionRefused:
                continue
        return self.leaf(kind)

    def applied(self, name: str, depth: int) -> Expression:
        operator = OPERATORS[name]
        size = min(operator.most, operator.least + self.pick([0, 0, 1, 2]))
        kind = self.pick(list(Kind))
        other = self.pick([kind, kind, Kind.INTEGER, Kind.REAL])
        arguments = [self.argument(self.pick([kind, other]), depth) for _ in range(size)]
        if name == "date_trunc":
            arguments[0] = Literal(self.pick(["year", "quarter", "month", "week", "day", "hour", "minute", "second"]))
        elif name == "like":
            arguments[1] = Literal(self.pick(["%", "x_", "", "%2%"]))
        elif name.startswith("regexp_"):
            arguments[1] = Literal(self.pick(["^2", "(x)?", "[0-9]+$", "a|"]))
            if name != "regexp_like":
                arguments[2] = Literal(self.pick([0, 1]) if name == "regexp_extract" else self.pick(["", "\\0a"]))
        elif name == "prefix":
            arguments[1] = Literal(self.pick([0, 1, 3]))
        elif name == "substring":
            arguments[1:] = [Literal(self.pick([1, 2, 5])), Literal(self.pick([1, 3, 1000]))]
        elif name == "split_part":
            arguments[1:] = [Literal(self.pick(["-", " ", "x"])), Literal(self.pick([1, 2, 3]))]
        elif name == "replace":
            arguments[1:] = [Literal(self.pick(["-", "2", "x"])), Literal(self.pick(["", "ab", " "]))]
        elif name == "position":
            arguments[1] = Literal(self.pick(["-", "2", "x", "24"]))
        elif name == "add_months":
            arguments[1] = Literal(self.pick([0, 1, -1, 13, -30, 120_000]))
        elif name == "add_time":
            arguments[1] = Literal(self.pick([0, 1, A_DAY, -3 * A_DAY, A_DAY // 24, 3_652_059 * A_DAY]))
        elif name == "in":
            mine = [cells for column, cells in CELLS.items() if COLUMNS[column].kind is kind]
            arguments[1:] = [Literal(self.pick(self.pick(mine))) for _ in arguments[1:]]
        elif name == "case":
            arguments[:-1:2] = [self.argument(Kind.BOOLEAN, depth) for _ in arguments[:-1:2]]
        return Call(name, tuple(arguments))


def in_days(value: Any) -> Fraction:
    """What bounds are counted in: dates by their ordinals, moments with the part of the day."""
    whole = Fraction(value.toordinal() if isinstance(value, dt.date) else value)
    if not isinstance(value, dt.datetime):
        return whole
    seconds = 3600 * value.hour + 60 * value.minute + value.second
    return whole + Fraction(10**6 * seconds + value.microsecond, 86_400 * 10**6)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_public_about_a_value_is_true_of_it(name: str) -> None:
    chance = random.Random(name)
    chooser = Anything(chance.choice)
    rows = [{column: chance.choice(cells) for column, cells in CELLS.items()} for _ in range(10)]
    used = 0
    for _ in range(250):
        expression = chooser.applied(name, 1)
        try:
            found = typed(expression, COLUMNS)
        except QuestionRefused:
            continue
        used += 1
        for row in rows:
            value = found.value(row)
            if value is None:
                assert found.domain.nullable, expression
                continue
            assert kind_of(value) is found.domain.kind, expression
            if found.domain.bounds is not None:
                assert found.domain.bounds[0] <= in_days(value) <= found.domain.bounds[1], expression  # type: ignore[arg-type]
            assert found.values is None or value in found.values, expression
    assert used >= 8


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (col("small") + 1, 6),
        (col("large") + 1, 9223372036854775808.0),  # out of 64 bits: in reals
        (col("free") + 1, 9223372036854775808.0),  # no bounds: in reals
        (col("small") / 2, 2.5),
        (col("small") / 0, None),
        (call("modulo", -7, 3), -1),
        (call("modulo", 7, -3), 1),
        (call("modulo", -7.5, 2), -1.5),
        (call("modulo", SMALLEST, -1), 0),
        (call("round", 0.49999999999999994), 0),
        (call("round", 2.5), 3),
        (call("round", -2.5), -3),
        (call("ceil", -0.5), 0),
        (call("floor", -0.5), -1),
        (call("floor", col("wild")), 1.7976931348623157e308),
        (call("multiply", col("wild"), 2), None),  # infinite
        (call("sqrt", -1), None),
        (call("ln", 0), None),
        (call("exp", 1000), None),
        (call("power", -8, 1 / 3), None),
        (call("power", 0, -1), None),
        (call("power", 0, 0), 1.0),
        (call("least", 1, None), None),
        (call("greatest", 0, call("least", 100, None)), None),
        (call("eq", col("large"), float(2**63)), True),  # compared as reals
        (call("in", 1, 2, None), None),
        (call("in", 1, 1, None), True),
        (call("and", None, False), False),
        (call("and", None, True), None),
        (call("or", None, True), True),
        (call("not", None), None),
        (call("is_null", None), True),
        (case((call("eq", 1, None), "a"), otherwise="b"), "b"),
        (coalesce(None, col("small")), 5),
        (call("nullif", 1, 1.0), None),
        (call("nullif", 1, None), 1),
        (call("cast_integer", "+12"), 12),
        (call("cast_integer", " 12"), None),
        (call("cast_integer", "9223372036854775808"), None),
        (call("cast_integer", "1.0"), None),
        (call("cast_integer", -2.5), -3),
        (call("cast_integer", 1e300), None),
        (call("cast_integer", "٣"), None),  # a digit, but not one of ours
        (call("cast_real", "-1.5e3"), -1500.0),
        (call("cast_real", "1e400"), None),
        (call("cast_real", "nan"), None),
        (call("cast_real", "inf"), None),
        (call("cast_real", "1_0"), None),
        (call("cast_boolean", "TRUE"), True),
        (call("cast_boolean", "yes"), None),
        (call("cast_boolean", -0.0), False),
        (call("cast_text", True), "true"),
        (call("cast_text", -12), "-12"),
        (call("cast_text", dt.date(2024, 2, 29)), "2024-02-29"),
        (call("cast_date", "2023-02-29"), None),
        (call("cast_date", "20240229"), None),
        (call("cast_date", dt.datetime(2024, 2, 29, 23)), dt.date(2024, 2, 29)),
        (call("cast_timestamp", "2024-02-29 24:00:00"), None),
        (call("cast_timestamp", dt.date(2024, 2, 29)), dt.datetime(2024, 2, 29)),
        (call("lower", "ÀB"), "Àb"),
        (call("upper", "ßa"), "ßA"),
        (call("trim", " \ta "), "\ta"),
        (call("length", "naïve😀"), 6),
        (call("prefix", "😀x", 1), "😀"),
        (call("concat", "a", None), None),
        (call("like", "a\nb", "a%b"), True),
        (call("like", "abcabd", "%ab_"), True),
        (call("like", "abcabd", "%ab"), False),
        (call("like", "A", "a"), False),
        (call("like", "", "%%"), True),
        (call("like", "a.c", "a.c"), True),
        (call("like", "abc", "a.c"), False),
        (call("weekday", dt.date(2024, 1, 1)), 1),
        (call("quarter", dt.date(2024, 12, 31)), 4),
        (call("hour", dt.datetime(2024, 1, 1, 23, 59)), 23),
        (call("date_trunc", "week", dt.date(2024, 1, 7)), dt.date(2024, 1, 1)),
        (call("date_trunc", "quarter", dt.date(2024, 6, 30)), dt.date(2024, 4, 1)),
        (call("date_trunc", "hour", dt.datetime(2024, 1, 1, 5, 6, 7, 8)), dt.datetime(2024, 1, 1, 5)),
        (call("days_between", dt.date(2024, 2, 28), dt.date(2024, 3, 1)), 2),
        (call("days_between", dt.datetime(2024, 1, 1, 23), dt.date(2024, 1, 2)), 1),
    ],
    ids=str,
)  # fmt: skip
def test_meanings(expression: Expression, value: Any) -> None:
    row = {"small": 5, "large": LARGEST, "free": LARGEST, "wild": 1.7976931348623157e308}
    found = evaluate(expression, row, COLUMNS)
    assert found == value
    assert type(found) is type(value)
    assert not isinstance(found, float) or math.copysign(1, found) == math.copysign(1, value) or value != 0


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (col("small") * col("small"), Domain.integer(-15, 25)),
        (col("tiny") + col("tiny"), Domain.real(0.2, 0.6, nullable=False)),
        (col("large") * 2, None),
        (call("least", call("greatest", col("wild"), 0), 100), Domain.real(0, 100)),
        (call("abs", col("real")), Domain.real(0, 2)),
        (call("divide", 1, col("tiny")), Domain.real(1 / 0.3, 10, nullable=False)),
        (call("divide", 1, col("real")), None),
        (call("days_between", col("day"), col("day")), Domain.integer(-3652058, 3652058)),
        (call("days_between", col("winter"), col("winter")), Domain.integer(-92, 92)),
        (call("days_between", col("winter"), dt.date(2024, 3, 1)), Domain.integer(0, 92)),
        (call("year", col("winter")), Domain.integer(2023, 2024)),
        (call("year", col("feast")), Domain.integer(2022, 2024)),
        (call("year", col("day")), Domain.integer(1, 9999)),
        (coalesce(col("winter"), col("moment")), Domain.timestamp()),
        (coalesce(col("winter"), col("shift")), Domain.timestamp(dt.datetime(2023, 11, 30), dt.datetime(2024, 3, 1, 6, 0, 0, 1))),
        (col("shift").cast("date"), Domain.date(dt.date(2024, 2, 28), dt.date(2024, 3, 1))),
        (col("winter").cast("timestamp"), Domain.timestamp(dt.datetime(2023, 11, 30), dt.datetime(2024, 3, 1))),
        (call("year", col("shift")), Domain.integer(2024, 2024)),
        (call("days_between", col("winter"), col("shift")), Domain.integer(-2, 92)),
        (case((col("flag"), col("small")), otherwise=col("real")), Domain.real(-3, 5)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds(expression: Expression, found: Domain | None) -> None:
    computed = typed(expression, COLUMNS).domain
    if found is None:
        assert computed.kind is Kind.REAL
        assert computed.bounds is None or computed.bounds[1] >= 2**63
    else:
        assert (computed.kind, computed.bounds, computed.nullable) == (found.kind, found.bounds, found.nullable)


@pytest.mark.parametrize("unit", ["year", "quarter", "month", "week", "day"])
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (dt.date(2023, 11, 30), dt.date(2024, 3, 1)),
        (dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (dt.date(2000, 1, 1), dt.date(2018, 12, 31)),
        (dt.date(9995, 7, 1), dt.date(9999, 12, 31)),
        (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    ],
    ids=str,
)
def test_starts_of_dates_within_bounds_are_public_where_they_are_few(unit: str, first: dt.date, last: dt.date) -> None:
    """All of them and no other, by going through all days."""
    found = domain(call("date_trunc", unit, col("d")), {"d": Domain.date(first, last)})
    days = (last - first).days + 1
    if days > 10_000:
        assert found.keys is None
        assert found.bounds == (first.toordinal(), operator_meanings.date_trunc(unit, last).toordinal())  # type: ignore[union-attr]
        return
    all_days = (dt.date.fromordinal(first.toordinal() + day) for day in range(days))
    starts = tuple(dict.fromkeys(operator_meanings.date_trunc(unit, day) for day in all_days))
    assert found.keys == (starts if len(starts) <= 1000 else None)
    assert domain(col("d"), {"d": Domain.date(first, last)}).keys == (
        tuple(dt.date.fromordinal(first.toordinal() + day) for day in range(days)) if days <= 1000 else None
    )


@pytest.mark.parametrize(
    "wrong",
    [
        col("height"),
        call("frobnicate", 1),
        call("add", col("word"), 1),
        call("add", 1),
        call("and", 1, True),
        call("eq", col("word"), 1),
        call("like", col("word"), col("text")),
        call("like", col("word"), "a\\%"),
        call("prefix", col("word"), -1),
        call("prefix", col("word"), 1.0),
        call("date_trunc", "century", col("day")),
        call("date_trunc", "hour", col("day")),
        call("hour", col("day")),
        call("cast_text", col("real")),
        call("cast_date", 5),
        call("case", True, 1),
        call("case", 1, 1, 1),
        call("in", col("word"), col("text")),
        call("subtract", col("day"), col("day")),
        call("coalesce"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(wrong: Expression) -> None:
    with pytest.raises(QuestionRefused):
        domain(wrong, COLUMNS)


def test_depth_and_size_are_limited() -> None:
    """Where they are built: nobody has to look through what is too large."""
    deep: Expression = col("small")
    for _ in range(100):
        deep = -deep
    assert domain(deep, COLUMNS).kind is COLUMNS["small"].kind
    with pytest.raises(QuestionRefused, match="nested"):
        call("negate", deep)
    with pytest.raises(QuestionRefused, match="parts"):
        domain(call("and", *(call("and", *([col("flag")] * 900)) for _ in range(3))), COLUMNS)


def test_texts_beside_dates_are_read_as_dates() -> None:
    fit = fitted((col("day") >= "2024-01-01") & (col("moment") < "2024-01-01") & (col("word") == "2024-01-01"), COLUMNS)
    wanted = call(
        "and",
        call("and", call("ge", col("day"), dt.date(2024, 1, 1)), call("lt", col("moment"), dt.date(2024, 1, 1))),
        call("eq", col("word"), "2024-01-01"),
    )
    assert same(fit, wanted)


@pytest.mark.parametrize("unit", ["year", "quarter", "month", "week", "day", "hour"])
def test_starts_of_moments_within_bounds_are_public_where_they_are_few(unit: str) -> None:
    """All of them and no other, by going through all half hours."""
    first, last = dt.datetime(2023, 12, 30, 22, 30), dt.datetime(2024, 1, 2, 6, 0, 0, 1)
    found = domain(call("date_trunc", unit, col("t")), {"t": Domain.timestamp(first, last)})
    halves = [first + n * dt.timedelta(minutes=30) for n in range(112)]
    assert halves[-1] <= last
    starts = dict.fromkeys(operator_meanings.date_trunc(unit, each) for each in halves)
    assert found.keys == tuple(starts)
    assert found.kind is Kind.TIMESTAMP
    ever = domain(call("date_trunc", unit, col("t")), {"t": Domain.timestamp(dt.datetime.min, dt.datetime.max)})
    assert ever.keys is None


def test_what_was_found_is_remembered_with_the_columns_it_was_found_for() -> None:
    narrow, wide = Columns({"x": Domain.integer(0, 10)}), Columns({"x": Domain.integer(0, 100)})
    twice = col("x") * 2
    assert typed(twice, narrow) is typed(twice, narrow)
    assert domain(twice, narrow).bounds == (0, 20)
    assert domain(twice, wide).bounds == (0, 200)
    assert fitted(twice, narrow) is twice  # or nothing would be found again
    assert dict(narrow) == {"x": Domain.integer(0, 10)}
    elsewhere = pickle.loads(pickle.dumps(narrow))  # a plan travels to an engine in a process of its own
    assert dict(elsewhere) == dict(narrow)
    assert not elsewhere.checked
    with pytest.raises(TypeError, match="item assignment"):
        narrow["x"] = Domain.integer()  # type: ignore[index]


def test_no_expression_is_taken_for_one_that_is_gone() -> None:
    # Python gives an object the address of one that is gone; remembered by address, the next must not inherit.
    columns = Columns({"x": Domain.integer(0, 10)})
    for i in range(2000):
        assert typed(col("x") + i, columns).domain.bounds == (i, 10 + i)
    assert len(columns.checked) <= 256  # and a frame that is asked for years does not grow


def test_every_operator_says_what_it_is() -> None:
    for name, operator in OPERATORS.items():
        assert operator.name == name
        assert operator.meaning.endswith(".")
        assert operator.takes
        assert operator.gives
        assert operator.sql
