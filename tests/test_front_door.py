"""The front door opens quickly, and nothing heavy comes through it uninvited."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import deniable
from deniable.errors import MissingExtra
from tests.wording import worded

SOURCE = Path(deniable.__file__).parent


def in_a_fresh_interpreter(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def cpu_seconds_to_import(module: str) -> float:
    """Processor time on top of the bare interpreter's, best of seven: other work on the machine only ever adds."""
    code = f"import time; before = time.process_time(); import {module}; print(time.process_time() - before)"
    return min(float(in_a_fresh_interpreter(code)) for _ in range(7))


def loaded_after(statement: str) -> set[str]:
    return set(in_a_fresh_interpreter(f"{statement}\nimport sys; print('\\n'.join(sys.modules))").split())


def roots(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_importing_deniable_loads_only_the_standard_library() -> None:
    # What the interpreter itself loads at start (site, .pth files of the environment) is not ours.
    ours = roots(loaded_after("import deniable")) - roots(loaded_after("pass"))
    assert ours - set(sys.stdlib_module_names) == {"deniable"}


@pytest.mark.parametrize("statement", ["import deniable.units", "from deniable import Unit, Sensitivity, Guarantee"])
def test_units_load_neither_numpy_nor_scipy(statement: str) -> None:
    assert not roots(loaded_after(statement)) & {"numpy", "scipy"}


def test_importing_curves_loads_no_scipy() -> None:
    assert "scipy" not in roots(loaded_after("import deniable.curves"))


def test_reading_curves_never_loads_scipy_stats() -> None:
    reading = "from deniable import curves; (curves.gaussian(sigma=1).sampled(rate=0.1) ** 9).epsilon(delta=1e-5)"
    assert "scipy.stats" not in loaded_after(reading)


def test_importing_deniable_costs_less_than_a_twentieth_of_a_second() -> None:
    assert cpu_seconds_to_import("deniable") < 0.05


def test_importing_curves_costs_less_than_a_quarter_of_a_second() -> None:
    assert cpu_seconds_to_import("deniable.curves") < 0.25


def test_the_front_door_is_small_and_sorted() -> None:
    assert len(deniable.__all__) <= 40
    assert deniable.__all__ == sorted(set(deniable.__all__))


def rooms_behind_lazy_doors() -> list[str]:
    found = [file for file in SOURCE.rglob("__init__.py") if "lazy_door(" in file.read_text(encoding="utf-8")]
    return sorted(".".join(file.parent.relative_to(SOURCE.parent).parts) for file in found)


def test_the_front_door_and_the_rooms_with_many_names_are_lazy() -> None:
    lazy = {"attacks", "audit", "curves", "learn", "learn.sklearn", "local", "mechanisms", "queries", "testing"}
    assert rooms_behind_lazy_doors() == ["deniable", *(f"deniable.{room}" for room in sorted(lazy))]


@pytest.mark.parametrize("room", rooms_behind_lazy_doors())
def test_every_name_opens_and_is_found_in_its_home(room: str) -> None:
    door = importlib.import_module(room)
    for name, home in door._HOMES.items():
        if (room, name) == ("deniable.learn", "torch") and find_spec("torch") is None:
            with pytest.raises(MissingExtra, match=r"deniable\[torch\]"):
                door.__getattr__(name)
            continue
        module = importlib.import_module(f"{room}.{home}")
        expected = module if home == name else getattr(module, name)
        assert door.__getattr__(name) is expected
        assert getattr(door, name) is expected


@pytest.mark.parametrize("room", rooms_behind_lazy_doors())
def test_the_list_the_table_and_the_type_checker_agree(room: str) -> None:
    door = importlib.import_module(room)
    tree = ast.parse(Path(door.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    assert isinstance(checked.test, ast.Name)
    assert checked.test.id == "TYPE_CHECKING"
    seen = {}
    for node in checked.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            seen[alias.name] = alias.name if node.module == room else node.module.removeprefix(f"{room}.")
    assert seen == door._HOMES
    assert sorted(seen) == sorted(door.__all__)


def test_dir_shows_what_has_not_been_opened_yet() -> None:
    assert dir(deniable) == sorted([*deniable.__all__, "__version__"])


@pytest.mark.parametrize("room", [room for room in rooms_behind_lazy_doors() if room != "deniable"])
def test_dir_of_a_room_is_what_it_offers(room: str) -> None:
    door = importlib.import_module(room)
    assert dir(door) == sorted(door.__all__)


def test_an_unknown_name_is_an_attribute_error_that_says_so() -> None:
    with worded(AttributeError):
        deniable.Laplase  # noqa: B018 (the access is the test)
