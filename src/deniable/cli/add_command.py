"""`deniable add`: register a file with a running server.

The data does not travel: the server reads the file in one of its data folders. Only the schema and the budget are sent.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.cli import plain_errors
from deniable.errors import NOTHING, InvalidParameter, ServerRefused

if TYPE_CHECKING:
    import typer


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    @app.command("add")
    def register(
        source: Annotated[
            Path,
            typer.Argument(
                help="A CSV or Parquet file in a data folder of the server, by its path here or on the server.",
                show_default=False,
            ),
        ],
        url: Annotated[
            str, typer.Option(envvar="DENIABLE_URL", help="Address of the server: https, or on this machine.")
        ] = "http://127.0.0.1:8471",
        token: Annotated[
            str | None,
            typer.Option(envvar="DENIABLE_TOKEN", help="Token of an owner; safer in the environment than typed."),
        ] = None,
        name: Annotated[str | None, typer.Option(help="Name of the dataset. Default: the name of the table.")] = None,
        schema: Annotated[
            Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")
        ] = None,
        unit: Annotated[str | None, typer.Option(help="The column that identifies the person of a row.")] = None,
        rows: Annotated[int | None, typer.Option(help="The largest number of rows of one person that is read.")] = None,
        each_row: Annotated[
            bool, typer.Option("--each-row", help="Instead of --unit: every row is a different person.")
        ] = False,
        budget: Annotated[
            float | None, typer.Option(help="ε that may ever be spent; not needed for data that the server knows.")
        ] = None,
        delta: Annotated[float | None, typer.Option(help="δ of the budget. Default: 0, a budget of pure ε.")] = None,
        per: Annotated[
            str | None, typer.Option(help="The budget is for each day, week, month or year, for so many --periods.")
        ] = None,
        periods: Annotated[int | None, typer.Option(help="The number of periods in the life of the data.")] = None,
        family: Annotated[
            str | None, typer.Option(help="A dataset of yours that holds the same people: both share its budget.")
        ] = None,
        people: Annotated[
            str | None,
            typer.Option(
                help="If the server knows most of the ids: same (both share one budget), or others, with --reason."
            ),
        ] = None,
        reason: Annotated[str | None, typer.Option(help="Why they are other people; auditors read it.")] = None,
        grant: Annotated[
            list[str] | None, typer.Option(help="An analyst who may ask questions; repeat it for several.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    ) -> None:
        """Register a file with a running server, under a budget for its lifetime."""
        given = dict(locals())
        from deniable.client import register

        with plain_errors():
            _check(given)
            assert token is not None
            tables = _described(source, given)
            [table] = tables
            limit: dict[str, Any] = {"epsilon": budget, "delta": delta, "per": per, "periods": periods}
            with _in_options(given, table):
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
            if as_json:
                print(json.dumps(made, ensure_ascii=False, indent=2))
            else:
                print("\n".join(_lines(made)))


def _check(given: dict[str, Any]) -> None:
    """Refuse options that are missing or do not go together, before anything is sent."""
    from deniable.cli.question_commands import budget_of

    budget, delta, people, reason = (given[each] for each in ("budget", "delta", "people", "reason"))
    if given["token"] is None:
        raise InvalidParameter("--token", NOTHING, "must be given: it says who you are", "export DENIABLE_TOKEN=dn_...")
    if delta is not None and budget is None:
        raise InvalidParameter("--delta", delta, "is given with --budget only", "give --budget as well")
    if budget is None and (given["per"] or given["periods"]):
        raise InvalidParameter("--per", given["per"], "is given with --budget only", "give --budget as well")
    if people == "others" and not reason:
        raise InvalidParameter("--reason", NOTHING, "must say why they are other people", "auditors read it")
    if reason and people != "others":
        raise InvalidParameter("--reason", NOTHING, "is given with --people others only", "leave it out")
    if budget is not None:
        budget_of(budget, delta, given["per"], given["periods"])


@contextmanager
def _in_options(given: dict[str, Any], table: str) -> Iterator[None]:
    """Translate errors of the server: they name an option of this command instead of a field of the request."""
    name, budget = given["name"] or table, given["budget"]
    try:
        yield
    except ServerRefused as error:
        if error.code == "exists":
            rule = "is taken: a dataset has this name, or a name that looks like it"
            raise InvalidParameter("--name", name, rule, "choose another --name") from None
        if error.code != "same_people":
            raise
        remedy = "say --people same (one budget), or --people others --reason '...'"
        rule = str(error).removeprefix("same_people: ").partition(". Say")[0]
        raise InvalidParameter("--people", NOTHING, rule, remedy) from None
    except InvalidParameter as error:
        options: dict[str, tuple[str, Any]] = {
            "name": ("--name", name),
            "grants": ("--grant", error.asked),
            "family": ("--family", given["family"]),
            "people": ("--people", given["people"]),
            "reason": ("--reason", NOTHING),
            "budget": ("--budget", NOTHING if budget is None else budget),
            "epsilon": ("--budget", budget),
            "delta": ("--delta", given["delta"]),
            "periods": ("--periods", given["periods"]),
        }
        if error.parameter not in options:
            raise
        option, asked = options[error.parameter]
        remedy = (error.remedy or f"choose another with {option}").replace("with family", "with --family")
        raise InvalidParameter(option, asked, error.rule, remedy) from None


def _lines(made: dict[str, Any]) -> Iterator[str]:
    """The server's record of a registered dataset, in words."""
    yield f"{made['name']}: protects {made['unit']}"
    yield f"left  {made['left_in_words']}"
    if made["renewal"] is not None:
        yield f"risk  {made['renewal']['risk']}"
    if made["warning"]:
        yield f"note  {made['warning']}"
    for name, each in made.get("registration", {}).items():
        lost = "".join(f", {count:,} left out by {column}" for column, count in each["left_out"].items())
        yield f"rows  {name}: {each['read']:,} read{lost}, {each['cut']:,} cut (exact: for you alone)"
        if spans := each.get("several_lines"):
            spread = f"{spans['records']:,} records have several lines, the longest {spans['longest']:,}"
            yield f"note  {name}: {spread}; check that no stray quote swallowed rows"
    for each in made["grants"]:
        yield f"{each['analyst']} may ask, up to {each['limit']}"


def _described(source: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The schema of the one table, as JSON: from --schema, or proposed from the names and types of its columns."""
    from deniable.cli.question_commands import _named, _unit
    from deniable.queries.engines.price_engine import Unread
    from deniable.tables import propose_schema
    from deniable.tables.schema import read_schema, schema_records
    from deniable.tables.source_files import table_name

    unit = _unit(given, None)
    if given["schema"] is not None:
        tables = read_schema(given["schema"], unit=unit)
        name = table_name(source)
        if name not in tables and len(tables) != 1:
            rule = f"must have the table {name!r}, but has {', '.join(tables)}"
            raise InvalidParameter("--schema", given["schema"].name, rule, "give one of them the name of the file")
        tables = {name: tables[name]} if name in tables else tables
    else:
        if not source.exists():
            rule = "is not on this machine, so its columns are not known here"
            raise InvalidParameter("source", str(source), rule, "describe them: --schema visits.yaml")
        [(name, found)] = _named(source, None).items()
        assert unit is not None
        tables = propose_schema(Unread().types(found), name=name).schema(unit=unit)
    return schema_records(tables)
