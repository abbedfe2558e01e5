"""Datasets: open sessions, and whose budget new data spends from.

    open_datasets        a session for each dataset, its engine in a process of its own, its ledger
    source_folders       the folders data may come from; `registration_steps` a registration in ledger and catalogue
    data_marks, cell_forms, kinship             whether people are known already, and whose budget pays then
    ledger_witness, forgotten_spending          an older ledger put back, or spending the catalogue forgot, is seen
    dummy_rows, failure_log, synthetic_downloads      dummy rows, runs that failed, synthetic tables

A new file is marked, compared with all families, given a budget, and opened; a question then goes to its session.
"""
