"""Options that several commands have in common, with one help text each.

This module imports typer, which comes with the extra `cli`: import it inside a function `add(app)` only.
"""

from pathlib import Path
from typing import Annotated

from deniable.errors import MissingExtra

try:
    import typer
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "typer", "cli") from None

SharedTable = Annotated[str | None, typer.Option(help="The table of a DuckDB file; needed if it has several.")]
EachRow = Annotated[bool, typer.Option("--each-row", help="Instead of --unit: every row is a different person.")]
CostAsMu = Annotated[str | None, typer.Option(help="The cost as μ, instead of --epsilon.")]
CostAsRho = Annotated[str | None, typer.Option(help="The cost as ρ, instead of --epsilon.")]
CostAsShare = Annotated[
    str | None, typer.Option(help="The cost as a share of the remaining budget (of its μ², pure ε or ρ), from 0 to 1.")
]
WholeBudget = Annotated[str | None, typer.Option(help="ε of the whole budget; needed once, for a new ledger.")]
AccountFile = Annotated[Path | None, typer.Option(help="The file of the account. Default: FILE.ledger.")]
IntervalConfidence = Annotated[float, typer.Option(help="Confidence level of the noise intervals.")]
