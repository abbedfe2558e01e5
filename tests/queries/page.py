"""Writes docs/sql.md from the tables that the front itself uses: `python -m tests.queries.page`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deniable.queries.plan.question import MOST_GROUPS, MOST_MEASURES
from deniable.queries.plan.refusals import EXAMPLE, MOST_BYTES, MOST_NESTED, MOST_NODES, RULES
from deniable.queries.relations.operator_table import OPERATORS
from deniable.queries.relations.operators import MOST_RANGE, MOST_VALUES
from deniable.queries.relations.question_length import MOST_WRITTEN
from deniable.queries.relations.work_bound import MOST_WORK
from deniable.tables.expressions import MOST_DEPTH, MOST_PARTS
from deniable.tables.kinds import LONGEST

PAGE: Final = Path(__file__).parents[2] / "docs" / "sql.md"

QUESTIONS: Final = {
    "Counts": [
        ("SELECT COUNT(*) FROM visits", "rows"),
        ("SELECT COUNT(age) FROM visits", "rows where it is not NULL"),
        ("SELECT COUNT(DISTINCT patient_id) FROM visits", "people"),
        ("SELECT COUNT(DISTINCT CASE WHEN age > 60 THEN patient_id END) FROM visits", "people with such a row"),
        ("SELECT COUNT(DISTINCT diagnosis), APPROX_COUNT_DISTINCT(diagnosis) FROM visits", "different values, both the same"),
        ("SELECT COUNT(*) FILTER (WHERE age > 60), COUNT_IF(age > 60) FROM visits", "rows that fulfil a condition"),
    ],
    "Numbers with public bounds": [
        ("SELECT SUM(cost), AVG(cost) FROM visits", "sum and average"),
        ("SELECT VAR_POP(cost), VAR_SAMP(cost), STDDEV_POP(cost), STDDEV(cost) FROM visits", "spread"),
        ("SELECT COVAR_POP(cost, age), COVAR_SAMP(cost, age), CORR(cost, age) FROM visits", "covariance, correlation"),
        (
            "SELECT REGR_SLOPE(cost, age), REGR_INTERCEPT(cost, age), REGR_R2(cost, age) FROM visits",
            "the line of least squares; also REGR_COUNT, REGR_AVGX, REGR_AVGY, REGR_SXX, REGR_SYY, REGR_SXY",
        ),
        ("SELECT MEDIAN(cost), QUANTILE(cost, 0.9) FROM visits", "quantiles; a single one under a pure budget is nearer and has no interval"),
        ("SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY cost) FROM visits", "the same, as the standard has it"),
        ("SELECT MIN(age), MAX(age) FROM visits", "private extremes"),
        ("SELECT AVG(LEAST(GREATEST(weight, 0), 200)) FROM visits", "bounds that you choose yourself"),
    ],
    "Groups": [
        ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", "public keys: all are shown, also empty ones"),
        ("SELECT diagnosis, COUNT(*) FROM visits GROUP BY diagnosis", "keys that are not public: shown above a threshold"),
        ("SELECT diagnosis, COUNT(*) FROM visits WHERE diagnosis IN ('flu', 'cold') GROUP BY diagnosis", "keys that the question names"),
        ("SELECT FLOOR(cost / 100) * 100 AS bin, COUNT(*) FROM visits GROUP BY bin", "a histogram"),
        ("SELECT WIDTH_BUCKET(cost, 0, 10000, 20) AS bin, COUNT(*) FROM visits GROUP BY bin", "the same with n equal bins"),
        ("SELECT ward, MONTH(visited) AS m, AVG(cost) FROM visits GROUP BY 1, m", "several keys, positions, aliases"),
    ],
    "Dates": [
        ("SELECT DATE_TRUNC('week', visited) AS week, COUNT(*) FROM visits GROUP BY week", "years, quarters, months, weeks, days"),
        ("SELECT EXTRACT(DOW FROM visited) AS d, COUNT(*) FROM visits GROUP BY d", "parts; 0 is Sunday, ISODOW has 1 for Monday"),
        ("SELECT AVG(DATE_DIFF('month', visited, DATE '2024-12-31')) FROM visits", "starts of a unit between two dates"),
        ("SELECT COUNT(*) FROM visits WHERE visited >= DATE '2024-12-31' - INTERVAL '90' DAY", "constant intervals"),
        ("SELECT AVG(DATE '2024-12-31' - visited) FROM visits WHERE visited > DATE '2024-12-31' - 90", "days between dates, and days before a date"),
        ("SELECT STRFTIME(visited, '%Y-%m') AS month, COUNT(*) FROM visits GROUP BY month", "as text"),
        ("SELECT HOUR(CAST(visited AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS h, COUNT(*) FROM visits GROUP BY h", "local time of a moment in UTC"),
        ("SELECT MAX(LEAST(GREATEST(visited, DATE '2020-01-01'), DATE '2029-12-31')) AS last FROM visits", "the first and the last date within public bounds"),
    ],
    "After the noise": [
        ("SELECT ward, SUM(cost) / COUNT(DISTINCT patient_id) AS each FROM visits GROUP BY ward", "arithmetic over answers"),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING n > 100 ORDER BY n DESC LIMIT 3", "HAVING, ORDER BY, LIMIT, OFFSET"),
        ("WITH t AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT ward, n * 2 FROM t WHERE n > 10", "a SELECT around answers"),
        ("SELECT ward, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM visits GROUP BY ward", "windows over groups: ranks, NTILE, LAG, LEAD, totals; also WINDOW w AS (…)"),
        ("SELECT age, n, SUM(n) OVER (ORDER BY age) AS so_far FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t", "running totals, shares, moving averages: with intervals"),
        ("SELECT AVG(n) AS each FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)", "aggregates of answers, over the groups with a noisy count above 0"),
        ("WITH d AS (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) SELECT COUNT(*) AS many FROM d WHERE n > (SELECT AVG(n) FROM d)", "an answer that is used twice"),
        ("SELECT (SELECT SUM(days) FROM stays) / (SELECT COUNT(DISTINCT patient_id) FROM visits) AS each", "several questions in one"),
        ("SELECT (SELECT AVG(n) FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) AS a) / (SELECT SUM(days) FROM stays) AS part", "one of them may read noisy rows"),
        ("SELECT ward, age, COUNT(*) AS n FROM visits GROUP BY ward, age QUALIFY ROW_NUMBER() OVER (PARTITION BY ward ORDER BY COUNT(*) DESC) = 1", "the largest of each"),
    ],
    "Joins": [
        ("SELECT city, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY city", "with a public table"),
        ("SELECT COUNT(*) FROM visits LEFT JOIN wards ON LOWER(visits.ward) = wards.ward WHERE city IS NULL", "LEFT JOIN, computed keys"),
        ("SELECT ward, SUM(days) FROM visits JOIN stays USING (patient_id) GROUP BY ward", "private tables, on the person"),
        ("SELECT COUNT(*) FROM visits WHERE patient_id NOT IN (SELECT patient_id FROM stays)", "people who are (not) in another table"),
        ("SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM stays s WHERE s.patient_id = v.patient_id AND s.days > 3)", "the same; equality of further columns may be added"),
        ("SELECT COUNT(*) FROM visits v LEFT JOIN stays s ON s.patient_id = v.patient_id AND s.days > 3 WHERE s.patient_id IS NULL", "rows without a partner"),
        ("SELECT city, SUM(days) FROM visits v, stays s, wards w WHERE v.patient_id = s.patient_id AND v.ward = w.ward GROUP BY city", "commas"),
    ],
    "Sub-queries": [
        ("SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)", "first a number for each person, computed exactly"),
        ("WITH old AS (SELECT *, cost * 1.1 AS euros FROM visits WHERE age > 60) SELECT AVG(euros) FROM old", "named, with new columns"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, ward FROM visits)", "different wards of each person"),
        ("SELECT COUNT(*) FROM (SELECT visited, LAG(visited) OVER (PARTITION BY patient_id ORDER BY visited) AS before FROM visits) WHERE visited <= before + INTERVAL 30 DAY", "windows within a person: LAG, LEAD, ROW_NUMBER, RANK, FIRST_VALUE, running totals"),
        ("SELECT ward, COUNT(*) FROM (SELECT ward FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY visited) = 1) GROUP BY ward", "each person's first row: costs one row"),
        ("SELECT ward, COUNT(*) FROM (SELECT patient_id, ARG_MAX(ward, cost) AS ward FROM visits GROUP BY patient_id) GROUP BY ward", "FIRST, LAST, ARG_MIN, ARG_MAX, ANY_VALUE and MEDIAN of a person"),
        ("SELECT AVG(x) FROM (SELECT age AS x FROM visits WHERE age < 18 UNION ALL SELECT age FROM visits WHERE age >= 65)", "disjoint parts cost as much as one part"),
        ("SELECT AVG(x) FROM (SELECT age AS x FROM visits UNION ALL SELECT days FROM stays)", "overlapping parts cost as much as both together"),
    ],
    "As BigQuery writes it": [
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 2) ward, COUNT(*) FROM visits GROUP BY ward", "options"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 1) visited, COUNT(*) FROM visits GROUP BY visited", "at most one row of each person on each day: with R rows in all, the noise of √R rows"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY AVG(weight, contribution_bounds_per_row => (0, 200)) FROM visits", "bounds of each row"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY SUM(cost, contribution_bounds_per_group => (0, 500)) FROM visits", "bounds of each person in each group"),
    ],
}  # fmt: skip

NODES: Final = (
    ("a private table", "`rows` of its unit"),
    ("WHERE, computed columns", "unchanged"),
    ("JOIN with a public table", "multiplied by the largest number of rows there with the same key"),
    ("JOIN of private tables on the person", "the product"),
    ("JOIN on the person and columns by which one side was grouped", "the number of the other side"),
    ("EXISTS, NOT EXISTS", "unchanged"),
    ("a window partitioned by the person", "unchanged"),
    ("WHERE k = 1, k IN (…), k <= 3 of a ROW_NUMBER within a person", "as many as k has values"),
    ("patient_id IN (SELECT …)", "unchanged"),
    ("GROUP BY patient_id in a sub-query", "1"),
    ("GROUP BY patient_id, key in a sub-query", "unchanged, at most 1 in each group of these keys"),
    ("UNION ALL", "the sum; the largest, if the parts' conditions exclude each other"),
)

DIFFERENCES: Final = (
    "`/` divides: 7 / 2 is 3.5, also between integers.",
    "`LEAST`, `GREATEST` and `CONCAT` are NULL if any argument is NULL. (For the first two this is the standard.)",
    "Operations that raise an error in other databases give NULL here: a division by 0, a cast of text that is not a number, a result that is not finite.",
    "`LOWER` and `UPPER` change only the letters A to Z; texts are compared and ordered by code point, exactly.",
    "`LIKE` has no escape character.",
    "Names of tables and columns are found without regard to case, quoted or not.",
    "NULLs come last in ORDER BY, unless NULLS FIRST is given.",
    "`COUNT(DISTINCT x)` takes one column; `COUNT(1)` is `COUNT(*)`.",
)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def code(text: str) -> str:
    return f"`{cell(text)}`"


def shortened(text: str) -> str:
    return text if len(text) <= 140 else text[:100] + " … " + text[-30:]


def page() -> str:
    """The whole page."""
    lines = [
        "# The SQL dialect",
        "",
        "<!-- Written by python -m tests.queries.page from the front's own tables; a test compares. Do not edit. -->",
        "",
        "A question is one SELECT, which is translated into a plan of our own. Only operations of the plan can run; the text itself never",
        "reaches a database. Whether a question is accepted depends only on its text and the public schema, so a refusal",
        "reveals nothing about any person. A refusal contains a code, the rule, and a question that works.",
        "",
        "The text is DuckDB's SQL. To write in another dialect (`postgres`, `bigquery`, `snowflake`, `spark`), name it:",
        "",
        "| where | how |",
        "|---|---|",
        '| a session, also one of `dn.connect` | `s.sql(text, epsilon=0.1, dialect="spark")` |',
        '| HTTP | the field `"dialect"` |',
        "| the shell | `--dialect spark` |",
        "| the text itself | its first line is `-- dialect: spark` |",
        "",
        "The functions are those of this page in every dialect.",
        "",
        "```python",
        "from deniable.errors import QuestionRefused",
        "from deniable.queries.plan.refusals import EXAMPLE  # the tables of this page",
        "from deniable.queries.sql.sql_reader import parse",
        "",
        'question = parse("SELECT ward, COUNT(*) AS n FROM visits WHERE age > 60 GROUP BY ward", EXAMPLE)',
        'assert question.names == ("ward", "n")',
        'assert question.known == (("A",), ("B",), ("C",), (None,))',
        'same = parse("select count(*), ward from visits where 60 < age group by ward", EXAMPLE)',
        "assert same.hash == question.hash  # asked again, it is answered from memory",
        "",
        "try:",
        '    parse("SELECT * FROM visits", EXAMPLE)',
        "except QuestionRefused as refused:",
        '    assert refused.code == "star"',
        "```",
        "",
        "## The tables of this page",
        "",
        "| table | whose rows | columns |",
        "|---|---|---|",
    ]
    for table in EXAMPLE.values():
        whose = "public" if table.unit is None else f"`{table.unit.column}`, at most {table.unit.rows} rows each"
        columns = ", ".join(f"`{name}` {str(domain).removeprefix('Domain.')}" for name, domain in table.columns)
        lines.append(f"| `{table.name}` | {whose} | {cell(columns)} |")
    lines += ["", "## What can be asked", ""]
    for title, questions in QUESTIONS.items():
        lines += [f"### {title}", "", "| | |", "|---|---|"]
        lines += [f"| {code(text)} | {meaning} |" for text, meaning in questions] + [""]
    lines += [
        "## How many rows of one person a relation can have",
        "",
        "Sensitivities are computed from this number. It follows from the plan, never from data.",
        "",
        "| relation | largest number of rows of a person |",
        "|---|---|",
        *(f"| {cell(node)} | {rows} |" for node, rows in NODES),
        "",
        "The column that identifies people can be counted, joined on, and grouped by in a sub-query. It is never a key of the result, and no expression reads it.",
        "",
        "## Operators and functions",
        "",
        "All operators are total: they have a value for every row, the same on every engine. Unless noted otherwise, the result is NULL if an argument is NULL.",
        "Integer arithmetic is exact where public bounds show that it stays within 64 bits; else it is done in reals, and so is",
        "arithmetic on integers without bounds. In Python an operator without a symbol is applied by its name:",
        '`col("visited").apply("month")`.',
        "",
        "| written | name | takes | gives | |",
        "|---|---|---|---|---|",
        *(
            f"| {code(o.sql)} | `{name}` | {cell(o.takes)} | {o.gives} | {cell(o.meaning)} |"
            for name, o in OPERATORS.items()
        ),
        "",
        "Also accepted, as combinations of these:",
        "",
        "- conditions: `BETWEEN`, `IS [NOT] TRUE`, `IS [NOT] DISTINCT FROM`, `IF`, `IFNULL`, `CASE a WHEN …`, `ILIKE`, `STARTS_WITH`, `CONTAINS`;",
        "- numbers: `ROUND(a, 2)`, `TRUNC`, `SIGN`, `WIDTH_BUCKET`, `SAFE_DIVIDE`, `LOG10`, `a::BIGINT`, `TRY_CAST`, and `DECIMAL(10, 2)`, which rounds;",
        "- parts of dates: `EXTRACT` and `DATE_PART` of all parts from MILLENNIUM to MICROSECOND, YEARWEEK and EPOCH; `CONCAT` of such parts;",
        "  `STRFTIME`, `TO_CHAR`, `LAST_DAY`;",
        "- computing with dates: `DATE_DIFF` in all units, `TIMESTAMP_DIFF`, `DATE_ADD`, `DATE_SUB`, `+` and `-` with a constant `INTERVAL`,",
        "  `a - b` and `a - 30`;",
        "- `CURRENT_DATE`, which is a constant of the question: the day on which it is asked, in UTC.",
        "",
        "Further functions of single dialects:",
        "",
        "| dialect | also accepted |",
        "|---|---|",
        "| bigquery | `FORMAT_DATE`, `FORMAT_TIMESTAMP`, `DATETIME_DIFF`, `EXTRACT(DATE FROM a)`, `APPROX_QUANTILES(a, 100)[OFFSET(50)]`, `SPLIT(a, '-')[OFFSET(0)]` |",
        "| snowflake | `TO_CHAR`, `IFF`, `DECODE`, `NVL2`, `DIV0`, `CHARINDEX` |",
        "| postgres | `TO_CHAR`, `LOG` to base 10, `~` |",
        "| spark | `DATE_FORMAT`, `TRUNC(a, 'MM')`, `DATE_ADD(a, 3)`, `ADD_MONTHS`, `WEEKDAY`, `SUBSTRING_INDEX(a, '-', 1)` |",
        "| all that have it | `DIV` |",
        "",
        "If a dialect counts something differently, it is refused: numbers of weeks from Sunday, a backslash in `LIKE`. `/` divides in all of them.",
        "",
        "Regular expressions match in linear time on every engine. A pattern has characters, classes (`[a-z]`, `[^/]`, `\\d`, `\\w`, `\\s`, `.`), groups with `|`, `?`, `*`, `+` and",
        "`{m,n}`, `^` at the beginning and `$` at the end. An unbounded repetition must not be followed by something that its repeated part can match too: `(a+)+b` and `.*foo` are refused.",
        "A window over rows is partitioned by the person. Rows with equal values in its ORDER BY are ordered by the secret rank, so add a column in which they differ.",
        "If a condition on noisy numbers chooses groups before an aggregate, the interval of the aggregate is about the chosen groups; it does not account for the choice.",
        "",
        "## What is different here",
        "",
        *(f"* {each}" for each in DIFFERENCES),
        "",
        "## Public keys",
        "",
        "A key is public in each of these cases:",
        "",
        "- the schema lists its values, or it is a boolean;",
        f"- it is an integer or a date within bounds that are at most {MOST_RANGE} apart;",
        "- it is the year, or the start of a month, of a date within any bounds;",
        f"- it is computed from such keys, and has at most {MOST_VALUES} results;",
        "- the question itself names its values by `=` or `IN`.",
        "",
        "Conditions on a key narrow its values: with `WHERE age < 18`, ages from 18 on are not shown. NULL is a separate key.",
        "If one key of a question is not public, its groups are not public either, and a threshold decides which are shown.",
        "",
        "## Limits",
        "",
        "| a question has at most | |",
        "|---|---|",
        f"| bytes of text | {MOST_BYTES} |",
        f"| nested brackets | {MOST_NESTED} |",
        f"| parts of an expression, and its depth | {MOST_PARTS} and {MOST_DEPTH} |",
        f"| tables, filters and joins, with all sub-queries written out | {MOST_NODES} |",
        f"| aggregates | {MOST_MEASURES} |",
        f"| combinations of public keys | {MOST_GROUPS:,} |",
        f"| parts, with every name of a sub-query replaced by its definition, as engines expand it | {MOST_WRITTEN:,} |",
        "",
        f"Texts have at most {LONGEST:,} code points: longer ones are cut there, when a file is read and when texts are joined.",
        "",
        f"**The work of one person** is at most {MOST_WORK:,} steps, counted from the plan before anything is read. It is the largest number of rows that a person can",
        "have at each operation of the plan, times the operations on a row there, times the bytes that its texts can have. A step is about a nanosecond, and a byte",
        "that is copied or kept is at least one step. A name of a sub-query counts as its definition, each time that it is read, because engines expand it where they check a condition.",
        "A question above the limit is refused with the code `work`, by `price` and by `sql`. Otherwise it could run out of time or memory only if one",
        "chosen person is in the table. The questions of this page need less than a tenth of it, most a thousandth. A text without listed keys counts as",
        f"{4 * LONGEST:,} bytes; `LEFT(a, 50)` makes it 200. If a unit has more than 100,000 rows for a person, the limit grows with them.",
        "",
        "In Python, `s.sql` accepts two more forms, which are translated to questions of this page: `GROUP BY ROLLUP(...)`, `CUBE(...)` or `GROUPING",
        "SETS(...)`, and `COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ()` for the share of a total, with an interval. [Publish tables](publish.md#roll-ups) shows both.",
        "",
        "## What is refused",
        "",
        "| code | rule | refused | works |",
        "|---|---|---|---|",
    ]
    for rule in RULES.values():
        said = rule.rule.replace("{name}", "…").replace("{what}", "…")
        lines.append(f"| `{rule.code}` | {cell(said)} | {code(shortened(rule.refused))} | {code(rule.rewrite)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
