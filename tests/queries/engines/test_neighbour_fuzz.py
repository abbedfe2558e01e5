"""A small part of the long search for false claims (`neighbour_fuzz`), and wrong rules that it finds."""

from __future__ import annotations

from typing import Any

import pytest

from deniable.queries.relations.exact_statistics import Collect
from deniable.queries.relations.person_windows import PersonWindows
from deniable.queries.relations.relation_nodes import FilterRows
from tests.queries.engines.kitchen import DuckDBKitchen, SparkKitchen
from tests.queries.engines.neighbour_fuzz import fuzz


@pytest.mark.slow
def test_a_part_of_the_search_finds_nothing() -> None:
    found = fuzz(DuckDBKitchen(), 3, 200)
    assert found.wrong == ""
    assert found.worst == 1  # some claims are reached, so they could not be smaller
    assert found.nodes["PersonWindows"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["numbered", "windows", "parts"])
def test_a_wrong_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "numbered":  # as if any condition on a column kept one row of a person
        monkeypatch.setattr(FilterRows, "rows", property(lambda self: 1))
    elif rule == "windows":
        monkeypatch.setattr(PersonWindows, "rows", property(lambda self: max(1, self.child.rows - 1)))
    else:  # as if a column that is NULL in one part were NULL in all but one row
        reach = Collect.reach_of
        monkeypatch.setattr(Collect, "reach_of", lambda self, each: type(self.reach)(1, *vars_of(reach(self, each))))
    assert fuzz(DuckDBKitchen(), 5, 1500).wrong


def vars_of(reach: Any) -> tuple[Any, Any]:
    return reach.groups, reach.each


@pytest.mark.spark
def test_spark_moves_no_further_in_a_part_of_the_search(spark: Any) -> None:
    kitchen = SparkKitchen(spark)
    try:
        assert fuzz(kitchen, 4, 8).wrong == ""
    finally:
        kitchen.close()
