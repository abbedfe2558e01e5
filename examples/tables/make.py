"""Writes the notebooks of this folder from the scripts beside them: python examples/tables/make.py.

Cells are marked as in examples/course; notebooks hold no outputs, they are made by running them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def notebooks() -> dict[str, str]:
    """Each notebook by its name."""
    spec = importlib.util.spec_from_file_location("course_make", FOLDER.parent / "course" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    course: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(course)
    paths = [FOLDER / "publish.py", FOLDER / "synthetic.py"]
    return {path.with_suffix(".ipynb").name: course.notebook(path.read_text("utf-8")) for path in paths}


if __name__ == "__main__":
    for name, text in notebooks().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
