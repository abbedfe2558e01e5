"""Questions: SQL and dataframe fronts, one plan, engines, and the release of noisy answers.

Lazy as the front door is: a name is loaded by its first use, so that an engine does not bring the SQL reader along.
`deniable.session` and `deniable.explain` are at the front door.
"""

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.queries.aggregations import (
        count,
        count_distinct,
        count_persons,
        max,
        mean,
        median,
        min,
        quantile,
        std,
        sum,
        var,
    )
    from deniable.queries.answers import Answer
    from deniable.queries.bounds import Bounds
    from deniable.queries.engines.base import DatabaseTable
    from deniable.queries.engines.report import Registration
    from deniable.queries.frame import Frame
    from deniable.queries.pricing import Price
    from deniable.queries.publication import Publication, publish
    from deniable.queries.question import Question
    from deniable.queries.session import Session
    from deniable.queries.sql import parse

__all__ = [
    "Answer",
    "Bounds",
    "DatabaseTable",
    "Frame",
    "Price",
    "Publication",
    "Question",
    "Registration",
    "Session",
    "count",
    "count_distinct",
    "count_persons",
    "max",
    "mean",
    "median",
    "min",
    "parse",
    "publish",
    "quantile",
    "std",
    "sum",
    "var",
]

_HOMES = {
    "Answer": "answers",
    "Bounds": "bounds",
    "DatabaseTable": "engines.base",
    "Frame": "frame",
    "Price": "pricing",
    "Publication": "publication",
    "Question": "question",
    "Registration": "engines.report",
    "Session": "session",
    "count": "aggregations",
    "count_distinct": "aggregations",
    "count_persons": "aggregations",
    "max": "aggregations",
    "mean": "aggregations",
    "median": "aggregations",
    "min": "aggregations",
    "parse": "sql",
    "publish": "publication",
    "quantile": "aggregations",
    "std": "aggregations",
    "sum": "aggregations",
    "var": "aggregations",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
