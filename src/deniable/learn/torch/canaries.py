"""Canaries: made-up records that are in the training by a fair coin, for audits of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from deniable import noise as chance
from deniable.errors import InvalidParameter
from deniable.learn.torch.batch_sampling import Records

FEWEST_CANARIES = 10
"""Fewer canaries are refused."""


@final
class Canaries:
    """Records that belong to nobody, each included in the training by a fair coin."""

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any] | None, entropy: chance.Entropy | None
    ) -> None:
        if len(dataset) < FEWEST_CANARIES:
            rule = f"must be at least {FEWEST_CANARIES}: fewer coins prove nothing"
            raise InvalidParameter("canaries", len(dataset), rule)
        self._dataset, self._collate = dataset, collate
        self.included = chance.bernoulli(p=0.5, size=(len(dataset),), entropy=entropy)

    def among(self, dataset: Any) -> Any:
        """The dataset, followed by the included canaries."""
        chosen = [place for place, inside in enumerate(self.included) if inside]
        return torch.utils.data.ConcatDataset([dataset, torch.utils.data.Subset(self._dataset, chosen)])

    def batch(self, device: torch.device) -> Any:
        every = np.arange(len(self._dataset), dtype=np.int64)
        return Records(self._dataset, self._collate, (0, 1)).batch(every, device)
