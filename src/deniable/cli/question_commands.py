"""Questions from the shell: `ask`, `price`, `bounds` and `schema`; and, for the owner alone, `report`.

The account of a file is kept beside it, in FILE.ledger, so that all questions to the file share one budget.
`shell_accounts` finds the account and makes sure that a file has only one.

The functions below take `given`: the options of the command by the names of its parameters.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.cli import plain_errors
from deniable.errors import NOTHING, BudgetExceeded, DeniableError, InvalidParameter, QuestionRefused

if TYPE_CHECKING:
    import typer

    from deniable.ledger import Budget, Renewal
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.session import Session
    from deniable.tables.kinds import Domain
    from deniable.units import Unit

_COSTS = ("epsilon", "mu", "rho", "share", "within")
FOR_KEYS = "1e-6"
"""The default δ of a new account whose first question groups by unlisted keys, which need a δ."""


def add(app: "typer.Typer") -> None:
    """Add the five commands."""
    import typer

    from deniable.cli.account_options import (
        AccountFile,
        CostAsMu,
        CostAsRho,
        CostAsShare,
        EachRow,
        IntervalConfidence,
        SharedTable,
        WholeBudget,
    )

    source = Annotated[
        Path,
        typer.Argument(
            help="A CSV, Parquet or DuckDB file. In SQL, the table has the name of the file, with _ for every "
            "character but letters, digits and _: my visits.csv is my_visits, 1st.csv is t_1st.",
            show_default=False,
        ),
    ]
    question = Annotated[str, typer.Argument(help='Such as "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward".')]
    unit = Annotated[
        str | None, typer.Option(help="The column that identifies the person of a row; the ledger remembers it.")
    ]
    rows = Annotated[
        int | None, typer.Option(help="The largest number of rows of one person that is read; goes with --unit.")
    ]
    epsilon = Annotated[str | None, typer.Option(help="The cost of this question, as ε.")]
    within = Annotated[
        float | None, typer.Option(help="The cost by accuracy: counts and sums are within ± this, at --confidence.")
    ]
    delta = Annotated[
        str | None,
        typer.Option(
            help="δ of the whole budget. Default: 0, a budget of pure ε; or 1e-6 if the first question groups by keys "
            "that no schema lists."
        ),
    ]
    per = Annotated[
        str | None, typer.Option(help="--budget is for each day, week, month or year, for so many --periods.")
    ]
    periods = Annotated[int | None, typer.Option(help="The number of periods in the life of the data.")]
    schema = Annotated[
        Path | None,
        typer.Option(
            help="A .yaml, .toml or .json file; `deniable schema` proposes one. Give it with every question: the "
            "ledger remembers who is protected and the budget, not the schema."
        ),
    ]
    dialect = Annotated[
        str | None,
        typer.Option(help="Whose SQL the question is: duckdb (the default), postgres, bigquery, snowflake or spark."),
    ]
    as_json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
    version = Annotated[
        str | None,
        typer.Option(
            help="A name for the data as it is now, such as a date; needed if the file changed since the last one. All "
            "versions share one budget."
        ),
    ]

    @app.command()
    def ask(
        source: source, question: question, table: SharedTable = None, unit: unit = None, rows: rows = None,
        each_row: EachRow = False, epsilon: epsilon = None, mu: CostAsMu = None, rho: CostAsRho = None,
        share: CostAsShare = None, within: within = None, budget: WholeBudget = None, delta: delta = None,
        per: per = None, periods: periods = None, schema: schema = None, ledger: AccountFile = None,
        version: version = None, dialect: dialect = None, confidence: IntervalConfidence = 0.95,
        as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Answer a question about a file with noise, under a budget that is kept beside the file."""
        given = dict(locals())
        with plain_errors():
            question = given["question"] = _in_dialect(question, dialect)
            _must_be_there(source)
            _before_there_is_an_account(given, must_fit=True)
            _not_without_its_schema(given)
            with _opened(given, reads=True) as session, _in_options(given):
                answer = session.sql(question, **_cost(given))
                if as_json:
                    print(answer.to_json())
                else:
                    _console().print(answer)

    @app.command()
    def price(
        source: source, question: question, table: SharedTable = None, unit: unit = None, rows: rows = None,
        each_row: EachRow = False, epsilon: epsilon = None, mu: CostAsMu = None, rho: CostAsRho = None,
        share: CostAsShare = None, within: within = None, budget: WholeBudget = None, delta: delta = None,
        per: per = None, periods: periods = None, schema: schema = None, ledger: AccountFile = None,
        dialect: dialect = None, confidence: IntervalConfidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Show what `ask` would cost and how exact it would be. Free: no data is read, and nothing is written."""
        given = dict(locals())
        with plain_errors():
            question = given["question"] = _in_dialect(question, dialect)
            if schema is None:  # a schema declares the columns, so the file itself is not needed
                _must_be_there(source)
            _before_there_is_an_account(given)
            with _opened(given, reads=False) as session, _in_options(given):
                found: Any = session.price(question, **_cost(given))
                print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)

    @app.command()
    def bounds(
        source: source,
        column: Annotated[str, typer.Argument(help="A column of numbers, dates or timestamps without bounds.")],
        table: SharedTable = None, unit: unit = None, rows: rows = None, each_row: EachRow = False,
        kind: Annotated[
            str | None, typer.Option(help="Instead of --schema: integer, real, date or timestamp. A CSV has no types.")
        ] = None,
        cover: Annotated[float, typer.Option(help="The approximate share of rows within the bounds.")] = 0.99,
        epsilon: epsilon = None, mu: CostAsMu = None, rho: CostAsRho = None, share: CostAsShare = None,
        within: within = None, budget: WholeBudget = None, delta: delta = None, schema: schema = None,
        ledger: AccountFile = None,
        confidence: IntervalConfidence = 0.95, as_json: as_json = False,
    ) -> None:  # fmt: skip
        """Buy bounds of a column, read off a noisy count in public bins; printed as a line for the schema."""
        given = dict(locals()) | {"question": ""}
        with plain_errors():
            from deniable.queries.bought_bounds import checked_cover

            _must_be_there(source)
            checked_cover(cover)
            given["declared"] = _declared(given)
            if not _account(given).exists():
                with _opened(given, reads=False) as session:
                    check_fits(session.price_bounds(column, **_cost(given)))
            with _opened(given, reads=True) as session:
                found = session.bounds(column, cover=cover, **_cost(given))
                print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)

    @app.command()
    def report(
        source: source, table: SharedTable = None, unit: unit = None, rows: rows = None, each_row: EachRow = False,
        schema: schema = None, ledger: AccountFile = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    ) -> None:  # fmt: skip
        """Count exactly which rows of a file are read and which are left out. Not private: for the owner alone."""
        given = dict(locals())
        with plain_errors():
            _must_be_there(source)
            [found] = _registered(given).values()
            print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found.describe())

    @app.command("schema")
    def propose(
        source: source,
        table: SharedTable = None,
        form: Annotated[str, typer.Option(help="yaml, toml or json.")] = "yaml",
        as_json: Annotated[bool, typer.Option("--json", help="The same as --form json.")] = False,
    ) -> None:
        """Propose a schema from the column types of a file, with gaps that only its owner can fill in."""
        from deniable.queries.engines.price_engine import Unread
        from deniable.tables import propose_schema

        with plain_errors():
            [(name, found)] = _named(source, table).items()
            types = found if isinstance(found, Path) else Unread().types(found)
            print(propose_schema(types, name=name).text("json" if as_json else form), flush=True)
            if sys.stderr.isatty():
                todo = "Replace each FILL IN, or take it out, and correct the kinds:"
                why = "all columns of a CSV file are text, because it has no types and no value is read."
                print(todo, why, file=sys.stderr)


def _registered(given: dict[str, Any]) -> "Mapping[str, Registration]":
    """The registration report of each table, with the unit of its account. Nothing is spent or written."""
    from deniable.ledger import Budget, Ledger
    from deniable.queries.session_opening import session

    path, known = _account(given), None
    if path.exists():
        with Ledger.inspect(path) as ledger:
            known = ledger.unit
    about = {"unit": _unit(given, known), "schema": given["schema"], "budget": Budget.pure(epsilon=1)}
    with session(_named(given["source"], given["table"]), **about) as opened:
        return opened.registration


def _in_dialect(question: str, dialect: str | None) -> str:
    """The question with its dialect in the first line. InvalidParameter names the option."""
    from deniable.queries.sql.named_dialects import in_dialect

    try:
        return in_dialect(question, dialect)
    except InvalidParameter as error:
        raise InvalidParameter("--dialect", error.asked, error.rule, error.remedy) from None


def _must_be_there(source: Path) -> None:
    from deniable.cli.shell_accounts import must_be_there  # imported here, so that --help stays fast

    must_be_there(source)


def _named(source: Path, table: str | None) -> dict[str, object]:
    """What a session reads, as {name of the table: file, or table of a database}."""
    from deniable.cli.shell_accounts import is_database, resolved_source
    from deniable.tables.source_files import plain_name, table_name

    source = resolved_source(source)
    if not is_database(source):
        if table is not None:
            raise InvalidParameter(
                "--table", table, "is for a database with several tables", f"leave it out: {source.name} is one table"
            )
        return {table_name(source): source}
    from deniable.queries.engines.engine import DatabaseTable

    if table is None:
        from deniable.queries.engines.duckdb import tables_of_database

        tables = tables_of_database(source)
        if len(tables) != 1:
            rule = f"must be one of the tables of {source.name}: {', '.join(tables) or 'it has none'}"
            raise InvalidParameter("--table", NOTHING, rule, "say which one: --table visits")
        table = tables[0]
    return {plain_name(table): DatabaseTable(source, table)}


def _declared(given: dict[str, Any]) -> "dict[str, Domain] | None":
    """The kind of the column whose bounds are bought, from --kind; None if --kind was not given."""
    from deniable.tables.kinds import BOUNDED, Domain, Kind

    if given["kind"] is None:
        return None
    if given["schema"] is not None:
        raise InvalidParameter("--kind", given["kind"], "is declared in the schema", "leave out --kind or --schema")
    found = next((each for each in Kind if each in BOUNDED and each.value == given["kind"]), None)
    if found is None:
        raise InvalidParameter("--kind", given["kind"], "must be integer, real, date or timestamp")
    return {given["column"]: Domain(found)}


def _account(given: dict[str, Any]) -> Path:
    """The file of the ledger."""
    from deniable.cli.shell_accounts import account_of, is_database, resolved_source

    table = (
        next(iter(_named(given["source"], given["table"]))) if is_database(resolved_source(given["source"])) else None
    )
    return account_of(given, table)


def _cost(given: dict[str, Any]) -> dict[str, Any]:
    """The cost and the confidence, as keyword arguments of a session. InvalidParameter unless exactly one is given."""
    asked = {name: given[name] for name in _COSTS if given[name] is not None}
    # A question may name its cost itself, as in BigQuery: OPTIONS (epsilon = 0.1).
    if len(asked) > 1 or (not asked and "options" not in given["question"].lower()):
        found = ", ".join(f"--{name}" for name in asked) or "none"
        listed = ", ".join(f"--{name}" for name in _COSTS)
        rule = f"give exactly one of them, to say what to spend; given: {found}"
        raise InvalidParameter(listed, NOTHING, rule, "try --epsilon 0.1")
    return asked | {"confidence": given["confidence"]}


def check_fits(price: Any) -> None:
    """Raise BudgetExceeded if a new account could not pay this price.

    Checked before the account exists: opening it would fix the budget that is too small.
    """
    from deniable.queries.plan.answer_notes import cost_in_words, rest_in_words

    price.to_dict()  # computes the noise; raises if that needs a δ
    if not price.fits:
        asked, left = cost_in_words(price.cost, price.budget), rest_in_words(price.left, price.budget)
        raise BudgetExceeded(asked, left, "no account was opened; lower the cost, or give a larger --budget")


def _before_there_is_an_account(given: dict[str, Any], *, must_fit: bool = False) -> None:
    """If the file has no account yet, raise errors of the question or its cost before an account is opened.

    A question by unlisted keys needs a δ. If --delta was not given, this sets `FOR_KEYS` and prints a note.
    """
    if _account(given).exists():
        return
    check = check_fits if must_fit else lambda price: price.to_dict()
    try:
        with _opened(given, reads=False) as session, _in_options(given):
            check(session.price(given["question"], **_cost(given)))
        return
    except QuestionRefused as refused:
        if refused.code != "key" or given["budget"] is None or given["delta"] is not None:
            raise
    given["delta"] = FOR_KEYS
    with _opened(given, reads=False) as session, _in_options(given):
        check(session.price(given["question"], **_cost(given)))
    print(
        f"keys that no schema lists need a δ, and none was given: the budget gets --delta {FOR_KEYS}", file=sys.stderr
    )


def _not_without_its_schema(given: dict[str, Any]) -> None:
    """Refuse a question by unlisted keys without --schema if the previous question was asked with a schema.

    The schema was probably forgotten. The answer would show few keys or none, at the same cost.
    """
    from deniable.ledger import Ledger, State
    from deniable.queries.answer.grouping_sets import sets_of

    path, question = _account(given), given["question"]
    if given["schema"] is not None or not path.exists():
        return
    with _opened(given, reads=False) as session, _in_options(given):
        if sets_of(question, session.tables) is not None or session.price(question, **_cost(given)).threshold is None:
            return
        with Ledger.inspect(path) as ledger:
            sealed = [each for each in ledger.entries() if each.state is State.SEALED]
        if not sealed or _hash_for(session, sealed[-1].description) in {None, sealed[-1].question}:
            return
    rule = (
        "the question before was asked with a schema; without it these keys are not listed, and few or none are shown"
    )
    raise InvalidParameter("--schema", NOTHING, rule, "name the schema again; nothing was charged")


def _hash_for(session: "Session", text: str) -> str | None:
    """The hash that a question has under the tables of this session; "" if the session refuses it, None if the text is
    not a question.
    """
    try:
        return session.price(text, epsilon=1).plan.question.hash
    except QuestionRefused as refused:
        return None if refused.code in {"syntax", "statement", "too_long"} else ""
    except DeniableError:
        return None


@contextlib.contextmanager
def _in_options(given: dict[str, Any]) -> Iterator[None]:
    """Add a note to a refusal that names the option --schema: its remedy only mentions a schema."""
    try:
        yield
    except QuestionRefused as refused:
        if given["schema"] is None and "in the schema" in refused.rewrite:
            how = "here: `deniable schema` proposes one to fill in; name it with --schema"
            again = ", also if an earlier question did: the ledger does not keep it" if _account(given).exists() else ""
            refused.add_note(how + again)
        raise


def _unit(given: dict[str, Any], known: "Unit | None") -> "Unit | None":
    """Who is protected: from --unit and --rows, or --each-row, or `known`, the unit of the account.

    None if the schema declares the unit. Raises InvalidParameter if neither options, account nor schema declare one, or
    if the options contradict the account.
    """
    from deniable.units import Unit

    column, rows, most = given["unit"], given["rows"], given.get("rows_option", "--rows")
    if given["each_row"]:
        if column is not None or rows is not None:
            raise InvalidParameter(
                "--each-row", NOTHING, "declares that nobody has several rows", f"leave --unit and {most} out"
            )
        return _same(given, Unit.row(), known)
    if column is not None and rows is not None:
        try:
            return _same(given, Unit.person(column, rows=rows), known)
        except InvalidParameter as error:
            if error.parameter != "rows":
                raise
            raise InvalidParameter(most, rows, error.rule, error.remedy) from None
    if column is not None or rows is not None:
        given_one = "--unit" if rows is None else most
        rule = f"must be given together with {most if rows is None else '--unit'}"
        raise InvalidParameter(given_one, NOTHING, rule, f"write --unit patient_id {most} 20")
    if given["schema"] is not None:
        return _left_open(given, known)
    if known is not None:
        return known
    remedy = f"write --unit patient_id {most} 20, or --each-row if nobody has two rows, or name a --schema that says it"
    raise InvalidParameter("--unit", NOTHING, "must be given: it says who is protected", remedy)


def _left_open(given: dict[str, Any], known: "Unit | None") -> "Unit | None":
    """The unit of the account if the schema declares no unit; else None, and the ledger refuses a different unit."""
    from deniable.tables.schema import read_schema

    if known is None:
        return None
    table = read_schema(given["schema"], unit=known).get(next(iter(_named(given["source"], given["table"]))))
    return known if table is not None and table.unit == known else None


def _same(given: dict[str, Any], asked: "Unit", known: "Unit | None") -> "Unit":
    """The unit of the options, unless the account protects another."""
    if known in {None, asked}:
        return asked
    assert known is not None
    most = given.get("rows_option", "--rows")
    options = "--each-row" if known.column is None else f"--unit {known.column} {most} {known.rows}"
    name = "--each-row" if given["each_row"] else "--unit"
    whose = "each row" if known.column is None else f"the people of {known.column!r}"
    rule = f"the account in {_account(given).name} was opened to protect {whose} ({options})"
    raise InvalidParameter(name, NOTHING, rule, "leave it out: whom an account protects is fixed once")


def budget_of(
    budget: str | float, delta: str | float | None, per: str | None = None, periods: int | None = None
) -> "Budget | Renewal":
    """The budget of --budget and --delta, or of --per and --periods as well. Errors name these options: the ε of a
    budget is not --epsilon.
    """
    from deniable.ledger import Budget, Renewal

    if (per is None) != (periods is None):
        raise InvalidParameter("--per, --periods", NOTHING, "go together", "write --per week --periods 52")
    try:
        each = Budget.pure(epsilon=budget) if delta is None else Budget(epsilon=budget, delta=delta)
        if per is None or periods is None:
            return each
        made = Renewal(each, per=per, periods=periods)
        made.lifetime  # noqa: B018  # raises if the δ of all periods together is 1 or more
        return made
    except InvalidParameter as error:
        if error.parameter in {"per", "periods"}:
            raise InvalidParameter(f"--{error.parameter}", error.asked, error.rule, error.remedy) from None
        if error.parameter == "epsilon":
            raise InvalidParameter("--budget", budget, error.rule, error.remedy) from None
        remedy = error.remedy and "without any δ leave --delta out"
        raise InvalidParameter("--delta", delta, error.rule, remedy) from None


def _budget(given: dict[str, Any], known: "Budget | Renewal | None") -> "Budget | Renewal | None":
    """The budget of a new account; None if there is one already, with the budget `known`."""
    from deniable.ledger import Budget

    per, periods = given.get("per"), given.get("periods")
    budget, delta, kept = given["budget"], given["delta"], _account(given).name
    if budget is None:
        if delta is not None:
            raise InvalidParameter("--delta", delta, "is given with --budget only", "give --budget as well")
        if per is not None or periods is not None:
            raise InvalidParameter("--per", per, "is given with --budget only", "give --budget as well")
        if known is None:
            remedy = "say once how much may ever be spent: --budget 1.0 --delta 1e-6"
            raise InvalidParameter("--budget", NOTHING, f"must be given: {kept} has no account yet", remedy)
        return None
    asked = budget_of(budget, delta, per, periods)
    # --budget may be repeated without --delta: the account knows its δ.
    if known is None:
        return asked
    plain = isinstance(known, Budget) and known.epsilon_units  # None unless it is a budget of ε
    if asked == known or (delta is None and isinstance(asked, Budget) and plain == asked.limit.units):
        return None
    said = known.limit.describe_rest(known) if isinstance(known, Budget) else repr(known)
    rule = f"the account in {kept} was opened with another budget ({said})"
    raise InvalidParameter("--budget", budget, rule, "leave --budget and --delta out: a budget is fixed once")


@contextlib.contextmanager
def _opened(given: dict[str, Any], *, reads: bool) -> "Iterator[Session]":
    """A session on the file and its account. With `reads=False`, the session reads no data and opens the account
    read-only.
    """
    from deniable.ledger import Budget, Ledger, Renewal
    from deniable.queries.engines.price_engine import Unread
    from deniable.queries.session_opening import session

    budget: Budget | Renewal | None = None
    path, unit, sources = _account(given), None, _named(given["source"], given["table"])
    with contextlib.ExitStack() as stack:
        account: Path | Ledger | None = path if reads else None
        if path.exists():
            looked_at = stack.enter_context(Ledger.inspect(path, dataset=", ".join(sources)))
            budget, unit = looked_at.renewal or looked_at.budget, looked_at.unit
            if reads:
                stack.close()  # the session opens it again, for writing
            else:
                account = looked_at
        limit, whose = _budget(given, budget), _unit(given, unit)
        about = {"unit": whose, "budget": limit, "schema": given.get("declared") or given["schema"]}
        about["version"] = given.get("version") if reads else None
        engine = "duckdb" if reads else Unread()
        if reads and limit is not None:  # a new budget; a price has notes about it
            if isinstance(limit, Renewal):
                print(f"deniable: {limit}", file=sys.stderr)
            for weakness in limit.weaknesses() if isinstance(limit, Budget) else ():
                print(f"deniable: the budget's {weakness}", file=sys.stderr)
        yield stack.enter_context(session(sources, **about, ledger=account, engine=engine, progress=reads))


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)
