"""Datasets: open sessions, and the budget that new data spends from.

    open_datasets         a session for each dataset, with its ledger, and its engine in a separate process
    source_folders        the folders from which owners may register files
    registration_steps    a registration in two places, the ledger and the catalogue
    data_marks, cell_forms, row_profiles, exact_copies      recognise people and rows that are known already
    dataset_versions      new files of the same people, under the same name, with the same budget
    kinship               decides whose budget new data spends from
    ledger_witness, forgotten_spending      detect a ledger or a catalogue that was replaced by an older copy
    standing_answers      standing questions, which an owner answers for each day
    dummy_rows, failure_log, synthetic_downloads      dummy rows, failed runs, synthetic tables

A new file gets marks, is compared with all families, gets a budget, and is opened. Questions then go to its session.
"""
