"""Answers of any type as searchable columns: numbers, words, fingerprints and kinds.

Every answer has an encoding, including exceptions (`Raised`), and no part of an answer is left out (see
`answer_reading`). Two answers that a reader can distinguish differ in their fingerprints or kinds, except for
collisions of a 64-bit hash. A collision can hide a difference but never create one.
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

UNREADABLE: Final = "which cannot be read completely; let the mechanism return numbers, texts, lists or dicts"
"""The end of a sentence about an opaque answer."""
MOST_CELLS: Final = 2**28
"""The most numbers in all answers together: two gigabytes."""
NAMEABLE: Final = 1000
"""The most words whose texts are kept."""
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""The multiplier of the row hash: 2⁶⁴ divided by the golden ratio, an odd number whose bits are well mixed."""
SHOWN: Final = 3
"""The most types that a sentence lists."""


Shape = tuple[tuple[Path, str], ...]
"""(path, type at that path) for each part of an answer."""


@final
@dataclass(frozen=True, slots=True)
class SeenAnswers:
    """A summary of what was read from the answers."""

    answers: int
    types: tuple[str, ...]
    """Types of the answers, most frequent first."""
    numbers: int
    """The number of paths at which some answer has a number, including lengths and numbers in texts."""
    words: int
    """The number of paths at which some answer has a text, None, or another value that is not a number."""
    changing: int
    """How many of these paths vary between answers."""
    shut: tuple[str, ...]
    """Types that could not be read completely. With any of these, no finding is "consistent"."""

    def joined(self, other: SeenAnswers) -> SeenAnswers:
        """The summary of these and other answers."""
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
        """The summary in words."""
        types = ", ".join(self.types[:SHOWN]) + (", …" if len(self.types) > SHOWN else "")
        parts = [_counted(self.numbers, "number"), _counted(self.words, "word")]
        found = " and ".join(part for part in parts if part) or "nothing"
        changes = f"{self.changing:,} of them changing"
        if self.numbers + self.words == 1:
            changes = "which changes" if self.changing else "the same in all of them"
        sentence = f"Read in {self.answers:,} answers ({types}): {found}, {changes}."
        return sentence if not self.shut else f"{sentence} Not read: {', '.join(self.shut)}, {UNREADABLE}."


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}" if count else ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Encoded answers. `raw` has the original ones."""

    raw: Any
    numbers: AnswerTable
    words: AnswerTable
    """Texts, None and other values that are not numbers, as integer codes."""
    keys: Ints
    """A fingerprint of each whole answer."""
    kinds: Ints
    """A fingerprint of each answer's type: int or float, lengths, positions of NaN."""
    forms: Ints
    """The index in `shapes` of each answer's shape."""
    shapes: tuple[Shape, ...]
    """The different shapes of answers."""
    looks: Mapping[int, Any] = field(default_factory=dict)
    """Code -> word, for some of the words."""
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
        """These answers, followed by others."""
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
        """For each answer, a code of the type at a path; -1 if it has no such path."""
        known = [
            hash(dict(shape).get(path)) & answer_reading.WORD if path in dict(shape) else -1 for shape in self.shapes
        ]
        return np.array(known, dtype=np.int64)[self.forms]

    def type_named(self, place: int, path: Path) -> str:
        """The type at a path of one answer."""
        return dict(self.shapes[int(self.forms[place])]).get(path, "missing")

    @property
    def mixed(self) -> list[Path]:
        """Paths with more than one type."""
        at: dict[Path, set[str]] = {}
        for form in np.unique(self.forms).tolist():
            for path, kind in self.shapes[form]:
                at.setdefault(path, set()).add(kind)
        return [path for path, kinds in at.items() if len(kinds) > 1]

    @property
    def seen(self) -> SeenAnswers:
        """The summary of these answers."""
        # Hidden bits of a number count together with the number.
        apart = [path for path in self.words.paths if not is_stored(path)]
        numbers = {self.numbers.paths[place] for place in changes(self.numbers)}
        words = {self.words.paths[place] for place in changes(self.words)}
        stored = {path for path in words if is_stored(path)}
        changing = len(numbers | {path[:-1] for path in stored}) + len(words - stored)
        counts = (len(self.numbers.paths), len(apart))
        return SeenAnswers(len(self), self.types, *counts, changing, self.shut)

    @staticmethod
    def of(raw: Any) -> Answers:
        """Encode a list of answers, or an array with one row per answer."""
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
    """The indices of columns in which not all answers are equal."""
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
    """Whether the type has more digits than a 64-bit float."""
    return bool(array.dtype.kind in "fc" and array.real.dtype.itemsize > np.dtype(np.float64).itemsize)


def _is_beyond(array: NDArray[Any]) -> bool:
    """Whether there are integers that a float cannot represent exactly."""
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
    """Fingerprint and kind of a plain number, equal to those in an array of numbers, so that they do not depend on the
    other answers. None for other types.
    """
    kind = type(answer)
    if kind is float:
        odd = 1 if answer != answer else 2 if answer in (math.inf, -math.inf) else 0
        return int(np.float64(answer).view(np.int64)), _KINDS["f"] + odd
    if kind is bool or (kind is int and abs(answer) < answer_reading.WHOLE):
        return int(answer), _KINDS["b" if kind is bool else "i"]
    return None


def _mixed(rows: Ints) -> Ints:
    """A hash of each row."""
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
        original = answer.answer if isinstance(answer, Kept) else answer
        types[type(original).__name__ if not isinstance(original, Raised) else str(original)] += 1
        shut.update(found.shut)
        if len(looks) < NAMEABLE:
            looks.update({int(code): look for code, look in zip(found.words, found.looks, strict=True)})
        cells += len(found.numbers)
        if cells > MOST_CELLS:
            raise NotCertifiable(
                f"the first {i:,} of {len(listed):,} answers hold more than {MOST_CELLS:,} numbers; ask for about "
                f"{i // 2:,} trials, or let the mechanism return only the numbers that matter"
            )
    named = {shape: answer_reading.places(shape) for shape in groups}
    tables = [
        answer_table.gathered(
            [(named[shape][which], group[0], group[1 + which]) for shape, group in groups.items()], len(listed)
        )
        for which in (0, 1)
    ]
    shapes = tuple(tuple((path, kind) for _, path, kind, *_ in shape) for shape in places)
    type_names = tuple(name for name, _ in types.most_common())
    unread = tuple(name for name, _ in shut.most_common())
    all_words = with_signs(tables[1], tables[0], looks)
    return Answers(listed, tables[0], all_words, keys, kinds, forms, shapes, looks, type_names, unread)


# -- single answers --------------------------------------------------------------------------------------------------

WRITTEN: Final = (float, bool, complex, type(None), type(...))


def plain(answer: Any) -> Hashable:
    """An answer as a hashable value, to count answers: arrays and lists as tuples, numpy numbers as Python numbers."""
    if isinstance(answer, np.ndarray | np.generic) and answer.dtype.names is None:
        answer = answer.tolist()
    if type(answer) in (list, tuple):
        return tuple(plain(part) for part in answer)
    if type(answer) is dict:
        return tuple(sorted(((plain(key), plain(part)) for key, part in answer.items()), key=repr))
    if type(answer) in (int, str, bytes):
        return cast("Hashable", answer)
    # 1, 1.0 and True are equal, as are 0.0 and -0.0, or one moment in two time zones, but a reader can distinguish them
    # by their repr. (The repr of a NaN, a frame or a tensor is incomplete, so these are read.)
    if type(answer) in WRITTEN and answer == answer:
        return (type(answer).__name__, repr(answer))
    return (type(answer).__name__, answer_reading.read(answer).identity)


def read_whole(answer: Any) -> Hashable:
    """The same as `plain`, but raises `NotCertifiable` if a part of the answer cannot be read."""
    if isinstance(answer, Iterator):
        answer = answer_reading.drained(answer)
    if shut := answer_reading.read(answer).shut:
        raise NotCertifiable(f"an answer of type {type(answer).__name__} holds a {shut[0]}, {UNREADABLE}")
    return plain(answer)


def numbers_of(answer: Any) -> Floats | None:
    """The numbers of an answer in one row; None if it does not consist of numbers."""
    try:
        row = np.asarray(answer)
    except ValueError:  # ragged
        return None
    return row.astype(float).ravel() if row.dtype.kind in "biuf" else None


def last_digits(columns: Floats) -> Floats:
    """For each row, the position of the last binary digit of its finest number: -3 for 0.625. Infinite if all numbers
    are 0 or not finite.

    Sums of floats have gaps that depend on the summands, so a single float may reveal to which value noise was added
    (Mironov 2012).

    >>> last_digits(np.array([[0.625], [3.0], [4.0], [0.0]]))
    array([-3.,  0.,  2., inf])
    """
    places = each_last_digit(columns)
    return np.asarray(places.min(axis=1)) if places.shape[1] else np.full(len(places), np.inf)


def each_last_digit(columns: Floats) -> Floats:
    """The same for each single number."""
    size = np.abs(np.ascontiguousarray(columns))
    bits = size.view(np.int64)
    exponent = bits >> 52
    mantissa = (bits & (2**52 - 1)) | np.where(exponent > 0, 2**52, 0)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    places = (np.maximum(exponent, 1) - 1075 + lowest).astype(np.float64)
    places[(size == 0) | ~np.isfinite(size)] = np.inf
    return np.asarray(places)
