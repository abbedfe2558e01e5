"""Invitations, the access log, and an index of releases by analyst."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NAME = 200


def upgrade() -> None:
    """Make the tables. The log begins with this migration; earlier events were not recorded."""
    op.create_table(
        "curator_log",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.String(40), nullable=False),
        sa.Column("event", sa.String(20), nullable=False),
        sa.Column("person", sa.String(_NAME), nullable=False),
        sa.Column("by", sa.String(_NAME), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("before", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "curator_invitations",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("person", sa.String(_NAME), nullable=False, index=True),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.create_index("ix_curator_releases_own", "curator_releases", ["dataset", "person", "entry"])
