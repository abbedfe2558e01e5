"""Models that `torch.distributed.fsdp.fully_shard` has distributed over the processes (FSDP2).

Between steps each process holds its shards of the parameters, and the optimizer's state of these shards only. During a
step the parameters are gathered: per-example gradients are computed from whole layers, as without shards. So a run
needs the memory of the whole model in each process, but saves memory of the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from deniable.errors import InvalidOperation, InvalidParameter, type_of


@final
class Shards:
    """The shards of a model's parameters in this process; empty if the model is not sharded.

    Create it before any other code reads the model's parameters. From then on, until `restore`, they are whole.
    """

    def __init__(self, model: nn.Module, process_group: Any) -> None:
        self._modules = [each for each in model.modules() if _is_sharded(each)]
        self._pieces: dict[str, Any] = dict(model.named_parameters()) if self._modules else {}
        """Name -> sharded parameter, which the optimizer has."""
        self._hooks: list[tuple[Any, int, Any]] = []
        """FSDP's own hooks, which would gather and free the parameters within a step: (hooks of a module, id, hook)."""
        if not self._modules:
            return
        if process_group is None:
            rule = "is sharded by fully_shard, but the trainer has no process group"
            remedy = "give Trainer(process_group=) the group of its mesh"
            raise InvalidParameter("model", type_of(model), rule, remedy)
        for module in self._modules:
            state: Any = module._get_fsdp_state()
            for held, handle in (
                (module._forward_pre_hooks, state._pre_forward_hook_handle),
                (module._forward_hooks, state._post_forward_hook_handle),
            ):
                number: Any = getattr(handle, "id", None)
                if number not in held:
                    rule = "is sharded in a group with other modules, which is not supported"
                    remedy = "call fully_shard for each module alone"
                    raise InvalidParameter("model", type_of(module), rule, remedy)
                self._hooks.append((held, number, held.pop(number)))
        self._gather()

    def _gather(self) -> None:
        for module in self._modules:
            module.unshard()

    def check_whole(self, what: str) -> None:
        """Raise if the model is sharded."""
        if self._modules:
            rule = f"trainer.{what} does not support a model that is sharded by fully_shard"
            raise InvalidOperation(f"{rule}; train the plain model with process_group=, which has the same sums")

    def give(self, parameters: Mapping[str, Tensor], gradients: Sequence[Tensor]) -> None:
        """Set the gradients that the optimizer uses: of the parameters, or of their shards in this process."""
        for (name, whole), gradient in zip(parameters.items(), gradients, strict=True):
            cast = gradient if gradient.dtype == whole.dtype else gradient.to(whole.dtype)
            piece = self._pieces.get(name)
            if piece is None:
                whole.grad = cast
            else:
                from torch.distributed.tensor import distribute_tensor

                piece.grad = distribute_tensor(cast, piece.device_mesh, piece.placements)

    def refresh(self) -> None:
        """Gather the parameters again after a step of the optimizer, which changed their shards."""
        for module in self._modules:
            module.reshard()
        self._gather()

    def restore(self) -> None:
        """Leave the model as it was: in shards, with FSDP's hooks. A second call does nothing."""
        while self._hooks:
            held, number, hook = self._hooks.pop()
            held[number] = hook
            held.move_to_end(number, last=False)
        for module in self._modules:
            module.reshard()
        self._modules = []


def _is_sharded(module: nn.Module) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)
