"""`deniable survey`: randomize answers where they are, and estimate from the reports."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deniable.cli import plain_errors
from deniable.errors import InvalidParameter

if TYPE_CHECKING:
    import typer


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    @app.command()
    def survey(
        answers: Annotated[Path | None, typer.Argument(help="A CSV file of answers, one row per person.")] = None,
        question: Annotated[str | None, typer.Option(help="The column of the answers.")] = None,
        epsilon: Annotated[float | None, typer.Option(help="The ε of one person's report.")] = None,
        categories: Annotated[
            str | None,
            typer.Option(
                help="All possible answers, separated by commas; an answer that contains a comma is quoted, and an "
                "empty one stands for a missing answer. Default: yes or no."
            ),
        ] = None,
        low: Annotated[float | None, typer.Option(help="For numbers: the smallest possible answer.")] = None,
        high: Annotated[float | None, typer.Option(help="For numbers: the largest possible answer.")] = None,
        out: Annotated[Path | None, typer.Option(help="The new file for the randomized reports.")] = None,
        estimate: Annotated[
            Path | None, typer.Option(help="Estimate shares or means from this file of reports.")
        ] = None,
        confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Run a survey without a trusted collector: randomize the answers, or estimate from the reports."""
        from deniable.local.surveys import survey_command

        with plain_errors():
            survey_command(
                answers,
                question=question,
                epsilon=epsilon,
                categories=None if categories is None else listed(categories),
                low=low,
                high=high,
                out=out,
                estimate=estimate,
                confidence=confidence,
                as_json=as_json,
            )


def listed(categories: str) -> list[str]:
    """The answers that --categories lists, read like one line of CSV.

    >>> listed('tea, "coffee, black"')
    ['tea', 'coffee, black']
    """
    from deniable.csv_structure import fields_of

    found = fields_of(categories, ",", spaces=True)
    if found is None:
        remedy = "write it as in --categories 'tea, \"coffee, black\"'"
        raise InvalidParameter("--categories", categories, "must be one line in which every quote is closed", remedy)
    return found
