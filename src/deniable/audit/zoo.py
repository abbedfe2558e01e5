"""The zoo: mechanisms that are known to be broken, with their true ε, and similar ones that are sound.

Each entry has a claim, a pair of neighbours, the true ε on that pair, and a lesson. A good audit catches all broken
entries and blames no sound one.

>>> from deniable.audit import zoo
>>> entry = zoo.entries["half the sensitivity"]
>>> entry.claimed, entry.truth
(1.0, 2.0)
>>> zoo.look(entry, trials=20_000, confidence=0.999).caught
True
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from deniable import curves
from deniable.audit import zoo_samplers
from deniable.audit.exact_curve import laplace_cdf, laplace_nodes, threshold_law
from deniable.audit.finding import Finding
from deniable.audit.measurement import measure
from deniable.audit.zoo_samplers import Draw, ZooSampler
from deniable.curves import Curve
from deniable.errors import InvalidParameter
from deniable.mechanisms import Exponential, MonotoneNoisyMax, NoisyMax, PermuteAndFlip

__all__ = ["Look", "ZooEntry", "broken", "entries", "look", "sound"]

SMALL: Final = 1e-5
"""The δ of the entries that are about δ."""


@final
@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A mechanism with its claim and the truth about it."""

    name: str
    claim: Curve
    neighbours: tuple[Any, Any]
    mechanism: ZooSampler | None
    """None if no realistic number of answers can show the error; see `curve`."""
    teaches: str
    source: str
    delta: float
    """The δ at which ε is stated."""
    sound: bool
    _truth: Callable[[], float | Curve]

    @property
    def claimed(self) -> float:
        """The claimed ε at `delta`."""
        return float(self.claim.epsilon(delta=self.delta))

    @property
    def curve(self) -> Curve | None:
        """The true curve on the pair of neighbours; None if only its ε is known."""
        known = _known(self)
        return known if isinstance(known, Curve) else None

    @property
    def truth(self) -> float:
        """The true ε at `delta` on the pair of neighbours, in the worse direction. It is for noise on the real line;
        the sampler rounds noise to multiples of 2⁻²⁰.
        """
        known = _known(self)
        return float(known.epsilon(delta=self.delta)) if isinstance(known, Curve) else known

    @property
    def exactly_refuted(self) -> bool:
        """Whether the true curve provably exceeds the claim at some ε."""
        true = self.curve
        if true is None:
            return self.truth > self.claimed * (1 + 1e-9)
        for epsilon in (*np.linspace(0.0, 20.0, 41).tolist(), self.claimed):
            if math.isfinite(epsilon) and true.delta_bounds(epsilon=epsilon)[0] > self.claim.delta(epsilon=epsilon):
                return True
        return False


@lru_cache(maxsize=64)
def _worked_out(make: Callable[[], float | Curve]) -> float | Curve:
    return make()


def _known(entry: ZooEntry) -> float | Curve:
    return _worked_out(entry._truth)


@final
@dataclass(frozen=True, slots=True)
class Look:
    """The audit of one entry."""

    entry: ZooEntry
    finding: Finding | None

    @property
    def caught(self) -> bool:
        """Whether the claim was refuted: by answers or, for an entry without a sampler, exactly."""
        return bool(self.finding.refuted) if self.finding is not None else self.entry.exactly_refuted

    @property
    def seen(self) -> bool:
        """Whether the audit proved any difference between the neighbours; without it, a sound entry was not tested."""
        return self.finding is None or self.finding.seen

    @property
    def as_it_should(self) -> bool:
        """Whether a broken entry was caught, or a sound one was tested and not blamed."""
        return self.caught != self.entry.sound and self.seen


def look(entry: ZooEntry, *, trials: int, confidence: float) -> Look:
    """Measure an entry on its pair of neighbours."""
    if not isinstance(entry, ZooEntry):
        raise InvalidParameter(
            "entry", entry, "must be an entry of the zoo", 'zoo.entries["half the sensitivity"] is one'
        )
    if entry.mechanism is None:
        return Look(entry, None)
    found = measure(
        entry.mechanism,
        neighbours=entry.neighbours,
        claim=entry.claim,
        trials=trials,
        confidence=confidence,
        delta=entry.delta,
    )
    return Look(entry, found)


# -- truths ----------------------------------------------------------------------------------------------------------


def _constant(value: float) -> Callable[[], float]:
    return lambda: value


def _pmf(law: Callable[[Any], dict[Any, float]], pair: tuple[Any, Any]) -> Callable[[], Curve]:
    def work() -> Curve:
        p, q = law(pair[0]), law(pair[1])
        outcomes = [*p, *(y for y in q if y not in p)]
        return curves.from_pmf([p.get(y, 0.0) for y in outcomes], [q.get(y, 0.0) for y in outcomes], tied=True)

    return work


def _sparse(threshold_scale: float, answer_scale: float, positives: int | None) -> Callable[[Any], dict[Any, float]]:
    return lambda asked: dict(
        threshold_law(
            [float(v) for v in asked],
            threshold_scale=threshold_scale,
            answer_scale=answer_scale,
            positives=positives,
        )
    )


def _no_noise(asked: Any) -> dict[Any, float]:
    """Variant 5: the answers depend only on the interval between values in which the noisy threshold lies."""
    cuts = sorted({float(v) for v in asked})
    ends = [-math.inf, *cuts, math.inf]
    found: dict[Any, float] = {}
    for low, high in pairwise(ends):
        answers = tuple(v >= high for v in asked)
        mass = float(laplace_cdf(np.array([high]), 2.0)[0] - laplace_cdf(np.array([low]), 2.0)[0])
        found[answers] = found.get(answers, 0.0) + mass
    return found


def _value_too(queries: int) -> float:
    """Variant 3: the ε of the event "all below, then a value v <= 0", by quadrature over the noisy threshold."""
    nodes, weights = laplace_nodes(2.0, [0.0], 2.0)
    under = nodes <= -1.0
    masses = [float(weights[under] @ laplace_cdf(nodes[under] - q, 2.0) ** queries) for q in (0.0, 1.0)]
    return math.log(masses[0] / masses[1])


def _probabilities(selector: Any) -> Callable[[Any], dict[Any, float]]:
    return lambda scores: dict(enumerate(selector.probabilities(scores).tolist()))


def _binomial(epsilon: float, times: int) -> Callable[[Any], dict[Any, float]]:
    keep = 1 / (1 + math.exp(-epsilon))

    def law(value: Any) -> dict[Any, float]:
        p = keep if value else 1 - keep
        return {k: math.comb(times, k) * p**k * (1 - p) ** (times - k) for k in range(times + 1)}

    return law


def _two_batches(sigma: float, delta: float) -> float:
    """ε at this δ of one epoch with two shuffled batches: ½N((1, 0), σ²) + ½N((0, 1), σ²) against N(0, σ²).

    The likelihood ratio is (W + W′)/2 for two independent W = exp(z/σ - 1/2σ²): given one of them, δ is an option on
    the other with the formula of Black & Scholes. Quadrature over the first.
    """
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(400)
    z = 12 * nodes
    first, mass = np.exp(z / sigma - 0.5 / sigma**2), 12 * weights * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    def worse(epsilon: float) -> float:
        odds, found = math.exp(epsilon), []
        for rest, sign in ((2 * odds - first, 1.0), (2 / odds - first, -1.0)):
            # If the bound for the other variable is not positive, it is always exceeded.
            at = sigma * np.log(np.maximum(rest, 1e-300)) + 0.5 / sigma
            if sign > 0:  # E (W/2 + W'/2 - e^ε)+
                found.append(mass @ ((first / 2 - odds) * ndtr(-at) + ndtr(1 / sigma - at) / 2))
            else:  # E (1 - e^ε (W + W')/2)+
                found.append(mass @ ((1 - odds * first / 2) * ndtr(at) - odds / 2 * ndtr(at - 1 / sigma)))
        return float(max(found))

    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if worse(middle) > delta else (low, middle)
    return low


CLASSIC: Final = math.sqrt(2 * math.log(1.25 / SMALL))
"""The classic Gaussian's σ × ε."""
PRINTED: Final = 2 * math.sqrt(2 * 500 * math.log(1 / SMALL))
"""Advanced composition as Near & Abuah (2021) print it, for 500 releases of ε = 1."""
LYU: Final = "Lyu, Su & Li 2017"

_LIST: list[ZooEntry] = []


def _add(
    name: str,
    draw: Draw | None,
    neighbours: tuple[Any, Any],
    claim: Curve,
    truth: Callable[[], float | Curve],
    teaches: str,
    source: str,
    *,
    delta: float = 0.0,
    sound: bool = False,
) -> None:
    sampler = None if draw is None else ZooSampler(name, draw)
    _LIST.append(ZooEntry(name, claim, neighbours, sampler, teaches, source, delta, sound, truth))


ONE: Final = curves.pure(epsilon=1.0)

_add("half the sensitivity", zoo_samplers.noisy(1.0), (0.0, 2.0), curves.laplace(scale=1.0),
     _constant(2.0), "The scale must match the sensitivity: half the scale is twice the ε.",
     "Dwork & Roth 2014")  # fmt: skip
_add("histogram, a row replaced", zoo_samplers.noisy(1.0), ([1.0, 0.0], [0.0, 1.0]), ONE,
     lambda: curves.laplace(scale=1.0) ** 2, "A replaced row leaves one bin and enters another.",
     "Dwork & Roth 2014, 3.3")  # fmt: skip
_add("sparse vector 3: shows the value",
     zoo_samplers.sparse_vector(threshold_scale=2.0, answer_scale=2.0, positives=1, values=True),
     ([0] * 6, [1] * 5 + [0]), ONE, lambda: _value_too(5),
     "A noisy value reveals how low the noisy threshold was; the leak grows with every question.",
     f"{LYU}, Alg. 3")  # fmt: skip
_add("sparse vector 4: noise ignores c",
     zoo_samplers.sparse_vector(threshold_scale=4.0, answer_scale=4 / 3, positives=5),
     ([1] * 8 + [0] * 5, [0] * 8 + [1] * 5), ONE,
     _pmf(_sparse(4.0, 4 / 3, 5), ([1] * 8 + [0] * 5, [0] * 8 + [1] * 5)),
     "Noise on the answers must grow with the number of positives.", f"{LYU}, Alg. 4")  # fmt: skip
_add("sparse vector 5: answers without noise",
     zoo_samplers.sparse_vector(threshold_scale=2.0, answer_scale=0.0, positives=None), ([0, 1], [1, 0]), ONE,
     _pmf(_no_noise, ([0, 1], [1, 0])), "One noisy threshold does not hide exact answers.",
     f"{LYU}, Alg. 5")  # fmt: skip
_add("sparse vector 6: never stops",
     zoo_samplers.sparse_vector(threshold_scale=2.0, answer_scale=2.0, positives=None),
     ([0] * 10, [1] * 5 + [-1] * 5), ONE, _pmf(_sparse(2.0, 2.0, None), ([0] * 10, [1] * 5 + [-1] * 5)),
     "Every positive answer costs ε: without a limit on them, ε has no bound.", f"{LYU}, Alg. 6")  # fmt: skip
_add("noisy max with its value", zoo_samplers.largest_value("laplace", 2.0), ([0] * 5, [1] * 5), ONE,
     _constant(2.5), "The index costs ε; the winning value reveals more, about every score.",
     "Ding et al. 2018")  # fmt: skip
_add("noisy max with its value, one-sided", zoo_samplers.largest_value("exponential", 2.0), ([0] * 5, [1] * 5), ONE,
     _constant(math.inf), "One-sided noise has a smallest value, which moves with the data.",
     "Ding et al. 2018")  # fmt: skip
_add("noisy max, scale 1/ε, any scores", zoo_samplers.largest_index("laplace", 1.0), ([0, 5], [1, 4]), ONE,
     _pmf(_probabilities(MonotoneNoisyMax(sensitivity=1, epsilon=1)), ([0, 5], [1, 4])),
     "If scores are not monotone, the difference of two scores moves by 2.", "Dwork & Roth 2014, 3.9")  # fmt: skip
_add("exponential mechanism without the 1/2", zoo_samplers.largest_index("gumbel", 1.0),
     ([0] + [1] * 9, [1] + [0] * 9), ONE,
     _pmf(_probabilities(Exponential(sensitivity=1, scale=1)), ([0] + [1] * 9, [1] + [0] * 9)),
     "The normaliser moves too, unless all scores move the same way.", "McSherry & Talwar 2007")  # fmt: skip
_add("noise scaled to the data", zoo_samplers.scaled_to_the_data, ([0.0, 0.0], [0.0, 1.0]), ONE, _constant(math.inf),
     "The scale of the noise is an output too: local sensitivity leaks.", "Nissim et al. 2007")  # fmt: skip
_add("nothing to hide at zero", zoo_samplers.silent_zero, (0, 1), curves.laplace(scale=1.0), _constant(math.inf),
     "An exact answer in a special case reveals that the case occurred.", "folklore")  # fmt: skip
_add("one seed for two answers", zoo_samplers.one_seed, ([10.0, 20.0], [11.0, 20.0]), curves.laplace(scale=1.0) ** 2,
     _constant(math.inf), "Equal noise cancels: the difference of the answers is exact.",
     "Garfinkel & Leclerc 2020")  # fmt: skip
_add("naive float Laplace", zoo_samplers.float_laplace, (0.0, 1.0), curves.laplace(scale=1.0), _constant(math.inf),
     "The last digits of a float reveal to which value the noise was added.", "Mironov 2012")  # fmt: skip
_add("naive float Gaussian", zoo_samplers.float_gaussian, (0.0, 1.0), curves.gaussian(sigma=1.0), _constant(math.inf),
     "The same for every noise that is drawn and added in floats.", "Jin et al. 2022",
     delta=SMALL)  # fmt: skip
_add("classic Gaussian at ε = 15", None, (0.0, 1.0), curves.approximate(epsilon=15.0, delta=SMALL),
     lambda: curves.gaussian(sigma=CLASSIC / 15), "The classic formula is proved for ε < 1, and false from 8.42 on.",
     "Balle & Wang 2018", delta=SMALL)  # fmt: skip
_add("unary encoding, ε for each bit", zoo_samplers.per_bit(1.0, 4), (0, 1), ONE,
     lambda: curves.randomized_response(epsilon=1.0) ** 2, "Two bits differ between two answers.",
     "Wang et al. 2017")  # fmt: skip
_add("threshold on the raw count", zoo_samplers.raw_threshold, (4, 5), curves.laplace(scale=1.0), _constant(math.inf),
     "Whether something is shown at all must be decided by a noisy count.", "folklore")  # fmt: skip
_add("keys that nobody paid for", zoo_samplers.low_threshold, (0, 1), curves.laplace(scale=1.0) * curves.approximate(
     epsilon=0.0, delta=SMALL), _constant(math.inf),
     "A key that only one person has reveals that person: δ = P(noise >= threshold - 1).",
     "Korolova et al. 2009", delta=SMALL)  # fmt: skip
_add("RAPPOR without memory", zoo_samplers.repeated_response(1.0, 10), (False, True), ONE,
     _pmf(_binomial(1.0, 10), (False, True)), "Fresh noise in every report: ten reports cost ten times.",
     "Erlingsson et al. 2014")  # fmt: skip
_add("averaging", zoo_samplers.noisy(1.0), ([0.0] * 10, [1.0] * 10), curves.laplace(scale=1.0),
     lambda: curves.laplace(scale=1.0) ** 10, "Asking ten times averages the noise away.",
     "Dwork et al. 2006")  # fmt: skip
_add("advanced composition as printed", None, (0, 1), curves.approximate(epsilon=PRINTED, delta=SMALL),
     lambda: curves.laplace(scale=1.0) ** 500, "2ε√(2k log 1/δ) holds for kε² <= 8 log 1/δ only.",
     "Near & Abuah 2021", delta=SMALL)  # fmt: skip
_add("a sum that wraps around", zoo_samplers.wrapping_sum, ([2**31 - 1], [2**31 - 1, 1]), curves.laplace(scale=1.0),
     _constant(float(2**32 - 1)), "Machine sums overflow: one person moves them by 2³².",
     "Casacuberta et al. 2022")  # fmt: skip
_add("gradient noise divided twice", zoo_samplers.averaged_gradient(2.0, 10), (0.0, 1.0), curves.gaussian(sigma=2.0),
     lambda: curves.gaussian(sigma=0.2), "Noise is for the sum; a mean divides it along with the sum, once.",
     "Tramèr et al. 2022", delta=SMALL)  # fmt: skip
_add("a batch clipped as a whole", zoo_samplers.clipped_batch(2.0, 10), ([0.0] * 10, [100.0] + [0.0] * 9),
     curves.gaussian(sigma=2.0), lambda: curves.gaussian(sigma=0.2),
     "Clip every gradient separately: one outlier moves a mean that is clipped as a whole by up to its bound.",
     "Tramèr et al. 2022", delta=SMALL)  # fmt: skip
_add("shuffled, counted as sampled", zoo_samplers.shuffled_batches(0.3, 2), (0.0, 1.0),
     curves.gaussian(sigma=0.3).sampled(rate=0.5) ** 2, lambda: _two_batches(0.3, 0.6),
     "In shuffled batches everybody takes part once; Poisson sampling leaves some people out.",
     "Chua et al. 2024", delta=0.6)  # fmt: skip

_add("Laplace", zoo_samplers.noisy(1.0), (0.0, 1.0), curves.laplace(scale=1.0), lambda: curves.laplace(scale=1.0),
     "What it should look like.", "Dwork et al. 2006", sound=True)  # fmt: skip
_add("histogram, a row added", zoo_samplers.noisy(1.0), ([1.0, 0.0], [1.0, 1.0]), ONE,
     lambda: curves.laplace(scale=1.0), "One row, one bin.", "Dwork & Roth 2014", sound=True)  # fmt: skip
_add("sparse vector 1", zoo_samplers.sparse_vector(threshold_scale=2.0, answer_scale=8.0, positives=2),
     ([0] * 8, [1] * 4 + [-1] * 4), ONE, _pmf(_sparse(2.0, 8.0, 2), ([0] * 8, [1] * 4 + [-1] * 4)),
     "Noise on the threshold, more on the answers, and a limit on positive answers.", f"{LYU}, Alg. 1",
     sound=True)  # fmt: skip
_add("noisy max, index only", zoo_samplers.largest_index("exponential", 2.0), ([0, 8], [1, 7]), ONE,
     _pmf(_probabilities(PermuteAndFlip(sensitivity=1, epsilon=1)), ([0, 8], [1, 7])),
     "Only the index is released, with one-sided noise: exactly ε.", "Ding et al. 2021", sound=True)  # fmt: skip
_add("noisy max, scale 2/ε", zoo_samplers.largest_index("laplace", 2.0), ([0, 8], [1, 7]), ONE,
     _pmf(_probabilities(NoisyMax(sensitivity=1, epsilon=1)), ([0, 8], [1, 7])),
     "The factor 2 that any scores need.", "Dwork & Roth 2014", sound=True)  # fmt: skip
_add("exponential mechanism", zoo_samplers.largest_index("gumbel", 2.0), ([0] + [1] * 9, [1] + [0] * 9), ONE,
     _pmf(_probabilities(Exponential(sensitivity=1, epsilon=1)), ([0] + [1] * 9, [1] + [0] * 9)),
     "With the 1/2.", "McSherry & Talwar 2007", sound=True)  # fmt: skip
_add("unary encoding, ε/2 for each bit", zoo_samplers.per_bit(0.5, 4), (0, 1), ONE,
     lambda: curves.randomized_response(epsilon=0.5) ** 2, "Half of ε for each of two bits.",
     "Wang et al. 2017", sound=True)  # fmt: skip
_add("RAPPOR with memory", zoo_samplers.remembered_response(1.0, 10), (False, True), ONE,
     lambda: curves.randomized_response(epsilon=1.0), "Ten reports of one memory cost once.",
     "Erlingsson et al. 2014", sound=True)  # fmt: skip
_add("classic Gaussian at ε = 2", None, (0.0, 1.0), curves.approximate(epsilon=2.0, delta=SMALL),
     lambda: curves.gaussian(sigma=CLASSIC / 2), "The formula is not proved at ε = 2, but it holds there.",
     "Balle & Wang 2018", delta=SMALL, sound=True)  # fmt: skip


@final
class _Entries(dict[str, ZooEntry]):
    """A dict whose error for an unknown name suggests a known one."""

    __slots__ = ()

    def __missing__(self, name: object) -> ZooEntry:
        near = difflib.get_close_matches(name, self, 1) if isinstance(name, str) else []
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidParameter("entry", name, "is not in the zoo", f"{hint}list(zoo.entries) has all names")


entries: Final[dict[str, ZooEntry]] = _Entries((entry.name, entry) for entry in _LIST)
"""Every entry, by name."""


def broken() -> list[ZooEntry]:
    """The broken entries, which an audit should catch."""
    return [entry for entry in _LIST if not entry.sound]


def sound() -> list[ZooEntry]:
    """The sound entries, which an audit should not blame."""
    return [entry for entry in _LIST if entry.sound]
