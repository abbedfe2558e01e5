"""A small classifier with lightning.Trainer, trained privately: python examples/lightning_module.py.

    pip install ".[adapters]"

Three lines differ from ordinary training: the loss has a value for each example, the callback, and what `fit` gets.
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from deniable import learn
from deniable.learn.torch.adapters.lightning_callback import PrivateSteps


class Classifier(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        features, labels = batch
        return cross_entropy(self.net(features), labels, reduction="none")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        features, labels = batch
        self.log("accuracy", (self.net(features).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.03)


def points(count: int) -> tuple[Tensor, Tensor]:
    """Made-up records: eight numbers, and whether the first two add up to more than 0."""
    features = torch.randn(count, 8)
    return features, (features[:, 0] + features[:, 1] > 0).long()


def trained(records: int, epochs: int) -> tuple[PrivateSteps, float]:
    """A run at (3, 10⁻⁵), and the accuracy on public records."""
    plan = learn.DPSGD(clip=1.0, batch_size=records // 10, records=records, epochs=epochs)
    private = PrivateSteps(plan.calibrate(epsilon=3, delta=1e-5), points(records), physical_batch=64)
    trainer = lightning.Trainer(
        max_epochs=-1, callbacks=[private], logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Classifier(), private.loader, DataLoader(TensorDataset(*points(500)), batch_size=500))
    return private, float(trainer.callback_metrics["accuracy"])


if __name__ == "__main__":
    steps, accuracy = trained(2_000, 5)
    assert steps.run is not None
    print(steps.run.guarantee.describe())
    print(f"accuracy on public records: {accuracy:.3f}")
