"""Windows of SQL: the parts of `f(x) OVER (PARTITION BY … ORDER BY … ROWS …)`, which the caller reads one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from deniable.queries.plan.refusals import refuse
from deniable.queries.plan.window_functions import WINDOW_FUNCTIONS
from deniable.queries.sql.function_names import sql_name
from deniable.queries.sql.syntax_tree import exp, only, unwrapped

_FUNCTIONS: Final[dict[type[exp.Expression], str]] = {
    exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank", exp.Lag: "lag", exp.Lead: "lead",
    exp.PercentRank: "percent_rank", exp.CumeDist: "cume_dist", exp.Ntile: "ntile",
    exp.FirstValue: "first_value", exp.LastValue: "last_value",
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.Count: "count",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class WindowParts:
    """The nodes of a window. `order` has (node, descending, NULLs first)."""

    function: str
    argument: exp.Expression | None
    partition: tuple[exp.Expression, ...]
    order: tuple[tuple[exp.Expression, bool, bool], ...]
    offset: int
    frame: tuple[int | None, int | None] | None


def window_parts(node: exp.Window) -> WindowParts:
    """The parts of a window; `QuestionRefused` for a function or a frame that is not supported."""
    only(node, "this", "partition_by", "order", "spec", "over")
    inner = node.this
    function = _FUNCTIONS.get(type(inner))
    if function is None or str(node.args.get("over") or "OVER").upper() != "OVER":
        refuse("window function", what=sql_name(inner))
    only(inner, "this", "offset")
    offset = inner.args.get("this" if function == "ntile" else "offset")
    reach = 1 if offset is None else _whole(offset)
    if function == "ntile" and not reach:
        refuse("constant", what="the number of parts of NTILE, from 1,")
    argument = inner.args.get("this")
    if isinstance(argument, exp.Star) or not WINDOW_FUNCTIONS[function].takes_argument:
        argument = None
    if isinstance(argument, exp.Distinct):
        refuse("distinct aggregate")
    clause = node.args.get("order")
    order = []
    for part in () if clause is None else clause.expressions:
        only(part, "this", "desc")
        order.append((unwrapped(part.this), bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
    if not order and WINDOW_FUNCTIONS[function].needs_order:
        refuse("window order", what=sql_name(inner))
    return WindowParts(
        function,
        argument,
        tuple(node.args.get("partition_by") or ()),
        tuple(order),
        reach,
        _frame(node.args.get("spec")),
    )


def _frame(spec: exp.Expression | None) -> tuple[int | None, int | None] | None:
    if spec is None:
        return None
    only(spec, "kind", "start", "start_side", "end", "end_side")
    if str(spec.args.get("kind") or "").upper() != "ROWS":
        refuse("window frame")
    first = _end(spec.args.get("start"), spec.args.get("start_side"))
    last = 0 if spec.args.get("end") is None else _end(spec.args["end"], spec.args.get("end_side"))
    return first, last


def _end(given: object, side: object) -> int | None:
    """An end of a frame in rows after the current one; None for an open end."""
    if given == "UNBOUNDED":
        return None
    if given == "CURRENT ROW":
        return 0
    size = _whole(given)
    return -size if str(side).upper() == "PRECEDING" else size


def _whole(node: object) -> int:
    digits = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        refuse("constant", what="a number of rows of a window")
    return int(digits)
