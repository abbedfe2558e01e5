"""Synthetic tables over HTTP: bought like an answer, published by owners, and downloaded as rows.

The ledger's entry of a synthetic table holds its noisy counts. The record of its release holds the request, and whether
it is published. Python clients (`dn.connect`) get the counts and fit the distribution themselves, which is
post-processing. For other clients, a separate process of the server fits it and draws rows.
"""

from __future__ import annotations

import shutil
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, final

from deniable.errors import NOTHING, EngineFailed, InvalidParameter, QuestionRefused
from deniable.queries.engines.scratch_folders import scratch
from deniable.queries.synthetic.fitting_process import LIMITS, write_apart
from deniable.queries.synthetic.synthetic_records import price_record, recalled, record_of, size
from deniable.server.noted_questions import NotedSynthesis, read_note
from deniable.server.problems import Problem
from deniable.server.roles import Role

if TYPE_CHECKING:
    from deniable.ledger import Cost, Entry
    from deniable.queries.answer.receipt import Receipt
    from deniable.queries.session import Session
    from deniable.queries.synthetic.synthetic_table import Synthetic
    from deniable.server.catalogue.catalogue import Person, ReleaseRecord
    from deniable.server.curator import Curator
    from deniable.server.datasets.open_datasets import Open

    Recalled = tuple[Synthetic, dict[str, Any], Session]
    """A synthetic table, its request, and a session with the schema of that time."""

MOST_ROWS: Final = 1_000_000
"""The most rows of one download. The number of downloads is not limited."""
_PUBLISHED: Final = '"published": true}'
"""The end of the stored question of a published table (see `noted_questions`)."""
_LISTED: Final = 100
"""Synthetic tables per page."""
_CHUNK: Final = 1 << 18
_HELD: Final = 2
"""The most unfinished downloads of one person."""
_PARTS: Final = 8
"""A download takes at most 1/_PARTS of the free disk space."""
_NOT_HERE: Final = "this synthetic table does not exist, or you may not see it"


@final
@dataclass(frozen=True, slots=True)
class _Noted:
    """Stands for an answer in `Curator.note`, which reads these two attributes only."""

    receipt: Receipt
    confidence: float = 0.95


@final
@dataclass(frozen=True, slots=True)
class DrawnFile:
    """Drawn rows, in an open file that is already deleted from its folder."""

    file: IO[bytes]
    size: int
    name: str
    notes: list[str]
    done: Callable[[], object] = lambda: None
    """To be called when the download has ended."""

    def chunks(self) -> Iterator[bytes]:
        """The content, in pieces. Closes the file at the end."""
        try:
            with self.file:
                while chunk := self.file.read(_CHUNK):
                    yield chunk
        finally:
            self.done()


@final
class Synthetics:
    """The synthetic tables of all datasets."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._held: Counter[str] = Counter()
        """Unfinished downloads, by person."""
        self._turn = threading.Lock()

    def price(self, person: Person, dataset: str, arguments: dict[str, Any], cost: dict[str, Any]) -> dict[str, Any]:
        """The price of `buy`, and the noise of the counts. Free: reads no data."""
        opened = self._curator.open(person, dataset)
        self._check_size(arguments, opened)
        found = opened.session.price_synthesis(**arguments, payer=person.name, **cost)
        left = found.left.describe_rest(found.budget)
        return {"dataset": dataset, **price_record(found), "left": left, "lines": str(found).splitlines()}

    def buy(
        self, person: Person, dataset: str, arguments: dict[str, Any], cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Measure the counts of a synthetic table, in one charge. If they were paid for before, it is free."""
        curator = self._curator
        self._check_size(arguments, curator.open(person, dataset))
        session = curator.paying(person, dataset, key)
        made = session.synthesize(**arguments, key=key, payer=person.name, **cost)
        curator.note(person, dataset, [(NotedSynthesis(arguments).note(), _Noted(made.receipt))])
        return synthetic_record(dataset, (made, arguments, session))

    def _check_size(self, arguments: dict[str, Any], opened: Open) -> None:
        """Refuse a table that is too large before it is planned: planning takes time, and is free of charge."""
        cells, most = size(arguments, opened.tables), self._curator.settings.cells
        if cells > most:
            raise QuestionRefused(
                "key",
                f"the counts would have {cells:,} cells (groups times columns); this server allows at most {most:,}",
                "name fewer columns, or give fewer bins",
            )
        self._curator.datasets.large.add(cells)

    def listed(self, person: Person, dataset: str, before: int | None = None) -> dict[str, Any]:
        """A page of synthetic tables that this person bought or that are published, newest first, or before an entry.

        `before` of the result is the argument for the next page; None on the last.
        """
        self._curator.visible(person, dataset)
        found = self._curator.catalogue.releases(
            dataset,
            person=person.name,
            before=before,
            beginning=NotedSynthesis.BEGINNING,
            shared=_PUBLISHED,
            most=_LISTED + 1,
        )
        listed = [
            {
                "release": f"{dataset}:{each.entry}",
                "entry": each.entry,
                "by": each.person,
                "time": int(each.made),
                "published": is_published(each),
                **asked_of(each),
            }
            for each in found[:_LISTED]
        ]
        return {"synthetic": listed, "before": found[_LISTED - 1].entry if len(found) > _LISTED else None}

    def record(self, person: Person, dataset: str, entry: int, question: str | None = None) -> dict[str, Any]:
        """Everything that a client needs to fit the table and draw rows. Free of charge."""
        return synthetic_record(dataset, self._found(person, dataset, entry, question))

    def rows(
        self, person: Person, dataset: str, entry: int, count: int | None, form: str, question: str | None = None
    ) -> DrawnFile:
        """`count` rows in a file of this `form`; default: about as many as the table has. Free: the counts are paid.

        Raises Problem `rate_limited` if the person has too many unfinished downloads, and `fit_failed`.
        """
        if self._held[person.name] >= _HELD:
            words = "your earlier downloads have not finished; read them to their end, or close them, first"
            raise Problem("rate_limited", words, headers={"Retry-After": "5"})
        made, arguments, session = self._found(person, dataset, entry, question)
        many = min(made.count, MOST_ROWS) if count is None else count
        record = record_of(made, arguments, session.tables)
        state = self._curator.settings.state
        # The ledgers are on this disk, so all downloads together must leave space, however slowly clients read them.
        room = (shutil.disk_usage(state).free - self._curator.settings.free_space) // _PARTS
        with scratch(state) as folder:
            path = folder / f"rows.{form}"
            try:
                notes = write_apart(record, many, path, form, replace(LIMITS, size=max(0, min(LIMITS.size, room))))
                file = path.open("rb")  # the open file outlives its folder
            except (EngineFailed, OSError):
                raise Problem("fit_failed", "draw fewer rows, or fit the counts yourself with dn.connect") from None
            name = f"{_plain(dataset)}-{entry}-synthetic.{form}"
            return DrawnFile(file, path.stat().st_size, name, notes, self._hold(person.name, file))

    def _hold(self, person: str, file: IO[bytes]) -> Callable[[], object]:
        """Count a download until its file is closed."""
        with self._turn:
            self._held[person] += 1
        return weakref.finalize(file, self._let_go, person)

    def _let_go(self, person: str) -> None:
        with self._turn:
            self._held[person] -= 1
            if not self._held[person]:
                del self._held[person]

    def publish(self, person: Person, dataset: str, entry: int, *, published: bool) -> dict[str, Any]:
        """Publish a synthetic table of the owner to everybody who may see the dataset, or withdraw it."""
        self._curator.visible(person, dataset)
        catalogue = self._curator.catalogue
        found = catalogue.release(dataset, entry)
        noted = None if found is None or found.person != person.name else read_note(found.question)
        if found is None or not isinstance(noted, NotedSynthesis):
            raise Problem("not_found", _NOT_HERE)
        catalogue.note_again(dataset, entry, replace(noted, published=published).note(), instead_of=found.question)
        return {"release": f"{dataset}:{entry}", "published": published}

    def _found(self, person: Person, dataset: str, entry: int, question: str | None) -> Recalled:
        """A synthetic table, if this person bought it, it is published, or the person knows the hash of its question;
        asking this question would return the table free of charge. Otherwise raises Problem `not_found`.
        """
        opened = self._curator.open(person, dataset)
        found = self._curator.catalogue.release(dataset, entry)
        if found is None or not isinstance(read_note(found.question), NotedSynthesis):
            raise Problem("not_found", _NOT_HERE)
        ledger = opened.session.ledger
        charge = ledger.charge(entry)
        sealed = None if charge is None else ledger.closing(charge.number)
        theirs = found.person == person.name or is_published(found)
        if charge is None or sealed is None or not (theirs or question == charge.question):
            raise Problem("not_found", _NOT_HERE)
        self._curator.datasets.large.add(len(sealed.answer or b"") // 16)  # a large one waits for its turn
        left = ledger.remaining if person.role is Role.AUDITOR else ledger.left(person.name)
        again = recall(opened, self._curator.catalogue.earlier(dataset), found, charge, sealed, left)
        if again is None:
            raise Problem("not_found", _NOT_HERE)
        return again


def recall(
    opened: Open, earlier: list[str], found: ReleaseRecord, charge: Entry, sealed: Entry, left: Cost
) -> Recalled | None:
    """A synthetic table from the ledger, read with the schema of the time when it was bought."""
    arguments = asked_of(found)
    for session in chain([opened.session], (opened.before(schema) for schema in earlier)):
        try:
            made = recalled(session, arguments, charge, sealed, left)
        except (QuestionRefused, InvalidParameter):  # the request does not fit this schema
            continue
        if made is not None:
            return made, arguments, session
    return None


def asked_of(release: ReleaseRecord) -> dict[str, Any]:
    """The request, as keyword arguments of `Session.synthesize`."""
    return dict(_note(release).asked)


def is_published(release: ReleaseRecord) -> bool:
    """Whether everybody who may see the dataset may use it."""
    return _note(release).published


def _note(release: ReleaseRecord) -> NotedSynthesis:
    noted = read_note(release.question)
    assert isinstance(noted, NotedSynthesis)
    return noted


def checked_rows(count: int | None) -> int | None:
    """The same number of rows. Raises InvalidParameter if it is out of range."""
    if count is not None and not 1 <= count <= MOST_ROWS:
        raise InvalidParameter(
            "rows", NOTHING, f"must be from 1 to {MOST_ROWS:,}", "for more rows, download several times"
        )
    return count


def synthetic_record(dataset: str, found: Recalled) -> dict[str, Any]:
    """The record of a synthetic table for a client."""
    made, arguments, session = found
    record = record_of(made, arguments, session.tables)
    return {**record, "dataset": dataset, "release": f"{dataset}:{made.receipt.entry}"}


def _plain(name: str) -> str:
    """A dataset's name for headers and file names: besides letters, digits and ._@- it may have spaces."""
    return name.replace(" ", "_")
