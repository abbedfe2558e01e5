"""What modules remember in plain attributes: a forward pass must not carry one example over to another.

Buffers and parameters are for `watch`. Attributes that a forward pass sets are put back when its batch is over, so that
every batch, or every example alone, begins with the same ones. A counter, which one forward pass moves by 1, goes on
from step to step, and not inside of one: there it would tell how many came before. Containers, arrays, generators and
plain objects that an attribute leads to are looked into. What is kept elsewhere (globals, closures, classes, objects
without a `__dict__`) is not seen, nor what is written through `.data` into a large tensor.
"""

from __future__ import annotations

import operator
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np
from torch import Generator, Tensor, nn

from deniable.errors import InvalidParameter
from deniable.learn.torch.watch import parts_of

INTERNAL: Final = frozenset(nn.Module().__dict__) | {"_flat_weights", "_flat_weight_refs"}
"""What torch keeps in every module, and in recurrent layers; parameters and buffers are for `watch`."""

SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, nn.Module)
"""Not looked into: classes, modules and functions are not the model's own, and parts of it are listed by themselves."""

COPIED: Final = 1 << 16
"""Tensors of so many numbers at most are copied: what is written through `.data` moves no version."""

PLAIN: Final = (int, float, complex, str, bytes, type(None))


@final
class State:
    """The attributes of a model's modules, as they were at the last `begin`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._inside: list[tuple[Any, Any]] = []
        """Lists, dicts and sets, and what was in them."""
        self._tensors: list[tuple[str, Tensor, int, int, Tensor | None]] = []
        """Name, version, place in memory, and a copy where there is little to copy."""
        self._arrays: list[tuple[Any, Any]] = []
        self._generators: list[tuple[Generator, Tensor]] = []

    def begin(self) -> None:
        """From now on."""
        self._seen, self._inside, self._tensors, self._arrays, self._generators = [], [], [], [], []
        reached: set[int] = set()
        for module in parts_of(self._model):
            own = module.__dict__
            self._seen.append((own, dict(own)))
            for name, value in own.items():
                if name not in INTERNAL and not isinstance(value, PLAIN):
                    self._look_into(name, value, reached)
            for name, buffer in (*module._buffers.items(), *module._parameters.items()):
                if buffer is not None:
                    self._look_into(name, buffer.__dict__, reached)

    def _look_into(self, name: str, start: Any, reached: set[int]) -> None:
        """All that can be reached from an attribute through containers and plain objects."""
        waiting = [start]
        while waiting:
            value = waiting.pop()
            if isinstance(value, PLAIN + SHARED) or id(value) in reached:
                continue
            reached.add(id(value))
            if isinstance(value, Tensor):
                copied = value.detach().clone() if value.numel() <= COPIED else None
                self._tensors.append((name, value, value._version, value.data_ptr(), copied))
            elif isinstance(value, np.ndarray):
                self._arrays.append((value, value.copy()))
            elif isinstance(value, Generator):
                self._generators.append((value, value.get_state()))
            elif isinstance(value, list | dict | set | deque):
                self._inside.append((value, value.copy()))
                waiting += value.values() if isinstance(value, dict) else value
            elif isinstance(value, tuple | frozenset):
                waiting += value
            elif type(value).__module__.partition(".")[0] in ("torch", "deniable"):
                continue  # an optimizer, or the trainer itself, moves on by right
            elif type(own := getattr(value, "__dict__", None)) is dict:
                self._inside.append((own, own.copy()))
                waiting += own.values()

    def changed(self) -> list[tuple[str, bool]]:
        """Attributes that are others than at `begin`, and whether they are counters; what was written into a tensor is
        refused."""
        for name, tensor, version, place, copied in self._tensors:
            is_other = tensor._version != version or tensor.data_ptr() != place
            if is_other or (copied is not None and not _is_equal(tensor, copied)):
                rule = "is a tensor in an attribute that the forward pass wrote the data into, without noise"
                remedy = "make a new tensor instead of writing into it, or leave out running statistics"
                raise InvalidParameter("model", name, rule, remedy)
        found = []
        for own, before in self._seen:
            if len(own) != len(before) or not all(map(operator.is_, own.values(), before.values())):
                for name in (own.keys() | before.keys()) - INTERNAL:
                    now, was = own.get(name), before.get(name)
                    if not _is_same(now, was):
                        found.append((name, type(now) is type(was) is int and abs(now - was) == 1))
        for value, inside in self._inside:
            listed = [list(each.items()) if isinstance(each, dict) else list(each) for each in (value, inside)]
            if len(value) != len(inside) or not all(map(_is_same, *listed)):
                found.append((type(value).__name__, False))
        found += [("array", False) for now, was in self._arrays if now.tobytes() != was.tobytes()]
        found += [("generator", False) for now, was in self._generators if not now.get_state().equal(was)]
        return found

    def counters(self) -> list[tuple[dict[str, Any], str, int]]:
        """All counters that moved: where they are, and where they stand."""
        moved = [(own, name) for own, before in self._seen for name in own if own[name] is not before.get(name)]
        return [(own, name, own[name]) for own, name in moved if name not in INTERNAL and type(own[name]) is int]

    def restore(self) -> None:
        """As it was at `begin`."""
        for own, before in self._seen:
            for name in own.keys() - before.keys():
                del own[name]
            own.update({name: value for name, value in before.items() if name not in INTERNAL})
        for value, before in self._inside:
            value.clear()
            value.extend(before) if isinstance(value, list | deque) else value.update(before)
        for array, copied in self._arrays:
            array[...] = copied
        for generator, state in self._generators:
            generator.set_state(state)


def _is_equal(now: Tensor, before: Tensor) -> bool:
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    return bool(((now == before) | ((now != now) & (before != before))).all())


def _is_same(now: Any, before: Any) -> bool:
    """The same object, or a plain value that is equal to it."""
    if now is before:
        return True
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_is_same, now, before))
    return type(now) is type(before) and isinstance(now, PLAIN) and bool(now == before)
