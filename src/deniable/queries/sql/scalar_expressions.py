"""Scalar expressions of SQL as our own: `scalar` translates a node of the syntax tree by the closed table of functions.

What a column or an aggregate means depends on the clause. So the clause looks up the meaning of each before it calls
`scalar`: `name_scope.RelationExpressions` over rows, `group_by.Items` over groups, and `sql_reader` over noisy answers.
A name that cannot be used has a refusal as its meaning. `scalar` raises it where the name stands, so the leftmost
mistake of a text is the one that is reported.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, final

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import refuse
from deniable.queries.relations import operator_meanings
from deniable.queries.sql import date_expressions
from deniable.queries.sql.function_names import nearest_function, sql_name
from deniable.queries.sql.syntax_tree import conjoined, decimal, exp, number, only, unwrapped
from deniable.queries.sql.time_zones import local_time
from deniable.tables.expressions import Call, Expression, Literal, call, case
from deniable.tables.kinds import LONGEST, Kind

_BINARY: Final[dict[type[exp.Expression], str]] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "modulo", exp.Pow: "power",
    exp.SafeDivide: "divide",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge", exp.Nullif: "nullif",
}  # fmt: skip
_UNARY: Final[dict[type[exp.Expression], str]] = {
    exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt", exp.Ln: "ln", exp.Exp: "exp",
    exp.Not: "not", exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length",
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.DayOfWeekIso: "weekday", exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second", exp.Date: "cast_date",
    exp.TsOrDsToDate: "cast_date",
}  # fmt: skip
_SEVERAL: Final[dict[type[exp.Expression], str]] = {
    exp.Least: "least",
    exp.Greatest: "greatest",
    exp.Coalesce: "coalesce",
}
_SPELLED: Final = frozenset(
    {"year", "quarter", "month", "day", "weekday", "hour", "minute", "second", "cast_date", "cast_integer", "floor"}
)
_TYPES: Final = {
    **dict.fromkeys(("BOOLEAN",), Kind.BOOLEAN),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), Kind.REAL),
    **dict.fromkeys(("TEXT", "VARCHAR"), Kind.TEXT),
    **dict.fromkeys(("DATE",), Kind.DATE),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"), Kind.TIMESTAMP),
}


Meaning = Expression | QuestionRefused
"""What a column, an aggregate or a key means in its clause; a refusal if it must not stand there."""


def scalar(node: exp.Expression, meanings: Mapping[int, Meaning]) -> Expression:
    """The expression of a node. Raises `QuestionRefused` for a function that is not in the closed table.

    `meanings` has every column and aggregate below the node, by the `id` of its node. A larger subtree that has a
    meaning of its own, as a key does, is not read further.
    """
    return _Scalars(meanings).read(node)


_Reader = TypeVar("_Reader", bound=Callable[..., Expression])
_READERS: Final[dict[type[exp.Expression], Callable[..., Expression]]] = {}
"""The method of `_Scalars` for each class of nodes that needs more than the name of an operator."""


def _reads(*kinds: type[exp.Expression]) -> Callable[[_Reader], _Reader]:
    """Mark a method of `_Scalars` as the one that reads nodes of these classes."""

    def noted(reader: _Reader) -> _Reader:
        _READERS.update(dict.fromkeys(kinds, reader))
        return reader

    return noted


@final
class _Scalars:
    """Translates the scalar nodes of one expression."""

    def __init__(self, meanings: Mapping[int, Meaning]) -> None:
        self.meanings = meanings

    def read(self, node: exp.Expression) -> Expression:
        meaning = self.meanings.get(id(node))
        if isinstance(meaning, QuestionRefused):
            raise meaning
        if meaning is not None:
            return meaning
        kind = type(node)
        if kind is exp.Paren:
            return self.read(unwrapped(node))
        if kind in (exp.And, exp.Or):
            parts = [self.read(part) for part in conjoined(node, kind)]
            return call("and" if kind is exp.And else "or", *parts)
        if kind in (exp.Add, exp.Sub) and isinstance(node.args.get("expression"), exp.Interval):
            return self._moved(node.this, node.args["expression"], 1 if kind is exp.Add else -1)
        if kind in _BINARY:
            only(node, "this", "expression", "typed")
            if (constant := decimal(node)) is not None:
                return Literal(constant)
            return self._binary(_BINARY[kind], node)
        if kind in _UNARY:
            only(node, "this")
            return call(_UNARY[kind], self.read(node.this))
        if kind in _SEVERAL:
            only(node, "this", "expressions")
            several = [part for part in (node.args.get("this"), *node.expressions) if part is not None]
            return call(_SEVERAL[kind], *(self.read(part) for part in several))
        if kind in _READERS:
            return _READERS[kind](self, node)
        if isinstance(node, exp.Subquery | exp.Select | exp.Exists | exp.SetOperation | exp.Any | exp.All):
            refuse("subquery")
        if isinstance(node, exp.Window):
            refuse("window")
        if isinstance(node, exp.Star):
            refuse("star")
        refuse("function", what=sql_name(node))

    def _binary(self, operator: str, node: exp.Expression) -> Expression:
        # Long chains of + and - are nested on the left, so that side is walked in a loop instead of recursion.
        chain = [(operator, node)]
        left = node.this
        while type(left) in _BINARY and id(left) not in self.meanings:
            if isinstance(left.args.get("expression"), exp.Interval):
                break
            only(left, "this", "expression", "typed")
            chain.append((_BINARY[type(left)], left))
            left = left.this
        found = self.read(left)
        for each, part in reversed(chain):
            found = call(each, found, self.read(part.args["expression"]))
        return found

    @_reads(exp.Literal)
    def _literal(self, node: exp.Literal) -> Expression:
        if node.is_string:
            return Literal(str(node.this))
        return Literal(number(str(node.this)))

    @_reads(exp.Boolean)
    def _boolean(self, node: exp.Boolean) -> Expression:
        return Literal(bool(node.this))

    @_reads(exp.Null)
    def _null(self, node: exp.Null) -> Expression:
        return Literal(None)

    @_reads(exp.Neg)
    def _neg(self, node: exp.Neg) -> Expression:
        inner = self.read(node.this)
        if isinstance(inner, Literal) and isinstance(inner.value, int | float) and not isinstance(inner.value, bool):
            return Literal(-inner.value)
        return call("negate", inner)

    @_reads(exp.Like)
    def _like(self, node: exp.Like) -> Expression:
        only(node, "this", "expression", "negate")
        return self._negated(node, call("like", self.read(node.this), self.read(node.args["expression"])))

    @_reads(exp.ILike)
    def _ilike(self, node: exp.ILike) -> Expression:
        only(node, "this", "expression", "negate")
        pattern = self.read(node.args["expression"])
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            refuse("constant", what="the pattern of ILIKE")
        return self._negated(
            node, call("like", call("lower", self.read(node.this)), operator_meanings.lower(pattern.value))
        )

    @_reads(exp.In)
    def _in(self, node: exp.In) -> Expression:
        if node.args.get("query") is not None:
            refuse("subquery")
        only(node, "this", "expressions", "negate")
        constants = [self.read(each) for each in node.expressions]
        if not constants or not all(isinstance(each, Literal) for each in constants):
            refuse("constant", what="each member of IN (…)")
        return self._negated(node, call("in", self.read(node.this), *constants))

    @_reads(exp.Between)
    def _between(self, node: exp.Between) -> Expression:
        only(node, "this", "low", "high", "negate")
        value = self.read(node.this)
        within = value.between(self.read(node.args["low"]), self.read(node.args["high"]))
        return self._negated(node, within)

    @_reads(exp.Is)
    def _is(self, node: exp.Is) -> Expression:
        only(node, "this", "expression", "negate")
        value, other = self.read(node.this), node.args["expression"]
        if isinstance(other, exp.Null):
            return self._negated(node, value.is_null())
        if isinstance(other, exp.Boolean):  # IS TRUE is never NULL
            return self._negated(node, call("coalesce", call("eq", value, Literal(bool(other.this))), Literal(False)))
        refuse("function", what="IS with anything but NULL, TRUE or FALSE")

    def _negated(self, node: exp.Expression, value: Call) -> Expression:
        return call("not", value) if node.args.get("negate") else value

    @_reads(exp.Case)
    def _case(self, node: exp.Case) -> Expression:
        only(node, "this", "ifs", "default")
        subject = None if node.this is None else self.read(node.this)
        branches: list[tuple[Expression, object]] = []
        for branch in node.args["ifs"]:
            condition = self.read(branch.this)
            if subject is not None:
                condition = call("eq", subject, condition)
            branches.append((condition, self.read(branch.args["true"])))
        default = node.args.get("default")
        return case(*branches, otherwise=None if default is None else self.read(default))

    @_reads(exp.If)
    def _if(self, node: exp.If) -> Expression:
        only(node, "this", "true", "false")
        other = node.args.get("false")
        return case(
            (self.read(node.this), self.read(node.args["true"])), otherwise=None if other is None else self.read(other)
        )

    @_reads(exp.Cast, exp.TryCast)
    def _cast(self, node: exp.Cast) -> Expression:
        only(node, "this", "to", "_type")
        to = node.args["to"]
        kind = _TYPES.get(to.this.name) if isinstance(to, exp.DataType) and hasattr(to.this, "name") else None
        scale = _scale(to)
        sized = isinstance(to, exp.DataType) and bool(to.expressions) and kind is not Kind.REAL
        if kind is None or sized:
            refuse("cast")
        inner = self.read(node.this)
        if isinstance(inner, Literal) and isinstance(inner.value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}:
            value = operator_meanings.to_date(inner.value) if kind is Kind.DATE else _moment(inner.value)
            if value is None:
                raise QuestionRefused(
                    "constant",
                    f"the text cannot be read as a {kind.value}",
                    "write DATE '2024-12-31' or TIMESTAMP '2024-12-31 23:59:59'",
                )
            return Literal(value)
        made = call(f"cast_{kind.value}", inner)
        return made if scale is None else _rounded(made, scale) if scale else call("round", made)

    @_reads(exp.Round)
    def _round(self, node: exp.Round) -> Expression:
        only(node, "this", "decimals")
        value, digits = self.read(node.this), node.args.get("decimals")
        if digits is None:
            return call("round", value)
        places = self.read(digits)
        if not isinstance(places, Literal) or not isinstance(places.value, int) or not 0 <= places.value <= 15:
            refuse("constant", what="the number of decimals, from 0 to 15,")
        return _rounded(value, places.value)

    @_reads(exp.Trunc)
    def _trunc(self, node: exp.Expression) -> Expression:
        only(node, "this")
        value = self.read(node.this)
        return case((value < 0, call("ceil", value)), otherwise=call("floor", value))

    @_reads(exp.Sign)
    def _sign(self, node: exp.Sign) -> Expression:
        only(node, "this")
        value = self.read(node.this)
        return case((value < 0, -1), (value > 0, 1), (call("eq", value, 0), 0))

    @_reads(exp.WidthBucket)
    def _widthbucket(self, node: exp.WidthBucket) -> Expression:
        only(node, "this", "min_value", "max_value", "num_buckets")
        given = [node.args.get(each) for each in ("min_value", "max_value", "num_buckets")]
        ends = [None if each is None else self.read(each) for each in given]
        low, high, buckets = (each.value if isinstance(each, Literal) else None for each in ends)
        if not (
            isinstance(low, int | float) and isinstance(high, int | float) and isinstance(buckets, int)
            and low < high and 1 <= buckets <= 1000
        ):  # fmt: skip
            refuse("constant", what="each end of WIDTH_BUCKET(x, low, high, buckets), with at most 1000 buckets,")
        return bucket(self.read(node.this), low, high, buckets)

    @_reads(exp.DPipe)
    def _dpipe(self, node: exp.DPipe) -> Expression:
        only(node, "this", "expression")
        return call("concat", *(self.read(part) for part in conjoined(node, exp.DPipe)))

    @_reads(exp.Concat)
    def _concat(self, node: exp.Concat) -> Expression:
        only(node, "expressions", "safe", "coalesce")
        # CONCAT writes parts of dates as text.
        return call("concat", *(_as_text(self.read(part)) for part in node.expressions))

    @_reads(exp.Left)
    def _left(self, node: exp.Left) -> Expression:
        only(node, "this", "expression")
        return call("prefix", self.read(node.this), self.read(node.args["expression"]))

    @_reads(exp.Substring)
    def _substring(self, node: exp.Substring) -> Expression:
        only(node, "this", "start", "length")
        start, length = node.args.get("start"), node.args.get("length")
        if start is None:
            refuse("substring")
        first, text = self.read(start), self.read(node.this)
        size = Literal(LONGEST) if length is None else self.read(length)
        if isinstance(first, Literal) and first.value == 1:
            return call("prefix", text, size)
        if not all(isinstance(each, Literal) and type(each.value) is int and each.value > 0 for each in (first, size)):
            refuse("substring")
        return call("substring", text, first, size)

    @_reads(exp.SplitPart)
    def _splitpart(self, node: exp.SplitPart) -> Expression:
        only(node, "this", "delimiter", "part_index")
        return call("split_part", *(self.read(node.args[each]) for each in ("this", "delimiter", "part_index")))

    @_reads(exp.Replace)
    def _replace(self, node: exp.Replace) -> Expression:
        only(node, "this", "expression", "replacement")
        new = node.args.get("replacement")
        return call(
            "replace", self.read(node.this), self.read(node.args["expression"]), "" if new is None else self.read(new)
        )

    @_reads(exp.StrPosition)
    def _strposition(self, node: exp.StrPosition) -> Expression:
        only(node, "this", "substr")
        return call("position", self.read(node.this), self.read(node.args["substr"]))

    @_reads(exp.Contains)
    def _contains(self, node: exp.Contains) -> Expression:
        only(node, "this", "expression")
        return call("gt", call("position", self.read(node.this), self.read(node.args["expression"])), 0)

    @_reads(exp.RegexpLike)
    def _regexplike(self, node: exp.RegexpLike) -> Expression:
        only(node, "this", "expression")
        return call("regexp_like", self.read(node.this), self.read(node.args["expression"]))

    @_reads(exp.RegexpExtract)
    def _regexpextract(self, node: exp.RegexpExtract) -> Expression:
        only(node, "this", "expression", "group", *_EXTRACTING)
        text, pattern, group = self.read(node.this), self.read(node.args["expression"]), node.args.get("group")
        # BigQuery returns the group if the pattern has one, and NULL if nothing matches; other dialects return the
        # whole match, or ''.
        null = bool(node.args.get("null_if_no_match"))
        bracket = isinstance(pattern, Literal) and "(" in str(pattern.value).replace("\\(", "").replace("(?:", "")
        number = Literal(int(null and bracket)) if group is None else self.read(group)
        found = call("regexp_extract", text, pattern, number)
        return case((call("regexp_like", text, pattern), found)) if null else found

    @_reads(exp.RegexpReplace)
    def _regexpreplace(self, node: exp.RegexpReplace) -> Expression:
        if node.args.get("modifiers") is not None or not node.args.get("single_replace"):
            refuse("replace all")
        only(node, "this", "expression", "replacement", "single_replace")
        new = node.args.get("replacement")
        given = [self.read(node.this), self.read(node.args["expression"])]
        return call("regexp_replace", *given, "" if new is None else self.read(new))

    @_reads(exp.AtTimeZone)
    def _attimezone(self, node: exp.AtTimeZone) -> Expression:
        """a AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin': the local time of a, which is in UTC."""
        only(node, "this", "zone")
        inner = unwrapped(node.this)
        if not isinstance(inner, exp.AtTimeZone) or _zone(self.read(inner.args["zone"])).upper() not in _UTC:
            refuse("time zone")
        return local_time(self.read(inner.this), _zone(self.read(node.args["zone"])))

    @_reads(exp.ConvertTimezone)
    def _converttimezone(self, node: exp.ConvertTimezone) -> Expression:
        only(node, "source_tz", "target_tz", "timestamp")
        source = node.args.get("source_tz")
        if source is None or _zone(self.read(source)).upper() not in _UTC:
            refuse("time zone")
        return local_time(self.read(node.args["timestamp"]), _zone(self.read(node.args["target_tz"])))

    @_reads(exp.StartsWith)
    def _startswith(self, node: exp.StartsWith) -> Expression:
        only(node, "this", "expression")
        start = self.read(node.args["expression"])
        if not isinstance(start, Literal) or not isinstance(start.value, str):
            refuse("constant", what="the beginning in STARTS_WITH")
        return call("eq", call("prefix", self.read(node.this), len(start.value)), start)

    @_reads(exp.Trim)
    def _trim(self, node: exp.Trim) -> Expression:
        if any(node.args.get(each) for each in ("expression", "position", "collation")):
            refuse("trim")
        return call("trim", self.read(node.this))

    @_reads(exp.Extract)
    def _extract(self, node: exp.Extract) -> Expression:
        only(node, "this", "expression")
        word, inner = str(node.this.name), unwrapped(node.args["expression"])
        if word.upper() == "EPOCH" and isinstance(inner, exp.Sub) and not isinstance(inner.expression, exp.Interval):
            # The difference of two moments is an interval, whose seconds are those between them.
            ends = (date_expressions.seconds(self.read(each)) for each in (inner.this, inner.expression))
            return call("subtract", *ends)
        return date_expressions.part(word, self.read(inner))

    @_reads(exp.DayOfWeek)
    def _dayofweek(self, node: exp.Expression) -> Expression:
        only(node, "this")
        return date_expressions.part("dow", self.read(node.this))

    @_reads(exp.DayOfYear)
    def _dayofyear(self, node: exp.Expression) -> Expression:
        only(node, "this")
        return date_expressions.part("doy", self.read(node.this))

    @_reads(exp.Week, exp.WeekOfYear)
    def _week(self, node: exp.Expression) -> Expression:
        only(node, "this")
        return date_expressions.part("week", self.read(node.this))

    @_reads(exp.TimeToUnix)
    def _timetounix(self, node: exp.Expression) -> Expression:
        only(node, "this")
        return date_expressions.seconds(self.read(node.this))

    @_reads(exp.Anonymous)
    def _anonymous(self, node: exp.Anonymous) -> Expression:
        if str(node.this).lower() not in {"date_part", "datepart"} or len(node.expressions) != 2:
            if (near := nearest_function(sql_name(node))) is not None:
                raise QuestionRefused("function", f"{sql_name(node)} is not supported", f"did you mean {near}?")
            refuse("function", what=sql_name(node))
        word = self.read(node.expressions[0])
        if not isinstance(word, Literal) or not isinstance(word.value, str):
            refuse("constant", what="the unit of DATE_PART")
        return date_expressions.part(word.value, self.read(node.expressions[1]))

    @_reads(exp.CurrentDate)
    def _currentdate(self, node: exp.CurrentDate) -> Expression:
        only(node)
        return Literal(node.meta["today"])  # noted by `dialect.read`, once for all places in the text

    @_reads(exp.TimestampTrunc, exp.DateTrunc)
    def _timestamptrunc(self, node: exp.Expression) -> Expression:
        only(node, "this", "unit", "input_type_preserved")
        unit = str(node.args["unit"].name).lower() if node.args.get("unit") is not None else ""
        if unit not in operator_meanings.UNITS:
            refuse("unit", what=", ".join(operator_meanings.UNITS))
        return call("date_trunc", unit, self.read(node.this))

    @_reads(exp.DateDiff)
    def _datediff(self, node: exp.DateDiff) -> Expression:
        only(node, "this", "expression", "unit")
        return date_expressions.crossed(_unit(node), self.read(node.args["expression"]), self.read(node.this))

    @_reads(exp.TimestampDiff)
    def _timestampdiff(self, node: exp.TimestampDiff) -> Expression:
        only(node, "this", "expression", "unit")
        return date_expressions.elapsed(_unit(node), self.read(node.args["expression"]), self.read(node.this))

    @_reads(exp.DateAdd, exp.TimestampAdd)
    def _dateadd(self, node: exp.DateAdd) -> Expression:
        only(node, "this", "expression", "unit")
        return self._moved(node.this, node.args["expression"], 1, node.args.get("unit"))

    @_reads(exp.DateSub, exp.TimestampSub)
    def _datesub(self, node: exp.DateSub) -> Expression:
        only(node, "this", "expression", "unit")
        return self._moved(node.this, node.args["expression"], -1, node.args.get("unit"))

    def _moved(
        self, date: exp.Expression, by: exp.Expression, sign: int, unit: exp.Expression | None = None
    ) -> Expression:
        if isinstance(by, exp.Interval):
            only(by, "this", "unit")
            by, unit = by.this, by.args.get("unit")
        amount = self.read(by)
        if not isinstance(amount, Literal) or type(amount.value) not in (int, str):
            refuse("interval")
        word = None if unit is None else str(unit.name)
        return date_expressions.moved(self.read(date), date_expressions.amounts(str(amount.value), word), sign)

    @_reads(exp.TimeToStr)
    def _timetostr(self, node: exp.Expression) -> Expression:
        only(node, "this", "format")
        pattern = self.read(node.args["format"])
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            refuse("date format")
        date_expressions.directives(pattern.value)
        return date_expressions.formatted(self.read(node.this), pattern.value)

    @_reads(exp.IntDiv)
    def _intdiv(self, node: exp.Expression) -> Expression:
        refuse("integer division")

    @_reads(exp.Log)
    def _log(self, node: exp.Expression) -> Expression:
        only(node, "this", "expression")
        if node.args.get("expression") is None:
            refuse("log")
        base = self.read(node.this)
        if not isinstance(base, Literal) or not isinstance(base.value, int) or base.value not in (2, 10):
            refuse("log")
        return call("divide", call("ln", self.read(node.args["expression"])), math.log(base.value))

    @_reads(exp.NullSafeEQ, exp.EqualNull)
    def _nullsafeeq(self, node: exp.Expression) -> Expression:
        """a IS NOT DISTINCT FROM b: never NULL."""
        only(node, "this", "expression")
        a, b = self.read(node.this), self.read(node.args["expression"])
        return call("coalesce", call("eq", a, b), call("and", a.is_null(), b.is_null()))

    @_reads(exp.NullSafeNEQ)
    def _nullsafeneq(self, node: exp.Expression) -> Expression:
        return call("not", self._nullsafeeq(node))

    @_reads(exp.Interval)
    def _interval(self, node: exp.Expression) -> Expression:
        refuse("interval")

    @_reads(exp.Window)
    def _window(self, node: exp.Expression) -> Expression:
        refuse("window")


def bucket(value: Expression, low: float, high: float, buckets: int) -> Expression:
    """WIDTH_BUCKET: 0 below `low`, 1 to `buckets` in between, one more from `high` on.

    >>> from deniable.tables.expressions import col
    >>> from deniable.tables.kinds import Domain
    >>> from deniable.queries.relations.operators import evaluate
    >>> [evaluate(bucket(col("x"), 0, 10, 5), {"x": x}, {"x": Domain.real()}) for x in (-1.0, 0.0, 9.9, 10.0)]
    [0, 1, 5, 6]
    """
    # The quotient of two floats may round up to the last edge, so the bucket is clamped once more.
    inside = call("floor", call("divide", call("multiply", call("subtract", value, low), buckets), high - low))
    place = call("least", call("greatest", call("cast_integer", inside), 0), buckets - 1)
    return case((value < low, 0), (value >= high, buckets + 1), (~value.is_null(), call("add", place, 1)))


_UTC: Final = frozenset({"UTC", "GMT", "ETC/UTC", "Z"})
_EXTRACTING: Final = ("null_if_pos_overflow", "null_if_no_match", "empty_if_group_missing")
"""What the parser notes about the meaning of REGEXP_EXTRACT in a dialect."""


def _rounded(value: Expression, places: int) -> Expression:
    scale = Literal(10**places)
    return call("divide", call("round", call("multiply", value, scale)), scale)


def _scale(to: exp.Expression) -> int | None:
    """The number of decimals of DECIMAL(10, 2), to which a cast rounds; None for other types."""
    if not isinstance(to, exp.DataType) or to.this.name != "DECIMAL" or not to.expressions:
        return None
    written = str(to.expressions[1].name) if len(to.expressions) > 1 else "0"
    if not written.isdigit() or int(written) > 15:
        refuse("cast")
    return int(written)


def _zone(value: Expression) -> str:
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        refuse("constant", what="a time zone")
    return value.value


def _as_text(value: Expression) -> Expression:
    return call("cast_text", value) if isinstance(value, Call) and value.operator in _SPELLED else value


def _unit(node: exp.Expression) -> str:
    unit = node.args.get("unit")
    return "day" if unit is None else date_expressions.unit_of(str(unit.name))


def _moment(text: str) -> dt.datetime | None:
    day = operator_meanings.to_date(text)
    return operator_meanings.to_timestamp(text if day is None else day)
