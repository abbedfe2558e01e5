"""Every exception that deniable raises on purpose.

::

    DeniableError
    ├── InvalidParameter (ValueError)        a number or argument that cannot mean anything: sigma=-1, delta=2, NaN
    │   ├── InvalidDistribution              masses or densities that are not a pair of distributions; says where
    │   ├── InvalidTradeoff                  a function that is not a trade-off function; says where
    │   └── InvalidExpression                a curve expression that cannot be read; says where
    ├── InvalidOperation (TypeError)         two things that do not combine: a curve times a number
    ├── OutsideTheorem (ValueError)          a textbook formula asked outside the range in which it is proved
    ├── ImpossibleTarget (ValueError)        a calibration that no parameter can reach; says why
    ├── NotCertifiable                       a number that cannot be certified in bounded memory and time
    ├── UnreadableRecord (ValueError)        a dict that from_dict cannot read: unknown name, newer version
    ├── BudgetExceeded                       a filter or ledger refuses a cost; nothing was spent
    ├── NotPrivateWarning (UserWarning)      an answer was made with replayable entropy: it protects nobody
    ├── EngineFailed                         an engine could not finish: a code of a closed list, and nothing the engine said
    └── MissingExtra (ImportError)           an optional dependency is not installed; says which extra brings it

An error says what was asked, what is true, and what to do. Its facts are attributes: programs need not read prose.
No error carries a value of the data, or anything computed from one.
"""

from __future__ import annotations


class DeniableError(Exception):
    """Root of the tree: catch this to catch everything deniable raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is unpickled by calling its class with the finished message, which fails where a class
        # takes facts instead, and then takes a whole pool of worker processes down with it.
        return _revived, (type(self), self.args), self.__dict__


def _revived(kind: type[DeniableError], args: tuple[object, ...]) -> DeniableError:
    return kind.__new__(kind, *args)


NOTHING = object()
"""For `asked`: no single value is to blame."""


class InvalidParameter(DeniableError, ValueError):
    """An argument is outside what it can mean."""

    def __init__(self, parameter: str, asked: object, rule: str, remedy: str = "") -> None:
        self.parameter = parameter
        self.asked = asked
        self.rule = rule
        self.remedy = remedy
        try:
            shown = "" if asked is NOTHING else f"={asked!r}"
        except Exception:  # whatever was passed, its own repr (10**5000 has none) must not hide what is wrong with it
            shown = f"=<{type(asked).__name__}>"
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"{parameter}{shown}: {rule}" + (f"; {remedy}" if remedy else ""))


class InvalidDistribution(InvalidParameter):
    """Masses or densities do not form a probability distribution."""


class InvalidTradeoff(InvalidParameter):
    """A function is not a trade-off function (convex, non-increasing, continuous, at most 1 - alpha)."""


class InvalidExpression(InvalidParameter):
    """A curve expression cannot be read."""


class InvalidOperation(DeniableError, TypeError):
    """Two things that do not combine."""


class OutsideTheorem(DeniableError, ValueError):
    """A formula was asked outside the range in which it is a theorem, so its number would be no guarantee."""

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

    def __init__(self, asked: str, left: str, remedy: str) -> None:
        self.asked = asked
        self.left = left
        self.remedy = remedy
        super().__init__(f"asked {asked}, left {left}; {remedy}")


class NotPrivateWarning(DeniableError, UserWarning):
    """An answer was made with entropy that can be replayed. It looks like any other answer, and protects nobody."""


ENGINE_FAILURES = {
    "source": "the source could not be read",
    "time": "the engine ran longer than it may",
    "space": "the engine needed more memory or disk than it may use",
    "engine": "the engine could not finish",
}
"""Every way in which an engine fails, as far as anyone is told. What the engine itself said can hold data."""


class EngineFailed(DeniableError):
    """An engine could not finish. Whatever it said about that is not repeated: it could hold a value of the data."""

    def __init__(self, code: str, remedy: str = "") -> None:
        assert code in ENGINE_FAILURES, code
        self.code = code
        self.remedy = remedy
        super().__init__(ENGINE_FAILURES[code] + (f"; {remedy}" if remedy else ""))


class MissingExtra(DeniableError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f'{package} is not installed; pip install "deniable[{extra}]" brings it')
