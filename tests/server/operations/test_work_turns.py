"""Whose turn it is: order and counts, never times."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from deniable.server.operations.work_turns import SMALL, WHO, Large, Places, Turns
from deniable.server.problems import Problem


class Bench:
    """Work that waits until it is told to end, and notes what began in which order."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def work(self, name: str) -> Callable[[], str]:
        gate = self.gates[name] = threading.Event()

        def run() -> str:
            self.began.append(name)
            gate.wait(30)
            return name

        return run


async def until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never")


def test_who_asks_for_a_hundred_things_leaves_places_for_others() -> None:
    asyncio.run(_who_asks_for_a_hundred_things_leaves_places_for_others())


async def _who_asks_for_a_hundred_things_leaves_places_for_others() -> None:
    bench, turns = Bench(), Turns("t", most=3, each=2, waiting=1000)
    hostile = [turns.start("eve", bench.work(f"eve{i}")) for i in range(100)]
    await until(lambda: len(bench.began) == 2)
    other = turns.start("ana", bench.work("ana"))
    await until(lambda: "ana" in bench.began)
    assert sorted(bench.began) == ["ana", "eve0", "eve1"]
    bench.gates["ana"].set()
    assert await other == "ana"
    for gate in bench.gates.values():
        gate.set()
    assert [await each for each in hostile] == [f"eve{i}" for i in range(100)]
    assert not turns.busy
    turns.close()


def test_who_is_alone_has_nearly_all_places_until_others_come() -> None:
    """A limit for each person let most threads rest while one person alone was there."""
    asyncio.run(_who_is_alone_has_nearly_all_places_until_others_come())


async def _who_is_alone_has_nearly_all_places_until_others_come() -> None:
    bench, turns = Bench(), Turns("t", most=8, each=2, waiting=1000)
    mine = [turns.start("eve", bench.work(f"eve{i}")) for i in range(20)]
    await until(lambda: len(bench.began) == 6)  # all but a quarter
    others = [turns.start(name, bench.work(name)) for name in ("ana", "bob")]
    await until(lambda: len(bench.began) == 8)
    assert sorted(bench.began) == sorted(["ana", "bob", *(f"eve{i}" for i in range(6))])
    for at in range(4):  # as long as others are there, nothing beyond her two starts
        bench.gates[f"eve{at}"].set()
        await mine[at]
    assert len(bench.began) == 8
    bench.gates["eve4"].set()
    await until(lambda: "eve6" in bench.began)
    assert "eve7" not in bench.began
    for name in ("ana", "bob"):
        bench.gates[name].set()
    await asyncio.gather(*others)
    await until(lambda: len(bench.began) == 2 + 5 + 6)  # five of hers are done, and she has six places again
    for gate in bench.gates.values():
        gate.set()
    assert [await each for each in mine] == [f"eve{i}" for i in range(20)]
    turns.close()


def test_who_waits_ends_the_time_alone_of_another() -> None:
    asyncio.run(_who_waits_ends_the_time_alone_of_another())


async def _who_waits_ends_the_time_alone_of_another() -> None:
    """Also while all that others want still waits: the free places are for those who have none."""
    bench, turns = Bench(), Turns("t", most=4, each=1, waiting=1000)
    mine = [turns.start("eve", bench.work(f"eve{i}")) for i in range(6)]
    others = [turns.start("ana", bench.work(f"ana{i}")) for i in range(2)]
    await until(lambda: len(bench.began) == 4)
    assert sorted(bench.began) == ["ana0", "eve0", "eve1", "eve2"]
    for name in ("eve0", "eve1"):
        bench.gates[name].set()
    await asyncio.gather(*mine[:2])
    assert len(bench.began) == 4
    bench.gates["ana0"].set()
    await until(lambda: "ana1" in bench.began)  # not eve3
    assert "eve3" not in bench.began
    for gate in bench.gates.values():
        gate.set()
    await asyncio.gather(*mine, *others)
    turns.close()


def test_those_who_wait_come_in_turns() -> None:
    asyncio.run(_those_who_wait_come_in_turns())


async def _those_who_wait_come_in_turns() -> None:
    bench, turns = Bench(), Turns("t", most=1, each=1, waiting=1000)
    first = turns.start("eve", bench.work("eve0"))
    await until(lambda: bench.began == ["eve0"])
    names = ["eve1", "eve2", "ana1", "ana2", "bob1"]
    waiting = [turns.start(name[:3], bench.work(name)) for name in names]
    for gate in bench.gates.values():
        gate.set()
    await asyncio.gather(first, *waiting)
    assert bench.began == ["eve0", "eve1", "ana1", "bob1", "eve2", "ana2"]
    turns.close()


def test_nobody_fills_the_queue_alone() -> None:
    asyncio.run(_nobody_fills_the_queue_alone())


async def _nobody_fills_the_queue_alone() -> None:
    bench, turns = Bench(), Turns("t", most=1, each=1, waiting=8)
    running = [turns.start("eve", bench.work(f"eve{i}")) for i in range(3)]  # one runs, two wait: a quarter of eight
    with pytest.raises(Problem) as limited:
        turns.start("eve", bench.work("one too many"))
    assert (limited.value.code, limited.value.headers["Retry-After"]) == ("rate_limited", "1")
    running += [turns.start(f"p{i}", bench.work(f"p{i}")) for i in range(6)]
    with pytest.raises(Problem) as busy:
        turns.start("late", bench.work("late"))
    assert busy.value.code == "busy"
    for gate in bench.gates.values():
        gate.set()
    await asyncio.gather(*running)
    turns.close()


def test_what_fails_and_who_hangs_up_give_their_place_back() -> None:
    asyncio.run(_what_fails_and_who_hangs_up_give_their_place_back())


async def _what_fails_and_who_hangs_up_give_their_place_back() -> None:
    bench, turns = Bench(), Turns("t", most=1, each=1, waiting=8)

    def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await turns.start("eve", fails)
    gone = turns.start("eve", bench.work("gone"))
    await until(lambda: "gone" in bench.began)
    gone.cancel()
    bench.gates["gone"].set()
    late = turns.start("ana", bench.work("ana"))
    bench.gates["ana"].set()
    assert await late == "ana"
    assert not turns.busy
    turns.close()


def test_work_of_somebody_without_a_name_waits_and_comes() -> None:
    """Whoever redeems an invitation has no name yet: their second piece of work waited for ever."""
    asyncio.run(_work_of_somebody_without_a_name_waits_and_comes())


async def _work_of_somebody_without_a_name_waits_and_comes() -> None:
    turns = Turns("t", most=2, each=1, waiting=8)
    found = await asyncio.wait_for(asyncio.gather(*(turns.start("", str, n) for n in range(3))), 30)
    assert found == ["0", "1", "2"]
    turns.close()


def test_one_person_has_so_many_places_in_an_engine() -> None:
    """Places are taken by the threads that work for somebody: who that is goes with the work into its thread."""
    asyncio.run(_one_person_has_so_many_places())


async def _one_person_has_so_many_places() -> None:
    bench, turns, places = Bench(), Turns("t", most=6, each=4, waiting=100), Places(2)

    def placed(name: str) -> Callable[[], str]:
        work = bench.work(name)

        def run() -> str:
            with places.one():
                return work()

        return run

    def start(person: str, name: str) -> asyncio.Future[str]:
        WHO.set(person)
        return turns.start(person, placed(name))

    eve = [start("eve", f"eve{i}") for i in range(8)]
    await until(lambda: len(bench.began) == 2)
    ana = start("ana", "ana")
    await until(lambda: len(bench.began) == 3)
    assert bench.began[2] == "ana"
    for gate in bench.gates.values():
        gate.set()
    assert await ana == "ana"
    assert sorted(await asyncio.gather(*eve)) == sorted(f"eve{i}" for i in range(8))
    turns.close()


def test_a_place_that_becomes_free_wakes_one_who_waits_and_nobody_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All who waited were woken for each place, to find that one of them has it."""
    places, running, most, woken = Places(1), [0], [0], []
    real = threading.Condition.wait

    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        found = real(self, timeout)
        woken.append(threading.current_thread().name)
        return found

    monkeypatch.setattr(threading.Condition, "wait", wait)

    def run(number: int) -> None:
        WHO.set("eve")
        with suppress(ValueError), places.one():
            running[0] += 1
            most[0] = max(most[0], running[0])
            time.sleep(0.01)
            running[0] -= 1
            if number % 2:
                raise ValueError("a bug gives its place back too")

    threads = [threading.Thread(target=run, args=(number,), name=f"eve{number}") for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert most == [1]
    assert sum(name.startswith("eve") for name in woken) <= 7
    assert places._people == {}


def test_one_person_makes_one_large_answer_at_a_time() -> None:
    """24 answers of 75,000 cells at once made another person wait for 3 to 7 s."""
    asyncio.run(_one_person_makes_one_large_answer_at_a_time())


async def _one_person_makes_one_large_answer_at_a_time() -> None:
    bench, turns, large = Bench(), Turns("t", most=12, each=6, waiting=100), Large()

    def making(name: str, *cells: int) -> Callable[[], str]:
        work = bench.work(name)

        def run() -> str:
            with large.work():
                for each in cells:
                    large.add(each)
                return work()

        return run

    def start(person: str, name: str, *cells: int) -> asyncio.Future[str]:
        WHO.set(person)
        return turns.start(person, making(name, *cells))

    first = start("eve", "large", SMALL + 1)
    await until(lambda: bench.began == ["large"])
    more = [start("eve", f"more{i}", SMALL // 2, SMALL // 2, 1) for i in range(3)]  # together they are large
    others = [start("eve", "small", SMALL), start("ana", "ana", 10 * SMALL)]
    await until(lambda: len(bench.began) == 3)
    assert sorted(bench.began) == ["ana", "large", "small"]
    bench.gates["large"].set()
    await first
    await until(lambda: len(bench.began) == 4)
    for gate in bench.gates.values():
        gate.set()
    assert sorted(await asyncio.gather(*more)) == ["more0", "more1", "more2"]
    await asyncio.gather(*others)
    large.add(10 * SMALL)  # outside of any work nothing is held
    with large.work():
        large.add(10 * SMALL)  # and what failed or ended holds nothing
    turns.close()


def test_large_work_that_fails_gives_its_place_back() -> None:
    large = Large()

    def fails() -> None:
        with large.work():
            large.add(SMALL + 1)
            raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            fails()


def test_threads_take_shorter_turns_while_something_large_is_made() -> None:
    large, usual = Large(), sys.getswitchinterval()
    with large.work():
        large.add(SMALL)
        assert sys.getswitchinterval() == usual
        large.add(1)
        assert sys.getswitchinterval() == pytest.approx(usual / 10, rel=0.01)
        with ThreadPoolExecutor(1) as pool:  # another server in the same process, for somebody else
            pool.submit(_made_large, Large()).result()
        assert sys.getswitchinterval() == pytest.approx(usual / 10, rel=0.01)
    assert sys.getswitchinterval() == pytest.approx(usual, rel=0.01)


def _made_large(large: Large) -> None:
    with large.work():
        large.add(SMALL + 1)


@pytest.mark.parametrize("at", [0, 1])
def test_a_thread_that_could_not_be_started_kept_its_place_for_ever(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_a_thread_that_could_not_be_started_kept_its_place_for_ever(at, monkeypatch))


async def _a_thread_that_could_not_be_started_kept_its_place_for_ever(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no room for the first thread, or for the second; later it has."""
    bench, turns = Bench(), Turns("t", most=2, each=2, waiting=100)
    before = [turns.start("ana", bench.work(f"before{i}")) for i in range(at)]
    with monkeypatch.context() as full:

        def refused(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", refused)
        during = turns.start("bob", bench.work("during"))
        waiting = [turns.start("eve", bench.work(f"waiting{i}")) for i in range(2 * at)]
    for gate in bench.gates.values():
        gate.set()
    if at:
        told = await asyncio.wait_for(asyncio.gather(*before, during, *waiting), 30)
        assert told == ["before0", "during", "waiting0", "waiting1"]
    else:
        with pytest.raises(Problem) as busy:
            await asyncio.wait_for(during, 30)
        assert busy.value.code == "busy"
    assert not turns.busy
    last = [turns.start("ana", bench.work("last0")), turns.start("bob", bench.work("last1"))]
    await until(lambda: {"last0", "last1"} <= set(bench.began))  # both at once, as before
    for gate in bench.gates.values():
        gate.set()
    assert await asyncio.wait_for(asyncio.gather(*last), 30) == ["last0", "last1"]
    turns.close()


def test_work_that_ended_by_stop_iteration_was_never_told_and_held_up_the_queue() -> None:
    asyncio.run(_work_that_ended_by_stop_iteration_was_never_told_and_held_up_the_queue())


async def _work_that_ended_by_stop_iteration_was_never_told_and_held_up_the_queue() -> None:
    """A future takes no such error."""
    turns, nothing = Turns("t", most=1, each=1, waiting=10), iter(())
    wrong = turns.start("eve", next, nothing)
    right = turns.start("ana", lambda: "right")
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(wrong, 30)
    assert await asyncio.wait_for(right, 30) == "right"
    turns.close()
