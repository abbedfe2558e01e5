"""Publications: several tables that add up, with one fit, one rounding and one statement.

    published_tables    publish(): the tables, their files, and the statement about them
    consistent_fit      answers fitted to each other, made non-negative and rounded, with valid intervals
    fitted_noise        the draws of noise in a fitted number, and the share of each

`publish` takes paid answers of a session, aligns their keys and fits them (consistent_fit), computes the noise of the
fitted numbers (fitted_noise), and returns a `Publication`. All of it is post-processing and free. The least-squares fit
itself is in `deniable.synth`.
"""
