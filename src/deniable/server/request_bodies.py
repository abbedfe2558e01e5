"""What requests say, checked at the border: numbers are JSON numbers, finite and positive; nothing else is there."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deniable.server.catalogue.people import checked_name
from deniable.server.roles import Role

Positive = Annotated[float, Field(gt=0, lt=1e300, allow_inf_nan=False, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$", strict=True)]
"""Names of people and datasets: letters, digits and a few signs, so that no page, file or log can be broken by one."""

NewName = Annotated[Name, AfterValidator(checked_name)]
"""The same for what is made now. What was made when names could end with a space can still be asked for."""

_MOST_TOGETHER = 50_000
_DEEPEST = 150
"""Brackets within brackets."""

Text = Annotated[str, Field(min_length=1, max_length=1_000_000, strict=True)]


def _whole(value: object) -> object:
    """60.0 is a whole number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written(frame: dict[str, Any] | None) -> str:
    """The steps of a dataframe as text. Their order matters: that of the columns is that of their names."""
    return json.dumps(frame, separators=(",", ":"))


def _shallow(frame: object) -> object:
    """No deeper than any question is; looked at without going deeper than that ourselves."""
    level = [frame]
    for _ in range(_DEEPEST):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return frame
    raise ValueError(f"is nested more than {_DEEPEST} deep")


Steps = Annotated[dict[str, Any], AfterValidator(_shallow)]
"""The steps of a dataframe; `deniable.queries.frame.recorded_steps` reads them."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spending(_Body):
    """What to spend: exactly one of `epsilon`, `mu`, `rho`, `share` (of what is left) and `within` (how near)."""

    epsilon: Positive | None = None
    mu: Positive | None = None
    rho: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    within: Positive | dict[str, Positive] | None = None
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    confidence: Annotated[float, Field(ge=0.5, lt=1, strict=True)] = 0.95

    def cost(self) -> dict[str, Any]:
        """As a session takes it."""
        said = {name: getattr(self, name) for name in ("epsilon", "mu", "rho", "share", "within", "delta")}
        return {name: value for name, value in said.items() if value is not None} | {"confidence": self.confidence}


class _Asked(Spending):
    """A question: in SQL, or as the steps of a dataframe."""

    sql: Text | None = None
    frame: Steps | None = None

    @model_validator(mode="after")
    def one(self) -> Self:
        """Exactly one of the two."""
        if (self.sql is None) == (self.frame is None):
            raise ValueError("give exactly one of sql and frame")
        return self

    @property
    def question(self) -> str:
        """As text: SQL, or JSON, which no SQL begins like."""
        return written(self.frame) if self.sql is None else self.sql


class Question(_Asked):
    """One question to one dataset."""

    dataset: Name


class Explained(_Asked):
    """One question to be explained: also its noise, where it is said what to spend."""

    dataset: Name

    def price(self) -> dict[str, Any] | None:
        """As a session takes it; None where nothing is to be spent."""
        said = self.cost()
        return said if set(said) - {"confidence", "delta"} else None


class Batch(Spending):
    """Several questions for one cost that they share, or each as near as `within` says. `weights` says how much a cell
    of each question counts; "fair": all alike, and no table less exact than by itself with an equal share.
    """

    dataset: Name
    questions: Annotated[list[Text | Steps], Field(min_length=1, max_length=100)]
    within: Positive | Annotated[list[Positive | None], Field(max_length=100)] | None = None  # type: ignore[assignment]
    weights: Annotated[list[Positive], Field(max_length=100)] | Literal["fair"] | None = None

    @model_validator(mode="after")
    def short(self) -> Self:
        """Each takes time to read, and nothing is paid for that."""
        if sum(len(each.encode("utf-8", "replace")) for each in self.texts) > _MOST_TOGETHER:
            raise ValueError(f"the questions of a batch have at most {_MOST_TOGETHER:,} bytes together")
        return self

    def cost(self) -> dict[str, Any]:
        """As a session takes it."""
        return super().cost() | ({} if self.weights is None else {"weights": self.weights})

    @property
    def texts(self) -> list[str]:
        """Each as text."""
        return [each if isinstance(each, str) else written(each) for each in self.questions]


class DummyQuestion(_Asked):
    """A question to the dummy rows of a dataset."""


class BoundsBody(Spending):
    """Bounds of a column that are bought, such that about `cover` of the rows are within."""

    column: Text
    table: Text | None = None
    cover: Annotated[float, Field(gt=0.5, le=1, strict=True)] = 0.99


class SynthesisBody(Spending):
    """A synthetic table of some columns; `target` is what models shall learn to predict from its rows."""

    table: Text | None = None
    columns: Annotated[list[Text], Field(min_length=1, max_length=64)] | None = None
    target: Text | None = None
    bins: Annotated[dict[Text, Annotated[int, Field(ge=2, le=256, strict=True)]], Field(max_length=64)] | None = None

    method: Literal["pairs", "independent"] = "pairs"
    workload: (
        Annotated[list[Annotated[list[Text], Field(min_length=1, max_length=3)]], Field(max_length=2100)] | None
    ) = None
    forbid: Annotated[list[dict[Text, Any]], Field(max_length=100), AfterValidator(_shallow)] = []
    unlisted: Annotated[list[Text], Field(max_length=64)] = []

    @model_validator(mode="after")
    def short(self) -> Self:
        """What was asked is kept with each table that is bought, and told wherever they are listed."""
        if len(json.dumps(self.said)) > _MOST_TOGETHER:
            raise ValueError(f"what a synthetic table shall be is said in at most {_MOST_TOGETHER:,} bytes")
        return self

    @property
    def said(self) -> dict[str, Any]:
        """As a session takes it, without the cost."""
        names = ("table", "columns", "target", "bins", "method", "workload", "forbid", "unlisted")
        return {name: getattr(self, name) for name in names}


class BudgetBody(_Body):
    """How much may ever be spent: ε (with δ in the Gaussian currency, without it pure), or μ, or ρ."""

    epsilon: Positive | None = None
    mu: Positive | None = None
    rho: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    keys_delta: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None


class NewDataset(_Body):
    """A dataset: its tables with the files they are in, what is public about them, and the budget."""

    name: NewName
    sources: Annotated[dict[str, Text], Field(min_length=1, max_length=20)]
    schema_: Annotated[Text | dict[str, Any], Field(alias="schema")]
    budget: BudgetBody | None = None
    family: Name | None = None
    people: Literal["same", "others"] | None = None
    """Where most ids are known: whether they are the same people, or others (and then why)."""
    reason: Annotated[str, Field(min_length=1, max_length=500, strict=True)] | None = None

    @model_validator(mode="after")
    def reasoned(self) -> Self:
        """Who says that they are others says why: auditors read it."""
        if (self.people == "others") != (self.reason is not None):
            raise ValueError(
                "reason: say why they are other people, where you say that they are others, and only there"
            )
        return self


class NewPerson(_Body):
    """Somebody, and what they are."""

    name: NewName
    role: Role


class NewInvitation(_Body):
    """An invitation for somebody: of somebody new their role too."""

    person: Name
    role: Role | None = None
    days: Annotated[float, Field(gt=0, le=90, strict=True)] | None = None


class Redemption(_Body):
    """An invitation, as it was told."""

    invitation: Annotated[str, Field(min_length=1, max_length=200, strict=True)]


class NewToken(_Body):
    """A further token for whoever asks."""

    days: Annotated[float, Field(gt=0, le=3660, strict=True)] | None = None


class Grant(_Body):
    """That an analyst may ask, up to a share of the budget; without one, up to the dataset's own limit."""

    analyst: Name
    limit: BudgetBody | None = None
    window_seconds: Annotated[int, Field(ge=60, le=10**9, strict=True), BeforeValidator(_whole)] | None = None


class Adjustment(_Body):
    """An owner's change of the dataset's limit, signed and visible in the ledger."""

    budget: BudgetBody
    reason: Annotated[str, Field(min_length=1, max_length=500, strict=True)]
