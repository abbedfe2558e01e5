"""Several tables published together: one fit, one rounding, one statement.

    published_tables    publish(): tables, files and the statement that belongs to them
    consistent_fit      several answers fitted to each other, not negative, rounded, with intervals that hold
    fitted_noise        which draws of noise are in a fitted number, and how much each adds

Post-processing of answers that were paid for. The least-squares fit itself is in `deniable.synth`.
"""
