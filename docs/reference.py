"""Writes docs/reference.md, every public name with the first words of its own docstring: python docs/reference.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from deniable import curves

PAGE = Path(__file__).parent / "reference.md"

ROOMS: tuple[tuple[str, str], ...] = (
    ("curves", "What is promised: the calculus of curves."),
    ("curves.textbook", "The formulas of textbooks, each with its range checked."),
    ("noise", "Exact noise on whole numbers, and the way there from floats."),
    ("mechanisms", "One release: a statistic, a sampler and a curve."),
    ("mechanisms.limits", "What no mechanism can do."),
    ("mechanisms.graphs", "Graphs whose edges or nodes are private."),
    ("mechanisms.denoise", "What a released vector says once the noise is known."),
    ("mechanisms.laws", "The law of an answer, for planning and teaching."),
    ("mechanisms.small", "Small finite domains, by brute force."),
    ("mechanisms.linear", "Many linear questions: what each way costs, and which is best."),
    ("mechanisms.cautionary", "Mechanisms to learn from, not to use."),
    ("local", "No curator: every person randomizes their own answer."),
    ("tables", "What the data is: schemas, public bounds and keys."),
    ("queries", "Questions to tables, and their answers."),
    ("ledger", "What was spent."),
    ("learn", "Training plans, which are maths."),
    ("learn.torch", "PyTorch models trained under a plan."),
    ("learn.sklearn", "Private estimators for scikit-learn."),
    ("audit", "What a mechanism really leaks."),
    ("attacks", "Why all this: attacks without privacy, and behind a mechanism."),
    ("plots", "Pictures: what to draw, apart from how."),
    ("testing", "Does a mechanism keep its promise?"),
    ("units", "What a promise is about."),
    ("errors", "Everything that is raised on purpose."),
)
"""By name: a room that needs an extra (torch) is imported only when the page is written."""

APART = {("deniable.learn", "sklearn"), ("deniable.learn", "torch")}
"""Rooms inside a room that need more than it does."""

INSIDE = {"of", "origin", "renyi_function"}
"""Methods of a curve that are for its own room."""


def names(room: ModuleType) -> list[str]:
    """The public names of a room: what it lists, or else what it defines."""
    listed = getattr(room, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if (room.__name__, name) not in APART)
    return sorted(
        name
        for name, thing in vars(room).items()
        if not name.startswith("_") and callable(thing) and getattr(thing, "__module__", "") == room.__name__
    )


def words(thing: Any) -> str:
    """The first paragraph of a docstring, as it stands in a table; a value that has none of its own is only named."""
    if isinstance(thing, dict):
        return "A dict: " + ", ".join(f"`{key}`" for key in thing) + "."
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def readings() -> Iterator[tuple[str, str]]:
    """The public methods of a curve."""
    for name, member in vars(curves.Curve).items():
        if name.startswith("_") or name in INSIDE:
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        yield f"curve.{name}{'' if isinstance(member, property) else '()'}", words(function)


def _table(rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join(["| name | what it is |", "|---|---|", *(f"| `{name}` | {said} |" for name, said in rows)])


def page() -> str:
    parts = [
        "# Reference",
        "Every public name and what it is, in its own words; `help(curves.gaussian)` says more: the promise, the "
        "formula, its source. Made by `make reference`; do not edit.",
        "## Readings and algebra of a curve",
        _table(readings()),
    ]
    for place, said in ROOMS:
        room = import_module(f"deniable.{place}")
        listed = ((name, words(getattr(room, name))) for name in names(room))
        parts += [f"## Names in `{room.__name__}`", said, _table(listed)]
    parts.append(
        "`deniable.calibrate` finds the parameter of a curve that just meets a target: `epsilon=` with `delta=`, "
        "`mu=`, `advantage=`, `equal_error_rate=` or `rho=`."
    )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
