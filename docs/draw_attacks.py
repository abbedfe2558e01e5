"""Draws the pictures of docs/attacks.md: python docs/pictures/draw_attacks.py

Every run draws new noise, so the dots move a little; the lines do not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deniable import attacks, plots
from deniable.attacks.base import Sweep, theory_of
from deniable.attacks.story import STORIES
from deniable.plots.spec import Axis, Figure, Line, Marker, Panel

HERE = Path(__file__).parent / "pictures"
LEVELS = [0.1, 0.3, 1.0, 3.0, 10.0]
DELTA = {"reconstruction": 1e-6, "membership": 1e-6, "model-membership": 1e-6}


def averaging() -> Figure:
    """Along the number of answers, at ε = 1 for each and ε = 1 for all."""
    counts = [1, 3, 10, 30, 100]
    series: dict[str, dict[float, attacks.Outcome]] = {}
    theory = {}
    for count in counts:
        attack = attacks.Averaging(answers=count)
        for name, defence in attack.defences(epsilon=1.0).items():
            series.setdefault(name.replace("ε", "ε = 1"), {})[float(count)] = attack.run(defence)
    for name in attacks.Averaging(answers=1).defences(epsilon=1.0):
        found = [
            theory_of(attack, [float(k)], [attack.defences(epsilon=1.0)[name]])
            for k in (1, 2, 3, 5, 7, 10, 14, 20, 30, 45, 70, 100)
            for attack in [attacks.Averaging(answers=k)]
        ]
        theory[name.replace("ε", "ε = 1")] = type(found[0])(
            tuple(one.x[0] for one in found),
            tuple(one.cap[0] for one in found),
            tuple(one.expected[0] for one in found if one.expected),
        )
    return Sweep("averaging", "number of answers", series, theory, None).figure


def bounded() -> Figure:
    """Linear programs against noise that never exceeds a bound: it protects from about √n on, and is useless there."""
    attack = attacks.LinearReconstruction(people=32, questions=128)
    bounds = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    found = {bound: attack.run(attacks.BoundedNoise(bound), trials=200) for bound in bounds}
    marks = (
        Line("blind guess", (0.8, 40), (0.5, 0.5), -1, "dotted"),
        Line("√n, n = 32 people", (32**0.5,) * 2, (0.45, 1.02), -1, "dashed"),
        Line("linear program", tuple(map(float, bounds)), tuple(one.rate for one in found.values())),
        *(Line("", (float(x), float(x)), one.interval) for x, one in found.items()),
        *(Marker(float(x), one.rate) for x, one in found.items()),
    )
    panel = Panel(Axis("largest error of an answer", 0.8, 40, "log"), Axis("right guesses", 0.45, 1.02), marks)
    note = "128 questions about 32 people. Noise that never exceeds a bound well below √n hides nothing."
    return Figure("Reconstruction from answers with bounded errors", (panel,), note)


def uniqueness() -> Figure:
    """Who is unique by what: closed form along the size of an area."""
    sizes = np.geomspace(10, 120_000, 60)
    known = {
        "sex, birth date, ZIP code": 2 * 365.25 * 79,
        "sex, month of birth, ZIP code": 2 * 12 * 79,
        "sex, year of birth, ZIP code": 2 * 79,
    }
    lines = tuple(
        Line(name, tuple(sizes), tuple(attacks.expected_uniqueness([n], cells=cells) for n in sizes), i)
        for i, (name, cells) in enumerate(known.items())
    )
    panel = Panel(
        Axis("people with the same ZIP code", 10, 120_000, "log"), Axis("share who are unique", 0, 1.02), lines
    )
    note = "Closed form (1 - 1/cells)^(N-1), birth dates spread evenly over 79 years."
    return Figure("Who is unique", (panel,), note)


def main() -> None:
    for name, story in STORIES.items():
        if name == "averaging":
            figure = averaging()
        elif name == "linear-reconstruction":
            figure = bounded()
        else:
            figure = attacks.sweep(story.make(), epsilon=LEVELS, delta=DELTA.get(name)).figure
        plots.render(figure, HERE / f"attacks-{name}.svg")
        print(name)
    plots.render(uniqueness(), HERE / "attacks-uniqueness.svg")


if __name__ == "__main__":
    main()
