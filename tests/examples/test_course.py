"""The notebooks of examples/course: made from their scripts, small, without outputs, and all of them run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "course"

FIGURES = {"psl": 11, "ucsb": 5, "notes": 7, "f_dp": 7, "programming": 5, "solutions": 1}
"""How many pictures each notebook shows."""


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("course_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = _module()
NOTEBOOKS = MADE.notebooks()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_what_its_script_says(name: str) -> None:
    held = (FOLDER / name).read_text("utf-8")
    assert held == NOTEBOOKS[name], "run: python examples/course/make.py"
    assert len(held) < 40_000
    for cell in json.loads(held)["cells"]:
        assert not cell.get("outputs")


def test_the_folder_holds_these_notebooks_and_no_others() -> None:
    assert {path.name for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


def _tagged(name: str, tag: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOKS[name])["cells"] if tag in cell["metadata"].get("tags", ())]


def test_the_sheet_has_every_exercise_and_no_solution() -> None:
    script = (FOLDER / "exercises.py").read_text("utf-8")
    exercises = re.findall(r"^# ### (\d+)\.", script, flags=re.MULTILINE)
    assert exercises == [str(i) for i in range(1, len(exercises) + 1)]
    hidden = ["\n".join(source.splitlines()[:1]) for _, is_solution, source in MADE.cells(script) if is_solution]
    assert len(hidden) >= len(exercises) >= 13
    sheet = "".join("".join(cell["source"]) for cell in json.loads(NOTEBOOKS["exercises.ipynb"])["cells"])
    assert [line for line in hidden if line in sheet] == []
    assert len(_tagged("exercises.ipynb", "answer")) == len(exercises), "one place for each answer"
    assert _tagged("exercises.ipynb", "solution") == []


def test_solutions_are_folded() -> None:
    found = _tagged("solutions.ipynb", "solution")
    assert len(found) >= 13
    for cell in found:
        assert cell["metadata"]["jupyter"]["source_hidden"]
        if cell["cell_type"] == "markdown":
            assert "".join(cell["source"]).startswith("<details><summary>Solution</summary>")


@pytest.mark.parametrize("name", MADE.LECTURES)
def test_a_lecture_is_cited_by_its_title_and_every_cell_stands_below_an_item(name: str) -> None:
    first, setup, *rest = json.loads(NOTEBOOKS[f"{name}.ipynb"])["cells"]
    assert "".join(first["source"]).startswith("# ")
    assert setup["cell_type"] == "code"
    assert rest[0]["cell_type"] == "markdown"
    for cell in rest:
        if cell["cell_type"] == "markdown":
            assert "".join(cell["source"]).startswith("## "), "an item of the lecture, by the name it has there"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != "exercises.ipynb"])
def test_a_notebook_runs_and_shows_its_pictures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("ipywidgets")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    ran = nbformat.reads(NOTEBOOKS[name], as_version=4)
    nbclient.NotebookClient(
        ran, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in ran.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    pictures = [output.data["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == FIGURES[name.removesuffix(".ipynb")]
    widgets = [output for output in outputs if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
    assert len(widgets) == (1 if name == "psl.ipynb" else 0)
