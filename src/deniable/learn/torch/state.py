"""What modules remember in plain attributes: a forward pass must not carry one example over to another.

Buffers and parameters are for `watch`. Attributes that a forward pass sets are put back when its batch is over, so that
every batch, or every example alone, begins with the same ones. A counter, which one forward pass moves by 1, goes on
from step to step, and not inside of one: there it would tell how many came before. What is kept elsewhere (globals,
closures, other objects) is not seen.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import Any, Final, final

from torch import Tensor, nn

from deniable.errors import InvalidParameter
from deniable.learn.torch.watch import parts_of

INTERNAL: Final = frozenset(nn.Module().__dict__) | {"_flat_weights", "_flat_weight_refs"}
"""What torch keeps in every module, and in recurrent layers; parameters and buffers are for `watch`."""

PLAIN: Final = (int, float, complex, str, bytes, type(None))


@final
class State:
    """The attributes of a model's modules, as they were at the last `begin`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._inside: list[tuple[Any, Any]] = []
        """Lists, dicts and sets, and what was in them."""
        self._tensors: list[tuple[str, Tensor, int]] = []

    def begin(self) -> None:
        """From now on."""
        self._seen, self._inside, self._tensors = [], [], []
        for module in parts_of(self._model):
            own = module.__dict__
            self._seen.append((own, dict(own)))
            for name, value in own.items():
                if name not in INTERNAL and not isinstance(value, PLAIN):
                    self._look_into(name, value)

    def _look_into(self, name: str, value: Any, depth: int = 2) -> None:
        if isinstance(value, Tensor):
            self._tensors.append((name, value, value._version))
        elif isinstance(value, list | dict | set | deque) and depth:
            self._inside.append((value, value.copy()))
            for each in value.values() if isinstance(value, dict) else value:
                self._look_into(name, each, depth - 1)

    def changed(self) -> list[tuple[str, bool]]:
        """Attributes that are others than at `begin`, and whether they are counters; what was written into a tensor is
        refused."""
        for name, tensor, version in self._tensors:
            if tensor._version != version:
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


def _is_same(now: Any, before: Any) -> bool:
    """The same object, or a plain value that is equal to it."""
    if now is before:
        return True
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_is_same, now, before))
    return type(now) is type(before) and isinstance(now, PLAIN) and bool(now == before)
