"""The processor time of each test, with the processes that it started and waited for; wall time would measure the machine.

A test that takes over two seconds is marked slow, or is made smaller, so that `make test` stays quick. The end of a run
names the unmarked tests that took longer. Nothing fails by it, because a busy processor may need twice the time. What
tests share is not counted for the test that happens to be first or last: fixtures of a module or a session, and what a
process that outlives a test, such as the engine of a server, did for the tests before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

import pytest

MOST: Final = 2.0
"""Seconds that a test without a mark may take."""
MARKS: Final = frozenset({"slow", "torch", "spark", "postgres", "browser"})
_PROPERTY: Final = "processor seconds"
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def now() -> float:
    """The processor time of this process and of its children, those that run too."""
    return sum(os.times()[:4]) + (sum(running().values()) if _has_children() else 0.0)


def _has_children() -> bool:
    """Whether any child runs or waits to be reaped: a system call, where a look through /proc takes milliseconds."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # none; or a system without this call
        return False
    return True


def running() -> dict[int, float]:
    """The processor seconds of each child that has not been waited for. Without /proc: of none.

    If it were counted only once it has ended, as the system does, the test that ends it would pay for all. Children have
    higher numbers than this process, but where numbers began anew; files of other processes are not read, for speed.
    """
    me, found = os.getpid(), {}
    for name in os.listdir("/proc") if os.path.exists("/proc/self/stat") else ():
        if not name.isdigit() or int(name) <= me:
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                _, _, words = file.read().rpartition(") ")  # the name before it may hold spaces
        except OSError:
            continue  # it ended meanwhile
        _, parent, *rest = words.split()
        if int(parent) == me:
            found[int(name)] = sum(map(int, rest[9:13])) / _TICKS
    return found


@dataclass
class Clock:
    """The time of the running test, without what it shares with others."""

    began: float = 0.0
    shared: float = 0.0
    called: float = 0.0

    def begin(self) -> None:
        self.began, self.shared = now(), 0.0

    def share(self, seconds: float) -> None:
        """Leave out the set-up of a fixture that other tests use too."""
        self.shared += seconds

    def end(self, item: pytest.Item, when: str, *, is_last: bool) -> None:
        """Write the time of a test without a mark into its last report, which a worker sends to the controller.

        After the last test of a file, its teardown ends what the whole file used, so it is left out.
        """
        spent = now() - self.began - self.shared
        if when == "call":
            self.called = spent
        if when == "teardown" and not MARKS & {mark.name for mark in item.iter_markers()}:
            item.user_properties.append((_PROPERTY, self.called if is_last else spent))


CLOCK = Clock()


@dataclass
class LongTests:
    """The unmarked tests of a run that took longer than `MOST`."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if report.when == "teardown" and name == _PROPERTY and isinstance(value, float) and value > MOST:
                self.seconds[report.nodeid] = value

    def lines(self) -> list[str]:
        ranked = sorted(self.seconds.items(), key=lambda each: -each[1])
        return [f"{value:5.1f} s  {name}" for name, value in ranked]


LONG_TESTS = LongTests()
