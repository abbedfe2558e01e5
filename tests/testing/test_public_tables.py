"""What a clock and a cache could see: samplers that keep tables are asked for public parameters only.

A table is made when a parameter is first used and kept for the next time, so a parameter that is computed from data
would show in the time that this and later draws take.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from deniable import noise
from tests.testing.ours import OURS

KEPT = (
    "bernoulli",
    "bernoulli_exp",
    "binomial",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "poisson",
    "rounded_gaussian",
)
RELEASES = 60

Call = tuple[str, tuple[tuple[str, Any], ...]]


def is_digit(call: Call) -> bool:
    """A further binary digit of real-valued noise: coins of 1/2 and e^(-2^-k), the same for all values. How many digits
    are drawn depends on how close two noisy numbers are, which is why the docs name it as an edge.
    """
    name, parameters = call
    if call == ("bernoulli", (("p", Fraction(1, 2)),)):
        return True
    x = Fraction(dict(parameters).get("x", 0))
    return name == "bernoulli_exp" and x.numerator == 1 and x.denominator & (x.denominator - 1) == 0


def _spy(name: str, real: Any, seen: set[Call]) -> Any:
    def spy(**options: Any) -> Any:
        law = {key: given for key, given in options.items() if key not in ("size", "entropy")}
        seen.add((name, tuple(sorted(law.items()))))
        return real(**options)

    return spy


def asked(mechanism: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> set[Call]:
    """The samplers with a memory that releases of a value ask, and their parameters."""
    seen: set[Call] = set()
    with monkeypatch.context() as patch:
        for name in KEPT:
            patch.setattr(noise, name, _spy(name, getattr(noise, name), seen))
        for _ in range(RELEASES):
            mechanism.release(value)
    return {call for call in seen if not is_digit(call)}


#: What follows an answer is decided by the answer: these may ask for other noise the next time.
BY_ANSWERS = {"Adaptive", "Catastrophe"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OURS if name not in BY_ANSWERS])
def test_no_table_is_made_for_a_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, neighbours, _ = OURS[name]
    left, right = (asked(mechanism, value, monkeypatch) for value in neighbours)
    assert left == right


def test_a_table_for_a_value_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class ByRate:
        def release(self, value: int) -> int:
            return noise.poisson(rate=value)

    assert asked(ByRate(), 3, monkeypatch) != asked(ByRate(), 4, monkeypatch)
