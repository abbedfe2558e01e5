"""The split of a pure ε, against explicit least squares and against the plain ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deniable.synth import pure_splits, table_noise
from deniable.synth.residual_noise import Workload
from tests.synth.test_residual_noise import SIX, SIZES, marginal, workloads


def least_squares(workload: Workload, measured: dict[Any, float]) -> list[Any]:
    """The covariance of each table after the fit to noisy tables of these variances, as explicit matrices."""
    sizes = workload.sizes
    information = sum(marginal(sizes, m).T @ marginal(sizes, m) / s for m, s in measured.items())
    covariance = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    return [marginal(sizes, table) @ covariance @ marginal(sizes, table).T for table in workload.tables]


@pytest.mark.parametrize("workload", workloads(20), ids=str)
def test_the_formula_is_least_squares(workload: Workload) -> None:
    rng = np.random.default_rng(1)
    measured = {table: float(rng.uniform(0.5, 4)) for table in (*workload.tables, pure_splits.finest(workload.tables))}
    for table, covariance in zip(workload.tables, least_squares(workload, measured), strict=True):
        assert np.diag(covariance) == pytest.approx(pure_splits.cell_variance(workload, table, measured), rel=1e-9)
    law = pure_splits.law(workload, {table: (1.0, s) for table, s in measured.items()})
    widths = {each.columns: measured[each.columns] for each in law.sources}
    for table in workload.tables:
        told = 0.0
        for source in law.sources:
            one = table_noise.TableNoise(law.sizes, (source,))
            told += sum(w * w * cells * widths[source.columns] for w, _, cells in one.shares(table))
        assert told == pytest.approx(pure_splits.cell_variance(workload, table, measured), rel=1e-9)


@pytest.mark.parametrize("workload", workloads(30), ids=str)
def test_never_worse_than_the_plain_ways(workload: Workload) -> None:
    finest = pure_splits.finest(workload.tables)
    found = pure_splits.best(workload, [finest])
    assert sum(found.values()) == pytest.approx(1)

    def worth(shares: dict[Any, float]) -> float:
        return pure_splits.variance_sum(workload, {table: pure_splits.nominal(f) for table, f in shares.items()})

    assert worth(found) <= worth(pure_splits.naive(workload)) * (1 + 1e-12)
    assert worth(found) <= worth({finest: 1.0}) * (1 + 1e-12)


def test_six_tables_are_better_than_both_plain_ways() -> None:
    """Equal weight per cell: 4,407.5, where the finest table alone has 4,800 and equal shares 28,800; and a search over
    shares of two and three tables on a grid finds nothing that is better by more than 0.1 %.
    """
    workload = Workload(SIZES, SIX, (1.0,) * 6)
    found = pure_splits.best(workload)
    worth = pure_splits.variance_sum(workload, {table: pure_splits.nominal(f) for table, f in found.items()})
    assert worth == pytest.approx(4407.5, abs=0.1)
    least = np.inf
    for first in SIX[1:]:
        for second in SIX[1:]:
            for f in np.arange(0.0, 0.3, 0.05):
                for g in np.arange(0.0, 0.3, 0.05):
                    shares = {SIX[0]: 1 - f - g}
                    shares |= {first: f} if f else {}
                    if g and second != first:
                        shares[second] = g
                    least = min(
                        least,
                        pure_splits.variance_sum(workload, {t: pure_splits.nominal(s) for t, s in shares.items()}),
                    )
    assert worth <= least * 1.001
