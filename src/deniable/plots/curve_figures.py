"""Figures of curves: each function reads numbers from curves and returns a `Figure`.

Curves are given one by one and named by their expressions, or in a mapping with names: `tradeoff(a, b)`,
`tradeoff({"before": a})`. Every curve is drawn on its safe side; a band extends to the certified bound from the other
side. Where no band is visible, the two agree to within the width of the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from deniable import arguments
from deniable.arguments import INNER_PROBABILITY, PROBABILITY, NumberRange
from deniable.curves import textbook
from deniable.curves.curve import Curve
from deniable.curves.curve_display import rounded_up
from deniable.curves.meaning.one_direction import Direction
from deniable.errors import InvalidOperation, InvalidParameter, OutsideTheorem
from deniable.plots.figure_spec import (
    REFERENCE,
    Axis,
    Bars,
    Figure,
    Labels,
    Level,
    Line,
    Mark,
    Marker,
    Panel,
    ShadedBand,
    Stems,
)

MOST_CURVES = 7
"""The most lines of a figure: as many as there are colours that all readers can distinguish."""

MOST_INTERVALS = 200
LONGEST_NAME = 44
PRINTED = "2ε√(2k log 1/δ)"
SMALLEST_DELTA = 1e-10
"""The lower end of a δ axis."""

Floats = np.ndarray


# -- figures ---------------------------------------------------------------------------------------------------------


Form = Literal["tradeoff", "roc", "det"]
"""False alarms against misses, against hits (ROC), or against misses on normal-deviate axes (DET)."""
Shown = Literal["both", "forward", "backward", "apart"]
"""Which order of the neighbours: the worse of both, T(P, Q), T(Q, P), or the last two as lines of their own."""


def tradeoff(*curves: Curve | Mapping[str, Curve], form: Form = "tradeoff", direction: Shown = "both") -> Figure:
    """The attacker's trade-off: the smallest miss rate β for every false-alarm rate α. Higher is more private.

    The diagonal β = 1 - α is an attacker who learns nothing; the dot marks the equal error rate. `form="roc"` draws
    hits 1 - β against α, `form="det"` both error rates in normal deviates, where Gaussian curves are straight.
    `direction` selects T(P, Q) ("forward") or T(Q, P) ("backward"), or draws both as lines of their own ("apart").
    """
    if form not in FORMS:
        raise InvalidParameter("form", form, "must be tradeoff, roc or det")
    _shown(direction)
    note = "The best attacker can reach the line, none gets below it. On the diagonal the output says nothing."
    if form == "roc":
        note = note.replace("below", "above")
    panel = _tradeoff_panel(_named(curves), form, direction)
    return Figure("What an attacker can do", (panel,), note, height=5.0)


def profile(*curves: Curve | Mapping[str, Curve], delta: float | None = None) -> Figure:
    """The privacy curve δ(ε) on a logarithmic axis. With `delta`, that level and each curve's ε at it are marked."""
    note = "δ(ε): how much of the output's probability may break the bound e^ε. Lower is more private."
    return Figure("Privacy curves", (_profile_panel(_named(curves), _level(delta)),), note)


def compare(*curves: Curve | Mapping[str, Curve], delta: float | None = None) -> Figure:
    """Several curves side by side: the trade-off of false alarms and misses, and δ(ε)."""
    named, level = _named(curves), _level(delta)
    right = _profile_panel(named, level)
    # One legend for both panels: at the left one, with the labels of the right one.
    left = _tradeoff_panel(dict(zip(right.lines, named.values(), strict=True)))
    panels = replace(left, title="Trade-off"), replace(right, title="Privacy curve", labels="none")
    title = "Curves compared" if len(named) > 1 else "Trade-off and privacy curve"
    return Figure(title, panels, "Left: higher is more private. Right: lower is more private.", height=4.6)


def odds(*curves: Curve | Mapping[str, Curve], false_alarms: float, prior: float | None = None) -> Figure:
    """The posterior belief of an attacker after a test with this rate of false alarms, for every prior belief.

    The upper line of a curve is the belief after an alarm, π(1 - β) / (π(1 - β) + (1 - π)α), the lower line the belief
    after no alarm, πβ / (πβ + (1 - π)(1 - α)). β is the certified lower bound, so that the best attacker stays between
    them. With `prior`, both beliefs are marked at that prior.
    """
    named, alpha = _named(curves), arguments.python_float("false_alarms", false_alarms, INNER_PROBABILITY)
    before = np.linspace(0, 1, 201)
    marks: list[Mark] = [Line("learns nothing", (0.0, 1.0), (0.0, 1.0), REFERENCE, "dashed")]
    for colour, (label, curve) in enumerate(named.items()):
        beta = curve.beta(alpha=alpha)
        low, high = believed(beta, alpha, before)
        marks += [ShadedBand(_floats(before), _floats(low), _floats(high), colour)]
        marks += [Line(label, _floats(before), _floats(high), colour), Line("", _floats(before), _floats(low), colour)]
        if prior is not None:
            at = arguments.python_float("prior", prior, INNER_PROBABILITY)
            marks += [Marker(at, float(y), colour=colour) for y in believed(beta, alpha, np.array(at))]
    if prior is not None:
        marks.append(Level(float(prior), "x", f"{prior:.3g} before"))
    panel = Panel(Axis("sure before", 0, 1), Axis("sure after", 0, 1), tuple(marks), square=True)
    note = f"At {alpha:.3g} false alarms. Upper line: after an alarm; lower: after none. No attacker leaves the band."
    return Figure("What an attacker may believe", (panel,), note, height=5.0)


def believed(beta: float, alpha: float, prior: Floats) -> tuple[Floats, Floats]:
    """(after no alarm, after an alarm): Bayes' rule for a test with these two error rates."""
    caught, missed = prior * (1 - beta), prior * beta
    silent, loud = missed + (1 - prior) * (1 - alpha), caught + (1 - prior) * alpha
    # An event of probability 0 leaves the belief unchanged: no alarm although the person is there, if β = 0.
    return (
        np.divide(missed, silent, out=np.array(prior, dtype=float), where=silent > 0),
        np.divide(caught, loud, out=np.array(prior, dtype=float), where=loud > 0),
    )


def loss(curve: Curve, *, delta: float | None = None, direction: Shown = "both") -> Figure:
    """The distribution of the privacy loss L = log dP/dQ under P: the change of log-odds by one output.

    If the two directions differ, each has a panel: log dP/dQ under P and log dQ/dP under Q; `direction` ("forward",
    "backward") selects one. The mean of each is its Kullback-Leibler divergence. With `delta`, ε(δ) of the curve is
    marked: nearly all of the probability that δ covers lies beyond it.
    """
    if not isinstance(curve, Curve):
        raise InvalidOperation(f"loss() draws the loss distribution of one curve, not of a {type(curve).__name__}")
    _shown(direction)
    allowed, name = _level(delta), _short(curve.expression(), 56)
    if direction in ("both", "apart"):
        parts = [curve.forward] if curve.is_symmetric else [curve.forward, curve.backward]
    else:
        parts = [curve.forward if direction == "forward" else curve.backward]
    panels = tuple(_loss_panel(part, allowed) for part in parts)
    if len(panels) == 1:
        panels = (replace(panels[0], title=name),)
    note = "A loss of ℓ multiplies the odds of the neighbour that the output came from, against the other, by exp(ℓ)."
    certain = max(part.delta_bounds(epsilon=math.inf)[0] for part in parts)
    if certain > 0:
        note += f" With probability {certain:.3g} the loss is infinite: the output gives the person away."
    return Figure("Privacy loss" if len(panels) == 1 else f"Privacy loss of {name}", panels, note)


def _loss_panel(part: Direction, delta: float | None) -> Panel:
    """One direction: its losses, their mean, and the ε of the whole curve."""
    found, curve = part.loss, part.curve
    marks: list[Mark] = [_masses(found.losses, found.masses)]
    low, high = _ends(found.losses, found.masses)
    top = max(_heights(marks[0]), default=1.0) or 1.0
    marks.append(Level(found.mean, "x", f"mean {found.mean:.3g}"))
    if delta is not None and math.isfinite(epsilon := curve.epsilon(delta=delta)):
        marks.append(Level(epsilon, "x", f"ε = {rounded_up(epsilon, 4)} at δ = {_power(delta)}"))
        high = max(high, epsilon + 0.05 * (high - low))
    title = "log dP/dQ, on P" if part.is_forward else "log dQ/dP, on Q"
    x, y = Axis("privacy loss ℓ", low, high), Axis("probability", 0.0, 1.25 * top)
    return Panel(x, y, tuple(marks), title, "none")


def _shown(direction: str) -> None:
    if direction not in ("both", "forward", "backward", "apart"):
        raise InvalidParameter("direction", direction, "must be both, forward, backward or apart")


def growth(curve: Curve, *, delta: float, most: int, name: str = "this mechanism") -> Figure:
    """The ε of k runs at this δ, for k up to `most`: textbook formulas where they are theorems, and the exact curve.

    The curve is one run and must be pure DP; the formulas use its ε at δ = 0. The lines are

    - basic composition, k ε;
    - 2 ε √(2k log(1/δ)), only while k ε² <= 8 log(1/δ): beyond that it is false, though often printed;
    - k ε²/2 + ε √(2k log(1/δ)), which holds for every k;
    - the optimum over all ε-DP mechanisms (`pure(epsilon=ε) ** k`);
    - this very mechanism, `curve ** k`, with its certified band.
    """
    each, allowed = _checked_growth(curve, delta, most)
    counts = _counts(most)
    dense = sorted({*counts, *_counts(most, 200)})
    bounds = [(curve**k).epsilon_bounds(delta=allowed) for k in counts]
    exact = ShadedBand(_floats(counts), _floats(low for low, _ in bounds), _floats(high for _, high in bounds))
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
    """Numbers with intervals, one below the other, from (name, value, low, high). `by` labels the names, `note` is
    printed below.
    """
    if not 1 <= len(points) <= MOST_INTERVALS:
        rule = f"between 1 and {MOST_INTERVALS} intervals can be drawn together"
        raise InvalidParameter("points", len(points), rule, "keep fewer rows, with ORDER BY and LIMIT")
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
        height=1.5
        + 0.3 * min(len(points), 60)
        + 0.18 * max(len(points) - 60, 0),  # many points are drawn closer together
    )


# -- panels ----------------------------------------------------------------------------------------------------------


def _tradeoff_panel(named: dict[str, Curve], form: Form = "tradeoff", direction: Shown = "both") -> Panel:
    draw, x_axis, y_axis = FORMS[form]
    marks: list[Mark] = [Line("learns nothing", *draw(np.array([0, 1.0]), np.array([1.0, 0])), REFERENCE, "dashed")]
    lines = {
        f"{label}{suffix}": (curve, parts)
        for label, curve in named.items()
        for suffix, parts in _orders(curve, direction).items()
    }
    for colour, (label, (curve, parts)) in enumerate(lines.items()):
        alpha, beta = _lowest([part.polygon() for part in parts])
        most = np.minimum.reduce([part.beta_bounds(alpha=LEVELS)[1] for part in parts])
        under = np.interp(LEVELS, alpha, beta)
        (at, low), (_, high) = draw(LEVELS, under), draw(LEVELS, np.maximum(most, under))
        marks.append(ShadedBand(at, low, high, colour))
        marks.append(Line(label, *draw(alpha, beta), colour))
        if len(parts) > 1 or curve.is_symmetric:
            rate = curve.equal_error_rate()
            (x,), (y,) = draw(np.array([rate]), np.array([rate]))
            marks.append(Marker(x, y, colour=colour))
    # A ROC curve fills the corner that otherwise has the legend.
    return Panel(x_axis, y_axis, tuple(marks), labels="above" if form == "roc" else _place(lines), square=True)


LEVELS = 0.5 * (1 - np.cos(np.linspace(0, math.pi, 61)))
"""False-alarm rates at which bands are read, denser at both ends."""


def _orders(curve: Curve, direction: Shown) -> dict[str, list[Direction]]:
    """The lines to draw for a curve. Each has a suffix for the legend and one or two directions; the line is their
    minimum.
    """
    if direction == "forward":
        return {"": [curve.forward]}
    if direction == "backward":
        return {"": [curve.backward]}
    if direction == "apart" and not curve.is_symmetric:
        return {", T(P, Q)": [curve.forward], ", T(Q, P)": [curve.backward]}
    return {"": [curve.forward] if curve.is_symmetric else [curve.forward, curve.backward]}


def _lowest(polygons: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """The minimum of several polygons at every α, with a vertex where two cross."""
    if len(polygons) == 1:
        return polygons[0]
    (a, b), (c, d) = polygons
    alpha = np.unique(np.concatenate((a, c)))
    gap = np.interp(alpha, a, b) - np.interp(alpha, c, d)
    cross = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    share = gap[cross] / (gap[cross] - gap[cross + 1])
    alpha = np.unique(np.concatenate((alpha, alpha[cross] + share * (alpha[cross + 1] - alpha[cross]))))
    return alpha, np.minimum(np.interp(alpha, a, b), np.interp(alpha, c, d))


Drawn = tuple[tuple[float, ...], tuple[float, ...]]
FARTHEST = 3.7
"""The ends of normal-deviate axes: error rates of one in ten thousand."""


def _as_rates(alpha: Floats, beta: Floats) -> Drawn:
    return _floats(alpha), _floats(beta)


def _as_roc(alpha: Floats, beta: Floats) -> Drawn:
    return _floats(alpha), _floats(1 - beta)


def _as_deviates(alpha: Floats, beta: Floats) -> Drawn:
    """Normal deviates of both rates. A straight line in rates becomes curved, so it is drawn at many points."""
    normal = NormalDist()
    if len(alpha) > 1:
        dense = np.array([normal.cdf(z) for z in np.linspace(-FARTHEST, FARTHEST, 201)])
        alpha, beta = dense, np.interp(dense, alpha, beta)
    x, y = (tuple(normal.inv_cdf(min(max(float(r), 1e-12), 1 - 1e-12)) for r in rates) for rates in (alpha, beta))
    return x, y


FORMS: dict[str, tuple[Callable[[Floats, Floats], Drawn], Axis, Axis]] = {
    "tradeoff": (_as_rates, Axis("false alarms α", 0, 1), Axis("misses β", 0, 1)),
    "roc": (_as_roc, Axis("false alarms α", 0, 1), Axis("hits 1 − β", 0, 1)),
    "det": (
        _as_deviates,
        Axis("false alarms α, as Φ⁻¹(α)", -FARTHEST, FARTHEST),
        Axis("misses β, as Φ⁻¹(β)", -FARTHEST, FARTHEST),
    ),
}


def _profile_panel(named: dict[str, Curve], level: float | None) -> Panel:
    floor = min(SMALLEST_DELTA, level / 100) if level else SMALLEST_DELTA
    ends = {label: _end(curve, floor) for label, curve in named.items()}
    right = max(ends.values())
    marks: list[Mark] = []
    if level:
        marks.append(Level(level, "y", f"δ = {_power(level)}"))
    for colour, (label, curve) in enumerate(named.items()):
        epsilon = np.linspace(0, right, 161)
        # Curves of bounded loss drop steeply at the end, so points are denser there.
        edge = ends[label] * (1 - np.logspace(-9, -1, 33))
        epsilon = np.unique(np.concatenate((epsilon[epsilon <= 1.02 * ends[label]], edge, [ends[label]])))
        low, high = curve.delta_bounds(epsilon=epsilon)
        shown = high > 0
        low, high, at = np.maximum(low, floor * 1e-3), np.maximum(high, floor * 1e-3), epsilon
        marks.append(ShadedBand(_floats(at), _floats(low), _floats(high), colour))
        met = curve.epsilon(delta=level) if level else math.inf
        name = f"{label}: ε = {rounded_up(met, 4)}" if math.isfinite(met) else label
        marks.append(Line(name, _floats(at[shown]), _floats(high[shown]), colour))
        if math.isfinite(met):
            marks.append(Marker(met, level or 0.0, colour=colour))
    return Panel(Axis("ε", 0, 1.02 * right), Axis("δ", floor, 1, "log"), tuple(marks))


def _place(names: Iterable[str]) -> Labels:
    """The place of the labels: a few short names fit into the upper right corner, which trade-off curves leave free."""
    lengths = [len(name) for name in names]
    return "inside" if len(lengths) <= 5 and max(lengths) <= 26 else "above"


def _end(curve: Curve, floor: float) -> float:
    """The ε at which δ falls below the axis; if it never does (some outcome reveals all), where it levels off."""
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
    # Each mass is spread over its own grid cell, which avoids aliasing between bars and grid.
    cells = np.concatenate(([1.5 * losses[0] - 0.5 * losses[1]], (losses[1:] + losses[:-1]) / 2, [losses[-1] + 1e-9]))
    edges = np.linspace(low, high, bins + 1)
    below = np.interp(edges, cells, np.concatenate(([0.0], np.cumsum(masses))))
    return Bars(_floats(edges), _floats(np.diff(below)))


def _ends(losses: Floats, masses: Floats) -> tuple[float, float]:
    """The range of all but a ten-thousandth of the mass, with a margin."""
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
    """Integers from 1 to `most`, denser near the start, where curves bend."""
    return sorted({max(1, round(most * t * t)) for t in np.linspace(0, 1, count)} | {1, most})


def _where_proved(
    label: str, formula: Callable[..., float], epsilon: float, delta: float, counts: list[int], colour: int
) -> Line:
    """The line of a formula, only where its theorem holds."""
    x, y = [], []
    for k in _through_the_end(formula, epsilon, delta, counts):
        try:
            y.append(formula(epsilon=epsilon, count=k, delta=delta))
        except OutsideTheorem:
            break
        x.append(k)
    return Line(label, _floats(x), _floats(y), colour, "dashed")


def _through_the_end(formula: Callable[..., float], epsilon: float, delta: float, counts: list[int]) -> list[int]:
    """The counts, and in addition the last count at which the formula holds, so that a line ends exactly there."""

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
                remedy = "; write mechanism.curve" if hasattr(curve, "curve") else ""
                raise InvalidOperation(f"only curves can be drawn, not {type(curve).__name__}{remedy}")
            named[_short(str(label) or curve.expression())] = curve
    if not 1 <= len(named) <= MOST_CURVES:
        rule = f"between 1 and {MOST_CURVES} curves can be drawn together"
        raise InvalidParameter("curves", len(named), rule, "draw several figures")
    return named


def _level(delta: float | None) -> float | None:
    if delta is None:
        return None
    return arguments.python_float("delta", delta, PROBABILITY)


def _checked_growth(curve: Curve, delta: float, most: int) -> tuple[float, float]:
    """(ε of one run, δ), checked for the composition theorems; `InvalidParameter` otherwise."""
    if not isinstance(curve, Curve):
        raise InvalidOperation(f"growth() draws the composition of one curve, not of a {type(curve).__name__}")
    rule = "must be a whole number between 2 and 1,000,000"
    arguments.python_int("most", most, NumberRange(rule, least=2, most=10**6))
    allowed, each = _level(delta), curve.epsilon(delta=0.0)
    if allowed is None or not 0 < allowed < 1:
        raise InvalidParameter("delta", delta, "must lie strictly between 0 and 1", "advanced composition needs δ > 0")
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


def _floats(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
