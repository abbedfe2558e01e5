"""The domains of tensors in a trace (see `separation_trace`), and one traced operation with its arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class ExampleRows:
    """Along `axis` lie B examples with `after` places each, possibly repeated: index (k·B + i)·after + j belongs to
    example i."""

    axis: int
    after: int


@final
@dataclass(frozen=True, slots=True)
class Same:
    """Does not depend on the data. Along each axis the values repeat with a period; period 1 means all are equal."""

    periods: tuple[int, ...]
    step: int = 0
    """Unless 0, the values are 0, step, 2·step, ..., one for each example, in order."""

    @classmethod
    def varying(cls, tensor: Tensor) -> Same:
        """A tensor whose values may all differ."""
        return cls(tuple(tensor.shape))

    @classmethod
    def constant(cls, tensor: Tensor) -> Same:
        """A tensor with one value, or one distribution, everywhere."""
        return cls((1,) * tensor.dim())


@final
@dataclass(frozen=True, slots=True)
class MixedExamples:
    """Examples may be mixed. `why` names the operation that did it."""

    why: str
    is_combined: bool = False
    """Whether values of several examples were added up or compared, not only moved. Follows from the operation."""


Domain = ExampleRows | Same | MixedExamples


@final
@dataclass(frozen=True, slots=True)
class StorageFrame:
    """The bytes of a storage that hold example i: from low + i·step up to, and without, high + i·step."""

    step: int
    low: int
    high: int

    def with_(self, other: StorageFrame) -> StorageFrame | None:
        """The smallest frame around both; None if the bytes of different examples would overlap."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return StorageFrame(self.step, low, high) if self.step == other.step and high - low <= self.step else None


def frame_of(tensor: Tensor, rows: ExampleRows, count: int) -> StorageFrame | None:
    """The frame of a tensor's examples; None if they do not lie one after the other in memory, each once."""
    if rows.axis >= tensor.dim() or tensor.shape[rows.axis] != count * rows.after or not tensor.numel():
        return None
    stride, size, offset = tensor.stride(rows.axis), tensor.itemsize, tensor.storage_offset()
    others = zip(tensor.shape, tensor.stride(), strict=True)
    wide = 1 + sum((most - 1) * each for most, each in others) - (count - 1) * rows.after * stride
    frame = StorageFrame(stride * rows.after * size, offset * size, (offset + wide) * size)
    return frame if frame.high - frame.low <= frame.step else None


@functools.cache
def _names(func: Any) -> tuple[tuple[str, ...], dict[str, Any], bool]:
    schema = func._schema
    listed = schema.arguments
    writes = schema.is_mutable and torch.Tag.inplace_view not in func.tags  # `transpose_` moves axes, not numbers
    return tuple(each.name for each in listed), {e.name: e.default_value for e in listed}, writes


def argument_names(func: Any) -> tuple[str, ...]:
    """The names of an operation's arguments, in order."""
    return _names(func)[0]


@functools.cache
def _written(func: Any) -> tuple[tuple[str, ...], bool]:
    """Names of the arguments that an operation writes into, and whether one of them is an `out=` argument."""
    listed = func._schema.arguments
    names = tuple(each.name for each in listed if each.alias_info is not None and each.alias_info.is_write)
    return names, any(each.is_out for each in listed)


@final
class GivenOperation:
    """One operation with its arguments and their domains."""

    __slots__ = (
        "_args",
        "_kwargs",
        "_of",
        "count",
        "domains",
        "func",
        "has_out",
        "is_in_place",
        "is_repeatable",
        "name",
        "tensors",
    )

    def __init__(
        self,
        func: Any,
        args: Any,
        kwargs: Mapping[str, Any],
        of: Callable[[Tensor], Domain],
        count: int,
        *,
        is_seeded: bool = False,
    ) -> None:
        self.func, self._args, self._kwargs, self._of, self.count = func, args, kwargs, of, count
        self.name = func._schema.name
        self.is_in_place = _names(func)[2]
        self.has_out = self.is_in_place and _written(func)[1]
        self.tensors = [*_tensors(args), *_tensors(kwargs.values())]
        self.domains = [of(each) for each in self.tensors]
        draws = torch.Tag.nondeterministic_seeded in func.tags
        self.is_repeatable = (draws and is_seeded) or self.value("generator") is not None
        """Whether it draws from a given generator, or from torch's own after its seed was set."""

    def value(self, *names: str) -> Any:
        """The value of the first of these arguments that the operation has, or its default; None if the operation has
        none of them.
        """
        known, defaults, _ = _names(self.func)
        for name in names:
            if name in known:
                place = known.index(name)
                return self._args[place] if place < len(self._args) else self._kwargs.get(name, defaults[name])
        return None

    def of(self, value: Any) -> Domain | None:
        return self._of(value) if isinstance(value, Tensor) else None

    @property
    def written(self) -> list[Tensor]:
        """The tensors that the operation writes into."""
        return _tensors([self.value(name) for name in _written(self.func)[0]])

    @property
    def first(self) -> tuple[Tensor, Domain]:
        return self.tensors[0], self.domains[0]

    def runs(self, tensor: Tensor, rows: ExampleRows) -> int:
        """How many entries of one example are consecutive, in the order of the axes."""
        return rows.after * int(math.prod(tensor.shape[rows.axis + 1 :]))

    def found_by_runs(self, shape: Sequence[int], runs: int) -> ExampleRows | None:
        """The domain of a tensor of this shape in which `runs` entries of each example are consecutive."""
        inner = 1
        for axis in range(len(shape) - 1, -1, -1):
            if runs % inner == 0 and shape[axis] % (runs // inner * self.count) == 0:
                return ExampleRows(axis, runs // inner)
            inner *= shape[axis]
        return None


def written_by(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operation writes into."""
    given = dict(zip(argument_names(func), args, strict=False)) | dict(kwargs)
    return _tensors([given.get(name) for name in _written(func)[0]])


def _tensors(values: Any) -> list[Tensor]:
    found = []
    for each in values:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, list | tuple):
            found += [one for one in each if isinstance(one, Tensor)]
    return found
