"""Federated averaging on Flower's simulation with shares of noise: python examples/flower_federation.py.

    pip install deniable flwr[simulation]

A client sends `plan.message(update)`. The strategy adds the messages modulo `plan.modulus`, as a secure sum would, and
looks at nothing but that sum. (Flower's own secure aggregation, SecAgg+, takes floats and rounds them itself, so it is
not used here.) Each client learns the mean of its own few numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from deniable import learn

CLIENTS, ROUNDS = 30, 3
PLAN = learn.Federated(clip=2.0, dimension=4, clients=CLIENTS, missing=3, rate=1.0, rounds=ROUNDS, noise=3.0)
TRUTH = np.array([1.0, -1.0, 0.5, 0.0])


class NoisyClient(NumPyClient):
    """Returns its update as a message of the plan. `rows` never leave it."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        update = self._rows.mean(axis=0) - parameters[0]
        sent = PLAN.message(update) if PLAN.takes_part() else PLAN.no_update()
        return [sent], 1, {}  # the number of examples would not be private


class SecureSum(FedAvg):
    """Averages by the plan. A client that fails counts as missing; with too many, the round changes nothing."""

    def __init__(self, start: np.ndarray) -> None:
        super().__init__(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=CLIENTS,
            min_available_clients=CLIENTS,
            initial_parameters=ndarrays_to_parameters([start]),
        )
        self.weights = start

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if len(results) >= PLAN.clients - PLAN.missing:
            messages = [parameters_to_ndarrays(result.parameters)[0] for _, result in results]
            total = sum(messages) % PLAN.modulus
            self.weights = self.weights + PLAN.decoded(total, received=len(results))
        return ndarrays_to_parameters([self.weights]), {}


def client_of(context: Context) -> Any:
    """A client with 20 rows of its own."""
    rows = TRUTH + np.random.default_rng(int(context.node_config["partition-id"])).normal(size=(20, 4)) * 0.1
    return NoisyClient(rows).to_client()


def trained() -> np.ndarray:
    """The weights after all rounds."""
    strategy = SecureSum(np.zeros(4))
    server = ServerApp(
        server_fn=lambda context: ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))
    )
    run_simulation(server, ClientApp(client_fn=client_of), num_supernodes=CLIENTS)
    return strategy.weights


if __name__ == "__main__":
    print(trained())
    print(PLAN.explain(delta=1e-6))
