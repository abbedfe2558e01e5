"""A synthetic table as plain values: what a ledger, a client, or the process that fits it needs to have it again.

Everything in a record was released or is public: the columns, their values, the noisy counts and their variance. So
whoever has a record fits and draws without data and without cost; a server sends records and leaves the fit to others.
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
from deniable.queries.answer.answer import Receipt
from deniable.queries.answer.answer_display import library
from deniable.queries.answer.joint_entry import MeasuredTogether
from deniable.queries.synthetic import synthesis_measurement, synthesis_request
from deniable.queries.synthetic.synthesis_measurement import SynthesisPrice
from deniable.queries.synthetic.synthesis_request import Synthesis
from deniable.queries.synthetic.synthetic_table import Synthetic, SyntheticRows
from deniable.synth import Marginal
from deniable.tables.kinds import Kind
from deniable.tables.schema import read_schema, write_schema
from deniable.units import Guarantee, Relation, Unit

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
"""Rows that are drawn before they are written."""
_MOST: Final = 1e100
"""No count of a record is as large."""
_COUNTS: Final = ["by", "variance", "counts"]
"""The names of what a row of a record holds: columns, the variance of the noise, and the counts in row-major order."""


@final
@dataclass(frozen=True, slots=True)
class _Papers:
    """What `Synthetic` reads of what was measured, where the counts themselves come from a record."""

    guarantee: Guarantee
    receipt: Receipt


def size(said: Mapping[str, Any], tables: Mapping[str, Table]) -> int:
    """How many cells all counts of a synthetic table have together, by the public schema. Quick, whatever is asked."""
    private = [name for name, each in tables.items() if each.unit is not None]
    table: str = said["table"] or (private[0] if len(private) == 1 else "")
    if table not in tables:
        return 0  # which is refused in better words where it is planned
    unit, names, bins = tables[table].unit, said["columns"], said["bins"] or {}
    if names is None:
        names = [name for name, _ in tables[table].columns if unit is None or name != unit.column]
    names, unlisted, sizes = names[: synthesis_request.MOST_COLUMNS], said.get("unlisted") or (), []
    for name in names:
        alone: dict[str, Any] = {"table": table, "columns": [name], "bins": {name: bins[name]} if name in bins else {}}
        sizes.append(planned(alone | {"unlisted": [name] if name in unlisted else []}, tables).sizes[0])
    target = said["target"] if said["target"] in names else None  # else it is refused where it is planned
    places = synthesis_request.counted(names, sizes, said.get("method", "pairs"), target, said.get("workload"))
    return sum((len(each) + 1) * prod(sizes[place] for place in each) for each in places)


def planned(said: Mapping[str, Any], tables: Mapping[str, Table]) -> Synthesis:
    """What is measured for a synthetic table that was asked for in these words."""
    return synthesis_request.asked(tables=tables, **said)


def record_of(made: Synthetic, said: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, Any]:
    """All that is needed to have it again; `said` is what `Session.synthesize` was asked, without its cost."""
    asked, receipt, unit = made.asked, made.receipt, made.guarantee.unit
    columns, schema = asked.columns, write_schema({asked.table: tables[asked.table]}, form="json")
    return {
        "asked": dict(said),
        "names": list(made.columns),
        "columns": list(_COUNTS),
        "rows": [
            [[columns[place].name for place in each.columns], each.variance, _plain(each.counts)]
            for each in made.marginals
        ],
        "values": {each.name: {"binned": each.binned, "values": [_told(v) for v in each.values]} for each in columns},
        "count": made.count,
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
            "unit": {"relation": unit.relation.value, "rows": unit.rows, "column": unit.column},
            "assumptions": list(made.guarantee.assumptions),
            "budget": receipt.budget.to_dict(),
            "cost": [str(receipt.cost.units), str(receipt.cost.delta_units)],
            "rest": [str(receipt.rest.units), str(receipt.rest.delta_units)],
            "version": receipt.version,
        },
    }


def read_record(record: Mapping[str, Any]) -> Synthetic:
    """The synthetic table of a record."""
    try:
        papers, said = record["papers"], record["provenance"]
        unit = Unit(Relation(papers["unit"]["relation"]), rows=papers["unit"]["rows"], column=papers["unit"]["column"])
        asked = planned(record["asked"], read_schema({"version": 1, "tables": papers["tables"]}))
        asked = asked.with_keys([_found(asked.columns[place], record["values"]) for place in asked.unlisted])
        at = {each.name: place for place, each in enumerate(asked.columns)}
        counted = []
        for names, variance, counts in record["rows"]:
            shape = [len(asked.columns[at[name]].values) for name in names]
            counted.append(
                Marginal(tuple(at[name] for name in names), np.array(counts, float).reshape(shape), _number(variance))
            )
        if tuple(each.columns for each in counted) != asked.measured or not all(
            (np.abs(each.counts) <= _MOST).all()
            for each in counted  # False of what is no number
        ):
            raise ValueError("counts")
        receipt = Receipt(
            said["entry"],
            said["question"],
            _cost(papers["cost"]),
            _cost(papers["rest"]),
            Budget.from_dict(papers["budget"]),
            said["replayed"],
            said["time"],
            papers["version"],
        )
        promise = Guarantee(Curve.from_dict(said["guarantee"]), unit, assumptions=tuple(papers["assumptions"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, DeniableError):
        raise UnreadableRecord("this is no synthetic table that this version can read; update deniable") from None
    made = Synthetic(asked, cast(MeasuredTogether, _Papers(promise, receipt)))
    made.marginals = tuple(counted)
    return made


def price_record(price: SynthesisPrice) -> dict[str, Any]:
    """All that is needed to have a price again."""
    return {
        **price.to_dict(),
        "papers": {
            "budget": price.budget.to_dict(),
            "cost": [str(price.cost.units), str(price.cost.delta_units)],
            "rest": [str(price.left.units), str(price.left.delta_units)],
        },
    }


def read_price(record: Mapping[str, Any], said: Mapping[str, Any], tables: Mapping[str, Table]) -> SynthesisPrice:
    """The price of a record, for what was asked in these words."""
    asked = planned(said, tables)
    try:
        deviations = tuple(float(record["deviations"][asked.told(places)]) for places in asked.measured)
        papers, thresholds = record["papers"], tuple(int(each) for _, each in record["thresholds"])
        budget = Budget.from_dict(papers["budget"])
        return SynthesisPrice(asked, budget, _cost(papers["cost"]), _cost(papers["rest"]), deviations, thresholds)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DeniableError):
        raise UnreadableRecord("this is no price that this version can read; update deniable") from None


def recalled(session: Session, said: Mapping[str, Any], charge: Entry, sealed: Entry, left: Cost) -> Synthetic | None:
    """What a sealed entry holds of a synthetic table, for nothing; None if the entry is of something else."""
    asked = planned(said, session.tables)
    if sealed.answer is None or sealed.question != asked.hash:
        return None
    try:
        found = synthesis_measurement.read(sealed.answer, asked, session)
    except UnreadableRecord:
        return None
    return Synthetic(*synthesis_measurement.papers(session, found, charge, left, replayed=True))


def write_rows(made: Synthetic, count: int, path: Path, form: str, told: Callable[[float], None] | None = None) -> None:
    """So many synthetic rows into a file, some at a time: CSV, where a missing value is an empty cell, or Parquet.

    `told` is told the share of the rows that are written.
    """
    parts = [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]
    with _parquet(path) if form == "parquet" else _csv(path, made.columns) as write:
        for done, part in enumerate(parts, 1):
            write(made.rows(part))
            if told is not None:
                told(done / len(parts))


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
    """Which form the name of a file asks for, by its ending; InvalidParameter before anything is paid."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise InvalidParameter("--out", path.name, "must end with .csv or .parquet")
    if form == "parquet":
        library("pyarrow.parquet", "sql")
    return form


def _found(column: synthesis_request.SyntheticColumn, values: Mapping[str, Any]) -> list[tuple[Any, float]]:
    """The keys that a noisy count showed, as the record has them."""
    keys = [each for each in values[column.name]["values"] if each is not None]
    return [(dt.date.fromisoformat(each) if column.domain.kind is Kind.DATE else each, 0.0) for each in keys]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _told(value)


def _told(value: Any) -> Any:
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
