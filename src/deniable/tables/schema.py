"""Schemas: what the owner of a table declares in advance. Nothing here is ever taken from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from deniable.tables.kinds import Domain
    from deniable.units import Unit


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A table by its name, its columns and who its rows belong to. `unit` None: public, its rows belong to nobody.

    `most_partners` is for public tables: (columns, the most rows that share one value of them), counted when the table
    is registered, which is allowed because it is public.
    """

    name: str
    columns: tuple[tuple[str, Domain], ...]
    unit: Unit | None
    most_partners: tuple[tuple[tuple[str, ...], int], ...] = ()
