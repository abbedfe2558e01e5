"""A small text classifier with transformers.Trainer, trained privately: python examples/hugging_face_trainer.py.

    pip install ".[adapters]"

The model and the texts are made up, so that nothing has to be downloaded. Two lines differ from ordinary training: the
class of the trainer, and its plan.
"""

from __future__ import annotations

import tempfile

import torch
import transformers

from deniable import learn
from deniable.learn.torch import TrainingReport
from deniable.learn.torch.adapters.hugging_face import PrivateTrainer


def texts(count: int) -> list[dict[str, torch.Tensor]]:
    """Made-up texts of 3 to 8 tokens; the label says whether the first token is below 20."""
    found = []
    for _ in range(count):
        tokens = torch.randint(2, 40, (8,))
        length = int(torch.randint(3, 9, ()))
        mask = (torch.arange(8) < length).long()
        found.append({"input_ids": tokens * mask, "attention_mask": mask, "labels": (tokens[0] < 20).long()})
    return found


def trained(records: int, epochs: int, folder: str) -> PrivateTrainer:
    """A run at (3, 10⁻⁵) with checkpoints in `folder`."""
    config = transformers.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=8
    )
    plan = learn.DPSGD(clip=1.0, batch_size=records // 10, records=records, epochs=epochs)
    trainer = PrivateTrainer(
        model=transformers.DistilBertForSequenceClassification(config),
        args=transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=64,  # bounds the memory; how large a step is, the plan says
            learning_rate=0.02,
            report_to=[],
            eval_strategy="epoch",
            disable_tqdm=True,
        ),
        train_dataset=texts(records),
        eval_dataset=texts(200),  # made up, hence public
        plan=plan.calibrate(epsilon=3, delta=1e-5),
    )
    trainer.train()
    return trainer


def report(trainer: PrivateTrainer) -> TrainingReport:
    """The model card, with the loss on public texts."""
    assert trainer.private is not None
    loss = trainer.evaluate()["eval_loss"]
    return trainer.private.report(delta=1e-5, title="A made-up text classifier", results={"loss on public texts": loss})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(report(trained(2_000, 5, place)))
