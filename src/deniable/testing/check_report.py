"""The results of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from deniable.errors import InvalidOperation


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One property of a mechanism, and whether it holds."""

    name: str
    passed: bool | None
    """None: the check does not apply, or has no evidence; `words` has the reason."""
    words: str
    unseen: bool = False
    """Whether the check ran but has no evidence: neither a failure nor a pass."""

    def __str__(self) -> str:
        mark = "?   " if self.unseen else {True: "ok  ", False: "FAIL", None: "-   "}[self.passed]
        return f"{mark}  {self.name:<10}  {self.words}"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one mechanism. `str()` has one line for each check."""

    mechanism: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed, and no check ran without evidence."""
        return not self.failures and not self.unseen

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def unseen(self) -> tuple[Check, ...]:
        """The checks that ran but have no evidence."""
        return tuple(check for check in self.checks if check.unseen)

    def __getitem__(self, name: str) -> Check:
        """The check of that name. Raises `KeyError` for an unknown name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def raise_for_failures(self) -> None:
        """Raise `InvalidOperation` with every check that failed, or else with every check that has no evidence."""
        if self.failures:
            failed = "; ".join(f"{check.name}: {check.words}" for check in self.failures)
            raise InvalidOperation(f"{self.mechanism} does not keep its promise: {failed}")
        if self.unseen:
            unseen = "; ".join(f"{check.name}: {check.words}" for check in self.unseen)
            raise InvalidOperation(f"{self.mechanism} was not judged: {unseen}")

    def __str__(self) -> str:
        return "\n".join([self.mechanism, *map(str, self.checks)])
