"""The closed table of operators: the kinds each takes and returns, its effect on public bounds, and its meaning.

Three rules hold for every operator.

*Total.* It has a value for every row. Where it is undefined (1/0, sqrt(-1), a number that is not finite, text that is
not a date), the value is NULL. Unless stated otherwise, an operator with a NULL argument is NULL.

*The same everywhere.* Its function in `operator_meanings` defines the meaning, and every engine must return the same
bits. Only `exp`, `ln` and `power` may differ in the last bits, as mathematical libraries do.

*No overflow.* Integer arithmetic is exact if public bounds prove that no result can exceed 64 bits. Otherwise, also for
integers without public bounds, the arguments become REAL first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from deniable.queries.relations import operator_bounds as intervals
from deniable.queries.relations import operator_meanings as meanings
from deniable.queries.relations import text_bounds
from deniable.tables.kinds import LONGEST, Domain, Kind, Scalar

Value = Scalar | None


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table. `takes` and `gives` are for the documentation; `domain` decides.

    `domain` maps the domains of the arguments to the domain of the result, or refuses them. `value` computes the result
    for arguments that are not NULL (if not `strict`, for any), already converted to the kind that `works_in` returns.
    `constants` says which positions must be constants.
    """

    name: str
    takes: str
    gives: str
    sql: str
    meaning: str
    least: int
    most: int
    domain: Callable[[tuple[Domain, ...]], Domain]
    value: Callable[..., Value]
    works_in: Callable[[tuple[Domain, ...], Domain], Kind | None] = lambda arguments, result: None
    strict: bool = True
    constants: Callable[[int], bool] = lambda position: False


def _at(*positions: int) -> Callable[[int], bool]:
    return lambda position: position in positions


def _in_result(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return result.kind


def _in_real(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return Kind.REAL


def _in_moments(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return Kind.TIMESTAMP


def _together(arguments: tuple[Domain, ...], result: Domain) -> Kind | None:
    return intervals.common_kind(arguments)


_MANY: Final = 1000
_TABLE: Final = (
    # arithmetic
    Operator("add", "two numbers", "number", "a + b", "The sum.", 2, 2, intervals.add, meanings.add, _in_result),
    Operator(
        "subtract", "two numbers", "number", "a - b", "The difference.",
        2, 2, intervals.subtract, meanings.subtract, _in_result,
    ),
    Operator(
        "multiply", "two numbers", "number", "a * b", "The product.",
        2, 2, intervals.multiply, meanings.multiply, _in_result,
    ),
    Operator(
        "divide", "two numbers", "real", "a / b",
        "The quotient, also of integers: 7 / 2 is 3.5. NULL if b is 0.",
        2, 2, intervals.divide, meanings.divide, _in_real,
    ),
    Operator(
        "modulo", "two numbers", "number", "a % b",
        "The remainder, with the sign of a: -7 % 3 is -1. NULL if b is 0.",
        2, 2, intervals.modulo, meanings.modulo, _in_result,
    ),
    Operator("negate", "a number", "number", "-a", "Minus a.", 1, 1, intervals.negate, meanings.negate, _in_result),
    Operator(
        "abs", "a number", "number", "ABS(a)", "The size without the sign.",
        1, 1, intervals.absolute, meanings.absolute, _in_result,
    ),
    Operator(
        "floor", "a number", "integer (real if bounds do not fit 64 bits)", "FLOOR(a)",
        "The largest whole number that is at most a.", 1, 1, intervals.floor, meanings.floor,
    ),
    Operator(
        "ceil", "a number", "integer (real if bounds do not fit 64 bits)", "CEIL(a)",
        "The smallest whole number that is at least a.", 1, 1, intervals.ceil, meanings.ceil,
    ),
    Operator(
        "round", "a number", "integer (real if bounds do not fit 64 bits)", "ROUND(a)",
        "The nearest whole number; halves go away from 0.", 1, 1, intervals.rounded, meanings.rounded,
    ),
    Operator(
        "sqrt", "a number", "real", "SQRT(a)", "The square root. NULL below 0.",
        1, 1, intervals.sqrt, meanings.sqrt, _in_real,
    ),
    Operator(
        "ln", "a number", "real", "LN(a)", "The natural logarithm. NULL at 0 and below.",
        1, 1, intervals.ln, meanings.ln, _in_real,
    ),
    Operator(
        "exp", "a number", "real", "EXP(a)", "e to the power of a. NULL if it is not finite.",
        1, 1, intervals.exp, meanings.exp, _in_real,
    ),
    Operator(
        "power", "two numbers", "real", "POWER(a, b)", "a to the power of b. NULL if it is not a finite real number.",
        2, 2, intervals.power, meanings.power, _in_real,
    ),
    Operator(
        "least", "numbers, or texts, or dates", "their kind", "LEAST(a, b, …)",
        "The smallest. NULL if any is NULL.", 1, _MANY, intervals.least, meanings.least, _in_result,
    ),
    Operator(
        "greatest", "numbers, or texts, or dates", "their kind", "GREATEST(a, b, …)",
        "The largest. NULL if any is NULL.", 1, _MANY, intervals.greatest, meanings.greatest, _in_result,
    ),
    # comparisons
    Operator(
        "eq", "two values of one kind", "boolean", "a = b", "Equal. Text is compared exactly.",
        2, 2, intervals.compared, meanings.eq, _together,
    ),
    Operator(
        "ne", "two values of one kind", "boolean", "a <> b", "Not equal.",
        2, 2, intervals.compared, meanings.ne, _together,
    ),
    Operator(
        "lt", "two values of one kind", "boolean", "a < b", "Less. Text is ordered by code point.",
        2, 2, intervals.compared, meanings.lt, _together,
    ),
    Operator(
        "le", "two values of one kind", "boolean", "a <= b", "Less or equal.",
        2, 2, intervals.compared, meanings.le, _together,
    ),
    Operator(
        "gt", "two values of one kind", "boolean", "a > b", "Greater.",
        2, 2, intervals.compared, meanings.gt, _together,
    ),
    Operator(
        "ge", "two values of one kind", "boolean", "a >= b", "Greater or equal.",
        2, 2, intervals.compared, meanings.ge, _together,
    ),
    Operator(
        "in", "a value and constants of its kind", "boolean", "a IN (1, 2, …)",
        "Equal to one of them; NULL if to none and a NULL is among them.",
        2, _MANY, intervals.compared, meanings.is_in, _together, strict=False, constants=lambda position: position > 0,
    ),
    # logic
    Operator(
        "and", "booleans", "boolean", "a AND b", "False if any is false, else NULL if any is NULL, else true.",
        1, _MANY, intervals.logic, meanings.conjunction, strict=False,
    ),
    Operator(
        "or", "booleans", "boolean", "a OR b", "True if any is true, else NULL if any is NULL, else false.",
        1, _MANY, intervals.logic, meanings.disjunction, strict=False,
    ),
    Operator(
        "not", "a boolean", "boolean", "NOT a", "True if false, and the reverse.",
        1, 1, intervals.logic, meanings.negation,
    ),
    Operator(
        "is_null", "anything", "boolean", "a IS NULL", "Whether a is NULL: never NULL itself.",
        1, 1, intervals.never_null, meanings.is_null, strict=False,
    ),
    Operator(
        "case", "conditions and values", "the values' kind", "CASE WHEN c THEN a … ELSE b END",
        "The value of the first condition that is true; the last one if none is.",
        3, _MANY, intervals.case, meanings.case, strict=False,
    ),
    Operator(
        "coalesce", "values of one kind", "their kind", "COALESCE(a, b, …)", "The first that is not NULL.",
        1, _MANY, intervals.coalesce, meanings.coalesce, _in_result, strict=False,
    ),
    Operator(
        "nullif", "two values of one kind", "their kind", "NULLIF(a, b)", "NULL if a = b, else a.",
        2, 2, intervals.nullif, meanings.nullif, _in_result, strict=False,
    ),
    # casts
    Operator(
        "cast_boolean", "a boolean, number or text", "boolean", "CAST(a AS BOOLEAN)",
        "A number is true unless 0. Text is read if it is 'true' or 'false' in any case.",
        1, 1, intervals.cast(Kind.BOOLEAN), meanings.to_boolean,
    ),
    Operator(
        "cast_integer", "a boolean, number or text", "integer", "CAST(a AS INTEGER)",
        "A number is rounded, halves away from 0. Text is read if it is a sign and digits, nothing else.",
        1, 1, intervals.cast(Kind.INTEGER), meanings.to_integer,
    ),
    Operator(
        "cast_real", "a boolean, number or text", "real", "CAST(a AS DOUBLE)",
        "Text is read if it is a decimal number such as -1.5e3, nothing else.",
        1, 1, intervals.cast(Kind.REAL), meanings.to_real,
    ),
    Operator(
        "cast_text", "a boolean, integer, text or date", "text", "CAST(a AS VARCHAR)",
        "true, -12, 2024-02-29. Reals and timestamps have no single spelling and are refused.",
        1, 1, intervals.cast(Kind.TEXT), meanings.to_text,
    ),
    Operator(
        "cast_date", "a date, timestamp or text", "date", "CAST(a AS DATE)",
        "The day of a timestamp. Text is read if it is a date such as 2024-02-29, nothing else.",
        1, 1, intervals.cast(Kind.DATE), meanings.to_date,
    ),
    Operator(
        "cast_timestamp", "a date, timestamp or text", "timestamp", "CAST(a AS TIMESTAMP)",
        "A date is its midnight. Text is read if it is a moment such as 2024-02-29 23:59:59, nothing else.",
        1, 1, intervals.cast(Kind.TIMESTAMP), meanings.to_timestamp,
    ),
    # text
    Operator(
        "lower", "text", "text", "LOWER(a)", "A to Z become a to z; all else stays.",
        1, 1, text_bounds.text, meanings.lower,
    ),
    Operator(
        "upper", "text", "text", "UPPER(a)", "a to z become A to Z; all else stays.",
        1, 1, text_bounds.text, meanings.upper,
    ),
    Operator(
        "trim", "text", "text", "TRIM(a)", "Without the spaces (U+0020) at both ends.",
        1, 1, text_bounds.text, meanings.trim,
    ),
    Operator(
        "length", "text", "integer", "LENGTH(a)", f"The number of code points, at most {LONGEST:,}.",
        1, 1, text_bounds.length, meanings.length,
    ),
    Operator(
        "prefix", "text and a constant from 0 to 1000", "text", "LEFT(a, 3)", "The first code points.",
        2, 2, text_bounds.prefix, meanings.prefix, constants=_at(1),
    ),
    Operator(
        "substring", "text and two constants from 1 to 1000", "text", "SUBSTRING(a, 4, 2)",
        "The code points from the first number on, as many as the second says.",
        3, 3, text_bounds.substring, meanings.substring, constants=_at(1, 2),
    ),
    Operator(
        "split_part", "text, a constant text and a constant from 1 to 1000", "text", "SPLIT_PART(a, '-', 2)",
        "The part of that number between separators; '' if there are fewer.",
        3, 3, text_bounds.split_part, meanings.split_part, constants=_at(1, 2),
    ),
    Operator(
        "replace", "text and two constant texts", "text", "REPLACE(a, '-', ' ')",
        f"With the second text in each place of the first, from the left, cut after {LONGEST:,} code points.",
        3, 3, text_bounds.replace, meanings.replace, constants=_at(1, 2),
    ),
    Operator(
        "position", "text and a constant text", "integer", "STRPOS(a, '-')",
        "The place of the first occurrence, counted in code points from 1; 0 if the text does not occur.",
        2, 2, text_bounds.position, meanings.position, constants=_at(1),
    ),
    Operator(
        "concat", "texts", "text", "a || b",
        f"One after the other, cut after {LONGEST:,} code points. NULL if any is NULL.",
        2, 16, text_bounds.text, meanings.concat,
    ),
    Operator(
        "like", "text and a constant pattern", "boolean", "a LIKE 'x%'",
        "% stands for any text, _ for one code point, every other character for itself. No escape character.",
        2, 2, text_bounds.like, meanings.like, constants=_at(1),
    ),
    Operator(
        "regexp_like", "text and a constant pattern", "boolean", "REGEXP_MATCHES(a, '^x[0-9]+')",
        "Whether the pattern matches a part of the text. Patterns must match in linear time (see below).",
        2, 2, text_bounds.regexp(Kind.BOOLEAN), meanings.regexp_like, constants=_at(1),
    ),
    Operator(
        "regexp_extract", "text, a constant pattern and the number of a group", "text",
        "REGEXP_EXTRACT(a, '([0-9]+)', 1)",
        "The group of the first match, 0 for the whole match; '' without a match.",
        3, 3, text_bounds.regexp(Kind.TEXT), meanings.regexp_extract, constants=_at(1, 2),
    ),
    Operator(
        "regexp_replace", "text, a constant pattern and a constant text", "text",
        "REGEXP_REPLACE(a, '^0+', '')",
        f"With the new text, in which \\1 is the first group, in place of the first match, cut after {LONGEST:,} code "
        "points.",
        3, 3, text_bounds.regexp(Kind.TEXT), meanings.regexp_replace, constants=_at(1, 2),
    ),
    # dates
    Operator(
        "year", "a date or timestamp", "integer", "YEAR(a)", "1 to 9999.",
        1, 1, intervals.year, meanings.year,
    ),
    Operator(
        "quarter", "a date or timestamp", "integer", "QUARTER(a)", "1 to 4.",
        1, 1, intervals.date_part(1, 4), meanings.quarter,
    ),
    Operator(
        "month", "a date or timestamp", "integer", "MONTH(a)", "1 to 12.",
        1, 1, intervals.date_part(1, 12), meanings.month,
    ),
    Operator(
        "day", "a date or timestamp", "integer", "DAY(a)", "1 to 31.",
        1, 1, intervals.date_part(1, 31), meanings.day,
    ),
    Operator(
        "weekday", "a date or timestamp", "integer", "EXTRACT(ISODOW FROM a)", "1 is Monday, 7 is Sunday.",
        1, 1, intervals.date_part(1, 7), meanings.weekday,
    ),
    Operator(
        "hour", "a timestamp", "integer", "HOUR(a)", "0 to 23, UTC.",
        1, 1, intervals.time_part(23), meanings.hour,
    ),
    Operator(
        "minute", "a timestamp", "integer", "MINUTE(a)", "0 to 59.",
        1, 1, intervals.time_part(59), meanings.minute,
    ),
    Operator(
        "second", "a timestamp", "integer", "SECOND(a)", "0 to 59, without fractions.",
        1, 1, intervals.time_part(59), meanings.second,
    ),
    Operator(
        "date_trunc", "a constant unit and a date or timestamp", "the kind of a", "DATE_TRUNC('month', a)",
        "The start of the year, quarter, month, week (Monday), day, or (of timestamps) hour, minute or second.",
        2, 2, intervals.date_trunc, meanings.date_trunc, constants=_at(0),
    ),
    Operator(
        "days_between", "two dates or timestamps", "integer", "DATE_DIFF('day', a, b)",
        "The number of midnights from a to b.", 2, 2, intervals.days_between, meanings.days_between,
    ),
    Operator(
        "microseconds", "a date or timestamp", "integer", "EPOCH_US(a)", "Microseconds since 1970, UTC.",
        1, 1, intervals.microseconds, meanings.microseconds, _in_moments,
    ),
    Operator(
        "add_months", "a date or timestamp and a constant", "the kind of a", "a + INTERVAL 3 MONTH",
        "As many months later, on the last day of a month that is too short. NULL outside the years 1 to 9999.",
        2, 2, intervals.add_months, meanings.add_months, constants=_at(1),
    ),
    Operator(
        "add_time", "a date or timestamp and a constant", "a timestamp; a date if days are added to a date",
        "a + INTERVAL 36 HOUR", "As many microseconds later. NULL outside the years 1 to 9999.",
        2, 2, intervals.add_time, meanings.add_time, _in_result, constants=_at(1),
    ),
)  # fmt: skip

OPERATORS: Final[Mapping[str, Operator]] = {operator.name: operator for operator in _TABLE}
