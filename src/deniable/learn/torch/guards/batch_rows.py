"""The rows of a batch: its tensors, their shapes, and a batch of one record that is repeated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map


def leaves_of(batch: Any) -> list[Any]:
    """The values in the containers of a batch, also in mappings that torch does not know (those of tokenizers)."""
    found: list[Any] = []
    for each in tree_flatten(batch)[0]:
        found += leaves_of(dict(each)) if isinstance(each, Mapping) else [each]
    return found


def mapped(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A batch with each tensor changed."""

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        if isinstance(value, Mapping):
            made: Any = copy.copy(value)
            for name in value:
                made[name] = mapped(value[name], change)
            return made
        return value

    return tree_map(one, batch)


def repeated(batch: Any, times: int) -> Any:
    """A batch in which the first record appears `times` times."""
    return mapped(batch, lambda each: each[:1].repeat(times, *[1] * (each.dim() - 1)))


def filled_up(batch: Any, count: int, size: int) -> Any:
    """A batch of `count` examples followed by copies of the first one, up to `size` examples."""
    if count == size:
        return batch
    return mapped(batch, lambda each: torch.cat([each, each[:1].repeat(size - count, *[1] * (each.dim() - 1))]))


def why_not_rows(batch: Any, count: int) -> str | None:
    """Why a batch does not consist of tensors with one row for each example; None if it does."""
    for each in leaves_of(batch):
        if isinstance(each, Tensor):
            if each.layout is not torch.strided:
                return "a sparse tensor in the batch"
            if each.dim() == 0 or each.shape[0] != count:
                return "a tensor in the batch whose first axis is not the examples"
        elif each is not None:
            return f"a value in the batch that is not a tensor ({type(each).__name__}), which no rule covers"
    return None


def shapes_of(batch: Any) -> tuple[object, ...]:
    """Shapes, strides and types of a batch's tensors."""
    return tuple((each.shape, each.stride(), each.dtype) for each in leaves_of(batch) if isinstance(each, Tensor))


def kinds_of(batch: Any) -> tuple[object, ...]:
    """Shapes and types of one example's part of a batch's tensors: equal for batches of any number of examples."""
    return tuple((each.shape[1:], each.dtype) for each in leaves_of(batch) if isinstance(each, Tensor))
