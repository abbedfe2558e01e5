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
    """None: there was nothing to check; the words say why."""
    words: str

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "-   "}[self.passed]
        return f"{mark}  {self.name:<10}  {self.words}"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one mechanism. Printed, it is one line for each."""

    mechanism: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def __getitem__(self, name: str) -> Check:
        """The check of that name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def raise_for_failures(self) -> None:
        """Nothing if all is well; otherwise an error that names every check that failed."""
        if self.failures:
            said = "; ".join(f"{check.name}: {check.words}" for check in self.failures)
            raise InvalidOperation(f"{self.mechanism} does not keep its promise: {said}")

    def __str__(self) -> str:
        return "\n".join([self.mechanism, *map(str, self.checks)])
