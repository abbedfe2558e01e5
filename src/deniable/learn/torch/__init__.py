"""Private training of PyTorch models, without wrapping the model or the optimizer. Needs the extra `torch`.

Trainer      draws batches, clips, adds noise, steps and counts
ExactNoise   exact noise on a grid (the default on a CPU)
DeviceNoise  floating-point noise on the device (the default elsewhere; adds an assumption to the guarantee)
AdamBC       Adam with a correction for the variance of the noise
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
