"""Declarations about data: schemas with public bounds and keys, and expressions over columns.

    schema             Table: what the owner of a table declares in advance; `yaml_text` parses schema files
    kinds              Kind and Domain: the public facts about a value (kind, bounds, keys)
    expressions        col("age") + 1: expression trees over the columns of a row
    source_files       the files that a path stands for, and the header of a CSV file
    schema_proposal    a first schema from column types alone, for the owner to complete

An owner writes a schema (or completes a proposal); a session registers sources by it; questions are checked against it.
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
