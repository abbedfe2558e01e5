# %% [markdown]
# # Synthetic data: rows that say what the data say, about nobody
#
# 20,000 people (made up here) with an age, a sex, a town and whether they smoke. We measure noisy counts of them, fit
# one distribution to all counts, and draw rows. Only the counts read data and cost budget.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import deniable as dn

generator = np.random.default_rng(1)
count = 20_000
sex = generator.choice(["f", "m"], count)
age = np.clip(generator.normal(45, 16, count), 18, 90).astype(int)
smokes = generator.random(count) < np.where(sex == "f", 0.1, 0.3) + 0.3 * np.exp(-(((age - 35) / 12) ** 2))
town = np.where(age < 40, generator.choice(["Ghent", "Porto"], count), generator.choice(["Porto", "Turku"], count))
people = pd.DataFrame({"age": age, "sex": sex, "town": town, "smokes": smokes})
schema = {
    "age": dn.Domain.integer(18, 90, nullable=False),
    "sex": dn.Domain.text("f", "m", nullable=False),
    "town": dn.Domain.text("Ghent", "Porto", "Turku", nullable=False),
    "smokes": dn.Domain.boolean(nullable=False),
}
session = dn.session(
    {"people": people}, unit=dn.Unit.row(), budget=dn.Budget(epsilon=2, delta=1e-9), schema={"people": schema}
)

# %% [markdown]
# The price, before anything is paid: how noisy each count will be, and from how many rows on a table is of use.

# %%
session.price_synthesis(epsilon=1)

# %% [markdown]
# Paid, counted, fitted. Asked for again, it is read from the ledger for nothing.

# %%
synthetic = session.synthesize(epsilon=1, forbid=[{"smokes": True, "age": (None, 20)}])
rows = synthetic.rows().to_pandas()
rows.head()

# %% [markdown]
# What is expected to be off, by public numbers alone.

# %%
print(synthetic.quality)

# %% [markdown]
# Pairs of columns: the data on the left, synthetic rows on the right, on one scale; the darker, the more people. Such a
# picture of the data is not private; it is here because these people are made up.

# %%
figure, places = plt.subplots(3, 2, figsize=(8, 9), sharex="row", sharey="row")
for row, (across, up) in zip(places, [("age", "town"), ("age", "smokes"), ("town", "sex")], strict=True):
    shown = []
    for table in (people, rows):
        binned = table[across] // 6 * 6 if across == "age" else table[across]
        shown.append(pd.crosstab(table[up], binned, normalize=True).sort_index(axis=1))
    darkest = max(shares.to_numpy().max() for shares in shown)
    for place, title, shares in zip(row, ("data", "synthetic"), shown, strict=True):
        place.imshow(shares, aspect="auto", origin="lower", vmin=0, vmax=darkest, cmap="Greys")
        place.set_xticks(range(len(shares.columns)), shares.columns, fontsize=7)
        place.set_yticks(range(len(shares.index)), shares.index, fontsize=7)
        place.set_title(f"{title}: {across} × {up}", fontsize=9)
figure.tight_layout()
plt.show()

# %% [markdown]
# The share of smokers by age. Nobody below 21 smokes in the synthetic rows: that was given as a rule.

# %%
figure, place = plt.subplots(figsize=(7, 3))
for title, table, style in [("data", people, "k-"), ("synthetic", rows, "r--")]:
    place.plot(table.groupby(table.age // 3 * 3).smokes.mean(), style, label=title)
place.set(xlabel="age", ylabel="share who smoke")
place.legend()
plt.show()

# %% [markdown]
# Any SQL may be asked of synthetic rows, for nothing. Its answer is marked: there is no interval. A number that
# matters is better asked of the data, with noise.

# %%
synthetic.sql("SELECT town, AVG(age) AS age FROM people GROUP BY town ORDER BY town")
