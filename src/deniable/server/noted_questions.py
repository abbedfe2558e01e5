"""Questions as text, and as tagged records: the only place that decides which kind of question a text is.

A client sends SQL, or the steps of a dataframe as JSON; no SQL begins with a brace, so the first character decides
(`sent`). The catalogue stores the question of each release as text, so that the answer can be read again. Most notes
are the text that the client sent. Five kinds of releases are not determined by such a text, and are stored as JSON with
a key of their own (`read_note`):

======================  ==============================================  ==============================================
record                  note                                            release
======================  ==============================================  ==============================================
`NotedSQL`              the text                                        an answer to SQL
`NotedSteps`            the steps, as JSON                              an answer to a question of a dataframe
`NotedSet`              {"sets": text, "place": i}                      table i of ROLLUP, CUBE or GROUPING SETS
`NotedShares`           {"shares": text}                                an answer with shares of a total
`NotedBounds`           {"bounds": column, "table": table}              bounds of a column
`NotedSynthesis`        {"synthesis": …, "published": …}                a synthetic table
`NotedStanding`         {"standing": name, "day": day, "sql": text}     an answer to a standing question about a day
======================  ==============================================  ==============================================

`note()` of a record returns its note, which the catalogue stores; `words()` describes the question for people. Notes
are on disk: their spelling must not change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final


@final
@dataclass(frozen=True, slots=True)
class NotedSQL:
    """A question in SQL."""

    text: str

    def note(self) -> str:
        return self.text

    def words(self) -> str:
        return self.text


@final
@dataclass(frozen=True, slots=True)
class NotedSteps:
    """A question of a dataframe: its steps as JSON, not yet read."""

    text: str

    def note(self) -> str:
        return self.text

    def words(self) -> str:
        return self.text


@final
@dataclass(frozen=True, slots=True)
class NotedSet:
    """One table of a question that groups by several sets of keys."""

    text: str
    place: int

    def note(self) -> str:
        return json.dumps({"sets": self.text, "place": self.place})

    def words(self) -> str:
        return f"{self.text} (table {self.place + 1})"


@final
@dataclass(frozen=True, slots=True)
class NotedShares:
    """A question in SQL whose answer has shares of a total."""

    text: str

    def note(self) -> str:
        return json.dumps({"shares": self.text})

    def words(self) -> str:
        return self.text


@final
@dataclass(frozen=True, slots=True)
class NotedBounds:
    """Bounds of a column that were bought."""

    BEGINNING: ClassVar = '{"bounds"'
    """How such a note begins, for a search in the catalogue."""

    column: str
    table: str

    def note(self) -> str:
        return json.dumps({"bounds": self.column, "table": self.table})

    def words(self) -> str:
        return f"bounds of {self.table}.{self.column}"


@final
@dataclass(frozen=True, slots=True)
class NotedSynthesis:
    """A synthetic table: the arguments of the request."""

    BEGINNING: ClassVar = '{"synthesis"'
    """How such a note begins, for a search in the catalogue."""

    asked: Mapping[str, Any]
    published: bool = False

    def note(self) -> str:
        return json.dumps({"synthesis": self.asked, "published": self.published})

    def words(self) -> str:
        columns = "all columns" if self.asked["columns"] is None else ", ".join(self.asked["columns"])
        of = f"{columns} of {self.asked['table']}" if self.asked["table"] else columns
        aim = f", to predict {self.asked['target']}" if self.asked["target"] else ""
        how = "" if (method := self.asked.get("method") or "pairs") == "pairs" else f", method {method}"
        tables = ", by a workload" if self.asked.get("workload") is not None else ""
        return f"synthetic table of {of}{aim}{how}{tables}" + ("; published" if self.published else "")


@final
@dataclass(frozen=True, slots=True)
class NotedStanding:
    """A standing question, answered for one day. Everybody who may see the dataset may read it."""

    name: str
    day: str
    text: str

    def note(self) -> str:
        return json.dumps({"standing": self.name, "day": self.day, "sql": self.text})

    def words(self) -> str:
        return f"{self.text} (standing {self.name}, {self.day})"


SentQuestion = NotedSQL | NotedSteps
NotedQuestion = SentQuestion | NotedSet | NotedShares | NotedBounds | NotedSynthesis | NotedStanding


def sent(text: str) -> SentQuestion:
    """What a client sent: SQL, or the steps of a dataframe. Reads the first character only."""
    return NotedSteps(text) if text.startswith("{") else NotedSQL(text)


def read_note(text: str) -> NotedQuestion:
    """The question of a release, from its note.

    >>> read_note('{"bounds": "age", "table": "visits"}')
    NotedBounds(column='age', table='visits')
    >>> read_note("SELECT 1").words(), read_note('{"sets": "SELECT 1", "place": 0}').words()
    ('SELECT 1', 'SELECT 1 (table 1)')
    >>> asked = '{"table": null, "columns": ["age", "sex"], "target": "sex"}'
    >>> read_note(f'{{"synthesis": {asked}, "published": true}}').words()
    'synthetic table of age, sex, to predict sex; published'
    """
    found = sent(text)
    if isinstance(found, NotedSQL):
        return found
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return found  # building the question refuses it later
    match record:
        case {"bounds": str(column), "table": str(table)}:
            return NotedBounds(column, table)
        case {"sets": str(sql), "place": int(place)}:
            return NotedSet(sql, place)
        case {"shares": str(sql)}:
            return NotedShares(sql)
        case {"standing": str(name), "day": str(day), "sql": str(sql)}:
            return NotedStanding(name, day, sql)
        case {"synthesis": dict(asked)}:
            return NotedSynthesis(asked, published=bool(record.get("published")))
        case _:
            return found


def words_of(text: str) -> str:
    """A noted question in words, for the console."""
    return read_note(text).words()
