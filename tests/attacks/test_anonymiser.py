"""The anonymiser makes what it says, and every attack still works on it."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import attacks
from deniable.attacks.anonymiser import cut, hidden, span
from deniable.errors import InvalidParameter
from tests.wording import worded


def people(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "name": np.array([f"person {i}" for i in range(count)], dtype=object),
        "zip": rng.integers(13000, 13100, size=count).astype(str).astype(object),
        "age": rng.integers(18, 90, size=count),
        "ill": rng.integers(0, 2, size=count),
    }


LADDERS = {"zip": [cut(1), cut(2), hidden], "age": [span(5), span(20), hidden]}


@pytest.mark.parametrize("k", [2, 5, 20])
def test_the_published_table_is_k_anonymous(k: int):
    table = people(2_000, seed=k)
    made = attacks.anonymise(table, k=k, ladders=LADDERS, identifiers=["name"])
    found = attacks.anonymity(made.table, quasi=["zip", "age"], secret="ill")
    assert found.k == made.k >= k
    assert made.left_out <= 0.05 * 2_000
    assert len(made.table["ill"]) + made.left_out == 2_000
    assert not set(made.table["name"]) & set(table["name"])
    assert len(set(made.table["name"])) == len(made.table["name"])


def test_values_become_coarser_step_by_step():
    assert [cut(2)("13012"), cut(9)("12"), span(10)(34), span(2.5)(-1), hidden(3)] == [
        "130**", "**", "30-40", "-2.5-0", "*",
    ]  # fmt: skip


def test_pseudonyms_are_not_the_same_twice():
    table = {"name": ["a", "b", "a"], "age": [1, 1, 1]}
    one, two = (attacks.anonymise(table, k=1, ladders={"age": []}, identifiers=["name"]).table["name"] for _ in "12")
    assert one[0] == one[2] != one[1]
    assert set(one.tolist()).isdisjoint(two.tolist())


def test_linkage_and_equal_secrets_still_break_it():
    """5-anonymous, and yet: who is in a class with one secret is exposed, and guesses beat a coin by what P_c says."""
    table = people(600, seed=3)
    table["ill"] = (table["age"] > 50).astype(int)  # a secret that goes with age, as secrets do
    made = attacks.anonymise(table, k=5, ladders={"zip": [cut(2), hidden], "age": [span(10), span(20)]})
    found = attacks.anonymity(made.table, quasi=["zip", "age"], secret="ill")
    assert found.k >= 5
    assert found.exposed > 300
    outcome = attacks.Linkage(made.table, quasi=["zip", "age"]).run(trials=2_000)
    assert outcome.rate > 0.5


def test_a_table_that_cannot_be_coarse_enough_is_refused():
    with pytest.raises(InvalidParameter, match="coarser steps"):
        attacks.anonymise({"age": [1, 2, 3]}, k=2, ladders={"age": []})
    with worded(InvalidParameter, parameter="identifiers"):
        attacks.anonymise({"age": [1, 2]}, k=1, ladders={"age": []}, identifiers=["name"])


def datafly(table: dict[str, list], k: int, share: float) -> tuple[dict[str, list], dict[str, int], int]:
    """Sweeney's algorithm with lists alone: the columns, the steps they went, and how many rows are left out."""
    columns, steps = {name: list(values) for name, values in table.items()}, dict.fromkeys(LADDERS, 0)
    while True:
        keys = list(zip(*(columns[name] for name in LADDERS), strict=True))
        small = [keys.count(key) < k for key in keys]
        left = [name for name in LADDERS if steps[name] < len(LADDERS[name])]
        if sum(small) <= share * len(small) or not left:
            kept = {n: [v for v, away in zip(vs, small, strict=True) if not away] for n, vs in columns.items()}
            return kept, steps, sum(small)
        widest = max(left, key=lambda name: len(set(columns[name])))
        columns[widest] = [LADDERS[widest][steps[widest]](value) for value in table[widest]]
        steps[widest] += 1


def test_small_tables_come_out_as_the_algorithm_of_the_paper_makes_them():
    rng = np.random.default_rng(7)
    for k, share in [(k, share) for k in (1, 2, 4) for share in (0.0, 0.05, 0.3)] * 3:
        count = int(rng.integers(4, 30))
        table = {"zip": [f"{z:03d}" for z in rng.integers(0, 40, count)], "age": rng.integers(20, 60, count).tolist()}
        columns, steps, left_out = datafly(table, k, share)
        if left_out < count:
            made = attacks.anonymise(table, k=k, ladders=LADDERS, left_out=share)
            assert (dict(made.steps), made.left_out) == (steps, left_out)
            assert {name: list(column) for name, column in made.table.items()} == columns
