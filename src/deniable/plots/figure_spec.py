"""Figures as plain data, independent of any drawing library.

A figure has panels; a panel has two axes and marks. Marks contain the numbers themselves, so that a test or another
renderer can read a figure without drawing it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, final

Scale = Literal["linear", "log"]
Stroke = Literal["solid", "dashed", "dotted"]
Labels = Literal["inside", "above", "ends", "none"]
"""The place of line labels: a legend in the upper right corner or above the panel, or at the right end of each line."""

REFERENCE = -1
"""The colour index of reference lines (a diagonal, a level), which are grey. Other indices start at 0."""


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label, its scale and its ends."""

    label: str
    low: float
    high: float
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    """Labels at 0, 1, 2 … instead of numbers."""
    whole: bool = False
    """Whether the values are integers, so that ticks are integers too."""


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by straight lines. `label` is its name in the legend; `note` is added where there is space."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: int = 0
    stroke: Stroke = "solid"
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class ShadedBand:
    """The area between two lines over the same x: between certified bounds, within ±ε, or an error probability."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    colour: int = 0


@final
@dataclass(frozen=True, slots=True)
class Bars:
    """Probabilities of intervals: bar i covers [edges[i], edges[i + 1]]."""

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
    """A thin straight line across the panel at one value of one axis, with a label."""

    at: float
    axis: Literal["x", "y"]
    text: str = ""


@final
@dataclass(frozen=True, slots=True)
class Marker:
    """A dot, with an optional label above and left of it."""

    x: float
    y: float
    text: str = ""
    colour: int = 0


Mark = Line | ShadedBand | Bars | Stems | Level | Marker


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """Two axes and the marks between them."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    title: str = ""
    labels: Labels = "above"
    square: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in the legend of the panel."""
        return tuple(mark.label for mark in self.marks if isinstance(mark, Line | Bars | Stems) and mark.label)

    @property
    def lines(self) -> dict[str, Line]:
        """The lines with a label, by label."""
        return {mark.label: mark for mark in self.marks if isinstance(mark, Line) and mark.label}


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A title, panels from left to right, and a note below. `figure.save("out.png")` saves it."""

    title: str
    panels: tuple[Panel, ...]
    note: str = ""
    height: float = field(default=4.0, kw_only=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw it to a file: PNG, SVG or PDF by the ending of the name. Raises `MissingExtra` without matplotlib."""
        from deniable.plots.render import render

        render(self, path)

    def __repr__(self) -> str:
        return f"<Figure {self.title!r} of {len(self.panels)} panel{'s' if len(self.panels) > 1 else ''}; .save(path)>"

    def _repr_svg_(self) -> str | None:
        """The figure as SVG for notebooks; None without matplotlib."""
        from deniable.errors import MissingExtra
        from deniable.plots.render import svg

        try:
            return svg(self)
        except MissingExtra:
            return None
