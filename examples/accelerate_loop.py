"""A small classifier in a loop with accelerate, trained privately: python examples/accelerate_loop.py.

    pip install ".[adapters]"

Two lines differ from ordinary training: the accelerator has a plan, and the loss has a value for each example.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from deniable import learn
from deniable.learn.torch import Trainer
from deniable.learn.torch.adapters.accelerate_loops import PrivateAccelerator


def trained(records: int, epochs: int) -> Trainer:
    """A run at (3, 10⁻⁵)."""
    features = torch.randn(records, 8)
    dataset = TensorDataset(features, (features[:, 0] + features[:, 1] > 0).long())
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    plan = learn.DPSGD(clip=1.0, batch_size=records // 10, records=records, epochs=epochs)

    accelerator = PrivateAccelerator(plan=plan.calibrate(epsilon=3, delta=1e-5))
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(dataset, batch_size=64))
    for x, y in batches:  # all steps of the plan: no loop over epochs around it
        losses = cross_entropy(model(x), y, reduction="none")
        accelerator.backward(losses)
    accelerator.end_training()
    return batches


if __name__ == "__main__":
    print(trained(2_000, 5).report(delta=1e-5))
