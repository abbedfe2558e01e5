"""Standing questions: declared once, paid once, and answered anew for each day.

A daily dashboard asks the same questions about each day's rows. Asked one by one, a year of one question costs as much
as 365 questions, because a person could have all their rows on every day. But a person has at most `unit.rows` rows in
a table. If this bound holds over all days together, the days are disjoint parts of one histogram, and all days together
cost as much as one.

**The bound.** For each set of standing questions the ledger keeps how many rows of each person were used on which day,
under pseudonyms, encrypted with a key derived from the ledger's secret. A day may use as many rows of a person as the
earlier days left unused. The numbers are sealed before the day is answered, and no later event makes used rows
available again: neither a new version of the data, nor a correction, nor an erasure. Rows that arrive after their day
was answered are never counted.

**Promise.** Let c_d be the rows of one person that day d uses; Σ c_d ≤ R = `unit.rows`, whatever the data of each day
and whatever was answered before. Each statistic is a sum over rows, so the day's answers move by at most c_d/R of the
sensitivity Δ that the noise was planned for. Under a Gaussian budget day d is μ·c_d/R-GDP for this person, and by
adaptive composition with a bound that always holds (Feldman & Zrnic 2021; Smith & Thakurta 2022) all days together are
μ-GDP, as Σ (c_d/R)² ≤ (Σ c_d/R)² ≤ 1. Under a pure budget the losses ε·c_d/R add up to at most ε. This needs neighbours
by add/remove and statistics that are sums over rows; other questions are refused.

**Running totals.** With `totals=365`, each of up to 365 answers is about all rows so far. `running_totals` proves that
all of them together cost as much as one question, because a person moves all days together by at most R. Rows of days
that were left out are counted with the next day that is answered. The exact numbers of each day stay in the ledger,
encrypted; so a total goes on when old rows are deleted.

**Other schemas.** A day alone may be answered with another schema than the days before: its rows are clamped to the
bounds of that schema, and its noise is planned from them, so it moves by c_d/R of its own Δ_d, and the promise above
holds with any Δ_d. A running total adds up exact numbers of earlier days, with noise for one Δ. So the declaration
stores the hash of each question, which covers bounds and keys, and other hashes are refused.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, QuestionRefused
from deniable.ledger import Cost, State
from deniable.ledger.entries import checked_path_name
from deniable.queries import standing_records
from deniable.queries.answer.receipt import STANDING
from deniable.queries.answer.release import Released
from deniable.queries.answer.shared_measurements import Measurement
from deniable.queries.data_versions import DataVersions
from deniable.queries.plan.noise_planner import one_by_one
from deniable.queries.plan.pricing import Price
from deniable.queries.relations.exact_statistics import Count, ExactSum
from deniable.queries.relations.relation_nodes import FilterRows, Project, RelationNode, Source, tables_read
from deniable.queries.running_totals import Step, TotalsNoise, checked_steps, totals_noise
from deniable.queries.standing_days import Day, Days
from deniable.queries.standing_records import EncryptedDays, begun, people_in, total_rows
from deniable.tables.kinds import Domain, Kind
from deniable.units import Relation

if TYPE_CHECKING:
    from deniable.ledger import Entry
    from deniable.queries.answer.answer import Answer
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.pricing import AskedCost
    from deniable.queries.session import Session
    from deniable.tables.schema import Table

_ROWS: Final = "rows"
_USED: Final = "rows used"
_EXACT: Final = "exact numbers"
MOST_QUESTIONS: Final = 1000
"""The most questions in one set."""
_SAME_IDS: Final = "an id names the same person in all versions of the table"


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A set of standing questions. Made by `Session.standing`; `reveal` answers them for one day."""

    session: Any
    name: str
    table: str
    by: str
    questions: tuple[str, ...]
    cost: Cost
    """What each question costs, for all days together."""
    confidence: float
    totals: int | None = None
    """The most days that running totals are paid for; None if each answer is about one day."""

    def reveal(self, day: Day | str) -> list[Answer]:
        """The answers about one day, one for each question. The first time they are measured; later they are replayed.

        Free: all days were paid for when the questions were declared. A person's rows beyond `unit.rows`, over all days
        together, are not counted. Raises InvalidOperation if the day was answered with another schema of the table; for
        running totals also if the table has other bounds or keys than when they were declared, if the day is before the
        last answered day, or if all days that were paid for are answered.
        """
        stored = self.recall(day)
        if stored is not None:
            return stored
        session, table = self.session, self._table()
        day = checked_day(table, self.by, day)
        plans = self._plans()
        self._check_hashes(plans)
        known = [self._sealed(day, at, made) for at, made in enumerate(plans)]
        with self._part(table, day) as part:
            if self.totals is None:
                for at, made in enumerate(plans):
                    known[at] = known[at] or self._measured(part, day, at, made)
            else:
                steps = self._steps(part, day, plans)
                for at, made in enumerate(plans):
                    known[at] = known[at] or self._totalled(day, at, made, [each[at] for each in steps])
        return [
            answer_of(session, made, entry, self.confidence, replayed=False)
            for made, entry in zip(plans, known, strict=True)
            if entry is not None
        ]

    def recall(self, day: Day | str) -> list[Answer] | None:
        """The answers about one day, if it was answered; otherwise None. Free: no data is read."""
        day = checked_day(self._table(), self.by, day)
        plans = self._plans()
        known = [self._sealed(day, at, made) for at, made in enumerate(plans)]
        found = [(made, entry) for made, entry in zip(plans, known, strict=True) if entry is not None]
        if len(found) < len(plans):
            return None
        return [answer_of(self.session, made, entry, self.confidence, replayed=True) for made, entry in found]

    def prices(self) -> list[Price]:
        """How exact the answers are on each day, one for each question. Free: no data is read.

        For running totals: the price of a single question that is as exact as the noisiest total.
        """
        session, left = self.session, self.session.ledger.remaining
        found = []
        for made in self._plans():
            cost = self.cost
            if self.totals is not None:
                noise = totals_noise(made, session.budget, self.cost, self.totals)
                cost = min((noise.as_one(each) for each in range(1, self.totals + 1)), key=lambda each: each.units)
            found.append(Price(made, session.budget, cost, left, self.confidence, False))
        return found

    def days(self) -> list[Day]:
        """The days that were answered, newest answer first."""
        kind = self._table().column(self.by).kind
        return [read_day(each, kind) for each in EncryptedDays(self.session.ledger, self.name, _USED).days()]

    def __repr__(self) -> str:
        count = len(self.questions)
        what = f"{count} question{'s' * (count > 1)} about {self.table!r} by {self.by!r}"
        return f"<Standing {self.name!r}: {what}{'' if self.totals is None else f', totals of {self.totals} days'}>"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _table(self) -> Table:
        return _checked_table(self.session, self.table, self.by)

    def _plans(self) -> list[NoisePlan]:
        return [_planned(self.session, each, self.table) for each in self.questions]

    def _check_hashes(self, plans: Sequence[NoisePlan]) -> None:
        """Refuse to continue running totals with another schema: their noise is planned for the declared one."""
        if self.totals is None:
            return
        record = standing_records.declaration(self.session.ledger, self.name)
        if record is None or record.get("hashes") != [made.question.hash for made in plans]:
            raise InvalidOperation(
                f"{self.name!r} has running totals, which were declared with another schema of {self.table!r}; "
                "open the session with that schema, or declare a new set"
            )

    def _part(self, table: Table, day: Day) -> Session:
        """A session on the rows of one day; for running totals, on all rows after the last answered day."""
        from deniable.queries.session import Session as Opened

        session, ledger = self.session, self.session.ledger
        if self.table not in session._sources:
            rule = "has a source that cannot be read again for each day"
            raise InvalidParameter("table", self.table, rule, "open the session on a file or a frame")
        secret, source = ledger.secret_for(_ROWS), session._sources[self.table]
        engine = _engine_beside(session)
        try:
            days, limits = self._limits(day, lambda days, used: engine.claim(source, table, secret, days, used))
            made = engine.register_day(self.table, source, table, secret, days, limits)
        except BaseException:
            engine.close()
            raise
        part = Opened(engine, {self.table: made}, ledger, keeps=True, versions=DataVersions({}, {}))
        part.report_failures(session._noted)
        return part

    def _limits(self, day: Day, claim: Callable[[Days, Any], Any]) -> tuple[Days, Any]:
        """The rows that each person may have on this day, sealed in the ledger before anything about it is answered."""
        chain = EncryptedDays(self.session.ledger, self.name, _USED)
        while True:
            known = chain.records()
            days = self._days(day, [each.day for each in known])
            for each in known:
                if each.day == str(day):
                    return days, people_in(each.record)
            entry = chain.begin(str(day), known)
            if entry is not None:  # otherwise another process has continued the chain meanwhile
                claimed = claim(days, total_rows([people_in(each.record) for each in known]))
                chain.seal(entry, str(day), known, claimed.tobytes())
                return days, claimed

    def _days(self, day: Day, answered: list[str]) -> Days:
        """Which rows a day has, given the days that were answered, newest first."""
        if self.totals is None:
            return Days(self.by, day)
        kind = self._table().column(self.by).kind
        known = [read_day(each, kind) for each in answered]
        if day in known:
            known = known[known.index(day) + 1 :]
        elif known and day < known[0]:  # type: ignore[operator]  # days of one column are of one kind
            raise InvalidOperation(f"{self.name!r} has running totals up to {known[0]}; reveal a later day")
        elif len(known) >= (self.totals or 0):
            raise InvalidOperation(
                f"{self.name!r} has answered all {self.totals} days it was paid for; declare a new set"
            )
        return Days(self.by, day, is_running=True, after=known[0] if known else None)

    def _sealed(self, day: Day, at: int, made: NoisePlan) -> Entry | None:
        """The SEALED entry of a question on a day; None if the question was not answered for this day."""
        closing = standing_records.sealed(self.session.ledger, self._key(day, at))
        if closing is not None and closing.question != made.question.hash:
            raise InvalidOperation(
                f"question {at + 1} of {self.name!r} was answered for {day} with another schema of "
                f"{self.table!r}; open the session with that schema to read it"
            )
        return closing

    def _begun(self, day: Day, at: int, made: NoisePlan) -> Entry:
        version, words = f"{STANDING}{self.name} {day}", f"{STANDING}{self.name}, {day}: {self.questions[at]}"
        return begun(self.session.ledger, self._key(day, at), made.question.hash, words, version)

    def _measured(self, part: Session, day: Day, at: int, made: NoisePlan) -> Entry:
        entry = self._begun(day, at, made)
        if entry.state is State.SEALED:
            return entry
        price = Price(made, part.budget, self.cost, self.cost, self.confidence, False)
        [released] = part._released([(made, part._noise(made, price), self.cost)], [entry])
        found: Entry = self.session.ledger.seal(entry, released.to_bytes())
        return found

    def _steps(self, part: Session, day: Day, plans: Sequence[NoisePlan]) -> list[list[Step]]:
        """The exact and noisy numbers of all steps up to this day, oldest first, for each question.

        The numbers of a new day are sealed, encrypted, before a total is released, so that a total that is computed
        again is the same.
        """
        assert self.totals is not None
        chain = EncryptedDays(self.session.ledger, self.name, _EXACT)
        noises = [totals_noise(made, self.session.budget, self.cost, self.totals) for made in plans]
        while True:
            known = chain.records()
            days, steps = [each.day for each in reversed(known)], [json.loads(each.record) for each in reversed(known)]
            if str(day) in days:
                return steps[: days.index(str(day)) + 1]
            entry = chain.begin(str(day), known)
            if entry is not None:
                now = part._attempt([made.collect for made in plans], partial(_next_steps, noises, steps), entry)
                chain.seal(entry, str(day), known, json.dumps(now).encode())
                return [*steps, now]

    def _totalled(self, day: Day, at: int, made: NoisePlan, steps: Sequence[Step]) -> Entry:
        entry = self._begun(day, at, made)
        if entry.state is State.SEALED:
            return entry
        assert self.totals is not None
        noise = totals_noise(made, self.session.budget, self.cost, self.totals)
        released = noise.released(steps)
        mark = Measurement(self.session._mark(entry), self.cost)
        found: Entry = self.session.ledger.seal(entry, replace(released, measured=(mark,)).to_bytes())
        return found

    def _key(self, day: Day, at: int) -> str:
        return f"{STANDING}{self.name} {day} {at}"


def _next_steps(noises: Sequence[TotalsNoise], steps: Sequence[list[Step]], counts: Sequence[Any]) -> list[Step]:
    return [noise.step([each[at] for each in steps], counts[at]) for at, noise in enumerate(noises)]


def answer_of(session: Session, made: NoisePlan, sealed: Entry, confidence: float, *, replayed: bool) -> Answer:
    """The answer to a standing question about a day, from its SEALED entry."""
    assert sealed.answer is not None
    assert sealed.closes is not None
    ledger = session.ledger
    charge = ledger.entry(sealed.closes)
    assert charge is not None
    released = Released.from_bytes(sealed.answer, made)
    answer = session._answer(made, released, charge, confidence, ledger.remaining, replayed=replayed)
    answer.guarantee = replace(answer.guarantee, assumptions=(*answer.guarantee.assumptions, _SAME_IDS))
    return answer


def declared(
    session: Session, name: str, questions: Sequence[str], by: str, asked: AskedCost, totals: Any, payer: str | None,
    dataset: str | None = None,
) -> Standing:  # fmt: skip
    """Check, charge and store a set of standing questions; `Session.standing` describes the arguments.

    On a server, where datasets may share a ledger, the set belongs to one `dataset`.
    """
    from deniable.queries.sql.dialect import reads_clock  # late, as in `check_standing`: clients do not read SQL

    checked_path_name("name", name, 'write "daily"')
    texts = checked_questions(questions, MOST_QUESTIONS)
    _check_budget(session)
    if any(map(reads_clock, texts)):
        rule = "must mean the same on every day, but one of them reads the clock"
        raise InvalidParameter("questions", NOTHING, rule, "leave the clock out: reveal(day) names the day")
    steps = None if totals is None else checked_steps(totals)
    tables = {each for text in texts for each in tables_read(session._planned(text).question.relation)}
    if len(tables) != 1:
        raise QuestionRefused("join", "standing questions of one set must read one table", "declare one set for each")
    [table] = tables
    schema = _checked_table(session, table, by)
    plans = [_planned(session, each, table) for each in texts]
    if len({made.question.hash for made in plans}) < len(plans):
        raise InvalidParameter("questions", NOTHING, "must not contain a question twice", "ask it once")
    record = {
        "table": table,
        "by": by,
        "by_kind": schema.column(by).kind.value,
        "unit": _unit_record(schema),
        "questions": texts,
        **({} if dataset is None else {"dataset": dataset}),
        **({} if steps is None else {"totals": steps, "hashes": [made.question.hash for made in plans]}),
    }
    known = standing_records.declaration(session.ledger, name)
    if known is not None and asked.share is not None and {**known, "units": None} == {**record, "units": None}:
        each = Cost(int(known["units"]))  # the remaining budget, of which `share` is a fraction, is smaller now
    else:
        each = Cost(asked.cost(plans[0], session.budget, session._left(payer)).units // len(plans))
    if not each.units:
        raise InvalidParameter("cost", NOTHING, f"is too small for {len(plans)} questions", "give more, or ask fewer")
    if steps is not None:
        for made in plans:
            totals_noise(made, session.budget, each, steps)  # raises now if the cost is too small for its noise
    standing_records.declare(
        session.ledger, name, {**record, "units": str(each.units)}, Cost(each.units * len(plans)), payer
    )
    return Standing(session, name, table, by, tuple(texts), each, asked.confidence, steps)


def _check_budget(session: Session) -> None:
    """Refuse a renewing budget: it states what a person risks in one period, from all that is charged in this period.

    Days of a set are answered in later periods, in which their whole budgets may be spent beside them.
    """
    renewal = session.ledger.renewal
    if renewal is not None:
        raise InvalidOperation(
            f"the budget renews each {renewal.per}, and days of a set that is paid in one {renewal.per} are answered "
            f"in others, which would reveal more than the budget of a {renewal.per}; ask each day anew, or open a "
            "ledger with one Budget for all of the time"
        )


def found(session: Session, name: str, confidence: float) -> Standing:
    """The declared set of this name. InvalidParameter if there is no such set, InvalidOperation if the unit changed."""
    checked_path_name("name", name, 'write "daily"')
    record = standing_records.declaration(session.ledger, name)
    if record is None:
        raise InvalidParameter("name", name, "is not a set of standing questions in this ledger", "declare it first")
    schema = _checked_table(session, record["table"], record["by"])
    then, now = record["unit"], _unit_record(schema)
    if (then["rows"], then["column"]) != (now["rows"], now["column"]):
        raise InvalidOperation(
            f"{name!r} was declared with Unit.person({then['column']!r}, rows={then['rows']}); open the session with it"
        )
    if "kind" not in then:
        raise InvalidOperation(f"the declaration of {name!r} lacks the kind of its ids; declare a new set")
    if then["kind"] != now["kind"]:
        raise InvalidOperation(
            f"{name!r} was declared with ids of kind {then['kind']} in {then['column']!r}, and ids of kind "
            f"{now['kind']} would name other people; open the session with the declared kind"
        )
    days = schema.column(record["by"]).kind.value
    if record.get("by_kind", days) != days:
        raise InvalidOperation(
            f"{name!r} was declared with days of kind {record['by_kind']} in {record['by']!r}, which has kind {days} "
            "now; open the session with the declared kind"
        )
    cost, questions = Cost(int(record["units"])), tuple(record["questions"])
    return Standing(session, name, record["table"], record["by"], questions, cost, confidence, record.get("totals"))


def _unit_record(table: Table) -> dict[str, Any]:
    """What must stay as it was declared, because a pseudonym is a hash of the id as text: "01" is 1 as an integer."""
    assert table.unit is not None
    assert table.unit.column is not None
    kind = dict(table.columns).get(table.unit.column, Domain(Kind.TEXT)).kind
    return {"rows": table.unit.rows, "column": table.unit.column, "kind": kind.value}


def _engine_beside(session: Session) -> Any:
    """An engine for the rows of a day. It has its own process, with the same caps, if the session's engine has one."""
    from deniable.queries.engines.duckdb import DuckDBEngine
    from deniable.queries.engines.engine_process import Apart

    engine = session._engine
    if not isinstance(engine, Apart):
        return DuckDBEngine()
    if not (isinstance(engine.make, partial) and engine.make.func is DuckDBEngine):
        return engine.beside(DuckDBEngine)
    # No folder for kept tables: the rows of one day need not be kept, and their file would replace the file of the
    # whole table.
    return engine.beside(partial(DuckDBEngine, *engine.make.args, **{**engine.make.keywords, "kept": None}))


# -- what can stand ----------------------------------------------------------------------------------------------------


def _checked_table(session: Session, name: str, by: str) -> Table:
    table = session._tables.get(name)
    if table is None:
        raise InvalidParameter("table", name, "is not a table of this session", "open it with this table")
    if table.unit is None or table.unit.column is None or table.unit.relation is not Relation.ADD_REMOVE:
        rule = "must have a person as its unit, with neighbours by add/remove, so that a person's rows are bounded"
        raise InvalidParameter("table", name, rule, 'use unit=Unit.person("patient_id", rows=10)')
    if table.unit.period is not None:
        rule = (
            f"protects a {table.unit.period} of a person, but standing questions need a bound on all rows of a person"
        )
        raise InvalidParameter("table", name, rule, 'use unit=Unit.person("patient_id", rows=10)')
    domain = dict(table.columns).get(by)
    if domain is None or by == table.unit.column or domain.kind not in {Kind.DATE, Kind.INTEGER}:
        raise InvalidParameter("by", by, f"must be a column of dates or integers of {name!r}")
    return table


def checked_questions(questions: object, most: int) -> list[str]:
    """A list of 1 to `most` questions in SQL; otherwise InvalidParameter."""
    texts = list(questions) if isinstance(questions, Iterable) and not isinstance(questions, str) else []
    if not texts or not all(isinstance(each, str) for each in texts):
        raise InvalidParameter("questions", NOTHING, "must be a list of questions in SQL", 'write ["SELECT ..."]')
    if len(texts) > most:
        raise InvalidParameter("questions", len(texts), f"must be a list of at most {most:,} questions")
    return texts


def checked_day(table: Table, by: str, day: object) -> Day:
    """`day` as a value of the column `by`: an integer, or a date (also as ISO text); otherwise InvalidParameter."""
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
    raise InvalidParameter("day", day, f"must be of kind {kind.value}, the kind of column {by!r}")


def read_day(text: str, kind: Kind) -> Day:
    """The day of a text that `str(day)` wrote; `kind` is the kind of its column. InvalidOperation for another kind."""
    try:
        return int(text) if kind is Kind.INTEGER else dt.date.fromisoformat(text)
    except ValueError:
        raise InvalidOperation(
            f"days were answered when their column had another kind than {kind.value}; open the session with that kind"
        ) from None


def planned(session: Session, text: str) -> NoisePlan:
    """The plan of a question for a day. Each statistic has a share of its own, as in sets of earlier versions."""
    return one_by_one(session._planned(text))


def _planned(session: Session, text: str, table: str) -> NoisePlan:
    """The plan of a standing question; QuestionRefused if a day cannot be a part of it."""
    made = planned(session, text)
    if [*tables_read(made.question.relation)] != [table] or not _is_simple(made.question.relation):
        raise QuestionRefused(
            "join", "a standing question must filter and group the rows of one table", f"SELECT COUNT(*) FROM {table}"
        )
    if made.collect.known is None:
        raise QuestionRefused("key", "the keys of a standing question must be public", "declare them in the schema")
    for part in made.parts:
        if not isinstance(part.statistic, Count | ExactSum):
            raise QuestionRefused(
                "aggregate",
                "a standing question must be a sum over rows: COUNT(*), COUNT, SUM, AVG, VARIANCE or STDDEV",
                f"SELECT COUNT(*) FROM {table}",
            )
    return made


def check_standing(session: Session, question: str, by: str) -> None:
    """Raise QuestionRefused if this question cannot be answered for each day, and InvalidParameter if `by` or the table
    has no days. Reads no data.
    """
    from deniable.queries.sql.dialect import reads_clock

    if reads_clock(question):
        raise QuestionRefused("function", "a standing question must mean the same on every day", "leave the clock out")
    tables = [*tables_read(session._planned(question).question.relation)]
    if len(tables) != 1:
        raise QuestionRefused("join", "standing questions of one set must read one table", "declare one set for each")
    _checked_table(session, tables[0], by)
    _planned(session, question, tables[0])


def _is_simple(relation: RelationNode) -> bool:
    while isinstance(relation, FilterRows | Project):
        relation = relation.child
    return isinstance(relation, Source)
