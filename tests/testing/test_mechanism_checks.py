"""Ours pass, broken ones fail by the right name. Every check has a false-alarm rate of 1e-9."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from deniable import curves, local, mechanisms, noise, testing
from deniable.curves import Curve
from deniable.errors import InvalidDistribution, InvalidOperation, InvalidParameter
from deniable.mechanisms import Mechanism, cautionary
from deniable.testing import Report, check_mechanism, statistics
from tests.testing.ours import OURS, SOUND, Pmf, geometric
from tests.wording import worded


@pytest.mark.parametrize("trials", [{"trials": 300}, pytest.param({}, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("name", OURS)
def test_ours_pass(name: str, trials: dict[str, int]) -> None:
    mechanism, neighbours, options = OURS[name]
    report = check_mechanism(mechanism, neighbours, **options | trials)
    assert not report.failures, str(report)
    if trials:
        return  # so few may show nothing
    assert report.passed, str(report)
    assert (report["law"].passed is None) == ("law" not in options)
    assert report["error"].passed is not None or "distance" not in options
    report.raise_for_failures()


def public(room: Any) -> set[str]:
    """The names of all classes in a room that release something, base classes apart."""
    found = {name: getattr(room, name) for name in room.__all__}
    kinds = {name: kind for name, kind in found.items() if isinstance(kind, type)}
    return {
        name
        for name, kind in kinds.items()
        if issubclass(kind, Mechanism | local.Protocol)
        and (not inspect.isabstract(kind) or kind is mechanisms.LinearQueries)
    }


def test_every_public_mechanism_is_here() -> None:
    """A new mechanism or protocol needs a line in tests/testing/ours.py."""
    expected = public(mechanisms) | public(mechanisms.graphs) | public(local) | public(cautionary)
    assert len(expected) >= 52
    assert expected - set(OURS) == set()


@pytest.mark.parametrize("name", [name for name, (mechanism, _, _) in OURS.items() if name in dir(mechanisms)])
def test_a_case_is_about_the_mechanism_that_it_is_named_after(name: str) -> None:
    mechanism = OURS[name][0]
    mechanism = getattr(mechanism, "mechanism", mechanism)
    assert isinstance(mechanism, getattr(mechanisms, name))


# -- broken ones -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Third:
    """A third party's mechanism: it only has `release` and `curve`. This one is sound, the others change one thing."""

    @property
    def curve(self) -> Curve:
        return curves.discrete_laplace(scale=1)

    def release(self, value: Any) -> Any:
        return value + noise.discrete_laplace(scale=1)


class HalfSensitivity(Third):
    """Its statistic moves by 2."""

    def release(self, value: Any) -> Any:
        return 2 * value + noise.discrete_laplace(scale=1)


class WrongScale(Third):
    def release(self, value: Any) -> Any:
        return value + noise.discrete_laplace(scale=0.9)


class TooNoisy(Third):
    def release(self, value: Any) -> Any:
        return value + noise.discrete_laplace(scale=1.1)


class Clipped(Third):
    """Noise is clipped to what is near the data."""

    def release(self, value: Any) -> Any:
        return value + max(-1, min(1, noise.discrete_laplace(scale=1)))


class FloatLaplace(Third):
    """The textbook mechanism in floats (Mironov 2012)."""

    @property
    def curve(self) -> Curve:
        return curves.laplace(scale=1.0)

    def release(self, value: Any) -> Any:
        if math.isnan(value):
            raise ValueError("NaN")
        return value + self._noise()

    _noise = staticmethod(np.random.default_rng(3).laplace)


class TooSure(Third):
    def error(self, *, confidence: float) -> float:
        return float(mechanisms.DiscreteLaplace(sensitivity=1, scale=1).error(confidence=confidence)) - 1


class Seeded(Third):
    def release(self, value: Any, seed: int | None = None) -> Any:
        return Third.release(self, value)


class Replayable(Third):
    """Takes a seed by the back door."""

    def release(self, value: Any) -> Any:
        return value + int(np.random.laplace() * 3)


class Silent(Third):
    """Takes entropy that can be replayed, and says nothing."""

    def release(self, value: Any, *, entropy: Any = None) -> Any:
        return Third.release(self, value)


class Echo(Third):
    """Tells the truth one time in five."""

    def release(self, value: Any) -> Any:
        return value if noise.bernoulli(p=0.2) else 1000 + noise.uniform(below=1000)


class PassesNan(Third):
    def release(self, value: Any) -> Any:
        return float(value) + 0.0 * noise.discrete_laplace(scale=1) if math.isnan(value) else Third.release(self, 0)


class Remembers(Third):
    last: Any = None

    def release(self, value: Any) -> Any:
        type(self).last = value
        return Third.release(self, value)

    def __repr__(self) -> str:
        return f"Remembers(last={self.last})"


class NotACopy(Third):
    def __reduce__(self) -> Any:
        return Third, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotACopy)

    __hash__ = None  # type: ignore[assignment]


class OneForAll(Third):
    """m ** k is one answer, k times."""

    def __pow__(self, count: int) -> Any:
        return _Repeated()


class _Repeated:
    curve = curves.discrete_laplace(scale=1) ** 3

    def release(self, value: Any) -> tuple[Any, ...]:
        return (Third().release(value),) * 3


class Cheap(Third):
    """m ** k is charged once."""

    def __pow__(self, count: int) -> Any:
        return self


class Raises(Third):
    def release(self, value: Any) -> Any:
        raise RuntimeError("no answer")


BROKEN: dict[str, tuple[Any, tuple[Any, Any], str, dict[str, Any]]] = {
    "half the sensitivity": (HalfSensitivity(), (0, 1), "privacy", {}),
    "half the sensitivity, by its law": (
        HalfSensitivity(),
        (0, 1),
        "privacy",
        {"law": lambda v: geometric(1)(2 * v), "trials": 200},
    ),
    "noise too large by 10 %": (TooNoisy(), (0, 1), "law", {"law": geometric(1), "trials": 40_000}),
    "noise too small by 10 %": (WrongScale(), (0, 1), "law", {"law": geometric(1), "trials": 40_000}),
    "support that depends on the data": (Clipped(), (0, 1), "support", {}),
    "support by its law": (
        Clipped(),
        (0, 1),
        "support",
        {"law": lambda v: {v: 0.5, v - 1: 0.25, v + 1: 0.25}, "trials": 200},
    ),
    "Laplace noise in floats": (FloatLaplace(), (0.0, 1.0), "support", {}),
    "an error that is too small": (TooSure(), (0, 1), "error", {"trials": 2000}),
    "a seed": (Seeded(), (0, 1), "seed", {"trials": 200}),
    "a global seed": (Replayable(), (0, 1), "seed", {"trials": 2000}),
    "replay without a warning": (Silent(), (0, 1), "seed", {"trials": 200}),
    "the truth itself": (Echo(), (0, 1), "echo", {"trials": 2000}),
    "NaN for NaN": (PassesNan(), (0.0, 1.0), "nan", {"trials": 200}),
    "a repr with data": (Remembers(), (0, 1), "repr", {"trials": 200}),
    "a pickle of something else": (NotACopy(), (0, 1), "copies", {"trials": 200}),
    "powers that repeat": (OneForAll(), (0, 1), "power", {}),
    "powers that are not charged": (Cheap(), (0, 1), "power", {"trials": 200}),
    "no answer": (Raises(), (0, 1), "release", {"trials": 200}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_broken_ones_fail_by_name(name: str) -> None:
    mechanism, neighbours, wanted, options = BROKEN[name]
    report = check_mechanism(mechanism, neighbours, **options)
    assert report[wanted].passed is False, str(report)
    with pytest.raises(InvalidOperation, match=f"does not keep its promise: .*{wanted}: "):
        report.raise_for_failures()


ONLY = (
    "noise too large by 10 %",
    "an error that is too small",
    "a seed",
    "a repr with data",
    "a pickle of something else",
    "powers that repeat",
    "Laplace noise in floats",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLY)
def test_nothing_else_is_blamed(name: str) -> None:
    mechanism, neighbours, wanted, options = BROKEN[name]
    assert [c.name for c in check_mechanism(mechanism, neighbours, **options).failures] == [wanted]


class Blind(Third):
    """Whatever it is asked, it draws: nothing to see."""

    def release(self, value: Any) -> Any:
        return noise.discrete_laplace(scale=1)


def test_nothing_seen_is_no_pass() -> None:
    """It was "ok, measured ε of at least 0.000": no evidence at all, in green."""
    report = check_mechanism(Blind(), (0, 1), trials=2000)
    assert not report.failures
    assert not report.passed
    assert [check.name for check in report.unseen] == ["privacy"]
    assert report["privacy"].passed is None
    assert str(report["privacy"]).startswith("?     privacy     nothing seen: 2,000 releases")
    with worded(InvalidOperation):
        report.raise_for_failures()


def test_with_a_law_there_is_no_need_to_see() -> None:
    """The law is compared with the promise exactly, and the releases with the law."""
    report = check_mechanism(Blind(), (0, 1), law=lambda value: geometric(1)(0), trials=2000)
    assert report.passed, str(report)


def test_answers_of_two_shapes_are_the_same_on_both_sides() -> None:
    """One None among floats changed how all answers of its side were encoded, and a sound mechanism was blamed."""

    class Rarely(Third):
        def release(self, value: Any) -> Any:
            found = float(Third.release(self, value))
            return None if noise.bernoulli(p=0.0005) else found

    for _ in range(3):
        report = check_mechanism(Rarely(), (0, 1), trials=2000)
        assert not report.failures, str(report)


class Worded(Third):
    def release(self, value: Any) -> Any:
        return f'{{"ward": "A", "count": {2 * value + noise.discrete_laplace(scale=1)}}}'


def test_answers_in_words_are_read() -> None:
    """Twice the sensitivity, as JSON."""
    assert check_mechanism(Worded(), (0, 2))["privacy"].passed is False


def test_a_sound_third_party_passes_with_less() -> None:
    """`error` and `**` are not needed."""
    report = check_mechanism(Third(), (0, 1), law=geometric(1))
    assert report.passed, str(report)
    assert [c.name for c in report.checks if c.passed is None] == ["error", "power", "nan"]


@pytest.mark.slow
def test_sound_mechanisms_are_blamed_no_more_often_than_said() -> None:
    """100 runs at a confidence of 80 %: no check fails more than 20 % of the time, at a false alarm of 1e-9."""
    failed = Counter(
        failure.name
        for _ in range(100)
        for failure in check_mechanism(SOUND, (0, 1), law=geometric(1), trials=200, confidence=0.8).failures
    )
    assert all(statistics.at_least(times, 100, probability=0.2) > 1e-9 for times in failed.values()), failed


def test_a_mechanism_may_bring_its_law() -> None:
    class Lawful(Third):
        def law(self, value: int) -> Pmf:
            return geometric(1.3)(value)

    assert check_mechanism(Lawful(), (0, 1))["law"].passed is False


@pytest.mark.slow
def test_the_measured_epsilon_is_near_the_promise_and_never_above() -> None:
    """10 000 releases of randomized response at ε = 1: at least 0.65 is certified."""
    person = testing.OnePerson(local.RandomizedResponse(epsilon=1.0))
    words = check_mechanism(person, (False, True))["privacy"].words
    measured = float(words.split()[5])
    assert 0.65 < measured < 1.0, words


def test_an_error_that_needs_more_than_a_confidence_is_left_out() -> None:
    """It used to raise out of the check."""

    class Asks(Third):
        def error(self, *, confidence: float, rows: int) -> float:
            return confidence / rows

    for mechanism, neighbours in ((Asks(), (0, 1)), OURS["Mean"][:2]):
        found = check_mechanism(mechanism, neighbours, trials=200)["error"]
        assert found.passed is None
        assert "error(confidence=)" in found.words


def test_error_that_cannot_be_judged_is_left_out() -> None:
    class Worded(TooSure):
        def release(self, value: Any) -> Any:
            return str(Third.release(self, value))

    report = check_mechanism(Worded(), (0, 1), trials=200)
    assert "not pickled" in report["copies"].words, "a class inside a function"
    assert report["error"].passed is None
    assert "distance=" in report["error"].words


def test_a_report_is_readable_and_shows_no_answer() -> None:
    report = check_mechanism(Third(), (123_456, 123_457), trials=200)
    assert str(report).splitlines()[0] == "Third()"
    assert all(line[:4].strip() in {"ok", "FAIL", "-", "?"} for line in str(report).splitlines()[1:])
    assert "12345" not in str(report)
    with pytest.raises(KeyError):
        report["speed"]
    with pytest.raises(AttributeError):
        report.mechanism = "x"  # type: ignore[misc]
    assert isinstance(report, Report)


def test_global_generators_are_put_back() -> None:
    np.random.seed(7)
    check_mechanism(Third(), (0, 1), trials=200)
    found = np.random.random()
    np.random.seed(7)
    assert found == np.random.random()


@pytest.mark.parametrize(
    "options",
    [{"neighbours": (1,)}, {"neighbours": 3}, {"trials": 10}, {"trials": 2.5}, {"confidence": 1.0}, {"confidence": -1}],
)
def test_bad_arguments_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        check_mechanism(Third(), **{"neighbours": (0, 1), "trials": 200, **options})


@pytest.mark.parametrize("law", [{0: 0.5, 1: 0.4}, {0: 1.5, 1: -0.5}, {}])
def test_a_law_that_is_none_is_refused(law: dict[int, float]) -> None:
    with pytest.raises(InvalidDistribution, match="neighbour 0"):
        check_mechanism(Third(), (0, 1), law=lambda _: law, trials=200)


def test_a_mechanism_without_a_curve_fails() -> None:
    class NoCurve(Third):
        @property
        def curve(self) -> Any:
            return 1.0

    check = check_mechanism(NoCurve(), (0, 1), trials=200)["release"]
    assert check.passed is False
    assert "is a float" in check.words


def test_what_is_missing_is_named() -> None:
    class Silent:
        curve = curves.pure(epsilon=1)

    class Uncertain:
        def release(self, value: int) -> int:
            raise AssertionError("asked before the curve was looked at")

    class Method(Uncertain):
        def curve(self) -> Any:
            return curves.pure(epsilon=1)

    for mechanism, words in (
        (Silent(), "release(value) is missing"),
        (Uncertain(), "the attribute curve is missing"),
        (Method(), "make it a property"),
        (local.RandomizedResponse(epsilon=1), "testing.OnePerson(protocol)"),
    ):
        (check,) = check_mechanism(mechanism, (0, 1), trials=200).checks
        assert check.passed is False
        assert words in check.words


def test_a_class_without_equality_is_not_blamed_for_its_copies() -> None:
    class Plain:
        def __init__(self) -> None:
            self.curve = curves.discrete_laplace(scale=1)

        def release(self, value: int) -> int:
            return value + noise.discrete_laplace(scale=1)

    report = check_mechanism(Plain(), (0, 1), trials=1500)
    assert report.passed, str(report)
    assert report["copies"].passed is None
    assert "no __eq__" in report["copies"].words

    class Changed(Plain):
        def __copy__(self) -> Any:
            other = Plain()
            other.curve = curves.discrete_laplace(scale=2)
            return other

    assert check_mechanism(Changed(), (0, 1), trials=500)["copies"].passed is False


def test_a_law_that_is_no_function_is_told_so() -> None:
    with worded(InvalidParameter, parameter="law"):
        check_mechanism(Third(), (0, 1), law={0: 1.0}, trials=200)  # type: ignore[arg-type]


def test_ours_are_mechanisms() -> None:
    assert all(isinstance(mechanism, Mechanism) for mechanism, _, _ in OURS.values())


@pytest.mark.parametrize(
    ("noisy", "neighbours"),
    [
        # What math.sqrt(3) bought when its square was rounded down to 2: δ(1) = 1.74e-4 where 1e-5 is claimed.
        (mechanisms.DiscreteGaussian(sensitivity=1.42, epsilon=1, delta=1e-5, dimension=3), ([0, 0, 0], [1, 1, 1])),
        (mechanisms.Gaussian.whole(sensitivity=1.42, epsilon=1, delta=1e-5, dimension=3), ([0, 0, 0], [1, 1, 1])),
        (mechanisms.DiscreteLaplace(sensitivity=99, epsilon=1), (0, 100)),
    ],
    ids=["root of three", "root of three, Gaussian", "a hundredth"],
)
def test_noise_for_a_sensitivity_a_little_too_small_is_found_without_luck(noisy: Any, neighbours: Any) -> None:
    found = check_mechanism(noisy, neighbours, trials=100)["privacy"]
    assert found.passed is False
    assert "computed from its definition" in str(found)


def test_noise_for_the_right_sensitivity_is_not_blamed() -> None:
    root = mechanisms.DiscreteGaussian(sensitivity=math.sqrt(3), epsilon=1, delta=1e-5, dimension=3)
    # Of a hundred releases nothing is seen; what matters here is that the law it should have is not blamed.
    assert check_mechanism(root, ([0, 0, 0], [1, 1, 1]), trials=100)["privacy"].passed is not False
    wide = mechanisms.DiscreteLaplace(sensitivity=1000, epsilon=0.001, dimension=500)  # too much to list
    assert check_mechanism(wide, ([0] * 500, [2] * 500), trials=100)["privacy"].unseen
