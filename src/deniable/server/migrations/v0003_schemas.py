"""The schema of a dataset before its owner bought bounds, by which old releases are read."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "curator_schemas",
        sa.Column("dataset", sa.String(200), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("schema", sa.Text, nullable=False),
    )
