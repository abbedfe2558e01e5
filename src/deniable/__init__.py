"""Differential privacy as one object: a mechanism is a function that carries a curve.

Doing two things multiplies their curves. Everything else makes a mechanism, spends a curve, draws a curve, or tries to
break one.

This front door is lazy (PEP 562): importing it loads only the standard library, and a room is opened by its first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable import (
        attacks,
        audit,
        curves,
        errors,
        ledger,
        local,
        mechanisms,
        noise,
        plots,
        queries,
        tables,
        testing,
        units,
    )
    from deniable.client import connect
    from deniable.curves.calibration import calibrate
    from deniable.errors import DeniableError
    from deniable.ledger import Budget
    from deniable.mechanisms import (
        AboveThreshold,
        DiscreteGaussian,
        DiscreteLaplace,
        Exponential,
        Gaussian,
        Histogram,
        InverseSensitivity,
        Laplace,
        NoisyMax,
        PermuteAndFlip,
        PoissonMechanism,
        SparseVector,
    )
    from deniable.queries.aggregations import count, mean
    from deniable.queries.connect import session
    from deniable.queries.explain import explain
    from deniable.tables.expressions import col
    from deniable.tables.kinds import Domain
    from deniable.tables.propose import propose_schema
    from deniable.units import Guarantee, Sensitivity, Unit

__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "Budget",
    "DeniableError",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Domain",
    "Exponential",
    "Gaussian",
    "Guarantee",
    "Histogram",
    "InverseSensitivity",
    "Laplace",
    "NoisyMax",
    "PermuteAndFlip",
    "PoissonMechanism",
    "Sensitivity",
    "SparseVector",
    "Unit",
    "attacks",
    "audit",
    "calibrate",
    "col",
    "connect",
    "count",
    "curves",
    "errors",
    "explain",
    "ledger",
    "local",
    "mean",
    "mechanisms",
    "noise",
    "plots",
    "propose_schema",
    "queries",
    "session",
    "tables",
    "testing",
    "units",
]

# Where each name lives. A name that is its module's own last part stands for the module itself.
_DOORS = {
    "AboveThreshold": "deniable.mechanisms",
    "Budget": "deniable.ledger",
    "DeniableError": "deniable.errors",
    "DiscreteGaussian": "deniable.mechanisms",
    "DiscreteLaplace": "deniable.mechanisms",
    "Domain": "deniable.tables.kinds",
    "Exponential": "deniable.mechanisms",
    "Gaussian": "deniable.mechanisms",
    "Guarantee": "deniable.units",
    "Histogram": "deniable.mechanisms",
    "InverseSensitivity": "deniable.mechanisms",
    "Laplace": "deniable.mechanisms",
    "NoisyMax": "deniable.mechanisms",
    "PermuteAndFlip": "deniable.mechanisms",
    "PoissonMechanism": "deniable.mechanisms",
    "Sensitivity": "deniable.units",
    "SparseVector": "deniable.mechanisms",
    "Unit": "deniable.units",
    "attacks": "deniable.attacks",
    "audit": "deniable.audit",
    "calibrate": "deniable.curves.calibration",
    "col": "deniable.tables.expressions",
    "connect": "deniable.client",
    "count": "deniable.queries.aggregations",
    "curves": "deniable.curves",
    "errors": "deniable.errors",
    "explain": "deniable.queries.explain",
    "ledger": "deniable.ledger",
    "local": "deniable.local",
    "mean": "deniable.queries.aggregations",
    "mechanisms": "deniable.mechanisms",
    "noise": "deniable.noise",
    "plots": "deniable.plots",
    "propose_schema": "deniable.tables.propose",
    "queries": "deniable.queries",
    "session": "deniable.queries.connect",
    "tables": "deniable.tables",
    "testing": "deniable.testing",
    "units": "deniable.units",
}


def __getattr__(name: str) -> object:
    if name not in _DOORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _DOORS[name]
    module = import_module(home)
    value: object = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value  # the next access does not come through here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
