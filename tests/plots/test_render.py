"""Drawing: pictures come out, in three formats, without a window system, and nothing overlaps or is cut off."""

from __future__ import annotations

import ast
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import deniable
from deniable import curves, mechanisms, plots
from deniable.errors import InvalidParameter, MissingExtra
from deniable.plots.render import PALETTE, svg
from tests.wording import worded

pytest.importorskip("matplotlib")

FIGURES = {
    "tradeoff": plots.tradeoff({"a": curves.gaussian(sigma=1), "b": curves.pure(epsilon=1)}),
    "profile": plots.profile(curves.gaussian(sigma=1), curves.laplace(scale=2), delta=1e-6),
    "loss": plots.loss(curves.gaussian(sigma=1), delta=1e-6),
    "loss of a finite curve": plots.loss(curves.randomized_response(p=0.75) ** 5, delta=1e-6),
    "growth": plots.growth(curves.pure(epsilon=1), delta=1e-5, most=300),
    "compare": plots.compare(curves.gaussian(sigma=1), curves.laplace(scale=2), delta=1e-6),
    "seven": plots.compare({f"a curve with a rather long name, {i}": curves.pure(epsilon=i) for i in range(1, 8)}),
}
STARTS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.slow
@pytest.mark.parametrize("ending", STARTS)
def test_a_figure_is_saved_by_the_ending_of_its_name(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"picture{ending}"
    plots.render(FIGURES["compare"], path)
    assert path.read_bytes().startswith(STARTS[ending])
    assert path.stat().st_size > 5_000


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_figure_can_be_drawn_and_is_not_blank(figure: plots.Figure) -> None:
    drawing = plots.render(figure)
    drawing.canvas.draw()  # type: ignore[no-untyped-call]
    pixels = drawing.canvas.buffer_rgba()  # type: ignore[attr-defined]
    assert len(set(bytes(pixels)[::97])) > 20


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_words_neither_overlap_nor_leave_the_picture(figure: plots.Figure) -> None:
    from matplotlib.text import Text

    drawing = plots.render(figure)
    drawing.canvas.draw()  # type: ignore[no-untyped-call]
    # Ticks beyond the ends of an axis exist but are not drawn.
    ticks = {
        id(t)
        for axes in drawing.axes
        for t in (*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both"))
    }
    texts = [t for t in drawing.findobj(Text) if t.get_text().strip() and id(t) not in ticks]
    boxes = {t: t.get_window_extent() for t in texts}
    page = drawing.bbox
    for text, box in boxes.items():
        assert -1 <= box.x0 <= box.x1 <= page.x1 + 1, text.get_text()
        assert -2 <= box.y0 <= box.y1 <= page.y1 + 2, text.get_text()
    for (one, a), (two, b) in itertools.combinations(boxes.items(), 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 1 or high <= 1, f"{one.get_text()!r} and {two.get_text()!r}"


@pytest.mark.slow
def test_the_same_numbers_give_the_same_file() -> None:
    assert svg(FIGURES["profile"]) == svg(FIGURES["profile"])


def test_a_notebook_shows_a_figure_by_itself() -> None:
    shown = FIGURES["profile"]._repr_svg_()
    assert shown is not None
    assert "<svg" in shown


def test_drawing_changes_no_setting_and_opens_no_window() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.render(FIGURES["loss"])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("path", ["picture", "picture.gif", "picture.png.txt", ""])
def test_an_unknown_ending_is_refused(path: str) -> None:
    with worded(InvalidParameter):
        plots.render(FIGURES["profile"], path)


def test_only_figures_are_drawn() -> None:
    with pytest.raises(InvalidParameter, match="figure"):
        plots.render("profile")  # type: ignore[arg-type]


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"deniable\[plots\]"):
        plots.render(FIGURES["profile"])
    assert FIGURES["profile"]._repr_svg_() is None


def test_matplotlib_comes_through_one_door() -> None:
    source = Path(deniable.__file__).parent
    for path in source.rglob("*.py"):
        if path.relative_to(source).as_posix() == "plots/render.py":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "matplotlib" in text else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] == "matplotlib" for name in names), path


def test_colours_differ_in_lightness_or_hue() -> None:
    assert len(set(PALETTE)) == len(PALETTE) == 7


def test_ticks_of_whole_numbers_are_whole() -> None:
    figure = plots.laws(mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1.0), 0, 1)
    for axes in plots.render(figure).axes:
        assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_the_word_at_a_marker_in_the_corner_crosses_no_line() -> None:
    [axes] = plots.render(plots.growth(curves.pure(epsilon=1), delta=1e-4, most=10_000)).axes
    [word] = [text for text in axes.texts if "is proved" in text.get_text()]
    box = word.get_bbox_patch().get_window_extent()  # without the leader
    for line in axes.lines:
        points = axes.transData.transform(np.column_stack(line.get_data()))
        x = np.interp(np.linspace(box.y0, box.y1, 20), points[:, 1], points[:, 0])  # lines rise
        assert not np.any((x > box.x0) & (x < box.x1))
