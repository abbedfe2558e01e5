"""Synthetic tables bought through a session: one ledger entry, then rows, tables and answers for free.

    synthesis_request          which counts are measured for a synthetic table, and what is read off them
    impossible_combinations    combinations that cannot be, as an owner or analyst writes them
    synthesis_measurement      priced from public facts, charged before data is read, run and sealed together
    synthetic_table            rows, tables and answers read off the fitted distribution, with their error
    synthetic_records          the same as plain values, for a ledger, a client, or another process
    fitting_process            fitting and drawing in a process of its own, with a cap on time and memory

The distribution and its fit are in `deniable.synth`, which knows no session and no budget.
"""
