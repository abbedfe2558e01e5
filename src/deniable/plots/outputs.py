"""Pictures of a mechanism's answers on two neighbouring values: the two laws, their log-ratio, the best test.

The laws are functions of the two values; the values are therefore public examples, never private data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deniable.curves import check
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.local import PiecewiseMean
from deniable.local.base import Protocol
from deniable.mechanisms import limits
from deniable.mechanisms.base import Asked, Mechanism
from deniable.mechanisms.histogram import Histogram
from deniable.mechanisms.laws import Masses, OutputLaw, Pieces, masses
from deniable.mechanisms.steps import Additive
from deniable.plots.spec import Axis, Band, Figure, Level, Line, Mark, Panel, Stems

MOST_POINTS = 60
"""More single values than this are drawn as a line."""


def laws(mechanism: Mechanism | Protocol, x: Any, x2: Any, *, false_alarms: float | None = None) -> Figure:
    """The laws of the answer y on two values, and the log-ratio log p(y | x)/p(y | x2), which stays within ±ε if the
    values are neighbours. The note says whether it does.

    With `false_alarms`, the best test of "x" against "x2" at that rate is drawn too (Neyman & Pearson): it says x2
    where the log-ratio is below a threshold.

    Of an answer of several numbers, the one is drawn in which the two values differ; values that differ in several are
    refused. The others have the same law on both and tell nothing.
    """
    rate = None if false_alarms is None else check.inner_probability("false_alarms", false_alarms)
    one, two, drawn = _pair(mechanism, x, x2)
    found = two_laws(one, two, (_said(x), _said(x2)), mechanism.curve.epsilon(delta=0.0), rate)
    return replace(found, note=f"{found.note} {drawn}") if drawn else found


def _pair(mechanism: Any, x: Any, x2: Any) -> tuple[OutputLaw, OutputLaw, str]:
    """The laws on two values; of several numbers, those of the number that differs, and which that is."""
    while isinstance(mechanism, Asked):
        mechanism, x, x2 = mechanism.mechanism, mechanism.statistic(x), mechanism.statistic(x2)
    if isinstance(mechanism, Histogram):
        noisy, both, names = mechanism.noise, (mechanism.count(x), mechanism.count(x2)), mechanism.labels
    elif isinstance(mechanism, Additive) and (mechanism.dimension or 1) > 1:
        noisy, both = mechanism, (np.ravel(x), np.ravel(x2))
        names = tuple(range(1, int(mechanism.dimension or 1) + 1))
    else:
        return _law(mechanism, x), _law(mechanism, x2), ""
    if any(len(each) != len(names) for each in both):
        raise InvalidParameter("x", NOTHING, f"must be {len(names)} numbers, and so must x2, as declared")
    apart = np.flatnonzero(both[0] != both[1])
    if len(apart) > 1:
        raise InvalidOperation(
            f"the two values differ in {len(apart)} of {len(names)} numbers, and one can be drawn: give two that "
            "differ in one, or look at what an attacker can do with all: plots.tradeoff(mechanism.curve)"
        )
    at = int(apart[0]) if len(apart) else 0
    drawn = f"Drawn is number {names[at]}" if noisy is mechanism else f"Drawn is the count of {names[at]}"
    rest = "" if len(names) == 1 else "; the others have the same law on both values, and tell nothing"
    one, two = (noisy.around(each[at].item()) for each in both)
    return one, two, f"{drawn}{rest}."


def two_laws(
    one: OutputLaw, two: OutputLaw, names: tuple[str, str], epsilon: float, false_alarms: float | None = None
) -> Figure:
    """Two laws of an answer side by side, and their log-ratio with the band ±ε, if ε is finite."""
    one, two = _alike(one, two)
    points = np.unique(np.concatenate((one.points(), two.points())))
    p, q = one.pdf(points), two.pdf(points)
    if not _names(one):  # answers that nobody will see take the room of the others
        seen = np.flatnonzero(np.maximum(p, q) > 1e-6 * np.max(p))
        points, p, q = (values[seen[0] : seen[-1] + 1] for values in (points, p, q))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(q)
    known = np.isfinite(ratio) & (np.maximum(p, q) > 1e-9 * np.max(p))
    across = _across(points, one)
    marks: list[Mark] = [*_drawn(points, p, f"on {names[0]}", 0, one), *_drawn(points, q, f"on {names[1]}", 1, two)]
    few = one.is_discrete and len(points) <= MOST_POINTS
    drawn = _pairs(points[known], ratio[known])
    below: list[Mark] = [Stems(*drawn, "log-ratio", 2) if few else Line("log-ratio", *drawn, 2)]
    note = "Left: how likely each answer is on the two values. Right: what one answer does to the odds."
    if math.isfinite(epsilon):
        below.append(Band((across.low, across.high), (-epsilon, -epsilon), (epsilon, epsilon), 2))
        below += [Level(epsilon, "y", f"ε = {epsilon:.4g}"), Level(-epsilon, "y")]
        note += _kept(ratio[np.maximum(p, q) > 0], epsilon)
    else:
        note += " No ε at δ = 0 is promised: between some neighbours the log-ratio is not bounded."
    if false_alarms is not None:
        threshold, alpha, beta = _best_test(_cells(one, points), _cells(two, points), false_alarms)
        if not math.isclose(abs(threshold), epsilon, rel_tol=0.05):  # two words would stand on each other
            below.append(Level(threshold, "y", f"says {names[1]} below"))
        if not one.is_discrete:
            marks += _errors(points, p, q, ratio < threshold)
        note += f" The best test with at most {false_alarms:.3g} false alarms misses {beta:.3g}; it alarms {alpha:.3g}."
    height = 1.2 * float(max(np.max(p), np.max(q)))
    largest = float(np.max(np.abs(ratio[known]), initial=0.1))
    reach = 1.25 * max(largest, epsilon if math.isfinite(epsilon) else 0.0)
    word = "probability" if one.is_discrete else "density"
    panels = (
        Panel(across, Axis(word, 0, height), tuple(marks), "Two worlds", "inside"),
        Panel(across, Axis(_ratio_of(names), -reach, reach), tuple(below), "What one answer tells", "none"),
    )
    return Figure(f"Answers on {names[0]} and on {names[1]}", panels, note, height=4.4)


def _alike(one: OutputLaw, two: OutputLaw) -> tuple[OutputLaw, OutputLaw]:
    """Answers that are no numbers stand at 0, 1, 2, ...: an answer that one law has alone gets a place in both."""
    if not isinstance(one, Masses) or not isinstance(two, Masses) or not (_names(one) or _names(two)):
        return one, two
    answers = tuple(dict.fromkeys((*one.answers, *two.answers)))
    told = [dict(zip(law.answers, law.masses.tolist(), strict=True)) for law in (one, two)]
    first, second = (Masses(answers, np.array([each.get(answer, 0.0) for answer in answers])) for each in told)
    return first, second


def _kept(ratio: Any, epsilon: float) -> str:
    """What the log-ratio of the drawn pair does with the band: it is looked at, whatever the caller meant to give."""
    largest = float(np.max(np.abs(ratio), initial=0.0))
    if largest <= epsilon * (1 + 1e-6) + 1e-9:
        return f" Here it stays within ±ε, as ε-DP promises for all neighbours (ε = {epsilon:.4g})."
    reached = f"reaches ±{largest:.4g}" if math.isfinite(largest) else "is infinite where one law is 0"
    return (
        f" Here it {reached}, outside the band ±{epsilon:.4g}: these two values are not neighbours. "
        "ε-DP bounds the log-ratio between neighbours only."
    )


def _ratio_of(names: tuple[str, str]) -> str:
    one, two = names if max(map(len, names)) <= 10 else ("first", "second")
    return f"log p(y | {one}) / p(y | {two})"


def density(*mechanisms: Mechanism | Protocol | Mapping[str, Mechanism | Protocol], value: Any = 0) -> Figure:
    """The laws of several mechanisms on one value: Laplace noise of several scales, say. A dict gives them names."""
    if not mechanisms:
        raise InvalidOperation("the laws of mechanisms can be drawn; give one or more")
    found = [(name or _named(m), _law(m, value)) for name, m in _each(mechanisms)]
    marks: list[Mark] = []
    drawn = [_seen(law) for _, law in found]
    for colour, ((name, law), (points, heights)) in enumerate(zip(found, drawn, strict=True)):
        marks += _drawn(points, heights, name, colour, law)
    top = max(float(np.max(heights)) for _, heights in drawn)
    places = np.unique(np.concatenate([points for points, _ in drawn]))
    discrete = all(law.is_discrete for _, law in found)
    across = _across(places, found[0][1]) if discrete else Axis("answer", float(places[0]), float(places[-1]))
    word = "probability" if discrete else "density"
    panel = Panel(across, Axis(word, 0, 1.15 * top), tuple(marks), labels="above")
    return Figure(f"Answers on {_said(value)}", (panel,), "How likely each answer is.", height=4.0)


def chances(*mechanisms: Mechanism | Mapping[str, Mechanism], rows: int) -> Figure:
    """How often each mechanism says 1 about so many zeros and ones, along how many of them are ones: p(s). A dict gives
    mechanisms names.

    For mechanisms of two answers that tell their `probabilities`: `BinaryMedian`, `BinaryInverseSensitivity.median`.
    The dashed line is what no symmetric ε-DP mechanism exceeds, for the largest of their ε.
    """
    n = check.integer("rows", rows, 1)
    named = _each(mechanisms)
    if not named or not all(isinstance(m, Mechanism) and hasattr(m, "probabilities") for _, m in named):
        raise InvalidOperation("mechanisms that tell the probabilities of 0 and 1 can be drawn; give one or more")
    ones = range(n + 1)
    marks: list[Mark] = []
    for colour, (name, mechanism) in enumerate(named):
        said: Any = mechanism
        found = [float(said.probabilities([1] * s + [0] * (n - s))[1]) for s in ones]
        marks.append(Line(name or repr(mechanism), *_pairs(ones, found), colour))
    level = max(float(m.curve.epsilon(delta=0.0)) for _, m in named)
    above = [s for s in ones if 2 * s > n]
    most = [limits.binary_median_ceiling(records=n, ones=s, epsilon=level) for s in above]
    marks.append(Line(f"at most, at ε = {level:.4g}", *_pairs(above, most), len(named), "dashed"))
    panel = Panel(Axis("ones", 0, n), Axis("probability of 1", 0, 1), tuple(marks), labels="above")
    note = "Between neighbours, one step along the line, each probability changes by a factor of at most e^ε."
    return Figure(f"The median of {n} zeros and ones", (panel,), note, height=4.4)


def _law(mechanism: Any, value: Any) -> OutputLaw:
    """The law of an answer, or of one person's report; those that are not told say why and what to look at."""
    if isinstance(mechanism, Mechanism):
        return mechanism.law(value)
    if isinstance(mechanism, PiecewiseMean):
        return Pieces(*mechanism.pieces(value))
    if isinstance(mechanism, Protocol):
        found = mechanism.probabilities(value)
        words = {False: "no", True: "yes"} if set(map(type, found)) == {bool} else {}
        return masses([words.get(report, report) for report in found], list(found.values()))
    raise InvalidOperation(
        f"the laws of a mechanism or of a local protocol can be drawn, not of {type(mechanism).__name__}"
    )


def _each(given: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """(name, mechanism), in order; without a name where none was given."""
    return [pair for one in given for pair in (one.items() if isinstance(one, Mapping) else [("", one)])]


def _named(mechanism: Mechanism | Protocol) -> str:
    if isinstance(mechanism, Additive):
        return f"{type(mechanism).__name__}, {mechanism.LEVEL} {mechanism.level:.4g}"
    return repr(mechanism)


def _seen(law: OutputLaw) -> tuple[Any, Any]:
    """A law's values and how likely each is, without single values that nobody will see: they take others' room."""
    points = law.points()
    heights = law.pdf(points)
    if not law.is_discrete or _names(law):
        return points, heights
    seen = np.flatnonzero(heights > 1e-6 * np.max(heights))
    return points[seen[0] : seen[-1] + 1], heights[seen[0] : seen[-1] + 1]


def _across(points: Any, law: OutputLaw) -> Axis:
    """The axis of answers. Single values have half a step of room at both ends, for stems that stand beside them."""
    low, high = float(points[0]), float(points[-1])
    air = max(0.03 * (high - low), 0.5 * _step(points)) if law.is_discrete else 0.03 * (high - low) or 0.5
    whole = law.is_discrete and bool(np.all(points == np.round(points)))
    return Axis("answer", low - air, high + air, names=_names(law), whole=whole)


def _step(points: Any) -> float:
    return float(np.min(np.diff(points), initial=1.0))


def _drawn(points: Any, heights: Any, label: str, colour: int, law: OutputLaw) -> list[Mark]:
    if law.is_discrete and len(points) <= MOST_POINTS:
        # Two laws on the same values stand beside each other.
        return [Stems(*_pairs(points + (colour - 0.5) * 0.12 * _step(points), heights), label, colour)]
    return [Line(label, *_pairs(points, heights), colour)]


def _cells(law: OutputLaw, points: Any) -> Any:
    """The probability of the answers nearest to each point; what lies beyond the last ones is theirs."""
    if isinstance(law, Masses):
        return law.pdf(points)
    below = law.cdf((points[1:] + points[:-1]) / 2)
    return np.diff(np.concatenate(([0.0], below, [1.0])))


def _best_test(p: Any, q: Any, rate: float) -> tuple[float, float, float]:
    """The threshold of log p/q, the false alarms and the misses of the likelihood-ratio test at this rate.

    Where the log-ratio is at the threshold, the test flips a coin (Neyman & Pearson), so that it alarms at this rate.
    """
    with np.errstate(divide="ignore"):
        ratio = np.where(p > 0, np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300)), -np.inf)
    order = np.argsort(ratio)
    count = int(np.searchsorted(np.cumsum(p[order]), rate, side="right"))
    alpha, hits = float(np.sum(p[order[:count]])), float(np.sum(q[order[:count]]))
    last = order[min(count, len(order) - 1)]
    if count < len(order) and p[last] > 0:
        hits += (rate - alpha) / float(p[last]) * float(q[last])
        alpha = rate
    threshold = float(ratio[last])
    return (threshold if math.isfinite(threshold) else 0.0), alpha, max(0.0, 1 - hits)


def _errors(points: Any, p: Any, q: Any, alarm: Any) -> list[Mark]:
    """The two kinds of error as areas, and the border between them, where the test has only one."""
    border = np.flatnonzero(alarm[1:] != alarm[:-1])
    if len(border) != 1:
        return []
    at = float(points[border[0]] + points[border[0] + 1]) / 2
    marks: list[Mark] = [Level(at, "x", f"s = {at:.3f}")]
    for colour, (where, law) in enumerate(((alarm, p), (~alarm, q))):
        low, high = np.flatnonzero(where)[[0, -1]]
        # A hundred strokes are as smooth to the eye as a thousand, and a smaller file.
        chosen = np.unique(np.linspace(low, high, 120).round().astype(int))
        x, heights = _pairs(points[chosen], law[chosen])
        marks.append(Band(x, (0.0,) * len(x), heights, colour))
    return marks


def _names(law: OutputLaw) -> tuple[str, ...]:
    if isinstance(law, Masses) and not all(isinstance(a, int | float) for a in law.answers):
        return tuple("none" if a is None or a == () else str(a) for a in law.answers)
    return ()


def _said(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:21] + "…"


def _pairs(x: Any, y: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(float(v) for v in x), tuple(float(v) for v in y)


__all__ = ["chances", "density", "laws"]
