"""The checks of numbers: every type of number against every range, compared with exact fractions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable import arguments
from deniable.arguments import COUNT, INNER_PROBABILITY, NOT_NEGATIVE, POSITIVE, PROBABILITY, NumberRange, at_least
from deniable.curves import curve_arguments, decimal_arithmetic
from deniable.curves.exact_amounts import exact_amount
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import rational_parameters
from deniable.numbers import down, up
from tests.table import every_row
from tests.wording import worded

SOURCE = Path(arguments.__file__).parent

NUMBERS: list[Any] = [
    0, 1, -1, 3, 10**400, -(10**400), 0.5, -0.5, 1.0, -0.0, 5e-324, 1e300, math.nextafter(1, 0), math.nextafter(1, 2),
    Fraction(1, 3), Fraction(-1, 10**400), 1 + Fraction(1, 10**30), 1 - Fraction(1, 10**30), Decimal("0.1"), Decimal(-2),
    np.int8(-7), np.uint64(2**63), np.float16(0.5), np.float32(0.1), np.float64(0.25), np.longdouble(1) / 3,
]  # fmt: skip

NOT_FINITE: list[Any] = [
    math.nan, math.inf, -math.inf, np.float32("nan"), np.longdouble("inf"), Decimal("NaN"), Decimal("sNaN"),
    Decimal("Infinity"),
]  # fmt: skip

NOT_NUMBERS: list[Any] = [
    None, True, np.True_, "1", b"1", 1j, [1], (), {}, np.array(3), np.array([1.0]), pd.Series([47_111]), object,
    np.timedelta64(3, "s"), np.datetime64(3, "s"), pd.Timestamp("2020"),
]  # fmt: skip

RANGES = {
    POSITIVE: lambda x: x > 0,
    NOT_NEGATIVE: lambda x: x >= 0,
    PROBABILITY: lambda x: 0 <= x <= 1,
    INNER_PROBABILITY: lambda x: 0 < x < 1,
    COUNT: lambda x: x >= 0,
    at_least(2): lambda x: x >= 2,
    NumberRange("must lie in (-1, 1/2]", above=-1, most=Fraction(1, 2)): lambda x: -1 < x <= Fraction(1, 2),
    NumberRange("must be anything"): lambda x: True,
}


def _exact(number: Any) -> Fraction:
    """The stored number, by its own ratio and not by the library's."""
    return Fraction(*number.as_integer_ratio()) if hasattr(number, "as_integer_ratio") else Fraction(int(number))


def _asked(error: InvalidParameter, name: str, asked: Any, rule: str, remedy: str = "") -> bool:
    same = error.asked is asked or (type(error.asked) is type(asked) and repr(error.asked) == repr(asked))
    return (error.parameter, error.rule, error.remedy) == (name, rule, remedy) and same


@pytest.mark.parametrize("within", RANGES, ids=lambda within: within.rule)
def test_a_number_is_in_a_range_if_its_exact_value_is(within: NumberRange) -> None:
    for number in NUMBERS:
        exact = _exact(number)
        if RANGES[within](exact):
            assert arguments.rational("x", number, within) == exact
            continue
        with pytest.raises(InvalidParameter) as caught:
            arguments.rational("x", number, within)
        assert _asked(caught.value, "x", number, within.rule), number


def test_no_range_with_an_end_contains_nan() -> None:
    for end in ("least", "most", "above", "below"):
        within = NumberRange("must be a number", **{end: 0})
        assert math.nan not in within
        with worded(InvalidParameter, parameter="x"):
            arguments.python_float("x", math.nan, within)


def test_the_first_broken_range_is_blamed() -> None:
    narrow = NumberRange("must be at most 5", most=5, remedy="take five")
    for check in (arguments.rational, arguments.whole):
        with pytest.raises(InvalidParameter) as caught:
            check("x", -3, POSITIVE, narrow)
        assert caught.value.rule == POSITIVE.rule
        with pytest.raises(InvalidParameter) as caught:
            check("x", 6, POSITIVE, narrow)
        assert (caught.value.rule, caught.value.remedy) == (narrow.rule, "take five")


def test_what_is_not_a_number_is_refused_and_a_container_is_not_quoted() -> None:
    for given in NOT_NUMBERS:
        quoted = NOTHING if isinstance(given, list | tuple | dict | np.ndarray | pd.Series) else given
        for check, rule in (
            (arguments.rational, "must be a real number"),
            (curve_arguments.number, "must be a real number"),
            (arguments.whole, "must be a whole number"),
            (decimal_arithmetic.real, "must be a finite real number"),
            (decimal_arithmetic.whole, "must be a whole number, at least 1"),
            (rational_parameters.positive, "must be a real number"),
        ):
            with pytest.raises(InvalidParameter) as caught:
                check("x", given)
            assert _asked(caught.value, "x", quoted, rule), (check, given)
            assert "47" not in str(caught.value)
        for strict in (arguments.python_int, arguments.python_float):
            with pytest.raises(InvalidParameter) as caught:
                strict("x", given, COUNT)
            assert _asked(caught.value, "x", quoted, COUNT.rule), given


def test_numbers_that_are_not_finite() -> None:
    for given in NOT_FINITE:
        for check, rule in ((arguments.rational, "must be finite"), (rational_parameters.finite, "must be finite")):
            with pytest.raises(InvalidParameter) as caught:
                check("x", given)
            assert _asked(caught.value, "x", given, rule), given
        with pytest.raises(InvalidParameter):
            decimal_arithmetic.real("x", given)
        if isinstance(given, Decimal):
            continue
        if math.isnan(given):
            with pytest.raises(InvalidParameter) as caught:
                curve_arguments.number("x", given)
            assert caught.value.rule == "must not be NaN"
        else:
            assert curve_arguments.number("x", given) == given
        with pytest.raises(InvalidParameter):
            curve_arguments.finite("x", given)


def test_a_float_is_on_the_side_that_was_asked_for() -> None:
    for number in NUMBERS:
        if isinstance(number, Decimal) or abs(_exact(number)) > 2**1023:
            continue
        exact = _exact(number)
        low, high = curve_arguments.number("x", number, rounded=down), curve_arguments.number("x", number)
        assert type(low) is type(high) is float
        assert Fraction(low) <= exact <= Fraction(high)
        assert low == high or math.nextafter(low, math.inf) == high
        assert (low, high) == (down(exact), up(exact))
        assert arguments.real("x", number, overflow_rule="is too large") == high, "most arguments are costs"


def test_a_whole_number_in_floats_is_refused_with_the_number_to_write() -> None:
    for given, remedy in ((3.0, "write 3"), (0.0, ""), (2.5, ""), (2.0**53, ""), (np.float64(7), "write 7")):
        with pytest.raises(InvalidParameter) as caught:
            arguments.whole("bins", given, at_least(1))
        assert _asked(caught.value, "bins", given, "must be a whole number", remedy)
    assert type(arguments.whole("bins", np.int8(3), at_least(1))) is int


def test_pythons_own_types_only() -> None:
    assert arguments.python_int("n", 3, COUNT) == 3
    assert type(arguments.python_float("p", 1, PROBABILITY)) is float
    for given in (np.int64(3), 3.0, Fraction(3), -1):
        with pytest.raises(InvalidParameter) as caught:
            arguments.python_int("n", given, COUNT)
        assert _asked(caught.value, "n", given, COUNT.rule)
    for given in (np.float32(0.5), Fraction(1, 2), Decimal("0.5"), math.nan, 2, -0.1):
        with pytest.raises(InvalidParameter) as caught:
            arguments.python_float("p", given, PROBABILITY)
        assert _asked(caught.value, "p", given, PROBABILITY.rule)


def test_a_boolean_is_true_or_false_and_nothing_else() -> None:
    assert [arguments.boolean("tied", given) for given in (True, False)] == [True, False]
    for given in (1, 0, "yes", None, np.bool_(True)):
        with pytest.raises(InvalidParameter) as caught:
            arguments.boolean("tied", given)
        assert _asked(caught.value, "tied", given, "must be True or False")


@Real.register
class OtherReal:
    """A number of another library that does not tell its ratio, as sympy's and mpmath's before version 1.4."""

    def __init__(self, value: Fraction) -> None:
        self.value = value

    def __float__(self) -> float:
        return float(self.value) if self.value < 2**1023 else math.inf

    def __abs__(self) -> OtherReal:
        return OtherReal(abs(self.value))

    def __eq__(self, other: object) -> bool:
        return self.value == other

    def __lt__(self, other: float) -> bool:
        return self.value < other

    __hash__ = None  # type: ignore[assignment]  # no test needs it


def test_a_number_whose_exact_value_is_unknown_is_refused_and_was_rounded_to_the_nearest_float() -> None:
    """0.3 with 40 digits was read as the float below it, whatever side was asked for."""
    long, short, huge = OtherReal(Fraction(3, 10)), OtherReal(Fraction(1, 4)), OtherReal(Fraction(10) ** 400)
    checks: tuple[Callable[[Any], object], ...] = (
        lambda x: arguments.rational("x", x),
        lambda x: arguments.real("x", x, overflow_rule="too large"),
        lambda x: arguments.real("x", x, rounded=down, overflow_rule="too large"),
        lambda x: exact_amount("x", x),
        lambda x: rational_parameters.at_most("x", x),
    )
    for check in checks:
        assert check(short) == Fraction(1, 4)
        for given in (long, huge):
            with pytest.raises(InvalidParameter) as caught:
                check(given)
            assert caught.value.asked is given


def test_a_duration_is_not_an_amount() -> None:
    """It was a TypeError of `int`."""
    for given in NOT_NUMBERS:
        if not isinstance(given, str):
            with worded(InvalidParameter, parameter="epsilon"):
                exact_amount("epsilon", given)


def test_an_int_beyond_all_floats_breaks_the_rule_of_a_range_without_end() -> None:
    with worded(InvalidParameter, parameter="x"):
        arguments.python_float("x", 10**400, NumberRange("must be positive", above=0, below=math.inf))


def test_the_textbook_takes_what_a_float_can_hold() -> None:
    largest = arguments.BEYOND_FLOATS - 1
    assert math.isfinite(float(largest))
    assert decimal_arithmetic.real("x", largest) == largest
    with pytest.raises(OverflowError):
        float(arguments.BEYOND_FLOATS)
    for beyond in (arguments.BEYOND_FLOATS, -arguments.BEYOND_FLOATS):
        with pytest.raises(InvalidParameter):
            decimal_arithmetic.real("x", beyond)


SAID: list[tuple[Any, Any]] = [
    (lambda x: arguments.rational("scale", x, POSITIVE), ["1", math.inf, 0]),
    (lambda x: arguments.rational("rate", x, NOT_NEGATIVE), [-1]),
    (lambda x: arguments.rational("p", x, PROBABILITY), [1.5]),
    (lambda x: arguments.rational("p", x, INNER_PROBABILITY), [1]),
    (lambda x: arguments.whole("bins", x, at_least(1)), ["1", 2.5, 3.0, 0]),
    (lambda x: arguments.python_int("units", x, COUNT), [1.0, -1]),
    (lambda x: curve_arguments.number("sigma", x), [None, math.nan, 10**400]),
    (lambda x: curve_arguments.positive("sigma", x), [math.inf, 0]),
    (lambda x: curve_arguments.not_negative("tolerance", x), [-1]),
    (lambda x: curve_arguments.probability("rate", x), [2]),
    (lambda x: curve_arguments.inner_probability("confidence", x), [1]),
    (lambda x: decimal_arithmetic.non_negative("mu", x), ["1", math.nan, -1]),
    (lambda x: decimal_arithmetic.positive("sigma", x), [0]),
    (lambda x: decimal_arithmetic.probability("delta", x), [2]),
    (lambda x: decimal_arithmetic.whole("count", x), [0, 10**301]),
    (decimal_arithmetic.renyi_order, [1]),
    (lambda x: rational_parameters.positive("epsilon", x), [1e-130]),
    (lambda x: rational_parameters.chance_at_most("delta", x), [0]),
    (lambda x: curve_arguments.exactly_one(sigma=x, mu=x), [None, 1]),
]


@every_row((check, value) for check, values in SAID for value in values)
def test_what_each_check_says(check: Any, value: Any) -> None:
    with worded(InvalidParameter):
        check(value)


ELSEWHERE = {
    "tables/kinds.py": "bounds of a column: 3.0 is a whole number there, and a bound may be a date",
    "mechanisms/inverse_sensitivity.py": "lengths that a function of the user returned",
    "queries/publication/consistent_fit.py": "a table of totals, and the rule is about all of them",
    "server/operations/settings.py": "a table of a TOML file, and the rule is about all of its entries",
}


@pytest.mark.slow
def test_no_other_module_decides_what_a_number_is() -> None:
    """A function that excludes bools before it raises InvalidParameter checks a number; only the modules above do."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for test in ast.walk(ast.parse(text)) if "InvalidParameter(" in text and "bool" in text else ():
            if not isinstance(test, ast.If):
                continue
            words = ast.unparse(test.test)
            numeric = " int" in words or "Integral" in words or "Real" in words
            excludes = "isinstance(" in words and "bool" in words and numeric
            raises = any(isinstance(each, ast.Raise) and "InvalidParameter" in ast.unparse(each) for each in test.body)
            if excludes and raises:
                found.add(str(path.relative_to(SOURCE)))
    assert found == {"arguments.py", *ELSEWHERE}


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="longdouble is a float here")
@pytest.mark.parametrize("rounded", [up, down])
def test_a_finite_number_beyond_all_floats_is_not_read_as_infinity(rounded: arguments.Rounding) -> None:
    """A width of noise of longdouble("1e400") was infinite, also where numbers are rounded down."""
    for value in (np.longdouble("1e400"), -np.longdouble("1e400"), 10**400):
        with pytest.raises(InvalidParameter, match="too large"):
            arguments.real("x", value, rounded=rounded, overflow_rule="is too large")
    for value in (math.inf, np.longdouble("inf")):
        assert arguments.real("x", value, rounded=rounded, overflow_rule="is too large") == math.inf
