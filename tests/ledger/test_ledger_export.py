"""Keys, checkpoints and exports: whoever kept one of them sees what was done to a ledger, and where it began."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli import build
from deniable.errors import DeniableError, InvalidParameter, LedgerDamaged, LedgerMismatch, UnreadableRecord
from deniable.ledger import EVERYBODY, Budget, Checkpoint, Cost, Ledger, State, keys, verify_export, write_checkpoint
from deniable.ledger.ledger_export import newest_note
from deniable.units import Unit
from tests.wording import worded

BUDGET = Budget(epsilon=1, delta=1e-6)
COST = BUDGET.cost(epsilon=0.1, delta=1e-9)
ABOUT = {"budget": BUDGET, "unit": Unit.person("patient_id", rows=20), "dataset": "visits"}
OWNER, OTHER = keys.SigningKey.generate(), keys.SigningKey.generate()


def question(number: int) -> str:
    return f"{number:064x}"


def fill(ledger: Ledger) -> None:
    """1 granted, 2 reserved, 3 sealed, 4 reserved, 5 failed, 6 adjusted, 7 checkpoint, 8 reserved."""
    ledger.grant("anna", COST + COST, by="owner")
    ledger.seal(ledger.reserve(COST, question=question(1), description="one", payer="anna", key="k"), b"secret-4711")
    ledger.fail(ledger.reserve(COST, question=question(2), description="two"), "time")
    ledger.adjust("anna", Cost(9 * COST.units, 9 * COST.delta_units), by="owner", reason="more", key=OWNER)
    ledger.checkpoint(OWNER)
    ledger.reserve(COST, question=question(3), description="three", payer="anna")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        fill(ledger)
        assert ledger.export(tmp_path / "ledger.jsonl") == 8
    return tmp_path / "ledger.jsonl"


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_for_its_owner_only(tmp_path: Path) -> None:
    made = keys.new(tmp_path / "owner.key")
    assert (tmp_path / "owner.key").stat().st_mode & 0o777 == 0o600
    assert keys.read(tmp_path / "owner.key").public == made.public == keys.read_public(tmp_path / "owner.pub")
    signature = made.sign(b"message")
    assert made.public.signed(b"message", signature)
    assert not made.public.signed(b"massage", signature)
    assert not made.public.signed(b"message", "no hex")
    assert not OTHER.public.signed(b"message", signature)
    assert made.public.hex in repr(made)
    for again in ("owner.key", "owner.pub"):
        with pytest.raises(InvalidParameter):
            keys.new(tmp_path / again)
    (tmp_path / "owner.key").chmod(0o640)
    with pytest.raises(InvalidParameter, match="chmod 600"):
        keys.read(tmp_path / "owner.key")


def test_what_is_no_key(tmp_path: Path) -> None:
    made = keys.new(tmp_path / "owner.key")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "text").chmod(0o600)
    for path in ("text", "owner.pub"):
        (tmp_path / path).chmod(0o600)
        with worded(UnreadableRecord):
            keys.read(tmp_path / path)
    for path in ("text", "owner.key"):
        with worded(UnreadableRecord):
            keys.read_public(tmp_path / path)
    for text in ("", made.public.hex[:-1], made.public.hex.upper() + "X", None):
        with pytest.raises(InvalidParameter):
            keys.PublicKey(text)


def test_another_program_reads_our_keys_and_signatures(tmp_path: Path) -> None:
    """OpenSSL is the independent answer."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    made = keys.new(tmp_path / "owner.key")
    (tmp_path / "message").write_bytes(b"deniable")
    (tmp_path / "signature").write_bytes(bytes.fromhex(made.sign(b"deniable")))
    check = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "owner.pub", "-rawin", "-in", "message"]
    said = subprocess.run([*check, "-sigfile", "signature"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verified Successfully" in said.stdout, said.stderr


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(place: str | Path | None) -> Iterator[Ledger]:
    with Ledger.open(place, **ABOUT) as opened:
        yield opened


def test_a_checkpoint_says_where_the_chain_is(ledger: Ledger) -> None:
    empty = ledger.checkpoint(OWNER)
    assert (empty.number, empty.spent, empty.serial) == (0, Cost(0), ledger.serial)
    entry = ledger.reserve(COST, question=question(1), description="x")
    noted = ledger.checkpoint(OWNER)
    assert (noted.number, noted.hash, noted.spent) == (entry.number, entry.hash, COST)
    assert ledger.checkpoint(OWNER) == noted  # nothing has happened since
    assert [each.state for each in ledger.entries()] == [State.CHECKPOINT, State.RESERVED, State.CHECKPOINT]
    assert ledger.verify(OWNER.public).checkpoint == noted
    with worded(LedgerDamaged, number=1) as found:
        ledger.verify(OTHER.public)
    assert found.value.number == 1


def test_a_ledger_older_than_its_checkpoint_does_not_open(tmp_path: Path) -> None:
    path, note, export = tmp_path / "ledger", tmp_path / "checkpoint.json", tmp_path / "ledger.jsonl"
    with Ledger.open(path, **ABOUT) as ledger:
        ledger.reserve(COST, question=question(1), description="x")
    shutil.copy(path, tmp_path / "yesterday")
    with Ledger.open(path, **ABOUT) as ledger:
        ledger.reserve(COST, question=question(2), description="y")
        noted = ledger.checkpoint(OWNER)
        write_checkpoint(note, noted)
        ledger.export(export)
    for known in (noted, note, export):
        Ledger.open(path, **ABOUT, checkpoint=known).close()
    shutil.copy(tmp_path / "yesterday", path)
    for known, missing in ((noted, 2), (note, 2), (export, 2)):
        with worded(LedgerDamaged, number=2) as found:
            Ledger.open(path, **ABOUT, checkpoint=known)
        assert found.value.number == missing
    with Ledger.open(path, **ABOUT) as ledger:  # and somebody goes on from there
        for number in range(3):
            ledger.reserve(COST, question=question(number), description="z")
    with pytest.raises(LedgerDamaged, match="another history") as found:
        Ledger.open(path, **ABOUT, checkpoint=note)
    assert found.value.number == 2
    path.unlink()
    with worded(LedgerDamaged, number=1):
        Ledger.open(path, **ABOUT, checkpoint=note)
    assert not path.exists()  # nor is a new one made in its place
    with Ledger.open(path, **ABOUT), pytest.raises(LedgerMismatch, match="serial number"):
        Ledger.open(path, **ABOUT, checkpoint=note)


def test_a_restored_database_does_not_open(place: str | Path | None) -> None:
    if place is None:
        return
    with Ledger.open(place, **ABOUT) as ledger:
        fill(ledger)
        noted = ledger.checkpoint(OWNER)
    Ledger.open(place, **ABOUT, checkpoint=noted).close()
    older = Checkpoint.read(noted.record() | {"number": noted.number + 50})
    with worded(UnreadableRecord):
        Ledger.open(place, **ABOUT, checkpoint=older)


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", '{"number": "1"}', "\xff"], ids=ascii)
def test_what_is_no_checkpoint(tmp_path: Path, text: str) -> None:
    path = tmp_path / "note"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DeniableError):
        Ledger.open(**ABOUT, checkpoint=path)
    with worded(InvalidParameter):
        Ledger.open(**ABOUT, checkpoint=tmp_path / "nowhere")


def test_a_checkpoint_of_another_owner_is_no_checkpoint(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", **ABOUT, owner=OWNER.public) as ledger:
        noted = ledger.checkpoint(OWNER)
    forged = Checkpoint.read(noted.record() | {"signer": OTHER.public.hex})
    forged = Checkpoint.read(forged.record() | {"signature": OTHER.sign(forged.message())})
    with worded(InvalidParameter, parameter="checkpoint"):
        Ledger.open(tmp_path / "ledger", **ABOUT, checkpoint=forged)


# --- exports ----------------------------------------------------------------------------------------------------------


def test_an_export_says_what_the_ledger_says(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    assert ledger.export(tmp_path / "out.jsonl") == 8
    found = verify_export(tmp_path / "out.jsonl", key=OWNER.public)
    newest = ledger.verify()
    assert (found.entries, found.hash, found.spent) == (8, newest.hash, ledger.charged)
    assert (found.heading.budget, found.heading.unit, found.names) == (BUDGET, ABOUT["unit"], ("visits",))
    assert (found.open, found.adjustments, len(found.checkpoints)) == (1, 1, 1)
    assert found.signers == (OWNER.public.hex,)
    assert list(found.accounts) == ledger.accounts()
    text = (tmp_path / "out.jsonl").read_text()
    assert sha256(b"secret-4711").hexdigest() in text
    assert "secret-4711" not in text
    assert os.listdir(tmp_path).count("out.jsonl") == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_an_export_is_what_the_documentation_says(exported: Path) -> None:
    """Recomputed here from the text of docs/ledger.md alone."""
    first, *lines, last = exported.read_text().splitlines()
    link = sha256(first.encode()).hexdigest()
    for number, line in enumerate(lines, 1):
        entry = json.loads(line)
        fields = [entry.get(name) for name in ("number", "time", "state", "question", "description", "key")]
        fields += [*entry["cost"], *entry["spent"], *(entry.get(name) for name in ("closes", "answer_sha256", "code"))]
        text = json.dumps([1, *fields, link, *([entry["more"]] if "more" in entry else [])], separators=(",", ":"))
        assert (entry["number"], entry["previous"], entry["hash"]) == (number, link, sha256(text.encode()).hexdigest())
        link = entry["hash"]
    assert json.loads(last) == {"end": {"number": len(lines), "hash": link}}


def test_an_export_of_nothing(tmp_path: Path) -> None:
    with Ledger.open(**ABOUT) as ledger:
        assert ledger.export(tmp_path / "empty.jsonl") == 0
    found = verify_export(tmp_path / "empty.jsonl")
    assert (found.entries, found.spent, found.hash) == (0, Cost(0), found.heading.genesis())


def first_bad(path: Path, **options: object) -> int | None:
    with pytest.raises(LedgerDamaged) as found:
        verify_export(path, **options)
    return found.value.number


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(9))
def test_a_flip_in_any_line_is_named(exported: Path, number: int) -> None:
    """Every character of the line in turn."""
    lines = lines_of(exported)
    line = lines[number]
    for at in range(0, len(line), 7):
        changed = line[:at] + ("1" if line[at] != "1" else "2") + line[at + 1 :]
        write_lines(exported, [*lines[:number], changed, *lines[number + 1 :]])
        try:
            assert first_bad(exported) == number
        except UnreadableRecord:
            assert number == 0  # no heading any more


def test_a_line_of_brackets_alone_is_named(exported: Path) -> None:
    """Deeper than Python's reader of JSON goes."""
    lines, deep = lines_of(exported), "[" * 100_000
    write_lines(exported, [*lines[:3], deep, *lines[4:]])
    assert first_bad(exported) == 3
    for whole in ([deep], [deep, *lines[1:]]):
        write_lines(exported, whole)
        with pytest.raises(UnreadableRecord):
            verify_export(exported)
        with pytest.raises(UnreadableRecord):
            newest_note(exported)


@pytest.mark.parametrize("number", range(1, 9))
def test_delete_and_cut_are_named(exported: Path, number: int) -> None:
    lines = lines_of(exported)
    write_lines(exported, [*lines[:number], *lines[number + 1 :]])
    assert first_bad(exported) == number
    write_lines(exported, lines[:number])  # cut off
    assert first_bad(exported) == number
    write_lines(exported, [*lines[:number], lines[9]])  # cut out, the end kept
    assert first_bad(exported) == number


@pytest.mark.parametrize("number", range(1, 8))
def test_reorder_is_named(exported: Path, number: int) -> None:
    lines = lines_of(exported)
    write_lines(exported, [*lines[:number], *lines[number + 1 : 9], lines[number], lines[9]])
    assert first_bad(exported) == number


def test_lines_behind_the_end(exported: Path) -> None:
    lines = lines_of(exported)
    write_lines(exported, [*lines, lines[8]])
    assert first_bad(exported) == 9


@pytest.mark.parametrize("text", ["", "x\n", "{}\n", "[]\n", "1\n", "\xff\n"], ids=ascii)
def test_what_is_no_export(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableRecord):
        verify_export(tmp_path / "file")


def rechained(lines: list[str], change: Callable[[list[dict[str, object]]], None]) -> list[str]:
    """A forged history by somebody who knows the format: every hash is right again."""
    entries = [json.loads(line) for line in lines[1:-1]]
    change(entries)
    link = sha256(lines[0].encode()).hexdigest()
    for entry in entries:
        entry["previous"] = link
        fields = [entry.get(name) for name in ("number", "time", "state", "question", "description", "key")]
        fields += [*entry["cost"], *entry["spent"], *(entry.get(name) for name in ("closes", "answer_sha256", "code"))]
        hashed = [1, *fields, link, *([entry["more"]] if "more" in entry else [])]
        link = entry["hash"] = sha256(json.dumps(hashed, separators=(",", ":")).encode()).hexdigest()
    end = {"end": {"number": len(entries), "hash": link}}
    return [lines[0], *(json.dumps(each, separators=(",", ":")) for each in [*entries, end])]


def raise_limit(entries: list[dict[str, object]]) -> None:
    entries[5]["more"]["terms"]["limit"] = ["9" * 30, "0"]


def change_reason(entries: list[dict[str, object]]) -> None:
    entries[5]["description"] = "less"


def forget_payer(entries: list[dict[str, object]]) -> None:
    entries[7]["more"]["payer_spent"] = ["0", "0"]


def unsigned(entries: list[dict[str, object]]) -> None:
    entries[5]["state"] = "GRANTED"


def new_payer(entries: list[dict[str, object]]) -> None:
    entries[1]["more"]["payer"] = entries[2]["more"]["payer"] = "mallory"


def limit_of_all(entries: list[dict[str, object]]) -> None:
    entries[0]["more"]["terms"]["account"] = EVERYBODY


def turn_time_back(entries: list[dict[str, object]]) -> None:
    entries[4]["time"] = "2001-01-01T00:00:00Z"


def sign_twice(entries: list[dict[str, object]]) -> None:
    """The owner's old signature, put to use again at the end."""
    last, again = entries[-1], json.loads(json.dumps(entries[5]))
    again["more"]["charges"] = last["more"]["charges"]
    entries.append(again | {"number": 9, "spent": last["spent"], "time": last["time"]})


def costly_grant(entries: list[dict[str, object]]) -> None:
    entries[0]["cost"] = ["1", "0"]


def test_the_forger_knows_the_format(exported: Path) -> None:
    lines = lines_of(exported)
    assert rechained(lines, lambda entries: None) == lines


@pytest.mark.parametrize(
    ("change", "number", "fault"),
    [
        (raise_limit, 6, "invalid signature"),
        (change_reason, 6, "invalid signature"),
        (unsigned, 6, "only a signed adjustment"),
        (forget_payer, 8, "wrong sum for its payer"),
        (new_payer, 2, "never given a limit"),
        (limit_of_all, 1, "only a signed adjustment"),
        (turn_time_back, 5, "older than the entry before"),
        (costly_grant, 1, "which only charges have"),
        (sign_twice, 9, "invalid signature"),
    ],
    ids=["raise", "reason", "unsigned", "payer's sum", "payer", "dataset", "time", "cost", "twice"],
)
def test_a_forged_history_must_still_make_sense(
    exported: Path, change: Callable[[list[dict[str, object]]], None], number: int, fault: str
) -> None:
    write_lines(exported, rechained(lines_of(exported), change))
    with pytest.raises(LedgerDamaged, match=fault) as found:
        verify_export(exported)
    assert found.value.number == number


def test_a_fork_is_named_by_whoever_kept_something(tmp_path: Path) -> None:
    """Two histories of one ledger: yesterday's copy was continued beside the true one."""
    with Ledger.open(tmp_path / "ledger", **ABOUT) as ledger:
        fill(ledger)
        ledger.export(tmp_path / "before.jsonl")
    shutil.copy(tmp_path / "ledger", tmp_path / "twin")
    with closing(sqlite3.connect(tmp_path / "twin", isolation_level=None)) as connection:
        connection.execute("DELETE FROM own WHERE name = 'home'")  # by somebody who knows the format
    for name, words in (("ledger", "true"), ("twin", "false")):
        with Ledger.open(tmp_path / name, **ABOUT) as ledger:
            ledger.reserve(COST, question=question(9), description=words)
            write_checkpoint(tmp_path / f"{name}.json", ledger.checkpoint(OWNER))
            ledger.export(tmp_path / f"{name}.jsonl")
    for name in ("ledger", "twin"):
        for same in ("before.jsonl", f"{name}.jsonl", f"{name}.json"):
            assert verify_export(tmp_path / f"{name}.jsonl", against=tmp_path / same, key=OWNER.public).entries == 10
    for known in ("ledger.jsonl", "ledger.json"):
        assert first_bad(tmp_path / "twin.jsonl", against=tmp_path / known) == 9
        assert first_bad(tmp_path / "before.jsonl", against=tmp_path / known) == 9  # cut: the file alone looks whole
    with Ledger.open(**ABOUT) as other:
        other.export(tmp_path / "other.jsonl")
    assert first_bad(tmp_path / "other.jsonl", against=tmp_path / "ledger.json") == 0


# --- the command ------------------------------------------------------------------------------------------------------


def run(*arguments: object) -> tuple[int, str]:
    said = CliRunner().invoke(build(), ["verify", *map(str, arguments)])
    return said.exit_code, said.output


def test_the_command_reads_a_ledger_itself_and_exports_it(tmp_path: Path) -> None:
    place, out = tmp_path / "visits.csv.ledger", tmp_path / "out.jsonl"
    with Ledger.open(place, **ABOUT) as ledger:
        entry = ledger.reserve(COST, question="a" * 64, description="a count")
        ledger.seal(entry, b"7")
    code, said = run(place, "--json", "--export", out)
    record = json.loads(said)
    assert (code, record["whole"], record["entries"]) == (0, True, 2)
    assert verify_export(out).hash == record["hash"]
    assert run(place, "--export", out)[0] == 2  # nothing is written over
    assert run(out, "--export", tmp_path / "again.jsonl")[0] == 2
    assert not (tmp_path / "again.jsonl").exists()
    with sqlite3.connect(place) as file:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f'DROP TRIGGER "{name}"')
        file.execute("UPDATE entries SET description = 'nothing' WHERE number = 1")
    file.close()
    assert run(place)[0] == 3


def test_the_command_says_that_all_is_well(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "owner.pub").write_bytes(OWNER.public.pem())
    code, said = run(exported, "--key", tmp_path / "owner.pub")
    assert code == 0
    for words in ("The history is whole", "visits", "1 adjustment, 1 checkpoint, all by this key", "share of 'anna'"):
        assert words in said
    code, said = run(exported, "--json", "--delta", "1e-6")
    record = json.loads(said)
    assert (code, record["whole"], record["entries"], record["datasets"]) == (0, True, 8, ["visits"])
    spent = Cost(3 * COST.units, 3 * COST.delta_units)
    assert record["loss"]["epsilon"] == BUDGET.curve(spent).epsilon(delta=1e-6)
    assert record["loss"]["mu"] == pytest.approx(3**0.5 * BUDGET.level(COST))
    assert "by whom is not known" in run(exported)[1]
    assert record["unsigned"] == 1
    assert "1 entries after the last checkpoint are signed by nobody" in " ".join(run(exported)[1].split())


def test_with_a_key_a_history_that_nobody_signed_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "owner.pub").write_bytes(OWNER.public.pem())
    with Ledger.open(**ABOUT) as ledger:
        ledger.reserve(COST, question=question(1), description="one")
        ledger.export(tmp_path / "unsigned.jsonl")
        assert run(tmp_path / "unsigned.jsonl")[0] == 0
        code, said = run(tmp_path / "unsigned.jsonl", "--key", tmp_path / "owner.pub")
        assert (code, "no checkpoint signed with this key" in " ".join(said.split())) == (3, True)
        ledger.checkpoint(OWNER)
        ledger.export(tmp_path / "signed.jsonl")
        assert run(tmp_path / "signed.jsonl", "--key", tmp_path / "owner.pub")[0] == 0


def test_the_command_names_the_first_bad_entry(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "other.pub").write_bytes(OTHER.public.pem())
    code, said = run(exported, "--key", tmp_path / "other.pub")
    assert (code, "entry 6: is signed with another key" in said) == (3, True)
    lines = lines_of(exported)
    write_lines(exported, [*lines[:4], *lines[5:]])
    code, said = run(exported)
    assert (code, "entry 4: is missing" in said) == (3, True)
    code, said = run(exported, "--json")
    assert (code, json.loads(said)) == (3, {"whole": False, "entry": 4, "fault": "is missing"})


@pytest.mark.slow
def test_what_the_command_cannot_do(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for arguments, expected in (
        ([tmp_path / "nowhere"], 1),
        ([tmp_path / "text"], 2),
        ([exported, "--key", tmp_path / "text"], 2),
        ([exported, "--against", tmp_path / "nowhere"], 2),
        ([], 2),
    ):
        finished = subprocess.run(
            [sys.executable, "-m", "deniable", "verify", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == expected, finished.stderr
        assert "Traceback" not in finished.stderr


# --- files from before there were accounts ----------------------------------------------------------------------------


def test_a_file_of_the_first_version_is_taken_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, **ABOUT) as ledger, monkeypatch.context() as patched:
        patched.setattr("deniable.ledger.stores.store.charges_with", lambda newest, state: None)
        ledger.seal(ledger.reserve(COST, question=question(1), description="x"), b"1")
        before = list(ledger.entries())
    connection = sqlite3.connect(path, isolation_level=None)
    for index in ("by_time", "paid", "about", "linked"):
        connection.execute(f"DROP INDEX {index}")
    for column in ("payer", "account", "more"):
        connection.execute(f"ALTER TABLE entries DROP COLUMN {column}")
    connection.execute("DROP TABLE own")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Ledger.open(path, **ABOUT) as ledger:
        assert list(ledger.entries()) == before
        fill(ledger)
        assert ledger.verify().number == 10
    Ledger.open(path, **ABOUT).close()


@pytest.mark.parametrize("window", [None, 3600])
@pytest.mark.parametrize("account", ["anna", EVERYBODY])
def test_a_limit_that_was_not_kept_is_seen(
    account: str, window: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(**ABOUT) as ledger:
        ledger.grant("anna", BUDGET.limit, by="owner")
        if (account, window) == (EVERYBODY, None):
            ledger.adjust(account, COST, by="owner", reason="less", key=OWNER)
        else:
            ledger.grant(account, COST, window=window, by="owner")
        monkeypatch.setattr("deniable.ledger.ledger.refuse", lambda *_: None)
        for number in (1, 2):
            ledger.reserve(COST, question=question(number), description="asked", payer="anna")
        with pytest.raises(LedgerDamaged) as seen:
            ledger.verify()
        assert seen.value.number == 4
        ledger.export(tmp_path / "ledger.jsonl")
    with pytest.raises(LedgerDamaged) as seen:
        verify_export(tmp_path / "ledger.jsonl")
    assert seen.value.number == 4
