"""Questions from the shell: `ask`, `price` and `schema`.

The account of a file is kept beside it, in FILE.ledger: whoever asks next shares its budget.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.errors import InvalidParameter

if TYPE_CHECKING:
    import typer

    from deniable.queries.session import Session
    from deniable.units import Unit


def add(app: "typer.Typer") -> None:
    """The commands of this room."""
    import typer

    from deniable.cli import plain_errors

    source = Annotated[Path, typer.Argument(help="A CSV or Parquet file; its name is the table's.", show_default=False)]
    question = Annotated[str, typer.Argument(help='Such as "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward".')]
    unit = Annotated[str | None, typer.Option(help="The column that says whose row it is.")]
    rows = Annotated[int | None, typer.Option(help="The most rows of a person that are read.")]
    each_row = Annotated[bool, typer.Option("--each-row", help="Instead of --unit: every row is its own person.")]
    epsilon = Annotated[str | None, typer.Option(help="What to spend on this question, as ε.")]
    mu = Annotated[str | None, typer.Option(help="Or as μ.")]
    rho = Annotated[str | None, typer.Option(help="Or as ρ.")]
    share = Annotated[str | None, typer.Option(help="Or as a part of what is left, from 0 to 1.")]
    within = Annotated[float | None, typer.Option(help="Or by how near counts and sums shall be.")]
    budget = Annotated[str | None, typer.Option(help="ε of the whole budget; needed once, for a new ledger.")]
    delta = Annotated[str | None, typer.Option(help="δ of the whole budget; without it the budget is pure ε.")]
    schema = Annotated[Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")]
    ledger = Annotated[Path | None, typer.Option(help="Where the account is kept; else FILE.ledger.")]
    confidence = Annotated[float, typer.Option(help="Of the noise intervals.")]
    as_json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

    def opened(given: dict[str, Any], *, reads: bool) -> "Session":
        path = given["ledger"] or given["source"].with_name(given["source"].name + ".ledger")
        whose = _unit(given["unit"], given["rows"], given["each_row"])
        return _opened(given["source"], whose, given["budget"], given["delta"], given["schema"], path, reads=reads)

    def cost(given: dict[str, Any]) -> dict[str, Any]:
        asked = {name: given[name] for name in ("epsilon", "mu", "rho", "share", "within") if given[name] is not None}
        return asked | {"confidence": given["confidence"]}

    @app.command()
    def ask(
        source: source, question: question, unit: unit = None, rows: rows = None, each_row: each_row = False,
        epsilon: epsilon = None, mu: mu = None, rho: rho = None, share: share = None, within: within = None,
        budget: budget = None, delta: delta = None, schema: schema = None, ledger: ledger = None,
        confidence: confidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Answer a question about a file with noise, under a budget that is kept beside the file."""
        given = dict(locals())
        with plain_errors(), opened(given, reads=True) as session:
            answer = session.sql(question, **cost(given))
            if as_json:
                print(answer.to_json())
            else:
                _console().print(answer)

    @app.command()
    def price(
        source: source, question: question, unit: unit = None, rows: rows = None, each_row: each_row = False,
        epsilon: epsilon = None, mu: mu = None, rho: rho = None, share: share = None, within: within = None,
        budget: budget = None, delta: delta = None, schema: schema = None, ledger: ledger = None,
        confidence: confidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Say what `ask` would cost and how exact it would be. Free: no data is read, and nothing is written."""
        given = dict(locals())
        with plain_errors(), opened(given, reads=False) as session:
            found = session.price(question, **cost(given))
            print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)

    @app.command("schema")
    def propose(
        source: source,
        form: Annotated[str, typer.Option(help="yaml, toml or json.")] = "yaml",
    ) -> None:
        """Propose a schema from the types of a file; what only its owner can know is left to fill in."""
        from deniable.tables import propose_schema

        with plain_errors():
            print(propose_schema(source, name=_name(source)).text(form))


def _name(source: Path) -> str:
    stem = source.name.split(".")[0]
    return stem if stem.isidentifier() else "data"


def _unit(column: str | None, rows: int | None, each_row: bool) -> "Unit | None":
    from deniable.units import Unit

    if each_row:
        if column is not None or rows is not None:
            raise InvalidParameter(
                "--each-row", True, "says that nobody has several rows", "leave --unit and --rows out"
            )
        return Unit.row()
    if (column is None) != (rows is None):
        raise InvalidParameter("--unit, --rows", (column, rows), "go together", "write --unit patient_id --rows 20")
    return None if column is None or rows is None else Unit.person(column, rows=rows)


def _opened(
    source: Path, unit: "Unit | None", budget: str | None, delta: str | None, schema: Path | None, ledger: Path,
    *, reads: bool,
) -> "Session":  # fmt: skip
    from deniable.ledger import Budget
    from deniable.queries.connect import session
    from deniable.queries.engines.unread import Unread

    limit = None
    if budget is not None:
        limit = Budget.pure(epsilon=budget) if delta is None else Budget(epsilon=budget, delta=delta)
    elif delta is not None:
        raise InvalidParameter("--delta", delta, "is a part of the budget", "give --budget as well")
    if limit is None and not ledger.exists():
        rule = f"there is no account yet in {ledger.name}"
        raise InvalidParameter("--budget", None, rule, "say once how much may ever be spent: --budget 1.0 --delta 1e-6")
    kept = ledger if reads or ledger.exists() else None  # a price writes nothing
    engine = "duckdb" if reads else Unread()
    return session(
        {_name(source): source}, unit=unit, budget=limit, schema=schema, ledger=kept, engine=engine, progress=reads
    )


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)
