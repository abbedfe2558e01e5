"""Unfinished registrations, and the version of the marks of each dataset."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the table and the column: marks from before have the form 0."""
    op.create_table(
        "curator_intentions",
        sa.Column("dataset", sa.String(200), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.add_column("curator_datasets", sa.Column("form", sa.Integer, nullable=False, server_default="0"))
