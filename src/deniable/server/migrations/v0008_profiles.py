"""Frequency profiles of the values of a dataset's tables."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the table. Profiles of datasets from before are made before the next registration, from their files."""
    op.create_table(
        "curator_profiles",
        sa.Column("dataset", sa.String(200), primary_key=True),
        sa.Column("source", sa.String(200), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
