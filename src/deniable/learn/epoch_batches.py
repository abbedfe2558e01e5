"""Batches that visit every record once in each epoch: allocated at random, or shuffled.

**Allocated.** At the beginning of an epoch of t batches, each record draws the number of its batch, uniformly and
independently ("balls in bins"). The curve of an epoch is gaussian(sigma=noise).allocated(steps=t), see
`curves.atoms.random_allocation`; epochs draw afresh, so they multiply. A part of an epoch leaks at most as much as the
whole epoch (post-processing).

**Shuffled.** All records are shuffled and cut into t batches of equal size, up to one. Neighbours differ by one record
that is present or blank, so that the sizes do not change. Given the order of the records, one step of the epoch has
that record; the others do not depend on it, except through earlier answers. So an epoch is gaussian(sigma=noise): no
gain from shuffling is claimed, because none is proved for gradients that may depend on earlier answers.

**What shuffling leaks at least.** Let every other record have the gradient -1 (in clipping norms) and this one +1, or
blank. Up to a constant, the batch i of this record has the sum 2 with it and 1 without it; all others have 0. The event
"some noisy sum exceeds c" has the probability 1 - Φ((c - s)/σ) Φ(c/σ)^(t-1) with s = 2 or 1. The largest difference
P - e^ε Q over c is a lower bound on δ(ε) of an epoch (Chua et al. 2024, "How private are DP-SGD implementations?", use
this pair). Another lower bound is δ(ε) of the allocated pair, which arises if all other records have the gradient 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, final

import numpy as np
from numpy.typing import NDArray

from deniable.errors import NOTHING, InvalidParameter

if TYPE_CHECKING:
    from deniable.noise import Entropy

Places = NDArray[np.int64]
"""Numbers of records, from 0."""


class StepDraws(Protocol):
    """Draws the records of each step of one run."""

    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """Which of these records take part in step `step`, counted from 0."""


@final
class EpochDraws:
    """Draws the batch numbers of all records when an epoch begins, and keeps them until it ends.

    If a run continues in the middle of an epoch from a checkpoint without these numbers, no record is taken until the
    next epoch: a second draw could take a record twice.
    """

    def __init__(self, numbers: Callable[[int, int, Entropy | None], Places], count: int) -> None:
        """`numbers` draws the batch of each record from the number of records, the number of batches and entropy."""
        self._numbers, self._count = numbers, count
        self._epoch = -1
        self._drawn: Places | None = None

    def drawn(self, records: Places, step: int, entropy: Entropy | None) -> Places:
        """The records of the batch of this step. Every step of a run must pass the same `records`."""
        epoch, turn = divmod(step, self._count)
        if epoch != self._epoch:
            self._epoch = epoch
            self._drawn = self._numbers(len(records), self._count, entropy) if turn == 0 else None
        if self._drawn is not None and len(self._drawn) != len(records):
            rule = f"has {len(records)} records, but the epoch began with {len(self._drawn)}"
            raise InvalidParameter("dataset", NOTHING, rule, "continue with the dataset of the checkpoint")
        return records[:0] if self._drawn is None else records[self._drawn == turn]

    def state(self) -> dict[str, object]:
        """The numbers of this epoch, for a checkpoint: they are as secret as the records."""
        return {"epoch": self._epoch, "drawn": None if self._drawn is None else self._drawn.tolist()}

    def restore(self, state: dict[str, object]) -> None:
        """Continue with the numbers of a checkpoint. They stay valid if steps were taken after the checkpoint."""
        drawn = state["drawn"]
        self._epoch = int(str(state["epoch"]))
        self._drawn = np.array(drawn, dtype=np.int64) if isinstance(drawn, list) else None


def allocated_numbers(records: int, batches: int, entropy: Entropy | None) -> Places:
    """The batch of each record: each record draws one, uniformly and independently."""
    from deniable import noise

    return noise.uniform(below=batches, size=(records,), entropy=entropy)


def shuffled_numbers(records: int, batches: int, entropy: Entropy | None) -> Places:
    """The batch of each record: a random order, cut into batches of equal size, up to one."""
    from deniable import noise

    return noise.permutation(records, entropy=entropy) % batches


def epochs_begun(steps: int, batches_in_epoch: int) -> int:
    """The number of epochs in `steps` steps; a part of an epoch counts as a whole one."""
    return -(-steps // batches_in_epoch)


def least_epsilon(sigma: float, batches: int, steps: int, delta: float) -> float:
    """A lower bound on ε at δ of a whole epoch of shuffled batches; 0 if the run has no whole epoch. See the module.

    The probabilities are computed in floating point, to about twelve digits, and the bound is lowered by this error.
    """
    if steps < batches:
        return 0.0
    from scipy.special import log_ndtr

    from deniable import curves

    at = np.linspace(-4 * sigma, 2 + 40 * sigma, 20_000)
    # The complement of a product, without cancellation: -expm1 of the sum of logarithms.
    once, twice = (
        -np.expm1(log_ndtr((at - shift) / sigma) + (batches - 1) * log_ndtr(at / sigma)) for shift in (1.0, 2.0)
    )
    gain = twice * (1 - 1e-12) - delta
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.where(gain > 0, np.log(gain / (once * (1 + 1e-12))), 0.0)
    found = float(np.max(np.where(np.isfinite(odds), odds, 0.0), initial=0.0))
    return max(found, float(curves.gaussian(sigma=sigma).allocated(steps=batches).epsilon_bounds(delta=delta)[0]))
