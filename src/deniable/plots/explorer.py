"""An explorer for notebooks: sliders that change figures. The only module that imports ipywidgets.

Every number is read from the library's certified curve when a slider is released; docs/explore.html shows the same
quantities on a page, with precomputed numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np

from deniable import curves
from deniable.curves.curve import Curve
from deniable.curves.curve_display import rounded_up
from deniable.errors import MissingExtra
from deniable.mechanisms import Gaussian, Laplace, Mechanism
from deniable.mechanisms.laws import Masses
from deniable.plots.curve_figures import believed, compare, odds
from deniable.plots.figure_spec import Figure
from deniable.plots.output_figures import laws, two_laws
from deniable.plots.render import svg


class _Choice(ABC):
    """What the slider `mechanism` chooses, at a noise level."""

    level: str
    """What the slider `noise` is, in words."""
    is_local: ClassVar[bool] = False
    """Whether each person randomises their own answer. Then every person is in the sample."""

    @abstractmethod
    def curve(self, level: float, rate: float, group: int) -> Curve:
        """The curve of one release for a group of `group` people, over a Poisson sample at this rate."""

    @abstractmethod
    def laws(self, level: float, group: int) -> Figure:
        """The laws of one release, with and without the group."""


@final
@dataclass(frozen=True, slots=True)
class _AddedNoise(_Choice):
    """Noise that is added to a number."""

    level: str
    atom: Callable[[float], Curve]
    mechanism: Callable[[float, float], Mechanism]

    def curve(self, level: float, rate: float, group: int) -> Curve:
        one = self.atom(level)
        if rate < 1:
            one = one.sampled(rate=rate)
        return one.group(size=group) if group > 1 else one

    def laws(self, level: float, group: int) -> Figure:
        size = float(group)
        return laws(self.mechanism(size, level), 0.0, size)


@final
@dataclass(frozen=True, slots=True)
class _OwnReports(_Choice):
    """Randomized response: each person of the group sends their own reports."""

    level: str = "ε of one answer"
    is_local: ClassVar[bool] = True

    def curve(self, level: float, rate: float, group: int) -> Curve:
        return curves.randomized_response(epsilon=level) ** group

    def laws(self, level: float, group: int) -> Figure:
        right = 1 / (1 + math.exp(-level))
        yes = np.array([math.comb(group, k) * right**k * (1 - right) ** (group - k) for k in range(group + 1)])
        answers = tuple(range(group + 1))
        return two_laws(Masses(answers, yes[::-1]), Masses(answers, yes), ("no", "yes"), group * level)


NOISES: Final[dict[str, _Choice]] = {
    "Gaussian": _AddedNoise(
        "σ", lambda level: curves.gaussian(sigma=level), lambda size, level: Gaussian(sensitivity=size, sigma=level)
    ),
    "Laplace": _AddedNoise(
        "scale b", lambda level: curves.laplace(scale=level), lambda size, level: Laplace(sensitivity=size, scale=level)
    ),
    "randomized response": _OwnReports(),
}
"""The values of the slider `mechanism`."""


@final
class Explorer:
    """Sliders over noise, rate, count and group, over ε and δ, and over the attacker's false alarms and prior.

    `sliders` holds the widgets by name; `curve`, `figures` and `words` follow their values. In a notebook an explorer
    shows itself.
    """

    def __init__(self) -> None:
        try:
            import ipywidgets
        except ImportError:
            raise MissingExtra("ipywidgets", "notebook") from None
        self.sliders: dict[str, Any] = _sliders(ipywidgets)
        self._sentences = ipywidgets.HTML()
        self._pictures = [ipywidgets.Image(format="svg+xml") for _ in range(3)]
        self._box = ipywidgets.VBox([*self.sliders.values(), self._sentences, *self._pictures])
        for slider in self.sliders.values():
            slider.observe(self._moved, names="value")
        self._moved()

    def value(self, name: str) -> Any:
        """The value of a slider."""
        return self.sliders[name].value

    @property
    def _choice(self) -> _Choice:
        return NOISES[self.value("mechanism")]

    @property
    def curve(self) -> Curve:
        """The curve of `count` releases for a group of `group` people, each over a Poisson sample of the people."""
        count: int = self.value("count")
        return self._choice.curve(self.value("noise"), self.value("rate"), self.value("group")) ** count

    @property
    def figures(self) -> tuple[Figure, Figure, Figure]:
        """(trade-off and privacy curve, the laws of one release, the beliefs of an attacker)."""
        curve, alpha = self.curve, self.value("false alarms")
        named = {"now": curve}
        return (
            compare(named, delta=self.value("δ")),
            self._choice.laws(float(self.value("noise")), self.value("group")),
            odds(named, false_alarms=alpha, prior=self.value("prior")),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The main numbers as sentences, each rounded to its safe side."""
        curve, epsilon, delta = self.curve, self.value("ε"), self.value("δ")
        alpha, prior = self.value("false alarms"), self.value("prior")
        beta = curve.beta(alpha=alpha)
        low, high = believed(beta, alpha, np.array(prior))
        return (
            f"ε = {rounded_up(curve.epsilon(delta=delta), 4)} at δ = {delta:.3g}",
            f"δ = {rounded_up(curve.delta(epsilon=epsilon), 3)} at ε = {epsilon:.3g}",
            f"misses at least {math.floor(1e4 * beta) / 100:.2f} % at {100 * alpha:.3g} % false alarms",
            f"{100 * prior:.3g} % sure before; after an alarm at most {math.ceil(1e4 * float(high)) / 100:.2f} %, "
            f"after none at least {math.floor(1e4 * float(low)) / 100:.2f} %",
        )

    def _moved(self, _: object = None) -> None:
        self.sliders["noise"].description = self._choice.level
        self.sliders["rate"].disabled = self._choice.is_local
        if self.sliders["rate"].disabled and self.value("rate") < 1:
            self.sliders["rate"].value = 1.0  # calls this method again
            return
        self._sentences.value = "<br>".join(self.words)
        for picture, figure in zip(self._pictures, self.figures, strict=True):
            picture.value = svg(figure).encode()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._box._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"<Explorer of {self.curve.expression()}>"


def explore() -> Explorer:
    """Sliders over noise, rate, count, group, ε, δ and prior that change the figures, for a notebook.

    Needs ipywidgets and matplotlib (extra `notebook`); raises `MissingExtra` without them.
    """
    return Explorer()


def _sliders(widgets: Any) -> dict[str, Any]:
    """The sliders in order. Figures are drawn when a slider is released, because certified numbers take a moment."""
    wide: dict[str, Any] = {
        "continuous_update": False,
        "style": {"description_width": "9em"},
        "layout": {"width": "32em"},
    }

    def stops(name: str, values: list[Any], start: Any) -> Any:
        return widgets.SelectionSlider(description=name, options=values, value=start, **wide)

    def decades(name: str, low: float, high: float, start: float) -> Any:
        return widgets.FloatLogSlider(
            description=name, min=low, max=high, step=0.1, value=start, readout_format=".3g", **wide
        )

    return {
        "mechanism": widgets.ToggleButtons(options=list(NOISES), value="Gaussian"),
        "noise": decades("σ", -1, 2, 2.0),
        "count": stops("releases", [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000], 1),
        "rate": stops("share of people", [1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01], 1.0),
        "group": stops("people in a group", [1, 2, 3, 5, 10], 1),
        "ε": decades("ε", -2, 1.5, 1.0),
        "δ": decades("δ", -8, -1, 1e-6),
        "false alarms": stops("false alarms", [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5], 0.05),
        "prior": stops("sure before", [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99], 0.5),
    }


__all__ = ["Explorer", "explore"]
