"""Prices of a server: the class of a local session, with the numbers that the server sent."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

from deniable.errors import DeniableError, UnreadableRecord
from deniable.ledger import Budget
from deniable.queries.answer.machine_records import read_cost
from deniable.queries.plan.pricing import TYPICAL_ROWS, Price

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import NoisePlan


@final
class RemotePrice(Price):
    """The price of a question on a server. `plan`, and `errors(rows=)` for groups of another size than the server's,
    are computed here from the public schema.
    """

    __slots__ = ("_late", "asked", "record")

    _late: Callable[[], NoisePlan]
    asked: dict[str, Any]
    """The body of the request for this price."""
    record: dict[str, Any]

    @classmethod
    def read(cls, record: dict[str, Any], asked: dict[str, Any], late: Callable[[], NoisePlan]) -> RemotePrice:
        """The price from a record of the server; `asked` is the request, `late` makes the plan."""
        made = object.__new__(cls)
        try:
            papers = record["papers"]
            filled = {
                "budget": Budget.from_dict(papers["budget"]),
                "cost": read_cost(papers["cost"]),
                "left": read_cost(papers["left"]),
                "confidence": record["confidence"],
                "shares_delta": papers["shares_delta"],
                "quotients": frozenset(papers["quotients"]),
            }
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DeniableError) and not isinstance(error, UnreadableRecord):
                raise
            raise UnreadableRecord("this client cannot read this price; update deniable") from None
        for name, value in {**filled, "record": record, "asked": asked, "_late": late}.items():
            object.__setattr__(made, name, value)
        return made

    if not TYPE_CHECKING:  # else every misspelt name would pass

        def __getattr__(self, name: str) -> Any:
            """Make the plan when it is first used."""
            if name != "plan":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            object.__setattr__(self, "plan", self._late())
            return self.plan

    @property
    def threshold(self) -> int | None:
        """The smallest noisy number of people at which a key is shown; None if all keys are public."""
        threshold: int | None = self.record["threshold"]
        return threshold

    def errors(self, *, rows: int = TYPICAL_ROWS) -> dict[str, float | None]:
        """See `Price.errors`."""
        return dict(self.record["errors"]) if rows == self.record["errors_at_rows"] else Price.errors(self, rows=rows)

    def rank_errors(self) -> dict[str, float]:
        """See `Price.rank_errors`."""
        return dict(self.record["rank_errors"])

    def split(self) -> tuple[tuple[str, Fraction], ...]:
        """See `Price.split`."""
        return tuple((str(name), Fraction(share)) for name, share in self.record["split"])

    def to_dict(self) -> dict[str, Any]:
        """The price as a JSON-ready dict, as the server sent it."""
        return dict(self.record)

    def lines(self) -> list[str]:
        """The price as lines of text, at most as wide as a terminal."""
        return list(self.record["lines"])

    __repr__ = Price.__str__
