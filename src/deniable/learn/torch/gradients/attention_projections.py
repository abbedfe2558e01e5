"""The projections inside nn.MultiheadAttention, which are linear maps but not calls of a module.

The layer passes its weights to one function of torch. During the layer's forward pass, a copy of that function runs
instead. Its code is the same, but its `linear` records input, weight, bias and output. No global name is patched, so
other calls are not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, final

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

OnLinear = Callable[[Tensor, Tensor, Tensor | None, Tensor], None]
"""Receives input, weight, bias and output of a linear map."""


def _twin(function: Any, names: dict[str, Any]) -> FunctionType:
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _listening(on_linear: OnLinear) -> FunctionType:
    """A copy of torch's attention function that calls `on_linear` for each linear map."""

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        out = F.linear(x, weight, bias)
        on_linear(x, weight, bias, out)
        return out

    names = {**vars(F), "linear": linear, "has_torch_function": lambda _: False}
    for helper in ("_in_projection_packed", "_in_projection"):
        names[helper] = _twin(getattr(F, helper), names)
    return _twin(F.multi_head_attention_forward, names)


@final
class Listening(TorchFunctionMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """While entered, torch's attention function is replaced by the recording copy."""

    def __init__(self, on_linear: OnLinear) -> None:
        super().__init__()
        self._twin = _listening(on_linear)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run = self._twin if func is F.multi_head_attention_forward else func
        return run(*args, **(kwargs or {}))


def block_of(weight: Tensor, module: nn.Module) -> tuple[str, int, int] | None:
    """(name, first row, end) of the parameter that this weight is, or is a slice of; None if no parameter matches."""
    for name, parameter in module.named_parameters():
        if weight is parameter:
            return name, 0, parameter.shape[0]
        whole = weight.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr()
        if whole and weight.stride() == parameter.stride() and weight.shape[1:] == parameter.shape[1:]:
            start = (weight.storage_offset() - parameter.storage_offset()) // max(1, parameter.stride(0))
            return name, start, start + weight.shape[0]
    return None
