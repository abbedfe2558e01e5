"""Numbers of steps, which a host's loop gets instead of batches; and refusals of settings that break a promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from deniable.errors import InvalidParameter, type_of
from deniable.learn.plans import Plan
from deniable.learn.torch.guards.training_checks import check_plan
from deniable.learn.torch.loss_scaling import SCALED, UNSCALED
from deniable.learn.torch.trainer import Trainer

FROM_BATCH = "physical batches replace it: the size of a batch bounds the memory, and the plan says how large a step is"

SCALER = (f"scales the loss with a GradScaler, and {SCALED}", UNSCALED)
"""The rule and the remedy for half precision with a GradScaler."""


class Setting(NamedTuple):
    """One setting of a host: its name and value, whether it can be kept, why not, and what to do."""

    name: str
    value: Any
    is_kept: bool
    rule: str
    remedy: str


def check_settings(settings: Iterable[Setting]) -> None:
    """Raise for the first setting that would break the guarantee or the run."""
    for each in settings:
        if not each.is_kept:
            raise InvalidParameter(each.name, each.value, each.rule, each.remedy)


def steps_in_epoch(plan: Plan, records: int) -> int:
    """The number of steps that draw, on average, as many records as the dataset has: the host's epoch."""
    return min(plan.steps, max(1, round(records / plan.expected_batch(records))))


def step_numbers(plan: Plan, dataset: Any) -> DataLoader[Any]:
    """A loader with one number for each step of an epoch, in a dictionary, as hosts expect batches to be."""
    check_plan(plan)
    if not hasattr(dataset, "__len__"):
        rule = "must have a length and records by number: a stream cannot be sampled"
        raise InvalidParameter("dataset", type_of(dataset), rule, "use list(stream), if it fits into memory")
    records = len(dataset[0]) if isinstance(dataset, tuple) and isinstance(dataset[0], Tensor) else len(dataset)
    numbers = [{"step": number} for number in range(steps_in_epoch(plan, records))]
    return DataLoader(numbers, batch_size=1, collate_fn=_only)


def _only(members: list[Any]) -> Any:
    return members[0]


def fresh_seed() -> None:
    """Seed torch's generators with secret random bits: dropout masks must stay secret, and hosts set seeds."""
    torch.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)


def take_step(trainer: Trainer, losses: Callable[[Any], Tensor]) -> None:
    """One step of the plan: all its batches, or none if the plan is finished."""
    for batch in trainer.take(1):
        trainer.backward(losses(batch))
