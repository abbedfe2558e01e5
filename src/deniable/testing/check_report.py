"""What the checks found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from deniable.errors import InvalidOperation


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    passed: bool | None
    """None: there was nothing to check, or nothing was seen; the words say why."""
    words: str
    unseen: bool = False
    """Whether it looked and saw nothing: no failure, and no pass either."""

    def __str__(self) -> str:
        mark = "?   " if self.unseen else {True: "ok  ", False: "FAIL", None: "-   "}[self.passed]
        return f"{mark}  {self.name:<10}  {self.words}"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one mechanism. Printed, it is one line for each."""

    mechanism: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed, and none saw nothing: a pass says that something was looked at."""
        return not self.failures and not self.unseen

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def unseen(self) -> tuple[Check, ...]:
        """The checks that looked and saw nothing."""
        return tuple(check for check in self.checks if check.unseen)

    def __getitem__(self, name: str) -> Check:
        """The check of that name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def raise_for_failures(self) -> None:
        """Nothing if all is well; otherwise an error that names every check that failed, or that saw nothing."""
        if self.failures:
            said = "; ".join(f"{check.name}: {check.words}" for check in self.failures)
            raise InvalidOperation(f"{self.mechanism} does not keep its promise: {said}")
        if self.unseen:
            said = "; ".join(f"{check.name}: {check.words}" for check in self.unseen)
            raise InvalidOperation(f"{self.mechanism} was not judged: {said}")

    def __str__(self) -> str:
        return "\n".join([self.mechanism, *map(str, self.checks)])
