"""Synthetic rows from the shell: `deniable synthesize`. It spends from the same account as `deniable ask`."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.cli import plain_errors
from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    import typer

    from deniable.queries.synthetic.synthetic_table import Synthetic

_COSTS = ("epsilon", "mu", "rho", "share")
_MOST_ROWS = 10**8
_MOST_TABLE_ROWS = 10**9


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    from deniable.cli.account_options import (
        AccountFile,
        CostAsMu,
        CostAsRho,
        CostAsShare,
        EachRow,
        SharedTable,
        WholeBudget,
    )

    @app.command()
    def synthesize(
        source: Annotated[
            Path, typer.Argument(help="A CSV, Parquet or DuckDB file, as for `deniable ask`.", show_default=False)
        ],
        out: Annotated[
            Path | None,
            typer.Option(help="A new .csv or .parquet file for the rows. Not with --price."),
        ] = None,
        price: Annotated[
            bool, typer.Option("--price", help="Print the cost and the noise, and stop: nothing is charged or written.")
        ] = False,
        columns: Annotated[
            str | None,
            typer.Option(
                help="Names separated by commas; a name that contains a comma is quoted. Each column needs keys or "
                "bounds in the schema. Default: all columns."
            ),
        ] = None,
        rows: Annotated[
            int | None,
            typer.Option(
                help="Number of synthetic rows. Default: about as many as the table has. "
                "(rows= of Session.synthesize in Python is --table-rows here.)"
            ),
        ] = None,
        table_rows: Annotated[
            int | None,
            typer.Option(
                help="About how many rows the table has, if that is public: a cost that is too small for so many is "
                "refused, and nothing is charged."
            ),
        ] = None,
        target: Annotated[
            str | None, typer.Option(help="A column that a model will learn to predict from the synthetic rows.")
        ] = None,
        bins: Annotated[
            str | None, typer.Option(help="Bins for numbers and dates, such as age=20,pay=10. Default: 32.")
        ] = None,
        workload: Annotated[
            str | None, typer.Option(help="The tables to measure instead of all pairs, such as sex,age;age,pay,sex.")
        ] = None,
        method: Annotated[
            str,
            typer.Option(
                help="pairs; or independent, which counts each column alone; or mst (a tree of pairs) or adaptive (in "
                "rounds), which choose tables by the data."
            ),
        ] = "pairs",
        unlisted: Annotated[str | None, typer.Option(help="Columns whose keys a noisy count finds; needs a δ.")] = None,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out if it exists.")] = False,
        table: SharedTable = None,
        unit: Annotated[
            str | None, typer.Option(help="The column that identifies the person of a row; goes with --unit-rows.")
        ] = None,
        unit_rows: Annotated[
            int | None, typer.Option(help="The largest number of rows of one person that is read.")
        ] = None,
        each_row: EachRow = False,
        epsilon: Annotated[str | None, typer.Option(help="The cost, as ε.")] = None,
        mu: CostAsMu = None,
        rho: CostAsRho = None,
        share: CostAsShare = None,
        budget: WholeBudget = None,
        delta: Annotated[str | None, typer.Option(help="δ of the whole budget; goes with --budget.")] = None,
        schema: Annotated[
            Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")
        ] = None,
        ledger: AccountFile = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    ) -> None:
        """Write synthetic rows that resemble those of a file, under the budget that is kept beside it.

        The budget pays once for noisy counts. The rows are drawn from a distribution that is fitted to them.

        To ask again, also for more rows, is free: the counts are read from the account.

        Example: deniable synthesize people.csv --columns sex,age --epsilon 0.5 --out synthetic.parquet
        """
        given = dict(locals()) | {"rows": unit_rows, "rows_option": "--unit-rows"}
        with plain_errors(), _in_options(source):
            _check(source, out, price=price, overwrite=overwrite, rows=rows)
            if table_rows is not None and not 1 <= table_rows <= _MOST_TABLE_ROWS:
                raise InvalidParameter("--table-rows", table_rows, "must be from 1 to 10⁹")
            request: dict[str, Any] = {
                "table": None,
                "columns": _listed(columns),
                "target": target,
                "bins": _bins(bins),
                "method": method,
                "workload": _workload(workload),
                "unlisted": _listed(unlisted) or [],
                **_cost(given),
            }
            if out is None:
                _print_price(given, request, table_rows, as_json)
            else:
                _write(given, request, out, rows, table_rows, overwrite=overwrite, as_json=as_json)


def _check(source: Path, out: Path | None, *, price: bool, overwrite: bool, rows: int | None) -> None:
    """Refuse a source that does not exist, a file that cannot be written, and a wrong number of rows."""
    from deniable.cli.shell_accounts import apart_from_the_table, must_be_there
    from deniable.queries.synthetic.synthetic_records import check_form

    must_be_there(source)
    if price == (out is not None):
        rule = "cannot be used with --price, which writes no rows" if price else "must name the file for the rows"
        raise InvalidParameter("--out", NOTHING, rule, "write --out rows.parquet, or --price alone")
    if out is not None:
        check_form(out)
        _check_place(out, overwrite)
        apart_from_the_table(out, source)
    if rows is not None and not 1 <= rows <= _MOST_ROWS:
        raise InvalidParameter("--rows", rows, f"must be from 1 to {_MOST_ROWS:,}")


def _print_price(given: dict[str, Any], request: dict[str, Any], table_rows: int | None, as_json: bool) -> None:
    from deniable.cli.question_commands import _opened
    from deniable.queries.synthetic.synthesis_measurement import refuse_useless

    with _opened(given, reads=False) as session:
        price = session.price_synthesis(**request)
    refuse_useless(price, table_rows)
    print(json.dumps(price.to_dict(), ensure_ascii=False, indent=2) if as_json else price)


def _write(
    given: dict[str, Any],
    request: dict[str, Any],
    out: Path,
    rows: int | None,
    table_rows: int | None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Buy the counts, fit a distribution to them, and write rows of it to `out`."""
    from deniable.cli.question_commands import _account, _opened, check_fits
    from deniable.queries.synthetic.synthesis_measurement import refuse_useless
    from deniable.queries.synthetic.synthetic_records import check_form, write_rows

    if not _account(given).exists():  # errors of the request come before the account is opened
        with _opened(given, reads=False) as session:
            check_fits(price := session.price_synthesis(**request))
            refuse_useless(price, table_rows)
    with _opened(given, reads=True) as session:
        price = session.price_synthesis(**request)
        with _spinning("counting"):
            made = session.synthesize(**request, rows=table_rows)
        if not as_json:
            print(price, flush=True)  # only after it is paid: a refusal prints its message and nothing else
        with _spinning("fitting"):
            count = made.count if rows is None else rows
            notes = made.notes
        with _replaced(out, overwrite) as place, _bar(f"writing {out.name}") as progress:
            write_rows(made, count, place, check_form(out), progress)
        if as_json:
            print(json.dumps(_record(made, out, count, notes), ensure_ascii=False, indent=2, allow_nan=False))
        else:
            print("\n".join(_lines(made, out, count, notes)))


@contextmanager
def _in_options(source: Path) -> Iterator[None]:
    """Add a note to a refusal of columns that names the command and the option to use."""
    try:
        yield
    except InvalidParameter as refused:
        if refused.parameter == "columns" and "unlisted=" in refused.remedy:
            column = shlex.quote(str(refused.asked))
            bounds = f"`deniable bounds {shlex.quote(str(source))} {column}` buys bounds, and "
            buys = bounds if "bounds(" in refused.remedy else "--schema names a file that declares keys, and "
            refused.add_note(f"here: {buys}--unlisted {column} finds keys")
        raise


def _check_place(out: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before anything is paid."""
    if out.is_dir():
        raise InvalidParameter("--out", str(out), "is a folder", "name a file in it")
    if out.exists() and not overwrite:
        raise InvalidParameter("--out", out.name, "exists already", "choose another name, or write --overwrite")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        rule, remedy = "is in a folder that does not exist", f"make it first: mkdir -p {shlex.quote(str(out.parent))}"
        if out.parent.is_dir():
            rule, remedy = "is in a folder that cannot be written to", "choose another, or change its permissions"
        raise InvalidParameter("--out", str(out), rule, remedy)


@contextmanager
def _replaced(out: Path, overwrite: bool) -> Iterator[Path]:
    """The path of a temporary file in the same folder, which is renamed to `out` once it is complete."""
    place = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield place
        _check_place(out, overwrite)
        place.replace(out)
    finally:
        place.unlink(missing_ok=True)


def _listed(columns: str | None) -> list[str] | None:
    from deniable.csv_structure import fields_of

    if columns is None:
        return None
    found = fields_of(columns, ",", spaces=True)
    if found is None:
        raise InvalidParameter("--columns", columns, "must be names with commas between them", "write sex,age")
    return found


def _bins(bins: str | None) -> dict[str, int] | None:
    if bins is None:
        return None
    found = {}
    for each in _listed(bins) or []:
        name, is_there, number = each.rpartition("=")
        if not is_there or not (number.isascii() and number.isdigit()):
            raise InvalidParameter("--bins", bins, "must give a number for each column", "write age=20,pay=10")
        found[name] = int(number[:9])
    return found


def _cost(given: dict[str, Any]) -> dict[str, Any]:
    asked = {name: given[name] for name in _COSTS if given[name] is not None}
    if len(asked) != 1:
        listed, found = (", ".join(f"--{name}" for name in names) for names in (_COSTS, asked))
        rule = f"give exactly one of them, to say what to spend; given: {found or 'none'}"
        raise InvalidParameter(listed, NOTHING, rule, "try --epsilon 0.5")
    return asked


def _workload(workload: str | None) -> list[list[str]] | None:
    return None if workload is None else [_listed(each) or [] for each in workload.split(";")]


def _lines(made: "Synthetic", out: Path, count: int, notes: tuple[str, ...]) -> list[str]:
    receipt = made.receipt
    return [
        f"paid     {receipt.paid} (charge {receipt.entry})",
        f"left     {receipt.left}",
        f"promise  {made.guarantee.unit.describe()}: {made.guarantee.curve.expression()}",
        *(f"assumes  {each}" for each in made.guarantee.assumptions),
        *(f"note     {each}" for each in notes),
        f"saved    {count:,} synthetic row{'s' * (count > 1)} of {', '.join(made.columns)} in {out}",
    ]


def _record(made: "Synthetic", out: Path, count: int, notes: tuple[str, ...]) -> dict[str, Any]:
    receipt, promise = made.receipt, made.guarantee
    return {
        "file": str(out),
        "rows": count,
        "columns": list(made.columns),
        "notes": list(notes),
        "entry": receipt.entry,
        "paid": receipt.paid,
        "left": receipt.left,
        "replayed": receipt.replayed,
        "time": receipt.time,
        "guarantee": promise.curve.to_dict(),
        "unit": promise.unit.describe(),
        "assumptions": list(promise.assumptions),
    }


@contextmanager
def _spinning(words: str) -> Iterator[None]:
    """A spinner on stderr while the block runs, if stderr is a terminal."""
    from rich.console import Console

    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(words):
        yield


def _bar(words: str) -> Any:
    from deniable.queries.progress_bar import bar

    return bar(words)
