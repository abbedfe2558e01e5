"""`deniable audit` runs other people's code: whatever it does, nothing is green that was not looked at."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deniable import audit, cli
from deniable.errors import InvalidParameter

pytest.importorskip("typer")
from typer.testing import CliRunner

GOOD = "import random\ndef noisy(value):\n    return value + random.random()\n"


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, *more: str) -> tuple[int, str, str]:
    module = f"theirs_{abs(hash((source, name))):x}"  # a module is imported once in a process
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(folder)
    asked = [f"{module}:{name}", "--neighbours", "0", "1", "--trials", "200", *more]
    result = CliRunner().invoke(cli.build(), ["audit", *asked])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception  # no traceback
    return result.exit_code, result.stdout, result.stderr


MUTE = """
class Mute(ValueError):
    def __str__(self):
        raise KeyError
class Muted(Mute, ImportError): pass
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import sys; sys.exit(0)", "leaves Python"),
        ("import sys; sys.exit()", "__main__"),
        ("import typer; raise typer.Exit(0)", "raises Exit"),
        ("raise BrokenPipeError", "raises BrokenPipeError"),
        ("raise FileNotFoundError('x')", "raises FileNotFoundError"),
        ("1 / 0", r"line 4"),
        ("def (", r"SyntaxError.*line 4"),
        ("import not_there_at_all", "not_there_at_all"),
        ("import os; os._exit(0)", "leaves Python"),
        ("from os import _exit; _exit(0)", "leaves Python"),
        (f"{MUTE}raise Mute", r"raises Mute .*line 9"),
        (f"{MUTE}raise Muted", "cannot be imported"),
        ("\0", "raises SyntaxError .its file as a whole"),
        ("raise GeneratorExit", "raises GeneratorExit"),
        ("x = '\\ud800'; raise ValueError(x)", "raises ValueError"),
    ],
)
def test_a_module_that_leaves_or_raises_on_import_was_green_or_a_traceback(tmp_path, monkeypatch, line, said) -> None:
    code, out, err = run(tmp_path, monkeypatch, f"{GOOD}{line}\n", "noisy")
    assert code == 2, err
    assert out == ""
    assert "cannot be imported" in err
    assert re.search(said, " ".join(err.split())), err
    assert "Traceback" not in err


LEAVING = """
import sys, random
class Leaves:
    def __init__(self, where):
        self.where = where
    def __getattr__(self, name):
        if name == self.where:
            sys.exit(0)
        raise AttributeError(name)
    def __call__(self, value):
        return value + random.random()
class Answer:
    def __repr__(self):
        sys.exit(0)
    __str__ = __hash__ = __float__ = __iter__ = __len__ = __reduce_ex__ = __deepcopy__ = __eq__ = __repr__
curve, many, release = Leaves("curve"), Leaves("many"), Leaves("release")
def answer(value):
    return Answer()
def __getattr__(name):
    sys.exit(0)
"""


@pytest.mark.parametrize("name", ["curve", "many", "release", "answer", "anything"])
def test_a_mechanism_that_leaves_while_it_is_looked_at_is_not_green(tmp_path, monkeypatch, name) -> None:
    code, out, err = run(tmp_path, monkeypatch, LEAVING, name)
    assert (code in {1, 2}) == (not out), (code, out, err)
    assert code != 0 or out.startswith(("Measured", "At least")), (code, out)
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["raise Mute", "if value: raise Mute\n    return 0"])
def test_an_error_of_the_mechanism_that_cannot_say_itself_was_a_traceback(tmp_path, monkeypatch, how) -> None:
    code, out, err = run(tmp_path, monkeypatch, f"{MUTE}\ndef noisy(value):\n    {how}\n", "noisy")
    assert (code == 1) == (not out), (code, out, err)
    assert "Traceback" not in err


CLOSING = """
import os, random, sys
def noisy(value):
    %s
    return random.random()
"""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_mechanism_that_closes_the_output_was_a_traceback(tmp_path, monkeypatch, more) -> None:
    code, out, err = run(tmp_path, monkeypatch, CLOSING % "sys.stdout.close()", "noisy", *more)
    assert code in {0, 4}, err
    assert out


@pytest.mark.parametrize("line", ["os._exit(0)", "sys.__stdout__.close()"])
def test_a_mechanism_that_leaves_or_closes_at_once_is_no_success(tmp_path, line) -> None:
    (tmp_path / "theirs.py").write_text(CLOSING % line, encoding="utf-8")
    command = [sys.executable, "-m", "deniable", "audit", "theirs:noisy", "--neighbours", "0", "1", "--trials", "200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "SystemExit" in done.stderr or "standard output" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_verdict_that_nobody_read_is_no_success(tmp_path) -> None:
    (tmp_path / "theirs.py").write_text("def exact(value):\n    return value\n", encoding="utf-8")
    command = [sys.executable, "-u", "-m", "deniable", "audit", "theirs:exact", "--neighbours", "0", "1"]
    command += ["--trials", "200", "--claim", "pure(epsilon=1)"]
    asked = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asked.stdout is not None
    asked.stdout.close()  # as `| head` does when it has seen enough
    assert asked.stderr is not None
    said = asked.stderr.read()
    asked.stderr.close()
    assert asked.wait() == 141, said
    assert b"Traceback" not in said


@pytest.mark.parametrize("trials", ["1e99", "1000000001"])
@pytest.mark.parametrize("command", [["audit", "math:exp", "--neighbours", "0", "1"], ["audit", "--zoo"]])
def test_more_trials_than_fit_are_refused(command, trials) -> None:
    result = CliRunner().invoke(cli.build(), [*command, "--trials", trials])
    assert result.exit_code == 2
    assert "at most 1,000,000,000" in " ".join(result.stderr.split())


def test_more_trials_than_fit_are_refused_in_python() -> None:
    for most in (10**11, 10**99):
        with pytest.raises(InvalidParameter, match="at most"):
            audit.measure(lambda value: value, neighbours=(0, 1), trials=most, confidence=0.9)
