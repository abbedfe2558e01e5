"""The declared version of a dataset's data."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column. Datasets from before have no declared version."""
    op.add_column("curator_datasets", sa.Column("version", sa.String(100)))
