"""State that a forward pass keeps outside of its model: in classes, in globals, and in functions.

Compared are

- the classes of the model's modules, except torch's own;
- the globals that their methods name, with the functions and classes of the same Python modules among them;
- the state of these functions: defaults, attributes and closure cells;
- containers, arrays and plain objects that are reachable from these, up to a size.

Not detected: state in other Python modules and their functions, and in objects without a `__dict__` or slots.
"""

from __future__ import annotations

import dis
import logging
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any, Final, final

from torch import nn

from deniable.learn.torch.guards.forward_watch import parts_of
from deniable.learn.torch.guards.object_snapshots import NOTHING, Snapshot, held_by, is_same, put_into

OTHERS: Final = ("torch", "deniable", "builtins")
"""Packages whose classes are assumed to keep no data."""

MOST: Final = 1 << 12
"""Containers and arrays with more members are not traversed: a global may be a whole dataset."""

GLOBAL: Final = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL")

Place = tuple[Any, str]
"""(globals of a Python module, name), or (closure cell, name)."""


@final
class Outside:
    """The state of a model's classes, globals and functions at the last `begin`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._version = 0
        self._kinds: set[type] = set()
        self._found = _Found(set())
        self._held: list[tuple[Any, str, Any]] = []
        self._snapshot: Snapshot | None = None

    def begin(self, version: int) -> None:
        """Record the current state. While `version` (of the model's attributes) is unchanged, the modules are assumed
        to be unchanged too.
        """
        if version != self._version:
            self._find()
            self._version = version
        if not self._found.classes:
            return
        snapshot = self._snapshot
        if snapshot is None or not (snapshot.is_still() and self._is_still()):
            self._snapshot = snapshot = self._taken()
        snapshot.copy_numbers()

    def _find(self) -> None:
        kinds = {type(each) for each in parts_of(self._model)}
        if kinds != self._kinds:
            self._kinds, self._snapshot = kinds, None
            self._found = _Found({each for kind in kinds for each in kind.__mro__ if _package(each) not in OTHERS})

    def _is_still(self) -> bool:
        return all(_now(where, name) is was for where, name, was in self._held)

    def _taken(self) -> Snapshot:
        snapshot, found = Snapshot(most=MOST), self._found
        for kind in found.classes:
            for name, value in snapshot.add(vars(kind), kind).items():
                snapshot.look_into(name, value)
        for function in found.functions:
            for value in (function.__defaults__, function.__kwdefaults__, function.__dict__):
                snapshot.look_into(function.__name__, value)
        self._held = [(where, name, _now(where, name)) for where, name in found.places]
        for _, name, value in self._held:
            if not isinstance(value, logging.Logger):  # a logger caches its levels
                snapshot.look_into(name, value)
        return snapshot

    def changed(self) -> str | None:
        """The name of something that changed since `begin`, or None. Raises if a tensor was overwritten."""
        snapshot = self._snapshot
        if snapshot is None or (not snapshot.has_numbers and snapshot.is_still() and self._is_still()):
            return None
        snapshot.check_tensors()
        names = [name for where, name, was in self._held if not is_same(_now(where, name), was)]
        names += [str(name) for name, _ in snapshot.changes()] + snapshot.changed_inside()
        return names[0] if names else None

    def restore(self) -> None:
        """Restore the state of the last `begin`."""
        for where, name, was in self._held:
            if _now(where, name) is not was:
                _set(where, name, was)
        if self._snapshot is not None:
            self._snapshot.restore()


@final
class _Found:
    """The classes and functions that are reachable from a model's classes, and the globals and cells that they name."""

    def __init__(self, classes: set[type]) -> None:
        self._modules = {each.__module__ for each in classes}
        self.classes: list[type] = sorted(classes, key=lambda each: each.__qualname__)
        self.functions: list[FunctionType] = []
        self.places: list[Place] = []
        self._reached: set[int] = {id(each) for each in classes}
        for kind in self.classes:
            for value in vars(kind).values():
                for each in _functions_in(value):
                    self._follow(each)
        known: set[tuple[int, str]] = set()
        for function in self.functions:
            for where, name in _places_of(function):
                if (id(where), name) not in known:
                    known.add((id(where), name))
                    self.places.append((where, name))
                    self._follow(_now(where, name))

    def _follow(self, value: Any) -> None:
        if not isinstance(value, FunctionType | type) or id(value) in self._reached:
            return
        if value.__module__ not in self._modules:
            return
        self._reached.add(id(value))
        if isinstance(value, FunctionType):
            self.functions.append(value)
            self._follow(getattr(value, "__wrapped__", None))
        else:
            self.classes.append(value)


def _functions_in(value: Any) -> Iterator[Any]:
    """The functions of a class member: of a property, a static or class method, or the member itself."""
    if isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    else:
        yield value


def _places_of(function: FunctionType) -> Iterator[Place]:
    for name in sorted(_globals_in(function.__code__)):
        yield function.__globals__, name
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield cell, name


def _globals_in(code: CodeType) -> set[str]:
    """Names of globals that a function, or a function defined inside of it, reads or sets."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in GLOBAL}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= _globals_in(each)
    return found


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _now(where: Any, name: str) -> Any:
    return held_by(where) if isinstance(where, CellType) else where.get(name, NOTHING)


def _set(where: Any, name: str, was: Any) -> None:
    if isinstance(where, CellType):
        put_into(where, was)
    elif was is NOTHING:
        where.pop(name, None)
    else:
        where[name] = was
