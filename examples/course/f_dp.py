# %% [markdown]
# # f-DP, Poisson and infinitely divisible privacy
#
# The figures of the slides on f-differential privacy, Gaussian differential privacy and infinitely divisible privacy,
# redrawn. The page *course/f-dp* of the documentation walks through all of them.

# %%
import numpy as np

from deniable import curves, mechanisms, plots

# %% [markdown]
# ## "Blackwell ordering and ROC curves II"
#
# Trade-off functions are convex, continuous, non-increasing and below 1 − α. The lower one belongs to the pair that
# is easier to tell apart. The diagonal is Id: complete indistinguishability.

# %%
plots.tradeoff({f"G, μ = {mu}": curves.gaussian(mu=mu) for mu in (0.5, 1, 2)})

# %% [markdown]
# ## "Connections with the traditional definition": f for (ε, δ)
#
# f(α) = max{0, 1 − δ − e^ε α, e^−ε(1 − δ − α)}. A mechanism is (ε, δ)-DP exactly if it is f-DP.

# %%
gaussian = curves.gaussian(mu=1)
boxes = {
    f"ε = {epsilon}, δ = {gaussian.delta(epsilon=epsilon):.3f}": curves.approximate(
        epsilon=epsilon, delta=gaussian.delta(epsilon=epsilon)
    )
    for epsilon in (0.5, 1.5)
}
plots.tradeoff({"G, μ = 1": gaussian, **boxes})

# %% [markdown]
# ## "A central limit theorem": 1, 10 and 100 releases on their way to a Gaussian
#
# Randomized response with ε = 1/√k each.

# %%
steps = {f"k = {k}": curves.randomized_response(epsilon=1 / k**0.5) ** k for k in (1, 10, 100)}
plots.tradeoff({**steps, "Gaussian, μ = 1": curves.gaussian(mu=1)})

# %% [markdown]
# ## "What about Poisson differential privacy": Bernoulli trials on their way to Poisson
#
# T(B(2/n), B(5/n)) composed n times tends to T(P(2), P(5)), which is not Gaussian. Drawn in the order T(P, Q) of the
# slide.

# %%
trials = {f"n = {n}": curves.from_pmf([1 - 2 / n, 2 / n], [1 - 5 / n, 5 / n], tied=True) ** n for n in (10, 100)}
plots.tradeoff({**trials, "Poisson 2 and 5": curves.poisson(low=2, high=5, tied=True)}, direction="forward")

# %% [markdown]
# ## "Combining Poisson and Gaussian baselines": an infinitely divisible loss
#
# A Gaussian part and jumps: the loss is a mixture of shifted Gaussians.

# %%
plots.loss(curves.infinitely_divisible(variance=0.05, jumps={float(np.log(2.5)): 2.0}))

# %% [markdown]
# ## "An Optimal Transport-based mechanism": Poisson answers whose rates are a geometric sequence

# %%
poisson = mechanisms.PoissonMechanism.transport(low=2, high=5, sensitivity=2, top=6)
print("rates", *(round(float(rate), 3) for rate in poisson.rates))
plots.laws(poisson, 6, 4)

# %% [markdown]
# ## "A sneak peak into computation II": the Gaussian shift family, seen whole and rounded down
#
# T uses all of a Gaussian answer, the other line only which [n, n + 1) it falls into. The vertices of the second lie
# on the first. In the order T(P, Q) of the slide.

# %%
seen = {}
for mu in (0.5, 1.0, 2.0):
    seen[f"μ = {mu}"] = curves.gaussian(mu=mu)
    seen[f"μ = {mu}, rounded"] = curves.quantized(curves.gaussian(mu=mu), width=1)
print("β at α = 0.05:", *(seen[f"μ = {mu}, rounded"].forward.beta_bounds(alpha=0.05)[0] for mu in (0.5, 1.0, 2.0)))
plots.tradeoff(seen, direction="forward")
