"""The records of a dataset: which of them belong to this process, and how some of them become a batch.

Who takes part in a step is decided by the plan: `Plan.drawn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import TensorDataset, default_collate

from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.learn.epoch_batches import Places
from deniable.learn.torch.guards import training_checks


@final
class Records:
    """The dataset: the number of records, the share of this process, and how records are collated into a batch."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] | None, share: tuple[int, int]) -> None:
        self._dataset, self._collate = dataset, collate
        self.count = len(dataset)
        if self.count == 0:
            raise InvalidParameter("dataset", NOTHING, "must have at least one record")
        rank, processes = share
        self.mine: Places = np.arange(rank, self.count, processes, dtype=np.int64)

    def check_length(self) -> None:
        """Raises InvalidParameter if the dataset has changed its length since the start of the run."""
        if len(self._dataset) != self.count:
            rule = "changed its length during the run, so the sampling rate is unknown"
            raise InvalidParameter("dataset", type_of(self._dataset), rule, "give Trainer a dataset of constant length")

    def batch(self, places: Places, device: torch.device) -> Any:
        """These records, collated and moved to the device."""
        if isinstance(self._dataset, TensorDataset) and self._collate is None:
            rows = torch.from_numpy(places)
            made: Any = [each[rows.to(each.device)] for each in self._dataset.tensors]
        else:
            made = (self._collate or _stacked)([self._dataset[int(place)] for place in places])
        return tree_map(lambda each: each.to(device) if isinstance(each, torch.Tensor) else each, made)

    def losses(self, losses: Any, count: int) -> torch.Tensor:
        """The loss of each record: the given losses, one for each of the `count` records of the batch."""
        return training_checks.check_losses(losses, count)


def _stacked(records: list[Any]) -> Any:
    """Collate like a DataLoader. Replaces torch's error, which would reveal values of single records."""
    try:
        return default_collate(records)
    except (RuntimeError, TypeError, KeyError):
        rule = "has records that cannot be stacked: of different shapes or fields, or of a type that is not numeric"
        remedy = "pad or convert them in the dataset, or give Trainer(collate=) a function from records to a batch"
        raise InvalidParameter("dataset", NOTHING, rule, remedy) from None


def parts(places: Places, size: int | None, *, first: int | None = None) -> Sequence[Places]:
    """A batch cut into pieces of at most `size`, the first of at most `first`. Empty for an empty batch."""
    if first is not None and len(places) > first:
        return [*parts(places[:first], size), *parts(places[first:], size)]
    if len(places) == 0:
        return []
    most = len(places) if size is None else size
    return [places[start : start + most] for start in range(0, len(places), most)]
