"""Registration as SQL: read a source as its owner declared it, and bound each person's rows.

The rules are total and look at one row at a time, so no row can stop a registration or change how another person's rows
are read:

* a value is read as the kind that matches its type in the source, then cast to the declared kind. It becomes NULL if
  that is impossible, or if it is not finite, outside the calendar, or beyond 64 bits. Text is trimmed before the cast;
* numbers and dates are clamped to the declared bounds; a value that is not among declared keys becomes NULL;
* a row without a person, or with NULL in a column declared without NULLs, is dropped;
* each person's rows are ranked by a keyed hash of their content, and the first `unit.rows` of them are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import Final, final

from sqlglot import exp

from deniable.errors import InvalidParameter
from deniable.queries.engines.engine import PERSON, RANK, unreadable
from deniable.queries.engines.expression_sql import DAY, TIME, ExpressionWriter, Piece
from deniable.queries.engines.row_positions import stored_name
from deniable.queries.engines.sql_spelling import (
    SQL,
    Spelling,
    both,
    case,
    cast,
    column,
    first_of,
    function,
    name,
    number,
    try_cast,
)
from deniable.queries.relations.operator_bounds import Unfit
from deniable.tables.kinds import LONGEST, Domain, Kind, end_of
from deniable.tables.schema import Table

HASH: Final = "hash"
_MOST_PAIRED: Final = 12
"""In public tables with more columns than this, join partners are counted for single columns only, not for pairs."""


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """The SQL that reads a source.

    `select` returns the person and the hash of each row (of a private table), and the declared columns.
    """

    select: exp.Select
    columns: Mapping[str, str]
    person: Kind | None
    """The kind of the person's id; None if every row is its own person, or if the table is public."""
    tie_break: tuple[str, ...]
    """The columns of reals, which order rows with equal hashes: the hash does not cover all bits of a real."""
    tally: exp.Select
    """SELECT of the reason to drop a row (its index in `reasons`; -1: kept), the number of rows, and their hash sum."""
    reasons: tuple[str, ...]
    """The columns that must have a value: the person's id, and columns declared without NULLs."""
    packed: frozenset[str] = frozenset()
    """Columns that are stored as ENUM while rows are sorted, and as text afterwards."""
    plain: exp.Select | None = None
    """`select` with text in place of ENUM, and with a hash only where bounds or keys altered the row; None without ids.

    The hash of any other row follows from its stored values, by `hashed`.
    """
    hashed: SQL | None = None
    """The hash of a row from the person and the stored columns, if they are unaltered; None if there is no id."""

    @property
    def whose(self) -> str | None:
        """The column with the person's id, which is the first of `reasons`; None if there is no such column."""
        return None if self.person is None else self.reasons[0]


def id_kind(table: Table) -> Kind | None:
    """The kind of the person's id: integer if the owner declared that, otherwise text, compared exactly.

    None if the table has no id column. Raises `InvalidParameter` if the column is declared as real.
    """
    if table.unit is None or table.unit.column is None:
        return None
    declared = dict(table.columns).get(table.unit.column)
    if declared is None:
        return Kind.TEXT
    if declared.kind is Kind.REAL:
        rule = "must be a column of integers or texts, not of reals"
        remedy = 'pandas turns integers with a missing value into reals: use frame[column].astype("Int64"), or cast it'
        raise InvalidParameter("unit", table.unit.column, rule, remedy)
    return Kind.INTEGER if declared.kind is Kind.INTEGER else Kind.TEXT


def person_kind(table: Table) -> Kind | None:
    """The kind of the stored ids: texts where the unit is a person's day or week, because they begin with its date."""
    kind = id_kind(table)
    return kind if table.unit is None or table.unit.period is None else Kind.TEXT


def same_people(so_far: Kind | None, table: Table) -> Kind | None:
    """The kind of person ids in all tables of an engine; `InvalidParameter` if this table has another one.

    `so_far` is the kind in the tables registered before (None: no ids yet). With one kind, an id means the same person
    in every table.
    """
    kind = id_kind(table)
    if kind is None or so_far in {None, kind}:
        return kind or so_far
    assert table.unit is not None
    raise InvalidParameter(
        "unit",
        table.unit.column,
        "has ids of another kind than the tables that were registered before",
        "declare the ids of all tables as integer, or all as text",
    )


def reading(table: Table, source: SQL, found: Mapping[str, Piece | None], spelling: Spelling, secret: bytes) -> Reading:
    """The SQL that reads a source as `table`.

    `found` has each column converted to the kind of its type in the source (None: the type has no kind). Raises
    `InvalidParameter` if a column cannot be read as declared.
    """
    writer = ExpressionWriter(spelling, {}, count())
    person = person_kind(table)
    whose = None if table.unit is None else table.unit.column
    inner: list[SQL] = []
    present: dict[str, SQL] = {}
    if person is not None and whose is not None:
        # No bounds for ids: an id that is clamped would become another person's.
        declared = replace(dict(table.columns).get(whose, Domain(person)), bounds=None)
        piece = _settled(writer, whose, _only_whole(writer, found[whose], declared.kind), declared)
        if piece.kind is not person:
            piece = _cast(writer, whose, piece, person)
        if table.unit is not None and table.unit.time is not None:
            piece = replace(piece, sql=_within_period(writer, table, found, piece.sql))
        inner.append(exp.Alias(this=piece.sql, alias=name(PERSON)))
        present[whose] = column(PERSON)
    names: dict[str, str] = {}
    contents: dict[str, tuple[SQL, Domain]] = {}
    packed: set[str] = set()
    raw: dict[str, str] = {}
    for position, (each, domain) in enumerate(table.columns):
        if each == whose:
            continue
        names[each] = stored_name(position, each)
        short = all(len(str(key)) <= LONGEST for key in domain.keys or ())  # `_altered` relies on it
        smaller = spelling.packed(domain) if person is not None and short else None
        if smaller is None:
            piece = _declared(writer, each, found[each], domain)
        else:  # the cast also turns a value that is not a key into NULL
            piece = _settled(writer, each, found[each], replace(domain, keys=None))
            piece = replace(piece, sql=try_cast(piece.sql, smaller))
            packed.add(names[each])
        inner.append(exp.Alias(this=piece.sql, alias=name(names[each])))
        contents[each] = column(names[each]), domain
        if domain.bounds is not None or domain.keys is not None:
            # The value before bounds and keys: a later schema with other bounds keeps the same rows of each person.
            plain, alias = replace(domain, bounds=None, keys=None), f"{names[each]} read"
            inner.append(exp.Alias(this=_declared(writer, each, found[each], plain).sql, alias=name(alias)))
            contents[each] = column(alias), plain
            raw[names[each]] = alias
        if not domain.nullable:
            present[each] = column(names[each])
    if not inner:
        # A table without declared columns still has rows to count.
        inner.append(exp.Alias(this=number(1), alias=name("nothing")))
    read: SQL = source
    for layer in writer.layers:
        below = [exp.Star(), *(exp.Alias(this=sql, alias=name(alias)) for alias, sql in layer)]
        read = _from(exp.Select(expressions=below, from_=exp.From(this=read)))
    select = exp.Select(expressions=inner, from_=exp.From(this=read))
    ordered = [contents[each] for each in sorted(contents)]
    outputs: list[SQL] = [column(each) for each in names.values()]
    hashed, texts = None, None
    if person is not None:
        digest = _digest(spelling, secret, person, ordered)
        unpacked = [exp.Alias(this=_unpacked(each, packed), alias=name(each)) for each in names.values()]
        changed = [_altered(each, alias, packed) for each, alias in raw.items()]
        shown = case((exp.Paren(this=exp.or_(*changed)), digest)) if changed else cast(exp.Null(), spelling.hash_type)
        texts = _where([column(PERSON), exp.Alias(this=shown, alias=name(HASH)), *unpacked], select.copy(), present)
        unaltered: list[tuple[SQL, Domain]] = [(column(names[each]), contents[each][1]) for each in sorted(contents)]
        hashed = _digest(spelling, secret, person, unaltered)
        outputs = [column(PERSON), exp.Alias(this=digest.copy(), alias=name(HASH)), *outputs]
    elif not outputs:
        outputs = [column("nothing")]
    outer = _where(outputs, select, present)
    whole = [*([] if person is None else [column(PERSON)]), *(sql.copy() for sql, _ in ordered)]
    tally = _tally(select, whole or [column("nothing")], list(present.values()), spelling)
    ties = tuple(names[each] for each, (_, domain) in contents.items() if domain.kind is Kind.REAL)
    return Reading(outer, names, person, ties, tally, tuple(present), frozenset(packed), texts, hashed)


def _only_whole(writer: ExpressionWriter, piece: Piece | None, declared: Kind) -> Piece | None:
    """Ids that are declared as integers: a real is one only if it is whole and below 2^53, otherwise NULL.

    Rounded ids would become those of other people, and one person would take the places of another's rows.
    """
    if piece is None or piece.kind is not Kind.REAL or declared is not Kind.INTEGER:
        return piece
    piece = writer.named(piece)
    whole = both(exp.EQ, function("FLOOR", piece.sql), piece.sql.copy())
    small = both(exp.LT, function("ABS", piece.sql.copy()), writer.spelling.real(2.0**53))
    return replace(piece, sql=case((exp.And(this=whole, expression=small), piece.sql.copy())), size=99)


def _within_period(writer: ExpressionWriter, table: Table, found: Mapping[str, Piece | None], person: SQL) -> SQL:
    """The id of a person's day or week: the first day of the period, then the id of the person; NULL if one is missing.

    The text of a date has no letter, so two pairs never have the same text. The time is read before
    bounds: clamped days would fall together, and share the bound on rows.
    """
    unit = table.unit
    assert unit is not None
    assert unit.time is not None
    assert unit.period is not None
    plain = replace(table.column(unit.time), bounds=None, keys=None)
    when = _settled(writer, unit.time, found[unit.time], plain)
    # As a date, so that a day has one text in tables with dates and in tables with timestamps.
    day = cast(writer.spelling.date_trunc(unit.period, when.sql, plain.kind), writer.spelling.types[Kind.DATE])
    start = cast(day, writer.spelling.types[Kind.TEXT])
    return both(exp.DPipe, both(exp.DPipe, start, writer.spelling.text("p")), person)


def _where(outputs: list[SQL], rows: exp.Select, present: Mapping[str, SQL]) -> exp.Select:
    made = exp.Select(expressions=outputs, from_=exp.From(this=_from(rows)))
    if present:
        made.set("where", exp.Where(this=exp.and_(*(_present(each.copy()) for each in present.values()))))
    return made


def _altered(stored: str, alias: str, packed: Collection[str]) -> SQL:
    """Whether bounds or keys changed the value `alias` of a row."""
    lost = _missing(column(stored))
    other = both(exp.NEQ, column(stored), column(alias))
    differs = lost if stored in packed else exp.Paren(this=exp.or_(lost, other))
    return exp.And(this=_present(column(alias)), expression=differs)


def _tally(select: exp.Select, rows: list[SQL], present: list[SQL], spelling: Spelling) -> exp.Select:
    reason = exp.Case(
        ifs=[exp.If(this=_missing(each.copy()), true=number(at)) for at, each in enumerate(present)], default=number(-1)
    )
    outputs = [
        exp.Alias(this=reason if present else number(-1), alias=name("reason")),
        exp.Alias(this=spelling.fingerprint(rows), alias=name("row")),
    ]
    below = exp.Select(expressions=outputs, from_=exp.From(this=_from(select.copy())))
    sums = [column("reason"), function("COUNT", exp.Star()), function("SUM", column("row"))]
    return exp.Select(
        expressions=sums, from_=exp.From(this=_from(below)), group=exp.Group(expressions=[column("reason")])
    )


def in_order(reading: Reading, location: SQL, most: int, people: SQL | None = None) -> exp.Select:
    """SELECT of the rows of a registered table with their rank, where registration stored the hash of altered rows.

    `people` is the table of ids and numbers, if the stored person is such a number: the hash covers the id.
    """
    whose = PERSON if people is None else "number"
    hashed = _with_hashes(reading, location, people)
    return ranked(_from(hashed), replace(reading, packed=frozenset()), column(whose), most)


def _with_hashes(reading: Reading, location: SQL, people: SQL | None) -> exp.Select:
    """SELECT of the rows of a registered table with their hashes."""
    columns = [*reading.columns.values()]
    whose, rows = PERSON, location.copy()
    if people is not None:
        whose = "number"
        known = exp.Alias(this=column(PERSON), alias=name("known"))
        stored = exp.Select(expressions=[known, *map(column, (HASH, *columns))], from_=exp.From(this=rows))
        called = exp.Alias(this=column("id"), alias=name(PERSON))
        joined = exp.Select(expressions=[column(whose), called, *map(column, (HASH, *columns))])
        met = both(exp.EQ, column("known"), column(whose))
        rows = _from(joined.from_(_from(stored)).join(people.copy(), on=met))
    assert reading.hashed is not None
    digest = exp.Coalesce(this=column(HASH), expressions=[reading.hashed.copy()])
    shown = [exp.Alias(this=digest, alias=name(HASH)), *map(column, (whose, *columns))]
    return exp.Select(expressions=shown, from_=exp.From(this=rows))


def ranked(rows: SQL, reading: Reading, person: SQL, most: int, *, hashes: bool = False) -> exp.Select:
    """SELECT of each person's first `most` rows by hash, with their rank. `rows` is the result of `reading.select`.

    With `hashes`, the hashes as well.
    """
    order = [exp.Ordered(this=column(each), desc=False, nulls_first=True) for each in (HASH, *reading.tie_break)]
    over = exp.Window(this=function("ROW_NUMBER"), partition_by=[person], order=exp.Order(expressions=order))
    columns = [column(each) for each in reading.columns.values()]
    columns += [column(HASH)] if hashes else []
    kept = [exp.Alias(this=_unpacked(each.name, reading.packed), alias=name(each.name)) for each in columns]
    place = exp.Alias(this=over, alias=name(RANK))
    whose = exp.Alias(this=person.copy(), alias=name(PERSON))
    inner = exp.Select(expressions=[whose, place, *columns], from_=exp.From(this=rows))
    rank = exp.Alias(this=cast(column(RANK), "INT") if most < 2**31 else column(RANK), alias=name(RANK))
    outer = exp.Select(expressions=[column(PERSON), rank, *kept], from_=exp.From(this=_from(inner)))
    return outer.where(both(exp.LTE, column(RANK), number(most)), copy=False)


def with_partners(table: Table, location: SQL, columns: Mapping[str, str], count: Callable[[exp.Select], int]) -> Table:
    """A public table with the most partners that a row can have in a join; `count` runs a SELECT. A private table is
    returned as it is.
    """
    if table.unit is not None:
        return table
    most = tuple((joined, count(_partners(location, columns, joined))) for joined in _partner_sets(table))
    return replace(table, most_partners=most)


def _partner_sets(table: Table) -> list[tuple[str, ...]]:
    """The sets of join columns of a public table to count partners for: each column, and each pair if there are few."""
    names = [each for each, _ in table.columns]
    pairs = list(combinations(names, 2)) if len(names) <= _MOST_PAIRED else []
    return [*((each,) for each in names), *pairs]


def _partners(location: SQL, columns: Mapping[str, str], joined: tuple[str, ...]) -> exp.Select:
    """SELECT of the largest number of rows that share one value of `joined`. NULL has no partner."""
    inside = exp.Select(
        expressions=[exp.Alias(this=function("COUNT", exp.Star()), alias=name("n"))],
        from_=exp.From(this=location.copy()),
        where=exp.Where(this=exp.and_(*(_present(column(columns[each])) for each in joined))),
        group=exp.Group(expressions=[column(columns[each]) for each in joined]),
    )
    most = exp.Coalesce(this=function("MAX", column("n")), expressions=[number(0)])
    return exp.Select(expressions=[most], from_=exp.From(this=_from(inside)))


# --- one value ------------------------------------------------------------------------------------------------------


def _declared(writer: ExpressionWriter, each: str, piece: Piece | None, domain: Domain) -> Piece:
    """A column as it is stored. Text is truncated; ids are not, because two long ids could become one."""
    piece = _settled(writer, each, piece, domain)
    if domain.kind is Kind.TEXT and domain.keys is None:
        return replace(piece, sql=first_of(piece.sql, LONGEST))
    return piece


def _settled(writer: ExpressionWriter, each: str, piece: Piece | None, domain: Domain) -> Piece:
    """A column cast to its declared kind, clamped to its bounds, with NULL for values that are not keys."""
    if piece is None:
        raise unreadable(each, domain.kind.value)
    piece = _cast(writer, each, piece, domain.kind)
    spelling = writer.spelling
    if domain.bounds is not None:
        piece = writer.named(piece)
        below, above = (spelling.literal(end_of(domain.kind, end), domain.kind) for end in domain.bounds)
        x = piece.sql
        sql = case(
            (both(exp.LT, x, below), below.copy()), (both(exp.GT, x.copy(), above), above.copy()), otherwise=x.copy()
        )
        piece = replace(piece, sql=sql, size=99)
    if domain.keys is not None and domain.kind is not Kind.BOOLEAN:
        piece = writer.named(piece)
        listed = spelling.among(piece.sql, domain.keys, domain.kind)
        piece = replace(piece, sql=case((listed, piece.sql.copy())), size=99)
    return piece


def _cast(writer: ExpressionWriter, each: str, piece: Piece, kind: Kind) -> Piece:
    if piece.kind is kind:
        return piece
    if piece.kind is Kind.TEXT and kind is Kind.TIMESTAMP:
        return _moment(writer, writer.named(piece))
    if piece.kind is Kind.TEXT:
        piece = replace(piece, sql=writer.spelling.trim(piece.sql))
    try:
        return writer.call(f"cast_{kind.value}", (replace(piece, size=99),))
    except Unfit:
        raise unreadable(each, kind.value, piece.kind.value) from None


def _moment(writer: ExpressionWriter, piece: Piece) -> Piece:
    """A timestamp in UTC from text: a day, or up to 2024-02-29T23:59:59.123456Z; the end parts are optional."""
    pattern = rf"{DAY}([ T]{TIME}(:[0-5][0-9]([.][0-9]{{1,6}})?)?)?Z?"
    trimmed = writer.named(replace(piece, sql=writer.spelling.trim(piece.sql)))
    plain = trimmed.sql
    for letter, into in (("T", " "), ("Z", "")):
        plain = function("REPLACE", plain.copy(), exp.Literal.string(letter), exp.Literal.string(into))
    read = try_cast(plain, writer.spelling.types[Kind.TIMESTAMP])
    sql = case((writer.spelling.matches(trimmed.sql.copy(), pattern), read))
    return Piece(sql, Domain(Kind.TIMESTAMP), 99, trimmed.layer)


def _digest(spelling: Spelling, secret: bytes, person: Kind, columns: list[tuple[SQL, Domain]]) -> SQL:
    """MD5 of the secret, the person and the content of a row, before bounds and keys are applied.

    Privacy needs one property: the rank of a row is a fixed function of the secret and of this person's rows. Then, for
    each secret, tables that differ by one person keep the same rows of everyone else, and the bound holds. Any such
    function would do, even a public one; no guarantee rests on the strength of MD5.

    The secret serves accuracy: no writer of rows can choose which ones are kept, and the choice does not depend on
    their content, so counts are not biased. This needs distinct hashes: rows with equal hashes and different content
    would be ordered by their position in storage. With MD5 under a secret key, two rows collide with a probability of
    about 2^-128. An engine's own unkeyed 64-bit hash would collide more often, and differs between engines and
    versions.

    The encoding is unambiguous: text is preceded by its length, and each value ends with a semicolon. The parts of a
    NULL are skipped, which leaves nothing, or a separator alone; no value is encoded like that. A real is encoded by
    its integer part and 53 bits of its fraction, which IEEE arithmetic computes alike on every engine; the few reals
    that this does not distinguish are ordered by value (`Reading.tie_break`).
    """
    parts: list[SQL] = [exp.Literal.string(secret.hex())]
    for sql, domain in [(column(PERSON), Domain(person, nullable=False)), *columns]:
        parts += [*_canonical(spelling, sql, domain), exp.Literal.string(";")]
    return spelling.digest(parts)


def _canonical(spelling: Spelling, value: SQL, domain: Domain) -> list[SQL]:
    """The encoding of a value as a list of texts. They are joined once for a whole row, because joining is slow."""
    string = spelling.types[Kind.TEXT]
    kind = domain.kind
    if kind is Kind.TEXT:
        return [cast(function("LENGTH", value), string), exp.Literal.string(":"), value.copy()]
    if kind is Kind.REAL:
        return _real(spelling, value, domain)
    if kind is Kind.TIMESTAMP:
        return [cast(spelling.microseconds(value), string)]
    return [cast(value, string)]


def _real(spelling: Spelling, value: SQL, domain: Domain) -> list[SQL]:
    string = spelling.types[Kind.TEXT]
    whole = function("FLOOR", value)
    rest = function("FLOOR", both(exp.Mul, both(exp.Sub, value.copy(), whole.copy()), spelling.real(2.0**53)))
    inside = [cast(cast(whole, "BIGINT"), string), exp.Literal.string("+"), cast(cast(rest, "BIGINT"), string)]
    if domain.bounds is not None and max(abs(end) for end in domain.bounds) < 2**53:
        return inside
    small = both(exp.LT, function("ABS", value.copy()), spelling.real(2.0**53))
    sign = case((both(exp.LT, value.copy(), spelling.real(0.0)), exp.Literal.string("-")))
    huge = exp.Coalesce(this=sign, expressions=[exp.Literal.string("+")])
    return [case((small, _joined(inside)), (exp.Not(this=small.copy()), huge))]


def _joined(parts: list[SQL]) -> SQL:
    """The parts joined into one text; NULL if a part is NULL."""
    text = parts[0]
    for part in parts[1:]:
        text = exp.DPipe(this=text, expression=part, safe=True)
    return exp.Paren(this=text)


def _unpacked(each: str, packed: Collection[str]) -> SQL:
    return cast(column(each), "VARCHAR") if each in packed else column(each)


def _present(value: SQL) -> SQL:
    return exp.Not(this=_missing(value))


def _missing(value: SQL) -> SQL:
    return exp.Is(this=value, expression=exp.Null())


def _from(select: SQL) -> SQL:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=name("t")))
