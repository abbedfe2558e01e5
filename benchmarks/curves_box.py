"""Powers of sampled Gaussians drawn at random from a box: how wide the brackets of ε are, and what they cost.

    python benchmarks/curves_box.py [--box small|whole] [--cases 500] [--seed SEED] [--json OUT] [--strict]

Rate, σ, count and δ are log-uniform. Every case runs in a process of its own, cold, with imports done: its CPU seconds
and its peak memory are its own. The exact answer is the contour integral of `truth.py` in double precision, on a
contour that each case plans for itself. A case whose contour would be too long has no exact answer here, and the report
counts such cases.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_EVALUATIONS = 3e7
"""The most values of e^(sL) that an exact answer may take: some 2 CPU s."""

AGREE = 3e-7
"""Two contours give the same δ up to so much; beyond it, rounding or losses that hardly occur decide."""

CPU_LIMIT = 20


@dataclass(frozen=True, slots=True)
class Box:
    """Ranges of rate, σ, count and δ, and the relative width of ε that every case must reach."""

    rate: tuple[float, float]
    sigma: tuple[float, float]
    count: tuple[float, float]
    delta: tuple[float, float]
    goal: float


BOXES = {
    "small": Box((1e-5, 1.0), (0.4, 10.0), (1.0, 1e7), (1e-12, 1e-4), 1e-4),
    "whole": Box((1e-9, 1.0), (1e-2, 1e3), (1.0, 1e12), (1e-30, 1e-4), 1e-3),
}


@dataclass(frozen=True, slots=True)
class Case:
    """S-G(rate, σ)^count at δ."""

    rate: float
    sigma: float
    count: int
    delta: float

    def __str__(self) -> str:
        return f"S-G({self.rate:.4g}, {self.sigma:.4g})^{self.count}, {self.delta:.4g}"


def cases(box: Box, seed: int, number: int) -> Iterator[Case]:
    """So many cases of a box, rounded to four digits so that a printed case can be asked again."""
    generator = np.random.default_rng(seed)

    def between(ends: tuple[float, float]) -> float:
        return float(f"{math.exp(generator.uniform(math.log(ends[0]), math.log(ends[1]))):.4g}")

    for _ in range(number):
        yield Case(between(box.rate), between(box.sigma), int(between(box.count)), between(box.delta))


# -- the exact answer ------------------------------------------------------------------------------------------------


def exact_deltas(case: Case, epsilons: tuple[float, ...], forward: bool) -> list[float] | None:
    """δ(ε) in one direction by two contour integrals; None if a contour would be too long, or if they differ by more
    than AGREE.
    """
    c = _saddle(case, max(epsilons), forward)
    one, two = (_deltas(case, epsilons, forward, c * part) for part in (1.0, 0.8))
    if one is None or two is None or not all(abs(a - b) <= AGREE * a for a, b in zip(one, two, strict=True)):
        return None
    return one


def _deltas(case: Case, epsilons: tuple[float, ...], forward: bool, c: float) -> list[float] | None:
    """δ(ε) in one direction on the contour Re s = c."""
    near = np.array([c, c * 1.001, c * 0.999]) + 0j
    logs = _log_moments(case, near, forward).real
    curvature = max((logs[1] + logs[2] - 2 * logs[0]) / (1e-3 * c) ** 2, 1e-300)
    # The trapezoidal rule repeats the tilted profile with the period 2π / step.
    step = 2 * math.pi / max(40 / c, 40 * math.sqrt(curvature))
    total = np.zeros(len(epsilons))
    done, spent, quiet, sizes = 0, 0.0, 0, 0.0
    while True:
        s = c + 1j * step * np.arange(done, done + 64)
        spent += len(s) * len(_nodes(case, s, forward)[0])
        if spent > MOST_EVALUATIONS:
            return None
        values = np.exp(_log_moments(case, s, forward) - logs[0]) / (s * (s + 1))
        if done == 0:
            values[0] /= 2
        for index, epsilon in enumerate(epsilons):
            total[index] += float(np.sum((values * np.exp(-1j * s.imag * epsilon)).real))
        done += len(s)
        sizes += float(np.sum(np.abs(values)))
        quiet = quiet + 1 if float(np.max(np.abs(values))) < 1e-13 * abs(total[0]) else 0
        if quiet >= 3:
            break
    if float(np.min(np.abs(total))) < 1e-8 * sizes:  # rounding errors hide the sum
        return None
    return [float(t * math.exp(logs[0] - c * e) * step / math.pi) for t, e in zip(total, epsilons, strict=True)]


def _saddle(case: Case, epsilon: float, forward: bool) -> float:
    """Re s at which e^(K(s) - sε) / s is least."""
    low, high = math.log(1e-3), math.log(1e6)
    for _ in range(60):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        at = np.exp(np.array([a, b]))
        value = _log_moments(case, at + 0j, forward).real - at * epsilon - np.log(at)
        value = np.where(np.isfinite(value), value, np.inf)
        low, high = (low, b) if value[0] <= value[1] else (a, high)
    return math.exp((low + high) / 2)


def _nodes(case: Case, s: Any, forward: bool) -> tuple[Any, float]:
    """Nodes x in units of σ and their spacing: e^(sL) has singularities at the distance πσ from the real axis."""
    fastest = float(np.max(np.abs(s.imag))) if len(s) else 0.0
    step = min(1 / 6, 2 * math.pi * 2.5 * case.sigma / (40 + 2.5 * fastest))
    top = (float(np.max(s.real)) + 1) / case.sigma if forward else 0.0
    return np.arange(-12.0, 12.0 + top, step), step


def _log_moments(case: Case, s: Any, forward: bool) -> Any:
    """count × log E_P e^(sL). The loss of first order has mean 0 and is left out before summing."""
    x, step = _nodes(case, s, forward)
    log_weight = -x * x / 2 + math.log(step / math.sqrt(2 * math.pi))  # far out the weights themselves underflow
    weight = np.exp(log_weight)
    exponent = x / case.sigma - 0.5 / case.sigma**2
    rise = case.rate * np.expm1(np.minimum(exponent, 600.0))
    loss = np.where(exponent > 600.0, exponent + math.log(case.rate), np.log1p(rise))
    power = (s + 1 if forward else -s)[:, None]
    # (1 + u)^p - 1 - p u, of second order in u.
    small = np.abs(power * rise) < 1e-3
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.exp(power * loss + log_weight) - weight * (1 + power * rise)
        u = np.where(small, rise, 0.0)
        near = weight * power * (power - 1) * u * u * (0.5 + (power - 2) * u * (1 / 6 + (power - 3) * u / 24))
        return case.count * np.log1p(np.sum(np.where(small, near, far), axis=1))


def is_inside(case: Case, low: float, high: float) -> bool | None:
    """Whether the exact ε lies in the bracket; None if it is not known."""
    if not 0 < high < math.inf:
        return None
    ends = (max(low * (1 - 1e-9), 1e-12), high * (1 + 1e-9))
    found = []
    for forward in (True, False):
        try:
            deltas = exact_deltas(case, ends, forward)
        except (OverflowError, ValueError):
            return None
        if deltas is None or not all(math.isfinite(d) for d in deltas):
            return None
        found.append(deltas)
    at_low, at_high = (max(pair) for pair in zip(*found, strict=True))
    return at_high <= case.delta * (1 + 1e-6) and (low == 0 or at_low >= case.delta * (1 - 1e-6))


# -- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for one case. `inside` says whether the exact ε lies in the bracket, if it is known."""

    case: Case
    low: float
    high: float
    cpu: float
    peak_mb: float
    agrees: bool
    """Whether `epsilon()` equals the upper end."""
    inside: bool | None = None
    error: str = ""

    @property
    def width(self) -> float:
        """(high - low) / high; 0 for ε = 0, infinite where there is no bound."""
        if self.error or math.isinf(self.high):
            return math.inf
        return (self.high - self.low) / self.high if self.high > 0 else 0.0

    def line(self) -> str:
        """The case and what came out, on one line."""
        found = f"[{self.low:.8g}, {self.high:.8g}] width {self.width:.1e}, {self.cpu:.2f} s, {self.peak_mb:.0f} MB"
        return f"{self.case!s:52s} {found} {self.error}"


def measured(case: Case, truth: bool) -> Result:
    """One case in a fork of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 5))
        with os.fdopen(writer, "w") as pipe:
            json.dump(_answer(case), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, _, used = os.wait4(child, 0)
    peak = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    if not text:
        return Result(case, 0.0, math.inf, float(CPU_LIMIT), peak, False, error="stopped")
    found = json.loads(text)
    inside = is_inside(case, found["low"], found["high"]) if truth and not found["error"] else None
    return Result(case, **(found | {"peak_mb": peak, "inside": inside}))


def _answer(case: Case) -> dict[str, Any]:
    from deniable import curves

    try:
        began = time.thread_time()
        curve = curves.gaussian(sigma=case.sigma).sampled(rate=case.rate) ** case.count
        low, high = curve.epsilon_bounds(delta=case.delta)
        cpu = time.thread_time() - began
        agrees = curve.epsilon(delta=case.delta) == high
    except Exception as error:  # a case that fails is a row of the report, and the next cases still run
        return {"low": 0.0, "high": math.inf, "cpu": 0.0, "agrees": False, "error": f"{type(error).__name__}: {error}"}
    return {"low": low, "high": high, "cpu": cpu, "agrees": agrees, "error": ""}


def report(box: Box, results: list[Result]) -> bool:
    """Print the shares and the worst cases; whether every goal is reached."""
    number = len(results)
    narrow = sum(r.width <= box.goal for r in results)
    zero = [r for r in results if r.low == 0 < r.high]
    outside = [r for r in results if r.inside is False]
    slow = [r for r in results if r.cpu > 1]
    large = [r for r in results if r.peak_mb > 300]
    apart = [r for r in results if not r.agrees]
    print(f"width <= {box.goal:g}: {narrow} of {number} ({narrow / number:.1%})")
    print(f"exact ε inside: {sum(r.inside is True for r in results)}, outside: {len(outside)}, ", end="")
    print(f"not known: {sum(r.inside is None for r in results)}")
    print(f"low = 0 < high: {len(zero)}; epsilon() differs from the upper end: {len(apart)}")
    cpu = sorted(r.cpu for r in results)
    print(f"CPU s: median {cpu[number // 2]:.3f}, largest {cpu[-1]:.2f}, above 1 s: {len(slow)}")
    print(f"peak MB: largest {max(r.peak_mb for r in results):.0f}, above 300 MB: {len(large)}")
    for title, chosen in (
        ("widest", sorted(results, key=lambda r: -r.width)[:12]),
        ("slowest", sorted(results, key=lambda r: -r.cpu)[:6]),
        ("largest", sorted(results, key=lambda r: -r.peak_mb)[:3]),
        ("outside", outside),
    ):
        for r in chosen:
            print(f"  {title:8s} {r.line()}")
    return narrow == number and not (zero or outside or slow or large or apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--box", choices=sorted(BOXES), default="small")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, help="a fresh one by default; it is printed")
    parser.add_argument("--json", type=Path, metavar="OUT", help="save every case")
    parser.add_argument("--without-truth", action="store_true", help="do not compute the exact answers")
    parser.add_argument("--verbose", action="store_true", help="print every case as soon as it is done")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    box = BOXES[options.box]
    print(f"{options.box} box, {options.cases} cases, seed {seed}", flush=True)
    from deniable import curves

    (curves.gaussian(sigma=1).sampled(rate=0.5) ** 2).epsilon(delta=1e-3)  # imports are not measured
    results = []
    for case in cases(box, seed, options.cases):
        results.append(measured(case, not options.without_truth))
        if options.verbose:
            print(results[-1].line(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) | {"width": r.width} for r in results], indent=1) + "\n")
    reached = report(box, results)
    if options.strict and not reached:
        sys.exit(1)


if __name__ == "__main__":
    main()
