"""A registration in two places, the ledger and the catalogue: begun in one, it is finished or withdrawn in both.

Kin gets its name in the ledger of its family first, and its record in the catalogue afterwards. In between the ledger
knows a name that the catalogue does not, which is what a catalogue that is older than its ledgers looks like. So the
whole record is written into the catalogue before, as an intention; whoever next registers something, or starts, looks
whether the ledger has the name by now.
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
    """All that the catalogue is to know of a new dataset."""

    record: DatasetRecord
    version: str
    """A keyed hash of its files and of how they are read."""
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
        """From what was found in the files; `alike` are the datasets of anybody that have many of the same ids
        or rows."""
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
        """To be kept as an intention."""
        found = {**asdict(self), "marks": sorted(self.marks), "overlaps": sorted(self.overlaps)}
        return json.dumps(found)

    @classmethod
    def read(cls, text: str) -> NewRegistration:
        """As it was written."""
        found = json.loads(text)
        record, marks, overlaps = DatasetRecord(**found["record"]), set(found["marks"]), set(found["overlaps"])
        return cls(record, found["version"], marks, found["sketches"], found.get("profiles", {}), overlaps)

    def add(self, catalogue: Catalogue) -> None:
        """Let the catalogue know it, and forget the intention."""
        catalogue.add_dataset(self.record, self.marks, self.sketches, self.profiles, self.overlaps)


def check_new_name(name: str, known: Iterable[str]) -> None:
    """A name that no dataset has, nor one that people would read as the same: their receipts and limits name it."""
    for other in known:
        if other == name:
            raise Problem("exists", f"there is a dataset {name!r} already; choose another name")
        if look(other) == look(name):
            raise Problem("exists", f"{name!r} looks like the dataset {other!r}, which is here; choose another name")


def settle(settings: Settings, catalogue: Catalogue) -> None:
    """Finish every registration that was broken off after the ledger got the name, and withdraw the others.

    Whoever calls this holds `Catalogue.registering`: then none is under way. Where a ledger cannot be read it stays as
    it is, and so does everything else, see `forgotten_spending`.
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
