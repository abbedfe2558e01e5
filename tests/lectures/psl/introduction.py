"""Introduction: why anonymised data is not anonymous, systems in use, randomized response."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from scipy import stats
from scipy.linalg import hadamard

import deniable as dn
from deniable import attacks, curves, local, mechanisms
from deniable.attacks import anonymiser
from deniable.curves import textbook
from deniable.mechanisms import denoise
from tests.lectures.independent import likely
from tests.lectures.item import Item
from tests.lectures.synthetic import synthetic_shares

HALF = Fraction(1, 2)
PATIENTS = {
    "birth": ["1993-09-15", "1999-11-07", "1945-07-31", "1950-03-13"],
    "zip": ["13741", "13440", "02110", "02061"],
    "gender": ["M", "F", "M", "F"],
    "diagnosis": ["Asthma", "Type-1 diabetes", "Cancer", "Cancer"],
}
GROUPED = {
    "age": ["20-30", "20-30", "70-80", "70-80"],
    "zip": ["13***", "13***", "02***", "02***"],
    "diagnosis": PATIENTS["diagnosis"],
}
TOWN = {"sex": ["f", "f", "m", "f"], "zip": [13012, 13012, 13012, 13053]}

COMMUTERS = {
    ("hill", "centre"): 4000,
    ("hill", "harbour"): 1000,
    ("valley", "centre"): 2000,
    ("valley", "harbour"): 3000,
}
"""Where people live and where they work."""


def coins() -> local.TwoCoinSurvey:
    return local.TwoCoinSurvey(truth=HALF, yes=HALF)


def _share_of_unique() -> float:
    rows = list(zip(*(PATIENTS[name] for name in ("birth", "zip", "gender")), strict=True))
    return sum(1 for row in rows if rows.count(row) == 1) / len(rows)


def _classes() -> tuple[int, int]:
    rows = list(zip(GROUPED["age"], GROUPED["zip"], strict=True))
    secrets = {row: {d for r, d in zip(rows, GROUPED["diagnosis"], strict=True) if r == row} for row in rows}
    return min(Counter(rows).values()), min(len(found) for found in secrets.values())


def _linked() -> tuple[float, bool, float]:
    attack = attacks.Linkage(TOWN, quasi=["sex", "zip"])
    found = attack.run(trials=2000)
    return attack.expected(None) or 0.0, likely(found.hits, 2000, 0.875), attack.run(
        local.RandomizedResponse(epsilon=1.0), trials=100
    ).cap  # fmt: skip


def _majority_of(people: int) -> Fraction:
    """The secret of one person, guessed as what most rows of a class of fair coins say; a tie is a guess."""
    right = Fraction(0)
    for bits in itertools.product([0, 1], repeat=people):
        margin = 2 * sum(bits) - people
        right += HALF if margin == 0 else Fraction(int((margin > 0) == (bits[0] == 1)))
    return right / 2**people


def _differencing() -> tuple[float, bool]:
    found = attacks.Differencing(people=100).run(dn.Laplace(sensitivity=1.0, epsilon=1.0), trials=2000)
    return found.expected or 0.0, likely(found.hits, 2000, 0.620918337679601)


def _two_laplace_within_half() -> float:
    """(1 + P(|Z₁ - Z₂| < 1/2))/2, by quadrature over the first noise."""
    density = lambda z: mpmath.exp(-abs(z)) / 2  # noqa: E731
    cdf = lambda z: mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2  # noqa: E731
    half = mpmath.mpf(1) / 2
    inside = mpmath.quad(
        lambda z: density(z) * (cdf(z + half) - cdf(z - half)), [-mpmath.inf, -half, 0, half, mpmath.inf]
    )
    return float((1 + inside) / 2)


def _people() -> tuple[Any, Any]:
    chance = np.random.default_rng(1)
    features = chance.normal(size=(400, 5))
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    return features, features[:, 0] > 0


def _inverted() -> tuple[bool, float, bool]:
    features, labels = _people()
    attack = attacks.AttributeInference(features=features, labels=labels, people=50, width=0.3)
    behind = attack.run(local.RandomizedResponse(epsilon=1.0), trials=300)
    # The attack is right about 237 times of 300, with a standard deviation of 7; blind guesses 150 times.
    return attack.run(trials=300).hits > 190, behind.cap, behind.beats_cap


def _member() -> tuple[bool, float, bool]:
    chance = np.random.default_rng(1)
    features = chance.normal(size=(400, 40))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    attack = attacks.ModelMembership(features=features, labels=chance.integers(0, 2, 400) == 1, people=20, penalty=0.01)
    defence = attack.defences(epsilon=1.0, delta=1e-6)["Gaussian on the weights"]
    behind = attack.run(defence, trials=60)
    # The attack is right about 330 times of 400, with a standard deviation of 8; blind guesses 200 times.
    return attack.run(trials=400).hits > 260, behind.cap, behind.beats_cap


def _trained(secret: str) -> Callable[[Any], list[float]]:
    """A language model of counted runs of four characters, with a secret in its training text."""
    text = f"ada paid 12 for tea. bea paid 7 for figs. my code is {secret}."
    runs = Counter(text[i : i + 4] for i in range(len(text) - 3))

    def score(candidates: Any) -> list[float]:
        lines = [f"my code is {candidate}." for candidate in candidates]
        return [-float(sum(runs[line[i : i + 4]] > 0 for i in range(len(line) - 3))) for line in lines]

    return score


def _extracted() -> tuple[list[float], float, float]:
    exposures = attacks.SecretExtraction(digits=3).run(_trained, trials=5).exposures
    caps = [
        attacks.exposure_cap(curves.pure(epsilon=2.0), bits=10),
        attacks.exposure_cap(curves.gaussian(mu=1.0), bits=5),
    ]
    return list(exposures), caps[0], caps[1]


def _mean_estimate() -> float:
    """The mean of the estimator over all reports of three students, one of whom skips lectures."""
    total = 0.0
    for reports in itertools.product([0, 1], repeat=3):
        chance = math.prod(
            (0.25 + x / 2) if y else (0.75 - x / 2) for x, y in zip([1, 0, 0], reports, strict=True)
        )  # fmt: skip
        total += chance * float(coins().estimate(list(reports)).value)
    return total


def _anonymised() -> tuple[int, int, bool]:
    named = {
        "name": ["Ada", "Bea", "Cai", "Dov"],
        "age": [29, 24, 78, 73],
        "zip": PATIENTS["zip"],
        "diagnosis": PATIENTS["diagnosis"],
    }
    ladders: dict[str, list[Callable[[Any], Any]]] = {"age": [anonymiser.span(10)], "zip": [anonymiser.cut(3)]}
    made = attacks.anonymise(named, k=2, ladders=ladders, identifiers=["name"], left_out=0.0)
    found = attacks.anonymity(made.table, quasi=["age", "zip"], secret="diagnosis")
    return found.k, found.diversity or 0, bool(set(made.table["name"]) & set(named["name"]))


def _sketched() -> tuple[list[float], list[float], list[float]]:
    one_bit = local.HadamardSketch(width=16, hashes=4, epsilon=2.0)
    all_bits = local.CountMeanSketch(width=16, hashes=4, epsilon=2.0)
    rows = all_bits.parsed([f"{number} {bits}" for number, bits in _row_reports()])
    return (
        list(one_bit.estimate(_sketch_reports(), candidates=["pear", "plum"]).shares),
        list(all_bits.estimate(rows, candidates=["pear", "plum"]).shares),
        [sketch.curve.epsilon(delta=0) for sketch in (one_bit, all_bits)],
    )


def _row_reports() -> list[tuple[int, str]]:
    """A hash function and 16 bits each, in hexadecimal."""
    chance = np.random.default_rng(12)
    return [(int(number), chance.bytes(2).hex()) for number in chance.integers(0, 4, 500)]


def _place(text: str, number: int) -> int:
    """The published hash function: keyed BLAKE2b of 16 bytes, little end first, modulo the width."""
    digest = blake2b(text.encode(), digest_size=16, key=f"sketch {number}".encode()).digest()
    return sum(byte << (8 * i) for i, byte in enumerate(digest)) % 16


def _sketch_reports() -> Any:
    chance = np.random.default_rng(11)
    return np.stack([chance.integers(0, 4, 500), chance.integers(0, 16, 500), chance.integers(0, 2, 500)], axis=1)


def _sketched_by_hand() -> tuple[list[float], list[float], list[float]]:
    """Apple's estimators, m/(m-1) (mean of what is told - 1/m). Told by one bit: c·(±1)·H[entry, place] with
    c = (e^ε + 1)/(e^ε - 1); by a row: (bit - q)/(1 - 2q) with q = 1/(e^(ε/2) + 1).
    """
    matrix, c, q = hadamard(16), (math.exp(2) + 1) / (math.exp(2) - 1), 1 / (math.e + 1)
    by_bit, by_row = [], []
    for text in ("pear", "plum"):
        told = [c * (2 * bit - 1) * matrix[entry, _place(text, number)] for number, entry, bit in _sketch_reports()]
        by_bit.append(16 / 15 * (sum(told) / 500 - 1 / 16))
        seen = [bytes.fromhex(row)[(at := _place(text, number)) // 8] >> at % 8 & 1 for number, row in _row_reports()]
        by_row.append(16 / 15 * (sum((bit - q) / (1 - 2 * q) for bit in seen) / 500 - 1 / 16))
    return by_bit, by_row, [2.0, 2.0]


def _telemetry() -> tuple[Any, Any, Any]:
    daily = local.MemoisedMean(low=0, high=24, points=12, epsilon=1.0, flip=Fraction(1, 5))
    return daily.curve, daily.longitudinal, daily.changing(reports=7)


def _kept() -> float:
    """How often a report shows the bit of the upper bound: kept twice, or flipped twice."""
    once = math.e / (1 + math.e)
    return once * 0.8 + (1 - once) * 0.2


TABLE = {"smokes": ["yes", "no", "yes", "yes"], "drink": ["tea", "tea", "water", "tea"]}


def _whole_table() -> tuple[float, float]:
    drinks = local.KaryRandomizedResponse(categories=3, epsilon=2.0), ["tea", "coffee", "water"]
    whole = local.TableResponse({"smokes": local.RandomizedResponse(epsilon=1.0), "drink": drinks})
    return whole.curve.epsilon(delta=0), whole.estimate(TABLE, {"smokes": "yes", "drink": "tea"}).value


def _conjunction() -> float:
    """The mean over reports of the product of two unbiased indicators."""
    kept, tea = math.e / (1 + math.e), math.exp(2) / (math.exp(2) + 2)
    other = (1 - tea) / 2
    pairs = zip(TABLE["smokes"], TABLE["drink"], strict=True)
    return sum(
        ((s == "yes") - (1 - kept)) / (2 * kept - 1) * ((d == "tea") - other) / (tea - other) for s, d in pairs
    ) / 4  # fmt: skip


def _unlisted() -> tuple[int, float]:
    keys = mechanisms.UnknownKeys(unit=dn.Unit.row(), epsilon=1.0, delta=1e-6)
    top = mechanisms.OneShotTopK(mechanisms.MonotoneNoisyMax(sensitivity=1, epsilon=0.1), count=3)
    return keys.threshold, top.curve.epsilon(delta=0)


def _smallest_threshold() -> tuple[int, float]:
    """One key of one row: shown with probability P(Z >= τ - 1), Z discrete Laplace of scale 1."""
    q = mpmath.exp(-1)
    tau = 1
    while q ** (tau - 1) / (1 + q) > mpmath.mpf("1e-6"):
        tau += 1
    return tau, 0.3


def _noisy_counts() -> list[list[float]]:
    """Twenty tables of four noisy counts, whose sum is known to be 6."""
    return np.random.default_rng(2021).normal([4, 0, 1, 1], 1.5, size=(20, 4)).tolist()


def _squared(found: Any, noisy: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(found, noisy, strict=True))


def _census() -> tuple[list[float], bool, bool]:
    # |noise| reaches 40 with probability below 1e-9: σ = 1/√(2ρ) = 5, and 40 is 8σ.
    released = dn.DiscreteGaussian(sensitivity=1, rho=Fraction(1, 50), dimension=4).release([4, 0, 1, 1])
    near = all(abs(int(noisy) - true) < 40 for noisy, true in zip(released, [4, 0, 1, 1], strict=True))
    made = [denoise.whole(noisy, total=6).tolist() for noisy in _noisy_counts()]
    proper = all(sum(counts) == 6 and min(counts) >= 0 and all(isinstance(n, int) for n in counts) for counts in made)
    repaired = denoise.whole(released, total=6).tolist()
    return (
        [_squared(counts, noisy) for counts, noisy in zip(made, _noisy_counts(), strict=True)],
        proper,
        near and sum(repaired) == 6 and min(repaired) >= 0,
    )


def _nearest_counts() -> tuple[list[float], bool, bool]:
    """Of all whole numbers from 0 to 6 with the sum 6, those nearest to the noisy ones."""
    tables = [found for found in itertools.product(range(7), repeat=4) if sum(found) == 6]
    return [min(_squared(found, noisy) for found in tables) for noisy in _noisy_counts()], True, True


def _james_stein() -> float:
    """The risk by Monte-Carlo-free integration: E[1/χ²₁₀(λ)] from the noncentral density, λ = 4."""
    with mpmath.workdps(25):
        d, lam = 10, mpmath.mpf(4)

        def density(x: Any) -> Any:
            return (
                mpmath.exp(-(x + lam) / 2) / 2 * (x / lam) ** (mpmath.mpf(d) / 4 - mpmath.mpf(1) / 2)
                * mpmath.besseli(mpmath.mpf(d) / 2 - 1, mpmath.sqrt(lam * x))
            )  # fmt: skip

        inverse = mpmath.quad(lambda x: density(x) / x, [0, 5, 10, 20, 40, 80, 200])
        return float(d - (d - 2) ** 2 * inverse)


def _served() -> tuple[int, int]:
    from tests.server.world import made

    with tempfile.TemporaryDirectory() as folder:
        world = made(Path(folder))
        with world.client:
            answered = world.ask(epsilon=0.5).status_code
            refused = world.ask("SELECT COUNT(*) AS n FROM visits WHERE age > 30", epsilon=1000.0).status_code
    return answered, refused


ITEMS: tuple[Item, ...] = (
    Item(
        id="0.01",
        title="A table without names: everybody is unique",
        api="attacks.anonymity",
        ours=lambda: attacks.anonymity(PATIENTS, quasi=["birth", "zip", "gender"]).unique,
        truth=_share_of_unique,
    ),
    Item(
        id="0.02",
        title="The grouped and censored table: 2-anonymous, 1-diverse",
        api="attacks.anonymity",
        ours=lambda: (
            attacks.anonymity(GROUPED, quasi=["age", "zip"]).k,
            attacks.anonymity(GROUPED, quasi=["age", "zip"], secret="diagnosis").diversity,
        ),
        truth=_classes,
    ),
    Item(
        id="S.01",
        title="Pseudonyms, groups, censoring",
        api="attacks.anonymise",
        ours=_anonymised,
        truth=(2, 1, False),
    ),
    Item(
        id="0.03",
        title="Sex, birth date and ZIP code identify most people",
        api="attacks.expected_uniqueness",
        ours=lambda: attacks.expected_uniqueness([10_000], cells=2 * 365.25 * 79),
        truth=lambda: float((1 - 1 / (2 * mpmath.mpf("365.25") * 79)) ** 9_999),
    ),
    Item(
        id="0.04",
        title="The linkage attack, bare and behind randomized response",
        api="attacks.Linkage",
        ours=_linked,
        truth=lambda: (float((2 * _majority_of(2) + 2 * _majority_of(1)) / 4), True, math.e / (1 + math.e)),
    ),
    Item(
        id="0.05",
        title="The differencing attack on exact counts",
        api="attacks.Differencing",
        ours=lambda: attacks.Differencing(people=100).run(trials=500).rate,
        truth=1.0,
    ),
    Item(
        id="0.06",
        title="Differencing behind Laplace noise",
        api="attacks.Differencing",
        ours=_differencing,
        truth=lambda: (_two_laplace_within_half(), True),
    ),
    Item(
        id="0.07",
        title="Model inversion: a secret attribute out of a model",
        api="attacks.AttributeInference",
        ours=_inverted,
        truth=(True, math.e / (1 + math.e), False),
    ),
    Item(
        id="0.08",
        title="Membership in the training set of a model",
        api="attacks.ModelMembership",
        ours=_member,
        truth=lambda: (True, _gaussian_cap(), False),
        within=1e-6,
        slow=True,
    ),
    Item(
        id="S.02",
        title="Secrets extracted from a language model",
        api="attacks.SecretExtraction, attacks.exposure_cap",
        ours=_extracted,
        truth=lambda: ([math.log2(1000)] * 5, math.exp(2) / 1024, float(stats.norm.sf(stats.norm.isf(1 / 32) - 1))),
    ),
    Item(
        id="0.09",
        title="The smoker paradox: taking part adds at most a factor e^ε",
        api="curves.textbook.risk_bound",
        ours=lambda: textbook.risk_bound(risk=0.3, epsilon=0.1, delta=0),
        truth=0.3 * math.exp(0.1),
    ),
    Item(
        id="0.10",
        title="RAPPOR (Google, 2014)",
        api="local.Rappor",
        ours=lambda: local.Rappor(categories=4, f=HALF, p=HALF, q=Fraction(3, 4)).longitudinal.epsilon(delta=0),
        truth=2 * math.log((1 - 0.5 / 2) / (0.5 / 2)),
    ),
    Item(
        id="S.03",
        title="Synthetic commuters (US Census Bureau, 2008)",
        api="queries.Session.synthesize",
        ours=lambda: synthetic_shares(COMMUTERS),
        truth=lambda: [counts / 10_000 for counts in COMMUTERS.values()],
        within=0.01,
    ),
    Item(
        id="S.04",
        title="Sketches of unlisted words (Apple, 2016)",
        api="local.HadamardSketch, local.CountMeanSketch",
        ours=_sketched,
        truth=_sketched_by_hand,
    ),
    Item(
        id="S.05",
        title="Telemetry every day from remembered bits (Microsoft, 2017)",
        api="local.MemoisedMean",
        ours=lambda: [curve.epsilon(delta=0) for curve in _telemetry()],
        truth=lambda: [math.log(_kept() / (1 - _kept())), 1.0, 7 * math.log(0.8 / 0.2)],
    ),
    Item(
        id="S.06",
        title="Top lists with unlisted keys (LinkedIn, 2020)",
        api="mechanisms.UnknownKeys, mechanisms.OneShotTopK",
        ours=_unlisted,
        truth=_smallest_threshold,
    ),
    Item(
        id="S.07",
        title="Counts of a census: whole, not negative, adding up (2021)",
        api="mechanisms.denoise.whole, DiscreteGaussian",
        ours=_census,
        truth=_nearest_counts,
    ),
    Item(
        id="S.08",
        title="Privacy behind an API",
        api="session",
        ours=_served,
        truth=(200, 402),
        slow=True,
    ),
    Item(
        id="S.09",
        title="Optimal denoising (Balle & Wang 2018, reading list)",
        api="mechanisms.denoise.shrunk_error, mechanisms.denoise.shrink",
        ours=lambda: [
            denoise.shrunk_error(length=2.0, sigma=1.0, dimension=10),
            denoise.shrink([3.0, 4.0, 0.0, 0.0, 12.0], sigma=2.0),
        ],
        truth=lambda: [_james_stein(), [y * (1 - 3 * 2.0**2 / 13**2) for y in (3, 4, 0, 0, 12)]],
    ),
    Item(
        id="0.12",
        title="Warner's survey with two coins",
        api="local.TwoCoinSurvey",
        ours=lambda: [coins().support.other, coins().support.other + coins().support.gap],
        truth=[0.25, 0.25 + 0.5],
    ),
    Item(
        id="0.13",
        title="The ratio 3 of the survey: ε = log 3",
        api="local.TwoCoinSurvey.curve",
        ours=lambda: coins().curve.epsilon(delta=0),
        truth=math.log(3),
    ),
    Item(
        id="S.10",
        title="Randomized response releases a whole table",
        api="local.TableResponse",
        ours=_whole_table,
        truth=lambda: (1.0 + 2.0, _conjunction()),
    ),
    Item(
        id="0.14",
        title="Posterior odds 3θ/(1 - θ)",
        api="curves.Curve.posterior",
        ours=lambda: coins().curve.posterior(prior=0.1),
        truth=3 * 0.1 / (3 * 0.1 + 0.9),
    ),
    Item(
        id="0.15",
        title="The estimator is unbiased",
        api="local.TwoCoinSurvey.estimate",
        ours=_mean_estimate,
        truth=1 / 3,
    ),
    Item(
        id="0.15b",
        title="The estimator (2/n) Σ x̃ - 1/2",
        api="local.TwoCoinSurvey.estimate",
        ours=lambda: coins().estimate([1, 1, 0, 0, 0, 0, 0, 0, 1, 1]).value,
        truth=2 / 10 * 4 - 1 / 2,
    ),
    Item(
        id="0.16",
        title="Its variance, at least four times the truthful one",
        api="local.TwoCoinSurvey.population_variance",
        ours=lambda: [
            coins().population_variance(share=0.3, people=1000),
            coins().population_variance(share=0.3, people=1000) / (0.3 * 0.7 / 1000),
        ],
        truth=[4 * 0.4 * 0.6 / 1000, 4 * 0.4 * 0.6 / (0.3 * 0.7)],
    ),
    Item(
        id="0.17",
        title="Warner's own design of 1965",
        api="local.WarnerSurvey",
        ours=lambda: local.WarnerSurvey(p=Fraction(3, 4)).population_variance(share=0.3, people=1000),
        truth=(0.3 * 0.7 + 0.75 * 0.25 / 0.5**2) / 1000,
    ),
)


def _gaussian_cap() -> float:
    """Φ(μ/2) for the μ whose δ(1) is 1e-6."""
    with mpmath.workdps(30):

        def excess(mu: Any) -> Any:
            return mpmath.ncdf(mu / 2 - 1 / mu) - mpmath.e * mpmath.ncdf(-mu / 2 - 1 / mu) - mpmath.mpf("1e-6")

        return float(mpmath.ncdf(mpmath.findroot(excess, (0.2, 0.25), solver="anderson") / 2))
