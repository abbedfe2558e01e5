"""Whose budget a new dataset spends from: one of its own, or that of a family whose people it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import final

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.ledger import Budget
from deniable.ledger.keys import SigningKey
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord, Person
from deniable.server.datasets.data_marks import FORM, KNOWN, Marks, Sketch, digest, id_columns, marks_of, sketch_of
from deniable.server.datasets.open_datasets import Datasets, budget_of, tables_of, unit_of
from deniable.server.datasets.row_profiles import Profile
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.tables.schema import Table
from deniable.units import Unit


def recognised(
    catalogue: Catalogue, tables: Mapping[str, Table], marks: Mapping[str, Marks], files: Mapping[str, Path], key: bytes
) -> set[str]:
    """The families that this data belongs to, by its files and by its marks, whichever of its columns has the ids."""
    families = _filed(catalogue, marks, files)
    others = (_by_ids(catalogue, tables[name], path, key) for name, path in files.items() if tables[name].unit)
    for each in chain(marks.values(), chain.from_iterable(others)):
        families |= {name for name, known in catalogue.marked(each.sought).items() if each.related(known)}
    same = _with_profiles(catalogue, marks, lambda new, old: new.is_same(old))
    return families | {record.family for record in catalogue.datasets() if record.name in same}


def _by_ids(catalogue: Catalogue, table: Table, path: Path, key: bytes) -> Iterator[Marks]:
    """The marks of a table by each other column that has ids of people who are known.

    A schema may say that every row is its own person, that another number is, or that nobody is protected.
    """
    known = [Sketch.read(text) for text in catalogue.guards.sketches().values()]
    own = None if table.unit is None else table.unit.column
    for name in id_columns(path, known, key):
        if name != own:
            read = replace(table, unit=Unit.person(name, rows=1))
            yield marks_of(path, read, key, by_ids=True)


def renew(catalogue: Catalogue, secret: bytes) -> None:
    """Make the marks and sketches of datasets from before anew, in the form of today, from files that are what they
    were. Where a file is not, what was kept stays as it is, and it is tried again before the next registration.
    """
    for record in catalogue.datasets():
        if record.form < FORM:
            marks, sketches, profiles = set(), {}, {}
            for table, schema in tables_of(record.schema).items():
                path = Path(record.sources[table])
                with suppress(OSError, DeniableError):
                    if digest(path) == record.contents.get(table):
                        made = marks_of(path, schema, secret)
                        marks |= made.all
                        sketches[table] = sketch_of(path, schema, secret).text
                        if made.profile.tells:
                            profiles[table] = made.profile.text
            whole = sketches.keys() == record.sources.keys()
            catalogue.renew(record, marks, sketches, profiles, FORM if whole else record.form)


def named(catalogue: Catalogue, person: Person, dataset: str | None) -> set[str]:
    """The family of a dataset of this owner's, if one is named."""
    if dataset is None:
        return set()
    record = catalogue.dataset(dataset)
    if record is None or record.owner != person.name:
        raise Problem("not_found", f"you have no dataset {dataset!r}")
    return {record.family}


def kin_of(catalogue: Catalogue, person: Person, families: set[str]) -> list[DatasetRecord]:
    """The datasets that the new one shares its budget with, oldest first."""
    if len(families) > 1:
        rule = "hold people of several datasets with budgets of their own"
        raise InvalidParameter("sources", NOTHING, rule, "register them one by one")
    found = [each for each in catalogue.datasets() if each.family in families]
    if any(each.owner != person.name for each in found):
        # Its ledger would become theirs too: they could raise its limit, and read what others asked.
        raise Problem("forbidden", "these people are in a dataset of somebody else; its owner may register them")
    return sorted(found, key=lambda each: each.made)


def _filed(catalogue: Catalogue, marks: Mapping[str, Marks], files: Mapping[str, Path]) -> set[str]:
    """The families that have one of these files, by its contents or its place, whatever their marks say."""
    private = [table for table, found in marks.items() if found.sure]
    contents, places = {marks[table].content for table in private}, {str(files[table]) for table in private}
    return {
        record.family
        for record in catalogue.datasets()
        for table, schema in tables_of(record.schema).items()
        if schema.unit is not None and (record.contents.get(table) in contents or record.sources.get(table) in places)
    }


def check_public(
    catalogue: Catalogue, tables: Mapping[str, Table], marks: Mapping[str, Marks], files: Mapping[str, Path], key: bytes
) -> None:
    """InvalidParameter where a table is declared public, and people are protected in it in a dataset of anybody: by its
    file, or by the cells of its people or rows, in whichever format. A list of the same people with other columns is
    another table, and may be public.
    """
    for name, path in files.items():
        if tables[name].unit is None and _is_protected(catalogue, tables[name], marks[name].content, path, key):
            rule = "is declared public, and its people are protected in a dataset that is registered"
            raise InvalidParameter("schema", name, rule, "say whose rows these are, with person and rows")


def _is_protected(catalogue: Catalogue, table: Table, content: str, path: Path, key: bytes) -> bool:
    for record in catalogue.datasets():
        for name, schema in tables_of(record.schema).items():
            if schema.unit is not None and (
                record.contents.get(name) == content or record.sources.get(name) == str(path)
            ):
                return True
    rows = replace(marks_of(path, replace(table, unit=Unit.row()), key), sure=frozenset())
    if _with_profiles(catalogue, {table.name: rows}, lambda new, old: new.is_same(old)):
        return True
    return any(
        each.related(known)
        for each in chain([rows], _by_ids(catalogue, table, path, key))
        for known in catalogue.marked(each.sought).values()
    )


def limit_of(
    kin: list[DatasetRecord], tables: Mapping[str, Table], marks: Mapping[str, Marks], budget: BudgetBody | None
) -> Budget:
    """The budget: of the family, or a new one."""
    asked = None if budget is None else budget_of(budget)
    if not kin:
        if asked is None:
            raise InvalidParameter("budget", None, "must be given", 'write {"epsilon": 1, "delta": 1e-6}')
        return asked
    for each in kin:
        for table, found in marks.items():
            if each.contents.get(table, found.content) != found.content:
                # Its old answers are kept under the table's name, and would be given for the new data.
                rule = "is the name of other data of this family"
                raise InvalidParameter("sources", table, rule, "give the table another name")
    fixed = Budget.from_dict(kin[0].budget)
    if asked is not None and asked != fixed:
        raise Problem("ledger_mismatch", "this data has a budget already; leave the budget out, or adjust it")
    unit, known = unit_of(tables[each] for each in marks), unit_of(tables_of(kin[0].schema).values())
    if unit != known:
        said = (
            f"asked to protect {unit.describe()}, but this data is known, and the budget that it has, of "
            f"{kin[0].name!r}, protects {known.describe()}; declare the same in the schema, and give the column of ids "
            "its old name in the file"
        )
        raise Problem("ledger_mismatch", said, {"field": "unit"})
    return fixed


# -- the same ids ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """What an owner says of data most of whose ids or rows are known: the same people, or others, and why."""

    people: str | None = None
    reason: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Alike:
    """The datasets of any owner that have most of the new ids, or whose rows look like the new ones; oldest first."""

    ids: list[DatasetRecord]
    rows: list[DatasetRecord]

    @classmethod
    def of(cls, catalogue: Catalogue, sketches: Mapping[str, Sketch], marks: Mapping[str, Marks]) -> Alike:
        """By what is kept of the datasets that are there."""
        records = sorted(catalogue.datasets(), key=lambda each: each.made)
        alike = _with_profiles(catalogue, marks, lambda new, old: new.is_alike(old))
        found = [_alike_in_ids(catalogue, records, sketches), alike]
        return cls(*([record for record in records if record.name in names] for names in found))

    @property
    def all(self) -> list[DatasetRecord]:
        """Both."""
        return [*self.ids, *(each for each in self.rows if each not in self.ids)]


def _alike_in_ids(catalogue: Catalogue, records: list[DatasetRecord], sketches: Mapping[str, Sketch]) -> set[str]:
    """The datasets that have most of these ids, or most of whose ids are here.

    Where no single one has, all those of an owner that have most of them together.
    """
    read = [(dataset, Sketch.read(text)) for (dataset, _), text in catalogue.guards.sketches().items()]
    found = {name for name, old in read if any(each.share_known(old) >= KNOWN for each in sketches.values())}
    for owner in {record.owner for record in records} - {record.owner for record in records if record.name in found}:
        names = {record.name for record in records if record.owner == owner}
        theirs = [(name, old) for name, old in read if name in names]
        for each in sketches.values():
            if each.share_among(old for _, old in theirs) >= KNOWN:
                found |= {name for name, old in theirs if not each.every.isdisjoint(old.kept)}
    return found


def _with_profiles(
    catalogue: Catalogue, marks: Mapping[str, Marks], test: Callable[[Profile, Profile], bool]
) -> set[str]:
    """The datasets one of whose profiles passes a test with one of the new ones."""
    new = [each.profile for each in marks.values() if each.profile.tells]
    olds = ((dataset, Profile.read(text)) for (dataset, _), text in catalogue.guards.profiles().items() if new)
    return {dataset for dataset, old in olds if any(test(each, old) for each in new)}


def asked(person: Person, known: Alike, families: set[str], choice: Choice) -> set[str]:
    """The families of a new dataset most of whose ids or rows are known: those that it has, or the one that its owner
    says.

    Only the owner's own data is told to them: which ids are in another's is none of their business.
    """
    by = "ids" if own_of(person, known.ids) else "rows"
    own = own_of(person, known.ids) or own_of(person, known.rows)
    mine = [] if any(each.family in families for each in own) else own  # the owner has named one of those
    if choice.people == "same":
        found = families | {each.family for each in mine}
        if len(found) != 1:
            rule = "fits where the ids or rows are those of one dataset of yours"
            raise InvalidParameter("people", "same", rule, "leave it out, or name the dataset with family")
        return found
    if mine and choice.people is None:
        names = [each.name for each in mine]
        choices = {
            "same": "the same people: one budget, which goes on",
            "others": "other people who look alike here: a budget of their own, and a reason that auditors read",
        }
        said = {"ids": "most of these ids are those of", "rows": "these rows look like those of"}[by]
        words = f"{said} {_listed(mine)}. Say people: same, or people: others with a reason"
        raise Problem("same_people", words, {"datasets": names, "choices": choices, "by": by})
    return families


def own_of(person: Person, known: list[DatasetRecord]) -> list[DatasetRecord]:
    """Those of this owner."""
    return [each for each in known if each.owner == person.name]


def sign(datasets: Datasets, key: SigningKey, record: DatasetRecord, known: Alike, choice: Choice) -> None:
    """Write what the owner chose into the ledger of the dataset, and into those whose people are said to be others."""
    beside = [each for each in known.all if each.owner == record.owner]
    if choice.people is None:
        return
    whose = f"those of {_listed(beside)}" if beside else "those of the owner's other datasets"
    if choice.people == "same":
        words = f"the people of {record.name!r} are the same people as {whose}"
    else:
        words = f"the people of {record.name!r} are others than {whose}, however their data looks: {choice.reason}"
    for each in {each.family: each for each in [*beside, record]}.values():
        ledger = datasets.ledger(each)
        ledger.state(words, by=record.owner, key=key)
        datasets.witness.note(each.family, ledger)


def _listed(records: list[DatasetRecord]) -> str:
    return ", ".join(repr(each.name) for each in records)
