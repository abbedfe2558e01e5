"""Questions from the shell: `ask`, `price`, `bounds` and `schema`; and, for the owner alone, `report`.

The account of a file is kept beside it, in FILE.ledger: whoever asks next shares its budget. Which account that is, and
that a file has no two of them, is for `accounts`.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.errors import NOTHING, InvalidParameter, QuestionRefused

if TYPE_CHECKING:
    import typer

    from deniable.ledger import Budget
    from deniable.queries.engines.report import Registration
    from deniable.queries.session import Session
    from deniable.tables.kinds import Domain
    from deniable.units import Unit

_COSTS = ("epsilon", "mu", "rho", "share", "within")
FOR_KEYS = "1e-6"
"""The δ of a new account whose first question cannot be answered without one, where none was said."""


def add(app: "typer.Typer") -> None:
    """The commands of this room."""
    import typer

    from deniable.cli import plain_errors

    source = Annotated[
        Path,
        typer.Argument(
            help="A CSV, Parquet or DuckDB file. Questions call its table as the file is called, "
            "with _ for what SQL would have to quote: my visits.csv is my_visits.",
            show_default=False,
        ),
    ]
    question = Annotated[str, typer.Argument(help='Such as "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward".')]
    table = Annotated[str | None, typer.Option(help="Of a DuckDB file: which table; needed if it has several.")]
    unit = Annotated[str | None, typer.Option(help="The column that says whose row it is; the ledger remembers it.")]
    rows = Annotated[int | None, typer.Option(help="The most rows of a person that are read; goes with --unit.")]
    each_row = Annotated[bool, typer.Option("--each-row", help="Instead of --unit: every row is its own person.")]
    epsilon = Annotated[str | None, typer.Option(help="What to spend on this question, as ε.")]
    mu = Annotated[str | None, typer.Option(help="Or as μ.")]
    rho = Annotated[str | None, typer.Option(help="Or as ρ.")]
    share = Annotated[
        str | None, typer.Option(help="Or as a share of what is left, from 0 to 1: of μ², or of pure ε or ρ.")
    ]
    within = Annotated[float | None, typer.Option(help="Or by how near counts and sums shall be.")]
    budget = Annotated[str | None, typer.Option(help="ε of the whole budget; needed once, for a new ledger.")]
    delta = Annotated[
        str | None,
        typer.Option(
            help="δ of the whole budget; without it the budget is pure ε, or δ is 1e-6 where the question that opens "
            "the account groups by keys that nobody listed."
        ),
    ]
    schema = Annotated[Path | None, typer.Option(help="A .yaml, .toml or .json file; `deniable schema` proposes one.")]
    ledger = Annotated[Path | None, typer.Option(help="Where the account is kept; else FILE.ledger.")]
    confidence = Annotated[float, typer.Option(help="Of the noise intervals.")]
    as_json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

    @app.command()
    def ask(
        source: source, question: question, table: table = None, unit: unit = None, rows: rows = None,
        each_row: each_row = False, epsilon: epsilon = None, mu: mu = None, rho: rho = None, share: share = None,
        within: within = None, budget: budget = None, delta: delta = None, schema: schema = None,
        ledger: ledger = None, confidence: confidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Answer a question about a file with noise, under a budget that is kept beside the file."""
        given = dict(locals())
        with plain_errors():
            _before_there_is_an_account(given)
            with _opened(given, reads=True) as session, _in_options(given):
                answer = session.sql(question, **_cost(given))
                if as_json:
                    print(answer.to_json())
                else:
                    _console().print(answer)

    @app.command()
    def price(
        source: source, question: question, table: table = None, unit: unit = None, rows: rows = None,
        each_row: each_row = False, epsilon: epsilon = None, mu: mu = None, rho: rho = None, share: share = None,
        within: within = None, budget: budget = None, delta: delta = None, schema: schema = None,
        ledger: ledger = None, confidence: confidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Say what `ask` would cost and how exact it would be. Free: no data is read, and nothing is written."""
        given = dict(locals())
        with plain_errors():
            _before_there_is_an_account(given)
            with _opened(given, reads=False) as session, _in_options(given):
                found = session.price(question, **_cost(given))
                print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)

    @app.command()
    def bounds(
        source: source,
        column: Annotated[str, typer.Argument(help="A number, a date or a timestamp without bounds.")],
        table: table = None, unit: unit = None, rows: rows = None, each_row: each_row = False,
        kind: Annotated[
            str | None, typer.Option(help="Instead of --schema: integer, real, date or timestamp; a CSV has no types.")
        ] = None,
        cover: Annotated[float, typer.Option(help="The share of the rows that shall be within, about.")] = 0.99,
        epsilon: epsilon = None, mu: mu = None, rho: rho = None, share: share = None, within: within = None,
        budget: budget = None, delta: delta = None, schema: schema = None, ledger: ledger = None,
        confidence: confidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Buy bounds of a column: a noisy count by public bins, and the line for the schema that is read off it."""
        given = dict(locals()) | {"question": ""}
        with plain_errors():
            given["declared"] = _declared(given)
            if not _account(given).exists():
                with _opened(given, reads=False) as session:
                    session.price_bounds(column, **_cost(given)).to_dict()
            with _opened(given, reads=True) as session:
                found = session.bounds(column, cover=cover, **_cost(given))
                print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)

    @app.command()
    def report(
        source: source, table: table = None, unit: unit = None, rows: rows = None, each_row: each_row = False,
        schema: schema = None, ledger: ledger = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
    ) -> None:  # fmt: skip
        """Tell the owner of a file, exactly, which rows questions are about and which got lost. Not for others."""
        given = dict(locals())
        with plain_errors():
            [found] = _registered(given).values()
            print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found.describe())

    @app.command("schema")
    def propose(
        source: source,
        table: table = None,
        form: Annotated[str, typer.Option(help="yaml, toml or json.")] = "yaml",
        as_json: Annotated[bool, typer.Option("--json", help="The same as --form json.")] = False,
    ) -> None:
        """Propose a schema from the types of a file; what only its owner can know is left to fill in."""
        from deniable.queries.engines.unread import Unread
        from deniable.tables import propose_schema

        with plain_errors():
            [(name, found)] = _named(source, table).items()
            print(propose_schema(Unread().types(found), name=name).text("json" if as_json else form))


def _registered(given: dict[str, Any]) -> "Mapping[str, Registration]":
    """What becomes of the rows of a file. The account beside it says whom it protects; nothing is spent or written."""
    from deniable.ledger import Budget, Ledger
    from deniable.queries.connect import session

    path, known = _account(given), None
    if path.exists():
        with Ledger.inspect(path) as ledger:
            known = ledger.unit
    about = {"unit": _unit(given, known), "schema": given["schema"], "budget": Budget.pure(epsilon=1)}
    with session(_named(given["source"], given["table"]), **about) as opened:
        return opened.registration


def _named(source: Path, table: str | None) -> dict[str, object]:
    """What is read, by the name of its table."""
    from deniable.cli.accounts import is_database, meant
    from deniable.tables.files import plain_name, table_name

    source = meant(source)
    if not is_database(source):
        if table is not None:
            raise InvalidParameter("--table", table, "is for a file that has several", f"leave it out: {source.name}")
        return {table_name(source): source}
    from deniable.queries.engines.base import DatabaseTable

    if table is None:
        from deniable.queries.engines.duckdb import tables_of_database

        tables = tables_of_database(source)
        if len(tables) != 1:
            rule = f"{source.name} has {', '.join(tables) or 'no tables'}"
            raise InvalidParameter("--table", NOTHING, rule, "say which one: --table visits")
        table = tables[0]
    return {plain_name(table): DatabaseTable(source, table)}


def _declared(given: dict[str, Any]) -> "dict[str, Domain] | None":
    """The kind of the column whose bounds are bought, if it is said here and not in a schema."""
    from deniable.tables.kinds import BOUNDED, Domain, Kind

    if given["kind"] is None:
        return None
    if given["schema"] is not None:
        raise InvalidParameter("--kind", given["kind"], "is said in the schema", "leave out --kind or --schema")
    found = next((each for each in Kind if each in BOUNDED and each.value == given["kind"]), None)
    if found is None:
        raise InvalidParameter("--kind", given["kind"], "must be integer, real, date or timestamp")
    return {given["column"]: Domain(found)}


def _account(given: dict[str, Any]) -> Path:
    """The file of the ledger."""
    from deniable.cli.accounts import account_of, is_database, meant

    table = next(iter(_named(given["source"], given["table"]))) if is_database(meant(given["source"])) else None
    return account_of(given, table)


def _cost(given: dict[str, Any]) -> dict[str, Any]:
    asked = {name: given[name] for name in _COSTS if given[name] is not None}
    # A question may say it itself, as BigQuery's do: OPTIONS (epsilon = 0.1).
    if len(asked) > 1 or (not asked and "options" not in given["question"].lower()):
        said = ", ".join(f"--{name}" for name in asked) or "none"
        listed = ", ".join(f"--{name}" for name in _COSTS)
        rule = f"give exactly one of them, to say what to spend; given: {said}"
        raise InvalidParameter(listed, NOTHING, rule, "try --epsilon 0.1")
    return asked | {"confidence": given["confidence"]}


def _before_there_is_an_account(given: dict[str, Any]) -> None:
    """Whatever is wrong with the question or its cost is wrong now. One that needs a δ gets one, and that is said."""
    if _account(given).exists():
        return
    try:
        with _opened(given, reads=False) as session, _in_options(given):
            session.price(given["question"], **_cost(given)).to_dict()
        return
    except QuestionRefused as refused:
        if refused.code != "key" or given["budget"] is None or given["delta"] is not None:
            raise
    given["delta"] = FOR_KEYS
    with _opened(given, reads=False) as session, _in_options(given):
        session.price(given["question"], **_cost(given)).to_dict()
    said = f"keys that nobody listed need a δ, and none was given: the budget gets --delta {FOR_KEYS}"
    print(said, file=sys.stderr)


@contextlib.contextmanager
def _in_options(given: dict[str, Any]) -> Iterator[None]:
    """What a refusal means here: which option to write."""
    try:
        yield
    except QuestionRefused as refused:
        if given["schema"] is None and "in the schema" in refused.rewrite:
            refused.add_note("here: `deniable schema` proposes one to fill in; name it with --schema")
        raise


def _unit(given: dict[str, Any], known: "Unit | None") -> "Unit | None":
    from deniable.units import Unit

    column, rows = given["unit"], given["rows"]
    if given["each_row"]:
        if column is not None or rows is not None:
            raise InvalidParameter(
                "--each-row", NOTHING, "says that nobody has several rows", "leave --unit and --rows out"
            )
        return _same(given, Unit.row(), known)
    if column is not None and rows is not None:
        return _same(given, Unit.person(column, rows=rows), known)
    if column is not None or rows is not None:
        given_one = "--unit" if rows is None else "--rows"
        raise InvalidParameter(given_one, NOTHING, "--unit and --rows go together", "write --unit patient_id --rows 20")
    if given["schema"] is not None or known is not None:
        return known if given["schema"] is None else None
    remedy = "write --unit patient_id --rows 20, or --each-row if nobody has two rows, or name a --schema that says it"
    raise InvalidParameter("--unit", NOTHING, "who is protected?", remedy)


def _same(given: dict[str, Any], asked: "Unit", known: "Unit | None") -> "Unit":
    if known in {None, asked}:
        return asked
    assert known is not None
    said = "--each-row" if known.column is None else f"--unit {known.column} --rows {known.rows}"
    name = "--each-row" if given["each_row"] else "--unit"
    rule = f"the account in {_account(given).name} protects others ({said})"
    raise InvalidParameter(name, NOTHING, rule, "leave it out; the account knows whom it protects")


def _budget(given: dict[str, Any], known: "Budget | None") -> "Budget | None":
    from deniable.ledger import Budget

    budget, delta, kept = given["budget"], given["delta"], _account(given).name
    if budget is None:
        if delta is not None:
            raise InvalidParameter("--delta", delta, "is a part of the budget", "give --budget as well")
        if known is None:
            remedy = "say once how much may ever be spent: --budget 1.0 --delta 1e-6"
            raise InvalidParameter("--budget", NOTHING, f"there is no account yet in {kept}", remedy)
        return None
    asked = Budget.pure(epsilon=budget) if delta is None else Budget(epsilon=budget, delta=delta)
    # The δ was said when the account was opened; ε alone, said again, is no other budget.
    if known is None or asked == known or (delta is None and known.epsilon_units == asked.limit.units):
        return asked if known is None else None
    rule = f"the account in {kept} was opened with another budget ({known.limit.describe_rest(known)})"
    raise InvalidParameter("--budget", budget, rule, "leave --budget and --delta out: a budget is fixed once")


def _opened(given: dict[str, Any], *, reads: bool) -> "Session":
    from deniable.ledger import Ledger
    from deniable.queries.connect import session
    from deniable.queries.engines.unread import Unread

    path, budget, unit = _account(given), None, None
    if path.exists():
        with Ledger.open(path) as ledger:
            budget, unit = ledger.budget, ledger.unit
    limit, whose = _budget(given, budget), _unit(given, unit)
    return session(
        _named(given["source"], given["table"]),
        unit=whose,
        budget=limit,
        schema=given.get("declared") or given["schema"],
        ledger=path if reads or path.exists() else None,  # a price writes nothing
        engine="duckdb" if reads else Unread(),
        progress=reads,
    )


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)
