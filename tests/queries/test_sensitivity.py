"""Sensitivities by search: no neighbours are further apart than a plan claims, and a wrong claim is found out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deniable.errors import QuestionRefused
from deniable.queries.plan import disjointness as proofs
from deniable.queries.relations import exact_statistics
from deniable.queries.relations.exact_statistics import Collect, CountPersons, ExactSum, Moves, Reach
from deniable.queries.relations.relation_nodes import Bound, JoinPrivate, JoinPublic, PerPerson, RelationNode, Union
from deniable.tables.expressions import Expression, same
from deniable.units import Relation as Neighbours
from tests.queries import plans
from tests.queries.engines.evaluate import Stored, collected, registered
from tests.queries.plans import NODES, Chooser, World

SECRET = b"0123456789abcdef"
Answered = Callable[[Collect], dict[Any, Any]]
"""One of two neighbouring tables, as an engine knows it: a question in, exact numbers out."""


def stored(world: World, changed: dict[str, Any], shuffle: Callable[[list[Any]], None]) -> Stored:
    found: Stored = {"places": registered(world.places, world.public, SECRET)}
    for table in (world.visits, world.stays):
        rows = world.common[table.name] + changed[table.name]
        shuffle(rows)  # where rows lie must not matter
        found[table.name] = registered(table, rows, SECRET)
    return found


def distance(question: Collect, here: Answered, there: Answered) -> list[Moves]:
    """How far apart the answers are, by statistic: L1, the square of L2, L∞."""
    one, two = here(question), there(question)
    found = []
    for position, statistic in enumerate(question.statistics):
        moved: list[int] = []
        for group in one.keys() | two.keys():
            a, b = (answers[group][position] if group in answers else 0 for answers in (one, two))
            if statistic.width > 1:
                nothing = (0,) * statistic.width
                moved += [x - y for x, y in zip(a or nothing, b or nothing, strict=True)]
            else:
                moved.append(a - b)
        sizes = [abs(each) for each in moved] or [0]
        found.append(Moves(sum(sizes), sum(each**2 for each in sizes), max(sizes)))
    return found


def excess(chooser: Chooser, world: World, here: Answered, there: Answered) -> str | None:
    """One random plan on neighbours: what is wrong with its claim, or None."""
    try:
        question = chooser.collect(world)
    except QuestionRefused:  # such as the sum of NULL
        return None
    claimed = question.moves(world.neighbours)
    for claim, true, statistic in zip(claimed, distance(question, here, there), question.statistics, strict=True):
        if true.l1 > claim.l1 or true.l2_squared > claim.l2_squared or true.linf > claim.linf:
            return f"{statistic} of {question.relation} moved by {true}, claimed {claim}"
    return None


def by_hand(world: World, changed: dict[str, Any], shuffle: Callable[[list[Any]], None]) -> Answered:
    data = stored(world, changed, shuffle)
    return lambda question: collected(question, data)


def tried(chooser: Chooser, shuffle: Callable[[list[Any]], None]) -> str | None:
    """One random plan on random neighbours, in plain Python."""
    world = chooser.world()
    return excess(chooser, world, *(by_hand(world, changed, shuffle) for changed in (world.here, world.there)))


def search(seed: int, tries: int, depths: Sequence[int] = (0, 1, 2, 3), nodes: Sequence[str] = NODES) -> str | None:
    """The first false claim among that many random plans."""
    chance = random.Random(seed)
    for _ in range(tries):
        found = tried(Chooser(chance.choice, depths, nodes), chance.shuffle)
        if found is not None:
            return found
    return None


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_no_neighbours_are_further_apart_than_claimed(chance: random.Random) -> None:
    assert tried(Chooser(lambda choices: chance.choice(list(choices))), lambda rows: rows.reverse()) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_longer_search_finds_no_false_claim(seed: int) -> None:
    assert search(seed, 400) is None


def test_claims_are_reached() -> None:
    """The claims are not merely safe: among random plans, many move exactly as far as they may."""
    chance = random.Random(7)
    reached = set()
    for _ in range(800):
        chooser = Chooser(chance.choice)
        world = chooser.world()
        try:
            question = chooser.collect(world)
        except QuestionRefused:
            continue
        here, there = (by_hand(world, changed, chance.shuffle) for changed in (world.here, world.there))
        for claim, true, statistic in zip(
            question.moves(world.neighbours), distance(question, here, there), question.statistics, strict=True
        ):
            if claim == true:
                reached.add((type(statistic).__name__, world.neighbours))
    assert len(reached) == 10, reached  # each of five statistics, under each of two relations


def _largest_part(self: Union) -> int:
    return max(part.rows for part in self.parts)


def _of_one_sign(reach: Reach, neighbours: Neighbours, low: int, high: int) -> Moves:
    most = max(abs(low), abs(high), 1)
    once = Moves(most * reach.in_all, most**2 * reach.squares, most * reach.in_one_group)
    return once if neighbours is Neighbours.ADD_REMOVE else Moves(2 * once.l1, 2 * once.l2_squared, once.linf)


def _as_if_added(reach: Reach, neighbours: Neighbours, low: int, high: int) -> Moves:
    most = max(abs(low), abs(high), 1)
    return Moves(most * reach.in_all, most**2 * reach.squares, most * reach.in_one_group)


def _as_many_keys(left: tuple[Expression, ...], right: tuple[Expression, ...]) -> bool:
    return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)


def _disjoint_by_name(parts: Sequence[RelationNode]) -> bool:
    """As if what one part calls n were what the next one calls n."""
    found = [proofs._filters(part) for part in parts]
    if len({repr(tuple(base.columns)) for base, _ in found}) > 1:
        return False
    names = [{name: ("column", name) for name in base.columns} for base, _ in found]
    limits = [
        proofs._Reading(base.columns, forms).limits(conditions)
        for (base, conditions), forms in zip(found, names, strict=True)
    ]
    return all(any(a[form].excludes(b[form]) for form in a.keys() & b.keys()) for a, b in combinations(limits, 2))


def _rounded_freely(self: ExactSum, value: int | float) -> int:
    return math.floor(min(max(value, float(self.low)), float(self.high)) / 2.0**self.exponent + 0.5)


def _partners_by_any(self: JoinPublic) -> int:
    joined = {right for _, right in self.on}
    return max(1, min(most for names, most in self.table.most_partners if set(names) & joined))


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "a public join repeats no row": (JoinPublic, "rows", property(lambda self: self.child.rows)),
    "a join of people repeats no row": (JoinPrivate, "rows", property(lambda self: self.left.rows)),
    "every union is disjoint": (Union, "rows", property(_largest_part)),
    "gathering by keys leaves one row": (PerPerson, "rows", property(lambda self: 1)),
    "a bound on groups bounds rows": (Bound, "rows", property(lambda self: min(self.child.rows, self.groups))),
    "a sum reaches only upwards": (
        ExactSum,
        "grid",
        property(lambda self: (0, max(0, int(self.high / 2**self.exponent)))),
    ),
    "rows spread evenly": (Reach, "squares", property(lambda self: self.in_all)),
    "a person is in one group": (CountPersons, "moves", lambda self, reach, neighbours: Moves(2, 2, 1)),
    "replacing is adding": (exact_statistics, "_of_rows", _as_if_added),
    "all sums have one sign": (exact_statistics, "_of_rows", _of_one_sign),
    "one row in each group": (Reach, "in_one_group", property(lambda self: 1)),
    "keys twice are two keys": (exact_statistics, "_same_keys", _as_many_keys),
    "a name is what it names": (plans, "disjoint", _disjoint_by_name),
    "rounding stays in bounds": (ExactSum, "addend", _rounded_freely),
    "one column of a join decides": (JoinPublic, "partners", property(_partners_by_any)),
    "what is missing matches": (JoinPublic, "rows", property(lambda self: max(1, self.child.rows * self.partners - 1))),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "all sums have one sign" else name for name in MUTATIONS],
)
def test_a_wrong_rule_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, wrong = MUTATIONS[name]
    if attribute == "grid":  # what is computed stays right; only the claim is wrong
        right = ExactSum.grid.fget  # type: ignore[attr-defined]
        monkeypatch.setattr(ExactSum, "addend", lambda self, value: _clamped(self, value, right(self)))
    monkeypatch.setattr(target, attribute, wrong)
    # A wrong rule of a relation shows in plans that have one, a wrong rule of a statistic in the simplest of plans.
    if target is plans:
        assert search(11, 6000, (1,), ("union",)) is not None
        return
    of_relations = isinstance(target, type) and issubclass(target, RelationNode)
    assert search(11, 6000, (1, 2) if of_relations else (0, 0, 1)) is not None


def _clamped(statistic: ExactSum, value: float, grid: tuple[int, int]) -> int:
    cell = int((value / 2**statistic.exponent + 0.5) // 1)
    return min(max(cell, grid[0]), grid[1])
