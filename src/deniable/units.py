"""The parts of a guarantee: who is protected (`Unit`), how far an answer can move (`Sensitivity`), and the two together
with a curve (`Guarantee`).

A curve says how well two neighbouring tables can be told apart, but not which tables are neighbours. The same noise
costs up to twice as much ε if neighbours differ by a replaced row instead of an added one. So the unit travels with the
curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

from deniable import arguments, numbers
from deniable.arguments import NumberRange
from deniable.errors import InvalidParameter

if TYPE_CHECKING:
    from deniable.curves import Curve

__all__ = ["Guarantee", "Relation", "Sensitivity", "Unit"]

# Above this, neighbouring integers share one float and "at most `rows` rows" would no longer be exact.
_ROWS: Final = NumberRange("must be a whole number of rows, from 1 to 2**53", least=1, most=2**53)
_PERIODS: Final = ("day", "week")
_OUTPUTS: Final = NumberRange("must be a whole number, at least 1", least=1)
_BOUNDS: Final = NumberRange("must be positive and finite", above=Fraction(1, 2**1075), below=arguments.BEYOND_FLOATS)
"""Numbers whose nearest float is positive and finite."""


@final
class Relation(Enum):
    """How one of two neighbouring tables becomes the other."""

    ADD_REMOVE = "add/remove"
    """One unit is present in one table and absent from the other. The number of rows is protected too."""

    REPLACE = "replace"
    """One unit has different data. Only the data are protected, not whether the unit takes part."""


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """What two neighbouring tables differ by: one row, or one person with at most `rows` rows, added or removed, or
    replaced; or a person's rows of one day or week, which is a weaker promise.

    Each case has a constructor:

    >>> Unit.row()
    Unit.row()
    >>> Unit.replaced_row().describe()
    'one row replaced by another'
    >>> Unit.person("patient_id", rows=20).describe()
    "one person ('patient_id', at most 20 rows) added or removed"
    >>> Unit.person_day("patient_id", "visited", rows=3).describe()
    "the rows of one person on one day ('patient_id', 'visited', at most 3 rows) added or removed, not a whole person"

    Source: Dwork & Roth (2014), section 2.3, for rows; a person with many rows is a group of bounded size.
    """

    relation: Relation
    _: KW_ONLY
    rows: int
    column: str | None = None
    period: str | None = None
    """"day" or "week" if the unit is a person's rows in one such period; None if it is a whole person, or a row."""
    time: str | None = None
    """The column that says in which period a row is."""

    def __post_init__(self) -> None:
        if not isinstance(self.relation, Relation):
            raise InvalidParameter("relation", self.relation, "must be a Relation", "write Unit.row() or Unit.person()")
        object.__setattr__(self, "rows", numbers.plain(self.rows))
        object.__setattr__(self, "column", numbers.plain(self.column))
        arguments.python_int("rows", self.rows, _ROWS)
        if self.column is None:
            if self.rows != 1:
                raise InvalidParameter(
                    "rows", self.rows, "must be 1 for Unit.row()", "name the person: Unit.person(column, rows=)"
                )
        elif not isinstance(self.column, str) or not self.column:
            raise InvalidParameter("column", self.column, "must name the column that identifies a person")
        if self.period is None and self.time is None:
            return
        if self.period not in _PERIODS or self.column is None or self.relation is not Relation.ADD_REMOVE:
            rule = "must be day or week, of a person who is added or removed"
            raise InvalidParameter("period", self.period, rule, "write Unit.person_day(column, time, rows=)")
        if not isinstance(self.time, str) or not self.time or self.time == self.column:
            raise InvalidParameter("time", self.time, "must name the column with the time of each row")

    @classmethod
    def row(cls) -> Unit:
        """Neighbours D, D′: D′ is D with one row added or removed."""
        return cls(Relation.ADD_REMOVE, rows=1)

    @classmethod
    def replaced_row(cls) -> Unit:
        """Neighbours D, D′: D′ is D with one row replaced by another; both have equally many rows."""
        return cls(Relation.REPLACE, rows=1)

    @classmethod
    def person(cls, column: str, *, rows: int) -> Unit:
        """Neighbours D, D′: D′ is D with all the rows of one person, at most `rows`, added or removed.

        `column` identifies the person. The library does not assume the bound: it must be enforced on the table, for
        instance by keeping at most `rows` rows of each person.
        """
        return cls(Relation.ADD_REMOVE, rows=rows, column=column)

    @classmethod
    def replaced_person(cls, column: str, *, rows: int) -> Unit:
        """Neighbours D, D′: D′ is D with the rows of one person replaced by the rows of another, at
        most `rows` each.
        """
        return cls(Relation.REPLACE, rows=rows, column=column)

    @classmethod
    def person_day(cls, column: str, time: str, *, rows: int) -> Unit:
        """Neighbours D, D′: D′ is D with the rows of one person on one day, at most `rows`, added or removed.

        `column` identifies the person, and `time` is a column of dates or timestamps, whose days are those of UTC. This
        does not protect a whole person: two tables that differ by a person with rows on k days are k steps apart, so ε
        (or μ) is k times as large between them (group privacy; Dwork & Roth 2014, theorem 2.2). A habit that shows on
        many days is hardly protected.
        """
        return cls(Relation.ADD_REMOVE, rows=rows, column=column, period="day", time=time)

    @classmethod
    def person_week(cls, column: str, time: str, *, rows: int) -> Unit:
        """Neighbours D, D′: D′ is D with the rows of one person in one week (from Monday), at most `rows`, added or
        removed. As for `person_day`, a whole person is not protected.
        """
        return cls(Relation.ADD_REMOVE, rows=rows, column=column, period="week", time=time)

    @property
    def row_changes(self) -> int:
        """The largest number of single rows that are added or removed between a table and its neighbour.

        A replacement is a removal and an addition, so it counts twice: in the histogram view of a table, ‖x − y‖₁ ≤ 1
        for a row added or removed and = 2 for a row replaced (Dwork & Roth 2014, section 2.3).

        >>> Unit.row().row_changes, Unit.replaced_row().row_changes
        (1, 2)
        >>> Unit.person("patient_id", rows=20).row_changes
        20
        """
        return self.rows if self.relation is Relation.ADD_REMOVE else 2 * self.rows

    def is_alike(self, other: Unit) -> bool:
        """Whether one budget can protect both: the same relation, and people in both, rows in both, or the same period
        of people in both, by a column of the same name. (By another column of time, the rows of one day would be
        spread over many days, and each of them would have the whole budget.)

        A person has one budget for all tables. Each table has its own bound on a person's rows and its own name of the
        column of ids: the sensitivity of a question follows from the tables that it reads.

        >>> Unit.person("patient_id", rows=20).is_alike(Unit.person("id", rows=3))
        True
        >>> Unit.person("patient_id", rows=20).is_alike(Unit.row())
        False
        """
        same_kind = (self.column is None) == (other.column is None)
        same_kind = same_kind and (self.period, self.time) == (other.period, other.time)
        return self.relation is other.relation and same_kind

    def to_dict(self) -> dict[str, object]:
        """Plain values (JSON) that `from_dict` reads back."""
        record: dict[str, object] = {"relation": self.relation.value, "rows": self.rows, "column": self.column}
        return record if self.period is None else {**record, "period": self.period, "time": self.time}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Unit:
        """The unit that `to_dict` wrote. Raises KeyError, ValueError or InvalidParameter for anything else."""
        period, time = record.get("period"), record.get("time")
        return cls(Relation(record["relation"]), rows=record["rows"], column=record["column"], period=period, time=time)

    def describe(self) -> str:
        """The unit as a phrase that finishes "neighbouring tables differ by …"."""
        if self.column is None:
            return "one row added or removed" if self.relation is Relation.ADD_REMOVE else "one row replaced by another"
        if self.period is not None:
            when = "on one day" if self.period == "day" else "in one week"
            most = f"at most {self.rows} row{'s' if self.rows > 1 else ''}"
            who = f"the rows of one person {when} ({self.column!r}, {self.time!r}, {most})"
            return f"{who} added or removed, not a whole person"
        who = f"one person ({self.column!r}, at most {self.rows} row{'s' if self.rows > 1 else ''})"
        return f"{who} added or removed" if self.relation is Relation.ADD_REMOVE else f"{who} replaced by another"

    @property
    def secret(self) -> str:
        """The fact that is protected, as a phrase that finishes "an attacker guesses …".

        >>> Unit.person("patient_id", rows=20).secret
        'whether a person is in the data'
        >>> Unit.person_day("patient_id", "visited", rows=3).secret
        "whether a person's rows of one day are in the data"
        """
        if self.period is not None:
            return f"whether a person's rows of one {self.period} are in the data"
        if self.relation is Relation.REPLACE:
            return f"which of two {'rows' if self.column is None else 'people'} is in the data"
        return "whether a row is in the data" if self.column is None else "whether a person is in the data"

    def __repr__(self) -> str:
        prefix = "" if self.relation is Relation.ADD_REMOVE else "replaced_"
        if self.column is None:
            return f"Unit.{prefix}row()"
        if self.period is not None:
            return f"Unit.person_{self.period}({self.column!r}, {self.time!r}, rows={self.rows})"
        return f"Unit.{prefix}person({self.column!r}, rows={self.rows})"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How far a statistic can move between neighbours: Δ_p = sup over neighbours D, D′ of ‖f(D) − f(D′)‖_p.

    Laplace noise needs `l1`, Gaussian noise needs `l2`, and `linf` bounds each coordinate. Each is an upper bound, or
    None if unknown; at least one must be given. Since ‖v‖∞ ≤ ‖v‖₂ ≤ ‖v‖₁, bounds in another order raise
    InvalidParameter: one of them would be loose, and most often two were swapped.

    Computed bounds are rounded up, the safe side. A float a few roundings below √k, such as math.sqrt(3), is taken for
    √k. A bound given in one of NumPy's shorter floats keeps the precision of its type, also in `over` and `of_each`:
    ten times float32(0.7) lies below 7 by rounding only, so a statistic of integers may move by 7.

    >>> Sensitivity(l1=2.0, l2=1.5)
    Sensitivity(l1=2.0, l2=1.5)

    Source: Dwork & Roth (2014), definitions 3.1 and 3.8.
    """

    l1: float | None = None
    l2: float | None = None
    linf: float | None = None

    def __post_init__(self) -> None:
        for name in ("l1", "l2", "linf"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked_bound(name, value))
        known = [
            (name, value)
            for name, value in (("linf", self.linf), ("l2", self.l2), ("l1", self.l1))
            if value is not None
        ]
        if not known:
            raise InvalidParameter("sensitivity", None, "at least one of l1, l2, linf must be known")
        for (small, low), (large, high) in pairwise(known):
            if low > high:
                rule = f"must be at most {large}={high!r}, for no vector has a larger {small} norm than {large} norm"
                raise InvalidParameter(small, low, rule, f"are they swapped? if not, {small}={high!r} is true as well")

    @classmethod
    def count(cls, unit: Unit) -> Sensitivity:
        """The sensitivity of the number of rows that fulfil a condition: `unit.rows`, under either relation.

        Replacing one matching row by another that does not match moves the count by one, not by two.

        >>> Sensitivity.count(Unit.row()) == Sensitivity.count(Unit.replaced_row()) == Sensitivity(l1=1, l2=1, linf=1)
        True
        """
        rows = float(_checked_unit(unit).rows)
        return cls(l1=rows, l2=rows, linf=rows)

    @classmethod
    def histogram(cls, unit: Unit) -> Sensitivity:
        """The sensitivity of counts in disjoint bins, each row in at most one bin.

        With k = `unit.rows`. Added or removed: l1 = l2 = linf = k, attained by k rows in one bin. Replaced: k rows may
        leave one bin for another, so l1 = 2k, l2 = √2·k, linf = k. The number of bins plays no part.

        >>> Sensitivity.histogram(Unit.row())
        Sensitivity(l1=1.0, l2=1.0, linf=1.0)
        >>> Sensitivity.histogram(Unit.replaced_row())
        Sensitivity(l1=2.0, l2=1.4142135623730951, linf=1.0)
        """
        k = _checked_unit(unit).rows
        if unit.relation is Relation.ADD_REMOVE:
            return cls(l1=float(k), l2=float(k), linf=float(k))
        # u, v ≥ 0 leave and enter: ‖u−v‖₂² ≤ ‖u‖₂² + ‖v‖₂² ≤ 2k², because the inner product of u and v is not negative.
        return cls(l1=2.0 * k, l2=_product_up(k, numbers.root_up(Fraction(2))), linf=float(k))

    @classmethod
    def of_each(cls, bound: float, *, outputs: int) -> Sensitivity:
        """The sensitivity of `outputs` numbers that each move by at most `bound`: l1 ≤ k·bound, l2 ≤ √k·bound, linf =
        bound.

        >>> Sensitivity.of_each(1, outputs=4)
        Sensitivity(l1=4.0, l2=2.0, linf=1.0)

        Source: ‖v‖₁ ≤ k‖v‖∞ and ‖v‖₂ ≤ √k‖v‖∞ for v of k coordinates. Only an upper bound: see `histogram`.
        """
        linf = _checked_bound("bound", bound)
        arguments.python_int("outputs", outputs, _OUTPUTS)
        return cls(l1=_product_up(linf, outputs), l2=_product_up(linf, numbers.root_up(Fraction(outputs))), linf=linf)

    def over(self, unit: Unit) -> Sensitivity:
        """The sensitivity between neighbours by `unit`, if this one is the sensitivity to one row added or removed.

        A neighbour is reached through `unit.row_changes` single rows, so by the triangle inequality every norm grows by
        at most that factor. This holds for any statistic that is defined on every table along the way. It is not always
        tight: a histogram's l2 under replacement is √2, and this returns 2.

        >>> Sensitivity(l1=1).over(Unit.replaced_row())
        Sensitivity(l1=2.0)
        >>> Sensitivity(l2=0.5).over(Unit.person("patient_id", rows=20))
        Sensitivity(l2=10.0)
        """
        changes = _checked_unit(unit).row_changes
        l1, l2, linf = (
            None if value is None else _product_up(value, changes) for value in (self.l1, self.l2, self.linf)
        )
        return Sensitivity(l1=l1, l2=l2, linf=linf)

    def __repr__(self) -> str:
        known = [f"{name}={getattr(self, name)!r}" for name in ("l1", "l2", "linf") if getattr(self, name) is not None]
        return f"Sensitivity({', '.join(known)})"


def _checked_unit(unit: object) -> Unit:
    if not isinstance(unit, Unit):
        raise InvalidParameter("unit", unit, "must be a Unit", "write Unit.row() or Unit.person(column, rows=)")
    return unit


@final
@dataclass(frozen=True, slots=True)
class Guarantee:
    """The complete promise of a release: between any two tables D, D′ that differ by `unit`, the release leaks at most
    what `curve` says, provided that each of the `assumptions` holds.

    >>> from deniable import curves
    >>> promise = Guarantee(curves.gaussian(sigma=2), Unit.row(), assumptions=("the noise is drawn once",))
    >>> promise.unit
    Unit.row()
    >>> promise.describe()
    'Between tables that differ by one row added or removed, whoever sees the output and starts from even odds guesses \
    right at most 59.9 % of the time, provided that the noise is drawn once.'
    """

    curve: Curve
    unit: Unit
    _: KW_ONLY
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        from deniable.curves import Curve  # late, so that a Unit alone does not import the curves

        if not isinstance(self.curve, Curve):
            raise InvalidParameter("curve", self.curve, "must be a Curve", "deniable.curves makes them")
        if not isinstance(self.unit, Unit):
            raise InvalidParameter(
                "unit", self.unit, "must be a Unit", "write Unit.row() or Unit.person(column, rows=)"
            )
        if not isinstance(self.assumptions, tuple) or not all(
            isinstance(words, str) and words.strip() for words in self.assumptions
        ):
            raise InvalidParameter("assumptions", self.assumptions, "must be a tuple of texts, none of them empty")

    def describe(self) -> str:
        """One sentence for readers: the unit, the best attacker's success rate (rounded up), and the assumptions.

        The rate is (1 + advantage)/2: the largest probability of a right guess by an attacker who knows two
        neighbouring tables and sees the output on one of them, chosen by a fair coin.
        """
        thousandths = min(1000, math.ceil(500 * (1 + Fraction(self.curve.advantage()))))
        whole, tenth = divmod(thousandths, 10)
        chance = f"{whole}.{tenth} %" if tenth else f"{whole} %"
        provided = f", provided that {enumeration(self.assumptions)}" if self.assumptions else ""
        return (
            f"Between tables that differ by {self.unit.describe()}, whoever sees the output and starts from even odds "
            f"guesses right at most {chance} of the time{provided}."
        )

    def __repr__(self) -> str:
        assuming = f", assumptions={self.assumptions!r}" if self.assumptions else ""
        return f"Guarantee({self.curve!r}, {self.unit!r}{assuming})"


def _checked_bound(name: str, value: object) -> float:
    arguments.rational(name, value, _BOUNDS, type_rule="must be a number", finite_rule=_BOUNDS.rule)
    return numbers.Rounded.as_of(_float_up(numbers.raised_to_root(value)), value)


def _float_up(exact: Fraction) -> float:
    try:
        return numbers.up(exact)
    except OverflowError:
        raise InvalidParameter("sensitivity", exact, "must fit into a float") from None


def _product_up(value: float, factor: Fraction | int) -> float:
    """The smallest float that is at least value × factor."""
    return numbers.Rounded.as_of(_float_up(Fraction(value) * factor), value)


def enumeration(parts: Sequence[str]) -> str:
    """The parts as a sentence lists them: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
