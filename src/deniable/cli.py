"""The command `deniable`: each subcommand is a few lines over the library.

    deniable curve "gaussian(sigma=50)**1000 * laplace(scale=4)" --delta 1e-6
    deniable demo --out demo-output

Exit codes: 0 done · 1 could not be done (a missing extra, a file that cannot be written) · 2 asked wrongly.
Importing this module loads neither typer nor rich; they come with the extra `cli` when a command runs.
"""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from deniable.errors import DeniableError, InvalidOperation, InvalidParameter, MissingExtra, OutsideTheorem

if TYPE_CHECKING:
    import typer
    from rich.console import Console

    from deniable.curves import Curve

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

    @app.callback()
    def deniable(
        version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
    ) -> None:
        """Differential privacy as one object: what is promised, and what it means."""
        if version:
            from deniable import __version__

            print(__version__)
            raise typer.Exit

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
        raise InvalidParameter(
            "--delta and --epsilon", (delta, epsilon), "give exactly one of them", "try --delta 1e-6"
        )
    curve = parse(expression)
    answer = reading(curve, delta, epsilon)
    if plot is not None:
        from deniable import plots

        plots.render(plots.compare(curve, delta=delta), plot)
    if as_json:
        print(json.dumps(portable(answer | {"curve": curve.to_dict()}), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        print_table(curve, delta, answer)
    if plot is not None and not as_json:
        print(f"Drawn in {plot}.")


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


def print_table(curve: "Curve", delta: float | None, answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from deniable.curves import looks

    facts = list(looks.facts(curve, looks.DELTA if delta is None else delta))
    if delta is None:
        low, high = answer["delta_bounds"]["low"], answer["delta_bounds"]["high"]
        truth = f"the truth lies in [{looks.rounded_down(low, 7)}, {looks.rounded_up(high, 7)}]"
        facts[0] = looks.Fact(f"δ at ε = {answer['epsilon']:g}", looks.rounded_up(high), truth)
    table = Table.grid(padding=(0, 3, 0, 0))
    for fact in facts:
        table.add_row(fact.name, Text(fact.value, "bold cyan"), Text(fact.meaning, "dim"))
    console = Console()
    console.print(Text(looks.title(curve), "bold"))
    console.print()
    console.print(table)
    console.print()
    console.print(sentence(answer["guess"]["right_at_most"]))


def sentence(right_at_most: float) -> str:
    from deniable.curves import looks

    return f"An attacker with a 50 % prior is right at most {looks.percent_up(right_at_most)} of the time."


# -- deniable demo ---------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One stop of the tour: what is typed, and what there is to say about it."""

    title: str
    code: str
    say: Callable[[], str]


def tour(out: Path) -> None:
    """Walk through the steps, then save the pictures."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.syntax import Syntax

    console = Console(highlight=False, width=min(Console().width, 100))
    out.mkdir(parents=True, exist_ok=True)
    console.print("\n[bold]A curve is what a mechanism promises.[/] Eight short steps, then two pictures.\n")
    steps = tour_steps()
    for number, step in enumerate(steps, 1):
        console.print(Rule(f"[bold]{number}  {step.title}", align="left", style="cyan"))
        console.print(Padding(Syntax(step.code, "python", theme="ansi_light", background_color="default"), (0, 2)))
        with console.status("working it out ..."):
            said = step.say()
        console.print(Padding(said, (0, 2, 1, 2)))
    draw(console, out)


def draw(console: "Console", out: Path) -> None:
    from deniable import curves, plots

    pictures: dict[str, Callable[[], plots.Figure]] = {
        "curves.png": lambda: plots.compare(
            {
                "one answer, σ = 50": curves.gaussian(sigma=50),
                "1000 answers, σ = 50": curves.gaussian(sigma=50) ** 1000,
                "10 000 steps of DP-SGD": curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000,
                "randomized response, p = 3/4": curves.randomized_response(p=0.75),
            },
            delta=1e-6,
        ),
        "composition.png": lambda: plots.growth(
            curves.laplace(scale=1), delta=1e-5, most=500, name="k times Laplace(1)"
        ),
    }
    for name, make in pictures.items():
        with console.status(f"drawing {name} ..."):
            plots.render(make(), out / name)
        console.print(f"Saved [bold]{out / name}[/]")


def tour_steps() -> tuple[Step, ...]:
    import deniable
    from deniable import curves
    from deniable.curves import textbook
    from deniable.curves.looks import percent_up, rounded_down, rounded_up

    thousand = curves.gaussian(sigma=50) ** 1000
    steps_of_sgd = curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000
    mixed = thousand * curves.laplace(scale=4) * curves.randomized_response(p=0.75)

    def one_release() -> str:
        low, high = curves.gaussian(sigma=2).epsilon_bounds(delta=1e-6)
        return (
            "One answer that moves by at most 1 when a person joins or leaves, with Gaussian noise of σ = 2. "
            f"At δ = 10⁻⁶ it costs [bold cyan]ε = {rounded_up(high)}[/], proved from both sides: "
            f"the truth lies in \\[{rounded_down(low, 9)}, {rounded_up(high, 9)}]."
        )

    def attacker() -> str:
        curve = curves.gaussian(sigma=2)
        return (
            f"[bold]{sentence(curve.guess(prior=0.5))}[/] "
            f"Allowed 5 % false alarms, they miss at least [bold cyan]{100 * curve.beta(alpha=0.05):.1f} %[/] of those "
            f"who are in the data. And δ: e times more likely, that is ε = 1, is as bad as it gets, but for "
            f"[bold cyan]δ = {rounded_up(curve.delta(epsilon=1.0))}[/] of the probability."
        )

    def many() -> str:
        return (
            f"A thousand such answers, now with σ = 50: [bold cyan]ε = {rounded_up(thousand.epsilon(delta=1e-6))}[/] "
            f"at δ = 10⁻⁶. Gaussians compose exactly, μ = √1000 / 50 = {rounded_up(thousand.gdp())}. "
            f"{sentence(thousand.guess(prior=0.5))}"
        )

    def learning() -> str:
        low, high = steps_of_sgd.epsilon_bounds(delta=1e-5)
        every = (curves.gaussian(sigma=1) ** 10_000).epsilon(delta=1e-5)
        return (
            "10 000 steps of private gradient descent, each on a random 1 % of the people: "
            f"[bold cyan]ε = {rounded_up(high)}[/] at δ = 10⁻⁵ (at least {rounded_down(low)}). "
            f"Were everybody in every step, it would be ε = {every:,.0f}."
        )

    def mixing() -> str:
        alone = (1000 * 0.02, 0.25, math.log(3))
        return (
            "The same answers, a Laplace count and a survey question, all about the same people: "
            f"[bold cyan]ε = {rounded_up(mixed.epsilon(delta=1e-6))}[/] at δ = 10⁻⁶. The two others alone are pure DP with "
            f"ε = {alone[1]:g} and {alone[2]:.4f}; added to {rounded_up(thousand.epsilon(delta=1e-6))} they would make "
            f"{rounded_up(thousand.epsilon(delta=1e-6) + alone[1] + alone[2])}."
        )

    def groups() -> str:
        three = thousand.group(size=3)
        return (
            f"A family of three shares its fate: together they have [bold cyan]ε = {rounded_up(three.epsilon(delta=1e-6))}[/] "
            f"at δ = 10⁻⁶. {sentence(three.guess(prior=0.5))}"
        )

    def noise() -> str:
        sigma = deniable.calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)
        return (
            f"How much noise keeps a thousand answers at ε = 1? [bold cyan]σ = {rounded_up(sigma, 6)}[/]; "
            "that value was checked to be enough, and a hair less was seen not to be."
        )

    def textbooks() -> str:
        claimed = 2 * math.sqrt(2 * 500 * math.log(1e5))
        laplace = curves.laplace(scale=1) ** 500
        try:
            textbook.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)
            refusal = ""
        except OutsideTheorem as error:
            refusal = f"{error.theorem} needs {error.condition}"
        return (
            f"A formula often printed claims ε = {claimed:.1f} for 500 releases of ε = 1 at δ = 10⁻⁵. At that ε the true δ of "
            f"500 Laplace releases is [bold red]{rounded_up(laplace.delta(epsilon=claimed))}[/], not 0.00001; "
            f"it takes [bold cyan]ε = {rounded_up(laplace.epsilon(delta=1e-5))}[/]. "
            f"The formula has a range, and outside it we refuse: {refusal[:60]}…"
        )

    return (
        Step("One release", "curves.gaussian(sigma=2).epsilon_bounds(delta=1e-6)", one_release),
        Step(
            "What it means to an attacker",
            "curve.guess(prior=0.5), curve.beta(alpha=0.05), curve.delta(epsilon=1.0)",
            attacker,
        ),
        Step("A thousand releases", "thousand = curves.gaussian(sigma=50) ** 1000", many),
        Step("Learning on samples", "curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000", learning),
        Step(
            "Different things multiply",
            "thousand * curves.laplace(scale=4) * curves.randomized_response(p=0.75)",
            mixing,
        ),
        Step("Groups", "thousand.group(size=3)", groups),
        Step(
            "The other way round",
            "deniable.calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)",
            noise,
        ),
        Step(
            "Why textbook formulas go wrong",
            "curves.textbook.advanced_composition_doubled(epsilon=1, count=500, delta=1e-5)",
            textbooks,
        ),
    )


if __name__ == "__main__":
    main()
