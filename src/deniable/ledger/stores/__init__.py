"""Where a ledger is kept: an append-only chain of entries behind one interface.

    store              Store and Transaction: what every store can do, and what a transaction has seen
    sqlite_store       a file, or memory for as long as the process lives
    database_store     Postgres or SQLite by a URL, shared by many processes
    entry_schema       the columns and indices of the table of entries, once for all stores
    entry_rows         entries as rows and back; a row whose hash is wrong never becomes an entry
    ledger_places      the one name and place of a ledger file
    file_creation      makes the file of a ledger atomically, and recognises files that were lost or truncated
    store_opening      the store that a place names, and the error if another ledger is there
    home_and_secret    where a ledger is at home, and the secret that it keeps beside its chain

`Ledger` (ledger/ledger.py) reserves in one transaction, and seals in another; a crash in between leaves the cost spent.
"""
