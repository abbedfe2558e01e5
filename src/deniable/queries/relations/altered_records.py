"""Copies of frozen records with some fields changed, without the checks of their class."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["altered"]

Record = TypeVar("Record")


def altered(record: Record, **fields: Any) -> Record:
    """A copy of a frozen dataclass with changed fields, without running `__post_init__`.

    Only for fields on which the checks and derived fields of the class do not depend; otherwise use
    `dataclasses.replace`.

    >>> from deniable.tables.expressions import Literal
    >>> altered(Literal(5), value=6)
    6
    """
    made = object.__new__(type(record))
    for name in record.__dataclass_fields__:  # type: ignore[attr-defined]  # a dataclass, by the contract
        object.__setattr__(made, name, fields[name] if name in fields else getattr(record, name))
    return made
