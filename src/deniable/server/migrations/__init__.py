"""How the tables of the catalogue came about, step by step; `deniable.ledger.migrations` runs them."""
