"""Attacks by the text of a question: each is refused by a public rule, over HTTP, and nothing is charged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import REFUSALS
from deniable.ledger.entries import State
from deniable.queries.bought_bounds import bins
from deniable.server.catalogue.catalogue import Person
from deniable.server.roles import Role
from deniable.tables.kinds import Kind
from tests.queries.hospital import visits
from tests.redteam.cases import case
from tests.server.world import BUDGET, SCHEMA, WARDS, World, made

COUNT = "SELECT COUNT(*) AS n FROM visits"


def refused(world: World, sql: str) -> dict[str, Any]:
    """It was refused by a rule of the closed list, and nothing was written; what was said."""
    before, charged = list(world.ledger.entries()), world.ledger.charged
    for path in ("", ":price"):
        answer = world.ask(sql, path=path, epsilon=0.1)
        said: dict[str, Any] = answer.json()
        assert (answer.status_code, said["code"]) == (422, "refused"), (sql[:200], answer.text[:500])
        assert said["refusal"] in REFUSALS
        assert len(answer.content) < 5000
    assert list(world.ledger.entries()) == before
    assert world.ledger.charged == charged
    return said


def attacks(code: str, tried: str, texts: list[str]) -> Any:
    def parametrized(test: Any) -> Any:
        marked = pytest.mark.parametrize("sql", texts, ids=[f"{n}" for n in range(len(texts))])(test)
        return case(code, tried, "refused with a closed code, nothing charged")(marked)

    return parametrized


@attacks("Q1", "rows themselves: *, no aggregate, LIMIT, OFFSET, DISTINCT ON, ORDER BY something private", [
    "SELECT * FROM visits", "SELECT age FROM visits", "SELECT age FROM visits LIMIT 1", "SELECT age FROM visits OFFSET 5",
    "SELECT DISTINCT ON (ward) ward, age FROM visits", "SELECT DISTINCT town FROM visits", "TABLE visits", "FROM visits",
    "SELECT COLUMNS('a.*') FROM visits", "SELECT visits FROM visits", "SELECT visits.* FROM visits", "VALUES (1)",
    "SELECT COUNT(*) AS n FROM visits ORDER BY age", "SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10)",
    "SELECT COUNT(*) FROM (SELECT * FROM visits ORDER BY age LIMIT 1)", "SUMMARIZE visits", "DESCRIBE visits", "SHOW TABLES",
])  # fmt: skip
def test_rows_cannot_be_listed(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q2", "groups by a person's own key", [
    "SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id", "SELECT COUNT(*) AS n FROM visits GROUP BY patient_id",
    "SELECT p, COUNT(*) AS n FROM (SELECT patient_id AS p FROM visits) GROUP BY p",
    "SELECT patient_id + 1 AS p, COUNT(*) AS n FROM visits GROUP BY 1", "SELECT MIN(patient_id) AS m FROM visits",
    "SELECT SUM(patient_id) AS m FROM visits", "SELECT COUNT(*) AS n FROM visits WHERE patient_id = 17",
    "SELECT COUNT(*) AS n FROM visits WHERE patient_id IN (17)", "SELECT COUNT(*) AS n FROM visits WHERE patient_id IS NULL",
    "SELECT COUNT(*) AS n FROM visits WHERE patient_id LIKE '1%'", "SELECT COUNT(*) FROM visits GROUP BY ROLLUP (patient_id)",
    "SELECT COUNT(*) FROM visits GROUP BY CUBE (ward, patient_id)", "SELECT patient_id, COUNT(*) FROM visits GROUP BY ALL",
])  # fmt: skip
def test_people_are_no_keys(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q5", "windows, scalar and correlated sub-queries, recursion", [
    "SELECT COUNT(*) OVER () AS n FROM visits", "SELECT ROW_NUMBER() OVER (ORDER BY age) AS n FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE age > (SELECT AVG(age) FROM visits)",
    "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.age > v.age)",
    "SELECT (SELECT town FROM visits) AS t", "SELECT COUNT(*) AS n FROM visits WHERE (SELECT town FROM visits) = 'x'",
    "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) AS n FROM visits, LATERAL (SELECT age) AS t", "SELECT COUNT(*) AS n FROM visits QUALIFY ROW_NUMBER() OVER () = 1",
])  # fmt: skip
def test_windows_and_subqueries(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q6", "aggregates that hand out a value: ANY_VALUE, STRING_AGG, LIST, FIRST, MODE, ARG_MAX, approx_*, ...", [
    f"SELECT {call} AS x FROM visits" for call in (
        "ANY_VALUE(town)", "STRING_AGG(town, ',')", "ARRAY_AGG(town)", "LIST(town)", "FIRST(town)", "LAST(town)", "MODE(town)",
        "ARG_MAX(town, cost)", "ARG_MIN(town, cost)", "MAX_BY(town, cost)", "HISTOGRAM(town)",
        "APPROX_TOP_K(town, 3)", "RESERVOIR_QUANTILE(cost, 0.5)", "BIT_XOR(age)", "PRODUCT(age)", "MIN(town)", "MAX(town)",
        "COUNT(DISTINCT age, ward)", "SUM(DISTINCT age)", "SUM(town)", "ENTROPY(town)", "BITSTRING_AGG(age)", "JSON_GROUP_ARRAY(town)",
    )
])  # fmt: skip
def test_aggregates_that_show_values(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q7", "chance, clocks and samples: random(), uuid(), now(), USING SAMPLE, TABLESAMPLE, ...", [
    *(f"{COUNT} WHERE {text}" for text in (
        "random() < 0.5", "uuid() IS NULL", "age > now()", "CURRENT_TIMESTAMP IS NOT NULL",
        "setseed(0.5) IS NULL", "age > epoch(now())", "gen_random_uuid() IS NULL", "txid_current() > 0",
        "nextval('s') > 0",
    )),
    f"{COUNT} USING SAMPLE 10", f"{COUNT} TABLESAMPLE 10 PERCENT", f"{COUNT} TABLESAMPLE BERNOULLI (10)",
])  # fmt: skip
def test_chance_and_clocks(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q8", "files, networks, settings and system tables: read_csv, glob, PRAGMA, ATTACH, COPY, INSTALL, SET, information_schema, ...", [
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')", "SELECT COUNT(*) FROM 'visits.csv'", "SELECT COUNT(*) FROM '/etc/passwd'",
    "SELECT COUNT(*) FROM read_csv_auto('*')", "SELECT COUNT(*) FROM read_parquet('s3://x/y')", "SELECT COUNT(*) FROM glob('/*')",
    "SELECT COUNT(*) FROM read_text('/etc/passwd')", "SELECT COUNT(*) FROM read_blob('/etc/passwd')", "SELECT COUNT(*) FROM sniff_csv('x')",
    "SELECT COUNT(*) FROM sqlite_scan('state/catalogue.sqlite', 'curator_tokens')", "SELECT COUNT(*) FROM postgres_scan('', '', '')",
    "SELECT COUNT(*) FROM \"http://127.0.0.1/x.csv\"", "PRAGMA storage_info('visits')", "PRAGMA database_list", "SET memory_limit='1TB'",
    "RESET ALL", "ATTACH 'x.db'", "DETACH x", "COPY visits TO '/tmp/x'", "COPY (SELECT * FROM visits) TO '/tmp/x'", "EXPORT DATABASE 'x'",
    "IMPORT DATABASE 'x'", "INSTALL httpfs", "LOAD httpfs", "CALL duckdb_tables()", "EXPLAIN SELECT COUNT(*) FROM visits",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits", "CHECKPOINT", "VACUUM", "ANALYZE", "USE x",
    "SELECT COUNT(*) FROM information_schema.tables", "SELECT COUNT(*) FROM duckdb_tables()", "SELECT COUNT(*) FROM pg_catalog.pg_class",
    "SELECT COUNT(*) FROM sqlite_master", "SELECT COUNT(*) FROM duckdb_settings()", "SELECT COUNT(*) FROM pragma_table_info('visits')",
    "SELECT COUNT(*) AS n FROM visits WHERE stats(age) IS NULL", "SELECT COUNT(*) AS n FROM visits WHERE getenv('HOME') = 'x'",
    "SELECT COUNT(*) AS n FROM visits WHERE current_setting('threads') = '1'", "SELECT COUNT(*) AS n FROM main.people",
    "SELECT COUNT(*) AS n FROM memory.main.visits", "SELECT COUNT(*) FROM query('SELECT 1')", "SELECT COUNT(*) FROM query_table('visits')",
    "SELECT COUNT(*) AS n FROM visits WHERE rowid = 1", "SELECT COUNT(*) AS n FROM visits WHERE version() = 'x'",
])  # fmt: skip
def test_files_and_system_tables(sql: str, world: World) -> None:
    said = refused(world, sql)
    assert "root:" not in str(said)


@attacks("Q13", "a second statement behind the first, in a comment, behind a NUL, or another kind of statement", [
    f"{COUNT}; SELECT 1", f"{COUNT}; DROP TABLE visits", f"{COUNT};; DELETE FROM visits", f"{COUNT}\n;\nPRAGMA database_list",
    f"{COUNT} /* */; SELECT 1", "DROP TABLE visits", "DELETE FROM visits", "UPDATE visits SET age = 1", "INSERT INTO visits VALUES (1)",
    "CREATE TABLE x AS SELECT * FROM visits", "CREATE MACRO f(x) AS x", "CREATE FUNCTION f(x) AS x", "CREATE VIEW v AS SELECT * FROM visits",
    "CREATE TEMP TABLE x (a INT)", "ALTER TABLE visits ADD COLUMN x INT", "TRUNCATE visits", "BEGIN", "COMMIT", "GRANT ALL ON visits TO x",
    "PREPARE p AS SELECT 1", "EXECUTE p", "MERGE INTO visits USING visits ON TRUE WHEN MATCHED THEN DELETE", f"{COUNT} INTO x", f"{COUNT} FOR UPDATE",
    f"{COUNT}\x00; DROP TABLE visits", "-- nothing", "/* nothing */", ";", " ", "DO $$ BEGIN END $$",
])  # fmt: skip
def test_stacked_statements(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("E14", "error(), assert, macros, user functions, lambdas and casts that name a type of the engine", [
    *(f"{COUNT} WHERE {text}" for text in (
        "error('BOOM ' || town)", "CASE WHEN age = 1 THEN error(town) END", "assert(age > 0)", "my_udf(age) > 1", "f(age) := 1",
        "list_transform([age], x -> x)[1] > 1", "CAST(age AS INT[])[1] = 1", "{'a': age}.a > 1", "MAP([1], [age])[1] > 1", "age::JSON IS NULL",
        "apply([age], x -> x) IS NULL", "reduce([age], (a, b) -> a + b) > 1", "repeat(town, 1000000000) = 'x'", "lpad(town, 1000000000, 'x') = ''",
        "range(age) IS NULL", "generate_series(1, age) IS NULL", "unnest([age]) > 1", "hash(town) % 2 = 0", "md5(town) = 'x'", "sha256(town) = ''",
        "encode(town) = ''", "format('{}', town) = ''", "printf('%s', town) = ''", "json_extract(town, '$.x') = '1'", "chr(age) = 'a'",
        "levenshtein(town, 'Lyon') < 2", "age.x > 1",
    )),
    "SELECT COUNT(*) FROM generate_series(1, 300000000)", "SELECT COUNT(*) FROM range(300000000)", "SELECT COUNT(*) FROM repeat(1, 1000000000)",
    "SELECT COUNT(*) FROM visits, unnest(range(age))",
])  # fmt: skip
def test_functions_that_are_not_in_the_dialect(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("E15", "regular expressions that take very long on one row", [
    f"{COUNT} WHERE {text}" for text in (
        "town ~ '(a+)+$'", "regexp_matches(town, '(a|a)*b')", "town SIMILAR TO '(a+)+'", "regexp_replace(town, '(x+x+)+y', '') = ''",
        "town ~* '(a+)+$'", "town !~ '(x+x+)+y'", "regexp_extract(town, '(.*)*') = ''", "town GLOB '*a*'", "regexp_full_match(town, '(a*)*')",
        "town ~ '(a|a){50}b'", "regexp_matches('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '(a|a)*b')", "town !~ '(a?a){40}b'",
        "town ~ '" + 4 * f"({'|'.join('a' * 20)})" + "b'",
    )
])  # fmt: skip
def test_regular_expressions(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("E16", "letters that look like others: homoglyphs, full width, zero width, unicode escapes, quotes of other kinds", [
    "SELECT COUNT(*) AS n FROM vіsits", "ＳＥＬＥＣＴ COUNT(*) FROM visits", "SELECT\u200b COUNT(*) FROM visits", "SELECT COUNT(*) FROM vi\u200bsits",
    "SELECT COUNT(*) FROM U&\"\\0076isits\"", "SELECT COUNT(*) FROM \uff56isits", "SELECT COUNT(*) FROM visits\u037e SELECT 1",
    "SELECT COUNT(＊) FROM visits", "SELECT COUNT(*) FROM visits WHERE town = ‘x’", "SELECT COUNT(*) FROM “visits”", "\ufeffSELECT\u00a0* FROM visits",
    "SELECT COUNT(*) FROM visits WHERE аge > 1", "SELECT ｐatient_id FROM visits", "SELECT COUNT(*) FROM [visits]", "SELECT COUNT(*) FROM `read_csv`('x')",
    "ſelect * from visits", "SELECT COUNT(*) FROM visits WHERE \u202e1 = 1", "SELECT CO\u0000UNT(*) FROM visits",
])  # fmt: skip
def test_homoglyphs(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q14", "prepared parameters and variables of other dialects", [
    f"{COUNT} WHERE age > {mark}" for mark in ("?", "$1", ":age", "@@version", "$age", "%s", "{age}", "{{ age }}", "${age}", "#1")
])  # fmt: skip
def test_parameters(sql: str, world: World) -> None:
    refused(world, sql)


@attacks("Q4", "joins that multiply a person's rows: on other columns than the person, crosses, USING a private value", [
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.ward = b.ward", "SELECT COUNT(*) AS n FROM visits a CROSS JOIN visits b",
    "SELECT COUNT(*) AS n FROM visits a, visits b", "SELECT COUNT(*) AS n FROM visits NATURAL JOIN visits",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON TRUE", "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.patient_id <> b.patient_id",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.patient_id = b.age", "SELECT COUNT(*) AS n FROM visits a FULL JOIN visits b ON a.age = b.age",
    "SELECT COUNT(*) AS n FROM visits a ASOF JOIN visits b ON a.age >= b.age", "SELECT COUNT(*) AS n FROM visits POSITIONAL JOIN visits b",
    "SELECT COUNT(*) AS n FROM visits UNION SELECT 1", "SELECT COUNT(*) AS n FROM visits EXCEPT SELECT 1", "SELECT COUNT(*) AS n FROM visits INTERSECT SELECT 1",
])  # fmt: skip
def test_joins_that_multiply(sql: str, world: World) -> None:
    refused(world, sql)


@case(
    "E16b",
    "10 MB of SQL, 100,000 brackets, 50,000 ANDs, a megabyte of text in quotes",
    "refused within the time of any other question, nothing charged",
)
def test_texts_that_are_too_much(world: World) -> None:
    before = list(world.ledger.entries())
    for sql in (
        COUNT + " WHERE age > 1" + " AND age > 1" * 800_000, "(" * 100_000, COUNT + " WHERE " + "(" * 100_000 + "1" + ")" * 100_000,
        COUNT + " WHERE " + "NOT " * 50_000 + "TRUE", COUNT + " WHERE age IN (" + "1," * 100_000 + "1)", COUNT + f" WHERE town = '{'x' * 900_000}'",
        "SELECT " + "COUNT(*)," * 50_000 + " 1 FROM visits", COUNT + " -- " + "x" * 900_000, COUNT + "/*" * 50_000, COUNT + " WHERE age > " + "-" * 9000 + "1",
        COUNT + " WHERE age > " + "1+" * 4900 + "1", "WITH t0 AS (SELECT * FROM visits), "
        + ", ".join(f"t{i} AS (SELECT * FROM t{i - 1} UNION ALL SELECT * FROM t{i - 1})" for i in range(1, 60)) + " SELECT COUNT(*) FROM t59",
        COUNT + " WHERE age > " + "9" * 9000, COUNT + " WHERE " + " OR ".join(["age=1"] * 1200),
    ):  # fmt: skip
        began = time.process_time()
        answer = world.ask(sql, epsilon=0.1)
        assert answer.json().get("code") in {"refused", "too_large", "invalid"}, (sql[:80], answer.text[:300])
        assert time.process_time() - began < 20
        assert len(answer.content) < 5000
    assert list(world.ledger.entries()) == before


@case(
    "Q3",
    "HAVING and ORDER BY on counts, hoping for exact ones",
    "they use the noisy numbers that are shown, or are refused",
)
def test_having_sees_noisy_numbers(world: World) -> None:
    answer = world.ask(
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 700 ORDER BY n DESC", epsilon=0.05
    ).json()
    shown = [row[1] for row in answer["rows"]]
    assert shown == sorted(shown, reverse=True)
    assert all(n > 700 for n in shown)
    refused(world, "SELECT ward, COUNT(*) AS n FROM visits WHERE COUNT(*) > 3 GROUP BY ward")


@case(
    "Q2b",
    "GROUP BY a column without public keys, in which one person has a unique value",
    "that value is never shown; the number of rows is public or noisy",
)
def test_a_key_of_one_person(world: World) -> None:
    table = visits()
    table.loc[0, ["patient_id", "town"]] = [987654, "Atlantis-of-one"]
    table["age"] = (table["age"] * 3 + 1) % 101
    table["cost"] = (table["cost"] * 7) % 2000
    table["patient_id"] += 5_000_000
    table.to_csv(world.folder / "one.csv", index=False)
    body = {
        "name": "one",
        "sources": {"visits": "one.csv"},
        "schema": SCHEMA,
        "budget": {"epsilon": 100.0, "delta": 1e-10},
    }  # a chance of 1e-10 is all that it has
    assert world.call("olga", "POST", "/v1/datasets", body).status_code == 201
    for epsilon in (0.1, 1.0, 20.0):
        asked = {"dataset": "one", "sql": "SELECT town, COUNT(*) AS n FROM visits GROUP BY town", "epsilon": epsilon}
        answer = world.call("olga", "POST", "/v1/questions", asked)
        assert answer.status_code == 200, answer.text
        assert "Atlantis" not in answer.text


@case(
    "Q9",
    "several aggregates in one question, hoping that only one is paid for",
    "noise grows so that all of them together cost what was stated",
)
def test_parts_are_paid_for(world: World) -> None:
    def width(sql: str) -> float:
        errors = world.ask(sql, epsilon=0.1, path=":price").json()["errors"]
        return float(errors["n"])

    one = width("SELECT COUNT(*) AS n FROM visits WHERE age > 3")
    many = width(
        "SELECT COUNT(*) AS n, SUM(age) AS s, COUNT(DISTINCT patient_id) AS p, AVG(cost) AS c FROM visits WHERE age > 3"
    )
    assert many > 1.3 * one


@case("Q10", "bounds that are inverted, of width 0, 1e308, NaN, or left out where a sum needs them", "422, or no sum")
def test_bounds_that_mean_nothing(world: World, tmp_path: Path) -> None:
    table = visits(50, 100)
    table["patient_id"] += 9_000_000
    table.to_csv(world.folder / "bounds.csv", index=False)
    for low, high in ((100, 0), (0, 1e308), (0, ".nan"), (0, ".inf"), ("low", "high"), (True, False)):
        schema = SCHEMA.replace("low: 0, high: 2000", f"low: {low}, high: {high}")
        body = {"name": "bounds", "sources": {"visits": "bounds.csv"}, "schema": schema, "budget": BUDGET}
        answer = world.call("olga", "POST", "/v1/datasets", body)
        if answer.status_code == 201:  # enormous, but bounds: noise is as enormous
            asked = {"dataset": "bounds", "sql": "SELECT SUM(cost) AS s FROM visits", "epsilon": 1.0}
            said = world.call("olga", "POST", "/v1/questions", asked)
            assert said.status_code in {200, 422}
            assert "inf" not in said.text.lower().replace("info", "")
        else:
            assert answer.status_code == 422, answer.text
    refused(world, "SELECT SUM(LENGTH(town) * 1e300 * age) AS s FROM visits WHERE cost / 0 > 1e308 AND nosuch = 1")


@case(
    "Q12",
    "secrets in literals of somebody else's questions, looked for in releases, labels, the schema and prices",
    "an analyst sees their own questions only",
)
def test_literals_of_others(world: World) -> None:
    asked = world.ask("SELECT COUNT(*) AS n FROM visits WHERE town = 'literal-secret-4711'", epsilon=0.1)
    release = asked.json()["release"]
    other = world.newcomer("eve", Role.ANALYST)
    assert world.call("olga", "POST", "/v1/datasets/visits/grants", {"analyst": other}).status_code == 201
    places = ["/v1/datasets", "/v1/datasets/visits", "/v1/datasets/visits/releases", "/v1/datasets/visits/dummy", f"/v1/labels/{release}",
              "/v1/ledger/visits", "/v1/ledger/visits/accounts", "/metrics", "/openapi.json", "/v1/me"]  # fmt: skip
    for place in places:
        assert "4711" not in world.call(other, "GET", place).text, place
    assert "4711" in world.call("ada", "GET", "/v1/ledger/visits").text  # the auditor does: the test can see it


@pytest.mark.slow
@case(
    "Q15",
    "the same attacks as column names, aliases, keys of `within`, and as questions to dummy rows",
    "refused, nothing charged, or only a name",
)
def test_other_doors_for_text(world: World) -> None:
    before = list(world.ledger.entries())
    for sql in ("SELECT * FROM visits", "SELECT COUNT(*) FROM read_csv('/etc/passwd')", f"{COUNT}; DROP TABLE visits"):
        answer = world.call("ana", "POST", "/v1/datasets/visits/dummy:ask", {"sql": sql, "epsilon": 0.1})
        assert answer.json()["code"] == "refused"
        batch = {"dataset": "visits", "questions": [WARDS, sql], "epsilon": 0.1}
        assert world.call("ana", "POST", "/v1/questions:batch", batch).json()["code"] == "refused"
        assert world.ask(sql, path=":refine", epsilon=0.1).json()["code"] == "refused"
    assert world.ask(WARDS, within={"n; DROP TABLE visits": 5}).status_code == 422
    assert list(world.ledger.entries()) == before
    alias = world.ask('SELECT COUNT(*) AS "x""; DROP TABLE visits; --" FROM visits', epsilon=0.1).json()
    assert alias["columns"] == ['x"; DROP TABLE visits; --']
    assert world.ask(WARDS, epsilon=0.1).status_code == 200
    assert sum(entry.state is State.FAILED for entry in world.ledger.entries()) == 0


@case(
    "Q16",
    "bounds bought where one person alone has an enormous value, on neighbours; by an analyst; by a run that dies",
    "public ends of bins, same status and shape, charged before data is read; owners alone",
)
@pytest.mark.slow
def test_bounds_of_one_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enormous, told = 987654321012345, []
    wanted = {"column": "x", "epsilon": 2.0}
    for there in (False, True):
        folder = tmp_path / str(there)
        folder.mkdir()
        world = made(folder)
        values = [*range(300), *([enormous] if there else [])]
        (folder / "t.csv").write_text("\n".join(["who,x", *(f"p{i},{x}" for i, x in enumerate(values))]))
        schema = {"tables": {"t": {"person": "who", "rows": 1, "columns": {"x": {"kind": "integer"}}}}}
        with world.client:
            body = {"name": "t", "sources": {"t": "t.csv"}, "schema": schema, "budget": BUDGET}
            assert world.call("olga", "POST", "/v1/datasets", body).status_code == 201
            session = world.curator.open(Person("olga", Role.OWNER), "t").session
            world.curator.grant(Person("olga", Role.OWNER), "t", "ana", None, None)
            before = session.ledger.charged
            for path in ("bounds", "bounds:price"):
                assert world.call("ana", "POST", f"/v1/datasets/t/{path}", wanted).status_code == 403
            assert session.ledger.charged == before
            with monkeypatch.context() as patch:
                patch.setattr(type(session._engine), "collect", lambda *_: 1 / 0)
                died = world.call("olga", "POST", "/v1/datasets/t/bounds", wanted)
            assert (died.status_code, died.json()["low"], died.json()["high"]) == (200, None, None)
            assert session.ledger.charged == before + session.ledger.budget.cost(epsilon=2.0)
            assert "low" not in world.call("olga", "GET", "/v1/datasets/t").text.partition('"partners"')[0]
            done = world.call("olga", "POST", "/v1/datasets/t/bounds", {**wanted, "epsilon": 3.0})
            record = done.json()
            assert str(enormous) not in done.text
            ends = {end for each in bins(Kind.INTEGER) for end in each} | {None}
            assert {record["low"], record["high"]} <= ends
            keys = [row[0] for row in record["answer"]["rows"]]
            told.append(
                (died.status_code, sorted(died.json()), done.status_code, sorted(record), keys, session.ledger.charged)
            )
    assert told[0] == told[1]
