"""Bounds that are bought: public bins, one count that is paid for, and a rule that reads the noisy counts alone."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, DeniableError, EngineFailed, InvalidParameter, QuestionRefused
from deniable.mechanisms import DiscreteLaplace
from deniable.queries.answer.release import release
from deniable.queries.bought_bounds import MISTAKEN, bins, question, read
from deniable.queries.engines.price_engine import Unread
from deniable.queries.plan.noise_planner import noise, plan
from deniable.queries.relations.operators import evaluate
from deniable.queries.session import Session
from deniable.tables.kinds import LARGEST, SMALLEST, Domain, Kind
from deniable.tables.schema import Table

KINDS = (Kind.INTEGER, Kind.REAL, Kind.DATE, Kind.TIMESTAMP)
EDGES: dict[Kind, list[Any]] = {
    Kind.INTEGER: [each for k in range(63) for each in (2**k - 1, 2**k, 2**k + 1)] + [LARGEST],
    Kind.REAL: [each for k in range(-40, 70) for p in [2.0**k] for each in (math.nextafter(p, 0), p)] + [1e308],
    Kind.DATE: [dt.date(1, 1, 1), dt.date(1899, 12, 31), dt.date(1900, 1, 1), dt.date(2024, 2, 29), dt.date.max],
    Kind.TIMESTAMP: [dt.datetime(1, 1, 1), dt.datetime(2023, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1)],
}
EDGES[Kind.INTEGER] += [-each for each in EDGES[Kind.INTEGER]] + [SMALLEST]
EDGES[Kind.REAL] += [-each for each in EDGES[Kind.REAL]] + [0.0, -0.0]


def opened(data: dict[str, Any], *, epsilon: float = 10.0, **schema: Domain) -> Session:
    table = pd.DataFrame(data)
    return dn.session({"t": table}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=epsilon), schema=schema or None)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_bins_lie_side_by_side_and_their_number_is_modest(kind: Kind) -> None:
    found = bins(kind)
    assert len(found) <= 256
    for (low, high), (after, _) in pairwise(found):
        assert low <= high
        between = {Kind.INTEGER: 1, Kind.REAL: 0, Kind.DATE: dt.timedelta(1)}.get(kind, dt.timedelta(microseconds=1))
        assert high + between == after


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_value_is_in_the_bin_that_python_finds(kind: Kind) -> None:
    """The CASE that engines run, against a search in the list; what is beyond the outer bins counts as in them."""
    table = Table.of("t", dn.Unit.row(), x=Domain(kind))
    _, asked = question("x", "t", {"t": table})
    [key] = asked.keys
    starts = [low for low, _ in bins(kind)]
    assert key.values == (*starts, None)
    for value in EDGES[kind]:
        expected = max((start for start in starts if start <= value), default=starts[0])
        assert evaluate(key.expression, {"x": value}, {"x": Domain(kind)}) == expected
    assert evaluate(key.expression, {"x": None}, {"x": Domain(kind)}) is None


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.REAL], ids=lambda kind: kind.value)
def test_an_engine_counts_every_value_once(kind: Kind) -> None:
    """Noise at this ε is 0 but with probability 2·e^-1000, so the counts are the exact ones."""
    values = [*EDGES[kind], *([math.nan, math.inf, -math.inf] if kind is Kind.REAL else [])]
    dtype = "int64" if kind is Kind.INTEGER else "float64"
    with opened({"x": np.array(values, dtype=dtype)}, epsilon=1e6) as session:
        answer = session.bounds("x", epsilon=1000).answer
    starts = [low for low, _ in bins(kind)]
    expected = dict.fromkeys([*starts, None], 0)
    for value in values:
        inside = math.isfinite(value)
        expected[max((each for each in starts if each <= value), default=starts[0]) if inside else None] += 1
    found = dict(zip((group[0] for group in answer.released.groups), answer.released.parts[0].tolist(), strict=True))
    assert found == expected


def test_bounds_hold_nearly_all_of_skewed_data() -> None:
    """20,000 values, ε = 0.5: the noise has scale 2, so a bin with a hundredth of a hundredth may be missed, no more.

    Clipped is 1 % by the rule, and what lay in bins below the noise: some 20 rows in each of a few bins. The limits are
    passed only if noise moves a bin by hundreds of rows, which has a probability below 200·e^-100.
    """
    rng = np.random.default_rng(3)
    data = {
        "cost": rng.lognormal(5, 1, 20_000),
        "loss": -rng.lognormal(5, 1, 20_000),
        "age": rng.integers(18, 90, 20_000),
    }
    with opened(data) as session:
        for name, values in data.items():
            domain = session.bounds(name, epsilon=0.5).domain
            assert domain is not None
            assert domain.bounds is not None
            low, high = (float(end) for end in domain.bounds)
            assert np.mean((values < low) | (values > high)) < 0.03
            assert high - low <= 4 * (np.quantile(values, 0.999) - np.quantile(values, 0.001))
        everything = session.bounds("cost", epsilon=0.5, cover=1).domain
        assert everything is not None
        assert everything.bounds is not None
        assert np.mean(data["cost"] > float(everything.bounds[1])) < 0.005


@pytest.mark.parametrize(
    "budget", [dn.Budget.pure(epsilon=5), dn.Budget(epsilon=5, delta=1e-6), dn.Budget.zcdp(rho=5)], ids=["ε", "μ", "ρ"]
)
def test_an_empty_column_has_no_bounds_but_once_in_a_hundred(budget: dn.Budget) -> None:
    """By the law of the noise itself: the chance of the least number that counts, times the number of bins."""
    table = Table.of("t", dn.Unit.row(), x=Domain.real())
    made = plan(question("x", "t", {"t": table})[1])
    cost = budget.cost(epsilon=0.1) if budget.currency != "rho" else budget.cost(rho=0.001)
    drawn = noise(made, budget, cost)
    nothing = release(made, drawn, cost, dict.fromkeys(made.collect.known or (), (0,)))
    confidence = float(1 - 2 * MISTAKEN / len(bins(Kind.REAL)))
    estimate = made.recipes[0].estimate(nothing.drawn(made, budget)[0], confidence)
    assert estimate.value is not None
    assert estimate.low is not None
    least = math.floor(estimate.value - estimate.low + 1) + 1
    [mechanism] = drawn.mechanisms
    deviation = drawn.deviation(0)
    if isinstance(mechanism, DiscreteLaplace):
        ratio = math.exp(-1 / mechanism.scale)
        chance = ratio**least / (1 + ratio)
    else:
        chance = math.erfc((least - 0.5) / deviation / math.sqrt(2)) / 2
    assert chance * len(bins(Kind.REAL)) <= float(MISTAKEN)
    assert chance * len(bins(Kind.REAL)) >= float(MISTAKEN) / 3  # and not needlessly rare


def test_nothing_stands_out_of_too_much_noise() -> None:
    """Three rows, ε = 0.01: a bin counts from about 990 on, which noise of scale 100 reaches in < 1 % of runs; the
    assertion is about what is said then, so it takes the rule itself, with counts that are all 0."""
    with opened({"x": [1.0, 2.0, 3.0]}) as session:
        bought = session.bounds("x", epsilon=0.01)
        answer = bought.answer
        released = answer.released
        zero = type(released)(
            released.groups, (np.zeros_like(released.parts[0]),), released.cost, released.precision, released.units
        )
        answer._released = zero
        again = read("t", "x", answer, 0.99)
    assert again.domain is None
    assert again.line == ""
    assert "no bin exceeds the noise" in str(again)


def test_it_is_paid_for_replayed_and_refined_as_one_question() -> None:
    with opened({"x": np.arange(10_000.0)}, epsilon=1.0) as session:
        price = session.price_bounds("x", epsilon=0.25)
        assert session.ledger.remaining == session.budget.limit
        first = session.bounds("x", "t", epsilon=0.25)
        assert first.receipt.cost == price.cost
        second = session.bounds("x", epsilon=0.25)
        assert second.receipt.replayed
        assert second.domain == first.domain
        refined = first.again(session.refine(first.answer, epsilon=0.25))
        assert refined.receipt.rest.units * 2 == session.budget.limit.units
        with pytest.raises(InvalidParameter, match="same question"):
            first.again(session.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.1))
        with pytest.raises(BudgetExceeded):
            session.bounds("x", epsilon=0.9)


def test_no_data_is_read_before_it_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened({"x": [1.5, 2.5], "word": ["a", "b"]}) as session:
        left = session.ledger.remaining

        def trip(self: object, collect: object) -> None:
            assert session.ledger.remaining.units < left.units
            raise EngineFailed("engine", "tripped")

        monkeypatch.setattr(type(session._engine), "collect", trip)
        session.price_bounds("x", epsilon=1)
        for wrong in (
            {"column": "word"}, {"column": "nobody"}, {"column": "x", "cover": 0.2}, {"column": "x", "cover": True},
            {"column": "x", "table": "u"},
        ):  # fmt: skip
            with pytest.raises((InvalidParameter, QuestionRefused)):
                session.bounds(**wrong, epsilon=1)
        assert session.ledger.remaining == left
        assert session.bounds("x", epsilon=1).domain is None  # as if nobody were there
        assert session.ledger.remaining != left
        assert [each.code for each in session.failures] == ["engine"]


def test_a_price_needs_no_data_at_all() -> None:
    schema = {"x": Domain.integer()}
    with dn.session(
        {"t": pd.DataFrame({"x": [1]})}, unit=dn.Unit.row(), budget=dn.Budget.pure(epsilon=1), schema=schema,
        engine=Unread(),
    ) as session:  # fmt: skip
        assert session.price_bounds("x", epsilon=0.1).fits


def test_a_person_counts_for_all_their_rows() -> None:
    unit = dn.Unit.person("who", rows=7)
    made = plan(question("x", None, {"t": Table.of("t", unit, x=Domain.real())})[1])
    [part] = made.parts
    assert part.moves.l1 == Fraction(7)


def test_bounds_go_into_the_schema_of_the_next_session_on_the_ledger(tmp_path: Path) -> None:
    data = {"x": np.random.default_rng(4).normal(100, 10, 5_000)}
    where: dict[str, Any] = {"unit": dn.Unit.row(), "ledger": tmp_path / "t.ledger"}
    with dn.session({"t": pd.DataFrame(data)}, budget=dn.Budget.pure(epsilon=4), **where) as session:
        with pytest.raises(DeniableError):
            session.sql("SELECT AVG(x) AS a FROM t", epsilon=1)
        bought = session.bounds("x", epsilon=1)
    assert bought.domain is not None
    with dn.session({"t": pd.DataFrame(data)}, schema={"x": bought.domain}, **where) as session:
        # Within 100 of the truth: noise of the sum has scale < 1000, so it is off by 0.2; the rest is clipping.
        assert abs(session.sql("SELECT AVG(x) AS a FROM t", epsilon=1).to_pandas()["a"][0] - 100) < 50
        with pytest.raises(InvalidParameter, match="has bounds"):
            session.bounds("x", epsilon=1)


@pytest.mark.slow
def test_from_the_shell(tmp_path: Path) -> None:
    pd.DataFrame({"who": range(3000), "cost": np.linspace(1, 900, 3000)}).to_csv(tmp_path / "visits.csv", index=False)

    def shell(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deniable.cli", "bounds", "visits.csv", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    asked = ("cost", "--unit", "who", "--rows", "1", "--epsilon", "1", "--budget", "2")
    untyped = shell(*asked)
    assert untyped.returncode == 2
    assert "--kind real" in untyped.stderr
    assert not (tmp_path / "visits.csv.ledger").exists()
    printed = shell(*asked, "--kind", "real")
    assert printed.returncode == 0, printed.stderr
    # Noise has scale 1: small bins may be missed or not, and the end is moved to 0; an empty one changes a bound only
    # if it seems to hold 1 % of 3000 rows, which has a probability below 200·e^-30.
    assert printed.stdout.splitlines()[0] == "cost: {kind: real, low: 0.0, high: 1024.0}"
    record = json.loads(shell("cost", "--kind", "real", "--epsilon", "1", "--json").stdout)
    assert (record["low"], record["high"], record["answer"]["provenance"]["replayed"]) == (0.0, 1024.0, True)
    assert shell("cost", "--kind", "word", "--epsilon", "1").returncode == 2
