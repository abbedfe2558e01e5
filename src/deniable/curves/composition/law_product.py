"""A product of laws in one direction: δ(ε) and ε(δ), certified from both sides, by the tightest route available.

Routes, in the order tried:

1. `factor_merging.simplify`: Gaussians merge into one (μ² adds), finite laws multiply exactly while they stay small,
   and a law that only fails with probability δ merges with one other law.
2. One law left, run once: its own closed form.
3. Laws with analytic moments, such as sampled Gaussians that run often: a contour integral (`contour_panel.py`).
4. Many different laws: panels from a tree of partial products (`convolution_tree.py`).
5. Otherwise FFT panels on a lattice (`compose.py`), refined until the bracket is narrow.

`Product` holds two lists of factors, because each law may itself be known only between two bounds: the `upper` factors
give upper bounds on δ and ε, the `lower` factors lower bounds. Both sides are always computed; if they contradict each
other by more than rounding, `outward_rounding.ordered` raises NotCertifiable instead of returning a wrong number.

How a panel is chosen. `LatticePlan` turns the wanted ε or δ into a tilt θ. The error law of the lattice (the bracket of
ε is about Σ uses (θ+1) h²/8 wide) turns the wanted width into a grid step h. If the bracket comes out too wide, the
step shrinks and the window grows, at most four times, or until rounding errors or memory are the limit.

ε(δ) is then a search on a bound that is already proved at every ε (`profile_search`). If the bracket stays wide and the
product is a power of a law with rare large losses, `far_losses` and `jump_split` narrow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deniable import numbers
from deniable.curves.composition import (
    compose,
    contour_panel,
    convolution_tree,
    far_losses,
    lattice,
    likely_loss,
    tilt_plan,
    window_reach,
)
from deniable.curves.composition.contour_panel import ContourPanel
from deniable.curves.composition.delta_panel import DeltaPanel
from deniable.curves.composition.factor_merging import (
    LongFactors,
    highest_of,
    lossy_of,
    plan_of,
    tree_panels,
    uses_of,
)
from deniable.curves.composition.profile_search import largest, renyi_epsilon, smallest
from deniable.curves.composition.rounded_panel import Panel
from deniable.curves.composition.tilt_plan import Factor, LatticePlan, Target
from deniable.curves.laws.derived_laws import IdentityLaw
from deniable.curves.laws.finite_law import FiniteLaw
from deniable.curves.laws.law import Law
from deniable.curves.outward_rounding import UNIT_ROUNDOFF, Floats, Side, all_above, all_below, ordered

WIDTH = 1e-4
"""Wanted (high - low) / high of an ε; the plan aims at a fifth of it."""

DELTA_WIDTH = 1e-3
"""Wanted (high - low) / high of a δ: log δ changes about ten times as fast as ε."""

CONTOUR_WIDTH = 1e-6
"""Wanted (high - low) / high of a δ from contour integrals."""

MAX_CONTOURS = 12
"""The most contour integrals for one question about δ: far apart ε need several, and then a lattice is cheaper."""

TREE_WIDTH = 0.25e-4
"""The relative width of the bracket of ε that a tree of partial products is planned for."""

ALWAYS_TREE = 400
"""From this many distinct laws on, a tree of partial products with longer steps is always used."""

LONG_WINDOWS = (compose.LARGEST_WINDOW,) * 4
POWER_WINDOWS = (2**18, 2**19, *LONG_WINDOWS[2:])
"""The longest windows that are tried, one after the other; those of a power that may be split at its large losses."""

FAR_TOO_WIDE = 0.01
"""A bracket of ε whose relative width exceeds this is a sign that the plan was wrong."""

MAX_PANELS = 64
MOST_KINKS = 4000


def _ever(chances: Iterable[tuple[float, int]]) -> float:
    """The probability that at least one of these independent events happens, each tried `count` times."""
    never = 0.0
    for chance, count in chances:
        if not chance < 1:
            return 1.0
        never += count * math.log1p(-chance)
    return -math.expm1(never)


@dataclass(slots=True)
class Product:
    """A product of laws in one direction: simplified `upper` and `lower` factors, with the panels computed so far.

    `renyi` is given for products with a factor of which only Rényi divergences are known: an upper bound on the
    product's divergence at each order.
    """

    upper: tuple[Factor, ...]
    lower: tuple[Factor, ...]
    renyi: Callable[[float], float] | None = None
    _panels: list[Panel] = field(default_factory=list)
    _plan: LatticePlan | None = None
    _plans: dict[float, LatticePlan] = field(default_factory=dict)
    _divergences: Floats | None = None
    _latest: tuple[Floats, Floats, Floats, float] | None = None
    _planned_by: Product | None = None
    _differs: float | None = None
    tilt: float = 0.0
    """The tilt of the latest contour integral."""
    _contour: tuple[float, tuple[float, float] | None] | None = None
    _made: dict[tuple[Side, float, float, float, float, float], DeltaPanel | None] = field(default_factory=dict)

    def fresh(self) -> Product:
        """The same product without its cached panels."""
        return Product(self.upper, self.lower, self.renyi, _planned_by=self)

    # -- closed forms ------------------------------------------------------------------------------------------------

    @staticmethod
    def _single(factors: tuple[Factor, ...]) -> Law | None:
        """The law of the whole product if merging left a single law that runs once; else None."""
        if not factors:
            return IdentityLaw()
        if len(factors) == 1 and factors[0].uses == 1:
            return factors[0].law
        return None

    @staticmethod
    def single(factors: tuple[Factor, ...]) -> Law:
        """The one law that is left after merging."""
        law = Product._single(factors)
        assert law is not None
        return law

    @property
    def needs_panels(self) -> bool:
        """Whether more than one law is left after merging, so that the lattice is needed."""
        return self._single(self.upper) is None or self._single(self.lower) is None

    @property
    def highest(self) -> float:
        """The largest finite loss (an upper bound)."""
        return highest_of(self.upper) * (1 + (4 + len(self.upper)) * UNIT_ROUNDOFF)

    @property
    def kinks(self) -> Floats:
        """Losses at which the profile is known to have a kink (at most MOST_KINKS)."""
        law = self._single(self.upper)
        if isinstance(law, FiniteLaw):
            return law.losses if len(law.losses) <= MOST_KINKS else np.zeros(0)
        return np.array(law.atoms if law is not None else ())

    def infinity(self, side: Side) -> float:
        """The probability of infinite loss: an upper or a lower bound, by `side`."""
        factors = self.upper if side == "upper" else self.lower
        lossy = lossy_of(factors)
        if not lossy:
            return 0.0
        outwards = max(f.law.infinity_error for f in lossy) * (1 if side == "upper" else -1)
        if len(lossy) == 1 and lossy[0].uses == 1:
            return min(lossy[0].law.infinity * (1 + outwards), 1.0)
        outwards += 1e-15 if side == "upper" else -1e-15
        return min(_ever((f.law.infinity, f.uses) for f in lossy) * (1 + outwards), 1.0)

    def _apart(self) -> float:
        """An upper bound on δ(0), and so on δ(ε) for every ε >= 0: under a coupling, the outputs of the product differ
        only if the outputs of some factor differ, and P(no difference) >= Π (1 - δ_i(0)). For factors that rarely act,
        such as rare samples, this bound is sharper than a lattice.
        """
        if self._differs is None:
            once = ((float(law.profile(np.zeros(1))[1][0]), count) for law, count in self.upper)
            self._differs = min(_ever(once) * (1 + 1e-12), 1.0)
        return self._differs

    # -- δ(ε) for ε >= 0 ---------------------------------------------------------------------------------------------

    def delta(self, epsilon: Floats, side: Side, blur: float = 0.0) -> Floats:
        """A certified bound on δ(ε), ε >= 0. A bracket narrower than `blur` is not narrowed further.

        Both sides are computed and compared whichever is asked for: raises NotCertifiable if they cross.
        """
        above, below = self._single(self.upper), self._single(self.lower)
        low, high = np.zeros_like(epsilon), np.ones_like(epsilon)
        if above is None or below is None:
            low, high = self._by_panels(epsilon, blur)
        if above is not None:
            own, high = above.profile(epsilon)
            low = own if below is above else low
        if below is not None and below is not above:
            low = below.profile(epsilon)[0]
        if self.renyi is not None:
            high = np.minimum(high, self._renyi_delta(epsilon))
        low, high = ordered(low, high)
        return high if side == "upper" else low

    def _by_panels(self, epsilon: Floats, blur: float) -> tuple[Floats, Floats]:
        """Both bounds at once, cached: a caller that asks for one side often asks for the other next."""
        latest = self._latest  # another thread may replace it meanwhile
        if latest is None or latest[3] > blur or not np.array_equal(latest[0], epsilon):
            latest = (epsilon.copy(), *self._both_by_panels(epsilon, blur), blur)
            self._latest = latest
        return latest[1].copy(), latest[2].copy()

    def _both_by_panels(self, epsilon: Floats, blur: float) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ at each ε. The widest brackets are narrowed by panels of their own, at most
        MAX_PANELS.
        """
        chernoff = self.plan.delta_bound(epsilon) + self.infinity("upper")
        low, high = np.zeros_like(epsilon), np.minimum(chernoff, self._apart())
        beyond = epsilon >= self.highest
        high[beyond] = min(self.infinity("upper"), 1.0)
        low[beyond] = self.infinity("lower")
        for panel in self._panels:
            self._read(panel, epsilon, low, high)
        self._read_contours(epsilon, low, high, blur, beyond)
        tries = np.zeros(len(epsilon), dtype=int)
        for _ in range(MAX_PANELS):
            open_ = ~((high - low <= DELTA_WIDTH * high + blur) | (high < 1e-290) | beyond | (tries > 1))
            if not np.any(open_):
                break
            index = int(np.flatnonzero(open_)[np.count_nonzero(open_) // 2])
            target = self.plan.at_epsilon(float(epsilon[index]))
            refine = (
                1.0 if tries[index] == 0 else max(DELTA_WIDTH * high[index] / (4 * (high - low)[index] + 1e-300), 1e-3)
            )
            zone, weight = 1e-9 * (1 + abs(float(epsilon[index]))), 1
            panels = self.panels_for(target, ("upper", "lower"), refine)
            if not panels:
                break
            for panel in panels:
                self._panels.append(panel)
                self._read(panel, epsilon, low, high)
                zone = max(zone, panel.spread / 2)
                # A window at the memory limit cannot be refined.
                weight = 2 if panel.length >= compose.LARGEST_WINDOW // 2 else 1
            self._forget()
            # Within half a standard deviation another panel would not be sharper than this one.
            tries[np.abs(epsilon - epsilon[index]) <= zone] += weight
        return low, high

    def _read_contours(
        self, epsilon: Floats, low: Floats, high: Floats, blur: float, beyond: NDArray[np.bool_]
    ) -> None:
        """Narrow the brackets (low, high), in place, by contour integrals, as ε(δ) does."""
        if self.renyi is not None or not contour_panel.suits(self.upper, 1e-6):
            return
        tries = np.zeros(len(epsilon), dtype=int)
        for _ in range(MAX_CONTOURS):
            open_ = (high - low > CONTOUR_WIDTH * high + blur) & (high > 1e-290) & ~beyond & (tries < 2) & (epsilon > 0)
            if not np.any(open_):
                break
            index = int(np.flatnonzero(open_)[np.count_nonzero(open_) // 2])
            tries[index] += 1
            sure = self.infinity("upper"), self.infinity("lower")
            # The best bounds so far say which δ to aim at.
            aim = max(high[index] - sure[0], low[index] - sure[1], 0.0)
            panels = self._contours(min(aim, 0.5)) if aim > 0 else None
            if panels is None:
                continue
            np.minimum(high, all_above(panels[0].delta(epsilon)[1] + sure[0]), out=high)
            np.maximum(low, all_below(panels[1].delta(epsilon)[0] + sure[1]), out=low)

    def _forget(self) -> None:
        """Drop the oldest panels: keep as many as fit into a few megabytes."""
        room = 2 * compose.MOST_REMEMBERED
        kept = 0
        for panel in reversed(self._panels):
            room -= len(panel.heads)
            if room < 0:
                break
            kept += 1
        self._panels = self._panels[len(self._panels) - kept :]
        self._made.clear()

    def _read(self, panel: Panel, epsilon: Floats, low: Floats, high: Floats) -> None:
        """Narrow the bracket (low, high), in place, by the bound of a panel."""
        values = panel.delta(epsilon)
        if panel.side == "upper":
            np.minimum(high, np.minimum(values, 1.0), out=high)
        else:
            np.maximum(low, np.minimum(values, 1.0), out=low)

    # -- panels ------------------------------------------------------------------------------------------------------

    def panels_for(
        self,
        target: Target,
        sides: tuple[Side, ...],
        refine: float = 1.0,
        outside: float | None = None,
        resolution: float | None = None,
        longest: int = compose.LARGEST_WINDOW,
    ) -> list[Panel]:
        """One panel per side, sharp at the target; the step doubles until the window fits into memory. An empty list if
        no panel can be computed. The step resolves ε to a part of `resolution` (by default, of the ε aimed at), as
        far as `longest` points allow.
        """
        beyond = compose.OUTSIDE * min(refine, 1.0) ** 2 if outside is None else outside
        theta = _rounded(target.theta)
        found: list[Panel] = []
        # There is no finite ε to aim at, or so many uses that rounding errors exceed the masses.
        uses = uses_of(self.upper)
        if not math.isfinite(target.epsilon) or 8 * UNIT_ROUNDOFF * uses > compose.MOST_ROUNDING:
            return found
        if isinstance(self.upper, LongFactors) and isinstance(self.lower, LongFactors):
            found = self._by_tree(target, theta, sides, refine, resolution)
            if found:
                return found
        for side in sides:
            factors = self.upper if side == "upper" else self.lower
            steps = math.fsum(f.uses for f in factors)
            tail = self._tail(target.log_delta, steps)
            # The lower side is about twice as far off as the error law says: plan half the width for it.
            share = refine if side == "upper" else refine / 2
            least = self._smallest_step(factors, theta, tail, beyond) * (compose.LARGEST_WINDOW / longest)
            step = tilt_plan.aligned_step(
                factors, max(self._step(factors, target, share, resolution, tail), least), 0.7 * least
            )
            for _ in range(40):
                # An origin within a few hundred of ε is near enough, and similar questions then share panels.
                asked = (side, theta, step, tail, beyond, 200.0 * round(target.epsilon / 200.0))
                # At the memory limit the step stops shrinking, and the same panel is asked for again.
                panel = self._made[asked] if asked in self._made else compose.compose(factors, *asked)
                self._made[asked] = panel
                if panel is not None:
                    found.append(panel)
                    break
                step *= 2
        return found

    def _by_tree(
        self, target: Target, theta: float, sides: tuple[Side, ...], refine: float, resolution: float | None
    ) -> list[Panel]:
        """`panels_for` by a tree of partial products; an empty list if the product does not suit one."""
        found: list[Panel] = []
        for factors in (self.upper,) if self.lower is self.upper else (self.upper, self.lower):
            assert isinstance(factors, LongFactors)
            uses = uses_of(factors)
            spread = self.plan.spread(theta)
            wanted = TREE_WIDTH * max(target.epsilon if resolution is None else resolution, min(spread, 0.05))
            step = convolution_tree.step_for(uses, theta, spread, wanted * min(refine, 1.0))
            tree = convolution_tree.TreePlan(theta, step, self._tail(target.log_delta, uses))
            both = tree_panels(factors, tree)
            for _ in range(12 if len(factors) >= ALWAYS_TREE else 0):
                if both is None:
                    tree = tree._replace(step=2 * tree.step)
                    both = tree_panels(factors, tree)
            if both is None:
                return []
            mine = sides if self.lower is self.upper else (("upper",) if factors is self.upper else ("lower",))
            found += [panel for panel in both if panel.side in mine and panel.side in sides]
        return found

    @staticmethod
    def _tail(log_delta: float, steps: float) -> float:
        """The P-mass that each use may lose above its lattice: all uses together lose at most 1e-6 of a small δ, and
        1e-8 of a δ near 1, beside which 1 - δ may matter.
        """
        digits = 6 if log_delta < -5 else 8
        return float(10.0 ** math.floor(max(log_delta / math.log(10) - digits - math.log10(2 * steps), -290.0)))

    @staticmethod
    def _smallest_step(factors: tuple[Factor, ...], theta: float, tail: float, outside: float) -> float:
        """The step at which the window, or the reach of one law, fills the allowed memory."""
        longest = max(high - low for low, high in (lattice.reach(f.law, tail) for f in factors))
        window = window_reach.likely_window(factors, theta, outside, window_reach.sketch_cut(tail))
        return max(window, longest) / compose.LARGEST_WINDOW

    @staticmethod
    def _step(
        factors: tuple[Factor, ...], target: Target, refine: float, resolution: float | None, tail: float
    ) -> float:
        """Lattice step from the error law: the bracket of ε is about Σ count (θ+1) h²/8 wide (theory page, eq. 6).

        Near its centre a profile changes over a standard deviation of the loss, whatever the tilt: this gives the least
        slope, and the finest resolution to begin with.
        """
        count = math.fsum(f.uses for f in factors)
        spread = math.sqrt(tilt_plan.sketched(factors, target.theta, window_reach.sketch_cut(tail)).curvature)
        spread = max(spread, 1e-18)
        wanted = WIDTH / 5 * max(abs(target.epsilon) if resolution is None else resolution, min(spread, 0.05)) * refine
        step = math.sqrt(8 * wanted / (count * max(target.theta + 1, 1 / spread)))
        return float(2.0 ** (math.floor(4 * math.log2(step)) / 4))

    # -- ε(δ) --------------------------------------------------------------------------------------------------------

    def epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Certified (low, high) around inf{ε >= 0 : δ(ε) <= delta}."""
        if self.needs_panels and delta > 0:
            low, high = self.contour_bracket(delta) or self._without_contour(delta)
        else:
            high = self._epsilon_above(delta)
            low = self._epsilon_below(delta, high)
        if self.renyi is not None:
            high = min(high, self._renyi_epsilon(delta))
        below, above = ordered(low, high)
        return float(below), float(above)

    def _without_contour(self, delta: float) -> tuple[float, float]:
        """The bracket of ε from lattices; where it is too wide, from a long contour integral, or from likely losses."""
        low, high = self._epsilon_bracket(delta)
        if high - low > WIDTH * high and delta < 1 and self.renyi is None:
            longer = self._by_contour(delta, contour_panel.LAST_RESORT)
            low, high = (low, high) if longer is None else (max(low, longer[0]), min(high, longer[1]))
        if low < high / 2 < math.inf and delta < likely_loss.LEAST_DELTA:
            low = max(low, likely_loss.likely_epsilon(self.lower))
        return low, high

    def contour_bracket(self, delta: float) -> tuple[float, float] | None:
        """The bracket of ε by a contour integral; None if the product does not suit one, or if the bracket is wide."""
        if not self.needs_panels or not 0 < delta < 1 or self.renyi is not None:
            return None
        if self._contour is None or self._contour[0] != delta:
            self._contour = (delta, self._by_contour(delta))
        return self._contour[1]

    def contour_bound(self, delta: float, tilt: float | None = None) -> float:
        """A quick upper bound on ε(δ) from analytic moments near a tilt (by default, the best one), or inf."""
        least = numbers.below(delta - self.infinity("upper"))
        if not self.needs_panels or not 0 < least < 1 or self.renyi is not None:
            return math.inf
        return contour_panel.chernoff_bound(self.upper, least, tilt)

    def _by_contour(self, delta: float, cost: float = contour_panel.MOST_EVALUATIONS) -> tuple[float, float] | None:
        # What is left of δ for the finite losses, rounded to the safe side.
        least, most = numbers.below(delta - self.infinity("upper")), numbers.above(delta - self.infinity("lower"))
        if not least > 0:
            return None
        panels = self._contours(least, cost)
        if panels is None:
            return None
        self.tilt = panels[0].c
        low, high = panels[1].bracket(most)[0], panels[0].bracket(least)[1]
        if not (high < math.inf and high - low <= WIDTH * high):
            return None
        below, above = ordered(low, high)
        return float(below), float(above)

    def _contours(
        self, delta: float, cost: float = contour_panel.MOST_EVALUATIONS
    ) -> tuple[ContourPanel, ContourPanel] | None:
        """Contour integrals for the upper and the lower bound on the δ of the finite losses, sharp where it is `delta`;
        None if the product does not suit them.
        """
        above = contour_panel.panel_for(self.upper, delta, cost)
        below = above if self.lower is self.upper or above is None else contour_panel.panel_for(self.lower, delta, cost)
        return None if above is None or below is None else (above, below)

    def _power(self) -> Factor | None:
        """The one law and its uses, if the product is a power of a law that may have rare large losses."""
        if len(self.upper) != 1 or self.lower != self.upper or self.upper[0].uses < 2:
            return None
        law = self.upper[0].law
        return None if law.infinity > 0 or law.atoms else self.upper[0]

    def crude_delta(self, epsilon: Floats) -> Floats:
        """An upper bound on δ(ε) without any FFT."""
        chernoff = self.plan.delta_bound(np.maximum(epsilon, 0.0)) + self.infinity("upper")
        return np.asarray(np.where(epsilon > 0, np.minimum(chernoff, 1.0), 1.0))

    def epsilon_above(self, delta: float) -> float:
        """A certified upper bound on ε(δ) that is quick but not always sharp: one panel, not refined."""
        if self.needs_panels and delta > 0:
            found = self._epsilon_bracket(delta, ("upper",))[1]
        else:
            found = self._epsilon_above(delta)
        return found if self.renyi is None else min(found, self._renyi_epsilon(delta))

    def _epsilon_above(self, delta: float) -> float:
        """The upper bound on ε(δ), if one law is left or δ = 0."""
        if delta < self.infinity("upper") or (delta == 0 and not math.isfinite(self.highest)):
            return math.inf
        law = self._single(self.upper)
        if law is None:
            return self.highest
        return smallest(lambda e: law.profile(e)[1], delta, law.highest)

    def _epsilon_below(self, delta: float, high: float) -> float:
        """The lower bound on ε(δ), if one law is left or δ = 0. `high` is the upper bound."""
        if delta < self.infinity("lower") or (delta == 0 and not math.isfinite(self.highest)):
            return math.inf
        law = self._single(self.lower)
        if law is None:
            return highest_of(self.lower) * (1 - (4 + len(self.lower)) * UNIT_ROUNDOFF)
        end = high if self.lower is self.upper else smallest(lambda e: law.profile(e)[1], delta, law.highest)
        return largest(lambda e: law.profile(e)[0], delta, 0.0, end)

    def _epsilon_bracket(self, delta: float, sides: tuple[Side, ...] = ("upper", "lower")) -> tuple[float, float]:
        """The bracket of ε from panels, refined until it is narrow or until rounding keeps it wide. With the upper side
        alone: one panel, not refined.
        """
        if delta < self.infinity("upper"):
            return (math.inf if delta < self.infinity("lower") else 0.0), math.inf
        left = delta - self.infinity("upper")
        target = self.aim(max(left, delta * 1e-9))
        # The Chernoff bound holds for the δ aimed at: it applies only if that much δ is left.
        low, high = 0.0, min(target.bound if left >= delta * 1e-9 else math.inf, self.highest)
        refine, outside, before, power = 1.0, compose.OUTSIDE, math.inf, self._power()
        for longest in LONG_WINDOWS if power is None else POWER_WINDOWS:
            panels = self.panels_for(target, sides, refine, outside, longest=longest)
            for panel in panels:
                if panel.side == "upper":
                    high = min(high, smallest(panel.delta, delta, high))
                else:
                    # Search slightly beyond the upper bound too, so that bounds that cross are detected.
                    low = max(
                        low, largest(panel.delta, delta, max(panel.start, 0.0), min(high * (1 + 1e-6), panel.end))
                    )
            width = (high - low) / high if high > 0 else 0.0
            if "lower" not in sides or not math.isfinite(high) or width <= WIDTH * 0.9 or width > 0.8 * before:
                break
            if refine == 1.0 and power is not None and high > 0:
                low, high = far_losses.narrowed(power, delta, low, high, WIDTH, lambda each: Product(each, each))
                if high - low <= WIDTH * high:
                    break
            if _is_noise(panels, high) and longest == compose.LARGEST_WINDOW:
                break
            before = width
            # Far too wide. Either a law has detail finer than the step, and a finer step helps more than planned; or it
            # has separate atoms, whose error is of first order in the step, so that the step must shrink by the square.
            missing = WIDTH / (3 * width)
            lonely = any(isinstance(f.law, FiniteLaw) for f in self.lower)
            refine = max(refine * (missing**2 if lonely and width > 4 * WIDTH else max(missing, 0.1)), 1e-6)
            # Or ε lies far below the one aimed at, where mass outside the window is multiplied by e^(θ distance).
            outside = compose.LEAST_OUTSIDE if width > FAR_TOO_WIDE else min(outside, compose.OUTSIDE * refine**2)
            target = target._replace(epsilon=min(high, 1e300))
        return low, high

    def aim(self, delta: float) -> Target:
        """The tilt for a δ, with the ε of the sharp Chernoff bound, which is itself a valid upper bound."""
        return self._truncated_plan(math.log(delta)).at_delta(delta)

    def _truncated_plan(self, log_delta: float) -> LatticePlan:
        """The plan for laws without the losses whose probability is negligible beside this δ.

        The exponential moments of a rarely sampled Gaussian explode because of losses that practically never happen.
        """
        if math.isfinite(highest_of(self.upper)):
            return self.plan
        tail = self._tail(log_delta, uses_of(self.upper))
        if tail not in self._plans:
            self._plans[tail] = plan_of(self.upper, tail)
        return self._plans[tail]

    @property
    def plan(self) -> LatticePlan:
        """The Chernoff bounds of the upper factors at all tilts, computed once."""
        if self._plan is None:
            self._plan = (
                plan_of(self.upper, tilt_plan.SKETCH_TAIL) if self._planned_by is None else self._planned_by.plan
            )
        return self._plan

    # -- Rényi route (only when a factor is known by its Rényi divergences alone) ------------------------------------

    def _renyi_delta(self, epsilon: Floats) -> Floats:
        """An upper bound on δ(ε) from Rényi divergences at all TILTS."""
        if self._divergences is None:
            assert self.renyi is not None
            self._divergences = np.array([self.renyi(float(s) + 1) for s in tilt_plan.TILTS])
        known = np.isfinite(self._divergences)
        tilts, gaps, divergences = tilt_plan.TILTS[known], tilt_plan.BEST_GAPS[known], self._divergences[known]
        if not len(tilts):
            return np.ones_like(epsilon)
        logs = tilts[None, :] * (divergences[None, :] - epsilon[:, None]) + gaps[None, :]
        return np.asarray(np.exp(np.minimum(np.min(logs, axis=1), 0.0)) * (1 + 1e-12))

    def _renyi_epsilon(self, delta: float) -> float:
        assert self.renyi is not None
        return renyi_epsilon(self.renyi, delta)


def _is_noise(panels: Sequence[Panel], epsilon: float) -> bool:
    """Whether rounding in the FFTs causes most of the distance between the bounds on δ(ε): a finer step cannot reduce
    it.
    """
    if len(panels) < 2 or not math.isfinite(epsilon):
        return False
    at = np.array([epsilon])
    values = [float(panel.delta(at)[0]) for panel in panels]
    return sum(float(panel.rounding(at)[0]) for panel in panels) > 0.5 * abs(values[0] - values[1])


def _rounded(theta: float) -> float:
    """The tilt rounded to a grid of about 3 %: any tilt is valid, and similar questions share cached lattice laws."""
    return 0.0 if theta < 1e-6 else 2.0 ** (round(24 * math.log2(theta)) / 24)
