"""What the data is: schemas with public bounds and keys, and expressions over columns.

    schema             Table: what the owner of a table declares in advance; `yaml_text` reads it
    kinds              Kind and Domain: what is publicly known about a value before any data is read
    expressions        col("age") + 1: trees over the columns of a row, all of them total
    source_files       which files a path means; `schema_proposal` a first schema from column types alone

Nothing here is taken from the data. The nodes of a plan, with their stability rules, are in `queries.relations`.
"""

from deniable.tables.expressions import Expression, case, coalesce, col, lit
from deniable.tables.kinds import Domain, Kind
from deniable.tables.schema import Table, read_schema, write_schema
from deniable.tables.schema_proposal import Proposal, propose_schema

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
