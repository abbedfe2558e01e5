"""Answers are kept as they came: what a copy of them leaves out is read all the same."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deniable import audit, mechanisms
from deniable.curves import pure

HONEST = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.9)
CLAIM = pure(epsilon=1)
SURE = 1 - 1e-9


def with_cause(value: int) -> Exception:
    found = ValueError(HONEST.release(value))
    found.__cause__ = KeyError(value)
    return found


def with_context(value: int) -> Exception:
    found = ValueError(HONEST.release(value))
    found.__context__ = KeyError(value)
    return found


def with_hidden_context(value: int) -> Exception:
    found = with_context(value)
    found.__suppress_context__ = True
    return found


def with_context_behind_a_cause(value: int) -> Exception:
    found = with_context(value)
    found.__cause__ = KeyError("no")
    return found


def with_flag(value: int) -> Exception:
    found = ValueError(HONEST.release(value))
    found.__suppress_context__ = bool(value)
    return found


def with_note(value: int) -> Exception:
    found = ValueError(HONEST.release(value))
    found.add_note(f"was {value}")
    return found


class Forgetful:
    """A copy of it has only the noisy number."""

    def __init__(self, value: int) -> None:
        self.noisy, self.exact = HONEST.release(value), value

    def __deepcopy__(self, memo: Any) -> Any:
        other = object.__new__(Forgetful)
        other.noisy, other.exact = self.noisy, 0
        return other


def fixed(value: int) -> Any:
    found = np.array([HONEST.release(value)])
    found.flags.writeable = not value
    return found


def random_letter() -> str:
    return chr(97 + int(np.random.default_rng().integers(26)))


LEFT_OUT: dict[str, Callable[[int], Any]] = {
    "cause": with_cause,
    "context": with_context,
    "context that is not shown": with_hidden_context,
    "context behind a cause": with_context_behind_a_cause,
    "whether a context is shown": with_flag,
    "note": with_note,
    "cause, in a list": lambda value: [with_cause(value)],
    "cause, in a dict": lambda value: {"error": with_cause(value)},
    "cause, in a group": lambda value: ExceptionGroup("several", [with_cause(value)]),
    "object with a copy of its own": Forgetful,
    "array that is fixed": fixed,
    "array that is fixed, in a list": lambda value: [fixed(value), 1],
    "text in base64": lambda value: [
        HONEST.release(value), base64.b64encode(f"{random_letter()}{value} people".encode()).decode()
    ],
    "packed number in base64": lambda value: [
        HONEST.release(value),
        base64.urlsafe_b64encode(struct.pack("<dd", value, np.random.default_rng().normal())).decode(),
    ],
    "repeated key in JSON": lambda value: f'{{"n": {value}.{random_letter().encode()[0]}, "n": {HONEST.release(value)}}}',
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_exact_value_that_a_copy_leaves_out_was_called_consistent(name: str) -> None:
    """The cause of a returned error: errors are copied without it. False alarm: none, an exact value is told apart."""
    found = audit.measure(LEFT_OUT[name], neighbours=(0, 1), claim=CLAIM, trials=500, confidence=SURE)
    assert found.refuted, found.sentence


@pytest.mark.parametrize(
    "honest",
    [
        lambda value: ValueError(HONEST.release(value)),
        lambda value: [HONEST.release(value), iter([1, 2])],
        lambda value: {"n": HONEST.release(value)},
    ],
)
def test_honest_answers_that_are_copied_stay_consistent(honest: Callable[[int], Any]) -> None:
    """False alarm: 1e-9."""
    found = audit.measure(honest, neighbours=(0, 1), claim=CLAIM, trials=1500, confidence=SURE)
    assert found.verdict == "consistent"


def test_an_answer_is_what_it_was_when_it_came() -> None:
    """One error, returned again and again with another cause: the last cause was not that of all answers."""
    one = ValueError("no")

    def told(value: int) -> Exception:
        one.__cause__ = KeyError(value)
        return one

    assert audit.measure(told, neighbours=(0, 1), claim=CLAIM, trials=500, confidence=SURE).refuted


def test_functions_done_to_answers_get_the_answers_themselves() -> None:
    noisy = HONEST.then(lambda value: with_note(value)).then(lambda error: error.args[0])
    assert audit.measure(noisy, neighbours=(0, 1), claim=CLAIM, trials=1500, confidence=SURE).verdict == "consistent"
    caused = HONEST.then(with_cause).then(lambda error: error.__cause__.args[0])
    assert audit.measure(caused, neighbours=(0, 9), claim=CLAIM, trials=300, confidence=SURE).refuted


@pytest.mark.parametrize("word", ["consistent", "statistics", "ABCDEFGH", "no", "people12", "a" * 7 + "="])
def test_words_are_not_taken_for_base64(word: str) -> None:
    from deniable.audit.encoded_texts import decoded

    assert (decoded(word) is None) == (not word.endswith("="))
