"""Drawing answers: in the order of the coins, in batches where a type has one, whatever the mechanism does."""

from __future__ import annotations

import itertools
import math
import sys
import threading
from typing import Any

import numpy as np
import pytest

from deniable import audit, curves, local, mechanisms
from deniable.audit import mechanism_runs
from deniable.audit.answer_columns import Raised
from deniable.errors import InvalidParameter, NotCertifiable
from deniable.mechanisms.mechanism import Mechanism
from deniable.testing import statistics
from tests.wording import worded

SURE = 1 - 1e-9
ADDITIVE: list[tuple[Any, Any, Any]] = [
    (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0), 0.0, ()),
    (mechanisms.Gaussian(sensitivity=1.0, mu=1.0), 3, ()),
    (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1), 7, ()),
    (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1), 2**70, ()),
    (mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1, dimension=2), [7, 8], (2,)),
    (mechanisms.Laplace(sensitivity=1.0, epsilon=1.0, dimension=3), [0.5, 1.5, 2.5], (3,)),
]


@pytest.mark.parametrize(("mechanism", "value", "shape"), ADDITIVE, ids=[str(i) for i in range(len(ADDITIVE))])
def test_added_noise_is_drawn_in_one_go(
    mechanism: Any, value: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call of `release` for each answer; the centre is the value, within seven deviations of the mean (1e-11)."""
    calls = []
    release = type(mechanism).release

    def counted(self: Any, value: Any, **rest: Any) -> Any:
        calls.append(1)
        return release(self, value, **rest)

    monkeypatch.setattr(type(mechanism), "release", counted)
    sample = mechanism_runs.draw(mechanism, (value, value), 4000, seconds=60)
    assert len(calls) < 10
    answers = sample.answers.raw
    assert len(answers) == 4000
    assert np.shape(answers[0]) == shape
    moved = np.array([[float(y - x) for y, x in zip(np.ravel(a).tolist() if shape else [a], np.ravel(value).tolist() if shape else [value], strict=True)] for a in answers])  # fmt: skip
    assert abs(moved.mean()) < 7 * math.sqrt(2) / math.sqrt(moved.size)
    assert np.std(moved) == pytest.approx(float(mechanism.level) * (1 if "Gauss" in repr(mechanism) else math.sqrt(2)), rel=0.2)  # fmt: skip
    assert not any(isinstance(a, Raised) for a in answers)


def test_a_value_that_is_refused_is_refused_in_batches_too() -> None:
    noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
    found = audit.measure(noisy, neighbours=(0.0, math.nan), trials=200, confidence=0.9)
    assert found.refuted, "an error for one neighbour alone tells which it is"


def test_a_batch_that_raises_is_an_error_of_the_audit() -> None:
    class Fragile:
        def many(self, value: int, count: int) -> Any:
            raise RuntimeError

        def release(self, value: int) -> int:
            return value

    with pytest.raises(InvalidParameter, match="many"):
        audit.measure(Fragile(), neighbours=(0, 1), trials=500, confidence=0.99)


@pytest.mark.parametrize("again", [False, True], ids=["then", "then twice"])
def test_what_is_done_to_an_answer_is_done_in_the_order_of_the_coins(again: bool) -> None:
    """A clock beside the answer says nothing about the neighbour: sound mechanisms are not refuted (1e-9)."""
    clock = itertools.count()
    noisy: Mechanism = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).then(lambda a: (a, next(clock)))
    if again:
        noisy = noisy.then(lambda pair: (*pair, "seen"))
    for one in (noisy, noisy * mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)):
        found = audit.measure(one, neighbours=(0.0, 1.0), trials=3000, confidence=SURE)
        assert found.refuted is False, found.sentence


def test_batches_are_interleaved() -> None:
    """Each block of coins asks both neighbours, the one or the other first by a coin."""
    asked: list[int] = []

    class Told:
        def many(self, value: int, count: int) -> Any:
            asked.append(value)
            return np.zeros(count)

    mechanism_runs.draw(Told(), (0, 1), 64 * mechanism_runs.CHUNK, seconds=60)
    assert len(asked) == 128
    firsts = asked[::2]
    assert all(a != b for a, b in zip(firsts, asked[1::2], strict=True))
    assert statistics.at_least(sum(firsts), 64, probability=0.5) > 1e-10
    assert statistics.at_most(sum(firsts), 64, probability=0.5) > 1e-10


def test_a_statistic_that_draws_is_asked_every_time() -> None:
    """A statistic may be a random one; one draw for a million answers would not be independent answers."""
    calls = itertools.count()
    noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).on(lambda value: float(next(calls) * 0 + value))
    mechanism_runs.draw(noisy, (0, 1), 500, seconds=60)
    assert next(calls) == 500


def test_protocols_answer_in_batches() -> None:
    sample = mechanism_runs.draw(local.RandomizedResponse(epsilon=1.0), (True, False), 2000, seconds=60)
    assert len(sample) == 2000


def test_leaving_is_an_answer() -> None:
    """sys.exit() in a mechanism never ends the audit."""

    def leaves(value: int) -> int:
        if value:
            sys.exit(0)
        return value

    found = audit.measure(leaves, neighbours=(0, 1), claim=curves.pure(epsilon=1.0), trials=300, confidence=0.99)
    assert found.refuted


def broken(value: Any) -> Any:
    raise TypeError("secret")


def two(value: Any, other: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [(broken, "TypeError"), (two, "TypeError"), (lambda value: print, "builtin_function"), (lambda value: object(), "object")],
    ids=["raises", "two", "function", "object"],
)  # fmt: skip
def test_what_never_answers_is_no_finding(mechanism: Any, said: str) -> None:
    with worded(NotCertifiable) as caught:
        audit.measure(mechanism, neighbours=(0, 1), trials=200, confidence=0.9)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


# -- mechanisms that write into what they were given, or gave ---------------------------------------------------------


WHOLE = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=1)


def added_in_place(value: Any) -> Any:
    value += WHOLE.release(0)
    return value.copy()


def appended(value: Any) -> Any:
    value.append(WHOLE.release(value[0]))
    return value[-1], len(value)


def nested(value: Any) -> Any:
    value["seen"][0] += 1
    return WHOLE.release(value["count"]), value["seen"][0]


class InPlace:
    def many(self, value: Any, count: int) -> Any:
        value += 1
        return np.array([WHOLE.release(int(value[0])) for _ in range(count)])


@pytest.mark.parametrize(
    ("mechanism", "pair"),
    [
        (added_in_place, (np.array([0]), np.array([1]))),
        (appended, ([0], [1])),
        (nested, ({"count": 0, "seen": [0]}, {"count": 1, "seen": [0]})),
        (InPlace(), (np.array([0]), np.array([1]))),
    ],
    ids=["array", "list", "nested", "batches"],
)
def test_a_call_does_not_see_what_the_one_before_wrote(
    mechanism: Any, pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discrete Laplace noise of scale 1 on values 1 apart keeps ε = 1 each time it is asked (refuted: 1e-9); and what was given
    to the audit is left as it was.
    """
    monkeypatch.setattr(mechanism_runs, "CHUNK", 100)
    before = repr(pair)
    found = audit.measure(mechanism, neighbours=pair, claim=curves.pure(epsilon=1.0), trials=3000, confidence=SURE)
    assert found.refuted is False, found.sentence
    assert repr(pair) == before


class Buffer:
    """Gives the same object every time, with another content."""

    def __init__(self) -> None:
        self.array, self.list, self.rows = np.zeros(2), [0.0], np.zeros(mechanism_runs.CHUNK)

    def array_of(self, value: float) -> Any:
        self.array[0] = value
        return self.array

    def list_of(self, value: float) -> Any:
        self.list[0] = value
        return self.list

    def dict_of(self, value: float) -> Any:
        return {"told": self.list_of(value)}

    def many(self, value: float, count: int) -> Any:
        self.rows[:] = value
        return self.rows[:count]


@pytest.mark.parametrize("way", ["array_of", "list_of", "dict_of", "many", "then"])
def test_an_answer_is_kept_as_it_was_given(way: str) -> None:
    """All that is known is told, so it is refuted; as long as a later call filled the earlier answers, ε was 0."""
    buffer = Buffer()
    mechanism = {"many": buffer, "then": WHOLE.then(buffer.array_of)}.get(way) or getattr(buffer, way)
    pair = (0, 50) if way == "then" else (0.0, 1.0)
    found = audit.measure(mechanism, neighbours=pair, claim=curves.pure(epsilon=1.0), trials=500, confidence=SURE)
    assert found.refuted, found.sentence


def test_what_cannot_be_copied_is_asked_about_all_the_same() -> None:
    lock = threading.Lock()
    noisy = WHOLE.on(lambda value: value[1])
    found = audit.measure(noisy, neighbours=([lock, 0], [lock, 1]), trials=500, confidence=SURE)
    assert found.refuted is False


def test_the_first_message_stands_beside_the_error() -> None:
    """What was missing is said to whoever runs the audit; no answer is told apart by it."""

    def counts(value: int, calls: list[int] = []) -> int:  # noqa: B006 (a memory is what it is about)
        calls.append(value)
        raise ValueError(f"call {len(calls)}\n of many " + 300 * "x")

    with pytest.raises(NotCertifiable) as caught:
        audit.measure(counts, neighbours=(0, 1), trials=200, confidence=0.9)
    (note,) = caught.value.__notes__
    assert note.startswith("The first call said: call 1 of many xxx")
    assert len(note) < 300
    assert "call 1" not in str(caught.value)
    with pytest.raises(NotCertifiable) as caught:
        audit.measure(two, neighbours=(0, 1), trials=200, confidence=0.9)
    assert "missing 1 required positional argument: 'other'" in caught.value.__notes__[0]


@pytest.mark.parametrize("seconds", [-1, 0, math.nan, "a"])
def test_time_must_be_some(seconds: Any) -> None:
    with pytest.raises(InvalidParameter, match="seconds"):
        audit.measure(lambda v: v, neighbours=(0, 1), trials=200, confidence=0.9, seconds=seconds)
