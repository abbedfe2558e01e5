"""Questions as analysts write them, asked as written: how many are answered, refused soundly, or unsupported.

    python benchmarks/sql/ask.py [WORLD ...] [--all] [--json OUT]

The questions are in hospital.sql, shop.sql, site.sql, tpch.sql and clickbench.sql beside this file. They were written
before anybody looked which of them work, and are not rewritten to work. A line "-- refuse: why" says that a question
must be refused, and why. Each question is asked once at ε = 1, δ = 10⁻⁶ (Gaussian noise, the whole budget for one
question) and once at ε = 10,000; plain DuckDB is asked the same.

- answered: accepted as written, and right. Right means that at ε = 10,000 every number is DuckDB's: whole numbers
  exactly where the noise interval at 1 - 10⁻⁹ is below 1, others within 2·10⁻⁴ of their size (2 % in columns that read
  quantiles and extremes) plus that interval, or 10⁻³ for windows without an interval. Groups that DuckDB does not show
  are empty.
  Rows are compared in any order, but under LIMIT: what they are ordered by is compared row by row, as ties alone may
  be cut in another way. If that is a key, the rows must be those of that place among all rows of our own.
- refused soundly: a correct answer would show single people, or cannot be bounded; the corpus says so.
- unsupported: refused, though a correct private answer exists.
- wrong: answered, with other numbers than DuckDB's.
- good, poor, useless: the median relative error of an answer's cells at ε = 1 is below 5 %, below 50 %, or above. A
  group that is not shown has an error of 100 %. Cells whose exact value is 0 or NULL are left out; an answer without
  others is "empty".
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import re
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import published_worlds
import sqlglot
import worlds

import deniable as dn
from deniable.errors import DeniableError, QuestionRefused
from deniable.queries.answer.answer import Answer
from deniable.queries.session import Session
from deniable.tables.expressions import columns_used

HERE = Path(__file__).resolve().parent
WORLDS: dict[str, Callable[[], worlds.World]] = {
    "hospital": worlds.hospital,
    "shop": worlds.shop,
    "site": worlds.site,
    "tpch": published_worlds.tpch,
    "clickbench": published_worlds.clickbench,
}
EPSILON, DELTA, EXACT, SURE = 1.0, 1e-6, 10_000, 1 - 1e-9
MU = math.sqrt(dn.Budget(epsilon=EPSILON, delta=DELTA).limit.units / 10**30)
"""What a budget of ε = 1 has to spend: a tenth of δ is kept for keys."""
GOOD, POOR = 0.05, 0.5
CLOSE, COARSE = 2e-4, 0.02
COARSE_FUNCTIONS = frozenset({"quantile", "min", "max"})
LIMIT = re.compile(r"\b(LIMIT|FETCH)\b.*$", re.DOTALL)
OUTCOMES = ("answered", "refused soundly", "unsupported", "wrong", "answered, should be refused")
USES = ("good", "poor", "useless", "empty")
WIDTH_BUCKET = """CREATE MACRO width_bucket(x, low, high, n) AS
    CASE WHEN x < low THEN 0 WHEN x >= high THEN n + 1
    ELSE CAST(FLOOR((x - low) * n / (high - low)) AS INTEGER) + 1 END"""
"""As Postgres defines it; DuckDB has no such function."""
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Written:
    """A question of the corpus: its text, and what must become of it."""

    name: str
    title: str
    text: str
    dialect: str
    refuse: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a question."""

    world: str
    name: str
    title: str
    verdict: str
    use: str = ""
    error: float | None = None
    reason: str = ""


def corpus(world: str) -> Iterator[Written]:
    for block in re.split(r"\n(?=-- \w+ \|)", (HERE / f"{world}.sql").read_text(encoding="utf-8")):
        lines = block.strip().splitlines()
        name, _, title = lines[0].removeprefix("-- ").partition(" | ")
        said = {line[3:].partition(": ")[0]: line.partition(": ")[2] for line in lines[1:] if line.startswith("-- ")}
        text = "\n".join(line for line in lines[1:] if not line.startswith("-- ")).rstrip(";")
        yield Written(name, title, text, said.get("dialect", "duckdb"), said.get("refuse", ""))


# -- plain DuckDB ----------------------------------------------------------------------------------------------------


def plain(world: worlds.World) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(WIDTH_BUCKET)
    for name, frame in world.tables.items():
        connection.register("source", frame)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM source')
        connection.unregister("source")
    return connection


def in_plain_duckdb(question: Written, connection: duckdb.DuckDBPyConnection) -> Rows:
    text = question.text
    if question.dialect != "duckdb":
        text = sqlglot.transpile(text, read=question.dialect, write="duckdb")[0]
    return [tuple(map(value, row)) for row in connection.execute(text).fetchall()]


def value(cell: Any) -> Any:
    """A cell as both sides write it: numbers as they are, midnights as dates."""
    if isinstance(cell, Decimal):
        return float(cell)
    if isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date()
    return None if isinstance(cell, float) and math.isnan(cell) else cell


# -- one question ----------------------------------------------------------------------------------------------------


Asked = tuple[Rows, list[bool], list[list[float | None]], list[bool], list[bool]]


def ask(session: Session, question: Written, **cost: float) -> Asked:
    """The rows, which columns are measured (the others are keys), how far noise may move each measured cell, and which
    of the measured columns read a window, and which a quantile or an extreme.
    """
    text = question.text if question.dialect == "duckdb" else f"-- dialect: {question.dialect}\n{question.text}"
    answer = session.sql(text, **cost)
    names, measured = list(answer.columns), [name in answer.measured for name in answer.columns]
    bounds = [[width(each) for each in answer.interval(name)] if name in answer.measured else [] for name in names]
    widths = [[bounds[k][place] for k in range(len(names)) if measured[k]] for place in range(len(answer))]
    windows: list[bool] = []
    coarse: list[bool] = []
    if isinstance(answer, Answer):  # the tables of CUBE and ROLLUP have no windows
        post = answer.plan.question.post
        over = {window.name for window in post.windows}
        shown = [made for name, made in post.columns if name in answer.measured]
        windows = [not over.isdisjoint(columns_used(made)) for made in shown]
        rough = {each.name for each in answer.plan.question.measures if each.function in COARSE_FUNCTIONS}
        for window in post.windows:  # a window may read earlier ones
            read = [window.argument, *window.partition, *(each.expression for each in window.order)]
            if any(not rough.isdisjoint(columns_used(each)) for each in read if each is not None):
                rough.add(window.name)
        coarse = [not rough.isdisjoint(columns_used(made)) for made in shown]
    return [tuple(value(row[name]) for name in names) for row in answer], measured, widths, windows, coarse


def width(interval: Any) -> float | None:
    return None if interval is None else abs(number(interval[1]) - number(interval[0]))


def judged(world: str, question: Written, noisy_session: Session, exact_session: Session, connection: Any) -> Outcome:
    said = (world, question.name, question.title)
    try:
        noisy, *_ = ask(noisy_session, question, mu=MU)
        exact, measured, widths, *kinds = ask(exact_session, question, epsilon=EXACT, confidence=SURE)
    except QuestionRefused as refused:
        return Outcome(
            *said, "refused soundly" if question.refuse else "unsupported", reason=f"[{refused.code}] {refused}"
        )
    except DeniableError as failed:
        return Outcome(*said, "unsupported", reason=f"{type(failed).__name__}: {failed}")
    if question.refuse:
        return Outcome(
            *said, "answered, should be refused" if exact else "answered", use="empty", reason=question.refuse
        )
    truth = in_plain_duckdb(question, connection)
    differs = difference(question.text, exact, truth, measured, widths, *kinds, cut=False)
    if differs and (limit := LIMIT.search(question.text)):
        # Ties are cut at random: each row must be one of all rows, and as high in the order as DuckDB's.
        whole = replace(question, text=question.text[: limit.start()])
        everything = in_plain_duckdb(whole, connection)
        differs = "" if len(exact) == len(truth) else f"{len(exact)} rows, not {len(truth)}"
        if ordered_by(question) in [k for k, noisy in enumerate(measured) if not noisy]:
            ours, *_ = ask(exact_session, whole, epsilon=EXACT, confidence=SURE)  # the same measurement
            differs = differs or another_page(question, exact, ours)
        else:
            differs = differs or out_of_order(question, exact, truth, measured, kinds[1])
        differs = differs or difference(question.text, exact, everything, measured, widths, *kinds, cut=True)
    if differs:
        return Outcome(*said, "wrong", reason=differs)
    error = typical_error(noisy, truth, measured)
    use = "empty" if error is None else "good" if error < GOOD else "poor" if error < POOR else "useless"
    return Outcome(*said, "answered", use, error)


def by_key(rows: Rows, measured: Sequence[bool]) -> dict[tuple[Any, ...], list[Any]]:
    found = {}
    for row in rows:
        key = tuple(cell for cell, noisy in zip(row, measured, strict=True) if not noisy)
        found[key] = [cell for cell, noisy in zip(row, measured, strict=True) if noisy]
    return found


def ordered_by(question: Written) -> int | None:
    """The place of the first column that rows are ordered by; None if it is not shown."""
    tree = sqlglot.parse_one(question.text, read=question.dialect)
    order = tree.args.get("order")
    if order is None:
        return None
    first, names = order.expressions[0].this, [each.alias_or_name for each in tree.selects]
    shown = [each.unalias() for each in tree.selects]
    place = int(first.name) - 1 if first.is_int else names.index(first.name) if first.name in names else None
    return shown.index(first) if place is None and first in shown else place


def another_page(question: Written, ours: Rows, whole: Rows) -> str:
    """What is wrong with rows that LIMIT and OFFSET cut from our own, ordered by a key; keys that few people share are
    not shown, so DuckDB's page may be another.
    """
    tree = sqlglot.parse_one(question.text, read=question.dialect)
    limit, offset = tree.args["limit"], tree.args.get("offset")
    first = int(offset.expression.name) if offset is not None else 0
    many = int((limit.args.get("count") or limit.expression).name)
    return "" if ours == whole[first : first + many] else "in order: another page"


def out_of_order(
    question: Written, ours: Rows, truth: Rows, measured: Sequence[bool], coarse: Sequence[bool] = ()
) -> str:
    """What is wrong with the first column that rows are ordered by, row by row; nothing if it is not shown."""
    place = ordered_by(question)
    if place is None:
        return ""
    rough = bool(measured[place]) and any(list(coarse)[sum(measured[:place]) :][:1])
    bound = COARSE if rough else CLOSE
    pairs = [(one[place], two[place]) for one, two in zip(ours, truth, strict=True)]
    wrong = [pair for pair in pairs if not near(*pair, bound, 1e-3)]
    return f"in order: {wrong[0][0]}, not {wrong[0][1]}" if wrong else ""


def difference(
    text: str, ours: Rows, truth: Rows, measured: Sequence[bool], widths: list[list[float | None]],
    windows: Sequence[bool] = (), coarse: Sequence[bool] = (), *, cut: bool,
) -> str:  # fmt: skip
    """What is wrong with our rows, or nothing. `cut`: there may be fewer, as a LIMIT cuts ties at random.

    `windows` says which measured columns read other groups, so that they need not be 0 in an empty one, and `coarse`
    which read a quantile or an extreme, whose cells are compared roughly.
    """
    if truth and len(truth[0]) != len(measured):
        return f"{len(measured)} columns, not {len(truth[0])}"
    bounds = [COARSE if rough else CLOSE for rough in coarse or [False] * sum(measured)]
    windowed = 1e-3 if re.search(r"\bOVER\b", text) else 0.0  # windows have no interval, and may be ratios near 0
    here, there = by_key(ours, measured), by_key(truth, measured)
    if len(here) < len(ours) and len(there) == len(truth):
        return "a group is there twice"
    spread = dict(zip(here, widths, strict=True)) if len(here) == len(widths) else {}
    for key, row in there.items():
        if key not in here and not cut:
            return f"group {key} is missing"
        if key not in here:
            continue
        for one, two, noise, bound in zip(here[key], row, spread.get(key, [0.0] * len(row)), bounds, strict=True):
            if not near(one, two, bound, windowed if noise is None else noise):
                return f"group {key}: {one}, not {two}"
    for key in here.keys() - there.keys():
        none = [False] * len(here[key])
        cells = zip(here[key], spread.get(key, [None] * len(here[key])), windows or none, strict=True)
        for cell, noise in ((cell, noise) for cell, noise, over in cells if not over):
            # A ratio of two noises around 0 may be anything, and has no interval.
            if cell not in (None, False) and noise is not None and distance(cell) > 1e-3 + noise:
                return f"group {key} should be empty: {here[key]}"
    return ""


def distance(cell: Any) -> float:
    return abs(cell) if isinstance(cell, int | float) else 0.0


def size(cell: Any) -> float:
    """What an error is a share of: the size of a number, and a year for a date."""
    return 365.0 if isinstance(cell, dt.date) else abs(number(cell))


def number(cell: Any) -> float:
    """A number, or the days of a date."""
    if isinstance(cell, dt.datetime):
        return cell.timestamp() / 86_400
    return float(cell.toordinal() if isinstance(cell, dt.date) else cell)


def is_exact(one: Any, two: Any, bound: float, noise: float) -> bool:
    """Whether both are whole numbers that noise cannot have moved."""
    return isinstance(one, int) and isinstance(two, int) and noise < 1 and bound < COARSE


def near(one: Any, two: Any, bound: float, noise: float) -> bool:
    if two is None or one is None:  # a sum of no rows is NULL in SQL, and noise around 0 here
        return all(each is None or distance(each) <= noise for each in (one, two))
    if isinstance(two, str) or isinstance(one, str) or is_exact(one, two, bound, noise):
        return bool(one == two)
    return abs(number(one) - number(two)) <= max(bound * size(two), 1e-5) + noise


def typical_error(noisy: Rows, truth: Rows, measured: Sequence[bool]) -> float | None:
    here, errors = by_key(noisy, measured), []
    for key, row in by_key(truth, measured).items():
        for place, two in enumerate(row):
            if two is None or isinstance(two, str) or not number(two):
                continue
            one = here[key][place] if key in here else None
            errors.append(1.0 if one is None else abs(number(one) - number(two)) / size(two))
    return statistics.median(errors) if errors else None


# -- all of them -----------------------------------------------------------------------------------------------------


def asked(name: str) -> list[Outcome]:
    world = WORLDS[name]()
    given = {"unit": world.units, "schema": dict(world.schema), "public": dict(world.public)}
    given |= {"unique": world.unique, "owned": world.owned}
    with (
        plain(world) as connection,
        dn.session(dict(world.private), budget=dn.Budget.gaussian(mu=1000, delta=10 * DELTA), **given) as noisy,
        dn.session(dict(world.private), budget=dn.Budget.pure(epsilon=10**6, delta=0.1), **given) as exact,
    ):
        return [judged(name, question, noisy, exact, connection) for question in corpus(name)]


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [["world", "questions", *OUTCOMES, *USES]]
    for name in [*dict.fromkeys(each.world for each in outcomes), "all"]:
        mine = [each for each in outcomes if name in (each.world, "all")]
        verdicts, uses = (
            Counter(each.verdict for each in mine),
            Counter(each.use for each in mine if each.verdict == "answered"),
        )
        shares = [f"{verdicts[each]} ({100 * verdicts[each] / len(mine):.0f} %)" for each in OUTCOMES]
        lines.append([name, str(len(mine)), *shares, *(str(uses[each]) for each in USES)])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Ask the corpus.")
    arguments.add_argument("worlds", nargs="*", choices=[[], *WORLDS], help="only these")
    arguments.add_argument(
        "--all", action="store_true", help="list every question, not only those that are not answered"
    )
    arguments.add_argument("--json", type=Path, help="write what became of each question")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    outcomes = [each for name in given.worlds or WORLDS for each in asked(name)]
    for each in outcomes:
        if given.all or each.verdict not in ("answered", "refused soundly"):
            error = "" if each.error is None else f" ({each.use}, {100 * each.error:.1f} %)"
            print(f"{each.name:4} {each.verdict}: {each.title}{error}{'  ' + each.reason if each.reason else ''}")
    print("\n" + table(outcomes))
    if given.json:
        given.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
