"""What cannot be: the conditioned mixture is compared with brute force over all combinations of values."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deniable.errors import InvalidParameter
from deniable.synth import Forbidden, Marginal, Mixture, draw, fit
from deniable.synth.row_drawing import independent
from tests.wording import worded

SIZES = (2, 3, 4)
RULES = [{0: [1], 1: [0, 2]}, {1: [2], 2: [0, 3]}, {0: [1], 2: [3]}, {2: [1]}]


def mixture(seed: int = 2) -> Mixture:
    generator = np.random.default_rng(seed)
    return Mixture(generator.dirichlet(np.ones(5)), tuple(generator.dirichlet(np.full(size, 0.5), 5) for size in SIZES))


def breaks(row: tuple[int, ...]) -> bool:
    return any(all(row[column] in values for column, values in rule.items()) for rule in RULES)


@pytest.mark.parametrize("places", [(0,), (1,), (2,), (0, 1), (2, 0), (1, 2), (0, 1, 2)])
def test_marginals_are_those_of_the_rows_that_are_left(places: tuple[int, ...]) -> None:
    model, rules = mixture(), Forbidden.of(SIZES, RULES)
    whole = np.einsum("k,ka,kb,kc->abc", model.weights, *model.columns)
    for row in product(*map(range, SIZES)):
        whole[row] *= not breaks(row)
    assert rules.share(model) == pytest.approx(whole.sum())
    others = tuple(axis for axis in range(3) if axis not in places)
    expected = (whole / whole.sum()).sum(axis=others)
    order = np.argsort(np.argsort(places))
    assert rules.marginal(model, *places) == pytest.approx(np.transpose(expected, order), abs=1e-12)


@pytest.mark.parametrize("drawing", [draw, independent])
def test_no_row_breaks_a_rule_and_all_rows_are_there(drawing: object) -> None:
    rules = Forbidden.of(SIZES, RULES)
    rows = drawing(mixture(), 5000, np.random.default_rng(1), rules)  # type: ignore[operator]
    assert len(rows) == 5000
    assert not any(breaks(tuple(row)) for row in rows.tolist())


def test_zeros_are_exact_and_weigh_more_than_noise() -> None:
    """The noisy count says 30 where nothing can be: the fit does not follow it."""
    rules = Forbidden.of([2, 2], [{0: [1], 1: [1]}])
    noisy = Marginal((0, 1), np.array([[500.0, 300.0], [200.0, 30.0]]), variance=100.0)
    [known] = rules.known([noisy])
    assert known.counts[1, 1] == 0
    found = fit([2, 2], [known], generator=np.random.default_rng(1))
    assert found.marginal(0, 1)[1, 1] < 0.01
    assert rules.marginal(found, 0, 1)[1, 1] == 0
    assert rules.known([Marginal((0,), np.array([1.0, 2.0]), 1.0)])[0].zeros is None


def test_rules_without_end_are_refused() -> None:
    """Thirteen rules about columns of their own meet in 2^13 ways."""
    with worded(InvalidParameter):
        Forbidden.of([2] * 13, [{column: [0]} for column in range(13)])


def test_rules_that_leave_nothing_are_told() -> None:
    rules = Forbidden.of(SIZES, [{0: [0, 1]}])
    with worded(InvalidParameter):
        draw(mixture(), 3, forbidden=rules)
    assert rules.marginal(mixture(), 0).sum() == 0
