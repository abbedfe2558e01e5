"""Any text at all gives a question or one of our refusals: from a grammar, by cutting and gluing, and from raw bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from deniable.errors import REFUSALS, QuestionRefused
from deniable.queries.plan.question import Question
from deniable.queries.plan.refusals import EXAMPLE, RULES
from deniable.queries.sql.sql_reader import parse
from deniable.tables.schema import Schema, Table
from deniable.units import Unit

BY_ROW: Schema = {
    name: table if table.unit is None else Table(name, table.columns, Unit.row()) for name, table in EXAMPLE.items()
}

COLUMNS = {
    "number": ["age", "cost", "visits.age"],
    "text": ["ward", "diagnosis"],
    "date": ["visited"],
    "truth": ["age > 3", "cost IS NULL", "ward = 'A'"],
}
CONSTANTS = {
    "number": ["0", "1", "-3", "2.5", "NULL"],
    "text": ["'A'", "''", "'a b'"],
    "date": ["'2024-01-01'", "DATE '2024-02-29'"],
    "truth": ["TRUE", "FALSE", "NULL"],
}
SHAPES = {
    "number": [
        "{number} + {number}", "{number} - {number}", "{number} * {number}", "{number} / {number}", "{number} % {number}",
        "-{number}", "ABS({number})", "FLOOR({number})", "CEIL({number})", "ROUND({number})", "ROUND({number}, 1)",
        "SQRT({number})", "LN({number})", "EXP({number})", "POWER({number}, 2)", "LEAST({number}, {number})",
        "GREATEST({number}, 0)", "CASE WHEN {truth} THEN {number} ELSE {number} END", "COALESCE({number}, 0)",
        "NULLIF({number}, {number})", "CAST({text} AS DOUBLE)", "LENGTH({text})", "YEAR({date})",
        "EXTRACT(month FROM {date})", "DATE_DIFF('day', {date}, {date})", "WIDTH_BUCKET({number}, 0, 100, 10)",
        "SIGN({number})", "TRUNC({number})", "({number})", "{number}::BIGINT", "EXTRACT(DOW FROM {date})",
        "DATE_DIFF('month', {date}, {date})", "EXTRACT(EPOCH FROM {date})", "EXTRACT(WEEK FROM {date})",
        "POSITION('a' IN {text})", "DATE_DIFF('minute', {date}, {date})",
    ],
    "text": [
        "LOWER({text})", "UPPER({text})", "TRIM({text})", "LEFT({text}, 2)", "SUBSTRING({text}, 1, 3)", "{text} || {text}",
        "SUBSTRING({text}, 2, 2)", "SPLIT_PART({text}, 'a', 2)", "REPLACE({text}, 'a', 'xyz')", "STRFTIME({date}, '%Y-%m')",
        "CONCAT({text}, 'x')", "CASE WHEN {truth} THEN 'yes' END", "CAST({date} AS VARCHAR)", "COALESCE({text}, 'none')",
    ],
    "date": ["DATE_TRUNC('month', {date})", "CAST({text} AS DATE)", "COALESCE({date}, {date})", "({date})", "{date} + INTERVAL 3 MONTH",
             "{date} - INTERVAL 2 DAY"],
    "truth": [
        "{number} > {number}", "{number} <= {number}", "{text} = {text}", "{date} <> {date}", "{text} LIKE '%a_'",
        "{text} NOT ILIKE 'X%'", "{text} IN ('A', 'B')", "{number} NOT IN (1, 2.5)", "{number} BETWEEN 1 AND 5",
        "NOT {truth}", "{truth} AND {truth}", "{truth} OR {truth}", "{text} IS NOT NULL", "({truth}) IS TRUE",
        "STARTS_WITH({text}, 'a')", "{date} >= '2024-01-01'",
    ],
}  # fmt: skip
WILD = [
    "patient_id", "v.cost", "s.place", "n", "height", "1e308", "1e999", "9223372036854775808", "'\\\\'", "DATE '2024-02-30'",
    "random()", "LOG({number})", "@{number}", "{number} // 2", "{number} ^ {number}", "{text} ~ 'x'", "{number} -> 1", "?",
    "CAST({number} AS INT[])", "CAST({text} AS VARCHAR(3))", "{number} IS DISTINCT FROM 1", "DAYNAME({date})",
    "(SELECT AVG(cost) FROM visits)", "patient_id IN (SELECT patient_id FROM stays)", "EXISTS (SELECT 1)", "COUNT(*)",
    "SUM({number}) OVER ()", "DATE_TRUNC('eon', {date})", "CURRENT_DATE", "INTERVAL 1 DAY", "[1, 2]", "{{'a': 1}}", "*",
    "{text} IN ({text})", "WIDTH_BUCKET({number}, 5, 0, 10)", "error('x')", "{number}.{text}", "((", "))", "CASE", "::",
]  # fmt: skip
AGGREGATES = [
    "COUNT(*)", "COUNT({text})", "COUNT(DISTINCT patient_id)", "COUNT(DISTINCT {text})", "SUM(age)", "AVG(cost)",
    "SUM(LEAST(GREATEST({number}, 0), 10))", "AVG(LEAST(GREATEST({number}, 0), 10))", "STDDEV(cost)", "VAR_POP(age)",
    "MEDIAN(cost)", "QUANTILE(cost, 0.9)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY cost)", "MIN(age)", "MAX(cost)",
    "COUNT_IF({truth})", "COUNT(*) FILTER (WHERE {truth})", "SUM(CASE WHEN {truth} THEN 1 ELSE 0 END)",
    "SUM(cost) / COUNT(*)", "ROUND(AVG(cost), 2)", "SUM(cost, contribution_bounds_per_row => (0, 10))",
    "SUM(cost, contribution_bounds_per_group => (0, 10))",
]  # fmt: skip
WILD_AGGREGATES = [
    "ANY_VALUE(ward)", "STRING_AGG(ward)", "SUM(DISTINCT age)", "MODE(ward)", "SUM(AVG(cost))", "QUANTILE(cost, 2)",
    "AVG(cost, contribution_bounds_per_cat => (x, 1e400))", "SUM({text})", "SUM(weight)", "COUNT(DISTINCT age, ward)",
]  # fmt: skip
SOURCES = [
    "visits", "visits", "visits AS v", "(SELECT * FROM visits)", "(SELECT *, cost * 2 AS twice FROM visits WHERE {truth})",
    "visits JOIN stays USING (patient_id)", "visits LEFT JOIN wards USING (ward)",
    "visits JOIN (SELECT patient_id, MAX(days) AS most FROM stays GROUP BY patient_id) USING (patient_id)",
    "(SELECT * FROM visits WHERE age < 9 UNION ALL SELECT * FROM visits WHERE age >= 9)",
    "visits AS visits JOIN wards AS w ON visits.ward = w.ward",
]  # fmt: skip
WILD_SOURCES = [
    "nowhere", "read_csv('x')", "'f.csv'", "a.b.c", "visits AS v(a, b)", "information_schema.tables", "wards",
    "(VALUES (1)) AS t(x)", "visits JOIN (SELECT ward FROM wards) USING (ward)", "visits, stays", "visits CROSS JOIN stays", "visits FULL JOIN stays USING (patient_id)",
    "visits NATURAL JOIN stays", "visits USING SAMPLE 3", "(SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
]  # fmt: skip


class Grammar:
    """Random SQL: of the dialect, but for a share of wild things put where they do not belong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.wild = 0.0

    def filled(self, shape: str, depth: int) -> str:
        for kind in SHAPES:
            while "{" + kind + "}" in shape:
                shape = shape.replace("{" + kind + "}", self.scalar(kind, depth - 1), 1)
        return shape

    def scalar(self, kind: str, depth: int) -> str:
        if self.chance.random() < self.wild:
            return self.filled(self.chance.choice(WILD), depth)
        if depth <= 0 or self.chance.random() < 0.3:
            return self.chance.choice(COLUMNS[kind] * 2 + CONSTANTS[kind])
        return self.filled(self.chance.choice(SHAPES[kind]), depth)

    def any(self, good: list[str], wild: list[str], depth: int) -> str:
        return self.filled(self.chance.choice(wild if self.chance.random() < self.wild else good), depth)

    def maybe(self, text: str, odds: float) -> str:
        return text if self.chance.random() < odds else ""

    def question(self) -> str:
        self.wild = self.chance.choice([0.0, 0.0, 0.02, 0.2])
        keys = [self.scalar(self.chance.choice(list(SHAPES)), 2) for _ in range(self.chance.choice([0, 0, 1, 1, 2]))]
        items = keys + [self.any(AGGREGATES, WILD_AGGREGATES, 2) for _ in range(self.chance.choice([1, 1, 2]))]
        listed = ", ".join(f"{item} AS c{place}" for place, item in enumerate(items))
        privacy = self.maybe(
            f"WITH DIFFERENTIAL_PRIVACY {self.maybe('OPTIONS (epsilon = 1, delta = 1e-6)', 0.7)} ", 0.1
        )
        tail = self.maybe(f" WHERE {self.scalar('truth', 3)}", 0.5)
        if keys:
            tail += " GROUP BY " + ", ".join(str(place + 1) for place in range(len(keys)))
        tail += self.maybe(f" HAVING c0 IS NULL OR {self.any(AGGREGATES, WILD_AGGREGATES, 1)} > 3", 0.1)
        tail += self.maybe(f" ORDER BY c0 {self.maybe('DESC', 0.5)} {self.maybe('NULLS FIRST', 0.3)}", 0.2)
        tail += self.maybe(" LIMIT 3", 0.1)
        return f"SELECT {privacy}{listed} FROM {self.any(SOURCES, WILD_SOURCES, 2)}{tail}"


def asks(text: str) -> Question | QuestionRefused:
    """What a text comes to: nothing but these two."""
    tables = EXAMPLE if len(text) % 3 else BY_ROW
    start = time.process_time()
    answer: Question | QuestionRefused
    try:
        answer = parse(text, tables)
    except QuestionRefused as refused:
        answer = refused
    assert time.process_time() - start < 10, text  # no text makes the front compute for long
    if isinstance(answer, QuestionRefused):
        assert answer.code in REFUSALS
        assert len(str(answer)) < 2000
    return answer


def of_the_grammar(chance: random.Random) -> Iterator[str]:
    grammar = Grammar(chance)
    while True:
        yield grammar.question()


def cut_and_glued(chance: random.Random) -> Iterator[str]:
    texts = [each for rule in RULES.values() for each in (rule.refused, rule.rewrite) if len(each) < 500]
    while True:
        one, two = chance.choice(texts), chance.choice(texts)
        words = one[: chance.randint(0, len(one))].split(" ") + two[chance.randint(0, len(two)) :].split(" ")
        for _ in range(chance.randint(0, 3)):
            place = chance.randrange(len(words))
            words[place] = chance.choice([*WILD, *AGGREGATES, "(", ")", ",", ";", "--", "/*", chance.choice(words)])
        yield " ".join(words)


def raw_bytes(chance: random.Random) -> Iterator[str]:
    while True:
        raw = bytes(chance.choice([chance.randrange(256), 32, 40, 41]) for _ in range(chance.randint(0, 60)))
        text = raw.decode(chance.choice(["latin-1", "utf-8", "utf-16-le"]), errors=chance.choice(["replace", "ignore"]))
        yield chance.choice(["", "SELECT ", "SELECT COUNT(*) FROM visits WHERE "]) + text


def bent_bytes(chance: random.Random) -> Iterator[str]:
    """Questions with a few bytes changed, doubled or left out."""
    grammar = Grammar(chance)
    while True:
        raw = bytearray(grammar.question().encode())
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(raw))
            match chance.randrange(3):
                case 0:
                    raw[place] = chance.randrange(256)
                case 1:
                    raw[place:place] = raw[place : place + chance.randint(1, 20)]
                case _:
                    del raw[place : min(place + chance.randint(1, 5), len(raw) - 1)]
        yield raw.decode("utf-8", errors="replace")


SORTS = (of_the_grammar, cut_and_glued, raw_bytes, bent_bytes)
"""The long run takes all of them by the hundred thousand: python -m tests.queries.long_run"""


@pytest.mark.slow
def test_texts_of_the_grammar() -> None:
    good = sum(isinstance(asks(text), Question) for text in islice(of_the_grammar(random.Random(1)), 1200))
    assert 300 < good < 900  # the grammar reaches both sides of the border


@pytest.mark.parametrize(
    "sort",
    [pytest.param(sort, marks=pytest.mark.slow) if sort in (bent_bytes, cut_and_glued) else sort for sort in SORTS[1:]],
    ids=lambda sort: sort.__name__,
)
def test_texts_that_are_hardly_sql(sort: Callable[[random.Random], Iterator[str]]) -> None:
    for text in islice(sort(random.Random(2)), 800):
        asks(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "", " ", ";", ";;", "SELECT", "--", "/*", "'", '"', "$$", "\x00", "SELECT COUNT(*) FROM visits\x00", "\ud800",
        "SELECT COUNT(*) FROM visits -- " + "x" * 9000,
        "SELECT COUNT(*) FROM visits WHERE " + "NOT " * 2000 + "TRUE",
        "SELECT COUNT(*) FROM visits WHERE age > " + "- " * 4000 + "1",
        "SELECT COUNT(*) FROM visits WHERE " + " AND ".join(["age > 1"] * 900),
        "SELECT COUNT(*) FROM visits WHERE age > " + "+".join(["1"] * 4000),
        "SELECT " + "a." * 3000 + "a FROM visits",
        "SELECT " + ", ".join(["COUNT(*)"] * 900) + " FROM visits",
        "ſELECT COUNT(*) FROM visits",  # upper() makes this a keyword
        "SELECT COUNT(*) FROM ｖisits",
        "SELECT COUNT(*) FROM visits; DROP TABLE visits",
        "SELECT COUNT(*) FROM visits /* ; */ ;",
        "WITH " + ", ".join(f"c{i} AS (SELECT x+x AS x FROM c{i - 1})" if i else "c0 AS (SELECT cost AS x FROM visits)" for i in range(200)) + " SELECT SUM(x) FROM c199",
        "SELECT COUNT(*) FROM visits WHERE diagnosis LIKE '" + "%a" * 400 + "'",
        "SELECT CASE WHEN ward LIKE '" + "%a" * 400 + "' THEN 1 END, COUNT(*) FROM visits GROUP BY 1",
        "SELECT age, ward, visited, MONTH(visited), COUNT(*) FROM visits GROUP BY 1, 2, 3, 4",
        "SELECT age, age + 1, age + 2, COUNT(*) FROM visits GROUP BY 1, 2, 3",
        "SELECT POWER(10, POWER(10, POWER(10, 10))), COUNT(*) FROM visits",
        "SELECT EXP(EXP(EXP(age))) > 1, COUNT(*) FROM visits GROUP BY 1",
        "SELECT SUM(age" + " * age" * 200 + ") FROM visits",
        "SELECT " + " + ".join(["(age % 80) * (age % 100)"] * 90) + ", COUNT(*) FROM visits GROUP BY 1",
        "SELECT visited, COUNT(*) FROM visits GROUP BY visited HAVING visited > '2024-01-01' ORDER BY visited <> '2024-01-01'",
        "SELECT COUNT(*) FROM visits WHERE WIDTH_BUCKET(1, , 100, 10) > 2",
    ],
    ids=range(35),
)  # fmt: skip
def test_texts_that_were_made_to_hurt(text: str) -> None:
    asks(text)
