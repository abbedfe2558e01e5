"""The migrations of the catalogue's tables; `deniable.ledger.migrations` runs them.

There is a file for each step, in the order of their numbers; a released step is never edited. The present form of the
tables is in `server.catalogue.catalogue_tables`.
"""
