"""Snapshots of Python objects: they detect, and undo, changes of attributes, containers, arrays and generators.

A snapshot is taken once and then compared by object identity, in loops that run inside of Python's C code. While
nothing has changed, which is nearly always, a comparison copies nothing and does not traverse the objects again.
"""

from __future__ import annotations

import functools
import gc
import operator
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, islice, takewhile
from types import BuiltinFunctionType, CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np
from torch import Generator, Tensor, nn, strided

from deniable.errors import InvalidParameter
from deniable.learn.torch.guards.inner_states import InnerState, inner_state

SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, nn.Module)
"""Types that are not traversed unless `functions` is set. Modules of the model are listed separately."""

MOVING: Final = (
    "deniable",
    "torch.optim",
    "torch.amp",
    "torch.cuda",
    "torch.distributed",
    "torch.utils",
    "torch.autograd",
    "torch.profiler",
)
"""Packages whose objects change legitimately, such as an optimizer or the trainer itself."""

OTHERS: Final = ("torch", "deniable", "numpy", "builtins")
"""Packages whose functions and classes are assumed to keep no data."""

HEAP: Final = 1 << 9
"""The flag of classes that are written in Python and so have writable attributes."""

COPIED: Final = 1 << 16
"""Tensors with at most this many entries are copied, because a write through `.data` does not change the version."""

PLAIN: Final = (int, float, complex, str, bytes, type(None))

CACHED: Final = type(functools.lru_cache(lambda: None))
"""The type of functions with a cache."""

REMEMBERED: Final = (list, dict, set, deque, np.ndarray, Tensor)
"""Values of a cache that code may change."""

_own: Final = operator.attrgetter("__dict__")
_values: Final = operator.methodcaller("values")

Table = Mapping[str, Any]
"""A dictionary, or the `__dict__` proxy of a class, which can be changed only through the class."""


@final
class Snapshot:
    """Tables of names, and all objects reachable from their values through containers and plain objects."""

    def __init__(self, *, most: int | None = None, functions: bool = False) -> None:
        self._most = most
        """Containers and arrays with more members are not traversed."""
        self._functions = functions
        """Whether the state of functions and classes is compared as well."""
        self._cells: list[CellType] = []
        self._inside: list[Any] = []
        """Contents of the closure cells in `_cells`."""
        self._grads: list[tuple[Tensor, Tensor | None]] = []
        self._reached: set[int] = set()
        self._tables: list[Table] = []
        self._before: list[tuple[dict[Any, Any], Any, frozenset[str] | None]] = []
        """For each table: its contents, its owner, and the names that may change."""
        self._lengths: list[int] = []
        self._behind: list[tuple[Any, int]] = []
        """Tables whose names are compared, and how many of their last names."""
        self._names: list[Any] = []
        """The names of all tables in `_behind`, concatenated."""
        self._held: list[Any] = []
        """The values of all tables in `_behind`, concatenated."""
        self._looked_at: list[Any] = []
        """Tables whose values are compared but not restored."""
        self._there: list[Any] = []
        """The values of all tables in `_looked_at`, concatenated."""
        self._owners: list[Any] = []
        self._owned: list[Any] = []
        """The `__dict__` of each owner, because code may replace it as a whole."""
        self._lists: list[tuple[Any, list[Any]]] = []
        self._tensors: list[tuple[str, Tensor, int, int, Tensor | None]] = []
        """(name, tensor, version, address, copy of a small tensor)."""
        self._arrays: list[tuple[Any, Any]] = []
        self._generators: list[tuple[Generator, Tensor]] = []
        self._states: list[tuple[Any, InnerState, Any]] = []
        """Objects with a state inside, how to read it, and what it was."""
        self._slots: list[tuple[Any, str, Any]] = []
        """(object, name of a slot, its value)."""
        self._caches: list[tuple[Any, tuple[int, int]]] = []
        """Functions with a cache of bounded size (`lru_cache`), and how often and how far it was filled."""

    # -- taking it -----------------------------------------------------------------------------------------------------

    def add(
        self, table: Table, owner: Any = None, *, left_alone: frozenset[str] | None = frozenset()
    ) -> dict[Any, Any]:
        """Add a table to the snapshot, except for the names in `left_alone`. Returns a copy of it.

        With `left_alone=None`, `is_still` compares the values, but `changes` and `restore` ignore the table.
        """
        # dict(table) of a subclass may call its own __getitem__, which may make a new object for each name.
        before = dict(table) if type(table) is dict else dict(zip(table, table.values(), strict=True))
        self._tables.append(table)
        self._before.append((before, owner, left_alone))
        self._lengths.append(len(before))
        # Leading names that may change are skipped (torch has 17 in every module). If the number of names and all later
        # names are the same, no other name can have come before them.
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
        """Add all objects reachable from a value through containers and plain objects to the snapshot."""
        waiting = [start]
        while waiting:
            value = waiting.pop()
            if type(value) in PLAIN or self.has_reached(value):
                continue
            if isinstance(value, SHARED):
                waiting += self._carried(value) if self._functions else ()
                continue
            inside = self._contents(name, value)
            if inside is None:
                continue
            waiting += inside
            # Subclasses of all these types, and tensors, may have attributes.
            if type(own := getattr(value, "__dict__", None)) is dict and not self.has_reached(own):
                waiting += self.add(own, value).values()
            if type(value).__flags__ & HEAP and not isinstance(value, Tensor):
                waiting += self._slotted(value)

    def _contents(self, name: str, value: Any) -> Iterable[Any] | None:
        """Add a value to the snapshot. Returns what it contains besides attributes; None if it may change freely."""
        if isinstance(value, Tensor):
            check_numbers(name, value, "is a tensor in an attribute, a class or a global")
            self._tensors.append((name, value, 0, 0, None))
            if value.is_leaf and not isinstance(value, nn.Parameter):
                self._grads.append((value, value.grad))
        elif isinstance(value, np.ndarray):
            if self._most is None or value.size <= self._most:
                self._arrays.append((value, None))
                return value.ravel().tolist() if value.dtype.hasobject else ()
        elif isinstance(value, Generator):
            self._generators.append((value, Tensor()))
        elif (kind := inner_state(value)) is not None:
            self._states.append((value, kind, None))
        elif isinstance(value, list | dict | set | deque | tuple | frozenset):
            return self._opened(value) if self._most is None or len(value) <= self._most else ()
        elif isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        elif isinstance(value, CACHED):
            return self._remembered(value)
        elif f"{type(value).__module__}.".startswith(tuple(f"{each}." for each in MOVING)):
            return None
        return ()

    def _remembered(self, function: Any) -> list[Any]:
        """The values in a function's cache. A cache of unbounded size is a dictionary."""
        if function.cache_info().maxsize is not None:
            self._caches.append((function, _filled(function)))
        own = function.__dict__
        return [each for each in gc.get_referents(function) if each is not own and isinstance(each, REMEMBERED)]

    def _slotted(self, value: Any) -> list[Any]:
        kinds = [kind for kind in type(value).__mro__ if "__slots__" in vars(kind) and _package(kind) not in OTHERS]
        names = [name for kind in kinds for name, each in vars(kind).items() if isinstance(each, MemberDescriptorType)]
        held = [(value, name, getattr(value, name, NOTHING)) for name in names]
        self._slots += held
        return [each for _, _, each in held if each is not NOTHING]

    def _carried(self, value: Any) -> Iterable[Any]:
        """The state of a function or a class: bound object, closure, defaults, attributes."""
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
        """Whether a previous call had this object. Remembers it."""
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
        """Record the current contents of tensors, arrays and generators, which identity does not cover."""
        if self._tensors:
            self._tensors = [(name, each, *_seen(each)) for name, each, *_ in self._tensors]
        if self._arrays:
            self._arrays = [(each, each.copy()) for each, _ in self._arrays]
        if self._generators:
            self._generators = [(each, each.get_state()) for each, _ in self._generators]
        if self._states:
            self._states = [(each, kind, kind.read(each)) for each, kind, _ in self._states]

    # -- comparing -----------------------------------------------------------------------------------------------------

    def is_still(self) -> bool:
        """Whether all names and containers hold the same objects. Does not compare contents of tensors and arrays."""
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
            and all(getattr(value, name, NOTHING) is was for value, name, was in self._slots)
            and all(_filled(function) == was for function, was in self._caches)
        )

    @property
    def has_numbers(self) -> bool:
        """Whether there are tensors, arrays or generators, whose contents must be compared."""
        return bool(self._tensors or self._arrays or self._generators or self._states)

    def check_tensors(self) -> None:
        """Raise if a tensor was overwritten."""
        for name, tensor, version, place, copied in self._tensors:
            is_other = tensor._version != version or tensor.data_ptr() != place
            if is_other or (copied is not None and not _is_equal(tensor, copied)):
                rule = "is a tensor in an attribute into which the forward pass wrote data without noise"
                remedy = "make a new tensor instead of writing into it, or leave out running statistics"
                raise InvalidParameter("model", name, rule, remedy)

    def changes(self) -> list[tuple[Any, bool]]:
        """Names in tables that have another value now, and whether they are counters. A counter is an integer attribute
        of a module that changed by 1."""
        found: list[tuple[Any, bool]] = []
        for table, before, _, left_alone in self._others():
            names = [name for name in {**before, **table} if name not in left_alone]
            pairs = [(name, table.get(name, NOTHING), before.get(name, NOTHING)) for name in names]
            others = [each for each in pairs if not is_same(*each[1:])]
            if not others and not left_alone and list(table) != list(before):
                found.append(("order", False))  # the order of a dictionary may reveal what was used last
            for name, now, was in others:
                found.append((name, bool(left_alone) and type(now) is type(was) is int and abs(now - was) == 1))
        return found

    def _others(self) -> list[tuple[Table, dict[Any, Any], Any, frozenset[str]]]:
        """The tables that have changed since the snapshot, each with its contents then, its owner, and the names that
        may change.
        """
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
        """Type names of containers, owners, closures, gradients, arrays and generators that have changed."""
        found = [
            type(now).__name__ for now, was in self._lists if len(now) != len(was) or not all(map(is_same, now, was))
        ]
        for owner, table in zip(self._owners, self._owned, strict=True):
            if owner.__dict__ is not table:
                found.append(type(owner).__name__)
        found += ["closure" for cell, was in self._held_before() if not is_same(held_by(cell), was)]
        for value, name, was in self._slots:
            if not is_same(getattr(value, name, NOTHING), was):
                found.append(type(value).__name__)
        found += [function.__name__ for function, was in self._caches if _filled(function) != was]
        found += ["grad" for tensor, was in self._grads if tensor.grad is not was]
        found += ["array" for now, was in self._arrays if now.tobytes() != was.tobytes()]
        found += [type(now).__name__ for now, kind, was in self._states if kind.read(now) != was]
        return found + ["generator" for now, was in self._generators if not now.get_state().equal(was)]

    def _held_before(self) -> list[tuple[CellType, Any]]:
        return list(zip(self._cells, self._inside, strict=True))

    # -- putting back --------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Undo all changes, except for names in `left_alone` and contents of tensors."""
        self._restore_attributes()
        self._restore_contents()

    def _restore_attributes(self) -> None:
        """Tables of attributes, closures and slots."""
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
        for holder, name, was in self._slots:
            if getattr(holder, name, NOTHING) is not was:
                delattr(holder, name) if was is NOTHING else setattr(holder, name, was)

    def _restore_contents(self) -> None:
        """Caches, gradients, containers, arrays and generators."""
        for function, filled in self._caches:
            if _filled(function) != filled:
                function.cache_clear()
        self._caches = [(function, _filled(function)) for function, _ in self._caches]
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                tensor.grad = grad
        for value, members in self._lists:
            value.clear()
            value.extend(members) if isinstance(value, list | deque) else value.update(members)
        for array, copied in self._arrays:
            if array.tobytes() != copied.tobytes():  # an unchanged array may be read-only
                array[...] = copied
        for generator, state in self._generators:
            generator.set_state(state)
        for value, kind, was in self._states:
            if kind.read(value) != was:
                kind.put(value, was)


NOTHING: Final = object()
"""Stands for a missing value."""


def _package(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


def _filled(function: Any) -> tuple[int, int]:
    """How often a value was put into the cache of a function, and how many it has."""
    _, misses, _, size = function.cache_info()
    return misses, size


def held_by(cell: CellType) -> Any:
    """The contents of a closure cell; NOTHING if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return NOTHING


def put_into(cell: CellType, was: Any) -> None:
    """Set a closure cell; NOTHING empties it."""
    if was is not NOTHING:
        cell.cell_contents = was
    else:  # allowed for an empty cell too
        del cell.cell_contents


def _put(where: Any, name: Any, was: Any) -> None:
    """Set a name in a dictionary or a class; NOTHING deletes it."""
    if isinstance(where, type):
        delattr(where, name) if was is NOTHING else setattr(where, name, was)
    elif was is NOTHING:
        del where[name]
    else:
        where[name] = was


def check_numbers(name: str, tensor: Tensor, where: str) -> None:
    """Raise for a tensor whose values cannot be compared: on the meta device, sparse or nested."""
    if tensor.is_meta:
        rule = f"{where}, and on the meta device: it has no values"
        raise InvalidParameter("model", name, rule, "make it on a real device, or delete it")
    if tensor.layout is not strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else "sparse"
        rule = f"{where}, and {kind}: writes of data into it cannot be detected"
        raise InvalidParameter("model", name, rule, "make it dense: to_dense(), or to_padded_tensor(0.0)")


def _seen(tensor: Tensor) -> tuple[int, int, Tensor | None]:
    return tensor._version, tensor.data_ptr(), tensor.detach().clone() if tensor.numel() <= COPIED else None


def _is_equal(now: Tensor, before: Tensor) -> bool:
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    return bool(((now == before) | ((now != now) & (before != before))).all())


def is_same(now: Any, before: Any) -> bool:
    """Whether both are the same object, or equal plain values, or tuples of such."""
    if now is before:
        return True
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(is_same, now, before))
    return type(now) is type(before) and isinstance(now, PLAIN) and bool(now == before)
