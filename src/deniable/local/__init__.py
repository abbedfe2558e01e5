"""No curator: every person randomises their own answer, and the collector estimates from what they say.

>>> from deniable import local
>>> protocol = local.RandomizedResponse(epsilon=1.0)
>>> reports = protocol.randomize([True, False, True, True])  # on the people's side
>>> estimate = protocol.estimate(reports)  # on the collector's side
>>> estimate.people
4
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.local.base import Protocol, SharesProtocol
    from deniable.local.binary import NuRandomizedResponse, RandomizedResponse, TwoCoinSurvey, WarnerSurvey
    from deniable.local.categorical import (
        KaryRandomizedResponse,
        LocalHashing,
        OptimizedUnary,
        SubsetSelection,
        SymmetricUnary,
        recommended,
    )
    from deniable.local.estimates import Estimate, Fitted, Mean, Shares, Support
    from deniable.local.memoised import MeanMemory, MemoisedMean
    from deniable.local.numeric import DuchiMean, HybridMean, PiecewiseMean
    from deniable.local.rappor import BloomRappor, CohortReports, Memory, Rappor
    from deniable.local.sketch import CountMeanSketch, HadamardSketch
    from deniable.local.surveys import Design, Survey, survey
    from deniable.local.table import Conjunction, TableResponse

_HOMES = {
    "BloomRappor": "rappor",
    "CohortReports": "rappor",
    "Conjunction": "table",
    "CountMeanSketch": "sketch",
    "Design": "surveys",
    "DuchiMean": "numeric",
    "Estimate": "estimates",
    "Fitted": "estimates",
    "HadamardSketch": "sketch",
    "HybridMean": "numeric",
    "KaryRandomizedResponse": "categorical",
    "LocalHashing": "categorical",
    "Mean": "estimates",
    "MeanMemory": "memoised",
    "MemoisedMean": "memoised",
    "Memory": "rappor",
    "NuRandomizedResponse": "binary",
    "OptimizedUnary": "categorical",
    "PiecewiseMean": "numeric",
    "Protocol": "base",
    "RandomizedResponse": "binary",
    "Rappor": "rappor",
    "Shares": "estimates",
    "SharesProtocol": "base",
    "SubsetSelection": "categorical",
    "Support": "estimates",
    "Survey": "surveys",
    "SymmetricUnary": "categorical",
    "TableResponse": "table",
    "TwoCoinSurvey": "binary",
    "WarnerSurvey": "binary",
    "recommended": "categorical",
    "survey": "surveys",
}

__all__ = [
    "BloomRappor",
    "CohortReports",
    "Conjunction",
    "CountMeanSketch",
    "Design",
    "DuchiMean",
    "Estimate",
    "Fitted",
    "HadamardSketch",
    "HybridMean",
    "KaryRandomizedResponse",
    "LocalHashing",
    "Mean",
    "MeanMemory",
    "MemoisedMean",
    "Memory",
    "NuRandomizedResponse",
    "OptimizedUnary",
    "PiecewiseMean",
    "Protocol",
    "RandomizedResponse",
    "Rappor",
    "Shares",
    "SharesProtocol",
    "SubsetSelection",
    "Support",
    "Survey",
    "SymmetricUnary",
    "TableResponse",
    "TwoCoinSurvey",
    "WarnerSurvey",
    "recommended",
    "survey",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
