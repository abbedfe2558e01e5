"""What cannot be trained privately, refused before anything is read, by the name of the module or parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.learn.plans import Plan
from deniable.learn.torch.gradients.forward_calls import shown
from deniable.learn.torch.guards.object_snapshots import check_numbers

if TYPE_CHECKING:
    from deniable.ledger import Ledger

FEW = 10
"""Tensors in a list that is more likely one of columns than one of records."""

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")


def check_plan(plan: Any) -> Plan:
    """A plan of steps whose noise is chosen."""
    if not isinstance(plan, Plan):
        rule = "must be a plan of steps"
        raise InvalidParameter("plan", type_of(plan), rule, "give Trainer a learn.DPSGD(...) or learn.DPFTRL(...)")
    plan.calibrated()
    return plan


def check_ledger(ledger: Any, session: Any) -> Ledger | None:
    """Who pays: the ledger that was given, that of a session, or nobody."""
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
    """A function, or none."""
    if given is not None and not callable(given):
        raise InvalidParameter(name, type_of(given), "must be a function")
    return given


def check_model(model: Any) -> nn.Module:
    """A model whose answer for one example can be its own."""
    if not isinstance(model, nn.Module):
        raise InvalidParameter("model", type_of(model), "must be an nn.Module")
    for path, module in model.named_modules():
        kind = type(module).__name__
        if kind in _WRAPPERS or isinstance(module, torch.jit.ScriptModule):
            remedy = "give the model that is inside; Trainer(process_group=) trains on several processes"
            raise InvalidParameter("model", shown(path), f"is wrapped in {kind}, which hides its layers", remedy)
        if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
            raise InvalidParameter("model", shown(path), "has not found its size yet", "run the model once first")
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            own = any(each.requires_grad for each in module.parameters(recurse=False))
            if module.training or own:
                rule = f"is {kind}: what it says about one example depends on the others in the batch"
                remedy = "use nn.GroupNorm or nn.LayerNorm, or freeze it: module.eval() and requires_grad_(False)"
                raise InvalidParameter("model", shown(path), rule, remedy)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            rule = f"is {kind} with running statistics, which keep averages of the data without noise"
            raise InvalidParameter("model", shown(path), rule, "write track_running_stats=False")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (module.max_norm or module.scale_grad_by_freq):
            rule = "changes its rows, or their gradients, by what else is in the batch"
            raise InvalidParameter("model", shown(path), rule, "leave out max_norm and scale_grad_by_freq")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight.requires_grad:
            rule = "makes sparse gradients, and noise comes to all rows"
            raise InvalidParameter("model", shown(path), rule, "leave out sparse=True")
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if each.is_meta:
            rule = "is on the meta device: it has no numbers"
            raise InvalidParameter("model", name, rule, "make the model on a real device, or model.to_empty(device=)")
        check_numbers(name, each, "is a parameter or a buffer")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.is_leaf:
            rule = "is the result of a computation, not a leaf, so no optimizer can change it"
            raise InvalidParameter("model", name, rule, "detach it: nn.Parameter(value.detach())")
        if parameter.requires_grad and parameter.numel() == 0:
            raise InvalidParameter("model", name, "has no numbers in it", "remove it, or freeze it")
        if parameter.requires_grad and not parameter.is_floating_point():
            raise InvalidParameter("model", name, "is not made of real numbers", "freeze it")
    if not any(each.requires_grad for each in model.parameters()):
        raise InvalidParameter("model", type_of(model), "has nothing to train", "requires_grad_(True) somewhere")
    return model


def check_optimizer(optimizer: Any, model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer of exactly the parameters that are trained."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidParameter("optimizer", type_of(optimizer), "must be a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidParameter("optimizer", "LBFGS", "asks for gradients several times a step", "use SGD or Adam")
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
    """Records by number; a tuple of tensors with a row for each record will do."""
    if isinstance(dataset, DataLoader | Sampler):
        rule = "brings a sampler of its own, and the guarantee needs each record drawn by its own coin"
        remedy = "give the dataset itself (loader.dataset), and collate=loader.collate_fn if you wrote one"
        raise InvalidParameter("dataset", type_of(dataset), rule, remedy)
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        rule = "must have a length and records by number: a stream cannot be sampled"
        raise InvalidParameter("dataset", type_of(dataset), rule, "list(stream) is one, if it fits into memory")
    if isinstance(dataset, Mapping) or hasattr(dataset, "iloc") or hasattr(dataset, "get_columns"):
        rule = "has its columns by name, and records are drawn by number"
        remedy = "give a tuple of tensors with a row for each record: (x, y)"
        raise InvalidParameter("dataset", type_of(dataset), rule, remedy)
    if isinstance(dataset, list | tuple) and _are_columns(dataset):
        return TensorDataset(*_columns(dataset))
    if not hasattr(dataset, "__getitem__"):
        raise InvalidParameter("dataset", type_of(dataset), "must give records by number: dataset[3]")
    return dataset


def _are_columns(parts: Sequence[Any]) -> bool:
    """Whether these are columns of a table and no records: then a whole column would count as one record.

    A tuple with a tensor in it is meant as columns. So is a list of few tensors that are as long as each other: nobody
    trains on so few records.
    """
    if isinstance(parts, tuple):
        return any(isinstance(each, torch.Tensor | np.ndarray) for each in parts[:2])
    if not 1 < len(parts) < FEW or not all(isinstance(each, torch.Tensor | np.ndarray) for each in parts):
        return False
    return len({each.shape[:1] for each in parts}) == 1 and len(parts[0].shape) > 0


def _columns(parts: Sequence[Any]) -> Sequence[torch.Tensor]:
    if isinstance(parts, list):
        rule = "looks like columns, and a list is taken for records"
        raise InvalidParameter("dataset", NOTHING, rule, "give columns as a tuple of tensors: (x, y)")
    if not all(isinstance(each, torch.Tensor) for each in parts):
        kinds = ", ".join(sorted({type(each).__name__ for each in parts[:8]}))
        remedy = "torch.as_tensor(x) makes one; records may come as a list, or as a Dataset of your own"
        raise InvalidParameter("dataset", NOTHING, f"must be a tuple of tensors, and has {kinds}", remedy)
    if 0 in (each.dim() for each in parts) or len({each.shape[0] for each in parts}) != 1:
        raise InvalidParameter("dataset", NOTHING, "must have tensors of one length, with a row for each record")
    return parts


def check_losses(losses: Any, count: int) -> torch.Tensor:
    """One loss for each example, with a graph behind it."""
    if not isinstance(losses, torch.Tensor):
        raise InvalidParameter("losses", type_of(losses), "must be a tensor with one loss for each example")
    if losses.dim() != 1 or losses.shape[0] != count:
        shape = tuple(losses.shape)
        remedy = "write reduction='none', and average over all axes but the first; a loss that a model gives is a mean"
        raise InvalidParameter("losses", shape, f"must have the shape ({count},): one loss for each example", remedy)
    if not losses.requires_grad:
        rule = "have no graph behind them: nothing in the model was trained on the way"
        raise InvalidParameter("losses", NOTHING, rule, "compute them outside of torch.no_grad()")
    return losses


def check_public_loss(loss: Any) -> None:
    """One number, as for any ordinary step."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        rule = "must be one number with a graph behind it"
        raise InvalidParameter("loss", NOTHING, rule, "average over the public examples: losses.mean()")


def check_left_alone(parameters: Mapping[str, torch.Tensor], versions: Sequence[int]) -> None:
    """What the trainer trains has no gradient of anybody else, and nobody else changed it since a batch was handed
    out: both would be of the data, without noise.
    """
    for (name, each), version in zip(parameters.items(), versions, strict=True):
        found = "has a gradient" if each.grad is not None else "was changed" if each._version != version else None
        if found is not None:
            rule = f"{found} that the trainer did not make, of the data and without noise"
            remedy = "leave out loss.backward() and optimizer.step(); trainer.public_step(loss) is for public data"
            raise InvalidOperation(f"parameter {name!r} {rule}; {remedy}")


def check_finite(parameters: Mapping[str, torch.Tensor]) -> None:
    """Refuse to go on with a model that is no number any more. Parameters were released: this tells nothing new."""
    for name, each in parameters.items():
        if not bool(torch.isfinite(each).all()):
            rule = "is not finite any more, after noise and the optimizer's steps, so that nothing can be learnt"
            remedy = "lower the learning rate, or look for overflow in the optimizer; go on from an earlier checkpoint"
            raise InvalidOperation(f"parameter {name!r} {rule}; {remedy}")


def is_less_than_single(model: nn.Module, device: torch.device) -> bool:
    """Whether products of single precision may be computed with fewer digits: TF32 or bfloat16, wherever it was set."""
    has_convolutions = any(isinstance(each, nn.modules.conv._ConvNd) for each in model.modules())
    kinds = torch.backends
    switches: tuple[Any, ...] = (kinds, kinds.mkldnn, kinds.mkldnn.conv, kinds.mkldnn.matmul, kinds.cuda.matmul)
    try:
        if torch.get_float32_matmul_precision() != "highest":
            return True
        if device.type == "cuda" and has_convolutions and kinds.cudnn.allow_tf32:
            return True
        return any(getattr(each, "fp32_precision", "none") in ("tf32", "bf16") for each in switches)
    except RuntimeError:  # set by torch's newer switches, of which the older ones know nothing
        return True
