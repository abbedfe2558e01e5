"""The console over HTTP, for owners, admins and auditors: files, budgets, people, the ledger; its words and pictures."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest

from deniable.errors import WeakPrivacyWarning
from deniable.plots.figure_spec import Axis, Figure, Level, Line, Marker, Panel, ShadedBand
from deniable.server.catalogue.catalogue import Person
from deniable.server.console import page_drawings
from deniable.server.console.budget_words import EPSILONS, odds
from deniable.server.console.console_guard import POLICY
from deniable.server.console.page_templates import as_curl, as_python, greek
from deniable.server.problems import MEDIA_TYPE
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import Role
from tests.server.browsing import FORM, HOSTILE, QUOTES, Browser, Tags, inert
from tests.server.world import World, made

# -- owning ------------------------------------------------------------------------------------------------------------


def test_only_types_are_proposed(world: World) -> None:
    """No value of a file stands in the form, and no bound or key is filled in."""
    text = Browser(world, "olga").get("/console/add?file=visits.csv").text
    for name, value in re.findall(r'name="((?:low|high|keys)\.\d+)"[^>]*value="([^"]*)"', text):
        assert value == "", name


@pytest.mark.parametrize(
    "file", ["../secret.csv", "/etc/passwd", "http://x/y.csv", "state/catalogue.sqlite", "nothing.csv"]
)
def test_files_elsewhere_cannot_be_added(world: World, file: str) -> None:
    done = Browser(world, "olga").get(f"/console/add?file={file}")
    assert done.status_code == 422
    assert "in one of your data folders on the server" in done.text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": "0"}, "at least 1"),
        ({"low.2": "ten"}, "whole number"),
        ({"low.2": "9", "high.2": "1"}, ""),
        ({"name": HOSTILE}, "name"),
        ({"kind.1": "blob"}, "kind"),
        ({"step": "999"}, "slider"),
    ],
)
def test_a_form_that_cannot_be_is_shown_again_with_what_was_typed(
    hostile: World, wrong: dict[str, str], words: str
) -> None:
    name = f"{QUOTES[:4]}rows.csv"
    fields = {"file": name, "name": "other", "table": "tt", "person": "who", "rows": "1", "step": "7", "delta": "1e-6"}
    fields |= {"kind.0": "text", "kind.1": "text", "keys.1": "typed", "kind.2": "integer", "low.2": "0", "high.2": "9"}
    done = Browser(hostile, "olga").post("/console/add", **{**fields, **wrong})
    assert done.status_code == 422
    assert words in done.text
    inert(done.text)


def added(browser: Browser, **fields: str) -> httpx.Response:
    """The form for a file, as somebody sends it."""
    usual = {"file": "days.csv", "table": "t", "person": "who", "rows": "1", "step": "7", "delta": "1e-6"}
    return browser.post("/console/add", **{**usual, **fields})


@pytest.mark.slow
def test_dates_and_moments_have_bounds_and_can_be_asked_about(tmp_path: Path) -> None:
    (tmp_path / "days.csv").write_text(
        "\n".join(["who,day,seen", *(f"d{i},2024-0{1 + i % 9}-11,2024-05-0{1 + i % 9} 10:00:00" for i in range(300))])
    )
    world = made(tmp_path)
    with world.client:
        browser = Browser(world, "olga")
        form = {"name": "days", "kind.0": "text", "kind.1": "date", "low.1": "2024-01-01", "high.1": "2024-12-31"}
        form |= {"kind.2": "timestamp", "low.2": "2024-05-01", "high.2": "2024-05-31 23:59"}
        for wrong in ({"low.1": "1.1.2024"}, {"high.2": "noon"}, {"high.2": "2024-05-31T23:59+02:00"}):
            done = added(browser, **{**form, **wrong})
            assert done.status_code == 422
            assert "such as 2026-01-31" in done.text
        assert added(browser, **form).status_code == 303
        page = browser.get("/console/data/days")
        assert page.status_code == 200
        assert "2024-01-01 to 2024-12-31" in page.text
        assert "2024-05-01 00:00:00 to 2024-05-31 23:59:00" in page.text
        asked = {"sql": "SELECT EXTRACT(YEAR FROM day) AS y, COUNT(*) AS n FROM t GROUP BY y", "way": "epsilon"}
        answer = browser.post("/console/data/days/ask", **asked, amount="0.5")
        assert answer.status_code == 200
        assert "<td>2024</td>" in answer.text


def test_whom_a_row_is_about_must_be_chosen(world: World) -> None:
    browser = Browser(world, "olga")
    tags = Tags(browser.get("/console/add?file=visits.csv").text).found
    [choice] = [attributes for tag, attributes in tags if tag == "select" and attributes["name"] == "person"]
    assert "required" in choice
    options = [attributes for tag, attributes in tags if tag == "option"]
    assert not [each for each in options if "selected" in each and each.get("value") in {"each row is another person"}]
    form = {"file": "visits.csv", "name": "again", "table": "v", "kind.0": "leave out", "kind.1": "leave out"}
    for person in ("", "row", "nobody"):
        done = added(browser, **form, person=person)
        assert done.status_code == 422
        assert "must be chosen" in done.text


@pytest.mark.slow
def test_rows_that_are_people_are_so_by_choice_alone(tmp_path: Path) -> None:
    (tmp_path / "days.csv").write_text("\n".join(["who,x", *(f"x{i},{i % 3}" for i in range(50))]))
    world = made(tmp_path)
    with world.client:
        browser = Browser(world, "olga")
        form = {"name": "rows", "person": "each row is another person", "kind.0": "leave out", "kind.1": "text"}
        assert added(browser, **form).status_code == 303
        assert "Every row is a person." in browser.get("/console/data/rows").text


@pytest.mark.slow
def test_data_that_is_known_goes_on_spending_when_somebody_says_so(tmp_path: Path) -> None:
    (tmp_path / "days.csv").write_text("\n".join(["who,x", *(f"x{i},{i % 3}" for i in range(500))]))
    world = made(tmp_path)
    with world.client:
        browser = Browser(world, "olga")
        form = {"kind.0": "text", "kind.1": "text"}
        assert "known" not in browser.get("/console/add?file=days.csv").text
        assert added(browser, name="first", **form).status_code == 303
        refused = added(browser, name="second", step="9", **form)
        assert refused.status_code == 422
        assert "this data has a budget already" in refused.text
        [box] = [each for tag, each in Tags(refused.text).found if tag == "input" and each.get("name") == "known"]
        assert "checked" not in box
        done = added(browser, name="second", step="9", known="yes", **form)
        assert done.status_code == 303
        assert "continues to spend from its old budget" in browser.get(done.headers["location"]).text
        owner = Person("olga", Role.OWNER)
        first, second = (world.curator.open(owner, name).session.ledger for name in ("first", "second"))
        assert (first.serial, first.limit) == (second.serial, second.limit)
        again = added(browser, name="second", known="yes", **form)  # another problem: what was ticked stays ticked
        assert again.status_code == 422
        [box] = [each for tag, each in Tags(again.text).found if tag == "input" and each.get("name") == "known"]
        assert "checked" in box


def test_an_owner_reads_that_a_budget_protects_little_and_no_log_repeats_it(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        world = made(tmp_path, budget={"epsilon": 20, "delta": 0.01})
        with world.client:
            owner = Browser(world, "olga")
            page = owner.get("/console/data/visits/share").text
            asked = {"sql": "SELECT COUNT(*) AS n FROM visits", "way": "epsilon", "amount": "0.1"}
            owner.post("/console/data/visits/ask", **asked)
    assert page.count("protects little") == 2  # ε and δ
    assert [each for each in said if issubclass(each.category, WeakPrivacyWarning)] == []


def test_an_owner_does_not_read_it_of_a_usual_budget(tmp_path: Path) -> None:
    world = made(tmp_path, budget={"epsilon": 1, "delta": 1e-6})
    with world.client:
        assert "protects little" not in Browser(world, "olga").get("/console/data/visits/share").text


def test_an_owner_invites_and_takes_back(world: World) -> None:
    world.newcomer("nina", Role.ANALYST)
    browser = Browser(world, "olga")
    assert browser.post("/console/data/visits/share", analyst="nina", limit="0.5", window="day").status_code == 303
    shown = browser.get("/console/data/visits/share").text
    assert "each day" in shown
    ledger = browser.get("/console/data/visits/ledger").text
    assert "each day" in ledger
    assert "ana may spend ε" in ledger  # an entry that sets a limit says whose, and how much
    nina = Browser(world, "nina")
    assert nina.get("/console/data/visits").status_code == 200
    assert browser.post("/console/data/visits/revoke", analyst="nina").status_code == 303
    assert nina.get("/console/data/visits").status_code == 404
    for field, value in (("limit", "much"), ("window", "eternity"), ("analyst", "nobody")):
        wrong = {"analyst": "nina", "limit": "", "window": "", field: value}
        assert browser.post("/console/data/visits/share", **wrong).status_code == 422


def test_an_admin_invites_people_and_an_invitation_is_shown_once(world: World) -> None:
    browser = Browser(world, "adam")
    done = browser.post("/console/people", person="zoe", role="analyst")
    assert done.status_code == 200, done.text
    [invitation] = re.findall(r"dni_[0-9a-f]{16}_[\w-]{43}", done.text)
    assert invitation not in browser.get("/console/people").text
    told = world.curator.reception.redeem(invitation)
    world.tokens["zoe"] = told["token"]
    Browser(world, "zoe")
    assert told["id"] in browser.get("/console/people").text
    assert browser.post("/console/tokens/revoke", id=told["id"]).status_code == 303
    assert browser.post("/console/people", person=HOSTILE, role="analyst").status_code == 422


# -- auditing ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ledger_page_says_that_the_chain_holds_and_where_it_breaks(tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        Browser(world, "ana").post("/console/data/visits/ask", **FORM)
        browser = Browser(world, "ada")
        page = browser.get("/console/data/visits/ledger")
        assert "The chain holds." in page.text
        assert "released so far" in page.text
        inert(page.text)
        import sqlite3

        [path] = (tmp_path / "state" / "ledgers").glob("*.ledger")
        with sqlite3.connect(path) as database:
            names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
            for name in names:
                database.execute(f"DROP TRIGGER {name}")
            assert database.execute("UPDATE entries SET description = 'other' WHERE number = 3").rowcount == 1
        database.close()
        broken = browser.get("/console/data/visits/ledger")
        assert "The chain is broken at entry 3" in broken.text


# -- words and pictures ------------------------------------------------------------------------------------------------


def test_odds_are_those_of_the_closed_form_and_never_warn_about_little_epsilon() -> None:
    """A pure budget: belief e^ε/(1 + e^ε), rounded up to a tenth of a percent."""
    import math

    last = 0.0
    for epsilon in EPSILONS:
        found = odds(BudgetBody(epsilon=epsilon), 1)
        truth = 100 * math.exp(epsilon) / (1 + math.exp(epsilon))
        assert truth <= found["belief"] <= min(100, truth + 0.1 + 1e-9)
        assert found["belief"] >= last
        last = found["belief"]
        gaussian = odds(BudgetBody(epsilon=epsilon, delta=1e-6), 1)
        assert gaussian["belief"] >= found["belief"]  # it holds but for δ: never told as less than ε alone
        assert gaussian["counts"] >= 1


def test_costs_are_told_in_greek() -> None:
    assert greek("mu 0.2, delta 1E-8") == "μ 0.2, δ 10⁻⁸"
    assert greek("my epsilon is a column") == "my epsilon is a column"


def test_what_is_copied_means_what_was_asked() -> None:
    sql = "SELECT COUNT(*) AS \"a'b\" FROM t\nWHERE x = '$(rm -rf ~)'"
    python = as_python("http://h", "d", sql, {"epsilon": 0.1})
    assert python.endswith("))")  # printed: a script shows nothing else
    assert sql in eval(python.partition("print(s.sql")[2].removesuffix(")").replace("epsilon=0.1", ""))
    import json
    import shlex

    words = shlex.split(as_curl("http://h", "d", sql, {"epsilon": 0.1}).replace("\\\n", " "))
    assert json.loads(words[-1]) == {"dataset": "d", "sql": sql, "epsilon": 0.1}


def test_pictures_escape_their_words_and_stay_inside() -> None:
    marks = (Line(HOSTILE, (0, 1), (1, 0)), ShadedBand((0, 1), (0, 0), (1, 2)), Level(0.5, "y", QUOTES), Marker(9, 9))
    figure = Figure(QUOTES, (Panel(Axis(HOSTILE, 0, 1), Axis("y", 1e-9, 1, "log"), marks),), HOSTILE)
    text = str(page_drawings.drawn(figure))
    inert(text)
    assert HOSTILE not in text
    assert "<img" not in text
    inert(str(page_drawings.meter(7.0, QUOTES)))
    for row in page_drawings.bars([(HOSTILE, -5.0, -9.0, 3.0), ("b", 8.0, 7.0, 9.0), ("c", 0.0, 0.0, 0.0)]):
        for x, width in re.findall(r'x="([\d.]+)" y="\d" width="([\d.]+)"', str(row["svg"])):
            assert 0 <= float(x) <= float(x) + float(width) <= 1001


def test_a_person_of_another_role_sees_no_other_menu(world: World) -> None:
    assert "Ledger" not in Browser(world, "ana").get("/console/data/visits").text
    assert "Add a dataset" in Browser(world, "olga").get("/console/").text


@pytest.mark.slow
def test_static_files_are_ours_alone(world: World) -> None:
    browser = Browser(world)
    first = browser.get("/console/static/console.js")
    assert first.status_code == 200
    again = browser.get("/console/static/console.js", **{"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    for wrong in ("guard.py", "..%2Fguard.py", "nothing"):
        assert browser.get(f"/console/static/{wrong}").status_code == 404


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"who;ward;age\n1;A;3\n", "separated by semicolons, not by commas"),
        (b"", "must begin with a line that names its columns"),
        (b"\n1,A,3\n", "must begin with a line that names its columns"),
        (b"who\tward\n1\tA\n", "call the file .tsv"),
        (b"wh\xff,ward\n1,A\n", "must be text in UTF-8"),
        (b'"who,ward\n1,A\n', "close every quote in it"),
    ],
)
def test_a_file_that_is_no_table_is_named_by_its_fault(world: World, content: bytes, words: str) -> None:
    (world.folder / "faulty.csv").write_bytes(content)
    shown = Browser(world, "olga").get("/console/add?file=faulty.csv")
    assert shown.status_code == 422
    assert words in shown.text
    assert str(world.folder) not in shown.text  # where the server keeps it is nobody's business


def test_a_library_is_never_quoted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def quoting(*_: object) -> None:
        raise ValueError("could not parse 'ZEBRA-7731'")

    monkeypatch.setattr("deniable.server.console.owner_pages.propose_schema", quoting)
    shown = Browser(world, "olga").get("/console/add?file=visits.csv")
    assert "cannot be read as a table" in shown.text
    assert "ZEBRA" not in shown.text
    (world.folder / "faulty.parquet").write_bytes(b"PAR1 ZEBRA-7731")
    monkeypatch.undo()
    shown = Browser(world, "olga").get("/console/add?file=faulty.parquet")
    assert "is not a Parquet file, or is damaged" in shown.text
    assert "ZEBRA" not in shown.text


HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/console/nothing", {}, 404),
        ("GET", "/nothing", {}, 404),
        ("POST", "/console/nothing", {}, 405),
        ("DELETE", "/console/people", {}, 405),
        ("GET", "/console/static/nothing", {}, 404),
        ("POST", "/console/sign-in", {"content": b"x" * 5_000_000}, 413),
        ("POST", "/console/sign-in", {"content": b"--", "headers": {"content-type": "multipart/form-data"}}, 400),
    ],
)
def test_what_goes_wrong_at_the_door_of_a_page_is_a_page(
    world: World, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    headers = {**more.get("headers", {})}
    found = world.client.request(method, path, content=more.get("content"), headers={**headers, **HTML})
    assert (found.status_code, found.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert f"<h1>{status}</h1>" in found.text
    assert "Back to the start" in found.text
    assert found.headers["content-security-policy"] == POLICY
    inert(found.text)
    program = world.client.request(method, path, content=more.get("content"), headers=headers)
    assert program.status_code == status
    if path != "/console/nothing" or method != "GET":  # that one is a page of its own
        assert program.headers["content-type"] == MEDIA_TYPE


def test_a_fault_of_ours_and_a_rate_are_pages_too_and_the_api_speaks_json(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> None:
        raise RuntimeError("ZEBRA-7731")

    browser = Browser(world, "olga")
    with monkeypatch.context() as patch:
        patch.setattr("deniable.server.console.console_guard.Guard._asked_in", faulty)
        broken = world.client.request("GET", "/console/sign-in", headers=HTML)
        assert (broken.status_code, broken.headers["content-type"]) == (500, "text/html; charset=utf-8")
        assert "The server failed unexpectedly" in broken.text
        assert "ZEBRA" not in broken.text
    with monkeypatch.context() as patch:
        patch.setattr("deniable.server.access.rate_limits.Buckets.take", lambda *_: 7)
        slow = browser.get("/console/", **HTML)
        assert (slow.status_code, slow.headers["retry-after"]) == (429, "7")
        assert "Too many requests" in slow.text
        api = world.client.request("GET", "/v1/me", headers={**HTML, "authorization": f"Bearer {world.tokens['olga']}"})
        assert (api.status_code, api.headers["content-type"]) == (429, MEDIA_TYPE)
    for path in ("/v1/me", "/v1/nothing"):
        assert world.client.request("GET", path, headers=HTML).headers["content-type"] == MEDIA_TYPE
    assert browser.get("/console/people", **HTML).status_code == 403


@pytest.mark.slow
def test_a_version_is_declared_by_a_button(tmp_path: Path) -> None:
    for day, rows in (("monday", 300), ("tuesday", 400)):
        (tmp_path / f"{day}.csv").write_text("\n".join(["who,x", *(f"d{i},{i % 3}" for i in range(rows))]))
    (tmp_path / "others.csv").write_text("\n".join(["name,y", *(f"e{i},{i % 3}" for i in range(400))]))
    world = made(tmp_path)
    with world.client:
        browser = Browser(world, "olga")
        form = {"file": "monday.csv", "name": "days", "kind.0": "text", "kind.1": "text", "keys.1": "0, 1, 2"}
        assert added(browser, **form).status_code == 303
        page = browser.get("/console/data/days/share").text
        assert "Declare the version" in page
        assert "<option>tuesday.csv</option>" in page
        place, count = "/console/data/days/versions", "SELECT COUNT(*) AS n FROM t"
        assert browser.post(place, version="monday").status_code == 303  # the files as they are
        done = browser.post(place, **{"version": "tuesday", "file.0": "tuesday.csv"})
        assert done.status_code == 303
        assert done.headers["location"].endswith("/console/data/days/share")
        page = browser.get("/console/data/days/share").text
        assert '<span class="chip">monday</span> <span class="chip">tuesday</span>' in page
        session = world.curator.open(Person("olga", Role.OWNER), "days").session
        assert session.versions == {"t": "tuesday"}
        assert session.sql(count, epsilon=0.9, payer="olga").receipt.version == "tuesday"
        for wrong, status in (
            ({"version": "monday", "file.0": "tuesday.csv"}, 422),
            ({"version": "wednesday", "file.0": "others.csv"}, 422),
            ({"version": "wednesday", "file.0": "../visits.csv"}, 422),
            ({"version": ""}, 422),
        ):
            assert browser.post(place, **wrong).status_code == status
        assert world.curator.open(Person("olga", Role.OWNER), "days").session.versions == {"t": "tuesday"}
        assert Browser(world, "ana").post(place, version="mine").status_code in {403, 404}
