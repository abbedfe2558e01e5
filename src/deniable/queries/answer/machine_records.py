"""Papers: what a server sends in addition to the text of an answer or a price, so that a client can build the same
objects as a local session.

A record of an answer states the cost in words, for people. Its papers state it for programs: exact amounts in whole
units as text (JSON numbers would round them), the budget, the unit, and the noisy statistics that were released. All of
this is public or noisy. The version of the data is public if its owner declared it; otherwise it is a hash of the rows,
which is not sent, and the client uses the dataset's name instead. Two servers may have a dataset of one name, so the
serial number of the ledger is sent too: answers from two ledgers are not combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deniable.curves import Curve
from deniable.ledger import Budget, Cost
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.batch_price import Quote, Quoted
from deniable.queries.answer.receipt import Receipt
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.queries.answer.grouping_sets import Grouped
    from deniable.queries.plan.pricing import Price


def written_cost(cost: Cost) -> list[str]:
    """A cost as two texts: units of the currency, and units of δ.

    >>> read_cost(written_cost(Cost(10**30, 5))) == Cost(10**30, 5)
    True
    """
    return [str(cost.units), str(cost.delta_units)]


def read_cost(written: Sequence[str]) -> Cost:
    """The inverse of `written_cost`."""
    units, delta_units = written
    return Cost(int(units), int(delta_units))


def written_unit(unit: Unit) -> dict[str, Any]:
    """A unit as a JSON-ready dict."""
    return unit.to_dict()


def read_unit(written: Mapping[str, Any]) -> Unit:
    """The inverse of `written_unit`."""
    return Unit.from_dict(written)


# -- answers -----------------------------------------------------------------------------------------------------------


def papers_of(answer: Answer | Grouped) -> dict[str, Any]:
    """What a client needs in addition to `to_dict` to build the same answer. If there are several tables, the papers of
    each contain its statistics.
    """
    receipt, promise = answer.receipt, answer.guarantee
    papers = {
        "budget": receipt.budget.to_dict(),
        "ledger": receipt.ledger,
        "cost": written_cost(receipt.cost),
        "rest": written_cost(receipt.rest),
        "unit": written_unit(promise.unit),
        "assumptions": list(promise.assumptions),
        "adjustments": list(answer.adjustments),
    }
    if isinstance(answer, Answer):
        papers |= {"released": answer.released.to_bytes().decode(), "shares": dict(answer._shared)}
    return papers


def read_receipt(record: Mapping[str, Any]) -> Receipt:
    """The receipt in a record that a server sent."""
    provenance, papers = record["provenance"], record["papers"]
    return Receipt(
        provenance["entry"],
        provenance["question"],
        read_cost(papers["cost"]),
        read_cost(papers["rest"]),
        Budget.from_dict(papers["budget"]),
        provenance["replayed"],
        provenance["time"],
        provenance.get("version", record["dataset"]),
        bool(record.get("dummy", False)),
        declared="version" in provenance,
        ledger="" if record.get("dummy") else str(papers.get("ledger", "")),
    )


def read_promise(record: Mapping[str, Any]) -> Guarantee:
    """The guarantee in a record that a server sent."""
    papers = record["papers"]
    curve = Curve.from_dict(record["provenance"]["guarantee"])
    return Guarantee(curve, read_unit(papers["unit"]), assumptions=tuple(papers["assumptions"]))


# -- prices ------------------------------------------------------------------------------------------------------------


def price_papers(price: Price | Quoted) -> dict[str, Any]:
    """What a client needs in addition to `to_dict` to build the same price."""
    papers = {
        "budget": price.budget.to_dict(),
        "cost": written_cost(price.cost),
        "left": written_cost(price.left),
    }
    if isinstance(price, Quoted):
        return papers | {"costs": [written_cost(each.cost) for each in price.tables]}
    return papers | {"shares_delta": price.shares_delta, "quotients": sorted(price.quotients)}


def read_quoted(record: Mapping[str, Any]) -> Quoted:
    """The price of a batch, from a record that a server sent."""
    papers = record["papers"]
    tables = tuple(
        Quote(
            each["name"],
            each["question"],
            each["cells"],
            dict(each["errors"]),
            dict(each["standard_errors"]),
            read_cost(cost),
            each["together"],
            tuple(each["errors_at_rows"]),
        )
        for each, cost in zip(record["tables"], papers["costs"], strict=True)
    )
    split = tuple((str(name), float(share)) for name, share in record["split"])
    budget, cost, left = Budget.from_dict(papers["budget"]), read_cost(papers["cost"]), read_cost(papers["left"])
    return Quoted(budget, cost, left, record["confidence"], tables, split)
