"""The dialects that a question may be written in, and the first line of a text that names one.

`-- dialect: bigquery` in front of a text says how to read it. A caller may pass `dialect="bigquery"` instead, for which
`in_dialect` adds that line. So the line is part of the text wherever the text is stored, and it can be read again.
Needs no parser, because clients use it.
"""

from __future__ import annotations

import re
from typing import Final, Self, TypeVar, final

from deniable.errors import InvalidParameter, type_of

DIALECTS: Final = ("duckdb", "postgres", "bigquery", "snowflake", "spark")
"""The dialects that a text may be written in; the first one needs no line."""

_LINE: Final = re.compile(r"\A\s*--[ \t]*dialect:[ \t]*(\w+)[ \t]*\r?\n")

Asked = TypeVar("Asked")


@final
class InDialect(str):
    """A text whose first line was added, because the caller named the dialect as an argument."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str, dialect: str) -> Self:
        return cls(f"-- dialect: {dialect}\n{text}")

    @property
    def added(self) -> int:
        """The number of characters in front of the caller's own text."""
        return self.index("\n") + 1

    @property
    def own(self) -> str:
        """The caller's own text."""
        return self[self.added :]


def named_dialect(text: str) -> str | None:
    """The dialect that the first line of a text names; None if the text names no dialect."""
    found = _LINE.match(text)
    return None if found is None else found[1].lower()


def first_line(text: str) -> str:
    """The first line of a text with its line break, if it names a dialect; otherwise ""."""
    found = _LINE.match(text)
    return "" if found is None else found[0]


def in_dialect(question: Asked, dialect: str | None) -> Asked:
    """A question, or each question of a list, with its dialect named in the first line; unchanged without a dialect.

    Raises InvalidParameter if the dialect is not known, if a text names another one, or if there is no text.

    >>> in_dialect("SELECT COUNT(*) FROM visits", "spark")
    '-- dialect: spark\\nSELECT COUNT(*) FROM visits'
    """
    if dialect is None:
        return question
    if not isinstance(dialect, str) or dialect not in DIALECTS:
        shown = dialect if isinstance(dialect, str) else type_of(dialect)
        raise InvalidParameter("dialect", shown, f"must be one of {', '.join(DIALECTS)}")
    if isinstance(question, list | tuple):
        found: object = [_in_dialect(each, dialect) if isinstance(each, str) else each for each in question]
        return found  # type: ignore[return-value]  # a list of questions, as it was given
    return _in_dialect(question, dialect)


def _in_dialect(question: Asked, dialect: str) -> Asked:
    if not isinstance(question, str):
        raise InvalidParameter("dialect", dialect, f"is for questions in SQL, not {type_of(question)}", "leave it out")
    named = named_dialect(question)
    if named not in {None, dialect}:
        rule = f"contradicts the first line of the question, which names {named}"
        raise InvalidParameter("dialect", dialect, rule, "name the dialect once")
    # InDialect is a str, as the question is.
    return question if named or dialect == DIALECTS[0] else InDialect.of(question, dialect)  # type: ignore[return-value]
