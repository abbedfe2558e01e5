"""The project keeps its own promises: commands that the pages name exist, files stay readable, nothing is used that is banned."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest

import deniable
from tests.table import every_row

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_file_is_at_most_600_lines() -> None:
    written = [
        path for place in ("src", "tests", "benchmarks", "docs") for path in sorted((ROOT / place).rglob("*.py"))
    ]
    assert len(written) > 300
    assert [named(path) for path in written if len(path.read_text(encoding="utf-8").splitlines()) > 600] == []


def test_every_ignored_type_has_its_reason_beside_it() -> None:
    """The reason stands behind `type: ignore`, or, where the line is long, on the line above it."""
    bare = []
    for path in SOURCES:
        lines = ["", *path.read_text().splitlines()]
        for number, (before, line) in enumerate(pairwise(lines), 1):
            is_bare = re.search(r"# type: ignore(\[[^]]*\])?\s*$", line) is not None
            if is_bare and not before.lstrip().startswith("# "):
                bare.append(f"{named(path)}:{number}")
    assert bare == []


@every_row((path,) for path in SOURCES)
def test_scipy_stats_is_used_nowhere(path: Path) -> None:
    """ruff refuses the import; this also refuses ways around it, such as import_module("scipy.stats")."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "scipy" in text else ():
        if isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            named = {ast.unparse(node)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = {node.value}
        else:
            continue
        assert not any(re.match(r"scipy\.stats\b", name or "") for name in named)


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, flags=re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_make_command_that_a_page_names_exists(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    code = re.findall(r"^```(?:console|bash|sh)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    code += re.findall(r"`([^`\n]+)`", page)
    called = {target for text in code for target in re.findall(r"(?:^|[$;&] *)make ([a-z][a-z-]*)", text, re.MULTILINE)}
    assert called <= make_targets()


def commands(path: Path) -> list[str]:
    """The make targets of a file, in order: of a page those of its first console block, of a script all that it runs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.search(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^(?:\$ )?make ([a-z][a-z-]*)", text, flags=re.MULTILINE)


def test_pages_makefile_and_the_check_that_guards_the_project_name_the_same_commands() -> None:
    """`make test` was red on a new clone for 129 commits: only something larger was ever run."""
    newcomer = commands(ROOT / "README.md")
    guarded = commands(ROOT / ".ci" / "run")
    assert newcomer == ["demo", "test"]
    assert guarded == [*newcomer, "test-all", "check"]
    assert commands(ROOT / "CONTRIBUTING.md") == [*guarded, "format"]
    assert set(guarded) <= make_targets()
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    said = contributing[contributing.index("`.ci/run`") :].partition("\n\n")[0]
    assert re.findall(r"`make ([a-z-]+)`", said) == guarded


def test_the_check_that_guards_the_project_begins_in_a_clean_folder_with_a_new_environment() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    steps = [line for line in script.splitlines() if line.startswith(("make ", "git ", "folder", "pushd", "popd"))]
    assert steps[:6] == [
        "folder=$(mktemp -d)",
        'git clone -q . "$folder/deniable"',
        'pushd "$folder/deniable"',
        "make demo",
        "make test",
        "popd",
    ]


def test_make_test_ends_by_saying_what_it_left_out() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest:")[2].partition("\n\n")[0]
    run, last = recipe.splitlines()[-2:]
    left_out = set(re.findall(r"not (\w+)", run))
    assert left_out == {"slow", "torch", "spark", "postgres", "browser"}
    assert all(name in last.lower() for name in left_out)
    assert "make test-all" in last


def test_no_file_cites_notes_that_the_repository_does_not_hold() -> None:
    """Whoever reads "source 003", "FACTS B4" or "fact 12" cannot look them up: cite the course or the paper."""
    cites = re.compile(r"source 00\d|FACTS|\b[fF]acts?[ -]\d|_facts?_\d|ANCHORS|erratum_b\d")
    folders = ("src", "tests", "docs", "examples", "benchmarks")
    paths = [path for folder in folders for ending in ("py", "md") for path in (ROOT / folder).rglob(f"*.{ending}")]
    assert len(paths) > 300
    assert [named(path) for path in paths if path != Path(__file__) and cites.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    # Links inside docs/ are checked by mkdocs --strict.
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_check_that_guards_the_project_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)


def test_the_check_that_guards_the_project_leaves_no_test_out() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest-all:")[2].partition("\n\n")[0]
    assert recipe.splitlines()[-1] == "\t@$(BIN)/python -m pytest $(IN_PARALLEL)"


@pytest.mark.slow
def test_only_tests_that_passed_are_not_run_again(tmp_path: Path) -> None:
    """`.ci/run` has two environments: what was skipped in the first, and every block of a page with such a block, runs."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_few.py").write_text(
        "import os, pytest\n"
        "def test_quick(): pass\n"
        "def test_elsewhere():\n    if 'AGAIN' not in os.environ: pytest.skip('not here')\n"
        "    assert 'DENIABLE_PASSED' not in os.environ, 'a pytest that this test starts would leave tests out'\n"
        "@pytest.mark.parametrize('word', ['a b', 'c'])\ndef test_words(word): pass\n"
    )
    (tmp_path / "whole.md").write_text("```python\n>>> 1 + 1\n2\n```\n")
    (tmp_path / "part.md").write_text("```python\nx = 1\n```\n```python\n>>> x\n1\n```\n")
    passed = tmp_path / "passed"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-v"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DENIABLE_"))}

    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # conftest's imports

    def run(**settings: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean | settings, capture_output=True, text=True, check=True)
        return done.stdout

    assert "6 passed, 1 skipped" in run(DENIABLE_PASSED_TO=str(passed))
    names = passed.read_text(encoding="utf-8").splitlines()
    first_block = next(name for name in names if name.startswith("part.md"))
    passed.write_text("\n".join(name for name in names if name != first_block), encoding="utf-8")
    again = run(DENIABLE_PASSED=str(passed), AGAIN="yes")
    assert "3 passed" in again  # both blocks of part.md, and
    assert "test_elsewhere" in again


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"]
    assert version("deniable") == deniable.__version__


def test_the_library_needs_three_packages_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.match(r"[\w-]+", need)[0] for need in project["dependencies"]} == {"cryptography", "numpy", "scipy"}


ROOMS = (
    *("curves", "curves.textbook", "plots", "noise", "mechanisms", "local", "testing", "units", "errors"),
    *("tables", "queries", "ledger", "audit"),
)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference_with_its_own_words(room: str) -> None:
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    module = importlib.import_module(f"deniable.{room}")
    start = page.index(f"## Names in `{module.__name__}`\n")
    part = page[start : page.find("\n## ", start)]
    classes = {n: thing for n, thing in vars(module).items() if inspect.isclass(thing) and not n.startswith("_")}
    own = [n for n, thing in classes.items() if thing.__module__ == module.__name__]
    for name in getattr(module, "__all__", own):
        words = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        assert words, name
        assert f"| `{name}` | {words} |" in part, f"{name}; run: python docs/reference.py"


def test_every_reading_of_a_curve_is_in_the_reference() -> None:
    from deniable import curves

    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    for name, member in vars(curves.Curve).items():
        if not name.startswith("_") and name not in {"of", "origin", "renyi_function"}:
            assert f"`curve.{name}{'' if isinstance(member, property) else '()'}`" in page, name
