"""A run on an engine whose status and duration reveal nothing: if it fails, it is answered as empty tables would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.errors import EngineFailed, InvalidOperation

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger
    from deniable.queries.engines.engine import Engine
    from deniable.queries.relations.exact_statistics import Collect

T = TypeVar("T")


def attempted(
    engine: Engine, collects: Sequence[Collect], release: Callable[[list[Any]], T], noted: Callable[[str], None]
) -> T:
    """Run the queries and release them. A run that fails is answered as if the tables were empty, after a fixed time.

    Whether and when a run fails can depend on one person, so analysts must not see it: default values and fixed times
    as in Haeberlen, Pierce & Narayan (USENIX Security 2011). `noted` gets the code of the failure, for the owner. If
    empty tables fail too, the error is raised.
    """
    with engine.turn():  # the fixed time begins with the run, however long it waited for its turn
        began = monotonic()
        try:
            return release([engine.collect(each) for each in collects])
        except EngineFailed as failed:
            code = failed.code
        except InvalidOperation:  # the session was closed meanwhile
            raise
        except Exception:  # a bug, which may depend on a person's data
            code = "engine"
        if code == "source":  # the source is gone, which does not depend on any person
            raise EngineFailed(code)
        released = engine.instead(collects, release)
    if (patience := engine.patience) is not None:  # of each run
        patience *= len(collects)
        sleep(max(0.0, began + patience - monotonic()))
    if isinstance(released, EngineFailed):
        raise released
    noted(code)
    return released


def finished(ledger: Ledger, entries: Sequence[Entry], work: Callable[[], T]) -> T:
    """The result of `work` for these entries. If it fails, all of them are closed as failed and stay charged."""
    try:
        return work()
    except EngineFailed as failed:
        code = failed.code
    except Exception:  # a bug: its message may contain data, so it is dropped
        code = "engine"
    for entry in entries:
        ledger.fail(entry, code)
    raise EngineFailed(code, "what was charged stays charged")
