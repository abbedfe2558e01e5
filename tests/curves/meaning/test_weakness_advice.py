"""Advice where parameters are chosen: said once, at the line that chose, from declared numbers alone."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pandas as pd
import pytest

import deniable as dn
from deniable import curves, learn, local, mechanisms
from deniable.curves.meaning import weakness_advice
from deniable.errors import InvalidParameter, WeakPrivacyWarning

WEAK: dict[str, Callable[[], Any]] = {
    "budget delta": lambda: dn.Budget(epsilon=2, delta=0.5),
    "budget epsilon": lambda: dn.Budget(epsilon=11, delta=1e-6),
    "budget declared people": lambda: dn.Budget(epsilon=1, delta=1e-4, people=100_000),
    "pure budget": lambda: dn.Budget.pure(epsilon=11),
    "keys of a pure budget": lambda: dn.Budget.pure(epsilon=1, delta=0.01),
    "gaussian budget": lambda: dn.Budget.gaussian(mu=5),
    "zcdp budget": lambda: dn.Budget.zcdp(rho=12.5),
    "budget of one in the people": lambda: dn.Budget(epsilon=1, delta=1e-3, people=1000),
    "budget for few people": lambda: dn.Budget(epsilon=1, delta=0.5, people=1),
    "gaussian budget of epsilon 31": lambda: dn.Budget.gaussian(mu=4.6),
    "zcdp budget of epsilon 30": lambda: dn.Budget.zcdp(rho=10),
    "gaussian by mu": lambda: dn.Gaussian(sensitivity=1, mu=50),
    "gaussian by its noise": lambda: dn.Gaussian(sensitivity=1, sigma=0.01),
    "gaussian of reals by its noise": lambda: dn.Gaussian(sensitivity=1.5, sigma=0.01),
    "laplace by its noise": lambda: dn.Laplace(sensitivity=1, scale=0.01),
    "discrete laplace by its noise": lambda: dn.DiscreteLaplace(sensitivity=1, scale=Fraction(1, 100)),
    "discrete gaussian by rho": lambda: dn.DiscreteGaussian(sensitivity=1, rho=500),
    "discrete gaussian by its noise": lambda: dn.DiscreteGaussian(sensitivity=1, sigma=Fraction(1, 3)),
    "randomized response": lambda: local.RandomizedResponse(epsilon=50),
    "randomized response by its truth": lambda: local.RandomizedResponse(p=Fraction(99_999, 100_000)),
    "categories of one person": lambda: local.KaryRandomizedResponse(categories=4, epsilon=11),
    "a person's number": lambda: local.HybridMean(low=0, high=1, epsilon=11),
    "a person's text": lambda: local.HadamardSketch(width=16, hashes=4, epsilon=11),
    "gaussian": lambda: dn.Gaussian(sensitivity=1, epsilon=50, delta=0.5),
    "gaussian of whole numbers": lambda: dn.Gaussian.whole(sensitivity=1, epsilon=1, delta=0.5),
    "discrete gaussian": lambda: dn.DiscreteGaussian(sensitivity=1, epsilon=1, delta=0.5),
    "laplace with delta": lambda: dn.Laplace(sensitivity=1, epsilon=1, delta=0.5),
    "laplace": lambda: dn.Laplace(sensitivity=1, epsilon=11),
    "laplace by mu": lambda: dn.Laplace(sensitivity=1, mu=5),
    "exponential": lambda: dn.Exponential(sensitivity=1, epsilon=11),
    "sparse vector": lambda: dn.SparseVector(sensitivity=1, epsilon=11, threshold=0, positives=1),
    "staircase": lambda: mechanisms.Staircase(sensitivity=1, epsilon=11),
    "a histogram's noise": lambda: dn.Histogram(categories=(0, 1), unit=dn.Unit.row(), epsilon=11),
    "unlisted keys": lambda: mechanisms.UnknownKeys(unit=dn.Unit.row(), epsilon=1, delta=0.01),
    "a mean's noise": lambda: mechanisms.Mean(
        low=0.0, high=1.0, rows=100, unit=dn.Unit.replaced_row(), epsilon=1, delta=0.01
    ),
    "plan of training": lambda: learn.DPSGD(clip=1.0, batch_size=100, records=1000, steps=10).calibrate(
        epsilon=1, delta=0.002
    ),
    "output perturbation": lambda: learn.OutputPerturbation(lipschitz=1.0, regularisation=1.0).calibrate(
        epsilon=1, delta=0.01
    ),
}

USUAL: dict[str, Callable[[], Any]] = {
    "budget": lambda: dn.Budget(epsilon=10, delta=1e-3),
    "budget declared people": lambda: dn.Budget(epsilon=1, delta=1e-6, people=100_000),
    "gaussian": lambda: dn.Gaussian(sensitivity=1, epsilon=1, delta=1e-3),
    "gaussian by its noise": lambda: dn.Gaussian(
        sensitivity=1.0, sigma=dn.Gaussian(sensitivity=1.0, epsilon=10, delta=1e-6).sigma
    ),
    "gaussian budget": lambda: dn.Budget.gaussian(mu=1.84),
    "laplace by its noise": lambda: dn.Laplace(sensitivity=1, scale=Fraction(1, 10)),
    "randomized response": lambda: local.RandomizedResponse(epsilon=10),
    "telemetry that hardly flips": lambda: local.MemoisedMean(
        low=0, high=24, points=12, epsilon=1.0, flip=Fraction(1, 10**6)
    ),
    "plan of training": lambda: learn.DPSGD(clip=1.0, batch_size=100, records=1000, steps=10).calibrate(
        epsilon=1, delta=0.0001
    ),
}


def said(made: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made()
    return [each for each in caught if issubclass(each.category, WeakPrivacyWarning)]


@pytest.mark.parametrize("made", WEAK.values(), ids=WEAK)
def test_parameters_that_protect_little_passed_in_silence(made: Callable[[], Any]) -> None:
    [one] = said(made)
    assert one.filename == __file__  # the line that chose, not one of ours
    assert "protects little" in str(one.message)


@pytest.mark.parametrize("made", USUAL.values(), ids=USUAL)
def test_usual_parameters_are_taken_in_silence(made: Callable[[], Any]) -> None:
    assert said(made) == []


def test_both_faults_are_one_warning_with_its_numbers() -> None:
    [one] = said(lambda: dn.Gaussian(sensitivity=1, epsilon=50, delta=0.5))
    text = str(one.message)
    assert "e^50 = 5.1e+21" in text  # 5.1847...e21, rounded towards the milder number
    assert "delta 0.5" in text
    assert "500 of 1,000 people" in text
    assert math.isclose(math.exp(50), 5.1847055e21, rel_tol=1e-6)


@pytest.mark.parametrize("epsilon", [10.5, 12, 20, 300, 800, 10**6])
def test_the_odds_are_those_of_e_to_the_epsilon(epsilon: float) -> None:
    [text] = curves.weaknesses(epsilon=epsilon)
    times, power = text.split(" = ", 1)[1].split(",", 1)[0].split("e+")
    log = math.log(float(times)) + int(power) * math.log(10)
    assert log <= epsilon < log + math.log(1 + 0.11 / float(times)) + 1e-6
    assert f"wrong once in {times}e+{power}" in text


def test_delta_is_compared_with_a_tenth_of_one_in_the_people_declared_exactly() -> None:
    for people in (100, 1000, 10**9):
        assert curves.weaknesses(delta=Fraction(1, 10 * people), people=people) == ()
        [text] = curves.weaknesses(delta=Fraction(1, 10 * people) + Fraction(1, 10**12), people=people)
        assert f"n = {people:,} people" in text
    for people in (1, 3, 99):  # few people allow no more than any number of them
        assert curves.weaknesses(delta=Fraction(1, 1000), people=people) == ()
        [text] = curves.weaknesses(delta=Fraction(1, 1000) + Fraction(1, 10**12), people=people)
        assert "of 1,000 people" in text
    with pytest.raises(InvalidParameter, match="people"):
        curves.weaknesses(delta=0.5, people=0)


def test_a_mu_is_read_as_its_epsilon_at_the_usual_delta() -> None:
    """Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) at ε = 10 and 50 digits: at most 10⁻⁶ at the bar, more just above it."""
    with mpmath.workdps(50):
        for mu, weak in ((weakness_advice.MOST_MU, False), (weakness_advice.MOST_MU * (1 + 1e-9), True)):
            m, e = mpmath.mpf(mu), mpmath.mpf(10)
            delta = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
            assert (delta > mpmath.mpf(weakness_advice.USUAL_DELTA)) == weak
            assert bool(curves.weaknesses(mu=mu)) == weak


def test_a_place_says_it_once_and_is_silenced_by_name() -> None:
    code = (
        "import deniable as dn, warnings\n"
        "for _ in range(3): dn.Budget(epsilon=2, delta=.5)\n"
        "dn.Gaussian(sensitivity=1, epsilon=50, delta=.5)\n"
        "warnings.simplefilter('ignore', dn.errors.WeakPrivacyWarning)\n"
        "dn.Budget(epsilon=3, delta=.5)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split(":")[1] for line in found.stderr.splitlines() if "Weak" in line] == ["2", "3"]


def test_a_budget_that_is_read_back_says_nothing(tmp_path: Path) -> None:
    record = dn.Budget(epsilon=50, delta=0.5).to_dict()
    assert said(lambda: dn.Budget.from_dict(record)) == []
    assert dn.Budget.from_dict(record) == dn.Budget(epsilon=50, delta=0.5, people=10)  # people are not kept


def test_questions_say_it_in_prices_and_plans_and_never_as_a_warning() -> None:
    data = pd.DataFrame({"age": [30, 40, 50]})
    schema = {"age": dn.Domain.integer(0, 120)}
    question = "SELECT COUNT(*) AS n FROM data"
    for budget, weak in ((dn.Budget.pure(epsilon=100), True), (dn.Budget.pure(epsilon=1), False)):
        with dn.session({"data": data}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
            asked: dict[str, Any] = {}

            def ask(s: Any = s, asked: dict[str, Any] = asked) -> None:
                asked["price"] = s.price(question, share=0.5)
                s.sql(question, share=0.5)

            assert said(ask) == []
            price = asked["price"]
            for text in (str(price), s.explain(question), s.explain(price), dn.explain(price)):
                assert ("the budget's epsilon 100 protects little" in " ".join(text.split())) == weak


def test_the_size_of_a_private_table_decides_nothing() -> None:
    """Under add/remove it is as private as the rows: the same is said of three rows and of three thousand."""
    found = []
    for rows in (3, 3000):
        data = pd.DataFrame({"age": [30] * rows})
        made = said(
            lambda data=data: dn.session({"data": data}, unit=dn.Unit.row(), budget=dn.Budget(epsilon=1, delta=5e-4))
        )
        found.append([str(each.message) for each in made])
    assert found == [[], []]


@pytest.mark.parametrize(
    "plan",
    [
        lambda noise: learn.DPSGD(clip=1.0, rate=1.0, records=100, steps=1, noise=noise),
        lambda noise: learn.DPFTRL(clip=1.0, batch_size=10, records=100, epochs=1, bands=2, noise=noise),
        lambda noise: learn.ObjectivePerturbation(
            lipschitz=1.0, smoothness=0.25, regularisation=10.0, delta=1e-6, noise=noise
        ),
    ],
    ids=["DPSGD", "DPFTRL", "objective"],
)
def test_a_plan_explains_what_is_weak_about_it(plan: Callable[[float], Any]) -> None:
    assert "protects little" in plan(0.1).explain()
    assert "protects little" not in plan(20.0).explain()
