"""A long search for neighbours that are further apart than a plan claims, through an engine.

    python -m tests.queries.engines.neighbour_fuzz --pairs 50000 --seed 21 [--engine spark]

A pair is one random plan on two neighbouring tables. Most plans have an operator of the kind that is searched: windows
within a person, conditions on numbered rows, unions with a column that is NULL in a part, regular expressions. Prints
the number of pairs and the worst ratio of a true movement to the claimed one, which must not exceed 1.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from deniable.errors import QuestionRefused
from deniable.queries.relations.exact_statistics import Collect
from deniable.queries.relations.relation_nodes import RelationNode
from tests.queries.engines.kitchen import DuckDBKitchen, Kitchen, SparkKitchen
from tests.queries.engines.test_sensitivity import opened
from tests.queries.plans import Chooser, World
from tests.queries.test_sensitivity import distance

NODES = (*("windowed",) * 4, *("parted",) * 2, "filtered", "projected", "joined_private", "joined_public", "per_person", "union", "bound")  # fmt: skip
PLANS = 100


@dataclass
class Found:
    """What a search has seen so far."""

    pairs: int = 0
    refused: int = 0
    worst: Fraction = Fraction(0)
    wrong: str = ""
    nodes: Counter[str] = field(default_factory=Counter)

    def note(self, question: Collect, world: World, here: Any, there: Any) -> None:
        claims, moves = question.moves(world.neighbours), distance(question, here.collect, there.collect)
        self.pairs += 1
        self.nodes.update({type(each).__name__ for each in below(question.relation)})
        for claim, true, statistic in zip(claims, moves, question.statistics, strict=True):
            for name in ("l1", "l2_squared", "linf"):
                ratio = Fraction(getattr(true, name), max(1, getattr(claim, name)))
                self.worst = max(self.worst, ratio)
                if ratio > 1 and not self.wrong:
                    self.wrong = f"{statistic} of {question.relation} by {question.keys}: {true}, claimed {claim}"


def below(relation: RelationNode) -> list[RelationNode]:
    return [relation, *(each for child in relation.children for each in below(child))]


def fuzz(kitchen: Kitchen, seed: int, pairs: int, said: Callable[[Found], None] = lambda found: None) -> Found:
    """That many plans on neighbours, or fewer if a claim is found to be wrong."""
    chance, found = random.Random(seed), Found()
    while found.pairs < pairs and not found.wrong:
        chooser = Chooser(chance.choice, (1, 2, 2, 3), NODES)
        world = chooser.world()
        here, tables = opened(kitchen, world, world.here, chance.shuffle)
        there, _ = opened(kitchen, world, world.there, chance.shuffle)
        try:
            public = replace(world, places=tables["places"])
            for _ in range(min(PLANS, pairs - found.pairs)):
                try:
                    question = chooser.collect(public)
                except QuestionRefused:
                    found.refused += 1
                    continue
                found.note(question, world, here, there)
        finally:
            here.close()
            there.close()
        said(found)
    return found


def spark_session() -> Any:
    """A small session of Spark, on one core."""
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def main() -> None:
    arguments = argparse.ArgumentParser(description="Search for false claims.")
    arguments.add_argument("--pairs", type=int, default=50_000)
    arguments.add_argument("--seed", type=int, default=21)
    arguments.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    given = arguments.parse_args()
    kitchen: Kitchen = DuckDBKitchen()
    if given.engine == "spark":
        kitchen = SparkKitchen(spark_session())

    def said(found: Found) -> None:
        if found.pairs % 2000 < PLANS or given.engine == "spark":
            print(f"{found.pairs} pairs, worst ratio {float(found.worst):.4f}", flush=True)

    found = fuzz(kitchen, given.seed, given.pairs, said)
    print(f"seed {given.seed}: {found.pairs} pairs, {found.refused} refused, worst ratio {float(found.worst):.4f}")
    print(", ".join(f"{name} {many}" for name, many in found.nodes.most_common()))
    if found.wrong:
        raise SystemExit(found.wrong)


if __name__ == "__main__":
    main()
