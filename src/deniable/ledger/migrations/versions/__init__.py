"""The steps that made the tables of shared ledgers, in the order of their numbers.

A step that has been released is never edited: databases in use remember by its number how far they came.
`deniable.ledger.migrations` runs the steps.
"""
