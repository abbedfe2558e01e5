"""Noise intervals: how far a noisy number is from what it would have been without noise.

    noise_intervals        the shapes of noise, their sums, and a number with its interval (`NoisyEstimate`)
    threshold_intervals    intervals of a count that is shown because it reached a threshold
    ratio_intervals        intervals of quotients whose denominator is noisy too (Fieller's theorem)

Post-processing: nothing here reads data or spends anything. `queries.plan` promises the width of an interval before a
question is paid for, and `queries.answer` puts the interval beside the number.
"""
