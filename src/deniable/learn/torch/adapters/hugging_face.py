"""Private training with `transformers.Trainer`: a subclass that draws, clips, adds noise and counts by a plan.

trainer = PrivateTrainer(model=model, args=arguments, train_dataset=dataset, data_collator=collate, plan=plan)
trainer.train()
trainer.private.guarantee
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from deniable.errors import InvalidOperation, InvalidParameter, require

require("adapters", "transformers", "accelerate")

import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers.trainer_utils import TrainOutput

from deniable.learn.plans import Plan
from deniable.learn.torch.adapters import attention_masks, example_losses
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

FILE: Final = "private_run.pt"
"""The checkpoint of the private run in each checkpoint folder of transformers."""

OWNERS: Final = ("loss", "train_loss", "grad_norm", "total_flos")
"""Entries of a log that are computed from the training data, or have no meaning here."""


class PrivateTrainer(transformers.Trainer):
    """A `transformers.Trainer` whose training steps are the steps of a plan.

    Promise: as for `deniable.learn.torch.Trainer`, which is the attribute `private` and holds the guarantee. One step
    of transformers is one step of the plan: the batch is drawn from `train_dataset` by the plan's coins and cut into
    physical batches of `per_device_train_batch_size`. `num_train_epochs` and `max_steps` come from the plan. Schedules,
    callbacks, evaluation and checkpoints work as in transformers; a checkpoint also has the private run's own file,
    from which `train(resume_from_checkpoint=)` continues.

    `private` has further arguments for `deniable.learn.torch.Trainer`: ledger=, session=, delta=, noise=, canaries=.
    `compute_loss_func(outputs, labels, num_items_in_batch)` must return one loss for each example; without it, losses
    are computed from the logits of language models and classifiers. Training losses are not private: they are logged
    only with `losses="owner"`. Raises `InvalidParameter` for settings that would break the guarantee.
    """

    args: Any
    """transformers.TrainingArguments."""

    def __init__(
        self,
        *given: Any,
        plan: Plan,
        private: Mapping[str, Any] | None = None,
        losses: Literal["none", "owner"] = "none",
        **named: Any,
    ) -> None:
        if losses not in ("none", "owner"):
            raise InvalidParameter("losses", losses, 'must be "none" or "owner"')
        if named.get("model_init") is not None:
            rule = "makes a new model for each run, and each run must be paid for"
            raise InvalidParameter(
                "model_init", "a function", rule, "give model=, and a new PrivateTrainer for each run"
            )
        super().__init__(*given, **named)
        check_settings(_settings(self.args))
        self.plan = plan
        self.private: Trainer | None = None
        """The private run: None before `train`."""
        self._private_options, self._is_for_owner = dict(private or {}), losses == "owner"
        self._numbers = step_numbers(plan, self.train_dataset)
        self._masks: attention_masks.Masks | None = None
        self.args = copy.copy(self.args)
        self.args.max_steps, self.args.max_grad_norm = plan.steps, 0.0

    # -- the run -------------------------------------------------------------------------------------------------------

    def train(self, *given: Any, **named: Any) -> TrainOutput:
        """Carry out the plan. As `transformers.Trainer.train`; only once, because a second run spends again."""
        if self.private is not None:
            rule = "this PrivateTrainer has begun its run, and another run would spend the same budget again"
            raise InvalidOperation(f"{rule}; make a new one, which continues a run with resume_from_checkpoint=")
        fresh_seed()
        done = super().train(*given, **named)
        loss = done.training_loss if self._is_for_owner else float("nan")
        return TrainOutput(
            done.global_step, loss, {name: value for name, value in done.metrics.items() if self._is_logged(name)}
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Numbers of steps: batches are drawn inside of a step."""
        return self._numbers

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One step of the plan. Returns 0, or the average loss for the owner."""
        run = self._opened()
        model.train()
        take_step(run, lambda batch: self.example_losses(model, batch))
        if run.finished:
            self.control.should_training_stop = True
        loss = run.history.latest if self._is_for_owner else None
        return torch.tensor(0.0 if loss is None else loss, device=self.args.device)

    def example_losses(self, model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
        """One loss for each example of a batch. Override it for other losses."""
        given = dict(inputs)
        labels = given.pop("labels", None)
        if labels is not None and getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            given.setdefault("decoder_input_ids", model.prepare_decoder_input_ids_from_labels(labels=labels))  # type: ignore[operator, unused-ignore]  # a method of such models
        if self._masks is not None and "attention_mask" in given:
            given["attention_mask"] = self._masks.wider(given["attention_mask"])
        outputs = model(**given)
        if self.compute_loss_func is not None:
            made: Tensor = self.compute_loss_func(outputs, labels, num_items_in_batch=None)
            return made
        return example_losses.of_model(model, outputs, labels)

    def floating_point_ops(self, inputs: Any) -> int:
        """0: the number of records in a step is secret."""
        return 0

    def log(self, logs: dict[str, float], *given: Any, **named: Any) -> None:
        """Log. Entries computed from training data are left out unless `losses="owner"`."""
        super().log({name: value for name, value in logs.items() if self._is_logged(name)}, *given, **named)

    def _is_logged(self, name: str) -> bool:
        return name not in OWNERS or (self._is_for_owner and "loss" in name)

    def _opened(self) -> Trainer:
        if self.private is None:
            self._masks = attention_masks.Masks(self.model)
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # without accelerate's wrapper
            options = {"physical_batch": self.args.per_device_train_batch_size, "progress": False}
            collate = self._get_collator_with_removed_columns(self.data_collator, description="training")
            self.private = Trainer(
                self.model,
                optimizer,
                self.plan,
                self.train_dataset,
                collate=collate,
                **(options | self._private_options),
            )
        return self.private

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        self._opened().save(Path(output_dir) / FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            place = Path(checkpoint) / FILE
            if not place.exists():
                rule = f"lacks {FILE}, so the number of earlier steps is not known"
                remedy = "resume from a folder that PrivateTrainer saved, with save_only_model=False"
                raise InvalidParameter("resume_from_checkpoint", str(checkpoint), rule, remedy)
            self._opened().load(place)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Does nothing: random numbers of the model must not be repeated."""


def _settings(args: Any) -> Iterator[Setting]:
    accumulated, single = args.gradient_accumulation_steps, args.world_size == 1 and args.n_gpu <= 1
    yield Setting(
        "gradient_accumulation_steps", accumulated, accumulated == 1, f"cannot be used: {FROM_BATCH}", "write 1"
    )
    yield Setting("fp16", args.fp16, not args.fp16, *SCALER)
    rule, remedy = "is not supported by this adapter", "train with one process; deniable's Trainer has process_group="
    yield Setting("world_size", args.world_size, single, f"several devices: {rule}", remedy)
    for name in ("deepspeed", "fsdp"):
        value = getattr(args, name, None)
        yield Setting(name, str(value), not value, f"{rule}: it distributes gradients itself", remedy)
    rule, remedy = "hides the layers whose gradients are clipped", "leave it out"
    for name in ("torch_compile", "use_liger_kernel"):
        value = getattr(args, name, False)
        yield Setting(name, value, not value, rule, remedy)
    rule = "begins the run again if a batch is too large for the memory, and steps would be taken twice"
    found = args.auto_find_batch_size
    yield Setting("auto_find_batch_size", found, not found, rule, "choose per_device_train_batch_size")
    rule, smooth = "is not applied by the adapter's losses", args.label_smoothing_factor
    yield Setting("label_smoothing_factor", smooth, not smooth, rule, example_losses.WRITE)
    rule, alpha = "adds noise by a hook that depends on the padding of the batch", args.neftune_noise_alpha
    yield Setting("neftune_noise_alpha", alpha, not alpha, rule, "leave it out")
    rule, pushed = f"would publish {FILE}, which is for the owner alone", str(getattr(args, "hub_strategy", ""))
    is_kept = not (args.push_to_hub and "checkpoint" in pushed.lower())
    yield Setting("hub_strategy", pushed, is_kept, rule, 'write "end" or "every_save", which push the model')
    rule, optimizer = "updates weights inside of the backward pass, without the plan's noise", str(args.optim)
    is_whole = not any(word in optimizer.lower() for word in ("lomo", "layerwise"))
    yield Setting("optim", optimizer, is_whole, rule, 'use "adamw_torch" or another optimizer that steps once')
