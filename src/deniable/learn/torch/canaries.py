"""Canaries: what a run is audited by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from deniable import noise as chance
from deniable.errors import InvalidParameter
from deniable.learn.torch.batch_sampling import Records

FEWEST_CANARIES = 10
"""Below it an audit is refused."""


@final
class Canaries:
    """Records that are nobody's, each in the training by a fair coin."""

    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any] | None, entropy: chance.Entropy | None
    ) -> None:
        if len(dataset) < FEWEST_CANARIES:
            rule = f"must be at least {FEWEST_CANARIES}: fewer coins prove nothing"
            raise InvalidParameter("canaries", len(dataset), rule)
        self._dataset, self._collate = dataset, collate
        self.included = chance.bernoulli(p=0.5, size=(len(dataset),), entropy=entropy)

    def among(self, dataset: Any) -> Any:
        """The dataset with the canaries that are in."""
        chosen = [place for place, inside in enumerate(self.included) if inside]
        return torch.utils.data.ConcatDataset([dataset, torch.utils.data.Subset(self._dataset, chosen)])

    def batch(self, device: torch.device) -> Any:
        every = np.arange(len(self._dataset), dtype=np.int64)
        return Records(self._dataset, self._collate, (0, 1)).batch(every, device)
