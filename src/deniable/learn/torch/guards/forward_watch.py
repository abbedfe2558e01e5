"""Buffers and parameters, which a forward pass must not change: they would carry data out of it without noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from deniable.errors import InvalidParameter
from deniable.learn.torch.guards.object_snapshots import COPIED

Holder = dict[str, Any]
"""A module's own dictionary of buffers or of parameters, in which a tensor may also be replaced."""


@final
class ForwardWatch:
    """Checks that a forward pass neither overwrites nor replaces buffers and parameters of a model, and that the set of
    trained parameters stays the same."""

    def __init__(self, model: nn.Module, trained: Iterable[Tensor]) -> None:
        self._model = model
        self._trained = {id(each) for each in trained}
        self._seen: list[tuple[Holder, str, Any, int, int]] = []
        """(holder, name, tensor, version, address): `.data =` gives a tensor another address and the same version."""
        self._copies: list[tuple[Holder, str, Tensor]] = []
        self._small: list[tuple[Holder, str, Tensor]] = []
        """Copies of small parameters on a CPU."""
        self.is_close = True
        """Whether small parameters are compared with their copies: where no trace shows that code reads the data."""
        self._places: dict[int, tuple[Holder, str]] | None = None
        """Storages of all buffers and parameters; None until an operation writes into something."""
        self._written: tuple[Holder, str] | None = None

    def begin(self, *, closely: bool) -> None:
        """Start watching. `closely` also detects writes into buffers that torch does not see, at the cost of a copy of
        all buffers.
        """
        self.end()
        for module in parts_of(self._model):
            for local, parameter in module._parameters.items():
                if parameter is not None:
                    if parameter.requires_grad != (id(parameter) in self._trained):
                        raise self._other(module._parameters, local)
                    self._seen.append((module._parameters, local, parameter, parameter._version, _address(parameter)))
                    if parameter.device.type == "cpu" and parameter.numel() <= COPIED:
                        self._small.append((module._parameters, local, _copy(parameter)))
            # The buffers of spectral norm depend on the weights, not on the data.
            if module._buffers and type(module).__name__ != "_SpectralNorm":
                held = [(local, each) for local, each in module._buffers.items() if each is not None]
                self._seen += [(module._buffers, local, each, each._version, _address(each)) for local, each in held]
                if closely:
                    self._copies += [(module._buffers, local, _copy(each)) for local, each in held]

    def end(self) -> None:
        """Stop watching: the step is over."""
        self._seen, self._copies, self._small, self._places, self._written = [], [], [], None, None

    @property
    def is_on(self) -> bool:
        """Whether a step is in progress."""
        return bool(self._seen)

    def wrote(self, tensor: Tensor) -> None:
        """Note that an operation wrote into this tensor, which may share the memory of a buffer or parameter: `.data`
        and views through it do not change its version.
        """
        if self._places is None:
            self._places = {_storage(each): (holder, local) for holder, local, each, _, _ in self._seen}
        place = _storage(tensor)
        self._written = self._written or (self._places.get(place) if place else None)

    def check(self) -> None:
        """Raise if a buffer or parameter was changed since `begin`."""
        if self._written is not None:
            holder, local = self._written
            raise self._changed(holder, local, holder[local])
        for holder, local, tensor, version, address in self._seen:
            if tensor._version != version or _address(tensor) != address or holder.get(local) is not tensor:
                raise self._changed(holder, local, tensor)
        for holder, local, copy in (*self._copies, *(self._small if self.is_close else ())):
            now = holder[local]
            with _disable_current_modes(), torch._C.DisableTorchFunction():  # no operations of the model's
                is_kept = bool((now == copy).logical_or(now != now).all())
            if not is_kept:
                raise self._changed(holder, local, now)

    def _changed(self, holder: Holder, local: str, tensor: Tensor) -> InvalidParameter:
        kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
        rule = f"is a {kind} into which the forward pass wrote data without noise"
        remedy = "leave out running statistics, or freeze them with eval(); change weights in after_step="
        return InvalidParameter("model", self._name(holder, local), rule, remedy)

    def _other(self, holder: Holder, local: str) -> InvalidParameter:
        rule = "was frozen, unfrozen, added or replaced after the trainer was made"
        remedy = "make a new trainer for the changed model"
        return InvalidParameter("model", self._name(holder, local), rule, remedy)

    def _name(self, holder: Holder, local: str) -> str:
        paths = [p for p, each in self._model.named_modules() if holder is each._buffers or holder is each._parameters]
        return ".".join([*filter(None, paths[:1]), local])


def _copy(tensor: Tensor) -> Tensor:
    """A copy that no trace takes for an operation of the model."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return tensor.detach().clone()


def _storage(tensor: Tensor) -> int:
    """The id of a tensor's storage; 0 if it has none of its own (a sparse or a sharded tensor)."""
    with torch._C.DisableTorchFunction():  # the watch's own question, not the model's
        try:
            return int(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            return 0


def _address(tensor: Tensor) -> int:
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # a sharded tensor
        return 0


def parts_of(model: nn.Module) -> list[nn.Module]:
    """All modules of a model, each once. Faster than `model.modules()`, which builds names."""
    found, seen = [model], {model}
    for module in found:
        for below in module._modules.values():
            if below is not None and below not in seen:
                seen.add(below)
                found.append(below)
    return found
