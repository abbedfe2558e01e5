"""Objects whose state is neither in attributes nor in containers: random generators of Python and numpy, files in
memory, arrays of bytes, values of C, and memory of torch on a CPU. A snapshot reads that state, compares it and puts it
back.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch


@final
@dataclass(frozen=True, slots=True)
class InnerState:
    """How the state of a type is read, as a value that can be compared, and how it is set."""

    read: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


def _set_generator(value: np.random.Generator, state: bytes) -> None:
    value.bit_generator.state = pickle.loads(state)  # our own copy


def _set_bytes(value: bytearray, state: bytes) -> None:
    value[:] = state


def _set_array(value: array[Any], state: bytes) -> None:
    del value[:]
    value.frombytes(state)


def _set_view(value: memoryview, state: bytes) -> None:
    value.cast("B")[:] = state


def _bytes_of(value: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(value.data_ptr(), value.nbytes()) if value.device.type == "cpu" and value.nbytes() else b""


def _set_storage(value: torch.UntypedStorage, state: bytes) -> None:
    ctypes.memmove(value.data_ptr(), state, len(state))


def _set_number(value: Any, state: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), state, len(state))


_text = InnerState(lambda value: value.__getstate__(), lambda value, state: value.__setstate__(state))
_file = InnerState(lambda value: value.__getstate__()[:2], lambda value, state: value.__setstate__((*state, None)))

KINDS: dict[type, InnerState] = {
    random.Random: InnerState(random.Random.getstate, random.Random.setstate),
    np.random.Generator: InnerState(lambda value: pickle.dumps(value.bit_generator.state), _set_generator),
    np.random.RandomState: InnerState(
        lambda value: pickle.dumps(value.get_state(legacy=False)),
        lambda value, state: value.set_state(pickle.loads(state)),
    ),
    torch.UntypedStorage: InnerState(_bytes_of, _set_storage),
    ctypes._SimpleCData.__mro__[1]: InnerState(bytes, _set_number),
    bytearray: InnerState(bytes, _set_bytes),
    array: InnerState(array.tobytes, _set_array),
    memoryview: InnerState(memoryview.tobytes, _set_view),
    io.BytesIO: _file,
    io.StringIO: _text,  # its state has a third part, the kind of line ends
}


def inner_state(value: Any) -> InnerState | None:
    """How to read and set the state of this object; None if it has none of this kind."""
    found = next((KINDS[kind] for kind in type(value).__mro__ if kind in KINDS), None)
    is_read_only = isinstance(value, memoryview) and (value.readonly or not value.c_contiguous)
    return None if is_read_only else found
