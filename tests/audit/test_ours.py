"""Every mechanism of `mechanisms` and `local` is audited in every build; the long run does a million answers each."""

from __future__ import annotations

from typing import Any

import pytest

from deniable import audit, local, mechanisms
from deniable.mechanisms import Mechanism
from tests.audit.cases import Case, cases

CASES = cases()
SURE = 1 - 1e-9
"""Each is blamed once in a billion builds."""


def trials(case: Case) -> int:
    """So many that a tight one is seen in all but one of 10⁹ builds: its ε found lies 9 standard deviations above 0.

    With a thousand, two cases in the list lay 1.6 and 2.4 standard deviations above 0, and one build in a hundred was red.
    """
    if case.quick:
        return 12_000
    return 6000 if case.tight else 1000


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_are_never_refuted(case: Case) -> None:
    found = audit.measure(
        case.mechanism,
        neighbours=case.neighbours,
        trials=trials(case),
        confidence=SURE,
        delta=case.delta,
        likelihood_ratio=case.likelihood_ratio,
    )
    assert found.refuted is False, found.sentence
    assert found.epsilon <= found.claimed
    if case.tight:
        assert found.verdict == "consistent", found.sentence
    if case.tight and case.quick:
        # Not idle: with so few answers a tight one shows at least a third of its claim (the long run: 0.9). Each is
        # more than six standard deviations above.
        assert found.ratio > (0.35 if case.delta == 0 else 0.2)


ABSTRACT = {"Mechanism", "Protocol", "SharesProtocol"}
"""Public names of this kind that answer nothing themselves."""


@pytest.mark.parametrize(
    ("room", "kind"), [(mechanisms, Mechanism), (local, local.Protocol)], ids=["mechanisms", "local"]
)
def test_no_public_mechanism_is_left_out(room: Any, kind: type) -> None:
    """Every public class of the room that is a mechanism or a protocol has a case of its own, and so has a new one."""
    public = {name: getattr(room, name) for name in room.__all__}
    wanted = {name for name, found in public.items() if isinstance(found, type) and issubclass(found, kind)} - ABSTRACT
    seen = {type(getattr(case.mechanism, "protocol", case.mechanism)) for case in CASES}
    assert wanted, "the room has some"
    assert {name for name in wanted if not any(issubclass(one, public[name]) for one in seen)} == set()
    # Nothing of the kind hides behind another name: whatever the room defines and exports is looked at.
    assert all(abstract not in wanted for abstract in ABSTRACT)


def test_a_mechanism_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "CASES", [case for case in CASES if case.name != "Quantile"])
    with pytest.raises(AssertionError, match="Quantile"):
        test_no_public_mechanism_is_left_out(mechanisms, Mechanism)
