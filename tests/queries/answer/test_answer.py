"""Answers as tables, pictures and records; intervals of arithmetic over noisy numbers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable.errors import InvalidParameter
from deniable.ledger.currency import Shape
from deniable.plots.figure_spec import Figure
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.answer_display import cell_text
from deniable.queries.intervals.draw_laws import reach
from deniable.queries.session import Session
from tests.queries.hospital import BUDGETS, opened
from tests.wording import worded

TEXT = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c, MEDIAN(age) AS m FROM visits GROUP BY ward ORDER BY n DESC"


@pytest.fixture(scope="module")
def s() -> Iterator[Session]:
    with opened() as session:
        yield session


@pytest.fixture(scope="module")
def answer(s: Session) -> Answer:
    return s.sql(TEXT, mu=2)


def test_an_answer_reads_like_a_table(answer: Answer) -> None:
    assert answer.columns == ("ward", "n", "c", "m")
    assert len(answer) == 3
    assert sorted(answer["ward"]) == ["A", "B", "C"]  # type: ignore[type-var]
    assert list(answer["n"]) == sorted(answer["n"], reverse=True)  # type: ignore[type-var]
    assert [row["ward"] for row in answer] == list(answer["ward"])
    assert answer.interval("ward") == (None, None, None)
    for name in ("n", "c", "m"):
        for value, (low, high) in zip(answer[name], answer.interval(name), strict=True):  # type: ignore[misc]
            assert low <= value <= high
    with worded(InvalidParameter, parameter="column"):
        answer["wart"]
    with worded(InvalidParameter):
        answer.value  # noqa: B018


def test_an_answer_goes_elsewhere(answer: Answer) -> None:
    pandas, polars, arrow = answer.to_pandas(), answer.to_polars(intervals=True), answer.to_arrow(intervals=True)
    assert list(pandas.columns) == ["ward", "n", "c", "m"]
    assert pandas["n"].tolist() == list(answer["n"])
    names = ["ward", "n", "n_low", "n_high", "c", "c_low", "c_high", "m", "m_low", "m_high"]
    assert polars.columns == arrow.column_names == names
    assert arrow["c_low"].to_pylist() == [each[0] for each in answer.interval("c") if each]


def test_an_answer_carries_its_papers(answer: Answer) -> None:
    record = json.loads(answer.to_json())
    assert record["rows"] == [list(row) for row in answer.rows]
    assert record["provenance"]["question"] == answer.plan.question.hash
    assert record["provenance"]["entry"] == answer.receipt.entry
    assert record["provenance"]["unit"] == "one person ('patient_id', at most 3 rows) added or removed"
    assert "paid mu 2" in str(answer.receipt)
    assert "mu 2" in record["provenance"]["paid"]
    assert answer.guarantee.curve.gdp() == pytest.approx(2)


def test_an_answer_can_be_looked_at(answer: Answer) -> None:
    from rich.console import Console

    text = str(answer)
    assert "noise interval at 95 %" in text
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(answer)
    assert "ward" in console.export_text()
    html = answer._repr_html_()
    assert html.count("<tr>") == 4
    assert "entry" in repr(answer)
    figure = answer.plot("c")
    assert isinstance(figure, Figure)
    assert figure.panels[0].y.names == tuple(reversed(answer["ward"]))
    with opened() as s, worded(InvalidParameter):
        s.sql("SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > -100000", mu=1).plot()


TOWNS = "SELECT town, COUNT(*) AS n FROM visits GROUP BY town"


def test_an_answer_says_from_which_number_of_people_on_keys_are_shown(s: Session, answer: Answer) -> None:
    few = s.sql(TOWNS, mu=0.001, delta=1e-9)  # about 28,000 people are needed, and there are 600
    assert len(few) == 0
    threshold = s.price(TOWNS, mu=0.001, delta=1e-9).threshold
    assert threshold is not None
    said = f"keys are not public: only those with about {threshold:,} people or more are shown"
    for shown in (str(few), few._repr_html_(), few.to_json()):
        assert said in " ".join(shown.split())
    with worded(InvalidParameter, parameter="answer"):
        few.plot("n")
    more = s.sql(TOWNS, mu=1)
    assert "keys are not public" in str(more)
    assert s.sql(TOWNS, mu=1).notes == more.notes, "told again when it is replayed"
    assert s.refine(few, mu=1).released.threshold is not None
    assert not any("keys are not public" in note for note in answer.notes)


def test_an_answer_says_how_many_rows_of_a_person_were_read(answer: Answer) -> None:
    assert "at most 3 rows of each person were read" in str(answer)
    bounded = {"a": dn.Unit.person("who", rows=1), "b": dn.Unit.person("who", rows=7)}
    tables = {name: pd.DataFrame({"who": [1, 2]}) for name in bounded}
    with dn.session(tables, unit=bounded, budget=BUDGETS["gaussian"]) as s:
        both = s.sql("SELECT COUNT(*) AS n FROM a JOIN b ON a.who = b.who", mu=1)
        assert both.notes == ("of each person were read at most 1 row of a, 7 rows of b",)
        assert "at most 1 row of each person was read" in str(s.sql("SELECT COUNT(*) AS n FROM a", mu=1))
    with dn.session({"a": tables["a"]}, unit=dn.Unit.row(), budget=BUDGETS["gaussian"]) as s:
        assert s.sql("SELECT COUNT(*) AS n FROM a", mu=1).notes == ()


def test_what_is_printed_fits_and_explains_itself(s: Session) -> None:
    table = pd.DataFrame({"who": range(3000), "town": ["a\nb", None, "c"] * 1000})
    with dn.session({"t": table}, unit=dn.Unit.person("who", rows=1), budget=dn.Budget(epsilon=50, delta=1e-3)) as own:
        found = own.sql(
            "SELECT town, COUNT(*) AS n, COUNT(*) / (COUNT(*) - COUNT(*)) AS q FROM t GROUP BY town", epsilon=5
        )
        assert len(found) == 3  # 1000 people each, and a threshold of some ten
        lines = str(found).splitlines()
        assert max(map(len, lines)) <= 80
        assert {line.split("  ")[0] for line in lines[2:5]} == {"NULL", "a\\nb", "c"}
        assert all(line.endswith("–") for line in lines[2:5])
        assert "– means no value (for example the mean of an empty group)" in lines
        assert len({len(line) for line in lines[2:5]}) == 1, "numbers stand below each other by their last digits"
        assert " ".join(lines).count("for unlisted keys") == 2, "of what was paid and of what is left"
        assert "means no value" not in str(own.sql("SELECT COUNT(*) AS n FROM t", epsilon=5))
    price = s.price("SELECT AVG(cost) AS c, STDDEV(age) AS d, COUNT(*) AS n FROM visits", mu=1)
    assert all(len(line) <= 80 for line in str(price).splitlines())
    assert "for unlisted keys" in str(price)


def test_a_picture_is_saved_and_says_what_it_leaves_out(s: Session, answer: Answer, tmp_path: Path) -> None:
    figure = answer.plot("n")
    figure.save(tmp_path / "n.svg")
    assert (tmp_path / "n.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert repr(figure) == "<Figure 'n with noise intervals at 95 %' of 1 panel; .save(path)>"
    assert "not drawn" not in figure.note
    many = s.sql("SELECT age, COUNT(*) AS n FROM visits GROUP BY age", mu=2).plot("n")
    assert len(many.panels[0].y.names) == 101
    text = "SELECT ward, COUNT(*) AS n, CASE WHEN ward = 'A' THEN NULL ELSE COUNT(*) END AS m FROM visits GROUP BY ward"
    part = s.sql(text, mu=2)
    assert len(part.plot("n").panels[0].y.names) == 3
    assert part.plot("m").panels[0].y.names == ("C", "B")
    assert "1 row is not drawn, for lack of a value or an interval" in part.plot("m").note
    with worded(InvalidParameter, parameter="column"):
        part.plot("ward")


def test_html_holds_no_markup_of_keys() -> None:
    table = pd.DataFrame({"patient_id": range(2000), "town": ["<script>alert(1)</script>"] * 2000})
    with dn.session({"t": table}, unit=dn.Unit.person("patient_id", rows=1), budget=BUDGETS["gaussian"]) as s:
        found = s.sql("SELECT town, COUNT(*) AS n FROM t GROUP BY town", mu=5)
        assert len(found) == 1
        assert "<script>" not in found._repr_html_()


@pytest.mark.parametrize(
    ("cell", "interval", "said"),
    [
        (6054, (5876, 6232), "6,054 ± 178"),
        (0.12345, (0.11, 0.137), "0.123 ± 0.014"),
        (51.0, (44.0, 56.0), "51.0 (44.0 … 56.0)"),
        (None, (0.0, 1.0), "–"),
        ("A", None, "A"),
        (True, None, "True"),
        (1234567, None, "1,234,567"),
        (5, (5, 5), "5 ± 0"),
    ],
)
def test_numbers_have_the_digits_that_noise_leaves(
    cell: object, interval: tuple[float, float] | None, said: str
) -> None:
    assert cell_text(cell, interval) == said  # type: ignore[arg-type]


def test_counts_can_be_kept_from_being_negative_and_say_so(s: Session) -> None:
    texts = [
        f"SELECT ward, COUNT(*) AS n, COUNT(*) - 5 AS less FROM visits WHERE age > {200 + i} GROUP BY ward"
        for i in range(20)
    ]
    found = [s.sql(text, mu=2) for text in texts]
    assert any(value < 0 for answer in found for value in answer["n"])  # type: ignore[operator]
    for answer in found:
        kept = answer.nonnegative()
        assert kept["n"] == tuple(max(0, value) for value in answer["n"])  # type: ignore[type-var]
        assert kept["less"] == answer["less"], "what was computed from counts is left as it is"
        assert all(each is not None and 0 <= each[0] <= each[1] for each in kept.interval("n"))
        assert "raised to 0" in str(kept)
        assert "raised to 0" in kept._repr_html_()
        assert kept.to_dict()["adjusted"]
        assert not answer.to_dict()["adjusted"]


# -- arithmetic over noisy numbers -----------------------------------------------------------------------------------


def test_intervals_of_arithmetic_follow_the_noise(s: Session) -> None:
    found = s.sql("SELECT COUNT(*) AS n, 2 * COUNT(*) + 5 AS twice, COUNT(*) - COUNT(*) AS zero FROM visits", mu=2)
    [(low, high)], [(low2, high2)] = found.interval("n"), found.interval("twice")  # type: ignore[misc]
    assert (high2 - low2) / (high - low) == pytest.approx(2, rel=0.05)
    assert found.interval("zero") == ((0, 0),), "noise that cancels is not counted twice"


def test_measures_that_share_a_count_move_together(s: Session) -> None:
    """AVG(age) · COUNT(*) is the sum again: its interval is near to that of the sum of what was measured."""
    found = s.sql("SELECT AVG(age) * COUNT(*) AS product, AVG(age) AS a, COUNT(*) AS n FROM visits", mu=2)
    [product], [average], [count] = (found.interval(name) for name in ("product", "a", "n"))
    assert product is not None
    assert average is not None
    assert count is not None
    half = [(high - low) / 2 for low, high in (product, average, count)]
    n, a = float(found["n"][0]), float(found["a"][0])  # type: ignore[arg-type]
    # S + 50·n with S the sum around the middle, 50: so noise of S and 50 times that of n.
    exact = math.hypot(50 * half[2], math.sqrt(max(0.0, (half[1] * n) ** 2 - ((a - 50) * half[2]) ** 2)))
    assert half[0] == pytest.approx(exact, rel=0.05)


def test_null_has_no_interval(s: Session) -> None:
    found = s.sql("SELECT COUNT(*) / (COUNT(*) - COUNT(*)) AS nothing, COUNT(*) > 3 AS many FROM visits", mu=2)
    assert found.rows == ((None, True),)
    assert found.interval("nothing") == found.interval("many") == (None,)


def test_an_average_of_what_may_be_nothing_is_not_told(s: Session) -> None:
    """Noise that happens to be 0, where noise alone could hide that there is nobody: no number, and every one possible."""
    asked = s.sql("SELECT AVG(cost) AS c, STDDEV(cost) AS d FROM visits WHERE age > 1000", mu=2)
    nobody = replace(asked.released, parts=tuple(np.zeros_like(part) for part in asked.released.parts))
    found = Answer(asked.plan, nobody, s.budget, asked.guarantee, asked.receipt, 0.95)
    assert found.rows == ((None, None),)
    assert found.interval("c") == ((0, 2000),)


# -- sums of noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deviations",
    [
        (1.0,),
        (1.0, 1.0),
        (3.0, 1.0),
        (1.0, 1.0, 1.0),
        (5.0, 1e-9),
        (2.0, 1.5, 0.3),
        (1.0,) * 9,
        (1.0,) * 11,
        (0.2,) * 12 + (1.0,) * 4,
    ],
)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_reach_of_a_sum_of_laplace_noises(deviations: tuple[float, ...], confidence: float) -> None:
    """Against the characteristic function Π 1/(1 + b²t²), inverted by quadrature."""
    from scipy.integrate import quad

    found = reach(Shape.LAPLACE, deviations, confidence)
    scales = [d / math.sqrt(2) for d in deviations if d > 1e-6]

    def wave(t: float) -> float:
        product = math.prod(1 / (1 + (b * t) ** 2) for b in scales)
        return product * math.sin(t * found) / t if t else product * found

    inside = 2 / math.pi * sum(quad(wave, k * 5, (k + 1) * 5, limit=200)[0] for k in range(60))
    assert inside == pytest.approx(confidence, abs=2e-3)


def test_the_reach_of_normal_noise() -> None:
    assert reach(Shape.NORMAL, (3.0, 4.0), 0.95) == pytest.approx(5 * 1.959963985, rel=1e-8)
    assert reach(Shape.NORMAL, (0.0,), 0.95) == 0


def test_the_note_on_thresholds_names_the_counts_that_decided() -> None:
    """It spoke of "intervals of counts" also where the count has noise of its own, whose interval is an ordinary one."""
    frame = pd.DataFrame({"p": list(range(300)) * 2, "w": ["A", "B", "C"] * 200})
    budget = dn.Budget.gaussian(mu=10, delta=1e-6)
    with dn.session({"t": frame}, unit=dn.Unit.person("p", rows=2), budget=budget) as s:
        [note] = [each for each in s.sql("SELECT w, COUNT(*) AS n FROM t GROUP BY w", mu=1).notes if "keys" in each]
        assert "intervals of" not in note
        asked = s.sql("SELECT w, COUNT(*) AS n, COUNT(DISTINCT p) * 2 AS twice FROM t GROUP BY w", mu=1)
        [note] = [each for each in asked.notes if "keys" in each]
        assert "intervals of twice reach far down" in note
