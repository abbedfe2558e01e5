"""What goes over the wire: errors come back as they went in, and a token only goes where nobody reads along."""

from __future__ import annotations

import json
from typing import Any

import pytest

import deniable as dn
from deniable.errors import BudgetExceeded, EngineFailed, InvalidParameter, LedgerUnavailable, QuestionRefused
from deniable.server.problems import problem_of
from deniable.transport import _error
from tests.wording import worded


@pytest.mark.parametrize(
    "error",
    [
        QuestionRefused("star", "rule", "rewrite"),
        BudgetExceeded("epsilon 1", "epsilon 0", "wait"),
        EngineFailed("time", "what was charged stays charged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_went_in(error: Any) -> None:
    back = _error(json.loads(problem_of(error).body()), 400, {})
    assert type(back) is type(error)
    assert str(back) == str(error)


@pytest.mark.parametrize("url", ["http://example.org", "ftp://127.0.0.1", "example.org", "", "http://[", 7])
def test_a_token_is_not_sent_in_the_clear(url: Any) -> None:
    with pytest.raises(InvalidParameter, match="url"):
        dn.connect(url, token="dn_x")


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.transport.time.sleep", lambda seconds: None)
    with worded(LedgerUnavailable) as found:
        dn.connect("http://127.0.0.1:1", token="dn_x")
    assert "charged" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [("127.0.0.1:8471", "http://127.0.0.1:8471"), ("curator.example.org", "https://curator.example.org")],
)
def test_an_address_without_its_scheme_is_completed_in_the_error(url: str, remedy: str) -> None:
    with pytest.raises(InvalidParameter, match=f"write {remedy}"):
        dn.connect(url, token="dn_x")
