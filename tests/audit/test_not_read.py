"""What stands beside an honest number: an exact value must not pass there, whether it is read or cannot be."""

from __future__ import annotations

import collections
import ctypes
import enum
import json
import math
import random
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest

from deniable import audit, cli, curves, mechanisms
from deniable.audit.answer_reading import read
from deniable.errors import NotCertifiable
from tests.wording import worded

SURE = 1 - 1e-9
CLAIM = curves.pure(epsilon=1.0)
HONEST = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.9)


def beside(part: Callable[[int], Any], *, trials: int = 1500) -> audit.Finding:
    """An honest number of ε = 0.9, claimed as 1, and something else about the same value."""
    return audit.measure(
        lambda value: (HONEST.release(value), part(value)),
        neighbours=(0, 1),
        claim=CLAIM,
        trials=trials,
        confidence=SURE,
    )


# -- what cannot be read ---------------------------------------------------------------------------------------------


def closure(value: int) -> Any:
    return lambda: value


def bound(value: int) -> Any:
    return [value].__getitem__


def methods_only(value: int) -> Any:
    class Told:
        __slots__ = ()

        def exact(self) -> int:
            return value

    return Told()


def plain_function(value: int) -> Any:
    return math.sqrt


UNREAD: dict[str, Callable[[int], Any]] = {
    "a function": plain_function,
    "a closure that is empty": lambda value: lambda: 7,
    "an object": lambda value: object(),
    "a module": lambda value: math,
    "in a dict": lambda value: {"how": [print]},
    "as a default": lambda value: collections.defaultdict(lambda: 7),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_part_that_was_not_read_is_never_consistent(name: str) -> None:
    """Beside an honest number it was "consistent" with exit code 0. False alarm: 1e-9."""
    found = beside(UNREAD[name])
    assert found.read.shut
    assert found.seen
    assert (found.verdict, found.refuted) == ("nothing seen", False)
    assert found.sentence.startswith("Nothing seen in a part of the answers: ")
    assert ", ".join(found.read.shut) in found.sentence
    assert "let the mechanism return numbers, texts, lists or dicts" in found.sentence
    assert "onsistent" not in found.sentence


def test_without_a_claim_a_part_that_was_not_read_is_said_too() -> None:
    found = audit.measure(lambda value: (HONEST.release(value), print), neighbours=(0, 1), trials=1500, confidence=SURE)
    assert found.verdict == "nothing seen"
    assert f"ε is at least {found.epsilon:.1f}"[:-1] in found.sentence


def test_a_claim_that_is_refuted_stays_refuted_whatever_was_not_read() -> None:
    found = audit.measure(lambda value: (value, print), neighbours=(0, 1), claim=CLAIM, trials=300, confidence=SURE)
    assert found.verdict == "refuted"


MINE = """
from deniable import mechanisms
honest = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.9)

def told(value):
    return honest.release(value), print
"""


def test_the_command_has_no_success_for_what_it_did_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    (tmp_path / "partly_read.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    asked = ["audit", "partly_read:told", "--neighbours", "0", "1", "--claim", "pure(epsilon=1)", "--trials", "1500"]
    result = CliRunner().invoke(cli.build(), asked)
    assert result.exit_code == 4, result.stdout
    assert "builtin_function_or_method" in result.stdout
    told = json.loads(CliRunner().invoke(cli.build(), [*asked, "--json"]).stdout)
    assert (told["verdict"], told["read"]["not read"]) == ("nothing seen", ["builtin_function_or_method"])


def local_dataclass(value: int) -> Any:
    @dataclass(frozen=True)
    class Row:
        n: int = 0

        def doubled(self) -> int:
            return 2 * self.n

    return Row(value)


def local_tuple(value: int) -> Any:
    return collections.namedtuple("Row", ["n"])(value)


def local_abstract(value: int) -> Any:
    class Base(ABC):  # noqa: B024
        pass

    class Row(Base):
        def __init__(self) -> None:
            super().__init__()
            self.n = value

    return Row()


def local_enum(value: int) -> Any:
    return enum.Enum("Row", {"N": value}).N  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", [local_dataclass, local_tuple, local_abstract, local_enum, Fraction, Path])
def test_an_honest_answer_of_any_class_is_read_whole(form: Callable[[Any], Any]) -> None:
    """Classes that were made by a function too: their methods hold nothing."""
    found = read(form(7 if form is not Path else "7"))
    assert not found.shut
    assert found.numbers


# -- what is read ----------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: int
    right: int


class Labelled(Pair):
    """A named tuple with room for more."""


class Marked(np.ndarray):
    """An array with attributes."""


def labelled(value: int) -> Any:
    found = Labelled(1, 2)
    found.note = value  # type: ignore[attr-defined]
    return found


def marked(value: int) -> Any:
    found = np.zeros(2).view(Marked)
    found.note = value  # type: ignore[attr-defined]
    return found


class Cell:
    def __init__(self, value: int) -> None:
        self.value = value

    def exact(self) -> int:
        return self.value


def shown_by_a_made_class(value: int) -> Any:
    class Told:
        def __init__(self) -> None:
            self.n = 7

        def __repr__(self) -> str:
            return "Told"

        @property
        def exact(self) -> int:
            return value

    return Told()


def default(value: int) -> Any:
    def told(exact: int = value) -> int:
        return exact

    return told


def caused(value: int) -> Exception:
    found = ValueError("no")
    found.__cause__ = KeyError(value)
    return found


class Sort(int):
    """A whole number of another class."""


def varied() -> str:
    """A number of a random length, so that lengths do not tell of a letter more."""
    return f"{random.random():.{random.randrange(1, 60)}f}"


class Both(ctypes.Structure):
    _fields_ = (("left", ctypes.c_int), ("right", ctypes.c_double))


HELD: dict[str, Callable[[int], Any]] = {
    "closure": closure,
    "default of a function": default,
    "constant in the code": lambda value: eval(f"lambda: {value}"),
    "bound method": lambda value: Cell(value).exact,
    "bound method of a list": bound,
    "partial": lambda value: partial(closure(value)),
    "object with methods only": methods_only,
    "class made for this answer": shown_by_a_made_class,
    "class itself": lambda value: type("Told", (), {"exact": value}),
    "default of a dict": lambda value: collections.defaultdict(closure(value)),
    "maxlen": lambda value: collections.deque([1], maxlen=5 + value),
    "attribute of a named tuple": labelled,
    "single or double": lambda value: np.zeros(2, dtype="f8" if value else "f4"),
    "order of bytes": lambda value: np.zeros(2, dtype=">f8" if value else "<f8"),
    "order in memory": lambda value: np.zeros((2, 2), order="F" if value else "C"),
    "datetime64": lambda value: np.datetime64(10**18 + value, "ns"),
    "timedelta64": lambda value: np.timedelta64(10**18 + value, "ns"),
    "class of a whole number": lambda value: [0.5, Sort(1) if value else 1],
    "array of C": lambda value: (ctypes.c_int * 2)(3, value),
    "structure of C": lambda value: Both(3, value),
    "text in XML": lambda value: ElementTree.fromstring(f"<a n='1'><b>{value}</b></a>"),
    "blank after a number": lambda value: varied() + " " * value,
    "plus before a number": lambda value: ("+" if value else "") + varied(),
    "blanks in JSON": lambda value: f"[{varied()},{' ' * value}0]",
    "array of datetime64": lambda value: np.array([10**18 + value, 5], dtype="datetime64[ns]"),
}


@pytest.mark.parametrize("name", HELD)
def test_an_exact_value_beside_an_honest_number_is_found(name: str) -> None:
    found = beside(HELD[name], trials=500)
    assert found.refuted, found.sentence


@pytest.mark.parametrize("form", [marked, caused])
def test_what_a_copy_leaves_out_is_read_in_answers_from_elsewhere(form: Callable[[int], Any]) -> None:
    """Attributes of an array, the cause of an error."""
    first, second = ([form(value) for _ in range(300)] for value in (0, 1))
    assert audit.compare(first, second, claim=CLAIM, confidence=SURE).refuted


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long doubles are doubles here")
@pytest.mark.parametrize("form", [lambda x: x, lambda x: np.array([x]), lambda x: np.clongdouble(x)])
def test_the_last_digits_of_a_long_double_are_read(form: Callable[[Any], Any]) -> None:
    assert beside(lambda value: form(np.longdouble(1) + value * np.longdouble(2) ** -60), trials=500).refuted

    class Batch:
        def many(self, value: int, count: int) -> Any:
            return np.ones(count, dtype=np.longdouble) + value * np.longdouble(2) ** -60

    assert audit.measure(Batch(), neighbours=(0, 1), claim=CLAIM, trials=300, confidence=SURE).refuted


def test_batches_of_two_types_are_told_apart() -> None:
    class Batch:
        def many(self, value: int, count: int) -> Any:
            return np.random.default_rng().integers(0, 9, count).astype("f8" if value else "f4")

    assert audit.measure(Batch(), neighbours=(0, 1), claim=CLAIM, trials=300, confidence=SURE).refuted


def test_dates_of_any_unit_keep_their_digits() -> None:
    """Against whole numbers: neighbours of one unit differ, and those that are missing are all alike."""
    seed = int(np.random.default_rng().integers(2**32))
    print(f"seed {seed}")
    for whole in np.random.default_rng(seed).integers(-(2**62), 2**62, 50).tolist():
        for unit in ("ns", "us", "s"):
            dates = [np.array([whole + i], dtype="int64").view(f"datetime64[{unit}]") for i in (0, 1, 1)]
            first, second, again = (read(date).identity for date in dates)
            assert first != second
            assert second == again
    missing = read(np.array(["NaT"], dtype="datetime64[ns]"))
    assert all(math.isnan(x) for x in missing.numbers[1:])
    assert read(np.timedelta64("NaT", "ns")).kind == read(np.timedelta64("NaT", "ns")).kind


@pytest.mark.slow
def test_frames_and_tensors_are_read_with_what_they_carry() -> None:
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    sparse = pytest.importorskip("scipy.sparse")
    stored = (([1.0], ([0], [0])), ([1.0, 0.0], ([0, 0], [0, 1])))
    lists = (polars.List(polars.String), polars.List(polars.Categorical))

    def attrs(value: int) -> Any:
        found = pandas.DataFrame({"n": [1]})
        found.attrs["note"] = value
        return found

    def gradient(value: int) -> Any:
        found = torch.zeros(1, requires_grad=True)
        found.grad = torch.full((1,), float(value))
        return found

    forms: dict[str, Callable[[int], Any]] = {
        "attrs": attrs,
        "attrs of a column": lambda value: attrs(value)["n"],
        "grad": gradient,
        "name of an index": lambda value: pandas.DataFrame({"n": [1]}).rename_axis(str(value)),
        "name of all columns": lambda value: pandas.DataFrame({"n": [1]}).rename_axis(columns=str(value)),
        "categories": lambda value: pandas.Series(pandas.Categorical([1], categories=range(2 + value))),
        "type of a column": lambda value: pandas.DataFrame({"n": ["a"]}, dtype="string" if value else object),
        "metadata": lambda value: arrow.table({"n": [1]}).replace_schema_metadata({"note": str(value)}),
        "type of an Arrow column": lambda value: arrow.table({"n": arrow.array([1], f"int{32 * (value + 1)}")}),
        "type of a Polars column": lambda value: polars.DataFrame({"n": [["a"]]}, {"n": lists[value]}),
        "stored zero": lambda value: sparse.csr_matrix(stored[value], shape=(1, 3)),
        "dates": lambda value: pandas.Series(pandas.to_datetime([10**18 + value], unit="ns")),
        "dates in an index": lambda value: pandas.DatetimeIndex([10**18 + value]),
        "dates in a zone": lambda value: pandas.Series(pandas.to_datetime([10**18 + value], unit="ns", utc=True)),
        "durations": lambda value: pandas.Timedelta(10**18 + value, "ns"),
    }
    for name, form in forms.items():
        assert beside(form, trials=300).refuted, name
    assert not read([pandas.NaT, pandas.NA]).shut, "missing is read"


# -- what is raised --------------------------------------------------------------------------------------------------


class Kept(Exception):
    def __init__(self, value: int) -> None:
        super().__init__("no")
        self.value = value


def noted(value: int) -> Exception:
    found = ValueError("no")
    found.add_note(f"was {value}")
    return found


RAISED: dict[str, Callable[[int], BaseException]] = {
    "message": lambda value: ValueError(f"exact {value}"),
    "argument": lambda value: KeyError(value),
    "attribute": Kept,
    "note": noted,
    "cause": caused,
    "leaving": lambda value: SystemExit(value),
    "file": lambda value: OSError(2, "not there", f"{value}.csv"),
    "name": lambda value: ImportError("no", name=f"m{value}"),
    "group": lambda value: ExceptionGroup("several", [ValueError(value)]),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_an_error_says_is_read(name: str) -> None:
    """An error was known by its type alone: an exact value in its message was "consistent"."""

    def told(value: int) -> Any:
        if np.random.random() < 0.5:
            raise RAISED[name](value)
        return HONEST.release(value)

    found = audit.measure(told, neighbours=(0, 1), claim=CLAIM, trials=500, confidence=SURE)
    assert found.refuted, found.sentence


def test_what_an_error_says_is_a_part_of_an_exact_curve() -> None:
    def told(answer: int) -> int:
        if answer > 0:
            raise ValueError(f"{answer} is too many")
        return 0

    def kept_back(answer: int) -> int:
        if answer > 0:
            raise ValueError("too many")
        return 0

    true, less = (audit.exact(HONEST.then(done), neighbours=(0, 1)).delta(epsilon=0.3) for done in (told, kept_back))
    assert less < true


def test_the_same_error_each_time_is_still_no_answer() -> None:
    """And so is one that names what it was asked: a typing error must not look like a leak of the noise."""
    for done in (lambda value: int("x"), lambda value: value.missing, lambda value: int(f"x{value}")):
        with worded(NotCertifiable):
            audit.measure(done, neighbours=(0, 1), claim=CLAIM, trials=100, confidence=0.9)


def test_a_traceback_is_no_part_of_an_error() -> None:
    """It holds the frame of whoever raised, with all of its values: the same error from two places is the same."""

    def told(value: int) -> Any:
        exact = value
        if np.random.random() < 0.5:
            raise ValueError("no")
        return HONEST.release(exact)

    found = audit.measure(told, neighbours=(0, 1), claim=CLAIM, trials=5000, confidence=SURE)
    assert found.verdict == "consistent", found.sentence


# -- what stands behind something else -------------------------------------------------------------------------------


def below_a_mask(value: int) -> Any:
    return np.ma.array([1.0, float(value)], mask=[False, True])


def in_a_header(value: int) -> Any:
    message = EmailMessage()
    message["Count"] = str(value)
    return message


@pytest.mark.parametrize("part", [below_a_mask, in_a_header], ids=lambda part: part.__name__)
def test_a_value_behind_a_mask_or_a_name_was_not_read(part: Callable[[int], Any]) -> None:
    found = beside(part, trials=300)
    assert found.refuted, found.sentence
