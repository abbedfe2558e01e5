"""GROUP BY ROLLUP, CUBE and GROUPING SETS: one question in SQL whose tables are a batch.

Each set of keys is a question of its own; a key that a set has not is NULL in its rows, and GROUPING(key) is 1 there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import QuestionRefused
from deniable.ledger import Cost
from deniable.queries.answer.answer_display import Cell, Shown, portable
from deniable.queries.answer.shared_measurements import cost_of
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer, Receipt
    from deniable.queries.plan.question import Question
    from deniable.tables.schema import Table

MOST_SETS: Final = 64
_WORDS: Final = re.compile(r"\b(?:rollup|cube|grouping\s+sets)\b", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class Sets:
    """A question by several sets of keys, taken apart."""

    names: tuple[str, ...]
    """The columns of the whole result."""
    questions: tuple[Question, ...]
    constants: tuple[Mapping[str, int], ...]
    """For each question, the columns that are GROUPING(...), with their values."""


def names_sets(text: object) -> bool:
    """Whether a text may group by several sets of keys: it is read to know."""
    return isinstance(text, str) and _WORDS.search(text) is not None


def sets_of(text: object, tables: Mapping[str, Table]) -> Sets | None:
    """The questions of a text that groups by several sets of keys; None of every other text."""
    if not isinstance(text, str) or not names_sets(text):
        return None
    from deniable.queries.plan.fresh_names import fresh
    from deniable.queries.sql.dialect import exp, read, unwrapped
    from deniable.queries.sql.group_by import item
    from deniable.queries.sql.sql_reader import question_of

    found = read(text)
    tree: Any = found.tree
    kinds = exp.Rollup | exp.Cube | exp.GroupingSets
    group: Any = tree.args.get("group") if isinstance(tree, exp.Select) else None
    if group is None or not any(isinstance(each, kinds) for each in group.expressions):
        return None
    if any(tree.args.get(name) for name in ("order", "limit", "offset")):
        raise QuestionRefused(
            "clause", "ORDER BY and LIMIT are not taken beside ROLLUP, CUBE and GROUPING SETS",
            "leave them out, and sort the answer",
        )  # fmt: skip
    items = [item(node) for node in tree.expressions]

    def meant(node: Any) -> Any:
        """A key: what a position or an alias stands for, or itself."""
        inner: Any = unwrapped(node)
        if isinstance(inner, exp.Literal) and not inner.is_string and str(inner.this).isdigit():
            place = int(str(inner.this)) if len(str(inner.this)) < 5 else 0
            return unwrapped(items[place - 1][1]) if 1 <= place <= len(items) else inner
        if isinstance(inner, exp.Column) and not inner.table:
            named = [each for alias, each in items if alias and alias.casefold() == str(inner.name).casefold()]
            return unwrapped(named[0]) if named else inner
        return inner

    def listed(node: Any) -> list[Any]:
        return [meant(each) for each in node.expressions] if isinstance(node, exp.Tuple) else [meant(node)]

    def expanded(node: Any) -> list[list[Any]]:
        parts = [listed(each) for each in node.expressions] if isinstance(node, exp.Rollup | exp.Cube) else []
        if isinstance(node, exp.Rollup):
            chosen: list[tuple[Any, ...]] = [tuple(parts[:k]) for k in range(len(parts), -1, -1)]
        elif isinstance(node, exp.Cube):
            if len(parts) > 6:
                _refuse_many()
            chosen = [each for k in range(len(parts), -1, -1) for each in combinations(parts, k)]
        elif isinstance(node, exp.GroupingSets):
            return [each for inner in node.expressions for each in expanded(inner)]
        else:
            return [listed(node)]
        return [[key for part in each for key in part] for each in chosen]

    every = [expanded(each) for each in group.expressions]
    if any(value for name, value in group.args.items() if name != "expressions"):
        return None
    if len(every) > 8 or sum(map(len, every)) > MOST_SETS:
        _refuse_many()
    sets: dict[frozenset[str], list[Any]] = {}
    for each in product(*every):
        keys = {key.sql(): key for part in each for key in part}
        sets.setdefault(frozenset(keys), list(keys.values()))
        if len(sets) > MOST_SETS:
            _refuse_many()
    all_keys = {name for names in sets for name in names}
    names: list[str] = []
    for place, (alias, node) in enumerate(items):
        plain = str(node.name) if isinstance(node, exp.Column) else f"column_{place + 1}"
        names.append(alias or fresh(plain, names))
    questions, constants = [], []
    for here, keys_here in sets.items():
        shown, told = [], {}
        for name, (_, node) in zip(names, items, strict=True):
            inner: Any = unwrapped(node)
            if isinstance(inner, exp.Grouping):
                bits = ["0" if meant(each).sql() in here else "1" for each in inner.expressions]
                told[name] = int("".join(bits), 2)
            elif inner.sql() not in all_keys or inner.sql() in here:
                shown.append(exp.alias_(inner.copy(), name, quoted=True))
        one = tree.copy()
        one.set("expressions", shown)
        one.set("group", exp.Group(expressions=[key.copy() for key in keys_here]) if keys_here else None)
        questions.append(question_of(one, found.options, tables))
        constants.append(told)
    return Sets(tuple(names), tuple(questions), tuple(constants))


def _refuse_many() -> None:
    raise QuestionRefused(
        "clause", f"this groups by more than {MOST_SETS} sets of keys", "ask for fewer sets with GROUPING SETS"
    )


class Grouped(Shown):
    """The tables of a question that groups by several sets of keys, one below the other."""

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
        """What to know when reading it, a sentence each."""
        return tuple(dict.fromkeys(note for each in self.tables for note in each.notes))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: the whole as an answer tells it, and each table by itself."""
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
    """What all tables promise together."""
    first = answers[0]
    return Guarantee(
        first.budget.curve(cost_of(answers)), first.guarantee.unit, assumptions=first.guarantee.assumptions
    )


def _receipt(answers: Sequence[Answer]) -> Receipt:
    receipts = [each.receipt for each in answers]
    cost = sum((each.cost for each in receipts), start=Cost(0))
    return replace(receipts[0], cost=cost, rest=receipts[-1].rest, replayed=all(each.replayed for each in receipts))
