"""The migrations of shared ledgers, in the order of their numbers.

A released migration is never edited: databases record the number of the last one that was run.
`deniable.ledger.migrations` runs them.
"""
