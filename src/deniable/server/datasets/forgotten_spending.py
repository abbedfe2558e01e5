"""What was spent and the catalogue has forgotten: while there is such a thing, new data may be data that is known.

A ledger has the names of all data that spends from it, each with a keyed hash of that data. So a catalogue that is
older than its ledgers is told by the families and the names that it does not know; and a forgotten name is taken back
by the data that had it, and by no other. A ledger that is missing, or older than what is known of it, may have had
names that nobody else remembers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deniable.errors import DeniableError
from deniable.ledger import EVERYBODY, Budget, Checkpoint, Cost, Ledger
from deniable.server.catalogue.catalogue import Catalogue, DatasetRecord
from deniable.server.datasets.ledger_witness import Witness
from deniable.server.datasets.open_datasets import ledger_place
from deniable.server.operations.settings import Settings
from deniable.server.problems import Problem

Strays = dict[tuple[str, str], str | None]
"""By family and name (empty: all of the family): which data had the name, where the ledger says so."""

_LOG: Final = logging.getLogger("deniable.server")
_OLDER: Final = (
    "the server's catalogue is older than its ledgers: data that it has forgotten would get a fresh budget. "
    "Whoever runs the server must restore the newest catalogue before anything is registered; or the owner of what was "
    "forgotten registers the same files again, under the name and with the schema that they had, and with `family`: "
    "the name of a dataset of its family"
)
_BROKEN_OFF: Final = (
    "a registration of the name {!r} failed after it had got a ledger in the database, with another budget or of "
    "another owner; choose another name, or the budget that it had"
)
_UNSURE: Final = (
    "the ledger of family {} ({}) is missing, cannot be read, or is not the newest: data that only this ledger knows "
    "would get a fresh budget. Whoever runs the server must put its newest copy back before anything is registered"
)


def _check_known(settings: Settings, catalogue: Catalogue, witness: Witness) -> None:
    """Problem `ledger_damaged` unless the ledger of every family that the catalogue knows is there, and no older one.

    Read anew each time: what a handle has open may lie elsewhere by now.
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
    """Problem `ledger_mismatch` where something is forgotten, unless this data comes back to where it was."""
    if lost and (family is None or lost.get((family, name)) != version):
        raise Problem("ledger_mismatch", _OLDER)


def check_name(ledger: Ledger, name: str, version: str) -> None:
    """Problem `ledger_mismatch` if a ledger knows other data by this name, or nobody knows which."""
    known = {ledger.dataset: None, **{each.name: each.version for each in ledger.links()}}
    if known.get(name, version) != version:
        words = f"the ledger of this family has the name {name!r} for other data, or from before that was noted"
        raise Problem("ledger_mismatch", f"{words}; choose another name")


def broken_off(settings: Settings, catalogue: Catalogue, name: str, owner: str, budget: Budget) -> str | None:
    """The family that a registration of this name got a ledger for in the database before it failed; None if none did.

    Names are given once there, so a later registration goes on with that ledger. Nothing was spent of it: see
    `check_strays`, which comes before. Problem `exists` where it is another owner's, or its budget is another one.
    """
    known = {record.family for record in catalogue.datasets()}
    for family, place, given in _ledgers(settings):
        if given == name and family not in known:
            with Ledger.inspect(place, dataset=name) as ledger:
                if ledger.budget == budget and {each.name for each in ledger.accounts()} <= {EVERYBODY, owner}:
                    return family
            raise Problem("exists", _BROKEN_OFF.format(name))
    return None


def strays(settings: Settings, catalogue: Catalogue, witness: Witness | None = None) -> Strays:
    """Families of which something was spent, by a ledger or a checkpoint, and of which the catalogue knows nothing.

    And of each family that it knows, the names in its ledger that the catalogue has forgotten, where something was
    spent since the ledger got the name. With a `witness` it is seen to it first that those ledgers are there.
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
    """The ledgers of the server: the family of each, where it is, and a name to find it by where there are several."""
    for path in (settings.state / "ledgers").glob("*.ledger"):
        yield path.stem, path, None
    if settings.database is not None:
        from deniable.ledger.stores.database_store import held

        for heading in held(settings.database):
            # A database may hold ledgers of others as well; the server names a family and an owner for each of its own.
            if heading.linked_as is not None and heading.owner is not None:
                yield heading.family, settings.database, heading.dataset


def _forgotten(place: str | Path, name: str | None, known: set[str]) -> dict[str, str | None]:
    """The names in a ledger that are not known, where something was spent since it got them, with what had them.

    A name since which nobody was charged was left by a registration that was broken off. A ledger that cannot be read
    has forgotten names for all that can be told: the empty one.
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
