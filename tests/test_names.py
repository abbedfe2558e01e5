"""One word for one thing: class names and file names are unique, and every room says what is in it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import deniable

SOURCE = Path(deniable.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(file.parent for file in FILES if file.name == "__init__.py")

# Public classes that share a name with another, and why both keep it.
SHARED_CLASSES = {
    "Bounds": "mechanisms.Bounds finds bounds privately, session.bounds() returns queries.Bounds: both are public names",
    "Mean": "mechanisms.Mean is a mechanism, local.Mean the collector's estimate: both are public names",
    "Question": "queries.Question is public; the body of the server's route is a component of its OpenAPI document",
    "Shares": "local.Shares is public; that of mechanisms is named in its errors, which must not change",
}

# Files that Python, or Alembic, looks for by their name.
CONVENTIONAL_FILES = {"__init__.py", "__main__.py", "env.py"}


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def definitions() -> dict[str, list[str]]:
    """The public classes at the top of all modules: name -> modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        # A pattern, because a tree of every module takes seconds.
        for name in re.findall(r"^class ([^\W_]\w*)", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
            found[name].append(named(file))
    return found


def test_no_public_class_name_is_defined_in_two_modules() -> None:
    found = definitions()
    assert len(found) > 400
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SHARED_CLASSES} == {}
    assert set(twice) == set(SHARED_CLASSES), "an exception that is needed no longer is taken off the list"


def test_no_file_name_is_used_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        found[file.name].append(named(file))
    assert len(found) > 300
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in CONVENTIONAL_FILES} == {}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCE.parent).as_posix())
def test_a_room_says_in_three_lines_or_more_what_is_in_it(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert len([line for line in said.splitlines() if line.strip()]) >= 3


def inside(room: Path) -> set[str]:
    """The files and rooms in a room, without the numbered steps of migrations."""
    found = {path.stem for path in room.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return {name for name in found - {"__init__", "__main__"} if re.fullmatch(r"v\d{4}_\w+", name) is None}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCE.parent).as_posix())
def test_a_room_names_every_file_in_it(room: Path) -> None:
    """Half of the rooms left files out, most of them newer than the list. README lists the rooms of the house."""
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    if room == SOURCE:
        said = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").partition("## The rooms")[2]
    assert {name for name in inside(room) if re.search(rf"\b{name}\b", said) is None} == set()


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCE.parent).as_posix())
def test_a_name_at_a_door_is_not_hidden_by_a_file_of_that_name(room: Path) -> None:
    """Importing deniable.curves.product would set `product` in deniable.curves, and the function would be gone."""
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    homes = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    ]
    assert [name for table in homes for name, home in table.items() if name in inside(room) and home != name] == []


GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"


def test_every_module_that_the_glossary_names_exists() -> None:
    lines = [line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    homes = [re.fullmatch(r"`(deniable[\w.]*)`", line.split("|")[-2].strip()) for line in lines]
    found = [home[1] for home in homes if home]
    assert len(found) == sum(not re.match(r"\| (Word|---) \|", line) for line in lines)
    assert len(found) > 100
    paths = [SOURCE.parent / home.replace(".", "/") for home in found]
    missing = [p for p in paths if not p.with_suffix(".py").exists() and not (p / "__init__.py").exists()]
    assert missing == []


def test_the_glossary_has_each_word_once() -> None:
    page = GLOSSARY.read_text(encoding="utf-8")
    words = [re.sub(r" \(.*", "", word) for word in re.findall(r"^\| ([^|]+?) \|", page, flags=re.MULTILINE)]
    words = [word for word in words if word not in ("Word", "---")]
    # Two each: which one is said in brackets or by its part.
    explained = {
        "checkpoint",
        "plan",
        "relation",
        "domain",
        "expression",
        "unit",
        "batch",
        "key",
        "mark",
        "share",
        "window",
    }
    assert {word for word in words if words.count(word) > 1} <= explained


PAGES = [Path(__file__).parents[1] / name for name in ("README.md", "CONTRIBUTING.md")]
PAGES += sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
PATH = re.compile(r"(?:src/deniable/)?((?:\w+/)+\w+\.py)")
LOGGER = "deniable.security"


def test_every_file_and_module_that_a_page_names_exists() -> None:
    """Pages said `engines/apart.py` and `attacks.secrets` for as long as nobody looked."""
    root, missing, seen = SOURCE.parents[1], [], 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for code in re.findall(r"`([^`\n]+)`", text):
            if path := PATH.fullmatch(code):
                seen += 1
                if not (SOURCE / path[1]).exists() and not (root / code).exists():
                    missing.append((page.name, code))
        for name in set(re.findall(r"\bdeniable(?:\.[a-z_]+)+", text)) - {LOGGER}:
            seen += 1
            if not _exists(name.split(".")[1:]):
                missing.append((page.name, name))
    assert missing == []
    assert seen > 200


def _exists(parts: list[str]) -> bool:
    """Whether there is such a module, or a name in the module that all but the last part name."""
    *above, last = parts
    place = SOURCE.joinpath(*above)
    if (place / last).is_dir() or (place / f"{last}.py").exists():
        return True
    door = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return door.exists() and re.search(rf"\b{last}\b", door.read_text(encoding="utf-8")) is not None
