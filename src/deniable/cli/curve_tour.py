"""The second half of the demo: eight steps about curves, each with code and words."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curves import Curve
    from deniable.plots import Figure


def sentence(curve: "Curve") -> str:
    """The promise of a curve without ε: how often the best attacker is right."""
    from deniable.curves.curve_display import percent_up

    return f"An attacker with a 50 % prior is right at most {percent_up(curve.guess(prior=0.5))} of the time."


class Step(NamedTuple):
    """One step: a title, code, and words about its result. [[...]] marks numbers that are printed in colour."""

    title: str
    code: str
    words: str

    @property
    def text(self) -> str:
        """The words as rich markup."""
        return self.words.replace("[", r"\[").replace(r"\[\[", "[bold cyan]").replace("]]", "[/]")

    def show(self, console: "Console", number: int) -> None:
        """Print the step."""
        from rich.padding import Padding
        from rich.rule import Rule
        from rich.syntax import Syntax

        code = Syntax(self.code, "python", theme="ansi_light", background_color="default", word_wrap=True)
        console.print(Rule(f"[bold]{number}  {self.title}", align="left", style="cyan"))
        console.print(Padding(code, (0, 2)), Padding(self.text, (0, 2, 1, 2)))


def one_release() -> Step:
    """The ε of one Gaussian release, with certified bounds."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_down, rounded_up

    low, high = curves.gaussian(sigma=2).epsilon_bounds(delta=1e-6)
    return Step(
        "One release",
        "curve = curves.gaussian(sigma=2)\ncurve.epsilon_bounds(delta=1e-6)",
        "One answer that moves by at most 1 when a person joins or leaves, with Gaussian noise of σ = 2. "
        f"At δ = 10⁻⁶ it costs [[ε = {rounded_up(high)}]], proved from both sides: "
        f"the truth lies between {rounded_down(low, 9)} and {rounded_up(high, 9)}.",
    )


def meaning() -> Step:
    """The best attacker's success, and the meaning of δ."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_down, rounded_up

    curve = curves.gaussian(sigma=2)
    return Step(
        "What it means to an attacker",
        "curve.guess(prior=0.5), curve.beta(alpha=0.05), curve.delta(epsilon=1.0)",
        f"{sentence(curve)} Allowed 5 % false alarms, they miss at least "
        f"[[{rounded_down(100 * curve.beta(alpha=0.05), 4)} %]] of those who are in the data. "
        "And δ: with one more person in the data, every event has at most e times (ε = 1) its probability "
        f"without that person, plus [[δ = {rounded_up(curve.delta(epsilon=1.0))}]].",
    )


def many_releases() -> Step:
    """The composition of a thousand Gaussian releases."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_up

    thousand = curves.gaussian(sigma=50) ** 1000
    return Step(
        "A thousand releases",
        "thousand = curves.gaussian(sigma=50) ** 1000\nthousand.epsilon(delta=1e-6)",
        f"A thousand such answers, now with σ = 50: [[ε = {rounded_up(thousand.epsilon(delta=1e-6))}]] at δ = 10⁻⁶. "
        f"Gaussians compose exactly, μ = √1000 / 50 = {rounded_up(thousand.gdp())}. {sentence(thousand)}",
    )


def learning() -> Step:
    """Subsampled steps of DP-SGD."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_down, rounded_up

    low, high = (curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000).epsilon_bounds(delta=1e-5)
    every = (curves.gaussian(sigma=1) ** 10_000).epsilon(delta=1e-5)
    return Step(
        "Learning on samples",
        "steps = curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000\nsteps.epsilon(delta=1e-5)",
        "10 000 steps of private gradient descent, each on a random 1 % of the people: "
        f"[[ε = {rounded_up(high)}]] at δ = 10⁻⁵ (and at least {rounded_down(low)}). "
        f"If everybody took part in every step, it would be ε = {rounded_up(every, 4)}.",
    )


def mixing() -> Step:
    """The product of different curves, compared with the sum of their ε."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_up

    thousand, count = curves.gaussian(sigma=50) ** 1000, curves.laplace(scale=4)
    survey = curves.randomized_response(p=0.75)
    alone = [thousand.epsilon(delta=1e-6), count.epsilon(delta=0.0), survey.epsilon(delta=0.0)]
    return Step(
        "Different things multiply",
        "mixed = thousand * curves.laplace(scale=4) * curves.randomized_response(p=0.75)\nmixed.epsilon(delta=1e-6)",
        "The same answers, a Laplace count and a survey question, all about the same people: "
        f"[[ε = {rounded_up((thousand * count * survey).epsilon(delta=1e-6))}]] at δ = 10⁻⁶. "
        "Curves of any mechanisms multiply. The sum of what each costs alone, "
        f"{' + '.join(rounded_up(epsilon) for epsilon in alone)}, would say {rounded_up(sum(alone))}.",
    )


def groups() -> Step:
    """Group privacy for a family of three."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_up

    three = (curves.gaussian(sigma=50) ** 1000).group(size=3)
    return Step(
        "Groups",
        "thousand.group(size=3).epsilon(delta=1e-6)",
        "All three members of a family join or leave together: "
        f"[[ε = {rounded_up(three.epsilon(delta=1e-6))}]] at δ = 10⁻⁶. {sentence(three)}",
    )


def noise_for() -> Step:
    """Calibration: the noise for a target ε."""
    from deniable import calibrate, curves
    from deniable.curves.curve_display import rounded_up

    sigma = calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)
    return Step(
        "The other way round",
        "deniable.calibrate(lambda s: curves.gaussian(sigma=s) ** 1000, epsilon=1.0, delta=1e-6)",
        f"How much noise keeps a thousand answers at ε = 1? [[σ = {rounded_up(sigma, 6)}]]. "
        "This σ was checked to be enough, and a slightly smaller one to be too little.",
    )


def textbooks() -> Step:
    """A textbook formula outside the range in which it is proved."""
    from deniable import curves
    from deniable.curves.curve_display import rounded_up

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
    """Four curves in one figure."""
    from deniable import curves, plots

    shown = {
        "one answer, σ = 50": curves.gaussian(sigma=50),
        "1000 answers, σ = 50": curves.gaussian(sigma=50) ** 1000,
        "10 000 steps of DP-SGD": curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000,
        "randomized response, p = 3/4": curves.randomized_response(p=0.75),
    }
    return plots.compare(shown, delta=1e-6)


def composed() -> "Figure":
    """The growth of ε with the number of Laplace releases."""
    from deniable import curves, plots

    return plots.growth(curves.laplace(scale=1), delta=1e-5, most=500, name="k times Laplace(1)")
