"""The encoding is total: whatever comes back has columns, a fingerprint and a kind."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.audit import answer_columns
from deniable.audit.answer_columns import Answers, Raised, last_digits, plain

ODD: list[Any] = [
    None, 1, 1.0, True, -0.0, 0.0, math.nan, math.inf, "word", b"bytes", (1, None), [1, 2], [1, [2, "x"]], {"b": 1, "a": None},
    {1, 2}, np.float64(2.5), np.array([1, 2]), np.array([1.0, np.nan]), np.array(["a"]), 10**400, Fraction(1, 3), 1j,
    Raised("ValueError"), object, (), [], np.zeros((2, 2)), [np.zeros(3), None], np.array("zero"), np.array(None, dtype=object),
    np.array([1 + 2j]),
]  # fmt: skip


def test_everything_has_an_encoding() -> None:
    found = Answers.of(ODD)
    assert len(found) == len(ODD) == len(found.numbers)
    told = set(zip(found.keys.tolist(), found.kinds.tolist(), strict=True))
    assert len(told) == len(ODD), "all of these can be told apart"


def test_equal_answers_have_equal_fingerprints() -> None:
    for answer in ODD:
        keys = Answers.of([answer, answer]).keys
        assert keys[0] == keys[1]


def test_arrays_and_lists_of_numbers_agree() -> None:
    listed = [0.5, -0.0, 3.0]
    array = Answers.of(np.array(listed))
    assert array.numbers.column(()).tolist() == Answers.of(listed).numbers.column(()).tolist() == listed
    assert array.keys.tolist() == Answers.of(listed).keys.tolist()
    assert len(set(Answers.of(np.array([0.0, -0.0])).keys.tolist())) == 2


def test_rows_are_told_apart_in_every_place() -> None:
    rows = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    keys = Answers.of(rows).keys
    assert keys[0] == keys[3]
    assert len(set(keys[:3].tolist())) == 3


def test_parts_keep_their_answers() -> None:
    found = Answers.of(ODD)[3:6]
    assert [plain(y) for y in found.raw] == [plain(y) for y in ODD[3:6]]
    mask = np.arange(len(ODD)) == 8
    assert Answers.of(ODD)[mask].raw == ["word"]


@pytest.mark.parametrize("number", [0.625, 3.0, -4.0, 2.0**-1074, 5e-324 * 12, 1e300, 2.0**-1022, 0.1, -7.25])
def test_the_last_digit_is_where_it_is(number: float) -> None:
    above, below = abs(number).as_integer_ratio()
    wanted = (above & -above).bit_length() - below.bit_length()
    assert last_digits(np.array([[number]])).tolist() == [wanted]


def test_the_finest_number_of_a_row_counts() -> None:
    rows = np.array([[0.5, 3.0], [math.nan, math.inf], [0.0, 0.25]])
    assert last_digits(rows).tolist() == [-1, math.inf, -2]


class Sulks:
    def __repr__(self) -> str:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


def test_what_cannot_be_read_is_known_by_its_type() -> None:
    circle: list[Any] = []
    circle.append(circle)
    found = Answers.of([circle, Sulks(), Sulks(), {Sulks: Sulks()}, 1])
    assert found.keys[1] == found.keys[2]
    assert len({found.keys[0], found.keys[1], found.keys[4]}) == 3


@pytest.mark.parametrize(
    "raw", [np.array([1 + 2j, 3 - 4j]), [1 + 2j, 3 - 4j], [np.array([1 + 2j]), np.array([3 - 4j])]]
)
def test_complex_numbers_are_two_columns(raw: Any) -> None:
    found = Answers.of(raw).numbers
    imaginary, real = sorted((path for path in found.paths if "length" not in path), key=str)
    assert found.rows([real, imaginary]).tolist() == [[1, 2], [3, -4]]


@pytest.mark.slow
def test_scores_take_answers_of_another_width() -> None:
    """Lists of one to three numbers: a part of them may have fewer columns than another."""
    from deniable.audit import score_learning, scores

    rng = np.random.default_rng(1)
    short, long = ([rng.normal(size=n).tolist() for n in rng.integers(1, most + 1, 300)] for most in (2, 3))
    for first, second in ((short, long), (long, short)):
        for score in score_learning.learn(Answers.of(first), Answers.of(second)):
            for part in (short, long, [[0.5]], [[1.0] * 5], [None]):
                assert np.isfinite(score(Answers.of(part))).all() or isinstance(score, scores.Digits)
                # The width comes from the other answers beside it, and must not tell them apart.
                wide = score(Answers.of([*part, [1.0] * 9]))[: len(part)]
                assert wide.tolist() == score(Answers.of(part)).tolist()


def test_arrays_are_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand numbers an answer took minutes; their bytes tell as much."""
    monkeypatch.setattr(answer_columns, "plain", None)
    rows = [np.zeros(100_000) for _ in range(4)]
    rows[1][-1] = 1.0
    rows[2][-1] = -0.0
    found = Answers.of([*rows, np.zeros((100, 1000))])
    assert len(set(found.keys.tolist())) == 4, (
        "the last number, the sign of a zero and the shape tell, and nothing else"
    )
    assert found.keys[0] == found.keys[3]
    assert sum(len(path) == 1 and path != ("length",) for path in found.numbers.paths) == 100_000
    assert Answers.of([np.array([1, 2])]).keys != Answers.of([np.array([1, 2], dtype=np.int8)]).keys, "the type tells"
