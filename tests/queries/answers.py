"""What a question would answer without noise: its plan in plain Python, and what is made of it afterwards."""

from __future__ import annotations

import math
from typing import Any

from deniable.queries.plan.question import Measure, Question
from deniable.queries.relations.operators import typed
from tests.queries.engines.evaluate import Row, Stored, rows_of


def answers(question: Question, stored: Stored) -> list[tuple[Any, ...]]:
    """The rows of the result, for groups that have rows (or all in one, if there are no keys)."""
    rows = rows_of(question.relation, stored)
    columns = question.relation.columns
    keys = [typed(key.expression, columns).value for key in question.keys]
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): rows}
    for row in rows if keys else ():
        groups.setdefault(tuple(key(row.values) for key in keys), []).append(row)
    found = []
    for group, mine in groups.items():
        for key, value in zip(question.keys, group, strict=True):
            assert key.values is None or value in key.values  # what is listed as public is all there is
        values = {key.name: value for key, value in zip(question.keys, group, strict=True)}
        found.append(values | {each.name: measured(each, question, mine) for each in question.measures})
    return [row for _, row in question.post.select(found, question.domains)]


def measured(measure: Measure, question: Question, rows: list[Row]) -> Any:
    if measure.expression is None:
        return len(rows) if measure.function == "count" else len({row.person for row in rows})
    value = typed(measure.expression, question.relation.columns).value
    known = [(row, x) for row in rows if (x := value(row.values)) is not None]
    numbers: list[Any] = [x for _, x in known]
    match measure.function:
        case "count":
            return len(numbers)
        case "count_persons":
            return len({row.person for row, _ in known})
        case "count_distinct":
            return len(set(numbers))
    if not numbers:
        return None
    mean = math.fsum(numbers) / len(numbers)
    match measure.function:
        case "sum":
            return sum(numbers)
        case "avg":
            return mean
        case "min" | "max":
            return min(numbers) if measure.function == "min" else max(numbers)
        case "var" | "stddev":
            freedom = len(numbers) - measure.options["ddof"]
            if freedom <= 0:
                return None
            variance = math.fsum((x - mean) ** 2 for x in numbers) / freedom
            return variance if measure.function == "var" else math.sqrt(variance)
        case "quantile":
            ordered = sorted(numbers)
            place = measure.options["q"] * (len(ordered) - 1)
            low, high = math.floor(place), math.ceil(place)
            return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
    raise AssertionError(measure.function)
