"""Detects spending that the catalogue has forgotten, for example after an old backup of it was restored.

As long as spending is forgotten, "new" data may be known data, and would get a fresh budget. So nothing is registered.

A ledger stores the names of all datasets that spend from it, each with a keyed hash of its data. So a rolled-back
catalogue is detected by families and names that it does not know. The owner can register forgotten data again under its
old name, if the hash agrees. A ledger that is missing, or rolled back, may have held names that nobody else knows; that
also stops registrations.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deniable.errors import DeniableError
from deniable.ledger import EVERYBODY, Budget, Checkpoint, Cost, Ledger, Renewal
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.datasets.open_datasets import ledger_place
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem

Strays = dict[tuple[str, str], str | None]
"""Forgotten names: (family, name) -> the hash of the data, if the ledger has one. An empty name means the family."""

_LOG: Final = logging.getLogger("deniable.server")
_OLDER: Final = (
    "the server's catalogue is older than its ledgers: data that it has forgotten would get a fresh budget. "
    "The server's operator must restore the newest catalogue before anything is registered; or the owner of the "
    "forgotten data registers the same files again, under the name and with the schema that they had, and with "
    "`family`: the name of a dataset of its family"
)
_BROKEN_OFF: Final = (
    "an earlier registration of the name {!r} failed after its ledger was created in the database, with another budget "
    "or by another owner; choose another name, or the budget of that registration"
)
_UNSURE: Final = (
    "the ledger of family {} ({}) is missing, cannot be read, or is not the newest: data that only this ledger knows "
    "would get a fresh budget. The server's operator must restore its newest copy before anything is registered"
)


def _check_known(settings: Settings, catalogue: Catalogue, witness: Witness) -> None:
    """Raise Problem `ledger_damaged` unless every family of the catalogue has its newest ledger.

    Opens the ledgers again each time: the file of an open handle may have been replaced.
    """
    for family, record in _families(catalogue).items():
        if not _is_newest(settings, witness, record):
            _LOG.error(
                "nothing is registered: the ledger of family %s is missing, unreadable or not the newest", family
            )
            where = "in the database" if settings.database else f"ledgers/{family}.ledger in the folder `state`"
            raise Problem("ledger_damaged", _UNSURE.format(family, where))


def _is_newest(settings: Settings, witness: Witness, record: DatasetRecord) -> bool:
    place = ledger_place(settings, record.family)
    try:
        with Ledger.inspect(place, dataset=record.name, checkpoint=witness.known(record.family)) as ledger:
            return ledger.family == record.family
    except (DeniableError, Problem):
        return False


def any_ledger(settings: Settings, catalogue: Catalogue, witness: Witness) -> bool:
    """True if at least one family has its newest ledger, or if no family is registered yet."""
    families = _families(catalogue).values()
    return not families or any(_is_newest(settings, witness, record) for record in families)


def check_strays(lost: Strays, family: str | None, name: str, version: str) -> None:
    """Raise Problem `ledger_mismatch` if spending is forgotten, unless this data takes back its own forgotten name."""
    if lost and (family is None or lost.get((family, name)) != version):
        raise Problem("ledger_mismatch", _OLDER)


def check_name(ledger: Ledger, name: str, version: str) -> None:
    """Raise Problem `ledger_mismatch` if a ledger has this name for other data, or without a hash of the data."""
    known = {ledger.dataset: None, **{each.name: each.version for each in ledger.links()}}
    if known.get(name, version) != version:
        words = f"the ledger of this family has the name {name!r} for other data, or for data of an unknown version"
        raise Problem("ledger_mismatch", f"{words}; choose another name")


def broken_off(settings: Settings, catalogue: Catalogue, name: str, owner: str, budget: Budget | Renewal) -> str | None:
    """The family of an interrupted registration of this name, whose ledger is in the database; otherwise None.

    A database has one ledger for each name, so a later registration continues with that ledger. Its budget is unspent,
    because `check_strays`, which runs before, refuses ledgers with spending. Raises Problem `exists` if the ledger has
    another owner or budget.
    """
    known = {record.family for record in catalogue.datasets()}
    for family, place, given in _ledgers(settings):
        if given == name and family not in known:
            with Ledger.inspect(place, dataset=name) as ledger:
                is_same = budget == (ledger.renewal or ledger.budget)
                if is_same and {each.name for each in ledger.accounts()} <= {EVERYBODY, owner}:
                    return family
            raise Problem("exists", _BROKEN_OFF.format(name))
    return None


def strays(settings: Settings, catalogue: Catalogue, witness: Witness | None = None) -> Strays:
    """Forgotten spending: families with a charge, in a ledger or checkpoint, that the catalogue does not know; and
    names in known ledgers that the catalogue does not know, if there was a charge since the ledger got the name.

    With a `witness`, raises Problem `ledger_damaged` first if the ledger of a known family is not the newest.
    """
    if witness is not None:
        _check_known(settings, catalogue, witness)
    names: dict[str, set[str]] = {}
    for record in catalogue.datasets():
        names.setdefault(record.family, set()).add(record.name)
    assert settings.checkpoints is not None
    notes = [path for path in settings.checkpoints.glob("*.json") if path.stem not in names]
    found: Strays = {(each.stem, ""): None for each in notes if _spent(each)}
    for family, place, name in _ledgers(settings):
        forgotten = _forgotten(place, name, names.get(family, set()))
        if family in names:
            found |= {(family, each): version for each, version in forgotten.items()}
        elif forgotten:
            found[family, ""] = None
    return found


def _families(catalogue: Catalogue) -> dict[str, DatasetRecord]:
    """The oldest dataset of each family."""
    newest_first = sorted(catalogue.datasets(), key=lambda each: each.made, reverse=True)
    return {record.family: record for record in newest_first}


def _ledgers(settings: Settings) -> Iterator[tuple[str, str | Path, str | None]]:
    """The ledgers of the server: (family, file or URL, a name to find it in a database)."""
    for path in (settings.state / "ledgers").glob("*.ledger"):
        yield path.stem, path, None
    if settings.database is not None:
        from deniable.ledger.stores.database_store import held

        for heading in held(settings.database):
            # A database may hold other ledgers as well; those of the server have a family and an owner.
            if heading.linked_as is not None and heading.owner is not None:
                yield heading.family, settings.database, heading.dataset


def _forgotten(place: str | Path, name: str | None, known: set[str]) -> dict[str, str | None]:
    """Unknown names in a ledger, each with the hash of its data, if there was a charge since the ledger got the name.

    A name without a later charge comes from an interrupted registration. A ledger that cannot be read counts as one
    unknown name, "".
    """
    try:
        with Ledger.inspect(place, dataset=name) as ledger:
            charged, links = ledger.charged, {each.name: each for each in ledger.links() if each.name is not None}
            found = {}
            for each in {ledger.dataset, *links} - known:
                link = links.get(each)
                if charged != (Cost(0, 0) if link is None else link.spent):
                    found[each] = None if link is None else link.version
            return found
    except DeniableError:
        return {"": None}


def _spent(path: Path) -> bool:
    try:
        return Checkpoint.read(json.loads(path.read_text(encoding="ascii"))).spent != Cost(0, 0)
    except (DeniableError, OSError, ValueError):
        return True
