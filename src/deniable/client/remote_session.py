"""A session on a server: each method is one request, and returns the same objects as a local session.

Nothing private is here: prices and answers come from the server. Every question carries an idempotency key, so that a
question whose answer was lost on the way is asked again at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, final, overload
from urllib.parse import quote

from deniable.arguments import boolean
from deniable.client import remote_plans
from deniable.client.remote_answers import RemoteAnswer, RemoteBounds, RemoteGrouped
from deniable.client.remote_plans import RemotePlanner, tables_of
from deniable.client.remote_prices import RemotePrice
from deniable.client.request_fields import (
    cost_of,
    listed,
    named_columns,
    question_fields,
    sendable_weights,
    synthesis_fields,
)
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, require_known, type_of
from deniable.ledger import Budget
from deniable.ledger.entries import checked_path_name
from deniable.queries.answer.grouping_sets import names_sets
from deniable.queries.answer.machine_records import read_cost, read_quoted, read_unit
from deniable.queries.answer.remaining_budget import Failure, Remaining
from deniable.queries.sql.named_dialects import in_dialect
from deniable.transport import Wire, wire_to

if TYPE_CHECKING:
    from deniable.client.remote_standing import RemoteStanding
    from deniable.curves import Curve
    from deniable.curves.filters import Amount
    from deniable.queries.answer.batch_answers import Weights, Within
    from deniable.queries.answer.batch_price import Quoted
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.frame.recorded_steps import Recorded, Steps
    from deniable.queries.plan.answer_notes import Tables
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.pricing import Near
    from deniable.queries.synthetic.synthesis_measurement import SynthesisPrice
    from deniable.queries.synthetic.synthesis_request import Wanted
    from deniable.queries.synthetic.synthetic_table import Synthetic
    from deniable.units import Guarantee, Unit


def connect(url: str, *, token: str, dataset: str | None = None, timeout: float = 120.0) -> RemoteSession:
    """A session on the server at `url`, for `dataset`, or for the only dataset that the token may see.

    The token is sent with every request, so `url` must be https, unless the server is on this machine. `timeout` is in
    seconds. Raises InvalidParameter for an unknown dataset, ServerRefused for a wrong token, InvalidOperation for a
    server that is too old.
    """
    wire = wire_to(url, token, timeout)
    try:
        found = wire.get("/v1/datasets")
        if "records" not in found:  # raised before anything is paid for
            rule = "runs an older version of deniable, whose records this client cannot read"
            raise InvalidOperation(f"the server at {wire.place} {rule}; update the server, or install its version here")
        names = [each["name"] for each in found["datasets"]]
        chosen = names[0] if dataset is None and len(names) == 1 else dataset
        if chosen is None or chosen not in names:
            if not names:
                raise InvalidParameter(
                    "dataset", dataset, "you may not see any dataset yet", "ask an owner for a grant"
                )
            raise InvalidParameter("dataset", dataset, f"must be a dataset that you may see: {', '.join(names)}")
    except BaseException:
        wire.close()
        raise
    return RemoteSession(wire, chosen)


@final
class RemoteSession:
    """Questions about a dataset on a server, under a budget that the server keeps. Made by `deniable.connect`."""

    __slots__ = ("_planner", "_wire", "dataset")

    def __init__(self, wire: Wire, dataset: str) -> None:
        self._wire, self.dataset = wire, dataset
        self._planner = RemotePlanner(self.describe)

    # -- asking --------------------------------------------------------------------------------------------------------

    def sql(
        self, question: str, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        fresh: bool = False, dialect: str | None = None, **unknown: Never,
    ) -> RemoteAnswer | RemoteGrouped:  # fmt: skip
        """Answer a question in SQL. Arguments as for `Session.sql`; a repeated question is free."""
        require_known(self.sql, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        question = in_dialect(question, dialect)
        return self._answer(self._wire.ask("/v1/questions", self._fresh(question, paid, fresh)), question)

    def ask(
        self, question: str | Steps, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        fresh: bool = False, dialect: str | None = None, **unknown: Never,
    ) -> RemoteAnswer:  # fmt: skip
        """Answer a question, in SQL or built from `table(...)`."""
        require_known(self.ask, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        question = in_dialect(question, dialect)
        self._planner.refuse_sets(question)
        return self._one(self._wire.ask("/v1/questions", self._fresh(question, paid, fresh)), question)

    def table(self, name: str) -> Recorded:
        """A table, for questions in Python: `s.ask(s.table("visits").group_by("ward").agg(n=count()), epsilon=0.1)`.

        Questions are built and checked here, from the public schema, and built and checked again by the server.
        """
        from deniable.queries.frame.recorded_steps import Recorded

        return Recorded.of(name, tables_of(self.describe()))

    @overload
    def price(
        self, question: str | Steps, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: None = None, dialect: str | None = None, **unknown: Never,
    ) -> RemotePrice: ...  # fmt: skip
    @overload
    def price(
        self, question: list[str | Steps] | list[str], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: Weights = None, dialect: str | None = None, **unknown: Never,
    ) -> Quoted: ...  # fmt: skip
    def price(
        self, question: Any, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Any = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: Weights = None, dialect: str | None = None, **unknown: Never,
    ) -> RemotePrice | Quoted:  # fmt: skip
        """What `sql` would charge, and how exact its answer would be. For a list of questions, or a text with ROLLUP,
        CUBE or GROUPING SETS, the price of one `batch`. Free: no data is read.
        """
        require_known(self.price, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        question = in_dialect(question, dialect)
        if isinstance(question, list | tuple):
            return read_quoted(self._wire.post("/v1/questions:price_batch", self._several(question, paid, weights)))
        if weights is not None:
            raise InvalidParameter("weights", NOTHING, "need several questions", "leave them out, or give a list")
        body = self._body(question, paid)
        found = self._wire.post("/v1/questions:price", body)
        if "tables" in found:
            return read_quoted(found)
        return RemotePrice.read(found, body, self._late(remote_plans.of_counts(question), found["question"]))

    def explain(self, question: str | Steps | RemoteAnswer | RemoteGrouped | RemotePrice) -> str:
        """The plan of a question, as text: each step with its stability, each statistic with its sensitivity, and the
        SQL that the server's engine runs; for a price also the noise. Free: no data is read.
        """
        from deniable.queries.answer.explanation import explain

        if isinstance(question, RemotePrice):
            if question.asked.get("dataset") != self.dataset:
                raise InvalidParameter("price", NOTHING, "must be a price of this session", "get one with price(...)")
            body = question.asked
        elif isinstance(question, RemoteAnswer) and (question._is_summed or question._is_of_set):
            return explain(question)  # the server has no text of this question alone
        else:
            asked = question.question if isinstance(question, RemoteAnswer | RemoteGrouped) else question
            body = self._body(asked, {})
        return str(self._wire.post("/v1/questions:explain", body)["text"])

    def refine(
        self, answer: RemoteAnswer, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float | None = None,
        **unknown: Never,
    ) -> RemoteAnswer:  # fmt: skip
        """Spend more on a question that was answered: both answers are merged by inverse variance. By default,
        `confidence` is the confidence of `answer`.
        """
        require_known(self.refine, amounts, unknown)
        if not isinstance(answer, RemoteAnswer) or answer.dataset != self.dataset:
            shown = NOTHING if isinstance(answer, RemoteAnswer) else type_of(answer)
            raise InvalidParameter("answer", shown, "must be an answer of this session", "get one with ask(...)")
        if answer.receipt.dummy:
            rule = "is from dummy rows, and refining it would spend on the real data"
            raise InvalidParameter("answer", NOTHING, rule, "ask the question with ask(...) first")
        if answer._is_of_set:
            rule = "is one of several tables, and the server has no text of its question alone"
            raise InvalidParameter("answer", NOTHING, rule, "ask for this table with its own GROUP BY, and refine that")
        if answer._is_summed:
            rule = "is a sum of the numbers of another answer, which the server does not know"
            raise InvalidParameter("answer", NOTHING, rule, "refine that answer and roll it up, or ask this question")
        confidence = answer.confidence if confidence is None else confidence
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        found = self._one(self._wire.ask("/v1/questions:refine", self._body(answer.question, paid)), answer.question)
        taken = answer._shares_taken_here()
        return found.with_shares(taken) if taken else found

    def batch(
        self, questions: Sequence[str | Steps], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: Weights = None, dialect: str | None = None, **unknown: Never,
    ) -> list[RemoteAnswer]:  # fmt: skip
        """Answer several questions for one cost that they share: the server charges all of them, or none. Arguments as
        for `Session.batch`.
        """
        require_known(self.batch, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        questions = listed(in_dialect(questions, dialect))
        found = self._wire.ask("/v1/questions:batch", self._several(questions, paid, weights))["answers"]
        return [self._one(each, asked) for each, asked in zip(found, questions, strict=True)]

    def price_batch(
        self, questions: str | Sequence[str | Steps], *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Within = None, delta: Amount | None = None, confidence: float = 0.95,
        weights: Weights = None, dialect: str | None = None, **unknown: Never,
    ) -> Quoted:  # fmt: skip
        """What `batch` would charge, how exact each table would be, and how the cost is split. Free: no data read."""
        require_known(self.price_batch, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        questions = in_dialect(questions, dialect)
        return read_quoted(self._wire.post("/v1/questions:price_batch", self._several(questions, paid, weights)))

    def bounds(
        self, column: str, table: str | None = None, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        cover: float = 0.99, **unknown: Never,
    ) -> RemoteBounds:  # fmt: skip
        """Buy bounds of a column without public bounds, between which about `cover` of the rows lie; for owners.

        They become part of the dataset's public schema, because they were paid for.
        """
        require_known(self.bounds, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        body = {"column": column, "table": table, "cover": cover, **paid}
        then = RemotePlanner(partial(dict, self.describe()))  # bought bounds change the schema, and so the question
        record = self._wire.ask(f"/v1/datasets/{self.dataset}/bounds", body)
        hash = record["answer"]["provenance"]["question"]
        late = partial(then.plan, remote_plans.of_bounds(column, table), hash)
        return RemoteBounds.read(record, RemoteAnswer(record["answer"], f"bounds of {column}", late))

    def price_bounds(
        self, column: str, table: str | None = None, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        **unknown: Never,
    ) -> RemotePrice:  # fmt: skip
        """What `bounds` would charge. Free: no data is read."""
        require_known(self.price_bounds, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        body = {"column": column, "table": table, **paid}
        found = self._wire.post(f"/v1/datasets/{self.dataset}/bounds:price", body)
        return RemotePrice.read(found, body, self._late(remote_plans.of_bounds(column, table), found["question"]))

    def synthesize(
        self, table: str | None = None, *amounts: Never, columns: Sequence[str] | None = None, method: str = "pairs",
        target: str | None = None, workload: Sequence[Sequence[str]] | None = None,
        bins: Mapping[str, int] | None = None, forbid: Sequence[Mapping[str, Any]] = (),
        unlisted: Sequence[str] = (), rows: int | None = None,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        **unknown: Never,
    ) -> Synthetic:  # fmt: skip
        """A synthetic table, as from a local session. The server measures noisy counts, and this machine fits them.
        `rows` is the approximate number of rows of the table, if it is public: a cost that is too small is refused.
        """
        from deniable.queries.synthetic.synthesis_measurement import refuse_useless, stated

        require_known(self.synthesize, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        wanted: Wanted = {
            "columns": named_columns(columns), "method": method, "target": target, "workload": workload, "bins": bins,
            "forbid": forbid, "unlisted": unlisted,
        }  # fmt: skip
        many = stated(rows)
        if many is not None:
            refuse_useless(self._price_synthesis(table, wanted, paid), many)
        found = self._wire.ask(f"/v1/datasets/{self.dataset}/synthetic", synthesis_fields(table, wanted, paid))
        return self._fitted(found, many)

    def price_synthesis(
        self, table: str | None = None, *amounts: Never, columns: Sequence[str] | None = None, method: str = "pairs",
        target: str | None = None, workload: Sequence[Sequence[str]] | None = None,
        bins: Mapping[str, int] | None = None, forbid: Sequence[Mapping[str, Any]] = (),
        unlisted: Sequence[str] = (),
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        **unknown: Never,
    ) -> SynthesisPrice:  # fmt: skip
        """What `synthesize` with the same arguments (without `rows`) would charge, and the noise of each count. Free:
        no data is read.
        """
        require_known(self.price_synthesis, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        wanted: Wanted = {
            "columns": named_columns(columns), "method": method, "target": target, "workload": workload, "bins": bins,
            "forbid": forbid, "unlisted": unlisted,
        }  # fmt: skip
        return self._price_synthesis(table, wanted, paid)

    def _price_synthesis(self, table: str | None, wanted: Wanted, paid: Mapping[str, Any]) -> SynthesisPrice:
        from deniable.queries.synthetic.synthetic_records import read_price

        found = self._wire.post(f"/v1/datasets/{self.dataset}/synthetic:price", synthesis_fields(table, wanted, paid))
        return read_price(found, {"table": table, **wanted}, self.tables)

    def synthetic(self, release: str | int) -> Synthetic:
        """A synthetic table that you bought or that the owner published: "visits:7", or its entry, 7. Free."""
        dataset, _, entry = str(release).rpartition(":")
        if dataset not in {"", self.dataset}:
            remedy = "connect to that dataset, or name a release of synthetics()"
            raise InvalidParameter("release", release, f"must be a release of {self.dataset}", remedy)
        charge = quote(entry, safe="")
        return self._fitted(self._wire.get(f"/v1/datasets/{self.dataset}/synthetic/{charge}"))

    def synthetics(self) -> list[dict[str, Any]]:
        """The synthetic tables that you bought, and those that the owner published, as dicts."""
        place = f"/v1/datasets/{self.dataset}/synthetic"
        page = self._wire.get(place)
        found = list(page["synthetic"])
        while (before := page.get("before")) is not None:
            page = self._wire.get(f"{place}?before={int(before)}")
            found += page["synthetic"]
        return found

    def standing(
        self, name: str, questions: Sequence[str] | None = None, *amounts: Never, by: str | None = None,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        confidence: float = 0.95, totals: int | None = None, **unknown: Never,
    ) -> RemoteStanding:  # fmt: skip
        """Declare standing questions (as an owner), or return the declared ones of this name if `questions` is None."""
        from deniable.client.remote_standing import RemoteStanding
        from deniable.queries.standing_questions import MOST_QUESTIONS, checked_questions

        require_known(self.standing, amounts, unknown)
        checked_path_name("name", name, 'write "daily"')
        place = f"/v1/datasets/{quote(self.dataset, safe='')}/standing"
        if questions is None:
            found = self._wire.get(f"{place}/{quote(name, safe='')}")
        else:
            paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, confidence=confidence, totals=totals)
            asked = checked_questions(questions, MOST_QUESTIONS)
            found = self._wire.ask(place, {"name": name, "questions": asked, "by": by or "", **paid})
        return RemoteStanding.read(self, found, confidence)

    def standings(self) -> list[str]:
        """The names of all sets of standing questions of the dataset, oldest first."""
        found = self._wire.get(f"/v1/datasets/{quote(self.dataset, safe='')}/standing")["standing"]
        return [str(each["name"]) for each in found]

    def rehearse(
        self, question: str | Steps, *amounts: Never,
        epsilon: Amount | None = None, mu: Amount | None = None, rho: Amount | None = None, share: Amount | None = None,
        within: Near = None, delta: Amount | None = None, confidence: float = 0.95,
        **unknown: Never,
    ) -> RemoteAnswer | RemoteGrouped:  # fmt: skip
        """Ask a question of dummy rows, which are made from the public schema alone. Free; reveals nothing."""
        require_known(self.rehearse, amounts, unknown)
        paid = cost_of(epsilon=epsilon, mu=mu, rho=rho, share=share, within=within, delta=delta, confidence=confidence)
        place = f"/v1/datasets/{self.dataset}/dummy:ask"
        return self._answer(self._wire.post(place, {**question_fields(question), **paid}), question)

    def dummy_rows(self, *, rows: int = 20) -> dict[str, list[dict[str, Any]]]:
        """Made-up rows for trying out code, `rows` of them for each table, drawn from the public schema alone."""
        found: dict[str, list[dict[str, Any]]] = self._wire.get(f"/v1/datasets/{self.dataset}/dummy?rows={rows}")[
            "tables"
        ]
        return found

    # -- the account ---------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """All public facts about the dataset, as a dict: tables, unit, budget, and what you may still spend."""
        found: dict[str, Any] = self._wire.get(f"/v1/datasets/{self.dataset}")
        return found

    @property
    def tables(self) -> Tables:
        """The public schema of each table, by name; print it to see the columns."""
        from deniable.queries.plan.answer_notes import Tables

        return Tables(tables_of(self.describe()))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that is ever answered under the dataset's budget, if all of it is spent."""
        from deniable.curves import Curve
        from deniable.units import Guarantee

        record = self.describe()["guarantee"]
        return Guarantee(
            Curve.from_dict(record["curve"]), read_unit(record["unit"]), assumptions=tuple(record["assumptions"])
        )

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph about all releases under this budget, with ε at `delta` (default: the budget's δ)."""
        from deniable.queries.answer import privacy_statement

        about = self.describe()
        return privacy_statement.of_description(about, self.guarantee, tables_of(about), delta)

    @property
    def budget(self) -> Budget:
        """The budget of the dataset, fixed when it was registered."""
        return Budget.from_dict(self.describe()["budget"]["record"])

    @property
    def spent(self) -> Curve:
        """The guarantee of all answers so far, to all analysts together, as a curve."""
        from deniable.curves import Curve

        return Curve.from_dict(self.describe()["spent_curve"])

    @property
    def unit(self) -> Unit:
        """Who is protected, and the largest number of rows of a person that any table keeps."""
        return read_unit(self.describe()["guarantee"]["unit"])

    @property
    def versions(self) -> Mapping[str, str]:
        """The declared version of each table; a table without one is left out."""
        return dict(self.describe()["versions"])

    @property
    def remaining(self) -> Remaining:
        """What you may still spend; printed in the budget's currency and as a number of typical questions."""
        about = self.describe()
        budget, unit = Budget.from_dict(about["budget"]["record"]), read_unit(about["guarantee"]["unit"])
        return Remaining(budget, read_cost(about["left_in_units"]), unit)

    @property
    def registration(self) -> Mapping[str, Registration]:
        """The exact numbers of rows of each table. NOT PRIVATE: for the owner alone, see `Registration`."""
        from deniable.queries.engines.registration_report import Registration, Registrations

        about = self.describe()
        if "registration" not in about:
            raise InvalidOperation(
                "only the dataset's owner may see how many rows were read, because these numbers are exact"
            )
        tables, found = tables_of(about), {}
        for name, counts in about["registration"].items():
            unit, long = tables[name].unit, counts.get("several_lines", {"records": 0, "longest": 1})
            found[name] = Registration(
                name, counts["read"], counts["left_out"], counts["cut"], counts["kept"], counts["people"],
                None if unit is None else unit.column, counts["version"], long["records"], long["longest"],
            )  # fmt: skip
        return Registrations(found)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The runs that could not be finished, and were answered as if the tables were empty. For the owner alone: the
        server refuses everybody else.
        """
        found = self._wire.get(f"/v1/datasets/{self.dataset}/failures")["failures"]
        return tuple(Failure(int(each["entry"]), str(each["code"])) for each in found)

    # -- what only a local session has ---------------------------------------------------------------------------------

    @property
    def ledger(self) -> Never:
        """Raises InvalidOperation: the ledger stays on the server."""
        self._stays(
            "the ledger",
            f"owners and auditors export it with GET /v1/ledger/{self.dataset}; your receipts name entries",
        )

    def measured_errors(self, synthetic: Synthetic) -> Never:
        """Raises InvalidOperation: measuring errors reads the data without noise, which only a local session does."""
        self._stays(
            "measured_errors()",
            "it reads the data without noise; look at the expected errors instead: synthetic.quality",
        )

    def recall(
        self, question: str | Steps, *, version: str | None = None, entry: object = None, confidence: float = 0.95
    ) -> Never:
        """Raises InvalidOperation: ask the question again instead; a repeated question is free."""
        self._stays("recall()", "repeat the question at the same cost: the server answers it from its ledger for free")

    def report_failures(self, to: Callable[[Failure], None]) -> Never:
        """Raises InvalidOperation: the server keeps the log; see `failures`."""
        self._stays("report_failures()", "the server logs failures: the dataset's owner reads them in `failures`")

    def limit_answers(self, *, cells: int, evaluations: int | None = None, admits: object = None) -> Never:
        """Raises InvalidOperation: the limits are settings of the server."""
        self._stays("limit_answers()", "limits are settings of the server")

    def limits(self, text: str = "") -> Never:
        """Raises InvalidOperation: the limits are settings of the server."""
        self._stays("limits()", "limits are settings of the server")

    def _stays(self, what: str, instead: str) -> Never:
        raise InvalidOperation(f"{what} needs a session on the machine that has the data; {instead}")

    def close(self) -> None:
        """Close the HTTP connection. The dataset and its ledger stay on the server."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteSession on {self.dataset} at {self._wire.place}>"

    def _several(
        self, questions: str | Sequence[str | Steps], paid: Mapping[str, Any], weights: Weights
    ) -> dict[str, Any]:
        is_text = isinstance(questions, str) and names_sets(questions)
        asked = listed([questions] if is_text else questions)
        if len(asked) == 1 and not is_text:  # of one text alone, the server takes the tables as the questions
            self._planner.refuse_sets(asked[0])
        each = [question_fields(one) for one in asked]
        dialects = {one.get("dialect") for one in each if "sql" in one}
        if len(dialects) > 1:  # one dialect is for all texts of a request, so each text names its own
            each = [{"sql": str(one)} if isinstance(one, str) else question_fields(one) for one in asked]
            dialects = {None}
        [dialect] = dialects or {None}  # without SQL there is none
        return {
            "dataset": self.dataset,
            "questions": [one.get("sql", one.get("frame")) for one in each],
            **({} if dialect is None else {"dialect": dialect}),
            **paid,
            **({} if weights is None else {"weights": sendable_weights(weights)}),
        }

    def _fresh(self, question: str | Steps, paid: Mapping[str, Any], fresh: bool) -> dict[str, Any]:
        return {**self._body(question, paid), **({"fresh": True} if boolean("fresh", fresh) else {})}

    def _body(self, question: object, paid: Mapping[str, Any]) -> dict[str, Any]:
        return {"dataset": self.dataset, **question_fields(question), **paid}

    def _fitted(self, record: dict[str, Any], rows: int | None = None) -> Synthetic:
        from deniable.queries.synthetic.synthetic_records import read_record

        return read_record(record, rows)

    def _late(self, build: remote_plans.Build, hash: str) -> Callable[[], NoisePlan]:
        return partial(self._planner.plan, build, hash)

    def _answer(self, record: dict[str, Any], question: str | Steps) -> RemoteAnswer | RemoteGrouped:
        if "tables" not in record:
            return self._one(record, question)
        text = str(question)
        return RemoteGrouped(record, text, lambda place, hash: self._late(remote_plans.of_set(text, place), hash))

    def _one(self, record: dict[str, Any], question: str | Steps) -> RemoteAnswer:
        build = remote_plans.of_counts if record["papers"].get("shares") else remote_plans.of_question
        return RemoteAnswer(record, question, self._late(build(question), record["provenance"]["question"]))
