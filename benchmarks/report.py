"""What the results say: one table a work, and a verdict on every line that must be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from works import HELD_GROUP, Work

OURS, UPPER, GOOGLE = "deniable", "deniable-upper", "google-pld"
KNOWN = 1e-10
"""A bound is called wrong if it is on the wrong side by more than this part: nobody is blamed for the last digits."""

WIDTH, MEMORY_MB, AGAIN_MS, MEAN_RATIO = 1e-4, 300.0, 5.0, 5.0

Result = dict[str, Any]
Results = dict[str, dict[str, Result]]
"""Name of the work -> key of the contender -> what the worker said."""


def wrong(work: Work, result: Result) -> str:
    """Why an answer is not a bound at all, or nothing."""
    high, low = result.get("high"), result.get("low")
    if high is not None and (math.isnan(high) or high < work.truth * (1 - KNOWN)):
        return "high is below the truth"
    if low is not None and (math.isnan(low) or low > work.truth * (1 + KNOWN)):
        return "low is above the truth"
    return ""


def width(work: Work, result: Result) -> float | None:
    """How far the answer leaves the truth open, relative to it: high - low, or the distance of the only bound."""
    high, low = result.get("high"), result.get("low")
    if high is None and low is None:
        return None
    return ((work.truth if high is None else high) - (work.truth if low is None else low)) / work.truth


def ratio(ours: Result, theirs: Result) -> float | None:
    """Their CPU time over ours; the limit counts as theirs if it stopped them while they were timed."""
    mine, other = ours.get("cpu"), theirs.get("cpu", theirs.get("limit"))
    return other / mine if mine and other else None


def show_work(console: Console, work: Work, results: dict[str, Result], titles: dict[str, str]) -> None:
    """One table: every library on one work."""
    what = "smallest σ" if work.ask == "sigma" else "ε"
    table = Table(title=f"{work.name}    [dim]truth: {what} = {work.truth:.10g}[/dim]", title_justify="left")
    table.add_column("")
    for heading in ("low", "high", "width / truth", "CPU s", "peak MB", "theirs / ours"):
        table.add_column(heading, justify="right")
    table.add_column("remark", overflow="fold")
    ours = results.get(OURS, {})
    for key, result in results.items():
        if "refused" in result and key != GOOGLE:
            continue
        problem = wrong(work, result)
        open_ = width(work, result)
        quotient = None if key.startswith(OURS) else ratio(ours, result)
        more_than = "> " if quotient is not None and "limit" in result else ""
        if problem:
            remark = f"[bold red]wrong[/bold red]: {problem}"
        elif result.get("high") == math.inf:
            remark = "no answer"
        else:
            remark = f"{result['error']}: {result['text']}" if "error" in result else result.get("refused", "")
        table.add_row(
            escape(titles[key]),
            _number(result.get("low"), "{:.7g}"),
            _number(result.get("high"), "{:.7g}"),
            _number(None if problem else open_, "{:.1e}"),
            _number(result.get("cpu"), "{:.4f}"),
            _number(result.get("peak_mb"), "{:.0f}"),
            more_than + ("" if quotient is None else times(quotient)),
            remark,
            style="bold" if key == OURS else "",
        )
    console.print(table)


def times(quotient: float) -> str:
    """A ratio as it is shown."""
    return f"{quotient:.1g}" if quotient < 0.1 else f"{quotient:.1f}" if quotient < 100 else f"{quotient:,.0f}"


def _number(value: float | None, style: str) -> str:
    return "" if value is None else style.format(value)


class Verdict:
    """One line that must be reached: said, met or not, and the figure that decides."""

    def __init__(self, said: str, met: bool, figure: str) -> None:
        self.said, self.met, self.figure = said, met, figure


def verdicts(works: Iterable[Work], results: Results) -> list[Verdict]:
    """Every line that must be reached, judged on the works that ran."""
    ran = [w for w in works if OURS in results.get(w.name, {})]
    if not ran:
        return []
    ours = {w.name: results[w.name][OURS] for w in ran}
    lines = [_contained(ran, ours), _narrow(ran, ours)]
    compared = [(w, q) for w in ran if (q := ratio(ours[w.name], results[w.name].get(GOOGLE, {}))) is not None]
    if compared:
        slowest, quotient = min(compared, key=lambda item: item[1])
        lines.append(
            Verdict(
                "faster than Google's PLD on every row", quotient > 1, f"least: {times(quotient)} × ({slowest.name})"
            )
        )
        finished = [q for w, q in compared if "cpu" in results[w.name][GOOGLE]]
        if finished:
            mean = math.exp(math.fsum(math.log(q) for q in finished) / len(finished))
            note = f"{mean:.1f} × over {len(finished)} rows that it finishes"
            lines.append(Verdict(f"{MEAN_RATIO:.0f} × faster in the geometric mean", mean >= MEAN_RATIO, note))
    small = [w for w in ran if w.delta <= 1e-30]
    if small:
        good = all(_fine(w, ours[w.name]) for w in small)
        widest = max((width(w, ours[w.name]) or math.inf for w in small), default=math.inf)
        lines.append(Verdict("δ down to 1e-30", good, f"width / truth {widest:.1e}"))
    most = max(ran, key=lambda w: ours[w.name].get("peak_mb", 0.0))
    peak = ours[most.name].get("peak_mb", 0.0)
    lines.append(Verdict(f"memory < {MEMORY_MB:.0f} MB", peak < MEMORY_MB, f"most: {peak:.0f} MB ({most.name})"))
    for work in ran:
        if work.group == HELD_GROUP:
            lines.append(_again(work, results[work.name]))
    return lines


def _fine(work: Work, result: Result) -> bool:
    open_ = width(work, result)
    return open_ is not None and not wrong(work, result) and open_ <= WIDTH


def _contained(ran: list[Work], ours: dict[str, Result]) -> Verdict:
    silent = [w for w in ran if width(w, ours[w.name]) is None]
    failed = [w for w in ran if wrong(w, ours[w.name])]
    figure = f"{len(ran) - len(failed) - len(silent)} of {len(ran)} rows"
    figure += _named("no answer", silent) + _named("wrong", failed)
    return Verdict("the certified [low, high] contains the truth", not failed and not silent, figure)


def _narrow(ran: list[Work], ours: dict[str, Result]) -> Verdict:
    known = [(w, value) for w in ran if (value := width(w, ours[w.name])) is not None]
    if not known:
        return Verdict("(high - low) / truth <= 1e-4", False, "no answers")
    wide = [w for w, value in known if value > WIDTH]
    worst, value = max(known, key=lambda item: item[1])
    figure = f"widest: {value:.1e} ({worst.name})" + _named("wider", wide)
    return Verdict("(high - low) / truth <= 1e-4", not wide, figure)


def _again(work: Work, results: dict[str, Result]) -> Verdict:
    both, upper = results[OURS].get("cpu"), results.get(UPPER, {}).get("cpu")
    said = f"one more, asked again, < {AGAIN_MS:.0f} ms: {work.name}"
    if both is None:
        return Verdict(said, False, str(results[OURS].get("text", "no answer")))
    alone = f" (upper bound alone {upper * 1e3:.1f} ms)" if upper is not None else ""
    return Verdict(said, both * 1e3 < AGAIN_MS, f"{both * 1e3:.1f} ms{alone}")


def _named(what: str, works: list[Work]) -> str:
    return f"; {what}: {', '.join(w.name for w in works)}" if works else ""


def show_summary(console: Console, lines: list[Verdict]) -> None:
    """Every line with pass or fail."""
    table = Table(title="What must be reached", title_justify="left")
    table.add_column("line", overflow="fold")
    table.add_column("")
    table.add_column("figure", overflow="fold")
    for line in lines:
        table.add_row(
            escape(line.said), "[green]pass[/green]" if line.met else "[bold red]FAIL[/bold red]", escape(line.figure)
        )
    console.print(table)
