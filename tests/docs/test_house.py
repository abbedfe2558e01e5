"""The map of the house and the four lives: drawn from what is there now, readable, and true of a real run."""

from __future__ import annotations

import ast
import importlib.util
import sys
import threading
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

import deniable as dn
from deniable import curves
from tests.queries.hospital import visits

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deniable"
DOCS = ROOT / "docs"


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


LIVES = _loaded("house_lives")
HOUSE = _loaded("draw_house")
DRAWN = {name: (title, made) for name, title, made in HOUSE.pictures()}
PLACES = sorted({place for life in LIVES.LIVES for step in life.steps for place in step.places})


# -- the pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWN)
def test_no_picture_of_the_house_is_stale(name: str) -> None:
    title, made = DRAWN[name]
    held = (DOCS / "pictures" / name).read_text("utf-8")
    assert made().svg(title) == held, "run: python docs/draw_house.py"
    assert ElementTree.fromstring(held).tag.endswith("svg")


@pytest.mark.parametrize("name", DRAWN)
def test_no_text_leaves_the_picture_or_lies_on_another(name: str) -> None:
    texts = DRAWN[name][1]().texts
    assert len(texts) > 20
    assert [words for left, _, right, _, words in texts if left < 0 or right > HOUSE.WIDTH] == []
    for (left, top, right, bottom, one), (begin, above, end, below, other) in combinations(texts, 2):
        assert right <= begin or end <= left or bottom <= above or below <= top, (one, other)


def test_the_map_has_every_door_that_a_chain_of_doors_does_not_imply() -> None:
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}
    assert HOUSE.shortest(pairs) == [("a", "b"), ("a", "d"), ("b", "c")]
    found = HOUSE.doors()
    assert {("queries", "ledger"), ("server", "queries"), ("units", "curves")} <= found
    order = HOUSE.order()
    assert all(order.index(start) < order.index(end) for start, end in found)


def test_rooms_within_rooms_are_read_from_the_source() -> None:
    for room in ("queries", "curves", "server"):
        there = {path.parent.name for path in (SOURCE / room).glob("*/__init__.py")}
        assert set(HOUSE.inside(room)) == there
        assert len(there) > 4


# -- the lives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_a_life_names_exists(place: str) -> None:
    module, _, name = place.partition(":")
    body: list[ast.stmt] = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text("utf-8")).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
        ]
        assert found, f"{module} has no {name}"
        body = found[0].body


def calls_of(work: Callable[[], Any]) -> list[str]:
    """The functions of deniable that work calls, in all threads that it starts, in the order of their first calls."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCE)):
            module = path[len(str(SOURCE)) + 1 : -len(".py")].replace("/", ".")
            found.setdefault(f"{module}:{frame.f_code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def check_order(life: Any, called: list[str], *, missing: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """The first places of all steps are called, in the order of the steps; but for those that this run cannot show."""
    firsts = [step.places[0] for step in life.steps if step.places[0] not in missing]
    assert [place for place in firsts if place not in called] == []
    for before, after in pairwise(firsts):
        assert called.index(before) < called.index(after), (before, after)


def check_rest(life: Any, called: list[str], *, missing: set[str]) -> None:
    """All other places that are functions are called too."""
    functions = [
        place
        for step in life.steps
        for place in step.places
        if place.rpartition(".")[2].rpartition(":")[2][0].islower() or "__" in place
    ]
    assert {place for place in functions if place not in called} == missing


def test_a_question_lives_as_drawn() -> None:
    schema = {"ward": dn.Domain.text("A", "B", "C", nullable=False), "age": dn.Domain.integer(0, 100, nullable=False)}
    unit, budget = dn.Unit.person("patient_id", rows=3), dn.Budget(epsilon=1, delta=1e-6)
    with dn.session(visits(), unit=unit, budget=budget, schema=schema) as s:
        sql = "SELECT ward, AVG(age) AS a FROM data WHERE age > 17 GROUP BY ward"
        called = calls_of(lambda: s.sql(sql, epsilon=0.1).to_pandas())
    shown = {"queries.answer.answer:Answer"}
    check_order(LIVES.QUESTION, called, missing=shown)
    check_rest(LIVES.QUESTION, called, missing=set())


def test_a_curve_lives_as_drawn() -> None:
    # Moments of the last factor are not known in closed form, so the product is composed on a lattice.
    other = curves.generalized_gaussian(scale=9.0, power=1.5)
    called = calls_of(lambda: (curves.gaussian(sigma=2) ** 10 * curves.laplace(scale=3.75) * other).delta(epsilon=5.1))
    check_order(LIVES.CURVE, called)
    check_rest(LIVES.CURVE, called, missing=set())


@pytest.mark.torch
def test_a_training_step_lives_as_drawn() -> None:
    torch = pytest.importorskip("torch")
    inputs = torch.linspace(-1, 1, 600).reshape(120, 5)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    plan = dn.learn.DPSGD(clip=1.0, rate=0.5, steps=2, noise=1.0)
    trainer = dn.learn.torch.Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data)

    def train() -> None:
        for x, y in trainer:
            trainer.backward(torch.nn.functional.cross_entropy(model(x), y, reduction="none"))

    called = calls_of(train)
    check_order(LIVES.TRAINING, called)
    check_rest(LIVES.TRAINING, called, missing={"learn.torch.gradients.vmap_rerun:rerun"})


@pytest.mark.slow
def test_a_request_lives_as_drawn(tmp_path: Path) -> None:
    from tests.server.world import made

    world, answers = made(tmp_path), []

    def serve() -> None:
        with world.client:
            answers.append(world.ask(key="once", epsilon=0.1))

    called = calls_of(serve)
    assert answers[0].status_code == 200
    before = {  # no socket here; and the routes were made with the application
        "server.requests.connections:protocol",
        "server.operations.server_processes:configured",
        "server.routes.question_routes:router",
    }
    check_order(LIVES.REQUEST, called, missing=before)
    check_rest(LIVES.REQUEST, called, missing=before)
