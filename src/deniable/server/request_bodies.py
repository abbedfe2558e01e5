"""The bodies of requests, validated on arrival: numbers must be JSON numbers, and unknown fields are refused."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deniable.queries.sql.named_dialects import in_dialect
from deniable.server.catalogue.people import checked_name
from deniable.server.roles import Role

Positive = Annotated[float, Field(gt=0, lt=1e300, allow_inf_nan=False, strict=True)]
Near = Positive | tuple[Positive, Positive]
"""An error, or an error in a group of so many rows."""
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$", strict=True)]
"""Names of people and datasets: ASCII letters, digits and a few signs, which are safe in pages, files and logs."""

NewName = Annotated[Name, AfterValidator(checked_name)]
"""The stricter rule for new names. Older names, which could end with a space, can still be used in requests."""

_MOST_TOGETHER = 50_000
_DEEPEST = 150
"""The deepest nesting of JSON objects and lists."""

Text = Annotated[str, Field(min_length=1, max_length=1_000_000, strict=True)]
Sql = Annotated[str, Field(max_length=1_000_000, strict=True)]
"""A question as text. An empty one passes, because the session refuses it in better words, with an example."""


def _whole(value: object) -> object:
    """60.0 as 60: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written(frame: dict[str, Any] | None) -> str:
    """The steps of a dataframe as text. Names keep their order, which is the order of the columns."""
    return json.dumps(frame, separators=(",", ":"))


def _shallow(frame: object) -> object:
    """Raise ValueError for JSON nested deeper than `_DEEPEST`. Not recursive, so that it cannot overflow the stack."""
    level = [frame]
    for _ in range(_DEEPEST):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return frame
    raise ValueError(f"must be nested at most {_DEEPEST} deep")


Steps = Annotated[dict[str, Any], AfterValidator(_shallow)]
"""The steps of a dataframe; `deniable.queries.frame.recorded_steps` reads them."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spending(_Body):
    """The cost: exactly one of `epsilon`, `mu`, `rho`, `share` (of what is left) and `within` (the accuracy)."""

    epsilon: Positive | None = None
    mu: Positive | None = None
    rho: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    within: Near | dict[str, Near] | None = None
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    confidence: Annotated[float, Field(ge=0.5, lt=1, strict=True)] = 0.95

    def cost(self) -> dict[str, Any]:
        """The keyword arguments of a session."""
        arguments = {name: getattr(self, name) for name in ("epsilon", "mu", "rho", "share", "within", "delta")}
        return {name: value for name, value in arguments.items() if value is not None} | {"confidence": self.confidence}


Dialect = Literal["duckdb", "postgres", "bigquery", "snowflake", "spark"]


class _Asked(Spending):
    """A question: in SQL of a `dialect` (by default DuckDB's), or as the steps of a dataframe."""

    sql: Sql | None = None
    frame: Steps | None = None
    dialect: Dialect | None = None

    @model_validator(mode="after")
    def one(self) -> Self:
        """Raise ValueError unless exactly one of `sql` and `frame` is given."""
        if (self.sql is None) == (self.frame is None):
            raise ValueError("give exactly one of sql and frame")
        if self.sql is None and self.dialect is not None:
            raise ValueError("dialect goes with sql")
        return self

    @property
    def question(self) -> str:
        """The question as text: SQL, or the steps as JSON. Only JSON begins with a brace."""
        return written(self.frame) if self.sql is None else in_dialect(self.sql, self.dialect)


class Question(_Asked):
    """One question to one dataset."""

    dataset: Name


class FreshQuestion(Question):
    """One question to be answered; with `fresh`, it is asked again and charged, whatever the ledger has."""

    fresh: Annotated[bool, Field(strict=True)] = False


class Explained(_Asked):
    """One question to be explained; with a cost, its noise as well."""

    dataset: Name

    def price(self) -> dict[str, Any] | None:
        """The keyword arguments of a session; None if the request has no cost."""
        arguments = self.cost()
        return arguments if set(arguments) - {"confidence", "delta"} else None


_Target = Near | dict[str, Near] | None
"""The errors of one question of a batch."""


class Batch(Spending):
    """Several questions that share one cost, or have the accuracies of `within`. `weights` gives the weight of a cell
    of each question; with "fair", all weights are equal, and no table is less exact than it would be alone with an
    equal share of the cost; with "closest", every table is as close as possible, by one factor for all, to the better
    of an equal share and of the finest table alone.
    """

    dataset: Name
    questions: Annotated[list[Sql | Steps], Field(min_length=1, max_length=100)]
    dialect: Dialect | None = None
    # a batch takes a list, of one entry for each question, where a question takes an error and a number of rows
    within: Positive | dict[str, Near] | Annotated[list[_Target], Field(max_length=100)] | None = None  # type: ignore[assignment]
    weights: Annotated[list[Positive], Field(max_length=100)] | Literal["fair", "closest"] | None = None

    @model_validator(mode="after")
    def short(self) -> Self:
        """Limit the total length: parsing takes time, and is free of charge."""
        if sum(len(each.encode("utf-8", "replace")) for each in self.texts) > _MOST_TOGETHER:
            raise ValueError(f"the questions of a batch must have at most {_MOST_TOGETHER:,} bytes together")
        return self

    def cost(self) -> dict[str, Any]:
        """The keyword arguments of a session."""
        return super().cost() | ({} if self.weights is None else {"weights": self.weights})

    @property
    def texts(self) -> list[str]:
        """The questions as text: SQL, or JSON."""
        return [in_dialect(each, self.dialect) if isinstance(each, str) else written(each) for each in self.questions]


class DummyQuestion(_Asked):
    """A question to the dummy rows of a dataset."""


class BoundsBody(Spending):
    """A request to buy bounds of a column, such that about `cover` of the rows lie within."""

    column: Text
    table: Text | None = None
    cover: Annotated[float, Field(gt=0.5, le=1, strict=True)] = 0.99


class SynthesisBody(Spending):
    """A synthetic table of some columns. `target` is the column that models will learn to predict from its rows."""

    table: Text | None = None
    columns: Annotated[list[Text], Field(min_length=1, max_length=64)] | None = None
    target: Text | None = None
    bins: Annotated[dict[Text, Annotated[int, Field(ge=2, le=256, strict=True)]], Field(max_length=64)] | None = None

    method: Literal["pairs", "independent", "mst", "adaptive"] = "pairs"
    workload: (
        Annotated[list[Annotated[list[Text], Field(min_length=1, max_length=3)]], Field(max_length=2100)] | None
    ) = None
    forbid: Annotated[list[dict[Text, Any]], Field(max_length=100), AfterValidator(_shallow)] = []
    unlisted: Annotated[list[Text], Field(max_length=64)] = []

    @model_validator(mode="after")
    def short(self) -> Self:
        """Limit the length: the request is stored with the table, and sent with every list of tables."""
        if len(json.dumps(self.arguments)) > _MOST_TOGETHER:
            raise ValueError(f"the request for a synthetic table must have at most {_MOST_TOGETHER:,} bytes")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of a session, without the cost."""
        names = ("table", "columns", "target", "bins", "method", "workload", "forbid", "unlisted")
        return {name: getattr(self, name) for name in names}


class BudgetBody(_Body):
    """The most that may ever be spent: ε and δ (Gaussian currency), ε alone (pure), μ, or ρ."""

    epsilon: Positive | None = None
    mu: Positive | None = None
    rho: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    keys_delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None


class NewBudget(BudgetBody):
    """The budget of a new dataset: for its lifetime or, with `per` and `periods`, for each of so many periods."""

    per: Literal["day", "week", "month", "year"] | None = None
    periods: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=100_000, strict=True)] | None = None

    @model_validator(mode="after")
    def renewing(self) -> Self:
        """Raise ValueError unless `per` and `periods` are given together."""
        if (self.per is None) != (self.periods is None):
            raise ValueError("give per and periods together: a budget that renews has a number of periods")
        return self


class NewDataset(_Body):
    """A new dataset: the files of its tables, their schema, and the budget."""

    name: NewName
    sources: Annotated[dict[str, Text], Field(min_length=1, max_length=20)]
    schema_: Annotated[Text | dict[str, Any], Field(alias="schema")]
    budget: NewBudget | None = None
    family: Name | None = None
    people: Literal["same", "others"] | None = None
    """Needed if most ids are known: whether they are the same people, or others, with a `reason`."""
    reason: Annotated[str, Field(min_length=1, max_length=500, strict=True)] | None = None

    @model_validator(mode="after")
    def reasoned(self) -> Self:
        """Raise ValueError unless a reason is given exactly for others. Auditors read it."""
        if (self.people == "others") != (self.reason is not None):
            raise ValueError('reason: must be given with people "others", and only then: why these are other people')
        return self


class NewVersion(_Body):
    """A new version of a dataset: its name, the files of the tables that changed, and the schema if it changed."""

    version: Annotated[str, Field(min_length=1, max_length=100, strict=True)]
    sources: Annotated[dict[str, Text], Field(max_length=20)] = {}
    schema_: Annotated[Text | dict[str, Any] | None, Field(alias="schema")] = None


class NewStanding(_Body):
    """A set of standing questions: its name, the column that says the day, and the cost of all questions and days."""

    name: Annotated[str, Field(min_length=1, max_length=100, strict=True)]
    questions: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    by: Annotated[str, Field(min_length=1, max_length=200, strict=True)]
    totals: Annotated[int, Field(ge=2, strict=True), BeforeValidator(_whole)] | None = None
    epsilon: Positive | None = None
    mu: Positive | None = None
    rho: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    confidence: Annotated[float, Field(ge=0.5, lt=1, strict=True)] = 0.95

    @model_validator(mode="after")
    def short(self) -> Self:
        """Limit the total length: parsing takes time, and is free of charge."""
        if sum(len(each.encode("utf-8", "replace")) for each in self.questions) > _MOST_TOGETHER:
            raise ValueError(f"the questions of a set must have at most {_MOST_TOGETHER:,} bytes together")
        return self

    def cost(self) -> dict[str, Any]:
        """The keyword arguments of a session."""
        arguments = {name: getattr(self, name) for name in ("epsilon", "mu", "rho", "share", "totals")}
        return {name: value for name, value in arguments.items() if value is not None} | {"confidence": self.confidence}


class RevealedDay(_Body):
    """The day that standing questions are answered for: a date as text, or a whole number."""

    day: Annotated[str, Field(max_length=30, strict=True)] | Annotated[int, Field(strict=True)]


class NewPerson(_Body):
    """A new person, and their role."""

    name: NewName
    role: Role


class NewInvitation(_Body):
    """An invitation for a person; for a new person also their role."""

    person: Name
    role: Role | None = None
    days: Annotated[float, Field(gt=0, le=90, strict=True)] | None = None


class Redemption(_Body):
    """The text of an invitation."""

    invitation: Annotated[str, Field(min_length=1, max_length=200, strict=True)]


class NewToken(_Body):
    """A further token for the person who asks."""

    days: Annotated[float, Field(gt=0, le=3660, strict=True)] | None = None


class Grant(_Body):
    """The right of an analyst to ask, up to a share of the budget. Default: up to the limit of the dataset."""

    analyst: Name
    limit: BudgetBody | None = None
    window_seconds: Annotated[int, Field(ge=60, le=10**9, strict=True), BeforeValidator(_whole)] | None = None


class Adjustment(_Body):
    """An owner's change of the dataset's limit, signed and visible in the ledger."""

    budget: BudgetBody
    reason: Annotated[str, Field(min_length=1, max_length=500, strict=True)]
