"""Attacks, the definition, and what it promises."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linprog, minimize_scalar

import deniable as dn
from deniable import attacks, audit, curves, mechanisms, plots
from deniable.attacks.reconstruction import nearest
from deniable.curves import textbook
from deniable.mechanisms import cautionary, small
from tests.lectures.independent import follows, laplace_pdf, sampled_gaussian_epsilon
from tests.lectures.item import Item
from tests.lectures.synthetic import synthetic_shares

FRUIT = ["apple", "pear", "apple", "orange"]
FRUITS_AND_SEX = {("apple", "f"): 3000, ("apple", "m"): 1000, ("pear", "f"): 2000, ("pear", "m"): 4000}
ROW, REPLACED = dn.Unit.row(), dn.Unit.replaced_row()


def _linear_programme() -> tuple[float, bool, bool]:
    asked, answers, bits = _questions_and_answers()
    point = nearest(asked, answers)
    # Measured: right 400 times of 400. If it is right 19 times of 20, 24 or fewer of 40 have probability below 1e-15.
    rate = attacks.LinearReconstruction(people=32, questions=128, seed=1).run(attacks.BoundedNoise(2), trials=40).rate
    return float(np.max(np.abs(asked @ point - answers))), bool(np.mean((point > 0.5) == bits) >= 0.9), rate > 0.6


def _questions_and_answers() -> tuple[Any, Any, Any]:
    chance = np.random.default_rng(7)
    asked = chance.integers(0, 2, (128, 32))
    bits = chance.integers(0, 2, 32)
    return asked, asked @ bits + chance.integers(-2, 3, 128), bits == 1


def _linear_programme_by_hand() -> tuple[float, bool, bool]:
    """The dual: the largest y·a - Σ max(0, (yA)_j) over Σ|y| <= 1, which no primal solver can fake."""
    asked, answers, _ = _questions_and_answers()
    m, n = asked.shape
    # Variables: y⁺, y⁻ (m each), z (n) with z >= yA, z >= 0.
    cost = np.concatenate([-answers, answers, np.ones(n)])
    limits = np.vstack(
        [
            np.concatenate([np.ones(2 * m), np.zeros(n)]),
            np.hstack([asked.T, -asked.T, -np.eye(n)]),
        ]
    )
    solved = linprog(cost, A_ub=limits, b_ub=np.concatenate([[1.0], np.zeros(n)]), bounds=(0, None), method="highs")
    return -float(solved.fun), True, True


def _most_wrong(people: int, error: int) -> int:
    """Over all pairs of bits that agree on every subset sum to within 2E: the most places in which they differ."""
    subsets = np.array(list(itertools.product([0, 1], repeat=people)))
    sums = subsets @ subsets.T
    together = np.max(np.abs(sums[:, :, None] - sums[:, None, :]), axis=0) <= 2 * error
    differ = np.abs(subsets[:, None, :] - subsets[None, :, :]).sum(axis=2)
    return int(np.max(differ[together]))


SCOREBOARD = attacks.Scoreboard(people=60, items=80, seed=3)


def _scores() -> tuple[list[float], bool]:
    items, stars = np.array([5, 17, 40]), np.array([4, 2, 5])
    return SCOREBOARD.scores(items, stars).tolist(), SCOREBOARD.found(trials=100) > 0.8


def _scores_by_hand() -> tuple[list[float], bool]:
    table = SCOREBOARD.stars
    scores = []
    for record in table:
        score = 0.0
        for item, known in ((5, 4), (17, 2), (40, 5)):
            raters = sum(1 for other in table if other[item] > 0)
            if record[item] > 0:
                score += math.exp(-abs(int(record[item]) - known) / 1.5) / math.log(max(raters, 2) + 1)
        scores.append(score)
    return scores, True


def _membership() -> tuple[float, bool]:
    attack = attacks.StatisticsMembership(people=100, rates=[0.5] * 1000)
    predicted = attack.large_sample_rate(None)
    # 1,000 rounds: a deviation of 0.06 is 8 standard errors.
    return predicted, abs(attack.run(trials=1000).rate - predicted) < 0.06


def _alices_classes() -> set[str]:
    a = {"AIDS", "Heart Disease", "Viral Infection"}
    b = {"AIDS", "Tuberculosis", "Flu", "Cancer"}
    return a & b


def _two_releases() -> float:
    attack = attacks.Intersection(size=4, chance=0.25, releases=2)
    counts = mechanisms.Histogram(categories=[0, 1], unit=REPLACED, epsilon=1.0)
    return attack.seen(counts).epsilon(delta=0)


PLACES = range(-5, 7)


def _worlds() -> list[list[float]]:
    figure = plots.laws(dn.DiscreteLaplace(sensitivity=1, epsilon=1.0), 0, 1)
    drawn = [dict(zip(map(round, stems.x), stems.heights, strict=True)) for stems in figure.panels[0].marks[:2]]
    return [[heights[z] for z in PLACES] for heights in drawn]


def _worlds_by_hand() -> list[list[float]]:
    q = math.exp(-1)
    return [[(1 - q) / (1 + q) * q ** abs(z - centre) for z in PLACES] for centre in (0, 1)]


def _session() -> Any:
    table = pd.DataFrame({"fruit": FRUIT})
    schema = {"fruit": dn.Domain.text("apple", "orange", "pear", nullable=False)}
    return dn.session({"likes": table}, unit=ROW, budget=dn.Budget.pure(epsilon=1.0), schema=schema)


QUESTIONS = [f"SELECT COUNT(*) AS n FROM likes WHERE fruit = '{fruit}'" for fruit in ("apple", "pear", "orange")]


def _third_is_refused() -> list[str]:
    with _session() as session:
        said = []
        for question in QUESTIONS:
            try:
                session.sql(question, epsilon=0.4)
                said.append("answered")
            except dn.errors.BudgetExceeded:
                said.append("refused")
        return said


def _batch() -> tuple[int, bool]:
    with _session() as session:
        answers = session.batch(QUESTIONS[:2], epsilon=0.5)
        try:
            session.sql(QUESTIONS[2], epsilon=0.6)
            return len(answers), False
        except dn.errors.BudgetExceeded:
            return len(answers), True


def _by_sql() -> bool:
    """Noise of scale at most 2 exceeds 60 with probability e^-30."""
    with _session() as session:
        rows = session.sql("SELECT fruit, COUNT(*) AS n FROM likes GROUP BY fruit", epsilon=1.0).rows
    truth = Counter(FRUIT)
    return set(truth) == {fruit for fruit, _ in rows} and all(abs(n - truth[fruit]) <= 60 for fruit, n in rows)


def _training() -> tuple[float, bool]:
    import torch
    from torch import nn

    from deniable.learn.torch import Trainer

    torch.manual_seed(1)
    x = torch.randn(400, 4)
    y = (x[:, 0] + x[:, 1] > 0).long()
    model = nn.Linear(4, 2)
    plan = dn.learn.DPSGD(clip=1.0, noise=2.0, batch_size=100, records=400, epochs=3)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=1.0), plan, (x, y))
    for features, labels in trainer:
        trainer.backward(nn.functional.cross_entropy(model(features), labels, reduction="none"))
    return trainer.curve.epsilon(delta=1e-5), trainer.finished


def _largest_moves_of_counts() -> list[int]:
    """Over all lists of three letters: one letter added, one letter replaced."""

    def gap(one: str, two: str) -> int:
        return sum(abs(one.count(letter) - two.count(letter)) for letter in "abc")

    lists = ["".join(letters) for letters in itertools.product("abc", repeat=3)]
    return [max(gap(x, x + y) for x in lists for y in "abc"), max(gap(x, x[:2] + y) for x in lists for y in "abc")]


def _warned(*, epsilon: float, delta: float) -> bool:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dn.Budget(epsilon=epsilon, delta=delta)
    return any(issubclass(each.category, dn.errors.WeakPrivacyWarning) for each in said)


def _definition() -> tuple[bool, bool]:
    noisy = dn.Laplace(sensitivity=1.0, epsilon=1.0)
    fair = audit.measure(noisy, neighbours=(0.0, 1.0), trials=4000, confidence=1 - 1e-9)
    broken = audit.measure(noisy, neighbours=(0.0, 4.0), trials=4000, confidence=1 - 1e-9)
    return fair.refuted, broken.refuted


def _two_worlds_figure() -> tuple[bool, bool, float, float]:
    figure = plots.laws(dn.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, 1.0)
    worlds, ratio = figure.panels
    without, with_her = worlds.lines["on 0.0"], worlds.lines["on 1.0"]
    told = ratio.lines["log-ratio"].y
    return (
        follows(without, lambda y: laplace_pdf(y, 0, 1), within=1e-6),
        follows(with_her, lambda y: laplace_pdf(y, 1, 1), within=1e-6),
        max(told),
        min(told),
    )


def _largest_move_of_a_belief(epsilon: float) -> float:
    """Two hypotheses; their odds in the two posteriors differ by at most a factor e^(2ε)."""

    def move(log_odds: float) -> float:
        return 1 / (1 + math.exp(-log_odds - 2 * epsilon)) - 1 / (1 + math.exp(-log_odds))

    return -float(minimize_scalar(lambda t: -move(t), bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}).fun)


ITEMS: tuple[Item, ...] = (
    Item(
        id="1.01",
        title="Too many too accurate answers are blatantly non-private",
        api="attacks.Reconstruction",
        ours=lambda: attacks.Reconstruction(people=32, questions=64, seed=1).run(trials=200).rate,
        truth=1.0,
    ),
    Item(
        id="1.02",
        title="Linear decoding with errors below √n",
        api="attacks.LinearReconstruction, attacks.BoundedNoise",
        ours=_linear_programme,
        truth=_linear_programme_by_hand,
        within=1e-7,
    ),
    Item(
        id="1.03",
        title="All 2ⁿ subset sums within E: at most 4E bits are wrong",
        api="attacks.ExhaustiveReconstruction.wrong_bits",
        ours=lambda: [attacks.ExhaustiveReconstruction(people=6).wrong_bits(error=e) for e in (0, 1)],
        truth=lambda: [_most_wrong(6, 0), _most_wrong(6, 1)],
    ),
    Item(
        id="1.04",
        title="Linkage of sparse ratings (IMDB to Netflix)",
        api="attacks.Scoreboard",
        ours=_scores,
        truth=_scores_by_hand,
    ),
    Item(
        id="1.05",
        title="Membership inference from averages",
        api="attacks.StatisticsMembership",
        ours=_membership,
        truth=lambda: (0.5 * math.erfc(-math.sqrt(1000 / 99) / 2 / math.sqrt(2)), True),
    ),
    Item(
        id="1.06",
        title="The first hospital's table is 4-anonymous",
        api="attacks.anonymity, attacks.HOSPITAL_A",
        ours=lambda: attacks.anonymity(attacks.HOSPITAL_A, quasi=["zip", "age"]).k,
        truth=4,
    ),
    Item(
        id="1.07",
        title="The second hospital's table is 6-anonymous",
        api="attacks.anonymity, attacks.HOSPITAL_B",
        ours=lambda: attacks.anonymity(attacks.HOSPITAL_B, quasi=["zip", "age"]).k,
        truth=6,
    ),
    Item(
        id="1.08",
        title="The composition attack on Alice",
        api="attacks.candidates",
        ours=lambda: attacks.candidates(
            (attacks.HOSPITAL_A, {"zip": "130**", "age": "<30"}),
            (attacks.HOSPITAL_B, {"zip": "130**", "age": "<35"}),
            secret="condition",
        ),
        truth=_alices_classes,
    ),
    Item(
        id="1.09",
        title="Composition degrades gracefully: two noisy releases cost 2ε",
        api="attacks.Intersection, mechanisms.Histogram",
        ours=_two_releases,
        truth=2.0,
    ),
    Item(
        id="1.10",
        title="The two worlds of an integer answer",
        api="plots.laws, DiscreteLaplace",
        ours=_worlds,
        truth=_worlds_by_hand,
    ),
    Item(
        id="F.11",
        title="Figure: two worlds that look alike",
        api="plots.laws, Laplace",
        ours=_two_worlds_figure,
        truth=(True, True, 1.0, -1.0),
        within=1e-6,
    ),
    Item(
        id="1.11",
        title="The curator, asked one question after the other",
        api="session, Budget.pure, errors.BudgetExceeded",
        ours=_third_is_refused,
        truth=["answered", "answered", "refused"],
        slow=True,
    ),
    Item(
        id="1.12",
        title="All queries at once",
        api="queries.Session.batch",
        ours=_batch,
        truth=(2, True),
        slow=True,
    ),
    Item(
        id="1.13",
        title="Synthetic data",
        api="queries.Session.synthesize",
        ours=lambda: synthetic_shares(FRUITS_AND_SEX),
        truth=lambda: [counts / 10_000 for counts in FRUITS_AND_SEX.values()],
        within=0.01,
    ),
    Item(
        id="1.14",
        title="Training a model",
        api="learn.DPSGD, learn.torch.Trainer",
        ours=_training,
        truth=lambda: (sampled_gaussian_epsilon(sigma=2.0, rate=0.25, steps=12, delta=1e-5), True),
        within=1e-3,
        slow=True,
        needs="torch",
    ),
    Item(
        id="1.15",
        title="A dataset as a histogram",
        api="Histogram.count",
        ours=lambda: dn.Histogram(categories=["apple", "pear", "orange"], unit=ROW, epsilon=1.0).count(FRUIT).tolist(),
        truth=lambda: [FRUIT.count(fruit) for fruit in ("apple", "pear", "orange")],
    ),
    Item(
        id="1.15b",
        title="The same histogram by SQL",
        api="queries.Session.sql",
        ours=_by_sql,
        truth=True,
        slow=True,
    ),
    Item(
        id="1.16",
        title="The distance of two datasets",
        api="mechanisms.small.distance",
        ours=lambda: small.distance(FRUIT, ["apple", "apple", "kiwi"], unit=ROW),
        truth=lambda: sum(abs(FRUIT.count(f) - [*"aak"].count(f[0])) for f in ("apple", "pear", "orange", "kiwi")),
    ),
    Item(
        id="1.17",
        title="Rows added or removed, rows replaced",
        api="Sensitivity.histogram, Unit.row, Unit.replaced_row",
        ours=lambda: [dn.Sensitivity.histogram(unit).l1 for unit in (dn.Unit.row(), dn.Unit.replaced_row())],
        truth=_largest_moves_of_counts,
    ),
    Item(
        id="1.18",
        title="Definition 2.4 put to the test on a mechanism",
        api="audit.measure",
        ours=_definition,
        truth=(False, True),
    ),
    Item(
        id="1.19",
        title="Parameters that protect little are warned of",
        api="errors.WeakPrivacyWarning, Budget",
        ours=lambda: [_warned(epsilon=e, delta=d) for e, d in ((1.0, 1e-6), (1.0, 0.5), (50.0, 1e-6))],
        truth=[False, True, True],
    ),
    Item(
        id="1.20",
        title="Name and shame is (0, 1/n)-private",
        api="mechanisms.cautionary.NameAndShame",
        ours=lambda: cautionary.NameAndShame(records=1000).curve.delta(epsilon=0.0),
        truth=float(Fraction(1, 1000)),
    ),
    Item(
        id="1.21",
        title="How far one record moves a posterior",
        api="curves.textbook.posterior_shift, curves.textbook.as_printed",
        ours=lambda: (
            textbook.posterior_shift(epsilon=1),
            textbook.as_printed.posterior_shift(epsilon=0).printed,
            textbook.as_printed.posterior_shift(epsilon=0).right,
        ),
        truth=lambda: (_largest_move_of_a_belief(1.0), math.exp(-0.0), _largest_move_of_a_belief(0.0)),
    ),
    Item(
        id="1.22",
        title="Side information: any prior",
        api="curves.Curve.posterior, curves.textbook.posterior_bound",
        ours=lambda: [
            curves.pure(epsilon=1.0).posterior(prior=0.2, delta=0.0),
            textbook.posterior_bound(prior=0.5, epsilon=1),
        ],
        truth=[0.2 * math.e / (0.8 + 0.2 * math.e), math.e / (1 + math.e)],
    ),
    Item(
        id="1.24",
        title="Small groups: kε",
        api="curves.Curve.group",
        ours=lambda: curves.pure(epsilon=0.125).group(size=4).epsilon(delta=0),
        truth=4 * 0.125,
    ),
    Item(
        id="1.25",
        title="ε as a multiplier of risk",
        api="curves.textbook.risk_bound",
        ours=lambda: textbook.risk_bound(risk=0.05, epsilon=math.log(3), delta=0),
        truth=3 * 0.05,
    ),
)
