"""The catalogue: everything that the server stores besides the ledgers, in one database.

    catalogue           datasets, grants and releases; gives access to the other tables
    catalogue_tables    records that prevent a second budget for the same people
    people              people, tokens and invitations
    access_log          a hash chain of everything that changes who may sign in
    kept_requests       responses to requests with an Idempotency-Key, for repetitions
    driver_statements     runs the few statements of every question without SQLAlchemy's overhead

`server.migrations` creates and changes the tables. The catalogue never holds data of a dataset or exact values.
"""
