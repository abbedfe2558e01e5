"""Whatever a mechanism answers, in columns that can be searched: numbers, words, fingerprints and kinds.

The encoding is total: every answer has one, exceptions (`Raised`) too, and nothing in it is left out (see
`answer_reading`). Two answers that a reader can tell apart differ in their fingerprints or in their kinds (but for
collisions of a 64-bit hash, which can hide a difference and never invent one).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast, final

import numpy as np
from numpy.typing import NDArray

from deniable.audit import answer_reading, answer_table
from deniable.audit.answer_reading import Raised, look
from deniable.audit.answer_table import AnswerTable, Dense, Floats, Ints, Path
from deniable.audit.hidden_bits import is_stored, widened, with_signs
from deniable.audit.object_contents import Kept
from deniable.errors import NotCertifiable

__all__ = [
    "UNREADABLE",
    "Answers",
    "Floats",
    "Ints",
    "Raised",
    "SeenAnswers",
    "last_digits",
    "look",
    "numbers_of",
    "plain",
]

UNREADABLE: Final = "which cannot be read whole; let it return numbers, texts, lists or dicts"
"""What is said of an opaque answer."""
MOST_CELLS: Final = 2**28
"""Numbers of all answers together: two gigabytes of them."""
NAMEABLE: Final = 1000
"""Of more words than these nobody reads names."""
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""Of the row hash: 2⁶⁴ divided by the golden ratio, an odd number whose bits are well mixed."""
SHOWN: Final = 3
"""Types that are told by name."""


Shape = tuple[tuple[Path, str], ...]
"""Paths, and the types that stand there."""


@final
@dataclass(frozen=True, slots=True)
class SeenAnswers:
    """What was read in the answers."""

    answers: int
    types: tuple[str, ...]
    """Of the answers, the most frequent first."""
    numbers: int
    """Places at which some answer has a number: lengths, and numbers in texts, among them."""
    words: int
    """Places at which some answer has a text, None, or another thing that is no number."""
    changing: int
    """How many of these are not the same in all answers."""
    shut: tuple[str, ...]
    """Types that could not be read whole. While there are any, no finding is "consistent"."""

    def joined(self, other: SeenAnswers) -> SeenAnswers:
        """What was read in these answers and in others."""
        return SeenAnswers(
            self.answers + other.answers,
            tuple(dict.fromkeys(self.types + other.types)),
            max(self.numbers, other.numbers),
            max(self.words, other.words),
            max(self.changing, other.changing),
            tuple(dict.fromkeys(self.shut + other.shut)),
        )

    @property
    def sentence(self) -> str:
        """What was read, in plain words."""
        types = ", ".join(self.types[:SHOWN]) + (", …" if len(self.types) > SHOWN else "")
        parts = [_counted(self.numbers, "number"), _counted(self.words, "word")]
        found = " and ".join(part for part in parts if part) or "nothing"
        changes = f"{self.changing:,} of them changing"
        if self.numbers + self.words == 1:
            changes = "which changes" if self.changing else "the same in all of them"
        said = f"Read in {self.answers:,} answers ({types}): {found}, {changes}."
        return said if not self.shut else f"{said} Not read: {', '.join(self.shut)}, {UNREADABLE}."


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}" if count else ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers, encoded. `raw` are the answers as they came."""

    raw: Any
    numbers: AnswerTable
    words: AnswerTable
    """Texts, None and the like, as numbers that say which."""
    keys: Ints
    """A fingerprint of the whole answer."""
    kinds: Ints
    """A fingerprint of its type: int or float, how long, where it is NaN."""
    forms: Ints
    """Which of the shapes each answer has."""
    shapes: tuple[Shape, ...]
    """Where which types stand."""
    looks: Mapping[int, Any] = field(default_factory=dict)
    """What some of the words are."""
    types: tuple[str, ...] = ()
    shut: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, chosen: Any) -> Answers:
        raw = self.raw[chosen] if isinstance(self.raw, np.ndarray) else _picked(self.raw, chosen)
        return Answers(
            raw,
            self.numbers[chosen],
            self.words[chosen],
            self.keys[chosen],
            self.kinds[chosen],
            self.forms[chosen],
            self.shapes,
            self.looks,
            self.types,
            self.shut,
        )

    def joined(self, other: Answers) -> Answers:
        """These and others after them."""
        are_arrays = isinstance(self.raw, np.ndarray) and isinstance(other.raw, np.ndarray)
        raw = np.concatenate([self.raw, other.raw]) if are_arrays else [*self.raw, *other.raw]
        shapes = tuple(dict.fromkeys(self.shapes + other.shapes))
        place = {shape: i for i, shape in enumerate(shapes)}
        forms = [np.array([place[one] for one in side.shapes], dtype=np.int64)[side.forms] for side in (self, other)]
        return Answers(
            raw,
            answer_table.stacked(self.numbers, other.numbers),
            answer_table.stacked(self.words, other.words),
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.kinds, other.kinds]),
            np.concatenate(forms),
            shapes,
            {**self.looks, **other.looks},
            tuple(dict.fromkeys(self.types + other.types)),
            tuple(dict.fromkeys(self.shut + other.shut)),
        )

    def types_at(self, path: Path) -> Ints:
        """For each answer a number that says which type stands there; -1 where there is nothing."""
        known = [
            hash(dict(shape).get(path)) & answer_reading.WORD if path in dict(shape) else -1 for shape in self.shapes
        ]
        return np.array(known, dtype=np.int64)[self.forms]

    def type_named(self, place: int, path: Path) -> str:
        """The type that stands there in one answer."""
        return dict(self.shapes[int(self.forms[place])]).get(path, "missing")

    @property
    def mixed(self) -> list[Path]:
        """Places with several types."""
        at: dict[Path, set[str]] = {}
        for form in np.unique(self.forms).tolist():
            for path, kind in self.shapes[form]:
                at.setdefault(path, set()).add(kind)
        return [path for path, kinds in at.items() if len(kinds) > 1]

    @property
    def seen(self) -> SeenAnswers:
        """What was read."""
        # What is stored in a number counts with it.
        apart = [path for path in self.words.paths if not is_stored(path)]
        numbers = {self.numbers.paths[place] for place in changes(self.numbers)}
        words = {self.words.paths[place] for place in changes(self.words)}
        stored = {path for path in words if is_stored(path)}
        changing = len(numbers | {path[:-1] for path in stored}) + len(words - stored)
        counts = (len(self.numbers.paths), len(apart))
        return SeenAnswers(len(self), self.types, *counts, changing, self.shut)

    @staticmethod
    def of(raw: Any) -> Answers:
        """The encoding of a list of answers, or of an array with one row an answer."""
        if isinstance(raw, np.ndarray) and raw.dtype.kind in "biufc" and not _is_long(raw):
            return _of_array(raw)
        listed = list(raw)
        types = {type(answer) for answer in listed}
        if len(types) == 1 and types <= {int, float, bool}:
            array = np.array(listed)
            if array.dtype.kind in "bif" and not _is_beyond(array):
                return _of_array(array, types.pop().__name__)
        return _of_list(listed)


def _picked(raw: Sequence[Any], chosen: Any) -> list[Any]:
    if isinstance(chosen, slice):
        return list(raw[chosen])
    places = np.flatnonzero(chosen) if np.asarray(chosen).dtype == np.bool_ else np.asarray(chosen)
    return [raw[i] for i in places.tolist()]


def changes(one: AnswerTable) -> list[int]:
    """The columns in which not all answers are alike: another number, or none."""
    found: list[int] = []
    for places, block in one.blocks(range(len(one.paths))):
        if not len(block):
            continue
        first = block[0]
        is_other = (block != first) & ~(np.isnan(block) & np.isnan(first))
        found += [
            place for place, is_changing in zip(places, is_other.any(axis=0).tolist(), strict=True) if is_changing
        ]
    return found


# -- arrays ----------------------------------------------------------------------------------------------------------


def _is_long(array: NDArray[Any]) -> bool:
    """Whether there are digits that a float has not."""
    return bool(array.dtype.kind in "fc" and array.real.dtype.itemsize > np.dtype(np.float64).itemsize)


def _is_beyond(array: NDArray[Any]) -> bool:
    """Whether there are whole numbers that a float has not."""
    if array.dtype.kind not in "iu" or not array.size:
        return False
    return int(array.max()) >= answer_reading.WHOLE or int(array.min()) <= -answer_reading.WHOLE


def _of_array(raw: NDArray[Any], called: str = "") -> Answers:
    flat = raw.reshape(len(raw), -1)
    paths: tuple[Path, ...] = tuple(np.ndindex(*raw.shape[1:]))
    if raw.dtype.kind == "c":
        flat = np.concatenate([flat.real, flat.imag], axis=1)
        paths = tuple((part, *path) for part in (".real", ".imag") for path in paths)
    columns = widened(flat)
    bits = np.ascontiguousarray(columns).view(np.int64) if flat.dtype.kind == "f" else flat.astype(np.int64)
    if _is_beyond(flat):
        for name, part in answer_reading.split(flat):
            columns = np.concatenate([columns, part], axis=1)
            paths += tuple((*path, name) for path in np.ndindex(*raw.shape[1:]))
    odd = (np.isnan(columns) * 1 + np.isinf(columns) * 2).astype(np.int64)
    kind = _KINDS.get(raw.dtype.kind, 0) if raw.ndim == 1 else 0
    kinds = (_mixed(odd) if odd.any() else np.zeros(len(raw), np.int64)) + kind
    name = called or (raw.dtype.name if raw.ndim == 1 else f"array of {raw.dtype.name}")
    shape: Shape = (((), _NAMES.get(raw.dtype.kind, name)),)
    numbers, forms = Dense.of(paths, columns), np.zeros(len(raw), np.int64)
    looks: dict[int, Any] = {}
    words = with_signs(Dense.of((), np.empty((len(raw), 0))), numbers, looks)
    return Answers(raw, numbers, words, _mixed(bits), kinds, forms, (shape,), looks, (name,))


_KINDS: Final = {"f": 8, "i": 16, "b": 24}
_NAMES: Final = {"f": "float", "i": "int", "b": "bool"}


def _single(answer: Any) -> tuple[int, int] | None:
    """Fingerprint and kind of a plain number, as an array of such has them: an answer has the same, whatever came
    beside it.
    """
    kind = type(answer)
    if kind is float:
        odd = 1 if answer != answer else 2 if answer in (math.inf, -math.inf) else 0
        return int(np.float64(answer).view(np.int64)), _KINDS["f"] + odd
    if kind is bool or (kind is int and abs(answer) < answer_reading.WHOLE):
        return int(answer), _KINDS["b" if kind is bool else "i"]
    return None


def _mixed(rows: Ints) -> Ints:
    """One number for each row."""
    if rows.shape[1] == 1:
        return rows[:, 0].astype(np.int64)
    found = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        found = (found ^ column.astype(np.int64).view(np.uint64)) * np.uint64(MULTIPLIER)
        found ^= found >> np.uint64(29)
    return found.view(np.int64)


# -- everything else -------------------------------------------------------------------------------------------------


def _of_list(listed: list[Any]) -> Answers:
    keys, kinds, forms = (np.zeros(len(listed), np.int64) for _ in range(3))
    places: dict[Any, int] = {}
    groups: dict[Any, tuple[list[int], list[list[float]], list[list[float]]]] = {}
    looks: dict[int, Any] = {}
    types: Counter[str] = Counter()
    shut: Counter[str] = Counter()
    cells = 0
    for i, answer in enumerate(listed):
        found = answer_reading.read(answer)
        shape = tuple(found.shape)
        members, numbers, words = groups.setdefault(shape, ([], [], []))
        members.append(i)
        numbers.append(found.numbers)
        words.append(found.words)
        keys[i], kinds[i] = _single(answer) or (hash(found.identity), hash(found.kind))
        forms[i] = places.setdefault(shape, len(places))
        came = answer.answer if isinstance(answer, Kept) else answer
        types[type(came).__name__ if not isinstance(came, Raised) else str(came)] += 1
        shut.update(found.shut)
        if len(looks) < NAMEABLE:
            looks.update({int(code): said for code, said in zip(found.words, found.looks, strict=True)})
        cells += len(found.numbers)
        if cells > MOST_CELLS:
            raise NotCertifiable(
                f"the answers hold more than {MOST_CELLS:,} numbers together, after {i:,} of {len(listed):,}; ask for "
                f"fewer trials (some {i // 2:,}), or let it return the numbers that matter"
            )
    named = {shape: answer_reading.places(shape) for shape in groups}
    tables = [
        answer_table.gathered(
            [(named[shape][which], group[0], group[1 + which]) for shape, group in groups.items()], len(listed)
        )
        for which in (0, 1)
    ]
    shapes = tuple(tuple((path, kind) for _, path, kind, *_ in shape) for shape in places)
    told = tuple(name for name, _ in types.most_common())
    unread = tuple(name for name, _ in shut.most_common())
    told_apart = with_signs(tables[1], tables[0], looks)
    return Answers(listed, tables[0], told_apart, keys, kinds, forms, shapes, looks, told, unread)


# -- single answers --------------------------------------------------------------------------------------------------

WRITTEN: Final = (float, bool, complex, type(None), type(...))


def plain(answer: Any) -> Hashable:
    """An answer as something that can be counted: arrays and lists as tuples, numpy's numbers as Python's own."""
    if isinstance(answer, np.ndarray | np.generic) and answer.dtype.names is None:
        answer = answer.tolist()
    if type(answer) in (list, tuple):
        return tuple(plain(part) for part in answer)
    if type(answer) is dict:
        return tuple(sorted(((plain(key), plain(part)) for key, part in answer.items()), key=repr))
    if type(answer) in (int, str, bytes):
        return cast("Hashable", answer)
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0, or one moment in two zones, but who reads the answer can tell
    # them apart by how they look. (The looks of a NaN, a frame or a tensor leave most of it out: these are read.)
    if type(answer) in WRITTEN and answer == answer:
        return (type(answer).__name__, repr(answer))
    return (type(answer).__name__, answer_reading.read(answer).identity)


def read_whole(answer: Any) -> Hashable:
    """The same, refused where something in the answer cannot be read."""
    if isinstance(answer, Iterator):
        answer = answer_reading.drained(answer)
    if shut := answer_reading.read(answer).shut:
        raise NotCertifiable(f"an answer of type {type(answer).__name__} holds a {shut[0]}, {UNREADABLE}")
    return plain(answer)


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
    places = each_last_digit(columns)
    return np.asarray(places.min(axis=1)) if places.shape[1] else np.full(len(places), np.inf)


def each_last_digit(columns: Floats) -> Floats:
    """The same for each number by itself."""
    size = np.abs(np.ascontiguousarray(columns))
    bits = size.view(np.int64)
    exponent = bits >> 52
    mantissa = (bits & (2**52 - 1)) | np.where(exponent > 0, 2**52, 0)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    places = (np.maximum(exponent, 1) - 1075 + lowest).astype(np.float64)
    places[(size == 0) | ~np.isfinite(size)] = np.inf
    return np.asarray(places)
