"""The table of all items: docs/course/table.md, made by `python -m tests.lectures`."""

from __future__ import annotations

from pathlib import Path

from tests.lectures.courses import COURSES

TABLE = Path(__file__).parents[2] / "docs" / "course" / "table.md"


def table() -> str:
    count = sum(len(course.items) for course in COURSES)
    lines = [
        "# Every item of the courses",
        "",
        f"{count} definitions, theorems, examples, exercises and figures: the names of the library that compute each, and the place in "
        "the course pages that explains it. Each is run and compared with an independent value by `tests/lectures`, from the list "
        "that also makes this table (`python -m tests.lectures`).",
        "",
        "The numbers are this table's own and follow the order of each course; F is a figure, E an exercise. A link leads to the "
        "lines of an item. They may use names that are defined further up on their page: run a page from its top.",
    ]
    for course in COURSES:
        if not course.items:
            continue
        lines += [
            "",
            f"## {course.title}",
            "",
            f"{course.cited}.",
            "",
            "| item | what it is | in the library |",
            "|---|---|---|",
        ]
        for item in course.items:
            names = ", ".join(f"`{name}`" for name in item.names())
            lines.append(f"| [{item.id}]({course.page}#{item.anchor}) | {item.title.replace('|', '/')} | {names} |")
    return "\n".join(lines) + "\n"
