"""The rules by which questions are refused, each with a question that breaks it and a rewrite that works.

The table is data: the SQL reader raises from it, docs/sql.md prints it, and a test asks every question in it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, final

from deniable.errors import NOTHING, InvalidParameter, QuestionRefused
from deniable.tables.kinds import Domain
from deniable.tables.schema import Schema, Table
from deniable.units import Unit

MOST_BYTES: Final = 10_000
MOST_NESTED: Final = 40
MOST_NODES: Final = 200
_MOST_LISTED: Final = 30

EXAMPLE_OF: Final = "for example: "


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its code in `deniable.errors.REFUSALS`, its text, a question that breaks it, and a rewrite."""

    code: str
    rule: str
    refused: str
    rewrite: str


EXAMPLE: Final[Schema] = {
    table.name: table
    for table in (
        Table.of(
            "visits",
            Unit.person("patient_id", rows=20),
            age=Domain.integer(0, 120),
            ward=Domain.text("A", "B", "C"),
            cost=Domain.real(0, 10_000),
            weight=Domain.real(),
            visited=Domain.date(),
            diagnosis=Domain.text(),
        ),
        Table.of("stays", Unit.person("patient_id", rows=5), days=Domain.integer(0, 365), place=Domain.text()),
        Table(
            "wards",
            (("ward", Domain.text()), ("city", Domain.text("Ghent", "Lyon")), ("beds", Domain.integer(0, 500))),
            None,
            ((("ward",), 1), (("city",), 40)),
        ),
    )
}
"""The tables of the examples in the rules and in docs/sql.md."""
VISITS: Final = EXAMPLE["visits"]

RULES: Final = {
    "length": Rule(
        "too_long", f"the text of a question must have at most {MOST_BYTES} bytes",
        "SELECT COUNT(*) FROM visits WHERE age IN (" + ", ".join(["10"] * 3000) + ")",
        "SELECT COUNT(*) FROM visits WHERE age BETWEEN 10 AND 20",
    ),
    "depth": Rule(
        "too_deep", f"brackets must be nested at most {MOST_NESTED} deep",
        "SELECT COUNT(*) FROM visits WHERE age > " + "(" * 60 + "1" + ")" * 60,
        "SELECT COUNT(*) FROM visits WHERE age > 1",
    ),
    "nodes": Rule(
        "too_deep",
        f"a question must read at most {MOST_NODES} tables, filters and joins, with all sub-queries written out",
        "WITH b AS (SELECT DISTINCT patient_id FROM stays), "
        + ", ".join(
            f"c{i + 1} AS (SELECT x.patient_id FROM {'b' if i == 0 else f'c{i}'} AS x "
            f"JOIN {'b' if i == 0 else f'c{i}'} AS y USING (patient_id))"
            for i in range(8)
        )
        + " SELECT COUNT(*) FROM c8",
        "WITH a AS (SELECT * FROM stays WHERE days > 1) SELECT COUNT(*) FROM a",
    ),
    "syntax": Rule(
        "syntax",
        'the text must be SQL as DuckDB and PostgreSQL write it, with names that are SQL keywords in quotes ("order")',
        "SELECT COUNT(* FROM visits", "SELECT COUNT(*) FROM visits",
    ),
    "statement": Rule(
        "statement", "a question must be one SELECT", "DELETE FROM visits", "SELECT COUNT(*) FROM visits",
    ),
    "one": Rule(
        "statement", "a question must be one SELECT, without a second statement",
        "SELECT COUNT(*) FROM visits; SELECT 1", "SELECT COUNT(*) FROM visits",
    ),
    "clause": Rule(
        "clause", "{what} is not supported in a question",
        "SELECT COUNT(*) FROM visits USING SAMPLE 10", "SELECT COUNT(*) FROM visits WHERE age % 10 = 0",
    ),
    "grouping": Rule(
        "clause",
        "GROUP BY accepts columns, expressions, positions, aliases and ALL; in the outermost SELECT also ROLLUP, CUBE "
        "and GROUPING SETS",
        "SELECT ward, COUNT(*) FROM visits GROUP BY 7", "SELECT ward, COUNT(*) FROM visits GROUP BY ALL",
    ),
    "limit": Rule(
        "clause", "LIMIT and OFFSET must be whole numbers at the outermost SELECT, where they apply to noisy results",
        "SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10)",
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward LIMIT 10",
    ),
    "order": Rule(
        "clause", "ORDER BY must be at the outermost SELECT: inside a sub-query it has no effect",
        "SELECT COUNT(*) FROM (SELECT age FROM visits ORDER BY age)",
        "SELECT age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY n DESC",
    ),
    "table": Rule(
        "table", "there is no table {name}; a question reads the tables of the session by their bare names",
        "SELECT COUNT(*) FROM read_csv('/etc/passwd')", "SELECT COUNT(*) FROM visits",
    ),
    "column": Rule(
        "column", "there is no column {name} here",
        "SELECT COUNT(height) FROM visits", "SELECT COUNT(weight) FROM visits",
    ),
    "ambiguous": Rule(
        "column", "more than one column is called {name}",
        "SELECT COUNT(ward) FROM visits JOIN wards ON visits.ward = wards.ward",
        "SELECT COUNT(visits.ward) FROM visits JOIN wards ON visits.ward = wards.ward",
    ),
    "name": Rule(
        "name", "two columns of the result are called {name}",
        "SELECT COUNT(*) AS n, COUNT(age) AS n FROM visits", "SELECT COUNT(*) AS n, COUNT(age) AS m FROM visits",
    ),
    "star": Rule(
        "star", "rows cannot be listed: the outermost SELECT must name keys and aggregates",
        "SELECT * FROM visits", "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    ),
    "aggregate": Rule(
        "aggregate", "a question must ask for at least one aggregate",
        "SELECT ward FROM visits GROUP BY ward", "SELECT ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward",
    ),
    "distinct": Rule(
        "aggregate", "SELECT DISTINCT would list values; ask for groups with an aggregate instead",
        "SELECT DISTINCT ward FROM visits", "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    ),
    "misplaced": Rule(
        "aggregate", "an aggregate must be in SELECT, HAVING or ORDER BY, and not inside another aggregate",
        "SELECT COUNT(*) FROM visits WHERE AVG(age) > 10",
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVING AVG(age) > 10",
    ),
    "distinct aggregate": Rule(
        "aggregate", "DISTINCT is supported only in COUNT, with one column",
        "SELECT SUM(DISTINCT age) FROM visits", "SELECT COUNT(DISTINCT age) FROM visits",
    ),
    "nested": Rule(
        "aggregate",
        "numbers of several people are noisy, and noisy rows cannot be joined: ask for them by their keys, and join "
        "the answer, which costs nothing; a sub-query that is joined must group by the person (and further keys)",
        "SELECT COUNT(*) FROM visits JOIN (SELECT ward, AVG(age) AS a FROM visits GROUP BY ward) AS w USING (ward)",
        "SELECT ward, AVG(age) AS a FROM visits GROUP BY ward",
    ),
    "noisy aggregate": Rule(
        "aggregate", "noisy rows can be aggregated by COUNT, SUM, AVG, MIN, MAX, MEDIAN and STDDEV, not by {what}",
        "SELECT BIT_OR(n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
        "SELECT AVG(n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
    ),
    "group": Rule(
        "group", "{name} is neither grouped nor aggregated",
        "SELECT ward, COUNT(*) FROM visits", "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    ),
    "person key": Rule(
        "person", "the column that identifies people cannot be a key of the result: groups are not people",
        "SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id",
        "SELECT n, COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) GROUP BY n",
    ),
    "person": Rule(
        "person", "the column that identifies people can only be counted, joined on, or grouped by in a sub-query",
        "SELECT COUNT(*) FROM visits WHERE patient_id = 'p17'", "SELECT COUNT(DISTINCT patient_id) FROM visits",
    ),
    "function": Rule(
        "function", "{what} is not supported: the page on the SQL dialect lists the functions that are",
        "SELECT COUNT(*) FROM visits WHERE random() < 0.5", "SELECT COUNT(*) FROM visits WHERE age % 2 = 0",
    ),
    "private aggregate": Rule(
        "function",
        "{what} would show values of single people; counts, sums, averages, standard deviations and quantiles do not",
        "SELECT ANY_VALUE(ward) FROM visits", "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    ),
    "mode": Rule(
        "function", "{what} is not supported; the most frequent values are those of the largest groups",
        "SELECT MODE(ward) FROM visits",
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 1",
    ),
    "unsupported aggregate": Rule(
        "function",
        "{what} is not supported; moments are averages of powers, as AVG(POWER(x, 3)), and conditions can be counted",
        "SELECT SKEWNESS(cost) FROM visits", "SELECT AVG(cost), VAR_POP(cost), AVG(POWER(cost, 3)) FROM visits",
    ),
    "integer division": Rule(
        "function", "// is not supported, because databases round it differently",
        "SELECT age // 10, COUNT(*) FROM visits GROUP BY 1", "SELECT FLOOR(age / 10), COUNT(*) FROM visits GROUP BY 1",
    ),
    "log": Rule(
        "function", "LOG is not supported, because its base differs between databases",
        "SELECT AVG(LOG(cost + 1)) FROM visits", "SELECT AVG(LN(cost + 1)) FROM visits",
    ),
    "date format": Rule(
        "function", "a date format may have %Y, %m, %d, %H, %M and %S only, because names of months differ by language",
        "SELECT STRFTIME(visited, '%B %Y') AS m, COUNT(*) FROM visits GROUP BY m",
        "SELECT DATE_TRUNC('month', visited) AS m, COUNT(*) FROM visits GROUP BY m",
    ),
    "replace all": Rule(
        "function", "REGEXP_REPLACE replaces the first match only, and accepts no options",
        "SELECT REGEXP_REPLACE(diagnosis, '[0-9]', '', 'g') AS d, COUNT(*) FROM visits GROUP BY d",
        "SELECT REGEXP_REPLACE(diagnosis, '[0-9]+$', '') AS d, COUNT(*) FROM visits GROUP BY d",
    ),
    "time zone": Rule(
        "function", "timestamps are in UTC, so AT TIME ZONE must name UTC first: AT TIME ZONE 'UTC' AT TIME ZONE '…'",
        "SELECT HOUR(CAST(visited AS TIMESTAMP) AT TIME ZONE 'Europe/Berlin') AS h, COUNT(*) FROM visits GROUP BY h",
        "SELECT HOUR(CAST(visited AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS h, COUNT(*) "
        "FROM visits GROUP BY h",
    ),
    "substring": Rule(
        "function", "the start and the length of a part of a text must be constants from 1 to 1000",
        "SELECT SUBSTRING(diagnosis, age, 3), COUNT(*) FROM visits GROUP BY 1",
        "SELECT SUBSTRING(diagnosis, 2, 3), COUNT(*) FROM visits GROUP BY 1",
    ),
    "trim": Rule(
        "function", "TRIM can only remove spaces, from both ends",
        "SELECT COUNT(DISTINCT TRIM(LEADING 'x' FROM diagnosis)) FROM visits",
        "SELECT COUNT(DISTINCT TRIM(diagnosis)) FROM visits",
    ),
    "cast": Rule(
        "kinds", "a value can be cast to BOOLEAN, BIGINT, DOUBLE, VARCHAR, DATE or TIMESTAMP, without a size",
        "SELECT SUM(CAST(cost AS STRUCT(a INT))) FROM visits", "SELECT SUM(CAST(cost AS BIGINT)) FROM visits",
    ),
    "interval": Rule(
        "function",
        "an interval must be a constant of years to microseconds that is added to a date or subtracted from it",
        "SELECT COUNT(*) FROM visits WHERE visited + INTERVAL (age) DAY > DATE '2024-12-31'",
        "SELECT COUNT(*) FROM visits WHERE visited + INTERVAL 30 DAY > DATE '2024-12-31'",
    ),
    "unit": Rule(
        "constant", "the unit of a date function must be one of {what}",
        "SELECT DATE_TRUNC('century', visited), COUNT(*) FROM visits GROUP BY 1",
        "SELECT DATE_TRUNC('year', visited), COUNT(*) FROM visits GROUP BY 1",
    ),
    "constant": Rule(
        "constant", "{what} must be a constant",
        "SELECT COUNT(*) FROM visits WHERE ward IN (diagnosis)", "SELECT COUNT(*) FROM visits WHERE ward IN ('A', 'B')",
    ),
    "number": Rule(
        "constant", "a number must be finite and fit into 64 bits",
        "SELECT COUNT(*) FROM visits WHERE cost < 1e999", "SELECT COUNT(*) FROM visits WHERE cost < 1e9",
    ),
    "window": Rule(
        "window",
        "a window over rows must be partitioned by the person, in a sub-query; one over groups may read all groups",
        "SELECT SUM(cost) OVER (PARTITION BY ward) FROM visits", "SELECT ward, SUM(cost) FROM visits GROUP BY ward",
    ),
    "window function": Rule(
        "window",
        "{what} is not supported as a window; choose from ROW_NUMBER, RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST, "
        "NTILE, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and MAX",
        "SELECT ward, NTH_VALUE(COUNT(*), 2) OVER (ORDER BY ward) FROM visits GROUP BY ward",
        "SELECT ward, FIRST_VALUE(COUNT(*)) OVER (ORDER BY ward) FROM visits GROUP BY ward",
    ),
    "window order": Rule(
        "window", "{what} OVER (…) needs an ORDER BY in the brackets",
        "SELECT ward, RANK() OVER () AS place, COUNT(*) AS n FROM visits GROUP BY ward",
        "SELECT ward, RANK() OVER (ORDER BY COUNT(*) DESC) AS place, COUNT(*) AS n FROM visits GROUP BY ward",
    ),
    "window frame": Rule(
        "window", "the frame of a window must count rows: ROWS BETWEEN … AND …, with whole numbers or UNBOUNDED",
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age RANGE 6 PRECEDING) AS s FROM visits GROUP BY age",
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age ROWS 6 PRECEDING) AS s FROM visits GROUP BY age",
    ),
    "window name": Rule(
        "window",
        "the WINDOW clause must define the window {name}, and a window that names it must not repeat its parts",
        "SELECT ward, RANK() OVER w AS place FROM visits GROUP BY ward",
        "SELECT ward, RANK() OVER w AS place, COUNT(*) FROM visits GROUP BY ward WINDOW w AS (ORDER BY COUNT(*) DESC)",
    ),
    "window rows": Rule(
        "window",
        "a window must read all rows of the noisy answer: with a condition, a LIMIT or an aggregate around it, one of "
        "them must be in a question of its own",
        "SELECT SUM(n) OVER (ORDER BY age) AS s FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age LIMIT 3) t",
        "SELECT SUM(n) OVER (ORDER BY age) AS s FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    ),
    "qualify": Rule(
        "window", "QUALIFY needs a window; in a sub-query it needs a window over the rows of a person",
        "SELECT COUNT(*) FROM (SELECT age FROM visits QUALIFY age > 3)",
        "SELECT COUNT(*) FROM (SELECT age FROM visits WHERE age > 3)",
    ),
    "subquery": Rule(
        "subquery",
        "a sub-query must be in FROM, or in WHERE as id IN (SELECT id …) or EXISTS (… equal id), with the id of people",
        "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
        "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM stays WHERE days > 3)",
    ),
    "scalar": Rule(
        "subquery",
        "a SELECT without FROM must compute with sub-queries in brackets, each with aggregates; one of them may read "
        "noisy rows, if their keys are public",
        "SELECT (SELECT COUNT(*) FROM visits GROUP BY ward) AS w",
        "SELECT (SELECT SUM(days) FROM stays) / (SELECT COUNT(*) FROM visits) AS share",
    ),
    "join": Rule(
        "join", "tables must be joined by a comma, JOIN, LEFT JOIN or RIGHT JOIN, on equal columns",
        "SELECT COUNT(*) FROM visits FULL JOIN stays USING (patient_id)",
        "SELECT COUNT(*) FROM visits JOIN stays USING (patient_id)",
    ),
    "join person": Rule(
        "join", "private tables must be joined on the person",
        "SELECT COUNT(*) FROM visits JOIN stays ON visits.diagnosis = stays.place",
        "SELECT COUNT(*) FROM visits AS v JOIN stays AS s ON v.patient_id = s.patient_id AND v.diagnosis = s.place",
    ),
    "join public": Rule(
        "join", "a public table must be joined on equality with its columns",
        "SELECT COUNT(*) FROM visits JOIN wards ON visits.age > wards.beds",
        "SELECT COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward WHERE visits.age > wards.beds",
    ),
    "join left": Rule(
        "join",
        "LEFT JOIN must keep the rows of a private table; ON may have equalities, and conditions on the other table",
        "SELECT COUNT(*) FROM wards LEFT JOIN visits ON visits.ward = wards.ward",
        "SELECT COUNT(*) FROM visits LEFT JOIN wards ON visits.ward = wards.ward",
    ),
    "public": Rule(
        "public", "a question must read at least one private table; a table that is public can be read without noise",
        "SELECT COUNT(*) FROM wards", "SELECT city, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY city",
    ),
    "public subquery": Rule(
        "public", "a public table must be joined by its name, not from a sub-query",
        "SELECT COUNT(*) FROM visits JOIN (SELECT ward FROM wards WHERE beds > 10) AS w USING (ward)",
        "SELECT COUNT(*) FROM visits JOIN wards USING (ward) WHERE beds > 10",
    ),
    "union": Rule(
        "union",
        "rows must be combined by UNION ALL inside FROM; UNION, EXCEPT and INTERSECT would compare people's rows",
        "SELECT COUNT(*) FROM (SELECT age FROM visits UNION SELECT days FROM stays)",
        "SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT days FROM stays)",
    ),
    "union outside": Rule(
        "union", "the outermost SELECT must not be a union: combine the rows inside FROM first, and name the parts",
        "SELECT 'v', COUNT(*) FROM visits UNION ALL SELECT 's', COUNT(*) FROM stays",
        "SELECT part, COUNT(*) FROM (SELECT 'v' AS part FROM visits UNION ALL SELECT 's' FROM stays) GROUP BY part",
    ),
    "union columns": Rule(
        "union", "all parts of a union must have the same number of columns, and the person in the same position",
        "SELECT COUNT(*) FROM (SELECT age, ward FROM visits UNION ALL SELECT days FROM stays)",
        "SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT days FROM stays)",
    ),
    "bounds option": Rule(
        "options", "contribution bounds must be two numbers, the lower one first, for {what}",
        "SELECT WITH DIFFERENTIAL_PRIVACY AVG(cost, contribution_bounds_per_group => (0, 10)) FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY AVG(cost, contribution_bounds_per_row => (0, 10)) FROM visits",
    ),
    "options": Rule(
        "options",
        "OPTIONS accepts epsilon, delta, max_groups_contributed, max_rows_per_group and privacy_unit_column, each once",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (speed = 3) COUNT(*) FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, max_groups_contributed = 2) COUNT(*) FROM visits",
    ),
    "privacy unit": Rule(
        "options", "the owner chose the privacy unit, and it is {what}",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = ward) COUNT(*) FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = patient_id) COUNT(*) FROM visits",
    ),
}  # fmt: skip


def refuse(rule: str, *, name: str = "", what: str = "", among: Iterable[str] = ()) -> NoReturn:
    """Raise `QuestionRefused` for a rule. `name` and `what` come from the question's own text or the public schema.

    With `among`, the remedy lists these names instead of an example.
    """
    found = RULES[rule]
    shown = repr(name if len(name) <= 60 else name[:57] + "...")
    message = found.rule.replace("{name}", shown).replace("{what}", what if len(what) <= 200 else what[:197] + "...")
    names = list(dict.fromkeys(among))
    if rule == "table" and name in names:  # the table exists, so the parser read a keyword
        raise QuestionRefused(found.code, f"{name} is a keyword of SQL", f'write the table in quotes: "{name}"')
    raise QuestionRefused(found.code, message, choices(name, names) if names else f"{EXAMPLE_OF}{found.rewrite}")


def choices(name: str, among: Iterable[str]) -> str:
    """A remedy for an unknown name: the closest one, and the list of all.

    >>> choices("csot", ["ward", "cost"])
    "did you mean 'cost'? choose from ward, cost"
    """
    names = list(among)
    folded = {each.casefold(): each for each in names}
    wanted = name.rpartition(".")[2].casefold()
    near = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    hint = f"did you mean {folded[near[0]]!r}? " if near else ""
    return f"{hint}choose from {', '.join(names[:_MOST_LISTED])}{', …' if len(names) > _MOST_LISTED else ''}"


def private_table(name: str | None, tables: Mapping[str, Table]) -> str:
    """The table that is named, or the only private one. Raises `InvalidParameter` if a name is needed."""
    if name is not None:
        return name
    private = [each for each, table in tables.items() if table.unit is not None]
    if len(private) != 1:
        raise InvalidParameter(
            "table",
            NOTHING,
            "must be given: this session does not have exactly one private table",
            choices("", private),
        )
    return private[0]
