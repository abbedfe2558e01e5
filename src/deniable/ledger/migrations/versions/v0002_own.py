"""What a ledger keeps beside its chain: its home and its secret."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns `home` and `secret`, both NULL. A ledger fills them when it is next opened."""
    for name in ("home", "secret"):
        op.add_column("deniable_ledgers", sa.Column(name, sa.Text, nullable=True))
