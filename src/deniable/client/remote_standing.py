"""Standing questions of a server: the class of a local session. The server answers each day, and keeps the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final
from urllib.parse import quote

from deniable.client import remote_plans
from deniable.client.remote_answers import RemoteAnswer
from deniable.client.remote_prices import RemotePrice
from deniable.errors import DeniableError, InvalidOperation, ServerRefused, UnreadableRecord
from deniable.queries.answer.machine_records import read_cost
from deniable.queries.plan.noise_planner import one_by_one
from deniable.queries.standing_questions import Standing, checked_day, read_day

if TYPE_CHECKING:
    from deniable.client.remote_session import RemoteSession
    from deniable.queries.answer.answer import Answer
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.pricing import Price
    from deniable.queries.standing_days import Day


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteStanding(Standing):
    """A set of standing questions on a server. Its owner answers a day with `reveal`; analysts read it from then on."""

    @classmethod
    def read(cls, session: RemoteSession, record: dict[str, Any], confidence: float) -> RemoteStanding:
        """The set from a record that the server sent."""
        try:
            cost, questions = read_cost(record["cost"]), tuple(str(each) for each in record["questions"])
            about = record["name"], record["table"], record["by"], questions, cost, confidence, record["totals"]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DeniableError) and not isinstance(error, UnreadableRecord):
                raise
            raise UnreadableRecord("this client cannot read these standing questions; update deniable") from None
        return cls(session, *about)

    def reveal(self, day: Day | str) -> list[Answer]:
        """See `Standing.reveal`. Only the owner can answer a new day; for others it raises InvalidOperation."""
        written = self._day_as_json(day)
        known = self._recalled(written)
        if known is not None:
            return known
        place = f"{self._place}/days?confidence={self.confidence}"
        try:
            return self._answers(self.session._wire.post(place, {"day": written}))
        except ServerRefused as refused:
            if refused.code != "forbidden":
                raise
        raise InvalidOperation(
            f"{self.name!r} has no answer for {day} yet; ask the owner of the dataset to reveal that day"
        )

    def recall(self, day: Day | str) -> list[Answer] | None:
        """See `Standing.recall`."""
        return self._recalled(self._day_as_json(day))

    def _recalled(self, written: str | int) -> list[Answer] | None:
        place = f"{self._place}/days/{quote(str(written), safe='')}?confidence={self.confidence}"
        try:
            return self._answers(self.session._wire.get(place))
        except ServerRefused as refused:
            if refused.code != "not_found":
                raise
        return None

    def prices(self) -> list[Price]:
        """See `Standing.prices`."""
        found = []
        for record, text in zip(
            self.session._wire.get(f"{self._place}?prices=true")["prices"], self.questions, strict=True
        ):
            made = self.session._late(remote_plans.of_question(text), record["question"])
            late = partial(_of_a_day, made)
            found.append(cast("Price", RemotePrice.read(record, {"dataset": self.session.dataset, "sql": text}, late)))
        return found

    def days(self) -> list[Day]:
        """See `Standing.days`."""
        kind = self.session.tables[self.table].column(self.by).kind
        return [read_day(str(each), kind) for each in self.session._wire.get(self._place)["days"]]

    @property
    def _place(self) -> str:
        return f"/v1/datasets/{quote(self.session.dataset, safe='')}/standing/{quote(self.name, safe='')}"

    def _day_as_json(self, day: Day | str) -> str | int:
        """The day as JSON; InvalidParameter if it is not of the kind of its column."""
        found = checked_day(self.session.tables[self.table], self.by, day)
        return found if isinstance(found, int) else found.isoformat()

    def _answers(self, record: dict[str, Any]) -> list[Answer]:
        pairs = zip(record["answers"], self.questions, strict=True)
        return [cast(RemoteAnswer, self.session._one(each, text)) for each, text in pairs]


def _of_a_day(plan: Callable[[], NoisePlan]) -> NoisePlan:
    return one_by_one(plan())
