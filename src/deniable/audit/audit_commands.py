"""`deniable audit`: audits a mechanism in an importable module, or the zoo."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import json
import math
import os
import pkgutil
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final, NoReturn

from deniable.audit import finding, zoo
from deniable.audit.finding import Finding
from deniable.audit.measurement import LEAST, SECONDS, Progress, measure
from deniable.curves import Curve, curve_arguments, parse
from deniable.curves.curve_display import rounded_down
from deniable.errors import NOTHING, InvalidParameter, MissingExtra, NotCertifiable

REFUTED: Final = 3
"""The exit code if the claim is refuted: not a failure of the audit, but a script must notice it."""
NOTHING_SEEN: Final = 4
"""The exit code if the answers prove no difference: this is not evidence for the claim, so the code must not be 0."""
SEARCHING: Final = "searching for an event"
"""The label of the progress bar after all answers have arrived."""
ROOMY: Final = 130
"""The smallest terminal width at which the zoo's lessons are shown."""


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
    """Measure `module:function`, and print the finding. Returns the exit code: REFUTED, NOTHING_SEEN or 0."""
    if target is None or neighbours is None:
        raise InvalidParameter("module:function and --neighbours", NOTHING, "must both be given", "or ask for --zoo")
    pair = (literal(neighbours[0]), literal(neighbours[1]))
    if repr(pair[0]) == repr(pair[1]):
        raise InvalidParameter("neighbours", " ".join(neighbours), "must be two different values")
    if plot is not None:
        _can_draw(plot)
    promise = None if claim is None else parse(claim)
    with _prints_aside(as_json), _stays(), _bar("asking the mechanism", show=not as_json) as progress:
        mechanism = imported(target)
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
    if sys.stdout.closed:
        raise NotCertifiable("the mechanism closed the standard output, so the finding cannot be printed")
    if plot is not None:
        from deniable import plots

        plots.render(found.plot(), plot)
    if as_json:
        print(json.dumps(record(found), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        event, tally = found.proof
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(fitted(found.sentence, width))
        if event.directions:
            by = "By this rule" if found.seen else "The best rule that was found"
            print(fitted(f"{by}: {event.words}.", width))
            print(f"{tally.right:,} of its {tally.right + tally.wrong:,} guesses were right.")
        else:
            print("No rule was found: the answers do not distinguish the neighbours. Do the answers ever change?")
        if found.claim is not None and math.isinf(found.claimed):
            print(fitted(f"The claim has no finite ε at δ = {found.delta:.3g}; give a larger δ: --delta 1e-5.", width))
        if event.hint:
            print(fitted(event.hint, width))
        print(fitted(found.read.sentence, width))
    if plot is not None:
        print(f"Saved {plot}", file=sys.stderr)
    return {finding.REFUTED: REFUTED, finding.NOTHING_SEEN: NOTHING_SEEN}.get(found.verdict, 0)


class _Kept:
    """An output stream that the audited code may write to but not close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Does nothing."""


def _prints_aside(as_json: bool) -> AbstractContextManager[object]:
    """Redirect the output of the audited code: to stderr if stdout has JSON."""
    kept: Any = _Kept(sys.stderr if as_json else sys.stdout)
    return redirect_stdout(kept)


@contextmanager
def _stays() -> Iterator[None]:
    """Turn an exit of the audited code into an error: its exit code 0 would look like a good finding."""
    process, leave = os.getpid(), os._exit

    def left(status: int) -> NoReturn:
        if os.getpid() != process:  # a child process of the audited code exits normally
            leave(status)
        raise SystemExit(status)

    os._exit = left
    try:
        yield
    except SystemExit:
        rule = (
            "the mechanism or one of its answers left Python (sys.exit) during the audit, so the audit has no finding"
        )
        raise NotCertifiable(rule) from None
    finally:
        os._exit = leave


def said_by(error: BaseException) -> str:
    """The message of an error of the audited code; empty if its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # a user's __str__ may raise any error, which must not stop the audit
        return ""


def fitted(text: str, width: int | None) -> str:
    """A text wrapped to a width; unchanged without a terminal."""
    return text if width is None else "\n".join(textwrap.wrap(text, width, break_on_hyphens=False))


def _can_draw(path: Path) -> None:
    """Raise, before the long run, if the plot cannot be written."""
    from deniable.plots.render import FORMATS

    if path.suffix.lower() not in FORMATS:
        raise InvalidParameter("plot", str(path), f"must end in {', '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise InvalidParameter("plot", str(path), "must be in an existing folder")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "plots")


def imported(target: str) -> Any:
    """The object named by `module:name`; modules of the current folder are found too. Raises `InvalidParameter`."""
    module, colon, name = target.partition(":")
    if module.endswith(".py") and name:
        remedy = f"write {'.'.join(Path(module).with_suffix('').parts)}:{name}"
        raise InvalidParameter("target", target, "must name a module, not its file", remedy)
    if not colon or not module or not name:
        raise InvalidParameter("target", target, "must be module:function, such as mylibrary.noise:add_laplace")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        rule = f"cannot be imported: {said_by(error)}"
        raise InvalidParameter("target", target, rule, _nearest(module, name)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise any error at import, or exit
        raise _not_imported(target, error) from None
    return found


def _nearest(module: str, name: str) -> str:
    """A remedy with similar targets: other names in the module, or similar modules."""
    found = sys.modules.get(module)
    if found is not None:
        names = [each for each in dir(found) if not each.startswith("_") and callable(getattr(found, each, None))]
        close = [f"{module}:{each}" for each in difflib.get_close_matches(name, names)]
    else:
        package, _, last = module.rpartition(".")
        inside = getattr(sys.modules.get(package), "__path__", []) if package else None
        modules = [each.name for each in pkgutil.iter_modules(inside)]
        above = f"{package}." if package else ""
        close = [f"{above}{each}:{name}" for each in difflib.get_close_matches(last, modules)]
    return (
        f"did you mean {' or '.join(close)}?" if close else "check the spelling; modules of this folder are found too"
    )


def _not_imported(target: str, error: BaseException) -> InvalidParameter:
    """The error for a module that fails at import: the type and line of its error, and its message as a note."""
    if isinstance(error, SyntaxError):
        known = error.filename is not None and error.lineno is not None
        where = f"{os.path.basename(error.filename or '')}, line {error.lineno}" if known else "its file as a whole"
    else:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{os.path.basename(last.filename)}, line {last.lineno}"
    if isinstance(error, SystemExit):
        rule = f"cannot be imported: it leaves Python by sys.exit() ({where})"
        remedy = 'put what its file runs as a program under if __name__ == "__main__":'
        return InvalidParameter("target", target, rule, remedy)
    rule = f"cannot be imported: it raises {type(error).__name__} ({where})"
    failed = InvalidParameter("target", target, rule, "check that python -c 'import ...' runs")
    if words := said_by(error):
        failed.add_note(f"It said: {words}")
    return failed


def literal(text: str) -> Any:
    """A value from its Python literal: 0, 1.5, [1, 2], "word". Raises `InvalidParameter` for other text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        rule = "must be values as Python writes them: 0, 1.5, [1, 2], 'word'"
        raise InvalidParameter(
            "neighbours", text, rule, "quote words for Python and again for the shell: \"'word'\""
        ) from None


def record(found: Finding) -> dict[str, Any]:
    """A finding as plain values for JSON."""
    return {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "refuted": found.refuted,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "claimed": found.claimed if math.isfinite(found.claimed) else "Infinity",
        "confidence": found.confidence,
        "event": found.event.words,
        "right": found.tally.right,
        "wrong": found.tally.wrong,
        "broken": _broken(found),
        "trials": found.trials,
        "reach": found.reach,
        "read": {
            "answers": found.read.answers,
            "types": list(found.read.types),
            "numbers": found.read.numbers,
            "words": found.read.words,
            "changing": found.read.changing,
            "not read": list(found.read.shut),
        },
        "band": {"alpha": list(found.band.alpha), "beta": list(found.band.beta)},
        "claim": found.claim.to_dict() if isinstance(found.claim, Curve) else None,
    }


def _broken(found: Finding) -> dict[str, Any] | None:
    """The point of the claim that the guesses violate, and the guesses."""
    if found.broken is None or found.breaking is None:
        return None
    (level, p_value), (event, tally) = found.broken, found.breaking
    return {
        "epsilon": level.epsilon,
        "delta": level.delta,
        "p_value": p_value,
        "event": event.words,
        "right": tally.right,
        "wrong": tally.wrong,
    }


@contextmanager
def _bar(words: str, *, show: bool) -> Iterator[Progress | None]:
    """A progress bar on stderr while the mechanism answers."""
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(words, total=None)
        after = bars.add_task(SEARCHING, total=None, visible=False)

        def update(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total, visible=done < total)
            bars.update(after, visible=done >= total)  # of unknown length

        yield update


# -- the zoo ---------------------------------------------------------------------------------------------------------


def zoo_command(
    *,
    trials: int,
    confidence: float,
    as_json: bool = False,
    target: str | None = None,
    neighbours: tuple[str, str] | None = None,
    claim: str | None = None,
    plot: Path | None = None,
) -> int:
    """Audit every entry of the zoo, and print claim, truth, measured ε and verdict. Returns the exit code: 0 if all
    verdicts are right, NOTHING_SEEN if a sound entry was not tested, else 1."""
    if target is not None or neighbours is not None or claim is not None:
        remedy = "leave out either --zoo or the mechanism"
        raise InvalidParameter("zoo", NOTHING, "has its own mechanisms, neighbours and claims", remedy)
    if plot is not None:
        raise InvalidParameter(
            "plot", str(plot), "cannot be drawn for the zoo", "leave --plot out, or audit one mechanism"
        )
    curve_arguments.integer("trials", trials, LEAST)
    curve_arguments.inner_probability("confidence", confidence)
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    every = list(zoo.entries.values())
    is_watched = not as_json and sys.stderr.isatty()
    shown = track(every, "looking", console=Console(stderr=True), transient=True) if is_watched else every
    looks = [zoo.look(entry, trials=trials, confidence=confidence) for entry in shown]
    if as_json:
        print(json.dumps([_row(one) for one in looks], ensure_ascii=False, indent=2, allow_nan=False))
    else:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")  # one row a line in a terminal of 80 columns
        wide = console.width >= ROOMY
        for name in ("mechanism", "δ", "claim", "truth", "measured", "caught", *(["what it teaches"] if wide else [])):
            is_number = name in ("δ", "claim", "truth", "measured")
            table.add_column(name, justify="right" if is_number else "left", no_wrap=name != "what it teaches")
        is_starred = False
        for one in looks:
            entry, found = one.entry, one.finding
            # An exact proof needs no answers.
            measured = "exactly" if found is None else rounded_down(found.epsilon, 3)
            elsewhere = one.caught and found is not None and found.epsilon <= found.claimed
            is_starred, measured = is_starred or elsewhere, measured + "*" if elsewhere else measured
            caught = Text(
                caught_or_not(one), "green" if one.as_it_should else "yellow" if _is_unseen(one) else "bold red"
            )
            said_at = [_short(entry.delta), _short(entry.claimed), _short(entry.truth), measured]
            row: list[str | Text] = [entry.name, *said_at, caught]
            table.add_row(*row, *([entry.teaches] if wide else []))
        console.print(table)
        if is_starred:
            console.print("* refuted at another (ε, δ) of its claim, not by this ε")
        found_out = sum(one.caught for one in looks if not one.entry.sound)
        blamed = sum(one.caught for one in looks if one.entry.sound)
        unseen = sum(_is_unseen(one) for one in looks)
        and_unseen = f", nothing seen of {unseen}" if unseen else ""
        console.print(
            f"\n{found_out} of {len(zoo.broken())} broken ones caught, {blamed} of {len(zoo.sound())} sound ones "
            f"blamed{and_unseen}; {trials:,} trials, confidence {float(confidence)!r}."
        )
    if any(not one.as_it_should and not _is_unseen(one) for one in looks):
        return 1
    return NOTHING_SEEN if any(_is_unseen(one) for one in looks) else 0


def _is_unseen(one: zoo.Look) -> bool:
    """Whether an entry is sound and no difference was proved, so that it was not tested."""
    return one.entry.sound and not one.seen


def caught_or_not(one: zoo.Look) -> str:
    """The verdict in a word or two."""
    if one.caught:
        return "yes"
    return "nothing seen" if _is_unseen(one) else "no, rightly" if one.entry.sound else "NO"


def _short(number: float) -> str:
    """A number with four digits and a short exponent: 4.295e9, 1e-5."""
    if math.isinf(number):
        return "∞"
    digits, _, exponent = f"{number:.4g}".partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


def _row(one: zoo.Look) -> dict[str, Any]:
    entry, found = one.entry, one.finding
    return {
        "name": entry.name,
        "claimed": entry.claimed if math.isfinite(entry.claimed) else "Infinity",
        "truth": entry.truth if math.isfinite(entry.truth) else "Infinity",
        "delta": entry.delta,
        "measured": None if found is None else found.epsilon,
        "caught": one.caught,
        "seen": one.seen,
        "sound": entry.sound,
        "teaches": entry.teaches,
        "source": entry.source,
    }
