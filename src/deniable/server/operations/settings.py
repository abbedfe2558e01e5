"""The settings of a server. None of them changes a privacy guarantee."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final, final

from deniable import arguments
from deniable.arguments import NumberRange
from deniable.errors import NOTHING, InvalidParameter, UnreadableRecord, masked
from deniable.queries.plan.refusals import choices
from deniable.server.access.client_addresses import network_of
from deniable.server.catalogue.people import checked_name, look

PORT: Final = 8471

_MEMORY: Final = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B|%)", re.IGNORECASE)
"""An amount of memory, as DuckDB reads it."""

_TEXTS: Final = frozenset({"state", "checkpoints", "host", "database", "engine", "memory"})
_WHOLE: Final = frozenset(
    {
        "processes",
        "at_once",
        "each",
        "waiting",
        "burst",
        "body",
        "space",
        "connections",
        "free_space",
        "cells",
        "tokens",
    }
)


_POSITIVE: Final = (
    "processes", "grid", "at_once", "each", "waiting", "rate", "burst", "token_days", "seconds", "body", "connections",
    "patience", "key_days", "cells", "tokens",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Where things are stored, and the limits of the server. Raises InvalidParameter for a value that is not allowed.

    `state` is the folder of the catalogue, the ledgers and the signing key. `data` or `owners` name the folders of
    source files. `grid` is the step of the public time grid, in seconds (see `server.requests.answer_times`).

    >>> Settings(state="state", data=["tables"]).grid
    0.05
    """

    state: Path
    data: tuple[Path, ...] = ()
    """Folders of source files, on a server with one owner."""
    owners: dict[str, tuple[Path, ...]] | None = None
    """Folders of source files, by the name of the owner who may register them; "*" means every owner."""
    ceiling: dict[str, float] | None = None
    """The largest budget of a dataset, `epsilon` and `delta`, also after an owner raises it."""
    host: str = "127.0.0.1"
    port: int = PORT
    database: str | None = None
    """The URL of a shared database, postgresql://...; without it, SQLite files below `state` hold everything."""
    checkpoints: Path | None = None
    """The folder of the signed checkpoints; default: below `state`. On another disk it detects a rolled-back copy."""
    processes: int = 1
    """Number of serving processes. Each has its own engines."""
    grid: float = 0.05
    at_once: int = 16
    """The most questions that run at the same time."""
    each: int = 3
    """The most questions of one person that run in one engine at the same time. Others of theirs wait."""
    waiting: int = 2000
    """The most questions that wait; further ones are refused."""
    rate: float = 50.0
    """Requests per second of one person, over all of their tokens, in the long run."""
    burst: int = 200
    """The most requests of one person at once."""
    token_days: float = 90.0
    """The longest lifetime of a token, in days."""
    tokens: int = 20
    """The most valid tokens of one person."""
    engine: str = "duckdb"
    memory: str = "640MB"
    """Memory of the engine of each dataset; it spills to disk beyond that."""
    space: int | None = 8 << 30
    """Address space of each engine's process, in bytes."""
    seconds: float = 60.0
    """The longest run of a question, in seconds."""
    cells: int = 100_000
    """The largest answer, in cells (groups times columns), summed over the questions of a batch."""
    body: int = 1 << 20
    """The longest request, in bytes."""
    https: bool = False
    """Whether clients reach the server by https; cookies are then marked as secure."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of trusted proxies; X-Forwarded-For is believed only from them."""
    connections: int = 256
    """The most connections of one address at the same time; connections of a proxy are not counted."""
    patience: float = 15.0
    """Seconds that a client has to send its headers, again to send its body, and again to read a waiting answer."""

    key_days: float = 30.0
    """Days for which the response to an Idempotency-Key is stored. The ledger keeps the charge for ever."""
    free_space: int = 256 << 20
    """Bytes that must be free on the disk of `state`; with less, /ready fails."""
    oidc: dict[str, str] | None = None
    """An OpenID Connect issuer whose tokens are accepted as well: issuer, audience, keys, and optionally claim."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", Path(self.state))
        kept = self.state / "checkpoints" if self.checkpoints is None else Path(self.checkpoints)
        object.__setattr__(self, "checkpoints", kept)
        data = (self.data,) if isinstance(self.data, str | Path) else self.data
        object.__setattr__(self, "data", tuple(Path(each) for each in data))
        object.__setattr__(self, "owners", _folders(self.owners, self.data))
        _check_ceiling(self.ceiling)
        proxies = (self.proxies,) if isinstance(self.proxies, str) else tuple(self.proxies)
        object.__setattr__(self, "proxies", tuple(str(network_of(each)) for each in proxies))
        for name in ("state", "checkpoints"):
            place = getattr(self, name)
            if place.exists() and not place.is_dir():
                raise InvalidParameter(
                    name,
                    str(place),
                    "must be a folder, and is a file",
                    "name a folder; it is created if it does not exist",
                )
        for name in _POSITIVE:
            rule = "must be a positive number"
            arguments.python_float(name, getattr(self, name), NumberRange(rule, above=0, below=1e9))
        if not isinstance(self.memory, str) or _MEMORY.fullmatch(self.memory) is None:
            raise InvalidParameter("memory", self.memory, "must be a number with its unit", 'write "2GB"')
        if self.engine not in {"duckdb", "spark"}:
            raise InvalidParameter("engine", self.engine, 'must be "duckdb" or "spark"')
        if not self.host:  # for a socket, "" means all addresses of the machine
            raise InvalidParameter("host", self.host, "must be an address", "write 127.0.0.1 for this machine only")
        arguments.python_int("port", self.port, NumberRange("must be from 0 to 65535", least=0, most=65535))
        if self.oidc is not None and not isinstance(self.oidc, dict):
            raise InvalidParameter("oidc", "...", "must be a table: [oidc] with issuer, audience and keys")
        if self.database is not None and not self.database.startswith("postgresql://"):
            raise InvalidParameter("database", "...", "must begin with postgresql://", "leave it out to use SQLite")

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={masked(getattr(self, each.name))!r}" for each in fields(self))
        return f"Settings({shown})"

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """Read a TOML file; paths in it are relative to its folder. Raises UnreadableRecord or InvalidParameter."""
        file = Path(path)
        try:
            record: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise UnreadableRecord(f"{file.name}: must be text in UTF-8") from None
        except ValueError as wrong:  # of tomllib, or of int() for thousands of digits
            place = re.search(r"line \d+", str(wrong))  # not the rest of the message: the file may hold a password
            raise UnreadableRecord(f"{file.name}: is not valid TOML{f', in {place[0]}' if place else ''}") from None
        known = {each.name for each in fields(cls)}
        for name in record:
            if name not in known:
                raise UnreadableRecord(f"{file.name}: the entry {name!r} is not known; {choices(name, sorted(known))}")
        if "state" not in record:
            raise UnreadableRecord(f"{file.name}: needs the entry 'state'")
        if "data" not in record and "owners" not in record:
            raise UnreadableRecord(f"{file.name}: needs the entry 'data', or [owners] with the folders of each owner")
        for name, value in record.items():
            if (rule := _broken_rule(name, value)) is not None:
                raise UnreadableRecord(f"{file.name}: {name} {rule}")
        folders = record.get("data", [])
        record["state"] = file.parent / record["state"]
        record["data"] = [file.parent / each for each in (folders if isinstance(folders, list) else [folders])]
        if "owners" in record:
            record["owners"] = {
                name: [file.parent / each for each in folders] for name, folders in record["owners"].items()
            }
        if isinstance(record.get("oidc"), dict) and "://" not in str(record["oidc"].get("keys", "://")):
            record["oidc"]["keys"] = str((file.parent / record["oidc"]["keys"]).absolute())
        if "checkpoints" in record:
            record["checkpoints"] = file.parent / record["checkpoints"]
        found = cls(**record)
        found._check_apart(file.name)
        return found

    def _check_apart(self, file: str) -> None:
        """Raise UnreadableRecord if `state` lies in a folder of data, where owners may write."""
        state = self.state.resolve()
        for folder in (*self.data, *chain.from_iterable((self.owners or {}).values())):
            if state.is_relative_to(folder.resolve()):
                fact = f"state ({self.state}) must not lie in a folder of data ({folder}), where owners may write"
                raise UnreadableRecord(f"{file}: {fact}; choose another folder")


def _folders(owners: Any, data: tuple[Path, ...]) -> dict[str, tuple[Path, ...]] | None:
    """The folders of each owner. They must not overlap: the first person to register a file owns it for good."""
    if owners is None:
        return None
    if data:
        raise InvalidParameter(
            "owners", NOTHING, "must not be given together with data", "name each folder under its owner"
        )
    found = {str(name): tuple(Path(each) for each in folders) for name, folders in owners.items()}
    seen: dict[str, str] = {}
    for name in found:
        if name != "*":
            _check_owner(name, seen.setdefault(look(name), name))
    every = [(name, folder.resolve()) for name, folders in found.items() for folder in folders]
    for name, folder in every:
        for other, another in every:
            if name != other and folder.is_relative_to(another):
                rule = f"must not have a folder that overlaps with a folder of {other!r}"
                raise InvalidParameter("owners", name, rule, "give each owner separate folders")
    return found


def _check_owner(name: str, other: str) -> None:
    """Raise InvalidParameter if `name` is not a valid name of a person, or looks like the earlier owner `other`."""
    try:
        checked_name(name)
    except InvalidParameter as error:
        raise InvalidParameter(
            "owners", name, f"must be the name of a person, and {error.rule}", error.remedy
        ) from None
    if name != other:
        rule = f"must not look like {other!r}, another owner"
        raise InvalidParameter("owners", name, rule, "write each owner once, with the name that the server knows")


def _check_ceiling(ceiling: Any) -> None:
    if ceiling is None:
        return
    known = {"epsilon", "delta"}
    if isinstance(ceiling, dict) and (wrong := set(ceiling) - known):
        raise InvalidParameter("ceiling", min(wrong), f"is not a known entry; {choices(min(wrong), sorted(known))}")
    both = isinstance(ceiling, dict) and set(ceiling) == known
    if not both or any(isinstance(each, bool) or not isinstance(each, int | float) for each in ceiling.values()):
        raise InvalidParameter("ceiling", NOTHING, "must have the numbers epsilon and delta, and nothing else")
    if not (0 < ceiling["epsilon"] < 1e9 and 0 <= ceiling["delta"] < 1):
        raise InvalidParameter("ceiling", NOTHING, "must have a positive epsilon, and a delta from 0 to below 1")


def _broken_rule(name: str, value: object) -> str | None:
    """The rule about types that an entry of the TOML file breaks; None if its type is right."""
    if name in _TEXTS and not isinstance(value, str):
        return f'must be text: {name} = "..."'
    if name == "data" and not all(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
        return 'must be a list of folders: data = ["tables"]'
    if name == "owners" and not (
        isinstance(value, dict)
        and all(isinstance(each, list) and all(isinstance(one, str) for one in each) for each in value.values())
    ):
        return 'must be a table of lists of folders: [owners] with olga = ["tables/olga"]'
    if name == "proxies" and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        return 'must be a list of addresses: proxies = ["10.0.0.7"]'
    if name in _WHOLE and type(value) is not int:
        return "must be a whole number"
    if name == "https" and not isinstance(value, bool):
        return "must be true or false, without quotes"
    if name == "oidc" and isinstance(value, dict) and not all(isinstance(each, str) for each in value.values()):
        return "must have text in all of its entries"
    return None
