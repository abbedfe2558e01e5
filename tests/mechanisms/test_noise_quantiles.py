"""The quantiles behind every error: on the safe side of the exact ones, and near them."""

from __future__ import annotations

import mpmath
import pytest

from deniable.mechanisms import noise_quantiles


@pytest.mark.parametrize("allowed", [1 - 1e-12, 0.9, 0.5, 0.05, 1e-3, 1e-9, 1e-30, 1e-150, 1e-300])
def test_the_normal_quantile_is_just_above_the_exact_one(allowed: float) -> None:
    """Against erfc in 40 digits: P(|N| > z) is at most what is allowed, and with z smaller by 3e-12 it is more."""
    z = noise_quantiles.normal(allowed)
    with mpmath.workdps(40):
        exact, root = mpmath.mpf(allowed), mpmath.sqrt(2)
        assert mpmath.erfc(mpmath.mpf(z) / root) <= exact
        assert mpmath.erfc(mpmath.mpf(z) * (1 - mpmath.mpf("3e-12")) / root) > exact


def test_nothing_is_asked_where_everything_is_allowed() -> None:
    assert noise_quantiles.normal(1.0) == 0.0
