"""What other dialects write differently, as DuckDB's SQL: `translated` replaces nodes of the syntax tree.

The parser keeps functions of a dialect apart that mean something else there: DATE_FORMAT of Spark has patterns of its
own, and REGEXP_LIKE of Snowflake matches the whole text. Each is replaced by nodes that the rest of this room reads, or
refused where it has no equal. A few functions of other dialects mean the same everywhere, and are accepted in all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import refuse
from deniable.queries.sql.syntax_tree import exp, unwrapped

try:
    from sqlglot.dialects import Postgres
except ImportError:
    from deniable.errors import MissingExtra

    raise MissingExtra("sqlglot", "sql") from None

Rule = Callable[[exp.Expression, str], exp.Expression]
"""What a node means in a dialect, as a node of DuckDB's SQL. Its parts are translated already."""

_SUNDAY_IS_ONE: Final = frozenset({"bigquery", "spark"})
"""The dialects that count days of a week from 1 for Sunday, where DuckDB counts from 0."""
_ESCAPING: Final = frozenset({"bigquery", "postgres", "spark"})
"""The dialects in which a backslash in a pattern of LIKE makes the next character stand for itself."""
_PATTERNS: Final = frozenset({"postgres", "snowflake", "spark"})
"""The dialects whose date formats consist of letters, such as YYYY-MM."""
_LETTERS: Final = re.compile(r"(?<!%)[A-Za-z\"']")
_STRICT: Final = re.compile(r"(%[A-Za-z])strict")
_UNITS: Final = {
    **dict.fromkeys(("YYYY", "YY"), "YEAR"), **dict.fromkeys(("MM", "MON"), "MONTH"), "DD": "DAY",
}  # fmt: skip
"""Spark's further names of units."""


def translated(tree: exp.Expression, dialect: str) -> exp.Expression:
    """The tree of a text in a dialect, in DuckDB's words. Raises `QuestionRefused` for what has no equal."""
    found: list[exp.Expression] = list(tree.walk(bfs=True))  # type: ignore[arg-type]  # typed by their base
    for node in reversed(found):  # the innermost first
        rule = _RULES.get(type(node))
        made = node if rule is None else rule(node, dialect)
        if made is not node:
            made.meta.update(node.meta)
            if node is tree:
                return made
            node.replace(made)
    return tree


# -- dates -------------------------------------------------------------------------------------------------------------


def _weeks(node: exp.Expression, dialect: str) -> exp.Expression:
    """Days of a week from Sunday as 1. Numbers of weeks that begin on Sunday are refused: DuckDB's begin on Monday."""
    if dialect not in _SUNDAY_IS_ONE:
        return node
    word = str(node.this.name).upper() if isinstance(node, exp.Extract) else ""
    if dialect == "bigquery" and (isinstance(node, exp.Week | exp.WeekOfYear) or word.startswith("WEEK")):
        rule = "bigquery numbers weeks that begin on Sunday, which is not supported"
        raise QuestionRefused("function", rule, "write EXTRACT(ISOWEEK FROM a)")
    if not isinstance(node, exp.DayOfWeek) and word not in {"DOW", "DAYOFWEEK"}:
        return node
    date = node.this if isinstance(node, exp.DayOfWeek) else node.args["expression"]
    counted = exp.Extract(this=exp.var("DOW"), expression=date.copy())
    return exp.Paren(this=exp.Add(this=counted, expression=exp.Literal.number(1)))


_WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def _week_from(date: exp.Expression, day: str) -> exp.Expression:
    """The start of a week that begins on a day: that of a week from Monday, of the date as many days earlier."""
    if day not in _WEEKDAYS:
        refuse("unit", what="WEEK, WEEK(SUNDAY) to WEEK(SATURDAY), ISOWEEK and longer or shorter units")
    days, week = exp.Literal.number(_WEEKDAYS.index(day)), exp.var("WEEK")
    if day == "MONDAY":
        return exp.TimestampTrunc(this=date.copy(), unit=week)
    earlier = exp.DateSub(this=date.copy(), expression=days, unit=exp.var("DAY"))
    start = exp.TimestampTrunc(this=earlier, unit=week)
    return exp.DateAdd(this=start, expression=days.copy(), unit=exp.var("DAY"))


def _extract(node: exp.Expression, dialect: str) -> exp.Expression:
    inner = unwrapped(node.args["expression"])
    if dialect == "bigquery" and isinstance(inner, exp.AtTimeZone):
        node.set("expression", _local(inner.this, inner.args["zone"]))
    if str(node.this.name).upper() == "DATE":
        return exp.cast(node.args["expression"].copy(), "date")
    return _weeks(node, dialect)


def _truncated(node: exp.Expression, dialect: str) -> exp.Expression:
    unit = node.args.get("unit")
    word = "" if unit is None else str(unit.name).upper()
    if dialect == "spark" and word in _UNITS:
        node.set("unit", exp.var(_UNITS[word]))
    if isinstance(unit, exp.WeekStart):
        return _week_from(node.this, word)
    if word == "ISOWEEK":
        node.set("unit", exp.var("WEEK"))
    return node


def _truncated_moment(node: exp.Expression, dialect: str) -> exp.Expression:
    return _truncated(exp.TimestampTrunc(this=node.this.copy(), unit=node.args["unit"].copy()), dialect)


def _distance(node: exp.Expression, dialect: str) -> exp.Expression:
    node.args.pop("date_part_boundary", None)
    if dialect == "spark" and node.args.get("unit") is not None:  # DATEDIFF(HOUR, a, b) counts whole hours there
        ends = [each.this if isinstance(each, exp.TsOrDsToDate) else each for each in (node.this, node.expression)]
        return exp.TimestampDiff(this=ends[0].copy(), expression=ends[1].copy(), unit=node.args["unit"].copy())
    unit = node.args.get("unit")
    word = "" if unit is None else str(unit.name).upper()
    if isinstance(unit, exp.WeekStart):
        return _weeks_between(node, word)
    if word == "ISOWEEK" or (word == "WEEK" and dialect == "snowflake"):
        return _weeks_between(node, "MONDAY")
    return node


def _weeks_between(node: exp.Expression, day: str) -> exp.Expression:
    """How many weeks that begin on a day start between two dates."""
    later, earlier = (_week_from(each, day) for each in (node.this, node.expression))
    days = exp.DateDiff(this=later, expression=earlier, unit=exp.var("DAY"))
    return exp.Floor(this=exp.Div(this=days, expression=exp.Literal.number(7)))


def _distance_of_moments(node: exp.Expression, dialect: str) -> exp.Expression:
    made = exp.DateDiff(this=node.this.copy(), expression=node.expression.copy(), unit=node.args["unit"].copy())
    return _distance(made, dialect)


def _days_later(node: exp.Expression, dialect: str) -> exp.Expression:
    """Spark's DATE_ADD(d, 30), and DATE_SUB(d, 30), which the parser reads as 30 * -1 days later."""
    amount, negative = unwrapped(node.expression), False
    if isinstance(amount, exp.Mul) and isinstance(amount.expression, exp.Neg):
        amount, negative = unwrapped(amount.this), True
    kind = exp.DateSub if negative else exp.DateAdd
    return kind(this=exp.cast(node.this.copy(), "date"), expression=amount.copy(), unit=exp.var("DAY"))


def _months_later(node: exp.Expression, dialect: str) -> exp.Expression:
    if dialect != "spark":  # elsewhere the last day of a month stays the last day
        refuse("function", what="ADD_MONTHS")
    return exp.DateAdd(
        this=exp.cast(node.this.copy(), "date"), expression=node.expression.copy(), unit=exp.var("MONTH")
    )


def _last_day(node: exp.Expression, dialect: str) -> exp.Expression:
    if node.args.get("unit") is not None:
        return node
    start = exp.TimestampTrunc(this=exp.cast(node.this.copy(), "date"), unit=exp.var("MONTH"))
    following = exp.DateAdd(this=start, expression=exp.Literal.number(1), unit=exp.var("MONTH"))
    return exp.DateSub(this=following, expression=exp.Literal.number(1), unit=exp.var("DAY"))


def _local(moment: exp.Expression, zone: exp.Expression) -> exp.Expression:
    utc = exp.AtTimeZone(this=moment.copy(), zone=exp.Literal.string("UTC"))
    return exp.AtTimeZone(this=utc, zone=zone.copy())


def _date(node: exp.Expression, dialect: str) -> exp.Expression:
    zone = node.args.get("zone")
    return node if zone is None else exp.cast(_local(node.this, zone), "date")


def _zoned(node: exp.Expression, dialect: str) -> exp.Expression:
    """FROM_UTC_TIMESTAMP(t, zone) of Spark, which has no AT TIME ZONE."""
    if dialect != "spark":
        return node
    moment = node.this.this if isinstance(node.this, exp.Cast) else node.this
    return _local(moment, node.args["zone"])


def _moment(node: exp.Expression, dialect: str) -> exp.Expression:
    return exp.cast(node.this.copy(), "timestamp")


def _formatted(node: exp.Expression, dialect: str) -> exp.Expression:
    """A date as text, by a pattern of %Y, %m and so on; the letters of other patterns are replaced by the parser."""
    date, pattern = node.this, node.args.get("format")
    while isinstance(date, exp.TsOrDsToTimestamp | exp.TsOrDsToDatetime | exp.TimeStrToTime):
        date = date.this
    if pattern is None or not (isinstance(pattern, exp.Literal) and pattern.is_string):
        return exp.TimeToStr(this=date.copy(), format=None if pattern is None else pattern.copy())
    text = str(pattern.this)
    if isinstance(node, exp.ToChar):
        if node.args.get("nlsparam") is not None:
            refuse("function", what="TO_CHAR with three arguments")
        text = str(Postgres.format_time(exp.Literal.string(text)).this)
    text = _STRICT.sub(r"\1", text)
    if (dialect in _PATTERNS or isinstance(node, exp.ToChar)) and _LETTERS.search(text):
        refuse("date format")  # a letter that is not a part of a date may be one in that dialect
    return exp.TimeToStr(this=date.copy(), format=exp.Literal.string(text))


# -- texts -------------------------------------------------------------------------------------------------------------


def _raw(node: exp.Expression, dialect: str) -> exp.Expression:
    return exp.Literal.string(str(node.this))


def _like(node: exp.Expression, dialect: str) -> exp.Expression:
    pattern = unwrapped(node.expression)
    if dialect in _ESCAPING and isinstance(pattern, exp.Literal) and "\\" in str(pattern.this):
        rule = "LIKE has no escape character here, and a backslash is one in this dialect"
        raise QuestionRefused("function", rule, "compare a part of the text instead: LEFT(a, 2) = 'x%'")
    return node


def _matched(node: exp.Expression, dialect: str) -> exp.Expression:
    """REGEXP_LIKE of Snowflake, which matches the whole text."""
    if not node.args.pop("full_match", False):
        return node
    pattern = unwrapped(node.expression)
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        refuse("constant", what="the pattern of REGEXP_LIKE")
    node.set("expression", exp.Literal.string(f"^({pattern.this})$"))
    return node


def _found(node: exp.Expression, dialect: str) -> exp.Expression:
    node.args.pop("clamp_position", None)
    return node


def _first_part(node: exp.Expression, dialect: str) -> exp.Expression:
    """SUBSTRING_INDEX(a, '-', 1) of Spark: the text before the first separator."""
    if str(node.args["count"].name) != "1":
        refuse("function", what="SUBSTRING_INDEX with another count than 1")
    return _split(node.this, node.args["delimiter"])


def _split(text: exp.Expression, by: exp.Expression) -> exp.Expression:
    return exp.SplitPart(this=text.copy(), delimiter=by.copy(), part_index=exp.Literal.number(1))


# -- numbers and values ------------------------------------------------------------------------------------------------


def _quotient(node: exp.Expression, dialect: str) -> exp.Expression:
    """DIV, which cuts the fraction off in all dialects that have it; // of DuckDB does not."""
    if dialect == "duckdb":
        return node
    return exp.Trunc(this=exp.Paren(this=exp.Div(this=node.this.copy(), expression=node.expression.copy())))


def _logarithm(node: exp.Expression, dialect: str) -> exp.Expression:
    if dialect == "postgres" and node.args.get("expression") is None:
        return exp.Log(this=exp.Literal.number(10), expression=node.this.copy())
    return node


def _counted(node: exp.Expression, dialect: str) -> exp.Expression:
    node.args.pop("zero_on_all_null", None)
    return node


def _approximate(node: exp.Expression, dialect: str) -> exp.Expression:
    node.args.pop("accuracy", None)  # exact before the noise
    return node


def _decoded(node: exp.Expression, dialect: str) -> exp.Expression:
    """DECODE(a, 'x', 1, 'y', 2, 0) as a CASE. Refused if it compares with NULL, which `=` would never find."""
    subject, *rest = node.expressions
    found, other = (rest[:-1], rest[-1]) if len(rest) % 2 else (rest, None)
    if any(isinstance(unwrapped(each), exp.Null) for each in found[::2]):
        refuse("function", what="DECODE with NULL")
    branches = [
        exp.If(this=exp.EQ(this=subject.copy(), expression=value.copy()), true=then.copy())
        for value, then in zip(found[::2], found[1::2], strict=True)
    ]
    return exp.Case(ifs=branches, default=None if other is None else other.copy())


def _chosen(node: exp.Expression, dialect: str) -> exp.Expression:
    """NVL2(a, b, c): b if a is not NULL."""
    known = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    other = node.args.get("false")
    return exp.If(this=known, true=node.args["true"].copy(), false=None if other is None else other.copy())


def _element(node: exp.Expression, dialect: str) -> exp.Expression:
    """APPROX_QUANTILES(a, 100)[OFFSET(50)] and SPLIT(a, '-')[OFFSET(0)] of BigQuery."""
    of, places = unwrapped(node.this), node.expressions
    place = unwrapped(places[0]) if len(places) == 1 else None
    if not isinstance(place, exp.Literal) or place.is_string or not str(place.this).isdigit():
        return node
    number = int(str(place.this)) - int(node.args.get("offset") or 0)
    if isinstance(of, exp.ApproxQuantiles):
        parts = unwrapped(of.expression) if of.args.get("expression") is not None else None
        most = int(str(parts.this)) if isinstance(parts, exp.Literal) and str(parts.this).isdigit() else 0
        if not 0 <= number <= most or most == 0:
            refuse("constant", what="the place of a quantile, from 0 to the number of parts,")
        return exp.Quantile(this=of.this.copy(), quantile=exp.Literal.number(repr(number / most)))
    if isinstance(of, exp.Split) and number == 0 and of.args.get("expression") is not None:
        return _split(of.this, of.expression)
    return node


# -- windows -----------------------------------------------------------------------------------------------------------


def _windows_written_out(node: exp.Expression, dialect: str) -> exp.Expression:
    """A SELECT in which windows of its WINDOW clause stand where their names are used."""
    named: dict[str, exp.Expression] = {}
    for each in node.args.pop("windows", None) or ():
        _write_out(each, named)
        named[str(each.this.name).casefold()] = each
    for each in list(node.find_all(exp.Window)):
        if each.args.get("alias") is not None and each.find_ancestor(exp.Select) is node:
            _write_out(each, named)
    return node


def _write_out(window: exp.Expression, named: dict[str, exp.Expression]) -> None:
    """Add the parts of the window that this one names: OVER w, or OVER (w ORDER BY a)."""
    name = window.args.pop("alias", None)
    if name is None:
        return
    found = named.get(str(name.name).casefold())
    parts = ("partition_by", "order", "spec")
    if found is None or any(window.args.get(each) and found.args.get(each) for each in parts):
        refuse("window name", name=str(name.name))
    for each in parts:
        if (given := found.args.get(each)) is not None:
            window.set(each, [part.copy() for part in given] if isinstance(given, list) else given.copy())


# -- functions that the parser does not know ---------------------------------------------------------------------------


def _listed(node: exp.Expression, dialect: str) -> exp.Expression:
    if not isinstance(node.parent, exp.Bracket):
        rule = "APPROX_QUANTILES gives a list, and a column has one value"
        raise QuestionRefused("function", rule, "write APPROX_QUANTILES(a, 100)[OFFSET(50)]")
    return node


def _unknown(node: exp.Expression, dialect: str) -> exp.Expression:
    name, given = str(node.this).upper(), [each.copy() for each in node.expressions]
    match name, len(given):
        case "IFF", 3:
            return exp.If(this=given[0], true=given[1], false=given[2])
        case "FORMAT_DATE" | "FORMAT_TIMESTAMP" | "FORMAT_DATETIME", 2:
            return exp.TimeToStr(this=given[1], format=given[0])
        case "WEEKDAY", 1 if dialect == "spark":  # Monday is 0 there
            return exp.Paren(this=exp.Sub(this=exp.DayOfWeekIso(this=given[0]), expression=exp.Literal.number(1)))
    return node


def _cast(node: exp.Expression, dialect: str) -> exp.Expression:
    """TIMESTAMP of BigQuery and Spark is a moment in UTC, as all of ours are."""
    if dialect in {"bigquery", "spark"} and node.args["to"].this.name == "TIMESTAMPTZ":
        return exp.cast(node.this.copy(), "timestamp")
    if dialect == "snowflake" and node.args["to"].this.name == "DECIMAL" and not node.args["to"].expressions:
        return exp.Round(this=node.this.copy())  # NUMBER is NUMBER(38, 0) there
    return node


_RULES: Final[dict[type[exp.Expression], Rule]] = {
    exp.Anonymous: _unknown,
    exp.AddMonths: _months_later,
    exp.ApproxQuantile: _approximate,
    exp.ApproxQuantiles: _listed,
    exp.AtTimeZone: _zoned,
    exp.Bracket: _element,
    exp.Cast: _cast,
    exp.CountIf: _counted,
    exp.Date: _date,
    exp.DateDiff: _distance,
    exp.DateTrunc: _truncated,
    exp.DatetimeDiff: _distance_of_moments,
    exp.DatetimeTrunc: _truncated_moment,
    exp.DayOfWeek: _weeks,
    exp.DecodeCase: _decoded,
    exp.Extract: _extract,
    exp.IntDiv: _quotient,
    exp.LastDay: _last_day,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Log: _logarithm,
    exp.Nvl2: _chosen,
    exp.RawString: _raw,
    exp.RegexpLike: _matched,
    exp.Select: _windows_written_out,
    exp.StrPosition: _found,
    exp.SubstringIndex: _first_part,
    exp.TimeToStr: _formatted,
    exp.TimestampTrunc: _truncated,
    exp.ToChar: _formatted,
    exp.TryCast: _cast,
    exp.TsOrDsAdd: _days_later,
    exp.TsOrDsToDatetime: _moment,
    exp.TsOrDsToTimestamp: _moment,
    exp.UnixSeconds: lambda node, dialect: exp.TimeToUnix(this=node.this.copy()),
    exp.Week: _weeks,
    exp.WeekOfYear: _weeks,
}
