"""Private training with `lightning.Trainer`: a callback that replaces the training step by a step of a plan.

private = PrivateSteps(plan, dataset, physical_batch=64)
lightning.Trainer(max_epochs=-1, callbacks=[private]).fit(module, private.loader)
private.run.guarantee
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from deniable.errors import InvalidOperation, InvalidParameter, require, require_path, type_of

require("adapters", "lightning")

import lightning
from torch import Tensor
from torch.utils.data import DataLoader

from deniable.learn.plans import Plan
from deniable.learn.torch.adapters.step_numbers import (
    FROM_BATCH,
    SCALER,
    Setting,
    check_settings,
    fresh_seed,
    step_numbers,
    take_step,
)
from deniable.learn.torch.trainer import Trainer

SINGLE: Final = "SingleDeviceStrategy"
"""Compared by name, because the packages lightning and pytorch_lightning each define a class of this name."""

PRECISIONS: Final = ("32-true", "64-true", "bf16-mixed", "bf16-true")


class PrivateSteps(lightning.Callback):
    """A callback for `lightning.Trainer`: each of its training steps is one step of a plan.

    Promise: as for `deniable.learn.torch.Trainer`. The attribute `run` is this trainer, and has the guarantee. Pass
    `loader` to `fit`. It yields only the numbers of steps; each step draws its own batch from `dataset`, by the plan's
    sampling. The module's `training_step(batch, batch_idx)` must return one loss for each example (reduction="none").
    Inside of it, `self.log` and `self.trainer` have no effect: training losses are not private, and a module must not
    keep data in the trainer. Validation, loggers and checkpoints work as before; learning-rate schedulers step by their
    `interval`. Training ends with the plan: write `max_epochs=-1`.

    With `checkpoint`, the run is saved there each time Lightning saves a checkpoint, and `fit(ckpt_path=)` continues
    from it. Without `checkpoint`, `ckpt_path` is refused, because earlier steps would not be counted. Further keywords
    go to `deniable.learn.torch.Trainer`: physical_batch=, collate=, ledger=, session=, delta=, noise=, canaries=.
    Raises `InvalidParameter` for settings that would break the guarantee.
    """

    def __init__(
        self, plan: Plan, dataset: Any, *, checkpoint: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        self.plan = plan
        self.loader: DataLoader[Any] = step_numbers(plan, dataset)
        """What `fit` gets as training data."""
        self.run: Trainer | None = None
        """The private run: None before `fit`."""
        self._dataset, self._options = dataset, {"progress": False, **options}
        self._place = None if checkpoint is None else Path(require_path("checkpoint", checkpoint, "run.pt"))
        self._is_resumed = False
        self._module: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse settings that would break the guarantee, before anything runs."""
        if stage != "fit":
            return
        if self.run is not None:
            rule = "this PrivateSteps has begun its run, and another run would spend the same budget again"
            raise InvalidOperation(f"{rule}; make a new one, which continues a run with checkpoint= and ckpt_path=")
        check_settings(_settings(trainer))

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Note that a run is to be continued."""
        if trainer.state.fn == "fit":
            self._is_resumed = True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the private run, and replace the training step."""
        if getattr(trainer.train_dataloader, "dataset", None) is not self.loader.dataset:
            rule = "has batches of its own, but the guarantee needs records that are drawn independently"
            raise InvalidParameter(
                "train_dataloaders", type_of(trainer.train_dataloader), rule, "fit(module, private.loader)"
            )
        if len(trainer.optimizers) != 1:
            rule = "must be one optimizer for the whole module"
            raise InvalidParameter("configure_optimizers", len(trainer.optimizers), rule, "return one optimizer")
        if self._is_resumed and self._place is None:
            rule = "continues a run whose steps were not counted"
            raise InvalidParameter(
                "ckpt_path", "a checkpoint", rule, 'write PrivateSteps(..., checkpoint="run.pt") from the start'
            )
        fresh_seed()
        self._module, losses = pl_module, pl_module.training_step
        with _Apart(pl_module):
            self.run = run = Trainer(pl_module, trainer.optimizers[0], self.plan, self._dataset, **self._options)
        if self._is_resumed and self._place is not None:
            run.load(self._place)
        pl_module.automatic_optimization = False
        pl_module.training_step = functools.partial(self._step, pl_module, run, losses)

    def _step(self, module: Any, run: Trainer, losses: Callable[[Any, int], Tensor], *_: Any) -> None:
        host = module.trainer
        with _Apart(module):
            take_step(run, lambda batch: losses(batch, run.steps_taken - 1))
        module.optimizers().step()  # there are no gradients, so nothing changes, but Lightning counts its steps here
        for config in host.lr_scheduler_configs:
            if config.interval == "step" and run.steps_taken % config.frequency == 0:
                config.scheduler.step()
        if run.finished:
            host.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Step the schedulers whose interval is an epoch."""
        for config in trainer.lr_scheduler_configs:
            if config.interval == "epoch" and (trainer.current_epoch + 1) % config.frequency == 0:
                config.scheduler.step()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Save the private run as well."""
        if self._place is not None and self.run is not None:
            with _Apart(pl_module):
                self.run.save(self._place)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the module its own training step back."""
        self._put_back()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the module its own training step back."""
        self._put_back()

    def _put_back(self) -> None:
        if self._module is not None:
            vars(self._module).pop("training_step", None)
            self._module = None


class _Apart:
    """Removes Lightning's trainer from a module during a step: the guards could not see what the step stores in it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __enter__(self) -> None:
        self._host = self._module._trainer
        self._module._trainer = None

    def __exit__(self, *_: object) -> None:
        self._module._trainer = self._host


def _settings(trainer: Any) -> Iterator[Setting]:
    accumulated, clipped = trainer.accumulate_grad_batches, trainer.gradient_clip_val
    yield Setting("accumulate_grad_batches", accumulated, accumulated == 1, f"cannot be used: {FROM_BATCH}", "write 1")
    rule, remedy = (
        "would clip the sum of a batch; privacy needs the gradient of each example clipped",
        "the plan has clip=",
    )
    yield Setting("gradient_clip_val", clipped, not clipped, rule, f"leave it out: {remedy}")
    yield Setting("precision", trainer.precision, trainer.precision != "16-mixed", *SCALER)
    rule, remedy = "is not supported by this adapter", f"one of {', '.join(PRECISIONS)}"
    yield Setting("precision", trainer.precision, trainer.precision in PRECISIONS, rule, remedy)
    single, name = type(trainer.strategy).__name__ == SINGLE, type(trainer.strategy).__name__
    remedy = "train on one device; deniable's Trainer has process_group="
    yield Setting("strategy", name, single and trainer.world_size == 1, rule, remedy)
    part = trainer.overfit_batches
    yield Setting("overfit_batches", part, not part, "takes the same records again and again", "leave it out")
