"""Private metrics: scikit-learn's numbers, with noise that the ledger pays for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.learn import private_metrics
from deniable.tables import Domain

COUNT = 3000


def scored(seed=0, count=COUNT):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    score = 1 / (1 + np.exp(-rng.normal(1.2 * (label - 0.5), 1)))
    return pd.DataFrame(
        {
            "a label": label,
            "score": score,
            "predicted": (score > 0.5).astype(int),
            "loss": -np.log(np.where(label == 1, score, 1 - score)),
        }
    )


def opened(frame, **budget):
    schema = {
        "a label": Domain.integer(0, 1, nullable=False),
        "score": Domain.real(0, 1),
        "predicted": Domain.integer(0, 1, nullable=False),
        "loss": Domain.real(),
    }
    paid = dn.Budget(epsilon=30, delta=1e-6) if not budget else dn.Budget.pure(**budget)
    return dn.session({"scored": frame}, unit=dn.Unit.row(), budget=paid, schema=schema)


@pytest.mark.parametrize("budget", [{}, {"epsilon": 30}], ids=["Gaussian", "pure"])
def test_intervals_contain_what_scikit_learn_computes(budget):
    """At confidence 1 - 10⁻¹⁰ for each of the seven numbers: a false alarm of less than 10⁻⁹."""
    frame, sure = scored(), {"epsilon": 4, "confidence": 1 - 1e-10}
    named = {"label": "a label", "prediction": "predicted"}
    with opened(frame, **budget) as session:
        right = private_metrics.accuracy(session, "scored", **named, **sure)
        table = private_metrics.confusion_matrix(session, "scored", **named, **sure)
        loss = private_metrics.mean_loss(session, "scored", loss="loss", most=2.0, **sure)
        found = private_metrics.auroc(session, "scored", label="a label", score="score", **sure)
        assert sum(entry.state.name == "RESERVED" for entry in session.ledger.entries()) == 4
    exact = metrics.accuracy_score(frame["a label"], frame["predicted"])
    assert right.interval("accuracy")[0][0] <= exact <= right.interval("accuracy")[0][1]
    assert abs(right.value - exact) < 0.02
    cells = metrics.confusion_matrix(frame["a label"], frame["predicted"])
    for label, predicted, (low, high) in zip(table["a label"], table["predicted"], table.interval("n"), strict=True):
        assert low <= cells[label, predicted] <= high
    assert len(table) == 4
    clipped = np.minimum(frame["loss"], 2.0).mean()
    assert loss.interval("loss")[0][0] <= clipped <= loss.interval("loss")[0][1]
    area = metrics.roc_auc_score(frame["a label"], frame["score"])
    assert found.low <= area <= found.high
    assert abs(found.value - area) < 0.03
    assert "AUROC 0.7" in str(found) or "AUROC 0.8" in str(found)
    assert found.answer.receipt.entry == 4


@pytest.mark.parametrize("bins", [2, 7, 64])
def test_without_noise_bins_hide_at_most_what_is_said(bins):
    """Against all pairs, by scikit-learn; with few bins the bound is large and holds."""
    frame = scored(1, 500)
    places = np.minimum((frame["score"] * bins).astype(int), bins - 1)
    counts = [np.bincount(places[frame["a label"] == kind], minlength=bins).astype(float) for kind in (1, 0)]
    value, (low, high), noise, rounding = private_metrics.area(*counts, 0.0, 0.95)
    area = metrics.roc_auc_score(frame["a label"], frame["score"])
    assert value == pytest.approx(metrics.roc_auc_score(frame["a label"], places))
    assert noise == 0.0
    assert low <= area <= high
    assert high - low <= 2 * rounding + 1e-12


@pytest.mark.parametrize("deviation", [3.0, 12.0, 25.0])
def test_the_standard_error_is_that_of_the_noise(deviation):
    """4000 draws of normal noise around fixed counts: the spread of the estimates is the stated standard error within
    10 %, and 95 % intervals without the part for bins hold the value of the bins at least 93 % of the time."""
    rng = np.random.default_rng(2)
    bins = 32
    positive, negative = rng.poisson(60 * np.linspace(0.2, 1.8, bins)), rng.poisson(60 * np.linspace(1.8, 0.2, bins))
    exact = private_metrics.area(positive.astype(float), negative.astype(float), 0.0, 0.95)[0]
    drawn = []
    for _ in range(4000):
        noisy = [each + rng.normal(0, deviation, bins) for each in (positive, negative)]
        value, _, noise, _ = private_metrics.area(*noisy, deviation, 0.95)
        drawn.append((value, noise))
    values, errors = np.array(drawn).T
    assert np.std(values) == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.1)
    assert np.mean(np.abs(values - exact) <= 1.96 * errors) > 0.93


def test_too_few_rows_for_the_noise_give_no_value():
    frame = scored(3, 40)
    with opened(frame) as session:
        found = private_metrics.auroc(session, "scored", label="a label", score="score", epsilon=0.1)
    assert found.value is None
    assert (found.low, found.high) == (0.0, 1.0)
    assert "unknown" in str(found)


def test_labels_may_be_texts_and_scores_have_other_ends():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"kind": np.where(rng.random(2000) < 0.5, "it's", "no"), "z": rng.normal(0, 1, 2000)})
    schema = {"kind": Domain.text("it's", "no"), "z": Domain.real()}
    with dn.session(
        {"t": frame}, unit=dn.Unit.row(), budget=dn.Budget(epsilon=30, delta=1e-6), schema=schema
    ) as session:
        asked = {"label": "kind", "score": "z", "scores": (-3.0, 3.0), "positive": "it's", "epsilon": 8}
        found = private_metrics.auroc(session, "t", **asked, confidence=1 - 1e-10)
    assert found.low <= metrics.roc_auc_score(frame["kind"] == "it's", frame["z"]) <= found.high


@pytest.mark.parametrize(
    "given", [{"scores": (1.0, 0.0)}, {"bins": 1}, {"positive": 1.5}, {"label": ""}, {"score": None}, {"bins": 2.5}]
)
def test_wrong_arguments_are_refused_before_anything_is_paid(given):
    with opened(scored(5, 50)) as session:
        with pytest.raises(InvalidParameter):
            private_metrics.auroc(session, "scored", **{"label": "a label", "score": "score", "epsilon": 1, **given})
        assert not list(session.ledger.entries())
        with pytest.raises(InvalidParameter):
            private_metrics.mean_loss(session, "scored", loss="loss", most=0.0, epsilon=1)
