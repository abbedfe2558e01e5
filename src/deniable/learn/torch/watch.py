"""What a forward pass must leave alone: all that would carry the data out of it without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from deniable.errors import InvalidParameter


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """One buffer or parameter as it was when a batch was handed out."""

    name: str
    holder: dict[str, Any]
    """The module's own table: a tensor may also be replaced there."""
    local: str
    tensor: Tensor
    version: int
    copy: Tensor | None

    @property
    def is_as_before(self) -> bool:
        now = self.holder.get(self.local)
        if now is not self.tensor or now._version != self.version:
            return False
        return self.copy is None or bool((now == self.copy).logical_or(now != now).all())


@final
class Watch:
    """Buffers and parameters of a model, which no forward pass may write into or replace."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: list[_Seen] = []

    def begin(self, *, closely: bool) -> None:
        """From now on. `closely` also finds what was written past autograd's eyes (`.data`), at the price of a copy."""
        self._seen = []
        for path, module in self._model.named_modules():
            if type(module).__name__ == "_SpectralNorm":  # changed by the weights, not by the data
                continue
            for holder, is_buffer in ((module._buffers, True), (module._parameters, False)):
                for local, tensor in holder.items():
                    if tensor is not None:
                        copy = tensor.detach().clone() if closely and is_buffer else None
                        name = f"{path}.{local}" if path else local
                        self._seen.append(_Seen(name, holder, local, tensor, tensor._version, copy))

    def check(self) -> None:
        """Refuse what was changed since `begin`, by its name."""
        for each in self._seen:
            if not each.is_as_before:
                kind = "parameter" if isinstance(each.tensor, nn.Parameter) else "buffer"
                rule = f"is a {kind} that the forward pass wrote the data into, without noise"
                remedy = "leave out running statistics, or freeze them with eval(); change weights in after_step="
                raise InvalidParameter("model", each.name, rule, remedy)
