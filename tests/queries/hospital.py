"""A hospital for tests: 600 patients, 3000 visits, shaped like real ones (few wards, skewed costs, some values missing)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from deniable import Budget, Domain, Unit, session
from deniable.queries.session import Session

SCHEMA = {
    "ward": Domain.text("A", "B", "C", nullable=False),
    "sex": Domain.text("f", "m", nullable=False),
    "age": Domain.integer(0, 100, nullable=False),
    "stay": Domain.integer(0, 60),
    "cost": Domain.real(0, 2000),
    "town": Domain.text(),
}
UNIT = Unit.person("patient_id", rows=3)
GAUSSIAN = Budget.gaussian(mu=1000, delta=1e-3)
PURE = Budget.pure(epsilon=100_000, delta=1e-3)
BUDGETS = {"gaussian": GAUSSIAN, "pure": PURE, "zcdp": Budget.zcdp(rho=100_000, delta=1e-3)}


def visits(patients: int = 600, rows: int = 3000) -> pd.DataFrame:
    """The same table every time."""
    rng = np.random.default_rng(7)
    cost = rng.gamma(2.0, 150.0, rows)
    stay = rng.poisson(4, rows).astype(float)
    stay[rng.random(rows) < 0.05] = np.nan
    return pd.DataFrame(
        {
            "patient_id": rng.integers(0, patients, rows),
            "ward": rng.choice(list("ABC"), rows, p=[0.5, 0.3, 0.2]),
            "sex": rng.choice(list("fm"), rows),
            "age": np.clip(rng.normal(52, 20, rows), 0, 100).astype(int),
            "stay": stay,
            "cost": np.where(rng.random(rows) < 0.02, np.nan, np.minimum(cost, 2000)),
            "town": rng.choice(["Ghent", "Lyon", "Turku", "Bilbao"], rows, p=[0.6, 0.3, 0.09, 0.01]),
        }
    )


def opened(table: Any = None, *, budget: Budget = GAUSSIAN, unit: Unit = UNIT, **more: Any) -> Session:
    """A session on the hospital."""
    source = {"visits": visits() if table is None else table}
    return session(source, unit=unit, budget=budget, schema=SCHEMA, **more)
