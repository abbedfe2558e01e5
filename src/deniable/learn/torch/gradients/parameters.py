"""The trained parameters of a model: the modules that own them, and the source of their per-example gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from deniable.learn.torch.gradients.layers import closed_form


@final
@dataclass(slots=True)
class Trained:
    """One trained parameter, with all its owners and the source of its per-example gradients."""

    name: str
    tensor: nn.Parameter
    owners: list[tuple[str, str]]
    """(path of a module, name in it); several if weights are tied."""
    unit: str | None
    """Path of the module that is run again for it; None if closed forms suffice."""
    is_spread: bool = False
    """Whether the parameter itself is added to every example (see `broadcast_additions`)."""

    def name_in(self, path: str) -> str:
        """The name of the parameter relative to the module at `path`, which contains it."""
        for owner, local in self.owners:
            full = f"{owner}.{local}" if owner else local
            if path == "" or owner == path or owner.startswith(f"{path}."):
                return full[len(path) + 1 :] if path else full
        raise AssertionError(path)


def trained_parameters(model: nn.Module, modules: dict[str, nn.Module]) -> Iterator[Trained]:
    """All parameters with requires_grad, each once, even if several modules share it."""
    owners: dict[int, list[tuple[str, str]]] = defaultdict(list)
    tensors: dict[int, nn.Parameter] = {}
    for path, module in modules.items():
        for local, tensor in module.named_parameters(recurse=False):
            if tensor.requires_grad:
                owners[id(tensor)].append((path, local))
                tensors[id(tensor)] = tensor
    for key, places in owners.items():
        path, local = places[0]
        closed = all(closed_form(modules[owner]) is not None or _in_attention(owner, modules) for owner, _ in places)
        unit = None if closed else common_path([owner for owner, _ in places])
        yield Trained(f"{path}.{local}" if path else local, tensors[key], places, unit)


def _in_attention(path: str, modules: dict[str, nn.Module]) -> bool:
    here, above = modules[path], modules.get(path.rpartition(".")[0])
    return type(here) is nn.MultiheadAttention or (type(above) is nn.MultiheadAttention and path.endswith("out_proj"))


def sources(parameter: Trained) -> Iterator[str]:
    """Paths of the modules whose calls use it. Attention itself uses the weight of its output projection."""
    for owner, _ in parameter.owners:
        yield owner
        if owner.endswith("out_proj"):
            yield owner.rpartition(".")[0]


def names_at(parameter: Trained, path: str) -> Iterator[str]:
    """The names of a parameter relative to the module at `path`, whose calls use it."""
    for owner, local in parameter.owners:
        if owner == path:
            yield local
        elif owner.endswith("out_proj") and owner.rpartition(".")[0] == path:
            yield f"out_proj.{local}"


def common_path(paths: list[str]) -> str:
    """The path of the smallest module that contains all of these."""
    parts = [path.split(".") if path else [] for path in paths]
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
