"""How the tables of shared ledgers came about, step by step. Alembic runs them for `deniable.ledger.database`."""
