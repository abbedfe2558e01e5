"""Differential privacy: the definition, what it means for tests, and its properties."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction

import mpmath
import numpy as np
from scipy import stats

import deniable as dn
from deniable import curves, local, noise, plots
from deniable.curves import textbook
from deniable.mechanisms import Parallel, small
from tests.lectures.independent import follows, laplace_pdf, sampled_gaussian_epsilon
from tests.lectures.item import Item
from tests.lectures.psl.introduction import HALF, coins

ROW, REPLACED = dn.Unit.row(), dn.Unit.replaced_row()
LOG = [
    ("18:02:21", "uid11", "192.168.0.12", "close"),
    ("18:02:34", "uid54", "192.168.0.66", "close"),
    ("18:03:03", "uid27", "192.168.0.32", "open"),
    ("19:10:21", "uid11", "192.168.0.66", "open"),
    ("19:11:25", "uid27", "192.168.0.32", "close"),
]


def nu(share: Fraction) -> local.NuRandomizedResponse:
    return local.NuRandomizedResponse(nu=share)


def _replayed() -> tuple[bool, bool]:
    mechanism = dn.Laplace(sensitivity=1.0, epsilon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        once, again, other = (mechanism.release(0.0, entropy=noise.ReplayEntropy(seed)) for seed in (3, 3, 4))
    return once == again, once == other


def _largest_log_ratio(p: list[float], q: list[float]) -> float:
    """Over all events, both ways."""
    worst = 0.0
    for event in itertools.product([0, 1], repeat=len(p)):
        one, two = (sum(m for m, inside in zip(law, event, strict=True) if inside) for law in (p, q))
        if one and two:
            worst = max(worst, abs(math.log(one / two)))
    return worst


def _survey_of_three() -> float:
    """The largest log-ratio of whole outputs over all neighbouring datasets of three answers."""

    def chance(data: tuple[int, ...], out: tuple[int, ...]) -> float:
        return math.prod((0.25 + x / 2) if y else (0.75 - x / 2) for x, y in zip(data, out, strict=True))

    bits = list(itertools.product([0, 1], repeat=3))
    return max(
        math.log(chance(x, out) / chance(y, out))
        for x in bits
        for y in bits
        if sum(a != b for a, b in zip(x, y, strict=True)) == 1
        for out in bits
    )


def _laws() -> tuple[bool, bool, bool, float]:
    figure = plots.laws(dn.Laplace(sensitivity=1.0, epsilon=0.5), 0.0, 1.0)
    left, right = figure.panels
    ratio = right.lines["log-ratio"]
    expected = (np.abs(np.asarray(ratio.x) - 1) - np.abs(np.asarray(ratio.x))) / 2
    band = next(mark for mark in right.marks if type(mark).__name__ == "ShadedBand")
    return (
        follows(left.lines["on 0.0"], lambda y: laplace_pdf(y, 0, 2), within=1e-6),
        follows(left.lines["on 1.0"], lambda y: laplace_pdf(y, 1, 2), within=1e-6),
        bool(np.max(np.abs(np.asarray(ratio.y) - expected)) < 1e-6),
        band.high[0],
    )


def _rates() -> tuple[bool, bool, float, float]:
    """ROC and DET of N(0, 1) against N(1, 1): hits Φ(1 + z), and a straight line in normal deviates."""
    roc, det = (plots.tradeoff(curves.gaussian(mu=1.0), form=form).panels[0] for form in ("roc", "det"))
    line = roc.lines["gaussian(sigma=1)"]
    hits = stats.norm.cdf(stats.norm.ppf(np.asarray(line.x)[1:-1]) + 1)
    deviates = det.lines["gaussian(sigma=1)"]
    dot = next(mark for mark in roc.marks if type(mark).__name__ == "Marker")
    return (
        bool(np.max(np.abs(np.asarray(line.y)[1:-1] - hits)) < 1e-3),
        bool(np.max(np.abs(np.asarray(deviates.y) + np.asarray(deviates.x) + 1)) < 1e-2),
        dot.x,
        dot.y,
    )


def _kink() -> tuple[list[float], list[float], float]:
    panel = plots.tradeoff(curves.pure(epsilon=2.0)).panels[0]
    line = panel.lines["pure(epsilon=2)"]
    dot = next(mark for mark in panel.marks if type(mark).__name__ == "Marker")
    return list(line.x), list(line.y), dot.x


def _kink_by_hand() -> tuple[list[float], list[float], float]:
    corner = 1 / (1 + math.exp(2))
    return [0.0, corner, 1.0, 1.0], [1.0, corner, 0.0, 0.0], corner


def _parts() -> list[dn.DiscreteLaplace]:
    return [dn.DiscreteLaplace(sensitivity=1, epsilon=e) for e in (0.3, 0.7)]


def _adaptive() -> tuple[float, int]:
    first = dn.Laplace(sensitivity=1.0, epsilon=0.4)
    both = first.followed_by(
        lambda seen: dn.Laplace(sensitivity=1.0, epsilon=0.6 if seen[0] > 0 else 0.3),
        curve=curves.pure(epsilon=0.6),
    )
    return both.curve.epsilon(delta=0), len(both.release(5.0))


def _flipped_twice() -> float:
    """P(1 | 1) and P(1 | 0) after both coins, in fractions."""
    kept, again = Fraction(3, 4), Fraction(9, 10)
    one = kept * again + (1 - kept) * (1 - again)
    zero = (1 - kept) * again + kept * (1 - again)
    return math.log(one / zero)


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.19",
        title="A mechanism as a function φ(x, U) of data and chance",
        api="noise.ReplayEntropy",
        ours=_replayed,
        truth=(True, False),
    ),
    Item(
        id="0.20",
        title="Noisy evaluation f(x) + Z, E Z = 0",
        api="Laplace.law",
        ours=lambda: [
            dn.Laplace(sensitivity=1.0, epsilon=1.0).law(3.0).mean,
            dn.Laplace(sensitivity=1.0, epsilon=1.0).law(3.0).variance,
        ],
        truth=[3.0, 2.0],
    ),
    Item(
        id="0.21",
        title="Neighbouring datasets: one record replaced",
        api="Unit.replaced_row, mechanisms.small.distance",
        ours=lambda: [
            dn.Unit.replaced_row().row_changes,
            small.distance([0, 1, 1], [0, 0, 1], unit=dn.Unit.replaced_row()),
        ],
        truth=[2, sum(a != b for a, b in zip([0, 1, 1], [0, 0, 1], strict=True))],
    ),
    Item(
        id="0.22",
        title="ε-differential privacy of a finite mechanism",
        api="curves.from_pmf",
        ours=lambda: curves.from_pmf([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]).epsilon(delta=0),
        truth=lambda: _largest_log_ratio([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]),
    ),
    Item(
        id="0.23",
        title="ε-differential privacy of densities",
        api="curves.from_density",
        ours=lambda: curves.from_density(
            lambda y: laplace_pdf(y, 0, 2),
            lambda y: laplace_pdf(y, 1, 2),
            support=(-80, 80),
            breaks=(0, 1),
            largest_loss=0.5,
        ).epsilon(delta=0),
        truth=0.5,
    ),
    Item(
        id="F.01",
        title="Figure: two densities and their log-ratio within ±ε",
        api="plots.laws",
        ours=_laws,
        truth=(True, True, True, 0.5),
        within=1e-7,
    ),
    Item(
        id="0.24",
        title="Randomized response of n records is log(3)-private",
        api="local.TwoCoinSurvey.curve",
        ours=lambda: coins().curve.epsilon(delta=0),
        truth=_survey_of_three,
    ),
    Item(
        id="0.26",
        title="Structured data: all rows of a user",
        api="Unit.person",
        ours=lambda: dn.Unit.person("uid", rows=2).row_changes,
        truth=lambda: max(sum(1 for line in LOG if line[1] == user) for user in {line[1] for line in LOG}),
    ),
    Item(
        id="0.27",
        title="False positives, false negatives, equal error rate",
        api="curves.Curve.equal_error_rate",
        ours=lambda: curves.gaussian(mu=1.0).equal_error_rate(),
        truth=lambda: float(mpmath.ncdf(mpmath.mpf(-1) / 2)),
    ),
    Item(
        id="0.28",
        title="The power of the best test",
        api="curves.Curve.tpr",
        ours=lambda: curves.gaussian(mu=1.0).tpr(fpr=0.05),
        truth=lambda: float(stats.norm.sf(stats.norm.isf(0.05) - 1)),
    ),
    Item(
        id="F.02",
        title="Figure: error rates of a test, and its ROC form",
        api="plots.tradeoff",
        ours=_rates,
        truth=lambda: (True, True, float(stats.norm.cdf(-0.5)), float(stats.norm.cdf(0.5))),
    ),
    Item(
        id="0.29",
        title="No test of an ε-DP answer errs less than 1/(1 + e^ε)",
        api="curves.textbook.equal_error_rate_bound",
        ours=lambda: textbook.equal_error_rate_bound(epsilon=1, delta=0),
        truth=1 / (1 + math.e),
    ),
    Item(
        id="0.29b",
        title="The same bound from the curve",
        api="curves.pure",
        ours=lambda: curves.pure(epsilon=1.0).equal_error_rate(),
        truth=1 / (1 + math.e),
    ),
    Item(
        id="F.03",
        title="Figure: the trade-off of ε-DP and its equal error rate",
        api="plots.tradeoff",
        ours=_kink,
        truth=_kink_by_hand,
    ),
    Item(
        id="0.30",
        title="ν-randomized response",
        api="local.NuRandomizedResponse",
        ours=lambda: [nu(HALF).support.other, nu(HALF).support.other + nu(HALF).support.gap],
        truth=[(1 - 0.5) / 2, (1 - 0.5) / 2 + 0.5],
    ),
    Item(
        id="0.31",
        title="It is log((1 + ν)/(1 - ν))-private",
        api="local.NuRandomizedResponse.curve",
        ours=lambda: nu(Fraction(1, 5)).curve.epsilon(delta=0),
        truth=math.log(1.2 / 0.8),
    ),
    Item(
        id="0.31b",
        title="At most 2ν/(1 - ν)",
        api="curves.textbook.nu_response_bound, curves.textbook.nu_response_epsilon",
        ours=lambda: [
            textbook.nu_response_bound(nu=0.2),
            textbook.nu_response_epsilon(nu=0.2),
            all(textbook.nu_response_epsilon(nu=k / 50) <= textbook.nu_response_bound(nu=k / 50) for k in range(1, 50)),
        ],
        truth=[2 * 0.2 / 0.8, math.log(1.2 / 0.8), True],
    ),
    Item(
        id="0.32",
        title="Its risk over a population",
        api="local.NuRandomizedResponse.population_variance",
        ours=lambda: nu(HALF).population_variance(share=0.3, people=1000),
        truth=0.4 * 0.6 / (1000 * 0.25),
    ),
    Item(
        id="0.32b",
        title="Its estimator has 1/(nν), not 1/(nν²)",
        api="local.NuRandomizedResponse.estimate, curves.textbook.as_printed",
        ours=lambda: [
            nu(HALF).estimate([1, 1, 1, 1, 0, 0, 0, 0, 0, 0]).value,
            textbook.as_printed.randomized_response_estimate(nu=0.5, share=0.4).printed,
            textbook.as_printed.randomized_response_estimate(nu=0.5, share=0.4).right,
        ],
        truth=[0.4 / 0.5 - 0.5, 0.4 / 0.25 - 0.5, 0.4 / 0.5 - 0.5],
    ),
    Item(
        id="0.33",
        title="Its accuracy for the people who answered",
        api="local.NuRandomizedResponse.variance",
        ours=lambda: nu(HALF).variance(share=0.3, people=1000),
        truth=sum(((1 - 0.5) / 2 + 0.5 * x) * ((1 + 0.5) / 2 - 0.5 * x) for x in [1] * 300 + [0] * 700)
        / (1000**2 * 0.25),
    ),
    Item(
        id="0.34",
        title="Post-processing",
        api="mechanisms.Mechanism.then, curves.Curve.then",
        ours=lambda: [
            dn.Laplace(sensitivity=1.0, epsilon=0.5).then(abs).curve.epsilon(delta=0),
            curves.laplace(scale=2.0).then().epsilon(delta=0),
        ],
        truth=[0.5, 0.5],
        within=1e-7,
    ),
    Item(
        id="0.34b",
        title="A randomized answer randomized again",
        api="curves.Kernel.then",
        ours=lambda: (
            curves.Kernel.of([[0.75, 0.25], [0.25, 0.75]])
            .then(curves.Kernel.of([[0.9, 0.1], [0.1, 0.9]]))
            .curve.epsilon(delta=0)
        ),
        truth=_flipped_twice,
    ),
    Item(
        id="0.35",
        title="Group privacy: kε",
        api="curves.textbook.group_privacy",
        ours=lambda: textbook.group_privacy(epsilon=0.125, size=4),
        truth=0.5,
    ),
    Item(
        id="0.35b",
        title="Group privacy of a curve",
        api="curves.Curve.group",
        ours=lambda: curves.pure(epsilon=0.1).group(size=3).epsilon(delta=0),
        truth=0.3,
    ),
    Item(
        id="0.36",
        title="Composition: ε₁ + ε₂",
        api="curves.product, curves.pure",
        ours=lambda: [
            (curves.pure(epsilon=0.3) * curves.pure(epsilon=0.7)).epsilon(delta=0),
            curves.product([curves.pure(epsilon=0.3), curves.pure(epsilon=0.7)]).epsilon(delta=0),
        ],
        truth=lambda: [_largest_log_ratio(*_two_surveys())] * 2,
    ),
    Item(
        id="0.37",
        title="Parallel composition: the larger ε",
        api="mechanisms.Parallel.by_value, curves.textbook.parallel_composition_replaced",
        ours=lambda: [
            Parallel.by_value(_parts(), unit=ROW).curve.epsilon(delta=0),
            Parallel.by_value(_parts(), unit=REPLACED).curve.epsilon(delta=0),
            textbook.parallel_composition_replaced(epsilons=[0.3, 0.7]),
        ],
        truth=[0.7, 0.3 + 0.7, 0.3 + 0.7],
    ),
    Item(
        id="0.37b",
        title="Blocks fixed by the place of a record",
        api="mechanisms.Parallel.by_unit",
        ours=lambda: Parallel.by_unit(_parts(), unit=REPLACED).curve.epsilon(delta=0),
        truth=0.7,
    ),
    Item(
        id="0.38",
        title="Adaptive composition",
        api="mechanisms.Mechanism.followed_by",
        ours=_adaptive,
        truth=(0.4 + 0.6, 2),
        within=1e-7,
    ),
    Item(
        id="0.39",
        title="DP-SGD: a recursive algorithm, composed",
        api="learn.DPSGD",
        ours=lambda: dn.learn.DPSGD(clip=1.0, noise=1.0, batch_size=100, records=10_000, steps=1000).curve.epsilon(
            delta=1e-5
        ),
        truth=lambda: sampled_gaussian_epsilon(sigma=1.0, rate=0.01, steps=1000, delta=1e-5),
        within=5e-4,
        slow=True,
    ),
)


def _two_surveys() -> tuple[list[float], list[float]]:
    """Both reports of randomized response at ε = 0.3 and at 0.7, on a yes and on a no."""
    kept = [math.exp(e) / (1 + math.exp(e)) for e in (0.3, 0.7)]
    yes = [a * b for a in (kept[0], 1 - kept[0]) for b in (kept[1], 1 - kept[1])]
    no = [a * b for a in (1 - kept[0], kept[0]) for b in (1 - kept[1], kept[1])]
    return yes, no
