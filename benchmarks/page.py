"""The figures as they stand in docs/benchmarks.md: written between two marks, so that the words around them stay."""

from __future__ import annotations

import math
from pathlib import Path

from report import GOOGLE, OURS, UPPER, Result, Results, Verdict, ratio, times, width, wrong
from works import Work

BEGIN, END = "<!-- figures: made by benchmarks/curves.py --page -->", "<!-- end of figures -->"
PEERS = (GOOGLE, "google-rdp", "microsoft-prv")


def _peer(work: Work, ours: Result, result: Result, key: str) -> str:
    """A peer's answer in one cell: value, CPU seconds, and for Google's PLD how much longer it took."""
    if "refused" in result:
        return "–"
    if "error" in result:
        name = "> 60 s" if result["error"] == "timeout" else result["error"]
        return f"{name} ({result['peak_mb']:.0f} MB)" if result.get("peak_mb", 0) > 1000 else name
    value = result["high"] if result.get("high") is not None else result["low"]
    text = "∞" if value == math.inf else f"{value:.7g}"
    if wrong(work, result):
        text += " **wrong**"
    quotient = ratio(ours, result)
    slower = f", **{times(quotient)} ×**" if key == GOOGLE and quotient is not None else ""
    return f"{text} ({_seconds(result['cpu'])}{slower})"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.2g} ms" if value < 0.0995 else f"{value:.2g} s" if value < 9.5 else f"{value:.0f} s"


def _row(work: Work, results: dict[str, Result]) -> str:
    ours, upper = results[OURS], results.get(UPPER, {})
    open_ = width(work, ours)
    if "cpu" in ours:
        bounds = [f"{v:.9g}" for v in (ours.get("low"), ours.get("high")) if v is not None]
        answer = f"[{', '.join(bounds)}]" if len(bounds) == 2 else bounds[0]
        both = _seconds(ours["cpu"])
        alone = f" ({_seconds(upper['cpu'])})" if "cpu" in upper and work.ask not in ("sigma", "lower") else ""
        cells = [answer, f"{open_:.0e}" if open_ is not None else "", both + alone, f"{ours['peak_mb']:.0f}"]
    else:
        cells = [str(ours.get("text", "no answer")), "", "", f"{ours.get('peak_mb', 0):.0f}"]
    cells += [_peer(work, ours, results.get(key, {"refused": ""}), key) for key in PEERS]
    return " | ".join((f"| {work.name}", f"{work.truth:.9g}", *cells)) + " |"


def figures(works: list[Work], results: Results, lines: list[Verdict], versions: dict[str, str]) -> str:
    """All tables as Markdown."""
    heads = "work | truth | deniable | width / truth | CPU: both bounds (upper alone) | MB | Google PLD | Google RDP"
    heads += " | Microsoft PRV ±.01"
    text = [", ".join(f"{name} {number}" for name, number in versions.items()) + ".", ""]
    for group in dict.fromkeys(w.group for w in works):
        text += [f"### {group[0].upper()}{group[1:]}", "", f"| {heads} |", "|---|---|---|---|---|---|---|---|---|"]
        text += [_row(w, results[w.name]) for w in works if w.group == group]
        text.append("")
    text += ["### What must be reached", "", "| line | | figure |", "|---|---|---|"]
    text += [f"| {v.said} | {'pass' if v.met else '**fail**'} | {v.figure} |" for v in lines]
    return "\n".join(text)


def write(path: Path, text: str) -> None:
    """Put the figures between the marks of a page."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
