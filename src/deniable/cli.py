"""The command `deniable`: each subcommand is a few lines over the library.

    deniable curve "gaussian(sigma=50)**1000 * laplace(scale=4)" --delta 1e-6
    deniable survey answers.csv --question smokes --epsilon 1 --out reports.csv
    deniable attack reconstruction --epsilon 0.1 1 10
    deniable audit mylibrary:noisy_count --neighbours 0 1 --claim "laplace(scale=1)"
    deniable demo --out demo-output

Exit codes: 0 done · 1 could not be done (a missing extra, a file that cannot be written) · 2 asked wrongly · 3 an audit
refuted the claim.
Importing this module loads neither typer nor rich; they come with the extra `cli` when a command runs.
"""

import contextlib
import csv
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from deniable.errors import NOTHING, DeniableError, InvalidOperation, InvalidParameter, MissingExtra, OutsideTheorem

if TYPE_CHECKING:
    import typer

    from deniable.curves import Curve
    from deniable.plots import Figure

ASKED_WRONGLY = InvalidParameter, InvalidOperation, OutsideTheorem


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without ε still gets numbers
    with plain_errors():
        build()()


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """What deniable refuses is said in one message on stderr, without a traceback."""
    try:
        yield
    except DeniableError as error:
        print(f"deniable: {error}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ASKED_WRONGLY) else 1) from None
    except BrokenPipeError:
        # The reader has seen enough (`... --json | head`): that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        print(f"deniable: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        raise SystemExit(1) from None


def build() -> "typer.Typer":
    """The commands."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        raise MissingExtra(error.name or "typer", "cli") from None

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

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

        listed = None if categories is None else next(csv.reader([categories], skipinitialspace=True), [])
        with plain_errors():
            survey_command(
                answers,
                question=question,
                epsilon=epsilon,
                categories=listed,
                low=low,
                high=high,
                out=out,
                estimate=estimate,
                confidence=confidence,
                as_json=as_json,
            )

    @app.command()
    def attack(
        name: Annotated[str, typer.Argument(help="Such as reconstruction; a wrong name lists them all.")],
        levels: Annotated[list[float] | None, typer.Argument(hidden=True)] = None,
        epsilon: Annotated[list[float] | None, typer.Option(help="One or more: --epsilon 0.1 1 10.")] = None,
        delta: Annotated[float | None, typer.Option(help="Also try Gaussian noise with this δ.")] = None,
        trials: Annotated[int | None, typer.Option(help="Rounds of each run.")] = None,
        confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Attack a made-up world: without privacy it works, behind a mechanism it meets its cap."""
        from deniable.attacks.story import attack_command

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
            if plot is not None:
                print(f"Saved {plot}", file=sys.stderr)

    @app.command()
    def audit(
        target: Annotated[str | None, typer.Argument(help="module:function, asked once for every trial.")] = None,
        neighbours: Annotated[tuple[str, str] | None, typer.Option(help="Two values, as Python writes them.")] = None,
        claim: Annotated[
            str | None, typer.Option(help='Such as "laplace(scale=1)"; without it, its own curve.')
        ] = None,
        zoo: Annotated[bool, typer.Option("--zoo", help="Look at the zoo of known mistakes instead.")] = False,
        trials: Annotated[int, typer.Option(help="Calls for each neighbour.")] = 100_000,
        confidence: Annotated[float, typer.Option(help="That everything said is right.")] = 0.999,
        delta: Annotated[float, typer.Option(help="The δ at which ε is measured.")] = 0.0,
        seconds: Annotated[float, typer.Option(help="Time for all calls together.")] = 600.0,
        plot: Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Measure what a mechanism really leaks, and say whether that refutes its claim."""
        from deniable.audit import commands

        with plain_errors():
            if zoo:
                raise typer.Exit(commands.zoo_command(trials=trials, confidence=confidence, as_json=as_json))
            code = commands.audit_command(
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
        """A guided tour of curves, with pictures."""
        with plain_errors():
            tour(out)

    return app


# -- deniable curve --------------------------------------------------------------------------------------------------


def show_curve(expression: str, delta: float | None, epsilon: float | None, plot: Path | None, as_json: bool) -> None:
    from deniable.curves import parse

    if (delta is None) == (epsilon is None):
        said = "neither was given" if delta is None else "both were given"
        raise InvalidParameter("--delta, --epsilon", NOTHING, f"give exactly one of them; {said}", "try --delta 1e-6")
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

    from deniable.curves import looks

    facts = looks.facts(curve, epsilon=epsilon) if delta is None else looks.facts(curve, delta=delta)
    table = Table.grid(padding=(0, 3, 0, 0))
    # In a narrow terminal the meanings are wrapped, never the numbers.
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        table.add_row(fact.name, Text(fact.value, "bold cyan"), Text(fact.meaning, "dim"))
    Console().print(Text(looks.title(curve), "bold"), "", table, "", sentence(curve), sep="\n", highlight=False)


def sentence(curve: "Curve") -> str:
    """The promise in words that need no ε."""
    from deniable.curves.looks import percent_up

    return f"An attacker with a 50 % prior is right at most {percent_up(curve.guess(prior=0.5))} of the time."


# -- deniable demo ---------------------------------------------------------------------------------------------------


def tour(out: Path) -> None:
    """Walk through the steps, then save the pictures."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.syntax import Syntax

    from deniable import plots

    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "plots")  # at the start, not after eight steps
    console = Console(highlight=False, width=min(Console().width, 100))
    out.mkdir(parents=True, exist_ok=True)
    console.print("\n[bold]A curve is what a mechanism promises.[/] Eight short steps, then two pictures.\n")
    for number, make in enumerate(TOUR, 1):
        with console.status(f"step {number} of {len(TOUR)} ..."):
            step = make()
        code = Syntax(step.code, "python", theme="ansi_light", background_color="default", word_wrap=True)
        console.print(Rule(f"[bold]{number}  {step.title}", align="left", style="cyan"))
        console.print(Padding(code, (0, 2)), Padding(step.text, (0, 2, 1, 2)))
    for name, draw in {"curves.png": compared, "composition.png": composed}.items():
        with console.status(f"drawing {name} ..."):
            plots.render(draw(), out / name)
        console.print(f"Saved [bold]{out / name}[/]")


class Step(NamedTuple):
    """One stop of the tour: what is typed, and what there is to say about it. [[...]] marks the numbers."""

    title: str
    code: str
    words: str

    @property
    def text(self) -> str:
        """The words with their numbers in colour, for rich."""
        return self.words.replace("[", r"\[").replace(r"\[\[", "[bold cyan]").replace("]]", "[/]")


def one_release() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_down, rounded_up

    low, high = curves.gaussian(sigma=2).epsilon_bounds(delta=1e-6)
    return Step(
        "One release",
        "curve = curves.gaussian(sigma=2)\ncurve.epsilon_bounds(delta=1e-6)",
        "One answer that moves by at most 1 when a person joins or leaves, with Gaussian noise of σ = 2. "
        f"At δ = 10⁻⁶ it costs [[ε = {rounded_up(high)}]], proved from both sides: "
        f"the truth lies between {rounded_down(low, 9)} and {rounded_up(high, 9)}.",
    )


def meaning() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_down, rounded_up

    curve = curves.gaussian(sigma=2)
    return Step(
        "What it means to an attacker",
        "curve.guess(prior=0.5), curve.beta(alpha=0.05), curve.delta(epsilon=1.0)",
        f"{sentence(curve)} Allowed 5 % false alarms, they miss at least "
        f"[[{rounded_down(100 * curve.beta(alpha=0.05), 4)} %]] of those who are in the data. "
        f"And δ: apart from [[δ = {rounded_up(curve.delta(epsilon=1.0))}]] of the probability, "
        "nothing becomes more than e times (ε = 1) as likely because one person is there.",
    )


def many_releases() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_up

    thousand = curves.gaussian(sigma=50) ** 1000
    return Step(
        "A thousand releases",
        "thousand = curves.gaussian(sigma=50) ** 1000\nthousand.epsilon(delta=1e-6)",
        f"A thousand such answers, now with σ = 50: [[ε = {rounded_up(thousand.epsilon(delta=1e-6))}]] at δ = 10⁻⁶. "
        f"Gaussians compose exactly, μ = √1000 / 50 = {rounded_up(thousand.gdp())}. {sentence(thousand)}",
    )


def learning() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_down, rounded_up

    low, high = (curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000).epsilon_bounds(delta=1e-5)
    every = (curves.gaussian(sigma=1) ** 10_000).epsilon(delta=1e-5)
    return Step(
        "Learning on samples",
        "steps = curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000\nsteps.epsilon(delta=1e-5)",
        "10 000 steps of private gradient descent, each on a random 1 % of the people: "
        f"[[ε = {rounded_up(high)}]] at δ = 10⁻⁵ (and at least {rounded_down(low)}). "
        f"Were everybody in every step, it would be ε = {rounded_up(every, 4)}.",
    )


def mixing() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_up

    thousand, count = curves.gaussian(sigma=50) ** 1000, curves.laplace(scale=4)
    survey = curves.randomized_response(p=0.75)
    alone = [thousand.epsilon(delta=1e-6), count.epsilon(delta=0.0), survey.epsilon(delta=0.0)]
    return Step(
        "Different things multiply",
        "mixed = thousand * curves.laplace(scale=4) * curves.randomized_response(p=0.75)\nmixed.epsilon(delta=1e-6)",
        "The same answers, a Laplace count and a survey question, all about the same people: "
        f"[[ε = {rounded_up((thousand * count * survey).epsilon(delta=1e-6))}]] at δ = 10⁻⁶. "
        "One multiplication, whatever they are. Adding what each costs alone, "
        f"{' + '.join(rounded_up(epsilon) for epsilon in alone)}, would say {rounded_up(sum(alone))}.",
    )


def groups() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_up

    three = (curves.gaussian(sigma=50) ** 1000).group(size=3)
    return Step(
        "Groups",
        "thousand.group(size=3).epsilon(delta=1e-6)",
        "A family of three stands or falls together: "
        f"[[ε = {rounded_up(three.epsilon(delta=1e-6))}]] at δ = 10⁻⁶. {sentence(three)}",
    )


def noise_for() -> Step:
    from deniable import calibrate, curves
    from deniable.curves.looks import rounded_up

    sigma = calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)
    return Step(
        "The other way round",
        "deniable.calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)",
        f"How much noise keeps a thousand answers at ε = 1? [[σ = {rounded_up(sigma, 6)}]]. "
        "That much was checked to be enough, and a hair less was seen not to be.",
    )


def textbooks() -> Step:
    from deniable import curves
    from deniable.curves.looks import rounded_up

    claimed, laplace = 2 * math.sqrt(2 * 500 * math.log(1e5)), curves.laplace(scale=1) ** 500
    return Step(
        "Why textbook formulas go wrong",
        "(curves.laplace(scale=1) ** 500).epsilon(delta=1e-5)",
        f"An often printed formula, 2ε√(2k log(1/δ)), claims ε = {claimed:.1f} for 500 releases of ε = 1 at δ = 10⁻⁵. "
        f"At that ε the true δ of 500 Laplace releases is [[{rounded_up(laplace.delta(epsilon=claimed))}]]; it takes "
        f"[[ε = {rounded_up(laplace.epsilon(delta=1e-5))}]] to have δ = 10⁻⁵. The formula is a theorem only for "
        "kε² ≤ 8 log(1/δ) = 92.1. Asked outside its range, curves.textbook raises OutsideTheorem.",
    )


TOUR: tuple[Callable[[], Step], ...] = (
    one_release,
    meaning,
    many_releases,
    learning,
    mixing,
    groups,
    noise_for,
    textbooks,
)


def compared() -> "Figure":
    from deniable import curves, plots

    shown = {
        "one answer, σ = 50": curves.gaussian(sigma=50),
        "1000 answers, σ = 50": curves.gaussian(sigma=50) ** 1000,
        "10 000 steps of DP-SGD": curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000,
        "randomized response, p = 3/4": curves.randomized_response(p=0.75),
    }
    return plots.compare(shown, delta=1e-6)


def composed() -> "Figure":
    from deniable import curves, plots

    return plots.growth(curves.laplace(scale=1), delta=1e-5, most=500, name="k times Laplace(1)")


if __name__ == "__main__":
    main()
