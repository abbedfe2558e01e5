"""Randomized response, the Laplace mechanism, and many linear queries."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np

import deniable as dn
from deniable import local, plots
from deniable.curves import textbook
from deniable.mechanisms import LinearQueries, linear, small
from tests.lectures.independent import follows, laplace_pdf
from tests.lectures.item import Item

ROW, REPLACED = dn.Unit.row(), dn.Unit.replaced_row()


def _sensitivities() -> list[float]:
    """Grades in a class; people by zip code, race and gender; beds in use, three stays to a person; a linear query."""
    weights = np.random.default_rng(1).uniform(size=(1, 50))
    return [
        dn.Sensitivity.histogram(ROW).l1,
        dn.Sensitivity.histogram(REPLACED).l1,
        dn.Sensitivity.histogram(dn.Unit.person("patient", rows=3)).l1,
        LinearQueries.laplace(weights=np.ones_like(weights), epsilon=1.0).error(confidence=0.95),
    ]


def _brute_force() -> list[float]:
    def counts(data: tuple[str, ...]) -> list[int]:
        return [data.count(grade) for grade in "ABC"]

    def moves(steps: int) -> int:
        """The largest L1 move of three counts when one person's rows, at most `steps` of them, come or go."""
        return max(sum(rows) for rows in itertools.product(range(steps + 1), repeat=3) if sum(rows) <= steps)

    added = [
        sum(abs(a - b) for a, b in zip(counts(data), counts((*data, new)), strict=True))
        for data in itertools.product("ABC", repeat=2)
        for new in "ABC"
    ]
    replaced = [
        sum(abs(a - b) for a, b in zip(counts(data), counts((new, *data[1:])), strict=True))
        for data in itertools.product("ABC", repeat=3)
        for new in "ABC"
    ]
    return [max(added), max(replaced), moves(3), math.log(1 / 0.05) / 50]


def _histograms() -> list[float]:
    return [
        small.sensitivity(lambda d: [d.count(g) for g in "ABC"], domain="ABC", rows=3, unit=unit).l1
        for unit in (ROW, REPLACED)
    ]


def _densities() -> bool:
    scales = (1.0, 2.0, 4.0)
    figure = plots.density(*(dn.Laplace(sensitivity=b, epsilon=1.0) for b in scales))
    lines = list(figure.panels[0].lines.values())
    return len(lines) == 3 and all(
        follows(line, lambda y, b=b: laplace_pdf(y, 0, b), within=1e-6) for line, b in zip(lines, scales, strict=True)
    )


def _answers() -> tuple[int, bool]:
    """k = 3 answers about 200 bits; with probability 1 - 1e-9 all are within the bound at that β."""
    chance = np.random.default_rng(5)
    weights, bits = chance.uniform(size=(3, 200)), chance.integers(0, 2, 200)
    near = linear.laplace_error(queries=3, people=200, epsilon=1.0, beta=1e-9)
    found = LinearQueries.laplace(weights=weights, epsilon=1.0).release(bits)
    return len(found), bool(np.max(np.abs(found - weights @ bits / 200)) <= near)


PEOPLE = 10_000
REGIMES = {"k = 10": 10, "k = 100": 100, "k = 1000": 1000, "k = n": PEOPLE}


def _regimes() -> dict[str, list[float]]:
    return {
        name: [
            linear.laplace_error(queries=k, people=PEOPLE, epsilon=1.0, beta=0.05),
            linear.randomized_response_error(queries=k, people=PEOPLE, epsilon=1.0, beta=0.05),
        ]
        for name, k in REGIMES.items()
    }


def _regimes_by_hand() -> dict[str, list[mpmath.mpf]]:
    with mpmath.workdps(30):
        e, n, beta = mpmath.e, mpmath.mpf(PEOPLE), mpmath.mpf("0.05")
        return {
            name: [
                k / n * mpmath.log(k / beta),
                (e + 1) / (e - 1) * mpmath.sqrt(mpmath.log(2 * k / beta) / (2 * n)),
            ]
            for name, k in REGIMES.items()
        }


def _hoeffding() -> list[float]:
    return [textbook.hoeffding_tail(count=100, width=1, deviation=0.1) * 2, _exact_tail()]


def _exact_tail() -> float:
    """P(|mean - 1/2| >= 0.1) of 100 fair bits, in whole numbers: what the inequality bounds."""
    far = sum(math.comb(100, k) for k in range(101) if abs(k - 50) >= 10)
    return float(Fraction(far, 2**100))


ITEMS: tuple[Item, ...] = (
    Item(
        id="1.26",
        title="Randomized response keeps an answer with p = e^ε/(1 + e^ε)",
        api="local.RandomizedResponse.p",
        ours=lambda: local.RandomizedResponse(epsilon=1.0).p,
        truth=math.e / (1 + math.e),
    ),
    Item(
        id="1.27",
        title="RR(p) is log(p/(1 - p))-private",
        api="local.RandomizedResponse.curve",
        ours=lambda: local.RandomizedResponse(p=0.75).curve.epsilon(delta=0),
        truth=math.log(3),
    ),
    Item(
        id="1.28",
        title="Each person's unbiased estimate",
        api="local.RandomizedResponse.estimate",
        ours=lambda: [local.RandomizedResponse(p=0.75).estimate([y]).value for y in (0, 1)],
        truth=lambda: [
            float(Fraction(1, 2) + (y - Fraction(1, 2)) / (2 * (Fraction(3, 4) - Fraction(1, 2)))) for y in (0, 1)
        ],
    ),
    Item(
        id="1.29",
        title="Its variance is e^ε/(e^ε - 1)²",
        api="local.RandomizedResponse.variance",
        ours=lambda: local.RandomizedResponse(epsilon=1.0).variance(share=0.5, people=1),
        truth=math.e / (math.e - 1) ** 2,
    ),
    Item(
        id="1.30",
        title="The Laplace mechanism for k numbers",
        api="Laplace",
        ours=lambda: [
            float(dn.Laplace(sensitivity=2.0, epsilon=0.5, dimension=3).scale),
            dn.Laplace(sensitivity=2.0, epsilon=0.5, dimension=3).curve.epsilon(delta=0),
        ],
        truth=[2.0 / 0.5, 0.5],
        within=1e-7,
    ),
    Item(
        id="1.31",
        title="Figure: Laplace densities of several scales",
        api="plots.density",
        ours=_densities,
        truth=True,
    ),
    Item(
        id="1.32",
        title="The distribution function of Laplace noise",
        api="Laplace.law",
        ours=lambda: [float(dn.Laplace(sensitivity=2.0, epsilon=1.0).law(0.0).cdf(x)) for x in (-1.0, 1.0)],
        truth=[math.exp(-0.5) / 2, 1 - math.exp(-0.5) / 2],
    ),
    Item(
        id="1.33",
        title="Theorem 3.8: the largest of k errors",
        api="Laplace.error",
        ours=lambda: dn.Laplace(sensitivity=1.0, epsilon=1.0, dimension=10).error(confidence=0.95),
        truth=lambda: float(-mpmath.log(1 - mpmath.mpf("0.95") ** (mpmath.mpf(1) / 10))),
        within=1e-8,
    ),
    Item(
        id="1.34",
        title="A linear query has sensitivity 1/n",
        api="mechanisms.LinearQueries.laplace, mechanisms.small.sensitivity",
        ours=lambda: [
            LinearQueries.laplace(weights=np.ones((1, 1000)), epsilon=1.0).error(confidence=0.95),
            small.sensitivity(lambda d: sum(d) / 4, domain=[0, 1], rows=4, unit=REPLACED).l1,
        ],
        truth=[math.log(20) / 1000, 1 / 4],
        within=1e-7,
    ),
    Item(
        id="1.35",
        title="Histograms: 1 for a row added, 2 for a row replaced",
        api="mechanisms.small.sensitivity",
        ours=_histograms,
        truth=lambda: _brute_force()[:2],
    ),
    Item(
        id="E.02",
        title="Exercise: the sensitivities of four examples",
        api="Sensitivity.histogram, Unit.person, mechanisms.LinearQueries",
        ours=_sensitivities,
        truth=_brute_force,
        within=1e-7,
    ),
    Item(
        id="1.36",
        title="k linear queries by Laplace noise",
        api="mechanisms.linear.laplace_error",
        ours=lambda: linear.laplace_error(queries=10, people=1000, epsilon=1.0, beta=0.05),
        truth=lambda: 10 / 1000 * math.log(10 / 0.05),
    ),
    Item(
        id="1.37",
        title="From an error to a number of people",
        api="mechanisms.linear.sample_size",
        ours=lambda: dict(linear.sample_size(queries=1, error=0.05, epsilon=1.0, beta=0.05)),
        truth=lambda: {
            "laplace": math.ceil(math.log(20) / 0.05),
            "randomized_response": math.ceil(math.log(40) / (2 * 0.05**2 * math.tanh(0.5) ** 2)),
        },
    ),
    Item(
        id="1.38",
        title="One linear query by randomized response",
        api="mechanisms.linear.randomized_response_error",
        ours=lambda: linear.randomized_response_error(queries=1, people=1000, epsilon=1.0, beta=0.05),
        truth=lambda: (math.e + 1) / (math.e - 1) * math.sqrt(math.log(2 / 0.05) / 2000),
    ),
    Item(
        id="1.39",
        title="Hoeffding's inequality",
        api="curves.textbook.hoeffding_tail",
        ours=lambda: (_hoeffding()[0], _hoeffding()[0] >= _hoeffding()[1]),
        truth=(2 * math.exp(-2), True),
    ),
    Item(
        id="1.40",
        title="Randomized response against Laplace noise",
        api="mechanisms.linear.errors, mechanisms.linear.best",
        ours=lambda: [
            linear.randomized_response_error(queries=10, people=1000, epsilon=1.0, beta=0.05),
            type(linear.best(weights=np.ones((1, 400)), epsilon=1.0, confidence=0.95)).__name__,
            type(linear.best(weights=np.ones((3000, 400)), epsilon=1.0, confidence=0.95)).__name__,
        ],
        truth=lambda: [
            (math.e + 1) / (math.e - 1) * math.sqrt(math.log(20 / 0.05) / 2000),
            "NoisyAnswers",
            "NoisyBits",
        ],
    ),
    Item(
        id="1.40b",
        title="The answers themselves",
        api="mechanisms.LinearQueries.laplace",
        ours=_answers,
        truth=(3, True),
    ),
    Item(
        id="E.03",
        title="Exercise: budget, noise, error, people, by Laplace noise",
        api="mechanisms.linear.sample_size",
        ours=lambda: linear.sample_size(queries=100, error=0.05, epsilon=1.0, beta=0.05)["laplace"],
        truth=lambda: math.ceil(100 * math.log(100 / 0.05) / 0.05),
    ),
    Item(
        id="E.04",
        title="Exercise: the same by randomized response",
        api="mechanisms.linear.sample_size",
        ours=lambda: linear.sample_size(queries=100, error=0.05, epsilon=1.0, beta=0.05)["randomized_response"],
        truth=lambda: math.ceil(math.log(200 / 0.05) * ((math.e + 1) / (math.e - 1)) ** 2 / (2 * 0.05**2)),
    ),
    Item(
        id="1.41",
        title="The final table: accuracy and number of queries",
        api="mechanisms.linear.laplace_error, mechanisms.linear.randomized_response_error",
        ours=_regimes,
        truth=_regimes_by_hand,
    ),
)
