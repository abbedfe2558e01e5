"""What to draw, apart from how: a figure as plain data.

A figure has panels, a panel has two axes and marks. Marks hold the numbers themselves, so that a test (or another
renderer) can read what a picture says without looking at it. No drawing library is known here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, final

Scale = Literal["linear", "log"]
Stroke = Literal["solid", "dashed", "dotted"]
Labels = Literal["inside", "above", "ends", "none"]
"""Where lines are named: in a legend in the upper right corner, or above the panel, or each at its right end."""

REFERENCE = -1
"""The colour of what is only there for comparison (a diagonal, a level): grey. Others count from 0."""


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label, its scale and its ends."""

    label: str
    low: float
    high: float
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    """What stands at 0, 1, 2 … instead of numbers."""
    whole: bool = False
    """Whether the values are whole numbers: no tick stands between two of them."""


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by straight strokes. `label` names it to the reader, `note` says more where there is room."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: int = 0
    stroke: Stroke = "solid"
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class ShadedBand:
    """The area between two lines over the same x: what is certified from both sides."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    colour: int = 0


@final
@dataclass(frozen=True, slots=True)
class Bars:
    """Probabilities over intervals: bar i stands on [edges[i], edges[i + 1]]."""

    edges: tuple[float, ...]
    heights: tuple[float, ...]
    label: str = ""
    colour: int = 0


@final
@dataclass(frozen=True, slots=True)
class Stems:
    """Probabilities of single values."""

    x: tuple[float, ...]
    heights: tuple[float, ...]
    label: str = ""
    colour: int = 0


@final
@dataclass(frozen=True, slots=True)
class Level:
    """A thin straight line across the panel at one value of one axis, with a word beside it."""

    at: float
    axis: Literal["x", "y"]
    text: str = ""


@final
@dataclass(frozen=True, slots=True)
class Marker:
    """A dot; a word to it, if any, stands in the free space above and left of it."""

    x: float
    y: float
    text: str = ""
    colour: int = 0


Mark = Line | ShadedBand | Bars | Stems | Level | Marker


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """Two axes and what stands between them."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    title: str = ""
    labels: Labels = "above"
    square: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What a legend of the panel says."""
        return tuple(mark.label for mark in self.marks if isinstance(mark, Line | Bars | Stems) and mark.label)

    @property
    def lines(self) -> dict[str, Line]:
        """The named lines, by their labels."""
        return {mark.label: mark for mark in self.marks if isinstance(mark, Line) and mark.label}


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: a title, panels from left to right, and a note below. `figure.save("out.png")` saves it."""

    title: str
    panels: tuple[Panel, ...]
    note: str = ""
    height: float = field(default=4.0, kw_only=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw it into a file: PNG, SVG or PDF, by the ending of the name. Needs matplotlib, as `plots.render` does."""
        from deniable.plots.render import render

        render(self, path)

    def __repr__(self) -> str:
        return f"<Figure {self.title!r} of {len(self.panels)} panel{'s' if len(self.panels) > 1 else ''}; .save(path)>"

    def _repr_svg_(self) -> str | None:
        """Drawn by itself in a notebook, where matplotlib is there."""
        from deniable.errors import MissingExtra
        from deniable.plots.render import svg

        try:
            return svg(self)
        except MissingExtra:
            return None
