"""Questions about whole people are refused where the unit is a person's day or week.

Registration gives each day (or week) of a person an id of its own, and bounds the rows of each id. So in every step of
a question, "the person" of a proof is such an id, and all sensitivities hold for one day of one person added or
removed. The name of the person's column would mean another thing: a join or a group by it brings rows of different days
together, and one day of a person could then move the rows of all other days. So this name is refused, and so are joins
of private tables.
"""

from __future__ import annotations

from collections.abc import Iterable

from deniable.errors import QuestionRefused
from deniable.tables.schema import Table


def check_whole_people(tables: Iterable[Table]) -> None:
    """Raise `QuestionRefused` if the unit is a person's day or week: then no step may speak of a whole person."""
    for table in tables:
        if table.unit is not None and table.unit.period is not None:
            raise QuestionRefused(
                "person",
                f"the unit is a person's {table.unit.period}: people are not counted, joined or grouped by, because "
                f"one {table.unit.period} of a person could move all their rows",
                "count rows, or open the session with Unit.person(column, rows=)",
            )
