"""A session on a server: `deniable.connect(url, token=...)` has the same verbs as a local session.

Nothing private is here: prices and answers come from the server, as they would from `deniable.session`. Every question
carries an idempotency key, so that one whose answer was lost on the way is asked again for nothing.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, final
from urllib.parse import quote

from deniable.errors import (
    ENGINE_FAILURES,
    NOTHING,
    REFUSALS,
    BudgetExceeded,
    DeniableError,
    EngineFailed,
    InvalidOperation,
    InvalidParameter,
    LedgerUnavailable,
    MissingExtra,
    QuestionRefused,
    ServerRefused,
    UnreadableRecord,
    require_names,
)
from deniable.queries.shown import Cell, Shown
from deniable.tables.kinds import Kind

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.session import Tables
    from deniable.queries.steps import Recorded, Steps
    from deniable.tables.schema import Table
    from deniable.units import Guarantee

_ATTEMPTS: Final = 4
"""How often a request is sent before its failure is told."""

_SAID: Final = ("parameter", "rule", "remedy", "rewrite", "asked", "left", "account")
"""What a problem says in words of its own."""

_RUNNING: Final = "is it running, and is that its address?"


def connect(url: str, *, token: str, dataset: str | None = None, timeout: float = 120.0) -> RemoteSession:
    """A session on the server at `url`. Without `dataset` it is the only one that the token may see.

    The token is sent with every request, so `url` must be https, unless the server is on this machine.
    """
    wire = _wire(url, token, timeout)
    try:
        names = [each["name"] for each in wire.get("/v1/datasets")["datasets"]]
        chosen = names[0] if dataset is None and len(names) == 1 else dataset
        if chosen is None or chosen not in names:
            known = ", ".join(names) or "none at all"
            raise InvalidParameter("dataset", dataset, f"must be one that the token may see: {known}")
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
    wire = _wire(url, token, timeout)
    try:
        if grants:
            analysts = wire.get("/v1/analysts")["analysts"]
            for each in grants:
                if each not in analysts:
                    known = ", ".join(analysts) or "there is none yet"
                    rule = f"is no analyst of this server ({known}); nothing was added"
                    raise InvalidParameter("grants", each, rule, "an admin makes people")
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


def _wire(url: str, token: str, timeout: float) -> _Wire:
    try:
        import httpx
    except ImportError:
        raise MissingExtra("httpx", "client") from None
    if not isinstance(token, str) or not token.isascii() or not token.strip():
        raise InvalidParameter("token", NOTHING, "must be the token that you were given")
    if isinstance(url, str) and url and "://" not in url:
        rule, near_by = "must begin with https:// or http://", url.startswith(("127.0.0.1", "localhost", "[::1]"))
        raise InvalidParameter("url", url, rule, f"write {'http' if near_by else 'https'}://{url}")
    try:
        place = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise InvalidParameter("url", url, "must be an address such as https://curator.example.org") from None
    near = place.scheme == "http" and place.host in {"127.0.0.1", "localhost", "::1"}
    if place.scheme != "https" and not near:
        raise InvalidParameter("url", str(url), "must be https, or on this machine: the token travels with it")
    # Not by the environment's proxies, and never on to where a redirection points: the token is for this server alone.
    web = httpx.Client(
        base_url=place,
        headers={"Authorization": f"Bearer {token.strip()}"},
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
    )
    return _Wire(web)


@final
class RemoteSession:
    """Questions about a dataset on a server, under a budget that the server keeps. Made by `deniable.connect`."""

    __slots__ = ("_wire", "dataset")

    def __init__(self, wire: _Wire, dataset: str) -> None:
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
        from deniable.queries.steps import Recorded

        return Recorded.of(name, _tables(self.describe()))

    def price(self, question: str | Steps, *amounts: Never, **cost: Any) -> RemotePrice:
        """What `sql` would charge, and how exact it would be. Free: no data is read."""
        require_names(amounts)
        body = self._body(question, cost)
        return RemotePrice(self._wire.post("/v1/questions:price", body), body)

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
        """Several questions at once, for one cost that they share: all are paid for, or none."""
        require_names(amounts)
        if isinstance(questions, str):
            raise InvalidParameter("questions", NOTHING, "must be a list of at least one question")
        texts = [each if isinstance(each, str) else each.record for each in questions]
        body = {"dataset": self.dataset, "questions": texts, **cost}
        found = self._wire.ask("/v1/questions:batch", body)["answers"]
        return [self._answer(each, sql) for each, sql in zip(found, questions, strict=True)]

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
        from deniable.queries.session import Tables

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

    def _body(self, question: object, cost: Mapping[str, Any]) -> dict[str, Any]:
        return {"dataset": self.dataset, **_said(question), **cost}

    def _answer(self, record: dict[str, Any], question: str | Steps) -> RemoteAnswer:
        return RemoteAnswer(record, question)


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


def _said(question: object) -> dict[str, Any]:
    """A question as it goes over the wire."""
    if isinstance(question, str):
        return {"sql": question}
    record = getattr(question, "record", None)
    if not isinstance(record, Mapping) or not hasattr(question, "text"):
        rule = "must be SQL, or made by table(...) and agg(...) of this session"
        raise InvalidParameter("question", type(question).__name__, rule)
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

    __slots__ = ("_notes", "_record", "curve", "dataset", "question", "receipt", "release")

    def __init__(self, record: dict[str, Any], question: str | Steps) -> None:
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
        self._record, self.question = record, question

    def to_dict(self) -> dict[str, Any]:
        """Everything, as the server said it."""
        return dict(self._record)

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


# -- the wire ----------------------------------------------------------------------------------------------------------


@final
class _Wire:
    """Requests that are sent again where that is harmless, and problems that become errors."""

    def __init__(self, web: Any) -> None:
        self._web = web

    @property
    def place(self) -> str:
        return str(self._web.base_url)

    def close(self) -> None:
        self._web.close()

    def get(self, path: str) -> Any:
        return self._sent("GET", path, None, {}, _RUNNING)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """For what charges nothing."""
        return self._sent("POST", path, body, {}, "nothing was charged; try again")

    def once(self, path: str, body: dict[str, Any]) -> Any:
        """Not sent again: what was done the first time would be refused the second."""
        return self._sent("POST", path, body, {}, "it may have been done; look before you try again", attempts=1)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """With a key of its own, so that sending it again is one charge."""
        remedy = "it may have been charged; ask it again for the same answer"
        return self._sent("POST", path, body, {"Idempotency-Key": uuid.uuid4().hex}, remedy)

    def _sent(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        headers: dict[str, str],
        remedy: str,
        attempts: int = _ATTEMPTS,
    ) -> Any:
        import httpx

        if self._web.is_closed:
            raise InvalidOperation("this session is closed; connect again")
        for attempt in range(attempts):
            last, pause = attempt == attempts - 1, 0.2 * 2**attempt
            try:
                response = self._web.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                if last:
                    # Nothing was sent over a connection that was never made; an earlier try may have been, though.
                    never = attempts == 1 and isinstance(error, httpx.ConnectError)
                    raise LedgerUnavailable(
                        f"the server at {self.place} could not be reached", _RUNNING if never else remedy
                    ) from None
            except (TypeError, ValueError):
                raise InvalidParameter("cost", NOTHING, "must be numbers that JSON knows") from None
            else:
                wait = response.headers.get("Retry-After", "")
                if last or response.status_code not in {429, 503} or not wait.isdigit():
                    return _read(response)
                pause = min(10.0, float(wait))
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _read(response: Any) -> Any:
    try:
        record = response.json()
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UnreadableRecord("whatever answered there is no server of deniable")
    if response.is_success:
        return record
    raise _error(record, response.status_code)


def _error(problem: dict[str, Any], status: int) -> DeniableError:
    """The error that a local session would have raised; ServerRefused for what only a server can say."""
    code, detail = problem.get("code"), str(problem.get("detail") or problem.get("title") or "")
    said = {name: str(problem.get(name, "")) for name in _SAID}
    if code == "refused" and problem.get("refusal") in REFUSALS:
        return QuestionRefused(problem["refusal"], said["rule"], said["rewrite"])
    if code == "budget_exceeded":
        return BudgetExceeded(said["asked"], said["left"], said["remedy"], account=said["account"])
    if code == "invalid":
        named = said["parameter"] or "request"
        return InvalidParameter(named, NOTHING, said["rule"] or detail, said["remedy"])
    if code == "run_failed" and problem.get("failure") in ENGINE_FAILURES:
        return EngineFailed(problem["failure"], "what was charged stays charged")
    if code == "ledger_unavailable":
        return LedgerUnavailable(detail, "try again")
    if code == "unauthorized":
        detail = (
            "the server does not take this token; it may be mistyped, expired or revoked: ask an admin for a new one"
        )
    return ServerRefused(str(code), status, detail)
