"""Python objects as they were: what was set, put into containers or written into arrays since is found, and undone.

A snapshot is made once and then compared, object by object and by identity alone, by loops that run inside of Python's
own C code: while everything is as it was, which is nearly always, no copy is made and nothing is walked through.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, islice, takewhile
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np
from torch import Generator, Tensor, nn, strided

from deniable.errors import InvalidParameter

SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, nn.Module)
"""Not looked into where they are not the model's own; parts of the model are listed by themselves."""

MOVING: Final = (
    "deniable",
    "torch.optim",
    "torch.amp",
    "torch.cuda",
    "torch.utils",
    "torch.autograd",
    "torch.profiler",
)
"""Where objects come from that move on by right: an optimizer, or the trainer itself."""

OTHERS: Final = ("torch", "deniable", "numpy", "builtins")
"""Packages whose functions and classes are taken to keep nothing of the data."""

HEAP: Final = 1 << 9
"""The flag of classes that are written in Python, and may be written into."""

COPIED: Final = 1 << 16
"""Tensors of so many numbers at most are copied: what is written through `.data` moves no version."""

PLAIN: Final = (int, float, complex, str, bytes, type(None))

_own: Final = operator.attrgetter("__dict__")
_values: Final = operator.methodcaller("values")

Table = Mapping[str, Any]
"""A dictionary of names, or that of a class, which only the class may write into."""


@final
class Snapshot:
    """Tables of names, and all that their values lead to through containers and plain objects."""

    def __init__(self, *, most: int | None = None, functions: bool = False) -> None:
        self._most = most
        """Containers and arrays of more than so many members are not looked into."""
        self._functions = functions
        """Whether what functions and classes carry with them is compared as well."""
        self._cells: list[CellType] = []
        self._inside: list[Any] = []
        """What the cells of closures hold."""
        self._grads: list[tuple[Tensor, Tensor | None]] = []
        self._reached: set[int] = set()
        self._tables: list[Table] = []
        self._before: list[tuple[dict[Any, Any], Any, frozenset[str] | None]] = []
        """What was in each, whose it is, and the names that are left alone."""
        self._lengths: list[int] = []
        self._behind: list[tuple[Any, int]] = []
        """Tables in which names are compared, and how many, from the last one on."""
        self._names: list[Any] = []
        """Of all of these one after the other, as are their values."""
        self._held: list[Any] = []
        self._looked_at: list[Any] = []
        """Tables that only tell whether all is as it was: their names do not matter."""
        self._there: list[Any] = []
        """Their values one after the other."""
        self._owners: list[Any] = []
        self._owned: list[Any] = []
        """The tables of the owners: somebody may set `__dict__` itself."""
        self._lists: list[tuple[Any, list[Any]]] = []
        self._tensors: list[tuple[str, Tensor, int, int, Tensor | None]] = []
        """Name, version, place in memory, and a copy where there is little to copy."""
        self._arrays: list[tuple[Any, Any]] = []
        self._generators: list[tuple[Generator, Tensor]] = []

    # -- taking it -----------------------------------------------------------------------------------------------------

    def add(
        self, table: Table, owner: Any = None, *, left_alone: frozenset[str] | None = frozenset()
    ) -> dict[Any, Any]:
        """This table is compared as well, but for some names; with None, it only tells whether all is as it was."""
        before = dict(table)
        self._tables.append(table)
        self._before.append((before, owner, left_alone))
        self._lengths.append(len(before))
        # What stands in front of all other names and is left alone is passed over: while as many names are there, and
        # those behind it are the same, nothing else can have come in front. torch keeps 17 names in every module.
        passed = takewhile(left_alone.__contains__, before) if left_alone else ()
        if left_alone is None:
            self._looked_at.append(table)
            self._there += before.values()
        elif behind := len(before) - sum(1 for _ in passed):
            self._behind.append((table, behind))
            self._names += islice(reversed(before), behind)
            self._held += islice(reversed(before.values()), behind)
        if owner is not None and not isinstance(owner, type):
            self._owners.append(owner)
            self._owned.append(table)
        return before

    def look_into(self, name: str, start: Any) -> None:
        """All that can be reached from a value through containers and plain objects is compared as well."""
        waiting = [start]
        while waiting:
            value = waiting.pop()
            if type(value) in PLAIN or self.has_reached(value):
                continue
            if isinstance(value, SHARED):
                waiting += self._carried(value) if self._functions else ()
                continue
            if isinstance(value, Tensor):
                check_numbers(name, value, "is a tensor in an attribute, a class or a global")
                self._tensors.append((name, value, 0, 0, None))
                if value.is_leaf and not isinstance(value, nn.Parameter):
                    self._grads.append((value, value.grad))
            elif isinstance(value, np.ndarray):
                if self._most is None or value.size <= self._most:
                    self._arrays.append((value, None))
            elif isinstance(value, Generator):
                self._generators.append((value, Tensor()))
            elif isinstance(value, list | dict | set | deque | tuple | frozenset):
                if self._most is None or len(value) <= self._most:
                    waiting += self._opened(value)
            elif isinstance(value, functools.partial):
                waiting += (value.func, value.args, value.keywords)
            elif f"{type(value).__module__}.".startswith(tuple(f"{each}." for each in MOVING)):
                continue
            # Subclasses of all of these may have attributes, as tensors have.
            if type(own := getattr(value, "__dict__", None)) is dict and not self.has_reached(own):
                waiting += self.add(own, value).values()

    def _carried(self, value: Any) -> Iterable[Any]:
        """What a function or a class carries with it."""
        if isinstance(value, MethodType):
            return value.__self__, value.__func__
        if isinstance(value, BuiltinFunctionType):
            return (value.__self__,)
        if isinstance(value, ModuleType | nn.Module) or str(value.__module__).partition(".")[0] in OTHERS:
            return ()
        if isinstance(value, type):
            return self.add(vars(value), value).values() if value.__flags__ & HEAP else ()
        cells = value.__closure__ or ()
        inside = [held_by(each) for each in cells]
        self._cells += cells
        self._inside += inside
        own = value.__dict__
        more = () if self.has_reached(own) else self.add(own, value).values()
        return *inside, *more, value.__defaults__, value.__kwdefaults__

    def has_reached(self, value: Any) -> bool:
        """Whether this was met before; from now on, it was."""
        is_known = id(value) in self._reached
        self._reached.add(id(value))
        return is_known

    def _opened(self, value: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            return self.add(value).values()
        if not isinstance(value, tuple | frozenset):
            self._lists.append((value, list(value)))
        return list(value)

    def copy_numbers(self) -> None:
        """What is in tensors, arrays and generators now is how it was: nothing else shows that they were written
        into."""
        if self._tensors:
            self._tensors = [(name, each, *_seen(each)) for name, each, *_ in self._tensors]
        if self._arrays:
            self._arrays = [(each, each.copy()) for each, _ in self._arrays]
        if self._generators:
            self._generators = [(each, each.get_state()) for each, _ in self._generators]

    # -- comparing -----------------------------------------------------------------------------------------------------

    def is_still(self) -> bool:
        """Whether all names stand for the very same objects, and all containers hold them; not what is in tensors."""
        if list(map(len, self._tables)) != self._lengths or not all(
            map(operator.is_, map(_own, self._owners), self._owned)
        ):
            return False
        values = chain.from_iterable([islice(reversed(table.values()), most) for table, most in self._behind])
        names = chain.from_iterable([islice(reversed(table), most) for table, most in self._behind])
        return (
            all(map(operator.is_, map(held_by, self._cells), self._inside))
            and all(tensor.grad is was for tensor, was in self._grads)
            and all(map(operator.is_, chain.from_iterable(map(_values, self._looked_at)), self._there))
            and all(map(operator.is_, values, self._held))
            and all(map(operator.is_, names, self._names))
            and all(len(now) == len(was) and all(map(operator.is_, now, was)) for now, was in self._lists)
        )

    @property
    def has_numbers(self) -> bool:
        """Whether there are tensors, arrays or generators, which are compared by what is in them."""
        return bool(self._tensors or self._arrays or self._generators)

    def check_tensors(self) -> None:
        """Refuse tensors that were written into."""
        for name, tensor, version, place, copied in self._tensors:
            is_other = tensor._version != version or tensor.data_ptr() != place
            if is_other or (copied is not None and not _is_equal(tensor, copied)):
                rule = "is a tensor in an attribute that the forward pass wrote the data into, without noise"
                remedy = "make a new tensor instead of writing into it, or leave out running statistics"
                raise InvalidParameter("model", name, rule, remedy)

    def changes(self) -> list[tuple[Any, bool]]:
        """Names in tables that stand for something else, and whether these are counters: whole numbers in a table of
        which some names are left alone, one more or less than they were."""
        found: list[tuple[Any, bool]] = []
        for table, before, _, left_alone in self._others():
            names = [name for name in {**before, **table} if name not in left_alone]
            pairs = [(name, table.get(name, NOTHING), before.get(name, NOTHING)) for name in names]
            others = [each for each in pairs if not is_same(*each[1:])]
            if not others and not left_alone and list(table) != list(before):
                found.append(("order", False))  # which may tell what was used last
            for name, now, was in others:
                found.append((name, bool(left_alone) and type(now) is type(was) is int and abs(now - was) == 1))
        return found

    def _others(self) -> list[tuple[Table, dict[Any, Any], Any, frozenset[str]]]:
        """Tables that are not what they were."""
        return [
            (table, before, owner, left_alone)
            for table, (before, owner, left_alone) in zip(self._tables, self._before, strict=True)
            if left_alone is not None
            and not (
                len(table) == len(before)
                and all(map(operator.is_, table.values(), before.values()))
                and all(map(operator.is_, table, before))
            )
        ]

    def changed_inside(self) -> list[str]:
        """Kinds of containers, arrays and generators that are others than they were."""
        found = [
            type(now).__name__ for now, was in self._lists if len(now) != len(was) or not all(map(is_same, now, was))
        ]
        for owner, table in zip(self._owners, self._owned, strict=True):
            if owner.__dict__ is not table:
                found.append(type(owner).__name__)
        found += ["closure" for cell, was in self._held_before() if not is_same(held_by(cell), was)]
        found += ["grad" for tensor, was in self._grads if tensor.grad is not was]
        found += ["array" for now, was in self._arrays if now.tobytes() != was.tobytes()]
        return found + ["generator" for now, was in self._generators if not now.get_state().equal(was)]

    def _held_before(self) -> list[tuple[CellType, Any]]:
        return list(zip(self._cells, self._inside, strict=True))

    # -- putting back --------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """As it was, but for the names in tables that are left alone."""
        for owner, table in zip(self._owners, self._owned, strict=True):
            if owner.__dict__ is not table:
                owner.__dict__ = table
        for table, before, owner, left_alone in self._others():
            if isinstance(table, dict) and not left_alone:
                table.clear()
                table.update(before)
                continue
            for name in {**before, **table}.keys() - left_alone:
                if table.get(name, NOTHING) is not before.get(name, NOTHING):
                    _put(owner if isinstance(owner, type) else table, name, before.get(name, NOTHING))
        for cell, was in self._held_before():
            put_into(cell, was)
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                tensor.grad = grad
        for value, members in self._lists:
            value.clear()
            value.extend(members) if isinstance(value, list | deque) else value.update(members)
        for array, copied in self._arrays:
            if array.tobytes() != copied.tobytes():  # others may not even let themselves be written into
                array[...] = copied
        for generator, state in self._generators:
            generator.set_state(state)


NOTHING: Final = object()
"""Stands for no value."""


def held_by(cell: CellType) -> Any:
    """What is in a cell of a closure."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it yet
        return NOTHING


def put_into(cell: CellType, was: Any) -> None:
    if was is not NOTHING:
        cell.cell_contents = was
    else:  # also where there is nothing in it now
        del cell.cell_contents


def _put(where: Any, name: Any, was: Any) -> None:
    """Into a dictionary, or into a class, which nobody else may write into."""
    if isinstance(where, type):
        delattr(where, name) if was is NOTHING else setattr(where, name, was)
    elif was is NOTHING:
        del where[name]
    else:
        where[name] = was


def check_numbers(name: str, tensor: Tensor, where: str) -> None:
    """Refuse a tensor whose numbers cannot be compared, because they do not lie one after the other, or nowhere."""
    if tensor.is_meta:
        rule = f"{where}, and on the meta device: it has no numbers"
        raise InvalidParameter("model", name, rule, "make it on a real device, or delete it")
    if tensor.layout is not strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else "sparse"
        rule = f"{where}, and {kind}: whether the data was written into it cannot be seen"
        raise InvalidParameter("model", name, rule, "make it dense: to_dense(), or to_padded_tensor(0.0)")


def _seen(tensor: Tensor) -> tuple[int, int, Tensor | None]:
    return tensor._version, tensor.data_ptr(), tensor.detach().clone() if tensor.numel() <= COPIED else None


def _is_equal(now: Tensor, before: Tensor) -> bool:
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    return bool(((now == before) | ((now != now) & (before != before))).all())


def is_same(now: Any, before: Any) -> bool:
    """The same object, or a plain value that is equal to it."""
    if now is before:
        return True
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(is_same, now, before))
    return type(now) is type(before) and isinstance(now, PLAIN) and bool(now == before)
