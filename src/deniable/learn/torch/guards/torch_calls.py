"""Calls of torch's functions during a forward pass: which of them reveal values, and which change the backward pass."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_flatten

from deniable.learn.torch.guards.forward_watch import parts_of
from deniable.learn.torch.guards.tensor_domains import MixedExamples

READS = frozenset({"__deepcopy__", "__reduce_ex__", "apply_", "map_", "map2_", "__repr__", "__format__"})
"""Functions that read a tensor's values without torch's operations, even if they also run some."""

SHAPED = frozenset({"expand_as", "view_as", "reshape_as", "type_as", "to", "sum_to_size"})
"""Functions that read only the shape or the type of a second tensor."""

PLAIN = (
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "stride", "storage_offset", "dtype",
    "device", "layout", "type", "element_size", "itemsize", "nbytes", "names", "has_names", "requires_grad",
    "requires_grad_", "retains_grad", "retain_grad", "output_nr", "get_device", "dim_order",
    "result_type", "_version", "_backward_hooks", "_base", "__len__", "__dir__", "__dlpack_device__",
)  # fmt: skip
"""Attributes and methods that reveal no values of a tensor and run no operation, like all that begin with `is_`."""

HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook", "grad_fn", "saved_tensors_hooks"})
"""Functions that put Python code into a backward pass, which no rule covers. A node (`grad_fn`) takes hooks as well."""

INSIDE = ("deniable.", "torch.")
"""Modules, by the beginning of their name, that read nodes and put no hooks on them."""

GIVES_NODES = "torch.autograd.graph"
"""A module of torch that returns nodes to its callers (`get_gradient_edge`), or puts hooks on them."""


PLAIN_KINDS = (
    *(Tensor, int, float, complex, str, bytes, type(None), type(...), range, np.generic, np.ndarray, type),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator, torch.SymInt),
    torch.ScriptObject,
)
"""Types of arguments that torch reads without code of Python. From any other object it may ask for numbers
(`__index__`, `__float__`, `__getitem__`) while no mode is on."""


def is_plain_argument(value: Any) -> bool:
    """Whether torch reads this argument without calling code of Python."""
    if isinstance(value, slice):
        return all(map(is_plain_argument, (value.start, value.stop, value.step)))
    return isinstance(value, PLAIN_KINDS)


def may_be_state(tensor: Tensor, *, is_written: bool) -> bool:
    """Whether a generator of random numbers takes this tensor as its state, which no mode sees. A tensor that was
    written into may be a part of a state."""
    if tensor.dtype != torch.uint8 or tensor.is_nested or tensor.layout is not torch.strided:
        return False
    sizes = {each.numel() for each in states()}
    if not is_written:
        return tensor.numel() in sizes
    with torch._C.DisableTorchFunction():
        return bool(tensor.untyped_storage().nbytes() >= min(sizes))


def looked_into(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments of a function, and in lists among them, whose numbers the function may read."""
    found = tree_flatten((args[:1] if name in SHAPED else args, kwargs))[0]
    return [each for each in found if isinstance(each, Tensor)]


@final
class FunctionCalls(TorchFunctionMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """Intercepts calls of torch's functions, which may run several operations each."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call, self._plain = call, frozenset(PLAIN)

    def left(self, mode: TorchDispatchMode) -> None:
        """Leave this mode and the one of the operations. A mode that other code has entered since is left in place."""
        if _get_current_dispatch_mode() is mode:
            mode.__exit__(None, None, None)
        if _get_current_function_mode() is self:
            self.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):  # of an attribute
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        if _packs_in_python():
            return self._call("saved_tensors_hooks", func, args, kwargs or {})
        if name in self._plain or name.startswith(("is_", "_is_")):
            return func(*args, **(kwargs or {}))
        if name == "grad_fn" and _is_inside(str(sys._getframe(1).f_globals.get("__name__"))):
            return func(*args, **(kwargs or {}))
        return self._call(name, func, args, kwargs or {})


def _packs_in_python() -> bool:
    """Whether code outside of torch packs and unpacks the tensors that a backward pass needs. torch's own code
    does so for gradient checkpointing, which is allowed.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and not str(getattr(hooks[0], "__module__", "")).startswith("torch.")


def _is_inside(module: str) -> bool:
    return module.startswith(INSIDE) and module != GIVES_NODES


@final
class GeneratorWatch:
    """Detects whether the seed or the state of torch's own generators was set since this was made."""

    def __init__(self) -> None:
        self._is_seeded = False
        self.drawn()

    def is_seeded(self) -> bool:
        """Call before an operation. The states must equal those after the previous operation; this also detects a seed
        that is set again to the same value."""
        if not self._is_seeded:
            now = states()
            self._is_seeded = len(now) != len(self._left) or not all(map(torch.equal, now, self._left))
        return self._is_seeded

    def drawn(self) -> None:
        """Call after an operation, which may have drawn random numbers."""
        if not self._is_seeded:
            self._left = states()


def states() -> list[Tensor]:
    """The states of torch's own generators: of the CPU, and of each device that was used."""
    there = (torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ()))
    return [each.get_state() for each in there]


def full_precision(kind: str) -> AbstractContextManager[Any]:
    """Disable autocast on this kind of device: half precision would make norms too small."""
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def digest_of(*tensors: Tensor) -> str:
    """Equal for equal states of generators."""
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()


def hooks_of(model: nn.Module) -> MixedExamples | None:
    """The domain of losses if a module has a backward hook; else None."""
    everywhere = nn.modules.module
    is_hooked = bool(everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks)
    if is_hooked or any(each._backward_hooks or each._backward_pre_hooks for each in parts_of(model)):
        return MixedExamples("a module's hook on the backward pass")
    return None
