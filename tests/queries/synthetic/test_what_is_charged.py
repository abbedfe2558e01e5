"""What a synthetic table is charged for each column whose keys are found, and in which bin a value is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd

import deniable as dn
from deniable.queries.synthetic import synthesis_request

ROWS = pd.DataFrame({"city": ["Ghent", "Porto"] * 50, "street": ["High", "Low"] * 50, "sex": ["f", "m"] * 50})


def test_each_column_of_unlisted_keys_is_charged_its_delta() -> None:
    schema = {"city": dn.Domain.text(), "street": dn.Domain.text(), "sex": dn.Domain.text("f", "m", nullable=False)}
    budget = dn.Budget(epsilon=1, delta=1e-6)
    with dn.session({"t": ROWS}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        price = s.price_synthesis(unlisted=["city", "street"], epsilon=0.1, delta=1e-8)
        asked = price.asked
        assert len(asked.finding) == 2
        one = s.price_synthesis(columns=["city", "sex"], unlisted=["city"], epsilon=0.1, delta=5e-9)
        assert price.cost.delta_units == 2 * one.cost.delta_units
        before = s.ledger.charged.delta_units
        s.synthesize(unlisted=["city", "street"], epsilon=0.1, delta=1e-8)
        assert s.ledger.charged.delta_units - before == price.cost.delta_units


def test_a_whole_number_is_drawn_in_its_own_bin() -> None:
    domain = dn.Domain.integer(0, 9, nullable=False)
    column = synthesis_request._column("age", domain, 5, False, ())
    rng = np.random.default_rng(1)
    for place, start in enumerate(column.values):
        drawn = set(column.drawn(np.full(200, place), rng))
        assert drawn == {start, start + 1}  # type: ignore[operator]
