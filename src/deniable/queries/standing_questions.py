"""Standing questions: declared once, paid once, and answered anew for each day.

A daily dashboard asks the same questions about each day's rows. Asked one by one, a year of one question costs as much
as 365 questions, because a person could have all their rows on every day. But a person has at most `unit.rows` rows in
a table. If this bound holds over all days together, the days are disjoint parts of one histogram, and all of them cost
as much as one.

**The bound.** For each set of standing questions the ledger keeps how many rows of each person were used on which day,
under pseudonyms, encrypted with a key derived from the ledger's secret. A day may use as many rows of a person as they
have left. The numbers are sealed before the day is answered, and no later event gives rows back: neither a new version
of the data, nor a correction, nor an erasure. Rows that arrive after their day was answered are never counted.

**Promise.** Let c_d be the rows of one person that day d uses; Σ c_d ≤ R = `unit.rows`, whatever the data of each day
and whatever was answered before. Each statistic is a sum over rows, so the day's answers move by at most c_d/R of the
sensitivity Δ that the noise was planned for. Under a Gaussian budget day d is μ·c_d/R-GDP for this person, and by
adaptive composition with a bound that always holds (Feldman & Zrnic 2021; Smith & Thakurta 2022) all days together are
μ-GDP, as Σ (c_d/R)² ≤ (Σ c_d/R)² ≤ 1. Under a pure budget the losses ε·c_d/R add up to at most ε. This needs neighbours
by add/remove and statistics that are sums over rows; other questions are refused.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.ledger import Cost, State
from deniable.ledger.entries import checked_version
from deniable.queries.answer.release import Released
from deniable.queries.data_versions import DataVersions
from deniable.queries.engines.daily_parts import PEOPLE, Day
from deniable.queries.plan.pricing import Price
from deniable.queries.relations.exact_statistics import Count, ExactSum
from deniable.queries.relations.relation_nodes import FilterRows, Project, RelationNode, Source, tables_read
from deniable.tables.kinds import Kind
from deniable.units import Relation

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger
    from deniable.queries.answer.answer import Answer
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.pricing import AskedCost
    from deniable.queries.session import Session
    from deniable.tables.schema import Table

_ROWS: Final = "rows"
_CIPHER: Final = "rows used by standing questions"
_NONCE: Final = 12
_MOST_QUESTIONS: Final = 1000
_INTERRUPTED: Final = "interrupted"
_SAME_IDS: Final = "an id names the same person in all versions of the table"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A set of standing questions. Made by `Session.standing`; `reveal` answers them for one day."""

    session: Session
    name: str
    table: str
    by: str
    questions: tuple[str, ...]
    cost: Cost
    """What each question costs, for all days together."""
    confidence: float

    def reveal(self, day: Day) -> list[Answer]:
        """The answers about one day, one for each question. The first time they are measured; later they are replayed.

        Free: all days were paid for when the questions were declared. Rows of a person who has no rows left are not
        counted. Raises InvalidOperation if the table has another unit than when the questions were declared.
        """
        session, table = self.session, self._table()
        day = _checked_day(table, self.by, day)
        plans = [_planned(session, each, self.table) for each in self.questions]
        known = [self._sealed(day, at, made) for at, made in enumerate(plans)]
        if not all(known):
            with self._part(table, day) as part:
                for at, made in enumerate(plans):
                    known[at] = known[at] or self._measured(part, day, at, made)
        return [self._answer(made, entry) for made, entry in zip(plans, known, strict=True) if entry is not None]

    def prices(self) -> list[Price]:
        """How exact the answers are on each day, one for each question. Free: no data is read."""
        session = self.session
        plans = [_planned(session, each, self.table) for each in self.questions]
        return [
            Price(made, session.budget, self.cost, session.ledger.remaining, self.confidence, False) for made in plans
        ]

    def days(self) -> list[Day]:
        """The days that were answered, newest answer first."""
        kind = self._table().column(self.by).kind
        return [_read_day(each["day"], kind) for each, _ in _used_rows(self.session.ledger, self.name)]

    def __repr__(self) -> str:
        return f"<Standing {self.name!r}: {len(self.questions)} questions about {self.table!r} by {self.by!r}>"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _table(self) -> Table:
        return _checked_table(self.session, self.table, self.by)

    def _part(self, table: Table, day: Day) -> Session:
        """A session on the rows of one day."""
        from deniable.queries.engines.duckdb import DuckDBEngine
        from deniable.queries.session import Session as Opened

        session, ledger = self.session, self.session.ledger
        secret, source = ledger.secret_for(_ROWS), session._sources[self.table]
        engine = DuckDBEngine()
        try:
            limits = self._limits(day, lambda used: engine.claim(source, table, secret, (self.by, day), used))
            rows = engine.day(source, table, secret, (self.by, day), limits)
            made = engine.register(self.table, rows, table, secret)
        except BaseException:
            engine.close()
            raise
        return Opened(engine, {self.table: made}, ledger, keeps=True, versions=DataVersions({}, {}))

    def _limits(self, day: Day, claim: Any) -> Any:
        """The rows that each person may have on this day, sealed in the ledger before anything about it is answered.

        Entries form a chain: the key of each names the one before it, so two processes cannot both continue it.
        """
        ledger = self.session.ledger
        cipher = AESGCM(ledger.secret_for(_CIPHER))
        while True:
            known = list(_used_rows(ledger, self.name))
            for said, sealed in known:
                if said["day"] == str(day):
                    return _opened(cipher, sealed)
            last = known[0][1].number if known else 0
            words = f"standing {self.name}: rows used on {day}"
            entry = _begun(ledger, f"standing {self.name} after {last}", _rows_question(self.name), words, None)
            if entry.state is State.SEALED:  # another process has continued the chain meanwhile
                continue
            used = _total([_opened(cipher, sealed) for _, sealed in known])
            claimed = claim(used)
            nonce = secrets.token_bytes(_NONCE)
            head = json.dumps({"day": str(day), "previous": last}).encode()
            ledger.seal(entry, head + b"\n" + nonce + cipher.encrypt(nonce, claimed.tobytes(), head))
            return claimed

    def _sealed(self, day: Day, at: int, made: NoisePlan) -> Entry | None:
        """The SEALED entry of a question on a day; None if it has none yet."""
        ledger = self.session.ledger
        for number in range(_MOST_QUESTIONS):
            entry = ledger.keyed(f"{self._key(day, at)}#{number}")
            if entry is None:
                return None
            closing = ledger.closing(entry.number)
            if closing is not None and closing.state is State.SEALED:
                if closing.question != made.question.hash:
                    raise InvalidOperation(
                        f"question {at + 1} of {self.name!r} was answered for {day} with another schema of "
                        f"{self.table!r}; open the session with that schema to read it"
                    )
                return closing
        return None

    def _measured(self, part: Session, day: Day, at: int, made: NoisePlan) -> Entry:
        version, words = f"standing {self.name} {day}", f"standing {self.name}, {day}: {self.questions[at]}"
        entry = _begun(self.session.ledger, self._key(day, at), made.question.hash, words, version)
        if entry.state is State.SEALED:
            return entry
        price = Price(made, part.budget, self.cost, self.cost, self.confidence, False)
        [released] = part._released([(made, part._noise(made, price), self.cost)], [entry])
        return self.session.ledger.seal(entry, released.to_bytes())

    def _key(self, day: Day, at: int) -> str:
        return f"standing {self.name} {day} {at}"

    def _answer(self, made: NoisePlan, sealed: Entry) -> Answer:
        assert sealed.answer is not None
        assert sealed.closes is not None
        ledger = self.session.ledger
        charge = ledger.entry(sealed.closes)
        assert charge is not None
        released = Released.from_bytes(sealed.answer, made)
        answer = self.session._answer(made, released, charge, self.confidence, ledger.remaining, replayed=False)
        assumed = (*answer.guarantee.assumptions, _SAME_IDS)
        answer.guarantee = replace(answer.guarantee, assumptions=assumed)
        return answer


def declared(
    session: Session, name: str, questions: Sequence[str], by: str, asked: AskedCost, payer: str | None
) -> Standing:
    """See `Session.standing`."""
    checked_version(name)
    if isinstance(questions, str) or not questions or not all(isinstance(each, str) for each in questions):
        raise InvalidParameter("questions", NOTHING, "must be a list of questions in SQL", 'write ["SELECT ..."]')
    if len(questions) > _MOST_QUESTIONS:
        raise InvalidParameter("questions", len(questions), f"at most {_MOST_QUESTIONS:,} stand in one set")
    tables = {each for text in questions for each in tables_read(session._planned(text).question.relation)}
    if len(tables) != 1:
        raise QuestionRefused("join", "standing questions of one set read one table", "declare a set for each table")
    [table] = tables
    schema = _checked_table(session, table, by)
    plans = [_planned(session, each, table) for each in questions]
    if len({made.question.hash for made in plans}) < len(plans):
        raise InvalidParameter("questions", NOTHING, "contain the same question twice", "ask it once")
    assert schema.unit is not None
    whole = asked.cost(plans[0], session.budget, session._left(payer))
    each = Cost(whole.units // len(plans))
    if not each.units:
        raise InvalidParameter("cost", NOTHING, f"is too small for {len(plans)} questions", "give more, or ask fewer")
    unit = {"rows": schema.unit.rows, "column": schema.unit.column}
    record = json.dumps(
        {"table": table, "by": by, "unit": unit, "questions": list(questions), "units": str(each.units)}
    )
    _charge(session.ledger, name, record, Cost(each.units * len(plans)), payer)
    return Standing(session, name, table, by, tuple(questions), each, asked.confidence)


def found(session: Session, name: str, confidence: float) -> Standing:
    """The standing questions of this name that the ledger has; InvalidParameter if there are none."""
    checked_version(name)
    sealed = session.ledger.answer(_declaration_question(name))
    if sealed is None or sealed.answer is None:
        raise InvalidParameter("name", name, "is no set of standing questions in this ledger", "declare it first")
    record = json.loads(sealed.answer)
    schema = _checked_table(session, record["table"], record["by"])
    assert schema.unit is not None
    if record["unit"] != {"rows": schema.unit.rows, "column": schema.unit.column}:
        raise InvalidOperation(
            f"{name!r} was declared for {record['unit']['rows']} rows of each {record['unit']['column']!r}; "
            "open the session with this unit"
        )
    cost = Cost(int(record["units"]))
    return Standing(session, name, record["table"], record["by"], tuple(record["questions"]), cost, confidence)


def _charge(ledger: Ledger, name: str, record: str, cost: Cost, payer: str | None) -> None:
    """Charge the set once, and store its declaration; InvalidParameter if another one has this name."""
    question, key = _declaration_question(name), f"standing {name} declared"
    words = f"standing {name}: {sha256(record.encode()).hexdigest()}"
    known = ledger.keyed(key)
    if known is None:
        entry = ledger.reserve(cost, question=question, description=words, key=key, payer=payer)
    elif known.description != words:
        rule = "is another set of standing questions"
        raise InvalidParameter("name", name, rule, f"read it with standing({name!r}), or choose another name")
    else:
        entry = known
    if entry.state is State.RESERVED and ledger.closing(entry.number) is None:  # also after a crash in between
        ledger.seal(entry, record.encode())


def _begun(ledger: Ledger, key: str, question: str, words: str, version: str | None) -> Entry:
    """A RESERVED entry without a cost that this process alone may seal, or the SEALED one that is there.

    An entry that is open was left by a process that stopped, or is being worked on by another one. It is closed as
    failed: an entry is closed once, so whoever began it can no longer seal it, and no two answers ever leave.
    """
    for number in range(_MOST_QUESTIONS):
        entry = ledger.keyed(f"{key}#{number}")
        if entry is None:
            return ledger.reserve(Cost(0), question=question, description=words, key=f"{key}#{number}", version=version)
        closing = ledger.closing(entry.number)
        if closing is None:
            ledger.fail(entry, _INTERRUPTED)
        elif closing.state is State.SEALED:
            return closing
    raise InvalidOperation(f"this was begun {_MOST_QUESTIONS:,} times and never finished")


def _used_rows(ledger: Ledger, name: str) -> Iterator[tuple[dict[str, Any], Entry]]:
    """(day and previous entry, SEALED entry) of each day of a set, newest first."""
    entry = ledger.answer(_rows_question(name))
    while entry is not None and entry.answer is not None:
        said = json.loads(entry.answer.partition(b"\n")[0])
        yield said, entry
        entry = ledger.entry(said["previous"]) if said["previous"] else None


def _opened(cipher: AESGCM, sealed: Entry) -> Any:
    assert sealed.answer is not None
    said, _, rest = sealed.answer.partition(b"\n")
    return np.frombuffer(cipher.decrypt(rest[:_NONCE], rest[_NONCE:], said), dtype=PEOPLE)


def _total(parts: Sequence[Any]) -> Any:
    """The rows that each person has used on all days."""
    if not parts:
        return np.empty(0, dtype=PEOPLE)
    together = np.concatenate(parts)
    who, places = np.unique(together["who"], return_inverse=True)
    found = np.empty(len(who), dtype=PEOPLE)
    found["who"] = who
    found["rows"] = np.bincount(places, weights=together["rows"], minlength=len(who))
    return found


def _declaration_question(name: str) -> str:
    return sha256(f"deniable standing {name}".encode()).hexdigest()


def _rows_question(name: str) -> str:
    return sha256(f"deniable rows used by standing {name}".encode()).hexdigest()


# -- what can stand ----------------------------------------------------------------------------------------------------


def _checked_table(session: Session, name: str, by: str) -> Table:
    table = session._tables.get(name)
    if table is None or name not in session._sources:
        rule = "cannot be read again for each day"
        raise InvalidParameter("table", name, rule, "open the session on a file or a frame")
    if table.unit is None or table.unit.column is None or table.unit.relation is not Relation.ADD_REMOVE:
        rule = "has no people who are added or removed, whose rows could be bounded over all days"
        raise InvalidParameter("table", name, rule, 'use unit=Unit.person("patient_id", rows=10)')
    domain = dict(table.columns).get(by)
    if domain is None or by == table.unit.column or domain.kind not in {Kind.DATE, Kind.INTEGER}:
        raise InvalidParameter("by", by, f"must be a column of dates or integers of {name!r}")
    return table


def _checked_day(table: Table, by: str, day: object) -> Day:
    kind = table.column(by).kind
    if kind is Kind.DATE and isinstance(day, str):
        try:
            return dt.date.fromisoformat(day)
        except ValueError:
            raise InvalidParameter("day", day, "must be a date", 'write "2026-11-18"') from None
    if kind is Kind.DATE and isinstance(day, dt.date) and not isinstance(day, dt.datetime):
        return day
    if kind is Kind.INTEGER and isinstance(day, int) and not isinstance(day, bool) and abs(day) < 2**63:
        return day
    raise InvalidParameter("day", day, f"must be of kind {kind.value}, as {by!r} is")


def _read_day(text: str, kind: Kind) -> Day:
    return int(text) if kind is Kind.INTEGER else dt.date.fromisoformat(text)


def _planned(session: Session, text: str, table: str) -> NoisePlan:
    """The plan of a standing question; QuestionRefused if a day cannot be a part of it."""
    made = session._planned(text)
    if [*tables_read(made.question.relation)] != [table] or not _is_simple(made.question.relation):
        raise QuestionRefused(
            "join", "a standing question filters and groups the rows of one table", f"SELECT COUNT(*) FROM {table}"
        )
    if made.collect.known is None:
        raise QuestionRefused("key", "the keys of a standing question are public", "declare keys=[...] in the schema")
    for part in made.parts:
        if not isinstance(part.statistic, Count | ExactSum):
            raise QuestionRefused(
                "aggregate",
                "a standing question takes sums over rows: COUNT(*), COUNT, SUM, AVG, VARIANCE or STDDEV",
                f"SELECT COUNT(*) FROM {table}",
            )
    return made


def _is_simple(relation: RelationNode) -> bool:
    while isinstance(relation, FilterRows | Project):
        relation = relation.child
    return isinstance(relation, Source)
