"""Writes docs/explore.html, the page with sliders that opens from a file: python docs/draw_explore.py [--numbers].

The page is docs/explore/page.html with its style, its script and its numbers put in, so that nothing is fetched when it
is read. With --numbers the numbers are made again too, which takes some minutes; without, those of the page are kept.

The numbers are certified: for every setting of the sliders δ at some seventy values of ε, from above, rounded up once
more to two bytes, and ε at the stops of δ. Whatever the page says follows from them on the safe
side: each pair (ε, δ) is a promise, δ is convex in e^ε, so that the chord between two promises is one, and β lies above
the lines that the promises draw.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deniable import curves

FOLDER = Path(__file__).parent
PAGE = FOLDER / "explore.html"
PARTS = FOLDER / "explore"

COUNTS = (1, 3, 10, 30, 100, 1000, 10_000)
RATES = (1.0, 0.3, 0.1, 0.03, 0.01)
GROUPS = (1, 2, 3, 5, 10)
NOISE: dict[str, tuple[float, ...]] = {
    "gaussian": (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 10, 20, 50, 100),
    "laplace": (0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100),
    "response": (4, 3, 2, 1.5, math.log(3), 1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05),
}
"""σ, the scale b, and the ε of one answer, from little noise to much."""

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20)
DELTAS = tuple(10.0**n for n in range(-8, 0))
"""Where ε and δ can be set: there the page says what the library says."""
POINTS = 48
STEPS = 5000
"""Of δ in two bytes, to a decade: δ <= 10^(-n / STEPS), and what is larger by less than 0.05 %."""
LEAST = 60_000
"""The smallest δ that is told from 0 is 10^-12."""
ZERO = 65_535
FLOOR = 1e-9
MOST = 600.0
"""e^600 is a number, e^1000 is not."""

Setting = tuple[str, float, float, int, int]


def curve(family: str, level: float, rate: float, group: int, count: int) -> curves.Curve:
    """What `count` releases promise to `group` people, each release over a Poisson sample of the people."""
    if family == "response":  # each of the group sends a report of their own
        return curves.randomized_response(epsilon=level) ** (group * count)
    one = curves.gaussian(sigma=level) if family == "gaussian" else curves.laplace(scale=level)
    one = one if rate == 1 else one.sampled(rate=rate)
    return (one if group == 1 else one.group(size=group)) ** count


def settings() -> Iterator[Setting]:
    """All that the sliders can say, in the order of the table.

    Samples are taken of single people only, and not of those who randomise their answers at home.
    """
    for family, levels in NOISE.items():
        samples = [(1.0, group) for group in GROUPS]
        samples += [(rate, 1) for rate in RATES[1:] if family != "response"]
        for level in levels:
            for rate, group in samples:
                for count in COUNTS:
                    yield family, level, rate, group, count


def places(end: float) -> np.ndarray:
    """Where δ is read: from 0 to `end`, denser near 0, in script by the same operations; then at the stops of ε."""
    across = [end * (j * (j + 40)) / ((POINTS - 1) * (POINTS + 39)) for j in range(POINTS)]
    return np.array([*across, *EPSILONS])


def row(setting: Setting) -> tuple[float, list[int], list[float]]:
    """The largest ε of the table; the δs, each as n with δ <= 10^(-n / STEPS); ε at the stops of δ."""
    read = curve(*setting)
    pure, end = read.epsilon(delta=0.0), read.epsilon(delta=FLOOR)
    end = min(pure if pure <= 1.5 * end else end, MOST)
    end = float(f"{end * (1 + 1e-6):.6g}")
    where = places(end)
    # From the pure ε on δ is 0; what is rounded off in a polygon would leave a little.
    spent = np.where(where >= pure, 0.0, _deltas(read, where))
    needed = np.minimum(_epsilons(read, np.array(DELTAS)), pure)
    return end, [_coded(float(d)) for d in spent], [_up(float(e)) for e in needed]


def _deltas(read: curves.Curve, epsilon: np.ndarray) -> np.ndarray:
    """δ from above. Of samples from the certified polygons of β, a hundred times quicker: δ = sup 1 - β - e^ε α."""
    if read.is_symmetric:
        return np.asarray(read.delta(epsilon=epsilon))
    found = [np.max(h - np.exp(epsilon)[:, None] * alpha, axis=1) for alpha, h in _hits(read)]
    return np.clip(np.maximum.reduce(found), 0, 1)


def _epsilons(read: curves.Curve, delta: np.ndarray) -> np.ndarray:
    """ε from above, of samples again from the polygons: the largest log((1 - β - δ) / α)."""
    if read.is_symmetric:
        return np.asarray(read.epsilon(delta=delta))
    found = np.zeros_like(delta)
    for alpha, h in _hits(read):
        over = np.maximum(h - delta[:, None], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(over > 0, over / alpha, 1.0)
        found = np.maximum(found, np.log(np.max(ratio, axis=1)))
    return found


def _hits(read: curves.Curve) -> list[tuple[np.ndarray, np.ndarray]]:
    """(α, 1 - β) of the polygons, and on top what the subtractions of these pages may round off."""
    return [(alpha, 1 - beta + 4e-16) for alpha, beta in (read.forward.polygon(), read.backward.polygon())]


def _up(value: float) -> float:
    """Rounded up to six digits; what is beyond MOST is not told."""
    if value == 0 or value > MOST:
        return 0.0 if value == 0 else -1.0
    step = 10.0 ** (math.floor(math.log10(value)) - 5)
    found = float(f"{math.ceil(value / step) * step:.6g}")
    return found if found >= value else float(f"{found + step:.6g}")


def _coded(delta: float) -> int:
    if delta <= 0:
        return ZERO
    n = max(0, min(math.floor(-STEPS * math.log10(min(delta, 1.0))), LEAST))
    return n if 10.0 ** (-n / STEPS) >= delta or n == 0 else n - 1


def table() -> dict[str, Any]:
    """Everything the page needs to know, ready for JSON."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(row, settings(), chunksize=4))
    packed = b"".join(struct.pack(f"<{len(codes)}H", *codes) for _, codes, _ in rows)
    return {
        "noise": NOISE,
        "rates": RATES,
        "groups": GROUPS,
        "counts": COUNTS,
        "points": POINTS,
        "steps": STEPS,
        "zero": ZERO,
        "epsilons": EPSILONS,
        "deltas": DELTAS,
        "ends": [end for end, _, _ in rows],
        "needed": [needed for _, _, needed in rows],
        "codes": base64.b64encode(packed).decode(),
    }


DATA = re.compile(r'(?<=<script id="numbers" type="application/json">).*?(?=</script>)', re.DOTALL)


def held() -> dict[str, Any]:
    """The numbers of the page as it is."""
    found = DATA.search(PAGE.read_text("utf-8"))
    assert found is not None, "run: python docs/draw_explore.py --numbers"
    numbers: dict[str, Any] = json.loads(found[0])
    return numbers


def page(numbers: dict[str, Any]) -> str:
    """The whole page: markup, style, script and numbers in one file."""
    text = (PARTS / "page.html").read_text("utf-8")
    for mark, part in (
        ("/* style */", (PARTS / "style.css").read_text("utf-8")),
        ("/* numbers */", json.dumps(numbers, separators=(",", ":"))),
        ("/* script */", "".join((PARTS / name).read_text("utf-8") for name in ("promise.js", "draw.js"))),
    ):
        assert text.count(mark) == 1
        text = text.replace(mark, part)
    return text


def main(arguments: list[str]) -> None:
    """Write the page."""
    numbers = table() if "--numbers" in arguments else held()
    PAGE.write_text(page(numbers), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
