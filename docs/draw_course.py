"""Draws the figures of the courses, docs/course: python docs/draw_course.py [name ...]"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from draw import FOLDER, draw, file_name

from deniable import curves, mechanisms, plots
from deniable.plots.figure_spec import Figure, Line, Marker


def course_two_worlds() -> Figure:
    """Laplace answers of two neighbours, and their log-ratio."""
    return replace(plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=0.5), 0.0, 1.0), note="")


def course_one_apart() -> Figure:
    """The same at ε = 1."""
    return replace(plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0), note="")


def course_error_rates() -> Figure:
    """What an attacker can do against ε-DP and against a Gaussian."""
    named = {"any ε-DP, ε = 2": curves.pure(epsilon=2.0), "Gaussian, μ = 1": curves.gaussian(mu=1.0)}
    return replace(plots.tradeoff(named), note="")


def course_median() -> Figure:
    """p(s) of the private median of eleven bits."""
    named = {
        "exponential mechanism": mechanisms.BinaryMedian(epsilon=0.5),
        "inverse sensitivity mechanism": mechanisms.BinaryInverseSensitivity.median(epsilon=0.5),
    }
    return replace(plots.chances(named, rows=11), note="")


def course_densities() -> Figure:
    """Laplace densities of three scales."""
    return replace(plots.density(*(mechanisms.Laplace(sensitivity=b, epsilon=1.0) for b in (1.0, 2.0, 4.0))), note="")


def course_best_test() -> Figure:
    """Gaussian answers of two neighbours, and the best test of level 5 %."""
    return replace(plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0, false_alarms=0.05), note="")


def course_profiles() -> Figure:
    """δ(ε) of Gaussian and of Laplace noise."""
    named = {"Gaussian, σ = 1": curves.gaussian(mu=1.0), "Laplace, b = 1": curves.laplace(scale=1.0)}
    return replace(plots.profile(named), note="")


def course_noise() -> Figure:
    """Laplace noise of ε = 1 and Gaussian noise of (1, 10⁻⁵)."""
    laplace = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
    return replace(plots.density(laplace, mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-5)), note="")


def course_growth() -> Figure:
    """What up to 100 releases of ε = 1 cost."""
    return replace(plots.growth(curves.laplace(scale=1), delta=1e-4, most=100, name="Laplace noise"), note="")


def course_long_growth() -> Figure:
    """What up to 10,000 releases of ε = 1 cost."""
    return replace(plots.growth(curves.laplace(scale=1), delta=1e-4, most=10_000, name="Laplace noise"), note="")


def course_order() -> Figure:
    """Gaussian trade-off functions in Blackwell's order."""
    return replace(plots.tradeoff({f"μ = {mu}": curves.gaussian(mu=mu) for mu in (0.5, 1, 2)}), note="")


def course_bins() -> Figure:
    """Gaussian answers in full, and, dashed, only their whole part."""
    levels = (0.5, 1, 2)
    named = {f"T, μ = {mu}": curves.gaussian(mu=mu) for mu in levels}
    named |= {f"T_G, μ = {mu}": curves.quantized(curves.gaussian(mu=mu), width=1) for mu in levels}
    figure = plots.tradeoff(named, direction="forward")
    (panel,) = figure.panels
    marks = (
        replace(mark, colour=mark.colour - len(levels), stroke="dashed")
        if isinstance(mark, Line) and mark.label.startswith("T_G")
        else mark
        for mark in panel.marks
        if not isinstance(mark, Marker)
    )
    return replace(figure, panels=(replace(panel, marks=tuple(marks)),), note="")


PICTURES: tuple[Callable[[], Figure], ...] = (
    course_two_worlds,
    course_one_apart,
    course_error_rates,
    course_median,
    course_densities,
    course_best_test,
    course_profiles,
    course_noise,
    course_growth,
    course_long_growth,
    course_order,
    course_bins,
)


def main(names: list[str]) -> None:
    for picture in PICTURES:
        if not names or file_name(picture).removesuffix(".svg") in names:
            draw(picture, FOLDER / file_name(picture))
            print(f"docs/pictures/{file_name(picture)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
