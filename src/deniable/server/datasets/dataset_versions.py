"""New versions of a dataset: other files of the same people, under the same name, with the same budget.

The owner declares a version by a name and says which files it has. The server compares the files with all known data,
as at a registration: files of other families, and files with most ids or rows of them, are refused, so a new version
cannot move people from one budget to another. The version is declared in the family's ledger, and then recorded in the
catalogue. If the server stops in between, the old version is still served, and the same request again completes the
declaration.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from deniable.errors import InvalidParameter
from deniable.ledger import Ledger
from deniable.server.catalogue.catalogue import DatasetRecord, Person
from deniable.server.datasets import kinship
from deniable.server.datasets.data_marks import FORM, Marks, Sketch, marks_of, sketch_of
from deniable.server.datasets.open_datasets import tables_of
from deniable.server.datasets.registration_steps import settle
from deniable.server.datasets.row_profiles import ProfileHistory
from deniable.server.datasets.source_folders import allowed
from deniable.server.operations.server_identity import claim
from deniable.server.problems import Problem
from deniable.tables.schema import Table, write_schema

if TYPE_CHECKING:
    from deniable.server.curator import Curator


@final
class DatasetVersions:
    """Declares and lists the versions of datasets. `marking` is the secret that recognises known data."""

    def __init__(self, curator: Curator, marking: bytes) -> None:
        self._curator, self._marking = curator, marking

    def listed(self, person: Person, dataset: str) -> dict[str, Any]:
        """The declared versions of a dataset, oldest first, and the one that questions are asked about."""
        record = self._curator.visible(person, dataset)
        return {"dataset": dataset, "version": record.version, "versions": _names(self._ledger(record), record)}

    def declare(
        self, person: Person, dataset: str, version: str, sources: dict[str, str], schema: str | dict[str, Any] | None
    ) -> dict[str, Any]:
        """Declare a version: from now on, questions are about these files. Answers about earlier versions stay.

        `sources` names the files of the tables that changed; other tables keep theirs. Without a `schema` the dataset
        keeps its schema. Raises Problem `ledger_mismatch` if the version was declared with other data.
        """
        curator = self._curator
        curator.watch.check()
        folders = curator.folders(person)
        given = {table: allowed(source, folders) for table, source in sources.items()}
        with curator.catalogue.registering():
            claim(curator.settings.state, curator.catalogue)
            settle(curator.settings, curator.catalogue)
            old = curator.catalogue.dataset(dataset)
            if old is None or old.owner != person.name:
                raise Problem("not_found", f"no dataset of yours is called {dataset!r}")
            tables = tables_of(old.schema if schema is None else schema)
            files = {**{table: Path(path) for table, path in old.sources.items() if table in tables}, **given}
            if missing := sorted({*files} - {*tables}):
                raise InvalidParameter(
                    "schema", missing[0], "is not in the schema", f"the schema declares {', '.join(tables)}"
                )
            marks = {table: marks_of(path, tables[table], self._marking) for table, path in files.items()}
            sketches = {table: sketch_of(path, tables[table], self._marking) for table, path in files.items()}
            self._check(person, old, tables, marks, files, sketches)
            record = replace(
                old,
                sources={table: str(path) for table, path in files.items()},
                contents={table: marks[table].content for table in files},
                schema=write_schema({table: tables[table] for table in files}, form="json"),
                version=version,
                form=FORM,
            )
            opened = curator.datasets.opened(record)  # this declares the version in the ledger
            curator.datasets.witness.note(record.family, opened.session.ledger)
            known = set().union(*(each.all for each in marks.values()))
            # Ids and rows of all versions: the people of earlier ones have spent from this budget.
            before, rows = curator.catalogue.guards.sketches(), curator.catalogue.guards.profiles()
            histories = {
                table: ProfileHistory.read(rows.get((dataset, table), "")).with_newer(each.profile)
                for table, each in marks.items()
            }
            profiles = {table: each.text for table, each in histories.items() if each.profiles}
            ids = {
                table: each.with_earlier(Sketch.read(before.get((dataset, table), ""))).text
                for table, each in sketches.items()
            }
            curator.catalogue.replace_version(old, record, known, ids, profiles)
            curator.renewed(opened)
        return {**curator.described(person, dataset), "declared": self.listed(person, dataset)["versions"]}

    def _check(
        self,
        person: Person,
        old: DatasetRecord,
        tables: dict[str, Table],
        marks: dict[str, Marks],
        files: dict[str, Path],
        sketches: dict[str, Sketch],
    ) -> None:
        """Raise an error unless this data may be a version of the dataset."""
        catalogue = self._curator.catalogue
        kinship.renew(catalogue, self._marking)
        kinship.check_public(catalogue, tables, marks, files, self._marking)
        families = kinship.recognised(catalogue, tables, marks, files, self._marking)
        kin = kinship.kin_of(catalogue, person, families | {old.family})
        kinship.check_tables([each for each in kin if each.name != old.name], marks)
        alike = kinship.Alike.of(catalogue, sketches, marks)
        kinship.check_version(catalogue, person, old, alike)
        kinship.check_unit([old], {table: tables[table] for table in files}, alike)

    def _ledger(self, record: DatasetRecord) -> Ledger:
        return self._curator.datasets.ledger(record)


def _names(ledger: Ledger, record: DatasetRecord) -> list[str]:
    return list(dict.fromkeys(each.version for each in ledger.versions() if each.table in record.sources))
