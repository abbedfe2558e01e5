"""Attacks on the one budget of a group of people: versions, new names, restarts, appended files, standing questions.

Somebody spends everything, then opens the same people's data in another way. Whatever they try, they must be refused or
be shown the stored answers again, and the ledger must not have charged more than its limit.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import DeniableError
from deniable.ledger import Ledger, Renewal
from deniable.queries import standing_records
from deniable.queries.answer.answer import Answer
from deniable.queries.engines import kept_tables
from deniable.queries.engines.duckdb import DuckDBEngine
from tests.redteam.cases import case

BUDGET = dn.Budget.pure(epsilon=1)
UNIT = dn.Unit.person("who", rows=2)
SCHEMA = {"who": dn.Domain.integer(), "day": dn.Domain.integer(0, 9), "x": dn.Domain.integer(0, 10)}
COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT SUM(x) AS n FROM visits WHERE day < 5"


def people(count: int = 40) -> pd.DataFrame:
    who = np.repeat(np.arange(count), 4)
    return pd.DataFrame({"who": who, "day": np.arange(len(who)) % 10, "x": who * 7 % 11})


def opened(place: Path, source: Any = None, name: str = "visits", **more: Any) -> dn.queries.Session:
    about = {"unit": UNIT, "budget": BUDGET, "schema": SCHEMA, "ledger": place / "ledger"} | more
    return dn.session({name: people() if source is None else source}, **about)


def ask(session: dn.queries.Session, *questions: str) -> list[Answer]:
    """Answers to the questions, at the smallest costs that are worth asking."""
    with session:
        return [session.ask(each, epsilon=0.001) for each in questions or (COUNT, OTHER)]


def renamed(place: Path, **names: str) -> list[Answer]:
    """The same rows with other names of columns."""
    frame = people().rename(columns=names)
    schema = {names.get(each, each): domain for each, domain in SCHEMA.items()}
    return ask(opened(place, frame, unit=dn.Unit.person(names.get("who", "who"), rows=2), schema=schema))


def as_text(place: Path) -> list[Answer]:
    frame = people()
    frame["who"] = "id " + frame["who"].astype(str)
    return ask(opened(place, frame, schema={**SCHEMA, "who": dn.Domain.text()}))


def two_tables(place: Path) -> list[Answer]:
    both = {"visits": people(), "journeys": people()}
    about = {"unit": UNIT, "budget": BUDGET, "ledger": place / "ledger"}
    schema = {"visits": SCHEMA, "journeys": SCHEMA}
    return ask(dn.session(both, schema=schema, **about), "SELECT COUNT(*) AS n FROM journeys")


def linked(place: Path) -> list[Answer]:
    (place / "other").symlink_to(place / "ledger")
    return ask(opened(place, ledger=place / "other"))


def copied(place: Path) -> list[Answer]:
    shutil.copyfile(place / "ledger", place / "other")
    return ask(opened(place, ledger=place / "other"))


def elsewhere(place: Path) -> list[Answer]:
    before = os.getcwd()
    os.chdir(place)
    try:
        return ask(opened(place, ledger="./ledger"))
    finally:
        os.chdir(before)


def without_kept_tables(place: Path) -> list[Answer]:
    shutil.rmtree(place / "ledger.tables", ignore_errors=True)
    return ask(opened(place))


def appended(place: Path) -> list[Answer]:
    folder = place / "visits"
    folder.mkdir()
    people().to_parquet(folder / "1.parquet")
    opened(place, str(folder), version="file").close()
    people().to_parquet(folder / "2.parquet")
    return ask(opened(place, str(folder), version="files"))


def recalled(place: Path) -> list[Answer]:
    with opened(place, version="two") as session:
        found = [session.recall(COUNT, version="one"), session.recall(OTHER, version="one")]
    return [each for each in found if each is not None]


def refined(place: Path) -> list[Answer]:
    with opened(place, version="one") as session:
        first = session.recall(COUNT)
        assert first is not None
        return [session.refine(first, epsilon=0.001)]


def fresh(place: Path) -> list[Answer]:
    with opened(place, version="one") as session:
        return [session.ask(COUNT, epsilon=0.001, fresh=True)]


def keyed(place: Path) -> list[Answer]:
    with opened(place, version="one") as session:
        return [session.ask(OTHER, epsilon=0.001, key="once")]


def batched(place: Path) -> list[Answer]:
    with opened(place, version="one") as session:
        return session.batch([COUNT, OTHER], epsilon=0.001)


def declared(place: Path) -> list[Answer]:
    with opened(place, version="one") as session:
        return session.standing("daily", [COUNT], by="day", epsilon=0.001).reveal(1)


WAYS: dict[str, Callable[[Path], list[Answer]]] = {
    "another session": lambda place: ask(opened(place)),
    "the same version again": lambda place: ask(opened(place, version="one")),
    "a new version": lambda place: ask(opened(place, version="two")),
    "a version of changed rows": lambda place: ask(opened(place, people(41), version="two")),
    "the old name with changed rows": lambda place: ask(opened(place, people(41), version="one")),
    "a renamed table": lambda place: ask(opened(place, name="stays"), "SELECT COUNT(*) AS n FROM stays"),
    "the name in capitals": lambda place: ask(opened(place, name="VISITS")),
    "a renamed column of ids": lambda place: renamed(place, who="patient"),
    "a renamed column": lambda place: renamed(place, x="y"),
    "ids as texts": as_text,
    "more rows of a person": lambda place: ask(opened(place, unit=dn.Unit.person("who", rows=4))),
    "fewer rows of a person": lambda place: ask(opened(place, unit=dn.Unit.person("who", rows=1))),
    "rows as people": lambda place: ask(opened(place, unit=dn.Unit.row())),
    "people who are replaced": lambda place: ask(opened(place, unit=dn.Unit.replaced_person("who", rows=2))),
    "days of people": lambda place: ask(
        opened(place, unit=dn.Unit.person_day("who", "day", rows=2), schema={**SCHEMA, "day": dn.Domain.date()})
    ),
    "a larger budget": lambda place: ask(opened(place, budget=dn.Budget.pure(epsilon=9))),
    "another currency": lambda place: ask(opened(place, budget=dn.Budget(epsilon=1, delta=1e-6))),
    "a budget that renews": lambda place: ask(opened(place, budget=Renewal(BUDGET, per="day", periods=99))),
    "no budget": lambda place: ask(opened(place, budget=None)),
    "wider bounds": lambda place: ask(opened(place, schema={**SCHEMA, "x": dn.Domain.integer(0, 11)})),
    "two tables": two_tables,
    "another path": elsewhere,
    "a symbolic link": linked,
    "a copy of the ledger": copied,
    "the stored tables deleted": without_kept_tables,
    "a file appended": appended,
    "an old version recalled": recalled,
    "an answer refined": refined,
    "asked afresh": fresh,
    "an idempotency key": keyed,
    "a batch": batched,
    "a standing question": declared,
}


@case(
    "B27",
    "all is spent, then the same people are opened as another version, table, unit or budget, with other ids, from "
    "another place, or asked by batches, refinements, keys and standing questions",
    "refused, or the stored answers; nothing is charged beyond the limit",
)
@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_a_second_budget(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "_LEAST", 0)
    with opened(tmp_path, version="one") as session:
        first = session.ask(COUNT, epsilon=0.5, key="once")
        second = session.ask(OTHER, share=1)
        assert session.ledger.remaining.units == 0
    stored = {first["n"], second["n"]}
    try:
        answers = WAYS[way](tmp_path)
    except DeniableError:
        answers = []
    for each in answers:
        assert each.receipt.replayed
        assert each["n"] in stored
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.charged == BUDGET.limit
        ledger.verify()


# -- standing questions ------------------------------------------------------------------------------------------------


def moved(chance: random.Random, frame: pd.DataFrame, day: int) -> pd.DataFrame:
    """The next version: rows erased, doubled, moved to other days, added, and ids written in another way."""
    kind = chance.choice(["erased", "doubled", "moved", "added", "same", "back", "mixed"])
    draw = np.array([chance.random() < 0.4 for _ in range(len(frame))], dtype=bool)
    if kind == "erased":
        return frame[~draw]
    if kind == "doubled":
        return pd.concat([frame, frame[draw]])
    if kind == "moved":
        return frame.assign(day=np.where(draw, min(day + 1, 9), frame["day"]))
    if kind == "added":
        return pd.concat([frame, people(12).assign(day=chance.randrange(10))])
    if kind == "back":
        return people(12)
    if kind == "mixed":
        return frame.sample(frac=1, random_state=chance.randrange(99)).assign(x=frame["x"] * 3 % 11)
    return frame


@pytest.mark.slow
@case(
    "B28",
    "two standing sets over 25 versions that erase, double, move and bring back rows, each in a new session: days out of "
    "order and twice, other spellings of ids, other bounds and units",
    "over all days, no more rows of a person are counted than their bound, in each set; one payment for each",
)
@pytest.mark.parametrize("seed", range(12))
def test_no_history_gives_a_person_more_rows_in_a_standing_set(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    read: dict[str, dict[str, list[Counter[str]]]] = {}
    now = ""
    honest = DuckDBEngine.day

    def watched(self: DuckDBEngine, source: Any, schema: Any, secret: bytes, days: Any, limits: Any) -> Any:
        rows = honest(self, source, schema, secret, days, limits)
        there = Counter(str(each) for each in rows.to_pandas()["who"])
        read.setdefault(now, {}).setdefault(str(days.last), []).append(there)
        return rows

    monkeypatch.setattr(DuckDBEngine, "day", watched)
    frame, costs = people(12), {}
    budget = dn.Budget.pure(epsilon=10)
    for step in range(25):
        day = chance.randrange(10)
        source = frame
        if chance.random() < 0.3:  # another spelling of the same ids
            source = frame.assign(who=frame["who"].map(lambda each: chance.choice([f"{each}", f"0{each}", f" {each}"])))
        schema = {**SCHEMA, "x": dn.Domain.integer(0, chance.choice([5, 10]))}
        unit = dn.Unit.person("who", rows=chance.choice([2, 2, 2, 3]))
        try:
            with opened(tmp_path, source, unit=unit, schema=schema, budget=budget, version=f"v{step}") as session:
                for now in ("daily", "running"):
                    totals = {"totals": 10} if now == "running" else {}
                    made = session.standing(now, [COUNT, OTHER], by="day", epsilon=1, **totals)
                    costs.setdefault(now, made.cost)
                    made.reveal(day)
                    if chance.random() < 0.3:
                        made.reveal(day)
        except DeniableError:
            pass
        frame = moved(chance, frame, day).reset_index(drop=True)
        if len(frame) > 400:
            frame = people(12)
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.verify()
        assert ledger.charged.units <= 2 * budget.cost(epsilon=1).units
        found = {name: standing_records.declaration(ledger, name) for name in read}
    assert read
    for name, days in read.items():
        most: Counter[str] = Counter()
        for runs in days.values():  # a day that is read again has the same rows of each person, or fewer
            most += max(runs, key=Counter.total)
            for each in runs:
                assert each <= max(runs, key=Counter.total)
        record = found[name]
        assert record is not None
        assert max(most.values()) == record["unit"]["rows"]
