"""A question as a record: the rows (a relation), the groups (keys), the noisy aggregates (measures), and the `Post`
step that computes the result from them. Both fronts, SQL and dataframes, build it by `asked`, which checks it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import QuestionRefused
from deniable.queries.plan.canonical_form import Form, digest, expression_form, relation_form
from deniable.queries.plan.noisy_windows import NoisyWindow, Order, in_order
from deniable.queries.relations.constant_kinds import fitted
from deniable.queries.relations.exact_statistics import Group
from deniable.queries.relations.operator_table import Value
from deniable.queries.relations.operators import Columns, typed
from deniable.queries.relations.relation_nodes import Bound, RelationNode
from deniable.queries.relations.whole_people import check_whole_people
from deniable.tables.expressions import Call, Column, Expression, renamed
from deniable.tables.kinds import NUMBERS, TINIEST, Domain, Kind, Scalar, kind_of


@final
@dataclass(frozen=True, slots=True)
class MeasureFunction:
    """The public facts of a noisy aggregate: what it accepts, and the kind of its answer."""

    counts: bool = False
    """Whether it counts: values of every kind, without bounds."""
    takes_rows: bool = False
    """Whether it needs no expression."""
    keeps_kind: bool = False
    """Whether an answer has the kind of the values; otherwise it is a real number."""
    is_never_null: bool = False
    """Whether an answer about no values is 0, not NULL."""
    takes_dates: bool = False
    is_of_persons: bool = False
    is_ranked: bool = False
    """Whether it is read from running totals, one for each cell."""
    example: str = ""
    """Its name in examples of SQL, if that is not its own name."""


FUNCTIONS: Final[Mapping[str, MeasureFunction]] = {
    "count": MeasureFunction(counts=True, takes_rows=True),
    "count_persons": MeasureFunction(counts=True, takes_rows=True, is_of_persons=True),
    "count_distinct": MeasureFunction(counts=True),
    "sum": MeasureFunction(keeps_kind=True, is_never_null=True),
    "avg": MeasureFunction(),
    "var": MeasureFunction(),
    "stddev": MeasureFunction(),
    "quantile": MeasureFunction(is_ranked=True, example="MEDIAN"),
    "min": MeasureFunction(keeps_kind=True, takes_dates=True, is_ranked=True),
    "max": MeasureFunction(keeps_kind=True, takes_dates=True, is_ranked=True),
}
"""The noisy aggregates. Those that do not count need numbers (or dates) with public bounds."""

MOST_MEASURES: Final = 100
MOST_GROUPS: Final = 1_000_000
_WIDEST: Final = Fraction(2) ** 200  # wider bounds cannot be intended
_EVERYTHING: Final = Fraction(sys.float_info.max)  # the bounds of a number about which nothing is known
BOUNDS: Final = frozenset({"max_groups_contributed", "max_rows_per_group"})
"""The options that leave out rows of a person, so that one person moves the answer less."""
_OPTIONS: Final = frozenset({"epsilon", "delta"}) | BOUNDS


@final
@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A grouping key. `values` lists its public values in the order of the result (None among them is NULL).

    `values` None: the values are not public, and a threshold decides which of them are published.
    """

    name: str
    expression: Expression
    values: tuple[Scalar | None, ...] | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """A noisy aggregate. `options`: `q` of a quantile (0 to 1), `ddof` (0 or 1) of var and stddev."""

    name: str
    function: str
    expression: Expression | None
    options: Mapping[str, float] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Post:
    """Post-processing of the noisy answers: columns, HAVING, ORDER BY, LIMIT. It reads noisy numbers only, so it costs
    nothing and reveals nothing more.

    Expressions refer by name to keys, measures and `windows`. Windows read the groups that HAVING keeps, and a window
    may refer to earlier windows. `qualify` is a condition on the rows with their windows. An aggregate over noisy rows
    is a window over all rows (or over the rows with the same key), of which one row is kept.
    """

    columns: tuple[tuple[str, Expression], ...]
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    windows: tuple[NoisyWindow, ...] = ()
    qualify: Expression | None = None

    def passing(self, rows: Sequence[Mapping[str, Value]], domains: Mapping[str, Domain]) -> list[int]:
        """The indices of the rows that HAVING keeps. Windows are computed over these rows."""
        if self.having is None:
            return list(range(len(rows)))
        passes = typed(self.having, domains).value
        return [i for i, row in enumerate(rows) if passes(row) is True]

    def opened(
        self, kept: Sequence[int], rows: Sequence[Mapping[str, Value]], domains: Mapping[str, Domain]
    ) -> list[dict[str, Value]]:
        """The rows with the values of the windows over those at the places `kept`."""
        found = [dict(row) for row in rows]
        for window in self.windows:
            for i, value in window.values(kept, found, domains).items():
                found[i][window.name] = value
            for row in found:
                row.setdefault(window.name, None)
        return found

    def select(
        self, rows: Sequence[Mapping[str, Value]], domains: Mapping[str, Domain]
    ) -> list[tuple[int, tuple[Value, ...]]]:
        """The rows of the result in order, each as (index of its noisy row, values of the columns)."""
        kept = self.passing(rows, domains)
        if self.windows:
            rows = self.opened(kept, rows, domains)
        if self.qualify is not None:
            passes = typed(self.qualify, domains).value
            kept = [i for i in kept if passes(rows[i]) is True]
        kept = in_order(kept, self.order, rows, domains)
        kept = kept[self.offset :][: self.limit]
        values = [typed(expression, domains).value for _, expression in self.columns]
        return [(i, tuple(value(rows[i]) for value in values)) for i in kept]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A checked question; `asked` builds it and sorts its measures into a canonical order.

    `hash` is the same for questions that measure the same of the same rows, in any spelling, so the measures of two
    questions with one hash agree by position. `post` is not part of the hash, because it only transforms measured
    numbers. `options` are those of BigQuery's OPTIONS(...): epsilon, delta, and max_groups_contributed and
    max_rows_per_group, which add a `Bound` to the relation: it keeps so many groups of a person, and so many rows of a
    person in each group, chosen by the secret rank of rows.
    """

    relation: RelationNode
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    post: Post
    options: Mapping[str, float]
    hash: str
    domains: Columns = field(init=False, repr=False)
    """The domains of keys and measures by name, which `post` may refer to."""

    def __post_init__(self) -> None:
        if any(each.function == "count_persons" for each in self.measures):
            check_whole_people(self.relation.tables)
        below = self.relation.columns
        found = {key.name: typed(key.expression, below).domain for key in self.keys}
        found |= {measure.name: answer_domain(measure, self.relation) for measure in self.measures}
        for window in self.post.windows:
            found[window.name] = window.domain(found)
        object.__setattr__(self, "domains", Columns(found))

    @property
    def known(self) -> tuple[Group, ...] | None:
        """Every group that can appear, in order; None if a key is not public."""
        lists = [key.values for key in self.keys]
        known = [values for values in lists if values is not None]
        return tuple(product(*known)) if len(known) == len(lists) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the result."""
        return tuple(name for name, _ in self.post.columns)

    def __repr__(self) -> str:
        of = ", ".join(table.name for table in self.relation.tables)
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        return f"<Question: {', '.join(self.names)} of {of}{by}; {self.hash[:12]}>"

    def with_columns(self, **expressions: Expression) -> Question:
        """The question with further columns computed from the noisy answers. Free; does not change the hash.

        Example: `question.with_columns(each=col("cost") / col("n"))`. A column of the same name is replaced.
        """
        kept = tuple((name, each) for name, each in self.post.columns if name not in expressions)
        added = tuple((name, self._shown(each)) for name, each in expressions.items())
        return check_post(replace(self, post=replace(self.post, columns=(*kept, *added))))

    def having(self, condition: Expression) -> Question:
        """The question with only those rows of the result for which a condition on noisy answers is true. Free."""
        parts = [each for each in (self.post.having, self._shown(condition)) if each is not None]
        both = parts[0] if len(parts) == 1 else Call("and", tuple(parts))
        return check_post(replace(self, post=replace(self.post, having=both)))

    def order_by(self, *columns: str | Expression, descending: bool = False) -> Question:
        """The question with its result sorted by columns, given by name or as expressions; NULLs come last. Free."""
        shown = (self._shown(Column(each) if isinstance(each, str) else each) for each in columns)
        return check_post(
            replace(self, post=replace(self.post, order=tuple(Order(each, descending) for each in shown)))
        )

    def limit(self, count: int, *, offset: int = 0) -> Question:
        """The question with `count` rows of the result, after skipping `offset`. Free: it costs what all rows cost."""
        within = NumberRange("must be a whole number of rows", least=0)
        arguments.python_int("limit", count, within)
        arguments.python_int("offset", offset, within)
        return replace(self, post=replace(self.post, limit=count, offset=offset))

    def _shown(self, expression: Expression) -> Expression:
        return renamed(expression, dict(self.post.columns))


def asked(
    relation: RelationNode, keys: Sequence[Key], measures: Sequence[Measure], post: Post, options: Mapping[str, float]
) -> Question:
    """Build and check a question. Equal measures become one, and measures are sorted by canonical form.

    Raises `QuestionRefused` with a rule and an example if the question cannot be answered privately.
    """
    if not measures:
        remedy = f"write SELECT COUNT(*) FROM {_first(relation)}, or .agg(n=count()) of a dataframe"
        raise QuestionRefused("aggregate", "a question must ask for at least one aggregate", remedy)
    if len(measures) > MOST_MEASURES:
        raise QuestionRefused(
            "too_deep", f"a question must have at most {MOST_MEASURES} aggregates", "ask in several questions"
        )
    unknown = set(options) - _OPTIONS
    if unknown:
        raise QuestionRefused(
            "options", f"the option {min(unknown)!r} is not known", f"choose from {', '.join(sorted(_OPTIONS))}"
        )
    relation = _bounded(relation, keys, options)
    _, columns = relation_form(relation)
    for measure in measures:
        check_measure(measure, relation)
    for key in keys:
        check_key(key, relation)
    first: dict[Form, Measure] = {}
    same_as: dict[str, Expression] = {}
    for measure in measures:
        kept = first.setdefault(_measure_form(measure, columns), measure)
        if kept is not measure:
            same_as[measure.name] = Column(kept.name)
    ordered = tuple(sorted(first.items(), key=lambda item: repr(item[0])))
    kept_ones = tuple(measure for _, measure in ordered)
    hash = question_hash(relation, keys, kept_ones)
    question = Question(relation, tuple(keys), kept_ones, _redirected(post, same_as), dict(options), hash)
    _check_size(question)
    return check_post(question)


def _bounded(relation: RelationNode, keys: Sequence[Key], options: Mapping[str, float]) -> RelationNode:
    """The relation with the bounds of the options: on a person's groups, and on their rows in each group."""
    if not keys:
        if "max_rows_per_group" in options:
            rule = "max_rows_per_group is for a question with GROUP BY"
            raise QuestionRefused("options", rule, "leave it out, or group by a key")
        return relation
    rows = relation.rows  # no person has more groups than rows, nor more rows in a group
    groups, each = (
        int(min(rows, options.get(name, rows))) for name in ("max_groups_contributed", "max_rows_per_group")
    )
    if groups == each == rows:
        return relation
    return Bound(relation, tuple(key.expression for key in keys), groups, each)


def question_hash(relation: RelationNode, keys: Sequence[Key], measures: Sequence[Measure]) -> str:
    """The hash of a question, whose measures must be in the order of their canonical forms."""
    below, columns = relation_form(relation)
    by = tuple(
        (expression_form(key.expression, columns), None if key.values is None else repr(key.values)) for key in keys
    )
    return digest(("question", below, by, tuple(_measure_form(each, columns) for each in measures)))


def _measure_form(measure: Measure, columns: Mapping[str, Form]) -> Form:
    of = None if measure.expression is None else expression_form(measure.expression, columns)
    return (measure.function, of, tuple((name, repr(value)) for name, value in sorted(measure.options.items())))


def _redirected(post: Post, same_as: dict[str, Expression]) -> Post:
    if not same_as:
        return post
    return Post(
        tuple((name, renamed(each, same_as)) for name, each in post.columns),
        None if post.having is None else renamed(post.having, same_as),
        tuple(Order(renamed(o.expression, same_as), o.descending, o.nulls_first) for o in post.order),
        post.limit,
        post.offset,
        tuple(window.mapped(lambda each: renamed(each, same_as)) for window in post.windows),
        None if post.qualify is None else renamed(post.qualify, same_as),
    )


def _check_size(question: Question) -> None:
    groups = 1
    for key in question.keys:
        groups *= 1 if key.values is None else len(key.values)
    if groups > MOST_GROUPS:
        raise QuestionRefused(
            "key",
            f"the public keys have more than {MOST_GROUPS:,} combinations",
            "group by fewer keys, or by coarser ones",
        )


def check_post(question: Question) -> Question:
    """The question with its `post` checked, and text constants beside dates read as dates.

    Raises `QuestionRefused` if an expression has wrong kinds.
    """
    domains, post = question.domains, question.post

    def checked(expression: Expression) -> Expression:
        fit = fitted(expression, domains)
        typed(fit, domains)
        return fit

    having = None if post.having is None else checked(post.having)
    if having is not None and typed(having, domains).domain.kind is not Kind.BOOLEAN:
        raise QuestionRefused("kinds", "HAVING must be a condition", "HAVING COUNT(*) > 100")
    columns = tuple((name, checked(each)) for name, each in post.columns)
    order = tuple(Order(checked(part.expression), part.descending, part.nulls_first) for part in post.order)
    windows = tuple(window.mapped(checked) for window in post.windows)
    qualify = None if post.qualify is None else checked(post.qualify)
    if qualify is not None and typed(qualify, domains).domain.kind is not Kind.BOOLEAN:
        raise QuestionRefused("kinds", "QUALIFY must be a condition", "QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 1")
    return replace(question, post=Post(columns, having, order, post.limit, post.offset, windows, qualify))


def check_key(key: Key, relation: RelationNode) -> None:
    """Raise `QuestionRefused` if an expression cannot be a grouping key."""
    kind = typed(key.expression, relation.columns).domain.kind
    if key.values is None:
        if kind is Kind.REAL:
            raise QuestionRefused(
                "key",
                f"{key.name!r} is a real number, which must be put into public bins to be a key",
                f"GROUP BY FLOOR({_written(key.expression)} / 10) * 10",
            )
    elif any(value is not None and kind_of(value) is not kind for value in key.values):
        raise QuestionRefused(
            "key", f"the values of {key.name!r} must be of kind {kind.value}", "write them as that kind"
        )


def check_measure(measure: Measure, relation: RelationNode) -> None:
    """Raise `QuestionRefused` if a measure is unknown, or has the wrong kind or no usable public bounds."""
    function = FUNCTIONS.get(measure.function)
    if function is None:
        raise QuestionRefused(
            "function", f"{measure.function} is not a noisy aggregate", f"choose from {', '.join(FUNCTIONS)}"
        )
    if function.is_of_persons and not relation.people:
        raise QuestionRefused(
            "unit",
            "people cannot be counted, because every row is its own person here",
            f"SELECT COUNT(*) FROM {_first(relation)}",
        )
    if measure.expression is None:
        if not function.takes_rows:
            raise QuestionRefused(
                "aggregate", f"{measure.function} needs a column", f"name one in {measure.function.upper()}(...)"
            )
        return
    found = typed(measure.expression, relation.columns).domain
    if function.counts:
        return
    dated = found.kind in {Kind.DATE, Kind.TIMESTAMP} and function.takes_dates
    if found.kind not in NUMBERS and not dated:
        if function.keeps_kind and function.is_ranked and found.kind is Kind.TEXT:
            least = f"{measure.function} of texts would show the text of one person"
            raise QuestionRefused("kinds", least, _instead(measure, found.kind))
        raise QuestionRefused(
            "kinds", f"{_name(measure)} takes numbers, not {found.kind.value}", _instead(measure, found.kind)
        )
    if wrong := _unbounded(found):
        if dated:
            raise QuestionRefused(
                "bounds", f"{measure.function} of dates needs public bounds, and these dates have none",
                f"{measure.function.upper()}(LEAST(GREATEST({_written(measure.expression)}, DATE '2000-01-01'), "
                "DATE '2030-12-31'))",
            )  # fmt: skip
        raise QuestionRefused(
            "bounds", f"{_name(measure)} needs public bounds, and {wrong}",
            f"SELECT {function.example or measure.function.upper()}"
            f"(LEAST(GREATEST({_written(measure.expression)}, 0), 100)) FROM {_first(relation)}",
        )  # fmt: skip
    q = measure.options.get("q")
    if measure.function == "quantile" and (q is None or not 0 <= q <= 1):
        raise QuestionRefused(
            "constant",
            "the fraction of a quantile must lie between 0 and 1",
            f"SELECT QUANTILE({_written(measure.expression)}, 0.9) FROM {_first(relation)}",
        )


def _name(measure: Measure) -> str:
    """The function as its author most likely wrote it: MEDIAN arrives as the quantile at 0.5."""
    return "median" if measure.function == "quantile" and measure.options.get("q") == 0.5 else measure.function


def needs_bounds(measure: Measure, relation: RelationNode) -> bool:
    """Whether a measure is refused only because its values have no bounds."""
    function = FUNCTIONS.get(measure.function)
    if function is None or function.counts or measure.expression is None:
        return False
    found = typed(measure.expression, relation.columns).domain
    fits = found.kind in NUMBERS or (found.kind in {Kind.DATE, Kind.TIMESTAMP} and function.takes_dates)
    return fits and _unbounded(found) != ""


def _unbounded(domain: Domain) -> str:
    """Why the bounds of a number cannot be used; "" if they can."""
    if domain.bounds is None:
        return "this number has none"
    low, high = domain.bounds
    largest = max(abs(low), abs(high))
    if largest >= _EVERYTHING:
        return "this number has none"
    if largest > _WIDEST:
        return "the bounds of this number are beyond 1e60, which is too wide"
    if any(0 < each < TINIEST for each in (largest, high - low)):
        return "the bounds of this number lie nearer to 0, or to each other, than 1e-250"
    return ""


def _first(relation: RelationNode) -> str:
    """The name of the first private table, for examples."""
    return next(table.name for table in relation.tables if table.unit is not None)


def _written(expression: Expression) -> str:
    """A column, or a cast column, as SQL for examples; "…" for any other expression."""
    if isinstance(expression, Call) and expression.operator in _CASTS:
        return f"CAST({_written(expression.arguments[0])} AS {_CASTS[expression.operator]})"
    return expression.name if isinstance(expression, Column) else "…"


_CASTS: Final = {"cast_integer": "BIGINT", "cast_real": "DOUBLE", "cast_text": "VARCHAR"}


def _instead(measure: Measure, kind: Kind) -> str:
    """What to ask instead of a numeric aggregate of a column that is not numeric."""
    assert measure.expression is not None
    name = _written(measure.expression)
    if kind is Kind.BOOLEAN:
        return (
            f"write COUNT_IF({name}), or {measure.function.upper()}(CAST({name} AS INTEGER)) for the part that is true"
        )
    counted = f"count instead: COUNT({name}), or GROUP BY {name}"
    if kind is Kind.TEXT and isinstance(measure.expression, Column):
        return f"{counted}; if it contains numbers, the owner can declare its kind in the schema"
    return counted


def answer_domain(measure: Measure, relation: RelationNode) -> Domain:
    """The domain of a noisy answer: its kind without bounds, because noise has none. Counts and sums are never NULL."""
    function = FUNCTIONS[measure.function]
    if function.counts:
        return Domain(Kind.INTEGER, None, None, False)
    assert measure.expression is not None
    kind = typed(measure.expression, relation.columns).domain.kind if function.keeps_kind else Kind.REAL
    return Domain(kind, None, None, not function.is_never_null)
