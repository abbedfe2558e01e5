"""Synthetic rows from the shell: `deniable synthesize`. The account of the file is that of `deniable ask`."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    import typer

    from deniable.queries.synthetic.synthetic_table import Synthetic

_COSTS = ("epsilon", "mu", "rho", "share")
_MOST_ROWS = 10**8


def add(app: "typer.Typer") -> None:
    """The command of this room."""
    import typer

    from deniable.cli import plain_errors
    from deniable.cli.question_commands import _opened

    @app.command()
    def synthesize(
        source: Annotated[
            Path, typer.Argument(help="A CSV, Parquet or DuckDB file, as for `deniable ask`.", show_default=False)
        ],
        out: Annotated[
            Path | None,
            typer.Option(help="Where the rows go: a .csv or .parquet file that is not there yet. Not with --price."),
        ] = None,
        price: Annotated[
            bool, typer.Option("--price", help="Say the cost and the noise, and stop: nothing is charged or written.")
        ] = False,
        columns: Annotated[
            str | None,
            typer.Option(
                help="With commas between them, and quotes around a name with a comma; each needs keys or bounds in "
                "the schema. Without it: all columns."
            ),
        ] = None,
        rows: Annotated[
            int | None,
            typer.Option(
                help="How many synthetic rows to draw; without it about as many as the table has. "
                "(rows= of Session.synthesize in Python is the public size of the table instead.)"
            ),
        ] = None,
        target: Annotated[
            str | None, typer.Option(help="A column that a model shall learn to predict from the synthetic rows.")
        ] = None,
        bins: Annotated[
            str | None, typer.Option(help="Numbers and dates are counted in bins; as in age=20,pay=10. Without it: 32.")
        ] = None,
        workload: Annotated[
            str | None, typer.Option(help="The tables that matter, instead of all pairs; as in sex,age;age,pay,sex.")
        ] = None,
        method: Annotated[str, typer.Option(help="pairs, or independent: each column is counted alone.")] = "pairs",
        unlisted: Annotated[
            str | None, typer.Option(help="Columns whose keys shall be found by a noisy count, at a δ.")
        ] = None,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over a file that is there.")] = False,
        table: Annotated[str | None, typer.Option(help="Of a DuckDB file: which table.")] = None,
        unit: Annotated[
            str | None, typer.Option(help="The column that says whose row it is; with --unit-rows.")
        ] = None,
        unit_rows: Annotated[int | None, typer.Option(help="The most rows of a person that are read.")] = None,
        each_row: Annotated[
            bool, typer.Option("--each-row", help="Instead of --unit: every row is its own person.")
        ] = False,
        epsilon: Annotated[str | None, typer.Option(help="What to spend, as ε.")] = None,
        mu: Annotated[str | None, typer.Option(help="Or as μ.")] = None,
        rho: Annotated[str | None, typer.Option(help="Or as ρ.")] = None,
        share: Annotated[str | None, typer.Option(help="Or as a share of what is left, from 0 to 1.")] = None,
        budget: Annotated[
            str | None, typer.Option(help="ε of the whole budget; needed once, for a new ledger.")
        ] = None,
        delta: Annotated[str | None, typer.Option(help="δ of the whole budget; goes with --budget.")] = None,
        schema: Annotated[
            Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")
        ] = None,
        ledger: Annotated[Path | None, typer.Option(help="Where the account is kept; else FILE.ledger.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
    ) -> None:
        """Write synthetic rows that look like those of a file, under the budget that is kept beside it.

        Noisy counts are paid for once; rows are drawn from what is fitted to them.

        Asked again, also for more rows, the counts are read from the account for nothing.

        Example: deniable synthesize people.csv --columns sex,age --epsilon 0.5 --out synthetic.parquet
        """
        given = dict(locals()) | {"rows": unit_rows, "rows_option": "--unit-rows"}
        with plain_errors(), _in_options(source):
            from deniable.cli.question_commands import _account, check_fits
            from deniable.cli.shell_accounts import apart_from_the_table, must_be_there
            from deniable.queries.synthetic.synthetic_records import check_form, write_rows

            must_be_there(source)
            if price == (out is not None):
                rule = "is for rows that are written; with --price none are" if price else "says where the rows go"
                raise InvalidParameter("--out", NOTHING, rule, "write --out rows.parquet, or --price alone")
            if out is not None:
                form = check_form(out)
                _check_place(out, overwrite)
                apart_from_the_table(out, source)
            if rows is not None and not 1 <= rows <= _MOST_ROWS:
                raise InvalidParameter("--rows", rows, f"must be from 1 to {_MOST_ROWS:,}")
            said: dict[str, Any] = {"table": None, "columns": _listed(columns), "target": target, "bins": _bins(bins)}
            said |= {"method": method, "workload": _workload(workload), "unlisted": _listed(unlisted) or []}
            spent = _cost(given)
            if out is None or not _account(given).exists():  # whatever is wrong is wrong before there is one
                with _opened(given, reads=False) as session:
                    before = session.price_synthesis(**said, **spent)
                if out is not None:
                    check_fits(before)
                else:
                    print(json.dumps(before.to_dict(), ensure_ascii=False, indent=2) if as_json else before)
                    return
            with _opened(given, reads=True) as session:
                before = session.price_synthesis(**said, **spent)
                with _spinning("counting"):
                    made = session.synthesize(**said, **spent)
                if not as_json:
                    print(before, flush=True)  # not before it is paid for: a refusal is one message and nothing else
                with _spinning("fitting"):
                    count = made.count if rows is None else rows
                    notes = made.notes
                with _replaced(out, overwrite) as place, _bar(f"writing {out.name}") as told:
                    write_rows(made, count, place, form, told)
                if as_json:
                    print(json.dumps(_record(made, out, count, notes), ensure_ascii=False, indent=2, allow_nan=False))
                else:
                    print("\n".join(_lines(made, out, count, notes)))


@contextmanager
def _in_options(source: Path) -> Iterator[None]:
    """What a refusal means here: which command and which option to write."""
    try:
        yield
    except InvalidParameter as refused:
        if refused.parameter == "columns" and "unlisted=" in refused.remedy:
            column = shlex.quote(str(refused.asked))
            bounds = f"deniable bounds {shlex.quote(str(source))} {column}"
            refused.add_note(f"here: `{bounds}` buys bounds, and --unlisted {column} finds keys")
        raise


def _check_place(out: Path, overwrite: bool) -> None:
    """Nothing is paid for rows that cannot be written."""
    if out.is_dir():
        raise InvalidParameter("--out", str(out), "is a folder", "name a file in it")
    if out.exists() and not overwrite:
        raise InvalidParameter("--out", out.name, "is there already", "choose another name, or write --overwrite")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        rule, remedy = "is in a folder that is not there", f"make it first: mkdir -p {shlex.quote(str(out.parent))}"
        if out.parent.is_dir():
            rule, remedy = "is in a folder that cannot be written to", "choose another, or change its permissions"
        raise InvalidParameter("--out", str(out), rule, remedy)


@contextmanager
def _replaced(out: Path, overwrite: bool) -> Iterator[Path]:
    """A place beside the file, which becomes the file when all is written."""
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
        listed, said = (", ".join(f"--{name}" for name in names) for names in (_COSTS, asked))
        rule = f"give exactly one of them, to say what to spend; given: {said or 'none'}"
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
    """That something takes a while, for whoever watches; on stderr, which is not what is saved or piped."""
    from rich.console import Console

    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(words):
        yield


def _bar(words: str) -> Any:
    from deniable.queries.progress_bar import bar

    return bar(words)
