"""Every exception that deniable raises on purpose.

::

    DeniableError
    ├── InvalidParameter (ValueError)        an argument outside its range: sigma=-1, delta=2, NaN
    │   ├── InvalidDistribution              masses or densities that are not a pair of distributions; says where
    │   ├── InvalidTradeoff                  a function that is not a trade-off function; says where
    │   └── InvalidExpression                a curve expression that cannot be parsed; says where
    ├── InvalidOperation (TypeError)         two objects that do not combine: a curve times a number
    ├── OutsideTheorem (ValueError)          a textbook formula outside the range in which it is proved
    ├── ImpossibleTarget (ValueError)        a calibration that no parameter can reach; says why
    ├── NotCertifiable                       a number that cannot be certified in bounded memory and time
    ├── UnreadableRecord (ValueError)        a dict that from_dict cannot read: unknown name, newer version
    ├── BudgetExceeded                       a filter or ledger refuses a cost; nothing was spent
    ├── QuestionRefused (ValueError)         a question outside the dialect; decided by its text and the public schema
    ├── LedgerMismatch (ValueError)          a ledger of another budget, unit or dataset; names both
    ├── LedgerDamaged                        a ledger whose history was changed; names the first bad entry
    ├── LedgerUnavailable                    a ledger that cannot be read or written now: busy, read-only, disk full
    ├── NotPrivateWarning (UserWarning)      an answer was drawn from replayable entropy: it protects nobody
    ├── WeakPrivacyWarning (UserWarning)     parameters that protect little; says what an attacker could learn
    ├── NoiseHidesWarning (UserWarning)      the noise hides what was asked for; says what to change
    ├── ServerRefused                        a server refused a request: token, role, rate limit; carries its code
    ├── EngineFailed                         an engine could not finish; carries only a code of a closed list
    └── MissingExtra (ImportError)           an optional dependency is not installed; names the extra

An error says what was asked, what is true, and what to do. Its facts are attributes, so that programs need not parse
its text. No error contains a value of the data, or anything computed from one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from numbers import Number
from os import PathLike, fspath
from types import FunctionType
from typing import final


class DeniableError(Exception):
    """Root of the tree: catch this to catch everything deniable raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default, unpickling calls the class with the finished message. That fails for classes that take facts
        # instead, and the failure would end a whole pool of worker processes.
        return _revived, (type(self), self.args), self.__dict__


def _revived(kind: type[DeniableError], args: tuple[object, ...]) -> DeniableError:
    return kind.__new__(kind, *args)


@final
class _Nothing:
    """The type of `NOTHING`, which stays the same object in a copy and in a pickle."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()
"""For `asked`: the error is not about one particular value."""


_PASSWORD = re.compile(r"(?<=:/)/?[^/\s]*:[^/\s]*(?=@)|(?<=password=)[^\s&;]+|(?<=password%3D)[^\s&;]+", re.IGNORECASE)


def masked(asked: object) -> object:
    """The same object; an address that contains a password is returned as text without it, because errors are
    displayed, logged and sent.

    >>> masked("postgresql://ana:secret@db/visits"), masked("host=db password=secret"), masked(3)
    ('postgresql:/...@db/visits', 'host=db password=...', 3)
    """
    text = str(asked) if isinstance(asked, str | PathLike) else ""
    hidden = _PASSWORD.sub("...", text)
    return asked if hidden == text else hidden


@final
class TypeName(str):
    """The name of a type in an error: its repr is <NoneType>, not the text 'NoneType'."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


def type_of(given: object) -> TypeName:
    """The type of an argument, for an error about a wrong type that must not contain the value.

    >>> type_of(None), str(type_of(3))
    (<NoneType>, 'int')
    """
    return TypeName(type(given).__name__)


@final
class PublicTuple(tuple[object, ...]):
    """Several public numbers in an error, such as the two ends of a range."""

    __slots__ = ()


_PLAIN = (
    str,
    bytes,
    Number,
    Decimal,
    date,
    time,
    timedelta,
    Enum,
    PathLike,
    FunctionType,
    PublicTuple,
    type(None),
    type,
)
"""An error shows a value of these types: it is one number, text, function or type, and not a collection of values."""


def _not_data(asked: object) -> object:
    """The same object; NOTHING for a list, a column or a table, and the type of another object that may show data."""
    if isinstance(asked, str | bytes | PublicTuple):
        return asked
    if hasattr(asked, "__len__"):
        return NOTHING
    return asked if _shows_no_data(asked) else type_of(asked)


def _shows_no_data(asked: object) -> bool:
    """Whether the repr of an object without a length shows no collection that the object holds.

    Objects of other libraries may show anything. Those of this one show fields only if `dataclass` made their repr.
    """
    kind = type(asked)
    if isinstance(asked, _PLAIN) or kind.__module__ == "numpy":
        return True
    if kind.__module__.partition(".")[0] != "deniable":
        return False
    if not (is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__")):  # `dataclass` wraps the repr that it makes
        return True
    shown = [getattr(asked, field.name, None) for field in fields(kind) if field.repr]
    return all(_not_data(value) is value for value in shown)


class InvalidParameter(DeniableError, ValueError):
    """An argument is outside its range.

    `parameter` is its name, `asked` its value (or `NOTHING`), `rule` what is required, `remedy` what to write instead.
    The value appears in the text, cut to 80 characters and without passwords. A list, a column or a table that was
    passed by mistake may be data: `asked` is `NOTHING` instead, and the name of its type for another object that may
    show such data (a dataclass, a `functools.partial`, a relation of a database). Pass `type_of(value)` for another
    value that may be data, and a `PublicTuple` for numbers that are not, such as a shape.
    """

    def __init__(self, parameter: str, asked: object, rule: str, remedy: str = "") -> None:
        asked, remedy = masked(_not_data(asked)), str(masked(remedy))
        self.parameter = parameter
        self.asked = asked
        self.rule = rule
        self.remedy = remedy
        try:
            shown = "" if asked is NOTHING else f"={asked!r}"
        except Exception:  # the repr itself may fail, for example for 10**5000; that must not hide this error
            shown = f"={type_of(asked)!r}"
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"{parameter}{shown}: {rule}" + (f"; {remedy}" if remedy else ""))


class InvalidDistribution(InvalidParameter):
    """Masses or densities do not form a probability distribution."""


class InvalidTradeoff(InvalidParameter):
    """A function is not a trade-off function (convex, non-increasing, continuous, at most 1 - alpha)."""


class InvalidExpression(InvalidParameter):
    """A curve expression cannot be parsed."""


class InvalidOperation(DeniableError, TypeError):
    """Two objects do not combine."""


class OutsideTheorem(DeniableError, ValueError):
    """A formula was evaluated outside the range in which it is proved, where its number would not be a guarantee."""

    def __init__(self, theorem: str, condition: str, asked: str, remedy: str = "") -> None:
        self.theorem = theorem
        self.condition = condition
        self.asked = asked
        self.remedy = remedy
        super().__init__(f"{theorem} needs {condition}, asked with {asked}" + (f"; {remedy}" if remedy else ""))


class ImpossibleTarget(DeniableError, ValueError):
    """A calibration target that no value of the parameter reaches."""


class NotCertifiable(DeniableError):
    """A number cannot be certified in bounded memory and time."""


class UnreadableRecord(DeniableError, ValueError):
    """A stored record cannot be read: unknown name, missing field, or a newer version."""


class BudgetExceeded(DeniableError):
    """A cost does not fit into what is left. Nothing was spent."""

    def __init__(self, asked: str, left: str, remedy: str, *, account: str = "") -> None:
        self.asked = asked
        self.left = left
        self.remedy = remedy
        self.account = account
        """The account that lacks the amount, in words; empty if there is only one."""
        super().__init__(f"asked {asked}, left {left}{f' in {account}' if account else ''}; {remedy}")


REFUSALS = {
    "syntax": "the text is not SQL that can be read",
    "too_long": "the text is too long",
    "too_deep": "the question is nested too deeply or has too many parts",
    "statement": "only one SELECT can be asked",
    "clause": "a clause that questions cannot have",
    "table": "no such table",
    "column": "no such column, or more than one",
    "name": "two columns of one name, or an unknown name",
    "star": "rows cannot be listed",
    "aggregate": "an aggregate is missing, nested, or in a place where aggregates are not allowed",
    "group": "a column is neither grouped nor aggregated",
    "person": "the column that identifies a person may only be counted and joined on",
    "function": "a function or operator outside the closed table",
    "kinds": "an operator got values of a kind it does not take",
    "constant": "a constant is needed, or one is out of range",
    "bounds": "a number without public bounds, or with bounds that are too wide to be useful",
    "key": "values that cannot be keys of groups",
    "join": "a join that does not follow the person or a public key",
    "subquery": "a sub-query in a place where sub-queries are not allowed",
    "window": "window functions combine rows of different people",
    "union": "parts of a union that do not fit together",
    "unit": "every row is its own person here",
    "public": "the question does not read private data",
    "options": "an option that is unknown or contradicts the schema",
    "work": "one person's rows could cause more work than is allowed",
}
"""Every code that a refusal can have, and its general rule. The list is closed: programs may rely on it."""


class QuestionRefused(DeniableError, ValueError):
    """A question was refused before any data were read, by its text and the public schema alone.

    `code` is a key of `REFUSALS`, `rule` the rule that it breaks, `rewrite` what to write instead. `place` is where in
    the text it is broken, as (start, end), and `instead` a question of the same session that would be accepted; both
    are empty for a question that is not a text.
    """

    def __init__(
        self, code: str, rule: str, rewrite: str, *, place: tuple[int, int] | None = None, instead: str = ""
    ) -> None:
        assert code in REFUSALS, code
        self.code = code
        self.rule = rule
        self.rewrite = rewrite
        self.place = place
        self.instead = instead
        super().__init__(f"{rule}; {rewrite}")


class LedgerMismatch(DeniableError, ValueError):
    """A ledger was opened with another budget, unit or dataset than it was created with."""

    def __init__(self, field: str, asked: object, found: object, remedy: str) -> None:
        self.field = field
        self.asked = asked
        self.found = found
        self.remedy = remedy
        super().__init__(f"asked for {field} {asked}, but this ledger has {field} {found}; {remedy}")


class LedgerDamaged(DeniableError):
    """A ledger's history is not what was written: somebody or something changed it."""

    def __init__(self, number: int | None, fault: str, remedy: str) -> None:
        self.number = number
        """The first entry that is wrong; 0 is the heading of the ledger, None the file as a whole."""
        self.fault = fault
        self.remedy = remedy
        place = "the file" if number is None else f"entry {number}" if number else "the heading"
        super().__init__(f"{place}: {fault}; {remedy}")


class LedgerUnavailable(DeniableError):
    """A ledger cannot be read or written now. The request was not granted, but it may have been charged."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}; {remedy}")


class NotPrivateWarning(DeniableError, UserWarning):
    """An answer was drawn from replayable entropy. It looks like any other answer, but protects nobody."""


class WeakPrivacyWarning(DeniableError, UserWarning):
    """The chosen ε or δ protects little: ε above 10 (at δ = 10⁻⁶, if μ, ρ or the noise was given), δ above 1/(10 n) for
    n declared people, or δ above 1/1,000. Issued once per line of the caller's code; silence it by name with
    `warnings.simplefilter("ignore", errors.WeakPrivacyWarning)`.
    """


class NoiseHidesWarning(DeniableError, UserWarning):
    """The noise is as large as what was asked for. Decided by public parameters and by what was released, never by the
    data itself.
    """


ENGINE_FAILURES = {
    "source": "the source could not be read",
    "time": "the engine ran longer than it may",
    "space": "the engine needed more memory or disk than it may use",
    "engine": "the engine could not finish",
}
"""Every reason that `EngineFailed` gives. The engine's own message is never repeated: it can contain data."""


class EngineFailed(DeniableError):
    """An engine could not finish. Its own message is not repeated, because it could contain a value of the data."""

    def __init__(self, code: str, remedy: str = "") -> None:
        assert code in ENGINE_FAILURES, code
        self.code = code
        self.remedy = remedy
        super().__init__(ENGINE_FAILURES[code] + (f"; {remedy}" if remedy else ""))


class ServerRefused(DeniableError):
    """A server refused a request for a reason of its own: a missing token, a role, a rate limit."""

    def __init__(self, code: str, status: int, detail: str) -> None:
        self.code = code
        """One of the closed list in `deniable.server.problems`."""
        self.status = status
        super().__init__(f"{code}: {detail}" if detail else code)


class MissingExtra(DeniableError, ImportError):
    """An optional dependency is not installed. `extra` names the extra that installs it, or is None if it must be
    installed by itself.
    """

    def __init__(self, package: str, extra: str | None) -> None:
        self.package = package
        self.extra = extra
        brings = f"pip install {package}" if extra is None else f'pip install "deniable[{extra}]"'
        super().__init__(f"{package} is not installed; {brings} brings it")


def require(extra: str, *modules: str) -> None:
    """Raise `MissingExtra` unless all these top-level modules are installed. Does not import them.

    A package whose modules all need an extra calls this first in its `__init__`, so that no import of them fails with a
    bare ModuleNotFoundError.
    """
    from importlib.util import find_spec

    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(module, extra)


def require_path(name: str, given: object, example: str) -> str:
    """The path as text. Raises InvalidParameter for anything else, including bytes, "" and text with a NUL."""
    path = fspath(given) if isinstance(given, str | PathLike) else given
    if isinstance(path, str) and path and "\0" not in path:
        return path
    shown = given if isinstance(given, str | int | float) else NOTHING
    rule = (
        "is not the path of a file"
        if isinstance(path, str)
        else f"must be the path of a file, not {type(path).__name__}"
    )
    raise InvalidParameter(name, shown, rule, f'write "{example}"')


def require_names(amounts: tuple[object, ...]) -> None:
    """Raise InvalidParameter if a cost was given without a name: 0.1 may be an ε, a μ or a share."""
    if amounts and isinstance(amounts[0], list | tuple):
        remedy = "write columns=[...], and epsilon=0.1 for what to spend"
        raise InvalidParameter("columns", type_of(amounts[0]), "must be named", remedy)
    if amounts:
        raise InvalidParameter(
            "cost", amounts[0], "must be named", "write epsilon=0.1; or one of mu=, rho=, share=, within="
        )


def require_known(method: Callable[..., object], amounts: tuple[object, ...], unknown: Mapping[str, object]) -> None:
    """InvalidParameter for an amount without a name, or for a keyword that `method` does not have.

    The error lists the arguments of `method` and suggests the nearest one. A method that ends in `**unknown: Never`
    calls this first: type checkers refuse a misspelt keyword there, and at run time this error replaces a TypeError.
    """
    require_names(amounts)
    for name, value in unknown.items():
        parameters = inspect.signature(method).parameters.values()
        known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        near = nearest(name, known)
        hint = f"did you mean {near}=? " if near is not None else ""
        shown = value if isinstance(value, int | float) else type_of(value)
        rule = f"is not an argument of {method.__name__}()"
        raise InvalidParameter(name, shown, rule, f"{hint}the arguments are {', '.join(known)}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that `name` most likely stands for: one that begins with it, or one that is spelt almost the same.

    >>> nearest("eps", ["rho", "epsilon"]), nearest("colums", ["rows", "columns"]), nearest("seed", ["mu"])
    ('epsilon', 'columns', None)
    """
    names = list(known)
    begun = [each for each in names if len(name) > 1 and each.startswith(name)]
    return begun[0] if begun else next(iter(get_close_matches(name, names, n=1)), None)
