"""Reads an answer of any type: every number and word in it, with its path.

It reads numbers, texts (and the numbers in them), JSON, base64, bytes, dates, lists, dicts, sets, arrays, frames,
tensors, database rows, and objects by their items and attributes, at any depth. Lengths, types and the order of keys
are read too, because a mechanism may leak by any of them. An object that may contain more than can be read (a function,
a lock) is reported as not read; its accessible parts (the variables of a function, the object of a method) are read
nevertheless.
"""

from __future__ import annotations

import datetime
import math
import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from numbers import Number
from types import CoroutineType, ModuleType, NoneType
from typing import Any, Final, final

import numpy as np

from deniable.audit import encoded_texts, foreign_frames, object_contents
from deniable.audit.answer_table import Path
from deniable.audit.hidden_bits import widened
from deniable.errors import NotCertifiable

Entry = tuple[Any, ...]
"""("number", path, type), ("numbers", path, type, shape), ("word", path, type) or ("type", path, type)."""

LENGTH: Final = "length"
ORDER: Final = "order"
PATTERN: Final = "pattern"
JSON: Final = "json"
BASE64: Final = "base64"
LONGEST: Final = 40
"""The most characters of an answer in a sentence."""
MESSAGE: Final = 200
"""The most characters of an error's message in a sentence."""
WHOLE: Final = 2**53
"""Integers below this are exact as floats."""
HALF: Final = 50
"""Bits of the lower part of a larger integer."""
WORD: Final = 2**52 - 1
"""The mask of word codes: 52 bits, exact as a float."""
DEEP: Final = 32
"""The longest path. Deeper parts are read too, and numbered."""
MANY: Final = 10**6
"""An iterator with more items counts as endless."""

NUMBER: Final = re.compile(r"(?:(?<![\w.])[-+])?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
GROUPED: Final = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?")
ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{6,}")
SHUT: Final[tuple[type, ...]] = (*object_contents.FUNCTIONS, CoroutineType, ModuleType, foreign_frames.LOCK)
"""Types that cannot be read completely."""


class Endless(NotCertifiable):
    """An iterator with too many items."""


@final
@dataclass(frozen=True, slots=True)
class Raised:
    """An exception instead of an answer. An error is an output too, with all its contents."""

    error: str
    message: str = field(default="", repr=False, compare=False)
    """The message, for the auditor, if there are no other answers."""
    contents: Read | None = field(default=None, repr=False, compare=False)
    """Its arguments, attributes and causes at the time when it was raised."""
    identity: Hashable = field(default=(), repr=False)
    """Equal for errors with equal contents."""

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """Record an error with its contents."""
        message, contents = " ".join(safely(str, error, "").split()), read(error)
        shown = message if len(message) <= MESSAGE else message[: MESSAGE - 1] + "…"
        return cls(type(error).__name__, shown, contents, contents.identity)

    def __str__(self) -> str:
        return f"raised {self.error}"


def safely(read: Callable[[Any], Any], answer: Any, instead: Any) -> Any:
    """`read(answer)`, or `instead` if that raises."""
    try:
        return read(answer)
    except Exception:  # an answer may be a user's object: its __repr__, __hash__ or __float__ may raise any error
        return instead


def look(answer: Any) -> str:
    """A short text for an answer."""
    if isinstance(answer, Raised):
        return "an error: it " + str(answer)
    if isinstance(answer, np.generic):
        answer = answer.item()
    return shortened(safely(repr, answer, f"a {type(answer).__name__}"))


def shortened(text: str) -> str:
    """A text cut to LONGEST characters."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@final
class Read:
    """The contents of one answer. `shape` has the path and type of each number and word."""

    __slots__ = ("looks", "numbers", "shape", "shut", "words")

    def __init__(self) -> None:
        self.shape: list[Entry] = []
        self.numbers: list[float] = []
        self.words: list[float] = []
        self.looks: list[Any] = []
        """The original values of the words."""
        self.shut: list[str] = []
        """Types that were not read completely."""

    def number(self, path: Path, kind: str, value: float) -> None:
        """Add a number at this path of the answer."""
        self.shape.append(("number", path, kind))
        self.numbers.append(value)

    def several(self, path: Path, kind: str, shape: tuple[int, ...], values: Iterable[float]) -> None:
        """Add the numbers of an array of this shape."""
        self.shape.append(("numbers", path, kind, shape))
        self.numbers.extend(values)

    def word(self, path: Path, kind: str, content: Hashable, look: Any) -> None:
        """Add content that is compared for equality only, by a hash. `look` is its original value."""
        self.shape.append(("word", path, kind))
        self.words.append(float(hash((kind, content)) & WORD))
        self.looks.append(look)

    def type(self, path: Path, kind: str) -> None:
        """Add the name of a type whose content is read elsewhere."""
        self.shape.append(("type", path, kind))

    def exact(self, path: Path, kind: str, value: Any) -> None:
        """Add a number of any precision. Digits beyond a float's are added as separate numbers and a word."""
        try:
            near = float(value)
        except OverflowError:
            near = math.inf if value > 0 else -math.inf
        self.number(path, kind, near)
        if abs(near) >= WHOLE and (math.isfinite(near) or isinstance(value, int | Fraction)):
            whole = math.floor(value)
            self.number((*path, "upper"), "part", safely(float, whole >> HALF, near))
            self.number((*path, "lower"), "part", float(whole & (2**HALF - 1)))
            self.word((*path, "digits"), kind, hash(value), value)

    def inner(self, path: Path, other: Read) -> None:
        """Add the contents of a separately read value under a path."""
        self.shape += [(what, (*path, *within), *more) for what, within, *more in other.shape]
        self.numbers += other.numbers
        self.words += other.words
        self.looks += other.looks
        self.shut += other.shut

    def closed(self, path: Path, value: Any) -> None:
        """Add a value by its type alone, and note that its contents were not read."""
        name = type(value).__name__
        self.word(path, name, "", f"a {name}")
        self.shut.append(name)

    @property
    def identity(self) -> Hashable:
        """Equal for answers with equal contents."""
        return tuple(self.shape), array("d", self.numbers).tobytes(), tuple(self.words)

    @property
    def kind(self) -> Hashable:
        """Equal for answers with equal types, lengths and paths, and with NaN and infinities at equal positions."""
        odd = tuple((i, x != x) for i, x in enumerate(self.numbers) if not math.isfinite(x))
        return tuple(self.shape), odd


@lru_cache(maxsize=512)
def places(shape: tuple[Entry, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The paths of the numbers and of the words, in reading order."""
    numbers: list[Path] = []
    words: list[Path] = []
    seen: set[tuple[str, Path]] = set()

    def add(to: list[Path], what: str, path: Path) -> None:
        again = 1
        first = path
        while (what, path) in seen:  # two columns of a frame may have the same name
            again += 1
            path = (*first, f"again {again}")
        seen.add((what, path))
        to.append(path)

    for what, path, _, *more in shape:
        if what == "numbers":
            for index in np.ndindex(*more[0]):
                add(numbers, "number", (*path, *index))
        elif what == "number":
            add(numbers, "number", path)
        elif what == "word":
            add(words, "word", path)
    return tuple(numbers), tuple(words)


# -- one answer ------------------------------------------------------------------------------------------------------

Parts = Iterable[tuple[Path, Any]]
CLOSE: Final[Path] = ("close",)


def read(answer: Any) -> Read:
    """All contents of an answer. Iterative, because answers may be nested deeply."""
    found = Read()
    waiting: list[tuple[Path, Any]] = [((), answer)]
    around: set[int] = set()
    deeper = 0
    while waiting:
        path, value = waiting.pop()
        if path is CLOSE:
            around.discard(value)
            continue
        simple = SIMPLE.get(type(value))
        if simple is not None:
            simple(found, path, value)
            continue
        if id(value) in around:
            found.word(path, "itself", "", "itself")
            continue
        try:
            parts = list(_parts(found, path, value))
        except Endless:
            raise
        except Exception:
            # A user's object may raise any error; then only its type is read.
            found.closed(path, value)
            continue
        if parts:
            around.add(id(value))
            waiting.append((CLOSE, id(value)))
            for inner, part in reversed(parts):
                deeper += len(inner) > DEEP
                waiting.append((inner if len(inner) <= DEEP else (*inner[:DEEP], f"deeper {deeper}"), part))
    return found


def _parts(found: Read, path: Path, value: Any) -> Parts:
    """Read a value itself, and return its parts with their paths."""
    if isinstance(value, Enum):
        found.word(path, type(value).__name__, value.name, value.name)
        return [((*path, ".value"), value.value)]
    if isinstance(value, np.ndarray | np.generic):
        is_plain = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
        more = _attributes(path, value) if is_plain else []
        return [*_array(found, path, value), *more]
    for base in BASES:
        if isinstance(value, base):
            found.type(path, type(value).__qualname__)
            SIMPLE[base](found, path, value)
            return _attributes(path, value)
    if isinstance(value, SHUT):
        found.closed(path, value)
        return _below(path, object_contents.of_function(value))
    if isinstance(value, type):
        found.word(path, "type", f"{value.__module__}.{value.__qualname__}", value)
        return _below(path, object_contents.of_class(value))
    opened = foreign_frames.opened(value)
    if opened is not None:
        found.type(path, type(value).__qualname__)
        return _below(path, opened)
    return _collection(found, path, value)


def _collection(found: Read, path: Path, value: Any) -> Parts:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return [*_mapping(found, path, kind, value), *_attributes(path, value)]
    if isinstance(value, Set):
        return [*_set(found, path, kind, value), *_attributes(path, value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        found.type(path, kind)
        fields = [((*path, f".{name}"), part) for name, part in zip(value._fields, value, strict=True)]
        return [*fields, *_attributes(path, value)]
    if isinstance(value, Sequence):
        return [*_items(found, path, kind, value), *_attributes(path, value)]
    if isinstance(value, Iterator):
        return _items(found, path, kind, drained(value))
    return _object(found, path, kind, value)


def drained(value: Iterator[Any]) -> list[Any]:
    """The items of an iterator, which this exhausts. Raises `Endless` if there are too many."""
    items: list[Any] = []
    for item in value:
        items.append(item)
        if len(items) > MANY:
            raise Endless(
                f"an answer of type {type(value).__name__} has more than {MANY:,} items and may be endless; let the "
                "mechanism return a list"
            )
    return items


def _items(found: Read, path: Path, kind: str, items: Sequence[Any]) -> Parts:
    found.type(path, kind)
    found.number((*path, LENGTH), LENGTH, float(len(items)))
    types = set(map(type, items))
    if types == {float}:
        found.several(path, "float", (len(items),), items)
        return []
    if types == {int} and min(items) > -WHOLE and max(items) < WHOLE:
        found.several(path, "int", (len(items),), map(float, items))
        return []
    return [((*path, i), item) for i, item in enumerate(items)]


def _mapping(found: Read, path: Path, kind: str, value: Mapping[Any, Any]) -> Parts:
    keys = list(value)
    named = [safely(repr, key, type(key).__name__) for key in keys]
    found.type(path, kind)
    found.number((*path, LENGTH), LENGTH, float(len(keys)))
    found.word((*path, ORDER), ORDER, tuple(named), named)
    order = sorted(range(len(keys)), key=named.__getitem__)  # equal keys are in the same column
    parts: list[tuple[Path, Any]] = [((*path, f"[{named[i]}]"), value[keys[i]]) for i in order]
    if any(type(key) is not str or any(map(str.isdigit, key)) for key in keys):
        # Keys may be informative themselves, and values may be under a different key each time.
        parts += [((*path, "keys", i), key) for i, key in enumerate(keys)]
        parts += [((*path, "values", i), value[key]) for i, key in enumerate(keys)]
    return parts


def _set(found: Read, path: Path, kind: str, value: Set[Any]) -> Parts:
    """The members in sorted order, the presence of each, and the iteration order, which may reveal insertion order."""
    found.type(path, kind)
    found.number((*path, LENGTH), LENGTH, float(len(value)))
    are_numbers = all(isinstance(item, int | float) for item in value)
    members = sorted(value) if are_numbers else sorted(value, key=lambda item: safely(repr, item, ""))
    for item in members:
        if not isinstance(item, float):
            found.number((*path, f"has {safely(repr, item, '')}"), "member", 1.0)
    order = [] if (listed := list(value)) == members else listed
    return [((*path, i), item) for i, item in enumerate(members)] + [((*path, "as", i), x) for i, x in enumerate(order)]


def _object(found: Read, path: Path, kind: str, value: Any) -> Parts:
    """Read an object by its numeric value, its items and its attributes, or by its repr if it has none of these."""
    found.type(path, kind)
    parts: list[tuple[Path, Any]] = []
    if isinstance(value, BaseException):
        parts += _below(path, object_contents.of_error(value))
    is_number = isinstance(value, Number) or any(hasattr(type(value), name) for name in ("__float__", "__complex__"))
    if is_number:
        near = safely(float, value, None)
        parts.append(((*path, "number"), near if near is not None else complex(value)))
    if hasattr(type(value), "__iter__") and hasattr(type(value), "__len__"):
        parts.append(((*path, "items"), list(value)))
    parts += _attributes(path, value)
    if not parts:
        shown = repr(value)
        bare = ADDRESS.sub("", shown)
        found.word((*path, "looks"), kind, bare, bare)
        if bare != shown:
            found.shut.append(kind)
        else:
            parts.append(((*path, "looks"), shown))
    elif is_number:
        parts.append(((*path, "looks"), ADDRESS.sub("", repr(value))))
    return parts


def _attributes(path: Path, value: Any) -> Parts:
    return _below(path, object_contents.attributes(value))


def _below(path: Path, parts: Parts) -> Parts:
    return [((*path, *more), part) for more, part in parts]


# -- texts and bytes -------------------------------------------------------------------------------------------------


def _text(found: Read, path: Path, value: str, kind: str = "str") -> None:
    found.word(path, kind, value, value)
    found.number((*path, LENGTH), LENGTH, float(len(value)))
    pattern = re.sub(r"\d+", "#", value)  # keeps signs, points and spaces
    if pattern != value:
        found.word((*path, PATTERN), PATTERN, pattern, pattern)
    text = value.replace("\N{MINUS SIGN}", "-").strip()
    if _one_number(found, path, text, f"{kind} number"):
        return
    if (loaded := encoded_texts.loaded(text)) is not None:
        found.inner((*path, JSON), read(loaded[0]))
        return
    if (decoded := encoded_texts.decoded(text)) is not None:
        found.inner((*path, BASE64), read(decoded))
    matches = list(NUMBER.finditer(text))
    if not matches:
        return
    found.word((*path, "signless"), PATTERN, (signless := NUMBER.sub("#", text)), signless)
    for i, match in enumerate(matches):
        _one_number(found, (*path, f"number {i + 1}"), match.group(), "number")
    for i, match in enumerate(GROUPED.finditer(text)):  # 1,234 is one number or two
        _one_number(found, (*path, f"grouped {i + 1}"), match.group().replace(",", ""), "number")
    if "\n" in text:
        _lines(found, path, text)


def _one_number(found: Read, path: Path, text: str, kind: str) -> bool:
    try:
        value: Any = float(text)
    except ValueError:
        return False
    if abs(value) >= WHOLE and len(text) < MESSAGE and (NUMBER.fullmatch(text) or text.isdigit()):
        # A Decimal stores its exponent separately; as an integer, 1e99999999 would have that many digits.
        value = safely(Decimal, text, value)
        if isinstance(value, Decimal) and math.isinf(float(value)):
            found.number((*path, "exponent"), "exponent", float(value.adjusted()))
            found.word((*path, "digits"), kind, hash(value), value)
    found.exact(path, kind, value)
    return True


def _lines(found: Read, path: Path, text: str) -> None:
    """The numbers of each line, keyed by the text before them, because lines may come in any order or be missing."""
    seen: dict[str, int] = {}
    for line in text.splitlines():
        matches = list(NUMBER.finditer(line))
        if not matches:
            continue
        label = line[: matches[0].start()].strip(" \t,;:|=")
        seen[label] = seen.get(label, 0) + 1
        for i, match in enumerate(matches):
            _one_number(found, (*path, f"after {label!r}", seen[label], i), match.group(), "number")


def _bytes(found: Read, path: Path, value: bytes, kind: str = "bytes") -> None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(letter.isprintable() or letter in "\t\r\n" for letter in text):
        _text(found, path, text, kind)
        return
    found.word(path, kind, value, value)
    found.number((*path, LENGTH), LENGTH, float(len(value)))
    found.several((*path, "byte"), "byte", (len(value),), map(float, value))
    # The packing format is unknown, so try the usual ones; the search finds which of them is informative.
    for form in ("<f8", ">f8", "<i8", ">i8", "<f4", ">f4", "<i4", ">i4"):
        width = int(form[2])
        if value and len(value) % width == 0:
            with np.errstate(all="ignore"):
                packed = np.frombuffer(value, dtype=form).astype(np.float64)
            found.several((*path, form), "packed", (len(packed),), packed.tolist())


# -- arrays ----------------------------------------------------------------------------------------------------------


def _array(found: Read, path: Path, value: Any) -> Parts:
    if isinstance(value, np.ma.MaskedArray):
        found.type(path, "masked")
        return [(path, value.data), *_below(path, [((".mask",), value.mask), ((".fill_value",), value.fill_value)])]
    kind, letter = type(value).__name__, value.dtype.kind
    if isinstance(value, np.ndarray):
        kind = f"array {value.dtype.str}"
        if value.ndim > 1 and not value.flags.c_contiguous:
            kind += " F" if value.flags.f_contiguous else " strided"
        kind += "" if value.flags.writeable else " fixed"
        if value.ndim:
            found.number((*path, LENGTH), LENGTH, float(value.size))
    if value.dtype.names:
        found.type(path, kind)
        return [((*path, f"[{name!r}]"), value[name]) for name in value.dtype.names]
    if letter in "mM":
        unit = "".join(map(str, np.datetime_data(value.dtype)))
        _wholes(found, path, f"{kind} {unit}", np.asarray(value).astype(np.int64), np.isnat(value))
    elif letter == "c":
        found.type(path, kind)
        return [((*path, ".real"), value.real), ((*path, ".imag"), value.imag)]
    elif letter in "iu":
        _wholes(found, path, kind, np.asarray(value), np.False_)
    elif letter in "bf":
        numbers = widened(value)
        found.several(path, kind, np.shape(value), numbers.ravel().tolist())
        if value.dtype.itemsize > numbers.itemsize:  # more digits than a 64-bit float
            with np.errstate(invalid="ignore"):
                rest = np.asarray(value - numbers, dtype=np.float64)
            found.several((*path, "rest"), "part", np.shape(value), rest.ravel().tolist())
    else:
        found.type(path, kind)
        listed = value.tolist() if isinstance(value, np.ndarray) else value.item()
        return [] if listed is value else [((*path, "item") if np.ndim(value) == 0 else path, listed)]
    return []


def _wholes(found: Read, path: Path, kind: str, value: Any, missing: Any) -> None:
    numbers = np.where(missing, np.nan, value.astype(np.float64))
    found.several(path, kind, np.shape(value), numbers.ravel().tolist())
    if (np.abs(numbers) >= WHOLE).any():
        for name, part in split(value):
            there = np.where(missing, np.nan, part)
            found.several((*path, name), "part", np.shape(value), there.ravel().tolist())


def split(numbers: Any) -> list[tuple[str, Any]]:
    """Integers that are too large for floats in two parts; NaN for smaller ones."""
    small = np.abs(numbers.astype(np.float64)) < WHOLE
    parts = {"upper": numbers >> HALF, "lower": numbers & (2**HALF - 1)}
    return [(name, np.where(small, np.nan, part.astype(np.float64))) for name, part in parts.items()]


# -- single values ---------------------------------------------------------------------------------------------------


def _decimal(found: Read, path: Path, value: Decimal) -> None:
    found.word((*path, "digits"), type(value).__name__, str(value), value)
    exponent = value.as_tuple().exponent
    found.number((*path, "exponent"), "exponent", float(exponent) if isinstance(exponent, int) else math.nan)
    if value.is_nan():
        found.number(path, "Decimal", math.nan)
    else:
        found.exact(path, "Decimal", value)


def _fraction(found: Read, path: Path, value: Fraction) -> None:
    found.word((*path, "digits"), type(value).__name__, (value.numerator, value.denominator), value)
    found.exact(path, "Fraction", value)


def _complex(found: Read, path: Path, value: complex) -> None:
    found.number((*path, ".real"), "complex", value.real)
    found.number((*path, ".imag"), "complex", value.imag)


def _datetime(found: Read, path: Path, value: datetime.datetime) -> None:
    kind = type(value).__name__
    if value != value:  # a missing date of pandas
        found.word(path, kind, "", value)
        return
    offset = value.utcoffset()
    found.word((*path, "written"), kind, repr(value), value)
    found.number(path, kind, (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds())
    found.number((*path, "offset"), "offset", math.nan if offset is None else offset.total_seconds())


def _time(found: Read, path: Path, value: datetime.time) -> None:
    found.word((*path, "written"), "time", repr(value), value)
    whole = datetime.timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    found.number(path, "time", whole.total_seconds())


def _timedelta(found: Read, path: Path, value: datetime.timedelta) -> None:
    found.word((*path, "written"), "timedelta", repr(value), value)
    found.number(path, "timedelta", value.total_seconds())


def _raised(found: Read, path: Path, value: Raised) -> None:
    found.word(path, str(value), "", value)
    if value.contents is not None:
        found.inner((*path, "error"), value.contents)


SIMPLE: Final[dict[type, Callable[[Read, Path, Any], None]]] = {
    bool: lambda found, path, value: found.number(path, "bool", float(value)),
    int: lambda found, path, value: found.exact(path, "int", value),
    float: lambda found, path, value: found.number(path, "float", value),
    complex: _complex,
    str: _text,
    bytes: _bytes,
    bytearray: lambda found, path, value: _bytes(found, path, bytes(value), "bytearray"),
    memoryview: lambda found, path, value: _bytes(found, path, value.tobytes(), "memoryview"),
    NoneType: lambda found, path, value: found.word(path, "None", "", None),
    type(...): lambda found, path, value: found.word(path, "ellipsis", "", ...),
    type(NotImplemented): lambda found, path, value: found.word(path, "NotImplemented", "", value),
    Raised: _raised,
    object_contents.Kept: lambda found, path, value: found.inner(path, value.contents),
    Decimal: _decimal,
    Fraction: _fraction,
    datetime.datetime: _datetime,
    datetime.date: lambda found, path, value: found.number(path, "date", float(value.toordinal())),
    datetime.time: _time,
    datetime.timedelta: _timedelta,
}
"""Types that are read directly, without parts."""
BASES: Final = (
    int, float, complex, str, bytes, Decimal, Fraction, datetime.datetime, datetime.date, datetime.timedelta,
)  # fmt: skip
"""Base types whose subclasses are read like the base, plus their attributes."""
