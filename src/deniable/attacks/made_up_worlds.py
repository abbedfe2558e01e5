"""Synthetic data to attack: the tables of two hospitals, and people drawn from simple distributions.

None of these people exists. `population` uses the sizes of US ZIP code areas. For results about real people, give an
attack a table of real people.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments

HOSPITAL_A: Final[dict[str, tuple[str, ...]]] = {
    "zip": ("130**",) * 12,
    "age": ("<30",) * 4 + ("≥40",) * 4 + ("3*",) * 4,
    "condition": (
        "AIDS",
        "Heart Disease",
        "Viral Infection",
        "Viral Infection",
        "Cancer",
        "Heart Disease",
        "Viral Infection",
        "Viral Infection",
        *("Cancer",) * 4,
    ),
}
"""A 4-anonymous table of twelve patients (Ganta, Kasiviswanathan & Smith 2008)."""

HOSPITAL_B: Final[dict[str, tuple[str, ...]]] = {
    "zip": ("130**",) * 12,
    "age": ("<35",) * 6 + ("≥35",) * 6,
    "condition": (
        "AIDS",
        "Tuberculosis",
        "Flu",
        "Tuberculosis",
        "Cancer",
        "Cancer",
        "Cancer",
        "Cancer",
        "Cancer",
        "Tuberculosis",
        "Viral Infection",
        "Viral Infection",
    ),
}
"""A 6-anonymous table of another hospital's patients. Alice, 28, of ZIP code 13012, is in both."""

DAYS: Final = 28_855
"""Days in 79 years. Birth dates are uniform over them."""

MEDIAN, SPREAD = 2800.0, 1.55
"""Parameters of a log-normal distribution of residents per ZIP code area: median 2,800 and mean 9,300, about as in the
US census of 2010 (some 33,000 areas, 309 million people)."""


def area_sizes(areas: int, *, seed: int) -> NDArray[np.int64]:
    """Numbers of residents of made-up ZIP code areas, at least 1 each."""
    chance = np.random.default_rng(seed)
    drawn = chance.lognormal(np.log(MEDIAN), SPREAD, size=curve_arguments.integer("areas", areas, 1))
    return np.maximum(1, np.rint(np.minimum(drawn, 120_000))).astype(np.int64)


def population(*, areas: int, seed: int) -> dict[str, NDArray[Any]]:
    """Made-up people with sex, birth (a day, 0 to 28,854) and zip (the number of an area), drawn independently.

    >>> people = population(areas=3, seed=1)
    >>> sorted(people)
    ['birth', 'sex', 'zip']
    """
    sizes = area_sizes(areas, seed=curve_arguments.integer("seed", seed, 0))
    chance = np.random.default_rng([seed, 1])
    total = int(sizes.sum())
    return {
        "sex": chance.integers(0, 2, size=total),
        "birth": chance.integers(0, DAYS, size=total),
        "zip": np.repeat(np.arange(areas), sizes),
    }


def traits(*, people: int, features: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Made-up people with standard normal features and a yes-or-no label that depends on the first three of them."""
    chance = np.random.default_rng(seed)
    x = chance.standard_normal(
        (curve_arguments.integer("people", people, 1), curve_arguments.integer("features", features, 1))
    )
    leaning = x[:, : min(3, features)].sum(axis=1)
    return x, chance.random(len(x)) < 1 / (1 + np.exp(-leaning))
