"""Draws the pictures of docs/synthetic.md: python docs/draw_synthetic.py [name ...]

The people are made up, from a seed; every run draws new noise, so the strokes move a little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from draw import FOLDER, draw

import deniable as dn
from deniable.plots.figure_spec import REFERENCE, Axis, Figure, Line, Mark, Panel, ShadedBand

LEVELS = (0.1, 1.0)
COUNT = 20_000
SCHEMA = {
    "sex": dn.Domain.text("f", "m", nullable=False),
    "age": dn.Domain.integer(18, 89, nullable=False),
    "hours": dn.Domain.integer(0, 79, nullable=False),
    "region": dn.Domain.integer(keys=range(8), nullable=False),
    "smokes": dn.Domain.boolean(nullable=False),
}
BINS = {"age": 36, "hours": 20}


def people() -> pd.DataFrame:
    """More young people than old ones; they work less from 62 on, and smoke most at 35."""
    generator = np.random.default_rng(8)
    age = 18 + np.minimum(71, (72 * generator.beta(1.3, 1.9, COUNT)).astype(int))
    sex = generator.choice(["f", "m"], COUNT)
    hours = np.where(age < 62, generator.normal(38, 8, COUNT), generator.exponential(9, COUNT))
    chance = (0.08 + 0.32 * np.exp(-(((age - 35) / 14) ** 2))) * np.where(sex == "m", 1.3, 0.8)
    return pd.DataFrame(
        {
            "sex": sex,
            "age": age,
            "hours": np.clip(hours, 0, 79).astype(int),
            "region": generator.choice(8, COUNT, p=np.arange(8, 0, -1) / 36),
            "smokes": generator.random(COUNT) < chance,
        }
    )


def made(epsilon: float) -> Any:
    budget = dn.Budget(epsilon=epsilon, delta=1e-9)
    with dn.session(people(), unit=dn.Unit.row(), budget=budget, schema=SCHEMA) as s:
        return s.synthesize(bins=BINS, share=1)


def one_column() -> Figure:
    """How many people are of which age: the data, the synthetic table, and twice its expected error."""
    table, panels = people(), []
    for epsilon in LEVELS:
        cells = made(epsilon).table("age").cells
        x = tuple(float(cell.values[0]) for cell in cells)
        count, error = (np.array([getattr(cell, name) for cell in cells]) for name in ("count", "error"))
        true = np.histogram(table.age, bins=[*x, 90])[0]
        marks: tuple[Mark, ...] = (
            ShadedBand(x, tuple(np.maximum(count - 2 * error, 0)), tuple(count + 2 * error), 0),
            Line("synthetic", x, tuple(count), 0),
            Line("data", x, tuple(map(float, true)), REFERENCE, "dashed"),
        )
        panels.append(Panel(Axis("age", 18, 90), Axis("people", 0, 1100), marks, title=f"ε = {epsilon:g}"))
    return Figure("One column", tuple(panels))


def two_columns() -> Figure:
    """The share of smokers by age: the data, and rows drawn from the synthetic table."""
    table, panels = people(), []
    ages = np.arange(18, 90, 4)
    for epsilon in LEVELS:
        rows = made(epsilon).rows(COUNT).to_pandas()
        marks = []
        for name, each, colour in (("synthetic", rows, 0), ("data", table, REFERENCE)):
            at = np.digitize(each.age, ages) - 1
            share = tuple(float(each.smokes[at == i].mean()) for i in range(len(ages)))
            x = tuple(float(age + 2) for age in ages)
            marks.append(Line(name, x, share, colour, "dashed" if colour == REFERENCE else "solid"))
        panels.append(
            Panel(Axis("age", 18, 90), Axis("share who smoke", 0, 0.6), tuple(marks), title=f"ε = {epsilon:g}")
        )
    return Figure("Two columns", tuple(panels))


PICTURES: dict[str, Callable[[], Figure]] = {
    "synthetic-one-column.svg": one_column,
    "synthetic-two-columns.svg": two_columns,
}


def main(names: list[str]) -> None:
    for name, picture in PICTURES.items():
        if not names or name.removesuffix(".svg") in names:
            draw(picture, FOLDER / name)
            print(f"docs/pictures/{name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
