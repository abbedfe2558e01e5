"""Lazy doors (PEP 562): a package names what it offers and where each name lives; a module is loaded by its first use.

It imports nothing, so that a door costs nothing to hang.
"""

TYPE_CHECKING = False  # as a type checker reads it; `typing` would cost more than all else behind the front door
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_door(
    package: str, homes: "Mapping[str, str]", *, here: tuple[str, ...] = ()
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """The `__getattr__` and `__dir__` of `package`, whose names live in the modules `homes` (relative to it).

    A name that is its own home stands for the module itself. `here` are names that the package defines
    itself and shows as well. Write it under `if not TYPE_CHECKING:`, so that a type checker believes the imports beside
    it and reports a misspelt name.

    >>> opened, shown = lazy_door("email", {"Message": "message", "charset": "charset"})
    >>> opened("Message")
    <class 'email.message.Message'>
    >>> shown()
    ['Message', 'charset']
    """

    def opened(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        module = import_module(f"{package}.{homes[name]}")
        value: object = module if homes[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)  # the next access does not come through here
        return value

    def shown() -> list[str]:
        return sorted((*homes, *here))

    return opened, shown
