"""The pictures of the pages: all of them are drawn by docs/draw.py, draw_course.py, draw_attacks.py, draw_synthetic.py,
draw_console.py or draw_house.py, all that these draw are shown, the page says what one sees, and none is stale.

But for the strokes of attacks and synthetic tables: docs/draw_attacks.py and draw_synthetic.py draw what they measure,
which is never twice the same. Nor are the photographs of the console, whose answers carry noise.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest

from deniable import plots

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<path>[^)]*pictures/[^)]+)\)")
LARGEST = 80_000
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def _drawer(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


DRAW = _drawer("draw")
FILES = {DRAW.file_name(picture): picture for picture in (*DRAW.PICTURES, *_drawer("draw_course").PICTURES)}
MEASURED = (*_drawer("draw_attacks").PICTURES, *_drawer("draw_synthetic").PICTURES)
"""Those of attacks and of synthetic tables."""
TAKEN = tuple(_drawer("draw_console").PICTURES)
"""Those of the console."""
sys.modules["house_lives"] = _drawer("house_lives")
HOUSE = tuple(_drawer("draw_house").PICTURES)
"""Those of the house; tests/docs/test_house.py draws them again."""
PAGES = sorted(DOCS.rglob("*.md"))


def test_pages_and_list_and_folder_agree() -> None:
    shown = {
        (page.parent / match["path"]).resolve() for page in PAGES for match in SHOWN.finditer(page.read_text("utf-8"))
    }
    held = {path.name for path in (DOCS / "pictures").iterdir()}
    assert {path.name for path in shown} == {*FILES, *MEASURED, *TAKEN, *HOUSE} == held
    assert all(path.is_file() for path in shown)


@pytest.mark.parametrize(
    "page",
    [
        *(f"mechanisms/{name}" for name in ("additive", "counting", "limits", "selection", "statistics", "threshold")),
        "noise",
        "local",
        "testing",
    ],
)
def test_every_family_has_a_picture_with_words_for_those_who_do_not_see_it(page: str) -> None:
    found = list(SHOWN.finditer((DOCS / f"{page}.md").read_text("utf-8")))
    assert found
    assert all(len(match["words"]) > 60 for match in found)


@pytest.mark.parametrize("name", [*FILES, *MEASURED])
def test_a_picture_is_small_and_whole(name: str) -> None:
    path = DOCS / "pictures" / name
    assert path.stat().st_size < LARGEST
    parts = list(ElementTree.parse(path).iter())
    names = {part.get("id") for part in parts}
    used = {link.removeprefix("#") for part in parts if (link := part.get("{http://www.w3.org/1999/xlink}href"))}
    assert used
    assert used <= names, "letters and marks are there"


@pytest.mark.parametrize("name", TAKEN)
def test_a_photograph_is_small_and_as_wide_as_its_screen(name: str) -> None:
    path = DOCS / "pictures" / name
    assert path.stat().st_size < 4 * LARGEST
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(head[16:20], "big") == (390 if "phone" in name else 1240)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_what_one_sees_is_said_once(name: str) -> None:
    """On the page, below the picture."""
    figure = FILES[name]()
    assert isinstance(figure, plots.Figure)
    assert not figure.note


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_below_a_picture_the_page_says_what_one_sees(page: Path) -> None:
    blocks = page.read_text("utf-8").split("\n\n")
    for block, after in pairwise(blocks):
        if SHOWN.match(block):
            assert len(after) > 60
            assert after[0] not in "#`|!"


def _parts(path: Path) -> tuple[str, list[float]]:
    text = path.read_text("utf-8")
    return NUMBER.sub("0", text), [float(n) for n in NUMBER.findall(text)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_picture_is_stale(name: str, tmp_path: Path) -> None:
    """Drawn again it has the same strokes, up to a hundredth of a point: another processor may round differently."""
    matplotlib = pytest.importorskip("matplotlib")
    held = DOCS / "pictures" / name
    if f"Matplotlib v{matplotlib.__version__}," not in held.read_text("utf-8"):
        pytest.skip("drawn by another version of matplotlib")
    DRAW.draw(FILES[name], tmp_path / name)
    (words, numbers), (again, found) = _parts(held), _parts(tmp_path / name)
    assert again == words, "run: make pictures"
    np.testing.assert_allclose(found, numbers, atol=0.01, err_msg="run: make pictures")
