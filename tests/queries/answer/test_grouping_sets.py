"""ROLLUP, CUBE and GROUPING SETS: one question, several tables."""

from __future__ import annotations

import pytest

from deniable.errors import InvalidParameter, QuestionRefused
from deniable.queries.answer.grouping_sets import Grouped, sets_of
from tests.queries.answer.test_joint_tables import COSTS
from tests.queries.hospital import BUDGETS, opened

HEAD = "SELECT ward, sex, COUNT(*) AS n FROM visits GROUP BY "


@pytest.mark.parametrize(
    ("clause", "keys"),
    [
        ("ROLLUP(ward, sex)", [("ward", "sex"), ("ward",), ()]),
        ("rollup (ward, (sex))", [("ward", "sex"), ("ward",), ()]),
        ("CUBE(ward, sex)", [("ward", "sex"), ("ward",), ("sex",), ()]),
        ("GROUPING SETS ((ward, sex), sex, ())", [("ward", "sex"), ("sex",), ()]),
        ("ward, ROLLUP(sex)", [("ward", "sex"), ("ward",)]),
        ("ROLLUP((ward, sex))", [("ward", "sex"), ()]),
        ("GROUPING SETS (ROLLUP(ward), CUBE(sex))", [("ward",), (), ("sex",)]),
        ("ROLLUP(1, 2)", [("ward", "sex"), ("ward",), ()]),
    ],
)
def test_a_text_is_taken_apart(clause: str, keys: list[tuple[str, ...]]) -> None:
    with opened() as s:
        found = sets_of(HEAD + clause, s.tables)
        assert found is not None
        assert [tuple(key.name for key in each.keys) for each in found.questions] == keys
        assert found.names == ("ward", "sex", "n")


@pytest.mark.parametrize("kind", BUDGETS)
def test_the_tables_are_one_batch(kind: str) -> None:
    text = "SELECT ward AS w, sex, GROUPING(w, sex) AS g, GROUPING(sex) AS h, COUNT(*) AS n FROM visits GROUP BY CUBE(w, sex)"
    with opened(budget=BUDGETS[kind]) as s:
        price = s.price_batch(text, **COSTS[kind])
        assert s.price(text, **COSTS[kind]) == price, "what sql would charge"
        assert s.explain(text).count("COUNT(*)") >= 4
        answer = s.sql(text, **COSTS[kind])
        assert isinstance(answer, Grouped)
        assert s.ledger.charged == price.cost
        assert answer.columns == ("w", "sex", "g", "h", "n")
        assert [(row["g"], row["h"]) for row in answer] == [(0, 0)] * 6 + [(1, 1)] * 3 + [(2, 0)] * 2 + [(3, 1)]
        rows = {(row["w"], row["sex"]): row["n"] for row in answer}
        assert sum(rows[ward, "f"] for ward in "ABC") == pytest.approx(rows[None, "f"])  # type: ignore[misc]
        assert rows[None, "f"] + rows[None, "m"] == pytest.approx(rows[None, None])  # type: ignore[operator]
        assert all(around is not None for around in answer.interval("n"))
        assert answer.guarantee.curve.epsilon(delta=1e-6) <= s.spent.epsilon(delta=1e-6) * (1 + 1e-9)
        again = s.sql(text, **COSTS[kind])
        assert again.rows == answer.rows
        assert again.receipt.replayed
        assert again.guarantee.curve.epsilon(delta=1e-6) >= answer.guarantee.curve.epsilon(delta=1e-6)
        assert s.ledger.charged == price.cost
        assert next(entry.description for entry in s.ledger.entries()) == text
        assert "NULL" in str(answer)
        assert len(answer.to_dict()["tables"]) == 4


def test_other_measures_and_targets() -> None:
    with opened() as s:
        both = s.sql("SELECT ward, AVG(cost) AS c, COUNT(*) AS n FROM visits GROUP BY ROLLUP(ward)", mu=10)
        assert len(both) == 4
        assert both["ward"] == ("A", "B", "C", None)
        near = s.sql(HEAD + "ROLLUP(ward, sex)", within=40)
        low, high = near.interval("n")[-1]  # type: ignore[misc]
        assert high - low <= 80.001


def test_texts_that_only_sound_like_it_are_questions() -> None:
    with opened() as s:
        assert sets_of("SELECT COUNT(*) AS rollup FROM visits", s.tables) is None
        assert s.sql("SELECT COUNT(*) AS cube FROM visits", mu=1).columns == ("cube",)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "ROLLUP(ward, sex) ORDER BY n",
        HEAD + "CUBE(ward, sex) LIMIT 3",
        HEAD + "CUBE(ward, sex, age, stay, town, 1, 2, cost)",
        HEAD + "ROLLUP(ward, patient_id)",
        "SELECT height, COUNT(*) FROM visits GROUP BY ROLLUP(height)",
        "SELECT age, COUNT(*) AS n FROM visits GROUP BY ROLLUP(ward)",
        HEAD + "ROLLUP(9)",
        "SELECT COUNT(*) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP(ward)) AS t",
        HEAD + "ROLLUP(",
    ],
)
def test_what_is_no_such_question_is_refused(text: str) -> None:
    with opened() as s:
        with pytest.raises((QuestionRefused, InvalidParameter)):
            s.sql(text, mu=1)
        with pytest.raises((QuestionRefused, InvalidParameter)):
            s.price_batch(text, mu=1)
        assert list(s.ledger.entries()) == []
