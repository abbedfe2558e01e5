"""Shares of a total in SQL: COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ().

Such a window reads the numbers of all groups, which are noisy already, and not the rows of people. So the count or sum
is asked, and the share is computed from the noisy answer (`Answer.shares`), with an interval of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, final

from deniable.errors import QuestionRefused
from deniable.queries.sql.named_dialects import named_dialect

_WORD: Final = re.compile(r"\bOVER\s*\(\s*\)", re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class Windowed:
    """A question with counts in place of shares, and the factor of each share (100 for per cent)."""

    text: str
    factors: dict[str, float]


def shares_in(text: object) -> Windowed | None:
    """The question of a text with shares of a total; None for any other text. Raises `QuestionRefused`."""
    if not isinstance(text, str) or not _WORD.search(text):
        return None
    from deniable.queries.sql.dialect import read
    from deniable.queries.sql.syntax_tree import exp, item, unwrapped

    if named_dialect(text) is not None:  # the question about the counts is written by this module, in DuckDB's dialect
        return None
    found = read(text)
    tree: Any = found.tree
    if not isinstance(tree, exp.Select) or found.options:
        return None
    items, factors = [], {}
    for place, node in enumerate(tree.expressions):
        alias, inner = item(node)
        share = _share(unwrapped(inner), exp, unwrapped)
        if share is None:
            items.append(node)
            continue
        name = alias or f"column_{place + 1}"
        measure, factors[name] = share
        items.append(exp.alias_(measure.copy(), name, quoted=True))
    if not factors:
        return None
    if tree.args.get("having") is not None:
        raise QuestionRefused(
            "window", "HAVING is not supported with a share of the total", "leave it out, and filter the answer"
        )
    shown = tree.copy()
    shown.set("expressions", [each.copy() for each in items])
    return Windowed(shown.sql(dialect="duckdb"), factors)


def _share(node: Any, exp: Any, unwrapped: Any) -> tuple[Any, float] | None:
    """(measure, factor) of `factor * measure / SUM(measure) OVER ()`; None for another expression."""
    from deniable.queries.sql.syntax_tree import number

    if not isinstance(node, exp.Div):
        return None
    below = unwrapped(node.expression)
    if not isinstance(below, exp.Window) or any(below.args.get(each) for each in ("partition_by", "order", "spec")):
        return None
    total = unwrapped(below.this)
    if not isinstance(total, exp.Sum):
        return None
    measure, factor, above = unwrapped(total.this), 1.0, unwrapped(node.this)
    if isinstance(above, exp.Mul):
        sides = [unwrapped(above.this), unwrapped(above.expression)]
        numbers = [each for each in sides if isinstance(each, exp.Literal) and not each.is_string]
        others = [each for each in sides if each not in numbers]
        if len(numbers) != 1 or len(others) != 1:
            return None
        factor, above = float(number(str(numbers[0].this))), others[0]
    if isinstance(above, exp.Cast):
        above = unwrapped(above.this)
    return (measure, factor) if isinstance(measure, exp.AggFunc) and measure == above else None
