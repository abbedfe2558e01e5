"""Attacks on who may do what: tokens, roles, things of others, forms, places of files."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter

from deniable.server.problems import CODES
from deniable.server.roles import MATRIX, Role
from tests.queries.hospital import visits
from tests.redteam.cases import case
from tests.redteam.test_budget import NEVER
from tests.server.console.test_console import HOSTILE, QUOTES, Browser, console_routes
from tests.server.datasets.test_open_datasets import others
from tests.server.test_roles import REQUESTS
from tests.server.world import BUDGET, PEOPLE, SCHEMA, World, made

OPEN = {
    "/health",
    "/redeem",
    "/ready",
    "/openapi.json",
    "/",
    "/console",
    "/console/sign-in",
    "/console/invitation",
    "/console/static/{file}",
    "/console/{anything:path}",
}
"""The only paths that need no token. A new one must be added here, by somebody who thought about it."""


def knock(world: World, headers: dict[Any, Any], path: str = "/v1/me", method: str = "GET", **more: Any) -> Any:
    world.client.app._keeper._strangers._levels.clear()
    world.client._web.cookies.clear()
    return world.client.request(method, path, headers=headers, **more)


# -- roles -------------------------------------------------------------------------------------------------------------


def flat(routes: Any) -> list[Any]:
    found: list[Any] = []
    for each in routes:
        inside = getattr(each, "original_router", None)
        found += [each] if inside is None else flat(inside.routes)
    return found


def verbs(app: Any) -> dict[tuple[str, str], str | None]:
    """Every (method, path) of the application, and the verb of the matrix that it asks for, if any."""
    found: dict[tuple[str, str], str | None] = {}
    for route in flat(app.routes):
        verb = getattr(getattr(route, "endpoint", None), "verb", None)
        for each in getattr(getattr(route, "dependant", None), "dependencies", ()):
            verb = getattr(each.call, "verb", verb)
        for method in (route.methods or {"GET"}) - {"HEAD"}:
            found[method, route.path] = verb
    return found


def unguarded(app: Any) -> set[str]:
    """Paths that ask for nothing though they are not open."""
    return {path for (_, path), verb in verbs(app).items() if verb is None} - OPEN


@pytest.mark.slow
@case(
    "A4",
    "every route of the application's own list with every role and without a token",
    "as the matrix says; a route without a rule fails this test",
)
def test_the_matrix_of_every_route(world: World) -> None:
    app = world.client.app._inner._inner
    assert unguarded(app) == set()
    listed = verbs(app)
    assert len(listed) > 45
    for (method, path), verb in listed.items():
        if verb is None or path.startswith("/console"):
            continue
        _, place, body = REQUESTS[method, path]
        assert knock(world, {}, place, method, json=body).status_code == 401, path
        for role in Role:
            headers = {"Authorization": f"Bearer {world.tokens[PEOPLE[role]]}"}
            answer = knock(world, headers, place, method, json=body)
            allowed = role in MATRIX[verb]
            assert (answer.status_code == 403) == (not allowed), (method, path, role)
            assert allowed or answer.json()["code"] == "forbidden"


@pytest.mark.slow
@case("A4b", "the same with a planted route without a rule, or with a wrong rule", "the test detects it")
def test_a_planted_route_is_seen(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        planted = APIRouter()
        planted.add_api_route("/v1/backdoor", lambda: "in", methods=["GET"])
        there.client.app._inner._inner.include_router(planted)
        assert unguarded(there.client.app._inner._inner) == {"/v1/backdoor"}


@case(
    "A4c",
    "an owner or an admin tries to edit, delete or shorten the ledger by every method on its paths",
    "405 or 403: the API has no method for it",
)
def test_nobody_edits_a_ledger(world: World) -> None:
    before = list(world.ledger.entries())
    for who in ("olga", "adam", "ada", "ana"):
        for path in (
            "/v1/ledger/visits",
            "/v1/ledger/visits/accounts",
            "/v1/ledger/visits/status",
            "/v1/ledger/visits/1",
            "/v1/datasets/visits",
        ):
            for method in ("PUT", "PATCH", "DELETE", "POST"):
                assert world.call(who, method, path, {}).status_code in {404, 405}, (who, method, path)
    assert list(world.ledger.entries()) == before


# -- tokens ------------------------------------------------------------------------------------------------------------


def jwt(header: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@case(
    "A2",
    "JWTs with alg none, a swapped algorithm, our public key as HMAC secret; tokens in the query, a cookie, two headers, other schemes",
    "401, the same bytes each time",
)
def test_forged_tokens(world: World) -> None:
    import hmac

    who = {"sub": "olga", "name": "olga", "role": "owner", "exp": 9_999_999_999}
    pem = world.curator.key.public.pem()
    swapped = jwt({"alg": "HS256"}, who)
    token = world.tokens["ana"]
    attacks: list[dict[Any, Any]] = [
        {"Authorization": f"Bearer {jwt({'alg': 'none'}, who)}"}, {"Authorization": f"Bearer {swapped[:-1]}{hmac.new(pem, swapped.encode(), 'sha256').hexdigest()}"},
        {"Authorization": f"Basic {base64.b64encode(b'olga:').decode()}"}, {"Authorization": f"Token {token}"}, {"X-Api-Key": token}, {"Cookie": f"token={token}"},
        {"Authorization": f"Bearer {token[:-1]}"}, {"Authorization": f"Bearer {token}x"}, {"Authorization": f"Bearer {token.upper()}"}, {"Authorization": token},
        {"Authorization": f"Bearer {token} {token}"}, {"Authorization": f"Bearer {token},{token}"}, {"Cookie": f"deniable={token}"}, {"X-Forwarded-User": "olga"},
    ]  # fmt: skip
    found = [knock(world, headers) for headers in attacks]
    found.append(knock(world, {}, f"/v1/me?token={token}&access_token={token}"))
    twice = [
        (b"authorization", f"Bearer {token}".encode()),
        (b"authorization", f"Bearer {world.tokens['olga']}".encode()),
    ]
    found.append(knock(world, twice))  # type: ignore[arg-type]
    assert {(each.status_code, each.content) for each in found} == {(401, found[0].content)}


@pytest.mark.slow
@case(
    "A11",
    "a token after it was revoked, after it expired, after its person was closed; by the API and the console's cookie",
    "401 at once; a cookie is sent to the sign-in",
)
def test_tokens_that_ended(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        for way in ("revoked", "expired", "closed"):
            name = there.newcomer(way, Role.ANALYST)
            if way == "expired":
                issued = there.call(name, "POST", "/v1/tokens", {"days": 2e-5}).json()
                there.tokens[name] = issued["token"]
            browser = Browser(there, name)
            header = {"Authorization": f"Bearer {there.tokens[name]}"}
            assert knock(there, header).status_code == 200
            if way == "revoked":
                there.call("adam", "DELETE", f"/v1/tokens/{there.tokens[name].split('_')[1]}")
            elif way == "closed":
                there.call("adam", "DELETE", f"/v1/people/{name}")
            else:
                time.sleep(2.2)
            assert knock(there, header).status_code == 401, way
            assert browser.get("/console/").headers["location"] == "/console/sign-in?over=1"
            asked = {"dataset": "visits", "sql": NEVER.format(way), "epsilon": 0.1}
            assert knock(there, header, "/v1/questions", "POST", json=asked).status_code == 401


@case(
    "A12",
    "session fixation: cookies that the attacker chose are planted before the sign-in",
    "replaced by the person's own; a planted form secret from elsewhere is refused",
)
def test_session_fixation(world: World) -> None:
    attacker = Browser(world)
    attacker.get("/console/sign-in")
    victim = Browser(world)
    victim.cookies = {"deniable": "attacker-chosen", **attacker.cookies}
    victim.csrf = attacker.csrf
    cross = victim.post("/console/sign-in", token=world.tokens["ada"], headers={"sec-fetch-site": "cross-site"})
    assert cross.status_code == 403
    assert (
        victim.post("/console/sign-in", token=world.tokens["ada"], headers={"sec-fetch-site": "same-site"}).status_code
        == 403
    )
    done = victim.post("/console/sign-in", token=world.tokens["olga"])
    assert done.status_code == 303
    said = done.headers.get_list("set-cookie")
    assert any(each.startswith(f"deniable={world.tokens['olga']}") for each in said)
    assert any(each.startswith('deniable-visitor=""') for each in said)
    assert attacker.csrf != Browser(world, "olga").csrf


@case(
    "A13",
    "paths in other spellings: //v1, /V1, /v1/../v1, %2e, ;x, trailing slashes, another method by header",
    "no other spelling gets further than the plain one",
)
def test_spellings_of_paths(world: World) -> None:
    for path in ("//v1/people", "/V1/people", "/v1/../v1/people", "/v1/%2e%2e/v1/people", "/v1/people;x", "/v1/people/", "/%76%31/people", "/v1//people",
                 "/v1/people%00", "/metrics/", "/METRICS", "/v1/./people", "/console/../v1/people", "/console/%2e%2e/v1/people"):  # fmt: skip
        for headers in ({}, {"Authorization": f"Bearer {world.tokens['ana']}"}):
            answer = knock(world, headers, path)
            assert answer.status_code in {301, 307, 308, 400, 401, 403, 404, 405}, (path, answer.status_code)
            assert "olga" not in answer.text
    spoofed = {
        "Authorization": f"Bearer {world.tokens['ana']}",
        "X-HTTP-Method-Override": "DELETE",
        "X-Original-URL": "/v1/people",
        "X-Rewrite-URL": "/v1/people",
    }
    assert knock(world, spoofed, "/v1/me").json() == {"name": "ana", "role": "analyst"}


# -- things of others --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@case(
    "A3",
    "ids of others: datasets, releases, labels, ledgers, grants, tokens, people, and their console pages",
    "the same response, byte for byte, as for ids that do not exist",
)
def test_things_of_others(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        release = there.ask(NEVER.format("mine"), epsilon=0.1).json()["release"]
        number = release.rpartition(":")[2]
        token = there.tokens["ana"].split("_")[1]
        for role in (Role.OWNER, Role.ANALYST):
            name = there.newcomer(f"other {role}", role)
            for method, path, body in (
                ("GET", "/v1/datasets/{}", None), ("GET", "/v1/datasets/{}/dummy", None), ("GET", "/v1/datasets/{}/grants", None),
                ("GET", "/v1/datasets/{}/releases", None), ("GET", f"/v1/labels/{{}}:{number}", None), ("GET", "/v1/ledger/{}", None),
                ("GET", "/v1/ledger/{}/accounts", None), ("GET", "/v1/ledger/{}/status", None), ("POST", "/v1/datasets/{}/grants", {"analyst": "ana"}),
                ("DELETE", "/v1/datasets/{}/grants/ana", None), ("POST", "/v1/datasets/{}/adjustments", {"budget": {"epsilon": 9.0}, "reason": "x"}),
                ("POST", "/v1/datasets/{}/dummy:ask", {"sql": NEVER.format("x"), "epsilon": 0.1}), ("GET", "/console/data/{}", None),
                ("GET", "/console/data/{}/ledger", None), ("GET", "/console/data/{}/ledger.jsonl", None), ("GET", "/console/data/{}/share", None),
                ("GET", f"/console/labels/{{}}:{number}", None),
            ):  # fmt: skip
                cookie = {"Cookie": f"deniable={there.tokens[name]}", "Authorization": f"Bearer {there.tokens[name]}"}
                theirs, none = (
                    knock(there, cookie, path.format(each), method, json=body) for each in ("visits", "nothing")
                )
                assert theirs.status_code in {403, 404}, (role, method, path, theirs.text)
                assert theirs.status_code == none.status_code
                assert theirs.text.replace("visits", "nothing") == none.text
            for method, path in (
                ("DELETE", f"/v1/tokens/{token}"),
                ("GET", "/v1/people/ana/tokens"),
                ("DELETE", "/v1/people/ana"),
            ):
                assert there.call(name, method, path).status_code == 403
        assert there.call("ana", "GET", "/v1/me").status_code == 200
        assert there.call("adam", "GET", f"/v1/labels/{release}").status_code == 403


@pytest.mark.slow
@case(
    "A14",
    "another owner registers the same file, or half of its people, to get at its ledger: raise its limit, read its questions",
    "refused; the ledger stays with its owner",
)
def test_another_owner_cannot_join_a_family(tmp_path: Path) -> None:
    there = made(tmp_path)
    with there.client:
        otto = there.newcomer("otto", Role.OWNER)
        before = list(there.ledger.entries())
        visits()[lambda table: table["patient_id"] < 300].to_csv(tmp_path / "half.csv", index=False)
        for file, budget in (
            ("visits.csv", None),
            ("visits.csv", BUDGET),
            ("half.csv", None),
            ("half.csv", {"epsilon": 7.0}),
        ):
            body = {
                "name": "mine",
                "sources": {"mine": file},
                "schema": SCHEMA.replace("visits:", "mine:"),
                **({} if budget is None else {"budget": budget}),
            }
            answer = there.call(otto, "POST", "/v1/datasets", body)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
        assert there.call(otto, "POST", "/v1/datasets", {**body, "family": "visits"}).status_code == 404
        assert list(there.ledger.entries()) == before
        others(7).to_csv(tmp_path / "others.csv", index=False)
        own = {"name": "own", "sources": {"visits": "others.csv"}, "schema": SCHEMA, "budget": BUDGET}
        assert there.call(otto, "POST", "/v1/datasets", own).status_code == 201


# -- forms and names ---------------------------------------------------------------------------------------------------


@case(
    "A5",
    "every form of the console without its secret, with another person's secret, and from another site",
    "403, and nothing changed",
)
def test_forged_forms(world: World) -> None:
    ledger, people = list(world.ledger.entries()), world.curator.reception.people()
    posts = [route for route in console_routes(world) if "POST" in route.methods and route.path != "/console/sign-out"]
    assert len(posts) >= 8
    fields = {"sql": NEVER.format("forged"), "way": "epsilon", "amount": "0.1", "analyst": "ana", "limit": "9", "window": "", "reason": "x", "name": "mallory",
              "role": "admin", "person": "ana", "id": world.tokens["ana"].split("_")[1], "file": "visits.csv"}  # fmt: skip
    strange = Browser(world, "ada").csrf
    for route in posts:
        [who] = [PEOPLE[role] for role in Role if role in MATRIX[route.endpoint.verb]][:1]
        path = route.path.replace("{name}", "visits")
        browser = Browser(world, who)
        own = browser.csrf
        for secret, headers in (
            ("", {}),
            ("0" * 64, {}),
            (strange, {}),
            (own, {"sec-fetch-site": "cross-site"}),
            (own, {"sec-fetch-site": "same-site"}),
        ):
            browser.csrf = secret
            done = browser.post(path, headers=headers, **fields)
            assert done.status_code == 403, (path, secret, done.status_code)
    assert list(world.ledger.entries()) == ledger
    assert world.curator.reception.people() == people


@case(
    "A5b",
    "CSV formulas: names that begin with =, +, -, @ or a tab, and exports that a spreadsheet opens",
    "no such name; exports are JSON, never CSV",
)
def test_formulas(world: World) -> None:
    for name in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "=HYPERLINK()"):
        assert world.call("adam", "POST", "/v1/people", {"name": name, "role": "analyst"}).status_code == 422
        body = {"name": name, "sources": {"visits": "visits.csv"}, "schema": SCHEMA, "budget": BUDGET}
        assert world.call("olga", "POST", "/v1/datasets", body).status_code == 422
    answer = world.ask('SELECT COUNT(*) AS "=1+1" FROM visits', epsilon=0.1).json()
    for path in ("/v1/ledger/visits", "/v1/datasets/visits/releases", f"/v1/labels/{answer['release']}"):
        response = world.call("ada", "GET", path)
        assert "csv" not in response.headers["content-type"]
        for line in response.text.splitlines():
            json.loads(line)
    content = {kind for path in world.client.app._inner._inner.openapi()["paths"].values() for verb in path.values() for said in verb["responses"].values()
               for kind in said.get("content", {})}  # fmt: skip
    assert not [kind for kind in content if "csv" in kind or "excel" in kind]


@case(
    "A5c",
    "names that are script, markup or a template: people, datasets, families, reasons, keys, dummy questions, over the API",
    "422, or inert wherever they are shown",
)
def test_names_that_are_script(world: World) -> None:
    for text in (
        HOSTILE,
        QUOTES,
        "{{7*7}}",
        "${7*7}",
        "{%x%}",
        "<svg/onload=alert(1)>",
        "javascript:alert(1)",
        "x\u202ey",
        "a\nb",
    ):
        assert world.call("adam", "POST", "/v1/people", {"name": text, "role": "analyst"}).status_code == 422
        assert (
            world.call(
                "olga", "POST", "/v1/datasets", {"name": text, "sources": {"v": "visits.csv"}, "schema": SCHEMA}
            ).status_code
            == 422
        )
        adjusted = world.call(
            "olga", "POST", "/v1/datasets/visits/adjustments", {"budget": {"epsilon": 100.0}, "reason": text}
        )
        assert adjusted.status_code in {201, 422}
        quoted = text.replace('"', '""').replace("'", "''")
        world.ask(f"SELECT COUNT(*) AS \"{quoted}\" FROM visits WHERE town = '{quoted}'", epsilon=0.01)
    for who, path in (
        ("ada", "/console/data/visits/ledger"),
        ("ada", "/console/data/visits/releases"),
        ("ana", "/console/data/visits"),
        ("adam", "/console/people"),
    ):
        page = Browser(world, who).get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<svg/onload" not in page.text
        assert "<img src=x" not in page.text
        assert 'href="javascript:' not in page.text


# -- places ------------------------------------------------------------------------------------------------------------


@case(
    "A6",
    "sources that are addresses, other folders, links, devices, pipes, patterns, the server's own state",
    "the same 422 for all; no connection is made, nothing outside is read",
)
def test_sources_elsewhere(world: World, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        visits(20, 40).to_csv(tmp_path / "secret.csv", index=False)
        for name, target in (
            ("link.csv", tmp_path / "secret.csv"),
            ("zero.csv", Path("/dev/zero")),
            ("folder", tmp_path),
            ("loop.csv", world.folder / "loop.csv"),
        ):
            if not (world.folder / name).is_symlink():
                os.symlink(target, world.folder / name)
        if not (world.folder / "pipe.csv").exists():
            os.mkfifo(world.folder / "pipe.csv")
        said = set()
        for source in (f"http://127.0.0.1:{port}/x.csv", f"HTTP://127.0.0.1:{port}/x.csv", f"//127.0.0.1:{port}/x.csv", "file:///etc/passwd", "s3://b/x.csv",
                       "gs://b/x.parquet", "/etc/passwd", "/proc/self/environ", "../../../../etc/passwd", "state/server.key", "state/catalogue.sqlite",
                       "link.csv", "zero.csv", "folder/secret.csv", "loop.csv", "pipe.csv", "*.csv", "visits.csv\0.png", "~/x.csv", "$HOME/x.csv",
                       "%2e%2e/secret.csv", "..\\secret.csv", "visits.csv?x", "visits.csv#x", str(tmp_path / "secret.csv"), "/dev/stdin", ".", "x" * 5000):  # fmt: skip
            body = {"name": "stolen", "sources": {"visits": source}, "schema": SCHEMA, "budget": BUDGET}
            answer = world.call("olga", "POST", "/v1/datasets", body)
            said.add((answer.status_code, answer.text))
        assert len(said) == 1
        assert next(iter(said))[0] == 422
        with pytest.raises(TimeoutError):
            listener.accept()
        (world.folder / "pipe.csv").unlink()


@case(
    "A6b",
    "after registering, the file is swapped for a link to another one, and the server restarted",
    "the dataset is not opened",
)
def test_a_file_swapped_for_a_link(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    there = made(tmp_path / "w")
    with there.client:
        assert there.ask(NEVER.format(1), epsilon=0.1).status_code == 200
        others(9).to_csv(tmp_path / "secret.csv", index=False)
        (tmp_path / "w" / "visits.csv").unlink()
        os.symlink(tmp_path / "secret.csv", tmp_path / "w" / "visits.csv")
        there.curator.datasets.forget("visits")  # as after a restart
        before = there.call("ana", "GET", "/v1/datasets/visits")
        asked = there.ask(NEVER.format(2), epsilon=0.1)
        assert (before.status_code, asked.status_code, asked.json()["code"]) == (503, 503, "dataset_unavailable")


@pytest.mark.slow
@case(
    "A7",
    "schemas that are pickles, YAML objects, a bomb of aliases, a path, 100,000 columns",
    "422, nothing is run or read",
)
def test_schemas_that_run(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{n}: &{n} [" + ",".join([f"*{p}"] * 9) + "]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for schema in (
        f"!!python/object/apply:os.system ['touch {mark}']", f"!!python/object/new:subprocess.Popen [[touch, {mark}]]", bomb, "tables: *nothing",
        "/etc/passwd", "schema.yaml", "cos\nsystem\n(S'true'\ntR.", "version: 99\ntables: {}", {"tables": {"visits": {"columns": {str(i): {} for i in range(3000)}}}},
        {"tables": {"__proto__": {}}}, "tables: {visits: {person: '${HOME}', rows: 1, columns: {}}}", "\ufeff\x00", "[" * 5000,
    ):  # fmt: skip
        began = time.process_time()
        answer = world.call(
            "olga",
            "POST",
            "/v1/datasets",
            {"name": "run", "sources": {"visits": "visits.csv"}, "schema": schema, "budget": BUDGET},
        )
        assert answer.status_code == 422, answer.text[:300]
        assert answer.json()["code"] in CODES
        assert len(answer.content) < 20_000
        assert "root:" not in answer.text
        assert time.process_time() - began < 20
    assert not mark.exists()
