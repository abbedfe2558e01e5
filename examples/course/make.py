"""Writes the notebooks of this folder from the scripts beside them: python examples/course/make.py.

A script is cut at lines that begin with `# %%`. `# %% [markdown]` begins a text, whose lines are comments; `# %%` is
code. Of exercises.py two notebooks are made: in exercises.ipynb every cell marked `solution` is taken out and an empty
one left for your own, in solutions.ipynb it stays, folded. Notebooks hold no outputs: they are made by running them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
LECTURES = ("psl", "ucsb", "notes", "f_dp", "programming")
FOLDED: dict[str, Any] = {"tags": ["solution"], "jupyter": {"source_hidden": True}}
MARK = re.compile(r"^# %%(?: \[(markdown)\])?(?: (solution))?$", re.MULTILINE)

Solutions = Literal["left out", "folded"]


def cells(script: str) -> list[tuple[bool, bool, str]]:
    """(is it text, is it a solution, what it says) of every cell."""
    head, *rest = MARK.split(script)
    assert not head.strip(), "a script begins with a cell"
    found = []
    for text, solution, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        lines = body.strip("\n").splitlines()
        if text:
            assert all(line == "#" or line.startswith("# ") for line in lines), "text is a comment"
            lines = [line[2:] for line in lines]
        found.append((bool(text), bool(solution), "\n".join(lines)))
    return found


def notebook(script: str, solutions: Solutions = "folded") -> str:
    """A notebook without outputs, as it is written to a file."""
    made: list[dict[str, Any]] = []
    for is_text, is_solution, source in cells(script):
        if is_solution and solutions == "left out":
            if made[-1]["metadata"].get("tags") != ["answer"]:
                made.append(_cell(len(made), False, "# Your answer.", {"tags": ["answer"]}))
            continue
        if is_solution and is_text:
            source = f"<details><summary>Solution</summary>\n\n{source}\n\n</details>"
        made.append(_cell(len(made), is_text, source, FOLDED if is_solution else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _cell(index: int, is_text: bool, source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    cell = {"id": f"cell-{index}", "metadata": metadata, "source": source.splitlines(keepends=True)}
    if is_text:
        return {"cell_type": "markdown", **cell}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **cell}


def notebooks() -> dict[str, str]:
    """What every notebook of the folder should hold, by its name."""
    made = {f"{name}.ipynb": notebook((FOLDER / f"{name}.py").read_text("utf-8")) for name in LECTURES}
    exercises = (FOLDER / "exercises.py").read_text("utf-8")
    made["exercises.ipynb"] = notebook(exercises, "left out")
    made["solutions.ipynb"] = notebook(exercises, "folded")
    return made


if __name__ == "__main__":
    for name, text in notebooks().items():
        (FOLDER / name).write_text(text, "utf-8")
