"""Migrations of the tables of ledgers and of the server in shared databases.

Only this module calls Alembic. Ledgers and server have separate migrations, and each records its revision in a separate
table, so that both can be in one database or in two. The migrations of ledgers are in `versions`, the migrations of the
server in `deniable.server.migrations`; Alembic runs `env` for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deniable.errors import require

require("postgres", "alembic", "sqlalchemy")

if TYPE_CHECKING:
    from sqlalchemy import Connection

HOME: Final = "deniable.ledger:migrations"
"""Where Alembic finds `env.py`."""

LEDGERS: Final = "deniable.ledger:migrations/versions"
"""The migrations of ledgers."""


def upgrade(connection: Connection, *, steps: str, version_table: str) -> None:
    """Run all migrations in `steps` that were not run yet, in the transaction of this connection."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", HOME)
    config.set_main_option("version_locations", steps)
    config.set_main_option("path_separator", "newline")
    config.attributes.update(connection=connection, version_table=version_table)
    command.upgrade(config, "head")


def revision(connection: Connection, version_table: str) -> str | None:
    """The newest migration that was run; None before the first."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table(version_table):
        return None
    found: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {version_table}").scalar()
    return found
