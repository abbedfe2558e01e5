"""Arguments that cannot mean anything: one clear error, at the border, before a bit is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable import noise
from deniable.errors import InvalidParameter
from tests.noise.exact import Chosen
from tests.table import every_row
from tests.wording import worded


class Nameless:
    """Something that is nothing else, and prints the same in every process."""

    def __repr__(self) -> str:
        return "Nameless()"


NOT_NUMBERS = [
    None,
    "1",
    b"1",
    [1],
    (1,),
    {},
    Nameless(),
    1j,
    True,
    False,
    np.bool_(True),
    np.array([1.0, 2.0]),
    np.complex128(1),
]
NOT_FINITE = [
    math.nan,
    math.inf,
    -math.inf,
    np.float32("nan"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    np.float64("inf"),
]
NEGATIVE = [-1, -0.5, Fraction(-1, 3), Decimal("-1e-30"), np.int64(-3), -5e-324]
ZERO = [0, 0.0, -0.0, Fraction(0), Decimal(0)]
TOO_WIDE = [2**50 + 1, 1e16, 1e308, 10**400, Fraction(2**50) + Fraction(1, 10**30)]

# (what is called, the parameter, values that it cannot be)
CASES: list[tuple[Callable[..., Any], str, list[Any]]] = [
    (noise.geometric, "scale", NOT_NUMBERS + NOT_FINITE + NEGATIVE + ZERO + TOO_WIDE),
    (noise.discrete_laplace, "scale", NOT_NUMBERS + NOT_FINITE + NEGATIVE + ZERO + TOO_WIDE),
    (noise.discrete_gaussian, "sigma", NOT_NUMBERS + NOT_FINITE + NEGATIVE + ZERO + TOO_WIDE),
    (noise.rounded_gaussian, "sigma", NOT_NUMBERS + NOT_FINITE + NEGATIVE + ZERO + TOO_WIDE),
    (noise.poisson, "rate", NOT_NUMBERS + NOT_FINITE + NEGATIVE + [2**36 + 1, 1e300]),
    (noise.bernoulli_exp, "x", NOT_NUMBERS + NOT_FINITE + NEGATIVE),
    (noise.bernoulli, "p", NOT_NUMBERS + NOT_FINITE + NEGATIVE + [1.0000000000000002, 2, Fraction(101, 100)]),
    (noise.uniform, "below", NOT_NUMBERS + NOT_FINITE + NEGATIVE + ZERO + [1.0, 2.5, Fraction(3)]),
    (
        lambda *, n, **given: noise.binomial(n=n, p=0.5, **given),
        "n",
        NOT_NUMBERS + NOT_FINITE + [-1, 1.5, 2.0, 2**62, 2**40],
    ),
    (lambda *, p, **given: noise.binomial(n=5, p=p, **given), "p", NOT_NUMBERS + NOT_FINITE + NEGATIVE + [1.5]),
    (lambda *, n, **given: noise.permutation(n), "n", NOT_NUMBERS + NOT_FINITE + [-1, 1.5, 2.0]),
]


@pytest.mark.slow
@every_row((call, name, value, size) for call, name, values in CASES for value in values for size in (None, 3))
def test_a_parameter_that_means_nothing_is_refused(
    call: Callable[..., Any], name: str, value: Any, size: int | None
) -> None:
    with pytest.raises(InvalidParameter) as raised:
        call(**{name: value}, size=size, entropy=Chosen([]))
    assert raised.value.parameter == name
    assert raised.value.rule.startswith("must")
    assert str(raised.value).startswith(name)


@pytest.mark.parametrize(
    "size", [-1, 1.5, "3", None.__class__, (2, -1), (1.0,), [2, "x"], True, np.float64(2), b"1", {}]
)
def test_a_size_that_is_no_shape_is_refused(size: Any) -> None:
    for call in (
        lambda: noise.discrete_laplace(scale=1, size=size),
        lambda: noise.bernoulli(p=0.5, size=size),
        lambda: noise.choice(log_weights=[0, 1], size=size),
    ):
        with pytest.raises(InvalidParameter, match="size"):
            call()


@pytest.mark.parametrize("entropy", [0, 7, "x", np.random.default_rng(1), Nameless(), noise.ReplayEntropy, b"seed"])
def test_a_source_that_is_no_entropy_is_refused(entropy: Any) -> None:
    """A seed, or a generator of numpy's, cannot slip in where a source is expected."""
    for call in (
        lambda: noise.discrete_laplace(scale=1, entropy=entropy),
        lambda: noise.bernoulli(p=0.5, size=3, entropy=entropy),
        lambda: noise.permutation(3, entropy=entropy),
    ):
        with pytest.raises(InvalidParameter, match="entropy"):
            call()


def test_parameters_are_named() -> None:
    """A bare number could be a scale, a variance or an epsilon."""
    for sampler in (noise.discrete_laplace, noise.rounded_gaussian, noise.poisson, noise.bernoulli, noise.uniform):
        with pytest.raises(TypeError):
            sampler(1)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            sampler()  # type: ignore[call-overload]


def test_an_array_cannot_hold_every_uniform_number() -> None:
    assert noise.uniform(below=2**63, size=2).dtype == np.int64
    with pytest.raises(InvalidParameter, match="below"):
        noise.uniform(below=2**63 + 1, size=2)


def test_an_error_says_what_to_do() -> None:
    with worded(InvalidParameter, parameter="scale"):
        noise.discrete_laplace(scale=1e20)


def test_what_lies_under_a_mask_is_not_looked_at() -> None:
    some = np.ma.array([1, 0, 1], mask=[False, True, False])
    for call in (
        lambda: noise.choice(log_weights=some),
        lambda: noise.choice(log_weights=[0, 0, 0], weights=some),
        lambda: noise.Wheel(log_weights=some),
        lambda: noise.Grid(exponent=0).values(some),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_a_column_in_the_wrong_place_is_not_shown() -> None:
    """It may be data."""
    for column in (np.array([31337, 2]), [31337], {"secret": 31337}):
        for call in (
            lambda column=column: noise.discrete_laplace(scale=column),
            lambda column=column: noise.uniform(below=column),
            lambda column=column: noise.Grid(exponent=column),
        ):
            with pytest.raises(InvalidParameter) as raised:
                call()
            assert "31337" not in str(raised.value)


def test_an_array_without_dimensions_is_no_sequence_of_weights() -> None:
    for weights in (np.array(1.0), frozenset([1, 2])):
        with worded(InvalidParameter, parameter="log_weights"):
            noise.choice(log_weights=weights)
        with worded(InvalidParameter, parameter="log_weights"):
            noise.Wheel(log_weights=weights)


def test_small_types_count_bits_as_well_as_large_ones() -> None:
    assert noise.ReplayEntropy(1).bits(np.int8(100)) == noise.ReplayEntropy(1).bits(100)
    assert noise.ReplayEntropy(1).bits(np.int8(9)) == noise.ReplayEntropy(1).bits(9)
    with pytest.raises(InvalidParameter, match="steps"):
        noise.Grid(exponent=0).values([[1], [1, 2]])
