"""Figures of a mechanism's outputs on two neighbouring values: the two laws, their log-ratio, the best test.

The laws depend on the two values, so the values must be public examples, never private data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deniable.curves import curve_arguments
from deniable.errors import InvalidOperation
from deniable.local import PiecewiseMean, TableResponse
from deniable.local.local_protocol import Protocol, Telling
from deniable.mechanisms import limits
from deniable.mechanisms.distinguishing_parts import AnswerPart, Losses, Told, alike, differing, joined
from deniable.mechanisms.laws import Masses, OutputLaw, Pieces, are_numbers, masses
from deniable.mechanisms.mechanism import Mechanism
from deniable.mechanisms.noise_steps import Additive
from deniable.plots.figure_spec import Axis, Figure, Labels, Level, Line, Mark, Panel, ShadedBand, Stems

MOST_POINTS = 60
"""More single values than this are drawn as a line."""
MOST_NAMES = 24
"""The most non-numeric outputs that are drawn one by one; for more, the privacy loss is drawn."""
MOST_BINS = 40
"""The number of bins of equal width for many losses."""
HEAVY = 0.01
"""Single losses with a higher probability are drawn separately from the bins."""
UNLIKELY = 1e-9
"""Infinite losses of lower probability are not mentioned; laws on infinitely many outputs are cut far beyond that."""


def laws(
    mechanism: Mechanism | Protocol | TableResponse, x: Any, x2: Any, *, false_alarms: float | None = None
) -> Figure:
    """The laws of the output y on two values, and the log-ratio log p(y | x)/p(y | x2), which stays within ±ε if the
    values are neighbours. The note states whether it does.

    With `false_alarms`, the best test of "x" against "x2" at that rate is drawn too (Neyman & Pearson): it decides for
    x2 where the log-ratio is below a threshold.

    If the output consists of several independent numbers, only the one whose law differs is drawn. If several differ,
    or if an output has too many values for an axis, the laws of the privacy loss log p(y | x)/p(y | x2) are drawn
    instead, which is a sufficient statistic. Gaussian noise on several reals is drawn along the line from x to x2. For
    a report with public randomness (a hash, a cohort), its likelihood ratio is drawn over all random choices together.
    The note states what is drawn.
    """
    rate = None if false_alarms is None else curve_arguments.inner_probability("false_alarms", false_alarms)
    found = joined(_parts(mechanism, x, x2))
    names, epsilon = _both_shown(x, x2), mechanism.curve.epsilon(delta=0.0)
    if isinstance(found, AnswerPart) and not _is_rich(found):
        figure, drawn = two_laws(found.one, found.two, names, epsilon, rate), found.name
    else:
        losses = found if isinstance(found, Losses) else found.losses
        figure, drawn = loss_laws(losses, names, epsilon, rate), found.name if isinstance(found, AnswerPart) else ""
    extra = f" Drawn: {drawn}; all else has the same law on both values, and reveals nothing." if drawn else ""
    if found.before:
        extra += f" The figure shows {found.before}: an answer is computed from it, and reveals no more."
    return replace(figure, note=figure.note + extra)


def _parts(mechanism: Any, x: Any, x2: Any) -> list[Told]:
    """The independent parts of the output whose laws differ on the two values."""
    if isinstance(mechanism, Mechanism):
        return mechanism.told_apart(x, x2)
    if isinstance(mechanism, PiecewiseMean):
        return [AnswerPart(_law(mechanism, x), _law(mechanism, x2))]
    if isinstance(mechanism, TableResponse):
        return differing(_reports(each, f"column {name}") for name, each in mechanism.told_apart(x, x2).items())
    if isinstance(mechanism, Protocol):
        return [_reports(mechanism.told_apart(x, x2))]
    raise _undrawable(mechanism)


def _reports(telling: Telling, name: str = "") -> AnswerPart:
    one, two = (_in_words(law) for law in (telling.one, telling.two))
    return AnswerPart(one, two, name or telling.what)


def _in_words(found: Mapping[Any, float]) -> Masses:
    words = {False: "no", True: "yes"} if set(map(type, found)) == {bool} else {}
    return masses([words.get(report, report) for report in found], list(found.values()))


def _is_rich(part: AnswerPart) -> bool:
    """Whether the outputs are names, too many for one axis."""
    one, two = part.one, part.two
    return isinstance(one, Masses) and isinstance(two, Masses) and len(_names(alike(one, two)[0])) > MOST_NAMES


def _undrawable(mechanism: Any) -> InvalidOperation:
    return InvalidOperation(
        f"laws() draws the output distributions of a mechanism or a local protocol, not of a {type(mechanism).__name__}"
    )


def two_laws(
    one: OutputLaw, two: OutputLaw, names: tuple[str, str], epsilon: float, false_alarms: float | None = None
) -> Figure:
    """Two laws of an answer side by side, and their log-ratio with the band ±ε, if ε is finite."""
    if isinstance(one, Masses) and isinstance(two, Masses) and (_names(one) or _names(two)):
        one, two = alike(one, two)
    points = np.unique(np.concatenate((one.points(), two.points())))
    p, q = one.pdf(points), two.pdf(points)
    if not _names(one):  # negligible outputs would take space from the others
        seen = np.flatnonzero(np.maximum(p, q) > 1e-6 * np.max(p))
        points, p, q = (values[seen[0] : seen[-1] + 1] for values in (points, p, q))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(q)
    known = np.isfinite(ratio) & (np.maximum(p, q) > 1e-9 * np.max(p))
    across = _across(points, one)
    marks: list[Mark] = [
        mark
        for colour, (name, heights, law) in enumerate(zip(_short(names), (p, q), (one, two), strict=True))
        for mark in _drawn(points, heights, f"on {name}", colour, law)
    ]
    few = one.is_discrete and len(points) <= MOST_POINTS
    drawn = _pairs(points[known], ratio[known])
    below: list[Mark] = [Stems(*drawn, "log-ratio", 2) if few else Line("log-ratio", *drawn, 2)]
    band, kept = _band(across, ratio[np.maximum(p, q) > 0], epsilon)
    below += band
    note = f"Left: how likely each answer is on the two values. Right: what one answer does to the odds.{kept}"
    if one.is_discrete:
        never = float(np.sum(p[ratio == math.inf])), float(np.sum(q[ratio == -math.inf]))
        note += f" {_alone(never, names)}." if max(never) > UNLIKELY else ""
    if false_alarms is not None:
        test = _best_test(_cells(one, points), _cells(two, points), ratio, false_alarms)
        below += _threshold(test.threshold, names, epsilon)
        border = [] if one.is_discrete else _errors(points, p, q, test)
        marks += border
        note += _tested(false_alarms, test, _short(names)[1], border)
    height = 1.2 * float(max(np.max(p), np.max(q)))
    largest = float(np.max(np.abs(ratio[known]), initial=0.1))
    reach = 1.25 * max(largest, epsilon if math.isfinite(epsilon) else 0.0)
    word = "probability" if one.is_discrete else "density"
    panels = (
        Panel(across, Axis(word, 0, height), tuple(marks), "Two worlds", "inside"),
        Panel(across, Axis(_ratio_of(names), -reach, reach), tuple(below), "What one answer tells", "none"),
    )
    return Figure(f"Answers on {names[0]} and on {names[1]}", panels, note, height=4.4)


def loss_laws(losses: Losses, names: tuple[str, str], epsilon: float, false_alarms: float | None = None) -> Figure:
    """The two laws of the privacy loss side by side, and the log-ratio, which is the loss, with the band ±ε."""
    finite = np.isfinite(losses.values)
    found, p, q = losses.values[finite], losses.one[finite], losses.two[finite]
    seen = np.flatnonzero(np.maximum(p, q) > 1e-6 * max(np.max(p, initial=0.0), np.max(q, initial=0.0)))
    known = slice(seen[0], seen[-1] + 1) if len(seen) else slice(0)
    few = len(found[known]) <= MOST_POINTS
    largest = max(float(np.max(np.abs(found[known]), initial=0.1)), epsilon if math.isfinite(epsilon) else 0.0)
    never = float(np.sum(losses.one[losses.values == math.inf])), float(np.sum(losses.two[losses.values == -math.inf]))
    reach = (1.3 if max(never) > UNLIKELY else 1.1) * largest
    across = Axis(f"privacy loss {_ratio_of(names)}", -reach, reach)
    heavy = np.maximum(p, q) > (0.0 if few else HEAVY)
    aside = min(0.12 * _step(found[heavy]), 0.03 * reach)
    marks: list[Mark] = []
    for colour, (name, each) in enumerate(zip(_short(names), (p, q), strict=True)):
        shown = np.flatnonzero(heavy[known]) + (known.start or 0)
        places = _pairs(found[shown] + (colour - 0.5) * aside, each[shown])
        if few:
            marks.append(Stems(*places, f"on {name}", colour))
            continue
        marks.append(Line(f"on {name}", *_stairs(found, np.where(heavy, 0.0, each), found[known]), colour))
        if len(shown):
            marks.append(Stems(*places, "", colour))
    drawn = _pairs(found[known], found[known])
    below: list[Mark] = [Stems(*drawn, "log-ratio", 2) if few else Line("log-ratio", *drawn, 2)]
    band, kept = _band(across, losses.values[np.maximum(losses.one, losses.two) > UNLIKELY], epsilon)
    below += band
    note = f"Left: how likely each privacy loss is on the two values. Right: what it does to the odds.{kept}"
    if max(never) > UNLIKELY:
        note += f" {_alone(never, names)}, and are drawn at the ends."
        for colour, (at, mass) in enumerate(zip((0.92 * reach, -0.92 * reach), never, strict=True)):
            marks += [Stems((at,), (mass,), "", colour), Level(at, "x", "∞" if at > 0 else "−∞")] if mass else []
    if false_alarms is not None:
        test = _best_test(losses.one, losses.two, losses.values, false_alarms)
        below += _threshold(test.threshold, names, epsilon)
        if math.isfinite(test.threshold):
            marks.append(Level(test.threshold, "x", f"s = {test.threshold:.3f}"))
        note += _tested(false_alarms, test, _short(names)[1], [])
    top = max(max(m.heights if isinstance(m, Stems) else m.y) for m in marks if isinstance(m, Stems | Line))
    labels: Labels = "above" if max(never) > UNLIKELY else "inside"
    panels = (
        Panel(across, Axis("probability", 0, 1.2 * top), tuple(marks), "Two worlds", labels),
        Panel(across, Axis(_ratio_of(names), -reach, reach), tuple(below), "What one answer tells", "none"),
    )
    return Figure(f"Answers on {names[0]} and on {names[1]}", panels, note, height=4.4)


def _stairs(losses: Any, each: Any, shown: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A step line over bins of equal width. No bin contains both positive and negative losses."""
    width = float(shown[-1] - shown[0]) / MOST_BINS
    first, last = math.floor(shown[0] / width), math.ceil(shown[-1] / width) - 1
    # Bins include the end that is farther from 0, so that none extends beyond the largest loss.
    places = np.where(losses > 0, np.ceil(losses / width) - 1, np.floor(losses / width))
    heights = np.bincount(np.clip(places, first, last).astype(int) - first, each, minlength=last - first + 1)
    edges = width * np.arange(first, last + 2)
    return _pairs(np.repeat(edges, 2), np.concatenate(([0.0], np.repeat(heights, 2), [0.0])))


def _band(across: Axis, ratio: Any, epsilon: float) -> tuple[list[Mark], str]:
    """(the band ±ε, a sentence on whether the log-ratio stays within it)."""
    if not math.isfinite(epsilon):
        return [], " No ε at δ = 0 is promised: between some neighbours the log-ratio is not bounded."
    wide = ShadedBand((across.low, across.high), (-epsilon, -epsilon), (epsilon, epsilon), 2)
    return [wide, Level(epsilon, "y", f"ε = {epsilon:.4g}"), Level(-epsilon, "y")], _kept(ratio, epsilon)


def _alone(never: tuple[float, float], names: tuple[str, str]) -> str:
    return (
        f"The loss is infinite with probability {never[0]:.3g} on {names[0]} and {never[1]:.3g} on {names[1]}: "
        "such answers occur on one of the two only"
    )


def _threshold(at: float, names: tuple[str, str], epsilon: float) -> list[Mark]:
    """The threshold of the best test; unlabelled close to ±ε, where labels would overlap."""
    if not math.isfinite(at) or math.isclose(abs(at), epsilon, rel_tol=0.05):
        return []
    return [Level(at, "y", f"says {_short(names)[1]} below")]


def _tested(asked: float, test: _Test, name: str, border: list[Mark]) -> str:
    """A sentence on the best test and its miss rate."""
    drawn = [mark.at for mark in border if isinstance(mark, Level)]
    if drawn:
        rule = f"{'above' if test.alarms[-1] else 'below'} s = {drawn[0]:.3f}"
    elif not math.isfinite(test.threshold):
        rule = f"on every answer that {name} can give"
    else:
        level = f"{test.threshold:.4g}"
        where = [f"where the log-ratio is below {level}"] if test.below > 0 else []
        if test.tied > HEAVY or not where:
            there = "it" if where else "the log-ratio"
            where.append(f"with probability {test.coin:.3g} where {there} is {level}")
        rule = ", and ".join(where)
    return f" The best test with at most {asked:.3g} false alarms misses {test.misses:.3g}; it says {name} {rule}."


def _kept(ratio: Any, epsilon: float) -> str:
    """A sentence on whether the log-ratio of the drawn pair stays within the band, by its actual values."""
    largest = float(np.max(np.abs(ratio), initial=0.0))
    if largest <= epsilon * (1 + 1e-6) + 1e-9:
        return f" Here it stays within ±ε, as ε-DP promises for all neighbours (ε = {epsilon:.4g})."
    reached = f"reaches ±{largest:.4g}" if math.isfinite(largest) else "is infinite where one law is 0"
    return (
        f" Here it {reached}, outside the band ±{epsilon:.4g}: these two values are not neighbours. "
        "ε-DP bounds the log-ratio between neighbours only."
    )


def _ratio_of(names: tuple[str, str]) -> str:
    one, two = _short(names)
    return f"log p(y | {one}) / p(y | {two})"


def _short(names: tuple[str, str]) -> tuple[str, str]:
    """Short forms of the names, for use within a panel."""
    return names if max(map(len, names)) <= 12 else ("first", "second")


def density(*mechanisms: Mechanism | Protocol | Mapping[str, Mechanism | Protocol], value: Any = 0) -> Figure:
    """The laws of several mechanisms on one value, for example Laplace noise of several scales. A dict gives names."""
    if not mechanisms:
        raise InvalidOperation("density() draws the output distributions of mechanisms; give at least one mechanism")
    found = [(name or _named(m), _law(m, value)) for name, m in _each(mechanisms)]
    marks: list[Mark] = []
    drawn = [_seen(law) for _, law in found]
    places = np.unique(np.concatenate([points for points, _ in drawn]))
    drawn = [own if law.is_discrete else (places, law.pdf(places)) for own, (_, law) in zip(drawn, found, strict=True)]
    for colour, ((name, law), (points, heights)) in enumerate(zip(found, drawn, strict=True)):
        marks += _drawn(points, heights, name, colour, law)
    top = max(float(np.max(heights)) for _, heights in drawn)
    discrete = all(law.is_discrete for _, law in found)
    across = _across(places, found[0][1]) if discrete else Axis("answer", float(places[0]), float(places[-1]))
    word = "probability" if discrete else "density"
    panel = Panel(across, Axis(word, 0, 1.15 * top), tuple(marks), labels="above")
    return Figure(f"Answers on {_shown(value)}", (panel,), "How likely each answer is.", height=4.0)


def chances(*mechanisms: Mechanism | Mapping[str, Mechanism], rows: int) -> Figure:
    """For each mechanism, the probability p(s) of the output 1 on `rows` bits with s ones, for every s.

    For mechanisms with two outputs and a method `probabilities`: `BinaryMedian`, `BinaryInverseSensitivity.median`. A
    dict gives names. The dashed line is an upper bound for symmetric ε-DP mechanisms, for the largest ε among them.
    """
    n = curve_arguments.integer("rows", rows, 1)
    named = _each(mechanisms)
    if not named or not all(isinstance(m, Mechanism) and hasattr(m, "probabilities") for _, m in named):
        raise InvalidOperation(
            "chances() draws mechanisms with a method probabilities and the outputs 0 and 1; give at least one"
        )
    ones = range(n + 1)
    marks: list[Mark] = []
    for colour, (name, mechanism) in enumerate(named):
        binary: Any = mechanism
        found = [float(binary.probabilities([1] * s + [0] * (n - s))[1]) for s in ones]
        marks.append(Line(name or repr(mechanism), *_pairs(ones, found), colour))
    level = max(float(m.curve.epsilon(delta=0.0)) for _, m in named)
    above = [s for s in ones if 2 * s > n]
    most = [limits.binary_median_ceiling(records=n, ones=s, epsilon=level) for s in above]
    marks.append(Line(f"at most, at ε = {level:.4g}", *_pairs(above, most), len(named), "dashed"))
    panel = Panel(Axis("ones", 0, n), Axis("probability of 1", 0, 1), tuple(marks), labels="above")
    note = "Between neighbours, one step along the line, each probability changes by a factor of at most e^ε."
    return Figure(f"The median of {n} zeros and ones", (panel,), note, height=4.4)


def _law(mechanism: Any, value: Any) -> OutputLaw:
    """The law of an output or of one person's report; if it is not available, the error explains why."""
    if isinstance(mechanism, Mechanism):
        return mechanism.law(value)
    if isinstance(mechanism, PiecewiseMean):
        return Pieces(*mechanism.pieces(value))
    if isinstance(mechanism, Protocol):
        return _in_words(mechanism.probabilities(value))
    raise _undrawable(mechanism)


def _each(given: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """(name or "", mechanism) in order."""
    return [pair for one in given for pair in (one.items() if isinstance(one, Mapping) else [("", one)])]


def _named(mechanism: Mechanism | Protocol) -> str:
    if isinstance(mechanism, Additive):
        return f"{type(mechanism).__name__}, {mechanism.LEVEL} {mechanism.level:.4g}"
    return repr(mechanism)


def _seen(law: OutputLaw) -> tuple[Any, Any]:
    """(values, probabilities) of a law, without single values of negligible probability, which would waste space."""
    points = law.points()
    heights = law.pdf(points)
    if not law.is_discrete or _names(law):
        return points, heights
    seen = np.flatnonzero(heights > 1e-6 * np.max(heights))
    return points[seen[0] : seen[-1] + 1], heights[seen[0] : seen[-1] + 1]


def _across(points: Any, law: OutputLaw) -> Axis:
    """The axis of outputs, with half a step of margin at both ends for single values, whose stems are side by side."""
    low, high = float(points[0]), float(points[-1])
    air = max(0.03 * (high - low), 0.5 * _step(points)) if law.is_discrete else 0.03 * (high - low) or 0.5
    whole = law.is_discrete and bool(np.all(points == np.round(points)))
    return Axis("answer", low - air, high + air, names=_names(law), whole=whole)


def _step(points: Any) -> float:
    return float(np.min(np.diff(points), initial=1.0))


def _drawn(points: Any, heights: Any, label: str, colour: int, law: OutputLaw) -> list[Mark]:
    if law.is_discrete and len(points) <= MOST_POINTS:
        # Stems of two laws on the same values are drawn side by side.
        return [Stems(*_pairs(points + (colour - 0.5) * 0.12 * _step(points), heights), label, colour)]
    return [Line(label, *_pairs(points, heights), colour)]


def _cells(law: OutputLaw, points: Any) -> Any:
    """The probability of the outputs closest to each point; the outer points include the tails."""
    if isinstance(law, Masses):
        return law.pdf(points)
    below = law.cdf((points[1:] + points[:-1]) / 2)
    return np.diff(np.concatenate(([0.0], below, [1.0])))


@dataclass(frozen=True, slots=True, eq=False)
class _Test:
    """The likelihood-ratio test of x against x2: it decides for x2 below the threshold, and at random at it."""

    threshold: float
    below: float
    """The probability of an output below the threshold on x, plus the same probability on x2; 0 if no output is below
    it.
    """
    tied: float
    """The probability of an output at the threshold, on x."""
    coin: float
    misses: float
    alarms: Any
    """Which cells raise an alarm in the drawing, where no coin is flipped: whole cells, in the order of the log-ratio
    (of equal ones from one end on), as many as the rate of false alarms allows."""
    part: float
    """The fraction of the next cell that would complete the rate of false alarms."""


def _best_test(p: Any, q: Any, ratio: Any, rate: float) -> _Test:
    """The test with this rate of false alarms that misses least, from the probabilities of cells and log p/q.

    Where the log-ratio is at the threshold, the test flips a coin (Neyman & Pearson), so that it alarms at this rate.
    """
    rounded = np.round(np.where(np.maximum(p, q) > 0, ratio, math.inf), 12)
    rounded = np.where(np.isnan(rounded), math.inf, rounded)
    from_the_end = -1 if rounded[-1] <= rounded[0] else 1
    order = np.lexsort((from_the_end * np.arange(len(rounded)), rounded))
    count = int(np.searchsorted(np.cumsum(p[order]), rate, side="right"))
    last = order[min(count, len(order) - 1)]
    below, at = rounded < rounded[last], rounded == rounded[last]
    spent, tied = float(np.sum(p[below])), float(np.sum(p[at]))
    coin = min(1.0, (rate - spent) / tied) if tied > 0 else 1.0
    hits = float(np.sum(q[below]) + coin * np.sum(q[at]))
    seen = float(np.sum(p[below]) + np.sum(q[below]))
    alarms = np.zeros(len(rounded), dtype=bool)
    alarms[order[:count]] = True
    left = rate - float(np.sum(p[order[:count]]))
    part = left / float(p[last]) if count < len(order) and p[last] > 0 else 0.0
    return _Test(float(np.min(ratio[at])), seen, tied, coin, max(0.0, 1 - hits), alarms, part)


def _errors(points: Any, p: Any, q: Any, test: _Test) -> list[Mark]:
    """The two error probabilities as areas, and the border between them if the test has a single threshold."""
    alarm = test.alarms
    border = np.flatnonzero(alarm[1:] != alarm[:-1])
    if len(border) != 1:
        return []
    edges = np.concatenate((points[:1], (points[1:] + points[:-1]) / 2, points[-1:]))
    edge = int(border[0]) + 1
    at = float(edges[edge] + test.part * (edges[edge - 1 if alarm[-1] else edge + 1] - edges[edge]))
    marks: list[Mark] = [Level(at, "x", f"s = {at:.3f}")]
    for colour, (where, law) in enumerate(((alarm, p), (~alarm, q))):
        low, high = np.flatnonzero(where)[[0, -1]]
        # A hundred segments look as smooth as a thousand, and make a smaller file.
        chosen = np.unique(np.linspace(low, high, 120).round().astype(int))
        x, heights = _pairs(points[chosen], law[chosen])
        marks.append(ShadedBand(x, (0.0,) * len(x), heights, colour))
    return marks


def _names(law: OutputLaw) -> tuple[str, ...]:
    if isinstance(law, Masses) and not are_numbers(law.answers):
        return tuple("none" if a is None or a == () else str(a) for a in law.answers)
    return ()


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:21] + "…"


def _both_shown(x: Any, x2: Any) -> tuple[str, str]:
    """Two values as short text, or in words if the short forms are equal."""
    one, two = _shown(x), _shown(x2)
    return (one, two) if one != two else ("first", "second")


def _pairs(x: Any, y: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(float(v) for v in x), tuple(float(v) for v in y)


__all__ = ["chances", "density", "laws"]
