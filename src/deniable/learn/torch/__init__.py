"""Private training of PyTorch models, without wrapping the model or the optimizer. Needs the extra `torch`.

Trainer         draws batches, clips, adds noise, steps and counts
TrainingReport  the model card of a run, which Trainer.report makes
ExactNoise      exact noise on a grid (the default on a CPU)
DeviceNoise     floating-point noise on the device (the default elsewhere; adds an assumption to the guarantee)
AdamBC          Adam with a correction for the variance of the noise
Planted         a small language model with a secret in its text, for attacks.SecretExtraction
adapters        Trainer inside of transformers, Lightning and accelerate (extra `adapters`)

A step: `batch_sampling` (and `people_rows`) makes a batch, `guards` check it, `gradients` and `layer_gradients` give
norms and sums, `clip_norms` the factors, `gradient_noise` (and `past_noise` for correlated noise) the noise, and the
optimizer moves the weights. A run: `run_payment` charges a ledger, `checkpoints` and `run_history` keep its state,
`run_processes` and `sharded_model` are for several processes, `loss_scaling` refuses scaled losses, and `canaries` are
for audits.
"""

from deniable.errors import require

require("torch", "torch")

from deniable.learn.torch.character_model import CharacterModel, Planted, sample_lines
from deniable.learn.torch.gradient_noise import DeviceNoise, ExactNoise, GradientNoise
from deniable.learn.torch.gradients.gradient_check import Checked
from deniable.learn.torch.optimizers import AdamBC
from deniable.learn.torch.trainer import Trainer
from deniable.learn.torch.training_report import ReportParts, TrainingReport

__all__ = [
    "AdamBC",
    "CharacterModel",
    "Checked",
    "DeviceNoise",
    "ExactNoise",
    "GradientNoise",
    "Planted",
    "ReportParts",
    "Trainer",
    "TrainingReport",
    "sample_lines",
]
