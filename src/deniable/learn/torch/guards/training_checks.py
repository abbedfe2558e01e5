"""Refuses what cannot be trained privately before any record is used, and names the module or parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, PublicTuple, type_of
from deniable.learn.plans import Plan
from deniable.learn.torch.gradients.forward_calls import shown
from deniable.learn.torch.guards.object_snapshots import check_numbers
from deniable.learn.torch.loss_scaling import check_not_scaled

if TYPE_CHECKING:
    from deniable.ledger import Ledger

LEVELS = ("proved", "isolated", "assumed")
"""How it is known that the loss of an example depends on that example only."""

SHORTEST = 1e-12
"""The smallest clipping norm: well above the norms whose squares underflow in single precision."""

FEW = 10
"""A list of fewer tensors is more likely a list of columns than of records."""

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")


def check_plan(plan: Any) -> Plan:
    """Raise unless this is a plan with calibrated noise and a clipping norm that is not too small."""
    if not isinstance(plan, Plan):
        rule = "must be a plan of steps"
        raise InvalidParameter("plan", type_of(plan), rule, "give Trainer a learn.DPSGD(...) or learn.DPFTRL(...)")
    plan.calibrated()
    if plan.clip.norm < SHORTEST:
        rule = f"must be at least {SHORTEST:g} for training: squares of smaller norms are lost in rounding"
        raise InvalidParameter(
            "clip", plan.clip.norm, rule, "multiply the losses and the clipping norm by the same number"
        )
    return plan


def check_ledger(ledger: Any, session: Any) -> Ledger | None:
    """The ledger to charge: the given ledger, or the ledger of the session; None if neither is given."""
    if ledger is not None and session is not None:
        raise InvalidParameter("ledger and session", NOTHING, "both were given; give one of them")
    given = session if ledger is None else ledger
    found: Ledger | None = getattr(given, "ledger", given)
    if found is not None and not callable(getattr(found, "reserve", None)):
        name = "session" if ledger is None else "ledger"
        remedy = "deniable.ledger.Ledger.open(...) opens one"
        raise InvalidParameter(name, type_of(given), "must be a session or a ledger", remedy)
    return found


def check_callable(name: str, given: Any) -> Any:
    """Raise unless this is a function or None."""
    if given is not None and not callable(given):
        raise InvalidParameter(name, type_of(given), "must be a function")
    return given


def check_separation(given: Any) -> str | None:
    """Raise unless this is a level of separation, or None."""
    if given is not None and given not in LEVELS:
        rule = f"must be one of {', '.join(map(repr, LEVELS))}, or None"
        raise InvalidParameter("separation", given if isinstance(given, str) else type_of(given), rule)
    return None if given is None else str(given)


def check_progress(given: Any) -> bool | str:
    """Raise unless this is True, False or "owner"."""
    if not isinstance(given, bool) and given != "owner":
        rule = "must be True (steps), False (nothing) or 'owner' (training losses too, which are not private)"
        raise InvalidParameter("progress", given if isinstance(given, str) else type_of(given), rule)
    return bool(given) if isinstance(given, bool) else "owner"


Refusal = tuple[str, str]
"""Why a module or tensor cannot be trained privately, and what to do."""


def _hidden_layers(module: nn.Module) -> Refusal | None:
    kind = type(module).__name__
    if kind not in _WRAPPERS and not isinstance(module, torch.jit.ScriptModule):
        return None
    remedy = "give the model that is inside; Trainer(process_group=) trains on several processes"
    return f"is wrapped in {kind}, which hides its layers", remedy


def _unknown_size(module: nn.Module) -> Refusal | None:
    if not isinstance(module, nn.modules.lazy.LazyModuleMixin) or not module.has_uninitialized_params():
        return None
    return "is a lazy module without a size yet", "run the model once first"


def _batch_statistics(module: nn.Module) -> Refusal | None:
    if not isinstance(module, nn.modules.batchnorm._BatchNorm):
        return None
    if not module.training and not any(each.requires_grad for each in module.parameters(recurse=False)):
        return None
    rule = f"is {type(module).__name__}: its output for one example depends on the others in the batch"
    return rule, "use nn.GroupNorm or nn.LayerNorm, or freeze it: module.eval() and requires_grad_(False)"


def _running_statistics(module: nn.Module) -> Refusal | None:
    if not isinstance(module, nn.modules.instancenorm._InstanceNorm) or not module.track_running_stats:
        return None
    rule = f"is {type(module).__name__} with running statistics, which keep averages of the data without noise"
    return rule, "write track_running_stats=False"


def _rows_by_batch(module: nn.Module) -> Refusal | None:
    if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or not (module.max_norm or module.scale_grad_by_freq):
        return None
    return "changes its rows or their gradients by the whole batch", "leave out max_norm and scale_grad_by_freq"


def _sparse_gradients(module: nn.Module) -> Refusal | None:
    if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or not (module.sparse and module.weight.requires_grad):
        return None
    return "has sparse gradients, but all rows get noise", "leave out sparse=True"


MODULE_CHECKS: tuple[Callable[[nn.Module], Refusal | None], ...] = (
    _hidden_layers,
    _unknown_size,
    _batch_statistics,
    _running_statistics,
    _rows_by_batch,
    _sparse_gradients,
)
"""Applied to each module, in this order."""


def _no_leaf(parameter: torch.Tensor) -> Refusal | None:
    if parameter.is_leaf:
        return None
    rule = "is the result of a computation, not a leaf, so no optimizer can change it"
    return rule, "detach it: nn.Parameter(value.detach())"


def _no_entries(parameter: torch.Tensor) -> Refusal | None:
    return None if parameter.numel() else ("has no entries", "remove it, or freeze it")


def _not_real(parameter: torch.Tensor) -> Refusal | None:
    return None if parameter.is_floating_point() else ("does not consist of real numbers", "freeze it")


PARAMETER_CHECKS: tuple[Callable[[torch.Tensor], Refusal | None], ...] = (_no_leaf, _no_entries, _not_real)
"""Applied to each trained parameter, in this order."""


def _refuse(name: str, refusals: Iterable[Refusal | None]) -> None:
    """Raise the first refusal."""
    for refusal in refusals:
        if refusal is not None:
            raise InvalidParameter("model", name, *refusal)


def check_model(model: Any) -> nn.Module:
    """Raise unless all modules and parameters of the model can be trained privately."""
    if not isinstance(model, nn.Module):
        raise InvalidParameter("model", type_of(model), "must be an nn.Module")
    for path, module in model.named_modules():
        _refuse(shown(path), (check(module) for check in MODULE_CHECKS))
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if each.is_meta:
            rule = "is on the meta device: it has no values"
            raise InvalidParameter("model", name, rule, "make the model on a real device, or model.to_empty(device=)")
        check_numbers(name, each, "is a parameter or a buffer")
    trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    for name, parameter in trained:
        _refuse(name, (check(parameter) for check in PARAMETER_CHECKS))
    if not trained:
        raise InvalidParameter("model", type_of(model), "has no trained parameter", "call requires_grad_(True) on some")
    return model


def check_optimizer(optimizer: Any, model: nn.Module) -> torch.optim.Optimizer:
    """Raise unless the optimizer has all trained parameters of the model, and no parameter of another model."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidParameter("optimizer", type_of(optimizer), "must be a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidParameter("optimizer", "LBFGS", "needs gradients several times a step", "use SGD or Adam")
    names = {id(each): name for name, each in model.named_parameters()}
    trained = {id(each) for each in model.parameters() if each.requires_grad}
    held = set()
    for place, group in enumerate(optimizer.param_groups):
        if not group["params"]:
            raise InvalidParameter("optimizer", f"param_groups[{place}]", "has no parameters", "leave the group out")
        for each in group["params"]:
            if id(each) not in names:
                rule = "has a parameter that is not the model's"
                remedy = "make the optimizer after the model was moved, loaded or changed: Adam(model.parameters())"
                raise InvalidParameter("optimizer", f"param_groups[{place}]", rule, remedy)
            held.add(id(each))
    missing = [names[each] for each in trained - held]
    if missing:
        rule = "is trained, but the optimizer does not have it"
        raise InvalidParameter("optimizer", min(missing), rule, "add it, or freeze it: requires_grad_(False)")
    return optimizer


def check_dataset(dataset: Any) -> Any:
    """The dataset, with a tuple of tensors wrapped as a TensorDataset. Raises unless it has records by number."""
    if isinstance(dataset, DataLoader | Sampler):
        rule = "has its own sampler, but the guarantee needs records that are drawn independently"
        remedy = "give the dataset itself (loader.dataset), and collate=loader.collate_fn if you wrote one"
        raise InvalidParameter("dataset", type_of(dataset), rule, remedy)
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        rule = "must have a length and records by number: a stream cannot be sampled"
        raise InvalidParameter("dataset", type_of(dataset), rule, "use list(stream), if it fits into memory")
    if isinstance(dataset, Mapping) or hasattr(dataset, "iloc") or hasattr(dataset, "get_columns"):
        rule = "has columns by name, but records are drawn by number"
        remedy = "give a tuple of tensors with a row for each record: (x, y)"
        raise InvalidParameter("dataset", type_of(dataset), rule, remedy)
    if isinstance(dataset, list | tuple) and _are_columns(dataset):
        return TensorDataset(*_columns(dataset))
    if not hasattr(dataset, "__getitem__"):
        raise InvalidParameter("dataset", type_of(dataset), "must return records by number: dataset[3]")
    return dataset


def _are_columns(parts: Sequence[Any]) -> bool:
    """Whether these are columns of a table rather than records. Otherwise a whole column would count as one record.

    A tuple with a tensor in it is taken as columns. So is a list of a few tensors of equal length, because nobody
    trains on so few records.
    """
    if isinstance(parts, tuple):
        return any(isinstance(each, torch.Tensor | np.ndarray) for each in parts[:2])
    if not 1 < len(parts) < FEW or not all(isinstance(each, torch.Tensor | np.ndarray) for each in parts):
        return False
    return len({each.shape[:1] for each in parts}) == 1 and len(parts[0].shape) > 0


def _columns(parts: Sequence[Any]) -> Sequence[torch.Tensor]:
    if isinstance(parts, list):
        rule = "looks like a list of columns, but a list must contain records"
        raise InvalidParameter("dataset", NOTHING, rule, "give columns as a tuple of tensors: (x, y)")
    if not all(isinstance(each, torch.Tensor) for each in parts):
        kinds = ", ".join(sorted({type(each).__name__ for each in parts[:8]}))
        remedy = "convert with torch.as_tensor(x); give records as a list, or as your own Dataset"
        raise InvalidParameter("dataset", NOTHING, f"must be a tuple of tensors, but has {kinds}", remedy)
    if 0 in (each.dim() for each in parts) or len({each.shape[0] for each in parts}) != 1:
        raise InvalidParameter("dataset", NOTHING, "must have tensors of one length, with a row for each record")
    return parts


def check_losses(losses: Any, count: int) -> torch.Tensor:
    """Raise unless there is one loss for each example, with an autograd graph."""
    if not isinstance(losses, torch.Tensor):
        raise InvalidParameter("losses", type_of(losses), "must be a tensor with one loss for each example")
    if losses.dim() != 1 or losses.shape[0] != count:
        shape = PublicTuple(losses.shape)
        remedy = "write reduction='none', and average over all axes but the first; a model's own loss is usually a mean"
        raise InvalidParameter("losses", shape, f"must have the shape ({count},): one loss for each example", remedy)
    if not losses.requires_grad:
        rule = "have no autograd graph: they do not depend on trained parameters"
        raise InvalidParameter("losses", NOTHING, rule, "compute them outside of torch.no_grad()")
    check_not_scaled(losses)
    return losses


def check_public_loss(loss: Any) -> None:
    """Raise unless this is one number with an autograd graph."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        rule = "must be one number with an autograd graph"
        raise InvalidParameter("loss", NOTHING, rule, "average over the public examples: losses.mean()")


def check_left_alone(parameters: Mapping[str, torch.Tensor], versions: Sequence[int]) -> None:
    """Raise if a trained parameter has a `.grad`, or was changed since the batch was yielded: both would depend on the
    data without noise."""
    for (name, each), version in zip(parameters.items(), versions, strict=True):
        found = "has a gradient" if each.grad is not None else "was changed" if each._version != version else None
        if found is not None:
            rule = f"{found} outside of the trainer, from the data and without noise"
            remedy = "leave out loss.backward() and optimizer.step(); trainer.public_step(loss) is for public data"
            raise InvalidOperation(f"parameter {name!r} {rule}; {remedy}")


def check_finite(parameters: Mapping[str, torch.Tensor]) -> None:
    """Raise if a parameter is NaN or infinite. Parameters are released, so the error reveals nothing new."""
    for name, each in parameters.items():
        if not bool(torch.isfinite(each).all()):
            rule = "is not finite any more, after noise and the optimizer's steps, so training cannot continue"
            remedy = "lower the learning rate, or look for overflow in the optimizer; load an earlier checkpoint"
            raise InvalidOperation(f"parameter {name!r} {rule}; {remedy}")


def is_less_than_single(model: nn.Module, device: torch.device) -> bool:
    """Whether single-precision products may be computed with fewer digits: TF32 or bfloat16, by any of the switches."""
    has_convolutions = any(isinstance(each, nn.modules.conv._ConvNd) for each in model.modules())
    kinds = torch.backends
    switches: tuple[Any, ...] = (kinds, kinds.mkldnn, kinds.mkldnn.conv, kinds.mkldnn.matmul, kinds.cuda.matmul)
    try:
        if torch.get_float32_matmul_precision() != "highest":
            return True
        if device.type == "cuda" and has_convolutions and kinds.cudnn.allow_tf32:
            return True
        return any(getattr(each, "fp32_precision", "none") in ("tf32", "bf16") for each in switches)
    except RuntimeError:  # torch's older switches raise if a newer one was set
        return True
