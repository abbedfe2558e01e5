"""The contents of objects beyond their items: attributes, closures of functions, dynamically created classes, errors.

A class that is not found under its name in its module was created by a function, possibly for this one answer. The
variables that its methods close over are then a part of the answer.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any, Final, final

Parts = list[tuple[tuple[str | int, ...], Any]]
HEAP: Final = 1 << 9
"""The flag of classes that were created at run time (Py_TPFLAGS_HEAPTYPE)."""
FUNCTIONS: Final = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
)  # fmt: skip
STORED_BY_NAME: Final[dict[type, tuple[str, ...]]] = {
    collections.defaultdict: ("default_factory",),
    collections.deque: ("maxlen",),
    functools.partial: ("func", "args", "keywords"),
}
"""Attributes of types that store them neither in a dict nor in slots."""
LEFT_OUT: Final = ("obj", "characters_written")
"""Attributes of errors that the interpreter sets, like a traceback, or that cannot be read."""


def attributes(value: Any) -> Parts:
    """All attributes of an object, and the contents of dynamically created classes."""
    stored: dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            real = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if real not in ("__dict__", "__weakref__") and hasattr(value, real):
                stored[real] = getattr(value, real)
        stored.update({name: getattr(value, name) for name in STORED_BY_NAME.get(kind, ())})
    held = getattr(value, "__dict__", None)
    stored.update(held if isinstance(held, dict) else {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored.update({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    return [*(((f".{name}",), stored[name]) for name in sorted(stored, key=str)), *of_class(type(value))]


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """An answer that cannot be copied faithfully, and its contents as they were when it arrived."""

    answer: Any
    contents: Any
    """The result of `answer_reading.read`."""

    def __repr__(self) -> str:
        return repr(self.answer)


# -- functions and classes -------------------------------------------------------------------------------------------


def of_function(function: Any) -> Parts:
    """A function's closure variables, defaults and attributes; for a method, also the object that it is bound to."""
    if not isinstance(function, types.FunctionType):
        bound = getattr(function, "__self__", None)
        inner = of_function(function.__func__) if isinstance(function, types.MethodType) else []
        return [*inner, *([] if bound is None or isinstance(bound, types.ModuleType) else [(("bound to",), bound)])]
    parts: Parts = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((("variable", name), cell.cell_contents))
        except ValueError:  # an empty cell
            continue
    for name in ("__defaults__", "__kwdefaults__", "__dict__"):
        if held := getattr(function, name):
            parts.append(((f".{name}",), held))
    if function.__code__.co_filename.startswith("<"):  # code without a file may have been generated for this answer
        parts.append((("constants",), _constants(function.__code__)))
    return parts


def _constants(code: types.CodeType) -> list[Any]:
    found: list[Any] = []
    for one in code.co_consts:
        found += _constants(one) if isinstance(one, types.CodeType) else [one]
    return found


def of_class(kind: type) -> Parts:
    """The contents of a class and its bases, as far as they were created dynamically; empty for ordinary classes."""
    return [
        ((".class", name, *path), part)
        for made in kind.__mro__
        if _is_made(made)
        for name, member in list(vars(made).items())
        for path, part in _of_member(name, member)
    ]


def _is_made(kind: type) -> bool:
    if not kind.__flags__ & HEAP:
        return False
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind


def _of_member(name: str, member: Any) -> Parts:
    functions = list(_functions(member))
    if functions:
        return [part for function in functions for part in _of_method(function, set())]
    is_plain = not name.startswith("__") and not hasattr(type(member), "__get__") and name != "_abc_impl"
    return [((), member)] if is_plain else []


def _functions(member: Any) -> Iterator[Any]:
    for one in (member, *(getattr(member, name, None) for name in ("__func__", "fget", "fset", "fdel", "func"))):
        if isinstance(one, types.FunctionType):
            yield one


def _of_method(function: Any, around: set[int]) -> Parts:
    """The same as `of_function`, with the functions that it closes over opened in turn."""
    around.add(id(function))
    parts: Parts = []
    for path, part in of_function(function):
        if not isinstance(part, FUNCTIONS):
            parts += [] if path == (".__dict__",) else [(path, part)]
        elif id(part) not in around:
            around.add(id(part))
            parts += [((*path, *more), held) for more, held in _of_method(part, around)]
    return parts


# -- errors ----------------------------------------------------------------------------------------------------------


def of_error(error: BaseException) -> Parts:
    """The contents of an error: arguments, message, cause and context, displayed or not. The traceback is left out,
    because it contains all local variables in every error.
    """
    parts: Parts = [((".args",), error.args)]
    if type(error).__str__ is not BaseException.__str__:
        parts.append(((".message",), str(error)))
    for kind in type(error).__mro__:
        for name, member in list(vars(kind).items()):
            is_stored = isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType)
            if is_stored and not name.startswith("__") and name not in LEFT_OUT:
                held = getattr(error, name, None)
                parts += [] if held is None else [((f".{name}",), held)]
    before: Parts = [((".cause",), error.__cause__), ((".context",), error.__context__)]
    return [*parts, *(each for each in before if each[1] is not None), ((".hidden",), error.__suppress_context__)]
