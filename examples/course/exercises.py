# %% [markdown]
# # Exercises
#
# For the five lectures whose figures the notebooks beside this one redraw. Every exercise can be answered in a few
# lines. The solutions are in `solutions.ipynb`, folded; both are made from one file.

# %%
import math

import numpy as np

from deniable import Sensitivity, Unit, attacks, audit, curves, local, mechanisms, plots
from deniable.curves import textbook
from deniable.mechanisms import limits, linear, small

# %% [markdown]
# ## Differential Privacy for Machine Learning (Université PSL)
#
# ### 1. Randomized response
#
# Two coins: heads, tell the truth; tails, answer by the second coin. How private is one answer? How many people more
# than a plain survey does it take for the same variance, when 30 % would say yes?

# %% [markdown] solution
# P(1 | 1) = 3/4 and P(1 | 0) = 1/4, hence ε = log 3. The variance of the estimator is [1/4 + θ/2][3/4 − θ/2]/(n/4),
# that of the plain one θ(1 − θ)/n.

# %% solution
survey = local.TwoCoinSurvey(truth=0.5, yes=0.5)
print("ε =", survey.curve.epsilon(delta=0))
theta, n = 0.3, 1000
print("ratio", survey.population_variance(share=theta, people=n) / (theta * (1 - theta) / n))
assert math.isclose(survey.curve.epsilon(delta=0), math.log(3), rel_tol=1e-9)

# %% [markdown]
# ### 2. The median of bits
#
# From how many people on does an ε-DP median of bits cost nothing, statistically, at ε = 0.1?

# %% [markdown] solution
# The mechanism is right with 95 % where |s − n/2| ≥ 3/ε; the sample itself is right with 95 % only where it is ≥
# 1.358 √n. So ε ≥ 2.21/√n is free, n ≥ 4.88/ε².

# %% solution
needed = math.ceil((3 / math.sqrt(math.log(2 / 0.05) / 2) / 0.1) ** 2)
print(needed, limits.free_epsilon(records=needed, confidence=0.95))

# %% [markdown]
# ### 3. The Gaussian mechanism with a constant of 2.65
#
# Show that σ = √(2 log(2.65/δ)) Δ/ε is enough for ε < 1; and look how small the constant could be at δ = 10⁻⁵.

# %% [markdown] solution
# The privacy loss is N(μ²/2, μ²) with μ = Δ/σ. P(loss > ε) ≤ δ is enough, and a Gaussian tail beyond t is at most
# exp(−t²/2)/2 for t ≥ 0. Here t = ε/μ − μ/2, t² ≥ ε²/μ² − ε = 2 log(2.65/δ) − ε, so that the tail is at most (δ/2.65)
# e^{ε/2}/2 ≤ δ. For the smallest constant, solve δ(ε) = δ exactly.

# %% solution
delta = 1e-5
for epsilon in (0.1, 0.5, 0.9):
    printed = curves.gaussian(sigma=math.sqrt(2 * math.log(2.65 / delta)) / epsilon)
    assert printed.delta(epsilon=epsilon) <= delta
    exact = textbook.gaussian_sigma(sensitivity=1, epsilon=epsilon, delta=delta)
    print(f"ε = {epsilon}: smallest constant {delta * math.exp((exact * epsilon) ** 2 / 2):.4f}")

# %% [markdown]
# ### 4. Is this histogram private?
#
# The course adds Laplace(2/ε) to every bin. A friend uses Laplace(1/ε), with ε = 1. Neighbours differ by one replaced
# value. Refute the friend's claim from samples alone.

# %% [markdown] solution
# Replacing a value moves two bins by 1 each: the ℓ1 sensitivity is 2, and ε doubles. `audit.measure` finds an event
# that shows it. The answers are rounded here: without that, the last bits of floating-point noise give away even
# more, and the audit finds them.

# %% solution
generator = np.random.default_rng(4)


def friend(values: list[float]) -> np.ndarray:
    counts, _ = np.histogram(values, bins=2, range=(0, 1))
    return np.round(counts + generator.laplace(scale=1.0, size=2), 2)


finding = audit.measure(
    friend, neighbours=([0.1, 0.1, 0.9], [0.1, 0.9, 0.9]), claim=curves.pure(epsilon=1), trials=20_000, confidence=0.999
)
print(finding)
assert finding.refuted

# %% [markdown]
# ## Differential Privacy Basics (UC Santa Barbara)
#
# ### 5. What does Alice have?
#
# Take the two tables of the slide. Alice is 28, lives in 13012 and goes to both hospitals.

# %% solution
alice = (attacks.HOSPITAL_A, {"zip": "130**", "age": "<30"}), (attacks.HOSPITAL_B, {"zip": "130**", "age": "<35"})
print(attacks.candidates(*alice, secret="condition"))

# %% [markdown]
# ### 6. Four steps for many linear queries
#
# k = 100 linear queries at ε = 1, every error below 0.05 with probability 95 %: budget → noise → error → number of
# people, by Laplace noise and by randomized response. Which needs fewer people, and from which k on?

# %% [markdown] solution
# Laplace: each answer has noise k/(nε), and the largest of k is below (k/nε) log(k/β). Randomized response is asked
# once, and all queries are computed from the same answers: its error grows with √log k only.

# %% solution
print(linear.sample_size(queries=100, error=0.05, epsilon=1.0, beta=0.05))
ways = [linear.sample_size(queries=k, error=0.05, epsilon=1.0, beta=0.05) for k in range(1, 101)]
print("from k =", next(k for k, way in enumerate(ways, 1) if way["randomized_response"] < way["laplace"]), "on")

# %% [markdown]
# ### 7. What is the sensitivity?
#
# The lecture's four examples: a linear query (1/n) Σ wᵢxᵢ with weights in [0, 1], n public, one bit replaced; grades
# in a class; people by zip code, race and gender; patients in the ICU of each hospital, where a person may have up to
# three stays. What is the L1 sensitivity of each (of the last three: when a person is added or removed), and of the
# grades when one person's grade is replaced? Check the linear query and the grades by trying all neighbours on a small
# domain.

# %% [markdown] solution
# 1/n; 1; 1, however many cells there are, because a person is in one of them; 3.
# A replaced grade leaves one bin and enters another: 2.

# %% solution
added, replaced = Unit.row(), Unit.replaced_row()
print(small.sensitivity(lambda data: sum(data) / 4, domain=[0, 1], rows=4, unit=replaced).l1)
for unit in (added, replaced):
    print(small.sensitivity(lambda data: [data.count(g) for g in "ABC"], domain="ABC", rows=3, unit=unit).l1)
print(Sensitivity.histogram(Unit.person("patient", rows=3)).l1)

# %% [markdown]
# ### 8. Side information
#
# Somebody is 90 % sure that Alice is ill. How sure can they be after an answer with ε = 0.5?

# %% [markdown] solution
# Odds of 9 are multiplied by at most e^0.5.

# %% solution
odds = 9 * math.exp(0.5)
print(odds / (1 + odds), curves.pure(epsilon=0.5).posterior(prior=0.9))

# %% [markdown]
# ### 9. What can we still do?
#
# The last slide's table, in numbers: n = 10,000 people, ε = 1 (δ = 10⁻⁶ for Gaussian noise), all errors within α with
# probability 95 %. For α = 0.1, 1/√n and 0.1/√n, and k = n, 100, 10 and 1 linear queries: which of Laplace noise,
# Gaussian noise and randomized response will do?

# %% [markdown] solution
# Laplace noise needs k log(k/β) ≤ αnε, Gaussian noise about √k, randomized response only √log k: it is the one that is
# left for k = n, at a constant error. Below the statistical error nothing is left but a few queries.

# %% solution
for alpha in (0.1, 0.01, 0.001):
    for k in (10_000, 100, 10, 1):
        size = {"queries": k, "people": 10_000, "epsilon": 1.0, "beta": 0.05}
        errors = {
            "Laplace": linear.laplace_error(**size),
            "Gaussian": linear.gaussian_error(**size, delta=1e-6),
            "randomized response": linear.randomized_response_error(**size),
        }
        print(f"α = {alpha}, k = {k}:", ", ".join(way for way, error in errors.items() if error <= alpha) or "none")

# %% [markdown]
# ## Approximate DP, composition, Rényi DP (lecture notes)
#
# ### 10. Adding and adding cleverly
#
# 100 queries, in all (1, 10⁻⁶)-DP. Which ε₀ may each have by basic composition, by advanced composition, and at best?

# %% [markdown] solution
# ε/k; the root of kε₀²/2 + ε₀√(2k log(1/δ)) = ε; and the largest ε₀ whose k-fold optimal composition is (1, 10⁻⁶)-DP.

# %% solution
advanced = textbook.advanced_composition_step(total_epsilon=1, count=100, delta=1e-6)
low, high = advanced, 0.1
for _ in range(40):
    middle = (low + high) / 2
    within = (curves.pure(epsilon=middle) ** 100).epsilon(delta=1e-6) <= 1
    low, high = (middle, high) if within else (low, middle)
print(1 / 100, advanced, low)

# %% [markdown]
# ### 11. Rényi and the truth
#
# 100 Gaussian releases of σ = 4. Compare ε at δ = 10⁻⁵ by the best Rényi order with the exact one.

# %% solution
total = curves.gaussian(sigma=4) ** 100
mu = total.gdp()
print(
    textbook.best_renyi_to_epsilon_mironov(renyi=lambda order: order * mu**2 / 2, delta=1e-5), total.epsilon(delta=1e-5)
)

# %% [markdown]
# ## f-DP and infinitely divisible privacy (slides)
#
# ### 12. Gaussian comparison
#
# Every 1-DP mechanism is at least as private as a Gaussian of some μ. Find the smallest such μ and draw both
# trade-offs.

# %% [markdown] solution
# The kink of f at α = 1/(1 + e) touches G: Φ(−μ/2) = 1/(1 + e).

# %% solution
mu = curves.pure(epsilon=1).gdp()
print("μ =", mu)
plots.tradeoff({"1-DP": curves.pure(epsilon=1), f"G, μ = {mu:.4f}": curves.gaussian(mu=mu)})

# %% [markdown]
# ### 13. Two trade-off functions multiply
#
# Show with numbers that G at 0.3 and G at 0.4 compose to G at 0.5.

# %% solution
product = curves.gaussian(mu=0.3) * curves.gaussian(mu=0.4)
alphas = np.linspace(0.01, 0.99, 9)
print(np.max(np.abs(product.beta(alpha=alphas) - curves.gaussian(mu=0.5).beta(alpha=alphas))))

# %% [markdown]
# ## Approximate Differential Privacy (Near & Abuah)
#
# ### 14. Where a formula ends
#
# The chapter says that 500 answers of Laplace(1) noise cost ε′ = 2√(2 · 500 log(10⁵)) = 214.59 at δ = 10⁻⁵. Is that
# so?

# %% [markdown] solution
# No. The formula is proved for kε² ≤ 8 log(1/δ) only, here k ≤ 92. The exact cost of 500 Laplace releases is above
# 258, that of the worst 1-DP mechanism above 311.

# %% solution
print(2 * math.sqrt(2 * 500 * math.log(1e5)))
print((curves.laplace(scale=1) ** 500).epsilon_bounds(delta=1e-5))
print((curves.pure(epsilon=1) ** 500).epsilon_bounds(delta=1e-5))

# %% [markdown]
# ### 15. A catastrophe
#
# With probability 10⁻⁵ the catastrophe mechanism releases all data. What does its privacy curve say at ε = 50, and
# what does that of a Gaussian mechanism with the same (1, 10⁻⁵)?

# %% solution
quiet = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
catastrophe = mechanisms.cautionary.Catastrophe(quiet, statistic=sum, delta=1e-5)
gaussian = mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-5)
print(catastrophe.curve.delta(epsilon=50), gaussian.curve.delta(epsilon=50))
