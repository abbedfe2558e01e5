"""Measures how easy the code is to find one's way in: `PYTHONPATH=src python docs/measure_house.py`.

Prints names that occur twice, the length of docstrings, and for two walks (a question in SQL, a product of curves) the
functions called, the modules they are in, and the crossings: calls from one module of deniable to another. Both walks
are measured the second time, with caches and imports warm. A thermometer, not a target.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "deniable"


def names() -> None:
    """Public classes and files whose names occur twice; the share of docstrings in the code."""
    classes, said, code = Counter[str](), 0, 0
    files = sorted(SOURCE.rglob("*.py"))
    for path in files:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        classes.update(
            node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
        lines = sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())
        mine = 0
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    mine += (first.end_lineno or first.lineno) - first.lineno + 1
        said, code = said + mine, code + lines - mine
    stems = Counter(path.name for path in files)
    twice = [name for name, count in stems.items() if count > 1 and name not in {"__init__.py", "__main__.py"}]
    print(f"files {len(files)}, public classes {len(classes)}")
    print("class names in several modules:", sorted(name for name, count in classes.items() if count > 1))
    print("file names in several folders:", sorted(twice))
    print(f"docstring lines per line of code: {said / code:.2f} ({said:,} of {code:,})")


def walked(name: str, walk: Callable[[], Any]) -> None:
    """Print the functions, modules and crossings of one walk, and the pairs of modules that cross most often."""
    functions, pairs = set[tuple[str, str]](), Counter[tuple[str, str]]()

    def module(frame: FrameType | None) -> str:
        found = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        return found if found.startswith("deniable") else ""

    def note(frame: FrameType, event: str, argument: object) -> None:
        mine = module(frame) if event == "call" else ""
        if mine:
            functions.add((mine, frame.f_code.co_qualname))
            above = frame.f_back
            while above is not None and not module(above):  # through a library: the caller is the module above it
                above = above.f_back
            theirs = module(above)
            if theirs and theirs != mine:
                pairs[theirs.removeprefix("deniable."), mine.removeprefix("deniable.")] += 1

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    modules = {module for module, _ in functions}
    print(f"{name}: {len(functions)} functions, {len(modules)} modules, {sum(pairs.values()):,} crossings")
    for (one, two), count in pairs.most_common(12):
        print(f"  {count:5}  {one} -> {two}")


def walks() -> None:
    """A question in SQL to a session, and ε of a product of three curves."""
    import pandas as pd

    import deniable as dn

    rows = pd.DataFrame({"id": range(200), "ward": ["a", "b"] * 100, "cost": [float(i % 50) for i in range(200)]})
    schema = {"ward": dn.Domain.text("a", "b"), "cost": dn.Domain.real(0, 100)}
    budget = dn.Budget(epsilon=3, delta=1e-6)
    with dn.session(rows, unit=dn.Unit.person("id", rows=1), budget=budget, schema=schema) as session:
        text = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c FROM data WHERE cost > {} GROUP BY ward"
        session.sql(text.format(1), epsilon=0.1)
        walked("a question in SQL", lambda: session.sql(text.format(2), epsilon=0.1))
    curves = dn.curves

    def product(scale: float) -> float:
        made = (
            curves.gaussian(sigma=scale) ** 10
            * curves.laplace(scale=scale) ** 5
            * curves.gaussian(sigma=scale).sampled(rate=0.1)
        )
        return float(made.epsilon(delta=1e-6))

    product(3.0)
    walked("a product of curves", lambda: product(4.0))


if __name__ == "__main__":
    names()
    walks()
