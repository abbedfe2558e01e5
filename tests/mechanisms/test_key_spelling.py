"""One spelling for each key: what is shown of a key must not tell which row came first, and no row may raise an error."""

from __future__ import annotations

import collections
import datetime
import enum
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deniable import Unit
from deniable.audit.answer_columns import plain
from deniable.errors import InvalidParameter
from deniable.mechanisms import Histogram, InverseSensitivity, UnknownKeys
from deniable.mechanisms.histogram import tally

KEYS = UnknownKeys(unit=Unit.row(), epsilon=1.0, delta=1e-12)  # so that a key of one row never shows by chance
UTC, EAST = datetime.UTC, datetime.timezone(datetime.timedelta(hours=1))


class Word(enum.StrEnum):
    A = "a"


class Folded(str):
    """A text that is equal to others that look different."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


Pair = collections.namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Place:
    number: Any


class Silent:
    """Equal to its like, and nothing to show."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Silent)

    def __hash__(self) -> int:
        return 1


EQUAL = {
    "zones": (datetime.datetime(2024, 1, 1, 9, tzinfo=UTC), datetime.datetime(2024, 1, 1, 10, tzinfo=EAST)),
    "folds": (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, fold=1)),
    "pandas and Python": (datetime.datetime(2024, 1, 1), pd.Timestamp("2024-01-01")),
    "pandas' zones": (pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-01 01:00", tz="Europe/Berlin")),
    "fine moments": (pd.Timestamp(1, tz="UTC"), pd.Timestamp(1, tz="Europe/Berlin")),
    "lengths of time": (datetime.timedelta(1), pd.Timedelta("1D")),
    "order of a set": (frozenset([0, 8]), frozenset([8, 0])),
    "complex numbers": (1, 1 + 0j),
    "signs of zero": (complex(0.0, 1), complex(-0.0, 1)),
    "enumerated texts": ("a", Word.A),
    "texts with names": ("a", np.str_("a")),
    "named tuples": ((1, 2), Pair(1.0, 2)),
    "inside": ((1, ("a",)), (1 + 0j, (Word.A,))),
}


@pytest.mark.parametrize("kind", EQUAL)
def test_equal_keys_look_the_same_whichever_came_first(kind: str) -> None:
    one, other = EQUAL[kind]
    assert one == other
    looks = {repr(list(KEYS.release(rows))) for rows in ([one, *[other] * 500], [other, *[one] * 500], [one] * 500)}
    assert len(looks) == 1
    assert looks != {"[]"}


@pytest.mark.parametrize(("one", "other"), [(Folded("a"), Folded("A")), (Place(1), Place(1.0))])
def test_equal_keys_that_look_different_are_counted_apart(one: Any, other: Any) -> None:
    assert one == other
    assert [count for _, count in tally([one, other, other]).values()] == [1, 2]
    assert repr(list(KEYS.release([one, *[other] * 500]))) == repr(list(KEYS.release([other] * 500)))
    assert len(KEYS.release([one] * 500 + [other] * 500)) <= 2


def test_objects_that_show_nothing_are_counted_by_equality() -> None:
    assert len(KEYS.release([Silent() for _ in range(500)])) == 1


def test_a_category_has_all_spellings_of_its_rows() -> None:
    rows = ["a", Word.A, np.str_("a"), (1, 2), Pair(1, 2), pd.Timestamp("2024-01-01"), datetime.datetime(2024, 1, 1)]
    bins = Histogram(categories=[Word.A, (1.0, 2), datetime.datetime(2024, 1, 1)], unit=Unit.row(), epsilon=1.0)
    assert bins.count(rows).tolist() == [3, 2, 2]
    assert bins.labels[0] is Word.A


@pytest.mark.parametrize(
    "categories",
    [
        ["a", None, float("nan")],
        [None, pd.NA],
        [pd.NaT, np.nan],
        [float("nan"), float("nan")],
        [1, 1 + 0j],
        [*EQUAL["zones"]],
    ],
    ids=["None and NaN", "None and NA", "NaT and NaN", "two NaN", "complex", "zones"],
)
def test_a_row_is_counted_in_one_bin(categories: list[Any]) -> None:
    """Each of these was counted in all bins that it is equal to: one row moved several counts."""
    with pytest.raises(InvalidParameter, match="different categories"):
        Histogram(categories=categories, unit=Unit.row(), epsilon=1.0)
    counts = Histogram(categories=["a", None], unit=Unit.row(), epsilon=1.0).count(["a", None, float("nan"), pd.NA])
    assert counts.tolist() == [1, 3]


class Unhashable:
    def __hash__(self) -> int:
        raise ValueError("secret")


class Incomparable:
    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret")


class Unwritten:
    def __repr__(self) -> str:
        raise RuntimeError("secret")


ODD = {
    "a fraction beyond all floats": Fraction(10**400, 3),
    "a long float": np.longdouble(1) / 3,
    "a list in a tuple": ([1],),
    "a signaling NaN": Decimal("sNaN"),
    "bytes of numpy": np.void(b"ab"),
    "a record of numpy": np.zeros(1, dtype=[("x", "i8"), ("y", "O")])[0],
    "a hash that raises": Unhashable(),
    "an equality that raises": Incomparable(),
    "nothing to write": Unwritten(),
    "a number that is too long": 10**5000,
    "a power that is too large": Decimal("1e999999999"),
    "the end of time": datetime.datetime.min.replace(tzinfo=EAST),
}


@pytest.mark.parametrize("kind", ODD)
def test_no_row_raises_an_error_or_moves_another(kind: str) -> None:
    rows = ["a", ODD[kind], "b", "a"]
    assert Histogram(categories=["a", "b"], unit=Unit.row(), epsilon=1.0).count(rows).tolist() == [2, 1]
    assert InverseSensitivity.mode(answers=["a", "b"], epsilon=1.0).distances(rows) == (0, 1)
    assert "a" in KEYS.release([*rows, *["a"] * 500])
    assert len(KEYS.release([ODD[kind]] * 500)) <= 1


def test_answers_that_cannot_be_hashed_are_refused() -> None:
    for odd in (([1],), Unhashable()):
        with pytest.raises(InvalidParameter, match="hashable") as refused:
            InverseSensitivity.mode(answers=["a", odd], epsilon=1.0)
        assert "secret" not in str(refused.value)
        with pytest.raises(InvalidParameter, match="hashable"):
            Histogram(categories=["a", odd], unit=Unit.row(), epsilon=1.0)


@pytest.mark.parametrize("kind", [kind for kind in EQUAL if kind not in ("texts with names",)])
def test_the_checks_tell_answers_apart_by_their_looks(kind: str) -> None:
    one, other = EQUAL[kind]
    assert plain({one: 5}) != plain({other: 5})
    assert plain([one]) != plain([other])
    assert plain([one]) == plain([one])
