"""Histograms: curves by enumeration, counting rules, shares; thresholds against 50 digits and exhaustive neighbours."""

from __future__ import annotations

import itertools
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pytest
from mpmath import mpf

from deniable import curves, noise
from deniable.errors import InvalidParameter
from deniable.mechanisms import Gaussian, Histogram, UnknownKeys, histogram
from deniable.units import Unit
from tests.mechanisms import lattice_laws as laws

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")

ROW, REPLACED = Unit.row(), Unit.replaced_row()


# -- known bins ------------------------------------------------------------------------------------------------------


def test_fact_a_histogram_moves_by_one_or_by_two() -> None:
    added = Histogram(categories=["a", "b"], unit=ROW, epsilon=1.0)
    replaced = Histogram(categories=["a", "b"], unit=REPLACED, epsilon=1.0)
    assert added.noise.sensitivity == 1
    assert replaced.noise.sensitivity == 2
    assert Histogram(categories=["a", "b"], unit=REPLACED, sigma=1).noise.sensitivity == Fraction(math.sqrt(2))
    assert Histogram(categories=["a", "b"], unit=ROW, sigma=1).noise.sensitivity == 1


def test_fact_noise_of_a_replaced_row_is_twice_as_wide() -> None:
    replaced = Histogram(edges=[0, 1, 2], unit=REPLACED, epsilon=1.0)
    assert replaced.noise.width == 2
    # The standard deviation of discrete Laplace noise of scale 2 is near that of the continuous one, 2√2.
    r = math.exp(-1 / 2)
    assert math.sqrt(2 * r) / (1 - r) == pytest.approx(2.82842712474619, rel=0.011)
    assert Histogram(edges=[0, 1, 2], unit=ROW, epsilon=1.0).noise.width == 1
    assert Histogram(edges=[0, 1, 2], unit=Unit.person("id", rows=4), epsilon=1.0).noise.width == 4


@pytest.mark.slow
@pytest.mark.parametrize("unit", [ROW, REPLACED])
@pytest.mark.parametrize("level", [{"epsilon": 1.0}, {"sigma": 1.5}])
def test_the_curve_is_that_of_the_worst_neighbours(unit: Unit, level: dict[str, float]) -> None:
    noisy = Histogram(categories=["a", "b"], unit=unit, **level)
    width = noisy.noise.width
    law = laws.rounded_gaussian(width, 12) if "sigma" in level else laws.discrete_laplace(width, 60)
    moves = [(1, 0)] if unit is ROW else [(1, -1)]
    for move in moves:
        p, q = laws.together(law, law), laws.together(*(laws.shifted(law, m) for m in move))
        for epsilon in (0.0, 0.4, 0.8):
            truth = float(laws.delta(p, q, epsilon))
            bound = noisy.curve.delta(epsilon=epsilon)
            assert truth <= bound
            assert bound <= truth * (1.06 if "sigma" in level else 1 + 1e-9)


def test_fact_b4_a_replaced_row_has_the_curve_of_two_bins() -> None:
    noisy = Histogram(categories=["a", "b"], unit=REPLACED, epsilon=1.0)
    assert noisy.curve == curves.discrete_laplace(scale=2) ** 2
    assert noisy.curve.epsilon(delta=0) == pytest.approx(1.0, rel=1e-12)
    assert noisy.curve.delta(epsilon=0.5) < curves.discrete_laplace(scale=2, sensitivity=2).delta(epsilon=0.5)


def test_edges_close_on_the_left_and_the_last_bin_on_both_sides() -> None:
    ages = Histogram(edges=[0, 10, 20], unit=ROW, epsilon=1.0)
    data = [0, 9.999, 10, 20, 20.001, -0.001, math.nan, math.inf, -math.inf, None]
    assert ages.count(data).tolist() == [2, 2]
    assert ages.count([]).tolist() == [0, 0]
    assert ages.count(np.arange(30)).tolist() == [10, 11]
    assert ages.count(pd.Series([1, None, 15.0])).tolist() == [1, 1]
    assert ages.count(pl.Series([1.0, None, 15.0])).tolist() == [1, 1]


def test_categories_that_are_unknown_are_counted_nowhere() -> None:
    towns = Histogram(categories=["Ulm", "Trier", 7], unit=ROW, epsilon=1.0)
    data = ["Ulm", "Ulm", "Köln", 7, None, math.nan]
    assert towns.count(data).tolist() == [2, 0, 1]
    assert towns.count([*data, ["unhashable"]]).tolist() == [2, 0, 1]
    assert towns.count(pd.Series(["Ulm", None])).tolist() == [1, 0, 0]
    assert towns.count(pl.Series(["Ulm", None])).tolist() == [1, 0, 0]
    assert towns.count(np.array(["Trier"])).tolist() == [0, 1, 0]


def test_a_release_has_one_noisy_count_a_bin() -> None:
    """Chi-square over 6000 releases of 3 bins, false alarm 1e-9."""
    towns = Histogram(categories=["a", "b", "c"], unit=ROW, epsilon=1.0)
    entropy = noise.ReplayEntropy(1)
    answers = np.array([towns.release_counts([5, 0, 0], entropy=entropy) for _ in range(6000)]) - [5, 0, 0]
    assert answers.dtype == np.int64
    for column in answers.T:
        assert laws.chi_square(column, laws.discrete_laplace(1, 40)) > laws.FALSE_ALARM
        assert laws.chi_square(column, laws.discrete_laplace(1.15, 40)) < laws.FALSE_ALARM
    assert len(towns.release(["a"] * 3)) == 3
    with pytest.raises(InvalidParameter, match="3 numbers"):
        towns.release_counts([1, 2])
    with pytest.raises(InvalidParameter):
        towns.release_counts([1.5, 2.0, 3.0])


def test_all_bins_are_covered_together() -> None:
    """2000 releases of 6 bins at 80 %, false alarm 1e-9."""
    bins = Histogram(categories=range(6), unit=ROW, epsilon=0.3)
    reach, entropy = bins.error(confidence=0.8), noise.ReplayEntropy(6)
    hits = sum(np.abs(bins.release_counts([0] * 6, entropy=entropy)).max() <= reach for _ in range(2000))
    assert laws.covered(int(hits), 2000, 0.8)
    assert laws.covered(2000 - int(hits), 2000, 0.1), "not much more than asked"


def test_fact_b5_shares_never_divide_by_zero() -> None:
    """With empty bins every count is <= 0 in (r/(1+r) + (1-r)/(1+r))^10 of the runs; then all shares are equal."""
    bins = Histogram(categories=range(10), unit=REPLACED, epsilon=1.0)
    shares = bins.shares()
    assert shares.curve == bins.curve
    entropy = noise.ReplayEntropy(12)
    for _ in range(500):
        found = shares.release([], entropy=entropy)
        assert found.sum() == pytest.approx(1.0)
        assert (found >= 0).all()
    assert histogram.shares([-1, -5, 0]).tolist() == [1 / 3] * 3
    assert histogram.shares([3, -5, 1]).tolist() == [0.75, 0.0, 0.25]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"edges": [0, 1], "categories": ["a"]},
        {"edges": [1]},
        {"edges": [1, 1]},
        {"edges": [2, 1]},
        {"edges": [0, math.nan]},
        {"edges": "01"},
        {"categories": []},
        {"categories": ["a", "a"]},
        {"categories": "ab"},
        {"categories": [["a"]]},
        {"categories": 5},
    ],
)
def test_bins_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Histogram(unit=ROW, epsilon=1.0, **arguments)


@pytest.mark.parametrize(
    "level",
    [{}, {"epsilon": 1, "sigma": 1}, {"scale": 1, "delta": 1e-6}, {"epsilon": 0}, {"sigma": -1}, {"mu": math.nan}],
)
def test_noise_levels_that_cannot_be_are_refused(level: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Histogram(categories=["a"], unit=ROW, **level)
    with pytest.raises(InvalidParameter, match="unit"):
        Histogram(categories=["a"], unit="row", epsilon=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", ["abc", 5, None, {"a": 1}])
def test_columns_are_columns(data: Any) -> None:
    with pytest.raises(InvalidParameter):
        Histogram(categories=["a"], unit=ROW, epsilon=1.0).release(data)


# -- unknown keys ----------------------------------------------------------------------------------------------------


def shown(width: Any, kind: str, rows: int, threshold: int) -> mpf:
    """The largest probability that a key of one unit is shown, over all splits of its rows, at 50 digits."""

    def above(reach: int) -> mpf:
        if kind == "laplace":
            r = mpmath.exp(-1 / laws.number(width))
            return r**reach / (1 + r)
        return mpmath.ncdf(-(reach - mpf(1) / 2) / laws.number(width))

    worst = mpf(0)
    for split in splits(rows):
        worst = max(worst, 1 - mpmath.fprod(1 - above(threshold - c) for c in split))
    return worst


def splits(total: int, largest: int | None = None) -> Any:
    yield ()
    for first in range(min(total, largest or total), 0, -1):
        for rest in splits(total - first, first):
            yield (first, *rest)


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
@pytest.mark.parametrize(
    ("kind", "level"),
    [("laplace", {"epsilon": 0.5}), ("laplace", {"scale": 2.5}), ("gaussian", {"sigma": 3}), ("gaussian", {"mu": 0.9})],
)
def test_the_delta_of_a_threshold_is_the_worst_over_all_splits(rows: int, kind: str, level: dict[str, float]) -> None:
    unit = Unit.person("id", rows=rows) if rows > 1 else ROW
    for delta in (1e-3, 1e-7, 1e-12):
        keys = UnknownKeys(unit=unit, delta=delta, **level)
        truth = shown(keys.noise.width, kind, rows, keys.threshold)
        assert truth <= mpf(keys.delta) <= truth * (1 + mpf("1e-11"))
        assert keys.delta <= delta
        if keys.threshold - 1 > rows:
            assert shown(keys.noise.width, kind, rows, keys.threshold - 1) > mpf(delta) * (1 - mpf("1e-10"))


@pytest.mark.slow
@pytest.mark.parametrize("level", [{"scale": 1.0}, {"sigma": 1.2}])
@pytest.mark.parametrize("unit", [ROW, REPLACED])
def test_the_curve_bounds_exact_neighbours(unit: Unit, level: dict[str, float]) -> None:
    """Tables of keys {a: 3}, {a: 3, b: 1} (a key of one's own), {a: 4}; all outcomes listed at 50 digits."""
    keys = UnknownKeys(unit=unit, threshold=3, **level)
    base = laws.rounded_gaussian(1.2, 12) if "sigma" in level else laws.discrete_laplace(1, 40)

    def law(counts: dict[str, int]) -> laws.Law:
        def one(count: int) -> laws.Law:
            table: laws.Law = {None: mpf(0)}
            for z, p in base.items():
                value = count + z
                if value >= keys.threshold:
                    table[value] = table.get(value, mpf(0)) + p
                else:
                    table[None] += p
            return table

        return laws.together(*(one(counts[k]) if k in counts else {None: mpf(1)} for k in "abc"))

    tables: list[dict[str, int]] = [{"a": 3}, {"a": 3, "b": 1}, {"a": 4}, {"a": 2}]
    if unit is REPLACED:
        tables = [{"a": 3, "b": 1}, {"a": 3, "c": 1}, {"a": 4}, {"a": 3, "b": 1}]
    worst_ratio = 0.0
    for one, other in itertools.permutations(tables, 2):
        if unit is ROW and abs(sum(one.values()) - sum(other.values())) != 1:
            continue
        p, q = law(one), law(other)
        for epsilon in (0.0, 0.5, 1.0, 2.0):
            factor = mpmath.exp(mpf(epsilon))
            truth = mpmath.fsum(max(mpf(0), p.get(y, mpf(0)) - factor * q.get(y, mpf(0))) for y in p)
            bound = keys.curve.delta(epsilon=epsilon)
            assert truth <= bound * (1 + 1e-9)
            worst_ratio = max(worst_ratio, float(truth / bound))
    assert worst_ratio > 0.3, "and it is not far off"


def test_a_threshold_too_low_is_caught_by_the_same_reference() -> None:
    """Negative control (a zoo of broken mechanisms, 22): the claimed δ of a threshold one lower does not hold."""
    keys = UnknownKeys(unit=ROW, epsilon=1.0, delta=1e-6)
    assert shown(keys.noise.width, "laplace", 1, keys.threshold - 1) > mpf("1e-6")


def test_only_keys_above_the_threshold_are_shown_largest_first() -> None:
    keys = UnknownKeys(unit=ROW, epsilon=2.0, delta=1e-9)
    data = ["x"] * 500 + ["y"] * 300 + ["z"] + [None] * 400
    found = keys.release(data, entropy=noise.ReplayEntropy(1))
    assert list(found) == ["x", None, "y"]
    assert all(type(count) is int and count >= keys.threshold for count in found.values())
    assert keys.release([]) == {}
    assert keys.release_counts({"x": 500, "w": 0, "v": -3}).keys() == {"x"}
    assert list(keys.release(pl.Series(["x"] * 100))) == ["x"]


def test_the_order_of_rows_does_not_show() -> None:
    """Equal noisy counts are ordered by the keys, not by who came first."""
    keys = UnknownKeys(unit=ROW, scale=Fraction(1, 100), threshold=2)
    forward = keys.release(["b"] * 50 + ["a"] * 50)
    assert list(forward) == ["a", "b"]
    assert list(keys.release(["a"] * 50 + ["b"] * 50)) == ["a", "b"]


def test_the_rare_key_is_shown_as_often_as_said() -> None:
    """60,000 releases of one row; δ = P(1 + Z >= 4) at scale 1, against 1e-9 two-sided; 15 % off is rejected."""
    keys = UnknownKeys(unit=ROW, scale=1, threshold=4)
    hits = len(keys.release_counts(dict.fromkeys(range(60_000), 1), entropy=noise.ReplayEntropy(9)))
    assert laws.covered(hits, 60_000, keys.delta)
    assert laws.covered(60_000 - hits, 60_000, 1 - keys.delta)
    assert not laws.covered(hits, 60_000, keys.delta * 1.15)


def test_person_units_and_replacement_cost_what_they_should() -> None:
    assert UnknownKeys(unit=Unit.person("id", rows=3), epsilon=1.0, delta=1e-6).noise.width == 3
    replaced = UnknownKeys(unit=REPLACED, epsilon=1.0, delta=1e-6)
    assert replaced.noise.width == 2
    assert replaced.curve == curves.discrete_laplace(scale=2) ** 2 * curves.approximate(epsilon=0, delta=replaced.delta)
    gaussian = UnknownKeys(unit=ROW, mu=0.5, delta=1e-8)
    assert isinstance(gaussian.noise, Gaussian)
    assert gaussian.curve == curves.gaussian(mu=0.5) * curves.approximate(epsilon=0, delta=gaussian.delta)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 0},
        {"epsilon": 1.0, "delta": 1},
        {"epsilon": 1.0, "delta": 1e-6, "threshold": 5},
        {"epsilon": 1.0, "threshold": 1},
        {"epsilon": 1.0, "threshold": 4.5},
        {"delta": 1e-6},
        {"epsilon": 1.0, "sigma": 1.0, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 1e-300},
    ],
)
def test_bad_thresholds_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        UnknownKeys(unit=ROW, **arguments)


def test_counts_of_keys_are_a_dict_of_whole_numbers() -> None:
    keys = UnknownKeys(unit=ROW, epsilon=1.0, delta=1e-6)
    for counts in ([1, 2], {"a": 1.5}, {"a": "1"}):
        with pytest.raises(InvalidParameter):
            keys.release_counts(counts)
    for data in ("abc", 5, None):
        with pytest.raises(InvalidParameter):
            keys.release(data)


def test_histograms_are_values() -> None:
    for mechanism in (
        Histogram(edges=[0, 1, 2], unit=ROW, epsilon=1.0),
        Histogram(categories=["a"], unit=REPLACED, mu=1.0),
        Histogram(categories=["a", "b"], unit=ROW, epsilon=1.0).shares(),
        UnknownKeys(unit=ROW, epsilon=1.0, delta=1e-6),
    ):
        twin = pickle.loads(pickle.dumps(mechanism))
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert repr(twin) == repr(mechanism)
    assert UnknownKeys(unit=ROW, epsilon=1.0, delta=1e-6).error(confidence=0.95) > 0


def test_equal_keys_have_one_spelling() -> None:
    """1, 1.0 and True are one key. Its spelling must not tell which row came first, or that one is missing."""
    shown = UnknownKeys(unit=Unit.row(), epsilon=1.0, delta=1e-6)
    for odd in (1.0, True, Decimal("1.00"), Fraction(1), np.float32(1)):
        assert [repr(key) for key in shown.release([odd, *[1] * 500])] == ["1"]
    for rows in ([0.0] * 500, [-0.0, *[0.0] * 500], np.array([-0.0] + [0.0] * 500)):
        assert [repr(key) for key in shown.release(rows)] == ["0"]
    assert [repr(key) for key in shown.release([(1.0, "a"), *[(1, "a")] * 500])] == ["(1, 'a')"]
    assert [repr(key) for key in shown.release([float("nan") for _ in range(500)])] == ["None"]
    assert [repr(key) for key in shown.release([0.1] * 500)] == ["0.1"]


def test_counts_beyond_all_integers_are_no_error() -> None:
    assert list(UnknownKeys(unit=Unit.row(), epsilon=1.0, delta=1e-6).release_counts({"a": 2**70})) == ["a"]


@pytest.mark.parametrize(("epsilon", "size"), [(3.0, 5), (1.0, 2), (0.5, 7)])
def test_a_group_can_make_its_own_key_appear(epsilon: float, size: int) -> None:
    """A key that only `size` rows have is shown with probability P(Z >= τ − size) = r^(τ−size)/(1 + r), and never
    without them: no promise about the group may be below that at any ε. Grouping δ by itself would say size·δ.
    """
    keys = UnknownKeys(unit=Unit.row(), epsilon=epsilon, delta=1e-6)
    r = math.exp(-1 / float(keys.noise.width))
    shown = r ** (keys.threshold - size) / (1 + r)
    low, high = keys.curve.group(size=size).delta_bounds(epsilon=600.0)
    # Along the chain each step's δ is worth e^ε of the one before: δ(e^(kε) − 1)/(e^ε − 1) at most.
    chain = keys.delta * math.expm1(size * epsilon) / math.expm1(epsilon)
    assert size * keys.delta < shown <= high
    assert low <= high <= chain * (1 + 1e-9)
