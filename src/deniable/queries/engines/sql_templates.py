"""A cache of SQL for questions that differ only in the numbers of their conditions.

The first question of a shape is written in full, and its text is cut at its numbers. A number may occur elsewhere in
the text by chance, so the cut is only a guess. It is verified by the second question of the shape: filling in its
numbers must give exactly the text that writing it in full gives. From then on the template is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from deniable.queries.engines.sql_generation import Written
from deniable.queries.relations.exact_statistics import Collect, Filling, Number

_MOST: Final = 1000
"""Templates in the cache; when it is full, it is emptied."""

_SMALL: Final = 2**31
"""From here on, `Spelling.literal` writes integers in another form."""


@final
class Texts:
    """The templates of one engine. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[str, _Template] = {}

    def filled(self, filling: Filling) -> tuple[Collect, str] | None:
        """(a question with the same statistics and groups, the SQL with these numbers).

        None if there is no verified template, or if one of the numbers is written in another form (`_written`).
        """
        known = self._kept.get(filling.shape)
        numbers = [_written(each) for each in filling.numbers]
        if known is None or not known.verified or None in numbers:
            return None
        return known.question, known.text(numbers)

    def learn(self, question: Collect, written: Written) -> None:
        """Store a template for a question that was written in full, or verify the stored one against it."""
        filling, text = question.filling, written.main
        if filling is None or text is None or written.cells or written.wishes:
            return
        numbers = [_written(each) for each in filling.numbers]
        known = self._kept.get(filling.shape)
        if known is not None:
            if known.numbers & set(numbers):
                return
            known.verified = None not in numbers and known.text(numbers) == text
            if known.verified or None in numbers:
                return
        # A new shape, or one that was cut in a wrong place.
        pieces = _cut(text, numbers)
        if pieces is not None:
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[filling.shape] = _Template(question, pieces, frozenset(numbers))


@final
@dataclass(slots=True)
class _Template:
    question: Collect
    pieces: list[str]
    numbers: frozenset[str | None]
    verified: bool = False

    def text(self, numbers: list[str | None]) -> str:
        parts = [self.pieces[0]]
        for number, piece in zip(numbers, self.pieces[1:], strict=True):
            parts += (str(number), piece)
        return "".join(parts)


def _cut(text: str, numbers: list[str | None]) -> list[str] | None:
    """The pieces of text between these numbers; None if the numbers do not occur in this order."""
    pieces, rest = [], text
    for number in numbers:
        if number is None or number not in rest:
            return None
        before, _, rest = rest.partition(number)
        pieces.append(before)
    return [*pieces, rest]


def _written(number: Number) -> str | None:
    """A number in the usual form of DuckDB's SQL; None if it needs another form (a sign, or an exponent)."""
    if isinstance(number, int):
        return f"CAST({number} AS BIGINT)" if 0 <= number < _SMALL else None
    digits = repr(number)
    return None if number < 0 or "e" in digits else f"{digits}e0"
