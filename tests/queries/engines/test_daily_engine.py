"""The engine of a day on a server: its process is started once, and nothing of a day is left for the next one."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest

import deniable as dn
from deniable.errors import EngineFailed, InvalidOperation
from deniable.queries.engines.duckdb import DuckDBEngine
from deniable.queries.engines.engine_process import Apart
from deniable.queries.standing_days import PEOPLE, Days
from deniable.tables.schema import Table

np = pytest.importorskip("numpy")
SECRET = b"s" * 32
TABLE = Table("visits", (("day", dn.Domain.integer(0, 9)),), dn.Unit.person("who", rows=3))
FRAME = pd.DataFrame({"who": [1, 1, 2, 3], "day": [0, 1, 1, 2]})


def test_one_process_for_all_days_and_no_table_stays() -> None:
    home = Apart(partial(DuckDBEngine, threads=1), seconds=30)
    first = home.beside(home.make)
    claimed = first.claim(FRAME, TABLE, SECRET, Days("day", 1), np.empty(0, dtype=PEOPLE))
    assert sorted(claimed["rows"].tolist()) == [1, 1]
    first.register_day("visits", FRAME, TABLE, SECRET, Days("day", 1), claimed)
    number = first.process
    first.close()
    again = home.beside(home.make)
    assert again.process == number
    again.register_day("visits", FRAME, TABLE, SECRET, Days("day", 1), claimed)  # a second table of this name: refused
    other = home.beside(home.make)  # while the first is in use
    other.claim(FRAME, TABLE, SECRET, Days("day", 2), np.empty(0, dtype=PEOPLE))
    assert other.process != number
    again.close()
    other.close()  # one waits already
    with pytest.raises((InvalidOperation, EngineFailed)):
        other.claim(FRAME, TABLE, SECRET, Days("day", 2), np.empty(0, dtype=PEOPLE))
    assert home._waiting is again
    newer = Apart(home.make, seconds=30)  # the next version of the data goes on with the process
    newer.follow(home)
    home.close()
    assert again._worker.alive  # type: ignore[union-attr]
    assert newer.beside(newer.make) is again
    again.close()
    newer.close()
    assert not again._worker.alive  # type: ignore[union-attr]
