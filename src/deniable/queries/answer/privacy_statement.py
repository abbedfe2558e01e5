"""Statements: a methods paragraph about a release, for a paper or a regulator.

It states who is protected and how well, the noise, the public facts, and the adjustments after the noise. It is made
from the budget, the schema and the ledger, and contains nothing of the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.curves.curve_display import percent_up, rounded_down, rounded_up
from deniable.curves.decimal_arithmetic import digits
from deniable.ledger.currency import CURRENCIES
from deniable.numbers import above
from deniable.queries.answer.answer_files import latex
from deniable.queries.answer.shared_measurements import total_cost
from deniable.queries.plan.answer_notes import wrapped
from deniable.queries.plan.noise_families import FAMILIES, family_of
from deniable.tables.kinds import end_of

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.ledger import Budget
    from deniable.queries.answer.answer import Answer
    from deniable.queries.session import Session
    from deniable.queries.synthetic.synthetic_table import Synthetic
    from deniable.tables.kinds import Domain, Scalar
    from deniable.tables.schema import Table
    from deniable.units import Guarantee

USUAL_DELTA: Final = 1e-6
"""The δ at which ε is stated, if the guarantee has no δ of its own and no finite ε at δ = 0."""
_FALSE_ALARMS: Final = 0.05
_MOST_VALUES: Final = 12
_POWERS: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

_DRAWN: Final = "it is drawn exactly, in whole numbers, from the operating system's cryptographic randomness"


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """A methods paragraph, as (heading, sentences) for each section. Print it, or use `markdown()` or `latex()`."""

    sections: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, without headings."""
        return tuple(each for _, sentences in self.sections for each in sentences)

    def text(self) -> str:
        """Plain text in lines that fit a terminal."""
        paragraphs = [f"{name}. {' '.join(sentences)}" for name, sentences in self.sections]
        return "\n".join(line for each in paragraphs for line in wrapped([each]))

    def markdown(self) -> str:
        """Markdown, with a paragraph for each section."""
        return "\n\n".join(f"**{name}.** {markdown_text(' '.join(each))}" for name, each in self.sections) + "\n"

    def latex(self) -> str:
        """LaTeX, with a paragraph for each section. It needs no package."""
        return (
            "\n\n".join(f"\\textbf{{{latex(name)}.}} {_latex(' '.join(each))}" for name, each in self.sections) + "\n"
        )

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def _latex(text: str) -> str:
    return r"$e^{\varepsilon}$".join(latex(each) for each in text.split("e^ε"))


def markdown_text(text: str) -> str:
    """Text with the signs escaped that Markdown would read as markup."""
    return "".join(f"\\{each}" if each in "\\`*_{}[]<>#|~" else each for each in text)


def of_session(session: Session, delta: float | None) -> Statement:
    """The statement about everything released under a session's budget."""
    ledger, budget = session.ledger, session.budget
    # The number of charges, which for a batch may be one or several.
    charges = sum(entry.state.name == "RESERVED" for entry in ledger.entries())
    so_far = f"So far {_number(charges, 'release')} {'was' if charges == 1 else 'were'} charged"
    spent = [f"{so_far}, {ledger.charged.describe(budget)} in all."] if charges else ["So far nothing was released."]
    spent += [] if ledger.risk is None else [f"The budget renews: {ledger.risk}"]
    return made(
        curve=ledger.guarantee.curve,
        unit=ledger.unit.describe(),
        delta=_delta(budget, delta),
        what="Everything that is ever released under the budget",
        noise=family_of(budget).statement,
        more=spent,
        tables=session.tables,
        assumptions=ledger.guarantee.assumptions,
    )


def of_answers(answers: Sequence[Answer], adjustments: Sequence[str], delta: float | None) -> Statement:
    """The statement about one answer, or several that are published together."""
    first, budget = answers[0], answers[0].budget
    # A fitted answer rests on all answers that it was fitted to.
    sources = {id(one): one for each in answers for one in (each._joint[0].answers if each._joint else (each,))}
    cost, seen = total_cost(answers), {each.receipt.entry for each in sources.values()}
    tables = {table.name: table for each in answers for table in each.plan.question.relation.tables}
    assumptions = dict.fromkeys(words for each in answers for words in each.guarantee.assumptions)
    what = "This table" if len(answers) == 1 else f"These {len(answers)} tables together"
    charges = ", ".join(str(entry) for entry in sorted(seen))
    return made(
        curve=budget.curve(cost),
        unit=first.guarantee.unit.describe(),
        delta=_delta(budget, delta),
        what=what,
        noise=family_of(budget).statement,
        more=[f"In the ledger {'it is charge' if len(seen) == 1 else 'they are charges'} {charges}."],
        tables=tables,
        assumptions=tuple(assumptions),
        adjustments=adjustments,
        confidence=first.confidence,
    )


def of_synthetic(made_of: Synthetic, delta: float | None) -> Statement:
    """The statement about a synthetic table, with all rows and tables that are ever drawn from it."""
    budget, asked, columns = made_of.receipt.budget, made_of.asked, made_of.asked.columns
    tables = list(dict.fromkeys(map(asked.marginal_name, asked.measured)))  # a chosen one may be there twice
    more = f" and {len(tables) - _MOST_VALUES:,} more" if len(tables) > _MOST_VALUES else ""
    sentences = [
        f"Rows were counted by {', '.join(tables[:_MOST_VALUES])}{more}, with noise.",
        "A distribution (a mixture of products) was fitted to these counts, and synthetic rows are drawn from it; "
        "none is copied from the data.",
    ]
    if asked.candidates:
        sentences.insert(
            1,
            f"The tables by several columns were chosen from {len(asked.candidates):,} by the exponential mechanism; "
            "the same charge pays for the choice.",
        )
    if asked.ruled:
        sentences.append(f"By declared rules about {', '.join(asked.ruled)}, no row has an impossible combination.")
    public = [
        (each.name, f"{len(each.values) - 1:,} keys that a noisy count found" if each.found else _domain(each.domain))
        for each in columns
    ]
    declared = "; ".join(f"{name}: {words}" for name, words in public)
    return made(
        curve=made_of.guarantee.curve,
        unit=made_of.guarantee.unit.describe(),
        delta=_delta(budget, delta),
        what="This synthetic table",
        noise=family_of(budget).statement,
        more=[f"In the ledger it is charge {made_of.receipt.entry}."],
        tables={},
        assumptions=made_of.guarantee.assumptions,
        synthetic=(sentences, f"The names of columns are public, and so is what was declared of them: {declared}."),
    )


def of_description(
    about: Mapping[str, Any], promise: Guarantee, tables: Mapping[str, Table], delta: float | None
) -> Statement:
    """The statement about a dataset on a server, from the server's description `about`."""
    currency, own = CURRENCIES.get(about["budget"]["currency"]), float(about["budget"]["delta"])
    is_pure = about["budget"]["epsilon"] is not None
    risk = [f"The budget renews: {about['renewal']['risk']}"] if about.get("renewal") else []
    return made(
        curve=promise.curve,
        unit=promise.unit.describe(),
        delta=_checked(delta) if delta is not None else _read_at(own, is_pure=is_pure),
        what="Everything that is ever released under the budget",
        noise="" if currency is None else FAMILIES[currency.shape].statement,
        more=[f"So far {about['spent']} was charged in all.", *risk],
        tables=tables,
        assumptions=promise.assumptions,
    )


def of_training(promise: Guarantee, how: Sequence[str], *, delta: float) -> Statement:
    """The statement about a trained model. `how` has sentences about sampling, clipping and noise."""
    at = _checked(delta)
    what = "This model, with every model of the steps before it,"
    promised = _promised(promise.curve, promise.unit.describe(), at, what)
    mu = float(promise.curve.gdp(delta=at)) if at else math.inf
    whole = float(promise.curve.gdp())
    if mu < 0.99 * whole < math.inf:  # the μ of a sampled curve is decided by its far tail
        promised += (f"Up to a probability of δ = {power(at)}, it is μ = {_with_powers(rounded_up(mu, 4))}.",)
    sections = (
        ("Protection", promised),
        ("In odds", _odds(promise.curve, at)),
        ("Training", tuple(how)),
        ("Assumptions", _assumed(promise.assumptions)),
        ("Software", (_software(),)),
    )
    return Statement(tuple((name, sentences) for name, sentences in sections if sentences))


def of_curve(curve: Curve, unit: str, charge: int, adjustments: Sequence[str], delta: float | None) -> Statement:
    """The statement about one answer if only its curve is known, and not its plan."""
    read = 0.0 if math.isfinite(curve.epsilon(delta=0.0)) else USUAL_DELTA
    return made(
        curve=curve,
        unit=unit,
        delta=read if delta is None else _checked(delta),
        what="This table",
        noise="",
        more=[f"In the ledger it is charge {charge}."],
        tables={},
        assumptions=(),
        adjustments=adjustments,
    )


def made(
    *,
    curve: Curve,
    unit: str,
    delta: float,
    what: str,
    noise: str,
    more: Sequence[str],
    tables: Mapping[str, Table],
    assumptions: Iterable[str],
    adjustments: Sequence[str] = (),
    confidence: float | None = None,
    synthetic: tuple[Sequence[str], str] | None = None,
) -> Statement:
    """A statement from its facts; all numbers about privacy are rounded to the safe side.

    `synthetic` has, for a synthetic table, the sentences on how it was made and on the public facts of its columns.
    """
    ends = _intervals(confidence) if synthetic is None else (
        "Standard errors, intervals and tests that take synthetic rows for real ones are too narrow.",
    )  # fmt: skip
    sections = [
        ("Protection", (*_promised(curve, unit, delta, what), *more)),
        ("In odds", _odds(curve, delta)),
        ("Noise", (f"{noise}; {_DRAWN}." if noise else f"Noise was added; {_DRAWN}.", *ends)),
        ("Synthetic data", tuple(synthetic[0]) if synthetic else ()),
        ("What is public", (synthetic[1],) if synthetic else tuple(_public(tables)) if tables else ()),
        ("Adjustments", _adjusted(adjustments)),
        ("Assumptions", _assumed(assumptions)),
        ("Software", (_software(),)),
    ]
    return Statement(tuple((name, sentences) for name, sentences in sections if sentences))


def _assumed(assumptions: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{each[:1].upper()}{each[1:]}." for each in assumptions)


def _software() -> str:
    # Not by an import: `deniable/__init__` is above this package.
    return f"Computed by deniable {sys.modules['deniable'].__version__} (Python)."


def _promised(curve: Curve, unit: str, delta: float, what: str) -> tuple[str, ...]:
    epsilon = float(curve.epsilon(delta=delta))
    level = f"ε = {_with_powers(rounded_up(epsilon, 4))}"
    private = f"ε-differentially private with {level}" if delta == 0 else (
        f"(ε, δ)-differentially private with {level} at δ = {power(delta)}"
    )  # fmt: skip
    is_one = what.startswith(("This", "Every"))
    sentences = [
        f"{what} {'is' if is_one else 'are'} {private}.",
        f"Neighbouring data sets differ by {unit}; that is what is protected.",
    ]
    mu = float(curve.gdp())
    up_to = ""
    if math.isinf(mu) and delta > 0:
        mu, up_to = float(curve.gdp(delta=delta)), f", up to a probability of δ = {power(delta)}"
    if math.isfinite(mu):
        sentences.append(f"As Gaussian differential privacy, μ = {_with_powers(rounded_up(mu, 4))}{up_to}.")
    return tuple(sentences)


def _odds(curve: Curve, delta: float) -> tuple[str, ...]:
    epsilon = float(curve.epsilon(delta=delta))
    but = f", except for a part of probability δ = {power(delta)}" if delta else ""
    right = percent_up((1 + curve.advantage()) / 2)
    missed = rounded_down(100 * float(curve.beta(alpha=_FALSE_ALARMS)), 3)
    return (
        "Whatever a reader believed before, the release multiplies the odds of a guess about the data of one such "
        f"unit by at most e^ε = {_exponential(epsilon)}{but}."
        if math.isfinite(epsilon)
        else f"No finite ε holds at δ = {power(delta)}, so this statement does not bound how much the release changes "
        "the odds of a guess about the data of one such unit.",
        f"A guess from even odds is right at most {right} of the time.",
        f"A test between two neighbouring data sets that raises {100 * _FALSE_ALARMS:g} % false alarms misses the "
        f"difference at least {_with_powers(missed)} % of the time.",
    )


def _exponential(epsilon: float) -> str:
    """e^ε, rounded up; from ε = 710 on it is larger than any float."""
    with digits():
        return _with_powers(rounded_up(Decimal(epsilon).exp(), 4))


def _intervals(confidence: float | None) -> tuple[str, ...]:
    level = "" if confidence is None else f" {100 * confidence:g} %"
    return (
        f"The{level} intervals are for the number without noise; they do not account for sampling, or for rows that "
        "were left out.",
    )


def _public(tables: Mapping[str, Table]) -> Iterable[str]:
    yield "The names of tables and columns are public, and so is what was declared of them."
    for name, table in tables.items():
        if table.unit is None:
            yield f"The whole table {name} is public."
            continue
        each = "each person" if table.unit.period is None else f"each person's {table.unit.period}"
        most = f"{table.unit.rows} rows of {each} are" if table.unit.rows > 1 else f"1 row of {each} is"
        rows = f" (at most {most} read)" if table.unit.column else ""
        columns = "; ".join(f"{column}: {_domain(domain)}" for column, domain in table.columns)
        yield f"Of {name}{rows}: {columns}."


def _domain(domain: Domain) -> str:
    if domain.keys is not None:
        if len(domain.keys) > _MOST_VALUES:
            return f"one of {len(domain.keys):,} listed values"
        return f"one of {', '.join(map(_key, domain.keys))}"
    kind = domain.kind.value
    if domain.bounds is None:
        return f"{kind}, without bounds or keys"
    low, high = (end_of(domain.kind, each) for each in domain.bounds)
    ends = [f"{each:g}" if isinstance(each, float) else str(each) for each in (low, high)]
    return f"{kind} from {' to '.join(ends)}"


def _key(value: Scalar) -> str:
    """A key as text; quoted if it is empty or has a comma or semicolon, which separate keys and columns."""
    text = str(value)
    return f"“{text}”" if not text.strip() or "," in text or ";" in text else text


def _adjusted(adjustments: Sequence[str]) -> tuple[str, ...]:
    if not adjustments:
        return ()
    steps = "; ".join(f"({i}) {each}" for i, each in enumerate(adjustments, 1))
    return (
        f"After the noise, in this order: {steps}.",
        "These steps use only released numbers and public facts, and cost no privacy.",
    )


def _delta(budget: Budget, delta: float | None) -> float:
    """The δ at which ε is stated: the given one, the budget's, or 0 if ε is finite without one."""
    if delta is not None:
        return _checked(delta)
    return _read_at(float(budget.delta), is_pure=budget.epsilon is not None)


def _read_at(own: float, *, is_pure: bool) -> float:
    # The curve's own δ, for keys, was rounded up. ε is read at the next float above it, where it is finite.
    read_at = above(own) if own else 0.0
    return read_at if is_pure else max(read_at, USUAL_DELTA)


def _checked(delta: float) -> float:
    return arguments.python_float("delta", delta, NumberRange("must be at least 0 and below 1", least=0, below=1))


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _with_powers(number: str) -> str:
    """1.2e-6 as 1.2 × 10⁻⁶."""
    mantissa, power, exponent = number.partition("e")
    return f"{mantissa} × 10{exponent.translate(_POWERS)}" if power else number


def power(number: float) -> str:
    """A δ: 1e-6 as 10⁻⁶."""
    with digits():
        exact = Decimal(f"{number:.12g}").normalize()
        exponent = exact.adjusted()
        first = exact.scaleb(-exponent)
    if number == 0 or exponent > -4:
        return f"{number:g}"
    mantissa = "" if first == 1 else f"{first} × "
    return f"{mantissa}10{str(exponent).translate(_POWERS)}"
