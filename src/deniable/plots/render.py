"""Drawing of figures with matplotlib. The only module that imports it.

pyplot is not used, so no window system is needed and the result is the same on a server and in a notebook. Colours are
the palette of Okabe and Ito, which readers with any kind of colour vision can distinguish.
"""

from __future__ import annotations

import io
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import InvalidParameter, MissingExtra, type_of
from deniable.plots.figure_spec import (
    REFERENCE,
    Axis,
    Bars,
    Figure,
    Level,
    Line,
    Mark,
    Marker,
    Panel,
    ShadedBand,
    Stems,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
GREY = "#6b6b6b"
FORMATS = (".png", ".svg", ".pdf")
PANEL_WIDTH, BESIDE_WIDTH = 5.6, 4.2
# Margins around the panels and widths of letters, in inches.
TITLE_HEIGHT, LEGEND_ROW, NOTE_ROW = 0.36, 0.2, 0.17
LEGEND_LETTER, NOTE_LETTER = 0.076, 0.069
STYLE: Any = {  # matplotlib types the names of its settings
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.labelsize": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "deniable",
}
STROKES: dict[str, Any] = {"solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.6))}

MOST_ACROSS = 50
"""The most letters of horizontal tick labels below one of two panels; longer ones are drawn vertically."""


def render(figure: Figure, path: str | os.PathLike[str] | None = None) -> Drawing:
    """Draw a figure with matplotlib; with a path, also save it as PNG, SVG or PDF by the ending of the name."""
    if not isinstance(figure, Figure):
        raise InvalidParameter("figure", type_of(figure), "must be a figure of deniable.plots")
    if path is not None and Path(path).suffix.lower() not in FORMATS:
        raise InvalidParameter("path", str(path), f"must end in {', '.join(FORMATS)}")
    drawing = _drawn(figure)
    if path is not None:
        _save(drawing, Path(path), Path(path).suffix.lower())
    return drawing


def svg(figure: Figure) -> str:
    """The figure as SVG text."""
    buffer = io.StringIO()
    _save(_drawn(figure), buffer, ".svg")
    return buffer.getvalue()


def _save(drawing: Drawing, target: Path | io.StringIO, ending: str) -> None:
    import matplotlib

    # No date in the metadata, so that the same numbers give the same file.
    metadata: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
    with matplotlib.rc_context(STYLE):
        drawing.savefig(target, format=ending[1:], dpi=200, metadata=metadata)


def _drawn(figure: Figure) -> Drawing:
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtra("matplotlib", "plots") from None

    with matplotlib.rc_context(STYLE):
        widths = [_width(panel, figure) for panel in figure.panels]
        width = sum(widths)
        note = textwrap.wrap(figure.note, int(width / NOTE_LETTER))
        above = next((panel for panel in figure.panels if panel.labels == "above" and panel.names), None)
        columns, rows = _legend_shape(above, width)
        top = TITLE_HEIGHT + LEGEND_ROW * rows + (0.1 if rows else 0.0)
        bottom = NOTE_ROW * len(note) + 0.08
        height = figure.height + LEGEND_ROW * rows
        # Title, legend and note have margins of their own, in inches; the panels share the rest.
        strips = ConstrainedLayoutEngine(rect=(0, bottom / height, 1, 1 - (top + bottom) / height))
        drawing = Canvas(figsize=(width, height), layout=strips)
        FigureCanvasAgg(drawing)
        drawing.text(0.1 / width, 1 - 0.08 / height, _plain(figure.title), va="top", fontsize=12, fontweight="bold")
        drawing.text(0.1 / width, 0.06 / height, _plain("\n".join(note)), va="bottom", fontsize=8.5, color=GREY)
        places = drawing.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        for axes, panel in zip(places, figure.panels, strict=True):
            _panel(axes, panel)
            if panel is above:
                corner = (0.02 / width, 1 - TITLE_HEIGHT / height)
                drawing.legend(
                    *axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=corner, ncols=columns
                )
        drawing.draw_without_rendering()
    return drawing


def _width(panel: Panel, figure: Figure) -> float:
    """The width of a panel in inches. Pages scale figures to one width, so two panels are narrower to stay legible."""
    if panel.square:
        return figure.height
    return (PANEL_WIDTH if len(figure.panels) == 1 else BESIDE_WIDTH) + (1.6 if panel.labels == "ends" else 0.0)


def _legend_shape(panel: Panel | None, width: float) -> tuple[int, int]:
    """(columns, rows) of the legend above the panels."""
    if panel is None:
        return 1, 0
    column = LEGEND_LETTER * max(len(name) for name in panel.names) + 0.6
    columns = min(max(int(width / column), 1), len(panel.names))
    return columns, -(-len(panel.names) // columns)


def _panel(axes: Axes, panel: Panel) -> None:
    _axis(axes, "x", panel.x)
    _axis(axes, "y", panel.y)
    if panel.square:
        axes.set_aspect("equal", adjustable="box")
    if panel.title:
        axes.set_title(_plain(panel.title), loc="left")
    for mark in panel.marks:
        _mark(axes, mark)
    for row, level in enumerate(mark for mark in panel.marks if isinstance(mark, Level)):
        _level(axes, level, row)
    if panel.labels == "inside" and panel.names:
        axes.legend(loc="upper right")
    elif panel.labels == "ends":
        _name_ends(axes, panel)


def _axis(axes: Axes, which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(_plain(axis.label))
    getattr(axes, f"set_{which}scale")(axis.scale)
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)
    if axis.names:
        getattr(axes, f"set_{which}ticks")(range(len(axis.names)), [_plain(name) for name in axis.names])
        if which == "x" and sum(len(name) + 1 for name in axis.names) > MOST_ACROSS:
            axes.tick_params(axis="x", labelrotation=90)
    elif axis.whole:
        getattr(axes, f"{which}axis").get_major_locator().set_params(integer=True)


def _plain(text: str) -> str:
    """Text with dollar signs escaped, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def _colour(index: int) -> str:
    return GREY if index == REFERENCE else PALETTE[index % len(PALETTE)]


def _mark(axes: Axes, mark: Mark) -> None:
    match mark:
        case Line():
            width = 1.2 if mark.colour == REFERENCE else None
            axes.plot(
                mark.x,
                mark.y,
                label=_plain(mark.label) or None,
                color=_colour(mark.colour),
                ls=STROKES[mark.stroke],
                lw=width,
            )
        case ShadedBand():
            axes.fill_between(mark.x, mark.low, mark.high, color=_colour(mark.colour), alpha=0.25, lw=0)
        case Bars():
            axes.stairs(
                mark.heights,
                mark.edges,
                fill=True,
                color=_colour(mark.colour),
                alpha=0.85,
                label=_plain(mark.label) or None,
            )
        case Stems():
            axes.vlines(mark.x, 0, mark.heights, color=_colour(mark.colour), lw=2.4)
            dots = _plain(mark.label) or None
            axes.plot(mark.x, mark.heights, "o", color=_colour(mark.colour), ms=4, label=dots)
        case Marker():
            axes.plot([mark.x], [mark.y], "o", color=_colour(mark.colour), ms=5, zorder=4)
            _word(axes, mark)


def _level(axes: Axes, mark: Level, row: int) -> None:
    """A thin line across the panel, with its label at the edge; several labels are put in rows."""
    if mark.axis == "y":
        axes.axhline(mark.at, color=GREY, lw=0.9, ls=STROKES["dotted"])
        place, shift, align = (1.0, mark.at), (-2, 3), ("right", "bottom")
        coordinates = axes.get_yaxis_transform()
    else:
        axes.axvline(mark.at, color=GREY, lw=0.9, ls=STROKES["dotted"])
        middle = sum(axes.get_xlim()) / 2
        left = mark.at > middle
        place, shift = (mark.at, 1.0), (-4 if left else 4, -2 - 12 * row)
        align = ("right" if left else "left", "top")
        coordinates = axes.get_xaxis_transform()
    if mark.text:
        text = axes.annotate(mark.text, place, shift, xycoords=coordinates, textcoords="offset points")
        text.set(color=GREY, fontsize=8.5, ha=align[0], va=align[1])


def _word(axes: Axes, mark: Marker) -> None:
    """The label of a marker, above and left of it, with a thin leader line.

    Close to the panel's edge it is placed higher, to avoid lines that rise from the corner.
    """
    if not mark.text:
        return
    across, up = axes.transAxes.inverted().transform(axes.transData.transform((mark.x, mark.y)))
    axes.annotate(
        mark.text,
        (mark.x, mark.y),
        (max(across - 0.16, 0.03), min(up + (0.34 if across > 0.16 else 0.8), 0.93)),
        textcoords="axes fraction",
        color=_colour(mark.colour),
        fontsize=9,
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
        arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.7, "shrinkB": 4},
    )


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Label each line at its right end, in its colour; labels that would overlap are moved apart.

    A line that leaves the panel at the top is labelled there; one that ends inside is labelled by its own marker.
    """
    apart = (
        13 / (axes.bbox.height * 72 / axes.figure.dpi) * (panel.y.high - panel.y.low)
    )  # a line of text, in data units
    ends: list[tuple[float, Line]] = []
    for line in panel.lines.values():
        if line.x[-1] < 0.98 * panel.x.high:
            continue
        if line.y[-1] > panel.y.high:
            _name_at_top(axes, panel, line)
        else:
            ends.append((line.y[-1], line))
    lowest = panel.y.low - apart
    for y, line in sorted(ends, key=lambda end: end[0]):
        lowest = max(y, lowest + apart)
        axes.annotate(
            _full_name(line),
            (panel.x.high, y),
            (panel.x.high * 1.015, lowest),
            color=_colour(line.colour),
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


def _full_name(line: Line) -> str:
    return _plain(f"{line.label}: {line.note}" if line.note else line.label)


def _name_at_top(axes: Axes, panel: Panel, line: Line) -> None:
    inside = [i for i, y in enumerate(line.y) if y <= panel.y.high]
    x = line.x[inside[-1]] if inside else panel.x.low
    axes.annotate(
        _full_name(line),
        (x, panel.y.high),
        (6, -4),
        textcoords="offset points",
        color=_colour(line.colour),
        fontsize=9,
        va="top",
    )
