"""Figures of attacks: measured rates with confidence intervals, expected rates, and caps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from deniable.curves.curve_display import percent_up
from deniable.plots.figure_spec import REFERENCE, Axis, Figure, Line, Mark, Marker, Panel, ShadedBand

if TYPE_CHECKING:
    from deniable.attacks.attack_game import Outcome, Sweep

LOWEST, HIGHEST = 0.45, 1.02
MARGIN = 1.1
"""Ratio between the outermost dot and the end of a logarithmic axis."""


def one(outcome: Outcome) -> Figure:
    """One outcome, with the blind guess and the cap at every prior."""
    prior = np.linspace(0, 1, 101)
    blind = np.maximum(prior, 1 - prior)
    cap = np.ones_like(prior) if outcome.curve is None else np.asarray(outcome.curve.guess(prior=prior))
    low, high = outcome.interval
    marks: tuple[Mark, ...] = (
        Line("blind guess", _floats(prior), _floats(blind), REFERENCE, "dashed"),
        Line(f"nobody beats {percent_up(outcome.cap)} at even odds", _floats(prior), _floats(cap), 1),
        ShadedBand((0.485, 0.515), (low, low), (high, high)),
        Marker(0.5, outcome.rate),
        Line(f"measured {100 * outcome.rate:.1f} %", (0.485, 0.515), (outcome.rate, outcome.rate), 0),
    )
    panel = Panel(Axis("what was believed before", 0, 1), Axis("right guesses", LOWEST, HIGHEST), marks)
    return Figure(f"{_title(outcome.attack)} against {outcome.defence}", (panel,), outcome.sentence)


def several(sweep: Sweep) -> Figure:
    """A sweep: for each defence the measured rates with confidence intervals, the closed form and the cap."""
    marks: list[Mark] = []
    known_of = sweep.theory
    low = min(min(theory.x) for theory in known_of.values())
    high = max(max(theory.x) for theory in known_of.values())
    if sweep.bare is not None:
        marks.append(Line("no privacy", (low, high), (sweep.bare.rate,) * 2, REFERENCE))
    marks.append(Line("blind guess", (low, high), (0.5, 0.5), REFERENCE, "dotted"))
    for colour, (name, series) in enumerate(sweep.series.items()):
        theory = known_of[name]
        if theory.expected is not None:
            marks.append(Line(name, theory.x, theory.expected, colour))
        marks.append(Line(f"{name}: cap", theory.x, theory.cap, colour, "dashed"))
        for place, (x, outcome) in enumerate(series.items()):
            # Measurements are not joined by lines. If there is no closed form, the first measurement carries the label.
            label = name if theory.expected is None and place == 0 else ""
            marks += [Line(label, (x, x), outcome.interval, colour), Marker(x, outcome.rate, colour=colour)]
    dots = [x for series in sweep.series.values() for x in series]
    ends = min(low, min(dots) / MARGIN), max(high, max(dots) * MARGIN)  # no dot is cut by the frame
    panel = Panel(Axis(sweep.label, *ends, "log"), Axis("right guesses", LOWEST, HIGHEST), tuple(marks))
    sure = sweep.outcomes[0].confidence
    note = (
        f"Dots: measured, with {100 * sure:.10g} % confidence intervals. Lines: closed form, if known. "
        "Dashed: the cap, which nobody can beat. Both are computed at a few points, joined by straight lines. "
        "A coin decides the secret: a blind guess is right half of the time."
    )
    return Figure(_title(sweep.attack), (panel,), note, height=4.4)


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) for v in values if math.isfinite(v))
