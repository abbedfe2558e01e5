"""Draws the pictures of docs/attacks.md: python docs/draw_attacks.py [name ...]

Every run draws new noise, so the dots move a little; the lines do not. What one sees is said on the page, below each
picture, and not in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from draw import FOLDER, draw

from deniable import attacks
from deniable.attacks.attack_game import Sweep, Theory, theory_of
from deniable.attacks.attack_story import STORIES
from deniable.plots.figure_spec import Axis, Figure, Line, Marker, Panel

LEVELS = [0.1, 0.3, 1.0, 3.0, 10.0]
DELTA = {"reconstruction": 1e-6, "membership": 1e-6, "model-membership": 1e-6}


def averaging() -> Figure:
    """Along the number of answers, at ε = 1 for each and ε = 1 for all."""
    series: dict[str, dict[float, attacks.Outcome]] = {}
    for count in (1, 3, 10, 30, 100):
        attack = attacks.Averaging(answers=count)
        for name, defence in attack.defences(epsilon=1.0).items():
            series.setdefault(name.replace("ε", "ε = 1"), {})[float(count)] = attack.run(defence)
    counts = sorted({round(k) for k in np.geomspace(1, 100, 41)})
    made = {count: attacks.Averaging(answers=count) for count in counts}
    theory = {}
    for name in made[1].defences(epsilon=1.0):
        found = [theory_of(one, [float(k)], [one.defences(epsilon=1.0)[name]]) for k, one in made.items()]
        theory[name.replace("ε", "ε = 1")] = Theory(
            tuple(one.x[0] for one in found),
            tuple(one.cap[0] for one in found),
            tuple(one.expected[0] for one in found if one.expected),
        )
    return Sweep("averaging", "number of answers", series, lambda: theory).figure


def bounded() -> Figure:
    """Linear programs against noise that never exceeds a bound: from about √n on less comes out, and never nothing."""
    attack = attacks.LinearReconstruction(people=32, questions=128)
    bounds = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    found = {bound: attack.run(attacks.BoundedNoise(bound), trials=200) for bound in bounds}
    marks = (
        Line("blind guess", (0.8, 40), (0.5, 0.5), -1, "dotted"),
        Line("√n, n = 32 people", (32**0.5,) * 2, (0.45, 1.02), -1, "dashed"),
        *(Line("linear program" if x == bounds[0] else "", (float(x),) * 2, one.interval) for x, one in found.items()),
        *(Marker(float(x), one.rate) for x, one in found.items()),
    )
    panel = Panel(Axis("largest error of an answer", 0.8, 40, "log"), Axis("right guesses", 0.45, 1.02), marks)
    return Figure("Reconstruction from answers with bounded errors", (panel,))


def uniqueness() -> Figure:
    """Who is unique by what: closed form along the size of an area."""
    sizes = np.geomspace(10, 120_000, 121)
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
    return Figure("Who is unique", (panel,))


def swept(name: str) -> Callable[[], Figure]:
    """A story along ε, as its picture."""
    return lambda: attacks.sweep(STORIES[name].make(), epsilon=LEVELS, delta=DELTA.get(name)).figure


OWN: dict[str, Callable[[], Figure]] = {
    "averaging": averaging, "linear-reconstruction": bounded, "uniqueness": uniqueness,
}  # fmt: skip
PICTURES: dict[str, Callable[[], Figure]] = {
    f"attacks-{name}.svg": OWN.get(name) or swept(name) for name in (*STORIES, "uniqueness")
}
"""What draws each picture, by the name of its file."""


def main(names: list[str]) -> None:
    for file, make in PICTURES.items():
        if not names or file.removeprefix("attacks-").removesuffix(".svg") in names:
            draw(lambda make=make: replace(make(), note=""), FOLDER / file)
            print(f"docs/pictures/{file}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
