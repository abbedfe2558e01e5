"""The console over HTTP: who gets in, what forms need, which policy pages carry, and that every name is escaped."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from deniable.queries.answer.remaining_budget import Remaining
from deniable.server.catalogue.catalogue import Person
from deniable.server.console.analyst_pages import answered
from deniable.server.console.budget_words import odds
from deniable.server.console.console_guard import POLICY
from deniable.server.privacy_labels import as_svg, lines
from deniable.server.request_bodies import BudgetBody
from deniable.server.roles import MATRIX, Role
from tests.server.browsing import FORM, HOSTILE, QUOTES, Browser, inert
from tests.server.world import BUDGET, PEOPLE, World, made

# -- who gets in -------------------------------------------------------------------------------------------------------


def test_the_front_door_leads_to_the_sign_in(world: World) -> None:
    browser = Browser(world)
    assert browser.get("/").headers["location"] == "/console/"
    assert browser.get("/console/").headers["location"] == "/console/sign-in"


def test_the_cookie_is_for_no_script_and_no_other_site(world: World) -> None:
    browser = Browser(world)
    browser.get("/console/sign-in")
    done = browser.post("/console/sign-in", token=f"  {world.tokens['ana']}\n")
    [said] = [each for each in done.headers.get_list("set-cookie") if each.startswith("deniable=")]
    assert "HttpOnly" in said
    assert "SameSite=strict" in said
    assert "Max-Age" not in said
    assert "expires" not in said.lower()


def test_over_https_the_cookie_is_secure_and_bound_to_the_host(tmp_path: Path) -> None:
    world = made(tmp_path, https=True)
    with world.client:
        browser = Browser(world)
        browser.get("/console/sign-in")
        done = browser.post("/console/sign-in", token=world.tokens["ana"])
        [said] = [each for each in done.headers.get_list("set-cookie") if "__Host-deniable=" in each]
        assert "Secure" in said


def test_a_wrong_token_is_not_let_in_and_not_repeated(world: World) -> None:
    browser = Browser(world)
    browser.get("/console/sign-in")
    done = browser.post("/console/sign-in", token="dn_0123456789abcdef_" + "x" * 43)
    assert done.status_code == 401
    assert "x" * 43 not in done.text
    assert "deniable" not in browser.cookies


def test_a_revoked_token_is_out_at_once(world: World) -> None:
    world.newcomer("rita", Role.AUDITOR)
    browser = Browser(world, "rita")
    assert browser.get("/console/").status_code == 200
    world.curator.catalogue.revoke_token(world.tokens["rita"].split("_")[1])
    world.curator.gate.forget()
    assert browser.get("/console/").headers["location"] == "/console/sign-in?over=1"
    assert "the token has expired or was revoked" in browser.get("/console/sign-in?over=1").text
    assert "revoked" not in browser.get("/console/sign-in").text


def test_signing_out_takes_the_cookie_away(world: World) -> None:
    browser = Browser(world, "ana")
    done = browser.post("/console/sign-out")
    assert any(each.startswith('deniable=""') for each in done.headers.get_list("set-cookie"))


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("csrf", ["", "0" * 64, "of somebody else"])
def test_a_form_without_its_secret_does_nothing(world: World, csrf: str) -> None:
    browser, before = Browser(world, "ana"), world.ledger.charged
    other = Browser(world, "olga").csrf
    said = other if csrf == "of somebody else" else csrf
    assert browser.post("/console/data/visits/ask", **{**FORM, "csrf": said}).status_code == 403
    assert world.ledger.charged == before


def test_a_form_from_another_site_does_nothing(world: World) -> None:
    browser, before = Browser(world, "ana"), world.ledger.charged
    done = browser.post("/console/data/visits/ask", headers={"sec-fetch-site": "cross-site"}, **FORM)
    assert done.status_code == 403
    assert world.ledger.charged == before
    stranger = Browser(world)
    stranger.get("/console/sign-in")
    stranger.csrf = ""
    assert stranger.post("/console/sign-in", token=world.tokens["ana"]).status_code == 403


def console_routes(world: World) -> list[Any]:
    flat: list[Any] = []
    for each in world.client.app._inner._inner.routes:
        inside = getattr(each, "original_router", None)
        flat += [each] if inside is None else inside.routes
    return [each for each in flat if hasattr(getattr(each, "endpoint", None), "verb")]


@pytest.mark.slow
def test_every_page_keeps_to_the_matrix(world: World) -> None:
    """Each page with each role: those who may not are told so before anything else happens."""
    browsers = {role: Browser(world, PEOPLE[role]) for role in Role}
    routes = console_routes(world)
    assert len(routes) >= 20
    for route in routes:
        path = route.path.replace("{name}", "visits").replace("{release}", "visits:999")
        if path == "/console/sign-out":
            continue
        for role, browser in browsers.items():
            done = browser.get(path) if "GET" in route.methods else browser.post(path)
            refused = done.status_code == 403 and f"may not {route.endpoint.verb}" in done.text
            assert refused == (role not in MATRIX[route.endpoint.verb]), (path, role, done.status_code)
            assert done.status_code < 500
    for route in routes:  # and nobody at all
        path = route.path.replace("{name}", "visits").replace("{release}", "visits:999")
        stranger = Browser(world)
        done = stranger.get(path) if "GET" in route.methods else stranger.post(path)
        assert done.headers["location"] == "/console/sign-in"


@pytest.mark.parametrize("amount", ["-1", "0", "nan", "inf", "1e-400", "1e999", "", "true", "0x1"])
def test_a_cost_that_means_nothing_is_said_and_not_charged(world: World, amount: str) -> None:
    browser, before = Browser(world, "ana"), world.ledger.charged
    for verb in ("ask", "dummy", "refine"):
        done = browser.post(f"/console/data/visits/{verb}", **{**FORM, "amount": amount})
        assert done.status_code == 422
        assert "must be a positive number" in done.text
    assert "must be a positive number" in browser.post("/console/data/visits/price", **{**FORM, "amount": amount}).text
    assert world.ledger.charged == before


# -- asking ------------------------------------------------------------------------------------------------------------


def test_asking_paying_and_asking_again(world: World) -> None:
    browser = Browser(world, "ana")
    form = {**FORM, "sql": "SELECT sex, COUNT(*) AS n\r\nFROM visits GROUP BY sex", "amount": "0.05"}
    before = world.ledger.charged
    price = browser.post("/console/data/visits/price", headers={"x-part": "price"}, **form)
    assert "more questions like this" in price.text
    assert "Noise interval" in price.text
    assert world.ledger.charged == before
    dummy = browser.post("/console/data/visits/dummy", **form)
    assert "free: made-up rows" in dummy.text
    assert world.ledger.charged == before

    first = browser.post("/console/data/visits/ask", key="k-1", **form)
    assert "paid ε 0.05" in first.text
    paid = world.ledger.charged
    assert paid != before
    again = browser.post("/console/data/visits/ask", key="k-1", **form)  # the same request: the same bytes
    assert "paid ε 0.05" in again.text
    asked = browser.post("/console/data/visits/ask", key="k-2", **form)  # the same question
    assert "0 spent: asked before, the same answer" in asked.text
    assert world.ledger.charged == paid
    cells = re.findall(r'<td class="number">(.*?)</td>', first.text)
    assert cells
    assert cells == re.findall(r'<td class="number">(.*?)</td>', asked.text)

    refined = browser.post("/console/data/visits/refine", key="k-3", **form)
    assert "Refined answer" in refined.text
    assert world.ledger.charged != paid
    for page in (price, dummy, first, asked, refined):
        inert(page.text)


def test_keys_are_told_as_they_are_and_numbers_that_cannot_be_told_say_why(world: World) -> None:
    record = world.ask("SELECT stay, AVG(age) AS a FROM visits WHERE stay IN (1, 2) GROUP BY stay", epsilon=1.0).json()
    record["rows"] = [[None, 40.0], [2024, None]]
    record["intervals"] = [[None, [30.0, 50.0]], [None, [0.0, 100.0]]]
    record |= {"columns": ["stay", "a"], "kinds": ["integer", "real"], "measured": ["a"], "notes": ["a word"]}
    shown = answered(record)
    assert [[cell for cell, _ in row] for row in shown["rows"]] == [["NULL", "40 ± 10"], ["2024", "–"]]
    assert [bar["name"] for bar in shown["charts"][0]["bars"]] == ["NULL"]
    assert shown["columns"] == [("stay", False), ("a", True)]
    assert "means no value" in shown["notes"][0]
    assert shown["notes"][1:] == ["a word"]


def test_a_moment_is_shown_with_a_space_and_a_text_as_it_is(world: World) -> None:
    record = world.ask("SELECT stay, COUNT(*) AS n FROM visits WHERE stay IN (1, 2) GROUP BY stay", epsilon=1.0).json()
    record["rows"], record["intervals"] = [["2024-01-31T12:00:00", "ATE", 40]], [[None, None, [30.0, 50.0]]]
    record |= {"columns": ["at", "what", "n"], "kinds": ["timestamp", "text", "integer"], "measured": ["n"]}
    shown = answered(record)
    assert [cell for cell, _ in shown["rows"][0]] == ["2024-01-31 12:00:00", "ATE", "40 ± 10"]
    assert [bar["name"] for bar in shown["charts"][0]["bars"]] == ["2024-01-31 12:00:00 · ATE"]


def test_notes_stand_below_the_table(world: World) -> None:
    form = {**FORM, "sql": "SELECT town, COUNT(*) AS n FROM visits GROUP BY town", "amount": "0.5"}
    done = Browser(world, "ana").post("/console/data/visits/ask", **form)
    assert "keys are not public" in done.text.partition("</table>")[2]
    assert "at most 3 rows of each person were read" in done.text


def test_what_was_asked_before_leads_to_its_label_or_says_whose_it_is(world: World) -> None:
    form = {**FORM, "sql": "SELECT COUNT(*) AS n FROM visits WHERE age < 33", "amount": "0.03"}
    ana = Browser(world, "ana")
    first = ana.post("/console/data/visits/ask", key="l-1", **form)
    again = ana.post("/console/data/visits/ask", key="l-2", **form)
    [link] = re.findall(r'href="(/console/labels/[^"]+)"', first.text)
    assert re.findall(r'href="(/console/labels/[^"]+)"', again.text) == [link]
    assert ana.get(link).status_code == 200
    world.newcomer("nora", Role.ANALYST)
    world.curator.grant(Person("olga", Role.OWNER), "visits", "nora", None, None)
    other = Browser(world, "nora").post("/console/data/visits/ask", key="l-3", **form)
    assert "0 spent: asked before" in other.text
    assert "with the person who asked it first" in other.text
    assert "/console/labels/" not in other.text
    price = ana.post("/console/data/visits/price", headers={"x-part": "price"}, **form)
    assert "0 if it was asked before" in price.text


def test_a_refusal_names_the_rule_and_a_rewrite(world: World) -> None:
    browser, before = Browser(world, "ana"), world.ledger.charged
    done = browser.post("/console/data/visits/ask", **{**FORM, "sql": "SELECT age FROM visits"})
    assert done.status_code == 422
    assert "The rule:" in done.text
    assert "Instead:" in done.text
    assert world.ledger.charged == before


def test_a_problem_without_details_is_shown_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(world, "ana")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the machine")

    for verb in ("price", "ask", "refine"):
        monkeypatch.setattr(type(world.curator), verb, fail)
        for headers in ({}, {"x-part": "price"}):
            done = browser.post(f"/console/data/visits/{verb}", headers=headers, **FORM)
            assert "The server failed unexpectedly" in done.text
            assert "secret" not in done.text


def test_a_page_that_fails_is_a_page_and_its_place_is_written_down(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(world, "ana")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(type(world.curator), "described", fail)
    done = browser.get("/console/data/visits")
    assert done.status_code == 500
    assert done.headers["content-type"].startswith("text/html")
    assert done.headers["content-security-policy"] == POLICY
    assert "The server failed unexpectedly" in done.text
    assert "Sign out" in done.text
    assert "secret" not in done.text + caplog.text
    assert "unexpected RuntimeError in tests.server.console.test_console.fail:" in caplog.text


def test_an_address_that_is_no_page_and_a_form_that_is_none_are_told_on_a_page(world: World) -> None:
    browser = Browser(world, "ana")
    nowhere = browser.get("/console/nowhere/at/all")
    assert nowhere.status_code == 404
    broken = {"content-type": "multipart/form-data; boundary=x", "cookie": f"deniable={browser.cookies['deniable']}"}
    form = world.client.request("POST", "/console/data/visits/ask", content=b"--x\r\nno form", headers=broken)
    assert form.status_code == 400
    for page in (nowhere, form):
        assert page.headers["content-type"].startswith("text/html")
        assert "Back to the start" in page.text


def test_what_is_too_much_says_how_much_is_left(world: World) -> None:
    done = Browser(world, "ana").post("/console/data/visits/ask", **{**FORM, "amount": "1000"})
    assert done.status_code == 402
    assert "Not enough budget is left" in done.text


def test_a_dataset_of_somebody_else_is_no_dataset(world: World) -> None:
    world.newcomer("otto", Role.OWNER)
    browser = Browser(world, "otto")
    for end in ("", "/share", "/ledger", "/releases", "/ledger.jsonl"):
        there, nowhere = browser.get(f"/console/data/visits{end}"), browser.get(f"/console/data/nothing{end}")
        assert there.status_code == nowhere.status_code == 404
        assert there.text.replace("visits", "") == nowhere.text.replace("nothing", "")


# -- owning ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hostile_names_stay_names(hostile: World) -> None:
    """Column names, categories, aliases, SQL and reasons, on every page that shows them."""
    browser = Browser(hostile, "ana")
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    alias = '"' + QUOTES.replace('"', '""') + '"'
    form = {"sql": f"SELECT {quoted}, COUNT(*) AS {alias} FROM t GROUP BY {quoted}", "way": "epsilon", "amount": "0.3"}
    pages = [browser.get("/console/data/hostile"), browser.post("/console/data/hostile/dummy", **form)]
    pages.append(browser.post("/console/data/hostile/price", headers={"x-part": "price"}, **form))
    answer = browser.post("/console/data/hostile/ask", key=HOSTILE, **form)
    assert answer.status_code == 200, answer.text
    assert "Receipt" in answer.text
    assert HOSTILE in unescape(answer.text)
    pages += [answer, browser.post("/console/data/hostile/refine", **form)]
    pages.append(browser.post("/console/data/hostile/ask", **{**form, "sql": f"SELECT {HOSTILE} {QUOTES}"}))
    pages.append(browser.post("/console/data/hostile/ask", **{**form, "way": HOSTILE, "amount": QUOTES}))
    pages.append(browser.get("/console/data/hostile/releases"))
    release = re.findall(r'href="(/console/labels/[^"]+)"', pages[-1].text)
    assert release
    pages += [
        browser.get(release[0]),
        browser.get(f"/console/data/{QUOTES}"),
        browser.get(f"/console/labels/{QUOTES}:1"),
    ]
    owner = Browser(hostile, "olga")
    adjusted = owner.post("/console/data/hostile/adjust", limit="1.5", reason=f"{HOSTILE}{QUOTES}")
    assert adjusted.status_code == 303
    pages += [owner.get("/console/data/hostile/share"), owner.post("/console/add", file=HOSTILE)]
    pages.append(Browser(hostile, "ada").get("/console/data/hostile/ledger"))
    assert HOSTILE in unescape(pages[-1].text)
    for page in pages:
        assert HOSTILE not in page.text
        assert "<img src=x" not in page.text
        inert(page.text)
        assert page.headers["content-security-policy"] == POLICY


@pytest.mark.slow
def test_even_a_dataset_or_a_person_of_a_hostile_name_is_only_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The border and the catalogue refuse such names; pages do not rely on it."""
    monkeypatch.setattr("deniable.server.catalogue.people.checked_name", lambda name: name)
    world = made(tmp_path)
    for number, name in enumerate((QUOTES, HOSTILE)):
        table = f"{name} t"
        columns = {"columns": {name: {"kind": "text", "keys": [name, "b"]}}, "neighbours": "add/remove"}
        (tmp_path / f"x{number}.csv").write_text(
            "\n".join(['"' + name.replace('"', '""') + '"', *["b"] * (9 + number)])
        )
        schema = {"tables": {table: columns}}
        owner = Person("olga", Role.OWNER)
        budget = BudgetBody(epsilon=1.0)
        world.curator.register(owner, name, {table: f"x{number}.csv"}, schema, budget)
        world.curator.catalogue.add_person(name, Role.ANALYST)
        world.curator.grant(owner, name, name, None, None)
    with world.client:
        olga, ada, adam = (Browser(world, who) for who in ("olga", "ada", "adam"))
        place = (
            httpx.URL("http://x").join(f"/console/data/{httpx.URL(path='/' + QUOTES).raw_path.decode()[1:]}").raw_path
        )
        at = place.decode()
        pages = [olga.get("/console/"), olga.get(at), olga.get(f"{at}/share"), olga.get(f"{at}/ledger")]
        form = {
            "sql": f'SELECT COUNT(*) AS n FROM "{QUOTES.replace(chr(34), chr(34) * 2)} t"',
            "way": "epsilon",
            "amount": "0.1",
        }
        pages += [olga.post(f"{at}/ask", **form), olga.get(f"{at}/releases")]
        pages += [ada.get("/console/"), ada.get(f"{at}/ledger"), adam.get("/console/people")]
        for page in pages:
            assert page.status_code in {200, 422}, page.text  # 422: the border, for a question to such a dataset
            assert QUOTES in unescape(page.text)
            assert QUOTES not in page.text
            assert HOSTILE not in page.text
            inert(page.text)


def test_labels_come_in_every_form_and_run_nothing(hostile: World) -> None:
    asked = {**FORM, "sql": "SELECT COUNT(*) AS n FROM t"}
    assert Browser(hostile, "ana").post("/console/data/hostile/ask", **asked).status_code == 200
    browser = Browser(hostile, "ada")
    label = re.findall(r'href="(/console/labels/[^"]+)"', browser.get("/console/data/hostile/releases").text)[0]
    for form, kind in (("json", "application/json"), ("html", "text/html"), ("svg", "image/svg+xml")):
        done = browser.get(f"{label}?form={form}")
        assert done.headers["content-type"].startswith(kind)
        if form != "json":
            assert HOSTILE not in done.text
            assert "sandbox" in done.headers["content-security-policy"]


@pytest.mark.slow
def test_the_picture_of_a_label_says_everything_and_stays_in_its_frame(world: World) -> None:
    asked = world.ask("SELECT SUM(cost) AS c FROM visits WHERE ward IN ('A', 'B') AND sex = 'f'", epsilon=0.5).json()
    label = world.curator.label(Person("ana", Role.ANALYST), asked["release"])
    label["release"] = f"{'W' * 100}:7"
    label["question"] += " -- " + "漢字" * 60 + "\x01"
    picture = ElementTree.fromstring(as_svg(label))
    texts = [each for each in picture.iter("{http://www.w3.org/2000/svg}text") if each.get("x") == "150"]
    assert all(len(each.text or "") <= 76 for each in texts)
    said = "".join("".join(each.itertext()) for each in texts).replace(" ", "")
    for _, words in lines(label):
        assert words.replace(" ", "").replace("\x01", "") in said, "nothing is cut"
    assert max(float(each.get("y", 0)) for each in texts) < float(picture.get("viewBox", "").split()[3])
    [draw] = label["draws"]
    [noise] = draw["mechanisms"]
    assert label["merged"] is None
    step = 2.0 ** int(noise["step"].removeprefix("2^"))
    assert noise["units"]["sensitivity"] >= 2000  # the cost of a visit, between 0 and 2000
    written_down = re.search(r"sigma=([\d.e+]+)", noise["noise"])
    assert written_down is not None
    assert noise["units"]["sigma"] == pytest.approx(float(written_down[1]) * step)
    assert "in its own units: sensitivity" in dict(lines(label))["Mechanism"]


def test_what_is_left_is_said_by_one_yardstick_everywhere(world: World) -> None:
    """The session, the API, the client and three pages: the same distance and the same number."""
    session = world.curator.open(Person("olga", Role.OWNER), "visits").session
    said = session.remaining.said()
    assert re.fullmatch(r"about [\d,]+ more counts at ±[\d,]+", said)
    assert world.call("ana", "GET", "/v1/datasets/visits").json()["left_in_words"].endswith(f": {said}")
    assert str(session.remaining).endswith(f": {said}")
    number, _, rest = said.partition(" more ")
    browser = Browser(world, "olga")
    for path in ("/console/", "/console/data/visits", "/console/data/visits/share"):
        shown = re.sub(r"<[^>]+>", "", browser.get(path).text)
        assert re.search(rf"{number}\s+more\s+{re.escape(rest)}", shown), path
    whole = Remaining(session.budget, session.budget.limit, session.ledger.unit).yardstick()
    found = odds(BudgetBody(**BUDGET), session.ledger.unit.rows)
    assert (found["within"], found["counts"]) == whole


def test_a_page_shows_the_first_rows_of_a_long_answer(world: World) -> None:
    """A page of 18,000 rows took seconds to draw, during which nobody was answered."""
    sql = "SELECT age, ward, stay, COUNT(*) AS n FROM visits WHERE cost < 99 GROUP BY age, ward, stay"
    answer = Browser(world, "ana").post("/console/data/visits/ask", sql=sql, way="epsilon", amount="0.001")
    assert answer.status_code == 200
    rows = 101 * 3 * 62  # public groups, whoever is there
    assert f"the first 1,250 of {rows:,} rows" in answer.text
    assert answer.text.count("<tr>") < 1300
