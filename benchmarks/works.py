"""What is computed: mechanisms as plain data, and the list of works that every library is given.

Nothing heavy is imported here. The exact values come from `truth.py`, which knows none of the libraries compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gaussian", "sampled_gaussian", "laplace", "randomized_response"]
Ask = Literal["epsilon", "lower", "add one", "sigma"]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism of sensitivity 1: `size` is σ, the Laplace scale or the ε of randomized response."""

    kind: Kind
    size: float
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """A mechanism and how often it runs."""

    mechanism: Mechanism
    count: int = 1


@dataclass(frozen=True, slots=True)
class Contour:
    """Where `truth.py` integrates in double precision: Re s, the end and the step of Im s; and whether in both
    directions.
    """

    at: float
    top: float
    step: float
    both: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """A question put to every library.

    epsilon   the smallest ε at δ, as an upper bound
    lower     the same, as a lower bound
    add one   `parts` are held and have been asked before; add `more` and ask again. Only this second step is timed
    sigma     the smallest σ of the (single) part for which ε(δ) <= `target`
    """

    name: str
    parts: tuple[Part, ...] = field(repr=False)
    delta: float
    truth: float
    group: str
    ask: Ask = "epsilon"
    more: Mechanism | None = None
    target: float = 0.0
    contour: Contour | None = None

    def whole(self) -> tuple[Part, ...]:
        """Everything that has run when the question is put."""
        return (*self.parts, Part(self.more)) if self.more is not None else self.parts


def gaussian(sigma: float) -> Mechanism:
    return Mechanism("gaussian", sigma)


def sampled(rate: float, sigma: float) -> Mechanism:
    """The Gaussian mechanism on a Poisson sample, S-G(rate, σ) in the tables."""
    return Mechanism("sampled_gaussian", sigma, rate)


def laplace(scale: float) -> Mechanism:
    return Mechanism("laplace", scale)


def response(epsilon: float) -> Mechanism:
    return Mechanism("randomized_response", epsilon)


def _times(*pairs: tuple[Mechanism, int]) -> tuple[Part, ...]:
    return tuple(Part(mechanism, count) for mechanism, count in pairs)


SGD = sampled(0.01, 1.0)
HELD = _times((SGD, 10_000))
DISTINCT_GAUSSIANS = tuple(Part(gaussian(100 + i / 100)) for i in range(10_000))
DISTINCT_LAPLACES = tuple(Part(laplace(200 + i / 100)) for i in range(10_000))
DISTINCT_SAMPLED = tuple(Part(sampled(0.01, 1 + i / 50), 100) for i in range(100))

LAPLACES_300 = tuple(Part(laplace(20 + i / 10)) for i in range(300))
MIXED_200 = tuple(
    Part(mechanism)
    for i in range(50)
    for mechanism in (laplace(10 + i / 3), gaussian(20 + i / 5), sampled(0.01, 1 + i / 20), response(0.1 + i / 300))
)

TABLE, MIXTURES, HELD_GROUP, SMALLEST = "the table", "mixtures", "one more on 10,000 held", "smallest σ"
RARE, MANY = "rare samples", "many different mechanisms"

# The fourth argument is the exact answer: printed by `python benchmarks/truth.py`, 16 of the 27 or more digits on which
# its two contours agree.
WORKS: tuple[Work, ...] = (
    Work("gaussian(1)^1, 1e-5", _times((gaussian(1), 1)), 1e-5, 4.377178095681225, TABLE),
    Work("gaussian(1)^100, 1e-5", _times((gaussian(1), 100)), 1e-5, 91.81728962466374, TABLE),
    Work("gaussian(1)^10⁴, 1e-5", _times((gaussian(1), 10_000)), 1e-5, 5425.50984614743, TABLE),
    Work("S-G(.01,1)^10³, 1e-5", _times((SGD, 1000)), 1e-5, 1.828236666516577, TABLE),
    Work("S-G(.01,1)^10⁴, 1e-5", HELD, 1e-5, 6.187712389971539, TABLE),
    Work("S-G(.01,1)^10⁵, 1e-5", _times((SGD, 100_000)), 1e-5, 25.57310698652151, TABLE),
    Work("S-G(.01,4)^10⁴, 1e-5", _times((sampled(0.01, 4), 10_000)), 1e-5, 0.9468668007643805, TABLE),
    Work("laplace(10)^1000, 1e-6", _times((laplace(10), 1000)), 1e-6, 18.95028736753956, TABLE),
    Work("randomized_response(1)^500, 1e-5", _times((response(1), 500)), 1e-5, 311.7676046397107, TABLE),
    Work("S-G(.01,1)^10⁴, 1e-12", HELD, 1e-12, 10.346689837674, TABLE),
    Work("S-G(.01,1)^10⁴, 1e-20", HELD, 1e-20, 13.87977271667247, TABLE),
    Work("S-G(.01,1)^10⁴, 1e-30", HELD, 1e-30, 17.63506105288602, TABLE),
    Work("S-G(.01,1)^10⁵, 1e-5, from below", _times((SGD, 100_000)), 1e-5, 25.57310698652151, TABLE, "lower"),
    Work(
        "S-G(.01,1)^1000 · laplace(10)^100, 1e-6",
        _times((SGD, 1000), (laplace(10), 100)),
        1e-6,
        5.226236973806545,
        MIXTURES,
    ),
    Work(
        "gaussian(20)^500 · laplace(4)^10 · RR(.1)^50, 1e-6",
        _times((gaussian(20), 500), (laplace(4), 10), (response(0.1), 50)),
        1e-6,
        7.831972052272743,
        MIXTURES,
    ),
    Work(
        "S-G(.01,1)^2000 · S-G(.02,1.5)^3000, 1e-5",
        _times((SGD, 2000), (sampled(0.02, 1.5), 3000)),
        1e-5,
        4.542546147684434,
        MIXTURES,
    ),
    Work(
        "laplace(10)^500 · laplace(7)^500, 1e-6",
        _times((laplace(10), 500), (laplace(7), 500)),
        1e-6,
        24.67339355652398,
        MIXTURES,
    ),
    Work(
        "RR(.1)^300 · RR(.37)^200 · gaussian(5)^10, 1e-6",
        _times((response(0.1), 300), (response(0.37), 200), (gaussian(5), 10)),
        1e-6,
        39.89073734351552,
        MIXTURES,
    ),
    Work(
        "everything: S-G(.01,1)^1000 · gaussian(20)^100 · laplace(10)^100 · RR(.1)^50, 1e-9",
        _times((SGD, 1000), (gaussian(20), 100), (laplace(10), 100), (response(0.1), 50)),
        1e-9,
        8.719491882210173,
        MIXTURES,
    ),
    *(
        Work(name, _times((sampled(rate, sigma), count)), delta, truth, RARE, contour=contour)
        for name, rate, sigma, count, delta, truth, contour in (
            ("S-G(1.4e-4,.647)^11136, 2.4e-6", 1.4e-4, 0.647, 11136, 2.4e-6, 0.3501503392, Contour(3, 4500, 0.1)),
            ("S-G(.001,.8)^1000, 1e-6", 1e-3, 0.8, 1000, 1e-6, 0.4676830584, Contour(5, 3000, 0.1)),
            ("S-G(1.03e-4,.815)^5689, 1.3e-10", 1.03e-4, 0.815, 5689, 1.3e-10, 0.2828022133, Contour(6, 6000, 0.2)),
            ("S-G(2.26e-4,1)^983, 5.6e-7", 2.26e-4, 1.0, 983, 5.6e-7, 0.0384267136, Contour(10, 4500, 0.2)),
            ("S-G(1.77e-4,1.26)^2569, 3.4e-10", 1.77e-4, 1.26, 2569, 3.4e-10, 0.0454769101, Contour(15, 4500, 0.2)),
        )
    ),
    Work("300 different laplaces, 1e-6", LAPLACES_300, 1e-6, 2.461490077144, MANY, contour=Contour(8, 150, 0.1)),
    Work("10⁴ different laplaces, 1e-5", DISTINCT_LAPLACES, 1e-5, 1.58916775649, MANY, contour=Contour(6, 60, 0.1)),
    Work("200 mixed, 1e-6", MIXED_200, 1e-6, 7.013789205554, MANY, contour=Contour(4, 40, 0.1, both=True)),
    Work("S-G(.01,1)^10⁴, one more of the same, 1e-5", HELD, 1e-5, 6.188065247391543, HELD_GROUP, "add one", SGD),
    Work(
        "S-G(.01,1)^10⁴, one laplace(10) more, 1e-5", HELD, 1e-5, 6.20632806151166, HELD_GROUP, "add one", laplace(10)
    ),
    Work(
        "10⁴ different gaussians, one more, 1e-5",
        DISTINCT_GAUSSIANS,
        1e-5,
        2.943690868284211,
        HELD_GROUP,
        "add one",
        gaussian(99),
    ),
    Work(
        "10⁴ different laplaces, one more, 1e-5",
        DISTINCT_LAPLACES,
        1e-5,
        1.589301245426272,
        HELD_GROUP,
        "add one",
        laplace(199),
    ),
    Work(
        "100 different S-G × 100, one more, 1e-5",
        DISTINCT_SAMPLED,
        1e-5,
        2.821646494823472,
        HELD_GROUP,
        "add one",
        sampled(0.01, 3.005),
    ),
    Work(
        "smallest σ: ε=1, δ=1e-6, q=.01, T=10⁴",
        _times((sampled(0.01, 1), 10_000)),
        1e-6,
        4.302106465630459,
        SMALLEST,
        "sigma",
        target=1.0,
    ),
)
