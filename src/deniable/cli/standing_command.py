"""`deniable standing`: questions to a file that are paid once and answered for each day, under its account."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.cli import plain_errors
from deniable.cli.question_commands import _account, _console, _cost, _must_be_there, _opened, check_fits
from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    import typer

    from deniable.queries.session import Session
    from deniable.queries.standing_questions import Standing


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    from deniable.cli.account_options import (
        AccountFile,
        CostAsMu,
        CostAsRho,
        CostAsShare,
        IntervalConfidence,
        SharedTable,
        WholeBudget,
    )

    @app.command()
    def standing(
        source: Annotated[Path, typer.Argument(help="A CSV, Parquet or DuckDB file.", show_default=False)],
        name: Annotated[
            str | None, typer.Argument(help="The name of the set. Without it: list all sets.", show_default=False)
        ] = None,
        question: Annotated[
            list[str] | None,
            typer.Argument(help="Questions in SQL, to declare a new set.", show_default=False, metavar="QUESTION..."),
        ] = None,
        by: Annotated[str | None, typer.Option(help="The column of dates or whole numbers that holds the day.")] = None,
        day: Annotated[
            str | None, typer.Option(help="Answer the set for this day; if it was answered, show it again.")
        ] = None,
        totals: Annotated[
            int | None, typer.Option(help="Running totals: the most days that are answered, such as 365.")
        ] = None,
        table: SharedTable = None,
        unit: Annotated[str | None, typer.Option(help="The column that identifies the person of a row.")] = None,
        rows: Annotated[
            int | None, typer.Option(help="The largest number of rows of one person over all days; goes with --unit.")
        ] = None,
        epsilon: Annotated[str | None, typer.Option(help="The cost of all questions and days, as ε.")] = None,
        mu: CostAsMu = None,
        rho: CostAsRho = None,
        share: CostAsShare = None,
        budget: WholeBudget = None,
        delta: Annotated[
            str | None, typer.Option(help="δ of the whole budget. Default: 0, a budget of pure ε.")
        ] = None,
        schema: Annotated[Path | None, typer.Option(help="A .yaml, .toml or .json file; give it every time.")] = None,
        ledger: AccountFile = None,
        version: Annotated[
            str | None,
            typer.Option(help="A name for the data as it is now, such as a date; needed if the file changed."),
        ] = None,
        confidence: IntervalConfidence = 0.95,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    ) -> None:
        """Declare questions that are paid once and answered for each day; answer a day; or list them."""
        given = dict(locals()) | {"each_row": False, "within": None, "question": ""}
        with plain_errors():
            _must_be_there(source)
            _before_there_is_an_account(given, question or [])
            with _opened(given, reads=True) as session:
                if name is None:
                    _listed(session, as_json)
                elif question:
                    made = _declared(session, name, question, given)
                    _print_set(made, as_json)
                    if day is not None:
                        _print_day(made, day, as_json)
                elif day is not None:
                    _print_day(session.standing(name, confidence=confidence), day, as_json)
                else:
                    _print_set(session.standing(name, confidence=confidence), as_json)


def _before_there_is_an_account(given: dict[str, Any], asked: list[str]) -> None:
    """If the file has no account yet, raise errors of the questions or their cost before an account is opened."""
    if _account(given).exists():
        return
    if not asked:
        rule = f"must be given: {_account(given).name} has no account yet"
        raise InvalidParameter("QUESTION", NOTHING, rule, "declare questions first")
    with _opened(given, reads=False) as session:
        for each in asked:
            check_fits(session.price(each, **_cost(given)))


def _declared(session: "Session", name: str, asked: list[str], given: dict[str, Any]) -> "Standing":
    if given["by"] is None:
        rule = "must be given: the column that says the day of a row"
        raise InvalidParameter("--by", NOTHING, rule, "write --by day")
    return session.standing(name, asked, by=given["by"], totals=given["totals"], **_cost(given))


def _listed(session: "Session", as_json: bool) -> None:
    found = [_record(session.standing(each)) for each in session.standings()]
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    elif not found:
        print("no standing questions are declared")
    for each in [] if as_json else found:
        days = f"{len(each['days'])} answered, the last for {each['days'][0]}" if each["days"] else "no day answered"
        print(f"{each['name']}: about {each['table']} by {each['by']}; {days}")


def _record(standing: "Standing") -> dict[str, Any]:
    return {
        "name": standing.name,
        "table": standing.table,
        "by": standing.by,
        "questions": list(standing.questions),
        "totals": standing.totals,
        "days": [each if isinstance(each, int) else each.isoformat() for each in standing.days()],
        "errors": [each.errors() for each in standing.prices()],
    }


def _print_set(standing: "Standing", as_json: bool) -> None:
    if as_json:
        print(json.dumps(_record(standing), ensure_ascii=False, indent=2))
        return
    from deniable.ledger import Cost

    session = standing.session
    paid = Cost(standing.cost.units * len(standing.questions)).describe(session.budget)
    print(repr(standing)[1:-1])
    print(f"paid     {paid}, once for all days")
    for text, price in zip(standing.questions, standing.prices(), strict=True):
        near = ", ".join(f"{name} ± {error:.3g}" for name, error in price.errors().items() if error is not None)
        last = " for the last total" if standing.totals else " on each day"
        print(f"error    {near}{last}, at {100 * price.confidence:g} %: {text}" if near else f"question {text}")
    days = [str(each) for each in standing.days()]
    print(f"answered {', '.join(days[:10])}{' ...' if len(days) > 10 else ''}" if days else "answered no day yet")
    print(f"left     {session.ledger.remaining.describe_rest(session.budget)}")


def _print_day(standing: "Standing", day: str, as_json: bool) -> None:
    answers = standing.reveal(read_day(day))
    if as_json:
        print(json.dumps([each.to_dict() for each in answers], ensure_ascii=False, indent=2, allow_nan=False))
        return
    console = _console()
    for text, answer in zip(standing.questions, answers, strict=True):
        console.print(f"{standing.name}, {day}: {text}", markup=False)
        console.print(answer)


def read_day(text: str) -> str | int:
    """A day as it was typed: a whole number, or a date as text.

    >>> read_day("12"), read_day("2026-11-18")
    (12, '2026-11-18')
    """
    return int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() else text
