"""One item of a course: what it is, which names of the library do it, and how it is checked."""

from __future__ import annotations

import gc
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Item:
    """A definition, theorem, example, exercise or figure, with the lines that compute it.

    `ours` calls the library. `truth` is an independent answer: the course's own number where it is right, a closed form,
    mpmath, exact fractions or brute force, never the library again. Numbers agree to `within` (relative), all else is equal.
    """

    id: str
    title: str
    api: str
    """Public names, with commas between them, each as it is reached from `deniable`: `attacks.anonymity`, `Budget`."""
    ours: Callable[[], Any]
    truth: Any
    """A value, or a callable without arguments that works it out."""
    within: float = 1e-9
    slow: bool = False
    needs: str = ""
    """A mark of pytest, where the item needs more than Python: torch, spark."""

    @property
    def anchor(self) -> str:
        """What marks the item on its page: `<a id="i-0-01"></a>`."""
        return "i-" + self.id.replace(".", "-").replace("/", "-")

    def names(self) -> list[str]:
        return [name.strip() for name in self.api.split(",")]

    def check(self) -> None:
        """Fails where the answers differ, where `ours` does not run a name of the list, and where `truth` runs any."""
        from tests.lectures.touched import Library, Names, profiled

        library, names = Library(), Names(self.names())
        gc.disable()  # the end of objects that other tests left is not part of the truth
        try:
            with profiled(library):
                truth = self.truth() if callable(self.truth) else self.truth
        finally:
            gc.enable()
        with profiled(names):
            ours = self.ours()
        assert agrees(ours, truth, within=self.within), f"{self.id} {self.title}: {ours!r} is not {truth!r}"
        assert not names.missing, f"{self.id} {self.title}: does not run {', '.join(names.missing)}"
        assert not library.run, f"{self.id} {self.title}: its truth is not independent, it runs {sorted(library.run)}"


def agrees(ours: Any, truth: Any, *, within: float) -> bool:
    """Whether both say the same: text and truth values exactly, numbers to `within`, sequences in each place."""
    if isinstance(truth, (bool, np.bool_, str)) or truth is None:
        return type(ours) in (type(truth), np.bool_) and bool(ours == truth)
    if isinstance(truth, dict):
        return set(ours) == set(truth) and all(agrees(ours[key], truth[key], within=within) for key in truth)
    if isinstance(truth, (set, frozenset)):
        return set(ours) == truth
    if isinstance(truth, (list, tuple, np.ndarray)):
        return len(ours) == len(truth) and all(agrees(a, b, within=within) for a, b in zip(ours, truth, strict=True))
    number = float(truth)
    return math.isclose(float(ours), number, rel_tol=within, abs_tol=0.0 if number else within * 1e-3)


def found(name: str) -> Any:
    """What a public name means: modules of `deniable`, then attributes."""
    place: Any = importlib.import_module("deniable")
    path = "deniable"
    for part in name.split("."):
        path = f"{path}.{part}"
        try:
            place = getattr(place, part)
        except AttributeError:
            place = importlib.import_module(path)
    return place
