"""The processes that carry a run out: one, or several of a group; never a copy of one that was made by a fork."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from deniable.errors import InvalidOperation


@final
class Processes:
    """This process among those of a group; without a group it is the only one."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._made_in = os.getpid()

    @property
    def rank(self) -> int:
        return 0 if self._group is None else torch.distributed.get_rank(self._group)

    @property
    def is_first(self) -> bool:
        """Whether this one draws the noise, pays and saves."""
        return self.rank == 0

    @property
    def count(self) -> int:
        return 1 if self._group is None else torch.distributed.get_world_size(self._group)

    def check_not_forked(self) -> None:
        """Refuse to go on in a forked process: both would take the same steps, which are counted and paid once. And
        torch's threads do not survive a fork, so that the first backward pass there waits for ever."""
        if os.getpid() != self._made_in:
            rule = "a trainer does not go on in a forked process: steps of both processes would be counted once"
            raise InvalidOperation(f"{rule}; make a trainer there, or load a checkpoint into a new one")

    def share(self, tensors: Iterable[Tensor]) -> None:
        """All processes have those of the first."""
        if self._group is not None:
            with torch.no_grad():
                for each in tensors:
                    self.told(each)

    def added_up(self, totals: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sums over all processes."""
        if self._group is None:
            return totals
        whole = {name: total.contiguous() for name, total in totals.items()}
        for total in whole.values():
            torch.distributed.all_reduce(total, group=self._group)
        return whole

    def told(self, tensor: Tensor) -> Tensor:
        """What the first process has, for all: noise and coins are drawn once."""
        if self._group is not None:
            torch.distributed.broadcast(tensor, group=self._group, group_src=0)
        return tensor
