# %% [markdown]
# # Differential Privacy for Machine Learning
#
# The figures of the course *Differential Privacy for Machine Learning*, Master IASD, Université PSL, February 2024,
# each redrawn in a few lines. The page *course/psl* of the documentation walks through all of its definitions and
# theorems.

# %%
import math

import numpy as np

from deniable import curves, mechanisms, plots

# %% [markdown]
# ## Section 2, "In Picture"
#
# ε-DP says that the log-ratio of the two output laws never leaves the band ±ε. For Laplace noise it touches the band
# in both tails: "the tail behavior is important".

# %%
plots.laws(mechanisms.Laplace(sensitivity=1.0, epsilon=0.5), 0.0, 1.0)

# %% [markdown]
# ## Section 2, "Protection Against Statistical Disclosure": error rates of a test
#
# False negatives β against false positives α. The dot is the equal error rate γ. "Also frequently represented as"
# hits 1 − β against α, the ROC curve.

# %%
attacker = {"N(0, 1) or N(1, 1)": curves.gaussian(mu=1)}
print("equal error rate", attacker["N(0, 1) or N(1, 1)"].equal_error_rate())
plots.tradeoff(attacker)

# %%
plots.tradeoff(attacker, form="roc")

# %% [markdown]
# ## Section 2, "Property": the equal error rate of every test is at least 1/(1 + e^ε)

# %%
for epsilon in (0.5, 1, 2):
    drawn = curves.pure(epsilon=epsilon).equal_error_rate()
    print(f"ε = {epsilon}: γ ≥ {1 / (1 + math.exp(epsilon)):.4f}; drawn {drawn:.4f}")
plots.tradeoff({f"ε = {epsilon}": curves.pure(epsilon=epsilon) for epsilon in (0.5, 1, 2)})

# %% [markdown]
# ## Section 3, "Mechanism for the Median": p(s) for n = 25 binary observations
#
# The mechanism of the slide, p(s) = 1 / (1 + exp(−(2s − n)ε/2)), and the better one of the slide on |𝒴| = 2, which
# needs no factor 2 in its exponent. No ε-DP mechanism gets above the dashed ceiling.

# %%
n, epsilon = 25, 0.5
lecture = mechanisms.BinaryMedian(epsilon=epsilon)
ones = [1] * 15 + [0] * 10
print(
    "p(15) =", float(lecture.probabilities(ones)[1]), 1 / (1 + math.exp(-(2 * 15 - n) * epsilon / 2)), "by the formula"
)
better = mechanisms.BinaryInverseSensitivity.median(epsilon=epsilon)
plots.chances({"exponential mechanism": lecture, "inverse sensitivity mechanism": better}, rows=n)

# %% [markdown]
# ## Section 4, "Laplace mechanism": the density of the noise

# %%
plots.density(*(mechanisms.Laplace(sensitivity=1.0, scale=scale) for scale in (0.5, 1.0, 2.0)), value=0.0)

# %% [markdown]
# ## Section 5, "Motivations": the log-ratio of two Gaussians is a line, without bounds

# %%
plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0)

# %% [markdown]
# ## Section 5, "Alternative Expression of the Privacy Curve": the privacy loss
#
# For the Gaussian mechanism the loss is itself Gaussian: N(μ²/2, μ²), here μ = 1.

# %%
plots.loss(curves.gaussian(mu=1), delta=0.05)

# %% [markdown]
# ## Section 5, privacy curve of the Gaussian mechanism (Balle & Wang 2018, Theorem 8)

# %%
plots.profile({f"σ = {sigma}": curves.gaussian(sigma=sigma) for sigma in (1, 2, 4)}, delta=1e-5)

# %% [markdown]
# ## Section 5, privacy curve of the Laplace mechanism (Balle et al. 2018, Theorem 3)
#
# δ(ε) = 1 − exp((ε − Δ/b)/2) ends at ε = Δ/b: there the mechanism is ε-DP.

# %%
grid = np.array([0.0, 0.25, 0.5, 0.75])
print(curves.laplace(scale=1).delta(epsilon=grid), 1 - np.exp((grid - 1) / 2))
plots.profile({f"b = {scale}": curves.laplace(scale=scale) for scale in (0.5, 1, 2)})

# %% [markdown]
# ## Section 5, "Gaussian Example": the Neyman–Pearson test
#
# M(x) ~ N(0, 1), M(x′) ~ N(μ, 1): the best test says x′ when Y > s. At α = 5 %, s = 1.645 and β = Φ(s − μ).

# %%
print("β =", curves.gaussian(mu=1).beta(alpha=0.05))
plots.laws(mechanisms.Gaussian(sensitivity=1.0, sigma=1.0), 0.0, 1.0, false_alarms=0.05)

# %% [markdown]
# ## All of it, with sliders
#
# Trade-off, privacy curve, laws and odds of a mechanism of your choice. A picture is drawn anew when a slider is let
# go.

# %%
plots.explore()
