"""The exception tree that the file draws is the one that exists."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deniable as dn
from deniable import errors
from deniable.curves.filters import PureFilter
from deniable.errors import (
    NOTHING,
    BudgetExceeded,
    DeniableError,
    EngineFailed,
    ImpossibleTarget,
    InvalidDistribution,
    InvalidExpression,
    InvalidOperation,
    InvalidParameter,
    InvalidTradeoff,
    LedgerDamaged,
    LedgerMismatch,
    LedgerUnavailable,
    MissingExtra,
    NoiseHidesWarning,
    NotCertifiable,
    NotPrivateWarning,
    OutsideTheorem,
    PublicTuple,
    QuestionRefused,
    ServerRefused,
    TypeName,
    UnreadableRecord,
    WeakPrivacyWarning,
    type_of,
)

NODE = re.compile(r"^(?P<branch>[\s│├└─]*)(?P<name>[A-Z]\w+)(?: \((?P<builtin>\w+)\))?(?:\s{2,}\S.*)?$")


def drawn_tree() -> dict[str, tuple[str, ...]]:
    """Name → its bases, as drawn: the node it hangs from, then the built-in in brackets if there is one."""
    assert errors.__doc__ is not None
    picture = errors.__doc__.split("::\n\n", 1)[1].split("\n\n")[0]
    tree: dict[str, tuple[str, ...]] = {}
    path: list[tuple[int, str]] = []
    for line in picture.splitlines():
        node = NODE.match(line)
        assert node, f"cannot read this line of the picture: {line!r}"
        depth = len(node["branch"])
        while path and path[-1][0] >= depth:
            path.pop()
        parent = path[-1][1] if path else "Exception"
        tree[node["name"]] = (parent, node["builtin"]) if node["builtin"] else (parent,)
        path.append((depth, node["name"]))
    return tree


def real_tree() -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(base.__name__ for base in kind.__bases__)
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__
    }


def test_the_tree_drawn_is_the_real_tree() -> None:
    assert drawn_tree() == real_tree()
    assert len(drawn_tree()) > 10


EXAMPLES: list[DeniableError] = [
    DeniableError("something"),
    InvalidParameter("sigma", -1, "must be positive", "add noise"),
    InvalidDistribution("p", [0.5, -0.5], "entry 1 is negative"),
    InvalidTradeoff("f", "1 - alpha + 0.1", "exceeds 1 - alpha at 0"),
    InvalidExpression("expression", "gaussian(", "ends too early at column 9"),
    InvalidOperation("a curve times a number means nothing; write ** 3"),
    OutsideTheorem("the classical Gaussian formula", "epsilon < 1", "epsilon=2", "use curves.gaussian"),
    ImpossibleTarget("no sigma reaches delta=0"),
    NotCertifiable("needs a lattice of 2**40 points"),
    UnreadableRecord("version 9 is newer than this library"),
    BudgetExceeded("ε=0.5", "ε=0.31 at δ=1e-6", "lower ε"),
    LedgerDamaged(7, "was changed", "restore the ledger from a copy"),
    LedgerMismatch("budget", "Budget.pure(epsilon=2)", "Budget.pure(epsilon=1)", "open it as what it is"),
    LedgerUnavailable("the ledger is busy", "try again"),
    QuestionRefused("star", "rows cannot be listed", "ask for COUNT(*)"),
    EngineFailed("time", "ask for less"),
    ServerRefused("forbidden", 403, "auditor may not ask"),
    NotPrivateWarning("drawn with replayable entropy"),
    WeakPrivacyWarning("delta 0.5 protects little"),
    NoiseHidesWarning("the noise hides 3 of 3 centres"),
    MissingExtra("matplotlib", "plots"),
]


def test_every_error_has_an_example() -> None:
    assert {type(example).__name__ for example in EXAMPLES} == set(real_tree())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_the_way_between_processes(error: DeniableError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_an_invalid_parameter_says_what_was_asked_what_is_true_and_what_to_do() -> None:
    error = InvalidParameter("sigma", -1, "must be positive", "no noise is curves.pure(epsilon=inf)")
    assert str(error) == "sigma=-1: must be positive; no noise is curves.pure(epsilon=inf)"
    assert (error.parameter, error.asked, error.rule) == ("sigma", -1, "must be positive")
    assert isinstance(error, ValueError)


def test_an_invalid_parameter_does_not_print_a_whole_array() -> None:
    assert len(str(InvalidParameter("p", list(range(10_000)), "must sum to 1"))) < 120


def test_an_argument_without_a_repr_does_not_hide_what_is_wrong() -> None:
    # Python refuses to print an integer of more than 4300 digits.
    assert str(InvalidParameter("count", 10**5000, "is too large")) == "count=<int>: is too large"


def test_a_type_is_not_shown_as_a_value() -> None:
    """`question='NoneType'` read as if that text had been asked."""
    assert str(InvalidParameter("question", type_of(None), "must be SQL")) == "question=<NoneType>: must be SQL"
    assert InvalidParameter("question", type_of(None), "must be SQL").asked == "NoneType"


def test_no_error_names_a_type_as_a_value() -> None:
    wrong = re.compile(r"InvalidParameter\(\s*[\w\"]+,\s*type\([^()]*\)\.__name__")
    sources = Path(errors.__file__).parent.rglob("*.py")
    assert not [path.name for path in sources if wrong.search(path.read_text(encoding="utf-8"))]


def test_a_missing_extra_names_the_command_that_brings_it() -> None:
    error = MissingExtra("matplotlib", "plots")
    assert 'pip install "deniable[plots]"' in str(error)
    assert isinstance(error, ImportError)


def test_an_exceeded_budget_says_what_is_left() -> None:
    assert str(BudgetExceeded("ε=0.5", "ε=0.31", "lower ε")) == "asked ε=0.5, left ε=0.31; lower ε"


@dataclass
class Holder:
    """An object of a user, whose repr shows what it holds."""

    rows: list[object]

    def read(self) -> None: ...


COLUMNS: tuple[Any, ...] = (
    [987, "ana"],
    (987, "ana"),
    {987: "ana"},
    {987, "ana"},
    np.array([987, 5]),
    pd.Series(["987", "ana"]),
    pd.DataFrame({"ana": [987]}),
    pd.Index([987]),
    Holder([987, "ana"]),
    SimpleNamespace(rows=[987, "ana"]),
    partial(print, [987, "ana"]),
    Holder([987, "ana"]).read,
    iter(pd.DataFrame({"ana": [987]}).itertuples()),
    repeat([987, "ana"], 3),
    ValueError("ana", 987),
)
TAKES: dict[str, Callable[[Any], object]] = {
    "a rule": lambda asked: InvalidParameter("x", asked, "must be something else"),
    "a budget": lambda asked: dn.Budget(epsilon=asked, delta=1e-6),
    "a renewal": lambda asked: dn.ledger.Renewal(asked, per="week", periods=4),
    "a period": lambda asked: dn.ledger.Renewal(dn.Budget(epsilon=1, delta=1e-6), per=asked, periods=4),
    "a filter": lambda asked: PureFilter(epsilon=1).charge(epsilon=asked),
    "a filter's curve": lambda asked: PureFilter(epsilon=1).charge(asked),
    "a curve": lambda asked: dn.curves.gaussian(sigma=asked),
    "a mechanism": lambda asked: dn.Laplace(sensitivity=1, epsilon=asked),
    "a reading": lambda asked: dn.curves.gaussian(sigma=1).epsilon(delta=asked),
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
def test_a_column_that_was_passed_as_an_argument_is_not_shown(take: Callable[[Any], object]) -> None:
    """`epsilon=df` printed the first rows of the table."""
    for asked in COLUMNS:
        try:
            error: object = take(asked)
        except (InvalidParameter, InvalidOperation) as caught:
            error = caught
        assert isinstance(error, InvalidParameter | InvalidOperation)
        assert not re.search(r"987|\bana\b", str(error))
        assert isinstance(getattr(error, "asked", NOTHING), type(NOTHING) | TypeName)


def test_what_an_argument_is_without_its_data_is_shown() -> None:
    atom = dn.curves.from_pmf([0.75, 0.25], [0.25, 0.75]).factors[0][0]
    for asked, shown in (
        (Holder([987]), "x=<Holder>: is wrong"),
        (atom, "x=<FromPmf>: is wrong"),
        (np.datetime64("2026-01-02"), f"x={np.datetime64('2026-01-02')!r}: is wrong"),
        (datetime(2026, 1, 2), "x=datetime.datetime(2026, 1, 2, 0, 0): is wrong"),
        (dn.Unit.row(), "x=Unit.row(): is wrong"),
        (int, "x=<class 'int'>: is wrong"),
    ):
        assert str(InvalidParameter("x", asked, "is wrong")) == shown


def test_two_public_numbers_are_shown() -> None:
    error = InvalidParameter("bounds", PublicTuple((3, 1)), "low must be at most high")
    assert str(error) == "bounds=(3, 1): low must be at most high"
    assert error.asked == (3, 1)
