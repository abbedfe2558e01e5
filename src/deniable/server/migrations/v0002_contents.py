"""Hashes of the files of a dataset at its registration."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column. For older datasets the value is unknown, so they must be registered again."""
    if any(each["name"] == "contents" for each in sa.inspect(op.get_bind()).get_columns("curator_datasets")):
        return
    op.add_column("curator_datasets", sa.Column("contents", sa.Text, nullable=False, server_default="{}"))
