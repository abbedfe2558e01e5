"""PyTorch models trained under a plan, the model and the optimizer staying what they are. Needs the extra `torch`.

Trainer      draws batches, clips, adds noise, steps, counts
ExactNoise   noise on a grid, exact (the default on a CPU)
DeviceNoise  noise in floating point on the device (the default elsewhere; an assumption in the guarantee)
AdamBC       Adam, corrected for the noise
Planted      a small language model with a secret in its text, for attacks.SecretExtraction
"""

from deniable.errors import require

require("torch", "torch")

from deniable.learn.torch.character_model import CharacterModel, Planted, sample_lines
from deniable.learn.torch.gradient_noise import DeviceNoise, ExactNoise, GradientNoise
from deniable.learn.torch.gradients.gradient_check import Checked
from deniable.learn.torch.optimizers import AdamBC
from deniable.learn.torch.trainer import Trainer

__all__ = [
    "AdamBC",
    "CharacterModel",
    "Checked",
    "DeviceNoise",
    "ExactNoise",
    "GradientNoise",
    "Planted",
    "Trainer",
    "sample_lines",
]
