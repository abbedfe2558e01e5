"""Validators tested by a table: one test calls its function with every row, and reports each row that fails.

    @every_row((name, value) for name in POSITIVE for value in NOT_POSITIVE)
    def test_a_positive_parameter(name: str, value: object) -> None:
        refused(lambda: POSITIVE[name](value))

A row gives the last parameters of the function; pytest gives those before them (fixtures, or a mark that parametrizes).
The fixtures are the same objects for all rows. Use `pytest.mark.parametrize` where a case needs fixtures, marks or
noise of its own.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Check = Callable[..., None]


def every_row(rows: Iterable[tuple[Any, ...]]) -> Callable[[Check], Check]:
    """Run all rows, and fail if any row fails; a table without rows is an error.

    A row that skips counts as a failure: a case that does not apply has no place in the table.
    """
    table = list(rows)
    if not table:
        raise ValueError("every_row: the table has no rows, so its test could not fail")
    widths = {len(row) for row in table}
    if len(widths) > 1:
        raise ValueError(f"every_row: rows have {sorted(widths)} fields; all must have the same number")

    def decorate(check: Check) -> Check:
        signature = inspect.signature(check)
        given_by_pytest = list(signature.parameters.values())[: -len(table[0])]

        @functools.wraps(check)
        def run(**fixtures: Any) -> None:
            first = [fixtures[parameter.name] for parameter in given_by_pytest]
            failures = [(row, error) for row in table if (error := failure(check, *first, *row))]
            if failures:
                lines = [f"  {row_text(row)}: {error_text(error)}" for row, error in failures]
                text = "\n".join([f"{len(failures)} of {len(table)} rows fail:", *lines])
                raise AssertionError(text) from failures[0][1]

        run.__signature__ = signature.replace(parameters=given_by_pytest)  # type: ignore[attr-defined]
        run.rows = len(table)  # type: ignore[attr-defined]
        return run

    return decorate


def rows_of(item: pytest.Item) -> int:
    """How many cases a collected test holds: the rows of its table, or one."""
    return getattr(getattr(item, "function", None), "rows", 1)


def failure(check: Check, *row: Any) -> BaseException | None:
    try:
        check(*row)
    except (Exception, pytest.fail.Exception, pytest.skip.Exception, pytest.xfail.Exception) as error:
        return error
    return None


def row_text(row: tuple[Any, ...]) -> str:
    return ", ".join(f"{value!r:.60}" if not inspect.isfunction(value) else function_text(value) for value in row)


def function_text(function: Any) -> str:
    """A lambda has no name: where it is written tells which one it is."""
    return f"{function.__name__} in line {function.__code__.co_firstlineno}"


def error_text(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return f"{type(error).__name__} in line {lines[0] if lines else '?'}: {str(error).partition(chr(10))[0]:.200}"
