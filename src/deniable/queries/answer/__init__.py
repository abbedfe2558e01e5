"""Answers: exact numbers meet noise once, in `release`, and what comes out may be seen by anyone.

    release             the only place where exact statistics and noise meet
    answer              a small table of noisy numbers with intervals and receipt; `answer_display` and
                        `answer_files` show and save it; `privacy_statement` says what to write about it
    explanation         a question taken apart: every step with its stability, every number with its sensitivity
    rollups             answers that follow from earlier ones for free
    batch_answers, batch_price, batch_shares, grouping_sets      several questions asked together
    joint_tables, shared_measurements, joint_entry               tables that share draws of noise or a ledger entry
    remaining_budget    what is left of a budget

A `NoisePlan` and the engine's integers come in; an `Answer` goes out, and the session seals it in the ledger.
"""
