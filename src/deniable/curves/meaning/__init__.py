"""The meaning of a curve: every number that it yields, certified and rounded to the safe side.

    curve_readings     δ(ε), ε(δ), Rényi and zCDP of a whole curve, from the laws of its factors
    attacker           the trade-off function β(α) and the equal error rate of the best attacker
    gaussian_dp        the smallest μ of Gaussian DP; `divergences` Rényi of any order, Hellinger, χ²
    loss_moments, covering_moments, loss_tail, loss_distribution      the privacy loss as a random variable
    blackwell_order    which of two curves leaks more at every ε
    one_direction      one direction of an asymmetric curve; `central_limit` an approximation, labelled as such
    weakness_advice    warnings for an ε or a δ that protects little

`Curve` (curves/curve.py) has a short method for each, which calls this room.
"""
