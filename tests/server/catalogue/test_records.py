"""What auditors and monitors get: exports that verify offline, labels that cannot be edited, counters without data."""

from __future__ import annotations

import json
import math
import re
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import DeniableError, UnreadableRecord
from deniable.ledger import verify_export
from deniable.ledger.keys import SigningKey, read_public
from deniable.server import problems
from deniable.server.privacy_labels import check_label, lines, signed
from deniable.server.problems import CODES, Problem, problem_of
from tests.server.world import WARDS, World
from tests.wording import worded


def test_an_export_verifies_offline_with_the_servers_key(world: World, tmp_path: Path) -> None:
    world.ask(epsilon=0.5)
    path, pem = tmp_path / "ledger.jsonl", tmp_path / "server.pub"
    path.write_bytes(world.call("ada", "GET", "/v1/ledger/visits").content)
    pem.write_bytes(world.call("ada", "GET", "/v1/key").content)
    found = verify_export(path, key=read_public(pem))
    assert found.spent == world.ledger.charged
    assert found.checkpoints
    lines = path.read_bytes().splitlines(keepends=True)
    for bad in (lines[:-2] + lines[-1:], [*lines[:2], *lines[3:]], [lines[0], lines[2], lines[1], *lines[3:]]):
        path.write_bytes(b"".join(bad))
        with pytest.raises(DeniableError):
            verify_export(path, key=read_public(pem))


def test_exports_at_the_same_time_leave_the_newest_checkpoint(world: World) -> None:
    """Each writes a checkpoint to the one file of the family, whole, and none an older one over a newer one."""

    def export() -> None:
        for _ in range(8):
            world.ledger.grant("ana", world.ledger.limit, by="olga")
            found.append(world.call("ada", "GET", "/v1/ledger/visits").status_code)

    found: list[int] = []
    threads = [threading.Thread(target=export) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [200] * 48
    [record] = [each for each in world.curator.catalogue.datasets() if each.name == "visits"]
    noted = json.loads(world.curator.datasets.witness.place(record.family).read_text())
    newest = [each.checkpoint for each in world.ledger.entries() if each.checkpoint is not None][-1]
    assert noted["number"] == newest.number


def test_an_export_has_no_answer(world: World) -> None:
    answer = world.ask("SELECT ward, COUNT(*) AS n FROM visits WHERE age > 71 GROUP BY ward", epsilon=0.5).json()
    text = world.call("ada", "GET", "/v1/ledger/visits").text
    entry = world.ledger.closing(world.ledger.charge(answer["provenance"]["entry"]).number)
    assert sha256(entry.answer).hexdigest() in text
    [[kind, packed]] = json.loads(entry.answer)["parts"]
    assert packed not in text, kind


def test_the_status_recomputes_the_chain(world: World) -> None:
    said = world.call("ada", "GET", "/v1/ledger/visits/status").json()
    newest = list(world.ledger.entries())[-1]
    assert (said["entries"], said["hash"]) == (newest.number, newest.hash)


def test_starting_on_a_ledger_older_than_its_checkpoint_is_refused(world: World) -> None:
    world.call("ada", "GET", "/v1/ledger/visits")
    record = world.curator.catalogue.dataset("visits")
    assert record is not None
    noted = world.curator.datasets.witness.place(record.family)
    kept = noted.read_text()
    noted.write_text(kept.replace('"number":', '"number":9'))
    try:
        with pytest.raises(Problem, match="ledger_damaged"):
            world.curator.datasets._ledger(record, record)
    finally:
        noted.write_text(kept)
    world.curator.datasets._ledger(record, record).close()


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def label(world: World) -> dict[str, Any]:
    release = world.ask(WARDS, epsilon=0.5).json()["release"]
    found: dict[str, Any] = world.call("ada", "GET", f"/v1/labels/{release}").json()
    return found


def test_a_label_says_what_was_promised(label: dict[str, Any], world: World) -> None:
    assert label["unit"] == world.ledger.unit.describe()
    assert label["neighbours"] == "add/remove"
    assert label["loss"].startswith("epsilon")
    [draw] = label["draws"]
    assert "Gaussian" in draw["mechanisms"][0]["noise"]
    assert (draw["paid"], label["merged"]) == (label["loss"], None)
    assert label["public"]["visits"]["columns"]["age"] == {"kind": "integer", "low": 0, "high": 100, "nullable": False}
    check_label(label, world.curator.key.public)


def test_the_label_of_a_refined_answer_lists_each_draw(world: World) -> None:
    sql = "SELECT sex, COUNT(*) AS n, SUM(stay) AS s FROM visits WHERE age > 3 GROUP BY sex"
    first = world.ask(sql, epsilon=0.2).json()
    again = world.ask(sql, path=":refine", epsilon=0.4).json()
    before, after = (world.call("ada", "GET", f"/v1/labels/{each['release']}").json() for each in (first, again))
    assert [draw["paid"].split(" at")[0] for draw in after["draws"]] == ["epsilon 0.2", "epsilon 0.4"]
    assert before["draws"] == after["draws"][:1]
    assert before["merged"] is None
    assert "inverse variance" in after["merged"]
    check_label(after, world.curator.key.public)
    sigmas = [
        [float(re.search(r"sigma=([\d.e+]+)", each["noise"])[1]) for each in draw["mechanisms"]]
        for draw in after["draws"]
    ]
    for part, each in enumerate(after["deviations"]):
        step = after["draws"][0]["mechanisms"][part].get("step", "2^0")
        a, b = (pair[part] * 2.0 ** int(step.removeprefix("2^")) for pair in sigmas)
        assert each["deviation"] == pytest.approx(math.sqrt(1 / (1 / a**2 + 1 / b**2)), rel=0.01)  # of Gaussians
    said = dict(lines(after))
    assert "paid epsilon 0.2" in said["Draw 1"]
    assert "Draw 2" in said
    assert said["Answer"] == after["merged"]
    assert "standard deviation of the noise: number of rows" in said["Deviation"]
    for form in ("html", "svg"):
        shown = world.call("ada", "GET", f"/v1/labels/{again['release']}?form={form}").text
        for word in ("Draw 1", "Draw 2", "merged by inverse variance", "standard deviation"):
            assert word in shown


def test_the_label_of_a_count_that_was_helped_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As batches were stored before tables were measured together: a finer answer was summed up for a coarser one."""
    monkeypatch.setattr("deniable.queries.answer.joint_tables.groups", lambda plans: [])
    questions = ["SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
                 "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY ward, sex"]  # fmt: skip
    found = world.call(
        "ana", "POST", "/v1/questions:batch", {"dataset": "visits", "questions": questions, "epsilon": 3.0}
    )
    coarse, fine = (
        world.call("ada", "GET", f"/v1/labels/{each['release']}").json() for each in found.json()["answers"]
    )
    assert [draw["summed_cells"] for draw in coarse["draws"]] == [1, 2]
    assert "summed over at most 2 cells" in dict(lines(coarse))["Draw 2"]
    assert fine["merged"] is None


def test_an_edited_label_is_seen(label: dict[str, Any], world: World) -> None:
    for name, value in (("loss", "epsilon 0.001"), ("unit", "a row"), ("threat_model", "everybody"), ("more", 1)):
        with worded(UnreadableRecord):
            check_label({**label, name: value}, world.curator.key.public)
    with pytest.raises(UnreadableRecord):
        check_label({name: value for name, value in label.items() if name != "loss"}, world.curator.key.public)


def test_a_label_signed_with_another_key_is_seen(label: dict[str, Any], world: World) -> None:
    unsigned = {name: value for name, value in label.items() if name not in {"key", "signature"}}
    forged = signed({**unsigned, "loss": "epsilon 0.001"}, SigningKey.generate())
    with pytest.raises(UnreadableRecord, match="another key"):
        check_label(forged, world.curator.key.public)
    with worded(UnreadableRecord):
        check_label({**forged, "key": world.curator.key.public.hex}, world.curator.key.public)


@pytest.mark.parametrize(("form", "kind"), [("html", "text/html"), ("svg", "image/svg+xml")])
def test_a_label_can_be_looked_at_and_runs_nothing(form: str, kind: str, world: World) -> None:
    attack = "SELECT COUNT(*) AS \"<script>alert(1)</script>\" FROM visits WHERE town = '</text><script>'"
    answered = world.ask(attack, epsilon=0.5)
    assert answered.status_code == 200, answered.text
    answer = world.call("ada", "GET", f"/v1/labels/{answered.json()['release']}?form={form}")
    assert answer.headers["content-type"].startswith(kind)
    assert "<script" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    if form == "svg":
        from xml.dom.minidom import parseString

        parseString(answer.text)


@pytest.mark.parametrize(
    "release", ["visits:0", "visits:999999", "visits:-1", "visits:x", "visits", ":1", "visits:1e3", "visits:١"]
)
def test_a_release_that_is_not_there_has_no_label(release: str, world: World) -> None:
    assert world.call("ada", "GET", f"/v1/labels/{release}").status_code == 404


# -- monitors --------------------------------------------------------------------------------------------------------


def test_health_is_open_and_says_no_more_than_that(world: World) -> None:
    assert set(world.call(None, "GET", "/health").json()) == {"status", "version"}


def test_metrics_count_routes_and_nothing_of_what_was_asked(world: World) -> None:
    world.call("ana", "GET", "/v1/datasets/a-secret-name")
    world.call("ana", "GET", "/a-secret-path")
    text = world.call("adam", "GET", "/metrics").text
    assert 'route="/v1/datasets/{name}",method="GET",status="404"' in text
    assert 'route="other"' in text
    assert not any(word in text for word in ("secret", "visits", "ana", "SELECT", "second"))


def test_the_list_of_problems_is_closed() -> None:
    for code, (status, title) in CODES.items():
        assert 400 <= status < 600
        body = json.loads(Problem(code).body())
        assert body == {"type": f"urn:deniable:problem:{code}", "title": title, "status": status, "code": code}
    with pytest.raises(AssertionError):
        Problem("another")


def test_an_error_that_is_not_ours_says_nothing() -> None:
    assert json.loads(problem_of(RuntimeError("a-secret@example.org")).body()) == json.loads(
        Problem("unexpected").body()
    )
    assert "KeyError" not in problems.problem_of(KeyError("a-secret")).body().decode()


def test_an_unexpected_error_is_told_and_logged_without_its_words(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> Any:
        raise RuntimeError("a-secret@example.org")

    monkeypatch.setattr(world.curator, "listed", breaks)
    answer = world.call("ana", "GET", "/v1/datasets")
    assert (answer.status_code, answer.json()["code"]) == (500, "unexpected")
    assert "secret" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_no_page_is_kept_or_guessed_at(world: World) -> None:
    for answer in (world.ask(epsilon=0.5), world.call(None, "GET", "/v1/me"), world.call("ana", "GET", "/v1/nothing")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_a_method_that_is_not_there_names_all_that_are(world: World) -> None:
    assert world.call("ana", "PUT", "/v1/datasets").headers["allow"] == "GET, POST"
    assert world.call("ana", "PUT", "/v1/datasets/visits/grants").headers["allow"] == "GET, POST"
    assert world.call("ana", "DELETE", "/v1/questions:price").headers["allow"] == "POST"


def test_unknown_paths_and_methods_are_problems_too(world: World) -> None:
    for method, path, code in (
        ("GET", "/v1/nothing", "not_found"),
        ("PUT", "/v1/questions", "method"),
        ("GET", "/docs", "not_found"),
    ):
        answer = world.call("ana", method, path)
        assert answer.json()["code"] == code
        assert answer.headers["content-type"] == problems.MEDIA_TYPE
