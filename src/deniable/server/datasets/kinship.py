"""Decides which budget a new dataset spends from: a new budget, or the budget of a family with the same people.

A family is a set of datasets whose people overlap; it has one ledger and one budget. A registration asks in this order:

1. `recognised`: is the data known, by its files, marks or rows? Then it joins that family.
2. `asked`: are most of its ids known, or do its rows look alike? Then the owner must say whether they are the same
   people (the data joins the family) or others (it gets a new budget, and the reason is signed into the ledgers).
3. Otherwise it gets a new budget.

Data of another owner's family is refused (`kin_of`). A table that is declared public is refused if its people are
protected elsewhere (`check_public`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import final

from deniable.errors import NOTHING, DeniableError, InvalidParameter
from deniable.ledger import Budget, Renewal
from deniable.ledger.keys import SigningKey
from deniable.ledger.renewal import read_budget
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord, Person
from deniable.server.datasets.data_marks import FORM, KNOWN, Marks, Sketch, digest, id_columns, marks_of, sketch_of
from deniable.server.datasets.open_datasets import Datasets, new_budget_of, tables_of, unit_of
from deniable.server.datasets.row_profiles import Profile, ProfileHistory
from deniable.server.problems import Problem
from deniable.server.request_bodies import BudgetBody
from deniable.tables.schema import Table
from deniable.units import Unit


def recognised(
    catalogue: Catalogue, tables: Mapping[str, Table], marks: Mapping[str, Marks], files: Mapping[str, Path], key: bytes
) -> set[str]:
    """The families that this data belongs to, by its files, marks and profiles, with any column as ids."""
    families = _filed(catalogue, marks, files)
    others = (_by_ids(catalogue, tables[name], path, key) for name, path in files.items() if tables[name].unit)
    for each in chain(marks.values(), chain.from_iterable(others)):
        families |= {name for name, known in catalogue.marked(each.sought).items() if each.related(known)}
    same = _with_profiles(catalogue, marks, lambda new, old: new.is_same(old))
    return families | {record.family for record in catalogue.datasets() if record.name in same}


def _by_ids(catalogue: Catalogue, table: Table, path: Path, key: bytes) -> Iterator[Marks]:
    """The marks of a table, computed for each column that holds known ids although the schema does not declare it as
    ids.

    The schema may declare another column as ids, or that every row is a person, or that the table is public.
    """
    known = [Sketch.read(text) for text in catalogue.guards.sketches().values()]
    own = None if table.unit is None else table.unit.column
    for name in id_columns(path, known, key):
        if name != own:
            read = replace(table, unit=Unit.person(name, rows=1))
            yield marks_of(path, read, key, by_ids=True)


def renew(catalogue: Catalogue, secret: bytes) -> None:
    """Compute marks, sketches and profiles of older datasets again, in today's canonical form, from unchanged files.

    If a file has changed or is missing, its old marks stay, and the next registration tries again. Sketches and
    profiles of earlier versions stay: their files may be gone.
    """
    ids, rows = catalogue.guards.sketches(), catalogue.guards.profiles()
    for record in catalogue.datasets():
        if record.form < FORM:
            marks, sketches, profiles = set(), {}, {}
            for table, schema in tables_of(record.schema).items():
                path = Path(record.sources[table])
                with suppress(OSError, DeniableError):
                    if digest(path) == record.contents.get(table):
                        made = marks_of(path, schema, secret)
                        marks |= made.all
                        earlier = Sketch.read(ids.get((record.name, table), ""))
                        sketch = sketch_of(path, schema, secret)
                        sketches[table] = (sketch.with_earlier(earlier) if earlier.versions else sketch).text
                        history = ProfileHistory.read(rows.get((record.name, table), ""))
                        several = history if len(history.profiles) > 1 else ProfileHistory()
                        if found := several.with_newer(made.profile).profiles:
                            profiles[table] = ProfileHistory(found).text
            whole = sketches.keys() == record.sources.keys()
            catalogue.renew(record, marks, sketches, profiles, FORM if whole else record.form)


def named(catalogue: Catalogue, person: Person, dataset: str | None) -> set[str]:
    """The family of a dataset that the owner named; empty for None. Raises Problem `not_found`."""
    if dataset is None:
        return set()
    record = catalogue.dataset(dataset)
    if record is None or record.owner != person.name:
        raise Problem("not_found", f"no dataset of yours is called {dataset!r}")
    return {record.family}


def kin_of(catalogue: Catalogue, person: Person, families: set[str]) -> list[DatasetRecord]:
    """The datasets of the family, oldest first.

    Raises InvalidParameter if there are several families, and Problem `forbidden` if the family has another owner.
    """
    if len(families) > 1:
        rule = "must not hold people of several datasets that have separate budgets"
        raise InvalidParameter("sources", NOTHING, rule, "register them one by one")
    found = [each for each in catalogue.datasets() if each.family in families]
    if any(each.owner != person.name for each in found):
        # Otherwise both would own the ledger: this person could raise its limit, and read the questions of others.
        raise Problem("forbidden", "a dataset of another owner holds these people; only that owner may register them")
    return sorted(found, key=lambda each: each.made)


def _filed(catalogue: Catalogue, marks: Mapping[str, Marks], files: Mapping[str, Path]) -> set[str]:
    """The families that have a private table with the content or the path of one of these files."""
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
    """Raise InvalidParameter if a table is declared public whose people a registered dataset of any owner protects.

    The file is compared, and the cells of people and rows. A list of the same people with other columns is another
    table, and may be public.
    """
    for name, path in files.items():
        if tables[name].unit is None and _is_protected(catalogue, tables[name], marks[name].content, path, key):
            rule = "must not be declared public: a registered dataset protects its people"
            raise InvalidParameter("schema", name, rule, "declare whose rows these are, with person and rows")


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
    kin: list[DatasetRecord],
    tables: Mapping[str, Table],
    marks: Mapping[str, Marks],
    budget: BudgetBody | None,
    known_by: tuple[Alike, Choice],
) -> Budget | Renewal:
    """The budget: of the family, or a new one. `known_by`: the datasets that look alike, and the owner's declaration.

    Raises InvalidParameter or Problem `ledger_mismatch` if the request contradicts the family's budget or unit.
    """
    asked = None if budget is None else new_budget_of(budget)
    if not kin:
        if asked is None:
            raise InvalidParameter("budget", None, "must be given", 'write {"epsilon": 1, "delta": 1e-6}')
        return asked
    check_tables(kin, marks)
    fixed = read_budget(kin[0].budget)
    if asked is not None and asked != fixed:
        raise Problem(
            "ledger_mismatch", "this data has a budget already; leave the budget out, or change it by an adjustment"
        )
    alike, choice = known_by
    check_unit(kin, {name: tables[name] for name in marks}, alike, is_declared=choice.people == "same")
    return fixed


def check_unit(
    kin: list[DatasetRecord], tables: Mapping[str, Table], known: Alike, *, is_declared: bool = False
) -> None:
    """Raise Problem `ledger_mismatch` unless these tables protect the people of the family.

    A column of ids under a new name must hold most of the family's ids, or the owner must have declared, in a signed
    entry, that these are the same people (`is_declared`). Otherwise the number of a visit could be declared as the id
    of a person: the noise would hide a visit, and the ledger would state that it hides a person.
    """
    unit, before = unit_of(tables.values()), unit_of(tables_of(kin[0].schema).values())
    asked = f"the schema protects {unit.describe()}, but this data already has the budget of {kin[0].name!r}, "
    protects = f"which protects {before.describe()}"
    if not unit.is_alike(before):
        raise Problem("ledger_mismatch", f"{asked}{protects}; declare the same unit, people or rows", {"field": "unit"})
    columns = {each.unit.column for record in kin for each in tables_of(record.schema).values() if each.unit}
    new = {each.unit.column for each in tables.values() if each.unit} - columns
    if new and not is_declared and not any(each.family == kin[0].family for each in known.ids):
        remedy = "declare the column that has the ids of these people"
        words = f"{asked}{protects}, whose ids are not in the declared column; {remedy}"
        raise Problem("ledger_mismatch", words, {"field": "unit"})


def check_tables(kin: list[DatasetRecord], marks: Mapping[str, Marks]) -> None:
    """Raise InvalidParameter if a table has the name of other data of the family."""
    for each in kin:
        for table, found in marks.items():
            if each.contents.get(table, found.content) != found.content:
                # Old answers are stored under the table's name, and would be given for the new data.
                rule = f"is already the name of other data, in the dataset {each.name!r} of this family"
                remedy = "declare a new version of that dataset, or give the table another name"
                raise InvalidParameter("sources", table, rule, remedy)


# -- the same ids ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """The owner's declaration about known ids or rows. `people` is "same", "others" (then with a `reason`), or None if
    the owner has not declared anything.
    """

    people: str | None = None
    reason: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Alike:
    """Datasets of any owner that share most `ids` with the new one, or whose `rows` look alike; oldest first."""

    ids: list[DatasetRecord]
    rows: list[DatasetRecord]

    @classmethod
    def of(cls, catalogue: Catalogue, sketches: Mapping[str, Sketch], marks: Mapping[str, Marks]) -> Alike:
        """Compare new sketches and profiles with all stored ones."""
        records = sorted(catalogue.datasets(), key=lambda each: each.made)
        alike = _with_profiles(catalogue, marks, lambda new, old: new.is_alike(old))
        found = [_alike_in_ids(catalogue, records, sketches), alike]
        return cls(*([record for record in records if record.name in names] for names in found))

    @property
    def all(self) -> list[DatasetRecord]:
        """Both lists, each dataset once."""
        return [*self.ids, *(each for each in self.rows if each not in self.ids)]


def _alike_in_ids(catalogue: Catalogue, records: list[DatasetRecord], sketches: Mapping[str, Sketch]) -> set[str]:
    """The datasets that contain most of these ids, or whose own ids are mostly among these.

    If no single dataset of an owner qualifies, but all datasets of this owner together have most of these ids, those
    with some of the ids are returned.
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
    """The datasets with a profile that passes `test(new, old)` for one of the new profiles."""
    new = [each.profile for each in marks.values() if each.profile.tells]
    olds = _profiles(catalogue) if new else []
    return {dataset for dataset, old in olds if any(test(each, old) for each in new)}


def _profiles(catalogue: Catalogue) -> Iterator[tuple[str, Profile]]:
    """The stored profiles of all versions of all tables, each with the name of its dataset."""
    for (dataset, _), text in catalogue.guards.profiles().items():
        for each in ProfileHistory.read(text).profiles:
            yield dataset, each


def asked(person: Person, known: Alike, families: set[str], choice: Choice) -> set[str]:
    """The families of a new dataset, after the owner's `choice`. `families` are the families that the owner named.

    Raises Problem `same_people` if a choice is needed. It names only datasets of this owner: a person must not learn
    which ids are in the data of others.
    """
    by = "ids" if own_of(person, known.ids) else "rows"
    own = own_of(person, known.ids) or own_of(person, known.rows)
    mine = (
        [] if any(each.family in families for each in own) else own
    )  # the owner has named the family of such a dataset
    if choice.people == "same":
        found = families | {each.family for each in mine}
        if len(found) != 1:
            rule = "is allowed only if the ids or rows are those of exactly one dataset of yours"
            raise InvalidParameter("people", "same", rule, "leave it out, or name the dataset with family")
        return found
    if mine and choice.people is None:
        names = [each.name for each in mine]
        choices = {
            "same": "the same people: the data continues to spend from the existing budget",
            "others": "other people with similar ids or rows: a separate budget, and a reason that auditors read",
        }
        known_by_words = {"ids": "most of these ids are those of", "rows": "these rows look like those of"}[by]
        words = f"{known_by_words} {_listed(mine)}. Send people: same, or people: others with a reason"
        raise Problem("same_people", words, {"datasets": names, "choices": choices, "by": by})
    return families


def check_version(catalogue: Catalogue, person: Person, old: DatasetRecord, known: Alike) -> None:
    """Raise Problem `ledger_mismatch` if a version of `old` has ids or rows of this owner's data with another budget.

    Its people would have two budgets. A dataset that the earlier versions of `old` resemble already is passed over:
    when the later of both was registered, the owner declared that they have different people.
    """
    before = _resembled(catalogue, old)
    new = [each for each in own_of(person, known.all) if each.family != old.family and each.name not in before]
    if new:
        by = "ids" if any(each in known.ids for each in new) else "rows"
        looks = {"ids": "most of these ids are those of", "rows": "these rows look like those of"}[by]
        words = f"{looks} {_listed(new)}, and a version cannot give people the budget of another dataset"
        remedy = "declare a version of the dataset that has these people, or register the files as a new dataset"
        raise Problem("ledger_mismatch", f"{words}; {remedy}", {"datasets": [each.name for each in new]})


def _resembled(catalogue: Catalogue, old: DatasetRecord) -> set[str]:
    """The datasets that the earlier versions of `old` resemble in ids or rows."""
    sketches = [(name, Sketch.read(text)) for (name, _), text in catalogue.guards.sketches().items()]
    profiles = list(_profiles(catalogue))
    ids = [each for name, each in sketches if name == old.name]
    rows = [each for name, each in profiles if name == old.name]
    found = {name for name, other in sketches if any(each.share_stored(other) >= KNOWN for each in ids)}
    return found | {name for name, other in profiles if any(each.is_alike(other) for each in rows)}


def own_of(person: Person, known: list[DatasetRecord]) -> list[DatasetRecord]:
    """The datasets of this owner."""
    return [each for each in known if each.owner == person.name]


def sign(datasets: Datasets, key: SigningKey, record: DatasetRecord, known: Alike, choice: Choice) -> None:
    """Write the owner's choice, signed, into the ledgers of the new dataset and of those that it is about."""
    beside = [each for each in known.all if each.owner == record.owner]
    if choice.people is None:
        return
    whose = f"those of {_listed(beside)}" if beside else "those of the owner's other datasets"
    if choice.people == "same":
        words = f"the people of {record.name!r} are the same people as {whose}"
    else:
        words = f"the people of {record.name!r} are not {whose}, although their data looks alike: {choice.reason}"
    for each in {each.family: each for each in [*beside, record]}.values():
        ledger = datasets.ledger(each)
        ledger.state(words, by=record.owner, key=key)
        datasets.witness.note(each.family, ledger)


def _listed(records: list[DatasetRecord]) -> str:
    return ", ".join(repr(each.name) for each in records)
