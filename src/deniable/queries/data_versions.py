"""Versions of the data that a session asks about.

The owner declares a version of a table by a name, which becomes part of a question's identity: an answer is replayed
only for its own version, and the same question about another version is charged. Tables of a ledger without declared
versions have a keyed hash of their rows instead.

All versions spend from one ledger. Promise: let two histories of tables differ by one person, whose rows may differ in
every version. All answers about all versions together are as private as the ledger's guarantee states. Proof: each
answer about version v is private with respect to this person's rows in v, of which at most `unit.rows` are kept; the
ledger's filter composes answers whose tables and questions depend on earlier answers (Rogers, Roth, Ullman & Vadhan
2016; Smith & Thakurta 2022). An analyst sees the names of versions, and which answers are replayed; the latter follows
from the names alone.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, final

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.ledger import DeclaredVersion
from deniable.ledger.declared_versions import other_data
from deniable.ledger.entries import checked_version
from deniable.queries.relations.relation_nodes import tables_read
from deniable.tables.schema import read_schema, write_schema

if TYPE_CHECKING:
    from deniable.ledger import Ledger
    from deniable.queries.answer.answer import Answer
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.plan.question import Question
    from deniable.queries.session import Session
    from deniable.tables.schema import Table

_PURPOSE: Final = "versions"
"""The purpose of the secret derived from the ledger's: it recognises the data of a declared version."""
_LONGEST: Final = 60_000
"""The most characters of a schema that is stored with a version."""
_LONGEST_NAME: Final = 400
_HASH: Final = re.compile("[0-9a-f]{32}")


@final
@dataclass(frozen=True, slots=True)
class DataVersions:
    """The versions of a session's tables: declared names, and otherwise the hashes that registration computed."""

    declared: Mapping[str, str]
    hashes: Mapping[str, str]

    def of(self, question: Question) -> str | None:
        """The version of all tables that a question reads; None if one of the tables has no version."""
        found = {name: self.declared.get(name, self.hashes.get(name)) for name in tables_read(question.relation)}
        if None in found.values():
            return None
        if len(set(found.values())) == 1 and (len(found) == 1 or found.keys() <= self.declared.keys()):
            return next(iter(found.values()))
        if not found.keys() <= self.declared.keys():
            return sha256(repr(sorted(found.items())).encode()).hexdigest()[:32]
        # No name of a version contains a space, so different versions of these tables give different texts.
        text = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        return text if len(text) <= _LONGEST_NAME else sha256(text.encode()).hexdigest()


def is_declared(version: str | None) -> bool:
    """Whether the owner declared the version of an entry. If not, the version is a hash of rows, which is never
    displayed.
    """
    return version is not None and not _HASH.fullmatch(version)


def checked_versions(version: object, names: Mapping[str, object]) -> dict[str, str]:
    """The version of each table, from the argument of `session`: one for all, or by table; empty for None."""
    if version is None:
        return {}
    if not isinstance(version, Mapping):
        return dict.fromkeys(names, checked_version(version))  # type: ignore[arg-type]  # checked there
    for name in version:
        if name not in names:
            raise InvalidParameter("version", name, "is not a table of this session", f"name one of {', '.join(names)}")
    return {name: checked_version(each) for name, each in version.items()}


def settled(
    ledger: Ledger, tables: Mapping[str, Table], reports: Mapping[str, Registration], asked: Mapping[str, str]
) -> DataVersions:
    """The versions of registered tables; new ones are declared in the ledger.

    A table without a version in `asked` has the newest version that the ledger knows. Raises LedgerMismatch if the data
    differs from the data of that version: otherwise old answers would be given for new data.
    """
    before = ledger.versions()
    newest = {each.table: each.version for each in before}
    contents = {(each.table, each.version): each.content for each in before}
    declared = {name: asked.get(name, newest.get(name)) for name in tables}
    made = []
    for name, version in declared.items():
        if version is None or (name not in reports and (name, version) in contents):
            continue  # an engine that reads no data cannot compare it, and answers nothing
        given = _declaration(ledger, tables[name], version, reports.get(name))
        if contents.get((name, version), given.content) != given.content:
            raise other_data(name, version)
        made.append(given)
    for each in made:  # after all checks, so that a refused call declares nothing
        ledger.declare(each)
    hashes = {name: report.version for name, report in reports.items()}
    return DataVersions({name: each for name, each in declared.items() if each is not None}, hashes)


def _declaration(ledger: Ledger, table: Table, version: str, report: Registration | None) -> DeclaredVersion:
    rows = "unknown" if report is None else report.version
    about = json.dumps([table.name, version, sorted(name for name, _ in table.columns), rows])
    content = hmac.new(ledger.secret_for(_PURPOSE), about.encode(), sha256).hexdigest()
    schema = write_schema({table.name: table}, form="json")
    return DeclaredVersion(
        table=table.name, version=version, content=content, schema=schema if len(schema) <= _LONGEST else None
    )


def recalled(session: Session, question: str | Question, version: str, confidence: float) -> Answer | None:
    """The newest stored answer about an earlier version, read with the schema of that time; None if no answer is
    stored.
    """
    from deniable.queries.engines.price_engine import Unread  # clients without an engine import this module, too
    from deniable.queries.session import Session as Opened

    checked_version(version)
    then = {each.table: each for each in session.ledger.versions() if each.version == version}
    if not then:
        known = dict.fromkeys(each.version for each in session.ledger.versions())
        rule = "was not declared in this ledger"
        raise InvalidParameter("version", version, rule, f"it has {', '.join(known) or 'no declared version'}")
    tables = dict(session.tables)
    for name, each in then.items():
        if each.schema is not None:
            earlier = read_schema(json.loads(each.schema))[name]
            now = tables.get(name)
            tables[name] = earlier if now is None else replace(earlier, most_partners=now.most_partners)
    names = {**session.versions, **dict.fromkeys(then, version)}
    past = Opened(Unread(), tables, session.ledger, keeps=True, versions=DataVersions(names, {}))
    try:
        return past.recall(question, confidence=confidence)
    except QuestionRefused:  # it reads what that version did not have
        return None
