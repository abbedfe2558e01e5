# %% [markdown]
# # Approximate Differential Privacy
#
# The figures of the chapter "Approximate Differential Privacy" of Joseph P. Near and Chiké Abuah, *Programming
# Differential Privacy*, 2021, redrawn. The page *course/programming* of the documentation walks through all of its
# cells.

# %%
import math

import numpy as np

from deniable import attacks, curves, mechanisms, plots
from deniable.curves import textbook
from deniable.plots.figure_spec import Axis, Bars, Figure, Line, Panel

# %% [markdown]
# ## "The Gaussian Mechanism", cell 3: draws of both mechanisms
#
# Laplace noise of scale 1 and Gaussian noise for (1, 10e−5)-DP. The chapter takes σ = √(2 ln(1.25/δ)) = 4.34, which
# is proved for ε < 1 only; the exact σ at ε = 1 is smaller. Both are drawn from exact noise.

# %%
count, delta = 100_000, 10e-5
printed = math.sqrt(2 * math.log(1.25 / delta))
drawn = {
    "Laplace": mechanisms.Laplace(sensitivity=1.0, scale=1.0, dimension=count),
    "Gaussian, σ as printed": mechanisms.Gaussian(sensitivity=1.0, sigma=printed, dimension=count),
}
edges = np.linspace(-16, 16, 65)
marks = []
for colour, (name, mechanism) in enumerate(drawn.items()):
    draws = mechanism.release(np.zeros(count))
    heights, _ = np.histogram(draws, bins=edges)
    marks.append(Bars(tuple(edges), tuple(heights / count), name, colour))
    print(name, "standard deviation", np.std(draws))
print("exact σ", mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=delta).sigma)
Figure(
    "100,000 draws of each",
    (Panel(Axis("noise", -16, 16), Axis("share of draws", 0, 0.25), tuple(marks), labels="inside"),),
)

# %% [markdown]
# ## "L1 and L2 Sensitivities": k outputs of sensitivity 1

# %%
sizes = [1, 10, 100, 1000]
Figure(
    "Noise for k outputs of sensitivity 1, ε = 1, δ = 10⁻⁵",
    (
        Panel(
            Axis("outputs k", 1, 1000, "log"),
            Axis("standard deviation of each", 1, 3000, "log"),
            (
                Line("Laplace, by the L1 sensitivity k", tuple(sizes), tuple(math.sqrt(2) * k for k in sizes), 0),
                Line(
                    "Gaussian, by the L2 sensitivity √k",
                    tuple(sizes),
                    tuple(textbook.gaussian_sigma(sensitivity=1, epsilon=1, delta=1e-5) * math.sqrt(k) for k in sizes),
                    1,
                ),
            ),
        ),
    ),
)

# %% [markdown]
# ## "The Catastrophe Mechanism": what δ allows
#
# With probability δ it releases everything: its curve never falls below δ. The Gaussian mechanism's goes on falling.

# %%
quiet = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
catastrophe = mechanisms.cautionary.Catastrophe(quiet, statistic=sum, delta=1e-5)
gaussian = mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-5)
plots.profile({"catastrophe": catastrophe.curve, "Gaussian": gaussian.curve})

# %% [markdown]
# ## "Advanced Composition", cell 8: the averaging attack
#
# 500 answers of Laplace(1) noise, averaged, are off by about 0.06.

# %%
print(np.mean([mechanisms.Laplace(sensitivity=1.0, epsilon=1.0).release(10.0) for _ in range(500)]))
print(
    "standard deviation of the average",
    attacks.Averaging(answers=500).deviation(mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)),
)

# %% [markdown]
# ## Cell 13: sequential and advanced composition, k < 100
#
# The chapter's formula 2ε√(2k log(1/δ)) crosses kε at k = 73, and is proved up to there only.

# %%
print("crossing at k =", textbook.crossover(delta=10e-5))
plots.growth(curves.laplace(scale=1), delta=10e-5, most=100, name="Laplace noise")

# %% [markdown]
# ## Cell 14: the same, k < 10,000
#
# Beyond k = 73 the chapter's line (858 at the end) is below what Laplace noise really costs.

# %%
plots.growth(curves.laplace(scale=1), delta=10e-5, most=10_000, name="Laplace noise")
