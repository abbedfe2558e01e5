"""Schemas: the declarations of a table's owner. Nothing in a schema is taken from the data.

A schema is written in Python (`Table`), or as a YAML, TOML or JSON file that `read_schema` reads::

    version: 1
    tables:
      visits:
        person: patient_id          # the column that identifies people
        rows: 20                    # the most rows of a person that are read
        neighbours: add/remove      # or: replace
        columns:
          age:  {kind: integer, low: 0, high: 120}
          ward: {kind: text, keys: [A, B, C], nullable: false}
          cost: {kind: real, low: 0, high: 10000}
          day:  {kind: date, low: 2024-01-01, high: 2024-12-31}
      wards:
        public: true                # nobody is protected in it
        columns:
          ward: {kind: text}
          city: {kind: text, keys: [Ghent, Lyon]}
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from deniable.errors import NOTHING, InvalidParameter, UnreadableRecord, nearest
from deniable.tables.kinds import BOUNDED, Domain, Kind, declared, end_of
from deniable.units import Relation, Unit

NAMELESS: Final = "every column must have a name"
NAME_IT: Final = "name it, or leave it out; pandas writes its index without a name, unless to_csv(..., index=False)"
FILL_IN: Final = "FILL IN"
"""The placeholder in a proposed schema for facts that only the owner knows. A schema with a placeholder is refused."""
PROPOSED: Final = "`deniable schema FILE` and propose_schema(...) write one to fill in"

_VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True)
class Table:
    """The declaration of a table: its name, its columns, and its privacy unit. `unit` None: the table is public.

    - `most_partners` is for public tables: (columns, the largest number of rows with the same values in them). It is
      counted at registration, which is allowed because the table is public.
    - `unique` lists columns whose values identify one row, and so one person, such as the id of an order. A join on
      such a column joins rows of the same person. If a person has several rows with one value, the join keeps
      only one of them.
    - `owned` lists columns whose values belong to one person but may occur in several rows, such as the id of an order
      in the table of its items. Such rows are grouped and joined as rows of one person.

    The column that identifies people need not be declared; no expression can read it.
    Raises `InvalidParameter` for a missing name, a wrong domain, or two names that differ only by case.

    >>> visits = Table.of("visits", Unit.person("patient_id", rows=20), age=Domain.integer(0, 120))
    >>> visits.column("age")
    Domain.integer(0, 120)
    """

    name: str
    columns: tuple[tuple[str, Domain], ...]
    unit: Unit | None
    most_partners: tuple[tuple[tuple[str, ...], int], ...] = ()
    unique: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidParameter("name", self.name, "must be the name of a table, as text")
        if self.unit is not None and not isinstance(self.unit, Unit):
            raise InvalidParameter("unit", self.unit, "must be a Unit, or None for a public table")
        for name, domain in self.columns:
            if not isinstance(name, str) or not name:
                raise InvalidParameter("columns", name, NAMELESS, NAME_IT)
            if not isinstance(domain, Domain):
                raise InvalidParameter(name, domain, "must be a Domain", "write Domain.integer(0, 120), Domain.text()")
        refuse_twins(name for name, _ in self.columns)
        domains = dict(self.columns)
        if self.unit is not None and self.unit.time is not None:
            when = domains.get(self.unit.time)
            if when is None or when.kind not in {Kind.DATE, Kind.TIMESTAMP}:
                rule = "names the time of each row, so it must be a declared column of dates or timestamps"
                raise InvalidParameter("time", self.unit.time, rule, "declare it with Domain.date(first, last)")
        for name in self.unique:
            if name not in domains or domains[name].nullable:
                rule = "must be a declared column without missing values, because its values identify rows"
                raise InvalidParameter("unique", name, rule, "declare it with nullable=False")
        for name in self.owned:
            if name not in domains or self.unit is None or self.unit.column is None:
                rule = "must be a declared column, in a table whose unit is a person"
                raise InvalidParameter("owned", name, rule, "name a column whose values belong to one person each")

    @classmethod
    def of(cls, name: str, unit: Unit | None, /, **columns: Domain) -> Table:
        """A table with its columns as keyword arguments."""
        return cls(name, tuple(columns.items()), unit)

    def column(self, name: str) -> Domain:
        """The domain of a column; `InvalidParameter` for an unknown name."""
        for each, domain in self.columns:
            if each == name:
                return domain
        raise InvalidParameter("column", name, f"must be one of {', '.join(each for each, _ in self.columns)}")


Schema = dict[str, Table]
"""Tables by their names."""


def read_schema(source: str | Path | Mapping[str, Any], *, unit: Unit | None = None) -> Schema:
    """The tables of a schema, given as a path (.yaml, .yml, .toml, .json), as text, or as a mapping.

    `unit` is for private tables without an entry `person` or `neighbours`. Raises `UnreadableRecord` with the place of
    a mistake, and `InvalidParameter` for a file that cannot be read or for wrong bounds and keys.

    >>> tables = read_schema(
    ...     {"tables": {"t": {"columns": {"x": {"kind": "real", "low": 0, "high": 1}}}}}, unit=Unit.row()
    ... )
    >>> tables["t"].unit, tables["t"].column("x")
    (Unit.row(), Domain.real(0, 1))
    """
    record = _record(source)
    _only(record, {"version", "tables"}, "schema")
    if record.get("version", _VERSION) != _VERSION:
        raise UnreadableRecord(f"version: must be {_VERSION}; write the schema again with write_schema")
    tables = record.get("tables")
    if not isinstance(tables, Mapping) or not tables:
        raise UnreadableRecord(f"tables: must map names to tables; {PROPOSED}")
    return {str(name): _table(str(name), each, unit) for name, each in tables.items()}


def write_schema(tables: Mapping[str, Table], *, form: str) -> str:
    """A schema as text, in the form "yaml", "toml" or "json"; `read_schema` is the inverse.

    >>> print(write_schema({"t": Table.of("t", Unit.row(), x=Domain.real(0, 1))}, form="yaml"))
    version: 1
    tables:
      t:
        neighbours: add/remove
        columns:
          x: {kind: real, low: 0.0, high: 1.0}
    """
    return written({name: _as_record(table) for name, table in tables.items()}, form)


def schema_records(tables: Mapping[str, Table]) -> dict[str, Any]:
    """The tables of a schema as JSON-ready dicts, in the form that `read_schema` reads under "tables".

    >>> schema_records({"t": Table.of("t", Unit.row(), x=Domain.real(0, 1))})
    {'t': {'neighbours': 'add/remove', 'columns': {'x': {'kind': 'real', 'low': 0.0, 'high': 1.0}}}}
    """
    return {name: _json_ready(_as_record(table)) for name, table in tables.items()}


def _json_ready(value: Any) -> Any:
    """The same value with dates as text."""
    if isinstance(value, dict):
        return {name: _json_ready(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json_ready(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def written(tables: Mapping[str, Mapping[str, Any]], form: str) -> str:
    """Records of tables as text. Scalars are written as in JSON, which YAML and TOML read too."""
    if form not in _FORMS:
        raise InvalidParameter("form", form, "must be 'yaml', 'toml' or 'json'")
    return _FORMS[form](tables)


def _as_json(tables: Mapping[str, Mapping[str, Any]]) -> str:
    return json.dumps({"version": _VERSION, "tables": tables}, indent=2, default=str, ensure_ascii=False)


def _as_yaml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["version: 1", "tables:"]
    for name, table in tables.items():
        lines.append(f"  {_word(name)}:")
        lines += [f"    {key}: {_plain(value)}" for key, value in table.items() if key != "columns"]
        lines.append("    columns:")
        for column, facts in table["columns"].items():
            inside = ", ".join(f"{key}: {_plain(value)}" for key, value in facts.items())
            lines.append(f"      {_word(column)}: {{{inside}}}")
    return "\n".join(lines)


def _as_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["version = 1"]
    for name, table in tables.items():
        lines += ["", f"[tables.{_word(name)}]"]
        lines += [f"{key} = {_plain(value, quote=True)}" for key, value in table.items() if key != "columns"]
        lines.append(f"[tables.{_word(name)}.columns]")
        for column, facts in table["columns"].items():
            inside = ", ".join(f"{key} = {_plain(value, quote=True)}" for key, value in facts.items())
            lines.append(f"{_word(column)} = {{ {inside} }}")
    return "\n".join(lines)


_FORMS: Final = {"yaml": _as_yaml, "toml": _as_toml, "json": _as_json}
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _word(name: str) -> str:
    bare = name.isascii() and name.isidentifier() and name.lower() not in _RESERVED
    return name if bare else json.dumps(name, ensure_ascii=False)


def _plain(value: Any, *, quote: bool = False) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_plain(each, quote=True) for each in value) + "]"
    if isinstance(value, dt.date):
        return value.isoformat()
    plain = isinstance(value, str) and not quote and value.replace("/", "").isidentifier() and value.isascii()
    return value if plain and value.lower() not in _RESERVED else json.dumps(value, ensure_ascii=False)


def _record(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source):
        path = Path(source)
        where, text, form = path.name, _text(path), path.suffix.lower()
    elif not isinstance(source, str):
        rule = f"must be a path, the text of a schema or a mapping, not {type(source).__name__}"
        raise InvalidParameter("schema", NOTHING, rule, 'write read_schema("visits.yaml")')
    else:
        where, text, form = "schema", source, ""
    try:
        found = _parsed(where, text, form)
    except RecursionError:
        raise UnreadableRecord(f"{where}: is nested too deeply; a schema needs five levels") from None
    if not isinstance(found, Mapping):
        raise UnreadableRecord(f"{where}: must be a mapping with the entry tables; {PROPOSED}")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UnreadableRecord(f"{path.name}: must be text in UTF-8") from None
    except FileNotFoundError:
        rule, remedy = "there is no such file", "give the path of a schema file, or the columns as a mapping"
    except OSError as error:
        rule, remedy = f"cannot be read as a file ({type(error).__name__})", "name a file that you may read"
    raise InvalidParameter("schema", str(path), rule, remedy)


def _parsed(where: str, text: str, form: str) -> object:
    if form == ".toml" or (not form and any(line.startswith("[tables.") for line in text.splitlines())):
        import tomllib

        try:
            return tomllib.loads(text)
        except ValueError as wrong:  # tomllib's own, or Python's for a number of thousands of digits
            raise UnreadableRecord(f"{where}: is not valid TOML: {wrong}") from None
    if form == ".json" or (not form and text.lstrip().startswith("{")):
        try:
            return json.loads(text, object_pairs_hook=lambda pairs: _once(where, pairs))
        except UnreadableRecord:  # valid JSON with a repeated entry
            raise
        except ValueError as wrong:
            raise UnreadableRecord(f"{where}: is not valid JSON: {wrong}") from None
    from deniable.tables import yaml_text

    return yaml_text.parsed(where, text)


def _once(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The entries of a mapping; a repeated key is refused, because JSON would silently keep only one."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UnreadableRecord(f"{where}: {key!r} is given twice; keep one of them")
        found[key] = value
    return found


def _only(record: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for key in record:
        if key not in allowed:
            raise UnreadableRecord(f"{where}: the entry {key!r} is not known; choose from {', '.join(sorted(allowed))}")


def _table(name: str, record: object, unit: Unit | None) -> Table:
    if not isinstance(record, Mapping):
        raise UnreadableRecord(f"{name}: must be a mapping with the entry columns")
    _only(record, {"public", "person", "rows", "per", "time", "neighbours", "unique", "owned", "columns"}, name)
    for key in ("public", "person", "rows", "neighbours"):
        if record.get(key) == FILL_IN:
            raise UnreadableRecord(f"{name}.{key}: is not filled in; replace {FILL_IN!r}, or delete the line")
    columns = record.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise UnreadableRecord(
            f"{name}: must have columns, such as columns: {{age: {{kind: integer, low: 0, high: 120}}}}"
        )
    domains = tuple((str(column), _domain(f"{name}.{column}", facts)) for column, facts in columns.items())
    for key in ("unique", "owned"):
        listed = record.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise UnreadableRecord(f"{name}.{key}: must be a list of columns, such as [order_id]")
    unique, owned = (tuple(record.get(key, ())) for key in ("unique", "owned"))
    return Table(name, domains, _unit(name, record, unit), unique=unique, owned=owned)


def _unit(name: str, record: Mapping[str, Any], unit: Unit | None) -> Unit | None:
    if record.get("public", False) is True:
        return None
    try:
        relation = Relation(record.get("neighbours", "add/remove"))
    except ValueError:
        raise UnreadableRecord(f"{name}.neighbours: must be add/remove or replace") from None
    if "person" in record:
        if "rows" not in record:
            raise UnreadableRecord(
                f"{name}.rows: must be given: the largest number of rows of one person that are read"
            )
        if ("per" in record) != ("time" in record):
            raise UnreadableRecord(
                f"{name}: per and time must be given together: rows bounds a person's rows per day, by the column time"
            )
        period, time = record.get("per"), record.get("time")
        return Unit(relation, rows=record["rows"], column=record["person"], period=period, time=time)
    if "per" in record or "time" in record:
        raise UnreadableRecord(f"{name}: per and time are for tables of people; write person and rows as well")
    if "neighbours" in record:
        return Unit(relation, rows=1)
    if unit is None:
        raise UnreadableRecord(
            f"{name}: does not say who is protected; write person and rows, or neighbours if each row is a person, or "
            "public: true, or give the unit beside the schema: unit= in Python, --unit or --each-row in a shell"
        )
    return unit


def _domain(where: str, facts: object) -> Domain:
    if not isinstance(facts, Mapping):
        raise UnreadableRecord(f"{where}: must be a mapping with the entry kind")
    _only(facts, {"kind", "low", "high", "keys", "nullable"}, where)
    for key, value in facts.items():
        if value == FILL_IN:
            raise UnreadableRecord(
                f"{where}.{key}: is not filled in; replace {FILL_IN!r}, or remove {key} and keep the column"
            )
    try:
        kind = Kind(facts.get("kind"))
    except ValueError:
        kinds = [each.value for each in Kind]
        near = nearest(str(facts.get("kind")), kinds)
        hint = "" if near is None else f"; did you mean {near}?"
        raise UnreadableRecord(f"{where}.kind: must be one of {', '.join(kinds)}{hint}") from None
    if kind not in BOUNDED and ("low" in facts or "high" in facts):
        raise UnreadableRecord(f"{where}: must not have low and high, which are for numbers, dates and timestamps")
    if kind is Kind.BOOLEAN:
        return Domain.boolean(nullable=facts.get("nullable", True))
    keys = facts.get("keys")
    if keys is not None and not isinstance(keys, list | tuple):
        raise UnreadableRecord(f"{where}.keys: must be a list, such as [A, B]")
    if kind is Kind.REAL and keys is not None:
        raise UnreadableRecord(f"{where}.keys: real numbers cannot have keys; give low and high")
    try:
        return declared(kind, facts.get("low"), facts.get("high"), keys, facts.get("nullable", True))
    except InvalidParameter as wrong:
        ends = {Kind.DATE: "write 2024-01-31", Kind.TIMESTAMP: "write the time too: 2024-01-31T00:00:00"}
        if isinstance(facts.get(wrong.parameter), str):  # 1e3 without a point is text in YAML 1.1
            ends |= dict.fromkeys((Kind.INTEGER, Kind.REAL), "write 1000 without quotes; YAML reads 1e3 as text")
        remedy = ends.get(kind, wrong.remedy) if wrong.parameter in {"low", "high"} else wrong.remedy
        raise InvalidParameter(f"{where}.{wrong.parameter}", NOTHING, wrong.rule, remedy) from None


def _as_record(table: Table) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if table.unit is None:
        record["public"] = True
    else:
        if table.unit.column is not None:
            record |= {"person": table.unit.column, "rows": table.unit.rows}
        if table.unit.period is not None:
            record |= {"per": table.unit.period, "time": table.unit.time}
        record["neighbours"] = table.unit.relation.value
    if table.unique:
        record["unique"] = list(table.unique)
    if table.owned:
        record["owned"] = list(table.owned)
    record["columns"] = {name: _facts(domain) for name, domain in table.columns}
    return record


def _facts(domain: Domain) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": domain.kind.value}
    if domain.bounds is not None:
        facts |= {"low": end_of(domain.kind, domain.bounds[0]), "high": end_of(domain.kind, domain.bounds[1])}
    if domain.keys is not None and domain.kind is not Kind.BOOLEAN:
        facts["keys"] = list(domain.keys)
    if not domain.nullable:
        facts["nullable"] = False
    return facts


def refuse_twins(names: Iterable[str]) -> None:
    """Raise `InvalidParameter` if two names differ only by case, because SQL ignores case in names."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            rule = "another column has the same name up to case"
            raise InvalidParameter("columns", name, rule, "rename one")
        seen.add(name.casefold())
