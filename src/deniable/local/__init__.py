"""The local model: every person randomises their own answer, and the collector estimates from the reports.

There is no trusted curator: the collector never sees an answer.

    binary_responses        yes or no: randomized response in four forms
    categorical_responses   one of many categories; count_mean_sketch and rappor for texts that nobody can list
    numeric_means           the mean of a number; memoised_means for a number that is asked for repeatedly
    randomized_table        a whole table, cell by cell
    surveys                 a complete survey from a CSV file to an estimate; shuffled_surveys: behind a shuffler
    local_protocol          the base classes; collector_estimates: the results; exact_odds: exact biased coins
    report_checks           checks of answers and of reports; packed_bits: rows of bits, one for each person

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
    from deniable.local.binary_responses import NuRandomizedResponse, RandomizedResponse, TwoCoinSurvey, WarnerSurvey
    from deniable.local.categorical_responses import (
        KaryRandomizedResponse,
        LocalHashing,
        OptimizedUnary,
        SubsetSelection,
        SymmetricUnary,
        recommended,
    )
    from deniable.local.collector_estimates import Estimate, Fitted, Mean, Shares, Support
    from deniable.local.count_mean_sketch import CountMeanSketch, HadamardSketch
    from deniable.local.local_protocol import Protocol, SharesProtocol
    from deniable.local.memoised_means import MeanMemory, MemoisedMean
    from deniable.local.numeric_means import DuchiMean, HybridMean, PiecewiseMean
    from deniable.local.randomized_table import Conjunction, TableResponse
    from deniable.local.rappor import BloomRappor, CohortReports, Memory, Rappor
    from deniable.local.shuffled_surveys import ShuffledSurvey
    from deniable.local.surveys import Design, Survey, survey

_HOMES = {
    "BloomRappor": "rappor",
    "CohortReports": "rappor",
    "Conjunction": "randomized_table",
    "CountMeanSketch": "count_mean_sketch",
    "Design": "surveys",
    "DuchiMean": "numeric_means",
    "Estimate": "collector_estimates",
    "Fitted": "collector_estimates",
    "HadamardSketch": "count_mean_sketch",
    "HybridMean": "numeric_means",
    "KaryRandomizedResponse": "categorical_responses",
    "LocalHashing": "categorical_responses",
    "Mean": "collector_estimates",
    "MeanMemory": "memoised_means",
    "MemoisedMean": "memoised_means",
    "Memory": "rappor",
    "NuRandomizedResponse": "binary_responses",
    "OptimizedUnary": "categorical_responses",
    "PiecewiseMean": "numeric_means",
    "Protocol": "local_protocol",
    "RandomizedResponse": "binary_responses",
    "Rappor": "rappor",
    "Shares": "collector_estimates",
    "SharesProtocol": "local_protocol",
    "ShuffledSurvey": "shuffled_surveys",
    "SubsetSelection": "categorical_responses",
    "Support": "collector_estimates",
    "Survey": "surveys",
    "SymmetricUnary": "categorical_responses",
    "TableResponse": "randomized_table",
    "TwoCoinSurvey": "binary_responses",
    "WarnerSurvey": "binary_responses",
    "recommended": "categorical_responses",
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
    "ShuffledSurvey",
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
