"""The plan of a question that a server answered, computed on this machine from its text and the public schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from deniable.errors import DeniableError, InvalidOperation, MissingExtra
from deniable.ledger import Budget
from deniable.queries import bought_bounds
from deniable.queries.answer.grouping_sets import names_sets, sets_of
from deniable.queries.answer.plan_cache import Plans
from deniable.queries.frame.recorded_steps import Steps, question_of
from deniable.queries.sql.share_windows import shares_in
from deniable.tables.schema import Table, read_schema

if TYPE_CHECKING:
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.plan.question import Question

Build = Callable[[Mapping[str, Table]], "str | Question"]
"""A function from the public schema to a question."""


def of_question(question: str | Steps) -> Build:
    """A question in SQL, or from the steps of a dataframe."""
    return lambda tables: question_of(question.text(), tables) if isinstance(question, Steps) else question


def of_counts(question: str | Steps) -> Build:
    """The same, with counts in place of shares of a total."""
    shares = shares_in(question)
    return of_question(question if shares is None else shares.text)


def of_set(text: str, place: int) -> Build:
    """One table of a text with ROLLUP, CUBE or GROUPING SETS."""

    def build(tables: Mapping[str, Table]) -> Question:
        sets = sets_of(text, tables)
        assert sets is not None
        return sets.questions[place]

    return build


def of_bounds(column: str, table: str | None) -> Build:
    """The noisy count by bins from which bounds are computed."""
    return lambda tables: bought_bounds.question(column, table, tables)[1]


def tables_of(about: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of a dataset, as the server describes it."""
    tables = read_schema({"version": 1, "tables": about["tables"]})
    for public, known in about["partners"].items():  # the most rows of a public table that one row can be joined with
        partners = tuple((tuple(columns), most) for columns, most in known)
        tables[public] = replace(tables[public], most_partners=partners)
    return tables


@final
class RemotePlanner:
    """Makes plans for one dataset. It caches the description of the dataset, and renews it if it is out of date."""

    __slots__ = ("_about", "_describe")

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe, self._about = describe, dict[str, Any]()

    def plan(self, build: Build, hash: str) -> NoisePlan:
        """The plan of the question with this hash.

        InvalidOperation if the question has a different hash on this machine, because the schema changed or the server
        runs another version; MissingExtra if the extra "sql" is not installed.
        """
        for kept in (True, False):
            if not kept or not self._about:
                self._about = self._describe()
            try:
                plans = self._plans()
                asked = build(plans.tables)
                built = plans.question(asked)
            except MissingExtra:
                raise
            except DeniableError:  # not a valid question under the cached schema; try the current one
                continue
            if built.hash == hash:
                return plans.plan(asked, built)
        raise InvalidOperation(
            "the plan of this answer cannot be made here: the schema of the dataset changed after the answer, or the "
            "server runs another version of deniable; ask again"
        )

    def refuse_sets(self, question: str | Steps) -> None:
        """Raise QuestionRefused for a text with ROLLUP, CUBE or GROUPING SETS, where a session here refuses it too.

        The server would answer it with several tables, and charge all of them.
        """
        if not isinstance(question, str) or not names_sets(question):
            return
        self._about = self._describe()
        plans = self._plans()
        if sets_of(question, plans.tables) is not None:
            plans.question(question)

    def _plans(self) -> Plans:
        return Plans(tables_of(self._about), Budget.from_dict(self._about["budget"]["record"]))
