"""Every mechanism of `mechanisms` and `local` is audited in every build; the long run does a million answers each."""

from __future__ import annotations

import pytest

from deniable import audit, local, mechanisms
from deniable.mechanisms import Mechanism
from tests.audit.cases import Case, cases

CASES = cases()
SURE = 1 - 1e-9
"""Each is blamed once in a billion builds."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_are_never_refuted(case: Case) -> None:
    found = audit.measure(
        case.mechanism,
        neighbours=case.neighbours,
        trials=4000 if case.quick else 1000,
        confidence=SURE,
        delta=case.delta,
        likelihood_ratio=case.likelihood_ratio,
    )
    assert found.refuted is False, found.sentence
    assert found.epsilon <= found.claimed
    if case.tight and case.quick:
        # Not idle: with so few answers a tight one shows at least a third of its claim (the long run: 0.9).
        assert found.ratio > (0.35 if case.delta == 0 else 0.2)


def test_no_mechanism_is_left_out() -> None:
    """Bounds answers with a range for the next mechanism, and is audited through the histogram that it is."""
    seen = {type(getattr(case.mechanism, "protocol", case.mechanism)).__name__ for case in CASES}
    made = {
        name
        for name in mechanisms.__all__
        if isinstance(getattr(mechanisms, name), type) and issubclass(getattr(mechanisms, name), Mechanism)
    }
    parts = {"Mechanism", "Adaptive", "Bounds", "PiecewiseExponential", "Quantile"}
    aliases = {"NoisyAnswers": "LinearQueries"}
    assert made - {aliases.get(name, name) for name in seen} - parts == set()
    protocols = {
        name
        for name in local.__all__
        if isinstance(getattr(local, name), type) and issubclass(getattr(local, name), local.Protocol)
    }
    assert protocols - seen - {"Protocol", "SharesProtocol", "BloomRappor"} == set()
