"""Each refusal of a text tells a place in it, and a question of the same session that is accepted and can be priced."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlglot

import deniable as dn
from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE, RULES
from deniable.queries.session import Session
from deniable.queries.sql.question_repairs import repaired
from deniable.queries.sql.sql_reader import parse

CORPUS = Path(__file__).parents[3] / "benchmarks" / "sql"
FOREIGN = re.compile(r"\b(visits|stays|wards|patient_id|diagnosis)\b")
MUTATIONS = 60


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[str, tuple[Session, list[str]]]]:
    """A session for each world of the corpus, on one row of each table, and its texts; all is public but the row."""
    sys.path.insert(0, str(CORPUS))
    try:
        import ask
        import worlds as made
    finally:
        sys.path.remove(str(CORPUS))
    before, made.PEOPLE = made.PEOPLE, 50
    opened: dict[str, tuple[Session, list[str]]] = {}
    try:
        for name in ask.WORLDS:
            world = ask.WORLDS[name]()
            few = {each: frame.head(5) for each, frame in world.private.items()}
            s = dn.session(
                few, unit=world.units, schema=dict(world.schema), public=dict(world.public), unique=world.unique,
                owned=world.owned, budget=dn.Budget.gaussian(mu=10, delta=1e-6),
            )  # fmt: skip
            texts = [f"-- dialect: {each.dialect}\n{each.text}" for each in ask.corpus(name)]
            opened[name] = s, texts
        yield opened
    finally:
        made.PEOPLE = before
        for s, _ in opened.values():
            s.close()


def refusal(s: Session, text: str) -> QuestionRefused | None:
    try:
        parse(text, s.tables)
    except QuestionRefused as refused:
        return refused
    return None


def check(s: Session, text: str, refused: QuestionRefused) -> None:
    assert refused.place is not None
    start, end = refused.place
    assert 0 <= start < end <= len(text), (text, refused.place)
    assert refused.instead, text
    s.price(refused.instead, mu=0.1)
    known = {*s.tables, *(name for table in s.tables.values() for name, _ in table.columns), "patient_id"}
    said = [word for word in FOREIGN.findall(str(refused)) if word not in known and word not in text]
    assert said == [], (text, str(refused))


@pytest.mark.slow
def test_each_refused_text_of_the_corpus_is_repaired(worlds: dict[str, tuple[Session, list[str]]]) -> None:
    found = 0
    for s, texts in worlds.values():
        for text in texts:
            refused = refusal(s, text)
            if refused is not None:
                found += 1
                check(s, text, refused)
    assert found >= 30


@pytest.mark.slow
def test_random_mutations_are_repaired(worlds: dict[str, tuple[Session, list[str]]]) -> None:
    """A name misspelt, a function that is not taken, a person as a key, or a word left out."""
    chance = random.Random(60)
    found = 0
    while found < MUTATIONS:
        s, texts = worlds[chance.choice(sorted(worlds))]
        text = mutated(chance, chance.choice(texts))
        refused = refusal(s, text)
        if refused is not None:
            found += 1
            check(s, text, refused)


def mutated(chance: random.Random, text: str) -> str:
    words = list(re.finditer(r"[A-Za-z_]{4,}", text))
    word = chance.choice(words)
    kind = chance.choice(["misspelt", "left out", "random", "entropy", "star"])
    if kind == "misspelt":
        at = word.start() + chance.randrange(1, len(word[0]))
        return text[:at] + text[at + 1 :]
    if kind == "left out":
        return text[: word.start()] + text[word.end() :]
    if kind == "random":
        return text.replace("WHERE ", "WHERE RANDOM() < 0.5 AND ", 1)
    return re.sub(r"COUNT\(\*\)", "ENTROPY(1)" if kind == "entropy" else "LIST(1)", text, count=1)


@pytest.mark.parametrize("name", [each for each in RULES if each not in ("length", "depth", "nodes")])
def test_a_rule_is_told_with_a_repair_of_the_same_text(name: str) -> None:
    from deniable.queries.plan.refusals import EXAMPLE

    with pytest.raises(QuestionRefused) as refused:
        parse(RULES[name].refused, EXAMPLE)
    assert parse(refused.value.instead, EXAMPLE).measures


def test_the_place_is_the_part_that_is_refused() -> None:
    frame = pd.DataFrame({"who": [1], "age": [3]})
    with dn.session({"t": frame}, unit=dn.Unit.person("who", rows=2), budget=dn.Budget.pure(epsilon=1)) as s:
        text = "SELECT COUNT(*) AS n FROM t WHERE age > 2 AND random() < 0.5"
        with pytest.raises(QuestionRefused) as refused:
            s.sql(text, epsilon=0.1)
        assert refused.value.place == (text.index("random"), len(text))
        assert sqlglot.parse_one(refused.value.instead) == sqlglot.parse_one(
            "SELECT COUNT(*) AS n FROM t WHERE age > 2"
        )
        told: Any = refused.value
        assert 'at "random() < 0.5"' in str(told)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM visits WHERE " + " AND ".join(f"age <> {k}" for k in range(100)),
        "SELECT " + ", ".join(f"SUM(ag{k}) AS s{k}" for k in range(200)) + " FROM visits",
        "SELECT x FROM visits WHERE " + " AND ".join(f"age <> {k}" for k in range(2000)),
    ],
    ids=["conditions", "misspelled names", "long"],
)
def test_a_refusal_reads_little_more_than_a_question(text: str) -> None:
    """60 variants of 1,400 characters took 0.7 s, fifty times the question; nobody is charged for a refusal."""
    tried: list[str] = []

    def accepts(each: str) -> bool:
        tried.append(each)
        return each.startswith("SELECT COUNT(*) AS n FROM")

    assert repaired(text, EXAMPLE, accepts).question
    assert sum(map(len, tried)) < 6100
    assert (len(tried) > 1) == (len(text) <= 6000)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT diagnosis FROM visits WHERE age > 60 ORDER BY cost DESC LIMIT 10",
        "SELECT patient_id, cost FROM visits ORDER BY cost DESC LIMIT 10",
        "SELECT cost * 2 AS twice FROM visits",
    ],
)
def test_a_list_of_rows_is_refused_as_a_list_of_rows(text: str) -> None:
    """It was refused because a column was not grouped, or because the id was a key: true of no part of the text."""
    with pytest.raises(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    assert refused.value.code == "star"
    assert parse(refused.value.instead, EXAMPLE).measures


WITHIN = [
    (
        "WITH t AS (SELECT diagnosis AS d, SUM(cost) AS c FROM visits WHERE age > 60 GROUP BY diagnosis) "
        "SELECT city, c FROM wards, t WHERE ward = d AND c > 3",
        "SELECT diagnosis AS d, SUM(cost) AS c FROM visits WHERE age > 60 GROUP BY diagnosis",
    ),
    (
        "SELECT (SELECT AVG(n) FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) AS x) "
        "/ (SELECT MAX(n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) AS y) AS s",
        "SELECT AVG(n) FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) AS x",
    ),
    (
        "SELECT patient_id, ward, weight, SUM(cost) AS c FROM visits GROUP BY patient_id, ward, weight ORDER BY c LIMIT 5",
        "SELECT ward, SUM(cost) AS c FROM visits GROUP BY ward LIMIT 5",
    ),
    (
        "SELECT patient_id, ward, weight, SUM(cost) AS c FROM visits WHERE age > 3 "
        "AND cost > (SELECT AVG(cost) FROM visits) GROUP BY patient_id, ward, weight",
        "SELECT ward, SUM(cost) AS c FROM visits WHERE age > 3 GROUP BY ward",
    ),
]


@pytest.mark.parametrize(("text", "kept"), WITHIN, ids=["a WITH", "a quotient", "keys", "keys and a sub-query"])
def test_a_repair_keeps_what_can_be_asked(text: str, kept: str) -> None:
    """These were repaired to SELECT COUNT(*) FROM one of their tables, which none of them asks for."""
    with pytest.raises(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    assert sqlglot.parse_one(refused.value.instead) == sqlglot.parse_one(kept)


def test_the_least_text_is_refused_because_it_is_of_one_person() -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse("SELECT ward, MIN(diagnosis) AS first FROM visits GROUP BY ward", EXAMPLE)
    assert refused.value.code == "kinds"
    assert "one person" in refused.value.rule


COUNTED = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
PLACED = [
    ("SELECT ward, STRING_AGG(diagnosis, ',') FROM visits GROUP BY ward", "diagnosis, ','", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"),
    ("SELECT ward, MODE(age) FROM visits GROUP BY ward", "MODE(age)", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"),
    ("SELECT ward, COUNT(*) FROM visits FULL JOIN stays USING (patient_id) GROUP BY ward", "stays USING (patient_id)",
     "SELECT ward, COUNT(*) FROM visits JOIN stays USING (patient_id) GROUP BY ward"),
    ("SELECT v.ward, COUNT(*) FROM visits v JOIN visits w ON v.age = w.age GROUP BY v.ward", "visits w ON v.age = w.age",
     "SELECT v.ward, COUNT(*) FROM visits AS v GROUP BY v.ward"),
    ("SELECT ward, COUNT(*) FROM visits, stays GROUP BY ward", "stays", COUNTED),
    ("SELECT ward, city, COUNT(*) FROM visits JOIN wards ON age > beds GROUP BY ward, city", "wards ON age > beds", "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"),
    ("SELECT ward, COUNT(*) FROM visits TABLESAMPLE 10% GROUP BY ward", "visits TABLESAMPLE 10", COUNTED),
    (f"{COUNTED} UNION ALL SELECT 'all', COUNT(*) FROM visits", "ward, COUNT(*) FROM visits GROUP BY ward", COUNTED),
    (f"{COUNTED}; DROP TABLE visits", f"{COUNTED}; DROP TABLE visits", COUNTED),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "instead"), PLACED, ids=[each[1][:20] for each in PLACED])
def test_the_place_is_what_the_repair_leaves_out(text: str, place: str, instead: str) -> None:
    """The place was the first column, which was not at fault, and a join that was refused took the keys with it."""
    with pytest.raises(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    start, end = refused.value.place or (0, 0)
    assert text[start:end] == place
    assert sqlglot.parse_one(refused.value.instead) == sqlglot.parse_one(instead)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [("SELECT `ward`, COUNT(*) AS n FROM `visits` GROUP BY `ward`", "bigquery"), ("SELECT TOP 3 ward, COUNT(*) AS n FROM visits GROUP BY ward", "snowflake")],
)  # fmt: skip
def test_a_text_in_another_dialect_is_told_its_dialect(text: str, dialect: str) -> None:
    with pytest.raises(QuestionRefused) as refused:
        parse(text, EXAMPLE)
    assert refused.value.instead == f"-- dialect: {dialect}\n{text}"
    assert parse(refused.value.instead, EXAMPLE).measures


def test_a_text_in_double_quotes_is_not_read_in_another_dialect() -> None:
    """There "A" can be a text: the same letters would be another question."""
    with pytest.raises(QuestionRefused) as refused:
        parse('SELECT COUNT(*) FROM `visits` WHERE "ward" = 3', EXAMPLE)
    assert "dialect" not in refused.value.instead
