"""Does a mechanism keep its promise? Checks with stated error rates, for ours and for anybody's.

>>> from deniable import mechanisms, testing
>>> report = testing.check_mechanism(mechanisms.Laplace(sensitivity=1, epsilon=1), neighbours=(0, 1), trials=2000)
>>> report.passed
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable.testing import statistics, strategies
    from deniable.testing.checks import OnePerson, check_mechanism
    from deniable.testing.report import Check, Report

_HOMES = {"Check": "report", "OnePerson": "checks", "Report": "report", "check_mechanism": "checks"}
_ROOMS = ("statistics", "strategies")

__all__ = ["Check", "OnePerson", "Report", "check_mechanism", "statistics", "strategies"]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used (PEP 562), so that importing this room costs next to nothing."""
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
