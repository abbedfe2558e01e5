"""An index of the access log by person."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the index."""
    op.create_index("ix_curator_log_person", "curator_log", ["person"])
