"""`deniable add`: register a file with a running server.

The file itself stays where it is: the server reads it in one of its data folders, and only its owner's description of
it travels.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.errors import NOTHING, InvalidParameter, ServerRefused

if TYPE_CHECKING:
    import typer


def add(app: "typer.Typer") -> None:
    """The command of this room."""
    import typer

    from deniable.cli import plain_errors

    @app.command("add")
    def register(
        source: Annotated[
            Path,
            typer.Argument(
                help="A CSV or Parquet file in a data folder of the server: as it is called here, or there.",
                show_default=False,
            ),
        ],
        url: Annotated[
            str, typer.Option(envvar="DENIABLE_URL", help="Of the server: https, or on this machine.")
        ] = "http://127.0.0.1:8471",
        token: Annotated[
            str | None,
            typer.Option(envvar="DENIABLE_TOKEN", help="Of an owner; better kept in the environment than typed."),
        ] = None,
        name: Annotated[str | None, typer.Option(help="What to call it; else as its table is called.")] = None,
        schema: Annotated[
            Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")
        ] = None,
        unit: Annotated[str | None, typer.Option(help="The column that says whose row it is.")] = None,
        rows: Annotated[int | None, typer.Option(help="The most rows of a person that are read.")] = None,
        each_row: Annotated[
            bool, typer.Option("--each-row", help="Instead of --unit: every row is its own person.")
        ] = False,
        budget: Annotated[float | None, typer.Option(help="ε that may ever be spent; left out for known data.")] = None,
        delta: Annotated[float | None, typer.Option(help="δ of the budget; without it the budget is pure ε.")] = None,
        family: Annotated[
            str | None, typer.Option(help="A dataset of yours that holds the same people: both share its budget.")
        ] = None,
        people: Annotated[
            str | None, typer.Option(help="Where most ids are known: same (one budget), or others, with --reason.")
        ] = None,
        reason: Annotated[str | None, typer.Option(help="Why they are other people; auditors read it.")] = None,
        grant: Annotated[list[str] | None, typer.Option(help="An analyst who may ask; may be given again.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
    ) -> None:
        """Register a file with a running server, under a budget for its lifetime."""
        from deniable.cli.question_commands import budget_of
        from deniable.client import register

        given = {"unit": unit, "rows": rows, "each_row": each_row, "schema": schema}
        with plain_errors():
            if token is None:
                raise InvalidParameter(
                    "--token", NOTHING, "must be given: it says who you are", "export DENIABLE_TOKEN=dn_..."
                )
            if delta is not None and budget is None:
                raise InvalidParameter("--delta", delta, "is a part of the budget", "give --budget as well")
            if people == "others" and not reason:
                raise InvalidParameter("--reason", NOTHING, "say why they are other people", "auditors read it")
            if reason and people != "others":
                raise InvalidParameter("--reason", NOTHING, "is for --people others", "leave it out")
            if budget is not None:
                budget_of(budget, delta)
            limit = {"epsilon": budget, "delta": delta}
            tables = _described(source, given)
            [table] = tables
            try:
                made = register(
                    url,
                    token=token,
                    name=name or table,
                    sources={table: str(source.resolve()) if source.exists() else str(source)},
                    schema={"version": 1, "tables": tables},
                    budget=None if budget is None else {key: each for key, each in limit.items() if each is not None},
                    family=family,
                    people=people,
                    reason=reason,
                    grants=grant or [],
                )
            except ServerRefused as error:
                if error.code == "exists":
                    rule = "there is a dataset of this name already, or one whose name looks like it"
                    raise InvalidParameter("--name", name or table, rule, "choose another --name") from None
                if error.code != "same_people":
                    raise
                remedy = "say --people same (one budget), or --people others --reason '...'"
                said = str(error).removeprefix("same_people: ").partition(". Say")[0]
                raise InvalidParameter("--people", NOTHING, said, remedy) from None
            except InvalidParameter as error:
                options: dict[str, tuple[str, Any]] = {
                    "name": ("--name", name or table),
                    "grants": ("--grant", error.asked),
                    "family": ("--family", family),
                    "people": ("--people", people),
                    "reason": ("--reason", NOTHING),
                    "budget": ("--budget", NOTHING if budget is None else budget),
                    "epsilon": ("--budget", budget),
                    "delta": ("--delta", delta),
                }
                if error.parameter not in options:
                    raise
                option, asked = options[error.parameter]
                remedy = (error.remedy or f"choose another with {option}").replace("with family", "with --family")
                raise InvalidParameter(option, asked, error.rule, remedy) from None
            if as_json:
                print(json.dumps(made, ensure_ascii=False, indent=2))
                return
            print(f"{made['name']}: protects {made['unit']}")
            print(f"left  {made['left_in_words']}")
            if made["warning"]:
                print(f"note  {made['warning']}")
            for name, each in made.get("registration", {}).items():
                lost = "".join(f", {count:,} left out by {column}" for column, count in each["left_out"].items())
                print(f"rows  {name}: {each['read']:,} read{lost}, {each['cut']:,} cut (exact: for you alone)")
                if spans := each.get("several_lines"):
                    spread = f"{spans['records']:,} records have several lines, the longest {spans['longest']:,}"
                    print(f"note  {name}: {spread}; check that no stray quote swallowed rows")
            for each in made["grants"]:
                print(f"{each['analyst']} may ask, up to {each['limit']}")


def _described(source: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The one table, as its owner describes it: by a schema, or by the names and types of its columns alone."""
    from deniable.cli.question_commands import _named, _unit
    from deniable.queries.engines.price_engine import Unread
    from deniable.tables import propose_schema
    from deniable.tables.schema import read_schema, write_schema
    from deniable.tables.source_files import table_name

    unit = _unit(given, None)
    if given["schema"] is not None:
        tables = read_schema(given["schema"], unit=unit)
        name = table_name(source)
        if name not in tables and len(tables) != 1:
            rule = f"has no table {name!r}, but {', '.join(tables)}"
            raise InvalidParameter("--schema", given["schema"].name, rule, "call one of them as the file is called")
        tables = {name: tables[name]} if name in tables else tables
    else:
        if not source.exists():
            rule = "is not on this machine, so its columns are not known here"
            raise InvalidParameter("source", str(source), rule, "describe them: --schema visits.yaml")
        [(name, found)] = _named(source, None).items()
        assert unit is not None
        tables = propose_schema(Unread().types(found), name=name).schema(unit=unit)
    described: dict[str, Any] = json.loads(write_schema(tables, form="json"))["tables"]
    return described
