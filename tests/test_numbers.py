"""Bounds that were computed in floats, against exact integers: nothing that was meant is rounded away."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deniable import numbers
from deniable.numbers import raised_to_root, square, steps, whole

SEED = random.SystemRandom().randrange(2**32)


def test_many_roots_are_stored_below_themselves() -> None:
    """What the rule is for: rounding the exact square down loses a unit for 42 of the first hundred roots."""
    lost = [k for k in range(1, 101) if math.floor(Fraction(math.sqrt(k)) ** 2) < k]
    assert len(lost) == 42
    assert {3, 6, 11, 12} <= set(lost)


@pytest.mark.parametrize("root", [math.sqrt, np.float32, lambda k: Decimal(k).sqrt()], ids=["float64", "32", "decimal"])
def test_every_root_of_a_whole_number_means_that_number(root) -> None:
    of = (lambda k: np.sqrt(np.float32(k))) if root is np.float32 else root
    for k in range(1, 10_001):
        # Single precision may stand for a sum of thousands of terms: then a part in two thousand more is granted.
        assert k <= square(of(k)) <= (k * (1 + 1 / 2000) if root is np.float32 else k)
        assert raised_to_root(of(k)) ** 2 >= k
        assert raised_to_root(of(k)) <= numbers.rational(of(k)) * (1 + Fraction(1, 2**20))


def test_roots_are_raised_up_to_the_largest_square() -> None:
    """A root that is stored below √k and not raised understates a sensitivity, so the limits may not be lowered."""
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for most, root in ((2**32, math.sqrt), (2**16, lambda k: float(np.sqrt(np.float32(k))))):
        squares = [k for k in (int(2 ** draw.uniform(0, math.log2(most))) for _ in range(300)) if k < most]
        squares += range(most - 100, most)
        low = [k for k in squares if Fraction(root(k)) ** 2 < k]
        assert len(low) > 100
        assert all(raised_to_root(root(k)) ** 2 >= k for k in low)


def test_short_floats_are_as_precise_as_they_are() -> None:
    for k in range(1, 1001):
        assert square(np.float16(math.sqrt(k))) >= k
        assert whole(np.float32(0.1) * np.float32(10 * k)) >= k
        assert square(np.sqrt(np.longdouble(k))) == k


def test_what_arithmetic_leaves_of_a_whole_number_means_that_number() -> None:
    assert whole((0.1 + 0.7) * 10) == 8
    for k in range(1, 2001):
        assert whole(1 / k * k) == 1
        assert whole(sum([0.1] * (10 * k))) == k
        assert whole(sum([1 / k] * k)) == 1
        assert whole(np.float64(0.1) * np.float64(10 * k)) == k
        assert whole(Decimal(k) / 7 * 7) == k
        assert square(math.hypot(k, k)) == 2 * k * k


def test_random_sums_and_products_of_decimals_are_never_rounded_below_what_was_meant() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    lost = 0
    for _ in range(20_000):
        tenths = [draw.randrange(1, 1000) for _ in range(draw.randrange(1, 20))]
        factor = draw.choice([2, 3, 5, 7, 10, 49, 100])
        exact = Fraction(sum(tenths) * factor, 100)
        stored = sum(t / 100 for t in tenths) * factor
        lost += math.floor(Fraction(stored)) < math.floor(exact)
        assert math.floor(exact) <= whole(stored) <= exact + 1
        assert whole(stored) == math.floor(exact) or math.ceil(exact) - exact < exact / 2**31
        assert raised_to_root(stored) >= Fraction(stored)
    assert lost > 20, "these cases must tell a floor from the rule"


@pytest.mark.parametrize("x", [7.9, 7.0, 7.000000000000001, math.nextafter(7, 8), Fraction(79, 10), Decimal("7.99")])
def test_what_lies_clearly_below_a_whole_number_is_still_rounded_down(x) -> None:
    assert whole(x) == 7


def test_exact_types_stay_exact_however_large() -> None:
    for k in (1, 7, 2**40 - 1, 2**61 + 1):
        assert whole(k) == whole(Fraction(k)) == k
        assert square(k) == k * k
        assert raised_to_root(k) == k
    assert whole(float(2**40 - 1)) == 2**40 - 1
    assert whole(np.float32(2**24)) > 2**24, "the sum 2**24 + 1 is stored so"


@pytest.mark.parametrize("x", [0.3, 0.1, 2.5, 1.4142135623730951, 1e-9, 1234567.25, 1e9 + 0.5, 3.0, 1e300])
def test_a_real_bound_is_the_number_that_is_stored(x) -> None:
    assert raised_to_root(x) == Fraction(x)


def test_rounding_up_and_down_meets_the_neighbouring_floats() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(2000):
        exact = Fraction(draw.randrange(1, 10**30), draw.randrange(1, 10**30))
        high, low = numbers.up(exact), numbers.down(exact)
        assert Fraction(low) <= exact <= Fraction(high)
        assert high in (low, math.nextafter(low, math.inf))
        root = numbers.root_up(exact)
        assert exact <= root**2 <= exact * (1 + Fraction(1, 2**58))
    assert numbers.root_up(Fraction(49)) == 7


def test_a_root_that_was_single_precision_bounded_reals_a_little_too_low() -> None:
    # float(np.sqrt(np.float32(k))) is a plain float that lies below √k for many k, by more than roundings of floats.
    short = [k for k in range(2, 200) if Fraction(float(np.sqrt(np.float32(k)))) ** 2 < k]
    assert len(short) > 50
    for k in short:
        found = numbers.raised_to_root(float(np.sqrt(np.float32(k))))
        assert k <= found**2 < k * (1 + Fraction(1, 2**40))
    for x in (0.5, 1.5, 1.75, 2.5, 3.25, 0.1, 1e-3, 300.25):
        assert numbers.raised_to_root(x) == Fraction(x)


def test_a_float_that_was_single_precision_is_read_with_its_roundings() -> None:
    """float() forgets that √3 was computed in 24 bits: it lies 1.8e-8 below the root, and became √2."""
    root = float(np.float32(3) ** np.float32(0.5))
    assert root * root < 3 - 1e-8
    assert square(root) == 3
    for k in range(1, 2000):
        assert square(float(np.float32(k) ** np.float32(0.5))) >= k


@pytest.mark.parametrize(("step", "count", "total"), [(0.1, 80, 8), (0.3, 130, 39), (0.3, 200, 60), (0.7, 1000, 700)])
def test_a_sum_in_single_precision_is_read_with_all_its_roundings(step: float, count: int, total: int) -> None:
    added = np.float32(0)
    for _ in range(count):
        added += np.float32(step)
    assert whole(added) >= total


def test_a_number_well_below_a_whole_one_is_still_rounded_down() -> None:
    assert [whole(x) for x in (7.9, 7.999, 7.99999, np.float32(7.99), Fraction(79, 10))] == [7] * 5
    assert whole(np.float16(7.9)) == 7


def test_steps_of_a_grid_are_counted_with_a_few_roundings_more() -> None:
    """A bound one rounding below k steps reaches k of them."""
    for k in (3, 8, 1000, 2**20 + 1):
        assert steps(Fraction(math.nextafter(k, 0))) == k
        assert steps(k - Fraction(k, 2**40)) == k - 1


@pytest.mark.parametrize("kind", [Fraction, Decimal, np.longdouble])
def test_a_fraction_of_a_float_that_was_single_precision_was_read_without_its_roundings(kind) -> None:
    for k in (27, 53, 156, 199):
        below = float(np.nextafter(np.float32(k), np.float32(0)))
        assert whole(kind(below)) == whole(below) == k
        assert square(kind(below)) == square(below) >= k * k
    root = float(np.sqrt(np.float32(7)))
    assert Fraction(root) ** 2 < 7 <= numbers.raised_to_root(kind(root)) ** 2
    assert whole(kind(155.75)) == 155


def neighbours(x: float) -> tuple[float, float]:
    return math.nextafter(x, -math.inf), math.nextafter(x, math.inf)


def test_directed_roundings_are_the_nearest_floats_on_their_side_by_exact_fractions() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(5000):
        x = draw.choice([-1, 1]) * math.ldexp(draw.random(), draw.randrange(-1080, 1024))
        exact = Fraction(x) + draw.choice([-1, 0, 1]) * Fraction(1, 2 ** draw.randrange(0, 1200))
        high, low = numbers.up(exact), numbers.down(exact)
        assert Fraction(neighbours(high)[0]) < exact <= Fraction(high)
        assert Fraction(low) <= exact < Fraction(neighbours(low)[1])
        assert numbers.least_float(exact) == high
        assert numbers.around(exact) == (low, high)


@pytest.mark.parametrize(
    ("number", "low", "high"),
    [
        (2**53 + 1, 2.0**53, 2.0**53 + 2),
        (np.int64(2**53 + 1), 2.0**53, 2.0**53 + 2),
        (np.uint64(2**64 - 1), math.nextafter(2.0**64, 0), 2.0**64),
        (Fraction(1, 10**400), 0.0, math.ulp(0.0)),
        (Decimal("-1e-400"), -math.ulp(0.0), 0.0),
        (int(math.nextafter(math.inf, 0)) + 1, math.nextafter(math.inf, 0), math.inf),
        (math.inf, math.inf, math.inf),
        (np.float32(0.1), float(np.float32(0.1)), float(np.float32(0.1))),
    ],
)
def test_the_floats_around_a_number_of_any_type(number: object, low: float, high: float) -> None:
    assert numbers.around(number) == (low, high)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="longdouble is a float here")
def test_the_floats_around_a_longdouble() -> None:
    x = np.longdouble(1) + np.longdouble(2) ** -60
    assert numbers.around(x) == (1.0, 1 + 2.0**-52)
    assert numbers.around(-x) == (-1 - 2.0**-52, -1.0)
    assert numbers.around(np.longdouble(2) ** 2000) == (math.nextafter(math.inf, 0), math.inf)


def test_a_number_beyond_all_floats_was_rounded_in_three_ways() -> None:
    """10**400 raised in one room, became infinite in another and was refused in a third."""
    large, largest = Fraction(10**400), math.nextafter(math.inf, 0)
    for rounded in (numbers.up, numbers.down):
        with pytest.raises(OverflowError):
            rounded(large)
    assert numbers.up(-Fraction(largest) - 1) == -largest
    assert numbers.down(Fraction(largest) + 1) == largest
    for rounded, beyond in ((numbers.up, Fraction(largest) + 1), (numbers.down, -Fraction(largest) - 1)):
        with pytest.raises(OverflowError):
            rounded(beyond)
    for one in (large, Decimal(10) ** 400, Decimal("1e999999")):
        assert numbers.least_float(one) == math.inf
        assert numbers.least_float(-one) == -largest
    assert numbers.least_float(Fraction(largest)) == largest
    assert numbers.least_float(Fraction(largest) + 1) == math.inf
    assert numbers.least_float(Decimal("1e-400")) == math.ulp(0.0)
    assert numbers.least_float(Decimal("-1e-400")) == 0


def test_roots_are_on_their_side_by_exact_squares() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(3000):
        exact = Fraction(int(10 ** draw.uniform(0, 60)), int(10 ** draw.uniform(0, 60)))
        places = draw.randrange(1, 90)
        low = numbers.root_down(exact, places=places)
        assert low**2 <= exact < (low + Fraction(1, 10**places)) ** 2
        bits = draw.randrange(20, 220)
        high = numbers.root_up(exact, bits=bits)
        assert exact <= high**2 <= exact * (1 + Fraction(1, 2**bits)) ** 2
        near = numbers.float_root_down(exact)
        assert Fraction(near) ** 2 <= exact < Fraction(numbers.above(near)) ** 2
    for exact in {Fraction(p, q) for p in range(1, 60) for q in range(1, 60)}:
        for bits in (0, 1, 4):  # few enough for scaled numbers that lie just above a square
            assert exact <= numbers.root_up(exact, bits=bits) ** 2 <= exact * (1 + Fraction(1, 2**bits)) ** 2
    for k in range(1000):
        square = Fraction(k, 7) ** 2
        assert numbers.root_up(square) == Fraction(k, 7)
        assert numbers.root_down(Fraction(k * k)) == k == numbers.float_root_down(Fraction(k * k))


@pytest.mark.parametrize("exact", [Fraction(3, 2**1076), Fraction(1, 2**1084), Fraction(3) ** 1200, Fraction(0)])
def test_a_root_of_a_number_beyond_floats_is_the_largest_float_below_it(exact: Fraction) -> None:
    """3/4 of the smallest float was rounded up before its root was taken: stepping down from there took for ever."""
    near = numbers.float_root_down(exact)
    assert Fraction(near) ** 2 <= exact < Fraction(numbers.above(near)) ** 2


@pytest.mark.parametrize(
    "given",
    [0.1, 3, Fraction(1, 3), Decimal("0.1"), np.float32(0.1), np.float64(0.1), np.longdouble(1) / 3, np.int8(-7)],
)
def test_every_room_takes_a_number_as_the_rational_that_it_stores(given) -> None:
    from deniable import arguments
    from deniable.curves import decimal_arithmetic

    exact = numbers.rational(given)
    assert exact == Fraction(*given.as_integer_ratio()) if hasattr(given, "as_integer_ratio") else exact == int(given)
    assert arguments.rational("x", given) == exact
    if not isinstance(given, Decimal):
        assert decimal_arithmetic.real("x", given) == exact
    for absent in (math.nan, math.inf, np.float32("inf"), Decimal("sNaN")):
        with pytest.raises((ValueError, OverflowError)):
            numbers.rational(absent)


def test_columns_and_scalars_of_libraries_are_read_as_values_of_python() -> None:
    assert numbers.plain_list(np.array([1, 2])) == numbers.plain_list(pd.Series([1, 2])) == [1, 2]
    for other in ([1], "ab", 3, np.array([[1]]), np.float64(2)):
        assert numbers.plain_list(other) is other
    for other in (pd.Series([1]), pd.NA, np.array([1]), "ab"):
        assert numbers.plain(other) is other
    assert type(numbers.plain(np.int64(3))) is int
    moment = datetime(2026, 1, 2, 3, 4, 5, 6)
    assert numbers.plain(np.datetime64(moment, "ns")) == moment
    assert numbers.plain(np.timedelta64(3_000, "ns")) == timedelta(microseconds=3)
    for column in (np.array([moment], "datetime64[ns]"), pd.Series([moment]), np.array([moment])):
        assert [(type(each), each) for each in numbers.plain_list(column)] == [(datetime, moment)]
    assert numbers.plain_list(np.array(["2026-01-02"], "datetime64[D]")) == [moment.date()]
    assert numbers.plain_list(np.array([3_000], "timedelta64[ns]")) == [timedelta(microseconds=3)]


def test_floats_are_moved_to_one_side_in_two_modules_only() -> None:
    """A second directed rounding would have to be proved a second time."""
    source = Path(numbers.__file__).parent
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if "nextafter" in path.read_text("utf-8")}
    assert found == {"numbers.py", "curves/outward_rounding.py"}
