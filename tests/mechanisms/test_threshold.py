"""Threshold mechanisms: the law of all answers in closed form on neighbours, samples against it, and a state that ends."""

from __future__ import annotations

import collections
import copy
import itertools
import math
import os
import pickle
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from deniable import curves
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.mechanisms import AboveThreshold, SparseVector
from deniable.mechanisms.threshold import MonotoneAboveThreshold, MonotoneSparseVector
from deniable.noise import ReplayEntropy
from tests.mechanisms import exact_laws
from tests.wording import worded

pytestmark = pytest.mark.filterwarnings("ignore::deniable.errors.NotPrivateWarning")


def above(**more: Any) -> AboveThreshold:
    return AboveThreshold(**{"threshold": 0, "sensitivity": 1, "epsilon": 1, **more})


def sparse(positives: int, **more: Any) -> SparseVector:
    return SparseVector(**{"threshold": 0, "sensitivity": 1, "epsilon": 1, "positives": positives, **more})


def law(mechanism: Any, asked: tuple[Any, ...]) -> dict[tuple[bool, ...], mpf]:
    return exact_laws.threshold(
        asked,
        at=mechanism.threshold,
        threshold_scale=mechanism.threshold_scale,
        answer_scale=mechanism.answer_scale,
        positives=mechanism.positives,
    )


def answers(mechanism: Any, asked: tuple[Any, ...], source: Any) -> tuple[bool, ...]:
    run, found = mechanism.start(entropy=source), []
    for value in asked:
        if run.spent:
            break
        found.append(run.ask(value))
    return tuple(found)


# -- the promise -----------------------------------------------------------------------------------------------------

MECHANISMS = [
    above(),
    MonotoneAboveThreshold(threshold=0, sensitivity=1, epsilon=1),
    sparse(2),
    MonotoneSparseVector(threshold=0, sensitivity=1, epsilon=1, positives=2),
]
each = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)


@pytest.mark.slow
@each
def test_no_neighbours_lose_more_than_epsilon(mechanism: Any) -> None:
    """Three questions with values 0 or 1, against all that each move by -1, 0, 1 (monotone: 0, 1): exact losses."""
    monotone = type(mechanism).__name__.startswith("Monotone")
    laws: dict[tuple[int, ...], dict[tuple[bool, ...], mpf]] = {}
    worst = mpf(0)
    for asked, moved in exact_laws.neighbours(1, 3, (0, 1) if monotone else (-1, 0, 1)):
        for one in (asked, moved):
            if one not in laws:
                laws[one] = law(mechanism, one)
        for epsilon in (0.0, 0.3, 0.7):
            assert exact_laws.worst_delta(laws[asked], laws[moved], epsilon) <= mechanism.curve.delta(epsilon=epsilon)
        worst = max(worst, *map(abs, exact_laws.losses(laws[asked], laws[moved])))
    assert 0.3 < worst <= 1
    assert mechanism.curve == curves.laplace(scale=1)


def test_the_promise_is_nearly_attained_by_many_questions_below_and_one_above() -> None:
    """Twelve questions rise, all below, and one falls, above: the threshold's noise and the answer's must both move."""
    mechanism = above()
    loss = abs(mpmath.log(_mass(mechanism, FAR, EVENT) / _mass(mechanism, FARTHER, EVENT)))
    assert 0.99 < loss <= 1


FAR, FARTHER, EVENT = (0,) * 12 + (-60,), (1,) * 12 + (-61,), (False,) * 12 + (True,)


def _mass(mechanism: Any, asked: tuple[int, ...], event: tuple[bool, ...]) -> mpf:
    numbers = [
        exact_laws.Noisy(mechanism.threshold, mechanism.threshold_scale, "laplace"),
        *(exact_laws.Noisy(v, mechanism.answer_scale, "laplace") for v in asked),
    ]

    def integrand(parts: list[Any]) -> Any:
        factors = [exact_laws.minus(exact_laws.ONE, c) if a else c for a, (_, c) in zip(event, parts[1:], strict=True)]
        return exact_laws.product([parts[0][0], *factors])

    return exact_laws.expectation(numbers, integrand)


def test_noise_that_does_not_grow_with_the_positives_would_break_the_promise() -> None:
    """The same enumeration refutes the sparse vector whose answers' noise ignores c (c = 4): a power check."""
    right = sparse(4)
    asked, moved = (0, 0, 0, 0), (1, 1, 1, 1)
    event = (True,) * 4
    assert abs(mpmath.log(_mass(right, asked, event) / _mass(right, moved, event))) <= 1
    scales = {"threshold_scale": Fraction(4), "answer_scale": Fraction(4, 3)}  # Lee & Clifton 2014, at ε = 1
    asked, moved = (1, 1, 1, 0, 0, 0, 0), (0, 0, 0, 1, 1, 1, 1)
    event = (False,) * 3 + (True,) * 4
    broken = [exact_laws.threshold(v, at=0, positives=5, **scales)[event] for v in (asked, moved)]
    assert abs(mpmath.log(broken[0] / broken[1])) > 1


def test_the_monotone_noise_would_break_the_promise_on_general_questions() -> None:
    mechanism = MonotoneAboveThreshold(threshold=0, sensitivity=1, epsilon=1)
    assert abs(mpmath.log(_mass(mechanism, FAR, EVENT) / _mass(mechanism, FARTHER, EVENT))) > 1.4


@each
def test_the_parts_of_epsilon_add_up(mechanism: Any) -> None:
    monotone = 1 if type(mechanism).__name__.startswith("Monotone") else 2
    first = mechanism.sensitivity / mechanism.threshold_scale
    second = monotone * mechanism.positives * mechanism.sensitivity / mechanism.answer_scale
    assert first + second == mechanism.level == 1


# -- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # test_fact_above_threshold counts the answers to one question
@pytest.mark.parametrize(
    ("mechanism", "asked"),
    [
        (above(threshold=Fraction(1, 3), epsilon=2), (-2.75, Fraction(-8, 3), 5.25)),
        (sparse(2, threshold=-0.25, epsilon=3), (5.75, -6.25, Fraction(23, 4))),
    ],
    ids=["above threshold", "sparse vector"],
)
def test_answers_follow_their_exact_law(mechanism: Any, asked: tuple[Any, ...]) -> None:
    """False alarm 1e-9, 20,000 runs; noise wrong by a tenth must be rejected."""
    source = ReplayEntropy(12)
    counts = collections.Counter(answers(mechanism, asked, source) for _ in range(20_000))
    exact = law(mechanism, asked)
    listed = [counts[one] for one in exact]
    assert sum(listed) == 20_000
    assert exact_laws.chi_square(listed, list(exact.values())) < 1
    more = {"positives": mechanism.positives} if mechanism.positives > 1 else {}
    wrong = type(mechanism)(
        threshold=mechanism.threshold, sensitivity=1, epsilon=mechanism.level * Fraction(9, 10), **more
    )
    assert exact_laws.rejects(listed, list(law(wrong, asked).values()), list(exact.values()))


@pytest.mark.slow
def test_fact_above_threshold() -> None:
    """One question at the threshold is above half the time; 8 above it at ε = 1, 0.912829084323714 of the time."""
    mechanism = above()
    assert mechanism.threshold_scale == 2
    assert mechanism.answer_scale == 4
    assert abs(law(mechanism, (0,))[True,] - mpf("0.5")) < mpf(10) ** -40
    expected = law(mechanism, (8,))[True,]
    assert abs(expected - mpf("0.912829084323714")) < mpf("1e-15")
    source = ReplayEntropy(70)
    fired = sum(mechanism.release([8], entropy=source) == 0 for _ in range(6000))
    assert exact_laws.chi_square([fired, 6000 - fired], [expected, 1 - expected]) < 1


def test_release_and_a_run_agree() -> None:
    for seed in range(30):
        asked = (3, -1, 0, 4.5, 9, -3)
        found = answers(sparse(2), asked, ReplayEntropy(seed))
        assert sparse(2).release(asked, entropy=ReplayEntropy(seed)) == tuple(i for i, a in enumerate(found) if a)
        first = answers(above(), asked, ReplayEntropy(seed))
        assert above().release(asked, entropy=ReplayEntropy(seed)) == (first.index(True) if True in first else None)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("make", [lambda: above(questions=3), lambda: sparse(2, questions=3)], ids=["above", "sparse"])
def test_every_answer_is_that_near_at_the_stated_rate(make: Any, confidence: float) -> None:
    """The exact chance that an answer is wrong by more than `error`, for values just beyond it on both sides."""
    mechanism = make()
    bound = Fraction(mechanism.error(confidence=confidence)) * (1 + Fraction(1, 10**9))
    for asked in itertools.product((-bound, bound), repeat=3):
        wrong = mpmath.fsum(
            p
            for found, p in law(mechanism, asked).items()
            if any(a != (v > 0) for a, v in zip(found, asked, strict=False))
        )
        assert wrong <= 1 - confidence


def test_error_needs_the_number_of_questions_and_grows_with_it() -> None:
    with pytest.raises(InvalidOperation, match="questions="):
        above().error(confidence=0.9)
    few, many = (above(questions=k).error(confidence=0.95) for k in (1, 10**6))
    assert 0 < few < many < 8 * (math.log(10**6) + math.log(2 / 0.05)), "the textbook's bound"


# -- a state that ends -----------------------------------------------------------------------------------------------


def test_a_run_refuses_questions_once_it_is_spent() -> None:
    run = above().start()
    assert not run.ask(-1000)
    assert run.ask(1000)
    assert run.spent
    for value in (0, 1000, -1000):
        with pytest.raises(BudgetExceeded, match="another run"):
            run.ask(value)
    assert (run.asked, run.positives_left) == (2, 0)
    several = sparse(3).start()
    assert [several.ask(v) for v in (9999, -9999, 9999, -9999, 9999)] == [True, False, True, False, True]
    with pytest.raises(BudgetExceeded):
        several.ask(-9999)


def test_a_stream_is_read_no_further_than_needed() -> None:
    read = []

    def stream() -> Iterator[int]:
        for value in (-1000, 1000, -1000, 1000, 1000):
            read.append(value)
            yield value

    assert above().release(stream()) == 1
    assert len(read) == 2
    read.clear()
    assert sparse(2).release(stream()) == (1, 3)
    assert len(read) == 4
    assert above().release([]) is None
    assert sparse(2).release([]) == ()


def test_questions_may_depend_on_the_answers() -> None:
    """A search for the border by halving: each question is chosen after the last answer."""
    run, low, high = sparse(20, epsilon=1000).start(), 0, 2**20
    secret = 777_216
    while high - low > 1 and not run.spent:
        middle = (low + high) // 2
        low, high = (middle, high) if run.ask(secret - middle) else (low, middle)
    assert abs(low - secret) <= 2


def test_a_run_cannot_be_copied_or_pickled_but_the_mechanism_can() -> None:
    mechanism = above(questions=5)
    run = mechanism.start()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with worded(InvalidOperation):
            attempt(run)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(InvalidOperation):
            pickle.dumps(run, protocol=protocol)
    assert not run.ask(-1000), "the attempt did no harm"
    again = pickle.loads(pickle.dumps(mechanism))
    assert again == copy.deepcopy(mechanism) == mechanism
    assert hash(again) == hash(mechanism)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_does_not_go_on_in_a_forked_process() -> None:
    run = above().start()
    child = os.fork()
    if child == 0:
        try:
            run.ask(-1000)
        except InvalidOperation:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not run.ask(-1000)


def test_threads_share_one_run() -> None:
    run, positives = sparse(5).start(), []

    def ask() -> None:
        for _ in range(20):
            try:
                positives.append(run.ask(10_000))
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(positives) == 5
    assert run.spent


def test_going_on_costs_the_curve_again() -> None:
    """A fresh threshold for every restart, and c restarts cost c times."""
    assert (above() ** 3).curve == curves.laplace(scale=1) ** 3
    assert (above() ** 3).release([5000, 1, 2]) == (0, 0, 0)
    assert sparse(3, epsilon=3).curve == curves.laplace(scale=1, sensitivity=3)
    three = sparse(3, epsilon=3, questions=100).error(confidence=0.95)
    restarts = above(questions=100).error(confidence=1 - 0.05 / 3)
    assert three < 2 * restarts


def test_nothing_secret_is_shown() -> None:
    run = above(threshold=10, epsilon=0.5).start()
    run.ask(-31337)
    assert repr(run) == (
        "<Run of AboveThreshold(threshold=10, sensitivity=1, epsilon=0.5): 1 answered, 1 of 1 positives left>"
    )
    assert (
        repr(sparse(2, questions=7)) == "SparseVector(threshold=0, sensitivity=1, epsilon=1, positives=2, questions=7)"
    )
    assert not hasattr(run, "__dict__")


# -- values and parameters -------------------------------------------------------------------------------------------


def test_values_may_be_any_numbers() -> None:
    import pandas as pd
    import polars as pl

    for values in (
        [-(10**400), 10**400],
        np.array([-1e300, 1e300]),
        np.array([-9000, 9000], dtype=np.int16),
        pd.Series([-9000.0, 9000.0]),
        pl.Series([-9000, 9000]),
        (v for v in (Fraction(-(10**9), 3), Fraction(10**9, 3))),
    ):
        assert above().release(values) == 1


@pytest.mark.parametrize("value", [None, "31337", math.nan, math.inf, True, 1j, [31337], np.zeros(2)], ids=repr)
def test_bad_values_are_refused_not_shown_and_change_nothing(value: Any) -> None:
    run = above().start()
    with pytest.raises(InvalidParameter) as refused:
        run.ask(value)
    assert "31337" not in str(refused.value)
    assert (run.asked, run.spent) == (0, False)


@pytest.mark.parametrize("values", [None, 3, "123", {"a": 1}, {1, 2}], ids=repr)
def test_a_stream_must_be_one(values: Any) -> None:
    with pytest.raises(InvalidParameter):
        above().release(values)


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold": math.nan}, {"threshold": math.inf}, {"threshold": None}, {"sensitivity": 0}, {"sensitivity": -1},
        {"epsilon": 0}, {"epsilon": math.nan}, {"positives": 0}, {"positives": 1.5}, {"questions": 0},
    ],
    ids=repr,
)  # fmt: skip
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        sparse(**{"positives": 2, **bad})


def test_replayed_entropy_warns() -> None:
    for attempt in (above().start, lambda entropy: above().release([1], entropy=entropy)):
        with pytest.warns(NotPrivateWarning):
            attempt(entropy=ReplayEntropy(1))
