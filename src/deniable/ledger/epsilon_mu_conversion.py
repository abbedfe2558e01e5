"""Convert between ε and μ² at a fixed δ, exact to the last unit of 10^-30.

A μ-GDP release is (ε, δ)-DP if and only if δ_μ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ) <= δ (Balle & Wang 2018, Theorem
8). δ_μ(ε) increases with μ and decreases with ε, so both directions are searches for the last whole number of units at
which the inequality holds. `gaussian_delta` evaluates δ_μ(ε) to forty digits; floats only give a first guess.

The second half of the file rounds amounts for display: four digits, rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from deniable.curves.decimal_arithmetic import dec, density, digits, gaussian_delta
from deniable.curves.exact_amounts import decimal_of
from deniable.curves.filters import UNIT
from deniable.numbers import root_down, root_up

_DOUBT: Final = Decimal("1e-38")
"""The relative error that is allowed for in `gaussian_delta`, which has at least forty correct digits."""

_ROOT: Final = 10**60
"""Newton's steps keep sixty decimal places."""


def mu_down(units: int) -> Fraction:
    """√(units of 10^-30), rounded down to sixty decimal places."""
    return root_down(units * UNIT)


def mu_up(units: int) -> Fraction:
    """√(units of 10^-30), rounded up, far finer than a unit; exact if there is a rational root."""
    return root_up(units * UNIT, bits=200)


@lru_cache(maxsize=4096)
def largest_mu2(epsilon_units: int, delta_units: int) -> int:
    """The largest number of units of μ² for which δ_μ(ε) <= δ, for 0 < ε and 0 < δ < 1, both in units.

    For all neighbours a √units-GDP release is then (ε, δ)-DP, and with one unit more it would not be.

    >>> float(largest_mu2(10**30, 10**24) * UNIT)  # ε = 1, δ = 1e-6
    0.056028...
    """
    epsilon, delta = epsilon_units * UNIT, delta_units * UNIT
    return _last(lambda units: units <= 0 or _fits(units, epsilon, delta), _near(epsilon, delta))


def _fits(mu2_units: int, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether δ_μ(ε) <= δ beyond doubt."""
    value = gaussian_delta(mu_up(mu2_units), epsilon)
    with digits():
        return value * (1 + _DOUBT) <= dec(delta)


def _last(holds: Callable[[int], bool], guess: int) -> int:
    """The largest whole number for which `holds` is true, if it is true up to some number and false above it.

    Doubling steps away from the guess, then bisection: fast if the guess is near.
    """
    low, step = guess, 1
    while not holds(low):
        low, step = low - step, 2 * step
    high, step = low + 1, 1
    while holds(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _near(epsilon: Fraction, delta: Fraction) -> int:
    """An approximation to the units of the μ² with δ_μ(ε) = δ: bisection in floats, then Newton's method in 60 digits.

    The derivative is dδ_μ(ε)/dμ = φ(ε/μ - μ/2).
    """
    mu = Fraction(_crossing(lambda mu: _float_delta(mu, float(epsilon)) > float(delta)))
    for _ in range(4):
        with digits():
            step = (dec(delta) - gaussian_delta(mu, epsilon)) / density(dec(epsilon / mu - mu / 2))
            if (
                not abs(step) < dec(mu) / 4
            ):  # floats are too coarse here; the search from a poor guess is slow, and still right
                break
            mu = Fraction(int((dec(mu) + step).scaleb(60)), _ROOT)
            if abs(step) < dec(mu).scaleb(-20):  # the next step would be smaller than a unit
                break
    return math.floor(mu * mu / UNIT)


def _crossing(beyond: Callable[[float], bool]) -> float:
    """Approximately the positive number at which `beyond` becomes true, by bisection."""
    low, high = 1e-32, 1e9
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low


def _float_delta(mu: float, epsilon: float) -> float:
    """δ_μ(ε) in floats, for first guesses only. Avoids e^ε, which may overflow, by e^ε φ(b) = φ(a)."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if b > 30:  # the first terms of Mills' ratio; the tail itself would underflow
        scaled = math.exp(-a * a / 2) / math.sqrt(2 * math.pi) * (1 / b - 1 / b**3)
    else:
        scaled = math.exp(b * b / 2 - a * a / 2) * 0.5 * math.erfc(b / math.sqrt(2))
    return 0.5 * math.erfc(a / math.sqrt(2)) - scaled


# --- four digits for display ------------------------------------------------------------------------------------------


def short_down(exact: Fraction) -> Decimal:
    """A number >= 0, rounded down to four digits."""
    return _short(_place(exact)) if exact else Decimal(0)


def short_up(exact: Fraction) -> Decimal:
    """A number >= 0, rounded up to four digits."""
    below = short_down(exact)
    return below if Fraction(below) == exact else _short(_place(exact) + 1)


_BANDS: Final = 4096
_WHOLE: Final = -27 * 9000
"""The place of 1e-27: from here on, numbers with four digits are whole multiples of a unit."""

_bands: dict[tuple[int, int], tuple[int, int] | None] = {}
"""A cache, by δ and place: the range of units of μ² in which `epsilon_down` returns that place; None if the place was
returned only once. The rest of a budget decreases a little with each question, so its four digits rarely change."""


_last_place: dict[int, int] = {}
"""By δ: the place that `epsilon_down` returned last."""


def _in_band(mu2_units: int, delta_units: int, place: int) -> bool:
    band = _bands.get((delta_units, place))
    return band is not None and band[0] <= mu2_units < band[1]


@lru_cache(maxsize=4096)
def epsilon_down(mu2_units: int, delta_units: int) -> Decimal:
    """The largest ε with four digits that costs at most `mu2_units` at this δ; 0 if even ε = 0 costs more."""
    delta = delta_units * UNIT
    before = _last_place.get(delta_units)
    guess = before if before is not None and _in_band(mu2_units, delta_units, before) else _guess(mu2_units, delta)
    if _in_band(mu2_units, delta_units, guess):
        _last_place[delta_units] = guess
        return _short(guess)

    def costs_more(place: int) -> bool:
        return _fits(mu2_units + 1, Fraction(_short(place)), delta)

    if costs_more(guess) and _fits(mu2_units + 1, Fraction(0), delta):  # ε = 0 costs less than the guess
        return Decimal(0)
    place = _last(lambda place: not costs_more(place), guess)
    if len(_bands) >= _BANDS:
        _bands.clear()
        _last_place.clear()
    seen = (delta_units, place) in _bands and place >= _WHOLE
    _bands[delta_units, place] = (_price(place, delta_units), _price(place + 1, delta_units)) if seen else None
    return _short(place)


def _price(place: int, delta_units: int) -> int:
    """The units of μ² that the ε at this place costs."""
    return largest_mu2(int(Fraction(_short(place)) / UNIT), delta_units)


@lru_cache(maxsize=4096)
def epsilon_up(mu2_units: int, delta_units: int) -> Decimal:
    """The smallest ε with four digits for which a √units-GDP release is (ε, δ)-DP; 0 if it is (0, δ)-DP."""
    delta = delta_units * UNIT
    if _fits(mu2_units, Fraction(0), delta):
        return Decimal(0)
    return _short(
        1 + _last(lambda place: not _fits(mu2_units, Fraction(_short(place)), delta), _guess(mu2_units, delta))
    )


def _guess(mu2_units: int, delta: Fraction) -> int:
    mu, target = float(mu_up(mu2_units)), float(delta)
    return _place(Fraction(_crossing(lambda epsilon: _float_delta(mu, epsilon) <= target)))


def _short(place: int) -> Decimal:
    """The number with four digits at a place in their order: 0 is 1.000, 1 is 1.001, 9000 is 10.00, -1 is 0.9999."""
    power, step = divmod(place, 9000)
    return decimal_of(1000 + step, power - 3)


def _place(exact: Fraction) -> int:
    """The place of the largest number with four digits that is at most this positive number."""
    above, below = exact.numerator, exact.denominator
    power = len(str(above)) - len(str(below))  # the power of ten, or one too large, which the loop corrects
    while True:
        shift = 3 - power
        four: int = above * 10**shift // below if shift >= 0 else above // (below * 10**-shift)
        if four >= 1000:
            return 9000 * power + four - 1000
        power -= 1
