"""Ledgers, names and entries."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _text(name: str, *, may_lack: bool = False) -> sa.Column[str]:
    # The collation "C" compares times and names byte by byte, independently of the database's locale.
    kind = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return sa.Column(name, kind, nullable=may_lack)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "deniable_ledgers",
        sa.Column("id", sa.Integer, primary_key=True),
        _text("serial"),
        _text("family"),
        _text("heading"),
        sa.Column("number", sa.BigInteger, nullable=False),
        _text("hash"),
        sa.UniqueConstraint("serial"),
        sa.UniqueConstraint("family"),
    )
    op.create_table(
        "deniable_names",
        _text("name"),
        sa.Column("ledger", sa.Integer, sa.ForeignKey("deniable_ledgers.id"), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "deniable_entries",
        sa.Column("ledger", sa.Integer, sa.ForeignKey("deniable_ledgers.id"), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        *(_text(name) for name in ("time", "state", "question", "units", "delta_units", "description")),
        _text("key", may_lack=True),
        sa.Column("closes", sa.BigInteger),
        sa.Column("answer", sa.LargeBinary),
        _text("code", may_lack=True),
        *(_text(name) for name in ("spent_units", "spent_delta_units", "previous", "hash")),
        *(_text(name, may_lack=True) for name in ("payer", "account", "more")),
        sa.PrimaryKeyConstraint("ledger", "number"),
    )
    _index("closed_once", ["ledger", "closes"], "closes IS NOT NULL", unique=True)
    _index("keyed_once", ["ledger", "key"], "key IS NOT NULL AND state = 'RESERVED'", unique=True)
    _index("sealed", ["ledger", "question", "number"], "state = 'SEALED'")
    _index("paid", ["ledger", "payer", "time", "number"], "payer IS NOT NULL AND state = 'RESERVED'")
    _index("about", ["ledger", "account", "number"], "account IS NOT NULL")
    _index("linked", ["ledger", "number"], "state = 'LINKED'")
    _index("by_time", ["ledger", "time", "number"], None)
    _forbid_edits()


def _index(name: str, columns: list[str], where: str | None, *, unique: bool = False) -> None:
    rule: dict[str, Any] = {} if where is None else {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)}
    op.create_index(f"deniable_{name}", "deniable_entries", columns, unique=unique, **rule)


def _forbid_edits() -> None:
    """Forbid edits, against mistakes in a database shell. The hash chain detects forgery."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER deniable_never_{verb.lower()} BEFORE {verb} ON deniable_entries "
                "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION deniable_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER deniable_never_edit BEFORE UPDATE OR DELETE ON deniable_entries "
        "FOR EACH ROW EXECUTE FUNCTION deniable_append_only()"
    )
    op.execute(
        "CREATE TRIGGER deniable_never_truncate BEFORE TRUNCATE ON deniable_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION deniable_append_only()"
    )
