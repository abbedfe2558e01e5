"""Two servers that differ by one person, of whom every cell is odd and could be recognised anywhere."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from deniable.queries.plan.refusals import EXAMPLE
from deniable.server.app import served
from deniable.server.catalogue.catalogue import Person
from deniable.server.curator import Curator
from deniable.server.operations.settings import Settings
from deniable.server.request_bodies import BudgetBody
from deniable.server.requests import request_desk
from deniable.server.requests.answer_times import AnswerGrid
from deniable.server.roles import Role
from deniable.tables.kinds import Kind
from deniable.tables.schema import Table, write_schema
from tests.queries.test_neighbours import PLAIN
from tests.server.world import PEOPLE, Client, World

CANARIES = ("ZEBRA-7731", "zebra-7731", "987654321012345", "1187-06-07")
"""In text, numbers and dates, and in the name of the person. Long enough not to occur by chance in a hash or a token:
15 digits stand somewhere in 10⁷ random hex digits with probability 10⁷ · 16⁻¹⁵ < 1e-10."""

ODD: dict[Kind, tuple[Any, ...]] = {
    Kind.INTEGER: (9876543210123450, -9876543210123450, 987654321012345),
    Kind.REAL: ("987654321012345.5", "nan", "-inf"),
    Kind.TEXT: ("ZEBRA-7731@example.org", "=cmd|ZEBRA-7731", "2024-02-30 ZEBRA-7731"),
    Kind.DATE: (dt.date(1187, 6, 7), "bad-date-ZEBRA-7731", dt.date(9999, 12, 31)),
    Kind.TIMESTAMP: (dt.datetime(1187, 6, 7), "ZEBRA-7731", None),
    Kind.BOOLEAN: ("ZEBRA-7731", True, None),
}
WITHIN = 30.0
"""The step of the grid by which the class of an answer's time is told here: far above what any question needs."""


def rows(table: Table, values: dict[Kind, tuple[Any, ...]], people: list[str]) -> list[dict[str, Any]]:
    whose = table.unit.column if table.unit is not None else None
    found = []
    for place, person in enumerate(people):
        row = {name: values[domain.kind][place % 3] for name, domain in table.columns if name != whose}
        found.append(row if whose is None else {**row, whose: person})
    return found


@dataclass
class Watched(World):
    """A world of which everything that left it is kept."""

    emitted: list[str] = field(default_factory=list)
    classes: list[float] = field(default_factory=list)

    def seen(self, response: Any) -> Any:
        self.emitted += [response.text, str(response.headers)]
        return response

    def call(self, who: str | None, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.seen(super().call(who, method, path, body, **more))


def neighbour(folder: Path, *, odd: bool) -> Watched:
    """The example tables behind a server, with or without the person.

    The budget's δ is the chance that a name of this person alone is ever shown among keys that are not public: 1e-10.
    """
    for name, table in EXAMPLE.items():
        found = rows(table, PLAIN, [f"p{i % 7}" for i in range(30)])
        if odd and table.unit is not None:
            found += rows(table, ODD, ["ZEBRA-7731"] * 40)
        pd.DataFrame(found).astype(object).to_csv(folder / f"{name}.csv", index=False)
    settings = Settings(state=folder / "state", data=(folder,), grid=0.001, rate=1e6, burst=1_000_000)
    curator = Curator(settings)
    world = Watched(folder, curator, Client(served(curator)))
    for role, name in PEOPLE.items():
        world.newcomer(name, role)
    owner = Person("olga", Role.OWNER)
    schema = json.loads(write_schema(EXAMPLE, form="json"))
    files = {name: f"{name}.csv" for name in EXAMPLE}
    curator.register(owner, "visits", files, schema, BudgetBody(epsilon=1000.0, delta=1e-10))
    curator.grant(owner, "visits", "ana", None, None)
    return world


def record_classes(monkeypatch: Any, world: Watched) -> None:
    """Instead of waiting, write down in which class of times an answer would have left."""
    import time

    async def leave(self: AnswerGrid, arrived: float) -> None:
        world.classes.append(AnswerGrid(WITHIN).due(time.monotonic() - arrived))

    monkeypatch.setattr(request_desk.AnswerGrid, "leave", leave)


_MISSING, _BARE = "a missing number", "a number without ±"


def _without_numbers(papers: dict[str, Any], *, known: bool) -> dict[str, Any]:
    """What is sent for programs, but for the noisy numbers, the keys if they are not public, and the ledger's serial
    number, which is drawn at random.
    """
    assert re.fullmatch("[0-9a-f]{32}", papers.get("ledger", "0" * 32))
    papers = {name: value for name, value in papers.items() if name != "ledger"}
    if "released" not in papers:
        return papers
    released = json.loads(papers["released"])
    noisy = {"parts"} if known else {"parts", "groups"}
    kept = {name: value for name, value in released.items() if name not in noisy}
    kept["measured"] = [[each[0].partition(":")[2], *each[1:]] for each in kept["measured"]]
    return {**papers, "released": kept}


def visible(response: Any) -> Any:
    """All that can be seen of an answer but for its noisy numbers: two neighbours must agree on it."""
    said = response.json()
    headers = {name: value for name, value in response.headers.items() if name not in {"date", "content-length"}}
    if response.status_code != 200 or "columns" not in said:
        return response.status_code, headers, said
    papers = {name: value for name, value in said["provenance"].items() if name != "time"}
    known = not any("keys are not public" in note for note in said["notes"])
    rest = {name: value for name, value in said.items() if name not in {"rows", "intervals", "provenance"}}
    rest["papers"] = _without_numbers(said["papers"], known=known)
    measured = [place for place, name in enumerate(said["columns"]) if name in said["measured"]]
    # Two notes are about the noisy numbers. They must say what these show, and so nothing more.
    missing = any(row[place] is None for row in said["rows"] for place in measured)
    assert any(_MISSING in note for note in said["notes"]) == missing
    rest["notes"] = [note for note in said["notes"] if _MISSING not in note and _BARE not in note]
    keys = [[cell for place, cell in enumerate(row) if place not in measured] for row in said["rows"]]
    return response.status_code, headers, rest, papers, keys if known else None
