"""Runs a mechanism many times, whether it answers, raises, exits or hangs.

A mechanism is a function of a value, or has `release(value)`, or is a local protocol. For speed it may have
`many(value, count)`, which returns a list or array of `count` independent answers. `many` must be stateless: single
calls come in the order of their coins, but a batch is for one neighbour, and a memory, a counter or a clock in it would
reveal which neighbour. An exception is an answer too (`Raised`).

Each call gets its own copy of a neighbour, because a mechanism may write into its input. Answers are copied too,
because a mechanism may reuse the same array for each answer.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deniable.audit import answer_reading, foreign_frames
from deniable.audit.answer_columns import UNREADABLE, Answers, Raised
from deniable.audit.event_search import Sample
from deniable.audit.object_contents import Kept
from deniable.errors import NOTHING, InvalidParameter, NotCertifiable
from deniable.local import CohortReports, Protocol
from deniable.mechanisms import Mechanism, input_values
from deniable.mechanisms.mechanism import Composed, Processed
from deniable.mechanisms.noise_steps import Additive, noisy_floats

CHUNK: Final = 2**15
"""The number of coins per batch, which is two calls of `many`: one for each neighbour."""
PATIENCE: Final = 0.05
"""Seconds between two checks of the time limit."""
SMALL: Final = 2**61
"""Integers below this get noise in 64-bit arithmetic."""

FIXED: Final = frozenset({bool, int, float, complex, str, bytes, NoneType, range, Fraction, Decimal, Raised})
"""Immutable types, whose values need no copies."""

Many = Callable[[Any, int], Any]
Progress = Callable[[int, int], None]
"""Called with the number of answered calls and the total."""


class _Unanswered(Exception):
    """A user's `many` raised, so the failing call is unknown."""


def many(mechanism: Any) -> Many | None:
    """A function (value, count) -> answers for the mechanism; None if it has no batch mode."""
    if isinstance(mechanism, type):
        return None
    given = getattr(mechanism, "many", None)
    if callable(given):
        return _their_own(given)
    if isinstance(mechanism, Protocol):
        return lambda value, count: _reports(mechanism.randomize([value] * count))
    if isinstance(mechanism, Additive):
        return lambda value, count: _noisy(mechanism, value, count)
    if isinstance(mechanism, Composed):
        parts = [found for part in mechanism.parts if (found := many(part)) is not None]
        if parts and len(parts) == len(mechanism):
            return lambda value, count: _rows([part(value, count) for part in parts])
    return None


def _is_fixed(value: Any) -> bool:
    kind = type(value)
    return kind in FIXED or isinstance(value, np.generic) or (kind is tuple and all(map(_is_fixed, value)))


def _copies(value: Any) -> Callable[[], Any]:
    """A function that returns a fresh copy of a neighbour."""
    if _is_fixed(value):
        return lambda: value
    # Inspected once, not for each call.
    return value.copy if type(value) is list and all(map(_is_fixed, value)) else lambda: _kept(value)


def _kept(value: Any) -> Any:
    """A copy of a value, independent of later writes. A value that cannot be copied (a connection, a lock) is returned
    itself."""
    if _is_fixed(value):
        return value
    if type(value) is np.ndarray and value.dtype.kind != "O":
        copied = value.copy(order="K")
        copied.flags.writeable = value.flags.writeable
        return copied
    try:
        return copy.deepcopy(value)
    except Exception:  # a user's __deepcopy__ may raise any error
        return value


def _reports(reports: Any) -> Any:
    """Reports as rows of numbers. A cohort report becomes its cohort, followed by the bytes of its bits."""
    return np.column_stack([reports.cohorts, reports.rows]) if isinstance(reports, CohortReports) else reports


def _their_own(given: Many) -> Many:
    def call(value: Any, count: int) -> Any:
        try:
            found = foreign_frames.rows(given(value, count))
            return found.copy() if isinstance(found, np.ndarray | list) else found
        except BaseException as error:
            raise _Unanswered(type(error).__name__) from None

    return call


def _noisy(mechanism: Additive, value: Any, count: int) -> Any:
    """`count` releases of a value with independent noise."""
    if mechanism.dimension is not None and input_values.is_array(value):
        mechanism.release(value)  # raises for an invalid value
        copied = input_values.wholes(value) if mechanism.exponent is None else input_values.reals(value)
        drawn = mechanism.draw((count, *copied.shape), None)
        copies = np.broadcast_to(copied, drawn.shape)
        return copies + drawn if mechanism.exponent is None else noisy_floats(copies, drawn, mechanism.exponent)
    mechanism.release(value)
    drawn = mechanism.draw(count, None)
    if mechanism.exponent is None:
        whole = input_values.whole(value)
        return whole + drawn if abs(whole) < SMALL else [whole + int(z) for z in drawn.tolist()]
    real = input_values.real(value)
    copies = np.full(count, real, dtype=object if isinstance(real, Fraction) else np.float64)
    return noisy_floats(copies, drawn, mechanism.exponent)


def _rows(columns: list[Any]) -> Any:
    if all(isinstance(column, np.ndarray) and column.ndim == 1 for column in columns):
        if len({column.dtype.kind for column in columns}) == 1:
            return np.column_stack(columns)
        columns = [column.tolist() for column in columns]
    return list(zip(*columns, strict=True))


def _answer(call: Callable[[Any], Any], value: Any) -> Any:
    try:
        return _as_it_came(_asked(call(value)))
    except answer_reading.Endless:
        raise
    except BaseException as error:  # an error is an output, and so is an exit
        return Raised.by(error)


def _as_it_came(answer: Any) -> Any:
    """A copy of an answer. If a copy is incomplete (the cause of an error), the answer with its contents, as `Kept`."""
    kept = _kept(answer)
    if kept is answer or _is_copied_whole(answer):
        return kept
    contents = answer_reading.read(answer)
    # Reading may exhaust an answer (an iterator in a list), so a second copy is compared.
    return kept if answer_reading.read(_kept(kept)).identity == contents.identity else Kept(answer, contents)


def _is_copied_whole(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return all(map(_is_copied_whole, value))
    if kind is dict:
        return all(map(_is_fixed, value)) and all(map(_is_copied_whole, value.values()))
    return _is_fixed(value) or (kind is np.ndarray and value.dtype.kind != "O" and value.flags.writeable)


def _asked(answer: Any) -> Any:
    """The items of an answer that can be read only once (an iterator, a cursor), before the next call changes it."""
    if isinstance(answer, Iterator):
        return answer_reading.drained(answer)
    return list(answer.fetchall()) if foreign_frames.is_result(answer) else answer


def one(mechanism: Any) -> Callable[[Any], Any]:
    """A function value -> answer for the mechanism. Raises `InvalidParameter` if it has none."""
    if isinstance(mechanism, Mechanism) or callable(getattr(mechanism, "release", None)):
        return mechanism.release  # type: ignore[no-any-return]  # a user's object
    if isinstance(mechanism, Protocol):
        return mechanism.randomize
    if callable(mechanism):
        return mechanism  # type: ignore[no-any-return]  # a user's object
    if callable(given := getattr(mechanism, "many", None)):
        return lambda value: given(value, 1)[0]
    raise InvalidParameter(
        "mechanism", mechanism, "must be a function of a value, or have release(value) or many(value, count)"
    )


def draw(
    mechanism: Any, neighbours: tuple[Any, Any], trials: int, *, seconds: float, progress: Progress | None = None
) -> Sample:
    """`trials` answers, each for a neighbour chosen by a fair coin, in the order of the coins.

    Post-processing (`then`) may have a memory or use a clock, so it runs in that order too. Raises `NotCertifiable`
    after `seconds`, or if all calls fail in the same way.
    """
    is_first = np.random.default_rng().integers(0, 2, trials).astype(np.bool_)
    inner: Any = mechanism
    functions: list[Callable[[Any], Any]] = []
    while isinstance(inner, Processed):
        functions.insert(0, inner.function)
        inner = inner.mechanism
    batch, single = many(inner), one(mechanism)
    fresh, done = (_copies(neighbours[0]), _copies(neighbours[1])), [0]
    given_up = threading.Event()

    def work() -> Any:
        if batch is None:
            found: list[Any] = []
            for side in is_first.tolist():
                if given_up.is_set():
                    break
                found.append(_answer(single, fresh[0]() if side else fresh[1]()))
                done[0] += 1
            return found
        blocks = []
        for start in range(0, trials, CHUNK):
            if given_up.is_set():
                break
            block = _block(batch, (fresh[0](), fresh[1]()), is_first[start : start + CHUNK])
            blocks.append(_done_to(block, functions) if functions else block)
            done[0] += len(block)
        return _joined(blocks)

    try:
        answers = _in_time(work, seconds, done, trials, progress)
    finally:
        given_up.set()  # stops the worker before its next call
    _must_say_something(answers)
    return Sample(Answers.of(answers), is_first)


def _block(batch: Many, neighbours: tuple[Any, Any], is_first: NDArray[np.bool_]) -> Any:
    """Answers for some coins: one batch for each neighbour, in random order."""
    masks = (is_first, ~is_first)
    sides: list[Any] = [None, None]
    order = (0, 1) if np.random.default_rng().integers(0, 2) else (1, 0)
    for side in order:
        sides[side] = _batch(batch, neighbours[side], int(masks[side].sum()))
    return merged(sides, is_first)


def _batch(batch: Many, value: Any, count: int) -> Any:
    if count == 0:
        return []
    try:
        found = batch(value, count)
    except _Unanswered as error:
        rule = f"many(value, count) must return answers, but it raised {error}"
        raise InvalidParameter(
            "mechanism", NOTHING, rule, "remove many, and the mechanism is called once a trial"
        ) from None
    except Exception as error:  # the value violates a public rule, so every single call would raise it
        return [Raised.by(error)] * count
    if isinstance(found, Mapping | str | bytes) or not hasattr(found, "__len__") or len(found) != count:
        raise InvalidParameter("mechanism", NOTHING, f"many(value, {count}) must return a sequence of {count} answers")
    return found


def _done_to(block: Any, functions: list[Callable[[Any], Any]]) -> list[Any]:
    found = block.tolist() if isinstance(block, np.ndarray) and block.ndim == 1 else list(block)
    for function in functions:
        originals = (answer.answer if isinstance(answer, Kept) else answer for answer in found)
        found = [answer if isinstance(answer, Raised) else _answer(function, answer) for answer in originals]
    return found


def _joined(blocks: list[Any]) -> Any:
    return np.concatenate(blocks) if _are_alike(blocks) else [answer for block in blocks for answer in block]


def _are_alike(batches: list[Any]) -> bool:
    """Whether all are arrays of one type and shape. Joining others would turn integers into floats."""
    if not all(isinstance(batch, np.ndarray) for batch in batches):
        return False
    return len({(batch.dtype, batch.shape[1:]) for batch in batches}) == 1


def merged(sides: list[Any], is_first: NDArray[np.bool_]) -> Any:
    """The answers for both neighbours, in the order of the coins."""
    drawn = [side for side in sides if len(side)]
    if _are_alike(drawn):
        found = np.empty((len(is_first), *drawn[0].shape[1:]), dtype=np.result_type(*drawn))
        for side, chosen in zip(sides, (is_first, ~is_first), strict=True):
            if len(side):
                found[chosen] = side
        return found
    listed: list[Any] = [None] * len(is_first)
    for side, chosen in zip(sides, (is_first, ~is_first), strict=True):
        for place, answer in zip(np.flatnonzero(chosen).tolist(), side, strict=True):
            listed[place] = answer
    return listed


def _must_say_something(answers: Any) -> None:
    """Raise for a mechanism that always raises the same error, or whose answers cannot be read: a finding about these
    would look like a finding about its noise.
    """
    if isinstance(answers, np.ndarray) or not len(answers):
        return
    count, kind = len(answers), type(answers[0])
    if any(type(answer) is not kind for answer in answers):
        return
    if kind is Raised and len({answer.error for answer in answers}) == 1:
        failed = NotCertifiable(
            f"all {count:,} calls {answers[0]}, so nothing can be audited; call the mechanism once with each neighbour "
            "to see why"
        )
        if answers[0].message:  # as a note, for the person who audits their own mechanism
            failed.add_note(f"The first call said: {answers[0].message}")
        raise failed
    if all(_is_shut(answer) for answer in answers):
        raise NotCertifiable(f"all {count:,} answers are of type {kind.__name__}, {UNREADABLE}")


def _is_shut(answer: Any) -> bool:
    """Whether only the type of an answer can be read."""
    found = answer_reading.read(answer)
    return bool(found.shut) and not found.numbers and len(found.words) == len(found.shut)


def _in_time(work: Callable[[], Any], seconds: float, done: list[int], total: int, progress: Progress | None) -> Any:
    """The result of `work`. Raises `NotCertifiable` after `seconds`, so that a hanging call cannot block the audit."""
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
        answered = done[0]
        raise NotCertifiable(
            f"the mechanism answered {answered:,} of {total:,} calls within {seconds:g} seconds; allow more seconds, "
            f"or ask for {answered // 2:,} trials (two calls each), which fit at this pace; large answers are slow to "
            "read, so let the mechanism return only the numbers that matter; if one call never ends, this is a leak "
            "too, because the time depends on the input"
        )
    return result[0]
