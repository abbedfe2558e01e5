"""Private training of PyTorch models, without wrapping the model or the optimizer. Needs the extra `torch`.

Trainer         draws batches, clips, adds noise, steps and counts
TrainingReport  the model card of a run, which Trainer.report makes
ExactNoise      exact noise on a grid (the default on a CPU)
DeviceNoise     floating-point noise on the device (the default elsewhere; adds an assumption to the guarantee)
AdamBC          Adam with a correction for the variance of the noise
Planted         a small language model with a secret in its text, for attacks.SecretExtraction
adapters        Trainer inside of transformers, Lightning and accelerate (extra `adapters`)

The files behind these names:

    trainer                                     one step: sample, forward, clip, add noise, step
    batch_sampling, people_rows, canaries       who is in a batch: records, people with many rows, canaries
    gradients, layer_gradients, clip_norms      per-sample gradients, those of each layer, clipping factors
    guards                                      what must hold for a model so that clipping bounds an example
    gradient_noise, noise_history                  the noise of a step; the memory of correlated noise
    run_payment, checkpoints, run_history       the ledger's entries of a run, its saved state, its losses and ε
    run_processes, sharded_model, loss_scaling  process groups, FSDP, half precision
    optimizers, training_report, character_model      AdamBC, TrainingReport, Planted
    compiled_steps                              steps of one shape as compiled code
    run_assumptions                             what the guarantee assumes beside plan and noise
    kernels                                     faster forms of a few computations

docs/house.md draws the life of a training step with its functions.
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
