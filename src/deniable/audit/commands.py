"""`deniable audit`: other people's code by its name, or the zoo."""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deniable.audit import zoo
from deniable.audit.finding import Finding
from deniable.audit.measuring import SECONDS, Progress, measure
from deniable.curves import Curve, parse
from deniable.curves.looks import rounded_down
from deniable.errors import NOTHING, InvalidParameter

REFUTED: Final = 3
"""The exit code when the claim is refuted: not a failure of the audit, and not to be overlooked by a script."""
ROOMY: Final = 130
"""Columns of a terminal that has room for what an entry teaches."""


def audit_command(
    target: str | None,
    *,
    neighbours: tuple[str, str] | None,
    claim: str | None,
    trials: int,
    confidence: float,
    delta: float,
    seconds: float = SECONDS,
    plot: Path | None = None,
    as_json: bool = False,
) -> int:
    """Measure `module:function`; the exit code says whether its claim holds."""
    if target is None or neighbours is None:
        raise InvalidParameter("module:function and --neighbours", NOTHING, "must both be given", "or ask for --zoo")
    mechanism, promise = imported(target), None if claim is None else parse(claim)
    pair = (literal(neighbours[0]), literal(neighbours[1]))
    with _bar("asking the mechanism", show=not as_json) as progress:
        found = measure(
            mechanism,
            neighbours=pair,
            claim=promise,
            trials=trials,
            confidence=confidence,
            delta=delta,
            seconds=seconds,
            progress=progress,
        )
    if plot is not None:
        from deniable import plots

        plots.render(found.plot(), plot)
    if as_json:
        print(json.dumps(record(found), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        print(found.sentence)
        print(f"By this rule: {found.event.words}.")
        print(f"{found.tally.right:,} of its {found.tally.right + found.tally.wrong:,} guesses were right.")
    if plot is not None:
        print(f"Saved {plot}", file=sys.stderr)
    return REFUTED if found.refuted else 0


def imported(target: str) -> Any:
    """The object that `module:name` names; modules of the current folder are found too."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise InvalidParameter("target", target, "must be module:function, such as mylibrary.noise:add_laplace")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter("target", target, f"cannot be imported: {error}") from None
    return found


def literal(text: str) -> Any:
    """A value as Python writes it: 0, 1.5, [1, 2], "word". Anything else is a word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def record(found: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "sentence": found.sentence,
        "refuted": found.refuted,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "claimed": found.claimed if math.isfinite(found.claimed) else "Infinity",
        "confidence": found.confidence,
        "event": found.event.words,
        "right": found.tally.right,
        "wrong": found.tally.wrong,
        "trials": found.trials,
        "band": {"alpha": list(found.band.alpha), "beta": list(found.band.beta)},
        "claim": found.claim.to_dict() if isinstance(found.claim, Curve) else None,
    }


@contextmanager
def _bar(words: str, *, show: bool) -> Iterator[Progress | None]:
    """A bar on the terminal's other channel while the mechanism answers."""
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(words, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


# -- the zoo ---------------------------------------------------------------------------------------------------------


def zoo_command(*, trials: int, confidence: float, as_json: bool = False) -> int:
    """Look at every entry, and print what was claimed, what is true, what was measured, and whether it was caught."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    every = list(zoo.entries.values())
    shown = every if as_json else track(every, "looking", console=Console(stderr=True), transient=True)
    looks = [zoo.look(entry, trials=trials, confidence=confidence) for entry in shown]
    if as_json:
        print(json.dumps([_row(one) for one in looks], ensure_ascii=False, indent=2, allow_nan=False))
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        wide = console.width >= ROOMY
        for name in ("mechanism", "claim", "truth", "measured", "caught", *(["what it teaches"] if wide else [])):
            table.add_column(name, justify="right" if name in ("claim", "truth", "measured") else "left")
        for one in looks:
            entry, found = one.entry, one.finding
            # An exact proof needs no answers.
            measured = "exactly" if found is None else rounded_down(found.epsilon, 3)
            said = "yes" if one.caught else "no, rightly" if entry.sound else "NO"
            caught = Text(said, "green" if one.as_it_should else "bold red")
            row: list[str | Text] = [entry.name, _short(entry.claimed), _short(entry.truth), measured, caught]
            table.add_row(*row, *([entry.teaches] if wide else []))
        console.print(table)
        found_out = sum(one.caught for one in looks if not one.entry.sound)
        blamed = sum(one.caught for one in looks if one.entry.sound)
        console.print(
            f"\n{found_out} of {len(zoo.broken())} broken ones caught, {blamed} of {len(zoo.sound())} sound ones "
            f"blamed; {trials:,} trials, confidence {confidence:.10g}."
        )
    return 0 if all(one.as_it_should for one in looks) else 1


def _short(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


def _row(one: zoo.Look) -> dict[str, Any]:
    entry, found = one.entry, one.finding
    return {
        "name": entry.name,
        "claimed": entry.claimed if math.isfinite(entry.claimed) else "Infinity",
        "truth": entry.truth if math.isfinite(entry.truth) else "Infinity",
        "delta": entry.delta,
        "measured": None if found is None else found.epsilon,
        "caught": one.caught,
        "sound": entry.sound,
        "teaches": entry.teaches,
        "source": entry.source,
    }
