"""People, tokens, datasets, marks, grants, requests and releases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NAME = 200


def upgrade() -> None:
    """Make the tables."""
    if sa.inspect(op.get_bind()).has_table("curator_people"):
        return  # made before migrations were recorded: it has these tables, or these and the next step's column
    op.create_table(
        "curator_people",
        sa.Column("name", sa.String(_NAME), primary_key=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_table(
        "curator_tokens",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("person", sa.String(_NAME), nullable=False, index=True),
        sa.Column("hash", sa.String(300), nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_table(
        "curator_datasets",
        sa.Column("name", sa.String(_NAME), primary_key=True),
        sa.Column("owner", sa.String(_NAME), nullable=False),
        sa.Column("sources", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("budget", sa.Text, nullable=False),
        sa.Column("family", sa.String(_NAME), nullable=False, index=True),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_table(
        "curator_marks",
        sa.Column("family", sa.String(_NAME), primary_key=True),
        sa.Column("mark", sa.String(64), primary_key=True, index=True),
    )
    op.create_table(
        "curator_grants",
        sa.Column("person", sa.String(_NAME), primary_key=True),
        sa.Column("dataset", sa.String(_NAME), primary_key=True),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("terms", sa.Text, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_table(
        "curator_requests",
        sa.Column("person", sa.String(_NAME), primary_key=True),
        sa.Column("key", sa.String(_NAME), primary_key=True),
        sa.Column("body", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("response", sa.LargeBinary),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_table(
        "curator_releases",
        sa.Column("dataset", sa.String(_NAME), primary_key=True),
        sa.Column("entry", sa.Integer, primary_key=True),
        sa.Column("person", sa.String(_NAME), nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
    )
