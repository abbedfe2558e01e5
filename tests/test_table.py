"""A table of cases fails when one row fails, names that row, runs all of them, and cannot be empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.table import every_row


def test_all_rows_run_and_every_row_that_fails_is_reported() -> None:
    seen: list[int] = []

    @every_row([("one", 1), ("two", -2), ("three", 3), ("four", -4)])
    def positive(name: str, value: int) -> None:
        seen.append(value)
        assert value > 0

    with pytest.raises(AssertionError) as caught:
        positive()
    assert seen == [1, -2, 3, -4]
    summary, *lines = str(caught.value).splitlines()
    assert summary == "2 of 4 rows fail:"
    assert [line.partition(": ")[0].strip() for line in lines] == ["'two', -2", "'four', -4"]


def test_rows_that_all_hold_pass() -> None:
    seen: list[int] = []
    every_row((value,) for value in range(5))(seen.append)()
    assert seen == [0, 1, 2, 3, 4]


def test_an_error_that_never_comes_is_a_failure() -> None:
    """pytest.raises ends with an exception that is not an Exception."""

    @every_row([(1,), (0,), (2,)])
    def divides_badly(value: int) -> None:
        with pytest.raises(ZeroDivisionError):
            _ = 1 / value

    with pytest.raises(AssertionError, match="2 of 3 rows fail"):
        divides_badly()


@pytest.mark.parametrize("outcome", [pytest.skip, pytest.xfail])
def test_a_row_does_not_end_the_table_by_leaving_it(outcome: object) -> None:
    """A skip in the first row would leave out all others."""
    seen: list[int] = []

    @every_row([(1,), (2,)])
    def leaves(value: int) -> None:
        seen.append(value)
        outcome("not here")  # type: ignore[operator]

    with pytest.raises(AssertionError, match="2 of 2 rows fail"):
        leaves()
    assert seen == [1, 2]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        every_row(row for row in ())


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[1, 2\] fields"):
        every_row([(1,), (1, 2)])


def test_a_lambda_is_named_by_its_line() -> None:
    @every_row([(lambda: 1,), (lambda: 0,)])
    def calls(make: object) -> None:
        assert make()  # type: ignore[operator]

    with pytest.raises(AssertionError, match=r"<lambda> in line \d+: AssertionError in line \d+"):
        calls()


@every_row([("a",), ("b",)])
def test_pytest_gives_what_a_row_does_not(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch(exist_ok=False)
    assert tmp_path.is_dir()
