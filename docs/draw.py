"""Draws the pictures of the documentation into docs/pictures: python docs/draw.py [name ...].

Each function here is one picture and one file, of its own name. Numbers come from the public API; where a picture shows
draws, they come from entropy that is replayed. So the same versions give the same files, and a rerun leaves no diff.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deniable import Unit, curves, local, mechanisms, noise, plots
from deniable.errors import NotPrivateWarning
from deniable.mechanisms import limits, linear
from deniable.plots.figure_spec import REFERENCE, Axis, Bars, Figure, Level, Line, Mark, Marker, Panel
from deniable.testing import statistics

FOLDER = Path(__file__).parent / "pictures"
CONFIDENCE = 0.95


def line(
    label: str, x: Sequence[float], height: Callable[[Any], float], colour: int, stroke: Any = "solid", note: str = ""
) -> Line:
    return Line(label, tuple(map(float, x)), tuple(float(height(v)) for v in x), colour, stroke, note)


def _powers(low: float, high: float, count: int = 60) -> list[float]:
    return [float(v) for v in np.geomspace(low, high, count)]


def _wholes(low: int, high: int, count: int = 40) -> list[int]:
    return sorted({round(v) for v in np.geomspace(low, high, count)})


# -- noise -----------------------------------------------------------------------------------------------------------


def noise_laws() -> Figure:
    """Draws against their law, and tails against those of floats."""
    scale, count = 3, 200_000
    draws = noise.discrete_laplace(scale=scale, size=count, entropy=noise.ReplayEntropy(1))
    places = list(range(-15, 16))
    heights = tuple(float((draws == k).mean()) for k in places)
    r = math.exp(-1 / scale)

    def law(k: int) -> float:
        return (1 - r) / (1 + r) * r ** abs(k)

    left = Panel(
        Axis("noise k", -15.5, 15.5),
        Axis("probability", 0, 0.18),
        (
            Bars(tuple(k - 0.5 for k in (*places, 16)), heights, colour=4),
            Line("200,000 draws", (-99.0,), (0.0,), 4),
            line("exact law", places, law, 1),
        ),
        "discrete Laplace noise of scale 3",
        labels="inside",
    )
    reach = list(range(0, 351, 5))

    def bits(k: float) -> float:
        return math.log2(2 / (1 + math.exp(-1))) - (k + 1) / math.log(2)

    last = next(k for k in range(100) if bits(k) < -53)
    right = Panel(
        Axis("k", 0, 350),
        Axis("log₂ of the probability", -520, 10),
        (
            line("exact: no end", reach, bits, 1),
            Line("floats: ends at 2⁻⁵³", (0.0, float(last)), (bits(0), bits(last)), 0, "dotted"),
            Marker(last, bits(last), colour=0),
        ),
        "P(|noise| > k) at scale 1",
        labels="inside",
    )
    return Figure("The law is the formula, everywhere", (left, right))


# -- additive --------------------------------------------------------------------------------------------------------


def additive_laws() -> Figure:
    """Noise laws of equal standard deviation, and what they promise."""
    laplace, gaussian = curves.laplace(scale=1 / math.sqrt(2)), curves.gaussian(sigma=1.0)
    low, high = 0.1, 8.0  # ε at which the staircase has a standard deviation of 1
    for _ in range(60):
        middle = (low + high) / 2
        wide = mechanisms.Staircase(sensitivity=1.0, epsilon=middle).rms() > 1
        low, high = (middle, high) if wide else (low, middle)
    stairs = mechanisms.Staircase(sensitivity=1.0, epsilon=round(high, 6))
    share, epsilon = float(stairs.high) / float(stairs.step), round(high, 6)
    ratio = math.exp(-epsilon)
    top = (1 - ratio) / (2 * (share + ratio * (1 - share)))

    def step(x: float) -> float:
        whole, rest = divmod(abs(x), 1.0)
        return float(top * ratio ** (whole + (rest >= share)))

    x = [float(v) for v in np.linspace(-5, 5, 401)]
    left = Panel(
        Axis("noise, in standard deviations", -5, 5),
        Axis("density", 1e-5, 2, "log"),
        (
            line("Laplace", x, lambda v: math.exp(-abs(v) * math.sqrt(2)) / math.sqrt(2), 0),
            line("Gaussian", x, lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi), 1),
            line("staircase", x, step, 2),
        ),
        "three laws of standard deviation 1",
    )
    grid = [float(v) for v in np.linspace(0, 5, 101)]
    right = Panel(
        Axis("ε", 0, 5),
        Axis("δ(ε)", 1e-6, 1, "log"),
        (
            line("Laplace", grid, lambda e: max(laplace.delta(epsilon=e), 1e-9), 0),
            line("Gaussian", grid, lambda e: max(gaussian.delta(epsilon=e), 1e-9), 1),
            line("staircase", grid, lambda e: max(stairs.curve.delta(epsilon=e), 1e-9), 2),
        ),
        "what they promise",
        labels="none",
    )
    return Figure("The same amount of noise", (left, right))


def additive_errors() -> Figure:
    """Error against ε, and against the number of numbers."""
    grid = _powers(0.05, 10)

    def made(kind: Any, **more: Any) -> Callable[[float], float]:
        return lambda e: kind(sensitivity=1.0, epsilon=e, **more).error(confidence=CONFIDENCE)

    left = Panel(
        Axis("ε", 0.05, 10, "log"),
        Axis("95 % error, in sensitivities", 0.05, 300, "log"),
        (
            line("Laplace, δ = 0", grid, made(mechanisms.Laplace), 0),
            line("staircase, δ = 0", grid, made(mechanisms.Staircase), 2, "dashed"),
            line("Gaussian, δ = 10⁻⁶", grid, made(mechanisms.Gaussian, delta=1e-6), 1),
        ),
        "one number",
    )
    counts = _wholes(1, 10_000)
    mu = mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-6).curve.gdp()

    def laplace(d: int) -> float:
        return mechanisms.Laplace(sensitivity=float(d), epsilon=1.0, dimension=d).error(confidence=CONFIDENCE)

    def gaussian(d: int) -> float:
        return mechanisms.Gaussian(sensitivity=math.sqrt(d), mu=mu, dimension=d).error(confidence=CONFIDENCE)

    right = Panel(
        Axis("numbers released at once", 1, 10_000, "log"),
        Axis("95 % error of all of them", 1, 2e5, "log"),
        (line("Laplace", counts, laplace, 0), line("Gaussian", counts, gaussian, 1)),
        "a person moves each number by 1, ε = 1",
        labels="none",
    )
    return Figure("Which noise for what", (left, right))


# -- counting --------------------------------------------------------------------------------------------------------


def counting_histogram() -> Figure:
    """Noisy counts, exact counts, and the error of all bins."""
    edges, exact = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90), (61, 74, 92, 118, 103, 87, 55, 31, 9)
    panels: list[Panel] = []
    for epsilon, title in ((1.0, "ε = 1"), (0.1, "ε = 0.1")):
        ages = mechanisms.Histogram(edges=list(edges), unit=Unit.row(), epsilon=epsilon)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            noisy = ages.release_counts(list(exact), entropy=noise.ReplayEntropy(len(panels)))
        reach = ages.error(confidence=CONFIDENCE)
        marks: list[Mark] = [
            Bars(tuple(map(float, edges)), tuple(float(max(v, 0)) for v in noisy), colour=4),
            Line("noisy counts", (-99.0,), (0.0,), 4),
            Line("exact counts, not published", (-99.0,), (0.0,), 1),
            Line("95 % error of all bins", (-99.0,), (0.0,), REFERENCE),
        ]
        for start, shown, true in zip(edges, noisy, exact, strict=False):
            marks.append(Line("", (start + 5.0, start + 5.0), (float(shown - reach), float(shown + reach)), REFERENCE))
            marks.append(Marker(start + 5.0, float(true), colour=1))
        panels.append(
            Panel(
                Axis("age", 0, 90),
                Axis("people", 0, 200),
                tuple(marks),
                f"{title}: all counts within {reach:.0f}",
                labels="above" if not panels else "none",
            )
        )
    return Figure("A histogram and its error", tuple(panels))


def counting_streams() -> Figure:
    """The error of counters against their horizon."""
    horizons = [2**k for k in range(1, 15)]

    def fresh(t: int) -> float:
        noisy = mechanisms.Gaussian.whole(sensitivity=math.sqrt(t), mu=1.0, dimension=t)
        return noisy.error(confidence=CONFIDENCE)

    def tree(t: int) -> float:
        return mechanisms.TreeCounter(horizon=t, sensitivity=1, mu=1.0).error(confidence=CONFIDENCE)

    def root(t: int) -> float:
        return mechanisms.FactorisedCounter(horizon=t, sensitivity=1, mu=1.0).error(confidence=CONFIDENCE)

    panel = Panel(
        Axis("steps", 2, horizons[-1], "log"),
        Axis("95 % error of all totals", 1, 1000, "log"),
        (
            line("fresh noise on every total", horizons, fresh, REFERENCE),
            line("TreeCounter", horizons, tree, 0),
            line("FactorisedCounter", horizons, root, 1),
        ),
    )
    return Figure("A total after every step", (panel,))


def counting_questions() -> Figure:
    """Three ways to answer linear questions, against their number."""
    counts, people, beta = _wholes(1, 100_000), 1000, 1 - CONFIDENCE

    def laplace(k: int) -> float:
        return linear.laplace_error(queries=k, people=people, epsilon=1.0, beta=beta)

    def gaussian(k: int) -> float:
        return linear.gaussian_error(queries=k, people=people, epsilon=1.0, delta=1e-6, beta=beta)

    def bits(k: int) -> float:
        return linear.randomized_response_error(queries=k, people=people, epsilon=1.0, beta=beta)

    panel = Panel(
        Axis("questions", 1, 100_000, "log"),
        Axis("95 % error of all answers", 0.001, 2, "log"),
        (
            line("Laplace noise", counts, laplace, 0),
            line("Gaussian noise, δ = 10⁻⁶", counts, gaussian, 1),
            line("randomised bits", counts, bits, 2),
            Level(0.5, "y", "an answer says nothing"),
        ),
    )
    return Figure("Averages of private bits", (panel,))


# -- statistics ------------------------------------------------------------------------------------------------------


def statistics_clamping() -> Figure:
    """The error of a mean against its upper bound."""
    people = 2000
    # Quantiles of a lognormal law (median 22,000, spread 0.7): a smooth made-up table of incomes.
    normal = np.array([_normal_quantile((i + 0.5) / people) for i in range(people)])
    incomes = 22_026.0 * np.exp(0.7 * normal)
    bounds = _powers(5_000, 2_000_000)

    def bias(high: float) -> float:
        return float(incomes.mean() - np.minimum(incomes, high).mean())

    def spread(high: float) -> float:
        noisy = mechanisms.Mean(low=0.0, high=float(high), unit=Unit.row(), epsilon=0.2)
        return noisy.error(confidence=CONFIDENCE, rows=people)

    best = min(bounds, key=lambda high: bias(high) + spread(high))
    panel = Panel(
        Axis("upper bound, public", 5_000, 2_000_000, "log"),
        Axis("error of the mean income", 30, 30_000, "log"),
        (
            line("what clamping takes away", bounds, lambda h: max(bias(h), 1e-3), 0),
            line("95 % error of the noise", bounds, spread, 1),
            line("both", bounds, lambda h: bias(h) + spread(h), 6),
            Marker(best, bias(best) + spread(best), colour=6),
            Level(float(incomes.max()), "x", "largest income"),
        ),
    )
    return Figure("Where to clamp", (panel,))


def _normal_quantile(p: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(p))


# -- selection -------------------------------------------------------------------------------------------------------


def selection_errors() -> Figure:
    """Three selections: error against candidates, and cost against the number of choices."""
    kinds: tuple[tuple[str, Any, int], ...] = (
        ("NoisyMax", mechanisms.NoisyMax, 2),
        ("Exponential", mechanisms.Exponential, 0),
        ("PermuteAndFlip", mechanisms.PermuteAndFlip, 1),
    )
    counts = _wholes(2, 10_000)
    left = Panel(
        Axis("candidates", 2, 10_000, "log"),
        Axis("95 % error, in sensitivities", 0, 30),
        tuple(
            line(
                name,
                counts,
                lambda n, k=kind: k(sensitivity=1, epsilon=1, candidates=n).error(confidence=CONFIDENCE),
                c,
            )
            for name, kind, c in kinds
        ),
        "one choice at ε = 1",
    )
    times = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 100]
    right = Panel(
        Axis("choices at ε = 1 each", 0, 100),
        Axis("ε of all, at δ = 10⁻⁶", 0, 120),
        (
            line(
                "Exponential",
                times,
                lambda k: (curves.exponential(epsilon=1.0) ** k).epsilon(delta=1e-6),
                0,
            ),
            line("the other two", times, lambda k: (curves.laplace(scale=1) ** k).epsilon(delta=1e-6), 1),
        ),
        "many choices",
        labels="inside",
    )
    return Figure("Three ways to choose", (left, right))


# -- thresholds ------------------------------------------------------------------------------------------------------


def threshold_errors() -> Figure:
    """Above-threshold against noise on every answer; one sparse vector against several runs."""
    counts = _wholes(1, 100_000)

    def above(k: int) -> float:
        return mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=1, questions=k).error(
            confidence=CONFIDENCE
        )

    def every(k: int) -> float:
        return mechanisms.Laplace(sensitivity=float(k), epsilon=1.0, dimension=k).error(confidence=CONFIDENCE)

    left = Panel(
        Axis("questions", 1, 100_000, "log"),
        Axis("95 % error, in sensitivities", 1, 1e6, "log"),
        (
            line("noise on every answer", counts, every, REFERENCE),
            line("AboveThreshold", counts, above, 0),
        ),
        "ε = 1 for all of them",
    )
    positives = list(range(1, 26))

    def sparse(c: int) -> float:
        made = mechanisms.SparseVector(threshold=0, sensitivity=1, epsilon=1, positives=c, questions=1000)
        return made.error(confidence=CONFIDENCE)

    def runs(c: int) -> float:
        # c runs of ε/c each; all of them are right at once if each is with 1 - 0.05/c.
        made = mechanisms.AboveThreshold(threshold=0, sensitivity=1, epsilon=1 / c, questions=1000)
        return made.error(confidence=1 - (1 - CONFIDENCE) / c)

    right = Panel(
        Axis("positive answers paid for", 0, 25),
        Axis("95 % error, in sensitivities", 0, 2200),
        (
            line("AboveThreshold, again and again", positives, runs, 0),
            line("SparseVector", positives, sparse, 1),
        ),
        "1000 questions, ε = 1",
        labels="inside",
    )
    return Figure("Many questions for the price of a few", (left, right))


# -- limits ----------------------------------------------------------------------------------------------------------


def limits_efficiency() -> Figure:
    """How near to the best mechanisms come, and the chance of a right answer against its ceiling."""
    grid = _powers(0.1, 10, 50)

    def best(sensitivity: float | int) -> Callable[[float], float]:
        return lambda e: mechanisms.Laplace(sensitivity=sensitivity, epsilon=e).efficiency()

    left = Panel(
        Axis("ε", 0.1, 10, "log"),
        Axis("least error there is / error", 0, 1.05),
        (
            line("counts", grid, best(1), 2),
            line("whole numbers that move by 3", grid, best(3), 1, "dashed"),
            line("real numbers", grid, best(1.0), 0),
        ),
        "Laplace noise: root mean square error",
    )
    records = 101
    ones = list(range(51, 102))
    vote = mechanisms.BinaryInverseSensitivity.median(epsilon=0.2)

    def found(k: int) -> float:
        return float(vote.probabilities([1] * k + [0] * (records - k))[1])

    right = Panel(
        Axis("ones among 101 zeros and ones", 51, 101),
        Axis("chance to name the majority", 0.5, 1.15),
        (
            line(
                "no symmetric mechanism does better",
                ones,
                lambda k: limits.binary_median_ceiling(records=records, ones=k, epsilon=0.2),
                REFERENCE,
            ),
            line("BinaryInverseSensitivity", ones, found, 3),
        ),
        "a vote at ε = 0.2",
        labels="inside",
    )
    return Figure("How far from the best", (left, right))


# -- local -----------------------------------------------------------------------------------------------------------


def local_variances() -> Figure:
    """The variance of a share against the number of categories."""
    kinds: tuple[tuple[str, Any, int, str], ...] = (
        ("KaryRandomizedResponse", local.KaryRandomizedResponse, 0, "solid"),
        ("SymmetricUnary", local.SymmetricUnary, 5, "solid"),
        ("OptimizedUnary", local.OptimizedUnary, 2, "solid"),
        ("LocalHashing", local.LocalHashing, 3, "dashed"),
        ("SubsetSelection", local.SubsetSelection, 1, "solid"),
    )
    counts = _wholes(2, 1000, 36)
    panels: list[Panel] = []
    for epsilon, low, high in ((1.0, 0.5, 300), (3.0, 0.02, 30)):
        lines = tuple(
            line(
                name,
                counts,
                lambda d, k=kind, e=epsilon: float(k(categories=d, epsilon=e).variance(share=0.0, people=1)),
                colour,
                stroke,
            )
            for name, kind, colour, stroke in kinds
        )
        panels.append(
            Panel(
                Axis("categories", 2, 1000, "log"),
                Axis("variance of a share × people", low, high, "log"),
                lines,
                f"ε = {epsilon:g}",
                labels="none" if panels else "above",
            )
        )
    return Figure("How well shares are known without a curator", tuple(panels))


# -- testing ---------------------------------------------------------------------------------------------------------


def checks_power() -> Figure:
    """How much ε a number of trials certifies."""
    counts = _wholes(200, 1_000_000, 50)

    def certified(epsilon: float, miss: float) -> Callable[[int], float]:
        p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))

        def low(trials: int) -> float:
            # Judged on half of the trials, at the counts that are expected; the other half has found the event.
            half = trials // 2
            least = statistics.clopper_pearson(round(p * half), half, confidence=1 - miss)[0]
            most = statistics.clopper_pearson(round(q * half), half, confidence=1 - miss)[1]
            return max(0.0, math.log(least / most)) if least > 0 else 0.0

        return low

    panel = Panel(
        Axis("trials on each neighbour", 200, 1_000_000, "log"),
        Axis("ε that is certified", 0, 2.1),
        (
            line("sensitivity wrong by a factor of 2, false alarm 10⁻⁹", counts, certified(2.0, 1e-9), 1),
            line("a sound mechanism, false alarm 10⁻⁹", counts, certified(1.0, 1e-9), 0),
            line("a sound mechanism, false alarm 5 %", counts, certified(1.0, 0.05), 0, "dotted"),
            Level(1.0, "y", "what both promise: ε = 1"),
        ),
    )
    return Figure("What trials can prove", (panel,))


PICTURES: tuple[Callable[[], Figure], ...] = (
    noise_laws,
    additive_laws,
    additive_errors,
    counting_histogram,
    counting_streams,
    counting_questions,
    statistics_clamping,
    selection_errors,
    threshold_errors,
    limits_efficiency,
    local_variances,
    checks_power,
)


def file_name(picture: Callable[[], Figure]) -> str:
    """The name of a picture's file: dashes for underscores."""
    return picture.__name__.replace("_", "-") + ".svg"


def draw(picture: Callable[[], Figure], path: Path) -> None:
    """Draw one picture as SVG, made shorter: no digits that nobody sees, no comments, short names of letters."""
    plots.render(picture(), path)
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"\d+\.\d{3,}", _short, text.replace("DejaVuSans-", "d"))
    text = re.sub(r"(?<=[:;]) (?=[a-z#\d])", "", text)  # in styles
    path.write_text(re.sub(r"\s*\n\s*", "\n", text), encoding="utf-8")


def _short(number: re.Match[str]) -> str:
    """A hundredth of a point is enough for a place; a scale below 1 keeps what it has."""
    return number[0] if float(number[0]) < 1 else f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def main(names: Sequence[str]) -> None:
    """Draw all pictures, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        if not names or file_name(picture).removesuffix(".svg") in names:
            draw(picture, FOLDER / file_name(picture))
            print(f"docs/pictures/{file_name(picture)}")


if __name__ == "__main__":
    main(sys.argv[1:])
