"""Explanations of a question, for inspection: the stability of each step, the sensitivity of each number, the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import InvalidParameter, type_of
from deniable.mechanisms.piecewise_exponential import QuantileOfCounts
from deniable.mechanisms.prefix_sums import GaussianPrefixSums, LaplacePrefixSums
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.grouping_sets import Grouped
from deniable.queries.plan.answer_notes import budget_notes, wrapped
from deniable.queries.plan.noise_planner import noise, plan
from deniable.queries.plan.pricing import Price, describe
from deniable.queries.plan.question import Question
from deniable.queries.relations.person_windows import PersonWindows
from deniable.queries.relations.relation_nodes import (
    Bound,
    FilterRows,
    JoinPrivate,
    JoinPublic,
    PerPerson,
    Project,
    RelationNode,
    Source,
    Union,
)

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.session import Session


def explain(question: str | Question | Price | Answer | Grouped, *, session: Session | None = None) -> str:
    """Explain a question as text: each step with its stability, each statistic with its sensitivity. Free.

    A price (`session.price(...)`) also explains its noise; an answer explains its question. With `session`, the
    question may be SQL, and the SQL that the engine runs is included. No data is read. Raises `InvalidParameter` for
    other objects, and for SQL without a session.
    """
    if session is not None:
        return session.explain(question)
    if isinstance(question, Price):
        return explained(
            question.plan, noise(question.plan, question.budget, question.cost), None, budget_notes(question.budget)
        )
    if isinstance(question, Question):
        return explained(plan(question), None, None)
    if isinstance(question, Grouped):
        return "\n\n".join(map(explain, question.tables))
    if isinstance(question, Answer):
        return explained(question.plan, None, None)
    raise InvalidParameter(
        "question",
        type_of(question),
        "must be a Question, a Price or an Answer",
        "for SQL, give the session too: explain(sql, session=...)",
    )


def explained_by(session: Session, question: str | Question | Price | Answer | Grouped) -> str:
    """The implementation of `Session.explain`."""
    if isinstance(question, Grouped):
        return "\n\n".join(explained_by(session, each) for each in question.tables)
    sets = session._sets(question)
    if sets is not None:
        return "\n\n".join(explained_by(session, each) for each in sets.questions)
    made = question.plan if isinstance(question, Price | Answer) else session._planned(question)
    drawn = noise(question.plan, question.budget, question.cost) if isinstance(question, Price) else None
    return explained(made, drawn, session._engine.sql(made.collect), budget_notes(session.budget))


def explained(plan: NoisePlan, made: Noise | None, sql: str | None, notes: tuple[str, ...] = ()) -> str:
    """A plan as text, with its noise (`made`), the engine's SQL, and notes on the budget, if given."""
    question, collect = plan.question, plan.collect
    unit = question.relation.tables[0].unit
    assert unit is not None
    lines = [f"neighbours differ by {unit.describe()}", "", "rows (the most that one person owns at each step):"]
    lines += [f"  {line}" for line in _tree(question.relation, 0)]
    lines += ["", "groups:"]
    if not question.keys:
        lines.append("  one, of all rows")
    for key in question.keys:
        public = "shown above a threshold" if plan.people is not None else f"{len(key.values or ())} public values"
        lines.append(f"  {key.name} = {key.expression!r}: {public}")
    reach = collect.reach
    lines.append(f"  a person is in at most {reach.touched} groups, with at most {reach.in_one_group} rows in one")
    lines += ["", "statistics (their sensitivity: how far they move between neighbours, over all groups):"]
    for number, part in enumerate(plan.parts, 1):
        step = f" in steps of 2^{part.statistic.exponent}" if hasattr(part.statistic, "exponent") else ""
        moved = part.moves.sensitivity
        norms = f"L1 {moved.l1:g}, L2 {moved.l2:.6g}, share {part.weight}"
        lines.append(f"  {number}. {describe(part)}{step}: {norms}")
    for pair in plan.pairs:
        both = f"{pair.total + 1} and {pair.count + 1}"
        lines.append(
            f"  under a pure budget {both} are released as {pair.half}·n + S and {pair.half}·n - S, at one share:"
        )
        lines.append(f"  together they move by L1 {pair.moves.l1}")
    lines += ["", "measures:"]
    for recipe, uses in zip(plan.recipes, plan.uses, strict=True):
        lines.append(f"  {recipe.name}: {type(recipe).__name__.lower()} from {', '.join(str(i + 1) for i in uses)}")
    if made is not None:
        lines += ["", "noise:", *(f"  {line}" for line in _noise(made))]
    if notes:
        lines += ["", "notes:", *(f"  {line}" for line in wrapped(notes))]
    if sql is not None:
        lines += ["", "the engine runs:", *(f"  {line}" for line in sql.splitlines())]
    return "\n".join(lines)


def _noise(made: Noise) -> list[str]:
    lines = []
    for index, mechanism in enumerate(made.mechanisms):
        match mechanism:
            case GaussianPrefixSums():
                words = f"running totals by the square root of the prefix sums, {mechanism.noise!r}"
            case QuantileOfCounts():
                words = f"a cell drawn by the exponential mechanism, {mechanism!r}"
            case LaplacePrefixSums():
                words = f"running totals from a tree of counts, {mechanism.noise!r}"
            case _:
                words = repr(mechanism) + (", with its sum" if index in made.seconds else "")
        lines.append(f"{index + 1}. {words}")
    if made.threshold is not None:
        lines.append(f"a key is shown if its noisy count reaches {made.threshold}")
    return lines


def _tree(relation: RelationNode, depth: int) -> list[str]:
    """One indented line for each step, the last step first."""
    children: tuple[RelationNode, ...]
    match relation:
        case Source(table=table):
            words, children = f"table {table.name}", ()
        case FilterRows(child=child, condition=condition):
            words, children = f"where {condition!r}", (child,)
        case Project(child=child, expressions=expressions):
            words, children = f"columns {', '.join(f'{n} = {e!r}' for n, e in expressions)}", (child,)
        case JoinPublic(child=child, table=table, how=how):
            words, children = f"{how.value} join with public {table.name}", (child,)
        case JoinPrivate(left=left, right=right, how=how):
            words, children = f"{how.value} join on the person", (left, right)
        case PerPerson(child=child, aggregates=aggregates):
            words, children = f"for each person: {', '.join(name for name, _ in aggregates)}", (child,)
        case PersonWindows(child=child, windows=windows):
            words, children = f"within each person: {', '.join(name for name, _ in windows)}", (child,)
        case Union(parts=parts, disjoint=disjoint):
            words, children = f"union of {'disjoint ' if disjoint else ''}parts", parts
        case Bound(child=child, groups=groups, rows_per_group=each):
            words, children = f"at most {groups} groups of a person, {each} rows in each", (child,)
        case _:
            raise AssertionError(type(relation))
    below = [line for child in children for line in _tree(child, depth + 1)]
    return [f"{'  ' * depth}{words}: {relation.rows}", *below]
