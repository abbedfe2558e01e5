"""Synthetic tables as JSON records, from which a ledger, a client or another process can rebuild them.

Everything in a record is released or public: the columns, their values, the noisy counts and their variance. So the
owner of a record can fit and draw without data and at no cost; a server sends records and leaves the fit to clients.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

import numpy as np

from deniable.curves import Curve
from deniable.errors import DeniableError, InvalidParameter, UnreadableRecord
from deniable.ledger import Budget, Cost
from deniable.queries.answer.answer_display import library
from deniable.queries.answer.joint_entry import MeasuredTogether
from deniable.queries.answer.receipt import Receipt
from deniable.queries.synthetic import synthesis_measurement, synthesis_request
from deniable.queries.synthetic.synthesis_measurement import ChosenCounts, SynthesisPrice
from deniable.queries.synthetic.synthesis_request import Synthesis
from deniable.queries.synthetic.synthetic_table import Synthetic, SyntheticRows
from deniable.synth import Marginal
from deniable.tables.kinds import Kind
from deniable.tables.schema import read_schema, write_schema
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from deniable.ledger import Entry
    from deniable.queries.session import Session
    from deniable.tables.schema import Table

FORMS: Final = ("csv", "parquet")
NOTES: Final = (
    "These are noisy counts. Rows are drawn from a distribution that is fitted to them; that costs nothing more.",
    "Intervals and tests that take synthetic rows for real ones are too narrow.",
)
_AT_ONCE: Final = 500_000
"""The number of rows that are drawn and written at a time."""
_MOST: Final = 1e100
"""The largest count that a record may have."""
_COUNTS: Final = ["by", "variance", "counts"]
"""The fields of a row of a record: the columns, the variance of the noise, and the counts in row-major order."""


@final
@dataclass(frozen=True, slots=True)
class _Papers:
    """Guarantee and receipt of a synthetic table whose counts come from a record."""

    guarantee: Guarantee
    receipt: Receipt


def size(request: Mapping[str, Any], tables: Mapping[str, Table]) -> int:
    """About how many cells the counts of a request have, computed from the public schema. Also fast for a request that
    is too large.
    """
    private = [name for name, each in tables.items() if each.unit is not None]
    table: str = request["table"] or (private[0] if len(private) == 1 else "")
    if table not in tables:
        return 0  # `planned` refuses it with a better message
    unit, names, bins = tables[table].unit, request["columns"], request["bins"] or {}
    if names is None:
        names = [name for name, _ in tables[table].columns if unit is None or name != unit.column]
    names, unlisted, sizes = names[: synthesis_request.MOST_COLUMNS], request.get("unlisted") or (), []
    for name in names:
        alone: dict[str, Any] = {"table": table, "columns": [name], "bins": {name: bins[name]} if name in bins else {}}
        sizes.append(planned(alone | {"unlisted": [name] if name in unlisted else []}, tables).sizes[0])
    target = request["target"] if request["target"] in names else None  # `planned` refuses an unknown one
    places = synthesis_request.counted(names, sizes, request.get("method", "pairs"), target, request.get("workload"))
    return sum((len(each) + 1) * prod(sizes[place] for place in each) for each in places)


def planned(request: Mapping[str, Any], tables: Mapping[str, Table]) -> Synthesis:
    """The plan of a synthetic table from the arguments of a request (see `synthesis_request.asked`)."""
    return synthesis_request.asked(tables=tables, **request)


def record_of(made: Synthetic, request: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, Any]:
    """The record of a synthetic table; `request` has the arguments of `Session.synthesize` without its cost."""
    asked, receipt, unit = made.asked, made.receipt, made.guarantee.unit
    columns, schema = asked.columns, write_schema({asked.table: tables[asked.table]}, form="json")
    return {
        "asked": dict(request),
        "names": list(made.columns),
        "columns": list(_COUNTS),
        "rows": [
            [[columns[place].name for place in each.columns], each.variance, _plain(each.counts)]
            for each in made.marginals
        ],
        "values": {
            each.name: {"binned": each.binned, "values": [_as_json(v) for v in each.values]} for each in columns
        },
        "count": made.count,
        "stated_rows": made.stated_rows,
        "notes": list(NOTES),
        "provenance": {
            "question": receipt.question,
            "unit": made.guarantee.unit.describe(),
            "guarantee": made.guarantee.curve.to_dict(),
            "entry": receipt.entry,
            "paid": receipt.paid,
            "left": receipt.left,
            "replayed": receipt.replayed,
            "time": receipt.time,
        },
        "papers": {
            "tables": json.loads(schema)["tables"],
            "unit": unit.to_dict(),
            "assumptions": list(made.guarantee.assumptions),
            "budget": receipt.budget.to_dict(),
            "cost": [str(receipt.cost.units), str(receipt.cost.delta_units)],
            "rest": [str(receipt.rest.units), str(receipt.rest.delta_units)],
            "version": receipt.version,
        },
    }


def read_record(record: Mapping[str, Any], rows: int | None = None) -> Synthetic:
    """The synthetic table of a record; `UnreadableRecord` if it is malformed. `rows`: as of `Session.synthesize`."""
    try:
        papers, provenance = record["papers"], record["provenance"]
        unit = Unit.from_dict(papers["unit"])
        asked = planned(record["asked"], read_schema({"version": 1, "tables": papers["tables"]}))
        asked = asked.with_keys([_found(asked.columns[place], record["values"]) for place in asked.unlisted])
        at = {each.name: place for place, each in enumerate(asked.columns)}
        counted = []
        for names, variance, counts in record["rows"]:
            shape = [len(asked.columns[at[name]].values) for name in names]
            counted.append(
                Marginal(tuple(at[name] for name in names), np.array(counts, float).reshape(shape), _number(variance))
            )
        asked = asked.with_chosen([each.columns for each in counted[len(asked.measured) :]])
        if tuple(each.columns for each in counted) != asked.measured or not all(
            (np.abs(each.counts) <= _MOST).all()
            for each in counted  # False for NaN
        ):
            raise ValueError("counts")
        receipt = Receipt(
            provenance["entry"],
            provenance["question"],
            _cost(papers["cost"]),
            _cost(papers["rest"]),
            Budget.from_dict(papers["budget"]),
            provenance["replayed"],
            provenance["time"],
            papers["version"],
        )
        stated = synthesis_measurement.stated(record.get("stated_rows"))  # records of old versions do not have it
        promise = Guarantee(Curve.from_dict(provenance["guarantee"]), unit, assumptions=tuple(papers["assumptions"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, DeniableError):
        raise UnreadableRecord("this version cannot read this synthetic table; update deniable") from None
    made = Synthetic(asked, cast(MeasuredTogether, _Papers(promise, receipt)), rows or stated)
    made.marginals = tuple(counted)
    return made


def price_record(price: SynthesisPrice) -> dict[str, Any]:
    """The record of a price."""
    return {
        **price.to_dict(),
        "papers": {
            "budget": price.budget.to_dict(),
            "cost": [str(price.cost.units), str(price.cost.delta_units)],
            "rest": [str(price.left.units), str(price.left.delta_units)],
        },
    }


def read_price(record: Mapping[str, Any], request: Mapping[str, Any], tables: Mapping[str, Table]) -> SynthesisPrice:
    """The price of a record for the arguments of a request; `UnreadableRecord` if it is malformed."""
    asked = planned(request, tables)
    try:
        deviations = tuple(float(record["deviations"][asked.marginal_name(places)]) for places in asked.measured)
        papers, thresholds = record["papers"], tuple(int(each) for _, each in record["thresholds"])
        budget, selection = Budget.from_dict(papers["budget"]), record.get("chosen")
        chosen = None if selection is None else ChosenCounts(**selection)
        costs = _cost(papers["cost"]), _cost(papers["rest"])
        return SynthesisPrice(asked, budget, *costs, deviations, thresholds, chosen)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DeniableError):
        raise UnreadableRecord("this version cannot read this price; update deniable") from None


def recalled(
    session: Session, request: Mapping[str, Any], charge: Entry, sealed: Entry, left: Cost
) -> Synthetic | None:
    """The synthetic table that is stored in a sealed entry, at no cost; None if the entry holds no table for this
    request, or one that cannot be read.
    """
    asked = planned(request, session.tables)
    if sealed.answer is None or sealed.question != asked.hash:
        return None
    try:
        found = synthesis_measurement.read(sealed.answer, asked, session)
    except UnreadableRecord:
        return None
    return Synthetic(*synthesis_measurement.papers(session, found, charge, left, replayed=True))


def write_rows(
    made: Synthetic, count: int, path: Path, form: str, on_progress: Callable[[float], None] | None = None
) -> None:
    """Write `count` synthetic rows to a file, in portions: CSV, with empty cells for missing values, or Parquet.

    `on_progress` is called with the share of the rows that are written.
    """
    parts = [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]
    with _parquet(path) if form == "parquet" else _csv(path, made.columns) as write:
        for done, part in enumerate(parts, 1):
            write(made.rows(part))
            if on_progress is not None:
                on_progress(done / len(parts))


@contextmanager
def _csv(path: Path, names: Sequence[str]) -> Iterator[Callable[[SyntheticRows], None]]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)

        def write(rows: SyntheticRows) -> None:
            writer.writerows(zip(*([_cell(each) for each in rows.columns[name]] for name in names), strict=True))

        yield write


@contextmanager
def _parquet(path: Path) -> Iterator[Callable[[SyntheticRows], None]]:
    with ExitStack() as opened:
        made: list[Any] = []

        def write(rows: SyntheticRows) -> None:
            table = rows.to_arrow()
            if not made:
                made.append(
                    opened.enter_context(library("pyarrow.parquet", "sql").ParquetWriter(str(path), table.schema))
                )
            made[0].write_table(table.cast(made[0].schema))

        yield write


def check_form(path: Path) -> str:
    """The form, "csv" or "parquet", by the ending of a file name. To be called before anything is paid.

    Raises `InvalidParameter` for another ending, and `MissingExtra` if Parquet needs a library.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise InvalidParameter("--out", path.name, "must end with .csv or .parquet")
    if form == "parquet":
        library("pyarrow.parquet", "sql")
    return form


def _found(column: synthesis_request.SyntheticColumn, values: Mapping[str, Any]) -> list[tuple[Any, float]]:
    """The found keys of a column from a record, with 0 in place of their counts."""
    keys = [each for each in values[column.name]["values"] if each is not None]
    return [(dt.date.fromisoformat(each) if column.domain.kind is Kind.DATE else each, 0.0) for each in keys]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _as_json(value)


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def _plain(counts: Any) -> list[int | float]:
    numbers: Sequence[float] = counts.ravel().tolist()
    return [int(each) if each.is_integer() else each for each in numbers]


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= _MOST**2:
        raise ValueError("variance")
    return float(given)


def _cost(units: Sequence[str]) -> Cost:
    return Cost(int(units[0]), int(units[1]))
