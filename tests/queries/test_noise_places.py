"""Exact numbers meet noise in three modules under `queries`, and auditors read these first. The list is complete."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import deniable

SOURCE = Path(deniable.__file__).parent
PROJECT = Path(__file__).parents[2]
DRAWING = {"draw", "release", "noisy"}
"""The methods of mechanisms that draw noise."""

PLACES = {
    "queries/answer/release.py": {"release_jointly", "_noisy"},
    "queries/running_totals.py": {"GaussianTotals._drawn", "LaplaceTotals._drawn"},
    "queries/synthetic/marginal_selection.py": {"TableSelection._choose"},
}
"""The functions that call them."""

OTHERS = {
    # The cost of a day's noise, and fields that describe noise that was drawn.
    "queries/running_totals.py": {"TotalsNoise.released", "TotalsNoise.as_one"},
    "queries/publication/fitted_noise.py": {"_with_noise", "law_of"},
}
"""Methods and fields of the same names that draw no noise."""

WITHOUT_NOISE = ("ledger", "tables", "synth", "server", "client")
"""The other rooms through which questions to tables and their answers pass."""


def drawing(tree: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions that name such a method, whether they call it at once or not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from drawing(node, (*inside, node.name))
            continue
        if isinstance(node, ast.Attribute) and node.attr in DRAWING:
            yield ".".join(inside)
        yield from drawing(node, inside)


def functions_that_draw(room: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    named = re.compile(rf"\.\s*({'|'.join(DRAWING)})\b")
    texts = ((file, file.read_text(encoding="utf-8")) for file in room.rglob("*.py"))
    for file, text in ((file, text) for file, text in texts if named.search(text)):
        for function in drawing(ast.parse(text)):
            found[file.relative_to(SOURCE).as_posix()].add(function)
    return found


def test_exact_numbers_meet_noise_in_three_places() -> None:
    """The module `release` said that it was the only one. Whoever adds a place tells every reader of this list, and
    proves its sensitivity in the docstring of the module.
    """
    found = functions_that_draw(SOURCE / "queries")
    assert {file: functions - OTHERS.get(file, set()) for file, functions in found.items() if file in PLACES} == PLACES
    assert {file: functions & OTHERS[file] for file, functions in found.items() if file in OTHERS} == OTHERS
    assert set(found) == {*PLACES, *OTHERS}


def test_the_modules_say_so() -> None:
    """The list of places in the module `release`, in the room and on the page about the house is this one."""
    for said in ("src/deniable/queries/answer/release.py", "src/deniable/queries/__init__.py", "docs/house.md"):
        text = (PROJECT / said).read_text(encoding="utf-8")
        assert "three" in text, said
        for name in ("running_totals", "synthetic.marginal_selection"):
            assert name in text, (said, name)


@pytest.mark.parametrize("room", WITHOUT_NOISE)
def test_no_other_room_on_the_way_of_a_question_imports_noise(room: str) -> None:
    for file in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{each.name}" for each in node.names} | {str(node.module)}
            elif isinstance(node, ast.Import):
                names = {each.name for each in node.names}
            else:
                continue
            drawn = [each for each in names if each.startswith(("deniable.noise", "deniable.mechanisms"))]
            assert not drawn, (file.name, drawn)


def test_a_fourth_place_is_seen() -> None:
    text = (
        "class Peek:\n    def show(self):\n        drawing = self.mechanism.draw\n        return drawing((1,), None)\n"
    )
    assert set(drawing(ast.parse(text))) == {"Peek.show"}
