"""Canaries: made-up records that are in the training by a fair coin, for audits of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deniable import noise as chance
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.learn.torch.batch_sampling import Records
from deniable.learn.torch.run_processes import Processes

if TYPE_CHECKING:
    from deniable.audit import OneRun

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

    def share(self, processes: Processes, device: torch.device) -> None:
        """Use the coins of the first process in all processes."""
        if processes.count > 1:
            coins = torch.from_numpy(self.included.astype("uint8")).to(device)
            self.included = processes.broadcast(coins).cpu().numpy().astype(bool)

    def scores(
        self, model: nn.Module, losses: Callable[[Any, Any], Tensor], device: torch.device
    ) -> NDArray[np.float64]:
        """A score for each canary: the negative of its loss."""
        was = model.training
        model.eval()
        with torch.no_grad():
            found = losses(model, self.batch(device))
        model.train(was)
        if not isinstance(found, Tensor) or found.shape != (len(self.included),):
            rule = "must return one loss for each canary: a tensor with one axis"
            raise InvalidParameter("losses", NOTHING, rule, "write reduction='none'")
        scores: NDArray[np.float64] = -found.double().cpu().numpy()
        return scores

    def audited(self, scores: NDArray[np.float64], delta: float, confidence: float, guesses: int | None) -> OneRun:
        """The certified lower bound of one run, from the scores of its canaries."""
        from deniable.audit import one_run

        return one_run(scores, self.included, delta=delta, confidence=confidence, guesses=guesses)

    def batch(self, device: torch.device) -> Any:
        every = np.arange(len(self._dataset), dtype=np.int64)
        return Records(self._dataset, self._collate, (0, 1)).batch(every, device)


def check_trained(canaries: Canaries | None, steps: int) -> Canaries:
    """The canaries of a run that has begun. Raises if the run has no canaries, or if no step was taken."""
    if canaries is None:
        rule = "an audit needs canaries whose part in the training was decided by coins"
        raise InvalidOperation(f"{rule}; give Trainer(canaries=) a dataset of them")
    if not steps:
        raise InvalidOperation("an audit is about a run, but no step was taken; train first")
    return canaries
