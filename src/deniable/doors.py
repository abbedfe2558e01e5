"""Lazy imports (PEP 562): a package lists its public names and their modules, and each module is loaded on first use.

This module imports nothing itself, so that `import deniable` stays fast.
"""

TYPE_CHECKING = False  # type checkers take it as True; importing `typing` would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_door(
    package: str, homes: "Mapping[str, str]", *, here: tuple[str, ...] = ()
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """The functions `__getattr__` and `__dir__` of a package with lazy imports.

    `homes` maps each public name to its module, relative to `package`. A name that maps to itself is the module.
    `here` lists names that the package defines itself; `__dir__` lists them as well. Call this under
    `if not TYPE_CHECKING:`, so that a type checker uses the ordinary imports beside it and reports a misspelt name.
    `__getattr__` raises AttributeError for other names.

    >>> get_attribute, list_names = lazy_door("email", {"Message": "message", "charset": "charset"})
    >>> get_attribute("Message")
    <class 'email.message.Message'>
    >>> list_names()
    ['Message', 'charset']
    """

    def get_attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        module = import_module(f"{package}.{homes[name]}")
        value: object = module if homes[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)  # the next access finds it without this function
        return value

    def list_names() -> list[str]:
        return sorted((*homes, *here))

    return get_attribute, list_names
