"""Odometers: running totals, exact. That they hold at all times at once is tested beside the filters."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from deniable.curves import textbook as tb
from deniable.curves.filters import PureOdometer, RenyiOdometer


def test_pure_odometer_is_the_exact_running_sum() -> None:
    odometer = PureOdometer()
    for _ in range(10_000):
        odometer = odometer.charge(epsilon=0.1)
    assert odometer.spent == 1000
    assert odometer.epsilon == 1000.0
    assert Fraction(PureOdometer().charge(epsilon="1/3").epsilon) >= Fraction(1, 3)


def test_renyi_odometer_adds_log_one_over_delta() -> None:
    odometer = RenyiOdometer(order=3, delta=0.01).charge(rho=0.5).charge(epsilon=0.25)
    assert odometer.spent == Decimal("1.75")
    assert odometer.delta == Decimal("0.01")
    assert odometer.epsilon == pytest.approx(1.75 + math.log(100) / 2, rel=1e-15)
    assert odometer.epsilon == tb.renyi_to_epsilon_mironov(order=3, renyi=1.75, delta=Fraction(1, 100))
