"""A registration writes to the ledger and to the catalogue; if it is interrupted, it is completed or undone in both.

A dataset that joins a family is first named in the family's ledger, then recorded in the catalogue. In between, the
ledger has a name that the catalogue does not have, which looks like a catalogue that was rolled back. So the record is
first stored in the catalogue as an intention. The next registration, or the next start, checks whether the ledger has
the name, and completes or withdraws the intention.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import final

from deniable.errors import DeniableError
from deniable.ledger import Ledger
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord
from deniable.server.catalogue.people import look
from deniable.server.datasets.data_marks import FORM, Marks, Sketch
from deniable.server.datasets.open_datasets import ledger_place
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem


@final
@dataclass(frozen=True, slots=True)
class NewRegistration:
    """Everything that the catalogue stores of a new dataset."""

    record: DatasetRecord
    version: str
    """A keyed hash of the files and of how they are read (`data_marks.version_of`)."""
    marks: set[str]
    sketches: dict[str, str]
    profiles: dict[str, str]
    overlaps: set[str]

    @classmethod
    def of(
        cls,
        record: DatasetRecord,
        version: str,
        marks: Mapping[str, Marks],
        sketches: Mapping[str, Sketch],
        alike: Iterable[DatasetRecord],
    ) -> NewRegistration:
        """From the marks and sketches of the files; `alike` are datasets of any owner that share many ids or rows."""
        return cls(
            replace(record, form=FORM),
            version,
            set().union(*(each.all for each in marks.values())),
            {table: each.text for table, each in sketches.items()},
            {table: each.profile.text for table, each in marks.items() if each.profile.tells},
            {each.name for each in alike if each.owner != record.owner},
        )

    @property
    def text(self) -> str:
        """The registration as JSON."""
        found = {**asdict(self), "marks": sorted(self.marks), "overlaps": sorted(self.overlaps)}
        return json.dumps(found)

    @classmethod
    def read(cls, text: str) -> NewRegistration:
        """The registration from its JSON."""
        found = json.loads(text)
        record, marks, overlaps = DatasetRecord(**found["record"]), set(found["marks"]), set(found["overlaps"])
        return cls(record, found["version"], marks, found["sketches"], found.get("profiles", {}), overlaps)

    def add(self, catalogue: Catalogue) -> None:
        """Add the dataset to the catalogue, and delete the intention."""
        catalogue.add_dataset(self.record, self.marks, self.sketches, self.profiles, self.overlaps)


def check_new_name(name: str, known: Iterable[str]) -> None:
    """Raise Problem `exists` if a dataset has this name, or one that looks the same to people."""
    for other in known:
        if other == name:
            raise Problem("exists", f"the dataset {name!r} exists already; choose another name")
        if look(other) == look(name):
            raise Problem(
                "exists", f"{name!r} looks like the dataset {other!r}, which exists already; choose another name"
            )


def settle(settings: Settings, catalogue: Catalogue) -> None:
    """Complete every interrupted registration whose name the ledger has, and withdraw the others.

    The caller holds `Catalogue.registering`, so that no registration is running. If a ledger cannot be read, its
    intention stays, and `forgotten_spending` refuses new registrations.
    """
    for name, text in catalogue.guards.intentions().items():
        begun = NewRegistration.read(text)
        kin = [each.name for each in catalogue.datasets() if each.family == begun.record.family]
        with (
            suppress(DeniableError),
            Ledger.inspect(ledger_place(settings, begun.record.family), dataset=kin[0]) as found,
        ):
            if (name, begun.version) in [(each.name, each.version) for each in found.links()]:
                begun.add(catalogue)
            else:
                catalogue.guards.withdraw(name)
