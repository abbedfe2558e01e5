"""Private training in a loop with `accelerate.Accelerator`: a subclass whose loader and backward follow a plan.

accelerator = PrivateAccelerator(plan=plan, mixed_precision="bf16")
model, optimizer, batches = accelerator.prepare(model, optimizer, loader)
for x, y in batches:
    accelerator.backward(cross_entropy(model(x), y, reduction="none"))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from deniable.errors import InvalidOperation, InvalidParameter, require

require("adapters", "accelerate")

import accelerate
import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from deniable.learn.plans import Plan
from deniable.learn.torch.adapters.step_numbers import FROM_BATCH, SCALER, Setting, check_settings, fresh_seed
from deniable.learn.torch.guards.training_checks import check_plan
from deniable.learn.torch.trainer import Trainer

KINDS = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class PrivateAccelerator(accelerate.Accelerator):
    """An `accelerate.Accelerator` whose `prepare` gives batches of a plan, and whose `backward` clips them.

    Promise: as for `deniable.learn.torch.Trainer`, which is the third result of `prepare`, and the attribute `run`.
    `prepare` takes a model, an optimizer and a DataLoader, in this order. Of the loader it uses the dataset,
    `collate_fn`, and `batch_size` as the bound on physical batches; its sampler is replaced by the plan's coins.
    Iterate once over what `prepare` returns, for all steps; with several processes each draws from its share of the
    data. `optimizer.step()` and `zero_grad()` may stay in the loop, and have no effect.

    `private` has further arguments for `deniable.learn.torch.Trainer`: after_step= (for a scheduler), ledger=, delta=,
    noise=, canaries=. Raises `InvalidParameter` for settings that would break the guarantee.
    """

    def __init__(self, *, plan: Plan, private: Mapping[str, Any] | None = None, **named: Any) -> None:
        check_plan(plan)
        super().__init__(**named)
        check_settings(_settings(self))
        self.plan, self._private_options = plan, dict(private or {})
        self.run: Trainer | None = None
        """The private run: None before `prepare`."""

    def prepare(self, *given: Any, **_: Any) -> tuple[nn.Module, Any, Trainer]:
        """(model, optimizer, loader) -> (model, optimizer, batches of the plan)."""
        kinds = (nn.Module, torch.optim.Optimizer, DataLoader)
        if len(given) != 3 or not all(map(isinstance, given, kinds)):
            rule = "must be called once, with a model, an optimizer and a DataLoader of the training data"
            remedy = 'step a scheduler in private={"after_step": ...}; use other loaders as they are'
            names = ", ".join(type(each).__name__ for each in given)
            raise InvalidParameter("prepare", names, rule, remedy)
        if self.run is not None:
            rule = "prepare was called before, and another run would spend the same budget again"
            raise InvalidOperation(f"{rule}; make a new PrivateAccelerator for it")
        model, optimizer, loader = given
        fresh_seed()
        model = self.prepare_model(
            model, evaluation_mode=True
        )  # not in DDP, which would add up gradients without noise
        options: dict[str, Any] = {"physical_batch": loader.batch_size, "progress": self.is_main_process}
        if loader.collate_fn is not default_collate:
            options["collate"] = loader.collate_fn
        if self.num_processes > 1:
            options["process_group"] = torch.distributed.group.WORLD
        self.run = Trainer(model, optimizer, self.plan, loader.dataset, **(options | self._private_options))
        return model, self.prepare_optimizer(optimizer), self.run

    def backward(self, loss: Tensor, **_: Any) -> None:
        """`Trainer.backward`: `loss` has one loss for each example."""
        if self.run is None:
            raise InvalidOperation("no batch was drawn yet; call prepare(model, optimizer, loader) first")
        self.run.backward(loss)

    def clip_grad_norm_(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the plan clips each example."""
        rule = "would clip the sum of a batch; privacy needs the gradient of each example clipped"
        raise InvalidOperation(f"clip_grad_norm_ {rule}; leave it out: the plan has clip=")

    clip_grad_value_ = clip_grad_norm_

    def save_state(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: it does not count steps."""
        raise InvalidOperation(f"save_state {_UNCOUNTED}")

    def load_state(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: it does not count steps."""
        raise InvalidOperation(f"load_state {_UNCOUNTED}")


_UNCOUNTED = "does not count the steps of the plan; use accelerator.run.save(path) and accelerator.run.load(path)"


def _settings(accelerator: Any) -> Iterator[Setting]:
    accumulated, precision = accelerator.gradient_accumulation_steps, accelerator.mixed_precision
    rule = f"cannot be used: {FROM_BATCH}"
    yield Setting("gradient_accumulation_steps", accumulated, accumulated == 1, rule, "write 1")
    yield Setting("mixed_precision", precision, precision != "fp16", *SCALER)
    rule = "is not supported by this adapter"
    yield Setting("mixed_precision", precision, precision in ("no", "bf16"), rule, 'write "bf16" or "no"')
    kind = accelerator.distributed_type
    remedy = "start it without DeepSpeed, FSDP and the like: one process for each device"
    yield Setting("distributed_type", str(kind), kind in KINDS, rule, remedy)
