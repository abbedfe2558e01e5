"""GROUP BY ROLLUP, CUBE and GROUPING SETS: one question in SQL whose tables are a batch.

Each set of keys is a question of its own (`sql.key_sets` splits the text), and the questions are asked as a batch.
`Grouped` puts their answers one below the other: a key that a set does not have is NULL in its rows, and GROUPING(key)
is 1 there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from deniable.ledger import Cost
from deniable.queries.answer.answer_display import Cell, Shown, portable
from deniable.queries.answer.shared_measurements import total_cost
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.plan.question import Question
    from deniable.tables.schema import Table

_WORDS: Final = re.compile(r"\b(?:rollup|cube|grouping\s+sets)\b", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class Sets:
    """A text that groups by several sets of keys, as one question for each set."""

    names: tuple[str, ...]
    """The columns of the whole result."""
    questions: tuple[Question, ...]
    constants: tuple[Mapping[str, int], ...]
    """For each question, the value of each column that is GROUPING(...)."""


def names_sets(text: object) -> bool:
    """Whether a text mentions ROLLUP, CUBE or GROUPING SETS. A fast test; only `sets_of` reads the text."""
    return isinstance(text, str) and _WORDS.search(text) is not None


def sets_of(text: object, tables: Mapping[str, Table]) -> Sets | None:
    """The questions of a text that groups by several sets of keys; None for any other text.

    Raises `QuestionRefused` if the text is not a question, or if it has too many sets.
    """
    if not isinstance(text, str) or not names_sets(text):
        return None
    from deniable.queries.sql.dialect import read
    from deniable.queries.sql.key_sets import selects_by_set
    from deniable.queries.sql.sql_reader import question_of

    found = read(text)
    split = selects_by_set(found.tree)
    if split is None:
        return None
    names, selects = split
    questions = tuple(question_of(each.select, found.options, tables) for each in selects)
    return Sets(tuple(names), questions, tuple(each.constants for each in selects))


class Grouped(Shown):
    """The answers of a question that groups by several sets of keys, as one table; `tables` has one answer for each
    set.
    """

    __slots__ = ("guarantee", "receipt", "tables")

    def __init__(self, sets: Sets, answers: Sequence[Answer]) -> None:
        self.tables = tuple(answers)
        cells: list[tuple[Cell, ...]] = []
        intervals = []
        for answer, constants in zip(answers, sets.constants, strict=True):
            bounds = {name: answer.interval(name) for name in answer.columns}
            for place, row in enumerate(answer):
                cells.append(tuple(constants[name] if name in constants else row.get(name) for name in sets.names))
                intervals.append(tuple(bounds[name][place] if name in bounds else None for name in sets.names))
        self.guarantee, self.receipt = _promise(answers), _receipt(answers)
        super().__init__(
            sets.names, cells, intervals, answers[0].confidence,
            measured=frozenset().union(*(each.measured for each in answers)),
            counts=frozenset().union(*(each.counted for each in answers)),
        )  # fmt: skip

    def _papers(self) -> str:
        return str(self.receipt)

    def _entry(self) -> int:
        return self.receipt.entry

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all tables, each once."""
        return tuple(dict.fromkeys(note for each in self.tables for note in each.notes))

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-ready dict: the whole in the form of `Answer.to_dict`, and each table in "tables"."""
        tables = [each.to_dict() for each in self.tables]
        kinds = {name: kind for each in tables for name, kind in zip(each["columns"], each["kinds"], strict=True)}
        receipt = self.receipt
        return {
            "columns": list(self._names),
            "rows": [[portable(cell) for cell in row] for row in self._cells],
            "intervals": [[None if each is None else list(each) for each in row] for row in self._intervals],
            "confidence": self.confidence,
            "kinds": [kinds.get(name, "integer") for name in self._names],
            "measured": sorted(self._measured),
            "counts": sorted(self._counts),
            "adjusted": False,
            "notes": list(self.notes),
            "provenance": tables[0]["provenance"]
            | {"guarantee": self.guarantee.curve.to_dict(), "paid": receipt.paid, "left": receipt.left}
            | {"replayed": receipt.replayed},
            "tables": tables,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)


def _promise(answers: Sequence[Answer]) -> Guarantee:
    """The guarantee of all tables together."""
    first = answers[0]
    return Guarantee(
        first.budget.curve(total_cost(answers)), first.guarantee.unit, assumptions=first.guarantee.assumptions
    )


def _receipt(answers: Sequence[Answer]) -> Receipt:
    receipts = [each.receipt for each in answers]
    cost = sum((each.cost for each in receipts), start=Cost(0))
    return replace(receipts[0], cost=cost, rest=receipts[-1].rest, replayed=all(each.replayed for each in receipts))
