"""`deniable attack NAME --epsilon 0.1 1 10`: an attack without privacy, then against its usual defences.

All data is synthetic (see `made_up_worlds`). To attack your own table, use the library.
"""

from __future__ import annotations

import difflib
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from deniable.attacks.answer_attacks import Averaging, Differencing
from deniable.attacks.attack_game import Attack, Outcome, Progress, Sweep, rounds_of, sweep
from deniable.attacks.attribute_inference import AttributeInference
from deniable.attacks.linkage import Homogeneity, Intersection, Linkage
from deniable.attacks.made_up_worlds import population, traits
from deniable.attacks.membership import ModelMembership, StatisticsMembership
from deniable.attacks.reconstruction import LinearReconstruction, Reconstruction
from deniable.curves.curve_display import percent_up
from deniable.errors import NOTHING, InvalidParameter

MOST_LEVELS: Final = 20
USUAL: Final = (0.1, 1.0, 10.0)
"""The default levels of ε."""


class Story(NamedTuple):
    """One attack on synthetic data, with an introduction."""

    make: Callable[[], Attack]
    opening: str


def _linkage() -> Attack:
    return Linkage(population(areas=20, seed=4), quasi=["sex", "birth", "zip"])


def _statistics() -> Attack:
    return StatisticsMembership(people=50, rates=np.linspace(0.1, 0.9, 500))


def _model() -> Attack:
    x, y = traits(people=400, features=80, seed=3)
    return ModelMembership(features=x, labels=y, people=20, penalty=0.003)


def _attribute() -> Attack:
    x, y = traits(people=400, features=10, seed=3)
    return AttributeInference(features=x, labels=y, people=60, width=0.2)


STORIES: Final[dict[str, Story]] = {
    "linkage": Story(
        _linkage,
        "A table without names: sex, birth date, ZIP code, and a secret. Somebody who knows the first three of a "
        "person looks up the fourth. (Made-up people, ZIP code areas as large as real ones.)",
    ),
    "homogeneity": Story(
        lambda: Homogeneity(size=4),
        "A 4-anonymous table: each person looks like three others. But in one group of four, the other three all have "
        "the secret.",
    ),
    "intersection": Story(
        lambda: Intersection(size=4, chance=0.25),
        "Two hospitals publish 4-anonymous tables. A patient of both has a secret that must be in both classes.",
    ),
    "differencing": Story(
        lambda: Differencing(people=1000),
        "Two counts: how many people have the secret, and how many of those not named Z. The difference is Z's secret.",
    ),
    "averaging": Story(
        lambda: Averaging(answers=100),
        "One question, asked a hundred times. Noise averages out, unless the hundred answers share one ε.",
    ),
    "reconstruction": Story(
        lambda: Reconstruction(people=64, questions=256),
        "64 people, of whom some have a secret. No question is about one person: each of 256 asks how many more people "
        "of one random group have the secret than of another. Least squares then finds who has it.",
    ),
    "linear-reconstruction": Story(
        lambda: LinearReconstruction(people=32, questions=128),
        "32 people, 128 questions about random groups. A linear program then finds the secrets that fit all answers "
        "best.",
    ),
    "membership": Story(
        _statistics,
        "50 people give 500 yes-or-no attributes; only how many have each is published. Was this person among the 50?",
    ),
    "model-membership": Story(
        _model,
        "A logistic regression with 80 features is trained on 20 people. Was this one among them? Members fit better.",
    ),
    "attribute": Story(
        _attribute,
        "A model is trained on 60 people with a secret feature. With which secret is it surer of a person's label?",
    ),
}


def story(name: str | None) -> Story:
    """The story of this name. Raises `InvalidParameter` with the known names if the name is unknown."""
    if name is None:
        raise InvalidParameter("attack", NOTHING, "must be named", f"there are {', '.join(STORIES)}")
    if name not in STORIES:
        near = difflib.get_close_matches(name, STORIES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InvalidParameter("attack", name, "is not known", f"{hint}there are {', '.join(STORIES)}")
    return STORIES[name]


def _list_names() -> None:
    """Print all stories by name, with their introductions."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, each in STORIES.items():
        table.add_row(name, each.opening)
    console = Console(highlight=False, width=min(Console().width, 100))
    console.print(table)
    console.print("\nTry: deniable attack reconstruction --epsilon 0.1 1 10", markup=False)


def attack_command(
    name: str | None,
    *,
    epsilon: Sequence[float],
    delta: float | None = None,
    trials: int | None = None,
    confidence: float = 0.95,
    plot: Path | None = None,
    as_json: bool = False,
) -> dict[str, Any] | None:
    """Run one story. Prints a table, or returns a record if `as_json`. Without any argument, it lists the names."""
    levels = list(epsilon)
    if name is None and not levels and not as_json:
        _list_names()
        return None
    chosen = story(name)
    levels = levels or list(USUAL)
    if len(levels) > MOST_LEVELS:
        raise InvalidParameter("--epsilon", levels, f"give 1 to {MOST_LEVELS} numbers", "try --epsilon 0.1 1 10")
    if plot is not None:
        _check_plot(plot)
    attack = chosen.make()
    total = rounds_of(attack, epsilon=levels, delta=delta, trials=trials)
    with _progress(attack.NAME, total) as progress:
        found = sweep(attack, epsilon=levels, delta=delta, trials=trials, confidence=confidence, progress=progress)
    if plot is not None:
        from deniable import plots

        with _progress("computing the lines", None):
            figure = found.figure
        plots.render(figure, plot)
    if delta is not None and attack.defences(epsilon=levels[0]).keys() == found.series.keys():
        print(f"--delta has no effect: {attack.NAME} has no defence with Gaussian noise.", file=sys.stderr)
    if as_json:
        return record(found)
    show(chosen, found)
    return None


def _check_plot(path: Path) -> None:
    from deniable.plots.render import FORMATS

    if path.suffix.lower() not in FORMATS:
        raise InvalidParameter("--plot", str(path), f"must end in {', '.join(FORMATS)}")  # before the long run


@contextmanager
def _progress(name: str, total: int | None) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=total)
        yield lambda rounds: bars.advance(task, rounds)


def record(found: Sweep) -> dict[str, Any]:
    """All numbers of a sweep, as plain values for JSON."""

    def one(outcome: Outcome) -> dict[str, Any]:
        low, high = outcome.interval
        return {
            "defence": outcome.defence,
            "rate": outcome.rate,
            "interval": {"low": low, "high": high, "confidence": outcome.confidence},
            "hits": outcome.hits,
            "trials": outcome.trials,
            "expected": outcome.expected,
            "baseline": outcome.baseline,
            "cap": outcome.cap,
            "beats_cap": outcome.beats_cap,
            "curve": None if outcome.curve is None else outcome.curve.expression(),
        }

    levels = sorted({level for series in found.series.values() for level in series})
    return {
        "attack": found.attack,
        "no_privacy": None if found.bare is None else one(found.bare),
        "runs": [
            {"epsilon": level, "name": name, **one(series[level])}
            for level in levels
            for name, series in found.series.items()
        ],
    }


def show(chosen: Story, found: Sweep) -> None:
    """Print the story as a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=min(Console().width, 100))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("ε", justify="right")
    table.add_column("defence")
    known = any(outcome.expected is not None for outcome in found.outcomes)
    for head in ("right guesses", *(["closed form"] if known else []), "nobody beats"):
        table.add_column(head, justify="right", no_wrap=True)

    def add(level: str, name: str, outcome: Outcome) -> None:
        theory = [_percent(outcome.expected)] if known else []
        cap = "" if outcome.curve is None else percent_up(outcome.cap)
        table.add_row(level, name, _measured(outcome, Text), *theory, cap)

    if found.bare is not None:
        add("", "none", found.bare)
    for level in sorted({level for series in found.series.values() for level in series}):
        for place, (name, series) in enumerate(found.series.items()):
            add(f"{level:g}" if place == 0 else "", name, series[level])
    console.print()
    console.print("\n".join(textwrap.wrap(chosen.opening, console.width)), markup=False)
    console.print()
    console.print(table)
    console.print()
    console.print(_moral(found), markup=False)


def _measured(outcome: Outcome, text: Any) -> Any:
    """The rate and its interval in tenths of a percent, rounded outwards; with ± only if the interval is symmetric."""
    low, high = outcome.interval
    rate = round(1000 * outcome.rate)
    below, above = rate - math.floor(1000 * low), math.ceil(1000 * high) - rate
    style = "bold red" if outcome.curve is None or outcome.beats_cap else "bold cyan"
    if low > 0 and high < 1 and abs(above - below) <= 1:
        return text(f"{rate / 10:.1f} ± {max(above, below) / 10:.1f} %", style)
    return text(f"{rate / 10:.1f} ({(rate - below) / 10:.1f} … {(rate + above) / 10:.1f}) %", style)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _moral(found: Sweep) -> str:
    outcomes = found.outcomes
    rounds, sure = outcomes[0].trials, 100 * outcomes[0].confidence
    broken = [outcome for outcome in outcomes if outcome.beats_cap]
    end = "No proof that anyone beat the cap."
    if broken:
        end = f"Proved: {len(broken)} of {len(outcomes)} beat the cap."
    played = f"{rounds:,} round{'' if rounds == 1 else 's'} each, intervals at {sure:.10g} % confidence"
    return f"{played}; a blind guess is right half of the time. {end}"
