"""Whose budget a new dataset spends from: one of its own, or that of a family whose people it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deniable.errors import NOTHING, InvalidParameter
from deniable.ledger import Budget
from deniable.server.bodies import BudgetBody
from deniable.server.catalogue import Catalogue, DatasetRecord, Person
from deniable.server.datasets import budget_of, tables_of
from deniable.server.families import Marks
from deniable.server.problems import Problem


def kin_of(
    catalogue: Catalogue, person: Person, marks: Mapping[str, Marks], files: Mapping[str, Path], family: str | None
) -> list[DatasetRecord]:
    """The datasets that the new one shares its budget with, oldest first."""
    families = _filed(catalogue, marks, files)
    if family is not None:
        record = catalogue.dataset(family)
        if record is None or record.owner != person.name:
            raise Problem("not_found", f"you have no dataset {family!r}")
        families.add(record.family)
    for each in marks.values():
        families |= {name for name, known in catalogue.marked(each.all).items() if each.related(known)}
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


def limit_of(kin: list[DatasetRecord], marks: Mapping[str, Marks], budget: BudgetBody | None) -> Budget:
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
    return fixed
