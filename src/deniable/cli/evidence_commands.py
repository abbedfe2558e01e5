"""`deniable attack` and `deniable audit`: what privacy prevents, and what a mechanism really leaks."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deniable.cli import plain_errors, print_json

if TYPE_CHECKING:
    import typer


def add(app: "typer.Typer") -> None:
    """Add both commands."""
    import typer

    @app.command()
    def attack(
        name: Annotated[
            str | None,
            typer.Argument(help="The attack, such as reconstruction; without a name, all attacks are listed."),
        ] = None,
        levels: Annotated[list[float] | None, typer.Argument(hidden=True, metavar="")] = None,
        epsilon: Annotated[
            list[float] | None, typer.Option(help="One value or several. Default: --epsilon 0.1 1 10.")
        ] = None,
        delta: Annotated[
            float | None, typer.Option(help="Also try Gaussian noise with this δ, on counts and answers.")
        ] = None,
        trials: Annotated[
            int | None,
            typer.Option(
                help="Rounds of each run. Default: the attack's own number, mostly 10,000.",
                parser=_whole,
                metavar="INTEGER",
            ),
        ] = None,
        confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Attack a made-up dataset, without privacy and behind mechanisms, beside the proven cap on success."""
        from deniable.attacks.attack_story import attack_command

        # An option takes one number; typer passes the numbers that follow it as arguments.
        asked = [*(epsilon or []), *(levels or [])]
        with plain_errors():
            record = attack_command(
                name,
                epsilon=asked,
                delta=delta,
                trials=trials,
                confidence=confidence,
                plot=plot,
                as_json=as_json,
            )
            if record is not None:
                print_json(record)
            if plot is not None and name is not None:
                print(f"Saved {plot}", file=sys.stderr)

    @app.command()
    def audit(
        target: Annotated[str | None, typer.Argument(help="module:function, called once for every trial.")] = None,
        neighbours: Annotated[
            tuple[str, str] | None,
            typer.Option(help="The inputs of two neighbours, as Python literals.", callback=_two_values),
        ] = None,
        claim: Annotated[
            str | None,
            typer.Option(help='What is promised, such as "laplace(scale=1)". Default: the curve of the target.'),
        ] = None,
        zoo: Annotated[bool, typer.Option("--zoo", help="Audit the zoo, a collection of broken mechanisms.")] = False,
        trials: Annotated[
            int, typer.Option(help="Calls for each neighbour.", parser=_whole, metavar="INTEGER")
        ] = 100_000,
        confidence: Annotated[
            float, typer.Option(help="Probability that all statements of the report are right.")
        ] = 0.999,
        delta: Annotated[float, typer.Option(help="The δ at which ε is measured.")] = 0.0,
        seconds: Annotated[
            float, typer.Option(help="Time limit for all calls together; the search for an event comes after them.")
        ] = 600.0,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Measure what a mechanism really leaks, and say whether that refutes its claim."""
        from deniable.audit import audit_commands

        with plain_errors():
            if zoo:
                code = audit_commands.zoo_command(
                    trials=trials,
                    confidence=confidence,
                    as_json=as_json,
                    target=target,
                    neighbours=neighbours,
                    claim=claim,
                    plot=plot,
                )
            else:
                code = audit_commands.audit_command(
                    target,
                    neighbours=neighbours,
                    claim=claim,
                    trials=trials,
                    confidence=confidence,
                    delta=delta,
                    seconds=seconds,
                    plot=plot,
                    as_json=as_json,
                )
            raise typer.Exit(code)


def _whole(text: str | int) -> int:
    """A whole number, also one that is written as 1e5."""
    import typer

    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError, OverflowError):
        if float(text) == int(float(text)):
            return int(float(text))
    raise typer.BadParameter(f"{text!r} is not a whole number, such as 100000 or 1e5")


def _two_values(given: tuple[str, str] | None) -> tuple[str, str] | None:
    """Refuse an option in the place of a value: `--neighbours 0 --zoo`."""
    import typer

    if given is not None and any(value.startswith("--") for value in given):
        raise typer.BadParameter("it takes two values, such as --neighbours 0 1")
    return given
