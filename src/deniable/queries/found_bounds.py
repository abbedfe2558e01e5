"""Bounds that are found inside a question: a part of its cost buys them, and the rest answers it.

A sum or an average needs bounds. Where the schema has none for what is aggregated, a noisy histogram of these values,
over the rows of the question and in public bins, gives them (`bought_bounds`); values outside are moved to the nearest
bound. BigQuery finds bounds in this way if none are given.

Privacy: these are two questions or more, each planned, charged and sealed like any other. The ledger allows that the
second depends on the noisy answer of the first. So their costs add up to at most the cost that was asked for, and
nothing is assumed about the bounds. The bounds show in the answer (a sum shows its grid), so the guarantee of the
answer is the one of all these questions together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, type_of
from deniable.queries import bought_bounds
from deniable.queries.answer import single_answers
from deniable.queries.answer.answer import Answer
from deniable.queries.bought_bounds import Bounds
from deniable.queries.frame.frame import Frame
from deniable.queries.plan.answer_notes import wrapped
from deniable.queries.plan.canonical_form import Form, expression_form
from deniable.queries.plan.pricing import AskedCost
from deniable.queries.plan.question import Measure, Question, needs_bounds
from deniable.queries.relations.operators import typed
from deniable.queries.relations.relation_nodes import Project, RelationNode
from deniable.queries.session import Session
from deniable.queries.sql.named_dialects import in_dialect
from deniable.queries.sql.sql_reader import parse_clamped
from deniable.tables.expressions import Expression, Literal, call
from deniable.tables.kinds import NUMBERS, Kind, end_of

if TYPE_CHECKING:
    from deniable.curves.filters import Amount
    from deniable.queries.plan.pricing import PartOf

VALUE: Final = "value"
"""The name of what is aggregated, in the question that counts it by bins."""
_PART: Final = NumberRange("must be a share of the cost, above 0 and below 1", above=0, below=1, remedy="try 0.2")


@final
@dataclass(frozen=True, slots=True)
class AnswerWithBounds:
    """An answer within bounds that were found by a part of its cost."""

    answer: Answer
    """Its receipt is about its own charge; its guarantee and statement include the charges that found the bounds."""
    bounds: tuple[Bounds, ...]
    """The bounds of each expression that had none, in the order of the text; empty if all had bounds."""

    def __str__(self) -> str:
        found = [
            f"{each.column}: values were moved between {each.low} and {each.high}; charge {each.receipt.entry}, "
            f"{each.receipt.paid}, found these bounds"
            for each in self.bounds
        ]
        return "\n".join([str(self.answer), *wrapped(found)])


@final
@dataclass(slots=True)
class _Clamps:
    """Puts bounds around what a question aggregates: those that are known, else the ends of the public bins."""

    found: dict[Form, tuple[str, tuple[RelationNode, Expression]]] = field(default_factory=dict)
    known: dict[Form, Bounds] = field(default_factory=dict)

    def __call__(self, relation: RelationNode, measure: Measure) -> Measure:
        if measure.expression is None or not needs_bounds(measure, relation):
            return measure
        form = expression_form(measure.expression)
        self.found.setdefault(form, (measure.name, (relation, measure.expression)))
        low, high = self._ends(typed(measure.expression, relation.columns).domain.kind, form)
        clamped = call("least", call("greatest", measure.expression, Literal(low)), Literal(high))
        return replace(measure, expression=clamped)

    def _ends(self, kind: Kind, form: Form) -> tuple[Any, Any]:
        if form not in self.known:  # any bounds show whether the question is accepted
            bins = bought_bounds.bins(kind)
            return (-1, 1) if kind in NUMBERS else (bins[0][0], bins[-1][1])
        domain = self.known[form].domain
        assert domain is not None
        assert domain.bounds is not None
        low, high = (end_of(kind, end) for end in domain.bounds)
        return low, high


def ask_finding_bounds(
    session: Session, question: str, *,
    epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, delta: Amount | None = None,
    confidence: float = 0.95, part: float = 0.2, cover: float = 0.99, payer: str | None = None,
    dialect: str | None = None,
) -> AnswerWithBounds:  # fmt: skip
    """Answer a question in SQL whose sums, averages, deviations or quantiles are over values without public bounds.

    `part` of the cost (a share of what adds up: μ², ε or ρ) counts these values in public bins; the narrowest run of
    bins with the share `cover` of the counted rows gives their bounds. The rest of the cost answers the question. A
    question whose values all have bounds is answered at the whole cost. Values that are moved to a bound bias the
    answer, and its intervals do not account for that.

    Raises `QuestionRefused` or `BudgetExceeded` before anything is spent. After the bins are paid for, it raises
    `InvalidOperation` if none of them exceeds the noise, and `QuestionRefused` if the bounds that were found do not
    suit the question: integers on both sides of everything that an integer can be, or a quantile with too many cells.
    """
    if not isinstance(session, Session):
        raise InvalidParameter("session", type_of(session), "must be a local session", "open one with dn.session(...)")
    share = Fraction(arguments.python_float("part", part, _PART))
    rows = bought_bounds.checked_cover(cover)
    asked = AskedCost(epsilon=epsilon, mu=mu, rho=rho, delta=delta, confidence=confidence)
    text, clamps = in_dialect(question, dialect), _Clamps()
    widest = _read(session, text, clamps)
    if not clamps.found:
        return AnswerWithBounds(single_answers.answered_text(session, text, asked, None, payer), ())
    bins = {form: (name, _bins(session, *of)) for form, (name, of) in clamps.found.items()}
    counting = replace(asked, delta=None).part(share / len(bins))
    rest = asked.part(1 - share)
    _check(session, widest, asked, rest, [(each, counting) for _, each in bins.values()], payer)
    for form, (name, each) in bins.items():
        counted = single_answers.answered(session, each, counting, None, payer)
        found = bought_bounds.read(each.relation.tables[0].name, VALUE, counted, rows)
        if found.domain is None:
            rule = f"no bin of the values of {name!r} exceeds the noise, so no bounds were found"
            raise InvalidOperation(f"{rule}; the bins were charged, the question was not; spend more")
        clamps.known[form] = replace(found, column=name)
    within = _read(session, text, clamps)
    answer = single_answers.answered(session, within, rest, None, payer)
    bounds = tuple(clamps.known.values())
    return AnswerWithBounds(_with_cost_of(answer, bounds), bounds)


def _with_cost_of(answer: Answer, bounds: tuple[Bounds, ...]) -> Answer:
    """The answer with the guarantee of its own charge and of those that found the bounds."""
    released = answer.released.resting_on(each.answer.released for each in bounds)
    guarantee = replace(answer.guarantee, curve=answer.budget.curve(released.cost))
    return Answer(answer.plan, released, answer.budget, guarantee, answer.receipt, answer.confidence)


def _read(session: Session, text: str, clamps: _Clamps) -> Question:
    with session.limits(text):
        return parse_clamped(text, session.tables, clamps)


def _bins(session: Session, relation: RelationNode, expression: Expression) -> Question:
    """The question for the number of rows in each public bin of an expression."""
    frame = Frame(Project(relation, ((VALUE, expression),)), {VALUE: VALUE}, session.tables)
    return bought_bounds.histogram(frame, VALUE)


def _check(
    session: Session,
    question: Question,
    asked: AskedCost,
    rest: PartOf,
    bins: list[tuple[Question, PartOf]],
    payer: str | None,
) -> None:
    """Raise every refusal that follows from public facts, before the bins are charged."""
    left = session._left(payer)
    made = session._planned(question)
    price = session._price(made, asked, left)
    session._checked_noise(made, session._price(made, rest, left))
    known = [_is_known(session, each, part, payer) for each, part in bins]
    if not price.fits and not all(known):
        remedy = "spend less; the cost includes the part that finds bounds"
        raise BudgetExceeded(price.cost.describe(session.budget), left.describe(session.budget), remedy)


def _is_known(session: Session, bins: Question, part: PartOf, payer: str | None) -> bool:
    made = session._planned(bins)
    return session._known(made, session._price(made, part, session._left(payer)), payer) is not None
