"""PyTorch models trained under a plan, the model and the optimizer staying what they are. Needs the extra `torch`.

Trainer      draws batches, clips, adds noise, steps, counts
ExactNoise   noise on a grid, exact (the default on a CPU)
DeviceNoise  noise by torch's generator on the device (the default elsewhere; an assumption in the guarantee)
AdamBC       Adam, corrected for the noise
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from deniable.doors import lazy_door
from deniable.errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("torch", "torch")

if TYPE_CHECKING:
    from deniable.learn.torch.checking import Checked
    from deniable.learn.torch.noise import DeviceNoise, ExactNoise, GradientNoise
    from deniable.learn.torch.optimizers import AdamBC
    from deniable.learn.torch.trainer import Trainer

_HOMES = {
    "AdamBC": "optimizers",
    "Checked": "checking",
    "DeviceNoise": "noise",
    "ExactNoise": "noise",
    "GradientNoise": "noise",
    "Trainer": "trainer",
}

__all__ = ["AdamBC", "Checked", "DeviceNoise", "ExactNoise", "GradientNoise", "Trainer"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
