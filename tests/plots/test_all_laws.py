"""`plots.laws` of every mechanism and protocol: drawn, and against laws that are worked out another way."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import deniable
from deniable import Unit, audit, curves, local, mechanisms, plots
from deniable.curves import Curve
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import Mechanism, cautionary, graphs
from deniable.mechanisms.distinguishing_parts import Losses, joined, outcomes
from deniable.mechanisms.mechanism import Processed
from deniable.plots.figure_spec import Level, Line, Stems
from deniable.plots.output_figures import _parts
from tests.audit import cases
from tests.plots.test_curve_figures import only
from tests.testing import ours
from tests.wording import worded

ROW, REPLACED = Unit.row(), Unit.replaced_row()
Pair = tuple[Any, Any]
SMOKES_TEA = {"smokes": True, "drink": "tea"}, {"smokes": False, "drink": "milk"}


def _bare(mechanism: Any) -> Any:
    """The mechanism or the protocol itself: without what makes an audit or a check of it easier."""
    while True:
        if isinstance(mechanism, Processed) and hasattr(mechanism.mechanism, "protocol"):
            mechanism = mechanism.mechanism
        elif hasattr(mechanism, "protocol") or hasattr(mechanism, "table"):
            mechanism = getattr(mechanism, "protocol", None) or mechanism.table
        else:
            return mechanism


def _every() -> dict[str, tuple[Any, Pair]]:
    found = {name: (_bare(mechanism), pair) for name, (mechanism, pair, _) in ours.OURS.items()}
    for case in cases.cases():
        bare = _bare(case.mechanism)
        pair = SMOKES_TEA if isinstance(bare, local.TableResponse) else case.neighbours
        found[f"{case.name}, audited"] = bare, pair
    counts = mechanisms.Histogram(categories=["a", "b"], unit=REPLACED, epsilon=1.0)
    found["shares"] = counts.shares(), (["a"], ["b"])
    found["what is made of several parts"] = counts.then(max), (["a"], ["b"])
    found["a statistic of several numbers"] = counts.on(list), ("a", "b")
    found["a product of a product"] = (ours.SOUND * ours.SOUND) ** 3, (0, 1)
    found["nothing at all"] = ours.SOUND**0, (0, 1)
    found["many bits"] = local.OptimizedUnary(categories=40, epsilon=1.0), (0, 1)
    found["many categories"] = local.KaryRandomizedResponse(categories=2000, epsilon=1.0), (0, 1)
    found["many subsets"] = local.SubsetSelection(categories=100, epsilon=1.0), (0, 1)
    found["a hybrid that is all bits"] = local.HybridMean(low=0, high=1, epsilon=0.5), (0.0, 1.0)
    found["bounds as they are by default"] = mechanisms.Bounds(unit=ROW, epsilon=1.0), ([1.5] * 20, [1.5] * 21)
    return found


EVERY = _every()
ROOMS: dict[str, Any] = {
    "mechanisms": mechanisms,
    "graphs": graphs,
    "cautionary": cautionary,
    "local": local,
    "front door": deniable,
}
ABSTRACT = {"Mechanism", "Protocol", "SharesProtocol"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_mechanism_is_left_out(room: str) -> None:
    """Every public class that releases or randomizes anything, and a new one too."""
    public = {name: getattr(ROOMS[room], name) for name in ROOMS[room].__all__ if name != "server"}
    wanted = {
        name: found
        for name, found in public.items()
        if isinstance(found, type)
        and hasattr(found, "curve")
        and (hasattr(found, "release") or hasattr(found, "randomize"))
    }
    assert len(wanted) >= 3
    seen = {type(mechanism) for mechanism, _ in EVERY.values()}
    assert {n for n, kind in wanted.items() if not any(issubclass(one, kind) for one in seen)} - ABSTRACT == set()


def pair_of(mechanism: Any, x: Any, x2: Any) -> tuple[Any, Any]:
    """The masses of outcomes on two values, as they are drawn."""
    found = joined(_parts(mechanism, x, x2))
    return (found.one, found.two) if isinstance(found, Losses) else outcomes(found.one, found.two)


def log_ratio(p: Any, q: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.log(p) - np.log(q))[np.maximum(p, q) > 1e-12]


def delta(p: Any, q: Any, epsilon: float) -> float:
    grown = math.exp(epsilon)
    return float(max(np.sum(np.maximum(p - grown * q, 0)), np.sum(np.maximum(q - grown * p, 0))))


@pytest.mark.parametrize("name", EVERY)
def test_the_laws_of_every_mechanism_are_drawn(name: str) -> None:
    """They were refused for 30 of these. Masses add up, the log-ratio keeps to ±ε, and no event beats the curve."""
    mechanism, (x, x2) = EVERY[name]
    figure = plots.laws(mechanism, x, x2, false_alarms=0.1)
    assert len(figure.panels) == 2
    assert "The best test with at most 0.1 false alarms" in figure.note
    assert "not neighbours" not in figure.note
    for panel in figure.panels:
        for mark in panel.marks:
            if isinstance(mark, Stems | Line):
                heights = mark.heights if isinstance(mark, Stems) else mark.y
                assert np.all(np.isfinite(heights))
                assert panel.x.low <= min(mark.x, default=0) <= max(mark.x, default=0) <= panel.x.high
                assert panel.y.low <= min(heights, default=0) <= max(heights, default=0) <= panel.y.high
    p, q = pair_of(mechanism, x, x2)
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert q.sum() == pytest.approx(1, abs=1e-9)
    claimed = mechanism.curve.epsilon(delta=0.0)
    assert np.max(np.abs(log_ratio(p, q)), initial=0.0) <= claimed + 1e-9
    for epsilon in (0.0, 0.5, 2.0):
        assert delta(p, q, epsilon) <= mechanism.curve.delta(epsilon=epsilon) + 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_what_is_drawn_agrees_with_the_audits_laws(name: str) -> None:
    """The audit writes laws down from the definitions, for itself. Where it knows one, the pairs are the same."""
    mechanism, (x, x2) = EVERY[name]
    try:
        true = audit.exact(mechanism, neighbours=(x, x2))
    except (InvalidOperation, InvalidParameter):
        assert name in BY_HAND or name in UNKNOWN_TO_BOTH
        return
    p, q = pair_of(mechanism, x, x2)
    for epsilon in (0.0, 0.3, 1.0):
        assert delta(p, q, epsilon) == pytest.approx(true.delta(epsilon=epsilon), rel=1e-7, abs=1e-9)
    if math.isfinite(true.epsilon(delta=0.0)):
        assert np.max(np.abs(log_ratio(p, q)), initial=0.0) == pytest.approx(true.epsilon(delta=0.0), abs=1e-9)


def laplaces(*moves: float) -> Curve:
    """Laplace noise on several real numbers that move by so many scales."""
    return curves.product(curves.laplace(scale=1 / abs(move)) for move in moves)


def geometrics(scale: float, *moves: int) -> Curve:
    return curves.product(curves.discrete_laplace(scale=scale, sensitivity=abs(move)) for move in moves)


def pmf(one: dict[Any, float], two: dict[Any, float]) -> Curve:
    every = dict.fromkeys((*one, *two))
    return curves.from_pmf([one.get(y, 0.0) for y in every], [two.get(y, 0.0) for y in every])


def adaptive(first: float, second: Callable[[int], float]) -> Curve:
    """Two discrete Laplace answers about 0 and 1, the scale of the second by the first."""

    def law(value: int) -> dict[Any, float]:
        def mass(y: int, scale: float) -> float:
            return math.tanh(0.5 / scale) * math.exp(-abs(y - value) / scale)

        # Beyond 0 and 1 the ratio does not change: what is beyond 50 scales is left out on both sides alike.
        reach = range(-200, 202)
        found: dict[Any, float] = {}
        for a, b in product(reach, reach):
            place = (min(max(a, 0), 1), second(a), min(max(b, 0), 1))
            found[place] = found.get(place, 0.0) + mass(a, first) * mass(b, second(a))
        total = sum(found.values())
        return {place: each / total for place, each in found.items()}

    return pmf(law(0), law(1))


def bounds(mechanism: mechanisms.Bounds, x: Any, x2: Any) -> Curve:
    """Which bins are kept, all 2^bins of them, and the ends of the outermost."""
    laws = []
    for rows in (x, x2):
        least = mechanism.noise.error(confidence=mechanism.confidence)
        r = math.exp(-1 / float(mechanism.noise.width))
        law: dict[Any, float] = {}
        kept = []
        for count in mechanism.count(rows).tolist():
            z = math.floor(least - count) + 1  # the least noise that lifts the count above
            kept.append(r**z / (1 + r) if z >= 1 else 1 - r ** (1 - z) / (1 + r))
        for bins in product((False, True), repeat=len(kept)):
            ends = [i for i, is_kept in enumerate(bins) if is_kept]
            shown = (mechanism._end(ends[0], -1), mechanism._end(ends[-1], 1)) if ends else None
            mass = math.prod(p if is_kept else 1 - p for p, is_kept in zip(kept, bins, strict=True))
            law[shown] = law.get(shown, 0.0) + mass
        laws.append(law)
    return pmf(*laws)


def scale_of(name: str) -> float:
    return float(EVERY[name][0].noise.width * EVERY[name][0].noise.spacing)


ROOT = np.array([1, 1 / 2, 3 / 8, 5 / 16])
"""Of (1 - x)^(-1/2)."""

BY_HAND: dict[str, Callable[[], Curve]] = {
    "Laplace on floats": lambda: laplaces(1),
    "Laplace, real, audited": lambda: laplaces(1),
    "Gaussian on floats": lambda: curves.gaussian(mu=2),
    "Gaussian, real, audited": lambda: curves.gaussian(mu=1),
    "Adaptive": lambda: adaptive(1 / 3, lambda y: 1.0 if y > 0 else 2.0),
    "Adaptive, audited": lambda: adaptive(2.0, lambda y: 2.0 if y <= 0 else 4.0),
    # The third step is in the blocks 3 and 1..4; the first in 1, 1..2 and 1..4.
    "TreeCounter": lambda: geometrics(3 / 4, 1, 1),
    "TreeCounter, audited": lambda: geometrics(3.0, 1, 1, 1),
    "FactorisedCounter": lambda: curves.gaussian(mu=3 * math.hypot(*ROOT[:2]) / math.hypot(*ROOT)),
    "FactorisedCounter, audited": lambda: curves.gaussian(mu=1),
    "LinearQueries": lambda: laplaces(2, 2),
    "LinearQueries, audited": lambda: laplaces(0.5, 0.5),
    "LinearQueries by Gaussian noise": lambda: curves.gaussian(mu=3),
    "LinearQueries by randomized response": lambda: curves.randomized_response(epsilon=3.0),
    "Sum": lambda: geometrics(2.0, 2),
    "Sum, audited": lambda: geometrics(10.0, 10),
    # A row at the lower bound moves one of the two sums, by all of its width.
    "Mean": lambda: laplaces(4),
    "Mean, audited": lambda: laplaces(1),
    "Variance": lambda: laplaces(12),
    "Variance, audited": lambda: laplaces(1 / scale_of("Variance, audited")),
    "Bounds": lambda: bounds(*_asked("Bounds")),
    "Bounds, audited": lambda: bounds(*_asked("Bounds, audited")),
    "EdgeCount": lambda: geometrics(2.0, 2),
    "EdgeCount, audited": lambda: geometrics(2.0, 2),
    # Without its middle a star of three, of which two edges are kept, has the degrees 0, 0, 0.
    "DegreeSequence": lambda: geometrics(1.0, 1, 1, 2),
    "DegreeSequence, audited": lambda: geometrics(2.0, 1, 1),
    "DegreeHistogram": lambda: geometrics(5 / 4, 2, 2, 1),
    "DegreeHistogram, audited": lambda: geometrics(4.0, 2, 2),
    "Catastrophe": lambda: cautionary.Catastrophe(ours.SOUND, statistic=sum, delta=0.1).curve,
    "NameAndShame": lambda: curves.approximate(epsilon=0, delta=0.25),
    "Subsampling": lambda: curves.approximate(epsilon=0, delta=0.25),
    "TableResponse, audited": lambda: (
        curves.randomized_response(epsilon=0.5) * curves.randomized_response(epsilon=0.5, categories=3)
    ),
    "MemoisedMean": lambda: pmf(ours.memoised_law(0.0), ours.memoised_law(1.0)),  # type: ignore[arg-type]
    "MemoisedMean, audited": lambda: pmf(ours.memoised_law(0.0), ours.memoised_law(1.0)),  # type: ignore[arg-type]
    "shares": lambda: geometrics(2.0, 1, 1),
    "what is made of several parts": lambda: geometrics(2.0, 1, 1),
    "BinaryMedian": lambda: curves.randomized_response(epsilon=1.0),
    "BinaryMedian, audited": lambda: curves.randomized_response(epsilon=0.5),
    "PiecewiseExponential": lambda: pmf(
        *map(ours.OURS["PiecewiseExponential"][2]["law"], EVERY["PiecewiseExponential"][1])
    ),
    "TopK": lambda: pmf(*map(ours.OURS["TopK"][2]["law"], EVERY["TopK"][1])),
    "Gaussian floored": lambda: pmf(*({y: ours.floored(2)(v)(y) for y in range(-60, 61)} for v in (0.3, 1.3))),
}
UNKNOWN_TO_BOTH = {
    "Staircase on floats",
    "Staircase, real, audited",
    "Quantile",
    "Quantile, audited",
    "Median",
    "Median, audited",
    "PiecewiseExponential, audited",
    "bounds as they are by default",
}
"""Noise and quantiles of one number, whose laws are tested where they are told; and bins that are too many for hands."""


def _asked(name: str) -> tuple[Any, Any, Any]:
    mechanism, (x, x2) = EVERY[name]
    return mechanism, x, x2


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_drawn_agrees_with_laws_by_hand(name: str) -> None:
    true, (p, q) = BY_HAND[name](), pair_of(*_asked(name))
    for epsilon in (0.0, 0.3, 1.0):
        # Cells of a real number lose a little, and never gain anything.
        assert delta(p, q, epsilon) == pytest.approx(true.delta(epsilon=epsilon), abs=2e-5)
        assert delta(p, q, epsilon) <= true.delta(epsilon=epsilon) + 1e-9
    largest = true.epsilon(delta=0.0)
    assert math.isinf(largest) or np.max(np.abs(log_ratio(p, q))) == pytest.approx(largest, abs=1e-9)


def reports(protocol: Any, text: str) -> dict[Any, float]:
    """How likely each report is, bit by bit as people make it."""
    found: dict[Any, float] = {}
    if isinstance(protocol, local.HadamardSketch):
        kept = 1 - 1 / (1 + math.exp(float(protocol.odds.log)))
        for j, entry, bit in product(range(protocol.hashes), range(protocol.width), (0, 1)):
            true = bin(entry & protocol.place_of(text, number=j)).count("1") % 2 == 0
            found[j, entry, bit] = (kept if bit == true else 1 - kept) / protocol.hashes / protocol.width
        return found
    if isinstance(protocol, local.CountMeanSketch):
        flip = 1 / (1 + math.exp(float(protocol.odds.log) / 2))
        drawn, width, own, other = protocol.hashes, protocol.width, 1 - flip, flip
        of = {j: {protocol.place_of(text, number=j)} for j in range(drawn)}
    else:
        f, p, q = (float(each) for each in (protocol.coins.f, protocol.coins.p, protocol.coins.q))
        drawn, width = protocol.cohorts, protocol.bits
        own, other = (1 - f / 2) * q + f / 2 * p, (1 - f / 2) * p + f / 2 * q
        of = {j: set(protocol.filter_of(text, cohort=j).tolist()) for j in range(drawn)}
    for j, bits in product(range(drawn), product((0, 1), repeat=width)):
        chances = [own if i in of[j] else other for i in range(width)]
        found[j, bits] = math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True)) / drawn
    return found


@pytest.mark.parametrize(
    "protocol",
    [
        local.CountMeanSketch(width=4, hashes=3, epsilon=2.0),
        local.HadamardSketch(width=4, hashes=3, epsilon=2.0),
        local.BloomRappor(bits=6, hashes=2, cohorts=3, f=0.25, p=0.1, q=0.9),
    ],
    ids=lambda protocol: type(protocol).__name__,
)
def test_reports_with_public_randomness_against_all_reports_there_are(protocol: local.Protocol) -> None:
    for other in ("fig", "plum", "pear"):
        true = pmf(reports(protocol, "pear"), reports(protocol, other))
        p, q = pair_of(protocol, "pear", other)
        for epsilon in (0.0, 0.3, 1.0):
            assert delta(p, q, epsilon) == pytest.approx(true.delta(epsilon=epsilon), abs=1e-12)


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_a_hash_of_two_answers_against_all_lines_modulo_a_small_prime(buckets: int, monkeypatch: Any) -> None:
    """All (prime)² hashes there are, and all buckets that can be said."""
    from deniable.local import categorical_responses

    monkeypatch.setattr(categorical_responses, "PRIME", 31)
    protocol = local.LocalHashing(categories=7, epsilon=1.0, buckets=buckets)
    truth = math.e / (math.e + buckets - 1)
    laws: list[dict[Any, float]] = []
    for answer in (2, 5):
        law = {}
        for a, b, said in product(range(31), range(31), range(buckets)):
            own = (a * answer + b) % 31 * buckets // 31
            law[a, b, said] = (truth if said == own else (1 - truth) / (buckets - 1)) / 31**2
        laws.append(law)
    p, q = pair_of(protocol, 2, 5)
    for epsilon in (0.0, 0.3, 1.0):
        assert delta(p, q, epsilon) == pytest.approx(pmf(*laws).delta(epsilon=epsilon), abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 6])
def test_sets_and_rows_of_many_categories_against_all_there_are(size: int) -> None:
    """From seven categories on they are drawn by the two that differ."""
    chosen, odds = local.SubsetSelection(categories=7, epsilon=1.0, size=size), math.e
    sets = list(combinations(range(7), size))
    weights = [[odds if own in one else 1.0 for one in sets] for own in (2, 5)]
    true = curves.from_pmf(*([w / sum(each) for w in each] for each in weights))
    unary = local.SymmetricUnary(categories=7, epsilon=1.0)
    kept = 1 / (1 + math.exp(-0.5))
    rows = [
        {
            bits: math.prod(kept if bit == (i == own) else 1 - kept for i, bit in enumerate(bits))
            for bits in product((0, 1), repeat=7)
        }
        for own in (2, 5)
    ]
    for protocol, truth in ((chosen, true), (unary, pmf(*rows))):  # type: ignore[arg-type]
        p, q = pair_of(protocol, 2, 5)
        for epsilon in (0.0, 0.3, 1.0):
            assert delta(p, q, epsilon) == pytest.approx(truth.delta(epsilon=epsilon), abs=1e-12)
    for protocol in (chosen, unary, local.LocalHashing(categories=7, epsilon=1.0)):
        p, q = pair_of(protocol, 3, 3)
        assert delta(p, q, 0.0) == 0


@pytest.mark.parametrize(
    ("mechanism", "pair", "true"),
    [
        (mechanisms.Laplace(sensitivity=2.0, epsilon=2, dimension=3), ([0.0] * 3, [0.5, -0.5, 1.0]), lambda: laplaces(0.5, 0.5, 1)),
        (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.5) ** 30, (0, 1), lambda: geometrics(2.0, 1) ** 30),
        (mechanisms.Laplace(sensitivity=1.0, epsilon=0.1) ** 500, (0.0, 1.0), lambda: laplaces(0.1) ** 500),
        (
            mechanisms.Gaussian(sensitivity=1.0, sigma=2.0) * mechanisms.Gaussian(sensitivity=1.0, sigma=1.0),
            (0.0, 1.0),
            lambda: curves.gaussian(mu=math.sqrt(1.25)),
        ),
        (
            mechanisms.Gaussian(sensitivity=1.0, sigma=2.0) ** 4 * mechanisms.Laplace(sensitivity=1.0, epsilon=1),
            (0.0, 1.0),
            lambda: curves.gaussian(mu=1) * laplaces(1),
        ),
    ],
    ids=["vector", "thirty", "five hundred", "two bells", "bells and a tent"],
)  # fmt: skip
def test_the_losses_of_many_parts_add_up(mechanism: Mechanism, pair: Pair, true: Callable[[], Curve]) -> None:
    """Convolutions in bins against the curves' own, and the best test against the trade-off of the product."""
    p, q = pair_of(mechanism, *pair)
    for epsilon in (0.0, 0.3, 1.0):
        assert delta(p, q, epsilon) == pytest.approx(true().delta(epsilon=epsilon), abs=5e-4)
        assert delta(p, q, epsilon) <= true().delta(epsilon=epsilon) + 1e-9
    note = plots.laws(mechanism, *pair, false_alarms=0.1).note
    missed = float(note.split(" false alarms misses ")[1].split(";")[0])
    assert missed == pytest.approx(true().beta(alpha=0.1), rel=0.01)


@pytest.mark.parametrize("moves", [(0.5, -0.5, 1.0), (0.3, 0.3, 0.3, 0.3), (1.0, 0.1, 0.01)])
def test_the_largest_loss_is_not_joined_with_those_beside_it(moves: tuple[float, ...]) -> None:
    """In a bin with others it would look as if the log-ratio never reached ±ε."""
    mechanism = mechanisms.Laplace(sensitivity=sum(map(abs, moves)), scale=1.0, dimension=len(moves))
    found = log_ratio(*pair_of(mechanism, [0.0] * len(moves), list(moves)))
    assert (found[0], found[-1]) == pytest.approx((-sum(map(abs, moves)), sum(map(abs, moves))), abs=1e-9)


def test_what_is_drawn_of_many_losses_is_all_of_them() -> None:
    """Stairs and single heavy losses together: they add up, and their total variation is that of the pair."""
    mechanism = mechanisms.Laplace(sensitivity=2.0, epsilon=2, dimension=2)
    figure = plots.laws(mechanism, [0.0, 0.0], [1.0, -1.0], false_alarms=0.1)
    left, right = figure.panels
    lines, stems = only(left, Line), only(left, Stems)
    drawn = [np.array([*line.y[1:-1:2], *stem.heights]) for line, stem in zip(lines, stems, strict=True)]
    assert [each.sum() for each in drawn] == pytest.approx([1, 1])
    assert np.sum(np.maximum(drawn[0] - drawn[1], 0)) == pytest.approx(laplaces(1, 1).delta(epsilon=0.0), abs=2e-5)
    (ratio,) = only(right, Line)
    assert ratio.y[0] == pytest.approx(-2, abs=1e-9)
    assert ratio.y[-1] == pytest.approx(2, abs=1e-9)
    (threshold,) = [level.at for level in only(right, Level) if "says" in level.text]
    assert [level.at for level in only(left, Level)] == [threshold]
    alarms = np.array(ratio.y) < threshold
    p, q = (each[: len(alarms)] for each in pair_of(mechanism, [0.0, 0.0], [1.0, -1.0]))
    assert p[alarms].sum() <= 0.1 < p[: alarms.sum() + 1].sum()
    assert 1 - q[alarms].sum() == pytest.approx(laplaces(1, 1).beta(alpha=0.1), abs=0.005)


def test_answers_of_one_value_alone_stand_at_the_ends() -> None:
    figure = plots.laws(cautionary.Catastrophe(ours.SOUND, statistic=sum, delta=0.25), [1, 1], [1, 2])
    assert "infinite with probability 0.25 on [1, 1] and 0.25 on [1, 2]" in figure.note
    ends = [stem for stem in only(figure.panels[0], Stems) if len(stem.x) == 1]
    assert [stem.heights for stem in ends] == [(0.25,), (0.25,)]
    assert ends[1].x[0] < -1 < 1 < ends[0].x[0]
    same = plots.laws(cautionary.Catastrophe(ours.SOUND, statistic=len, delta=0.25), [1, 1], [1, 1])
    assert "infinite" not in same.note


def test_values_that_are_no_neighbours_are_called_so_by_their_losses() -> None:
    figure = plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=1, dimension=2), [0.0, 0.0], [1.0, 1.0])
    assert "reaches ±2, outside the band ±1: these two values are not neighbours" in figure.note


def test_of_rows_that_differ_in_one_column_that_column_is_drawn() -> None:
    """The losses of the whole row were drawn, where the words of the column can be."""
    drinks = local.KaryRandomizedResponse(categories=3, epsilon=2), ["tea", "milk", "water"]
    whole = local.TableResponse({"smokes": local.RandomizedResponse(epsilon=1), "drink": drinks})
    figure = plots.laws(whole, {"smokes": "yes", "drink": "tea"}, {"smokes": "yes", "drink": "water"})
    assert figure.panels[0].x.names == ("tea", "milk", "water")
    assert "Drawn: column drink; all else has the same law on both values" in figure.note
    (one, two) = only(figure.panels[0], Stems)
    assert one.heights == pytest.approx((math.e**2 / (math.e**2 + 2), *[1 / (math.e**2 + 2)] * 2))
    assert two.heights == pytest.approx(one.heights[::-1])


def test_long_values_that_begin_alike_are_told_apart_in_the_legend() -> None:
    figure = plots.laws(mechanisms.Sum(low=0, high=2, unit=ROW, epsilon=1), [1] * 20, [1] * 21)
    assert figure.panels[0].names == ("on first", "on second")


def test_what_is_too_much_to_be_told_says_what_to_do() -> None:
    many = mechanisms.TopK(mechanisms.Exponential(sensitivity=1, epsilon=1), count=10)
    with worded(InvalidOperation):
        plots.laws(many, list(range(100)), list(range(1, 101)))
    counts = mechanisms.Histogram(categories=["a", "b"], unit=ROW, epsilon=1.0)
    after = counts.followed_by(lambda answers: counts, curve=counts.curve)
    with worded(InvalidOperation):
        plots.laws(after, ["a"], ["a", "b"])
    counter = mechanisms.TreeCounter(horizon=4, sensitivity=1, epsilon=1.0)
    with worded(InvalidParameter, parameter="x"):
        plots.laws(counter, [0, 1], [0, 1, 1])
    with worded(InvalidOperation):
        plots.laws(Fraction(1, 2), 0, 1)  # type: ignore[arg-type]


def test_a_function_is_followed_where_it_is_given_what_release_returns() -> None:
    """A histogram of one bin returns an array: a function of arrays was called with a number, and failed."""
    one = mechanisms.Histogram(categories=["a"], unit=ROW, epsilon=1.0)
    figure = plots.laws(one.then(lambda counts: counts[0] > 0), ["a"], ["a", "a"])
    assert "before the last step" in figure.note
    number = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1).then(lambda y: y > 0)
    (stems, _) = only(plots.laws(number, 0, 1).panels[0], Stems)
    assert min(stems.heights) == pytest.approx(math.exp(-1) / (1 + math.exp(-1)))


@pytest.mark.parametrize(
    ("function", "places"),
    [
        (lambda y: np.maximum(y, 0), [0, 1, 2]),
        (np.sign, [-1, 0, 1]),
        (lambda y: np.greater(y, 0), [0, 1]),
        (lambda y: Fraction(max(0, y), 2), [0, 0.5, 1]),
        (lambda y: [min(max(y, 0), 2)], [0, 1, 2]),
        (lambda y: np.array([min(max(y, 0), 2), 7]), [0, 1, 2]),
        (lambda y: min(y, 1) if y >= 0 else math.nan, [0, 1, 2]),
    ],
    ids=["NumPy's number", "sign", "NumPy's truth", "fraction", "list", "array", "no number"],
)
def test_what_numpy_makes_of_an_answer_is_followed(function: Callable[[Any], Any], places: list[float]) -> None:
    """max(0, y) was drawn, and np.maximum(y, 0) failed: NumPy's whole numbers are no ints."""
    made = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1).then(function)
    one, two = only(plots.laws(made, 0, 1).panels[0], Stems)
    assert np.asarray(one.x[: len(places)]) == pytest.approx(places, abs=0.07)
    r = math.exp(-1)
    first = 1 / (1 + r) if places[0] == 0 else r / (1 + r)
    if str(function(-1)) == str(function(0)):
        assert (one.heights[0], two.heights[0]) == pytest.approx((first, first * r))
    assert sum(one.heights) == pytest.approx(1)
    law = made.law(0)
    assert law.mean == pytest.approx(float(law.masses @ law.places))
    assert law.places[: len(places)].tolist() == places


def test_what_is_made_of_an_answer_and_cannot_be_listed_is_refused() -> None:
    made = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1).then(lambda y: {"y": y})
    with worded(InvalidOperation):
        plots.laws(made, 0, 1)


@pytest.mark.parametrize("kind", ["product", "one in a tuple", "parallel"])
def test_a_function_of_a_tuple_is_not_given_the_one_number_of_it_that_differs(kind: str) -> None:
    """np.sum takes a number too: the law of the first answer was drawn as that of the sum, and ans[0] failed."""
    noisy = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1)
    several, pair = {
        "product": (noisy * noisy.on(lambda _: 0), (0, 1)),
        "one in a tuple": (noisy**1, (0, 1)),
        "parallel": (mechanisms.Parallel.by_value([noisy, noisy], unit=ROW), ((0, 5), (1, 5))),
    }[kind]
    for function in (np.sum, lambda answers: answers[0] > 0):
        figure = plots.laws(several.then(function), *pair)
        assert "before the last step" in figure.note
        assert len(only(figure.panels[0], Stems)[0].x) > 2
    if kind == "parallel":
        with pytest.raises(InvalidOperation, match="several numbers"):
            plots.laws(several.followed_by(lambda answers: several, curve=several.curve), *pair)


@pytest.mark.parametrize(
    ("mechanism", "pair", "function"),
    [
        (mechanisms.Mean(low=0, high=1, unit=REPLACED, rows=3, epsilon=1.0), ([1.0] * 3, [1.0, 1.0, 0.0]), lambda y: y > 1),
        (mechanisms.Histogram(categories=["a"], unit=ROW, epsilon=1.0), (["a"], ["a", "a"]), np.sum),
        (cautionary.NameAndShame(records=2), (["ann", "bob"], ["ann", "cy"]), lambda picked: picked[0]),
    ],
    ids=["clamped", "an array", "in words"],
)  # fmt: skip
def test_a_function_is_never_given_what_release_never_returns(
    mechanism: Mechanism, pair: Pair, function: Callable[[Any], Any]
) -> None:
    """A mean beyond its bounds had a probability, and `picked[0]` of a place and a record was a bracket."""
    made = mechanism.then(function)
    with worded(InvalidOperation):
        made.law(pair[0])
    assert "before the last step" in plots.laws(made, *pair).note or "before it is" in plots.laws(made, *pair).note


def test_a_choice_after_two_answers_is_followed() -> None:
    """Answers about 0 and 1 of scale 2, and the third as noisy as the sum of the first two says: all 81³ by hand."""
    noisy = {scale: mechanisms.DiscreteLaplace(sensitivity=1, scale=scale) for scale in (Fraction(1, 2), 1, 2)}
    allowed = curves.pure(epsilon=1.0)
    first = noisy[Fraction(1, 2)] * noisy[Fraction(1, 2)]
    once = first.followed_by(lambda answers: noisy[1 if sum(answers) > 0 else 2], curve=allowed)
    nested = noisy[Fraction(1, 2)].followed_by(lambda _: noisy[Fraction(1, 2)], curve=curves.pure(epsilon=2.0))
    twice = nested.followed_by(lambda answers: noisy[1 if sum(answers) > 0 else 2], curve=allowed)
    laws = []
    y = np.arange(-40, 42)
    for value in (0, 1):
        mass = {scale: math.tanh(0.5 / scale) * np.exp(-np.abs(y - value) / scale) for scale in (0.5, 1, 2)}
        scales = np.add.outer(y, y) > 0
        third = np.where(scales[:, :, None], mass[1], mass[2])
        laws.append((mass[0.5][:, None, None] * mass[0.5][None, :, None] * third).ravel())
    for mechanism in (once, twice):
        p, q = pair_of(mechanism, 0, 1)
        for epsilon in (0.0, 1.0):
            assert delta(p, q, epsilon) == pytest.approx(delta(*laws, epsilon), abs=1e-8)
