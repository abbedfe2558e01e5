"""Regular expressions that every engine matches in linear time, with the same result.

DuckDB uses RE2, which never backtracks; Spark uses Java's engine, which may take exponential time. So only patterns are
accepted for which backtracking cannot help: what follows a repetition (x*, x+, x{2,}) must not begin with a character
that x may match. Then only the longest repetition can lead to a match, and for Java it is written as possessive (x*+),
which never backtracks. A part that may be missing (x?, or a group with ?) doubles the ways to match. At most
`_MOST_WAYS` such parts are accepted where what follows may begin with the same characters. In a group that
repeats, the next character decides which alternative matches and whether a part is missing: (a|a){50}b would be tried
in 2⁵⁰ ways.

A pattern is a sequence of characters, classes ([a-z], [^/], \\d, \\w, \\s, the dot) and groups, each with ?, *, + or
{m,n}; groups may have alternatives; ^ stands at the beginning and $ at the end. The dot matches everything but a line
break, $ only the end of the text. Both engines look for the leftmost match, and of several the one that prefers earlier
alternatives and more repetitions, as Perl does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

Ranges = tuple[tuple[int, int], ...]
"""Code points, as sorted ranges with both ends."""

_LAST: Final = 0x10FFFF
_MOST_LETTERS: Final = 200
_MOST_TIMES: Final = 50
_MOST_WAYS: Final = 4
_MOST_PATHS: Final = 64
"""The most combinations of alternatives that can begin with the same letter."""
_CLASSES: Final[dict[str, Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_CONTROLS: Final = {"n": 10, "t": 9, "r": 13}


class UnfitPattern(Exception):
    """A pattern that is not accepted; the message says why."""


@final
@dataclass(frozen=True, slots=True)
class _Letter:
    """One code point of a set."""

    letters: Ranges


@final
@dataclass(frozen=True, slots=True)
class _Group:
    """Alternatives, each a sequence. `number` counts capturing groups from 1; 0 for a group that does not capture."""

    ways: tuple[tuple[_Times, ...], ...]
    number: int


@final
@dataclass(frozen=True, slots=True)
class _Times:
    """A part that is repeated at least `least` and at most `most` times; if `most` is None, any number of times."""

    part: _Letter | _Group
    least: int
    most: int | None


@final
@dataclass(frozen=True, slots=True)
class Pattern:
    """A checked pattern. `groups` is the number of its capturing groups."""

    parts: tuple[_Times, ...]
    starts: bool
    ends: bool
    groups: int

    def text(self, *, gives_back: bool = True) -> str:
        """The pattern in the common notation of RE2, Java and Python, all characters as numbers.

        Without `gives_back`, repetitions are possessive, as Java and Python write them.
        """
        inner = "".join(_written(each, gives_back) for each in self.parts)
        return ("\\A" if self.starts else "") + inner + ("\\z" if self.ends else "")

    @property
    def python(self) -> re.Pattern[str]:
        """The pattern compiled for Python's `re`, for the reference meaning. Cached."""
        return _compiled(self)

    @property
    def may_be_empty(self) -> bool:
        """Whether it matches the empty text."""
        return all(_is_nullable(each) for each in self.parts)

    @property
    def scans(self) -> int:
        """The most times that a character of the text is examined, for each character of the pattern.

        A match is tried from each place of the text, so a repetition may read the same characters from many places.
        That cannot happen if a fixed letter before it is one that the repetition does not match.
        """
        if self.starts:
            return 1
        fixed: list[Ranges] = []
        for each in self.parts:
            if each.most is None or isinstance(each.part, _Group):
                break
            if isinstance(each.part, _Letter) and each.least == each.most == 1:
                fixed.append(each.part.letters)
        unbounded = list(_unbounded(self.parts))
        if all(any(not _overlap(letters, run) for letters in fixed) for run in unbounded):
            return 2
        return max(2, 1000 // max(1, len(fixed)))


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """The checked pattern of a text; `UnfitPattern` if it is not accepted.

    >>> pattern("^https?://([^/]+)/").groups
    1
    >>> pattern("(a+)+b")
    Traceback (most recent call last):
    ...
    deniable.queries.relations.linear_patterns.UnfitPattern: a group that repeats must not hold an unlimited repetition
    """
    if len(text) > _MOST_LETTERS:
        raise UnfitPattern(f"a pattern must have at most {_MOST_LETTERS} characters")
    found = _Reader(text).whole()
    _check(found.parts, None if not found.ends else (), [0, 1], repeated=False)
    return found


@final
class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.groups = text, 0, 0

    def whole(self) -> Pattern:
        starts = self._taken("^")
        parts = self._sequence()
        ends = self._taken("$")
        if self.at < len(self.text):
            raise UnfitPattern(
                "alternatives must be in a group: (?:a|b)" if self.text[self.at] == "|" else
                "^ must be at the beginning of a pattern, $ at its end, and every bracket must be closed"
            )  # fmt: skip
        return Pattern(parts, starts, ends, self.groups)

    def _taken(self, letter: str) -> bool:
        if self.text.startswith(letter, self.at):
            self.at += len(letter)
            return True
        return False

    def _sequence(self) -> tuple[_Times, ...]:
        found: list[_Times] = []
        while self.at < len(self.text) and self.text[self.at] not in ")|$":
            found.append(self._times(self._part()))
        return tuple(found)

    def _part(self) -> _Letter | _Group:
        letter = self.text[self.at]
        self.at += 1
        if letter == "(":
            return self._group()
        if letter == "[":
            return _Letter(self._class())
        if letter == ".":
            return _Letter(_without(((10, 10),)))
        if letter == "\\":
            return _Letter(self._escaped())
        if letter in "^*+?{}]":
            raise UnfitPattern(f"{letter} is in a wrong place; write \\{letter} for the character")
        return _Letter(((ord(letter), ord(letter)),))

    def _group(self) -> _Group:
        number = 0
        if self._taken("?:"):
            pass
        elif self._taken("?"):
            raise UnfitPattern("a group must be (…) or (?:…); lookahead and lookbehind are not supported")
        else:
            self.groups += 1
            number = self.groups
        ways = [self._sequence()]
        while self._taken("|"):
            ways.append(self._sequence())
        if not self._taken(")"):
            raise UnfitPattern("a bracket is not closed")
        return _Group(tuple(ways), number)

    def _escaped(self) -> Ranges:
        if self.at >= len(self.text):
            raise UnfitPattern("a pattern must not end with a backslash")
        letter = self.text[self.at]
        self.at += 1
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter.lower() in _CLASSES:
            return _without(_CLASSES[letter.lower()])
        if letter in _CONTROLS:
            return ((_CONTROLS[letter], _CONTROLS[letter]),)
        if letter.isalnum():
            raise UnfitPattern(f"\\{letter} is not supported; \\d, \\w, \\s, \\n and \\t are")
        return ((ord(letter), ord(letter)),)

    def _class(self) -> Ranges:
        other = self._taken("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise UnfitPattern("a class [ is not closed")
            first = False
            low = self._in_class()
            if len(low) == 1 and low[0][0] == low[0][1] and re.match(r"-[^\]]", self.text[self.at :]):
                self.at += 1
                high = self._in_class()
                if len(high) != 1 or high[0][0] < low[0][0]:
                    raise UnfitPattern("a range in [ ] must go from a character to a later one")
                low = ((low[0][0], high[0][1]),)
            found += low
        self.at += 1
        made = _merged(found)
        return _without(made) if other else made

    def _in_class(self) -> Ranges:
        letter = self.text[self.at]
        self.at += 1
        if letter == "\\":
            return self._escaped()
        if letter == "[":
            raise UnfitPattern("write \\[ for the character [ in a class")
        return ((ord(letter), ord(letter)),)

    def _times(self, part: _Letter | _Group) -> _Times:
        least, most = 1, 1
        found = re.match(r"\{(\d{1,3})(,(\d{0,3}))?\}", self.text[self.at :])
        end: int | None = most
        if self._taken("?"):
            least = 0
        elif self._taken("*"):
            least, end = 0, None
        elif self._taken("+"):
            end = None
        elif found is not None:
            self.at += found.end()
            least = int(found[1])
            end = least if found[2] is None else int(found[3]) if found[3] else None
        if self.text[self.at : self.at + 1] in ("?", "+", "*", "{"):
            raise UnfitPattern("a part can have only one of ?, *, + and {m,n}; lazy repetition is not supported")
        if least > _MOST_TIMES or (end is not None and not least <= end <= _MOST_TIMES):
            raise UnfitPattern(f"a part must be repeated at most {_MOST_TIMES} times, or without a limit")
        return _Times(part, least, end)


def _check(parts: tuple[_Times, ...], after: Ranges | None, ways: list[int], *, repeated: bool) -> None:
    """Raise `UnfitPattern` if what follows a repetition may begin with a character that it repeats.

    `after` has the characters that may follow `parts`; None: the match may end there. In a group that repeats
    (`repeated`), two ways to match the same would be doubled by each repetition, so the next character must decide.
    """
    for i, each in enumerate(parts):
        follows = _first(parts[i + 1 :], after)
        if isinstance(each.part, _Group):
            repeats = each.most is None or each.most > 1
            if repeats and any(_unbounded(way) for way in each.part.ways):
                raise UnfitPattern("a group that repeats must not hold an unlimited repetition")
            starts = _first((_Times(each.part, 1, 1),), ())
            if each.most is None or (each.least != each.most and (repeats or repeated)):
                if follows is not None and _overlap(starts or (), follows):
                    raise UnfitPattern("a group that repeats must not be followed by something that it may also match")
                if any(all(_is_nullable(one) for one in way) for way in each.part.ways):
                    raise UnfitPattern("a group that repeats must not match the empty text")
            _check_alternatives(each.part, ways, repeated=repeated or repeats)
            if each.least != each.most or len(each.part.ways) > 1:
                _count(ways)
            further = _merged([*(follows or ()), *((starts or ()) if repeats else ())])
            for way in each.part.ways:
                _check(way, further, ways, repeated=repeated or repeats)
        elif each.least != each.most:
            clear = follows is None or not _overlap(each.part.letters, follows)
            if each.most is None and not clear:
                raise UnfitPattern("an unlimited repetition must not be followed by something that it may also match")
            if not clear:
                _count(ways)
                if repeated or (each.most is not None and each.most - each.least > 1):
                    raise UnfitPattern("a part that repeats must not be followed by something that it may also match")


def _check_alternatives(group: _Group, ways: list[int], *, repeated: bool) -> None:
    try:
        _check_first_letters(group)
    except UnfitPattern:
        if repeated:
            raise
        ways[1] *= len(group.ways)
        if ways[1] > _MOST_PATHS:
            raise UnfitPattern("too many alternatives begin with the same letter") from None


def _check_first_letters(group: _Group) -> None:
    """Raise `UnfitPattern` unless the first letter decides which alternative of a group matches."""
    seen: Ranges = ()
    for way in group.ways:
        if len(group.ways) > 1 and all(_is_nullable(one) for one in way):
            raise UnfitPattern("an alternative of a group that repeats must not match the empty text")
        first = _first(way, ()) or ()
        if _overlap(seen, first):
            raise UnfitPattern("the alternatives of a group that repeats must begin with different letters")
        seen = _merged([*seen, *first])


def _count(ways: list[int]) -> None:
    ways[0] += 1
    if ways[0] > _MOST_WAYS:
        raise UnfitPattern(f"a pattern must have at most {_MOST_WAYS} groups with alternatives or optional parts")


def _unbounded(parts: tuple[_Times, ...]) -> list[Ranges]:
    """The characters of each part that repeats without end, at any depth."""
    found: list[Ranges] = []
    for each in parts:
        if isinstance(each.part, _Group):
            found += [one for way in each.part.ways for one in _unbounded(way)]
            if each.most is None:
                found.append(((0, _LAST),))
        elif each.most is None:
            found.append(each.part.letters)
    return found


def _is_nullable(each: _Times) -> bool:
    if each.least == 0:
        return True
    return isinstance(each.part, _Group) and any(all(map(_is_nullable, way)) for way in each.part.ways)


def _first(parts: tuple[_Times, ...], after: Ranges | None) -> Ranges | None:
    """The characters with which a match of `parts`, followed by `after`, may begin; None if the match may also be
    empty.
    """
    found: list[tuple[int, int]] = []
    for each in parts:
        if isinstance(each.part, _Group):
            found += [one for way in each.part.ways for one in _first(way, ()) or ()]
        else:
            found += each.part.letters
        if not _is_nullable(each):
            return _merged(found)
    if after is None:
        return _merged(found) if found else None
    return _merged([*found, *after])


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def _without(ranges: Ranges) -> Ranges:
    found, at = [], 0
    for low, high in ranges:
        if at < low:
            found.append((at, low - 1))
        at = high + 1
    if at <= _LAST:
        found.append((at, _LAST))
    return tuple(found)


def _overlap(one: Ranges, two: Ranges) -> bool:
    return any(a <= d and c <= b for a, b in one for c, d in two)


def _written(each: _Times, gives_back: bool) -> str:
    if isinstance(each.part, _Letter):
        part = "[" + "".join(f"{_code(low)}-{_code(high)}" for low, high in each.part.letters) + "]"
    else:
        ways = "|".join("".join(_written(one, gives_back) for one in way) for way in each.part.ways)
        part = f"({'' if each.part.number else '?:'}{ways})"
    if each.most is None:
        return f"{part}{{{each.least},}}{'' if gives_back else '+'}"
    return part if each.least == each.most == 1 else f"{part}{{{each.least},{each.most}}}"


def _code(point: int) -> str:
    return f"\\x{{{point:X}}}"


@lru_cache(maxsize=256)
def _compiled(found: Pattern) -> re.Pattern[str]:
    text = re.sub(r"\\x\{([0-9A-F]+)\}", lambda code: f"\\U{int(code[1], 16):08x}", found.text())
    return re.compile(text.replace("\\z", "\\Z"))


@final
@dataclass(frozen=True, slots=True)
class Replacement:
    """The new text of a replacement, in pieces: texts, and numbers of groups."""

    pieces: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str, groups: int) -> Replacement:
        """The replacement of a text with \\1 for the first group; `UnfitPattern` if there is no such group."""
        pieces: list[str | int] = []
        for plain, number in re.findall(r"([^\\]+)|\\(.?)", text, re.DOTALL):
            if plain:
                pieces.append(plain)
            elif number == "\\":
                pieces.append("\\")
            elif number.isdigit() and int(number) <= groups:
                pieces.append(int(number))
            else:
                raise UnfitPattern(f"the new text may contain \\0 to \\{groups}, and \\\\ for a backslash")
        return cls(tuple(pieces))

    def filled(self, match: re.Match[str]) -> str:
        """The new text for one match; a group that took no part in the match is empty."""
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.pieces)

    def text(self, backslash: str, sign: str, moved: int = 0) -> str:
        """The notation of an engine: `sign` stands before the number of a group, `backslash` has the characters that
        need a backslash before them, and `moved` is added to the number of each group.
        """
        found = []
        for each in self.pieces:
            if isinstance(each, int):
                found.append(f"{sign}{each + moved}")
            else:
                found.append("".join(f"\\{letter}" if letter in backslash else letter for letter in each))
        return "".join(found)
