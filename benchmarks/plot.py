"""Draw what `curves.py --json` saved: `python benchmarks/plot.py results.json docs/benchmarks.svg`."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

LOOKS = {
    "deniable": ("deniable, both bounds", "#0b6e4f", "o"),
    "google-pld": ("Google PLD", "#c44536", "s"),
    "google-rdp": ("Google RDP", "#e09f3e", "^"),
    "microsoft-prv": ("Microsoft PRV ±.01", "#3a6ea5", "D"),
}
LIMIT = 60
EXACT = 1e-13
"""Distances from the truth are not drawn below this."""


def off(result: dict[str, Any], truth: float) -> float | None:
    """How far the answer is from the truth, relative to it; the farther of two bounds. None without a finite answer."""
    found = [abs(v / truth - 1) for v in (result.get("low"), result.get("high")) if v is not None and math.isfinite(v)]
    return max(max(found), EXACT) if found else None


def is_wrong(result: dict[str, Any], truth: float) -> bool:
    low, high = result.get("low"), result.get("high")
    return (high is not None and high < truth * (1 - 1e-10)) or (low is not None and low > truth * (1 + 1e-10))


def draw(record: dict[str, Any], times: Axes, distances: Axes) -> None:
    """CPU time on the left, distance from the truth on the right, one line a work."""
    works = list(record["results"])
    for order, (key, (label, colour, marker)) in enumerate(LOOKS.items()):
        for line, work in enumerate(works):
            result, truth = record["results"][work].get(key, {}), record["truth"][work]
            wrong = is_wrong(result, truth)
            look = {"color": colour, "marker": "x" if wrong else marker, "linestyle": "", "markersize": 6}
            if "cpu" in result:
                times.plot(result["cpu"], line, **look)
            elif result.get("error") == "timeout":
                times.plot(LIMIT, line + (order - 1.5) / 5, color=colour, marker="$→$", linestyle="", markersize=8)
            distance = off(result, truth)
            if distance is not None:
                distances.plot(distance, line, **look)
        times.plot([], [], color=colour, marker=marker, linestyle="", label=label)
    times.plot([], [], color="black", marker="x", linestyle="", label="not a bound: wrong side of the truth")
    times.set_yticks(range(len(works)), [textwrap.fill(work, 52) for work in works])
    times.invert_yaxis()
    times.set_xlabel("CPU seconds (→: not in 60)")
    distances.axvline(1e-4, color="grey", linewidth=0.8, linestyle=":")
    distances.set_xlabel("relative distance from the truth")
    for axes in (times, distances):
        axes.set_xscale("log")
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    matplotlib.rcParams |= {"font.size": 9, "svg.hashsalt": "deniable", "svg.fonttype": "none"}
    record = json.loads(source.read_text(encoding="utf-8"))
    figure, (times, distances) = plt.subplots(
        1, 2, sharey=True, figsize=(11, 0.3 * len(record["results"]) + 1.4), layout="constrained"
    )
    draw(record, times, distances)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None, dpi=110)


if __name__ == "__main__":
    main()
