"""The third verdict: where the answers show no difference at all, that is said, and never taken for a success."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deniable import audit, cli, curves, mechanisms
from deniable.audit import audit_commands, zoo
from deniable.testing import statistics

pytest.importorskip("typer")
from typer.testing import CliRunner

SURE = 1 - 1e-9
ONE = curves.pure(epsilon=1.0)


def nothing(found: audit.Finding) -> bool:
    assert found.verdict == "nothing seen"
    assert found.sentence.startswith("Nothing seen: ")
    assert "onsistent" not in found.sentence
    assert (bool(found.refuted), found.seen, found.epsilon) == (False, False, 0.0)
    return True


class Opaque:
    __slots__ = ()


BLIND: dict[str, Any] = {
    "one number": lambda value: 7,
    "None": lambda value: None,
    "NaN": lambda value: math.nan,
    "the same error or nothing": lambda value: 1 / random.choice([0, 0]) if random.random() < 0.5 else None,
    "noise": lambda value: random.random(),
    "noise in text": lambda value: f"about {random.random()}",
    "an address": lambda value: [print, object()],
    "compressed": lambda value: random.randbytes(20),
}


@pytest.mark.parametrize("name", BLIND)
def test_what_shows_nothing_is_not_consistent(name: str) -> None:
    """False alarm of this test: 1e-9."""
    found = audit.measure(BLIND[name], neighbours=(0, 1), claim=ONE, trials=300, confidence=SURE)
    assert nothing(found)
    assert found.read.answers == 600


def test_why_nothing_was_seen_is_said() -> None:
    alike = audit.measure(lambda value: 7, neighbours=(0, 1), claim=ONE, trials=300, confidence=SURE)
    assert "All 600 answers were alike" in alike.sentence
    assert alike.read.changing == 0
    noisy = audit.measure(lambda value: random.random(), neighbours=(0, 1), claim=ONE, trials=3000, confidence=0.999)
    assert "would have shown up to ε = 0.8" in noisy.sentence
    assert 0.8 < noisy.reach < 1
    small = curves.pure(epsilon=0.01)
    few = audit.measure(lambda value: random.random(), neighbours=(0, 1), claim=small, trials=300, confidence=SURE)
    assert "So few trials cannot show so small an ε" in few.sentence
    assert few.reach == 0
    zero = audit.measure(
        lambda value: random.random(), neighbours=(0, 1), claim=curves.identity(), trials=300, confidence=SURE
    )
    assert nothing(zero)
    assert "No number of answers can prove" in zero.sentence
    hidden = audit.measure(lambda value: [print, random.random()], neighbours=(0, 1), trials=300, confidence=SURE)
    assert nothing(hidden)
    assert "Not read: builtin_function_or_method" in hidden.sentence


def test_the_reach_is_what_randomized_response_shows() -> None:
    """Measured on the tightest mechanism that there is, with the same trials: the median of 20 is within 0.05."""

    def told(value: int) -> bool:
        return bool(value) ^ (random.random() < 1 / (1 + math.e))

    found = [audit.measure(told, neighbours=(0, 1), claim=ONE, trials=3000, confidence=0.99) for _ in range(20)]
    assert float(np.median([one.epsilon for one in found])) == pytest.approx(found[0].reach, abs=0.05)


def test_a_difference_that_is_seen_is_consistent() -> None:
    found = audit.measure(mechanisms.Laplace(sensitivity=1, epsilon=1), neighbours=(0, 1), trials=3000, confidence=SURE)
    assert found.verdict == "consistent"
    assert found.seen
    assert "1 number, which changes" in found.read.sentence
    assert found.read.sentence in repr(found)
    bare = audit.measure(lambda value: value + random.random(), neighbours=(0, 1), trials=300, confidence=SURE)
    assert bare.verdict == "measured"
    wrong = audit.measure(lambda value: value, neighbours=(0, 1), claim=ONE, trials=300, confidence=SURE)
    assert wrong.verdict == "refuted"


def test_at_a_large_delta_the_band_is_what_sees() -> None:
    """ε(0.6) of a Gaussian with μ = 1 is 0, and the answers tell its neighbours apart all the same."""
    found = audit.measure(
        mechanisms.Gaussian(sensitivity=1.0, mu=1.0), neighbours=(0.0, 1.0), trials=5000, confidence=SURE, delta=0.6
    )
    assert found.epsilon == 0
    assert found.verdict == "consistent"


def test_rounds_say_what_all_of_them_read() -> None:
    found = audit.until_decided(lambda value: random.random(), neighbours=(0, 1), claim=ONE, most=3000, confidence=SURE)
    assert nothing(found)
    assert found.read.answers == 6000


@pytest.mark.parametrize("width", [1, 64, pytest.param(4096, marks=pytest.mark.slow)])
def test_noise_of_any_width_is_blamed_no_more_often_than_said(width: int) -> None:
    """24 audits of answers that say nothing, at a confidence of 0.7: anything is certified in at most 30 % of them,
    however many columns there are to choose from. False alarm of this test: 1e-9. (All 24 would be one in 10¹².)
    """
    runs, rng = 24, np.random.default_rng()
    false = 0
    for _ in range(runs):
        sides = [rng.integers(0, 9, (150, width)).astype(float) for _ in range(2)]
        found = audit.compare(*sides, claim=curves.identity(), confidence=0.7)
        false += found.verdict != "nothing seen"
    assert statistics.at_least(false, runs, probability=0.3) > 1e-9


# -- the command -----------------------------------------------------------------------------------------------------

MINE = """
import random

def blind(value):
    return {"said": "nothing"}

def noise(value):
    return random.random()

def count(value):
    return {"ward": "A", "n": round(value + random.choice([-1, 1]) * random.expovariate(1), 3)}

def bare(value):
    return '{"n": %d}' % value
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "third_verdict.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    asked = ["audit", *arguments, "--neighbours", "0", "1", "--trials", "2000", "--confidence", "0.999999999"]
    result = CliRunner().invoke(cli.build(), asked)
    return result.exit_code, result.stdout


def test_every_verdict_has_an_exit_code(folder: Path) -> None:
    claim = ("--claim", "pure(epsilon=1)")
    for name, wanted in (("blind", 4), ("noise", 4), ("count", 0), ("bare", 3)):
        code, out = run(f"third_verdict:{name}", *claim)
        assert code == wanted, out
        assert "Read in 4,000 answers" in out
        told = json.loads(run(f"third_verdict:{name}", *claim, "--json")[1])
        assert told["verdict"] == {4: "nothing seen", 0: "consistent", 3: "refuted"}[wanted]
    assert run("third_verdict:noise")[0] == 4, "without a claim as well"
    _, out = run("third_verdict:bare", *claim)
    assert "the number at 'n' of the JSON text" in out
    _, out = run("third_verdict:count", *claim)
    assert "the number at 'n'" in out
    assert "(dict): " in out


# -- the zoo ---------------------------------------------------------------------------------------------------------


def test_a_sound_one_of_which_nothing_is_seen_is_not_as_it_should_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = zoo.entries["Laplace"]
    found = audit.measure(
        lambda value: random.random(), neighbours=(0, 1), claim=entry.claim, trials=200, confidence=SURE
    )
    blind = zoo.Look(entry, found)
    assert not blind.caught
    assert not blind.as_it_should
    monkeypatch.setattr(zoo, "entries", {"Laplace": entry})
    monkeypatch.setattr(zoo, "look", lambda entry, **_: blind)
    assert audit_commands.zoo_command(trials=200, confidence=0.9) == 4
    out = capsys.readouterr().out
    assert "nothing seen of 1" in out
    assert "no, rightly" not in out


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in zoo.sound() if entry.mechanism is not None])
def test_something_is_seen_of_every_sound_one(name: str) -> None:
    """Each shows its neighbours apart with 100 000 trials, 16 or more standard deviations above nothing. (With 20 000 the
    noisy maximum lay 4 above.)
    """
    seen = zoo.look(zoo.entries[name], trials=100_000, confidence=0.999_999)
    assert seen.as_it_should, seen.finding
