"""The table of refusals: every question in it is asked."""

from __future__ import annotations

import pytest

from deniable.errors import REFUSALS, QuestionRefused
from deniable.queries.rules import EXAMPLE, RULES
from deniable.queries.sql import parse


@pytest.mark.parametrize("name", RULES)
def test_what_breaks_a_rule_is_refused_with_it(name: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(RULES[name].refused, EXAMPLE)
    assert refused.value.code == RULES[name].code
    assert refused.value.rewrite == f"for example: {RULES[name].rewrite}"


@pytest.mark.parametrize("name", RULES)
def test_the_rewrite_of_a_rule_works(name: str) -> None:
    assert parse(RULES[name].rewrite, EXAMPLE).measures


def test_every_code_is_of_the_closed_list() -> None:
    assert {rule.code for rule in RULES.values()} <= set(REFUSALS)
