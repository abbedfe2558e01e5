"""Noise intervals: confidence intervals for the number that an answer would have without noise.

They cover the error of the noise only, not the error of a sample from a population.

    draw_laws              the laws of one draw of noise, and sums of continuous noise
    noise_intervals        sums of noise on integers, and a number with its interval (`NoisyEstimate`)
    threshold_intervals    intervals of a count that is published because it reached a threshold
    ratio_intervals        intervals of quotients with a noisy denominator (Fieller's theorem)

All of this is post-processing: it reads no data and costs nothing. `queries.plan` uses it to state the expected width
of an interval before a question is paid for, and `queries.answer` to put an interval beside each number.
"""
