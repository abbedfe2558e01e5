"""Synthetic tables over HTTP: bought like any question, published by owners, and drawn as rows in another process.

What is kept of a synthetic table is its entry in the ledger, which holds the noisy counts; the note of its release
says what was asked, and whether it is published. Clients get the counts and fit them themselves (`dn.connect`): that is
post-processing, and costs the server nothing. Rows for whoever has no Python are fitted in a process of their own.
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
    from deniable.queries.answer.answer import Receipt
    from deniable.queries.session import Session
    from deniable.queries.synthetic.synthetic_table import Synthetic
    from deniable.server.catalogue.catalogue import Person, ReleaseRecord
    from deniable.server.curator import Curator
    from deniable.server.datasets.open_datasets import Open

    Recalled = tuple[Synthetic, dict[str, Any], Session]
    """A synthetic table, what was asked, and a session with the schema that it was asked by."""

MOST_ROWS: Final = 1_000_000
"""Rows of a download; there may be as many downloads as anybody likes."""
"""How the note of such a release begins."""
_PUBLISHED: Final = '"published": true}'
"""How the note of one ends that is published, see `noted`."""
_LISTED: Final = 100
"""Synthetic tables on a page."""
_CHUNK: Final = 1 << 18
_HELD: Final = 2
"""Downloads of one person whose files are there at the same time."""
_PARTS: Final = 8
"""A download takes at most one part in so many of the free space."""
_NOT_HERE: Final = "there is no such synthetic table that you may see"


@final
@dataclass(frozen=True, slots=True)
class _Noted:
    """What the note of a release needs."""

    receipt: Receipt
    confidence: float = 0.95


@final
@dataclass(frozen=True, slots=True)
class DrawnFile:
    """Rows that were written to a file without a name."""

    file: IO[bytes]
    size: int
    name: str
    notes: list[str]
    done: Callable[[], object] = lambda: None
    """To be called when nobody reads it any more."""

    def chunks(self) -> Iterator[bytes]:
        """All of it, some at a time."""
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
        """Downloads of each person that are not read to their end."""
        self._turn = threading.Lock()

    def price(self, person: Person, dataset: str, said: dict[str, Any], cost: dict[str, Any]) -> dict[str, Any]:
        """What `buy` would charge, and the noise of each count. Reads no data."""
        opened = self._curator.open(person, dataset)
        self._check_size(said, opened)
        found = opened.session.price_synthesis(**said, payer=person.name, **cost)
        left = found.left.describe_rest(found.budget)
        return {"dataset": dataset, **price_record(found), "left": left, "lines": str(found).splitlines()}

    def buy(
        self, person: Person, dataset: str, said: dict[str, Any], cost: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Measure what a synthetic table needs, in one charge; or read it from the ledger, if it was paid for."""
        curator = self._curator
        self._check_size(said, curator.open(person, dataset))
        session = curator.paying(person, dataset, key)
        made = session.synthesize(**said, key=key, payer=person.name, **cost)
        curator.note(person, dataset, [(NotedSynthesis(said).note(), _Noted(made.receipt))])
        return told_again(dataset, (made, said, session))

    def _check_size(self, said: dict[str, Any], opened: Open) -> None:
        """Refuse what is too large before it is planned: that takes as long as there are cells, and nothing is paid."""
        cells, most = size(said, opened.tables), self._curator.settings.cells
        if cells > most:
            raise QuestionRefused(
                "key",
                f"its counts would have {cells:,} cells (groups times columns), and at most {most:,} are allowed here",
                "name fewer columns, or give fewer bins",
            )
        self._curator.datasets.large.add(cells)

    def listed(self, person: Person, dataset: str, before: int | None = None) -> dict[str, Any]:
        """Those that this person bought, and those that are published: the newest, or those before an entry. `before`
        of what is returned is where the next page begins; None on the last.
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
        told = [
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
        return {"synthetic": told, "before": found[_LISTED - 1].entry if len(found) > _LISTED else None}

    def record(self, person: Person, dataset: str, entry: int, question: str | None = None) -> dict[str, Any]:
        """All that is needed to fit it and draw from it, for nothing."""
        return told_again(dataset, self._found(person, dataset, entry, question))

    def rows(
        self, person: Person, dataset: str, entry: int, count: int | None, form: str, question: str | None = None
    ) -> DrawnFile:
        """Rows in a file; as many as the table has, if not said. Free: what was paid for are the counts."""
        if self._held[person.name] >= _HELD:
            words = "your earlier downloads are not read to their end; read or close them first"
            raise Problem("rate_limited", words, headers={"Retry-After": "5"})
        made, said, session = self._found(person, dataset, entry, question)
        many = min(made.count, MOST_ROWS) if count is None else count
        record = record_of(made, said, session.tables)
        state = self._curator.settings.state
        # The ledgers lie on this disk: all downloads together leave room for them, however slowly they are read.
        room = (shutil.disk_usage(state).free - self._curator.settings.free_space) // _PARTS
        with scratch(state) as folder:
            path = folder / f"rows.{form}"
            try:
                notes = write_apart(record, many, path, form, replace(LIMITS, size=max(0, min(LIMITS.size, room))))
                file = path.open("rb")  # which outlives its folder
            except (EngineFailed, OSError):
                raise Problem("fit_failed", "draw fewer rows, or fit the counts yourself with dn.connect") from None
            name = f"{_plain(dataset)}-{entry}-synthetic.{form}"
            return DrawnFile(file, path.stat().st_size, name, notes, self._hold(person.name, file))

    def _hold(self, person: str, file: IO[bytes]) -> Callable[[], object]:
        """Count a download until it is read, or nobody is there to read it."""
        with self._turn:
            self._held[person] += 1
        return weakref.finalize(file, self._let_go, person)

    def _let_go(self, person: str) -> None:
        with self._turn:
            self._held[person] -= 1
            if not self._held[person]:
                del self._held[person]

    def publish(self, person: Person, dataset: str, entry: int, *, published: bool) -> dict[str, Any]:
        """Let everybody who may see the dataset have a synthetic table that its owner bought, or not any more."""
        self._curator.visible(person, dataset)
        catalogue = self._curator.catalogue
        found = catalogue.release(dataset, entry)
        noted = None if found is None or found.person != person.name else read_note(found.question)
        if found is None or not isinstance(noted, NotedSynthesis):
            raise Problem("not_found", _NOT_HERE)
        catalogue.note_again(dataset, entry, replace(noted, published=published).note(), instead_of=found.question)
        return {"release": f"{dataset}:{entry}", "published": published}

    def _found(self, person: Person, dataset: str, entry: int, question: str | None) -> Recalled:
        """For whoever bought it, for everybody if it is published, and for whoever knows the question: they would get
        it by asking, for nothing.
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
        self._curator.datasets.large.add(len(sealed.answer or b"") // 16)  # in its turn, as when it was made
        left = ledger.remaining if person.role is Role.AUDITOR else ledger.left(person.name)
        again = recall(opened, self._curator.catalogue.earlier(dataset), found, charge, sealed, left)
        if again is None:
            raise Problem("not_found", _NOT_HERE)
        return again


def recall(
    opened: Open, earlier: list[str], found: ReleaseRecord, charge: Entry, sealed: Entry, left: Cost
) -> Recalled | None:
    """A synthetic table from the ledger, read by what was public when it was bought."""
    said = asked_of(found)
    for session in chain([opened.session], (opened.before(schema) for schema in earlier)):
        try:
            made = recalled(session, said, charge, sealed, left)
        except (QuestionRefused, InvalidParameter):  # then it means nothing by this schema
            continue
        if made is not None:
            return made, said, session
    return None


def asked_of(release: ReleaseRecord) -> dict[str, Any]:
    """What was asked, as `Session.synthesize` takes it."""
    return dict(_note(release).asked)


def is_published(release: ReleaseRecord) -> bool:
    """Whether everybody who may see the dataset may have it."""
    return _note(release).published


def _note(release: ReleaseRecord) -> NotedSynthesis:
    noted = read_note(release.question)
    assert isinstance(noted, NotedSynthesis)
    return noted


def checked_rows(count: int | None) -> int | None:
    """InvalidParameter where a download would be too large."""
    if count is not None and not 1 <= count <= MOST_ROWS:
        raise InvalidParameter("rows", NOTHING, f"must be from 1 to {MOST_ROWS:,}", "for more, download several times")
    return count


def told_again(dataset: str, found: Recalled) -> dict[str, Any]:
    """As it goes over the wire."""
    made, said, session = found
    record = record_of(made, said, session.tables)
    return {**record, "dataset": dataset, "release": f"{dataset}:{made.receipt.entry}"}


def _plain(name: str) -> str:
    """A name that no header or file system stumbles over; names of datasets have only letters, digits and ._@-."""
    return name.replace(" ", "_")
