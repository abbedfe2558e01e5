"""Answers, receipts and bounds of a server: the classes of a local session, with the numbers that the server sent.

Cells, intervals, notes, receipt and guarantee are read from the record at once. Methods that need the plan of the
question (`plan`, `rollup`, `shares`, `adding_up_to`, ...) make it on first use: see `remote_plans`.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast, final

from deniable.errors import DeniableError, InvalidOperation, MissingExtra, UnreadableRecord
from deniable.queries.answer import privacy_statement
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.answer_display import Cell, Interval, Shown
from deniable.queries.answer.grouping_sets import Grouped
from deniable.queries.answer.machine_records import read_promise, read_receipt
from deniable.queries.answer.release import Released
from deniable.queries.bought_bounds import Bounds
from deniable.tables.kinds import Domain, Kind, declared

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.frame.recorded_steps import Steps
    from deniable.queries.plan.noise_planner import NoisePlan

LatePlan = Callable[[], "NoisePlan"]
"""A function that makes the plan of an answer, when it is first needed."""

_MADE_LATE = ("_places", "_plan", "_released", "_shared")
"""Attributes that exist only after the plan was made."""


@final
class RemoteAnswer(Answer):
    """A noisy answer from a server: an `Answer`, with the `dataset` and the `release` by which the server keeps it."""

    __slots__ = ("_is_of_set", "_late", "_notes", "_record", "curve", "dataset", "question", "release")

    _record: dict[str, Any]
    curve: Curve
    dataset: str
    question: str | Steps
    """The question as it was sent. A roll-up has the question of the finer answer, from which it was computed; one of
    several tables has the question that all of them answer.
    """
    release: str | None
    """The server's name for this answer, such as "visits:7"; None for an answer from dummy rows."""

    def __init__(
        self, record: dict[str, Any], question: str | Steps, late: LatePlan | None = None, *, is_of_set: bool = False
    ) -> None:
        """`late` makes the plan; without it the answer can only be displayed. `is_of_set`: it is one of several tables
        of `question`.
        """
        _fill(self, record, question)
        self._joint, self._late, self._is_of_set = None, late, is_of_set
        self._budget = self.receipt.budget
        self._notes = tuple(str(each) for each in record["notes"])

    if not TYPE_CHECKING:  # else every misspelt name would pass

        def __getattr__(self, name: str) -> Any:
            """Make the plan when an attribute that needs it is first used."""
            if name == "guarantee":
                rule = "an answer from dummy rows has no guarantee, because it uses no person's data"
                raise InvalidOperation(f"{rule}; ask the real data with ask(...)")
            if name not in _MADE_LATE:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._make()
            return object.__getattribute__(self, name)

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        for name in (each for kind in type(self).__mro__ for each in getattr(kind, "__slots__", ())):
            try:  # attributes that need the plan are not made for a copy
                object.__setattr__(other, name, object.__getattribute__(self, name))
            except AttributeError:
                continue
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)  # nothing in an answer changes, and a connection cannot be copied

    def _like(self, made: Answer) -> Self:
        """See `Answer._like`; what the server sent stays with it."""
        other = copy.copy(self)
        for name in (*Shown.__slots__, *Answer.__slots__):
            if name != "guarantee" or not self.receipt.dummy:
                object.__setattr__(other, name, getattr(made, name))
        other._notes, other.curve = made.notes, made.guarantee.curve
        return other

    @property
    def _is_summed(self) -> bool:
        """Whether it is a roll-up: the answer to another question than `question`, by fewer keys."""
        return bool(self.receipt.question != self._record["provenance"]["question"])

    def _make(self) -> None:
        """Make the plan, and set all attributes that need it."""
        if self._late is None:
            raise InvalidOperation(
                "this answer was read without a session, so its plan cannot be made; ask through connect(...)"
            )
        plan = self._late()
        released = Released.from_bytes(self._record["papers"]["released"].encode(), plan)
        made = Answer(
            released.plan_of(plan, self._budget), released, self._budget, self._promise, self.receipt, self.confidence
        )
        if sent := self._record["papers"].get("shares"):
            made = made.with_shares(sent)
        for name in _MADE_LATE:
            object.__setattr__(self, name, getattr(made, name))

    def _shares_taken_here(self) -> Mapping[str, float]:
        """The factors of shares that were taken after the server had sent the answer."""
        try:
            taken: Mapping[str, float] = object.__getattribute__(self, "_shared")
        except AttributeError:  # shares need the plan, which was not made yet
            return {}
        return {} if self._record["papers"].get("shares") else taken

    def _has_plan(self) -> bool:
        """Whether the plan can be made; False without the extra "sql", and callers then do without the plan."""
        try:
            return self.plan is not None
        except MissingExtra:
            return False

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader, one sentence each, as the server wrote them."""
        return self._notes

    @property
    def tables(self) -> tuple[RemoteAnswer, ...]:
        """Empty: this is one table. An answer to ROLLUP, CUBE or GROUPING SETS (`Grouped`) has several."""
        return ()

    def nonnegative(self) -> Self:
        """See `Answer.nonnegative`; without the extra "sql", count by count."""
        made = Answer.nonnegative(self) if self._has_plan() else Shown.nonnegative(self)
        return cast(Self, made)

    def rounded(self, *, base: int = 1) -> Self:
        """See `Answer.rounded`; without the extra "sql", count by count."""
        made = Answer.rounded(self, base=base) if self._has_plan() else Shown.rounded(self, base=base)
        return cast(Self, made)

    def statement(self, *, delta: float | None = None) -> Statement:
        """See `Answer.statement`; without the extra "sql" it does not describe the tables."""
        if self._has_plan() and not self.receipt.dummy:
            return Answer.statement(self, delta=delta)
        unit = str(self._record["provenance"]["unit"])
        return privacy_statement.of_curve(self.curve, unit, self.receipt.entry, self.adjustments, delta)

    def to_dict(self) -> dict[str, Any]:
        """The answer as a JSON-ready dict: as the server sent it, or with later adjustments."""
        is_sent = self.adjustments == tuple(self._record["papers"]["adjustments"])
        if is_sent:
            return dict(self._record)
        return Answer.to_dict(self) | ({"dummy": True} if self.receipt.dummy else {})


@final
class RemoteGrouped(Grouped):
    """The tables of a text with ROLLUP, CUBE or GROUPING SETS, from a server."""

    __slots__ = ("_promise", "_record", "curve", "dataset", "question", "release")

    _record: dict[str, Any]
    curve: Curve
    dataset: str
    question: str
    release: str | None

    def __init__(self, record: dict[str, Any], question: str, late: Callable[[int, str], LatePlan]) -> None:
        """`late` takes the position of a table and the hash of its question, and returns a function that makes the plan
        of this table when it is needed.
        """
        _fill(self, record, question)
        self.tables = tuple(
            RemoteAnswer(each, question, late(place, each["provenance"]["question"]), is_of_set=True)
            for place, each in enumerate(record["tables"])
        )

    if not TYPE_CHECKING:
        __getattr__ = RemoteAnswer.__getattr__

    def to_dict(self) -> dict[str, Any]:
        """The tables as a JSON-ready dict, as the server sent it."""
        return dict(self._record)


def _fill(answer: Any, record: dict[str, Any], question: str | Steps) -> None:
    """Set the attributes that an answer and a group of tables have in common. UnreadableRecord if one is missing."""
    try:
        kinds, papers = record["kinds"], record["papers"]
        cells = [[_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in record["rows"]]
        bounds: list[list[Interval]] = [
            [None if each is None else (each[0], each[1]) for each in row] for row in record["intervals"]
        ]
        measured, counts = frozenset(record["measured"]), frozenset(record["counts"])
        Shown.__init__(answer, record["columns"], cells, bounds, record["confidence"], measured=measured, counts=counts)
        answer.adjustments = tuple(str(each) for each in papers["adjustments"])
        answer._touched = bool(answer.adjustments)
        answer.receipt, answer._promise = read_receipt(record), read_promise(record)
        answer.dataset, answer.release = record["dataset"], record.get("release")
        answer.curve = answer._promise.curve
        if not answer.receipt.dummy:
            answer.guarantee = answer._promise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, DeniableError) and not isinstance(error, UnreadableRecord):
            raise
        raise UnreadableRecord("this client cannot read this answer; update deniable") from None
    answer._record, answer.question = record, question


@final
@dataclass(frozen=True, slots=True)
class RemoteBounds(Bounds):
    """Bounds that were bought on a server. They are part of the dataset's public schema."""

    record: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, record: dict[str, Any], answer: Answer) -> RemoteBounds:
        """The bounds from the record that the server sent, and the answer that paid for them."""
        kind, ends = Kind(record["kind"]), (record["low"], record["high"])
        domain: Domain | None = None
        if ends[0] is not None:
            low, high = (_cell(each, kind.value) for each in ends)
            domain = declared(kind, low, high, None, record["nullable"])
        return cls(record["table"], record["column"], domain, answer, record["cover"], record)

    @property
    def line(self) -> str:
        """The column's line in a schema file; empty if no bin exceeded the noise."""
        return str(self.record["line"])

    def to_dict(self) -> dict[str, Any]:
        """The bounds as a JSON-ready dict, as the server sent it."""
        return dict(self.record)

    def __str__(self) -> str:
        missing = f"{self.column}: no bin exceeds the noise, so no bounds were found; spend more"
        return f"{self.line or missing}\n{self.receipt}"

    __repr__ = __str__


def _cell(cell: Any, kind: str) -> Cell:
    if isinstance(cell, str) and kind == Kind.DATE.value:
        return dt.date.fromisoformat(cell)
    if isinstance(cell, str) and kind == Kind.TIMESTAMP.value:
        return dt.datetime.fromisoformat(cell)
    if not isinstance(cell, bool | int | float | str | None):
        raise TypeError
    return cell
