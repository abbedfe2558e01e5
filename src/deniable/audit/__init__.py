"""Audits: certified lower bounds on a mechanism's privacy loss from samples, exact curves where its output distribution
is known, and a zoo of broken mechanisms.

    measurement          `measure`: runs a mechanism, searches an event, and certifies a lower bound
    claim, finding       the claimed curve, and the result of an audit
    mechanism_runs       many answers of a mechanism, whether it returns, raises, exits or hangs
    answer_reading       every number and word of an answer; uses encoded_texts, foreign_frames, hidden_bits and
                         object_contents
    answer_table, answer_columns, distinguishing_columns
                         answers as columns, and the columns that tell neighbours apart
    scores, score_learning, decision_tree              a number for each answer, trained on a part of the answers
    event_search, binomial                             the event, and exact bounds on its probabilities
    exact_curve, integer_noise_laws, local_laws        `exact`: the true curve, without sampling
    training_audit                                     audits of training by canaries
    zoo, zoo_samplers                                  broken mechanisms, with the truth about each
    audit_commands                                     the command `deniable audit`

`measure` passes answers through mechanism_runs -> answer_table -> scores -> event_search -> binomial -> finding.

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
    from deniable.audit.answer_columns import Raised
    from deniable.audit.event_search import Band, Event
    from deniable.audit.exact_curve import exact
    from deniable.audit.finding import Finding
    from deniable.audit.measurement import Patterns, compare, measure, patterns, until_decided
    from deniable.audit.training_audit import OneRun, one_run, one_run_fdp

_HOMES = {
    "Band": "event_search",
    "Event": "event_search",
    "Finding": "finding",
    "OneRun": "training_audit",
    "Patterns": "measurement",
    "Raised": "answer_columns",
    "binomial": "binomial",
    "compare": "measurement",
    "exact": "exact_curve",
    "measure": "measurement",
    "one_run": "training_audit",
    "one_run_fdp": "training_audit",
    "patterns": "measurement",
    "until_decided": "measurement",
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
