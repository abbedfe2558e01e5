"""The processes of a run: one, or all of a process group. A forked copy is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from deniable.errors import InvalidOperation


@final
class Processes:
    """This process and its process group. Without a group, it is the only process."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._made_in = os.getpid()

    @property
    def rank(self) -> int:
        """The number of this process in its group; 0 without a group."""
        return 0 if self._group is None else torch.distributed.get_rank(self._group)

    @property
    def is_first(self) -> bool:
        """Whether this process draws the noise, charges the ledger and saves checkpoints."""
        return self.rank == 0

    @property
    def count(self) -> int:
        return 1 if self._group is None else torch.distributed.get_world_size(self._group)

    def check_not_forked(self) -> None:
        """Raise in a forked process: both processes would take the same steps, which are counted and paid once. Also,
        torch's threads do not survive a fork, so a backward pass there would wait forever."""
        if os.getpid() != self._made_in:
            rule = "a trainer cannot continue in a forked process: steps of both processes would be counted once"
            raise InvalidOperation(f"{rule}; make a trainer there, or load a checkpoint into a new one")

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all processes."""
        if self._group is not None:
            with torch.no_grad():
                for each in tensors:
                    self.broadcast(each)

    def added_up(self, totals: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sums over all processes."""
        if self._group is None:
            return totals
        whole = {name: total.contiguous() for name, total in totals.items()}
        for total in whole.values():
            torch.distributed.all_reduce(total, group=self._group)
        return whole

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Broadcast the tensor of the first process to all, in place: noise and coins are drawn once."""
        if self._group is not None:
            torch.distributed.broadcast(tensor, group=self._group, group_src=0)
        return tensor
