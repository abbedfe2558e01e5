"""Pictures of curves, as specs: each function reads numbers from curves and says what to draw with them.

Curves are given one by one, named by their expressions, or with names: `tradeoff(a, b)`, `tradeoff({"before": a})`.
Every curve is drawn on its safe side; the band reaches to the certified bound from the other side. Where you see no
band, the two agree to within the width of the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from deniable.curves import textbook
from deniable.curves.curve import Curve
from deniable.curves.looks import rounded_up
from deniable.errors import InvalidOperation, InvalidParameter, OutsideTheorem
from deniable.plots.spec import REFERENCE, Axis, Band, Bars, Figure, Labels, Level, Line, Mark, Marker, Panel, Stems

MOST_CURVES = 7
"""More lines than colours that everybody can tell apart are not a picture."""

MOST_INTERVALS = 200
LONGEST_NAME = 44
PRINTED = "2ε√(2k log 1/δ)"
SMALLEST_DELTA = 1e-10
"""The lower end of a δ axis."""

Floats = np.ndarray


# -- what is drawn ---------------------------------------------------------------------------------------------------


def tradeoff(*curves: Curve | Mapping[str, Curve]) -> Figure:
    """The attacker's trade-off: the smallest miss rate β for every false-alarm rate α. Higher is more private.

    The diagonal β = 1 - α is an attacker who learns nothing.
    """
    note = "The best attacker can reach the line, none gets below it. On the diagonal the output says nothing."
    return Figure("What an attacker can do", (_tradeoff_panel(_named(curves)),), note, height=5.0)


def profile(*curves: Curve | Mapping[str, Curve], delta: float | None = None) -> Figure:
    """The privacy curve δ(ε) on a log axis. With `delta`, that level is drawn and each curve's ε marked on it."""
    note = "δ(ε): how much of the output's probability may break the bound e^ε. Lower is more private."
    return Figure("Privacy curves", (_profile_panel(_named(curves), _level(delta)),), note)


def compare(*curves: Curve | Mapping[str, Curve], delta: float | None = None) -> Figure:
    """Several curves side by side: the trade-off of false alarms and misses, and δ(ε)."""
    named, level = _named(curves), _level(delta)
    right = _profile_panel(named, level)
    # One legend is enough: the left one, with the right one's words.
    left = _tradeoff_panel(dict(zip(right.lines, named.values(), strict=True)))
    panels = replace(left, title="Trade-off"), replace(right, title="Privacy curve", labels="none")
    title = "Curves compared" if len(named) > 1 else "Trade-off and privacy curve"
    return Figure(title, panels, "Left: higher is more private. Right: lower is more private.", height=4.6)


def loss(curve: Curve, *, delta: float | None = None) -> Figure:
    """The distribution of the privacy loss L = log dP/dQ under P: what one look at the output does to the odds.

    With `delta`, ε(δ) is marked: beyond it lies (nearly) all of what δ pays for.
    """
    if not isinstance(curve, Curve):
        raise InvalidOperation(f"the loss distribution of one curve can be drawn, not of {type(curve).__name__}")
    found, allowed = curve.loss, _level(delta)
    marks: list[Mark] = [_masses(found.losses, found.masses)]
    low, high = _ends(found.losses, found.masses)
    top = max(_heights(marks[0]), default=1.0) or 1.0
    marks.append(Level(found.mean, "x", f"mean {found.mean:.3g}"))
    if allowed is not None and math.isfinite(epsilon := curve.epsilon(delta=allowed)):
        marks.append(Level(epsilon, "x", f"ε = {rounded_up(epsilon, 4)} at δ = {_power(allowed)}"))
        high = max(high, epsilon + 0.05 * (high - low))
    note = "A loss of ℓ multiplies the odds that the person is in the data by exp(ℓ)."
    certain = curve.delta_bounds(epsilon=math.inf)[0]
    if certain > 0:
        note += f" With probability {certain:.3g} the loss is infinite: the output gives the person away."
    y = Axis("probability", 0.0, 1.25 * top)
    panel = Panel(Axis("privacy loss ℓ", low, high), y, tuple(marks), _short(curve.expression(), 72), "none")
    return Figure("Privacy loss", (panel,), note)


def growth(curve: Curve, *, delta: float, most: int, name: str = "this mechanism") -> Figure:
    """What k runs cost at this δ, for k up to `most`: textbook formulas where they are theorems, and the exact curve.

    The curve is one run and must be pure DP (its ε at δ = 0 is what the formulas are fed with). Drawn are

    - basic composition, k ε;
    - 2 ε √(2k log(1/δ)), only while k ε² <= 8 log(1/δ): beyond that it is false, however often it is printed;
    - k ε²/2 + ε √(2k log(1/δ)), which holds for every k;
    - the optimum over all ε-DP mechanisms (`pure(epsilon=ε) ** k`);
    - this very mechanism, `curve ** k`, with its certified band.
    """
    each, allowed = _checked_growth(curve, delta, most)
    counts = _counts(most)
    dense = sorted({*counts, *_counts(most, 200)})
    bounds = [(curve**k).epsilon_bounds(delta=allowed) for k in counts]
    exact = Band(_floats(counts), _floats(low for low, _ in bounds), _floats(high for _, high in bounds))
    best = (textbook.optimal_composition_epsilon(epsilon=each, delta=0, count=k, total_delta=allowed) for k in counts)
    printed = _where_proved(PRINTED, textbook.advanced_composition_doubled, each, allowed, dense, 1)
    lines = (
        Line("basic, k ε", _floats(dense), _floats(k * each for k in dense), REFERENCE, "dashed"),
        printed,
        _where_proved("advanced, proved for all k", textbook.advanced_composition, each, allowed, dense, 2),
        Line(f"best for any {each:.3g}-DP", exact.x, _floats(best), 3),
        Line(name, exact.x, exact.high),
    )
    marks: list[Mark] = [exact, *(replace(line, note=rounded_up(line.y[-1], 4)) for line in lines if line.x)]
    note = "Exact lines are certified from both sides."
    if printed.x and printed.x[-1] < most:
        marks.append(Marker(printed.x[-1], printed.y[-1], f"{PRINTED}\nis proved up to k = {printed.x[-1]:.0f}", 1))
        wrong, true = 2 * each * math.sqrt(2 * most * math.log(1 / allowed)), exact.low[-1]
        if wrong < true:
            note += f" Continued to k = {most:,}, {PRINTED} would claim {wrong:.4g}; the truth is above {true:.4g}."
    top = max(line.y[-1] for line in lines[1:] if line.x)
    panel = Panel(Axis("number of releases k", 0, most), Axis("total ε", 0, 1.25 * top), tuple(marks), labels="ends")
    return Figure(f"Composition at δ = {_power(allowed)}, ε = {each:.3g} each", (panel,), note, height=4.6)


def intervals(
    points: Sequence[tuple[str, float, float, float]], *, label: str, by: str, title: str, note: str = ""
) -> Figure:
    """Numbers with their intervals, one below the other, the first on top: (name, value, low, high) each; `by`
    says what the names are, `note` what else is to be said.
    """
    if not 1 <= len(points) <= MOST_INTERVALS:
        rule = f"between 1 and {MOST_INTERVALS} intervals can be drawn together"
        raise InvalidParameter("points", len(points), rule, "keep fewer rows: ORDER BY and LIMIT do that")
    marks: list[Mark] = []
    for at, (_, value, low, high) in enumerate(reversed(points)):
        marks += [Line("", (float(low), float(high)), (float(at), float(at))), Marker(float(value), float(at))]
    ends = [float(end) for _, value, low, high in points for end in (low, high, value)]
    air = 0.06 * (max(ends) - min(ends)) or 0.5
    y = Axis(by, -0.7, len(points) - 0.3, names=tuple(_short(name, 32) for name, *_ in reversed(points)))
    panel = Panel(Axis(label, min(ends) - air, max(ends) + air), y, tuple(marks), labels="none")
    return Figure(
        title,
        (panel,),
        " ".join(("The dot is the noisy answer, the line how far noise may have moved it.", note)).strip(),
        height=1.5 + 0.3 * min(len(points), 60) + 0.18 * max(len(points) - 60, 0),  # many stand closer together
    )


# -- panels ----------------------------------------------------------------------------------------------------------


def _tradeoff_panel(named: dict[str, Curve]) -> Panel:
    alpha = 0.5 * (1 - np.cos(np.linspace(0, math.pi, 61)))
    marks: list[Mark] = [Line("learns nothing", (0.0, 1.0), (1.0, 0.0), REFERENCE, "dashed")]
    for colour, (label, curve) in enumerate(named.items()):
        low, high = curve.beta_bounds(alpha=alpha)
        # β may jump down at α = 0 only by the mass of infinite loss; drawn from the top so that the axis is reached.
        marks.append(Band(_floats(alpha), _floats(low), _floats(high), colour))
        marks.append(Line(label, _floats(alpha), _floats(low), colour))
    return Panel(Axis("false alarms α", 0, 1), Axis("misses β", 0, 1), tuple(marks), labels=_place(named), square=True)


def _profile_panel(named: dict[str, Curve], level: float | None) -> Panel:
    floor = min(SMALLEST_DELTA, level / 100) if level else SMALLEST_DELTA
    ends = {label: _end(curve, floor) for label, curve in named.items()}
    right = max(ends.values())
    marks: list[Mark] = []
    if level:
        marks.append(Level(level, "y", f"δ = {_power(level)}"))
    for colour, (label, curve) in enumerate(named.items()):
        epsilon = np.linspace(0, right, 161)
        # Curves of bounded loss fall off a cliff: points crowd towards its edge.
        edge = ends[label] * (1 - np.logspace(-9, -1, 33))
        epsilon = np.unique(np.concatenate((epsilon[epsilon <= 1.02 * ends[label]], edge, [ends[label]])))
        low, high = curve.delta_bounds(epsilon=epsilon)
        shown = high > 0
        low, high, at = np.maximum(low, floor * 1e-3), np.maximum(high, floor * 1e-3), epsilon
        marks.append(Band(_floats(at), _floats(low), _floats(high), colour))
        met = curve.epsilon(delta=level) if level else math.inf
        said = f"{label}: ε = {rounded_up(met, 4)}" if math.isfinite(met) else label
        marks.append(Line(said, _floats(at[shown]), _floats(high[shown]), colour))
        if math.isfinite(met):
            marks.append(Marker(met, level or 0.0, colour=colour))
    return Panel(Axis("ε", 0, 1.02 * right), Axis("δ", floor, 1, "log"), tuple(marks))


def _place(names: Iterable[str]) -> Labels:
    """A few short names fit into the upper right corner, which no trade-off curve can reach."""
    lengths = [len(name) for name in names]
    return "inside" if len(lengths) <= 5 and max(lengths) <= 26 else "above"


def _end(curve: Curve, floor: float) -> float:
    """The ε at which δ leaves the axis; where it never does (some outcome reveals all), where it stops falling."""
    for delta in (floor, 1e-6, 1e-4, 1e-2, 0.5):
        end = curve.epsilon(delta=delta)
        if math.isfinite(end) and end > 0:
            return end if delta == floor else 1.5 * end
    return 1.0


# -- loss distributions ----------------------------------------------------------------------------------------------


def _masses(losses: Floats, masses: Floats, bins: int = 72) -> Bars | Stems:
    """Few values as stems, many as bars of equal width."""
    if np.count_nonzero(masses > 1e-6) <= 40:
        return Stems(_floats(losses), _floats(masses))
    low, high = _ends(losses, masses)
    # Each mass is spread over its own cell of the grid, so that bars do not beat against the grid.
    cells = np.concatenate(([1.5 * losses[0] - 0.5 * losses[1]], (losses[1:] + losses[:-1]) / 2, [losses[-1] + 1e-9]))
    edges = np.linspace(low, high, bins + 1)
    below = np.interp(edges, cells, np.concatenate(([0.0], np.cumsum(masses))))
    return Bars(_floats(edges), _floats(np.diff(below)))


def _ends(losses: Floats, masses: Floats) -> tuple[float, float]:
    """Where all but a ten-thousandth of the mass lies, with a little air."""
    order = np.argsort(losses)
    total = np.cumsum(masses[order])
    if not len(losses) or total[-1] <= 0:
        return -1.0, 1.0
    low = float(losses[order][np.searchsorted(total, 5e-5 * total[-1])])
    high = float(losses[order][min(int(np.searchsorted(total, (1 - 5e-5) * total[-1])), len(losses) - 1)])
    air = 0.06 * (high - low) or 0.5
    return low - air, high + air


def _heights(mark: Mark) -> tuple[float, ...]:
    return mark.heights if isinstance(mark, Bars | Stems) else ()


# -- composition -----------------------------------------------------------------------------------------------------


def _counts(most: int, count: int = 26) -> list[int]:
    """Whole numbers from 1 to `most`, denser where curves bend: near the start."""
    return sorted({max(1, round(most * t * t)) for t in np.linspace(0, 1, count)} | {1, most})


def _where_proved(
    label: str, formula: Callable[..., float], epsilon: float, delta: float, counts: list[int], colour: int
) -> Line:
    """The formula's line, ended where its theorem ends: a number that is no guarantee is not drawn."""
    x, y = [], []
    for k in _through_the_end(formula, epsilon, delta, counts):
        try:
            y.append(formula(epsilon=epsilon, count=k, delta=delta))
        except OutsideTheorem:
            break
        x.append(k)
    return Line(label, _floats(x), _floats(y), colour, "dashed")


def _through_the_end(formula: Callable[..., float], epsilon: float, delta: float, counts: list[int]) -> list[int]:
    """The counts, and with them the last one at which the formula holds."""

    def holds(k: int) -> bool:
        try:
            formula(epsilon=epsilon, count=k, delta=delta)
        except OutsideTheorem:
            return False
        return True

    if holds(counts[-1]) or not holds(counts[0]):
        return counts
    low, high = counts[0], counts[-1]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return sorted({*counts, low})


# -- arguments -------------------------------------------------------------------------------------------------------


def _named(given: tuple[Curve | Mapping[str, Curve], ...]) -> dict[str, Curve]:
    named: dict[str, Curve] = {}
    for one in given:
        items = one.items() if isinstance(one, Mapping) else [("", one)]
        for label, curve in items:
            if not isinstance(curve, Curve):
                raise InvalidOperation(f"only curves can be drawn, not {type(curve).__name__}")
            named[_short(str(label) or curve.expression())] = curve
    if not 1 <= len(named) <= MOST_CURVES:
        rule = f"between 1 and {MOST_CURVES} curves can be drawn together"
        raise InvalidParameter("curves", len(named), rule, "draw several figures")
    return named


def _level(delta: float | None) -> float | None:
    if delta is None:
        return None
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta <= 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1]")
    return float(delta)


def _checked_growth(curve: Curve, delta: float, most: int) -> tuple[float, float]:
    """(ε of one run, δ), both as numbers that the composition theorems can be fed with."""
    if not isinstance(curve, Curve):
        raise InvalidOperation(f"the growth of one curve can be drawn, not of {type(curve).__name__}")
    if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= 10**6:
        raise InvalidParameter("most", most, "must be a whole number between 2 and 1,000,000")
    allowed, each = _level(delta), curve.epsilon(delta=0.0)
    if allowed is None or not 0 < allowed < 1:
        raise InvalidParameter("delta", delta, "must lie strictly between 0 and 1", "advanced composition needs some δ")
    if not 0 < each < math.inf:
        raise InvalidParameter(
            "curve", curve, "must be pure DP with ε > 0", "textbook composition starts from a pure ε"
        )
    return each, allowed


def _short(text: str, longest: int = LONGEST_NAME) -> str:
    return text if len(text) <= longest else f"{text[: longest - 14]} … {text[-11:]}"


def _power(value: float) -> str:
    """1e-6 as 10⁻⁶; other numbers as they are."""
    exponent = round(math.log10(value)) if value > 0 else 0
    if value > 0 and math.isclose(value, 10.0**exponent, rel_tol=1e-9) and abs(exponent) >= 3:
        return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:.3g}"


def _floats(values: object) -> tuple[float, ...]:
    return tuple(float(v) for v in values)  # type: ignore[attr-defined]
