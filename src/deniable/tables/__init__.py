"""What the data is: schemas with public bounds and keys, expressions, and plans whose nodes know their stability."""

from deniable.tables.expressions import Expression, case, coalesce, col, lit
from deniable.tables.kinds import Domain, Kind
from deniable.tables.propose import Proposal, propose_schema
from deniable.tables.schema import Table, read_schema, write_schema

__all__ = [
    "Domain",
    "Expression",
    "Kind",
    "Proposal",
    "Table",
    "case",
    "coalesce",
    "col",
    "lit",
    "propose_schema",
    "read_schema",
    "write_schema",
]
