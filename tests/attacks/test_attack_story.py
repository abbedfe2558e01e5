"""The command `deniable attack`: a story in a table, a picture, a record for machines, and plain errors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from deniable import attacks, cli
from deniable.attacks import attack_story
from deniable.attacks.attack_game import Attack

pytest.importorskip("typer")
from typer.testing import CliRunner


def asked(*arguments: str, columns: int = 80) -> str:
    result = CliRunner().invoke(cli.build(), list(arguments), env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.build(), list(arguments))
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr


@pytest.mark.slow
def test_the_story_of_reconstruction_fits_a_terminal() -> None:
    text = asked("attack", "reconstruction", "--epsilon", "0.1", "1", "10", "--trials", "300")
    assert max(map(len, text.splitlines())) <= 80
    assert "100.0 (98.7 … 100.0) %" in text  # without privacy: one side only
    assert " ± " in text
    for words in (
        "Laplace on each answer",
        "randomized response",
        "73.11 %",
        "nobody beats",
        "No proof that anyone beat the cap.",
    ):
        assert words in " ".join(text.split())
    assert [line.split()[0] for line in text.splitlines() if "Laplace" in line] == ["0.1", "1", "10"]


@pytest.mark.slow
@pytest.mark.parametrize("name", attacks.STORIES)
def test_every_story_is_told(name: str) -> None:
    few = "20" if name in ("linear-reconstruction", "model-membership") else "100"
    text = asked("attack", name, "--epsilon", "1", "--trials", few)
    assert max(map(len, text.splitlines())) <= 80
    assert "No proof that anyone beat the cap." in " ".join(text.split())
    assert isinstance(attacks.STORIES[name].make(), Attack)


def test_a_homogeneous_class_with_a_delta_is_told_with_both_noises() -> None:
    text = asked("attack", "homogeneity", "--epsilon", "1", "--delta", "1e-6", "--trials", "100")
    assert [line for line in text.splitlines() if " noisy counts" in line and "Gaussian" not in line]
    assert "Gaussian noisy counts" in text


def test_one_round_is_one_round() -> None:
    text = asked("attack", "differencing", "--epsilon", "1", "--trials", "1")
    assert "1 round each" in text


INTERVALS = {
    "both sides alike": (500, 1000, "50.0 ± 3.2 %"),
    "alike to a tenth": (5730, 10_000, "57.3 ± 1.0 %"),
    "always right": (10_000, 10_000, "100.0 (99.9 … 100.0) %"),
    "never right": (0, 20, "0.0 (0.0 … 16.9) %"),
    "few rounds": (15, 20, "75.0 (50.8 … 91.4) %"),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_an_interval_is_shown_as_it_is(name: str) -> None:
    """Never narrower than it is, and ± only where that is true."""
    hits, trials, shown = INTERVALS[name]
    outcome = attacks.Outcome("an attack", "noise", hits, trials, None)
    assert attack_story._measured(outcome, lambda text, style: text) == shown


def test_without_a_name_all_are_listed() -> None:
    text = asked("attack")
    assert [line.split()[0] for line in text.splitlines() if line and not line.startswith((" ", "Try"))] == list(
        attacks.STORIES
    )


@pytest.mark.slow
def test_a_picture_and_a_record(tmp_path: Path) -> None:
    path = tmp_path / "story.svg"
    options = ("--epsilon", "1", "--epsilon", "0.5", "--delta", "1e-6", "--trials", "200", "--confidence", "0.99")
    record = json.loads(asked("attack", "differencing", *options, "--plot", str(path), "--json"))
    assert path.stat().st_size > 5_000
    assert record["attack"] == "differencing"
    assert record["no_privacy"]["rate"] == 1.0
    assert [run["epsilon"] for run in record["runs"]] == [0.5] * 3 + [1.0] * 3
    for run in record["runs"]:
        assert run["interval"]["low"] <= run["rate"] <= run["interval"]["high"]
        assert run["interval"]["confidence"] == 0.99
        assert run["baseline"] == 0.5 < run["cap"]
        assert not run["beats_cap"]


WRONG = {
    "unknown": (["attack", "guessing", "--epsilon", "1"], "there are linkage, homogeneity"),
    "nearly": (["attack", "reconstrution", "--epsilon", "1"], "did you mean reconstruction? there are linkage"),
    "no name": (["attack", "--epsilon", "1"], "there are linkage"),
    "no name, for machines": (["attack", "--json"], "there are linkage"),
    "half rounds": (["attack", "averaging", "--trials", "1.5"], "such as 100000"),
    "negative": (["attack", "averaging", "--epsilon", "-1"], "positive"),
    "nan": (["attack", "averaging", "--epsilon", "nan"], "epsilon=nan: must not be NaN"),
    "twice": (["attack", "averaging", "--epsilon", "1", "1"], "twice"),
    "text": (["attack", "averaging", "--epsilon", "small"], "--epsilon"),
    "more text": (["attack", "averaging", "--epsilon", "1", "small"], "valid number"),
    "trials": (["attack", "averaging", "--epsilon", "1", "--trials", "0"], "at least 1"),
    "picture": (["attack", "averaging", "--epsilon", "1", "--plot", "x.gif"], ".png, .svg, .pdf"),
    "confidence": (["attack", "averaging", "--epsilon", "1", "--confidence", "2"], "strictly between"),
    "many": (["attack", "averaging", "--epsilon", *map(str, range(1, 30))], "1 to 20"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_asked_wrongly_exits_with_2(name: str) -> None:
    arguments, words = WRONG[name]
    code, said = refused(*arguments)
    assert code == 2
    assert words in said


def test_all_names_open() -> None:
    assert sorted(attacks.__all__) == dir(attacks) == sorted(attacks._HOMES)
    for name in attacks.__all__:
        assert getattr(attacks, name) is not None
    with pytest.raises(AttributeError):
        attacks.guess  # noqa: B018 (the access is the test)


def test_without_epsilon_three_usual_ones_are_tried() -> None:
    text = asked("attack", "homogeneity", "--trials", "1e2")
    lines = [line.split() for line in text.splitlines() if "randomized" in line]
    assert [line[0] for line in lines] == ["0.1", "1", "10"]
    # "nobody beats": e^ε/(1 + e^ε), rounded up to hundredths of a percent; other levels than those named have others.
    caps = [math.ceil(10_000 / (1 + math.exp(-epsilon))) / 100 for epsilon in (0.1, 1, 10)]
    assert [float(line[-2]) for line in lines] == caps
    assert "100 rounds each" in text


def test_a_delta_that_changes_nothing_is_said() -> None:
    for name, is_said in (("attribute", True), ("differencing", False)):
        result = CliRunner().invoke(
            cli.build(), ["attack", name, "--epsilon", "1", "--delta", "1e-6", "--trials", "20", "--json"]
        )
        assert ("--delta has no effect" in result.stderr) == is_said
        assert json.loads(result.stdout)["runs"]


def test_help_says_what_is_usual() -> None:
    text = " ".join(asked("attack", "--help", columns=200).split())
    assert "levels" not in text.lower()
    assert "Default: --epsilon 0.1 1 10" in text
    assert "mostly 10,000" in text
