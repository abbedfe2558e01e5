"""Memory that torch leaves uninitialised is filled with zeros, because it may hold numbers of other examples.

`torch.empty` returns memory as it was freed: often the numbers of an earlier computation on other examples. During a
forward pass such memory is cleared, so that it is a constant, as the rules of `separation_rules` take it to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from deniable.learn.torch.guards.tensor_domains import written_by

aten = torch.ops.aten


def _all_of(*packets: Any) -> frozenset[Any]:
    return frozenset(getattr(each, name) for each in packets for name in each.overloads() if "out" not in name)


EMPTY = _all_of(
    aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty, aten.new_empty_strided
)
"""Operations whose output is uninitialised."""

GROWN = _all_of(aten.resize_, aten.resize_as_)
"""Operations whose output is uninitialised behind the numbers that were there."""


def cleared(func: Any, args: Any, kwargs: Any) -> Any:
    """Call an operation, and fill with zeros what it left uninitialised."""
    if func in EMPTY:
        out = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            return out.zero_() if _has_memory(out) else out
    if func in GROWN:
        with torch._C.DisableTorchFunction():
            before = args[0].untyped_storage().nbytes()
            out = func(*args, **kwargs)
            storage = out.untyped_storage()
            bytes_ = torch.zeros(0, dtype=torch.uint8, device=out.device).set_(storage, 0, (storage.nbytes(),))
            bytes_[before:].zero_()
            return out
    return func(*args, **kwargs)


def _has_memory(made: Any) -> bool:
    return isinstance(made, Tensor) and made.layout is torch.strided and not made.is_nested


def clear_in(graph: fx.Graph) -> bool:
    """Change a captured graph in the same way. False if it changes the size of memory, which no graph can clear."""
    for node in list(graph.nodes):
        if node.target in GROWN:
            return False
        if node.target in EMPTY:
            with graph.inserting_after(node):
                zeros = graph.call_function(aten.zeros_like.default, (node,))
                zeros.meta = dict(node.meta)
            node.replace_all_uses_with(zeros, delete_user_cb=lambda user, zeros=zeros: user is not zeros)
    return True


@final
class ClearedMemory(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """Clears uninitialised memory, and calls `wrote` with each tensor that an operation changes.

    For passes without a trace: a trace clears memory itself.
    """

    def __init__(self, wrote: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._wrote = wrote

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            for each in written_by(func, args, kwargs or {}):
                self._wrote(each)
        return cleared(func, args, kwargs or {})

    def end(self) -> None:
        """Stop, unless other code has entered a mode since."""
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)
