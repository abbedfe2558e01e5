"""Answers: `release` adds noise to exact statistics; everything after it works on public numbers.

    release             adds noise to the exact statistics of a question; start reading here
    timed_runs          a run on an engine whose status and duration reveal nothing
    answer              a small table of noisy numbers with intervals and a `receipt`; `answer_display` and
                        `answer_files` print and save it; `privacy_statement` writes the text for a publication
    window_intervals    the noise intervals of windows and of aggregates over noisy rows
    group_differences   two averages compared, with an interval for noise and sampling together
    explanation         a question step by step, with the stability of each step and the sensitivity of each number
    plan_cache          the plans of a session's questions, so that SQL is read once
    single_answers      how one question is answered, and how an answer is refined
    rollups             free answers that are computed from earlier ones
    batch_answers, batch_price, batch_shares, grouping_sets      several questions asked together
    joint_tables, shared_measurements, joint_entry               tables that share draws of noise or a ledger entry
    remaining_budget    the unspent part of a budget
    machine_records         what a server sends so that a client can build the same objects

A question arrives as a `NoisePlan` together with the engine's integers. `release` turns both into a `Released`, which
the session seals in the ledger, and `answer` computes the columns and intervals of an `Answer` from it.
"""
