"""Calibration: the parameter of a mechanism that just meets a target, found from the safe side."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from deniable.curves import curve_arguments
from deniable.curves.curve import Curve
from deniable.errors import NOTHING, DeniableError, ImpossibleTarget, InvalidParameter, NotCertifiable
from deniable.numbers import down

PRECISION = 1e-7
"""Relative distance between the returned parameter and one that misses the target."""


class _Target(NamedTuple):
    words: str
    value: float
    read: Callable[[Curve], float]
    """Smaller is more private."""


def _target(
    epsilon: float | None,
    mu: float | None,
    advantage: float | None,
    equal_error_rate: float | None,
    rho: float | None,
    delta: float | None,
) -> _Target:
    """The one target among these arguments, checked. InvalidParameter unless exactly one is given."""
    given = {"epsilon": epsilon, "mu": mu, "advantage": advantage, "equal_error_rate": equal_error_rate, "rho": rho}
    chosen = [name for name, value in given.items() if value is not None]
    if not chosen and delta is None:
        raise InvalidParameter(
            "target", NOTHING, "give epsilon= (with delta=), mu=, advantage=, equal_error_rate= or rho="
        )
    if len(chosen) > 1:
        raise InvalidParameter(" and ".join(chosen), NOTHING, "give one target only", "calibrate to each and compare")
    if epsilon is not None:
        wanted = curve_arguments.not_negative("epsilon", epsilon, down)
        small = curve_arguments.probability("delta", 0.0 if delta is None else delta, down)
        return _Target(f"epsilon={wanted:g} at delta={small:g}", wanted, lambda c: c.epsilon(delta=small))
    if mu is not None:
        wanted = curve_arguments.positive("mu", mu, down)
        small = curve_arguments.probability("delta", 0.0 if delta is None else delta, down)
        return _Target(f"mu={wanted:g}", wanted, lambda c: c.gdp(delta=small))
    if delta is not None:
        raise InvalidParameter("delta", delta, "is given with epsilon= or mu= only", "add the epsilon for this delta")
    if advantage is not None:
        wanted = curve_arguments.probability("advantage", advantage, down)
        return _Target(f"advantage={wanted:g}", wanted, lambda c: c.advantage())
    if rho is not None:
        wanted = curve_arguments.positive("rho", rho, down)
        return _Target(f"rho={wanted:g}", wanted, lambda c: c.zcdp())
    rate = curve_arguments.probability("equal_error_rate", equal_error_rate)
    if rate >= 0.5:
        raise InvalidParameter("equal_error_rate", rate, "must be below 1/2: a blind attacker errs half of the time")
    return _Target(f"equal_error_rate={rate:g}", 0.5 - rate, lambda c: 0.5 - c.equal_error_rate())


def calibrate(
    make_curve: Callable[[Any], Curve],
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    advantage: float | None = None,
    equal_error_rate: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
) -> Any:
    """The value at which `make_curve(value)` just meets the target: least noise, most steps, largest rate.

    Give one target: epsilon (>= 0, with delta in [0, 1]; without delta, pure DP), mu (optionally with delta),
    advantage, equal_error_rate (below 1/2) or rho. `make_curve` may depend on its parameter in either direction, as
    long as privacy is monotone in it; if it accepts only whole numbers, the result is a whole number. The returned
    value was checked to meet the target with the upper bound of ε, μ, ...; a value 1e-7 away was checked to miss it.
    Raises ImpossibleTarget if no value meets the target.

    >>> import deniable as dn
    >>> from deniable import curves
    >>> round(dn.calibrate(lambda s: curves.gaussian(sigma=s), epsilon=1.0, delta=1e-5), 6)
    3.730632
    """
    if not callable(make_curve):
        raise InvalidParameter("make_curve", make_curve, "must be a function of one number that returns a curve")
    _check_takes_a_number(make_curve)
    return _Search(make_curve, _target(epsilon, mu, advantage, equal_error_rate, rho, delta)).run()


def _check_takes_a_number(make_curve: Callable[[Any], Curve]) -> None:
    """InvalidParameter for a function that cannot be called with one number, such as `curves.gaussian` itself."""
    try:
        signature = inspect.signature(make_curve)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        signature.bind(1.0)
    except TypeError:
        rule = "must be a function of one number, without a name for it, that returns a curve"
        raise InvalidParameter("make_curve", NOTHING, rule, "write lambda s: curves.gaussian(sigma=s)") from None


class _Search:
    """A bracket of values (one meets the target, one misses it), found by doubling and halving, then narrowed."""

    def __init__(self, make_curve: Callable[[Any], Curve], target: _Target) -> None:
        self.make_curve, self.target = make_curve, target
        self.known: dict[Any, float | None] = {}
        self.refusal: DeniableError | None = None
        self.whole = self._needs_whole_numbers()

    def _needs_whole_numbers(self) -> bool:
        try:
            self.make_curve(1.5)
        except InvalidParameter as error:
            return "whole number" in error.rule
        except DeniableError:
            return False
        return False

    def cost(self, value: Any) -> float | None:
        """The privacy cost at a value (smaller is more private); None if `make_curve` refuses the value."""
        if self.whole:
            value = round(value)
        if value not in self.known:
            try:
                curve = self.make_curve(value)
            except DeniableError as error:
                self.refusal, self.known[value] = error, None
            else:
                if not isinstance(curve, Curve):
                    rule = f"must return a Curve, but returned {type(curve).__name__}"
                    raise InvalidParameter("make_curve", NOTHING, rule, "write lambda s: curves.gaussian(sigma=s)")
                try:
                    self.known[value] = self.target.read(curve)
                except NotCertifiable:
                    # A curve that cannot be certified does not meet the target.
                    self.known[value] = math.inf
        return self.known[value]

    def meets(self, value: Any) -> bool | None:
        """Whether a value meets the target; None if `make_curve` refuses the value."""
        cost = self.cost(value)
        return None if cost is None else cost <= self.target.value

    def run(self) -> Any:
        """The value that just meets the target. Raises ImpossibleTarget if no value meets it."""
        start = self._start()
        good, bad = self._bracket(start)
        return self._narrow(good, bad)

    def _start(self) -> float:
        """An allowed value: 1, or the first allowed power of two."""
        for exponent in (0, -1, 1, -3, 3, -7, 7, -14, 14, -30, 30):
            if self.cost(2.0**exponent) is not None:
                return 2.0**exponent
        raise ImpossibleTarget(f"make_curve raised an error for every value tried; the last error: {self.refusal}")

    def _bracket(self, start: float) -> tuple[float, float]:
        """(a value that meets the target, a value that misses it or is not allowed), found by doubling and halving. If
        every value meets the target, both are the least private value.
        """
        seen: dict[bool, float] = {bool(self.meets(start)): start}
        for direction in (2.0, 0.5):
            value = start
            for _ in range(120):
                value *= direction
                if self.whole and value < 1:
                    break
                meets = self.meets(value)
                if meets is None:
                    edge = self._edge(value / direction, value)
                    if self.meets(edge) is not None:
                        seen[bool(self.meets(edge))] = edge
                    break
                seen[meets] = value
                if len(seen) == 2:
                    return seen[True], seen[False]
                if not self._moves(value, value / direction):
                    break
            if len(seen) == 2:
                return seen[True], seen[False]
        if True in seen:
            # Every value meets the target: the least private value is the answer (for example rate = 1).
            most = max(c for c in self.known.values() if c is not None)
            tied = [v for v, c in self.known.items() if c == most]
            # If the target does not distinguish them (for example if ε = 0 for all), the advantage decides which end
            # is less private.
            worst = max(min(tied), max(tied), key=lambda v: self.make_curve(v).advantage())
            return worst, worst
        least = min((c, v) for v, c in self.known.items() if c is not None)
        if math.isinf(least[0]):
            raise ImpossibleTarget(
                f"no value meets {self.target.words}: the cost of every value tried is infinite; if the privacy loss "
                "has no bound, as with Gaussian noise, give delta= above 0; if everything is revealed with some "
                "probability, give delta= of at least that probability"
            )
        raise ImpossibleTarget(
            f"no value meets {self.target.words}: the most private value found, {least[1]:.6g}, gives {least[0]:.6g}; "
            "raise the target, or change the parameters that make_curve keeps fixed"
        )

    def _moves(self, value: float, before: float) -> bool:
        """Whether another step in this direction can change anything."""
        a, b = self.cost(before), self.cost(value)
        wrong_way = (
            a is not None
            and b is not None
            and ((b > self.target.value and b > a) or (b <= self.target.value and b < a))
        )
        return not wrong_way and (a != b or a in (math.inf, 0.0))

    def _edge(self, allowed: float, refused: float) -> float:
        """The last allowed value before a refused one."""
        for _ in range(60):
            middle = 0.5 * (allowed + refused)
            if self.whole and abs(allowed - refused) <= 1:
                break
            if self.cost(middle) is None:
                refused = middle
            else:
                allowed = middle
        # Ends such as rate = 1 are round numbers.
        nearby = float(f"{allowed:.9g}")
        return nearby if self.cost(nearby) is not None else allowed

    def _narrow(self, good: float, bad: float) -> Any:
        """Bisection in the logarithm, accelerated by interpolating the logarithm of the cost; every step keeps a valid
        bracket.
        """
        for step in range(200):
            if self.whole and abs(round(good) - round(bad)) <= 1:
                return round(good)
            if abs(good - bad) <= PRECISION * abs(good):
                break
            middle = self._guess(good, bad, step)
            if self.meets(middle):
                good = middle
            else:
                bad = middle
        return round(good) if self.whole else good

    def _guess(self, good: float, bad: float, step: int) -> float:
        low, high = math.log(good), math.log(bad)
        cost_good, cost_bad = self.cost(good), self.cost(bad)
        share = 0.5
        if step % 3 != 2 and cost_good and cost_bad and math.isfinite(cost_bad) and self.target.value > 0:
            total = math.log(cost_bad / cost_good)
            if total > 0:
                # Aim alternately just beyond either side of the estimate, so that the bracket shrinks from both ends.
                share = math.log(self.target.value / cost_good) / total
                share = min(max(share + (1e-9 if step % 2 else -1e-9), PRECISION / 4), 1 - PRECISION / 4)
        value = math.exp(low + share * (high - low))
        return float(round(value)) if self.whole else value
