"""`deniable verify-label`: exit code 3 says that a label was changed, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.ledger import keys
from deniable.ledger.label_verification import answer_digest, label_message

pytest.importorskip("typer")
from typer.testing import CliRunner

from deniable.cli import build


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    owner = keys.new(tmp_path / "owner.key")
    label = {"version": 2, "release": "r1", "key": owner.public.hex}
    (tmp_path / "label.json").write_text(json.dumps({**label, "signature": owner.sign(label_message(label))}))
    return tmp_path


def run(folder: Path, *arguments: str, key: str = "owner.pub") -> tuple[int, str]:
    named = [str(folder / each) for each in arguments]
    done = CliRunner().invoke(build(), ["verify-label", *named, "--key", str(folder / key)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


def test_a_label_that_is_whole(signed: Path) -> None:
    assert run(signed, "label.json")[0] == 0


def test_a_label_that_was_changed(signed: Path) -> None:
    label = json.loads((signed / "label.json").read_text())
    (signed / "label.json").write_text(json.dumps({**label, "release": "r2"}))
    assert run(signed, "label.json")[0] == 3


@pytest.mark.parametrize(
    "text", [b"garbage", b"", b"\xff", b"-----BEGIN PUBLIC KEY-----\nAA\n-----END PUBLIC KEY-----\n"]
)
def test_a_file_that_is_no_key_said_that_the_label_was_changed(signed: Path, text: bytes) -> None:
    (signed / "garbage.pub").write_bytes(text)
    code, said = run(signed, "label.json", key="garbage.pub")
    assert code == 2
    assert "is not a public Ed25519 key" in said


def test_a_label_that_nobody_signed_was_signed_with_another_key(signed: Path) -> None:
    (signed / "label.json").write_text('{"version":3}')
    code, said = run(signed, "label.json")
    assert code == 2
    assert "it has no signature" in said


@pytest.mark.parametrize("depth", [500, 900, 990, 3_000, 100_000])
def test_json_that_is_nested_deeply_was_a_traceback(signed: Path, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    (signed / "deep.json").write_text(deep)
    assert run(signed, "deep.json")[0] == 2
    label = json.loads((signed / "label.json").read_text())
    (signed / "deep.json").write_text(json.dumps(label)[:-1] + f', "more": {deep}}}')
    assert run(signed, "deep.json")[0] in {2, 3}
    (signed / "deep.json").write_text(f'{{"columns": ["n"], "rows": [[{deep}]]}}')
    assert run(signed, "label.json", "deep.json")[0] in {2, 3}


def bound(folder: Path) -> None:
    """A label of version 3, which binds the number 5."""
    owner = keys.new(folder / "binding.key")
    digest = answer_digest({"columns": ["n"], "rows": [[5]]})
    label = {"version": 3, "release": "r1", "key": owner.public.hex, "answer": digest, "ledger": {"entry": 1}}
    (folder / "label.json").write_text(json.dumps({**label, "signature": owner.sign(label_message(label))}))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('{"columns": ["n"], "rows": [[5]]}', 0, ""),
        ('{"columns": ["n"], "rows": [[7]], "rows": [[5]]}', 2, "contains 'rows' twice"),
        ('{"columns": ["n"], "rows": [[5]], "more": {"a": 1, "a": 2}}', 2, "contains 'a' twice"),
        ('{"columns": "n", "rows": [[5]]}', 3, "columns and rows"),
        ('{"columns": {"n": "m"}, "rows": [[5]]}', 3, "columns and rows"),
        ('{"columns": ["n"], "rows": [{"5": 7}]}', 3, "columns and rows"),
        ('{"columns": ["n"], "rows": ["5"]}', 3, "columns and rows"),
    ],
)
def test_an_answer_that_two_readers_read_as_two_was_accepted(tmp_path: Path, text: str, code: int, words: str) -> None:
    bound(tmp_path)
    (tmp_path / "answer.json").write_text(text)
    found, said = run(tmp_path, "label.json", "answer.json", key="binding.pub")
    assert (found, words in " ".join(said.split())) == (code, True), said
