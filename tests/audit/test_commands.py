"""`deniable audit`: other people's code, and the zoo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable import cli

pytest.importorskip("typer")
from typer.testing import CliRunner

MINE = """
import random

def noisy(value):
    return round(value + random.choice([-1, 1]) * random.expovariate(1), 3)

class Box:
    @staticmethod
    def exact(value):
        return value
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine_to_audit.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.build(), ["audit", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_sound_function(folder: Path) -> None:
    code, out, _ = run("mine_to_audit:noisy", "--neighbours", "0", "1", "--claim", "laplace(scale=1)", "--trials", "5000", "--confidence", "0.999999999")  # fmt: skip
    assert code == 0
    assert out.startswith("Consistent with the claim, which says ε = 1 at δ = 0")
    assert "By this rule: guess" in out


def test_a_refuted_one_has_its_own_exit_code(folder: Path) -> None:
    code, out, err = run("mine_to_audit:Box.exact", "--neighbours", "0", "1", "--claim", "pure(epsilon=1)", "--trials", "1000", "--plot", "seen.svg")  # fmt: skip
    assert code == 3
    assert out.startswith("Refuted with confidence 0.999")
    assert (folder / "seen.svg").read_text().startswith("<?xml")
    assert "Saved seen.svg" in err


def test_json(folder: Path) -> None:
    code, out, _ = run("mine_to_audit:noisy", "--neighbours", "[0]", "word", "--trials", "200", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["refuted"] is None
    assert told["claimed"] == "Infinity"
    assert told["band"]["alpha"][0] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        (), ("mine_to_audit:noisy",), ("nocolon", "--neighbours", "0", "1"), ("nowhere:f", "--neighbours", "0", "1"),
        ("mine_to_audit:missing", "--neighbours", "0", "1"), ("mine_to_audit:noisy", "--neighbours", "0", "1", "--claim", "laplase(scale=1)"),
        ("mine_to_audit:noisy", "--neighbours", "0", "1", "--trials", "3"),
    ],
)  # fmt: skip
def test_asked_wrongly(folder: Path, wrong: tuple[str, ...]) -> None:
    code, out, err = run(*wrong)
    assert (code, out) == (2, "")
    assert err.startswith("deniable: ")


def test_the_zoo_prints_its_table() -> None:
    code, out, _ = run("--zoo", "--trials", "1000")
    assert code in (0, 1)  # with so few trials the rare ones escape
    for word in (
        "half the sensitivity",
        "claim",
        "truth",
        "measured",
        "caught",
        "exactly",
        "no, rightly",
        "sound ones blamed",
    ):
        assert word in out


def test_the_zoo_in_json() -> None:
    _, out, _ = run("--zoo", "--trials", "1000", "--json")
    told = {row["name"]: row for row in json.loads(out)}
    assert told["half the sensitivity"]["truth"] == 2
    assert told["Laplace"]["sound"]
    assert not told["Laplace"]["caught"]
    assert told["naive float Laplace"]["truth"] == "Infinity"
