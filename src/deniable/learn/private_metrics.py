"""Private metrics of a model: accuracy, confusion matrix, mean loss and AUROC, as questions to a session.

Predictions are columns of a table: one row for each record, with its label and the prediction of the model. The session
charges its ledger, adds noise and gives intervals, as for any other question; these functions only formulate the
question. So a metric of private test data can be published, and the model's own guarantee stays as it was: the metric
is another release about the records of that table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter, type_of

if TYPE_CHECKING:
    from deniable.curves.filters import Amount
    from deniable.queries.answer.answer import Answer
    from deniable.queries.plan.pricing import Near
    from deniable.queries.session import Session

__all__ = ["Auroc", "MetricCost", "accuracy", "auroc", "confusion_matrix", "mean_loss"]

BINS: Final = 64
"""More bins round scores less and add more noise."""

Floats = NDArray[np.float64]


class MetricCost(TypedDict, total=False):
    """The cost of a metric: keywords of `Session.ask`, of which exactly one is an amount."""

    epsilon: Amount
    mu: Amount
    rho: Amount
    share: Amount
    within: Near
    delta: Amount
    confidence: float


def accuracy(session: Session, table: str, *, label: str, prediction: str, **cost: Unpack[MetricCost]) -> Answer:
    """The share of rows whose label is the prediction, with a noise interval: one answer, in column `accuracy`.

    A row without a label or a prediction counts as wrong.
    """
    right = f"AVG(CASE WHEN {_name(label)} = {_name(prediction)} THEN 1 ELSE 0 END)"
    return session.ask(f"SELECT {right} AS accuracy FROM {_name(table)}", **cost)


def confusion_matrix(
    session: Session, table: str, *, label: str, prediction: str, **cost: Unpack[MetricCost]
) -> Answer:
    """The number of rows with each label and prediction, each with a noise interval, in column `n`.

    Declare the classes as public keys of both columns: then all pairs are shown, also those without rows.
    """
    keys = f"{_name(label)}, {_name(prediction)}"
    return session.ask(f"SELECT {keys}, COUNT(*) AS n FROM {_name(table)} GROUP BY {keys}", **cost)


def mean_loss(session: Session, table: str, *, loss: str, most: float, **cost: Unpack[MetricCost]) -> Answer:
    """The average of the losses, each clipped to [0, most], with a noise interval: one answer, in column `loss`.

    `most` must not be chosen from the data. The answer is about clipped losses: larger ones count as `most`.
    """
    bound = curve_arguments.positive("most", most)
    return session.ask(f"SELECT AVG(LEAST(GREATEST({_name(loss)}, 0), {bound!r})) AS loss FROM {_name(table)}", **cost)


@final
@dataclass(frozen=True, slots=True)
class Auroc:
    """The area under the ROC curve of the rows of a table, from noisy histograms of scores."""

    value: float | None
    """The estimate; None if the noise hides how many rows of a class there are."""
    low: float
    high: float
    """The ends of the interval for the value without noise and without bins, at `confidence`."""
    confidence: float
    noise: float
    """The standard error that is due to noise."""
    rounding: float
    """The largest effect of the bins: half the share of pairs (positive, negative) whose scores share a bin."""
    answer: Answer
    """The noisy histograms, with their receipt and guarantee."""

    def __str__(self) -> str:
        level = f"{100 * self.confidence:g} % interval {self.low:.3f} to {self.high:.3f}"
        return f"AUROC unknown; {level}" if self.value is None else f"AUROC {self.value:.3f}; {level}"


def auroc(
    session: Session,
    table: str,
    *,
    label: str,
    score: str,
    positive: bool | int | str = 1,
    scores: tuple[float, float] = (0.0, 1.0),
    bins: int = BINS,
    **cost: Unpack[MetricCost],
) -> Auroc:
    """The probability that a positive row has a higher score than a negative one; equal scores count half.

    Counts rows by class and by `bins` equal bins of the score between the ends of `scores`, with noise; scores outside
    are counted in the first and last bin. Rows whose label is not `positive` are negative. From the noisy counts p and
    n it is Σ_b p_b (Σ_{a<b} n_a + n_b/2)/(Σp Σn). The interval adds the noise, by the delta method with the variance of
    its products, which is approximate, and the largest effect of the bins, a bound that is rarely reached, as pairs
    within a bin are nearly even. It covers the AUROC of the rows of the table, not of the population that they come
    from.
    """
    low, high = (curve_arguments.number("scores", each) for each in scores)
    if not low < high:
        raise InvalidParameter("scores", scores, "must be (lowest, highest)", "write scores=(0.0, 1.0)")
    count = curve_arguments.integer("bins", bins, 2)
    inside = f"LEAST(GREATEST({_name(score)}, {low!r}), {high!r})"
    place = f"LEAST(FLOOR(({inside} - {low!r}) / {(high - low) / count!r}), {count - 1})"
    kind = f"CASE WHEN {_name(label)} = {_literal(positive)} THEN 1 ELSE 0 END"
    asked = f"SELECT {kind} AS positive, {place} AS bin, COUNT(*) AS n FROM {_name(table)} GROUP BY positive, bin"
    answer = session.ask(asked, **cost)
    counts = np.zeros((2, count))
    for is_positive, bin_, number in zip(answer["positive"], answer["bin"], answer["n"], strict=True):
        if is_positive is not None and bin_ is not None and number is not None:  # rows without a score have no bin
            counts[int(str(is_positive)), int(float(str(bin_)))] = float(str(number))
    deviation = answer.released.deviation(answer.plan, answer.budget, 0)
    value, ends, noise, rounding = area(counts[1], counts[0], deviation, answer.confidence)
    return Auroc(value, *ends, answer.confidence, noise, rounding, answer)


def area(
    positive: Floats, negative: Floats, deviation: float, confidence: float
) -> tuple[float | None, tuple[float, float], float, float]:
    """(area, interval, standard error of noise, largest effect of the bins), from counts with independent noise."""
    bins, z = len(positive), NormalDist().inv_cdf((1 + confidence) / 2)
    p, n = float(positive.sum()), float(negative.sum())
    if min(p, n) <= 2 * z * deviation * math.sqrt(bins):
        return None, (0.0, 1.0), math.inf, 0.5
    below = np.cumsum(negative) - negative / 2
    above = p - (np.cumsum(positive) - positive / 2)
    found = float(positive @ below) / (p * n)
    slopes = np.concatenate([below / (p * n) - found / p, above / (p * n) - found / n])
    # Noise times noise: Σ_b x_b (Σ_{a<b} y_a + y_b/2) has the variance σ⁴ (B(B - 1)/2 + B/4).
    products = (deviation**2 / (p * n)) ** 2 * (bins * (bins - 1) / 2 + bins / 4)
    noise = math.sqrt(deviation**2 * float(slopes @ slopes) + products)
    rounding = min(0.5, float(np.maximum(positive, 0) @ np.maximum(negative, 0)) / (2 * p * n))
    reach = z * noise + rounding
    return min(1.0, max(0.0, found)), (max(0.0, found - reach), min(1.0, found + reach)), noise, rounding


def _name(column: str) -> str:
    """A name in double quotes, so that any name can be asked for."""
    if not isinstance(column, str) or not column:
        raise InvalidParameter("column", type_of(column), "must be the name of a column or table")
    return '"' + column.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise InvalidParameter("positive", type_of(value), "must be a label: a whole number, a text, or True or False")
