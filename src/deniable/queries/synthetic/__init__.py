"""Synthetic tables bought through a session: one ledger entry, then rows, tables and answers for free.

    synthesis_request          the plan: how columns are binned, which marginals are measured
    impossible_combinations    rules about combinations that no row can have, as a caller writes them
    marginal_selection         tables that the data choose, within the same entry
    synthesis_measurement      the price, the charge, and the noisy counts as one ledger entry
    synthetic_table            rows, tables and answers from the fitted distribution, with their expected error
    synthetic_records          a synthetic table as plain values, for a ledger, a client, or another process
    fitting_process            fitting and drawing in a process of its own, with caps on time and memory

`Session.synthesize` passes a request through synthesis_request -> synthesis_measurement, which releases noisy marginals
like any other question, -> synthetic_table, which fits a distribution to them. The fit itself is in `deniable.synth`,
which knows no session and no budget.
"""
