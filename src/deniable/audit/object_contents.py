"""What an object holds where it has no items: attributes, the variables of a function, the class that was made for it,
and what an error says.

A class that its module does not have under its name was made by somebody's function, perhaps for this one answer: what
its methods close over is then a part of the answer.
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
"""The flag of classes that were made while the program ran (Py_TPFLAGS_HEAPTYPE)."""
FUNCTIONS: Final = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
)  # fmt: skip
STORED_BY_NAME: Final[dict[type, tuple[str, ...]]] = {
    collections.defaultdict: ("default_factory",),
    collections.deque: ("maxlen",),
    functools.partial: ("func", "args", "keywords"),
}
"""Attributes of types that keep them elsewhere than in a dict or in slots."""
LEFT_OUT: Final = ("obj", "characters_written")
"""Attributes of errors that are set by the interpreter, as a traceback is, or that cannot be asked for."""


def attributes(value: Any) -> Parts:
    """Everything that is stored in an object, by name, and in the classes that were made for it."""
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
    """An answer of which a copy would say something else, with what was read of it when it came."""

    answer: Any
    said: Any
    """What `reading.read` found."""

    def __repr__(self) -> str:
        return repr(self.answer)


# -- functions and classes -------------------------------------------------------------------------------------------


def of_function(function: Any) -> Parts:
    """The variables that a function closes over, its defaults and attributes; the object that a method is bound to."""
    if not isinstance(function, types.FunctionType):
        bound = getattr(function, "__self__", None)
        inner = of_function(function.__func__) if isinstance(function, types.MethodType) else []
        return [*inner, *([] if bound is None or isinstance(bound, types.ModuleType) else [(("bound to",), bound)])]
    parts: Parts = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((("variable", name), cell.cell_contents))
        except ValueError:  # not set yet
            continue
    for name in ("__defaults__", "__kwdefaults__", "__dict__"):
        if held := getattr(function, name):
            parts.append(((f".{name}",), held))
    if function.__code__.co_filename.startswith(
        "<"
    ):  # no file says what it is: it may have been written for this answer
        parts.append((("constants",), _constants(function.__code__)))
    return parts


def _constants(code: types.CodeType) -> list[Any]:
    found: list[Any] = []
    for one in code.co_consts:
        found += _constants(one) if isinstance(one, types.CodeType) else [one]
    return found


def of_class(kind: type) -> Parts:
    """What a class holds if it was made for the answer, its bases as well; nothing of one that its module has."""
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
    """As `of_function`, with the functions that it uses opened in turn: a method is code, and no answer by itself."""
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
    """What an error says: arguments, message, cause and context, shown or not. The traceback is left out: in every
    error it holds all that the function knew.
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
