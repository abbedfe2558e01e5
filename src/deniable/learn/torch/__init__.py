"""Private training of PyTorch models, without wrapping the model or the optimizer. Needs the extra `torch`.

Trainer         draws batches, clips, adds noise, steps and counts
TrainingReport  the model card of a run, which Trainer.report makes
ExactNoise      exact noise on a grid (the default on a CPU)
DeviceNoise     floating-point noise on the device (the default elsewhere; adds an assumption to the guarantee)
AdamBC          Adam with a correction for the variance of the noise
Planted         a small language model with a secret in its text, for attacks.SecretExtraction
adapters        Trainer inside of transformers, Lightning and accelerate (extra `adapters`)
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
