"""Pictures as SVG inside a page. `deniable.plots` describes what to draw; the style sheet of the page gives colours.

The SVG has no styles or scripts, so it fits the strict content policy and both colour schemes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from deniable.plots.figure_spec import Axis, Figure, Level, Line, Mark, Marker, Panel, ShadedBand

_WIDTH, _HEIGHT = 440, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40
_DASHES: Final = {"solid": "", "dashed": "6 4", "dotted": "1 4"}


def bars(points: Sequence[tuple[str, float, float, float]]) -> list[dict[str, Any]]:
    """The bars of a chart, from points (name, value, low, high), on one scale that includes 0 and all intervals."""
    ends = [0.0, *(end for _, value, low, high in points for end in (value, low, high))]
    least, most = min(ends), max(ends)
    width = (most - least) or 1.0

    def at(value: float) -> float:
        return round(1000 * (value - least) / width, 2)

    drawn = []
    for name, value, low, high in points:
        start, end = sorted((at(0.0), at(value)))
        shape = Markup(
            '<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
            '<rect class="value" x="{}" y="3" width="{}" height="14"/>'
            '<rect class="noise" x="{}" y="0" width="{}" height="20"/>'
            '<path class="whisker" d="M{} 10H{}M{} 5V15M{} 5V15"/>'
            '<path class="zero" d="M{} 0V20"/></svg>'
        ).format(
            start, max(end - start, 1), at(low), max(at(high) - at(low), 1), at(low), at(high), at(low), at(high), at(0)
        )
        drawn.append({"name": name, "svg": shape, "value": value, "low": low, "high": high})
    return drawn


def meter(share: float, words: str) -> Markup:
    """A meter that is filled to `share`, from 0 to 1; `words` is its text for screen readers."""
    width = round(1000 * min(1.0, max(0.0, share)), 1)
    return Markup(
        '<svg class="meter" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="whole" width="1000" height="10"/><rect class="gone" width="{}" height="10"/></svg>'
    ).format(words, width)


def drawn(figure: Figure) -> Markup:
    """The first panel of a figure, with a legend and its note below."""
    panel = figure.panels[0]
    inside = Markup("").join([_grid(panel), *(_mark(panel, each) for each in panel.marks)])
    return Markup(
        '<figure class="plot"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}'
        "<figcaption>{}</figcaption></figure>"
    ).format(_WIDTH, _HEIGHT, figure.title, inside, _legend(panel), figure.note)


def _place(axis: Axis, value: float, start: float, end: float) -> float:
    low, high = axis.low, axis.high
    if axis.scale == "log":
        value, low, high = math.log10(max(value, axis.low)), math.log10(low), math.log10(high)
    share = min(1.0, max(0.0, (value - low) / ((high - low) or 1)))
    return round(start + share * (end - start), 2)


def _x(panel: Panel, value: float) -> float:
    return _place(panel.x, value, _LEFT, _WIDTH - _RIGHT)


def _y(panel: Panel, value: float) -> float:
    return _place(panel.y, value, _HEIGHT - _BOTTOM, _TOP)


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    if axis.names:
        return [(float(at), name) for at, name in enumerate(axis.names)]
    if axis.scale == "log":
        first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
        every = max(1, (last - first) // 5)
        raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
        return [(10.0**n, "1" if n == 0 else f"10{str(n).translate(raised)}") for n in range(last, first - 1, -every)]
    rough = (axis.high - axis.low) / 5
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next((each * power for each in (1, 2, 5, 10) if each * power >= rough), power)
    first = math.ceil(axis.low / step - 1e-9)
    return [(n * step, f"{n * step:g}") for n in range(first, math.floor(axis.high / step + 1e-9) + 1)]


def _grid(panel: Panel) -> Markup:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    parts = []
    for value, name in _ticks(panel.x):
        x = _x(panel, value)
        parts.append(Markup('<path class="grid" d="M{} {}V{}"/>').format(x, top, bottom))
        parts.append(Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(x, bottom + 16, name))
    for value, name in _ticks(panel.y):
        y = _y(panel, value)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(left, y, right))
        parts.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(left - 6, y + 4, name))
    parts.append(Markup('<path class="axis" d="M{} {}V{}H{}"/>').format(left, top, bottom, right))
    middle = (left + right) / 2, (top + bottom) / 2
    parts.append(
        Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            middle[0], _HEIGHT - 6, panel.x.label
        )
    )
    parts.append(
        Markup('<text class="label" transform="translate(13 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            middle[1], panel.y.label
        )
    )
    return Markup("").join(parts)


def _mark(panel: Panel, mark: Mark) -> Markup:
    match mark:
        case ShadedBand():
            there = [(_x(panel, x), _y(panel, y)) for x, y in zip(mark.x, mark.high, strict=True)]
            back = [(_x(panel, x), _y(panel, y)) for x, y in zip(mark.x, mark.low, strict=True)]
            return Markup('<path class="band {}" d="{}Z"/>').format(_colour(mark.colour), _path(there + back[::-1]))
        case Line():
            points = [(_x(panel, x), _y(panel, y)) for x, y in zip(mark.x, mark.y, strict=True)]
            return Markup('<path class="line {}" d="{}" stroke-dasharray="{}"/>').format(
                _colour(mark.colour), _path(points), _DASHES[mark.stroke]
            )
        case Level(axis="y"):
            y = _y(panel, mark.at)
            return Markup('<path class="level" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>').format(
                _LEFT, y, _WIDTH - _RIGHT, _WIDTH - _RIGHT - 4, y - 5, mark.text
            )
        case Marker():
            return Markup('<circle class="dot {}" cx="{}" cy="{}" r="4"/>').format(
                _colour(mark.colour), _x(panel, mark.x), _y(panel, mark.y)
            )
    return Markup("")


def _colour(index: int) -> str:
    return "reference" if index < 0 else f"colour-{index % 6}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _legend(panel: Panel) -> Markup:
    items = Markup("").join(
        Markup('<li class="{}">{}</li>').format(_colour(line.colour), escape(label))
        for label, line in panel.lines.items()
    )
    return Markup('<ul class="legend">{}</ul>').format(items) if items else Markup("")
