"""Registered tables that are kept between restarts, in a folder beside the ledger.

A kept table is a database file of DuckDB, encrypted (AES-256-GCM) under a key derived from the ledger's secret and a
random salt, and a small seal beside it. The seal has keyed hashes of everything that determines the rows: the schema,
the versions of our format and of DuckDB, the content of every source file with the folder names that are columns, and
the content of the database file. All hashes are computed and compared at each use. So a kept table is used only if the
sources and the kept file are unchanged, byte for byte; sizes and times of files are never trusted. Otherwise (another
schema or secret, a changed, truncated or missing file) the table is registered again from its source.

*Hashes of content.* The content of a file is hashed by GHASH (NIST SP 800-38D), ten times as fast as by SHA-256, and
the result by HMAC-SHA-256, both under keys from the secret. Without the secret, two different contents of n blocks of
16 bytes have equal GHASHes with probability at most (n + 1)/2^128 (McGrew & Viega 2004), and nobody sees a GHASH,
because HMAC is a pseudorandom function of it. So the seal is a message authentication code (Carter & Wegman 1981).

A table has one kept file: the next registration under its name replaces it, or removes it if the new rows are not kept,
so rows that were erased from a source leave the folder with the next version. The kept file of a table that is not
registered any more is removed if its source was registered under another name, was changed, or is gone (`sweep_kept`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from deniable.errors import InvalidParameter
from deniable.tables.schema import Table, write_schema
from deniable.tables.source_files import files_of

try:
    import fcntl
except ImportError:  # Windows: two processes that register the same table at once may both do the work
    fcntl = None  # type: ignore[assignment]  # a module that is missing

_FORMAT: Final = 2
"""Increased when the rows that a source and a schema give change."""
_OURS: Final = re.compile("([0-9a-f]{16})-[0-9a-f]+[.]")
"""Names of database files that `KeptTable.begin` makes; the folder may have other files."""
_BLOCK: Final = 1 << 20
_LEAST: Final = 32 << 20
"""Smaller sources (in bytes of their files) are registered in about a second, and not kept."""


@final
@dataclass(frozen=True, slots=True)
class SourceContent:
    """What determines the rows of a table, as keyed hashes: `shape` of the schema, `files` of the source files."""

    shape: str
    files: tuple[str, ...]

    def added(self, before: SourceContent) -> list[int] | None:
        """The positions of files that are new since `before`; None if anything else changed."""
        missing = Counter(before.files)
        new = []
        for at, each in enumerate(self.files):
            if missing[each]:
                missing[each] -= 1
            else:
                new.append(at)
        return new if self.shape == before.shape and not missing.total() else None


@final
@dataclass(frozen=True, slots=True)
class KeptFile:
    """A sealed database file: its content, its path, and the key that opens it."""

    content: SourceContent
    path: str
    key: str
    salt: str


@final
class KeptTable:
    """The place in a folder where one table is kept, for one source, schema and secret."""

    def __init__(
        self, folder: Path, table: Table, title: str, source: tuple[str, list[str]], secret: bytes, version: str
    ) -> None:
        self._folder, self._secret = folder, secret
        self._slot = _slot(title)
        self.path, self.files = source
        self._states = _states(self.files)  # before the content is read: a later change is another state
        self._content_key = self._keyed_bytes("content", "")
        about = [_FORMAT, version, write_schema({table.name: table}, form="json"), repr(table.unit), table.unique]
        shape = self._keyed("schema", json.dumps(about))
        self.content = SourceContent(shape, tuple(self._contents()))

    def find(self) -> KeptFile | None:
        """The kept file of this table, which may hold another source; None if it is missing or not as it was sealed."""
        try:
            told = json.loads(self._seal.read_text())
            path = self._folder / str(told["rows"])
            content = SourceContent(str(told["shape"]), tuple(map(str, told["files"])))
            salt, mark = str(told["salt"]), str(told["seal"])
            if path.parent != self._folder or not hmac.compare_digest(mark, self._mark(content, path, salt)):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return KeptFile(content, str(path), self._keyed("key", salt), salt)

    def begin(self, before: KeptFile | None = None) -> KeptFile:
        """A new file for the rows, or for a copy of the file `before`. It is not used before `finish` seals it."""
        salt = secrets.token_hex(32) if before is None else before.salt
        path = self._folder / f"{self._slot}-{secrets.token_hex(8)}.duckdb"
        return KeptFile(self.content, str(path), self._keyed("key", salt), salt)

    def finish(self, made: KeptFile) -> None:
        """Seal a complete file, and remove the file that it replaces."""
        path = Path(made.path)
        about = {"rows": path.name, "shape": made.content.shape, "files": made.content.files, "salt": made.salt}
        text = json.dumps({**about, "source": self._states, "seal": self._mark(made.content, path, made.salt)})
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        os.replace(draft, self._seal)
        _remove(self._folder, self._slot, but=path.name)

    def abandon(self, made: KeptFile) -> None:
        """Remove an incomplete file."""
        with suppress(OSError):
            os.unlink(made.path)

    def changed(self) -> bool:
        """Whether a source file has changed since it was hashed."""
        return self.content.files != tuple(self._contents())

    def alone(self) -> AbstractContextManager[None]:
        """A lock: other processes wait while this one looks for the table and keeps it."""
        return _alone(self._folder, self._slot)

    @property
    def _seal(self) -> Path:
        return self._folder / f"{self._slot}.json"

    def _mark(self, content: SourceContent, path: Path, salt: str) -> str:
        rows = self._hashed(path)
        return self._keyed("seal", json.dumps([content.shape, content.files, path.name, salt, rows]))

    def _contents(self) -> Iterator[str]:
        """The keyed hash of each source file, with the names of its folders that are columns (year=2024)."""
        for path in self.files:
            columns = [each for each in Path(path).parts[:-1] if "=" in each]
            yield self._keyed("file", json.dumps([self._hashed(path), columns, _ending(path)]))

    def _hashed(self, path: str | Path) -> str:
        """The GHASH of a file: the tag of AES-GCM without a plaintext. It must not be stored, only its HMAC."""
        cipher = Cipher(algorithms.AES(self._content_key), modes.GCM(bytes(12))).encryptor()
        block = bytearray(_BLOCK)
        with open(path, "rb", buffering=0) as file:
            while length := file.readinto(block):
                cipher.authenticate_additional_data(memoryview(block)[:length])
        cipher.finalize()
        return cipher.tag.hex()

    def _keyed(self, purpose: str, text: str) -> str:
        return self._keyed_bytes(purpose, text).hex()

    def _keyed_bytes(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._secret, f"kept tables, {purpose}: {text}".encode(), "sha256")


def kept_table(
    folder: Path | None, source: object, table: Table, title: str, secret: bytes, version: str
) -> KeptTable | None:
    """The place of a kept table; None if it is public, small or not from files, or if `folder` cannot be written."""
    if folder is None or table.unit is None or not isinstance(source, str | os.PathLike):
        return None
    if table.unit.period is not None:  # a kept file has ids of people alone
        return None
    path = os.fspath(source)
    if not isinstance(path, str):
        return None
    try:
        files = files_of(path)
        if sum(os.path.getsize(each) for each in files) < _LEAST:
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return None
        return KeptTable(folder, table, title, (path, files), secret, version)
    except (OSError, InvalidParameter):  # registration reports what is wrong with the source
        return None


def remove_kept(folder: Path | None, title: str) -> None:
    """Remove the kept file of a table whose new rows are not kept, if there is one."""
    slot = _slot(title)
    if folder is None or not any(folder.glob(f"{slot}*")):
        return
    with suppress(OSError), _alone(folder, slot):
        (folder / f"{slot}.json").unlink(missing_ok=True)
        _remove(folder, slot)


def sweep_kept(folder: Path | None, sources: Mapping[str, object]) -> None:
    """Remove kept files of tables other than `sources` whose source is now one of these, was changed, or is gone.

    Otherwise rows that are erased from a source would stay in the file of a table that was renamed. A changed file is
    recognised by its size and time, without reading it. A mistake costs at most another registration, and the owner can
    delete the folder.
    """
    if folder is None or not folder.is_dir():
        return
    here = {_slot(name) for name in sources}
    read = {path for source in sources.values() for path in _paths(source)}
    for seal in folder.glob("*.json"):
        slot = seal.stem
        if slot in here:
            continue
        try:
            states = [list(each) for each in json.loads(seal.read_text())["source"]]
            paths = [str(each[0]) for each in states]
            is_used = not read.intersection(paths) and _states(paths) == states
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            is_used = False
        if not is_used:
            with suppress(OSError), _alone(folder, slot):
                seal.unlink(missing_ok=True)
                _remove(folder, slot)
    named = (_OURS.match(each.name) for each in folder.iterdir()) if fcntl is not None else ()
    for slot in {each[1] for each in named if each is not None} - here:
        # Files without a seal, of a process that was killed, or of one that is writing now and holds the lock.
        with suppress(OSError), _alone(folder, slot, waits=False):
            if not (folder / f"{slot}.json").exists():
                _remove(folder, slot)


def _paths(source: object) -> list[str]:
    try:
        return [os.path.abspath(each) for each in files_of(os.fspath(source))]  # type: ignore[call-overload]  # TypeError below
    except (OSError, TypeError, InvalidParameter):  # not from files, or not readable
        return []


def _states(files: list[str]) -> list[list[object]]:
    """The path, size and time of each file."""
    found = []
    for path in files:
        state = os.stat(path)
        found.append([os.path.abspath(path), state.st_size, state.st_mtime_ns])
    return found


def _slot(title: str) -> str:
    return hashlib.sha256(title.encode()).hexdigest()[:16]


def _remove(folder: Path, slot: str, *, but: str = "") -> None:
    for each in folder.glob(f"{slot}-*"):
        if each.name != but:
            with suppress(OSError):
                each.unlink()


@contextmanager
def _alone(folder: Path, slot: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of a slot; unless `waits`, BlockingIOError if another process holds it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder / f"{slot}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _ending(path: str) -> str:
    return "".join(Path(path).suffixes[-2:]).lower()
