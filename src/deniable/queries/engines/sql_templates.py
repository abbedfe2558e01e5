"""The SQL of questions that differ in the numbers of their conditions alone: written once, and filled in from then on.

Where the numbers stand in the text is found by looking for them, and believed when the text of a second question, with
other numbers, comes out as writing it in full does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from deniable.queries.engines.sql_generation import Written
from deniable.queries.relations.exact_statistics import Collect, Filling, Number

_MOST: Final = 1000
"""Texts that are kept."""

_SMALL: Final = 2**31
"""From here on whole numbers are written in another way."""


@final
class Texts:
    """The texts of one engine. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[str, _Known] = {}

    def filled(self, filling: Filling) -> tuple[Collect, str] | None:
        """A question that asks for the same statistics by the same groups, and the text with these numbers; None where
        that is not known.
        """
        known = self._kept.get(filling.shape)
        numbers = [_written(each) for each in filling.numbers]
        if known is None or not known.believed or None in numbers:
            return None
        return known.question, known.text(numbers)

    def learn(self, question: Collect, written: Written) -> None:
        """Remember what was written for a question, or see whether what is remembered comes out the same."""
        filling, text = question.filling, written.main
        if filling is None or text is None or written.cells or written.wishes:
            return
        numbers = [_written(each) for each in filling.numbers]
        known = self._kept.get(filling.shape)
        if known is not None:
            if known.numbers & set(numbers):
                return
            known.believed = None not in numbers and known.text(numbers) == text
            if known.believed or None in numbers:
                return
        # New, or cut in a wrong place: a number can stand elsewhere in a text by chance.
        pieces = _cut(text, numbers)
        if pieces is not None:
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[filling.shape] = _Known(question, pieces, frozenset(numbers))


@final
@dataclass(slots=True)
class _Known:
    question: Collect
    pieces: list[str]
    numbers: frozenset[str | None]
    believed: bool = False

    def text(self, numbers: list[str | None]) -> str:
        parts = [self.pieces[0]]
        for number, piece in zip(numbers, self.pieces[1:], strict=True):
            parts += (str(number), piece)
        return "".join(parts)


def _cut(text: str, numbers: list[str | None]) -> list[str] | None:
    """What stands around the numbers of a text; None if one of them is not found behind the one before it."""
    pieces, rest = [], text
    for number in numbers:
        if number is None or number not in rest:
            return None
        before, _, rest = rest.partition(number)
        pieces.append(before)
    return [*pieces, rest]


def _written(number: Number) -> str | None:
    """A number as DuckDB's spelling has it; None for one that is written in another way than most."""
    if isinstance(number, int):
        return f"CAST({number} AS BIGINT)" if 0 <= number < _SMALL else None
    digits = repr(number)
    return None if number < 0 or "e" in digits else f"{digits}e0"
