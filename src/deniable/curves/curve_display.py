"""A curve at a glance: a small table and a sparkline of δ(ε), for notebooks (HTML) and terminals (rich).

Every number is rounded to its safe side, with a few words on what it means. A number that cannot be certified in
bounded time appears as "not certifiable": displaying a valid curve never raises.
"""

from __future__ import annotations

import html as escaping
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.curves import decimal_arithmetic
from deniable.errors import MissingExtra, NotCertifiable

if TYPE_CHECKING:
    from rich.panel import Panel

    from deniable.curves.curve import Curve

DELTA = 1e-6
"""The δ at which ε is displayed. It is not a setting: `curve.epsilon(delta=)` takes any other."""

FLOOR = 1e-12
"""The smallest δ of a sparkline: its log axis runs from here to 1."""

BLOCKS = "▁▂▃▄▅▆▇█"
LONGEST_TITLE = 160
FLOAT_NOISE = Decimal("1e-12")


class Fact(NamedTuple):
    """One line of the table."""

    name: str
    value: str
    meaning: str


# -- numbers as text -------------------------------------------------------------------------------------------------


def rounded_up(value: float | Decimal, digits: int = 5) -> str:
    """The value with at most `digits` significant digits, rounded up (ignoring float noise, a relative 1e-12).

    >>> rounded_up(0.1234501), rounded_up(math.inf), rounded_up(1.0000000000000002)
    ('0.12346', '∞', '1')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 5) -> str:
    """The value with at most `digits` significant digits, rounded down (ignoring float noise, a relative 1e-12).

    >>> rounded_down(0.1234599)
    '0.12345'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def percent_up(value: float) -> str:
    """A probability in per cent with at most two decimals, rounded up (ignoring float noise, a relative 1e-12).

    >>> percent_up(0.63261), percent_up(0.5000000000000006)
    ('63.27 %', '50 %')
    """
    with decimal_arithmetic.digits():
        exact = Decimal(value) * (1 - FLOAT_NOISE) * 100
        return f"{_plain(min(exact.quantize(Decimal('0.01'), ROUND_CEILING), Decimal(100)))} %"


def _rounded(value: float | Decimal, digits: int, mode: str) -> str:
    with decimal_arithmetic.digits():
        exact = Decimal(value)
        if exact.is_infinite():
            return "∞" if value > 0 else "-∞"
        exact += abs(exact) * (-FLOAT_NOISE if mode == ROUND_CEILING else FLOAT_NOISE)
        if exact == 0:
            return "0"
        return _plain(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), mode))


def _plain(number: Decimal) -> str:
    short = number.normalize()
    if short == 0:
        return "0"
    if -5 < short.adjusted() < 9:
        return f"{short:f}"
    mantissa, exponent = f"{short:e}".split("e")
    return f"{mantissa}e{int(exponent)}"


# -- what is shown ---------------------------------------------------------------------------------------------------


def title(curve: Curve) -> str:
    """The curve's expression; a long one is shortened in the middle."""
    text = repr(curve).removeprefix("<Curve ").removesuffix(">")
    if len(text) <= LONGEST_TITLE:
        return text
    half = LONGEST_TITLE // 2 - 2
    return f"{text[:half]} ... {text[-half:]}"


def facts(curve: Curve, *, delta: float = DELTA, epsilon: float | None = None) -> tuple[Fact, ...]:
    """The lines of the table: ε at this δ (or δ at this ε, if one is given), μ, equal error rate, advantage."""
    first = (
        _fact(f"ε at δ = {delta:g}", lambda: _epsilon(curve, delta))
        if epsilon is None
        else _fact(f"δ at ε = {epsilon:g}", lambda: _bracket(*curve.delta_bounds(epsilon=epsilon)))
    )
    return (
        first,
        _fact("μ", lambda: _mu(curve, delta)),
        _fact("equal error rate", lambda: (rounded_down(curve.equal_error_rate()), "at least, for any attacker")),
        _fact("advantage", lambda: (rounded_up(curve.advantage()), "at most: hits minus false alarms")),
    )


def _fact(name: str, read: Callable[[], tuple[str, str]]) -> Fact:
    try:
        return Fact(name, *read())
    except NotCertifiable:
        return Fact(name, "–", "not certifiable in bounded memory and time")


def _epsilon(curve: Curve, delta: float) -> tuple[str, str]:
    low, high = curve.epsilon_bounds(delta=delta)
    if math.isinf(high):
        return "∞", "no ε is enough for this δ" if math.isinf(low) else f"at least {rounded_down(low)}"
    return _bracket(low, high)


def _bracket(low: float, high: float) -> tuple[str, str]:
    return rounded_up(high), f"the truth lies in [{rounded_down(low, 7)}, {rounded_up(high, 7)}]"


def _mu(curve: Curve, delta: float) -> tuple[str, str]:
    mu, approximate = curve.gdp(), curve.gdp(delta=delta)
    if math.isfinite(approximate) and approximate < 0.99 * mu:
        return rounded_up(mu), f"Gaussian DP; {rounded_up(approximate)} up to δ = {delta:g}"
    if math.isinf(mu):
        return "∞", "not Gaussian DP"
    return rounded_up(mu), "Gaussian DP: no easier than N(0,1) against N(μ,1)"


def profile(curve: Curve, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(ε, δ) at `count` even steps from ε = 0 to where δ leaves the axis; δ is the safe, upper bound."""
    for delta in (FLOOR, 1e-6, 1e-3, 0.1, 0.5):
        end = curve.epsilon(delta=delta)
        if math.isfinite(end):
            break
    epsilon = np.linspace(0.0, end if math.isfinite(end) and end > 0 else 1.0, count)
    return epsilon, np.asarray(curve.delta(epsilon=epsilon))


def heights(delta: np.ndarray) -> np.ndarray:
    """The position of δ on the log axis: 0 for FLOOR or less, 1 for δ = 1."""
    return np.asarray(1 - np.log10(np.clip(delta, FLOOR, 1.0)) / math.log10(FLOOR))


def sparkline(curve: Curve, count: int = 32) -> str:
    """δ(ε) in block characters, on a log axis, with its two ends.

    >>> from deniable.curves.atoms.mechanism_atoms import gaussian
    >>> sparkline(gaussian(sigma=1), 16)
    '████▇▇▇▆▆▅▅▄▃▂▁▁  ε 0 … 7.24'
    """
    try:
        epsilon, delta = profile(curve, count)
    except NotCertifiable:
        return "not certifiable in bounded memory and time"
    levels = np.minimum(heights(delta) * len(BLOCKS), len(BLOCKS) - 1).astype(int)
    return "".join(BLOCKS[level] for level in levels) + f"  ε 0 … {epsilon[-1]:.3g}"


# -- the two looks ---------------------------------------------------------------------------------------------------


def html(curve: Curve) -> str:
    """The curve as a small HTML table with an inline SVG sparkline, for notebooks. All text is escaped."""
    cell = "text-align:left;padding:2px 12px 2px 0"
    rows = "".join(
        f'<tr><th style="{cell};font-weight:normal">{escaping.escape(fact.name)}</th>'
        f'<td style="{cell}"><b>{escaping.escape(fact.value)}</b></td>'
        f'<td style="{cell};opacity:.7">{escaping.escape(fact.meaning)}</td></tr>'
        for fact in facts(curve)
    )
    return (
        f'<div><code>{escaping.escape(title(curve))}</code><table style="border:none">{rows}'
        f'<tr><th style="{cell};font-weight:normal">δ(ε), log axis</th><td colspan="2">{_svg(curve)}</td></tr>'
        "</table></div>"
    )


def _svg(curve: Curve, width: int = 220, height: int = 44) -> str:
    try:
        epsilon, delta = profile(curve, 48)
    except NotCertifiable:
        return "not certifiable in bounded memory and time"
    x = 1 + (width - 2) * epsilon / epsilon[-1]
    y = 1 + (height - 2) * (1 - heights(delta))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    label = f"δ falls from {delta[0]:.2g} at ε = 0 to {delta[-1]:.2g} at ε = {epsilon[-1]:.3g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<path d="M1 1V{height - 1}H{width - 1}" fill="none" stroke="currentColor" stroke-opacity=".3"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/></svg>'
    )


def rich_panel(curve: Curve) -> Panel:
    """The curve as a panel for the terminal (`rich.print(curve)`)."""
    try:
        from rich.box import ROUNDED
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        raise MissingExtra("rich", "cli") from None

    table = Table.grid(padding=(0, 2))
    for fact in facts(curve):
        table.add_row(fact.name, Text(fact.value, style="bold cyan"), Text(fact.meaning, style="dim"))
    blocks, _, ends = sparkline(curve).partition("  ")
    spark = Table.grid(padding=(0, 2))
    spark.add_row("δ(ε), log axis  ", Text(blocks, style="cyan"), Text(ends, style="dim"))
    whole = Table.grid()
    whole.add_row(table)
    whole.add_row(spark)
    return Panel(whole, title=Text(title(curve)), title_align="left", box=ROUNDED, expand=False, padding=(0, 1))
