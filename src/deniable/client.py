"""A session on a server: `deniable.connect(url, token=...)` has the same verbs as a local session.

Nothing private is here: prices and answers come from the server, as they would from `deniable.session`. Every question
carries an idempotency key, so that one whose answer was lost on the way is asked again for nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, final, overload
from urllib.parse import quote

from deniable.errors import (
    NOTHING,
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    UnreadableRecord,
    require_names,
    type_of,
)
from deniable.queries.answer.answer_display import Cell, Shown
from deniable.queries.answer.grouping_sets import names_sets
from deniable.tables.kinds import Kind
from deniable.transport import Wire, wire_to

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.frame.recorded_steps import Recorded, Steps
    from deniable.queries.plan.answer_notes import Tables
    from deniable.queries.synthetic.synthesis_measurement import SynthesisPrice
    from deniable.queries.synthetic.synthetic_table import Synthetic
    from deniable.tables.schema import Table
    from deniable.units import Guarantee


def connect(url: str, *, token: str, dataset: str | None = None, timeout: float = 120.0) -> RemoteSession:
    """A session on the server at `url`. Without `dataset` it is the only one that the token may see.

    The token is sent with every request, so `url` must be https, unless the server is on this machine.
    """
    wire = wire_to(url, token, timeout)
    try:
        names = [each["name"] for each in wire.get("/v1/datasets")["datasets"]]
        chosen = names[0] if dataset is None and len(names) == 1 else dataset
        if chosen is None or chosen not in names:
            if not names:
                raise InvalidParameter("dataset", dataset, "no dataset is granted to you yet", "ask its owner")
            raise InvalidParameter("dataset", dataset, f"must be one that you may see: {', '.join(names)}")
    except BaseException:
        wire.close()
        raise
    return RemoteSession(wire, chosen)


def register(
    url: str,
    *,
    token: str,
    name: str,
    sources: Mapping[str, str],
    schema: str | Mapping[str, Any],
    budget: Mapping[str, float] | None,
    family: str | None = None,
    people: str | None = None,
    reason: str | None = None,
    grants: Sequence[str] = (),
    timeout: float = 600.0,
) -> dict[str, Any]:
    """Register a dataset with the server at `url`, as an owner: files that lie in its data folders, by table.

    No data travels, only its description. `grants` are analysts who may ask from then on, up to the whole budget. What
    comes back is all that is public about the dataset, with a `warning` where the data was known. Where the server says
    that most ids are known (`same_people`), `people` is "same" (one budget) or "others", with a `reason`.
    """
    wire = wire_to(url, token, timeout)
    try:
        if grants:
            analysts = wire.get("/v1/analysts")["analysts"]
            for each in grants:
                if each not in analysts:
                    known = ", ".join(analysts) or "there is none yet"
                    rule = f"is no analyst of this server ({known}); nothing was added"
                    raise InvalidParameter("grants", each, rule, "ask an admin to invite them")
        body = {"name": name, "sources": dict(sources), "schema": schema, "budget": budget, "family": family}
        body |= {"people": people, "reason": reason}
        made: dict[str, Any] = wire.once("/v1/datasets", {key: each for key, each in body.items() if each is not None})
        place = f"/v1/datasets/{quote(name, safe='')}/grants"
        given: list[dict[str, Any]] = []
        for each in grants:
            try:
                given.append(wire.once(place, {"analyst": each}))
            except DeniableError as error:
                done = ", ".join(str(one["analyst"]) for one in given) or "nobody"
                error.add_note(f"the dataset {name!r} was added; {done} was granted it, {each} was not")
                raise
        return made | {"grants": given}
    finally:
        wire.close()


@final
class RemoteSession:
    """Questions about a dataset on a server, under a budget that the server keeps. Made by `deniable.connect`."""

    __slots__ = ("_wire", "dataset")

    def __init__(self, wire: Wire, dataset: str) -> None:
        self._wire, self.dataset = wire, dataset

    # -- asking --------------------------------------------------------------------------------------------------------

    def sql(self, question: str, *amounts: Never, **cost: Any) -> RemoteAnswer:
        """Answer a question in SQL; the cost is said as to a local session. What was asked before costs nothing."""
        return self.ask(question, *amounts, **cost)

    def ask(self, question: str | Steps, *amounts: Never, **cost: Any) -> RemoteAnswer:
        """Answer a question, in SQL or built from `table(...)`."""
        require_names(amounts)
        return self._answer(self._wire.ask("/v1/questions", self._body(question, cost)), question)

    def table(self, name: str) -> Recorded:
        """A table, for questions in Python: `s.ask(s.table("visits").group_by("ward").agg(n=count()), epsilon=0.1)`.

        They are built and checked here, from the public schema, and built and checked again by the server.
        """
        from deniable.queries.frame.recorded_steps import Recorded

        return Recorded.of(name, _tables(self.describe()))

    @overload
    def price(self, question: str | Steps, *amounts: Never, **cost: Any) -> RemotePrice: ...
    @overload
    def price(self, question: list[str | Steps] | list[str], *amounts: Never, **cost: Any) -> RemoteQuoted: ...
    def price(self, question: Any, *amounts: Never, **cost: Any) -> RemotePrice | RemoteQuoted:
        """What `sql` would charge, and how exact it would be; of a list, what `batch` would, and of a text with ROLLUP,
        CUBE or GROUPING SETS, what its tables would as one. Free: no data is read.
        """
        if isinstance(question, list | tuple):
            return self.price_batch(question, *amounts, **cost)
        require_names(amounts)
        body = self._body(question, cost)
        found = self._wire.post("/v1/questions:price", body)
        return RemoteQuoted(found) if "tables" in found else RemotePrice(found, body)

    def explain(self, question: str | Steps | RemoteAnswer | RemotePrice) -> str:
        """The plan of a question, in the words of a local session: each step with its stability, each statistic with
        its sensitivity, and the SQL that the server's engine runs; of a price also the noise. Free: no data is read.
        """
        if isinstance(question, RemotePrice):
            if question.asked.get("dataset") != self.dataset:
                raise InvalidParameter("price", NOTHING, "must be a price of this session")
            body = question.asked
        else:
            asked = question.question if isinstance(question, RemoteAnswer) else question
            body = self._body(asked, {})
        return str(self._wire.post("/v1/questions:explain", body)["text"])

    def refine(self, answer: RemoteAnswer, *amounts: Never, **cost: Any) -> RemoteAnswer:
        """Spend more on a question that was answered: the answers are merged by inverse variance."""
        require_names(amounts)
        if not isinstance(answer, RemoteAnswer) or answer.dataset != self.dataset:
            raise InvalidParameter("answer", NOTHING, "must be an answer of this session")
        cost.setdefault("confidence", answer.confidence)
        found = self._wire.ask("/v1/questions:refine", self._body(answer.question, cost))
        return self._answer(found, answer.question)

    def batch(self, questions: Sequence[str | Steps], *amounts: Never, **cost: Any) -> list[RemoteAnswer]:
        """Several questions at once, for one cost that they share: all are paid for, or none. `weights=` and `within=`
        are those of a local session.
        """
        require_names(amounts)
        found = self._wire.ask("/v1/questions:batch", self._several(questions, cost))["answers"]
        return [self._answer(each, sql) for each, sql in zip(found, questions, strict=True)]

    def price_batch(self, questions: Sequence[str | Steps], *amounts: Never, **cost: Any) -> RemoteQuoted:
        """What `batch` would charge, how exact each table would be, and how the cost is split. Free: no data read."""
        require_names(amounts)
        return RemoteQuoted(self._wire.post("/v1/questions:price_batch", self._several(questions, cost)))

    def bounds(
        self, column: str, table: str | None = None, *amounts: Never, cover: float = 0.99, **cost: Any
    ) -> RemoteBounds:
        """Buy bounds of a column that has none, such that about `cover` of the rows are within; for owners.

        The dataset has them from then on: what was paid for is public.
        """
        require_names(amounts)
        body = {"column": column, "table": table, "cover": cover, **cost}
        record = self._wire.ask(f"/v1/datasets/{self.dataset}/bounds", body)
        return RemoteBounds(record, self._answer(record["answer"], f"bounds of {column}"))

    def price_bounds(self, column: str, table: str | None = None, *amounts: Never, **cost: Any) -> RemotePrice:
        """What `bounds` would charge. Free: no data is read."""
        require_names(amounts)
        body = {"column": column, "table": table, **cost}
        return RemotePrice(self._wire.post(f"/v1/datasets/{self.dataset}/bounds:price", body))

    def synthesize(self, table: str | None = None, *amounts: Never, **said: Any) -> Synthetic:
        """A synthetic table, as of a local session. The server measures noisy counts, and they are fitted here."""
        from deniable.queries.synthetic.synthesis_measurement import refuse_useless

        require_names(amounts)
        if (rows := said.pop("rows", None)) is not None:
            refuse_useless(self.price_synthesis(table, **said), rows)
        return self._fitted(self._wire.ask(f"/v1/datasets/{self.dataset}/synthetic", _synthesis(table, said)))

    def price_synthesis(self, table: str | None = None, *amounts: Never, **said: Any) -> SynthesisPrice:
        """What `synthesize` with the same words, `rows` apart, would charge, and the noise of each count. Free: no data
        is read.
        """
        from deniable.queries.synthetic import synthesis_request
        from deniable.queries.synthetic.synthetic_records import read_price

        require_names(amounts)
        found = self._wire.post(f"/v1/datasets/{self.dataset}/synthetic:price", _synthesis(table, said))
        return read_price(found, {"table": table, **synthesis_request.apart(said)[0]}, self.tables)

    def synthetic(self, release: str) -> Synthetic:
        """A synthetic table that you bought or that the owner published ("visits:7"), for nothing."""
        charge = quote(release.rpartition(":")[2], safe="")
        return self._fitted(self._wire.get(f"/v1/datasets/{self.dataset}/synthetic/{charge}"))

    def synthetics(self) -> list[dict[str, Any]]:
        """The synthetic tables that you bought, and those that the owner published."""
        place = f"/v1/datasets/{self.dataset}/synthetic"
        page = self._wire.get(place)
        found = list(page["synthetic"])
        while (before := page.get("before")) is not None:
            page = self._wire.get(f"{place}?before={int(before)}")
            found += page["synthetic"]
        return found

    def rehearse(self, question: str | Steps, *amounts: Never, **cost: Any) -> RemoteAnswer:
        """The same question to dummy rows, which are made from the public schema alone. Free, and about nobody."""
        require_names(amounts)
        place = f"/v1/datasets/{self.dataset}/dummy:ask"
        return self._answer(self._wire.post(place, {**_said(question), **cost}), question)

    def dummy_rows(self, *, rows: int = 20) -> dict[str, list[dict[str, Any]]]:
        """Dummy rows of each table."""
        found: dict[str, list[dict[str, Any]]] = self._wire.get(f"/v1/datasets/{self.dataset}/dummy?rows={rows}")[
            "tables"
        ]
        return found

    # -- the account ---------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """All that is public about the dataset: tables, unit, budget, and what is left."""
        found: dict[str, Any] = self._wire.get(f"/v1/datasets/{self.dataset}")
        return found

    @property
    def tables(self) -> Tables:
        """The schemas, by name; print it to see the columns. All of it is public."""
        from deniable.queries.plan.answer_notes import Tables

        return Tables(_tables(self.describe()))

    @property
    def guarantee(self) -> Guarantee:
        """What holds about everything that is ever answered under the dataset's budget."""
        from deniable.curves import Curve
        from deniable.units import Guarantee

        about = self.describe()
        units = [table.unit for table in _tables(about).values() if table.unit is not None]
        said = about["guarantee"]
        unit = max(units, key=lambda each: each.rows)  # as the ledger has it
        return Guarantee(Curve.from_dict(said["curve"]), unit, assumptions=tuple(said["assumptions"]))

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph about all that is released; ε is told at the budget's δ, or at the one given."""
        from deniable.queries.answer import privacy_statement

        about = self.describe()
        return privacy_statement.of_description(about, self.guarantee, _tables(about), delta)

    @property
    def budget(self) -> str:
        """The budget of the dataset, in words."""
        return str(self.describe()["budget"]["words"])

    @property
    def spent(self) -> Curve:
        """What was promised so far about the dataset, to everybody together, as a curve."""
        from deniable.curves import Curve

        return Curve.from_dict(self.describe()["spent_curve"])

    @property
    def remaining(self) -> str:
        """What you may still spend, in words."""
        return str(self.describe()["left_in_words"])

    def close(self) -> None:
        """Let go of the connection."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteSession on {self.dataset} at {self._wire.place}>"

    def _several(self, questions: Sequence[str | Steps], cost: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(questions, str) and not names_sets(questions):
            raise InvalidParameter("questions", NOTHING, "must be a list of at least one question")
        questions = [questions] if isinstance(questions, str) else questions
        said = [_said(each) for each in questions]
        return {"dataset": self.dataset, "questions": [each.get("sql", each.get("frame")) for each in said], **cost}

    def _body(self, question: object, cost: Mapping[str, Any]) -> dict[str, Any]:
        return {"dataset": self.dataset, **_said(question), **cost}

    def _fitted(self, record: dict[str, Any]) -> Synthetic:
        from deniable.queries.synthetic.synthetic_records import read_record

        return read_record(record)

    def _answer(self, record: dict[str, Any], question: str | Steps) -> RemoteAnswer:
        return RemoteAnswer(record, question, self)


@final
@dataclass(frozen=True, slots=True)
class RemoteBounds:
    """Bounds that were bought, and the noisy counts that they were read off."""

    record: dict[str, Any]
    answer: RemoteAnswer

    @property
    def low(self) -> Any:
        """The lowest value, a date or moment as text; None where no bin stood out of the noise."""
        return self.record["low"]

    @property
    def high(self) -> Any:
        """The highest value."""
        return self.record["high"]

    @property
    def receipt(self) -> RemoteReceipt:
        """What was paid."""
        return self.answer.receipt

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dict(self.record)

    def __str__(self) -> str:
        none = f"{self.record['column']}: no bin stands out of the noise, so there are no bounds; spend more"
        return f"{self.record['line'] or none}\n{self.receipt}"

    __repr__ = __str__


def _tables(about: dict[str, Any]) -> dict[str, Table]:
    """The tables of a dataset, as it is described."""
    from deniable.tables.schema import read_schema

    tables = read_schema({"version": 1, "tables": about["tables"]})
    for public, known in about["partners"].items():  # how many rows of a public table one row can meet, at most
        partners = tuple((tuple(columns), most) for columns, most in known)
        tables[public] = replace(tables[public], most_partners=partners)
    return tables


def _synthesis(table: str | None, said: Mapping[str, Any]) -> dict[str, Any]:
    from deniable.queries.synthetic import impossible_combinations

    sent = {"forbid": impossible_combinations.sendable(said["forbid"])} if "forbid" in said else {}
    return {"table": table, **said, **sent}


def _said(question: object) -> dict[str, Any]:
    """A question as it goes over the wire."""
    if isinstance(question, str):
        return {"sql": question}
    record = getattr(question, "record", None)
    if not isinstance(record, Mapping) or not hasattr(question, "text"):
        rule = "must be SQL, or made by table(...) and agg(...) of this session"
        raise InvalidParameter("question", type_of(question), rule)
    return {"frame": dict(record)}


@final
@dataclass(frozen=True, slots=True)
class RemotePrice:
    """The cost of a question, and how exact its answer would be."""

    record: dict[str, Any]
    asked: dict[str, Any] = field(default_factory=dict, repr=False)
    """The request that it is the price of."""

    @property
    def cost(self) -> str:
        """The cost in words."""
        return str(self.record["cost"])

    @property
    def fits(self) -> bool:
        """Whether that much is left."""
        return bool(self.record["fits"])

    @property
    def times(self) -> int:
        """How many questions of this price fit into what is left."""
        return int(self.record["times"])

    def errors(self) -> dict[str, float | None]:
        """The half-width of the noise interval of each measure."""
        return dict(self.record["errors"])

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dict(self.record)

    def __str__(self) -> str:
        return "\n".join(self.record["lines"])

    __repr__ = __str__


@final
@dataclass(frozen=True, slots=True)
class RemoteQuoted:
    """The price of a batch: what it costs in all, and how exact each of its tables would be."""

    record: dict[str, Any]

    @property
    def cost(self) -> str:
        """The cost in words."""
        return str(self.record["cost"])

    @property
    def fits(self) -> bool:
        """Whether that much is left."""
        return bool(self.record["fits"])

    @property
    def tables(self) -> list[dict[str, Any]]:
        """Of each question, in order: its cells, the expected error of each column, and its part of the cost."""
        return list(self.record["tables"])

    @property
    def split(self) -> tuple[tuple[str, float], ...]:
        """What is measured for the tables together, and the share of their cost that each takes."""
        return tuple((str(name), float(share)) for name, share in self.record["split"])

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.tables[place]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dict(self.record)

    def __str__(self) -> str:
        return "\n".join(self.record["lines"])

    __repr__ = __str__


@final
@dataclass(frozen=True, slots=True)
class RemoteReceipt:
    """What was paid: the entry of the ledger, the cost and what was left, in words."""

    entry: int
    question: str
    paid: str
    left: str
    replayed: bool
    time: str
    """When it was charged, by the ledger's clock: a replay tells the table as it was then."""

    dummy: bool = False
    """Whether it was a rehearsal: on dummy rows, for nothing."""

    def __str__(self) -> str:
        if self.dummy:
            return "free: from dummy rows, about nobody"
        return f"charge {self.entry}: paid {self.paid}; left {self.left}"


@final
class RemoteAnswer(Shown):
    """The noisy answer of a server, with the same faces as a local one."""

    __slots__ = ("_notes", "_record", "_session", "curve", "dataset", "question", "receipt", "release")

    def __init__(self, record: dict[str, Any], question: str | Steps, session: RemoteSession | None = None) -> None:
        from deniable.curves import Curve

        try:
            kinds = record["kinds"]
            cells = [[_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in record["rows"]]
            bounds = [[None if each is None else (each[0], each[1]) for each in row] for row in record["intervals"]]
            papers = record["provenance"]
            super().__init__(
                record["columns"],
                cells,
                bounds,
                record["confidence"],
                measured=frozenset(record["measured"]),
                counts=frozenset(record["counts"]),
            )
            self.dataset: str = record["dataset"]
            self.release: str | None = record.get("release")
            named = {each: papers[each] for each in ("entry", "question", "paid", "left", "replayed", "time")}
            self.receipt = RemoteReceipt(**named, dummy=bool(record.get("dummy", False)))
            self._notes = tuple(str(each) for each in record["notes"])
            self.curve = Curve.from_dict(papers["guarantee"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, DeniableError):
                raise
            raise UnreadableRecord("this is no answer of a server that this client knows; update deniable") from None
        self._record, self.question, self._session = record, question, session

    @property
    def guarantee(self) -> Guarantee:
        """What this answer promises; the unit and the assumptions are the dataset's, which the server is asked for."""
        if self._session is None or self.receipt.dummy:
            raise InvalidOperation("an answer from dummy rows is about nobody and promises nothing; ask with ask(...)")
        return replace(self._session.guarantee, curve=self.curve)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as the server said it."""
        return dict(self._record)

    def rollup(self, *keys: str) -> Never:
        """Only an answer of a local session knows the noise of its sums: ask the coarser question, which is free where
        this answer is as exact.
        """
        rule = "rollup() is for answers of a local session: an answer of a server does not tell the law of its noise"
        raise InvalidOperation(f"{rule}; ask for the coarser table: it is read off this one at no cost")

    def adding_up_to(self, *totals: object, invariants: object = None) -> Never:
        """Only an answer of a local session can be fitted: ask for tables that belong together in one batch."""
        rule = (
            "adding_up_to() is for answers of a local session: an answer of a server does not tell the law of its noise"
        )
        raise InvalidOperation(f"{rule}; ask for tables that belong together in one batch: they add up")

    def shares(self) -> RemoteAnswer:
        """Only an answer of a local session knows the noise of its sums: ask for the shares in SQL."""
        rule = "shares() is for answers of a local session: an answer of a server does not tell the law of its noise"
        raise InvalidOperation(f"{rule}; ask for COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ()")

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph about this answer, by its curve; that of the session says more."""
        from deniable.queries.answer import privacy_statement

        unit = str(self._record["provenance"]["unit"])
        return privacy_statement.of_curve(self.curve, unit, self.receipt.entry, self.adjustments, delta)

    @property
    def tables(self) -> tuple[RemoteAnswer, ...]:
        """Each table of a text with ROLLUP, CUBE or GROUPING SETS by itself, with its own release; else none."""
        return tuple(RemoteAnswer(each, self.question, self._session) for each in self._record.get("tables", ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading it, a sentence each, as the server said it."""
        return self._notes

    def _papers(self) -> str:
        return str(self.receipt)

    def _entry(self) -> int:
        return self.receipt.entry


def _cell(cell: Any, kind: str) -> Cell:
    if isinstance(cell, str) and kind == Kind.DATE.value:
        return dt.date.fromisoformat(cell)
    if isinstance(cell, str) and kind == Kind.TIMESTAMP.value:
        return dt.datetime.fromisoformat(cell)
    if not isinstance(cell, bool | int | float | str | None):
        raise TypeError
    return cell
