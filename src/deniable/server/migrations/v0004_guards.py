"""The server's identity, the newest entry of each ledger, sketches of ids, and overlaps between two owners' data."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_NAME = 200

RELEASED = """
    INSERT INTO curator_heads (family, serial, number, hash, signed)
    SELECT curator_datasets.family, '', MAX(curator_releases.entry), '', 0 FROM curator_releases
    JOIN curator_datasets ON curator_datasets.name = curator_releases.dataset GROUP BY curator_datasets.family"""
"""The newest entry that each ledger must have: its newest release. The hash of the entry is not known."""


def upgrade() -> None:
    """Make the tables. A ledger must have the entry of each release in the catalogue."""
    op.create_table(
        "curator_server",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "curator_heads",
        sa.Column("family", sa.String(_NAME), primary_key=True),
        sa.Column("serial", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("signed", sa.Integer, nullable=False),
    )
    op.create_table(
        "curator_sketches",
        sa.Column("dataset", sa.String(_NAME), primary_key=True),
        sa.Column("source", sa.String(_NAME), primary_key=True),
        sa.Column("marks", sa.Text, nullable=False),
    )
    op.create_table(
        "curator_overlaps",
        sa.Column("dataset", sa.String(_NAME), primary_key=True),
        sa.Column("other", sa.String(_NAME), primary_key=True),
        sa.Column("made", sa.Float, nullable=False),
    )
    op.execute(RELEASED)
