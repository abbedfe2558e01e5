"""Differential privacy as one object: a mechanism is a function that carries a curve.

To compose two mechanisms, multiply their curves. All other parts of the library build mechanisms, pay for curves, plot
them, or attack them.

Imports are lazy (PEP 562): `import deniable` loads only the standard library, and each package is loaded on first use.
"""

from deniable.doors import lazy_door

TYPE_CHECKING = False  # type checkers take it as True; importing `typing` would take longer than the rest
if TYPE_CHECKING:
    from deniable import (
        attacks,
        audit,
        curves,
        errors,
        learn,
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
    from deniable.queries.answer.explanation import explain
    from deniable.queries.frame.frame_aggregates import count, mean
    from deniable.queries.session_opening import session
    from deniable.tables.expressions import col
    from deniable.tables.kinds import Domain
    from deniable.tables.schema_proposal import propose_schema
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
    "learn",
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

_HOMES = {
    "AboveThreshold": "mechanisms",
    "Budget": "ledger",
    "DeniableError": "errors",
    "DiscreteGaussian": "mechanisms",
    "DiscreteLaplace": "mechanisms",
    "Domain": "tables.kinds",
    "Exponential": "mechanisms",
    "Gaussian": "mechanisms",
    "Guarantee": "units",
    "Histogram": "mechanisms",
    "InverseSensitivity": "mechanisms",
    "Laplace": "mechanisms",
    "NoisyMax": "mechanisms",
    "PermuteAndFlip": "mechanisms",
    "PoissonMechanism": "mechanisms",
    "Sensitivity": "units",
    "SparseVector": "mechanisms",
    "Unit": "units",
    "attacks": "attacks",
    "audit": "audit",
    "calibrate": "curves.calibration",
    "col": "tables.expressions",
    "connect": "client",
    "count": "queries.frame.frame_aggregates",
    "curves": "curves",
    "errors": "errors",
    "explain": "queries.answer.explanation",
    "learn": "learn",
    "ledger": "ledger",
    "local": "local",
    "mean": "queries.frame.frame_aggregates",
    "mechanisms": "mechanisms",
    "noise": "noise",
    "plots": "plots",
    "propose_schema": "tables.schema_proposal",
    "queries": "queries",
    "session": "queries.session_opening",
    "tables": "tables",
    "testing": "testing",
    "units": "units",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES, here=("__version__",))
