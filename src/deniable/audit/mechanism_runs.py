"""Running a mechanism many times, whatever it does: answer, raise, leave, hang.

A mechanism is a function of a value, or has `release(value)`, or is a local protocol. To be quick it may have
`many(value, count)`: a list or array of so many independent answers. `many` must be stateless: a single call is made
when its coin says so, but a batch answers for one neighbour at a time, and a memory, a counter or a clock inside it
would tell which. What a mechanism raises is an answer too (`Raised`).

Each call has a neighbour to itself: a mechanism may work in the array or list that it is given, and what it writes
there must not meet the next call. Its answers are kept as they were: it may fill the same array each time.
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
"""Coins for which answers are drawn at a time, in two calls of `many`: one for each neighbour."""
PATIENCE: Final = 0.05
"""Seconds between two looks at the clock."""
SMALL: Final = 2**61
"""Whole numbers below this take noise in 64 bits."""

FIXED: Final = frozenset({bool, int, float, complex, str, bytes, NoneType, range, Fraction, Decimal, Raised})
"""Types of values that nobody can change, so that they need no copies."""

Many = Callable[[Any, int], Any]
Progress = Callable[[int, int], None]
"""Told how many of how many calls were answered."""


class _Unanswered(Exception):
    """A `many` of the user's own raised: whose call it was nobody can tell."""


def many(mechanism: Any) -> Many | None:
    """How a mechanism answers many times in one call; None if its type has no such way."""
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
    """How a neighbour is had anew for each call."""
    if _is_fixed(value):
        return lambda: value
    # Looked through once, not for each call.
    return value.copy if type(value) is list and all(map(_is_fixed, value)) else lambda: _kept(value)


def _kept(value: Any) -> Any:
    """A value as it is now, whatever is written into it later. One that cannot be copied (a connection, a lock) stays
    the one it is.
    """
    if _is_fixed(value):
        return value
    if type(value) is np.ndarray and value.dtype.kind != "O":
        copied = value.copy(order="K")
        copied.flags.writeable = value.flags.writeable
        return copied
    try:
        return copy.deepcopy(value)
    except Exception:  # its own __deepcopy__ may raise anything
        return value


def _reports(reports: Any) -> Any:
    """Reports as rows of numbers: those of cohorts are a cohort and the bytes of its bits each."""
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
    """Independent noise on so many copies of a value."""
    if mechanism.dimension is not None and input_values.is_array(value):
        mechanism.release(value)  # its refusals, before any copy is made
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
    except BaseException as error:  # an error is an output, and leaving is one too
        return Raised.by(error)


def _as_it_came(answer: Any) -> Any:
    """An answer as it is now. Of what a copy leaves out (the cause of an error), what was read of the answer itself."""
    kept = _kept(answer)
    if kept is answer or _is_copied_whole(answer):
        return kept
    said = answer_reading.read(answer)
    # Reading may use an answer up (an iterator in a list), so that another copy is compared.
    return kept if answer_reading.read(_kept(kept)).identity == said.identity else Kept(answer, said)


def _is_copied_whole(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return all(map(_is_copied_whole, value))
    if kind is dict:
        return all(map(_is_fixed, value)) and all(map(_is_copied_whole, value.values()))
    return _is_fixed(value) or (kind is np.ndarray and value.dtype.kind != "O" and value.flags.writeable)


def _asked(answer: Any) -> Any:
    """An answer that is read once (an iterator, a cursor) is read here, before the next call: later it may be empty, or
    say something else.
    """
    if isinstance(answer, Iterator):
        return answer_reading.drained(answer)
    return list(answer.fetchall()) if foreign_frames.is_result(answer) else answer


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
    """`trials` answers, each about the neighbour that a fair coin says, in the order of the coins.

    What is done to answers (`then`) may have a memory or look at a clock, so it is done in that order too.
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
        given_up.set()  # nobody waits for the calls that are left
    _must_say_something(answers)
    return Sample(Answers.of(answers), is_first)


def _block(batch: Many, neighbours: tuple[Any, Any], is_first: NDArray[np.bool_]) -> Any:
    """Answers for some coins: a batch for each neighbour, the one or the other first by a coin of their own."""
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
        rule = f"many(value, count) must answer every call, and it raised {error}"
        raise InvalidParameter("mechanism", NOTHING, rule, "or leave many out, to be asked one by one") from None
    except Exception as error:  # a public rule that the value breaks, so every single call raises it
        return [Raised.by(error)] * count
    if isinstance(found, Mapping | str | bytes) or not hasattr(found, "__len__") or len(found) != count:
        raise InvalidParameter("mechanism", NOTHING, f"many(value, count) must give count answers, here {count:,}")
    return found


def _done_to(block: Any, functions: list[Callable[[Any], Any]]) -> list[Any]:
    found = block.tolist() if isinstance(block, np.ndarray) and block.ndim == 1 else list(block)
    for function in functions:
        came = (answer.answer if isinstance(answer, Kept) else answer for answer in found)
        found = [answer if isinstance(answer, Raised) else _answer(function, answer) for answer in came]
    return found


def _joined(blocks: list[Any]) -> Any:
    return np.concatenate(blocks) if _are_alike(blocks) else [answer for block in blocks for answer in block]


def _are_alike(batches: list[Any]) -> bool:
    """Arrays of one type and shape: others must not become one array, as then ints would become floats."""
    if not all(isinstance(batch, np.ndarray) for batch in batches):
        return False
    return len({(batch.dtype, batch.shape[1:]) for batch in batches}) == 1


def merged(sides: list[Any], is_first: NDArray[np.bool_]) -> Any:
    """The answers about the first neighbour and about the second, in the order of the coins."""
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
    """Refuses a mechanism that only ever raises the same, or answers with what nobody can read: a finding about these
    would look like one about its noise.
    """
    if isinstance(answers, np.ndarray) or not len(answers):
        return
    count, kind = len(answers), type(answers[0])
    if any(type(answer) is not kind for answer in answers):
        return
    if kind is Raised and len({answer.error for answer in answers}) == 1:
        failed = NotCertifiable(
            f"all {count:,} calls {answers[0]}: there is nothing to audit; call the mechanism once with each neighbour "
            "and see why"
        )
        if answers[0].message:  # beside the error, not in it: for whoever runs the audit of their own mechanism
            failed.add_note(f"The first call said: {answers[0].message}")
        raise failed
    if all(_is_shut(answer) for answer in answers):
        raise NotCertifiable(f"all {count:,} answers are of type {kind.__name__}, {UNREADABLE}")


def _is_shut(answer: Any) -> bool:
    """Whether nothing can be read of an answer but its type."""
    found = answer_reading.read(answer)
    return bool(found.shut) and not found.numbers and len(found.words) == len(found.shut)


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
        answered = done[0]
        raise NotCertifiable(
            f"the mechanism answered {answered:,} of {total:,} calls within {seconds:g} seconds; give it more seconds "
            f"or fewer trials (at this pace {answered // 2:,}, two calls each); large answers are slow, so let it "
            "return the few numbers that matter; and if one call never ends, that is a finding too: its time "
            "depends on what it was asked"
        )
    return result[0]
