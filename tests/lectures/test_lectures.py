"""Every item of the five courses runs, says what an independent answer says, and has a place on a page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import deniable as dn
from deniable import attacks, curves
from tests.lectures.courses import COURSES, Course
from tests.lectures.errata import ERRATA
from tests.lectures.item import Item, agrees, found
from tests.lectures.page import TABLE, table
from tests.lectures.wanted import WANTED
from tests.wording import worded

ITEMS = [item for course in COURSES for item in course.items]


def marked(item: Item) -> Any:
    marks = ([pytest.mark.slow] if item.slow else []) + ([getattr(pytest.mark, item.needs)] if item.needs else [])
    return pytest.param(item, id=item.id, marks=marks)


@pytest.mark.parametrize("item", [marked(item) for item in ITEMS])
def test_the_item_says_what_is_true(item: Item) -> None:
    item.check()


RUNS_ONE = Item("x", "an item", "curves.gaussian", lambda: curves.gaussian(mu=1).gdp(), 1.0)


@pytest.mark.parametrize(
    "name",
    [
        "curves.laplace",
        "curves.Curve.kl",
        "curves.Curve.forward",
        "curves.Kernel",
        "curves.textbook",
        "Laplace.scale",
        "attacks.HOSPITAL_A",
        "errors.WeakPrivacyWarning",
    ],
)
def test_a_name_that_the_item_never_runs_is_caught(name: str) -> None:
    RUNS_ONE.check()
    with worded(AssertionError) as refused:
        replace(RUNS_ONE, api=f"curves.gaussian, {name}").check()
    assert name in str(refused.value).split()


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("curves.Curve", lambda: curves.gaussian(mu=1).gdp()),
        ("curves.Curve.forward", lambda: curves.gaussian(mu=1).forward.kl() * 2),
        ("curves.Kernel", lambda: len(curves.Kernel.of([[1.0], [1.0]]).matrix) / 2),
        ("mechanisms.Mechanism.curve", lambda: dn.Gaussian(sensitivity=1.0, mu=1).curve.gdp()),
        ("attacks.HOSPITAL_A", lambda: len(attacks.HOSPITAL_A["zip"]) / 12),
    ],
)
def test_a_name_that_the_item_runs_is_seen(name: str, ours: Any) -> None:
    replace(RUNS_ONE, api=name, ours=ours, within=1e-6).check()


def test_a_truth_that_runs_the_library_is_caught() -> None:
    with pytest.raises(AssertionError, match="not independent"):
        replace(RUNS_ONE, truth=lambda: curves.gaussian(mu=1).gdp()).check()


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.page)
def test_no_item_is_left_out(course: Course) -> None:
    wanted, seen = WANTED[course.page], Counter(item.id for item in course.items)
    assert sorted(set(wanted) - set(seen)) == [], "items of the course that the list lacks"
    assert sorted(set(seen) - set(wanted)) == [], "items that the course lacks"
    assert [number for number, times in seen.items() if times > 1] == []


def test_the_courses_have_306_items() -> None:
    numbers = [number for wanted in WANTED.values() for number in wanted]
    assert len(numbers) == len(set(numbers)) == 306


@pytest.mark.parametrize("item", [pytest.param(item, id=item.id) for item in ITEMS])
def test_the_names_of_the_item_are_public(item: Item) -> None:
    for name in item.names():
        assert not any(part.startswith("_") for part in name.split(".")), name
        if not (item.needs or name.startswith("learn")):
            found(name)


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.page)
def test_every_item_has_its_place_on_the_page(course: Course) -> None:
    page = TABLE.with_name(course.page).read_text(encoding="utf-8")
    assert [item.id for item in course.items if page.count(f'<a id="{item.anchor}"></a>') != 1] == []
    assert course.cited in page


def test_the_table_is_current() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "run: python -m tests.lectures"


@pytest.mark.parametrize(
    ("ours", "truth"),
    [
        (1.0, 1.1),
        ("1/4", "3/4"),
        (True, False),
        (1, True),
        (2e-25, 1e-25),
        ([1.0], [1.0, 2.0]),
        ([1.0, 3.0], [1.0, 2.0]),
        ({1: 2}, {1: 3}),
    ],
)
def test_what_differs_does_not_agree(ours: Any, truth: Any) -> None:
    assert agrees(truth, truth, within=1e-9)
    assert not agrees(ours, truth, within=1e-9)


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.page)
def test_every_erratum_is_told_and_demonstrated_by_numbers(course: Course) -> None:
    page = TABLE.with_name(course.page).read_text(encoding="utf-8")
    boxes = dict(re.findall(r'!!! \w+ "([^"]*)"\n((?:    .*\n|\n)*)', page))
    wanted = {title for titles in ERRATA[course.page] for title in titles}
    assert sorted(wanted - set(boxes)) == [], "errata that the page does not tell"
    assert sorted(set(boxes) - wanted) == [], "boxes that the list of errata lacks"
    assert [title for title, told in boxes.items() if ">>>" not in told] == []


def test_the_courses_have_46_errata() -> None:
    assert sum(len(told) for told in ERRATA.values()) == 46
