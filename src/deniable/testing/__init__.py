"""Checks whether a mechanism keeps its promise, with stated error rates. They work for user-defined mechanisms too.

>>> from deniable import mechanisms, testing
>>> report = testing.check_mechanism(mechanisms.Laplace(sensitivity=1, epsilon=1), neighbours=(0, 1), trials=2000)
>>> report.passed
True

    mechanism_checks         `check_mechanism`
    check_report             its results
    evidence, statistics     events that tell two samples apart, and tests with exact error rates
    strategies               Hypothesis strategies: curves, neighbours, scales
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.testing import statistics, strategies
    from deniable.testing.check_report import Check, Report
    from deniable.testing.mechanism_checks import OnePerson, check_mechanism

_HOMES = {
    "Check": "check_report",
    "OnePerson": "mechanism_checks",
    "Report": "check_report",
    "check_mechanism": "mechanism_checks",
    "statistics": "statistics",
    "strategies": "strategies",
}

__all__ = ["Check", "OnePerson", "Report", "check_mechanism", "statistics", "strategies"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
