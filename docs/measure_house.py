"""Measures how easy the code is to find one's way in: `PYTHONPATH=src:. python docs/measure_house.py`.

Prints names that occur twice, functions that are too complex, long files, the length of docstrings, and for four walks
(a question in SQL, a question over HTTP, a training step, a product of curves) the functions called, the modules they
are in, and the crossings: calls from one module of deniable to another. Every walk is measured the second time, with
caches and imports warm. A thermometer, not a target.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "deniable"
MOST_COMPLEX = 15
LONGEST = 600


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
    lengths = {path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in files}
    print(f"files over {LONGEST} lines:", sorted(name for name, lines in lengths.items() if lines > LONGEST))


def complexity() -> None:
    """The functions whose cyclomatic complexity is over `MOST_COMPLEX`, as ruff counts it; exceptions count too."""
    limit = f"lint.mccabe.max-complexity={MOST_COMPLEX}"
    order = ["ruff", "check", "--isolated", "--no-cache", "--ignore-noqa", "--select=C901", "--config", limit]
    found = subprocess.run(
        [sys.executable, "-m", *order, "--output-format=concise", str(SOURCE)], capture_output=True, text=True
    )
    lines = [line.partition("C901 ")[2] for line in found.stdout.splitlines() if "C901" in line]
    print(f"functions with complexity over {MOST_COMPLEX}: {len(lines)}", *lines, sep="\n  ")


_WALKING: list[Callable[[FrameType, str, object], None]] = []
"""The profile of the walk that is measured now, for threads that began before it."""


def _in_a_thread(frame: FrameType, event: str, argument: object) -> None:
    for note in _WALKING:
        note(frame, event, argument)


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

    _WALKING.append(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
        _WALKING.clear()
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


def request() -> None:
    """A question over HTTP, without a socket: from the application to the response."""
    from tests.server.world import made

    text = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c FROM visits WHERE cost > {} GROUP BY ward"
    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(_in_a_thread)
        world = made(Path(folder))
        with world.client:
            assert world.ask(text.format(1), epsilon=0.01).status_code == 200
            walked("a question over HTTP", lambda: world.ask(text.format(2), epsilon=0.01))


def training() -> None:
    """One step of private training: a batch, its backward pass, noise, the optimizer."""
    import torch

    import deniable as dn

    inputs = torch.linspace(-1, 1, 600).reshape(120, 5)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    plan = dn.learn.DPSGD(clip=1.0, rate=0.5, steps=4, noise=1.0)
    trainer = dn.learn.torch.Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data, progress=False)
    batches = iter(trainer)

    def step() -> None:
        x, y = next(batches)
        trainer.backward(torch.nn.functional.cross_entropy(model(x), y, reduction="none"))

    step()
    step()
    walked("a training step", step)


if __name__ == "__main__":
    names()
    complexity()
    walks()
    training()
    request()
