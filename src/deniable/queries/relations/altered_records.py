"""Records that differ from others in a few fields, made without the checks of their class."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["altered"]

Record = TypeVar("Record")


def altered(record: Record, **fields: Any) -> Record:
    """This frozen dataclass with other fields, as it is: for whoever knows that what its class checks and works out
    does not depend on them. In all other cases use `dataclasses.replace`.

    >>> from deniable.tables.expressions import Literal
    >>> altered(Literal(5), value=6)
    6
    """
    made = object.__new__(type(record))
    for name in record.__dataclass_fields__:  # type: ignore[attr-defined]
        object.__setattr__(made, name, fields[name] if name in fields else getattr(record, name))
    return made
