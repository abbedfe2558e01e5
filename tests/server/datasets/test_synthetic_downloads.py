"""Synthetic tables over HTTP: one charge, the same bytes for the same key, published by owners, rows in another process."""

from __future__ import annotations

import io
import json
import math
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import EngineFailed, InvalidParameter, QuestionRefused, UnreadableRecord
from deniable.ledger import State
from deniable.ledger.keys import PublicKey
from deniable.ledger.label_verification import verify_label
from deniable.queries.synthetic.fitting_process import Limits, write_apart
from deniable.queries.synthetic.synthetic_records import read_price, read_record
from deniable.server.catalogue.catalogue import Person
from deniable.server.datasets.synthetic_downloads import DrawnFile
from deniable.server.roles import Role
from tests.server.world import World, made
from tests.wording import worded

PLACE = "/v1/datasets/visits/synthetic"
OLGA = Person("olga", Role.OWNER)


def buy(world: World, columns: list[str], who: str = "ana", key: str | None = None, **more: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return world.call(who, "POST", PLACE, {"columns": columns, "epsilon": 1.0, **more}, headers=headers)


def charges(world: World) -> int:
    return sum(each.state is State.RESERVED for each in world.ledger.entries())


def test_it_is_one_charge_and_the_same_bytes_for_the_same_key(world: World) -> None:
    before = charges(world)
    first = buy(world, ["ward", "sex", "age"], key="k1")
    assert first.status_code == 200, first.text
    assert buy(world, ["ward", "sex", "age"], key="k1").content == first.content
    assert buy(world, ["ward", "sex"], key="k1").json()["code"] == "key_reused"
    again = buy(world, ["age", "sex", "ward"]).json()
    assert again["provenance"]["replayed"] is True
    assert again["rows"] == first.json()["rows"]
    assert charges(world) == before + 1
    record = first.json()
    assert record["columns"] == ["by", "variance", "counts"]
    assert [row[0] for row in record["rows"]][-1] == ["sex", "age"]
    assert record["values"]["ward"] == {"binned": False, "values": ["A", "B", "C"]}
    assert all(len(row[2]) > 1 and row[1] > 0 for row in record["rows"])
    assert record["provenance"]["entry"] == world.ledger.charge(record["provenance"]["entry"]).charge


@pytest.mark.slow
def test_the_analysts_share_pays(tmp_path: Path) -> None:
    """It is charged to whoever asks, like any question, and what does not fit is refused before anything is read."""
    world = made(tmp_path, budget={"epsilon": 2.0, "delta": 1e-6})
    with world.client:
        world.newcomer("ben", Role.ANALYST)
        world.curator.grant(OLGA, "visits", "ben", None, None)
        limit = {"analyst": "ana", "limit": {"epsilon": 0.5}}
        assert world.call("olga", "POST", "/v1/datasets/visits/grants", limit).status_code == 201
        refused = buy(world, ["ward", "sex"], epsilon=0.6)
        assert (refused.status_code, refused.json()["code"]) == (402, "budget_exceeded")
        assert charges(world) == 0
        assert buy(world, ["ward", "sex"], epsilon=0.5).status_code == 200
        spent = {each.name: each.spent.units for each in world.ledger.accounts()}
        assert spent["ana"] > 0
        assert spent["ben"] == 0
        # What was paid for is read again at no cost, also by somebody else and where nothing is left.
        assert buy(world, ["ward", "sex"], epsilon=0.5).json()["provenance"]["replayed"]
        theirs = buy(world, ["ward", "sex"], who="ben", epsilon=0.1).json()
        assert theirs["provenance"]["replayed"]
        entry = theirs["provenance"]["entry"]
        assert world.call("ben", "GET", f"{PLACE}/{entry}").status_code == 404
        known = world.call("ben", "GET", f"{PLACE}/{entry}?question={theirs['provenance']['question']}")
        assert known.json()["rows"] == theirs["rows"]


def test_rows_are_drawn_in_another_process(world: World) -> None:
    entry = buy(world, ["ward", "sex", "age"]).json()["provenance"]["entry"]
    found = world.call("ana", "GET", f"{PLACE}/{entry}/rows?rows=500&form=parquet")
    assert found.status_code == 200, found.text
    assert found.headers["content-disposition"] == f'attachment; filename="visits-{entry}-synthetic.parquet"'
    assert isinstance(json.loads(found.headers["deniable-notes"]), list)
    rows = pd.read_parquet(io.BytesIO(found.content))
    assert rows.shape == (500, 3)
    assert set(rows.ward) <= {"A", "B", "C"}
    assert rows.age.between(0, 100).all()
    text = world.call("ana", "GET", f"{PLACE}/{entry}/rows?rows=3").text
    assert text.splitlines()[0] == "ward,sex,age"
    assert len(text.splitlines()) == 4
    for wrong in ("rows=0", "rows=1000001", "form=exe"):
        assert world.call("ana", "GET", f"{PLACE}/{entry}/rows?{wrong}").status_code == 422
    assert not list(world.curator.settings.state.glob("*scratch*"))


def test_an_owner_publishes_and_analysts_have_it_for_nothing(world: World) -> None:
    entry = buy(world, ["ward", "stay"], who="olga", bins={"stay": 6}).json()["provenance"]["entry"]
    assert world.call("ana", "GET", f"{PLACE}/{entry}").status_code == 404
    assert entry not in [each["entry"] for each in world.call("ana", "GET", PLACE).json()["synthetic"]]
    for who, status in (("ana", 403), ("ada", 403), ("adam", 403), ("olga", 200)):
        assert world.call(who, "PUT", f"{PLACE}/{entry}/published").status_code == status
    before = charges(world)
    [listed] = [each for each in world.call("ana", "GET", PLACE).json()["synthetic"] if each["entry"] == entry]
    assert (listed["by"], listed["published"], listed["columns"]) == ("olga", True, ["ward", "stay"])
    theirs, own = (world.call(who, "GET", f"{PLACE}/{entry}").json() for who in ("ana", "olga"))
    assert theirs["rows"] == own["rows"]
    assert charges(world) == before
    label = world.call("olga", "GET", f"/v1/labels/visits:{entry}").json()
    assert verify_label(label, own, PublicKey(label["key"])).numbers
    forged = {**own, "rows": [[row[0], row[1], [0 for _ in row[2]]] for row in own["rows"]]}
    with worded(UnreadableRecord):
        verify_label(label, forged, PublicKey(label["key"]))
    assert world.call("olga", "DELETE", f"{PLACE}/{entry}/published").json()["published"] is False
    assert world.call("ana", "GET", f"{PLACE}/{entry}").status_code == 404


def test_what_others_buy_hides_nothing_that_was_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of everybody were taken first, and what may be seen was chosen among those."""
    monkeypatch.setattr("deniable.server.datasets.synthetic_downloads._LISTED", 2)
    published = buy(world, ["sex", "age"], who="olga", bins={"age": 3}).json()["provenance"]["entry"]
    assert world.call("olga", "PUT", f"{PLACE}/{published}/published").status_code == 200
    theirs = [buy(world, ["age"], bins={"age": n}).json()["provenance"]["entry"] for n in (4, 5, 6)]
    ben = world.newcomer("ben", Role.ANALYST)
    world.curator.grant(OLGA, "visits", ben, None, None)
    assert [each["entry"] for each in world.call("ben", "GET", PLACE).json()["synthetic"]] == [published]
    first = world.call("ana", "GET", PLACE).json()
    assert [each["entry"] for each in first["synthetic"]] == theirs[:0:-1]
    rest = world.call("ana", "GET", f"{PLACE}?before={first['before']}").json()
    assert [each["entry"] for each in rest["synthetic"]][:2] == [theirs[0], published]
    assert world.call("olga", "DELETE", f"{PLACE}/{published}/published").status_code == 200
    assert world.call("ben", "GET", PLACE).json()["synthetic"] == []


def test_only_what_the_owner_bought_can_be_published(world: World) -> None:
    entry = buy(world, ["sex", "stay"], bins={"stay": 6}).json()["provenance"]["entry"]
    assert world.call("olga", "PUT", f"{PLACE}/{entry}/published").status_code == 404
    asked = world.ask(who="olga", epsilon=0.1).json()["provenance"]["entry"]
    assert world.call("olga", "PUT", f"{PLACE}/{asked}/published").status_code == 404
    for path in (f"/{asked}", f"/{asked}/rows", "/999999"):
        assert world.call("olga", "GET", PLACE + path).json()["code"] == "not_found"


def test_it_is_read_by_the_schema_that_it_was_bought_by(tmp_path: Path) -> None:
    world = made(tmp_path)
    with world.client:
        entry = buy(world, ["ward", "sex"], who="olga").json()["provenance"]["entry"]
        before = world.call("olga", "GET", f"{PLACE}/{entry}").json()
        old = world.curator.catalogue.dataset("visits")
        assert old is not None
        other = old.schema.replace('"C"', '"C", "D"').replace('"C",', '"C",', 1)
        assert other != old.schema
        assert world.curator.catalogue.redeclare("visits", other, instead_of=old.schema)
        world.curator._seen.clear()
        assert world.call("olga", "GET", f"{PLACE}/{entry}").json()["rows"] == before["rows"]


def test_labels_and_releases_tell_it_in_words(world: World) -> None:
    entry = buy(world, ["ward", "age"], target="ward").json()["provenance"]["entry"]
    page = world.call("ana", "GET", f"/v1/labels/visits:{entry}?form=html").text
    assert "synthetic table of ward, age, to predict ward" in page
    assert "on the count by ward, age" in page
    releases = world.call("ada", "GET", "/v1/datasets/visits/releases").json()["releases"]
    assert any(each["release"] == f"visits:{entry}" for each in releases)


# -- the work of one download ------------------------------------------------------------------------------------------


def test_a_fit_that_takes_too_much_is_ended(world: World, tmp_path: Path) -> None:
    record = buy(world, ["ward", "sex"]).json()
    for limits in (Limits(cpu=0), Limits(space=1 << 20), Limits(seconds=0.01)):
        with pytest.raises(EngineFailed):
            write_apart(record, 10, tmp_path / "rows.csv", "csv", limits)


@pytest.fixture
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> list[Limits]:
    """Fits that write a line at once; the limits of each."""
    found: list[Limits] = []

    def written(_: object, many: int, path: Path, form: str, limits: Limits) -> list[str]:
        found.append(limits)
        path.write_text("ward,sex\n")
        return []

    monkeypatch.setattr("deniable.server.datasets.synthetic_downloads.write_apart", written)
    return found


def test_a_file_that_is_too_large_is_not_written(world: World, tmp_path: Path) -> None:
    record = buy(world, ["ward", "sex"]).json()
    with pytest.raises(EngineFailed):
        write_apart(record, 1000, tmp_path / "rows.csv", "csv", Limits(size=500))


def test_a_download_fills_no_disk(world: World, quick_fits: list[Limits], monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows of long keys had as many gigabytes as the CPU time allowed, on the disk where ledgers are."""
    place = f"{PLACE}/{buy(world, ['ward', 'sex']).json()['provenance']['entry']}/rows"
    for free, size in ((1 << 50, 1 << 30), (world.curator.settings.free_space + 8000, 1000), (0, 0)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: type("Disk", (), {"free": free}))
        assert world.call("ana", "GET", place).status_code == 200
        assert quick_fits[-1].size == size
    assert not list(world.curator.settings.state.glob("*scratch*"))


def test_downloads_that_nobody_reads_are_few(world: World, quick_fits: list[Limits]) -> None:
    """Each is a file on the server's disk for as long as its connection is open."""
    entry = buy(world, ["ward", "sex"]).json()["provenance"]["entry"]
    rows, ana = world.curator.synthetics.rows, Person("ana", Role.ANALYST)

    def status() -> int:
        found: int = world.call("ana", "GET", f"{PLACE}/{entry}/rows?rows=5").status_code
        return found

    held = [rows(ana, "visits", entry, 5, "csv") for _ in range(2)]
    assert status() == 429
    assert world.call("olga", "GET", f"{PLACE}/{entry}/rows?rows=5").status_code == 404  # not theirs, and not refused
    assert b"".join(held[0].chunks()) == b"ward,sex\n"
    assert status() == 200
    held[0] = rows(ana, "visits", entry, 5, "csv")
    assert status() == 429
    begun = held[1].chunks()
    next(begun)
    begun.close()  # whoever hung up
    assert status() == 200
    held[0].file.close()


def test_what_a_killed_server_was_drawing_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "state" / "deniable-scratch-killed"
    left.mkdir(parents=True)
    for name in ("in-use.lock", "rows.csv"):
        (left / name).touch()
    world = made(tmp_path)
    world.curator.close()
    assert not left.exists()


@pytest.mark.parametrize(
    "forbid", [[{"ward": ["A"] * 50_000, "sex": "f"}], [{"ward": json.loads("[" * 500 + "]" * 500)}]]
)
def test_what_is_said_of_a_synthetic_table_is_short(forbid: Any, world: World) -> None:
    """It is kept with each purchase and told in lists: a quarter of a megabyte each held everybody up, for nothing.
    What was nested deeply ended in an unexpected error.
    """
    before = charges(world)
    refused = buy(world, ["ward", "sex"], forbid=forbid)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert charges(world) == before


def test_a_failed_fit_is_a_problem_of_the_closed_list(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise EngineFailed("time")

    monkeypatch.setattr("deniable.server.datasets.synthetic_downloads.write_apart", fails)
    entry = buy(world, ["ward", "sex"]).json()["provenance"]["entry"]
    answer = world.call("ana", "GET", f"{PLACE}/{entry}/rows")
    assert (answer.status_code, answer.json()["code"]) == (503, "fit_failed")
    assert not list(world.curator.settings.state.glob("*scratch*"))


def test_one_person_fits_one_at_a_time_and_nobody_else_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, turn, go = [0], [0], threading.Lock(), threading.Event()

    def slow(self: object, person: Person, *_: object) -> DrawnFile:
        with turn:
            running[0] += 1
            most[0] = max(most[0], running[0])
        if person.name == "ana":
            go.wait(60)
        with turn:
            running[0] -= 1
        return DrawnFile(io.BytesIO(b"x"), 1, "x.csv", [])

    monkeypatch.setattr("deniable.server.datasets.synthetic_downloads.Synthetics.rows", slow)
    threads = [threading.Thread(target=world.call, args=("ana", "GET", f"{PLACE}/1/rows")) for _ in range(4)]
    for each in threads:
        each.start()
    while not running[0]:
        time.sleep(0.01)
    try:
        assert world.call("olga", "GET", f"{PLACE}/1/rows").content == b"x"
        assert world.ask(epsilon=0.01).status_code == 200
        assert most[0] <= 2  # one of each
    finally:
        go.set()
        for each in threads:
            each.join()
    assert most[0] <= 2


# -- from Python -------------------------------------------------------------------------------------------------------


def test_a_remote_table_has_the_words_of_a_local_one(served: tuple[World, str]) -> None:
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        found = remote.synthesize(columns=["ward", "sex", "age"], bins={"age": 5}, epsilon=3.0)
        assert found.columns == ("ward", "sex", "age")
        assert found.receipt.paid.startswith("epsilon 3")
        assert found.receipt.cost == there.ledger.charge(found.receipt.entry).cost
        assert found.guarantee.unit == there.ledger.unit
        assert found.guarantee.curve.epsilon(delta=1e-6) == pytest.approx(3, abs=0.1)
        assert len(found.rows(100)) == 100
        assert sum(row[1] for row in found.table("ward")) == pytest.approx(found.count, rel=0.05)
        assert isinstance(found.notes, tuple)
        again = remote.synthetic(f"visits:{found.receipt.entry}")
        assert all((a.counts == b.counts).all() for a, b in zip(found.marginals, again.marginals, strict=True))
        assert [each["entry"] for each in remote.synthetics()] == [found.receipt.entry]
        with pytest.raises(dn.errors.QuestionRefused, match="cells"):
            remote.synthesize(columns=["age", "stay", "cost"], bins=dict.fromkeys(("age", "cost"), 256), epsilon=0.1)


def test_what_is_no_record_is_refused() -> None:
    for wrong in ({}, {"papers": {}, "provenance": {}}, {"papers": None, "provenance": {}, "asked": {}, "rows": []}):
        with pytest.raises(UnreadableRecord):
            read_record(wrong)


def test_rules_of_another_shape_are_refused_in_words(world: World) -> None:
    before = charges(world)
    for rule in ({"sex": [["f"]]}, {"sex": {"f": 1}}, {"age": {"from": "x"}}, {"age": {"low": 1}}, {"sex": ["f", "m"]}):
        refused = buy(world, ["ward", "sex", "age"], forbid=[rule])
        assert refused.status_code == 422, refused.text
        assert refused.json()["code"] == "invalid"
    assert charges(world) == before


def test_a_forged_record_is_refused_when_it_is_read(world: World) -> None:
    """Counts and variances that are no numbers were found out by the fit, with an error of numpy's."""
    whole = buy(world, ["ward", "sex"]).json()
    assert read_record(whole).rows(3)
    for place, wrong in [
        (1, None), (1, "1"), (1, 0), (1, -1), (1, math.nan), (1, math.inf), (1, 10**400), (1, True), (1, [1]),
        (2, [math.nan] * 3), (2, [math.inf] * 3), (2, [1e300] * 3), (2, None), (0, ["sex"]), (0, ["ward", "ward"]),
    ]:  # fmt: skip
        forged = json.loads(json.dumps(whole))
        forged["rows"][0][place] = wrong
        with pytest.raises(UnreadableRecord):
            read_record(forged)
    for rows in ([], whole["rows"][:1], [*whole["rows"], whole["rows"][0]]):
        with pytest.raises(UnreadableRecord):
            read_record({**whole, "rows": rows})


def test_ranges_and_days_that_cannot_be_travel_as_what_they_are(served: tuple[World, str]) -> None:
    """JSON has no pairs: (None, 40) came as a list of two values, and forbade 40 alone."""
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        found = remote.synthesize(columns=["sex", "age"], forbid=[{"age": (None, 40), "sex": "f"}], epsilon=2.0)
        rows = found.rows(3000).to_pandas()
        assert not ((rows.sex == "f") & (rows.age <= 40)).any()
        assert ((rows.sex == "m") & (rows.age <= 40)).any()
        again = remote.synthetic(f"visits:{found.receipt.entry}").rows(3000).to_pandas()
        assert not ((again.sex == "f") & (again.age <= 40)).any()


@pytest.mark.slow
def test_a_workload_and_what_cannot_be_travel_too(served: tuple[World, str]) -> None:
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        forbid = [{"ward": "A", "sex": "f"}]
        found = remote.synthesize(
            columns=["ward", "sex", "stay"], workload=[["ward", "sex"]], forbid=forbid, epsilon=2.0
        )
        assert [each.columns for each in found.marginals] == [(0,), (1,), (2,), (0, 1)]
        rows = found.rows(2000).to_pandas()
        assert not ((rows.ward == "A") & (rows.sex == "f")).any()
        again = remote.synthetic(f"visits:{found.receipt.entry}").rows(2000).to_pandas()
        assert not ((again.ward == "A") & (again.sex == "f")).any()


@pytest.mark.parametrize("method", ["mst", "adaptive"])
def test_tables_that_the_data_choose_travel_too(served: tuple[World, str], method: str) -> None:
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        price = remote.price_synthesis(columns=["ward", "sex", "stay"], method=method, epsilon=1.0)
        assert price.chosen is not None
        assert price.chosen.candidates == 3
        found = remote.synthesize(columns=["ward", "sex", "stay"], method=method, epsilon=1.0)
        assert [each.columns for each in found.marginals[:3]] == [(0,), (1,), (2,)]
        assert 5 <= len(found.marginals) <= 3 + price.chosen.most
        again = remote.synthetic(f"visits:{found.receipt.entry}")
        assert again.asked.measured == found.asked.measured
        assert len(again.rows(20)) == 20


def test_keys_that_are_not_public_are_found_over_http_too(world: World) -> None:
    """The towns are not in the schema: a noisy count at a delta finds them, and records and downloads have them."""
    bought = buy(world, ["sex", "town"], unlisted=["town"], bins={"town": 8}, epsilon=8.0)
    assert bought.status_code == 200, bought.text
    record = bought.json()
    made = read_record(record)
    assert made.receipt.cost.delta_units > 0
    [shown] = [each.values for each in made.asked.columns if each.name == "town"]
    place = f"{PLACE}/{record['provenance']['entry']}"
    again = read_record(world.call("ana", "GET", place).json())
    assert [each.values for each in again.asked.columns] == [each.values for each in made.asked.columns]
    rows = world.call("ana", "GET", f"{place}/rows?rows=200")
    assert rows.status_code == 200, rows.text
    assert set(pd.read_csv(io.StringIO(rows.text)).town.dropna()) <= set(shown)
    refused = buy(world, ["sex"], unlisted=["sex"])
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


def test_a_remote_price_is_that_of_a_local_session_and_charges_nothing(served: tuple[World, str]) -> None:
    """`price_synthesis` and `rows=` were there in a local session alone."""
    there, url = served
    before = charges(there)
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        asked: dict[str, Any] = {"columns": ["ward", "sex"], "forbid": [{"ward": "A", "sex": "m"}]}
        price = remote.price_synthesis(**asked, epsilon=0.25)
        local = there.curator.open(OLGA, "visits").session.price_synthesis(**asked, epsilon=0.25)
        assert price.asked.hash == local.asked.hash
        assert price.deviations == local.deviations
        assert (price.cost, price.least_rows, price.fits) == (local.cost, local.least_rows, True)
        assert price.errors(rows=1000) == local.errors(rows=1000)
        with worded(InvalidParameter, parameter="cost"):
            remote.synthesize(**asked, epsilon=0.01, rows=5)
        with worded(QuestionRefused, code="column"):
            remote.price_synthesis(columns=["nothing"], epsilon=0.1)
    assert charges(there) == before
    with pytest.raises(UnreadableRecord):
        read_price({"deviations": {}}, {"table": None, "columns": ["ward"]}, there.curator.open(OLGA, "visits").tables)


def test_remote_sessions_forgot_the_rows_that_were_stated_and_refused_numpy_numbers(served: tuple[World, str]) -> None:
    """`count` was the noisy number of rows, and bins from numpy could not be sent."""
    there, url = served
    with dn.connect(url, token=there.tokens["ana"]) as remote:
        asked: dict[str, Any] = {"columns": ["sex", "age"], "bins": {"age": np.int64(7)}}
        made = remote.synthesize(**asked, epsilon=2.0, rows=np.int64(777))
        assert (made.count, len(made.rows().to_pandas())) == (777, 777)
        again = remote.synthesize(**asked, epsilon=2.0)
        assert again.receipt.replayed
        assert remote.synthetic(again.receipt.entry).receipt.entry == again.receipt.entry
        with worded(InvalidParameter):
            remote.synthetic("others:1")
        wrong: Any = 5
        with pytest.raises(InvalidParameter, match="columns"):
            remote.price_synthesis(columns=wrong, epsilon=1.0)
        texts = ["SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", "SELECT COUNT(*) AS n FROM visits"]
        plain = remote.price(texts, weights=[0.5, 2], epsilon=np.float64(0.5))
        assert remote.price(texts, weights=[Fraction(1, 2), np.int64(2)], epsilon=0.5).tables == plain.tables
        assert remote.price(texts, within=[np.int64(40), None]).tables[0].errors["n"] <= 40
        for wrong in (np.ones((2, 1)), "equal", {"sex": 1}):
            with worded(InvalidParameter):
                remote.price(texts, weights=wrong, epsilon=0.5)


@pytest.mark.parametrize("asked", ["synthetic", "question"])
def test_what_was_sealed_and_not_noted_is_noted_when_it_is_told_again(
    asked: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended in between left an answer that was paid for, without a label and without rows."""
    sql = "SELECT ward, COUNT(*) AS n FROM visits WHERE age > 71 GROUP BY ward"

    def ask(who: str) -> Any:
        return world.ask(sql, who=who, epsilon=1.0) if asked == "question" else buy(world, ["stay"], who)

    def ends(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(world.curator.datasets.witness, "released", ends)
        assert ask("ana").status_code == 500
    before = charges(world)
    entry = ask("olga").json()["provenance"]["entry"]  # who did not pay for it
    label = f"/v1/labels/visits:{entry}"
    assert world.call("olga", "GET", label).status_code == 404
    assert ask("ana").json()["provenance"]["entry"] == entry
    assert world.call("ana", "GET", label).status_code == 200
    if asked == "synthetic":
        assert entry in [each["entry"] for each in world.call("ana", "GET", PLACE).json()["synthetic"]]
        assert world.call("ana", "GET", f"{PLACE}/{entry}/rows?rows=5").status_code == 200
    assert charges(world) == before
