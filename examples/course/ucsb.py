# %% [markdown]
# # Lecture 2: Differential Privacy Basics
#
# The figures and the final table of Yu-Xiang Wang, *Lecture 2: Differential Privacy Basics*, UC Santa Barbara,
# redrawn. The page *course/ucsb* of the documentation walks through all of its slides.

# %%
import math

from deniable import attacks, curves, local, mechanisms, plots
from deniable.mechanisms import linear
from deniable.plots.figure_spec import Axis, Figure, Line, Panel

# %% [markdown]
# ## "k-anonymity and composition attack"
#
# Alice is 28, lives in 13012, and goes to both hospitals. Each table is anonymous by itself; together they say what
# she has.

# %%
print(attacks.anonymity(attacks.HOSPITAL_A, quasi=("zip", "age")))
print(attacks.anonymity(attacks.HOSPITAL_B, quasi=("zip", "age")))
alice = (attacks.HOSPITAL_A, {"zip": "130**", "age": "<30"}), (attacks.HOSPITAL_B, {"zip": "130**", "age": "<35"})
print("table (a) says", attacks.candidates(alice[0], secret="condition"))
print("both say", attacks.candidates(*alice, secret="condition"))

# %% [markdown]
# ## "The idea of differential privacy: the indistinguishability of two worlds"
#
# The world with Alice and the one without: the count of a question, and Laplace noise around it. What one answer
# tells stays within ±ε.

# %%
plots.laws(mechanisms.Laplace(sensitivity=1, epsilon=0.5), 12, 11)

# %% [markdown]
# ## "Making sense of the side-information": what an adversary believes after the answer
#
# Whatever one knew before, an answer multiplies the odds by at most e^ε: the upper line. The lower one is what is
# left of them when the test at 5 % false alarms stays silent.

# %%
print("a prior of 50 % becomes at most", 1 / (1 + math.exp(-0.5)))
plots.odds({"ε = 0.5": curves.pure(epsilon=0.5), "ε = 2": curves.pure(epsilon=2)}, false_alarms=0.05, prior=0.5)

# %% [markdown]
# ## "Randomized Response, revisited"
#
# An answer is kept with probability p. ε = log(p/(1 − p)); p = 3/4 gives log 3.

# %%
response = local.RandomizedResponse(p=0.75)
print("ε =", response.curve.epsilon(delta=0), "log 3 =", math.log(3))
plots.tradeoff({"p = 0.6": curves.randomized_response(p=0.6), "p = 0.75": curves.randomized_response(p=0.75)})

# %% [markdown]
# ## "The Laplace distribution"
#
# The figure on the slide is Wikipedia's: one density for each b. F(1) at b = 2 is 0.69673.

# %%
print("F(1) =", mechanisms.Laplace(sensitivity=1.0, scale=2.0).law(0.0).cdf(1.0))
plots.density(*(mechanisms.Laplace(sensitivity=1.0, scale=scale) for scale in (1.0, 2.0, 4.0)), value=0.0)

# %% [markdown]
# ## "Comparing randomized response and Laplace mechanism in answering linear queries"
#
# From error to sample size: k queries, each within α = 0.05 with probability 95 %, at ε = 1.

# %%
counts = (1, 3, 10, 30, 100, 300, 1000)
needed = {k: linear.sample_size(queries=k, error=0.05, epsilon=1.0, beta=0.05) for k in counts}
print("k = 100:", needed[100])
Figure(
    "People needed for k linear queries, α = 0.05, ε = 1",
    (
        Panel(
            Axis("queries k", 1, 1000, "log"),
            Axis("people n", 30, 3e5, "log"),
            tuple(
                Line(name, counts, tuple(float(needed[k][way]) for k in counts), colour)
                for colour, (way, name) in enumerate(
                    {"laplace": "Laplace mechanism", "randomized_response": "randomized response"}.items()
                )
            ),
        ),
    ),
)

# %% [markdown]
# ## "What can we still do?"
#
# The last table of the lecture, in numbers: the error of k queries with n = 10,000 people at ε = 1, each way, beside
# the statistical error 1/√n = 0.01. The column "k ≪ n" is too generous to Laplace noise: it needs k of about ε√n at
# most. Gaussian noise (δ = 10⁻⁶) goes further. An error above 1/2 tells nothing; answering all 2ⁿ queries with a
# small constant error gives the data away.

# %%
n = 10_000
print(f"{'k':>6} {'Laplace':>9} {'Gaussian':>9} {'randomized response':>20}")
for k in (1, 10, 100, 1000, n):
    errors = (
        linear.laplace_error(queries=k, people=n, epsilon=1.0, beta=0.05),
        linear.gaussian_error(queries=k, people=n, epsilon=1.0, delta=1e-6, beta=0.05),
        linear.randomized_response_error(queries=k, people=n, epsilon=1.0, beta=0.05),
    )
    print(f"{k:6,} {errors[0]:9.4f} {errors[1]:9.4f} {errors[2]:20.4f}")
