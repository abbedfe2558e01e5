"""Whatever a mechanism answers, in columns that can be searched: numbers, fingerprints and kinds.

The encoding is total: numbers, arrays, tuples, dicts, strings, None, NaN, and exceptions (`Raised`) all have one. Two
answers that a reader can tell apart differ in their fingerprints or in their kinds (but for collisions of a 64-bit
hash, which can hide a difference and never invent one).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CoroutineType, FunctionType, MethodType
from typing import Any, Final, cast, final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_COLUMNS: Final = 64
"""Numbers of one answer that are looked at one by one, the first ones; the fingerprint has all of them."""

LONGEST: Final = 40
"""Letters of an answer that are shown."""

UNREADABLE: Final = "of which nothing can be read; let it return numbers, strings, lists or dicts"
"""What is said of an opaque answer."""

MESSAGE: Final = 200
"""Letters of an error's message that are shown."""

MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""Of the row hash: 2⁶⁴ divided by the golden ratio, an odd number whose bits are well mixed."""


@final
@dataclass(frozen=True, slots=True)
class Raised:
    """The mechanism raised instead of answering: an error is an output. Its message is no part of it."""

    error: str
    message: str = field(default="", repr=False, compare=False)
    """For the auditor, whose own mechanism it is, when nothing else came."""

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        said = " ".join(_or(str, error, "").split())
        return cls(type(error).__name__, said if len(said) <= MESSAGE else said[: MESSAGE - 1] + "…")

    def __str__(self) -> str:
        return f"raised {self.error}"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers, encoded. `raw` are the answers as they came."""

    raw: Any
    columns: Floats
    """One row an answer; NaN where there is no number."""
    keys: Ints
    """A fingerprint of the whole answer."""
    kinds: Ints
    """A fingerprint of its type: int or float, how long, where it is NaN."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, chosen: Any) -> Answers:
        raw = self.raw[chosen] if isinstance(self.raw, np.ndarray) else _picked(self.raw, chosen)
        return Answers(raw, self.columns[chosen], self.keys[chosen], self.kinds[chosen])

    def of_width(self, width: int) -> Answers:
        """The same with so many columns: NaN where there are none."""
        missing = width - self.columns.shape[1]
        if missing == 0:
            return self
        columns = np.pad(self.columns[:, :width], ((0, 0), (0, max(0, missing))), constant_values=np.nan)
        return Answers(self.raw, columns, self.keys, self.kinds)

    @staticmethod
    def of(raw: Any) -> Answers:
        """The encoding of a list of answers, or of an array with one row an answer."""
        if isinstance(raw, np.ndarray) and raw.dtype.kind in "biufc":
            return _of_array(raw)
        listed = list(raw)
        types = {type(answer) for answer in listed}
        if len(types) == 1 and types <= {int, float, bool}:
            array = np.array(listed)
            if array.dtype.kind in "bif":
                return _of_array(array)
        return _of_list(listed)


def _picked(raw: Sequence[Any], chosen: Any) -> list[Any]:
    if isinstance(chosen, slice):
        return list(raw[chosen])
    places = np.flatnonzero(chosen) if np.asarray(chosen).dtype == np.bool_ else np.asarray(chosen)
    return [raw[i] for i in places.tolist()]


def _of_array(raw: NDArray[Any]) -> Answers:
    flat = raw.reshape(len(raw), -1)
    if raw.dtype.kind == "c":  # a real and an imaginary number
        flat = np.stack([flat.real, flat.imag], axis=-1).reshape(len(raw), -1)
    columns = flat.astype(np.float64)
    bits = np.ascontiguousarray(columns).view(np.int64) if flat.dtype.kind == "f" else flat.astype(np.int64)
    odd = np.isnan(columns) * 1 + np.isinf(columns) * 2
    return Answers(raw, columns[:, :MOST_COLUMNS], _mixed(bits), _mixed(odd) if odd.any() else np.zeros(len(raw), int))


def _mixed(rows: Ints) -> Ints:
    """One number for each row."""
    if rows.shape[1] == 1:
        return rows[:, 0].astype(np.int64)
    found = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        found = (found ^ column.astype(np.int64).view(np.uint64)) * np.uint64(MULTIPLIER)
        found ^= found >> np.uint64(29)
    return found.view(np.int64)


def _of_list(listed: list[Any]) -> Answers:
    leaves = [_or(_leaves, answer, [math.nan]) for answer in listed]
    width = min(MOST_COLUMNS, max((len(row) for row in leaves), default=0))
    columns = np.full((len(listed), width), np.nan)
    for i, row in enumerate(leaves):
        columns[i, : len(row)] = row[:width]
    # What cannot be read (a list inside itself, an object that raises when it is written) is known by its type.
    keys = np.array([_or(_key, y, hash(type(y).__name__)) for y in listed], dtype=np.int64)
    kinds = np.array([_or(lambda a: hash(_kind(a)), y, hash(type(y).__name__)) for y in listed], dtype=np.int64)
    return Answers(listed, columns, keys, kinds)


def _or(read: Callable[[Any], Any], answer: Any, instead: Any) -> Any:
    try:
        return read(answer)
    except Exception:  # an answer is anybody's object: its __repr__, __hash__ or __float__ may raise whatever it likes
        return instead


def _key(answer: Any) -> int:
    """The fingerprint of one answer; an array by its bytes, as writing out each of its numbers takes long."""
    if isinstance(answer, np.ndarray) and answer.dtype.kind in "biuf":
        same = answer.astype(np.float64 if answer.dtype.kind == "f" else np.int64)
        return hash((answer.shape, same.tobytes()))
    return hash(plain(answer))


def _leaves(answer: Any) -> list[float]:
    """The numbers in an answer, from left to right; NaN for what is none."""
    if isinstance(answer, Mapping):
        # By key, so that the same key stands in the same column.
        return [x for key in sorted(answer, key=repr) for x in _leaves(answer[key])]
    if isinstance(answer, np.ndarray):
        if answer.dtype.kind in "biuf":
            return [float(x) for x in answer.ravel()[:MOST_COLUMNS]]
        answer = answer.ravel().tolist()
    if isinstance(answer, list | tuple):
        return [x for part in answer for x in _leaves(part)]
    if isinstance(answer, complex | np.complexfloating):
        return [float(answer.real), float(answer.imag)]
    try:
        return [float(answer)] if isinstance(answer, int | float | np.number | np.bool_) else [math.nan]
    except OverflowError:
        return [math.inf if answer > 0 else -math.inf]


def _kind(answer: Any) -> Hashable:
    if isinstance(answer, np.ndarray):
        return ("array", answer.dtype.kind, answer.shape)
    if isinstance(answer, list | tuple):
        return (type(answer).__name__, *(_kind(part) for part in answer))
    if isinstance(answer, Mapping):
        return ("dict", len(answer))
    if isinstance(answer, float | np.floating):
        return "nan" if math.isnan(answer) else "inf" if math.isinf(answer) else type(answer).__name__
    return str(answer) if isinstance(answer, Raised) else type(answer).__name__


def plain(answer: Any) -> Hashable:
    """An answer as something that can be counted: arrays and lists as tuples, numpy's numbers as Python's own."""
    if isinstance(answer, np.ndarray | np.generic):
        answer = answer.tolist()
    if isinstance(answer, list | tuple):
        parts = tuple(plain(part) for part in answer)
        return parts if type(answer) in (list, tuple) else (type(answer).__name__, *parts)
    if isinstance(answer, Mapping):
        return tuple(sorted(((plain(key), plain(part)) for key, part in answer.items()), key=repr))
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0, or one moment in two zones, but who reads the answer can tell
    # them apart by how they look.
    kind: Any = type(answer)
    if is_opaque(answer):
        return (kind.__name__,)
    if kind in (int, str, bytes) or (kind.__repr__ is object.__repr__ and isinstance(answer, Hashable)):
        return cast("Hashable", answer)
    return (kind.__name__, repr(answer))


def is_opaque(answer: Any) -> bool:
    """Whether an answer shows nothing but its type: a generator, a function, an object without content or looks."""
    kind: Any = type(answer)
    if isinstance(answer, Iterator | CoroutineType | FunctionType | MethodType):
        return True
    return kind.__repr__ is object.__repr__ and kind.__hash__ in (object.__hash__, None)


def says_nothing(answer: Any) -> bool:
    """Whether an answer is, or holds, something opaque."""
    if isinstance(answer, np.ndarray):
        return answer.dtype.kind == "O" and any(says_nothing(part) for part in answer.ravel().tolist())
    if isinstance(answer, list | tuple):
        return any(says_nothing(part) for part in answer)
    if isinstance(answer, Mapping):
        return any(says_nothing(part) for item in answer.items() for part in item)
    return is_opaque(answer)


def look(answer: Any) -> str:
    """An answer in a few words."""
    if isinstance(answer, Raised):
        return "an error: it " + str(answer)
    if isinstance(answer, np.generic):
        answer = answer.item()
    found: str = _or(repr, answer, f"a {type(answer).__name__}")
    return found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"


def numbers_of(answer: Any) -> Floats | None:
    """The numbers in an answer, in one row; None if it is not made of numbers."""
    try:
        row = np.asarray(answer)
    except ValueError:  # ragged
        return None
    return row.astype(float).ravel() if row.dtype.kind in "biuf" else None


def last_digits(columns: Floats) -> Floats:
    """For each row, the place of the last binary digit of its finest number: -3 for 0.625. Infinite if there is none.

    Floats that were added have gaps that depend on the value, so that a float alone may tell which value it came from
    (Mironov 2012).

    >>> last_digits(np.array([[0.625], [3.0], [4.0], [0.0]]))
    array([-3.,  0.,  2., inf])
    """
    size = np.abs(np.ascontiguousarray(columns))
    bits = size.view(np.int64)
    exponent = bits >> 52
    mantissa = (bits & (2**52 - 1)) | np.where(exponent > 0, 2**52, 0)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    places = (np.maximum(exponent, 1) - 1075 + lowest).astype(np.float64)
    places[(size == 0) | ~np.isfinite(size)] = np.inf
    return np.asarray(places.min(axis=1)) if places.shape[1] else np.full(len(places), np.inf)
