"""The weights and targets of a batch, as a caller gives them: which are taken, and which are refused."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from deniable.errors import InvalidParameter
from tests.queries.answer.test_joint_tables import TABLES
from tests.queries.hospital import opened
from tests.wording import worded


def test_bad_weights_and_targets_are_refused_and_nothing_is_charged() -> None:
    with opened() as s:
        for more in (
            {"weights": [1, 2]},
            {"weights": [1, 2, 3, 0]},
            {"weights": [1, 2, 3, -1]},
            {"weights": [1, 2, 3, math.nan]},
            {"weights": "1234"},
            {"weights": np.ones((4, 1))},
            {"weights": np.ones(3)},
            {"weights": {"n": 1}},
            {"weights": [1, 2, 3, "x"]},
        ):
            with pytest.raises(InvalidParameter, match="weights"):
                s.batch(TABLES, mu=1, **more)
        for within in ([1, 2], [None] * 4, [-1, 1, 1, 1], [1, 2, 3, "x"], 0, math.inf):
            with pytest.raises(InvalidParameter):
                s.batch(TABLES, within=within)
        for more in ({"weights": [1, 2], "mu": 1}, {"within": [1, 2]}):
            with worded(InvalidParameter):
                s.batch(TABLES, **more)
        with worded(InvalidParameter, parameter="within"):
            s.batch(TABLES, within=[None] * 4)
        with pytest.raises(InvalidParameter, match="exactly one"):
            s.batch(TABLES, within=10, mu=1)
        with worded(InvalidParameter):
            s.batch([*TABLES, "SELECT COUNT(stay) AS n FROM visits"], within=[10, 10, 10, 10, None])
        with pytest.raises(InvalidParameter, match="list"):
            s.price([], mu=1)
        assert list(s.ledger.entries()) == []


def test_weights_were_ignored_beside_targets() -> None:
    with opened() as s:
        with pytest.raises(InvalidParameter, match="weights"):
            s.price_batch(TABLES, weights=[1, 1, 1, 1], within=10)
        with pytest.raises(InvalidParameter, match="weights"):
            s.batch(TABLES, weights="even", mu=1)  # type: ignore[arg-type]
        with worded(InvalidParameter):
            s.price_batch(TABLES, weights="even", mu=1)  # type: ignore[arg-type]
        assert s.ledger.charged.units == 0


def test_weights_and_targets_are_taken_as_arrays() -> None:
    """`weights=1 / sizes` of numpy was refused without saying why, and an array of targets as one wrong number."""
    with opened() as s:
        listed = s.price_batch(TABLES, weights=[1, 2, 3, 4], mu=1).to_dict()
        for given in (np.array([1, 2, 3, 4]), np.array([1.0, 2, 3, 4]), pd.Series([1, 2, 3, 4])):
            assert s.price_batch(TABLES, weights=given, mu=1).to_dict() == listed
        near = s.price_batch(TABLES, within=[10, 20, 30, 40]).to_dict()
        assert s.price_batch(TABLES, within=np.array([10, 20, 30, 40])).to_dict() == near  # type: ignore[arg-type]
