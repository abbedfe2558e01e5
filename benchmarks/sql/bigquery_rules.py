"""How many questions of the corpus have only aggregates that BigQuery documents for privacy: an upper bound.

    python benchmarks/sql/bigquery_rules.py

BigQuery's page on differentially private aggregate functions lists AVG, COUNT, PERCENTILE_CONT and SUM (read in
November 2026). A question counts as taken if all aggregates of its outermost grouped SELECT are of these, with
COUNT(DISTINCT x) of the person, MEDIAN counted as PERCENTILE_CONT, and if that SELECT has no window. BigQuery has
further rules (on joins, sub-queries, and the clause that each text needs), which are not applied here, and nothing was
run there. So at most this share is taken.
"""

from __future__ import annotations

from collections import Counter

import ask
import sqlglot
from sqlglot import exp

TAKEN = (exp.Avg, exp.Count, exp.CountIf, exp.PercentileCont, exp.Quantile, exp.Median, exp.Sum, exp.WithinGroup)


def taken(question: ask.Written, person: set[str]) -> str:
    """The first aggregate that is not documented; "" if all are."""
    tree = sqlglot.parse_one(question.text, read=question.dialect)
    selects = [each for each in tree.find_all(exp.Select) if each.find(exp.AggFunc) is not None]
    for select in selects[:1]:
        for node in (found for item in select.expressions for found in item.find_all(exp.AggFunc, exp.Window)):
            if isinstance(node, exp.Window) or not isinstance(node, TAKEN):
                return type(node).__name__
            distinct = node.this.expressions if isinstance(node.this, exp.Distinct) else []
            if distinct and not any(str(each.name).casefold() in person for each in distinct):
                return "Count(Distinct)"
    return "" if selects else "no aggregate"


def main() -> None:
    print(f"{'world':<11} questions  at most taken")
    every: Counter[str] = Counter()
    for name, made in ask.WORLDS.items():
        world = made()
        person = {world.person.casefold(), *(each.casefold() for each in world.people.values())}
        asked = [each for each in ask.corpus(name) if not each.refuse]
        reasons = Counter(taken(each, person) for each in asked)
        every += reasons
        every["all"] += (size := len(list(ask.corpus(name))))
        print(f"{name:<11} {size:<10} {reasons['']} ({100 * reasons[''] / size:.0f} %)")
    print(f"{'all':<11} {every['all']:<10} {every['']} ({100 * every[''] / every['all']:.0f} %)")
    others = [(name, many) for name, many in every.most_common() if name not in ("", "all")]
    print("not taken: " + ", ".join(f"{name} {many}" for name, many in others))


if __name__ == "__main__":
    main()
