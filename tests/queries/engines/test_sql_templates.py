"""Questions of one shape are written once: filled in, the text is the one that writing it in full would make."""

from __future__ import annotations

import os
import random
import secrets
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deniable.queries.answer.plan_cache import Plans
from deniable.queries.engines import sql_generation, sql_templates
from deniable.queries.engines.duckdb import _SPELLING, DuckDBEngine
from deniable.queries.engines.engine_process import Apart
from deniable.queries.engines.sql_templates import Texts
from deniable.queries.relations.exact_statistics import Collect, Filling
from deniable.tables.schema import Table
from tests.queries.hospital import GAUSSIAN, SCHEMA, UNIT, visits

SHAPES = (
    "SELECT COUNT(*) AS n FROM visits WHERE age > {i}",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE age > {i} AND cost < {r} GROUP BY ward",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE cost < {i} AND stay >= {r} GROUP BY ward",
    "SELECT town, AVG(cost) AS c FROM visits WHERE age BETWEEN {i} AND {i} GROUP BY town",
    "SELECT sex, SUM(stay) AS s FROM visits WHERE NOT age <= {i} OR (cost > {r} AND ward = 'A') GROUP BY sex",
    "SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits WHERE age <> {i} GROUP BY ward",
    "SELECT ward, MEDIAN(age) AS a FROM visits WHERE cost > {r} GROUP BY ward",
)
SECRET = b"0" * 32


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filling") / "visits.csv"
    visits().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def engine(file: Path) -> Iterator[DuckDBEngine]:
    with DuckDBEngine() as made:
        made.register("visits", str(file), Table.of("visits", UNIT, **SCHEMA), SECRET)
        yield made


class Asking:
    """Questions of one shape, each with new numbers, as a session plans them."""

    def __init__(self, shape: str) -> None:
        self._shape, self._plans = shape, Plans({"visits": Table.of("visits", UNIT, **SCHEMA)}, GAUSSIAN)
        seed = secrets.randbits(32)
        print(f"seed {seed}")
        self._rng = random.Random(seed)

    def __call__(self, most: int = 100) -> Collect:
        text = self._shape
        while "{" in text:
            text = text.replace("{i}", str(self._rng.randrange(most)), 1)
            text = text.replace("{r}", f"{self._rng.random() * most:.{self._rng.randrange(1, 12)}f}", 1)
        return self._plans.plan(text, self._plans.question(text)).collect

    def filled(self, most: int = 100) -> Collect:
        return next(each for each in (self(most) for _ in range(50)) if each.filling is not None)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_is_the_one_that_writing_it_makes(shape: str, engine: DuckDBEngine) -> None:
    asking, texts, used = Asking(shape), Texts(), 0
    for turn in range(40):
        question = asking.filled(10 ** (2 + turn % 18))
        written = sql_generation.write(question, engine._tables, _SPELLING)
        assert question.filling is not None
        found = texts.filled(question.filling)
        if found is not None:
            used += 1
            assert found[1] == written.main
            alike = (found[0].keys, found[0].known, found[0].statistics)
            assert alike == (question.keys, question.known, question.statistics)
        texts.learn(question, written)
    assert (used > 5) == ("MEDIAN" not in shape), "cells have texts of their own, which are written each time"


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_filled_in_is_answered_as_the_whole_question_is(shape: str, engine: DuckDBEngine) -> None:
    asking = Asking(shape)
    for _ in range(5):
        question = asking.filled()
        assert question.filling is not None
        found, whole = engine.fill(question.filling), engine.collect(replace(question, filling=None))
        assert found in (None, whole)
        assert engine.collect(question) == whole
    assert (found is not None) == ("MEDIAN" not in shape)


def test_a_text_with_its_numbers_elsewhere_is_not_believed(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, real = Asking(SHAPES[1]), sql_templates._cut
    for wrong in (False, True):
        texts = Texts()
        if wrong:
            monkeypatch.setattr(sql_templates, "_cut", lambda text, numbers: (real(text, numbers) or [])[::-1])
        for _ in range(6):
            question = asking.filled(10**6)
            texts.learn(question, sql_generation.write(question, engine._tables, _SPELLING))
        last = asking.filled(10**6).filling
        assert last is not None
        assert (texts.filled(last) is None) == wrong
        assert texts.filled(Filling("another", last.numbers)) is None


def test_a_process_is_sent_numbers_alone_and_one_that_died_is_told_all_again(
    file: Path, engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, sent = Asking(SHAPES[1]), []
    with Apart(partial(DuckDBEngine, threads=1), seconds=60.0) as apart:
        apart.register("visits", str(file), Table.of("visits", UNIT, **SCHEMA), SECRET)
        for turn in range(16):
            if turn == 8:
                assert apart.process is not None
                os.kill(apart.process, signal.SIGKILL)
                os.waitpid(apart.process, 0)
            question = asking.filled(1000)
            with apart.turn():
                worker = apart._worker
                assert worker is not None
                real = type(worker).call

                def call(self: Any, verb: str, *more: Any, real: Any = real) -> Any:
                    sent.append(verb)
                    return real(self, verb, *more)

                with monkeypatch.context() as patch:
                    patch.setattr(type(worker), "call", call)
                    found = apart.collect(question)
            assert found == engine.collect(replace(question, filling=None))
    first, second = sent[:8], sent[8:]
    for each in (first, second):
        assert each[:2] == ["collect", "collect"]
        assert "fill" in each
        assert each[-1] == "fill"
