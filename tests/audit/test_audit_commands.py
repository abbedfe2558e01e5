"""`deniable audit`: other people's code, and the zoo."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deniable import cli
from deniable.audit import audit_commands, zoo
from deniable.errors import InvalidParameter

pytest.importorskip("typer")
from typer.testing import CliRunner

MINE = """
import random

def noisy(value):
    return round(value + random.choice([-1, 1]) * random.expovariate(1), 3)

def echo(value):
    return random.random()

def told(value):
    return "b" if value and random.random() < 0.2 else "a"

def broken(value):
    raise TypeError("b is missing")

def moved(value):
    return round(2 * value + random.gauss(0, 1), 3)

def nothing(value):
    return None

def chatty(value):
    print("asked")
    return random.random()

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
    code, out, _ = run("mine_to_audit:echo", "--neighbours", "[0]", "'word'", "--trials", "200", "--json")
    told = json.loads(out)
    assert code == 4, "nothing was seen, and that is no success"
    assert told["refuted"] is None
    assert told["verdict"] == "nothing seen"
    assert told["read"] == {
        "answers": 400, "types": ["float"], "numbers": 1, "words": 0, "changing": 1, "not read": [],
    }  # fmt: skip
    assert told["claimed"] == "Infinity"
    assert told["band"]["alpha"][0] == 0


def test_what_a_mechanism_prints_does_not_spoil_json(folder: Path) -> None:
    _, out, err = run("mine_to_audit:chatty", "--neighbours", "0", "1", "--trials", "200", "--json")
    assert json.loads(out)["trials"] == 200
    assert err.count("asked") == 400


@pytest.mark.parametrize(
    "wrong",
    [
        (), ("mine_to_audit:noisy",), ("nocolon", "--neighbours", "0", "1"), ("nowhere:f", "--neighbours", "0", "1"),
        ("mine_to_audit:missing", "--neighbours", "0", "1"), ("mine_to_audit:noisy", "--neighbours", "0", "1", "--claim", "laplase(scale=1)"),
        ("mine_to_audit:noisy", "--neighbours", "0", "1", "--trials", "3"),
        ("mine_to_audit:noisy", "--neighbours", "word", "1"), ("mine_to_audit:noisy", "--neighbours", "[0", "1"),
        ("mine_to_audit:noisy", "--neighbours", "0", "0"), ("mine_to_audit:noisy", "--neighbours", "0", "1", "--seconds", "-1"),
        ("mine_to_audit:noisy", "--neighbours", "0", "1", "--seconds", "nan"), ("mine_to_audit:noisy", "--neighbours", "0", "1", "--delta", "1"),
        ("mine_to_audit:noisy", "--neighbours", "0", "1", "--plot", "seen.txt"), ("mine_to_audit:noisy", "--neighbours", "0", "1", "--plot", "no/such/seen.svg"),
    ],
)  # fmt: skip
def test_asked_wrongly(folder: Path, wrong: tuple[str, ...]) -> None:
    code, out, err = run(*wrong)
    assert (code, out) == (2, "")
    assert err.startswith("deniable: ")


@pytest.mark.slow
def test_the_zoo_prints_its_table() -> None:
    code, out, _ = run("--zoo", "--trials", "1000")
    assert code in (0, 1, 4)  # with so few trials the rare ones escape
    for word in (
        "half the sensitivity",
        "δ",
        "claim",
        "truth",
        "measured",
        "caught",
        "exactly",
        "no, rightly",
        "sound ones blamed",
    ):
        assert word in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sound", "refuted", "seen", "word"),
    [
        (False, True, True, "yes"),
        (True, True, True, "yes"),
        (True, False, True, "no, rightly"),
        (True, False, False, "nothing seen"),
        (False, False, True, "NO"),
        (False, False, False, "NO"),
    ],
)
def test_each_outcome_of_the_zoo_has_its_word(sound: bool, refuted: bool, seen: bool, word: str) -> None:
    """A broken one of which nothing was seen has escaped: that is no excuse for it."""
    finding: Any = SimpleNamespace(refuted=refuted, seen=seen)
    entry = (zoo.sound() if sound else zoo.broken())[0]
    assert audit_commands.caught_or_not(zoo.Look(entry, finding)) == word


@pytest.mark.slow
def test_the_zoo_fits_a_terminal_of_eighty_columns() -> None:
    """One row a line, every name and number whole."""
    result = CliRunner().invoke(cli.build(), ["audit", "--zoo", "--trials", "100"], env={"COLUMNS": "80"})
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in result.stdout
    rows = lines[1 : 1 + len(zoo.entries)]
    for name, row in zip(zoo.entries, rows, strict=True):
        assert row.startswith(name + " ")
        assert row.rstrip().endswith(("yes", "no, rightly", "nothing seen", "NO"))


@pytest.mark.slow
def test_the_zoo_in_json() -> None:
    _, out, _ = run("--zoo", "--trials", "1000", "--confidence", "0.999999999", "--json")
    told = {row["name"]: row for row in json.loads(out)}
    assert told["half the sensitivity"]["truth"] == 2
    assert told["Laplace"]["sound"]
    assert not told["Laplace"]["caught"]
    assert told["naive float Laplace"]["truth"] == "Infinity"


def test_what_never_answers_is_an_error(folder: Path) -> None:
    code, out, err = run("mine_to_audit:broken", "--neighbours", "0", "1", "--trials", "5000")
    assert (code, out) == (1, "")
    assert "all 10,000 calls raised TypeError" in err
    assert "The first call said: b is missing" in err


def test_the_picture_is_checked_before_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_commands, "measure", None)
    code, _, err = run("mine_to_audit:noisy", "--neighbours", "0", "1", "--plot", "seen.txt")
    assert code == 2
    assert "must end in" in err


def test_the_rule_that_breaks_the_claim_is_shown(folder: Path) -> None:
    """Under a Gaussian claim ε = ∞ at δ = 0: the event for ε says nothing about why it is refuted."""
    asked = ("mine_to_audit:moved", "--neighbours", "0", "1", "--claim", "gaussian(mu=1)", "--trials", "10000")
    code, out, _ = run(*asked)
    assert code == 3
    assert out.startswith("Refuted with confidence 0.999: at ε = ")
    assert "By this rule: guess" in out
    code, told, _ = run(*asked, "--json")
    broken = json.loads(told)["broken"]
    assert broken["right"] > math.exp(broken["epsilon"]) * broken["wrong"], "as every refutation of (ε, δ) shows"


def test_lines_fit_the_terminal() -> None:
    text = audit_commands.fitted("word " * 40, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert audit_commands.fitted("word " * 40, None).count("\n") == 0


def test_outcomes_have_names(folder: Path) -> None:
    _, out, _ = run("mine_to_audit:told", "--neighbours", "0", "1", "--claim", "pure(epsilon=1)", "--trials", "3000")
    assert "guess the second neighbour where the answer is 'b'" in out


def test_the_zoo_takes_no_target() -> None:
    with pytest.raises(InvalidParameter, match="zoo"):
        audit_commands.zoo_command(trials=1000, confidence=0.9, target="mine_to_audit:noisy")
    for trials, confidence in ((3, 0.9), (1000, 2.0)):
        with pytest.raises(InvalidParameter):
            audit_commands.zoo_command(trials=trials, confidence=confidence)


@pytest.mark.slow
def test_nothing_strays_onto_the_other_channel() -> None:
    _, _, err = run("--zoo", "--trials", "100")
    assert err == ""


def test_after_the_calls_the_bar_says_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All calls answered looked like a run that hangs at 100 %."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with audit_commands._bar("asking", show=True) as told:
        assert told is not None
        told(5, 10)
        told(10, 10)
    assert audit_commands.SEARCHING in capsys.readouterr().err


HINTS = {
    "one neighbour": (["mine_to_audit:noisy", "--neighbours", "0", "--claim", "pure(epsilon=1)"], "takes two values"),
    "a file": (["mine_to_audit.py:noisy", "--neighbours", "0", "1"], "write mine_to_audit:noisy"),
    "half a trial": (["mine_to_audit:noisy", "--neighbours", "0", "1", "--trials", "1.5"], "such as 100000"),
    "endless": (["mine_to_audit:noisy", "--neighbours", "0", "1", "--trials", "inf"], "such as 100000"),
    "zoo, drawn": (["--zoo", "--plot", "z.png"], "cannot be drawn for the zoo"),
}


@pytest.mark.parametrize("name", HINTS)
def test_what_to_do_is_said(folder: Path, name: str) -> None:
    arguments, words = HINTS[name]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_trials_may_be_written_as_1e3(folder: Path) -> None:
    _, out, _ = run("mine_to_audit:echo", "--neighbours", "0", "1", "--trials", "1e3", "--json")
    assert json.loads(out)["trials"] == 1000


def test_a_claim_without_epsilon_hints_at_delta(folder: Path) -> None:
    asked = ("mine_to_audit:noisy", "--neighbours", "0", "1", "--trials", "200", "--claim")
    assert "--delta 1e-5" in run(*asked, "gaussian(sigma=1)")[1]
    assert "--delta" not in run(*asked, "pure(epsilon=1)")[1]


def test_what_never_changes_has_no_rule(folder: Path) -> None:
    _, out, _ = run("mine_to_audit:nothing", "--neighbours", "0", "1", "--trials", "200", "--claim", "pure(epsilon=1)")
    assert "No rule was found: the answers do not distinguish the neighbours." in out
    assert "0 of its 0" not in out


def test_a_claim_broken_elsewhere_has_a_star(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured below the claim and yet caught: the table says why."""
    entry = zoo.entries["Laplace"]
    truly = zoo.look(entry, trials=200, confidence=0.9).finding
    assert truly is not None
    found = replace(truly, epsilon=0.5, refuted=True)
    monkeypatch.setattr(zoo, "entries", {"Laplace": entry})
    monkeypatch.setattr(zoo, "look", lambda entry, **_: zoo.Look(entry, found))
    audit_commands.zoo_command(trials=200, confidence=0.9)
    out = capsys.readouterr().out
    assert "0.5*" in out
    assert "* refuted at another (ε, δ) of its claim" in out
