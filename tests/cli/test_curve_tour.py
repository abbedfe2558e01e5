"""The tour of curves shows code that gives the numbers it tells."""

from __future__ import annotations

import math
import re

from deniable import calibrate, curves
from deniable.cli import curve_tour
from deniable.curves.curve_display import rounded_up


def test_the_code_that_the_tour_shows_gives_the_numbers_that_it_tells() -> None:
    import deniable

    names: dict[str, object] = {"curves": curves, "deniable": deniable}
    for make in curve_tour.TOUR:
        step = make()
        *statements, last = step.code.splitlines()
        exec("\n".join(statements), names)
        value = eval(last, names)
        numbers = [float(n) for n in re.findall(r"\d+\.\d+|\d+", step.words)]
        for told in value if isinstance(value, tuple) else [value]:
            assert any(
                math.isclose(told, n, rel_tol=2e-4) or math.isclose(100 * told, n, rel_tol=2e-4) for n in numbers
            )


def test_the_calibration_of_the_tour_is_that_of_the_library() -> None:
    sigma = calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)
    assert f"σ = {rounded_up(sigma, 6)}" in curve_tour.noise_for().words


def test_rich_markup_in_the_words_is_harmless() -> None:
    assert curve_tour.Step("", "", "[a] [[1]] [/b]").text == r"\[a] [bold cyan]1[/] \[/b]"
