"""Synthetic tables: which counts are measured for one, and what is read off them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypedDict, final

from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count
from deniable.queries.plan.refusals import choices
from deniable.queries.synthetic import impossible_combinations
from deniable.synth import Forbidden, marginals, room, shares
from deniable.synth.marginals import MOST_WAYS
from deniable.tables.expressions import Expression, as_expression, case, col
from deniable.tables.kinds import Domain, Kind, Scalar, end_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deniable.queries.plan.question import Question
    from deniable.tables.schema import Table

MOST_BINS: Final = 256
USUAL_BINS: Final = 32
MOST_COLUMNS: Final = 64
MOST_CELLS: Final = 100_000
"""Cells of one marginal."""
MOST_VALUES: Final = 2000
"""Values of all columns together."""
MOST_ROWS: Final = 10**9
MOST_IN_ALL: Final = 4_000_000
"""Cells of all marginals together."""
MOST_ROOM: Final = 32_000_000
"""Numbers in the matrices of a fit, which has two of each: half a gigabyte."""
MOST_COUNTED: Final = 2100
"""Marginals: all pairs of 64 columns, and themselves."""
METHODS: Final = ("pairs", "independent")
FOR_KEYS: Final = Fraction(1, 10)
"""The share of the cost for finding keys that nobody listed. The threshold falls with its root."""
STANDING: Final[Mapping[Kind, Callable[[int], Scalar]]] = {
    Kind.TEXT: str, Kind.INTEGER: int, Kind.DATE: lambda i: dt.date.fromordinal(i + 1)
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class SyntheticColumn:
    """A column as it is measured: by its public values, or by bins of equal width within its public bounds."""

    name: str
    domain: Domain
    values: tuple[Scalar | None, ...]
    """What a cell of a marginal is told by: a value, or the first value of a bin; None for missing values."""
    binned: bool
    found: bool = False
    """Whether its keys are those that a noisy count showed: all other values are told as missing."""

    @property
    def coarse(self) -> bool:
        """Whether a bin may hold several values."""
        if not self.binned or self.domain.bounds is None or self.domain.kind not in {Kind.INTEGER, Kind.DATE}:
            return self.binned
        low, high = self.domain.bounds
        return sum(value is not None for value in self.values) <= int(high - low)

    def expression(self) -> Expression:
        """What the rows are counted by."""
        if self.found:
            keys = [value for value in self.values if value is not None]
            return case(*((col(self.name) == key, key) for key in keys)) if keys else as_expression(None)
        if not self.binned:
            return col(self.name)
        starts = [value for value in self.values if value is not None]
        at: Any = col(self.name)
        # From the top down, so that the first condition that is true is the bin; NULL is in none.
        return case(*((at >= start, start) for start in reversed(starts[1:])), (at < starts[1], starts[0]))

    def drawn(self, places: NDArray[np.int64], generator: np.random.Generator) -> list[Scalar | None]:
        """A value for each place; within a bin all values are alike."""
        if not self.binned:
            return [self.values[place] for place in places.tolist()]
        assert self.domain.bounds is not None
        starts = [value for value in self.values if value is not None]
        top = end_of(self.domain.kind, self.domain.bounds[1])
        edges = [*starts, top]
        return [
            None if place >= len(starts) else _within(edges[place], edges[place + 1], place == len(starts) - 1, at)
            for place, at in zip(places.tolist(), generator.random(len(places)).tolist(), strict=True)
        ]


@final
@dataclass(frozen=True, slots=True)
class Synthesis:
    """What will be measured for a synthetic table: public, and made before any data is read."""

    table: str
    names: tuple[str, ...]
    """The columns in the order that was asked for."""
    columns: tuple[SyntheticColumn, ...]
    measured: tuple[tuple[int, ...], ...]
    questions: tuple[Question, ...]
    shares: tuple[Fraction, ...]
    forbidden: Forbidden
    frame: Frame
    unlisted: tuple[int, ...] = ()
    """The places of columns whose keys are found by a noisy count; until then each has as many stand-ins as it may have
    keys."""
    finding: tuple[Question, ...] = ()
    """The counts that find them."""

    @property
    def hash(self) -> str:
        """What the ledger knows it by."""
        parts = [f"{each.hash}:{share}" for each, share in zip(self.questions, self.shares, strict=True)]
        found = [f"unlisted:{each.hash}" for each in self.finding]
        return sha256("\n".join(["synthesis", *parts, *found]).encode()).hexdigest()

    @property
    def words(self) -> str:
        """What the ledger says was asked."""
        return f"synthetic rows of {self.table}: {', '.join(each.name for each in self.columns)}"[:500]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(len(each.values) for each in self.columns)

    @property
    def cells(self) -> int:
        """Cells of all counts together."""
        return sum(math.prod(self.sizes[place] for place in places) for places in self.measured)

    @property
    def for_keys(self) -> Fraction:
        """The share of the cost for finding keys, of each column that needs it."""
        return FOR_KEYS / len(self.finding) if self.finding else Fraction(0)

    def told(self, places: Sequence[int]) -> str:
        """A marginal in words."""
        return " × ".join(self.columns[place].name for place in places)

    @property
    def ruled(self) -> tuple[str, ...]:
        """What each rule about combinations that cannot be is about, in words, each once."""
        return tuple(dict.fromkeys(self.told(sorted(box)) for box in self.forbidden.boxes))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the guarantee to hold of what is read off it, beside what holds of every answer."""
        about = ", ".join(self.ruled)
        return (f"the rules of what cannot be ({about}) were not made from the data",) if about else ()

    def with_keys(self, found: Sequence[Sequence[tuple[Scalar, float]]]) -> Synthesis:
        """The same with the keys that were found, each with its noisy count: the commonest, as many as there may be."""
        columns = list(self.columns)
        for place, keys in zip(self.unlisted, found, strict=True):
            most = len(columns[place].values) - 1
            kept = sorted(sorted(keys, key=lambda each: -each[1])[:most])
            columns[place] = replace(columns[place], values=(*(key for key, _ in kept), None))
        return replace(self, columns=tuple(columns), questions=_questions(self.frame, columns, self.measured))


class Wanted(TypedDict, total=False):
    """What a synthetic table shall be, its cost apart."""

    columns: Sequence[str] | None
    """All but the one that says whose row it is, if not given."""
    target: str | None
    """A column that a model shall learn to tell from the others: each pair is counted together with it."""
    bins: Mapping[str, int] | None
    """Into how many bins of equal width the numbers and times of a column are sorted (up to 32, if not given); of an
    unlisted column, how many keys it has at most."""
    method: str
    """"pairs" counts by each column and each pair of columns; "independent" by each column alone."""
    workload: Sequence[Sequence[str]] | None
    """The tables that matter, of two or three columns each, instead of all pairs."""
    forbid: Sequence[Mapping[str, Any]]
    """Combinations that no row may have: see `impossible_combinations`."""
    unlisted: Sequence[str]
    """Columns without keys and bounds whose keys shall be found by a noisy count, at a δ."""


def asked(
    table: str | None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    bins: Mapping[str, int] | None = None,
    *,
    tables: Mapping[str, Table],
    method: str = "pairs",
    workload: Sequence[Sequence[str]] | None = None,
    forbid: Sequence[Mapping[str, Any]] = (),
    unlisted: Sequence[str] = (),
) -> Synthesis:
    """The plan of a synthetic table; InvalidParameter, before anything is charged, if a column has no public values."""
    private = [name for name, each in tables.items() if each.unit is not None]
    if table is None and len(private) != 1:
        raise InvalidParameter("table", NOTHING, "this session has several", choices("", private))
    name = private[0] if table is None else table
    frame = Frame.of(name, tables)
    unit = tables[name].unit
    whose = None if unit is None else unit.column
    if isinstance(columns, str):
        raise InvalidParameter("columns", columns, "must be a list of names", f'write columns=["{columns}"]')
    told = [each for each in frame.columns if each != whose] if columns is None else list(columns)
    if not all(isinstance(each, str) for each in told):
        raise InvalidParameter("columns", NOTHING, "must be given by name", 'write columns=["sex", "age"]')
    if whose in told:
        raise InvalidParameter(
            "columns", whose, "says whose row it is, and a synthetic row is nobody's", "leave it out"
        )
    if twice := next((each for each in told if told.count(each) > 1), None):
        raise InvalidParameter("columns", twice, "is named twice")
    if not 1 <= len(told) <= MOST_COLUMNS:
        raise InvalidParameter("columns", NOTHING, f"must be 1 to {MOST_COLUMNS} columns; these are {len(told)}")
    frame.select(*told)  # says what is wrong with a name
    if not isinstance(bins or {}, Mapping):
        raise InvalidParameter("bins", type_of(bins), "must give a number for a column", 'write bins={"age": 10}')
    for word, given in (("unlisted", unlisted), ("forbid", forbid)):
        if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
            example = '["city"]' if word == "unlisted" else '[{"sex": "m", "pregnant": True}]'
            raise InvalidParameter(word, type_of(given), "must be a list", f"write {word}={example}")
    # In the table's order, so that the same columns in another order are not paid for twice.
    ordered = [each for each in frame.columns if each in told]
    rules = impossible_combinations.rules(forbid, told)
    for word, names in (("bins", [*(bins or {})]), ("target", [target] if target is not None else []),
                        ("unlisted", list(unlisted))):  # fmt: skip
        for given in names:
            if given not in told:
                raise InvalidParameter(word, given, "is none of the columns", choices("", told))
    found = tuple(
        _column(
            each,
            domain := frame.relation.columns[frame.names[each]],
            (bins or {}).get(each),
            each in unlisted,
            impossible_combinations.cuts(rules, each, domain.kind),
        )
        for each in ordered
    )
    sizes = [len(each.values) for each in found]
    if sum(sizes) > MOST_VALUES:
        rule = f"the columns have more than {MOST_VALUES:,} values together, and a fit takes time with their square"
        raise InvalidParameter("columns", sum(sizes), rule, "give fewer bins, or leave a column out")
    measured = counted(ordered, sizes, method, target, workload)
    for places in measured:
        cells = math.prod(sizes[place] for place in places)
        if cells > MOST_CELLS:
            names_told = " × ".join(ordered[place] for place in places)
            rule = f"{names_told} has more than {MOST_CELLS:,} cells"
            raise InvalidParameter("bins", cells, rule, "give fewer bins, or leave a column out")
    if sum(math.prod(sizes[place] for place in places) for places in measured) > MOST_IN_ALL:
        rule = f"all counts together have more than {MOST_IN_ALL:,} cells"
        raise InvalidParameter("columns", len(told), rule, "give fewer bins, leave columns out, or name a workload")
    if room(sizes, measured) > MOST_ROOM:
        rule = "the fit would need more than half a gigabyte for these tables"
        raise InvalidParameter(
            "workload", len(measured), rule, "name fewer tables of three columns, or give fewer bins"
        )
    places_found = tuple(i for i, each in enumerate(found) if each.name in unlisted)
    forbidden = Forbidden.of(sizes, [impossible_combinations.places(rule, found) for rule in rules])
    if forbidden.forbids_all(sizes):
        rule = "the rules forbid every row that there could be"
        raise InvalidParameter("forbid", NOTHING, rule, "are they the right way round?")
    finding = tuple(frame.group_by(c=col(found[place].name)).agg(n=count()) for place in places_found)
    questions = _questions(frame, found, measured)
    return Synthesis(
        name, tuple(told), found, measured, questions, tuple(shares(sizes, measured)), forbidden, frame, places_found,
        finding,
    )  # fmt: skip


def _questions(
    frame: Frame, columns: Sequence[SyntheticColumn], measured: Sequence[tuple[int, ...]]
) -> tuple[Question, ...]:
    return tuple(
        frame.group_by(**{f"c{place}": columns[place].expression() for place in places}).agg(n=count())
        for places in measured
    )


def counted(
    names: Sequence[str], sizes: Sequence[int], method: str, target: str | None, workload: Any
) -> tuple[tuple[int, ...], ...]:
    """What is counted: each column, and by the method each pair, each pair with a target, or what was named."""
    if method not in METHODS:
        raise InvalidParameter("method", method, "is no method", choices("", METHODS))
    if [method != METHODS[0], target is not None, workload is not None].count(True) > 1:
        rule = "method, target and workload each say what is counted"
        raise InvalidParameter("workload", NOTHING, rule, "give one of them")
    if method == "independent":
        return tuple((place,) for place in range(len(sizes)))
    if workload is None:
        return tuple(marginals(sizes, target=None if target is None else names.index(target)))
    if isinstance(workload, str) or not isinstance(workload, Sequence):
        raise InvalidParameter("workload", type_of(workload), "must list columns", 'write [("sex", "age")]')
    found: dict[tuple[int, ...], None] = {(place,): None for place in range(len(sizes))}
    for each in workload:
        if not isinstance(each, Sequence):
            raise InvalidParameter("workload", type_of(each), "must list columns", 'write [("sex", "age")]')
        together = [each] if isinstance(each, str) else list(each)
        if unknown := next((one for one in together if one not in names), None):
            raise InvalidParameter("workload", unknown, "is none of the columns", choices("", names))
        if not 1 <= len(together) <= MOST_WAYS or len(set(together)) != len(together):
            rule = f"a table must be by 1 to {MOST_WAYS} columns, each once"
            raise InvalidParameter("workload", " × ".join(together) or NOTHING, rule)
        found[tuple(sorted(names.index(one) for one in together))] = None
    if len(found) > MOST_COUNTED:
        raise InvalidParameter("workload", len(found), f"has more than {MOST_COUNTED:,} tables", "name fewer")
    return tuple(sorted(found, key=lambda places: (len(places), places)))


def _column(name: str, domain: Domain, bins: int | None, unlisted: bool, cuts: Sequence[Any]) -> SyntheticColumn:
    if bins is not None and (isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= MOST_BINS):
        raise InvalidParameter("bins", bins, f"those of {name} must be a whole number from 2 to {MOST_BINS}")
    if unlisted:
        return _stand_in(name, domain, bins or USUAL_BINS)
    missing = (None,) if domain.nullable else ()
    if domain.keys is not None:
        if bins is not None:
            raise InvalidParameter("bins", name, "has keys in the schema, which are counted as they are")
        return SyntheticColumn(name, domain, (*domain.keys, *missing), binned=False)
    if domain.bounds is None:
        rule = f"{name} has neither keys nor bounds, so its values are not public"
        raise InvalidParameter(
            "columns", name, rule,
            f'declare them in the schema, buy bounds with bounds("{name}"), find keys with unlisted=["{name}"], '
            "or leave it out",
        )  # fmt: skip
    starts = _starts(domain, bins or USUAL_BINS, cuts)
    if len(starts) < 2:
        return (
            SyntheticColumn(name, domain, (*starts, *missing), binned=False)
            if domain.kind is Kind.INTEGER
            else _single(name)
        )
    return SyntheticColumn(name, domain, (*starts, *missing), binned=True)


def _stand_in(name: str, domain: Domain, keys: int) -> SyntheticColumn:
    """A column whose keys will be found: as many others in their place as there may be, and one for all the rest."""
    if domain.keys is not None or domain.bounds is not None:
        raise InvalidParameter("unlisted", name, "has keys or bounds in the schema", "leave it out of unlisted")
    if domain.kind not in STANDING:
        rule = f"is {domain.kind.value}, and hardly any value of it comes twice"
        raise InvalidParameter("unlisted", name, rule, f'buy bounds with bounds("{name}")')
    values = tuple(STANDING[domain.kind](i) for i in range(keys))
    return SyntheticColumn(name, domain, (*values, None), binned=False, found=True)


def _single(name: str) -> SyntheticColumn:
    raise InvalidParameter("columns", name, "can have one value only, by its bounds", "leave it out")


def _starts(domain: Domain, bins: int, cuts: Sequence[Any]) -> list[Scalar]:
    """The first value of each bin: of equal width, as far as whole numbers and days can be shared out, and cut where a
    rule begins or ends, so that no bin is partly forbidden.
    """
    assert domain.bounds is not None
    low, high = domain.bounds
    if domain.kind in {Kind.INTEGER, Kind.DATE}:
        whole = int(high - low) + 1
        bins = min(bins, whole)
        ends = sorted({low + (whole * i) // bins for i in range(bins)})
    else:
        ends = [low + (high - low) * i / bins for i in range(bins)] if high > low else [low]
    found: list[Any] = [end_of(domain.kind, end) for end in ends]
    if cuts:
        top = end_of(domain.kind, high)
        found = sorted({*found, *(each for each in cuts if found[0] < each <= top)})
    return [each for i, each in enumerate(found) if i == 0 or each != found[i - 1]]


def _within(start: Any, end: Any, is_last: bool, at: float) -> Any:
    """A value of a bin that begins at `start` and ends before `end`; the last one holds its end."""
    if isinstance(start, int):
        return start + int(at * (end - start + is_last))
    if isinstance(start, dt.date):  # days, or moments: whole steps, so that none is rounded up to the next bin
        step = dt.timedelta(microseconds=1) if isinstance(start, dt.datetime) else dt.timedelta(days=1)
        return start + int(at * ((end - start) // step + is_last)) * step
    last = end if is_last else math.nextafter(end, -math.inf)
    return min(max(start + (end - start) * at, start), last)
