"""0.0 and -0.0 are equal, and all NaN look alike: an exact bit stood in there, beside honest noise, and was not read."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from deniable import audit, curves
from deniable.audit.answer_columns import Answers, plain
from deniable.audit.answer_table import Dense, gathered
from deniable.audit.hidden_bits import is_stored, widened, with_signs

TRIALS = 400
SURE = 1 - 1e-9
CLAIM = curves.pure(epsilon=1.0)


def nan(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


QUIET, NEGATIVE, OTHER = (nan(bits) for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1))
ZEROS, NEGATIVES, OTHERS = (0.0, -0.0), (QUIET, NEGATIVE), (QUIET, OTHER)
Form = Callable[[float, float], Any]


def short(kind: str, *bits: int) -> tuple[Any, Any]:
    """Two floats of fewer bits."""
    first, second = (np.array([each], dtype=f"u{np.dtype(kind).itemsize}").view(kind)[0] for each in bits)
    return first, second


def framed(noise: float, said: float) -> Any:
    return pytest.importorskip("pandas").DataFrame({"noisy": [noise], "said": [said]})


def arrow(noise: float, said: float) -> Any:
    return pytest.importorskip("pyarrow").table({"noisy": [noise], "said": [said]})


def polars(noise: float, said: float) -> Any:
    return pytest.importorskip("polars").DataFrame({"noisy": [noise], "said": [said]})


def tensor(noise: float, said: float) -> Any:
    return pytest.importorskip("torch").tensor([noise, said], dtype=pytest.importorskip("torch").float64)


FORMS: dict[str, Form] = {
    "tuple": lambda noise, said: (noise, said),
    "list": lambda noise, said: [noise, said],
    "mixed list": lambda noise, said: [noise, "n", said],
    "dict": lambda noise, said: {"noisy": noise, "said": said},
    "array": lambda noise, said: np.array([noise, said]),
    "float32": lambda noise, said: np.array([noise, said], dtype=np.float32),
    "column": lambda noise, said: np.array([[noise], [said]]),
    "complex": complex,
    "complex array": lambda noise, said: np.array([complex(noise, 1.0), complex(2.0, said)]),
    "frame": framed,
    "arrow": arrow,
    "polars": polars,
    "tensor": tensor,
    "json": lambda noise, said: json.dumps([noise, said]),
    "text": lambda noise, said: f"{noise} and {said}",
    "decimal": lambda noise, said: (noise, Decimal(str(said))),
    "bytes": lambda noise, said: struct.pack("<dd", noise, said),
}
BARE = {"json", "text", "decimal"}
"""A NaN has no bits in these, and in a shorter float not all of them."""
CASES = [(form, ZEROS) for form in FORMS] + [(form, NEGATIVES) for form in FORMS.keys() - BARE]
CASES += [(form, OTHERS) for form in FORMS.keys() - BARE - {"float32"}]


def honest(value: int) -> float:
    """Laplace noise for ε = 1 on a grid: floats that are added would leak by their gaps."""
    return float(value + np.floor(np.random.default_rng().laplace() * 2**10) / 2**10)


def telling(form: Form, told: tuple[Any, Any]) -> Callable[[int], Any]:
    def mechanism(value: int) -> Any:
        return form(honest(value), told[value])

    return mechanism


@pytest.mark.parametrize(("form", "told"), sorted(CASES, key=str))
def test_what_a_zero_or_a_nan_stores_is_read(form: str, told: tuple[float, float]) -> None:
    """Of 400 answers half judge, of which 68 that are all guessed right prove ε > 1 at this confidence."""
    FORMS[form](0.0, 0.0)  # skips where its package is not there: inside an audit that would be an answer
    found = audit.measure(telling(FORMS[form], told), neighbours=(0, 1), claim=CLAIM, trials=TRIALS, confidence=SURE)
    assert found.refuted, (found.read.sentence, found.event)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        ("f2", (0x7E00, 0xFE00)),
        ("f4", (0x7FC00001, 0xFFC00001)),
        ("f2", (0x7E00, 0x7E01)),
        ("f2", (0x7E00, 0x7C01)),
        ("f4", (0x7FC00000, 0x7F800001)),
        ("f4", (0, 0x80000000)),
    ],
    ids=["f2 sign", "f4 sign", "f2 payload", "f2 signalling", "f4 signalling", "f4 zero"],
)
@pytest.mark.parametrize("batch", [False, True])
def test_floats_of_fewer_bits_keep_theirs(kind: str, bits: tuple[int, int], batch: bool) -> None:
    told = short(kind, *bits)
    rows = [np.array([z, one], dtype=kind) for one in told for z in (1.5, 2.5)]
    found = Answers.of(np.array(rows) if batch else rows).words
    [path] = [path for path in found.paths if is_stored(path)]
    assert path[0] == 1
    column = np.nan_to_num(found.column(path), nan=-1.0)
    assert column[0] == column[1] != column[2] == column[3]


@pytest.mark.parametrize(
    ("kind", "bits", "wide"),
    [
        ("f2", 0x7E01, 0x7FF8_0400_0000_0000),
        ("f2", 0xFC01, 0xFFF0_0400_0000_0000),
        ("f4", 0x7F80_0001, 0x7FF0_0000_2000_0000),
        ("f4", 0xFFC0_0000, 0xFFF8_0000_0000_0000),
        (">f4", 0x7FC0_0003, 0x7FF8_0000_6000_0000),
    ],
)
def test_the_bits_of_a_short_nan_become_the_first_bits_of_a_long_one(kind: str, bits: int, wide: int) -> None:
    """Its sign, and its payload from the highest bit on, by IEEE 754."""
    order = ">" if kind.startswith(">") else "<"
    given = np.array([bits], dtype=f"{order}u{np.dtype(kind).itemsize}").view(np.dtype(kind).newbyteorder(order))
    assert [int(each) for each in widened(given).view(np.uint64)] == [wide]


def test_what_is_read_of_an_answer_does_not_depend_on_the_others() -> None:
    """Else a negative zero that is rare would be there in one sample, and change what is read of all its zeros."""
    alone, beside = Answers.of([(0.0, 1.5)] * 3), Answers.of([(0.0, 1.5)] * 3 + [(-0.0, 1.5)])
    paths = beside.words.paths
    assert (0, "sign") in paths
    assert np.array_equal(alone.words.rows(paths), beside.words[:3].rows(paths), equal_nan=True)


def test_what_is_stored_in_a_number_counts_with_it() -> None:
    """Signs among the numbers had made sums of the numbers say less, and "Read: 159 numbers" of an array of 80."""
    found = Answers.of([(0.0, 1.5, "a"), (-0.0, 1.5, "b")])
    assert (found.seen.numbers, found.seen.changing) == (4, 2)  # the lengths of the tuple and of the text as well
    assert all(not is_stored(path) for path in found.numbers.paths)


def test_a_mechanism_that_rounds_to_either_zero_is_consistent() -> None:
    def rounds(value: int) -> tuple[float, float]:
        return float(np.round(honest(value))), float(np.copysign(0.0, np.random.default_rng().normal()))

    found = audit.measure(rounds, neighbours=(0, 1), claim=CLAIM, trials=3000, confidence=SURE)
    assert not found.refuted
    assert found.verdict == "consistent"


def test_tables_that_are_kept_as_lists_have_the_same_words() -> None:
    rows = [[-0.0, 1.0], [0.0, NEGATIVE], [2.0, np.nan], [-0.0, OTHER]]
    looks: dict[int, Any] = {}
    dense = with_signs(Dense.of((), np.empty((4, 0))), Dense.of(((0,), (1,)), np.array(rows)), looks)
    assert dense.paths == ((0, "sign"), (1, "bits"))
    assert np.array_equal(dense.column((0, "sign")), [0.0, np.nan, np.nan, 0.0], equal_nan=True)
    payloads = dense.column((1, "bits"))
    assert np.array_equal(payloads, [np.nan, 2.0**52 + 2.0**51, np.nan, 2.0**51 + 1], equal_nan=True)
    assert set(looks) == {0, 2**52 + 2**51, 2**51 + 1}

    groups = [((("k", i), ("l", i)), [i], [row]) for i, row in enumerate(rows)]
    many = [(((f"x{i}",),), [4 + i], [[1.0]]) for i in range(4000)]
    sparse = with_signs(gathered([], 4004), gathered([*groups, *many], 4004), looks)
    for i, (zero, stored) in enumerate(zip(dense.column((0, "sign")), payloads, strict=True)):
        found = [sparse.column(("k", i, "sign"))[i], sparse.column(("l", i, "bits"))[i]]
        assert np.array_equal(found, [zero, stored], equal_nan=True)


def test_the_noise_of_these_tests_tells_nothing() -> None:
    """The power of the tests above: without what a zero stores, the same answers are consistent."""
    found = audit.measure(honest, neighbours=(0, 1), claim=CLAIM, trials=TRIALS, confidence=SURE)
    assert found.verdict == "consistent"


def test_the_finding_says_that_it_was_the_sign() -> None:
    found = audit.measure(
        telling(FORMS["tuple"], ZEROS), neighbours=(0, 1), claim=CLAIM, trials=TRIALS, confidence=SURE
    )
    assert "the sign of a zero, number 2" in str(found.event)


def test_an_exact_audit_tells_all_nan_apart() -> None:
    assert len({plain(each) for each in (QUIET, NEGATIVE, OTHER)}) == 3
    assert plain(QUIET) == plain(float("nan"))
    assert plain(complex(1.0, QUIET)) != plain(complex(1.0, OTHER))
