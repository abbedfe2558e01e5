"""`deniable curve`: a table or JSON of a curve, on the safe side; what is wrong is one plain error."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from deniable import curves
from tests.cli.shell import asked, refused, run

EXAMPLE = "gaussian(sigma=50)**1000 * laplace(scale=4)"


CURVE = curves.gaussian(sigma=50) ** 1000 * curves.laplace(scale=4)


@pytest.mark.slow
def test_the_example_of_the_readme() -> None:
    done = run("curve", EXAMPLE, "--delta", "1e-6")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ε at δ = 1e-06" in done.stdout
    assert "3.0871" in done.stdout
    assert "equal error rate" in done.stdout
    assert "An attacker with a 50 % prior is right at most 63.27 % of the time." in done.stdout


def test_the_table_is_on_the_safe_side() -> None:
    text = asked("curve", EXAMPLE, "--delta", "1e-6")
    low, high = CURVE.epsilon_bounds(delta=1e-6)
    said = re.search(r"ε at δ = 1e-06\s+(\S+)\s+the truth lies in \[(\S+), (\S+)\]", text)
    assert said is not None
    assert float(said[1]) >= high
    assert float(said[2]) <= low
    assert float(said[3]) >= high
    right = re.search(r"right at most (\S+) %", text)
    assert right is not None
    assert float(right[1]) / 100 >= CURVE.guess(prior=0.5)


def test_delta_may_be_asked_instead() -> None:
    text = asked("curve", "laplace(scale=1)", "--epsilon", "0.5")
    assert "δ at ε = 0.5" in text
    assert "0.2212" in text
    code, said = refused("curve", "laplace(scale=1)", "--epsilon", "-5")  # δ is no promise there
    assert (code, said) == (2, "deniable: --epsilon=-5.0: must be 0 or more; try --epsilon 1\n")


def test_json_is_for_machines() -> None:
    record = json.loads(asked("curve", EXAMPLE, "--delta", "1e-6", "--json"))
    low, high = CURVE.epsilon_bounds(delta=1e-6)
    assert record["delta"] == 1e-6
    assert record["epsilon"] == record["epsilon_bounds"]["high"] == pytest.approx(high, rel=1e-6)
    assert record["epsilon_bounds"]["low"] == pytest.approx(low, rel=1e-6)
    assert record["mu"] >= record["mu_but_for_delta"] > 0
    assert record["equal_error_rate"] == pytest.approx(CURVE.equal_error_rate())
    assert record["advantage"] == pytest.approx(CURVE.advantage())
    assert record["guess"] == {"prior": 0.5, "right_at_most": pytest.approx(CURVE.guess(prior=0.5))}
    assert curves.Curve.from_dict(record["curve"]) == CURVE


def test_json_of_the_other_question() -> None:
    record = json.loads(asked("curve", "pure(epsilon=1)", "--epsilon", "0.5", "--json"))
    assert record["delta"] == record["delta_bounds"]["high"] == pytest.approx(curves.pure(epsilon=1).delta(epsilon=0.5))


def test_infinity_stays_json() -> None:
    def forbidden(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    text = asked("curve", "approximate(epsilon=1, delta=0.1)", "--delta", "1e-6", "--json")
    record = json.loads(text, parse_constant=forbidden)
    assert record["epsilon"] == record["mu"] == "Infinity"
    assert math.isinf(float(record["epsilon"]))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_picture_is_drawn(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{ending}"
    asked("curve", "gaussian(sigma=2)", "--delta", "1e-6", "--plot", str(path))
    assert path.stat().st_size > 5_000


WRONG = {
    "misspelt": (["curve", "gausian(sigma=1)", "--delta", "1e-6"], "did you mean gaussian?"),
    "injection": (["curve", "__import__('os')", "--delta", "1e-6"], "is not allowed in an expression"),
    "negative sigma": (["curve", "gaussian(sigma=-1)", "--delta", "1e-6"], "must be positive"),
    "delta above 1": (["curve", "pure(epsilon=1)", "--delta", "2"], "must lie in [0, 1]"),
    "delta nan": (["curve", "pure(epsilon=1)", "--delta", "nan"], "NaN"),
    "epsilon nan": (["curve", "pure(epsilon=1)", "--epsilon", "nan"], "NaN"),
    "delta no number": (["curve", "pure(epsilon=1)", "--delta", "small"], "--delta"),
    "neither": (["curve", "pure(epsilon=1)"], "exactly one of them"),
    "both": (["curve", "pure(epsilon=1)", "--delta", "0", "--epsilon", "1"], "exactly one of them"),
    "picture format": (["curve", "pure(epsilon=1)", "--delta", "0", "--json", "--plot", "x.gif"], ".png, .svg, .pdf"),
    "unknown command": (["curv"], "curv"),
    "no expression": (["curve"], ""),
    "unknown option": (["curve", "pure(epsilon=1)", "--detla", "0"], ""),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_what_is_asked_wrongly_exits_with_2_and_one_error(arguments: list[str], words: str) -> None:
    code, said = refused(*arguments)
    assert code == 2
    assert words in said


@pytest.mark.parametrize("arguments", [WRONG["misspelt"][0], WRONG["delta no number"][0]], ids=["ours", "typer's"])
def test_nor_does_the_real_command_show_a_traceback(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_the_error_shows_the_place() -> None:
    code, said = refused("curve", "pure(epsilon=1) * gausian(sigma=1)", "--delta", "0")
    assert code == 2
    *_, line, caret = said.rstrip().splitlines()
    assert line[caret.index("^") :].startswith("gausian")


@pytest.mark.slow
def test_a_file_that_cannot_be_written_exits_with_1(tmp_path: Path) -> None:
    done = run("curve", "pure(epsilon=1)", "--delta", "0", "--plot", str(tmp_path / "nowhere" / "out.png"))
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert "check the path" in done.stderr
    assert "Traceback" not in done.stderr
