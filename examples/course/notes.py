# %% [markdown]
# # Approximate DP, composition and Rényi DP
#
# The statements of the hand-written lecture notes on approximate differential privacy, composition and Rényi
# differential privacy. The notes have sketches of boxes and arrows only; here is a picture for each of their
# theorems. The page *course/notes* of the documentation walks through all of them.

# %%
import math

import numpy as np

from deniable import curves, mechanisms, plots
from deniable.curves import textbook
from deniable.plots.figure_spec import REFERENCE, Axis, Figure, Line, Panel


def drawn(title: str, x: Axis, y: Axis, *lines: Line) -> Figure:
    return Figure(title, (Panel(x, y, lines),))


def line(label: str, at: list, value: object, colour: int, stroke: str = "solid") -> Line:
    return Line(label, tuple(map(float, at)), tuple(float(value(v)) for v in at), colour, stroke)


# %% [markdown]
# ## "Accuracy of Gaussian mechanism"
#
# The mean of n = 10,000 vectors in [0, 1]^K. Laplace noise must cover the ℓ1 sensitivity K/n, Gaussian noise the ℓ2
# sensitivity √K/n: errors of order K√K and K.

# %%
n, epsilon, delta = 10_000, 0.5, 1e-6
sizes = [1, 3, 10, 30, 100, 300, 1000]


def laplace(size: int) -> float:
    return mechanisms.Laplace(sensitivity=size / n, epsilon=epsilon, dimension=size).rms()


def gaussian(size: int) -> float:
    return mechanisms.Gaussian(sensitivity=math.sqrt(size) / n, epsilon=epsilon, delta=delta, dimension=size).rms()


print("K = 1000:", laplace(1000), gaussian(1000))
drawn(
    "Root of the expected squared error, ε = 1/2, δ = 10⁻⁶",
    Axis("dimension K", 1, 1000, "log"),
    Axis("error", 1e-4, 20, "log"),
    line("Laplace, ~ K√K", sizes, laplace, 0),
    line("Gaussian, ~ K", sizes, gaussian, 1),
)

# %% [markdown]
# ## "Group privacy" of approximate DP
#
# A group of k has (kε, δ_k). The notes state k e^{(k−1)ε} δ; the sum of the geometric series is sharp.

# %%
groups = list(range(1, 9))
drawn(
    "δ of a group, ε = 1, δ = 10⁻⁶",
    Axis("people in the group", 1, 8),
    Axis("δ", 1e-6, 1e-1, "log"),
    line(
        "as stated", groups, lambda k: textbook.group_privacy_stated(epsilon=1, delta=1e-6, size=k).delta, 1, "dashed"
    ),
    line("sharp", groups, lambda k: textbook.group_privacy_approximate(epsilon=1, delta=1e-6, size=k).delta, 0),
)

# %% [markdown]
# ## "Basic composition" and "Advanced composition"
#
# k mechanisms of ε₀ = 0.1 at δ = 10⁻⁶. The lowest line is the exact cost of Laplace noise, the one above it the best
# that holds for all ε₀-DP mechanisms.

# %%
plots.growth(curves.laplace(scale=10), delta=1e-6, most=1000, name="Laplace noise")

# %% [markdown]
# ## Proof of advanced composition: the privacy loss of k releases adds up, and concentrates

# %%
plots.loss(curves.randomized_response(epsilon=0.1) ** 100, delta=1e-6)

# %% [markdown]
# ## "Comparison with basic composition": noise for k queries in all (1, 10⁻⁶)-DP
#
# Advanced composition gives each query more than ε/k. The variance falls by k/(2 log(1/δ)), not by √k.

# %%
counts = [10, 30, 100, 300, 1000]
drawn(
    "Scale of Laplace noise for k queries, (1, 10⁻⁶)-DP in all",
    Axis("queries k", 10, 1000, "log"),
    Axis("scale", 5, 2000, "log"),
    line("basic composition, k/ε", counts, lambda k: k, REFERENCE, "dashed"),
    line(
        "advanced composition",
        counts,
        lambda k: 1 / textbook.advanced_composition_step(total_epsilon=1, delta=1e-6, count=round(k)),
        1,
    ),
    line(
        "exact",
        counts,
        lambda k: curves.calibrate(lambda b: curves.laplace(scale=b) ** round(k), epsilon=1, delta=1e-6),
        0,
    ),
)

# %% [markdown]
# ## "Rényi DP" and its conversion
#
# A Gaussian mechanism of μ = 1 is (α, α/2)-RDP for every order α. Each order converts to an ε; the best order still
# lies above the truth.

# %%
orders = np.geomspace(1.5, 60, 40)
truth = curves.gaussian(mu=1).epsilon(delta=1e-6)
drawn(
    "ε at δ = 10⁻⁶ from one Rényi order, μ = 1",
    Axis("order α", 1, 60, "log"),
    Axis("ε", 0, 30),
    line(
        "ξ + log(1/δ)/(α − 1)",
        list(orders),
        lambda a: textbook.renyi_to_epsilon_mironov(order=a, renyi=a / 2, delta=1e-6),
        0,
    ),
    line("truth", [1, 60], lambda _: truth, REFERENCE, "dashed"),
)

# %% [markdown]
# ## "Moments accountant": training with sampled Gaussian noise

# %%
training = curves.gaussian(sigma=4).sampled(rate=0.01) ** 10_000
print("ε =", training.epsilon(delta=1e-5), "at δ = 10⁻⁵")
plots.compare({"10,000 steps": training, "one step": curves.gaussian(sigma=4).sampled(rate=0.01)}, delta=1e-5)
