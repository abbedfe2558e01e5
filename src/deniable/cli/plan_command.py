"""`deniable plan`: the cheapest way to refresh a dashboard regularly, planned before anything is spent."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deniable.cli import plain_errors
from deniable.cli.question_commands import _opened

if TYPE_CHECKING:
    import typer


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    from deniable.cli.account_options import AccountFile, IntervalConfidence, SharedTable

    @app.command()
    def plan(
        source: Annotated[Path, typer.Argument(help="A CSV, Parquet or DuckDB file.", show_default=False)],
        question: Annotated[list[str], typer.Argument(help="Questions in SQL.", show_default=False)],
        within: Annotated[
            list[float],
            typer.Option(help="Counts and sums are within ± this; give it once, or once for each question."),
        ],
        refreshes: Annotated[int, typer.Option(help="How many times each question is answered.")] = 365,
        by: Annotated[
            str | None,
            typer.Option(help="The column that holds the day; without it, standing questions are not considered."),
        ] = None,
        delta: Annotated[str, typer.Option(help="The δ of a budget with Gaussian noise.")] = "1e-6",
        table: SharedTable = None,
        unit: Annotated[str | None, typer.Option(help="The column that identifies the person of a row.")] = None,
        rows: Annotated[
            int | None, typer.Option(help="The largest number of rows of one person; goes with --unit.")
        ] = None,
        schema: Annotated[Path | None, typer.Option(help="A .yaml, .toml or .json file.")] = None,
        ledger: AccountFile = None,
        confidence: IntervalConfidence = 0.95,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    ) -> None:
        """Show the cheapest plan for a dashboard: what to declare once, what to ask together, and the budget. Free."""
        from deniable.cli.question_commands import _account
        from deniable.queries import plan_dashboard

        given = dict(locals()) | {"each_row": False, "budget": None, "delta": None}
        with plain_errors():
            if not _account(given).exists():
                given["budget"] = "1"  # any budget: the plan computes the budget that is needed
            with _opened(given, reads=False) as session:
                near = within[0] if len(within) == 1 else within
                found = plan_dashboard(
                    session, question, within=near, refreshes=refreshes, by=by, delta=delta, confidence=confidence
                )
                print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else found)
