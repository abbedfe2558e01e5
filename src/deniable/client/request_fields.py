"""Arguments of a remote session as fields of a request: questions, costs, weights and the wishes of a synthesis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.numbers import below, plain, plain_list
from deniable.queries.sql.named_dialects import InDialect, named_dialect

if TYPE_CHECKING:
    from deniable.queries.answer.batch_answers import Weights
    from deniable.queries.synthetic.synthesis_request import Wanted


def listed(questions: object) -> Sequence[Any]:
    """The questions of a batch; InvalidParameter unless they are a list of at least one."""
    if isinstance(questions, str) or not isinstance(questions, Sequence) or not questions:
        raise InvalidParameter("questions", NOTHING, "must be a list of at least one question", 'write ["SELECT ..."]')
    return questions


def cost_of(**given: Any) -> dict[str, Any]:
    """The cost as fields of a request, without arguments that are None.

    `confidence` has no None: if a caller passes it, it is sent, and the server refuses it as a local session does.
    """
    return {
        name: sendable_number(name, value) for name, value in given.items() if value is not None or name == "confidence"
    }


def sendable_number(name: str, given: Any) -> Any:
    """Numbers as JSON can write them. A number that no float stores is rounded down, so that no more is spent, and no
    error is larger, than was asked for. Raises InvalidParameter, as a local session does, for what is not a finite
    number.
    """
    if isinstance(given, Mapping):
        return {column: sendable_number(name, each) for column, each in given.items()}
    given = plain_list(given)
    if isinstance(given, list | tuple):
        return [sendable_number(name, each) for each in given]
    given = plain(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, float) and math.isfinite(given):
        return given
    from deniable.curves.exact_amounts import exact_amount

    exact = exact_amount(name, given)
    found = float(exact)  # which is read as the decimal number that it prints as
    return found if exact_amount(name, found) <= exact else below(found)


def sendable_weights(weights: Weights) -> Any:
    """Weights as a name or a list of numbers; InvalidParameter for other objects."""
    from deniable.queries.answer.batch_answers import readable_weights

    found = readable_weights(weights)
    if found is None or isinstance(found, str):
        return found
    return [sendable_number("weights", each) for each in found]


def named_columns(columns: Any) -> Any:
    """Columns as a list, so that those of an iterator can be sent twice; anything else unchanged."""
    return list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else columns


def synthesis_fields(table: str | None, wanted: Wanted, paid: Mapping[str, Any]) -> dict[str, Any]:
    """The wishes of a synthesis, and its cost."""
    from deniable.queries.synthetic import impossible_combinations

    bins = wanted["bins"]
    sent: Wanted = {
        "bins": {name: plain(each) for name, each in bins.items()} if isinstance(bins, Mapping) else bins,
        "forbid": impossible_combinations.sendable(wanted["forbid"]),
    }
    return {"table": table, **wanted, **sent, **paid}


def question_fields(question: object) -> dict[str, Any]:
    """A question as fields of a request."""
    if isinstance(question, InDialect):
        return {"sql": question.own, "dialect": named_dialect(question)}
    if isinstance(question, str):
        return {"sql": question}
    record = getattr(question, "record", None)
    if not isinstance(record, Mapping) or not hasattr(question, "text"):
        rule = "must be SQL, or made by table(...) and agg(...) of this session"
        raise InvalidParameter("question", type_of(question), rule)
    return {"frame": dict(record)}
