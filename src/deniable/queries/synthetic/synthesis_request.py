"""The request for a synthetic table: its columns as they are binned, the tables that are measured, and their limits.

`asked` turns a caller's arguments into a `Synthesis`, a plan that is public and made before any data is read.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypedDict, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.numbers import below, plain
from deniable.queries.frame.frame import Frame
from deniable.queries.frame.frame_aggregates import count
from deniable.queries.plan.refusals import choices, private_table
from deniable.queries.synthetic import impossible_combinations
from deniable.synth import Forbidden, marginals, room, shares
from deniable.synth.marginals import MOST_WAYS
from deniable.tables.expressions import Expression, as_expression, case, col
from deniable.tables.kinds import BOUNDED, Domain, Kind, Scalar, end_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deniable.queries.plan.question import Question
    from deniable.tables.schema import Table

MOST_BINS: Final = 256
USUAL_BINS: Final = 32
MOST_COLUMNS: Final = 64
MOST_CELLS: Final = 100_000
"""The most cells of one marginal."""
MOST_VALUES: Final = 2000
"""The most values of all columns together."""
MOST_ROWS: Final = 10**9
MOST_IN_ALL: Final = 4_000_000
"""The most cells of all marginals together."""
MOST_ROOM: Final = 32_000_000
"""The most numbers in the matrices of a fit, which has two of each: half a gigabyte."""
MOST_COUNTED: Final = 2100
"""The most marginals: 64 single columns and all their pairs."""


@final
@dataclass(frozen=True, slots=True)
class CountingMethod:
    """A value of the argument `method`: which tables are counted."""

    name: str
    for_known: Fraction = Fraction(1)
    """The share of the cost for counts that are known beforehand. The rest is for tables that the data choose, and for
    the choice."""
    is_single: bool = False
    """Whether each column is counted alone."""
    is_tree: bool = False
    """Whether a spanning tree of pairs is chosen."""
    is_in_rounds: bool = False
    """Whether tables are chosen in rounds, from those that a target or a workload names and the smaller ones."""

    @property
    def chooses(self) -> bool:
        """Whether the data choose tables, as a part of what is paid for."""
        return self.for_known < 1


DEFAULT_METHOD: Final = "pairs"
COUNTING_METHODS: Final[Mapping[str, CountingMethod]] = {
    each.name: each
    for each in (
        CountingMethod(DEFAULT_METHOD),
        CountingMethod("independent", is_single=True),
        CountingMethod("mst", Fraction(1, 5), is_tree=True),
        CountingMethod("adaptive", Fraction(1, 10), is_in_rounds=True),
    )
}
FOR_KEYS: Final = Fraction(1, 10)
"""The share of the cost for finding keys that the schema does not list. The threshold falls with its square root."""
PLACEHOLDERS: Final[Mapping[Kind, Callable[[int], Scalar]]] = {
    Kind.TEXT: str, Kind.INTEGER: int, Kind.DATE: lambda i: dt.date.fromordinal(i + 1)
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class SyntheticColumn:
    """A column as it is measured: by its public values, or in bins of equal width within its public bounds."""

    name: str
    domain: Domain
    values: tuple[Scalar | None, ...]
    """The labels of the cells of a marginal: values, or the first value of each bin; None for missing values."""
    binned: bool
    found: bool = False
    """Whether its keys were found by a noisy count; then all other values count as missing."""

    @property
    def coarse(self) -> bool:
        """Whether a bin may contain several values."""
        if not self.binned or self.domain.bounds is None or self.domain.kind not in {Kind.INTEGER, Kind.DATE}:
            return self.binned
        low, high = self.domain.bounds
        return sum(value is not None for value in self.values) <= int(high - low)

    def expression(self) -> Expression:
        """The expression by which rows are grouped: the value, or the start of its bin."""
        if self.found:
            keys = [value for value in self.values if value is not None]
            return case(*((col(self.name) == key, key) for key in keys)) if keys else as_expression(None)
        if not self.binned:
            return col(self.name)
        starts = [value for value in self.values if value is not None]
        at: Any = col(self.name)
        # From the top down: the first true condition gives the bin; for NULL no condition is true.
        return case(*((at >= start, start) for start in reversed(starts[1:])), (at < starts[1], starts[0]))

    def drawn(self, places: NDArray[np.int64], generator: np.random.Generator) -> list[Scalar | None]:
        """A random value for each index of a cell, uniform within a bin."""
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
    """The plan of a synthetic table. Public, because it is made before any data is read."""

    table: str
    names: tuple[str, ...]
    """The columns in the order of the request; `columns` is in the order of the table."""
    columns: tuple[SyntheticColumn, ...]
    measured: tuple[tuple[int, ...], ...]
    """The marginals to measure, each by the indices of its columns."""
    questions: tuple[Question, ...]
    shares: tuple[Fraction, ...]
    forbidden: Forbidden
    frame: Frame
    unlisted: tuple[int, ...] = ()
    """The indices of columns whose keys a noisy count finds. Until then, each has placeholders for its keys."""
    finding: tuple[Question, ...] = ()
    """The counts that find these keys."""
    method: str = DEFAULT_METHOD
    candidates: tuple[tuple[int, ...], ...] = ()
    """The marginals that may be measured too, if the data choose some of them; `measured` contains the chosen ones as
    soon as they are known.
    """
    weights: tuple[Fraction, ...] = ()
    """The weight of each candidate, at most 1. It grows with the columns shared with the requested tables."""
    offered: tuple[Question, ...] = ()
    """The counts by these candidates."""

    @property
    def counting(self) -> CountingMethod:
        """Which tables are counted, as an object."""
        return COUNTING_METHODS[self.method]

    @property
    def hash(self) -> str:
        """The hash by which the ledger identifies it."""
        parts = [f"{each.hash}:{share}" for each, share in zip(self.questions, self.shares, strict=True)]
        found = [f"unlisted:{each.hash}" for each in self.finding]
        offered = [f"{self.method}:{each.hash}:{by}" for each, by in zip(self.offered, self.weights, strict=True)]
        return sha256("\n".join(["synthesis", *parts, *found, *offered]).encode()).hexdigest()

    @property
    def words(self) -> str:
        """The description in the ledger."""
        return f"synthetic rows of {self.table}: {', '.join(each.name for each in self.columns)}"[:500]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each column."""
        return tuple(len(each.values) for each in self.columns)

    @property
    def cells(self) -> int:
        """The number of cells of all marginals together."""
        return sum(math.prod(self.sizes[place] for place in places) for places in self.measured)

    @property
    def for_keys(self) -> Fraction:
        """The share of the cost for finding the keys of one column; 0 if no column needs it."""
        return FOR_KEYS / len(self.finding) if self.finding else Fraction(0)

    def marginal_name(self, places: Sequence[int]) -> str:
        """A marginal as text: "sex × age"."""
        return " × ".join(self.columns[place].name for place in places)

    @property
    def ruled(self) -> tuple[str, ...]:
        """The columns of each rule on impossible combinations, as text, each once."""
        return tuple(dict.fromkeys(self.marginal_name(sorted(box)) for box in self.forbidden.boxes))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the guarantee in addition to those of every answer."""
        about = ", ".join(self.ruled)
        return (f"the rules about impossible combinations ({about}) were not made from the data",) if about else ()

    def with_keys(self, found: Sequence[Sequence[tuple[Scalar, float]]]) -> Synthesis:
        """The plan with the most frequent of the keys that were found; `found` has (key, noisy count) by column."""
        columns = list(self.columns)
        for place, keys in zip(self.unlisted, found, strict=True):
            most = len(columns[place].values) - 1
            kept = sorted(sorted(keys, key=lambda each: -each[1])[:most])
            columns[place] = replace(columns[place], values=(*(key for key, _ in kept), None))
        return replace(
            self,
            columns=tuple(columns),
            questions=_questions(self.frame, columns, self.measured),
            offered=_questions(self.frame, columns, self.candidates),
        )

    def with_chosen(self, chosen: Sequence[tuple[int, ...]]) -> Synthesis:
        """The plan with the tables that were chosen, some of them perhaps twice."""
        at = dict(zip(self.candidates, self.offered, strict=True))
        return replace(
            self,
            measured=(*self.measured, *chosen),
            questions=(*self.questions, *(at[each] for each in chosen)),
        )


class Wanted(TypedDict, total=False):
    """The options of a synthetic table, without its cost."""

    columns: Sequence[str] | None
    """The columns of the table; by default all but the person's id."""
    target: str | None
    """A column that a model is to predict from the others: each pair is measured together with it."""
    bins: Mapping[str, int] | None
    """The number of bins of equal width for numbers and times, from 2 to 256 (by default up to 32). For an unlisted
    column, the most keys."""
    method: str
    """"pairs" measures each column and each pair of columns; "independent" each column alone. The data choose, as a
    part of what is paid for: "mst" a tree of pairs, "adaptive" the tables that a fit misses most, in rounds."""
    workload: Sequence[Sequence[str]] | None
    """The tables that matter, of two or three columns each, instead of all pairs. With "adaptive", those to choose
    from, and the smaller tables within them."""
    forbid: Sequence[Mapping[str, Any]]
    """Combinations that no row may have: see `impossible_combinations`."""
    unlisted: Sequence[str]
    """Columns without public keys or bounds whose keys a noisy count finds, at a δ."""


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
    """The plan of a synthetic table, from the arguments of `Session.synthesize` (see `Wanted`).

    Raises `InvalidParameter`, before anything is charged, if an argument is wrong, a column has no public values, or
    the tables would be too large.
    """
    name = private_table(table, tables)
    frame, unit = Frame.of(name, tables), tables[name].unit
    chosen = _chosen_columns(columns, frame, None if unit is None else unit.column)
    _check_types(bins, unlisted, forbid)
    rules = impossible_combinations.rules(forbid, chosen)
    _check_named(chosen, bins=bins or {}, target=() if target is None else (target,), unlisted=unlisted)
    # In the table's order, so that the same columns in another order are not paid for twice.
    ordered = [each for each in frame.columns if each in chosen]
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
    _check_values(sizes)
    everything = counted(ordered, sizes, method, target, workload)
    _check_sizes(ordered, sizes, everything)
    candidates = tuple(each for each in everything if len(each) > 1 and COUNTING_METHODS[method].chooses)
    measured = everything[: len(everything) - len(candidates)]
    forbidden = Forbidden.of(sizes, [impossible_combinations.places(rule, found) for rule in rules])
    if forbidden.forbids_all(sizes):
        rule = "forbids every possible row"
        raise InvalidParameter("forbid", NOTHING, rule, "list the combinations that cannot occur")
    to_find = tuple(i for i, each in enumerate(found) if each.name in unlisted)
    fixed = COUNTING_METHODS[method].for_known if candidates else Fraction(1)
    weights = _weights(candidates, counted(ordered, sizes, DEFAULT_METHOD, target, workload))
    return Synthesis(
        name, tuple(chosen), found, measured, _questions(frame, found, measured),
        tuple(fixed * each for each in shares(sizes, measured)), forbidden, frame, to_find,
        tuple(frame.group_by(c=col(found[i].name)).agg(n=count()) for i in to_find), method, candidates,
        weights, _questions(frame, found, candidates),
    )  # fmt: skip


def row_count(name: str, given: Any, rule: str = "must be a whole number of rows, from 1 to 10⁹") -> int:
    """A number of rows, as a Python int. Raises `InvalidParameter` unless it is a whole number from 1 to 10⁹."""
    return arguments.python_int(name, plain(given), NumberRange(rule, least=1, most=MOST_ROWS))


def _chosen_columns(columns: Sequence[str] | None, frame: Frame, person: str | None) -> list[str]:
    """The columns that are named, or all but the person's id."""
    if isinstance(columns, str):
        raise InvalidParameter("columns", columns, "must be a list of names", f'write columns=["{columns}"]')
    if not isinstance(columns, Iterable | None):
        raise InvalidParameter("columns", type_of(columns), "must be a list of names", 'write columns=["sex", "age"]')
    chosen = [each for each in frame.columns if each != person] if columns is None else list(columns)
    if not all(isinstance(each, str) for each in chosen):
        raise InvalidParameter("columns", NOTHING, "must be given by name", 'write columns=["sex", "age"]')
    if person in chosen:
        rule = "identifies people, and a synthetic row belongs to nobody"
        raise InvalidParameter("columns", person, rule, "leave it out")
    if twice := next((each for each in chosen if chosen.count(each) > 1), None):
        raise InvalidParameter("columns", twice, "is named twice", "name it once")
    if not 1 <= len(chosen) <= MOST_COLUMNS:
        raise InvalidParameter("columns", NOTHING, f"must be 1 to {MOST_COLUMNS} columns; these are {len(chosen)}")
    frame.select(*chosen)  # raises for an unknown name
    return chosen


def _check_types(bins: object, unlisted: object, forbid: object) -> None:
    if not isinstance(bins, Mapping | None):
        raise InvalidParameter("bins", type_of(bins), "must map columns to numbers", 'write bins={"age": 10}')
    examples = {"unlisted": '["city"]', "forbid": '[{"sex": "m", "pregnant": True}]'}
    for word, given in (("unlisted", unlisted), ("forbid", forbid)):
        if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
            raise InvalidParameter(word, type_of(given), "must be a list", f"write {word}={examples[word]}")


def _check_named(chosen: Sequence[str], **named: Iterable[str]) -> None:
    """Raise `InvalidParameter` if an argument names a column that is not among the chosen columns."""
    for word, names in named.items():
        for each in names:
            if each not in chosen:
                raise InvalidParameter(word, each, "is not one of the columns", choices("", chosen))


def _check_values(sizes: Sequence[int]) -> None:
    if sum(sizes) > MOST_VALUES:
        rule = f"must have at most {MOST_VALUES:,} values together, because the time of a fit grows with their square"
        raise InvalidParameter("columns", sum(sizes), rule, "give fewer bins, or leave a column out")


def _check_sizes(names: Sequence[str], sizes: Sequence[int], measured: Sequence[tuple[int, ...]]) -> None:
    """Refuse tables that are too large by themselves, together, or for the memory of a fit."""
    cells = [math.prod(sizes[place] for place in places) for places in measured]
    for places, many in zip(measured, cells, strict=True):
        if many > MOST_CELLS:
            rule = f"{' × '.join(names[place] for place in places)} has more than {MOST_CELLS:,} cells"
            raise InvalidParameter("bins", many, rule, "give fewer bins, or leave a column out")
    if sum(cells) > MOST_IN_ALL:
        rule = f"all counts together have more than {MOST_IN_ALL:,} cells"
        raise InvalidParameter("columns", len(names), rule, "give fewer bins, leave columns out, or name a workload")
    if room(sizes, measured) > MOST_ROOM:
        rule = "the fit would need more than half a gigabyte for these tables"
        raise InvalidParameter(
            "workload", len(measured), rule, "name fewer tables of three columns, or give fewer bins"
        )


def _questions(
    frame: Frame, columns: Sequence[SyntheticColumn], measured: Sequence[tuple[int, ...]]
) -> tuple[Question, ...]:
    return tuple(
        frame.group_by(**{f"c{place}": columns[place].expression() for place in places}).agg(n=count())
        for places in measured
    )


def _check_one_of(method: str, target: str | None, workload: object) -> None:
    """Refuse more than one of a method other than "pairs", a target, and a workload."""
    given = {
        "workload": workload is not None,
        "target": target is not None,
        f'method="{method}"': method != DEFAULT_METHOD,
    }
    if len(named := [name for name, is_given in given.items() if is_given]) > 1:
        rule = f"{' and '.join(named)} each say which tables are counted"
        remedy = 'leave all but one out; method="adaptive" takes a workload or a target'
        raise InvalidParameter(named[0], NOTHING, rule, remedy)


def counted(
    names: Sequence[str], sizes: Sequence[int], method: str, target: str | None, workload: Any
) -> tuple[tuple[int, ...], ...]:
    """The marginals to measure or to choose from, by indices: each column, and pairs, pairs with a target, or a
    workload.

    Raises `InvalidParameter` if one of them is wrong, or if more than one of method, target and workload is given. The
    method "adaptive" may be combined with a target or a workload.
    """
    if not isinstance(method, str) or method not in COUNTING_METHODS:
        raise InvalidParameter("method", method, "is not a known method", choices("", COUNTING_METHODS))
    if COUNTING_METHODS[method].is_in_rounds:
        return _with_smaller(counted(names, sizes, DEFAULT_METHOD, target, workload))
    _check_one_of(method, target, workload)
    if COUNTING_METHODS[method].is_single:
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
        if unknown := [one for one in together if one not in names]:
            raise InvalidParameter("workload", unknown[0], "is not one of the columns", choices("", names))
        if not 1 <= len(together) <= MOST_WAYS or len(set(together)) != len(together):
            rule = f"a table must be by 1 to {MOST_WAYS} columns, each once"
            remedy = 'write [("sex", "age"), ("age", "pay", "sex")]'
            raise InvalidParameter("workload", " × ".join(together) or NOTHING, rule, remedy)
        found[tuple(sorted(names.index(one) for one in together))] = None
    if len(found) > MOST_COUNTED:
        raise InvalidParameter("workload", len(found), f"has more than {MOST_COUNTED:,} tables", "name fewer")
    return tuple(sorted(found, key=lambda places: (len(places), places)))


def _with_smaller(tables: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """These tables and all pairs within them: a fit that misses a pair of columns misses every table with both."""
    pairs = {pair for each in tables for pair in combinations(each, 2)}
    return tuple(sorted({*tables, *pairs}, key=lambda places: (len(places), places)))


def _weights(candidates: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> tuple[Fraction, ...]:
    """The weight of each candidate: the number of columns that it shares with each wanted table of several columns,
    added up, relative to the largest sum (McKenna et al. 2022).
    """
    tables = [set(each) for each in wanted if len(each) > 1]
    shared = [sum(len(each & set(places)) for each in tables) for places in candidates]
    return tuple(Fraction(each, max(shared)) for each in shared)


def _column(name: str, domain: Domain, bins: int | None, unlisted: bool, cuts: Sequence[Any]) -> SyntheticColumn:
    bins = plain(bins)
    if bins is not None:
        rule = f"must be a whole number from 2 to {MOST_BINS} for {name}"
        arguments.python_int("bins", bins, NumberRange(rule, least=2, most=MOST_BINS))
    if unlisted:
        return _stand_in(name, domain, bins or USUAL_BINS)
    missing = (None,) if domain.nullable else ()
    if domain.keys is not None:
        if bins is not None:
            raise InvalidParameter("bins", name, "has keys in the schema, so it needs no bins", "leave it out of bins")
        return SyntheticColumn(name, domain, (*domain.keys, *missing), binned=False)
    if domain.bounds is None:
        rule = f"{name} has neither keys nor bounds, so its values are not public"
        ways = ["declare them in the schema"]
        ways += [f'buy bounds with bounds("{name}")'] if domain.kind in BOUNDED else []
        ways += [f'find keys with unlisted=["{name}"]'] if domain.kind in PLACEHOLDERS else []
        raise InvalidParameter("columns", name, rule, f"{', '.join(ways)}, or leave it out")
    starts = _starts(domain, bins or USUAL_BINS, cuts)
    if len(starts) < 2 and domain.kind is not Kind.INTEGER:
        raise InvalidParameter("columns", name, "can have only one value, by its bounds", "leave it out")
    return SyntheticColumn(name, domain, (*starts, *missing), binned=len(starts) > 1)


def _stand_in(name: str, domain: Domain, keys: int) -> SyntheticColumn:
    """A column whose keys are unknown until a noisy count finds them. Its values are placeholders, as many as it may
    have keys, and None for all other values.
    """
    if domain.keys is not None or domain.bounds is not None:
        raise InvalidParameter("unlisted", name, "has keys or bounds in the schema", "leave it out of unlisted")
    if domain.kind not in PLACEHOLDERS:
        rule = f"is {domain.kind.value}, whose values hardly ever repeat"
        raise InvalidParameter("unlisted", name, rule, f'buy bounds with bounds("{name}")')
    values = tuple(PLACEHOLDERS[domain.kind](i) for i in range(keys))
    return SyntheticColumn(name, domain, (*values, None), binned=False, found=True)


def _starts(domain: Domain, bins: int, cuts: Sequence[Any]) -> list[Scalar]:
    """The first value of each bin. Bins have equal width, up to one integer or day, and are also cut where a rule on
    impossible combinations starts or ends, so that no bin is partly forbidden.
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
    """The value at a fraction `at` of a bin from `start` up to `end`, which only the last bin includes."""
    if isinstance(start, int):
        return start + int(at * (end - start + is_last))
    if isinstance(start, dt.date):  # in whole days or microseconds, so that no value is rounded into the next bin
        step = dt.timedelta(microseconds=1) if isinstance(start, dt.datetime) else dt.timedelta(days=1)
        return start + int(at * ((end - start) // step + is_last)) * step
    last = end if is_last else below(end)
    return min(max(start + (end - start) * at, start), last)
