"""The catalogue: everything the server remembers besides the ledgers, in one database.

    catalogue           datasets, grants, releases; the other tables through it
    catalogue_tables    the tables as they are now, and what guards against a second budget for the same people
    people              people, tokens and invitations; `access_log` the log of who was let in
    kept_requests       requests with an Idempotency-Key, so that a repeated one gets the same answer
    fast_statements     the few statements that are run for every question, past SQLAlchemy

`server.migrations` makes and changes the tables. No data of a dataset and no answer's exact value is ever in it.
"""
