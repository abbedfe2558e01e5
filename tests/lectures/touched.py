"""Which names of the library run while an item runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import deniable
from tests.lectures.item import found

LIBRARY = str(Path(deniable.__file__).parent)
OWNERS = ("self", "cls", "_cls")


class Names:
    """Names that must run: a function is called, a property read, a class made or one of its methods called.

    A member of a class counts where a subclass has its own. A module counts where any of its functions runs. A constant,
    or a warning (made inside Python), counts where a function of the item that runs has its name.
    """

    def __init__(self, names: list[str]) -> None:
        self.missing = dict.fromkeys(names)
        self._tests: dict[str, Callable[[FrameType], bool]] = {name: self._test(name) for name in names}

    def _test(self, name: str) -> Callable[[FrameType], bool]:
        thing, (holder, _, last) = found(name), name.rpartition(".")
        if isinstance(thing, ModuleType):
            return lambda frame: frame.f_globals.get("__name__") == thing.__name__
        if isinstance(thing, type) and not issubclass(thing, Warning):
            return lambda frame: _of(frame, thing)
        owner = found(holder) if holder else deniable
        code = code_of(thing)
        if isinstance(owner, type):
            return lambda frame: frame.f_code is code or (frame.f_code.co_name == last and _of(frame, owner))
        if code is not None:
            return lambda frame: frame.f_code is code
        return lambda frame: last in frame.f_code.co_names and frame.f_globals["__name__"].startswith("tests.lectures")

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        for name in [name for name in self.missing if self._tests[name](frame)]:
            del self.missing[name]
        if not self.missing:
            sys.setprofile(None)


class Library:
    """The functions of the library that run, for what must not run it at all."""

    def __init__(self) -> None:
        self.run: set[str] = set()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            self.run.add(frame.f_code.co_qualname)


@contextmanager
def profiled(by: Names | Library) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(by.profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def code_of(thing: Any) -> CodeType | None:
    if isinstance(thing, property):
        thing = thing.fget
    inner = getattr(inspect.unwrap(thing), "__func__", thing) if callable(thing) else thing
    return getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)


def _of(frame: FrameType, owner: type) -> bool:
    """Whether a frame is a method's, called on an instance of the class or on the class itself."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] not in OWNERS:
        return False
    first = frame.f_locals.get(code.co_varnames[0])
    # Not isinstance: a lazy object may answer for __class__.
    return issubclass(first if isinstance(first, type) else type(first), owner)
