"""Numbers of a registration that grew: those of the earlier files plus those of the new ones."""

from __future__ import annotations

from deniable.queries.engines.kept_contents import TableCount


def test_dropped_rows_of_all_files_add_up_by_their_reason() -> None:
    before = TableCount("id", ("no id", "too old"), ((-1, 90, 900), (0, 7, 70)), 90, 30, (), (("id", "BIGINT"),))
    more = TableCount("id", ("no id", "too old"), ((-1, 8, 80), (1, 2, 20)), 98, 33, (), None)
    found = before.plus(more)
    assert {reason: each for reason, *each in found.tally} == {-1: [98, 980], 0: [7, 70], 1: [2, 20]}
    # The kept rows and people of `more` count all files already.
    assert (found.kept, found.people, found.types) == (98, 33, None)
