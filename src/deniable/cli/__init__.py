"""The command `deniable`: each subcommand is a few lines over the library.

    deniable ask visits.csv "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward" --unit patient_id --rows 20 ...
    deniable synthesize visits.csv --columns ward,age --epsilon 0.5 --rows 1000 --out synthetic.parquet
    deniable curve "gaussian(sigma=50)**1000 * laplace(scale=4)" --delta 1e-6
    deniable survey answers.csv --question smokes --epsilon 1 --out reports.csv
    deniable attack reconstruction --epsilon 0.1 1 10
    deniable audit mylibrary:noisy_count --neighbours 0 1 --claim "laplace(scale=1)"
    deniable serve --demo
    deniable add visits.csv --schema visits.yaml --budget 1 --delta 1e-6 --url https://...
    deniable verify ledger.jsonl --key owner.pub
    deniable rotate owned.ledger --key owner.key --to new.key
    deniable moved visits.csv.ledger --reason "a new disk"
    deniable demo --out demo-output

Exit codes: 0 done · 1 could not be done (a missing extra, a file that cannot be written, a zoo with misses) · 2 asked
wrongly · 3 an audit refuted the claim, or a ledger was changed.
Importing this module loads neither typer nor rich; they come with the extra `cli` when a command runs.
"""

import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    LedgerMismatch,
    MissingExtra,
    OutsideTheorem,
    QuestionRefused,
    UnreadableRecord,
)

if TYPE_CHECKING:
    import typer

    from deniable.curves import Curve

ASKED_WRONGLY = InvalidParameter, InvalidOperation, OutsideTheorem, QuestionRefused, LedgerMismatch, UnreadableRecord


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without ε still gets numbers
    if sys.stdout is None:
        # Started with >&-. An answer would be charged and lost, and files would be opened in the place of the output.
        said = "the standard output is closed, so nobody would be told; nothing was done. "
        print(f"deniable: {said}Write > /dev/null where nobody shall read it", file=sys.stderr)
        raise SystemExit(1)
    with plain_errors():
        build()(prog_name="deniable")  # also under python -m, whose name no shell can complete


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """What deniable refuses is said in one message on stderr, without a traceback."""
    try:
        yield
    except DeniableError as error:
        print("\n".join([f"deniable: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ASKED_WRONGLY) else 1) from None
    except BrokenPipeError:
        # The reader has seen enough (`... --json | head`). What it did not read may have been that a claim is refuted,
        # so the exit code must not be 0. Shells report 141 = 128 + SIGPIPE for a program that a closed pipe ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except OSError as error:
        print(f"deniable: {_in_words(error)}", file=sys.stderr)
        raise SystemExit(1) from None


WHAT_HELPS: Final = {
    errno.ENOENT: "check the path: the file, or a folder on the way to it, is missing",
    errno.ENOTDIR: "check the path: a part of it is a file, not a folder",
    errno.EISDIR: "name a file, not a folder",
    errno.EACCES: "choose a file or folder that you may read and write, or change its permissions",
    errno.EPERM: "choose a file or folder that you may read and write, or change its permissions",
    errno.EROFS: "choose a folder on a disk that can be written",
    errno.ENOSPC: "free some space on the disk, then run it again",
}


def _in_words(error: OSError) -> str:
    """What the operating system refused, where, and what to do; it names no file where an output is full."""
    said = str(error.strerror or error)
    if error.filename:
        said += f": {os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename}"
    helps = WHAT_HELPS.get(error.errno or 0)
    return said if helps is None else f"{said}; {helps}"


def build() -> "typer.Typer":
    """The commands."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        raise MissingExtra(error.name or "typer", "cli") from None

    from deniable.cli.help_layout import Commands

    app = Commands()

    def print_version(wanted: bool) -> None:
        if wanted:
            from deniable import __version__

            print(__version__)
            raise typer.Exit

    @app.callback()
    def deniable(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=print_version)
        ] = False,
    ) -> None:
        """Differential privacy as one object: what is promised, and what it means."""

    @app.command()
    def curve(
        expression: Annotated[str, typer.Argument(help='Such as "gaussian(sigma=50)**1000 * laplace(scale=4)".')],
        delta: Annotated[float | None, typer.Option(help="Ask for ε at this δ.")] = None,
        epsilon: Annotated[float | None, typer.Option(help="Ask for δ at this ε.")] = None,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Say what a curve promises: ε or δ with certified bounds, μ, and what an attacker can do."""
        with plain_errors():
            show_curve(expression, delta, epsilon, plot, as_json)

    @app.command()
    def survey(
        answers: Annotated[Path | None, typer.Argument(help="A CSV file of answers, one row a person.")] = None,
        question: Annotated[str | None, typer.Option(help="The column of the answers.")] = None,
        epsilon: Annotated[float | None, typer.Option(help="What one report may reveal.")] = None,
        categories: Annotated[
            str | None,
            typer.Option(
                help="All possible answers, with commas between them and quotes around one that has a comma itself; "
                "an empty one stands for a missing answer. Without it: yes or no."
            ),
        ] = None,
        low: Annotated[float | None, typer.Option(help="For numbers: the smallest possible answer.")] = None,
        high: Annotated[float | None, typer.Option(help="For numbers: the largest possible answer.")] = None,
        out: Annotated[Path | None, typer.Option(help="Where the randomized reports go: a new file.")] = None,
        estimate: Annotated[Path | None, typer.Option(help="Estimate from this file of reports instead.")] = None,
        confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Run a survey in which nobody holds the answers: randomize them, or estimate from the reports."""
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

    def whole(text: str | int) -> int:
        with contextlib.suppress(ValueError):
            return int(text)
        with contextlib.suppress(ValueError, OverflowError):
            if float(text) == int(float(text)):  # 1e5
                return int(float(text))
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 100000 or 1e5")

    def two_values(given: tuple[str, str] | None) -> tuple[str, str] | None:
        if given is not None and any(value.startswith("--") for value in given):
            raise typer.BadParameter("it takes two values, such as --neighbours 0 1")
        return given

    @app.command()
    def attack(
        name: Annotated[
            str | None, typer.Argument(help="Such as reconstruction; without a name, all are listed.")
        ] = None,
        levels: Annotated[list[float] | None, typer.Argument(hidden=True, metavar="")] = None,
        epsilon: Annotated[
            list[float] | None, typer.Option(help="One or more; without it: --epsilon 0.1 1 10.")
        ] = None,
        delta: Annotated[
            float | None, typer.Option(help="Also try Gaussian noise with this δ, on counts and answers.")
        ] = None,
        trials: Annotated[
            int | None,
            typer.Option(
                help="Rounds of each run; without it, the attack's own number, mostly 10,000.",
                parser=whole,
                metavar="INTEGER",
            ),
        ] = None,
        confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Attack a made-up world: without privacy it works, behind a mechanism it meets its cap."""
        from deniable.attacks.attack_story import attack_command

        # An option takes one number; those that follow it arrive as arguments.
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
                print(json.dumps(portable(record), ensure_ascii=False, indent=2, allow_nan=False))
            if plot is not None and name is not None:
                print(f"Saved {plot}", file=sys.stderr)

    @app.command()
    def audit(
        target: Annotated[str | None, typer.Argument(help="module:function, asked once for every trial.")] = None,
        neighbours: Annotated[
            tuple[str, str] | None, typer.Option(help="Two values, as Python writes them.", callback=two_values)
        ] = None,
        claim: Annotated[
            str | None, typer.Option(help='Such as "laplace(scale=1)"; without it, its own curve.')
        ] = None,
        zoo: Annotated[bool, typer.Option("--zoo", help="Look at the zoo of known mistakes instead.")] = False,
        trials: Annotated[
            int, typer.Option(help="Calls for each neighbour.", parser=whole, metavar="INTEGER")
        ] = 100_000,
        confidence: Annotated[float, typer.Option(help="That everything said is right.")] = 0.999,
        delta: Annotated[float, typer.Option(help="The δ at which ε is measured.")] = 0.0,
        seconds: Annotated[
            float, typer.Option(help="Time for all calls together; the search comes after them.")
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
                raise typer.Exit(code)
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

    @app.command()
    def demo(
        out: Annotated[Path, typer.Option(help="The folder for the pictures; made if it is not there.")],
    ) -> None:
        """A guided tour: questions to a real table under a budget, then curves, with pictures."""
        from deniable.cli.demo_command import demo as shown

        with plain_errors():
            shown(out)

    from deniable.cli import add_command, ledger_commands, question_commands, serve_command, synthesize_command

    question_commands.add(app)
    synthesize_command.add(app)
    add_command.add(app)
    ledger_commands.add(app)
    serve_command.add(app)

    return app


# -- deniable curve --------------------------------------------------------------------------------------------------


def listed(categories: str) -> list[str]:
    """The answers of --categories."""
    from deniable.csv_structure import fields_of

    found = fields_of(categories, ",", spaces=True)
    if found is None:
        remedy = "write it as in --categories 'tea, \"coffee, black\"'"
        raise InvalidParameter("--categories", categories, "must be one line in which every quote is closed", remedy)
    return found


def show_curve(expression: str, delta: float | None, epsilon: float | None, plot: Path | None, as_json: bool) -> None:
    from deniable.curves import parse

    if (delta is None) == (epsilon is None):
        said = "neither was given" if delta is None else "both were given"
        raise InvalidParameter("--delta, --epsilon", NOTHING, f"give exactly one of them; {said}", "try --delta 1e-6")
    if epsilon is not None and epsilon < 0:
        raise InvalidParameter("--epsilon", epsilon, "must be 0 or more", "try --epsilon 1")
    curve = parse(expression)
    if plot is not None:
        from deniable import plots

        plots.render(plots.compare(curve, delta=delta), plot)
    if as_json:
        answer = reading(curve, delta, epsilon) | {"curve": curve.to_dict()}
        print(json.dumps(portable(answer), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        print_table(curve, delta, epsilon)
    if plot is not None:
        print(f"Saved {plot}", file=sys.stderr)


def reading(curve: "Curve", delta: float | None, epsilon: float | None) -> dict[str, Any]:
    """The numbers of one curve; `low` and `high` are certified, single numbers are on the safe side."""
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


def portable(value: Any) -> Any:
    """JSON knows no infinity: it is written as "Infinity", which is no number by accident (null would compare as 0)."""
    if isinstance(value, dict):
        return {key: portable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [portable(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def print_table(curve: "Curve", delta: float | None, epsilon: float | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from deniable.cli.curve_tour import sentence
    from deniable.curves import curve_display

    facts = curve_display.facts(curve, epsilon=epsilon) if delta is None else curve_display.facts(curve, delta=delta)
    table = Table.grid(padding=(0, 3, 0, 0))
    # In a narrow terminal the meanings are wrapped, never the numbers.
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        table.add_row(fact.name, Text(fact.value, "bold cyan"), Text(fact.meaning, "dim"))
    Console().print(Text(curve_display.title(curve), "bold"), "", table, "", sentence(curve), sep="\n", highlight=False)
