"""How the tables of shared databases came about, step by step: those of ledgers, and the server's own.

This is the one place that speaks to Alembic. Each family of tables has steps of its own and notes in a table of its own
how far it came, so that both may live in one database, or apart.
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
"""The steps of ledgers."""


def upgrade(connection: Connection, *, steps: str, version_table: str) -> None:
    """Take every step that was not taken yet, in the transaction of this connection."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", HOME)
    config.set_main_option("version_locations", steps)
    config.set_main_option("path_separator", "newline")
    config.attributes.update(connection=connection, version_table=version_table)
    command.upgrade(config, "head")


def revision(connection: Connection, version_table: str) -> str | None:
    """The newest step that was taken; None where none was."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table(version_table):
        return None
    found: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {version_table}").scalar()
    return found
