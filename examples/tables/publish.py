# %% [markdown]
# # Publish tables
#
# A statistics office publishes how many people of a health survey have diabetes, by sex and age. NHANES 2017-18 is in
# the public domain, so here the truth may stand beside what is published. It needs
# `pip install "deniable[demo]" pandas`.

# %%
import tempfile
from pathlib import Path

import pandas as pd
from IPython.display import HTML, display

import deniable as dn
from deniable import queries as q
from deniable.cli.demo_command import table

folder = Path(tempfile.mkdtemp())
people = pd.read_csv(table(folder))
people["ages"] = pd.cut(people.age, [-1, 17, 39, 64, 200], labels=["0-17", "18-39", "40-64", "65+"]).astype(str)
display(people.head())

# %% [markdown]
# ## Ask
#
# Three tables for one cost. The unit is a person, who has one row.

# %%
s = dn.session(
    {"people": people[["sex", "ages", "diabetes"]]},
    unit=dn.Unit.row(),
    budget=dn.Budget(epsilon=1.0, delta=1e-8),
    schema={
        "sex": dn.Domain.text("Female", "Male", nullable=False),
        "ages": dn.Domain.text("0-17", "18-39", "40-64", "65+", nullable=False),
        "diabetes": dn.Domain.text("yes", "no", "borderline"),
    },
)
ill = "COUNT(*) AS n FROM people WHERE diabetes = 'yes' GROUP BY"
both, sex, ages = s.batch(
    [f"SELECT sex, ages, {ill} sex, ages", f"SELECT sex, {ill} sex", f"SELECT ages, {ill} ages"], epsilon=0.5
)
display(both)

# %% [markdown]
# ## Make them add up
#
# One least-squares fit to all three tables, without numbers below 0, in multiples of 5. Each step is told below the
# tables.

# %%
tables = q.publish({"Diabetes by sex and age": both, "Diabetes by sex": sex, "Diabetes by age": ages})
tables = tables.nonnegative().rounded(base=5)
fine = tables[0].to_pandas(intervals=True)
assert fine.groupby("sex").n.sum().to_dict() == dict(zip(tables[1]["sex"], tables[1]["n"], strict=True))
display(tables)

# %% [markdown]
# ## Beside the truth
#
# Nobody could do this with a table that needs protection.

# %%
truth = people[people.diabetes == "yes"].groupby(["sex", "ages"]).size().rename("truth").reset_index()
beside = fine.merge(truth, how="left").fillna({"truth": 0})
beside["held"] = (beside.n_low <= beside.truth) & (beside.truth <= beside.n_high)
display(beside)

# %% [markdown]
# ## Publish
#
# Files for machines and for people, and the paragraph for the methods section.

# %%
paths = [*tables.to_csv(folder / "csv"), *tables.to_excel_csv(folder / "excel"), *tables.to_parquet(folder / "parquet")]
page = tables.to_html(folder / "diabetes.html", title="Diabetes in the survey")
tables.to_latex(folder / "diabetes.tex")
display(HTML(page))

# %%
print(tables.statement())
s.close()
