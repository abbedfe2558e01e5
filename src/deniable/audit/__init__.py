"""Evidence: measured lower bounds on what a mechanism leaks, exact ones where its law is known, and a zoo of mistakes.

>>> from deniable import audit, curves, mechanisms
>>> noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0)
>>> finding = audit.measure(
...     noisy, neighbours=(0.0, 1.0), claim=curves.pure(epsilon=0.5), trials=20_000, confidence=0.99
... )
>>> finding.refuted
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.audit import binomial, zoo
    from deniable.audit.answers import Raised
    from deniable.audit.exactly import exact
    from deniable.audit.finding import Finding
    from deniable.audit.game import Band, Event
    from deniable.audit.measuring import Patterns, compare, measure, patterns, until_decided
    from deniable.audit.training import OneRun, one_run, one_run_fdp

_HOMES = {
    "Band": "game",
    "Event": "game",
    "Finding": "finding",
    "OneRun": "training",
    "Patterns": "measuring",
    "Raised": "answers",
    "binomial": "binomial",
    "compare": "measuring",
    "exact": "exactly",
    "measure": "measuring",
    "one_run": "training",
    "one_run_fdp": "training",
    "patterns": "measuring",
    "until_decided": "measuring",
    "zoo": "zoo",
}

__all__ = [
    "Band",
    "Event",
    "Finding",
    "OneRun",
    "Patterns",
    "Raised",
    "binomial",
    "compare",
    "exact",
    "measure",
    "one_run",
    "one_run_fdp",
    "patterns",
    "until_decided",
    "zoo",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
