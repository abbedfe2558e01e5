"""Relations: what a question reads, as a tree whose nodes each carry a stability rule.

The rule is one number with one meaning. `rows` of a node: in the relation it stands for, no person owns more than that
many rows, whatever the data. Between neighbouring tables the relation then differs by at most that many rows (twice as
many under replacement), because every node treats each person's rows apart from everyone else's. A node that could not
say this does not exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

from deniable.tables.kinds import Domain

if TYPE_CHECKING:
    from deniable.tables.expressions import Expression
    from deniable.tables.schema import Table


@dataclass(frozen=True, slots=True)
class Relation(ABC):
    """Rows that belong to people. Every relation knows its columns, what is public about them, and its stability."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Domain]:
        """The columns that expressions above may use. Whose row it is travels along unseen."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The most rows that one person owns."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The private tables below, each once."""


@final
@dataclass(frozen=True, slots=True)
class Source(Relation):
    """A registered private table, of which at most `rows` rows of each person are read (by the stored random rank)."""

    table: Table


@final
@dataclass(frozen=True, slots=True)
class Filter(Relation):
    """The rows for which the condition is true (neither false nor NULL). Rows: unchanged."""

    child: Relation
    condition: Expression


@final
@dataclass(frozen=True, slots=True)
class Project(Relation):
    """New columns computed from old ones, row by row. Rows: unchanged."""

    child: Relation
    expressions: tuple[tuple[str, Expression], ...]


@final
class How(Enum):
    """What happens to rows without a partner."""

    INNER = "inner"
    LEFT = "left"


@final
@dataclass(frozen=True, slots=True)
class JoinPublic(Relation):
    """Each row with its partners in a public table. Rows: times the most partners a key has there, a public number."""

    child: Relation
    table: Table
    on: tuple[tuple[str, str], ...]
    how: How


@final
@dataclass(frozen=True, slots=True)
class JoinPrivate(Relation):
    """Two relations of the same people, joined on the person (and further columns). Rows: the product."""

    left: Relation
    right: Relation
    on: tuple[tuple[str, str], ...]
    how: How


@final
@dataclass(frozen=True, slots=True)
class PerPerson(Relation):
    """One row for each person, or for each person and value of `keys`, with exact aggregates of that person's rows.

    Rows: 1 without keys, else unchanged. An aggregate is `Exact`: visits per patient, the largest cost of a patient.
    """

    child: Relation
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, Exact], ...]


@final
@dataclass(frozen=True, slots=True)
class Exact:
    """An aggregate within one person: count, count_distinct, sum, avg, min or max of an expression (None: of rows)."""

    function: str
    expression: Expression | None


@final
@dataclass(frozen=True, slots=True)
class Union(Relation):
    """The rows of all parts. Rows: the sum; but the largest, if parts are provably disjoint filters of one relation."""

    parts: tuple[Relation, ...]
    disjoint: bool


@final
@dataclass(frozen=True, slots=True)
class Bound(Relation):
    """At most `groups` values of `keys` for each person, chosen at random, and at most `rows_per_group` rows in each."""

    child: Relation
    keys: tuple[Expression, ...]
    groups: int
    rows_per_group: int
