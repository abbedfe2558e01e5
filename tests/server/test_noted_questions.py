"""Notes of releases: every kind is read back as what it was, and spelled as those on disk."""

from __future__ import annotations

import pytest

from deniable.server.noted_questions import (
    NotedBounds,
    NotedQuestion,
    NotedSet,
    NotedShares,
    NotedSQL,
    NotedSteps,
    NotedSynthesis,
    read_note,
    sent,
    words_of,
)

STEPS = '{"from":"visits","steps":[{"verb":"agg","values":[],"named":{}}]}'
ASKED = {"table": "visits", "columns": None, "target": None}

# What earlier versions wrote, letter by letter.
ON_DISK: list[tuple[str, NotedQuestion, str]] = [
    ("SELECT COUNT(*) FROM visits", NotedSQL("SELECT COUNT(*) FROM visits"), "SELECT COUNT(*) FROM visits"),
    (STEPS, NotedSteps(STEPS), STEPS),
    ('{"sets": "SELECT \\u00e9", "place": 2}', NotedSet("SELECT é", 2), "SELECT é (table 3)"),
    ('{"shares": "SELECT 1"}', NotedShares("SELECT 1"), "SELECT 1"),
    ('{"bounds": "age", "table": "visits"}', NotedBounds("age", "visits"), "bounds of visits.age"),
    (
        '{"synthesis": {"table": "visits", "columns": null, "target": null}, "published": true}',
        NotedSynthesis(ASKED, published=True),
        "synthetic table of all columns of visits; published",
    ),
    (
        '{"synthesis": {"table": null, "columns": ["a"], "target": null, "method": "mst"}, "published": false}',
        NotedSynthesis({"table": None, "columns": ["a"], "target": None, "method": "mst"}),
        "synthetic table of a, method mst",
    ),
]


@pytest.mark.parametrize(("text", "record", "words"), ON_DISK, ids=[each[2] for each in ON_DISK])
def test_a_note_is_read_and_written_as_it_is_on_disk(text: str, record: NotedQuestion, words: str) -> None:
    assert read_note(text) == record
    assert record.note() == text
    assert words_of(text) == words


def test_notes_that_are_searched_begin_as_the_search_says() -> None:
    for record in (NotedBounds("age", "visits"), NotedSynthesis(ASKED)):
        assert record.note().startswith(record.BEGINNING)


@pytest.mark.parametrize(
    "text", ["{", "{}", "{" * 100_000, '{"bounds": 3}', '{"sets": "SELECT 1"}', '{"shares": null}']
)
def test_what_is_no_note_is_left_to_whoever_builds_a_question_of_it(text: str) -> None:
    assert read_note(text) == NotedSteps(text)
    assert words_of(text) == text


def test_a_client_cannot_send_a_note() -> None:
    """Whatever begins with a brace is read as steps of a dataframe, and refused if it is none."""
    for text, record, _ in ON_DISK:
        assert sent(text) == (NotedSQL(text) if isinstance(record, NotedSQL) else NotedSteps(text))
