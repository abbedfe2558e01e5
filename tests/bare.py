"""An environment as `pip install deniable` makes it: the three packages it needs, and none that an extra brings."""

from __future__ import annotations

import os
import re
import subprocess
import venv
from functools import cache
from importlib.metadata import PackagePath, distribution
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def _needed(name: str, found: set[str]) -> set[str]:
    """The distributions that `name` installs without any extra, itself included."""
    if name in found:
        return found
    found.add(name)
    for requirement in distribution(name).requires or ():
        what, _, marker = requirement.partition(";")
        # Of the markers only "extra" takes something away here; a package for another platform is not installed.
        if "extra" not in marker and (here := re.match(r"[\w.-]+", what)) and _installed(here[0]):
            _needed(here[0], found)
    return found


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


def _tops(files: list[PackagePath] | None) -> set[Path]:
    """What a distribution put into site-packages, at the top."""
    inside = [file for file in files or () if ".." not in file.parts]
    return {
        Path(str(file.locate())).parents[len(file.parts) - 2] if len(file.parts) > 1 else Path(str(file.locate()))
        for file in inside
    }


@cache
def _base() -> frozenset[str]:
    return frozenset(set().union(*(_needed(name, set()) for name in ("cryptography", "numpy", "scipy"))))


def build(folder: Path) -> Path:
    """A new environment in `folder` that holds deniable and what it needs; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    place = next(folder.glob("lib/python*/site-packages")) if os.name != "nt" else folder / "Lib" / "site-packages"
    for name in _base():
        for top in _tops(distribution(name).files):
            (place / top.name).symlink_to(top)
    (place / "deniable.pth").write_text(str(SOURCE), encoding="utf-8")
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(python: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `code` there, with nothing of this process's environment that could bring other packages in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV_"))}
    return subprocess.run(
        [python, "-W", "error", "-c", code, *arguments], capture_output=True, text=True, env=kept, check=False
    )
