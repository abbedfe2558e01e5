"""A federated run with simulated clients: each computes its update here, and only sums of messages are used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.learn.federated_plan import Federated

if TYPE_CHECKING:
    from deniable.ledger import Ledger
    from deniable.noise import Entropy
    from deniable.units import Guarantee

__all__ = ["FederatedRun"]

Floats = NDArray[np.float64]
Client = Callable[[Floats], Any]
"""From the weights of the model to an update of them: a vector of the same length."""


@final
class FederatedRun:
    """Federated averaging by `plan` from the weights `start`, with one function for each of the plan's clients.

    A client gets the weights as a vector and returns its update: trained weights minus the weights that it got. A
    round moves the weights by the noisy mean of the updates times `step`. `ledger` is charged for the whole run before
    the first round; with sampling, `delta` is the part of its δ to spend.

    >>> import numpy as np
    >>> from deniable import learn
    >>> plan = learn.Federated(clip=1.0, dimension=2, clients=50, missing=5, rate=1.0, rounds=3, noise=2.0)
    >>> run = learn.FederatedRun(plan, np.zeros(2), [lambda weights: 1 - weights] * 50)
    >>> while not run.finished:
    ...     run.round(dropped=[7])  # client 7 does not answer
    >>> run.weights.shape
    (2,)
    """

    def __init__(
        self,
        plan: Federated,
        start: Any,
        clients: Sequence[Client],
        *,
        step: float = 1.0,
        ledger: Ledger | None = None,
        delta: float | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        if not isinstance(plan, Federated):
            raise InvalidParameter("plan", type_of(plan), "must be a learn.Federated plan")
        plan.calibrated()
        if len(clients) != plan.clients:
            rule = f"must be one function for each of the plan's {plan.clients} clients, not {len(clients)}"
            raise InvalidParameter("clients", NOTHING, rule, "make the plan for these clients")
        weights = np.array(start, dtype=np.float64)
        if weights.shape != (plan.dimension,):
            rule = f"must be a vector of {plan.dimension} weights, but has the shape {weights.shape}"
            raise InvalidParameter("start", NOTHING, rule)
        self.plan, self.weights = plan, weights
        self.rounds_taken = 0
        self._clients, self._entropy = clients, entropy
        self._step = curve_arguments.positive("step", step)
        self._ledger = ledger
        self._cost = None if ledger is None else plan.price(ledger.budget, unit=ledger.unit, delta=delta)
        self._entry: Any = None

    @property
    def finished(self) -> bool:
        """Whether all rounds of the plan have been run."""
        return self.rounds_taken == self.plan.rounds

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the weights of all rounds."""
        return self.plan.guarantee()

    def round(self, *, dropped: Collection[int] = ()) -> None:
        """Run one round. The clients whose indices are in `dropped` take no part in it.

        Who drops out must not depend on data. If too many drop out, the round counts as taken, and the call raises
        before any sum is used.
        """
        if self.finished:
            raise InvalidOperation(
                f"all {self.plan.rounds} rounds of the plan have been run; make a plan for more rounds"
            )
        gone = {int(each) for each in dropped}
        if not gone <= set(range(self.plan.clients)):
            raise InvalidParameter("dropped", NOTHING, f"must be numbers of clients, from 0 to {self.plan.clients - 1}")
        if self._ledger is not None and self._cost is not None and self._entry is None:
            words = f"federated run of {self.plan!r}"
            question = hashlib.sha256(words.encode()).hexdigest()
            self._entry = self._ledger.reserve(self._cost, question=question, description=words)
        self.rounds_taken += 1
        total, here = np.zeros(self.plan.dimension, dtype=np.int64), self.weights.copy()
        for number, client in enumerate(self._clients):
            if number not in gone:
                total = (total + self._message(client, here)) % self.plan.modulus
        mean = self.plan.decoded(total, received=self.plan.clients - len(gone))
        self.weights = self.weights + self._step * mean
        if self.finished and self._entry is not None and self._ledger is not None:
            self._ledger.seal(self._entry, json.dumps({"rounds": self.rounds_taken}).encode())

    def _message(self, client: Client, weights: Floats) -> NDArray[np.int64]:
        if not self.plan.takes_part(entropy=self._entropy):
            return self.plan.no_update(entropy=self._entropy)
        return self.plan.message(client(weights.copy()), entropy=self._entropy)
