"""Windows over noisy answers are those of DuckDB over the same numbers, and windows over rows of people are refused."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from deniable.errors import QuestionRefused
from deniable.queries.plan.refusals import EXAMPLE
from deniable.queries.sql.sql_reader import parse
from tests.queries.answers import answers
from tests.queries.engines.evaluate import registered
from tests.queries.hospital import PURE, opened, visits
from tests.queries.sql.test_sql_reader import SECRET, data

duckdb = pytest.importorskip("duckdb")

FORMS = [
    "SELECT age, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM visits GROUP BY age",
    "SELECT age, COUNT(*) AS n, DENSE_RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits GROUP BY age",
    "SELECT age, ROW_NUMBER() OVER (ORDER BY age DESC) AS r, COUNT(*) AS n FROM visits GROUP BY age",
    "SELECT age, ward, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY ward) AS share FROM visits GROUP BY age, ward",
    "SELECT age, n, n - LAG(n) OVER (ORDER BY age) AS d FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    "SELECT age, LEAD(n, 2) OVER (ORDER BY age) AS d FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    "SELECT age, SUM(n) OVER (ORDER BY age) AS s, COUNT(*) OVER (ORDER BY n) AS k FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    "SELECT age, AVG(n) OVER (ORDER BY age ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m, MAX(n) OVER (ORDER BY age ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS x FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    "SELECT age, MIN(n) OVER () AS low, SUM(n) OVER (ORDER BY age ROWS UNBOUNDED PRECEDING) AS s FROM (SELECT age, COUNT(*) AS n FROM visits GROUP BY age) t",
    "SELECT age, ward, COUNT(*) AS n FROM visits GROUP BY age, ward QUALIFY ROW_NUMBER() OVER (PARTITION BY ward ORDER BY COUNT(*) DESC, age) = 1",
    "SELECT age, ward, n FROM (SELECT age, ward, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY ward ORDER BY COUNT(*) DESC, age) AS k FROM visits GROUP BY age, ward) t WHERE k <= 2",
    "WITH t AS (SELECT age, ward, COUNT(*) AS n FROM visits GROUP BY 1, 2) SELECT * FROM (SELECT t.*, RANK() OVER (PARTITION BY ward ORDER BY n DESC) AS r FROM t) x WHERE r <= 3",
    "SELECT age, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS s FROM visits GROUP BY age HAVING COUNT(*) > 15",
    "SELECT age, COUNT(*) AS n, PERCENT_RANK() OVER (ORDER BY COUNT(*)) AS p, CUME_DIST() OVER (ORDER BY COUNT(*)) AS c FROM visits GROUP BY age",
    "SELECT age, ward, COUNT(*) AS n, PERCENT_RANK() OVER (PARTITION BY age ORDER BY ward) AS p FROM visits GROUP BY age, ward HAVING COUNT(*) > 0",
    *(f"SELECT age, COUNT(*) AS n, NTILE({tiles}) OVER (ORDER BY age) AS q FROM visits GROUP BY age" for tiles in (1, 2, 3, 5, 200)),
    "SELECT age, RANK() OVER w AS r, SUM(COUNT(*)) OVER (w ROWS 3 PRECEDING) AS s FROM visits GROUP BY age WINDOW w AS (ORDER BY age)",
    "SELECT age, ward, COUNT(*) AS n, SUM(COUNT(*)) OVER (v ORDER BY age) AS s FROM visits GROUP BY 1, 2 WINDOW w AS (PARTITION BY ward), v AS (w)",
]  # fmt: skip
REFUSED = [
    "SELECT SUM(cost) OVER (PARTITION BY ward) FROM visits",
    "SELECT COUNT(*) FROM (SELECT age, ROW_NUMBER() OVER (ORDER BY age) AS k FROM visits) WHERE k < 5",
    "SELECT COUNT(*) FROM (SELECT age FROM visits QUALIFY ROW_NUMBER() OVER (ORDER BY age) < 5)",
    "SELECT ward, COUNT(*) FROM visits WHERE RANK() OVER (ORDER BY age) = 1 GROUP BY ward",
    "SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVING RANK() OVER (ORDER BY COUNT(*)) = 1",
    "SELECT ward, NTILE(0) OVER (ORDER BY COUNT(*)) FROM visits GROUP BY ward",
    "SELECT ward, NTH_VALUE(COUNT(*), 2) OVER (ORDER BY ward) FROM visits GROUP BY ward",
    "SELECT ward, SUM(COUNT(*)) OVER (w ORDER BY ward) FROM visits GROUP BY ward WINDOW w AS (ORDER BY ward)",
    "SELECT COUNT(*) FROM (SELECT NTILE(4) OVER (PARTITION BY patient_id ORDER BY age) AS q FROM visits) WHERE q = 1",
    "SELECT ward, RANK() OVER () AS r, COUNT(*) FROM visits GROUP BY ward",
    "SELECT ward, SUM(n) OVER (ORDER BY ward RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
    "SELECT AVG(k) FROM (SELECT patient_id, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS k FROM visits GROUP BY patient_id)",
    "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward QUALIFY RANK() OVER (ORDER BY COUNT(*))",
]  # fmt: skip


def kept() -> dict[str, Any]:
    return {name: registered(EXAMPLE[name], rows, SECRET) for name, rows in data().items()}


def near(cell: Any) -> Any:
    return round(float(cell), 9) if isinstance(cell, int | float) else cell


@pytest.mark.parametrize("text", FORMS)
def test_a_window_of_an_answer_has_the_values_of_duckdb(text: str) -> None:
    stored = kept()
    visits = pd.DataFrame([{"age": row.values["age"], "ward": row.values["ward"]} for row in stored["visits"]])
    with duckdb.connect() as plain:
        plain.register("v", visits)
        plain.execute("CREATE TABLE visits AS SELECT CAST(age AS INTEGER) AS age, ward FROM v")
        expected = sorted(plain.execute(text).fetchall(), key=lambda row: repr([near(cell) for cell in row]))
    found = sorted(answers(parse(text, EXAMPLE), stored), key=lambda row: repr([near(cell) for cell in row]))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [near(one) for one in ours] == [near(two) for two in theirs]


@pytest.mark.parametrize("text", REFUSED)
def test_a_window_that_reads_across_people_is_refused(text: str) -> None:
    with pytest.raises(QuestionRefused):
        parse(text, EXAMPLE)


def test_a_window_costs_nothing_and_has_an_interval() -> None:
    counts = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    with opened(budget=PURE) as s:
        plain = s.sql(counts, epsilon=1.0)
        ranked = s.sql(f"SELECT ward, n, n - LAG(n) OVER (ORDER BY ward) AS d FROM ({counts}) t", epsilon=1.0)
        assert ranked.receipt.replayed  # the same measurement
        assert ranked["n"] == plain["n"]
        assert ranked["d"] == (None, *(b - a for a, b in zip(plain["n"], plain["n"][1:], strict=False)))
        first, *others = ranked.interval("d")
        assert first is None
        assert all(low < each < high for each, (low, high) in zip(ranked["d"][1:], others, strict=True))
        assert ranked.measured == {"n", "d"}
        assert "n" in str(s.price(f"SELECT ward, RANK() OVER (ORDER BY n) AS r, n FROM ({counts}) t", epsilon=1.0))


SHOWN = {
    "a rank": "RANK() OVER (ORDER BY n DESC)",
    "a difference": "n - LAG(n) OVER (ORDER BY sex, ward)",
    "a running sum": "SUM(n) OVER (PARTITION BY ward ORDER BY sex)",
    "a share": "n * 1.0 / SUM(n) OVER (PARTITION BY sex)",
    "a maximum of neighbours": "MAX(n) OVER (ORDER BY ward, sex ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
}


@pytest.mark.parametrize("there", [True, False], ids=["with the person", "without"])
def test_windows_read_noisy_values_alone(there: bool) -> None:
    """DuckDB computes every window anew from the noisy counts that were told, with and without somebody in the table.

    Noise of scale 60 moves all six counts, so a window that read one exact count would differ: that Laplace noise rounded
    to whole numbers is 0 for one of them has a chance of 1/120, and here none is.
    """
    rows = visits()
    rows = rows if there else rows[rows.patient_id != rows.patient_id[0]]
    shown = ", ".join(f"{window} AS w{i}" for i, window in enumerate(SHOWN.values()))
    counts = "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex"
    with opened(rows, budget=PURE) as s:
        answer = s.sql(f"SELECT ward, sex, n, {shown} FROM ({counts}) t", epsilon=0.05)
        assert {entry.question for entry in s.ledger.entries()} == {s.price(counts, epsilon=0.05).plan.question.hash}
    exact = rows.groupby(["ward", "sex"]).head(3).groupby(["ward", "sex"]).size()
    told = pd.DataFrame({"ward": answer["ward"], "sex": answer["sex"], "n": answer["n"]})
    assert all(int(exact[ward, sex]) != n for ward, sex, n in told.itertuples(index=False))
    with duckdb.connect() as plain:
        plain.register("told", told)
        found = plain.execute(f"SELECT {shown} FROM told ORDER BY ward, sex").fetchall()
    for place, row in zip(told.sort_values(["ward", "sex"]).index, found, strict=True):
        assert [near(answer[f"w{i}"][place]) for i in range(len(SHOWN))] == [near(cell) for cell in row]
