"""Questions: SQL and dataframe fronts, one plan, engines, and the release of noisy answers.

Lazy as the front door is: a name is loaded by its first use, so that an engine does not bring the SQL reader along.
`deniable.session` and `deniable.explain` are at the front door.
"""

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.bought_bounds import Bounds
    from deniable.queries.engines.engine import DatabaseTable
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.frame.frame import Frame
    from deniable.queries.frame.frame_aggregates import (
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
    from deniable.queries.plan.pricing import Price
    from deniable.queries.plan.question import Question
    from deniable.queries.publication.published_tables import Publication, publish
    from deniable.queries.session import Session
    from deniable.queries.sql.sql_reader import parse

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
    "Answer": "answer.answer",
    "Bounds": "bought_bounds",
    "DatabaseTable": "engines.engine",
    "Frame": "frame.frame",
    "Price": "plan.pricing",
    "Publication": "publication.published_tables",
    "Question": "plan.question",
    "Registration": "engines.registration_report",
    "Session": "session",
    "count": "frame.frame_aggregates",
    "count_distinct": "frame.frame_aggregates",
    "count_persons": "frame.frame_aggregates",
    "max": "frame.frame_aggregates",
    "mean": "frame.frame_aggregates",
    "median": "frame.frame_aggregates",
    "min": "frame.frame_aggregates",
    "parse": "sql.sql_reader",
    "publish": "publication.published_tables",
    "quantile": "frame.frame_aggregates",
    "std": "frame.frame_aggregates",
    "sum": "frame.frame_aggregates",
    "var": "frame.frame_aggregates",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
