"""Questions about private tables: two fronts (SQL, dataframes), one planner, two engines, and noisy answers.

    session, session_opening    `Session`: tables, a budget and a ledger; questions go in, answers come out
    sql, frame                  a text or a frame becomes a `Question` over a tree of `relations`, or is refused
    relations                   the tree: operators, stability, exact statistics with their sensitivity
    plan                        a `Question` becomes a `NoisePlan`: statistics, noise, cost, price
    engines                     exact integers from DuckDB or Spark; the only code that reads private data
    answer                      `release` adds noise; answers, batches, roll-ups, statements
    intervals                   confidence intervals for the effect of noise
    data_versions, standing_questions        versions of the data, and questions that are answered for each day
    dashboard_plan                           the cheapest way to keep a dashboard, before anything is spent
    standing_days, standing_records          the days of those, and what the ledger stores about them
    running_totals                           the noise of totals over days
    publication, synthetic, bought_bounds    tables that add up, synthetic tables, bounds bought with a noisy count
    found_bounds                             such bounds inside a question, for a part of its cost
    progress_bar                the progress of a registration, on the owner's terminal

A question passes sql or frame -> plan -> (the session charges the ledger) -> engines -> answer.release -> (the session
seals the answer in the ledger) -> answer. Each step sees only what it needs: no analyst's text reaches an engine, and
exact numbers meet noise in three places: `answer.release`, `running_totals.TotalsNoise.step` (standing questions), and
`synthetic.marginal_selection` (which tables to count). No exact number leaves them without noise, except that a
standing question with running totals stores those of each day, encrypted, in the ledger.

Names are loaded on first use, so that importing an engine does not load the SQL reader. `deniable.session` and
`deniable.explain` are exported by `deniable` itself.
"""

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.bought_bounds import Bounds
    from deniable.queries.dashboard_plan import DashboardPlan, plan_dashboard
    from deniable.queries.engines.engine import DatabaseTable
    from deniable.queries.engines.registration_report import Registration
    from deniable.queries.found_bounds import AnswerWithBounds, ask_finding_bounds
    from deniable.queries.frame.frame import Frame
    from deniable.queries.frame.frame_aggregates import (
        count,
        count_distinct,
        count_persons,
        max,
        mean,
        median,
        min,
        quantile,
        std,
        sum,
        var,
    )
    from deniable.queries.plan.pricing import Price
    from deniable.queries.plan.question import Question
    from deniable.queries.publication.published_tables import Publication, publish
    from deniable.queries.session import Session
    from deniable.queries.sql.sql_reader import parse
    from deniable.queries.standing_questions import Standing

__all__ = [
    "Answer",
    "AnswerWithBounds",
    "Bounds",
    "DashboardPlan",
    "DatabaseTable",
    "Frame",
    "Price",
    "Publication",
    "Question",
    "Registration",
    "Session",
    "Standing",
    "ask_finding_bounds",
    "count",
    "count_distinct",
    "count_persons",
    "max",
    "mean",
    "median",
    "min",
    "parse",
    "plan_dashboard",
    "publish",
    "quantile",
    "std",
    "sum",
    "var",
]

_HOMES = {
    "Answer": "answer.answer",
    "AnswerWithBounds": "found_bounds",
    "Bounds": "bought_bounds",
    "DashboardPlan": "dashboard_plan",
    "DatabaseTable": "engines.engine",
    "Frame": "frame.frame",
    "Price": "plan.pricing",
    "Publication": "publication.published_tables",
    "Question": "plan.question",
    "Registration": "engines.registration_report",
    "Session": "session",
    "Standing": "standing_questions",
    "ask_finding_bounds": "found_bounds",
    "count": "frame.frame_aggregates",
    "count_distinct": "frame.frame_aggregates",
    "count_persons": "frame.frame_aggregates",
    "max": "frame.frame_aggregates",
    "mean": "frame.frame_aggregates",
    "median": "frame.frame_aggregates",
    "min": "frame.frame_aggregates",
    "parse": "sql.sql_reader",
    "plan_dashboard": "dashboard_plan",
    "publish": "publication.published_tables",
    "quantile": "frame.frame_aggregates",
    "std": "frame.frame_aggregates",
    "sum": "frame.frame_aggregates",
    "var": "frame.frame_aggregates",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
