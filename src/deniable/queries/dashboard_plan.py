"""The cheapest way to keep a dashboard: which questions stand, which are asked together, and under which budget.

A dashboard shows n questions, refreshed T times, each within a stated error. There are three ways to answer a question,
and their costs add:

- it *stands*: paid once for all refreshes (`Session.standing`), if it is a sum over rows by public keys;
- it is asked *alone* on each refresh: T times its price;
- it is asked *together* with others on each refresh (`Session.batch`): T times the price of the batch.

The cost of a plan is a sum over the blocks of a partition of the questions, so `planned` takes the cheapest partition:
by trying all of them for up to `EXHAUSTIVE` questions, and beyond that by merging the two blocks that save most until
nothing is saved. If T is at least n, a question that can stand is not merged with others. Merging m questions that can
all stand saves nothing: let p be the price of the dearest of them. T batches cost at least T·p, which is at least n·p.
Standing, they cost at most m·p, which is at most n·p.

Both currencies are priced: μ² adds under a Gaussian budget, ε under a pure one. They are compared by the ε of the whole
plan at one δ. Nothing is spent and no data is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.curves.filters import UNIT, Amount, amount_of, units_of_limit
from deniable.errors import NOTHING, InvalidParameter, QuestionRefused
from deniable.ledger import Budget, Cost, Ledger, epsilon_mu_conversion
from deniable.ledger.currency import GAUSSIAN, PURE, Currency
from deniable.queries.engines.price_engine import Unread
from deniable.queries.plan.pricing import AskedCost
from deniable.queries.session import Session
from deniable.queries.standing_questions import check_standing, checked_questions, planned

if TYPE_CHECKING:
    from deniable.queries.answer.batch_answers import Within

EXHAUSTIVE: Final = 6
"""The most questions for which every partition is tried: there are 203 partitions of six."""
_MOST: Final = 100
_REFRESHES: Final = NumberRange("must be a whole number of refreshes, from 1 to 100,000", least=1, most=100_000)
_AMPLE: Final = Cost(10**36, 0)
"""A limit that every plan fits into; nothing is spent."""

STANDS, ALONE, TOGETHER = "stands", "alone", "together"

Block = tuple[int, ...]
Partition = tuple[Block, ...]


@final
@dataclass(frozen=True, slots=True)
class _BudgetKind:
    """One kind of budget that a plan is priced under."""

    currency: Currency
    noise: str
    epsilon: Callable[[int, int], Decimal]
    """The ε, rounded up to four digits, of the smallest budget of this kind that pays for these units at this δ."""
    budget: Callable[[Decimal, Decimal], Budget]
    """The budget of this ε and δ."""


_KINDS: Final = (
    _BudgetKind(
        GAUSSIAN,
        "Gaussian",
        # Of the budget's δ a tenth is reserved for unlisted keys.
        lambda units, delta: epsilon_mu_conversion.epsilon_up(units, delta - delta // 10),
        lambda epsilon, delta: Budget(epsilon=epsilon, delta=delta),
    ),
    _BudgetKind(
        PURE,
        "Laplace",
        lambda units, _: epsilon_mu_conversion.short_up(units * UNIT),
        lambda epsilon, _: Budget.pure(epsilon=epsilon),
    ),
)


@final
@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Some questions of the plan, and the way in which they are answered: `stands` (standing questions, paid once),
    `alone` or `together` (asked and paid on each refresh).
    """

    way: str
    questions: tuple[str, ...]
    cost: Cost
    """The cost of all refreshes together."""


@final
@dataclass(frozen=True, slots=True)
class DashboardPlan:
    """The cheapest plan for a dashboard; print it. Made by `plan_dashboard`."""

    budget: Budget
    """The smallest budget that pays for the plan."""
    epsilon: Decimal
    """The ε of the whole plan at `delta`, rounded up."""
    delta: Decimal
    refreshes: int
    blocks: tuple[PlannedBlock, ...]
    others: tuple[tuple[str, Decimal], ...]
    """Other plans in words, each with its ε at the same δ."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON-ready dict."""
        return {
            "budget": repr(self.budget),
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "refreshes": self.refreshes,
            "blocks": [
                {"way": each.way, "questions": list(each.questions), "cost": each.cost.describe(self.budget)}
                for each in self.blocks
            ],
            "others": [{"plan": words, "epsilon": str(epsilon)} for words, epsilon in self.others],
        }

    def __str__(self) -> str:
        at = f" at delta {self.delta}" if self.budget.delta else ""
        [kind] = (each for each in _KINDS if each.currency is self.budget.accounting)
        lines = [f"cheapest epsilon {self.epsilon}{at}, {kind.noise} noise: {self.budget!r}"]
        for block in self.blocks:
            paid = block.cost.describe(self.budget)
            often = "once" if block.way == STANDS or self.refreshes == 1 else f"{self.refreshes:,} times"
            lines.append(f"{block.way:<9}paid {often}, in all {paid}")
            lines += [f"         {each}" for each in block.questions]
        lines += [f"instead  epsilon {epsilon}: {words}" for words, epsilon in self.others]
        return "\n".join(lines)

    __repr__ = __str__


def plan_dashboard(
    session: Any, questions: Sequence[str], *, within: float | Sequence[float], refreshes: int = 365,
    by: str | None = None, delta: Amount = "1e-6", confidence: float = 0.95,
) -> DashboardPlan:  # fmt: skip
    """The cheapest plan that answers these questions on each refresh within these errors. Free: no data is read.

    `within` is the half-width of the noise interval at `confidence`, or the error of the rank, in rows, of a quantile:
    one number, or one for each question. Averages are refused, because their error depends on the number of rows. `by`
    is the column of days; without it no question stands. `delta` is the δ of a Gaussian budget, between 0 and 1; as in
    `Budget`, a tenth of it is reserved for unlisted keys. Questions must have public keys.

    Takes 1 to 100 questions and 1 to 100,000 `refreshes`. Raises InvalidParameter for other arguments, and
    QuestionRefused if a question cannot be asked.
    """
    texts = checked_questions(questions, _MOST)
    times = arguments.python_int("refreshes", refreshes, _REFRESHES)
    near = _near(within, len(texts))
    whole = units_of_limit("delta", delta)
    if not 0 < whole < 10**30:
        raise InvalidParameter("delta", delta, "must lie strictly between 0 and 1")
    found = []
    for kind in _KINDS:
        with _prices(session, kind.currency, texts, near, times, by, confidence) as prices:
            (cost, blocks), alone = prices.cheapest(), prices.one_by_one()
        found.append(_Reading(kind, kind.epsilon(cost, whole), blocks, kind.epsilon(alone, whole)))
    best = min(found, key=lambda each: each.epsilon)
    others = [(f"cheapest with {each.kind.noise} noise", each.epsilon) for each in found if each is not best]
    others += [(f"each question alone on each refresh, {each.kind.noise} noise", each.alone) for each in found]
    budget = best.kind.budget(best.epsilon, amount_of(whole))
    return DashboardPlan(budget, best.epsilon, amount_of(whole), times, best.blocks, tuple(others))


def _near(within: object, count: int) -> list[float]:
    """The half-width of each question. `Session.price` checks their range."""
    if isinstance(within, Mapping | str | bytes):
        given: list[Any] = []
    else:
        given = list(within) if isinstance(within, Iterable) else [within] * count
    if len(given) != count:
        raise InvalidParameter("within", NOTHING, "must be one number, or one for each question")
    rule = "must be a positive number below 1e300"
    return [arguments.real("within", each, overflow_rule=rule) for each in given]


@final
@dataclass(frozen=True, slots=True)
class _Reading:
    """The cheapest plan under one kind of budget, and the ε of asking each question alone on each refresh."""

    kind: _BudgetKind
    epsilon: Decimal
    blocks: tuple[PlannedBlock, ...]
    alone: Decimal


@contextlib.contextmanager
def _prices(
    session: Any, currency: Currency, questions: list[str], near: list[float], times: int, by: str | None,
    confidence: float,
) -> Iterator[_Prices]:  # fmt: skip
    """Prices under a budget of this currency, in a session on the same tables that reads no data."""
    budget = Budget._of(currency, _AMPLE)
    with Ledger.open(budget=budget, unit=session.unit, dataset="a plan") as ledger:
        yield _Prices(
            Session(Unread(), dict(session.tables), ledger, keeps=True), questions, near, times, by, confidence
        )


@final
class _Prices:
    """The prices of blocks of questions in one currency, in whole units."""

    def __init__(
        self, session: Session, questions: list[str], near: list[float], times: int, by: str | None, confidence: float
    ) -> None:
        self._session, self._questions, self._near, self._times = session, questions, near, times
        self._confidence, self._known = confidence, dict[Block, int]()
        self._alone = [self._price([i]) for i in range(len(questions))]
        self._standing = [self._standing_price(i, by) for i in range(len(questions))]
        self._stands = [
            stands is not None and stands <= times * alone
            for stands, alone in zip(self._standing, self._alone, strict=True)
        ]

    def one_by_one(self) -> int:
        """What it costs to ask each question alone on each refresh."""
        return self._times * sum(self._alone)

    def cheapest(self) -> tuple[int, tuple[PlannedBlock, ...]]:
        """(cost, blocks) of the cheapest plan."""
        count = len(self._questions)
        fixed = [(i,) for i in range(count) if self._stands[i] and self._times >= count]
        free = [i for i in range(count) if (i,) not in fixed]
        chosen = (
            min(partitions(free), key=lambda each: sum(map(self.cost, each)))
            if len(free) <= EXHAUSTIVE
            else self._merged(free)
        )
        found = (*fixed, *chosen)
        return sum(map(self.cost, found)), tuple(self._planned_block(each) for each in sorted(found))

    def cost(self, block: Block) -> int:
        """The cost of a block for all refreshes, in its cheapest way."""
        if len(block) == 1:
            [i] = block
            stands = self._standing[i]
            return stands if stands is not None and self._stands[i] else self._times * self._alone[i]
        if block not in self._known:
            self._known[block] = self._price(block)
        return self._times * self._known[block]

    def _planned_block(self, block: Block) -> PlannedBlock:
        way = TOGETHER if len(block) > 1 else STANDS if self._stands[block[0]] else ALONE
        return PlannedBlock(way, tuple(self._questions[i] for i in block), Cost(self.cost(block)))

    def _merged(self, free: Sequence[int]) -> Partition:
        """Merge the two blocks that save most, until nothing is saved."""
        found = [(i,) for i in free]
        while True:
            best = min(
                (
                    (self.cost(joined) - self.cost(a) - self.cost(b), a, b)
                    for place, a in enumerate(found)
                    for b in found[place + 1 :]
                    for joined in (tuple(sorted((*a, *b))),)
                ),
                default=(0, (), ()),
            )
            if best[0] >= 0:
                return tuple(found)
            found = [each for each in found if each not in best[1:]] + [tuple(sorted((*best[1], *best[2])))]

    def _standing_price(self, place: int, by: str | None) -> int | None:
        """The cost of a question for all days together; None if it cannot stand."""
        session, question = self._session, self._questions[place]
        if by is None or not can_stand(session, question, by):
            return None
        asked = AskedCost(within=self._near[place], confidence=self._confidence)
        return asked.cost(planned(session, question), session.budget, session.budget.limit).units

    def _price(self, block: Sequence[int]) -> int:
        asked = [self._questions[i] for i in block]
        if len(asked) == 1:
            return int(
                self._session.price(asked[0], within=self._near[block[0]], confidence=self._confidence).cost.units
            )
        within: Within = [self._near[i] for i in block]
        return int(self._session.price_batch(asked, within=within, confidence=self._confidence).cost.units)


def can_stand(session: Session, question: str, by: str) -> bool:
    """Whether a question can stand, with one answer for each day of this column. Depends on schema and text alone."""
    try:
        check_standing(session, question, by)
    except QuestionRefused:
        return False
    return True


def partitions(items: Sequence[int]) -> Iterator[Partition]:
    """All partitions of these items into blocks.

    >>> sorted(partitions([1, 2]))
    [((1,), (2,)), ((1, 2),)]
    >>> [sum(1 for _ in partitions(range(n))) for n in range(7)]
    [1, 1, 2, 5, 15, 52, 203]
    """
    if not items:
        yield ()
        return
    *rest, last = items
    for each in partitions(rest):
        yield (*each, (last,))
        for place, block in enumerate(each):
            yield (*each[:place], (*block, last), *each[place + 1 :])
