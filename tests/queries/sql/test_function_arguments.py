"""What a session is opened with, and what a question may cost: refused in words where it means nothing."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, InvalidParameter, QuestionRefused, UnreadableRecord
from deniable.ledger import Budget, Ledger, keys
from deniable.tables.kinds import Domain
from deniable.tables.schema import read_schema
from deniable.units import Unit
from tests.wording import worded

FRAME = pd.DataFrame({"x": [0, 1], "y": [0.5, 1.5]})
ABOUT: dict[str, Any] = {"unit": Unit.row(), "budget": Budget.pure(epsilon=1)}
COUNT = "SELECT COUNT(*) AS n FROM t"


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        (":memory:", "would make a file with this name; leave it out"),
        (5, "must be the path of a file, not int"),
        (b"a.ledger", "must be the path of a file, not bytes"),
        ("", "is not the path of a file"),
        ("a\0b", "is not the path of a file"),
    ],
)
def test_a_ledger_that_is_no_place(ledger: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`:memory:` made a file of that name; numbers and bytes were a bare TypeError."""
    monkeypatch.chdir(tmp_path)
    for opened in (
        lambda: dn.session({"t": FRAME}, ledger=ledger, **ABOUT),
        lambda: Ledger.open(ledger, dataset="t", **ABOUT),
        lambda: Ledger.inspect(ledger),
    ):
        with pytest.raises(InvalidParameter) as refused:
            opened()
        assert words in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("schema", [["x"], {"x"}, 5, b"x"])
def test_a_schema_that_is_none_was_passed_over(schema: Any) -> None:
    with worded(InvalidParameter, parameter="schema"):
        dn.session({"t": FRAME}, schema=schema, **ABOUT)


def test_a_column_that_is_called_by_a_number() -> None:
    """ "0 is no column; did you mean 0?"."""
    with worded(InvalidParameter, parameter="schema"):
        dn.session({"t": pd.DataFrame({"0": [1]})}, schema={0: Domain.integer(0, 1)}, **ABOUT)  # type: ignore[dict-item]


def test_a_column_with_spaces_is_proposed_in_quotes() -> None:
    with worded(InvalidParameter, parameter="schema"):
        dn.session({"t": pd.DataFrame({" x": [1]})}, schema={"x": Domain.integer(0, 1)}, **ABOUT)


def test_no_table_at_all_was_called_public() -> None:
    with worded(InvalidParameter, parameter="source"):
        dn.session({}, **ABOUT)


def test_a_missing_file_was_called_a_table_that_the_schema_lacks(tmp_path: Path) -> None:
    schema = {"tables": {"other": {"columns": {"x": {"kind": "real"}}}}}
    with worded(InvalidParameter):
        dn.session(tmp_path / "nofile.csv", schema=schema, **ABOUT)
    (tmp_path / "there.csv").write_text("x\n1\n", encoding="utf-8")
    with worded(InvalidParameter, parameter="schema"):
        dn.session(tmp_path / "there.csv", schema=schema, **ABOUT)


def test_a_number_declared_as_text_says_what_it_is() -> None:
    """The reason was that nested and binary columns have no kind."""
    with worded(InvalidParameter, parameter="columns"):
        dn.session({"t": FRAME}, schema={"y": Domain.text()}, **ABOUT)


def test_booleans_of_numpy_are_booleans() -> None:
    assert Domain.integer(0, 1, nullable=np.False_) == Domain.integer(0, 1, nullable=False)  # type: ignore[arg-type]
    assert Domain.boolean(nullable=np.True_) == Domain.boolean()  # type: ignore[arg-type]
    with worded(InvalidParameter, parameter="nullable"):
        Domain.boolean(nullable=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("nat", [np.datetime64("NaT"), pd.NaT])
@pytest.mark.parametrize("make", [Domain.date, Domain.timestamp])
def test_bounds_that_are_no_time_were_no_bounds(make: Any, nat: Any) -> None:
    for ends in ((nat, nat), ("2024-01-01 00:00", nat)):
        with worded(InvalidParameter):
            make(*ends)


def test_a_key_with_half_a_character_is_said() -> None:
    """The source "could not be read"."""
    with worded(InvalidParameter, parameter="keys"):
        Domain.text("a\ud800")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_column_given_twice_kept_the_last(form: str, tmp_path: Path) -> None:
    one, two = '{"kind": "real", "low": 0, "high": 1}', '{"kind": "real", "low": 0, "high": 9}'
    text = f'{{"tables": {{"t": {{"public": true, "columns": {{\n"x": {one},\n"x": {two}}}}}}}}}'
    path = tmp_path / f"schema.{form}"
    path.write_text(text, encoding="utf-8")
    with worded(UnreadableRecord):
        read_schema(path)


def test_names_that_yaml_reads_as_something_else_are_names() -> None:
    text = """
tables:
  t:
    public: true
    columns:
      no: {kind: integer, low: 0, high: 1}
      1_000: {kind: real}
      2024-01-01: {kind: real}
"""
    [table] = read_schema(text).values()
    assert [name for name, _ in table.columns] == ["no", "1_000", "2024-01-01"]
    text = "tables: {t: {public: true, columns: {x: {kind: text, keys: [yes, no]}}}}\n"
    with worded(InvalidParameter, parameter="t.x.keys"):
        read_schema(text)


@pytest.mark.parametrize("epsilon", [0, -1, "1e-31", "1e-999999999", "1e999999999", 1e301, "-1e-999999999", "1e-400"])
@pytest.mark.parametrize("budget", [Budget.pure(epsilon=1), Budget(epsilon=1, delta=1e-6)])
def test_one_range_for_an_epsilon(epsilon: Any, budget: Budget) -> None:
    """Three ranges were told: "at least 0 and below 1e300", "at least 1e-30 and at most 1,000,000", "above 0"."""
    for made in (
        lambda: budget.cost(epsilon=epsilon),
        lambda: Budget.pure(epsilon=epsilon),
        lambda: Budget(epsilon=epsilon, delta=1e-6),
        lambda: Budget.zcdp(rho=epsilon),
    ):
        with worded(InvalidParameter):
            made()


@pytest.mark.parametrize("mu", [0, "1e-16", "1e-999999999", 1e301])
def test_one_range_for_a_mu(mu: Any) -> None:
    for made in (lambda: Budget.gaussian(mu=1).cost(mu=mu), lambda: Budget.gaussian(mu=mu)):
        with worded(InvalidParameter):
            made()


def test_what_is_within_the_range_is_taken() -> None:
    assert Budget.pure(epsilon="1e-30").cost(epsilon="1e-30").units == 1
    assert Budget.gaussian(mu="1e-15").cost(mu="1e-15").units == 1
    assert Budget.pure(epsilon=1_000_000).limit.units == 10**36


def test_words_are_no_number() -> None:
    for wrong in ("abc", "nan", "inf", float("nan"), True, "1/0"):
        with worded(InvalidParameter, parameter="epsilon"):
            Budget.pure(epsilon=1).cost(epsilon=wrong)


def test_a_share_too_small_to_count_was_called_a_spent_budget() -> None:
    with dn.session({"t": FRAME}, **ABOUT) as session:
        with worded(InvalidParameter, parameter="share"):
            session.price(COUNT, share="1e-31")
        session.sql(COUNT, epsilon=1)
        with worded(BudgetExceeded):
            session.price("SELECT COUNT(*) AS n FROM t WHERE x > 0", share="1e-31")


def test_how_near_may_be_written_as_text() -> None:
    with dn.session({"t": FRAME}, **ABOUT) as session:
        one = session.price(COUNT, within="5").cost
        assert one == session.price(COUNT, within=5).cost == session.price(COUNT, within={"n": Fraction(5)}).cost
        for wrong in ("x", 0, -1, "1e-400", True, float("nan"), float("inf"), None.__class__):
            with worded(InvalidParameter, parameter="within"):
                session.price(COUNT, within=wrong)


def test_a_confidence_near_one_is_not_called_certain() -> None:
    with dn.session({"t": FRAME}, **ABOUT) as session:
        price = session.price(COUNT, epsilon=0.5, confidence=0.9999999999999999)
        assert "at 99.99999999999999 %" in str(price)
        assert "at 95 %" in str(session.price(COUNT, epsilon=0.5))
        answer = session.sql(COUNT, epsilon=0.5, confidence=0.9999999999999999)
        assert "100 %" not in str(answer)
        assert "99.99999999999999 %" in str(answer)


NO_PATHS: dict[str, Any] = {
    "verify_export": lambda path: dn.ledger.verify_export(path),
    "against": lambda path: dn.ledger.verify_export("no.jsonl", against=path),
    "checkpoint": lambda path: Ledger.open(dataset="t", checkpoint=path, **ABOUT),
    "export": lambda path: Ledger.open(dataset="t", **ABOUT).export(path),
    "read": keys.read,
    "new": keys.new,
    "read_public": keys.read_public,
}


@pytest.mark.parametrize("path", [5, b"x", ""])
@pytest.mark.parametrize("called", NO_PATHS)
def test_a_path_that_is_none_was_a_bare_type_error(called: str, path: Any) -> None:
    with worded(InvalidParameter):
        NO_PATHS[called](path)


@pytest.mark.parametrize("public", [["a"], {1: FRAME}, 5])
def test_public_tables_have_names(public: Any) -> None:
    """A bare AttributeError, and a bare KeyError."""
    with worded(InvalidParameter, parameter="public"):
        dn.session({"t": FRAME}, public=public, **ABOUT)


def test_a_schema_or_a_table_that_is_a_number() -> None:
    with worded(InvalidParameter, parameter="schema"):
        read_schema(5)  # type: ignore[arg-type]
    with dn.session({"t": FRAME}, **ABOUT) as session, worded(QuestionRefused, code="table"):
        session.table(5)  # type: ignore[arg-type]


def test_a_budget_without_a_delta_says_what_to_write() -> None:
    """It was a TypeError about a keyword, and then delta=0 was refused as well."""
    with worded(InvalidParameter, parameter="delta"):
        dn.Budget(epsilon=1)


def test_what_is_no_table_is_named() -> None:
    about: dict[str, Any] = {"unit": dn.Unit.row(), "budget": dn.Budget.pure(epsilon=1)}
    with worded(InvalidParameter, parameter="source"):
        dn.session([1], **about)
    with worded(InvalidParameter, parameter="source"):
        dn.session({1: "visits.csv"}, **about)


def test_types_that_cannot_be_read_are_not_called_no_columns() -> None:
    """A frame of periods "has no columns", and the source was <class 'dict'>."""
    pd = pytest.importorskip("pandas")
    about: dict[str, Any] = {"unit": dn.Unit.row(), "budget": dn.Budget.pure(epsilon=1)}
    frame = pd.DataFrame({"month": pd.period_range("2024-01", periods=2, freq="M")})
    with worded(InvalidParameter, parameter="source", asked="t"):
        dn.session({"t": frame}, **about)
    with worded(InvalidParameter, parameter="source"):
        dn.session({"t": pd.DataFrame()}, **about)


def test_a_whole_number_that_is_a_float_is_told_how_to_write_it() -> None:
    with worded(InvalidParameter, parameter="power"):
        dn.curves.gaussian(sigma=1) ** 1e6  # type: ignore[operator]
