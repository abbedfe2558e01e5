"""A session: tables, a budget and a ledger. Questions go in, noisy answers come out, and nothing is spent twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, final, overload

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, UnreadableRecord, require_known
from deniable.ledger import Budget, Cost, Entry, Ledger
from deniable.ledger.account_balances import Replay
from deniable.queries.answer import batch_answers, rollups, single_answers
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.grouping_sets import Grouped, Sets, names_sets, sets_of
from deniable.queries.answer.plan_cache import Admits, Plans
from deniable.queries.answer.receipt import Receipt
from deniable.queries.answer.release import Released, release
from deniable.queries.answer.remaining_budget import Failure, Remaining
from deniable.queries.answer.shared_measurements import Measurement, mark_of
from deniable.queries.answer.timed_runs import attempted, finished
from deniable.queries.data_versions import DataVersions, is_declared, recalled
from deniable.queries.plan.answer_notes import Tables
from deniable.queries.plan.noise_planner import NoisePlan, noise, noise_cost
from deniable.queries.plan.pricing import AskedCost, Near, PartOf, Price
from deniable.queries.plan.question import Question
from deniable.queries.sql.named_dialects import in_dialect
from deniable.queries.standing_records import names as standing_names
from deniable.units import Guarantee, Unit

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from deniable.curves import Curve
    from deniable.curves.filters import Amount
    from deniable.queries.answer.batch_price import Quoted
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.bought_bounds import Bounds
    from deniable.queries.engines.engine import Engine
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.frame.frame import Frame
    from deniable.queries.plan.noise_planner import Noise
    from deniable.queries.relations.exact_statistics import Collect
    from deniable.queries.standing_questions import Standing
    from deniable.queries.synthetic.synthesis_measurement import SynthesisPrice
    from deniable.queries.synthetic.synthetic_table import MeasuredErrors, Synthetic
    from deniable.tables.schema import Table

T = TypeVar("T")

ASSUMPTIONS = ("the declared schema was not made from the data, but for bounds that this ledger paid for",)


@final
class Session:
    """Questions about tables, under a budget that cannot be overspent. Made by `deniable.session`.

    Promise: for all neighbouring tables (by the unit of the session), all answers together are at most as
    distinguishable as `guarantee` says, however questions and costs were chosen. Threads may share a session.
    """

    __slots__ = (
        "_closed",
        "_engine",
        "_failures",
        "_finer",
        "_keeps",
        "_ledger",
        "_lock",
        "_noted",
        "_plans",
        "_registration",
        "_sources",
        "_tables",
        "_version",
        "_versions",
    )

    def __init__(
        self, engine: Engine, tables: Mapping[str, Table], ledger: Ledger, *, keeps: bool = False,
        versions: DataVersions | None = None, sources: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        self._engine, self._tables, self._ledger, self._keeps = engine, dict(tables), ledger, keeps
        self._failures: list[Failure] = []
        self._sources = {} if sources is None else dict(sources)
        self._finer = rollups.Finer()
        self._noted: Callable[[Failure], None] = self._failures.append
        self._plans = Plans(self._tables, ledger.budget)
        found = ((name, engine.registered(name)) for name in self._tables)
        self._registration = {name: each for name, each in found if each is not None}
        hashes = {name: each.version for name, each in self._registration.items()}
        self._versions = DataVersions({}, hashes) if versions is None else versions
        self._version = self._versions.of
        self._lock, self._closed = threading.Lock(), False

    # -- asking --------------------------------------------------------------------------------------------------------

    def sql(
        self, question: str, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, key: str | None = None,
        payer: str | None = None, fresh: bool = False, dialect: str | None = None, **unknown: Never,
    ) -> Answer | Grouped:  # fmt: skip
        """Answer a question in SQL.

        Give the cost as exactly one of `epsilon`, `mu`, `rho`, `share` (a fraction in (0, 1] of the remaining budget,
        measured in what adds up: μ², ε or ρ) and `within` (the half-width of the noise interval at `confidence`: one
        number, or one for each column). `delta` pays for keys that are not public; by default a hundredth of the
        remaining δ, and less when much of it is spent. `key` is an idempotency key: a retry with it is charged once.
        `payer` names an account of the ledger that is charged too. `dialect` is that of the text ("spark").

        The cost is charged before any data is read, and stays charged if the run fails. A question that was answered
        before about this version of the data, at this cost or a higher one, is replayed from the ledger at no cost;
        with `fresh` it is asked again, and charged. ROLLUP, CUBE and GROUPING SETS give several tables, which are asked
        as one `batch`. Raises QuestionRefused, BudgetExceeded or EngineFailed.
        """
        require_known(self.sql, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        sets = self._sets(question := in_dialect(question, dialect))
        if sets is not None and fresh:
            raise InvalidParameter("fresh", fresh, "needs a question with one set of keys", "ask each set by itself")
        if sets is not None:
            alike: Any = within
            cost = replace(cost, within=None)
            return Grouped(sets, batch_answers.answered(self, sets.questions, cost, None, alike, key, payer, question))
        return single_answers.answered_text(self, question, cost, key, payer, fresh)

    def ask(
        self, question: str | Question, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, key: str | None = None,
        payer: str | None = None, fresh: bool = False, dialect: str | None = None, **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Answer a question, in SQL or built from `table(...)`. The arguments are those of `sql`."""
        require_known(self.ask, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        return single_answers.answered(self, in_dialect(question, dialect), cost, key, payer, fresh)

    def recall(
        self, question: str | Question, *, version: str | None = None, entry: Entry | None = None,
        confidence: float = 0.95,
    ) -> Answer | None:  # fmt: skip
        """The newest stored answer about this or an earlier `version`, or the one in `entry`; None if missing. Free."""
        if version is not None:
            return recalled(self, question, version, confidence)
        made = self._plans.plan(question, self._built(question))
        if entry is None:
            entry = self._ledger.answer(made.question.hash, version=self._version(made.question))
        if entry is None or entry.question != made.question.hash:
            return None
        read = self._read(made, entry)
        return None if read is None else self._again(made, read, self._replay(entry, None), confidence)

    @overload
    def price(
        self, question: str | Question, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, weights: None = None,
        payer: str | None = None, dialect: str | None = None, **unknown: Never,
    ) -> Price: ...  # fmt: skip
    @overload
    def price(
        self, question: list[str | Question] | list[str], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: batch_answers.Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: batch_answers.Weights = None, payer: str | None = None, dialect: str | None = None, **unknown: Never,
    ) -> Quoted: ...  # fmt: skip
    def price(
        self, question: Any, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Any = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: batch_answers.Weights = None, payer: str | None = None, dialect: str | None = None, **unknown: Never,
    ) -> Price | Quoted:  # fmt: skip
        """What `sql` would charge, and how exact its answer would be. For a list of questions, or a text with ROLLUP,
        CUBE or GROUPING SETS, the price of one `batch`. Free: no data is read.
        """
        require_known(self.price, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        sets = self._sets(question := in_dialect(question, dialect))
        if sets is not None or isinstance(question, list | tuple):
            several = question if sets is None else sets.questions
            return batch_answers.priced(self, several, replace(cost, within=None), weights, within, payer)
        if weights is not None:
            raise InvalidParameter("weights", NOTHING, "need several questions", "leave them out, or give a list")
        return single_answers.priced(self, question, cost, payer)

    def refine(
        self, answer: Answer, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float | None = None, text: str | None = None,
        key: str | None = None, payer: str | None = None, **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Spend more on a question that was answered: a second answer is merged with the first by inverse variance.

        Under a Gaussian budget the result is as exact as if both costs had been spent at once. If the ledger has a more
        exact answer to this question by now, that one is refined, so that no earlier purchase is wasted. By default,
        `confidence` is the confidence of `answer`. `text` describes the question in the ledger, by default as the first
        answer did. A single quantile under a pure budget cannot be merged, and raises InvalidParameter.
        """
        require_known(self.refine, amounts, unknown)
        single_answers.check_answer(answer)
        self._open()
        confidence = answer.confidence if confidence is None else confidence
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        return single_answers.refined(self, answer, cost, text, key, payer)

    def batch(
        self, questions: Sequence[str | Question], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: batch_answers.Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: batch_answers.Weights = None, key: str | None = None, payer: str | None = None,
        dialect: str | None = None, **unknown: Never,
    ) -> list[Answer]:  # fmt: skip
        """Answer several questions for one cost that they share: all are charged, or none. Returns one answer for each.

        Counts and sums of the same rows by public keys are measured together: the noise minimises the weighted sum of
        the variances of all cells, and coarser tables are exact sums of finer ones. `weights` are the weights of a cell
        of each question (default 1; "fair": 1, and no table is less exact than if it were measured alone with an equal
        share of the cost; "closest": every table is as close as possible, by one factor for all, to the better of an
        equal share and of the finest table alone). `within` states the error instead of the cost: one number, or one
        for each question (None: no limit). Questions about provably disjoint rows (`WHERE age < 30`, `WHERE age >= 30`)
        cost together as much as one of them. A question that was answered before, at least as exactly, is free.
        """
        require_known(self.batch, amounts, unknown)
        cost = AskedCost(epsilon=epsilon, mu=mu, rho=rho, share=share, delta=delta, confidence=confidence)
        return batch_answers.answered(self, in_dialect(questions, dialect), cost, weights, within, key, payer)

    def price_batch(
        self, questions: str | Sequence[str | Question], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: batch_answers.Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: batch_answers.Weights = None, payer: str | None = None, dialect: str | None = None, **unknown: Never,
    ) -> Quoted:  # fmt: skip
        """What `batch` would charge, how exact each cell of each table would be, and how the cost is split. Free: no
        data is read. Also takes a text with ROLLUP, CUBE or GROUPING SETS. `price` with a list returns the same.
        """
        require_known(self.price_batch, amounts, unknown)
        cost = AskedCost(epsilon=epsilon, mu=mu, rho=rho, share=share, delta=delta, confidence=confidence)
        sets = self._sets(questions := in_dialect(questions, dialect))
        several = questions if sets is None else sets.questions
        return batch_answers.priced(self, several, cost, weights, within, payer)

    def bounds(
        self, column: str, table: str | None = None, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, cover: float = 0.99,
        key: str | None = None, payer: str | None = None, **unknown: Never,
    ) -> Bounds:  # fmt: skip
        """Buy bounds for a number, a date or a timestamp without public bounds, between which about `cover` of the rows
        lie. It asks one question, a noisy count by public bins, which is paid for as by `sql`.
        """
        from deniable.queries import bought_bounds

        require_known(self.bounds, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        rows = bought_bounds.checked_cover(cover)
        name, question = bought_bounds.question(column, table, self._tables)
        return bought_bounds.read(name, column, single_answers.answered(self, question, cost, key, payer), rows)

    def price_bounds(
        self, column: str, table: str | None = None, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, payer: str | None = None,
        **unknown: Never,
    ) -> Price:  # fmt: skip
        """What `bounds` would charge. Free: no data is read."""
        from deniable.queries import bought_bounds

        require_known(self.price_bounds, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        question = bought_bounds.question(column, table, self._tables)[1]
        return single_answers.priced(self, question, cost, payer)

    def synthesize(
        self, table: str | None = None, *amounts: Never, columns: Sequence[str] | None = None, method: str = "pairs",
        target: str | None = None, workload: Sequence[Sequence[str]] | None = None,
        bins: Mapping[str, int] | None = None, forbid: Sequence[Mapping[str, Any]] = (),
        unlisted: Sequence[str] = (), rows: int | None = None,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, key: str | None = None,
        payer: str | None = None, **unknown: Never,
    ) -> Synthetic:  # fmt: skip
        """A distribution of some columns of a table, from which synthetic rows can be drawn. `synthesis_request.Wanted`
        explains the arguments. `rows` is the approximate number of rows of the table, if it is public: a cost that is
        too small for so many rows is refused. (The number of synthetic rows is the argument of `Synthetic.rows`, and of
        `--rows` of `deniable synthesize`.)

        Counts by columns and by pairs of columns are measured with noise, for one cost and as one entry of the ledger;
        everything else is computed from them. The same request again is read from the ledger, free of charge.
        """
        from deniable.queries.synthetic import synthesis_measurement, synthesis_request

        require_known(self.synthesize, amounts, unknown)
        self._open()
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        asked = synthesis_request.asked(
            table, columns, target, bins, tables=self._tables, method=method, workload=workload, forbid=forbid,
            unlisted=unlisted,
        )  # fmt: skip
        return synthesis_measurement.synthesized(self, asked, cost, rows, key, payer)

    def price_synthesis(
        self, table: str | None = None, *amounts: Never, columns: Sequence[str] | None = None, method: str = "pairs",
        target: str | None = None, workload: Sequence[Sequence[str]] | None = None,
        bins: Mapping[str, int] | None = None, forbid: Sequence[Mapping[str, Any]] = (),
        unlisted: Sequence[str] = (),
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95, payer: str | None = None,
        **unknown: Never,
    ) -> SynthesisPrice:  # fmt: skip
        """What `synthesize` with the same arguments (without `rows`) would charge, the noise of each count, and the
        least number of rows for which the result is useful. Free: no data is read.
        """
        from deniable.queries.synthetic import synthesis_measurement, synthesis_request

        require_known(self.price_synthesis, amounts, unknown)
        cost = AskedCost(
            epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence
        )
        asked = synthesis_request.asked(
            table, columns, target, bins, tables=self._tables, method=method, workload=workload, forbid=forbid,
            unlisted=unlisted,
        )  # fmt: skip
        return synthesis_measurement.price(self, asked, cost, payer)

    def standing(
        self, name: str, questions: Sequence[str] | None = None, *amounts: Never, by: str | None = None,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        confidence: float = 0.95, totals: int | None = None, payer: str | None = None, **unknown: Never,
    ) -> Standing:  # fmt: skip
        """Declare questions about one table; `Standing.reveal(day)` answers them for each day (a value of `by`). They
        are paid for once, and share the cost equally. With `totals=365`, each of up to 365 answers is about all rows so
        far. Without `questions`, return the set that was declared under this name.
        """
        from deniable.queries import standing_questions

        require_known(self.standing, amounts, unknown)
        self._open()
        if questions is None:
            return standing_questions.found(self, name, confidence)
        cost = AskedCost(epsilon=epsilon, mu=mu, rho=rho, share=share, confidence=confidence)
        return standing_questions.declared(self, name, questions, by or "", cost, totals, payer)

    def standings(self) -> list[str]:
        """The names of all sets of standing questions that the ledger has, oldest first."""
        return standing_names(self._ledger)

    def measured_errors(self, synthetic: Synthetic) -> MeasuredErrors:
        """The exact errors of the counts of a synthetic table. NOT PRIVATE: it reads the data without noise and charges
        nothing, so it is for the owner alone, like `registration`.
        """
        from deniable.queries.synthetic import synthesis_measurement

        self._open()
        return synthesis_measurement.measured_errors(self, synthetic)

    def table(self, name: str) -> Frame:
        """A table, for questions in Python: `s.table("visits").filter(...).agg(...)`. Unknown: QuestionRefused."""
        from deniable.queries.frame.frame import Frame

        return Frame.of(name, self._tables)

    def explain(self, question: str | Question | Price | Answer | Grouped) -> str:
        """The plan of a question (or of a price or an answer, by its question): each step with its stability, each
        statistic with its sensitivity, and the SQL that the engine runs; for a price also the noise. Free.
        """
        from deniable.queries.answer.explanation import explained_by

        self._open()
        return explained_by(self, question)

    # -- the account ---------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """The public schema of each table, by name; print it to see the columns."""
        return Tables(self._tables)

    @property
    def unit(self) -> Unit:
        """The protected unit, with the most rows of one person that a table keeps."""
        units = [each.unit for each in self._tables.values() if each.unit is not None]
        return max(units, key=lambda unit: unit.rows, default=self._ledger.unit)

    @property
    def versions(self) -> Mapping[str, str]:
        """The declared version of each table; a table without one is left out."""
        return dict(self._versions.declared)

    @property
    def registration(self) -> Mapping[str, Registration]:
        """Exact numbers of rows read, cut and left out, by table. NOT PRIVATE: for the owner, see `Registration`."""
        from deniable.queries.engines.registration_report import Registrations

        return Registrations(self._registration)

    @property
    def budget(self) -> Budget:
        """The budget, fixed when the ledger was made; a renewing budget for all periods (see `ledger.renewal`)."""
        return self._ledger.budget

    @property
    def ledger(self) -> Ledger:
        """The ledger that this session spends from: its entries, limits and `verify()`."""
        return self._ledger

    @property
    def spent(self) -> Curve:
        """The guarantee of all answers so far together, as a curve."""
        return self._ledger.spent

    @property
    def remaining(self) -> Remaining:
        """The unspent budget; printed in its currency and as a number of typical questions."""
        return Remaining(self.budget, self._ledger.remaining, self.unit)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that is ever answered under this budget, if all of it is spent."""
        return replace(self._ledger.guarantee, unit=self.unit)

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph about all releases under this budget, with ε at `delta` (default: the budget's δ)."""
        from deniable.queries.answer import privacy_statement

        return privacy_statement.of_session(self, delta)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The runs that could not be finished, and were answered as if the tables were empty. For the owner alone: a
        failure can depend on one person's rows, so analysts must see neither this list nor the session.
        """
        return tuple(self._failures)

    def report_failures(self, to: Callable[[Failure], None]) -> None:
        """Call this function with each later failure, instead of keeping it in `failures`."""
        self._noted = to

    def limit_answers(self, *, cells: int, evaluations: int | None = None, admits: Admits | None = None) -> None:
        """Refuse later questions whose answers have more `cells` (groups × columns), or whose plans need more
        evaluations of expressions. Stored answers can still be read. `admits` is called with the size of each answer
        before it runs.
        """
        self._plans.limit(cells, evaluations, admits)

    def limits(self, text: str = "") -> AbstractContextManager[None]:
        """A context in which building a question obeys the limits of this session; `text` is the question's source."""
        return self._plans.limits(text)

    def close(self) -> None:
        """Release the engine and its tables. A ledger's file stays, and a `Ledger` that was passed in stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._engine.close()
                if not self._keeps:
                    self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        left = "closed" if self._closed else f"left {self._ledger.remaining.describe_rest(self.budget)}"
        return f"<Session on {', '.join(sorted(self._tables))}; {left}>"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._closed:
            raise InvalidOperation("this session is closed; open another, on the same ledger if it has a file")

    def _sets(self, question: object) -> Sets | None:
        """The questions of a text with ROLLUP, CUBE or GROUPING SETS; None for any other question."""
        self._open()
        with self.limits(str(question) if names_sets(question) else ""):
            return sets_of(question, self._tables)

    def _built(self, question: str | Question) -> Question:
        self._open()
        return self._plans.question(question)

    def _planned(self, question: str | Question) -> NoisePlan:
        """The plan of a question. QuestionRefused if its answer is too large and the ledger has no stored answer."""
        with self.limits():
            built = self._built(question)
            if self._plans.is_large(built) and self._ledger.answer(built.hash, version=self._version(built)) is None:
                self._plans.check([built])
            return self._plans.plan(question, built)

    def _left(self, payer: str | None) -> Cost:
        return self._ledger.remaining if payer is None else self._ledger.left(payer)

    def _price(self, made: NoisePlan, asked: AskedCost | PartOf, left: Cost) -> Price:
        cost = asked.cost(made, self.budget, left)
        return Price(made, self.budget, cost, left, asked.confidence, asked.shares_delta(made))

    def _stored(self, made: NoisePlan, payer: str | None) -> tuple[Released, Replay] | None:
        """The stored answer to this question, with its ledger entries; None if the ledger has no answer to it."""
        found = self._ledger.replay(made.question.hash, version=self._version(made.question), payer=payer)
        read = None if found is None else self._read(made, found.sealed)
        return None if found is None or read is None else (read, found)

    def _known(self, made: NoisePlan, price: Price, payer: str | None) -> tuple[Released, Replay] | None:
        """The stored answer, if it is at least as exact as this price."""
        stored = self._stored(made, payer)
        return stored if stored is not None and price.is_met_by(stored[0].precision) else None

    def _read(self, made: NoisePlan, entry: Entry) -> Released | None:
        """The released numbers of a sealed entry; None if this version cannot read or refine them."""
        if entry.answer is None:
            return None
        try:
            read = Released.from_bytes(entry.answer, made)
        except UnreadableRecord:  # written by an older version: the question must be asked again
            return None
        return read if read.has_noise_of(made, self.budget) else None

    def _is_enough(self, made: NoisePlan, entry: Entry, price: Price) -> bool:
        read = self._read(made, entry)
        return read is not None and price.is_met_by(read.precision)

    def _checked_noise(self, made: NoisePlan, price: Price) -> Noise:
        self._plans.check([made.question])
        return self._noise(made, price)

    def _noise(self, made: NoisePlan, price: Price) -> Noise:
        """The noise of a price, made before the charge, so that its errors depend on public facts alone."""
        drawn = noise(made, self.budget, price.cost)
        if not noise_cost(drawn, self.budget).units <= price.cost.units:
            raise AssertionError("the noise costs more than was charged")
        return drawn

    def _released(self, tasks: Sequence[tuple[NoisePlan, Noise, Cost]], entries: Sequence[Entry]) -> list[Released]:
        """Run all tasks. If one fails, all entries are closed as failed and stay charged. There is one entry for each
        task, or one for all.
        """
        each = [*entries] * len(tasks) if len(entries) == 1 else entries
        return finished(
            self._ledger, entries, lambda: [self._run(*task, entry) for task, entry in zip(tasks, each, strict=True)]
        )

    def _run(self, made: NoisePlan, drawn: Noise, cost: Cost, entry: Entry) -> Released:
        """Run one question on the engine and add noise."""
        found = self._attempt([made.collect], lambda counts: release(made, drawn, cost, counts[0]), entry)
        return replace(found, measured=(Measurement(self._mark(entry), cost),))

    def _mark(self, entry: Entry) -> str:
        return mark_of(self._ledger.serial, entry.charge)

    def _attempt(self, collects: Sequence[Collect], release: Callable[[list[Any]], T], entry: Entry) -> T:
        """Run the queries and release them; a run that fails is answered as if the tables were empty."""
        return attempted(self._engine, collects, release, lambda code: self._noted(Failure(entry.charge, code)))

    def _replayed_answer(self, made: NoisePlan, sealed: Entry, confidence: float, payer: str | None) -> Answer:
        """The answer of a sealed entry, replayed."""
        assert sealed.answer is not None
        return self._again(made, Released.from_bytes(sealed.answer, made), self._replay(sealed, payer), confidence)

    def _replay(self, sealed: Entry, payer: str | None) -> Replay:
        charge = self._ledger.entry(sealed.closes or 0)
        assert charge is not None
        return Replay(sealed, charge, self._left(payer))

    def _again(self, made: NoisePlan, released: Released, found: Replay, confidence: float) -> Answer:
        return self._answer(made, released, found.charge, confidence, found.left, replayed=True)

    def _sealed(self, made: NoisePlan, released: Released, entry: Entry, confidence: float, rest: Cost) -> Answer:
        self._ledger.seal(entry, released.to_bytes())
        return self._answer(made, released, entry, confidence, rest, replayed=False)

    def _answer(
        self, made: NoisePlan, released: Released, entry: Entry, confidence: float, rest: Cost, *, replayed: bool
    ) -> Answer:
        made = released.plan_of(made, self.budget)
        # The receipt contains only what was known before data was read: when a run ends depends on the data.
        receipt = Receipt(
            entry.charge, made.question.hash, entry.cost, rest, self.budget, replayed, entry.time, entry.version,
            declared=is_declared(entry.version), ledger=self._ledger.serial,
        )  # fmt: skip
        promise = Guarantee(self.budget.curve(released.cost), self.unit, assumptions=ASSUMPTIONS)
        self._finer.note(made)
        return Answer(made, released, self.budget, promise, receipt, confidence)
