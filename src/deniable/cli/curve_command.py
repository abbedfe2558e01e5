"""`deniable curve`: what a curve promises, in numbers that are rounded to the safe side."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deniable.cli import plain_errors, print_json
from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    import typer

    from deniable.curves import Curve


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    @app.command()
    def curve(
        expression: Annotated[str, typer.Argument(help='Such as "gaussian(sigma=50)**1000 * laplace(scale=4)".')],
        delta: Annotated[float | None, typer.Option(help="Ask for ε at this δ.")] = None,
        epsilon: Annotated[float | None, typer.Option(help="Ask for δ at this ε.")] = None,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Show what a curve promises: ε or δ with certified bounds, μ, and what an attacker can do."""
        with plain_errors():
            show_curve(expression, delta, epsilon, plot, as_json)


def show_curve(expression: str, delta: float | None, epsilon: float | None, plot: Path | None, as_json: bool) -> None:
    """Print ε at `delta`, or δ at `epsilon`; draw the curve into the file `plot` if one is named."""
    from deniable.curves import parse

    if (delta is None) == (epsilon is None):
        given = "neither was given" if delta is None else "both were given"
        raise InvalidParameter("--delta, --epsilon", NOTHING, f"give exactly one of them; {given}", "try --delta 1e-6")
    if epsilon is not None and epsilon < 0:
        raise InvalidParameter("--epsilon", epsilon, "must be 0 or more", "try --epsilon 1")
    curve = parse(expression)
    if plot is not None:
        from deniable import plots

        plots.render(plots.compare(curve, delta=delta), plot)
    if as_json:
        print_json(reading(curve, delta, epsilon) | {"curve": curve.to_dict()})
    else:
        print_table(curve, delta, epsilon)
    if plot is not None:
        print(f"Saved {plot}", file=sys.stderr)


def reading(curve: "Curve", delta: float | None, epsilon: float | None) -> dict[str, Any]:
    """The numbers of one curve. `low` and `high` are certified bounds; single numbers are rounded to the safe side."""
    answer: dict[str, Any] = {"expression": curve.expression()}
    if delta is not None:
        low, high = curve.epsilon_bounds(delta=delta)
        answer |= {"delta": delta, "epsilon": high, "epsilon_bounds": {"low": low, "high": high}}
    else:
        low, high = curve.delta_bounds(epsilon=epsilon)
        answer |= {"epsilon": epsilon, "delta": high, "delta_bounds": {"low": low, "high": high}}
    answer["mu"] = curve.gdp()
    if delta:
        answer["mu_but_for_delta"] = curve.gdp(delta=delta)
    answer["equal_error_rate"] = curve.equal_error_rate()
    answer["advantage"] = curve.advantage()
    answer["guess"] = {"prior": 0.5, "right_at_most": curve.guess(prior=0.5)}
    return answer


def print_table(curve: "Curve", delta: float | None, epsilon: float | None) -> None:
    """The same numbers as a table, each with its meaning in words."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from deniable.cli.curve_tour import sentence
    from deniable.curves import curve_display

    facts = curve_display.facts(curve, epsilon=epsilon) if delta is None else curve_display.facts(curve, delta=delta)
    table = Table.grid(padding=(0, 3, 0, 0))
    # A narrow terminal wraps the meanings, never the numbers.
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        table.add_row(fact.name, Text(fact.value, "bold cyan"), Text(fact.meaning, "dim"))
    Console().print(Text(curve_display.title(curve), "bold"), "", table, "", sentence(curve), sep="\n", highlight=False)
