"""How the tables of the catalogue came about, step by step; `deniable.ledger.migrations` runs them.

A file for each step, in the order of their numbers; a step that has been released is never edited. The tables as they
are now are in `server.catalogue.catalogue_tables`.
"""
