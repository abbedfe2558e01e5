"""Running a mechanism many times, whatever it does: answer, raise, hang.

A mechanism is a function of a value, or has `release(value)`, or is a local protocol. To be quick it may have
`many(value, count)`: a list or array of so many independent answers. What it raises is an answer too (`Raised`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deniable.audit.answers import Answers, Raised
from deniable.audit.game import Sample
from deniable.errors import NOTHING, InvalidParameter, NotCertifiable
from deniable.local import Protocol
from deniable.mechanisms import Mechanism
from deniable.mechanisms.base import Asked, Composed, Processed
from deniable.mechanisms.steps import Additive

CHUNK: Final = 2**18
"""Answers that are drawn at a time in one call of `many`."""
PATIENCE: Final = 0.05
"""Seconds between two looks at the clock."""

Many = Callable[[Any, int], Any]
Progress = Callable[[int, int], None]
"""Told how many of how many calls were answered."""


def many(mechanism: Any) -> Many | None:
    """How a mechanism answers many times in one call; None if it cannot."""
    if isinstance(mechanism, type):
        return None
    given = getattr(mechanism, "many", None)
    if callable(given):
        return lambda value, count: given(value, count)
    if isinstance(mechanism, Protocol):
        return lambda value, count: mechanism.randomize([value] * count)
    if isinstance(mechanism, Additive) and mechanism.dimension is None:
        # One number many times is a vector of independent answers, drawn in one go.
        return lambda value, count: (
            mechanism.release(np.full(count, value)) if np.ndim(value) == 0 else _each(mechanism.release, value, count)
        )
    if isinstance(mechanism, Asked | Processed):
        inner = many(mechanism.mechanism)
        return None if inner is None else _around(mechanism, inner)
    if isinstance(mechanism, Composed):
        parts = [found for part in mechanism.parts if (found := many(part)) is not None]
        if len(parts) == len(mechanism):
            return lambda value, count: _rows([part(value, count) for part in parts])
    return None


def _around(mechanism: Asked | Processed, inner: Many) -> Many:
    if isinstance(mechanism, Asked):
        return lambda value, count: inner(mechanism.statistic(value), count)
    return lambda value, count: [mechanism.function(answer) for answer in _listed(inner(value, count))]


def _listed(answers: Any) -> list[Any]:
    return answers.tolist() if isinstance(answers, np.ndarray) and answers.ndim == 1 else list(answers)


def _rows(columns: list[Any]) -> Any:
    if all(isinstance(column, np.ndarray) and column.ndim == 1 for column in columns):
        return np.column_stack(columns)
    return list(zip(*columns, strict=True))


def _each(call: Callable[[Any], Any], value: Any, count: int) -> list[Any]:
    return [_answer(call, value) for _ in range(count)]


def _answer(call: Callable[[Any], Any], value: Any) -> Any:
    try:
        return call(value)
    except Exception as error:  # an error is an output
        return Raised(type(error).__name__)


def one(mechanism: Any) -> Callable[[Any], Any]:
    """How a mechanism answers once."""
    if isinstance(mechanism, Mechanism) or callable(getattr(mechanism, "release", None)):
        return mechanism.release  # type: ignore[no-any-return]
    if isinstance(mechanism, Protocol):
        return mechanism.randomize
    if callable(mechanism):
        return mechanism  # type: ignore[no-any-return]
    if callable(given := getattr(mechanism, "many", None)):
        return lambda value: given(value, 1)[0]
    raise InvalidParameter(
        "mechanism", mechanism, "must be a function of a value, or have release(value) or many(value, count)"
    )


def draw(
    mechanism: Any, neighbours: tuple[Any, Any], trials: int, *, seconds: float, progress: Progress | None = None
) -> Sample:
    """`trials` answers, each about the neighbour that a fair coin says."""
    is_first = np.random.default_rng().integers(0, 2, trials).astype(np.bool_)
    batch, single = many(mechanism), one(mechanism)
    done = [0]

    def work() -> Any:
        if batch is None:
            found = []
            for side in is_first.tolist():
                found.append(_answer(single, neighbours[0] if side else neighbours[1]))
                done[0] += 1
            return found
        sides = zip(neighbours, (is_first, ~is_first), strict=True)
        return merged([_batch(batch, single, value, int(chosen.sum()), done) for value, chosen in sides], is_first)

    return Sample(Answers.of(_in_time(work, seconds, done, trials, progress)), is_first)


def _batch(batch: Many, single: Callable[[Any], Any], value: Any, count: int, done: list[int]) -> Any:
    """So many answers about one neighbour, in pieces."""
    pieces = []
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        try:
            piece = batch(value, size)
        except Exception:  # one by one, to see which calls raise
            piece = _each(single, value, size)
        if isinstance(piece, Mapping | str | bytes) or not hasattr(piece, "__len__") or len(piece) != size:
            raise InvalidParameter("mechanism", NOTHING, f"many(value, count) must give count answers, here {size:,}")
        pieces.append(piece)
        done[0] += size
    if pieces and all(isinstance(piece, np.ndarray) for piece in pieces):
        return np.concatenate(pieces)
    return [answer for piece in pieces for answer in piece]


def merged(sides: list[Any], is_first: NDArray[np.bool_]) -> Any:
    """The answers about the first neighbour and about the second, in the order of the coins."""
    if all(isinstance(side, np.ndarray) for side in sides):
        first, second = sides
        if first.shape[1:] == second.shape[1:] and first.dtype.kind == second.dtype.kind:
            found = np.empty((len(is_first), *first.shape[1:]), dtype=np.result_type(first, second))
            found[is_first], found[~is_first] = first, second
            return found
    listed: list[Any] = [None] * len(is_first)
    for side, chosen in zip(sides, (is_first, ~is_first), strict=True):
        for place, answer in zip(np.flatnonzero(chosen).tolist(), side, strict=True):
            listed[place] = answer
    return listed


def _in_time(work: Callable[[], Any], seconds: float, done: list[int], total: int, progress: Progress | None) -> Any:
    """The result of some work, or an error when it has not come in time: a call that hangs must not hang the audit."""
    result: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=run, name="deniable-audit", daemon=True)
    end = time.monotonic() + seconds
    worker.start()
    while worker.is_alive() and time.monotonic() < end:
        worker.join(PATIENCE)
        if progress is not None:
            progress(done[0], total)
    if failed:
        raise failed[0]
    if not result:
        raise NotCertifiable(
            f"the mechanism answered {done[0]:,} of {total:,} calls within {seconds:g} seconds; give it more seconds, "
            "or fewer trials; if one call never ends, that is a finding too: its time depends on what it was asked"
        )
    return result[0]
