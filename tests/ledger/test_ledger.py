"""The ledger's protocol, wherever it is kept: what is charged, what is written, what is refused and leaves no mark."""

from __future__ import annotations

import math
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from deniable import curves
from deniable.errors import BudgetExceeded, DeniableError, InvalidOperation, InvalidParameter, LedgerMismatch
from deniable.ledger import Budget, Cost, Entry, Ledger, State
from deniable.units import Guarantee, Unit
from tests.table import every_row
from tests.wording import worded

PURE = Budget.pure(epsilon=1, delta=1e-6)
TENTH = PURE.cost(epsilon=0.1)
UNIT = Unit.person("patient_id", rows=20)


def question(number: int) -> str:
    return f"{number:064x}"


Opener = Callable[..., Ledger]


@pytest.fixture
def open_ledger(place: str | Path | None) -> Iterator[Opener]:
    opened: list[Ledger] = []

    def opener(budget: Budget = PURE) -> Ledger:
        opened.append(Ledger.open(place, budget=budget, unit=UNIT, dataset="visits"))
        return opened[-1]

    yield opener
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: Opener) -> Ledger:
    return open_ledger()


def ask(ledger: Ledger, cost: Cost = TENTH, number: int = 1, key: str | None = None) -> Entry:
    return ledger.reserve(cost, question=question(number), description="how many", key=key)


def written(ledger: Ledger) -> tuple[list[Entry], Cost]:
    return list(ledger.entries()), ledger.charged


def test_spend_then_seal(ledger: Ledger) -> None:
    assert (ledger.charged, ledger.remaining, list(ledger.entries())) == (Cost(0), PURE.limit, [])
    assert ledger.spent == curves.identity()
    reserved = ask(ledger)
    assert (reserved.number, reserved.state, reserved.cost, reserved.spent) == (1, State.RESERVED, TENTH, TENTH)
    assert ledger.charged == reserved.charged == TENTH
    assert ledger.answer(question(1)) is None  # not sealed, so nothing may leave
    sealed = ledger.seal(reserved, b"\x00noisy")
    assert (sealed.state, sealed.closes, sealed.answer, sealed.cost) == (State.SEALED, 1, b"\x00noisy", TENTH)
    assert sealed.previous == reserved.hash
    assert sealed.charged == Cost(0)
    assert ledger.charged == TENTH
    assert ledger.answer(question(1)) == sealed == ledger.entry(2) == ledger.verify()
    assert ledger.answer(question(2)) is None is ledger.entry(3)
    assert list(ledger.entries()) == [reserved, sealed]
    assert ledger.spent == curves.pure(epsilon=0.1)


def test_a_failure_stays_charged_and_gives_no_answer(ledger: Ledger) -> None:
    failed = ledger.fail(ask(ledger), "engine-failed")
    assert (failed.state, failed.code, failed.answer) == (State.FAILED, "engine-failed", None)
    assert ledger.charged == TENTH
    assert ledger.answer(question(1)) is None
    ledger.verify()


def test_ten_thousand_tenths_fit_exactly_into_a_thousand(open_ledger: Opener) -> None:
    ledger = open_ledger(Budget.pure(epsilon=1000))
    for _ in range(10):
        ledger.reserve_all([(TENTH, question(7), "a thousand at a time")] * 1_000)
    assert ledger.remaining == Cost(0)
    for cost in (TENTH, Cost(1), Cost(0, 1)):
        with pytest.raises(BudgetExceeded):
            ask(ledger, cost)
    ask(ledger, Cost(0))  # what reads no private data costs nothing, and is written down all the same
    assert ledger.verify().number == 10_001


def test_what_does_not_fit_leaves_no_mark(ledger: Ledger) -> None:
    for number in range(9):
        ask(ledger, number=number)
    before = written(ledger)
    for cost in (TENTH + Cost(1), Cost(0, PURE.limit.delta_units + 1), Cost(10**36)):
        with worded(BudgetExceeded):
            ask(ledger, cost)
    assert written(ledger) == before
    ask(ledger, TENTH + Cost(0, PURE.limit.delta_units))
    assert ledger.remaining == Cost(0)


def test_the_refusal_of_a_gaussian_budget_speaks_of_epsilon(open_ledger: Opener) -> None:
    budget = Budget(epsilon=1, delta=1e-6)
    ledger = open_ledger(budget)
    ask(ledger, budget.cost(epsilon=0.8))
    with pytest.raises(BudgetExceeded) as refused:
        ask(ledger, budget.cost(epsilon=0.9))
    assert refused.value.asked == "epsilon 0.9 at delta 9E-7 (mu 0.2136)"
    said, rest = refused.value.left.split(" at ")
    assert rest == "delta 9E-7 (mu 0.1372), delta 1E-7"
    most = Decimal(
        said.removeprefix("epsilon ")
    )  # four digits: what is said to be left fits, and a digit more does not
    with pytest.raises(BudgetExceeded):
        ask(ledger, budget.cost(epsilon=most + Decimal("0.0001")))
    ask(ledger, budget.cost(epsilon=most))


@pytest.fixture(params=[PURE, Budget(epsilon=1, delta=1e-6)], ids=repr)
def asked(request: pytest.FixtureRequest, open_ledger: Opener) -> Ledger:
    """A ledger of each currency in which something is written."""
    ledger = open_ledger(request.param)
    ask(ledger, request.param.cost(epsilon=0.1))
    return ledger


@every_row((bad,) for bad in (-1, -0.0, 0, math.nan, math.inf, -math.inf, float("1e-400"), 1e308, True))
def test_amounts_that_mean_nothing_never_reach_the_ledger(asked: Ledger, bad: object) -> None:
    ledger, before = asked, written(asked)
    with pytest.raises(InvalidParameter, match="epsilon"):
        ask(ledger, ledger.budget.cost(epsilon=bad))
    with pytest.raises(InvalidParameter, match="cost"):
        ask(ledger, bad)
    with pytest.raises(InvalidParameter):
        ask(ledger, Cost(bad if bad != 0 or isinstance(bad, float) else -1))
    assert written(ledger) == before


def test_a_number_written_as_text_is_that_number(ledger: Ledger) -> None:
    ask(ledger, PURE.cost(epsilon="1"))
    assert ledger.remaining.units == 0


@every_row(
    (change,)
    for change in (
        {"question": "0" * 63},
        {"question": "G" * 64},
        {"question": "A" * 64},
        {"question": "0" * 64 + "\n"},
        {"question": None},
        {"question": b"0" * 64},
        {"description": ""},
        {"description": None},
        {"description": "\ud800"},
        {"description": "a\0b"},
        {"description": "x" * 100_001},
        {"key": ""},
        {"key": 7},
        {"cost": (1, 0)},
    )
)
def test_fields_that_mean_nothing_never_reach_the_ledger(ledger: Ledger, change: dict[str, object]) -> None:
    fields = {"cost": TENTH, "question": question(1), "description": "how many", "key": "k"} | change
    with pytest.raises(InvalidParameter) as refused:
        ledger.reserve(fields.pop("cost"), **fields)
    assert refused.value.parameter == next(iter(change))
    assert written(ledger) == ([], Cost(0))


def test_an_entry_is_closed_once_and_only_here(ledger: Ledger, tmp_path: Path) -> None:
    first, second = ask(ledger), ask(ledger)
    sealed = ledger.seal(first, b"1")
    before = written(ledger)
    for refused in (
        lambda: ledger.seal(first, b"2"),
        lambda: ledger.fail(first, "late"),
        lambda: ledger.seal(sealed, b"2"),
        lambda: ledger.seal(replace(second, cost=Cost(0)), b"2"),
        lambda: ledger.seal(replace(second, number=99), b"2"),
        lambda: ledger.seal("1", b"2"),
        lambda: ledger.seal(second, "text"),
        lambda: ledger.seal(second, None),
        lambda: ledger.fail(second, "Division by zero in row 17"),
        lambda: ledger.fail(second, ""),
    ):
        with pytest.raises(InvalidParameter):
            refused()
    with Ledger.open(tmp_path / "other", budget=PURE, unit=UNIT, dataset="visits") as other:
        ask(other)
        ask(other)
        with worded(InvalidParameter, parameter="entry"):
            other.seal(second, b"2")
    assert written(ledger) == before
    ledger.fail(second, "timed-out")


def test_an_answer_never_shows_in_an_error_or_a_repr(ledger: Ledger) -> None:
    entry = ledger.seal(ask(ledger), b"secret-4711")
    assert "4711" not in repr(entry)
    with pytest.raises(InvalidParameter) as refused:
        ledger.seal(ask(ledger), "secret-4711")
    assert "4711" not in str(refused.value)
    with pytest.raises(InvalidParameter) as refused:
        ledger.seal(b"secret-4711", b"")
    assert "4711" not in str(refused.value)


def test_all_or_nothing(ledger: Ledger) -> None:
    asks = [(TENTH, question(number), f"part {number}") for number in range(6)]
    entries = ledger.reserve_all(asks)
    assert [entry.number for entry in entries] == [1, 2, 3, 4, 5, 6]
    before = written(ledger)
    with worded(BudgetExceeded):
        ledger.reserve_all(asks)
    with pytest.raises(InvalidParameter):
        ledger.reserve_all([*asks[:2], (TENTH, "no hash", "x")])
    assert ledger.reserve_all([]) == []
    assert written(ledger) == before
    for entry in reversed(entries):
        ledger.seal(entry, b"%d" % entry.number)
    assert ledger.answer(question(3)).answer == b"4"
    ledger.verify()


def test_the_newest_answer_is_replayed(ledger: Ledger) -> None:
    ledger.seal(ask(ledger), b"first")
    refined = ask(ledger)
    assert ledger.answer(question(1)).answer == b"first"
    ledger.seal(refined, b"second")
    assert ledger.answer(question(1)).answer == b"second"
    assert ledger.charged == TENTH + TENTH


def test_an_answer_is_replayed_for_its_version_and_for_both_columns_of_a_cost(ledger: Ledger) -> None:
    asked = {"question": question(1), "description": "how many"}
    dear, cheap = Cost(TENTH.units, 2), Cost(TENTH.units, 1)
    sealed = ledger.seal(ledger.reserve_or_replay(cheap, **asked, version="2026"), b"41")
    assert ledger.reserve_or_replay(cheap, **asked, version="2026") == sealed
    for cost, version in ((dear, "2026"), (cheap, "2027"), (cheap, None)):
        before = ledger.charged
        assert ledger.reserve_or_replay(cost, **asked, version=version).state is State.RESERVED, (cost, version)
        assert ledger.charged == before + cost


def test_a_retry_with_the_same_key_is_charged_once(ledger: Ledger) -> None:
    entry = ask(ledger, key="request 1")
    with worded(InvalidParameter, parameter="key"):
        ask(ledger, key="request 1")
    sealed = ledger.seal(entry, b"42")
    assert ask(ledger, key="request 1") == sealed
    for other in ({"number": 2}, {"cost": Cost(1)}):
        with pytest.raises(InvalidParameter, match="another question"):
            ask(ledger, key="request 1", **other)
    ledger.fail(ask(ledger, key="request 2"), "timed-out")
    with worded(InvalidParameter):
        ask(ledger, key="request 2")
    assert ledger.charged == TENTH + TENTH
    ledger.verify()


def test_a_guarantee_is_the_limit(ledger: Ledger) -> None:
    before = ledger.guarantee
    ask(ledger)
    assert (
        before
        == ledger.guarantee
        == Guarantee(
            PURE.curve(PURE.limit), UNIT, assumptions=("every answer is sealed in this ledger before it leaves",)
        )
    )


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    with ledger as same:
        assert same is ledger
    ledger.close()
    with pytest.raises(InvalidOperation, match="closed"):
        ask(ledger)


@pytest.mark.parametrize("number", [0, -1, 2**63, True, 1.5, "1"], ids=repr)
def test_no_such_number(ledger: Ledger, number: object) -> None:
    with pytest.raises(InvalidParameter):
        ledger.entry(number)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a ledger?#%.sqlite"
    with Ledger.open(str(path), budget=PURE, unit=UNIT, dataset="visits") as ledger:
        entry = ledger.seal(ask(ledger), b"42")
    with Ledger.open(path) as again:
        assert (again.budget, again.unit, again.dataset, again.path) == (PURE, UNIT, "visits", path)
        assert again.answer(question(1)) == entry == again.verify()
        assert str(path) in repr(again)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]  # nothing is left beside it


def test_two_handles_share_the_budget(tmp_path: Path) -> None:
    handles = [Ledger.open(tmp_path / "ledger", budget=PURE, unit=UNIT, dataset="visits") for _ in range(2)]
    for turn in range(10):
        ask(handles[turn % 2])
    for handle in handles:
        with pytest.raises(BudgetExceeded):
            ask(handle)
        handle.close()


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("budget", Budget.pure(epsilon=2, delta=1e-6)),
        ("budget", Budget(epsilon=1, delta=1e-6)),
        ("unit", Unit.row()),
        ("unit", Unit.replaced_person("patient_id", rows=20)),
        ("dataset", "Visits"),
    ],
    ids=str,
)
def test_a_ledger_of_something_else_is_refused(tmp_path: Path, field: str, other: object) -> None:
    about = {"budget": PURE, "unit": UNIT, "dataset": "visits"}
    Ledger.open(tmp_path / "ledger", **about).close()
    before = (tmp_path / "ledger").read_bytes()
    with pytest.raises(LedgerMismatch) as refused:
        Ledger.open(tmp_path / "ledger", **about | {field: other})
    assert (refused.value.field, refused.value.asked, refused.value.found) == (field, repr(other), repr(about[field]))
    assert (tmp_path / "ledger").read_bytes() == before
    Ledger.open(tmp_path / "ledger", **{field: about[field]}).close()


def test_a_new_ledger_needs_to_know_what_it_is_about(tmp_path: Path) -> None:
    for path in (None, tmp_path / "ledger"):
        for missing in ("budget", "unit", "dataset"):
            about = {"budget": PURE, "unit": UNIT, "dataset": "visits"}
            del about[missing]
            with worded(InvalidParameter, parameter="budget"):
                Ledger.open(path, **about)
        for field, bad in (("budget", 1.0), ("unit", "row"), ("dataset", ""), ("dataset", 5)):
            with pytest.raises(InvalidParameter, match=field):
                Ledger.open(path, **{"budget": PURE, "unit": UNIT, "dataset": "visits"} | {field: bad})
    assert list(tmp_path.iterdir()) == []


# --- processes and threads --------------------------------------------------------------------------------------------


def test_a_handle_can_be_pickled(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", budget=PURE, unit=UNIT, dataset="visits") as ledger:
        ask(ledger)
        with pickle.loads(pickle.dumps(ledger)) as twin:
            assert twin.charged == TENTH
    with Ledger.open(budget=PURE, unit=UNIT, dataset="visits") as memory, pytest.raises(InvalidOperation, match="file"):
        pickle.dumps(memory)


def test_entries_survive_pickling(ledger: Ledger) -> None:
    entry = ask(ledger)
    assert pickle.loads(pickle.dumps(entry)) == entry


def in_a_fork(work: Callable[[], str]) -> str:
    """What `work` returns in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work().encode())
        except DeniableError as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_shares_a_file_and_is_refused_a_copy_of_memory(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", budget=PURE, unit=UNIT, dataset="visits") as ledger:
        entry = ask(ledger)
        assert in_a_fork(lambda: str(ledger.seal(entry, b"1").number)) == "2"
        assert ask(ledger).number == 3
        assert in_a_fork(lambda: str(ask(ledger).number)) == "4"
        assert ledger.charged // TENTH == 3
        ledger.verify()
    with Ledger.open(budget=PURE, unit=UNIT, dataset="visits") as memory:
        assert "only the process that made a ledger in memory" in in_a_fork(lambda: str(ask(memory).number))
        ask(memory)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_while_threads_are_writing(tmp_path: Path) -> None:
    budget = Budget.pure(epsilon=1000)
    with Ledger.open(tmp_path / "ledger", budget=budget, unit=UNIT, dataset="visits") as ledger:
        done = threading.Event()
        counts = [0] * 2

        def write(thread: int) -> None:
            while not done.wait(0.001):
                ask(ledger)
                counts[thread] += 1

        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(2)]
        for thread in threads:
            thread.start()
        said = [in_a_fork(lambda: str(ask(ledger).number)) for _ in range(5)]
        done.set()
        for thread in threads:
            thread.join()
        assert all(number.isdigit() for number in said), said
        assert ledger.charged // TENTH == sum(counts) + 5
        ledger.verify()


def test_importing_the_ledger_is_cheap() -> None:
    import subprocess

    code = "import deniable.ledger, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "deniable.mechanisms", "deniable.noise"} & set(loaded)
