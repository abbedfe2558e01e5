"""One question: how it is answered, and how an answer is refined. `batch_answers` does the same for several at once.

The order of the steps keeps the promise: the price is computed from public facts, the ledger is searched for a stored
answer, the cost is charged, and only then data is read. All errors that depend on public facts come before the charge.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from deniable import arguments
from deniable.errors import BudgetExceeded, DeniableError, InvalidParameter, type_of
from deniable.ledger import State
from deniable.queries.answer import batch_answers, rollups
from deniable.queries.answer.answer import Answer
from deniable.queries.sql.share_windows import shares_in

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import Noise, NoisePlan
    from deniable.queries.plan.pricing import AskedCost, PartOf, Price
    from deniable.queries.plan.question import Question
    from deniable.queries.session import Session

_REFINED: Final = "refined: "
"""The description of a refinement in the ledger begins with this."""


def priced(session: Session, question: str | Question, asked: AskedCost, payer: str | None) -> Price:
    """See `Session.price`."""
    shares = shares_in(question)
    made = session._planned(question if shares is None else shares.text)
    if shares is not None:
        rollups.check_shares(made, list(shares.factors))
    found = session._price(made, asked, session._left(payer))
    return found if shares is None else replace(found, quotients=frozenset(shares.factors))


def answered_text(
    session: Session, text: str, asked: AskedCost, key: str | None, payer: str | None, fresh: bool = False
) -> Answer:
    """The answer to a question in SQL, which may also ask for shares of a total."""
    shares = shares_in(text)
    if shares is None:
        return answered(session, text, asked, key, payer, fresh)
    rollups.check_shares(session._planned(shares.text), list(shares.factors))
    return answered(session, shares.text, asked, key, payer, fresh).with_shares(shares.factors)


def answered(
    session: Session,
    question: str | Question,
    asked: AskedCost | PartOf,
    key: str | None,
    payer: str | None,
    fresh: bool = False,
) -> Answer:
    """See `Session.ask`. Raises InvalidParameter unless `fresh` is a bool: any non-empty text would count as True."""
    arguments.boolean("fresh", fresh)
    first = isinstance(question, str) and question not in session._plans
    made = session._planned(question)
    # The rest of the budget is read only if the cost depends on it; whether the cost fits is checked by the charge.
    depends = asked.share is not None or asked.shares_delta(made)
    left = session._left(payer) if depends else session.budget.limit
    try:
        price = session._price(made, asked, left)
    except BudgetExceeded:  # a share of an empty budget: any stored answer is more exact
        stored = None if fresh else session._stored(made, payer)
        if stored is None:
            raise
        return session._again(made, *stored, asked.confidence)
    drawn = None
    if first or fresh:  # most likely a new question, so the ledger is searched once, together with the charge
        with suppress(DeniableError):  # raised again below, if there is no stored answer
            drawn = session._checked_noise(made, price)
    known = session._known(made, price, payer) if drawn is None and not fresh else None
    if known is not None:
        return session._again(made, *known, price.confidence)
    drawn = drawn or session._checked_noise(made, price)
    words, rest = batch_answers.description_of(question, made), [left]
    if fresh:
        return _asked_again(session, made, price, drawn, words, key, payer)
    if isinstance(question, str):
        session._finer.look(session._ledger, session._tables)
    summed = rollups.answered(session, session._finer.of(made), made, price, words, key, payer)
    if summed is not None:
        return summed
    entry = session._ledger.reserve_or_replay(
        price.cost,
        question=made.question.hash,
        version=session._version(made.question),
        description=words,
        enough=lambda sealed: session._is_enough(made, sealed, price),
        key=key,
        payer=payer,
        left=rest.append,
    )
    if entry.state is State.SEALED:  # answered by another thread meanwhile, or by the first request with this key
        return session._replayed_answer(made, entry, price.confidence, payer)
    [released] = session._released([(made, drawn, price.cost)], [entry])
    return session._sealed(made, released, entry, price.confidence, rest[-1])


def _asked_again(
    session: Session, made: NoisePlan, price: Price, drawn: Noise, words: str, key: str | None, payer: str | None
) -> Answer:
    """An answer that is charged and drawn anew, whatever the ledger has."""
    version = session._version(made.question)
    entry = session._ledger.reserve(
        price.cost, question=made.question.hash, version=version, description=words, key=key, payer=payer
    )
    if entry.state is State.SEALED:  # answered by the first request with this key
        return session._replayed_answer(made, entry, price.confidence, payer)
    rest = session._left(payer)
    [released] = session._released([(made, drawn, price.cost)], [entry])
    return session._sealed(made, released, entry, price.confidence, rest)


def check_answer(answer: object) -> None:
    """Raise InvalidParameter unless this is an `Answer`."""
    if not isinstance(answer, Answer):
        raise InvalidParameter("answer", type_of(answer), "must be an answer of this session", "get one with ask(...)")


def refined(
    session: Session, answer: Answer, asked: AskedCost, text: str | None, key: str | None, payer: str | None
) -> Answer:
    """See `Session.refine`."""
    made = answer.plan
    session._plans.check([made.question])
    batch_answers.check_refinable(session, answer)
    price = session._price(made, asked, session._left(payer))
    drawn = session._noise(made, price)
    stored, base = session._stored(made, payer), answer.released
    if stored is not None and stored[0].precision.units > base.precision.units:
        base = stored[0]
    bought = session._ledger.charge(answer.receipt.entry) if text is None else None
    asked_as = text if bought is None or bought.question != made.question.hash else bought.description
    words = f"{_REFINED}{batch_answers.description_of(asked_as or made.question, made).removeprefix(_REFINED)}"
    entry = session._ledger.reserve(
        price.cost,
        question=made.question.hash,
        description=words,
        key=key,
        payer=payer,
        version=session._version(made.question),
    )
    if entry.state is State.SEALED:  # answered by the first request with this key
        found = session._replayed_answer(made, entry, price.confidence, payer)
    else:
        rest = session._left(payer)
        [released] = session._released([(made, drawn, price.cost)], [entry])
        merged = base.merged(released, session.budget, made)
        found = session._sealed(made, merged, entry, price.confidence, rest)
    return found.with_shares(answer._shared) if answer._shared else found
