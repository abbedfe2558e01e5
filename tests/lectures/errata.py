"""Where the pages tell what the five courses print wrong, or without a condition: 46 places, and none less.

Each is told in boxes (`!!! warning` or `!!! note`) of its course's page, named by their titles, with lines that run.
"""

from __future__ import annotations

ERRATA: dict[str, tuple[tuple[str, ...], ...]] = {
    "psl.md": (
        ("Erratum: the estimator",),
        ("Erratum: Zᵢ, and a condition",),
        ("A test with α = β may have to be randomized",),
        ("Parallel composition needs a condition",),
        ("Erratum: the program divides by zero, and loses records",),
        ("Erratum: Δ(x, k) = kΔ/n at extreme data only",),
        ("Where the 68 comes from",),
        ("Erratum: 1/2-optimal",),
        ("The candidates are public",),
        ("ε < 1 is needed",),
        ("When it helps",),
        ("Which way the scaling goes",),
        ("Measurable sets, almost every y", "Two conditions"),
        ("Negative ε",),
        ("What the proposition needs",),
        ("At least four times",),
        ("A sample of fixed size",),
    ),
    "ucsb.md": (
        ("Erratum: the bound on posteriors",),
        ("Two slips in the proof",),
        ("A gap in a proof",),
        ("Erratum: k ≪ n is not enough for the Laplace mechanism",),
        ("Erratum: two relations on two slides",),
    ),
    "notes.md": (
        ("Erratum: the exponent",),
        ("Erratum: a 2 is lost under the root",),
        ("Erratum: the sign and the square",),
        ("Erratum: the steps overspend",),
        ("Erratum: the scale gains √k, the variance k",),
        ("Erratum: a logarithm is lost",),
        ("Erratum: the distance", "Erratum: the logarithm"),
        ("Enough, but not necessary",),
    ),
    "f-dp.md": (
        ("Erratum: the last term", "Erratum: the four conditions"),
        ("Erratum: the products converge, not the factors",),
        ("Erratum: the class must allow P to have mass that Q lacks",),
        ("Erratum: not every infinitely divisible P qualifies",),
        ("A condition: the statistic must be bounded", "Pointwise, or the hull"),
        ("A pitfall: directions may flip between releases",),
    ),
    "programming.md": (
        ("Erratum: sets, not single answers",),
        ("Erratum: δ is not the probability that the bound ε fails", "Erratum: no finite c exists"),
        ("Erratum: 10e-5 is not 10⁻⁵",),
        ("Erratum: the worked example is false", "Erratum: the second plot"),
        ("Erratum: the formula has a range",),
        ("Erratum: a sum of absolute values, and at most the sum of sensitivities",),
        ("A word",),
        ("Erratum: noise made of floats",),
        ("Two repairs of the cell",),
        ("Costs of the worst mechanism",),
    ),
}
